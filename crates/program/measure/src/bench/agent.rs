//! `skep bench agent`: runs the worker processes of a coordinator on another host.
//!
//! Connections are authenticated like everything else. Jobs work below `--allow` only, as the user who runs
//! the agent, one run at a time; a coordinator that goes away takes its run with it.

mod allow;
mod budget;
pub mod question;
mod run;

use super::worker;
use allow::Allowed;
use budget::Budget;
use clap::Args;
use question::{AgentAnswer, AgentQuestion, QUESTION_MAX, ToAgent};
use run::Run;
use skep_base::access::default_key;
use skep_base::cli::EXIT_USAGE;
use skep_base::daemon::{self, Readiness, Stop};
use skep_base::listen;
use skep_bench::engine::now_ns;
use skep_bench::job::Job;
use skep_instruments::{Host, Instruments, is_instrument};
use skep_net::{Answer, Handler, Keyring, Payload, Peer, PeerInfo, StreamLimits, StreamServer};
use skep_types::{ClusterId, Decode, Errno, FenceEpoch, Incarnation, NodeId, Role, ServiceKind};
use skep_wire::instrument::{Measure, MeasureReply};
use skep_wire::{Header, Hello, Message, Refusal, Status, VERSION_MAX, Welcome};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Port of an agent, taken when an address names none.
pub const AGENT_PORT: u16 = 7750;
/// Connections at once: two of a coordinator, and some that measure the network.
const CONNECTIONS_MAX: usize = 64;
/// Worker processes of an agent unless told otherwise.
const PROCESSES: u32 = 512;

/// What `skep bench agent` takes.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Where to listen [default: 0.0.0.0:7750; with --insecure 127.0.0.1:7750]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Listen on this Unix socket as well
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Let jobs work below this directory (several times: several); without it no job is accepted
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Key file: that of the cluster, or of its clients [default: that of SKEP_CLUSTER, /etc/skep/cluster.key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Without a key: whoever reaches the port may run jobs
    #[arg(long)]
    insecure: bool,
    /// Most worker processes of a run
    #[arg(long, value_name = "N", default_value_t = PROCESSES)]
    processes_max: u32,
    /// Most memory of a run's worker processes [default: half of this machine's]
    #[arg(long, value_name = "SIZE", value_parser = skep_bench::job::parse_size)]
    memory_max: Option<u64>,
}

