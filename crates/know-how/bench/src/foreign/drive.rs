//! Finding the real tools and running them.

use super::{ForeignError, ForeignResult, OUTPUT_MAX, parse};
use crate::dialect::Tool;
use crate::engine::has_ended;
use crate::job::{Fsync, IoJob, IoKind, Order, Share};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether a running tool shall end.
const LOOK: Duration = Duration::from_millis(50);
/// A tool that is told to end has this long for its own children (mpirun its ranks); so has one that is killed, and
/// the end of an output.
const GRACE: Duration = Duration::from_secs(2);
/// Longest standard error that is kept: its end says what went wrong.
const COMPLAINT_MAX: usize = 4 << 10;

/// An installed tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub tool: Tool,
    pub path: PathBuf,
}

/// Looks for a tool in the directories of `path` (the PATH of the environment).
pub fn find(tool: Tool, path: &str) -> Option<Found> {
    let names: &[&str] = match tool {
        Tool::Ior => &["ior", "IOR"],
        Tool::Mdtest => &["mdtest"],
        Tool::Iozone => &["iozone", "iozone3"],
        Tool::Fio => &["fio"],
        Tool::Elbencho => &["elbencho"],
    };
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let places = path.split(':').filter(|directory| directory.starts_with('/'));
    let mut candidates =
        places.flat_map(|directory| names.iter().map(move |name| Path::new(directory).join(name)));
    candidates.find(executable).map(|path| Found { tool, path })
}

/// How a tool is to be run.
pub struct Drive<'a> {
    /// Its options.
    pub arguments: &'a [String],
    /// Words before it, such as `mpirun -np 4`.
    pub launcher: &'a [String],
    pub directory: &'a Path,
    /// It is ended after this time.
    pub limit: Duration,
    /// Set from elsewhere: ends it early.
    pub stop: &'a AtomicBool,
}

impl Found {
    /// The whole command line.
    pub fn command_line(&self, drive: &Drive<'_>) -> Vec<String> {
        let mut words = drive.launcher.to_vec();
        words.push(self.path.to_string_lossy().into_owned());
        words.extend_from_slice(drive.arguments);
        if self.tool == Tool::Fio && !drive.arguments.iter().any(|word| word.starts_with("--output-format")) {
            words.push("--output-format=json".to_owned());
        }
        words
    }

