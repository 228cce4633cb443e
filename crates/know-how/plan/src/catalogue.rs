//! What components deliver, each figure with its source, and sets of figures for known systems.
//!
//! Sources are the documents this program was checked against, by the number of the document:
//! 000 BeeGFS on HP Apollo 4200 (2015), 001 BeeGFS Sizing and Tuning (2022), 002 Dell HPC BeeGFS Storage
//! (2020), 003 Dell validated design for BeeGFS (2021), 004 ClusterStor 6000 (Kling Petersen, Fragalla).
//! What no document gives says "assumed".

mod drives;

pub use drives::{Drive, DriveKind, DriveUsed, Streaming};

use crate::forward::{Direction, Efficiency};
use crate::hardware::{Connections, DriveOverride, Hardware, Pcie, Software};
use crate::measured::{self, per_second};
use crate::units::{MIB, Rate, Size};
use serde::Serialize;

/// A rate and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Component {
    /// Its name.
    pub name: String,
    /// What one delivers in one direction.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub rate: Rate,
    /// Where this comes from.
    pub source: String,
}

/// Links and controllers: name, GB/s, source.
type ComponentLine = (&'static str, f64, &'static str);

/// Ethernet above 10 Gbit/s is taken at 80 % of its line rate and InfiniBand above EDR at 88 %, as the
/// document has it for 10 GbE (1 of 1.25 GB/s) and EDR (11 of 12.5 GB/s).
const NICS: [ComponentLine; 14] = [
    ("10gbe", 1.0, "001, table of component throughputs: 10 GbE"),
    ("25gbe", 2.5, "80 % of the line rate, as 10 GbE in 001"),
    ("40gbe", 4.0, "80 % of the line rate, as 10 GbE in 001"),
    ("50gbe", 5.0, "80 % of the line rate, as 10 GbE in 001"),
    ("100gbe", 10.0, "80 % of the line rate, as 10 GbE in 001"),
    ("200gbe", 20.0, "80 % of the line rate, as 10 GbE in 001"),
    ("400gbe", 40.0, "80 % of the line rate, as 10 GbE in 001"),
    ("ddr", 1.5, "001, table of component throughputs: Mellanox DDR"),
    ("qdr", 3.0, "001, table of component throughputs: Mellanox QDR"),
    ("fdr", 6.0, "001, table of component throughputs: Mellanox FDR"),
    ("edr", 11.0, "001, table of component throughputs: Mellanox EDR"),
    ("hdr100", 11.0, "88 % of the line rate, as EDR in 001"),
    ("hdr", 22.0, "88 % of the line rate, as EDR in 001"),
    ("ndr", 44.0, "88 % of the line rate, as EDR in 001"),
];

const CONTROLLERS: [ComponentLine; 2] = [
    ("controller", 2.5, "001, table of component throughputs: disk controller"),
    ("hba", 7.88, "host bus adapter without RAID: its slot, 8 PCIe 3 lanes of 985 MB/s (002, section 3.6)"),
];

/// What one core copies.
const CORE_COPY: (Rate, &str) =
    (Rate(4600.0 * MIB), "docs/bench/README.md: 4600 MiB/s read from tmpfs by one process on one core");

