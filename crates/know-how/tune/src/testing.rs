//! What tests need: superblocks, recorded machines.

use crate::Root;
use crate::host::{Host, Part, Role, Service};
use crate::recording::Recording;
use std::collections::BTreeMap;
use tempfile::TempDir;

/// Turning disks, an old kernel.
pub const HDD: &str = include_str!("../hosts/hdd.txt");
/// SATA flash behind a controller.
pub const SSD: &str = include_str!("../hosts/ssd.txt");
/// NVMe drives on two nodes.
pub const NVME: &str = include_str!("../hosts/nvme.txt");
/// ZFS on turning disks.
pub const ZFS: &str = include_str!("../hosts/zfs.txt");

/// The first bytes of an XFS: blocks of 4 KiB, `su` bytes, `sw` drives.
pub fn xfs_superblock(inode: u16, su: u32, sw: u32) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(b"XFSB");
    bytes[4..8].copy_from_slice(&4096u32.to_be_bytes());
    bytes[102..104].copy_from_slice(&4096u16.to_be_bytes());
    bytes[104..106].copy_from_slice(&inode.to_be_bytes());
    bytes[184..188].copy_from_slice(&(su / 4096).to_be_bytes());
    bytes[188..192].copy_from_slice(&(su / 4096 * sw).to_be_bytes());
    bytes
}

/// The first bytes of an ext4: blocks of 4 KiB, stride and width in blocks.
pub fn ext4_superblock(inode: u16, stride: u16, width: u32) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[1024 + 0x38..1024 + 0x3a].copy_from_slice(&0xef53u16.to_le_bytes());
    bytes[1024 + 0x18..1024 + 0x1c].copy_from_slice(&2u32.to_le_bytes());
    bytes[1024 + 0x58..1024 + 0x5a].copy_from_slice(&inode.to_le_bytes());
    bytes[1024 + 0x164..1024 + 0x166].copy_from_slice(&stride.to_le_bytes());
    bytes[1024 + 0x170..1024 + 0x174].copy_from_slice(&width.to_le_bytes());
    bytes
}

/// A recorded machine in a directory.
pub fn unpacked(text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    Recording::read(text).unwrap().unpack(dir.path()).unwrap();
    dir
}

/// A service with one directory.
pub fn service(role: Role, name: &str, directory: &str, settings: &[(&str, &str)]) -> Service {
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Service {
        role,
        name: name.to_owned(),
        unit: format!(
            "skep-{}.service",
            if name.contains('@') { name.to_owned() } else { format!("{name}@{name}") }
        ),
        pid: None,
        directories: if directory.is_empty() { Vec::new() } else { vec![directory.to_owned()] },
        interfaces: Vec::new(),
        settings: settings.collect::<BTreeMap<_, _>>(),
    }
}

/// A storage and a metadata server, as the recorded machines have them.
pub fn storage_and_meta() -> Part {
    let storage = [("max_connections", "4096"), ("sync_on_write", "false")];
    let meta = [("chunk_size", "524288"), ("stripe_targets", "progressive"), ("cache_size", "268435456")];
    let services = vec![
        service(Role::Storage, "storaged", "/data/skep0/t1", &storage),
        service(Role::Meta, "metad", "/data/meta/metad", &meta),
    ];
    Part { services, ..Part::default() }
}

/// The services of the NVMe machine: one running on node 0, one configured on node 1, a mount.
pub fn nvme_part() -> Part {
    let mut first = service(Role::Storage, "storaged@n0", "/data/skep0/t1", &[("max_connections", "4096")]);
    first.pid = Some(4711);
    first.interfaces = vec!["eth0".to_owned()];
    let mut second = service(Role::Storage, "storaged@n1", "/data/skep1/t1", &[("max_connections", "4096")]);
    second.interfaces = vec!["eth0".to_owned(), "eth1".to_owned()];
    let mount = [("threads", "4"), ("max_threads", "64"), ("request_size", "131072"), ("io", "auto")];
    let mount = service(Role::Client, "mount", "", &mount);
    Part { services: vec![first, second, mount], ..Part::default() }
}

/// Reads a machine.
pub fn read(root: &Root, part: Part) -> Host<'_> {
    Host::read(root, part)
}
