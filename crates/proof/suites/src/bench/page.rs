//! The tables of a committed page, made from the JSON beside it.

use super::result::Report;
use super::table;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Opens a generated block; what it shows and the name of the JSON file follow.
const OPEN: &str = "<!-- bench ";
/// Ends the opening line.
const OPEN_END: &str = " -->";
/// Closes a generated block.
const CLOSE: &str = "<!-- /bench -->";

/// A name, and what it shows of a result.
pub type Kind<R> = (&'static str, fn(&R) -> String);

/// What a block can show.
const KINDS: [Kind<Report>; 3] =
    [("rates", table::rates), ("profiles", table::profiles), ("paths", table::paths)];

/// The page with each block between `<!-- bench KIND FILE -->` and `<!-- /bench -->` made anew from that file.
pub fn render<R>(
    page: &str,
    kinds: &[Kind<R>],
    read: impl Fn(&str) -> Result<R, String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(what) = line.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(OPEN_END)) else {
            continue;
        };
        let block = what.split_once(' ').and_then(|(kind, file)| {
            kinds.iter().find(|(name, _)| *name == kind).map(|(_, show)| (show, file))
        });
        let (show, file) = block.ok_or_else(|| {
            let names: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
            format!("\"{line}\": say {}, and a file", names.join(" or "))
        })?;
        if !lines.any(|line| line == CLOSE) {
            return Err(format!("\"{line}\" has no \"{CLOSE}\""));
        }
        out.push_str("\n```text\n");
        for line in show(&read(file)?).trim_matches('\n').lines() {
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
pub fn beside<R: DeserializeOwned>(page: &Path) -> impl Fn(&str) -> Result<R, String> {
    let directory: PathBuf = page.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    move |name| {
        let path = directory.join(name);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Writes the tables of a page of this benchmark anew.
pub fn write(page: &Path) -> Result<(), String> {
    write_kinds(page, &KINDS)
}

/// Writes the tables of a page anew.
pub fn write_kinds<R: DeserializeOwned>(page: &Path, kinds: &[Kind<R>]) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", page.display());
    let text = std::fs::read_to_string(page).map_err(fail)?;
    let new = render(&text, kinds, beside(page)).map_err(|e| format!("{}: {e}", page.display()))?;
    std::fs::write(page, new).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no figure of the committed pages was changed by hand, or left behind by a new result.
    #[test]
    fn the_committed_pages_are_generated() {
        for page in ["bench/README.md", "bench/profile.md", "design/paths.md"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(page);
            let text = std::fs::read_to_string(&path).unwrap();
            let made = render(&text, &KINDS, beside(&path)).unwrap();
            assert_eq!(text, made, "run: cargo xtask bench --page docs/{page}");
            assert!(text.contains(OPEN), "{page} shows nothing");
        }
    }

    /// Goal: a block without end, or of an unknown kind, is an error and not the end of the page.
    #[test]
    fn a_block_needs_its_end() {
        let read = |_: &str| Err("not asked".to_owned());
        assert!(
            render("# A\n<!-- bench rates x.json -->\ntext\n", &KINDS, read).unwrap_err().contains("has no")
        );
        assert!(
            render("<!-- bench x.json -->\n<!-- /bench -->\n", &KINDS, read)
                .unwrap_err()
                .contains("say rates")
        );
        assert_eq!(render("# A\n\ntext\n", &KINDS, read).unwrap(), "# A\n\ntext\n");
    }
}
