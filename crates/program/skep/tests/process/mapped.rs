//! Shared writable mappings of several processes, and how long paths may be.

use super::{bytes, plan, start};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Adds one to a counter in a shared mapping, under a lock, so often; and writes a pattern of its own.
const COUNTER: &str = r"
import fcntl, mmap, os, struct, sys
path, rounds, place = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
handle = os.open(path, os.O_RDWR)
memory = mmap.mmap(handle, 0, mmap.MAP_SHARED)
for round in range(rounds):
    fcntl.lockf(handle, fcntl.LOCK_EX)
    number, = struct.unpack_from('<Q', memory, 0)
    struct.pack_into('<Q', memory, 0, number + 1)
    fcntl.lockf(handle, fcntl.LOCK_UN)
    memory[place + round] = 65 + round % 26
memory.flush()
";

/// Goal: what one process writes into a shared mapping the other one sees at once, in small files of the page
/// cache and in streams past it; everything is in the file afterwards, for another mount too.
#[test]
fn two_processes_share_memory() {
    const ROUNDS: usize = 300;
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    for (name, len) in [("inline", 8_000usize), ("stream", 3 << 20)] {
        let path = cluster.mount().join(name);
        fs::write(&path, vec![0; len]).unwrap();
        let counters: Vec<_> = [4_096usize, 6_000]
            .map(|place| {
                let mut command = Command::new("python3");
                let (rounds, place) = (ROUNDS.to_string(), place.to_string());
                command.args(["-c", COUNTER]).arg(&path).args([&rounds, &place]);
                command.stderr(Stdio::inherit()).spawn().expect("python3 is missing: apt-get install python3")
            })
            .into();
        for mut counter in counters {
            assert!(counter.wait().unwrap().success());
        }
        for mount in [cluster.mount(), &second] {
            let found = fs::read(mount.join(name)).unwrap();
            assert_eq!(found.len(), len);
            assert_eq!(u64::from_le_bytes(found[..8].try_into().unwrap()), 2 * ROUNDS as u64, "{name}");
            let pattern: Vec<u8> = (0..ROUNDS).map(|round| 65 + (round % 26) as u8).collect();
            assert!(found[4_096..][..ROUNDS] == pattern && found[6_000..][..ROUNDS] == pattern, "{name}");
        }
    }
}

/// Goal: a file that grows after it was mapped shows its new end through the same mapping, when this was made
/// long enough.
#[test]
#[allow(unsafe_code)]
fn a_file_grows_under_its_mapping() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    const LONG: usize = 4 << 20;
    let cluster = start(plan());
    for start_len in [100usize, 1 << 20] {
        let path = cluster.mount().join(format!("grows-{start_len}"));
        fs::write(&path, bytes(1, start_len)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: the mapping is used within this block only, within the file's length of the moment, and
        // nothing else in this process maps the file.
        unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap(std::ptr::null_mut(), LONG, protection, MapFlags::SHARED, &file, 0).unwrap();
            let memory = std::slice::from_raw_parts_mut(map.cast::<u8>(), LONG);
            assert!(memory[..start_len] == bytes(1, start_len));
            file.set_len(LONG as u64).unwrap();
            assert!(memory[start_len..].iter().all(|byte| *byte == 0));
            memory[LONG - 5..].copy_from_slice(b"grown");
            msync(map, LONG, MsyncFlags::SYNC).unwrap();
            munmap(map, LONG).unwrap();
        }
        let found = fs::read(&path).unwrap();
        assert!(found[..start_len] == bytes(1, start_len) && found.ends_with(b"\0grown"));
    }
}

/// Goal: names of 255 bytes and paths of 4,095 are used; one more is ENAMETOOLONG.
#[test]
fn long_names_and_paths() {
    const PATH_MAX: usize = 4_095;
    let cluster = start(plan());
    let name = |len: usize| "n".repeat(len);
    let too_long = File::create(cluster.mount().join(name(256))).unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
    let mut path: PathBuf = cluster.mount().to_owned();
    while path.as_os_str().len() + 256 + 2 <= PATH_MAX {
        path.push(name(255));
        fs::create_dir(&path).unwrap();
    }
    let rest = PATH_MAX - path.as_os_str().len() - 1;
    let longest = path.join(name(rest));
    assert_eq!(longest.as_os_str().len(), PATH_MAX);
    File::create(&longest).unwrap().write_all(b"deep").unwrap();
    assert_eq!(fs::read(&longest).unwrap(), b"deep");
    fs::rename(&longest, cluster.mount().join("up")).unwrap();
    fs::rename(cluster.mount().join("up"), &longest).unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    let over = File::open(path.join(name(rest.min(254) + 1))).unwrap_err();
    assert_eq!(over.raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
    std::os::unix::fs::symlink(name(4_000), cluster.mount().join("link")).unwrap();
    assert_eq!(fs::read_link(cluster.mount().join("link")).unwrap().as_os_str().len(), 4_000);
}