/// Figures of a known system, which come before the general ones.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// What `preset =` calls it.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    nics: &'static [ComponentLine],
    controllers: &'static [ComponentLine],
    /// Writing and reading, of whatever limits; `None`: only rates of data sheets are not reached.
    efficiency: Option<[(f64, &'static str); 2]>,
}

/// Source of what the description itself says.
const OWN: &str = "the description's own";
/// Nothing is lost between the limit and what programs see.
pub const WHOLE: &str = "the rates that limit are conservative points of reference already (001)";
const ABOVE_TARGETS: &str = "no loss above the targets is assumed; 004 measures both sides of it";
const WRITE_2020: (f64, &str) =
    (120.7 / 136.4, "002, figure 10: 120.7 GB/s written through 136.4 GB/s of links");
const READ_2020: (f64, &str) = (132.4 / 136.4, "002, figure 10: 132.4 GB/s read through 136.4 GB/s of links");

const MEASURED_2020: [(f64, &str); 2] = [WRITE_2020, READ_2020];

/// All presets; the first one holds when none is named.
pub const PRESETS: [Preset; 5] = [
    Preset {
        name: "conservative",
        about: "001's table of component throughputs",
        nics: &[],
        controllers: &[],
        efficiency: None,
    },
    Preset {
        name: "hp-apollo-2015",
        about: "000: one HP Apollo 4200, two RAID controllers, FDR",
        nics: &[],
        controllers: &[
            ("p440", 2.5, "001, table of component throughputs: disk controller"),
            ("p840ar", 2.5, "001, table of component throughputs: disk controller"),
        ],
        efficiency: Some([(1.0, WHOLE), (1.0, WHOLE)]),
    },
    Preset {
        name: "clusterstor-6000",
        about: "004: Lustre on 84-drive enclosures with two servers each, FDR",
        nics: &[],
        controllers: &[],
        efficiency: Some([(1.0, ABOVE_TARGETS), (1.0, ABOVE_TARGETS)]),
    },
    Preset {
        name: "dell-2020",
        about: "002: R740xd servers, 24 NVMe drives behind PCIe switches, two EDR links",
        nics: &[("edr", 12.4, "002, section 4.1: 12.4 GB/s for an EDR link")],
        controllers: &[],
        efficiency: Some(MEASURED_2020),
    },
    Preset {
        name: "dell-2021",
        about: "003: R750 servers, 16 or 24 NVMe drives, two HDR links; efficiencies of its predecessor",
        nics: &[
            ("hdr", 25.0, "003, Findings: 25 GB/s for an HDR link"),
            ("hdr100", 12.5, "003, Table 1: 100 Gb/s"),
        ],
        controllers: &[],
        efficiency: Some(MEASURED_2020),
    },
];

/// What the software costs and what it cannot exceed. `None`: nothing is known, so nothing is predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Files created per second by one metadata core.
    pub creates_per_core: Option<f64>,
    /// Stats per second by one metadata core.
    pub stats_per_core: Option<f64>,
    /// Files removed per second by one metadata core.
    pub removes_per_core: Option<f64>,
    /// Random 4 KiB reads per second by one storage core.
    pub random_reads_per_core: Option<f64>,
    /// Random 4 KiB writes per second by one storage core.
    pub random_writes_per_core: Option<f64>,
    /// Bytes per second that one storage core reads for clients.
    pub read_per_core: Option<Rate>,
    /// Bytes per second that one storage core writes for clients.
    pub write_per_core: Option<Rate>,
    /// One shared file, written: what one data path (a server's link with the service behind it) carries.
    pub shared_write_per_path: Option<Rate>,
    /// The same, read.
    pub shared_read_per_path: Option<Rate>,
    /// One shared file as part of the same load on a file per process.
    pub shared_part: f64,
    /// Metadata bytes of one file.
    pub bytes_per_file: f64,
    /// Where `bytes_per_file` comes from.
    pub bytes_per_file_source: &'static str,
    /// Where the operations on names come from.
    pub names_source: &'static str,
    /// Where the random operations come from.
    pub random_source: &'static str,
    /// Where the figures of one shared file come from, and for what they hold.
    pub shared_source: &'static str,
}

/// 001 and 003: "512 GB of metadata capacity is usually good for about 150 million user files".
pub const RULE_BYTES: f64 = 512e9;
/// The files that [`RULE_BYTES`] are for.
pub const RULE_FILES: f64 = 150e6;

/// Creates per second and core of BeeGFS: 40,785 by 12 cores.
const BEEGFS_CREATES: f64 = 40_785.0 / 12.0;
const BEEGFS_STATS: f64 = 143_129.0 / 12.0;
const BEEGFS_REMOVES: f64 = 126_000.0 / 28.0;
/// Cores of 002 that serve file contents: 5 servers of 48 and one half.
const CORES_2020: f64 = 264.0;
/// Links of 002 that carry file contents.
const PATHS_2020: f64 = 11.0;

/// Bytes of an empty file in the row store: 24.4 MB after 100,000 creates and a stop, compressed, names of 20 bytes.
const SKEP_ROW_BYTES: f64 = 244.0;
const NOT_MEASURED: &str = "no document of the catalogue measures it";

