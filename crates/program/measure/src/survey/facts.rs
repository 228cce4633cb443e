//! Machines, kernels, settings: what a reader must know to compare.

use super::load::Place;
use super::{Run, agents, theory};
use skep_base::output::human;
use skep_instruments::client::ask_all;
use skep_instruments::question::{Findings, Measurement, MountFacts, NicFacts, NodeFacts, TargetFacts};
use skep_survey::model::{Fact, Host, LayerId, Part};
use skep_types::{ServiceKind, Timestamp, Uuid};
use skep_wire::mgmt::{NodeEntry, StatusReply};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A daemon tells its facts within this time.
const LIMIT: Duration = Duration::from_secs(30);
/// Load of a machine above this share of its processors disturbs a measurement.
const BUSY: f64 = 0.5;
/// What runs on a machine of clients.
const CLIENTS: &str = "clients";
/// Keys of configurations that say where a service is, how it is called and whom it asks.
const PLACES: [&str; 14] = [
    "alias",
    "domain",
    "listen",
    "unix_socket",
    "http",
    "interfaces",
    "state_dir",
    "run_dir",
    "key_file",
    "targets",
    "mgmtd",
    "mount_point",
    "log",
    "insecure",
];

/// The present, as RFC 3339 in UTC.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Timestamp { secs: seconds as i64, nanos: 0 }.to_string()
}

fn fact(name: impl Into<String>, value: impl Into<String>) -> Fact {
    Fact { name: name.into(), value: value.into() }
}

/// The machines of all daemons and clients.
#[derive(Debug, Default)]
pub struct Machines {
    /// By what tells a machine from another.
    hosts: BTreeMap<String, Host>,
    /// What the machines were busy with.
    remarks: Vec<String>,
    /// Clients, by the name of their host here, and on which machine.
    clients: Vec<(String, String)>,
    /// Network namespaces that were told of, by machine.
    networks: BTreeMap<String, BTreeSet<String>>,
}

impl Machines {
    /// The machine of these facts, which nobody may have spoken of before.
    fn of(&mut self, machine: String, facts: &NodeFacts) -> &mut Host {
        let Self { hosts, remarks, networks, .. } = self;
        let known = networks.entry(machine.clone()).or_default();
        let another = !known.is_empty();
        let new = !facts.network.is_empty() && known.insert(facts.network.clone());
        let host = hosts.entry(machine).or_insert_with(|| {
            let busy = (facts.load > BUSY * f64::from(facts.cores)).then(|| {
                format!(
                    "{} was busy before the survey began: a load of {:.1} on {} processors",
                    facts.host, facts.load, facts.cores
                )
            });
            remarks.extend(busy.clone());
            let facts_told = machine_facts(facts);
            let (name, link) = (facts.host.clone(), theory::link(&facts.nics));
            Host { name, roles: Vec::new(), clients: false, busy, facts: facts_told, link, networks: 0 }
        });
        host.networks = known.len() as u32;
        if new && another {
            // The machine is one, and its processors; what it is on the network is told for each.
            host.facts
                .extend(nic_facts(facts, &format!(" of {}, in a network namespace of its own", facts.host)));
        }
        host
    }

    /// A machine on which processes of clients run; without facts it is known by its name only, as a machine of its own.
    fn client(&mut self, name: &str, facts: Option<&NodeFacts>) {
        let known = facts.map(|facts| facts.machine.clone()).filter(|machine| !machine.is_empty());
        let machine = known.unwrap_or_else(|| name.to_owned());
        let nobody = NodeFacts { host: name.to_owned(), ..NodeFacts::default() };
        let host = self.of(machine.clone(), facts.unwrap_or(&nobody));
        if facts.is_none() {
            host.facts.clear();
        }
        if !host.clients {
            host.clients = true;
            host.roles.push(CLIENTS.to_owned());
            host.facts.extend(facts.iter().flat_map(|facts| mount_facts(facts)));
        }
        self.clients.push((name.to_owned(), machine));
    }

    pub fn hosts(&self) -> Vec<Host> {
        self.hosts.values().cloned().collect()
    }

    /// Clients that are alone on a machine of a daemon: what is wrong with it is wrong with them.
    pub fn parts(&self, nodes: &[NodeEntry]) -> Vec<Part> {
        let part = |(name, machine): &(String, String)| {
            let alone = self.clients.iter().filter(|(_, other)| other == machine).count() == 1;
            let node = nodes.iter().find(|node| node.machine.to_string() == *machine).filter(|_| alone)?;
            Some(Part { name: client_name(name), part_of: node.alias.clone() })
        };
        // A lone one has nobody beside it.
        self.clients.iter().filter(|_| self.clients.len() > 1).filter_map(part).collect()
    }
}

