//! Streaming as a chain of components: what each passes, which one limits, which one is next.
//!
//! Every group of targets is a flow that starts at its drives and passes drive slots, controller, PCIe
//! switch, processors and links of its server, then the network and the clients. A component that gets more
//! than it can pass scales what it gets. To find what limits, each component in turn is thought to be
//! infinite: the one that frees most is the bottleneck. This also holds for servers that are not alike.

use crate::catalogue::{Catalogue, Costs, pcie};
use crate::hardware::{Controller, Hardware, Role, Server, TargetGroup};
use crate::units::Rate;
use serde::Serialize;
use std::collections::BTreeSet;

/// Stands for "as much as you like"; far above any system and far from overflow.
const INFINITE: f64 = 1e21;
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
pub const STAGES: [Stage; 9] = [
    Stage::Drives,
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
    /// What programs are expected to see: the limit times the efficiency.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub expected: Rate,
    /// Expected as a part of the limit, and where that comes from.
    pub efficiency: f64,
    /// Source of the efficiency.
    pub efficiency_source: String,
    /// What limits; several when they allow exactly the same.
    pub bottleneck: Vec<Stage>,
    /// What would limit if the bottleneck were gone.
    pub next: Vec<Stage>,
    /// What the components would allow then.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub next_rate: Rate,
    /// What programs would be expected to see then, with the same efficiency.
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
    let chain = Chain { hardware, catalogue, costs: Costs::of(hardware.software), direction };
    let limit = chain.delivered(&|_| false);
    let alone: Vec<(Stage, f64)> =
        STAGES.into_iter().map(|stage| (stage, chain.delivered(&|other| other != stage))).collect();
    let bottleneck = chain.bottleneck(limit, &alone, &BTreeSet::new());
    let lifted: BTreeSet<Stage> = bottleneck.iter().copied().collect();
    let next_rate = chain.delivered(&|stage| lifted.contains(&stage));
    let next = chain.bottleneck(next_rate, &alone, &lifted);
    let (efficiency, efficiency_source) = chain.efficiency(&bottleneck);
    let expected = limit * efficiency;
    let mut limits: Vec<Limit> = alone
        .iter()
        .filter(|(_, rate)| *rate < INFINITE / 10.0)
        .map(|(stage, rate)| Limit { stage: *stage, rate: Rate(*rate), why: chain.why(*stage) })
        .collect();
    // No component of its own, but it explains why less passes than the drives alone would give.
    if chain.delivered(&|stage| stage == Stage::SlowestTarget) > limit * (1.0 + SAME) {
        let why = chain.why(Stage::SlowestTarget);
        limits.push(Limit { stage: Stage::SlowestTarget, rate: Rate(limit), why });
    }
    Stream {
        direction,
        limit: Rate(limit),
        expected: Rate(expected),
        efficiency,
        efficiency_source,
        bottleneck,
        next,
        next_rate: Rate(next_rate),
        next_expected: Rate(next_rate * efficiency),
        headroom: next_rate / limit - 1.0,
        without_clients: Rate(chain.without_clients(&alone, limit, expected)),
        raw_drives: Rate(chain.raw_drives()),
        limits,
    }
}

/// Is this component thought to be infinite?
type Lifted<'a> = &'a dyn Fn(Stage) -> bool;

struct Chain<'a> {
    hardware: &'a Hardware,
    catalogue: &'a Catalogue<'a>,
    costs: Costs,
    direction: Direction,
}

