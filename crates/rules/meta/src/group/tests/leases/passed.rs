//! Holders that are silent: others go on without them.

use super::held::{asked, held, holding, is_flagged, is_unbroken, nothing, report, tell};
use super::*;
use crate::limit::WAIT_DEADLINE_MS;
use crate::store::Store;
use skep_wire::Status;

fn passed(bed: &Bed) -> u64 {
    bed.server.gauges().iter().find(|(name, _)| *name == "holds_passed").unwrap().1
}

/// A file whose holder says nothing any more, not even that it listens; when it was last heard.
fn silent() -> (Bed, Ear, Ear, Ino, Ino, Millis) {
    let (mut bed, me, other, dir, file) = holding();
    bed.step(Input::Gone(me.to));
    bed.call(ME, GetAttr { ino: dir }).unwrap();
    let heard = bed.now;
    (bed, me, other, dir, file, heard)
}

/// The next step is at this time.
fn tick_at(bed: &mut Bed, at: Millis) {
    bed.tick(at.since(bed.now) - 1);
    assert_eq!(bed.now, at);
}

/// The same, where another mount has waited for the file until it was answered.
fn passed_over() -> (Bed, Ear, Ear, Ino, Ino) {
    let (mut bed, me, mut other, dir, file, heard) = silent();
    let to = bed.send(OTHER, GetAttr { ino: file });
    bed.tick(PATIENCE / 2);
    other.obey(&mut bed);
    tick_at(&mut bed, heard.plus(PATIENCE));
    assert!(bed.replies[&to].1.is_ok() && passed(&bed) == 1);
    (bed, me, other, dir, file)
}

fn set(ino: Ino, mode: u32) -> ChangeAttr {
    ChangeAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
}

/// Goal: who waits for a file goes on as soon as its holder was not heard for longer than it believes in what it was told, and
/// not before; the step for that is asked for; the row says then that nobody holds it, and is otherwise as it was.
#[test]
fn a_silent_holder_is_passed_over_in_time() {
    for heard_again in [false, true] {
        let (mut bed, _me, _other, dir, file, mut heard) = silent();
        let before = bed.inode(file).unwrap().attr(file);
        if !heard_again {
            bed.tick(PATIENCE / 2);
        }
        let to = bed.send(OTHER, GetAttr { ino: file });
        if heard_again {
            bed.tick(PATIENCE / 2);
            bed.call(ME, GetAttr { ino: dir }).unwrap();
            heard = bed.now;
        }
        let at = heard.plus(PATIENCE);
        tick_at(&mut bed, Millis(at.0 - 1));
        assert!(!bed.replies.contains_key(&to) && held(&bed) == 1 && is_flagged(&bed, file));
        assert!(bed.server.next_deadline().is_some_and(|due| due <= at));
        tick_at(&mut bed, at);
        assert_eq!(bed.reply::<AttrReply>(to).unwrap().unwrap().attr, before);
        assert_eq!((held(&bed), is_flagged(&bed, file), passed(&bed)), (0, false, 1));
        let row = bed.inode(file).unwrap().attr(file);
        assert!(row == before && is_unbroken(&bed), "the change counter as well");
        bed.check();
    }
}

/// Goal: of a server that stood still nobody is passed over who asked meanwhile: it has not read that yet. Who is silent behind
/// that as well is passed over in time.
#[test]
fn a_server_that_stood_still_hears_first() {
    for (heard, waits) in [(true, true), (false, true), (true, false), (false, false)] {
        let (mut bed, _, _, dir, file, _) = silent();
        let mut to = waits.then(|| bed.send(OTHER, GetAttr { ino: file }));
        bed.now.0 += 5_000;
        bed.step(Input::Tick);
        let still = bed.now;
        let to = *to.get_or_insert_with(|| bed.send(OTHER, GetAttr { ino: file }));
        bed.tick(0);
        assert!(!bed.replies.contains_key(&to) && passed(&bed) == 0);
        if heard {
            bed.call(ME, GetAttr { ino: dir }).unwrap();
        }
        tick_at(&mut bed, Millis(still.0 + PATIENCE - 1));
        assert!(!bed.replies.contains_key(&to) && held(&bed) == 1);
        tick_at(&mut bed, still.plus(PATIENCE));
        assert_eq!((bed.replies.contains_key(&to), passed(&bed)), (!heard, u64::from(!heard)));
        bed.check();
    }
}

