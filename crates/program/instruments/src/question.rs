//! What can be asked of an instrument, and what it answers: JSON in the bodies of `Measure`.
//!
//! Everything is a job: it is started, asked for, and stopped. No question takes longer than a look at a table, so
//! services with one thread answer them like any other request.

use serde::{Deserialize, Serialize};
use skep_survey::model::LARGE_STUCK;
use std::collections::BTreeMap;

/// Longest question.
pub const QUESTION_MAX: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Begin.
    Start(Order),
    /// How far is it? With its findings, as far as there are any.
    Status(u64),
    /// A held measurement that is ready begins: at this moment of the daemon's monotonic clock, in nanoseconds.
    Go {
        job: u64,
        /// When.
        at_ns: u64,
    },
    /// What the daemon's monotonic clock says.
    Clock,
    /// An answer of so many bytes, at most [`QUESTION_MAX`]: does a large one come through?
    Filler(u32),
    /// End it now; what was found so far stays.
    Stop(u64),
    /// Every job that is remembered, the newest last.
    Jobs,
}

/// A measurement that is to begin, and for whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub what: Measurement,
    /// Who wants it, for others whom it stands in the way.
    pub by: String,
    /// It ends when its state was not asked for during this time, and its files go; 0: it goes on by itself.
    pub lease_ms: u64,
    /// Its files stay until they are removed by name.
    pub keep: bool,
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measurement {
    /// What the machine and the daemon are.
    Facts,
    /// The processor time that the daemon gets.
    Processor(ProcessorTest),
    /// Take connections for a network measurement: for services that serve no payloads themselves.
    Listen(ListenTest),
    /// Bandwidth and latency from here to somebody.
    Network(NetworkTest),
    /// Read or write the daemon's targets.
    Storage(StorageTest),
    /// Remove what storage measurements left behind on these targets (none named: on all).
    Cleanup {
        /// Numbers of targets.
        targets: Vec<u32>,
        /// Names of sets; none named: all of them.
        sets: Vec<String>,
    },
    /// Which files storage measurements have on the daemon's targets.
    Sets,
    /// What the disk under a metadata server's log takes, and what the log has taken of it.
    Log(LogTest),
}

impl Measurement {
    /// For lists.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Facts => "facts",
            Self::Processor(_) => "processor",
            Self::Listen(_) => "listen",
            Self::Network(_) => "network",
            Self::Storage(_) => "storage",
            Self::Cleanup { .. } => "cleanup",
            Self::Sets => "sets",
            Self::Log(_) => "log",
        }
    }
}

/// See [`Measurement::Processor`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorTest {
    /// Length of one round.
    pub round_ms: u64,
    pub rounds: u32,
    /// Threads that are busy at once.
    pub threads: u32,
}

impl Default for ProcessorTest {
    fn default() -> Self {
        Self { round_ms: 200, rounds: 5, threads: 1 }
    }
}

/// See [`Measurement::Log`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTest {
    /// Records of 4 KiB, each made durable by itself; 0: none.
    pub records: u32,
    /// Bytes of one stream, durable at its end; 0: none.
    pub bytes: u64,
}

/// See [`Measurement::Listen`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenTest {
    /// Ends by itself after this time.
    pub seconds: f64,
}

/// See [`Measurement::Network`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkTest {
    /// Where to connect to, best first: `host:port`, `unix:/path`.
    pub endpoints: Vec<String>,
    /// Connections at once.
    pub streams: u32,
    /// Bytes of one payload.
    pub block: u32,
    /// Length of each direction.
    pub seconds: f64,
    /// Small messages for the latency; 0: none.
    pub pings: u32,
    /// Measure the bandwidth, too. Services that serve no payloads have a latency only.
    pub bandwidth: bool,
}

impl Default for NetworkTest {
    fn default() -> Self {
        Self { endpoints: Vec::new(), streams: 4, block: 1 << 20, seconds: 2.0, pings: 500, bandwidth: true }
    }
}

/// Through which code bytes go to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Ordinary files in the target's directory: what device and local file system deliver.
    Raw,
    /// The daemon's own code for chunk files, as requests go.
    Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Write; the sync at the end is inside the time.
    Write,
    /// Read what an earlier write left.
    Read,
}

