//! The tools of the proof, held to account on a file system that is known to be right: tmpfs.
#![allow(clippy::unwrap_used)]

use skep_model::{Call, Fs, XattrHow};
use skep_rig::{Driver, Scratch, compare_tree};
use skep_types::{Ino, Name, SetAttr, SetTime, Timestamp};
use std::path::Path;

/// The oracle's "now" begins here.
const CLOCK: i64 = 1 << 40;

fn call(number: u64) -> Call {
    Call { now: Timestamp { secs: CLOCK + number as i64, nanos: 0 }, ino: Ino(number + 2), uid: 0, gid: 0 }
}

fn oracle() -> Fs {
    Fs::new(0o755, 0, 0, call(0).now)
}

fn tmpfs() -> Scratch {
    let scratch = Scratch::new(Some(Path::new("/dev/shm"))).unwrap();
    std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    scratch
}

/// Goal: every kind of difference between a directory and the oracle is found.
#[test]
fn differences_are_found() {
    type Change = fn(&mut Fs, Ino, Ino);
    let changes: [(Change, &str); 8] = [
        (
            |fs, _, file| {
                fs.write(file, 70_000, b"x", false, call(9).now).unwrap();
            },
            "Stat",
        ),
        (
            |fs, _, file| {
                fs.write(file, 4_000, b"x", false, call(9).now).unwrap();
            },
            "byte 4000 is",
        ),
        (
            |fs, dir, _| {
                fs.create(dir, &name("more"), 0o644, call(9)).unwrap();
            },
            "does not show",
        ),
        (|fs, dir, _| fs.unlink(dir, &name("f"), call(9).now).unwrap(), "shows \"f\""),
        (
            |fs, dir, _| {
                fs.rmdir(dir, &name("e"), call(9).now).unwrap();
            },
            "Stat",
        ),
        (|fs, _, file| fs.setxattr(file, b"user.x0", b"z", XattrHow::Set, call(9).now).unwrap(), "differs"),
        (|fs, _, file| fs.removexattr(file, b"user.x0", call(9).now).unwrap(), "has extended attribute"),
        (
            |fs, _, file| {
                let mtime = Some(SetTime::At(Timestamp { secs: 1, nanos: 0 }));
                fs.setattr(file, &SetAttr { mtime, ..SetAttr::default() }, call(9).now).unwrap();
            },
            "mtime",
        ),
    ];
    for (change, message) in changes {
        let (scratch, mut fs, dir, file) = sample();
        compare_tree(scratch.path(), &fs, CLOCK, &mut |_| {}).unwrap();
        change(&mut fs, dir, file);
        let found = compare_tree(scratch.path(), &fs, CLOCK, &mut |_| {}).unwrap_err();
        assert!(found.contains(message), "{found}");
    }
}

/// Goal: two files in the place of two names of one file are found.
#[test]
fn a_broken_hard_link_is_found() {
    let (scratch, fs, ..) = sample();
    std::fs::remove_file(scratch.path().join("g")).unwrap();
    std::fs::copy(scratch.path().join("d/f"), scratch.path().join("g")).unwrap();
    let found = compare_tree(scratch.path(), &fs, CLOCK, &mut |_| {}).unwrap_err();
    assert!(found.contains("Stat") || found.contains("other name"), "{found}");
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A small tree on disk and in the oracle: d/f = g with an extended attribute, and d/e.
fn sample() -> (Scratch, Fs, Ino, Ino) {
    let scratch = tmpfs();
    let mut driver = Driver::new(scratch.path()).unwrap();
    driver.forget_handles();
    let base = scratch.path();
    std::fs::create_dir(base.join("d")).unwrap();
    std::fs::create_dir(base.join("d/e")).unwrap();
    std::fs::write(base.join("d/f"), [7; 5_000]).unwrap();
    rustix::fs::setxattr(base.join("d/f"), "user.x0", b"v", rustix::fs::XattrFlags::empty()).unwrap();
    std::fs::hard_link(base.join("d/f"), base.join("g")).unwrap();
    let mut fs = oracle();
    let dir = fs.mkdir(Ino::ROOT, &name("d"), 0o777, call(1)).unwrap();
    fs.mkdir(dir, &name("e"), 0o777, call(2)).unwrap();
    let file = fs.create(dir, &name("f"), 0o666, call(3)).unwrap();
    fs.write(file, 0, &[7; 5_000], false, call(3).now).unwrap();
    fs.setxattr(file, b"user.x0", b"v", XattrHow::Set, call(3).now).unwrap();
    fs.link(file, Ino::ROOT, &name("g"), call(3).now).unwrap();
    (scratch, fs, dir, file)
}
