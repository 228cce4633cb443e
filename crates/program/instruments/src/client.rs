//! The side that asks: commands, the survey.

use super::question::{
    Findings, JobShown, JobState, ListenTest, Measurement, NetworkFound, NetworkTest, Order, Question, Reply,
    SetFound,
};
use skep_base::access::{Cluster, NodeLink};
use skep_base::{Failure, Outcome};
use skep_bench::engine::now_ns;
use skep_net::{Endpoint, choose};
use skep_types::ServiceKind;
use skep_wire::instrument::Measure;
use skep_wire::mgmt::{Address, NodeEntry};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

/// Between two looks at a job, at first; doubled each time.
const LOOK_FIRST: Duration = Duration::from_millis(2);
/// ... up to this.
const LOOK_LAST: Duration = Duration::from_millis(100);
/// A slow network takes this much longer than asked, for what is on its way.
const NETWORK_SLACK: Duration = Duration::from_secs(150);
/// A daemon that has been asked to listen does so within this time.
const LISTEN_LIMIT: Duration = Duration::from_secs(5);

/// A measurement whose command was killed ends after this time, and its files go.
pub const LEASE: Duration = Duration::from_secs(15);
/// How often an ended measurement is asked for while others go on.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// A measurement that was told to stop ends with the block that is on its way and a sync of what was written; a disk
/// that needs longer for that hangs, or is far behind.
pub const END_LIMIT: Duration = Duration::from_secs(60);

/// The command shall end: whoever waits for a measurement stops it. (Removing files goes on.)
pub static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The set in which measurements of this process have their files.
pub fn own_set() -> String {
    static SET: LazyLock<String> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        format!("{}-{:x}", std::process::id(), since.as_nanos())
    });
    SET.clone()
}

/// Who this is, for others.
fn whoami() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user = std::env::var("USER").unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    let words: Vec<String> =
        std::env::args().skip(1).take_while(|word| !word.starts_with('-')).take(3).collect();
    format!("{user} on {host} (process {}, skep {})", std::process::id(), words.join(" "))
}

impl Order {
    /// Goes on by itself when this process has ended.
    pub fn alone(what: Measurement) -> Self {
        Self { what, by: whoami(), lease_ms: 0, keep: true }
    }

    /// Ends, and its files go, when this process is killed.
    pub fn leased(what: Measurement) -> Self {
        Self { what, by: whoami(), lease_ms: LEASE.as_millis() as u64, keep: false }
    }
}

fn put(link: &mut NodeLink, question: &Question) -> Outcome<Reply> {
    let question = serde_json::to_vec(question).map_err(|e| Failure::new(format!("question: {e}")))?;
    let reply = link.ask(&Measure { question })?;
    serde_json::from_slice(&reply.answer).map_err(|e| {
        Failure::new(format!("the answer cannot be understood ({e}); do both sides run the same release?"))
    })
}

fn one(reply: Reply) -> Outcome<JobShown> {
    match reply {
        Reply::Job(job) => Ok(*job),
        _ => Err(Failure::new("something else came instead of a job".to_owned())),
    }
}

/// Clocks are compared so many times; the quickest answer counts.
const CLOCK_ROUNDS: u32 = 8;

/// A node's monotonic clock beside ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    /// Its clock minus ours.
    pub offset_ns: i64,
    /// Half of the quickest round trip: no better can be told.
    pub error_ns: u64,
}

impl Clock {
    /// Its clock was read at some moment between two of ours: at the middle, give or take half.
    fn compared(before: u64, theirs: u64, after: u64) -> Self {
        let trip = after.saturating_sub(before);
        let middle = before + trip / 2;
        Self { offset_ns: theirs.wrapping_sub(middle).cast_signed(), error_ns: trip.div_ceil(2) }
    }

    /// A moment of our clock, by its clock.
    pub fn there(&self, ours: u64) -> u64 {
        ours.saturating_add_signed(self.offset_ns)
    }

    /// A moment of its clock, by ours.
    pub fn here(&self, theirs: u64) -> u64 {
        theirs.saturating_add_signed(self.offset_ns.saturating_neg())
    }
}

/// A node that is asked several times, over one connection.
pub struct Asked(NodeLink);

