//! Shards that are new, that lost their rows, that are an older copy.

use super::*;
use crate::store::{MemoryStore, StoreError};
use alloc::vec::Vec;
use skep_wire::mgmt::{FencesReply, MapReply, ShardState};

fn started() -> Group<MemoryStore> {
    let mut server = Group::new(Config::default(), MemoryStore::default()).unwrap();
    server.start();
    server
}

fn step(server: &mut Group<MemoryStore>, input: Input, out: &mut Output) -> Result<(), StoreError> {
    server.step(Millis(1), Timestamp::default(), input, out)
}

fn told(server: &Group<MemoryStore>) -> Vec<u16> {
    server.formatted().iter().map(|at| at.shard.0).collect()
}

impl Bed {
    /// A client tells that it has nothing.
    pub(super) fn report(&mut self, who: Who) {
        let nothing = Reclaim { opens: vec![], locks: vec![], last: true, term: None, holds: None };
        for shard in 0..self.shards {
            self.send_as(who, ShardId(shard), 0, nothing.clone().into());
        }
    }
}

/// Goal: a shard is formatted at mgmtd's word only, mgmtd hears of it once that is on stable storage, and nothing is
/// served before mgmtd knows: a second format could otherwise follow the first use.
#[test]
fn a_new_shard_is_formatted_and_waits() {
    let mut out = Output::default();
    let mut server = started();
    let mut fresh = map(2, 5);
    fresh.shards.iter_mut().for_each(|entry| entry.state = ShardState::New);
    step(&mut server, Input::Map { own: OWN, map: fresh.clone() }, &mut out).unwrap();
    let fences = FencesReply { epoch: FenceEpoch(0), fences: vec![], sessions: vec![], closed: vec![] };
    step(&mut server, Input::Fences(fences), &mut out).unwrap();
    assert!(server.formatted().is_empty() && out.sync_now);
    let last = server.last_seq();
    step(&mut server, Input::Durable(LogSeq(last.0 - 1)), &mut out).unwrap();
    assert_eq!(told(&server), [0], "the other one's record is not durable");
    step(&mut server, Input::Durable(last), &mut out).unwrap();
    assert_eq!(told(&server), [0, 1]);
    assert!(!server.is_ready());
    fresh.shards[0].state = ShardState::Active;
    step(&mut server, Input::Map { own: OWN, map: fresh.clone() }, &mut out).unwrap();
    assert!(!server.is_ready() && told(&server) == [1]);
    fresh.shards[1].state = ShardState::Active;
    step(&mut server, Input::Map { own: OWN, map: fresh }, &mut out).unwrap();
    assert!(server.is_ready() && server.formatted().is_empty());
}

/// Goal: a server without the rows of a shard that was used says so and ends; it makes no empty one.
#[test]
fn lost_rows_are_not_made_anew() {
    let mut out = Output::default();
    let mut server = started();
    let records = out.records.len();
    let Err(e) = step(&mut server, Input::Map { own: OWN, map: map(2, 5) }, &mut out) else {
        panic!("it goes on with empty shards")
    };
    let text = alloc::string::ToString::to_string(&e);
    assert!(text.contains("2 shards") && text.contains("not mounted"), "{text}");
    assert_eq!(out.records.len(), records, "nothing was formatted");
}

/// Goal: an older copy that is put back on purpose gives no inode number, no layout generation and no term a second
/// time, however often the same copy is put back; a mere restart leaves nothing out.
#[test]
fn an_older_copy_goes_on_behind_all_that_was_given() {
    let mut bed = Bed::new();
    // Inline in the copy; each time it grows out of the metadata anew.
    let kept = bed.create(ME, Ino::ROOT, "kept");
    let copy = bed.log.len() as u64;
    let mut given = vec![];
    let mut terms = vec![bed.term()];
    for era in 1..=3u16 {
        given.push(bed.create(ME, Ino::ROOT, "later"));
        let layout = bed.call(ME, Grow { like: None, ino: kept, end: 1 }).unwrap().layout;
        assert!(layout.generation.0 >> 24 == u32::from(era) - 1 && layout.generation.0 & 0xff_ffff < 9);
        bed.crash(0, copy, &[]);
        let mut restored = map(1, 5);
        (restored.shards[0].era, restored.version) = (era, MapVersion(2));
        bed.step(Input::Map { own: OWN, map: restored.clone() });
        assert!(bed.term() > *terms.last().unwrap());
        terms.push(bed.term());
        bed.end_hold();
        let new = bed.create(ME, Ino::ROOT, "new");
        assert!(given.iter().all(|ino| new.serial() > ino.serial() + (1 << 31)), "{new} {given:?}");
        bed.unlink(ME, Ino::ROOT, "new").unwrap();
        given.push(new);
        let before = bed.log.len();
        bed.step(Input::Map { own: OWN, map: restored });
        assert_eq!(bed.log.len(), before, "the same map once more");
    }
    bed.check();
}

