//! Random 4 KiB: drives with the cost of RAID, or the processors, whichever is less.

use super::stream::{cores, storage};
use super::{Figure, Unit};
use crate::catalogue::{Catalogue, Costs, DriveUsed};
use crate::hardware::{Hardware, TargetGroup};
use crate::units::{Rate, count};
use serde::Serialize;

/// Bytes of a ZFS record (assumed: its default): what one small read or write moves, because the check sum is over all
/// of it.
pub const RECORD: f64 = 131_072.0;

/// Random 4 KiB operations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Random {
    /// Reads; `None`: nobody knows the operations of a drive.
    pub read: Option<Figure>,
    /// Writes; `None` as for reads.
    pub write: Option<Figure>,
}

/// Operations of the drives, and the sum in words.
#[derive(Default)]
struct Drives {
    per_second: f64,
    parts: Vec<String>,
    /// Some drives are not in it, because nobody knows their operations.
    incomplete: bool,
}

impl Drives {
    fn add(&mut self, groups: f64, group: &TargetGroup, one: Option<(f64, String)>) {
        let Some((one, how)) = one else {
            self.incomplete = true;
            return;
        };
        self.per_second += groups * one;
        self.parts.push(format!("{groups} targets of {} {} x {how}", group.drives, group.drive));
    }
}

/// Estimates it.
pub fn random(hardware: &Hardware, catalogue: &Catalogue<'_>) -> Random {
    let costs = Costs::of(hardware.software);
    let (mut reads, mut writes, mut all_cores) = (Drives::default(), Drives::default(), Some(0.0));
    for server in &hardware.servers {
        let mut serves = false;
        for group in storage(server) {
            serves = true;
            let groups = f64::from(server.count) * f64::from(group.count);
            let Some(drive) = catalogue.drive(&group.drive) else { continue };
            reads.add(groups, group, one_reads(group, &drive));
            writes.add(groups, group, one_writes(group, &drive));
        }
        if serves {
            all_cores = match (all_cores, cores(server)) {
                (Some(sum), Some(cores)) => Some(sum + f64::from(server.count) * cores),
                _ => None,
            };
        }
    }
    let copies = f64::from(hardware.striping.copies.max(1));
    Random {
        read: least(&reads, all_cores, costs.random_reads_per_core, 1.0, costs.random_source),
        write: least(&writes, all_cores, costs.random_writes_per_core, copies, costs.random_source),
    }
}

/// Records per second that the data drives of a raidz move together: by operations of one, or by bytes of all.
fn records(group: &TargetGroup, operations: f64, rate: Rate) -> (f64, &'static str) {
    let by_bytes = f64::from(group.raid.data_drives(group.drives)) * rate.0 / RECORD;
    if operations <= by_bytes {
        (operations, "one drive's operations: a record lies on all data drives")
    } else {
        (by_bytes, "records of 128 KiB (assumed), whose bytes all data drives move")
    }
}

/// Reads of one target.
fn one_reads(group: &TargetGroup, drive: &DriveUsed) -> Option<(f64, String)> {
    let (raid, operations) = (group.raid, drive.read_iops?);
    if raid.is_zfs() {
        let (one, why) = records(group, operations, drive.read.rate);
        return Some((one, format!("{}/s ({raid}: {why})", count(one))));
    }
    // A stripe unit of RAID 5 and 6 (64 KiB or more) lies on one drive, so a small read keeps one drive busy.
    let one = f64::from(group.drives) * operations;
    Some((one, format!("{}/s ({raid}: each drive by itself)", count(one))))
}

/// Writes of one target.
fn one_writes(group: &TargetGroup, drive: &DriveUsed) -> Option<(f64, String)> {
    let (raid, operations) = (group.raid, drive.write_iops?);
    let cost = f64::from(raid.small_write_cost());
    if raid.is_zfs() {
        let (one, why) = records(group, operations, drive.write.rate);
        return Some((one / cost, format!("{}/s ({raid}: {why}; read and written)", count(one / cost))));
    }
    let one = f64::from(group.drives) * operations / cost;
    Some((one, format!("{}/s ({raid}: {cost} operations for a small write)", count(one))))
}

/// The lesser of drives and processors. Drives that nobody knows could do anything: then it is known only where the
/// processors allow less than the others do.
fn least(
    drives: &Drives,
    cores: Option<f64>,
    per_core: Option<f64>,
    copies: f64,
    source: &str,
) -> Option<Figure> {
    let by_drives = drives.per_second;
    let by_cores = match (cores, per_core) {
        (Some(cores), Some(per_core)) => Some((cores * per_core, cores, per_core)),
        _ => None,
    };
    let divided = if copies > 1.0 { format!(", divided by {copies} copies") } else { String::new() };
    match by_cores {
        Some((rate, cores, per_core)) if rate < by_drives => {
            let which = if drives.incomplete { "those drives whose IOPS are known" } else { "the drives" };
            let why = format!(
                "processors: {cores} cores x {}/s{divided} ({source}); {which}: {}/s",
                count(per_core),
                count(by_drives / copies)
            );
            Some(Figure::new(rate / copies, Unit::PerSecond, why))
        }
        _ if drives.incomplete => None,
        _ => {
            let above = by_cores.map(|(rate, _, _)| format!("; the processors: {}/s", count(rate / copies)));
            let why = format!("drives: {}{divided}{}", drives.parts.join(" + "), above.unwrap_or_default());
            Some(Figure::new(by_drives / copies, Unit::PerSecond, why))
        }
    }
}
