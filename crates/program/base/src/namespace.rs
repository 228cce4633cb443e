//! From names to inodes: by the mount that a path lies on, or by walking the cluster's namespace.

use crate::access::{AccessArgs, Cluster, NodeLink, is_asked_again};
use crate::caller::CallError;
use crate::deadline::{self, Way};
use crate::mounted::{self, Link};
use crate::{Failure, Outcome};
use skep_types::{Consistency, Ino, Kind, Name, NodeId, PoolId, Reachability, ShardId, TargetId};
use skep_wire::Message;
use skep_wire::meta::Lookup;
use skep_wire::mgmt::{NodeEntry, ShardState, StatusReply, TargetEntry};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

/// Names for the numbers in answers.
pub struct Names<'a> {
    status: &'a StatusReply,
}

impl<'a> Names<'a> {
    /// Those of this cluster.
    pub fn of(status: &'a StatusReply) -> Self {
        Self { status }
    }

    /// The node with this id.
    pub fn entry(&self, node: NodeId) -> Option<&'a NodeEntry> {
        self.status.nodes.iter().map(|status| &status.node).find(|entry| entry.node == node)
    }

    /// A node's alias.
    pub fn node(&self, node: NodeId) -> String {
        self.entry(node).map_or_else(|| format!("node {node}"), |entry| entry.alias.clone())
    }

    /// Is a node heard?
    pub fn reachability(&self, node: NodeId) -> &'static str {
        self.entry(node).map_or("unknown", |entry| entry.reachability.as_str())
    }

    /// Can a target be reached? One that its server does not serve is offline.
    pub fn reach(&self, target: &TargetEntry) -> Option<Reachability> {
        self.entry(target.node).map(|node| target.reached(node.reachability))
    }

    /// The same in words.
    pub fn target_reachability(&self, target: &TargetEntry) -> &'static str {
        self.reach(target).map_or("unknown", Reachability::as_str)
    }

    /// The target with this id.
    pub fn target(&self, target: TargetId) -> Option<&'a TargetEntry> {
        self.status.targets.iter().find(|entry| entry.target == target)
    }

    /// Who leads a shard.
    pub fn leader(&self, shard: ShardId) -> Outcome<&'a NodeEntry> {
        let entry = self.status.shards.iter().find(|entry| entry.shard == shard).ok_or_else(|| {
            let count = self.status.shards.len();
            Failure::new(format!("there is no shard {shard}; this cluster has {count}, from 0 on"))
        })?;
        if entry.state == ShardState::Retired {
            return Err(Failure::new(format!("shard {shard} is retired: nobody answers for it any more")));
        }
        if entry.is_given_up() {
            return Err(Failure::new(format!(
                "shard {shard} has no metadata server, for the last one is gone for good: give it to one that has a copy \
                 (skep shard give)"
            )));
        }
        let leader = entry.led_by().and_then(|node| self.entry(node));
        leader.ok_or_else(|| Failure::new(format!("shard {shard} has no metadata server yet; start one")))
    }
}

/// The metadata of a cluster, asked shard by shard.
pub struct Namespace {
    pub cluster: Cluster,
    /// Its state when the command began.
    pub status: StatusReply,
    links: BTreeMap<NodeId, NodeLink>,
    /// How long the file system may take to look at a path.
    limit: Duration,
}

impl Namespace {
    /// Of the cluster that is meant when `path` is named.
    pub fn connect(access: &AccessArgs, path: &Path) -> Outcome<Self> {
        let limit = access.timeout.duration();
        let place = access.place(Some(path))?;
        if !access.is_explicit() && place.mounted.is_none() {
            look_at(path, limit)?;
            return Err(Failure::new(format!(
                "{}: not on a mounted skep file system; name a path on a mount, or the cluster by --cluster \
                 FILE and a path in its namespace",
                path.display()
            )));
        }
        let mut cluster = access.connect_to(&place)?;
        cluster.require_admin("looking into the metadata")?;
        let status = cluster.status()?;
        Ok(Self { cluster, status, links: BTreeMap::new(), limit })
    }

