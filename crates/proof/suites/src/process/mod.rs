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
    passed: bool,
    took: Duration,
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
    let mut failed: Vec<&str> = Vec::new();
    for one in &ended {
        times.took(&one.name, one.took);
        if !one.passed {
            failed.push(&one.name);
        }
    }
    times.write(root)?;
    let alone: Duration = ended.iter().map(|one| one.took).sum();
    println!("{:.0} s; one after the other {:.0} s", begun.elapsed().as_secs_f64(), alone.as_secs_f64());
    for name in &failed {
        println!("failed: {name}");
    }
    println!("{} passed, {} failed", ended.len() - failed.len(), failed.len());
    Ok(failed.is_empty())
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
    Ended { name, passed, took }
}

/// Runs the test in namespaces of its own, with what it prints in `log`; true when it passed.
fn enter(program: &Path, name: &str, own: &Path, log: &Path) -> Result<bool, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", log.display());
    let out = File::create(log).map_err(failed)?;
    let err = out.try_clone().map_err(failed)?;
    let mut command = Command::new("setpriv");
    // When this run dies so does unshare, with it the first process of the namespace, and so all in it.
    command.args(["--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", "--pid", "--mount-proc"]);
    command.args(["--mount", "--propagation", "private", "--net", "sh", "-c"]);
    command.args(["ip link set lo up && exec timeout --foreground -k 5 \"$@\"", "sh", LIMIT]);
    command.arg(program).args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    command.env("TMPDIR", own).stdin(Stdio::null()).stdout(out).stderr(err);
    let status = command.status().map_err(|e| format!("setpriv: {e}; it is in the package util-linux"))?;
    Ok(status.success())
}
