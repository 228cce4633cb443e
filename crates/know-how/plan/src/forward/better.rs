//! Systems made at random: a component that gets better never makes a forecast worse.

use super::parity::{Maker, maker};
use super::*;
use crate::hardware::{DriveOverride, Pcie, Server, TargetGroup};
use crate::units::Rate;
use std::fmt::Write as _;

/// Systems that are tried.
const SYSTEMS: u64 = 200;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    }

    fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    fn rate(&mut self, most: u64) -> String {
        format!("\"{}.{} GB/s\"", self.below(most), self.between(1, 9))
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 0
    }

    fn slot(&mut self) -> String {
        format!("{{ generation = {}, lanes = {} }}", self.between(1, 4), self.one_of(&["1", "4", "8"]))
    }
}

/// One to three kinds of servers with groups that share controllers, switches and links crosswise.
fn system(dice: &mut Dice) -> String {
    let mut text = "name = \"random\"\n".to_owned();
    let software = dice.one_of(&["skep", "beegfs"]);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "software = \"{software}\"");
    if dice.below(4) == 0 {
        let _ = writeln!(text, "preset = \"{}\"", dice.one_of(&["dell-2021", "clusterstor-6000"]));
    }
    for at in 0..dice.between(1, 3) {
        server(dice, &mut text, at);
    }
    let _ = writeln!(text, "[clients]\ncount = {}\nnic = \"n3\"", dice.between(1, 60));
    if dice.yes() {
        let _ = writeln!(text, "stream = {}", dice.rate(8));
    }
    let _ = writeln!(text, "[striping]\ntargets = {}", dice.between(1, 2));
    let _ = writeln!(text, "[network]\noversubscription = {}.5", dice.between(1, 2));
    if dice.yes() {
        let _ = writeln!(text, "fabric = {}", dice.rate(90));
    }
    text.push_str("[catalogue]\n");
    if dice.below(4) == 0 {
        text.push_str("write_efficiency = 0.7\n");
    }
    for at in 0..4 {
        let _ = writeln!(text, "nics.n{at} = {}", dice.rate(30));
    }
    let _ = writeln!(text, "controllers.c = {}", dice.rate(20));
    for at in 0..2 {
        let (read, write) = (dice.rate(5), dice.rate(5));
        let _ = writeln!(
            text,
            "drives.d{at} = {{ read = {read}, write = {write}, read_iops = 9e4, write_iops = 1e4 }}"
        );
    }
    text
}

fn server(dice: &mut Dice, text: &mut String, at: u64) {
    let count = dice.between(1, 4);
    let _ = writeln!(text, "[[servers]]\nname = \"s{at}\"\ncount = {count}\nroles = [\"storage\"]");
    let _ = writeln!(text, "memory = \"64 GiB\"");
    if dice.yes() {
        let _ = writeln!(text, "cores = {}", dice.between(1, 64));
    }
    let _ = writeln!(text, "[[servers.nics]]\nkind = \"n{at}\"\ncount = {}", dice.between(1, 2));
    if dice.yes() {
        let _ = writeln!(text, "pcie = {}", dice.slot());
    }
    for name in ["x", "y"] {
        let _ = writeln!(text, "[[servers.controllers]]\nname = \"{name}\"\nkind = \"c\"");
        if dice.yes() {
            let _ = writeln!(text, "measured_write = {}", dice.rate(9));
        }
        let _ = writeln!(text, "[[servers.pcie_switches]]\nname = \"{name}\"\nuplink = {}", dice.slot());
    }
    for _ in 0..dice.between(1, 4) {
        let drive = dice.one_of(&["hdd", "nvme", "p4600", "p4600", "d0", "d1"]);
        let (count, drives) = (dice.between(2, 6), dice.between(3, 8));
        let _ = writeln!(text, "[[servers.targets]]\nrole = \"storage\"\ncount = {count}\ndrives = {drives}");
        let _ =
            writeln!(text, "drive = \"{drive}\"\nsize = \"1 TB\"\npool = \"{}\"", dice.one_of(&["a", "b"]));
        text.push_str(dice.one_of(&["raid = \"raid5\"\n", "raid = \"raidz1\"\nfile_system = \"zfs\"\n"]));
        for key in ["controller", "pcie_switch"] {
            if dice.yes() {
                let _ = writeln!(text, "{key} = \"{}\"", dice.one_of(&["x", "y"]));
            }
        }
        if dice.below(4) == 0 {
            let _ = writeln!(text, "measured_read = {}", dice.rate(9));
        }
        if dice.yes() {
            let _ = writeln!(text, "pcie = {}", dice.slot());
        }
    }
}

