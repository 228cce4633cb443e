//! `cargo xtask calibrate`: what Skep's operations cost on this machine, and the intervals and limits of its code,
//! written to `crates/know-how/plan/calibration.toml` for `skep plan scale`.
//!
//! Costs come from programs that drive the real code (examples of the crates, built for release and pinned to one
//! core) and from the profile of real daemons that `cargo xtask bench --profile` left in docs/bench. Intervals and
//! limits are read from the source, so a test here sees when they drift.

mod constants;
mod profile;
mod runs;
mod write;

use constants::constants;
use profile::Profiles;
use runs::Runs;
use std::path::Path;

/// Where the result belongs.
pub const FILE: &str = "crates/know-how/plan/calibration.toml";

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// The core that the measuring programs are pinned to [default: the last].
    #[arg(long)]
    pin: Option<usize>,
    /// The report of `cargo xtask bench --profile` with the costs of the daemons.
    #[arg(long, default_value = "docs/bench/2026-11-21.json")]
    profile: String,
    /// Show the result, and leave the file as it is.
    #[arg(long)]
    dry_run: bool,
}

/// Measures and writes.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let constants = constants(root)?;
    let profiles = Profiles::read(root, &arguments.profile)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runs = Runs::now(root, arguments.pin.unwrap_or(cores - 1))?;
    let text = write::text(&constants, &profiles, &runs)?;
    if arguments.dry_run {
        print!("{text}");
        return Ok(true);
    }
    std::fs::write(root.join(FILE), text).map_err(|e| format!("{FILE}: {e}"))?;
    eprintln!("{FILE} written; run `cargo test -p skep-plan` and look at the table of docs/plan/scale.md");
    Ok(true)
}
