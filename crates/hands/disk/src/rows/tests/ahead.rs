//! Rows that threads read while their owner goes on.

use super::*;
use skep_rows::Wanted;
use std::sync::mpsc::{Receiver, channel};

/// A store with readers, and what they tell.
fn reading(dir: &Path, gate: &Arc<Gate>) -> (RowStore, Receiver<()>) {
    reading_by(dir, gate, None)
}

fn reading_by(dir: &Path, gate: &Arc<Gate>, before: Option<BeforeRead>) -> (RowStore, Receiver<()>) {
    let (mut store, (tell, told)) = (open(dir, gate), channel());
    let notify: ReadNotify = Arc::new(move || tell.send(()).unwrap_or_default());
    store.start_readers(&notify, before.as_ref()).unwrap();
    store.is_cold();
    (store, told)
}

/// Stands in front of the disk: shut, no read gets behind it.
#[derive(Default)]
struct Door {
    /// Whether it is open, and how many reads have come to it.
    state: Mutex<(bool, usize)>,
    moved: Condvar,
    /// So many reads get behind it before it shuts.
    free: usize,
}

impl Door {
    fn in_front(door: &Arc<Self>) -> BeforeRead {
        let door = door.clone();
        Arc::new(move |_| {
            let mut state = door.state.lock().unwrap();
            state.1 += 1;
            let number = state.1;
            door.moved.notify_all();
            drop(door.moved.wait_while(state, |(is_open, _)| !*is_open && number > door.free).unwrap());
        })
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.moved.notify_all();
    }

    /// Waits until so many reads have come.
    fn wait_for(&self, count: usize) {
        let waited =
            self.moved.wait_timeout_while(self.state.lock().unwrap(), LIMIT, |(_, came)| *came < count);
        assert!(!waited.unwrap().1.timed_out());
    }
}

/// Both threads have a read in hand, numbers 1 and 2, and stand in front of the door.
fn with_both_at_the_door(store: &mut RowStore, door: &Door) {
    (1..3).for_each(|id| store.read_ahead(id, vec![Wanted::Row(vec![0, 9])]));
    door.wait_for(2);
}

/// What comes back, until this one does.
fn read_until(store: &mut RowStore, told: &Receiver<()>, last: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    while !ids.contains(&last) {
        told.recv_timeout(LIMIT).unwrap();
        ids.extend(store.take_read().unwrap());
    }
    ids
}

fn put(store: &mut RowStore, key: &[u8], value: u8) {
    let index = LogSeq(store.applied().0 + 1);
    store.apply(index, &[], [(key.to_vec(), Some(vec![value]))].into()).unwrap();
}

/// What a listing of everything sees, if it does not have to wait.
fn listed(store: &RowStore) -> Option<Vec<(Key, Vec<u8>)>> {
    let mut seen = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        seen.push((key.to_vec(), value.to_vec()));
        true
    };
    store.scan_near(&[0], &[1], visit).unwrap().then_some(seen)
}

const KEY: &[u8] = &[0, 1, 2];

fn wanted() -> Vec<Wanted> {
    vec![Wanted::Row(KEY.to_vec()), Wanted::Range(vec![0], vec![1])]
}

/// Goal: what is on disk only is not near before it was read; what is not there neither. Then it is, and the number
/// of the read comes back.
#[test]
fn rows_are_near_once_they_were_read() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::open();
    let mut store = open(root.path(), &gate);
    put(&mut store, KEY, 1);
    assert_eq!(store.get_near(KEY), Ok(Some(Some(vec![1]))), "without readers nothing waits for them");
    store.flush(LIMIT).unwrap();
    drop(store);
    let (mut store, told) = reading(root.path(), &gate);
    assert_eq!((store.get_near(KEY), store.get_near(&[0, 9]), listed(&store)), (Ok(None), Ok(None), None));
    let more = [wanted(), vec![Wanted::Row(vec![0, 9])]].concat();
    store.read_ahead(7, more);
    told.recv_timeout(LIMIT).unwrap();
    assert_eq!(store.take_read(), Ok(vec![7]));
    assert_eq!((store.get_near(KEY), store.get_near(&[0, 9])), (Ok(Some(Some(vec![1]))), Ok(Some(None))));
    assert_eq!(listed(&store), Some(vec![(KEY.to_vec(), vec![1])]));
    // What is newer lies over the range that was read.
    put(&mut store, &[0, 1, 1], 5);
    assert_eq!(listed(&store).unwrap().len(), 2);
}

