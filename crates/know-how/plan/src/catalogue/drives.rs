//! Drives: the catalogue's, and what a description makes of them.

use super::OWN;
use crate::forward::Direction;
use crate::hardware::DriveOverride;
use crate::units::Rate;
use serde::Serialize;

/// How a drive is made, which decides what else is known about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DriveKind {
    /// Spinning.
    Hdd,
    /// Flash on SAS or SATA.
    Ssd,
    /// Flash on PCIe.
    Nvme,
}

/// One drive.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drive {
    /// What target groups call it.
    pub name: String,
    /// How it is made.
    pub kind: DriveKind,
    /// Sequential reading.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub read: Rate,
    /// Sequential writing.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub write: Rate,
    /// Random 4 KiB reads per second.
    pub read_iops: f64,
    /// Random 4 KiB writes per second.
    pub write_iops: f64,
    /// The rates are those of a data sheet, which programs do not reach.
    pub data_sheet: bool,
    /// Where this comes from.
    pub source: String,
}

/// A drive as a description uses it: each figure its own, else the catalogue's.
#[derive(Debug, Clone, PartialEq)]
pub struct DriveUsed {
    /// How it is made.
    pub kind: DriveKind,
    /// Sequential reading.
    pub read: Streaming,
    /// Sequential writing.
    pub write: Streaming,
    /// Random 4 KiB reads per second; `None`: nobody knows.
    pub read_iops: Option<f64>,
    /// Random 4 KiB writes per second; `None`: nobody knows.
    pub write_iops: Option<f64>,
}

impl DriveUsed {
    /// Its sequential rate one way.
    pub fn streaming(&self, direction: Direction) -> &Streaming {
        match direction {
            Direction::Write => &self.write,
            Direction::Read => &self.read,
        }
    }
}

/// A sequential rate of a drive in one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Streaming {
    pub rate: Rate,
    /// It is the rate of a data sheet, which programs do not reach.
    pub data_sheet: bool,
    /// Where it comes from.
    pub source: String,
}

/// Drives: name, kind, read and write MB/s, random reads and writes per second, source.
type DriveLine = (&'static str, DriveKind, f64, f64, f64, f64, &'static str);

const DRIVES: [DriveLine; 13] = [
    (
        "hdd-old",
        DriveKind::Hdd,
        75.0,
        75.0,
        79.0,
        79.0,
        "001, table of component throughputs: old HDD; IOPS assumed: 8.5 ms seek + 4.2 ms half a turn",
    ),
    (
        "hdd",
        DriveKind::Hdd,
        100.0,
        100.0,
        79.0,
        79.0,
        "001, table of component throughputs: new HDD; IOPS assumed: 8.5 ms seek + 4.2 ms half a turn",
    ),
    (
        "ssd-old",
        DriveKind::Ssd,
        300.0,
        300.0,
        40e3,
        15e3,
        "001, table of component throughputs: old SSD; IOPS assumed",
    ),
    (
        "ssd",
        DriveKind::Ssd,
        400.0,
        400.0,
        60e3,
        20e3,
        "001, table of component throughputs: new SSD; IOPS assumed",
    ),
    (
        "nvme",
        DriveKind::Nvme,
        1500.0,
        1500.0,
        300e3,
        100e3,
        "001, table of component throughputs: NVMe; IOPS assumed",
    ),
    (
        "p4600",
        DriveKind::Nvme,
        3200.0,
        1300.0,
        500e3,
        200e3,
        "002, section 4.1: 3.2 GB/s read, 1.3 GB/s write (data sheet); IOPS assumed",
    ),
    (
        "p5600",
        DriveKind::Nvme,
        3500.0,
        1700.0,
        700e3,
        200e3,
        "003, Findings: 3.5 GB/s read, 1.7 GB/s write (data sheet); IOPS assumed",
    ),
    (
        "mars-k",
        DriveKind::Hdd,
        98.8,
        98.8,
        79.0,
        79.0,
        "004, section VI.A: 98.8 MB/s read per disk (measured; taken for writing too); IOPS assumed",
    ),
    (
        "hdd-24tb",
        DriveKind::Hdd,
        285.0,
        285.0,
        79.0,
        79.0,
        "data sheet, Seagate Exos X24 of 2023 (12 to 24 TB, 7,200/min): 285 MB/s at most, on the outer tracks; a full disk \
         streams about half of it on the inner ones; IOPS assumed: 8.5 ms seek + 4.2 ms half a turn",
    ),
    (
        "ssd-sata",
        DriveKind::Ssd,
        550.0,
        520.0,
        97e3,
        30e3,
        "typical data sheet of SATA SSDs for servers, 1.9 to 7.7 TB, one write a day (2020 and later)",
    ),
    (
        "nvme-gen4",
        DriveKind::Nvme,
        6800.0,
        4000.0,
        1000e3,
        180e3,
        "typical data sheet of PCIe 4 drives of one write a day, such as Samsung PM9A3 of 2021 (6.8 GB/s read); 3.84 TB and \
         more, smaller ones write less",
    ),
    (
        "nvme-gen5",
        DriveKind::Nvme,
        13000.0,
        6600.0,
        2500e3,
        250e3,
        "data sheet, Samsung PM1743 as announced in 2021 (1.92 to 15.36 TB, PCIe 5): 13 and 6.6 GB/s, 2.5 million and \
         250,000 IOPS",
    ),
    (
        "nvme-qlc",
        DriveKind::Nvme,
        7000.0,
        3000.0,
        1000e3,
        20e3,
        "typical data sheet of PCIe 4 drives with four bits a cell, 30 to 61 TB (2023); writes smaller than their 16 KiB \
         or more cost far more",
    ),
];

