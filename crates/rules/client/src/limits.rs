//! Named limits of a mount. Reaching one is an error that says what to change, or a wait.

/// How long an operation is tried before it fails with EIO, unless configured otherwise.
pub const RETRY_LIMIT_MS: u64 = 600_000;
/// First pause between two tries.
pub const BACKOFF_MIN_MS: u64 = 10;
/// Longest pause between two tries.
pub const BACKOFF_MAX_MS: u64 = 1_000;
/// A chunk file that its target cannot seal is asked for again for so many milliseconds, before the file is told full.
pub const LEFT_OPEN_MS: u64 = 60_000;
/// How often in a row what came to the wrong server goes on at once; then there is a pause.
pub const HOPS_MAX: u32 = 3;
/// How often a name that others make and remove is tried to be made.
pub const CREATE_TRIES_MAX: u32 = 16;
/// How often a file whose name others replace is opened before what is found by then is taken.
pub const OPEN_TRIES_MAX: u32 = 100;
/// Housekeeping is due this soon after [`crate::Port::work_waits`].
pub const HOUSEKEEPING_SOON_MS: u64 = 100;
/// Housekeeping is due this often when nothing waits (sessions are renewed four times per time-out).
pub const HOUSEKEEPING_MAX_MS: u64 = 15_000;
/// Most open handles of a mount; one more is ENFILE.
pub const HANDLES_MAX: usize = 1 << 20;
/// Closed inodes that are remembered for their page cache and their unsynced chunks.
pub const IDLE_INODES_MAX: usize = 1 << 16;
/// For so long: afterwards they go, so that memory comes back.
pub const IDLE_INODES_MS: u64 = 5 * 60 * 1_000;
/// Directories whose names and attributes are remembered, in case they are removed while in use.
pub const DIRS_SEEN_MAX: usize = 1_024;
/// Removed directories that programs may still be in.
pub const GHOSTS_MAX: usize = 4_096;
/// Access ACLs remembered; beyond it all are forgotten and asked for again.
pub const ACLS_MAX: usize = 4_096;
/// Most bytes of inline content kept for open files; beyond it a read asks the shard.
pub const INLINE_CACHE_MAX: usize = 32 << 20;
/// Closes waiting for housekeeping; the release that reaches it sends them itself.
pub const CLOSES_MAX: usize = 4_096;
/// Opens that are kept when no program needs them any more; with one more the one goes that nobody used for longest.
pub const KEPT_OPENS_MAX: usize = 16_384;
/// One that nobody has used for so long is closed.
pub const KEPT_OPENS_MS: u64 = 60_000;
/// Those of which nothing is known any more are looked for this often; so long they may stay open.
pub const KEPT_LOOK_MS: u64 = 1_000;
/// Inodes of one `Close` or `Reclaim` request, and locks of one `Reclaim`.
pub const TOLD_AT_ONCE: usize = 4_096;
/// Longest wait of one question for events.
pub const EVENTS_WAIT_MS: u64 = 10_000;
/// Servers that are asked for events though nobody waits there have so long to answer; then housekeeping goes on.
pub const LISTEN_PATIENCE_MS: u64 = 5_000;
/// Terms of one shard with changes not known to be durable; the oldest beyond it count as lost.
pub const TERMS_MAX: usize = 16;
/// Inodes with changes of one shard not known to be durable, one for each change; before one more the shard is asked to sync.
pub const CHANGED_MAX: usize = 1 << 17;
/// Files and directories of which something was lost; beyond it those that were told go, then the oldest half of what nobody
/// has open. So all that one power cut took of a shard is remembered.
pub const UNTOLD_MAX: usize = 2 * CHANGED_MAX;
/// Programs that are owed word of one of these; beyond it the first to open it is told for the others.
pub const OWED_MAX: usize = 256;
/// What a mount keeps to itself of a file that it holds is told after so long at the latest.
pub const HOLD_MS: u64 = 1_000;
/// It is told after so long, so that what goes on being held is so without a break.
pub const HOLD_TELL_MS: u64 = 750;
/// What cannot be told is tried again after so long.
pub const HOLD_AGAIN_MS: u64 = 100;
/// For what somebody waits a server has so long to take it; then it is the turn of the next.
pub const HOLD_PATIENCE_MS: u64 = 1_000;
/// Others may look so often at a file, and it is held on, ...
pub const LOOKS_MAX: u32 = 8;
/// ... within so long, but for looks in front of which so many small writes stayed with the mount: these cost less together, with
/// the word for the look, than each by itself.
pub const LOOKS_WITHIN_MS: u64 = 1_000;
pub const LOOK_WORTH: u32 = 16;
/// Nor after so many looks between which nothing was written. (`ls -l` looks twice.)
pub const LOOKS_IDLE: u32 = 4;
/// Bytes of a write that may wait for others.
pub const GATHER_WRITE_MAX: usize = 128 << 10;
/// What waits goes to its targets when it reaches a multiple of so much of its file.
pub const GATHER_RUN: u64 = 1 << 20;
/// Bytes of all files that may wait: so much has a target room for that promised some.
pub const GATHERED_BYTES_MAX: usize = 48 << 20;
/// After so many small writes in a row a file is asked for that is not held,
pub const WISH_AFTER: u32 = 4;
/// when they came within so long.
pub const WISH_WITHIN_MS: u64 = 1_000;
/// Refused, or ended because somebody looked, it is not asked for again for so long, doubled each time
pub const WISH_AGAIN_MIN_MS: u64 = 1_000;
/// up to this.
pub const WISH_AGAIN_MAX_MS: u64 = 32_000;
/// A target's promise of room is relied on for so long after it was asked for,
pub const ROOM_KEPT_MS: u64 = 8_000;
/// but for the last of it: by then what waits is there.
pub const ROOM_LEFT_MS: u64 = 2_000;
/// And for what is old enough.
pub const OLD_PATIENCE_MS: u64 = 250;
/// Who was not heard for a while asks for so long whether he holds a file, until his server has heard him listen.
pub const COME_BACK_MS: u64 = 3_000;
/// What waits goes to targets only while its mount counts as heard for so long at least: by then it is there.
pub const PUT_LEFT_MS: u64 = 1_000;
/// Pieces that a run may have, with gaps between them: they go to targets one after the other.
pub const RUN_PIECES_MAX: usize = 8;
/// A target counts blocks: so much more than its bytes may each of them take.
pub const RUN_BLOCKS: usize = 8 << 10;
/// Files that were asked for while creates were on their way; with so many creates hold nothing.
pub const HOLDS_ASKED_MAX: usize = 1_024;
/// Bytes read or written by one round of parallel requests.
pub const ROUND_MAX: usize = 4 << 20;
/// Most bytes of one copy_file_range; programs ask again for the rest.
pub const COPY_MAX: u64 = 1 << 30;
/// Bytes of a copy after which it is looked whether the program gave up.
pub const COPY_WINDOW: u64 = 64 << 20;
/// Drops of pages before a window of a copy that come too early, because the pages are filled again.
pub const COPY_DROPS_MAX: usize = 4;
/// Requests of a copy that are on their way at once.
pub const COPY_JOBS_MAX: usize = 64;
/// Nothing is read ahead for who reads larger pieces: those come as fast alone.
pub const AHEAD_SMALL: usize = 128 << 10;
/// The read in order with which reading ahead begins.
pub const AHEAD_RUN: u32 = 2;
/// Bytes that are read ahead first; then twice as many each time ...
pub const AHEAD_FIRST: usize = 128 << 10;
/// ... up to so many.
pub const AHEAD_MAX: usize = 1 << 20;
/// Bytes that were, or are being, read ahead through all handles; beyond it the oldest go.
pub const AHEAD_BYTES_MAX: usize = 64 << 20;
/// So long it is kept at least: who reads then has had time to use it.
pub const AHEAD_KEPT_MS: u64 = 100;
/// What was read ahead longer ago is read again; who pauses for so long does not read in order.
pub const AHEAD_FOR_MS: u64 = 1_000;
/// The read at a constant distance with which its next records are read ahead ...
pub const STRIDE_RUN: u32 = 3;
/// ... and, where most of what was read so was not used, twice as late each time, up to this one.
pub const STRIDE_RUN_MAX: u32 = 64;
/// Records that are read together first, with the one that is asked for; then twice as many each time that all are used ...
pub const STRIDE_FIRST: usize = 4;
/// ... up to so many, of [`AHEAD_MAX`] bytes at most; never fewer than [`STRIDE_LEAST`].
pub const STRIDE_MAX: usize = 32;
/// See [`STRIDE_MAX`].
pub const STRIDE_LEAST: usize = 2;
/// Records that take longer than this together are half as many the next time, ...
pub const STRIDE_SLOW_MS: u64 = 100;
/// ... and more only behind such as took no longer than this.
pub const STRIDE_QUICK_MS: u64 = 5;
/// Among so many records to come those are looked for that lie on targets of the one that is asked for.
pub const STRIDE_SIGHT: usize = 128;
/// Records that one handle has ahead, on all targets: so many times as many as it reads together at most.
pub const STRIDE_ROUNDS: usize = 2;
/// Bytes that one handle has ahead so, on all targets.
pub const STRIDE_KEPT_MAX: usize = 4 * AHEAD_MAX;
/// Records with no more between them than so many bytes are one request: it costs more than these do.
pub const STRIDE_GAP: u64 = 8 << 10;
/// Longer records are read alone where all their targets are on the machine of the mount: it copies them once, out of memory that
/// they share, and so has them sooner than together with others.
pub const STRIDE_NEAR_MAX: usize = 16 << 10;
/// Where too little is known of a file to read it ahead, that is asked for again after so long by each handle; then twice as long
/// each time ...
pub const AHEAD_ASK_MS: u64 = 200;
/// ... up to so long.
pub const AHEAD_ASK_MAX_MS: u64 = 1_000;
/// So many files are asked for together.
pub const AHEAD_ASK_BATCH: usize = 64;
/// Rounds after which a file whose layout keeps changing under an operation gives EIO.
pub const STALE_ROUNDS_MAX: u32 = 200;
/// Looks at chunk files that are too short, while truncates come in between, before the operation gives EIO.
pub const LOST_ROUNDS_MAX: u32 = 20;
/// Syncs of an fsync whose file is being truncated, before what is synced goes unguarded (`docs/design/storage.md`).
pub const HELD_ROUNDS_MAX: u32 = 4;
/// Lost chunk files that the log of a mount names, one line each.
pub const LOST_TOLD_MAX: usize = 1_024;
/// One that no program has met for so long is not called lost any more: it may have been put back.
pub const LOST_FOR_MS: u64 = 60 * 60_000;
/// Housekeeping looks this often at those that are known to be lost, and tells their shards again.
pub const LOST_LOOK_MS: u64 = 10 * 60_000;
/// The same, when a storage server refused to be asked, or its connection broke: it may be starting.
pub const LOST_LOOK_SOON_MS: u64 = 60_000;
/// The same, when a metadata server did not take it.
pub const LOST_TELL_SOON_MS: u64 = 10_000;
/// What takes longer is silence, which the next request to that server would meet again.
pub const QUICK_MS: u64 = 1_000;
/// At so many of them in one round.
pub const LOST_LOOKS: usize = 64;
/// Entries asked for by one listing without attributes.
pub const LIST_NAMES: u32 = 1_024;
/// Entries asked for by one listing with attributes.
pub const LIST_ATTRS: u32 = 256;
/// Attributes of a listing are handed out for this long, and only while the mount changes nothing.
pub const LIST_FRESH_MS: u64 = 1_000;
/// A closed file's chunks are made durable this long after the close, unless it is opened again before.
pub const SYNC_CLOSED_MS: u64 = 500;
/// The lane that does it looks this often.
pub const SYNC_LOOK_MS: u64 = 1_000;
/// It goes on so soon when all that it took waits for targets that are silent.
pub const SYNC_PASS_MS: u64 = 20;
/// And waits so long for the servers that it asks together.
pub const SYNC_CLOSED_PATIENCE_MS: u64 = 10_000;
/// A server that was silent for that long is asked alone, and so long after.
pub const SYNC_SILENT_MS: u64 = 30_000;
/// Closed files that one round of it makes durable together.
pub const SYNC_CLOSED_BATCH: usize = 256;
/// That is halved so often at most, when it takes too long.
pub const SYNC_SMALLER_MAX: u32 = 5;
/// An unmount waits no longer for targets and shards to make durable what was written.
pub const DETACH_SYNC_MS: u64 = 10_000;
/// Files that the log of a mount names when an unmount could not have them synced.
pub const UNSYNCED_TOLD_MAX: usize = 16;
/// Chunk files of one `SyncChunks` that speaks for several files.
pub const SYNC_CHUNKS_BATCH: usize = 1_024;

