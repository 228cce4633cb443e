//! Others look at a file of which small writes wait, and only look.

use super::tests::{BEGUN, PIECE, gathering, on_targets, pieces, waits, writes};
use crate::limits::{HOLD_TELL_MS, LOOK_WORTH, LOOKS_IDLE, LOOKS_MAX, LOOKS_WITHIN_MS};
use crate::op::hold::tests::{asked, mode, on_shard};
use crate::op::recalls::tests::{cluster, make};
use crate::state::Why;
use crate::testing::{Cluster, FakeLane, Fault, block_on, step, write};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use skep_types::{Ino, Millis, NodeId, SetAttr, SetTime, Term};
use skep_wire::Message;
use skep_wire::meta::{ChangeAttr, Question, Tell};

fn is_held(lane: &FakeLane, ino: Ino) -> bool {
    lane.shared.borrow().inodes.get(ino).is_some_and(|inode| inode.hold.is_some())
}

/// Its shard asks the mount for those who wait.
fn is_asked(cluster: &RefCell<Cluster>, lane: &FakeLane, ino: Ino, looks: Option<u64>) {
    let now = Millis(cluster.borrow().now);
    lane.shared.borrow_mut().is_asked_for(&Question { term: Term(1), ino, looks }, now);
}

fn answered(cluster: &RefCell<Cluster>) -> Vec<u64> {
    cluster.borrow().shard.holds.answered.clone()
}

fn tells(cluster: &RefCell<Cluster>) -> usize {
    asked(cluster, &[Tell::KIND])
}

/// Goal: who looks has what waits brought to its targets, and told, with the number of its question; the file is held on, and
/// what is written next stays. Where nothing was written since, that is told.
#[test]
fn a_look_is_told_and_the_hold_goes_on() {
    let cluster = cluster();
    let (lane, _, teller, file) = gathering(&cluster);
    let ino = file.attr.ino;
    let all = pieces(&lane, &file, 10);
    for (round, size) in [(7, all.len()), (8, all.len())] {
        is_asked(&cluster, &lane, ino, Some(round));
        block_on(teller.tell_held());
        assert_eq!((on_targets(&cluster), waits(&lane, ino)), (size, 0));
        assert_eq!(on_shard(&cluster, ino).size, size as u64);
        assert!(is_held(&lane, ino) && answered(&cluster).last() == Some(&round));
    }
    assert_eq!(tells(&cluster), 2);
    let before = writes(&cluster);
    write(&lane, &file, all.len() as u64, &[3; PIECE]);
    assert_eq!((writes(&cluster), waits(&lane, ino)), (before, PIECE));
    // What was told for a look need not be told again as soon as it would have been.
    cluster.borrow_mut().now += HOLD_TELL_MS - 1;
    block_on(teller.tell_held());
    assert_eq!((tells(&cluster), waits(&lane, ino)), (2, PIECE));
    cluster.borrow_mut().now += 1;
    block_on(teller.tell_held());
    assert_eq!((tells(&cluster), waits(&lane, ino), answered(&cluster).len()), (3, 0, 2));
}

/// Goal: a word that is on its way when the question comes does not answer it: there is another one, of what was written since.
#[test]
fn a_word_of_before_does_not_count() {
    let cluster = cluster();
    let (lane, _, teller, file) = gathering(&cluster);
    let ino = file.attr.ino;
    let all = pieces(&lane, &file, 3);
    is_asked(&cluster, &lane, ino, Some(1));
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
    let mut tell = pin!(teller.tell_held());
    while tells(&cluster) == 0 {
        assert!(step(tell.as_mut()).is_pending());
    }
    write(&lane, &file, all.len() as u64, &[3; PIECE]);
    is_asked(&cluster, &lane, ino, Some(2));
    block_on(tell);
    assert_eq!(answered(&cluster), [1, 2]);
    assert_eq!(on_shard(&cluster, ino).size, (all.len() + PIECE) as u64);
    assert!(is_held(&lane, ino));
}

/// Others look at it, while so many writes look where they go that began before the hold.
fn looked_at_beside(lane: &FakeLane, ino: Ino, writing: u16) {
    let shared = &mut *lane.shared.borrow_mut();
    let inode = shared.inodes.get_mut(ino).unwrap();
    inode.hold.as_mut().unwrap().is_beside = true;
    inode.writing = writing;
    shared.is_asked_for(&Question { term: Term(1), ino, looks: Some(1) }, Millis(0));
    shared.inodes.get_mut(ino).unwrap().writing = 0;
}

