//! The table of docs/bench/fio.md.

use super::{Results, Row};
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- bench-fio -->";
const END: &str = "<!-- end of bench-fio -->";

/// A row as shown while measuring.
pub fn line(row: &Row) -> String {
    format!(
        "{}: {}: fio {:.0} MiB/s, skep bench {:.0} MiB/s, ratio {:.3} ({:.3} to {:.3}), p50 {:.2} and {:.2} us{}",
        row.place,
        row.load,
        row.fio / 1_048_576.0,
        row.skep / 1_048_576.0,
        row.ratio,
        row.low,
        row.high,
        row.fio_p50_us,
        row.skep_p50_us,
        if row.agrees() { "" } else { "  DIFFERS" }
    )
}

/// Puts the table into the page, between its marks.
pub fn update(page: &Path, results: &Results) -> Result<(), String> {
    let wrong = |what: &str| format!("{}: {what}", page.display());
    let text = std::fs::read_to_string(page).map_err(|e| wrong(&e.to_string()))?;
    let missing = || wrong("the marks of the table are missing");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    let new = format!("{before}{BEGIN}\n{}{END}{after}", table(results));
    std::fs::write(page, new).map_err(|e| wrong(&e.to_string()))
}

/// The table, with what its rows were measured on.
pub fn table(results: &Results) -> String {
    let mut provenances: Vec<String> = Vec::new();
    for row in &results.rows {
        let one = format!("{} ({}, class: {})", row.provenance, row.place, row.class);
        if !provenances.contains(&one) {
            provenances.push(one);
        }
    }
    let mut out = String::from("\n");
    for one in &provenances {
        let _ = writeln!(out, "- {one}");
    }
    out.push('\n');
    out.push_str("| file system | load | fio MiB/s | skep MiB/s | ratio | 95 % interval | p50 us: fio, skep | pairs | agree |\n");
    out.push_str("| --- | --- | ---: | ---: | ---: | --- | --- | ---: | --- |\n");
    for row in &results.rows {
        let _ = writeln!(
            out,
            "| {} | {} | {:.0} | {:.0} | {:.3} | {:.3} to {:.3} | {}, {:.2} | {} | {} |",
            row.place,
            row.load,
            row.fio / 1_048_576.0,
            row.skep / 1_048_576.0,
            row.ratio,
            row.low,
            row.high,
            // fio's leanest settings take no latencies.
            if row.fio_p50_us > 0.0 { format!("{:.2}", row.fio_p50_us) } else { "not taken".to_owned() },
            row.skep_p50_us,
            row.pairs,
            if row.agrees() { "yes" } else { "no" }
        );
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    /// Goal: the table is replaced between its marks, the words around it stay.
    #[test]
    fn replaced() {
        let dir = std::env::temp_dir().join(format!("bench-fio-page-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let page = dir.join("page.md");
        std::fs::write(&page, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).unwrap();
        let results = Results { rows: vec![row(1.2, 1.1, 1.3)] };
        update(&page, &results).unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("after\n") && !text.contains("old"), "{text}");
        assert!(text.contains("| 1.200 | 1.100 to 1.300 |") && text.contains("| no |"), "{text}");
        std::fs::write(&page, "no marks").unwrap();
        assert!(update(&page, &results).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
