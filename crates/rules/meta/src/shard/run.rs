//! Runs operations and the server's own decisions, and puts what they changed into the log.

use super::Shard;
use super::live::Live;
use super::opens::Opens;
use super::recovery::is_open_ended;
use super::txns::Locked;
use crate::choose::{Plan, Recorded};
use crate::command::{Caller, Choices, Internal, Serials, encode_internal, encode_request};
use crate::ctx::{Ctx, Dirs, Done, Effect, Scene};
use crate::fail::{Fail, Need};
use crate::group::{Host, Known, Request, names_of, touched};
use crate::key;
use crate::near::Near;
use crate::op;
use crate::row::slot::SlotRow;
use crate::store::{Batch, Store, StoreError, Wanted};
use alloc::format;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::log::{Head, Record};
use skep_types::{Attr, ClientId, Errno, Ino, LogIndex, ShardId};
use skep_wire::meta::{InspectReply, MetaRequest};
use skep_wire::mgmt::{ShardEntry, ShardState};
use skep_wire::{Refusal, Status};

/// How a run ended.
pub enum Ran {
    /// Done; in the log when it changed something.
    Done {
        /// The answer.
        done: Done,
        /// Its log record.
        logged: Option<LogIndex>,
        /// What the answer tells beside its body.
        tells: Tells,
    },
    /// It had no effect. With the directories that this tells of.
    Refused(Refusal, Dirs),
    /// It had no effect, and is to be run again.
    Wait(Need),
    /// The same, when other shards have voted.
    Transact(Plan),
    /// The same, when these rows are in memory.
    Lacks(Vec<Wanted>),
    /// The same, when others have confirmed that they use no longer what it changes.
    Recall(u64),
    /// The same, when nobody uses any longer what an earlier term has lent.
    Hold,
}

impl Ran {
    /// It changed nothing.
    fn unlogged(done: Done, dirs: Dirs) -> Self {
        Self::Done { done, logged: None, tells: Tells { dirs, ..Tells::default() } }
    }
}

/// What an answer tells beside its body, to who wishes for leases.
#[derive(Debug, Default)]
pub struct Tells {
    /// Directories that it looked at.
    pub dirs: Dirs,
    /// Inodes that it changed, as they are now.
    pub changed: Vec<Attr>,
    /// The asker holds what it has made, and may keep so many bytes of its content.
    pub holds: Option<u32>,
}

/// A run that may count.
struct Run {
    done: Done,
    batch: Batch,
    effects: Vec<Effect>,
    choices: Choices,
    dirs: Dirs,
    /// It read from the disk what it lacked.
    in_place: bool,
}

