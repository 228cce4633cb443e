//! `skep up`, `skep down`, `skep status`: a whole cluster on one machine, as real processes over
//! real sockets, in one directory.
//!
//! ```text
//! D/cluster.toml        what was asked for; --cluster wants it
//! D/cluster.key         the cluster key (0400); D/client.key: what the mount gets
//! D/etc/NAME.toml       configuration of each service, yours to change
//! D/state/NAME/         state of mgmtd, metad, storaged
//! D/targets/N/          storage targets
//! D/run/                sockets, process ids (NAME.pid); D/log/NAME.log
//! ```

mod down;
mod last_words;
mod mount_point;
mod place;
mod plan;
mod process;
mod ready;
mod start;
mod status;

pub use status::UpStatus;
pub use status::{ClusterSummary, failed};

use clap::Args;
use skep_base::Outcome;
use skep_base::access::some_time;
use skep_base::config::metad::GROUPS_MAX;
use skep_base::output::{self, OutputArgs};
use skep_base::units::Period;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `skep up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Directory of the cluster; made when it does not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to mount it [default: DIR/mnt, later what it was before]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Storage targets of a new cluster [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    targets: Option<u32>,
    /// Metadata shards of a new cluster, a power of two [default: 64]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Metadata servers of a new cluster, each with its share of the shards; between directories of the root, mv copies then and ln fails (EXDEV) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    metas: Option<u32>,
    /// Groups of each metadata server of a new cluster: each uses a processor of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(GROUPS_MAX)))]
    groups: Option<u32>,
    /// Storage servers of a new cluster, each with its share of the targets [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    servers: Option<u32>,
    /// Start the servers only
    #[arg(long, conflicts_with = "mount")]
    no_mount: bool,
}

/// Arguments of `skep down`.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Directory of the cluster
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Arguments of `skep status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Directory of the cluster
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// How long mgmtd and the mount may take to answer
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = some_time)]
    timeout: Period,
    #[command(flatten)]
    output: OutputArgs,
}

fn finish(outcome: Outcome<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        eprintln!("skep: {failure}");
        ExitCode::FAILURE
    })
}

/// `skep up`.
pub fn up(args: &UpArgs) -> ExitCode {
    finish(start::run(args, &mut output::stdout()).map(|()| ExitCode::SUCCESS))
}

/// `skep down`.
pub fn down(args: &DownArgs) -> ExitCode {
    finish(down::run(&args.dir, &mut output::stdout()).map(|()| ExitCode::SUCCESS))
}

/// `skep status`: exit code 1 when something of it does not run.
pub fn status(args: &StatusArgs) -> ExitCode {
    finish(status::run(&args.dir, args.timeout, args.output.output, &mut output::stdout()))
}
