//! Commands of administrators: they ask mgmtd, metadata and storage servers over the wire, as any
//! other program does, and show the answers.

#[macro_use]
extern crate skep_base;

pub mod api;
mod config_file;
mod confirm;
pub mod df;
mod dir;
mod entry;
pub mod entry_info;
pub mod entry_repair;
pub mod entry_set;
mod entry_walk;
pub mod health;
mod key;
pub mod lost;
pub mod node;
pub mod pool;
pub mod pool_limits;
pub mod session;
pub mod shard;
pub mod stats;
pub mod target;
pub mod target_removal;
mod through_mount;
mod umount;
pub mod up;

use clap::Subcommand;
use skep_base::Outcome;
use std::process::ExitCode;

/// What there is to administer.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Daemons of the cluster
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Shards: the parts of the namespace, each on a metadata server
    #[command(subcommand)]
    Shard(shard::ShardCommand),
    /// Storage targets
    #[command(subcommand)]
    Target(target::TargetCommand),
    /// Storage pools: groups of targets that directories can choose
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Files and directories: where their bytes are, how they are striped
    #[command(subcommand)]
    Entry(entry::EntryCommand),
    /// Directories on chosen metadata shards
    #[command(subcommand)]
    Dir(dir::DirCommand),
    /// Mounts
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Keys of clusters and clients
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Configuration files
    #[command(subcommand)]
    Config(config_file::ConfigCommand),
    /// Space of every target
    Df(df::DfArgs),
    /// What is wrong, and what to do: exit code 0 healthy, 1 degraded, 2 down, 3 no permission
    ///
    /// Chunk files of which something is lost are those that a program or a command met within the last hour, or since, as
    /// long as its mount lives and they were not put back. `find MOUNT -type f -exec skep entry repair {} +` meets all of them.
    Health(health::HealthArgs),
    /// Counters of metadata and storage servers, or what they do now (--watch)
    Stats(stats::StatsArgs),
    /// Unmount, or say who keeps a mount busy
    Umount(umount::UmountArgs),
}

/// Does it; the failure's text goes to standard error.
pub fn run(command: &AdminCommand) -> ExitCode {
    let out = &mut skep_base::output::stdout();
    let outcome = match command {
        AdminCommand::Node(command) => node::run(command, out),
        AdminCommand::Shard(command) => shard::run(command, out),
        AdminCommand::Target(command) => target::run(command, out),
        AdminCommand::Pool(command) => pool::run(command, out),
        AdminCommand::Entry(command) => entry::run(command, out),
        AdminCommand::Dir(command) => dir::run(command),
        AdminCommand::Session(command) => session::run(command, out),
        AdminCommand::Key(command) => key::run(command, out),
        AdminCommand::Config(command) => config_file::run(command, out),
        AdminCommand::Df(args) => df::run(args, out),
        AdminCommand::Stats(args) => stats::run(args, out),
        AdminCommand::Umount(args) => umount::run(args),
        AdminCommand::Health(args) => return health::run(args, out),
    };
    finish(outcome)
}

/// The exit code of a command; the failure's text goes to standard error.
pub fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("skep: {failure}");
            ExitCode::FAILURE
        }
    }
}