/// Pause before a fill of a page, or another write, looks again whether a write of its bytes has landed.
pub const FILL_WAIT_MS: u64 = 1;
/// Chunk files at the end of a file of which an append takes the counts of cuts along; of others it asks. More than the
/// stripes of a layout that is not asked for by name.
pub const UNCUT_MAX: usize = 128;
/// Parts of failed writes that wait to be punched.
pub const STRAYS_MAX: usize = 4_096;
/// Those that one round of housekeeping tries.
pub const STRAYS_BATCH: usize = 64;
/// First pause before an operation that waits for another one of its own mount looks again.
pub const OWN_WAIT_MIN_MS: u64 = 1;
/// Longest such pause.
pub const OWN_WAIT_MAX_MS: u64 = 50;
/// So often it is tried to have the kernel know that a file is shorter, before a read of its pages fails.
pub const SHORTEN_TRIES: u32 = 20;
/// Pages are waited for no longer where the kernel may hold them until it has the answer.
pub const PAGES_PATIENCE_MS: u64 = 50;

/// Bytes of names and attributes that leases cover, unless configured otherwise.
pub const CACHE_MAX: usize = 256 << 20;
/// Directories of which something is kept, each under a lease.
pub const DIRS_KEPT_MAX: usize = 1 << 17;
/// Names of a directory that is known completely, and may be there all the same: with one more it is not.
pub const HOLES_MAX: usize = 64;
/// Lines of a listing that are taken over in one step.
pub const LINES_AT_ONCE: usize = 64;
/// The kernel may use what it was told for so much shorter than the lease holds: the thread that asked may come to run so much
/// later.
pub const VALIDITY_MARGIN_MS: u64 = 250;
/// Validity counts from when the thread that asked runs again: so much later it may still begin, and the kernel is told to drop
/// what is long over.
pub const LATE_MS: u64 = 4_000;
/// How long a kernel may use attributes from a look-up that does not count evictions.
pub const OLD_LOOK_MS: u64 = 100;
/// An inode that the kernel was given, and does not know for so long, was counted wrongly.
pub const LOOKS_LOST_MS: u64 = 1_000;
/// Who hears waits so long for what the kernel does not know yet, before it goes on and tries again.
pub const UNKNOWN_PATIENCE_MS: u64 = 50;
/// Attributes and names that the kernel drops in one go.
pub const DROPS_AT_ONCE: usize = 512;
/// How long the kernel may use a name: so long, and [`VALIDITY_MARGIN_MS`], a change by another mount may have to wait where it cannot
/// be dropped. No request is to wait for a second.
pub const NAME_MS: u64 = 500;
/// The same in a directory whose lock was held for long a short while ago ...
pub const STUCK_NAME_MS: u64 = 100;
/// ... for so long ...
pub const STUCK_MS: u64 = 10_000;
/// ... of so many directories at most.
pub const STUCK_MAX: usize = 1_024;
/// So it is where names are taken back so often, with no more than that between two.
pub const CONTESTED_AT: u32 = 4;
pub const CONTESTED_MS: u64 = 2_500;
/// Who hears waits so long for the lock of a directory before it lets the kernel drop all names, or their validity run out.
pub const NAME_PATIENCE_MS: u64 = 5;
/// If that little is left of the validity of a name it is waited for.
pub const NAME_LEFT_MS: u64 = 100;
/// Names that the kernel may use at the same time; with one more it asks for that.
pub const TOLD_NAMES_MAX: usize = 1 << 17;
/// While leases are held, events are waited for so long: each answer renews.
pub const EVENTS_HELD_MS: u64 = 1_000;
/// And for so long beyond that, before their server counts as silent.
pub const HEARD_PATIENCE_MS: u64 = 1_000;
/// Leases of one `Recalled` that are given back.
pub const GIVEN_BACK_AT_ONCE: usize = 1_024;
/// Recalls of a shard that refuse older grants, one by one; beyond it no older grant is believed.
pub const RECALLS_KEPT_MAX: usize = 4_096;
/// Inodes of which the last change of this mount is known; beyond it no answer from before the last of any is kept.
pub const OWN_CHANGES_KEPT_MAX: usize = 4_096;
/// Changes of a lane on a shard that were given up one after the other and may still be made; with one more nothing of their
/// shards is told from memory until the lane's next change there has been answered.
pub const DOUBTS_MAX: usize = 64;

