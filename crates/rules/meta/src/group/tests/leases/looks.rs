//! Looks at files that their mounts hold, and go on holding.

use super::goes_on::{change, keeping, told};
use super::held::{held, holding, is_flagged, nothing, report, tell};
use super::wished::{gives, of, wish, written};
use super::*;
use skep_types::codec::Bytes;
use skep_wire::Status;

/// Number of a question of this shard's first term.
fn first_term(number: u64) -> u64 {
    (1 << 32) + number
}

/// The questions in what a mount hears: which file, and for which looks.
fn questions(bed: &mut Bed, ear: &mut Ear) -> Vec<(Ino, Option<u64>)> {
    let mut asked = vec![];
    loop {
        let events = ear.hear_all(bed);
        if events.is_empty() {
            return asked;
        }
        asked.extend(events.into_iter().filter_map(|event| match event {
            Event::Question(Question { ino, looks, .. }) => Some((ino, looks)),
            _ => None,
        }));
    }
}

fn answering(round: u64, message: Tell) -> Tell {
    Tell { answers: Some(round), ..keeping(message) }
}

fn lane(slot: u32) -> Who {
    Who { slot, ..OTHER }
}

fn shown(bed: &Bed) -> u64 {
    bed.server.gauges().iter().find(|(name, _)| *name == "held_looks").unwrap().1
}

/// Goal: whoever only looks is answered by a word that was begun behind its question, and the hold goes on; who comes while that
/// is out waits for the next one, all of them together; a word that was on its way before answers nobody.
#[test]
fn a_look_does_not_end_a_hold() {
    let (mut bed, mut me, _, dir, file) = holding();
    let first = bed.send(lane(1), GetAttr { ino: file });
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(1)))]);
    let more = [bed.send(lane(2), find(dir, "f")), bed.send(lane(3), GetAttr { ino: file })];
    assert!(questions(&mut bed, &mut me).is_empty());
    // It was told before anybody looked.
    assert_eq!(told(&mut bed, keeping(tell(file, 0o640))).1, Some(8_192));
    assert!(!bed.replies.contains_key(&first));
    let word = answering(first_term(1), tell(file, 0o604));
    assert_eq!(told(&mut bed, word.clone()).1, Some(8_192));
    assert_eq!(bed.reply::<AttrReply>(first).expect("answered").unwrap().attr.mode, 0o604);
    assert!(more.iter().all(|to| !bed.replies.contains_key(to)), "they came behind the question");
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(2)))]);
    assert_eq!(told(&mut bed, word).1, Some(8_192));
    assert!(more.iter().all(|to| !bed.replies.contains_key(to)), "a word of before answers nobody");
    // There is nothing to tell: that is an answer as well, and writes nothing.
    let records = bed.log.len();
    assert_eq!(told(&mut bed, answering(first_term(2), nothing(file))).1, Some(8_192));
    assert!(more.iter().all(|to| bed.replies[to].1.is_ok()) && bed.log.len() == records);
    assert_eq!((held(&bed), is_flagged(&bed, file), shown(&bed)), (1, true, 3));
    assert!(questions(&mut bed, &mut me).is_empty());
    // It was seen once, and no more.
    let again = bed.send(lane(1), GetAttr { ino: file });
    assert!(!bed.replies.contains_key(&again));
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(3)))]);
    bed.check();
}

/// Goal: a word may come before its mount has confirmed that it heard the question; who comes behind that has it asked anew, and is
/// in nobody's way.
#[test]
fn a_word_may_overtake_the_confirmation() {
    let (mut bed, mut me, _, _, file) = holding();
    for number in 1..4 {
        let to = bed.send(lane(1), GetAttr { ino: file });
        // Nobody confirms: it has not asked for events since.
        assert_eq!(told(&mut bed, answering(first_term(number), nothing(file))).1, Some(8_192));
        assert!(bed.replies[&to].1.is_ok(), "{number}");
    }
    me.ask(&mut bed);
    assert!(questions(&mut bed, &mut me).iter().all(|question| *question == (file, Some(first_term(3)))));
    assert_eq!(held(&bed), 1);
    bed.check();
}

