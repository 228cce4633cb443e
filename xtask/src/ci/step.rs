//! Runs one step: passes its output on, counts, and ends it when its time is over.

use std::io::{BufRead, BufReader, IsTerminal, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::count::Count;
use super::said::Said;

/// Something that a step left running may hold its output open: its output is followed for no longer than this after the
/// step has ended.
const LEFTOVERS: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_secs(1);

/// How a step ended.
#[derive(Debug)]
pub struct Outcome {
    /// Whether its command succeeded.
    pub passed: bool,
    /// Whether its time ran out.
    pub expired: bool,
    /// How long it took.
    pub took: Duration,
    /// What it and all that it waited for used of the processors: says on a busy machine what a step costs.
    pub processor: Duration,
    /// What its output counted.
    pub count: Count,
    /// What it said, for when it failed.
    pub said: Said,
}

impl Outcome {
    /// Of a step that could not begin.
    pub fn not_run() -> Self {
        Self {
            passed: false,
            expired: false,
            took: Duration::ZERO,
            processor: Duration::ZERO,
            count: Count::default(),
            said: Said::default(),
        }
    }

    /// Cases to add to the sum: a step that counts none is one itself, and one that failed without
    /// a failed case (it did not compile, it crashed) has one.
    pub fn cases(&self) -> Count {
        let mut count = self.count;
        if self.passed && count == Count::default() {
            count.passed = 1;
        }
        if !self.passed && count.failed == 0 {
            count.failed = 1;
        }
        count
    }
}

/// Runs `command` in `root`, with its output to `sink`. With nobody at a terminal it gets a process group of its own, which is
/// ended whole when `limit` is over; a person at one has Ctrl-C instead.
pub fn run(root: &Path, command: &[&str], limit: Duration, sink: &mut dyn Write) -> Result<Outcome, String> {
    let limit = (!std::io::stdin().is_terminal()).then_some(limit);
    execute(root, command, limit, sink)
}

fn execute(
    root: &Path,
    command: &[&str],
    limit: Option<Duration>,
    sink: &mut dyn Write,
) -> Result<Outcome, String> {
    let (program, arguments) = command.split_first().ok_or("a step has no command")?;
    let piped = |error| format!("cannot make a pipe for {program}: {error}");
    let (output, input) = std::io::pipe().map_err(piped)?;
    let mut step = Command::new(program);
    step.args(arguments).current_dir(root);
    step.stdout(input.try_clone().map_err(piped)?).stderr(input);
    if limit.is_some() {
        step.stdin(Stdio::null()).process_group(0);
    }
    let begun = Instant::now();
    let mut child =
        step.spawn().map_err(|error| format!("cannot run {program}: {error}; is it installed?"))?;
    // It holds our ends of the pipe, which would never end.
    drop(step);
    let deadline = limit.map(|limit| begun + limit);
    let mut said = Said::default();
    let (count, in_time) = follow(&child, output, deadline, &mut |line| {
        said.line(line);
        // Who reads our output may have gone; the step still counts.
        let _ = sink.write_all(line);
    })?;
    let ended = in_time && ended_by(&child, deadline)?;
    let processor = processor_time(child.id());
    if limit.is_some() {
        end_group(&child);
    }
    let status = child.wait().map_err(|error| format!("cannot wait for a step: {error}"))?;
    let passed = ended && status.success();
    if !ended {
        let limit = limit.unwrap_or_default().as_secs();
        eprintln!("{} took longer than {limit} s and was ended", command.join(" "));
    }
    Ok(Outcome { passed, expired: !ended, took: begun.elapsed(), processor, count, said })
}

/// Hands on the child's output, line by line, until its end or the deadline; false when the deadline came first.
fn follow(
    child: &Child,
    output: PipeReader,
    deadline: Option<Instant>,
    told: &mut dyn FnMut(&[u8]),
) -> Result<(Count, bool), String> {
    let (send, lines) = mpsc::sync_channel::<Vec<u8>>(1_024);
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
            if send.send(core::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    let mut count = Count::default();
    let mut ended: Option<Instant> = None;
    loop {
        if ended.is_none() && has_ended(child)? {
            ended = Some(Instant::now());
        }
        if ended.is_some_and(|ended| ended.elapsed() >= LEFTOVERS) {
            return Ok((count, true));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match lines.recv_timeout(left.unwrap_or(LOOK).min(LOOK)) {
            Ok(line) => {
                count.line(&String::from_utf8_lossy(&line));
                told(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok((count, true)),
            Err(RecvTimeoutError::Timeout) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                return Ok((count, false));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Waits for the exit of a child that has closed its output, without reaping it; false when the deadline comes first.
fn ended_by(child: &Child, deadline: Option<Instant>) -> Result<bool, String> {
    /// A child that closed its output is about to exit.
    const SOON: Duration = Duration::from_millis(5);
    loop {
        if has_ended(child)? {
            return Ok(true);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        std::thread::sleep(SOON);
    }
}

/// It has exited, and nobody has reaped it.
fn has_ended(child: &Child) -> Result<bool, String> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("a step has no process")?;
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::Pid(pid), how).map_err(|error| format!("cannot wait for a step: {error}"))?;
    Ok(status.is_some())
}

/// Of a process and all that it has waited for; it may have exited, but nobody has reaped it.
fn processor_time(pid: u32) -> Duration {
    /// After the name of the program: state is the first, `utime`, `stime`, `cutime`, `cstime` are these.
    const TIMES: std::ops::Range<usize> = 11..15;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 =
        fields.get(TIMES).unwrap_or_default().iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Kills what is left of the child's process group (it leads one of its own, and nobody has reaped it, so that its number is
/// nobody else's).
fn end_group(child: &Child) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // An error means that nobody is left to kill.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn sh(script: &str, limit: Duration) -> Outcome {
        // Not to our own output, where its counts would be taken for those of the tests.
        execute(Path::new("/"), &["sh", "-c", script], Some(limit), &mut std::io::sink()).expect("sh runs")
    }

    /// Goal: the exit status decides, the output is counted, and a step that counts nothing is one case.
    #[test]
    fn steps_are_judged_and_counted() {
        let good = sh("echo '3 passed, 0 failed'", LONG);
        assert!(good.passed && !good.expired);
        assert_eq!(good.cases(), Count { passed: 3, failed: 0 });
        assert_eq!(sh("true", LONG).cases(), Count { passed: 1, failed: 0 });
        let bad = sh("echo '3 passed, 0 failed'; exit 1", LONG);
        assert!(!bad.passed);
        assert_eq!(bad.cases(), Count { passed: 3, failed: 1 });
        assert_eq!(sh("exit 2", LONG).cases(), Count { passed: 0, failed: 1 });
        assert!(run(Path::new("/"), &["skep-no-such-program"], LONG, &mut std::io::sink()).is_err());
    }

    /// Goal: what a step's children computed is counted, and what they slept is not.
    #[test]
    fn processor_time_is_that_of_all_children() {
        let busy = sh("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; true", LONG);
        assert!(busy.passed && busy.processor >= Duration::from_millis(30), "{:?}", busy.processor);
        let idle = sh("sleep 1; true", LONG);
        assert!(idle.passed && idle.processor < Duration::from_millis(500), "{:?}", idle.processor);
    }

    /// Runs a script that writes the id of a child of it to `$CHILD`; the child is gone afterwards.
    fn sh_with_child(script: &str, limit: Duration) -> Outcome {
        let scratch = skep_rig::Scratch::new(None).expect("a directory");
        let file = scratch.path().join("child");
        let outcome = sh(&format!("CHILD={}; {script}", file.display()), limit);
        let child = std::fs::read_to_string(&file).expect("the script wrote its child's id");
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).ok()?;
            stat.rsplit(") ").next()?.chars().next()
        };
        let begun = Instant::now();
        while !matches!(state(), None | Some('Z' | 'X')) {
            assert!(begun.elapsed() < LONG, "the step's child {child} lives on");
            std::thread::yield_now();
        }
        outcome
    }

    /// Goal: a step whose time is over is ended with everything it started, and counts as failed.
    #[test]
    fn expired_steps_are_ended_whole() {
        let script = "sleep 1000 & echo $! > $CHILD; echo '2 passed, 0 failed'; wait";
        let outcome = sh_with_child(script, Duration::from_secs(10));
        assert!(outcome.expired && !outcome.passed && outcome.took < LONG);
        assert_eq!(outcome.cases(), Count { passed: 2, failed: 1 });
    }

    /// Goal: a step that has ended is not waited for because something that it left holds its output open, and that ends
    /// with it; what a failed one said is kept, errors among it.
    #[test]
    fn what_a_step_leaves_keeps_nobody_waiting() {
        let script = "(while :; do sleep 1; done) & echo $! > $CHILD; echo said; echo why >&2; exit 1";
        let outcome = sh_with_child(script, LONG);
        assert!(!outcome.passed && !outcome.expired && outcome.took < LONG);
        assert_eq!(outcome.said.text(), "said\nwhy\n");
    }

    /// Goal: a step that closes its output and lives on is ended too.
    #[test]
    fn silent_steps_expire() {
        let outcome = sh("exec >&- 2>&-; exec sleep 1000", Duration::from_secs(1));
        assert!(outcome.expired && outcome.took < LONG);
    }
}
