//! Files that were closed, made durable in the background. A server that is silent keeps nobody else waiting for long.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{
    QUICK_MS, SYNC_CLOSED_BATCH, SYNC_CLOSED_MS, SYNC_CLOSED_PATIENCE_MS, SYNC_LOOK_MS, SYNC_SILENT_MS,
    SYNC_SMALLER_MAX,
};
use crate::op::sync::SyncGroup;
use crate::port::{Cell, Port};
use crate::state::Shared;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{Millis, NodeId};

/// How it goes.
#[derive(Debug, Default)]
pub(crate) struct ClosedSync {
    /// Storage servers that gave no answer in time, and when they are asked again.
    silent: BTreeMap<NodeId, Millis>,
    /// How often the number of files of a round is to be halved: what a slow disk syncs in time.
    smaller: u32,
}

impl ClosedSync {
    fn batch(&self) -> usize {
        SYNC_CLOSED_BATCH >> self.smaller
    }

    /// A round of requests is over.
    fn settle(&mut self, jobs: &[Job<'_>], now: Millis, took: u64) {
        if took >= SYNC_CLOSED_PATIENCE_MS {
            self.smaller = SYNC_SMALLER_MAX.min(self.smaller + 2);
        } else if took < QUICK_MS {
            self.smaller = self.smaller.saturating_sub(1);
        }
        // One answer will do: a target that is bad or slow is no silent server.
        let mut silent: BTreeMap<NodeId, bool> = BTreeMap::new();
        for job in jobs {
            if let Some(node) = job.node {
                *silent.entry(node).or_insert(took >= QUICK_MS) &= job.unanswered;
            }
        }
        for (node, silent) in silent {
            if silent {
                // Among several it may have been another one that let all wait: it is asked alone, soon.
                let again = if self.silent.contains_key(&node) { now.plus(SYNC_SILENT_MS) } else { now };
                self.silent.insert(node, again);
            } else {
                self.silent.remove(&node);
            }
        }
    }
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Makes durable what was written to files that are closed by now, so that little is lost with a power cut and
    /// nothing is in doubt for long. For a lane of its own: a target may take its time. Says in how many
    /// milliseconds it wants to be called again.
    pub async fn sync_closed(&self) -> u64 {
        let now = self.port.now();
        let before = Millis(now.0.saturating_sub(SYNC_CLOSED_MS));
        let (due, batch) = self.shared.with(|s| match (s.has_session(), s.syncing.batch()) {
            (true, batch) => (s.inodes.take_closed(before, batch), batch),
            (false, batch) => (Vec::new(), batch),
        });
        if due.is_empty() {
            return SYNC_LOOK_MS;
        }
        let ok = self.sync_and_tell(&due, false).await.is_ok();
        let now = self.port.now();
        self.shared.with(|s| s.inodes.tried(&due, now));
        if due.len() == batch && ok { 1 } else { SYNC_LOOK_MS }
    }

    /// Sends requests to storage servers once, and notes which of them are silent.
    pub(crate) async fn once_in_time(&self, jobs: &mut [Job<'_>]) {
        let asked = self.port.now();
        self.port.wanted_for(Some(SYNC_CLOSED_PATIENCE_MS));
        self.once_each(jobs).await;
        self.port.wanted_for(None);
        let now = self.port.now();
        self.shared.with(|s| s.syncing.settle(jobs, now, now.since(asked)));
    }
}

impl Shared {
    /// Requests in the order in which they are to be sent: to all servers that answer, then to one that was silent.
    pub(crate) fn in_turn(&self, groups: Vec<SyncGroup>, now: Millis) -> Vec<Vec<SyncGroup>> {
        let silent = &self.syncing.silent;
        let node = |group: &SyncGroup| self.node_of(To::Target(group.target));
        let due = |group: &SyncGroup| {
            let node = node(group)?;
            silent.get(&node).filter(|again| **again <= now).map(|again| (*again, node))
        };
        let next = groups.iter().filter_map(due).min().map(|(_, node)| node);
        let is_silent = |group: &SyncGroup| node(group).is_some_and(|node| silent.contains_key(&node));
        let (late, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_silent);
        let alone = late.into_iter().filter(|group| next.is_some() && node(group) == next).collect();
        [others, alone].into_iter().filter(|groups: &Vec<SyncGroup>| !groups.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, block_on, create, mounted, write};
    use skep_types::{Errno, TargetId};
    use skep_wire::storage::SyncChunks;
    use skep_wire::{Message, Status};

    /// Goal: a server that is silent lets files elsewhere wait once; from then on it is asked alone, after all others, and
    /// seldom, until it answers. Method: files on three targets of two servers; the one with two targets, asked first, is silent.
    #[test]
    fn a_silent_server_keeps_no_other_waiting() {
        const SILENT: Fault = Fault::Silent(SYNC_CLOSED_PATIENCE_MS / 2);
        let (cluster, lane) = mounted();
        cluster.borrow_mut().now = 10_000;
        cluster.borrow_mut().elsewhere.push(TargetId(3));
        assert!(block_on(lane.refresh_map()));
        let left = |ino| lane.shared.borrow().inodes.get(ino).unwrap().unsynced.len();
        let sync = |faults: &[Fault]| {
            let file = create(&lane, b"a");
            write(&lane, &file, 0, &[1; 70_000]);
            block_on(lane.flush(file.handle, 0)).unwrap();
            block_on(lane.release(file.handle));
            cluster.borrow_mut().now += SYNC_CLOSED_MS;
            cluster.borrow_mut().fail(SyncChunks::KIND, faults);
            let before = cluster.borrow().count(SyncChunks::KIND);
            block_on(lane.sync_closed());
            let asked = cluster.borrow().count(SyncChunks::KIND) - before;
            assert!(cluster.borrow().faults.get(&SyncChunks::KIND).is_none_or(|faults| faults.is_empty()));
            (asked, left(file.attr.ino))
        };
        assert_eq!(sync(&[]), (3, 0));
        assert_eq!(sync(&[SILENT, SILENT]), (3, 2));
        // One target of the other server, then the two that were silent.
        assert_eq!(sync(&[Fault::LateAnswer, SILENT, SILENT]), (3, 2));
        assert_eq!(sync(&[]), (1, 2), "not asked before it is time");
        cluster.borrow_mut().now += SYNC_SILENT_MS;
        assert_eq!(sync(&[]), (3, 0), "it answers");
        assert_eq!(sync(&[Fault::Unreachable, Fault::Unreachable]), (3, 2));
        assert_eq!(sync(&[]), (3, 0), "refused at once, it lets nobody wait");
        let refused = Fault::Refuse(Status::errno(Errno::EIO));
        assert_eq!(sync(&[refused, Fault::Silent(2 * QUICK_MS)]), (3, 2));
        assert_eq!(sync(&[]), (3, 0), "a target that is bad, and one that is slow, are no silent server");
    }

    /// Goal: what takes too long is asked for in smaller parts, until it comes in time.
    #[test]
    fn rounds_take_no_more_than_is_done_in_time() {
        let mut syncing = ClosedSync::default();
        let mut batches = |took: u64, rounds: usize| -> Vec<usize> {
            let round = |_| {
                syncing.settle(&[], Millis(0), took);
                syncing.batch()
            };
            (0..rounds).map(round).collect()
        };
        assert_eq!(batches(SYNC_CLOSED_PATIENCE_MS, 4), [64, 16, 8, 8]);
        assert_eq!(batches(SYNC_CLOSED_PATIENCE_MS / 2, 2), [8, 8]);
        assert_eq!(batches(QUICK_MS / 2, 6), [16, 32, 64, 128, 256, 256]);
    }
}