/// Goal: what is shown of a file that is held in chunks is what its holder told, and nobody is sent to its targets.
#[test]
fn targets_are_not_asked() {
    let (mut bed, mut me, _other, file) = written();
    assert!(gives(&mut bed, wish(file, 7)));
    let to = bed.send(OTHER, GetAttr { ino: file });
    let [(_, Some(round))] = questions(&mut bed, &mut me)[..] else { panic!("not asked") };
    assert!(gives(&mut bed, of(7, answering(round, tell(file, 0o600)))));
    let reply = bed.reply::<AttrReply>(to).unwrap().unwrap();
    assert_eq!((reply.attr.mode, reply.live), (0o600, None));
    let to = bed.send(OTHER, GetAttr { ino: file });
    questions(&mut bed, &mut me);
    assert!(!gives(&mut bed, of(7, tell(file, 0o604))));
    let reply = bed.reply::<AttrReply>(to).unwrap().unwrap();
    assert!(reply.attr.mode == 0o604 && reply.live.is_some(), "it is held no longer, and written to");
    bed.check();
}

/// Goal: a hold ends beside looks where its end is waited for, be it that this was asked before or behind them; and all are
/// answered then. So it does with a word of a mount that knows of no such looks.
#[test]
fn the_end_answers_all() {
    for case in ["end first", "look first", "an older mount", "close"] {
        let (mut bed, mut me, _, _, file) = holding();
        let mut look = None;
        if case != "end first" {
            look = Some(bed.send(lane(1), GetAttr { ino: file }));
            assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(1)))]);
            bed.send(lane(2), GetAttr { ino: file });
        }
        let end = matches!(case, "end first" | "look first").then(|| bed.send(lane(3), change(file)));
        if end.is_some() {
            assert_eq!(questions(&mut bed, &mut me), [(file, None)], "{case}");
        }
        let look = look.unwrap_or_else(|| bed.send(lane(1), GetAttr { ino: file }));
        match case {
            "an older mount" => assert_eq!(told(&mut bed, tell(file, 0o640)).1, None),
            "close" => bed.close(ME, file, 2),
            _ => assert_eq!(told(&mut bed, answering(first_term(1), tell(file, 0o640))).1, None, "{case}"),
        }
        assert!(bed.replies.contains_key(&look), "{case}");
        while me.obey(&mut bed) > 0 {}
        assert!(end.is_none_or(|to| bed.replies.contains_key(&to)), "{case}");
        assert_eq!(held(&bed), 0, "{case}");
        bed.check();
    }
}

/// Goal: who looks at a file whose holder is silent goes on without him; and a question that nobody waits for any more is no
/// reason to have others wait for its answer.
#[test]
fn nobody_waits_for_ever() {
    let (mut bed, mut me, _, _, file) = holding();
    let to = bed.send(lane(1), GetAttr { ino: file });
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(1)))]);
    bed.step(Input::Gone(to));
    let to = bed.send(lane(1), GetAttr { ino: file });
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(2)))]);
    assert_eq!(told(&mut bed, answering(first_term(1), nothing(file))).1, Some(8_192));
    assert!(!bed.replies.contains_key(&to));
    bed.step(Input::Gone(me.to));
    bed.tick(2 * PATIENCE);
    assert!(bed.replies[&to].1.is_ok() && held(&bed) == 0);
    assert_eq!(bed.call(ME, answering(first_term(2), tell(file, 0o600))).err(), None, "told late");
    bed.check();
    let (mut bed, mut me, _, _, file) = holding();
    let to = bed.send(lane(1), GetAttr { ino: file });
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(1)))]);
    bed.strides = false;
    bed.tick(limit::WAIT_DEADLINE_MS);
    assert_eq!(bed.reply::<AttrReply>(to).unwrap().err(), Some(Status::BUSY));
    bed.send(lane(1), GetAttr { ino: file });
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(2)))]);
    bed.check();
}

/// Goal: a mount is not given a file that somebody waits to look at, though it is held as far as the shard knows.
#[test]
fn what_is_looked_at_is_not_given() {
    let (mut bed, mut me, _other, file) = written();
    assert!(gives(&mut bed, wish(file, 7)));
    bed.send(OTHER, GetAttr { ino: file });
    questions(&mut bed, &mut me);
    assert!(!gives(&mut bed, wish(file, 8)));
    bed.check();
}

