//! Operations over two shards, with every crash point.

use crate::testing::*;
use crate::*;
use skep_types::*;
use skep_wire::meta::*;
use skep_wire::{Empty, Status};

fn bed() -> Bed {
    let mut bed = Bed::with(Config::default(), 4);
    bed.keep_snapshots = true;
    bed
}

fn on(text: &str, shard: u16) -> MakeDirOn {
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
    for shard in 0..4 {
        let (from, until) = crate::key::table(ShardId(shard), crate::key::Table::RemoteIntent);
        store::Store::scan(bed.server.store(), &from, &until, &mut |_, _| panic!("an intent is left"))
            .unwrap();
    }
}

/// Goal: a subtree on another shard works like any other directory; it goes only when empty.
#[test]
fn a_subtree_on_another_shard() {
    let mut bed = bed();
    let made = bed.admin(on("d", 2)).unwrap();
    assert_eq!(made.ino.shard(), ShardId(2));
    assert_eq!(made.attr.unwrap().mode, 0o750);
    assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 3);
    let found = bed.call(ME, Lookup { parent: Ino::ROOT, name: name("d") }).unwrap();
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

/// Goal: while a name is pending, everybody who asks for it waits, nobody else does; its parent
/// cannot be removed.
#[test]
fn a_pending_name_blocks_only_itself() {
    let mut bed = bed();
    let parent = bed.mkdir(Ino::ROOT, "p");
    bed.auto_sync = false;
    let made = bed.admin_send(MakeDirOn { parent, ..on("d", 2) });
    let seen = bed.send(ME, Lookup { parent, name: name("d") });
    let other = bed.send(ME, Lookup { parent, name: name("x") });
    let removed = bed.send(ME, rmdir("p"));
    let list = bed.send(ME, List { dir: parent, after: 0, max: 9, with_attr: true });
    assert!(!bed.replies.contains_key(&made) && !bed.replies.contains_key(&seen));
    assert_eq!(bed.reply::<EntryReply>(other), Some(Err(errno(Errno::ENOENT))));
    assert_eq!(bed.reply::<Empty>(removed), Some(Err(errno(Errno::ENOTEMPTY))));
    assert!(bed.reply::<ListReply>(list).unwrap().unwrap().entries.is_empty());
    settle(&mut bed);
    let ino = bed.reply::<EntryReply>(made).unwrap().unwrap().ino;
    assert_eq!(bed.reply::<EntryReply>(seen).unwrap().unwrap().ino, ino);
}

/// Goal: kill the server after every single log record of making and removing a directory over
/// two shards, with and without the unsynced rows: each time the operation is either wholly done
/// or wholly undone in the end, and the repeated request gets the truth.
#[test]
fn every_crash_point() {
    // How many records the whole story takes.
    let mut whole = bed();
    whole.admin(on("d", 2)).unwrap();
    settle(&mut whole);
    let made = whole.log.len() as u64;
    whole.call(ME, rmdir("d")).unwrap();
    settle(&mut whole);
    let last = whole.log.len() as u64;
    assert!(last - made >= 5, "mark, retire, answer, forget, done");
    for kept in 5..=last {
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
            // The client asks again: the same number, the same request.
            let to = bed.send_as(ME, ShardId(0), 1, rmdir("d").into());
            settle(&mut bed);
            let answer = bed.reply::<Empty>(to).unwrap();
            let expected =
                if bed.lookup(Ino::ROOT, "d").is_ok() { unreachable!("it was removed") } else { answer };
            assert!(
                expected.is_ok() || expected == Err(errno(Errno::ENOENT)),
                "kept {kept} of {last}: {expected:?}"
            );
            assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 2, "kept {kept} of {last}");
        }
    }
}

/// The newest rows that are no newer than `kept`.
fn newest(bed: &Bed, kept: u64) -> u64 {
    bed.snapshots.range(..=kept).next_back().map_or(0, |(index, _)| *index)
}

