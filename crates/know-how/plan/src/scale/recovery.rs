//! What happens after a loss: a cluster that starts, a metadata server that starts again, the content of a target or
//! server that is written anew.

use super::calibration::Calibration;
use super::costs::Costs;
use super::management::nanos;
use super::queue::{Nanos, Queue};
use super::random::Random;
use super::scenario::{Cluster, Scenario};
use super::station::Station;
use super::streams::{Direction, server_gb_s};

const SECOND: Nanos = 1_000_000_000;
const YEAR_S: f64 = 365.25 * 86_400.0;

/// Seconds from the death of a metadata server until it serves everything: it starts again, every mount notices
/// (at the latest when it looks after itself), connects and tells what is open. Without an operation in between: the
/// worst case of idle mounts. `None`: some are not heard before grace is over, and lose their locks.
pub fn metadata_restart_s(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> Option<f64> {
    let c = &calibration.constants;
    let mut random = Random::new(scenario.seed, 3 << 32 | u64::from(cluster.servers));
    let restarted = (scenario.restart_s * 1e9) as Nanos;
    let looks_after = c.housekeeping_max_ms * (SECOND / 1_000);
    let shards = (c.shards as f64 / f64::from(cluster.metadata)).max(1.0);
    let m = &calibration.metadata;
    let connect = f64::from(scenario.threads_per_client) * calibration.socket.connect;
    let reclaim = shards * m.in_service * (calibration.socket.request + m.rules_close);
    let service = nanos(connect + reclaim);
    let mut thread = Station::new(1);
    let mut arrivals = Queue::default();
    for client in 0..cluster.clients {
        arrivals.at(restarted + random.below(looks_after), client);
    }
    let mut last = restarted;
    while let Some((now, _)) = arrivals.next(Nanos::MAX) {
        last = last.max(thread.serve(now, service));
    }
    let grace = restarted + c.grace_ms * (SECOND / 1_000);
    (last <= grace).then_some(last as f64 / 1e9)
}

/// All daemons begin within this time when a cluster is switched on.
const SWITCHED_ON: Nanos = SECOND;
/// Longest start that is simulated.
const START_MAX: Nanos = 3_600 * SECOND;

/// Seconds from switching on until every daemon is registered and holds the last map. Each registration moves the map,
/// so who is registered fetches it again at every heartbeat. `None`: not within an hour. Every registration
/// is counted with a sync of its own, although those of one round share one.
pub fn cold_start_s(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> Option<f64> {
    /// What a daemon asks mgmtd next.
    #[derive(Clone, Copy)]
    enum Step {
        Node,
        Targets(u32),
        Beat,
        Map(u64),
    }
    let costs = Costs::at(calibration, scenario, cluster);
    let mut random = Random::new(scenario.seed, 4 << 32 | u64::from(cluster.servers));
    let (trip, beat) = (nanos(scenario.round_trip_us), calibration.constants.heartbeat_ms * (SECOND / 1_000));
    let mut thread = Station::new(1);
    let mut queue = Queue::default();
    for daemon in 0..cluster.daemons() {
        queue.at(random.below(SWITCHED_ON), (daemon, Step::Node));
    }
    let (mut map, mut missing, mut ended) = (0u64, cluster.daemons(), 0);
    while let Some((now, (daemon, step))) = queue.next(START_MAX) {
        let targets = if daemon < u64::from(cluster.servers) { scenario.targets_per_server } else { 0 };
        let cost = match step {
            Step::Node => costs.register_node,
            Step::Targets(_) => costs.register_target,
            Step::Beat => costs.heartbeat,
            Step::Map(_) => costs.map,
        };
        let done = thread.serve(now, nanos(cost)) + trip;
        map += u64::from(matches!(step, Step::Node | Step::Targets(_)));
        let newest = cluster.daemons() + cluster.targets;
        let next = match step {
            Step::Node if targets > 0 => Step::Targets(1),
            Step::Targets(done) if done < targets => Step::Targets(done + 1),
            Step::Node | Step::Targets(_) => Step::Beat,
            Step::Beat => Step::Map(map),
            Step::Map(told) if told == newest => {
                missing -= 1;
                ended = done;
                continue;
            }
            Step::Map(_) => Step::Beat,
        };
        let pause = if matches!((step, next), (Step::Map(_), Step::Beat)) { beat } else { 0 };
        queue.at(done + pause, (daemon, next));
    }
    (missing == 0).then(|| ended as f64 / 1e9)
}

/// Writing lost content anew.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rebuild {
    /// Hours for one target.
    pub target_h: f64,
    /// Hours for one server with all its targets.
    pub server_h: f64,
    /// Targets that are being rebuilt on average over time (Little's law: losses per hour times hours).
    pub at_once: f64,
}

/// From the other servers, of which each gives a share of its throughput, onto a spare target or server that has
/// nothing else to do. This release keeps no copies itself: the content comes from outside (a backup, another
/// file system), or the target's own RAID keeps it from being lost.
pub fn rebuild(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> Rebuild {
    let others = f64::from(cluster.servers.saturating_sub(1).max(1));
    let sources = others * scenario.rebuild_share * server_gb_s(calibration, scenario, Direction::Read);
    let server = server_gb_s(calibration, scenario, Direction::Write);
    let target = scenario.target_write_gb_s.min(server);
    let hours = |tb: f64, gb_s: f64| tb * 1_000.0 / gb_s / 3_600.0;
    let target_h = hours(scenario.target_filled_tb, target.min(sources));
    let all = scenario.target_filled_tb * f64::from(scenario.targets_per_server);
    let losses_per_h = cluster.targets as f64 * scenario.target_losses_per_year / YEAR_S * 3_600.0;
    Rebuild { target_h, server_h: hours(all, server.min(sources)), at_once: losses_per_h * target_h }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a restart takes the start, the slowest mount's look, and the queue before it; a crowd that cannot be
    /// heard within grace is said to be one.
    #[test]
    fn restart() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario::default();
        let of = |servers| metadata_restart_s(&calibration, &scenario, &scenario.cluster(servers));
        let few = of(10).expect("in time");
        assert!(few > scenario.restart_s && few < scenario.restart_s + 15.1, "{few} s");
        let many = of(3_000).expect("in time");
        assert!(many > few, "{few} {many}");
        let crowd = Scenario { threads_per_client: 64, ..Scenario::default() };
        assert_eq!(metadata_restart_s(&calibration, &crowd, &crowd.cluster(10_000)), None);
    }

    /// Goal: a small cluster starts in about the second in which its daemons begin and a heartbeat; a larger one takes
    /// at least the work that it makes.
    #[test]
    fn cold_start() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario::default();
        let of = |servers| {
            let cluster = scenario.cluster(servers);
            let start = cold_start_s(&calibration, &scenario, &cluster).expect("it starts");
            let costs = Costs::at(&calibration, &scenario, &cluster);
            let (daemons, targets) = (cluster.daemons() as f64, cluster.targets as f64);
            let work = daemons * (costs.register_node + costs.heartbeat + costs.map)
                + targets * costs.register_target;
            assert!(start >= work / 1e6, "{servers}: {start} s for {work} us of work");
            start
        };
        let (few, many) = (of(10), of(2_000));
        assert!(few < 2.5, "{few} s");
        assert!(many > few, "{few} {many}");
    }

    /// Goal: a rebuild is bound by the spare where there are many others, by the others where there are few, and is
    /// as long as bytes over throughput.
    #[test]
    fn rebuild_times() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario { target_filled_tb: 43.2, target_write_gb_s: 1.2, ..Scenario::default() };
        let many = rebuild(&calibration, &scenario, &scenario.cluster(1_000));
        assert!((many.target_h - 10.0).abs() < 0.01, "{many:?}");
        let few = rebuild(&calibration, &scenario, &scenario.cluster(2));
        assert!(few.server_h > many.server_h, "{few:?} {many:?}");
        // 4,000 targets, one in a hundred lost a year, ten hours each.
        let expected = 4_000.0 * 0.01 / (365.25 * 24.0) * 10.0;
        assert!((many.at_once / expected - 1.0).abs() < 0.01, "{many:?}, expected {expected}");
    }
}