/// Goal: a word that was begun before a restart, and is sent again behind it, answers nobody who came since.
#[test]
fn words_of_earlier_terms_answer_nobody() {
    let (mut bed, mut me, _, dir, file) = holding();
    bed.send(lane(1), GetAttr { ino: file });
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(1)))]);
    bed.restart(&[1, 2]);
    bed.report(OTHER);
    report(&mut bed, ME, &[file], &[file], true).unwrap();
    let mut me = Ear::new(&mut bed, ME);
    for _ in 0..3 {
        bed.call(ME, GetAttr { ino: dir }).unwrap();
        bed.tick(PATIENCE / 2);
        questions(&mut bed, &mut me);
    }
    let to = bed.send(lane(1), GetAttr { ino: file });
    let asked = questions(&mut bed, &mut me);
    let [(_, Some(number))] = asked[..] else { panic!("{asked:?}") };
    told(&mut bed, answering(first_term(1), tell(file, 0o640)));
    assert!(!bed.replies.contains_key(&to));
    told(&mut bed, answering(number, tell(file, 0o604)));
    assert_eq!(bed.reply::<AttrReply>(to).expect("answered").unwrap().attr.mode, 0o604);
    bed.check();
}

/// Goal: whoever does without attributes of now is shown what was told so far, at once, and nobody is asked for more; who is
/// shown attributes of now is not, nor anybody while nothing was told: its maker may have given it to somebody else.
#[test]
fn names_are_found_as_they_were_told() {
    let (mut bed, mut me, _, dir, file) = holding();
    let as_told = Some(true);
    let early = bed.send(lane(2), Lookup { as_told, ..find(dir, "f") });
    let list = List { dir, after: 0, max: 9, with_attr: true, as_told };
    let attr_of = |entries: Vec<DirEntry>| entries.into_iter().find(|entry| entry.ino == file)?.attr;
    assert_eq!(attr_of(bed.call(OTHER, list.clone()).unwrap().entries), None);
    assert!(!bed.replies.contains_key(&early));
    let number = first_term(1);
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(number))]);
    told(&mut bed, answering(number, tell(file, 0o600)));
    assert_eq!(bed.reply::<EntryReply>(early).expect("answered").unwrap().attr.unwrap().mode, 0o600);
    assert_eq!(told(&mut bed, keeping(tell(file, 0o640))).1, Some(8_192));
    let found = bed.call(OTHER, Lookup { as_told, ..find(dir, "f") }).unwrap();
    assert_eq!(found.attr.as_ref().map(|attr| attr.mode), Some(0o640));
    assert_eq!(found.attr.map(|attr| attr.flags & Attr::COVERED), Some(0), "it may be another by now");
    let listed = attr_of(bed.call(OTHER, list).unwrap().entries).unwrap();
    assert_eq!((listed.mode, listed.flags & Attr::AS_TOLD), (0o640, Attr::AS_TOLD));
    assert!(questions(&mut bed, &mut me).is_empty());
    let to = bed.send(lane(1), find(dir, "f"));
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(2)))]);
    assert_eq!(held(&bed), 1);
    bed.check();
}

/// Goal: extended attributes are shown at once, for nobody keeps any to itself, but where the file has an ACL that a chmod that is
/// kept has changed.
#[test]
fn extended_attributes_wait_for_an_acl_only() {
    let (mut bed, mut me, _, _, file) = holding();
    let bytes = |text: &str| Bytes(text.as_bytes().to_vec());
    let get = |name: &str| GetXattr { ino: file, name: bytes(name) };
    let set = |name: &str, value: Vec<u8>| SetXattr {
        ino: file,
        name: bytes(name),
        value: Bytes(value),
        create: false,
        replace: false,
        kill_sgid: false,
    };
    bed.call(ME, set("user.x", b"v".to_vec())).unwrap();
    assert_eq!(bed.call(OTHER, get("user.x")).unwrap().data, bytes("v"));
    assert_eq!(bed.call(OTHER, ListXattr { ino: file }).unwrap().data, bytes("user.x\0"));
    let acl = "system.posix_acl_access";
    assert!(bed.call(OTHER, get(acl)).is_err());
    assert!(questions(&mut bed, &mut me).is_empty());
    // One with a user and a mask: the group's bits of a mode are the mask.
    let entries = [(1, 6, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 4, u32::MAX)];
    let entry = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
    };
    let value = [2u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(entry).collect()].concat();
    bed.call(ME, set(acl, value.clone())).unwrap();
    let to = bed.send(lane(1), get(acl));
    assert_eq!(questions(&mut bed, &mut me), [(file, Some(first_term(1)))]);
    told(&mut bed, answering(first_term(1), tell(file, 0o600)));
    let shown = bed.reply::<DataReply>(to).expect("answered").unwrap().data.0;
    assert_ne!(shown, value, "the mask is as the chmod has made it");
    bed.check();
}
