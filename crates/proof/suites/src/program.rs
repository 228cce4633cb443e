//! Builds the programs that a task runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds `package` and gives the path of its program, which has the same name.
pub fn built(root: &Path, package: &str, release: bool) -> Result<PathBuf, String> {
    let mut command = Command::new("cargo");
    // The same program either way. But built along with a test that starts it, it is the one that `cargo test` has
    // built: by itself its dependencies have other features, and most of it would be compiled once more.
    match (package, release) {
        ("skep", false) => command.args(["test", "--quiet", "--no-run", "--workspace", "--test", "process"]),
        ("skep-conform", false) => {
            command.args(["test", "--quiet", "--no-run", "--workspace", "--test", "suite"])
        }
        _ => command.args(["build", "--quiet", "--package", package, "--bin", package]),
    };
    if release {
        command.arg("--release");
    }
    let status = command.current_dir(root).status().map_err(|e| format!("{command:?}: {e}"))?;
    if !status.success() {
        return Err(format!("{command:?}: {status}"));
    }
    let directory = crate::target_directory(root);
    Ok(directory.join(if release { "release" } else { "debug" }).join(package))
}

/// Builds the test program `name`, and gives its path.
pub fn built_test(root: &Path, name: &str) -> Result<PathBuf, String> {
    let mut command = Command::new("cargo");
    // The whole workspace, so that features are those that `cargo test --workspace` has built with.
    command.args(["test", "--no-run", "--locked", "--workspace", "--test", name]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(root);
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let target = message.get("target")?;
        let kinds = target.get("kind")?.as_array()?;
        let is_it = target.get("name")? == name && kinds.iter().any(|kind| kind == "test");
        let path = message.get("executable")?.as_str()?;
        is_it.then(|| PathBuf::from(path))
    });
    program.ok_or_else(|| format!("cargo built no test program {name}"))
}
