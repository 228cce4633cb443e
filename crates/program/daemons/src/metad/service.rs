//! The shards behind an event server: requests in, one log append per round, answers out.

use super::courier::Courier;
use super::mailbox::Mailbox;
use super::pages::Counts;
use skep_base::daemon::Readiness;
use skep_base::membership::{Greeter, Nudge, Vigil};
use skep_disk::log::{CommandLog, SyncHandle, SyncThread};
use skep_disk::rows::RowStore;
use skep_disk::shards::Shards;
use skep_instruments::{Instruments, is_instrument};
use skep_meta::{Group, Input, PeerIdentity, Request};
use skep_net::{ConnId, Keyring, Peer, PeerInfo, Replies, Service, StopHandle, may_call, now, wall};
use skep_types::{ClientId, Decode, Encode, FenceEpoch, Incarnation, Millis, Reader, Role, ServiceKind};
use skep_wire::Message;
use skep_wire::meta::{Events, GroupStats, MetaRequest, ShardCall, ShardStamp, StatsReply};
use skep_wire::mgmt::RegisterNodeReply;
use skep_wire::{Flags, Header, Hello, Refusal, Status, Welcome};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the daemon knows of itself.
pub struct Who {
    /// From mgmtd.
    pub place: RegisterNodeReply,
    /// Its life.
    pub incarnation: Incarnation,
    /// For session tokens.
    pub keyring: Keyring,
    /// What it measures.
    pub instruments: Arc<Instruments>,
    /// Notices that the process was stopped.
    pub vigil: Vigil,
}

/// A request that is not answered yet.
struct Asked {
    conn: ConnId,
    header: Header,
    since: Instant,
}

/// The daemon as its loop sees it.
pub struct Metad {
    who: Who,
    shards: Shards,
    sync: Option<SyncThread>,
    sync_handle: SyncHandle,
    courier: Courier,
    mailbox: Arc<Mailbox>,
    nudge: Nudge,
    stop: StopHandle,
    /// Told once the shards are served.
    readiness: Option<Readiness>,
    /// Requests not answered yet.
    asked: BTreeMap<u64, Asked>,
    /// Those of them that wait for something to be told of, and are no work.
    listening: usize,
    /// Answers of the instruments, for the end of the round.
    measured: Vec<(ConnId, Header, Result<Vec<u8>, Refusal>)>,
    counts: Arc<Counts>,
    /// When the first request of this round was read: one look at the clock serves all.
    round: Option<Instant>,
    /// Where answers are put together.
    answer: Vec<u8>,
    next: u64,
    fatal: Option<String>,
}

impl Metad {
    /// Of rules that know the log.
    #[allow(clippy::too_many_arguments)] // The parts of a daemon; they meet here and nowhere else.
    pub fn new(
        who: Who,
        rules: Group<RowStore>,
        command_log: CommandLog,
        sync: SyncThread,
        courier: Courier,
        mailbox: Arc<Mailbox>,
        nudge: Nudge,
        stop: StopHandle,
        readiness: Readiness,
        counts: Arc<Counts>,
    ) -> Self {
        let mut metad = Self {
            who,
            shards: Shards::new(rules, command_log, sync.handle()),
            sync_handle: sync.handle(),
            sync: Some(sync),
            courier,
            mailbox,
            nudge,
            stop,
            readiness: Some(readiness),
            asked: BTreeMap::new(),
            listening: 0,
            measured: Vec::new(),
            counts,
            round: None,
            answer: Vec::new(),
            next: 1,
            fatal: None,
        };
        metad.shards.start();
        metad
    }

    /// After the loop: everything durable and into the rows. An error tells why the loop ended.
    pub fn end(mut self, limit: Duration) -> Result<(), String> {
        self.who.instruments.end();
        if let Some(why) = self.fatal {
            return Err(format!("ended: {why}"));
        }
        self.sync_handle.wait_all(limit).map_err(|e| e.to_string())?;
        self.shards.flush(limit).map_err(|e| e.to_string())?;
        drop(self.sync.take());
        Ok(())
    }

    fn step(&mut self, input: Input) {
        if self.fatal.is_none()
            && let Err(e) = self.shards.step(now(), wall(), input)
        {
            self.die(e.to_string());
        }
    }

    /// A process that was stopped asks first whether it still has its place.
    fn begin_round(&mut self) -> Instant {
        if let Some(since) = self.round {
            return since;
        }
        let mut now = Instant::now();
        if self.who.vigil.was_away(now) {
            if !self.who.vigil.wait() {
                self.die("it was stopped for a while, and is to end".to_owned());
            }
            now = Instant::now();
        }
        self.round = Some(now);
        now
    }

