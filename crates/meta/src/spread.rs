//! Choosers: which targets get the chunks of a file.

use crate::limit::PROGRESSIVE_TARGETS_MAX;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use skep_types::{Code, Consistency, Errno, Extent, Generation, Ino, NodeId, Policy, Reachability, TargetId};
use skep_wire::mgmt::MapReply;
use skep_wire::{Refusal, Status};

/// How targets are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chooser {
    /// Weighted by free space, spread over nodes.
    Balanced,
    /// Any, each equally likely.
    Randomized,
}

/// Extents of a progressive layout: end, targets.
const PROGRESSION: [(u64, usize); 3] = [(16 << 20, 1), (1 << 30, 4), (u64::MAX, PROGRESSIVE_TARGETS_MAX)];

#[derive(Debug, Clone, Copy)]
struct Candidate {
    target: TargetId,
    node: NodeId,
    free: u64,
}

/// The targets of the cluster, and a stream of choices that a seed determines.
#[derive(Debug, Clone)]
pub struct Spread {
    chooser: Chooser,
    reserve: u64,
    chunk_size: u32,
    stripe_targets: u32,
    state: u64,
    usable: Vec<Candidate>,
    /// Targets that would do, were their daemons heard.
    silent: usize,
    known: usize,
}

/// What a new extent continues.
#[derive(Debug, Clone, Copy)]
pub struct Continue {
    /// The file.
    pub ino: Ino,
    /// Its layout generation.
    pub generation: Generation,
    /// First byte that is not covered.
    pub from: u64,
    /// The layout must reach this.
    pub to: u64,
}

impl Spread {
    /// Knows no target yet.
    pub fn new(config: &crate::Config) -> Self {
        let mut seed = [0; 8];
        seed.copy_from_slice(&config.seed[..8]);
        Self {
            chooser: config.chooser,
            reserve: config.target_reserve,
            chunk_size: config.chunk_size,
            stripe_targets: config.stripe_targets,
            state: u64::from_le_bytes(seed),
            usable: Vec::new(),
            silent: 0,
            known: 0,
        }
    }

    /// Takes over states and free space from the map.
    pub fn update(&mut self, map: &MapReply) {
        self.known = map.targets.len();
        let on = |wanted: Reachability| {
            let heard = |id: NodeId| map.nodes.iter().any(|n| n.node == id && n.reachability == wanted);
            let fit = map.targets.iter().filter(|target| target.consistency == Consistency::Good);
            fit.filter(|target| target.capacity.bytes_free > self.reserve)
                .filter(|target| heard(target.node))
                .map(|target| Candidate {
                    target: target.target,
                    node: target.node,
                    free: target.capacity.bytes_free,
                })
                .collect::<Vec<_>>()
        };
        let online = on(Reachability::Online);
        // A restarted mgmtd has heard nobody yet: that is no reason to refuse.
        let usable = if online.is_empty() { on(Reachability::ProbablyOffline) } else { online };
        self.silent = on(Reachability::Offline).len();
        self.usable = usable;
    }

    /// SplitMix64: any 64-bit state gives a full stream.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Extents from `at.from` until `at.to` is covered.
    pub fn extents(&mut self, policy: Option<Policy>, at: Continue) -> Result<Vec<Extent>, Refusal> {
        let policy = policy.unwrap_or_default();
        let chunk_size = if policy.chunk_size == 0 { self.chunk_size } else { policy.chunk_size };
        let wanted = if policy.targets == 0 { self.stripe_targets } else { policy.targets };
        let plan: &[(u64, usize)] = if wanted == 0 { &PROGRESSION } else { &[(u64::MAX, wanted as usize)] };
        let mut extents = Vec::new();
        let mut start = at.from;
        for (end, width) in plan {
            if *end > start && start < at.to {
                let (origin, generation, code) = (at.ino, at.generation, Code::Raid0);
                let targets = self.choose(*width)?;
                extents.push(Extent { start, end: *end, origin, generation, code, chunk_size, targets });
                start = *end;
            }
        }
        Ok(extents)
    }

