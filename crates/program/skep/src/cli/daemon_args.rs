//! Arguments of the services.

use crate::config::Source;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// What every service takes.
#[derive(Debug, Clone, Args)]
pub struct DaemonArgs {
    /// Configuration file [default: /etc/skep/<service>.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Instance: the configuration is /etc/skep/<service>/<instance>.toml
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub instance: Option<String>,
    /// Set one key of the configuration; wins over file and environment
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Run without a key: whoever reaches a port is trusted (tests on one machine only)
    #[arg(long)]
    pub insecure: bool,
}

impl DaemonArgs {
    /// Which file `config::load` shall read.
    pub fn source(&self) -> Source<'_> {
        match &self.config {
            Some(path) => Source::Given(path),
            None => Source::Installed(self.instance.as_deref()),
        }
    }

    /// The `key=value`s of the command line, flags of their own among them.
    pub fn sets(&self) -> Vec<String> {
        let flags = self.insecure.then(|| "insecure=true".to_owned());
        self.sets.iter().cloned().chain(flags).collect()
    }
}

/// What a service takes whose state directory can be put back from an older copy.
#[derive(Debug, Clone, Args)]
pub struct RestorableArgs {
    /// What every service takes.
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// The state directory is an older copy, put back because the newest is lost: note that once, then end
    /// (docs/admin/restore.md says what is lost)
    #[arg(long)]
    pub restored: bool,
}

/// What `skep storaged` takes.
#[derive(Debug, Clone, Args)]
pub struct StoragedArgs {
    /// What every service takes.
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Make empty target directories into new targets (without it they are refused: a disk that
    /// is not mounted looks like an empty directory)
    #[arg(long)]
    pub init: bool,
    /// As --init, then end: for a service that something else starts
    #[arg(long, conflicts_with = "init")]
    pub init_only: bool,
    /// The state directory or targets are older copies, put back because the newest are lost: note that once, then
    /// end (docs/admin/restore.md says what is lost)
    #[arg(long, conflicts_with_all = ["init", "init_only"])]
    pub restored: bool,
}

/// What `skep mount` takes: the arguments of mount(8) and those of a service.
#[derive(Debug, Clone, Args)]
pub struct MountArgs {
    /// What every service takes.
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Management addresses and directory: mgmt1,mgmt2:/ [default: from the configuration]
    pub spec: Option<OsString>,
    /// Where the file system shall appear [default: mount_point of the configuration]
    pub directory: Option<PathBuf>,
    /// Mount options, separated by commas, as in fstab
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Read-only, as mount(8) passes it
    #[arg(short = 'r')]
    pub read_only: bool,
    /// Read-write, as mount(8) passes it
    #[arg(short = 'w', conflicts_with = "read_only")]
    pub read_write: bool,
    /// Tolerate unknown options, as mount(8) passes it
    #[arg(short = 's')]
    pub sloppy: bool,
    /// No mtab entry, as mount(8) passes it: there is none anyway
    #[arg(short = 'n')]
    pub no_mtab: bool,
    /// More words in the log, as mount(8) passes it
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Type of the file system, as mount(8) passes it: there is only one
    #[arg(short = 't', hide = true)]
    pub kind: Option<String>,
    /// mount(8) asks: `mount.skep` says so itself
    #[arg(long, hide = true)]
    pub by_mount: bool,
}
