//! Worker processes on several hosts: a [`Crew`] whose members are run by agents.

mod link;

use super::agent::AGENT_PORT;
use super::agent::question::{AgentAnswer, AgentQuestion, Relayed};
use super::worker;
use clap::Args;
use link::{AgentLink, CLOCK_ROUNDS, Clock, Speaker};
use skep_base::access::default_key;
use skep_bench::dialect::host_file;
use skep_bench::engine::{Crew, CrewError, Member, Order, Report};
use skep_bench::job::Job;
use skep_net::{Endpoint, Keyring};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// Most hosts of a run.
const HOSTS_MAX: usize = 4_096;
/// Orders are on their way to the last process within this time and a few round trips.
const LEAD: Duration = Duration::from_millis(25);
/// ... and a little more per process.
const LEAD_EACH: Duration = Duration::from_micros(50);
/// Round trips that an order may take.
const ROUND_TRIPS: u32 = 4;

/// Flags that say where workers run.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Where workers run")]
pub struct HostsArgs {
    /// Agents (`skep bench agent`), separated by commas: host, host:port, unix:PATH [default: this machine]
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub hosts: Vec<String>,
    /// File with an agent in each line
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub host_file: Option<PathBuf>,
    /// Key of the agents [default: that of SKEP_CLUSTER, /etc/skep/cluster.key]
    #[arg(long = "agent-key", id = "agent_key", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The agents run without a key
    #[arg(long = "agents-insecure", id = "agents_insecure")]
    pub insecure: bool,
}

impl HostsArgs {
    /// The agents that are named, none: this machine.
    pub fn names(&self) -> Result<Vec<String>, String> {
        let mut names = self.hosts.clone();
        if let Some(path) = &self.host_file {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let hosts = host_file(&text).map_err(|why| format!("{}: {why}", path.display()))?;
            names = hosts.into_iter().map(|slots| slots.host).collect();
            if names.is_empty() {
                return Err(format!("{}: it names no host", path.display()));
            }
        }
        let mut known = std::collections::BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !known.insert(name.as_str())) {
            return Err(format!("{twice} is named twice"));
        }
        if names.len() > HOSTS_MAX {
            return Err(format!("more than {HOSTS_MAX} hosts are named"));
        }
        Ok(names)
    }

    /// Processes that each host takes, where the host file says so; empty: it does not.
    pub fn slots(&self) -> Result<Vec<u32>, String> {
        let Some(path) = &self.host_file else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let hosts = host_file(&text).map_err(|why| format!("{}: {why}", path.display()))?;
        let slots: Vec<u32> = hosts.into_iter().map(|slots| slots.slots).collect();
        // A plain list of hosts gives each of them one.
        Ok(if slots.iter().all(|slots| *slots == 1) { Vec::new() } else { slots })
    }

    /// The key with which agents are reached.
    pub fn keyring(&self) -> Result<Keyring, String> {
        if self.insecure {
            return Ok(Keyring::insecure());
        }
        let key = self.key.clone().map_or_else(default_key, Ok).map_err(|e| e.to_string())?;
        Keyring::from_file(&key).map_err(|e| format!("{e}\nname the agents' key by --agent-key"))
    }

    /// The processes of a job: on the named hosts, or here.
    pub fn crew(&self, job: &Job) -> Result<Box<dyn Crew>, String> {
        let names = self.names()?;
        if names.is_empty() {
            let crew = worker::crew(job.workers.processes);
            return Ok(Box::new(crew.map_err(|e| e.to_string())?));
        }
        let crew = RemoteCrew::gather(&names, &Arc::new(self.keyring()?), job).map_err(|e| e.to_string())?;
        Ok(Box::new(crew))
    }
}

/// One host of the crew.
struct Host {
    name: String,
    /// Members here, in the order in which the agent knows them.
    members: Vec<usize>,
    orders: Option<Sender<(usize, Relayed)>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    clock: Clock,
    read: Instant,
    clocks: Option<Receiver<Clock>>,
}

/// Processes that agents run.
pub struct RemoteCrew {
    members: Vec<Member>,
    /// Host and place there of each member.
    places: Vec<(usize, usize)>,
    hosts: Vec<Host>,
    reports: Receiver<(usize, Report)>,
    lead: Duration,
}

