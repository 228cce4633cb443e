//! Documents that recommend settings, and how they are cited.

use crate::finding::Source;

/// Built from a short name and what the document says.
const fn of(name: &'static str, says: &'static str) -> Source {
    Source { name, says }
}

/// BeeGFS Benchmarks on HP Apollo 4200 Gen9, 2015.
pub const fn hp(says: &'static str) -> Source {
    of("BeeGFS on HP Apollo 4200 (2015)", says)
}

/// BeeGFS Sizing and Tuning, 2022: the general slides.
pub const fn slides(says: &'static str) -> Source {
    of("BeeGFS Sizing and Tuning (2022)", says)
}

/// The same: its example of an NVMe system.
pub const fn slides_nvme(says: &'static str) -> Source {
    of("BeeGFS Sizing and Tuning (2022), NVMe example", says)
}

/// Dell EMC Ready Solutions for HPC BeeGFS Storage, ID 347, 2020.
pub const fn dell_2020(says: &'static str) -> Source {
    of("Dell EMC ID 347 (2020)", says)
}

/// HPC Scratch Storage with BeeGFS, Dell, 2021.
pub const fn dell_2021(says: &'static str) -> Source {
    of("Dell HPC Scratch Storage (2021)", says)
}

/// doc.beegfs.io, tuning pages of release 8.
pub const fn guide(says: &'static str) -> Source {
    of("BeeGFS documentation (8.x)", says)
}

/// Documentation or source of Linux.
pub const fn linux(says: &'static str) -> Source {
    of("Linux", says)
}

/// Manual pages of XFS.
pub const fn xfs(says: &'static str) -> Source {
    of("xfs(5), mkfs.xfs(8)", says)
}

/// docs/ of Skep.
pub const fn skep(says: &'static str) -> Source {
    of("Skep", says)
}
