//! Names of the attributes by which a mount tells of itself to commands.

/// The id of the cluster that is mounted.
pub const CLUSTER: &str = "skep.cluster";
/// On a mount that drops contents (`skep bench net`): 1 on what was made through it, 0 on anything else.
pub const NETBENCH: &str = "skep.netbench";
