//! One file shared by all processes (N-1).

use super::stream::{Stream, carrying, one_file, storage};
use super::{Figure, Unit};
use crate::catalogue::{Catalogue, Costs};
use crate::hardware::{Hardware, Role};
use crate::units::Rate;
use serde::Serialize;

/// One shared file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SingleFile {
    /// Written.
    pub write: Option<Figure>,
    /// Read.
    pub read: Option<Figure>,
}

/// Estimates it: so much for every data path (a link with the service behind it) where that was measured, and
/// never more than a part of what a file per process gets, nor than its own targets deliver.
pub fn single_file(
    hardware: &Hardware,
    catalogue: &Catalogue<'_>,
    write: &Stream,
    read: &Stream,
) -> SingleFile {
    let costs = Costs::of(hardware.software);
    let known = costs.random_reads_per_core.is_some();
    let one = |stream: &Stream, per_path: Option<Rate>| {
        let most = stream.expected.0 * costs.shared_part;
        let own = one_file(hardware, catalogue, stream.direction);
        let paths = paths(hardware);
        let by_paths = per_path.map(|rate| (rate.0 * paths, rate));
        Some(match by_paths {
            _ if own.0 < by_paths.map_or(most, |(rate, _)| rate.min(most)) => {
                let targets = hardware.striping.targets;
                let whose = if targets == 1 { "target" } else { "targets" };
                let why = format!(
                    "the {targets} {whose} of the file; with more of them it gets more (striping.targets)"
                );
                Figure::new(own.0, Unit::BytesPerSecond, why)
            }
            Some((rate, each)) if rate < most => Figure::new(
                rate,
                Unit::BytesPerSecond,
                format!("{paths} data paths x {each} ({})", costs.shared_source),
            ),
            _ => {
                let part = costs.shared_part * 100.0;
                let why = format!(
                    "{part:.0} % of {} for a file per process ({})",
                    stream.expected, costs.shared_source
                );
                Figure::new(most, Unit::BytesPerSecond, why)
            }
        })
        .filter(|_| known)
    };
    SingleFile { write: one(write, costs.shared_write_per_path), read: one(read, costs.shared_read_per_path) }
}

/// Links that carry file contents; on servers bound by NUMA zone each has its own service.
pub fn paths(hardware: &Hardware) -> f64 {
    let serving = hardware.servers.iter().filter(|server| storage(server).next().is_some());
    let links = serving.map(|server| {
        let links: u32 = carrying(server, Role::Storage).map(|nic| nic.count).sum();
        f64::from(server.count) * f64::from(links)
    });
    links.sum()
}

#[cfg(test)]
mod tests {
    use crate::forward::forecast;
    use crate::hardware::Hardware;

    /// Goal: beside the figure of a shared file stands on what it rests and for what it holds: two papers for BeeGFS, and
    /// the sheet of 003 is off by what is said; two cores for Skep.
    #[test]
    fn on_what_it_rests() {
        let why = |system: &str, targets: &str| {
            let text = crate::systems::system(system).unwrap().text.replacen("targets = 3", targets, 1);
            let plan = forecast(&Hardware::from_toml("x", &text).unwrap()).unwrap();
            let told =
                [plan.single_file.write.clone().unwrap().why, plan.single_file.read.clone().unwrap().why];
            let page = crate::text::forecast(&plan, false);
            assert!(told.iter().all(|why| page.contains(why)), "{page}");
            told
        };
        for why in why("dell-2020-medium", "targets = 33") {
            for said in ["data paths", "two papers", "within 4 % writing and 13 % reading", "Holds for NVMe"]
            {
                assert!(why.contains(said), "{said}: {why}");
            }
        }
        for why in why("example", "targets = 3") {
            assert!(why.contains("91 % of") && why.contains("measured on two cores"), "{why}");
        }
        for sheet in crate::reproduction::reproduce().unwrap() {
            for line in sheet.lines.iter().filter(|line| line.what.starts_with("Small: one shared file")) {
                let most = if line.what.contains("write") { 0.04 } else { 0.13 };
                assert!(line.error().unwrap().abs() <= most, "{}: {:?}", line.what, line.error());
            }
        }
    }
}
