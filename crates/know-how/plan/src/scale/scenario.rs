//! What is to be extrapolated: the proportions of the cluster and what its clients do.

use super::calibration::Calibration;
use crate::hardware::METADATA_GROUPS_MAX;
use crate::load::{self, Fault};
use serde::{Deserialize, Serialize};

/// Sizes, proportions and demands. What is not measured stands here, so that it can be changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Numbers of storage servers to look at.
    pub servers: Vec<u32>,
    /// Targets of each.
    pub targets_per_server: u32,
    /// Mounts for each storage server.
    pub clients_per_server: f64,
    /// Metadata servers that the cluster is made for: its shards are dealt out evenly over all their groups.
    pub metadata_servers: u32,
    /// Groups of each (`groups` of metad), with a thread, a log and a core each.
    pub metadata_groups: u32,
    /// Creates per second of a client, on average over all clients.
    pub creates_per_client: f64,
    /// Stats per second of a client, on average over all clients.
    pub stats_per_client: f64,
    /// Processes of one client that do metadata operations when throughput is asked for.
    pub processes_per_client: u32,
    /// Clients whose jobs share a directory below the root.
    pub clients_per_job: u32,
    /// Threads of a mount that hold a connection to each server.
    pub threads_per_client: u32,
    /// Mounts that come and go, per client and day (a job that mounts, a node that restarts).
    pub remounts_per_client_day: f64,
    /// Does somebody write all the time? Then the map moves with the space of the targets.
    pub writing: bool,
    /// Bytes per second of the management server's link, in GB/s.
    pub mgmt_link_gb_s: f64,
    /// The same of a storage server.
    pub server_link_gb_s: f64,
    /// The same of a client.
    pub client_link_gb_s: f64,
    /// Streaming demand of a client in GB/s, on average over all clients.
    pub stream_per_client_gb_s: f64,
    /// Cores of a storage server.
    pub server_cores: u32,
    /// Round trip of a small message between two machines, in microseconds.
    pub round_trip_us: f64,
    /// Streaming write of one target in GB/s.
    pub target_write_gb_s: f64,
    /// Streaming read of one target in GB/s.
    pub target_read_gb_s: f64,
    /// Bytes on a target that is to be rebuilt, in TB.
    pub target_filled_tb: f64,
    /// Share of the others' throughput that a rebuild may take.
    pub rebuild_share: f64,
    /// Targets that are lost with their content, per target and year.
    pub target_losses_per_year: f64,
    /// Lost targets that are written anew at the same time: spares, and streams of what the content comes from.
    pub repairs_at_once: u32,
    /// Time until a metadata server that died runs again (a supervisor's restart, replay), in seconds.
    pub restart_s: f64,
    /// A synced append to a log in microseconds, mgmtd's or a metadata server's; measured on the machine of the
    /// calibration when not given.
    pub log_sync_us: Option<f64>,
    /// When a metadata server's log reaches the disk (`sync` of metad): `interval` or `always`.
    pub metadata_sync: Sync,
    /// At least every so many milliseconds (`sync_interval` of metad), with `interval`.
    pub sync_interval_ms: f64,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            servers: vec![10, 30, 100, 300, 1_000, 3_000, 10_000],
            targets_per_server: 4,
            clients_per_server: 10.0,
            metadata_servers: 1,
            metadata_groups: 1,
            creates_per_client: 1.0,
            stats_per_client: 5.0,
            processes_per_client: 4,
            clients_per_job: 100,
            threads_per_client: 1,
            remounts_per_client_day: 1.0,
            writing: true,
            mgmt_link_gb_s: 11.0,
            server_link_gb_s: 11.0,
            client_link_gb_s: 11.0,
            stream_per_client_gb_s: 0.25,
            server_cores: 32,
            round_trip_us: 30.0,
            target_write_gb_s: 1.2,
            target_read_gb_s: 1.5,
            target_filled_tb: 40.0,
            rebuild_share: 0.3,
            target_losses_per_year: 0.01,
            repairs_at_once: 1,
            restart_s: 5.0,
            log_sync_us: None,
            metadata_sync: Sync::Interval,
            sync_interval_ms: 50.0,
            seed: 1,
        }
    }
}

/// When a metadata server's log reaches the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// On fsync, and after an interval: no change waits for the disk.
    #[default]
    Interval,
    /// Before a change is acknowledged; changes that come meanwhile share the next sync.
    Always,
}

/// Most storage servers of a step.
pub const SERVERS_MAX: u32 = 65_536;
/// Most clients of a step: what one run keeps in memory and comes to an end with.
pub const CLIENTS_MAX: f64 = 1_000_000.0;
pub const METADATA_SERVERS_MAX: u32 = 4_096;
/// Most targets of one server.
pub const TARGETS_PER_SERVER_MAX: u32 = 1_024;
/// Most processes of a client, clients of a job, threads of a mount, cores, and repairs at the same time.
pub const COUNT_MAX: u32 = 65_536;

