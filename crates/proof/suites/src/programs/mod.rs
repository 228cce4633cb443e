//! `cargo xtask programs`: real programs on a mount, with their own checks as the judges.
//!
//! A program that is not installed is a failure that names the package, never a silent pass.

mod archives;
mod chaos;
mod compile;
mod git;
mod hashes;
mod postgres;
mod python;
pub mod shell;
mod sparse;
mod sqlite;

use crate::program::built;
use crate::servers::Servers;
use skep_rig::{Cluster, Plan};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a program is run with.
struct Stage<'a> {
    /// The cluster under it.
    cluster: &'a Cluster,
    /// A directory of its own on the first mount.
    work: PathBuf,
    /// The same directory through a second mount.
    other: PathBuf,
    /// A directory of its own on the local disk.
    local: PathBuf,
    /// The project's source tree.
    root: &'a Path,
}

type Run = fn(&Stage<'_>) -> Result<String, String>;

/// What must be installed: command and Debian package.
type Needs = &'static [(&'static str, &'static str)];

/// Every program: its name, what it needs, and its run.
const PROGRAMS: &[(&str, Needs, Run)] = &[
    ("git", &[("git", "git")], git::run),
    ("sqlite", &[("sqlite3", "sqlite3")], sqlite::run),
    ("sqlite-kills", &[("sqlite3", "sqlite3")], sqlite::kills),
    ("postgres", &[("pgbench", "postgresql postgresql-contrib"), ("runuser", "util-linux")], postgres::run),
    ("cargo", &[("cargo", "cargo"), ("git", "git")], compile::run),
    ("tar", &[("tar", "tar"), ("git", "git")], archives::tar),
    ("rsync", &[("rsync", "rsync"), ("git", "git")], archives::rsync),
    ("cp-sparse", &[("cp", "coreutils"), ("cmp", "diffutils")], sparse::run),
    ("python-venv", &[("python3", "python3-venv")], python::run),
    ("hashes", &[("sha256sum", "coreutils")], hashes::run),
];

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only programs whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// FUSE transport of the mounts: auto, uring or dev.
    #[arg(long)]
    transport: Option<String>,
    /// Where the cluster's directory is made.
    #[arg(long)]
    backing: Option<PathBuf>,
    #[command(flatten)]
    servers: Servers,
}

/// Runs the programs; true when all of them passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", true)?,
    };
    let chosen = |name: &str| arguments.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    let (mut passed, mut failed) = (0, 0);
    for (name, needs, run) in PROGRAMS.iter().filter(|(name, ..)| chosen(name)) {
        let begun = Instant::now();
        let outcome = match missing(needs) {
            Some(text) => Err(text),
            None => one(root, &program, arguments, name, *run),
        };
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(text) => {
                passed += 1;
                println!("passed {name} ({seconds:.0} s): {text}");
            }
            Err(text) => {
                failed += 1;
                println!("FAILED {name} ({seconds:.0} s): {text}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if passed + failed == 0 {
        return Err("no program has this in its name; without --filter all are run".to_owned());
    }
    Ok(failed == 0)
}

/// Each program gets a cluster of its own, so that none lives on what another left behind.
fn one(root: &Path, program: &Path, arguments: &Arguments, name: &str, run: Run) -> Result<String, String> {
    let mut plan = arguments.servers.of(Plan { base: arguments.backing.clone(), ..Plan::new(program) });
    if let Some(transport) = &arguments.transport {
        plan = plan.with("SKEP_MOUNT_TRANSPORT", transport);
    }
    let cluster = Cluster::start(plan)?;
    let second = cluster.second_mount("second", &[])?;
    let work = cluster.mount().join(name);
    let local = cluster.beside("local");
    for dir in [&work, &local] {
        std::fs::create_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let stage = Stage { cluster: &cluster, work, other: second.join(name), local, root };
    let outcome = run(&stage);
    if outcome.is_err() {
        cluster.show_logs();
    }
    outcome
}

fn missing(needs: &[(&str, &str)]) -> Option<String> {
    let absent = |command: &str| !shell::is_installed(command);
    let lacking: Vec<String> = needs
        .iter()
        .filter(|(command, _)| absent(command))
        .map(|(command, package)| format!("{command} is not installed (Debian: apt-get install {package})"))
        .collect();
    (!lacking.is_empty()).then(|| lacking.join("; "))
}
