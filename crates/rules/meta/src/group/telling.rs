//! Who had a shard tells its rows to who is to have it: `docs/design/moves.md`.

use super::message::Request;
use super::{Group, not_ready};
use crate::key;
use crate::limit::TRAVEL_BYTES;
use crate::row::header::{Given, Header};
use crate::store::{Store, StoreError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_rows::applied_key;
use skep_types::codec::Bytes;
use skep_types::log::{Head, Row};
use skep_types::{Decode, Encode, LogIndex, NodeId, Role, ShardId, Term};
use skep_wire::meta::{FetchRows, RowsReply, ShardStamp};
use skep_wire::mgmt::{ShardEntry, ShardState};
use skep_wire::{Refusal, Status};

/// What there is to tell of a shard that is not here.
pub fn no_rows() -> RowsReply {
    RowsReply { term: Term(0), index: LogIndex(0), rows: Vec::new(), more: false, holds: false }
}

impl<S: Store> Group<S> {
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
        // A server had all of it once, as this mgmtd does not know: what was served since is not here. Whoever asks sees that
        // in the header, and is told no more than that, unless an administrator said that what is missing is lost. The note
        // stays for the next order, which may be without that word.
        let are_newest = self.host.seats.get(&id).is_some_and(ShardEntry::are_newer_lost);
        if let Some(before) = self.shards.get(&id).and_then(|shard| shard.given_before(given)) {
            let text = format!("node {before} was told all rows of shard {id} before");
            return Ok(match m.behind.0.is_empty() {
                _ if are_newest => Ok(part),
                true => Ok(RowsReply { more: true, ..part }),
                false => Err(Refusal::with(Status::NOT_READY, text)),
            });
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

    /// Shards that mgmtd, put back from a backup, gives to this server, and that it has given away since, or has not served.
    pub(super) fn warn_of_withheld(&mut self) {
        let (own, withheld): (_, Vec<_>) = (self.host.own, self.withheld().collect());
        for (id, to) in withheld {
            if !self.travels.is_news(id, self.host.shard_epoch(id)) {
                continue;
            }
            let why = match to {
                to if to == own => "its rows came to this server and were never served, and mgmtd's map, which was put back from a \
                    backup of before that, does not know where it went on. There may be newer rows at the server that they came \
                    from, or elsewhere"
                    .into(),
                to => format!(
                    "all its rows were given to node {to}, and mgmtd's map, which was put back from a backup of before that, gives \
                     it to this server again. What was changed since at node {to}, or where it gave the shard, would be missing"
                ),
            };
            let there = match to {
                to if to == own => String::new(),
                to => format!(
                    " (node {to}, if it gave it to nobody and mgmtd knows it by that number: skep shard give {id} {to})"
                ),
            };
            self.host.out.warn(format!(
                "shard {id} is not served: {why}. Stop mgmtd, and put its newest copy back; if there is none, give the shard to the \
                 server that had it last, which goes on from its own rows{there}. Only if those rows are lost, or nobody ever served \
                 newer ones: skep shard give {id} {own} --newer-are-lost"
            ));
        }
    }

    /// Shards that are here still, though another server was told all rows.
    pub fn given(&self) -> impl Iterator<Item = (ShardId, NodeId)> {
        self.shards.values().filter_map(|shard| Some((shard.id, shard.given_to()?)))
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
}

/// Keys of its rows: the first, and the first behind them.
pub fn range_of(id: ShardId) -> (Vec<u8>, Vec<u8>) {
    (key::header(id), key::header(ShardId(id.0 + 1)))
}
