//! From which size on something has no room left: threads and links that are busy, limits that are reached.

use super::calibration::Calibration;
use super::costs::{Costs, SMALL_BYTES};
use super::management;
use super::namespace;
use super::real;
use super::recovery;
use super::scenario::{CLIENTS_MAX, Cluster, SERVERS_MAX, Scenario};
use crate::forward::{CONNECTIONS_PER_CLIENT, META_CONNECTIONS_PER_CLIENT};
use serde::Serialize;

/// Busy for this share of the time, a thread or link counts as saturated: what comes in bursts waits for seconds.
pub const SATURATED: f64 = 0.9;

/// What has no room left.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// What it is.
    pub what: String,
    /// Storage servers from which on; `None`: not up to the largest that can be asked for.
    pub servers: Option<u32>,
    /// Clients that come with them.
    pub clients: Option<u64>,
    /// Storage servers by what a real daemon took ([`super::real`]), where that is less.
    pub servers_real: Option<u32>,
    /// Clients that come with those.
    pub clients_real: Option<u64>,
    /// How it was found.
    pub found: Found,
    /// What to change.
    pub change: String,
}

/// How a point was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Found {
    /// By runs of the simulation.
    Simulated,
    /// From the measured costs.
    Computed,
    /// A limit of the code or of the configuration.
    Limit,
}

/// Load of mgmtd's thread and link by arithmetic, 1 = all of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MgmtLoad {
    /// The thread, by what asks for it.
    pub heartbeats: f64,
    /// Renewals of sessions.
    pub renewals: f64,
    /// Maps to daemons and clients.
    pub maps: f64,
    /// Lists of sessions and fences.
    pub fences: f64,
    /// Ticks, and mounts that come and go.
    pub rest: f64,
    pub link: f64,
}

impl MgmtLoad {
    pub fn thread(&self) -> f64 {
        self.heartbeats + self.renewals + self.maps + self.fences + self.rest
    }

    /// What asks for most of the thread.
    pub fn largest(&self) -> &'static str {
        let parts = [
            (self.heartbeats, "heartbeats"),
            (self.renewals, "renewals of sessions"),
            (self.maps, "distribution of the map"),
            (self.fences, "lists of sessions"),
            (self.rest, "ticks and mounts that come and go"),
        ];
        parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |(_, name)| name)
    }
}