/// The same system with one component better, for each of its components, and what was made better.
fn improved(hardware: &Hardware, more: f64) -> Vec<(String, Hardware)> {
    let mut all = Vec::new();
    let mut with = |what: String, better: &dyn Fn(&mut Hardware)| {
        let mut changed = hardware.clone();
        better(&mut changed);
        if changed != *hardware {
            all.push((what, changed));
        }
    };
    let raise = |rate: &mut Rate| rate.0 *= more;
    let wider = |slot: &mut Pcie| slot.generation += 1;
    for name in hardware.catalogue.nics.keys() {
        with(format!("link {name}"), &|h| h.catalogue.nics.get_mut(name).into_iter().for_each(raise));
    }
    for name in hardware.catalogue.drives.keys() {
        with(format!("drive {name}"), &|h| {
            let drive = h.catalogue.drives.get_mut(name).unwrap();
            drive.read.iter_mut().chain(&mut drive.write).for_each(raise);
        });
    }
    with("controllers".to_owned(), &|h| h.catalogue.controllers.values_mut().for_each(raise));
    with("one client".to_owned(), &|h| h.clients.stream.iter_mut().for_each(raise));
    with("clients".to_owned(), &|h| h.clients.count += 1);
    with("fabric".to_owned(), &|h| h.network.fabric.iter_mut().for_each(raise));
    with("oversubscription".to_owned(), &|h| h.network.oversubscription = 1.0);
    for (at, server) in hardware.servers.iter().enumerate() {
        let name = &server.name;
        with(format!("cores of {name}"), &|h| h.servers[at].cores.iter_mut().for_each(|cores| *cores += 1));
        with(format!("one more link of {name}"), &|h| h.servers[at].nics[0].count += 1);
        with(format!("slot of links of {name}"), &|h| h.servers[at].nics[0].pcie.iter_mut().for_each(wider));
        for one in 0..2 {
            with(format!("uplink {one} of {name}"), &|h| wider(&mut h.servers[at].pcie_switches[one].uplink));
            with(format!("controller {one} of {name}, measured"), &|h| {
                h.servers[at].controllers[one].measured_write.iter_mut().for_each(raise);
            });
        }
        for group in 0..server.targets.len() {
            with(format!("lanes of group {group} of {name}"), &|h| {
                h.servers[at].targets[group].pcie.iter_mut().for_each(wider);
            });
            with(format!("group {group} of {name}, measured"), &|h| {
                h.servers[at].targets[group].measured_read.iter_mut().for_each(raise);
            });
            // Better in both directions; both count with their data sheets.
            with(format!("drives of group {group} of {name}"), &|h| {
                let drive = &mut h.servers[at].targets[group].drive;
                *drive = drive.replace("p4600", "p5600");
            });
        }
    }
    all
}

