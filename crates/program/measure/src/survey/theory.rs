//! What layers could do whatever is measured: the speed of interfaces, and a description of the hardware if one is given.

use super::members::Members;
use skep_base::{Failure, Outcome};
use skep_instruments::question::NicFacts;
use skep_plan::forward::{self, Forecast, Stage};
use skep_plan::hardware::{Hardware, Role};
use skep_survey::ids::{READ, WRITE};
use skep_survey::model::{Host, LayerId, Theory};
use skep_types::ServiceKind;
use std::path::Path;

/// Rates are told in these.
const MEGABYTE: f64 = 1e6;
/// Megabits a second in a megabyte a second.
const BITS: f64 = 8.0;
/// What stands below a target.
const BELOW_TARGETS: [Stage; 4] = [Stage::Drives, Stage::DriveLanes, Stage::Controllers, Stage::PcieSwitches];
/// What stands between servers.
const BETWEEN_SERVERS: [Stage; 1] = [Stage::Links];

/// The fastest interface with hardware below it, MB/s. Bridges and pairs of virtual interfaces tell a speed that
/// nothing holds them to, so they do not count; nor does the loopback device, which has none.
pub fn link(nics: &[NicFacts]) -> Option<f64> {
    let real = nics.iter().filter(|nic| !nic.driver.is_empty()).filter_map(|nic| nic.megabits);
    real.filter(|speed| *speed > 0).max().map(|speed| speed as f64 / BITS)
}

/// A description of the hardware, and what comes of it.
pub struct Sheet {
    name: String,
    forecast: Forecast,
    /// Every byte of a client is written so often.
    copies: u32,
    /// Storage targets that are described.
    targets: usize,
}

impl Sheet {
    pub fn read(file: &Path) -> Outcome<Self> {
        let hardware = crate::plan::read_hardware(file).map_err(Failure::new)?;
        Self::of(&file.display().to_string(), &hardware)
    }

    fn of(name: &str, hardware: &Hardware) -> Outcome<Self> {
        let forecast = forward::forecast(hardware).map_err(|problems| {
            let told: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
            Failure::new(format!("{name}: {}", told.join("; ")))
        })?;
        let of_server = |server: &skep_plan::hardware::Server| -> usize {
            let own = server.targets.iter().filter(|group| group.role == Role::Storage);
            server.count as usize * own.map(|group| group.count as usize).sum::<usize>()
        };
        let targets = hardware.servers.iter().map(of_server).sum();
        Ok(Self { name: name.to_owned(), forecast, copies: hardware.striping.copies, targets })
    }

    /// The component that passes least, with its sum.
    fn least(&self, layer: LayerId, work: &str, stages: &[Stage], targets: usize) -> Theory {
        let of = |rate, because| Theory { layer, work: work.to_owned(), rate, because };
        if self.targets != targets {
            let text = format!(
                "{} describes {} storage targets, the cluster has {targets}: describe this cluster",
                self.name, self.targets
            );
            return of(None, text);
        }
        let (stream, copies) = match work {
            WRITE => (&self.forecast.write, f64::from(self.copies)),
            _ => (&self.forecast.read, 1.0),
        };
        let own = stream.limits.iter().filter(|limit| stages.contains(&limit.stage));
        match own.min_by(|a, b| a.rate.0.total_cmp(&b.rate.0)) {
            // The forecast counts bytes of clients, here are those that arrive.
            Some(limit) => of(
                Some(limit.rate.0 * copies / MEGABYTE),
                format!("{}, {}: {}", self.name, limit.stage.title(), limit.why),
            ),
            None => of(None, format!("{} describes nothing that limits it", self.name)),
        }
    }
}

/// Of devices and network, what they could do.
pub fn of(sheet: Option<&Sheet>, hosts: &[Host], members: &Members) -> Vec<Theory> {
    let serves = |service: Option<ServiceKind>, host: &Host| {
        let of = |node: &&skep_wire::mgmt::NodeEntry| service.is_none_or(|service| node.service == service);
        members.nodes.iter().filter(of).any(|node| host.roles.contains(&node.alias))
    };
    let storage: Vec<&Host> = hosts.iter().filter(|host| serves(Some(ServiceKind::Storaged), host)).collect();
    let machines = hosts.iter().filter(|host| serves(None, host)).count();
    let targets = members.parts().len();
    let each = |work: &str| {
        let device = match sheet {
            Some(sheet) => sheet.least(LayerId::Device, work, &BELOW_TARGETS, targets),
            None => none(
                LayerId::Device,
                work,
                "nothing tells what the drives can do: skep survey --hardware FILE",
            ),
        };
        [device, network(sheet, &storage, machines, work, targets)]
    };
    [WRITE, READ].iter().flat_map(|work| each(work)).collect()
}

fn none(layer: LayerId, work: &str, because: &str) -> Theory {
    Theory { layer, work: work.to_owned(), rate: None, because: because.to_owned() }
}

