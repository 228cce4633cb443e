//! Processes that do what a test tells them (agent.py).

use skep_rig::until;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longest time for an answer that nothing holds up.
const ANSWER: Duration = Duration::from_secs(60);

pub struct Agent {
    process: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Agent {
    /// A new process.
    pub fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("agent.py")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3 is missing: apt-get install python3");
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { process, input, answers }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Tells it something, without waiting.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Its next answer.
    pub fn answer(&self) -> String {
        self.answers.recv_timeout(ANSWER).expect("the process does not answer")
    }

    /// Tells it something and waits for the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// It has not answered within this time: it waits.
    pub fn waits(&self, time: Duration) {
        if let Ok(answer) = self.answers.recv_timeout(time) {
            panic!("it should wait, and answered {answer}");
        }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Asks until the answer is as wished.
    pub fn until(&mut self, line: &str, wished: &str) {
        until(line, ANSWER, || match self.ask(line) {
            answer if answer == wished => Ok(()),
            answer => Err(answer),
        })
        .unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
