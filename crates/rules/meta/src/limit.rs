//! Named limits of a metadata server. Reaching one is an error that says so, or back-pressure.

/// Inode serials reserved by one command, before any of them is used.
pub const SERIAL_BLOCK: u64 = 4_096;
/// With fewer serials than this left, the next block is reserved.
pub const SERIAL_LOW: u64 = 2_048;
/// Inode serials that are left out when an older copy of a shard is put back: more than were given since it was made.
pub const ERA_SERIALS: u64 = 1 << 32;
/// Layout generations of a file that belong to one era of its shard, as a power of two ...
pub const ERA_GENERATION_BITS: u32 = 24;
/// ... and terms of a shard.
pub const ERA_TERM_BITS: u32 = 32;
/// Terms of all eras lie below: one that a target claims to have heard, from here on, nobody follows.
pub const TERMS_END: u64 = 1 << (ERA_TERM_BITS + u16::BITS);
/// Epochs of a shard in one history of mgmtd's registry, as a power of two: one that is put back from a backup goes on so far
/// behind it (`RESTORED_JUMP` in mgmtd's rules).
pub const EPOCH_HISTORY_BITS: u32 = 32;
/// Entries of one directory whose names may have the same hash.
pub const COLLISIONS_MAX: u32 = 256;
/// Requests that wait for something (a sync, a trim, another shard) at once; more are BUSY.
pub const WAITS_MAX: usize = 16_384;
/// Of what waits, requests and wishes for locks, so many end in one step because their time is over.
pub const WAITS_OVER_PER_STEP: usize = 1_024;
/// Requests that wait for rows from the disk at once; with so many, the next one reads in place.
pub const READS_MAX: usize = 1_024;
/// Rows and ranges that they wait for together; with so many, the next one reads in place.
pub const ROWS_AWAITED_MAX: usize = 65_536;
/// Rows that a report after a restart waits for at once: the largest needs some 12,000, and comes through with fewer waits
/// than [`READ_TRIES_MAX`], none of which takes a slow disk longer than [`WAIT_DEADLINE_MS`].
pub const REPORT_ROWS: usize = 512;
/// So often a request waits for rows, each time for others or because they were gone again; then it reads in place.
pub const READ_TRIES_MAX: u8 = 32;
/// Longest wait of an `Events`.
pub const EVENTS_WAIT_MAX_MS: u64 = 15_000;
/// Events in one answer to it.
pub const EVENTS_PER_MESSAGE_MAX: usize = 4_096;
/// Longest time a request waits; then it is BUSY and the client asks again.
pub const WAIT_DEADLINE_MS: u64 = 20_000;
/// Sessions that one server knows at once.
pub const SESSIONS_MAX: usize = 65_536;
/// Outcomes of requests without effect that a shard remembers in memory; the oldest go.
pub const REMEMBERED_MAX: usize = 65_536;
/// Closes that a shard remembers so that a late open cannot undo them.
pub const CLOSES_REMEMBERED_MAX: usize = 8_192;
/// Deletion-queue rows of one shard held in memory; the others are read again later.
pub const DELETIONS_LOADED_MAX: usize = 4_096;
/// Such rows that one step looks at, for those that are not in memory.
pub const DELETION_LOOKS: usize = 8_192;
/// Inodes open at all clients of one server together: about 200 bytes each.
pub const OPENS_MAX: usize = 4 << 20;
/// Inodes that a client may tell that it has open: the highest value that the setting for those of a client can have, or
/// had when they were opened.
pub const OPENS_TOLD_MAX: usize = 1 << 24;
/// Commands that one step works off of what has no bound of its own: the orphans of a grace period, the
/// lanes and files of a session that ended. The rest waits for the next step.
pub const CHORES_PER_STEP: usize = 16;
/// Members of a table in memory that one such command may look at.
pub const CHORE_LOOKS: usize = 1_024;
/// Rows that one step reads of shards whose terms begin: of what they were in the middle of, and of whom. A table without
/// rows counts as one.
pub const TERM_ROWS_PER_STEP: usize = 1_024;
/// Shards that one step tells of sessions that ended, each of each (of one session all shards hear in one step), and as many
/// whose service begins.
pub const SHARDS_TOLD_PER_STEP: usize = 4_096;
/// Errands whose pause is over that one step sends out again.
pub const ERRANDS_PER_STEP: usize = 256;
/// Requests that one step takes up again because what they waited for is over.
pub const RESUMED_PER_STEP: usize = 64;
/// Chunk files in one deletion request to a target.
pub const DELETE_BATCH: usize = 256;
/// Deletion-queue rows that one command takes off the queue.
pub const DELETED_BATCH: usize = 512;
/// Orphans that one command purges.
pub const PURGE_BATCH: usize = 64;
/// Files of evicted clients whose size one shard recovers at once; more wait in line.
pub const RECOVERIES_MAX: usize = 4_096;
/// Recoveries of a group whose rows a disk is to give at once, beside the [`READS_MAX`] requests: few, so that what requests
/// wait for is read soon.
pub const RECOVERY_READS_MAX: usize = 8;
/// A growth intent older than this is cancelled.
pub const GROWTH_AGE_MAX_MS: u64 = 600_000;
/// A growth intent of another lane younger than this is left alone: its owner is copying.
pub const GROWTH_AGE_MIN_MS: u64 = 2_000;
/// How often growth intents are looked over.
pub const GROWTH_SWEEP_MS: u64 = 60_000;
/// First pause before a failed errand to another server is repeated; doubles with every failure.
pub const RETRY_FIRST_MS: u64 = 100;
/// Bytes of rows after which a part of a shard that travels ends; a row more may be in it.
pub const TRAVEL_BYTES: usize = 128 << 10;
/// Pause between two parts of a sweep.
pub const SWEEP_PAUSE_MS: u64 = 5;
/// Longest such pause.
pub const RETRY_LAST_MS: u64 = 10_000;
/// Two servers that end each other's terms count as doing so until this has passed without it.
pub const CHASE_MS: u64 = 10 * RETRY_LAST_MS;
/// Deletion-queue rows that were left out of memory are looked for again after this.
pub const RESCAN_MS: u64 = 15_000;
/// Deepest directory that is moved safely: its ancestors are walked.
pub const DEPTH_MAX: usize = 65_536;
/// Terms whose first log index is remembered, for `Sync`.
pub const TERMS_MAX: usize = 1_024;
/// Bytes of one listing reply (the frame's body limit with room to spare).
pub const LIST_BYTES_MAX: usize = 768 * 1024;
/// Inodes in one `Close` or `Reclaim`, and locks in one `Reclaim`.
pub const OPENS_PER_MESSAGE_MAX: usize = 4_096;
/// Most targets that a progressive layout uses for its last extent.
pub const PROGRESSIVE_TARGETS_MAX: usize = 64;
/// Locks (ranges) on one file.
pub const LOCKS_PER_FILE_MAX: usize = 65_536;
pub const LOCKS_PER_CLIENT_MAX: usize = 262_144;
/// Locks on one metadata server.
pub const LOCKS_MAX: usize = 1 << 20;
/// Files of which it is remembered who was given locks.
pub const LOCKS_GIVEN_MAX: usize = 65_536;
/// Wishes for locks that wait on one metadata server.
pub const LOCK_WAITS_MAX: usize = 65_536;
/// Such wishes of one client, those included whose outcome it has not confirmed: so it bounds what is kept for it to hear.
pub const LOCK_WAITS_PER_CLIENT_MAX: usize = 16_384;
/// A wish that nothing stands in the way of but older wishes waits for its turn no longer than this.
pub const LOCK_TURN_MS: u64 = 5_000;
/// Owners of one client whose newest request on one file is remembered.
pub const LOCK_ORDERS_MAX: usize = 4_096;
/// Owners that the search for a circle of waiting owners looks at; a longer circle is not found.
pub const DEADLOCK_STEPS_MAX: usize = 65_536;
/// A storage pool that is not in the map is waited for this long: it may be very new.
pub const POOL_WAIT_MS: u64 = 2_000;
/// Such pools that are remembered.
pub const POOLS_ASKED_MAX: usize = 64;
/// A target that does not answer so often leaves its stripe of an extent open.
pub const SEAL_FAILURES_MAX: u32 = 8;
/// A target that a client called full gets no new chunks for so long, unless its free space is seen to grow: figures come
/// later. Nor does a metadata server get directories that has called itself full.
pub const FULL_MS: u64 = 5_000;