impl Asked {
    /// This node.
    pub fn new(cluster: &Cluster, node: &NodeEntry) -> Self {
        Self(cluster.node(node))
    }

    pub fn start(&mut self, order: Order) -> Outcome<JobShown> {
        one(put(&mut self.0, &Question::Start(order))?)
    }

    /// How a job stands.
    pub fn status(&mut self, job: u64) -> Outcome<JobShown> {
        one(put(&mut self.0, &Question::Status(job))?)
    }

    /// Stops a job.
    pub fn stop(&mut self, job: u64) -> Outcome<JobShown> {
        one(put(&mut self.0, &Question::Stop(job))?)
    }

    /// A held job begins at this moment of its clock.
    pub fn go(&mut self, job: u64, at_ns: u64) -> Outcome<JobShown> {
        one(put(&mut self.0, &Question::Go { job, at_ns })?)
    }

    /// All its jobs, the newest last.
    pub fn jobs(&mut self) -> Outcome<Vec<JobShown>> {
        match put(&mut self.0, &Question::Jobs)? {
            Reply::Jobs(jobs) => Ok(jobs),
            _ => Err(Failure::new("something else came instead of a list of jobs".to_owned())),
        }
    }

    /// Compares its clock with ours.
    pub fn clock(&mut self) -> Outcome<Clock> {
        let mut best: Option<Clock> = None;
        for _ in 0..CLOCK_ROUNDS {
            let before = now_ns();
            let Reply::Clock(theirs) = put(&mut self.0, &Question::Clock)? else {
                return Err(Failure::new("something else came instead of a clock".to_owned()));
            };
            let clock = Clock::compared(before, theirs, now_ns());
            best = best.filter(|known| known.error_ns <= clock.error_ns).or(Some(clock));
        }
        Ok(best.unwrap_or_default())
    }
}

/// Measures at a node and waits for what it finds, at most `limit`; then the job is stopped, and that is an error.
pub fn ask(cluster: &Cluster, node: &NodeEntry, what: &Measurement, limit: Duration) -> Outcome<Findings> {
    ask_by(cluster.node(node), node, what, limit)
}

/// [`ask`] by a connection that is there already.
pub fn ask_by(
    mut link: NodeLink,
    node: &NodeEntry,
    what: &Measurement,
    limit: Duration,
) -> Outcome<Findings> {
    wait(&mut link, node, what, limit).map(|(_, found)| found)
}

/// [`ask`] at many nodes at once; the answers in the order of the questions.
pub fn ask_all(
    cluster: &Cluster,
    questions: &[(&NodeEntry, Measurement)],
    limit: Duration,
) -> Vec<Outcome<Findings>> {
    let links: Vec<NodeLink> = questions.iter().map(|(node, _)| cluster.node(node)).collect();
    let left = AtomicUsize::new(links.len());
    std::thread::scope(|scope| {
        let asked: Vec<_> = links
            .into_iter()
            .zip(questions)
            .map(|(mut link, (node, what))| {
                let left = &left;
                scope.spawn(move || {
                    let answer = wait(&mut link, node, what, limit);
                    left.fetch_sub(1, Relaxed);
                    let (job, found) = answer?;
                    // What was written is wanted until the last one has ended.
                    let mut renewed = Instant::now();
                    while left.load(Relaxed) > 0 {
                        std::thread::sleep(LOOK_FIRST);
                        if renewed.elapsed() >= RENEW_EVERY {
                            put(&mut link, &Question::Status(job))?;
                            renewed = Instant::now();
                        }
                    }
                    Ok(found)
                })
            })
            .collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Outcome<Findings>>| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("a thread ended badly".to_owned())))
        };
        asked.into_iter().map(ended).collect()
    })
}

/// Stops a job and waits until it has ended, for so long at most: before that its daemon refuses the next measurement,
/// and its files cannot be removed. Has it ended?
fn ended(job: u64, limit: Duration, mut ask: impl FnMut(&Question) -> Outcome<JobShown>) -> Outcome<bool> {
    let until = Instant::now() + limit;
    let mut state = ask(&Question::Stop(job))?.state;
    while state == JobState::Running && Instant::now() < until {
        std::thread::sleep(LOOK_FIRST);
        state = ask(&Question::Status(job))?.state;
    }
    Ok(state != JobState::Running)
}

