//! Services of Skep on the machine, and the directories they use.

use super::{Disk, Host};
use crate::Root;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What a machine does in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Runs a mgmtd.
    Mgmt,
    /// Runs a metad.
    Meta,
    /// Runs a storaged.
    Storage,
    /// Mounts.
    Client,
}

impl Role {
    /// Its word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mgmt => "mgmt",
            Self::Meta => "meta",
            Self::Storage => "storage",
            Self::Client => "client",
        }
    }

    /// Has it data of its own?
    pub fn has_disks(self) -> bool {
        matches!(self, Self::Meta | Self::Storage)
    }
}

/// A service that runs or is configured here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub role: Role,
    /// Its name for people: `storaged`, `storaged@s1`.
    pub name: String,
    /// Its systemd unit: `skep-storaged@s1.service`.
    pub unit: String,
    /// Its process, if it runs.
    pub pid: Option<u32>,
    /// Where its data is.
    pub directories: Vec<String>,
    /// Interfaces that it announces; empty: all.
    pub interfaces: Vec<String>,
    /// Its own settings, as its configuration has them.
    pub settings: BTreeMap<String, String>,
}

impl Service {
    /// A setting as a number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.settings.get(key)?.parse().ok()
    }
}

impl Service {
    /// Does its unit decide what it may do? Not when it runs and was started by something else.
    pub fn is_of_unit(&self, root: &Root) -> bool {
        match self.pid {
            None => true,
            Some(pid) => {
                root.text(&format!("/proc/{pid}/cgroup")).is_some_and(|text| text.contains(&self.unit))
            }
        }
    }
}

/// A directory that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub role: Role,
    /// The service that uses it, if one is known.
    pub service: Option<String>,
    /// Where, without symbolic links.
    pub path: String,
    /// Disks that carry it, the one with the file system first; empty when nothing is known.
    pub disks: Vec<String>,
}

/// What a cluster says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFacts {
    /// Each pool with its number of usable targets.
    pub pools: Vec<(String, u32)>,
    /// Mounts that are connected.
    pub clients: u32,
    pub storage_servers: u32,
    pub metadata_servers: u32,
    /// What each directory that was named has: path, chunk size, targets (0: progressive), pool.
    pub directories: Vec<(String, u64, u32, String)>,
}

/// What was remembered under a name when a machine was recorded.
fn recorded<T: serde::de::DeserializeOwned>(root: &Root, name: &str) -> Option<T> {
    let text = if root.is_live() { None } else { root.answer(name, || None) };
    serde_json::from_str(&text?).ok()
}

/// Remembers it, when the machine is recorded.
fn record(root: &Root, name: &str, what: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(what) {
        root.remember(name, &text);
    }
}

impl ClusterFacts {
    /// What a recorded machine's cluster said on that day.
    pub fn recorded(root: &Root) -> Option<Self> {
        recorded(root, Self::NAME)
    }

    /// Remembers it, when the machine is recorded.
    pub fn record(&self, root: &Root) {
        record(root, Self::NAME, self);
    }

    /// What it is called in a recording.
    const NAME: &str = "cluster.json";
}

/// Which part of a machine was looked at: what a recording needs besides files to be looked at in the same way. Services
/// are kept as they were found, for their settings come from files and environments that hold more than is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedAt {
    /// Services that ran or were configured.
    pub services: Vec<Service>,
    /// Roles that were named.
    pub roles: Vec<Role>,
    /// Directories that were named.
    pub directories: Vec<String>,
}

impl LookedAt {
    /// What it is called in a recording.
    const NAME: &str = "part.json";

    /// Of a recorded machine.
    pub fn recorded(root: &Root) -> Option<Self> {
        recorded(root, Self::NAME)
    }

    /// Remembers it, when the machine is recorded.
    pub fn record(&self, root: &Root) {
        record(root, Self::NAME, self);
    }
}

/// The directories of all services, and those that were named.
pub fn places(host: &Host<'_>, named: &[String]) -> Vec<Place> {
    // Mounts are told apart by names: a symbolic link would lead to the wrong disk.
    let real = |path: &String| host.root.place(Path::new(path));
    let disks = |path: Option<String>| -> Vec<String> {
        let mount = path.and_then(|path| host.mount_of(&path));
        let disk = mount.and_then(|mount| host.disk_of(mount));
        let all = |disk: &Disk| host.with_members(disk).iter().map(|one| one.name.clone()).collect();
        disk.map(all).unwrap_or_default()
    };
    let place = |role: Role, service: Option<String>, path: &String| {
        let real = real(path);
        Place { role, service, path: real.clone().unwrap_or_else(|| path.clone()), disks: disks(real) }
    };
    let place = &place;
    let of_services = host.services.iter().filter(|service| service.role.has_disks()).flat_map(|service| {
        service.directories.iter().map(|path| place(service.role, Some(service.name.clone()), path))
    });
    let roles = host.roles.iter().filter(|role| role.has_disks());
    // A directory on a mount of Skep is no place of a target: its policy is looked at, not its disk.
    let is_ours =
        |place: &Place| host.mount_of(&place.path).is_some_and(|mount| mount.kind.ends_with("skep"));
    let of_words = roles.flat_map(|role| named.iter().map(|path| place(*role, None, path)));
    of_services.chain(of_words.filter(|place| !is_ours(place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Part;
    use crate::testing::{HDD, read, service, unpacked};

    /// Goal: the disk of a directory is the one that it really lies on, whatever links lead there and whether or not it is
    /// there; where a link leads nobody knows, no disk is anybody's, least of all that of the system.
    #[test]
    fn links_to_disks() {
        let links = "/srv/skep -> ../data/skep0\n/opt/data -> ../gone\n";
        let dir = unpacked(&format!("{}\n{links}", HDD.trim_end()));
        let root = Root::new(dir.path()).unwrap();
        std::fs::remove_dir(root.path("/gone")).unwrap();
        let disks = |path: &str, named: bool| {
            let services = if named { vec![] } else { vec![service(Role::Storage, "storaged", path, &[])] };
            let directories = if named { vec![path.to_owned()] } else { vec![] };
            let roles = [Role::Storage].into();
            let host = read(&root, Part { services, roles, directories, cluster: None });
            let system = host.disk_of(host.mount_of("/").unwrap()).unwrap();
            assert!(system.roles.is_empty(), "{path}");
            (host.places[0].path.clone(), host.places[0].disks.first().cloned())
        };
        for named in [false, true] {
            for (path, real) in [
                ("/data/skep0/t1", "/data/skep0/t1"),
                ("/srv/skep", "/data/skep0"),
                ("/srv/skep/t1/new", "/data/skep0/t1/new"),
            ] {
                assert_eq!(disks(path, named), (real.to_owned(), Some("md0".to_owned())));
            }
            assert_eq!(disks("/opt/data/t1", named), ("/opt/data/t1".to_owned(), None));
        }
    }
}
