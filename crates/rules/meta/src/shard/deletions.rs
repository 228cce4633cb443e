//! The deletion queue is worked off: one request per target at a time, many chunk files in each.
//! Rows stay in the store until every target has confirmed; memory holds a bounded part of them,
//! and a target that is away keeps nobody else's chunks waiting.

use super::Shard;
use crate::command::{Deleted, Internal};
use crate::fail::corrupt;
use crate::group::Host;
use crate::group::{Errands, Owner};
use crate::group::{Job, Output};
use crate::key::{self, Table};
use crate::limit::{DELETE_BATCH, RESCAN_MS, RETRY_FIRST_MS};
use crate::row::deletion::Deletion;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use skep_types::{ChunkId, Decode, LogIndex, Millis, ShardId, TargetId, Term};

/// Number of a row of the deletion queue.
type RowId = u64;
type Chunks = Vec<(TargetId, ChunkId)>;

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<(RowId, ChunkId)>,
    /// The request that is out, and the rows it is for.
    out: Option<(u64, Vec<RowId>)>,
    /// It has not answered for a while.
    away: bool,
}

/// Rows in memory, by target.
#[derive(Debug, Default)]
pub struct Deletions {
    /// Rows in memory at most.
    most: usize,
    /// Queued, their record perhaps not durable.
    fresh: VecDeque<(LogIndex, RowId, Chunks)>,
    /// Chunk files left of each row.
    left: BTreeMap<RowId, usize>,
    lanes: BTreeMap<TargetId, Lane>,
    /// Confirmed by all; to be taken off the queue.
    done: Vec<RowId>,
    /// Rows were left out: look for them at this time.
    rescan_at: Option<Millis>,
    rescan: bool,
    /// Such a look goes on here.
    scanned: Option<Vec<u8>>,
}

impl Deletions {
    /// With so many rows in memory.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// A row was queued by record `index`.
    pub fn queued(&mut self, row: RowId, index: LogIndex, chunks: Vec<(TargetId, ChunkId)>) {
        if self.left.len() + self.fresh.len() >= self.most {
            self.rescan = true;
        } else {
            self.fresh.push_back((index, row, chunks));
        }
    }

    /// Rows may be in the store that are not in memory.
    pub fn look_now(&mut self, now: Millis) {
        self.rescan_at = Some(now);
    }

    /// When to do something.
    pub fn deadline(&self) -> Option<Millis> {
        self.rescan_at
    }

    /// Rows in memory.
    pub fn len(&self) -> usize {
        self.left.len() + self.fresh.len()
    }

    /// Are there rows in the store that are not in memory, perhaps?
    pub fn has_left_out(&self) -> bool {
        self.rescan || self.rescan_at.is_some()
    }

    fn load(&mut self, row: RowId, chunks: Vec<(TargetId, ChunkId)>) {
        if chunks.is_empty() {
            self.done.push(row);
            return;
        }
        self.left.insert(row, chunks.len());
        for (target, chunk) in chunks {
            self.lanes.entry(target).or_default().queue.push_back((row, chunk));
        }
    }

    /// Would loading the row only wait for targets that are away?
    fn is_stuck(&self, chunks: &[(TargetId, ChunkId)]) -> bool {
        chunks.iter().any(|(target, _)| self.lanes.get(target).is_some_and(|lane| lane.away))
    }

    /// The target does not answer: its rows make room for others, all but the request that is
    /// being repeated (which tells when it is back).
    fn away(&mut self, target: TargetId) {
        let Some(lane) = self.lanes.get_mut(&target) else { return };
        lane.away = true;
        let kept: BTreeSet<RowId> = lane.out.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
        let evicted: BTreeSet<RowId> =
            lane.queue.iter().map(|(row, _)| *row).filter(|row| !kept.contains(row)).collect();
        if evicted.is_empty() {
            return;
        }
        for lane in self.lanes.values_mut() {
            lane.queue.retain(|(row, _)| !evicted.contains(row));
        }
        // Requests that are out for such a row find nothing to count down.
        for row in &evicted {
            self.left.remove(row);
        }
        self.rescan = true;
    }

    fn dispatch(&mut self, (shard, term): (ShardId, Term), errands: &mut Errands, out: &mut Output) {
        for (target, lane) in &mut self.lanes {
            if lane.out.is_some() || lane.queue.is_empty() {
                continue;
            }
            let count = lane.queue.len().min(DELETE_BATCH);
            let (rows, chunks): (Vec<_>, Vec<_>) = lane.queue.drain(..count).unzip();
            let job = Job::Delete { target: *target, chunks };
            let id = errands.send(Owner::Deletion(shard, *target), term, job, out);
            lane.out = Some((id, rows));
        }
    }
}

