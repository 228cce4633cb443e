//! Goal: the oracle is right. Generated histories are carried out in the model and on the file systems of
//! this machine; every outcome, and at intervals the whole tree, must agree.
#![allow(clippy::unwrap_used)]

use skep_model::{At, Call, Calls, Fs, Generator, Op, Outcome, Path, Profile};
use skep_rig::{Driver, Scratch, compare_tree};
use skep_types::{Errno, Ino, Name, SetTime, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path as HostPath, PathBuf};

/// Operations of one history.
const OPS: u64 = 2_000;
/// Histories per file system; more with `SKEP_MODEL_SEEDS=N` in the environment.
const SEEDS: u64 = 40;
/// The whole tree is compared every so many operations.
const TREE_EVERY: u64 = 250;
/// The oracle's "now" begins here: no history sets a time as late.
const CLOCK: i64 = 1 << 40;

fn call(number: u64) -> Call {
    Call { now: Timestamp { secs: CLOCK + number as i64, nanos: 0 }, ino: Ino(number + 2), uid: 0, gid: 0 }
}

fn model() -> Fs {
    Fs::new(0o755, 0, 0, call(0).now)
}

/// A directory of its own, and what drives it.
struct Host {
    scratch: Scratch,
    driver: Driver,
}

impl Host {
    fn new(base: &HostPath) -> Self {
        let scratch = Scratch::new(Some(base)).unwrap();
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let driver = Driver::new(scratch.path()).expect("these tests need root");
        Self { scratch, driver }
    }
}

fn host_path(root: &HostPath, names: &[Name]) -> PathBuf {
    names.iter().fold(root.into(), |path: PathBuf, name| path.join(OsStr::from_bytes(name.as_bytes())))
}

/// Runs histories in both; panics with seed, position and the operations before the first difference.
fn histories(base: &HostPath, name: &str, profile: &Profile) {
    let mut succeeded = 0;
    let seeds =
        std::env::var("SKEP_MODEL_SEEDS").map_or(SEEDS, |text| text.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let mut host = Host::new(base);
        let (mut fs, mut generator) = (model(), Generator::new(seed, profile.clone()));
        let mut past: Vec<String> = Vec::new();
        for number in 0..OPS {
            let op = generator.next_op();
            let (expected, found) = (fs.apply(&op, call(number)), host.driver.apply(&op));
            past.push(format!("{number}: {op:?} -> {expected:?}"));
            let last = past[past.len().saturating_sub(25)..].join("\n");
            assert!(expected.accepts(&found), "seed {seed}: {expected:?} | {name} {found:?}, after\n{last}");
            succeeded += u64::from(!matches!(expected, Outcome::Failed(_)));
            if number % TREE_EVERY == TREE_EVERY - 1
                && let Err(what) = compare_tree(host.scratch.path(), &fs, CLOCK, &mut |_| {})
            {
                panic!("seed {seed}, {name}: {what}, after\n{last}");
            }
        }
        fs.check().unwrap();
    }
    assert!(succeeded > seeds * OPS / 4, "only {succeeded} operations succeeded: the test tests little");
}

/// Can files there have a range zeroed?
fn zeroes(base: &HostPath) -> bool {
    use rustix::fs::{FallocateFlags, fallocate};
    let scratch = Scratch::new(Some(base)).unwrap();
    let file = std::fs::File::create(scratch.path().join("f")).unwrap();
    fallocate(file, FallocateFlags::ZERO_RANGE, 0, 4096).is_ok()
}

/// What every local file system can do.
fn modest() -> Profile {
    let calls = Calls { zero: zeroes(&std::env::temp_dir()), ..Calls::ALL };
    Profile { size_max: 1 << 40, xattr_value_max: 100, xattr_names: 4, calls, ..Profile::default() }
}

/// tmpfs: files to 8 EiB and extended attributes to 64 KiB.
#[test]
fn agrees_with_tmpfs() {
    let base = HostPath::new("/dev/shm");
    let calls = Calls { zero: zeroes(base), ..Calls::ALL };
    // The total of one inode is a limit of Skep, so the histories stay below it here.
    let profile = Profile { xattr_names: 12, calls, ..Profile::default() };
    // In files of that size it does not find data (Linux 6.18).
    let blind = Calls { seek: false, ..calls };
    histories(base, "tmpfs", &Profile { calls: blind, ..profile.clone() });
    histories(base, "tmpfs", &Profile { size_max: 1 << 62, ..profile });
}

/// Whatever file system temporary files are on (ext4, xfs, btrfs...).
#[test]
fn agrees_with_the_local_disk() {
    histories(&std::env::temp_dir(), "disk", &modest());
}

type Times = BTreeMap<Ino, ((i64, i64), (i64, i64))>;

