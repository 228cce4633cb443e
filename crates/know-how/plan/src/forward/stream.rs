//! Streaming as a chain of components: what each passes, which one limits, which one is next.
//!
//! Every group of targets is a flow that starts at its drives and passes drive slots, controller, PCIe
//! switch, processors and links of its server, then the network and the clients. What passes is the most that
//! the flows carry together ([`super::share`]). To find what limits, each component in turn is thought to be
//! infinite: the one that frees most is the bottleneck. This also holds for servers that are not alike.
//!
//! There are two such chains. The nominal one has every component at its rate: that is the limit, as documents
//! and data sheets count. The seen one has every component at the part of its rate that programs see of it, and
//! says what programs see. That part belongs to the component and is taken before the least is found: taken
//! afterwards, from whatever came out as the least, a better component would cost what it gained when another
//! one, with a smaller part, becomes the least.
//!
//! What limits is named by the seen chain, because what is named must be what to improve: drives of 27.2 GB/s by
//! their data sheet, of which programs see 24.1, limit before links of 27.0, and better links gain nothing. Where
//! all components have the same part (presets, a description's own, no data sheets) the seen chain is the nominal
//! one on another scale and names the same, as the documents do, which take their part of whatever limits.

use super::client;
use super::parity::{self, Maker};
use super::parts::{INFINITE, join, lanes, why_lanes, why_switches};
pub use super::parts::{carrying, cores, links, storage};
use super::share::Shared;
use crate::catalogue::{Catalogue, Costs, pcie};
use crate::hardware::{Controller, Hardware, Role, Server, TargetGroup};
use crate::units::Rate;
use serde::Serialize;
use std::collections::BTreeSet;

/// Two rates closer than this are the same: sums are made in different orders.
const SAME: f64 = 1e-9;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the targets.
    Write,
    /// From the targets.
    Read,
}

/// A component of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The drives, with what RAID parity leaves of them.
    Drives,
    /// Parity that a thread of the kernel makes (MD RAID 5 and 6).
    SoftwareRaid,
    /// PCIe lanes of the drives.
    DriveLanes,
    /// RAID controllers and host bus adapters.
    Controllers,
    /// Uplinks of PCIe switches.
    PcieSwitches,
    /// Processors of the servers.
    Processors,
    /// Links of the servers.
    Links,
    /// Network between servers and clients.
    Fabric,
    /// Files striped over targets that are not equally fast wait for the slowest.
    SlowestTarget,
    /// Clients and their links.
    Clients,
}

/// All of them, from the drives to the programs.
pub const STAGES: [Stage; 10] = [
    Stage::Drives,
    Stage::SoftwareRaid,
    Stage::DriveLanes,
    Stage::Controllers,
    Stage::PcieSwitches,
    Stage::Processors,
    Stage::Links,
    Stage::Fabric,
    Stage::SlowestTarget,
    Stage::Clients,
];

impl Stage {
    /// As people call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Drives => "drives",
            Self::SoftwareRaid => "RAID in software",
            Self::DriveLanes => "PCIe lanes of drives",
            Self::Controllers => "controllers",
            Self::PcieSwitches => "PCIe switches",
            Self::Processors => "server processors",
            Self::Links => "server links",
            Self::Fabric => "network fabric",
            Self::SlowestTarget => "slowest target",
            Self::Clients => "clients",
        }
    }
}

/// What one component alone would allow.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// The component.
    pub stage: Stage,
    /// What the system would deliver if all other components were infinite.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub rate: Rate,
    /// The sum.
    pub why: String,
}

