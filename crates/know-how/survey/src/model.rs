//! What a survey found: one document, written as JSON, from which the report is drawn and against which
//! another survey is compared. Every number that a reader sees stands here with its samples.

use serde::{Deserialize, Serialize};

/// Raised when a reader of older documents would misunderstand.
pub const FORMAT: u32 = 1;

/// Everything one survey found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Survey {
    /// See [`FORMAT`].
    pub format: u32,
    /// What was surveyed, for people.
    pub title: String,
    /// Version of the program.
    pub version: String,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// Name of the preset: how much was measured.
    pub preset: String,
    /// The exact command lines, in the order in which they ran.
    pub commands: Vec<String>,
    /// Machines: kernel, processors, memory, interfaces, devices.
    pub hosts: Vec<Host>,
    /// Settings of the file system at the time.
    pub settings: Vec<Fact>,
    /// What belongs to what, as far as one can slow the other: a target to its daemon.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Members that should have been measured and could not be.
    #[serde(default)]
    pub absent: Vec<Absent>,
    /// Over how many targets files spread; none where nothing told it.
    #[serde(default)]
    pub spread: Option<Spread>,
    /// From the device up to all clients.
    pub layers: Vec<Layer>,
    /// What layers could do by data sheet, for the waterfalls.
    #[serde(default)]
    pub theory: Vec<Theory>,
    /// The best sustained figure of each layer beside what it should be.
    pub waterfalls: Vec<Waterfall>,
    /// Which layer limits, and the numbers that show it.
    pub verdict: Verdict,
    /// What a reader must know before he trusts a number: a step left out, a machine that was busy.
    pub remarks: Vec<String>,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// Its name.
    pub name: String,
    /// What runs there.
    pub roles: Vec<String>,
    /// Processes of clients ran there.
    #[serde(default)]
    pub clients: bool,
    /// Set when it was busy before the survey began: the remark on it.
    #[serde(default)]
    pub busy: Option<String>,
    /// Kernel, processors, memory, interfaces, devices, file systems.
    pub facts: Vec<Fact>,
    /// MB/s of its fastest interface; none where no hardware tells a speed.
    #[serde(default)]
    pub link: Option<f64>,
    /// Networks that its daemons and clients are on: more than one where they are in network namespaces of their own
    /// (containers); 0: not told.
    #[serde(default)]
    pub networks: u32,
}

/// What a layer could do, whatever was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Theory {
    /// The layer.
    pub layer: LayerId,
    /// `write` or `read`.
    pub work: String,
    /// MB/s; none when nothing tells.
    pub rate: Option<f64>,
    /// From where the number comes, or why there is none.
    pub because: String,
}

/// Something that was looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fact {
    /// What.
    pub name: String,
    /// How much.
    pub value: String,
}

/// A member and what it is a part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// `target-101`.
    pub name: String,
    /// `storaged-1`.
    pub part_of: String,
}

/// Over how many targets files spread, by the layout of the directory in which clients were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// Targets that each file has.
    pub per_file: u32,
    /// Targets that were measured together.
    pub targets: u32,
}

impl Spread {
    /// The share of all targets that so many files lie on at most.
    pub fn share(self, files: f64) -> f64 {
        if self.targets == 0 {
            1.0
        } else {
            (files * f64::from(self.per_file) / f64::from(self.targets)).min(1.0)
        }
    }
}

/// A member that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Absent {
    /// `storaged-2`, `target-103`, `storaged-1 -> storaged-2`.
    pub name: String,
    /// The layer in which it was missed first.
    pub layer: LayerId,
    /// In words: "is offline, last heard 40 s ago". What begins with [`LARGE_STUCK`] is a matter of the network.
    pub why: String,
}

/// What a path is said to do on which large packets are dropped.
pub const LARGE_STUCK: &str = "small messages pass, large ones do not";

/// One layer of the system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Layer {
    /// Which.
    pub id: LayerId,
    /// One paragraph: what was measured and how.
    pub about: String,
    /// Curves: throughput over processes, operations over processes, ...
    pub curves: Vec<Curve>,
    /// The same measurement of every member (target, pair of nodes, daemon), side by side.
    pub sides: Vec<SideBySide>,
}

