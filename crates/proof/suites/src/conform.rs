//! `cargo xtask conform`: the POSIX conformance suite over a mount of a cluster of its own.

use crate::program::built;
use crate::servers::Servers;
use skep_rig::{Cluster, Plan};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Metadata shards of the cluster.
const SHARDS: u32 = 4;

/// What FUSE cannot do, with the reason. Printed by every run.
const UNSUPPORTED: &[&str] = &[];

/// What comes out otherwise where a case has directories on several shards, with the reason.
const DEVIATIONS: &str = "crates/proof/conform/deviations/several-servers.txt";

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only cases whose id contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Only one of N cases.
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Build and use the release program.
    #[arg(long)]
    release: bool,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Cases at a time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    #[command(flatten)]
    servers: Servers,
}

/// Runs the suite; true when every case passed. A capability that the mount lacks is a failure.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let suite = built(root, "skep-conform", arguments.release)?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", arguments.release)?,
    };
    let plan = arguments.servers.of(Plan { shards: SHARDS, ..Plan::new(program) });
    let cluster = Cluster::start(plan)?;
    let mut command = Command::new(&suite);
    command.args(["--require-all", "--jobs", &arguments.jobs.to_string()]);
    command.args(["--every", &arguments.every.to_string(), "--dir"]).arg(cluster.mount());
    match &arguments.filter {
        Some(filter) => command.args(["--filter", filter]),
        None if UNSUPPORTED.is_empty() => &mut command,
        None => command.args(["--unsupported", &UNSUPPORTED.join(",")]),
    };
    if arguments.servers.are_several() {
        // As in the root of a file system: whatever directories a case makes are on shards of their own.
        command.arg("--deviations").arg(root.join(DEVIATIONS)).arg("--").arg(cluster.program());
        command.args(cluster.admin_words(["entry", "set", "--placement", "spread"]));
    }
    let status = command.status().map_err(|e| format!("{}: {e}", suite.display()))?;
    if !status.success() {
        cluster.show_logs();
    }
    Ok(status.success())
}
