//! After a failure: how long until it is whole again.

use super::stream::{links, storage};
use super::{Figure, Unit};
use crate::catalogue::Catalogue;
use crate::hardware::{Hardware, Role};
use crate::units::{Rate, decimal};
use serde::Serialize;

/// Part of a drive's rate that a rebuild gets while programs use the target (assumed: controllers ship with 30 %).
pub const UNDER_LOAD: f64 = 0.3;

/// What happens after one failure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rebuild {
    /// Kind of server and of target.
    pub targets: String,
    /// Drives of one target that may fail at the same time.
    pub survives: u32,
    /// A drive, when nobody uses the target; `None` when nothing can be rebuilt.
    pub idle: Option<Figure>,
    /// A drive, while programs use the target.
    pub loaded: Option<Figure>,
    /// A whole target from its copies on other servers.
    pub resync: Option<Figure>,
}

/// Estimates it for every group of targets.
pub fn rebuild(hardware: &Hardware, catalogue: &Catalogue<'_>) -> Vec<Rebuild> {
    let mut all = Vec::new();
    for server in &hardware.servers {
        for group in &server.targets {
            let Some(drive) = catalogue.drive(&group.drive) else { continue };
            let survives = group.raid.survives(group.drives);
            let write = drive.write.rate.0;
            let idle = group.size.bytes() / write;
            let figure =
                |seconds: f64, why: String| (survives > 0).then(|| Figure::new(seconds, Unit::Seconds, why));
            let copied = hardware.striping.copies > 1 && group.role == Role::Storage;
            all.push(Rebuild {
                targets: format!(
                    "{}: {} x {} {} in {}",
                    server.name, group.drives, group.size, group.drive, group.raid
                ),
                survives,
                idle: figure(idle, format!("{} written at {}", group.size, drive.write.rate)),
                loaded: figure(
                    idle / UNDER_LOAD,
                    format!("the same with {:.0} % of the drive (assumed)", UNDER_LOAD * 100.0),
                ),
                resync: copied.then(|| {
                    let data = f64::from(group.raid.data_drives(group.drives));
                    let targets: u32 = storage(server).map(|group| group.count).sum();
                    let target = group.measured_write.map_or(data * write, |measured| measured.0);
                    // All targets of a server are resynced together after it was away.
                    let rate = target.min(links(catalogue, server) / f64::from(targets.max(1)));
                    let bytes = data * group.size.bytes();
                    let why =
                        format!("{} at {} for each of {targets} targets at once", decimal(bytes), Rate(rate));
                    Figure::new(bytes / rate, Unit::Seconds, why)
                }),
            });
        }
    }
    all
}
