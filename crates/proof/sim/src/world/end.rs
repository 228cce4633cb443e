//! The end of a run: every client sees every directory as it should be, and nothing is left over.

use super::seats::Seat;
use super::{World, idle};
use crate::loss;
use crate::metad::Metad;
use crate::queue::Event;
use skep_meta::store::{Batch, MemoryStore, Store, StoreError};
use skep_meta::{Input, PeerIdentity, Request};
use skep_types::{ChunkId, ClientId, Decode, FenceEpoch, Incarnation, Ino, LogSeq, NodeId, Role, TargetId};
use skep_wire::meta::{GroupStats, MetaRequest, ShardCall, StatsReply};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// An address of answers that no call has.
const OWN_QUESTION: u64 = 1 << 62;
/// Milliseconds between two looks at what is left.
const LOOK_MS: u64 = 500;
/// The number of the inode table in row keys.
pub const INODE_TABLE: u8 = 2;
/// That of growths that were given up while their owners may have been copying.
const DEAD_GROWTH_TABLE: u8 = 14;
/// What must become 0 once nobody does anything.
const LEFT_OVER: [&str; 15] = [
    "transactions",
    "moves",
    "seals",
    "open_files",
    "waiting",
    "errands",
    "deletions_loaded",
    "deletions_left_out",
    "trims",
    "orphans",
    "growths",
    "locks",
    "lock_waits",
    "appended_files",
    "held_files",
];

/// How far the end has come.
#[derive(Debug, Default)]
pub enum Stage {
    /// Lanes are at work.
    #[default]
    Running,
    /// A mount holds something and does nothing.
    Idle(Rc<RefCell<idle::Idle>>),
    /// Shards are told of the last closes: whoever may write to a file hides its set-id bits from all others.
    Closing,
    /// Every client compares every directory; so many have finished.
    Witnessed(Rc<RefCell<usize>>),
    /// Chunk files were harmed; a client reads them.
    Vandalised(Rc<RefCell<usize>>),
    /// Closes, deletions and truncates drain.
    Draining,
    /// Done.
    Over,
}

impl World {
    /// Moves the end on; true when the run is over.
    pub(super) fn is_over(&mut self) -> bool {
        match &self.stage {
            Stage::Running if self.all_verified() && self.all_go_on() => {
                self.stage = Stage::Idle(self.begin_idle());
            }
            Stage::Closing if self.closed => {
                let crossed = Rc::new(RefCell::new(0));
                for number in 0..self.seats.len() {
                    self.spawn_witness(number, &crossed);
                }
                self.stage = Stage::Witnessed(crossed);
            }
            // What waits for leases to be over may say of a chunk file how long it was.
            Stage::Witnessed(crossed) if *crossed.borrow() == self.seats.len() && !self.holds_changes() => {
                let crossed = Rc::new(RefCell::new(0));
                self.vandalise(&crossed);
                self.stage = Stage::Vandalised(crossed);
            }
            Stage::Vandalised(crossed) if *crossed.borrow() > 0 => {
                self.stage = Stage::Draining;
                self.hub.borrow_mut().lending.over = true;
                self.after(LOOK_MS, Event::Look);
            }
            Stage::Over => return true,
            _ => {}
        }
        false
    }

    /// Has every mount been heard since all is calm? Who stood still then may lose its session behind that, and its locks.
    fn all_go_on(&self) -> bool {
        let Some(calm) = self.calm_at else { return false };
        self.seats.iter().all(|seat| {
            let session = seat.shared.borrow().session.open().map(|session| session.client);
            session.is_some_and(|client| self.mgmtd.has_heard_since(client, calm))
        })
    }