    /// Runs it and reads what it prints.
    pub fn run(&self, drive: &Drive<'_>) -> Result<ForeignResult, ForeignError> {
        let fail = |why: String| ForeignError { tool: self.tool, why };
        let words = self.command_line(drive);
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .current_dir(drive.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Whatever it starts belongs to a group that can be ended as a whole.
            .process_group(0)
            .spawn()
            .map_err(|error| fail(format!("{}: {error}", words[0])))?;
        let output = collect(child.stdout.take(), OUTPUT_MAX);
        let complaint = collect(child.stderr.take(), OUTPUT_MAX);
        let ended = wait(&mut child, drive);
        let (output, complaint) = (text_of(output), text_of(complaint));
        match ended.map_err(fail)? {
            true => parse(self.tool, &output),
            false => {
                let text = if complaint.trim().is_empty() { &output } else { &complaint };
                Err(fail(format!("`{}` failed: {}", words.join(" "), end_of(text.trim()))))
            }
        }
    }
}

/// True: it ended well. What it started ends with it in any case.
fn wait(child: &mut Child, drive: &Drive<'_>) -> Result<bool, String> {
    let since = Instant::now();
    while !has_ended(child, LOOK).map_err(|error| error.to_string())? {
        let stopped = drive.stop.load(Ordering::Relaxed);
        if stopped || since.elapsed() > drive.limit {
            let why = if stopped {
                "ended, as it was asked to".to_owned()
            } else {
                format!("ended after {} s: give it less to do", drive.limit.as_secs())
            };
            return Err(match end(child) {
                true => why,
                false => {
                    format!("{why}; process {} cannot be killed: does its file system hang?", child.id())
                }
            });
        }
    }
    // A child that outlives it would disturb whatever is measured next, and keep its output open.
    signal(child, Signal::KILL);
    child.wait().map(|status| status.success()).map_err(|error| error.to_string())
}

/// To it and all that it started, except what left its group.
fn signal(child: &Child, signal: Signal) {
    // Nobody is left in the group: all have ended by themselves.
    let _ = kill_process_group(Pid::from_child(child), signal);
}

/// Asks first, for mpirun's ranks have groups of their own, which only mpirun ends. False: it is still there.
fn end(child: &mut Child) -> bool {
    for order in [Signal::TERM, Signal::KILL] {
        signal(child, order);
        if matches!(has_ended(child, GRACE), Ok(true)) {
            signal(child, Signal::KILL);
            // It has ended: this does not wait.
            let _ = child.wait();
            return true;
        }
    }
    false
}

/// What a stream has said so far, and the end of it.
struct Collected {
    text: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

/// Reads to the end so that the tool never waits for us; beyond the limit it is thrown away.
fn collect(stream: Option<impl Read + Send + 'static>, limit: usize) -> Option<Collected> {
    let mut stream = stream?;
    let text = Arc::new(Mutex::new(Vec::new()));
    let (ended, end) = mpsc::channel::<()>();
    let kept = text.clone();
    std::thread::spawn(move || {
        // Dropped when the stream ends, which the receiver sees.
        let _ended = ended;
        let mut piece = [0; 16 << 10];
        // A broken pipe is the end of what can be known.
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let room = limit.saturating_sub(kept.len());
            kept.extend_from_slice(&piece[..length.min(room)]);
        }
    });
    Some(Collected { text, end })
}

/// The tool has ended, and its group: a stream that stays open is held by something that left the group, for which
/// nobody waits.
fn text_of(collected: Option<Collected>) -> String {
    let Some(Collected { text, end }) = collected else { return String::new() };
    // Disconnected is the end; nothing is ever sent.
    let _ = end.recv_timeout(GRACE);
    let text = text.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&text).into_owned()
}

fn end_of(text: &str) -> &str {
    let mut start = text.len().saturating_sub(COMPLAINT_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// The options of fio that mean what a job means, phase `at` of it; none when fio cannot do it.
pub fn fio_arguments(job: &IoJob, processes: u32, at: usize) -> Option<Vec<String>> {
    let phase = job.phases.get(at)?;
    if job.share != Share::PerWorker || job.listed || phase.verify || job.paths.len() != 1 {
        return None;
    }
    let random = match phase.order {
        Order::Forward => "",
        Order::Random => "rand",
        _ => return None,
    };
    let (pattern, mix) = match phase.kind {
        IoKind::Write | IoKind::Rewrite => ("write", None),
        IoKind::Read | IoKind::Reread => ("read", None),
        IoKind::Mixed { read_percent } => ("rw", Some(read_percent)),
    };
    let flag = u8::from;
    let mut words = vec![
        format!("--name={}", job.name),
        format!("--directory={}", job.paths[0]),
        format!("--rw={random}{pattern}"),
        format!("--bs={}", job.transfer),
        format!("--size={}", job.per_worker()),
        format!("--numjobs={processes}"),
        format!("--direct={}", flag(job.direct)),
        format!("--invalidate={}", flag(job.invalidate)),
        format!("--fadvise_hint={}", flag(job.advise)),
        format!("--fallocate={}", if job.preallocate { "native" } else { "none" }),
        "--ioengine=psync".to_owned(),
        "--group_reporting".to_owned(),
        "--output-format=json".to_owned(),
    ];
    words.extend(mix.map(|percent| format!("--rwmixread={percent}")));
    match job.fsync {
        Fsync::Never => {}
        Fsync::AtEnd => words.push("--end_fsync=1".to_owned()),
        Fsync::Every { transfers } => words.push(format!("--fsync={transfers}")),
    }
    Some(words)
}