impl RemoteCrew {
    /// Reaches every agent, compares clocks, and has it start its processes.
    fn gather(names: &[String], keyring: &Arc<Keyring>, job: &Job) -> Result<Self, CrewError> {
        // Errors of connections name the address themselves.
        let wrong = |name: &str, why: String| match why.starts_with(name) {
            true => CrewError(format!("agent {why}")),
            false => CrewError(format!("agent {name}: {why}")),
        };
        let run = draw().map_err(CrewError)?;
        let count = names.len() as u32;
        slots_fit(job, names.len()).map_err(CrewError)?;
        let processes = job.workers.processes;
        let places = job.hosts_of(count);
        enough(count, job).map_err(CrewError)?;
        if let Some(idle) = idle(names, &places) {
            eprintln!("skep: {idle}");
        }
        // All at once: a cluster of a thousand hosts is not asked one by one.
        let greeted: Vec<Result<(AgentLink, Clock), CrewError>> = std::thread::scope(|scope| {
            let asked: Vec<_> = names
                .iter()
                .map(|name| {
                    scope.spawn(move || {
                        let endpoint = Endpoint::with_default_port(name, AGENT_PORT);
                        let endpoint = endpoint.map_err(|e| wrong(name, e.to_string()))?;
                        let mut link = AgentLink::new(keyring.clone(), endpoint);
                        let clock = greet(&mut link).map_err(|why| wrong(name, why))?;
                        Ok((link, clock))
                    })
                })
                .collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(CrewError("a thread ended badly".to_owned())))
            };
            asked.into_iter().map(ended).collect()
        });
        let (sender, reports) = mpsc::channel();
        let mut crew =
            Self { members: Vec::new(), places: Vec::new(), hosts: Vec::new(), reports, lead: LEAD };
        let mut links = Vec::new();
        for (name, greeted) in names.iter().zip(greeted) {
            let (link, clock) = greeted?;
            crew.lead = crew.lead.max(LEAD + clock.round_trip * ROUND_TRIPS);
            links.push(link);
            crew.hosts.push(Host {
                name: name.clone(),
                members: Vec::new(),
                orders: None,
                threads: Vec::new(),
                clock,
                read: Instant::now(),
                clocks: None,
            });
        }
        crew.lead += LEAD_EACH * processes;
        for process in 0..processes {
            let at = places.get(process as usize).map_or(0, |host| *host as usize);
            let host = &mut crew.hosts[at];
            crew.places.push((at, host.members.len()));
            host.members.push(process as usize);
            crew.members.push(Member {
                host: host.name.clone(),
                clock_offset_ns: host.clock.offset_ns,
                clock_error_ns: host.clock.error_ns,
            });
        }
        for (host, link) in crew.hosts.iter_mut().zip(links).filter(|(host, _)| !host.members.is_empty()) {
            host.begin(run, link, job, &sender).map_err(|why| wrong(&host.name, why))?;
        }
        Ok(crew)
    }
}

/// Names the hosts that no process goes to.
fn idle(names: &[String], places: &[u32]) -> Option<String> {
    let idle = |at: usize| !places.contains(&(at as u32));
    let idle: Vec<&str> =
        names.iter().enumerate().filter(|(at, _)| idle(*at)).map(|(_, name)| name.as_str()).collect();
    (!idle.is_empty()).then(|| {
        format!(
            "no process runs on {}: {} processes fill the slots of the others; place them by node to use all hosts",
            idle.join(", "),
            places.len()
        )
    })
}

/// Processes are counted over all hosts; each host gets one at least, unless slots say otherwise.
fn enough(hosts: u32, job: &Job) -> Result<(), String> {
    let processes = job.workers.processes;
    if processes >= hosts || !job.slots.is_empty() {
        return Ok(());
    }
    let noun = if processes == 1 { "process" } else { "processes" };
    Err(format!(
        "{hosts} hosts for {processes} {noun} in all: ask for {hosts} processes or more, or name fewer hosts"
    ))
}

/// A job says how many processes each host takes, or does not say it of any.
fn slots_fit(job: &Job, hosts: usize) -> Result<(), String> {
    let slots = job.slots.len();
    if slots == 0 || slots == hosts {
        return Ok(());
    }
    Err(format!(
        "the job has slots for {slots} hosts, but {hosts} are named: name as many hosts, or leave `slots` out of the job"
    ))
}

/// A number that no other run has.
pub fn draw() -> Result<u64, String> {
    let mut raw = [0; 8];
    getrandom::fill(&mut raw).map_err(|e| format!("the kernel's random source: {e}"))?;
    Ok(u64::from_le_bytes(raw))
}

fn greet(link: &mut AgentLink) -> Result<Clock, String> {
    match link.ask(&AgentQuestion::Hello)? {
        AgentAnswer::Hello { version, .. } if version == env!("CARGO_PKG_VERSION") => {
            link.clock(CLOCK_ROUNDS)
        }
        AgentAnswer::Hello { version, host, .. } => Err(format!(
            "{host} runs release {version}, this is {}: install the same on all hosts",
            env!("CARGO_PKG_VERSION")
        )),
        _ => Err("the answer is to another question".to_owned()),
    }
}

impl Host {
    fn begin(
        &mut self,
        run: u64,
        mut link: AgentLink,
        job: &Job,
        reports: &Sender<(usize, Report)>,
    ) -> Result<(), String> {
        let processes = self.members.iter().map(|member| *member as u32).collect();
        link.ask(&AgentQuestion::Begin { run, job: Box::new(job.clone()), processes })?;
        let (orders, inbox) = mpsc::channel();
        self.orders = Some(orders);
        let (clocks, newer) = mpsc::channel();
        self.clocks = Some(newer);
        let speaker = Speaker::new(run, self.members.clone(), reports.clone(), clocks);
        let ears = link.another();
        let listener = speaker.clone();
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let failed = |e: std::io::Error| format!("no thread: {e}");
        self.threads.push(named("agent-orders").spawn(move || speaker.speak(link, inbox)).map_err(failed)?);
        self.threads.push(named("agent-reports").spawn(move || listener.listen(ears)).map_err(failed)?);
        Ok(())
    }
}