/// One direction of the whole system.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stream {
    /// Which way.
    pub direction: Direction,
    /// What the components allow together.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub limit: Rate,
    /// What programs are expected to see: each component at the part of its rate that programs see of it.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub expected: Rate,
    /// Expected as a part of the limit, and where that comes from.
    pub efficiency: f64,
    /// Source of the efficiency.
    pub efficiency_source: String,
    /// What limits what programs see; several when more passes only without all of them.
    pub bottleneck: Vec<Stage>,
    /// What would limit if the bottleneck were gone.
    pub next: Vec<Stage>,
    /// What the components would allow then.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub next_rate: Rate,
    /// What programs would be expected to see then.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub next_expected: Rate,
    /// How much more `next_expected` is than `expected`, as a part of the latter.
    pub headroom: f64,
    /// What programs are expected to see when there are clients enough.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub without_clients: Rate,
    /// Drives without RAID parity.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub raw_drives: Rate,
    /// Components in the order of the chain; those that cannot limit are left out.
    pub limits: Vec<Limit>,
}

/// Computes a direction.
pub fn stream(hardware: &Hardware, catalogue: &Catalogue<'_>, direction: Direction) -> Stream {
    let efficiency = catalogue.efficiency(direction);
    let costs = Costs::of(hardware.software);
    let nominal = Chain { hardware, catalogue, costs: costs.clone(), direction, data_sheet: 1.0 };
    // What programs see of everything is a factor of the whole, so both chains are the same where nothing else is.
    let seen = Chain { hardware, catalogue, costs, direction, data_sheet: efficiency.data_sheet };
    let limit = nominal.delivered(&|_| false);
    let expected = seen.delivered(&|_| false);
    let bottleneck = seen.bottleneck(expected, &BTreeSet::new());
    let lifted: BTreeSet<Stage> = bottleneck.iter().copied().collect();
    let without = |stage| lifted.contains(&stage);
    let (next_rate, next_seen) = (nominal.delivered(&without), seen.delivered(&without));
    let next = seen.bottleneck(next_seen, &lifted);
    let programs = |rate: f64| Rate(rate * efficiency.all);
    let (part, efficiency_source) = efficiency.of_limit(limit, expected);
    Stream {
        direction,
        limit: Rate(limit),
        expected: programs(expected),
        efficiency: part,
        efficiency_source,
        bottleneck,
        next,
        next_rate: Rate(next_rate),
        next_expected: programs(next_seen),
        headroom: next_seen / expected - 1.0,
        without_clients: programs(seen.delivered(&|stage| stage == Stage::Clients)),
        raw_drives: Rate(nominal.raw_drives()),
        limits: limits(&nominal, &seen, limit),
    }
}

/// What programs see of the targets of one file together: of those that give most, each server within its links.
pub fn one_file(hardware: &Hardware, catalogue: &Catalogue<'_>, direction: Direction) -> Rate {
    let efficiency = catalogue.efficiency(direction);
    let costs = Costs::of(hardware.software);
    let chain = Chain { hardware, catalogue, costs, direction, data_sheet: efficiency.data_sheet };
    let most = hardware.striping.targets as usize;
    // What each target adds to those of its server that are in use already.
    let mut gains: Vec<f64> = Vec::new();
    for server in &hardware.servers {
        let rates = |group: &TargetGroup| {
            let one = chain.drives(group).min(chain.software_raid(server, group)) / f64::from(group.count);
            core::iter::repeat_n(one, (group.count as usize).min(most))
        };
        let mut targets: Vec<f64> = storage(server).flat_map(rates).collect();
        targets.sort_by(|a, b| b.total_cmp(a));
        let mut left = links(catalogue, server);
        for target in targets.into_iter().take(most) {
            let gain = target.min(left);
            left -= gain;
            gains.extend(core::iter::repeat_n(gain, (server.count as usize).min(most)));
        }
    }
    gains.sort_by(|a, b| b.total_cmp(a));
    Rate(gains.into_iter().take(most).sum::<f64>() * efficiency.all)
}

