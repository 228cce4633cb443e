//! What the kernels of two mounts keep of the same file: never bytes that nobody wrote, never old ones under a lock or
//! after an open, and no write beside a mapping is lost.

use super::{Running, plan, start};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn two_mounts() -> (Running, PathBuf, PathBuf) {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let first = cluster.mount().to_owned();
    (cluster, first, second)
}

fn appending(path: &Path) -> File {
    File::options().append(true).create(true).open(path).unwrap()
}

fn both(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 100_000];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

/// Changes one byte of a shared mapping of the first page, and calls `between` with the page mapped and read.
#[allow(unsafe_code)]
fn store(file: &File, at: usize, byte: u8, between: impl FnOnce()) {
    const PAGE: usize = 4096;
    // SAFETY: the mapping is used within this block only, within the file's first page, which is there.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = mmap(std::ptr::null_mut(), PAGE, protection, MapFlags::SHARED, file, 0).unwrap();
        let place = map.cast::<u8>().add(at);
        assert_ne!(place.read_volatile(), byte);
        between();
        place.write_volatile(byte);
        msync(map, PAGE, MsyncFlags::SYNC).unwrap();
        munmap(map, PAGE).unwrap();
    }
}

/// Goal: a file that another mount makes longer is never shown with zeros that nobody wrote, whatever tells this
/// mount's kernel of the new size: fstat, stat, a listing, an own write or truncate behind the new end.
#[test]
fn growth_elsewhere_shows_no_zeros() {
    let (_cluster, first, second) = two_mounts();
    type Tell = fn(&File, &Path);
    let ways: [(&str, Tell); 5] = [
        ("fstat", |file, _| assert!(file.metadata().unwrap().is_file())),
        ("stat", |_, path| assert!(fs::metadata(path).unwrap().is_file())),
        ("list", |_, path| {
            let listed = fs::read_dir(path.parent().unwrap()).unwrap();
            assert!(listed.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>() > 0);
        }),
        ("write", |_, path| both(path).write_all_at(b"end", 9_500).unwrap()),
        ("truncate", |_, path| both(path).set_len(9_500).unwrap()),
    ];
    for (name, tell) in ways {
        fs::create_dir(first.join(name)).unwrap();
        let (here, there) = (first.join(name).join("log"), second.join(name).join("log"));
        let mut writer = appending(&here);
        let mut expected = Vec::new();
        let mut line = |writer: &mut File, len: usize| {
            let line = vec![b'a' + (expected.len() % 26) as u8; len];
            writer.write_all(&line).unwrap();
            expected.extend_from_slice(&line);
            expected.clone()
        };
        line(&mut writer, 7);
        let reader = File::open(&there).unwrap();
        assert_eq!(content(&reader).len(), 7);
        for len in [7, 100, 3_000, 1, 6_000] {
            let expected = line(&mut writer, len);
            tell(&reader, &there);
            let found = content(&reader);
            let end = expected.len().min(found.len());
            assert!(end >= 7 && found[..end] == expected[..end], "{name}, after {len} bytes more");
            if name == "write" || name == "truncate" {
                break;
            }
            assert_eq!(found.len(), expected.len(), "{name}");
        }
    }
}

/// Goal: a size that a program is told is the kernel's as well, though old pages go before it is told: the end that
/// SEEK_END finds, and what may be touched of a mapping behind the old end.
#[test]
#[allow(unsafe_code)]
fn growth_elsewhere_is_believed() {
    const LONG: usize = 16 * 4096;
    let (_cluster, first, second) = two_mounts();
    let mut writer = appending(&first.join("log"));
    writer.write_all(b"line 0\n").unwrap();
    let mut reader = both(&second.join("log"));
    // SAFETY: the mapping is used within this block only, within the file's length of the moment.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = mmap(std::ptr::null_mut(), LONG, protection, MapFlags::SHARED, &reader, 0).unwrap();
        let byte = |at: usize| map.cast::<u8>().add(at).read_volatile();
        let mut end = 7;
        for round in 0..16usize {
            assert_ne!(byte(end - 1), 0);
            let more = if round % 3 == 0 { 6_000 } else { 70 };
            writer.write_all(&vec![b'a' + round as u8; more]).unwrap();
            end += more;
            match round % 2 {
                0 => assert_eq!(reader.seek(SeekFrom::End(0)).unwrap(), end as u64, "round {round}"),
                _ => assert_eq!(reader.metadata().unwrap().len(), end as u64),
            }
            assert_eq!(byte(end - 1), b'a' + round as u8);
        }
        munmap(map, LONG).unwrap();
    }
}

/// Goal: `tail -f` on one mount prints what another mount writes, byte by byte, from the metadata into chunks, whether it
/// appends or writes at offsets.
#[test]
fn tail_follows_another_mount() {
    let (_cluster, first, second) = two_mounts();
    follow(appending(&first.join("appended")), &second.join("appended"));
    follow(File::create_new(first.join("written")).unwrap(), &second.join("written"));
}

