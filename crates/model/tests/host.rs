//! Goal: the oracle is right. Generated histories are carried out in the model and on the file systems of
//! this machine; every outcome, and at intervals the whole tree, must agree.
#![allow(clippy::unwrap_used)]

mod driver;

use driver::{Host, is_privileged, stat_of};
use skep_model::{At, Call, Fs, Generator, Op, Outcome, Path, Profile};
use skep_types::{Errno, Ino, Kind, Name, SetTime, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path as HostPath, PathBuf};

/// Operations of one history.
const OPS: u64 = 2_000;
/// Histories per file system; more with `SKEP_MODEL_SEEDS=N` in the environment.
const SEEDS: u64 = 40;
/// The whole tree is compared every so many operations.
const TREE_EVERY: u64 = 250;

fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

fn call(number: u64) -> Call {
    let (uid, gid) = owner();
    Call { now: Timestamp { secs: number as i64, nanos: 0 }, ino: Ino(number + 2), uid, gid }
}

fn model() -> Fs {
    let (uid, gid) = owner();
    Fs::new(0o755, uid, gid, call(0).now)
}

fn host_path(root: &HostPath, names: &[Name]) -> PathBuf {
    names.iter().fold(root.into(), |path: PathBuf, name| path.join(OsStr::from_bytes(name.as_bytes())))
}

/// Attributes, targets, hard links and every byte that is not a hole.
fn compare_trees(fs: &Fs, host: &Host) -> Result<(), String> {
    let mut numbers: BTreeMap<Ino, u64> = BTreeMap::new();
    for (names, ino) in fs.walk() {
        let path = host_path(&host.root, &names);
        let stat = rustix::fs::lstat(&path).map_err(|e| format!("{path:?}: {e}"))?;
        let expected = fs.stat(ino).map_err(|e| format!("{path:?}: {e}"))?;
        if stat_of(&stat) != expected {
            return Err(format!("{path:?}: model {expected:?}, host {:?}", stat_of(&stat)));
        }
        if *numbers.entry(ino).or_insert(stat.st_ino) != stat.st_ino {
            return Err(format!("{path:?} is a hard link to another file"));
        }
        match expected.kind {
            Kind::File => compare_bytes(fs, ino, &path)?,
            Kind::Symlink => {
                let target = std::fs::read_link(&path).map_err(|e| format!("{path:?}: {e}"))?;
                if Ok(target.as_os_str().as_bytes()) != fs.readlink(ino).as_deref() {
                    return Err(format!("{path:?} has another target"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn compare_bytes(fs: &Fs, ino: Ino, path: &HostPath) -> Result<(), String> {
    let file = std::fs::File::open(path).map_err(|e| format!("{path:?}: {e}"))?;
    let content = fs.content(ino).map_err(|e| format!("{path:?}: {e}"))?;
    for (offset, len) in content.probes() {
        let mut found = vec![0; len as usize];
        file.read_exact_at(&mut found, offset).map_err(|e| format!("{path:?} at {offset}: {e}"))?;
        let expected = content.read(offset, len as usize);
        if let Some(at) = found.iter().zip(&expected).position(|(x, y)| x != y) {
            return Err(format!("{path:?}: byte {} differs", offset + at as u64));
        }
    }
    Ok(())
}

/// Runs histories in both; panics with seed, position and the operations before the first difference.
fn histories(base: &HostPath, name: &str, profile: &Profile) {
    let mut succeeded = 0;
    let seeds =
        std::env::var("SKEP_MODEL_SEEDS").map_or(SEEDS, |text| text.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let mut host = Host::new(base, &format!("{name}-{seed}"));
        let (mut fs, mut generator) = (model(), Generator::new(seed, profile.clone()));
        let mut past: Vec<String> = Vec::new();
        for number in 0..OPS {
            let op = generator.next_op();
            let (expected, found) = (fs.apply(&op, call(number)), host.run(&op));
            past.push(format!("{number}: {op:?} -> {expected:?}"));
            let last = past[past.len().saturating_sub(25)..].join("\n");
            assert_eq!(expected, found, "seed {seed}: model left, {name} right, after\n{last}");
            succeeded += u64::from(!matches!(expected, Outcome::Failed(_)));
            if number % TREE_EVERY == TREE_EVERY - 1
                && let Err(what) = compare_trees(&fs, &host)
            {
                panic!("seed {seed}, {name}: {what}, after\n{last}");
            }
        }
        fs.check().unwrap();
    }
    assert!(succeeded > seeds * OPS / 4, "only {succeeded} operations succeeded: the test tests little");
}

/// What every local file system can do.
fn modest() -> Profile {
    Profile {
        size_max: 1 << 40,
        xattr_value_max: 100,
        xattr_names: 4,
        privileged: is_privileged(),
        ..Profile::default()
    }
}

/// tmpfs: files to 8 EiB and extended attributes to 64 KiB.
#[test]
fn agrees_with_tmpfs() {
    // The total of one inode is a limit of Skep, so the histories stay below it here.
    let profile = Profile { xattr_names: 12, privileged: is_privileged(), ..Profile::default() };
    histories(HostPath::new("/dev/shm"), "tmpfs", &profile);
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
    see(Ino::ROOT, rustix::fs::lstat(&host.root).unwrap());
    for (names, ino) in fs.walk() {
        see(ino, rustix::fs::lstat(host_path(&host.root, &names)).unwrap());
    }
    for (handle, ino) in fs.handles() {
        see(ino, host.stat_handle(handle).unwrap());
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

/// Goal: after every operation, exactly those mtimes and ctimes moved that move in the model; a time
/// that was given is kept to the nanosecond.
#[test]
fn times_move_as_on_linux() {
    // The model's clock stands at the number of the operation, so "moved" means "equals it".
    let base = HostPath::new("/dev/shm");
    let clock = Host::new(base, "clock");
    let scratch = clock.root.join("tick");
    let profile = Profile { xattr_value_max: 100, privileged: is_privileged(), ..Profile::default() };
    let mut compared = 0;
    for seed in 1_000..1_004 {
        let mut host = Host::new(base, &format!("times-{seed}"));
        let (mut fs, mut generator) = (model(), Generator::new(seed, profile.clone()));
        for number in 1..600 {
            let op = generator.next_op();
            let before = times_of(&fs, &host);
            next_tick(&scratch);
            let (expected, found) = (fs.apply(&op, call(number)), host.run(&op));
            assert_eq!(expected, found, "seed {seed}, {number}: {op:?}");
            compared += u64::from(!matches!(expected, Outcome::Failed(_)));
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
    let mut host = Host::new(HostPath::new("/dev/shm"), "sparse");
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
        assert_eq!(host.run(&op), outcome, "host: {op:?}");
    }
}
