//! Tests of what is known of directories.

use super::*;
use crate::limits::{CACHE_MAX, HOLES_MAX};
use crate::testing::attr;
use alloc::format;
use alloc::string::String;
use skep_types::limits::NAME_MAX;

const ERA: u64 = 1;

fn names(most: usize) -> Names {
    Names::new(&Limits { cache_bytes: most, ..Limits::default() })
}

fn ino(serial: u64) -> Ino {
    Ino::new(ShardId(1), serial)
}

fn dir_attr(ino: Ino, change: u64) -> Attr {
    Attr { kind: Kind::Dir, ..attr(ino.0, change, 0) }
}

fn file(serial: u64) -> Option<(Ino, Kind)> {
    Some((ino(serial), Kind::File))
}

fn put(names: &mut Names, dir: Ino, name: &str, what: Option<(Ino, Kind)>, index: u64) {
    names.put_name((dir, ERA), name.as_bytes(), what, LogIndex(index));
}

fn find(names: &mut Names, dir: Ino, name: &str) -> Found {
    names.find(dir, ERA, name.as_bytes())
}

fn line(cookie: u64, name: &str) -> Line {
    Line { cookie, name: name.as_bytes().into(), ino: ino(100 + cookie), kind: Kind::File }
}

fn listed(names: &mut Names, after: u64, lines: &[Line], end: bool) {
    let asked = names.before(ino(1));
    names.put_lines((ino(1), ERA), lines, LogIndex(9));
    listed_as_of(names, asked, 9, (after, lines, end));
}

fn listed_as_of(names: &mut Names, asked: Before, index: u64, (after, lines, end): (u64, &[Line], bool)) {
    let part = Part { lines: lines.to_vec(), end, parent: ino(77) };
    names.listed((ino(1), ERA), asked, LogIndex(index), (after, part));
}

/// Goal: what is newer stays, whichever comes last; what a lease that has ended covered is nothing, be it of one directory, of a
/// shard, or all.
#[test]
fn facts_have_their_time() {
    let mut names = names(CACHE_MAX);
    let dir = ino(1);
    put(&mut names, dir, "a", file(5), 10);
    put(&mut names, dir, "a", None, 12);
    put(&mut names, dir, "a", file(5), 11);
    assert_eq!((find(&mut names, dir, "a"), find(&mut names, dir, "b")), (Found::Absent, Found::Unknown));
    names.put_attr(ERA, &dir_attr(dir, 7), LogIndex(12));
    names.put_attr(ERA, &dir_attr(dir, 6), LogIndex(11));
    assert_eq!(names.attr(dir, ERA).map(|attr| attr.change), Some(7));
    assert_eq!((names.attr(dir, ERA + 1), names.find(dir, ERA + 1, b"a")), (None, Found::Unknown));
    names.changed((dir, ERA), b"a", LogIndex(14));
    assert_eq!(names.attr(dir, ERA), None, "its time was changed as well");
    put(&mut names, dir, "a", file(5), 13);
    assert_eq!(find(&mut names, dir, "a"), Found::Unknown, "that is older than what was forgotten");
    put(&mut names, dir, "a", file(6), 14);
    assert_eq!(find(&mut names, dir, "a"), Found::There(ino(6), Kind::File, None));
    names.put_name((dir, ERA + 1), b"x", None, LogIndex(15));
    assert_eq!(find(&mut names, dir, "a"), Found::Unknown);
    names.forget_dir(dir);
    assert_eq!((names.find(dir, ERA + 1, b"x"), names.bytes()), (Found::Unknown, 0));
    put(&mut names, dir, "a", file(5), 13);
    names.changed((dir, ERA), b"b", LogIndex(20));
    put(&mut names, dir, "b", file(5), 19);
    names.forget_dir(dir);
    put(&mut names, dir, "b", file(5), 19);
    assert_eq!(
        find(&mut names, dir, "b"),
        Found::Unknown,
        "it was changed, though nothing is left that says so"
    );
    for forget in [Names::forget_all, |names: &mut Names| names.forget_shard(ShardId(1))] {
        put(&mut names, dir, "a", file(5), 20);
        forget(&mut names);
        assert_eq!((find(&mut names, dir, "a"), names.bytes()), (Found::Unknown, 0));
    }
}

