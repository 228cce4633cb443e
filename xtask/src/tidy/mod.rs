//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! Each check reads a [`Tree`] (files in memory, so that tests need no disk) and reports
//! [`Failure`]s: where, what, and how to put it right.

mod arrows;
mod commits;
mod documents;
mod length;
mod manifest;
mod markdown;
mod names;
mod no_std;
mod reserved;
mod rust;
mod tree;
mod words;

use core::fmt;
use std::path::Path;

pub use arrows::pure_crates;
pub use tree::{File, Tree};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    path: String,
    line: usize,
    what: String,
    fix: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    fix: {}", self.path, self.line, self.what, self.fix)
    }
}

/// What the checks found.
#[derive(Debug, Default)]
pub struct Report(Vec<Failure>);

impl Report {
    /// `what` is wrong in `path` at `line` (counted from 1); `fix` says what to do.
    pub fn add(&mut self, path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) {
        self.0.push(Failure { path: path.to_owned(), line, what: what.into(), fix: fix.into() });
    }
}

/// A check and the title it is counted under.
type Check = (&'static str, fn(&Tree, &mut Report));

const CHECKS: [Check; 9] = [
    ("length of files and functions", length::check),
    ("arrows between crates", arrows::check),
    ("no_std in vocabulary, rules and model", no_std::check),
    ("names of modules", names::check),
    ("workspace lints in every crate", manifest::check),
    ("banned words and characters", words::check),
    ("markdown: one title, links that resolve", markdown::check),
    ("ARCHITECTURE.md and docs/promises.md", documents::check),
    ("numbers that are kept for later", reserved::check),
];

/// Runs every check over the tree at `root` and prints the outcome; true when nothing is wrong.
pub fn run(root: &Path) -> Result<bool, String> {
    let tree = Tree::read(root)?;
    let mut failed = 0;
    let mut reports: Vec<(&str, Report)> = Vec::new();
    for (title, check) in CHECKS {
        let mut report = Report::default();
        check(&tree, &mut report);
        reports.push((title, report));
    }
    let mut history = Report::default();
    commits::check(root, &mut history);
    reports.push(("subjects of commits", history));
    let checks = reports.len();
    for (title, mut report) in reports {
        report.0.sort();
        println!("{} {title}", if report.0.is_empty() { "ok  " } else { "FAIL" });
        for failure in &report.0 {
            println!("  {failure}");
        }
        failed += usize::from(!report.0.is_empty());
    }
    println!("{} passed, {failed} failed", checks - failed);
    Ok(failed == 0)
}

/// What one check says of a small tree, as text (for the tests of the checks).
#[cfg(test)]
fn findings(check: fn(&Tree, &mut Report), files: &[(&str, &str)]) -> Vec<String> {
    let mut report = Report::default();
    check(&Tree::of(files), &mut report);
    report.0.sort();
    report.0.iter().map(|failure| format!("{}:{}: {}", failure.path, failure.line, failure.what)).collect()
}
