//! Files that were closed, made durable in the background. A server that is silent keeps nobody else waiting for long.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{
    QUICK_MS, SYNC_CLOSED_BATCH, SYNC_CLOSED_MS, SYNC_CLOSED_PATIENCE_MS, SYNC_LOOK_MS, SYNC_PASS_MS,
    SYNC_SILENT_MS, SYNC_SMALLER_MAX,
};
use crate::op::sync::SyncGroup;
use crate::port::{Cell, Port};
use crate::state::{Inode, Shared};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{Ino, Millis, TargetId};

/// What targets can do.
#[derive(Debug, Default)]
pub(crate) struct ClosedSync {
    /// Those that were silent or slow.
    slow: BTreeMap<TargetId, Pace>,
    /// Files with short chunk files that could not be looked at, and when that was tried.
    looked: BTreeMap<Ino, Millis>,
    /// No looks at all before this: somebody is silent.
    looks_from: Millis,
    /// Rounds in which somebody was asked.
    rounds: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pace {
    /// It gave no answer in time, and is asked again then.
    again: Option<Millis>,
    /// How often the number of its files in a round is halved: what a slow disk syncs in time.
    smaller: u32,
}

impl ClosedSync {
    /// When a file was looked at in vain; those that were not yet come first.
    pub(crate) fn last_look(&self, ino: Ino) -> Option<Millis> {
        self.looked.get(&ino).copied()
    }

    pub(crate) fn may_look(&self, ino: Ino, now: Millis) -> bool {
        now >= self.looks_from && self.last_look(ino).is_none_or(|at| now.since(at) >= SYNC_SILENT_MS)
    }

    /// A look took so long, and has told nothing: a target that is bad says so at once, and is in the way of its own files
    /// only.
    fn look_failed(&mut self, ino: Ino, now: Millis, took: u64) {
        self.looked.insert(ino, now);
        if took >= QUICK_MS {
            self.looks_from = now.plus(SYNC_SILENT_MS);
        }
    }

    fn pace(&self, target: TargetId) -> Pace {
        self.slow.get(&target).copied().unwrap_or_default()
    }