/// The interfaces of the hosts of storage daemons, all at once.
fn network(sheet: Option<&Sheet>, storage: &[&Host], machines: usize, work: &str, targets: usize) -> Theory {
    let layer = LayerId::Network;
    if let (true, Some(host)) = (machines < 2, storage.iter().find(|host| host.networks > 1)) {
        let text = format!(
            "all daemons are on one machine, {}, in {} network namespaces: between them no hardware has a speed",
            host.name, host.networks
        );
        return none(layer, work, &text);
    }
    if machines < 2 {
        return none(layer, work, "all daemons are on one machine, and its loopback device has no speed");
    }
    let silent = storage.iter().find(|host| host.link.is_none());
    match (silent, sheet) {
        (Some(_), Some(sheet)) => sheet.least(layer, work, &BETWEEN_SERVERS, targets),
        (Some(host), None) => {
            let text = format!(
                "no interface of {} with hardware below it tells its speed: skep survey --hardware FILE",
                host.name
            );
            none(layer, work, &text)
        }
        (None, _) => {
            let links: Vec<f64> = storage.iter().filter_map(|host| host.link).collect();
            let told: Vec<String> = storage
                .iter()
                .zip(&links)
                .map(|(host, link)| format!("{} {link:.0} MB/s", host.name))
                .collect();
            let because =
                format!("the fastest interface of each host of storage daemons: {}", told.join(", "));
            let rate = Some(links.iter().sum::<f64>()).filter(|rate| *rate > 0.0);
            Theory { layer, work: work.to_owned(), rate, because }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    fn nic(name: &str, megabits: Option<u64>, driver: &str) -> NicFacts {
        NicFacts { name: name.to_owned(), megabits, driver: driver.to_owned(), ..NicFacts::default() }
    }

    /// The two daemons of the samples, each on a host of its own.
    fn hosts(links: [Option<f64>; 2]) -> Vec<Host> {
        let named = ["metad-1", "storaged-2"].iter().zip(links);
        let host = |(alias, link): (&&str, Option<f64>)| Host {
            name: format!("host of {alias}"),
            roles: vec![(*alias).to_owned()],
            facts: Vec::new(),
            clients: false,
            busy: None,
            link,
            networks: 1,
        };
        named.map(host).collect()
    }

    fn sheet(targets: u32) -> Sheet {
        let mut hardware =
            Hardware::from_toml("example", skep_plan::systems::system("example").unwrap().text).unwrap();
        hardware.servers[0].count = 1;
        let storage = hardware.servers[0].targets.iter_mut().find(|group| group.role == Role::Storage);
        storage.unwrap().count = targets;
        hardware.striping.targets = 1;
        Sheet::of("lab.toml", &hardware).unwrap()
    }

    /// Goal: the fastest interface with hardware below counts; virtual ones and the loopback device do not.
    #[test]
    fn interfaces() {
        let nics = [
            nic("lo", None, ""),
            nic("veth0", Some(10_000), ""),
            nic("eth0", Some(1_000), "igb"),
            nic("eth1", Some(25_000), "mlx5_core"),
            nic("eth2", None, "virtio_net"),
        ];
        assert_eq!(link(&nics), Some(3_125.0));
        assert_eq!(link(&nics[..2]), None);
    }

    /// Goal: on several machines the network could do what interfaces say, on one nothing tells; who has no speed is
    /// named, and then the description helps.
    #[test]
    fn networks() {
        let status = samples::status();
        let members = Members::of(&status);
        let aliases: Vec<&str> = members.nodes.iter().map(|node| node.alias.as_str()).collect();
        assert_eq!(aliases, ["metad-1", "storaged-2"], "the sample changed");
        let network = |sheet: Option<&Sheet>, hosts: &[Host]| {
            let all = of(sheet, hosts, &members);
            all.into_iter().find(|one| one.layer == LayerId::Network).unwrap()
        };
        let found = network(None, &hosts([Some(125.0), Some(3_125.0)]));
        assert_eq!(found.rate, Some(3_125.0), "{}", found.because);
        let found = network(None, &hosts([Some(125.0), None]));
        assert!(found.rate.is_none() && found.because.contains("host of storaged-2"), "{}", found.because);
        let found = network(Some(&sheet(1)), &hosts([None, None]));
        assert!(found.because.contains("server links"), "{}", found.because);
        let rate = found.rate.unwrap();
        assert!((10_000.0..=25_000.0).contains(&rate), "two interfaces of 100 Gbit/s: {found:?}");
        let mut one = hosts([None, None]);
        let last = one.pop().unwrap();
        one[0].roles.extend(last.roles);
        let found = network(Some(&sheet(1)), &one);
        assert!(found.rate.is_none() && found.because.contains("loopback"), "{}", found.because);
    }

    /// Goal: devices could do what their description says, in both directions; without one, or with one of another
    /// cluster, nothing is made up.
    #[test]
    fn devices() {
        let status = samples::status();
        let members = Members::of(&status);
        let devices = |sheet: Option<&Sheet>| {
            let all = of(sheet, &hosts([None, None]), &members);
            all.into_iter().filter(|one| one.layer == LayerId::Device).collect::<Vec<Theory>>()
        };
        let found = devices(Some(&sheet(1)));
        let works: Vec<&str> = found.iter().map(|one| one.work.as_str()).collect();
        assert_eq!(works, [WRITE, READ]);
        let raw = sheet(1).forecast.write.raw_drives.0 / MEGABYTE;
        assert!(found[0].rate.unwrap() < raw, "parity costs: {found:?}");
        assert!(found[0].because.starts_with("lab.toml, drives"), "{}", found[0].because);
        let other = devices(Some(&sheet(7)));
        assert!(other[0].rate.is_none() && other[0].because.contains("7 storage targets"), "{other:?}");
        assert!(devices(None)[0].because.contains("--hardware"));
    }
}