    /// Removes chunk files of some files, or cuts them short, and has all files read.
    fn vandalise(&mut self, crossed: &Rc<RefCell<usize>>) {
        let files: Vec<_> = self.stores().flat_map(loss::stored).collect();
        let mut harmed = Vec::new();
        for file in files {
            let hub = self.hub.clone();
            let mut draw = move |n| hub.borrow_mut().rng.below(n);
            let harm = if draw(2) == 0 { file.harm(&mut draw) } else { None };
            if let Some(harm) = &harm {
                let done = self.storageds.iter_mut().any(|storaged| storaged.vandalise(harm));
                let hub = &mut *self.hub.borrow_mut();
                hub.say(format_args!("{harm:?}: {done}"));
                hub.coverage.hit("a chunk file was vandalised");
            }
            harmed.push((file, harm));
        }
        self.spawn_inspector(harmed, crossed);
    }

    /// Is everything drained?
    pub(super) fn look(&mut self) {
        if let Stage::Idle(idle) = &self.stage {
            let idle = idle.clone();
            if self.watch_idle(&idle) {
                self.stage = Stage::Closing;
            }
            return self.after(idle::LOOK_MS, Event::Look);
        }
        let left = self.gauges();
        // Of a shard that moved last there must be no rows where it was: nobody would be served from them.
        let first = ["open_files", "moves"];
        let waits = |name: &str| !matches!(self.stage, Stage::Closing) || first.contains(&name);
        let is_left = left.is_empty() || left.iter().any(|(name, count)| *count > 0 && waits(name));
        if is_left || !self.maps_agree() {
            return self.after(LOOK_MS, Event::Look);
        }
        if let Stage::Closing = self.stage {
            self.closed = true;
            return;
        }
        self.check_rows();
        self.check_chunks();
        self.stage = Stage::Over;
    }

    /// Does every mount look for every shard where mgmtd has it, and has nobody else its rows? Nobody holds a map that mgmtd
    /// has not told: it would hold it for newer than all that come.
    fn maps_agree(&self) -> bool {
        let newest = self.mgmtd.map_version();
        let of_mounts = self.seats.iter().map(|seat| (seat.life, seat.shared.borrow().map.version()));
        let of_daemons = self.upkeep.iter().map(|(node, upkeep)| (node.0, upkeep.map.version()));
        if let Some((who, held)) = of_mounts.chain(of_daemons).find(|(_, held)| *held > newest) {
            let what = format!("{who} holds map {held:?}, and the newest of mgmtd is {newest:?}");
            self.hub.borrow_mut().fail(what);
        }
        let shards = || self.mgmtd.state().shards.iter();
        let agrees = |seat: &Seat| {
            shards().all(|entry| seat.shared.borrow().map.leader(entry.shard) == entry.led_by())
        };
        // A server that does not know yet that a shard has left it has its rows, and nothing that says so.
        let leads = |node, shard| shards().any(|entry| entry.shard == shard && entry.is_led_by(node));
        let has_left = |metad: &Metad| {
            metad.server().is_some_and(|server| server.shards().all(|shard| leads(metad.node, shard)))
        };
        self.seats.iter().all(agrees) && self.metads.iter().all(has_left)
    }

    /// What is left over, by name; empty when a metadata server does not say.
    fn gauges(&mut self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for at in 0..self.metads.len() {
            match self.gauges_of(at) {
                told if told.is_empty() => return told,
                told => all.extend(told),
            }
        }
        all
    }

