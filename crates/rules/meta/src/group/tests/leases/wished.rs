//! Holds that are asked for, of files that were there before.

use super::held::{asked, held, is_flagged, is_unbroken, make_held, nothing, report, tell, writes};
use super::*;
use crate::limit::Limits;
use skep_wire::Status;

/// A bed with two mounts, and a file in chunks that the first has open for writing, alone.
pub(super) fn written() -> (Bed, Ear, Ear, Ino) {
    written_with(Config::default())
}

fn written_with(config: Config) -> (Bed, Ear, Ear, Ino) {
    let mut bed = Bed::with(config, 1);
    bed.forgets = false;
    let (me, mut other) = (Ear::new(&mut bed, ME), Ear::new(&mut bed, OTHER));
    bed.strides = true;
    bed.send(OTHER, find(Ino::ROOT, "none"));
    let (file, _) = bed.grown("f", 9_000);
    while other.obey(&mut bed) > 0 {}
    opens(&mut bed, &mut other, ME, file, OpenMode::Write, 5);
    (bed, me, other, file)
}

fn opens(bed: &mut Bed, ear: &mut Ear, who: Who, ino: Ino, mode: OpenMode, open_seq: u64) {
    let open = Open { ino, mode, truncate: false, shared: false, kill_suidgid: false, open_seq };
    let to = bed.send(who, open);
    while ear.obey(bed) > 0 {}
    assert!(bed.replies[&to].1.is_ok());
}

pub(super) fn wish(ino: Ino, hold: u64) -> Tell {
    Tell { wishes: Some(true), hold: Some(hold), ..nothing(ino) }
}

/// Of a hold that was asked for.
pub(super) fn of(hold: u64, message: Tell) -> Tell {
    Tell { hold: Some(hold), ..message }
}

/// Sends it; is it answered so that the mount holds the file?
pub(super) fn gives(bed: &mut Bed, message: Tell) -> bool {
    let to = bed.send(ME, message);
    bed.reply::<AttrReply>(to).expect("no answer").unwrap();
    bed.replies[&to].0.holds.is_some()
}

/// Goal: who has a file open for writing alone, and asks for it, holds it as if he had made it: flag and answer, which waits for
/// the disk; who looks then waits, and has him asked; his words count, and end it.
#[test]
fn a_file_that_was_there_before_is_held() {
    let (mut bed, mut me, mut other, file) = written();
    let (records, before) = (bed.log.len(), bed.attr(file).unwrap());
    bed.auto_sync = false;
    let to = bed.send(ME, wish(file, 7));
    assert!(!bed.replies.contains_key(&to) && is_flagged(&bed, file), "not before it is durable");
    bed.sync();
    bed.auto_sync = true;
    let attr = bed.reply::<AttrReply>(to).unwrap().unwrap().attr;
    assert_eq!((bed.replies[&to].0.holds, held(&bed), bed.log.len()), (Some(0), 1, records + 1));
    assert!(attr == before && other.hear(&mut bed).is_empty(), "it changes nothing, and disturbs nobody");
    let to = bed.send(OTHER, GetAttr { ino: file });
    assert_eq!(asked(&mut bed, &mut me), [file]);
    assert!(!bed.replies.contains_key(&to));
    assert!(!gives(&mut bed, of(7, tell(file, 0o640))));
    assert_eq!(bed.reply::<AttrReply>(to).unwrap().unwrap().attr.mode, 0o640);
    assert_eq!((held(&bed), is_flagged(&bed, file)), (0, false));
    // Nobody waits any more, so it may be asked for again.
    assert!(gives(&mut bed, wish(file, 9)) && is_unbroken(&bed));
    bed.check();
}

/// Goal: it goes on with what is told, and ends with the close; a restart reads that it may be held, and its holder reports it.
#[test]
fn it_goes_on_ends_and_is_reported() {
    for closes in [true, false] {
        let (mut bed, _me, _other, file) = written();
        assert!(gives(&mut bed, wish(file, 7)));
        let keeps = Tell { keeps: Some(true), ..tell(file, 0o640) };
        assert!(gives(&mut bed, of(7, keeps)));
        if closes {
            bed.close(ME, file, 6);
            assert!(held(&bed) == 0 && bed.call(OTHER, GetAttr { ino: file }).is_ok());
            continue;
        }
        bed.restart(&[1, 2]);
        bed.report(OTHER);
        report(&mut bed, ME, &[file], &[file], true).unwrap();
        assert_eq!((held(&bed), is_flagged(&bed, file)), (1, true));
        bed.wishes.remove(&1);
        assert!(!gives(&mut bed, of(7, tell(file, 0o604))) && held(&bed) == 0);
        bed.check();
    }
}

