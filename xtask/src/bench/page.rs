//! The tables of a committed page, made from the JSON beside it.

use super::result::Report;
use super::table;
use std::path::{Path, PathBuf};

/// Opens a generated block; the name of the JSON file follows.
const OPEN: &str = "<!-- bench: ";
/// Ends the opening line.
const OPEN_END: &str = " -->";
/// Closes a generated block.
const CLOSE: &str = "<!-- /bench -->";

/// The page with each block between `<!-- bench: FILE -->` and `<!-- /bench -->` made anew from that file.
pub fn render(page: &str, read: impl Fn(&str) -> Result<Report, String>) -> Result<String, String> {
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
        let text = table::text(&read(file)?);
        out.push_str("\n```text\n");
        for line in text.lines() {
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out.push_str("```\n\n");
        out.push_str(CLOSE);
        out.push('\n');
    }
    Ok(out)
}

/// Reads a result that stands beside the page.
pub fn beside(page: &Path) -> impl Fn(&str) -> Result<Report, String> {
    let directory: PathBuf = page.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    move |name| {
        let path = directory.join(name);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Writes the tables of a page anew.
pub fn write(page: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", page.display());
    let text = std::fs::read_to_string(page).map_err(fail)?;
    let new = render(&text, beside(page)).map_err(|e| format!("{}: {e}", page.display()))?;
    std::fs::write(page, new).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no figure of the committed page was changed by hand, or left behind by a new result.
    #[test]
    fn the_committed_page_is_generated() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bench/README.md");
        let text = std::fs::read_to_string(&page).unwrap();
        let made = render(&text, beside(&page)).unwrap();
        assert_eq!(text, made, "run: cargo xtask bench --page docs/bench/README.md");
    }

    /// Goal: a block without end is an error, not the end of the page.
    #[test]
    fn a_block_needs_its_end() {
        let read = |_: &str| Err("not asked".to_owned());
        assert!(render("# A\n<!-- bench: x.json -->\ntext\n", read).unwrap_err().contains("has no"));
        assert_eq!(render("# A\n\ntext\n", read).unwrap(), "# A\n\ntext\n");
    }
}