/// By so many bytes.
pub const ROOM_AGAIN: u64 = 1 << 20;
/// Transactions over shards that one shard has begun and not decided, and as many that it has decided and not everybody
/// has confirmed; more are BUSY.
pub const TXNS_MAX: usize = 1_024;
/// Transactions of others that one shard holds itself ready for.
pub const PREPARED_MAX: usize = 4_096;
/// Operations that a transaction has one participant do.
pub const TXN_OPS_MAX: usize = 8;
/// Transactions of one term that a shard begins beside one that is decided and not confirmed: participants keep a row of each
/// until that is. More are BUSY.
pub const TXNS_AHEAD_MAX: u64 = 1 << 20;
/// Transactions whose time has come that one step of a group goes on with: each may run an operation with reads in place.
pub const TXNS_DUE_PER_STEP: usize = 64;
/// Rows of finished transactions that a participant deletes with one command.
pub const TXNS_SWEPT: usize = 64;
/// Bytes of them.
pub const TXN_REDO_BYTES_MAX: usize = 192 << 10;
/// A participant that has not heard of the outcome asks for it after so long, and again.
pub const TXN_ASK_MS: u64 = 2_000;
/// A transaction that gave way to an older one is tried again after so long.
pub const TXN_AGAIN_MS: u64 = 100;
/// A shard that has failed so often to answer for a directory that was dealt to it does not get it: another one does.
pub const DEALT_FAILURES_MAX: u32 = 2;
/// Lines for the log of the daemon that one step may produce.
pub const NOTES_MAX: usize = 64;
/// Chunk files of which something is lost that a server remembers for `skep health`.
pub const LOST_CHUNKS_MAX: usize = 4_096;
/// One that no client has met for so long is forgotten: it may have been put back.
pub const LOST_FOR_MS: u64 = 60 * 60_000;

