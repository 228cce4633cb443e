//! Shards that come to this group, and those that have left it: `docs/design/moves.md`.
//!
//! A shard travels as its rows. Who is to have it fetches them, part by part, from who had it, and has them in its own log
//! as they come. Its header comes last: a range of rows without one is no shard, and is swept.

use super::Group;
use super::errands::Owner;
use super::job::{Job, ShardMessage};
use super::telling::{no_rows, range_of};
use crate::command::COMMAND_LEVEL_MAX;
use crate::key;
use crate::limit::SWEEP_PAUSE_MS;
use crate::row::header::{FORMAT, Given, Header};
use crate::shard::{Shard, is_one_history};
use crate::store::{Batch, Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_rows::applied_key;
use skep_types::codec::Bytes;
use skep_types::log::{Head, Moves, Record, Row};
use skep_types::{Decode, Encode, Incarnation, LogIndex, Millis, NodeId, ShardId, Term};
use skep_wire::meta::{AskHistory, FetchRows, RowsReply, ShardStamp};
use skep_wire::mgmt::{MapReply, ShardEntry, ShardState};

/// Why rows of the same source do not come a second time.
const HAD_IT: &str = "this server had it before, as mgmtd's map from a backup does not know, and does not have those rows any more: \
    it gave them on, lost them, or never had all of them. What was changed since would be missing";
/// Why no rows come to those that are here.
const APART: &str =
    "what it has does not go on from the copy that is here (was mgmtd put back from a backup?). Both stay";
/// Why rows are not served that came, before anybody knew of it.
const UNSERVED: &str = "the rows that are here came, and were never served: there may be newer ones";

/// A shard on its way here.
#[derive(Debug)]
struct Arrival {
    /// Of its place in the map: with another epoch it is another journey.
    epoch: u64,
    /// Who has its rows; `None`: an administrator said that that server is gone for good.
    source: Option<NodeId>,
    /// Newer rows are lost, an administrator said.
    newer_are_lost: bool,
    /// The life of that server in which it was asked.
    life: Option<Incarnation>,
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

    /// Do these not come by the orders that are under way?
    fn refused(&self) -> impl Iterator<Item = ShardId> {
        self.arrivals.iter().filter(|(_, arrival)| arrival.refused).map(|(id, _)| *id)
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
                self.expect(entry, map)?;
            } else {
                self.expect_no_more(entry.shard);
            }
        }
        Ok(())
    }

    fn expect(&mut self, entry: &ShardEntry, map: &MapReply) -> Result<(), StoreError> {
        let (id, epoch, source) = (entry.shard, entry.epoch, entry.comes_from());
        let life = map.nodes.iter().find(|node| Some(node.node) == source).map(|node| node.incarnation);
        let is_here = self.shards.get(&id).is_some_and(|shard| shard.epoch() == epoch);
        // Who has begun another life may have other rows: a backup was put back, or a disk is mounted again.
        let goes_on = |arrival: &Arrival| !arrival.refused || arrival.life == life;
        let arrival = self.travels.arrivals.get(&id).filter(|arrival| arrival.epoch == epoch);
        if is_here || arrival.is_some_and(goes_on) {
            return Ok(());
        }
        self.expect_no_more(id);
        let (head, behind, header) = (None, Vec::new(), None);
        let newer_are_lost = entry.are_newer_lost();
        let arrival = Arrival {
            epoch,
            source,
            newer_are_lost,
            life,
            head,
            behind,
            header,
            parked: false,
            refused: false,
        };
        self.travels.arrivals.insert(id, arrival);
        if source.is_some() {
            self.fetch(id);
            return Ok(());
        }
        self.rows_came(id, no_rows())
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
        let Some(node) = arrival.source else { return };
        arrival.parked = self.host.low_space || self.host.holds_chores;
        if arrival.parked {
            return;
        }
        let (epoch, behind) = (arrival.epoch, Bytes(arrival.behind.clone()));
        let ShardStamp { term, index, .. } = self.shards.get(&id).map(Shard::stamp).unwrap_or_default();
        let job = Job::Fetch { shard: id, node, epoch, message: FetchRows { behind, term, index } };
        self.host.errands.send(Owner::Arrival(id), Term(0), job, &mut self.host.out);
    }

    /// A part of a shard that comes is here.
    pub(super) fn rows_came(&mut self, id: ShardId, part: RowsReply) -> Result<(), StoreError> {
        let newer = part.rows.iter().find_map(|row| self.who_has_newer(id, row));
        let Some(arrival) = self.travels.arrivals.get_mut(&id) else { return Ok(()) };
        let head = Head { shard: id, term: part.term, index: part.index };
        if arrival.head != Some(head) {
            (arrival.head, arrival.behind, arrival.header) = (Some(head), Vec::new(), None);
            return self.make_way(head, part.holds, newer);
        }
        if let Some(node) = newer {
            return self.refuse_older(id, node);
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

    /// Is this the header of a shard whose rows were told before, by a map of another history? Then the server that was told
    /// may have served newer rows, or have given them on.
    fn who_has_newer(&self, id: ShardId, row: &Row) -> Option<NodeId> {
        let bytes = row.value.as_ref().filter(|_| row.key.0 == key::header(id))?;
        let given = Header::from_bytes(&bytes.0).ok()?.given?;
        let arrival = self.travels.arrivals.get(&id).filter(|arrival| !arrival.newer_are_lost)?;
        (!is_one_history(given.epoch, arrival.epoch)).then_some(given.to)
    }

    /// It does not come by this order, and stays where it is.
    fn refuse(&mut self, id: ShardId, why: &str) -> Result<(), StoreError> {
        let Some(arrival) = self.travels.arrivals.get_mut(&id) else { return Ok(()) };
        arrival.refused = true;
        let from = arrival.source.map(|node| format!(" from node {node}")).unwrap_or_default();
        self.host.out.warn(format!(
            "shard {id} does not come{from}: {why}. Nobody is served until it is given to another server, or back (skep shard \
             give)"
        ));
        Ok(())
    }

    /// There may be newer rows than those that would come: `node` was told of all of these.
    fn refuse_older(&mut self, id: ShardId, node: NodeId) -> Result<(), StoreError> {
        let source = self.travels.arrivals.get(&id).and_then(|arrival| arrival.source);
        let why = match node {
            own if own == self.host.own => HAD_IT.into(),
            at if Some(at) == source => {
                "the rows there came, and were never served: there may be newer ones".into()
            }
            other => format!(
                "all its rows were told to node {other}, as mgmtd's map from a backup does not know. What was changed there since, \
                 or where it gave them, would be missing"
            ),
        };
        self.refuse(id, &format!("{why}. {}", self.way_out(id, node)))
    }

    /// What an administrator does about a shard that went on to `node`, as mgmtd does not know.
    fn way_out(&self, id: ShardId, node: NodeId) -> String {
        let there = match node {
            own if own == self.host.own => String::new(),
            other => format!(" (node {other}, if it gave it to nobody and mgmtd knows it by that number)"),
        };
        format!(
            "The server that had the shard last goes on from its own rows{there}. Only if those are lost: skep shard give {id} {} \
             --newer-are-lost",
            self.host.own
        )
    }

    /// Rows of an earlier stay go before others come, if those go on from them, and no newer ones may be at the server `newer`:
    /// else nothing is touched.
    fn make_way(&mut self, head: Head, holds: bool, newer: Option<NodeId>) -> Result<(), StoreError> {
        let id = head.shard;
        let arrival = self.travels.arrivals.get(&id);
        let is_gone = arrival.is_some_and(|arrival| arrival.source.is_none());
        let newer_are_lost = arrival.is_some_and(|arrival| arrival.newer_are_lost);
        let Some(shard) = self.shards.get(&id) else {
            return match newer {
                _ if is_gone => self.refuse(id, "who had its rows is gone for good, and none are here"),
                Some(node) => self.refuse_older(id, node),
                None => {
                    self.travels.sweep(id);
                    Ok(())
                }
            };
        };
        let given_to = shard.given_to().filter(|_| !newer_are_lost);
        let (own, has_all) = (self.host.own, shard.has_all_of(head));
        // Of two equal copies the one that was told of the other is the newest. One that goes on has all that came in between.
        let is_newest = match given_to {
            None => newer.is_none_or(|node| node == own || !holds),
            Some(to) => to == own && newer == Some(own),
        };
        match (given_to, newer) {
            (_, None) if holds => self.drop_shard(id),
            _ if has_all && is_newest => self.stay(id),
            (to, Some(node)) if holds && to.is_none_or(|to| to == own) => self.refuse_older(id, node),
            (None, _) => self.refuse(id, &format!("{APART}; {}", self.apart(id))),
            (Some(to), _) if to == own => self.refuse(id, &format!("{UNSERVED}. {}", self.way_out(id, own))),
            (Some(to), _) => self.refuse(
                id,
                &format!("the rows that are here were given on to node {to}. {}", self.way_out(id, to)),
            ),
        }
    }

    /// How a copy is served that another one does not go on from.
    fn apart(&self, id: ShardId) -> String {
        format!(
            "to have the one here served, stop the server that has the other, and once it counts as offline: skep shard give \
             {id} {} --source-is-gone",
            self.host.own
        )
    }

    /// It came before, as mgmtd does not know that was put back from a backup: what is here has all that would come.
    fn stay(&mut self, id: ShardId) -> Result<(), StoreError> {
        let head = self.host.store.applied_of(id)?;
        let header = self.host.store.get(&key::header(id))?;
        let (Some(head), Some(Ok(header))) = (head, header.as_deref().map(Header::from_bytes)) else {
            return self.refuse(id, "the rows that are here have no header");
        };
        let Some(arrival) = self.travels.arrivals.remove(&id) else { return Ok(()) };
        self.host.out.warn(match arrival.source {
            Some(node) if arrival.head.is_some_and(|head| head.index == LogIndex(0)) => format!(
                "shard {id} is here, and node {node}, which had it by mgmtd's map, has no rows of it: it is served from those that \
                 are here. Was mgmtd put back from a backup of before it came here?"
            ),
            Some(node) => format!(
                "shard {id} is here already, with all that node {node} has of it: it is served from these rows. mgmtd did not \
                 know that it had come: was it put back from a backup?"
            ),
            None => format!(
                "shard {id} is served from the copy that is here, for who had it is gone for good, as an administrator said. \
                 What was changed there since is lost"
            ),
        });
        self.take_up(head, self.not_served_yet(&arrival, header))
    }

    /// The header of rows that came by an order. Until its server serves it, another map than one that goes on from that order
    /// may know of newer rows elsewhere: as if all of them had been given away, to this server.
    fn not_served_yet(&self, arrival: &Arrival, header: Header) -> Header {
        let given = Some(Given { epoch: arrival.epoch, to: self.host.own });
        Header { epoch: arrival.epoch, given, ..header }
    }

    /// All of it is here: it is a shard of this group, and mgmtd is to know it before anybody is served.
    fn arrive(&mut self, head: Head) -> Result<(), StoreError> {
        let id = head.shard;
        let Some(arrival) = self.travels.arrivals.remove(&id) else { return Ok(()) };
        let Some(Ok(header)) = arrival.header.as_deref().map(Header::from_bytes) else {
            self.travels.arrivals.insert(id, arrival);
            let has_none = head.index == LogIndex(0);
            return self
                .refuse(id, if has_none { "it has no rows of it" } else { "its rows have no header" });
        };
        // The log knows its head before any record of it.
        let moves = Moves { came: Vec::from([head]), gone: Vec::new() };
        self.host.log(&[], Batch::new(), Record::moves(self.host.next_seq(), &moves))?;
        let header = self.not_served_yet(&arrival, header);
        self.host.out.note(format!("shard {id} has come from node {}", arrival.source.unwrap_or_default()));
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

    pub(super) fn log_rows(&mut self, heads: &[Head], batch: Batch) -> Result<(), StoreError> {
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

    /// Shards that the map gives to this group, and that do not come: an administrator is to give them to another server.
    pub fn refused(&self) -> impl Iterator<Item = ShardId> {
        self.travels.refused()
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