/// Drives whose rates above are those of a data sheet.
const DATA_SHEET: [&str; 7] =
    ["p4600", "p5600", "hdd-24tb", "ssd-sata", "nvme-gen4", "nvme-gen5", "nvme-qlc"];

/// The catalogue's drives.
pub fn listed() -> Vec<Drive> {
    DRIVES.iter().map(drive).collect()
}

/// Names of the catalogue's drives.
pub fn names() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|line| line.0)
}

fn drive(line: &DriveLine) -> Drive {
    let &(name, kind, read, write, read_iops, write_iops, source) = line;
    Drive {
        name: name.to_owned(),
        kind,
        read: Rate::mb(read),
        write: Rate::mb(write),
        read_iops,
        write_iops,
        data_sheet: DATA_SHEET.contains(&name),
        source: source.to_owned(),
    }
}

/// Flash on PCIe, unless what is said of it is that of a disk or of SATA.
fn own_kind(own: Option<&DriveOverride>) -> DriveKind {
    let (iops, read) = own.map_or((None, None), |own| (own.read_iops, own.read));
    match (iops, read) {
        (Some(iops), _) if iops > 0.0 && iops < 1000.0 => DriveKind::Hdd,
        (_, Some(read)) if read.0 < 600e6 => DriveKind::Ssd,
        _ => DriveKind::Nvme,
    }
}

/// The drive of that name with what the description says of it. One that the catalogue does not know needs both
/// rates; its random figures may be unknown. A figure of the description replaces that figure only: the other rate of
/// a data sheet stays one.
pub fn used(name: &str, own: Option<&DriveOverride>) -> Option<DriveUsed> {
    let known = DRIVES.iter().find(|line| line.0 == name).map(drive);
    let streaming = |own: Option<Rate>, known: Option<(Rate, &Drive)>| match (own, known) {
        (Some(rate), _) => Some(Streaming { rate, data_sheet: false, source: OWN.to_owned() }),
        (None, Some((rate, drive))) => {
            Some(Streaming { rate, data_sheet: drive.data_sheet, source: drive.source.clone() })
        }
        (None, None) => None,
    };
    let known = known.as_ref();
    // Drives without any operations do not exist: 0 says that nobody knows.
    let iops = |own: Option<f64>, known: Option<f64>| own.or(known).filter(|iops| *iops > 0.0);
    Some(DriveUsed {
        // Of one's own drives the operations tell disks from flash: no disk does a thousand in a second.
        kind: known.map_or_else(|| own_kind(own), |drive| drive.kind),
        read: streaming(own.and_then(|own| own.read), known.map(|drive| (drive.read, drive)))?,
        write: streaming(own.and_then(|own| own.write), known.map(|drive| (drive.write, drive)))?,
        read_iops: iops(own.and_then(|own| own.read_iops), known.map(|drive| drive.read_iops)),
        write_iops: iops(own.and_then(|own| own.write_iops), known.map(|drive| drive.write_iops)),
    })
}
