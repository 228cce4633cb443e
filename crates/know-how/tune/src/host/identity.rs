//! What stays of a disk when names change places: `sda` is whoever answered first at this boot.

use crate::Root;
use serde::{Deserialize, Serialize};

/// How a disk is told from all others; in order, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityKind {
    /// The name that the drive was given in the factory.
    Wwid,
    /// Of the device mapper.
    DmUuid,
    /// Of a software RAID.
    MdUuid,
    /// Model and serial number, as udev puts them together (ID_SERIAL).
    Serial,
    /// The place that it is plugged into (ID_PATH).
    Path,
    /// The kernel's count of disks since this boot: holds until the next one.
    Sequence,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Which name it is.
    pub kind: IdentityKind,
    /// The name.
    pub value: String,
}

impl Identity {
    /// Is it known at the next boot too?
    pub fn lasts(&self) -> bool {
        self.kind != IdentityKind::Sequence
    }

    /// What a udev rule asks, to mean this disk and no partition of it; none when it does not last.
    pub fn udev(&self) -> Option<String> {
        let value = &self.value;
        let asked = match self.kind {
            IdentityKind::Wwid => format!("ATTRS{{wwid}}==\"{value}\""),
            IdentityKind::DmUuid => format!("ATTR{{dm/uuid}}==\"{value}\""),
            // Members carry the name of their RAID too.
            IdentityKind::MdUuid => format!("KERNEL==\"md*\", ENV{{MD_UUID}}==\"{value}\""),
            IdentityKind::Serial => format!("ENV{{ID_SERIAL}}==\"{value}\""),
            IdentityKind::Path => format!("ENV{{ID_PATH}}==\"{value}\""),
            IdentityKind::Sequence => return None,
        };
        Some(format!("ENV{{DEVTYPE}}==\"disk\", {asked}"))
    }

    /// Of an earlier boot than this? Then its values of the running kernel are gone with that.
    pub fn is_past(&self, boot: Option<&str>) -> bool {
        let of = self.value.split_once(' ').map(|(_, boot)| boot);
        !self.lasts() && boot.is_some() && of != boot.map(str::trim)
    }
}

/// For people: `wwid naa.5000c50094a11200`.
impl std::fmt::Display for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            IdentityKind::Wwid => "wwid",
            IdentityKind::DmUuid => "dm uuid",
            IdentityKind::MdUuid => "MD_UUID",
            IdentityKind::Serial => "ID_SERIAL",
            IdentityKind::Path => "ID_PATH",
            IdentityKind::Sequence => "number since boot",
        };
        write!(out, "{kind} {}", self.value)
    }
}

/// Where the kernel keeps the name of this boot.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A name that udev compares letter by letter: no patterns, no quotes.
fn plain(value: &str) -> bool {
    let harmless = |b: u8| (b.is_ascii_graphic() || b == b' ') && !b"\"*?[]|\\".contains(&b);
    !value.is_empty() && value.bytes().all(harmless)
}

/// Every name of the disk `sda`, the best first.
pub fn all(root: &Root, disk: &str) -> Vec<Identity> {
    let at = format!("/sys/block/{disk}");
    let dev = root.text(&format!("{at}/dev")).unwrap_or_default();
    let udev = root.text(&format!("/run/udev/data/b{dev}")).unwrap_or_default();
    let property = |name: &str| {
        udev.lines()
            .find_map(|line| Some(line.strip_prefix("E:")?.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    };
    let file = |name: &str| root.text(&format!("{at}/{name}"));
    let sequence = || Some(format!("{} {}", file("diskseq")?, root.text(BOOT_ID)?));
    let is_md = disk.starts_with("md");
    let names = [
        (IdentityKind::Wwid, file("wwid").or_else(|| file("device/wwid"))),
        (IdentityKind::DmUuid, file("dm/uuid")),
        (IdentityKind::MdUuid, property("MD_UUID").filter(|_| is_md)),
        (IdentityKind::Serial, property("ID_SERIAL").or_else(|| file("serial"))),
        (IdentityKind::Path, property("ID_PATH")),
        (IdentityKind::Sequence, sequence()),
    ];
    let known = names
        .into_iter()
        .filter_map(|(kind, value)| Some(Identity { kind, value: value.filter(|value| plain(value))? }));
    known.collect()
}

/// Every disk of the machine with all of its names.
pub fn of_all(root: &Root) -> Vec<(String, Vec<Identity>)> {
    root.names("/sys/block").into_iter().map(|name| (name.clone(), all(root, &name))).collect()
}

/// For each disk the best name that no other has: paths to one drive share its wwid.
pub fn chosen(disks: &[(String, Vec<Identity>)]) -> Vec<Option<Identity>> {
    let holders = |one: &Identity| disks.iter().filter(|(_, names)| names.contains(one)).count();
    disks.iter().map(|(_, names)| names.iter().find(|one| holders(one) == 1).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::unpacked;

    /// Goal: the best name that only this disk has is taken; a rule never names `sda`; what udev would take for a
    /// pattern is no name; the count since boot is the last resort and is no rule.
    #[test]
    fn names_that_stay() {
        let text = "/proc/sys/kernel/random/boot_id = b1\n\
            /sys/block/sda/dev = 8:0\n/sys/block/sda/device/wwid = naa.5\n\
            /sys/block/sdb/dev = 8:16\n/sys/block/sdb/device/wwid = naa.5\n/run/udev/data/b8:16 = S:x\\nE:ID_PATH=pci-1\\nE:ID_SERIAL=Disk_7\n\
            /sys/block/sdc/dev = 8:32\n/sys/block/sdc/device/wwid = t10.ATA     a*b\n/sys/block/sdc/diskseq = 9\n\
            /sys/block/md0/dev = 9:0\n/run/udev/data/b9:0 = E:MD_UUID=aa:bb\n\
            /sys/block/sdd/dev = 8:48\n/sys/block/sdd/device/wwid = t10.ATA     INTEL  7\n";
        let dir = unpacked(text);
        let disks = of_all(&Root::new(dir.path()).unwrap());
        let names: Vec<String> = chosen(&disks)
            .iter()
            .map(|one| one.as_ref().map_or("-".to_owned(), ToString::to_string))
            .collect();
        assert_eq!(
            names,
            ["MD_UUID aa:bb", "-", "ID_SERIAL Disk_7", "number since boot 9 b1", "wwid t10.ATA     INTEL  7"]
        );
        let rule = |at: usize| chosen(&disks)[at].as_ref().and_then(Identity::udev);
        assert_eq!(rule(2).as_deref(), Some("ENV{DEVTYPE}==\"disk\", ENV{ID_SERIAL}==\"Disk_7\""));
        assert_eq!(rule(3), None);
        let count = chosen(&disks)[3].clone().unwrap();
        assert!(count.is_past(Some("b2")) && !count.is_past(Some("b1")) && !count.is_past(None));
    }
}
