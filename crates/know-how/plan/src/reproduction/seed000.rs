//! 000: BeeGFS on one HP Apollo 4200.

use super::{How, Published, Sheet, Shown, plan, value, vary};
use crate::forward::Forecast;

/// Maxima over the number of processes, MiB/s: write and read.
const TABLE_1: [f64; 2] = [2449.6, 2472.0];
const TABLE_2_P440: [f64; 2] = [1451.0, 1396.0];
const TABLE_2_P840AR: [f64; 2] = [1280.0, 1390.0];
const TABLE_3: [f64; 2] = [2170.0, 2411.0];

const SHARED_PATH: &str = "The model has nothing between two targets of one server but controllers and the link. What \
    was measured in Table 1, and read in Table 3, ends at 2.5 to 2.6 GB/s with one controller as with two: something else limits \
    there, and the document does not say what.";

pub fn sheet() -> Result<Sheet, String> {
    let mut sheet = Sheet::new("000", "BeeGFS benchmarks on HP Apollo 4200 Gen9 (December 2015)");
    let one = [plan("hp-apollo-p440")?, plan("hp-apollo-p840ar")?];
    let two = plan("hp-apollo")?;
    let dense = plan("hp-apollo-24-on-p840ar")?;
    inputs(&mut sheet, &one);
    pairs(&mut sheet, &two, &dense);
    ratios(&mut sheet, &one, &two, &dense);
    conservative(&mut sheet)?;
    other(&mut sheet, &two);
    verdicts(&mut sheet, &one, &two, &dense);
    Ok(sheet)
}

fn rates(forecast: &Forecast) -> [f64; 2] {
    [forecast.write.expected.0, forecast.read.expected.0]
}

const WAYS: [&str; 2] = ["write", "read"];

fn inputs(sheet: &mut Sheet, one: &[Forecast; 2]) {
    for (name, forecast, table) in [("P440", &one[0], TABLE_2_P440), ("P840ar", &one[1], TABLE_2_P840AR)] {
        for (at, way) in WAYS.into_iter().enumerate() {
            let what = format!("12 disks on the {name}, {way}");
            let line = sheet.line(
                &what,
                Shown::MibPerSecond,
                Published::Number(table[at]),
                rates(forecast)[at],
                "Table 2: the rate of one RAID set on this controller",
            );
            line.how(How::Input);
        }
    }
}

fn pairs(sheet: &mut Sheet, two: &Forecast, dense: &Forecast) {
    let slowest = "Table 1. Twice the slower RAID set of Table 2 (input): files are striped over both.";
    let notes = [
        [slowest.to_owned(), format!("Table 1. Twice the slower RAID set of Table 2 (input). {SHARED_PATH}")],
        ["Table 3. The controller's 2.5 GB/s (001), less than two RAID sets of Table 2; that it computes the parity of 24 disks as \
          well is not in the model."
            .to_owned(),
         "Table 3. The controller's 2.5 GB/s (001), less than two RAID sets of Table 2.".to_owned()],
    ];
    for (name, forecast, table, notes, tolerances, how) in [
        ("12 disks on each of two controllers", two, TABLE_1, &notes[0], [0.05, 0.13], How::Combined),
        ("24 disks on the P840ar", dense, TABLE_3, &notes[1], [0.11, 0.02], How::Predicted),
    ] {
        for (at, way) in WAYS.into_iter().enumerate() {
            let what = format!("{name}, {way}");
            let published = Published::Number(table[at]);
            sheet
                .line(&what, Shown::MibPerSecond, published, rates(forecast)[at], &notes[at])
                .within(tolerances[at])
                .how(how);
        }
    }
}

