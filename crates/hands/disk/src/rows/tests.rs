mod ahead;

use super::*;
use crate::log::LogError;
use skep_rows::{Batch, Key, Store, StoreError, applied_key, applied_shard};
use skep_types::log::Head;
use skep_types::{Encode, LogIndex, LogSeq, ShardId, Term};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A log that is durable as far as the test says.
struct Gate {
    durable: Mutex<Result<u64, LogError>>,
    moved: Condvar,
}

impl Gate {
    fn open() -> Arc<Self> {
        Self::at(u64::MAX)
    }

    fn at(durable: u64) -> Arc<Self> {
        Arc::new(Self { durable: Mutex::new(Ok(durable)), moved: Condvar::new() })
    }

    fn set(&self, durable: Result<u64, LogError>) {
        *self.durable.lock().unwrap() = durable;
        self.moved.notify_all();
    }
}

impl LogBarrier for Gate {
    fn wait_durable(&self, seq: LogSeq, limit: Duration) -> Result<bool, LogError> {
        let durable = self.durable.lock().unwrap();
        let blocked = |d: &mut Result<u64, LogError>| d.as_ref().is_ok_and(|d| *d < seq.0);
        let (durable, time) = self.moved.wait_timeout_while(durable, limit, blocked).unwrap();
        durable.clone().map(|_| !time.timed_out())
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below
    }
}

fn small() -> RowOptions {
    RowOptions { overlay_bytes: 16 << 10, cache_bytes: 64 << 10, block_cache_bytes: 1 << 20 }
}

fn open(dir: &Path, gate: &Arc<Gate>) -> RowStore {
    RowStore::open(dir, small(), gate.clone(), Box::new(|| ())).unwrap()
}

fn key(n: u64) -> Key {
    let mut key = (n % 7).to_be_bytes().to_vec();
    key.extend(format!("name{n}").bytes());
    key
}

/// The head that an index leaves, always the same: of the shard whose rows [`key`] names, or of another one.
fn head(index: u64) -> Head {
    Head { shard: ShardId((index % 4) as u16 * 7), term: Term(index / 100), index: LogIndex(index) }
}

/// How far the shards are once this is applied.
fn heads(applied: LogSeq) -> BTreeMap<ShardId, Head> {
    (applied.0.saturating_sub(3).max(1)..=applied.0).map(head).map(|head| (head.shard, head)).collect()
}

fn check_heads(store: &RowStore) {
    let expected = heads(store.applied());
    for shard in (0..30).map(ShardId) {
        assert_eq!(store.applied_of(shard), Ok(expected.get(&shard).copied()), "after {}", store.applied());
    }
}

/// The batch of an index, always the same.
fn batch(index: u64, keys: u64) -> Batch {
    let mut dice = Dice(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    dice.below(2);
    (0..dice.below(5))
        .map(|_| {
            let key = key(dice.below(keys));
            let size = if dice.below(30) == 0 { 9000 } else { dice.below(200) };
            (key, (dice.below(4) > 0).then(|| vec![index as u8; size as usize]))
        })
        .collect()
}

type Model = BTreeMap<Key, Vec<u8>>;

fn apply_to(model: &mut Model, batch: Batch) {
    for (key, value) in batch {
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
}

fn all(store: &RowStore) -> Model {
    let mut rows = Model::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        assert!(rows.last_key_value().is_none_or(|(last, _)| last.as_slice() < key), "out of order");
        rows.insert(key.to_vec(), value.to_vec());
        true
    };
    store.scan(&[], &[0xff; 20], visit).unwrap();
    rows.retain(|key, _| applied_shard(key).is_none());
    rows
}

fn check_some(store: &RowStore, model: &Model, dice: &mut Dice, keys: u64) {
    let key = key(dice.below(keys));
    assert_eq!(store.get(&key).unwrap(), model.get(&key).cloned());
    let (from, until) = (dice.below(8).to_be_bytes(), dice.below(8).to_be_bytes());
    let most = 1 + dice.below(40) as usize;
    let mut seen = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        seen.push((key.to_vec(), value.to_vec()));
        seen.len() < most
    };
    store.scan(&from, &until, visit).unwrap();
    let range = (from < until).then(|| model.range(from.to_vec()..until.to_vec()));
    let expected: Vec<_> = range.into_iter().flatten().take(most).collect();
    assert_eq!(seen.iter().map(|(k, v)| (k, v)).collect::<Vec<_>>(), expected);
}

