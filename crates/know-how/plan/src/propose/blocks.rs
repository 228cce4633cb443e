//! Building blocks: servers as they are bought, and systems made of a number of them.

use super::ClientSide;
use super::requirements::{Availability, KINDS, Kind, Models, Requirements, Servers};
use crate::catalogue::{Catalogue, pcie};
use crate::forward::{Direction, client};
use crate::hardware::{
    Clients, Controller, FileSystem, Hardware, METADATA_GROUPS_MAX, Network, Nic, Pcie, Prices, Role, Server,
    Software, Striping, TargetGroup,
};
use crate::raid::Raid;
use crate::units::{Rate, Size};

/// Targets of one file where there are enough.
const STRIPE: u32 = 4;
/// Bytes of one chunk.
const CHUNK: u64 = 1 << 20;
/// Links of a server are sought among these, the slowest first.
const LINKS: [(&str, u32); 7] =
    [("25gbe", 1), ("25gbe", 2), ("100gbe", 1), ("100gbe", 2), ("200gbe", 2), ("400gbe", 2), ("400gbe", 4)];
/// Pairs of drives for names in one server at most.
pub const PAIRS_MAX: u32 = 8;
/// Cores of a combined server that serve metadata.
const META_CORES: u32 = 8;
/// Cores of a server for names alone.
const METADATA_CORES: u32 = 16;
/// Clients when nobody says how many: as many as carry the throughput, and at least these.
const CLIENTS_LEAST: f64 = 16.0;

const TB: u64 = 1_000_000_000_000;
const GB: u64 = 1_000_000_000;

/// A server for contents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    /// What it is called; prices name it too.
    pub name: &'static str,
    /// Its drives.
    pub kind: Kind,
    /// How many of them.
    pub slots: u32,
    /// Sockets and cores of each.
    pub cores: (u32, u32),
    pub memory_gib: u64,
    /// Controllers or host bus adapters; none where drives hang on PCIe.
    pub controllers: u32,
    /// Sizes of drives that are sold for it.
    pub sizes: &'static [u64],
    /// What it is good at.
    pub why: &'static str,
}

/// All blocks, two for each kind of drive.
pub const BLOCKS: [Block; 6] = [
    Block {
        name: "hdd-60",
        kind: Kind::Hdd,
        slots: 60,
        cores: (2, 16),
        memory_gib: 256,
        controllers: 4,
        sizes: &[8 * TB, 12 * TB, 16 * TB, 20 * TB, 24 * TB],
        why: "60 hard disks behind four controllers: the least per TB, and streams",
    },
    Block {
        name: "hdd-24",
        kind: Kind::Hdd,
        slots: 24,
        cores: (1, 16),
        memory_gib: 128,
        controllers: 1,
        sizes: &[8 * TB, 12 * TB, 16 * TB, 20 * TB, 24 * TB],
        why: "24 hard disks in a small server: less is lost with one, and it grows in small steps",
    },
    Block {
        name: "ssd-24",
        kind: Kind::Ssd,
        slots: 24,
        cores: (2, 16),
        memory_gib: 256,
        controllers: 4,
        sizes: &[1_920 * GB, 3_840 * GB, 7_680 * GB, 15_360 * GB],
        why: "24 SSDs behind four controllers: small records without seeking, hot-swap as disks have it",
    },
    Block {
        name: "ssd-12",
        kind: Kind::Ssd,
        slots: 12,
        cores: (1, 16),
        memory_gib: 128,
        controllers: 2,
        sizes: &[1_920 * GB, 3_840 * GB, 7_680 * GB, 15_360 * GB],
        why: "12 SSDs in a small server: less is lost with one, and it grows in small steps",
    },
    Block {
        name: "nvme-24",
        kind: Kind::Nvme,
        slots: 24,
        cores: (2, 32),
        memory_gib: 512,
        controllers: 0,
        sizes: &[1_600 * GB, 3_200 * GB, 6_400 * GB, 12_800 * GB, 15_360 * GB],
        why: "24 NVMe drives on PCIe: the most GB/s and IOPS in a server",
    },
    Block {
        name: "nvme-12",
        kind: Kind::Nvme,
        slots: 12,
        cores: (1, 32),
        memory_gib: 256,
        controllers: 0,
        sizes: &[1_600 * GB, 3_200 * GB, 6_400 * GB, 12_800 * GB, 15_360 * GB],
        why: "12 NVMe drives on PCIe: links keep up with the drives more easily than with 24",
    },
];

/// Name of the server for names alone; prices name it too.
pub const METADATA: &str = "metadata";

/// How many of what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// Servers for contents.
    pub storage: u32,
    /// Servers that hold names: of those for contents when combined. Of other software than Skep all combined ones do.
    pub names: u32,
    /// Groups of shards in each of them.
    pub groups: u32,
    /// Pairs of drives for names in each server that holds some.
    pub pairs: u32,
    /// Bytes of a drive for contents.
    pub size: u64,
    /// Bytes of a drive for names.
    pub names_size: u64,
}

