use super::*;
use std::path::PathBuf;

/// Goal: every number of the documents is met within its tolerance, and larger errors are explained.
#[test]
fn within_tolerance() {
    let mut numbers = 0;
    for sheet in reproduce().unwrap() {
        for line in &sheet.lines {
            let what =
                format!("{} {}: {} against {:?}", sheet.document, line.what, line.computed, line.published);
            assert!(line.computed.is_finite(), "{what}");
            match line.published {
                Published::Number(_) | Published::Derived(_) => {
                    numbers += 1;
                    let error = line.error().unwrap().abs();
                    assert!(error <= line.tolerance, "{what}: off by {error:.4}, {} allowed", line.tolerance);
                    assert!(
                        error <= UNEXPLAINED || line.note.len() > 40,
                        "{what}: an error of {error:.3} needs a reason"
                    );
                    // A tolerance that is far wider than the error would let a wrong model pass.
                    assert!(
                        line.tolerance <= (2.0 * error).max(2.0 * UNEXPLAINED),
                        "{what}: tolerance too wide"
                    );
                }
                Published::Within(least, most) => {
                    assert!((least..=most).contains(&line.computed), "{what}");
                }
                Published::Nothing => {}
            }
        }
    }
    assert!(numbers >= 80, "{numbers} numbers");
}

/// Goal: wherever a document names what limits, the model finds the same.
#[test]
fn bottlenecks() {
    let mut named = 0;
    for sheet in reproduce().unwrap() {
        for verdict in &sheet.verdicts {
            if let Some(meant) = verdict.meant {
                named += 1;
                assert_eq!(verdict.computed, [meant], "{} {}", sheet.document, verdict.what);
            }
        }
    }
    assert_eq!(named, 9);
}

/// Goal: all fifteen cells of 003's Table 8 come out, rounded as printed.
#[test]
fn capacity_cells() {
    let sheets = reproduce().unwrap();
    let cells: Vec<&Line> = sheets[3].lines.iter().filter(|line| line.what.starts_with("usable, ")).collect();
    assert_eq!(cells.len(), 15);
    for cell in cells {
        assert_eq!(Published::Number(cell.computed.round()), cell.published, "{}", cell.what);
    }
}

/// Goal: the numbers that the issue of this program names are in the table, and are not inputs where they must be found.
#[test]
fn nothing_is_missing() {
    let sheets = reproduce().unwrap();
    // As printed, or as a sum of printed numbers shows.
    let found = |document: usize, published: f64, how: How| {
        sheets[document].lines.iter().any(|line| {
            let number = line.published.number().unwrap_or(f64::NAN);
            line.how == how && (number == published || number.round() == published)
        })
    };
    for (document, published) in [(0, 2170.0), (0, 2411.0), (3, 123.0), (3, 163.0), (4, 98.8)] {
        assert!(found(document, published, How::Predicted), "00{document}: {published}");
    }
    for (document, published) in [
        (1, 1.6),
        (1, 2.4),
        (1, 3.2),
        (1, 12.0),
        (2, 422.0),
        (2, 172.0),
        (2, 136.4),
        (3, 125.0),
        (3, 175.0),
        (3, 68.0),
        (3, 95.2),
        (3, 3.0),
    ] {
        assert!(found(document, published, How::Arithmetic), "00{document}: {published}");
    }
    assert!(found(3, 89.0, How::Extrapolated));
    for ratio in [28.0, 30.0] {
        assert!(found(3, ratio, How::Again), "003: {ratio}");
    }
    for (document, published) in
        [(0, 2449.6), (0, 2472.0), (4, 750.0), (4, 6055.0), (4, 13_192.72), (4, 11_996.17)]
    {
        assert!(found(document, published, How::Combined), "00{document}: {published}");
        assert!(!found(document, published, How::Input), "00{document}: {published}");
    }
    for (document, published) in
        [(2, 97.0), (2, 89.0), (3, 93.0), (3, 92.0), (3, 88.0), (4, 109.0), (4, 76.0)]
    {
        assert!(found(document, published, How::Quotient), "00{document}: {published}");
    }
    for measured in [109.0, 76.0] {
        let both = |line: &&Line| line.how == How::Measured && line.computed.round() == measured;
        assert!(sheets[4].lines.iter().any(|line| both(&line)), "004: {measured}, both measured");
    }
    for (document, published) in [(0, 1451.0), (0, 1396.0), (0, 1280.0), (0, 1390.0), (2, 31.0), (2, 50.0)] {
        assert!(found(document, published, How::Input), "00{document}: {published}");
    }
    let page = markdown(&sheets, &contradictions());
    for said in ["swapped", "123 is the NetBench", "75.7", "10^9", "of the drives in 003"] {
        assert!(page.contains(said) || said == "10^9" && page.contains("1,000,000,000 files"), "{said}");
    }
}

