//! 001: the 6 GB/s design of "Sizing and Tuning".

use super::{Published, Sheet, Shown, alone, plan, value, vary};
use crate::forward::{Forecast, Stage};
use crate::hardware::{Connections, DriveOverride};
use crate::units::{Rate, Size};

/// Servers for file contents of steps 1, 3 and 4.
const SERVERS: f64 = 2.0;
/// Targets of a server in steps 1 and 3.
const TARGETS: f64 = 2.0;

pub fn sheet() -> Result<Sheet, String> {
    let mut sheet = Sheet::new("001", "BeeGFS Sizing and Tuning (2022)");
    let steps =
        [plan("sizing-6gbs-a")?, plan("sizing-6gbs-b")?, plan("sizing-6gbs-c")?, plan("sizing-6gbs-d")?];
    sums(&mut sheet, &steps)?;
    systems(&mut sheet, &steps);
    metadata(&mut sheet, &steps[3]);
    memory(&mut sheet)?;
    let [a, b, c, d] = &steps;
    sheet.limits(
        "step 1, write",
        &a.write,
        Some(("Bottleneck: Network: 10 GibE", Stage::Links)),
        "2 x 1 GB/s, of 6 wanted",
    );
    sheet.limits("step 2, write", &b.write, None, "drives behind parity; the two bonded links carry 8 GB/s");
    sheet.limits("step 2, read", &b.read, None, "the two bonded links");
    let words = "New bottleneck: RAID controller";
    sheet.limits(
        "step 3, write",
        &c.write,
        Some((words, Stage::Controllers)),
        "2.5 GB/s against 3.2 GB/s of the drives: 5 of 6 GB/s wanted",
    );
    sheet.limits("step 4, write", &d.write, None, "two controllers carry 5 GB/s, the drives deliver 4.8");
    sheet.limits("step 4, read", &d.read, None, "6.4 GB/s of drives, 5 of controllers");
    Ok(sheet)
}

fn sums(sheet: &mut Sheet, [a, _, c, _]: &[Forecast; 4]) -> Result<(), String> {
    let hopeful = vary("sizing-6gbs-a", |hardware| {
        let drive = DriveOverride { read: Some(Rate::mb(500.0)), ..DriveOverride::default() };
        hardware.catalogue.drives.insert("ssd".to_owned(), drive);
    })?;
    for (what, published, computed, note) in [
        (
            "one target of 6 at 500 MB/s a drive",
            3.0,
            alone(&hopeful.read, Stage::Drives) / SERVERS / TARGETS,
            "6 x 500 MB/s, no parity; the same page counts with 400 MB/s",
        ),
        (
            "step 1: one target of 6 in RAID 6, write",
            1.6,
            alone(&a.write, Stage::Drives) / SERVERS / TARGETS,
            "(6 - 2) x 400 MB/s",
        ),
        (
            "step 1: one target of 6 in RAID 6, read",
            2.4,
            alone(&a.read, Stage::Drives) / SERVERS / TARGETS,
            "6 x 400 MB/s, printed with a question mark: every drive of a RAID 6 holds data",
        ),
        (
            "step 3: one server, two targets, write",
            3.2,
            alone(&c.write, Stage::Drives) / SERVERS,
            "(6 - 2) x 400 MB/s x 2",
        ),
    ] {
        sheet.line(what, Shown::GbPerSecond, Published::Number(published), computed, note);
    }
    Ok(())
}

fn systems(sheet: &mut Sheet, [a, b, c, d]: &[Forecast; 4]) {
    for (step, forecast, verdict) in [
        ("step 1", a, "less than the 6 GB/s wanted"),
        ("step 2", b, "enough"),
        ("step 3", c, "less than the 6 GB/s wanted"),
        ("step 4", d, "enough"),
    ] {
        let read = format!("bottleneck {}", forecast.read.bottleneck[0].title());
        for (way, stream, note) in
            [("write", &forecast.write, verdict), ("read", &forecast.read, read.as_str())]
        {
            let what = format!("{step}: whole system, {way}");
            sheet.line(&what, Shown::GbPerSecond, Published::Nothing, stream.expected.0, note);
        }
    }
    let drives = alone(&d.write, Stage::Drives) / SERVERS;
    sheet.line(
        "step 4: one server, two targets of 8, write",
        Shown::GbPerSecond,
        Published::Nothing,
        drives,
        "(8 - 2) x 400 MB/s x 2",
    );
    sheet.line(
        "step 4: one server, two controllers",
        Shown::GbPerSecond,
        Published::Nothing,
        alone(&d.write, Stage::Controllers) / SERVERS,
        "2 x 2.5 GB/s",
    );
    sheet.line(
        "step 4: usable capacity",
        Shown::Tib,
        Published::Nothing,
        d.capacity.usable.value,
        "24 TB of data drives x 0.99",
    );
}

fn metadata(sheet: &mut Sheet, step: &Forecast) {
    let part = step.metadata.part.value;
    let note = "step 5: 100 GB of RAID 1; the rule of the same document";
    sheet.line("metadata space / storage space", Shown::Percent, Published::Within(0.3, 0.5), part, note);
    let files = value(step.metadata.files.as_ref());
    sheet.line(
        "files that fit",
        Shown::Number,
        Published::Nothing,
        files,
        "100 GB at 512 GB per 150 million (003)",
    );
}

fn memory(sheet: &mut Sheet) -> Result<(), String> {
    let with = |per_client| {
        vary("sizing-6gbs-a", |hardware| {
            hardware.connections = Some(Connections { buffer_size: Size(8192), buffers: 70, per_client });
        })
    };
    let note = "8192 x 70 x 2 x 12 = 13,762,560 bytes = 13.1 MiB. The document says \"~12 MB\", as if \
                each of the 12 connections (1.09 MiB) took 1 MB.";
    let twelve = with(12)?.memory.per_client.value;
    sheet
        .line("connection memory of one client", Shown::Mb, Published::Number(12.0), twelve, note)
        .within(0.15);
    let eighteen = with(18)?.memory.per_client.value;
    sheet.line(
        "the same with 18 connections",
        Shown::Mb,
        Published::Nothing,
        eighteen,
        "as in the document's NVMe example",
    );
    Ok(())
}
