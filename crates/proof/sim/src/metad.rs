//! The hands of the metadata server: a log of which a part is on stable storage, rows with
//! checkpoints, and what a kill or a power cut leaves of them.

use crate::Canary;
use crate::deeds::Theme;
use crate::hub::{CallId, Hub, Place};
use crate::kernel::Seen;
use crate::lending::Lending;
use crate::together::is_of_deed;
use crate::world::INODE_TABLE;
use skep_meta::limit::Limits;
use skep_meta::store::{Batch, MemoryStore, Store, Wanted};
use skep_meta::{Action, Command, Config, Group, Input, Internal, Job, Output};
use skep_types::log::{EntryKind, Moves, Record};
use skep_types::{ClientId, Decode, Incarnation, Ino, LogIndex, LogSeq, NodeId, SetAttr, ShardId, Term};
use skep_wire::meta::MetaRequest;
use std::collections::BTreeMap;

/// Milliseconds that clients have to reclaim what they have open: longer than a session lives in
/// silence, or a client that is away for a while would lose its opens and not know it.
pub const GRACE_MS: u64 = crate::mgmtd::SESSION_TIMEOUT_MS + 2_000;

/// What the rules shall get wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faulty {
    /// A sync of the log does nothing.
    pub no_sync: bool,
    /// Answers leave before their records are in the log.
    pub answers_first: bool,
    /// The memory of lanes is ignored.
    pub runs_retries: bool,
    /// Work without a bound of its own is done in one step.
    pub one_big_step: bool,
    /// Votes leave before their records are durable.
    pub votes_early: bool,
    /// What a coordinator has finished is prepared once more.
    pub takes_strays: bool,
    /// A decision does not tell the lane.
    pub leaves_lane: bool,
    /// Shards whose rows are missing are made anew.
    pub formats_missing: bool,
    /// Leases are given on what is being taken back.
    pub grants_while_recalling: bool,
    /// Leases end with their session.
    pub ends_with_session: bool,
    /// The hold counts from the start of the process.
    pub holds_by_process: bool,
    /// The row that there may be leases goes with a session.
    pub row_goes: bool,
    /// A repeated create opens for writing, and nobody is told.
    pub reopens_unseen: bool,
    /// What is renamed was covered by its new directory.
    pub cover_follows: bool,
    /// Others are answered about a held file, whose holder is asked behind that.
    pub asks_later: bool,
    /// Who holds a file no longer tells of it.
    pub takes_late_tells: bool,
    /// Who holds a file is passed over though it is heard.
    pub passes_early: bool,
    /// Who was passed over tells of a file that others have changed.
    pub tells_late: bool,
    /// A hold that is asked for is given though another client has the file open.
    pub holds_beside: bool,
    /// Who looks at a held file is answered by a word that was on its way when he came.
    pub answers_late_looks: bool,
}

impl Faulty {
    /// What a canary gets wrong.
    pub fn of(canary: Option<Canary>) -> Self {
        let is = |fault| canary == Some(fault);
        Self {
            no_sync: is(Canary::NoSync),
            answers_first: is(Canary::AnswersFirst),
            runs_retries: is(Canary::RunsRetries),
            one_big_step: is(Canary::OneBigStep),
            votes_early: is(Canary::DecidesBeforeVotesAreDurable),
            takes_strays: is(Canary::StrayPrepare),
            leaves_lane: is(Canary::LaneLeftBehind),
            formats_missing: is(Canary::FormatsWhatIsMissing),
            grants_while_recalling: is(Canary::GrantsWhileRecalling),
            ends_with_session: is(Canary::SessionEndEndsLeases),
            holds_by_process: is(Canary::HoldsByProcess),
            row_goes: is(Canary::RowGoesWithSession),
            reopens_unseen: is(Canary::ReopensUnseen),
            cover_follows: is(Canary::CoverFollowsNewName),
            asks_later: is(Canary::TellsBehindTheAnswer),
            takes_late_tells: is(Canary::ToldTwice),
            passes_early: is(Canary::PassesOverTooEarly),
            tells_late: is(Canary::TellsLateOverOthers),
            holds_beside: is(Canary::HoldsBesideOthers),
            answers_late_looks: is(Canary::AnswersLateLooks),
        }
    }
}