/// Goal: nobody is passed over as long as nobody waits; who comes then need not wait; one that was forgotten meanwhile is silent
/// as well.
#[test]
fn who_comes_late_need_not_wait() {
    for ms in [PATIENCE - 10, PATIENCE + 10, 3 * PATIENCE] {
        let (mut bed, _, _, _, file, _) = silent();
        bed.tick(ms / 2);
        bed.call(OTHER, GetAttr { ino: Ino::ROOT }).unwrap();
        bed.tick(ms - ms / 2);
        assert_eq!((held(&bed), passed(&bed)), (1, 0));
        let to = bed.send(OTHER, GetAttr { ino: file });
        bed.tick(1);
        assert_eq!(bed.replies.contains_key(&to), ms > PATIENCE, "{ms}");
        assert_eq!(passed(&bed), u64::from(ms > PATIENCE));
        bed.check();
    }
}

/// Goal: who is heard is waited for, whether it tells or not, and whether it has leases or lost them; also where its leases
/// lapsed before anybody waited.
#[test]
fn who_is_heard_is_waited_for() {
    for lapses in [false, true] {
        let (mut bed, mut me, _, dir, file) = holding();
        if lapses {
            bed.step(Input::Gone(me.to));
            bed.tick(3 * PATIENCE);
            me.ask(&mut bed);
        }
        let to = bed.send(OTHER, GetAttr { ino: file });
        assert_eq!(asked(&mut bed, &mut me), [file]);
        for _ in 0..2 * WAIT_DEADLINE_MS.div_ceil(PATIENCE) {
            bed.tick(PATIENCE / 2);
            if lapses {
                bed.wishes.insert(1, 1);
            }
            bed.send(ME, GetAttr { ino: dir });
        }
        bed.tick(PATIENCE / 2);
        assert_eq!(bed.reply::<AttrReply>(to).unwrap().err(), Some(Status::BUSY));
        assert_eq!((held(&bed), passed(&bed)), (1, 0));
        bed.call(ME, tell(file, 0o640)).unwrap();
        bed.check();
    }
}

/// Goal: others go on when a power cut cannot bring the hold back: else its holder could report it, and tell of a file that they
/// have changed.
#[test]
fn others_go_on_when_that_is_durable() {
    let (mut bed, _, _, _, file, _) = silent();
    bed.tick(PATIENCE);
    bed.auto_sync = false;
    let to = bed.send(OTHER, GetAttr { ino: file });
    bed.tick(0);
    let next = bed.send(Who { slot: 1, ..OTHER }, set(file, 0o600));
    assert!(!bed.replies.contains_key(&to) && !bed.replies.contains_key(&next) && !is_flagged(&bed, file));
    bed.sync();
    assert!(bed.replies.contains_key(&to) && bed.replies.contains_key(&next));
    bed.auto_sync = true;
    bed.restart(&[1, 2]);
    bed.report(OTHER);
    report(&mut bed, ME, &[file], &[file], true).unwrap();
    bed.end_hold();
    assert_eq!((held(&bed), bed.attr(file).unwrap().mode), (0, 0o600));
    assert_eq!(bed.call(ME, tell(file, 0o640)).err(), Some(Status::NOT_HELD));
    bed.check();
}

/// Goal: a holder that tells before that is durable has told, and holds the file no longer; one that only asks whether it does is
/// answered behind that, and holds it once more.
#[test]
fn who_tells_at_the_last_moment() {
    for asks in [false, true] {
        let (mut bed, _, _, _, file, _) = silent();
        bed.tick(PATIENCE);
        bed.auto_sync = false;
        let to = bed.send(OTHER, GetAttr { ino: file });
        bed.tick(0);
        let mut me = Ear::new(&mut bed, ME);
        // It has lapsed, and says so.
        bed.wishes.insert(1, 1);
        me.ask(&mut bed);
        bed.step(Input::Gone(to));
        let keeps = Tell { keeps: Some(true), ..nothing(file) };
        let word = bed.send(ME, if asks { keeps.clone() } else { tell(file, 0o640) });
        if asks {
            assert!(!bed.replies.contains_key(&word) && held(&bed) == 1);
        } else {
            assert_eq!(
                (bed.replies[&word].1.is_ok(), bed.replies[&word].0.holds, held(&bed)),
                (true, None, 0)
            );
        }
        bed.auto_sync = true;
        bed.sync();
        assert_eq!((passed(&bed), bed.replies[&word].0.holds.is_some()), (u64::from(asks), asks));
        if asks {
            let to = bed.send(ME, keeps);
            assert_eq!((bed.replies[&to].0.holds.is_some(), held(&bed)), (true, 1));
            bed.call(ME, tell(file, 0o640)).unwrap();
        }
        assert_eq!(bed.call(OTHER, GetAttr { ino: file }).unwrap().attr.mode, 0o640);
        while me.obey(&mut bed) > 0 {}
        bed.check();
    }
}

