//! NUMA: drives, network interface and service on the same node.

use super::SERVERS;
use super::sources::{dell_2020, dell_2021, skep, slides, slides_nvme};
use crate::change::Change;
use crate::finding::Severity;
use crate::host::{Disk, Host, Nic, Place, Service, cpus_of};
use crate::rule::{Look, Rule, Seen};
use std::collections::BTreeSet;

/// What an InfiniBand interface is counted with that does not tell its speed (old drivers): Mb/s of QDR.
const INFINIBAND_SPEED: u64 = 40_000;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "numa",
        setting: "bind-numa",
        roles: SERVERS,
        severity: Severity::Major,
        reason: "Data that crosses the link between sockets twice (drive to memory to network) takes bandwidth from all.",
        effect: "10 % and more on fast drives and networks; less spread between runs.",
        sources: &[
            dell_2020("services bound to the node of their drives; a miss costs 10 % and more"),
            dell_2021("services bound to the node of their drives"),
            slides("tuneBindToNumaZone"),
            slides_nvme("tuneBindToNumaZone = 0 for storage, none for metadata"),
            skep("a drop-in of the unit: NUMAPolicy, NUMAMask, CPUAffinity"),
        ],
        choice: "Its threads run on the node that all its drives hang on; an instance for each node where there are several. \
                 Memory is only preferred there (NUMAPolicy=preferred), not bound: bound, the service and the page cache of \
                 its targets have one node's memory, and it is reclaimed from, or killed, while the other node has plenty.",
        look: Look::Special(binding),
    },
    Rule {
        area: "numa",
        setting: "interfaces",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "A service should send through the interface that hangs on the node of its drives.",
        effect: "No traffic between sockets for data that leaves the machine.",
        sources: &[
            dell_2020("ib0 for node 0, ib1 for node 1, by multihoming"),
            dell_2021("ib0 for node 0, ib1 for node 1, by multihoming"),
            slides("each CPU connected to a pair of network and RAID card"),
            skep("interfaces = [...] in the configuration, best first"),
        ],
        choice: "All agree: the interface of the node first.",
        look: Look::Special(interfaces),
    },
];

fn places<'h>(host: &'h Host<'_>, service: &Service) -> impl Iterator<Item = &'h Place> {
    host.places.iter().filter(|place| place.service.as_ref() == Some(&service.name))
}

/// Nodes of the drives below a service's directories; none when one is not known.
fn drive_nodes(host: &Host<'_>, service: &Service) -> Option<BTreeSet<u32>> {
    let names: BTreeSet<&String> = places(host, service).flat_map(|place| &place.disks).collect();
    let leaves =
        names.iter().filter_map(|name| host.disk(name)).filter(|disk: &&Disk| disk.members.is_empty());
    let nodes: Option<BTreeSet<u32>> = leaves.map(|disk| disk.numa).collect();
    nodes.filter(|nodes| !nodes.is_empty())
}

/// The nodes whose processors a service may use: of its process, else of its unit's drop-ins.
fn bound(host: &Host<'_>, service: &Service) -> Option<BTreeSet<u32>> {
    let running = service.pid.and_then(|pid| host.root.text(&format!("/proc/{pid}/status")));
    if let Some(status) = running {
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let cpus = cpus_of(list);
        return Some(
            host.nodes.iter().filter(|node| !node.cpus.is_disjoint(&cpus)).map(|node| node.id).collect(),
        );
    }
    let dir = format!("/etc/systemd/system/{}.d", service.unit);
    let texts = host.root.names(&dir).into_iter().filter_map(|name| host.root.text(&format!("{dir}/{name}")));
    let mask = texts.filter_map(|text| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix("NUMAMask="))?;
        Some(cpus_of(value))
    });
    Some(mask.last().unwrap_or_else(|| host.nodes.iter().map(|node| node.id).collect()))
}

fn listed(nodes: &BTreeSet<u32>) -> String {
    let words: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    format!("node {}", words.join(","))
}