/// In seeds that are about histories so many of a hundred records that tell of a held file are followed by a power cut ...
const CUT_BEHIND_TELL: u64 = 8;
/// ... within so many milliseconds.
const CUT_MAX_MS: u64 = 30;

/// Of half the seeds the limits are so small that a run meets them.
fn limits(seed: u64) -> Limits {
    if seed.is_multiple_of(2) {
        return Limits::default();
    }
    let draw =
        |n: u64, from: usize| from + (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (7 * n)) as usize % 4;
    Limits {
        chores_per_step: 1,
        chore_looks: draw(1, 1),
        errands_due: draw(4, 1),
        resumed_per_step: draw(2, 1),
        purge_batch: draw(3, 1),
        travel_rows: draw(8, 3),
        deletions_loaded: draw(4, 8),
        deletion_looks: draw(9, 3),
        txns_due: draw(6, 1),
        waits_over: draw(5, 1),
        term_rows: draw(5, 4),
        remembered: draw(5, 2),
        closes_remembered: draw(6, 2),
        recoveries: draw(7, 1),
        reads: draw(9, 1),
        recovery_reads: draw(8, 1),
        report_rows: draw(8, 1),
        shards_told: draw(6, 1),
        ..Limits::default()
    }
}

/// Of a third of the seeds rows are on a disk, which takes its time.
fn rows_of(seed: u64) -> MemoryStore {
    if seed.is_multiple_of(3) { MemoryStore::on_disk() } else { MemoryStore::default() }
}

/// Permille of the steps before which all rows on a disk are forgotten.
const FORGETS: u64 = 100;

/// Records that one step may write where limits are that small: what it was asked, a request or two that waited, a
/// chore in each shard.
const STEP_RECORDS_MAX: usize = 12;
/// Rows that such a step may read in place, where they are on a disk.
const STEP_READS_MAX: usize = 24;
/// Tasks for other servers that such a step may start.
const STEP_TASKS_MAX: usize = 32;
/// Records that a map adds to these bounds for each shard: its place, or its format ...
const MAP_RECORDS_MAX: usize = 3;
/// ... rows read in place, and tasks: what was asked of it goes elsewhere, or its rows are asked for.
const MAP_READS_MAX: usize = 4;

pub struct Metad {
    pub node: NodeId,
    /// Which of the metadata servers.
    number: usize,
    /// Which process it is a group of, and whose wall clock.
    pub process: usize,
    server: Option<Group<MemoryStore>>,
    config: Config,
    faulty: Faulty,
    log: Vec<Record>,
    /// Up to there the log is on stable storage.
    durable: u64,
    /// Up to there the server believes so.
    told: u64,
    /// Rows as of a durable index.
    checkpoint: MemoryStore,
    /// Rows that become the checkpoint when their index is durable.
    candidate: Option<MemoryStore>,
    /// Rows that survived a kill in the page cache.
    survived: Option<MemoryStore>,
    /// All rows, while it runs without those of this shard.
    mislaid: Option<(MemoryStore, ShardId)>,
    /// Records that are not in the log although they were answered.
    late: Vec<Record>,
    /// A sync is under way.
    pub syncing: bool,
    /// Somebody asked for a sync meanwhile.
    pub sync_again: bool,
    /// Calls to other servers, and what they are for.
    pub tasks: BTreeMap<CallId, Job>,
    /// A tick is planned for then.
    pub tick_at: Option<u64>,
}

/// What a power cut left.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    /// The log ended there.
    pub had: u64,
    /// And ends there now.
    pub has: u64,
}

