//! Hands: everything that touches a disk. The command log and the row store of the metadata and
//! management servers, the chunk files of the storage targets, and the [`disk::Disk`] boundary
//! below them that tests put a failing disk under.

pub mod ages;
pub mod disk;
pub mod formats;
pub mod lock;
pub mod log;
pub mod rows;
pub mod shards;
pub mod target;