/// A bed of this case, and the file that is wished for; who listens does so as long as it lives.
fn case(case: &str) -> (Bed, [Ear; 2], Ino) {
    let (mut bed, mut me, mut other, mut file) = written();
    let end = |ino| ReserveEnd { ino, len: 9, number: 1, at_least: 0, looked: Term(1), cuts: None };
    match case {
        "read by another" => opens(&mut bed, &mut other, OTHER, file, OpenMode::Read, 5),
        "written by another" => opens(&mut bed, &mut other, OTHER, file, OpenMode::Write, 5),
        "read by another, and closed" | "written by another, and closed" => {
            let mode = if case.starts_with("read") { OpenMode::Read } else { OpenMode::Write };
            opens(&mut bed, &mut other, OTHER, file, mode, 5);
            bed.close(OTHER, file, 6);
        }
        "inline" => {
            file = bed.create(ME, Ino::ROOT, "inline");
            opens(&mut bed, &mut other, ME, file, OpenMode::Write, 8);
        }
        "not open" => bed.close(ME, file, 6),
        "open for reading" => {
            bed.close(ME, file, 6);
            opens(&mut bed, &mut other, ME, file, OpenMode::Read, 8);
        }
        "no leases" => _ = bed.wishes.remove(&1),
        "deaf" => {
            bed.step(Input::Gone(me.to));
            bed.tick(PATIENCE / 2);
        }
        "asked before" => {
            assert!(gives(&mut bed, wish(file, 6)));
            bed.step(Input::Gone(me.to));
            bed.send(OTHER, GetAttr { ino: file });
            assert!(!gives(&mut bed, of(6, nothing(file))));
        }
        "appended to by another" => {
            opens(&mut bed, &mut other, OTHER, file, OpenMode::Write, 5);
            let term = bed.replies.values().last().unwrap().0.term;
            bed.call(OTHER, ReserveEnd { looked: term, ..end(file) }).unwrap().offset.unwrap();
            bed.close(OTHER, file, 6);
        }
        "appended to" => _ = bed.call(ME, end(file)).unwrap().offset.unwrap(),
        "a writer is gone" => {
            bed.down.extend((0..9).map(TargetId));
            opens(&mut bed, &mut other, OTHER, file, OpenMode::Write, 5);
            bed.courier_works = false;
            bed.fenced.push(2);
            let fences = bed.fences(&[1]);
            bed.step(Input::Fences(fences));
        }
        "passed over before" => {
            assert!(gives(&mut bed, wish(file, 6)));
            bed.step(Input::Gone(me.to));
            let to = bed.send(OTHER, GetAttr { ino: file });
            bed.tick(PATIENCE / 2);
            bed.tick(PATIENCE / 2);
            assert!(bed.replies.contains_key(&to));
            me = Ear::new(&mut bed, ME);
            bed.wishes.insert(1, 1);
            me.ask(&mut bed);
        }
        "full" => {
            // Nothing else is different.
            let limits = Limits { files_held: 0, ..Limits::default() };
            (bed, me, other, file) = written_with(Config { limits, ..Config::default() });
        }
        "grace" => {
            bed.restart(&[1, 2]);
            report(&mut bed, ME, &[file], &[], true).unwrap();
        }
        _ => {}
    }
    (bed, [me, other], file)
}

/// Goal: it is given nowhere but where nobody else may know the file, and the asker hears; refused it is answered, and changes
/// nothing. One that tells something is no wish.
#[test]
fn where_it_is_not_given() {
    let cases = [
        ("alone", true),
        ("read by another", false),
        ("written by another", false),
        ("read by another, and closed", true),
        ("written by another, and closed", true),
        ("inline", false),
        ("not open", false),
        ("open for reading", false),
        ("no leases", false),
        ("deaf", false),
        ("asked before", false),
        ("appended to by another", false),
        ("appended to", true),
        ("a writer is gone", false),
        ("passed over before", true),
        ("full", false),
        ("grace", false),
    ];
    for (name, expected) in cases {
        let (mut bed, _ears, file) = case(name);
        let (before, records, holds) = (bed.inode(file).unwrap(), bed.log.len(), held(&bed));
        assert_eq!(gives(&mut bed, wish(file, 7)), expected, "{name}");
        if !expected {
            assert!(bed.inode(file).unwrap() == before && bed.log.len() == records, "{name}");
            assert_eq!(held(&bed), holds, "{name}");
        }
        bed.check();
    }
    let (mut bed, _me, _other, file) = written();
    let told = bed.call(ME, Tell { wishes: Some(true), hold: Some(7), ..tell(file, 0o600) });
    assert_eq!((told.err(), held(&bed)), (Some(Status::NOT_HELD), 0));
}