/// Goal: whatever is applied, checkpointed, cached and reopened, gets and scans see exactly what a
/// map sees, also while a checkpoint is held half-way.
#[test]
fn agrees_with_a_map() {
    const KEYS: u64 = 400;
    for seed in 1..6 {
        let root = tempfile::tempdir().unwrap();
        let mut dice = Dice(seed * 7919);
        let gate = Gate::at(0);
        let mut store = open(root.path(), &gate);
        let mut models = vec![Model::new()];
        for _ in 0..2500 {
            let index = store.applied().0 + 1;
            let mut model = models.last().unwrap().clone();
            apply_to(&mut model, batch(index, KEYS));
            // The gate follows some way behind, so checkpoints stay frozen for a while, but not
            // when apply might have to wait for one: nobody else would open it.
            let size: usize = batch(index, KEYS).values().flatten().map(Vec::len).sum();
            let may_wait = store.dirty_bytes() > 24 << 10 || size > 2 << 10;
            let lag = if may_wait { 0 } else { dice.below(60) };
            gate.set(Ok((index - 1).saturating_sub(lag)));
            store.apply(LogSeq(index), &[head(index)], batch(index, KEYS)).unwrap();
            check_some(&store, &model, &mut dice, KEYS);
            check_heads(&store);
            models.push(model);
            match dice.below(300) {
                0 => assert_eq!(&all(&store), models.last().unwrap()),
                1 => {
                    drop(store);
                    store = open(root.path(), &gate);
                    // What came after the last checkpoint is gone, here at once: this may be the last turn.
                    models.truncate(store.applied().0 as usize + 1);
                    assert_eq!(&all(&store), models.last().unwrap(), "rows and applied index disagree");
                    check_heads(&store);
                }
                2 => {
                    gate.set(Ok(u64::MAX));
                    store.flush(LIMIT).unwrap();
                    assert_eq!(store.checkpointed(), store.applied());
                }
                3 => drop(store.checkpoint().unwrap()),
                _ => {}
            }
        }
        gate.set(Ok(u64::MAX));
        store.flush(LIMIT).unwrap();
        assert_eq!(&all(&store), models.last().unwrap());
        drop(store);
        assert_eq!(&all(&open(root.path(), &gate)), models.last().unwrap());
    }
}

/// Goal: a process killed at any moment leaves rows that agree with their applied index. This
/// very test, started again with the variable set, is the process that gets killed.
#[test]
fn kill_leaves_rows_and_index_agreeing() {
    const KEYS: u64 = 3000;
    const VARIABLE: &str = "SKEP_ROWS_KILLED";
    if let Some(dir) = std::env::var_os(VARIABLE) {
        let mut store = open(Path::new(&dir), &Gate::open());
        println!("\nopen");
        loop {
            let index = store.applied().0 + 1;
            store.apply(LogSeq(index), &[head(index)], batch(index, KEYS)).unwrap();
        }
    }
    let root = tempfile::tempdir().unwrap();
    let (mut model, mut at) = (Model::new(), 0);
    for round in 0.. {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rows::tests::kill_leaves_rows_and_index_agreeing", "--nocapture"])
            .env(VARIABLE, root.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains("\nopen") {
            let mut byte = [0];
            output.read_exact(&mut byte).expect("the child ended early");
            said.push(byte[0]);
        }
        std::thread::sleep(Duration::from_millis(10 + round * 23));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(root.path(), &Gate::open());
        assert!(store.applied().0 >= at, "went back");
        while at < store.applied().0 {
            at += 1;
            apply_to(&mut model, batch(at, KEYS));
        }
        assert_eq!(all(&store), model, "round {round}, applied {at}");
        check_heads(&store);
        // Each child lives longer than the one before: on a slow disk it takes more of them until one had a checkpoint.
        if round >= 11 && at > 0 {
            break;
        }
        assert!(round < 200, "no checkpoint was ever seen");
    }
}

/// Goal: no row reaches fjall before the log is durable up to its command.
#[test]
fn a_checkpoint_waits_for_the_log() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::at(4);
    let mut store = open(root.path(), &gate);
    for index in 1..=5 {
        store.apply(LogSeq(index), &[], [(key(index), Some(vec![1]))].into()).unwrap();
    }
    assert!(store.checkpoint().unwrap());
    assert!(!store.checkpoint().unwrap(), "two checkpoints at once");
    assert!(store.flush(Duration::from_millis(50)).is_err());
    assert_eq!(store.checkpointed(), LogSeq(0));
    drop(store);
    let mut store = open(root.path(), &gate);
    assert_eq!((store.applied(), all(&store).len()), (LogSeq(0), 0));
    store.apply(LogSeq(5), &[], [(key(5), Some(vec![1]))].into()).unwrap();
    gate.set(Ok(5));
    store.flush(LIMIT).unwrap();
    assert_eq!(store.poll(), Ok(None));
    assert_eq!(store.checkpointed(), LogSeq(5));
}

