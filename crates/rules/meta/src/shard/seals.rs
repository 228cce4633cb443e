//! Seals: the targets of an extent refuse what comes behind its end, then the file goes on elsewhere.

use super::Shard;
use super::stripes::Limit;
use super::waits::{For, Parked};
use crate::command::{Internal, SealBegun, Sealed};
use crate::fail::corrupt;
use crate::group::Host;
use crate::group::{Errands, Owner};
use crate::group::{Job, Request};
use crate::key::{self, Table};
use crate::limit::SEAL_FAILURES_MAX;
use crate::row::seal::Seal;
use crate::row::trim::Trim;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use skep_types::limits::EXTENTS_MAX;
use skep_types::{Decode, Encode, Errno, Ino, Kind, Stripe};
use skep_wire::meta::SealExtent;
use skep_wire::{Empty, Refusal, Status};

#[derive(Debug)]
struct Run {
    id: u64,
    /// Errands that are out, with their stripes.
    left: BTreeMap<u64, usize>,
    limits: Vec<Limit>,
}

/// Seals under way.
#[derive(Debug, Default)]
pub struct Seals {
    /// Files with a row.
    files: BTreeSet<Ino>,
    runs: BTreeMap<Ino, Run>,
}

impl Seals {
    /// There is a row.
    pub fn noted(&mut self, ino: Ino) {
        self.files.insert(ino);
    }

    /// Is the file being sealed? It counts as open as long.
    pub fn has(&self, ino: Ino) -> bool {
        self.files.contains(&ino)
    }

    /// There is none any more.
    pub fn forget(&mut self, ino: Ino, id: u64, errands: &mut Errands) {
        self.files.remove(&ino);
        if self.runs.get(&ino).is_some_and(|run| run.id == id) {
            for errand in self.runs.remove(&ino).map(|run| run.left).unwrap_or_default().into_keys() {
                errands.drop(errand);
            }
        }
    }

    /// The errand is repeated under another number.
    pub fn instead(&mut self, ino: Ino, stripe: usize, errand: u64) {
        if let Some(run) = self.runs.get_mut(&ino) {
            run.left.insert(errand, stripe);
        }
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.files.len()
    }
}

impl Shard {
    fn seal_row<S: Store>(&self, host: &Host<S>, ino: Ino) -> Result<Option<Seal>, StoreError> {
        let row = host.store.get(&key::of_ino(Table::Seal, ino))?;
        row.map(|bytes| Seal::from_bytes(&bytes).map_err(|e| corrupt("seal row", e))).transpose()
    }