/// Longest time for which a lease holds. The setting may have been another one in the term before, so a new term waits for this;
/// and who talks but does not confirm is waited for twice as long, less than any request waits.
pub const LEASE_MS_MAX: u64 = 4_000;
const _: () = assert!(3 * LEASE_MS_MAX < WAIT_DEADLINE_MS);
/// Leases of all clients of one server: about 250 bytes each. With so many, answers give none.
pub const LEASES_MAX: usize = 1 << 20;
/// Leases of one client.
pub const LEASES_PER_CLIENT_MAX: usize = 1 << 18;
/// Clients that have a lease on one inode.
pub const LEASE_HOLDERS_MAX: usize = 256;
/// With so many conflicts at once, or more than 2.8 a second, an inode is lent to nobody for a while. With the last two of them
/// it is wanted back.
pub const BUSY_AT: u64 = 10;
/// Inodes of which it is remembered that they were taken back a short while ago.
pub const BUSY_MAX: usize = 1 << 16;
/// Inodes of which one answer tells that they have changed: of a rename both directories, what moves, and what goes.
pub const CHANGED_PER_ANSWER: usize = 8;
/// Leases that one step takes apart of those that ended together, with a term or a mount's lapse. They count as nothing before.
pub const LEASES_SWEPT_PER_STEP: usize = 1_024;
/// So many times as long as leases may be in use the row that there may be some stays when nobody wishes for any: so that who
/// works with pauses does not have it written again and again.
pub const LEASE_ROW_STAYS: u64 = 2;
/// Files of one client that it holds on one shard: nobody else is told anything of them before it has told.
pub const FILES_HELD_PER_CLIENT_MAX: usize = 1_024;
/// The same of all clients.
pub const FILES_HELD_MAX: usize = 65_536;
/// So long after the end of a hold of which nothing was told its row ceases to say that there may be one, with those of others.
pub const UNHELD_MS: u64 = 1_000;
/// As often it is looked, while somebody waits for a holder, whether that is silent: so a server that works steps as often.
pub const LOOK_MS: u64 = 250;
/// With so much between two steps it stood still, or had nothing to do: what it was sent meanwhile it may not have read.
pub const STOOD_STILL_MS: u64 = 1_000;
const _: () = assert!(2 * LOOK_MS < STOOD_STILL_MS);
/// Files of which one command says so. With so many it does not wait.
pub const UNHELD_BATCH: usize = 1_024;
/// Leases that one answer gives.
pub const GRANTS_PER_ANSWER: usize = 4;