impl Shard {
    /// Sends out what is durable; takes confirmed rows off the queue.
    pub(super) fn work_off_deletions<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        while self.deletions.fresh.front().is_some_and(|(index, _, _)| *index <= self.durable) {
            if let Some((_, row, chunks)) = self.deletions.fresh.pop_front() {
                self.deletions.load(row, chunks);
            }
        }
        self.take_off(host)?;
        if self.deletions.rescan && self.deletions.rescan_at.is_none() {
            // Soon when there is nothing else to do, but never in a spin.
            let pause = if self.deletions.len() == 0 { RETRY_FIRST_MS } else { RESCAN_MS };
            self.deletions.rescan_at = Some(host.now.plus(pause));
        }
        let of = (self.id, self.term());
        self.deletions.dispatch(of, &mut host.errands, &mut host.out);
        Ok(())
    }

    fn take_off<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        for ids in core::mem::take(&mut self.deletions.done).chunks(host.config.limits.deleted_batch) {
            self.decide(host, &Internal::Deleted(Deleted { ids: ids.to_vec() }))?;
        }
        Ok(())
    }

    /// A target confirmed a batch.
    pub(super) fn deleted<S: Store>(
        &mut self,
        host: &mut Host<S>,
        target: TargetId,
    ) -> Result<(), StoreError> {
        let Some(lane) = self.deletions.lanes.get_mut(&target) else { return Ok(()) };
        if core::mem::take(&mut lane.away) {
            self.deletions.rescan_at = Some(host.now);
        }
        for row in lane.out.take().map(|(_, rows)| rows).unwrap_or_default() {
            let Some(left) = self.deletions.left.get_mut(&row) else { continue };
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.deletions.left.remove(&row);
                self.deletions.done.push(row);
            }
        }
        if self.deletions.lanes.get(&target).is_some_and(|lane| lane.queue.is_empty()) {
            self.deletions.lanes.remove(&target);
        }
        self.work_off_deletions(host)
    }

    /// A target did not confirm; the request is repeated.
    pub fn deletion_failed(&mut self, target: TargetId, failures: u32) {
        if failures >= 2 {
            self.deletions.away(target);
        }
    }

    /// Looks in the store for rows that are not in memory.
    pub(super) fn rescan_deletions<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        if self.deletions.rescan_at.is_none_or(|at| host.now < at) {
            return Ok(());
        }
        self.deletions.rescan_at = None;
        if self.deletions.scanned.is_none() {
            self.deletions.rescan = false;
        }
        self.load_deletions(host)?;
        if self.deletions.scanned.is_some() {
            self.deletions.rescan_at = Some(host.now);
        }
        self.work_off_deletions(host)
    }

    fn load_deletions<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        let (from, until) = key::table(self.id, Table::Deletion);
        let fresh: BTreeSet<RowId> = self.deletions.fresh.iter().map(|(_, row, _)| *row).collect();
        let out: BTreeSet<RowId> = self
            .deletions
            .lanes
            .values()
            .flat_map(|lane| lane.out.iter())
            .flat_map(|(_, rows)| rows)
            .copied()
            .collect();
        let mut failed = None;
        let mut looks = host.config.limits.deletion_looks;
        let (store, deletions, durable) = (&host.store, &mut self.deletions, self.durable);
        let from = deletions.scanned.take().unwrap_or(from);
        store.scan(&from, &until, &mut |key, bytes| {
            if looks == 0 {
                deletions.scanned = Some(key.to_vec());
                return false;
            }
            looks -= 1;
            let row = key::last_u64(key);
            if deletions.left.contains_key(&row) || fresh.contains(&row) {
                return true;
            }
            let Deletion { index, chunks } = match Deletion::from_bytes(bytes) {
                Ok(deletion) => deletion,
                Err(e) => {
                    failed = Some(corrupt("deletion row", e));
                    return false;
                }
            };
            // A row with a request still out is counted when that returns; later then.
            if index > durable || deletions.is_stuck(&chunks) || out.contains(&row) {
                deletions.rescan = true;
                return true;
            }
            if deletions.len() >= deletions.most {
                deletions.rescan = true;
                return false;
            }
            deletions.load(row, chunks);
            true
        })?;
        failed.map_or(Ok(()), Err)
    }
}