/// What each component alone would allow, with the sums.
fn limits(nominal: &Chain<'_>, seen: &Chain<'_>, limit: f64) -> Vec<Limit> {
    let alone = |stage: Stage| (stage, nominal.delivered(&|other| other != stage));
    let mut limits: Vec<Limit> = STAGES
        .into_iter()
        .map(alone)
        .filter(|(_, rate)| *rate < INFINITE / 10.0)
        .map(|(stage, rate)| Limit { stage, rate: Rate(rate), why: seen.why(stage) })
        .collect();
    // No component of its own, but it explains why less passes than the drives alone would give.
    if nominal.delivered(&|stage| stage == Stage::SlowestTarget) > limit * (1.0 + SAME) {
        let why = seen.why(Stage::SlowestTarget);
        limits.push(Limit { stage: Stage::SlowestTarget, rate: Rate(limit), why });
    }
    limits
}

/// Is this component thought to be infinite?
type Lifted<'a> = &'a dyn Fn(Stage) -> bool;

struct Chain<'a> {
    hardware: &'a Hardware,
    catalogue: &'a Catalogue<'a>,
    costs: Costs,
    direction: Direction,
    /// Part of the rate of drives that count with their data sheet.
    data_sheet: f64,
}

/// A component of a server: how much of it a byte of each group of targets takes, and what it passes.
struct Pass {
    groups: Vec<f64>,
    rate: f64,
}

