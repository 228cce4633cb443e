//! The deterministic simulator of a whole cluster: the same rules as in the daemons and the mount,
//! over a simulated network, simulated disks and a virtual clock, against the oracle of `skep-model`.
//!
//! One seed decides everything: which operations are done, in which order messages arrive, what is
//! lost, who dies and when. A run of a seed can be repeated exactly. See `docs/design/simulation.md`.

mod afar;
mod appends;
mod arena;
mod book;
mod careful;
mod checked;
mod clocks;
mod contest;
mod coverage;
mod deeds;
mod drive;
mod fields;
mod gathered;
mod hub;
mod keeping;
mod kept;
mod kernel;
mod ledger;
mod lending;
mod locking;
mod looking;
mod loss;
mod metad;
mod mgmtd;
mod moments;
mod narrow;
mod network;
mod paging;
mod pieced;
mod pieces;
mod port;
mod program;
mod queue;
mod reckon;
mod records;
mod reopened;
mod rivals;
mod storaged;
mod task;
mod telling;
mod tells;
mod together;
mod trace;
mod truth;
mod turns;
mod verify;
mod vfs;
mod watched;
mod world;

pub use coverage::{Coverage, MARKERS, RARE};
use deeds::Theme;

/// How often lanes do something: so many deeds, with the pauses before them, would take half of the time of chaos. (What they
/// wait for servers comes on top, so they do fewer.)
pub const STEPS: u64 = 300;

