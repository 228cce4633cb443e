//! What metadata servers tell of their own accord: one lane for each server asks, while there is a reason to. See
//! `docs/design/client.md`, section 7a.

use crate::job::{Job, Reply};
use crate::lane::Lane;
use crate::limits::{EVENTS_HELD_MS, HEARD_PATIENCE_MS, LISTEN_PATIENCE_MS};
use crate::port::{Cell, Port};
use crate::state::{Acls, Ended, Shards, Shared};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Millis, NodeId, ShardId};
use skep_wire::meta::{Event, Events, EventsReply};
use skep_wire::{Refusal, Status};

/// While something is to be tried again, events are waited for so long.
const EVENTS_SOON_MS: u64 = 100;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Waits up to `wait_ms` for events of `node`, takes them in, and confirms what is taken back: for a lane that does nothing
    /// else. All else that events may lead to is for others, or two mounts that report what they have open could wait for each
    /// other: waits for locks for [`Lane::tend_waits`], reports and the map for [`Lane::housekeeping`]. An error: why the server
    /// told nothing; ask again after a pause.
    pub async fn hear(&self, node: NodeId, wait_ms: u64) -> Result<(), Status> {
        let told = self.hear_once(node, wait_ms).await;
        if told.is_err_and(|status| ![Status::NOT_READY, Status::FENCED].contains(&status)) {
            // The server may have moved, or be a new one.
            self.shared.with(|s| s.map.may_be_behind());
            self.port.work_waits();
        }
        told
    }

    async fn hear_once(&self, node: NodeId, wait_ms: u64) -> Result<(), Status> {
        // Others may wait for it.
        let has_told = self.heard_within(EVENTS_HELD_MS, self.report_leases(node)).await;
        let wait_ms = if has_told { wait_ms } else { wait_ms.min(EVENTS_SOON_MS) };
        // What waits for names is to be said when those are over.
        let now = self.port.boot();
        let names = self.shared.with(|s| s.names_wait_for(node, now));
        let wait_ms = names.map_or(wait_ms, |ms| wait_ms.min(ms));
        let Some(question) = self.shared.with(|s| s.question_of_ear(node, wait_ms, now)) else {
            // Whatever else is to be said, it cannot be now.
            self.port.pause(names.unwrap_or(1).min(EVENTS_SOON_MS)).await;
            return if has_told { Ok(()) } else { Err(Status::NOT_READY) };
        };
        let reply = self.heard_within(question.1.wait_ms, self.once(self.asking_events(&question))).await;
        self.take_in(reply)?;
        // What could not be said, or dropped, now is tried again after a pause.
        match self.heard_within(EVENTS_HELD_MS, self.report_leases(node)).await {
            true => Ok(()),
            false => Err(Status::NOT_READY),
        }
    }

    /// What a server may hold back for `wait_ms` is waited for a little longer. With leases that is little: nothing but silence
    /// tells of a machine that is gone, and they last for seconds.
    async fn heard_within<T>(&self, wait_ms: u64, work: impl Future<Output = T>) -> T {
        let patience = if self.leases { HEARD_PATIENCE_MS } else { LISTEN_PATIENCE_MS };
        self.port.wanted_for(Some(wait_ms + patience));
        let done = work.await;
        self.port.wanted_for(None);
        done
    }

    /// What is to be done for waits on `node` beside asking what became of them ([`Lane::hear`]): gives those that ended, and puts
    /// wishes that their shards have forgotten (a new term) into their queues again, each once. `false` beside them: a shard did
    /// not take one now, or cannot be told what is held there; this is to be called again soon.
    pub async fn tend_waits(&self, node: NodeId) -> (Vec<Ended>, bool) {
        let shards = self.shared.with(|s| s.wished_shards(node));
        let is_told = self.reclaim_due(shards, Shards::begin_reclaim).await;
        let again = self.wish_forgotten_again(node).await;
        let is_done = is_told && self.shared.with(|s| s.forgotten_wishes(node).is_empty());
        let mut ended = self.shared.with(|s| s.locks.take_ended());
        ended.extend(again);
        (ended, is_done)
    }

    /// All leases end, and their servers hear of it, each asked once and for some seconds at most: nobody needs to wait until
    /// this mount, which ends, has been silent for long enough.
    pub async fn give_up_leases(&self) {
        if !self.leases {
            return;
        }
        let reports = self.shared.with(|s| {
            s.all_lapses(true);
            let nodes = s.nodes_to_report();
            let now = self.port.boot();
            nodes.into_iter().flat_map(|node| s.take_lease_reports(node, now)).collect::<Vec<_>>()
        });
        let mut jobs: Vec<Job<'_>> =
            reports.iter().map(|(shard, report)| self.asking(*shard, report)).collect();
        self.port.wanted_for(Some(LISTEN_PATIENCE_MS));
        self.once_each(&mut jobs).await;
        self.port.wanted_for(None);
    }

    /// A mount that holds something and asks for nothing would not hear that a shard began a term, and would lose what it holds
    /// with the grace period of that. So it asks every server that knows it now and then, all of them together; those on which
    /// somebody waits are asked all the time. Where somebody begins to wait meanwhile, what became of that may be among what is
    /// told: it is kept for who asks all the time.
    pub(crate) async fn listen(&self) {
        let now = self.port.now();
        let questions = self.shared.with(|s| s.questions_of_nobody(now));
        let mut jobs: Vec<Job<'_>> = questions.iter().map(|question| self.asking_events(question)).collect();
        self.port.wanted_for(Some(LISTEN_PATIENCE_MS));
        self.once_each(&mut jobs).await;
        self.port.wanted_for(None);
        for mut job in jobs {
            // Whoever does not answer is asked again the next time, and by all who want something of it.
            let _ = self.take_in(job.take());
        }
        // Those that are asked hear it with that, from who has a connection for it.
        let to_hear = self.shared.with(|s| {
            let asked = s.nodes_to_hear();
            s.nodes_to_report().into_iter().filter(|node| !asked.contains(node)).collect::<Vec<_>>()
        });
        // What was heard here is said by who has a connection for that.
        if self.shared.with(|s| s.leases.take_news() | s.kernel.take_news()) {
            self.port.is_lent();
        }
        for node in to_hear {
            self.report_leases(node).await;
        }
    }

    fn asking_events(&self, (shard, question): &(ShardId, Events)) -> Job<'static> {
        self.asking(*shard, question)
    }

    /// Takes in what a server tells. The waits that ended by it are kept in the same step in which it counts as received, for
    /// who asks from then on is not told of it: whoever takes them next tells the programs ([`Lane::tend_waits`]).
    fn take_in(&self, reply: Result<Reply, Refusal>) -> Result<(), Status> {
        let reply = reply.map_err(|refusal| refusal.status)?;
        let EventsReply { events, number } = reply.read().map_err(|refusal| refusal.status)?;
        let now = self.port.boot();
        let is_wanted =
            |event: &Event| matches!(event, Event::Recall(recall) if recall.wants_back == Some(true));
        let has_mounts = events.0.iter().any(is_wanted) && self.port.has_mounts();
        let (mut asked, mut looked_at) = (false, false);
        let waits = self.shared.with(|s| {
            // The channel is the server's, whichever shard it was asked through.
            if s.nodes.has_ended(reply.node, reply.incarnation) {
                return false;
            }
            // All terms, and before the locks: what was granted in one that has ended is nothing.
            let mut begun = false;
            let closes = s.closes.len();
            for event in &events.0 {
                begun |= s.term_begun(event, reply.node);
            }
            for event in &events.0 {
                if let Event::Recall(recall) = event
                    && reply.client == s.client()
                {
                    s.recalled(recall, reply.node, has_mounts, now);
                }
            }
            events.0.iter().for_each(|event| s.lock_ended(event));
            for event in &events.0 {
                if let Event::Question(question) = event
                    && reply.client == s.client()
                {
                    s.is_asked_for(question, now);
                    asked |= question.looks.is_none();
                    looked_at |= question.looks.is_some();
                }
            }
            // Those of kinds that this release does not know count as well.
            if reply.client == s.client() {
                s.nodes.confirm_events(reply.node, number);
            }
            begun || s.closes.len() > closes || s.kept.wants_look
        });
        if waits {
            self.port.work_waits();
        }
        if asked {
            self.port.is_asked();
        } else if looked_at {
            self.port.is_looked_at();
        }
        Ok(())
    }
}