    fn gauges_of(&mut self, at: usize) -> Vec<(String, u64)> {
        let node = self.metads[at].node;
        let led = self.mgmtd.state().shards.iter().find(|entry| entry.is_led_by(node));
        let Some(shard) = led.map(|entry| entry.shard) else {
            // All its shards have gone to others.
            let moves = self.metads[at].server().map(|server| server.moves_under_way() as u64);
            return moves.map(|moves| (String::from("moves"), moves)).into_iter().collect();
        };
        let request = Request {
            reply_to: OWN_QUESTION,
            peer: PeerIdentity {
                role: Role::Admin,
                client: ClientId(0),
                incarnation: Incarnation(0),
                node: NodeId(0),
            },
            epoch: FenceEpoch(0),
            call: ShardCall { shard, ..ShardCall::default() },
            message: MetaRequest::GroupStats(GroupStats {}),
        };
        let out = self.metads[at].step(Input::Request(request), &mut self.hub.borrow_mut());
        let replies = out.map(|out| out.replies).unwrap_or_default();
        let body = replies.into_iter().find(|reply| reply.to == OWN_QUESTION).and_then(|r| r.result.ok());
        let Some(Ok(stats)) = body.map(|body| StatsReply::from_bytes(&body)) else { return Vec::new() };
        let wanted = stats.counters.into_iter().filter(|counter| LEFT_OVER.contains(&counter.name.as_str()));
        wanted.map(|counter| (counter.name, counter.value)).collect()
    }

    /// For the failure's text.
    pub(super) fn leftovers(&mut self) -> String {
        let left: Vec<_> = self.gauges().into_iter().filter(|(_, count)| *count > 0).collect();
        format!("left over: {left:?}")
    }

    fn check_rows(&mut self) {
        let Ok(rows) = self.rows() else { return };
        let found = skep_meta::check::check_invariants(&rows, skep_types::cookie::hash);
        let hub = &mut *self.hub.borrow_mut();
        match found {
            Ok(problems) if problems.is_empty() => {}
            Ok(problems) => hub.fail(format!("rows: {}", problems.join("; "))),
            Err(e) => hub.fail(format!("rows: {e}")),
        }
    }

    /// The rows of every metadata server that is up.
    fn stores(&self) -> impl Iterator<Item = &MemoryStore> {
        self.metads.iter().filter_map(|metad| metad.server()).map(skep_meta::Group::store)
    }

    /// The rows of all shards together, as one server would hold them.
    fn rows(&self) -> Result<MemoryStore, StoreError> {
        let mut all = Batch::new();
        for store in self.stores() {
            store.scan(&[], &[0xff, 0xff], &mut |key, value| {
                all.insert(key.to_vec(), Some(value.to_vec()));
                true
            })?;
        }
        let mut rows = MemoryStore::default();
        rows.apply(LogSeq(1), &[], all)?;
        Ok(rows)
    }

    /// No chunk file exists that no layout names, nor the row of a growth whose owner has asked for nothing
    /// since it was given up (its chunks go a second time when it does).
    fn check_chunks(&mut self) {
        let Ok(rows) = self.rows() else { return };
        let mut named: BTreeSet<(TargetId, ChunkId)> = BTreeSet::new();
        let mut unread = 0;
        let scanned = rows.scan(&[], &[0xff, 0xff], &mut |key, value| {
            let layout = match key.get(2) {
                Some(&INODE_TABLE) => skep_meta::Inode::from_bytes(value).map(|inode| inode.layout),
                Some(&DEAD_GROWTH_TABLE) => skep_meta::Growth::from_bytes(value).map(|growth| growth.layout),
                _ => return true,
            };
            match layout {
                Ok(layout) => named.extend(layout.chunks().map(|(chunk, target)| (target, chunk))),
                Err(_) => unread += 1,
            }
            true
        });
        let hub = &mut *self.hub.borrow_mut();
        if unread > 0 || scanned.is_err() {
            hub.fail(format!("{unread} rows with layouts cannot be read: {scanned:?}"));
        }
        // A target that forgets what was deleted lets a late write bring it back, unread for ever.
        for storaged in self.storageds.iter().filter(|storaged| storaged.remembers_deletions()) {
            for (target, chunk) in storaged.chunks().into_iter().chain(storaged.seals()) {
                if !named.contains(&(target, chunk)) {
                    let Ino(ino) = chunk.ino;
                    hub.fail(format!(
                        "target {target} keeps a chunk file that nobody names: inode {ino}, {chunk:?}"
                    ));
                }
            }
        }
    }
}
