//! Runs cases: each on a thread of its own, in a directory of its own, under a deadline.

use crate::capability;
use crate::deviation::Deviations;
use crate::report::{Failure, Report};
use crate::scene::{Mismatch, Scene};
use crate::table::{Body, Case};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// What to run and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Any directory of the file system under test.
    pub dir: PathBuf,
    /// Only cases whose id contains this (or is exactly this).
    pub filter: Option<String>,
    /// Of those, one of so many: the first and each that far behind.
    pub every: usize,
    /// Cases to leave out: full ids, or leading parts of ids up to a `/`.
    pub unsupported: Vec<String>,
    /// Cases that may come to another error here.
    pub deviations: Deviations,
    /// A command that makes the directory of each case ready; the directory is added to its words. Empty: none.
    pub prepare: Vec<OsString>,
    /// A lacking capability fails the cases that need it.
    pub require_all: bool,
    /// Cases at a time.
    pub jobs: usize,
    /// How long one case may take.
    pub deadline: Duration,
}

impl Options {
    /// Everything, one case at a time.
    pub fn new(dir: PathBuf) -> Options {
        Options {
            dir,
            filter: None,
            every: 1,
            unsupported: vec![],
            deviations: Deviations::default(),
            prepare: vec![],
            require_all: false,
            jobs: 1,
            deadline: DEADLINE,
        }
    }
}

/// Default of [`Options::deadline`].
pub const DEADLINE: Duration = Duration::from_secs(300);

/// Most cases at a time.
pub const MAX_JOBS: usize = 64;

/// The cases that match a filter: the one of exactly that id, else all that contain it.
pub fn select(cases: Vec<Case>, filter: Option<&str>) -> Vec<Case> {
    match filter {
        None => cases,
        Some(text) if cases.iter().any(|c| c.id == text) => {
            cases.into_iter().filter(|c| c.id == text).collect()
        }
        Some(text) => cases.into_iter().filter(|c| c.id.contains(text)).collect(),
    }
}

/// Runs `cases` as `options` say.
pub fn run(cases: Vec<Case>, options: &Options) -> Result<Report, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("the suite acts as several users: run it as root".to_owned());
    }
    options.deviations.check(&cases)?;
    let cases = select(cases, options.filter.as_deref());
    let cases: Vec<Case> = cases.into_iter().step_by(options.every.max(1)).collect();
    if cases.is_empty() {
        return Err(format!("no case matches {:?}: see --list", options.filter.as_deref().unwrap_or("")));
    }
    let (cases, left_out) = leave_out(cases, &options.unsupported)?;
    let work = workplace(&options.dir)?;
    prepare(&work, &options.prepare)?;
    let lacking = capability::lacking(&work)?;
    let mut report = Report { left_out, ..Report::default() };
    let runnable = divide(cases, &lacking, options, &mut report);
    run_all(runnable, &work, options, &mut report);
    if let Err(e) = std::fs::remove_dir_all(&work) {
        let what = Mismatch {
            step: format!("remove {}", work.display()),
            user: "root".to_owned(),
            expected: "the whole tree to go".to_owned(),
            happened: e.to_string(),
        };
        report.failures.push(Failure::new("cleanup", &options.dir.to_string_lossy(), what));
    }
    report.deviated.sort();
    report.failures.sort_by(|a, b| a.case.cmp(&b.case));
    Ok(report)
}

/// The cases that can run on a file system that lacks `lacking`; the others go into the report.
fn divide(
    cases: Vec<Case>,
    lacking: &BTreeSet<&'static str>,
    options: &Options,
    report: &mut Report,
) -> Vec<Case> {
    let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
    let mut runnable = Vec::new();
    for case in cases {
        let Some(need) = lacking.iter().find(|l| case.needs.iter().any(|n| n == *l)) else {
            runnable.push(case);
            continue;
        };
        *missing.entry(need).or_default() += 1;
        if options.require_all {
            let what = mismatch(
                &format!("probe {need}"),
                &format!("the file system to support {need}, as --require-all says"),
                "it does not".to_owned(),
            );
            let mut failure = Failure::new(&case.id, &options.dir.to_string_lossy(), what);
            failure.run.push_str(" --require-all");
            report.failures.push(failure);
        }
    }
    report.lacking = missing.into_iter().map(|(n, c)| (n.to_owned(), c)).collect();
    runnable
}

