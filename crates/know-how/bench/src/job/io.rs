//! Jobs on the contents of few large files: what IOR, IOzone and fio do.

use super::{Footprint, JobError, MAX_TRANSFER, Readers, check_places, limit, refuse};
use serde::{Deserialize, Serialize};

/// Phases of one repetition.
pub const MAX_PHASES: usize = 64;
/// Segments of one file.
pub const MAX_SEGMENTS: u64 = 1 << 40;

/// Reads and writes of file contents.
///
/// Each worker moves `block` bytes, `segments` times, `transfer` bytes at a call: `block x segments`
/// bytes in all. In a shared file segment s of worker w begins at `(s x workers + w) x block`; in a
/// file of its own at `s x block`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IoJob {
    /// Directories that exist; worker w's file lies in `paths[w % paths]`. With `listed`: files.
    pub paths: Vec<String>,
    /// Name of the (shared) file; files per worker add `.<worker in eight digits>`.
    pub name: String,
    /// `paths` are the files themselves: one per worker, or one shared file.
    #[serde(default)]
    pub listed: bool,
    /// One file for all, or one each.
    pub share: Share,
    /// What is done, in this order, in each repetition.
    pub phases: Vec<IoPhase>,
    /// Bytes of one call.
    pub transfer: u64,
    /// Bytes of a worker's contiguous piece. The last transfer of a block may be shorter.
    pub block: u64,
    /// How many such pieces each worker has.
    pub segments: u64,
    /// O_DIRECT.
    #[serde(default)]
    pub direct: bool,
    /// O_SYNC, O_DSYNC.
    #[serde(default)]
    pub sync: SyncMode,
    /// fsync by the writer.
    #[serde(default)]
    pub fsync: Fsync,
    /// The fsync at the end counts (it is done in any case where `fsync` says so).
    #[serde(default = "yes")]
    pub time_fsync: bool,
    /// The close counts.
    #[serde(default = "yes")]
    pub time_close: bool,
    /// The open counts. Without it all files are open when the clock starts.
    #[serde(default)]
    pub time_open: bool,
    /// All wait for all between open, transfers and close, not only between phases.
    #[serde(default)]
    pub barriers: bool,
    /// Who reads and rewrites whose data. Writers write their own.
    #[serde(default)]
    pub readers: Readers,
    /// Set the file's length in blocks aside before the first write (fallocate).
    #[serde(default)]
    pub preallocate: bool,
    /// Empty files that are there already before they are written first.
    #[serde(default)]
    pub truncate: bool,
    /// Drop the file's pages from this host's cache before each phase (posix_fadvise DONTNEED, after an
    /// fsync of what is dirty).
    #[serde(default)]
    pub invalidate: bool,
    /// Tell the kernel the order (posix_fadvise SEQUENTIAL, RANDOM).
    #[serde(default)]
    pub advise: bool,
    /// Remove the files at the end of each repetition, so that every repetition creates them; otherwise
    /// once at the end, and later repetitions write over the first's files.
    #[serde(default = "yes")]
    pub fresh: bool,
    /// How new files are striped, where the file system lets one say (skep.layout).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub striping: Option<Striping>,
}

fn yes() -> bool {
    true
}

/// One file for all, or one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// A file per worker (N-N).
    PerWorker,
    /// One shared file, each worker its blocks (N-1 segmented).
    Segmented,
    /// One shared file, transfers of all workers interleaved: transfer i of worker w lies at
    /// `(i x workers + w) x transfer` (N-1 strided). Blocks must be whole transfers.
    Strided,
    /// One shared file of `block x segments` bytes, every worker on all of it.
    Whole,
}

impl Share {
    /// Whether there is one file only.
    pub fn is_shared(self) -> bool {
        self != Self::PerWorker
    }
}

/// One pass over the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IoPhase {
    /// What.
    pub kind: IoKind,
    /// In which order.
    #[serde(default)]
    pub order: Order,
    /// Every byte that is read is compared with what was written. The writes of the job then carry a
    /// pattern that names file and offset.
    #[serde(default)]
    pub verify: bool,
    /// It only lays out data for the phases after it: no stonewall, no line in the results.
    #[serde(default)]
    pub setup: bool,
}