/// What a mount may be told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// An operation fails with EIO after this long without success; 0 = never.
    pub retry_ms: u64,
    /// Inodes of one `Close` or `Reclaim` request, and locks of one `Reclaim`.
    pub told_at_once: usize,
    /// A fault on purpose, for the simulator: layouts outlive a reclaim.
    pub canary_keeps_layout: bool,
    /// A fault on purpose: layouts and what else was known outlive the session.
    pub canary_keeps_beliefs: bool,
    /// As [`KEPT_OPENS_MAX`].
    pub kept_max: usize,
    /// As [`KEPT_OPENS_MS`].
    pub kept_ms: u64,
    /// As [`IDLE_INODES_MS`].
    pub idle_ms: u64,
    /// As [`CHANGED_MAX`].
    pub changed_max: usize,
    /// A fault on purpose: an fsync takes changes off the list that it did not wait for.
    pub canary_forgets_touched: bool,
    /// A fault on purpose: of several who lost something the first is told.
    pub canary_tells_the_first: bool,
    /// A fault on purpose: who opens a file or directory is told nothing of what was lost before.
    pub canary_opens_behind_losses: bool,
    /// Asks for leases, and answers by itself what they cover.
    pub leases: bool,
    /// Lets the kernel answer what they cover.
    pub validity: bool,
    /// Names as well: it can drop all of them at once.
    pub names: bool,
    /// The kernel looks for a name that it is to drop before it has the lock of the directory (6.19 to 7.1).
    pub hasty_kernel: bool,
    /// The kernel does not count evictions: see [`OLD_LOOK_MS`].
    pub old_kernel: bool,
    /// Holds new files, which others have to ask for.
    pub holds: bool,
    /// Lets small writes of these wait for one another.
    pub gathers: bool,
    /// As [`GATHER_RUN`].
    pub gather_run: u64,
    /// A fault on purpose: what is told of a file does not wait for what was written to it (*behind-told-as-synced*).
    pub canary_tells_unput: bool,
    /// A fault on purpose: nor do reads of it (*reads-past-the-run*).
    pub canary_reads_unput: bool,
    /// A fault on purpose: what waits goes to targets though the mount may hold the file no longer (*puts-unheard*).
    pub canary_puts_unheard: bool,
    /// As [`CACHE_MAX`].
    pub cache_bytes: usize,
    /// A fault on purpose: who asked before the answer to a create is forgotten (*holds-what-was-asked*).
    pub canary_forgets_questions: bool,
    /// A fault on purpose: recalls refuse no grants that come behind them (*recall-overtakes-grant*).
    pub canary_forgets_recalls: bool,
    /// A fault on purpose: the time of leases counts from the answer (*keeps-lease-over-term*).
    pub canary_counts_from_answers: bool,
    /// A fault on purpose: a server renews leases of shards that it does not have any more
    /// (*renews-for-a-shard-that-left*).
    pub canary_ignores_ended: bool,
    /// A fault on purpose: a directory is known completely though a name in it was recalled (*absent-name-uncovered*).
    pub canary_keeps_complete: bool,
    /// As [`RECALLS_KEPT_MAX`].
    pub recalls_kept: usize,
    /// As [`OWN_CHANGES_KEPT_MAX`], of what leases know.
    pub own_changes_kept: usize,
    /// A fault on purpose: an answer is kept though what it says was recalled since (*installs-after-confirm*).
    pub canary_installs_late: bool,
    /// A fault on purpose: a change that was given up is not made any more (*given-up-create*).
    pub canary_forgets_doubts: bool,
    /// A fault on purpose: what was asked for before a lapse gives leases (*revived-by-late-answer*).
    pub canary_revives: bool,
    /// A fault on purpose: what is recalled is confirmed before the kernel has dropped it (*acks-recall-before-inval*).
    pub canary_confirms_first: bool,
    /// A fault on purpose: names that are taken back stay valid in the kernel (*forgets-told-names*).
    pub canary_forgets_told_names: bool,
    /// A fault on purpose: a file is opened without asking though its close is on its way (*erases-leased-open*).
    pub canary_erases_opens: bool,
    /// As [`AHEAD_BYTES_MAX`].
    pub ahead_bytes: usize,
    /// A fault on purpose: what was read ahead is used though others have changed it since (*reads-old-ahead*).
    pub canary_keeps_ahead: bool,
    /// A fault on purpose: a chunk file that is shorter than was known has a hole there, though the file may have been cut since
    /// (*cut-read-as-hole*).
    pub canary_reads_cuts_as_holes: bool,
    /// A fault on purpose: what was read ahead at a constant distance is used though others have changed it since
    /// (*reads-old-records*).
    pub canary_keeps_records: bool,
    /// A fault on purpose: what the kernel does not know yet counts as dropped (*answer-overtakes-notify*).
    pub canary_unknown_is_gone: bool,
    /// The kernel asks for attributes before it reads from a page, if those that it has are not valid (AUTO_INVAL_DATA).
    pub checks: bool,
    /// A fault on purpose: who asks so is answered though older pages are there (*reads-old-pages*).
    pub canary_leaves_pages: bool,
    /// A fault on purpose: pages are filled up to the end of the file though the kernel may take it for longer (*ends-unknown*).
    pub canary_ends_unknown: bool,
}

