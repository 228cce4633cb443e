//! Configuration of `skep storaged`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use skep_types::limits;

use super::access::{Membership, Process};
use super::address::{HTTP_PORT, STORAGED_PORT, loopback, maybe_address, maybe_path};
use super::metad::CONNECTIONS_MAX;
use super::service::{Service, Wrong};
use crate::units::Size;

/// Most targets of one daemon.
pub const TARGETS_PER_DAEMON_MAX: usize = 256;
/// Smallest `max_request`: one chunk of the smallest size.
pub const REQUEST_MIN: Size = Size(limits::CHUNK_MIN as u64);

/// Every key of `storaged.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoragedConfig {
    /// Keys that every service has.
    #[serde(flatten)]
    pub process: Process,
    /// How it reaches the cluster.
    #[serde(flatten)]
    pub membership: Membership,
    /// Name of this node; empty: the host name.
    pub alias: String,
    /// What fails together with this node; empty: its machine.
    pub domain: String,
    /// TCP addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Unix socket to listen on as well.
    #[serde(with = "maybe_path")]
    pub unix_socket: Option<PathBuf>,
    /// Where metrics are shown over HTTP.
    #[serde(with = "maybe_address")]
    pub http: Option<SocketAddr>,
    /// Interfaces whose addresses others are told, best first; empty: all.
    pub interfaces: Vec<String>,
    /// Where the daemon keeps what belongs to no target.
    pub state_dir: PathBuf,
    /// Target directories.
    pub targets: Vec<PathBuf>,
    /// Most connections at once.
    pub max_connections: u32,
    /// Largest payload of one request.
    pub max_request: Size,
    /// Sync every write before it is acknowledged.
    pub sync_on_write: bool,
    /// Space kept free on every target.
    pub reserve: Size,
}

impl Default for StoragedConfig {
    fn default() -> Self {
        Self {
            process: Process::default(),
            membership: Membership::default(),
            alias: String::new(),
            domain: String::new(),
            listen: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), STORAGED_PORT)],
            unix_socket: None,
            http: loopback(HTTP_PORT + 2),
            interfaces: Vec::new(),
            state_dir: PathBuf::from("/var/lib/skep/storaged"),
            targets: Vec::new(),
            max_connections: 4_096,
            max_request: Size(limits::PAYLOAD_MAX as u64),
            sync_on_write: false,
            reserve: Size::mib(64),
        }
    }
}

impl Service for StoragedConfig {
    const NAME: &'static str = "storaged";
    const SHIPPED: &'static str = include_str!("../../config/storaged.toml");

    fn check(&self, wrong: &mut Wrong) {
        self.process.check(wrong);
        self.membership.check(wrong);
        wrong.alias(&self.alias);
        wrong.domain(&self.domain);
        wrong.listening(&self.listen, self.unix_socket.as_ref());
        wrong.directory("state_dir", &self.state_dir);
        wrong.number("max_connections", self.max_connections, 1..=CONNECTIONS_MAX);
        wrong.size("max_request", self.max_request, REQUEST_MIN..=Size(limits::PAYLOAD_MAX as u64));
        if self.targets.is_empty() {
            let remedy = "list at least one target directory, such as targets = [\"/data/skep0\"]";
            wrong.key("targets", "is empty", remedy);
        }
        if self.targets.len() > TARGETS_PER_DAEMON_MAX {
            let remedy = format!("leave at most {TARGETS_PER_DAEMON_MAX}, start another daemon for the rest");
            wrong.key("targets", "lists too many directories", &remedy);
        }
        for (i, target) in self.targets.iter().enumerate() {
            wrong.directory("targets", target);
            if self.targets[..i].contains(target) {
                let what = format!("lists {} twice", target.display());
                wrong.key("targets", &what, "leave it once");
            }
        }
    }
}
