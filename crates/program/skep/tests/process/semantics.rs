//! System calls at their borders, over one mount.

use super::{bytes, plan, start};
use rustix::fs::{FallocateFlags, OFlags, XattrFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

fn new_file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
}

fn flagged(path: &Path, flags: OFlags) -> File {
    let flags = flags.bits() as i32;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
        .unwrap()
}

/// Goal: the highest byte that Linux addresses is written and read back beside a hole of 8 EiB, which
/// takes no space; nothing is left after its deletion.
#[test]
fn the_last_byte_of_eight_exbibytes() {
    let cluster = start(plan());
    let path = cluster.mount().join("sparse");
    let file = new_file(&path);
    let last = i64::MAX as u64 - 1;
    file.write_all_at(b"end", 100).unwrap();
    file.write_all_at(b"z", last).unwrap();
    file.sync_all().unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), last + 1);
    assert!(meta.blocks() < 100_000, "{} blocks", meta.blocks());
    let mut byte = [7; 1];
    assert_eq!(file.read_at(&mut byte, last).unwrap(), 1);
    assert_eq!(byte, *b"z");
    for hole in [last - 1, 1 << 40, 1 << 62, 5 << 20] {
        assert_eq!(file.read_at(&mut byte, hole).unwrap(), 1);
        assert_eq!(byte, [0], "at {hole}");
    }
    file.set_len(103).unwrap();
    file.set_len(1 << 50).unwrap();
    assert_eq!(file.read_at(&mut byte, last & !(1 << 62)).unwrap_or(0), 0);
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 50);
    drop(file);
    fs::remove_file(&path).unwrap();
    super::deletion::nothing_left(&cluster);
}

/// Goal: shared mappings reach the file and private ones do not, for inline and striped files.
#[test]
#[allow(unsafe_code)]
fn memory_maps() {
    let cluster = start(plan());
    for len in [5_000usize, 3 << 20] {
        let path = cluster.mount().join(format!("mapped-{len}"));
        let content = bytes(3, len);
        fs::write(&path, &content).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        for (flags, reaches) in [(MapFlags::PRIVATE, false), (MapFlags::SHARED, true)] {
            // SAFETY: the mapping is as long as the file, nothing else maps it, and it is used only
            // within this block, before munmap.
            unsafe {
                let map = mmap(std::ptr::null_mut(), len, protection, flags, &file, 0).unwrap();
                let memory = std::slice::from_raw_parts_mut(map.cast::<u8>(), len);
                assert!(memory == &content[..], "{len} bytes mapped");
                memory[len - 10..len - 3].copy_from_slice(b"changed");
                if reaches {
                    msync(map, len, MsyncFlags::SYNC).unwrap();
                }
                munmap(map, len).unwrap();
            }
            let found = fs::read(&path).unwrap();
            assert_eq!(found[len - 10..len - 3] == *b"changed", reaches);
            assert!(found[..len - 10] == content[..len - 10]);
        }
    }
}

/// Goal: an extended attribute of 64 KiB is kept byte by byte, also over a restart of the metad.
#[test]
fn large_extended_attributes() {
    let cluster = start(plan());
    let path = cluster.mount().join("f");
    File::create(&path).unwrap();
    let value = bytes(5, 65_536);
    rustix::fs::setxattr(&path, "user.large", &value, XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
    for _ in 0..2 {
        let mut found = vec![0; 70_000];
        let len = rustix::fs::getxattr(&path, "user.large", &mut found[..]).unwrap();
        assert!(found[..len] == value);
        assert_eq!(rustix::fs::getxattr_query(&path, "user.empty").unwrap(), 0);
        cluster.one("metad").unwrap().kill().unwrap();
        cluster.up().unwrap();
    }
    let too_long = vec![1; 65_537];
    assert!(rustix::fs::setxattr(&path, "user.longer", &too_long, XattrFlags::empty()).is_err());
}

/// Goal: who asks for the label of a file that has none hears that there are no labels, and asks no further; one that was set,
/// by whoever copies files with all that they have, is kept. What else is missing is missing.
#[test]
fn absent_labels_are_not_supported() {
    let cluster = start(plan());
    let path = cluster.mount().join("f");
    File::create(&path).unwrap();
    let get = |name| rustix::fs::getxattr(&path, name, &mut [0; 64]).map_err(|e| e.raw_os_error());
    let (not_supported, no_data) = (Errno::OPNOTSUPP.raw_os_error(), Errno::NODATA.raw_os_error());
    assert_eq!(get("security.selinux"), Err(not_supported));
    assert_eq!((get("security.other"), get("user.other")), (Err(no_data), Err(no_data)));
    rustix::fs::setxattr(&path, "security.selinux", b"label", XattrFlags::empty()).unwrap();
    assert_eq!(get("security.selinux"), Ok(5));
}

/// Goal: punching makes zeros and keeps the size, keep-size allocation keeps it, in and beyond inline.
#[test]
fn fallocate_punches_and_keeps_sizes() {
    let cluster = start(plan());
    for len in [6_000u64, 5 << 20] {
        let path = cluster.mount().join(format!("f{len}"));
        let file = new_file(&path);
        let mut content = bytes(6, len as usize);
        file.write_all_at(&content, 0).unwrap();
        let (start, hole) = (len / 3, len / 2);
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, hole).unwrap();
        content[start as usize..(start + hole) as usize].fill(0);
        fallocate(&file, FallocateFlags::KEEP_SIZE, len, 100_000).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), len);
        assert!(fs::read(&path).unwrap() == content, "{len} bytes");
    }
}