/// The limits that a run of the simulator may draw smaller, so that it meets them.
#[derive(Debug, Clone)]
pub struct Limits {
    /// [`CHORES_PER_STEP`].
    pub chores_per_step: usize,
    /// [`CHORE_LOOKS`].
    pub chore_looks: usize,
    /// [`ERRANDS_PER_STEP`].
    pub errands_due: usize,
    /// [`RESUMED_PER_STEP`].
    pub resumed_per_step: usize,
    /// [`PURGE_BATCH`].
    pub purge_batch: usize,
    /// [`DELETED_BATCH`].
    pub deleted_batch: usize,
    /// Rows of one part of a shard that travels, or is swept.
    pub travel_rows: usize,
    /// [`DELETIONS_LOADED_MAX`].
    pub deletions_loaded: usize,
    /// [`TXNS_AHEAD_MAX`].
    pub txns_ahead: u64,
    /// [`TERM_ROWS_PER_STEP`].
    pub term_rows: usize,
    /// [`TXNS_DUE_PER_STEP`].
    pub txns_due: usize,
    /// [`DELETION_LOOKS`].
    pub deletion_looks: usize,
    /// [`REMEMBERED_MAX`].
    pub remembered: usize,
    /// [`CLOSES_REMEMBERED_MAX`].
    pub closes_remembered: usize,
    /// [`RECOVERIES_MAX`].
    pub recoveries: usize,
    /// [`WAITS_MAX`].
    pub waits: usize,
    /// [`READS_MAX`].
    pub reads: usize,
    /// [`RECOVERY_READS_MAX`].
    pub recovery_reads: usize,
    /// [`WAITS_OVER_PER_STEP`].
    pub waits_over: usize,
    /// [`REPORT_ROWS`].
    pub report_rows: usize,
    /// [`SHARDS_TOLD_PER_STEP`].
    pub shards_told: usize,
    /// [`LEASES_MAX`].
    pub leases: usize,
    /// [`LEASES_PER_CLIENT_MAX`].
    pub leases_per_client: usize,
    /// [`LEASE_HOLDERS_MAX`].
    pub lease_holders: usize,
    /// [`BUSY_AT`].
    pub busy_at: u64,
    /// [`FILES_HELD_MAX`].
    pub files_held: usize,
    /// [`FILES_HELD_PER_CLIENT_MAX`].
    pub files_held_per_client: usize,
    /// [`LEASE_MS_MAX`]: in a run nobody may set more, or have set it.
    pub lease_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            chores_per_step: CHORES_PER_STEP,
            chore_looks: CHORE_LOOKS,
            errands_due: ERRANDS_PER_STEP,
            resumed_per_step: RESUMED_PER_STEP,
            purge_batch: PURGE_BATCH,
            deleted_batch: DELETED_BATCH,
            travel_rows: 1_024,
            deletions_loaded: DELETIONS_LOADED_MAX,
            txns_ahead: TXNS_AHEAD_MAX,
            term_rows: TERM_ROWS_PER_STEP,
            txns_due: TXNS_DUE_PER_STEP,
            deletion_looks: DELETION_LOOKS,
            remembered: REMEMBERED_MAX,
            closes_remembered: CLOSES_REMEMBERED_MAX,
            recoveries: RECOVERIES_MAX,
            waits: WAITS_MAX,
            reads: READS_MAX,
            recovery_reads: RECOVERY_READS_MAX,
            waits_over: WAITS_OVER_PER_STEP,
            report_rows: REPORT_ROWS,
            shards_told: SHARDS_TOLD_PER_STEP,
            leases: LEASES_MAX,
            leases_per_client: LEASES_PER_CLIENT_MAX,
            lease_holders: LEASE_HOLDERS_MAX,
            busy_at: BUSY_AT,
            files_held: FILES_HELD_MAX,
            files_held_per_client: FILES_HELD_PER_CLIENT_MAX,
            lease_ms: LEASE_MS_MAX,
        }
    }
}