impl Chain<'_> {
    fn copies(&self) -> f64 {
        // Every written byte is stored `copies` times; a read is answered by one of them.
        if self.direction == Direction::Write { f64::from(self.hardware.striping.copies) } else { 1.0 }
    }

    fn delivered(&self, lifted: Lifted<'_>) -> f64 {
        let striped = self.hardware.striping.targets > 1 && !lifted(Stage::SlowestTarget);
        let most = if striped { self.evenly(lifted) } else { self.each_by_itself(lifted) };
        let mut rate = most.unwrap_or(INFINITE) / self.copies();
        if !lifted(Stage::Fabric) {
            rate = rate.min(self.fabric());
        }
        if !lifted(Stage::Clients) {
            rate = rate.min(self.clients());
        }
        rate.min(INFINITE)
    }

    /// What servers deliver when every file lies on one target. `None`: nothing limits.
    fn each_by_itself(&self, lifted: Lifted<'_>) -> Option<f64> {
        let server = |server: &Server| {
            let mut shared = Shared::new(vec![1.0; storage(server).count()]);
            for pass in self.passes(server, lifted) {
                shared.component(pass.groups, pass.rate);
            }
            shared.most().map(|rate| f64::from(server.count) * rate)
        };
        self.hardware.servers.iter().map(server).sum()
    }

    /// The same when files are striped: all targets of a pool at the pace of the slowest of them.
    fn evenly(&self, lifted: Lifted<'_>) -> Option<f64> {
        let all = || self.storage_servers().flat_map(|s| storage(s).map(move |group| (s.count, group)));
        let pools: BTreeSet<&str> = all().map(|(_, group)| group.pool.as_str()).collect();
        let targets = |pool: &&str| {
            let members = all().filter(|(_, group)| group.pool == *pool);
            members.map(|(servers, group)| f64::from(servers) * f64::from(group.count)).sum::<f64>()
        };
        let mut shared = Shared::new(pools.iter().map(targets).collect());
        for server in self.storage_servers() {
            for pass in self.passes(server, lifted) {
                let on_it = |pool: &&str| {
                    let groups = storage(server).zip(&pass.groups);
                    let members = groups.filter(|(group, _)| group.pool == *pool);
                    members.map(|(group, taken)| f64::from(group.count) * taken).sum::<f64>()
                };
                shared.component(pools.iter().map(on_it).collect(), pass.rate);
            }
        }
        shared.most()
    }

    /// The components of one server that can limit its groups of storage targets.
    fn passes(&self, server: &Server, lifted: Lifted<'_>) -> Vec<Pass> {
        let groups: Vec<&TargetGroup> = storage(server).collect();
        let mut passes = Vec::new();
        let mut pass = |stage: Stage, on_it: &dyn Fn(usize) -> bool, rate: f64| {
            if !lifted(stage) && rate < INFINITE / 10.0 {
                let groups = (0..groups.len()).map(|at| f64::from(on_it(at)));
                passes.push(Pass { groups: groups.collect(), rate });
            }
        };
        for (at, group) in groups.iter().enumerate() {
            pass(Stage::Drives, &|other| other == at, self.drives(group));
            pass(Stage::DriveLanes, &|other| other == at, lanes(group));
            pass(Stage::SoftwareRaid, &|other| other == at, self.software_raid(server, group));
        }
        for controller in &server.controllers {
            let slot = controller.pcie.map_or(INFINITE, |slot| pcie(slot).0);
            let one = self.controller(controller).map_or(INFINITE, |rate| rate.0).min(slot);
            let on_it = |at: usize| groups[at].controller.as_ref() == Some(&controller.name);
            pass(Stage::Controllers, &on_it, f64::from(controller.count) * one);
        }
        for switch in &server.pcie_switches {
            let on_it = |at: usize| groups[at].pcie_switch.as_ref() == Some(&switch.name);
            pass(Stage::PcieSwitches, &on_it, f64::from(switch.count) * pcie(switch.uplink).0);
        }
        pass(Stage::Links, &|_| true, links(self.catalogue, server));
        let processors = self.processors(server).filter(|_| !lifted(Stage::Processors));
        passes.extend(processors);
        passes
    }

    /// What one controller passes: as measured, else by the catalogue.
    fn controller(&self, controller: &Controller) -> Option<Rate> {
        let listed = || self.catalogue.controller(&controller.kind).map(|part| part.rate);
        self.measured(controller).or_else(listed)
    }

    fn measured(&self, controller: &Controller) -> Option<Rate> {
        match self.direction {
            Direction::Write => controller.measured_write,
            Direction::Read => controller.measured_read,
        }
    }

    /// What the drives of a group deliver, after parity.
    fn drives(&self, group: &TargetGroup) -> f64 {
        let one = match self.measured_target(group) {
            Some(measured) => measured.0,
            None => self.drive_rate(group) * f64::from(self.working(group)) * self.part_of_drives(group),
        };
        f64::from(group.count) * one
    }

    fn measured_target(&self, group: &TargetGroup) -> Option<Rate> {
        match self.direction {
            Direction::Write => group.measured_write,
            Direction::Read => group.measured_read,
        }
    }

    /// Part of their rate that these drives count with.
    fn part_of_drives(&self, group: &TargetGroup) -> f64 {
        let drive = self.catalogue.drive(&group.drive);
        let sheet = drive.is_some_and(|drive| drive.streaming(self.direction).data_sheet);
        if sheet { self.data_sheet } else { 1.0 }
    }

    fn working(&self, group: &TargetGroup) -> u32 {
        let drives = self.counted(group);
        match self.direction {
            Direction::Write => group.raid.data_drives(drives),
            Direction::Read => group.raid.reading_drives(drives),
        }
    }

    /// Drives of a target that make it faster.
    fn counted(&self, group: &TargetGroup) -> u32 {
        let kind = self.catalogue.drive(&group.drive).map(|drive| drive.kind);
        kind.map_or(group.drives, |kind| parity::counted(group, kind))
    }

    fn drive_rate(&self, group: &TargetGroup) -> f64 {
        self.catalogue.drive(&group.drive).map_or(0.0, |drive| drive.streaming(self.direction).rate.0)
    }

    /// What threads of the kernel that make parity pass of a group.
    fn software_raid(&self, server: &Server, group: &TargetGroup) -> f64 {
        match parity::maker(server, group) {
            Maker::Md if self.direction == Direction::Write && self.measured_target(group).is_none() => {
                f64::from(group.count) * self.catalogue.core_copy().rate.0
                    / parity::passes(group, self.direction)
            }
            _ => INFINITE,
        }
    }

    /// Passes through memory that a core makes for each byte of a group beside what the software costs.
    fn core_passes(&self, server: &Server, group: &TargetGroup) -> f64 {
        if parity::maker(server, group) == Maker::Zfs && self.measured_target(group).is_none() {
            return parity::passes(group, self.direction);
        }
        0.0
    }

    /// Cores of a server: bytes of each group by what they cost. `None`: nothing is known.
    fn processors(&self, server: &Server) -> Option<Pass> {
        let rate = if self.direction == Direction::Write {
            self.costs.write_per_core
        } else {
            self.costs.read_per_core
        };
        let cores = cores(server)?;
        let software = |group: &TargetGroup| {
            let copying = self.core_passes(server, group) / self.catalogue.core_copy().rate.0;
            copying + rate.map_or(0.0, |rate| 1.0 / rate.0)
        };
        let seconds: Vec<f64> = storage(server).map(software).collect();
        let most = seconds.iter().copied().fold(0.0, f64::max);
        let groups = seconds.iter().map(|one| one / most).collect();
        (most > 0.0).then(|| Pass { groups, rate: cores / most })
    }

    fn why_processors(&self, server: &Server) -> Option<String> {
        let cores = cores(server)?;
        let pass = self.processors(server)?;
        let passes = storage(server).map(|group| self.core_passes(server, group)).fold(0.0, f64::max);
        let zfs = match passes > 0.0 {
            true => format!(
                ", check sums and parity of ZFS included: {passes} passes at {} ({})",
                self.catalogue.core_copy().rate,
                self.catalogue.core_copy().source
            ),
            false => String::new(),
        };
        Some(format!("{cores} cores x {}{zfs}", Rate(pass.rate / cores)))
    }

    fn fabric(&self) -> f64 {
        let links: f64 = self
            .storage_servers()
            .map(|server| f64::from(server.count) * links(self.catalogue, server))
            .sum();
        let over = self.hardware.network.oversubscription;
        let through = if over > 1.0 { links / over } else { INFINITE };
        through.min(self.hardware.network.fabric.map_or(INFINITE, |rate| rate.0))
    }

    fn client(&self) -> client::OneClient {
        client::one(self.hardware, self.catalogue, self.direction)
    }

    fn clients(&self) -> f64 {
        f64::from(self.hardware.clients.count) * self.client().rate.0
    }

    fn storage_servers(&self) -> impl Iterator<Item = &Server> {
        self.hardware.servers.iter().filter(|server| storage(server).next().is_some())
    }

    fn raw_drives(&self) -> f64 {
        let group =
            |group: &TargetGroup| f64::from(group.count) * f64::from(group.drives) * self.drive_rate(group);
        self.hardware
            .servers
            .iter()
            .map(|server| f64::from(server.count) * storage(server).map(group).sum::<f64>())
            .sum()
    }

    /// The components that limit `rate`: the one whose removal frees most; when removing none alone helps, a few that
    /// must all go before more passes.
    fn bottleneck(&self, rate: f64, gone: &BTreeSet<Stage>) -> Vec<Stage> {
        if rate >= INFINITE / 10.0 {
            return Vec::new();
        }
        let more = |freed: f64| freed > rate * (1.0 + SAME);
        let most = |a: &(Stage, f64), b: &(Stage, f64)| a.1.total_cmp(&b.1);
        let left: BTreeSet<Stage> = STAGES.into_iter().filter(|stage| !gone.contains(stage)).collect();
        let freed = |stage: Stage| self.delivered(&|other| other == stage || gone.contains(&other));
        let best = left.iter().map(|stage| (*stage, freed(*stage))).max_by(most);
        if let Some((stage, freed)) = best
            && more(freed)
        {
            return vec![stage];
        }
        // Kinds of servers may each have a tie of their own. So all are thought to be gone, and come back one by one,
        // first what costs least, until each that is still gone is needed.
        let mut needed = left;
        loop {
            let back = |stage: Stage| {
                self.delivered(&|other| other != stage && needed.contains(&other) || gone.contains(&other))
            };
            match needed.iter().map(|stage| (*stage, back(*stage))).max_by(most) {
                Some((stage, freed)) if more(freed) => needed.remove(&stage),
                _ => return needed.into_iter().collect(),
            };
        }
    }

    fn why(&self, stage: Stage) -> String {
        let servers = |text: &dyn Fn(&Server) -> Option<String>| {
            let parts = self.storage_servers().filter_map(|server| {
                text(server).map(|text| format!("{} {}: {text}", server.count, server.name))
            });
            parts.collect::<Vec<_>>().join("; ")
        };
        let mirrored = match self.copies() {
            copies if copies > 1.0 && stage != Stage::Clients => format!("; divided by {copies} copies"),
            _ => String::new(),
        };
        let text = match stage {
            Stage::Drives => {
                servers(&|server| Some(join(storage(server).map(|group| self.why_drives(group)))))
            }
            Stage::DriveLanes => servers(&|server| Some(join(storage(server).filter_map(why_lanes)))),
            Stage::Controllers => servers(&|server| Some(self.why_controllers(server))),
            Stage::PcieSwitches => servers(&|server| Some(why_switches(server))),
            Stage::Processors => servers(&|server| self.why_processors(server)),
            Stage::SoftwareRaid => servers(&|server| {
                let groups = storage(server).filter(|group| self.software_raid(server, group) < INFINITE);
                Some(join(groups.map(|group| parity::why(group, &self.catalogue.core_copy()))))
                    .filter(|s| !s.is_empty())
            }),
            Stage::Links => servers(&|server| Some(self.why_links(server))),
            Stage::Fabric => {
                let over = self.hardware.network.oversubscription;
                format!("links of the storage servers, {over}:1 oversubscribed, or what the fabric moves")
            }
            Stage::SlowestTarget => "every target at the rate of the slowest of its pool".to_owned(),
            Stage::Clients => {
                let one = self.client();
                format!("{} clients x {} ({})", self.hardware.clients.count, one.rate, one.why)
            }
        };
        text + &mirrored
    }

    fn why_drives(&self, group: &TargetGroup) -> String {
        if let Some(measured) = self.measured_target(group) {
            return format!("{} targets x {measured} as measured", group.count);
        }
        let working = self.working(group);
        let rate = Rate(self.drive_rate(group));
        let counted = self.counted(group);
        let drives = match working == group.drives {
            true => format!("{working}"),
            false if counted < group.drives => format!(
                "{working} (of {} in {}, which counts as one of {counted}: more lose speed, 001)",
                group.drives, group.raid
            ),
            false => format!("{working} (of {} in {})", group.drives, group.raid),
        };
        let seen = match self.part_of_drives(group) {
            part if part < 1.0 => format!(" by its data sheet, of which programs see {:.1} %", part * 100.0),
            _ => String::new(),
        };
        format!("{} targets x {drives} {} x {rate}{seen}", group.count, group.drive)
    }

    fn why_controllers(&self, server: &Server) -> String {
        join(server.controllers.iter().map(|controller| {
            let rate = self.controller(controller).unwrap_or(Rate(0.0));
            let slot = match controller.pcie {
                Some(slot) if pcie(slot) < rate => format!(", in a slot of {}", pcie(slot)),
                _ => String::new(),
            };
            let measured = if self.measured(controller).is_some() { " as measured" } else { "" };
            format!("{} {} x {rate}{measured}{slot}", controller.count, controller.kind)
        }))
    }

    fn why_links(&self, server: &Server) -> String {
        join(carrying(server, Role::Storage).map(|nic| {
            let rate = self.catalogue.nic(&nic.kind).map_or(Rate(0.0), |part| part.rate);
            let slot = match nic.pcie {
                Some(slot) if pcie(slot) < rate => format!(", in a slot of {}", pcie(slot)),
                _ => String::new(),
            };
            format!("{} {} x {rate}{slot}", nic.count, nic.kind)
        }))
    }
}