/// RAID of the groups for contents, and the drives of one where slots do not set the number.
pub fn grouping(block: &Block, requirements: &Requirements) -> (Raid, u32) {
    if requirements.availability != Availability::Raid {
        return (Raid::None, 1);
    }
    match block.kind {
        Kind::Hdd if requirements.write_iops.is_none() => (Raid::Raid6, 12),
        Kind::Hdd | Kind::Ssd => (Raid::Raid6, 6),
        Kind::Nvme => (Raid::Raidz2, 6),
    }
}

/// Why the groups are as they are, with so many drives.
pub fn why_grouped(block: &Block, requirements: &Requirements, drives: u32) -> String {
    match (requirements.availability, block.kind) {
        (Availability::Mirror, _) => "a target for each drive; the copy is on another server".to_owned(),
        (Availability::None, _) => "a target for each drive, nothing is protected: scratch space".to_owned(),
        (Availability::Raid, Kind::Hdd) if requirements.write_iops.is_none() => {
            format!("RAID 6 of {drives} disks, for large writes (001: around 12)")
        }
        (Availability::Raid, Kind::Hdd) => {
            format!("RAID 6 of {drives} disks, for small writes (001: around 6)")
        }
        (Availability::Raid, Kind::Ssd) => format!("RAID 6 of {drives} SSDs (001's design has 6)"),
        (Availability::Raid, Kind::Nvme) => {
            format!("raidz2 of {drives} drives (001: no more than 6, and no MD RAID 6)")
        }
    }
}

/// Groups for contents in one server, and the drives of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Groups, a target each.
    pub groups: u32,
    pub drives: u32,
}

/// Most pairs for names in a server: of a combined one they take slots, and a group for contents must be left.
pub fn pairs_max(block: &Block, layout: Servers, requirements: &Requirements) -> u32 {
    match layout {
        Servers::Dedicated => PAIRS_MAX,
        Servers::Combined => {
            let (raid, drives) = grouping(block, requirements);
            let least = raid.least_drives().min(drives);
            (block.slots.saturating_sub(least) / 2).min(PAIRS_MAX)
        }
    }
}

/// Groups in a server whose other slots hold names. Beside servers without names they are as large as there, because a
/// striped file waits for the smallest target; otherwise as many drives for data as the slots give.
pub fn shape(block: &Block, pairs: u32, beside_others: bool, requirements: &Requirements) -> Shape {
    let (raid, usual) = grouping(block, requirements);
    let slots = block.slots.saturating_sub(pairs.saturating_mul(2));
    if slots >= usual && (beside_others || slots.is_multiple_of(usual)) {
        return Shape { groups: slots / usual, drives: usual };
    }
    let least = raid.least_drives().min(usual);
    let fitting = (1..=slots / least).map(|groups| Shape { groups, drives: (slots / groups).min(usual) });
    let data = |shape: &Shape| shape.groups * raid.data_drives(shape.drives);
    let most = fitting.max_by_key(|shape| (data(shape), std::cmp::Reverse(shape.groups)));
    most.unwrap_or(Shape { groups: 0, drives: usual })
}

/// How many of a combined system's servers hold names, and how many do not: shards of Skep are dealt to as many as are made
/// for it.
pub fn holders(count: &Count, requirements: &Requirements) -> (u32, u32) {
    let skep = requirements.software == Software::Skep;
    let with = if skep { count.names.min(count.storage) } else { count.storage };
    (with, count.storage - with)
}

/// Most groups of a server for names: each has a core.
pub fn groups_max(layout: Servers) -> u32 {
    let cores = if layout == Servers::Combined { META_CORES } else { METADATA_CORES };
    cores.min(METADATA_GROUPS_MAX)
}

/// Name of a combined server that holds the names of others like it.
pub fn names_server(block: &Block) -> String {
    format!("{}-names", block.name)
}