/// Goal: what a holder kept that was passed over is told late, once, where nobody has changed the file or opened it for writing;
/// else it is refused, as is the question whether it holds the file, and nothing changes. It goes on holding it in no case but one.
#[test]
fn what_was_kept_is_told_late_or_refused() {
    for (case, may_tell) in [
        ("looked", true),
        ("changed", false),
        ("written", false),
        ("open for writing", false),
        ("open for reading", true),
        ("closed", false),
        ("read and closed", true),
    ] {
        for keeps in [None, Some(true)] {
            if keeps.is_some() && ["looked", "read and closed"].contains(&case) {
                continue; // See `who_comes_back_holds_it_once_more`.
            }
            let (mut bed, _, _, _, file) = passed_over();
            bed.wishes.insert(1, 1);
            let mut me = Ear::new(&mut bed, ME);
            match case {
                "changed" => _ = bed.call(OTHER, set(file, 0o600)).unwrap(),
                "written" => {
                    bed.open(OTHER, file, OpenMode::Write, 7).unwrap();
                    let data = skep_types::codec::Bytes(vec![1]);
                    let write = WriteInline {
                        append: false,
                        ino: file,
                        offset: 0,
                        data,
                        kill_suidgid: false,
                        within: None,
                    };
                    bed.call(OTHER, write).unwrap();
                    bed.close(OTHER, file, 8);
                }
                "open for writing" => _ = bed.open(OTHER, file, OpenMode::Write, 7).unwrap(),
                "open for reading" => _ = bed.open(OTHER, file, OpenMode::Read, 7).unwrap(),
                // It may have written to chunks, and be gone without a commit.
                "closed" | "read and closed" => {
                    let mode = if case == "closed" { OpenMode::Write } else { OpenMode::Read };
                    bed.open(OTHER, file, mode, 7).unwrap();
                    bed.close(OTHER, file, 8);
                }
                _ => {}
            }
            let (before, records) = (bed.inode(file).unwrap(), bed.log.len());
            for slot in 1..3 {
                let to = bed.send(Who { slot, ..ME }, Tell { keeps, ..nothing(file) });
                // Who has nothing to tell has nothing to be refused.
                let expected = (!may_tell && keeps.is_some()).then_some(Status::HOLD_PASSED);
                assert_eq!(bed.reply::<AttrReply>(to).unwrap().err(), expected, "{case}");
                assert_eq!((bed.replies[&to].0.holds, bed.log.len()), (None, records), "{case}");
            }
            let to = bed.send(ME, Tell { keeps, ..tell(file, 0o640) });
            assert_eq!((held(&bed), bed.replies[&to].0.holds), (0, None));
            if may_tell {
                let attr = bed.reply::<AttrReply>(to).unwrap().unwrap().attr;
                assert_eq!((attr.mode, attr.change), (0o640, before.change + 1), "{case}");
                assert_eq!(bed.call(ME, tell(file, 0o604)).err(), Some(Status::NOT_HELD), "{case}");
            } else {
                assert_eq!(bed.reply::<AttrReply>(to).unwrap().err(), Some(Status::HOLD_PASSED), "{case}");
                assert!(bed.inode(file).unwrap() == before, "{case}");
            }
            while me.obey(&mut bed) > 0 {}
            assert!(is_unbroken(&bed));
            bed.check();
            let rows = bed.inode(file).unwrap();
            bed.restart(&[]);
            assert!(bed.inode(file).unwrap() == rows, "{case}");
        }
    }
}

