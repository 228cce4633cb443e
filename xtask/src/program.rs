//! Builds the programs that a task runs.

use std::path::{Path, PathBuf};
use std::process::Command;

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
    let directory = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(directory.join(if release { "release" } else { "debug" }).join(package))
}
