//! An interrupted survey leaves nothing behind, and neither does the next one of what a killed one has left.

use super::load::{PREFIX, Place};
use super::{Run, disks};
use crate::admin::{EXIT_INTERRUPTED, Failure, Outcome};
use crate::asking::{self, SIGHUP, SIGINT, SIGTERM};
use crate::bench::scratch::abandoned;
use crate::instruments::client::INTERRUPTED;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;

/// From now on a signal ends the measurement that goes on, and what was made is removed; a second one ends the process.
pub fn listen() -> Outcome {
    let asked = |number| match number {
        1 => INTERRUPTED.store(true, SeqCst),
        _ => std::process::exit(EXIT_INTERRUPTED.into()),
    };
    asking::on_each(&[SIGINT, SIGTERM, SIGHUP], asked).map_err(|e| Failure::local("signals", e))
}

/// Was there a signal?
pub fn came() -> bool {
    INTERRUPTED.load(SeqCst)
}

/// Removes what a search made.
pub fn leave_place(place: Place) -> ExitCode {
    let dir = place.dir.display().to_string();
    drop(place);
    eprintln!("interrupted: removed {dir}; nothing was written to the report");
    ExitCode::from(EXIT_INTERRUPTED)
}

/// Removes what this survey made.
pub fn leave(run: &Run<'_>, place: Option<Place>) -> ExitCode {
    eprintln!("interrupted: removing what was made (a second signal leaves it)");
    disks::cleanup(run);
    let dir = place.as_ref().map(|place| place.dir.display().to_string());
    drop(place);
    let dir = dir.map_or_else(String::new, |dir| format!(" and {dir}"));
    eprintln!("removed: files of the measurement on targets{dir}; nothing was written to the report");
    ExitCode::from(EXIT_INTERRUPTED)
}

/// Removes what killed surveys have left on a mount. (On targets, daemons do it themselves.)
pub fn sweep(above: &Path, run: &mut Run<'_>) {
    for dir in abandoned(above, PREFIX) {
        match std::fs::remove_dir_all(&dir) {
            Ok(()) => run.remark(format!("{}: was left by a survey that was killed; removed", dir.display())),
            Err(e) => {
                run.remark(format!("{}: was left by a survey that was killed: {e}; remove it", dir.display()))
            }
        }
    }
}