/// Goal: a hold ends where its end is asked for as well, before or behind a look, where looks come too often, where the content
/// is in the metadata, and where its shard says so.
#[test]
fn what_ends_a_hold_beside_looks() {
    for case in [
        "end first",
        "look first",
        "too often",
        "inline",
        "refused",
        "again",
        "worth it",
        "idle",
        "beside a write",
        "behind that write",
    ] {
        let cluster = cluster();
        let (lane, _, teller, grown) = gathering(&cluster);
        let small = block_on(make(&lane, b"small")).unwrap();
        write(&lane, &small, 0, b"bytes");
        pieces(&lane, &grown, 3);
        let ino = if case == "inline" { small.attr.ino } else { grown.attr.ino };
        match case {
            "end first" => [None, Some(1)].iter().for_each(|looks| is_asked(&cluster, &lane, ino, *looks)),
            "look first" => [Some(1), None].iter().for_each(|looks| is_asked(&cluster, &lane, ino, *looks)),
            "too often" | "again" => {
                for round in 0..u64::from(LOOKS_MAX) {
                    write(&lane, &grown, (BEGUN + 3 * PIECE) as u64 + round, &[5]);
                    is_asked(&cluster, &lane, ino, Some(round));
                    block_on(teller.tell_held());
                    assert!(is_held(&lane, ino), "{round}");
                }
                write(&lane, &grown, (BEGUN + 3 * PIECE) as u64 + u64::from(LOOKS_MAX), &[5]);
                cluster.borrow_mut().now += if case == "again" { LOOKS_WITHIN_MS } else { 0 };
                is_asked(&cluster, &lane, ino, Some(99));
            }
            "idle" => {
                // The first one has something to tell.
                for round in 0..=u64::from(LOOKS_IDLE) {
                    is_asked(&cluster, &lane, ino, Some(round));
                    block_on(teller.tell_held());
                    assert!(is_held(&lane, ino), "{round}");
                }
                is_asked(&cluster, &lane, ino, Some(99));
            }
            "beside a write" | "behind that write" => {
                looked_at_beside(&lane, ino, u16::from(case == "beside a write"));
            }
            "worth it" => {
                for round in 0..3 * u64::from(LOOKS_MAX) {
                    let end = on_shard(&cluster, ino).size.max((BEGUN + 3 * PIECE) as u64);
                    (0..u64::from(LOOK_WORTH)).for_each(|n| write(&lane, &grown, end + n * 8, &[5; 8]));
                    is_asked(&cluster, &lane, ino, Some(round));
                    block_on(teller.tell_held());
                    assert_eq!(on_shard(&cluster, ino).size, end + u64::from(LOOK_WORTH) * 8);
                }
            }
            "refused" => {
                cluster.borrow_mut().shard.holds.keeps = false;
                is_asked(&cluster, &lane, ino, Some(1));
            }
            _ => is_asked(&cluster, &lane, ino, Some(1)),
        }
        block_on(teller.tell_held());
        let holds = cluster.borrow().shard.holds.by.contains_key(&ino);
        let goes_on = ["again", "worth it", "behind that write"].contains(&case);
        assert_eq!((is_held(&lane, ino), holds), (goes_on, goes_on), "{case}");
        let told = on_shard(&cluster, ino).size;
        match case {
            "inline" => assert_eq!(told, 5),
            "worth it" => {}
            "too often" | "again" => assert_eq!(told, (BEGUN + 3 * PIECE) as u64 + u64::from(LOOKS_MAX) + 1),
            _ => assert_eq!(told, (BEGUN + 3 * PIECE) as u64, "{case}"),
        }
    }
}

/// Goal: a word for a look of which nobody knows what became is followed by one that ends the hold; nothing is lost.
#[test]
fn a_word_in_doubt_ends_it() {
    let cluster = cluster();
    let (lane, _, teller, file) = gathering(&cluster);
    let ino = file.attr.ino;
    let all = pieces(&lane, &file, 3);
    block_on(lane.setattr(ino, mode(0o600))).unwrap();
    is_asked(&cluster, &lane, ino, Some(1));
    let mut given_up = pin!(teller.tell_held());
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LoseAnswer]);
    while tells(&cluster) == 0 {
        assert!(step(given_up.as_mut()).is_pending());
    }
    block_on(given_up);
    assert!(!is_held(&lane, ino), "it holds it no more");
    assert!(!cluster.borrow().shard.holds.by.contains_key(&ino), "nor does its shard say so");
    assert_eq!(
        (on_shard(&cluster, ino).size, on_shard(&cluster, ino).mode & 0o777),
        (all.len() as u64, 0o600)
    );
    write(&lane, &file, all.len() as u64, &[3; PIECE]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(on_shard(&cluster, ino).size, (all.len() + PIECE) as u64);
}

/// Goal: who looks at files again and again does not keep others of the mount from being told when they are old enough, nor these
/// whom they wait for: they take turns. Who needs a file comes in front of both.
#[test]
fn looks_and_old_files_take_turns() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let names: [&[u8]; 4] = [b"g", b"h", b"i", b"j"];
    let others = names.map(|name| block_on(make(&lane, name)).unwrap().attr.ino);
    let shared = &mut *lane.shared.borrow_mut();
    (0..3).for_each(|number| shared.holds.look(Ino(file.attr.ino.0 + 1_000 + number), 1));
    shared.holds.ask(others[0], true);
    let now = Millis(cluster.borrow().now + HOLD_TELL_MS);
    let mut order = Vec::new();
    while let Some(tell) = shared.holds.next(now, |_| Some(NodeId(1))) {
        shared.holds.tried(&tell, false, now);
        order.push(tell.why);
    }
    let (old, look) = (Why::Old, Why::Looked(1));
    assert_eq!(order[..7], [Why::Asked, old, look, old, look, old, look]);
    assert!(order.len() > 7 && order[7..].iter().all(|why| *why == old));
}

/// Goal: of a file that was told, so that others may be shown its row while it is held, mode and owner change at once.
#[test]
fn rights_that_others_see_are_not_kept() {
    let cluster = cluster();
    let (lane, _, teller, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    cluster.borrow_mut().now += HOLD_TELL_MS;
    block_on(teller.tell_held());
    assert!(!cluster.borrow().shard.holds.by.is_empty());
    let times = SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() };
    let before = asked(&cluster, &[ChangeAttr::KIND]);
    block_on(lane.setattr(file.attr.ino, times)).unwrap();
    assert_eq!(asked(&cluster, &[ChangeAttr::KIND]), before, "times are");
    block_on(lane.setattr(file.attr.ino, mode(0o602))).unwrap();
    assert_eq!(
        (on_shard(&cluster, file.attr.ino).mode, asked(&cluster, &[ChangeAttr::KIND])),
        (0o602, before + 1)
    );
}
