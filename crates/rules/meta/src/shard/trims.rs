//! Truncates: every chunk file of the layout is told its new length.

use super::Shard;
use super::stripes::Answers;
use crate::command::{Internal, Trimmed};
use crate::fail::corrupt;
use crate::group::Host;
use crate::group::Job;
use crate::group::{Errands, Owner};
use crate::key::{self, Table};
use crate::row::Inode;
use crate::row::trim::Trim;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use skep_types::{ChunkId, Decode, Ino};

#[derive(Debug)]
struct Run {
    id: u64,
    left: BTreeSet<u64>,
    found: Answers,
}

/// Truncates under way.
#[derive(Debug, Default)]
pub struct Trims {
    runs: BTreeMap<Ino, Run>,
}

impl Trims {
    /// Nobody waits for it any more.
    pub fn forget(&mut self, ino: Ino, id: u64, errands: &mut Errands) {
        if self.runs.get(&ino).is_some_and(|run| run.id == id) {
            for errand in self.runs.remove(&ino).map(|run| run.left).unwrap_or_default() {
                errands.drop(errand);
            }
        }
    }

    /// The truncate waits for this errand too.
    pub fn also(&mut self, ino: Ino, errand: u64) {
        if let Some(run) = self.runs.get_mut(&ino) {
            run.left.insert(errand);
        }
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.runs.len()
    }
}

/// An inode row, outside of any operation.
pub(super) fn inode_in(rows: &(impl Store + ?Sized), ino: Ino) -> Result<Option<Inode>, StoreError> {
    let row = rows.get(&key::inode(ino))?;
    row.map(|bytes| Inode::from_bytes(&bytes).map_err(|e| corrupt("inode row", e))).transpose()
}

impl Shard {
    /// An inode row, read in place.
    pub(crate) fn inode<S: Store>(&self, host: &Host<S>, ino: Ino) -> Result<Option<Inode>, StoreError> {
        inode_in(&host.store, ino)
    }

    /// Is a truncate of the file not told to all targets yet?
    pub(super) fn is_trimming<S: Store>(&self, host: &Host<S>, ino: Ino) -> Result<bool, StoreError> {
        Ok(host.store.get(&key::of_ino(Table::Trim, ino))?.is_some())
    }

    /// The intent is durable: the targets are told.
    pub(super) fn start_trim<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) -> Result<(), StoreError> {
        let Some(bytes) = host.store.get(&key::of_ino(Table::Trim, ino))? else { return Ok(()) };
        let trim = Trim::from_bytes(&bytes).map_err(|e| corrupt("trim row", e))?;
        let Some(inode) = self.inode(host, ino)? else { return Ok(()) };
        if self.trims.runs.contains_key(&ino) {
            return Ok(());
        }
        let keeps_reserved = trim.longer == Some(true);
        let mut run = Run { id: trim.id, left: BTreeSet::new(), found: Answers::default() };
        for (chunk, target) in inode.layout.chunks() {
            let extent = inode.layout.extent_of(&chunk);
            let size = extent.map_or(0, |extent| extent.local_size(usize::from(chunk.stripe), trim.size));
            let job = Job::Trim { target, chunk, size, keeps_reserved };
            run.left.insert(host.errands.send(Owner::Trim(ino), self.term(), job, &mut host.out));
        }
        let empty = run.left.is_empty();
        self.trims.runs.insert(ino, run);
        if empty { self.trimmed(host, ino, None) } else { Ok(()) }
    }

    /// A target confirmed: errand, chunk file, its blocks. `None`: there was none to be told.
    pub(super) fn trimmed<S: Store>(
        &mut self,
        host: &mut Host<S>,
        ino: Ino,
        told: Option<(u64, ChunkId, u64)>,
    ) -> Result<(), StoreError> {
        let Some(run) = self.trims.runs.get_mut(&ino) else { return Ok(()) };
        if let Some((errand, chunk, blocks)) = told {
            run.left.remove(&errand);
            run.found.note(chunk, 0, blocks);
        }
        if !run.left.is_empty() {
            return Ok(());
        }
        let done = Trimmed { ino, id: run.id, blocks: run.found.blocks() };
        self.trims.runs.remove(&ino);
        self.decide(host, &Internal::Trimmed(done))
    }
}