/// How a host of clients is called beside others.
pub fn client_name(host: &str) -> String {
    format!("client {host}")
}

/// Looks at the machines of all daemons, and at those on which clients run, if they have a place to work in.
pub fn machines(run: &mut Run<'_>, place: Option<&Place>) -> Machines {
    let nodes = &run.members.nodes;
    let questions: Vec<_> = nodes.iter().map(|node| (node, Measurement::Facts)).collect();
    let answers = ask_all(run.cluster, &questions, LIMIT);
    let mut machines = Machines::default();
    let (mut media, mut absent, mut bound) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (node, answer) in nodes.iter().zip(answers) {
        let facts = match answer {
            Ok(Findings::Facts(facts)) => facts,
            Ok(_) => continue,
            Err(failure) => {
                absent.push((node.alias.clone(), failure.to_string()));
                continue;
            }
        };
        media.extend(facts.targets.iter().map(|target| (target.target, medium(target))));
        bound.push((node.service, node.machine, node.alias.clone(), facts.allowed.clone()));
        run.networks.insert(node.alias.clone(), facts.network.clone());
        let host = machines.of(node.machine.to_string(), &facts);
        host.roles.push(node.alias.clone());
        host.facts.extend(daemon_facts(&node.alias, &facts));
    }
    let mut unknown = Vec::new();
    if let Some(place) = place {
        for (name, facts) in agents::facts(&run.hosts) {
            unknown.extend(
                facts.as_ref().err().map(|why| format!("{name}: nothing is known of this client: {why}")),
            );
            let mut facts = facts.ok();
            if let Some(facts) = &mut facts {
                keep_surveyed(&mut facts.mounts, &place.mount);
            }
            machines.client(&name, facts.as_ref());
        }
    }
    let remarks: Vec<String> =
        machines.remarks.iter().cloned().chain(bindings(&bound)).chain(unknown).collect();
    run.media = media;
    run.missing(LayerId::Processor, absent);
    remarks.into_iter().for_each(|text| run.remark(text));
    machines
}

/// Daemons of one service on one host that may run on different processors: where everybody gets little, the shares
/// alone do not tell.
fn bindings(all: &[(ServiceKind, Uuid, String, String)]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (service, machine, alias, allowed) in all {
        let mut likes = all.iter().filter(|one| (one.0, one.1) == (*service, *machine) && one.2 != *alias);
        // Only he who differs from all of several likes, as long as those are alike.
        let Some(first) = likes.next() else { continue };
        let many = likes.clone().count() > 0;
        if many && first.3 != *allowed && likes.all(|one| one.3 == first.3) {
            remarks.push(format!(
                "{alias} may run on processors {allowed} only, the others of its service here on {}",
                first.3
            ));
        }
    }
    remarks
}

fn machine_facts(facts: &NodeFacts) -> Vec<Fact> {
    let mut all = vec![
        fact("kernel", &facts.kernel),
        fact("processor", &facts.processor),
        fact("processors", facts.cores.to_string()),
        fact("NUMA zones", facts.numa_zones.to_string()),
        fact("memory", human(facts.memory_bytes)),
    ];
    all.extend(nic_facts(facts, ""));
    all
}

/// The interfaces, with what is to be said behind their names.
fn nic_facts(facts: &NodeFacts, whose: &str) -> Vec<Fact> {
    let of = |nic: &NicFacts| {
        let speed = nic.megabits.map_or_else(|| "speed not told".to_owned(), |m| format!("{m} Mbit/s"));
        fact(format!("interface {}{whose}", nic.name), format!("{speed}, MTU {}, {}", nic.mtu, nic.driver))
    };
    facts.nics.iter().map(of).collect()
}

fn daemon_facts(alias: &str, facts: &NodeFacts) -> Vec<Fact> {
    let mut all = vec![fact(format!("{alias}: version"), &facts.version)];
    if !facts.allowed.is_empty() {
        all.push(fact(format!("{alias}: may run on processors"), &facts.allowed));
    }
    if let Some(processors) = facts.group.processors {
        all.push(fact(format!("{alias}: control group allows"), format!("{processors:.2} processors")));
    }
    all.extend(settings_fact(alias, &facts.settings));
    for target in &facts.targets {
        let kind = [medium(target), target.model.trim().to_owned()];
        let kind: Vec<String> = kind.into_iter().filter(|word| !word.is_empty()).collect();
        let kind = if kind.is_empty() { "medium not told".to_owned() } else { kind.join(" ") };
        all.push(fact(
            format!("{alias}: target {}", target.target),
            format!(
                "{} on {} ({kind}), {} [{}], {} of {} free",
                target.filesystem,
                target.device,
                target.path,
                target.options,
                human(target.bytes_free),
                human(target.bytes)
            ),
        ));
    }
    all
}

