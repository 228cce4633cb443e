//! Names of what is measured: the measuring part gives them, judge and report look for them.

/// Share of a processor that each daemon gets (members: daemons).
pub const PROCESSOR_SHARE: &str = "processor.share";
/// Share of the time in which the control group of a daemon did not hold it back (members: daemons).
pub const PROCESSOR_FREE: &str = "processor.free";
/// The same measurement of every member has this at its end; without it stands all members together.
pub const EACH: &str = ".each";
/// Devices: `device.write`, `device.read`.
pub const DEVICE: &str = "device";
/// Time of a small record on the disk of each metadata server's log (members: metadata servers).
pub const LOG_SYNC: &str = "log.sync.each";
/// Rate of large records there (members: metadata servers).
pub const LOG_WRITE: &str = "log.write.each";
/// What one process could write if it waited for nothing but the logs: `log.write`.
pub const LOG: &str = "log";
/// Share of the time in which the mount's threads were ready to run that they ran (member: the mount).
pub const MOUNT_SHARE: &str = "client.mount.share";
/// Share of the time in which the control group of the mount did not hold it back (member: the mount).
pub const MOUNT_FREE: &str = "client.mount.free";
/// Storage daemons: `storage.write`, `storage.read`.
pub const STORAGE: &str = "storage";
/// Network into and out of all storage daemons: `network.write`, `network.read`.
pub const NETWORK: &str = "network";
/// Bandwidth of every pair of nodes (members: `a -> b`).
pub const NETWORK_PAIRS: &str = "network.bandwidth.each";
/// Bandwidth between the host of the survey and every storage daemon (members: `this host -> b`).
pub const NETWORK_CLIENT: &str = "network.client.each";
/// Delay of every pair of nodes (members: `a -> b`).
pub const NETWORK_DELAYS: &str = "network.latency.each";
/// One client: `client.write`, `client.read`.
pub const CLIENT: &str = "client";
/// All clients, a file per process: `clients.write.n-n`, `clients.read.n-n`.
pub const CLIENTS: &str = "clients";
/// All processes, each with a file of its own.
pub const OWN_FILES: &str = ".n-n";
/// All processes in one file.
pub const ONE_FILE: &str = ".n-1";
pub const WRITE: &str = "write";
pub const READ: &str = "read";
/// Part of the name of all work at random places.
pub const RANDOM: &str = "random";
/// 4 KiB at random places, written.
pub const RANDOM_WRITE: &str = "random-write";
/// 4 KiB at random places, read.
pub const RANDOM_READ: &str = "random-read";
/// Metadata: `metadata.create`, `metadata.stat`, `metadata.remove`.
pub const METADATA: &str = "metadata";