impl Costs {
    /// What is known about a file system.
    pub fn of(software: Software) -> Self {
        match software {
            Software::Skep => Self {
                creates_per_core: measured::shipped().map(|us| per_second(us.create)),
                stats_per_core: measured::shipped().map(|us| per_second(us.stat)),
                removes_per_core: measured::shipped().map(|us| per_second(us.remove)),
                random_reads_per_core: measured::shipped().map(|us| per_second(us.random_read)),
                random_writes_per_core: measured::shipped().map(|us| per_second(us.random_write)),
                read_per_core: measured::shipped().map(|us| Rate(MIB * per_second(us.read_mib))),
                write_per_core: measured::shipped().map(|us| Rate(MIB * per_second(us.write_mib))),
                shared_write_per_path: None,
                shared_read_per_path: None,
                shared_part: 0.91,
                bytes_per_file: 2.0 * SKEP_ROW_BYTES,
                bytes_per_file_source: "measured: 244 for an empty file in the row store (100,000 of them), doubled \
                                        for compaction; contents of files up to 8 KiB come on top",
                names_source: measured::SOURCE,
                random_source: measured::SOURCE,
                shared_source: "measured on two cores, docs/bench/README.md: the least of 12 with everything on one core. Not \
                                measured with more cores, servers or clients; free to move on those two, four writers of one \
                                file got 63 %, where the tmpfs beneath got 49 %",
            },
            Software::Beegfs => Self {
                creates_per_core: Some(BEEGFS_CREATES),
                stats_per_core: Some(BEEGFS_STATS),
                removes_per_core: Some(BEEGFS_REMOVES),
                random_reads_per_core: Some(3.5e6 / CORES_2020),
                random_writes_per_core: Some(3.6e6 / CORES_2020),
                read_per_core: None,
                write_per_core: None,
                shared_write_per_path: Some(Rate::gb(37.4 / PATHS_2020)),
                shared_read_per_path: Some(Rate::gb(66.3 / PATHS_2020)),
                shared_part: 1.0,
                bytes_per_file: RULE_BYTES / RULE_FILES,
                bytes_per_file_source: "003: 512 GB per 150 million files",
                names_source: "creates, stats: 000, Table 4, 12 cores; removes: 003, Table 10, 28 cores",
                random_source: "002, section 4.3, 264 cores",
                shared_source: "002, section 4.2, 11 paths; two papers of one maker: it carried over to 003 within 4 % writing and \
                                13 % reading. Holds for NVMe servers with 5 to 11 links of 12 to 25 GB/s; hard disks and other \
                                networks are not measured",
            },
            Software::Lustre => Self {
                creates_per_core: None,
                stats_per_core: None,
                removes_per_core: None,
                random_reads_per_core: None,
                random_writes_per_core: None,
                read_per_core: None,
                write_per_core: None,
                shared_write_per_path: None,
                shared_read_per_path: None,
                shared_part: 1.0,
                bytes_per_file: RULE_BYTES / RULE_FILES,
                bytes_per_file_source: "003: 512 GB per 150 million files (a rule for BeeGFS)",
                names_source: NOT_MEASURED,
                random_source: NOT_MEASURED,
                shared_source: NOT_MEASURED,
            },
        }
    }
}

/// Connection buffers of the software when the description gives none, and where they come from.
pub fn connections(software: Software) -> (Connections, &'static str) {
    match software {
        Software::Skep => (
            Connections { buffer_size: Size(64 << 10), buffers: 1, per_client: 256 },
            "Skep keeps at most 64 KiB per direction and connection (crates/hands/net: inbound.rs, outbound.rs), and a \
             mount has at most 256 requests in flight; buffers of the kernel's sockets come on top",
        ),
        Software::Beegfs | Software::Lustre => (
            Connections { buffer_size: Size(8192), buffers: 70, per_client: 12 },
            "000, section 4.3: connRDMABufSize 8192, connRDMABufNum 70, connMaxInternodeNum 12",
        ),
    }
}

/// One PCIe lane in one direction: 985 MB/s in generation 3 (002, section 3.6), twice as much in each later one,
/// 250 and 500 MB/s in the two before it.
pub fn pcie(slot: Pcie) -> Rate {
    let lane = match slot.generation {
        1 => 250.0,
        2 => 500.0,
        later => 985.0 * f64::from(1u32 << later.saturating_sub(3).min(8)),
    };
    Rate::mb(lane * f64::from(slot.lanes))
}

