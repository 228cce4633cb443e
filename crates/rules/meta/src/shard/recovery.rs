//! A writer was evicted: the size of its files is what their chunk files say.

use super::Shard;
use super::stripes::Answers;
use crate::command::{Internal, Recovered};
use crate::group::Host;
use crate::group::Job;
use crate::group::Sessions;
use crate::group::{Errands, Owner};
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
    /// No room yet.
    waiting: BTreeSet<Ino>,
}

impl Recoveries {
    /// Is one waiting that there is room for?
    pub fn can_begin(&self, most: usize) -> bool {
        !self.waiting.is_empty() && self.runs.len() < most
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
        self.runs.len() + self.waiting.len()
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
        if self.recoveries.can_begin(host.config.limits.recoveries) {
            self.recoveries.waiting.pop_first()
        } else {
            None
        }
    }

    /// Asks the targets of a file for the lengths of its chunk files, if a writer of it has ended.
    pub(super) fn recover<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) -> Result<(), StoreError> {
        let writers = self.writers.range((ino, ClientId(0))..=(ino, ClientId(u64::MAX)));
        let ended = writers.map(|(_, client)| *client).filter(|client| !host.sessions.lives(*client));
        let clients: Vec<ClientId> = ended.collect();
        // While a truncate is on its way the lengths mean nothing; its end leads here again.
        if clients.is_empty() || self.recoveries.runs.contains_key(&ino) || self.is_trimming(host, ino)? {
            return Ok(());
        }
        let Some(inode) = self.inode(host, ino)? else { return Ok(()) };
        if self.recoveries.runs.len() >= host.config.limits.recoveries {
            self.recoveries.waiting.insert(ino);
            return Ok(());
        }
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
