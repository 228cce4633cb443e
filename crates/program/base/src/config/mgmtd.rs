//! Configuration of `skep mgmtd`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::access::Process;
use super::address::{HTTP_PORT, MGMTD_PORT, loopback, maybe_address, maybe_path};
use super::service::{Service, Wrong};
use crate::units::Period;

/// Highest `max_sessions`: what the session table may grow to.
pub const SESSIONS_MAX: u32 = 1 << 20;
/// Highest `max_nodes`.
pub const NODES_MAX: u32 = 1 << 16;
/// Highest `max_targets`.
pub const TARGETS_MAX: u32 = 1 << 20;
/// Highest `max_pools`.
pub const POOLS_MAX: u32 = 1 << 16;

/// Every key of `mgmtd.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MgmtdConfig {
    /// Keys that every service has.
    #[serde(flatten)]
    pub process: Process,
    /// TCP addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Unix socket to listen on as well.
    #[serde(with = "maybe_path")]
    pub unix_socket: Option<PathBuf>,
    /// Where metrics and the API are shown over HTTP.
    #[serde(with = "maybe_address")]
    pub http: Option<SocketAddr>,
    /// Interfaces whose addresses others are told, best first; empty: all.
    pub interfaces: Vec<String>,
    /// Where the registry is kept.
    pub state_dir: PathBuf,
    /// Metadata shards of a new cluster; fixed once it is formatted.
    pub shards: u32,
    /// Metadata servers over which the shards of a new cluster are spread, once all of them have registered. With more
    /// than one, each directory in the root has a shard of its own: between two of them mv copies, and ln fails (EXDEV).
    pub metas: u32,
    /// Silence after which a node is probably offline.
    pub node_probably_offline: Period,
    /// Silence after which a node is offline.
    pub node_offline: Period,
    /// Silence after which a client is evicted and fenced.
    pub session_timeout: Period,
    /// Most sessions at once.
    pub max_sessions: u32,
    pub max_nodes: u32,
    pub max_targets: u32,
    /// Most storage pools.
    pub max_pools: u32,
}

impl Default for MgmtdConfig {
    fn default() -> Self {
        Self {
            process: Process::default(),
            listen: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), MGMTD_PORT)],
            unix_socket: None,
            http: loopback(HTTP_PORT),
            interfaces: Vec::new(),
            state_dir: PathBuf::from("/var/lib/skep/mgmtd"),
            shards: 64,
            metas: 1,
            node_probably_offline: Period::secs(5),
            node_offline: Period::secs(15),
            session_timeout: Period::secs(60),
            max_sessions: 65_536,
            max_nodes: 4_096,
            max_targets: 65_536,
            max_pools: 1_024,
        }
    }
}

impl Service for MgmtdConfig {
    const NAME: &'static str = "mgmtd";
    const SHIPPED: &'static str = include_str!("../../config/mgmtd.toml");

    fn check(&self, wrong: &mut Wrong) {
        self.process.check(wrong);
        wrong.listening(&self.listen, self.unix_socket.as_ref());
        wrong.directory("state_dir", &self.state_dir);
        wrong.number("shards", self.shards, 1..=u32::from(skep_types::limits::SHARDS_MAX));
        wrong.power_of_two("shards", u64::from(self.shards), |shards| shards.to_string());
        wrong.number("metas", self.metas, 1..=self.shards);
        wrong.number("max_sessions", self.max_sessions, 1..=SESSIONS_MAX);
        wrong.number("max_nodes", self.max_nodes, 1..=NODES_MAX);
        wrong.number("max_targets", self.max_targets, 1..=TARGETS_MAX);
        wrong.number("max_pools", self.max_pools, 1..=POOLS_MAX);
        if self.node_probably_offline.is_zero() {
            let remedy = "set a few heartbeats, such as \"5s\"";
            wrong.key("node_probably_offline", "is 0, so no node could ever be online", remedy);
        }
        if self.node_offline <= self.node_probably_offline {
            let remedy = format!("set more than \"{}\"", self.node_probably_offline);
            wrong.key("node_offline", "is not longer than node_probably_offline", &remedy);
        }
        if self.session_timeout <= self.node_probably_offline {
            let remedy = format!("set more than \"{}\"", self.node_probably_offline);
            wrong.key("session_timeout", "is not longer than node_probably_offline", &remedy);
        }
    }
}
