//! What is known about a machine, read once.

mod block;
pub mod identity;
mod mounts;
mod net;
mod processor;
mod service;
mod superblock;
mod zfs;

pub use block::{Disk, DiskKind, Md, Partition};
pub use identity::{Identity, IdentityKind};
pub use mounts::Mount;
pub use net::{Fabric, Nic};
pub use processor::{Node, cpus_of};
pub use service::{ClusterFacts, LookedAt, Place, Role, Service};
pub use superblock::Superblock;

use crate::Root;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Host<'a> {
    /// Where it was read from.
    pub root: &'a Root,
    /// Release of the kernel: (6, 1).
    pub kernel: (u32, u32),
    /// Memory in KiB; 0 when not known.
    pub memory_kib: u64,
    /// NUMA nodes.
    pub nodes: Vec<Node>,
    /// Processors.
    pub cpus: usize,
    /// Disks, those made of others too.
    pub disks: Vec<Disk>,
    /// What is mounted.
    pub mounts: Vec<Mount>,
    /// What `zfs get` says of each dataset.
    pub zfs: BTreeMap<String, String>,
    /// What shall be mounted at boot.
    pub fstab: Vec<Mount>,
    /// Network interfaces.
    pub nics: Vec<Nic>,
    /// RDMA devices.
    pub fabrics: Vec<Fabric>,
    /// Services of Skep here.
    pub services: Vec<Service>,
    /// What the machine is checked for.
    pub roles: BTreeSet<Role>,
    /// Directories that matter, with what carries them.
    pub places: Vec<Place>,
    /// What the cluster says, if it was reached.
    pub cluster: Option<ClusterFacts>,
}

/// What the caller knows of the machine's part in a cluster.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Services that run or are configured here.
    pub services: Vec<Service>,
    /// Roles that were named; empty: those of the services.
    pub roles: BTreeSet<Role>,
    /// Directories that were named, beside those of services.
    pub directories: Vec<String>,
    /// What the cluster says.
    pub cluster: Option<ClusterFacts>,
}

impl<'a> Host<'a> {
    /// Reads a machine.
    pub fn read(root: &'a Root, part: Part) -> Self {
        let roles: BTreeSet<Role> = match part.roles.is_empty() {
            true => part.services.iter().map(|service| service.role).collect(),
            false => part.roles,
        };
        let services: Vec<Service> =
            part.services.into_iter().filter(|service| roles.contains(&service.role)).collect();
        let mut host = Self {
            root,
            kernel: kernel(root),
            memory_kib: memory_kib(root),
            nodes: processor::nodes(root),
            cpus: processor::count(root),
            disks: block::read(root),
            mounts: mounts::mounted(root),
            zfs: BTreeMap::new(),
            fstab: mounts::at_boot(root),
            nics: net::interfaces(root),
            fabrics: net::fabrics(root),
            services,
            roles,
            places: Vec::new(),
            cluster: part.cluster,
        };
        host.zfs = zfs::properties(root, &host.mounts);
        host.places = service::places(&host, &part.directories);
        host.give_roles();
        host
    }

    /// Each disk gets the roles of the directories on it. When no directory is known, the roles were only
    /// named: then every disk that could serve them has them.
    fn give_roles(&mut self) {
        let servers: BTreeSet<Role> = self.roles.iter().copied().filter(|role| role.has_disks()).collect();
        if self.places.is_empty() {
            let system =
                self.mount_of("/").and_then(|mount| self.disk_of(mount)).map(|disk| disk.name.clone());
            for disk in &mut self.disks {
                if disk.kind != DiskKind::Other && Some(&disk.name) != system.as_ref() {
                    disk.roles = servers.clone();
                }
            }
            return;
        }
        let carried: Vec<(Role, Vec<String>)> =
            self.places.iter().map(|place| (place.role, place.disks.clone())).collect();
        for (role, names) in carried {
            for disk in self.disks.iter_mut().filter(|disk| names.contains(&disk.name)) {
                disk.roles.insert(role);
            }
        }
    }

    /// Has it this role?
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The disk with this name.
    pub fn disk(&self, name: &str) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// The mount that a path lies on: the longest, of those the last.
    pub fn mount_of(&self, path: &str) -> Option<&Mount> {
        self.mounts.iter().rev().filter(|mount| mount.holds(path)).max_by_key(|mount| mount.point.len())
    }

    /// The disk (not the partition) that carries a mount.
    pub fn disk_of(&self, mount: &Mount) -> Option<&Disk> {
        self.disks.iter().find(|disk| {
            disk.dev == mount.dev || disk.partitions.iter().any(|partition| partition.dev == mount.dev)
        })
    }

    /// Is all that these places hold in memory? Not where no place is known.
    pub fn in_memory<'p>(&self, places: impl IntoIterator<Item = &'p Place>) -> bool {
        let mut places = places.into_iter().peekable();
        places.peek().is_some()
            && places.all(|place| self.mount_of(&place.path).is_some_and(Mount::in_memory))
    }

    /// A disk and all that it is made of, itself first.
    pub fn with_members<'h>(&'h self, disk: &'h Disk) -> Vec<&'h Disk> {
        let mut all = vec![disk];
        let mut at = 0;
        while at < all.len() {
            let below: Vec<&Disk> = all[at].members.iter().filter_map(|name| self.disk(name)).collect();
            all.extend(
                below
                    .into_iter()
                    .filter(|one| all.iter().all(|known| known.name != one.name))
                    .collect::<Vec<_>>(),
            );
            at += 1;
        }
        all
    }

    /// What kind of drive a disk is in the end: that of its slowest member.
    pub fn media(&self, disk: &Disk) -> DiskKind {
        let leaves = self.with_members(disk).into_iter().filter(|one| one.members.is_empty());
        leaves.map(|one| one.kind).min().unwrap_or(DiskKind::Other)
    }
}

fn kernel(root: &Root) -> (u32, u32) {
    let release = root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn memory_kib(root: &Root) -> u64 {
    let text = root.text("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
