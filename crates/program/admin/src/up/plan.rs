//! The services of a cluster on one machine and their configuration files.

use skep_base::cluster_file::ClusterFile;
use skep_base::config::address::Address;
use skep_base::config::metad::port_of_group;
use skep_base::config::service::SOCKET_PATH_MAX;
use skep_base::identity::write_durably;
use skep_base::{Failure, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toml::{Table, Value};

/// Ports are taken from here on: below those that the kernel gives to outgoing connections.
const PORT_FIRST: u16 = 10_000;
/// ... and up to here.
const PORT_LAST: u16 = 32_000;
/// Key of the listening addresses in configuration files.
const LISTEN: &str = "listen";

/// A kind of service, by its sub-command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Management.
    Mgmtd,
    /// Metadata.
    Metad,
    /// File contents.
    Storaged,
    Mount,
}

impl Kind {
    /// The sub-command.
    pub fn command(self) -> &'static str {
        match self {
            Self::Mgmtd => "mgmtd",
            Self::Metad => "metad",
            Self::Storaged => "storaged",
            Self::Mount => "mount",
        }
    }
}

/// One process of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePlan {
    /// Name of its files.
    pub name: String,
    pub kind: Kind,
    /// Its configuration.
    pub config: PathBuf,
    pub log: PathBuf,
    pub pid_file: PathBuf,
}

impl ServicePlan {
    fn new(dir: &Path, kind: Kind, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            config: dir.join("etc").join(format!("{name}.toml")),
            log: dir.join("log").join(format!("{name}.log")),
            pid_file: dir.join("run").join(format!("{name}.pid")),
        }
    }
}

/// All services in the order in which they are started.
pub fn services(dir: &Path, metas: u32, servers: u32) -> Vec<ServicePlan> {
    let mut services = vec![ServicePlan::new(dir, Kind::Mgmtd, "mgmtd")];
    services.extend((1..=metas).map(|n| ServicePlan::new(dir, Kind::Metad, &format!("metad-{n}"))));
    services.extend((1..=servers).map(|n| ServicePlan::new(dir, Kind::Storaged, &format!("storaged-{n}"))));
    services.push(ServicePlan::new(dir, Kind::Mount, "mount"));
    services
}

/// Unix socket of a service; none when the kernel would not take so long a path.
fn socket(dir: &Path, name: &str) -> Option<PathBuf> {
    let path = dir.join("run").join(format!("{name}.sock"));
    (path.as_os_str().len() <= SOCKET_PATH_MAX).then_some(path)
}

/// Where mgmtd is reached, best first.
pub fn mgmtd_addresses(dir: &Path, ports: &BTreeMap<String, u16>) -> Vec<Address> {
    let unix = socket(dir, "mgmtd").map(Address::Unix);
    let tcp =
        ports.get("mgmtd").map(|port| Address::Tcp { host: Ipv4Addr::LOCALHOST.to_string(), port: *port });
    unix.into_iter().chain(tcp).collect()
}

/// The ports of a service whose first one is `first`: a group of a metadata server has its own.
fn ports_of(service: &ServicePlan, first: u16, groups: u32) -> impl Iterator<Item = u16> {
    let count = if service.kind == Kind::Metad { groups } else { 1 };
    (0..count).map(move |group| port_of_group(first, group))
}

/// The first of the ports that `service` gets: free now, and none of the `taken` ones, which are promised to others.
fn free_port(service: &ServicePlan, groups: u32, seed: u16, taken: &BTreeSet<u16>) -> Outcome<u16> {
    let span = PORT_LAST - PORT_FIRST;
    let is_good = |port: u16| !taken.contains(&port) && is_free(port);
    (0..span)
        .map(|step| PORT_FIRST + (seed % span + step) % span)
        .find(|first| ports_of(service, *first, groups).all(is_good))
        .ok_or_else(|| Failure::new(format!("no free port on 127.0.0.1 from {PORT_FIRST} to {PORT_LAST}")))
}

/// How long a killed process is waited for, whose sockets the kernel closes some milliseconds behind its end.
pub const DYING: Duration = Duration::from_secs(3);
const LOOK_PAUSE: Duration = Duration::from_millis(20);

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Are these ports free before `deadline`?
fn get_free(mut ports: impl Iterator<Item = u16>, deadline: Instant) -> bool {
    ports.all(|port| {
        while !is_free(port) && Instant::now() < deadline {
            std::thread::sleep(LOOK_PAUSE);
        }
        is_free(port)
    })
}

