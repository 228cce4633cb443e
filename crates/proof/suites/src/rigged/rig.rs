//! What is made wrong, and how the survey should call it.

use super::cluster::{Cluster, DAEMONS, TARGETS};

/// Slow disks and links reach so many per cent of their likes: from broken to mild.
const SLOW: [u32; 2] = [3, 50];
/// Daemons with a quota get so many per cent of one processor.
const QUOTA: [u32; 2] = [6, 40];
/// This quota is in every draw that has a quota at all.
const QUOTA_ALWAYS: u32 = 20;
/// Of a short series: strong enough to be seen at once. From 12 % on a survey looks four times as long, to be sure.
const SHORT: [u32; 2] = [8, 10];
/// Busy neighbours: how many, their nice level, and the per cent of the processor that is left for the daemon
/// (a weight of 1024 beside the kernel's weights of their levels), from broken to mild.
const NEIGHBOURS: [(u32, i32, u32); 7] =
    [(2, -10, 5), (3, -5, 10), (2, -5, 14), (4, 0, 20), (1, -5, 25), (2, 0, 33), (4, 5, 43)];
/// Kinds of rigs.
const KINDS: usize = 4;

/// What is wrong with the set-up.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Rig {
    /// Nothing: the control.
    Nothing,
    /// The disk under one target reaches so many per cent of the others'.
    Target { index: usize, percent: u32 },
    /// The network of one node carries so many per cent of the others'.
    Network { index: usize, percent: u32 },
    /// One daemon has a quota of so many per cent of a processor.
    Quota { index: usize, percent: u32 },
    /// The switch drops large packets from and to one node, though every host sends them.
    Packets { index: usize },
    /// One daemon may run on one processor only, on which others are busy. There is no quota.
    Neighbours { index: usize, processor: usize, count: u32, nice: i32, left: u32 },
}

/// Draws set-ups; the same seed draws the same ones (splitmix64).
pub struct Draw(u64);

impl Draw {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }

    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        (1..count).rev().for_each(|at| all.swap(at, self.below(at + 1)));
        all
    }

    /// `count` numbers from `low` to `high`, one from each of as many equal parts, in any order.
    fn spread(&mut self, count: usize, [low, high]: [u32; 2]) -> Vec<u32> {
        /// Steps within a part.
        const FINE: usize = 1_000;
        let parts = self.shuffled(count);
        let width = (high - low + 1) as usize;
        parts
            .into_iter()
            .map(|at| low + ((at * FINE + self.below(FINE)) * width / (count * FINE)) as u32)
            .collect()
    }

    /// Rigs of all kinds in equal numbers (but for what four does not divide), in any order; the strengths of each
    /// kind are spread over its range.
    pub fn rigs(&mut self, runs: usize) -> Vec<Rig> {
        let mut all: Vec<Rig> = Vec::new();
        for kind in 0..KINDS {
            let count = runs / KINDS + usize::from(kind < runs % KINDS);
            all.extend(self.of_kind(kind, count));
        }
        self.shuffled(all.len()).into_iter().map(|at| all[at].clone()).collect()
    }

    /// A disk, a network, and a daemon that starves, of one kind or the other: what must be named on any machine that
    /// can run the test.
    pub fn short(&mut self) -> Vec<Rig> {
        let percent = self.spread(3, SHORT);
        let disk = Rig::Target { index: self.below(TARGETS.len()), percent: percent[0] };
        let network = Rig::Network { index: self.below(DAEMONS.len()), percent: percent[1] };
        let starved = match self.below(2) {
            0 => Rig::Quota { index: self.below(DAEMONS.len()), percent: percent[2] },
            _ => {
                let nearest = (0..NEIGHBOURS.len()).min_by_key(|at| NEIGHBOURS[*at].2.abs_diff(percent[2]));
                self.neighbours(nearest.unwrap_or_default())
            }
        };
        vec![disk, network, starved]
    }

    /// Large packets of one storage server are dropped: no matter of strength, so it is in no spread of strengths.
    pub fn packets(&mut self) -> Rig {
        Rig::Packets { index: 1 + self.below(DAEMONS.len() - 1) }
    }

    /// One of each kind, of any strength, in any order.
    pub fn one_of_each(&mut self) -> Vec<Rig> {
        self.shuffled(KINDS).into_iter().flat_map(|kind| self.of_kind(kind, 1)).collect()
    }

    fn of_kind(&mut self, kind: usize, count: usize) -> Vec<Rig> {
        let mut strengths = match kind {
            0 | 1 => self.spread(count, SLOW),
            2 => self.spread(count, QUOTA),
            _ => self.spread(count, [0, NEIGHBOURS.len() as u32 - 1]),
        };
        if kind == 2
            && let Some(nearest) = strengths.iter_mut().min_by_key(|percent| percent.abs_diff(QUOTA_ALWAYS))
        {
            *nearest = QUOTA_ALWAYS;
        }
        let rig = |strength| match kind {
            0 => Rig::Target { index: self.below(TARGETS.len()), percent: strength },
            1 => Rig::Network { index: self.below(DAEMONS.len()), percent: strength },
            2 => Rig::Quota { index: self.below(DAEMONS.len()), percent: strength },
            _ => self.neighbours(strength as usize),
        };
        strengths.into_iter().map(rig).collect()
    }

    fn neighbours(&mut self, strength: usize) -> Rig {
        let (count, nice, left) = NEIGHBOURS[strength];
        // On a processor that any machine has.
        Rig::Neighbours { index: self.below(DAEMONS.len()), processor: self.below(2), count, nice, left }
    }
}