    /// Asks the shard that holds an inode, again while its server starts, and after a move where it has gone.
    pub fn ask<M: Message>(&mut self, ino: Ino, message: &M) -> Outcome<M::Reply> {
        let deadline = Instant::now() + self.cluster.limit;
        loop {
            let leader = Names::of(&self.status).leader(ino.shard())?;
            let link = self.links.entry(leader.node).or_insert_with(|| self.cluster.node(leader));
            let outcome = link.call_shard(ino.shard(), message, deadline);
            if !is_asked_again(&outcome, |why| why.is_transient() || why.is_misdirected(), deadline) {
                return outcome.map_err(|e| Failure::call(&leader.alias, &e));
            }
            if matches!(&outcome, Err(CallError::Refused(refusal)) if refusal.status.is_misdirected()) {
                self.status = self.cluster.status()?;
            }
        }
    }

    /// The inode of a path: on a mount of this cluster as the kernel says, else by walking the namespace.
    pub fn resolve(&mut self, path: &Path) -> Outcome<Ino> {
        // Looked at once where it can be: what it was checked for is what is used.
        let mounted = match self.cluster.mounted().filter(|mounted| mounted.path == path) {
            Some(mounted) => Some(mounted.clone()),
            None => mounted::look(path, Link::Itself, self.limit)?,
        };
        match mounted {
            Some(mounted) => {
                mounted.must_be_of(self.status.cluster, self.cluster.whom())?;
                Ok(mounted.ino)
            }
            None => {
                mounted::must_not_lead_to_one(path, self.status.cluster, self.cluster.whom(), self.limit)?;
                self.walk(path)
            }
        }
    }

    fn walk(&mut self, path: &Path) -> Outcome<Ino> {
        if path.parent().is_some() && look_at(path, self.limit).is_ok() {
            eprintln!(
                "note: {} is taken as a path in the name space of the cluster that was named, not as what has this name on \
                 this machine",
                path.display()
            );
        }
        let mut at = Ino::ROOT;
        for name in components(path)? {
            // A slip in a path on a mount comes here, too.
            let wrong = |e: Failure| {
                Failure::new(format!(
                    "{path} is on no mount of this cluster; it was taken as a path in its name space: {e}",
                    path = path.display()
                ))
            };
            let reply =
                self.ask(at, &Lookup { parent: at, name: name.clone(), as_told: None }).map_err(wrong)?;
            if reply.kind == Kind::Symlink {
                let name = name.display();
                eprintln!("note: {name} is a symbolic link; it is shown itself, not what it points to");
            }
            at = reply.ino;
        }
        Ok(at)
    }
}

fn look_at(path: &Path, limit: Duration) -> Outcome<Metadata> {
    let found = deadline::of_path(path, Way::Entry, limit, |path| std::fs::symlink_metadata(path))?;
    found.map_err(|e| missing(path, &e))
}

/// A path of this machine cannot be looked at.
fn missing(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(format!(
            "{path}: does not exist on this machine; check the path, or name the cluster by --cluster FILE and a path \
             in its namespace"
        )),
        _ => Failure::local(path, error),
    }
}

/// The names of an absolute path in the namespace.
fn components(path: &Path) -> Outcome<Vec<Name>> {
    let wrong = |why: &str| Failure::new(format!("{}: {why}", path.display()));
    let mut names = Vec::new();
    let mut absolute = false;
    for component in path.components() {
        match component {
            Component::RootDir => absolute = true,
            Component::Normal(name) => {
                let name = Name::new(name.as_bytes()).map_err(|_| wrong("a name in it is too long"))?;
                names.push(name);
            }
            Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(wrong("write it without \"..\"")),
        }
    }
    if absolute {
        return Ok(names);
    }
    Err(wrong(
        "does not exist on this machine, or is on no mount of this cluster; a path in its name space begins with /",
    ))
}

/// The pool that a wish for none means.
pub const DEFAULT_POOL: PoolId = PoolId(1);

/// Targets of a pool (none: the default one) that can take new files now: good ones, whose daemons are heard.
pub fn available(status: &StatusReply, pool: PoolId) -> u32 {
    let names = Names::of(status);
    let pool = if pool == PoolId(0) { DEFAULT_POOL } else { pool };
    let takes = |target: &&TargetEntry| {
        let heard = names.reach(target) == Some(Reachability::Online);
        target.pool == pool && target.consistency == Consistency::Good && heard
    };
    status.targets.iter().filter(takes).count() as u32
}

/// A small cluster for the tests of commands.
#[cfg(any(test, feature = "testing"))]
pub mod samples {
    use skep_types::{
        Capacity, ClientId, Consistency, FenceEpoch, Incarnation, MapVersion, NodeId, PoolId, Reachability,
        ServiceKind, ShardId, TargetId, Uuid,
    };
    use skep_wire::mgmt::{
        Address, CapacityLimits, NodeEntry, NodeStatus, PoolEntry, PoolStatus, SessionStatus, ShardEntry,
        ShardState, StatusReply, TargetEntry,
    };