/// A port for every server that has none, one for the metrics of every service, and new ones for those
/// of `stopped` whose port somebody else has taken since, and keeps for longer than `patience`: mounts know it, so it
/// moves only if it must. Says which changed: (old, new).
pub fn assign_ports(
    services: &[ServicePlan],
    stopped: impl Fn(&ServicePlan) -> bool,
    patience: Duration,
    cluster: &mut ClusterFile,
) -> Outcome<Vec<(u16, u16)>> {
    let deadline = Instant::now() + patience;
    let mut seed = [0; 2];
    getrandom::fill(&mut seed).map_err(|e| Failure::local("random source of the kernel", e))?;
    let mut changed = Vec::new();
    let groups = cluster.groups;
    let known = |service: &ServicePlan| {
        let firsts = [cluster.ports.get(&service.name), cluster.http.get(&service.name)];
        firsts.into_iter().flatten().flat_map(|first| ports_of(service, *first, groups)).collect::<Vec<_>>()
    };
    let mut taken: BTreeSet<u16> = services.iter().flat_map(known).collect();
    let servers =
        services.iter().filter(|service| service.kind != Kind::Mount).map(|service| (service, false));
    for (service, http) in servers.chain(services.iter().map(|service| (service, true))) {
        let ports = if http { &mut cluster.http } else { &mut cluster.ports };
        let old = ports.get(&service.name).copied();
        let all_free = |first| get_free(ports_of(service, first, groups), deadline);
        if old.is_some_and(|port| !stopped(service) || all_free(port)) {
            continue;
        }
        let new = free_port(service, groups, u16::from_ne_bytes(seed), &taken)?;
        taken.extend(ports_of(service, new, groups));
        ports.insert(service.name.clone(), new);
        changed.extend(old.map(|old| (old, new)));
    }
    Ok(changed)
}

/// Writes the configuration files that are missing (all of them when `anew`), and puts changed
/// ports into those that are there.
pub fn write_configs(
    dir: &Path,
    cluster: &ClusterFile,
    services: &[ServicePlan],
    changed: &[(u16, u16)],
    anew: bool,
) -> Outcome {
    for service in services {
        if anew || !service.config.exists() {
            write_config(&service.config, &config(dir, cluster, service))?;
        } else {
            replace_ports(&service.config, changed)?;
        }
    }
    Ok(())
}

fn write_config(path: &Path, table: &Table) -> Outcome {
    let text = toml::to_string(table).map_err(|e| Failure::local(path.display(), e))?;
    let comment =
        "# Written by skep up when it was missing; yours to change. A restart makes changes count.\n";
    replace(path, &format!("{comment}{text}"))
}

fn replace(path: &Path, text: &str) -> Outcome {
    let place = path.parent().zip(path.file_name().and_then(|name| name.to_str()));
    let (dir, name) = place.ok_or_else(|| Failure::new(format!("{}: no file name", path.display())))?;
    Ok(write_durably(dir, name, text.as_bytes())?)
}

fn replace_ports(path: &Path, changed: &[(u16, u16)]) -> Outcome {
    if changed.is_empty() {
        return Ok(());
    }
    let text = std::fs::read_to_string(path).map_err(|e| Failure::local(path.display(), e))?;
    replace(path, &with_ports(&text, changed))
}

fn with_ports(text: &str, changed: &[(u16, u16)]) -> String {
    let mut text = text.to_owned();
    for (old, new) in changed {
        text = text.replace(&format!("127.0.0.1:{old}\""), &format!("127.0.0.1:{new}\""));
    }
    text
}

fn config(dir: &Path, cluster: &ClusterFile, service: &ServicePlan) -> Table {
    let path = |path: PathBuf| Value::String(path.to_string_lossy().into_owned());
    let mut table = Table::new();
    let mut set = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
    set("run_dir", path(dir.join("run")));
    if service.kind != Kind::Mgmtd {
        let addresses = cluster.mgmtd.iter().map(|address| Value::String(address.to_string()));
        set("mgmtd", Value::Array(addresses.collect()));
    }
    if let Some(port) = cluster.http.get(&service.name) {
        set("http", Value::String(format!("{}:{port}", Ipv4Addr::LOCALHOST)));
    }
    if service.kind == Kind::Mount {
        set("key_file", path(dir.join("client.key")));
        set("mount_point", path(cluster.mount_point.clone()));
        return table;
    }
    set("key_file", path(cluster.key_file.clone()));
    set("state_dir", path(dir.join("state").join(&service.name)));
    let port = cluster.ports.get(&service.name).copied().unwrap_or(0);
    set(LISTEN, vec![Value::String(format!("127.0.0.1:{port}"))].into());
    if let Some(socket) = socket(dir, &service.name) {
        set("unix_socket", path(socket));
    }
    match service.kind {
        Kind::Mgmtd => {
            set("shards", Value::Integer(i64::from(cluster.shards)));
            set("metas", Value::Integer(i64::from(cluster.metas * cluster.groups)));
        }
        Kind::Metad => {
            set("alias", Value::String(service.name.clone()));
            set("groups", Value::Integer(i64::from(cluster.groups)));
        }
        Kind::Storaged => {
            set("alias", Value::String(service.name.clone()));
            let mine = targets_of(number_of(&service.name), cluster.targets, cluster.servers);
            let mine = mine.map(|n| path(dir.join("targets").join(n.to_string())));
            set("targets", Value::Array(mine.collect()));
        }
        Kind::Mount => {}
    }
    table
}

