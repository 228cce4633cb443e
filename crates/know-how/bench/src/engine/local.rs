//! A crew on this machine: processes of their own, or threads of the caller's.

use super::child::reap;
use super::order::{Order, Report, read_line, write_line};
use super::{Crew, CrewError, Member, serve};
use std::io::{BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How long a process that was told to end has before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Starts are set so far ahead, and a little more per process.
const LEAD: Duration = Duration::from_millis(2);
const LEAD_EACH: Duration = Duration::from_micros(100);

/// Worker processes of this machine.
pub struct LocalCrew {
    members: Vec<Member>,
    hands: Vec<LocalHand>,
    reports: Receiver<(usize, Report)>,
    ended: bool,
}

struct LocalHand {
    orders: Option<Box<dyn Write + Send>>,
    child: Option<Child>,
}

impl LocalCrew {
    /// Starts `processes` of them; `command` says what to run: something that calls [`serve`] on its
    /// standard input and output.
    pub fn spawn(
        processes: u32,
        host: &str,
        mut command: impl FnMut(u32) -> Command,
    ) -> Result<Self, CrewError> {
        let (sender, reports) = mpsc::channel();
        let mut crew = Self { members: Vec::new(), hands: Vec::new(), reports, ended: false };
        for process in 0..processes {
            let mut command = command(process);
            // A group of its own: an interrupt typed at the terminal goes to the director alone.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut child = child
                .map_err(|error| CrewError(format!("cannot start worker process {process}: {error}")))?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(CrewError("a worker process has no pipes".to_owned()));
            };
            crew.add(host, Box::new(stdin), stdout, Some(child), &sender)?;
        }
        Ok(crew)
    }

    /// Workers in threads of this process: for tests, and for loads that need no process of their own.
    pub fn in_process(processes: u32, host: &str) -> Result<Self, CrewError> {
        let (sender, reports) = mpsc::channel();
        let mut crew = Self { members: Vec::new(), hands: Vec::new(), reports, ended: false };
        let wrong = |error: std::io::Error| CrewError(format!("cannot start a worker: {error}"));
        for process in 0..processes {
            let (their_input, orders) = std::io::pipe().map_err(wrong)?;
            let (answers, their_output) = std::io::pipe().map_err(wrong)?;
            let serving = std::thread::Builder::new().name(format!("process-{process}"));
            let served = move || {
                // Its end is told by the pipe that closes.
                let _ = serve(BufReader::new(their_input), their_output);
            };
            serving.spawn(served).map_err(wrong)?;
            crew.add(host, Box::new(orders), answers, None, &sender)?;
        }
        Ok(crew)
    }

    /// The processes' ids; none of workers in threads.
    pub fn pids(&self) -> Vec<u32> {
        self.hands.iter().filter_map(|hand| hand.child.as_ref().map(Child::id)).collect()
    }

    /// Closes the way of orders to a member, as a director does that dies.
    pub fn hang_up(&mut self, member: usize) {
        if let Some(hand) = self.hands.get_mut(member) {
            hand.orders = None;
        }
    }

    fn add(
        &mut self,
        host: &str,
        orders: Box<dyn Write + Send>,
        answers: impl Read + Send + 'static,
        child: Option<Child>,
        sender: &Sender<(usize, Report)>,
    ) -> Result<(), CrewError> {
        let member = self.members.len();
        self.members.push(Member { host: host.to_owned(), clock_offset_ns: 0, clock_error_ns: 0 });
        self.hands.push(LocalHand { orders: Some(orders), child });
        let sender = sender.clone();
        let listening = std::thread::Builder::new().name(format!("reports-{member}"));
        let listen = move || {
            let mut answers = BufReader::new(answers);
            loop {
                let (report, last) = match read_line::<Report>(&mut answers) {
                    Ok(Some(report)) => (report, false),
                    Ok(None) => (Report::Gone { reason: String::new() }, true),
                    Err(error) => (Report::Gone { reason: format!("it sent nonsense: {error}") }, true),
                };
                if sender.send((member, report)).is_err() || last {
                    return;
                }
            }
        };
        listening.spawn(listen).map_err(|error| CrewError(format!("cannot start a thread: {error}")))?;
        Ok(())
    }
}

impl LocalHand {
    /// Why the process is gone, as far as the kernel tells.
    fn obituary(&mut self) -> String {
        self.orders = None;
        let Some(child) = &mut self.child else { return "its thread ended".to_owned() };
        match reap(child, FAREWELL) {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "it closed its output but still runs".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

impl Crew for LocalCrew {
    fn members(&self) -> &[Member] {
        &self.members
    }

    fn send(&mut self, member: usize, order: &Order) -> Result<(), CrewError> {
        let Some(hand) = self.hands.get_mut(member) else { return Ok(()) };
        let Some(orders) = &mut hand.orders else { return Ok(()) };
        if write_line(orders, order).is_err() {
            // Its reader tells that it is gone.
            hand.orders = None;
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Report)>, CrewError> {
        match self.reports.recv_timeout(wait) {
            Ok((member, Report::Gone { reason })) => {
                let obituary = self.hands[member].obituary();
                let both = if reason.is_empty() { obituary } else { format!("{reason} ({obituary})") };
                Ok(Some((member, Report::Gone { reason: both })))
            }
            Ok(other) => Ok(Some(other)),
            Err(_) => Ok(None),
        }
    }

    fn lead(&self) -> Duration {
        LEAD + LEAD_EACH * self.hands.len() as u32
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        for hand in &mut self.hands {
            if let Some(mut orders) = hand.orders.take() {
                let _ = write_line(&mut orders, &Order::End);
            }
        }
        // One that hangs in the kernel dies when that lets it go. Nobody waits for that.
        for kill in [true, false] {
            let deadline = Instant::now() + FAREWELL;
            for child in self.hands.iter_mut().filter_map(|hand| hand.child.as_mut()) {
                let left = deadline.saturating_duration_since(Instant::now());
                if !matches!(reap(child, left), Ok(Some(_))) && kill {
                    let _ = child.kill();
                }
            }
        }
    }
}

impl Drop for LocalCrew {
    fn drop(&mut self) {
        self.end();
    }
}
