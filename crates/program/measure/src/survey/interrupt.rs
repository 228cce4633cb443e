//! An interrupted survey leaves nothing behind, and neither does the next one of what a killed one has left.

use super::load::{PREFIX, Place};
use super::{Run, disks};
use crate::bench::scratch::abandoned;
use skep_base::asking::{self, SIGHUP, SIGINT, SIGTERM};
use skep_base::{EXIT_INTERRUPTED, Failure, Outcome};
use skep_instruments::client::INTERRUPTED;
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
    let dir = place.path();
    let what = if place.removed() { "removed" } else { "left" };
    eprintln!("interrupted: {what} {dir}; nothing was written to the report");
    ExitCode::from(EXIT_INTERRUPTED)
}

/// Removes what this survey made.
pub fn leave(run: &Run<'_>, place: Option<Place>) -> ExitCode {
    eprintln!("interrupted: removing what was made (a second signal leaves it)");
    let mut all = vec![("files of the measurement on targets".to_owned(), disks::cleanup(run))];
    all.extend(place.map(|place| (place.path(), place.removed())));
    eprintln!("{}; nothing was written to the report", what_became(&all));
    ExitCode::from(EXIT_INTERRUPTED)
}

/// What is gone, and what could not be removed.
fn what_became(all: &[(String, bool)]) -> String {
    let of = |word: &str, gone: bool| {
        let names: Vec<&str> =
            all.iter().filter(|(_, is)| *is == gone).map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{word}: {}", names.join(" and ")))
    };
    [of("removed", true), of("left", false)].into_iter().flatten().collect::<Vec<String>>().join("; ")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what is gone is said to be removed; what is not is named, too.
    #[test]
    fn only_what_is_gone() {
        let told = |files, dir| what_became(&[("files".to_owned(), files), ("/x".to_owned(), dir)]);
        assert_eq!(told(true, true), "removed: files and /x");
        assert_eq!(told(false, true), "removed: /x; left: files");
        assert_eq!(told(false, false), "left: files and /x");
        let dir = tempfile::tempdir().unwrap();
        let place = || Place::below(dir.path(), dir.path().to_owned(), String::new()).unwrap();
        assert!(place().removed());
        // Somebody else was faster: who that is, and whether all of it is gone, cannot be told.
        let lost = place();
        std::fs::remove_dir(&lost.dir).unwrap();
        assert!(!lost.removed());
    }
}