impl Shared {
    /// A shard says of its own accord that it is in a term that was not known.
    fn term_begun(&mut self, event: &Event, node: NodeId) -> bool {
        let Event::Term(begun) = event else { return false };
        if self.limits.leases {
            self.leases.term_is(begun.shard, begun.term, node);
        }
        self.shards.heard(begun.shard, begun.term)
    }

    /// A wait may have ended by an event.
    fn lock_ended(&mut self, event: &Event) {
        if let Event::Lock(outcome) = event
            && let Some(ended) = self.lock_outcome(outcome)
        {
            self.locks.keep_ended(ended);
        }
    }

    /// Nobody can say how long this mount stood still, or it ends (`for_good`): nothing is told from memory any more that was
    /// learned by now.
    pub fn all_lapses(&mut self, for_good: bool) {
        if self.limits.leases {
            self.leases.all_lapse(for_good);
            self.names.forget_all();
            self.acls = Acls::default();
        }
    }

    /// The question to `node` on which wishes wait, or of which leases are held, and the shard that it goes through.
    fn question_of_ear(&self, node: NodeId, wait_ms: u64, now: Millis) -> Option<(ShardId, Events)> {
        let waits = !self.wished_shards(node).is_empty() || self.nodes_of_holds().any(|of| of == node);
        // Leases that begin meanwhile are renewed by this answer, too.
        (waits || self.leases.asks(node))
            .then(|| self.question(node, self.patience_of_ear(node, wait_ms, now)))?
    }

