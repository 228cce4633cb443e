//! Worker processes: this program once more, with orders on its input and reports on its output.

use skep_bench::engine::{CrewError, LocalCrew, serve};
use std::process::{Command, ExitCode};

/// Serves a director on standard input and output.
pub fn run() -> ExitCode {
    match serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("skep bench worker: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Worker processes on this machine.
pub fn crew(processes: u32) -> Result<LocalCrew, CrewError> {
    let program = std::env::current_exe()
        .map_err(|error| CrewError(format!("cannot find this program's own file: {error}")))?;
    LocalCrew::spawn(processes, &host_name(), |_| {
        let mut command = Command::new(&program);
        command.args(["bench", "worker"]);
        command
    })
}

/// This host, as results name it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
