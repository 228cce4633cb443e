//! The load processes as their starter sees them: words to them, lines from them.

use super::Verdict;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time for an answer: an operation that waits for a daemon, then a comparison of everything.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);

/// A line of a process, or its end.
struct Event {
    index: usize,
    line: Option<String>,
}

/// Sums over the answers to `stop`.
#[derive(Default)]
pub struct Stopped {
    /// Operations of all processes since they began.
    pub operations: u64,
    /// The longest single operation.
    pub longest: Duration,
    /// What that was.
    pub what: String,
}

impl Stopped {
    /// An answer: operations, milliseconds of the longest, and what that was.
    fn add(&mut self, answer: &str) {
        let mut words = answer.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        self.operations += number();
        let longest = Duration::from_millis(number());
        if longest > self.longest {
            self.longest = longest;
            self.what = words.next().unwrap_or_default().to_owned();
        }
    }
}

/// All load processes. Dropped, they are ended.
pub struct Team {
    members: Vec<Child>,
    events: Receiver<Event>,
}

impl Team {
    /// Starts `processes` of them, spread over `points`.
    pub fn start(points: &[PathBuf], processes: u32, seed: u64) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| format!("own program: {e}"))?;
        let (send, events) = channel();
        let mut team = Self { members: Vec::new(), events };
        for index in 0..processes as usize {
            let mut command = Command::new(&program);
            command.arg("crash-worker").arg("--index").arg(index.to_string());
            command.arg("--seed").arg(seed.wrapping_add(1_000 * index as u64).to_string()).args(["--mount"]);
            // The first mount is the one it works on.
            command.arg(&points[index % points.len()]);
            for point in points.iter().cycle().skip(index % points.len() + 1).take(points.len() - 1) {
                command.arg("--mount").arg(point);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
            let output = child.stdout.take().ok_or("a load process has no output")?;
            team.members.push(child);
            let send = send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if send.send(Event { index, line: Some(line) }).is_err() {
                        return;
                    }
                }
                // Nobody may be interested in the end any more.
                let _ = send.send(Event { index, line: None });
            });
        }
        Ok(team)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Tells all of them `word`.
    pub fn all(&mut self, word: &str) -> Result<(), String> {
        (0..self.members.len()).try_for_each(|index| self.tell(index, word))
    }

    /// Tells one of them `word`.
    pub fn tell(&mut self, index: usize, word: &str) -> Result<(), String> {
        let input = self.members[index].stdin.as_mut().ok_or("a load process has no input")?;
        writeln!(input, "{word}").and_then(|()| input.flush()).map_err(|e| format!("process {index}: {e}"))
    }

    /// Lets `time` pass while they work; an error as soon as one of them reports one.
    pub fn watch(&mut self, time: Duration) -> Result<(), String> {
        match self.events.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err("all load processes ended".to_owned()),
            Ok(event) => Err(complaint(&event)),
        }
    }

    /// Tells all of them `word` and takes their answers, each a case of its own.
    pub fn ask_all(&mut self, word: &str, verdict: &mut Verdict) -> Stopped {
        let mut stopped = Stopped::default();
        let told = self.all(word);
        let asked: Vec<usize> = (0..self.members.len()).collect();
        match told.and_then(|()| self.answers(&asked, ANSWER_LIMIT)) {
            Err(e) => verdict.add(word, Err(e)),
            Ok(answers) => {
                for answer in answers {
                    stopped.add(&answer);
                    verdict.add(word, Ok(()));
                }
            }
        }
        stopped
    }

    /// One line of each of those `asked`, in the order of arrival; the first complaint is an error.
    pub fn answers(&mut self, asked: &[usize], limit: Duration) -> Result<Vec<String>, String> {
        let deadline = Instant::now() + limit;
        let mut missing = asked.to_vec();
        let mut answers = Vec::new();
        while !missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).map_err(|_| {
                format!(
                    "processes {missing:?} did not answer within {} s: {}",
                    limit.as_secs(),
                    self.stacks()
                )
            })?;
            let Some(answer) = event.line.as_deref().and_then(|line| line.strip_prefix("ok ")) else {
                return Err(complaint(&event));
            };
            answers.push(answer.to_owned());
            missing.retain(|index| *index != event.index);
        }
        Ok(answers)
    }

    /// Where each process waits, for the report of a hang.
    fn stacks(&self) -> String {
        let wait = |child: &Child| {
            let path = format!("/proc/{}/stack", child.id());
            let stack = std::fs::read_to_string(path).unwrap_or_default();
            stack.lines().take(6).collect::<Vec<_>>().join(" ")
        };
        self.members.iter().map(wait).collect::<Vec<_>>().join("; ")
    }
}

fn complaint(event: &Event) -> String {
    match &event.line {
        Some(line) => format!("process {}: {}", event.index, line.replace('\t', "\n    ")),
        None => format!("process {} ended", event.index),
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for child in &mut self.members {
            // It may have ended already.
            let _ = child.kill();
        }
        for child in &mut self.members {
            let _ = child.wait();
        }
    }
}
