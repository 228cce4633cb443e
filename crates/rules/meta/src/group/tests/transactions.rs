//! Transactions over shards, with every crash point.

use crate::store::Store;
use crate::testing::*;
use crate::*;
use skep_types::*;
use skep_wire::meta::*;
use skep_wire::{Empty, Status, mgmt};

impl Bed {
    /// Something from a shard of another server.
    pub(super) fn shard_sends(&mut self, shard: ShardId, message: impl Into<MetaRequest>) -> u64 {
        let to = self.next_reply;
        self.next_reply += 1;
        let (role, client, incarnation) = (Role::Server, ClientId(0), Incarnation(1));
        let peer = PeerIdentity { role, client, incarnation, node: NodeId(9) };
        let call = ShardCall { shard, ..ShardCall::default() };
        let (epoch, message) = (FenceEpoch(0), message.into());
        self.step(Input::Request(Request { reply_to: to, peer, epoch, call, message }));
        to
    }

    /// Transactions over shards of which something stands in the rows that is to come to an end.
    pub(super) fn transactions(&self) -> usize {
        let mut count = 0;
        for shard in self.server.shards() {
            let (from, until) = crate::key::table(shard, crate::key::Table::Decision);
            let counted = self.server.store().scan(&from, &until, &mut |_, _| {
                count += 1;
                true
            });
            counted.unwrap();
            let (from, until) = crate::key::table(shard, crate::key::Table::Prepared);
            let counted = self.server.store().scan(&from, &until, &mut |_, bytes| {
                count += usize::from(crate::row::txn::Prepared::from_bytes(bytes).unwrap().redo.is_some());
                true
            });
            counted.unwrap();
        }
        count
    }
}

fn bed() -> Bed {
    let mut bed = Bed::with(Config::default(), 4);
    bed.keep_snapshots = true;
    bed
}

pub fn on(text: &str, shard: u16) -> MakeDirOn {
    MakeDirOn {
        parent: Ino::ROOT,
        name: name(text),
        mode: 0o750,
        umask: 0,
        uid: 3,
        gid: 4,
        on: ShardId(shard),
    }
}

fn rmdir(text: &str) -> RemoveDir {
    RemoveDir { parent: Ino::ROOT, name: name(text) }
}

/// A fixed point: nothing waits, nothing is under way.
fn settle(bed: &mut Bed) {
    bed.auto_sync = true;
    for _ in 0..20 {
        bed.sync();
        let deadline = bed.server.next_deadline().unwrap_or(bed.now);
        bed.tick(deadline.since(bed.now));
    }
    bed.check();
    assert_eq!(bed.transactions(), 0);
}

/// Goal: a subtree on another shard works like any other directory; it goes only when empty.
#[test]
fn a_subtree_on_another_shard() {
    let mut bed = bed();
    let made = bed.admin(on("d", 2)).unwrap();
    assert_eq!(made.ino.shard(), ShardId(2));
    assert_eq!(made.attr.unwrap().mode, 0o750);
    assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 3);
    let found = bed.call(ME, Lookup { parent: Ino::ROOT, name: name("d"), as_told: None }).unwrap();
    assert_eq!((found.ino, found.attr), (made.ino, None), "ask the other shard for attributes");
    let file = bed.create(ME, made.ino, "f");
    assert_eq!(file.shard(), ShardId(2));
    assert_eq!(bed.call(ME, rmdir("d")).err(), Some(errno(Errno::ENOTEMPTY)));
    assert_eq!(bed.admin(on("d", 3)).err(), Some(errno(Errno::EEXIST)));
    bed.unlink(ME, made.ino, "f").unwrap();
    bed.call(ME, rmdir("d")).unwrap();
    assert_eq!(bed.attr(made.ino).err(), Some(errno(Errno::ESTALE)));
    assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 2);
    settle(&mut bed);
    let here = bed.admin(on("here", 0)).unwrap();
    assert_eq!(here.ino.shard(), ShardId(0), "the same shard: an ordinary directory");
}

