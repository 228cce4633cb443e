//! RAID levels: what is left of drives, what writing costs, what a failure costs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How the drives of one target are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Raid {
    /// One drive, or several concatenated; nothing is lost, nothing is protected.
    None,
    /// Striped without protection.
    Raid0,
    /// All drives hold the same.
    Raid1,
    /// Striped pairs.
    Raid10,
    /// One parity drive.
    Raid5,
    /// Two parity drives.
    Raid6,
    /// ZFS, one parity drive.
    Raidz1,
    /// ZFS, two parity drives.
    Raidz2,
    /// ZFS, three parity drives.
    Raidz3,
}

impl Raid {
    /// Drives that hold parity.
    pub fn parity(self) -> u32 {
        match self {
            Self::None | Self::Raid0 | Self::Raid1 | Self::Raid10 => 0,
            Self::Raid5 | Self::Raidz1 => 1,
            Self::Raid6 | Self::Raidz2 => 2,
            Self::Raidz3 => 3,
        }
    }

    /// Drives' worth of data that `drives` of them hold; also what full-stripe writing uses.
    pub fn data_drives(self, drives: u32) -> u32 {
        match self {
            Self::Raid1 => 1,
            Self::Raid10 => drives / 2,
            other => drives.saturating_sub(other.parity()),
        }
    }

    /// Drives' worth of sequential reading. Parity rotates, so every drive holds data and takes part;
    /// the documents reckon the same way (6 x 400 MB/s; 98.8 MB/s for each of 80 drives).
    pub fn reading_drives(self, drives: u32) -> u32 {
        drives
    }

    /// Operations that one small write costs. RAID 5 and 6 read and write data and each parity, each on a drive of its
    /// own; raidz reads the record and writes it anew, each on all drives at once.
    pub fn small_write_cost(self) -> u32 {
        match self {
            Self::None | Self::Raid0 => 1,
            Self::Raid1 | Self::Raid10 | Self::Raidz1 | Self::Raidz2 | Self::Raidz3 => 2,
            Self::Raid5 => 4,
            Self::Raid6 => 6,
        }
    }

    /// The fewest drives that make sense.
    pub fn least_drives(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Raid0 | Self::Raid1 => 2,
            Self::Raid5 | Self::Raidz1 => 3,
            Self::Raid10 | Self::Raid6 | Self::Raidz2 => 4,
            Self::Raidz3 => 5,
        }
    }

    /// Drives that may fail at the same time without loss, whichever they are.
    pub fn survives(self, drives: u32) -> u32 {
        match self {
            Self::None | Self::Raid0 => 0,
            Self::Raid1 => drives.saturating_sub(1),
            Self::Raid10 => 1,
            other => other.parity(),
        }
    }

    /// One of ZFS's own.
    pub fn is_zfs(self) -> bool {
        matches!(self, Self::Raidz1 | Self::Raidz2 | Self::Raidz3)
    }
}

impl fmt::Display for Raid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no RAID",
            Self::Raid0 => "RAID 0",
            Self::Raid1 => "RAID 1",
            Self::Raid10 => "RAID 10",
            Self::Raid5 => "RAID 5",
            Self::Raid6 => "RAID 6",
            Self::Raidz1 => "raidz1",
            Self::Raidz2 => "raidz2",
            Self::Raidz3 => "raidz3",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the counts of the levels are those everybody knows.
    #[test]
    fn levels() {
        assert_eq!((Raid::Raid6.data_drives(12), Raid::Raid6.survives(12)), (10, 2));
        assert_eq!((Raid::Raid1.data_drives(2), Raid::Raid1.survives(2)), (1, 1));
        assert_eq!((Raid::Raid10.data_drives(8), Raid::Raid10.survives(8)), (4, 1));
        assert_eq!((Raid::Raid0.data_drives(4), Raid::Raid0.survives(4)), (4, 0));
        assert_eq!(Raid::Raidz3.data_drives(2), 0, "too few drives leave nothing and do not underflow");
    }
}
