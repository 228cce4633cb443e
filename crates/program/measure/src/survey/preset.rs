//! How much a survey measures.

use clap::ValueEnum;

/// The presets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PresetName {
    /// Half a minute: does anything lag?
    Quick,
    /// Minutes: a test cluster, or a first look
    #[default]
    Small,
    /// An hour or more: 1 GiB of every thread and process, which large caches still hold
    Medium,
    /// Hours: 8 GiB of every thread and process, more than most caches hold
    Large,
}

impl PresetName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }
}

/// Numbers of one preset.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Repetitions of side-by-side measurements: each member once in every round.
    pub rounds: usize,
    /// Repetitions of every point of a curve.
    pub repeats: u32,
    /// Length of one measurement of processor time, milliseconds.
    pub processor_ms: u64,
    /// Bytes that each thread moves on a target.
    pub target_size: u64,
    /// Threads on each target.
    pub target_threads: &'static [u32],
    /// Record sizes on targets.
    pub records: &'static [u64],
    /// Files of each target in measurements of the storage daemons; 0 is one for each thread.
    pub objects: &'static [u32],
    /// The search for the best settings of a stream.
    pub search: Option<Searched>,
    /// Length of one network measurement in each direction.
    pub network_seconds: f64,
    /// Connections of one network measurement.
    pub streams: u32,
    /// Round trips of one measurement of latency.
    pub pings: u32,
    /// Bytes that each process writes and reads.
    pub process_size: u64,
    /// Most processes.
    pub processes: u32,
    /// Length of one point of random access.
    pub random_ms: u64,
    /// Files of each process in metadata measurements.
    pub files: u64,
}

/// How much is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Searched {
    /// Most measurements.
    pub measurements: u32,
    /// It begins no measurement after so long.
    pub seconds: Option<u64>,
    /// Bytes that all processes together move in every measurement ...
    pub size: u64,
    /// ... or more, so that the largest transfers can be tried with most processes.
    pub all_transfers: bool,
}

/// The search of test clusters: with what is still running when its time is over, it takes less than two minutes.
const SHORT_SEARCH: Searched =
    Searched { measurements: 100, seconds: Some(90), size: 256 * MIB, all_transfers: false };
/// The search of real ones.
const WHOLE_SEARCH: Searched =
    Searched { measurements: 80, seconds: None, size: 4 * GIB, all_transfers: true };

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Preset {
    /// The numbers; `processes` replaces the preset's limit. Each of `hosts` has a process at least, unless that is
    /// replaced.
    pub fn of(name: PresetName, processes: Option<u32>, hosts: usize) -> Self {
        let preset = Self::of_name(name);
        let least = preset.processes.max(hosts as u32);
        Self { processes: processes.unwrap_or(least), ..preset }
    }

    fn of_name(name: PresetName) -> Self {
        match name {
            PresetName::Quick => Self {
                rounds: 5,
                repeats: 2,
                processor_ms: 200,
                target_size: 16 * MIB,
                target_threads: &[2],
                records: &[MIB],
                objects: &[0],
                search: None,
                network_seconds: 0.12,
                streams: 2,
                pings: 50,
                process_size: 16 * MIB,
                processes: 2,
                random_ms: 300,
                files: 100,
            },
            PresetName::Small => Self {
                rounds: 5,
                repeats: 3,
                processor_ms: 200,
                target_size: 8 * MIB,
                target_threads: &[1, 2, 4, 8],
                records: &[256 * KIB, MIB],
                objects: &[0, 1, 4],
                search: Some(SHORT_SEARCH),
                network_seconds: 0.25,
                streams: 2,
                pings: 200,
                process_size: 64 * MIB,
                processes: 8,
                random_ms: 700,
                files: 400,
            },
            PresetName::Medium => Self {
                rounds: 7,
                repeats: 5,
                processor_ms: 500,
                target_size: GIB,
                target_threads: &[1, 2, 4, 8, 16],
                records: &[256 * KIB, MIB, 4 * MIB],
                objects: &[0, 1, 4, 16],
                search: Some(WHOLE_SEARCH),
                network_seconds: 2.0,
                streams: 4,
                pings: 2_000,
                process_size: GIB,
                processes: 128,
                random_ms: 5_000,
                files: 5_000,
            },
            PresetName::Large => Self {
                rounds: 9,
                repeats: 5,
                processor_ms: 1_000,
                target_size: 8 * GIB,
                target_threads: &[1, 2, 4, 8, 16, 32, 64],
                records: &[64 * KIB, 256 * KIB, MIB, 4 * MIB],
                objects: &[0, 1, 4, 16, 64],
                search: Some(Searched { size: 64 * GIB, ..WHOLE_SEARCH }),
                network_seconds: 5.0,
                streams: 8,
                pings: 5_000,
                process_size: 8 * GIB,
                processes: 2_048,
                random_ms: 20_000,
                files: 20_000,
            },
        }
    }
}