/// Something that is wrong on purpose, and must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Canary {
    /// A sync of the log does nothing.
    NoSync,
    /// A sync of chunk files does nothing.
    NoChunkSync,
    /// Answers leave before their records are in the log.
    AnswersFirst,
    /// A repeated request is executed again.
    RunsRetries,
    /// A restarted shard hears of no locks.
    ForgetsLocks,
    /// The end of a file is given to two appends.
    SameEndTwice,
    /// A lost chunk file is read as a hole.
    ZeroForLost,
    /// A hole behind the end of a chunk file counts as something that is lost.
    EioForHole,
    /// A commit counts, though the file was cut since.
    CommitBlind,
    /// Space that is asked for sets the size of the file.
    FallocateCuts,
    /// Work without a bound of its own is done in one step.
    OneBigStep,
    /// A create opens a file that another one made after the kernel had looked.
    CreateOpens,
    /// A client answers before the kernel has dropped its old pages.
    PagesLate,
    /// Pages are never dropped.
    PagesStay,
    /// The kernel is not told of a size that it does not believe.
    SizesUntold,
    /// A client keeps its layouts when a metadata server has lost what it knew.
    KeepsLayout,
    /// An fsync clears changes that it did not wait for.
    ForgetsTouched,
    /// Who opens something is told nothing of what was lost before.
    OpensBehindLosses,
    /// Of several who lost something the first is told.
    TellsTheFirst,
    /// A client believes in a new session what it knew in the old one, and deleted chunk files read as zeros.
    ZeroForDead,
    /// Targets take what comes behind the limit of a sealed chunk file.
    WritesBehindTheCut,
    /// Targets carry out what comes in a term that is over.
    OldTermsTrim,
    /// A transaction over shards is decided by votes that are not durable.
    DecidesBeforeVotesAreDurable,
    /// A participant prepares once more what its coordinator has finished.
    StrayPrepare,
    /// A decision does not tell the client's lane.
    LaneLeftBehind,
    /// A reply carries the stamp of another shard of its group.
    StampsOfAnotherShard,
    /// A server makes a shard that the map gives it and whose rows are missing.
    FormatsWhatIsMissing,
    /// What metadata servers tell targets goes by any of several connections, also when it is sent again.
    RepeatsOnAnyLine,
    /// A mgmtd that runs on an older copy of its directory opens and ends sessions before servers could tell it so.
    TrustsAnOldCopy,
    /// Servers tell nobody that a shard has begun a term.
    TermsUntold,
    /// Where a chunk file is shorter than was known, a read shows zeros, though the file may have been cut.
    CutReadAsHole,
    /// A mount lets its kernel believe names for a second, without any lease.
    BelievesNames,
    /// And attributes.
    BelievesAttributes,
    /// Answers give leases on what is being taken back.
    GrantsWhileRecalling,
    /// A mount forgets at once up to which number a lease was taken back.
    RecallOvertakesGrant,
    /// A mount counts the time of its leases from the answer.
    KeepsLeaseOverTerm,
    /// A directory is known completely, though one of its names was taken back.
    AbsentNameUncovered,
    /// A mount does not look how many terms have ended at a server.
    RenewsForAShardThatLeft,
    /// The end of a session ends its leases.
    SessionEndEndsLeases,
    /// Confirmations wait for a connection of the pool.
    ConfirmsOnAPooledLane,
    /// An answer is kept though what it says was taken back since.
    InstallsAfterConfirm,
    /// A change that was given up counts as one that is not made.
    GivenUpCreate,
    /// A lease that was asked for before a lapse counts.
    RevivedByLateAnswer,
    /// A new term waits for leases of the one before from the start of the process on.
    HoldsByProcess,
    /// The row that there may be leases goes with a session.
    RowGoesWithSession,
    /// A repeated create opens a file for writing, and nobody is told.
    ReopensUnseen,
    /// A file that is renamed counts as covered by its new directory only.
    CoverFollowsNewName,
    /// What is taken back is confirmed before the kernel has dropped it.
    AcksRecallBeforeInval,
    /// What a kernel does not know yet counts as dropped.
    AnswerOvertakesNotify,
    /// A file is opened without asking though its close is on its way.
    ErasesLeasedOpen,
    /// Names that are taken back stay valid in kernels.
    ForgetsToldNames,
    /// What was read ahead is used though others have changed it since.
    ReadsOldAhead,
    /// The same of records at a constant distance.
    ReadsOldRecords,
    /// Who asks before it reads from a page is answered while older pages are there.
    ReadsOldPages,
    /// Pages are filled up to the end of the file though the kernel may take it for longer.
    EndsUnknown,
    /// A shard answers about a file that another mount holds, and asks that afterwards.
    TellsBehindTheAnswer,
    /// A mount forgets who asked for a file before it knew that it holds it.
    HoldsWhatWasAsked,
    /// Who holds a file no longer tells of it all the same.
    ToldTwice,
    /// A commit, fsync included, does not wait for what stays with the mount.
    BehindToldAsSynced,
    /// A read does not wait for it.
    ReadsPastTheRun,
    /// What stayed with a mount goes to targets though it was not heard.
    PutsUnheard,
    /// A shard goes on without a holder who is heard.
    PassesOverTooEarly,
    /// What a holder kept who was passed over is told though others have changed the file.
    TellsLateOverOthers,
    /// A target lets in what comes later than it counts.
    LandsLate,
    /// A hold that is asked for is given though another client has the file open.
    HoldsBesideOthers,
    /// Who looks at a held file is answered by a word that was on its way when he came.
    AnswersLateLooks,
}

impl Canary {
    pub const ALL: [Self; 66] = [
        Self::NoSync,
        Self::NoChunkSync,
        Self::AnswersFirst,
        Self::RunsRetries,
        Self::ForgetsLocks,
        Self::SameEndTwice,
        Self::ZeroForLost,
        Self::EioForHole,
        Self::CommitBlind,
        Self::FallocateCuts,
        Self::OneBigStep,
        Self::CreateOpens,
        Self::PagesLate,
        Self::PagesStay,
        Self::SizesUntold,
        Self::KeepsLayout,
        Self::ForgetsTouched,
        Self::OpensBehindLosses,
        Self::TellsTheFirst,
        Self::ZeroForDead,
        Self::WritesBehindTheCut,
        Self::OldTermsTrim,
        Self::DecidesBeforeVotesAreDurable,
        Self::StrayPrepare,
        Self::LaneLeftBehind,
        Self::StampsOfAnotherShard,
        Self::FormatsWhatIsMissing,
        Self::RepeatsOnAnyLine,
        Self::TrustsAnOldCopy,
        Self::TermsUntold,
        Self::CutReadAsHole,
        Self::BelievesNames,
        Self::BelievesAttributes,
        Self::GrantsWhileRecalling,
        Self::RecallOvertakesGrant,
        Self::KeepsLeaseOverTerm,
        Self::AbsentNameUncovered,
        Self::RenewsForAShardThatLeft,
        Self::SessionEndEndsLeases,
        Self::ConfirmsOnAPooledLane,
        Self::InstallsAfterConfirm,
        Self::GivenUpCreate,
        Self::RevivedByLateAnswer,
        Self::HoldsByProcess,
        Self::RowGoesWithSession,
        Self::ReopensUnseen,
        Self::CoverFollowsNewName,
        Self::AcksRecallBeforeInval,
        Self::AnswerOvertakesNotify,
        Self::ErasesLeasedOpen,
        Self::ForgetsToldNames,
        Self::ReadsOldAhead,
        Self::ReadsOldRecords,
        Self::ReadsOldPages,
        Self::EndsUnknown,
        Self::TellsBehindTheAnswer,
        Self::HoldsWhatWasAsked,
        Self::ToldTwice,
        Self::BehindToldAsSynced,
        Self::ReadsPastTheRun,
        Self::PutsUnheard,
        Self::PassesOverTooEarly,
        Self::TellsLateOverOthers,
        Self::LandsLate,
        Self::HoldsBesideOthers,
        Self::AnswersLateLooks,
    ];

