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
/// Orderly ends of sessions that are remembered. Of earlier ones servers are told the highest id that was ever given: what
/// does not live below it has ended.
pub const CLOSED_MAX: usize = 1_024;
/// Evictions that are listed for people.
pub const EVICTIONS_MAX: usize = 1_024;
/// Seconds for which they are.
pub const EVICTION_LISTED_S: u64 = 24 * 60 * 60;
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
/// Most storage pools, the default one among them.
pub const POOLS_MAX: usize = 1_024;
/// Removed targets that are remembered, so that their daemons are told. One that was removed before the
/// oldest remembered one is refused all the same, as a disk that this cluster does not know.
pub const REMOVED_MAX: usize = 65_536;
/// Starts of the management service that are remembered. A daemon that saw nothing newer than the oldest of them is
/// believed that it was away for long.
pub const STARTS_MAX: usize = 4_096;
/// A metadata server's log index is written down when it moved, at most this often (milliseconds).
pub const INDEX_EVERY_MS: u64 = 10_000;
/// Times that older copies of a shard can be put back: the era is part of the generations that it gives.
pub const ERAS_MAX: u16 = 255;
/// What an older registry that was put back leaves out of the ids of clients, of fence epochs, of its changes, of the epochs of
/// shards (metadata servers tell by it that it was: `EPOCH_HISTORY_BITS` of their rules) ...
pub const RESTORED_JUMP: u64 = 1 << 32;
/// ... and of the ids of nodes, targets and pools: more than anybody gave since the copy was made.
pub const RESTORED_JUMP_SMALL: u32 = 1 << 16;
/// Longest name of a failure domain.
pub const DOMAIN_MAX: usize = 64;

/// A target with less than this many bytes free is low ...
pub const BYTES_LOW: u64 = 512 << 30;
/// ... and with less than this many in emergency, where its pool does not say otherwise.
pub const BYTES_EMERGENCY: u64 = 10 << 30;
/// A target with fewer free inodes than this is low ...
pub const INODES_LOW: u64 = 10_000_000;
/// ... and with fewer than this in emergency, where its pool does not say otherwise.
pub const INODES_EMERGENCY: u64 = 1_000_000;
/// The default limits are never more than this share of a target (a tenth): a small disk is not low
/// all its life.
pub const LOW_SHARE: u64 = 10;
/// As [`LOW_SHARE`], for emergency.
pub const EMERGENCY_SHARE: u64 = 50;
/// Times the static limit: default of the dynamic limits.
pub const DYNAMIC_FACTOR: u64 = 2;
/// A target comes back from a fuller class once its free space is above the limit by this share of it
/// (an eighth), so that one at the limit does not move the map to and fro.
pub const RETURN_SHARE: u64 = 8;
/// Removals from the map that are remembered: who holds a map from before the oldest of them is told the whole.
pub const GONE_MAX: usize = 1_024;
