//! The description of a system: what stands in the TOML file that `skep plan` reads.
//!
//! Numbers of machines, drives and links belong here; what a component delivers belongs to the
//! [catalogue](crate::catalogue) and can be overridden under `[catalogue]`.

use crate::raid::Raid;
use crate::units::{Rate, Size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most groups of shards in one metadata server.
pub const METADATA_GROUPS_MAX: u32 = 16;

/// A whole system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// What it is called.
    pub name: String,
    /// Where the description comes from, what it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Set of component rates to use; see `skep plan example` and the manual page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The file system software, whose costs per operation and per connection count.
    #[serde(default)]
    pub software: Software,
    /// Skep: metadata servers that the cluster is made for, among which its shards are dealt out evenly.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub metadata_servers: u32,
    /// Skep: groups of shards in each of them (`groups` of metad), a thread each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub metadata_groups: u32,
    /// Skep: files up to this size lie in the metadata (`inline_limit` of metad); 8 KiB, the most, when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_limit: Option<Size>,
    /// Kinds of servers.
    pub servers: Vec<Server>,
    /// The machines that use the system.
    pub clients: Clients,
    /// How files are cut.
    #[serde(default)]
    pub striping: Striping,
    /// What is to be stored; without it figures are those of files without small contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// Between servers and clients.
    #[serde(default)]
    pub network: Network,
    /// Buffers of connections; the software's own when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// Component rates that differ from the catalogue's.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub catalogue: Overrides,
    /// What things cost; without it no cost is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            preset: None,
            software: Software::default(),
            metadata_servers: 1,
            metadata_groups: 1,
            inline_limit: None,
            servers: Vec::new(),
            clients: Clients::default(),
            striping: Striping::default(),
            files: None,
            network: Network::default(),
            connections: None,
            catalogue: Overrides::default(),
            prices: None,
        }
    }
}

/// File system software.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Software {
    /// This one.
    #[default]
    Skep,
    /// BeeGFS, as measured in the documents of the catalogue.
    Beegfs,
    /// Lustre, as measured in the documents of the catalogue.
    Lustre,
}

/// What a server does, or a target holds, or a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Management service.
    Mgmt,
    /// Metadata.
    Meta,
    /// File contents.
    Storage,
}

/// Some servers of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// What this kind is called.
    pub name: String,
    /// How many of them.
    #[serde(default = "one")]
    pub count: u32,
    /// What they do.
    pub roles: Vec<Role>,
    /// Processor sockets.
    #[serde(default = "one")]
    pub sockets: u32,
    /// Cores of one socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Cores of the whole server that serve metadata, when others do not; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_cores: Option<u32>,
    /// Main memory.
    pub memory: Size,
    /// Links to the clients.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// RAID controllers or host bus adapters between drives and processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<Controller>,
    /// PCIe switches between drives and processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pcie_switches: Vec<PcieSwitch>,
    /// Targets, in groups that are alike.
    #[serde(default)]
    pub targets: Vec<TargetGroup>,
}

/// Some links of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Name in the catalogue: `10gbe`, `25gbe`, `100gbe`, `fdr`, `edr`, `hdr`...
    pub kind: String,
    /// How many of them in one server.
    #[serde(default = "one")]
    pub count: u32,
    /// What they carry; everything the server does when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// The slot of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
}

/// A PCIe connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// 1 to 6.
    pub generation: u8,
    /// 1, 2, 4, 8, 16 or 32.
    pub lanes: u32,
}

/// Some controllers of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// What target groups call it.
    pub name: String,
    /// Name in the catalogue.
    #[serde(default = "controller")]
    pub kind: String,
    /// How many of them in one server; the targets are spread evenly over them.
    #[serde(default = "one")]
    pub count: u32,
    /// The slot of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
    /// One of them as measured with these drives, reading; replaces the catalogue's rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_read: Option<Rate>,
    /// The same, writing: parity costs some controllers more than passing bytes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_write: Option<Rate>,
}

/// Some PCIe switches of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PcieSwitch {
    /// What target groups call it.
    pub name: String,
    /// How many of them in one server; the targets are spread evenly over them.
    #[serde(default = "one")]
    pub count: u32,
    /// From each switch to the processor.
    pub uplink: Pcie,
}

