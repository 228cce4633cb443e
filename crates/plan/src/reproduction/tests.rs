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
                Published::Number(_) => {
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
    assert_eq!(named, 11);
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
    let found = |document: usize, published: f64, how: How| {
        sheets[document]
            .lines
            .iter()
            .any(|line| line.published == Published::Number(published) && line.how == how)
    };
    for (document, published) in [
        (0, 2449.6),
        (0, 2472.0),
        (0, 2170.0),
        (0, 2411.0),
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
        (3, 123.0),
        (3, 163.0),
        (3, 89.0),
        (3, 3.0),
        (3, 28.0),
        (3, 30.0),
        (4, 750.0),
        (4, 13_192.72),
        (4, 11_996.17),
        (4, 98.8),
    ] {
        assert!(found(document, published, How::Model), "00{document}: {published}");
    }
    for (document, published) in
        [(2, 97.0), (2, 89.0), (3, 93.0), (3, 92.0), (3, 88.0), (4, 109.0), (4, 76.0)]
    {
        assert!(found(document, published, How::Quotient), "00{document}: {published}");
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
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan/reproduction.md");
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
