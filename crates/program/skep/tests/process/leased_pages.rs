//! Files that are read through the kernel's pages while a lease covers them: no message as long as nobody writes, and nothing old from
//! the moment on when somebody does.

use super::http::{metrics, ports};
use super::{Running, bytes, plan, start};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use skep_rig::{PATIENCE, until};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const TRANSPORTS: [&str; 2] = ["uring", "dev"];

/// Two mounts; what the second one writes is in chunks from 64 KiB on.
fn two_mounts(transport: &str) -> (Running, PathBuf, PathBuf) {
    let plan = plan().with("SKEP_MOUNT_TRANSPORT", transport).with("SKEP_MOUNT_LEASED_PAGES", "on");
    let cluster = start(plan);
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let first = cluster.mount().to_owned();
    (cluster, first, second)
}

/// Messages of this kind that the first mount's kernel has sent.
fn sent(cluster: &Running, operation: &str) -> f64 {
    let mount = metrics(ports(cluster)["mount"]);
    mount.value("skep_mount_fuse_requests_total", &[("operation", operation)]).unwrap_or(0.0)
}

fn both(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn content(file: &File, room: usize) -> Vec<u8> {
    let mut bytes = vec![0; room];
    let mut end = 0;
    loop {
        match file.read_at(&mut bytes[end..], end as u64).unwrap() {
            0 => break,
            n => end += n,
        }
    }
    bytes.truncate(end);
    bytes
}

/// Opens it to read when a lease covers it: read again, it asks nothing more of the mount.
fn opened_covered(cluster: &Running, path: &Path, room: usize) -> File {
    let opened = std::cell::RefCell::new(None);
    until(&format!("{} is read without a message", path.display()), PATIENCE, || {
        fs::metadata(path).unwrap();
        let file = File::open(path).unwrap();
        content(&file, room);
        content(&file, room);
        let before = sent(cluster, "read") + sent(cluster, "getattr");
        content(&file, room);
        let asked = sent(cluster, "read") + sent(cluster, "getattr") - before;
        opened.replace(Some(file));
        if asked == 0.0 { Ok(()) } else { Err(format!("{asked} messages")) }
    })
    .unwrap();
    assert!(sent(cluster, "read") > 0.0 && sent(cluster, "getattr") > 0.0, "that is what they are called");
    opened.into_inner().unwrap()
}

/// Goal: who has a file open reads it again without a message, in the metadata and in chunks; and sees each overwrite, append and
/// truncate of another mount when its call has returned, whether that keeps the file open or not, over both transports.
#[test]
fn a_kept_handle_sees_each_change() {
    for transport in TRANSPORTS {
        let (cluster, first, second) = two_mounts(transport);
        for (name, len) in [("small", 5_000), ("chunks", 300_000)] {
            let mut expected = bytes(1, len);
            fs::write(second.join(name), &expected).unwrap();
            let reader = opened_covered(&cluster, &first.join(name), 2 * len);
            assert!(content(&reader, 2 * len) == expected, "{transport}, {name}");
            let kept = both(&second.join(name));
            for round in 0..60u32 {
                let again = if round % 3 == 2 { Some(both(&second.join(name))) } else { None };
                let writer = again.as_ref().unwrap_or(&kept);
                let piece = bytes(round + 7, 900);
                match round % 4 {
                    0 => {
                        writer.write_all_at(&piece, 100).unwrap();
                        expected[100..1_000].copy_from_slice(&piece);
                    }
                    1 => {
                        writer.write_all_at(&piece, expected.len() as u64).unwrap();
                        expected.extend_from_slice(&piece);
                    }
                    2 => {
                        let at = expected.len() - 1_200;
                        writer.write_all_at(&piece, at as u64).unwrap();
                        expected[at..at + 900].copy_from_slice(&piece);
                    }
                    _ => {
                        let end = expected.len() - 1_000;
                        writer.set_len(end as u64).unwrap();
                        expected.truncate(end);
                    }
                }
                drop(again);
                let found = content(&reader, 2 * len);
                assert!(
                    found == expected,
                    "{transport}, {name}, round {round}: {} of {} bytes, {:?}",
                    found.len(),
                    expected.len(),
                    found.iter().zip(&expected).position(|(found, wanted)| found != wanted)
                );
            }
            drop(kept);
            // By the handle that saw all of that, when it is covered again.
            until("it is read without a message again", PATIENCE, || {
                fs::metadata(first.join(name)).unwrap();
                let before = sent(&cluster, "read");
                assert!(content(&reader, 2 * len) == expected, "{transport}, {name}");
                assert!(content(&reader, 2 * len) == expected, "{transport}, {name}");
                let asked = sent(&cluster, "read") - before;
                if asked == 0.0 { Ok(()) } else { Err(format!("{asked} READs")) }
            })
            .unwrap();
        }
    }
}

/// Goal: pages that a program stores into stay where they are, and are not written back one by one, when somebody looks at the file
/// after a write-back has moved its time; who looks is shown that.
#[test]
#[allow(unsafe_code)]
fn stored_pages_stay_when_somebody_looks() {
    const PAGE: usize = 4096;
    const PAGES: usize = 256;
    const LEN: usize = PAGES * PAGE;
    for transport in TRANSPORTS {
        let (cluster, first, _second) = two_mounts(transport);
        let path = first.join("mapped");
        fs::write(&path, vec![1; LEN]).unwrap();
        let file = both(&path);
        // SAFETY: the mapping is used within this block only, within the file's length; only this test uses the file.
        unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, &file, 0).unwrap();
            let store = |byte: u8| {
                (0..PAGES).for_each(|page| map.cast::<u8>().add(page * PAGE).write_volatile(byte));
            };
            store(2);
            msync(map, LEN, MsyncFlags::SYNC).unwrap();
            let mut time = fs::metadata(&path).unwrap().modified().unwrap();
            let (reads, writes) = (sent(&cluster, "read"), sent(&cluster, "write"));
            for round in 3..9 {
                store(round);
                // One page goes to the file, and its time with it; all others wait.
                msync(map, PAGE, MsyncFlags::SYNC).unwrap();
                let seen = fs::metadata(&path).unwrap().modified().unwrap();
                assert!(seen > time, "{transport}: its time has moved");
                time = seen;
                file.metadata().unwrap();
                for entry in fs::read_dir(&first).unwrap() {
                    entry.unwrap().metadata().unwrap();
                }
            }
            let (reads, writes) = (sent(&cluster, "read") - reads, sent(&cluster, "write") - writes);
            assert_eq!(reads, 0.0, "{transport}: a page was dropped, and filled again");
            assert!(writes < 60.0, "{transport}: {writes} WRITEs");
            munmap(map, LEN).unwrap();
        }
        drop(file);
        let found = fs::read(&path).unwrap();
        assert!((0..PAGES).all(|page| found[page * PAGE] == 8), "{transport}");
    }
}