/// The figures that hold for one description: its own, else its preset's, else the general ones.
#[derive(Debug, Clone)]
pub struct Catalogue<'h> {
    hardware: &'h Hardware,
    preset: &'static Preset,
}

impl<'h> Catalogue<'h> {
    /// `None` when the preset is not known.
    pub fn of(hardware: &'h Hardware) -> Option<Self> {
        let preset = match &hardware.preset {
            None => &PRESETS[0],
            Some(name) => PRESETS.iter().find(|preset| preset.name == name)?,
        };
        Some(Self { hardware, preset })
    }

    /// A drive by name; `None` when neither the catalogue nor the description has both its rates.
    pub fn drive(&self, name: &str) -> Option<DriveUsed> {
        drives::used(name, self.own_drive(name))
    }

    /// What the description itself says of a drive.
    pub fn own_drive(&self, name: &str) -> Option<&'h DriveOverride> {
        self.hardware.catalogue.drives.get(name)
    }

    /// A link by name.
    pub fn nic(&self, name: &str) -> Option<Component> {
        let own = self.hardware.catalogue.nics.get(name);
        pick(name, own, [self.preset.nics, &NICS])
    }

    /// What one core copies in memory: what RAID in software is reckoned by.
    pub fn core_copy(&self) -> Component {
        let own = self.hardware.catalogue.core_copy;
        let (rate, source) = own.map_or(CORE_COPY, |rate| (rate, OWN));
        Component { name: "core_copy".to_owned(), rate, source: source.to_owned() }
    }

    /// A controller by name.
    pub fn controller(&self, name: &str) -> Option<Component> {
        let own = self.hardware.catalogue.controllers.get(name);
        pick(name, own, [self.preset.controllers, &CONTROLLERS])
    }

    /// Parts of the rates that programs see. The description's and the preset's hold for every component; without
    /// them, rates of data sheets are reached to the part that 002 measured, and the others are taken whole.
    pub fn efficiency(&self, direction: Direction) -> Efficiency {
        let own = &self.hardware.catalogue;
        let (own, way) = match direction {
            Direction::Write => (own.write_efficiency, 0),
            Direction::Read => (own.read_efficiency, 1),
        };
        let (all, data_sheet, source) = match (own, self.preset.efficiency) {
            (Some(own), _) => (own, 1.0, OWN),
            (None, Some(known)) => (known[way].0, 1.0, known[way].1),
            (None, None) => (1.0, MEASURED_2020[way].0, MEASURED_2020[way].1),
        };
        Efficiency { all, data_sheet, source: source.to_owned() }
    }

    /// Names of drives that can be used, for errors and help.
    pub fn drive_names(&self) -> Vec<String> {
        let own = self.hardware.catalogue.drives.keys().filter(|name| self.drive(name).is_some());
        names(own, drives::names())
    }

    /// Names of links.
    pub fn nic_names(&self) -> Vec<String> {
        names(self.hardware.catalogue.nics.keys(), NICS.iter().map(|line| line.0))
    }

    /// Names of controllers.
    pub fn controller_names(&self) -> Vec<String> {
        let known = self.preset.controllers.iter().chain(&CONTROLLERS).map(|line| line.0);
        names(self.hardware.catalogue.controllers.keys(), known)
    }
}

fn names<'a, 'b>(own: impl Iterator<Item = &'a String>, known: impl Iterator<Item = &'b str>) -> Vec<String> {
    let mut names: Vec<String> = own.cloned().chain(known.map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

fn pick(name: &str, own: Option<&Rate>, tables: [&[ComponentLine]; 2]) -> Option<Component> {
    if let Some(rate) = own {
        return Some(Component { name: name.to_owned(), rate: *rate, source: OWN.to_owned() });
    }
    let (_, gb, source) = tables.iter().find_map(|table| table.iter().find(|line| line.0 == name))?;
    Some(Component { name: name.to_owned(), rate: Rate::gb(*gb), source: (*source).to_owned() })
}

/// The general catalogue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listing {
    /// Drives.
    pub drives: Vec<Drive>,
    /// Links.
    pub links: Vec<Component>,
    /// Controllers and adapters.
    pub controllers: Vec<Component>,
    /// What RAID in software is reckoned by.
    pub core_copy: Component,
    /// Sets of rates for known systems.
    pub presets: Vec<Named>,
}

/// A name and what it stands for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Named {
    /// The name.
    pub name: String,
    /// What it stands for.
    pub about: String,
}