/// Goal: apply never waits, whatever the checkpoint waits for; the store says when it is crowded, and
/// making room waits instead of growing.
#[test]
fn room_is_made_by_a_late_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::at(0);
    let mut store = open(root.path(), &gate);
    let opener = gate.clone();
    let (sender, receiver) = std::sync::mpsc::channel();
    let helper = std::thread::spawn(move || {
        receiver.recv().unwrap();
        opener.set(Ok(u64::MAX));
    });
    let mut peak = 0;
    for index in 1..2000 {
        store.apply(LogSeq(index), &[], [(key(index), Some(vec![0; 100]))].into()).unwrap();
        peak = peak.max(store.dirty_bytes());
        if store.is_crowded() && peak < 60 << 10 {
            assert_eq!(store.make_room(Duration::from_millis(5)), Ok(false), "the log is not durable");
            let _ = sender.send(());
        }
        assert_eq!(store.make_room(LIMIT), Ok(true));
    }
    assert!((45 << 10..66 << 10).contains(&peak), "{peak}");
    helper.join().unwrap();
    store.flush(LIMIT).unwrap();
    assert_eq!(all(&store).len(), 1999);
}

/// Goal: when the log failed, no checkpoint is written, the store says why, and reads go on.
#[test]
fn a_failed_log_stops_changes_but_not_reads() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::at(0);
    let mut store = open(root.path(), &gate);
    store.apply(LogSeq(1), &[], [(key(1), Some(vec![1]))].into()).unwrap();
    gate.set(Err(LogError::Failed("disk on fire".into())));
    let error = store.flush(LIMIT).unwrap_err();
    assert!(error.to_string().contains("disk on fire"));
    assert_eq!(store.apply(LogSeq(2), &[], Batch::new()), Err(error));
    assert_eq!(store.get(&key(1)), Ok(Some(vec![1])));
    drop(store);
    assert_eq!(open(root.path(), &gate).applied(), LogSeq(0));
}

/// Goal: rows out of bounds, indexes that go back, a store opened twice and a log that does not
/// fit are refused with words.
#[test]
fn misuse_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::open();
    let mut store = open(root.path(), &gate);
    store.apply(LogSeq(7), &[], [(key(1), Some(vec![1]))].into()).unwrap();
    assert!(store.apply(LogSeq(7), &[], Batch::new()).is_err());
    for bad in [vec![], vec![0; KEY_MAX + 1], vec![0xff, 0xff, 1]] {
        assert!(store.apply(LogSeq(8), &[], [(bad.clone(), None)].into()).is_err());
        assert_eq!(store.get(&bad), Ok(None));
    }
    assert!(store.apply(LogSeq(8), &[], [(key(1), Some(vec![0; VALUE_MAX + 1]))].into()).is_err());
    assert_eq!(store.applied(), LogSeq(7));
    let again = RowStore::open(root.path(), small(), gate, Box::new(|| ()));
    assert!(matches!(again.err(), Some(StoreError::Io(text)) if text.contains("another process")));
    assert_eq!(store.check_log(LogSeq(8), LogSeq(7)), Ok(()));
    assert_eq!(store.check_log(LogSeq(1), LogSeq(9)), Ok(()));
    assert!(matches!(store.check_log(LogSeq(1), LogSeq(6)), Err(StoreError::Corrupt(_))));
    assert!(matches!(store.check_log(LogSeq(9), LogSeq(20)), Err(StoreError::Corrupt(_))));
}

