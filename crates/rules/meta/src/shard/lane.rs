//! Carries requests out. Lanes: a changing request is done once, however often it comes.

use super::Shard;
use super::run::{Ran, Tells};
use super::txns::Begun;
use super::waits::{Again, For, Parked};
use crate::command::Caller;
use crate::fail::{Need, corrupt};
use crate::group::Host;
use crate::group::Request;
use crate::key::{self, Table};
use crate::near::Near;
use crate::row::slot::{Gate, SlotRow};
use crate::row::trim::Trim;
use crate::store::{Store, StoreError};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use skep_types::limits::SLOTS_MAX;
use skep_types::{ClientId, Decode, Errno, Incarnation, Role, Seq, Slot};
use skep_wire::meta::{MetaRequest, OpenMode, OpenReply, ShardStamp};
use skep_wire::{Refusal, Status};

/// The last request of a lane that had no effect. In memory only: nothing happened.
pub struct Remembered {
    incarnation: Incarnation,
    seq: Seq,
    refusal: Option<Refusal>,
}

/// Of many lanes, bounded: the oldest go.
#[derive(Default)]
pub struct Memories {
    most: usize,
    next: u64,
    all: BTreeMap<(ClientId, Slot), (u64, Remembered)>,
    by_age: BTreeMap<u64, (ClientId, Slot)>,
}

impl Memories {
    /// Of so many lanes.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    fn get(&self, caller: &Caller) -> Option<&Remembered> {
        self.all.get(&(caller.client, caller.slot)).map(|(_, last)| last)
    }

    fn keep(&mut self, caller: &Caller, last: Remembered) {
        self.forget(caller);
        if self.all.len() >= self.most
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.all.remove(&oldest);
        }
        let lane = (caller.client, caller.slot);
        self.next += 1;
        self.by_age.insert(self.next, lane);
        self.all.insert(lane, (self.next, last));
    }

    /// The lane did something that the rows remember.
    pub fn forget(&mut self, caller: &Caller) {
        if let Some((age, _)) = self.all.remove(&(caller.client, caller.slot)) {
            self.by_age.remove(&age);
        }
    }

    /// The session is over.
    pub fn end(&mut self, client: ClientId) {
        let all = (client, Slot(0))..=(client, Slot(u32::MAX));
        let lanes: Vec<_> = self.all.range(all).map(|(lane, (age, _))| (*lane, *age)).collect();
        for (lane, age) in lanes {
            self.all.remove(&lane);
            self.by_age.remove(&age);
        }
    }
}

/// How a request stands to the last one of its lane.
pub(super) enum Standing {
    /// It is the next.
    Next,
    /// It is the last one once more.
    Repeated(SlotRow),
    /// It must not be done.
    Refused(Refusal),
}

