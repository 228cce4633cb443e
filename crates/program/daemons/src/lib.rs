//! The daemons of a cluster and the mount. Glue: threads, signals, state directories; the rules are in crates of their own.
#[macro_use]
extern crate skep_base;

mod metad;
mod mgmtd;
mod mount;
mod storaged;

use skep_base::cli::ServiceCommand;
use skep_base::daemon;
use std::process::ExitCode;

/// Runs a service until it ends.
pub fn run(service: &ServiceCommand) -> ExitCode {
    daemon::leave_terminal();
    match service {
        // One line per service: its module, its `run`.
        ServiceCommand::Mgmtd(args) => mgmtd::run(args),
        ServiceCommand::Metad(args) => metad::run(args),
        ServiceCommand::Storaged(args) => storaged::run(args),
        ServiceCommand::Mount(args) => mount::run(args),
    }
}
