use super::*;

fn fill(pages: &mut Pages, offset: u64, content: &[u8], room: usize) -> (Filled, Vec<u8>) {
    let mut out = alloc::vec![0; room];
    out[..content.len()].copy_from_slice(content);
    let number = pages.fill_begins(offset, offset + room as u64);
    let filled = pages.fill_ends(number, content.len(), &mut out, false);
    (filled, out)
}

/// Goal: a fill that finds the end where the kernel may take the file for longer has it looked at, until it is known that it
/// does not; what it is told meanwhile counts. It is not told more than pages show, nor less than it knows where that is right.
#[test]
fn ends_are_looked_at() {
    let mut pages = Pages::default();
    assert_eq!((pages.tell(9_000), pages.look_begins(9_000)), (None, None));
    let number = pages.fill_begins(4_096, 8_192);
    pages.tell(5_000);
    let look = pages.look_begins(5_000).unwrap();
    pages.look_ends(look, false);
    let look = pages.look_begins(5_000).unwrap();
    pages.look_ends(look, true);
    assert_eq!(pages.look_begins(5_000), None);
    assert_eq!(pages.look_begins(4_500), Some(look + 1), "it takes it for longer than that");
    pages.tell_at_least(4_800);
    pages.look_ends(look + 1, true);
    assert_eq!((pages.look_begins(4_800), pages.look_begins(4_700).is_some()), (None, true));
    pages.fill_given_up(number);
    assert_eq!(pages.settles(6_000, 9_000), 6_000, "that makes it shorter");
    assert_eq!((pages.settles(9_000, 4_000), pages.settles(9_000, 7_000)), (5_000, 7_000));
}

/// Goal: the kernel is never told of a size beyond what its last page was filled with; that page goes first, and
/// only where there is one.
#[test]
fn a_longer_file_drops_its_last_page() {
    let mut pages = Pages::default();
    assert_eq!(pages.tell(5_000), None, "nothing is held");
    assert_eq!(fill(&mut pages, 4_096, &[1; 904], 4_096).0, Filled::Done(904));
    assert_eq!(pages.tell(5_000), None);
    let drop = pages.tell(5_001).unwrap();
    assert_eq!((drop.from, drop.len), (4_096, 0));
    pages.dropped(drop, true, 1);
    assert_eq!(pages.tell(5_001), None);
    // Cut and grown again: the kernel's page has zeros behind the cut.
    fill(&mut pages, 4_096, &[1; 905], 4_096);
    assert_eq!(pages.tell(4_100), None);
    assert_eq!(pages.tell(4_101).map(|drop| drop.from), Some(4_096));
}

/// Goal: a write in the middle says nothing about the end: it costs no drop, then or later.
#[test]
fn a_write_in_the_middle_moves_no_end() {
    let mut pages = Pages::default();
    fill(&mut pages, 0, &[1; 4_096], 4_096);
    assert_eq!(pages.tell(65_000), None);
    assert_eq!(pages.tell_at_least(96), None);
    assert_eq!(pages.tell_at_least(65_000), None);
    assert_eq!(pages.tell(65_000), None);
    assert_eq!(pages.tell(96), None);
    assert!(pages.tell(65_000).is_some(), "cut, and longer again");
}

/// Goal: a size is told to nobody before the page that it would make lie is gone, whoever drops it.
#[test]
fn a_page_on_its_way_out_still_lies() {
    let mut pages = Pages::default();
    fill(&mut pages, 0, b"short", 4_096);
    let first = pages.tell(9).unwrap();
    assert!(!pages.may_tell(9), "not gone yet");
    let second = pages.tell(9).unwrap();
    pages.dropped(second, true, 1);
    assert_eq!(
        pages.tell(9),
        None,
        "gone, whatever becomes of the first drop: two lanes do not wait in turn"
    );
    pages.dropped(first, true, 1);
    assert_eq!(pages.tell(9), None);
}