    fn node(id: u32, service: ServiceKind) -> NodeStatus {
        let text = format!("127.0.0.1:{}", 7000 + id);
        NodeStatus {
            node: NodeEntry {
                domain: String::new(),
                node: NodeId(id),
                service,
                alias: format!("{}-{id}", service.as_str()),
                addresses: vec![Address { text, nic: String::new(), preference: 0 }],
                machine: Uuid([1; 16]),
                reachability: Reachability::Online,
                incarnation: Incarnation(1),
            },
            silent_ms: Some(10),
            capacity: Capacity { bytes: 500, bytes_free: 250, inodes: 9, inodes_free: 8 },
            map: MapVersion(1),
        }
    }

    /// One metadata server with two shards, one storage server with one target, one mount.
    pub fn status() -> StatusReply {
        let shard = |id| ShardEntry {
            shard: ShardId(id),
            members: vec![NodeId(1)],
            leader: NodeId(1),
            epoch: 1,
            state: ShardState::Active,
            era: 0,
            newer_are_lost: None,
        };
        StatusReply {
            pools: vec![PoolStatus {
                pool: PoolEntry { pool: PoolId(1), alias: "default".into() },
                limits: CapacityLimits::default(),
            }],
            cluster: Uuid([9; 16]),
            map: MapVersion(1),
            epoch: FenceEpoch(1),
            nodes: vec![node(1, ServiceKind::Metad), node(2, ServiceKind::Storaged)],
            targets: vec![TargetEntry {
                class: skep_types::CapacityClass::Normal,
                filesystem: 0,
                failures: 0,
                decisions: 0,
                served: true,
                pool: skep_types::PoolId(1),
                target: TargetId(101),
                alias: "target-101".into(),
                node: NodeId(2),
                consistency: Consistency::Good,
                capacity: Capacity { bytes: 1_000, bytes_free: 400, inodes: 10, inodes_free: 5 },
            }],
            shards: vec![shard(0), shard(1)],
            sessions: vec![SessionStatus {
                client: ClientId(7),
                host: "host".into(),
                mount: "/mnt".into(),
                silent_ms: None,
            }],
            evictions: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: absolute paths are taken apart, others refused with the reason.
    #[test]
    fn paths() {
        let names = |text: &str| {
            components(Path::new(text)).map(|list| list.iter().map(Name::display).collect::<Vec<_>>())
        };
        assert_eq!(names("/").unwrap(), Vec::<String>::new());
        assert_eq!(names("/a//b/./c/").unwrap(), ["a", "b", "c"]);
        let slip = names("mnt/typo").unwrap_err().to_string();
        assert!(slip.starts_with("mnt/typo: does not exist") && slip.contains("begins with /"), "{slip}");
        assert!(names("/a/../b").unwrap_err().to_string().contains(".."));
        assert!(names(&format!("/{}", "x".repeat(256))).is_err());
    }

    /// Goal: shards that do not exist, or that nobody holds, are named in the error.
    #[test]
    fn leaders() {
        let mut status = samples::status();
        assert_eq!(Names::of(&status).leader(ShardId(1)).unwrap().alias, "metad-1");
        assert!(
            Names::of(&status).leader(ShardId(2)).unwrap_err().to_string().contains("this cluster has 2")
        );
        status.shards[0].leader = NodeId(0);
        assert!(Names::of(&status).leader(ShardId(0)).unwrap_err().to_string().contains("start one"));
        status.shards[1].state = ShardState::Moving;
        assert_eq!(Names::of(&status).leader(ShardId(1)).unwrap().alias, "metad-1");
        status.shards[1].state = ShardState::Retired;
        assert!(Names::of(&status).leader(ShardId(1)).unwrap_err().to_string().contains("is retired"));
    }

    /// Goal: only targets that take new files are counted; no wish means the default pool.
    #[test]
    fn available_targets() {
        let mut status = samples::status();
        assert_eq!((available(&status, PoolId(0)), available(&status, PoolId(2))), (1, 0));
        let mut silent = status.clone();
        silent.nodes.iter_mut().for_each(|one| one.node.reachability = Reachability::Offline);
        status.targets[0].consistency = Consistency::Bad;
        assert_eq!((available(&status, PoolId(1)), available(&silent, PoolId(1))), (0, 0));
    }
}
