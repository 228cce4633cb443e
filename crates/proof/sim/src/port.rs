//! The hands of a simulated lane.

use crate::Canary;
use crate::hub::{CallId, Hub, HubRef, Landed, LaneId, Outgoing};
use crate::kernel::{Kernel, NoticeId, Told, kernel};
use crate::lending::connection_of_pool;
use crate::world::{LANES, TELLER};
use skep_client::{Call, Dropped, MGMTD, Outcome, Port, Shared};
use skep_types::{ClientId, Decode, Incarnation, Ino, Millis, NodeId, Reader, Timestamp, Uuid};
use skep_wire::Message;
use skep_wire::meta::{Recalled, ShardCall};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// State that the lanes of a client share.
pub type SharedRef = Rc<RefCell<Shared>>;

/// A notification takes no longer than this to reach the kernel.
const NOTICE_MAX_MS: u64 = 60;
/// Nor does a question of the kernel take longer to be answered that it was made to ask.
const ASKED_MS: u64 = 10;
/// A port waits no longer than one of these before it has a connection.
const CONNECTS_MAX_MS: [u64; 3] = [10, 200, 3_000];
/// Message numbers of metadata shards.
const META_KINDS: std::ops::Range<u16> = 0x0200..0x0300;

pub struct SimPort {
    pub hub: HubRef,
    /// Whose hands.
    pub lane: LaneId,
    /// For the session.
    pub shared: SharedRef,
    /// What is done now is wanted until then.
    pub wanted: Cell<Option<u64>>,
}

impl SimPort {
    fn send(&self, call: &Call<'_>) -> CallId {
        let (client, incarnation) = match self.shared.borrow().session.open() {
            Some(session) => (session.client, session.incarnation),
            None => (ClientId(0), Incarnation(0)),
        };
        let mut hub = self.hub.borrow_mut();
        let id = hub.next_call();
        if call.node != MGMTD && call.client != client {
            hub.coverage.hit("a request waited for its connection while the session ended");
            hub.landed.insert(id, Landed { outcome: Outcome::Unreachable, payload: Vec::new() });
            return id;
        }
        if client != ClientId(0) {
            hub.sends(self.lane.life, client);
        }
        if META_KINDS.contains(&call.kind)
            && let Ok(shard_call) = ShardCall::decode(&mut Reader::new(call.body))
            && shard_call.seq.0 > 0
        {
            let step = hub.at_step.get(&self.lane).copied().unwrap_or(0);
            let ticket = (client, shard_call.slot.0, shard_call.shard, shard_call.seq.0);
            hub.tickets.insert(ticket, (self.lane, step));
        }
        hub.calls.push(Outgoing {
            id,
            from: self.lane,
            node: call.node,
            kind: call.kind,
            epoch: call.epoch,
            client,
            incarnation,
            body: call.body.to_vec(),
            payload: call.payload.to_vec(),
            room: call.into.len(),
        });
        id
    }

    /// Waits for a connection, now and then. `false`: the program has given up.
    async fn connected(&self) -> bool {
        let wait = {
            let hub = &mut *self.hub.borrow_mut();
            let most = hub.rng.pick(&CONNECTS_MAX_MS);
            let connects = !hub.calm && hub.rng.below(1_000) < hub.deeds.connects;
            connects.then(|| hub.rng.below(most))
        };
        match wait {
            Some(ms) => {
                self.pause(ms).await;
                !self.patience_is_over()
            }
            None => true,
        }
    }

    /// Programs' requests take connections of their mount's pool, and give them back.
    fn takes_of_pool(&self, nodes: &[NodeId], takes: bool) {
        if self.lane.lane as usize >= LANES {
            return;
        }
        let pooled = &mut self.hub.borrow_mut().pooled;
        for node in nodes {
            let requests = pooled.entry((self.lane.life, *node)).or_default();
            *requests = if takes { *requests + 1 } else { requests.saturating_sub(1) };
        }
    }

    /// A question that the kernel was made to ask, or its answer, is on its way.
    async fn travels(&self) {
        let ms = self.hub.borrow_mut().rng.below(ASKED_MS);
        self.pause(ms).await;
    }

    fn patience_is_over(&self) -> bool {
        let hub = self.hub.borrow();
        let is_over = |at: u64| at <= hub.now;
        hub.cancelled.get(&self.lane).copied().is_some_and(is_over) || self.wanted.get().is_some_and(is_over)
    }
}

