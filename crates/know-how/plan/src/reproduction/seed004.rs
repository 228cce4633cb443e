//! 004: ClusterStor 6000, from the disks to IOR.

use super::{How, Published, Sheet, Shown, alone, plan, vary};
use crate::forward::{Forecast, Stage, Stream};
use crate::units::MIB;

/// obdfilter-survey of the two servers of one enclosure, MB/s.
pub const WRITE: [f64; 2] = [3032.89, 3022.43];
/// The same, reading.
pub const READ: [f64; 2] = [3944.49, 3959.50];
/// Disks of one enclosure that hold data or parity.
pub const DISKS: f64 = 80.0;
/// Targets of one enclosure.
const TARGETS: f64 = 8.0;
/// The best IOR runs over two enclosures, MB/s.
pub const IOR_WRITE: f64 = 13_192.72;
/// The same, reading.
pub const IOR_READ: f64 = 11_996.17;
/// Clients of the best writing run (benchmark 3); the best reading one had all 64.
const IOR_WRITE_CLIENTS: u32 = 16;

pub fn sheet() -> Result<Sheet, String> {
    let mut sheet =
        Sheet::new("004", "Optimizing Performance of HPC Storage Systems (ClusterStor 6000, Lustre)");
    let one = plan("clusterstor-ssu")?;
    let two = plan("clusterstor-2-ssu")?;
    let writing = vary("clusterstor-2-ssu", |hardware| hardware.clients.count = IOR_WRITE_CLIENTS)?;
    enclosure(&mut sheet, &one);
    by_the_table(&mut sheet)?;
    waterfall(&mut sheet, &writing, &two);
    let rack = vary("clusterstor-ssu", |hardware| hardware.servers[0].count = 12)?;
    let note =
        "six enclosures; \"in excess of 6 GB/s\" each. The model's disks write 5 % more than was measured.";
    let line = sheet.line(
        "one rack, write",
        Shown::GbPerSecond,
        Published::Number(36.0),
        rack.write.expected.0,
        note,
    );
    line.within(0.06).how(How::Combined);
    let words = "a balanced solution pushing the bottleneck to the disk backend";
    sheet.limits(
        "two enclosures, write",
        &two.write,
        Some((words, Stage::Drives)),
        "16 x 8 of 10 disks against 24 GB/s of links",
    );
    sheet.limits(
        "two enclosures, read",
        &two.read,
        Some((words, Stage::Drives)),
        "160 disks; what was measured above them is less, see the waterfall",
    );
    Ok(sheet)
}

fn enclosure(sheet: &mut Sheet, one: &Forecast) {
    let (write, read) = (alone(&one.write, Stage::Drives), alone(&one.read, Stage::Drives));
    let line = sheet.line(
        "one disk, read",
        Shown::MbPerSecond,
        Published::Number(98.8),
        read / DISKS,
        "obdfilter-survey, 80 disks",
    );
    line.how(How::Input);
    let line = sheet.line(
        "one enclosure, read",
        Shown::MbPerSecond,
        Published::Number(7904.0),
        read,
        "obdfilter-survey",
    );
    line.how(How::Input);
    let parity = "8 of 10 disks at the reading rate; RAID 6 in software loses the rest";
    for (what, published, computed, note) in [
        (
            "one disk, write",
            75.9,
            write / DISKS,
            "published 75.9; its own data give 75.7. 8 of 10 disks at the reading rate",
        ),
        ("one enclosure, write", 6055.0, write, parity),
        (
            "one target (OST), write",
            750.0,
            write / TARGETS,
            "\"about 750\"; obdfilter-survey gives 757. 8 of 10 disks at the reading rate",
        ),
    ] {
        let line = sheet.line(what, Shown::MbPerSecond, Published::Number(published), computed, note);
        line.within(0.06).how(How::Combined);
    }
    let links = alone(&one.write, Stage::Links);
    sheet.line(
        "one enclosure, links",
        Shown::MbPerSecond,
        Published::Nothing,
        links,
        "2 x FDR of 6 GB/s (001)",
    );
}

