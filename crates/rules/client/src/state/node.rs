//! Lives of metadata servers: a new life has forgotten what is open and must be told again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use skep_types::{Incarnation, Millis, NodeId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reclaim {
    /// It knows what we hold open.
    Done,
    /// It is heard for the first time. It may wait for this mount all the same: whoever had a session when it began is to
    /// report.
    First,
    /// It must be told.
    Needed,
    /// A lane is telling it; what it tells may not be all.
    Running { again: bool },
}

/// A server that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// When the first request began that was not answered.
    pub since: Millis,
    /// What the network said.
    pub why: String,
}

/// What a mount knows of the lives of its metadata servers.
#[derive(Debug, Default)]
pub struct Nodes {
    lives: BTreeMap<NodeId, (Incarnation, Reclaim)>,
    silent: BTreeMap<NodeId, Silence>,
    outcomes: BTreeMap<NodeId, u64>,
}

impl Nodes {
    /// `node` was heard in life `incarnation`. Says whether that is a new life, which must be told.
    pub fn heard(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        match self.lives.get_mut(&node) {
            None => {
                self.lives.insert(node, (incarnation, Reclaim::First));
                true
            }
            Some(life) if life.0 < incarnation => {
                *life = (incarnation, Reclaim::Needed);
                true
            }
            Some(_) => false,
        }
    }

    /// An open or a lock was answered by `node` in life `incarnation`. When a newer life is known already
    /// (`true`), its list was sent without this one and must be sent again.
    pub fn opened(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        match self.lives.get_mut(&node) {
            Some(life) if life.0 > incarnation => {
                // Not two at once: the older report could come last.
                life.1 = match life.1 {
                    Reclaim::Running { .. } => Reclaim::Running { again: true },
                    _ => Reclaim::Needed,
                };
                true
            }
            _ => false,
        }
    }

    /// Must `node` be told what is open? The caller that gets `true` does it and reports by
    /// [`Nodes::reclaimed`]; the others go on, which is safe: in its grace period a shard treats every
    /// file as open elsewhere.
    pub fn begin_reclaim(&mut self, node: NodeId) -> bool {
        match self.lives.get_mut(&node) {
            Some(life) if life.1 == Reclaim::Needed => {
                life.1 = Reclaim::Running { again: false };
                true
            }
            _ => false,
        }
    }

    /// As [`Nodes::begin_reclaim`], also of a server that is heard for the first time: no request has to wait for that.
    pub fn begin_report(&mut self, node: NodeId) -> bool {
        if let Some(life) = self.lives.get_mut(&node)
            && life.1 == Reclaim::First
        {
            life.1 = Reclaim::Needed;
        }
        self.begin_reclaim(node)
    }

    /// Is a report to `node` on its way?
    pub fn is_told_now(&self, node: NodeId) -> bool {
        self.lives.get(&node).is_some_and(|life| matches!(life.1, Reclaim::Running { .. }))
    }

    /// The newest known life of `node`.
    pub fn life(&self, node: NodeId) -> Option<Incarnation> {
        self.lives.get(&node).map(|life| life.0)
    }

    /// The reclaim that was begun for `told` has ended.
    pub fn reclaimed(&mut self, node: NodeId, told: Option<Incarnation>, ok: bool) {
        if let Some((life, state)) = self.lives.get_mut(&node)
            && let Reclaim::Running { again } = *state
            && told == Some(*life)
        {
            *state = if ok && !again { Reclaim::Done } else { Reclaim::Needed };
        }
    }

    /// The life of `node` that knows all that this mount has open.
    pub fn told(&self, node: NodeId) -> Option<Incarnation> {
        self.lives.get(&node).filter(|life| life.1 == Reclaim::Done).map(|life| life.0)
    }

    /// Outcomes of waiting locks that `node` has told, up to this number.
    pub fn outcomes(&self, node: NodeId) -> u64 {
        self.outcomes.get(&node).copied().unwrap_or(0)
    }

    /// Outcomes up to `number` have been taken in. (Each life of a server counts on from the one before.)
    pub fn confirm_outcomes(&mut self, node: NodeId, number: u64) {
        let known = self.outcomes.entry(node).or_default();
        *known = number.max(*known);
    }

    /// A new session: servers number its outcomes anew.
    pub fn forget_outcomes(&mut self) {
        self.outcomes.clear();
    }

    /// `node` has not answered since `since`, for this reason. Says whether that is news.
    pub fn silent(&mut self, node: NodeId, since: Millis, why: impl FnOnce() -> String) -> bool {
        let known = self.silent.contains_key(&node);
        if !known {
            self.silent.insert(node, Silence { since, why: why() });
        }
        !known
    }

    /// `node` answered. Says whether it had been silent.
    pub fn answers(&mut self, node: NodeId) -> bool {
        !self.silent.is_empty() && self.silent.remove(&node).is_some()
    }

    /// Nodes that somebody waits for.
    pub fn silences(&self) -> impl Iterator<Item = (NodeId, &Silence)> {
        self.silent.iter().map(|(node, silence)| (*node, silence))
    }

    /// Nodes that must be told.
    pub fn needing(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.lives
            .iter()
            .filter(|(_, life)| matches!(life.1, Reclaim::First | Reclaim::Needed))
            .map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each life is told once, the first one too; an open answered by the old life late asks for it again.
    #[test]
    fn a_new_life_is_told_once() {
        let (node, mut nodes) = (NodeId(3), Nodes::default());
        let life = |number| Some(Incarnation(number));
        assert!(nodes.heard(node, Incarnation(1)));
        assert!(!nodes.begin_reclaim(node), "no request waits for that");
        assert!(nodes.begin_report(node), "it may wait for this mount");
        nodes.reclaimed(node, life(1), true);
        assert!(!nodes.begin_reclaim(node));
        assert!(nodes.heard(node, Incarnation(2)));
        assert!(!nodes.heard(node, Incarnation(1)), "a late answer of the old life");
        assert!(nodes.begin_reclaim(node));
        assert!(!nodes.begin_reclaim(node), "one lane does it");
        nodes.reclaimed(node, life(1), false);
        assert!(
            !nodes.begin_reclaim(node),
            "a lane tells this life, whatever becomes of the report to the one before"
        );
        nodes.reclaimed(node, life(2), false);
        assert!(nodes.begin_reclaim(node), "it failed: again");
        nodes.opened(node, Incarnation(1));
        assert!(!nodes.begin_reclaim(node), "not beside the one that runs");
        nodes.reclaimed(node, life(2), true);
        assert!(nodes.begin_reclaim(node), "an open was missing in the list");
        nodes.reclaimed(node, life(2), true);
        assert_eq!(nodes.needing().count(), 0);
    }
}