impl Limits {
    /// Is the kernel told for how long it may use what leases cover?
    pub fn tells(&self) -> bool {
        self.leases && self.validity
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retry_ms: RETRY_LIMIT_MS,
            told_at_once: TOLD_AT_ONCE,
            canary_keeps_layout: false,
            canary_keeps_beliefs: false,
            kept_max: KEPT_OPENS_MAX,
            kept_ms: KEPT_OPENS_MS,
            idle_ms: IDLE_INODES_MS,
            changed_max: CHANGED_MAX,
            canary_forgets_touched: false,
            canary_tells_the_first: false,
            canary_opens_behind_losses: false,
            leases: false,
            validity: false,
            names: false,
            hasty_kernel: false,
            old_kernel: false,
            holds: false,
            gathers: false,
            gather_run: GATHER_RUN,
            canary_tells_unput: false,
            canary_reads_unput: false,
            canary_puts_unheard: false,
            cache_bytes: CACHE_MAX,
            canary_forgets_questions: false,
            canary_forgets_recalls: false,
            canary_counts_from_answers: false,
            canary_ignores_ended: false,
            canary_keeps_complete: false,
            recalls_kept: RECALLS_KEPT_MAX,
            own_changes_kept: OWN_CHANGES_KEPT_MAX,
            canary_installs_late: false,
            canary_forgets_doubts: false,
            canary_revives: false,
            canary_confirms_first: false,
            canary_forgets_told_names: false,
            canary_erases_opens: false,
            ahead_bytes: AHEAD_BYTES_MAX,
            canary_keeps_ahead: false,
            canary_reads_cuts_as_holes: false,
            canary_keeps_records: false,
            canary_unknown_is_gone: false,
            checks: false,
            canary_leaves_pages: false,
            canary_ends_unknown: false,
        }
    }
}