/// The layers, from the bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LayerId {
    /// Processor time that every daemon gets.
    Processor,
    /// The device or file system under each target, without the storage daemon's code.
    Device,
    /// What the log of every metadata server stands on: its disk, and the time to make a record durable.
    Log,
    /// Through the storage daemon's code, without network.
    Storage,
    /// Between every pair of nodes.
    Network,
    /// One client.
    Client,
    /// All clients together.
    Clients,
    /// Names.
    Metadata,
}

/// A measured curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Curve {
    /// Short, unique in the survey: `clients.write.n-n`.
    pub id: String,
    /// For people: "Sequential write, a file per process".
    pub title: String,
    /// `MB/s`, `operations/s`, `us`.
    pub unit: String,
    /// What the x axis counts: "processes", "transfer size (bytes)".
    pub axis: String,
    /// In rising order of x.
    pub points: Vec<Point>,
    /// The command line that measures it again; the varying part is named in capitals.
    pub command: String,
}

/// All repetitions at one place of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Place on the axis.
    pub x: f64,
    /// One value per repetition, never empty.
    pub samples: Vec<f64>,
}

/// Members that should be equal, measured alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideBySide {
    /// Short, unique in the survey: `storage.write`.
    pub id: String,
    /// For people: "Write, each target through its daemon".
    pub title: String,
    /// Unit of the samples.
    pub unit: String,
    /// More is better; false for latencies.
    pub more_is_better: bool,
    /// Each with its samples.
    pub members: Vec<MemberResult>,
    /// The command line that measures it again.
    pub command: String,
}

/// One member of a side-by-side measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberResult {
    /// `target-101`, `storaged-1 -> storaged-2`, `metad-1`.
    pub name: String,
    /// One value per repetition.
    pub samples: Vec<f64>,
    /// Set by the judge: what it differs from, in words.
    pub outlier: Option<String>,
}

/// Achieved beside theoretical, layer by layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waterfall {
    /// "Write", "Read", "Random 4 KiB read".
    pub title: String,
    /// Unit of all steps.
    pub unit: String,
    /// From the device to all clients.
    pub steps: Vec<Step>,
}

/// One layer of a waterfall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// The layer.
    pub layer: LayerId,
    /// For people.
    pub name: String,
    /// Median of what was measured, summed over the members that work in parallel.
    pub achieved: f64,
    /// What it could be given the layers below it (the composed ceiling), or by data sheet; none when nothing tells.
    pub theoretical: Option<f64>,
    /// From where the theoretical number comes.
    pub because: String,
}

/// What the survey concludes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// In one sentence; says plainly when nothing stands out.
    pub headline: String,
    /// A member that lags behind its likes: what should be looked at first. None when all are alike.
    pub culprit: Option<Culprit>,
    /// Others of which the culprit is not the cause: to be looked at as well, the worst first.
    #[serde(default)]
    pub also: Vec<Culprit>,
    /// What limits each kind of work, with numbers, even when nothing is wrong with it; what limits everything comes
    /// first, and work for which no layer can be named last.
    pub limits: Vec<Limit>,
}

impl Verdict {
    /// What limits everything because nobody gets much of a processor, if it is so.
    pub fn crowded(&self) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.layer == Some(LayerId::Processor))
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Culprit {
    /// In which layer.
    pub layer: LayerId,
    /// `target-103`, `storaged-2`.
    pub member: String,
    /// In words: "its disk delivers a quarter of its siblings'".
    pub finding: String,
    /// The numbers.
    pub evidence: Vec<Evidence>,
    /// What to look at or do.
    pub advice: String,
}

/// What limits one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// "Write, a file per process".
    pub work: String,
    /// The layer, the lowest if there are several; none when what was measured names none.
    #[serde(default)]
    pub layer: Option<LayerId>,
    /// Others that are too close to be told apart from it, from the bottom.
    #[serde(default)]
    pub also: Vec<LayerId>,
    /// Why.
    pub finding: String,
    /// The numbers.
    pub evidence: Vec<Evidence>,
}

impl Limit {
    /// Every layer that it names, from the bottom.
    pub fn layers(&self) -> impl Iterator<Item = LayerId> + '_ {
        self.layer.into_iter().chain(self.also.iter().copied())
    }
}

/// A number that shows something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// Of what.
    pub what: String,
    /// How much.
    pub value: f64,
    /// What it is compared with.
    pub expected: f64,
    /// Unit of both.
    pub unit: String,
}