/// Goal: a fill that read before the kernel was told of a longer file reads again.
#[test]
fn a_fill_overtaken_by_a_size_reads_again() {
    let mut pages = Pages::default();
    let number = pages.fill_begins(0, 4_096);
    assert_eq!(pages.tell(14), None, "no page is known to be short");
    let mut out = [0; 4_096];
    assert_eq!(pages.fill_ends(number, 7, &mut out, false), Filled::Again);
    assert_eq!(pages.fill_ends(number, 14, &mut out, false), Filled::Done(14));
}

/// Goal: pages count as current only when every one of them is known to be, whoever opens or locks meanwhile.
#[test]
fn pages_are_current_when_the_old_ones_are_gone() {
    let mut pages = Pages::default();
    assert!(pages.are_as_of(4), "none is held");
    fill(&mut pages, 0, b"old", 4_096);
    assert!(!pages.are_as_of(5));
    let drop = pages.drop_all(5);
    assert!(!pages.are_as_of(5), "on their way out, but still there");
    let second = pages.drop_all(5);
    pages.dropped(drop, true, 1);
    fill(&mut pages, 0, b"new", 4_096);
    assert!(pages.are_as_of(5));
    pages.dropped(second, true, 1);
    pages.changed_by_own(6);
    assert!(pages.are_as_of(6) && !pages.are_as_of(7));
    // A drop that was begun before the counters lost their meaning proves nothing afterwards.
    let drop = pages.drop_all(7);
    pages.forget_change();
    fill(&mut pages, 0, b"new", 4_096);
    pages.dropped(drop, true, 1);
    assert!(!pages.are_as_of(7));
    let failed = pages.drop_all(8);
    pages.dropped(failed, false, 1);
    assert!(pages.may_be_held() && !pages.are_as_of(8));
}

/// Goal: a page that is filled while a write is under way has the written bytes; without pages the fill waits for
/// the write, and the write copies nothing.
#[test]
fn fills_and_writes_do_not_miss_each_other() {
    let mut pages = Pages::default();
    let (number, drop) = pages.write_begins(2_000, b"abcd");
    assert_eq!((drop, pages.fill_waits(0, 4_096), pages.fill_waits(4_096, 8_192)), (None, true, false));
    pages.write_ends(number, 4);
    assert!(!pages.fill_waits(0, 4_096));
    fill(&mut pages, 0, &[1; 4_096], 4_096);
    let (number, drop) = pages.write_begins(2_000, b"abcd");
    let drop = drop.unwrap();
    assert_eq!((drop.from, drop.len, pages.fill_waits(0, 4_096)), (2_000, 4, false));
    let (filled, out) = fill(&mut pages, 0, &[1; 4_096], 4_096);
    assert_eq!((filled, &out[1_999..2_005]), (Filled::Done(4_096), &b"\x01abcd\x01"[..]));
    // At the end, and beyond it with a gap.
    let (last, _) = pages.write_begins(5_000, b"xy");
    assert_eq!(fill(&mut pages, 4_096, &[1; 904], 4_096).0, Filled::Done(906));
    pages.write_ends(last, 2);
    pages.write_ends(number, 4);
    let (gap, _) = pages.write_begins(5_100, b"z");
    assert_eq!(fill(&mut pages, 4_096, &[1; 906], 4_096).0, Filled::Done(906));
    pages.write_ends(gap, 1);
    assert!(pages.tell(5_101).is_some(), "the page lacks what was written behind the gap");
}

