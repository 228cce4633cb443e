//! Start: rows, replay of the log, a new term, what was under way.

use super::absorb::Later;
use super::message::{Output, Record, misplaced};
use super::*;
use crate::command::{Action, Command, Internal, NewTerm};
use crate::ctx::{Ctx, Scene};
use crate::fail::{Fail, corrupt};
use crate::key::{self, Table};
use crate::limit::ERA_TERM_BITS;
use crate::op;
use crate::row::header::Keys;
use alloc::format;
use skep_types::Decode;

impl<S: Store> Server<S> {
    /// Over rows that are as old as the store says; the log is to be replayed from there.
    pub fn new(config: Config, store: S) -> Result<Self, StoreError> {
        let terms = match store.get(&key::header(key::SERVER))? {
            Some(bytes) => Terms::from_bytes(&bytes).map_err(|e| corrupt("list of terms", e))?,
            None => Terms::default(),
        };
        let last = store.applied();
        let mut server = Self {
            spread: Spread::new(&config),
            opens: Opens::new(config.limits.closes_remembered),
            remembered: Memories::new(config.limits.remembered),
            waits: Waits::new(config.limits.waits),
            deletions: Deletions::new(config.limits.deletions_loaded),
            chores: Chores::default(),
            cutting: BTreeMap::new(),
            config,
            terms,
            last,
            durable: LogIndex(0),
            started: None,
            own: NodeId(0),
            now: Millis(0),
            map: None,
            low_space: false,
            shards: BTreeMap::new(),
            locks: Locks::default(),
            ends: Ends::default(),
            sessions: Sessions::default(),
            grace: Grace::default(),
            again: VecDeque::new(),
            later: BTreeMap::new(),
            settling: BTreeMap::new(),
            orphans: BTreeSet::new(),
            growths: BTreeSet::new(),
            unworded: BTreeSet::new(),
            dead_growths: BTreeSet::new(),
            writers: BTreeSet::new(),
            recover_later: Vec::new(),
            next_sweep: None,
            errands: Errands::default(),
            trims: Trims::default(),
            seals: Seals::default(),
            recoveries: Recoveries::default(),
            lost: LostChunks::default(),
            loop_calls: VecDeque::new(),
            loop_answers: VecDeque::new(),
            counters: Counters::default(),
            failed: None,
            store,
        };
        for shard in server.shards_in_rows()? {
            server.open_shard(shard)?;
        }
        Ok(server)
    }

    fn shards_in_rows(&self) -> Result<Vec<ShardId>, StoreError> {
        let mut shards = Vec::new();
        let mut from = key::header(ShardId(0));
        loop {
            let mut next = None;
            self.store.scan(&from, &key::header(key::SERVER), &mut |key, _| {
                next = key.first_chunk().map(|raw| ShardId(u16::from_be_bytes(*raw)));
                false
            })?;
            let Some(shard) = next else { return Ok(shards) };
            shards.push(shard);
            from = key::header(ShardId(shard.0 + 1));
        }
    }