/// Goal: a participant that is put back from before its vote confirms what is committed, and says once that something may be
/// missing: the coordinator would tell it for ever, and could finish nothing behind it. Only a copy that was put back may say so.
#[test]
fn an_older_copy_confirms_what_it_promised() {
    let mut bed = Bed::with(Config::default(), 2);
    let copy = bed.log.len() as u64;
    let txid = TxnId { shard: ShardId(0), term: Term(1), counter: 1 };
    let ops = vec![TxnOp::MakeDir(TxnMakeDir { parent: Ino::ROOT, new: new_dir() })];
    let to = bed.shard_sends(ShardId(1), Prepare { txid, floor: txid, age: Timestamp::default(), ops });
    let vote = bed.reply::<PrepareReply>(to).unwrap().unwrap().vote;
    assert!(matches!(vote, Vote::Yes(_)), "{vote:?}");
    let decide = |bed: &mut Bed| {
        let to = bed.shard_sends(ShardId(1), Decide { txid, floor: txid, commit: true });
        bed.reply::<Empty>(to).unwrap()
    };
    bed.crash(0, copy, &[]);
    assert_eq!(decide(&mut bed), Err(errno(Errno::EIO)));
    let mut restored = map(2, 5);
    restored.shards.iter_mut().for_each(|entry| entry.era = 1);
    bed.step(Input::Map { own: OWN, map: MapReply { version: MapVersion(2), ..restored } });
    for _ in 0..2 {
        assert_eq!(decide(&mut bed), Ok(Empty {}));
    }
    let warned: Vec<_> = bed.warnings.iter().filter(|line| line.contains("may be missing")).collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    bed.check();
}

/// Goal: an older copy says nothing of who came since: all that live are waited for, also when the server is started once more
/// meanwhile. Until they have told, nobody gets another's lock, and no file goes under who has it open. Then the rows say again
/// of whom to wait.
#[test]
fn an_older_copy_waits_for_everybody() {
    const THIRD: Who = Who { client: 3, slot: 0 };
    let living = [1, 2, 3];
    let mut bed = Bed::new();
    let fences = bed.fences(&living);
    bed.step(Input::Fences(fences));
    let (file, _) = bed.grown("f", 1);
    let gone = bed.create(ME, Ino::ROOT, "gone");
    let copy = bed.log.len() as u64;
    let open = |ino| Reclaimed { ino, mode: OpenMode::Write, open_seq: 1, reserved: 0 };
    let claim = Reclaim {
        opens: vec![open(file), open(gone)],
        locks: vec![ReclaimedLock { ino: file, lock: super::locking::set(file, 1, None, 1).lock, order: 1 }],
        last: true,
        term: None,
        holds: None,
    };
    for ino in [file, gone] {
        bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    }
    bed.call(ME, super::locking::set(file, 1, None, 1)).unwrap();
    bed.crash(0, copy, &living);
    let mut restored = map(1, 5);
    (restored.shards[0].era, restored.version) = (1, MapVersion(2));
    bed.step(Input::Map { own: OWN, map: restored.clone() });
    let waits = |bed: &Bed| bed.server.shards[&ShardId(0)].is_in_grace();
    let lock = |bed: &mut Bed| bed.call(OTHER, super::locking::set(file, 2, None, 1)).err();
    for order in 1..3 {
        // Somebody may use what was lent since that copy.
        bed.end_hold();
        assert!(waits(&bed));
        bed.open(OTHER, file, OpenMode::Write, order).unwrap();
        assert_eq!(lock(&mut bed), Some(Status::GRACE));
        bed.truncate(OTHER, file, 0).unwrap();
        assert!(bed.deleted.is_empty(), "under who may write to them");
        bed.restart(&living);
        bed.step(Input::Map { own: OWN, map: restored.clone() });
    }
    bed.end_hold();
    bed.unlink(OTHER, Ino::ROOT, "gone").unwrap();
    bed.report(OTHER);
    bed.call(ME, claim).unwrap();
    assert!(waits(&bed) && bed.inode(gone).is_some());
    bed.report(THIRD);
    assert!(!waits(&bed) && bed.inode(gone).is_some());
    bed.open(OTHER, file, OpenMode::Write, 9).unwrap();
    assert_eq!(lock(&mut bed), Some(errno(Errno::EAGAIN)), "it was told");
    let whole = bed.log.len() as u64;
    bed.restart(&living);
    [ME, OTHER].into_iter().for_each(|who| bed.report(who));
    assert!(!waits(&bed), "the third never had anything open");
    // A power cut takes the word that all have told: all are asked again.
    let told = bed.log[..whole as usize].iter().rposition(|record| {
        let command = Command::decode(&record.bytes, ShardId(0), record.index);
        command.is_ok_and(|command| matches!(command.action, Action::Internal(Internal::EraTold(_))))
    });
    bed.crash(0, told.unwrap() as u64, &living);
    [ME, OTHER].into_iter().for_each(|who| bed.report(who));
    assert!(waits(&bed));
    bed.report(THIRD);
    assert!(!waits(&bed));
    bed.check();
}