/// Goal: who was passed over, and wishes so, holds the file once more, where nobody has changed it or has it open: before it is told
/// so the row says it durably, others wait for it from then on, over a restart as well, and what it tells counts.
#[test]
fn who_comes_back_holds_it_once_more() {
    for restarts in [false, true] {
        let (mut bed, _, mut other, _, file) = passed_over();
        // Others may have read it meanwhile.
        bed.open(OTHER, file, OpenMode::Read, 7).unwrap();
        bed.close(OTHER, file, 8);
        let mut me = Ear::new(&mut bed, ME);
        // It has lapsed, and says so.
        bed.wishes.insert(1, 1);
        me.ask(&mut bed);
        let before = bed.attr(file).unwrap();
        bed.auto_sync = false;
        let asks = bed.send(ME, Tell { keeps: Some(true), ..nothing(file) });
        assert!(!bed.replies.contains_key(&asks) && held(&bed) == 1 && is_flagged(&bed, file));
        let looks = bed.send(OTHER, GetAttr { ino: file });
        bed.auto_sync = true;
        bed.sync();
        assert!(bed.replies[&asks].0.holds.is_some());
        assert_eq!(bed.reply::<AttrReply>(asks).unwrap().unwrap().attr, before);
        assert_eq!(asked(&mut bed, &mut me), [file], "the next who looks has it asked");
        assert!(!bed.replies.contains_key(&looks));
        if restarts {
            let lane = |bed: &Bed| {
                let lane = crate::key::slot(ShardId(0), ClientId(ME.client), Slot(ME.slot));
                bed.server.store().get(&lane).unwrap().unwrap()
            };
            let before = lane(&bed);
            bed.restart(&[1, 2]);
            assert_eq!(lane(&bed), before, "the log says the same");
            bed.report(OTHER);
            report(&mut bed, ME, &[file], &[file], true).unwrap();
            bed.end_hold();
        }
        bed.call(ME, tell(file, 0o640)).unwrap();
        while other.obey(&mut bed) > 0 {}
        assert_eq!((held(&bed), bed.attr(file).unwrap().mode), (0, 0o640));
        assert!(is_unbroken(&bed));
        bed.check();
    }
}

/// Goal: nobody holds a file once more where none may be held: where there is no room for holds, or for what they bring.
#[test]
fn nobody_holds_again_what_has_no_room() {
    for full in [false, true] {
        let limits = crate::limit::Limits { files_held: 1, ..crate::limit::Limits::default() };
        let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
        (bed.forgets, bed.strides) = (false, true);
        let me = Ear::new(&mut bed, ME);
        bed.holding.insert(1);
        let (file, _) = super::held::make_held(&mut bed, ME, super::held::writes(Ino::ROOT, "f", 1));
        bed.step(Input::Gone(me.to));
        bed.tick(2 * PATIENCE);
        bed.send(OTHER, GetAttr { ino: file });
        bed.tick(0);
        assert_eq!((passed(&bed), held(&bed)), (1, 0));
        let mut me = Ear::new(&mut bed, ME);
        bed.wishes.insert(1, 1);
        me.ask(&mut bed);
        if full {
            bed.step(Input::LowSpace(true));
        } else {
            super::held::make_held(&mut bed, ME, super::held::writes(Ino::ROOT, "g", 2));
        }
        let others = held(&bed);
        assert_eq!(others, u64::from(!full));
        let to = bed.send(ME, Tell { keeps: Some(true), ..nothing(file) });
        let is_ok = bed.replies[&to].1.is_ok();
        assert_eq!((is_ok, bed.replies[&to].0.holds, held(&bed)), (true, None, others));
        bed.check();
    }
}

/// Goal: while who was passed over has the file open nobody else is lent what his late word changes, so it waits for nobody; nor
/// does the directory's lease cover the file for them.
#[test]
fn a_late_word_breaks_no_lease() {
    let (mut bed, _, mut other, dir, file) = passed_over();
    let seen = bed.call(OTHER, find(dir, "f")).unwrap().attr.unwrap();
    assert_eq!(seen.flags & Attr::COVERED, 0);
    assert!(bed.server.lease_counts().held > 0, "it has the directory");
    bed.wishes.insert(1, 1);
    bed.call(ME, tell(file, 0o640)).unwrap();
    assert!(other.hear(&mut bed).is_empty() && is_unbroken(&bed));
    bed.check();
}