/// Everything in the general catalogue, for display.
pub fn listing() -> Listing {
    let components = |lines: &[ComponentLine]| {
        let component = |(name, gb, source): &ComponentLine| Component {
            name: (*name).to_owned(),
            rate: Rate::gb(*gb),
            source: (*source).to_owned(),
        };
        lines.iter().map(component).collect()
    };
    let named = |preset: &Preset| Named { name: preset.name.to_owned(), about: preset.about.to_owned() };
    Listing {
        drives: drives::listed(),
        links: components(&NICS),
        controllers: components(&CONTROLLERS),
        core_copy: Component {
            name: "core_copy".to_owned(),
            rate: CORE_COPY.0,
            source: CORE_COPY.1.to_owned(),
        },
        presets: PRESETS.iter().map(named).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: all eleven lines of the document's table of component throughputs are there, as printed.
    #[test]
    fn the_table_of_the_document() {
        let hardware = Hardware::default();
        let catalogue = Catalogue::of(&hardware).unwrap();
        for (name, mb) in
            [("hdd-old", 75.0), ("hdd", 100.0), ("ssd-old", 300.0), ("ssd", 400.0), ("nvme", 1500.0)]
        {
            assert_eq!(catalogue.drive(name).unwrap().read.rate, Rate::mb(mb));
        }
        assert_eq!(catalogue.controller("controller").unwrap().rate, Rate::gb(2.5));
        for (name, gb) in [("10gbe", 1.0), ("ddr", 1.5), ("qdr", 3.0), ("fdr", 6.0), ("edr", 11.0)] {
            assert_eq!(catalogue.nic(name).unwrap().rate, Rate::gb(gb));
        }
    }

    /// Goal: drives of today are there, each with a source and, as rates of data sheets, not promised whole; a drive of one's
    /// own is a disk when it seeks like one.
    #[test]
    fn drives_of_today() {
        let mut hardware = Hardware::default();
        let mine = DriveOverride {
            read: Some(Rate::mb(250.0)),
            write: Some(Rate::mb(250.0)),
            read_iops: Some(80.0),
            ..DriveOverride::default()
        };
        hardware.catalogue.drives.insert("mine".to_owned(), mine);
        let catalogue = Catalogue::of(&hardware).unwrap();
        assert_eq!(catalogue.drive("mine").unwrap().kind, DriveKind::Hdd);
        for (name, kind, read, write) in [
            ("hdd-24tb", DriveKind::Hdd, 250.0, 250.0),
            ("nvme-gen4", DriveKind::Nvme, 6500.0, 3500.0),
            ("nvme-gen5", DriveKind::Nvme, 12_000.0, 6000.0),
            ("nvme-qlc", DriveKind::Nvme, 6500.0, 2500.0),
            ("ssd-sata", DriveKind::Ssd, 500.0, 500.0),
        ] {
            let drive = catalogue.drive(name).unwrap();
            assert_eq!(drive.kind, kind);
            assert!(drive.read.rate.0 >= read * 1e6 && drive.write.rate.0 >= write * 1e6, "{name}");
            assert!(drive.read.data_sheet && drive.read.source.contains("data sheet"), "{name}");
        }
    }

    /// Goal: the description's own figure beats the preset's, the preset's the general one.
    #[test]
    fn order() {
        let mut hardware = Hardware { preset: Some("dell-2020".to_owned()), ..Hardware::default() };
        assert_eq!(Catalogue::of(&hardware).unwrap().nic("edr").unwrap().rate, Rate::gb(12.4));
        hardware.catalogue.nics.insert("edr".to_owned(), Rate::gb(12.0));
        assert_eq!(Catalogue::of(&hardware).unwrap().nic("edr").unwrap().rate, Rate::gb(12.0));
        hardware.preset = Some("nonsense".to_owned());
        assert!(Catalogue::of(&hardware).is_none());
    }

    /// Goal: lanes deliver what the document says, and twice as much with each generation.
    #[test]
    fn lanes() {
        assert_eq!(pcie(Pcie { generation: 3, lanes: 4 }), Rate::mb(3940.0), "close to 4 GB/s (002)");
        assert_eq!(pcie(Pcie { generation: 4, lanes: 32 }), Rate::mb(63_040.0));
    }
}