/// Goal: a row that was read before a newer one took its place on disk, and comes after it, is not believed. It was in
/// no overlay any more that would have covered it.
#[test]
fn what_was_read_before_a_checkpoint_is_not_believed() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::open();
    let (mut store, told) = reading(root.path(), &gate);
    put(&mut store, KEY, 1);
    store.flush(LIMIT).unwrap();
    store.read_ahead(1, wanted());
    told.recv_timeout(LIMIT).unwrap();
    put(&mut store, KEY, 2);
    store.flush(LIMIT).unwrap();
    // Out of what settles, into the cache.
    (0..10).for_each(|n| put(&mut store, &[0, 2, n], n));
    store.flush(LIMIT).unwrap();
    (0..10).for_each(|n| put(&mut store, &[0, 3, n], n));
    assert_eq!(store.take_read(), Ok(vec![1]));
    assert_eq!(store.get(KEY), Ok(Some(vec![2])), "an older row is in the cache");
    assert_eq!(listed(&store), None, "an older range is believed");
}

/// Goal: a range that was read is forgotten with the next checkpoint, whose rows it does not have.
#[test]
fn a_range_is_as_old_as_a_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::open();
    let (mut store, told) = reading(root.path(), &gate);
    put(&mut store, KEY, 1);
    store.flush(LIMIT).unwrap();
    store.read_ahead(1, wanted());
    told.recv_timeout(LIMIT).unwrap();
    assert_eq!(store.take_read(), Ok(vec![1]));
    assert_eq!(listed(&store).unwrap().len(), 1);
    put(&mut store, &[0, 1, 9], 2);
    store.flush(LIMIT).unwrap();
    assert_eq!(listed(&store), None);
}

/// Goal: a range goes on in place where it was too long to be read ahead.
#[test]
fn a_long_range_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::open();
    let (mut store, told) = reading(root.path(), &gate);
    let rows: Batch =
        (0..3_000u16).map(|n| ([&[0, 5], &n.to_be_bytes()[..]].concat(), Some(vec![7]))).collect();
    store.apply(LogSeq(1), &[], rows.clone()).unwrap();
    store.flush(LIMIT).unwrap();
    store.read_ahead(1, wanted());
    told.recv_timeout(LIMIT).unwrap();
    assert_eq!(store.take_read(), Ok(vec![1]));
    let expected: Vec<_> = rows.into_iter().map(|(key, value)| (key, value.unwrap())).collect();
    assert_eq!(listed(&store), Some(expected));
}

/// Goal: whatever is written, read ahead, checkpointed and taken in whatever order, what is near is what a map has.
#[test]
fn what_is_near_agrees_with_a_map() {
    const KEYS: u64 = 300;
    let mut near = 0;
    for seed in 1..6 {
        let root = tempfile::tempdir().unwrap();
        let (mut dice, gate) = (Dice(seed * 104_729), Gate::open());
        let (mut store, _told) = reading(root.path(), &gate);
        let mut model = Model::new();
        for index in 1..3_000 {
            apply_to(&mut model, batch(index, KEYS));
            store.apply(LogSeq(index), &[], batch(index, KEYS)).unwrap();
            let bound = |n: u64| n.to_be_bytes().to_vec();
            match dice.below(40) {
                0..4 => {
                    let from = dice.below(6);
                    let rows = (0..dice.below(40)).map(|_| Wanted::Row(key(dice.below(KEYS))));
                    let range = Wanted::Range(bound(from), bound(from + 1));
                    store.read_ahead(index, rows.chain([range]).collect());
                }
                4..8 => drop(store.take_read().unwrap()),
                8 => {
                    store.checkpoint().unwrap();
                }
                9 if dice.below(10) == 0 => store.flush(LIMIT).unwrap(),
                10 => store.is_cold(),
                11 => (index.saturating_sub(30)..index).for_each(|id| store.give_up_read(id)),
                _ => {}
            }
            let key = key(dice.below(KEYS));
            if let Some(found) = store.get_near(&key).unwrap() {
                assert_eq!(found.as_ref(), model.get(&key), "after {index} of {seed}");
            }
            let from = dice.below(6);
            let (from, until) = (bound(from), bound(from + 1));
            let mut seen = Vec::new();
            let visit = &mut |key: &[u8], value: &[u8]| {
                seen.push((key.to_vec(), value.to_vec()));
                true
            };
            if store.scan_near(&from, &until, visit).unwrap() {
                near += 1;
                let expected: Vec<_> =
                    model.range(from..until).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(seen, expected, "after {index} of {seed}");
            }
        }
    }
    assert!(near > 100, "{near} ranges were near");
}

