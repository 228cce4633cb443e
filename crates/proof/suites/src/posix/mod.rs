//! `cargo xtask posix`: public POSIX suites, built by whoever runs this, over a cluster of its own.
//!
//! Nothing of them is part of this project. pjdfstest: a built source directory (its `tests` are run by
//! `prove`). fsx: a built program that takes `-q -N COUNT -S SEED -l LENGTH FILE`. fsstress: a built program
//! that takes `-d DIR -p PROCESSES -n COUNT -s SEED`. LTP: an installed tree, see [`ltp`].

mod fsstress;
mod known;
mod ltp;

use crate::program::built;
use crate::servers::Servers;
use skep_rig::{Cluster, Plan};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Metadata shards of the cluster.
const SHARDS: u32 = 4;

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Built source directory of pjdfstest.
    #[arg(long)]
    pjdfstest: Option<PathBuf>,
    /// Built fsx program.
    #[arg(long)]
    fsx: Option<PathBuf>,
    /// Built fsstress program.
    #[arg(long)]
    fsstress: Option<PathBuf>,
    /// Installed tree of LTP (`make install`), with its `runtest` directory beside `testcases`.
    #[arg(long)]
    ltp: Option<PathBuf>,
    /// Only cases of LTP whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// FUSE transport of the mounts: auto, uring or dev.
    #[arg(long)]
    transport: Option<String>,
    /// Operations of each fsx run.
    #[arg(long, default_value_t = 20_000)]
    operations: u32,
    /// fsx runs, with seeds from 1.
    #[arg(long, default_value_t = 5)]
    seeds: u32,
    /// Largest file of fsx: beyond 16 MiB a file has two extents.
    #[arg(long, default_value_t = 24 << 20)]
    length: u64,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
    #[command(flatten)]
    servers: Servers,
}

/// Runs the suites; true when all of both passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let named = [&arguments.pjdfstest, &arguments.fsx, &arguments.fsstress, &arguments.ltp];
    if named.iter().all(|suite| suite.is_none()) {
        return Err(
            "name at least one suite: --pjdfstest DIR, --fsx PROGRAM, --fsstress PROGRAM, --ltp PREFIX"
                .to_owned(),
        );
    }
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", true)?,
    };
    let mut plan = arguments.servers.of(Plan { shards: SHARDS, ..Plan::new(program) });
    if let Some(transport) = &arguments.transport {
        plan = plan.with("SKEP_MOUNT_TRANSPORT", transport);
    }
    let cluster = Cluster::start(plan)?;
    let (mut passed, mut failed) = (0, 0);
    let mut count = |name: &str, good: bool| {
        println!("{} {name}", if good { "passed" } else { "FAILED" });
        if good { passed += 1 } else { failed += 1 }
    };
    if let Some(source) = &arguments.pjdfstest {
        count("pjdfstest", pjdfstest(source, arguments.servers, &cluster)?);
    }
    if let Some(fsx) = &arguments.fsx {
        for seed in 1..=arguments.seeds {
            count(&format!("fsx seed {seed}"), one_fsx(fsx, arguments, seed, cluster.mount())?);
        }
    }
    if let Some(prefix) = &arguments.ltp {
        count("ltp", ltp::run(prefix, arguments.filter.as_deref(), cluster.mount())?);
    }
    if let Some(program) = &arguments.fsstress {
        let outcome = fsstress::run(program, &cluster);
        count("fsstress", outcome.inspect_err(|e| println!("fsstress: {e}")).is_ok());
    }
    if failed > 0 {
        cluster.show_logs();
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Runs one of its files in a directory of its own: where there are several servers, on a shard of its own.
const IN_A_DIRECTORY: &str =
    "#!/bin/sh\nset -e\ncd \"$(mktemp -d ./t.XXXXXX)\"\nchmod 755 .\nexec sh \"$1\"\n";

fn pjdfstest(source: &Path, servers: Servers, cluster: &Cluster) -> Result<bool, String> {
    let work = cluster.mount().join("pjdfstest");
    std::fs::create_dir(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    servers.spread(cluster, &work)?;
    let script = cluster.beside("in-a-directory");
    std::fs::write(&script, IN_A_DIRECTORY).map_err(|e| format!("{}: {e}", script.display()))?;
    let tests = source.join("tests").canonicalize().map_err(|e| format!("{}: {e}", source.display()))?;
    let mut prove = Command::new("prove");
    prove.arg("--exec").arg(format!("sh {}", script.display())).args(["-r", "-Q", "-j", "4"]);
    let status = prove.arg(tests).current_dir(work).status();
    status.map(|status| status.success()).map_err(|e| format!("prove: {e}"))
}

fn one_fsx(fsx: &Path, arguments: &Arguments, seed: u32, mount: &Path) -> Result<bool, String> {
    let mut command = Command::new(fsx.canonicalize().map_err(|e| format!("{}: {e}", fsx.display()))?);
    // Several servers deal directories in the root to their shards.
    let work = mount.join(format!("fsx-{seed}"));
    std::fs::create_dir(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    command.args(["-q", "-N", &arguments.operations.to_string(), "-S", &seed.to_string()]);
    command.args(["-l", &arguments.length.to_string()]).arg(work.join("file"));
    command.status().map(|status| status.success()).map_err(|e| format!("{}: {e}", fsx.display()))
}
