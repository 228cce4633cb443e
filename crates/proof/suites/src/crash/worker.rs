//! A load process. It obeys words on its standard input and answers each with one line, `ok ...`, after lines `at PATH`
//! while it compares; a line that begins otherwise is a complaint, and the end.

use super::load::Load;
use super::team::SIGN;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Given by the coordinator.
#[derive(clap::Args)]
pub struct WorkerArguments {
    /// Number of this process.
    #[arg(long)]
    index: usize,
    /// Seed of its history.
    #[arg(long)]
    seed: u64,
    /// Mounts of the cluster; the first is the one it works on.
    #[arg(long = "mount", required = true)]
    mounts: Vec<PathBuf>,
}

/// How often a comparison says where it is.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Signs of a comparison that it goes on.
#[derive(Default)]
pub struct Signs {
    last: Option<Instant>,
}

impl Signs {
    /// `path` is next.
    pub fn at(&mut self, path: &Path) {
        if self.last.is_none_or(|last| last.elapsed() >= SIGN_EVERY) {
            self.last = Some(Instant::now());
            // Nobody listens: the next answer says so.
            let _ = say(&format!("{SIGN}{}", path.display()).replace('\n', "\t"));
        }
    }
}

/// Serves the coordinator until it hangs up.
pub fn run(arguments: &WorkerArguments) -> Result<bool, String> {
    let (send, words) = channel::<String>();
    let gone = Arc::new(AtomicBool::new(false));
    let told = gone.clone();
    std::thread::spawn(move || {
        for word in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(word).is_err() {
                return;
            }
        }
        told.store(true, Ordering::SeqCst);
    });
    let mut load = match Load::new(arguments.index, arguments.seed, &arguments.mounts) {
        Ok(load) => load,
        Err(e) => return say(&format!("setting up: {e}")).map(|()| false),
    };
    while let Ok(word) = words.recv() {
        let answer = match word.as_str() {
            "go" => work(&mut load, false, &words),
            "go beside evictions" => work(&mut load, true, &words),
            "verify" => load.verify().map(|()| "verified".to_owned()),
            "remove" => load.remove().map(|()| "removed".to_owned()),
            "brave" => load.brave(&gone).map(|count| format!("{count} files were fsynced")),
            other => Err(format!("unknown word {other}")),
        };
        match answer {
            Ok(answer) => say(&format!("ok {answer}"))?,
            Err(complaint) => {
                say(&complaint.replace('\n', "\t"))?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Works until told to stop; says how much was done, how long the longest operation took (ms), and
/// which that was.
fn work(load: &mut Load, evicted: bool, words: &Receiver<String>) -> Result<String, String> {
    loop {
        match words.try_recv() {
            Ok(word) if word == "stop" => {
                let (longest, what) = load.take_longest();
                return Ok(format!("{} {} {what}", load.operations(), longest.as_millis()));
            }
            Ok(word) => return Err(format!("unexpected word {word}")),
            Err(TryRecvError::Disconnected) => return Err("nobody listens".to_owned()),
            Err(TryRecvError::Empty) => load.step(evicted)?,
        }
    }
}

fn say(line: &str) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|e| e.to_string())
}
