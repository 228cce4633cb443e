//! The tables of `docs/bench/peers.md`, made from the JSON beside it.

use super::result::Report;
use super::table;
use crate::bench::page::{Kind, write_kinds};
use std::path::Path;

/// What a block can show.
const KINDS: [Kind<Report>; 2] = [("peers", table::rates), ("targets", table::verdicts)];

/// Writes the tables of a page anew.
pub fn write(page: &Path) -> Result<(), String> {
    write_kinds(page, &KINDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::page::{beside, render};

    /// Goal: no figure of the committed page was changed by hand, or left behind by a new result.
    #[test]
    fn the_committed_page_is_generated() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/bench/peers.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let made = render(&text, &KINDS, beside(&path)).unwrap();
        assert_eq!(text, made, "run: cargo xtask bench --peers --page docs/bench/peers.md");
    }
}
