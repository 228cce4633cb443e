//! Space for file contents: what drives hold, less parity, copies and the local file system.

use super::stream::storage;
use super::{Figure, Unit};
use crate::hardware::{FileSystem, Hardware};
use crate::units::{binary, decimal};
use serde::Serialize;

/// Part of a target that the local file system leaves for files, and where that comes from.
pub fn left_by(file_system: FileSystem) -> (f64, &'static str) {
    match file_system {
        FileSystem::Xfs => (0.99, "003: 1 % for XFS"),
        FileSystem::Ext4 | FileSystem::Ldiskfs => (0.95, "assumed: 5 %, mke2fs reserves them"),
        FileSystem::Zfs => (0.96, "assumed: 1/32 of slop space and metadata"),
    }
}

/// Space for file contents.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// What the labels of the drives say, spares included.
    pub raw: Figure,
    /// For files.
    pub usable: Figure,
    /// Usable as a part of raw.
    pub part: f64,
    /// Targets for file contents.
    pub targets: u64,
    /// Drives for file contents, spares not.
    pub drives: u64,
    /// Hot spares.
    pub spares: u64,
}

pub fn capacity(hardware: &Hardware) -> Capacity {
    let (mut raw, mut usable, mut targets, mut drives, mut spares) = (0.0, 0.0, 0, 0, 0);
    let mut parts = Vec::new();
    for server in &hardware.servers {
        for group in storage(server) {
            let groups = u64::from(server.count) * u64::from(group.count);
            let data = group.raid.data_drives(group.drives);
            let (left, source) = left_by(group.file_system);
            raw += (groups as f64 * f64::from(group.drives)
                + f64::from(server.count) * f64::from(group.spares))
                * group.size.bytes();
            usable += groups as f64 * f64::from(data) * group.size.bytes() * left;
            targets += groups;
            drives += groups * u64::from(group.drives);
            spares += u64::from(server.count) * u64::from(group.spares);
            parts.push(format!(
                "{groups} targets x {data} of {} drives ({}) x {} x {left} ({source})",
                group.drives, group.raid, group.size
            ));
        }
    }
    let copies = f64::from(hardware.striping.copies.max(1));
    let divided = if copies > 1.0 { format!(", divided by {copies} copies") } else { String::new() };
    let usable = usable / copies;
    let why = format!("{}{divided} = {} = {}", parts.join(" + "), decimal(usable), binary(usable));
    let all = format!("{} drives and {spares} spares as labelled", drives);
    Capacity {
        raw: Figure::new(raw, Unit::Bytes, all),
        usable: Figure::new(usable, Unit::Bytes, why),
        part: usable / raw,
        targets,
        drives,
        spares,
    }
}
