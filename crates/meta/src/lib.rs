#![no_std]
//! Rules of a metadata shard. Work in progress: see `store`.
extern crate alloc;

pub mod store;
