//! The outcome of a run and how it is printed.

use crate::scene::Mismatch;
use serde::Serialize;
use std::fmt::Write;

/// A case that failed.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub case: String,
    /// The step that went wrong, as in the table.
    pub step: String,
    /// Who did it.
    pub user: String,
    /// What was expected.
    pub expected: String,
    /// What happened.
    pub happened: String,
    /// How to run only this case.
    pub run: String,
}

/// Everything a run has to say.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// How many cases passed.
    pub passed: usize,
    pub failures: Vec<Failure>,
    /// Capabilities the file system lacks, with the number of cases left out for each.
    pub lacking: Vec<(String, usize)>,
    /// Cases that came to another error, as the caller said that they may.
    pub deviated: Vec<String>,
    /// Cases the caller asked to leave out.
    pub left_out: Vec<String>,
}

impl Failure {
    /// A failure of `case` run over `dir`.
    pub fn new(case: &str, dir: &str, what: Mismatch) -> Failure {
        Failure {
            case: case.to_owned(),
            step: what.step,
            user: what.user,
            expected: what.expected,
            happened: what.happened,
            run: format!("skep-conform --dir {} --filter {}", quoted(dir), quoted(case)),
        }
    }
}

/// An argument as a shell takes it back.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Report {
    /// Whether nothing failed.
    pub fn clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// The last line of the table output.
    pub fn summary(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failures.len())
    }

    /// For people: failures first, the summary last.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for f in &self.failures {
            // writing into a String cannot fail
            let _ = writeln!(out, "FAILED {}\n  step      {} (as {})", f.case, f.step, f.user);
            let _ = writeln!(
                out,
                "  expected  {}\n  happened  {}\n  run       {}",
                f.expected, f.happened, f.run
            );
        }
        for (name, cases) in &self.lacking {
            let _ = writeln!(out, "lacking: {name} ({cases} cases left out)");
        }
        for case in &self.left_out {
            let _ = writeln!(out, "left out as --unsupported says: {case}");
        }
        for case in &self.deviated {
            let _ = writeln!(out, "another error, as --deviations says: {case}");
        }
        if !self.deviated.is_empty() {
            let _ =
                writeln!(out, "{} cases came to another error that --deviations names", self.deviated.len());
        }
        out + &self.summary() + "\n"
    }

    /// For programs.
    pub fn json(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map_err(|e| format!("cannot write JSON: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: failures come first with expectation, outcome and command; the last line is the agreed one.
    #[test]
    fn table_has_the_agreed_shape() {
        let what = Mismatch {
            step: "mkdir d".into(),
            user: "u1".into(),
            expected: "EPERM".into(),
            happened: "success".into(),
        };
        let report = Report {
            passed: 3,
            failures: vec![Failure::new("mkdir/it's", "/mnt", what)],
            lacking: vec![("exec".into(), 2)],
            deviated: vec!["link/y".into()],
            left_out: vec!["link/x".into()],
        };
        let text = report.table();
        assert!(text.starts_with("FAILED mkdir/it's\n"));
        assert!(text.contains("expected  EPERM") && text.contains("happened  success"));
        assert!(text.contains(r"--filter 'mkdir/it'\''s'"));
        assert!(text.contains("another error, as --deviations says: link/y\n1 cases came to another error"));
        assert!(text.contains("lacking: exec (2 cases left out)"));
        assert_eq!(text.lines().last(), Some("3 passed, 1 failed"));
        assert!(report.json().expect("serialises").contains("\"passed\": 3"));
    }
}
