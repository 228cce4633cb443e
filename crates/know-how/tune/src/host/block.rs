//! Disks, as `/sys/block` shows them.

use super::Role;
use super::identity::{self, Identity};
use crate::Root;
use std::collections::BTreeSet;

/// Most members that are looked up of one disk.
const MEMBERS_MAX: usize = 512;

/// What a disk is; in order, the slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskKind {
    /// Turns.
    Hdd,
    /// Flash behind SATA, SAS or a virtual disk.
    Ssd,
    /// Flash on PCIe.
    Nvme,
    /// Made of others: md, device mapper.
    Made,
    /// Memory, loop devices and other things that no target is on.
    Other,
}

impl DiskKind {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hdd => "HDD",
            Self::Ssd => "SSD",
            Self::Nvme => "NVMe",
            Self::Made => "made of others",
            Self::Other => "no drive",
        }
    }
}

/// A software RAID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Md {
    /// `raid6`, ...
    pub level: String,
    /// Bytes that one drive gets of each stripe.
    pub chunk: u64,
    /// Drives, parity among them.
    pub drives: u64,
}

impl Md {
    /// Drives of a stripe that carry data; none when the level does not stripe.
    pub fn data_drives(&self) -> Option<u64> {
        match self.level.as_str() {
            "raid0" => Some(self.drives),
            "raid4" | "raid5" => self.drives.checked_sub(1),
            "raid6" => self.drives.checked_sub(2),
            "raid10" => Some(self.drives / 2),
            _ => None,
        }
    }
}

/// A part of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// `sda1`.
    pub name: String,
    /// `8:1`.
    pub dev: String,
    /// Byte where it begins.
    pub start: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `sda`.
    pub name: String,
    /// `8:0`.
    pub dev: String,
    pub kind: DiskKind,
    /// Names of the disks that it is made of.
    pub members: Vec<String>,
    /// If it is a software RAID.
    pub md: Option<Md>,
    /// Its parts.
    pub partitions: Vec<Partition>,
    /// NUMA node of the controller it hangs on.
    pub numa: Option<u32>,
    /// Name that stays when the order of disks changes, and that no other disk has.
    pub identity: Option<Identity>,
    pub roles: BTreeSet<Role>,
}

impl Disk {
    /// Where its queue's settings are.
    pub fn queue(&self, attribute: &str) -> String {
        format!("/sys/block/{}/queue/{attribute}", self.name)
    }
}

/// All disks.
pub fn read(root: &Root) -> Vec<Disk> {
    let names = identity::of_all(root);
    let chosen = identity::chosen(&names).into_iter();
    names.iter().zip(chosen).filter_map(|((name, _), identity)| one(root, name.clone(), identity)).collect()
}

fn one(root: &Root, name: String, identity: Option<Identity>) -> Option<Disk> {
    let at = format!("/sys/block/{name}");
    let dev = root.text(&format!("{at}/dev"))?;
    let slaves = root.names(&format!("{at}/slaves"));
    let members: Vec<String> = slaves.iter().take(MEMBERS_MAX).map(|slave| whole(root, slave)).collect();
    let rotational = root.number(&format!("{at}/queue/rotational")) == Some(1);
    let virtual_ones = ["loop", "ram", "zram", "nbd", "sr", "fd"];
    let kind = match () {
        () if virtual_ones.iter().any(|word| name.starts_with(word)) => DiskKind::Other,
        () if !members.is_empty() || name.starts_with("md") || name.starts_with("dm-") => DiskKind::Made,
        () if name.starts_with("nvme") => DiskKind::Nvme,
        () if rotational => DiskKind::Hdd,
        () => DiskKind::Ssd,
    };
    Some(Disk {
        dev,
        kind,
        members,
        md: md(root, &at),
        partitions: partitions(root, &at, &name),
        numa: numa(root, &at),
        identity,
        roles: BTreeSet::new(),
        name,
    })
}

/// The disk of a partition; a disk's own name stays.
fn whole(root: &Root, name: &str) -> String {
    if root.exists(&format!("/sys/block/{name}")) {
        return name.to_owned();
    }
    let has = |disk: &String| root.exists(&format!("/sys/block/{disk}/{name}"));
    root.names("/sys/block").into_iter().find(has).unwrap_or_else(|| name.to_owned())
}

fn md(root: &Root, at: &str) -> Option<Md> {
    Some(Md {
        level: root.text(&format!("{at}/md/level"))?,
        chunk: root.number(&format!("{at}/md/chunk_size")).unwrap_or(0),
        drives: root.number(&format!("{at}/md/raid_disks"))?,
    })
}

fn partitions(root: &Root, at: &str, disk: &str) -> Vec<Partition> {
    let names = root.names(at).into_iter().filter(|name| name.starts_with(disk));
    let one = |name: String| {
        let sectors = root.number(&format!("{at}/{name}/start"))?;
        let dev = root.text(&format!("{at}/{name}/dev"))?;
        Some(Partition { dev, start: sectors.saturating_mul(512), name })
    };
    names.filter_map(one).collect()
}

/// The node of whatever the thing hangs on: the nearest directory above that tells.
pub(super) fn numa(root: &Root, at: &str) -> Option<u32> {
    let real = root.real(at)?;
    let mut above = real.as_str();
    while let Some((up, _)) = above.rsplit_once('/').filter(|(up, _)| up.starts_with("/sys/devices/")) {
        if let Some(text) = root.text(&format!("{above}/numa_node")) {
            // -1: the firmware does not say.
            return text.parse().ok();
        }
        above = up;
    }
    None
}