/// Reads of forty rows, and a store that has them on its disk, which gives twenty before the door shuts.
fn long_read(root: &Path, gate: &Arc<Gate>, door: &Arc<Door>) -> (RowStore, Receiver<()>) {
    let mut store = open(root, gate);
    (0..40).for_each(|n| put(&mut store, &[0, 1, n], 1));
    store.flush(LIMIT).unwrap();
    drop(store);
    let (mut store, told) = reading_by(root, gate, Some(Door::in_front(door)));
    store.read_ahead(1, (0..40).map(|n| Wanted::Row(vec![0, 1, n])).collect());
    door.wait_for(21);
    (store, told)
}

/// Which of the forty rows are in memory.
fn near(store: &RowStore) -> Vec<u8> {
    (0..40).filter(|n| store.get_near(&[0, 1, *n]).unwrap().is_some()).collect()
}

/// Goal: a long read keeps over checkpoints what they do not change, but for the few rows that are being read: on a slow disk
/// it would never come to its end. What they change is not believed.
#[test]
fn a_long_read_outlives_checkpoints() {
    let (root, gate) = (tempfile::tempdir().unwrap(), Gate::open());
    let door = Arc::new(Door { free: 20, ..Door::default() });
    let (mut store, told) = long_read(root.path(), &gate, &door);
    put(&mut store, &[0, 1, 3], 2);
    // The second of them takes it out of what settles, into the cache.
    for table in 2..4 {
        (0..10).for_each(|n| put(&mut store, &[0, table, n], n));
        store.flush(LIMIT).unwrap();
    }
    door.open();
    read_until(&mut store, &told, 1);
    assert_eq!(near(&store), (0..16).chain(32..40).collect::<Vec<u8>>());
    assert_eq!(store.get(&[0, 1, 3]), Ok(Some(vec![2])), "an older row is in the cache");
}

/// Goal: what was read for a request that is gone is there when it is asked for again: else a request for more rows than a slow
/// disk gives before its time is over would never be answered. No more is read for it.
#[test]
fn what_was_read_for_who_is_gone_is_kept() {
    let (root, gate) = (tempfile::tempdir().unwrap(), Gate::open());
    let door = Arc::new(Door { free: 20, ..Door::default() });
    let (mut store, told) = long_read(root.path(), &gate, &door);
    store.give_up_read(1);
    door.open();
    read_until(&mut store, &told, 1);
    assert_eq!(near(&store), (0..32).collect::<Vec<u8>>());
    assert_eq!(door.state.lock().unwrap().1, 32, "reads that were begun");
}

/// Goal: what nobody waits for any more is not read, and not gone on with where it is in work: the disk is there for those who
/// wait.
#[test]
fn what_nobody_waits_for_is_not_read() {
    let (root, gate, door) = (tempfile::tempdir().unwrap(), Gate::open(), Arc::new(Door::default()));
    let (mut store, told) = reading_by(root.path(), &gate, Some(Door::in_front(&door)));
    with_both_at_the_door(&mut store, &door);
    store.read_ahead(3, wanted());
    store.read_ahead(4, vec![Wanted::Row(KEY.to_vec())]);
    [1, 2, 3].into_iter().for_each(|id| store.give_up_read(id));
    door.open();
    // Whoever reads the fourth had one of the first two in hand before.
    assert!(!read_until(&mut store, &told, 4).contains(&3));
    assert_eq!(door.state.lock().unwrap().1, 3, "reads that were begun");
}

/// Goal: a read that waited for its turn while a checkpoint was collected has the rows of that, and is believed.
#[test]
fn what_is_read_after_a_checkpoint_is_believed() {
    let (root, gate, door) = (tempfile::tempdir().unwrap(), Gate::open(), Arc::new(Door::default()));
    let (mut store, told) = reading_by(root.path(), &gate, Some(Door::in_front(&door)));
    put(&mut store, KEY, 1);
    store.flush(LIMIT).unwrap();
    with_both_at_the_door(&mut store, &door);
    store.read_ahead(3, wanted());
    put(&mut store, KEY, 2);
    store.flush(LIMIT).unwrap();
    door.open();
    read_until(&mut store, &told, 3);
    assert_eq!(listed(&store), Some(vec![(KEY.to_vec(), vec![2])]));
}
