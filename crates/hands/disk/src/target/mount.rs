//! Names a mount: the kernel's memory of a file system lives exactly as long.

use rustix::fs::{AtFlags, StatxFlags, fstat, fstatfs, statx};
use skep_types::Uuid;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// `statfs` calls them so.
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const F2FS: u64 = 0xf2f5_2010;
const TMPFS: u64 = 0x0102_1994;

/// `STATX_MNT_ID_UNIQUE`, since Linux 6.8: a number that is never given twice in a boot.
const UNIQUE_MOUNT_ID: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The mount of a directory's file system; `None` where the system cannot tell one from the next.
///
/// Not the number of the mount, where there is something better: a service with a private view of the tree
/// (`ProtectSystem=` of systemd) gets new numbers at each start, and the kernel forgets nothing by that. The entry of
/// a file system in sysfs is made when it is mounted for the first time and goes with its last mount; the inode
/// number of such an entry is never given twice in a boot.
pub fn of(directory: &OwnedFd) -> Option<Uuid> {
    let boot =
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().filter(|text| !text.is_empty())?;
    let stat = fstat(directory).ok()?;
    let within = in_sysfs(directory, stat.st_dev).or_else(|| {
        let told = statx(directory, "", AtFlags::EMPTY_PATH, UNIQUE_MOUNT_ID).ok()?;
        let unique = told.stx_mask & UNIQUE_MOUNT_ID.bits() != 0;
        unique.then(|| format!("mount {}", told.stx_mnt_id))
    })?;
    Some(digest(&format!("{boot} {} {within}", stat.st_dev)))
}

fn in_sysfs(directory: &OwnedFd, device: u64) -> Option<String> {
    let kind = match magic(directory)? {
        EXT4 => "ext4",
        XFS => "xfs",
        F2FS => "f2fs",
        _ => return None,
    };
    let disk = disk_name(device, &std::fs::read_to_string("/proc/partitions").ok()?)?;
    let entry = std::fs::metadata(format!("/sys/fs/{kind}/{}", disk.replace('/', "!"))).ok()?;
    Some(format!("{kind} {disk} {}", entry.ino()))
}

/// The name of a block device in the text of `/proc/partitions`.
fn disk_name(device: u64, partitions: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device).to_string(), rustix::fs::minor(device).to_string());
    partitions.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let here = words.next() == Some(&major) && words.next() == Some(&minor);
        here.then(|| words.nth(1).map(str::to_owned)).flatten()
    })
}

/// Does `syncfs` tell of every write-back that failed since the descriptor was opened, also of files that nobody has
/// open any more? File systems on top of others, and those of a network, do not.
pub fn tells_failures_as_a_whole(directory: &OwnedFd) -> bool {
    matches!(magic(directory), Some(EXT4 | XFS | BTRFS | F2FS | TMPFS))
}

fn magic(directory: impl AsFd) -> Option<u64> {
    // The field is signed on some machines; the numbers have 32 bits.
    fstatfs(directory).ok().map(|info| u64::from(info.f_type as u32))
}

/// Two FNV-1a hashes with different starts.
fn digest(text: &str) -> Uuid {
    let hash = |start: u64| {
        text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let (low, high) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    Uuid((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a device is found by both of its numbers, and one that is none is not.
    #[test]
    fn disks_by_number() {
        let partitions =
            "major minor  #blocks  name\n\n   7        1      65536 loop1\n 254        1 7 vda\n";
        let device = |major, minor| rustix::fs::makedev(major, minor);
        assert_eq!(disk_name(device(254, 1), partitions).as_deref(), Some("vda"));
        assert_eq!(disk_name(device(7, 1), partitions).as_deref(), Some("loop1"));
        assert_eq!(disk_name(device(7, 254), partitions), None);
        assert_eq!(disk_name(device(0, 1), partitions), None);
    }

    /// Goal: asked twice, a mount has the same name.
    #[test]
    fn a_mount_keeps_its_name() {
        let here = OwnedFd::from(std::fs::File::open(std::env::temp_dir()).unwrap());
        assert_eq!(of(&here), of(&here));
        assert_ne!(digest("a 1"), digest("a 2"));
    }
}