/// See [`Measurement::Storage`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageTest {
    /// Numbers of targets; empty: all of the daemon.
    pub targets: Vec<u32>,
    /// Name of the set of files that is written, a directory of its own on each target. What is read or written
    /// over may be of another set, the newest that fits, when this one does not.
    pub set: String,
    /// Which code.
    pub path: Path,
    pub direction: Direction,
    /// Bytes of one request.
    pub block: u64,
    /// Bytes of each thread.
    pub size: u64,
    /// Threads of each target.
    pub threads: u32,
    /// Files of each target, shared by the threads in turn; 0: one for each thread.
    pub objects: u32,
    /// In random order instead of one after the other.
    pub random: bool,
    /// Past the page cache (O_DIRECT); raw files only.
    pub direct: bool,
    /// Over files that are there already, instead of new ones.
    pub rewrite: bool,
    /// Go round until this time is over, instead of once over the size; 0: once.
    pub seconds: f64,
    /// Once everything is prepared, wait for [`Question::Go`]: so several daemons begin at one moment.
    pub held: bool,
}

impl Default for StorageTest {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            set: "unnamed".to_owned(),
            path: Path::Target,
            direction: Direction::Write,
            block: 1 << 20,
            size: 256 << 20,
            threads: 4,
            objects: 0,
            random: false,
            direct: false,
            rewrite: false,
            seconds: 0.0,
            held: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Job(Box<JobShown>),
    Jobs(Vec<JobShown>),
    /// The clock, in nanoseconds.
    Clock(u64),
    /// Nothing but its length.
    Filler(String),
}

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It runs.
    Running,
    /// It is done.
    Done,
    /// It was stopped; what was found until then is there.
    Stopped,
    /// It could not be done.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobShown {
    /// Its number, never used twice by one daemon.
    pub job: u64,
    /// What was asked for.
    pub what: Measurement,
    /// By whom.
    pub by: String,
    pub state: JobState,
    /// How long it has run.
    pub seconds: f64,
    /// What was found, so far.
    pub findings: Option<Findings>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Findings {
    /// See [`Measurement::Facts`].
    Facts(Box<NodeFacts>),
    /// See [`Measurement::Processor`].
    Processor(ProcessorFound),
    /// See [`Measurement::Listen`].
    Listen(ListenFound),
    /// See [`Measurement::Network`].
    Network(NetworkFound),
    /// See [`Measurement::Storage`].
    Storage(StorageFound),
    /// See [`Measurement::Cleanup`]: files removed.
    Cleanup { removed: u64 },
    /// See [`Measurement::Sets`].
    Sets(Vec<SetFound>),
    /// See [`Measurement::Log`].
    Log(LogFound),
}

/// See [`Measurement::Log`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogFound {
    /// Of every record, in microseconds: written and durable.
    pub records_us: Vec<f64>,
    pub stream: Flow,
    /// How often the log itself was made durable since the daemon began ...
    pub syncs: u64,
    /// ... and for how long, in nanoseconds.
    pub sync_ns: u64,
}

/// Files of one measurement on one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetFound {
    pub target: u32,
    /// Name of the set.
    pub set: String,
    /// How many files.
    pub files: u64,
    pub bytes: u64,
    /// A measurement uses them now.
    pub used: bool,
}

/// What a machine and a daemon on it are. What cannot be told is empty, or none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// `metad`, `storaged`, `mgmtd`, `agent`.
    pub service: String,
    /// Name of the machine.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Version of the program.
    pub version: String,
    /// Process number.
    pub pid: u32,
    /// Model of the processor.
    pub processor: String,
    /// Processors of the machine.
    pub cores: u32,
    /// Those that the daemon may run on, such as `0-3`.
    pub allowed: String,
    /// NUMA zones of the machine.
    pub numa_zones: u32,
    pub memory_bytes: u64,
    /// Load over one minute.
    pub load: f64,
    /// Niceness of the daemon.
    pub nice: i32,
    /// Limits that its control group sets.
    pub group: GroupFacts,
    /// Network interfaces that are up.
    pub nics: Vec<NicFacts>,
    /// Targets (storage daemons).
    pub targets: Vec<TargetFacts>,
    /// Which machine it is, whatever its name; empty: an older release.
    #[serde(default)]
    pub machine: String,
    /// What the daemon's configuration says, by key.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Mounts of Skep on this machine.
    #[serde(default)]
    pub mounts: Vec<MountFacts>,
    /// The network namespace that the daemon is in; empty: an older release.
    #[serde(default)]
    pub network: String,
}

/// A mount of Skep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFacts {
    pub point: String,
    /// Its type, what is mounted, and how, as the kernel tells it.
    pub options: String,
    /// What its configuration says, by key, as far as its process can be looked at.
    pub settings: BTreeMap<String, String>,
}

