//! Helpers of this crate's tests: a cluster of one shard and three targets that answers at once,
//! breaks when told to, and counts what it is asked.

mod cluster;
mod holds;
pub mod leases;
mod locks;
pub mod shard;
mod target;

pub use cluster::{
    Cluster, FakeLane, Fault, MACHINE, METAD, METAD_2, block_on, ear_beside, heard, lane_beside, mount,
    mount_with, mounted, step,
};

use skep_types::{Attr, Generation, Ino, Kind, ProjectId, Timestamp};

/// Attributes of a regular file.
pub fn attr(ino: u64, change: u64, size: u64) -> Attr {
    Attr {
        ino: Ino(ino),
        kind: Kind::File,
        mode: 0o644,
        nlink: 1,
        uid: 1,
        gid: 2,
        project: ProjectId(0),
        rdev: 0,
        size,
        blocks: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        btime: Timestamp::default(),
        change,
        generation: Generation(0),
        cuts: 1,
        time_sets: 0,
        flags: 0,
    }
}

use crate::{CreateHow, OpenHow, Opened};
use skep_wire::meta::OpenMode;

/// Read and write.
pub const BOTH: OpenHow =
    OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
/// Read only.
pub const READ: OpenHow = OpenHow { mode: OpenMode::Read, ..BOTH };
/// Cut to 0 and write.
pub const TRUNCATE: OpenHow = OpenHow { truncate: true, ..BOTH };

/// Makes a file.
pub fn create(lane: &FakeLane, name: &[u8]) -> Opened {
    let how = CreateHow { mode: 0o644, umask: 0, uid: 1, gid: 2, exclusive: false, policy: None };
    block_on(lane.create(Ino::ROOT, name, how, BOTH)).unwrap()
}

/// Writes all of `data`.
pub fn write(lane: &FakeLane, file: &Opened, offset: u64, data: &[u8]) {
    let n = block_on(lane.write(file.handle, offset, data, crate::WriteHow::default())).unwrap();
    assert_eq!(n, data.len());
}

/// Reads up to `len` bytes.
pub fn read(lane: &FakeLane, file: &Opened, offset: u64, len: usize) -> alloc::vec::Vec<u8> {
    let mut out = alloc::vec![0xee; len];
    let n = block_on(lane.read(file.handle, offset, &mut out)).unwrap();
    out.truncate(n);
    out
}

/// The time.
pub fn clock(cluster: &core::cell::RefCell<Cluster>) -> u64 {
    cluster.borrow().now
}
