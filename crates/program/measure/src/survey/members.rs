//! Who is measured side by side: daemons, targets, one daemon per host for its network; and who is missing.

use skep_survey::model::{Absent, LayerId, Part};
use skep_types::{Consistency, NodeId, Reachability, ServiceKind};
use skep_wire::mgmt::{NodeEntry, NodeStatus, StatusReply, TargetEntry};
use std::collections::BTreeMap;

/// Daemons and targets.
pub struct Members {
    /// Every daemon that can be reached.
    pub nodes: Vec<NodeEntry>,
    /// Daemons that answer from here to small messages only: others measure the network to them, and nothing else of them
    /// can be measured.
    pub cut_off: Vec<NodeEntry>,
    /// Every target of those, with its daemon's place in `nodes`.
    pub targets: Vec<(TargetEntry, usize)>,
    /// Daemons that cannot be reached, and targets that must not be trusted: they are findings themselves.
    pub absent: Vec<Absent>,
    parts: Vec<Part>,
    pools: BTreeMap<u32, String>,
}

/// Why a daemon is not measured.
fn silence(status: &NodeStatus) -> String {
    let state = match status.node.reachability {
        Reachability::ProbablyOffline => "is probably offline",
        _ => "is offline",
    };
    match status.silent_ms {
        Some(ms) => format!("{state}, last heard {} s ago", ms / 1_000),
        None => format!("{state}, not heard since mgmtd started"),
    }
}

/// The layer that has nothing to stand on without this daemon.
fn layer_of(service: ServiceKind) -> LayerId {
    match service {
        ServiceKind::Storaged => LayerId::Storage,
        ServiceKind::Metad => LayerId::Metadata,
        ServiceKind::Mgmtd => LayerId::Processor,
    }
}

impl Members {
    /// From what mgmtd knows.
    pub fn of(status: &StatusReply) -> Self {
        Self::reached(status, &[])
    }

    /// The same, where large messages do not pass to some of them.
    pub fn reached(status: &StatusReply, stuck: &[NodeId]) -> Self {
        let online = |one: &&NodeStatus| one.node.reachability == Reachability::Online;
        let all = status.nodes.iter().filter(online).map(|one| one.node.clone());
        let (cut_off, nodes): (Vec<NodeEntry>, Vec<NodeEntry>) =
            all.partition(|node| stuck.contains(&node.node));
        let owner = |target: &TargetEntry| nodes.iter().position(|node| node.node == target.node);
        let targets =
            status.targets.iter().filter(|t| t.served).filter_map(|t| Some((t.clone(), owner(t)?))).collect();
        let missing = status.nodes.iter().filter(|one| !online(one)).map(|one| Absent {
            name: one.node.alias.clone(),
            layer: layer_of(one.node.service),
            why: silence(one),
        });
        let bad =
            status.targets.iter().filter(|target| !target.served || target.consistency != Consistency::Good);
        let bad = bad.map(|target| Absent {
            name: target.alias.clone(),
            layer: LayerId::Device,
            why: match target.served {
                true => format!("its content is not good ({})", target.consistency.as_str()),
                false => "its server runs and does not serve it".to_owned(),
            },
        });
        let part = |target: &TargetEntry| {
            let owner = status.nodes.iter().find(|one| one.node.node == target.node)?;
            Some(Part { name: target.alias.clone(), part_of: owner.node.alias.clone() })
        };
        let pools = status.pools.iter().map(|one| (one.pool.pool.0, one.pool.alias.clone()));
        Self {
            absent: missing.chain(bad).collect(),
            parts: status.targets.iter().filter_map(part).collect(),
            pools: pools.collect(),
            targets,
            nodes,
            cut_off,
        }
    }

    /// Is it one of those?
    pub fn is_cut_off(&self, node: &NodeEntry) -> bool {
        self.cut_off.iter().any(|one| one.node == node.node)
    }

    /// Targets that take the chunks of new files in a directory of this layout (the text of `skep.layout`): those of its
    /// pool that are good; of all pools where the layout names none.
    pub fn that_take_files(&self, layout: &str) -> usize {
        let pool = layout.split(' ').find_map(|word| word.strip_prefix("pool="));
        let named = |target: &TargetEntry| match (pool, self.pools.get(&target.pool.0)) {
            (None, _) => true,
            (Some(pool), Some(alias)) => pool == alias,
            (Some(pool), None) => pool == target.pool.0.to_string(),
        };
        let takes = |target: &TargetEntry| target.consistency == Consistency::Good && named(target);
        self.targets.iter().filter(|(target, _)| takes(target)).count()
    }