fn ratios(sheet: &mut Sheet, one: &[Forecast; 2], two: &Forecast, dense: &Forecast) {
    for (at, way) in WAYS.into_iter().enumerate() {
        let (p440, p840ar) = (rates(&one[0])[at], rates(&one[1])[at]);
        let (both, dense) = (rates(two)[at], rates(dense)[at]);
        let read = at == 1;
        let lines = [
            (
                "two controllers / sum of each alone",
                TABLE_1[at] / (TABLE_2_P440[at] + TABLE_2_P840AR[at]),
                both / (p440 + p840ar),
                if read { SHARED_PATH } else { "Table 1 over Table 2" },
                if read { 0.13 } else { 0.05 },
            ),
            (
                "24 disks / twice 12 disks on the P840ar",
                TABLE_3[at] / (2.0 * TABLE_2_P840AR[at]),
                dense / (2.0 * p840ar),
                if read {
                    "Table 3 over Table 2"
                } else {
                    "Table 3 over Table 2; off as the rate of 24 disks above is"
                },
                if read { 0.05 } else { 0.11 },
            ),
            (
                "one controller / two, 24 disks",
                TABLE_3[at] / TABLE_1[at],
                dense / both,
                if read {
                    "Table 3 over Table 1; the model expects more of two controllers than was measured"
                } else {
                    "Table 3 over Table 1; both are too high, the one controller more"
                },
                if read { 0.13 } else { 0.06 },
            ),
        ];
        for (what, published, computed, note, tolerance) in lines {
            let published = Published::Derived(published * 100.0);
            sheet
                .line(&format!("{what}, {way}"), Shown::Percent, published, computed, note)
                .within(tolerance)
                .how(How::Combined);
        }
    }
}

fn conservative(sheet: &mut Sheet) -> Result<(), String> {
    let forecast = vary("hp-apollo-p440", |hardware| {
        for group in hardware.servers.iter_mut().flat_map(|server| &mut server.targets) {
            (group.measured_read, group.measured_write) = (None, None);
        }
    })?;
    let note = "No input: 001's 100 MB/s for a new hard disk. It is a conservative point of reference and stays below, as \
                it should: 4 TB disks of 2015 stream faster.";
    for (at, way) in WAYS.into_iter().enumerate() {
        let what = format!("12 disks on the P440 by 001's table, {way}");
        let published = Published::Number(TABLE_2_P440[at]);
        sheet
            .line(&what, Shown::MibPerSecond, published, rates(&forecast)[at], note)
            .within(0.35)
            .how(How::Predicted);
    }
    Ok(())
}

fn other(sheet: &mut Sheet, two: &Forecast) {
    let table = "Table 4; cores of the E5-2620 v3 from Intel's data sheet";
    for (what, published, figure) in [
        ("files created per second", 40_785.0, &two.metadata.creates),
        ("files stat'ed per second", 143_129.0, &two.metadata.stats),
    ] {
        let line =
            sheet.line(what, Shown::Number, Published::Number(published), value(figure.as_ref()), table);
        line.how(How::Input);
    }
    let memory = two.memory.per_client.value;
    sheet.line(
        "connection memory of one client",
        Shown::Mb,
        Published::Nothing,
        memory,
        "section 4.3, same settings as 001",
    );
    sheet.line(
        "usable capacity",
        Shown::Tib,
        Published::Nothing,
        two.capacity.usable.value,
        "2 x 10 of 12 disks x 4 TB x 0.99",
    );
}

fn verdicts(sheet: &mut Sheet, one: &[Forecast; 2], two: &Forecast, dense: &Forecast) {
    let sets = [
        (
            "P440",
            "The RAID set as measured (input). The document compares and does not name a limit; the link (6 GB/s) is far away.",
        ),
        (
            "P840ar",
            "The RAID set as measured (input). Such disks write 13 % more on the P440 (and read no more), so it is not the disks; 24 disks write 2170 \
             through the same controller (Table 3), so it is not all that it passes: its rate for one RAID set.",
        ),
    ];
    for ((name, note), forecast) in sets.into_iter().zip(one) {
        for (way, stream) in WAYS.into_iter().zip([&forecast.write, &forecast.read]) {
            sheet.limits(&format!("12 disks on the {name}, {way}"), stream, None, note);
        }
    }
    for (way, stream, note) in [
        ("write", &two.write, "The slower of the two RAID sets (input), that on the P840ar."),
        ("read", &two.read, "See the line of the rate: something more limits."),
    ] {
        sheet.limits(&format!("12 disks on each of two controllers, {way}"), stream, None, note);
    }
    let note = "2.5 GB/s of a controller (001). The document says only that both were lower than with the P440 as well, \
                which holds from two processes on: a comparison, no limit named.";
    for (way, stream) in WAYS.into_iter().zip([&dense.write, &dense.read]) {
        sheet.limits(&format!("24 disks on the P840ar, {way}"), stream, None, note);
    }
}