fn figures(forecast: &Forecast) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for stream in [&forecast.write, &forecast.read] {
        for (what, rate) in [
            ("limit", stream.limit),
            ("expected", stream.expected),
            ("without clients", stream.without_clients),
        ] {
            all.push((format!("{:?}: {what}", stream.direction), rate.0));
        }
    }
    for (what, figure) in [
        ("shared, written", &forecast.single_file.write),
        ("shared, read", &forecast.single_file.read),
        ("random reads", &forecast.random.read),
        ("random writes", &forecast.random.write),
    ] {
        all.push((what.to_owned(), figure.as_ref().map_or(0.0, |figure| figure.value)));
    }
    all
}

/// Goal: of whatever system, no component that gets better lowers any rate that is forecast: neither because another
/// component with a smaller part of it for programs then limits, nor because it takes from what it shares with others.
#[test]
fn better_is_never_worse() {
    let (mut compared, mut helped) = (0, 0);
    for seed in 0..SYSTEMS {
        let text = system(&mut Dice(seed));
        let hardware =
            Hardware::from_toml("random", &text).unwrap_or_else(|fault| panic!("{fault:?}\n{text}"));
        let before = figures(&forecast(&hardware).unwrap_or_else(|problem| panic!("{problem:?}\n{text}")));
        for (what, better) in [1.01, 1.3, 20.0].into_iter().flat_map(|more| improved(&hardware, more)) {
            let after = figures(&forecast(&better).unwrap());
            for ((figure, before), (_, after)) in before.iter().zip(after) {
                assert!(
                    after >= before * (1.0 - 1e-9),
                    "{seed}: {what}: {figure} {before} -> {after}\n{text}"
                );
                compared += 1;
                helped += usize::from(after > before * (1.0 + 1e-9));
            }
        }
    }
    assert!(helped > compared / 100, "only {helped} of {compared} rose: nothing is tried here");
}

/// Goal: what is shown hangs together: programs see no more than the limit, the part between them is the one that is
/// shown, nothing is lost by lifting what limits, and clients enough are never worse than those there are.
#[test]
fn figures_hang_together() {
    for seed in 0..SYSTEMS {
        let text = system(&mut Dice(SYSTEMS + seed));
        let forecast = forecast(&Hardware::from_toml("random", &text).unwrap()).unwrap();
        for stream in [&forecast.write, &forecast.read] {
            let (limit, expected) = (stream.limit.0, stream.expected.0);
            assert!(expected <= limit * (1.0 + 1e-9), "{seed}: {stream:?}");
            assert!((expected / limit / stream.efficiency - 1.0).abs() < 1e-8, "{seed}: {stream:?}");
            let next = stream.next_expected.0 / expected;
            assert!(next > 1.0 && (next - 1.0 - stream.headroom).abs() < 1e-6 * next, "{seed}: {stream:?}");
            assert!(stream.without_clients.0 >= expected * (1.0 - 1e-9), "{seed}: {stream:?}");
            assert!(!stream.bottleneck.is_empty(), "{seed}: {stream:?}");
        }
    }
}

/// So much that it limits nothing.
const PLENTY: Rate = Rate(1e15);

/// An oversubscribed network moves a part of what links do. What it moves stays as it is when they get better.
fn pin_network(hardware: &mut Hardware) {
    let network = hardware.network.clone();
    if network.oversubscription > 1.0 {
        let catalogue = Catalogue::of(hardware).unwrap();
        let of = |server: &Server| f64::from(server.count) * stream::links(&catalogue, server);
        let all: f64 = hardware.servers.iter().map(of).sum();
        let moved = network.fabric.map_or(f64::INFINITY, |rate| rate.0).min(all / network.oversubscription);
        (hardware.network.fabric, hardware.network.oversubscription) = (Some(Rate(moved)), 1.0);
    }
}

fn groups(hardware: &mut Hardware) -> impl Iterator<Item = &mut TargetGroup> {
    hardware.servers.iter_mut().flat_map(|server| &mut server.targets)
}