    /// Is it wrong with leases?
    pub(crate) fn is_of_leases(self) -> bool {
        self as usize >= Self::GrantsWhileRecalling as usize
    }

    /// Is it wrong with files that mounts hold?
    pub(crate) fn is_of_holds(self) -> bool {
        self as usize >= Self::TellsBehindTheAnswer as usize
    }

    /// Seeds, from 1 on, of which one must find it: few for bugs that there were, and that nothing but luck found.
    pub fn found_within(self) -> u64 {
        match self {
            Self::CommitBlind
            | Self::KeepsLayout
            | Self::ForgetsTouched
            | Self::OpensBehindLosses
            | Self::FallocateCuts
            | Self::ZeroForDead
            | Self::OneBigStep
            | Self::CreateOpens
            | Self::CutReadAsHole
            | Self::BelievesNames
            | Self::BelievesAttributes => 50,
            _ if self.is_of_leases() => 50,
            _ => u64::MAX,
        }
    }

    /// What the seeds are about in which it is looked for.
    pub(crate) fn theme(self) -> Option<Theme> {
        match self {
            Self::ForgetsTouched => Some(Theme::Syncs),
            Self::ZeroForDead => Some(Theme::Intruders),
            Self::WritesBehindTheCut => Some(Theme::LateWrites),
            Self::DecidesBeforeVotesAreDurable | Self::StrayPrepare | Self::LaneLeftBehind => {
                Some(Theme::Afar)
            }
            Self::RepeatsOnAnyLine | Self::CutReadAsHole => Some(Theme::LateTrims),
            Self::CreateOpens | Self::BelievesNames | Self::BelievesAttributes => Some(Theme::Names),
            Self::ReadsOldAhead | Self::ReadsOldRecords | Self::ReadsOldPages | Self::EndsUnknown => {
                Some(Theme::Pages)
            }
            _ if self.is_of_leases() => Some(Theme::Names),
            _ => None,
        }
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSync => "no-sync",
            Self::NoChunkSync => "no-chunk-sync",
            Self::AnswersFirst => "answers-first",
            Self::RunsRetries => "runs-retries",
            Self::ForgetsLocks => "forgets-locks",
            Self::SameEndTwice => "same-end-twice",
            Self::ZeroForLost => "zero-for-lost",
            Self::EioForHole => "eio-for-hole",
            Self::CommitBlind => "commit-blind",
            Self::FallocateCuts => "fallocate-cuts",
            Self::OneBigStep => "one-big-step",
            Self::CreateOpens => "create-opens",
            Self::PagesLate => "pages-late",
            Self::PagesStay => "pages-stay",
            Self::SizesUntold => "sizes-untold",
            Self::KeepsLayout => "keeps-layout",
            Self::ForgetsTouched => "forgets-touched",
            Self::OpensBehindLosses => "opens-behind-losses",
            Self::TellsTheFirst => "tells-the-first",
            Self::ZeroForDead => "zero-for-dead",
            Self::WritesBehindTheCut => "writes-behind-the-cut",
            Self::OldTermsTrim => "old-terms-trim",
            Self::DecidesBeforeVotesAreDurable => "decides-before-votes-are-durable",
            Self::StrayPrepare => "stray-prepare",
            Self::LaneLeftBehind => "lane-left-behind",
            Self::StampsOfAnotherShard => "stamps-of-another-shard",
            Self::FormatsWhatIsMissing => "formats-what-is-missing",
            Self::RepeatsOnAnyLine => "repeats-on-any-line",
            Self::TrustsAnOldCopy => "trusts-an-old-copy",
            Self::TermsUntold => "terms-untold",
            Self::CutReadAsHole => "cut-read-as-hole",
            Self::BelievesNames => "believes-names",
            Self::BelievesAttributes => "believes-attributes",
            Self::GrantsWhileRecalling => "grants-while-recalling",
            Self::RecallOvertakesGrant => "recall-overtakes-grant",
            Self::KeepsLeaseOverTerm => "keeps-lease-over-term",
            Self::AbsentNameUncovered => "absent-name-uncovered",
            Self::RenewsForAShardThatLeft => "renews-for-a-shard-that-left",
            Self::SessionEndEndsLeases => "session-end-ends-leases",
            Self::ConfirmsOnAPooledLane => "confirms-on-a-pooled-lane",
            Self::InstallsAfterConfirm => "installs-after-confirm",
            Self::GivenUpCreate => "given-up-create",
            Self::RevivedByLateAnswer => "revived-by-late-answer",
            Self::HoldsByProcess => "holds-by-process",
            Self::RowGoesWithSession => "row-goes-with-session",
            Self::ReopensUnseen => "reopens-unseen",
            Self::CoverFollowsNewName => "cover-follows-new-name",
            Self::AcksRecallBeforeInval => "acks-recall-before-inval",
            Self::AnswerOvertakesNotify => "answer-overtakes-notify",
            Self::ErasesLeasedOpen => "erases-leased-open",
            Self::ForgetsToldNames => "forgets-told-names",
            Self::ReadsOldAhead => "reads-old-ahead",
            Self::ReadsOldRecords => "reads-old-records",
            Self::ReadsOldPages => "reads-old-pages",
            Self::EndsUnknown => "ends-unknown",
            Self::TellsBehindTheAnswer => "tells-behind-the-answer",
            Self::HoldsWhatWasAsked => "holds-what-was-asked",
            Self::ToldTwice => "told-twice",
            Self::BehindToldAsSynced => "behind-told-as-synced",
            Self::ReadsPastTheRun => "reads-past-the-run",
            Self::PutsUnheard => "puts-unheard",
            Self::PassesOverTooEarly => "passes-over-too-early",
            Self::TellsLateOverOthers => "tells-late-over-others",
            Self::LandsLate => "lands-late",
            Self::HoldsBesideOthers => "holds-beside-others",
            Self::AnswersLateLooks => "answers-late-looks",
        }
    }
}

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// See [`STEPS`].
    pub steps: u64,
    /// What is wrong on purpose.
    pub canary: Option<Canary>,
    /// Seeds are drawn as for the canary, and nothing is wrong.
    pub harmless: bool,
    /// Keep every line of the trace.
    pub whole_trace: bool,
    /// Mounts wish for leases, and the seed is about names.
    pub leases: bool,
    /// The same, and it is about files that are written in pieces.
    pub pieces: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { steps: STEPS, canary: None, harmless: false, whole_trace: false, leases: false, pieces: false }
    }
}

impl Options {
    /// What is wrong in this run.
    pub(crate) fn bug(&self) -> Option<Canary> {
        self.canary.filter(|_| !self.harmless)
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The first violation.
    pub failure: Option<String>,
    /// Situations reached.
    pub coverage: Coverage,
    /// Digest of everything that happened.
    pub hash: u64,
    /// Lines of the trace.
    pub lines: u64,
    pub events: u64,
    /// Virtual duration.
    pub virtual_ms: u64,
    /// The newest lines of the trace, or all.
    pub trace: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Report {
    world::World::new(seed, options).run()
}
