//! Holds that go on behind what is told.

use super::held::{asked, held, holding, is_flagged, is_unbroken, make_held, nothing, report, tell, writes};
use super::*;
use skep_types::codec::Bytes;
use skep_wire::Status;

pub(super) fn keeping(message: Tell) -> Tell {
    Tell { keeps: Some(true), ..message }
}

/// Sends what is told; its attributes, and how much of the content may stay with the mount.
pub(super) fn told(bed: &mut Bed, message: Tell) -> (Attr, Option<u32>) {
    let to = bed.send(ME, message);
    let attr = bed.reply::<AttrReply>(to).expect("no answer").unwrap().attr;
    (attr, bed.replies[&to].0.holds)
}

/// Goal: who tells and wishes so goes on holding the file as before: others wait, his row says that it may be held, and what
/// comes later is told by him; what changes nothing writes nothing; without the wish the hold ends.
#[test]
fn a_hold_goes_on_behind_what_is_told() {
    let (mut bed, mut me, _, dir, file) = holding();
    for mode in [0o640, 0o604] {
        let before = bed.log.len();
        let (attr, most) = told(&mut bed, keeping(tell(file, mode)));
        assert_eq!((attr.mode, most), (mode, Some(8_192)));
        assert_eq!((held(&bed), is_flagged(&bed, file), bed.log.len()), (1, true, before + 1));
        let (again, most) = told(&mut bed, keeping(nothing(file)));
        assert_eq!((again == attr, most, bed.log.len()), (true, Some(8_192), before + 1));
    }
    let content = Some(Content { data: Bytes(vec![7; 100]), mtime: Timestamp::default() });
    assert_eq!(told(&mut bed, keeping(Tell { content, ..nothing(file) })).1, Some(8_192));
    assert!(asked(&mut bed, &mut me).is_empty());
    let to = bed.send(OTHER, find(dir, "f"));
    assert_eq!(asked(&mut bed, &mut me), [file]);
    assert_eq!(told(&mut bed, tell(file, 0o600)).1, None);
    let seen = bed.reply::<EntryReply>(to).unwrap().unwrap().attr.unwrap();
    assert_eq!((seen.mode, seen.size, held(&bed), is_flagged(&bed, file)), (0o600, 100, 0, false));
    let (grown, _) = bed.grown("g", 9);
    bed.server.makes_held(grown, ClientId(1));
    assert_eq!(told(&mut bed, keeping(nothing(grown))).1, Some(0), "its content is in chunks");
    assert!(is_unbroken(&bed));
    bed.check();
}

/// A request that waits for the end of a hold.
pub(super) fn change(ino: Ino) -> ChangeAttr {
    ChangeAttr { ino, set: SetAttr { uid: Some(9), ..SetAttr::default() } }
}

/// Goal: a hold ends in spite of the wish where somebody waits for that, where the holder was asked and has not heard it, where it
/// does not hear, and where its answer could not say that it goes on; and nobody begins to hold by it. A word that tells nothing
/// only asks whether it is held still: it ends nothing, and is answered.
#[test]
fn where_a_hold_does_not_go_on() {
    let cases = ["awaited", "asked", "asked and heard", "deaf", "lapsed", "no leases", "not held"];
    for (case, asks) in cases.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let (mut bed, mut me, _, dir, file) = holding();
        match case {
            "awaited" => {
                bed.send(OTHER, change(file));
                assert_eq!(asked(&mut bed, &mut me), [file]);
            }
            "asked" => {
                bed.step(Input::Gone(me.to));
                let to = bed.send(OTHER, change(file));
                bed.step(Input::Gone(to));
            }
            "asked and heard" => {
                let to = bed.send(OTHER, change(file));
                bed.step(Input::Gone(to));
                assert_eq!(asked(&mut bed, &mut me), [file]);
            }
            "deaf" => {
                bed.send(ME, find(dir, "old"));
                bed.step(Input::Gone(me.to));
                bed.tick(PATIENCE / 2);
            }
            // It has not said so.
            "lapsed" => {
                bed.send(ME, find(dir, "old"));
                bed.step(Input::Gone(me.to));
                bed.tick(PATIENCE);
                me.ask(&mut bed);
            }
            "no leases" => _ = bed.wishes.remove(&1),
            _ => bed.close(ME, file, 2),
        }
        let goes_on = case == "asked and heard" || asks && case != "not held";
        let word = if asks { nothing(file) } else { tell(file, 0o640) };
        let (before, records) = (bed.inode(file).unwrap(), bed.log.len());
        let to = bed.send(ME, keeping(word));
        assert_eq!(bed.replies[&to].1.is_ok(), asks || case != "not held", "{case}");
        let most = bed.replies[&to].0.holds;
        assert_eq!((most.is_some(), held(&bed)), (goes_on, u64::from(goes_on)), "{case} {asks}");
        assert!(!asks || bed.inode(file).unwrap() == before && bed.log.len() == records, "{case}");
        let to = bed.send(Who { slot: 1, ..OTHER }, GetAttr { ino: file });
        assert_eq!(bed.replies.contains_key(&to), !goes_on, "{case} {asks}");
        if goes_on {
            me.ask(&mut bed);
            let expected = if case == "awaited" { vec![] } else { vec![file] };
            assert_eq!(asked(&mut bed, &mut me), expected, "once for all who wait: {case} {asks}");
            assert_eq!(told(&mut bed, tell(file, 0o604)).1, None);
            assert_eq!(bed.reply::<AttrReply>(to).unwrap().unwrap().attr.mode, 0o604, "{case} {asks}");
        }
        bed.check();
    }
}