    /// A round of requests is over.
    fn settle(&mut self, jobs: &[Job<'_>], now: Millis, took: u64) {
        self.rounds += u64::from(jobs.iter().any(|job| job.node.is_some()));
        // One answer will do: a target that is bad, or slow for some files, is not silent.
        let mut silent: BTreeMap<TargetId, bool> = BTreeMap::new();
        for job in jobs {
            if let (To::Target(target), Some(_)) = (job.to, job.node) {
                *silent.entry(target).or_insert(took >= QUICK_MS) &= job.unanswered;
            }
        }
        for (target, silent) in silent {
            let Pace { again, smaller } = self.pace(target);
            // Among several it may have been another one that let all wait: it is asked alone, soon.
            let wait = if again.is_some() { SYNC_SILENT_MS } else { 0 };
            let smaller = match (silent, again) {
                (true, Some(_)) if took >= SYNC_CLOSED_PATIENCE_MS => SYNC_SMALLER_MAX.min(smaller + 2),
                // Twice as many take twice as long, and all others wait for that.
                (false, _) if took < 2 * QUICK_MS => smaller.saturating_sub(1),
                _ => smaller,
            };
            let pace = Pace { again: silent.then(|| now.plus(wait)), smaller };
            match pace == Pace::default() {
                true => self.slow.remove(&target),
                false => self.slow.insert(target, pace),
            };
        }
    }
}

impl Shared {
    /// The background has looked at a short chunk file, which took so long.
    pub(crate) fn looked_at(&mut self, ino: Ino, now: Millis, took: u64) {
        let Self { syncing, inodes, .. } = self;
        let is_short = |ino: &Ino| inodes.get(*ino).is_some_and(Inode::is_short);
        if is_short(&ino) {
            syncing.look_failed(ino, now, took);
        } else {
            syncing.looked.retain(|ino, _| is_short(ino));
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
        let due = self.shared.with(|s| match s.has_session() {
            true => s.inodes.take_closed(before, SYNC_CLOSED_BATCH),
            false => Vec::new(),
        });
        if due.is_empty() {
            return SYNC_LOOK_MS;
        }
        let rounds = self.shared.with(|s| s.syncing.rounds);
        // What fails is tried again, and said when it matters: by an fsync, or at the unmount.
        let _ = self.sync_and_tell(&due, false).await;
        let now = self.port.now();
        let (is_done, is_asked) = self.shared.with(|s| {
            s.inodes.tried(&due, now);
            let is_done = |ino: &Ino| s.inodes.get(*ino).is_none_or(|inode| !inode.wants_sync());
            (due.iter().any(is_done), s.syncing.rounds > rounds)
        });
        match (due.len() == SYNC_CLOSED_BATCH, is_done, is_asked) {
            (true, true, _) => 1,
            // All of them wait for silent targets: others do not.
            (true, false, false) => SYNC_PASS_MS,
            _ => SYNC_LOOK_MS,
        }
    }

    /// Sends requests to storage servers once, and notes which targets are silent.
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
    /// Requests in the order in which they are to be sent: to all targets that answer, then to those of one server that
    /// were silent. No target is asked for more than it can do in time.
    pub(crate) fn in_turn(&mut self, groups: Vec<SyncGroup>, now: Millis) -> Vec<Vec<SyncGroup>> {
        let map = &self.map;
        self.syncing.slow.retain(|target, _| map.target(*target).is_some());
        let mut asked: BTreeMap<TargetId, usize> = BTreeMap::new();
        let bounded = groups.into_iter().filter_map(|mut group| {
            let asked = asked.entry(group.target).or_default();
            group.keep((SYNC_CLOSED_BATCH >> self.syncing.pace(group.target).smaller).saturating_sub(*asked));
            *asked += group.files();
            (group.files() > 0).then_some(group)
        });
        let again = |group: &SyncGroup| self.syncing.pace(group.target).again;
        let (late, others): (Vec<_>, Vec<_>) = bounded.partition(|group| again(group).is_some());
        let late: Vec<SyncGroup> = late.into_iter().filter(|group| again(group) <= Some(now)).collect();
        let node = |group: &SyncGroup| self.node_of(To::Target(group.target));
        let next = late.iter().min_by_key(|group| again(group)).map(node);
        let alone = late.into_iter().filter(|group| Some(node(group)) == next).collect();
        [others, alone].into_iter().filter(|groups: &Vec<SyncGroup>| !groups.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, block_on, create, mounted, write};
    use skep_types::{Errno, NodeId};
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

    /// Goal: what takes too long is asked for in smaller parts, until it comes in time; other targets' parts stay as they are.
    #[test]
    fn rounds_take_no_more_than_is_done_in_time() {
        const SLOW: TargetId = TargetId(1);
        let mut syncing = ClosedSync::default();
        let job = |target, unanswered| {
            let mut job = Job::new(To::Target(target), SyncChunks::KIND, Vec::new(), false);
            (job.node, job.unanswered) = (Some(NodeId(7)), unanswered);
            job
        };
        let mut shares = |took: u64, in_time: bool, rounds: usize| -> Vec<usize> {
            let round = |_| {
                let jobs = [job(SLOW, !in_time), job(TargetId(2), false)];
                syncing.settle(&jobs, Millis(0), took);
                assert_eq!(syncing.pace(TargetId(2)), Pace::default());
                SYNC_CLOSED_BATCH >> syncing.pace(SLOW).smaller
            };
            (0..rounds).map(round).collect()
        };
        // The first time it may have been another one.
        assert_eq!(shares(SYNC_CLOSED_PATIENCE_MS, false, 5), [256, 64, 16, 8, 8]);
        assert_eq!(shares(2 * QUICK_MS, true, 2), [8, 8]);
        assert_eq!(shares(QUICK_MS, true, 6), [16, 32, 64, 128, 256, 256]);
    }

    /// Goal: no disk is given so much that all others wait for long, whatever it takes for a file.
    #[test]
    fn a_slow_disk_delays_others_for_seconds_only() {
        for ms_per_file in [10, 40, 100, 300] {
            let mut syncing = ClosedSync::default();
            syncing.slow.insert(TargetId(1), Pace { again: None, smaller: SYNC_SMALLER_MAX });
            for _ in 0..20 {
                let files = SYNC_CLOSED_BATCH >> syncing.pace(TargetId(1)).smaller;
                let took = files as u64 * ms_per_file;
                assert!(took <= 4 * QUICK_MS, "{files} files of {ms_per_file} ms");
                let mut job = Job::new(To::Target(TargetId(1)), SyncChunks::KIND, Vec::new(), false);
                job.node = Some(NodeId(7));
                syncing.settle(&[job], Millis(0), took);
            }
        }
    }

    /// Goal: a batch of files that nobody can be asked about is over at once for those behind it; one that somebody was asked
    /// about, and not done, is not tried again at once.
    #[test]
    fn nobody_waits_behind_a_removed_target() {
        for (is_removed, pause) in [(true, SYNC_PASS_MS), (false, SYNC_LOOK_MS)] {
            let (cluster, lane) = mounted();
            cluster.borrow_mut().now = 10_000;
            for number in 0..SYNC_CLOSED_BATCH {
                let file = create(&lane, alloc::format!("{number}").as_bytes());
                write(&lane, &file, 0, &[1; 10_000]);
                block_on(lane.release(file.handle));
                if is_removed {
                    let mut shared = lane.shared.borrow_mut();
                    let inode = shared.inodes.get_mut(file.attr.ino).unwrap();
                    inode.unsynced.iter_mut().for_each(|unsynced| unsynced.target = TargetId(99));
                }
            }
            cluster.borrow_mut().now += SYNC_CLOSED_MS;
            cluster.borrow_mut().fail(SyncChunks::KIND, &[Fault::Refuse(Status::errno(Errno::EIO)); 3]);
            assert_eq!(block_on(lane.sync_closed()), pause);
        }
    }

    /// Goal: a target that is slow is asked for as many files as it can do, and the others for all.
    #[test]
    fn a_slow_target_gets_its_share() {
        let (cluster, lane) = mounted();
        cluster.borrow_mut().now = 10_000;
        let inos: Vec<Ino> = (0..20u8)
            .map(|n| {
                let file = create(&lane, &[b'a' + n]);
                write(&lane, &file, 0, &[1; 70_000]);
                block_on(lane.release(file.handle));
                file.attr.ino
            })
            .collect();
        let asked = || {
            let mut shared = lane.shared.borrow_mut();
            let groups = shared.unsynced_of(&inos);
            let rounds = shared.in_turn(groups, Millis(10_000));
            let mut asked: BTreeMap<TargetId, usize> = BTreeMap::new();
            rounds
                .iter()
                .flatten()
                .for_each(|group| *asked.entry(group.target).or_default() += group.files());
            asked
        };
        let before = asked();
        let (slow, all) = before.iter().next().map(|(target, all)| (*target, *all)).unwrap();
        assert!(all > 8 && before.len() > 1, "{before:?}");
        let pace = Pace { again: None, smaller: SYNC_SMALLER_MAX };
        lane.shared.borrow_mut().syncing.slow.insert(slow, pace);
        let mut expected = before;
        expected.insert(slow, SYNC_CLOSED_BATCH >> SYNC_SMALLER_MAX);
        assert_eq!(asked(), expected);
    }

    /// Goal: what lies on a target that was silent, and is removed by now, keeps no other silent target from being asked.
    #[test]
    fn a_removed_target_is_in_nobodys_way() {
        let (cluster, lane) = mounted();
        cluster.borrow_mut().now = 10_000;
        let file = create(&lane, b"a");
        write(&lane, &file, 0, &[1; 70_000]);
        let mut shared = lane.shared.borrow_mut();
        let mut groups = shared.unsynced_of(&[file.attr.ino]);
        let removed = TargetId(99);
        groups[0].target = removed;
        let waiting = groups[1].target;
        let silent = |again| Pace { again: Some(Millis(again)), smaller: 1 };
        shared.syncing.slow = [(removed, silent(1)), (waiting, silent(2))].into();
        let rounds = shared.in_turn(groups, Millis(10_000));
        let asked = |round: &[SyncGroup]| round.iter().map(|group| group.target).collect::<Vec<_>>();
        assert!(asked(&rounds[0]).contains(&removed), "told that it is nowhere");
        assert_eq!(asked(&rounds[1]), [waiting]);
        assert!(!shared.syncing.slow.contains_key(&removed));
    }
}
