//! What is made wrong, and how the survey should call it.

use super::cluster::{Cluster, DAEMONS, TARGETS};

/// Slow disks move between these bytes a second.
const DISK_RATES: [u64; 3] = [20_000_000, 30_000_000, 40_000_000];
/// Slow links carry so many megabits a second.
const LINK_RATES: [u32; 3] = [100, 200, 300];
/// Starved daemons get so many per cent of a processor: well below what a busy machine leaves to any.
const PROCESSOR_SHARES: [u32; 3] = [6, 9, 12];

/// What is wrong with the set-up.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Rig {
    /// Nothing: the control.
    Nothing,
    /// The disk under one target moves so many bytes a second.
    Target { index: usize, rate: u64 },
    /// The network of one node carries so many megabits a second.
    Network { index: usize, megabits: u32 },
    /// One daemon gets so many per cent of a processor.
    Processor { index: usize, percent: u32 },
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

    /// Any kind of rig.
    pub fn rig(&mut self) -> Rig {
        let kind = self.below(3);
        self.rig_of(kind)
    }

    /// A rig of a kind: 0 target, 1 network, 2 processor.
    pub fn rig_of(&mut self, kind: usize) -> Rig {
        let strength = self.below(3);
        match kind {
            0 => Rig::Target { index: self.below(TARGETS.len()), rate: DISK_RATES[strength] },
            1 => Rig::Network { index: self.below(DAEMONS.len()), megabits: LINK_RATES[strength] },
            _ => Rig::Processor { index: self.below(DAEMONS.len()), percent: PROCESSOR_SHARES[strength] },
        }
    }
}

impl Rig {
    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Target { index, rate } => {
                format!("disk of {}: {} MB/s", TARGETS[*index].alias, rate / 1_000_000)
            }
            Self::Network { index, megabits } => {
                format!("network of {}: {megabits} Mbit/s", DAEMONS[*index].alias)
            }
            Self::Processor { index, percent } => {
                format!("{}: {percent} % of a processor", DAEMONS[*index].alias)
            }
        }
    }

    /// Layer and member that the survey must name.
    pub fn expected(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Nothing => None,
            Self::Target { index, .. } => Some(("device", TARGETS[*index].alias)),
            Self::Network { index, .. } => Some(("network", DAEMONS[*index].alias)),
            Self::Processor { index, .. } => Some(("processor", DAEMONS[*index].alias)),
        }
    }

    /// Makes it so.
    pub fn apply(&self, cluster: &Cluster) -> Result<(), String> {
        match self {
            Self::Nothing => Ok(()),
            Self::Target { index, rate } => cluster.disk_rate(*index, *rate),
            Self::Network { index, megabits } => cluster.shape(*index, Some(*megabits)),
            Self::Processor { index, percent } => cluster.starve(*index, Some(*percent)),
        }
    }

    /// Takes it back.
    pub fn undo(&self, cluster: &Cluster) -> Result<(), String> {
        match self {
            Self::Nothing => Ok(()),
            Self::Target { index, .. } => cluster.disk_rate(*index, 0),
            Self::Network { index, .. } => cluster.shape(*index, None),
            Self::Processor { index, .. } => cluster.starve(*index, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: draws are repeatable, and every kind and member comes up.
    #[test]
    fn draws() {
        let all = |seed| {
            let mut draw = Draw::new(seed);
            (0..200).map(|_| draw.rig()).collect::<Vec<Rig>>()
        };
        assert_eq!(all(3), all(3));
        assert_ne!(all(3), all(4));
        let seen: std::collections::BTreeSet<String> =
            all(3).iter().filter_map(Rig::expected).map(|(layer, name)| format!("{layer} {name}")).collect();
        assert_eq!(seen.len(), TARGETS.len() + 2 * DAEMONS.len());
    }
}