    /// Half a server would answer wrongly: the process ends, a restart replays the log.
    fn die(&mut self, why: String) {
        error!("{why}");
        self.fatal.get_or_insert(why);
        self.stop.stop();
    }

    fn read_letters(&mut self) {
        let letters = self.mailbox.take();
        match letters.durable {
            Some(Ok(index)) => self.step(Input::Durable(index)),
            Some(Err(e)) => self.die(e.to_string()),
            None => {}
        }
        for (task, result) in letters.results {
            self.step(Input::Courier { task, result });
        }
        if let Some(fences) = letters.fences {
            self.step(Input::Fences(fences));
        }
        if let Some(map) = letters.map {
            self.courier.set_map(map.clone());
            self.step(Input::Map { own: self.who.place.node, map });
        }
        if let Some(sent) = letters.vouched {
            self.step(Input::Vouched(sent));
        }
        if let Some(low) = letters.low_space {
            self.step(Input::LowSpace(low || self.rules().store().trouble().is_some()));
        }
        if letters.checkpointed
            && let Err(e) = self.shards.release()
        {
            self.die(e.to_string());
        }
        if letters.read
            && let Err(e) = self.shards.take_read(now(), wall())
        {
            self.die(e.to_string());
        }
    }

    fn rules(&self) -> &Group<RowStore> {
        self.shards.rules()
    }

    fn send(&mut self, replies: &mut Replies<'_>) {
        replies.set_epoch(self.rules().epoch());
        for (conn, header, answer) in self.measured.drain(..) {
            match answer {
                Ok(body) => replies.push(conn, &header.reply(), &body, &[]),
                Err(refusal) => replies.refuse(conn, &header, &refusal),
            };
        }
        let now = Instant::now();
        for reply in self.shards.out.replies.drain(..) {
            let Some(Asked { conn, header, since }) = self.asked.remove(&reply.to) else { continue };
            self.listening -= usize::from(listens(&header));
            let took = now.saturating_duration_since(since);
            self.counts.serving.requests.answered(header.kind, took, reply.result.is_err());
            if header.flags.has(Flags::ONE_WAY) {
                continue;
            }
            self.answer.clear();
            reply.stamp.encode(&mut self.answer);
            let mut answer = header.reply();
            match reply.result {
                Ok(bytes) if header.kind == GroupStats::KIND => {
                    self.answer.extend_from_slice(&with_counts(bytes.to_vec(), &self.counts));
                }
                Ok(bytes) => self.answer.extend_from_slice(&bytes),
                Err(refusal) => {
                    answer.status = refusal.status.0;
                    refusal.encode(&mut self.answer);
                }
            }
            replies.push(conn, &answer, &self.answer, &[]);
        }
        self.counts.serving.waiting.set((self.asked.len() - self.listening) as u64);
    }

    /// Changes wait until checkpoints have caught up; what only reads goes on.
    fn admit(&self, asked: (ShardCall, MetaRequest)) -> Result<(ShardCall, MetaRequest), Refusal> {
        if self.shards.has_room() || !skep_meta::changes(&asked.1) {
            return Ok(asked);
        }
        let text =
            "the disk of the metadata server is slower than the changes, or full; asked again in a moment";
        Err(Refusal::with(Status::BUSY, text))
    }

    fn tell_ready(&mut self) {
        if self.readiness.is_some() && self.rules().is_ready() {
            let detail = format!("{} serves {} shards", self.who.place.alias, self.rules().shards().count());
            if let Some(readiness) = self.readiness.take() {
                readiness.ready(&detail);
            }
        }
    }
}

/// Is it asked what there is to tell?
fn listens(header: &Header) -> bool {
    header.kind == Events::KIND
}

fn decode(peer: &Peer, header: &Header, body: &[u8]) -> Result<(ShardCall, MetaRequest), Refusal> {
    may_call(header, peer.hello.role)?;
    let malformed = |what: String| Refusal::with(Status::MALFORMED, what);
    let mut r = Reader::new(body);
    let call = ShardCall::decode(&mut r).map_err(|e| malformed(e.to_string()))?;
    let request = MetaRequest::decode(header.kind, &mut r).map_err(|e| malformed(e.to_string()))?;
    let request = request.ok_or_else(|| malformed("not a message for a metadata server".to_owned()))?;
    r.finish("request").map_err(|e| malformed(e.to_string()))?;
    Ok((call, request))
}