    /// Up to `width` different targets; at least one, or ENOSPC; BUSY when some would do but are silent,
    /// or when the map is so young that it names none.
    pub fn choose(&mut self, width: usize) -> Result<Vec<TargetId>, Refusal> {
        if self.usable.is_empty() && self.silent > 0 {
            let text = format!(
                "{} targets have room, but their daemons are silent (see `skep health`)",
                self.silent
            );
            return Err(Refusal::with(Status::BUSY, text));
        }
        if self.known == 0 {
            let text = "no target has registered yet: start skep storaged (see `skep target list`)";
            return Err(Refusal::with(Status::BUSY, text));
        }
        if self.usable.is_empty() {
            return Err(Refusal::with(
                Status::errno(Errno::ENOSPC),
                format!(
                    "none of the cluster's {} targets takes new data: each is full, bad or offline \
                     (see `skep target list`)",
                    self.known
                ),
            ));
        }
        let mut rest = self.usable.clone();
        let mut per_node: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut chosen = Vec::new();
        while chosen.len() < width && !rest.is_empty() {
            let at = self.pick(&rest, &per_node);
            let candidate = rest.swap_remove(at);
            *per_node.entry(candidate.node).or_default() += 1;
            chosen.push(candidate.target);
        }
        Ok(chosen)
    }

