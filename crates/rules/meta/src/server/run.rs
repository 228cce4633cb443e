//! Runs operations and the server's own decisions, and puts what they changed into the log.

use super::Server;
use super::lane::put_slot;
use super::live::Live;
use super::message::{EntryType, Output, Record, Request};
use super::opens::Opens;
use super::recovery::is_open_ended;
use crate::choose::Recorded;
use crate::command::{
    COMMAND_LEVEL_MIN, Caller, Choices, Internal, Serials, encode_internal, encode_request,
};
use crate::ctx::{Ctx, Done, Effect, Scene};
use crate::fail::{Fail, Need};
use crate::key;
use crate::op;
use crate::row::header::Keys;
use crate::store::{Batch, Store, StoreError};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Errno, Ino, LogIndex, ShardId, Timestamp};
use skep_wire::meta::{InspectReply, MetaRequest};
use skep_wire::{Refusal, Status};

/// How a run ended.
pub enum Ran {
    /// Done; in the log when it changed something.
    Done {
        /// The answer.
        done: Done,
        /// Its log record.
        logged: Option<LogIndex>,
    },
    /// It had no effect.
    Refused(Refusal),
    /// It had no effect, and is to be run again.
    Wait(Need),
}

impl<S: Store> Server<S> {
    /// Runs an operation; when it wrote rows, it is in the log afterwards.
    pub(super) fn run(
        &mut self,
        wall: Timestamp,
        request: &Request,
        caller: Option<Caller>,
        out: &mut Output,
    ) -> Result<Ran, StoreError> {
        let shard = request.call.shard;
        if op::needs_room(&request.message) {
            self.reserve_serials(wall, shard, out)?;
        }
        let scene = Scene { client: request.peer.client, ..self.scene(shard, wall, caller) };
        let index = scene.index;
        let Some(place) = self.shards.get_mut(&shard) else {
            return Ok(Ran::Refused(Status::STALE_MAP.into()));
        };
        let level = place.level;
        let (writers, sessions) = (&self.writers, &self.sessions);
        let recovering = |ino: Ino| is_open_ended(writers, sessions, ino);
        let seals = &self.seals;
        let sealing = |ino: Ino| seals.has(ino);
        let mut live = Live {
            now: self.now,
            shard,
            client: request.peer.client,
            grace: !self.grace.knows_opens(shard),
            durable: self.durable,
            opens: &self.opens,
            recovering: &recovering,
            sealing: &sealing,
            unsettled: &self.settling,
            spread: &mut self.spread,
            serials: &mut place.serials,
            choices: Choices::default(),
        };
        let mut ctx = Ctx::new(&self.store, scene, &mut live);
        let done = match operate(&mut ctx, &request.message, &self.opens) {
            Ok(done) => done.behind_its_gate(&ctx),
            Err(Fail::Refused(refusal)) => return Ok(Ran::Refused(refusal)),
            Err(Fail::Wait(need)) => return Ok(Ran::Wait(need)),
            Err(Fail::Store(e)) => return Err(e),
        };
        if ctx.txn.is_empty() {
            return Ok(Ran::Done { done, logged: None });
        }
        if self.low_space && op::needs_room(&request.message) {
            let text = "the disk of the metadata server is nearly full; free space in its state directory";
            return Ok(Ran::Refused(Refusal::with(Status::errno(Errno::ENOSPC), text)));
        }
        put_slot(&mut ctx, &done);
        let (batch, effects) = (ctx.txn.into_batch(), core::mem::take(&mut ctx.effects));
        let Some(bytes) = encode_request(level, wall, caller, &live.choices, &request.message) else {
            let name = request.message.name();
            return Err(StoreError::Corrupt(format!("{name} changed rows, but the log has no form of it")));
        };
        self.commit(shard, bytes, batch, effects, out)?;
        if let Some(caller) = caller {
            self.remembered.forget(shard, &caller);
        }
        Ok(Ran::Done { done, logged: Some(index) })
    }

    /// What is fixed for the next command.
    fn scene(&self, shard: ShardId, at: Timestamp, caller: Option<Caller>) -> Scene {
        Scene {
            shard,
            keys: self.shards.get(&shard).map_or(Keys::default(), |place| place.keys),
            hash: self.config.hash,
            at,
            term: self.terms.last(),
            index: LogIndex(self.last.0 + 1),
            caller,
            client: ClientId(0),
            inline_limit: self.config.inline_limit,
            replay: false,
        }
    }

    /// The command level in force: replicas of an older release must be able to read what is logged.
    fn level(&self, shard: ShardId) -> u16 {
        self.shards.get(&shard).map_or(COMMAND_LEVEL_MIN, |place| place.level)
    }

    /// Applies a command's rows and puts it into the log.
    fn commit(
        &mut self,
        shard: ShardId,
        bytes: Vec<u8>,
        batch: Batch,
        effects: Vec<Effect>,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let index = LogIndex(self.last.0 + 1);
        self.store.apply(index, batch)?;
        self.last = index;
        if let Some(place) = self.shards.get_mut(&shard) {
            place.last = index;
        }
        let entry = if shard == key::SERVER { EntryType::TermStart } else { EntryType::Command };
        out.records.push(Record { term: self.terms.last(), index, entry, shard, bytes });
        self.counters.logged();
        self.absorb(index, shard, effects, out);
        Ok(())
    }

    /// Logs what the server itself decides. Nothing is logged when it changes nothing.
    pub(super) fn decide(
        &mut self,
        wall: Timestamp,
        shard: ShardId,
        internal: &Internal,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let choices = Choices::default();
        let mut none = Recorded(&choices);
        let scene = self.scene(shard, wall, None);
        let mut ctx = Ctx::new(&self.store, scene, &mut none);
        match op::internal::run(&mut ctx, internal) {
            Ok(()) if ctx.txn.is_empty() => Ok(()),
            Ok(()) => {
                let (batch, effects) = (ctx.txn.into_batch(), core::mem::take(&mut ctx.effects));
                let level = match internal {
                    Internal::Format(m) => m.level,
                    _ => self.level(shard),
                };
                self.commit(shard, encode_internal(level, wall, internal), batch, effects, out)
            }
            Err(Fail::Store(e)) => Err(e),
            Err(fail) => Err(StoreError::Corrupt(format!("shard {shard}: {internal:?} failed: {fail:?}"))),
        }
    }

    /// Reserves the next block of inode numbers when few are left.
    fn reserve_serials(
        &mut self,
        wall: Timestamp,
        shard: ShardId,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let Some(end) = self.shards.get(&shard).and_then(|place| place.serials.wants()) else {
            return Ok(());
        };
        self.decide(wall, shard, &Internal::Serials(Serials { end }), out)?;
        let index = self.last;
        if let Some(place) = self.shards.get_mut(&shard) {
            place.serials.reserved(end, index);
        }
        Ok(())
    }
}

/// Runs the operation; `Inspect` also wants to know who has the inode open.
fn operate(ctx: &mut Ctx<'_>, message: &MetaRequest, opens: &Opens) -> Result<Done, Fail> {
    match message {
        MetaRequest::Inspect(m) => {
            let sessions = opens.sessions(m.ino);
            Ok(Done::reply(&InspectReply { sessions, ..op::inspect(ctx, m.ino)? }))
        }
        message => op::run(ctx, message),
    }
}