impl Shard {
    /// A changing request.
    pub(super) fn change<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
    ) -> Result<(), StoreError> {
        // Administrators' commands have no session, and so no lane to remember them.
        if request.peer.role != Role::Client {
            return self.perform(host, request, None);
        }
        let (peer, call) = (request.peer, request.call);
        let caller =
            Caller { client: peer.client, incarnation: peer.incarnation, slot: call.slot, seq: call.seq };
        let lane = key::slot(self.id, caller.client, caller.slot);
        let near = Near::new(&host.store, self.reads_in_place(host));
        let slot = match near.get(&lane) {
            Err(StoreError::Away) => {
                self.await_rows(host, request, near.take_lacks());
                return Ok(());
            }
            slot => read_slot(slot?)?,
        };
        let standing = self.standing_behind(host, &caller, slot);
        if matches!(standing, Standing::Next) {
            self.lane_is_over(host, (caller.client, caller.slot))?;
        }
        match standing {
            Standing::Next => self.perform(host, request, Some(caller)),
            // Nobody was ever told of it: a restart came between, and everybody had reclaimed before the repetition.
            Standing::Repeated(slot) if self.was_purged(host, &request, &slot)? => {
                self.perform(host, request, Some(caller))
            }
            Standing::Repeated(slot) => self.repeated(host, request, slot),
            Standing::Refused(refusal) => {
                self.answer(host, request.reply_to, self.stamp(), Err(refusal));
                Ok(())
            }
        }
    }

    /// Runs a request and sees to its answer.
    pub(super) fn perform<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        caller: Option<Caller>,
    ) -> Result<(), StoreError> {
        let client = request.peer.client;
        if wish(&request.message).is_some()
            && let Some(refusal) = self.too_many_opens(host, client)
        {
            self.answer(host, request.reply_to, self.stamp(), Err(refusal));
            return Ok(());
        }
        let ran = self.run(host, &request, caller, None)?;
        let begun = host.begun.take();
        self.ran(host, request, caller, ran, begun)
    }

    /// Sees to the answer of a request that was run.
    pub(super) fn ran<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        caller: Option<Caller>,
        ran: Ran,
        begun: Option<Begun>,
    ) -> Result<(), StoreError> {
        let client = request.peer.client;
        match ran {
            Ran::Refused(refusal, dirs) => {
                host.out.fetch_map |= host.spread.take_wants_map();
                self.remember(caller, Some(&refusal));
                let tells = Tells { dirs, ..Tells::default() };
                let stamp = self.lending_stamp(host, &request, tells)?;
                self.answer(host, request.reply_to, stamp, Err(refusal));
            }
            Ran::Recall(id) => {
                self.park(
                    host,
                    For::Recall(id),
                    Parked::Again(Again { begun, ..Again::behind(host, request) }),
                );
            }
            Ran::Hold => {
                self.park(host, For::Hold, Parked::Again(Again { begun, ..Again::behind(host, request) }));
            }
            Ran::Wait(need) => {
                let what = match need {
                    Need::Durable(index) => For::Durable(index),
                    Need::Txn(txid) => For::Txn(txid),
                    Need::Holder { ino, client } => self.waits_for_holder(host, &request, (ino, client)),
                    Need::Gate(Gate::Trim(gate)) => For::Trim(gate.ino, gate.id),
                    Need::Gate(Gate::Open | Gate::Durable) => For::Durable(self.last),
                };
                // An answered look stays one, whatever else it waits for.
                let again = Again { may_look: host.may_look, ..request.into() };
                self.park(host, what, Parked::Again(again));
            }
            Ran::Lacks(rows) => {
                host.begun = begun;
                self.await_rows(host, request, rows);
            }
            Ran::Transact(plan) => self.begin_txn(host, request, caller, plan, begun),
            Ran::Done { done, logged, mut tells } => {
                if let (Some(ino), Some((mode, seq))) = (done.opened, wish(&request.message))
                    && !self.opens(host, client, ino, mode, seq)
                {
                    // One without a name was made for nobody.
                    self.purge(host, alloc::vec![ino])?;
                    // No close comes any more that would end what was noted before it waited.
                    if mode.writes() && self.writers.contains(&(ino, client)) && !self.opens.has(client, ino)
                    {
                        self.writes(host, client, alloc::vec![ino], true)?;
                    }
                }
                match (&request.message, logged) {
                    (_, None) => self.remember(caller, None),
                    (MetaRequest::Repair(m), Some(_)) => self.note_repair(host, m, client),
                    _ => {}
                }
                tells.holds = match &request.message {
                    MetaRequest::Tell(m) => self.has_told(host, client, m, &done),
                    _ => self.begin_holding(host, client, &done),
                };
                self.release(host, request, done, logged, tells)?;
            }
        }
        Ok(())
    }

    /// Why `client` may not have one more file open.
    fn too_many_opens<S: Store>(&self, host: &Host<S>, client: ClientId) -> Option<Refusal> {
        if host.opens.of(client) >= host.config.opens_per_client {
            let text = format!(
                "client {client} has too many files open; the limit is {} (max_opens_per_client in metad.toml)",
                host.config.opens_per_client
            );
            return Some(Refusal::with(Status::errno(Errno::ENFILE), text));
        }
        (host.opens.all() >= host.config.opens).then(|| {
            let text = format!(
                "the clients of this metadata server have {} files open together; the limit is {} (max_opens in \
                 metad.toml, about 200 bytes of memory each)",
                host.opens.all(),
                host.config.opens
            );
            Refusal::with(Status::errno(Errno::ENFILE), text)
        })
    }

    /// Is there so much room for opens that mounts may keep what no program has open any more? (They ask then for less.)
    pub(super) fn may_stay_open<S: Store>(&self, host: &Host<S>, client: ClientId) -> bool {
        let has_room = |opens: usize, most: usize| opens < most / 2;
        has_room(host.opens.of(client), host.config.opens_per_client)
            && has_room(host.opens.all(), host.config.opens)
    }

    pub(super) fn standing<S: Store>(&self, host: &Host<S>, caller: &Caller) -> Result<Standing, StoreError> {
        let slot = host.store.get(&key::slot(self.id, caller.client, caller.slot))?;
        Ok(self.standing_behind(host, caller, read_slot(slot)?))
    }

    /// Of a lane whose row this is.
    fn standing_behind<S: Store>(&self, host: &Host<S>, caller: &Caller, slot: Option<SlotRow>) -> Standing {
        let refused = |status, text: &str| Standing::Refused(Refusal::with(status, text));
        if caller.seq == Seq(0) || caller.slot.0 >= SLOTS_MAX {
            let text = "a changing request needs a lane (below 256) and a number from 1";
            return refused(Status::MALFORMED, text);
        }
        if let Some(slot) = slot {
            if slot.incarnation > caller.incarnation {
                return refused(Status::FENCED, "a newer life of this client is served");
            }
            if slot.incarnation == caller.incarnation && slot.seq > caller.seq {
                return refused(Status::OLD_SEQUENCE, "");
            }
            let same = (slot.incarnation, slot.seq) == (caller.incarnation, caller.seq);
            if same && !host.config.canary_runs_retries {
                return Standing::Repeated(slot);
            }
        }
        match self.remembered.get(caller) {
            Some(last) if last.incarnation == caller.incarnation && last.seq > caller.seq => {
                refused(Status::OLD_SEQUENCE, "")
            }
            Some(Remembered { incarnation, seq, refusal: Some(refusal) })
                if (*incarnation, *seq) == (caller.incarnation, caller.seq) =>
            {
                Standing::Refused(refusal.clone())
            }
            _ => Standing::Next,
        }
    }

    /// The request was done before: the answer that it got, or will get.
    fn repeated<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        slot: SlotRow,
    ) -> Result<(), StoreError> {
        let stamp = ShardStamp::new(slot.term, slot.index, self.durable);
        if let Some(ran) = self.uncovers_again(host, &request, &slot.body.0)? {
            return self.ran(host, request, None, ran, None);
        }
        self.reopen(host, &request, &slot.body.0);
        let result = Ok(slot.body.0);
        let what = match slot.gate {
            Gate::Open if host.config.sync_always && self.durable < slot.index => {
                Some(For::Durable(slot.index))
            }
            Gate::Durable if self.durable < slot.index => Some(For::Durable(slot.index)),
            Gate::Trim(gate) => {
                let row = host.store.get(&key::of_ino(Table::Trim, gate.ino))?;
                let open = row.and_then(|bytes| Trim::from_bytes(&bytes).ok());
                match open.filter(|trim| trim.id == gate.id) {
                    Some(_) => Some(For::Trim(gate.ino, gate.id)),
                    // Its end must be durable too; which record that was nobody remembers.
                    None => (self.durable < self.last).then_some(For::Durable(self.last)),
                }
            }
            _ => None,
        };
        match what {
            Some(what) => {
                self.park(host, what, Parked::Answer { to: request.reply_to, stamp, result });
            }
            None => self.answer(host, request.reply_to, stamp, result),
        }
        Ok(())
    }

    /// Did it make a file without a name, which is gone because nobody claimed it after a restart?
    fn was_purged<S: Store>(
        &self,
        host: &Host<S>,
        request: &Request,
        slot: &SlotRow,
    ) -> Result<bool, StoreError> {
        let MetaRequest::CreateTemp(_) = &request.message else { return Ok(false) };
        let Ok(reply) = OpenReply::from_bytes(&slot.body.0) else { return Ok(false) };
        Ok(host.store.get(&key::inode(reply.attr.ino))?.is_none())
    }

    /// The first answer was lost, perhaps with the server's memory of the open.
    fn reopen<S: Store>(&mut self, host: &mut Host<S>, request: &Request, body: &[u8]) {
        if let Some((mode, seq)) = wish(&request.message)
            && let Ok(reply) = OpenReply::from_bytes(body)
        {
            self.opens(host, request.peer.client, reply.attr.ino, mode, seq);
        }
    }

    /// It is open for writing again by that, which nobody knows if the server has forgotten.
    fn uncovers_again<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        body: &[u8],
    ) -> Result<Option<Ran>, StoreError> {
        let writes = wish(&request.message).is_some_and(|(mode, _)| mode.writes());
        if !writes || host.config.canary_reopens_unseen {
            return Ok(None);
        }
        let Ok(reply) = OpenReply::from_bytes(body) else { return Ok(None) };
        self.uncover_again(host, request, &[reply.attr.ino])
    }

    pub(super) fn remember(&mut self, caller: Option<Caller>, refusal: Option<&Refusal>) {
        let Some(caller) = caller else { return };
        if refusal.is_some_and(|refusal| refusal.status.is_transient()) {
            return;
        }
        let (incarnation, seq, refusal) = (caller.incarnation, caller.seq, refusal.cloned());
        self.remembered.keep(&caller, Remembered { incarnation, seq, refusal });
    }
}

/// What the request wants to have open.
pub(super) fn wish(message: &MetaRequest) -> Option<(OpenMode, u64)> {
    match message {
        MetaRequest::Open(m) => Some((m.mode, m.open_seq)),
        MetaRequest::Create(m) => m.open.map(|mode| (mode, m.open_seq)),
        MetaRequest::CreateTemp(m) => Some((m.open, m.open_seq)),
        _ => None,
    }
}

fn read_slot(row: Option<Vec<u8>>) -> Result<Option<SlotRow>, StoreError> {
    row.map(|bytes| SlotRow::from_bytes(&bytes).map_err(|e| corrupt("slot row", e))).transpose()
}