/// Splits off what the caller does not want; an entry that fits nothing is an error, for it hides a mistake.
fn leave_out(cases: Vec<Case>, unsupported: &[String]) -> Result<(Vec<Case>, Vec<String>), String> {
    let fits = |id: &str, entry: &str| {
        id.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(entry) = unsupported.iter().find(|e| !cases.iter().any(|c| fits(&c.id, e))) {
        return Err(format!("--unsupported {entry:?} fits no selected case: see --list, remove the entry"));
    }
    let (out, stay): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|c| unsupported.iter().any(|e| fits(&c.id, e)));
    Ok((stay, out.into_iter().map(|c| c.id).collect()))
}

/// A fresh directory of this run below `dir`, open to all users.
fn workplace(dir: &Path) -> Result<PathBuf, String> {
    const TRIES: u32 = 1000;
    let pid = std::process::id();
    for n in 0..TRIES {
        let work = dir.join(format!("conform-{pid}-{n}"));
        match std::fs::create_dir(&work) {
            Ok(()) => {
                open_to_all(&work).map_err(|e| format!("cannot chmod {}: {e}", work.display()))?;
                return std::path::absolute(&work).map_err(|e| format!("{}: {e}", work.display()));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(format!("cannot create {}: {e}; give a writable --dir", work.display())),
        }
    }
    Err(format!("{} holds {TRIES} directories of earlier runs: remove conform-*", dir.display()))
}

fn prepare(dir: &Path, command: &[OsString]) -> Result<(), String> {
    let Some((program, words)) = command.split_first() else { return Ok(()) };
    let output = Command::new(program).args(words).arg(dir).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}: {}", program.display(), output.status, said.trim_end()))
}

fn open_to_all(dir: &Path) -> std::io::Result<()> {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777))
}

fn run_all(cases: Vec<Case>, work: &Path, options: &Options, report: &mut Report) {
    let cases = Arc::new(cases);
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new(report);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, MAX_JOBS) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    let done = with_deadline(&cases, at, &work.join(format!("c{at}")), options);
                    let mut report = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    match done {
                        Ok(()) => report.passed += 1,
                        Err(what) if options.deviations.has(&case.id, &what) => {
                            report.deviated.push(case.id.clone());
                        }
                        Err(what) => {
                            let dir = options.dir.to_string_lossy();
                            report.failures.push(Failure::new(&case.id, &dir, what));
                        }
                    }
                }
            });
        }
    });
}

fn mismatch(step: &str, expected: &str, happened: String) -> Mismatch {
    Mismatch { step: step.to_owned(), user: "root".to_owned(), expected: expected.to_owned(), happened }
}

/// Runs one case on its own thread; a case that never comes back is a failure and its thread is given up.
fn with_deadline(cases: &Arc<Vec<Case>>, at: usize, place: &Path, options: &Options) -> Result<(), Mismatch> {
    let (send, receive) = mpsc::channel();
    let (cases, dir, deadline) = (Arc::clone(cases), place.to_owned(), options.deadline);
    let ready = options.prepare.clone();
    let thread = std::thread::Builder::new().name(format!("case-{at}")).spawn(move || {
        // the receiver is gone only when the deadline has passed
        let _ = send.send(in_place(&cases[at], &dir, &ready));
    });
    if let Err(e) = thread {
        return Err(mismatch("start a thread", "a thread", e.to_string()));
    }
    match receive.recv_timeout(deadline) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(mismatch("the whole case", "an answer", format!("none within {} s", deadline.as_secs())))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(mismatch(
            "the whole case",
            "an answer",
            "the case panicked: a defect of the suite".to_owned(),
        )),
    }
}