    /// Targets that should be equal: of one pool, on one kind of medium. `media` tells it by the target's number.
    pub fn likes(&self, media: &BTreeMap<u32, String>) -> BTreeMap<String, Vec<usize>> {
        let mut sets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, (target, _)) in self.targets.iter().enumerate() {
            let pool = self.pools.get(&target.pool.0).map_or("no pool", String::as_str);
            let medium = media.get(&target.target.0).filter(|medium| !medium.is_empty());
            let medium = medium.map_or("medium not told", String::as_str);
            sets.entry(format!("pool {pool}, {medium}")).or_default().push(at);
        }
        sets
    }

    /// One daemon of every host, storage daemons first; all daemons when there is one host only. `networks` tells namespaces
    /// of one machine apart, by the aliases of daemons.
    pub fn representatives(&self, networks: &BTreeMap<String, String>) -> Vec<&NodeEntry> {
        let host = |node: &NodeEntry| (node.machine, networks.get(&node.alias));
        let mut ordered: Vec<&NodeEntry> = self.nodes.iter().chain(&self.cut_off).collect();
        ordered.sort_by_key(|node| match node.service {
            ServiceKind::Storaged => 0,
            ServiceKind::Metad => 1,
            ServiceKind::Mgmtd => 2,
        });
        let first = |(at, node): (usize, &&NodeEntry)| !ordered[..at].iter().any(|n| host(n) == host(node));
        let chosen: Vec<&NodeEntry> = ordered
            .iter()
            .enumerate()
            .filter(|(at, node)| first((*at, node)))
            .map(|(_, node)| *node)
            .collect();
        if chosen.len() > 1 { chosen } else { ordered }
    }

    /// What belongs to what, also of those who are missing.
    pub fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: a daemon that is not online, and a target that is not good, are told with the reason, not dropped.
    #[test]
    fn the_missing_are_told() {
        let mut status = samples::status();
        assert!(Members::of(&status).absent.is_empty());
        status.nodes[1].node.reachability = Reachability::Offline;
        status.nodes[1].silent_ms = Some(41_500);
        status.targets[0].consistency = Consistency::Bad;
        let members = Members::of(&status);
        let told: Vec<(&str, &str)> =
            members.absent.iter().map(|a| (a.name.as_str(), a.why.as_str())).collect();
        assert_eq!(told[0], ("storaged-2", "is offline, last heard 41 s ago"));
        assert!(told[1].0 == "target-101" && told[1].1.contains("not good"));
        assert_eq!((members.nodes.len(), members.targets.len()), (1, 0));
        assert_eq!(members.parts()[0].part_of, "storaged-2");
        status.nodes[1].silent_ms = None;
        assert!(Members::of(&status).absent[0].why.contains("not heard since mgmtd started"));
    }

    /// Goal: a daemon that large messages do not reach is left out, with its targets, of all but the network; daemons of one
    /// machine in networks of their own stand for a host each.
    #[test]
    fn who_is_cut_off() {
        let status = samples::status();
        let stuck = status.nodes[1].node.clone();
        let members = Members::reached(&status, &[stuck.node]);
        assert_eq!((members.nodes.len(), members.targets.len(), members.cut_off.len()), (1, 0, 1));
        assert!(members.is_cut_off(&stuck) && !members.is_cut_off(&members.nodes[0]));
        assert!(members.absent.is_empty() && members.parts()[0].part_of == stuck.alias);
        assert_eq!(members.representatives(&BTreeMap::new()).len(), 2);

        let mut status = samples::status();
        let first = status.nodes[0].clone();
        for (alias, number) in [("storaged-3", 77), ("storaged-4", 78)] {
            let mut more = status.nodes[1].clone();
            (more.node.alias, more.node.node, more.node.machine) =
                (alias.into(), NodeId(number), first.node.machine);
            status.nodes.push(more);
        }
        let members = Members::of(&status);
        let several = |of: &[(&str, &str)]| {
            let networks = of.iter().map(|(alias, network)| ((*alias).to_owned(), (*network).to_owned()));
            members.representatives(&networks.collect()).len()
        };
        let apart =
            [(first.node.alias.as_str(), "net:[1]"), ("storaged-3", "net:[2]"), ("storaged-4", "net:[3]")];
        // The fourth tells nothing, or is on another machine.
        assert_eq!(several(&apart), 4);
    }

    /// Goal: the files of a directory have as many targets as its pool has good ones, not as many as the cluster has.
    #[test]
    fn targets_of_a_pool() {
        let mut status = samples::status();
        let first = status.targets[0].clone();
        let mut pool = status.pools[0].clone();
        (pool.pool.pool, pool.pool.alias) = (skep_types::PoolId(2), "hot".into());
        status.pools.push(pool);
        for (number, pool) in [(102, 1), (103, 2), (104, 2), (105, 2), (106, 3)] {
            let (target, pool) = (skep_types::TargetId(number), skep_types::PoolId(pool));
            status.targets.push(TargetEntry { target, pool, ..first.clone() });
        }
        status.targets.iter_mut().filter(|target| target.target.0 == 105).for_each(|bad| {
            bad.consistency = Consistency::Bad;
        });
        let members = Members::of(&status);
        let counts = ["default", "hot", "3", "cold"]
            .map(|pool| members.that_take_files(&format!("chunk=1M targets=auto pool={pool} inline=0")));
        assert_eq!((counts, members.that_take_files("not told")), ([2, 2, 1, 0], 5));
    }

    /// Goal: targets of different pools or media are not likes of each other.
    #[test]
    fn likes_by_pool_and_medium() {
        let mut status = samples::status();
        let first = status.targets[0].clone();
        for (number, pool) in [(102, 1), (103, 1), (104, 0)] {
            let (target, pool) = (skep_types::TargetId(number), skep_types::PoolId(pool));
            status.targets.push(TargetEntry { target, pool, ..first.clone() });
        }
        let members = Members::of(&status);
        let media = [(101, "hdd"), (102, "nvme"), (103, "hdd")].map(|(n, m)| (n, m.to_owned()));
        let sets: Vec<_> = members.likes(&media.into_iter().collect()).into_iter().collect();
        let expected = [
            ("pool default, hdd", vec![0, 2]),
            ("pool default, nvme", vec![1]),
            ("pool no pool, medium not told", vec![3]),
        ];
        assert_eq!(sets, expected.map(|(name, all)| (name.to_owned(), all)));
    }
}