fn by_the_table(sheet: &mut Sheet) -> Result<(), String> {
    let plain = vary("clusterstor-ssu", |hardware| {
        hardware
            .servers
            .iter_mut()
            .flat_map(|server| &mut server.targets)
            .for_each(|group| group.drive = "hdd".to_owned());
    })?;
    let note = "no input from this document: 001's 100 MB/s for a new hard disk";
    let lines = [
        (
            "one disk by 001's table, read",
            98.8,
            alone(&plain.read, Stage::Drives) / DISKS,
            0.02,
            note.to_owned(),
            How::Predicted,
        ),
        // 80 times the disk.
        (
            "one enclosure by 001's table, read",
            7904.0,
            plain.read.expected.0,
            0.02,
            note.to_owned(),
            How::Again,
        ),
        (
            "one enclosure by 001's table, write",
            6055.0,
            plain.write.expected.0,
            0.06,
            format!("{note}; 8 of 10 disks, RAID 6 in software loses the rest"),
            How::Predicted,
        ),
    ];
    for (what, published, computed, tolerance, note, how) in lines {
        let line = sheet.line(what, Shown::MbPerSecond, Published::Number(published), computed, &note);
        line.within(tolerance).how(how);
    }
    Ok(())
}

/// One way of the waterfall.
struct Way<'a> {
    name: &'static str,
    stream: &'a Stream,
    /// obdfilter-survey and IOR over both enclosures, MB/s.
    survey: f64,
    ior: f64,
    clients: &'static str,
    note: &'static str,
    tolerance: f64,
}

/// From the disks up: what each layer could, and what was measured above it.
fn waterfall(sheet: &mut Sheet, writing: &Forecast, reading: &Forecast) {
    let raw = reading.write.raw_drives.0;
    let line =
        sheet.line("waterfall: 160 disks", Shown::MbPerSecond, Published::Nothing, raw, "160 x 98.8 MB/s");
    line.how(How::Combined);
    let ways = [
        Way {
            name: "write",
            stream: &writing.write,
            survey: 2.0 * WRITE.iter().sum::<f64>(),
            ior: IOR_WRITE,
            clients: "16 x QDR of 3 GB/s: the best run had 16 clients (benchmark 3)",
            note: "faster than obdfilter-survey on the same targets: IOR ran buffered and without -e, so part of its data may still be \
                   in memory when it stops",
            tolerance: 0.05,
        },
        Way {
            name: "read",
            stream: &reading.read,
            survey: 2.0 * READ.iter().sum::<f64>(),
            ior: IOR_READ,
            clients: "64 x QDR of 3 GB/s: the best run had 64 clients (benchmark 2)",
            note: "The model knows nothing that limits reading above the disks. The document: reads are not as sequential, and direct I/O \
                   sends no new chunk before the last RPC is answered",
            tolerance: 0.33,
        },
    ];
    ways.iter().for_each(|way| layers(sheet, way));
}

fn layers(sheet: &mut Sheet, way: &Way<'_>) {
    let name = |layer: &str| format!("waterfall: {layer}, {}", way.name);
    let disks = alone(way.stream, Stage::Drives);
    let note = "twice the enclosure of obdfilter-survey";
    let line = sheet.line(&name("targets"), Shown::MbPerSecond, Published::Derived(way.survey), disks, note);
    line.within(0.05).how(if way.name == "read" { How::Input } else { How::Combined });
    for (layer, stage, note) in
        [("links", Stage::Links, "4 x FDR of 6 GB/s"), ("clients", Stage::Clients, way.clients)]
    {
        let rate = alone(way.stream, stage);
        sheet.line(&name(layer), Shown::MbPerSecond, Published::Nothing, rate, note);
    }
    let (published, computed) = (Published::Number(way.ior), way.stream.expected.0);
    let line = sheet.line(&name("IOR"), Shown::MbPerSecond, published, computed, way.note);
    line.within(way.tolerance).how(How::Combined);
    let ratio = way.ior / way.survey;
    let note = format!(
        "IOR over twice obdfilter-survey: both are the document's. A doubt: the survey counts MiB; were IOR's MB decimal, it would be {:.1} %",
        ratio * 1e8 / MIB
    );
    let what = name("IOR / targets");
    sheet.line(&what, Shown::Percent, Published::Nothing, ratio, &note).how(How::Measured);
    let note = "IOR over what the model computes for the targets, beside IOR over what obdfilter-survey measured of them";
    let (published, computed) = (Published::Derived(ratio * 100.0), way.ior * 1e6 / disks);
    let line = sheet.line(&name("IOR / targets of the model"), Shown::Percent, published, computed, note);
    line.how(How::Quotient).within(0.05);
}
