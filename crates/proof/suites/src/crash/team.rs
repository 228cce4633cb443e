//! The load processes as their starter sees them: words to them, lines from them.

use super::Verdict;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time without an answer or a sign: an operation that waits for a daemon, the comparison of one file, the removal
/// of everything.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);

/// A process that has ended was read to its end by then.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How it is said that there was none.
const SILENCE: &str = "no word for";

/// How it is told what a process complains of.
pub const SAYS: &str = " says: ";

/// Begins a line of a process that goes on comparing.
pub const SIGN: &str = "at ";

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
        let told = writeln!(input, "{word}").and_then(|()| input.flush());
        // Who has ended has said why, most likely.
        told.map_err(|e| {
            let events = std::iter::from_fn(|| self.events.recv_timeout(LAST_WORDS).ok());
            let is_why = |line: &String| !line.starts_with(SIGN);
            match events
                .filter(|event| event.index == index)
                .find(|event| event.line.as_ref().is_none_or(is_why))
            {
                Some(event) => complaint(&event),
                None => format!("process {index} cannot be told anything: {e}"),
            }
        })
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

    /// One line of each of those `asked`, in the order of arrival; the first complaint is an error. None may say nothing for
    /// `limit`.
    pub fn answers(&mut self, asked: &[usize], limit: Duration) -> Result<Vec<String>, String> {
        let mut missing: BTreeMap<usize, (Instant, String)> =
            asked.iter().map(|index| (*index, (Instant::now(), String::new()))).collect();
        let mut answers = Vec::new();
        while let Some((since, _)) = missing.values().min() {
            let left = (*since + limit).saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).map_err(|_| self.silence(&missing, limit))?;
            let line = event.line.as_deref().unwrap_or_default();
            if let Some(answer) = line.strip_prefix("ok ") {
                answers.push(answer.to_owned());
                missing.remove(&event.index);
            } else if line.starts_with(SIGN) {
                missing.insert(event.index, (Instant::now(), line.to_owned()));
            } else {
                return Err(complaint(&event));
            }
        }
        Ok(answers)
    }

    fn silence(&self, missing: &BTreeMap<usize, (Instant, String)>, limit: Duration) -> String {
        let each: Vec<String> = missing
            .iter()
            .map(|(index, (since, sign))| format!("{index} ({} s ago {sign:?})", since.elapsed().as_secs()))
            .collect();
        format!("{SILENCE} {} s of processes {}: {}", limit.as_secs(), each.join(", "), self.stacks())
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
        Some(line) => format!("process {}{SAYS}{}", event.index, line.replace('\t', "\n    ")),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: signs and answers of several processes are told apart; who says nothing is named, with its last sign; a
    /// complaint and an end are errors.
    #[test]
    fn silence_is_told_from_work() {
        let (send, events) = channel();
        let mut team = Team { members: Vec::new(), events };
        let say = |index, line: &str| send.send(Event { index, line: Some(line.to_owned()) }).unwrap();
        let long = Duration::from_secs(60);
        [(0, "at a"), (1, "ok 1 2"), (0, "at b"), (0, "ok 3")]
            .into_iter()
            .for_each(|(index, line)| say(index, line));
        assert_eq!(team.answers(&[0, 1], long).unwrap(), ["1 2", "3"]);
        say(1, "ok");
        assert!(
            team.answers(&[1], long).unwrap_err().contains("process 1 says: ok"),
            "an answer says something"
        );
        [(0, "at a/b"), (1, "ok 1")].into_iter().for_each(|(index, line)| say(index, line));
        let silent = team.answers(&[0, 1], Duration::from_millis(50)).unwrap_err();
        assert!(silent.contains("processes 0 (") && silent.contains("at a/b"), "{silent}");
        say(0, "wrong");
        assert!(team.answers(&[0], long).unwrap_err().contains("wrong"));
        send.send(Event { index: 0, line: None }).unwrap();
        assert!(team.answers(&[0], long).unwrap_err().contains("ended"));
    }
}
