//! What everything costs in a cluster of one size: the calibration, read at that size.

use super::calibration::{Calibration, along};
use super::scenario::{Cluster, Scenario};

const MIB: f64 = (1 << 20) as f64;
/// Bytes of the longest part of a small answer with its frame: what a link carries for a heartbeat's or a renewal's.
pub const SMALL_BYTES: f64 = 200.0;

/// Microseconds of mgmtd's thread, and bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    pub heartbeat: f64,
    /// A renewal.
    pub renew: f64,
    pub map: f64,
    /// A list of sessions and fences.
    pub fences: f64,
    pub tick: f64,
    /// A mount that comes and goes, with its two synced appends.
    pub come_and_go: f64,
    /// A daemon that comes back: its connection and registration, with a synced append.
    pub register_node: f64,
    /// A target that it brings.
    pub register_target: f64,
    pub map_bytes: f64,
    /// Bytes of a list of sessions and fences.
    pub fences_bytes: f64,
}

impl Costs {
    /// At this size. Every curve is read by what it grows with: the look at all targets that a heartbeat takes by
    /// their number, the map by its length, the list by the mounts.
    pub fn at(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> Self {
        let r = &calibration.registry;
        let (nodes, targets) = (cluster.daemons() as f64, cluster.targets as f64);
        let sessions = cluster.clients as f64;
        let service = calibration.metadata.in_service;
        let request = calibration.socket.request;
        let per_byte = calibration.socket.long_reply_per_mib / MIB;
        let sync = scenario.sync_us(calibration);
        let map_bytes = map_bytes(calibration, nodes, targets);
        let fences_bytes = along(&r.sessions, &r.fences_bytes, sessions);
        let small = |rules: f64| service * (request + rules);
        let long = |rules: f64, bytes: f64| service * (request + rules + bytes * per_byte);
        let heartbeat = along(&r.targets, &r.heartbeat, targets);
        let tick = if scenario.writing {
            (along(&r.targets, &r.tick_after_reports, targets) - heartbeat).max(0.0)
        } else {
            along(&r.targets, &r.tick, targets)
        };
        Self {
            heartbeat: small(heartbeat),
            renew: small(along(&r.sessions, &r.renew, sessions)),
            map: long(along(&r.map_bytes, &r.map, map_bytes), map_bytes),
            fences: long(along(&r.sessions, &r.fences, sessions), fences_bytes),
            tick: service * tick,
            come_and_go: small(along(&r.sessions, &r.open_and_close_session, sessions))
                + 2.0 * (request + sync),
            register_node: small(along(&r.nodes, &r.register_node, nodes))
                + calibration.socket.connect
                + sync,
            register_target: small(along(&r.targets, &r.register_target, targets)),
            map_bytes,
            fences_bytes,
        }
    }
}

impl Costs {
    /// Everything of the thread so many times as dear; lengths stay.
    pub fn times(self, factor: f64) -> Self {
        Self {
            heartbeat: self.heartbeat * factor,
            renew: self.renew * factor,
            map: self.map * factor,
            fences: self.fences * factor,
            tick: self.tick * factor,
            come_and_go: self.come_and_go * factor,
            register_node: self.register_node * factor,
            register_target: self.register_target * factor,
            ..self
        }
    }
}

/// The map grows with nodes and targets. It was measured with as many targets for each node; each more, or less, takes
/// what the codec takes for one.
fn map_bytes(calibration: &Calibration, nodes: f64, targets: f64) -> f64 {
    let r = &calibration.registry;
    let whole = along(&r.nodes, &r.map_bytes, nodes);
    let usual = along(&r.nodes, &r.targets, nodes);
    (whole + (targets - usual) * r.target_bytes).max(SMALL_BYTES)
}

/// What a metadata server's thread spends on one operation, in microseconds, by where its requests go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operation {
    /// On the shard of the root directory: its attributes and the name in it.
    pub root: f64,
    /// On the shard of the job's directory.
    pub middle: f64,
    /// On the shard of the directory that is worked in.
    pub leaf: f64,
    /// Requests of each, for what passes between them.
    pub requests: [u32; 3],
    /// Microseconds that program, kernel and mount take.
    pub client: f64,
    /// It changes something, so it goes into the log.
    pub changes: bool,
}

