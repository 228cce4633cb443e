//! The row that there may be leases: when it comes, when it goes, and for whom a new term waits by it.

use super::*;
use crate::store::Store;

/// So long after the last wish the row goes, if nobody has anything.
const STAYS: u64 = 2 * PATIENCE;

fn has_row(bed: &Bed) -> bool {
    bed.server.store().get(&crate::key::holder(ShardId(0), ClientId(0))).unwrap().is_some()
}

/// Does a change wait in a new term?
fn waits(bed: &mut Bed) -> bool {
    let text = format!("at {}", bed.now.0);
    let to = bed.send(Who { slot: 1, ..ME }, create(Ino::ROOT, &text));
    !bed.replies.contains_key(&to)
}

/// Time passes, a second at a time; `each`: what somebody does.
fn pass(bed: &mut Bed, ms: u64, mut each: impl FnMut(&mut Bed)) {
    for _ in 0..ms / 1_000 {
        each(bed);
        bed.tick(1_000);
    }
}

/// Goal: a metadata server whose mounts do not use leases any more has nobody wait after a restart; while one has a lease, or
/// wishes for some, it has.
#[test]
fn the_row_goes_when_nobody_wishes() {
    let (mut bed, _, mut other, dir) = bed();
    let to = bed.send(OTHER, find(dir, "old"));
    assert!(has_row(&bed) && granted(&bed, to) == [dir]);
    pass(&mut bed, 4 * STAYS, |bed| other.ask(bed));
    assert!(has_row(&bed), "one is held");
    bed.wishes.insert(2, 1);
    other.ask(&mut bed);
    assert_eq!(bed.server.lease_counts().held, 0);
    pass(&mut bed, PATIENCE + 2_000, |_| {});
    assert!(!has_row(&bed), "the last wish was long ago");
    // Nobody has anything, and somebody wishes all the time: for what nobody is lent.
    pass(&mut bed, 2 * STAYS, |bed| {
        bed.send(OTHER, find(Ino::ROOT, "absent"));
    });
    assert!(has_row(&bed));
    bed.wishes.insert(2, 2);
    other.ask(&mut bed);
    pass(&mut bed, STAYS + PATIENCE, |_| {});
    assert!(!has_row(&bed));
    bed.restart(&[1, 2]);
    assert!(!waits(&mut bed));
    bed.check();
}

/// Goal: a term inherits the row, waits for what may be in use, and lets it go itself when nobody wishes.
#[test]
fn a_new_term_inherits_the_row() {
    let (mut bed, _, _, dir) = bed();
    bed.send(OTHER, find(dir, "old"));
    for _ in 0..2 {
        bed.restart(&[1, 2]);
        assert!(has_row(&bed) && waits(&mut bed));
        bed.end_hold();
        assert!(has_row(&bed));
    }
    bed.wishes.clear();
    pass(&mut bed, STAYS + 2_000, |_| {});
    assert!(!has_row(&bed));
    bed.restart(&[1, 2]);
    assert!(!waits(&mut bed));
}

/// Goal: a wish that comes while the row goes has it written again, and is lent nothing before that is durable: whatever part
/// of the log a crash leaves, a term waits if something may be in use.
#[test]
fn a_wish_beside_the_end_of_the_row_is_lent_nothing() {
    let (mut bed, _, mut other, dir) = bed();
    bed.send(OTHER, find(dir, "old"));
    bed.wishes.insert(2, 1);
    other.ask(&mut bed);
    bed.auto_sync = false;
    let before = bed.log.len();
    pass(&mut bed, STAYS + 2_000, |_| {});
    assert_eq!((has_row(&bed), bed.log.len()), (false, before + 1));
    for _ in 0..2 {
        let to = bed.send(OTHER, find(dir, "old"));
        assert!(granted(&bed, to).is_empty(), "not durable");
    }
    assert_eq!((has_row(&bed), bed.log.len()), (true, before + 2));
    bed.sync();
    let to = bed.send(OTHER, find(dir, "old"));
    assert_eq!(granted(&bed, to), [dir]);
    bed.auto_sync = true;
    for (kept, expected) in [(before + 2, true), (before + 1, false), (before, true)] {
        bed.crash(0, kept as u64, &[1, 2]);
        assert_eq!((has_row(&bed), waits(&mut bed)), (expected, expected), "{kept} of {before}");
        bed.log.truncate(kept);
    }
}

/// Goal: what is refused while a term holds changes says what is waited for, and for how long at most.
#[test]
fn refusals_of_a_hold_say_for_how_long() {
    let limits = limit::Limits { waits: 4, ..limit::Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    bed.forgets = false;
    let _other = Ear::new(&mut bed, OTHER);
    bed.send(OTHER, GetAttr { ino: Ino::ROOT });
    bed.restart(&[]);
    let sent: Vec<u64> =
        (0..3).map(|slot| bed.send(Who { slot, ..ME }, create(Ino::ROOT, &format!("f{slot}")))).collect();
    let refusal = bed.replies[&sent[2]].1.clone().unwrap_err();
    assert_eq!(refusal.status, skep_wire::Status::BUSY);
    assert!(refusal.detail.contains("has begun to serve"), "{refusal}");
    let words: Vec<&str> = refusal.detail.split(' ').collect();
    let at = words.iter().position(|word| *word == "ms").unwrap();
    assert!((PATIENCE - 100..=PATIENCE).contains(&words[at - 1].parse::<u64>().unwrap()), "{refusal}");
    bed.end_hold();
    assert!(sent[..2].iter().all(|to| bed.replies[to].1.is_ok()));
}