impl Rig {
    /// For people: which kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing (control)",
            Self::Target { .. } => "disk of a target",
            Self::Network { .. } => "network of a node",
            Self::Packets { .. } => "large packets of a node",
            Self::Quota { .. } => "processor: quota",
            Self::Neighbours { .. } => "processor: neighbours",
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Target { index, percent } => {
                format!("disk of {}: {percent} % of its likes", TARGETS[*index].alias)
            }
            Self::Network { index, percent } => {
                format!("network of {}: {percent} % of its likes", DAEMONS[*index].alias)
            }
            Self::Packets { index } => format!("large packets of {}: dropped", DAEMONS[*index].alias),
            Self::Quota { index, percent } => {
                format!("{}: quota of {percent} % of a processor", DAEMONS[*index].alias)
            }
            Self::Neighbours { index, processor, count, nice, left } => format!(
                "{}: on processor {processor} with {count} busy neighbours at nice {nice}, which leave {left} %",
                DAEMONS[*index].alias
            ),
        }
    }

    /// Layer and member that the survey must name.
    pub fn expected(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Nothing => None,
            Self::Target { index, .. } => Some(("device", TARGETS[*index].alias)),
            Self::Network { index, .. } | Self::Packets { index } => Some(("network", DAEMONS[*index].alias)),
            Self::Quota { index, .. } | Self::Neighbours { index, .. } => {
                Some(("processor", DAEMONS[*index].alias))
            }
        }
    }

    /// Layers in which a short series looks: that of the culprit, and where it costs little one that suffers from it and
    /// must not be accused. `None`: in all.
    pub fn layers(&self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Target { .. } => Some("device,storage"),
            Self::Network { .. } | Self::Packets { .. } => Some("network"),
            Self::Quota { .. } | Self::Neighbours { .. } => Some("processor,storage"),
        }
    }

    /// Makes it so.
    pub fn apply(&self, cluster: &Cluster) -> Result<(), String> {
        match self {
            Self::Nothing => Ok(()),
            Self::Target { index, percent } => cluster.disk_rate(*index, *percent),
            Self::Network { index, percent } => cluster.shape(*index, *percent),
            Self::Packets { index } => cluster.packets(Some(*index)),
            Self::Quota { index, percent } => cluster.starve(*index, Some(*percent)),
            Self::Neighbours { index, processor, count, nice, .. } => {
                cluster.crowd(*index, *processor, *count, *nice)
            }
        }
    }

    /// Takes it back.
    pub fn undo(&self, cluster: &Cluster) -> Result<(), String> {
        match self {
            Self::Nothing => Ok(()),
            Self::Target { index, .. } => cluster.disk_rate(*index, 100),
            Self::Network { index, .. } => cluster.shape(*index, 100),
            Self::Packets { .. } => cluster.packets(None),
            Self::Quota { index, .. } => cluster.starve(*index, None),
            Self::Neighbours { index, .. } => cluster.alone(*index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn percent(rig: &Rig) -> u32 {
        match rig {
            Rig::Nothing | Rig::Packets { .. } => 100,
            Rig::Target { percent, .. } | Rig::Network { percent, .. } | Rig::Quota { percent, .. } => {
                *percent
            }
            Rig::Neighbours { left, .. } => *left,
        }
    }

    /// Goal: draws are repeatable, kinds are balanced, every kind has broken and mild rigs within its range, a
    /// quota of 20 % is among them, and every member comes up.
    #[test]
    fn draws() {
        assert_eq!(Draw::new(3).rigs(20), Draw::new(3).rigs(20));
        assert_ne!(Draw::new(3).rigs(20), Draw::new(4).rigs(20));
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let all = Draw::new(seed).rigs(20);
            let mut kinds: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
            all.iter().for_each(|rig| kinds.entry(rig.kind()).or_default().push(percent(rig)));
            for (kind, strengths) in &kinds {
                let (low, high) = (*strengths.iter().min().unwrap(), *strengths.iter().max().unwrap());
                assert!(strengths.len() == 5 && low <= 12 && high >= 33, "{seed}: {kind}: {strengths:?}");
                assert!(low >= 3 && high <= 50, "{seed}: {kind}: {strengths:?}");
            }
            let quota = &kinds["processor: quota"];
            assert!(kinds.len() == KINDS && quota.contains(&QUOTA_ALWAYS), "{seed}: {quota:?}");
            assert!(quota.iter().all(|percent| (QUOTA[0]..=QUOTA[1]).contains(percent)));
            seen.extend(all.iter().filter_map(Rig::expected));
        }
        assert_eq!(seen.len(), TARGETS.len() + 2 * DAEMONS.len());
    }

    /// Goal: a short series has a disk, a network and a starved daemon, all of them strong; both kinds of starving and
    /// every member come up.
    #[test]
    fn short_draws() {
        let (mut members, mut kinds) = (std::collections::BTreeSet::new(), BTreeMap::new());
        for seed in 0..100 {
            let all = Draw::new(seed).short();
            assert_eq!(all, Draw::new(seed).short());
            let layers: Vec<&str> = all.iter().filter_map(Rig::expected).map(|(layer, _)| layer).collect();
            assert_eq!(layers, ["device", "network", "processor"], "{seed}");
            assert!(all.iter().all(|rig| (SHORT[0]..=SHORT[1]).contains(&percent(rig))), "{seed}: {all:?}");
            all.iter().for_each(|rig| *kinds.entry(rig.kind()).or_insert(0) += 1);
            members.extend(all.iter().filter_map(Rig::expected));
        }
        assert_eq!((kinds.len(), members.len()), (KINDS, TARGETS.len() + 2 * DAEMONS.len()));
        assert!(kinds.values().all(|count| *count > 25), "{kinds:?}");
    }

    /// Goal: the shares that neighbours leave are those of the kernel's weights (a level is a factor of 1.25).
    #[test]
    fn weights() {
        for (count, nice, left) in NEIGHBOURS {
            let share = 100.0 / (1.0 + f64::from(count) * 1.25_f64.powi(-nice));
            assert!((share - f64::from(left)).abs() < 1.0, "{count} at {nice}: {share}");
        }
    }
}
