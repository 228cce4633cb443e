//! `cargo xtask units`: unit tests and fuzz smoke of every crate, several test programs at a time.
//!
//! What `cargo test --workspace` does, which runs one program after the other: most wait as much as they compute.

use crate::ci::Count;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Programs at a time; each has a thread for every processor.
const JOBS: usize = 3;
/// Those that take longest: begun last, one of them would run alone at the end.
const LONGEST: [&str; 6] = ["skep_plan", "skep", "skep_survey", "skep_tune", "skep_bench", "exchange"];

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
    let add = |name: &str, output: Result<Output, String>, begun: Instant| {
        let count = told(name, output, begun);
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.passed += count.passed;
        sum.failed += count.failed;
    };
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let begun = Instant::now();
                    let mut command = Command::new(&program.path);
                    command.current_dir(&program.package).env("CARGO_MANIFEST_DIR", &program.package);
                    add(&program.name, finished(&mut command), begun);
                }
            });
        }
    });
    let begun = Instant::now();
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--doc", "--no-fail-fast", "--locked"]).current_dir(root);
    add("examples of the documentation", finished(&mut command), begun);
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} passed, {} failed", sum.passed, sum.failed);
    Ok(sum.failed == 0)
}

fn finished(command: &mut Command) -> Result<Output, String> {
    command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))
}

/// Says how one program went, and what a failed one printed.
fn told(name: &str, output: Result<Output, String>, begun: Instant) -> Count {
    let took = begun.elapsed().as_secs_f64();
    let (passed, text) = match output {
        Ok(output) => {
            let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            (output.status.success(), format!("{out}{err}"))
        }
        Err(error) => (false, error),
    };
    let mut count = Count::default();
    text.lines().for_each(|line| count.line(line));
    if !passed {
        // One that ended before it could count has failed as well.
        count.failed = count.failed.max(1);
        print!("{}", shown(&text));
    }
    println!(
        "{:6} {took:6.1} s  {name}: {} tests",
        if passed { "ok" } else { "FAILED" },
        count.passed + count.failed
    );
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
        let ended = |script: &str| finished(Command::new("sh").args(["-c", script]));
        let count = |output| told("x", output, Instant::now());
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
