//! A shard is read from its rows, brought up to date from the log, begins a term, and then its service.

use super::*;
use crate::choose::Recorded;
use crate::command::{Action, COMMAND_LEVEL_MAX, Command};
use crate::ctx::{Ctx, Scene};
use crate::fail::{Fail, corrupt};
use crate::group::Host;
use crate::key;
use crate::op;
use crate::row::header::{FORMAT, Header};
use crate::store::{Batch, Store, StoreError};
use alloc::format;
use skep_types::log::{Head, Record};
use skep_types::{Decode, Encode};
use skep_wire::meta::TermBegun;

impl Shard {
    /// One that was never formatted.
    pub fn new<S: Store>(host: &Host<S>, id: ShardId) -> Self {
        let limits = &host.config.limits;
        Self {
            id,
            keys: Keys::default(),
            epoch: 0,
            level: crate::command::COMMAND_LEVEL_MIN,
            era: 0,
            era_untold: false,
            given: None,
            leads: false,
            state: ShardState::New,
            serves: false,
            terms: Terms::default(),
            last: LogIndex(0),
            durable: LogIndex(0),
            started: None,
            reading: None,
            in_rows: BTreeSet::new(),
            serials: Serials::new(0),
            opens: Opens::new(limits.closes_remembered),
            locks: Locks::default(),
            ends: Ends::default(),
            grace: Grace::default(),
            remembered: Memories::new(limits.remembered),
            waits: Waits::new(limits.waits),
            again: VecDeque::new(),
            later: BTreeMap::new(),
            ready: VecDeque::new(),
            settling: BTreeMap::new(),
            ceasing: BTreeMap::new(),
            cutting: BTreeMap::new(),
            trimming: BTreeSet::new(),
            orphans: BTreeSet::new(),
            growths: BTreeSet::new(),
            dead_growths: BTreeSet::new(),
            holders: BTreeMap::new(),
            files_held: FilesHeld::default(),
            hold: None,
            lease_row: None,
            writers: BTreeSet::new(),
            unlent: BTreeSet::new(),
            recover_later: Vec::new(),
            next_sweep: None,
            chores: Chores::default(),
            deletions: Deletions::new(limits.deletions_loaded),
            trims: Trims::default(),
            seals: Seals::default(),
            recoveries: Recoveries::default(),
            txns: Txns::default(),
            lost: LostChunks::default(),
            least: Term(0),
            served: false,
            renew_at: None,
            deposed_at: Millis(0),
            is_vouched_for: false,
            deposed: 0,
            noted: None,
            noted_load: Load::default(),
        }
    }

    /// As its rows say; `None`: there are none.
    pub fn read<S: Store>(host: &Host<S>, id: ShardId) -> Result<Option<Self>, StoreError> {
        let Some(bytes) = host.store.get(&key::header(id))? else { return Ok(None) };
        let header = Header::from_bytes(&bytes).map_err(|e| corrupt("shard header", e))?;
        if header.format > FORMAT {
            return Err(StoreError::Corrupt(format!(
                "shard {id} has row format {}, this release knows {FORMAT}; start the newer release of skep that wrote it",
                header.format
            )));
        }
        if header.level > COMMAND_LEVEL_MAX {
            // Its rows may have fields that would be lost with the next change of them.
            return Err(StoreError::Corrupt(format!(
                "shard {id} has command level {}, this release knows up to {COMMAND_LEVEL_MAX}; start the newer release \
                 of skep that wrote it",
                header.level
            )));
        }
        let terms = host.store.get(&key::terms(id))?;
        let terms = terms.map(|bytes| Terms::from_bytes(&bytes).map_err(|e| corrupt("list of terms", e)));
        let last = host.store.applied_of(id)?.map_or(LogIndex(0), |head| head.index);
        Ok(Some(Self {
            keys: header.keys,
            epoch: header.epoch,
            level: header.level,
            era: header.era,
            era_untold: header.is_era_untold(),
            given: header.given,
            serials: Serials::new(header.serials_end),
            terms: terms.transpose()?.unwrap_or_default(),
            last,
            ..Self::new(host, id)
        }))
    }

    /// What is reserved of its numbers lies behind a jump, and its rows do not say any more of whom to wait.
    pub fn jumped<S: Store>(&mut self, host: &Host<S>) -> Result<(), StoreError> {
        let Some(bytes) = host.store.get(&key::header(self.id))? else { return Ok(()) };
        let header = Header::from_bytes(&bytes).map_err(|e| corrupt("shard header", e))?;
        self.serials = Serials::new(header.serials_end);
        self.era_untold = header.is_era_untold();
        Ok(())
    }

    /// Does this record follow the shard's newest?
    pub fn require_next(&self, record: &Record, head: Head) -> Result<(), StoreError> {
        if head.index.0 == self.last.0 + 1 && head.term >= self.term() {
            return Ok(());
        }
        Err(StoreError::Corrupt(format!(
            "log record {} is record {} of term {} of shard {}, where one behind record {} of term {} is needed; rows and \
             log are not of one server: restore both from one backup",
            record.seq,
            head.index,
            head.term,
            self.id,
            self.last,
            self.term()
        )))
    }

