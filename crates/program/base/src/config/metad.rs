//! Configuration of `skep metad`.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skep_types::limits;

use super::access::{Membership, Process};
use super::address::{HTTP_PORT, METAD_PORT, loopback, maybe_address, maybe_path};
use super::service::{Service, Wrong};
use crate::units::{Period, Size};

/// Longest `sync_interval`: what a power loss may take is bounded by it.
pub const SYNC_INTERVAL_MAX: Period = Period::secs(60);
/// Smallest `cache_size` the row store works with.
pub const CACHE_MIN: Size = Size::mib(1);
/// Smallest `checkpoint_log`: shorter ones would checkpoint without pause.
pub const CHECKPOINT_LOG_MIN: Size = Size::mib(1);
/// `lease_time`: mounts renew once a second. A change waits for so long for one that is silent; and after a restart, whatever
/// is set then, for the longest that may have been.
const LEASE_TIME: RangeInclusive<Period> = Period::secs(2)..=Period::millis(skep_meta::limit::LEASE_MS_MAX);
/// Longest `grace`: nobody gets a new open or lock while it lasts.
pub const GRACE_MAX: Period = Period::secs(600);
/// Highest `max_connections` of one daemon.
pub const CONNECTIONS_MAX: u32 = 1 << 16;
/// Highest `max_opens_per_client` and `max_opens`.
pub const OPENS_MAX: u32 = 1 << 24;

/// Most groups of one server.
pub const GROUPS_MAX: u32 = 16;
/// The ports of a group are so many further than those of the one before: behind all that the services of a machine have by
/// default.
const GROUP_PORTS: u16 = 100;

/// A port of a group: that of the first one, or further. 0 is any free one, for each.
pub fn port_of_group(first: u16, number: u32) -> u16 {
    if first == 0 { 0 } else { first + GROUP_PORTS * number as u16 }
}

/// When the command log is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// On `fsync`, and at least every `sync_interval`.
    Interval,
    /// Before any change is acknowledged.
    Always,
}

/// How the targets of a new file are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chooser {
    /// Weighted by free space and failure domain.
    Balanced,
    /// One of each part of the ring of all targets.
    Randomized,
    /// One after the other.
    RoundRobin,
    /// The same, shuffled.
    RandomRobin,
    /// One of each failure domain in turn.
    RandomInterNode,
}

/// Over how many targets a new file is striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeTargets {
    /// More as the file grows: 1, then 4, then all.
    Progressive,
    /// As many from the first byte.
    Fixed(u32),
}

impl Serialize for StripeTargets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Progressive => serializer.serialize_str("progressive"),
            Self::Fixed(count) => serializer.serialize_u32(*count),
        }
    }
}

struct StripeTargetsVisitor;

impl Visitor<'_> for StripeTargetsVisitor {
    type Value = StripeTargets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"progressive\" or a number of targets from 1 to {}", limits::TARGETS_MAX)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StripeTargets, E> {
        match text.parse::<i64>() {
            Ok(count) => self.visit_i64(count),
            Err(_) if text == "progressive" => Ok(StripeTargets::Progressive),
            Err(_) => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<StripeTargets, E> {
        match u32::try_from(count) {
            Ok(small @ 1..) if small as usize <= limits::TARGETS_MAX => Ok(StripeTargets::Fixed(small)),
            _ => Err(E::invalid_value(de::Unexpected::Signed(count), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for StripeTargets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StripeTargetsVisitor)
    }
}

/// Every key of `metad.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetadConfig {
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
    /// Where the command log and the rows are kept.
    pub state_dir: PathBuf,
    /// Groups of shards, each on a processor of its own.
    pub groups: u32,
    /// When the command log is synced.
    pub sync: Sync,
    /// Longest time an acknowledged change waits for its sync.
    pub sync_interval: Period,
    /// Memory for rows.
    pub cache_size: Size,
    /// Length of log after which a checkpoint is taken.
    pub checkpoint_log: Size,
    /// Time that clients have to reclaim opens and locks after a restart.
    pub grace: Period,
    /// So long a mount uses what it was lent without being heard; 0: nothing is lent.
    pub lease_time: Period,
    /// Largest file kept in the metadata.
    pub inline_limit: Size,
    /// Chunk size of new files where no directory says otherwise.
    pub chunk_size: Size,
    /// Striping of new files where no directory says otherwise.
    pub stripe_targets: StripeTargets,
    /// How targets are chosen.
    pub chooser: Chooser,
    /// Most open files of one client on this daemon.
    pub max_opens_per_client: u32,
    /// Most files that all clients may have open together.
    pub max_opens: u32,
    /// Most connections at once.
    pub max_connections: u32,
}

impl Default for MetadConfig {
    fn default() -> Self {
        Self {
            process: Process::default(),
            membership: Membership::default(),
            alias: String::new(),
            domain: String::new(),
            listen: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), METAD_PORT)],
            unix_socket: None,
            http: loopback(HTTP_PORT + 1),
            interfaces: Vec::new(),
            state_dir: PathBuf::from("/var/lib/skep/metad"),
            groups: 1,
            sync: Sync::Interval,
            sync_interval: Period::millis(50),
            cache_size: Size::mib(256),
            checkpoint_log: Size::mib(64),
            grace: Period::secs(75),
            lease_time: Period::secs(4),
            inline_limit: Size(limits::INLINE_DEFAULT as u64),
            chunk_size: Size(limits::CHUNK_DEFAULT as u64),
            stripe_targets: StripeTargets::Progressive,
            chooser: Chooser::Balanced,
            max_opens_per_client: 1_048_576,
            max_opens: skep_meta::limit::OPENS_MAX as u32,
            max_connections: 4_096,
        }
    }
}