    fn pick(&mut self, rest: &[Candidate], per_node: &BTreeMap<NodeId, u32>) -> usize {
        if self.chooser == Chooser::Randomized {
            return (self.random() % rest.len() as u64) as usize;
        }
        let used = |candidate: &Candidate| per_node.get(&candidate.node).copied().unwrap_or(0);
        let least = rest.iter().map(used).min().unwrap_or(0);
        // In KiB, so that the sum of any number of targets fits.
        let weight = |candidate: &Candidate| (candidate.free >> 10).max(1);
        let total: u64 = rest.iter().filter(|c| used(c) == least).map(weight).fold(0, u64::saturating_add);
        let mut ticket = self.random() % total.max(1);
        for (at, candidate) in rest.iter().enumerate().filter(|(_, c)| used(c) == least) {
            let weight = weight(candidate);
            if ticket < weight {
                return at;
            }
            ticket -= weight;
        }
        rest.iter().position(|c| used(c) == least).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;
    use skep_types::{Capacity, ClusterId, Incarnation, MapVersion, ServiceKind, Uuid};
    use skep_wire::mgmt::{NodeEntry, TargetEntry};

    fn map(targets: &[(u32, u32, u64, Consistency)], offline: &[u32]) -> MapReply {
        let mut nodes: Vec<u32> = targets.iter().map(|t| t.1).collect();
        nodes.dedup();
        let node = |node: u32| NodeEntry {
            domain: String::new(),
            node: NodeId(node),
            service: ServiceKind::Storaged,
            alias: String::new(),
            addresses: vec![],
            machine: Uuid::default(),
            reachability: if offline.contains(&node) { Reachability::Offline } else { Reachability::Online },
            incarnation: Incarnation(1),
        };
        MapReply {
            pools: Vec::new(),
            version: MapVersion(1),
            cluster: ClusterId::default(),
            nodes: nodes.into_iter().map(node).collect(),
            targets: targets
                .iter()
                .map(|(target, node, free, consistency)| TargetEntry {
                    class: skep_types::CapacityClass::Normal,
                    filesystem: 0,
                    pool: skep_types::PoolId(1),
                    target: TargetId(*target),
                    alias: String::new(),
                    node: NodeId(*node),
                    consistency: *consistency,
                    capacity: Capacity { bytes: 1 << 40, bytes_free: *free, inodes: 1, inodes_free: 1 },
                })
                .collect(),
            shards: vec![],
            command_level: 1,
        }
    }

    fn spread(map: &MapReply) -> Spread {
        let mut spread = Spread::new(&crate::Config::default());
        spread.update(map);
        spread
    }

    /// Goal: targets that are bad, offline or full get nothing; none left is ENOSPC with advice.
    #[test]
    fn unusable_targets_are_skipped() {
        use Consistency::{Bad, Good, NeedsResync};
        let map = map(
            &[(1, 1, 9, Good), (2, 1, 9, Bad), (3, 2, 9, Good), (4, 3, 0, Good), (5, 4, 9, NeedsResync)],
            &[2],
        );
        for _ in 0..50 {
            assert_eq!(spread(&map).choose(4).unwrap(), [TargetId(1)]);
        }
        let full = self::map(&[(2, 1, 9, Bad), (4, 3, 0, Good)], &[]);
        let refusal = spread(&full).choose(1).unwrap_err();
        assert_eq!(refusal.status, Status::errno(Errno::ENOSPC));
        assert!(refusal.detail.contains("target list"));
    }

    /// Goal: a metadata server that has not heard of any target yet waits: nothing is full.
    #[test]
    fn targets_that_are_not_known_yet_are_waited_for() {
        let mut young = Spread::new(&crate::Config::default());
        assert_eq!(young.choose(1).unwrap_err().status, Status::BUSY);
        young.update(&map(&[(1, 1, 9, Consistency::Good)], &[]));
        assert_eq!(young.choose(1).unwrap(), [TargetId(1)]);
    }

    /// Goal: while nobody was heard lately targets are used all the same; silent for long, they are
    /// waited for, which is no lack of space.
    #[test]
    fn silence_is_no_lack_of_space() {
        let mut map = map(&[(1, 1, 9, Consistency::Good)], &[]);
        for node in &mut map.nodes {
            node.reachability = Reachability::ProbablyOffline;
        }
        assert_eq!(spread(&map).choose(1).unwrap(), [TargetId(1)]);
        for node in &mut map.nodes {
            node.reachability = Reachability::Offline;
        }
        assert_eq!(spread(&map).choose(1).unwrap_err().status, Status::BUSY);
    }

    /// Goal: balanced follows free space, and uses every node before any node twice.
    #[test]
    fn balanced_weighs_space_and_spreads_over_nodes() {
        use Consistency::Good;
        let map = map(&[(1, 1, 9 << 30, Good), (2, 1, 9 << 30, Good), (3, 2, 1 << 30, Good)], &[]);
        let mut spread = spread(&map);
        let mut third = 0;
        for _ in 0..1_000 {
            third += u32::from(spread.choose(1).unwrap() == [TargetId(3)]);
        }
        assert!((20..120).contains(&third), "about 1 of 19 expected, got {third} of 1000");
        for _ in 0..50 {
            assert!(spread.choose(2).unwrap().contains(&TargetId(3)), "one target of each node");
        }
    }

    /// Goal: progressive extents end where they should, continue one another, and never repeat a
    /// target within one extent; an explicit width is one extent.
    #[test]
    fn extents_follow_the_plan() {
        use Consistency::Good;
        let targets: Vec<_> = (1..=6u32).map(|n| (n, n.div_ceil(2), 1 << 30, Good)).collect();
        let mut spread = spread(&map(&targets, &[]));
        let at = Continue { ino: Ino(9), generation: Generation(3), from: 0, to: 1 };
        let first = spread.extents(None, at).unwrap();
        assert_eq!((first.len(), first[0].end, first[0].targets.len()), (1, 16 << 20, 1));
        let rest = spread.extents(None, Continue { from: 16 << 20, to: (1 << 30) + 1, ..at }).unwrap();
        assert_eq!((rest[0].start, rest[0].targets.len()), (16 << 20, 4));
        assert_eq!((rest[1].end, rest[1].targets.len()), (u64::MAX, 6));
        for extent in &rest {
            let mut targets = extent.targets.clone();
            targets.sort();
            targets.dedup();
            assert_eq!(targets.len(), extent.targets.len());
        }
        let wish = Policy { pool: skep_types::PoolId(0), chunk_size: 65_536, targets: 3, inline_limit: None };
        let fixed = spread.extents(Some(wish), at).unwrap();
        assert_eq!((fixed.len(), fixed[0].end, fixed[0].targets.len()), (1, u64::MAX, 3));
    }
}
