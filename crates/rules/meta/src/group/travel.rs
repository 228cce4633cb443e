//! Shards that come to this group, and those that have left it: `docs/design/moves.md`.
//!
//! A shard travels as its rows. Who is to have it fetches them, part by part, from who had it, and has them in its own log
//! as they come. Its header comes last: a range of rows without one is no shard, and is swept.

use super::errands::Owner;
use super::job::{Job, ShardMessage};
use super::message::Request;
use super::{Group, not_ready};
use crate::command::COMMAND_LEVEL_MAX;
use crate::key;
use crate::limit::{SWEEP_PAUSE_MS, TRAVEL_BYTES};
use crate::row::header::{FORMAT, Given, Header};
use crate::shard::Shard;
use crate::store::{Batch, Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use skep_rows::applied_key;
use skep_types::codec::Bytes;
use skep_types::log::{Head, Moves, Record, Row};
use skep_types::{Decode, Encode, LogIndex, Millis, NodeId, Role, ShardId, Term};
use skep_wire::meta::{AskHistory, FetchRows, RowsReply, ShardStamp};
use skep_wire::mgmt::{MapReply, ShardEntry, ShardState};
use skep_wire::{Refusal, Status};

/// A shard on its way here.
#[derive(Debug)]
struct Arrival {
    /// Of its place in the map: with another epoch it is another journey.
    epoch: u64,
    /// Who has its rows.
    source: NodeId,
    /// Where it stands there, as soon as that is known.
    head: Option<Head>,
    /// The last key that is here.
    behind: Vec<u8>,
    header: Option<Vec<u8>>,
    /// It waits until there is room.
    parked: bool,
    /// It cannot come by this order: an administrator was told why.
    refused: bool,
}

/// What is on its way.
#[derive(Debug, Default)]
pub(super) struct Travels {
    arrivals: BTreeMap<ShardId, Arrival>,
    /// Others have these now, and were asked how far they are.
    departures: BTreeSet<ShardId>,
    /// Rows of these are left here, and nothing of them counts. Swept up to this key.
    sweeps: BTreeMap<ShardId, Vec<u8>>,
    swept: Millis,
    /// An administrator was told of these, in that epoch of theirs.
    told: BTreeMap<ShardId, u64>,
}

impl Travels {
    /// How much is not finished.
    pub fn len(&self) -> usize {
        self.arrivals.len() + self.departures.len() + self.sweeps.len()
    }

    /// When the next part is to be swept, or to be fetched, once there is room.
    pub fn deadline(&self, has_room: bool) -> Option<Millis> {
        let waits = !self.sweeps.is_empty() || (has_room && self.parked().is_some());
        waits.then(|| self.swept.plus(SWEEP_PAUSE_MS))
    }

    fn parked(&self) -> Option<ShardId> {
        self.arrivals.iter().find(|(_, arrival)| arrival.parked).map(|(id, _)| *id)
    }

    /// Are rows of an earlier stay still here?
    pub fn is_swept(&self, id: ShardId) -> bool {
        self.sweeps.contains_key(&id)
    }

    /// Was an administrator told nothing of the shard in this epoch? It is noted that he is now.
    pub fn is_news(&mut self, id: ShardId, epoch: u64) -> bool {
        self.told.insert(id, epoch) != Some(epoch)
    }

    fn sweep(&mut self, id: ShardId) {
        self.sweeps.entry(id).or_default();
    }

    /// It was made anew: its rows are none that are left.
    pub fn made(&mut self, id: ShardId) {
        self.sweeps.remove(&id);
    }

    /// What somebody waits for comes first.
    fn next_swept(&self) -> Option<(ShardId, Vec<u8>)> {
        let awaited = self.arrivals.keys().find_map(|id| self.sweeps.get_key_value(id));
        awaited.or_else(|| self.sweeps.first_key_value()).map(|(id, key)| (*id, key.clone()))
    }
}

/// What there is to tell of a shard that is not here.
fn no_rows() -> RowsReply {
    RowsReply { term: Term(0), index: LogIndex(0), rows: Vec::new(), more: false, holds: false }
}

impl<S: Store> Group<S> {
    /// The map may have given shards to this group, or to others.
    pub(super) fn follow_moves(&mut self, map: &MapReply) -> Result<(), StoreError> {
        let own = self.host.own;
        for entry in &map.shards {
            let comes = entry.state == ShardState::Moving && entry.is_led_by(own);
            let is_elsewhere = entry.state == ShardState::Active && !entry.members.contains(&own);
            if is_elsewhere {
                self.ask_to_leave(entry.shard);
            } else if self.travels.departures.remove(&entry.shard) {
                self.host.errands.drop_owned(Owner::Departure(entry.shard));
            }
            if comes {
                self.expect(entry);
            } else {
                self.expect_no_more(entry.shard);
            }
        }
        Ok(())
    }

    fn expect(&mut self, entry: &ShardEntry) {
        let (id, epoch) = (entry.shard, entry.epoch);
        let is_here = self.shards.get(&id).is_some_and(|shard| shard.epoch() == epoch);
        let is_coming = self.travels.arrivals.get(&id).is_some_and(|arrival| arrival.epoch == epoch);
        if is_here || is_coming {
            return;
        }
        self.expect_no_more(id);
        let Some(source) = entry.members.first().copied() else { return };
        let arrival = Arrival {
            epoch,
            source,
            head: None,
            behind: Vec::new(),
            header: None,
            parked: false,
            refused: false,
        };
        self.travels.arrivals.insert(id, arrival);
        self.fetch(id);
    }

    fn expect_no_more(&mut self, id: ShardId) {
        if self.travels.arrivals.remove(&id).is_some() {
            self.host.errands.drop_owned(Owner::Arrival(id));
            if !self.shards.contains_key(&id) {
                self.travels.sweep(id);
            }
        }
    }

    /// Asks for the next part, once there is room for it.
    fn fetch(&mut self, id: ShardId) {
        let Some(arrival) = self.travels.arrivals.get_mut(&id) else { return };
        arrival.parked = self.host.low_space || self.host.holds_chores;
        if arrival.parked {
            return;
        }
        let (node, epoch, behind) = (arrival.source, arrival.epoch, Bytes(arrival.behind.clone()));
        let ShardStamp { term, index, .. } = self.shards.get(&id).map(Shard::stamp).unwrap_or_default();
        let job = Job::Fetch { shard: id, node, epoch, message: FetchRows { behind, term, index } };
        self.host.errands.send(Owner::Arrival(id), Term(0), job, &mut self.host.out);
    }

    /// Another server asks for a part of a shard that the map gives to it. Nobody changes the rows: no term of the shard is
    /// under way here, and none begins before the map says so.
    pub(super) fn give_rows(&mut self, request: &Request, m: &FetchRows) -> Result<(), StoreError> {
        let result = match self.admit_fetch(request) {
            Ok(Some(head)) => self.give_part(head, request, m)?.map(|part| part.to_bytes()),
            Ok(None) => Ok(no_rows().to_bytes()),
            Err(refusal) => Err(refusal),
        };
        self.host.reply(request.reply_to, ShardStamp::default(), result);
        Ok(())
    }

    /// Where the shard stands; `None`: there are no rows of it.
    fn admit_fetch(&mut self, request: &Request) -> Result<Option<Head>, Refusal> {
        request.of_role(request.peer.role == Role::Server)?;
        if let Some(refusal) = self.host.behind(request) {
            return Err(refusal);
        }
        if !(self.host.started && self.host.knows_cluster()) {
            return Err(not_ready());
        }
        let (id, own) = (request.call.shard, self.host.own);
        let seat = self.host.seats.get(&id);
        self.host.out.fetch_map |= seat.is_none_or(|seat| seat.epoch < request.call.epoch);
        let is_meant = seat.is_some_and(|seat| {
            seat.epoch == request.call.epoch
                && seat.state == ShardState::Moving
                && seat.members.first() == Some(&own)
                && seat.is_led_by(request.peer.node)
        });
        let refuse = |why| {
            let text = format!("shard {id} is not given to node {}: {why}", request.peer.node);
            Err(Refusal::with(Status::NOT_READY, text))
        };
        if !is_meant {
            return refuse("the map does not say so here");
        }
        if self.host.undurable.iter().any(|(_, shard, _)| *shard == id) {
            self.host.out.sync_now = true;
            return refuse("its newest records are not on stable storage yet");
        }
        match (self.shards.get(&id), self.host.store.applied_of(id)) {
            (Some(shard), Ok(Some(head))) if !shard.has_term() => Ok(Some(head)),
            (Some(_), _) => refuse("its term is not over here"),
            (None, _) => Ok(None),
        }
    }

    /// Before the last part is told, the header says so, on stable storage: from then on another server may serve the shard,
    /// and this one is not to serve these rows again by a map of mgmtd's that was put back from a backup of before that.
    fn give_part(
        &mut self,
        head: Head,
        request: &Request,
        m: &FetchRows,
    ) -> Result<Result<RowsReply, Refusal>, StoreError> {
        let (id, given) = (head.shard, Given { epoch: request.call.epoch, to: request.peer.node });
        let part = self.part_of(head, m)?;
        if part.more || self.shards.get(&id).is_none_or(|shard| shard.is_given(given)) {
            return Ok(Ok(part));
        }
        let Some(bytes) = self.host.store.get(&key::header(id))? else {
            return Ok(Err(self.host.missing(id)));
        };
        let header = Header::from_bytes(&bytes).map_err(|e| crate::fail::corrupt("shard header", e))?;
        let header = Header { given: Some(given), ..header };
        // By its head whoever asks again waits for this record.
        self.log_rows(&[head], [(key::header(id), Some(header.to_bytes()))].into())?;
        self.host.out.sync_now = true;
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.note_given(given);
        }
        let text =
            format!("shard {id} is not given to node {} yet: that it is is being written down", given.to);
        Ok(Err(Refusal::with(Status::NOT_READY, text)))
    }

    /// Shards that mgmtd, put back from a backup, gives to this server, and that it has given away since.
    pub(super) fn warn_of_withheld(&mut self) {
        let withheld: Vec<_> = self.withheld().collect();
        for (id, to) in withheld {
            if self.travels.is_news(id, self.host.shard_epoch(id)) {
                self.host.out.warn(format!(
                    "shard {id} is not served: all its rows were given to node {to}, and mgmtd's map, which was put back from a \
                     backup of before that, gives it to this server again. What was changed at node {to} since would be \
                     missing. Stop mgmtd, and put its newest copy back; if there is none, give node {to} the shard: it goes on \
                     from its own rows, or fetches these (skep shard give {id} {to})"
                ));
            }
        }
    }

    /// They are withheld, each for the server that may have newer rows of it.
    pub fn withheld(&self) -> impl Iterator<Item = (ShardId, NodeId)> {
        self.shards.values().filter_map(|shard| Some((shard.id, shard.withheld_for(&self.host)?)))
    }

    fn part_of(&self, head: Head, m: &FetchRows) -> Result<RowsReply, StoreError> {
        let holds = self.shards.get(&head.shard).is_some_and(|shard| shard.holds(m.term, m.index));
        let mut from = m.behind.0.clone();
        from.push(0);
        let (first, until) = range_of(head.shard);
        let applied = applied_key(head.shard);
        let most = self.host.config.limits.travel_rows;
        let (mut rows, mut bytes, mut more) = (Vec::new(), 0, false);
        self.host.store.scan(&from.max(first), &until, &mut |key, value| {
            more = rows.len() >= most || bytes >= TRAVEL_BYTES;
            if !more && key != applied.as_slice() {
                bytes += key.len() + value.len();
                rows.push(Row { key: Bytes(key.to_vec()), value: Some(Bytes(value.to_vec())) });
            }
            !more
        })?;
        Ok(RowsReply { term: head.term, index: head.index, rows, more, holds })
    }

    /// A part of a shard that comes is here.
    pub(super) fn rows_came(&mut self, id: ShardId, part: RowsReply) -> Result<(), StoreError> {
        let Some(arrival) = self.travels.arrivals.get_mut(&id) else { return Ok(()) };
        let head = Head { shard: id, term: part.term, index: part.index };
        if arrival.head != Some(head) {
            (arrival.head, arrival.behind, arrival.header) = (Some(head), Vec::new(), None);
            return self.make_way(head, part.holds);
        }
        let mut batch = Batch::new();
        for Row { key: Bytes(key), value } in part.rows {
            let is_of_it = key.starts_with(&id.0.to_be_bytes()) && key > arrival.behind;
            let Some(Bytes(value)) = value.filter(|_| is_of_it && key != applied_key(id)) else {
                return self.refuse(id, "it tells rows of others");
            };
            arrival.behind.clone_from(&key);
            if key != key::header(id) {
                batch.insert(key, Some(value));
            } else if is_known(id, &value) {
                arrival.header = Some(value);
            } else {
                return self.refuse(id, "this release does not know its rows");
            }
        }
        self.log_rows(&[], batch)?;
        if part.more {
            self.fetch(id);
            return Ok(());
        }
        self.arrive(head)
    }

    /// It does not come by this order, and stays where it is.
    fn refuse(&mut self, id: ShardId, why: &str) -> Result<(), StoreError> {
        let Some(arrival) = self.travels.arrivals.get_mut(&id) else { return Ok(()) };
        arrival.refused = true;
        let node = arrival.source;
        self.host.out.warn(format!(
            "shard {id} does not come from node {node}: {why}. Nobody is served until it is given back or to another server"
        ));
        Ok(())
    }

    /// Rows of an earlier stay go before others come, if those go on from them: else nothing is touched.
    fn make_way(&mut self, head: Head, holds: bool) -> Result<(), StoreError> {
        let id = head.shard;
        if let Some(shard) = self.shards.get(&id) {
            if !holds && shard.goes_on_from(head) {
                return self.stay(id);
            }
            if !holds {
                return self.refuse(
                    id,
                    "what it has does not go on from the copy that is here. Both stay; was mgmtd put back from a backup?",
                );
            }
            self.drop_shard(id)?;
        }
        self.travels.sweep(id);
        Ok(())
    }

    /// It came before, as mgmtd does not know that was put back from a backup: what is here has all that would come.
    fn stay(&mut self, id: ShardId) -> Result<(), StoreError> {
        let head = self.host.store.applied_of(id)?;
        let header = self.host.store.get(&key::header(id))?;
        let (Some(head), Some(Ok(header))) = (head, header.as_deref().map(Header::from_bytes)) else {
            return self.refuse(id, "the rows that are here have no header");
        };
        let Some(arrival) = self.travels.arrivals.remove(&id) else { return Ok(()) };
        let node = arrival.source;
        self.host.out.warn(format!(
            "shard {id} is here already, with all that node {node} has of it: it is served from these rows. mgmtd did not know \
             that it had come: was it put back from a backup?"
        ));
        self.take_up(head, Header { epoch: arrival.epoch, ..header })
    }

    /// All of it is here: it is a shard of this group, and mgmtd is to know it before anybody is served.
    fn arrive(&mut self, head: Head) -> Result<(), StoreError> {
        let id = head.shard;
        let Some(arrival) = self.travels.arrivals.remove(&id) else { return Ok(()) };
        let Some(Ok(header)) = arrival.header.as_deref().map(Header::from_bytes) else {
            self.travels.arrivals.insert(id, arrival);
            return self.refuse(
                id,
                if head.index == LogIndex(0) { "it has no rows of it" } else { "its rows have no header" },
            );
        };
        // The log knows its head before any record of it.
        let moves = Moves { came: Vec::from([head]), gone: Vec::new() };
        self.host.log(&[], Batch::new(), Record::moves(self.host.next_seq(), &moves))?;
        // Where it comes from it is given away, not here.
        let header = Header { epoch: arrival.epoch, given: None, ..header };
        self.host.out.note(format!("shard {id} has come from node {}", arrival.source));
        self.take_up(head, header)
    }

    /// It is to be served from these rows.
    fn take_up(&mut self, head: Head, header: Header) -> Result<(), StoreError> {
        let id = head.shard;
        let batch = [(key::header(id), Some(header.to_bytes())), (applied_key(id), Some(head.to_bytes()))];
        self.log_rows(&[head], batch.into())?;
        self.host.out.sync_now = true;
        self.take_in(id)?;
        self.deliver(id, Shard::settle_in).map(drop)
    }

    fn take_in(&mut self, id: ShardId) -> Result<(), StoreError> {
        if let Some(shard) = Shard::read(&self.host, id)? {
            self.travels.sweeps.remove(&id);
            self.shards.insert(id, shard);
        }
        Ok(())
    }

    fn log_rows(&mut self, heads: &[Head], batch: Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let row = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| Row {
            key: Bytes(key.clone()),
            value: value.clone().map(Bytes),
        };
        let rows: Vec<Row> = batch.iter().map(row).collect();
        self.host.log(heads, batch, Record::rows(self.host.next_seq(), &rows))
    }

    /// The map says that another server has it, and has said so to mgmtd. Rows go only once that server itself answers for
    /// them: a map that was put back from a backup may be older than what happened.
    fn ask_to_leave(&mut self, id: ShardId) {
        let Some(own) = self.shards.get(&id).map(Shard::stamp) else { return };
        if self.travels.departures.insert(id) {
            let message = ShardMessage::AskHistory(AskHistory { term: own.term, index: own.index });
            let job = Job::Shard { shard: id, message };
            self.host.errands.send(Owner::Departure(id), Term(0), job, &mut self.host.out);
        }
    }

    /// Another server serves the shard, and goes on from the newest record here; or it does not.
    pub(super) fn may_leave(&mut self, id: ShardId, holds: bool) -> Result<(), StoreError> {
        let is_still = self.shards.get(&id).is_some_and(|shard| !shard.has_term());
        if !self.travels.departures.remove(&id) || !is_still {
            return Ok(());
        }
        if !holds {
            if self.travels.is_news(id, self.host.shard_epoch(id)) {
                self.host.out.warn(format!(
                    "rows of shard {id} stay, though another server has it: what that one serves does not go on from them. Was \
                     one of them put back from a backup?"
                ));
            }
            return Ok(());
        }
        self.host.out.note(format!("shard {id} has gone to another server"));
        self.drop_shard(id)
    }

    /// It is not of this group any more. Its rows are swept.
    fn drop_shard(&mut self, id: ShardId) -> Result<(), StoreError> {
        let moves = Moves { came: Vec::new(), gone: Vec::from([id]) };
        let batch = self.forget(&moves);
        self.host.log(&[], batch, Record::moves(self.host.next_seq(), &moves))
    }

    /// What goes at once of shards that are dropped, here or where the log was written.
    fn forget(&mut self, moves: &Moves) -> Batch {
        let mut batch = Batch::new();
        for id in &moves.gone {
            self.shards.remove(id);
            self.busy.remove(id);
            self.recovering.remove(id);
            self.deadlines.retain(|(_, of)| of != id);
            self.travels.sweep(*id);
            batch.extend([(key::header(*id), None), (applied_key(*id), None)]);
        }
        batch
    }

    /// A part of what is left of one shard goes; and what waited for room is fetched.
    pub(super) fn sweep(&mut self) -> Result<(), StoreError> {
        let due = self.travels.deadline(!self.host.low_space).is_some_and(|at| self.host.now >= at);
        if !due || self.host.holds_chores {
            return Ok(());
        }
        self.travels.swept = self.host.now;
        if let Some(id) = self.travels.parked() {
            self.fetch(id);
        }
        let Some((id, behind)) = self.travels.next_swept() else { return Ok(()) };
        let (first, until) = range_of(id);
        let most = self.host.config.limits.travel_rows;
        let mut batch = Batch::new();
        self.host.store.scan(&behind.clone().max(first), &until, &mut |key, _| {
            batch.insert(key.to_vec(), None);
            batch.len() < most
        })?;
        if let Some((last, _)) = batch.last_key_value() {
            self.travels.sweeps.insert(id, last.clone());
        } else if behind.is_empty() {
            self.travels.sweeps.remove(&id);
            // Whoever comes waits for that, once it is known that it comes.
            if self
                .travels
                .arrivals
                .get(&id)
                .is_some_and(|arrival| arrival.head.is_some() && !arrival.refused)
            {
                self.fetch(id);
            }
            self.lead_swept(id)?;
        } else {
            // Once more from the beginning: then there is nothing.
            self.travels.sweeps.insert(id, Vec::new());
        }
        self.log_rows(&[], batch)
    }

    pub(super) fn replay_moves(&mut self, record: &Record) -> Result<(), StoreError> {
        let moves =
            Moves::from_bytes(&record.bytes).map_err(|e| crate::fail::corrupt("moves in the log", e))?;
        let batch = self.forget(&moves);
        self.host.store.apply(record.seq, &[], batch)
    }

    pub(super) fn replay_rows(&mut self, record: &Record) -> Result<(), StoreError> {
        let rows =
            Vec::<Row>::from_bytes(&record.bytes).map_err(|e| crate::fail::corrupt("rows in the log", e))?;
        let batch: Batch = rows.into_iter().map(|row| (row.key.0, row.value.map(|value| value.0))).collect();
        let of = batch
            .keys()
            .next()
            .and_then(|key| key.first_chunk())
            .map(|raw| ShardId(u16::from_be_bytes(*raw)));
        self.host.store.apply(record.seq, &[], batch)?;
        let Some(id) = of else { return Ok(()) };
        self.travels.sweep(id);
        self.take_in(id)
    }

    /// Rows without a header are what is left of a journey.
    pub(super) fn find_leftovers(&mut self, in_rows: &[ShardId]) {
        for id in in_rows.iter().filter(|id| !self.shards.contains_key(id)) {
            self.travels.sweep(*id);
        }
    }

    /// Is it on stable storage here, all of it, and does mgmtd not know that yet?
    pub(super) fn has_come(&self, shard: &Shard) -> bool {
        shard.leads()
            && shard.is_moving()
            && self.host.shard_epoch(shard.id) == shard.epoch()
            && !self.host.undurable.iter().any(|(_, of, _)| *of == shard.id)
    }
}

/// Is this a header of the shard that this release can serve?
fn is_known(id: ShardId, header: &[u8]) -> bool {
    Header::from_bytes(header).is_ok_and(|header| {
        header.shard == id && header.format <= FORMAT && header.level <= COMMAND_LEVEL_MAX
    })
}

fn range_of(id: ShardId) -> (Vec<u8>, Vec<u8>) {
    (key::header(id), key::header(ShardId(id.0 + 1)))
}