/// Goal: attributes of an entry are known under the name that leads to it, and go with the name, by the entry, and with the
/// directory.
#[test]
fn entries_are_covered() {
    let mut names = names(CACHE_MAX);
    let (dir, other) = (ino(1), ino(2));
    let covered = |names: &mut Names, size| {
        put(names, dir, "a", file(5), 10);
        names.cover((dir, ERA), b"a", &attr(ino(5).0, 1, size), LogIndex(10));
        assert_eq!(find(names, dir, "a"), Found::There(ino(5), Kind::File, Some(attr(ino(5).0, 1, size))));
    };
    names.cover((dir, ERA), b"a", &attr(ino(5).0, 1, 1), LogIndex(10));
    covered(&mut names, 2);
    names.cover((dir, ERA), b"a", &attr(ino(5).0, 1, 1), LogIndex(9));
    covered(&mut names, 3);
    names.forget_attr(ino(5));
    assert_eq!(find(&mut names, dir, "a"), Found::There(ino(5), Kind::File, None));
    covered(&mut names, 4);
    names.forget_name(dir, b"a");
    put(&mut names, dir, "a", file(5), 10);
    assert_eq!(find(&mut names, dir, "a"), Found::There(ino(5), Kind::File, None));
    covered(&mut names, 5);
    put(&mut names, other, "b", file(5), 11);
    names.cover((other, ERA), b"b", &attr(ino(5).0, 1, 6), LogIndex(11));
    assert_eq!(find(&mut names, dir, "a"), Found::There(ino(5), Kind::File, None), "it was moved");
    names.forget_dir(other);
    put(&mut names, other, "b", file(5), 11);
    assert_eq!(find(&mut names, other, "b"), Found::There(ino(5), Kind::File, None));
    assert_eq!(names.counted(), names.bytes());
    assert!(names.tables[&ShardId(1)].covered.is_empty() && names.dirs.is_empty());
}

/// Goal: a directory that was made here, or listed from end to end without anything missed, has no other names, but for up to
/// 64 that were taken back; with one more nothing is known of those that are not there.
#[test]
fn complete_directories_have_holes() {
    let mut names = names(CACHE_MAX);
    let dir = ino(1);
    names.made(ERA, &dir_attr(dir, 1), LogIndex(5));
    assert_eq!(find(&mut names, dir, "a"), Found::Absent);
    names.forget_name(dir, b"a");
    assert_eq!((find(&mut names, dir, "a"), find(&mut names, dir, "b")), (Found::Unknown, Found::Absent));
    put(&mut names, dir, "a", file(5), 6);
    for number in 0..HOLES_MAX {
        names.forget_name(dir, format!("n{number}").as_bytes());
    }
    assert_eq!((find(&mut names, dir, "b"), find(&mut names, dir, "n7")), (Found::Absent, Found::Unknown));
    names.forget_name(dir, b"n7");
    assert_eq!(find(&mut names, dir, "b"), Found::Absent, "the same once more");
    names.forget_name(dir, b"one more");
    assert_eq!((find(&mut names, dir, "b"), names.counted()), (Found::Unknown, names.bytes()));
    assert_eq!(find(&mut names, dir, "a"), Found::There(ino(5), Kind::File, None));

    let lists = |names: &mut Names, between: fn(&mut Names)| {
        listed(names, 0, &[line(3, "c"), line(4, "d")], false);
        assert_eq!(find(names, dir, "z"), Found::Unknown);
        between(names);
        listed(names, 4, &[line(5, "e")], true);
        find(names, dir, "z")
    };
    assert_eq!(lists(&mut names, |names| names.forget_name(ino(1), b"y")), Found::Unknown);
    assert_eq!(lists(&mut names, |names| names.forget_dir(ino(1))), Found::Unknown);
    listed(&mut names, 3, &[], true);
    assert_eq!(find(&mut names, dir, "z"), Found::Unknown, "not from the start");
    assert_eq!(names.part(dir, ERA, 3), None);
    assert_eq!(lists(&mut names, |_| {}), Found::Absent);
    assert_eq!(names.part(dir, ERA, 4).map(|part| part.lines.clone()), Some([line(5, "e")].into()));
    names.forget_name(dir, b"q");
    assert!([0, 4].iter().all(|after| names.part(dir, ERA, *after).is_none()));
    assert_eq!(names.counted(), names.bytes());
}

/// Other directories are used, until all names of the first one have gone for want of room.
fn squeeze(names: &mut Names) {
    for number in 0.. {
        if names.tables[&ShardId(1)].dirs[&ino(1)].bytes == dir::DIR_BYTES {
            break;
        }
        put(names, ino(2), &format!("n{number}"), file(1_000 + number), 20);
    }
    names.forget_dir(ino(2));
}

