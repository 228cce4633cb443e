//! What happens after a loss: a metadata server that starts again, the content of a target or server that is written
//! anew.

use super::calibration::Calibration;
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