impl Metad {
    /// Without rows and log.
    pub fn new(
        node: NodeId,
        (number, process): (usize, usize),
        seed: u64,
        (faulty, lending): (Faulty, &Lending),
    ) -> Self {
        let mut limits = limits(seed);
        lending.limit_server(&mut limits);
        let mut key = [0; 16];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = number as u8;
        let config = Config {
            seed: key,
            chunk_size: skep_types::limits::CHUNK_MIN,
            grace_ms: GRACE_MS,
            canary_runs_retries: faulty.runs_retries,
            canary_one_big_step: faulty.one_big_step,
            canary_votes_early: faulty.votes_early,
            canary_takes_strays: faulty.takes_strays,
            canary_leaves_lane: faulty.leaves_lane,
            canary_formats_missing: faulty.formats_missing,
            canary_grants_while_recalling: faulty.grants_while_recalling,
            canary_ends_with_session: faulty.ends_with_session,
            canary_holds_by_process: faulty.holds_by_process,
            canary_row_goes: faulty.row_goes,
            canary_reopens_unseen: faulty.reopens_unseen,
            canary_cover_follows: faulty.cover_follows,
            canary_asks_later: faulty.asks_later,
            canary_takes_late_tells: faulty.takes_late_tells,
            canary_passes_early: faulty.passes_early,
            canary_tells_late: faulty.tells_late,
            canary_holds_beside: faulty.holds_beside,
            canary_answers_late_looks: faulty.answers_late_looks,
            limits,
            ..Config::default()
        };
        Self {
            node,
            number,
            process,
            server: None,
            config,
            faulty,
            log: Vec::new(),
            durable: 0,
            told: 0,
            checkpoint: rows_of(seed),
            candidate: None,
            survived: None,
            mislaid: None,
            late: Vec::new(),
            syncing: false,
            sync_again: false,
            tasks: BTreeMap::new(),
            tick_at: None,
        }
    }

    /// The rules, when the daemon is up.
    pub fn server(&self) -> Option<&Group<MemoryStore>> {
        self.server.as_ref()
    }

    /// The term of the root's shard, if it has begun here.
    pub fn root_term(&self) -> Term {
        let server = self.server.as_ref().filter(|server| server.has_term(Ino::ROOT.shard()));
        server.and_then(|server| server.standing(Ino::ROOT.shard())).map_or(Term(0), |stamp| stamp.term)
    }

    /// A place in its log.
    pub fn at(&self, index: u64) -> Place {
        Place { metad: self.number, index }
    }

    /// Index of the newest record in the log.
    pub fn last(&self) -> u64 {
        self.log.last().map_or(0, |record| record.seq.0)
    }

    /// The daemon starts: rows, replay. `false`: it does not.
    pub fn start(&mut self, life: Incarnation, hub: &mut Hub) -> bool {
        self.config.life = life;
        self.config.lease_ms = hub.lending.setting(&mut hub.rng);
        // The log is synced when it is opened, before mgmtd is told how far it got.
        self.durable = self.last();
        let rows = self.survived.take().unwrap_or_else(|| self.checkpoint.clone());
        if rows.applied().0 < self.last() {
            hub.coverage.hit("rows fell back to a checkpoint");
        }
        let result = Group::new(self.config.clone(), rows).and_then(|mut server| {
            for record in &self.log {
                server.replay(record)?;
            }
            server.start();
            Ok(server)
        });
        match result {
            Ok(server) => self.server = Some(server),
            Err(e) => hub.fail(format!("metad does not start: {e}")),
        }
        self.server.is_some()
    }

    /// How far its log is durable: what a daemon tells of itself when it registers.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// One input.
    pub fn step(&mut self, input: Input, hub: &mut Hub) -> Option<Output> {
        let (now, wall) = (hub.mono(self.process), hub.wall(self.process));
        let server = self.server.as_mut()?;
        if self.checkpoint.is_on_disk() && hub.permille(FORGETS) {
            server.store().forget();
        }
        let mut out = Output::default();
        let is_map = matches!(input, Input::Map { .. });
        let bounded = self.config.limits.chores_per_step == 1;
        server.store().take_read_in_place();
        if let Err(e) = server.step(now, wall, input, &mut out) {
            if self.mislaid.is_some() {
                hub.say(format_args!("metad {} ends: {e}", self.node));
                return None;
            }
            hub.fail(format!("metad stops: {e}"));
            return None;
        }
        let made_anew = |(_, shard): &mut (_, ShardId)| server.shards().any(|made| made == *shard);
        if is_map && self.mislaid.as_mut().is_some_and(made_anew) {
            self.mislaid = None;
        }
        if bounded {
            let in_place = server.store().take_read_in_place();
            // A map looks at each shard.
            let shards = if is_map { server.shards().count() } else { 0 };
            check_bounds(&out, in_place, shards, hub);
        }
        Some(out)
    }

