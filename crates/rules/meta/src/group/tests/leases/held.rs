//! Files that their mounts hold.

use super::*;
use crate::limit::{Limits, UNHELD_MS};
use crate::row::inode::MAY_BE_HELD;
use alloc::collections::BTreeSet;
use skep_types::codec::Bytes;
use skep_wire::{Refusal, Status};

/// The file of these tests, by who makes it.
pub(super) fn writes(parent: Ino, text: &str, open_seq: u64) -> Create {
    Create { open: Some(OpenMode::Write), open_seq, ..create(parent, text) }
}

pub(super) fn tell(ino: Ino, mode: u32) -> Tell {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    Tell { set, ..nothing(ino) }
}

pub(super) fn nothing(ino: Ino) -> Tell {
    let (set, at) = (SetAttr::default(), Timestamp::default());
    Tell { ino, content: None, commit: None, set, at, keeps: None, wishes: None, hold: None, answers: None }
}

pub(super) fn is_flagged(bed: &Bed, ino: Ino) -> bool {
    bed.inode(ino).is_some_and(|inode| inode.flags & MAY_BE_HELD != 0)
}

pub(super) fn held(bed: &Bed) -> u64 {
    bed.server.gauges().iter().find(|(name, _)| *name == "held_files").unwrap().1
}

pub(super) fn is_unbroken(bed: &Bed) -> bool {
    bed.server.gauges().contains(&("leases_broken", 0))
}

/// Sends a create; what it made, and how much of the content may stay with its mount.
pub(super) fn make_held(bed: &mut Bed, who: Who, message: Create) -> (Ino, Option<u32>) {
    let to = bed.send(who, message);
    let ino = bed.reply::<OpenReply>(to).expect("no answer").unwrap().attr.ino;
    (ino, bed.replies[&to].0.holds)
}

/// The questions in what a mount hears. It confirms what is taken back.
pub(super) fn asked(bed: &mut Bed, ear: &mut Ear) -> Vec<Ino> {
    let mut asked = vec![];
    loop {
        let events = ear.hear_all(bed);
        if events.is_empty() {
            return asked;
        }
        for event in events {
            match event {
                Event::Question(of) => asked.push(of.ino),
                Event::Recall(recall) => ear.confirm(bed, &[recall]),
                _ => {}
            }
        }
    }
}

/// A bed with a directory, and a file in it that the first mount holds.
pub(super) fn holding() -> (Bed, Ear, Ear, Ino, Ino) {
    let (mut bed, me, other, dir) = bed();
    bed.strides = true;
    bed.holding.insert(1);
    let (file, most) = make_held(&mut bed, ME, writes(dir, "f", 1));
    assert_eq!((most, is_flagged(&bed, file)), (Some(8_192), true));
    (bed, me, other, dir, file)
}

pub(super) fn report(
    bed: &mut Bed,
    who: Who,
    opens: &[Ino],
    holds: &[Ino],
    last: bool,
) -> Result<(), Status> {
    let open = |ino: &Ino| Reclaimed { ino: *ino, mode: OpenMode::Write, open_seq: 1, reserved: 0 };
    let (opens, holds) = (opens.iter().map(open).collect(), Some(holds.to_vec()));
    let wish = Reclaim { opens, locks: vec![], last, term: None, holds };
    let to = bed.send_as(who, ShardId(0), 0, wish.into());
    bed.reply::<ReclaimReply>(to).expect("no answer").map(|_| ())
}

