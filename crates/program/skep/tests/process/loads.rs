//! `skep bench io` on this machine: interrupted, a worker killed, the command itself killed. No cluster is
//! needed: the file system is a directory.

use super::TURN;
use rustix::process::{Pid, Signal, kill_process};
use skep_rig::{Scratch, until};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

/// Everything ends, and is clean, within this time, on a slow machine too: by itself a load would last an hour.
const SOON: Duration = Duration::from_secs(240);

/// Exit code of what a signal ended.
pub const INTERRUPTED: Option<i32> = Some(130);

/// A process that ends with its test, however that ends.
pub struct Bound(Option<Child>);

impl Bound {
    /// From now on.
    pub fn new(child: Child) -> Self {
        Self(Some(child))
    }

    /// Waits for its end, which must come soon; what it said.
    pub fn output(mut self) -> Output {
        let ended = || self.child().try_wait().unwrap().map(drop).ok_or_else(|| "it still runs".to_owned());
        until("the end of the process", SOON, ended).unwrap();
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(self.child()), signal).unwrap();
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.end();
    }
}

/// A load of two processes that would last an hour, once it writes.
fn endless(dir: &Path, more: &[&str]) -> Bound {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skep"));
    command.args([
        "bench",
        "io",
        "--phases",
        "write",
        "-p",
        "2",
        "-b",
        "16m",
        "--stonewall",
        "1h",
        "--repeat",
    ]);
    command.args(more);
    command.arg(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = Bound::new(command.spawn().unwrap());
    let written = || {
        let files = std::fs::read_dir(dir).unwrap().flatten();
        let lengths = files.map(|file| file.metadata().map_or(0, |data| data.len()));
        lengths.filter(|length| *length > 0).count() == 2
    };
    until("both workers write", SOON, || if written() { Ok(()) } else { Err("not yet".to_owned()) }).unwrap();
    child
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// With which code it ends, which is no success, and what it says.
fn end(load: Bound) -> (Option<i32>, String) {
    let output = load.output();
    assert!(!output.status.success());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Goal: any signal that asks for the end ends a load at once, with the code of interrupted commands; what it made is
/// removed, or stays when it is to be kept, and which of the two is said.
#[test]
fn interrupted_load() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (signalled, more, fate) in [
        ("-INT", &[][..], "what was made is removed"),
        ("-TERM", &[], "what was made is removed"),
        ("-INT", &["--keep"], "what was made stays"),
    ] {
        let dir = Scratch::new(None).unwrap();
        let mut load = endless(dir.path(), more);
        // As timeout(1) does it: to the process, and to its group.
        let pid = load.child().id().to_string();
        assert!(Command::new("kill").args([signalled, &pid, &pid]).status().unwrap().success());
        let (code, said) = end(load);
        assert!(code == INTERRUPTED && said.contains("stopped before the end"), "{code:?}: {said}");
        assert!(said.contains(fate), "{said}");
        assert_eq!(is_empty(dir.path()), more.is_empty(), "{said}");
    }
}

/// Goal: a worker process killed in the middle ends the load; it is named, and its file is removed too.
#[test]
fn killed_load_worker() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = Scratch::new(None).unwrap();
    let mut load = endless(dir.path(), &[]);
    let children = format!("/proc/{0}/task/{0}/children", load.child().id());
    let children = std::fs::read_to_string(children).unwrap();
    let worker: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
    let (code, text) = end(load);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is gone") && text.contains("signal: 9"), "{text}");
    assert!(is_empty(dir.path()));
}

/// Goal: workers whose command is killed stop by themselves and remove what they made.
#[test]
fn killed_load_command() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = Scratch::new(None).unwrap();
    endless(dir.path(), &[]).kill();
    let clean = || if is_empty(dir.path()) { Ok(()) } else { Err("files are left".to_owned()) };
    until("the workers clean up", SOON, clean).unwrap();
}