impl MetadConfig {
    fn check_groups(&self, wrong: &mut Wrong) {
        wrong.number("groups", self.groups, 1..=GROUPS_MAX);
        let last = u64::from(self.groups.saturating_sub(1)) * u64::from(GROUP_PORTS);
        let ports = self.listen.iter().chain(&self.http).map(SocketAddr::port);
        if let Some(port) = ports.max().filter(|port| u64::from(*port) + last > u64::from(u16::MAX)) {
            let what = format!("port {port} leaves no room for {} groups", self.groups);
            let remedy = format!("each group takes a port {GROUP_PORTS} further; choose a lower one");
            wrong.key("listen", &what, &remedy);
        }
        let least = Size(CACHE_MIN.bytes() * u64::from(self.groups.max(1)));
        wrong.size("cache_size", self.cache_size, least..=Size(u64::MAX));
    }

    /// What is wrong with `grace` where mgmtd evicts silent clients after `session_timeout`.
    pub fn short_grace(&self, session_timeout: Period) -> Option<String> {
        let fits = self.grace > session_timeout;
        (!fits).then(|| {
            format!(
                "grace = \"{}\" of metad is not longer than session_timeout = \"{session_timeout}\" of mgmtd: a \
                 client that was cut off could lose its locks without being evicted; make grace longer",
                self.grace
            )
        })
    }
}

impl Service for MetadConfig {
    const NAME: &'static str = "metad";
    const SHIPPED: &'static str = include_str!("../../config/metad.toml");

    fn check(&self, wrong: &mut Wrong) {
        self.process.check(wrong);
        self.membership.check(wrong);
        wrong.alias(&self.alias);
        wrong.domain(&self.domain);
        wrong.listening(&self.listen, self.unix_socket.as_ref());
        wrong.directory("state_dir", &self.state_dir);
        self.check_groups(wrong);
        if self.sync_interval.is_zero() {
            wrong.key("sync_interval", "is 0", "for a sync before every answer set sync = \"always\"");
        }
        if self.sync_interval > SYNC_INTERVAL_MAX {
            wrong.key("sync_interval", "is too long", &format!("set at most \"{SYNC_INTERVAL_MAX}\""));
        }
        if self.grace > GRACE_MAX {
            wrong.key("grace", "is too long", &format!("set at most \"{GRACE_MAX}\""));
        }
        if !(self.lease_time.is_zero() || LEASE_TIME.contains(&self.lease_time)) {
            let (least, most) = (LEASE_TIME.start(), LEASE_TIME.end());
            wrong.key(
                "lease_time",
                "is out of range",
                &format!("set \"{least}\" to \"{most}\", or \"0s\" for none"),
            );
        }
        wrong.size("checkpoint_log", self.checkpoint_log, CHECKPOINT_LOG_MIN..=Size(u64::MAX));
        wrong.size("inline_limit", self.inline_limit, Size(0)..=Size(u64::from(limits::INLINE_MAX)));
        let chunks = Size(u64::from(limits::CHUNK_MIN))..=Size(u64::from(limits::CHUNK_MAX));
        wrong.size("chunk_size", self.chunk_size, chunks);
        wrong.power_of_two("chunk_size", self.chunk_size.bytes(), |size| format!("\"{}\"", Size(size)));
        wrong.number("max_opens_per_client", self.max_opens_per_client, 1..=OPENS_MAX);
        wrong.number("max_opens", self.max_opens, 1..=OPENS_MAX);
        wrong.number("max_connections", self.max_connections, 1..=CONNECTIONS_MAX);
    }
}
