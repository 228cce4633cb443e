//! The coordinator's connections to one agent: one for orders, one for reports.

use crate::bench::agent::question::{
    AgentAnswer, AgentQuestion, QUESTION_MAX, Relayed, ToAgent, WAIT_MAX_MS,
};
use skep_base::caller::{Caller, hello};
use skep_bench::engine::{Report, now_ns};
use skep_net::{Endpoint, Keyring};
use skep_types::Role;
use skep_wire::instrument::Measure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// An agent answers within this time, or it is given up.
const ANSWER: Duration = Duration::from_secs(4);
/// Ending a run takes a little longer: its processes are told and waited for.
const END: Duration = Duration::from_secs(15);
/// Clocks are compared so many times before a run; the quickest answer counts.
pub const CLOCK_ROUNDS: u32 = 24;
/// ... and again later: orders may wait for it, so fewer times.
const CLOCK_ROUNDS_AGAIN: u32 = 6;
/// Clocks drift: they are compared again when there was nothing to order for this long.
const QUIET: Duration = Duration::from_secs(5);
/// Clocks of two hosts drift apart by no more than this, nanoseconds in a second.
const DRIFT_NS: u64 = 100_000;

/// An agent's clock beside ours.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Its clock minus ours.
    pub offset_ns: i64,
    /// Half of the quickest round trip: no better can be told.
    pub error_ns: u64,
    /// The quickest round trip.
    pub round_trip: Duration,
}

impl Clock {
    /// Is a newer reading better than this one, which is so old? Under load a round trip takes longer.
    pub fn is_bettered_by(&self, newer: &Self, age: Duration) -> bool {
        newer.error_ns <= self.error_ns.saturating_add(age.as_secs().saturating_mul(DRIFT_NS))
    }
}

/// A connection to an agent.
pub struct AgentLink {
    keyring: Arc<Keyring>,
    endpoint: Endpoint,
    caller: Caller,
}

impl AgentLink {
    /// Connects at the first question.
    pub fn new(keyring: Arc<Keyring>, endpoint: Endpoint) -> Self {
        // Hosts that only mount have only the clients' key.
        let role = if keyring.has(Role::Admin) { Role::Admin } else { Role::Client };
        let caller = Caller::new(keyring.clone(), vec![endpoint.clone()], hello(role));
        Self { keyring, endpoint, caller }
    }

    /// A second connection to the same agent.
    pub fn another(&self) -> Self {
        Self::new(self.keyring.clone(), self.endpoint.clone())
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, question: &AgentQuestion) -> Result<AgentAnswer, String> {
        self.ask_within(question, ANSWER)
    }

    fn ask_within(&mut self, question: &AgentQuestion, limit: Duration) -> Result<AgentAnswer, String> {
        let question = ToAgent { agent: question.clone() };
        let question = serde_json::to_vec(&question).map_err(|e| format!("the question: {e}"))?;
        if question.len() > QUESTION_MAX {
            return Err(format!(
                "a question of {} bytes is too long for an agent ({QUESTION_MAX}): name fewer paths",
                question.len()
            ));
        }
        let reply = self.caller.call(&Measure { question }, Instant::now() + limit);
        let reply = reply.map_err(|e| e.to_string())?;
        serde_json::from_slice(&reply.answer).map_err(|e| {
            format!("the answer cannot be understood ({e}); is it an agent, and of the same release?")
        })
    }

    /// Compares the clocks.
    pub fn clock(&mut self, rounds: u32) -> Result<Clock, String> {
        let mut best: Option<Clock> = None;
        for _ in 0..rounds {
            let before = now_ns();
            let AgentAnswer::Clock { now_ns: theirs } = self.ask(&AgentQuestion::Clock)? else {
                return Err("the answer is to another question".to_owned());
            };
            let after = now_ns();
            let clock = compared(before, theirs, after);
            if best.is_none_or(|known| clock.round_trip < known.round_trip) {
                best = Some(clock);
            }
        }
        best.ok_or_else(|| "its clock could not be read".to_owned())
    }
}

/// Its clock was read at some moment between two of ours: at the middle, give or take half.
fn compared(before: u64, theirs: u64, after: u64) -> Clock {
    let trip = after.saturating_sub(before);
    let middle = before + trip / 2;
    Clock {
        offset_ns: theirs.wrapping_sub(middle).cast_signed(),
        error_ns: trip.div_ceil(2),
        round_trip: Duration::from_nanos(trip),
    }
}

/// What both threads of a host know.
#[derive(Clone)]
pub struct Speaker {
    run: u64,
    members: Vec<usize>,
    reports: Sender<(usize, Report)>,
    /// Newer readings of the agent's clock.
    clocks: Sender<Clock>,
    /// The run is ended, or the agent is lost: no more is asked.
    over: Arc<AtomicBool>,
}

impl Speaker {
    /// For the members of a run at one agent, in the order in which it knows them.
    pub fn new(
        run: u64,
        members: Vec<usize>,
        reports: Sender<(usize, Report)>,
        clocks: Sender<Clock>,
    ) -> Self {
        Self { run, members, reports, clocks, over: Arc::default() }
    }