/// Goal: with the close of who was passed over, the end of his session, the file and the term there is nothing that he may tell.
#[test]
fn what_ends_a_late_word() {
    for (end, expected) in [
        ("close", Status::NOT_HELD),
        ("session", Status::FENCED),
        ("file", errno(Errno::ESTALE)),
        ("term", Status::NOT_HELD),
    ] {
        let (mut bed, _, mut other, dir, file) = passed_over();
        bed.wishes.insert(1, 1);
        let _me = Ear::new(&mut bed, ME);
        match end {
            "close" => bed.close(ME, file, 2),
            "session" => {
                bed.fenced.push(1);
                let fences = bed.fences(&[2]);
                bed.step(Input::Fences(fences));
            }
            "file" => {
                let to = bed.send(ME, Unlink { parent: dir, name: name("f") });
                while other.obey(&mut bed) > 0 {}
                assert!(bed.replies.contains_key(&to));
                bed.close(ME, file, 2);
            }
            _ => {
                bed.restart(&[1, 2]);
                bed.report(OTHER);
                report(&mut bed, ME, &[file], &[file], true).unwrap();
                bed.end_hold();
            }
        }
        let to = bed.send(ME, tell(file, 0o640));
        while other.obey(&mut bed) > 0 {}
        assert_eq!(bed.reply::<AttrReply>(to).unwrap().err(), Some(expected), "{end}");
        bed.check();
    }
}

/// Goal: in a new term files of mounts that have not told what they hold, and are silent, are not waited for; their late word
/// does not count. Who is heard is waited for.
#[test]
fn a_new_term_passes_over_who_is_silent() {
    for heard in [false, true] {
        let (mut bed, _, _, dir, file) = holding();
        bed.restart(&[1, 2]);
        let begun = bed.now;
        bed.report(OTHER);
        if heard {
            bed.tick(PATIENCE / 2);
            bed.call(ME, GetAttr { ino: dir }).unwrap();
        }
        let ask = |bed: &mut Bed| bed.call(OTHER, GetAttr { ino: file }).err();
        bed.tick(begun.plus(PATIENCE).since(bed.now) - 100);
        assert_eq!(ask(&mut bed), Some(Status::GRACE));
        bed.tick(100);
        if heard {
            assert_eq!(ask(&mut bed), Some(Status::GRACE));
            bed.tick(PATIENCE / 2);
        }
        bed.auto_sync = false;
        let to = bed.send(OTHER, GetAttr { ino: file });
        let look = GetLock { ino: file, lock: super::held::lock(Some(LockKind::Read)) };
        let looks = bed.send(Who { slot: 1, ..OTHER }, look);
        bed.tick(0);
        assert!(
            !bed.replies.contains_key(&to) && !bed.replies.contains_key(&looks) && !is_flagged(&bed, file)
        );
        bed.auto_sync = true;
        bed.sync();
        assert!(bed.replies[&to].1.is_ok() && bed.replies.contains_key(&looks));
        assert_eq!((ask(&mut bed), passed(&bed)), (None, 0));
        report(&mut bed, ME, &[file], &[file], true).unwrap();
        assert_eq!((held(&bed), ask(&mut bed)), (0, None));
        assert_eq!(bed.call(ME, tell(file, 0o640)).err(), Some(Status::NOT_HELD));
        bed.check();
    }
}

/// Goal: nobody goes on in a new term before it is durable that the file is held no longer, also where the holder reports just
/// then: a power cut would bring back a hold that it may report.
#[test]
fn a_late_report_lets_nobody_go_on() {
    let (mut bed, _, _, _, file) = holding();
    bed.restart(&[1, 2]);
    bed.report(OTHER);
    bed.tick(PATIENCE);
    bed.auto_sync = false;
    let lane = |slot| Who { slot, ..OTHER };
    let mut waits = vec![bed.send(lane(1), GetAttr { ino: file })];
    bed.tick(0);
    assert!(!is_flagged(&bed, file));
    report(&mut bed, ME, &[file], &[file], true).unwrap();
    let look = GetLock { ino: file, lock: super::held::lock(Some(LockKind::Read)) };
    waits.extend([bed.send(lane(2), GetAttr { ino: file }), bed.send(lane(3), look)]);
    waits.push(bed.send(lane(4), set(file, 0o600)));
    bed.tick(0);
    assert!(waits.iter().all(|to| !bed.replies.contains_key(to)));
    bed.auto_sync = true;
    bed.sync();
    assert!(waits.iter().all(|to| bed.replies[to].1.is_ok()));
    assert_eq!((held(&bed), bed.call(ME, tell(file, 0o640)).err()), (0, Some(Status::NOT_HELD)));
    bed.check();
}