/// Leaves the mount that is surveyed, or of an agent the one that holds its place: others on the machine are of other
/// clusters, or no part of this survey.
fn keep_surveyed(mounts: &mut Vec<MountFacts>, surveyed: &Path) {
    let holds = |mount: &&MountFacts| surveyed.starts_with(&mount.point);
    // Of several at one place the last covers the others.
    let own = mounts.iter().filter(holds).max_by_key(|mount| mount.point.len()).cloned();
    *mounts = own.into_iter().collect();
}

/// Mounts of Skep: how the kernel shows them, and with which settings they run.
fn mount_facts(facts: &NodeFacts) -> Vec<Fact> {
    let of = |mount: &MountFacts| {
        let name = format!("mount {}", mount.point);
        std::iter::once(fact(&name, &mount.options))
            .chain(settings_fact(&name, &mount.settings))
            .collect::<Vec<_>>()
    };
    facts.mounts.iter().flat_map(of).collect()
}

/// What a service runs with; what only says where it is and how it is called is left out.
fn settings_fact(name: &str, settings: &BTreeMap<String, String>) -> Option<Fact> {
    let chosen = settings.iter().filter(|(key, value)| !PLACES.contains(&key.as_str()) && !value.is_empty());
    let words: Vec<String> = chosen.map(|(key, value)| format!("{key} = {value}")).collect();
    (!words.is_empty()).then(|| fact(format!("{name}: settings"), words.join(", ")))
}

/// `hdd`, `ssd`, `nvme`, `tmpfs`; empty when nothing tells.
fn medium(target: &TargetFacts) -> String {
    let memory = ["tmpfs", "ramfs"].into_iter().find(|name| target.filesystem == *name);
    memory.map_or_else(|| target.medium.clone(), str::to_owned)
}