/// Goal: how far a shard is applied becomes part of the checkpoint that has its rows, is found again, and goes
/// when the shard's rows go or come from elsewhere.
#[test]
fn applied_of_a_shard_lies_among_its_rows() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::at(0);
    let of = |shard, index| Head { shard: ShardId(shard), term: Term(4), index: LogIndex(index) };
    let (tell, told) = std::sync::mpsc::channel();
    let notify = Box::new(move || tell.send(()).unwrap_or_default());
    let mut store = RowStore::open(root.path(), small(), gate.clone(), notify).unwrap();
    store.apply(LogSeq(1), &[of(1, 5), of(0x0102, 6), of(0xfffd, 7)], Batch::new()).unwrap();
    assert_eq!(
        (store.get(&applied_key(ShardId(1))), store.applied_of(ShardId(1))),
        (Ok(None), Ok(Some(of(1, 5))))
    );
    store.checkpoint().unwrap();
    store.apply(LogSeq(2), &[of(1, 6)], Batch::new()).unwrap();
    assert_eq!(store.get(&applied_key(ShardId(1))), Ok(Some(of(1, 5).to_bytes())), "frozen with the first");
    assert_eq!(store.applied_of(ShardId(1)), Ok(Some(of(1, 6))));
    gate.set(Ok(1));
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(store.poll(), Ok(Some(LogSeq(1))));
    drop(store);
    gate.set(Ok(u64::MAX));
    let mut store = open(root.path(), &gate);
    let seen = [0, 1, 2, 0x0102, 0xfffd].map(|n| store.applied_of(ShardId(n)).unwrap());
    assert_eq!(store.applied(), LogSeq(1));
    assert_eq!(seen, [None, Some(of(1, 5)), None, Some(of(0x0102, 6)), Some(of(0xfffd, 7))]);
    let moved = [(applied_key(ShardId(1)), None), (applied_key(ShardId(2)), Some(of(2, 9).to_bytes()))];
    store.apply(LogSeq(2), &[], moved.into()).unwrap();
    for wrong in [vec![], vec![1, 2], of(3, 9).to_bytes()] {
        assert!(store.apply(LogSeq(3), &[], [(applied_key(ShardId(2)), Some(wrong))].into()).is_err());
    }
    assert_eq!([1, 2].map(|n| store.applied_of(ShardId(n)).unwrap()), [None, Some(of(2, 9))]);
    store.flush(LIMIT).unwrap();
    drop(store);
    let store = open(root.path(), &gate);
    assert_eq!([1, 2].map(|n| store.applied_of(ShardId(n)).unwrap()), [None, Some(of(2, 9))]);
}

/// Goal: batches of many rows, as parts of a move are, leave nothing of the last checkpoint for the step that takes up the next.
#[test]
fn large_batches_settle_as_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let options = RowOptions { overlay_bytes: 16 << 20, ..small() };
    let mut store = RowStore::open(dir.path(), options, Gate::open(), Box::new(|| ())).unwrap();
    for seq in 1..=32 {
        let batch = (0..500).map(|n| (key(seq * 500 + n), Some(vec![7; 100]))).collect();
        store.apply(LogSeq(seq), &[head(seq)], batch).unwrap();
        if seq % 8 == 0 {
            assert!(store.has_settled(), "after {seq}");
            store.flush(LIMIT).unwrap();
            assert!(!store.has_settled(), "{seq} is taken up");
        }
    }
}