/// Goal: below a directory whose parent is on another shard directories move freely. They do not while the shard has
/// names on other shards in turn: the way up could come back.
#[test]
fn directories_move_below_one_that_is_elsewhere() {
    let mut bed = bed();
    let above = bed.admin(on("above", 1)).unwrap().ino;
    let below = bed.admin(MakeDirOn { parent: above, ..on("below", 2) }).unwrap().ino;
    let (x, y) = (bed.mkdir(below, "x"), bed.mkdir(below, "y"));
    let mv = |bed: &mut Bed, m: Rename| bed.call(ME, m).map(|_| ());
    assert_eq!(mv(&mut bed, rename(below, "x", y, "x")), Ok(()));
    assert_eq!(mv(&mut bed, rename(below, "y", x, "y")), Err(errno(Errno::EINVAL)), "into itself");
    bed.admin(MakeDirOn { parent: x, ..on("back", 3) }).unwrap();
    assert_eq!(mv(&mut bed, rename(y, "x", below, "x")), Ok(()), "one server sees the whole way");
    let mut map = map(4, 5);
    map.shards[1].leader = NodeId(9);
    bed.step(Input::Map { own: OWN, map: mgmt::MapReply { version: MapVersion(2), ..map } });
    assert_eq!(mv(&mut bed, rename(below, "x", y, "x")), Err(errno(Errno::EXDEV)));
    bed.call(ME, RemoveDir { parent: x, name: name("back") }).unwrap();
    assert_eq!(mv(&mut bed, rename(below, "x", y, "x")), Ok(()));
    settle(&mut bed);
}

/// Goal: names move within their directory but not between shards.
#[test]
fn renames_between_shards_are_exdev() {
    let mut bed = bed();
    let far = bed.admin(on("far", 2)).unwrap().ino;
    let near = bed.mkdir(Ino::ROOT, "near");
    bed.create(ME, Ino::ROOT, "f");
    let exdev = Err(errno(Errno::EXDEV));
    let mv = |bed: &mut Bed, m: Rename| bed.call(ME, m).map(|_| ());
    assert_eq!(mv(&mut bed, rename(Ino::ROOT, "f", far, "f")), exdev);
    assert_eq!(mv(&mut bed, rename(Ino::ROOT, "far", near, "far")), exdev);
    assert_eq!(mv(&mut bed, rename(Ino::ROOT, "near", Ino::ROOT, "far")), exdev);
    let swap = Rename { exchange: true, ..rename(Ino::ROOT, "near", Ino::ROOT, "far") };
    assert_eq!(mv(&mut bed, swap), Ok(()));
    assert_eq!((bed.lookup(Ino::ROOT, "near"), bed.lookup(Ino::ROOT, "far")), (Ok(far), Ok(near)));
    assert_eq!(mv(&mut bed, rename(Ino::ROOT, "near", Ino::ROOT, "away")), Ok(()));
    assert_eq!(bed.lookup(Ino::ROOT, "away"), Ok(far));
    bed.call(ME, rmdir("away")).unwrap();
    settle(&mut bed);
}

/// Goal: no directory gets below itself by way of another shard.
#[test]
fn circles_over_shards() {
    let mut bed = bed();
    let top = bed.mkdir(Ino::ROOT, "top");
    let wish = |parent, shard| MakeDirOn { parent, on: ShardId(shard), ..on("x", 0) };
    let far = bed.admin(wish(top, 1)).unwrap().ino;
    let back = bed.admin(wish(far, 0)).unwrap().ino;
    assert_eq!(bed.call(ME, rename(Ino::ROOT, "top", back, "t")).err(), Some(errno(Errno::EINVAL)));
    bed.check();
}