impl Port for SimPort {
    type Notice = Result<NoticeId, Told>;

    async fn call(&self, calls: &mut [Call<'_>]) {
        *self.hub.borrow_mut().rounds.entry(self.lane).or_default() += 1;
        if !self.connected().await {
            return;
        }
        if self.hub.borrow().canary == Some(Canary::ConfirmsOnAPooledLane)
            && let Some(call) = calls.first().filter(|call| call.kind == Recalled::KIND)
        {
            connection_of_pool(&self.hub, self.lane, call.node).await;
        }
        let nodes: Vec<NodeId> = calls.iter().map(|call| call.node).collect();
        self.takes_of_pool(&nodes, true);
        let ids: Vec<CallId> = calls.iter().map(|call| self.send(call)).collect();
        // What is sent and changes something is waited for, whatever the program wants.
        let changing = calls.iter().any(|call| call.changing);
        poll_fn(|_| {
            let landed = ids.iter().all(|id| self.hub.borrow().landed.contains_key(id));
            let given_up = !changing && self.patience_is_over();
            if landed || given_up { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.takes_of_pool(&nodes, false);
        let mut hub = self.hub.borrow_mut();
        for (id, call) in ids.iter().zip(calls) {
            call.outcome = match hub.landed.remove(id) {
                Some(Landed { outcome, payload }) => {
                    call.into[..payload.len()].copy_from_slice(&payload);
                    outcome
                }
                None => {
                    hub.abandoned.push(*id);
                    Outcome::Lost
                }
            };
        }
    }

    async fn pause(&self, ms: u64) {
        let host = Hub::host_of(self.lane.life);
        let until = Millis(self.hub.borrow().mono(host).0 + ms.max(1));
        let mut due = 0;
        poll_fn(|_| {
            if self.patience_is_over() {
                return Poll::Ready(());
            }
            let hub = &mut *self.hub.borrow_mut();
            if hub.mono(host) >= until {
                return Poll::Ready(());
            }
            // Again after a sleep, which took none of the time, or ended before it was to.
            let at = hub.true_time(host, until);
            if hub.now >= due || at < due {
                due = at;
                hub.timers.push((due, self.lane));
            }
            Poll::Pending
        })
        .await;
    }

    async fn drop_pages(&self, ino: Ino, from: u64, len: u64, patience: Option<u64>) -> bool {
        let (delay, since, canary) = {
            let hub = &mut *self.hub.borrow_mut();
            (hub.rng.below(NOTICE_MAX_MS), hub.now, hub.canary)
        };
        match canary {
            Some(Canary::PagesStay) => return true,
            Some(Canary::PagesLate) => {
                kernel(&self.hub, self.lane.life, |k| k.drop_late(ino, from, len, since + delay));
                return true;
            }
            _ => self.pause(delay).await,
        }
        // It outdates what was asked before once, when it comes, and then waits for pages.
        let mut gone =
            kernel(&self.hub, self.lane.life, |k| k.inval_inode(ino, Some((from, len)))) != Told::Waits;
        while !gone
            && !self.patience_is_over()
            && patience.is_none_or(|ms| self.hub.borrow().now < since + ms)
        {
            self.pause(1).await;
            gone = kernel(&self.hub, self.lane.life, |k| k.drop_pages(ino, from, len));
        }
        gone
    }

    fn drop_attributes(&self, ino: Ino) -> Dropped {
        self.hub.borrow_mut().coverage.hit("a kernel was told to drop attributes");
        match kernel(&self.hub, self.lane.life, |k| k.inval_inode(ino, None)) {
            Told::Enoent => {
                self.hub.borrow_mut().coverage.hit("a kernel did not know what it was to drop");
                Dropped::Unknown
            }
            Told::Done | Told::Waits => Dropped::Done,
        }
    }

    fn drop_name(&self, dir: Ino, name: &[u8]) -> Self::Notice {
        kernel(&self.hub, self.lane.life, |k| k.notice(dir, name, self.lane))
    }

    async fn noticed(&self, notice: &Self::Notice, patience: u64) -> Dropped {
        let until = self.now().plus(patience);
        let told = loop {
            let told = match notice {
                Ok(id) => kernel(&self.hub, self.lane.life, |k| k.noticed(*id)),
                Err(told) => Some(*told),
            };
            match told {
                Some(told) => break told,
                None if self.now() >= until || self.patience_is_over() => break Told::Waits,
                None => self.pause(1).await,
            }
        };
        let (dropped, marker) = match told {
            Told::Done => (Dropped::Done, "a kernel dropped a name"),
            Told::Enoent => (Dropped::Unknown, "a kernel did not know a name that it was to drop"),
            Told::Waits => (Dropped::Waits, "a name could not be dropped at once"),
        };
        self.hub.borrow_mut().coverage.hit(marker);
        dropped
    }

    fn drop_names(&self) -> Dropped {
        self.hub.borrow_mut().coverage.hit("a kernel dropped all names");
        if kernel(&self.hub, self.lane.life, Kernel::inc_epoch) { Dropped::Done } else { Dropped::Failed }
    }

    fn has_mounts(&self) -> bool {
        // On some hosts always: nobody mounts anything here.
        self.lane.life.is_multiple_of(4) || kernel(&self.hub, self.lane.life, |k| k.has_mounts())
    }

    async fn tell_size(&self, ino: Ino, size: u64) -> bool {
        if self.hub.borrow().canary == Some(Canary::SizesUntold) {
            return true;
        }
        let delay = self.hub.borrow_mut().rng.below(NOTICE_MAX_MS);
        self.pause(delay).await;
        while !self.patience_is_over() {
            if kernel(&self.hub, self.lane.life, |k| k.lengthened(ino, size)) {
                return true;
            }
            self.pause(1).await;
        }
        false
    }

    async fn settle(&self, ino: Ino) -> bool {
        self.hub.borrow_mut().coverage.hit("a kernel was made to ask how long a file is");
        while !self.patience_is_over() {
            let asked = kernel(&self.hub, self.lane.life, |k| k.asks());
            self.travels().await;
            let known = kernel(&self.hub, self.lane.life, |k| k.size(ino));
            let Some(attr) = self.shared.borrow_mut().settles(ino, known) else { return false };
            self.travels().await;
            let is_believed = kernel(&self.hub, self.lane.life, |k| k.took_over(ino, attr.size, asked));
            let hub = &mut *self.hub.borrow_mut();
            hub.say(format_args!(
                "{}: the kernel asks how long inode {} is: {}, believed {is_believed}",
                self.lane, ino.0, attr.size
            ));
            if is_believed {
                return true;
            }
        }
        false
    }

    fn now(&self) -> Millis {
        self.hub.borrow().mono(Hub::host_of(self.lane.life))
    }

    fn boot(&self) -> Millis {
        let hub = self.hub.borrow();
        Millis(hub.hosts.boot(Hub::host_of(self.lane.life), hub.now))
    }

    fn wall(&self) -> Timestamp {
        self.hub.borrow().wall(Hub::host_of(self.lane.life))
    }

    fn cancelled(&self) -> bool {
        self.patience_is_over()
    }

    fn caller(&self) -> u32 {
        1 + self.lane.lane
    }

    fn uuid(&self) -> Uuid {
        let mut hub = self.hub.borrow_mut();
        let (high, low) = (hub.rng.next_u64(), hub.rng.next_u64());
        Uuid((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.hub.borrow_mut().say(format_args!("{} log: {line}", self.lane));
    }

    fn work_waits(&self) {
        self.hub.borrow_mut().work.insert(self.lane.life);
    }

    fn is_lent(&self) {
        self.hub.borrow_mut().ring(self.lane.life);
    }

    fn is_asked(&self) {
        let (is_early, waits) = {
            let holds = &self.shared.borrow().holds;
            (holds.is_asked_early(), holds.asked_count() > 0)
        };
        let hub = &mut *self.hub.borrow_mut();
        hub.wake_teller(self.lane.life);
        if waits {
            hub.coverage.hit("somebody waited for a held file");
        }
        if is_early {
            hub.coverage.hit("a question came before the create's answer");
        }
    }

    /// Of programs, and of who tells what is held. Housekeeping and who hears wait as long as it takes.
    fn wanted_for(&self, ms: Option<u64>) {
        let lane = self.lane.lane as usize;
        if lane >= LANES && lane != TELLER {
            return;
        }
        let hub = &mut *self.hub.borrow_mut();
        self.wanted.set(ms.map(|ms| hub.now + ms));
        hub.timers.extend(self.wanted.get().map(|due| (due, self.lane)));
        if lane == TELLER {
            // No program waits there: it is given up with what it tells, and no longer.
            hub.cancelled.remove(&self.lane);
        }
    }
}