/// Goal: the asked shard answers a repetition the same, recognises one that comes after the end,
/// and keeps a bounded memory.
#[test]
fn repetitions_are_one() {
    let mut bed = bed();
    let ask = |bed: &mut Bed, txid: u64, floor: u64, step| {
        let new = Some(new_dir());
        let message = RemoteDir { txid, floor, from: ShardId(0), step, ino: Ino(0), parent: Ino::ROOT, new };
        let to = bed.next_reply;
        bed.next_reply += 1;
        let peer = PeerIdentity {
            role: Role::Server,
            client: ClientId(0),
            incarnation: Incarnation(1),
            node: NodeId(9),
        };
        let call = ShardCall { shard: ShardId(1), slot: Slot(0), seq: Seq(0) };
        bed.step(Input::Request(Request {
            reply_to: to,
            peer,
            epoch: FenceEpoch(0),
            call,
            message: message.into(),
        }));
        bed.reply::<RemoteDirReply>(to).unwrap().unwrap()
    };
    let first = ask(&mut bed, 1_000, 1_000, RemoteStep::Make);
    assert_eq!(ask(&mut bed, 1_000, 1_000, RemoteStep::Make), first);
    ask(&mut bed, 1_000, 1_000, RemoteStep::Forget);
    ask(&mut bed, 1_000, 1_000, RemoteStep::Forget);
    let stale = |reply: RemoteDirReply| Status(reply.errno) == errno(Errno::ESTALE);
    assert!(stale(ask(&mut bed, 1_000, 1_000, RemoteStep::Make)));
    ask(&mut bed, 1_001, 1_001, RemoteStep::Make);
    let key = crate::key::memory(ShardId(1), ShardId(0), 1_000);
    assert_eq!(store::Store::get(bed.server.store(), &key).unwrap(), None);
    // However old it is, and whether anything of it is remembered or not: it makes no directory.
    let before = bed.log.len();
    for txid in [1, 999, 1_000] {
        assert!(stale(ask(&mut bed, txid, 1, RemoteStep::Make)), "{txid}");
        assert_eq!(ask(&mut bed, txid, 1, RemoteStep::Forget).errno, 0);
    }
    assert_eq!(bed.log.len(), before, "a stray left something behind");
}

/// Goal: a shard on another server is asked through the courier, again and again until it answers;
/// whoever waits is told BUSY meanwhile; the outcome is the other shard's.
#[test]
fn a_shard_on_another_server() {
    let mut bed = Bed::with(Config::default(), 2);
    let mut other = map(3, 5);
    other.version = MapVersion(2);
    other.shards[2].replicas = alloc::vec![NodeId(9)];
    bed.step(Input::Map { own: OWN, map: other });
    let to = bed.admin_send(on("d", 2));
    assert!(!bed.replies.contains_key(&to));
    bed.tick(crate::limit::WAIT_DEADLINE_MS);
    assert_eq!(bed.reply::<EntryReply>(to), Some(Err(Status::BUSY)));
    bed.tick(crate::limit::RETRY_LAST_MS);
    let asks = bed.asked.len();
    assert!(asks > 1 && bed.asked.iter().all(|message| *message == bed.asked[0]), "one transaction");
    bed.restart(&[]);
    let mut other = map(3, 5);
    other.version = MapVersion(3);
    other.shards[2].replicas = alloc::vec![NodeId(9)];
    bed.step(Input::Map { own: OWN, map: other });
    let ino = Ino::new(ShardId(2), 77);
    bed.elsewhere = Some(RemoteDirReply { ino, errno: 0, attr: None });
    settle(&mut bed);
    assert_eq!(bed.lookup(Ino::ROOT, "d"), Ok(ino));
    assert_eq!(bed.asked.last().map(|message| message.step), Some(RemoteStep::Forget));
    // Its removal is refused by the other shard: the name stays.
    bed.elsewhere = Some(RemoteDirReply { ino, errno: errno(Errno::ENOTEMPTY).0, attr: None });
    assert_eq!(bed.call(ME, rmdir("d")).err(), Some(errno(Errno::ENOTEMPTY)));
    assert_eq!(bed.lookup(Ino::ROOT, "d"), Ok(ino));
    bed.elsewhere = Some(RemoteDirReply { ino, errno: 0, attr: None });
    bed.call(ME, rmdir("d")).unwrap();
    assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 2);
    settle(&mut bed);
}
