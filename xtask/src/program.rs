//! Builds the programs that a task runs.

use std::path::{Path, PathBuf};

/// Builds `package` and gives the path of its program, which has the same name.
pub fn built(root: &Path, package: &str, release: bool) -> Result<PathBuf, String> {
    let mut command = std::process::Command::new("cargo");
    command.args(["build", "--quiet", "--package", package, "--bin", package]).current_dir(root);
    if release {
        command.arg("--release");
    }
    let status = command.status().map_err(|e| format!("cargo build: {e}"))?;
    if !status.success() {
        return Err(format!("cargo build --package {package}: {status}"));
    }
    let directory = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(directory.join(if release { "release" } else { "debug" }).join(package))
}
