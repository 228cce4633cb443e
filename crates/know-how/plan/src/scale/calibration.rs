//! Measured costs, and the intervals and limits of Skep's code: `crates/know-how/plan/calibration.toml`.

use serde::Deserialize;

/// What was measured when this was built.
const SHIPPED: &str = include_str!("../../calibration.toml");

/// The whole file; costs are microseconds of CPU.
#[derive(Debug, Clone, Deserialize)]
pub struct Calibration {
    /// When, where, how.
    pub provenance: Provenance,
    /// Intervals and limits of the code.
    pub constants: Constants,
    /// A server's thread, without what the service does.
    pub socket: Socket,
    /// The registry of mgmtd by the size of the cluster.
    pub registry: Registry,
    /// A metadata server's thread.
    pub metadata: Metadata,
    /// A storage server's threads.
    pub storage: Storage,
}

/// When, where, how.
#[derive(Debug, Clone, Deserialize)]
pub struct Provenance {
    /// Day.
    pub date: String,
    pub processor: String,
    /// Kernel release.
    pub kernel: String,
    /// What was called.
    pub commands: Vec<String>,
}

/// Where each stands in the code is written beside it in the file.
#[derive(Debug, Clone, Deserialize)]
pub struct Constants {
    /// Between two heartbeats of a daemon.
    pub heartbeat_ms: u64,
    /// Longest time that a daemon waits for an answer of mgmtd.
    pub answer_limit_ms: u64,
    /// Its pause after that.
    pub retry_pause_ms: u64,
    /// Between two looks for silent nodes.
    pub tick_ms: u64,
    /// Silence after which a node is probably offline.
    pub probably_offline_ms: u64,
    /// Silence after which it is offline.
    pub offline_ms: u64,
    /// Silence after which a client is evicted.
    pub session_timeout_ms: u64,
    /// A session is renewed so many times in that.
    pub renewals_per_timeout: u64,
    /// The map moves at most this often because files grow.
    pub capacity_every_ms: u64,
    /// A mount looks after itself at least this often.
    pub housekeeping_max_ms: u64,
    /// Time that mounts have to tell a restarted metadata server what is open.
    pub grace_ms: u64,
    /// Metadata shards of a cluster.
    pub shards: u64,
    /// Most daemons, as shipped.
    pub nodes_max: u64,
    /// ... and as it can be set.
    pub nodes_highest: u64,
    /// Most targets, as shipped.
    pub targets_max: u64,
    /// ... and as it can be set.
    pub targets_highest: u64,
    /// Most mounts, as shipped.
    pub sessions_max: u64,
    /// ... and as it can be set.
    pub sessions_highest: u64,
    /// Most mounts that a metadata server knows.
    pub metad_sessions_max: u64,
    /// Most connections of a metadata server, as shipped.
    pub metad_connections_max: u64,
    /// Most connections of a storage server, as shipped.
    pub storaged_connections_max: u64,
    /// Longest body of a message.
    pub body_max: u64,
}

/// The server's thread alone, over TCP.
#[derive(Debug, Clone, Deserialize)]
pub struct Socket {
    /// A small request, alone.
    pub request_alone: f64,
    /// A small request among 32.
    pub request: f64,
    /// Each MiB of a long answer.
    pub long_reply_per_mib: f64,
    /// A new connection.
    pub connect: f64,
    /// A synced append to the log.
    pub sync: f64,
}

/// Costs and lengths at the sizes that were measured.
#[derive(Debug, Clone, Deserialize)]
pub struct Registry {
    /// Storage servers.
    pub nodes: Vec<f64>,
    pub targets: Vec<f64>,
    /// Mounts.
    pub sessions: Vec<f64>,
    /// A heartbeat that brings nothing new.
    pub heartbeat: Vec<f64>,
    /// A tick when nothing was reported.
    pub tick: Vec<f64>,
    /// A heartbeat with new space, and a tick that classifies all targets.
    pub tick_after_reports: Vec<f64>,
    /// A session renewed.
    pub renew: Vec<f64>,
    pub map: Vec<f64>,
    /// "You have the newest map".
    pub map_known: Vec<f64>,
    /// The list of sessions and fences.
    pub fences: Vec<f64>,
    /// A daemon that comes back.
    pub register_node: Vec<f64>,
    /// A target that comes back.
    pub register_target: Vec<f64>,
    /// A mount that comes and goes.
    pub open_and_close_session: Vec<f64>,
    pub map_bytes: Vec<f64>,
    /// Bytes of the list of sessions and fences.
    pub fences_bytes: Vec<f64>,
    /// Bytes of each target more in the map.
    pub target_bytes: f64,
}

/// A metadata server's thread. Requests are counted as getattr, lookup, create, unlink, close.
#[derive(Debug, Clone, Deserialize)]
pub struct Metadata {
    pub rules_getattr: f64,
    pub rules_lookup: f64,
    pub rules_create: f64,
    pub rules_unlink: f64,
    pub rules_close: f64,
    /// What a running daemon takes for what takes 1 in the measuring programs.
    pub in_service: f64,
    /// A change's append to the command log.
    pub log_append: f64,
    /// Requests of a create and close.
    pub create_requests: [u32; 5],
    /// What it was measured to cost the daemon.
    pub create_measured: f64,
    /// What it was measured to take elsewhere.
    pub create_client: f64,
    pub stat_requests: [u32; 5],
    /// As `create_measured`.
    pub stat_measured: f64,
    /// As `create_client`.
    pub stat_client: f64,
    pub unlink_requests: [u32; 5],
    /// As `create_measured`.
    pub unlink_measured: f64,
    /// As `create_client`.
    pub unlink_client: f64,
}

