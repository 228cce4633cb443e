//! `cargo xtask units`: unit tests and fuzz smoke of every crate, several test programs at a time.
//!
//! What `cargo test --workspace` does, which runs one program after the other: most wait as much as they compute.

use crate::ci::step::{self, Outcome};
use crate::ci::{Count, ENDS_WITH_US};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Programs at a time; each has a thread for every processor.
const JOBS: usize = 3;
/// Those that take longest: begun last, one of them would run alone at the end.
const LONGEST: [&str; 6] = ["skep_plan", "skep", "skep_survey", "skep_tune", "skep_bench", "exchange"];

/// Longest time of one, several times what the longest takes on a busy machine: what hangs is named, and ended (but for
/// who sits at a terminal).
const LIMIT: Duration = Duration::from_secs(600);

/// A program that cargo has built of tests.
struct Program {
    name: String,
    path: PathBuf,
    /// Where cargo would run it.
    package: PathBuf,
}

/// Runs them; true when all passed.
pub fn run(root: &Path) -> Result<bool, String> {
    let mut programs = built(root)?;
    programs.sort_by_key(|one| LONGEST.iter().position(|name| *name == one.name).unwrap_or(LONGEST.len()));
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let sum = Mutex::new(Count::default());
    let add = |name: &str, directory: &Path, command: &[&str]| {
        let count = told(name, finished(directory, command));
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.passed += count.passed;
        sum.failed += count.failed;
    };
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let home = format!("CARGO_MANIFEST_DIR={}", program.package.display());
                    let path = program.path.to_string_lossy();
                    add(&program.name, &program.package, &["env", &home, &path]);
                }
            });
        }
    });
    let examples = ["cargo", "test", "--workspace", "--doc", "--no-fail-fast", "--locked"];
    add("examples of the documentation", root, &examples);
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} passed, {} failed", sum.passed, sum.failed);
    Ok(sum.failed == 0)
}

/// How a program ended, and what it printed.
fn finished(directory: &Path, command: &[&str]) -> Result<(Outcome, Vec<u8>), String> {
    let mut printed = Vec::new();
    // It has a process group of its own, and ends with us all the same.
    let command = [&ENDS_WITH_US[..], command].concat();
    let outcome = step::run(directory, &command, LIMIT, &mut printed)?;
    Ok((outcome, printed))
}

/// Says how one program went, and what a failed one printed.
fn told(name: &str, finished: Result<(Outcome, Vec<u8>), String>) -> Count {
    let (outcome, printed) =
        finished.unwrap_or_else(|error| (Outcome::not_run(), format!("{error}\n").into_bytes()));
    let mut count = outcome.count;
    if !outcome.passed {
        // One that ended before it could count has failed as well.
        count.failed = count.failed.max(1);
        print!("{}", shown(&String::from_utf8_lossy(&printed)));
    }
    let word = match (outcome.passed, outcome.expired) {
        (true, _) => "ok",
        (_, true) => "FAILED: ran out of time",
        _ => "FAILED",
    };
    println!("{word:6} {:6.1} s  {name}: {} tests", outcome.took.as_secs_f64(), count.passed + count.failed);
    count
}

/// Without the tests that passed. Behind a bar, so that no line of it is counted twice.
fn shown(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.ends_with(" ... ok"));
    lines.map(|line| format!("| {line}\n")).collect()
}

/// Builds them all; those of `cargo test --workspace`.
fn built(root: &Path) -> Result<Vec<Program>, String> {
    let mut command = Command::new("cargo");
    // Without the examples, which `cargo xtask build` has compiled.
    command.args(["test", "--no-run", "--locked", "--workspace", "--lib", "--bins", "--tests"]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(root);
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let programs: Vec<Program> = messages.lines().filter_map(program).collect();
    if programs.is_empty() { Err("cargo built no test program".to_owned()) } else { Ok(programs) }
}

/// The test program that a message of cargo tells of.
fn program(message: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    let package = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    is_test.then_some(Program { name: message["target"]["name"].as_str()?.to_owned(), path, package })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: programs of tests are told from other programs and from messages about none.
    #[test]
    fn programs_are_found() {
        let line = |test: bool, executable: &str| {
            format!(
                r#"{{"manifest_path":"/w/crates/a/Cargo.toml","target":{{"name":"a"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = program(&line(true, r#""/w/target/a-1""#)).unwrap();
        let expected = ("a", Path::new("/w/target/a-1"), Path::new("/w/crates/a"));
        assert_eq!((found.name.as_str(), found.path.as_path(), found.package.as_path()), expected);
        assert!(
            program(&line(false, r#""/w/target/a""#)).is_none() && program(&line(true, "null")).is_none()
        );
        assert!(program(r#"{"reason":"build-finished"}"#).is_none() && program("").is_none());
    }

    /// Goal: a program that ends before its sum is a failure, and so is one that cannot be run.
    #[test]
    fn what_does_not_count_has_failed() {
        let ended = |script: &str| finished(Path::new("/"), &["sh", "-c", script]);
        let count = |finished| told("x", finished);
        assert_eq!(count(ended("exit 3")), Count { passed: 0, failed: 1 });
        assert_eq!(count(Err("no such program".to_owned())), Count { passed: 0, failed: 1 });
        let good = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        assert_eq!(count(ended(good)), Count { passed: 2, failed: 0 });
        assert_eq!(
            shown("test a ... ok\ntest result: FAILED. 0 passed; 1 failed"),
            "| test result: FAILED. 0 passed; 1 failed\n"
        );
    }
}