/// The system with so many blocks.
pub fn system(block: &Block, layout: Servers, count: &Count, requirements: &Requirements) -> Hardware {
    let servers = match layout {
        Servers::Combined => combined(block, count, requirements),
        Servers::Dedicated => {
            let whole = shape(block, 0, true, requirements);
            vec![
                storage_server(block, count.storage, whole, count.size, requirements),
                metadata_server(block, count, requirements),
            ]
        }
    };
    let storage = |server: &Server| {
        let groups = server.targets.iter().filter(|group| group.role == Role::Storage);
        groups.fold(0u32, |sum, group| sum.saturating_add(group.count)).saturating_mul(server.count)
    };
    let skep = requirements.software == Software::Skep;
    let names = if layout == Servers::Combined { holders(count, requirements).0 } else { count.names };
    let targets = servers.iter().fold(0u32, |sum, server| sum.saturating_add(storage(server)));
    Hardware {
        name: requirements.name.clone(),
        description: format!("{} of {}", count.storage, block.name),
        software: requirements.software,
        metadata_servers: if skep { names } else { 1 },
        metadata_groups: if skep { count.groups } else { 1 },
        inline_limit: requirements.inline_limit,
        files: requirements.stored(),
        clients: clients(requirements),
        striping: Striping {
            chunk: Size(CHUNK),
            targets: STRIPE.min(targets),
            copies: if requirements.availability == Availability::Mirror { 2 } else { 1 },
        },
        network: Network::default(),
        catalogue: requirements.catalogue.clone(),
        prices: requirements.prices.as_ref().map(|prices| priced(prices, block, &requirements.models)),
        servers,
        ..Hardware::default()
    }
}

/// The server with names costs what its block costs, and a drive what its kind does, unless they have prices of their own.
fn priced(prices: &Prices, block: &Block, models: &Models) -> Prices {
    let mut prices = prices.clone();
    for kind in KINDS {
        for (name, price) in prices.drives.clone() {
            let size = name.strip_prefix(kind.name()).filter(|rest| rest.is_empty() || rest.starts_with(' '));
            if let Some(size) = size {
                prices.drives.entry(format!("{}{size}", models.of(kind))).or_insert(price);
            }
        }
    }
    if let Some(price) = prices.servers.get(block.name).copied() {
        prices.servers.entry(names_server(block)).or_insert(price);
    }
    prices
}

fn combined(block: &Block, count: &Count, requirements: &Requirements) -> Vec<Server> {
    let (with, without) = holders(count, requirements);
    let mut servers = Vec::new();
    if without > 0 {
        let whole = shape(block, 0, true, requirements);
        servers.push(storage_server(block, without, whole, count.size, requirements));
    }
    let rest = shape(block, count.pairs, without > 0, requirements);
    let mut holder = storage_server(block, with, rest, count.size, requirements);
    if without > 0 {
        holder.name = names_server(block);
    }
    holder.roles = vec![Role::Mgmt, Role::Meta, Role::Storage];
    holder.meta_cores = Some(META_CORES);
    holder.targets.push(names(block.kind, count.pairs, count.names_size, requirements));
    servers.push(holder);
    servers
}

fn metadata_server(block: &Block, count: &Count, requirements: &Requirements) -> Server {
    Server {
        name: METADATA.to_owned(),
        count: count.names,
        roles: vec![Role::Mgmt, Role::Meta],
        sockets: 1,
        cores: Some(METADATA_CORES),
        meta_cores: None,
        memory: Size(256 << 30),
        nics: vec![Nic { kind: "100gbe".into(), count: 1, roles: Vec::new(), pcie: None }],
        controllers: Vec::new(),
        pcie_switches: Vec::new(),
        targets: vec![names(block.kind, count.pairs, count.names_size, requirements)],
    }
}

fn storage_server(block: &Block, many: u32, shape: Shape, size: u64, requirements: &Requirements) -> Server {
    let (raid, usual) = grouping(block, requirements);
    let controllers = (block.controllers > 0).then(|| Controller {
        name: "disks".into(),
        // Parity is the controller's work; without it an adapter does.
        kind: if raid == Raid::Raid6 { "controller" } else { "hba" }.into(),
        count: block.controllers,
        pcie: None,
        measured_read: None,
        measured_write: None,
    });
    let group = TargetGroup {
        role: Role::Storage,
        count: shape.groups,
        drive: requirements.models.of(block.kind).to_owned(),
        drives: shape.drives,
        size: Size(size),
        raid,
        spares: 0,
        file_system: if raid.is_zfs() { FileSystem::Zfs } else { FileSystem::Xfs },
        pool: "default".to_owned(),
        controller: controllers.as_ref().map(|one| one.name.clone()),
        pcie_switch: None,
        pcie: (block.kind == Kind::Nvme).then(|| slot(requirements)),
        measured_read: None,
        measured_write: None,
        bytes_per_inode: None,
        inode_size: None,
    };
    // The same link in every server, for what its slots deliver without names.
    let nics = vec![link(block, usual, raid, requirements)];
    Server {
        name: block.name.to_owned(),
        count: many,
        roles: vec![Role::Storage],
        sockets: block.cores.0,
        cores: Some(block.cores.1),
        meta_cores: None,
        memory: Size(block.memory_gib << 30),
        nics,
        controllers: controllers.into_iter().collect(),
        pcie_switches: Vec::new(),
        targets: vec![group],
    }
}