impl Service for Metad {
    fn hello(&mut self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        let greeter = Greeter {
            place: &self.who.place,
            incarnation: self.who.incarnation,
            keyring: &self.who.keyring,
            service: ServiceKind::Metad,
            epoch: self.rules().epoch(),
        };
        greeter.welcome(hello)
    }

    fn opened(&mut self, _conn: ConnId, _peer: &Peer) {
        self.counts.serving.connections.add(1);
    }

    fn request(&mut self, conn: ConnId, peer: &Peer, header: &Header, body: &[u8], _payload: &[u8]) {
        if is_instrument(header.kind) {
            let answer = self.who.instruments.event_answer(peer, header, body);
            return self.measured.push((conn, *header, answer));
        }
        let number = self.next;
        self.next += 1;
        let since = self.begin_round();
        self.asked.insert(number, Asked { conn, header: *header, since });
        self.listening += usize::from(listens(header));
        let identity = PeerIdentity {
            role: peer.hello.role,
            client: if peer.hello.role == Role::Client { peer.hello.client } else { ClientId(0) },
            incarnation: peer.hello.incarnation,
            node: peer.hello.node,
        };
        match decode(peer, header, body).and_then(|asked| self.admit(asked)) {
            Ok((call, message)) => self.step(Input::Request(Request {
                reply_to: number,
                peer: identity,
                epoch: header.epoch,
                call,
                message,
            })),
            Err(refusal) => {
                let reply =
                    skep_meta::Reply { to: number, stamp: ShardStamp::default(), result: Err(refusal) };
                self.shards.out.replies.push(reply);
            }
        }
    }

    /// What the connection still waits for is not wanted any more: a request that was given up must not be
    /// carried out later.
    fn closed(&mut self, conn: ConnId, _peer: &Peer) {
        self.counts.serving.connections.add(-1);
        let left: Vec<u64> =
            self.asked.iter().filter(|(_, asked)| asked.conn == conn).map(|(to, _)| *to).collect();
        for to in left {
            let gone = self.asked.remove(&to);
            self.listening -= usize::from(gone.is_some_and(|asked| listens(&asked.header)));
            self.step(Input::Gone(to));
        }
    }

    fn wake(&mut self) {
        self.begin_round();
        self.read_letters();
    }

    fn round_end(&mut self, replies: &mut Replies<'_>) {
        self.round = None;
        if self.rules().next_deadline().is_some_and(|deadline| deadline <= now()) {
            self.step(Input::Tick);
        }
        if self.fatal.is_some() {
            return;
        }
        let wrote = match self.shards.end_round() {
            Ok(records) => records,
            Err(e) => return self.die(e.to_string()),
        };
        self.counts.serving.log_records.add(wrote);
        self.counts.serving.log_bytes.set(self.shards.log().bytes());
        self.send(replies);
        let epoch = self.rules().epoch();
        for task in self.shards.out.tasks.drain(..) {
            self.courier.send(task, epoch);
        }
        let sync_now = std::mem::take(&mut self.shards.out.sync_now);
        if wrote > 0 && sync_now {
            self.sync_handle.request_all();
        } else if sync_now {
            self.sync_handle.request(self.shards.log().last_seq());
        }
        let fetch = std::mem::take(&mut self.shards.out.fetch_map);
        if fetch {
            self.mailbox.want_word(now());
        }
        if std::mem::take(&mut self.shards.out.fetch_fences) || fetch {
            self.nudge.nudge();
        }
        for note in self.shards.out.notes.drain(..) {
            info!("{note}");
        }
        for line in self.shards.out.warnings.drain(..) {
            warning!("{line}");
        }
        if self.mailbox.tell(self.rules().durable_seq(), self.rules().formatted()) {
            self.nudge.nudge();
        }
        self.tell_ready();
    }

    fn next_deadline(&self) -> Option<Millis> {
        self.rules().next_deadline()
    }

    fn epoch(&self) -> FenceEpoch {
        self.rules().epoch()
    }
}

/// The rules' counters with those of the daemon.
fn with_counts(bytes: Vec<u8>, counts: &Counts) -> Vec<u8> {
    match StatsReply::from_bytes(&bytes) {
        Ok(mut stats) => {
            counts.add_to(&mut stats);
            stats.to_bytes()
        }
        Err(_) => bytes,
    }
}