/// Goal: an input that is changed changes what is computed: nothing is a constant of the published number.
#[test]
fn computed_from_the_description() {
    let plain = plan("clusterstor-2-ssu").unwrap();
    let faster = vary("clusterstor-2-ssu", |hardware| {
        let drive = crate::hardware::DriveOverride {
            read: Some(crate::units::Rate::mb(197.6)),
            write: Some(crate::units::Rate::mb(197.6)),
            ..Default::default()
        };
        hardware.catalogue.drives.insert("mars-k".to_owned(), drive);
    })
    .unwrap();
    assert!((alone(&faster.write, Stage::Drives) / alone(&plain.write, Stage::Drives) - 2.0).abs() < 1e-9);
    assert_eq!(
        faster.write.bottleneck,
        [Stage::Links],
        "twice the disks' rate is more than four FDR links carry"
    );
}

/// Goal: the committed page is what the code computes; `SKEP_WRITE_TABLES=1` writes it.
#[test]
fn the_page_is_current() {
    let page = markdown(&reproduce().unwrap(), &contradictions());
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/plan/reproduction.md");
    if std::env::var_os("SKEP_WRITE_TABLES").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let first = page.lines().zip(committed.lines()).find(|(computed, committed)| computed != committed);
    assert!(
        page == committed,
        "docs/plan/reproduction.md is old: {first:?}; SKEP_WRITE_TABLES=1 cargo test -p skep-plan"
    );
}

/// Goal: a ratio of two measurements is called that, beside the same ratio with the model's own figure; and no ratio
/// that was made here from published numbers stands in the column of published ones without its brackets.
#[test]
fn what_was_measured_and_what_was_derived() {
    let sheets = reproduce().unwrap();
    let shown = |document: usize, what: &str| {
        let line = sheets[document].lines.iter().find(|line| line.what == what).expect(what);
        (line.how, (line.computed * 10.0).round() / 10.0)
    };
    assert_eq!(shown(4, "waterfall: IOR / targets, write"), (How::Measured, 108.9));
    assert_eq!(shown(4, "waterfall: clients, write"), (How::Computed, 48_000.0));
    assert_eq!(shown(4, "waterfall: clients, read"), (How::Computed, 192_000.0));
    assert_eq!(shown(4, "waterfall: IOR / targets of the model, write"), (How::Quotient, 104.3));
    assert_eq!(shown(4, "waterfall: IOR / targets of the model, read"), (How::Quotient, 75.9));
    for line in &sheets[0].lines {
        assert_eq!(
            line.what.contains(" / "),
            matches!(line.published, Published::Derived(_)),
            "{}",
            line.what
        );
    }
    let page = markdown(&sheets, &contradictions());
    assert!(page.contains("| (89.7) |") && !page.contains("| 89.7 |"));
    // Computed from the documents' digits, not from the rounded figures of others.
    for (document, what, derived) in [
        (2, "shared file / file per process, write", 37.4 / 120.7),
        (2, "shared file / file per process, read", 66.3 / 132.4),
        (3, "Small: shared file / file per process, write", 17.6 / 62.3),
        (3, "Small: shared file / file per process, read", 34.5 / 116.3),
        (4, "waterfall: IOR / targets of the model, write", 13_192.72 / (2.0 * 6055.32)),
        (4, "waterfall: IOR / targets of the model, read", 11_996.17 / (2.0 * 7903.99)),
    ] {
        let line = sheets[document].lines.iter().find(|line| line.what == what).expect(what);
        let Published::Derived(number) = line.published else { panic!("{what}: {:?}", line.published) };
        assert!((number / derived / 100.0 - 1.0).abs() < 1e-9, "{what}: {number}, {derived}");
    }
}

