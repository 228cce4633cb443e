//! The port of a lane on a thread with a reactor.

use super::super::hands::Hands;
use super::super::pages::{Notice, Told};
use super::RingHands;
use super::pool::{Lease, lease};
use super::services::connected;
use super::watch::{Stopped, Watch};
use crate::mount::lane_hands::{Asker, LOOK_EVERY, LaneHands, MountPort};
use crate::mount::links::Debts;
use skep_client::{Answer, Call, Dropped, MGMTD, Outcome, Port};
use skep_net::NetError;
use skep_net::ring::{Pending, Reply, SharedLink};
use skep_types::{ClientId, Incarnation, Ino, Millis, NodeId, Timestamp, Uuid};
use skep_wire::{Header, Status};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

pub struct RingPort {
    thread: Rc<RingHands>,
    lane: Rc<LaneHands>,
    watch: Rc<Watch>,
    debts: Debts,
}

impl RingPort {
    /// Waits for a notice to arrive, or until there is no sense in it.
    async fn notified(&self, notice: Option<(Arc<Told>, Instant)>) -> Dropped {
        let Some((told, until)) = notice else { return Dropped::Done };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let pause = self.thread.reactor.sleep(left.min(LOOK_EVERY));
            match told.wait_before(pause).await {
                Some(became) => return became,
                None if left.is_zero() || self.cancelled() => return Dropped::Waits,
                None => {}
            }
        }
    }

    /// For a new lane of this thread.
    pub fn new(thread: &Rc<RingHands>) -> Self {
        let lane = Rc::new(LaneHands::new(thread.hands.clone()));
        let watch = thread.watches.add(lane.clone());
        Self { thread: thread.clone(), lane, watch, debts: Debts::default() }
    }

    /// See [`LaneHands::client`].
    #[cfg(test)]
    pub fn client(&self) -> ClientId {
        self.lane.client()
    }

    /// See [`LaneHands::give_up`].
    #[cfg(test)]
    pub fn give_up(&self) {
        self.lane.give_up();
    }

    fn trouble(&self, e: &NetError) {
        self.lane.hands.say(format_args!("{e}"));
    }

    /// The same for as long as there is sense in it.
    async fn exchange_watched(&self, calls: &mut [Call<'_>]) {
        for call in calls.iter_mut() {
            call.outcome = Outcome::Unreachable;
        }
        let _expected = self.thread.reactor.expects();
        let waited = self.watch.over(&self.thread, pin!(self.exchange(calls))).await;
        if waited == Err(Stopped::TimedOut) {
            self.timed_out(calls);
        }
    }

    /// All calls to their nodes at once.
    async fn exchange(&self, calls: &mut [Call<'_>]) {
        if let [call] = calls {
            return self.ask(call.node, &mut [call]).await;
        }
        let Some(node) = calls.first().map(|call| call.node) else { return };
        if calls.iter().all(|call| call.node == node) {
            return self.ask(node, &mut calls.iter_mut().collect::<Vec<_>>()).await;
        }
        let mut by_node: Vec<(NodeId, Vec<&mut Call<'_>>)> = Vec::new();
        for call in calls {
            match by_node.iter_mut().find(|(node, _)| *node == call.node) {
                Some((_, group)) => group.push(call),
                None => by_node.push((call.node, vec![call])),
            }
        }
        let mut all: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::with_capacity(by_node.len());
        for (node, group) in &mut by_node {
            all.push(Box::pin(self.ask(*node, group)));
        }
        poll_fn(|cx| {
            all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
            if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    async fn ask(&self, node: NodeId, calls: &mut [&mut Call<'_>]) {
        let Some(client) = calls.first().map(|call| call.client) else { return };
        if node != MGMTD && self.lane.hands.is_storage(node) {
            return self.ask_storage((node, client), calls).await;
        }
        let _leaving = (node == MGMTD).then(|| Leaving(&self.thread));
        let Some(link) = connected(&self.thread, &self.lane, node, client).await else { return };
        self.ask_service(&link, calls).await;
    }

    /// Over the connection that all lanes of the thread share.
    async fn ask_service(&self, link: &SharedLink, calls: &mut [&mut Call<'_>]) {
        let mut asked: Vec<(usize, Pending)> = Vec::with_capacity(calls.len());
        for (at, call) in calls.iter_mut().enumerate() {
            let header = Header { epoch: call.epoch, ..Header::request(call.kind, 0) };
            match link.request(&header, call.body, call.payload) {
                Ok(pending) => {
                    call.outcome = Outcome::Lost;
                    self.watch.sent(call.changing);
                    asked.push((at, pending));
                }
                Err(e) => self.trouble(&e),
            }
        }
        for (at, pending) in asked {
            match pending.await {
                Ok(reply) => take_reply(calls[at], reply, link.welcome().incarnation),
                Err(e) => self.trouble(&e),
            }
            self.watch.progress();
        }
    }

    /// Over a connection of the lane's own for the time being.
    async fn ask_storage(&self, (node, client): (NodeId, ClientId), calls: &mut [&mut Call<'_>]) {
        let lease = lease(&self.thread, &self.lane, &self.debts, node, client).await;
        let Some(mut lease) = lease else { return };
        match self.ask_directly(&mut lease, calls).await {
            Ok(()) => lease.give_back(),
            Err(e) => self.trouble(&e),
        }
    }

    async fn ask_directly(&self, lease: &mut Lease<'_>, calls: &mut [&mut Call<'_>]) -> Result<(), NetError> {
        let link = &mut lease.link;
        let incarnation = link.welcome().incarnation;
        let mut sent = Vec::with_capacity(calls.len());
        for call in calls.iter_mut() {
            let request = self.thread.next_request();
            let header = Header { epoch: call.epoch, ..Header::request(call.kind, request) };
            // From the first byte on it may arrive.
            call.outcome = Outcome::Lost;
            self.watch.sent(call.changing);
            link.ask(&header, call.body, call.payload, call.into.len()).await?;
            self.watch.progress();
            sent.push(request);
        }
        for (call, request) in calls.iter_mut().zip(sent) {
            let frame = link.recv_of(request, call.into).await?;
            call.outcome = Outcome::Answer(Answer {
                status: Status(frame.header.status),
                body: frame.body.to_vec(),
                payload_len: frame.header.payload_len as usize,
                incarnation,
                epoch: frame.header.epoch,
            });
            self.watch.progress();
        }
        Ok(())
    }

    /// A service whose answer did not come in its time is not asked again over that connection.
    fn timed_out(&self, calls: &[Call<'_>]) {
        for call in calls.iter().filter(|call| call.outcome == Outcome::Lost) {
            self.lane.hands.no_answer(call.node);
            if !self.lane.hands.is_storage(call.node) {
                self.thread.services.close(call.node);
            }
        }
    }
}

/// Puts an answer where it belongs. A payload without room is a protocol error: the call stays lost.
fn take_reply(call: &mut Call<'_>, reply: Reply, incarnation: Incarnation) {
    let Some(into) = call.into.get_mut(..reply.payload.len()) else { return };
    into.copy_from_slice(&reply.payload);
    call.outcome = Outcome::Answer(Answer {
        status: Status(reply.header.status),
        body: reply.body,
        payload_len: reply.payload.len(),
        incarnation,
        epoch: reply.header.epoch,
    });
}

/// Lanes ask mgmtd rarely, and its connections are counted: the last one to leave closes it.
struct Leaving<'a>(&'a RingHands);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.services.close_if_idle(MGMTD);
    }
}

impl Drop for RingPort {
    fn drop(&mut self) {
        self.debts.settle(&self.lane.hands);
    }
}

impl Port for RingPort {
    type Notice = Option<Arc<Told>>;

    async fn call(&self, calls: &mut [Call<'_>]) {
        match self.lane.hands.netbench.get() {
            None => self.exchange_watched(calls).await,
            Some(netbench) => netbench.around(calls, async |calls| self.exchange_watched(calls).await).await,
        }
    }

    async fn pause(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.cancelled() {
                return;
            }
            self.thread.reactor.sleep(left.min(LOOK_EVERY)).await;
        }
    }

    async fn pause_before(&self, ms: u64, called: impl Future<Output = ()>) {
        let (mut called, mut pause) = (pin!(called), pin!(self.pause(ms)));
        poll_fn(|context| match called.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => pause.as_mut().poll(context),
        })
        .await;
    }

    async fn drop_pages(&self, ino: Ino, from: u64, len: u64, patience: Option<u64>) -> bool {
        let notice = Notice::Drop { from, len };
        self.notified(self.lane.notify(ino, notice, patience)).await == Dropped::Done
    }

    fn drop_name(&self, dir: Ino, name: &[u8]) -> Self::Notice {
        self.lane.tell(dir, Notice::Name(name.into()))
    }

    async fn noticed(&self, notice: &Self::Notice, patience: u64) -> Dropped {
        let until = Instant::now() + Duration::from_millis(patience);
        self.notified(notice.clone().map(|told| (told, until))).await
    }

    fn drop_names(&self) -> Dropped {
        self.lane.drop_names()
    }

    fn has_mounts(&self) -> bool {
        self.lane.has_mounts()
    }

    fn drop_attributes(&self, ino: Ino) -> Dropped {
        self.lane.drop_attributes(ino)
    }

    async fn settle(&self, ino: Ino) -> bool {
        let told = self.lane.settle(ino);
        self.notified(told).await == Dropped::Done
    }

    async fn tell_size(&self, ino: Ino, size: u64) -> bool {
        self.notified(self.lane.notify(ino, Notice::Size(size), None)).await == Dropped::Done
    }

    fn now(&self) -> Millis {
        self.lane.now()
    }

    fn boot(&self) -> Millis {
        self.lane.boot()
    }

    fn wall(&self) -> Timestamp {
        self.lane.wall()
    }

    fn cancelled(&self) -> bool {
        self.lane.cancelled()
    }

    fn caller(&self) -> u32 {
        self.lane.caller()
    }

    fn wanted_for(&self, ms: Option<u64>) {
        self.lane.wanted_for(ms);
    }

    fn uuid(&self) -> Uuid {
        self.lane.uuid()
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.lane.hands.say(line);
    }

    fn work_waits(&self) {
        self.lane.hands.work_waits();
    }

    fn is_lent(&self) {
        self.lane.hands.bell.ring();
    }

    fn is_asked(&self) {
        self.lane.hands.is_asked();
    }

    fn is_looked_at(&self) {
        self.lane.hands.is_looked_at();
    }
}

impl MountPort for RingPort {
    fn begin(&self, asker: &Asker<'_>) {
        self.lane.begin(asker);
    }

    fn hands(&self) -> &Hands {
        &self.lane.hands
    }
}