fn in_place(case: &Case, dir: &Path, ready: &[OsString]) -> Result<(), Mismatch> {
    let stage = |what: &str, e: String| mismatch(what, "to work", e);
    detach().map_err(|e| stage("give the thread its own working directory and umask", e))?;
    std::fs::create_dir(dir).map_err(|e| stage("make the directory of the case", e.to_string()))?;
    open_to_all(dir).map_err(|e| stage("open the directory of the case to all users", e.to_string()))?;
    prepare(dir, ready).map_err(|e| stage("make the directory of the case ready", e))?;
    rustix::process::chdir(dir).map_err(|e| stage("enter the directory of the case", e.to_string()))?;
    let done = play(case);
    let _ = rustix::process::chdir("/");
    let removed = std::fs::remove_dir_all(dir)
        .map_err(|e| stage("remove the directory of the case afterwards", e.to_string()));
    done.and(removed)
}

/// Working directory and umask are shared between threads unless asked otherwise.
fn detach() -> Result<(), String> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    #[allow(unsafe_code)]
    // SAFETY: CLONE_FS only separates working directory, root and umask of this thread; no memory or
    // descriptor is affected.
    unsafe { unshare_unsafe(UnshareFlags::FS) }.map_err(|e| e.to_string())?;
    rustix::process::umask(rustix::fs::Mode::empty());
    Ok(())
}

fn play(case: &Case) -> Result<(), Mismatch> {
    match &case.body {
        Body::Script(script) => (script.run)().map_err(|happened| Mismatch {
            step: format!("script {}", script.id),
            user: "root".to_owned(),
            expected: script.goal.to_owned(),
            happened,
        }),
        Body::Steps { setup, call, checks } => {
            let mut scene = Scene::default();
            for step in setup {
                scene.run(step)?;
            }
            scene.mark(checks)?;
            scene.run(call)?;
            checks.iter().try_for_each(|step| scene.run(step))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<Case> {
        let text = "call = 'x'\n[[case]]\nname = 'a'\ncall = 'pass'\nneeds = ['{cap}']\n\
                    each = { cap = 'exec xattr xattr-64k' }\n[[case]]\nname = 'b'\ncall = 'pass'\n";
        crate::table::from_text(text).expect("loads")
    }

    /// Goal: a lacking capability is reported with its cases, and fails them when everything is required.
    #[test]
    fn lacking_capabilities_are_never_silent() {
        let lacking = BTreeSet::from(["exec", "xattr"]);
        let mut options = Options::new(PathBuf::from("/mnt"));
        for (require_all, failures) in [(false, 0), (true, 2)] {
            options.require_all = require_all;
            let mut report = Report::default();
            assert_eq!(divide(cases(), &lacking, &options, &mut report).len(), 2);
            assert_eq!(report.lacking, [("exec".to_owned(), 1), ("xattr".to_owned(), 1)]);
            assert_eq!(report.failures.len(), failures);
        }
    }

    /// Goal: an id in full selects only itself, other text all that contain it.
    #[test]
    fn filters_select() {
        let ids = |filter| select(cases(), Some(filter)).into_iter().map(|c| c.id).collect::<Vec<_>>();
        assert_eq!(ids("x/a/cap=xattr"), ["x/a/cap=xattr"]);
        assert_eq!(ids("cap=xattr-"), ["x/a/cap=xattr-64k"]);
        assert_eq!(ids("x/a").len(), 3);
        assert!(ids("nothing").is_empty());
    }

    /// Goal: leaving out goes by whole parts of an id, and an entry that fits nothing is refused.
    #[test]
    fn leaving_out_is_exact() {
        let (stay, out) = leave_out(cases(), &["x/a/cap=xattr".to_owned()]).expect("fits");
        assert_eq!((stay.len(), out), (3, vec!["x/a/cap=xattr".to_owned()]));
        assert_eq!(leave_out(cases(), &["x/a".to_owned()]).expect("fits").0.len(), 1);
        assert!(leave_out(cases(), &["x/a/cap".to_owned()]).is_err());
    }
}
