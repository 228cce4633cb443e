//! `cargo xtask build`: compiles every program and test once, with clippy's lints, and counts warnings.
//!
//! `cargo clippy` only checks, and a build does not use what it found out: all sources would be compiled twice. Clippy's
//! compiler can build, too. What it builds fits together only with what it has built: `make test` names it for all of its
//! steps ([`COMPILER`]).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The setting by which cargo compiles the workspace with another compiler.
pub const COMPILER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");

/// Builds; true when there was no warning.
pub fn run(root: &Path) -> Result<bool, String> {
    let mut command = Command::new("cargo");
    command.args([
        "test",
        "--workspace",
        "--all-targets",
        // Not among all targets, since only `cargo xtask process` runs them.
        "--test",
        "process",
        "--no-run",
        "--locked",
        "--message-format",
        "json",
    ]);
    command.env(COMPILER.0, COMPILER.1).current_dir(root).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cargo cannot be started: {e}"))?;
    let output = child.stdout.take().ok_or("cargo has no output")?;
    let mut warnings = 0_u64;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|e| format!("cargo's output: {e}"))?;
        if let Some(text) = complaint(&line) {
            warnings += 1;
            println!("{text}");
        }
    }
    let status = child.wait().map_err(|e| format!("cargo cannot be waited for: {e}"))?;
    if !status.success() {
        return Err(format!("{command:?}: {status}"));
    }
    println!("{warnings} warnings");
    Ok(warnings == 0)
}

/// What one line of cargo's messages complains of.
fn complaint(line: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let message = message.get("message")?;
    let level = message.get("level")?.as_str()?;
    matches!(level, "warning" | "error").then(|| {
        message
            .get("rendered")
            .and_then(serde_json::Value::as_str)
            .unwrap_or("a warning without a text")
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: warnings and errors of the compiler are found among cargo's messages, and nothing else is.
    #[test]
    fn complaints_are_found() {
        let warning = r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: a needless return"}}"#;
        assert_eq!(complaint(warning).as_deref(), Some("warning: a needless return"));
        let error = r#"{"reason":"compiler-message","message":{"level":"error","rendered":null}}"#;
        assert_eq!(complaint(error).as_deref(), Some("a warning without a text"));
        let note =
            r#"{"reason":"compiler-message","message":{"level":"failure-note","rendered":"see E0425"}}"#;
        for other in [note, r#"{"reason":"compiler-artifact","fresh":true}"#, "", "not a message"] {
            assert_eq!(complaint(other), None, "{other}");
        }
    }
}
