//! `cargo xtask process`: the tests of real daemons and mounts, several at a time.
//!
//! Each test is a process of its own in namespaces of its own: processes, mounts, network. So no test sees another's
//! daemons, mounts or ports, and when a test or this run is killed, the kernel ends everything that it started. What is on
//! the disk goes with this run's directory, or with the next run's.

mod place;
mod times;

use crate::program::built_test;
use place::Place;
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use times::Times;

/// Tests at a time. They wait more than they compute: more of them than processors.
const JOBS: usize = 5;

/// Longest time of one test, in seconds: several times what the longest takes on two busy cores.
const LIMIT: &str = "600";

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only tests whose name contains one of these.
    names: Vec<String>,
    /// Not these modules.
    #[arg(long, value_delimiter = ',')]
    except: Vec<String>,
    /// Tests at a time.
    #[arg(long, default_value_t = JOBS)]
    jobs: usize,
}

/// How one test went.
struct Ended {
    name: String,
    took: Duration,
    /// What it failed by.
    failed: Option<String>,
}

/// Runs the tests; true when all passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = built_test(root, "process")?;
    let names = chosen(&program, arguments)?;
    if names.is_empty() {
        return Err("no test has such a name; cargo test -p skep --test process -- --list prints them".into());
    }
    let mut times = Times::read(root);
    let place = Place::new()?;
    let waiting = Mutex::new(VecDeque::from(times.longest_first(names)));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let ended = Mutex::new(Vec::new());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while let Some(name) = next() {
                    let one = execute(&program, name, &place);
                    ended.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                }
            });
        }
    });
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    for one in &ended {
        times.took(&one.name, one.took);
    }
    times.write(root)?;
    let alone: Duration = ended.iter().map(|one| one.took).sum();
    println!("{:.0} s; one after the other {:.0} s", begun.elapsed().as_secs_f64(), alone.as_secs_f64());
    let mut failed = 0;
    for (name, why) in ended.iter().filter_map(|one| Some((&one.name, one.failed.as_ref()?))) {
        failed += 1;
        println!("failed: {name}\n    {why}");
    }
    println!("{} passed, {failed} failed", ended.len() - failed);
    Ok(failed == 0)
}

/// The tests of the program that are asked for.
fn chosen(program: &Path, arguments: &Arguments) -> Result<Vec<String>, String> {
    let output = Command::new(program)
        .args(["--list", "--format", "terse"])
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let excepted = |name: &str| {
        let module = name.split("::").next();
        arguments.except.iter().any(|except| Some(except.as_str()) == module)
    };
    let asked = |name: &str| {
        arguments.names.is_empty() || arguments.names.iter().any(|part| name.contains(part.as_str()))
    };
    Ok(names.filter(|name| asked(name) && !excepted(name)).map(str::to_owned).collect())
}

/// Runs one test, says how it went, and shows what a failed one printed.
fn execute(program: &Path, name: String, place: &Place) -> Ended {
    let begun = Instant::now();
    let went = place.directory().and_then(|own| {
        let log = own.with_extension("log");
        let passed = enter(program, &name, &own, &log)?;
        let text = std::fs::read_to_string(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        Ok((passed, text))
    });
    let took = begun.elapsed();
    let (passed, text) = went.unwrap_or_else(|error| (false, error));
    // One call, so that the lines of two tests do not mix.
    let word = if passed { "ok" } else { "FAILED" };
    let shown = if passed { String::new() } else { format!("\n{text}") };
    println!("{word:6} {:6.1} s  {name}{shown}", took.as_secs_f64());
    Ended { name, took, failed: (!passed).then(|| reason(&text)) }
}

/// The message of the first panic, for the last lines of the run: what a failed test printed stands far above them.
fn reason(text: &str) -> String {
    /// Of a message that shows whole logs.
    const SHOWN: usize = 600;
    let mut lines = text.lines().skip_while(|line| !line.contains(" panicked at ")).skip(1);
    let message = lines.next().unwrap_or("it did not panic: killed, or out of time");
    message.chars().take(SHOWN).collect()
}

/// What a shell does in a test's namespaces before it becomes the test. Mounts of Skep that are there are others', whose
/// commands the test would ask, and wait for if they hang: they go, from this namespace. Nothing of that asks a mount.
const ALONE: &str =
    "umount --all --internal-only --no-canonicalize --lazy --types fuse.skep; ip link set lo up";

/// Runs the test in namespaces of its own, with what it prints in `log`; true when it passed.
fn enter(program: &Path, name: &str, own: &Path, log: &Path) -> Result<bool, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", log.display());
    let out = File::create(log).map_err(failed)?;
    let err = out.try_clone().map_err(failed)?;
    let mut command = Command::new("setpriv");
    // When this run dies so does unshare, with it the first process of the namespace, and so all in it.
    command.args(["--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", "--pid", "--mount-proc"]);
    command.args(["--mount", "--propagation", "private", "--net", "sh", "-c"]);
    command.arg(format!("{ALONE} && exec timeout --foreground -k 5 \"$@\"")).args(["sh", LIMIT]);
    command.arg(program).args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    command.env("TMPDIR", own).stdin(Stdio::null()).stdout(out).stderr(err);
    let status = command.status().map_err(|e| format!("setpriv: {e}; it is in the package util-linux"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::{ALONE, reason};
    use std::process::Command;

    /// Goal: a mount of the machine is not there for a test, though nobody answers for it. Method: one whose server never says
    /// a word. Counted is the whole type: disks of the step `rigged` beside are `fuse.skep-rigged`, and nothing of Skep.
    #[test]
    fn a_test_sees_no_mount_of_others() {
        let directory = std::env::temp_dir().join(format!("skep-hung-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let hung = "exec 9<>/dev/fuse && mount -i -t fuse.skep nobody \"$1\" \
            -o fd=9,rootmode=40000,user_id=0,group_id=0";
        let count = "grep -c ' fuse.skep ' /proc/self/mounts";
        let script = format!("{hung} && {count}\n{ALONE}\n{count}");
        let mut command = Command::new("timeout");
        command.args(["60", "unshare", "--mount", "--propagation", "private", "--net", "sh", "-c"]);
        let output = command.arg(script).arg("sh").arg(&directory).output().expect("timeout");
        std::fs::remove_dir(&directory).expect("its mount went with its namespace");
        let counts = String::from_utf8_lossy(&output.stdout);
        let counts: Vec<u32> = counts.lines().map(|count| count.parse().expect("a count")).collect();
        assert!(counts.len() == 2 && counts[0] > 0 && counts[1] == 0, "{counts:?} {output:?}; it needs root");
    }

    /// Goal: the last lines name what the first panic said, cut where it shows whole logs.
    #[test]
    fn reasons() {
        let text = "running 1 test\n\nthread 'a::b' (4) panicked at b.rs:1:2:\nfirst\nsecond\nthread panicked at c:\nlater";
        assert_eq!(reason(text), "first");
        assert_eq!(reason(&format!("x panicked at y:\n{}", "z".repeat(5_000))).len(), 600);
        assert!(reason("running 1 test").contains("out of time"));
    }
}