/// (mtime, ctime) of everything that has a name or a handle, by the model's numbers.
fn times_of(fs: &Fs, host: &Host) -> Times {
    let mut times = Times::new();
    let mut see = |ino, stat: rustix::fs::Stat| {
        let (m, c) = ((stat.st_mtime, stat.st_mtime_nsec as i64), (stat.st_ctime, stat.st_ctime_nsec as i64));
        times.insert(ino, (m, c));
    };
    let root = host.scratch.path();
    see(Ino::ROOT, rustix::fs::lstat(root).unwrap());
    for (names, ino) in fs.walk() {
        see(ino, rustix::fs::lstat(host_path(root, &names)).unwrap());
    }
    for (handle, ino) in fs.handles() {
        let (m, c) = host.driver.times_of(handle).unwrap();
        times.insert(ino, ((m.secs, m.nanos.into()), (c.secs, c.nanos.into())));
    }
    times
}

/// Waits until the clock that stamps inodes has moved on: a change made now is seen in the times.
fn next_tick(scratch: &HostPath) {
    let stamp = || {
        std::fs::write(scratch, b"x").unwrap();
        let meta = std::fs::metadata(scratch).unwrap();
        (meta.mtime(), meta.mtime_nsec())
    };
    let first = stamp();
    while stamp() <= first {}
}

/// A truncate by path to the size that it has: whether times move is the file system's choice.
fn keeps_size(fs: &Fs, op: &Op) -> bool {
    let Op::Truncate { at: At::Path(path), size, .. } = *op else { return false };
    fs.resolve(path).and_then(|ino| fs.stat(ino)).is_ok_and(|stat| stat.size == size)
}

/// Goal: after every operation, exactly those mtimes and ctimes moved that move in the model; a time
/// that was given is kept to the nanosecond.
#[test]
fn times_move_as_on_linux() {
    // The model's clock stands at the number of the operation, so "moved" means "equals it".
    let base = HostPath::new("/dev/shm");
    let clock = Scratch::new(Some(base)).unwrap();
    let scratch = clock.path().join("tick");
    let calls = Calls { zero: zeroes(base), seek: false, ..Calls::ALL };
    let profile = Profile { xattr_value_max: 100, calls, ..Profile::default() };
    let mut compared = 0;
    for seed in 1_000..1_004 {
        let mut host = Host::new(base);
        let (mut fs, mut generator) = (model(), Generator::new(seed, profile.clone()));
        for number in 1..600 {
            let op = generator.next_op();
            let before = times_of(&fs, &host);
            let vague = keeps_size(&fs, &op);
            next_tick(&scratch);
            let (expected, found) = (fs.apply(&op, call(number)), host.driver.apply(&op));
            assert!(expected.accepts(&found), "seed {seed}, {number}: {op:?}: {expected:?} | {found:?}");
            compared += u64::from(!matches!(expected, Outcome::Failed(_)));
            if vague {
                continue;
            }
            let given = match op {
                Op::Utimens { mtime: Some(SetTime::At(at)), .. } => Some(at),
                _ => None,
            };
            for (ino, (mtime, ctime)) in times_of(&fs, &host) {
                let old = before.get(&ino);
                let attr = fs.getattr(ino).unwrap();
                let moved = |time, old| old != Some(time);
                let now = call(number).now;
                let context = || format!("seed {seed}, {number}: {op:?} -> {expected:?}: {attr:?}");
                assert_eq!(moved(ctime, old.map(|t| t.1)), attr.ctime == now, "ctime, {}", context());
                if given.is_some_and(|at| at == attr.mtime && attr.ctime == now) {
                    assert_eq!(
                        mtime,
                        (attr.mtime.secs, attr.mtime.nanos.into()),
                        "mtime given, {}",
                        context()
                    );
                } else {
                    assert_eq!(moved(mtime, old.map(|t| t.0)), attr.mtime == now, "mtime, {}", context());
                }
            }
        }
    }
    assert!(compared > 600, "only {compared} operations succeeded");
}

/// Goal: the highest offset that Linux addresses works on the host as in the model, by hand.
#[test]
fn the_last_byte_of_eight_exbibytes() {
    let mut host = Host::new(HostPath::new("/dev/shm"));
    let mut fs = model();
    let (path, handle) = (Path::new(&[4]), skep_model::Handle(0));
    let how = skep_model::OpenHow {
        read: true,
        write: true,
        append: false,
        truncate: false,
        create: true,
        exclusive: true,
    };
    let last = i64::MAX as u64 - 1;
    let fill = skep_model::Fill { tag: 9, len: 1 };
    let steps = [
        (Op::Open { path, handle, how, mode: 0o644, kill: false }, Outcome::Done),
        (Op::Write { handle, offset: last, fill, kill: false }, Outcome::Written(1)),
        (Op::Write { handle, offset: last + 1, fill, kill: false }, Outcome::Failed(Errno::EINVAL)),
        (Op::Read { handle, offset: last, len: 1 }, Outcome::Bytes(fill.bytes())),
        (Op::Truncate { at: At::Handle(handle), size: last, kill: false }, Outcome::Done),
        (Op::Read { handle, offset: last - 1, len: 1 }, Outcome::Bytes(vec![0])),
    ];
    for (number, (op, outcome)) in steps.into_iter().enumerate() {
        assert_eq!(fs.apply(&op, call(number as u64)), outcome, "model: {op:?}");
        assert_eq!(host.driver.apply(&op), outcome, "host: {op:?}");
    }
}