/// Goal: who only reads, and never looks how long the file is, sees what another mount has added when its call returns; from
/// an empty file on, out of the metadata into chunks, in a directory that nobody and that everybody changes.
#[test]
fn who_only_reads_sees_what_another_mount_adds() {
    let (_cluster, first, second) = two_mounts();
    // What is small when it is opened is read through the kernel's pages.
    for (name, is_changed, small) in
        [("calm", false, 0), ("changed", true, 0), ("small", false, 3_000), ("both", true, 10)]
    {
        let mut writer = appending(&first.join(name));
        writer.write_all(&vec![b's'; small]).unwrap();
        let mut reader = File::open(second.join(name)).unwrap();
        reader.read_exact(&mut vec![0; small]).unwrap();
        let mut expected = Vec::new();
        for number in 0..60usize {
            let line =
                [format!("line {number} ").into_bytes(), vec![b'x'; number * 20], b"\n".to_vec()].concat();
            writer.write_all(&line).unwrap();
            expected.extend_from_slice(&line);
            let mut found = Vec::new();
            let mut piece = [0; 4_000];
            loop {
                match reader.read(&mut piece).unwrap() {
                    0 => break,
                    n => found.extend_from_slice(&piece[..n]),
                }
            }
            assert!(found == line, "{name}, line {number}: {} of {} bytes", found.len(), line.len());
            if is_changed {
                File::create_new(second.join(format!("{name}-beside-{number}"))).unwrap();
            }
        }
        drop(writer);
        assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
    }
}

