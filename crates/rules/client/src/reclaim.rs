//! Reclaim: a metadata shard that began a new life has forgotten what is open there; it is told again.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::port::{Cell, MGMTD, Port};
use crate::state::{Shards, Shared};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Incarnation, Ino, LogIndex, Millis, NodeId, ShardId, Term};
use skep_wire::Message;
use skep_wire::meta::{OpenMode, Reclaim, ReclaimReply, Reclaimed, ReclaimedLock, Sync};

/// What one shard is told, for one term of it and no other: before another one hears it, files may have been closed.
struct Report {
    shard: ShardId,
    term: Term,
    opens: Vec<Reclaimed>,
    /// Of these, what is held.
    holds: BTreeSet<Ino>,
    locks: Vec<ReclaimedLock>,
}

impl Report {
    /// The message with these parts of it.
    fn part(&self, opens: &[Reclaimed], locks: &[ReclaimedLock], last: bool) -> Reclaim {
        let held = opens.iter().map(|open| open.ino).filter(|ino| self.holds.contains(ino));
        let holds = Some(held.collect::<Vec<_>>()).filter(|held| !held.is_empty());
        Reclaim { opens: opens.to_vec(), locks: locks.to_vec(), last, term: Some(self.term), holds }
    }
}

/// What came of messages of reports.
#[derive(Default)]
struct Told {
    /// A message to these was not answered, or has to be repeated.
    failed: BTreeSet<ShardId>,
    /// These take something of it never.
    refused: BTreeSet<ShardId>,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Tells those of `shards` that `begin` says are due, server by server: one that is away delays nobody else's. All
    /// shards of a server are told together, however many there are. `true`: all confirmed.
    pub(crate) async fn reclaim_due(
        &self,
        shards: impl IntoIterator<Item = ShardId>,
        begin: fn(&mut Shards, ShardId) -> bool,
    ) -> bool {
        let mut servers: BTreeMap<NodeId, Vec<ShardId>> = BTreeMap::new();
        self.shared.with(|s| {
            for shard in shards {
                if let Some(node) = s.map.leader(shard) {
                    servers.entry(node).or_default().push(shard);
                }
            }
        });
        let mut told = true;
        for (node, mut shards) in servers {
            self.shared.with(|s| shards.retain(|shard| begin(&mut s.shards, *shard)));
            if !shards.is_empty() {
                told &= self.reclaim(node, &shards).await;
            }
        }
        told
    }

    /// Tells shards of `node` what this mount holds open there, and that this is all. Begun by
    /// [`Shards::begin_reclaim`]. `true`: every shard confirmed.
    async fn reclaim(&self, node: NodeId, shards: &[ShardId]) -> bool {
        self.learn_terms(shards).await;
        let (client, most, reports) = self.shared.with(|s| {
            let reports: Vec<Report> = shards.iter().filter_map(|shard| s.report(*shard)).collect();
            (s.client(), s.limits.told_at_once, reports)
        });
        let (mut parts, mut lasts) = (Vec::new(), BTreeSet::new());
        for report in &reports {
            // Which locks are lost is known here before the last word is said: until then a server that gave them to
            // others takes nothing else of this mount.
            if report.opens.len() <= most && report.locks.is_empty() {
                parts.push((report.shard, report.part(&report.opens, &[], true)));
                continue;
            }
            // A lock counts only for a file that is open. And what is the last word must not be heard before the others.
            parts.extend(report.opens.chunks(most).map(|part| (report.shard, report.part(part, &[], false))));
            parts.extend(report.locks.chunks(most).map(|part| (report.shard, report.part(&[], part, false))));
            lasts.insert(report.shard);
        }
        let Told { mut failed, refused } = self.tell((node, client), parts).await;
        // A report that was refused, its last word with it, is over all the same.
        lasts.extend(refused);
        let lasts = reports.iter().filter(|report| lasts.contains(&report.shard));
        let lasts = lasts.filter(|report| !failed.contains(&report.shard));
        let lasts: Vec<_> = lasts.map(|report| (report.shard, report.part(&[], &[], true))).collect();
        failed.extend(self.tell((node, client), lasts).await.failed);
        let told = |report: &Report| !failed.contains(&report.shard);
        let tells_losses = self.shared.with(|s| {
            for report in &reports {
                s.shards.reclaimed(report.shard, report.term, told(report));
            }
            reports.iter().any(told) && s.losses.tell_again()
        });
        if tells_losses {
            self.port.work_waits();
        }
        let anything = |report: &Report| !report.opens.is_empty() || !report.locks.is_empty();
        if reports.iter().any(|report| told(report) && anything(report)) {
            self.port.log(format_args!("{} restarted; told it what is open", self.name_of(node)));
        }
        failed.is_empty() && reports.len() == shards.len()
    }