/// Some targets that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TargetGroup {
    /// `meta` or `storage`.
    pub role: Role,
    /// How many targets of one server.
    #[serde(default = "one")]
    pub count: u32,
    /// Drive: name in the catalogue (`hdd`, `ssd`, `nvme`, `p5600`...).
    pub drive: String,
    /// Drives of one target, parity included, spares not.
    pub drives: u32,
    /// Size of one drive.
    pub size: Size,
    /// How they are combined.
    pub raid: Raid,
    /// Hot spares of the whole group in one server.
    #[serde(default)]
    pub spares: u32,
    /// Local file system.
    #[serde(default)]
    pub file_system: FileSystem,
    /// Storage pool.
    #[serde(default = "default_pool")]
    pub pool: String,
    /// Controller of this server that the drives hang on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// PCIe switch of this server that the drives hang on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<String>,
    /// PCIe connection of each drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
    /// One target as measured, reading (`skep bench storage`); replaces drives and parity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_read: Option<Rate>,
    /// One target as measured, writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_write: Option<Rate>,
    /// Bytes of metadata target for one inode (`mkfs.ext4 -i`); metadata targets on ext4 or ldiskfs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_inode: Option<u64>,
    /// Bytes of one inode (`mkfs.ext4 -I`); metadata targets on ext4 or ldiskfs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode_size: Option<u64>,
}

/// Local file systems below a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// XFS.
    #[default]
    Xfs,
    /// ext4.
    Ext4,
    /// ZFS; its RAID levels are `raidz1` to `raidz3`.
    Zfs,
    /// ldiskfs, the ext4 of Lustre.
    Ldiskfs,
}

/// The machines that use the system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// How many.
    pub count: u32,
    /// Kind of link, in the catalogue.
    pub nic: String,
    /// Links of one client.
    #[serde(default = "one")]
    pub nics: u32,
    /// Cores of one client, which its mount and its programs share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Main memory of one client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// What one client moves at most, when less than its links (one mount, measured).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Rate>,
}

/// The files that are to be stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// How many.
    pub count: f64,
    /// Bytes of one on average.
    pub mean_size: Size,
    /// Part of them that is no larger than the inline limit, 0 to 1; when not given all of them or none, by the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_part: Option<f64>,
    /// Bytes of one of those on average; the mean of all, or the limit where that is less, when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_size: Option<Size>,
}

/// How files are cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Striping {
    /// Bytes on one target before the next.
    pub chunk: Size,
    /// Targets of one file.
    pub targets: u32,
    /// Copies of every chunk: 1 is none, 2 a mirror pair.
    pub copies: u32,
}

impl Default for Striping {
    fn default() -> Self {
        Self { chunk: Size(1 << 20), targets: 4, copies: 1 }
    }
}

/// Between servers and clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// 3 means that a third of the servers' links passes at the same time; 1 is non-blocking.
    pub oversubscription: f64,
    /// What the fabric moves in one direction, when that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Rate>,
}

impl Default for Network {
    fn default() -> Self {
        Self { oversubscription: 1.0, fabric: None }
    }
}

/// Buffers of connections between one client and one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Connections {
    /// Bytes of one buffer (`connRDMABufSize`).
    pub buffer_size: Size,
    /// Buffers of one connection in one direction (`connRDMABufNum`).
    pub buffers: u32,
    /// Connections of one client to one server (`connMaxInternodeNum`).
    pub per_client: u32,
}

/// Component rates that differ from the catalogue's, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Overrides {
    /// Drives.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drives: BTreeMap<String, DriveOverride>,
    /// Links: rate of one in one direction.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nics: BTreeMap<String, Rate>,
    /// Controllers: rate of one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub controllers: BTreeMap<String, Rate>,
    /// What one core copies in memory, by which RAID in software is reckoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_copy: Option<Rate>,
    /// Part of the limiting component's rate that programs see when writing, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_efficiency: Option<f64>,
    /// The same when reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_efficiency: Option<f64>,
}

impl Overrides {
    /// Nothing is overridden.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One drive; what is not given comes from the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DriveOverride {
    /// Sequential reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Rate>,
    /// Sequential writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Rate>,
    /// Random 4 KiB reads per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<f64>,
    /// Random 4 KiB writes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<f64>,
}

/// What things cost, by name; what has no price counts as free and is named.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// For display only.
    pub currency: String,
    /// One server without drives, links and controllers, by name of its kind.
    pub servers: BTreeMap<String, f64>,
    /// One drive, by name and size as the target group writes them: `"p5600"`, or `"p5600 3.2 TB"`.
    pub drives: BTreeMap<String, f64>,
    /// One link, by kind.
    pub nics: BTreeMap<String, f64>,
    /// One controller, by kind.
    pub controllers: BTreeMap<String, f64>,
    /// Switches and cables together.
    pub network: f64,
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn controller() -> String {
    "controller".to_owned()
}

fn default_pool() -> String {
    "default".to_owned()
}