/// Goal: words about an earlier hold that come late neither end nor tell one that was asked for since, whatever their lane; a
/// wish that comes twice is answered as the first time or not at all; who asks once more, for the answer was lost, has it.
#[test]
fn words_of_earlier_holds_come_late() {
    let (mut bed, mut me, mut other, file) = written();
    let lanes: Vec<Who> = (1..9).map(|slot| Who { slot, ..ME }).collect();
    assert!(gives(&mut bed, wish(file, 7)));
    let again = bed.resend(ME, wish(file, 7));
    assert_eq!((bed.replies[&again].0.holds, held(&bed)), (None, 1), "a repeated answer gives nothing");
    assert!(gives(&mut bed, wish(file, 8)), "it holds nothing, as far as it knows");
    let records = bed.log.len();
    for (lane, hold) in lanes.iter().zip([None, Some(7)]) {
        let late = |message: Tell| Tell { hold, ..message };
        let refused = bed.call(*lane, late(tell(file, 0o600))).err();
        assert_eq!((refused, held(&bed)), (Some(Status::NOT_HELD), 1), "{hold:?}");
        let keeps = Tell { keeps: Some(true), ..nothing(file) };
        for message in [nothing(file), keeps, Tell { wishes: Some(true), ..nothing(file) }] {
            let to = bed.send(*lane, late(message));
            assert!(bed.replies[&to].1.is_ok() && bed.replies[&to].0.holds.is_none());
            assert_eq!((held(&bed), bed.log.len(), is_flagged(&bed, file)), (1, records, true));
        }
    }
    // Who knows of no hold says so with a new number, which ends whichever there is.
    let to = bed.send(OTHER, GetAttr { ino: file });
    assert_eq!(asked(&mut bed, &mut me), [file]);
    // A wish from before the question is none.
    assert!(!gives(&mut bed, wish(file, 9)) && bed.replies[&to].1.is_ok());
    assert!(gives(&mut bed, wish(file, 10)) && !gives(&mut bed, of(11, nothing(file))));
    assert_eq!((held(&bed), is_flagged(&bed, file)), (0, false));
    // The hold of a create has no number: any word of its mount is about it.
    bed.holding.insert(1);
    let dir = bed.mkdir(Ino::ROOT, "d");
    while other.obey(&mut bed) > 0 {}
    let (made, most) = make_held(&mut bed, ME, writes(dir, "g", 12));
    assert!(most.is_some() && !gives(&mut bed, of(13, nothing(made))) && held(&bed) == 0);
    bed.check();
}

/// Goal: a word about an earlier hold that comes when the newest one was passed over is not taken for one about that, which is
/// told after it.
#[test]
fn words_of_earlier_holds_come_behind_one_passed_over() {
    let (mut bed, me, _other, file) = written();
    assert!(gives(&mut bed, wish(file, 6)) && gives(&mut bed, wish(file, 8)));
    bed.step(Input::Gone(me.to));
    let to = bed.send(OTHER, GetAttr { ino: file });
    (0..2).for_each(|_| bed.tick(PATIENCE / 2));
    assert!(bed.replies.contains_key(&to) && held(&bed) == 0);
    let late = Who { slot: 2, ..ME };
    let keeps = Tell { keeps: Some(true), ..nothing(file) };
    assert!(bed.call(late, of(6, keeps)).is_ok() && held(&bed) == 0);
    assert_eq!(bed.call(late, of(6, tell(file, 0o600))).err(), Some(Status::NOT_HELD));
    assert_eq!(bed.call(ME, of(8, tell(file, 0o640))).unwrap().attr.mode, 0o640);
    bed.check();
}

/// Goal: no lease on a directory covers a file that is held so: one that was there before its mount opened it was taken back,
/// and one that came since tells nobody of its attributes.
#[test]
fn nobody_knows_it_by_a_lease() {
    let (mut bed, _me, mut other, file) = written();
    bed.close(ME, file, 6);
    bed.call(OTHER, find(Ino::ROOT, "f")).unwrap();
    let open = Open {
        ino: file,
        mode: OpenMode::Write,
        truncate: false,
        shared: false,
        kill_suidgid: false,
        open_seq: 7,
    };
    let to = bed.send(ME, open);
    assert!(!bed.replies.contains_key(&to), "what may cover it is taken back first");
    while other.obey(&mut bed) > 0 {}
    let found = bed.call(OTHER, find(Ino::ROOT, "f")).unwrap().attr.unwrap();
    assert_eq!(found.flags & Attr::COVERED, 0);
    assert!(gives(&mut bed, wish(file, 8)) && other.hear(&mut bed).is_empty());
    let to = bed.send(OTHER, find(Ino::ROOT, "f"));
    assert!(!bed.replies.contains_key(&to));
    bed.check();
}

/// The canary *holds-beside-others* is what it says.
#[test]
fn the_fault_is_one() {
    let (mut bed, _me, mut other, file) =
        written_with(Config { canary_holds_beside: true, ..Config::default() });
    opens(&mut bed, &mut other, OTHER, file, OpenMode::Read, 5);
    assert!(gives(&mut bed, wish(file, 7)));
}
