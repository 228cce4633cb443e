//! Files that were closed, made durable in the background. A server that is silent keeps nobody else waiting for long.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{
    QUICK_MS, SYNC_CLOSED_BATCH, SYNC_CLOSED_MS, SYNC_CLOSED_PATIENCE_MS, SYNC_LOOK_MS, SYNC_SILENT_MS,
};
use crate::op::sync::SyncGroup;
use crate::port::{Cell, Port};
use crate::state::Shared;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{Errno, Millis, NodeId};
use skep_wire::Status;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Makes durable what was written to files that are closed by now, so that little is lost with a power cut and
    /// nothing is in doubt for long. For a lane of its own: a target may take its time. Says in how many
    /// milliseconds it wants to be called again.
    pub async fn sync_closed(&self) -> u64 {
        let now = self.port.now();
        let before = Millis(now.0.saturating_sub(SYNC_CLOSED_MS));
        let due = self.shared.with(|s| match s.has_session() {
            true => s.inodes.take_closed(before, SYNC_CLOSED_BATCH),
            false => Vec::new(),
        });
        if due.is_empty() {
            return SYNC_LOOK_MS;
        }
        let ok = self.sync_and_tell(&due, false).await.is_ok();
        let now = self.port.now();
        self.shared.with(|s| s.inodes.tried(&due, now));
        if due.len() == SYNC_CLOSED_BATCH && ok { 1 } else { SYNC_LOOK_MS }
    }

    /// Sends requests to storage servers once, and notes which of them are silent.
    pub(crate) async fn once_in_time(&self, jobs: &mut [Job<'_>]) {
        let asked = self.port.now();
        self.port.wanted_for(Some(SYNC_CLOSED_PATIENCE_MS));
        self.once_each(jobs).await;
        self.port.wanted_for(None);
        let now = self.port.now();
        let slow = now.since(asked) >= QUICK_MS;
        let mut silent: BTreeMap<NodeId, bool> = BTreeMap::new();
        for job in jobs.iter() {
            let failed =
                matches!(&job.settled, Some(Err(refusal)) if refusal.status == Status::errno(Errno::EIO));
            if let Some(node) = job.node {
                *silent.entry(node).or_default() |= slow && failed;
            }
        }
        self.shared.with(|s| {
            for (node, silent) in silent {
                if silent {
                    // Among several it may have been another one that let all wait: it is asked alone, soon.
                    let again = if s.silent.contains_key(&node) { now.plus(SYNC_SILENT_MS) } else { now };
                    s.silent.insert(node, again);
                } else {
                    s.silent.remove(&node);
                }
            }
        });
    }
}

impl Shared {
    /// Requests in the order in which they are to be sent: to all servers that answer, then to one that was silent.
    pub(crate) fn in_turn(&self, groups: Vec<SyncGroup>, now: Millis) -> Vec<Vec<SyncGroup>> {
        let node = |group: &SyncGroup| self.node_of(To::Target(group.target));
        let due = |group: &SyncGroup| {
            let node = node(group)?;
            self.silent.get(&node).filter(|again| **again <= now).map(|again| (*again, node))
        };
        let next = groups.iter().filter_map(due).min().map(|(_, node)| node);
        let (late, others): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| node(group).is_some_and(|node| self.silent.contains_key(&node)));
        let alone = late.into_iter().filter(|group| node(group) == next).collect();
        [others, alone].into_iter().filter(|groups: &Vec<SyncGroup>| !groups.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, block_on, create, mounted, write};
    use skep_types::TargetId;
    use skep_wire::Message;
    use skep_wire::storage::SyncChunks;

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
    }
}