/// The control group of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupFacts {
    pub path: String,
    /// Processors' worth of time that it, or a group above it, may use.
    pub processors: Option<f64>,
    /// Memory that it, or a group above it, may use.
    pub memory_bytes: Option<u64>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NicFacts {
    pub name: String,
    /// Megabits a second, as it was negotiated.
    pub megabits: Option<u64>,
    /// Largest packet.
    pub mtu: u32,
    /// Its NUMA zone.
    pub numa: Option<u32>,
    pub driver: String,
}

/// What is below a target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetFacts {
    pub target: u32,
    pub path: String,
    /// Device of its file system.
    pub device: String,
    /// Type of its file system.
    pub filesystem: String,
    /// How that is mounted.
    pub options: String,
    /// `hdd`, `ssd`, `nvme`, or empty.
    pub medium: String,
    /// Model of the disk.
    pub model: String,
    /// NUMA zone of its controller.
    pub numa: Option<u32>,
    /// Size of the file system.
    pub bytes: u64,
    /// Free for ordinary users.
    pub bytes_free: u64,
}

/// One round of a busy thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessorRound {
    /// Time on the clock, all threads together.
    pub wall_ms: f64,
    /// Processor time they got.
    pub cpu_ms: f64,
    /// Time they were ready and others ran.
    pub waited_ms: f64,
    /// Work done in a millisecond of processor time: tells a slow processor from a busy one.
    pub pace: f64,
}

/// See [`Measurement::Processor`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorFound {
    /// Each round.
    pub rounds: Vec<ProcessorRound>,
    /// Times that the control group was held back meanwhile; none: not readable.
    pub throttled: Option<u64>,
    /// ... and for how long.
    pub throttled_ms: Option<f64>,
}

impl ProcessorFound {
    /// Processor time per time on the clock, of each round.
    pub fn shares(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.cpu_ms / round.wall_ms.max(f64::MIN_POSITIVE)).collect()
    }
}

/// See [`Measurement::Listen`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenFound {
    /// Where: text, interface, preference.
    pub addresses: Vec<(String, String, u16)>,
}

/// How long requests took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Requests.
    pub count: u64,
    /// In microseconds, all of these.
    pub mean_us: f64,
    /// Half were faster.
    pub p50_us: f64,
    /// Nine of ten.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

/// Bytes over time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    pub bytes: u64,
    /// In how long.
    pub seconds: f64,
}

impl Flow {
    /// Bytes a second; 0 when nothing was measured.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

/// See [`Measurement::Network`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkFound {
    /// The address that was connected to.
    pub peer: String,
    /// From here to there.
    pub sent: Option<Flow>,
    /// From there to here.
    pub received: Option<Flow>,
    /// Of small messages, there and back.
    pub latency: Option<Latency>,
    /// A large message was not through, so no bandwidth was measured.
    #[serde(default)]
    pub stuck: Option<Stuck>,
}

/// A large message that was not through in time, while small ones were answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stuck {
    pub bytes: u32,
    /// How long it was waited for.
    pub seconds: f64,
    /// From here to there it was not.
    pub sent: bool,
    /// From there to here it was not.
    pub received: bool,
}

impl Stuck {
    /// In words, between these two; it begins with [`LARGE_STUCK`].
    pub fn told(&self, here: &str, there: &str) -> String {
        let way = match (self.sent, self.received) {
            (true, true) => format!("between {here} and {there}, in either direction,"),
            (true, false) => format!("from {here} to {there}"),
            _ => format!("from {there} to {here}"),
        };
        format!("{LARGE_STUCK}: {} bytes {way} were not through after {} s", self.bytes, self.seconds)
    }
}

/// See [`Measurement::Storage`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageFound {
    /// Everything is prepared.
    pub ready: bool,
    /// When the threads of all targets began, by the daemon's monotonic clock; none: not yet.
    pub began_ns: Option<u64>,
    /// Each target.
    pub targets: Vec<TargetFound>,
}

/// What a target delivered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetFound {
    pub target: u32,
    /// How its threads stand.
    pub state: JobState,
    /// How much, in how long.
    pub flow: Flow,
    /// Of single requests.
    pub latency: Latency,
    /// The same as a histogram, so that those of several rounds can be added up: nanoseconds and requests that took
    /// so long. As fine as an answer has room for.
    pub buckets: Vec<(u64, u64)>,
    /// Of the sync at the end, in milliseconds (inside the time).
    pub sync_ms: f64,
    /// Why it ended early.
    pub error: Option<String>,
}
