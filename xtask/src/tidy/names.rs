//! No drawers: a module is named after a noun of this field.

use super::rust::{line_of, words};
use super::{Report, Tree};

/// Names that say nothing of what is inside.
const DRAWERS: [&str; 7] = ["utils", "util", "common", "shared", "misc", "helpers", "helper"];

const FIX: &str = "name it after what it holds, or put its parts where they are used";

/// Checks files, directories and modules written inline.
pub fn check(tree: &Tree, report: &mut Report) {
    for path in &tree.paths {
        let last = path.rsplit('/').next().unwrap_or(path);
        let stem = last.split('.').next().unwrap_or(last);
        if DRAWERS.contains(&stem.to_ascii_lowercase().as_str()) {
            report.add(path, 1, format!("{last} is a drawer"), FIX);
        }
    }
    for file in tree.rust() {
        for at in words(&file.code, "mod") {
            let name: String = file.code[at + 3..]
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if DRAWERS.contains(&name.as_str()) {
                report.add(&file.path, line_of(&file.code, at), format!("module {name} is a drawer"), FIX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    /// Goal: drawers are found as files, directories and inline modules; other names pass.
    #[test]
    fn drawers_fail() {
        let found = findings(
            check,
            &[
                ("a/src/utils.rs", ""),
                ("a/tests/common/mod.rs", ""),
                ("a/src/lib.rs", "mod chunk;\nmod  misc { }\n// mod shared;\n"),
                ("a/src/common_prefix.rs", ""),
            ],
        );
        assert_eq!(
            found,
            [
                "a/src/lib.rs:2: module misc is a drawer",
                "a/src/utils.rs:1: utils.rs is a drawer",
                "a/tests/common:1: common is a drawer",
            ]
        );
    }
}