    /// For how long who only hears waits.
    pub(crate) fn patience_of_ear(&self, node: NodeId, wait_ms: u64, now: Millis) -> u64 {
        match self.leases.asks_once(node) {
            // It counts when what has lapsed can be said: not while the kernel uses something.
            true if !self.leases.is_clean(node, now) => wait_ms.min(EVENTS_SOON_MS),
            true => 0,
            false if self.limits.leases => wait_ms.min(self.leases.patience(node)),
            false => wait_ms,
        }
    }

    fn question(&self, node: NodeId, wait_ms: u64) -> Option<(ShardId, Events)> {
        Some((self.names_channel(node)?, Events { received: self.nodes.events(node), wait_ms }))
    }

    /// The shard that names the channel of `node`: one that has heard of this mount, if there is any. Others may not listen
    /// before they have.
    fn names_channel(&self, node: NodeId) -> Option<ShardId> {
        let shards = self.wished_shards(node);
        let told = shards.iter().find(|shard| self.shards.told(**shard).is_some());
        let known = || self.shards.known_here().find(|shard| self.map.leader(*shard) == Some(node));
        told.or_else(|| shards.first()).copied().or_else(known)
    }

    /// What servers are asked that know this mount and that nobody asks, when it is time.
    fn questions_of_nobody(&mut self, now: Millis) -> Vec<(ShardId, Events)> {
        let Some(session) = self.session.open() else { return Vec::new() };
        // A mount that has just begun has nothing to hear yet.
        if now.since(*self.listened.get_or_insert(now)) < session.timeout_ms / 4 {
            return Vec::new();
        }
        self.listened = Some(now);
        let asked = self.nodes_to_hear();
        let leaders = self.shards.known_here().filter_map(|shard| self.map.leader(shard));
        let nodes: BTreeSet<NodeId> = leaders.filter(|node| !asked.contains(node)).collect();
        nodes.into_iter().filter_map(|node| self.question(node, 0)).collect()
    }

    /// Servers for which there is a reason to call [`Lane::hear`]: something waits there, is held of it, or is to be told to it.
    pub fn nodes_to_hear(&self) -> BTreeSet<NodeId> {
        let told = self.nodes_to_report().into_iter().chain(self.nodes_to_drop());
        let asked = self.leases.nodes_asked().into_iter().chain(told);
        let asked = asked.filter(|node| self.names_channel(*node).is_some());
        self.wished_nodes().into_iter().chain(self.nodes_of_holds()).chain(asked).collect()
    }

    /// Those for which there is one to call [`Lane::tend_waits`]: programs wait there, or have waited and are to be told.
    pub fn nodes_with_waits(&self) -> BTreeSet<NodeId> {
        let ended = self.locks.ended_on().filter_map(|shard| self.map.leader(shard));
        self.wished_nodes().into_iter().chain(ended).collect()
    }
}

#[cfg(test)]
mod tests;
