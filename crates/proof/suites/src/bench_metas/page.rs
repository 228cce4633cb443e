//! The result for people, and on its page.

use super::result::Results;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use std::path::Path;

/// Opens the table on the page; the name of the JSON file beside it follows.
const OPEN: &str = "<!-- bench-metas ";
/// Ends the opening line.
const OPEN_END: &str = " -->";
/// Closes the table.
const CLOSE: &str = "<!-- /bench-metas -->";

/// One row for each number of servers.
pub fn table(results: &Results) -> Result<String, String> {
    let rows = results.rows();
    let one = *rows.first().ok_or("nothing was measured")?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "servers",
        "operations/s (slowest, fastest)",
        "to one",
        "of their limit used",
        "busiest / mean",
        "us of servers each",
        "to one ",
    ]);
    for row in &rows {
        table.add_row([
            row.servers.to_string(),
            format!("{:.0} ({:.0}, {:.0})", row.rate, row.range.0, row.range.1),
            format!("{:.2}", row.rate / one.rate),
            format!("{:.0} %", row.used * 100.0),
            format!("{:.2}", row.busiest),
            format!("{:.1}", row.cost_us),
            format!("{:.2}", row.cost_us / one.cost_us),
        ]);
    }
    let (percent, threads, rounds) = (results.percent, results.threads, results.rounds);
    let what = format!(
        "{percent} % of a processor for each server, {threads} threads of the load for each, medians of {rounds} rounds"
    );
    Ok(format!("`{}`:\n{what}.\n\n{table}\n", results.command))
}

/// The page with its tables made anew.
pub fn render(page: &str, read: impl Fn(&str) -> Result<Results, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(file) = line.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(OPEN_END)) else {
            continue;
        };
        if !lines.any(|line| line == CLOSE) {
            return Err(format!("\"{line}\" has no \"{CLOSE}\""));
        }
        out.push_str(&format!("\n{}\n{CLOSE}\n", table(&read(file)?)?));
    }
    Ok(out)
}

fn read_beside(page: &Path, file: &str) -> Result<Results, String> {
    let path = page.with_file_name(file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes the tables of a page anew.
pub fn write(page: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", page.display());
    let text = std::fs::read_to_string(page).map_err(fail)?;
    let new = render(&text, |file| read_beside(page, file))?;
    std::fs::write(page, new).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no figure of the committed page was changed by hand, or left behind by a new result; a table needs its end.
    #[test]
    fn the_committed_page_is_generated() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/bench/metas.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let made = render(&text, |file| read_beside(&path, file)).unwrap();
        assert_eq!(text, made, "run: cargo xtask bench-metas --page docs/bench/metas.md");
        assert!(text.contains(OPEN), "the page shows nothing");
        let cut = text.replace(CLOSE, "");
        assert!(render(&cut, |file| read_beside(&path, file)).unwrap_err().contains("has no"));
    }
}