fn of_services(host: &Host<'_>, look: impl Fn(&Service, &BTreeSet<u32>) -> Seen) -> Vec<Seen> {
    if host.nodes.len() < 2 {
        return vec![Seen::not_applicable("host", "there is one NUMA node")];
    }
    let services = host.services.iter().filter(|service| service.role.has_disks());
    let all: Vec<Seen> = services
        .map(|service| match drive_nodes(host, service) {
            None if host.in_memory(places(host, service)) => {
                Seen::not_applicable(&service.name, "its directories are in memory, on no drive")
            }
            None => Seen::unknown(&service.name, "the machine does not say where its drives hang"),
            Some(nodes) => look(service, &nodes),
        })
        .collect();
    match all.is_empty() {
        true => vec![Seen::unknown("services", "no service is configured or runs here")],
        false => all,
    }
}

fn binding(host: &Host<'_>) -> Vec<Seen> {
    of_services(host, |service, drives| {
        let Some(now) = bound(host, service) else {
            return Seen::unknown(&service.name, "its process does not say which processors it may use");
        };
        let seen = Seen::new(&service.name, listed(&now), listed(drives));
        match drives.first() {
            Some(node) if drives.len() == 1 && !service.is_of_unit(host.root) => seen.note(format!(
                "not started by {}: start it with numactl --cpunodebind={node} --preferred={node}",
                service.unit
            )),
            Some(node) if drives.len() == 1 => {
                let lines = [
                    // Not `bind`: when the node is full, memory comes from the other one.
                    ("NUMAPolicy", "preferred".to_owned()),
                    ("NUMAMask", node.to_string()),
                    ("CPUAffinity", "numa".to_owned()),
                ];
                seen.change(Change::drop_in(&service.unit, &lines))
            }
            _ => Seen { recommended: Some("a node each".to_owned()), ..seen }.good_if(false).note(
                "its drives hang on several nodes: make an instance for each node (docs/admin/units.md), then bind it",
            ),
        }
    })
}

fn interfaces(host: &Host<'_>) -> Vec<Seen> {
    of_services(host, |service, drives| {
        let usable = || host.nics.iter().filter(|nic| nic.physical && nic.up);
        let near: Vec<&str> = usable()
            .filter(|nic| nic.numa.is_some_and(|node| drives.contains(&node)))
            .map(|nic| nic.name.as_str())
            .collect();
        let current = match service.interfaces.is_empty() {
            true => "all".to_owned(),
            false => service.interfaces.join(" "),
        };
        let speed = |nic: &Nic| nic.speed.unwrap_or(if nic.infiniband { INFINIBAND_SPEED } else { 0 });
        let fastest =
            |names: &[&str]| usable().filter(|nic| names.contains(&nic.name.as_str())).map(speed).max();
        let all: Vec<&str> = usable().map(|nic| nic.name.as_str()).collect();
        if near.is_empty() {
            let note = format!(
                "no interface hangs on {}: put a card there, or the drives elsewhere",
                listed(drives)
            );
            return Seen { current: Some(current), ..Seen::not_applicable(&service.name, note) };
        }
        if fastest(&near) < fastest(&all) {
            let note =
                format!("the interfaces of {} ({}) are slower than others", listed(drives), near.join(" "));
            return Seen { current: Some(current), ..Seen::not_applicable(&service.name, note) };
        }
        let far = |name: &String| !near.contains(&name.as_str());
        let good = match service.interfaces.is_empty() {
            true => near.len() == all.len(),
            false => !service.interfaces.iter().any(far),
        };
        let quoted: Vec<String> = near.iter().map(|name| format!("\"{name}\"")).collect();
        let how = format!("in the configuration of {}: interfaces = [{}]", service.name, quoted.join(", "));
        Seen::new(&service.name, current, near.join(" ")).good_if(good).note(if good {
            String::new()
        } else {
            how
        })
    })
}
