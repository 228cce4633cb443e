//! The retry engine: sends an operation's requests until each is settled, the program gives up, the
//! limit is reached or the session is dead.
//!
//! A request is sent again unchanged, sequence number included, so a shard executes it once however
//! often it arrives. A change that was sent is waited for whatever the program wants; giving up counts
//! before it is sent and between tries. An operation that is given up after a connection broke, or a server
//! was silent for too long, returns EINTR (or EIO at the limit): the next change of the lane has a higher
//! number and goes over a newer connection, whose first request makes the server drop what it has not read
//! of the older one.
//!
//! When the cluster ends the session, operations wait for the next one (housekeeping opens it) and go on in it, but
//! for what must not: see [`end_with_session`].

use crate::job::{Job, Reply, To, garbled, split_stamp};
use crate::lane::{Lane, refuse};
use crate::limits::{BACKOFF_MAX_MS, BACKOFF_MIN_MS, HOPS_MAX};
use crate::port::{Answer, Call, Cell, MGMTD, Outcome, Port};
use crate::state::{Heard, SessionState, Shards, Shared, Source, Told};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use skep_types::{ClientId, Decode, Encode, Errno, Ino, MapVersion, Millis, NodeId, ShardId, Term};
use skep_wire::meta::{DropLocks, Events, GetLock, Reclaim, SetLock, ShardStamp};
use skep_wire::mgmt::{Gap, GetMap, MapReply};
use skep_wire::storage::{
    CopyChunk, PunchChunk, ReserveChunk, StatChunks, SyncChunks, TrimChunk, WriteChunk,
};
use skep_wire::{Message, Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Runs jobs, all together, until every one is settled.
    pub(crate) async fn run(&self, jobs: &mut [Job<'_>]) {
        let started = self.port.now();
        // While there is no session everything waits for the next one.
        let mut sender = self.shared.with(|s| s.sender());
        let mut began = sender;
        let (mut backoff, mut hops) = (BACKOFF_MIN_MS, 0);
        // Was mgmtd asked for the newest map since these jobs began, and did it answer?
        let mut newest = false;
        loop {
            end_with_session(jobs, began, sender);
            jobs.iter_mut().for_each(|job| job.sent_on = false);
            // What goes on in this session is of this one from now on.
            began = sender.or(began);
            if self.is_heard_no_more(jobs) {
                return stop(jobs, &Status::NOT_READY.into());
            }
            // Shards that forgot are told first, and may say that a lock is lost.
            let ready = sender.is_some() && self.prepare(jobs, newest).await;
            if self.has_lost_its_lock() {
                return stop(jobs, &Errno::EIO.into());
            }
            if let Some(client) = sender.filter(|_| ready) {
                self.round(jobs, client).await;
            }
            if jobs.iter().all(|job| job.settled.is_some()) {
                return;
            }
            let (limit, waited) = (self.shared.with(|s| s.limits.retry_ms), self.port.now().since(started));
            if self.port.cancelled() {
                return stop(jobs, &Errno::EINTR.into());
            }
            if limit != 0 && waited >= limit {
                return stop(jobs, &self.gave_up(jobs, waited));
            }
            if hops < HOPS_MAX && self.goes_on_at_once(jobs, &mut newest).await {
                hops += 1;
            } else {
                if backoff == BACKOFF_MAX_MS {
                    self.complain(jobs, started);
                }
                self.port.pause(backoff).await;
                backoff = (backoff + backoff / 2).min(BACKOFF_MAX_MS);
                hops = 0;
                // A daemon that does not answer may have moved; the map knows.
                newest = self.refresh_map().await;
            }
            sender = self.shared.with(|s| s.sender());
        }
    }

    /// Is one of them about what others may have been given by now?
    fn is_heard_no_more(&self, jobs: &[Job<'_>]) -> bool {
        let mut waited = jobs.iter().filter_map(|job| job.waited).peekable();
        let Some(_) = waited.peek() else { return false };
        let now = self.port.boot();
        self.shared.with(|s| {
            // It may have been given up by now.
            let mut is_over = |(ino, heard): (Ino, Heard)| {
                let is_put = s.inodes.get(ino).is_some_and(|inode| inode.run_is_put() || inode.is_moving());
                !is_put || !s.is_heard_still(heard, now)
            };
            waited.any(&mut is_over) && !s.limits.canary_puts_unheard
        })
    }

    /// Routes the jobs, and tells shards that began a new life what is open. `false`: not this time.
    async fn prepare(&self, jobs: &mut [Job<'_>], newest: bool) -> bool {
        let mut due = Vec::new();
        self.shared.with(|s| {
            for job in jobs.iter_mut().filter(|job| job.settled.is_none()) {
                job.node = s.node_of(job.to);
                match (job.to, job.node) {
                    (To::Shard(shard), Some(_)) if s.shards.is_due(shard) => due.push(shard),
                    // A shard names only targets that mgmtd told it of: one that is gone was removed.
                    (To::Target(target), None) if newest => {
                        job.settled = Some(Err(refuse(
                            Errno::EIO,
                            alloc::format!("target {target} was removed from the cluster with what it held"),
                        )));
                    }
                    (To::Shard(shard), None) if s.map.is_retired(shard) => {
                        job.settled = Some(Err(refuse(
                            Errno::EIO,
                            alloc::format!("shard {shard} is retired: nobody answers for it any more"),
                        )));
                    }
                    (_, None) => {
                        job.trouble = Some(refuse(
                            Errno::EIO,
                            alloc::format!("the cluster map does not name {:?}", job.to),
                        ));
                    }
                    _ => {}
                }
            }
        });
        due.is_empty() || self.reclaim_due(due, Shards::begin_reclaim).await
    }

    /// Sends what is not settled, once, in the session of `sender`.
    pub(crate) async fn round(&self, jobs: &mut [Job<'_>], sender: ClientId) {
        let ready = |job: &Job<'_>| job.settled.is_none() && job.node.is_some();
        // Before anything is sent: servers count from when they hear it.
        let boot = self.leases.then(|| self.port.boot());
        let epoch = self.shared.with(|s| {
            for job in jobs.iter_mut().filter(|job| ready(job)) {
                if let (To::Shard(shard), Some(node)) = (job.to, job.node) {
                    // Who cannot hear yet what is taken back would have others wait for all of a lease's time.
                    let wishes = job.wishes() && s.shards.told(shard).is_some();
                    job.sent = boot.map(|now| s.leases.sends(node, shard, now, wishes));
                    job.tell(s.map.epoch(shard));
                }
            }
            s.epoch
        });
        let mut calls: Vec<Call<'_>> = Vec::with_capacity(jobs.len());
        for job in jobs.iter_mut().filter(|job| ready(job)) {
            let changing = changes(job);
            calls.push(Call {
                node: job.node.unwrap_or(MGMTD),
                client: sender,
                kind: job.kind,
                epoch,
                body: &job.body,
                payload: job.payload,
                into: &mut *job.into,
                changing,
                outcome: Outcome::Unreachable,
            });
        }
        if calls.is_empty() {
            return;
        }
        self.port.call(&mut calls).await;
        let outcomes: Vec<Outcome> = calls.into_iter().map(|call| call.outcome).collect();
        for (job, outcome) in jobs.iter_mut().filter(|job| ready(job)).zip(outcomes) {
            self.outcome(job, outcome, sender);
        }
    }

    fn outcome(&self, job: &mut Job<'_>, outcome: Outcome, sender: ClientId) {
        job.unanswered = !matches!(outcome, Outcome::Answer(_));
        if let (To::Shard(shard), Some(node), true) = (job.to, job.node, job.unanswered) {
            self.shared.with(|s| s.map.is_misled(shard, node));
            self.flight_is_over(shard, job, outcome == Outcome::Lost);
        }
        self.settled_by(job, outcome, sender);
        // Who only hears what servers take back asks for it by this.
        if let (Some(node), Some(sent), Events::KIND) = (job.node, &job.sent, job.kind) {
            let ok = matches!(job.settled, Some(Ok(_)));
            self.shared.with(|s| s.leases.heard(node, sent, ok));
        }
    }

    fn settled_by(&self, job: &mut Job<'_>, outcome: Outcome, sender: ClientId) {
        match outcome {
            Outcome::Lost => {
                job.unsure = true;
                job.sent_as = sender;
                job.trouble =
                    Some(refuse(Errno::EIO, String::from("the connection broke before the answer")));
            }
            Outcome::Unreachable => {
                job.trouble = Some(refuse(Errno::EIO, String::from("no connection can be made")));
            }
            Outcome::Answer(answer) => match self.answer(job, answer, sender) {
                Ok(reply) => {
                    job.is_answered = true;
                    job.settled = Some(Ok(reply));
                }
                Err(refusal) if refusal.status.is_transient() || refusal.status.is_misdirected() => {
                    job.sent_on = self.shared.with(|s| s.misdirected(job.to, job.node, &refusal));
                    job.trouble = Some(refusal);
                }
                Err(refusal) if refusal.status == Status::FENCED => {
                    self.fenced(&refusal, sender);
                    job.sent_as = sender;
                    job.trouble = Some(refusal);
                }
                Err(refusal) => {
                    job.is_answered = true;
                    job.settled = Some(Err(refusal));
                }
            },
        }
    }

    /// What was sent brings no leases any more. `lost`: it may have brought some that nobody knows of.
    fn flight_is_over(&self, shard: ShardId, job: &Job<'_>, lost: bool) {
        let Some(sent) = &job.sent else { return };
        let rings = self.shared.with(|s| {
            s.leases.is_over(shard, sent);
            if let Some(node) = job.node.filter(|_| lost) {
                s.leases.is_lost(node, sent);
            }
            s.leases.take_news()
        });
        if rings {
            self.port.is_lent();
        }
    }

    /// Reads an answer and learns from it.
    fn answer(&self, job: &mut Job<'_>, answer: Answer, client: ClientId) -> Result<Reply, Refusal> {
        let node = job.node.unwrap_or(MGMTD);
        let (stamp, body) = match job.to {
            To::Shard(shard) if !answer.body.is_empty() => match split_stamp(&answer.body) {
                Ok(split) => split,
                Err(e) => {
                    // It has come all the same: no recall is kept for it, and nothing that an earlier try was told is of it.
                    self.flight_is_over(shard, job, true);
                    job.told = None;
                    return Err(garbled(e));
                }
            },
            _ => (ShardStamp::default(), &answer.body[..]),
        };
        let boot = job.sent.map(|_| self.port.boot());
        let accepted = answer.status == Status(0);
        let (again, new, lent, rings) = self.shared.with(|s| {
            s.epoch = s.epoch.max(answer.epoch);
            let (mut new, mut lent) = (false, false);
            if let To::Shard(shard) = job.to {
                // Who does not serve the shard does not know its term.
                let term = if answer.status.is_misdirected() { Term(0) } else { stamp.term };
                new = s.heard(node, answer.incarnation, (shard, term));
                if let (Some(sent), Some(now)) = (job.sent, boot) {
                    let from = Source { node, life: answer.incarnation, shard, term };
                    lent = s.leases.answered(&from, &sent, &stamp, now);
                    s.leases.is_over(shard, &sent);
                    job.told = Some(Box::new(Told::new(&from, sent, &stamp)));
                }
                if accepted && job.changing {
                    s.changes += 1;
                    s.acknowledged(shard, &stamp, job.of.into_iter().flatten(), self.port.caller());
                } else if stamp.term != Term(0) {
                    s.stamps.seen(shard, &stamp);
                }
            }
            let rings = job.sent.is_some() && {
                s.names.sweep();
                s.leases.take_news() | s.kernel.take_news() | lent
            };
            (s.nodes.answers(node), new, lent, rings)
        });
        if new || lent {
            self.port.work_waits();
        }
        if rings {
            self.port.is_lent();
        }
        if again {
            self.port.log(format_args!("{} answers again", self.name_of(node)));
        }
        if !accepted {
            let refusal = Refusal::from_bytes(body).unwrap_or_else(|_| Refusal::new(answer.status));
            return Err(Refusal { status: answer.status, ..refusal });
        }
        Ok(Reply {
            stamp,
            body: if matches!(job.to, To::Shard(_)) { body.to_vec() } else { answer.body },
            payload_len: answer.payload_len,
            node,
            incarnation: answer.incarnation,
            client,
        })
    }

    /// One request to one node, sent once: for what housekeeping does at its own pace.
    pub(crate) async fn once(&self, job: Job<'_>) -> Result<Reply, Refusal> {
        let mut jobs = [job];
        self.once_each(&mut jobs).await;
        let [mut job] = jobs;
        job.take()
    }

    /// Some requests, together, sent once.
    pub(crate) async fn once_each(&self, jobs: &mut [Job<'_>]) {
        let client = self.shared.with(|s| {
            jobs.iter_mut().for_each(|job| job.node = s.node_of(job.to));
            s.client()
        });
        self.once_routed(client, jobs).await;
    }

    /// The same, to `node`, whoever leads the shards that they are for.
    pub(crate) async fn once_each_at(&self, node: NodeId, jobs: &mut [Job<'_>]) {
        jobs.iter_mut().for_each(|job| job.node = Some(node));
        let client = self.shared.with(|s| s.client());
        self.once_routed(client, jobs).await;
    }

    async fn once_routed(&self, client: ClientId, jobs: &mut [Job<'_>]) {
        self.round(jobs, client).await;
        for job in jobs.iter_mut().filter(|job| job.settled.is_none()) {
            let silent = || refuse(Errno::EIO, String::from("no answer"));
            job.settled = Some(Err(job.trouble.take().unwrap_or_else(silent)));
        }
    }

    /// Did everything that is not settled come to the wrong server, and is it known where to go instead?
    async fn goes_on_at_once(&self, jobs: &[Job<'_>], newest: &mut bool) -> bool {
        if !jobs.iter().filter(|job| job.settled.is_none()).all(|job| job.sent_on) {
            return false;
        }
        // A leader that was named is asked without mgmtd, which may be away.
        let is_named =
            |s: &Shared, job: &Job<'_>| s.node_of(job.to).is_some_and(|node| job.node != Some(node));
        let open = || jobs.iter().filter(|job| job.settled.is_none());
        if !self.shared.with(|s| open().all(|job| is_named(s, job))) {
            *newest = self.refresh_map().await;
        }
        true
    }

    /// Asks mgmtd for a newer map, once. `true`: it answered.
    pub(crate) async fn refresh_map(&self) -> bool {
        let known = self.shared.with(|s| s.map.version());
        match self.fetch_map(known).await {
            Some(Err(Gap)) => self.fetch_map(MapVersion(0)).await.is_some(),
            answered => answered.is_some(),
        }
    }

    async fn fetch_map(&self, known: MapVersion) -> Option<Result<(), Gap>> {
        let job = Job::new(To::Mgmt, GetMap::KIND, GetMap { known }.to_bytes(), false);
        let map = self.once(job).await.ok()?.read::<MapReply>().ok()?;
        Some(self.shared.with(|s| {
            s.map.update(map).map(|is_newer| {
                if is_newer {
                    s.map_is_newer();
                }
            })
        }))
    }

    /// The cluster ended the session of `client`: said once.
    fn fenced(&self, refusal: &Refusal, client: ClientId) {
        let first = self.shared.with(|s| {
            // Not that of a session which has taken its place by now.
            let first = s.session.open().is_some_and(|session| session.client == client);
            if first {
                s.locks.session_ended();
                s.reopening = None;
                s.session = SessionState::Dead { reason: refusal.to_string() };
            }
            first
        });
        if first {
            self.port.log(format_args!(
                "this mount was evicted from the cluster ({refusal}): it opens a new session, and goes on"
            ));
            self.port.work_waits();
        }
    }

    fn gave_up(&self, jobs: &[Job<'_>], waited: u64) -> Refusal {
        let open = jobs.iter().find(|job| job.settled.is_none());
        let node = open.and_then(|job| job.node).unwrap_or(MGMTD);
        let trouble = open.and_then(|job| job.trouble.as_ref());
        let why = trouble.map_or("it has opened no session for this mount", |trouble| &trouble.detail);
        refuse(
            Errno::EIO,
            alloc::format!(
                "gave up after {} s: {}: {why}; check that the daemon runs (skep health)",
                waited / 1000,
                self.name_of(node)
            ),
        )
    }

    fn complain(&self, jobs: &[Job<'_>], since: Millis) {
        for job in jobs.iter().filter(|job| job.settled.is_none()) {
            let Some(node) = job.node else { continue };
            let why = || job.trouble.as_ref().map(|trouble| trouble.to_string()).unwrap_or_default();
            // By a map that came meanwhile somebody else may be asked next.
            if self.shared.with(|s| s.node_of(job.to) == Some(node) && s.nodes.silent(node, since, why)) {
                self.port.log(format_args!("waiting for {}: {}", self.name_of(node), why()));
            }
        }
    }

    pub(crate) fn name_of(&self, node: NodeId) -> String {
        self.shared.with(|s| s.name_of(node))
    }
}

impl Shared {
    /// The present client; 0 without a session.
    pub(crate) fn client(&self) -> ClientId {
        self.session.open().map_or(ClientId(0), |session| session.client)
    }

    /// `node` refused what is for `to`. `true`: ask again at once, somebody else.
    fn misdirected(&mut self, to: To, node: Option<NodeId>, refusal: &Refusal) -> bool {
        let (To::Shard(shard), Some(node)) = (to, node) else { return false };
        match refusal.status {
            Status::NOT_LEADER => {
                if let Some(lead) = refusal.lead.filter(|lead| self.map.hint(shard, *lead)) {
                    self.shards.led_by(shard, lead.node);
                    return true;
                }
                self.map.is_misled(shard, node);
                false
            }
            Status::ELSEWHERE => {
                self.map.is_misled(shard, node);
                self.map.is_older_than(refusal.view.as_deref())
            }
            _ => false,
        }
    }

    pub(crate) fn node_of(&self, to: To) -> Option<NodeId> {
        match to {
            To::Mgmt => Some(MGMTD),
            To::Shard(shard) => self.map.leader(shard),
            To::Target(target) => self.map.target(target).map(|target| target.node),
        }
    }
}

/// Must not be given up while it may be on its way. Requests to shards that change something have a
/// sequence number; those to targets, locks, and what is told of them have none.
fn changes(job: &Job<'_>) -> bool {
    const UNNUMBERED: [u16; 8] = [
        WriteChunk::KIND,
        TrimChunk::KIND,
        PunchChunk::KIND,
        CopyChunk::KIND,
        ReserveChunk::KIND,
        SetLock::KIND,
        DropLocks::KIND,
        Reclaim::KIND,
    ];
    job.changing || UNNUMBERED.contains(&job.kind)
}

/// What must not go over to another session than that of its operation's beginning, `began`: a change that may have been
/// made, for whose repetition nobody looks any more; a lock, which the program was not given; a place at the end of a
/// file, which others may have by now; chunk files, for the file may have others by now.
fn end_with_session(jobs: &mut [Job<'_>], began: Option<ClientId>, sender: Option<ClientId>) {
    for job in jobs.iter_mut().filter(|job| job.settled.is_none()) {
        // The operation may have waited for something else while the session ended.
        if sender.is_some() && job.bound.is_some() && job.bound != sender {
            job.settled = Some(Err(Status::FENCED.into()));
        }
    }
    if sender == began && sender.is_some() {
        return;
    }
    for job in jobs.iter_mut().filter(|job| job.settled.is_none()) {
        let chunks =
            matches!(job.to, To::Target(_)) && ![SyncChunks::KIND, StatChunks::KIND].contains(&job.kind);
        let sent = job.sent_as != ClientId(0);
        let lock = sent && [SetLock::KIND, DropLocks::KIND, GetLock::KIND].contains(&job.kind);
        if lock || job.bound.is_some() {
            job.settled = Some(Err(Status::FENCED.into()));
        } else if job.unsure && job.changing {
            job.settled = Some(Err(refuse(
                Errno::EIO,
                String::from("this mount was evicted before the answer came: it may have been done, or not"),
            )));
        } else if chunks && sender.is_some() {
            job.settled = Some(Err(Status::STALE_GENERATION.into()));
        }
    }
}

fn stop(jobs: &mut [Job<'_>], refusal: &Refusal) {
    for job in jobs.iter_mut().filter(|job| job.settled.is_none()) {
        job.settled = Some(Err(refusal.clone()));
    }
}
