//! Limits of one cluster, defaults of `mgmtd.toml`.

/// Most registered daemons.
pub const NODES_MAX: usize = 4_096;
/// Most storage targets.
pub const TARGETS_MAX: usize = 65_536;
/// Most mounts at a time.
pub const SESSIONS_MAX: usize = 65_536;
/// Evictions that are remembered. A client that was evicted before the oldest remembered one is
/// still refused, because it is not among the living sessions either.
pub const FENCES_MAX: usize = 65_536;
/// Orderly ends of sessions that are told to metadata servers.
pub const CLOSED_MAX: usize = 1_024;
/// Longest host name or mount point shown to people.
pub const TEXT_MAX: usize = 1_024;
/// A target's space enters the map when it moved by this share of the whole (1/20) ...
pub const CAPACITY_STEP: u64 = 20;
/// ... or when this many milliseconds passed since the map was last told.
pub const CAPACITY_EVERY_MS: u64 = 10_000;
/// A node silent for this many milliseconds is probably offline ...
pub const PROBABLY_OFFLINE_MS: u64 = 5_000;
/// ... and for this many, offline.
pub const OFFLINE_MS: u64 = 15_000;
/// A session silent for this many milliseconds is evicted.
pub const SESSION_TIMEOUT_MS: u64 = 60_000;