/// Settings of the file system.
pub fn settings(status: &StatusReply, place: Option<&Place>) -> Vec<Fact> {
    let mut all = vec![
        fact("metadata shards", status.shards.len().to_string()),
        fact("storage targets", status.targets.len().to_string()),
        fact("storage pools", status.pools.len().to_string()),
    ];
    if let Some(place) = place {
        all.push(fact("mount", place.mount.display().to_string()));
        all.push(fact("mount options", &place.options));
        all.push(fact("layout of new files", &place.layout));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: the one daemon that is bound otherwise than its likes is told, several different bindings are not.
    #[test]
    fn bound_otherwise() {
        let of = |allowed: [&str; 3]| {
            let all = allowed.iter().enumerate();
            let one = |(at, allowed): (usize, &&str)| {
                (ServiceKind::Storaged, Uuid([1; 16]), format!("s{at}"), (*allowed).to_owned())
            };
            bindings(&all.map(one).collect::<Vec<_>>())
        };
        assert_eq!(
            of(["0-1", "0", "0-1"]),
            ["s1 may run on processors 0 only, the others of its service here on 0-1"]
        );
        assert!(of(["0-1"; 3]).is_empty() && of(["0", "1", "2"]).is_empty());
    }

    fn node_facts(host: &str, machine: &str, load: f64) -> NodeFacts {
        let mount = MountFacts {
            point: "/mnt".to_owned(),
            options: "fuse.skep m:/ (rw,noatime)".to_owned(),
            settings: [("threads", "8"), ("key_file", "/k"), ("alias", "")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        NodeFacts {
            host: host.to_owned(),
            machine: machine.to_owned(),
            cores: 2,
            load,
            mounts: vec![mount],
            ..NodeFacts::default()
        }
    }

    /// Goal: machines of clients stand beside those of daemons, one that is both stands there once, one that tells
    /// nothing is a machine of its own; mounts are told with options and settings; a busy one has its remark.
    #[test]
    fn machines_of_clients() {
        let node = NodeEntry {
            machine: Uuid([7; 16]),
            alias: "s1".to_owned(),
            ..samples::status().nodes[0].node.clone()
        };
        let shared = node.machine.to_string();
        let mut machines = Machines::default();
        machines.of(shared.clone(), &node_facts("alpha", &shared, 0.0)).roles.push("s1".to_owned());
        machines.client("a:1", Some(&node_facts("alpha", &shared, 0.0)));
        machines.client("b:1", Some(&node_facts("beta", "m2", 9.0)));
        machines.client("c:1", None);
        let hosts = machines.hosts();
        let told = |name: &str| hosts.iter().find(|host| host.name == name).unwrap();
        assert_eq!(hosts.len(), 3);
        assert!(hosts.iter().all(|host| host.clients));
        assert_eq!(told("alpha").roles, ["s1", "clients"]);
        assert!(told("beta").busy.as_ref().is_some_and(|text| text.contains("a load of 9.0")));
        assert!(told("alpha").busy.is_none() && told("c:1").facts.is_empty());
        let mounts: Vec<&Fact> =
            told("beta").facts.iter().filter(|fact| fact.name.starts_with("mount")).collect();
        assert_eq!(mounts[0].value, "fuse.skep m:/ (rw,noatime)");
        assert_eq!(
            (mounts[1].name.as_str(), mounts[1].value.as_str()),
            ("mount /mnt: settings", "threads = 8")
        );
        assert_eq!(
            machines.parts(&[node]),
            [Part { name: "client a:1".to_owned(), part_of: "s1".to_owned() }]
        );
    }

    /// Goal: daemons in network namespaces of one machine are on one host with so many networks, each with its interfaces.
    #[test]
    fn namespaces_of_a_machine() {
        let in_network = |host: &str, network: &str| {
            let nic = NicFacts { name: "eth0".to_owned(), mtu: 1_500, ..NicFacts::default() };
            NodeFacts { network: network.to_owned(), nics: vec![nic], ..node_facts(host, "m", 0.0) }
        };
        let mut machines = Machines::default();
        for (host, network) in [("alpha", "net:[1]"), ("beta", "net:[2]"), ("alpha", "net:[1]")] {
            machines.of("m".to_owned(), &in_network(host, network));
        }
        let hosts = machines.hosts();
        assert_eq!((hosts.len(), hosts[0].networks), (1, 2));
        let interfaces: Vec<&str> = hosts[0]
            .facts
            .iter()
            .map(|fact| fact.name.as_str())
            .filter(|name| name.starts_with("interf"))
            .collect();
        assert_eq!(
            interfaces,
            ["interface eth0", "interface eth0 of beta, in a network namespace of its own"]
        );
        let mut older = Machines::default();
        older.of("m".to_owned(), &node_facts("alpha", "m", 0.0));
        assert_eq!(older.hosts()[0].networks, 0);
    }

    /// Goal: of the mounts of a machine only the one that is surveyed is told, of several at its place the last; an agent
    /// may have mounted what is above.
    #[test]
    fn only_the_surveyed_mount_is_told() {
        let left = |points: &[(&str, &str)]| {
            let mount = |(point, options): &(&str, &str)| MountFacts {
                point: (*point).to_owned(),
                options: (*options).to_owned(),
                ..MountFacts::default()
            };
            let mut all: Vec<MountFacts> = points.iter().map(mount).collect();
            keep_surveyed(&mut all, Path::new("/srv/skep"));
            all.into_iter().map(|mount| mount.options).collect::<Vec<_>>()
        };
        assert_eq!(
            left(&[("/srv/skep", "old"), ("/srv/skep", "own"), ("/srv/skep2", "x"), ("/x", "x")]),
            ["own"]
        );
        assert_eq!(left(&[("/srv", "above"), ("/srv/skep/below", "x")]), ["above"]);
        assert!(left(&[("/rig/mnt", "x")]).is_empty());
    }

    /// Goal: what a daemon runs with is a fact, where it runs is not.
    #[test]
    fn settings_of_daemons() {
        let settings = [("max_connections", "4096"), ("listen", "0.0.0.0:1"), ("sync_on_write", "false")];
        let facts = NodeFacts {
            settings: settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..NodeFacts::default()
        };
        let told = daemon_facts("s1", &facts).pop().unwrap();
        assert_eq!(
            (told.name.as_str(), told.value.as_str()),
            ("s1: settings", "max_connections = 4096, sync_on_write = false")
        );
    }

    /// Goal: what is not known about a medium leaves no hole in the text, and memory is a medium of its own.
    #[test]
    fn media() {
        let target = |filesystem: &str, medium: &str, model: &str| TargetFacts {
            filesystem: filesystem.to_owned(),
            medium: medium.to_owned(),
            model: model.to_owned(),
            ..TargetFacts::default()
        };
        let told = |target| {
            let facts = NodeFacts { targets: vec![target], ..NodeFacts::default() };
            daemon_facts("s", &facts).pop().unwrap().value
        };
        assert!(told(target("xfs", "hdd", "")).contains("(hdd),"));
        assert!(told(target("xfs", "ssd", "X1 ")).contains("(ssd X1),"));
        assert!(told(target("xfs", "", "")).contains("(medium not told),"));
        assert!(told(target("tmpfs", "", "")).contains("(tmpfs),"));
    }
}