    /// The disk has given these rows.
    pub fn bring(&self, wanted: &[Wanted]) {
        if let Some(server) = &self.server {
            server.store().bring(wanted);
        }
    }

    /// One input, perhaps while the disk is nearly full.
    pub fn step_in(&mut self, input: Input, low: bool, hub: &mut Hub) -> Option<Output> {
        if !low {
            return self.step(input, hub);
        }
        // Any of the three may do what was due.
        let inputs = [Input::LowSpace(true), input, Input::LowSpace(false)];
        inputs.into_iter().try_fold(Output::default(), |out, input| Some(join(out, self.step(input, hub)?)))
    }

    /// Ends the term of a shard, and begins the next.
    pub fn restart_term(&mut self, shard: ShardId, hub: &mut Hub) -> Output {
        let mut out = Output::default();
        let (now, wall) = (hub.mono(self.process), hub.wall(self.process));
        if let Some(server) = &mut self.server
            && let Err(e) = server.restart_term(now, wall, shard, &mut out)
        {
            hub.fail(format!("metad stops: {e}"));
        }
        out
    }

    /// Its rows are all there, and hold what the log does: as they are.
    pub fn whole_rows(&self) -> Option<MemoryStore> {
        let store = self.server.as_ref().filter(|_| self.mislaid.is_none())?.store();
        (store.applied().0 == self.last()).then(|| store.clone())
    }

    /// It was killed, and starts the next time without the rows of a shard, say because a disk is not mounted.
    pub fn mislay(&mut self, rows: MemoryStore, shard: ShardId) {
        let mut batch = Batch::new();
        let (from, until) = (shard.0.to_be_bytes(), (shard.0 + 1).to_be_bytes());
        let mut left = rows.clone();
        let scanned = rows.scan(&from, &until, &mut |key, _| {
            batch.insert(key.to_vec(), None);
            true
        });
        if scanned.and_then(|()| left.apply(rows.applied(), &[], batch)).is_ok() {
            (self.survived, self.mislaid) = (Some(left), Some((rows, shard)));
        }
    }

    /// Does it run without rows that it should have?
    pub fn lacks_rows(&self) -> bool {
        self.mislaid.is_some()
    }

    /// Where its copy of the shard stands.
    pub fn head_of(&self, shard: ShardId) -> Option<(Term, LogIndex)> {
        let head = self.server()?.store().applied_of(shard).ok()??;
        Some((head.term, head.index))
    }

    /// Appends the records of a step. `true`: some of them are to be appended late.
    pub fn append(&mut self, records: Vec<Record>, hub: &mut Hub) -> bool {
        for record in &records {
            attribute(record, self.at(record.seq.0), hub);
        }
        let now = hub.now;
        hub.truth.settle(now, |ino| self.row_of(ino));
        if self.faulty.answers_first && !records.is_empty() {
            self.late.extend(records);
            return true;
        }
        self.log.extend(records);
        false
    }

    /// What its rows say of an inode.
    pub fn row_of(&self, ino: Ino) -> Option<Seen> {
        self.inode(ino).map(|inode| Seen::of(&inode.attr(ino)))
    }

    /// Does its row say that somebody may hold it?
    pub fn may_be_held(&self, ino: Ino) -> bool {
        self.inode(ino).is_some_and(|inode| inode.flags & skep_meta::MAY_BE_HELD != 0)
    }

    fn inode(&self, ino: Ino) -> Option<skep_meta::Inode> {
        let mut key = Vec::from(ino.shard().0.to_be_bytes());
        key.push(INODE_TABLE);
        key.extend(ino.0.to_be_bytes());
        let behind = [&key[..], &[0]].concat();
        let mut found = None;
        // A scan leaves no trace of what was read, as the server would.
        let _ = self.server()?.store().scan(&key, &behind, &mut |_, value| {
            found = skep_meta::Inode::from_bytes(value).ok();
            true
        });
        found
    }