/// By arithmetic, from rates and costs.
pub fn mgmt_load(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> MgmtLoad {
    let costs = Costs::at(calibration, scenario, cluster);
    let c = &calibration.constants;
    let per_s = |ms: u64| 1_000.0 / ms as f64;
    let beats = cluster.daemons() as f64 * per_s(c.heartbeat_ms);
    let renewals = cluster.clients as f64 * per_s(c.session_timeout_ms) * c.renewals_per_timeout as f64;
    // A daemon fetches each map once; a client at a renewal when the map moved since the last one.
    let moves = if scenario.writing { per_s(c.capacity_every_ms) } else { 0.0 };
    let renewal_s = c.session_timeout_ms as f64 / c.renewals_per_timeout as f64 / 1_000.0;
    let stale = (moves * renewal_s).min(1.0);
    let maps = cluster.daemons() as f64 * moves + renewals * stale;
    // A daemon fetches the list of sessions at a heartbeat when one ended since the last.
    let ends = cluster.clients as f64 * scenario.remounts_per_client_day / 86_400.0;
    let fences = beats * (1.0 - (-ends * c.heartbeat_ms as f64 / 1_000.0).exp());
    let us = 1e-6;
    let bytes = maps * costs.map_bytes + fences * costs.fences_bytes + (beats + renewals) * SMALL_BYTES;
    MgmtLoad {
        heartbeats: beats * costs.heartbeat * us,
        renewals: renewals * costs.renew * us,
        maps: maps * costs.map * us,
        fences: fences * costs.fences * us,
        rest: (per_s(c.tick_ms) * costs.tick + ends * costs.come_and_go) * us,
        link: bytes / (scenario.mgmt_link_gb_s * 1e9),
    }
}

/// The smallest number of storage servers for which `enough` holds, which must hold for all larger ones then.
pub fn smallest(most: u32, mut enough: impl FnMut(u32) -> bool) -> Option<u32> {
    if !enough(most) {
        return None;
    }
    let (mut below, mut at) = (0, most);
    while at - below > 1 {
        let middle = below + (at - below) / 2;
        if enough(middle) {
            at = middle;
        } else {
            below = middle;
        }
    }
    Some(at)
}

/// Most storage servers that come with clients that can be simulated.
fn most(scenario: &Scenario) -> u32 {
    (CLIENTS_MAX / scenario.clients_per_server).min(f64::from(SERVERS_MAX)).max(1.0) as u32
}

/// Storage servers at which mgmtd's thread saturates, by arithmetic.
pub fn mgmt_computed(calibration: &Calibration, scenario: &Scenario) -> Option<u32> {
    smallest(most(scenario), |servers| {
        mgmt_load(calibration, scenario, &scenario.cluster(servers)).thread() >= SATURATED
    })
}

/// The smallest number for which `enough` holds, found from below: the number is doubled until it does. So nothing
/// has to be known before, and nothing much larger than the answer is tried.
pub fn first(most: u32, mut enough: impl FnMut(u32) -> bool) -> Option<u32> {
    let (mut below, mut at) = (0, 1.min(most));
    while !enough(at) {
        if at >= most {
            return None;
        }
        (below, at) = (at, at.saturating_mul(2).min(most));
    }
    while at - below > 1 {
        let middle = below + (at - below) / 2;
        if enough(middle) {
            at = middle;
        } else {
            below = middle;
        }
    }
    Some(at)
}

/// The same by runs of the simulation, which know nothing of the computed number; `factor` times as dear as calibrated.
pub fn mgmt_simulated(calibration: &Calibration, scenario: &Scenario, factor: f64) -> Option<u32> {
    first(most(scenario), |servers| {
        management::load(calibration, scenario, &scenario.cluster(servers), factor).utilisation >= SATURATED
    })
}

/// Storage servers at which the busiest metadata thread saturates, by arithmetic.
pub fn metadata_computed(calibration: &Calibration, scenario: &Scenario) -> Option<u32> {
    smallest(most(scenario), |servers| {
        namespace::demanded(calibration, scenario, &scenario.cluster(servers)) >= SATURATED
    })
}

/// The same by runs of the simulation.
pub fn metadata_simulated(calibration: &Calibration, scenario: &Scenario) -> Option<u32> {
    first(most(scenario), |servers| {
        namespace::load(calibration, scenario, &scenario.cluster(servers)).busiest >= SATURATED
    })
}

/// Everything that ends somewhere, the first first.
pub fn points(calibration: &Calibration, scenario: &Scenario) -> Vec<Point> {
    let mut points = stations(calibration, scenario);
    points.push(heartbeats(calibration, scenario));
    points.push(rebuild(calibration, scenario));
    points.extend(limits(calibration, scenario));
    points.sort_by_key(Point::least);
    points
}

impl Point {
    /// The least number of servers that it is told of.
    pub fn least(&self) -> u32 {
        self.servers_real.or(self.servers).unwrap_or(u32::MAX)
    }
}

fn point(scenario: &Scenario, what: &str, servers: Option<u32>, found: Found, change: &str) -> Point {
    let clients = servers.map(|servers| scenario.cluster(servers).clients);
    let (servers_real, clients_real) = (None, None);
    Point { what: what.into(), servers, clients, servers_real, clients_real, found, change: change.into() }
}

fn stations(calibration: &Calibration, scenario: &Scenario) -> Vec<Point> {
    let most = most(scenario);
    let of = |busy: &dyn Fn(&Cluster) -> f64| {
        smallest(most, |servers| busy(&scenario.cluster(servers)) >= SATURATED)
    };
    let mgmt = mgmt_simulated(calibration, scenario, 1.0);
    let real = real::factor().ok().and_then(|factor| mgmt_simulated(calibration, scenario, factor));
    let why =
        mgmt.map_or("", |servers| mgmt_load(calibration, scenario, &scenario.cluster(servers)).largest());
    let mgmt_name = format!("mgmtd, thread (most of it: {why})");
    let metadata = metadata_simulated(calibration, scenario);
    let link = of(&|cluster| mgmt_load(calibration, scenario, cluster).link);
    let many = scenario.cluster(1).metadata > 1;
    let mgmt = Point {
        servers_real: real,
        clients_real: real.map(|servers| scenario.cluster(servers).clients),
        ..point(scenario, &mgmt_name, mgmt, Found::Simulated, mgmt_change(why))
    };
    vec![
        mgmt,
        point(scenario, "mgmtd, link", link, Found::Computed, "a faster link of the management server"),
        point(
            scenario,
            if many {
                "metadata server, thread of the group with the root directory"
            } else {
                "metadata server, thread"
            },
            metadata,
            Found::Simulated,
            if many {
                "every path begins at the root: mount a subtree per group of clients, or fewer names in a path"
            } else {
                "more groups (groups of metad, a core each) or metadata servers (metas of mgmtd), from the first start \
                 on, and work in several directories; one directory has one thread: faster cores, or fewer operations"
            },
        ),
    ]
}

/// mgmtd's thread if it had nothing but heartbeats to answer: what is left when maps cost nothing any more.
fn heartbeats(calibration: &Calibration, scenario: &Scenario) -> Point {
    let at = |factor: f64| {
        smallest(most(scenario), |servers| {
            factor * mgmt_load(calibration, scenario, &scenario.cluster(servers)).heartbeats >= SATURATED
        })
    };
    let real = real::factor().ok().and_then(at);
    Point {
        servers_real: real,
        clients_real: real.map(|servers| scenario.cluster(servers).clients),
        ..point(
            scenario,
            "heartbeats alone, thread of mgmtd",
            at(1.0),
            Found::Computed,
            mgmt_change("heartbeats"),
        )
    }
}

/// From here on targets are lost faster than they are written anew: the queue of those that wait grows without end.
fn rebuild(calibration: &Calibration, scenario: &Scenario) -> Point {
    let of = |servers: u32| recovery::rebuild(calibration, scenario, &scenario.cluster(servers));
    let repairs = f64::from(scenario.repairs_at_once);
    let found = first(most(scenario), |servers| of(servers).at_once >= repairs);
    let servers = found.unwrap_or(most(scenario));
    let what = format!(
        "rebuild: losses exceed repair ({} targets, {} lost per target and year, {:.1} h each, {} at a time)",
        scenario.cluster(servers).targets,
        scenario.target_losses_per_year,
        of(servers).target_h,
        scenario.repairs_at_once
    );
    let change = "more spares and streams of the source (repairs_at_once of the scenario), smaller targets, or targets \
                  that are lost less often";
    point(scenario, &what, found, Found::Computed, change)
}

fn mgmt_change(largest: &str) -> &'static str {
    match largest {
        "heartbeats" => {
            "`heartbeat` of the daemons to 2s (and node_probably_offline of mgmtd to 10s); fewer, larger targets: each \
             heartbeat looks at all of them"
        }
        "distribution of the map" => {
            "fewer, larger targets (the map is sent whole); longer session_timeout of mgmtd, so that clients fetch it \
             less often"
        }
        "lists of sessions" => "keep file systems mounted instead of mounting them for each job",
        "renewals of sessions" => "a longer session_timeout of mgmtd",
        _ => "state_dir of mgmtd on a faster disk; fewer, larger targets",
    }
}