/// Goal: while a transaction runs, whoever would change its name or remove its directory waits, nobody else does: the
/// old state is shown until it is decided. Its shard logs nothing before that.
#[test]
fn a_locked_name_stops_only_who_would_change_it() {
    let mut bed = bed();
    let parent = bed.mkdir(Ino::ROOT, "p");
    let other = bed.mkdir(Ino::ROOT, "o");
    bed.auto_sync = false;
    let before = bed.last();
    let made = bed.admin_send(MakeDirOn { parent, ..on("d", 2) });
    let seen = bed.send(ME, Lookup { parent, name: name("d"), as_told: None });
    let slot = |slot| Who { slot, ..ME };
    let created = bed.send(slot(1), create(parent, "d"));
    let removed = bed.send(slot(2), rmdir("p"));
    let replaced = bed.send(slot(3), rename(Ino::ROOT, "o", Ino::ROOT, "p"));
    let moved = bed.send(slot(4), rename(Ino::ROOT, "p", other, "p"));
    let list = bed.send(ME, List { dir: parent, after: 0, max: 9, with_attr: true, as_told: None });
    assert_eq!(bed.reply::<EntryReply>(seen), Some(Err(errno(Errno::ENOENT))));
    assert_eq!(bed.reply::<Empty>(moved), Some(Ok(Empty {})));
    assert!(bed.reply::<ListReply>(list).unwrap().unwrap().entries.is_empty());
    for to in [made, created, removed, replaced] {
        assert!(!bed.replies.contains_key(&to));
    }
    assert_eq!(bed.last().0, before.0 + 1, "only the rename is in the log");
    settle(&mut bed);
    let ino = bed.reply::<EntryReply>(made).unwrap().unwrap().ino;
    assert_eq!(bed.lookup(parent, "d"), Ok(ino));
    assert_eq!(bed.reply::<OpenReply>(created).unwrap().err(), Some(errno(Errno::EEXIST)));
    assert_eq!(bed.reply::<Empty>(removed), Some(Err(errno(Errno::ENOENT))), "it was renamed meanwhile");
    assert!(bed.reply::<Empty>(replaced).unwrap().is_ok());
}

/// Goal: kill the server after every single log record of making and removing a directory over
/// two shards, with and without the unsynced rows: each time the operation is either wholly done
/// or wholly undone in the end, and the repeated request gets the truth.
#[test]
fn every_crash_point() {
    // How many records the whole story takes.
    let mut whole = bed();
    let first = whole.log.len() as u64;
    whole.admin(on("d", 2)).unwrap();
    settle(&mut whole);
    let made = whole.log.len() as u64;
    whole.call(ME, rmdir("d")).unwrap();
    settle(&mut whole);
    let last = whole.log.len() as u64;
    assert_eq!(last - made, 4, "prepared, decided, done, finished");
    for kept in first..=last {
        for fresh_rows in [false, true] {
            let mut bed = bed();
            bed.admin(on("d", 2)).unwrap();
            settle(&mut bed);
            bed.call(ME, rmdir("d")).unwrap();
            settle(&mut bed);
            let applied = if fresh_rows { newest(&bed, kept) } else { 0 };
            bed.crash(applied, kept, &[]);
            settle(&mut bed);
            bed.report(ME);
            let is_there = bed.lookup(Ino::ROOT, "d");
            assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 2 + u32::from(is_there.is_ok()), "kept {kept}");
            assert!(
                is_there.is_err_and(|e| e == errno(Errno::ENOENT)) || bed.attr(is_there.unwrap()).is_ok()
            );
            // The client asks again: the same number, the same request.
            let to = bed.send_as(ME, ShardId(0), 1, rmdir("d").into());
            settle(&mut bed);
            let answer = bed.reply::<Empty>(to).unwrap();
            let is_undone = kept < made && is_there.is_err();
            let expected = if is_undone { Err(errno(Errno::ENOENT)) } else { Ok(Empty {}) };
            assert_eq!(answer, expected, "kept {kept} of {last}");
            assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 2, "kept {kept} of {last}");
        }
    }
}

/// The newest rows that are no newer than `kept`.
fn newest(bed: &Bed, kept: u64) -> u64 {
    bed.snapshots.range(..=kept).next_back().map_or(0, |(index, _)| *index)
}