    /// `SealExtent`: answered when the layout is newer than the sender's, as far as that can be had.
    pub(super) fn seal_extent<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        m: &SealExtent,
    ) -> Result<(), StoreError> {
        let (to, _shard) = (request.reply_to, request.call.shard);
        if let Some(bytes) = host.store.get(&key::of_ino(Table::Trim, m.ino))? {
            let id = Trim::from_bytes(&bytes).map_err(|e| corrupt("trim row", e))?.id;
            self.park(host, For::Trim(m.ino, id), Parked::Again(request.clone().into()));
            return Ok(());
        }
        if self.seal_row(host, m.ino)?.is_none() {
            match self.may_seal(host, request, m)? {
                Ok(Some(begun)) => {
                    if let Some(ran) = self.uncover(host, request, &[m.ino])? {
                        return self.ran(host, request.clone(), None, ran, None);
                    }
                    self.decide(host, &Internal::SealBegun(begun))?;
                }
                result => {
                    host.out.fetch_map |= host.spread.take_wants_map();
                    self.answer(host, to, self.stamp(), result.map(|_| Empty {}.to_bytes()));
                    return Ok(());
                }
            }
        }
        let Some(seal) = self.seal_row(host, m.ino)? else {
            self.answer(host, to, self.stamp(), Ok(Empty {}.to_bytes()));
            return Ok(());
        };
        let parked = match seal.extent == m.chunk.extent {
            true => Parked::Answer { to, stamp: self.stamp(), result: Ok(Empty {}.to_bytes()) },
            false => Parked::Again(request.clone().into()),
        };
        self.park(host, For::Seal(m.ino, seal.id), parked);
        Ok(())
    }

    /// What is to be begun; `None`: the layout is newer than the sender's already.
    fn may_seal<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        m: &SealExtent,
    ) -> Result<Result<Option<SealBegun>, Refusal>, StoreError> {
        if m.ino.shard() != request.call.shard {
            return Ok(Err(Refusal::with(Status::MALFORMED, "the inode belongs to another shard")));
        }
        if let Some(full) = m.full {
            // Also when it was found by a growth that is not in force: the next one goes elsewhere.
            host.spread.note_full(full);
        }
        let Some(inode) = self.inode(host, m.ino)? else { return Ok(Err(Errno::ESTALE.into())) };
        let layout = &inode.layout;
        if inode.kind != Kind::File || layout.is_inline() || layout.generation != m.generation {
            return Ok(Err(Status::STALE_GENERATION.into()));
        }
        let (Some(extent), Some(stripe)) = (layout.extent_of(&m.chunk), layout.stripe(&m.chunk)) else {
            return Ok(Ok(None));
        };
        let is_closed = extent.cut(usize::from(m.chunk.stripe)) < m.end;
        if is_closed || m.full.is_some_and(|full| !stripe.has(full)) {
            return Ok(Ok(None));
        }
        if layout.extents.len() >= EXTENTS_MAX {
            let text = format!(
                "target {} is full, and file {} has gone on elsewhere {EXTENTS_MAX} times already: copy it to a new one",
                m.full.unwrap_or(stripe.first()),
                m.ino
            );
            return Ok(Err(Refusal::with(Status::errno(Errno::ENOSPC), text)));
        }
        let stripes = host.spread.successors(inode.policy, extent, m.full, m.room);
        let begin = |stripes: Vec<Stripe>| {
            let (generation, extent) = (m.generation, extent.number);
            Some(SealBegun { ino: m.ino, generation, extent, stripes })
        };
        Ok(stripes.map(begin))
    }

    /// The intent is durable: the targets are told.
    pub(super) fn start_seal<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) -> Result<(), StoreError> {
        let Some(seal) = self.seal_row(host, ino)? else { return Ok(()) };
        if self.seals.runs.contains_key(&ino) {
            return Ok(());
        }
        let layout = self.inode(host, ino)?.map(|inode| inode.layout).unwrap_or_default();
        let extent = layout.extent(seal.extent).filter(|_| layout.generation == seal.generation);
        let count = extent.map_or(0, |extent| extent.stripes.len());
        let mut run =
            Run { id: seal.id, left: BTreeMap::new(), limits: alloc::vec![Limit::default(); count] };
        let chunks = extent.iter().flat_map(|extent| extent.named());
        for (chunk, target) in chunks.flat_map(|(chunk, on)| on.targets().iter().map(move |on| (chunk, *on)))
        {
            let (stripe, floor) = (usize::from(chunk.stripe), layout.floor(&chunk));
            let job = Job::Seal { target, chunk, floor };
            let errand = host.errands.send(Owner::Seal(ino, stripe), self.term(), job, &mut host.out);
            run.left.insert(errand, stripe);
        }
        self.seals.runs.insert(ino, run);
        self.seal_done(host, ino)
    }

    /// A target has sealed its chunk file, or will not (`None`): then that stripe stays open.
    pub(super) fn stripe_sealed<S: Store>(
        &mut self,
        host: &mut Host<S>,
        ino: Ino,
        errand: u64,
        limit: Option<u64>,
    ) -> Result<(), StoreError> {
        let Some(run) = self.seals.runs.get_mut(&ino) else { return Ok(()) };
        if let Some(stripe) = run.left.remove(&errand) {
            run.limits[stripe].note(limit);
        }
        self.seal_done(host, ino)
    }

    /// A target does not answer: after a while its stripe stays open.
    pub fn seal_failed<S: Store>(
        &mut self,
        host: &mut Host<S>,
        ino: Ino,
        errand: u64,
        failures: u32,
    ) -> Result<(), StoreError> {
        if failures < SEAL_FAILURES_MAX {
            return Ok(());
        }
        host.errands.drop(errand);
        self.stripe_sealed(host, ino, errand, None)
    }

    fn seal_done<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) -> Result<(), StoreError> {
        if self.seals.runs.get(&ino).is_none_or(|run| !run.left.is_empty()) {
            return Ok(());
        }
        let Some(run) = self.seals.runs.remove(&ino) else { return Ok(()) };
        let sealed = Sealed { ino, id: run.id, limits: run.limits.into_iter().map(Limit::of_all).collect() };
        self.decide(host, &Internal::Sealed(sealed))?;
        // It counted as open meanwhile.
        self.purge(host, alloc::vec![ino])
    }
}