/// Waits for a job; its number, and what it found.
fn wait(
    link: &mut NodeLink,
    node: &NodeEntry,
    what: &Measurement,
    limit: Duration,
) -> Outcome<(u64, Findings)> {
    let interrupted = || INTERRUPTED.load(Relaxed) && !matches!(what, Measurement::Cleanup { .. });
    if interrupted() {
        return Err(Failure::new("interrupted"));
    }
    let until = Instant::now() + limit;
    let mut job = one(put(link, &Question::Start(Order::leased(what.clone())))?)?;
    let mut pause = LOOK_FIRST;
    while job.state == JobState::Running {
        if Instant::now() >= until {
            let fate = match ended(job.job, END_LIMIT, |question| one(put(link, question)?))? {
                true => String::new(),
                false => format!(", and has not ended {} s after it was told to stop", END_LIMIT.as_secs()),
            };
            let (alias, what, limit) = (&node.alias, what.name(), limit.as_secs());
            return Err(Failure::new(format!("{alias}: {what} was not done within {limit} s{fate}")));
        }
        if interrupted() {
            ended(job.job, END_LIMIT, |question| one(put(link, question)?))?;
            return Err(Failure::new("interrupted"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK_LAST);
        job = one(put(link, &Question::Status(job.job))?)?;
    }
    let number = job.job;
    found(&node.alias, job).map(|found| (number, found))
}

/// What an ended job found.
pub fn found(alias: &str, job: JobShown) -> Outcome<Findings> {
    match (job.findings, job.error) {
        (_, Some(error)) => Err(Failure::new(format!("{alias}: {error}"))),
        (Some(findings), None) => Ok(findings),
        (None, None) => Err(Failure::new(format!("{alias}: {} found nothing", job.what.name()))),
    }
}

/// Over which kind of socket the network is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// As requests go: a Unix socket on the same machine, else TCP
    #[default]
    Auto,
    /// TCP, also on the same machine
    Tcp,
}

/// Measures from one node to another. What cannot serve payloads listens for it, for the time being.
pub fn network(
    cluster: &Cluster,
    from: &NodeEntry,
    to: &NodeEntry,
    test: &NetworkTest,
    transport: Transport,
) -> Outcome<NetworkFound> {
    let limit = Duration::from_secs_f64(2.0 * test.seconds.clamp(0.0, 3_600.0)) + NETWORK_SLACK;
    let measured = |addresses: &[Address]| {
        let mut endpoints = choose(addresses, to.machine, from.machine);
        endpoints.retain(|endpoint| transport == Transport::Auto || !endpoint.is_unix());
        let endpoints = endpoints.iter().map(Endpoint::to_string).collect();
        let what = Measurement::Network(NetworkTest { endpoints, ..test.clone() });
        match ask(cluster, from, &what, limit)? {
            Findings::Network(found) => Ok(found),
            _ => Err(Failure::new(format!("{}: the answer is to another question", from.alias))),
        }
    };
    if to.service == ServiceKind::Storaged || !test.bandwidth {
        return measured(&to.addresses);
    }
    // The latency through the loop that serves requests; payloads to a server of their own.
    let latency = match test.pings {
        0 => None,
        _ => {
            let what = NetworkTest { bandwidth: false, ..test.clone() };
            network(cluster, from, to, &what, transport)?.latency
        }
    };
    let mut link = cluster.node(to);
    // What is shown is where the daemon itself is, not the socket that is made for the measurement.
    let mut own = choose(&to.addresses, to.machine, from.machine);
    own.retain(|endpoint| transport == Transport::Auto || !endpoint.is_unix());
    let listening = ListenTest { seconds: limit.as_secs_f64() };
    let job = one(put(&mut link, &Question::Start(Order::alone(Measurement::Listen(listening))))?)?;
    let result = listened(&mut link, to, job.job).and_then(|addresses| {
        let test = NetworkTest { pings: 0, ..test.clone() };
        let endpoints = choose(&addresses, to.machine, from.machine);
        let endpoints = endpoints.iter().filter(|one| transport == Transport::Auto || !one.is_unix());
        let endpoints = endpoints.map(Endpoint::to_string).collect();
        match ask(cluster, from, &Measurement::Network(NetworkTest { endpoints, ..test }), limit)? {
            Findings::Network(found) => {
                let unix = found.peer.starts_with("unix:");
                let daemon = own.iter().find(|own| own.is_unix() == unix).map(Endpoint::to_string);
                Ok(NetworkFound { latency, peer: daemon.unwrap_or(found.peer), ..found })
            }
            _ => Err(Failure::new(format!("{}: the answer is to another question", from.alias))),
        }
    });
    // It ends by itself when this does not reach it.
    let _ = put(&mut link, &Question::Stop(job.job));
    result
}

/// Measures from this process to a storage daemon, as a mount would reach it.
pub fn network_from_here(cluster: &Cluster, to: &NodeEntry, test: &NetworkTest) -> Outcome<NetworkFound> {
    let endpoints = choose(&to.addresses, to.machine, skep_net::machine_id());
    let test = NetworkTest { endpoints: endpoints.iter().map(Endpoint::to_string).collect(), ..test.clone() };
    match super::network::measure(&test, cluster.keyring(), &super::jobs::Control::default()) {
        Ok(Findings::Network(found)) => Ok(found),
        Ok(_) => Err(Failure::new("the answer is to another question")),
        Err(why) => Err(Failure::new(format!("to {}: {why}", to.alias))),
    }
}

/// Where a job listens.
fn listened(link: &mut NodeLink, node: &NodeEntry, job: u64) -> Outcome<Vec<Address>> {
    let until = Instant::now() + LISTEN_LIMIT;
    loop {
        let job = one(put(link, &Question::Status(job))?)?;
        if let (JobState::Running, Some(Findings::Listen(found))) = (job.state, &job.findings) {
            let address = |(text, nic, preference): &(String, String, u16)| Address {
                text: text.clone(),
                nic: nic.clone(),
                preference: *preference,
            };
            return Ok(found.addresses.iter().map(address).collect());
        }
        if job.state != JobState::Running || Instant::now() >= until {
            found(&node.alias, job)?;
            return Err(Failure::new(format!("{} does not listen for the measurement", node.alias)));
        }
        std::thread::sleep(LOOK_FIRST);
    }
}

/// Files of measurements on the targets of a daemon.
pub fn sets(link: NodeLink, node: &NodeEntry, limit: Duration) -> Outcome<Vec<SetFound>> {
    match ask_by(link, node, &Measurement::Sets, limit)? {
        Findings::Sets(sets) => Ok(sets),
        _ => Err(Failure::new(format!("{}: the answer is to another question", node.alias))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a job that is told to stop is waited for until it has ended, but not for ever; who does not answer is told.
    #[test]
    fn stopped_jobs_are_waited_for() {
        // A job that ends after so many looks.
        let told = |looks: u32, limit: Duration| {
            let mut asked = Vec::new();
            let ended = ended(7, limit, |question| {
                asked.push(matches!(question, Question::Stop(7)));
                let state = if asked.len() as u32 > looks { JobState::Stopped } else { JobState::Running };
                let what = Measurement::Facts;
                let (by, findings, error) = (String::new(), None, None);
                Ok(JobShown { job: 7, what, by, state, seconds: 0.0, findings, error })
            });
            (ended.unwrap(), asked)
        };
        let long = Duration::from_secs(600);
        assert_eq!(told(0, long), (true, vec![true]));
        assert_eq!(told(3, long), (true, vec![true, false, false, false]));
        assert!(!told(u32::MAX, LOOK_FIRST * 5).0);
        assert_eq!(ended(7, long, |_| Err(Failure::new("gone"))), Err(Failure::new("gone")));
    }

    /// Goal: a moment is the same moment by either clock, whichever is ahead, and the quickest look tells how well.
    #[test]
    fn clocks() {
        for (before, theirs, after, offset) in [(1_000, 5_050, 1_100, 4_000), (5_000, 1_050, 5_100, -4_000)] {
            let clock = Clock::compared(before, theirs, after);
            assert_eq!(clock, Clock { offset_ns: offset, error_ns: 50 });
            assert_eq!(
                (clock.there(9_000), clock.here(clock.there(9_000))),
                ((9_000 + offset) as u64, 9_000)
            );
        }
    }
}