fn id(counter: u64) -> TxnId {
    TxnId { shard: ShardId(9), term: Term(5), counter }
}

pub(super) fn prepare(counter: u64, floor: u64, op: TxnOp) -> Prepare {
    let age = Timestamp { secs: counter as i64, nanos: 0 };
    Prepare { txid: id(counter), floor: id(floor), age, ops: alloc::vec![op] }
}

pub(super) fn make() -> TxnOp {
    TxnOp::MakeDir(TxnMakeDir { parent: Ino::ROOT, new: new_dir() })
}

pub(super) fn ask(bed: &mut Bed, message: Prepare) -> Vote {
    let to = bed.shard_sends(ShardId(1), message);
    bed.reply::<PrepareReply>(to).unwrap().unwrap().vote
}

fn decide(bed: &mut Bed, counter: u64, floor: u64, commit: bool) -> Result<Empty, Status> {
    let to = bed.shard_sends(ShardId(1), Decide { txid: id(counter), floor: id(floor), commit });
    bed.reply::<Empty>(to).unwrap()
}

pub(super) fn made(vote: Vote) -> Ino {
    let Vote::Yes(promise) = vote else { panic!("{vote:?}") };
    promise.made.unwrap().ino
}

/// Goal: a participant votes the same when it is asked again, does a transaction once, and refuses what comes again
/// after that, before and after the floor has passed; what it keeps is bounded.
#[test]
fn repetitions_are_one() {
    let mut bed = bed();
    let first = made(ask(&mut bed, prepare(1_000, 1_000, make())));
    assert_eq!(made(ask(&mut bed, prepare(1_000, 1_000, make()))), first);
    assert!(bed.inode(first).is_none());
    decide(&mut bed, 1_000, 1_000, true).unwrap();
    decide(&mut bed, 1_000, 1_000, true).unwrap();
    assert!(bed.inode(first).is_some());
    let stale = Vote::No(TxnRefused { errno: errno(Errno::ESTALE).0 });
    assert_eq!(ask(&mut bed, prepare(1_000, 1_000, make())), stale, "done, but not finished everywhere");
    let second = made(ask(&mut bed, prepare(1_001, 1_001, make())));
    decide(&mut bed, 1_001, 1_001, false).unwrap();
    assert!(bed.inode(second).is_none());
    let key = crate::key::prepared(ShardId(1), id(1_000));
    assert_eq!(bed.server.store().get(&key).unwrap(), None);
    // However old it is, and whether anything of it is remembered or not: it makes no directory.
    let before = bed.log.len();
    for counter in [1, 999, 1_000] {
        assert_eq!(ask(&mut bed, prepare(counter, 1, make())), stale, "{counter}");
        assert_eq!(decide(&mut bed, counter, 1, true), Ok(Empty {}));
        assert_eq!(decide(&mut bed, counter, 1, false), Ok(Empty {}));
    }
    assert_eq!(bed.log.len(), before, "a stray left something behind");
    // Nobody was promised this, and it is not finished.
    assert_eq!(decide(&mut bed, 2_000, 1_001, true), Err(errno(Errno::EIO)));
    bed.transactions();
}

/// Goal: a vote leaves only when it binds, and a commit is confirmed only when it is done for good.
#[test]
fn votes_and_confirmations_are_durable() {
    let mut bed = bed();
    bed.auto_sync = false;
    let vote = bed.shard_sends(ShardId(1), prepare(1, 1, make()));
    let again = bed.shard_sends(ShardId(1), prepare(1, 1, make()));
    assert!(!bed.replies.contains_key(&vote) && !bed.replies.contains_key(&again));
    bed.sync();
    assert_eq!(bed.reply::<PrepareReply>(vote), bed.reply::<PrepareReply>(again));
    let told = bed.shard_sends(ShardId(1), Decide { txid: id(1), floor: id(1), commit: true });
    let twice = bed.shard_sends(ShardId(1), Decide { txid: id(1), floor: id(1), commit: true });
    assert!(!bed.replies.contains_key(&told) && !bed.replies.contains_key(&twice));
    bed.sync();
    assert!(bed.replies.contains_key(&told) && bed.replies.contains_key(&twice));
}

