//! Who is measured side by side: daemons, targets, one daemon per host for its network.

use skep_survey::model::Part;
use skep_types::{Reachability, ServiceKind};
use skep_wire::mgmt::{NodeEntry, StatusReply, TargetEntry};

/// Daemons and targets that can be reached.
pub struct Members {
    /// Every daemon.
    pub nodes: Vec<NodeEntry>,
    /// Every target, with its daemon's place in `nodes`.
    pub targets: Vec<(TargetEntry, usize)>,
}

impl Members {
    /// From what mgmtd knows.
    pub fn of(status: &StatusReply) -> Self {
        let online = |node: &&NodeEntry| node.reachability == Reachability::Online;
        let nodes: Vec<NodeEntry> =
            status.nodes.iter().map(|one| &one.node).filter(online).cloned().collect();
        let owner = |target: &TargetEntry| nodes.iter().position(|node| node.node == target.node);
        let targets = status.targets.iter().filter_map(|t| Some((t.clone(), owner(t)?))).collect();
        Self { nodes, targets }
    }

    /// One daemon of every host, storage daemons first; all daemons when there is one host only.
    pub fn representatives(&self) -> Vec<&NodeEntry> {
        let mut ordered: Vec<&NodeEntry> = self.nodes.iter().collect();
        ordered.sort_by_key(|node| match node.service {
            ServiceKind::Storaged => 0,
            ServiceKind::Metad => 1,
            ServiceKind::Mgmtd => 2,
        });
        let first =
            |(at, node): (usize, &&NodeEntry)| !ordered[..at].iter().any(|n| n.machine == node.machine);
        let chosen: Vec<&NodeEntry> = ordered
            .iter()
            .enumerate()
            .filter(|(at, node)| first((*at, node)))
            .map(|(_, node)| *node)
            .collect();
        if chosen.len() > 1 { chosen } else { ordered }
    }

    /// What belongs to what.
    pub fn parts(&self) -> Vec<Part> {
        let part = |(target, node): &(TargetEntry, usize)| Part {
            name: target.alias.clone(),
            part_of: self.nodes[*node].alias.clone(),
        };
        self.targets.iter().map(part).collect()
    }
}