/// Goal: the rates of 000's Table 2 are those of a RAID set on its controller, so that the same controller has one limit of
/// its own in both descriptions: 12 disks stay below it, 24 disks reach it.
#[test]
fn a_rate_of_the_raid_set() {
    let (one, dense) = (plan("hp-apollo-p840ar").unwrap(), plan("hp-apollo-24-on-p840ar").unwrap());
    assert_eq!((&*one.write.bottleneck, &*one.write.next), (&[Stage::Drives][..], &[Stage::Controllers][..]));
    assert_eq!(one.write.limit.0, 1280.0 * MIB);
    assert_eq!(alone(&one.write, Stage::Controllers), alone(&dense.write, Stage::Controllers));
    assert_eq!(dense.write.bottleneck, [Stage::Controllers]);
    assert!(dense.write.limit.0 > 1.8 * one.write.limit.0, "Table 3: 2170 through the controller of 1280");
    let sheets = reproduce().unwrap();
    let verdicts = &sheets[0].verdicts;
    for way in ["12 disks on the P440, read", "12 disks on the P840ar, read", "12 disks on the P840ar, write"]
    {
        let verdict = verdicts.iter().find(|verdict| verdict.what == way).expect(way);
        assert!(verdict.computed == [Stage::Drives] && verdict.note.contains("RAID set"), "{way}");
        assert!(verdict.meant.is_none(), "the document names no limit");
    }
}

/// Goal: the sums behind the contradictions of 001 and 004, made anew from the documents' numbers.
#[test]
fn sums_of_contradictions() {
    let page = markdown(&reproduce().unwrap(), &contradictions());
    for (sum, digits, said) in [
        (6088.56 * 1.048_576, 1, "6384.3"),
        (6190.62 * 1.048_576, 1, "6491.3"),
        (7_310_362.51 / 32.0, 0, "228449"),
        (5_242_248.32 / 32.0, 0, "163820"),
        ((4957.82 + 4.0 * 6190.62) / 5.0, 0, "5944"),
        (11_996.17 / 2.0, 0, "5998"),
        (13_192.72 / (2.0 * 6055.32) * 1e8 / MIB, 0, "104 % and 72 %"),
    ] {
        assert!(said.starts_with(&format!("{sum:.digits$}")), "{sum} {said}");
        assert!(page.contains(said), "{said}");
    }
    for said in [
        "256 GiB of 128 processes",
        "with one process both were higher",
        "-I 512 (001)",
        "2 x 400 GB in",
        "from 16 threads to 128",
        "peaks just above 12 GB/s",
        "direct I/O is meant",
    ] {
        assert!(page.contains(said), "{said}");
    }
}

/// Goal: the table tells predictions from what proves less, counts them, and every page that quotes how good the program
/// is says what this code computes.
#[test]
fn predictions_are_counted() {
    let sheets = reproduce().unwrap();
    let found = predictions(&sheets);
    assert_eq!(found.count, 18);
    assert!((found.mean - 0.104).abs() < 0.001 && (found.median - 0.057).abs() < 0.001, "{found:?}");
    assert!((found.worst - 0.343).abs() < 0.001, "{found:?}");
    let of = |how: How| {
        let lines = sheets.iter().flat_map(|sheet| &sheet.lines);
        lines.filter(|line| line.how == how && line.published.number().is_some()).count()
    };
    assert_eq!(
        (of(How::Arithmetic), of(How::Extrapolated), of(How::Again), of(How::Computed)),
        (33, 4, 5, 0)
    );
    let page = markdown(&sheets, &contradictions());
    assert!(page.contains(&found.sentence()) && !page.contains("PREDICTIONS"), "{}", found.sentence());
    let manual = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/admin/plan.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let manual = manual.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(manual.contains(&found.sentence()), "docs/admin/plan.md must say: {}", found.sentence());
}