/// Goal: a participant that hears nothing asks, again and again, at once after a restart, and takes what it hears; until
/// then the inode is locked for readers too.
#[test]
fn participants_ask() {
    for outcome in [TxnOutcome::Committed, TxnOutcome::Aborted] {
        let found = |gone| if outcome == TxnOutcome::Committed { Err(errno(gone)) } else { Ok(()) };
        let mut bed = bed();
        let dir = bed.admin(on("d", 1)).unwrap().ino;
        settle(&mut bed);
        let retire = TxnOp::RetireDir(TxnRetireDir { ino: dir, parent: Ino::ROOT });
        assert_eq!(ask(&mut bed, prepare(7, 7, retire)), Vote::Yes(TxnPromise::default()));
        let reader = bed.send(ME, GetAttr { ino: dir });
        let writer = bed.send(OTHER, create(dir, "f"));
        bed.tick(crate::limit::TXN_ASK_MS);
        bed.elsewhere = Some(Vote::Conflict(Empty {}));
        bed.tick(crate::limit::RETRY_LAST_MS);
        let asks = ShardMessage::AskOutcome(AskOutcome { txid: id(7), by: ShardId(1) });
        assert!(bed.asked.len() > 1 && bed.asked.iter().all(|message| *message == asks));
        assert!(!bed.replies.contains_key(&reader) && !bed.replies.contains_key(&writer));
        bed.outcome = outcome;
        // What was heard does not wait for a disk: nobody would take it up again.
        bed.disk_works = false;
        bed.tick(crate::limit::TXN_ASK_MS);
        assert_eq!(bed.transactions(), 0);
        bed.disk_works = true;
        bed.run_disk();
        assert_eq!(bed.reply::<AttrReply>(reader).unwrap().map(drop), found(Errno::ESTALE));
        assert_eq!(bed.reply::<OpenReply>(writer).unwrap().map(drop), found(Errno::ENOENT));
        bed.asked.clear();
        bed.tick(100 * crate::limit::TXN_ASK_MS);
        assert!(bed.asked.is_empty(), "nothing is asked any more");
    }
}

/// Goal: of two transactions that want one directory the older waits and the younger gives way; a shard's own count too.
#[test]
fn the_older_goes_first() {
    let mut bed = bed();
    let dir = bed.admin(on("d", 1)).unwrap().ino;
    settle(&mut bed);
    let retire = || TxnOp::RetireDir(TxnRetireDir { ino: dir, parent: Ino::ROOT });
    ask(&mut bed, prepare(50, 1, retire()));
    assert_eq!(ask(&mut bed, prepare(60, 1, retire())), Vote::Conflict(Empty {}));
    let to = bed.shard_sends(ShardId(1), prepare(40, 1, retire()));
    assert_eq!(bed.reply::<PrepareReply>(to), Some(Err(Status::BUSY)));
    // The name's own shard gives way too, and goes on when the other one has.
    let removed = bed.send(ME, rmdir("d"));
    bed.tick(crate::limit::TXN_AGAIN_MS);
    assert!(!bed.replies.contains_key(&removed));
    decide(&mut bed, 50, 1, false).unwrap();
    bed.tick(crate::limit::TXN_AGAIN_MS);
    assert_eq!(bed.reply::<Empty>(removed), Some(Ok(Empty {})));
    settle(&mut bed);
}

/// Goal: a name whose directory went with an older copy of its shard, which was put back, can be removed; a directory that
/// is only being made there is not taken for one.
#[test]
fn a_name_without_its_directory_can_go() {
    let mut bed = bed();
    let lost = Ino::new(ShardId(1), 9_999);
    let retire = |ino| TxnOp::RetireDir(TxnRetireDir { ino, parent: Ino::ROOT });
    assert_eq!(ask(&mut bed, prepare(1, 1, retire(lost))), Vote::Yes(TxnPromise::default()));
    assert_eq!(decide(&mut bed, 1, 1, true), Ok(Empty {}));
    let coming = made(ask(&mut bed, prepare(2, 2, make())));
    let to = bed.shard_sends(ShardId(1), prepare(3, 2, retire(coming)));
    let vote = bed.reply::<PrepareReply>(to);
    assert!(
        matches!(vote, Some(Ok(PrepareReply { vote: Vote::Conflict(_) }) | Err(Status::BUSY))),
        "{vote:?}"
    );
    bed.check();
}