impl Scenario {
    /// A scenario from TOML; keys that are left out keep their defaults.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_with(text, &[])
    }

    /// The same, with settings (`key = value` in TOML) that stand above those of the text.
    pub fn parse_with(text: &str, settings: &[String]) -> Result<Self, String> {
        let told = |faults: Vec<Fault>| faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n");
        load::read::<Self>("scenario", text).map_err(told)?;
        let mut table: toml::Table = toml::from_str(text).map_err(|e| format!("scenario: {e}"))?;
        for setting in settings {
            let one: toml::Table = toml::from_str(setting)
                .map_err(|_| format!("scenario: `{setting}` is not KEY=VALUE, such as writing=false"))?;
            load::read::<Self>("--set", setting).map_err(told)?;
            table.extend(one);
        }
        let read: Self = table.try_into().map_err(|e| format!("scenario: {e}"))?;
        read.check()?;
        Ok(read)
    }

    /// Every key with its value, as a file to start from.
    pub fn to_text(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|e| format!("scenario: {e}"))
    }

    /// Says what cannot be.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |key: &str, what: &str| Err(format!("scenario: {key} {what}"));
        if self.servers.is_empty() || self.servers.iter().any(|n| *n == 0 || *n > SERVERS_MAX) {
            return wrong("servers", &format!("needs numbers from 1 to {SERVERS_MAX}"));
        }
        let counts = [
            ("targets_per_server", self.targets_per_server, TARGETS_PER_SERVER_MAX),
            ("metadata_servers", self.metadata_servers, METADATA_SERVERS_MAX),
            ("metadata_groups", self.metadata_groups, METADATA_GROUPS_MAX),
            ("processes_per_client", self.processes_per_client, COUNT_MAX),
            ("clients_per_job", self.clients_per_job, COUNT_MAX),
            ("threads_per_client", self.threads_per_client, COUNT_MAX),
            ("server_cores", self.server_cores, COUNT_MAX),
            ("repairs_at_once", self.repairs_at_once, COUNT_MAX),
        ];
        for (key, count, most) in counts {
            if count == 0 || count > most {
                return wrong(key, &format!("must be from 1 to {most}"));
            }
        }
        let above_zero = [
            ("clients_per_server", self.clients_per_server),
            ("mgmt_link_gb_s", self.mgmt_link_gb_s),
            ("server_link_gb_s", self.server_link_gb_s),
            ("client_link_gb_s", self.client_link_gb_s),
            ("target_write_gb_s", self.target_write_gb_s),
            ("target_read_gb_s", self.target_read_gb_s),
            ("rebuild_share", self.rebuild_share),
            ("sync_interval_ms", self.sync_interval_ms),
        ];
        let not_negative = [
            ("creates_per_client", self.creates_per_client),
            ("stats_per_client", self.stats_per_client),
            ("remounts_per_client_day", self.remounts_per_client_day),
            ("stream_per_client_gb_s", self.stream_per_client_gb_s),
            ("round_trip_us", self.round_trip_us),
            ("target_filled_tb", self.target_filled_tb),
            ("target_losses_per_year", self.target_losses_per_year),
            ("restart_s", self.restart_s),
            ("log_sync_us", self.log_sync_us.unwrap_or_default()),
        ];
        for (key, value) in above_zero {
            if !value.is_finite() || value <= 0.0 {
                return wrong(key, "must be above 0");
            }
        }
        for (key, value) in not_negative {
            if !value.is_finite() || value < 0.0 {
                return wrong(key, "must not be negative");
            }
        }
        if self.rebuild_share > 1.0 {
            return wrong("rebuild_share", "is a share: at most 1");
        }
        let largest = self.servers.iter().copied().max().unwrap_or(1);
        if f64::from(largest) * self.clients_per_server > CLIENTS_MAX {
            return wrong(
                "clients_per_server",
                &format!("times {largest} servers is more than {CLIENTS_MAX} clients; take fewer"),
            );
        }
        Ok(())
    }

    /// Microseconds of a synced append.
    pub fn sync_us(&self, calibration: &Calibration) -> f64 {
        self.log_sync_us.unwrap_or(calibration.socket.sync)
    }

    /// The cluster with so many storage servers.
    pub fn cluster(&self, servers: u32) -> Cluster {
        let clients = (f64::from(servers) * self.clients_per_server).round().max(1.0);
        Cluster {
            servers,
            targets: u64::from(servers) * u64::from(self.targets_per_server),
            clients: clients as u64,
            metadata: self.metadata_servers * self.metadata_groups,
        }
    }
}

/// A cluster of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cluster {
    /// Storage servers.
    pub servers: u32,
    /// Targets of all.
    pub targets: u64,
    /// Mounts.
    pub clients: u64,
    /// Groups of all metadata servers: each is a member of the cluster.
    pub metadata: u32,
}

impl Cluster {
    /// Daemons that send heartbeats over the network.
    pub fn daemons(&self) -> u64 {
        u64::from(self.servers) + u64::from(self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: settings stand above the text, and what is printed is what is read.
    #[test]
    fn settings() {
        let read = Scenario::parse_with("seed = 3\nwriting = true", &["writing=false".into()]);
        let read = read.expect("a scenario");
        assert_eq!(read, Scenario { seed: 3, writing: false, ..Scenario::default() });
        assert_eq!(Scenario::parse(&read.to_text().expect("text")), Ok(read));
        let error = Scenario::parse_with("", &["writing".into()]).expect_err("no value");
        assert!(error.contains("KEY=VALUE"), "{error}");
    }

    /// Goal: files give what they name and leave the rest; nonsense is refused with the name of the key.
    #[test]
    fn parse() {
        let read = Scenario::parse("servers = [7]\nwriting = false\n").expect("a scenario");
        assert_eq!(read, Scenario { servers: vec![7], writing: false, ..Scenario::default() });
        for (text, key) in [
            ("servers = []", "servers"),
            ("servers = [0]", "servers"),
            ("targets_per_server = 0", "targets_per_server"),
            ("clients_per_server = -1.0", "clients_per_server"),
            ("clients_per_server = nan", "clients_per_server"),
            ("rebuild_share = 1.5", "rebuild_share"),
            ("repairs_at_once = 0", "repairs_at_once"),
            ("metadata_groups = 17", "metadata_groups"),
            ("clients_per_server = 1e9", "clients_per_server"),
            ("severs = [1]", "severs"),
        ] {
            let error = Scenario::parse(text).expect_err(text);
            assert!(error.contains(key), "{text}: {error}");
        }
    }
}
