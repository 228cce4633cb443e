//! A writer was evicted: the size of its files is what their chunk files say.

use super::Shard;
use super::stripes::Answers;
use super::trims::inode_in;
use crate::command::{Internal, Recovered};
use crate::group::{Errands, Host, Job, Owner, Read, Sessions};
use crate::key::{self, Table};
use crate::near::Near;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ChunkId, ClientId, Generation, Ino, Layout, TargetId};
use skep_wire::storage::ChunkStat;

#[derive(Debug)]
struct Recovery {
    generation: Generation,
    layout: Layout,
    left: BTreeSet<u64>,
    found: Answers,
    clients: Vec<ClientId>,
}

/// Recoveries under way.
#[derive(Debug, Default)]
pub struct Recoveries {
    runs: BTreeMap<Ino, Recovery>,
    /// They begin a few in each step, as far as there is room.
    waiting: BTreeSet<Ino>,
    /// Of which files the rows are read, by the number of the read.
    reading: BTreeMap<u64, Ino>,
}

impl Recoveries {
    /// The file waits for its turn.
    pub fn line_up(&mut self, ino: Ino) {
        self.waiting.insert(ino);
    }

    fn has_room(&self, most: usize) -> bool {
        self.runs.len() + self.reading.len() < most
    }

    /// Is one waiting that there is room for in this shard?
    pub fn can_begin(&self, most: usize) -> bool {
        !self.waiting.is_empty() && self.has_room(most)
    }

    /// The file is gone.
    pub fn forget(&mut self, ino: Ino, errands: &mut Errands) {
        self.waiting.remove(&ino);
        for errand in self.runs.remove(&ino).map(|run| run.left).unwrap_or_default() {
            errands.drop(errand);
        }
    }

    /// The recovery waits for this errand too.
    pub fn also(&mut self, ino: Ino, errand: u64) {
        if let Some(run) = self.runs.get_mut(&ino) {
            run.left.insert(errand);
        }
    }

    /// How many are under way or waiting.
    pub fn len(&self) -> usize {
        self.runs.len() + self.waiting.len() + self.reading.len()
    }
}

/// Has a writer of `ino` ended whose last size nobody has asked for yet? As if he still lived.
pub fn is_open_ended(writers: &BTreeSet<(Ino, ClientId)>, sessions: &Sessions, ino: Ino) -> bool {
    let mut of = writers.range((ino, ClientId(0))..=(ino, ClientId(u64::MAX)));
    of.any(|(_, client)| !sessions.lives(*client))
}

impl Shard {
    /// The next recovery that waited for room.
    pub(super) fn next_recovery<S: Store>(&mut self, host: &mut Host<S>) -> Option<Ino> {
        let limits = &host.config.limits;
        let can_begin =
            self.recoveries.can_begin(limits.recoveries) && host.reads.has_room_for_recovery(limits);
        if can_begin { self.recoveries.waiting.pop_first() } else { None }
    }

    /// Asks the targets of a file for the lengths of its chunk files, if a writer of it has ended; once its rows are in
    /// memory. Nobody waits for it as for a request, so it never makes others wait for a disk: without room it lines up.
    pub(super) fn recover<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) -> Result<(), StoreError> {
        self.recover_by(host, ino, false)
    }

    /// The rows of a file that is to be recovered from were read.
    pub(super) fn recovery_read<S: Store>(
        &mut self,
        host: &mut Host<S>,
        read: u64,
    ) -> Result<(), StoreError> {
        // One that is gone again from a small cache is read in place: waiting once more might never end.
        let ino = self.recoveries.reading.remove(&read);
        ino.map_or(Ok(()), |ino| self.recover_by(host, ino, true))
    }

    fn recover_by<S: Store>(
        &mut self,
        host: &mut Host<S>,
        ino: Ino,
        in_place: bool,
    ) -> Result<(), StoreError> {
        let writers = self.writers.range((ino, ClientId(0))..=(ino, ClientId(u64::MAX)));
        let ended = writers.map(|(_, client)| *client).filter(|client| !host.sessions.lives(*client));
        let clients: Vec<ClientId> = ended.collect();
        if clients.is_empty() || self.recoveries.runs.contains_key(&ino) {
            return Ok(());
        }
        let limits = &host.config.limits;
        let may_read = in_place || host.reads.has_room_for_recovery(limits);
        if !(may_read && self.recoveries.has_room(limits.recoveries)) {
            self.recoveries.line_up(ino);
            return Ok(());
        }
        let near = Near::new(&host.store, in_place);
        let (trim, inode) = (near.get(&key::of_ino(Table::Trim, ino)), inode_in(&near, ino));
        let lacks = near.take_lacks();
        if !lacks.is_empty() {
            let id = host.reads.begin_recovery(self.id, lacks.len());
            host.out.reads.push(Read { id, wanted: lacks });
            self.recoveries.reading.insert(id, ino);
            return Ok(());
        }
        // While a truncate is on its way the lengths mean nothing; its end leads here again.
        let (None, Some(inode)) = (trim?, inode?) else { return Ok(()) };
        let mut by_target: BTreeMap<TargetId, Vec<ChunkId>> = BTreeMap::new();
        for (chunk, target) in inode.layout.chunks() {
            by_target.entry(target).or_default().push(chunk);
        }
        let jobs = by_target.into_iter().map(|(target, chunks)| Job::Stat { target, chunks });
        let term = self.term();
        let left =
            jobs.map(|job| host.errands.send(Owner::Recovery(ino), term, job, &mut host.out)).collect();
        let (generation, layout) = (inode.layout.generation, inode.layout);
        self.recoveries
            .runs
            .insert(ino, Recovery { generation, layout, left, found: Answers::default(), clients });
        Ok(())
    }

    /// A target answered.
    pub(super) fn recovered<S: Store>(
        &mut self,
        host: &mut Host<S>,
        ino: Ino,
        errand: u64,
        asked: &[ChunkId],
        stats: &[ChunkStat],
    ) -> Result<(), StoreError> {
        let Some(run) = self.recoveries.runs.get_mut(&ino) else { return Ok(()) };
        run.left.remove(&errand);
        for (chunk, stat) in asked.iter().zip(stats) {
            run.found.note(*chunk, stat.size, stat.blocks);
        }
        if !run.left.is_empty() {
            return Ok(());
        }
        let clients = core::mem::take(&mut run.clients);
        let (size, blocks) = (run.found.end(&run.layout), run.found.blocks());
        let done = Recovered { ino, generation: run.generation, size, blocks, clients };
        self.recoveries.runs.remove(&ino);
        // Another writer may have ended since.
        self.recover_later.push(ino);
        self.decide(host, &Internal::Recovered(done))
    }
}