/// Goal: names that a shard has locked in a directory stand in the way of its removal by another shard.
#[test]
fn a_directory_with_a_locked_name_stays() {
    let mut bed = bed();
    let dir = bed.admin(on("d", 1)).unwrap().ino;
    settle(&mut bed);
    bed.auto_sync = false;
    let made = bed.admin_send(MakeDirOn { parent: dir, ..on("x", 3) });
    let retire = TxnOp::RetireDir(TxnRetireDir { ino: dir, parent: Ino::ROOT });
    let young = Timestamp { secs: 1 << 40, nanos: 0 };
    let young = bed.shard_sends(ShardId(1), Prepare { age: young, ..prepare(1, 1, retire.clone()) });
    assert_eq!(bed.reply::<PrepareReply>(young).unwrap().unwrap().vote, Vote::Conflict(Empty {}));
    let old = bed.shard_sends(ShardId(1), prepare(2, 1, retire.clone()));
    assert_eq!(bed.reply::<PrepareReply>(old), Some(Err(Status::BUSY)));
    settle(&mut bed);
    assert!(bed.reply::<EntryReply>(made).unwrap().is_ok());
    let refused = Vote::No(TxnRefused { errno: errno(Errno::ENOTEMPTY).0 });
    assert_eq!(ask(&mut bed, prepare(3, 1, retire)), refused);
}

/// A bed whose shard 2 is on another server.
fn split() -> Bed {
    let mut bed = Bed::with(Config::default(), 2);
    away(&mut bed, 2);
    bed
}

fn away(bed: &mut Bed, version: u64) {
    let mut other = map(3, 5);
    other.version = MapVersion(version);
    other.shards[2].leader = NodeId(9);
    bed.step(Input::Map { own: OWN, map: other });
}

fn promise(ino: Ino) -> Option<Vote> {
    let attr = Inode::new(Kind::Dir, 0o755, 0, 0, Timestamp::default()).attr(ino);
    Some(Vote::Yes(TxnPromise { made: Some(TxnMade { ino, attr }) }))
}

/// Goal: a shard on another server is asked through the courier until it answers; after 20 s the transaction is given up
/// and whoever waits is told BUSY; the outcome is the other shard's vote.
#[test]
fn a_shard_on_another_server() {
    let mut bed = split();
    let to = bed.admin_send(on("d", 2));
    assert!(!bed.replies.contains_key(&to));
    bed.tick(5_000);
    let asks = bed.asked.len();
    assert!(asks > 1 && bed.asked.iter().all(|message| *message == bed.asked[0]), "one transaction");
    bed.tick(crate::limit::WAIT_DEADLINE_MS);
    assert_eq!(bed.reply::<EntryReply>(to), Some(Err(Status::BUSY)));
    assert!(matches!(bed.asked.last(), Some(ShardMessage::Decide(Decide { commit: false, .. }))));
    let asks = bed.asked.len();
    bed.tick(crate::limit::RETRY_LAST_MS);
    assert_eq!(bed.asked.len(), asks, "an abort is told once");
    let ino = Ino::new(ShardId(2), 77);
    bed.elsewhere = promise(ino);
    assert_eq!(bed.admin(on("d", 2)).map(|made| made.ino), Ok(ino));
    assert_eq!(bed.lookup(Ino::ROOT, "d"), Ok(ino));
    assert!(matches!(bed.asked.last(), Some(ShardMessage::Decide(Decide { commit: true, .. }))));
    // Its removal is refused by the other shard: the name stays.
    bed.elsewhere = Some(Vote::No(TxnRefused { errno: errno(Errno::ENOTEMPTY).0 }));
    assert_eq!(bed.call(ME, rmdir("d")).err(), Some(errno(Errno::ENOTEMPTY)));
    assert_eq!(bed.lookup(Ino::ROOT, "d"), Ok(ino));
    bed.elsewhere = Some(Vote::Yes(TxnPromise::default()));
    bed.call(ME, rmdir("d")).unwrap();
    assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 2);
    settle(&mut bed);
}