/// Goal: a fill that read before a write landed, and ends after it, has the written bytes: nothing drops its page
/// any more. What it reads anew has them already.
#[test]
fn a_fill_has_the_bytes_of_a_write_that_landed_meanwhile() {
    let mut pages = Pages::default();
    let mut out = [1; 4_096];
    let filling = pages.fill_begins(0, 4_096);
    let (number, drop) = pages.write_begins(2_000, b"abcd");
    assert!(drop.is_some(), "its page may be there");
    pages.write_ends(number, 4);
    assert_eq!(pages.fill_ends(filling, 4_096, &mut out, false), Filled::Done(4_096));
    assert_eq!(out[1_999..2_005], *b"\x01abcd\x01");
    assert!(pages.fills.is_empty());
    // Beyond the end that it read; of a write that failed half-way only what landed.
    let filling = pages.fill_begins(4_096, 8_192);
    let (number, _) = pages.write_begins(5_000, b"xyz");
    pages.write_ends(number, 2);
    assert_eq!(pages.fill_ends(filling, 904, &mut out, false), Filled::Done(906));
    assert_eq!(out[904..906], *b"xy");
    let mut pages = Pages::default();
    let filling = pages.fill_begins(8_192, 12_288);
    let (number, _) = pages.write_begins(8_192, b"old");
    pages.write_ends(number, 3);
    assert_eq!(pages.tell(9_000), None);
    let mut out = [2; 4_096];
    assert_eq!(pages.fill_ends(filling, 100, &mut out, false), Filled::Again);
    assert_eq!(pages.fill_ends(filling, 808, &mut out, true), Filled::Done(808));
    assert_eq!(out[..3], [2; 3], "read after it had landed");
    let filling = pages.fill_begins(0, 1);
    pages.fill_given_up(filling);
    assert!(pages.fills.is_empty());
}

/// Goal: a page that is filled while its bytes become zeros has zeros, however long the range is, and is not made longer
/// by them.
#[test]
fn a_fill_has_the_zeros_of_a_hole_made_meanwhile() {
    let mut pages = Pages::default();
    let mut out = [1; 4_096];
    let filling = pages.fill_begins(0, 4_096);
    let (number, drop) = pages.zeros_begin(4_000, 1 << 60);
    assert_eq!(drop.map(|drop| drop.from), Some(4_000));
    assert!(!pages.fill_waits(0, 4_096));
    let (filled, other) = fill(&mut pages, 0, &[1; 4_050], 4_096);
    assert_eq!(
        (filled, &other[3_999..4_051]),
        (Filled::Done(4_050), &[[1].as_slice(), &[0; 51]].concat()[..])
    );
    pages.zeros_end(number, true);
    assert_eq!(pages.fill_ends(filling, 4_096, &mut out, false), Filled::Done(4_096));
    assert_eq!((out[3_999], &out[4_000..]), (1, &[0; 96][..]));
    assert!(pages.writes.is_empty());
}

/// Goal: a copy begins when no page has any of its bytes, and fills wait for it then.
#[test]
fn a_copy_waits_for_pages_and_fills_for_the_copy() {
    let mut pages = Pages::default();
    fill(&mut pages, 0, &[1; 4_096], 4_096);
    let drop = pages.copy_begins(4_000, 9_000).unwrap_err();
    assert!(!pages.fill_waits(0, 4_096), "the drop may wait for it");
    let again = pages.copy_begins(4_000, 9_000).unwrap_err();
    pages.dropped(drop, true, 1);
    fill(&mut pages, 8_192, &[1; 4_096], 4_096);
    pages.dropped(again, true, 2);
    let drop = pages.copy_begins(4_000, 9_000).unwrap_err();
    pages.dropped(drop, true, 3);
    let number = pages.copy_begins(4_000, 9_000).unwrap();
    assert_eq!((pages.fill_waits(0, 4_096), pages.fill_waits(12_288, 16_384)), (true, false));
    pages.write_ends(number, 5_000);
    assert!(!pages.fill_waits(0, 4_096));
}

/// Goal: of two changes of the same bytes at once one waits for the other, unless fills wait for both.
#[test]
fn changes_of_the_same_bytes_wait() {
    let mut pages = Pages::default();
    let (stream, _) = pages.write_begins(0, b"abcd");
    assert_eq!((pages.write_waits(2, 9, false), pages.write_waits(2, 9, true)), (false, true));
    let filling = pages.fill_begins(0, 4_096);
    assert_eq!((pages.write_waits(2, 9, false), pages.write_waits(4, 9, false)), (true, false));
    pages.write_ends(stream, 4);
    assert!(!pages.write_waits(2, 9, false));
    pages.fill_given_up(filling);
    let (noted, drop) = pages.write_begins(0, b"abcd");
    pages.dropped(drop.unwrap(), true, 1);
    assert!(!pages.may_be_held());
    assert!(pages.write_waits(3, 9, false), "a page that is filled now has its bytes");
    pages.write_ends(noted, 4);
    assert!(!pages.write_waits(3, 9, true));
}