    /// What a record of the log changes in the rows.
    pub fn replay<S: Store>(
        &self,
        host: &Host<S>,
        record: &Record,
        command: &Command,
    ) -> Result<Batch, StoreError> {
        let mut recorded = Recorded(&command.choices);
        let scene = Scene {
            shard: self.id,
            keys: self.keys,
            hash: host.config.hash,
            at: command.at,
            term: record.term,
            index: record.index,
            caller: command.caller,
            client: command.caller.map_or(ClientId(0), |caller| caller.client),
            inline_limit: u32::MAX,
            replay: true,
        };
        let mut ctx = Ctx::new(&host.store, scene, &mut recorded);
        let done = match &command.action {
            Action::Internal(internal) => op::internal::run(&mut ctx, internal),
            Action::Request(request) => op::run(&mut ctx, request).map(|done| {
                let done = done.behind_its_gate(&ctx);
                run::put_slot(&mut ctx, &done);
            }),
        };
        match done {
            Ok(()) => Ok(ctx.txn.into_batch()),
            Err(Fail::Store(e)) => Err(e),
            Err(fail) => Err(StoreError::Corrupt(format!(
                "log record {} of shard {} was done once and is refused now ({fail:?}); rows and log are not \
                 of one server: restore both from one backup",
                record.index, self.id
            ))),
        }
    }

    /// Its rows hold the effects of this record.
    pub fn replayed(&mut self, index: LogIndex) {
        self.last = index;
    }

    /// Where the shard stands when its next term begins: behind all terms that an older copy of its rows may not know of.
    pub fn next_head(&self) -> Head {
        let term = Term((self.term().0 + 1).max(self.least.0));
        Head { shard: self.id, term, index: LogIndex(self.last.0 + 1) }
    }

    /// A term begins, with this record: here, or where the log was written.
    pub fn begin_term(&mut self, head: Head, record: &Record, batch: &mut Batch) -> Result<(), StoreError> {
        self.require_next(record, head)?;
        self.terms.push(head.term, head.index);
        batch.insert(key::terms(self.id), Some(self.terms.to_bytes()));
        self.last = head.index;
        Ok(())
    }

    /// Is everything known and durable, and does it not serve yet?
    pub fn can_begin<S: Store>(&self, host: &Host<S>) -> bool {
        self.awaits_service() && self.is_ready(host)
    }

    /// Service begins when everything is known and durable; `true` = just now.
    pub fn begin_service<S: Store>(&mut self, host: &mut Host<S>) -> Result<bool, StoreError> {
        if !self.can_begin(host) {
            return Ok(false);
        }
        self.serves = true;
        self.end_forgotten(host);
        // Whoever never had anything open here has nothing to tell; nobody had on a shard that was made just now. An older
        // copy that was put back says nothing of who came since.
        let may_hold = |client: &ClientId| self.era_untold || self.holders.contains_key(client);
        let living: BTreeSet<ClientId> = host.sessions.living().filter(may_hold).collect();
        let is_known = living.is_empty();
        // Another life of the server is noticed by itself. Of a term that begins in the same one hears who asks the shard, and
        // who waits for a lock on it asks nothing.
        if core::mem::replace(&mut self.served, true) {
            let begun = TermBegun { shard: self.id, term: self.term() };
            living.iter().for_each(|client| host.events.tell_of_term(*client, begun));
        }
        self.grace.begin(living, host.now, host.now.plus(host.config.grace_ms));
        self.hold_changes(host);
        if is_known {
            self.opens_known(host)?;
        }
        self.deletions.look_now(host.now);
        self.rescan_deletions(host)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::row::header::Keys;
    use crate::store::MemoryStore;
    use skep_types::LogSeq;

    /// Goal: rows of a later row format or command level are not served: what an older release does not know in them it
    /// would drop.
    #[test]
    fn rows_of_a_later_release_are_refused() {
        let id = ShardId(0);
        let read = |format, level| {
            let header = Header {
                format,
                shard: id,
                keys: Keys::default(),
                serials_end: 4_096,
                next_id: 1,
                away: 0,
                epoch: 1,
                level,
                era: 0,
                era_untold: None,
                given: None,
            };
            let mut store = MemoryStore::default();
            let batch = Batch::from([(key::header(id), Some(header.to_bytes()))]);
            store.apply(LogSeq(1), &[], batch).unwrap();
            Shard::read(&Host::new(Config::default(), store), id).map(|shard| shard.is_some())
        };
        assert_eq!(read(FORMAT, COMMAND_LEVEL_MAX), Ok(true));
        for (format, level, text) in
            [(FORMAT, COMMAND_LEVEL_MAX + 1, "command level"), (FORMAT + 1, COMMAND_LEVEL_MAX, "row format")]
        {
            assert!(read(format, level).is_err_and(|refused| format!("{refused}").contains(text)));
        }
    }
}