impl IoPhase {
    /// A phase in order, without verification.
    pub fn new(kind: IoKind) -> Self {
        Self { kind, order: Order::Forward, verify: false, setup: false }
    }

    /// The same in another order.
    pub fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// The same as preparation only.
    pub fn as_setup(self) -> Self {
        Self { setup: true, ..self }
    }

    /// The same with verification.
    pub fn verified(self) -> Self {
        Self { verify: true, ..self }
    }

    /// Its name in results: "write", "random read", ...
    pub fn name(&self) -> String {
        let order = match self.order {
            Order::Forward => "",
            Order::Backward => "backward ",
            Order::Random | Order::RandomRepeating => "random ",
            Order::Stride { .. } => "stride ",
        };
        let kind = match self.kind {
            IoKind::Write => "write".to_owned(),
            IoKind::Rewrite => "rewrite".to_owned(),
            IoKind::Read => "read".to_owned(),
            IoKind::Reread => "reread".to_owned(),
            IoKind::Mixed { read_percent } => format!("mixed {read_percent}/{}", 100 - read_percent.min(100)),
        };
        format!("{order}{kind}")
    }
}

/// What a pass does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IoKind {
    /// Write; makes the files.
    Write,
    /// Write over what is there.
    Rewrite,
    /// Read.
    Read,
    /// Read once more (another name, so that results keep apart what a cache may answer).
    Reread,
    /// Each transfer is a read with this probability, else a write over what is there.
    Mixed {
        /// 0 to 100.
        read_percent: u8,
    },
}

impl IoKind {
    /// Whether the files must be there before it.
    pub fn needs_data(self) -> bool {
        self != Self::Write
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Rewrite | Self::Mixed { .. })
    }
}

/// The order of transfers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// From front to back.
    #[default]
    Forward,
    /// From back to front.
    Backward,
    /// Every transfer once, in an order drawn from the job's seed.
    Random,
    /// As many transfers, each drawn anew: some come twice, some never.
    RandomRepeating,
    /// Every n-th transfer first, then those beside them, until all are done.
    Stride {
        /// n.
        transfers: u64,
    },
}

/// O_SYNC and its lesser brother.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SyncMode {
    /// Neither.
    #[default]
    None,
    /// O_DSYNC.
    Data,
    /// O_SYNC.
    Full,
}

/// When a writer calls fsync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fsync {
    /// Never.
    Never,
    /// At the end of a phase that wrote.
    #[default]
    AtEnd,
    /// After so many transfers each, and at the end.
    Every {
        /// Transfers.
        transfers: u64,
    },
}

/// How new files are striped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Striping {
    /// Bytes of a chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_size: Option<u64>,
    /// Targets of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u32>,
}

impl IoJob {
    /// Write and read 64 MiB in 1 MiB transfers, a file per worker below `dir`.
    pub fn new(dir: &str) -> Self {
        Self {
            paths: vec![dir.to_owned()],
            name: "skep-bench-io".to_owned(),
            listed: false,
            share: Share::PerWorker,
            phases: vec![IoPhase::new(IoKind::Write), IoPhase::new(IoKind::Read)],
            transfer: 1 << 20,
            block: 64 << 20,
            segments: 1,
            direct: false,
            sync: SyncMode::None,
            fsync: Fsync::AtEnd,
            time_fsync: true,
            time_close: true,
            time_open: false,
            barriers: false,
            readers: Readers::Own,
            preallocate: false,
            truncate: false,
            invalidate: false,
            advise: false,
            fresh: true,
            striping: None,
        }
    }

    /// Whether what is written must carry the pattern.
    pub fn verifies(&self) -> bool {
        self.phases.iter().any(|phase| phase.verify)
    }

    /// Bytes of one worker.
    pub fn per_worker(&self) -> u64 {
        self.block.saturating_mul(self.segments)
    }

    /// Length of each file.
    pub fn file_size(&self, workers: u64) -> u64 {
        match self.share {
            Share::PerWorker | Share::Whole => self.per_worker(),
            Share::Segmented | Share::Strided => self.per_worker().saturating_mul(workers),
        }
    }