/// Goal: a file is held by the mount that made it and wished so, if it opened it for writing and nobody else knows the
/// directory, or is about to; not where an ACL is inherited, or it is not known what may be in use.
#[test]
fn a_file_is_held_by_who_makes_it_alone() {
    let acl = [2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff]
        .into_iter()
        .chain([2, 0, 6, 0, 5, 0, 0, 0, 4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff])
        .chain([0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 5, 0, 0xff, 0xff, 0xff, 0xff]);
    let acl: Vec<u8> = acl.collect();
    for case in 0..9 {
        let (mut bed, _me, mut other, dir) = bed();
        bed.holding.insert(1);
        let mut wish = writes(dir, "f", 5);
        match case {
            1 => bed.holding.clear(),
            2 => _ = bed.wishes.remove(&1),
            3 => wish.open = Some(OpenMode::Read),
            4 => wish.open = None,
            5 => _ = bed.send(OTHER, find(dir, "old")),
            6 => {
                let set = SetXattr {
                    ino: dir,
                    name: Bytes(b"system.posix_acl_default".to_vec()),
                    value: Bytes(acl.clone()),
                    create: false,
                    replace: false,
                    kill_sgid: false,
                };
                bed.call(ME, set).unwrap();
            }
            7 => wish.name = name("old"),
            8 => wish.policy = Some(Policy { inline_limit: Some(100), ..Policy::default() }),
            _ => {}
        }
        let to = bed.send(ME, wish);
        while other.obey(&mut bed) > 0 {}
        let made = bed.reply::<OpenReply>(to).unwrap().unwrap().attr.ino;
        let expected = match case {
            0 => Some(8_192),
            8 => Some(100),
            _ => None,
        };
        assert_eq!(bed.replies[&to].0.holds, expected, "{case}");
        assert_eq!((is_flagged(&bed, made), held(&bed)), (expected.is_some(), u64::from(expected.is_some())));
        bed.check();
    }
}