/// Goal: a listing makes a directory complete only if no name of it went since it was asked for: be it one that came behind the
/// answer, or one of the answer's own, or one that is known to be absent; and only if it is not older than what went.
#[test]
fn what_went_since_the_question_is_not_absent() {
    let dir = ino(1);
    // Another lane learns of a name that has come since.
    let mut names = names(20_000);
    let asked = names.before(dir);
    put(&mut names, dir, "new", file(5), 12);
    squeeze(&mut names);
    names.put_lines((dir, ERA), &[line(3, "c")], LogIndex(10));
    listed_as_of(&mut names, asked, 10, (0, &[line(3, "c")], true));
    assert_eq!((find(&mut names, dir, "new"), find(&mut names, dir, "z")), (Found::Unknown, Found::Unknown));
    // The same, asked for afterwards by a server that went back: no newer than what went.
    let asked = names.before(dir);
    listed_as_of(&mut names, asked, 11, (0, &[], true));
    assert_eq!(find(&mut names, dir, "new"), Found::Unknown);
    // The first lines go while the last ones are taken over.
    let asked = names.before(dir);
    names.put_lines((dir, ERA), &[line(3, "c"), line(4, "d")], LogIndex(12));
    squeeze(&mut names);
    names.put_lines((dir, ERA), &[line(5, "e")], LogIndex(12));
    listed_as_of(&mut names, asked, 12, (0, &[line(3, "c"), line(4, "d"), line(5, "e")], true));
    assert_eq!((find(&mut names, dir, "c"), names.part(dir, ERA, 0)), (Found::Unknown, None));
    // One that was there, and is not any more.
    let asked = names.before(dir);
    put(&mut names, dir, "gone", None, 13);
    squeeze(&mut names);
    listed_as_of(&mut names, asked, 13, (0, &[line(6, "gone")], true));
    assert_eq!((find(&mut names, dir, "z"), names.part(dir, ERA, 0)), (Found::Unknown, None));
    // Nothing went: complete.
    let asked = names.before(dir);
    put(&mut names, dir, "new", file(5), 13);
    listed_as_of(&mut names, asked, 13, (0, &[], true));
    assert_eq!(find(&mut names, dir, "z"), Found::Absent);
    // A hole is made, or this mount changes something: what was asked before is no part.
    for change in [
        |names: &mut Names| names.forget_name(ino(1), b"y"),
        |names: &mut Names| {
            names.changed((ino(1), ERA), b"y", LogIndex(14));
        },
    ] {
        let asked = names.before(dir);
        change(&mut names);
        listed_as_of(&mut names, asked, 14, (0, &[], true));
        assert_eq!(names.part(dir, ERA, 0), None);
        let asked = names.before(dir);
        listed_as_of(&mut names, asked, 13, (0, &[], true));
        listed_as_of(&mut names, asked, 14, (0, &[], true));
        assert!(names.part(dir, ERA, 0).is_some());
    }
    assert_eq!(names.counted(), names.bytes());
}

/// Goal: a fault on purpose: what is complete stays so when a name in it is taken back.
#[test]
fn the_canary_answers_by_a_recalled_name() {
    let mut names = Names::new(&Limits { canary_keeps_complete: true, ..Limits::default() });
    names.made(ERA, &dir_attr(ino(1), 1), LogIndex(5));
    names.forget_name(ino(1), b"a");
    assert_eq!(find(&mut names, ino(1), "a"), Found::Absent);
}

/// Goal: memory is bounded. What was used longest ago goes, and its lease can be given back; a directory from which a name went,
/// or that takes more than a quarter of all, is not complete. An inode with its name takes no more than 1 KiB.
#[test]
fn memory_is_bounded() {
    const { assert!(dir::COVERED_BYTES + dir::NAME_BYTES + NAME_MAX <= 1_024) };
    let most = 200_000;
    let mut names = names(most);
    let mut left = Vec::new();
    for number in 1..2_000 {
        let dir = ino(number);
        names.made(ERA, &dir_attr(dir, 1), LogIndex(5));
        put(&mut names, dir, "a", file(10_000 + number), 5);
        names.cover((dir, ERA), b"a", &attr(ino(10_000 + number).0, 1, 1), LogIndex(5));
        assert!(matches!(find(&mut names, ino(1), "a"), Found::There(..)), "it was used last");
        left.extend(core::iter::from_fn(|| names.next_left()));
        assert!(names.bytes() <= most + 1_024);
    }
    assert!(left.len() > 1_500 && left[..3] == [ino(2), ino(3), ino(4)]);
    assert_eq!((find(&mut names, ino(2), "a"), names.counted()), (Found::Unknown, names.bytes()));
    let big = ino(5_000);
    names.made(ERA, &dir_attr(big, 1), LogIndex(5));
    let name = |number: u64| -> String { format!("a name of a file {number}") };
    for number in 0..10_000 {
        put(&mut names, big, &name(number), file(20_000 + number), 6);
        assert!(matches!(find(&mut names, big, &name(0)), Found::There(..)), "{number}");
    }
    assert_eq!(find(&mut names, big, "z"), Found::Unknown);
    assert!(names.bytes() <= most + 1_024 && names.counted() == names.bytes());
    names.forget_all();
    assert_eq!(names.bytes(), 0);
    for _ in 0..1_000 {
        put(&mut names, big, "b", None, 7);
    }
    assert!(names.dirs.is_empty() && names.shards.is_empty());
}

/// Goal: a part of a listing is freed some lines at a time: it may have a thousand.
#[test]
fn a_part_is_freed_little_by_little() {
    let mut names = names(CACHE_MAX);
    let dir = ino(1);
    names.made(ERA, &dir_attr(dir, 1), LogIndex(5));
    let lines: Vec<Line> = (1..=1_000).map(|number| line(number, "n")).collect();
    listed(&mut names, 0, &lines, true);
    names.forget_parts(dir);
    assert_eq!(names.part(dir, ERA, 0), None);
    for _ in 0..3 {
        assert!(!names.dirs.is_empty());
        put(&mut names, dir, "a", None, 7);
    }
    for _ in 0..2 {
        put(&mut names, dir, "a", None, 7);
    }
    assert!(names.dirs.is_empty() && find(&mut names, dir, "b") == Found::Absent);
}