impl AgentArgs {
    /// Without a key only this machine's own users reach it, unless they are told otherwise.
    fn listen(&self) -> SocketAddr {
        let everywhere = if self.insecure { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        self.listen.unwrap_or(SocketAddr::new(IpAddr::V4(everywhere), AGENT_PORT))
    }
}

/// Serves until it is told to stop.
pub fn run(args: &AgentArgs) -> ExitCode {
    skep_base::log::init("bench-agent", skep_base::log::Level::Info);
    daemon::die_on_panic();
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            error!("{text}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn serve(args: &AgentArgs) -> Result<(), String> {
    let keyring = Arc::new(if args.insecure {
        skep_base::warning!(
            "running without a key: whoever reaches this agent may run jobs below what it allows"
        );
        Keyring::insecure()
    } else {
        let key = args.key.clone().map_or_else(default_key, Ok).map_err(|e| e.to_string())?;
        Keyring::from_file(&key).map_err(|e| format!("{e}\nname the key by --key"))?
    });
    let allowed = Allowed::new(&args.allow)?;
    if args.allow.is_empty() {
        skep_base::warning!("no --allow: no job is accepted, only questions about the machine");
    }
    let stop = Stop::on_signals().map_err(|e| format!("signals: {e}"))?;
    daemon::raise_open_files().map_err(|e| format!("open-file limit: {e}"))?;
    let (listeners, addresses) = listen::open(&[args.listen()], args.unix.as_deref(), &[])?;
    let places: Vec<_> = addresses.iter().map(|address| address.text.clone()).collect();
    let host = worker::host_name();
    let instruments = Instruments::new(Host {
        service: ServiceKind::Storaged,
        name: "agent",
        alias: host.clone(),
        node: NodeId(0),
        cluster: ClusterId::default(),
        addresses,
        keyring: keyring.clone(),
        targets: Vec::new(),
        log: None,
    });
    let budget = Budget::new(args.processes_max, args.memory_max);
    let agent = Agent { host, allowed, budget, instruments, run: Mutex::default() };
    let limits = StreamLimits { connections: CONNECTIONS_MAX, ..StreamLimits::default() };
    let server = StreamServer::new(listeners, (*keyring).clone(), limits, daemon::net_log());
    let server = server.map_err(|e| format!("server: {e}"))?;
    let handle = server.stop_handle();
    let waiter = stop.clone();
    let watch = std::thread::spawn(move || {
        while !waiter.wait(Duration::from_secs(3_600)) {}
        handle.stop();
    });
    Readiness::new("bench-agent").ready(&format!("listens at {}", places.join(", ")));
    let ended = server.run(&agent).map_err(|e| format!("server: {e}"));
    stop.set();
    agent.instruments.end();
    agent.end();
    if watch.join().is_err() {
        return Err("a thread ended badly".to_owned());
    }
    ended
}

/// The agent between its connections.
struct Agent {
    host: String,
    allowed: Allowed,
    budget: Budget,
    instruments: Arc<Instruments>,
    run: Mutex<Option<Run>>,
}

fn refused(errno: Errno, text: impl Into<String>) -> Refusal {
    Refusal::with(Status::errno(errno), text)
}

impl Agent {
    fn answer(&self, question: AgentQuestion) -> Result<AgentAnswer, Refusal> {
        match question {
            AgentQuestion::Hello => Ok(AgentAnswer::Hello {
                host: self.host.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                processes_max: self.budget.processes,
            }),
            AgentQuestion::Clock => Ok(AgentAnswer::Clock { now_ns: now_ns() }),
            AgentQuestion::Begin { run, job, processes } => self.begin(run, *job, processes),
            AgentQuestion::Orders { run, number, orders } => {
                let order = |run: &mut Run| run.order(number, orders);
                self.with(run, order)?.map_err(|text| refused(Errno::EINVAL, text))?;
                Ok(AgentAnswer::Done)
            }
            AgentQuestion::Reports { run, from } => {
                let outlet = self.with(run, |run| run.outlet())?;
                outlet
                    .read(from)
                    .map(|text| AgentAnswer::Reports { text })
                    .map_err(|text| refused(Errno::EINVAL, text))
            }
            AgentQuestion::End { run } => {
                // Asked twice, it is over already.
                if self.with(run, |_| ()).is_ok() {
                    self.end();
                }
                Ok(AgentAnswer::Done)
            }
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Run>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: u64, use_it: impl FnOnce(&mut Run) -> T) -> Result<T, Refusal> {
        match self.slot().as_mut().filter(|run| run.id == id) {
            Some(run) => Ok(use_it(run)),
            None => Err(refused(
                Errno::ENOENT,
                "this run is not known here (any more): the agent was started anew, or heard nothing of its coordinator for too long",
            )),
        }
    }

    /// Ends the run there is, if any.
    fn end(&self) {
        // Not under the lock: others are told meanwhile that nothing runs.
        let run = self.slot().take();
        if let Some(mut run) = run {
            run.end();
        }
    }

    fn begin(&self, id: u64, job: Job, processes: Vec<u32>) -> Result<AgentAnswer, Refusal> {
        let mut slot = self.slot();
        match slot.as_ref() {
            Some(run) if run.id == id => return Ok(AgentAnswer::Done),
            Some(run) if !run.is_over() => {
                let text = "another run is going on at this agent: wait for its end, or stop its coordinator";
                return Err(refused(Errno::EBUSY, text));
            }
            _ => {}
        }
        job.check().map_err(|e| refused(Errno::EINVAL, e.to_string()))?;
        let job = self.allowed.settle(job)?;
        let count = self.budget.check(&job, &processes).map_err(|text| refused(Errno::EINVAL, text))?;
        let crew = worker::crew(count).map_err(|e| refused(Errno::EAGAIN, e.to_string()))?;
        let run = Run::start(id, job, processes, crew).map_err(|text| refused(Errno::EAGAIN, text))?;
        info!("run {id:016x} with {count} processes");
        *slot = Some(run);
        Ok(AgentAnswer::Done)
    }

    fn measure(&self, body: &[u8]) -> Result<Option<MeasureReply>, Refusal> {
        let malformed = |text: String| Refusal::with(Status::MALFORMED, text);
        let m = Measure::from_bytes(body).map_err(|e| malformed(e.to_string()))?;
        if !m.question.starts_with(b"{\"agent\":") {
            return Ok(None);
        }
        if m.question.len() > QUESTION_MAX {
            return Err(malformed(format!("a question has at most {QUESTION_MAX} bytes")));
        }
        let question: ToAgent = serde_json::from_slice(&m.question).map_err(|e| {
            malformed(format!("the question cannot be understood ({e}): do both sides run the same release?"))
        })?;
        let answer = self.answer(question.agent)?;
        let answer = serde_json::to_vec(&answer).map_err(|e| malformed(format!("the answer: {e}")))?;
        Ok(Some(MeasureReply { answer }))
    }
}

impl Handler for Agent {
    /// Clients and administrators; the key has proven the role. There are no sessions here.
    fn hello(&self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(Welcome {
            version: VERSION_MAX.min(hello.version_max),
            features: 0,
            service: ServiceKind::Storaged,
            node: NodeId(0),
            incarnation: Incarnation(0),
            cluster: hello.cluster,
            epoch: FenceEpoch(0),
        })
    }

    fn handle(&self, peer: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        if header.kind == Measure::KIND && matches!(peer.hello.role, Role::Client | Role::Admin) {
            match self.measure(body) {
                Ok(Some(reply)) => return Answer::done(&reply),
                Ok(None) => {}
                Err(refusal) => return Answer::refused(&refusal),
            }
        }
        if is_instrument(header.kind) {
            return self.instruments.stream_answer(peer, header, body, payload);
        }
        Answer::refused(&Refusal::with(
            Status::MALFORMED,
            "this is a bench agent: it answers measurements only",
        ))
    }

    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AgentArgs,
    }

    /// Goal: without a key an agent is reached from its own machine only, unless it is told otherwise.
    #[test]
    fn where_it_listens() {
        let at = |words: &[&str]| Line::parse_from(words.iter().copied()).args.listen().to_string();
        assert_eq!(at(&["agent"]), "0.0.0.0:7750");
        assert_eq!(at(&["agent", "--insecure"]), "127.0.0.1:7750");
        assert_eq!(at(&["agent", "--insecure", "--listen", "10.0.0.1:99"]), "10.0.0.1:99");
    }
}
