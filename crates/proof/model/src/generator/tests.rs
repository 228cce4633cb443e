use super::*;
use crate::fs::{Call, Fs};
use crate::op::Outcome;
use crate::{Compare, diff};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use skep_types::{Errno, Ino};

fn call(number: u64) -> Call {
    Call { now: Timestamp { secs: number as i64, nanos: 0 }, ino: Ino(number + 2), uid: 0, gid: 0 }
}

fn kind_of(op: &Op) -> String {
    let shown = format!("{op:?}");
    shown.split([' ', '{']).next().unwrap_or_default().to_string()
}

/// Goal: 200 seeds of 2,000 operations keep every invariant, and a failed operation changes nothing.
#[test]
fn two_hundred_histories_stay_sound() {
    for seed in 0..200 {
        let mut generator = Generator::new(seed, Profile::default());
        let mut fs = Fs::new(0o755, 0, 0, call(0).now);
        for number in 0..2_000 {
            let op = generator.next_op();
            let before = (number % 16 == 0).then(|| fs.clone());
            let outcome = fs.apply(&op, call(number));
            if number % 16 == 0 {
                fs.check().unwrap_or_else(|what| panic!("seed {seed}, {number}: {op:?}: {what}"));
            }
            if let (Some(before), true) = (before, matches!(outcome, Outcome::Failed(_)) || op.is_read_only())
            {
                let changed = diff(&before, &fs, Compare::Everything);
                assert_eq!(
                    changed, None,
                    "seed {seed}, {number}: {op:?} gave {outcome:?} and changed something"
                );
            }
        }
        fs.check().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        fs.close_all(|_| true);
        fs.check().unwrap_or_else(|what| panic!("seed {seed}, all closed: {what}"));
        assert!(
            fs.inodes().all(|ino| fs.stat(ino).unwrap().nlink > 0),
            "seed {seed}: an orphan outlived its handles"
        );
    }
}

/// Goal: one seed is one history, and a branch of it goes on independently.
#[test]
fn a_seed_reproduces_its_history() {
    let run = |seed| {
        let mut generator = Generator::new(seed, Profile::default());
        let mut fs = Fs::new(0o755, 0, 0, call(0).now);
        (0..500).for_each(|number| drop(fs.apply(&generator.next_op(), call(number))));
        (fs, generator)
    };
    let ((a, mut generator), (b, _), (other, _)) = (run(5), run(5), run(6));
    assert_eq!(diff(&a, &b, Compare::Everything), None);
    assert!(diff(&a, &other, Compare::Everything).is_some());
    let mut branch = a.clone();
    (500..900).for_each(|number| drop(branch.apply(&generator.next_op(), call(number))));
    assert!(diff(&a, &branch, Compare::Everything).is_some());
    assert_eq!(diff(&a, &b, Compare::Everything), None, "the branch changed its origin");
}

/// Errors that histories must meet.
const ERRORS: [(&str, Errno); 52] = [
    ("Open", Errno::EEXIST),
    ("Open", Errno::EISDIR),
    ("Open", Errno::ELOOP),
    ("Open", Errno::ENOENT),
    ("Open", Errno::ENOTDIR),
    ("Open", Errno::ENXIO),
    ("Mkdir", Errno::EEXIST),
    ("Mknod", Errno::EEXIST),
    ("Symlink", Errno::ENAMETOOLONG),
    ("Readlink", Errno::EINVAL),
    ("Link", Errno::EEXIST),
    ("Link", Errno::EPERM),
    ("Unlink", Errno::EISDIR),
    ("Rmdir", Errno::ENOTDIR),
    ("Rmdir", Errno::ENOTEMPTY),
    ("Rename", Errno::EEXIST),
    ("Rename", Errno::EINVAL),
    ("Rename", Errno::EISDIR),
    ("Rename", Errno::ENOENT),
    ("Rename", Errno::ENOTDIR),
    ("Rename", Errno::ENOTEMPTY),
    ("List", Errno::ENOTDIR),
    ("Chmod", Errno::EOPNOTSUPP),
    ("Truncate", Errno::EISDIR),
    ("Truncate", Errno::EINVAL),
    ("Write", Errno::EBADF),
    ("Write", Errno::EINVAL),
    ("Write", Errno::EFBIG),
    ("Read", Errno::EISDIR),
    ("Punch", Errno::EINVAL),
    ("Setxattr", Errno::EEXIST),
    ("Setxattr", Errno::ENODATA),
    ("Setxattr", Errno::E2BIG),
    ("Setxattr", Errno::ERANGE),
    ("Setxattr", Errno::EPERM),
    ("Setxattr", Errno::ENOSPC),
    ("Getxattr", Errno::ENODATA),
    ("Removexattr", Errno::ENODATA),
    ("OpenTemp", Errno::ENOTDIR),
    ("OpenTemp", Errno::ENOENT),
    ("LinkHandle", Errno::ENOENT),
    ("LinkHandle", Errno::EEXIST),
    ("Zero", Errno::EBADF),
    ("Copy", Errno::EBADF),
    ("Copy", Errno::EISDIR),
    ("Copy", Errno::EINVAL),
    ("Seek", Errno::EISDIR),
    ("Lock", Errno::EAGAIN),
    ("Lock", Errno::EBADF),
    ("SetAcl", Errno::EACCES),
    ("SetAcl", Errno::EOPNOTSUPP),
    ("GetAcl", Errno::ENODATA),
];