/// A storage server's threads, targets in memory.
#[derive(Debug, Clone, Deserialize)]
pub struct Storage {
    /// Each MiB written to a new file.
    pub write_per_mib: f64,
    /// Each MiB overwritten.
    pub overwrite_per_mib: f64,
    /// Each MiB read.
    pub read_per_mib: f64,
    /// A write of 4 KiB.
    pub random_write_4k: f64,
    /// A read of 4 KiB.
    pub random_read_4k: f64,
    /// Each MiB written, at the mount.
    pub mount_write_per_mib: f64,
    /// Each MiB read, at the mount.
    pub mount_read_per_mib: f64,
}

impl Calibration {
    /// The measurements that this program was built with.
    pub fn shipped() -> Result<Self, String> {
        Self::parse(SHIPPED)
    }

    /// Measurements of another machine, as `cargo xtask calibrate` writes them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self = toml::from_str(text).map_err(|e| format!("calibration: {e}"))?;
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), String> {
        let r = &self.registry;
        let curves = [
            &r.targets,
            &r.sessions,
            &r.heartbeat,
            &r.tick,
            &r.tick_after_reports,
            &r.renew,
            &r.map,
            &r.map_known,
            &r.fences,
            &r.register_node,
            &r.register_target,
            &r.open_and_close_session,
            &r.map_bytes,
            &r.fences_bytes,
        ];
        let sizes = r.nodes.len();
        if sizes < 2 || curves.iter().any(|curve| curve.len() != sizes) {
            return Err("calibration: [registry] needs the same sizes, two or more, in every list".into());
        }
        let rising = |sizes: &[f64]| sizes.windows(2).all(|pair| pair[0] < pair[1]);
        if ![&r.nodes, &r.targets, &r.sessions].iter().all(|sizes| rising(sizes)) {
            return Err("calibration: nodes, targets and sessions of [registry] must rise".into());
        }
        let positive = curves.iter().flat_map(|curve| curve.iter()).all(|value| *value > 0.0);
        let c = &self.constants;
        let intervals = [c.heartbeat_ms, c.tick_ms, c.renewals_per_timeout, c.capacity_every_ms];
        if !positive || self.socket.request <= 0.0 || intervals.contains(&0) {
            return Err("calibration: costs and intervals must be above 0".into());
        }
        Ok(())
    }
}

/// The value at `x` of a curve through the points (`xs`, `ys`): straight between points, on along the last stretch,
/// and never below the first point's value.
pub fn along(xs: &[f64], ys: &[f64], x: f64) -> f64 {
    let (Some(first), Some(first_y)) = (xs.first(), ys.first()) else { return 0.0 };
    if x <= *first || xs.len() < 2 {
        return *first_y;
    }
    let upper = xs.iter().position(|at| *at >= x).unwrap_or(xs.len() - 1);
    let (x0, x1, y0, y1) = (xs[upper - 1], xs[upper], ys[upper - 1], ys[upper]);
    y0 + (y1 - y0) * (x - x0) / (x1 - x0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: curves hit their points, are straight between, and go on behind the last.
    #[test]
    fn curves() {
        let (xs, ys) = ([10.0, 20.0, 40.0], [1.0, 3.0, 5.0]);
        for (x, y) in
            [(0.0, 1.0), (10.0, 1.0), (15.0, 2.0), (20.0, 3.0), (30.0, 4.0), (40.0, 5.0), (80.0, 9.0)]
        {
            assert_eq!(along(&xs, &ys, x), y, "at {x}");
        }
    }

    /// Goal: what is shipped can be read; broken files are refused with a reason.
    #[test]
    fn shipped_and_broken() {
        Calibration::shipped().expect("the shipped calibration");
        let short = SHIPPED.replace("nodes = [10, 30,", "nodes = [30,");
        assert!(Calibration::parse(&short).expect_err("too short").contains("same sizes"));
        let falling = SHIPPED.replace("nodes = [10, 30,", "nodes = [30, 10,");
        assert!(Calibration::parse(&falling).expect_err("falling").contains("must rise"));
        assert!(Calibration::parse("").is_err());
    }

    /// Goal: costs put together from parts agree with what real daemons were measured to cost. `stat` sets the
    /// factor and `create` the price of the log, so the test is `unlink`, which had no part in either.
    #[test]
    fn parts_explain_the_whole() {
        let c = Calibration::shipped().expect("the shipped calibration");
        let m = &c.metadata;
        let unlink = m.unlink_requests;
        let ruled = f64::from(unlink[0]) * m.rules_getattr
            + f64::from(unlink[1]) * m.rules_lookup
            + f64::from(unlink[3]) * m.rules_unlink;
        // One request in flight over a Unix socket, as in the profile: what is left of the measured stat.
        let stat_rules =
            f64::from(m.stat_requests[0]) * m.rules_getattr + f64::from(m.stat_requests[1]) * m.rules_lookup;
        let stat_requests: u32 = m.stat_requests.iter().sum();
        let socket = (m.stat_measured / m.in_service - stat_rules) / f64::from(stat_requests);
        let requests: u32 = unlink[..4].iter().sum();
        let predicted = m.in_service * (f64::from(requests) * socket + ruled) + m.log_append;
        let off = predicted / m.unlink_measured - 1.0;
        assert!(off.abs() < 0.10, "predicted {predicted:.1} us, measured {:.1}", m.unlink_measured);
    }
}
