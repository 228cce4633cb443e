//! Programs with signals, while servers are stopped or restarted: what a local disk does not interrupt is not interrupted, and what
//! is killed ends.

use super::{Running, plan, start};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use skep_rig::{PATIENCE, patiently, until};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How many kinds of calls `signals.py` knows.
const KINDS: u32 = 9;
/// A server is stopped for this long: a slow disk.
const STOPPED: Duration = Duration::from_secs(3);
/// A killed server is away for this long, and for the time that its start takes.
const AWAY: Duration = Duration::from_secs(1);
/// A killed program that waits for no change ends within this.
const KILLED_SOON: Duration = Duration::from_secs(1);
/// A killed program ends after this long at the latest, whatever it waits for.
const KILLED_AT_LAST: Duration = Duration::from_secs(40);
/// For a machine that is busy.
const SLACK: Duration = Duration::from_secs(8);

fn stopped(cluster: &Running, service: &str) {
    for daemon in cluster.of(service) {
        daemon.signal(Signal::STOP).unwrap();
    }
}

fn goes_on(cluster: &Running, service: &str) {
    for daemon in cluster.of(service) {
        daemon.signal(Signal::CONT).unwrap();
    }
}

/// A Python program, whose lines are read here.
fn program(script: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", script]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("python3 is missing: apt-get install python3")
}

/// Waits for its first line, which must be "ready".
fn ready(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    output
}

/// Goal: a program that takes signals all the time meets no EINTR, nor any other error, while each of the servers is
/// stopped for seconds, or killed and started again; it waits.
#[test]
fn no_interrupted_calls() {
    let cluster = start(plan());
    let mount = cluster.mount().to_str().unwrap();
    let mut programs: Vec<(Child, _)> = (0..KINDS)
        .map(|kind| {
            let mut child = program(include_str!("signals.py"), &[mount, &kind.to_string()]);
            let output = ready(&mut child);
            (child, output)
        })
        .collect();
    for service in ["metad", "storaged", "mgmtd"] {
        stopped(&cluster, service);
        std::thread::sleep(STOPPED);
        goes_on(&cluster, service);
        // What waited is through.
        fs::metadata(cluster.mount()).unwrap();
        for daemon in cluster.of(service) {
            daemon.kill().unwrap();
        }
        // Away for long enough that every program meets it and has signals meanwhile.
        std::thread::sleep(AWAY);
        cluster.up().unwrap();
        fs::write(cluster.mount().join("after"), vec![7; 1 << 20]).unwrap();
    }
    let mut waited = 0;
    for (kind, (child, output)) in programs.iter_mut().enumerate() {
        drop(child.stdin.take());
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "kind {kind}: {said}");
        let done: Vec<&str> = said.trim().split(' ').collect();
        assert!(done.len() == 3 && done[0] == "done" && done[2] != "0", "kind {kind}: {said}");
        waited += usize::from(done[1].parse::<f64>().unwrap() >= STOPPED.as_secs_f64() / 2.0);
    }
    assert!(waited >= 7, "most of them waited for a stopped server: {waited} did");
}

/// A program that is in `call` when a server is stopped; `writes`: it has written what is not committed.
fn waiting(directory: &Path, call: &str, writes: bool) -> Child {
    let write = if writes { "os.pwrite(file, bytes(3 << 20), 0)" } else { "pass" };
    // The timer goes on: the kernel tells the mount of the first signal only, which is not the one that kills.
    let script = format!(
        "import os, signal, sys, time\n\
         signal.signal(signal.SIGALRM, lambda *_: None)\n\
         os.chdir({directory:?})\n\
         file = os.open('file', os.O_RDWR)\n\
         {write}\n\
         print('ready', flush=True)\n\
         sys.stdin.readline()\n\
         signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)\n\
         {call}\n"
    );
    program(&script, &[])
}

/// Stops `service`, lets programs run into these calls, kills them after a while.
fn killed_in(cluster: &Running, service: &str, calls: &[&str], writes: bool) -> Vec<(String, Child)> {
    killed_at(cluster, cluster.mount(), service, calls, writes)
}

/// [`killed_in`] another mount.
fn killed_at(
    cluster: &Running,
    point: &Path,
    service: &str,
    calls: &[&str],
    writes: bool,
) -> Vec<(String, Child)> {
    let mut programs: Vec<(String, Child)> = Vec::new();
    for call in calls {
        let mut child = waiting(point, call, writes);
        let _ = ready(&mut child);
        programs.push(((*call).to_owned(), child));
    }
    stopped(cluster, service);
    for (_, child) in &mut programs {
        drop(child.stdin.take());
    }
    // Signals come meanwhile, and none of them ends a call.
    std::thread::sleep(Duration::from_millis(1_500));
    for (call, child) in &mut programs {
        assert!(child.try_wait().unwrap().is_none(), "{call} did not wait");
        kill_process(Pid::from_child(child), Signal::KILL).unwrap();
    }
    programs
}