    pub(super) fn check(&self, workers: u32) -> Result<(), JobError> {
        check_places(&self.paths, &self.name)?;
        limit("number of phases", self.phases.len() as u64, 1, MAX_PHASES as u64)?;
        limit("transfer", self.transfer, 1, MAX_TRANSFER)?;
        limit("block", self.block, 1, 1 << 60)?;
        limit("segments", self.segments, 1, MAX_SEGMENTS)?;
        let total = u128::from(self.block) * u128::from(self.segments) * u128::from(workers);
        if total > 1 << 62 {
            return refuse("block x segments x workers is more than 4 EiB; make one of them smaller");
        }
        if self.transfer > self.block {
            return Err(JobError(format!(
                "transfer ({} bytes) is larger than block ({} bytes); make the block at least one transfer",
                self.transfer, self.block
            )));
        }
        if self.share == Share::Strided && !self.block.is_multiple_of(self.transfer) {
            return refuse("strided: block must be a whole number of transfers");
        }
        self.check_alignment()?;
        if self.listed && !self.share.is_shared() && self.paths.len() < workers as usize {
            return Err(JobError(format!(
                "{} files are listed for {workers} workers; list one for each",
                self.paths.len()
            )));
        }
        if self.listed && self.share.is_shared() && self.paths.len() != 1 {
            return refuse("a shared file: list one path");
        }
        for phase in &self.phases {
            match (phase.kind, phase.order) {
                (IoKind::Mixed { read_percent }, _) if read_percent > 100 => {
                    return refuse("mixed: the share of reads is given in percent, 0 to 100");
                }
                (_, Order::Stride { transfers: 0 }) => {
                    return refuse("stride: at least 1 transfer");
                }
                _ => {}
            }
        }
        if let Fsync::Every { transfers: 0 } = self.fsync {
            return refuse("fsync: after every how many transfers? at least 1");
        }
        Ok(())
    }

    fn check_alignment(&self) -> Result<(), JobError> {
        let odd = |bytes: u64| !bytes.is_multiple_of(512);
        if self.direct && (odd(self.transfer) || odd(self.block)) {
            return refuse(
                "direct: transfer and block must be multiples of 512 bytes (of the device's sector)",
            );
        }
        Ok(())
    }

    pub(super) fn footprint(&self, workers: u64) -> Footprint {
        if self.share.is_shared() {
            return Footprint { bytes: self.file_size(workers), inodes: 1 };
        }
        Footprint { bytes: self.per_worker().saturating_mul(workers), inodes: workers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: fields that contradict each other are refused in words that name them.
    #[test]
    fn contradictions() {
        type Case = (&'static str, fn(&mut IoJob));
        let cases: [Case; 7] = [
            ("larger than block", |io| io.transfer = io.block + 1),
            ("whole number", |io| {
                io.share = Share::Strided;
                io.transfer = 47_008;
            }),
            ("512", |io| {
                io.direct = true;
                io.transfer = 47_008;
                io.block = 47_008 * 2;
            }),
            ("list one for each", |io| io.listed = true),
            ("percent", |io| io.phases = vec![IoPhase::new(IoKind::Mixed { read_percent: 101 })]),
            ("stride", |io| {
                io.phases = vec![IoPhase::new(IoKind::Read).in_order(Order::Stride { transfers: 0 })];
            }),
            ("phases", |io| io.phases.clear()),
        ];
        for (words, spoil) in cases {
            let mut io = IoJob::new("/tmp");
            spoil(&mut io);
            let error = io.check(2).unwrap_err().0;
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    /// Goal: sizes of files and of the whole follow from block, segments and sharing.
    #[test]
    fn footprint() {
        let mut io = IoJob { block: 100, segments: 3, transfer: 10, ..IoJob::new("/tmp") };
        assert_eq!(io.footprint(4), Footprint { bytes: 1200, inodes: 4 });
        assert_eq!(io.file_size(4), 300);
        io.share = Share::Strided;
        assert_eq!((io.footprint(4), io.file_size(4)), (Footprint { bytes: 1200, inodes: 1 }, 1200));
        io.share = Share::Whole;
        assert_eq!(io.footprint(4), Footprint { bytes: 300, inodes: 1 });
    }
}
