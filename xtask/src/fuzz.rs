//! `cargo xtask fuzz`: builds `skep-fuzz` with counters at every edge of this tree's code, and runs it.
//!
//! Only crates of the tree are compiled anew: what they use from others is what all other builds use.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler with counters.
const COMPILER: &str = "xtask/src/fuzz/instrumented";

/// What to fuzz, and how long.
#[derive(clap::Args)]
pub struct Arguments {
    /// Targets; none: all.
    targets: Vec<String>,
    /// Inputs for each target; for texts, which take longest, a tenth.
    #[arg(long, default_value_t = 20_000)]
    runs: u64,
    /// Minutes for all targets together, instead of a number of inputs.
    #[arg(long)]
    minutes: Option<f64>,
    /// Where the dice begin: same seed, same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Read one input only: a file that an earlier run kept.
    #[arg(long)]
    input: Option<PathBuf>,
}

/// Builds and fuzzes; true when nothing broke.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let target = crate::target_directory(root);
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--locked", "--package", "skep-fuzz"]).current_dir(root);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", root.join(COMPILER)).env("CARGO_TARGET_DIR", &target);
    let status = cargo.status().map_err(|e| format!("{cargo:?}: {e}"))?;
    if !status.success() {
        return Err(format!("{cargo:?}: {status}"));
    }
    // From where the caller stands: so the path of an input is the caller's.
    let mut fuzz = Command::new(target.join("debug/skep-fuzz"));
    fuzz.args(&arguments.targets).arg("--runs").arg(arguments.runs.to_string());
    fuzz.arg("--seed").arg(arguments.seed.to_string()).arg("--keep").arg(target.join("fuzz"));
    if let Some(minutes) = arguments.minutes {
        fuzz.arg("--minutes").arg(minutes.to_string());
    }
    if let Some(input) = &arguments.input {
        fuzz.arg("--input").arg(input);
    }
    let status = fuzz.status().map_err(|e| format!("{fuzz:?}: {e}"))?;
    Ok(status.success())
}