impl Operation {
    pub fn whole(&self) -> f64 {
        self.root + self.middle + self.leaf
    }

    fn of(calibration: &Calibration, requests: [u32; 5], client: f64) -> Self {
        let m = &calibration.metadata;
        let rules = [m.rules_getattr, m.rules_lookup, m.rules_create, m.rules_unlink, m.rules_close];
        // A close goes with others in one message.
        let asked: u32 = requests[..4].iter().sum();
        let ruled: f64 = requests.iter().zip(rules).map(|(n, us)| f64::from(*n) * us).sum();
        let changes = f64::from(requests[2] + requests[3]) * m.log_append;
        let one = |count: u32, us: f64| f64::from(count) * us;
        let request = calibration.socket.request;
        // A name in a directory and the directory's attributes: one getattr and one lookup on the way.
        let step = m.in_service * (one(2, request) + m.rules_getattr + m.rules_lookup);
        let whole = m.in_service * (one(asked, request) + ruled) + changes;
        let leaf = (whole - 2.0 * step).max(0.0);
        let changed = requests[2] + requests[3] > 0;
        let requests = [2, 2, asked.saturating_sub(4)];
        Self { root: step, middle: step, leaf, requests, client, changes: changed }
    }

    /// A file is created and closed.
    pub fn create(calibration: &Calibration) -> Self {
        Self::of(calibration, calibration.metadata.create_requests, calibration.metadata.create_client)
    }

    /// A file's attributes are asked for.
    pub fn stat(calibration: &Calibration) -> Self {
        Self::of(calibration, calibration.metadata.stat_requests, calibration.metadata.stat_client)
    }

    /// A file is removed.
    pub fn unlink(calibration: &Calibration) -> Self {
        Self::of(calibration, calibration.metadata.unlink_requests, calibration.metadata.unlink_client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nothing gets cheaper in a larger cluster.
    #[test]
    fn costs_rise() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario::default();
        let mut last: Option<Costs> = None;
        for servers in [1, 5, 10, 20, 100, 500, 2_000, 10_000, 50_000] {
            let costs = Costs::at(&calibration, &scenario, &scenario.cluster(servers));
            let all = |c: &Costs| {
                [c.heartbeat, c.renew, c.map, c.fences, c.come_and_go, c.map_bytes, c.fences_bytes]
            };
            if let Some(last) = &last {
                for (was, is) in all(last).iter().zip(all(&costs)) {
                    assert!(is >= was * 0.999, "{servers}: {last:?} {costs:?}");
                }
            }
            last = Some(costs);
        }
    }

    /// Goal: at the sizes that were measured the length of the map is the measured one, and each target more takes
    /// what its record takes.
    #[test]
    fn map_length() {
        let calibration = Calibration::shipped().expect("the calibration");
        let r = &calibration.registry;
        assert_eq!(map_bytes(&calibration, 1_000.0, 4_000.0), r.map_bytes[4]);
        let per_node = (r.map_bytes[4] - r.map_bytes[3]) / (r.nodes[4] - r.nodes[3]);
        // A node with its four targets: the targets' part must leave room for the node's own record.
        assert!(per_node > 4.0 * r.target_bytes && per_node < 4.0 * r.target_bytes + 300.0, "{per_node}");
    }

    /// Goal: the requests of an operation are all counted, wherever they go.
    #[test]
    fn requests_are_counted() {
        let calibration = Calibration::shipped().expect("the calibration");
        for (operation, all) in [
            (Operation::create(&calibration), calibration.metadata.create_requests),
            (Operation::stat(&calibration), calibration.metadata.stat_requests),
            (Operation::unlink(&calibration), calibration.metadata.unlink_requests),
        ] {
            let sent: u32 = all[..4].iter().sum();
            assert_eq!(operation.requests.iter().sum::<u32>(), sent);
            assert!(operation.leaf > 0.0, "{operation:?}");
        }
    }
}