/// The number at the end of a service's name.
fn number_of(name: &str) -> u32 {
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// Which targets a storage server has: dealt out like cards.
fn targets_of(server: u32, targets: u32, servers: u32) -> impl Iterator<Item = u32> {
    (server..=targets).step_by(servers.max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::config::{self, MetadConfig, MgmtdConfig, MountConfig, Source, StoragedConfig};

    fn cluster() -> ClusterFile {
        let ports: BTreeMap<_, _> =
            [("mgmtd", 10_001), ("metad-1", 10_002), ("storaged-1", 10_003), ("storaged-2", 10_004)]
                .map(|(name, port)| (name.to_owned(), port))
                .into();
        ClusterFile {
            mgmtd: mgmtd_addresses(Path::new("/d"), &ports),
            key_file: "/d/cluster.key".into(),
            dir: "/d".into(),
            mount_point: "/d/mnt".into(),
            targets: 5,
            shards: 4,
            metas: 1,
            groups: 1,
            servers: 2,
            formatted: false,
            ports,
            http: BTreeMap::from([("mgmtd".to_owned(), 10_011), ("mount".to_owned(), 10_012)]),
            moved_from: None,
        }
    }

    /// Goal: every file that is written is one that the daemon of its name accepts, with our values.
    #[test]
    fn daemons_accept_their_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let services = services(dir.path(), 1, 2);
        write_configs(dir.path(), &cluster(), &services, &[], true).unwrap();
        let given = |name: &str| dir.path().join("etc").join(name);
        let load = |name: &str| given(&format!("{name}.toml"));
        let mgmtd = config::load::<MgmtdConfig>(Source::Given(&load("mgmtd")), &[], &[]).unwrap().config;
        assert_eq!((mgmtd.shards, mgmtd.listen[0].port()), (4, 10_001));
        assert_eq!(mgmtd.http.unwrap().port(), 10_011);
        let metad = config::load::<MetadConfig>(Source::Given(&load("metad-1")), &[], &[]).unwrap().config;
        assert_eq!((metad.alias.as_str(), metad.membership.mgmtd.len()), ("metad-1", 2));
        let storaged = config::load::<StoragedConfig>(Source::Given(&load("storaged-2")), &[], &[]).unwrap();
        let names: Vec<_> =
            storaged.config.targets.iter().map(|t| t.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["2", "4"]);
        let mount = config::load::<MountConfig>(Source::Given(&load("mount")), &[], &[]).unwrap().config;
        assert!(mount.process.key_file.ends_with("client.key"));
    }

    /// Goal: every target has exactly one server, also when there are fewer targets than servers.
    #[test]
    fn targets_are_dealt_out() {
        for (targets, servers) in [(4, 2), (5, 3), (1, 2), (7, 1)] {
            let all = (1..=servers).flat_map(|n| targets_of(n, targets, servers));
            let mut all: Vec<_> = all.collect();
            all.sort_unstable();
            assert_eq!(all, (1..=targets).collect::<Vec<_>>());
        }
    }

    /// Goal: a port that somebody took is replaced, in the files too; one of a running service stays.
    #[test]
    fn taken_ports_are_replaced() {
        let services = services(Path::new("/d"), 1, 1);
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        let mut cluster = ClusterFile {
            ports: BTreeMap::from([("mgmtd".to_owned(), taken)]),
            http: BTreeMap::new(),
            ..cluster()
        };
        let none = Duration::ZERO;
        assert!(assign_ports(&services, |_| false, none, &mut cluster).unwrap().is_empty());
        assert_eq!((cluster.ports["mgmtd"], cluster.ports.len(), cluster.http.len()), (taken, 3, 4));
        let all: BTreeSet<_> = cluster.ports.values().chain(cluster.http.values()).collect();
        assert_eq!(all.len(), 7, "a port is promised twice");
        let changed = assign_ports(&services, |_| true, none, &mut cluster).unwrap();
        let ports = &cluster.ports;
        assert_eq!(changed, [(taken, ports["mgmtd"])]);
        let text = with_ports(&format!("a = \"127.0.0.1:{taken}\", \"127.0.0.1:{taken}1\""), &changed);
        assert_eq!(text, format!("a = \"127.0.0.1:{}\", \"127.0.0.1:{taken}1\"", ports["mgmtd"]));
    }

    /// Goal: who was killed a moment ago has its port again, though its sockets outlive it for a while.
    #[test]
    fn ports_of_the_dying_are_waited_for() {
        let services = services(Path::new("/d"), 1, 1);
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        let mut cluster = ClusterFile { ports: BTreeMap::from([("mgmtd".to_owned(), taken)]), ..cluster() };
        let dies = std::thread::spawn(move || {
            std::thread::sleep(10 * LOOK_PAUSE);
            drop(holder);
        });
        let changed = assign_ports(&services, |_| true, Duration::from_secs(60), &mut cluster).unwrap();
        assert_eq!((changed, cluster.ports["mgmtd"]), (vec![], taken));
        dies.join().unwrap();
    }

    /// Goal: a directory too deep for Unix sockets is served over TCP alone.
    #[test]
    fn deep_directories() {
        let deep = PathBuf::from(format!("/{}", "d".repeat(120)));
        assert!(socket(&deep, "mgmtd").is_none());
        assert_eq!(mgmtd_addresses(&deep, &cluster().ports).len(), 1);
    }
}