/// Goal: who is silent in a new term, and reports before the row says that nobody holds the file, holds it.
#[test]
fn a_report_at_the_last_moment() {
    for reports in ["holds", "begins"] {
        let (mut bed, _, _, _, file) = holding();
        bed.restart(&[1, 2]);
        bed.report(OTHER);
        bed.tick(PATIENCE);
        bed.server.hold_chores(true);
        let to = bed.send(OTHER, GetAttr { ino: file });
        bed.tick(0);
        assert!(is_flagged(&bed, file) && !bed.replies.contains_key(&to), "no room for rows");
        let holds: &[Ino] = if reports == "holds" { &[file] } else { &[] };
        report(&mut bed, ME, &[file], holds, reports == "holds").unwrap();
        bed.server.hold_chores(false);
        bed.tick(0);
        if reports == "holds" {
            assert!(held(&bed) == 1 && !bed.replies.contains_key(&to));
            let mut me = Ear::new(&mut bed, ME);
            assert_eq!(asked(&mut bed, &mut me), [file], "it is asked");
        } else {
            assert_eq!(bed.reply::<AttrReply>(to).unwrap().err(), Some(Status::GRACE));
        }
        bed.check();
    }
}

/// Goal: where no leases are given nothing is held, nor is anybody counted as silent.
#[test]
fn without_leases_nobody_is_silent() {
    let mut bed = Bed::with(Config { lease_ms: 0, ..Config::default() }, 1);
    let _me = Ear::new(&mut bed, ME);
    bed.holding.insert(1);
    let (file, most) = super::held::make_held(&mut bed, ME, super::held::writes(Ino::ROOT, "f", 1));
    assert_eq!((most, is_flagged(&bed, file), held(&bed)), (None, false, 0));
    let (mut bed, _, _, _, file) = holding();
    bed.config.lease_ms = 0;
    bed.restart(&[1, 2]);
    bed.report(OTHER);
    report(&mut bed, ME, &[file], &[file], true).unwrap();
    let to = bed.send(OTHER, GetAttr { ino: file });
    bed.tick(2 * PATIENCE);
    assert!(held(&bed) == 1 && !bed.replies.contains_key(&to));
    bed.check();
}

/// Goal: the canaries do what they are to do.
#[test]
fn canaries() {
    let with = |config: Config| {
        let mut bed = Bed::with(config, 1);
        (bed.forgets, bed.strides) = (false, true);
        let me = Ear::new(&mut bed, ME);
        bed.holding.insert(1);
        let (file, _) = super::held::make_held(&mut bed, ME, super::held::writes(Ino::ROOT, "f", 1));
        assert_eq!(held(&bed), 1);
        (bed, me, file)
    };
    let (mut bed, _me, file) = with(Config { canary_passes_early: true, ..Config::default() });
    let to = bed.send(OTHER, GetAttr { ino: file });
    assert!(bed.replies.contains_key(&to) && passed(&bed) == 1);
    let (mut bed, me, file) = with(Config { canary_tells_late: true, ..Config::default() });
    bed.step(Input::Gone(me.to));
    bed.tick(PATIENCE);
    let to = bed.send(OTHER, set(file, 0o600));
    bed.tick(0);
    assert!(bed.replies[&to].1.is_ok());
    assert_eq!(bed.call(ME, tell(file, 0o640)).unwrap().attr.mode, 0o640);
}

/// Goal: with the end of a term its holders learn by the next answer of the group that this does not renew what they believe any
/// more, though they had no leases of it: another server may pass them over.
#[test]
fn who_holds_is_told_that_a_term_ended() {
    let (mut bed, _me, _other, dir, file) = holding();
    bed.server.host.leases.end_all(ClientId(ME.client));
    let leases = &bed.server.host.leases;
    assert!(
        ![Ino::ROOT, dir, file].iter().any(|ino| leases.has(ClientId(ME.client), *ino)) && held(&bed) == 1
    );
    let ended = |bed: &mut Bed, who| {
        let to = bed.send(who, GetAttr { ino: file });
        bed.replies.get(&to).and_then(|(stamp, _)| stamp.renews).map(|time| time.ended)
    };
    assert_eq!(ended(&mut bed, ME), Some(0));
    let mut restored = skep_wire::mgmt::MapReply { version: MapVersion(7), ..map(1, 5) };
    restored.shards[0].era = 4;
    bed.step(Input::Map { own: OWN, map: restored });
    assert_eq!(ended(&mut bed, ME), Some(1));
}