/// Goal: one shard's term ends and begins alone: what is open there is forgotten until it is told again, who waits there is
/// told to ask again, and the other shard notices nothing.
#[test]
fn a_term_of_one_shard_is_restarted_alone() {
    let mut bed = Bed::with(Config::default(), 2);
    let far = MakeDirOn {
        parent: Ino::ROOT,
        name: name("d"),
        mode: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        on: ShardId(1),
    };
    let far = bed.admin(far).unwrap().ino;
    let fences = bed.fences(&[1, 2]);
    bed.step(Input::Fences(fences));
    let (near, file) = (bed.create(ME, Ino::ROOT, "near"), bed.create(ME, far, "file"));
    for ino in [near, file] {
        bed.open(ME, ino, OpenMode::Write, 1).unwrap();
        assert_eq!(bed.call(ME, super::locking::set(ino, 1, None, 1)).unwrap().state, LockState::Done);
    }
    let before = [0, 1].map(|shard| bed.server.standing(ShardId(shard)).unwrap());
    bed.restart_term(ShardId(1));
    let after = [0, 1].map(|shard| bed.server.standing(ShardId(shard)).unwrap());
    assert_eq!((after[0].term, after[0].index), (before[0].term, before[0].index));
    assert_eq!((after[1].term.0, after[1].index.0), (before[1].term.0 + 1, before[1].index.0 + 1));
    let held = |bed: &mut Bed, ino| {
        let sync = bed.call(
            OTHER,
            Open {
                ino,
                mode: OpenMode::Write,
                truncate: false,
                shared: false,
                kill_suidgid: false,
                open_seq: 9,
            },
        );
        sync.unwrap();
        bed.call(OTHER, super::locking::set(ino, 2, None, 1)).err()
    };
    assert_eq!(held(&mut bed, near), Some(errno(Errno::EAGAIN)), "the lock of the other shard is held");
    assert_eq!(held(&mut bed, file), Some(Status::GRACE));
    for who in [ME, OTHER] {
        bed.send_as(
            who,
            ShardId(1),
            0,
            Reclaim { opens: vec![], locks: vec![], last: true, term: None, holds: None }.into(),
        );
    }
    assert_eq!(held(&mut bed, file), None, "nobody claimed it");
    bed.check();
    bed.restart(&[]);
    bed.check();
    let last = [0, 1].map(|shard| bed.server.standing(ShardId(shard)).unwrap().term.0);
    assert_eq!(last, [after[0].term.0 + 1, after[1].term.0 + 1]);
}

/// Goal: a shard that the map gives to another server is not served, and forgets what was open; given back, it goes on in a
/// new term.
#[test]
fn a_shard_that_goes_elsewhere_forgets() {
    let mut bed = Bed::with(Config::default(), 2);
    let file = bed.create(ME, Ino::ROOT, "f");
    bed.open(ME, file, OpenMode::Write, 1).unwrap();
    let before = bed.term();
    let mut away = MapReply { version: MapVersion(7), ..map(2, 5) };
    (away.shards[0].leader, away.shards[0].epoch) = (NodeId(9), 2);
    bed.step(Input::Map { own: OWN, map: away });
    assert_eq!(bed.call(ME, GetAttr { ino: file }).err(), Some(Status::NOT_LEADER));
    bed.step(Input::Map { own: OWN, map: MapReply { version: MapVersion(8), ..map(2, 5) } });
    bed.sync();
    assert!(bed.server.is_ready() && bed.term().0 == before.0 + 1);
    assert_eq!(bed.admin(Inspect { ino: file }).unwrap().sessions, []);
    bed.check();
}

/// Goal: a new term waits for those only that ever had something open on the shard; a client's first open there is answered
/// when that is on stable storage.
#[test]
fn a_new_term_waits_for_holders_only() {
    let mut bed = Bed::with(Config::default(), 2);
    let fences = bed.fences(&[1, 2]);
    bed.step(Input::Fences(fences));
    let file = bed.create(ME, Ino::ROOT, "f");
    bed.auto_sync = false;
    let open = Open {
        ino: file,
        mode: OpenMode::Write,
        truncate: false,
        shared: false,
        kill_suidgid: false,
        open_seq: 1,
    };
    let to = bed.send(ME, open.clone());
    assert!(!bed.replies.contains_key(&to));
    bed.sync();
    assert!(bed.replies.contains_key(&to));
    let again = bed.send(ME, Open { open_seq: 2, ..open });
    assert!(bed.replies.contains_key(&again), "that is known");
    bed.auto_sync = true;
    bed.restart(&[1, 2]);
    let waits = |bed: &Bed| [0, 1].map(|shard| bed.server.shards[&ShardId(shard)].is_in_grace());
    assert_eq!(waits(&bed), [true, false]);
    bed.send_as(
        ME,
        ShardId(0),
        0,
        Reclaim { opens: vec![], locks: vec![], last: true, term: None, holds: None }.into(),
    );
    assert_eq!(waits(&bed), [false, false], "the other client never had anything open");
    bed.check();
    bed.fenced.push(1);
    let fences = bed.fences(&[2]);
    bed.step(Input::Fences(fences));
    bed.restart(&[2]);
    assert_eq!(waits(&bed), [false, false]);
    bed.check();
}