    /// The agent is lost, and all its processes with it; said once.
    fn lost(&self, why: &str) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        for member in &self.members {
            let reason = format!("its agent is lost: {why}");
            // Nobody listens: the crew is at its end.
            let _ = self.reports.send((*member, Report::Gone { reason }));
        }
    }

    /// Passes orders on until there are no more to come, then ends the run.
    pub fn speak(self, mut link: AgentLink, orders: Receiver<(usize, Relayed)>) {
        let mut number = 0;
        loop {
            let first = match orders.recv_timeout(QUIET) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    // An agent that does not answer is told by the other connection.
                    if let Ok(clock) = link.clock(CLOCK_ROUNDS_AGAIN) {
                        let _ = self.clocks.send(clock);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let batch = batched(std::iter::once(first).chain(orders.try_iter()));
            if let Err(why) = self.tell(&mut link, batch, &mut number) {
                self.lost(&why);
            }
            if self.over.load(Ordering::Acquire) {
                break;
            }
        }
        // Said even to an agent that seems lost: it may only have been slow, and its processes must end.
        let known = self.over.swap(true, Ordering::AcqRel);
        let ended = link.ask_within(&AgentQuestion::End { run: self.run }, if known { ANSWER } else { END });
        if let (Err(why), false) = (ended, known) {
            skep_base::warning!("the run could not be ended ({why}); the agent ends it by itself");
        }
    }

    fn tell(
        &self,
        link: &mut AgentLink,
        batch: Vec<(Vec<u32>, Relayed)>,
        number: &mut u64,
    ) -> Result<(), String> {
        // One by one where they are too long together.
        let long = serde_json::to_vec(&batch).map_or(0, |bytes| bytes.len()) > QUESTION_MAX / 2;
        let pieces: Vec<_> =
            if long { batch.into_iter().map(|one| vec![one]).collect() } else { vec![batch] };
        for orders in pieces {
            *number += 1;
            link.ask(&AgentQuestion::Orders { run: self.run, number: *number, orders })?;
        }
        Ok(())
    }

    /// Fetches reports until the run is over or the agent is lost.
    pub fn listen(self, mut link: AgentLink) {
        let mut from = 0;
        let mut rest = String::new();
        while !self.over.load(Ordering::Acquire) {
            let limit = ANSWER + Duration::from_millis(WAIT_MAX_MS);
            let text = match link.ask_within(&AgentQuestion::Reports { run: self.run, from }, limit) {
                Ok(AgentAnswer::Reports { text }) => text,
                Ok(_) => return self.lost("the answer is to another question"),
                Err(why) => return self.lost(&why),
            };
            from += text.len() as u64;
            rest.push_str(&text);
            while let Some(end) = rest.find('\n') {
                let line: String = rest.drain(..=end).collect();
                let Ok((place, report)) = serde_json::from_str::<(usize, Report)>(&line) else {
                    return self.lost("it sent nonsense");
                };
                let Some(member) = self.members.get(place) else {
                    return self.lost("it speaks of a process that it does not run");
                };
                if self.reports.send((*member, report)).is_err() {
                    return;
                }
            }
        }
    }
}

/// The same order to several processes, one after the other, is sent once.
fn batched(orders: impl Iterator<Item = (usize, Relayed)>) -> Vec<(Vec<u32>, Relayed)> {
    let mut batch: Vec<(Vec<u32>, Relayed)> = Vec::new();
    for (place, order) in orders {
        match batch.last_mut() {
            Some((places, last)) if *last == order => places.push(place as u32),
            _ => batch.push((vec![place as u32], order)),
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::engine::Order;

    /// Goal: the offset is that of the middle of the round trip, in both directions, with its uncertainty.
    #[test]
    fn clocks() {
        let ahead = compared(1_000, 5_050, 1_100);
        assert_eq!((ahead.offset_ns, ahead.error_ns), (4_000, 50));
        let behind = compared(5_000, 1_050, 5_100);
        assert_eq!((behind.offset_ns, behind.round_trip), (-4_000, Duration::from_nanos(100)));
        // A worse reading is taken once the better one is so old that drift may have made it the worse.
        let slow = compared(1_000, 5_050, 301_000);
        assert!(slow.is_bettered_by(&ahead, Duration::ZERO));
        assert!(!ahead.is_bettered_by(&slow, Duration::from_secs(1)));
        assert!(ahead.is_bettered_by(&slow, Duration::from_secs(2)));
    }

    /// Goal: orders keep their order; equal neighbours are one.
    #[test]
    fn batches() {
        let end = Relayed::Order(Order::End);
        let stop = Relayed::Order(Order::Stop);
        let orders = [(0, end.clone()), (1, end.clone()), (0, stop.clone()), (1, end.clone())];
        let batch = batched(orders.into_iter());
        assert_eq!(batch, [(vec![0, 1], end.clone()), (vec![0], stop), (vec![1], end)]);
    }

    /// Goal: a lost agent is reported once for each of its processes.
    #[test]
    fn lost_once() {
        let (sender, reports) = std::sync::mpsc::channel();
        let speaker = Speaker::new(1, vec![4, 7], sender, std::sync::mpsc::channel().0);
        speaker.clone().lost("it is off");
        speaker.lost("again");
        let gone: Vec<_> = reports.try_iter().collect();
        assert_eq!(gone.iter().map(|(member, _)| *member).collect::<Vec<_>>(), [4, 7]);
        assert!(matches!(&gone[0].1, Report::Gone { reason } if reason.contains("it is off")));
    }
}
