//! ARCHITECTURE.md knows every crate; every promise names tests that exist.
//!
//! docs/promises.md holds tables with a column `Test` or `Tests`. Each of its cells names, in
//! backticks, functions (`module::name`, the last part counts) or cases of a committed table, which
//! stand in quotes in a Rust or TOML file. Tables without such a column (what is not possible) are
//! left alone.

use std::collections::BTreeSet;

use super::manifest::packages;
use super::rust::words;
use super::{Report, Tree};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const PROMISES: &str = "docs/promises.md";

/// Checks both pages.
pub fn check(tree: &Tree, report: &mut Report) {
    architecture(tree, report);
    promises(tree, report);
}

fn architecture(tree: &Tree, report: &mut Report) {
    let Some(page) = tree.file(ARCHITECTURE) else {
        report.add(ARCHITECTURE, 1, "the page is missing", "write the map of the crates");
        return;
    };
    for manifest in packages(tree) {
        let directory = manifest.directory().trim_end_matches('/');
        let named = |name: &str| page.text.contains(&format!("`{name}`"));
        if !named(&manifest.name) && !named(directory) {
            let what = format!("{} is not on the map", manifest.name);
            report.add(ARCHITECTURE, 1, what, format!("say what `{directory}` is for"));
        }
    }
}

fn promises(tree: &Tree, report: &mut Report) {
    let Some(page) = tree.file(PROMISES) else {
        report.add(PROMISES, 1, "the page is missing", "write down what users may rely on, with its tests");
        return;
    };
    let functions = functions(tree);
    let (mut column, mut in_table, mut rows) = (None, false, 0);
    for (line, text) in page.lines() {
        let text = text.trim();
        if !text.starts_with('|') {
            (column, in_table) = (None, false);
            continue;
        }
        let cells = cells(text);
        if !in_table {
            in_table = true;
            column = cells.iter().position(|cell| matches!(cell.as_str(), "Test" | "Tests"));
            continue;
        }
        let (Some(column), false) = (column, cells.iter().all(|cell| is_rule(cell))) else { continue };
        rows += 1;
        let named = cells.get(column).map(String::as_str).unwrap_or_default();
        let tests: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            report.add(PROMISES, line, "a promise without a test", "name the test that holds it to account");
        }
        for test in tests {
            if !functions.contains(test.rsplit("::").next().unwrap_or(test)) && !is_case(tree, test) {
                let what = format!("no test or case is called {test}");
                report.add(PROMISES, line, what, "correct the name, or write the test");
            }
        }
    }
    if rows == 0 {
        let fix = "write a table with a column `Test`";
        report.add(PROMISES, 1, "the page promises nothing", fix);
    }
}

/// The cells of a table row; `\|` is a bar inside of one.
fn cells(row: &str) -> Vec<String> {
    let inner = row.trim_matches('|').replace("\\|", "\u{1}");
    inner.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
}

/// The line under a table's head.
fn is_rule(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':'))
}

/// Names of all functions that are tests.
fn functions(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in tree.rust() {
        for at in words(&file.code, "fn") {
            let name = file.code[at + 2..].trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            let attributes = file.code[..at].rsplit([';', '}', '{']).next().unwrap_or("");
            if attributes.contains("#[test]") {
                names.insert(name[..end].to_owned());
            }
        }
    }
    names
}

fn is_case(tree: &Tree, name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    let tables = tree.files.iter().filter(|file| file.is_rust() || file.path.ends_with(".toml"));
    let mut tables = tables.filter(|file| file.name() != "Cargo.toml");
    name.len() > 2 && tables.any(|file| file.text.contains(&quoted))
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    const CRATE: (&str, &str) = ("crates/rules/meta/Cargo.toml", "[package]\nname = \"skep-meta\"\n");
    const MAP: (&str, &str) = (ARCHITECTURE, "# Map\n`crates/rules/meta`: the namespace.\n");
    const TESTS: (&str, &str) = ("a/src/x.rs", "#[test]\nfn holds() {}\nfn no_test() {}\n");
    const TABLE: (&str, &str) = ("a/cases.toml", "name = \"chmod EPERM\"\n");
    const GOOD: &str = "# P\n| Promise | Test |\n|---|:--|\n| a | `x::holds` |\n| b | `chmod EPERM` |\n";

    fn of(promises: &str) -> Vec<String> {
        findings(check, &[CRATE, MAP, TESTS, TABLE, (PROMISES, promises)])
    }

    /// Goal: the map must name each crate, by name or by directory.
    #[test]
    fn every_crate_is_on_the_map() {
        assert!(of(GOOD).is_empty());
        let found = findings(check, &[CRATE, (ARCHITECTURE, "# M\nmeta\n"), TESTS, TABLE, (PROMISES, GOOD)]);
        assert_eq!(found, ["ARCHITECTURE.md:1: skep-meta is not on the map"]);
        assert_eq!(findings(check, &[]).len(), 2);
    }

    /// Goal: a promise without a test, or with one that does not exist or is none, fails by its line.
    #[test]
    fn every_promise_has_its_test() {
        let rows = "| c | |\n| d | `gone` |\n| e | `no_test` |\n| f \\| g | `holds`, `lost` |\n";
        let limits = "\n| Not possible | Why |\n|---|---|\n| x | y |\n";
        assert_eq!(
            of(&format!("{GOOD}{rows}{limits}")),
            [
                "docs/promises.md:6: a promise without a test",
                "docs/promises.md:7: no test or case is called gone",
                "docs/promises.md:8: no test or case is called no_test",
                "docs/promises.md:9: no test or case is called lost",
            ]
        );
        assert_eq!(of("# P\n"), ["docs/promises.md:1: the page promises nothing"]);
    }
}