impl Chain<'_> {
    /// Part of the limit that programs see, and who says so.
    fn efficiency(&self, bottleneck: &[Stage]) -> (f64, String) {
        let data_sheet = bottleneck.contains(&Stage::Drives) && self.by_data_sheet();
        let [writing, reading] = self.catalogue.efficiency([data_sheet; 2]);
        if self.direction == Direction::Write { writing } else { reading }
    }

    /// What programs see of servers and network when clients do not limit; no less than with them.
    fn without_clients(&self, alone: &[(Stage, f64)], limit: f64, expected: f64) -> f64 {
        let servers = self.delivered(&|stage| stage == Stage::Clients);
        if servers <= limit * (1.0 + SAME) {
            return expected;
        }
        let (efficiency, _) = self.efficiency(&self.bottleneck(servers, alone, &[Stage::Clients].into()));
        (servers * efficiency).max(expected)
    }

    fn copies(&self) -> f64 {
        // Every written byte is stored `copies` times; a read is answered by one of them.
        if self.direction == Direction::Write { f64::from(self.hardware.striping.copies) } else { 1.0 }
    }

    fn delivered(&self, lifted: Lifted<'_>) -> f64 {
        let flows: Vec<(&Server, Vec<f64>)> =
            self.hardware.servers.iter().map(|server| (server, self.server(server, lifted))).collect();
        let sum: f64 =
            flows.iter().map(|(server, flows)| f64::from(server.count) * flows.iter().sum::<f64>()).sum();
        let mut rate = if lifted(Stage::SlowestTarget) { sum } else { self.even(&flows).unwrap_or(sum) };
        rate /= self.copies();
        if !lifted(Stage::Fabric) {
            rate = rate.min(self.fabric());
        }
        if !lifted(Stage::Clients) {
            rate = rate.min(self.clients());
        }
        rate.min(INFINITE)
    }

    /// A striped file is written at the pace of its slowest target, in every pool by itself. `None` when
    /// files are not striped.
    fn even(&self, flows: &[(&Server, Vec<f64>)]) -> Option<f64> {
        if self.hardware.striping.targets < 2 {
            return None;
        }
        let all = || {
            flows.iter().flat_map(|(server, flows)| {
                storage(server).zip(flows).map(|(group, flow)| (group, f64::from(server.count), *flow))
            })
        };
        let pools: BTreeSet<&str> = all().map(|(group, _, _)| group.pool.as_str()).collect();
        let mut sum = 0.0;
        for pool in pools {
            let members = || all().filter(|(group, _, _)| group.pool == pool);
            let targets: f64 = members().map(|(group, servers, _)| servers * f64::from(group.count)).sum();
            let slowest =
                members().map(|(group, _, flow)| flow / f64::from(group.count)).fold(INFINITE, f64::min);
            sum += targets * slowest;
        }
        Some(sum)
    }

    /// What the groups of storage targets of one server deliver to the network.
    fn server(&self, server: &Server, lifted: Lifted<'_>) -> Vec<f64> {
        let groups: Vec<&TargetGroup> = storage(server).collect();
        let mut flows: Vec<f64> = groups
            .iter()
            .map(|group| {
                let drives = if lifted(Stage::Drives) { INFINITE } else { self.drives(group) };
                let lanes = if lifted(Stage::DriveLanes) { INFINITE } else { lanes(group) };
                drives.min(lanes)
            })
            .collect();
        if !lifted(Stage::Controllers) {
            for controller in &server.controllers {
                let slot = controller.pcie.map_or(INFINITE, |slot| pcie(slot).0);
                let one = self.controller(controller).map_or(INFINITE, |rate| rate.0).min(slot);
                let on_it = |at: usize| groups[at].controller.as_ref() == Some(&controller.name);
                squeeze(&mut flows, on_it, f64::from(controller.count) * one);
            }
        }
        if !lifted(Stage::PcieSwitches) {
            for switch in &server.pcie_switches {
                let on_it = |at: usize| groups[at].pcie_switch.as_ref() == Some(&switch.name);
                squeeze(&mut flows, on_it, f64::from(switch.count) * pcie(switch.uplink).0);
            }
        }
        if !lifted(Stage::Processors) {
            squeeze(&mut flows, |_| true, self.processors(server));
        }
        if !lifted(Stage::Links) {
            squeeze(&mut flows, |_| true, self.links(server));
        }
        flows
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
        let measured = match self.direction {
            Direction::Write => group.measured_write,
            Direction::Read => group.measured_read,
        };
        let one = match measured {
            Some(measured) => measured.0,
            None => self.drive_rate(group) * f64::from(self.working(group)),
        };
        f64::from(group.count) * one
    }

    fn working(&self, group: &TargetGroup) -> u32 {
        match self.direction {
            Direction::Write => group.raid.data_drives(group.drives),
            Direction::Read => group.raid.reading_drives(group.drives),
        }
    }

    fn drive_rate(&self, group: &TargetGroup) -> f64 {
        let Some(drive) = self.catalogue.drive(&group.drive) else { return 0.0 };
        if self.direction == Direction::Write { drive.write.0 } else { drive.read.0 }
    }

    /// Some drives count with the rate of their data sheet.
    fn by_data_sheet(&self) -> bool {
        let measured = |group: &TargetGroup| match self.direction {
            Direction::Write => group.measured_write.is_some(),
            Direction::Read => group.measured_read.is_some(),
        };
        let sheet =
            |group: &TargetGroup| self.catalogue.drive(&group.drive).is_some_and(|drive| drive.data_sheet);
        self.hardware.servers.iter().flat_map(storage).any(|group| !measured(group) && sheet(group))
    }

    fn processors(&self, server: &Server) -> f64 {
        let rate = if self.direction == Direction::Write {
            self.costs.write_per_core
        } else {
            self.costs.read_per_core
        };
        match (rate, cores(server)) {
            (Some(rate), Some(cores)) => rate.0 * cores,
            _ => INFINITE,
        }
    }

    fn links(&self, server: &Server) -> f64 {
        let link = |nic: &crate::hardware::Nic| {
            let slot = nic.pcie.map_or(INFINITE, |slot| pcie(slot).0);
            let rate = self.catalogue.nic(&nic.kind).map_or(0.0, |part| part.rate.0);
            f64::from(nic.count) * rate.min(slot)
        };
        carrying(server, Role::Storage).map(link).sum()
    }

    fn fabric(&self) -> f64 {
        let links: f64 =
            self.storage_servers().map(|server| f64::from(server.count) * self.links(server)).sum();
        let over = self.hardware.network.oversubscription;
        let through = if over > 1.0 { links / over } else { INFINITE };
        through.min(self.hardware.network.fabric.map_or(INFINITE, |rate| rate.0))
    }

    fn client(&self) -> f64 {
        let clients = &self.hardware.clients;
        let link = self.catalogue.nic(&clients.nic).map_or(0.0, |part| part.rate.0);
        (f64::from(clients.nics) * link).min(clients.stream.map_or(INFINITE, |rate| rate.0))
    }

    fn clients(&self) -> f64 {
        f64::from(self.hardware.clients.count) * self.client()
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

    /// The components that limit `rate`: the one whose removal frees most; when removing none alone helps,
    /// those that allow exactly as much.
    fn bottleneck(&self, rate: f64, alone: &[(Stage, f64)], gone: &BTreeSet<Stage>) -> Vec<Stage> {
        if rate >= INFINITE / 10.0 {
            return Vec::new();
        }
        let left = || STAGES.into_iter().filter(|stage| !gone.contains(stage));
        let freed = |stage: Stage| self.delivered(&|other| other == stage || gone.contains(&other));
        let best = left().map(|stage| (stage, freed(stage))).max_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((stage, freed)) if freed > rate * (1.0 + SAME) => vec![stage],
            _ => {
                let as_much = |stage: &Stage| {
                    alone.iter().any(|(other, limit)| other == stage && *limit <= rate * (1.0 + SAME))
                };
                left().filter(as_much).collect()
            }
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
            Stage::Processors => servers(&|server| {
                cores(server)
                    .map(|cores| format!("{cores} cores x {}", Rate(self.processors(server) / cores)))
            }),
            Stage::Links => servers(&|server| Some(self.why_links(server))),
            Stage::Fabric => {
                let over = self.hardware.network.oversubscription;
                format!("links of the storage servers, {over}:1 oversubscribed, or what the fabric moves")
            }
            Stage::SlowestTarget => "every target at the rate of the slowest of its pool".to_owned(),
            Stage::Clients => {
                let clients = &self.hardware.clients;
                format!(
                    "{} clients x {} ({} x {})",
                    clients.count,
                    Rate(self.client()),
                    clients.nics,
                    clients.nic
                )
            }
        };
        text + &mirrored
    }

    fn why_drives(&self, group: &TargetGroup) -> String {
        let measured = match self.direction {
            Direction::Write => group.measured_write,
            Direction::Read => group.measured_read,
        };
        if let Some(measured) = measured {
            return format!("{} targets x {measured} as measured", group.count);
        }
        let working = self.working(group);
        let rate = Rate(self.drive_rate(group));
        let drives = if working == group.drives {
            format!("{working}")
        } else {
            format!("{working} (of {} in {})", group.drives, group.raid)
        };
        format!("{} targets x {drives} {} x {rate}", group.count, group.drive)
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

/// Flows that pass a component together are scaled to what it passes.
fn squeeze(flows: &mut [f64], on_it: impl Fn(usize) -> bool, most: f64) {
    let sum: f64 = flows.iter().enumerate().filter(|(at, _)| on_it(*at)).map(|(_, flow)| flow).sum();
    if sum <= most {
        return;
    }
    for (at, flow) in flows.iter_mut().enumerate() {
        if on_it(at) {
            *flow *= most / sum;
        }
    }
}

fn lanes(group: &TargetGroup) -> f64 {
    let drives = f64::from(group.count) * f64::from(group.drives);
    group.pcie.map_or(INFINITE, |slot| drives * pcie(slot).0)
}

fn why_lanes(group: &TargetGroup) -> Option<String> {
    let slot = group.pcie?;
    let drives = u64::from(group.count) * u64::from(group.drives);
    Some(format!("{drives} drives x {} lanes of PCIe {} = {}", slot.lanes, slot.generation, pcie(slot)))
}

fn why_switches(server: &Server) -> String {
    join(server.pcie_switches.iter().map(|switch| {
        let behind = server.targets.iter().filter(|group| group.pcie_switch.as_ref() == Some(&switch.name));
        let lanes: u64 = behind
            .map(|group| {
                let each = group.pcie.map_or(0, |slot| slot.lanes);
                u64::from(group.count) * u64::from(group.drives) * u64::from(each)
            })
            .sum();
        let up = u64::from(switch.count) * u64::from(switch.uplink.lanes);
        let over = if lanes > up {
            format!(", {:.3}:1 oversubscribed", lanes as f64 / up as f64)
        } else {
            String::new()
        };
        let rate = Rate(f64::from(switch.count) * pcie(switch.uplink).0);
        let over = over.replace(".000:1", ":1");
        format!("{up} lanes of PCIe {} = {rate} for {lanes} lanes of drives{over}", switch.uplink.generation)
    }))
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" + ")
}

/// Groups of storage targets.
pub fn storage(server: &Server) -> impl Iterator<Item = &TargetGroup> {
    server.targets.iter().filter(|group| group.role == Role::Storage)
}

/// Links that carry a role.
pub fn carrying(server: &Server, role: Role) -> impl Iterator<Item = &crate::hardware::Nic> {
    server.nics.iter().filter(move |nic| nic.roles.is_empty() || nic.roles.contains(&role))
}

/// All cores of a server that do not serve metadata only, when they are known.
pub fn cores(server: &Server) -> Option<f64> {
    let all = server.sockets.checked_mul(server.cores?)?;
    Some(f64::from(all.saturating_sub(server.meta_cores.unwrap_or(0)).max(1)))
}