/// This component limits no more, and nothing else is changed.
fn endless(hardware: &mut Hardware, stage: Stage) {
    match stage {
        Stage::Drives => {
            let own = DriveOverride {
                read: Some(PLENTY),
                write: Some(PLENTY),
                read_iops: Some(9e4),
                write_iops: Some(1e4),
            };
            hardware.catalogue.drives.insert("plenty".to_owned(), own);
            // What was measured stays so: a target that was not pays for its parity.
            for group in groups(hardware) {
                group.drive = "plenty".to_owned();
                group
                    .measured_read
                    .iter_mut()
                    .chain(&mut group.measured_write)
                    .for_each(|rate| *rate = PLENTY);
            }
        }
        Stage::SoftwareRaid => {
            hardware.catalogue.controllers.insert("plenty".to_owned(), PLENTY);
            for server in &mut hardware.servers {
                for at in 0..server.targets.len() {
                    if maker(server, &server.targets[at]) == Maker::Md {
                        server.targets[at].controller = Some("plenty".to_owned());
                    }
                }
                server.controllers.push(Controller {
                    name: "plenty".to_owned(),
                    kind: "plenty".to_owned(),
                    count: 1,
                    pcie: None,
                    measured_read: None,
                    measured_write: None,
                });
            }
        }
        Stage::DriveLanes => groups(hardware).for_each(|group| group.pcie = None),
        Stage::Controllers => {
            // They still make parity.
            hardware.catalogue.controllers.insert("plenty".to_owned(), PLENTY);
            for controller in hardware.servers.iter_mut().flat_map(|server| &mut server.controllers) {
                (controller.kind, controller.pcie) = ("plenty".to_owned(), None);
                (controller.measured_read, controller.measured_write) = (None, None);
            }
        }
        Stage::PcieSwitches => groups(hardware).for_each(|group| group.pcie_switch = None),
        Stage::Processors => hardware.servers.iter_mut().for_each(|server| server.cores = None),
        Stage::Links => {
            let nics = hardware.servers.iter_mut().flat_map(|server| &mut server.nics);
            nics.for_each(|nic| (nic.kind, nic.pcie) = ("plenty".to_owned(), None));
            hardware.catalogue.nics.insert("plenty".to_owned(), PLENTY);
        }
        Stage::Fabric => hardware.network.fabric = None,
        Stage::SlowestTarget => hardware.striping.targets = 1,
        Stage::Clients => {
            (hardware.clients.nic, hardware.clients.stream) = ("plenty".to_owned(), Some(PLENTY));
            hardware.catalogue.nics.insert("plenty".to_owned(), PLENTY);
        }
    }
}

/// Goal: of whatever system, what programs would see without what limits is what is forecast when it limits no more,
/// and never less than before.
#[test]
fn without_that_limit() {
    let mut tried: std::collections::BTreeMap<Stage, usize> = std::collections::BTreeMap::new();
    for seed in 0..SYSTEMS {
        let text = system(&mut Dice(2 * SYSTEMS + seed));
        let hardware = Hardware::from_toml("random", &text).unwrap();
        let before = forecast(&hardware).unwrap();
        for (way, stream) in [("write", &before.write), ("read", &before.read)] {
            let mut better = hardware.clone();
            pin_network(&mut better);
            stream.bottleneck.iter().for_each(|stage| endless(&mut better, *stage));
            let after = forecast(&better).unwrap();
            let after = if way == "write" { after.write } else { after.read };
            let (promised, kept) = (stream.next_expected.0, after.expected.0);
            assert!(kept >= stream.expected.0 * (1.0 - 1e-9), "{seed}: {way}: {stream:?} -> {kept}\n{text}");
            assert!(
                (kept / promised - 1.0).abs() < 1e-6,
                "{seed}: {way}: without {:?} {promised}, when it is endless {kept}\n{text}",
                stream.bottleneck
            );
            stream.bottleneck.iter().for_each(|stage| *tried.entry(*stage).or_default() += 1);
        }
    }
    assert!(tried.len() >= 6, "only {tried:?} limit: too little is tried here");
}
