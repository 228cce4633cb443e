//! 002: Dell EMC Ready Solutions for HPC BeeGFS Storage.

use super::{How, Published, Sheet, Shown, alone, plan, shared, value, vary};
use crate::forward::single_file::SingleFile;
use crate::forward::{Forecast, Stage};
use crate::systems;

/// Peaks of figure 10, GB/s.
const WRITE: f64 = 120.7;
const READ: f64 = 132.4;
/// Peaks of figure 11, one shared file, GB/s.
const SHARED_WRITE: f64 = 37.4;
const SHARED_READ: f64 = 66.3;

pub fn sheet() -> Result<Sheet, String> {
    let mut sheet = Sheet::new("002", "Dell EMC Ready Solutions for HPC BeeGFS Storage (January 2020)");
    let medium = plan("dell-2020-medium")?;
    theory(&mut sheet, &medium);
    measured(&mut sheet, &medium, &shared("dell-2020-medium")?);
    backwards(&mut sheet)?;
    structure(&mut sheet, &medium)?;
    let words = "However, here the network is the limiting factor.";
    sheet.limits(
        "Medium, read",
        &medium.read,
        Some((words, Stage::Links)),
        "136.4 GB/s of links against 422 of drives",
    );
    sheet.limits(
        "Medium, write",
        &medium.write,
        Some((words, Stage::Links)),
        "the drives (172) are next, then the PCIe switches (173)",
    );
    Ok(sheet)
}

fn theory(sheet: &mut Sheet, medium: &Forecast) {
    for (what, published, computed, note) in [
        ("drives, read", 422.0, alone(&medium.read, Stage::Drives), "132 x 3.2 GB/s"),
        ("drives, write", 172.0, alone(&medium.write, Stage::Drives), "132 x 1.3 GB/s"),
        ("links of the storage services", 136.4, alone(&medium.read, Stage::Links), "11 x 12.4 GB/s"),
    ] {
        sheet.line(what, Shown::GbPerSecond, Published::Number(published), computed, note);
    }
    let switches = alone(&medium.read, Stage::PcieSwitches);
    sheet.line("PCIe switches", Shown::GbPerSecond, Published::Nothing, switches, "11 x 16 lanes x 985 MB/s");
}

fn measured(sheet: &mut Sheet, medium: &Forecast, shared: &SingleFile) {
    let network = "of the theoretical network peak";
    for (what, measured, published, limit) in [
        ("read, part of the links", READ, 97.0, &medium.read),
        ("write, part of the links", WRITE, 89.0, &medium.write),
    ] {
        let computed = measured * 1e9 / alone(limit, Stage::Links);
        sheet.line(what, Shown::Percent, Published::Number(published), computed, network).how(How::Quotient);
    }
    let of_drives = WRITE * 1e9 / alone(&medium.write, Stage::Drives);
    let note = "the same measurement over the drives, as 003 counts writing";
    sheet
        .line("write, part of the drives", Shown::Percent, Published::Nothing, of_drives, note)
        .how(How::Quotient);
    for (what, published, computed) in [
        ("file per process, read", READ, medium.read.expected.0),
        ("file per process, write", WRITE, medium.write.expected.0),
        ("one shared file, write", SHARED_WRITE, value(shared.write.as_ref())),
        ("one shared file, read", SHARED_READ, value(shared.read.as_ref())),
    ] {
        let note = "figures 10 and 11; the preset's efficiency and rate of a data path come from here";
        sheet.line(what, Shown::GbPerSecond, Published::Number(published), computed, note).how(How::Input);
    }
    for (what, published, figure, own) in [
        ("shared file / file per process, write", SHARED_WRITE / WRITE * 100.0, &shared.write, &medium.write),
        ("shared file / file per process, read", SHARED_READ / READ * 100.0, &shared.read, &medium.read),
    ] {
        let computed = value(figure.as_ref()) / own.expected.0;
        sheet
            .line(what, Shown::Percent, Published::Derived(published), computed, "figures 10 and 11")
            .how(How::Input);
    }
    for (what, published, figure) in [
        ("random 4 KiB writes per second", 3.6e6, &medium.random.write),
        ("random 4 KiB reads per second", 3.5e6, &medium.random.read),
    ] {
        let note = "section 4.3; the operations per core come from here";
        sheet
            .line(what, Shown::Number, Published::Number(published), value(figure.as_ref()), note)
            .how(How::Input);
    }
}

/// The other way round: 003's efficiencies applied to this system, which they were not taken from.
fn backwards(sheet: &mut Sheet) -> Result<(), String> {
    let forecast = vary("dell-2020-medium", |hardware| {
        hardware.catalogue.write_efficiency = Some(62.3 / 68.0);
        hardware.catalogue.read_efficiency = Some(116.3 / 125.0);
    })?;
    let note = "with the efficiency measured in 003 (62.3 of 68, 116.3 of 125) instead of its own";
    for (what, published, computed) in [
        ("file per process by 003, read", READ, forecast.read.expected.0),
        ("file per process by 003, write", WRITE, forecast.write.expected.0),
    ] {
        // The inverse of 003 by 002, which is counted there.
        sheet
            .line(what, Shown::GbPerSecond, Published::Number(published), computed, note)
            .within(0.05)
            .how(How::Again);
    }
    Ok(())
}

fn structure(sheet: &mut Sheet, medium: &Forecast) -> Result<(), String> {
    let targets = medium.capacity.targets;
    sheet.line("storage targets", Shown::Number, Published::Number(33.0), targets as f64, "5 x 6 + 3");
    let hardware = systems::system("dell-2020-medium")
        .and_then(|system| crate::hardware::Hardware::from_toml(system.name, system.text).ok())
        .ok_or("dell-2020-medium cannot be read")?;
    let striping = u64::from(hardware.striping.targets);
    let threads = targets.div_ceil(striping) as f64;
    sheet.line(
        "threads to use all servers",
        Shown::Number,
        Published::Number(11.0),
        threads,
        "33 targets, 3 for each file",
    );
    let over = super::seed003::oversubscription(&hardware);
    sheet.line("PCIe oversubscription", Shown::ToOne, Published::Nothing, over, "24 x 4 lanes behind 2 x 16");
    Ok(())
}
