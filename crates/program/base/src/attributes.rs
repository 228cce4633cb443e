//! Names of the attributes by which a mount tells of itself to commands.

/// The id of the cluster that is mounted.
pub const CLUSTER: &str = "skep.cluster";
/// Where the network is measured without the disks, as JSON; set on a directory: for how many milliseconds more.
pub const NETBENCH: &str = "skep.netbench";
/// 1 on what was made, through this mount, in a directory that is measured in; 0 on anything else.
pub const NETBENCH_MARK: &str = "skep.netbench.mark";
