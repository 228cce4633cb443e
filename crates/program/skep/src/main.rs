//! The `skep` program: every service and every command of the cluster in one binary.
//!
//! `skep <service>` runs a daemon, `skep <noun> <verb>` administers a cluster, `skep up` starts a
//! whole one on this machine. Called as `mount.skep` it mounts, as mount(8) wants it.
#[macro_use]
extern crate skep_base;

#[cfg(test)]
mod advice;
mod cli;
mod manual;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod schemas;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = skep_base::cli::arguments(std::env::args_os());
    match cli::Cli::try_parse_from(&arguments) {
        Ok(cli) => cli::run(cli),
        Err(error) => cli::refuse(&error, &arguments),
    }
}