fn ends_within(call: &str, child: &mut Child, limit: Duration) {
    until(&format!("{call}: a killed program ends"), limit, || match child.try_wait() {
        Ok(Some(_)) => Ok(()),
        _ => Err(format!("it waits in {}", place_in_kernel(child))),
    })
    .unwrap();
}

/// Where a program is that does not end: in which of its calls, or in its end.
fn place_in_kernel(child: &Child) -> String {
    let stack = fs::read_to_string(format!("/proc/{}/stack", child.id())).unwrap_or_else(|e| e.to_string());
    stack.lines().filter_map(|line| line.split_whitespace().nth(1)).collect::<Vec<_>>().join(" ")
}

fn is_waiting(call: &str, child: &mut Child) {
    assert!(child.try_wait().unwrap().is_none(), "{call}: a change that was sent was left behind");
}

fn prepared() -> Running {
    let cluster = start(plan());
    fs::write(cluster.mount().join("file"), vec![7; 4 << 20]).unwrap();
    cluster
}

/// Goal: a killed program that waits for no change ends within a second, while the server is away, although it
/// had other signals before.
#[test]
fn a_killed_reader_ends_at_once() {
    let cluster = prepared();
    let names = ["os.stat('file')", "os.open('absent', os.O_RDONLY)", "os.listdir('.')"];
    let content = "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED); os.pread(file, 1 << 20, 3 << 20)";
    for (service, calls) in [("metad", &names[..]), ("storaged", &[content])] {
        for (call, mut child) in killed_in(&cluster, service, calls, false) {
            ends_within(&call, &mut child, KILLED_SOON);
        }
        goes_on(&cluster, service);
        fs::metadata(cluster.mount()).unwrap();
    }
}

/// Goal: a killed program whose change was sent waits for the server like one of a local disk; the change is made.
#[test]
fn a_killed_writer_waits_for_its_server() {
    let cluster = prepared();
    // Of an open file: a call by path asks for its names first, and a program that is killed in that need not wait.
    let calls = ["os.fchmod(file, 0o600)"];
    let mut programs = killed_in(&cluster, "metad", &calls, false);
    std::thread::sleep(STOPPED);
    for (call, child) in &mut programs {
        is_waiting(call, child);
    }
    goes_on(&cluster, "metad");
    for (call, child) in &mut programs {
        ends_within(call, child, PATIENCE);
    }
    assert_eq!(fs::metadata(cluster.mount().join("file")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Goal: a killed program ends within 40 s in all while a server hangs, also when the change that it waits for is
/// followed by another one: its file has a size to commit as it is closed.
#[test]
fn a_killed_writer_ends_at_last() {
    let cluster = prepared();
    let calls = ["os.mkdir('made')", "os.fsync(file)"];
    let begun = Instant::now();
    for (call, mut child) in killed_in(&cluster, "metad", &calls, true) {
        ends_within(&call, &mut child, (KILLED_AT_LAST + SLACK).saturating_sub(begun.elapsed()));
    }
    assert!(begun.elapsed() > KILLED_AT_LAST / 2, "a change that was sent was left behind");
    goes_on(&cluster, "metad");
    fs::metadata(cluster.mount()).unwrap();
}

/// Goal: a killed program whose change was sent ends when the connection breaks, and does not wait for the server to come
/// back.
#[test]
fn a_killed_writer_ends_with_the_connection() {
    let cluster = prepared();
    let mut programs = killed_in(&cluster, "metad", &["os.fchmod(file, 0o600)"], false);
    for (call, child) in &mut programs {
        is_waiting(call, child);
    }
    cluster.one("metad").unwrap().kill().unwrap();
    for (call, child) in &mut programs {
        ends_within(call, child, KILLED_AT_LAST / 2);
    }
    cluster.up().unwrap();
    fs::write(cluster.mount().join("file"), b"as if nothing had been").unwrap();
}

/// Goal: a mount does not take a program of another pid name space for killed: what it asks ends with the answer, also
/// where nothing changes.
#[test]
fn a_killed_stranger_ends_with_the_answer() {
    let cluster = prepared();
    let point = cluster.beside("mnt1");
    fs::create_dir(&point).unwrap();
    let mut mount = Command::new("unshare");
    mount.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_skep")]);
    mount.args(cluster.mount_words(&point, &[])).arg("--foreground").stdin(Stdio::null());
    let mut mount = mount.spawn().expect("unshare is missing: apt-get install util-linux");
    patiently("it is mounted", || point.join("file").exists()).unwrap();
    let mut programs = killed_at(&cluster, &point, "metad", &["os.stat('file')"], false);
    // Long enough for what would end it, several times over: there is nothing to wait for when nothing happens.
    std::thread::sleep(5 * KILLED_SOON);
    for (call, child) in &mut programs {
        is_waiting(call, child);
    }
    goes_on(&cluster, "metad");
    for (call, child) in &mut programs {
        ends_within(call, child, PATIENCE);
    }
    // `skep umount` waits for a process of this name space.
    unmount(&point, UnmountFlags::DETACH).unwrap();
    mount.wait().unwrap();
}