    /// Applies a record of the log that the rows do not hold yet. In order, before
    /// [`Server::start`].
    pub fn replay(&mut self, record: &Record) -> Result<(), StoreError> {
        if record.index <= self.last {
            return Ok(());
        }
        if record.index.0 != self.last.0 + 1 {
            return Err(misplaced(record, LogIndex(self.last.0 + 1)));
        }
        let command = Command::decode(&record.bytes, record.shard, record.index)?;
        let batch = self.replay_command(record, &command)?;
        self.store.apply(record.index, batch)?;
        self.last = record.index;
        match command.action {
            Action::Internal(Internal::NewTerm(m)) => self.terms.push(m.term, record.index),
            Action::Internal(Internal::Format(_) | Internal::Serials(_) | Internal::Place(_)) => {
                self.open_shard(record.shard)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn replay_command(&self, record: &Record, command: &Command) -> Result<crate::store::Batch, StoreError> {
        let mut recorded = crate::choose::Recorded(&command.choices);
        let scene = Scene {
            shard: record.shard,
            keys: self.shards.get(&record.shard).map_or(Keys::default(), |shard| shard.keys),
            hash: self.config.hash,
            at: command.at,
            term: record.term,
            index: record.index,
            caller: command.caller,
            client: command.caller.map_or(skep_types::ClientId(0), |caller| caller.client),
            inline_limit: u32::MAX,
            replay: true,
        };
        let mut ctx = Ctx::new(&self.store, scene, &mut recorded);
        let done = match &command.action {
            Action::Internal(internal) => op::internal::run(&mut ctx, internal),
            Action::Request(request) => op::run(&mut ctx, request).map(|done| {
                let done = done.behind_its_gate(&ctx);
                lane::put_slot(&mut ctx, &done);
            }),
        };
        match done {
            Ok(()) => Ok(ctx.txn.into_batch()),
            Err(Fail::Store(e)) => Err(e),
            Err(fail) => Err(StoreError::Corrupt(format!(
                "log record {} of shard {} was done once and is refused now ({fail:?}); rows and log are not \
                 of one server: restore both from one backup",
                record.index, record.shard
            ))),
        }
    }

    /// The log is replayed: a new term begins. Its first record must be durable before anything
    /// is answered, so that no stamp of a lost tail can look like one of this term.
    pub fn start(&mut self, wall: Timestamp, out: &mut Output) -> Result<(), StoreError> {
        // The terms that an older copy of the log does not know of are not used a second time either.
        let term = Term((self.terms.last().0 + 1).max(u64::from(self.config.era) << ERA_TERM_BITS));
        let index = LogIndex(self.last.0 + 1);
        self.terms.push(term, index);
        self.locks.outcomes.begin(term);
        self.decide(wall, key::SERVER, &Internal::NewTerm(NewTerm { term }), out)?;
        self.started = Some(index);
        out.sync_now = true;
        for place in self.shards.values_mut() {
            place.last = index;
        }
        for shard in self.shards.keys().copied().collect::<Vec<_>>() {
            self.find_open_ends(shard, index)?;
        }
        Ok(())
    }

    /// What a shard was in the middle of.
    fn find_open_ends(&mut self, shard: ShardId, start: LogIndex) -> Result<(), StoreError> {
        let numbers = |table| {
            let (from, until) = key::table(shard, table);
            let mut found = Vec::new();
            self.store.scan(&from, &until, &mut |key, _| {
                found.push(key::last_u64(key));
                true
            })?;
            Ok::<_, StoreError>(found)
        };
        let (trims, remotes) = (numbers(Table::Trim)?, numbers(Table::RemoteIntent)?);
        let seals = numbers(Table::Seal)?;
        let (orphans, growths) = (numbers(Table::Orphan)?, numbers(Table::Growth)?);
        let (from, until) = key::table(shard, Table::Writer);
        let writers = &mut self.writers;
        self.store.scan(&from, &until, &mut |key, _| {
            writers.extend(key::writer_of(key));
            true
        })?;
        let (from, until) = key::table(shard, Table::DeadGrowth);
        let dead = &mut self.dead_growths;
        self.store.scan(&from, &until, &mut |key, _| {
            dead.extend(key::slot_of(key).map(|(client, slot)| (shard, client, slot)));
            true
        })?;
        self.orphans.extend(orphans.into_iter().map(Ino));
        self.growths.extend(growths.into_iter().map(Ino));
        let later = trims.into_iter().map(|ino| Later::Trim(Ino(ino)));
        let later = later.chain(remotes.into_iter().map(|txid| Later::Remote(shard, txid)));
        let later = later.chain(seals.iter().map(|ino| Later::Seal(Ino(*ino))));
        self.later.entry(start).or_default().extend(later);
        seals.into_iter().for_each(|ino| self.seals.noted(Ino(ino)));
        Ok(())
    }

    /// Values of the moment, for `ShardStats`.
    pub(crate) fn gauges(&self) -> [(&'static str, u64); 19] {
        [
            ("open_files", self.opens.len() as u64),
            ("sessions", self.sessions.living().count() as u64),
            ("waiting", self.waits.len() as u64),
            ("errands", self.errands.len() as u64),
            ("deletions_loaded", self.deletions.len() as u64),
            ("trims", self.trims.len() as u64),
            ("seals", self.seals.len() as u64),
            ("orphans", self.orphans.len() as u64),
            ("chores", self.chores.len() as u64),
            ("growths", self.growths.len() as u64),
            ("recoveries", self.recoveries.len() as u64),
            ("writers", self.writers.len() as u64),
            ("log_index", self.last.0),
            ("locks", self.locks.held() as u64),
            ("lock_waits", self.locks.waits() as u64),
            ("appended_files", self.ends.len() as u64),
            ("lost_chunk_files", self.lost.len(self.now) as u64),
            ("lost_chunk_file_of", self.lost.example(self.now)),
            ("lost_chunk_errors", self.lost.times()),
        ]
    }
}