/// Goal: where changes wait for what an earlier term has lent, or a directory goes to and fro, nothing is held.
#[test]
fn nothing_is_held_where_others_may_look() {
    let (mut bed, _, _, dir) = bed();
    bed.holding.insert(1);
    bed.send(OTHER, find(dir, "old"));
    bed.restart(&[1, 2]);
    bed.report(ME);
    bed.report(OTHER);
    let to = bed.send(ME, writes(dir, "f", 1));
    assert!(!bed.replies.contains_key(&to), "changes wait");
    bed.end_hold();
    assert_eq!((bed.replies[&to].1.is_ok(), bed.replies[&to].0.holds), (true, Some(8_192)));
    let limits = Limits { busy_at: 3, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    bed.forgets = false;
    let (mut me, mut other) = (Ear::new(&mut bed, ME), Ear::new(&mut bed, OTHER));
    bed.holding.extend([1, 2]);
    let mut holds = vec![];
    for n in 0..8 {
        for who in [ME, OTHER] {
            bed.send(who, GetAttr { ino: Ino::ROOT });
            let to = bed.send(who, writes(Ino::ROOT, &format!("{n} {}", who.client), 10 + n));
            while me.obey(&mut bed) + other.obey(&mut bed) > 0 {}
            holds.push(bed.replies[&to].0.holds.is_some());
        }
    }
    assert!(bed.server.lease_counts().busy > 0 && !holds.last().unwrap(), "{holds:?}");
    bed.check();
}

pub(super) fn lock(kind: Option<LockKind>) -> LockWish {
    LockWish { owner: 1, pid: 1, space: LockSpace::Range, kind, start: 0, last: 9 }
}

/// What another mount may ask beside the file, or by its name, and whether it is about the file.
fn by_names(dir: Ino, ino: Ino) -> Vec<(MetaRequest, bool)> {
    let bytes = |text: &str| Bytes(text.as_bytes().to_vec());
    let term = Term(1);
    let temp =
        CreateTemp { parent: dir, mode: 0o600, umask: 0, uid: 7, gid: 8, open: OpenMode::Write, open_seq: 8 };
    let on =
        MakeDirOn { parent: dir, name: name("on"), mode: 0o700, umask: 0, uid: 0, gid: 0, on: ShardId(0) };
    vec![
        (find(dir, "f").into(), true),
        (find(dir, "absent").into(), false),
        (Create { exclusive: true, ..writes(dir, "f", 7) }.into(), false),
        (writes(dir, "f", 7).into(), true),
        (node(dir, "node", Kind::Fifo).into(), false),
        (MakeSymlink { parent: dir, name: name("l"), target: bytes("f"), uid: 7, gid: 8 }.into(), false),
        (Link { ino, parent: dir, name: name("link") }.into(), true),
        (Unlink { parent: dir, name: name("f") }.into(), true),
        (RemoveDir { parent: dir, name: name("f") }.into(), false),
        (rename(dir, "f", Ino::ROOT, "g").into(), true),
        (rename(dir, "old", dir, "f").into(), true),
        (List { dir, after: 0, max: 9, with_attr: true, as_told: None }.into(), false),
        (Close { opens: vec![Closed { ino, open_seq: 9 }] }.into(), false),
        (Sync { term, index: LogIndex(0) }.into(), false),
        (on.into(), false),
        (GroupStats {}.into(), false),
        (temp.into(), false),
        (Events { received: 0, wait_ms: 0 }.into(), false),
        (Recalled { term, confirmed: vec![], back: vec![], anew: None }.into(), false),
    ]
}

/// The same by its number.
fn by_number(ino: Ino) -> Vec<(MetaRequest, bool)> {
    let bytes = |text: &str| Bytes(text.as_bytes().to_vec());
    let (ticket, order, term) = (1, 1, Term(1));
    let generation = Generation(1);
    let chunk = ChunkId { ino, generation, extent: 0, stripe: 0 };
    let commit = Commit {
        ino,
        generation,
        size: 1,
        cuts: 1,
        mtime: Timestamp::default(),
        time_sets: 0,
        blocks: None,
        kill_suidgid: false,
        held: None,
    };
    let xattr = SetXattr {
        ino,
        name: bytes("user.x"),
        value: bytes("v"),
        create: false,
        replace: false,
        kill_sgid: false,
    };
    let open = |truncate| Open {
        ino,
        mode: OpenMode::Write,
        truncate,
        shared: false,
        kill_suidgid: false,
        open_seq: 7,
    };
    let inline =
        WriteInline { append: true, ino, offset: 0, data: bytes("x"), kill_suidgid: false, within: None };
    let repair = Repair { ino, generation, trims: Default::default(), found: vec![] };
    vec![
        (GetAttr { ino }.into(), true),
        (ChangeAttr { ino, set: SetAttr { size: Some(0), ..SetAttr::default() } }.into(), true),
        (ReadLink { ino }.into(), true),
        (open(false).into(), true),
        (open(true).into(), true),
        (commit.into(), true),
        (ReadInline { ino, short: vec![], trims: Default::default() }.into(), true),
        (inline.into(), true),
        (Grow { like: None, ino, end: 1 << 20 }.into(), true),
        (Switch { ino, generation, inline_version: 0, copied: 0 }.into(), true),
        (GetXattr { ino, name: bytes("user.x") }.into(), false),
        (xattr.into(), true),
        (ListXattr { ino }.into(), false),
        (RemoveXattr { ino, name: bytes("user.x") }.into(), true),
        (
            Reclaim { opens: vec![], locks: vec![], last: true, term: None, holds: Some(vec![ino]) }.into(),
            false,
        ),
        (SetPolicy { ino, policy: Policy::default(), spread: None }.into(), true),
        (Inspect { ino }.into(), true),
        (SetLock { ino, lock: lock(Some(LockKind::Write)), ticket: None, order }.into(), true),
        (SetLock { ino, lock: lock(None), ticket: None, order }.into(), false),
        (GetLock { ino, lock: lock(Some(LockKind::Write)) }.into(), true),
        (DropLocks { ino, space: LockSpace::Range, owner: 1, order }.into(), false),
        (CancelLock { ino, ticket }.into(), false),
        (ReserveEnd { ino, len: 9, at_least: 0, number: 1, looked: term, cuts: None }.into(), true),
        (repair.into(), true),
        (SealExtent { ino, chunk, generation, end: 0, full: None, room: 0 }.into(), true),
        (tell(ino, 0o604).into(), true),
    ]
}

/// Each kind of request that there is.
fn everything(dir: Ino, ino: Ino) -> Vec<(MetaRequest, bool)> {
    by_names(dir, ino).into_iter().chain(by_number(ino)).collect()
}

/// Goal: whatever another mount asks about the file waits until its holder has told, and sees that; nothing else waits. Every
/// kind of request is here, but those of servers.
#[test]
fn everybody_else_waits_until_it_is_told() {
    let kinds: BTreeSet<&str> = MetaRequest::KINDS.iter().map(|(_, name)| *name).collect();
    let seen = everything(Ino::ROOT, Ino::ROOT).iter().map(|(message, _)| message.name()).collect();
    let of_servers = ["Prepare", "Decide", "AskOutcome", "FetchRows", "AskHistory"];
    assert_eq!(kinds.difference(&seen).copied().collect::<BTreeSet<_>>(), of_servers.into());
    for at in 0..everything(Ino::ROOT, Ino::ROOT).len() {
        let (mut bed, mut me, _, dir, file) = holding();
        bed.elsewhere = Some(Vote::Conflict(skep_wire::Empty {}));
        let (message, waits) = everything(dir, file).swap_remove(at);
        let text = format!("{message:?}");
        let to = bed.send_as(Who { slot: 3, ..OTHER }, ShardId(0), 1, message.clone());
        bed.sync();
        assert_eq!(asked(&mut bed, &mut me), if waits { vec![file] } else { vec![] }, "{text}");
        bed.sync();
        assert_eq!(bed.replies.contains_key(&to), !waits, "{text}");
        let told = bed.call(ME, tell(file, 0o640)).unwrap().attr;
        while me.obey(&mut bed) > 0 {}
        bed.sync();
        assert!(bed.replies.contains_key(&to), "{text}");
        let mode = match &message {
            MetaRequest::Lookup(_) if waits => {
                bed.reply::<EntryReply>(to).unwrap().unwrap().attr.unwrap().mode
            }
            MetaRequest::GetAttr(_) => bed.reply::<AttrReply>(to).unwrap().unwrap().attr.mode,
            MetaRequest::Open(_) => bed.reply::<OpenReply>(to).unwrap().unwrap().attr.mode,
            MetaRequest::Inspect(_) => bed.reply::<InspectReply>(to).unwrap().unwrap().attr.mode,
            _ => told.mode,
        };
        assert_eq!(mode, 0o640, "{text}");
        assert!(is_unbroken(&bed) && held(&bed) == 0 && !is_flagged(&bed, file), "{text}");
        bed.check();
    }
}

/// Goal: administrators wait as well; the holder's own requests pass, whatever they are, and it holds the file still.
#[test]
fn own_requests_pass() {
    let (mut bed, mut me, _, _, file) = holding();
    let to = bed.admin_send(GetAttr { ino: file });
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(asked(&mut bed, &mut me), [file]);
    bed.call(ME, nothing(file)).unwrap();
    assert!(bed.replies[&to].1.is_ok());
    for at in 0..everything(Ino::ROOT, Ino::ROOT).len() {
        let (mut bed, mut me, _, dir, file) = holding();
        let (message, _) = everything(dir, file).swap_remove(at);
        let text = format!("{message:?}");
        let ends = matches!(message, MetaRequest::Tell(_) | MetaRequest::Close(_));
        let to = bed.send_as(Who { slot: 3, ..ME }, ShardId(0), 1, message);
        bed.sync();
        bed.sync();
        assert!(bed.replies.contains_key(&to), "{text}");
        assert_eq!((held(&bed), asked(&mut bed, &mut me)), (u64::from(!ends), vec![]), "{text}");
        bed.check();
    }
}

/// Goal: a holder is asked once as long as anybody waits, and as long as it has not heard; who comes when nobody waits any
/// more has it asked again.
#[test]
fn a_holder_is_asked_once() {
    let (mut bed, mut me, _, dir, file) = holding();
    // Nobody is passed over before the wait is over.
    bed.strides = false;
    let lane = |slot| Who { slot, ..OTHER };
    let first = bed.send(lane(1), GetAttr { ino: file });
    assert_eq!(asked(&mut bed, &mut me), [file]);
    let second = bed.send(lane(2), find(dir, "f"));
    assert!(asked(&mut bed, &mut me).is_empty());
    bed.step(Input::Gone(first));
    bed.step(Input::Gone(second));
    // It asks for nothing now.
    bed.step(Input::Gone(me.to));
    for slot in 3..6 {
        let to = bed.send(lane(slot), GetAttr { ino: file });
        bed.step(Input::Gone(to));
    }
    let last = bed.send(lane(6), GetAttr { ino: file });
    me.ask(&mut bed);
    assert_eq!(asked(&mut bed, &mut me), [file]);
    bed.tick(limit::WAIT_DEADLINE_MS);
    assert_eq!(bed.reply::<AttrReply>(last).unwrap().err(), Some(Status::BUSY));
    bed.send(lane(7), GetAttr { ino: file });
    assert_eq!(asked(&mut bed, &mut me), [file]);
    bed.check();
}

/// Goal: whoever waits goes on when the holder closes the file, in whatever way, when its session ends, when it removes it, and
/// is answered when the term ends. Rows do not say for long that somebody may hold it, and that breaks no lease.
#[test]
fn what_ends_a_hold() {
    for end in ["close", "closed beside", "untold", "session", "unlink and close", "term"] {
        let (mut bed, _me, _, dir, file) = holding();
        let to = bed.send(OTHER, GetAttr { ino: file });
        assert!(!bed.replies.contains_key(&to));
        match end {
            "close" => bed.close(ME, file, 2),
            "closed beside" => {
                bed.closing = Some(Closed { ino: file, open_seq: 2 });
                bed.call(ME, GetAttr { ino: dir }).unwrap();
            }
            "untold" => bed.close(ME, Ino(0), 1),
            "session" => {
                bed.fenced.push(1);
                let fences = bed.fences(&[2]);
                bed.step(Input::Fences(fences));
            }
            "term" => bed.restart_term(ShardId(0)),
            _ => {
                bed.unlink(Who { slot: 4, ..ME }, dir, "f").unwrap();
                assert!(!bed.replies.contains_key(&to), "it is open");
                bed.close(ME, file, 2);
            }
        }
        let expected = match end {
            "term" => Some(Status::NOT_READY),
            "unlink and close" => Some(errno(Errno::ESTALE)),
            _ => None,
        };
        assert_eq!(bed.reply::<AttrReply>(to).expect(end).err(), expected, "{end}");
        assert_eq!(held(&bed), 0);
        let is_left = !matches!(end, "unlink and close");
        assert_eq!(is_flagged(&bed, file), is_left, "{end}");
        let records = bed.log.len();
        bed.tick(UNHELD_MS);
        assert_eq!(is_flagged(&bed, file), end == "term", "{end}");
        assert_eq!(bed.log.len() > records, is_left && end != "term", "{end}");
        assert!(is_unbroken(&bed));
        bed.check();
    }
}

/// Goal: many files that were closed with nothing told cost one record, and none is written where nothing is left to be
/// said; whoever knows the attributes is told nothing.
#[test]
fn flags_go_together() {
    let (mut bed, mut me, _, dir, file) = holding();
    let mut files = vec![file];
    for n in 0..20 {
        files.push(make_held(&mut bed, ME, writes(dir, &format!("{n}"), 10 + n)).0);
    }
    bed.call(ME, tell(files[0], 0o600)).unwrap();
    bed.close(ME, files[0], 90);
    let records = bed.log.len();
    files[1..].iter().for_each(|ino| bed.close(ME, *ino, 90));
    bed.tick(UNHELD_MS - 500);
    assert_eq!(bed.log.len(), records);
    let before: Vec<Attr> = files.iter().map(|ino| bed.inode(*ino).unwrap().attr(*ino)).collect();
    assert!(files[1..].iter().all(|ino| is_flagged(&bed, *ino)));
    bed.tick(500);
    assert_eq!(bed.log.len(), records + 1);
    let after: Vec<Attr> = files.iter().map(|ino| bed.inode(*ino).unwrap().attr(*ino)).collect();
    assert!(after == before && !files.iter().any(|ino| is_flagged(&bed, *ino)));
    assert!(me.hear(&mut bed).is_empty() && is_unbroken(&bed));
    bed.tick(2 * UNHELD_MS);
    assert_eq!(bed.log.len(), records + 1);
    bed.check();
    bed.restart(&[]);
    assert!(files.iter().all(|ino| !is_flagged(&bed, *ino)));
}

/// Goal: what a mount knows of a file that it held is taken back as ever when somebody else changes it, told or not.
#[test]
fn who_held_it_is_told_of_changes() {
    for told in [true, false] {
        let (mut bed, mut me, _, dir, file) = holding();
        let found = bed.call(ME, find(dir, "f")).unwrap().attr.unwrap();
        assert!(found.flags & Attr::COVERED != 0, "its holder knows it");
        if told {
            bed.call(ME, nothing(file)).unwrap();
        } else {
            bed.close(ME, file, 2);
        }
        assert!(me.hear(&mut bed).is_empty());
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let to = bed.send(OTHER, ChangeAttr { ino: file, set });
        assert!(!bed.replies.contains_key(&to), "{told}");
        let recalls = me.hear(&mut bed);
        assert_eq!(recalls.iter().map(|recall| recall.entry).collect::<Vec<_>>(), [Some(file)]);
        me.confirm(&mut bed, &recalls);
        assert!(bed.replies[&to].1.is_ok() && is_unbroken(&bed));
        bed.check();
    }
}

/// Goal: a listing leaves out the attributes of what somebody else holds, or may hold, and goes on; its holder's does not.
#[test]
fn listings_leave_out_what_is_held() {
    let (mut bed, mut me, _, dir, file) = holding();
    let list = |bed: &mut Bed, who| {
        let listed =
            bed.call(who, List { dir, after: 0, max: 9, with_attr: true, as_told: None }).unwrap().entries;
        assert_eq!(listed.len(), 2);
        listed.iter().find(|entry| entry.ino == file).unwrap().attr.clone()
    };
    assert!(list(&mut bed, ME).is_some() && list(&mut bed, OTHER).is_none());
    assert!(asked(&mut bed, &mut me).is_empty(), "who needs them asks");
    bed.restart(&[1, 2]);
    bed.report(OTHER);
    assert!(list(&mut bed, OTHER).is_none());
    report(&mut bed, ME, &[file], &[file], true).unwrap();
    assert!(list(&mut bed, ME).is_some() && list(&mut bed, OTHER).is_none());
    bed.call(ME, nothing(file)).unwrap();
    assert!(list(&mut bed, OTHER).is_some());
}

/// Goal: in a new term nobody is told of a file that may be held before everybody has told what he holds: who holds it is then
/// asked as before, and who has told passes at once; what nobody holds is anybody's.
#[test]
fn a_new_term_waits_for_what_is_held() {
    for holds in [true, false] {
        let (mut bed, _, _, dir, file) = holding();
        bed.open(OTHER, dir, OpenMode::Read, 3).unwrap();
        bed.restart(&[1, 2]);
        bed.holding.insert(1);
        let mut me = Ear::new(&mut bed, ME);
        let grace = Some(Status::GRACE);
        let ask = |bed: &mut Bed, who| bed.call(who, GetAttr { ino: file }).err();
        assert_eq!((ask(&mut bed, OTHER), ask(&mut bed, ME)), (grace, grace));
        let end = ReserveEnd { ino: file, len: 9, at_least: 0, number: 1, looked: bed.term(), cuts: None };
        assert_eq!(bed.call(OTHER, end).err(), grace);
        let told: &[Ino] = if holds { &[file] } else { &[] };
        report(&mut bed, ME, &[file], told, true).unwrap();
        assert_eq!(held(&bed), u64::from(holds));
        assert_eq!(ask(&mut bed, ME), if holds { None } else { grace });
        let to = bed.send(OTHER, GetAttr { ino: file });
        assert_eq!(bed.replies.contains_key(&to), !holds);
        if !holds {
            assert_eq!(bed.reply::<AttrReply>(to).unwrap().err(), grace);
        }
        if !holds {
            let look = GetLock { ino: file, lock: lock(Some(LockKind::Read)) };
            assert_eq!(bed.call(OTHER, look).err(), grace);
        }
        report(&mut bed, OTHER, &[], &[], true).unwrap();
        if holds {
            assert_eq!(asked(&mut bed, &mut me), [file]);
            bed.tick(PATIENCE / 2);
            bed.call(ME, GetAttr { ino: dir }).unwrap();
            bed.tick(PATIENCE / 2 + 100);
            assert!(!bed.replies.contains_key(&to), "it is heard");
            bed.call(ME, tell(file, 0o600)).unwrap();
            assert_eq!(bed.reply::<AttrReply>(to).unwrap().unwrap().attr.mode, 0o600);
        }
        assert_eq!((ask(&mut bed, OTHER), ask(&mut bed, ME)), (None, None));
        // It is too late to say so now, whatever the row says.
        assert_eq!(is_flagged(&bed, file), !holds);
        report(&mut bed, ME, &[file], &[file], true).unwrap();
        assert_eq!((held(&bed), ask(&mut bed, OTHER)), (0, None));
        bed.check();
    }
}

/// Goal: a file of a mount that has not reported when the grace period ends is nobody's to look at, until it has, or its
/// session has ended; as long as it is heard, at least.
#[test]
fn late_and_dead_holders() {
    for ends in [true, false] {
        let (mut bed, _, _, _, file) = holding();
        bed.restart(&[1, 2]);
        bed.report(OTHER);
        bed.tick(bed.config.grace_ms);
        let ask = |bed: &mut Bed| bed.call(OTHER, GetAttr { ino: file }).err();
        assert_eq!(bed.call(ME, GetAttr { ino: Ino::ROOT }).err(), Some(Status::NOT_READY));
        assert_eq!(ask(&mut bed), Some(Status::GRACE));
        if ends {
            bed.fenced.push(1);
            let fences = bed.fences(&[2]);
            bed.step(Input::Fences(fences));
            assert_eq!(ask(&mut bed), None);
        } else {
            report(&mut bed, ME, &[file], &[file], true).unwrap();
            let to = bed.send(OTHER, GetAttr { ino: file });
            assert!(!bed.replies.contains_key(&to) && held(&bed) == 1);
            bed.close(ME, file, 2);
            assert!(bed.replies[&to].1.is_ok());
        }
        bed.check();
    }
}

/// Goal: a report of what is held counts for what its mount has open for writing and nothing was told of; and is refused of
/// another shard, and where it names too many.
#[test]
fn reports_of_what_is_held() {
    let (mut bed, _, _, dir, file) = holding();
    let (other, _) = make_held(&mut bed, ME, writes(dir, "g", 2));
    let (told, _) = make_held(&mut bed, ME, writes(dir, "h", 3));
    bed.call(ME, tell(told, 0o600)).unwrap();
    bed.restart(&[1, 2]);
    let far = Ino::new(ShardId(3), 9);
    assert_eq!(report(&mut bed, ME, &[], &[far], false), Err(Status::MALFORMED));
    let many = vec![file; limit::OPENS_PER_MESSAGE_MAX + 1];
    assert_eq!(report(&mut bed, ME, &[file], &many, false), Err(Status::MALFORMED));
    report(&mut bed, ME, &[file, told], &[file, other, told, Ino(999)], false).unwrap();
    assert_eq!(held(&bed), 1, "one is not open, of one all is told");
    report(&mut bed, OTHER, &[file], &[file], true).unwrap();
    report(&mut bed, ME, &[other], &[other], true).unwrap();
    assert_eq!(held(&bed), 2, "what one holds no other does");
    assert_eq!(bed.call(ME, GetAttr { ino: told }).unwrap().attr.mode, 0o600);
    bed.check();
}

/// Goal: a power cut that takes the word of a holder leaves the file held; whichever part of the log is left, rows and
/// holders agree.
#[test]
fn a_lost_word_is_told_again() {
    let (mut bed, _, _, _, file) = holding();
    bed.call(ME, tell(file, 0o600)).unwrap();
    let kept = bed.log.len() - 1;
    bed.crash(0, kept as u64, &[1, 2]);
    assert!(is_flagged(&bed, file));
    bed.report(OTHER);
    report(&mut bed, ME, &[file], &[file], true).unwrap();
    let to = bed.send(OTHER, GetAttr { ino: file });
    let again = bed.resend(ME, tell(file, 0o600));
    assert!(!bed.replies.contains_key(&to));
    bed.end_hold();
    assert!(bed.replies[&again].1.is_ok());
    assert_eq!(bed.reply::<AttrReply>(to).unwrap().unwrap().attr.mode, 0o600);
    bed.check();
}

/// Goal: a create that is sent again says nothing of a hold, and whoever comes has its mount say that there is none; one whose
/// close has overtaken it leaves none.
#[test]
fn answers_that_are_lost() {
    let (mut bed, mut me, _, dir, file) = holding();
    let again = bed.resend(ME, writes(dir, "f", 1));
    assert_eq!((bed.replies[&again].1.is_ok(), bed.replies[&again].0.holds), (true, None));
    let to = bed.send(OTHER, GetAttr { ino: file });
    assert_eq!(asked(&mut bed, &mut me), [file]);
    bed.call(ME, nothing(file)).unwrap();
    assert!(bed.replies[&to].1.is_ok() && !is_flagged(&bed, file));
    bed.close(ME, Ino(0), 50);
    let (gone, most) = make_held(&mut bed, ME, writes(dir, "g", 50));
    assert_eq!((most, held(&bed), is_flagged(&bed, gone)), (None, 0, true));
    bed.tick(UNHELD_MS);
    assert!(bed.call(OTHER, GetAttr { ino: gone }).is_ok() && !is_flagged(&bed, gone));
    bed.check();
}

/// Goal: beyond either limit nothing is held, and is again when there is room; what is told needs no room on the disk; those who
/// wait leave room for others.
#[test]
fn limits_and_room() {
    for (files_held, files_held_per_client) in [(2, 9), (9, 2)] {
        let limits = Limits { files_held, files_held_per_client, waits: 4, ..Limits::default() };
        let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
        bed.forgets = false;
        let _me = Ear::new(&mut bed, ME);
        bed.holding.insert(1);
        let made: Vec<_> =
            (1..=3).map(|n| make_held(&mut bed, ME, writes(Ino::ROOT, &format!("{n}"), n))).collect();
        let holds: Vec<bool> = made.iter().map(|(_, most)| most.is_some()).collect();
        assert_eq!(holds, [true, true, false]);
        let waits: Vec<u64> =
            (0..3).map(|slot| bed.send(Who { slot, ..OTHER }, GetAttr { ino: made[0].0 })).collect();
        let refusal: &Refusal = bed.replies[&waits[2]].1.as_ref().unwrap_err();
        assert_eq!(refusal.status, Status::BUSY);
        bed.step(Input::LowSpace(true));
        let content = Some(Content { data: Bytes(vec![1; 100]), mtime: Timestamp::default() });
        bed.call(ME, Tell { content, ..nothing(made[0].0) }).unwrap();
        assert!(waits[..2].iter().all(|to| bed.replies[to].1.is_ok()));
        assert!(bed.call(ME, writes(Ino::ROOT, "x", 8)).is_err());
        bed.step(Input::LowSpace(false));
        assert!(make_held(&mut bed, ME, writes(Ino::ROOT, "y", 9)).1.is_some());
        assert_eq!(held(&bed), 2);
        bed.check();
    }
}