/// The slot of an NVMe drive: of the fifth generation for what the fourth does not carry.
fn slot(requirements: &Requirements) -> Pcie {
    let own = requirements.rates();
    let drive = Catalogue::of(&own).and_then(|catalogue| catalogue.drive(&requirements.models.nvme));
    let usual = Pcie { generation: 4, lanes: 4 };
    let fast = drive.is_some_and(|drive| drive.read.rate.0 > pcie(usual).0);
    if fast { Pcie { generation: 5, ..usual } } else { usual }
}

/// The slowest link that carries what the drives deliver: "network bandwidth higher than disk bandwidth" (001).
fn link(block: &Block, drives: u32, raid: Raid, requirements: &Requirements) -> Nic {
    let own = requirements.rates();
    let catalogue = Catalogue::of(&own);
    let rate = |kind: &str| catalogue.as_ref().and_then(|c| c.nic(kind)).map_or(0.0, |nic| nic.rate.0);
    let groups = f64::from(block.slots / drives);
    let drive = catalogue.as_ref().and_then(|c| c.drive(requirements.models.of(block.kind)));
    let (read, write) = drive.map_or((0.0, 0.0), |drive| (drive.read.rate.0, drive.write.rate.0));
    let mut wanted = groups
        * (read * f64::from(raid.reading_drives(drives))).max(write * f64::from(raid.data_drives(drives)));
    if block.controllers > 0 {
        let kind = if raid == Raid::Raid6 { "controller" } else { "hba" };
        let one = catalogue.as_ref().and_then(|c| c.controller(kind)).map_or(0.0, |part| part.rate.0);
        wanted = wanted.min(f64::from(block.controllers) * one);
    }
    let (kind, count) = match &requirements.server_nic {
        Some(kind) => (kind.as_str(), 2),
        None => LINKS
            .into_iter()
            .find(|(kind, count)| rate(kind) * f64::from(*count) >= wanted)
            .unwrap_or(LINKS[LINKS.len() - 1]),
    };
    Nic { kind: kind.to_owned(), count, roles: Vec::new(), pcie: None }
}

/// Drives for names: pairs, of the fastest kind that is allowed (001: RAID 1 or 10, no parity).
pub fn names(kind: Kind, pairs: u32, size: u64, requirements: &Requirements) -> TargetGroup {
    let best = names_kind(kind, requirements);
    // A metadata server of Skep has one directory for all its names, so its pairs are joined.
    let joined = requirements.software == Software::Skep && pairs > 1;
    TargetGroup {
        role: Role::Meta,
        count: if joined { 1 } else { pairs },
        drive: requirements.models.of(best).to_owned(),
        drives: if joined { 2 * pairs } else { 2 },
        size: Size(size),
        raid: if joined { Raid::Raid10 } else { Raid::Raid1 },
        spares: 0,
        file_system: FileSystem::Ext4,
        pool: "default".to_owned(),
        controller: None,
        pcie_switch: None,
        pcie: None,
        measured_read: None,
        measured_write: None,
        bytes_per_inode: None,
        inode_size: None,
    }
}

/// The kind of drives that names get: the fastest that is allowed.
pub fn names_kind(kind: Kind, requirements: &Requirements) -> Kind {
    requirements.kinds().iter().copied().max().unwrap_or(kind)
}

/// Bytes of a drive for names, the smallest first: larger ones are taken when pairs of these are not enough.
pub fn names_sizes(kind: Kind) -> &'static [u64] {
    match kind {
        Kind::Nvme => &[3_200 * GB, 6_400 * GB, 12_800 * GB],
        Kind::Ssd => &[3_840 * GB, 7_680 * GB, 15_360 * GB],
        Kind::Hdd => &[8 * TB, 16 * TB, 24 * TB],
    }
}

/// The clients that a proposal reckons with.
pub fn client_side(requirements: &Requirements) -> ClientSide {
    let own = requirements.rates();
    let one = |direction: Direction| {
        let link = Catalogue::of(&own).map(|catalogue| client::one(&own, &catalogue, direction).rate.0);
        link.filter(|rate| *rate > 0.0).unwrap_or(1.0)
    };
    let (write, read) = (one(Direction::Write), one(Direction::Read));
    let most = [requirements.write.map(|rate| rate.0 / write), requirements.read.map(|rate| rate.0 / read)];
    let wanted = most.into_iter().flatten().fold(0.0, f64::max).ceil().max(CLIENTS_LEAST);
    let count = requirements.clients.unwrap_or(wanted.min(f64::from(crate::check::MACHINES_MAX)) as u32);
    ClientSide {
        count,
        nic: requirements.client_nic.clone(),
        assumed: requirements.clients.is_none(),
        carry: Rate(f64::from(count) * write.min(read)),
    }
}

fn clients(requirements: &Requirements) -> Clients {
    Clients { count: client_side(requirements).count, ..requirements.rates().clients }
}
