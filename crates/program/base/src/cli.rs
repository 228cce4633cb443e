//! Arguments of the services, and what the command line of the program begins with.

use crate::config::Source;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Exit code of wrong usage.
pub const EXIT_USAGE: u8 = 2;

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
    /// Drop contents of files made through this mount, as long as this process lives, which starts it (skep bench net)
    #[arg(long, hide = true, value_name = "PID", requires = "foreground")]
    pub netbench: Option<i32>,
    /// mount(8) asks: `mount.skep` says so itself
    #[arg(long, hide = true)]
    pub by_mount: bool,
}

/// The services of a cluster, and the mount.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// Run the management service: registry of nodes, targets, shards and sessions
    Mgmtd(RestorableArgs),
    /// Run a metadata server: the namespace
    Metad(RestorableArgs),
    /// Run a storage server: file contents on targets
    Storaged(StoragedArgs),
    /// Mount a cluster (mount.skep is the same, with the arguments of mount(8))
    Mount(MountArgs),
}

/// The command line with which a service runs: of the program's, what concerns services.
#[derive(Debug, Parser)]
#[command(name = "skep", version, propagate_version = true)]
pub struct ServiceLine {
    /// Which one.
    #[command(subcommand)]
    pub command: ServiceCommand,
}

/// Names by which mount(8) calls the program: for the type that fstab names, and for the one that the kernel lists.
pub const MOUNT_HELPERS: [&str; 2] = ["mount.skep", "mount.fuse.skep"];

/// Called by one of [`MOUNT_HELPERS`], the program is `skep mount`.
pub fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut given: Vec<OsString> = given.collect();
    let called = given.first().and_then(|first| Path::new(first).file_name());
    if called.is_some_and(|name| MOUNT_HELPERS.iter().any(|helper| name == *helper)) {
        given.splice(1..1, ["mount".into(), "--by-mount".into()]);
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: mount(8) calls `mount.skep SPEC DIR -o OPTIONS`, or `mount.fuse.skep` for a mount that it
    /// found in the list of the kernel; every other name is taken as it is.
    #[test]
    fn called_as_mount_helper() {
        let call = |words: &[&str]| arguments(words.iter().map(OsString::from));
        for helper in ["/sbin/mount.skep", "/sbin/mount.fuse.skep"] {
            assert_eq!(call(&[helper, "m:/", "/mnt"]), [helper, "mount", "--by-mount", "m:/", "/mnt"]);
        }
        assert_eq!(call(&["skep", "df"]), ["skep", "df"]);
        assert!(call(&[]).is_empty());
    }
}
