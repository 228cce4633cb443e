//! Random 4 KiB: drives with the cost of RAID, or the processors, whichever is less.

use super::stream::{cores, storage};
use super::{Figure, Unit};
use crate::catalogue::{Catalogue, Costs};
use crate::hardware::Hardware;
use crate::units::count;
use serde::Serialize;

/// Random 4 KiB operations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Random {
    /// Reads.
    pub read: Option<Figure>,
    /// Writes.
    pub write: Option<Figure>,
}

/// Estimates it.
pub fn random(hardware: &Hardware, catalogue: &Catalogue<'_>) -> Random {
    let costs = Costs::of(hardware.software);
    let (mut reads, mut writes, mut all_cores) = (0.0, 0.0, Some(0.0));
    for server in &hardware.servers {
        let mut serves = false;
        for group in storage(server) {
            serves = true;
            let drives = f64::from(server.count) * f64::from(group.count) * f64::from(group.drives);
            let Some(drive) = catalogue.drive(&group.drive) else { continue };
            reads += drives * drive.read_iops;
            writes += drives * drive.write_iops / f64::from(group.raid.small_write_cost());
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
        read: least(reads, all_cores, costs.random_reads_per_core, 1.0, costs.random_source),
        write: least(writes, all_cores, costs.random_writes_per_core, copies, costs.random_source),
    }
}

fn least(
    drives: f64,
    cores: Option<f64>,
    per_core: Option<f64>,
    copies: f64,
    source: &str,
) -> Option<Figure> {
    let by_cores = match (cores, per_core) {
        (Some(cores), Some(per_core)) => Some((cores * per_core, cores, per_core)),
        _ => None,
    };
    let divided = if copies > 1.0 { format!(", divided by {copies} copies") } else { String::new() };
    match by_cores {
        Some((rate, cores, per_core)) if drives <= 0.0 || rate < drives => {
            let above = if drives > 0.0 {
                format!("; the drives: {}/s", count(drives / copies))
            } else {
                String::new()
            };
            let why = format!("processors: {cores} cores x {}/s{divided} ({source}){above}", count(per_core));
            Some(Figure::new(rate / copies, Unit::PerSecond, why))
        }
        _ if drives > 0.0 => {
            let above = by_cores.map(|(rate, _, _)| format!("; the processors: {}/s", count(rate / copies)));
            let why = format!(
                "drives, with what a small write costs in RAID{divided}{}",
                above.unwrap_or_default()
            );
            Some(Figure::new(drives / copies, Unit::PerSecond, why))
        }
        _ => None,
    }
}
