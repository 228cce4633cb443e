//! The instruments of one daemon: questions in, answers out, never waiting.

use super::jobs::{Control, Jobs};
use super::leases::Leases;
use super::question::{Direction, Findings, Measurement, Order, QUESTION_MAX, Question, Reply, StorageTest};
use super::{facts, listen, log, network, processor, storage};
use skep_bench::engine::now_ns;
use skep_net::{Answer, Keyring, Payload, Peer, may_call};
use skep_types::limits::PAYLOAD_MAX;
use skep_types::{ClusterId, Encode, Errno, NodeId, Reader, ServiceKind, TargetId};
use skep_wire::instrument::{InstrumentRequest, Measure, MeasureReply};
use skep_wire::mgmt::Address;
use skep_wire::{Empty, Header, Refusal, Status};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A target as it is measured.
#[derive(Debug, Clone)]
pub struct BenchTarget {
    pub target: TargetId,
    pub path: PathBuf,
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Bytes that stay free.
    pub reserve: u64,
}

/// The log of a metadata server.
pub struct LogPlace {
    /// A directory on its disk.
    pub directory: PathBuf,
    /// How often it was made durable, and for how many nanoseconds.
    pub spent: Box<dyn Fn() -> (u64, u64) + Send + Sync>,
}

/// The daemon that is measured.
pub struct Host {
    pub service: ServiceKind,
    /// What it is called in facts.
    pub name: &'static str,
    pub alias: String,
    pub node: NodeId,
    pub cluster: ClusterId,
    pub addresses: Vec<Address>,
    /// Its keys.
    pub keyring: Arc<Keyring>,
    /// Its targets, if it has any.
    pub targets: Vec<BenchTarget>,
    /// Its log, if it is a metadata server.
    pub log: Option<LogPlace>,
}

pub struct Instruments {
    host: Arc<Host>,
    jobs: Jobs,
    leases: Arc<Leases>,
}

/// Is a message of this number for the instruments?
pub fn is_instrument(kind: u16) -> bool {
    InstrumentRequest::KINDS.iter().any(|(number, _)| *number == kind)
}

fn malformed(what: impl Into<String>) -> Refusal {
    Refusal::with(Status::MALFORMED, what)
}

fn decode(header: &Header, body: &[u8]) -> Result<InstrumentRequest, Refusal> {
    let mut r = Reader::new(body);
    let request = InstrumentRequest::decode(header.kind, &mut r).map_err(|e| malformed(e.to_string()))?;
    r.finish("request").map_err(|e| malformed(e.to_string()))?;
    request.ok_or_else(|| malformed("not a message for an instrument"))
}

/// Answers the messages of a flow, with the payload buffer of their connection.
pub fn flow_answer(header: &Header, body: &[u8], payload: &mut Payload) -> Result<Answer, Refusal> {
    match decode(header, body)? {
        InstrumentRequest::Discard(_) => Ok(Answer::done(&Empty {})),
        InstrumentRequest::Fabricate(m) if m.len as usize <= PAYLOAD_MAX => {
            payload.room(m.len as usize);
            Ok(Answer::done(&Empty {}).with_payload(m.len as usize))
        }
        InstrumentRequest::Fabricate(m) => {
            Err(malformed(format!("{} bytes do not fit into a frame of {PAYLOAD_MAX}", m.len)))
        }
        InstrumentRequest::Measure(_) => Err(malformed("questions go to the service itself")),
    }
}

impl Instruments {
    /// For this daemon.
    pub fn new(host: Host) -> Arc<Self> {
        Arc::new(Self { host: Arc::new(host), jobs: Jobs::default(), leases: Arc::default() })
    }

    /// The answer of a server with a thread for each connection.
    pub fn stream_answer(&self, peer: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        let mut answer = || {
            may_call(header, peer.hello.role)?;
            match decode(header, body)? {
                InstrumentRequest::Measure(m) => self.measure(&m).map(|reply| Answer::done(&reply)),
                _ => flow_answer(header, body, payload),
            }
        };
        answer().unwrap_or_else(Answer::from)
    }

    /// The answer of a server with one thread: it has no payloads, so it cannot serve a flow.
    pub fn event_answer(&self, peer: &Peer, header: &Header, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        may_call(header, peer.hello.role)?;
        match decode(header, body)? {
            InstrumentRequest::Measure(m) => self.measure(&m).map(|reply| reply.to_bytes()),
            InstrumentRequest::Discard(_) => Ok(Empty {}.to_bytes()),
            InstrumentRequest::Fabricate(_) => {
                let text = "this service sends no payloads: ask it to listen for the measurement";
                Err(Refusal::with(Status::errno(Errno::EOPNOTSUPP), text))
            }
        }
    }