    /// Appends what was answered already.
    pub fn append_late(&mut self) {
        self.log.append(&mut self.late);
    }

    /// A sync begins: up to which record it will make the log durable. `None` = nothing to do.
    pub fn sync_begins(&mut self) -> Option<LogSeq> {
        let last = self.last();
        if self.syncing || self.server.is_none() || last <= self.told {
            return None;
        }
        self.syncing = true;
        Some(LogSeq(last))
    }

    pub fn sync_ended(&mut self, index: LogSeq) {
        self.syncing = false;
        self.told = self.told.max(index.0);
        if self.faulty.no_sync {
            return;
        }
        self.durable = self.durable.max(index.0);
        if let Some(rows) = self.candidate.take_if(|rows| rows.applied() <= index) {
            self.checkpoint = rows;
        }
    }

    /// Takes the rows as they are; once durable they are the checkpoint.
    pub fn begin_checkpoint(&mut self) {
        // Rows that lack something are another disk's.
        if self.candidate.is_none() && self.late.is_empty() && self.mislaid.is_none() {
            self.candidate = self.server.as_ref().map(|server| server.store().clone());
        }
    }

    /// The process is gone; the operating system is not. Rows may have reached the disk or not.
    pub fn kill(&mut self, hub: &mut Hub) {
        let rows = self.server.take().map(Group::into_store);
        let in_log = rows.filter(|rows| rows.applied().0 <= self.last());
        self.survived = in_log.filter(|_| hub.rng.percent(50));
        if let Some((rows, _)) = self.mislaid.take() {
            self.survived = Some(rows);
        }
        self.forget_process();
    }

    fn forget_process(&mut self) {
        self.late.clear();
        self.tasks.clear();
        (self.syncing, self.sync_again) = (false, false);
        self.tick_at = None;
        self.told = 0;
    }

    /// The power goes: the log keeps what was synced, and some of the rest.
    pub fn lose_power(&mut self, hub: &mut Hub) -> Left {
        self.server = None;
        (self.candidate, self.survived, self.mislaid) = (None, None, None);
        self.forget_process();
        let had = self.last();
        let kept = self.durable.min(had) + hub.rng.below(had.saturating_sub(self.durable) + 1);
        let has = if hub.rng.percent(60) { self.durable.min(had) } else { kept };
        self.log.retain(|record| record.seq.0 <= has);
        // After a restart the log is read back from the disk: it is all there for good.
        self.durable = self.last();
        Left { had, has }
    }
}

/// What two steps want done, one after the other.
fn join(mut first: Output, second: Output) -> Output {
    let Output {
        records,
        replies,
        tasks,
        reads,
        reads_given_up,
        sync_now,
        fetch_fences,
        fetch_map,
        notes,
        warnings,
    } = second;
    first.records.extend(records);
    first.replies.extend(replies);
    first.tasks.extend(tasks);
    first.reads.extend(reads);
    first.reads_given_up.extend(reads_given_up);
    first.sync_now |= sync_now;
    first.fetch_fences |= fetch_fences;
    first.fetch_map |= fetch_map;
    first.notes.extend(notes);
    first.warnings.extend(warnings);
    first
}

/// What one step does where it works off one chore, and gives a place to so many shards. The end of a session in a shard
/// is a chore of its own.
fn check_bounds(out: &Output, in_place: usize, shards: usize, hub: &mut Hub) {
    let (records, tasks) = (&out.records, out.tasks.len());
    let reads_max = STEP_READS_MAX + shards * MAP_READS_MAX;
    if in_place > reads_max || tasks > STEP_TASKS_MAX + shards {
        hub.fail(format!("one step of metad reads {in_place} rows in place and starts {tasks} tasks"));
    }
    let ends_a_session = |record: &&Record| {
        record.kind == EntryKind::Command
            && Command::decode(&record.bytes, record.shard, record.index).is_ok_and(|command| {
                matches!(command.action, Action::Internal(Internal::SessionGone(m)) if m.client != ClientId(0))
            })
    };
    let ended = records.iter().filter(ends_a_session).count();
    if ended > 1 || records.len() > STEP_RECORDS_MAX + shards * MAP_RECORDS_MAX {
        hub.fail(format!(
            "one step of metad writes {} records and ends sessions in {ended} shards",
            records.len()
        ));
    }
}

