//! Rows: what a shard keeps. Every row is a record, so later versions add tagged fields.

pub mod deletion;
pub mod entry;
pub mod growth;
pub mod header;
pub mod inode;
pub mod seal;
pub mod slot;
pub mod trim;
pub mod txn;

pub use inode::{Inode, LinkRef};