/// Goal: the repeated request of a client is one: in the same term, in a new one before the decision, and after it.
#[test]
fn a_repeated_request_is_one() {
    let mut bed = split();
    bed.elsewhere = promise(Ino::new(ShardId(2), 77));
    bed.admin(on("d", 2)).unwrap();
    bed.courier_works = false;
    let first = bed.send(ME, rmdir("d"));
    let second = bed.resend(ME, rmdir("d"));
    assert_eq!(bed.tasks.len(), 1, "it waits for itself");
    bed.restart_term(ShardId(0));
    assert_eq!(bed.reply::<Empty>(first), Some(Err(Status::NOT_READY)));
    assert_eq!(bed.reply::<Empty>(second), Some(Err(Status::NOT_READY)));
    bed.tasks.clear();
    bed.courier_works = true;
    bed.elsewhere = Some(Vote::Yes(TxnPromise::default()));
    let third = bed.resend(ME, rmdir("d"));
    assert_eq!(bed.reply::<Empty>(third), Some(Ok(Empty {})));
    let (terms, others): (alloc::vec::Vec<_>, _) = bed.asked.iter().rev().take(2).partition(
        |message| matches!(message, ShardMessage::Decide(m) if m.commit && m.txid.term == bed.term()),
    );
    assert_eq!((terms.len(), others.len()), (1, 1), "a new transaction of the new term");
    bed.restart_term(ShardId(0));
    let asked = bed.asked.len();
    let fourth = bed.resend(ME, rmdir("d"));
    assert_eq!((bed.reply::<Empty>(fourth), bed.asked.len()), (Some(Ok(Empty {})), asked));
}

/// Goal: what nobody waits for any more does not happen, unless it is decided; nor what was begun for a session that has
/// ended.
#[test]
fn what_was_given_up_does_not_happen() {
    let mut bed = split();
    let ino = Ino::new(ShardId(2), 77);
    bed.elsewhere = promise(ino);
    bed.admin(on("d", 2)).unwrap();
    bed.courier_works = false;
    let to = bed.send(ME, rmdir("d"));
    assert_eq!(bed.server.host.held.get(&to), Some(&ShardId(0)), "the only shard that is to be asked");
    bed.step(Input::Gone(to));
    assert!(bed.server.host.held.is_empty(), "{:?}", bed.server.host.held);
    assert!(
        matches!(bed.tasks.last().map(|task| &task.job), Some(Job::Shard { message: ShardMessage::Decide(m), .. }) if !m.commit)
    );
    bed.elsewhere = Some(Vote::Yes(TxnPromise::default()));
    bed.courier_works = true;
    bed.run_courier();
    assert_eq!(bed.lookup(Ino::ROOT, "d"), Ok(ino));
    bed.courier_works = false;
    let to = bed.send(OTHER, rmdir("d"));
    bed.fenced.push(OTHER.client);
    let fences = bed.fences(&[ME.client]);
    bed.step(Input::Fences(fences));
    bed.courier_works = true;
    bed.run_courier();
    assert_eq!(bed.reply::<Empty>(to), Some(Err(Status::FENCED)));
    assert_eq!(bed.lookup(Ino::ROOT, "d"), Ok(ino));
    settle(&mut bed);
    assert!(bed.server.host.held.is_empty(), "{:?}", bed.server.host.held);
}