/// Notes which step of which lane a record belongs to.
fn attribute(record: &Record, at: Place, hub: &mut Hub) {
    if let Ok(moves) = Moves::from_bytes(&record.bytes)
        && record.kind == EntryKind::Moves
    {
        hub.coverage.hit(if moves.came.is_empty() {
            "a shard's rows went"
        } else {
            "a shard came from another metad"
        });
    }
    if record.kind != EntryKind::Command {
        return;
    }
    let command = match Command::decode(&record.bytes, record.shard, record.index) {
        Ok(command) => command,
        Err(e) => return hub.fail(format!("record {} cannot be read back: {e}", record.seq)),
    };
    mark(&command.action, hub);
    let ticket = command.caller.map(|caller| (caller.client, caller.slot.0, record.shard, caller.seq.0));
    if let (Action::Request(MetaRequest::Tell(m)), Some(ticket)) = (&command.action, ticket) {
        if hub.deeds.theme == Theme::Histories && !hub.calm && hub.rng.percent(CUT_BEHIND_TELL) {
            hub.provoked = Some(hub.now + hub.rng.below(CUT_MAX_MS));
        }
        let is_empty = m.content.is_none() && m.commit.is_none() && m.set == SetAttr::default();
        // It is held from its create, or from when that was asked for, to the word that ends that.
        let keeps = command.choices.keeps == Some(true);
        if keeps {
            hub.tells.is_flagged(m.ino, at, true);
        }
        let begins = is_empty && keeps;
        if begins {
            hub.tells.begins(m.ino, at);
        }
        let asks = is_empty && m.keeps == Some(true);
        if !(begins || asks || hub.tells.tells(m.ino, (at, ticket), keeps)) {
            hub.fail(format!("record {} tells of inode {}, which was told of before", record.seq, m.ino.0));
        }
    }
    if let Action::Internal(Internal::Unheld(m)) = &command.action {
        m.inos.iter().for_each(|ino| hub.tells.is_flagged(*ino, at, false));
    }
    if let Err(what) = hub.record(at, record.shard, &command) {
        hub.fail(format!("record {}: {what}", record.seq));
    }
    let Some(ticket) = ticket else { return };
    let Some(step) = hub.tickets.get(&ticket).copied() else {
        return hub.fail(format!("record {} is of a request that nobody sent: {ticket:?}", record.seq));
    };
    let before = hub.executed.insert(ticket, at);
    // A nameless file that was purged before its maker heard of it is made anew.
    let anew = matches!(command.action, Action::Request(MetaRequest::CreateTemp(_)));
    if before.is_some() && !hub.retries_run_twice && !anew {
        hub.fail(format!("record {}: a request is executed twice: {ticket:?}", record.seq));
    }
    hub.say(format_args!("record {} is of {} step {}", record.seq, step.0, step.1));
    if !is_of_deed(&command.action, step.1) {
        return;
    }
    let index = hub.indices.entry(step).or_default().entry(at.metad).or_default();
    *index = (*index).max(at.index);
}

fn mark(action: &Action, hub: &mut Hub) {
    let marker = match action {
        Action::Request(MetaRequest::Switch(_)) => "a file grew out of the metadata",
        Action::Request(MetaRequest::CreateTemp(_)) => "a nameless file was made",
        Action::Request(MetaRequest::Tell(_)) => "a held file was told",
        Action::Internal(Internal::Unheld(_)) => "files were held no longer, and nothing told of them",
        Action::Internal(Internal::CancelGrowth(m)) if m.over.is_some() => {
            "a growth's chunks were deleted a second time"
        }
        Action::Internal(Internal::CancelGrowth(_)) => "a growth was given up",
        Action::Internal(Internal::Purge(_)) => "an orphan was purged",
        _ => return,
    };
    hub.coverage.hit(marker);
}