/// Goal: histories reach what they are for: every kind of operation succeeds often, and every error that
/// a program can meet is met.
#[test]
fn histories_are_interesting() {
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    let mut failed: BTreeMap<(String, Errno), u32> = BTreeMap::new();
    let (mut orphans, mut hard_links, mut inline_crossed) = (0, 0, 0);
    for seed in 0..40 {
        let mut generator = Generator::new(seed, Profile::default());
        let mut fs = Fs::new(0o755, 0, 0, call(0).now);
        for number in 0..2_000 {
            let op = generator.next_op();
            match fs.apply(&op, call(number)) {
                Outcome::Failed(errno) => *failed.entry((kind_of(&op), errno)).or_default() += 1,
                _ => *done.entry(kind_of(&op)).or_default() += 1,
            }
            if number % 50 == 0 {
                orphans += fs.handles().filter(|(_, ino)| fs.stat(*ino).unwrap().nlink == 0).count();
                for ino in fs.inodes() {
                    let stat = fs.stat(ino).unwrap();
                    hard_links += usize::from(stat.kind == Kind::File && stat.nlink > 1);
                    inline_crossed += usize::from(stat.size > u64::from(INLINE_DEFAULT));
                }
            }
        }
    }
    let succeeded: u32 = done.values().sum();
    assert!(succeeded > 40 * 2_000 * 35 / 100, "only {succeeded} of 80,000 succeed: {done:?} {failed:?}");
    assert_eq!(done.len(), 35, "{done:?}");
    assert!(done.values().all(|count| *count >= 40), "{done:?}");
    assert!(
        orphans > 100 && hard_links > 100 && inline_crossed > 100,
        "{orphans} {hard_links} {inline_crossed}"
    );
    for (op, errno) in ERRORS {
        assert!(failed.contains_key(&(op.to_string(), errno)), "{op} never met {errno}: {failed:?}");
    }
}

/// Goal: a profile is kept: nothing beyond the highest size, no handle out of range, no act of root.
#[test]
fn the_profile_is_kept() {
    let profile = Profile {
        size_max: 1 << 33,
        xattr_value_max: 100,
        xattr_names: 2,
        privileged: false,
        first_handle: 50,
        handles: 3,
        depth: 2,
        ..Profile::default()
    };
    let mut generator = Generator::new(1, profile);
    for _ in 0..20_000 {
        match generator.next_op() {
            Op::Chown { .. } => panic!("chown without privilege"),
            Op::Mknod { kind, .. } => assert!(!matches!(kind, Kind::CharDev | Kind::BlockDev)),
            Op::Truncate { size, kill, .. } => assert!(size <= 1 << 33 && kill),
            Op::Write { handle, offset, fill, kill } => {
                assert!((50..53).contains(&handle.0));
                assert!(offset + u64::from(fill.len) <= 1 << 33 && kill);
            }
            Op::Setxattr { name, value, .. } => {
                assert!(name < 2 || name == u8::MAX);
                assert!(value.len <= 100 || value.len as usize == XATTR_VALUE_MAX + 1);
            }
            Op::Mkdir { path, .. } => assert!(path.names().count() <= 2),
            _ => {}
        }
    }
}