/// Writes lines through `writer`; `tail -f` of the same file elsewhere must print them.
fn follow(mut writer: File, there: &Path) {
    writer.write_all(b"line 0\n").unwrap();
    let mut tail = Command::new("tail");
    tail.args(["-f", "-n", "+1", "-s", "0.02"]).arg(there).stdout(Stdio::piped());
    let mut tail = tail.spawn().unwrap();
    let mut expected = b"line 0\n".to_vec();
    let mut printed = tail.stdout.take().unwrap();
    let mut found = vec![0; expected.len()];
    printed.read_exact(&mut found).unwrap();
    for number in 1..40usize {
        let line = [format!("line {number} ").into_bytes(), vec![b'x'; number * 20], b"\n".to_vec()].concat();
        writer.write_all(&line).unwrap();
        let mut next = vec![0; line.len()];
        printed.read_exact(&mut next).unwrap();
        expected.extend_from_slice(&line);
        found.extend_from_slice(&next);
        assert!(
            found == expected,
            "{}, line {number}: {}",
            there.display(),
            next[..next.len().min(60)].escape_ascii()
        );
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// Goal: a byte stored into a shared mapping takes nothing away that another mount appended to the same page, whether
/// the kernel heard of the new size before or after the store.
#[test]
fn a_mapped_store_keeps_what_was_appended_elsewhere() {
    let (_cluster, first, second) = two_mounts();
    for heard_before in [true, false] {
        let name = format!("mapped-{heard_before}");
        let mut writer = appending(&first.join(&name));
        writer.write_all(b"line 0\n").unwrap();
        let mapped = both(&second.join(&name));
        store(&mapped, 0, b'L', || {
            writer.write_all(b"line 1\n").unwrap();
            if heard_before {
                assert_eq!(mapped.metadata().unwrap().len(), 14);
            }
        });
        mapped.metadata().unwrap();
        store(&mapped, 1, b'I', || writer.write_all(b"line 2\n").unwrap());
        assert_eq!(mapped.metadata().unwrap().len(), 21);
        drop((writer, mapped));
        for mount in [&first, &second] {
            let found = fs::read(mount.join(&name)).unwrap();
            assert_eq!(found, b"LIne 0\nline 1\nline 2\n", "{}", found.escape_ascii());
        }
    }
}

/// What the scripts have in common: `ready(path)` gives memory that child processes share.
const SHARED: &str = r"
import fcntl, mmap, os, struct, sys
memory = mmap.mmap(-1, 4096)
get = lambda at: struct.unpack_from('<q', memory, at)[0]
def put(at, value): memory[at:at + 8] = struct.pack('<q', value)
def children(count, work):
    pids = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            try: work(number)
            finally: os._exit(1)
        pids.append(pid)
    return pids
";

/// Two processes on two mounts add one to a number under a lock; others only open and close the file meanwhile.
const LOCKED: &str = r"
first, second, rounds, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
paths = [first, second]
write_lock, unlock = ((struct.pack('hhqqi4x', how, 0, 0, 0, 0)) for how in (fcntl.F_WRLCK, fcntl.F_UNLCK))
open(first, 'w').write('0'.rjust(12))
def opens(number):
    while True: os.close(os.open(paths[number % 2], os.O_RDONLY))
def take(file, how):
    if kind == 'flock': fcntl.flock(file, how)
    elif kind == 'lockf': fcntl.lockf(file, how)
    else: fcntl.fcntl(file, 38, write_lock if how == fcntl.LOCK_EX else unlock)
def adds(number):
    file, stale = os.open(paths[number], os.O_RDWR), 0
    for _ in range(rounds):
        take(file, fcntl.LOCK_EX)
        true, found = get(0), int(os.pread(file, 12, 0))
        if found != true:
            stale += 1
            print(f'{kind}: {found} was read under the lock, {true} was written', flush=True)
        os.pwrite(file, str(true + 1).rjust(12).encode(), 0)
        put(0, true + 1)
        take(file, fcntl.LOCK_UN)
    os._exit(3 if stale else 0)
openers = children(2, opens)
failed = [os.waitpid(pid, 0)[1] for pid in children(2, adds)]
for pid in openers:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
end = [int(open(path).read()) for path in paths]
if any(failed) or end != [2 * rounds] * 2: sys.exit(f'{failed} {end}')
";

/// A process rewrites a small file and closes it; then others on the other mount open it at the same moment.
const OPENED: &str = r"
path, writer, rounds, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), 3
open(writer, 'w').write('%011d\n' % 0)
def reads(number):
    stale, last = 0, 0
    while True:
        now = get(0)
        if now < 0: os._exit(3 if stale else 0)
        if now == last: continue
        last = now
        file = os.open(path, os.O_RDONLY)
        found = int(os.pread(file, 12, 0))
        os.close(file)
        if found != now:
            stale += 1
            print(f'reader {number}: {found} instead of {now}', flush=True)
        put(64 + 8 * number, now)
pids = children(count, reads)
for now in range(1, rounds + 1):
    with open(writer, 'r+') as file: file.write('%011d\n' % now)
    put(0, now)
    while any(get(64 + 8 * number) != now for number in range(count)): os.sched_yield()
put(0, -1)
failed = [os.waitpid(pid, 0)[1] for pid in pids]
if any(failed): sys.exit(f'{failed}')
";

/// Runs a script to its end, which must come in time and be a good one.
fn python(script: &str, words: &[&str]) {
    let mut command = Command::new("timeout");
    command.args(["300", "python3", "-c", &format!("{SHARED}{script}")]).args(words);
    let status = command.status().expect("timeout is missing: apt-get install coreutils");
    assert!(status.success(), "{status} (124: not done in time; 127: python3 is missing)");
}

/// Goal: who holds a lock reads what was written under it before, though others open the file at any moment.
#[test]
fn locks_hold_beside_opens() {
    let (_cluster, first, second) = two_mounts();
    for kind in ["flock", "lockf", "ofd"] {
        let (here, there) = (first.join(kind), second.join(kind));
        let words = [here.to_str().unwrap(), there.to_str().unwrap(), "1000", kind];
        python(LOCKED, &words);
    }
}

/// Goal: each of several opens at the same moment sees what was closed on the other mount before.
#[test]
fn opens_at_the_same_moment_see_the_last_close() {
    let (_cluster, first, second) = two_mounts();
    for (here, there) in [(&first, &second), (&second, &first)] {
        let (path, writer) = (here.join("file"), there.join("file"));
        let words = [path.to_str().unwrap(), writer.to_str().unwrap(), "1000"];
        python(OPENED, &words);
    }
}

/// Goal: of writes and stores into a shared mapping of the same pages, at the same time in one mount, none is lost.
#[test]
#[allow(unsafe_code)]
fn writes_beside_a_mapping_are_kept() {
    const PAGES: usize = 512;
    const LEN: usize = PAGES * 4096;
    let cluster = start(plan());
    for round in 0..12 {
        let path = cluster.mount().join(format!("mapped-{round}"));
        fs::write(&path, b"").unwrap();
        let file = both(&path);
        file.set_len(LEN as u64).unwrap();
        let number = |page: usize| (page as u32 + 1).to_le_bytes();
        // SAFETY: the mapping is used within this block only, within the file's length; only this test uses the file.
        unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, &file, 0).unwrap();
            let address = map as usize;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for page in 0..PAGES {
                        let place = (address + page * 4096 + 100) as *mut [u8; 4];
                        place.write_volatile(number(page));
                    }
                });
                scope.spawn(|| {
                    for page in 0..PAGES {
                        file.write_all_at(&number(page), page as u64 * 4096 + 2_000).unwrap();
                    }
                });
            });
            msync(map, LEN, MsyncFlags::SYNC).unwrap();
            munmap(map, LEN).unwrap();
        }
        let found = fs::read(&path).unwrap();
        let lost =
            |at: usize| (0..PAGES).filter(|page| found[page * 4096 + at..][..4] != number(*page)).count();
        assert_eq!((lost(2_000), lost(100)), (0, 0), "writes and stores lost in round {round}");
    }
}