impl Shard {
    /// Runs an operation, perhaps to decide this transaction; when it wrote rows, it is in the log afterwards.
    pub(super) fn run<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        caller: Option<Caller>,
        deciding: Option<u64>,
    ) -> Result<Ran, StoreError> {
        if op::needs_room(&request.message) {
            self.reserve_serials(host)?;
        }
        let scene = Scene { client: request.peer.client, ..self.scene(host, caller) };
        let in_place = self.reads_in_place(host);
        let wishes = host.leases.wishes(request.reply_to).is_some();
        let (mut serials, turns) = (self.serials, host.spread.turns());
        let (writers, sessions, seals) = (&self.writers, &host.sessions, &self.seals);
        let recovering = |ino: Ino| is_open_ended(writers, sessions, ino);
        let sealing = |ino: Ino| seals.has(ino);
        let (seats, own) = (&host.seats, host.own);
        let is_served = |seat: &ShardEntry| seat.is_led_by(own) && seat.state == ShardState::Active;
        let beside = |shard: ShardId| seats.get(&shard).is_some_and(is_served);
        let holding = self.holding(host, request);
        // Who has a lease on the directory, or looks at it all the time, is about to look at the file.
        let holds = |dir: Ino| holding.makes && !host.leases.notes(dir, request.peer.client, host.now);
        let mut live = Live {
            now: host.now,
            shard: self.id,
            client: request.peer.client,
            grace: !self.grace.knows_opens(),
            durable: self.durable,
            opens: &self.opens,
            recovering: &recovering,
            sealing: &sealing,
            unsettled: &self.settling,
            beside: &beside,
            spread: &mut host.spread,
            serials: &mut serials,
            coverable: &|ino| wishes && self.is_coverable_for(ino, request.peer.client),
            held: &self.files_held,
            holding,
            holds: &holds,
            txns: Locked { txns: &self.txns, own: (self.id, self.terms.last()), deciding },
            takes_strays: host.config.canary_takes_strays,
            choices: Choices::default(),
        };
        // What others have promised is not left waiting for a disk once more.
        let in_place = deciding.is_some() || in_place;
        let near = Near::new(&host.store, in_place);
        let mut ctx = Ctx::new(&near, scene, &mut live);
        let ended = operate(&mut ctx, &request.message, &self.opens);
        let lacks = near.take_lacks();
        let dirs = ctx.take_dirs();
        let ran = match ended {
            _ if !lacks.is_empty() => Ran::Lacks(lacks),
            Err(Fail::Refused(refusal)) => Ran::Refused(refusal, dirs),
            Err(Fail::Wait(need)) => self.wait_for(host, need),
            Err(Fail::Transact(plan)) => self.transacts(host, request, *plan)?,
            Err(Fail::Store(e)) => return Err(e),
            Ok(done) if ctx.txn.is_empty() => {
                let done = done.behind_its_gate(&ctx);
                let uncovers = self.uncovers_by_opening(host, request, &done)?;
                uncovers.unwrap_or(Ran::unlogged(done, dirs))
            }
            Ok(_) if host.low_space && op::needs_room(&request.message) => no_room(&request.message),
            Ok(done) => {
                let done = done.behind_its_gate(&ctx);
                if deciding.is_none() || !host.config.canary_leaves_lane {
                    put_slot(&mut ctx, &done);
                }
                let (batch, effects) = (ctx.txn.into_batch(), core::mem::take(&mut ctx.effects));
                let choices = live.choices;
                self.settle(host, request, caller, Run { done, batch, effects, choices, dirs, in_place })?
            }
        };
        if matches!(ran, Ran::Lacks(_) | Ran::Recall(_) | Ran::Hold) {
            host.spread.turn_back(turns);
        } else {
            self.serials = serials;
        }
        Ok(ran)
    }

    /// Other shards have a part in it: its names are taken back before they are asked.
    fn transacts<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        plan: Plan,
    ) -> Result<Ran, StoreError> {
        let names = |known: &Known<'_>| Ok(names_of(&plan, known.is_leased));
        let touched = self.touched_by(host, request.peer.client, None, names)?;
        Ok(self.take_back(host, request, &touched).unwrap_or(Ran::Transact(plan)))
    }

    /// What the run wrote goes into the log, unless others use what it changes.
    fn settle<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        caller: Option<Caller>,
        run: Run,
    ) -> Result<Ran, StoreError> {
        let Run { done, batch, effects, choices, dirs, in_place } = run;
        // What is promised was taken back before the promise.
        if !matches!(request.message, MetaRequest::Decide(_)) {
            let near = Near::new(&host.store, in_place);
            let rows = |known: &Known<'_>| touched(&near, &batch, known);
            let touched = match self.touched_by(host, request.peer.client, choices.ino, rows) {
                Err(StoreError::Away) => return Ok(Ran::Lacks(near.take_lacks())),
                touched => touched?,
            };
            if let Some(waits) = self.take_back(host, request, &touched) {
                return Ok(waits);
            }
            if choices.ino.is_none()
                && let Some(waits) = self.uncovers_by_opening(host, request, &done)?
            {
                return Ok(waits);
            }
        }
        let Some(bytes) = encode_request(self.level, host.wall, caller, &choices, &request.message) else {
            let name = request.message.name();
            return Err(StoreError::Corrupt(format!("{name} changed rows, but the log has no form of it")));
        };
        let changed = match host.leases.wishes(request.reply_to) {
            Some(_) => self.changed(host, &batch)?,
            None => Vec::new(),
        };
        self.commit(host, bytes, batch, effects)?;
        if let Some(caller) = caller {
            self.remembered.forget(&caller);
        }
        Ok(Ran::Done { done, logged: Some(self.last), tells: Tells { dirs, changed, holds: None } })
    }

    /// What is fixed for the next command.
    fn scene<S: Store>(&self, host: &Host<S>, caller: Option<Caller>) -> Scene {
        Scene {
            shard: self.id,
            keys: self.keys,
            hash: host.config.hash,
            at: host.wall,
            term: self.term(),
            index: LogIndex(self.last.0 + 1),
            caller,
            client: ClientId(0),
            inline_limit: host.config.inline_limit,
            replay: false,
        }
    }

    /// Applies a command's rows and puts it into the log.
    fn commit<S: Store>(
        &mut self,
        host: &mut Host<S>,
        bytes: Vec<u8>,
        batch: Batch,
        effects: Vec<Effect>,
    ) -> Result<(), StoreError> {
        let head = Head { shard: self.id, term: self.term(), index: LogIndex(self.last.0 + 1) };
        let record = Record::command(host.next_seq(), head, bytes);
        host.log(&[head], batch, record)?;
        self.last = head.index;
        self.absorb(host, head.index, effects);
        Ok(())
    }

    /// Logs what the shard itself decides. Nothing is logged when it changes nothing.
    pub(super) fn decide<S: Store>(
        &mut self,
        host: &mut Host<S>,
        internal: &Internal,
    ) -> Result<(), StoreError> {
        let choices = Choices::default();
        let mut none = Recorded(&choices);
        let mut ctx = Ctx::new(&host.store, self.scene(host, None), &mut none);
        match op::internal::run(&mut ctx, internal) {
            Ok(()) if ctx.txn.is_empty() => Ok(()),
            Ok(()) => {
                let (batch, effects) = (ctx.txn.into_batch(), core::mem::take(&mut ctx.effects));
                self.note_broken(host, &batch)?;
                // The level in force: replicas of an older release must be able to read what is logged.
                self.commit(host, encode_internal(self.level, host.wall, internal), batch, effects)
            }
            Err(Fail::Store(e)) => Err(e),
            Err(fail) => {
                Err(StoreError::Corrupt(format!("shard {}: {internal:?} failed: {fail:?}", self.id)))
            }
        }
    }

    /// Reserves the next block of inode numbers when few are left.
    fn reserve_serials<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        let Some(end) = self.serials.wants() else { return Ok(()) };
        self.decide(host, &Internal::Serials(Serials { end }))?;
        self.serials.reserved(end, self.last);
        Ok(())
    }
}

/// The disk of the server is nearly full: the run does not count.
fn no_room(message: &MetaRequest) -> Ran {
    if matches!(message, MetaRequest::Prepare(_)) {
        return Ran::unlogged(op::no_room(), Dirs::default());
    }
    let text = "the disk of the metadata server is nearly full; free space in its state directory";
    Ran::Refused(Refusal::with(Status::errno(Errno::ENOSPC), text), Dirs::default())
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

/// The lane remembers the request together with its effect.
pub(super) fn put_slot(ctx: &mut Ctx<'_>, done: &Done) {
    let Some(caller) = ctx.scene.caller else { return };
    let row = SlotRow {
        incarnation: caller.incarnation,
        seq: caller.seq,
        term: ctx.scene.term,
        index: ctx.scene.index,
        gate: done.gate,
        body: Bytes(done.body.clone()),
    };
    ctx.put(key::slot(ctx.scene.shard, caller.client, caller.slot), &row);
}
