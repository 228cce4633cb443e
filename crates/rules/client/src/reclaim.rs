//! Reclaim: a metadata server that began a new life has forgotten what is open; it is told again.

use crate::job::split_stamp;
use crate::lane::Lane;
use crate::port::{Call, Cell, Outcome, Port};
use crate::state::Shared;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{ClientId, Decode, NodeId, ShardId};
use skep_wire::meta::{OpenMode, Reclaim, ReclaimReply, Reclaimed, ReclaimedLock};
use skep_wire::{Message, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Tells `node` what this mount holds open on its shards, and that this is all. Begun by
    /// [`crate::state::Nodes::begin_reclaim`]. `true`: every shard confirmed.
    pub(crate) async fn reclaim(&self, node: NodeId) -> bool {
        type Told = Vec<(ShardId, Vec<Reclaimed>, Vec<ReclaimedLock>)>;
        // For this life only: before another one hears it, files may have been closed.
        let (life, shards): (_, Told) = self.shared.with(|s| {
            let (life, shards) = (s.nodes.life(node), s.map.shards_of(node).collect::<Vec<ShardId>>());
            let told = |shard| (shard, s.opens_of(shard), s.locks.of_shard(shard));
            (life, shards.into_iter().map(told).collect())
        });
        let (mut parts, mut lasts) = (Vec::new(), BTreeSet::new());
        let (most, client) = self.shared.with(|s| (s.limits.told_at_once, s.client()));
        for (shard, opens, locks) in &shards {
            // Which locks are lost is known here before the last word is said: until then a server that gave them to
            // others takes nothing else of this mount.
            let is_small = opens.len() <= most && locks.is_empty();
            if is_small {
                let all = Reclaim { opens: opens.clone(), locks: locks.clone(), last: true, life };
                parts.push((*shard, self.shard_body(*shard, &all, false)));
                continue;
            }
            // A lock counts only for a file that is open. And what is the last word must not be heard before the others.
            let opens = opens.chunks(most).map(|part| (part.to_vec(), Vec::new()));
            let locks = locks.chunks(most).map(|part| (Vec::new(), part.to_vec()));
            for (opens, locks) in opens.chain(locks) {
                parts.push((
                    *shard,
                    self.shard_body(*shard, &Reclaim { opens, locks, last: false, life }, false),
                ));
            }
            lasts.insert(*shard);
        }
        let (mut told, refused) = self.report((node, client), &parts).await;
        // A report that was refused, its last word with it, is over all the same.
        lasts.extend(refused);
        if told && !lasts.is_empty() {
            let last = Reclaim { opens: Vec::new(), locks: Vec::new(), last: true, life };
            let lasts: Vec<_> =
                lasts.iter().map(|shard| (*shard, self.shard_body(*shard, &last, false))).collect();
            told = self.report((node, client), &lasts).await.0;
        }
        let tells_losses = self.shared.with(|s| {
            s.nodes.reclaimed(node, life, told);
            told && s.losses.tell_again()
        });
        if tells_losses {
            self.port.work_waits();
        }
        let any = shards.iter().any(|(_, opens, locks)| !opens.is_empty() || !locks.is_empty());
        if told && any {
            self.port.log(format_args!("{} restarted; told it what is open", self.name_of(node)));
        }
        told
    }

    /// Sends parts of a report, in this order. `true`: all were confirmed, or never will be: those of the shards that
    /// are named.
    async fn report(
        &self,
        (node, client): (NodeId, ClientId),
        parts: &[(ShardId, Vec<u8>)],
    ) -> (bool, Vec<ShardId>) {
        let epoch = self.shared.with(|s| s.epoch);
        let mut intos: Vec<[u8; 0]> = alloc::vec![[]; parts.len()];
        let mut calls: Vec<Call<'_>> = parts
            .iter()
            .zip(&mut intos)
            .map(|((_, body), into)| Call {
                node,
                client,
                kind: Reclaim::KIND,
                epoch,
                body,
                payload: &[],
                into,
                changing: true,
                outcome: Outcome::Unreachable,
            })
            .collect();
        self.port.call(&mut calls).await;
        let (mut told, mut refused) = (true, Vec::new());
        for (call, (shard, _)) in calls.iter().zip(parts) {
            let Outcome::Answer(answer) = &call.outcome else {
                told = false;
                continue;
            };
            self.shared.with(|s| s.nodes.heard(node, answer.incarnation));
            if answer.status.is_transient() || [Status::FENCED, Status::STALE_MAP].contains(&answer.status) {
                told = false;
            } else if answer.status != Status(0) {
                // Saying it again would not help, and must not keep the mount from going on.
                let name = self.name_of(node);
                self.port.log(format_args!("{name} does not take back what was open: {}", answer.status));
                self.lose_locks(&self.shared.with(|s| s.locks.of_shard(*shard)));
                refused.push(*shard);
            } else if let Ok((_, body)) = split_stamp(&answer.body)
                && let Ok(ReclaimReply { lost: Some(lost) }) = ReclaimReply::from_bytes(body)
            {
                self.lose_locks(&lost);
            }
        }
        (told, refused)
    }

    /// Programs that believe in these get EIO until they have given them up.
    fn lose_locks(&self, claims: &[ReclaimedLock]) {
        for claim in claims {
            let handles = self.shared.with(|s| {
                let handles = s.locks.lost(claim);
                s.locks_lost(&handles);
                handles
            });
            if !handles.is_empty() {
                self.port.log(format_args!(
                    "inode {}: a lock of process {} is lost, for this mount was away for too long; the program gets \
                     EIO until it unlocks or closes the file",
                    claim.ino.0, claim.lock.pid
                ));
            }
        }
    }
}

impl Shared {
    /// What is open on `shard`. Its change counters may have gone back with a power cut, so the next
    /// answers are believed whatever their counter. A layout may be of a growth that is undone: the targets take
    /// writes to it all the same, and the shard deletes them later.
    fn opens_of(&mut self, shard: ShardId) -> Vec<Reclaimed> {
        self.disbeliefs += 1;
        let mut opens = Vec::new();
        // What was known by them is not known any more.
        self.acls.forget_shard(shard);
        self.inodes.forget_inline(shard);
        let keeps_layout = self.limits.canary_keeps_layout;
        for (ino, inode) in self.inodes.of_shard_mut(shard) {
            inode.disbelieve();
            if !keeps_layout {
                inode.layout = None;
            }
            inode.forget_cuts();
            if inode.uses() > 0 {
                let mode = inode.mode.unwrap_or(OpenMode::Read);
                opens.push(Reclaimed { reserved: inode.reserved, ino, mode, open_seq: inode.open_seq });
            }
        }
        opens
    }
}
