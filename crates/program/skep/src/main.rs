//! The `skep` program: every service and every command of the cluster in one binary.
//!
//! `skep <service>` runs a daemon, `skep <noun> <verb>` administers a cluster, `skep up` starts a
//! whole one on this machine. Called as `mount.skep` it mounts, as mount(8) wants it.
#[macro_use]
mod log;
mod admin;
mod asking;
mod bench;
mod caller;
mod cli;
mod config;
mod daemon;
mod http;
mod identity;
mod instruments;
mod listen;
mod membership;
mod metad;
mod metrics;
mod mgmtd;
mod mount;
#[cfg(test)]
mod packaging;
mod plan;
#[cfg(test)]
mod schemas;
mod storaged;
mod survey;
mod tune;
mod units;
mod up;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = cli::arguments(std::env::args_os());
    match cli::Cli::try_parse_from(&arguments) {
        Ok(cli) => cli::run(cli),
        Err(error) => cli::refuse(&error, &arguments),
    }
}
