//! The choosers. What each one does is known from other systems under these names.

use super::Chooser;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{CapacityClass, NodeId, PoolId, TargetId};

/// A target that may be taken.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    pub target: TargetId,
    pub node: NodeId,
    /// What fails together with it.
    pub domain: u32,
    /// Free bytes.
    pub free: u64,
    /// How full it is.
    pub class: CapacityClass,
}

/// A stream of choices that a seed determines.
#[derive(Debug, Clone)]
pub struct Pick {
    state: u64,
    /// The last target used in turn, by pool.
    last: BTreeMap<PoolId, TargetId>,
    /// How often each domain and node was taken for the extent that is being made.
    domains: BTreeMap<u32, u32>,
    nodes: BTreeMap<NodeId, u32>,
}

impl Pick {
    /// Begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, last: BTreeMap::new(), domains: BTreeMap::new(), nodes: BTreeMap::new() }
    }

    /// The last target used in turn, by pool.
    pub fn turns(&self) -> BTreeMap<PoolId, TargetId> {
        self.last.clone()
    }

    /// What was chosen since [`Pick::turns`] gave these is not used.
    pub fn turn_back(&mut self, turns: BTreeMap<PoolId, TargetId>) {
        self.last = turns;
    }

    /// Another extent.
    pub fn begin(&mut self) {
        self.domains.clear();
        self.nodes.clear();
    }

    /// SplitMix64: any 64-bit state gives a full stream.
    fn random(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z % (below as u64).max(1)) as usize
    }

    /// Up to `wanted` different ones of `candidates`, which are in the order of their numbers.
    pub fn choose(
        &mut self,
        chooser: Chooser,
        pool: PoolId,
        candidates: &[Candidate],
        wanted: usize,
    ) -> Vec<TargetId> {
        let wanted = wanted.min(candidates.len());
        if wanted == 0 {
            return Vec::new();
        }
        match chooser {
            Chooser::Balanced => self.balanced(candidates.to_vec(), wanted),
            Chooser::Randomized => self.randomized(candidates, wanted),
            Chooser::RoundRobin => self.in_turn(pool, candidates, wanted),
            Chooser::RandomRobin => {
                let chosen = self.in_turn(pool, candidates, wanted);
                self.shuffled(chosen)
            }
            Chooser::RandomInterNode => self.inter_node(candidates, wanted),
        }
    }

    fn balanced(&mut self, mut rest: Vec<Candidate>, wanted: usize) -> Vec<TargetId> {
        let mut chosen = Vec::with_capacity(wanted);
        while chosen.len() < wanted && !rest.is_empty() {
            let at = self.weighed(&rest);
            let candidate = rest.swap_remove(at);
            *self.domains.entry(candidate.domain).or_default() += 1;
            *self.nodes.entry(candidate.node).or_default() += 1;
            chosen.push(candidate.target);
        }
        chosen
    }

    /// One of those in the least used domain, of these in the least used node, by free space.
    fn weighed(&mut self, rest: &[Candidate]) -> usize {
        let used = |candidate: &Candidate| {
            let domain = self.domains.get(&candidate.domain).copied().unwrap_or(0);
            (domain, self.nodes.get(&candidate.node).copied().unwrap_or(0))
        };
        let uses: Vec<(u32, u32)> = rest.iter().map(used).collect();
        let least = uses.iter().min().copied().unwrap_or_default();
        let fair: Vec<usize> = (0..rest.len()).filter(|at| uses.get(*at) == Some(&least)).collect();
        // In KiB, so that the sum of any number of targets fits.
        let weight = |at: usize| rest.get(at).map_or(1, |candidate| (candidate.free >> 10).max(1) as usize);
        let total = fair.iter().map(|at| weight(*at)).fold(0, usize::saturating_add);
        let mut ticket = self.random(total);
        for at in &fair {
            let weight = weight(*at);
            if ticket < weight {
                return *at;
            }
            ticket -= weight;
        }
        fair.first().copied().unwrap_or(0)
    }

    fn randomized(&mut self, ring: &[Candidate], wanted: usize) -> Vec<TargetId> {
        let count = ring.len();
        let start = self.random(count);
        let segment = |n: usize| n * count / wanted;
        let mut chosen = Vec::with_capacity(wanted);
        for n in 0..wanted {
            let at = start + segment(n) + self.random(segment(n + 1) - segment(n));
            chosen.extend(ring.get(at % count).map(|candidate| candidate.target));
        }
        chosen
    }

    fn in_turn(&mut self, pool: PoolId, candidates: &[Candidate], wanted: usize) -> Vec<TargetId> {
        let last = self.last.get(&pool).copied().unwrap_or_default();
        let first = candidates.partition_point(|candidate| candidate.target <= last);
        let ring = candidates.iter().cycle().skip(first);
        let chosen: Vec<TargetId> = ring.take(wanted).map(|candidate| candidate.target).collect();
        if let Some(last) = chosen.last() {
            self.last.insert(pool, *last);
        }
        chosen
    }

    fn shuffled(&mut self, mut targets: Vec<TargetId>) -> Vec<TargetId> {
        for at in (1..targets.len()).rev() {
            let with = self.random(at + 1);
            targets.swap(at, with);
        }
        targets
    }

    fn inter_node(&mut self, candidates: &[Candidate], wanted: usize) -> Vec<TargetId> {
        let mut groups: BTreeMap<u32, Vec<TargetId>> = BTreeMap::new();
        for candidate in candidates {
            groups.entry(candidate.domain).or_default().push(candidate.target);
        }
        let mut groups: Vec<Vec<TargetId>> = groups.into_values().collect();
        let mut at = self.random(groups.len());
        let mut chosen = Vec::with_capacity(wanted);
        while chosen.len() < wanted {
            let count = groups.len();
            // Every group once, then what is left of them, from the same start.
            let Some(group) = groups.get_mut(at % count) else { break };
            if !group.is_empty() {
                let len = group.len();
                chosen.push(group.swap_remove(self.random(len)));
            }
            at += 1;
        }
        chosen
    }
}