    fn measure(&self, m: &Measure) -> Result<MeasureReply, Refusal> {
        if m.question.len() > QUESTION_MAX {
            return Err(malformed(format!("a question has at most {QUESTION_MAX} bytes")));
        }
        let question: Question = serde_json::from_slice(&m.question).map_err(|e| {
            malformed(format!("the question cannot be understood ({e}): do both sides run the same release?"))
        })?;
        let none =
            |job: u64| Refusal::with(Status::errno(Errno::ENOENT), format!("there is no job {job} here"));
        let one =
            |job: u64| self.jobs.shown(job).map(|shown| Reply::Job(Box::new(shown))).ok_or_else(|| none(job));
        let reply = match question {
            Question::Start(order) => one(self.start(order)?)?,
            Question::Status(job) => {
                let shown = self.jobs.asked(job).ok_or_else(|| none(job))?;
                if let Measurement::Storage(test) = &shown.what {
                    self.leases.renew(&test.set);
                }
                Reply::Job(Box::new(shown))
            }
            Question::Go { job, at_ns } => {
                Reply::Job(Box::new(self.jobs.go(job, at_ns).ok_or_else(|| none(job))?))
            }
            Question::Clock => Reply::Clock(now_ns()),
            Question::Filler(bytes) => Reply::Filler("x".repeat(QUESTION_MAX.min(bytes as usize))),
            Question::Stop(job) => {
                if !self.jobs.stop(job) {
                    return Err(none(job));
                }
                one(job)?
            }
            Question::Jobs => Reply::Jobs(self.jobs.all()),
        };
        let answer = serde_json::to_vec(&reply).map_err(|e| malformed(format!("the answer: {e}")))?;
        Ok(MeasureReply { answer })
    }

    /// Starts a job; gives its number.
    pub fn start(&self, order: Order) -> Result<u64, Refusal> {
        let host = self.host.clone();
        let busy = |text: String| Refusal::with(Status::errno(Errno::EBUSY), text);
        let asked = order.what.clone();
        let jobs = self.jobs.clone();
        let work = move |control: &Control| run(&host, &jobs, &asked, control);
        let (what, lease_ms, keep) = (order.what.clone(), order.lease_ms, order.keep);
        let number = self.jobs.start(order, |running| disturbs(&what, running), work).map_err(busy)?;
        match &what {
            Measurement::Storage(test) if lease_ms > 0 && !keep && test.direction == Direction::Write => {
                self.leases.hold(&test.set, Duration::from_millis(lease_ms), &self.host, &self.jobs);
            }
            // Whatever reads them asks for them, too.
            Measurement::Storage(test) => self.leases.renew(&test.set),
            _ => {}
        }
        Ok(number)
    }

    /// The daemon stops: so do its measurements.
    pub fn end(&self) {
        self.jobs.stop_all();
    }
}

/// Does this measurement use the files of that set?
pub fn uses(what: &Measurement, set: &str) -> bool {
    matches!(what, Measurement::Storage(test) if test.set == set)
}

/// Two at once on the targets measure each other; files that are in use must stay.
fn disturbs(what: &Measurement, running: &Measurement) -> bool {
    let removes = |sets: &[String], test: &StorageTest| sets.is_empty() || sets.contains(&test.set);
    match (what, running) {
        (Measurement::Storage(_), Measurement::Storage(_)) => true,
        (Measurement::Cleanup { sets, .. }, Measurement::Storage(test))
        | (Measurement::Storage(test), Measurement::Cleanup { sets, .. }) => removes(sets, test),
        (Measurement::Log(_), Measurement::Log(_)) => true,
        (Measurement::Cleanup { .. }, Measurement::Cleanup { .. }) => true,
        _ => false,
    }
}

fn run(host: &Arc<Host>, jobs: &Jobs, what: &Measurement, control: &Control) -> Result<Findings, String> {
    match what {
        Measurement::Facts => Ok(Findings::Facts(Box::new(facts::look(host.name, &host.targets)))),
        Measurement::Processor(test) => processor::measure(test, control),
        Measurement::Listen(test) => listen::serve(host, test.seconds, control),
        Measurement::Network(test) => network::measure(test, &host.keyring, control),
        Measurement::Storage(test) => storage::measure(&host.targets, test, control),
        Measurement::Cleanup { targets, sets } => storage::cleanup(&host.targets, targets, sets),
        Measurement::Log(test) => match &host.log {
            Some(place) => log::measure(place, test, control),
            None => Err("this daemon has no log of names".to_owned()),
        },
        Measurement::Sets => {
            let used = |set: &str| jobs.runs(|what| uses(what, set));
            Ok(Findings::Sets(storage::sets(&host.targets, used)))
        }
    }
}
