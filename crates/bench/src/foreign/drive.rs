//! Finding the real tools and running them.

use super::{ForeignError, ForeignResult, OUTPUT_MAX, parse};
use crate::dialect::Tool;
use crate::job::{Fsync, IoJob, IoKind, Order, Share};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a running tool is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Longest standard error that is kept: its end says what went wrong.
const COMPLAINT_MAX: usize = 4 << 10;

/// An installed tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub tool: Tool,
    /// Where.
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
    /// Where.
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
            .spawn()
            .map_err(|error| fail(format!("{}: {error}", words[0])))?;
        let output = collect(child.stdout.take(), OUTPUT_MAX);
        let complaint = collect(child.stderr.take(), OUTPUT_MAX);
        let ended = wait(&mut child, drive);
        let (output, complaint) = (joined(output), joined(complaint));
        match ended.map_err(fail)? {
            true => parse(self.tool, &output),
            false => {
                let text = if complaint.trim().is_empty() { &output } else { &complaint };
                Err(fail(format!("`{}` failed: {}", words.join(" "), end_of(text.trim()))))
            }
        }
    }
}

/// True: it ended well.
fn wait(child: &mut Child, drive: &Drive<'_>) -> Result<bool, String> {
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
        let stopped = drive.stop.load(Ordering::Relaxed);
        if stopped || since.elapsed() > drive.limit {
            // Errors: it ended by itself in between.
            let _ = child.kill();
            let _ = child.wait();
            return Err(if stopped {
                "ended, as it was asked to".to_owned()
            } else {
                format!("ended after {} s: give it less to do", drive.limit.as_secs())
            });
        }
        std::thread::sleep(LOOK);
    }
}

type Collected = std::thread::JoinHandle<String>;

/// Reads to the end so that the tool never waits for us; beyond the limit it is thrown away.
fn collect(stream: Option<impl Read + Send + 'static>, limit: usize) -> Option<Collected> {
    let mut stream = stream?;
    Some(std::thread::spawn(move || {
        let mut text = Vec::new();
        // A broken pipe is the end of what can be known.
        let _ = stream.by_ref().take(limit as u64).read_to_end(&mut text);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        String::from_utf8_lossy(&text).into_owned()
    }))
}

fn joined(collected: Option<Collected>) -> String {
    collected.and_then(|thread| thread.join().ok()).unwrap_or_default()
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