/// Goal: when what the new directory inherits changes before the decision, it is asked for anew: nothing is made with what
/// was true before.
#[test]
fn a_plan_that_changed_is_made_anew() {
    let mut bed = split();
    bed.elsewhere = promise(Ino::new(ShardId(2), 77));
    bed.courier_works = false;
    let to = bed.admin_send(on("d", 2));
    let set = SetAttr { mode: Some(0o2775), gid: Some(99), ..SetAttr::default() };
    bed.call(ME, ChangeAttr { ino: Ino::ROOT, set }).unwrap();
    bed.courier_works = true;
    bed.run_courier();
    assert!(bed.reply::<EntryReply>(to).unwrap().is_ok());
    let prepared = bed.asked.iter().filter_map(|message| match message {
        ShardMessage::Prepare(m) => Some((m.txid.counter, m.ops.clone())),
        _ => None,
    });
    let gids = prepared.map(|(counter, ops)| match &ops[0] {
        TxnOp::MakeDir(m) => (counter, m.new.gid),
        TxnOp::RetireDir(_) => unreachable!(),
    });
    assert_eq!(gids.collect::<alloc::vec::Vec<_>>(), [(1, 4), (2, 99)]);
    settle(&mut bed);
}

/// Goal: with the disk of a participant nearly full nothing is made there, and what is removed goes: it frees room.
#[test]
fn little_room_at_a_participant() {
    let mut bed = bed();
    bed.step(Input::LowSpace(true));
    let full = Vote::No(TxnRefused { errno: errno(Errno::ENOSPC).0 });
    assert_eq!(ask(&mut bed, prepare(1, 1, make())), full);
    bed.step(Input::LowSpace(false));
    let made = made(ask(&mut bed, prepare(2, 2, make())));
    decide(&mut bed, 2, 2, true).unwrap();
    bed.step(Input::LowSpace(true));
    let retire = |ino| TxnOp::RetireDir(TxnRetireDir { ino, parent: Ino::ROOT });
    assert!(matches!(ask(&mut bed, prepare(3, 3, retire(made))), Vote::Yes(_)));
    decide(&mut bed, 3, 3, true).unwrap();
    assert_eq!(bed.attr(made).err(), Some(errno(Errno::ESTALE)));
}

/// Goal: what a floor has passed is deleted a part at a time; what is left is in nobody's way, and goes with the next one,
/// which does not look again through what is deleted.
#[test]
fn rows_below_the_floor_go_in_parts() {
    let mut bed = Bed::with(Config::default(), 4);
    let rows = |bed: &Bed| {
        let (from, until) = crate::key::table(ShardId(1), crate::key::Table::Prepared);
        let mut count = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            count += 1;
            true
        };
        bed.server.store().scan(&from, &until, visit).unwrap();
        count
    };
    for number in 1..=100 {
        made(ask(&mut bed, prepare(number, 1, make())));
        decide(&mut bed, number, 1, true).unwrap();
    }
    assert_eq!(rows(&bed), 100);
    decide(&mut bed, 100, 100, true).unwrap();
    assert_eq!(rows(&bed), 100 - crate::limit::TXNS_SWEPT);
    let left = |bed: &Bed| {
        let row = bed.server.store().get(&crate::key::floor(ShardId(1), id(1).shard)).unwrap();
        crate::row::txn::Floor::from_bytes(&row.unwrap()).unwrap().left
    };
    assert_eq!(left(&bed), Some(id(crate::limit::TXNS_SWEPT as u64)));
    let gone = Vote::No(TxnRefused { errno: errno(Errno::ESTALE).0 });
    assert_eq!(ask(&mut bed, prepare(90, 90, make())), gone);
    decide(&mut bed, 90, 90, true).unwrap();
    made(ask(&mut bed, prepare(101, 101, make())));
    assert_eq!(rows(&bed), 1, "that of the last one");
    assert_eq!(left(&bed), None);
    for number in 102..=140 {
        made(ask(&mut bed, prepare(number, number, make())));
        decide(&mut bed, number, number, true).unwrap();
        assert_eq!((rows(&bed), left(&bed)), (1, None));
    }
}