/// Goal: O_DIRECT with aligned buffers and O_SYNC move the same bytes as everything else, and what was
/// written with O_SYNC is there after a kill of all servers and the mount.
#[test]
fn direct_and_synchronous_files() {
    let cluster = start(plan());
    let content = bytes(7, 2 << 20);
    let direct = flagged(&cluster.mount().join("direct"), OFlags::DIRECT);
    let mut memory = vec![0; content.len() + 4_096];
    let shift = memory.as_ptr().align_offset(4_096);
    memory[shift..shift + content.len()].copy_from_slice(&content);
    direct.write_all_at(&memory[shift..shift + content.len()], 0).unwrap();
    assert!(fs::read(cluster.mount().join("direct")).unwrap() == content);
    memory.fill(0);
    direct.read_exact_at(&mut memory[shift..shift + content.len()], 0).unwrap();
    assert!(memory[shift..shift + content.len()] == content);
    for (name, len) in [("sync-inline", 3_000), ("sync-striped", 2 << 20)] {
        let file = flagged(&cluster.mount().join(name), OFlags::SYNC);
        file.write_all_at(&content[..len], 0).unwrap();
        std::mem::forget(file);
    }
    for daemon in cluster.daemons() {
        daemon.kill().unwrap();
    }
    cluster.up().unwrap();
    for (name, len) in [("sync-inline", 3_000), ("sync-striped", 2 << 20)] {
        assert!(fs::read(cluster.mount().join(name)).unwrap() == content[..len], "{name}");
    }
}

/// Goal: statfs tells the capacity of the targets, names to 255 bytes, and moves when data comes.
#[test]
fn statfs_tells_the_space_of_the_targets() {
    let cluster = start(plan());
    let info = rustix::fs::statvfs(cluster.mount()).unwrap();
    assert_eq!(info.f_namemax, 255);
    assert!(info.f_bsize >= 4_096 && info.f_blocks > 0 && info.f_bavail <= info.f_bfree);
    assert!(info.f_bfree <= info.f_blocks && info.f_files > 0);
    let df = cluster.admin(["df", "--output", "json"]).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&df).unwrap();
    let total = rows.as_array().unwrap().iter().find(|row| row["kind"] == "total").unwrap();
    let (bytes, told) = (info.f_blocks * info.f_frsize, total["bytes"].as_u64().unwrap());
    assert!(bytes.abs_diff(told) < told / 10, "statfs {bytes}, skep df {told}");
}

/// Goal: what fallocate reserves counts as used at once, also of a file that would fit into the metadata, and a write
/// into it takes nothing more.
#[test]
fn reserved_space_is_counted() {
    use std::os::unix::fs::MetadataExt;
    let cluster = start(plan());
    for (offset, len) in [(0u64, 100u64), (4_095, 2), (0, 8_192), (10_000, 50_000)] {
        let path = cluster.mount().join(format!("reserved-{offset}-{len}"));
        let file = new_file(&path);
        fallocate(&file, FallocateFlags::empty(), offset, len).unwrap();
        let reserved = fs::metadata(&path).unwrap();
        assert_eq!(reserved.len(), offset + len);
        assert!(reserved.blocks() * 512 >= len, "{} blocks for {len} bytes", reserved.blocks());
        file.write_all_at(&vec![1; len as usize], offset).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().blocks(), reserved.blocks(), "{offset} {len}");
    }
}
