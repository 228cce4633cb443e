//! RAID in software: what parity costs when no controller makes it.
//!
//! Nobody published how much; 001 says that Linux MD RAID 6 is very bad on NVMe, ZFS better, and that a raidz2 of more than
//! six drives loses. So it is reckoned by passes: how often a core goes through the bytes, at the rate at which one copies.

use super::Direction;
use crate::catalogue::{Component, DriveKind};
use crate::hardware::{Server, TargetGroup};
use crate::raid::Raid;

/// 001: more drives in a raidz2 on NVMe cost performance.
pub const RAIDZ_DRIVES: u32 = 6;
/// Kind of controller that leaves parity to the host.
const ADAPTER: &str = "hba";

/// Who makes parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// There is none.
    Nobody,
    /// A RAID controller.
    Controller,
    /// Linux MD: by default one thread for a whole array, raid5d or raid6d (group_thread_cnt = 0).
    Md,
    /// ZFS, on all cores.
    Zfs,
}

/// Who makes it for a group of this server.
pub fn maker(server: &Server, group: &TargetGroup) -> Maker {
    let controller = |name: &String| server.controllers.iter().find(|one| &one.name == name);
    let makes = |name: &String| controller(name).is_some_and(|one| one.kind != ADAPTER);
    match group.raid {
        raid if raid.is_zfs() => Maker::Zfs,
        Raid::Raid5 | Raid::Raid6 if group.controller.as_ref().is_some_and(makes) => Maker::Controller,
        Raid::Raid5 | Raid::Raid6 => Maker::Md,
        _ => Maker::Nobody,
    }
}

/// Passes through memory for each byte. Written: into stripes or records, and once for each parity; ZFS makes a check sum
/// as well. Read, ZFS copies and sums; MD passes reads on.
pub fn passes(group: &TargetGroup, direction: Direction) -> f64 {
    let sums = if group.raid.is_zfs() { 1 } else { 0 };
    match direction {
        Direction::Write => f64::from(1 + sums + group.raid.parity()),
        Direction::Read => f64::from(2 * sums),
    }
}

/// Drives that make a target faster: of a raidz on flash no more than 001 takes.
pub fn counted(group: &TargetGroup, kind: DriveKind) -> u32 {
    if group.raid.is_zfs() && kind != DriveKind::Hdd { group.drives.min(RAIDZ_DRIVES) } else { group.drives }
}

/// The sum of MD's thread.
pub fn why(group: &TargetGroup, copy: &Component) -> String {
    format!(
        "{} targets x {} / {} passes of the one thread that makes a target's {} ({}); 001: very bad on NVMe, take raidz2, \
         or a controller",
        group.count,
        copy.rate,
        passes(group, Direction::Write),
        group.raid,
        copy.source
    )
}

#[cfg(test)]
mod tests {
    use crate::forward::{Forecast, Stage, forecast};
    use crate::hardware::Hardware;
    use crate::units::{MIB, Rate};

    const NVME: &str = r#"
name = "nvme"
[[servers]]
name = "s"
roles = ["storage"]
sockets = 2
cores = 32
memory = "512 GiB"
[[servers.nics]]
kind = "400gbe"
count = 4
[[servers.controllers]]
name = "disks"
kind = "hba"
count = 8
[[servers.targets]]
role = "storage"
count = 2
drive = "p5600"
drives = 12
size = "6.4 TB"
raid = "raid6"
controller = "disks"
[clients]
count = 100
nic = "100gbe"
[striping]
targets = 2
"#;

    fn plan(from: &str, to: &str) -> Forecast {
        let text = NVME.replace(from, to);
        forecast(&Hardware::from_toml("x", &text).unwrap()).unwrap()
    }

    /// Goal: MD RAID 6 of flash writes what one thread for each target makes parity of, says so, and reads as before; with
    /// a controller the drives count in full; what was measured of a target stands.
    #[test]
    fn parity_by_a_thread() {
        let md = plan("", "");
        assert_eq!(md.write.bottleneck, [Stage::SoftwareRaid]);
        let one = 4600.0 * MIB / 3.0;
        assert!((md.write.expected.0 - 2.0 * one).abs() < 1.0, "{}", md.write.expected);
        let told = md.write.limits.iter().find(|limit| limit.stage == Stage::SoftwareRaid).unwrap();
        assert!(told.why.contains("001: very bad on NVMe"), "{}", told.why);
        assert!(md.notes.iter().any(|note| note.contains("in software")), "{:?}", md.notes);
        assert!(md.read.limits.iter().all(|limit| limit.stage != Stage::SoftwareRaid));
        let hardware = plan("kind = \"hba\"", "kind = \"controller\"");
        assert!(hardware.write.expected.0 > 4.0 * md.write.expected.0, "{}", hardware.write.expected);
        let measured = plan("raid = \"raid6\"", "raid = \"raid6\"\nmeasured_write = \"6 GB/s\"");
        assert_eq!(measured.write.expected, Rate::gb(12.0));
        let faster = plan("[striping]", "[catalogue]\ncore_copy = \"9.6 GB/s\"\n[striping]");
        assert!((faster.write.expected.0 - 6.4e9).abs() < 1.0, "{}", faster.write.expected);
        assert!((md.single_file.write.unwrap().value - 0.91 * 2.0 * one).abs() < 1.0, "a shared file too");
    }

    /// Goal: a raidz2 costs cores, and of more than six drives counts no more than six of flash; hard disks all count.
    #[test]
    fn raidz_costs_cores() {
        let raidz = |drives: &str, drive: &str| {
            let text = NVME
                .replace("raid = \"raid6\"", "raid = \"raidz2\"\nfile_system = \"zfs\"")
                .replace("drives = 12", drives)
                .replace("p5600", drive);
            forecast(&Hardware::from_toml("x", &text).unwrap()).unwrap()
        };
        let drives = |plan: &Forecast| {
            let limit = plan.write.limits.iter().find(|limit| limit.stage == Stage::Drives).unwrap();
            (limit.rate.0, limit.why.clone())
        };
        let (six, twelve) = (raidz("drives = 6", "p5600"), raidz("drives = 12", "p5600"));
        assert_eq!(drives(&six).0, drives(&twelve).0);
        assert!(drives(&twelve).1.contains("counts as one of 6"), "{}", drives(&twelve).1);
        assert!(
            twelve.notes.iter().any(|note| note.contains("counts as one of so many")),
            "{:?}",
            twelve.notes
        );
        assert_eq!(drives(&raidz("drives = 12", "hdd")).0, 2.0 * 10.0 * 100e6);
        let cores = |plan: &Forecast| {
            plan.write.limits.iter().find(|limit| limit.stage == Stage::Processors).unwrap().clone()
        };
        let (with, without) = (cores(&six), cores(&plan("raid = \"raid6\"", "raid = \"raid10\"")));
        // 596.5 us of storaged for a MiB, and four passes of 1/4600 s.
        let part = 596.53 / (596.53 + 4e6 / 4600.0);
        assert!((with.rate.0 / without.rate.0 - part).abs() < 1e-6, "{} {}", with.rate, without.rate);
        assert!(with.why.contains("4 passes"), "{}", with.why);
    }
}