    /// Asks those of `shards` whose term is not known for sure, all together: the stamp of any answer tells it.
    async fn learn_terms(&self, shards: &[ShardId]) {
        let unsure: Vec<ShardId> =
            self.shared.with(|s| shards.iter().copied().filter(|shard| s.shards.is_unsure(*shard)).collect());
        let nothing = Sync { term: Term(0), index: LogIndex(0) };
        let mut jobs: Vec<Job<'_>> = unsure.iter().map(|shard| self.asking(*shard, &nothing)).collect();
        self.once_each(&mut jobs).await;
    }

    /// Sends messages of reports, in this order.
    async fn tell(&self, (node, client): (NodeId, ClientId), parts: Vec<(ShardId, Reclaim)>) -> Told {
        let asking = |(shard, part): &(ShardId, Reclaim)| {
            let body = self.shard_body(*shard, part, false);
            Job { node: Some(node), ..Job::new(To::Shard(*shard), Reclaim::KIND, body, false) }
        };
        let mut jobs: Vec<Job<'_>> = parts.iter().map(asking).collect();
        // In the session that it was put together in: another one has opened its files anew.
        self.round(&mut jobs, client).await;
        let mut told = Told::default();
        for (job, (shard, _)) in jobs.into_iter().zip(&parts) {
            match job.settled {
                None => {
                    told.failed.insert(*shard);
                }
                Some(Err(refusal)) => {
                    // Saying it again would not help, and must not keep the mount from going on.
                    let name = self.name_of(node);
                    self.port
                        .log(format_args!("{name} does not take back what was open: {}", refusal.status));
                    self.lose_locks(&self.shared.with(|s| s.locks.of_shard(*shard)));
                    told.refused.insert(*shard);
                }
                Some(Ok(reply)) => {
                    if let Ok(ReclaimReply { lost: Some(lost) }) = reply.read() {
                        self.lose_locks(&lost);
                    }
                }
            }
        }
        told
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
    /// `node` answered in life `incarnation`, and a shard of it in a term (0: it did not say). Says whether something that
    /// must be told began a new life.
    pub(crate) fn heard(&mut self, node: NodeId, incarnation: Incarnation, told: (ShardId, Term)) -> bool {
        let began = self.server_began(node, incarnation);
        let (shard, term) = told;
        if term == Term(0) || self.nodes.has_ended(node, incarnation) {
            return began;
        }
        self.shards.heard(shard, term) || began
    }

    /// A server is in this life. A new one may have begun its shards anew, and nobody has asked them: those that wait for
    /// this mount would wait for as long as they can.
    fn server_began(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let began = self.nodes.heard(node, incarnation);
        if began {
            if self.limits.leases {
                self.leases.began(node, incarnation);
            }
            for shard in self.map.shards_of(node) {
                self.shards.may_be_new(shard, node);
            }
        }
        began
    }

    /// There is a newer map.
    pub(crate) fn map_is_newer(&mut self) {
        let lives: Vec<_> = self.map.metad_lives().collect();
        for (node, incarnation) in lives {
            self.server_began(node, incarnation);
        }
        for (shard, leader) in self.map.leaders() {
            self.shards.led_by(shard, leader);
        }
        let map = &self.map;
        self.nodes.forget_silences(|node| node == MGMTD || map.is_asked(node));
    }

    /// What `shard` is to be told, put together now; see [`Shards::tells`].
    fn report(&mut self, shard: ShardId) -> Option<Report> {
        let term = self.shards.tells(shard)?;
        // Where it is the first report of a term, the shard may know these by their opens.
        self.close_all_kept_of(shard, Millis(0));
        let opens = self.opens_of(shard);
        let is_held = |ino: &Ino| self.inodes.get(*ino).is_some_and(|inode| inode.hold.is_some());
        let holds = opens.iter().map(|open| open.ino).filter(is_held).collect();
        Some(Report { shard, term, opens, holds, locks: self.locks.of_shard(shard) })
    }

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