impl RemoteCrew {
    /// Takes newer readings of the hosts' clocks over.
    fn set_clocks(&mut self) {
        for host in &mut self.hosts {
            let Some(newer) = host.clocks.as_ref().and_then(|clocks| clocks.try_iter().last()) else {
                continue;
            };
            if host.clock.is_bettered_by(&newer, host.read.elapsed()) {
                (host.clock, host.read) = (newer, Instant::now());
                for member in &host.members {
                    self.members[*member].clock_offset_ns = newer.offset_ns;
                    self.members[*member].clock_error_ns = newer.error_ns;
                }
            }
        }
    }
}

impl Crew for RemoteCrew {
    fn members(&self) -> &[Member] {
        &self.members
    }

    fn send(&mut self, member: usize, order: &Order) -> Result<(), CrewError> {
        let Some((host, place)) = self.places.get(member).copied() else { return Ok(()) };
        let relayed = match order {
            Order::Start(start) => Relayed::Start {
                hosts: start.hosts,
                host_processes: start.host_processes,
                first_on_host: start.first_on_host,
                progress_ms: start.progress_ms,
            },
            other => Relayed::Order(other.clone()),
        };
        if let Some(orders) = &self.hosts[host].orders {
            // A host that is gone has said so in the reports.
            let _ = orders.send((place, relayed));
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Report)>, CrewError> {
        self.set_clocks();
        Ok(self.reports.recv_timeout(wait).ok())
    }

    fn lead(&self) -> Duration {
        self.lead
    }

    fn end(&mut self) {
        // Without orders to come each speaker ends its run, all at the same time.
        self.hosts.iter_mut().for_each(|host| host.orders = None);
        for thread in self.hosts.iter_mut().flat_map(|host| host.threads.drain(..)) {
            // A panic ends the process anyway.
            let _ = thread.join();
        }
    }
}

impl Drop for RemoteCrew {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a host that gets no process is named.
    #[test]
    fn idle_hosts() {
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert!(idle(&names, &[0, 0, 1]).unwrap().contains("runs on c"));
        assert_eq!(idle(&names, &[0, 1, 2]), None);
    }

    /// Goal: fewer processes than hosts are one error, which says that they are counted over all hosts; with slots some
    /// hosts may stay idle.
    #[test]
    fn too_few_processes() {
        let mut job = Job::new(skep_bench::job::Work::Io(skep_bench::job::IoJob::new("/tmp")));
        let names = ["unix:/nonexistent/a".to_owned(), "unix:/nonexistent/b".to_owned()];
        let error = RemoteCrew::gather(&names, &Arc::new(Keyring::insecure()), &job).map(|_| ()).unwrap_err();
        assert!(error.0.starts_with("2 hosts for 1 process in all: ask for 2 processes"), "{error}");
        assert!(!error.0.contains('\n'), "{error}");
        job.slots = vec![1, 3];
        enough(2, &job).unwrap();
        (job.slots, job.workers.processes) = (Vec::new(), 2);
        enough(2, &job).unwrap();
    }

    /// Goal: a job whose slots are of another number of hosts is refused in words, before anybody is called.
    #[test]
    fn slots_of_other_hosts() {
        let mut job = Job::new(skep_bench::job::Work::Io(skep_bench::job::IoJob::new("/tmp")));
        job.workers.processes = 4;
        job.slots = vec![1, 1, 2];
        let names = ["unix:/nonexistent/a".to_owned(), "unix:/nonexistent/b".to_owned()];
        let gathered = |job: &Job| RemoteCrew::gather(&names, &Arc::new(Keyring::insecure()), job);
        let error = gathered(&job).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("slots for 3 hosts, but 2 are named"), "{error}");
        job.slots = vec![1, 3];
        let error = gathered(&job).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/a"), "{error}");
    }

    /// Goal: hosts come from the flag or a file, twice named is a mistake, none means this machine.
    #[test]
    fn names() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, "a slots=4\nb:7751 # the fast one\n").unwrap();
        let of_file = HostsArgs { host_file: Some(file.clone()), ..HostsArgs::default() };
        assert_eq!(of_file.names().unwrap(), ["a", "b:7751"]);
        assert_eq!(of_file.slots().unwrap(), [4, 1]);
        let named = |hosts: &[&str]| HostsArgs {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..HostsArgs::default()
        };
        assert!(named(&[]).names().unwrap().is_empty());
        assert!(named(&["a", "a"]).names().unwrap_err().contains("twice"));
        std::fs::write(&file, "# nobody\n").unwrap();
        assert!(of_file.names().unwrap_err().contains("names no host"));
    }
}