pub(super) fn limits(calibration: &Calibration, scenario: &Scenario) -> Vec<Point> {
    let c = &calibration.constants;
    let most = most(scenario);
    let above = |limit: f64, needed: &dyn Fn(&Cluster) -> f64| {
        smallest(most, |servers| needed(&scenario.cluster(servers)) > limit)
    };
    let threads = f64::from(scenario.threads_per_client);
    let costs = |cluster: &Cluster| Costs::at(calibration, scenario, cluster);
    let nodes = |cluster: &Cluster| (cluster.daemons() + 1) as f64;
    let of_clients = |most: u64| {
        let each = threads.min(most as f64);
        move |cluster: &Cluster| cluster.clients as f64 * each + nodes(cluster)
    };
    let connections = of_clients(META_CONNECTIONS_PER_CLIENT);
    let storage_connections = of_clients(CONNECTIONS_PER_CLIENT);
    let row = |what: &str, limit: u64, needed: &dyn Fn(&Cluster) -> f64, change: &str| {
        let what = format!("{what} ({limit})");
        point(scenario, &what, above(limit as f64, needed), Found::Limit, change)
    };
    vec![
        row(
            "length of the map in bytes, body of a message",
            c.body_max,
            &|cluster| costs(cluster).map_bytes,
            "fewer, larger targets and servers: a longer map is not sent, so who runs keeps an old one and nobody starts",
        ),
        row(
            "length of the list of sessions in bytes, body of a message",
            c.body_max,
            &|cluster| costs(cluster).fences_bytes,
            "fewer mounts: a longer list is not sent, and servers learn of no eviction",
        ),
        row("daemons, max_nodes of mgmtd", c.nodes_max, &nodes, "raise max_nodes of mgmtd (to 65,536)"),
        row(
            "targets, max_targets of mgmtd",
            c.targets_max,
            &|cluster| cluster.targets as f64,
            "raise max_targets of mgmtd (to 1,048,576)",
        ),
        row(
            "mounts, max_sessions of mgmtd",
            c.sessions_max,
            &|cluster| cluster.clients as f64,
            "raise max_sessions of mgmtd; a metadata server knows 65,536 (a constant)",
        ),
        row(
            "connections of a metadata server, max_connections",
            c.metad_connections_max,
            &connections,
            "raise max_connections of metad",
        ),
        row(
            "connections of a storage server, max_connections",
            c.storaged_connections_max,
            &storage_connections,
            "raise max_connections of storaged: a thread each, 256 KiB of stack; or directories on fewer targets",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> Calibration {
        Calibration::shipped().expect("the calibration")
    }

    /// Goal: the search finds the first number that holds, and says when none does.
    #[test]
    fn search() {
        for first in [1, 2, 17, 99, 100] {
            assert_eq!(smallest(100, |n| n >= first), Some(first));
            assert_eq!(super::first(100, |n| n >= first), Some(first));
        }
        assert_eq!(smallest(100, |_| false), None);
        assert_eq!(super::first(100, |_| false), None);
        // From below: nothing much above the answer is tried, and no hint is needed.
        let mut largest = 0;
        let found = super::first(65_536, |n| {
            largest = largest.max(n);
            n >= 981
        });
        assert_eq!((found, largest), (Some(981), 1_024));
    }

    /// Goal: simulation and arithmetic find the same saturation, although they know nothing of each other but rates
    /// and costs: in a mixed load, and where heartbeats, maps or lists of sessions decide.
    #[test]
    fn simulation_and_arithmetic_agree() {
        let calibration = shipped();
        let mixed = Scenario::default();
        let heartbeats = Scenario {
            writing: false,
            remounts_per_client_day: 0.0,
            clients_per_server: 1.0,
            ..Scenario::default()
        };
        let maps = Scenario { clients_per_server: 60.0, remounts_per_client_day: 0.0, ..Scenario::default() };
        let lists = Scenario { writing: false, remounts_per_client_day: 200.0, ..Scenario::default() };
        for (name, scenario) in
            [("mixed", mixed), ("heartbeats", heartbeats), ("maps", maps), ("lists", lists)]
        {
            let computed = f64::from(mgmt_computed(&calibration, &scenario).expect("a number"));
            let simulated = f64::from(mgmt_simulated(&calibration, &scenario, 1.0).expect("a number"));
            let off = simulated / computed - 1.0;
            assert!(off.abs() < 0.05, "{name}: simulated {simulated}, computed {computed}");
        }
    }

    /// Goal: metadata saturates where arithmetic says, by a simulation that knows only rates and costs: one server, and
    /// the root's among several.
    #[test]
    fn metadata_simulation_agrees() {
        let calibration = shipped();
        for (metadata_servers, metadata_groups) in [(1, 1), (4, 1), (2, 2)] {
            let scenario = Scenario { metadata_servers, metadata_groups, ..Scenario::default() };
            let computed = f64::from(metadata_computed(&calibration, &scenario).expect("a number"));
            let simulated = f64::from(metadata_simulated(&calibration, &scenario).expect("a number"));
            assert!((simulated / computed - 1.0).abs() < 0.05, "{simulated} {computed}");
        }
        let points = points(&calibration, &Scenario::default());
        let metadata = points.iter().find(|point| point.what.starts_with("metadata server")).expect("metad");
        assert_eq!(metadata.found, Found::Simulated);
    }

    /// Goal: mgmtd's saturation is told with what a real one took: earlier, by no more than the factor, and sooner than
    /// its root because maps grow with the square.
    #[test]
    fn the_real_daemon_saturates_earlier() {
        let points = points(&shipped(), &Scenario::default());
        let mgmt = points.iter().find(|point| point.what.starts_with("mgmtd, thread")).expect("mgmtd");
        let (simulated, real) = (mgmt.servers.expect("found"), mgmt.servers_real.expect("found"));
        let ratio = f64::from(simulated) / f64::from(real);
        let factor = real::factor().expect("a factor");
        assert!(ratio > 1.3 && ratio < factor, "{simulated} {real} {factor}");
        assert!((ratio / factor.sqrt() - 1.0).abs() < 0.15, "{ratio} {factor}");
        assert_eq!(mgmt.clients_real, Some(10 * u64::from(real)));
    }

    /// Goal: heartbeats are answered for themselves too: later than all of mgmtd's work together, earlier with more targets
    /// to look at, and told with what a real one took.
    #[test]
    fn heartbeats_alone() {
        let of = |scenario: &Scenario| {
            let points = points(&shipped(), scenario);
            let at =
                |what: &str| points.iter().find(|point| point.what.starts_with(what)).expect(what).clone();
            (at("heartbeats alone"), at("mgmtd, thread"))
        };
        let (alone, all) = of(&Scenario::default());
        assert!(alone.servers > all.servers && alone.servers_real > all.servers_real, "{alone:?} {all:?}");
        assert!(alone.servers_real < alone.servers);
        let load =
            |n| mgmt_load(&shipped(), &Scenario::default(), &Scenario::default().cluster(n)).heartbeats;
        let at = alone.servers.expect("a number");
        assert!(load(at) >= SATURATED && load(at - 1) < SATURATED);
        let (more, _) = of(&Scenario { targets_per_server: 12, ..Scenario::default() });
        assert!(more.servers < alone.servers, "{more:?}");
        // Where nothing else is asked for, the simulation of all of it ends there too.
        let nothing_else = Scenario {
            writing: false,
            remounts_per_client_day: 0.0,
            clients_per_server: 0.1,
            ..Scenario::default()
        };
        let (alone, all) = of(&nothing_else);
        let (alone, all) = (alone.servers.expect("a number"), all.servers.expect("a number"));
        assert!((f64::from(all) / f64::from(alone) - 1.0).abs() < 0.05, "{all} {alone}");
    }

    /// Goal: losses exceed repair where a queue of lost targets, simulated with losses at random, has no end: below, the
    /// repairs are busy for a part of the time; above, all the time, and the queue grows.
    #[test]
    fn losses_exceed_repair() {
        let calibration = shipped();
        let hours = |h: f64| (h * 3_600e9) as u64;
        for repairs_at_once in [1, 3] {
            let scenario = Scenario { target_losses_per_year: 0.2, repairs_at_once, ..Scenario::default() };
            let points = points(&calibration, &scenario);
            let found = points.iter().find(|point| point.what.starts_with("rebuild: ")).expect("a row");
            assert!(found.what.contains("0.2 lost per target and year, 9.3 h each"), "{}", found.what);
            let servers = found.servers.expect("a number");
            let run = |servers: u32| {
                let rebuild = recovery::rebuild(&calibration, &scenario, &scenario.cluster(servers));
                let targets = f64::from(servers) * f64::from(scenario.targets_per_server);
                let between = 365.25 * 24.0 / targets / scenario.target_losses_per_year;
                let mut random = super::super::random::Random::new(5, u64::from(servers));
                let mut station = super::super::station::Station::new(repairs_at_once);
                let mut now = 0;
                for _ in 0..20_000 {
                    now += random.exponential(between * 3_600e9);
                    station.serve(now, hours(rebuild.target_h));
                }
                (station.work(now).utilisation, station.wait(now) as f64 / hours(rebuild.target_h) as f64)
            };
            let (busy, wait) = run(servers * 8 / 10);
            assert!((busy - 0.8).abs() < 0.03 && wait < 50.0, "{servers}: {busy} {wait}");
            let (busy, wait) = run(servers * 12 / 10);
            assert!(busy > 0.999 && wait > 500.0, "{servers}: {busy} {wait}");
        }
    }

    /// Goal: whatever grows brings saturation nearer, or leaves it where it is.
    #[test]
    fn monotony() {
        let calibration = shipped();
        let base = Scenario::default();
        let at = |scenario: &Scenario| mgmt_computed(&calibration, scenario).unwrap_or(u32::MAX);
        let harder = [
            Scenario { clients_per_server: 20.0, ..base.clone() },
            Scenario { targets_per_server: 12, ..base.clone() },
            Scenario { remounts_per_client_day: 50.0, ..base.clone() },
        ];
        for scenario in harder {
            assert!(at(&scenario) < at(&base), "{scenario:?}");
        }
        assert!(at(&Scenario { writing: false, ..base.clone() }) > at(&base));
        let loads: Vec<f64> = [10, 50, 250, 1_000, 5_000]
            .iter()
            .map(|n| mgmt_load(&calibration, &base, &base.cluster(*n)).thread())
            .collect();
        assert!(loads.windows(2).all(|pair| pair[0] < pair[1]), "{loads:?}");
    }

    /// Goal: limits stand where their number is passed.
    #[test]
    fn limits_are_where_they_are() {
        let calibration = shipped();
        let scenario = Scenario::default();
        let found = |name: &str| {
            let points = points(&calibration, &scenario);
            let point = points.into_iter().find(|point| point.what.starts_with(name)).expect(name);
            point.servers.expect("reached")
        };
        // 4,096 daemons, one of them mgmtd, one a metadata server.
        assert_eq!(found("daemons"), 4_095);
        assert_eq!(found("targets"), 16_385);
        assert_eq!(found("mounts"), 6_554);
        let map = found("length of the map");
        let bytes = |servers| Costs::at(&calibration, &scenario, &scenario.cluster(servers)).map_bytes;
        assert!(bytes(map) > 1_048_576.0 && bytes(map - 1) <= 1_048_576.0);
    }
}