/// Goal: an answer that is repeated does not say that the hold goes on, and the mount that believes so ends it by what it tells
/// next; told once more behind that it is refused.
#[test]
fn repeated_words() {
    let (mut bed, mut me, _, _, file) = holding();
    let word = keeping(tell(file, 0o640));
    assert_eq!(told(&mut bed, word.clone()).1, Some(8_192));
    let records = bed.log.len();
    let again = bed.resend(ME, word.clone());
    assert_eq!((bed.replies[&again].1.is_ok(), bed.replies[&again].0.holds), (true, None));
    assert_eq!((held(&bed), bed.log.len()), (1, records));
    let to = bed.send(OTHER, GetAttr { ino: file });
    assert_eq!(asked(&mut bed, &mut me), [file]);
    assert_eq!(told(&mut bed, nothing(file)).1, None);
    assert!(bed.replies[&to].1.is_ok() && !is_flagged(&bed, file));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let to = bed.send(OTHER, ChangeAttr { ino: file, set });
    while me.obey(&mut bed) > 0 {}
    assert!(bed.replies[&to].1.is_ok());
    assert_eq!(bed.call(Who { slot: 5, ..ME }, word).err(), Some(Status::NOT_HELD));
    assert_eq!(told(&mut bed, keeping(nothing(file))).1, None, "nothing is nothing");
    assert_eq!(bed.attr(file).unwrap().mode, 0o600);
    bed.check();
}

/// Goal: a restart reads the same rows, whether a hold went on or ended, and its holder reports it; a power cut that takes the
/// word leaves what was told before.
#[test]
fn a_hold_that_went_on_is_reported() {
    for lost in [0, 1] {
        let (mut bed, _, _, dir, file) = holding();
        let (ended, _) = make_held(&mut bed, ME, writes(dir, "g", 2));
        told(&mut bed, keeping(tell(ended, 0o640)));
        told(&mut bed, tell(ended, 0o604));
        told(&mut bed, keeping(tell(file, 0o640)));
        told(&mut bed, keeping(tell(file, 0o604)));
        let rows = |bed: &Bed| [file, ended].map(|ino| bed.inode(ino).unwrap());
        let before = rows(&bed);
        let kept = bed.log.len() as u64 - lost;
        bed.crash(0, kept, &[1, 2]);
        assert_eq!(rows(&bed) == before, lost == 0);
        assert_eq!([file, ended].map(|ino| is_flagged(&bed, ino)), [true, false]);
        bed.report(OTHER);
        report(&mut bed, ME, &[file, ended], &[file, ended], true).unwrap();
        assert_eq!(held(&bed), 1);
        let mut me = Ear::new(&mut bed, ME);
        let to = bed.send(OTHER, GetAttr { ino: file });
        assert_eq!(asked(&mut bed, &mut me), [file]);
        bed.step(Input::Gone(to));
        asked(&mut bed, &mut me);
        bed.tick(PATIENCE / 2);
        bed.call(ME, GetAttr { ino: dir }).unwrap();
        bed.tick(PATIENCE / 2);
        asked(&mut bed, &mut me);
        assert_eq!(told(&mut bed, keeping(tell(file, 0o600))).1, Some(8_192), "{lost}");
        assert!(is_flagged(&bed, file) && held(&bed) == 1);
        bed.check();
    }
}
