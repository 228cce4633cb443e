//! What the lanes of a client do to a file that they keep open: each writes cells of its own and syncs through a handle
//! of its own, over power cuts, restarts and evictions. Another client truncates it when the client has no session.

use crate::deeds::Keeping;
use crate::drive::{SimLane, read};
use crate::hub::HubRef;
use crate::kept::{CELL, CELLS, HEAD, KeptFile, SMALL_CELLS, bytes_of};
use crate::loss::give_up;
use crate::program::{Actor, Failed, session_of};
use skep_client::{CreateHow, OpenHow, Port, WriteHow};
use skep_types::limits::CHUNK_MIN;
use skep_types::{Errno, Ino, Policy, PoolId};
use skep_wire::meta::OpenMode;
use std::collections::BTreeSet;

const BOTH: OpenHow =
    OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
/// Longest time from such a deed to the cut, in milliseconds.
const PROVOKED_MAX_MS: u64 = 30;
/// How long a lane waits for the other one, in milliseconds.
const MEETING_MS: u64 = 150;
/// How soon after a growth power goes, at most, in milliseconds: metad syncs its log often.
const SOON_MS: u64 = 3;
/// How far apart what is done together begins, at most.
const BESIDE_MAX_MS: u64 = 8;
/// How long who has a session ended waits for that.
const EVICTION_MAX_MS: u64 = 20;
/// Rounds of writes to a new file in which metad is to come back after its power cut.
const STREAMED_MAX: u64 = 12;
/// Pause between them, in milliseconds.
const STREAM_MS: u64 = 120;
/// Writes or syncs of one deed.
const BURST: u64 = 4;

impl Actor {
    /// Something with the file that this client keeps open, or with one that a client without session keeps.
    pub(crate) async fn keep_something(&self) -> Result<(), Failed> {
        self.hub.borrow_mut().at_step.insert(self.id, 0);
        let open = self.hub.borrow().kept.opens.get(&self.id).copied();
        let Some((at, handle)) = open else {
            let intrudes = self.hub.borrow_mut().rng.percent(30);
            return if intrudes && self.intrude().await { Ok(()) } else { self.open_kept().await };
        };
        let met = self.hub.borrow_mut().kept.meetings.remove(&self.id.life);
        if let Some(due) = met {
            return self.write_beside_sync(at, handle, due).await;
        }
        // Whoever has lost its session, and the file with it, is to look while nothing has happened since.
        let cut = self.hub.borrow_mut().kept.cut_by_others.remove(&at);
        let deed = match cut {
            true => Keeping::Look,
            false => {
                let hub = &mut *self.hub.borrow_mut();
                hub.deeds.next_keeping(&mut hub.rng)
            }
        };
        match deed {
            Keeping::Meet => self.meet(at, handle).await?,
            Keeping::Write => {
                let rounds = 1 + self.hub.borrow_mut().rng.below(BURST);
                for _ in 0..rounds {
                    self.write_cell(at, handle).await?;
                }
            }
            Keeping::Sync => self.sync_kept(at, handle).await?,
            Keeping::Look => self.look_at_cell(at, handle).await?,
            Keeping::Intrude => {
                self.intrude().await;
            }
            Keeping::Close => self.close_kept().await?,
            Keeping::Cut => {
                // Perhaps while the other lane writes, or syncs.
                if self.cut_kept(at).await {
                    self.hub.borrow_mut().coverage.hit("a kept file was truncated by its keeper");
                }
            }
            Keeping::Stream => self.stream_over_a_cut().await?,
        }
        self.provoke();
        Ok(())
    }

    fn provoke(&self) {
        let hub = &mut *self.hub.borrow_mut();
        if !hub.calm && hub.rng.percent(hub.deeds.provoked) {
            hub.provoked = Some(hub.now + hub.rng.below(PROVOKED_MAX_MS));
        }
    }

    /// Waits for the other lane, which writes while this one syncs: an fsync answers for nothing that came too late for it.
    async fn meet(&self, at: usize, handle: u64) -> Result<(), Failed> {
        let (life, due) = {
            let hub = &mut *self.hub.borrow_mut();
            let due = hub.now + MEETING_MS;
            hub.kept.meetings.insert(self.id.life, due);
            (self.id.life, due)
        };
        self.lane.port().pause(MEETING_MS).await;
        {
            let kept = &mut self.hub.borrow_mut().kept;
            kept.meetings.retain(|of, until| (*of, *until) != (life, due));
            kept.syncing.insert(life);
        }
        // Of a file in the metadata the sync has something to wait for then.
        let written = self.write_cell(at, handle).await;
        let synced = match written {
            Ok(()) => self.sync_kept(at, handle).await,
            failed => failed,
        };
        self.hub.borrow_mut().kept.syncing.remove(&life);
        synced
    }

    /// Writes while the other lane syncs. metad loses its power then, perhaps with the write, and its fsync has to tell.
    async fn write_beside_sync(&self, at: usize, handle: u64, due: u64) -> Result<(), Failed> {
        let wait = {
            let hub = &mut *self.hub.borrow_mut();
            due.saturating_sub(hub.now) + hub.rng.below(BESIDE_MAX_MS)
        };
        self.lane.port().pause(wait).await;
        let rounds = 1 + self.hub.borrow_mut().rng.below(BURST);
        let syncs = || self.hub.borrow().kept.syncing.contains(&self.id.life);
        for _ in 0..rounds {
            self.write_cell(at, handle).await?;
            let hub = &mut *self.hub.borrow_mut();
            if !hub.kept.syncing.contains(&self.id.life) {
                break;
            }
            if !hub.calm {
                hub.coverage.hit("a kept file was written beside a sync");
            }
        }
        // Its sync has answered by then, perhaps for what it did not wait for.
        for _ in 0..MEETING_MS {
            if !syncs() {
                break;
            }
            self.lane.port().pause(1).await;
        }
        {
            let hub = &mut *self.hub.borrow_mut();
            if !hub.calm {
                hub.provoked = Some(hub.now + hub.rng.below(SOON_MS));
            }
        }
        self.lane.port().pause(2 * BESIDE_MAX_MS).await;
        self.sync_kept(at, handle).await?;
        self.look_at_cell(at, handle).await
    }

    /// Writes a new file out of the metadata, and on, while metad loses its power: perhaps with the word of where the
    /// file's chunks are, though targets go on taking what is written to them.
    async fn stream_over_a_cut(&self) -> Result<(), Failed> {
        self.close_kept().await?;
        let Some(at) = self.make_kept(false).await else { return Ok(()) };
        let Some((_, handle)) = self.hub.borrow().kept.opens.get(&self.id).copied() else { return Ok(()) };
        // An empty file needs no word of its own for where its chunks are: what is in the metadata is copied first.
        let (first, last) = (u64::from(self.id.lane), (CELLS - 1) * 2 + u64::from(self.id.lane));
        self.write_this_cell(at, handle, first).await?;
        self.write_this_cell(at, handle, last).await?;
        let before = {
            let hub = &mut *self.hub.borrow_mut();
            if !hub.calm {
                hub.provoked = Some(hub.now + hub.rng.below(SOON_MS));
            }
            hub.cuts.len()
        };
        for _ in 0..STREAMED_MAX {
            self.lane.port().pause(STREAM_MS).await;
            // Something else that the program does: its client hears of the new life of metad, and this file is not asked for.
            let _ = self.lane.lookup(Ino::ROOT, b"elsewhere").await;
            self.write_cell(at, handle).await?;
            if self.knows_cuts().is_some_and(|cuts| cuts > before) {
                self.hub.borrow_mut().coverage.hit("a kept file was written on over a power cut");
                break;
            }
        }
        self.write_cell(at, handle).await?;
        self.close_kept().await
    }

    /// Opens the client's file, or makes one.
    async fn open_kept(&self) -> Result<(), Failed> {
        let known = {
            let hub = self.hub.borrow();
            hub.kept.of(self.id.life).map(|at| (at, hub.kept.files[at].1.ino))
        };
        let at = match known {
            Some((at, ino)) => match self.lane.open(ino, BOTH).await {
                Ok(opened) => {
                    let hub = &mut *self.hub.borrow_mut();
                    hub.kept.files[at].1.told(self.id);
                    hub.kept.opens.insert(self.id, (at, opened.handle));
                    at
                }
                Err(_) => return Ok(()),
            },
            None => match self.make_kept(true).await {
                Some(at) => at,
                None => return Ok(()),
            },
        };
        self.hub.borrow_mut().say(format_args!("{} keeps file {at} open", self.id));
        Ok(())
    }

    /// A durable empty file, that may be one that stays small.
    async fn make_kept(&self, may_be_small: bool) -> Option<usize> {
        let (name, small, striped) = {
            let hub = &mut *self.hub.borrow_mut();
            let number = hub.kept.next_number();
            (format!("kept{number}"), may_be_small && hub.rng.percent(50), hub.rng.percent(50))
        };
        let policy = Policy { chunk_size: CHUNK_MIN, targets: 3, inline_limit: None, pool: PoolId(0) };
        let policy = striped.then_some(policy);
        let how = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy };
        let opened = self.lane.create(Ino::ROOT, name.as_bytes(), how, BOTH).await.ok()?;
        let synced = self.lane.fsync(opened.handle).await;
        let there = self.lane.lookup(Ino::ROOT, name.as_bytes()).await;
        if synced.is_err() || there.is_err() {
            self.lane.release(opened.handle).await;
            return None;
        }
        let hub = &mut *self.hub.borrow_mut();
        let at = hub.kept.files.len();
        hub.kept.files.push((self.id.life, KeptFile::new(opened.attr.ino, small)));
        hub.kept.opens.insert(self.id, (at, opened.handle));
        Some(at)
    }

    /// How many cuts there have been, if this client has heard of all that their metadata server lost.
    fn knows_cuts(&self) -> Option<usize> {
        let hub = self.hub.borrow();
        let shared = self.shared.borrow();
        // Such files are where the root is.
        let node = shared.map.leader(Ino::ROOT.shard())?;
        let term = hub.metad_terms.get(&node)?;
        (shared.shards.told(Ino::ROOT.shard()) == Some(*term)).then_some(hub.cuts.len())
    }

    async fn write_cell(&self, at: usize, handle: u64) -> Result<(), Failed> {
        let cell = {
            let hub = &mut *self.hub.borrow_mut();
            let cells = if hub.kept.files[at].1.small { SMALL_CELLS } else { CELLS };
            hub.rng.below(cells) * 2 + u64::from(self.id.lane)
        };
        self.write_this_cell(at, handle, cell).await
    }

    async fn write_this_cell(&self, at: usize, handle: u64, cell: u64) -> Result<(), Failed> {
        let owed = self.knows_cuts();
        let number = {
            let hub = &mut *self.hub.borrow_mut();
            let number = hub.kept.next_number();
            hub.kept.files[at].1.begin(cell, number, owed);
            hub.say(format_args!(
                "{} writes {number:x} to cell {cell} of kept file {at}, owed {owed:?}",
                self.id
            ));
            number
        };
        let written = self.lane.write(handle, cell * CELL, &bytes_of(number), WriteHow::default()).await;
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {written:?} of {number:x}", self.id));
        match written {
            Ok(n) if n as u64 == CELL => {
                hub.coverage.hit("a kept file was written");
                let grew = hub.kept.files[at].1.acknowledged(cell, number);
                if grew && !hub.calm && hub.rng.percent(hub.deeds.provoked_grown) {
                    hub.provoked = Some(hub.now + hub.rng.below(PROVOKED_MAX_MS));
                }
            }
            Ok(_) | Err(Errno::EINTR | Errno::EIO | Errno::ENOTCONN) => {}
            // Its name is there, so it is too.
            Err(errno) => {
                hub.fail(format!("{}: a write to kept file {at} gives {errno}", self.id));
                return Err(Failed);
            }
        }
        Ok(())
    }

    async fn sync_kept(&self, at: usize, handle: u64) -> Result<(), Failed> {
        let covered: BTreeSet<u64> = self.hub.borrow().kept.files[at].1.so_far();
        let result = self.lane.fsync(handle).await;
        self.judge_sync(at, "fsync", result, &covered)
    }

    fn judge_sync(
        &self,
        at: usize,
        what: &str,
        result: Result<(), Errno>,
        covered: &BTreeSet<u64>,
    ) -> Result<(), Failed> {
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {result:?} of the {what} of kept file {at}", self.id));
        match result {
            Ok(()) if what == "fsync" => {
                hub.coverage.hit("a kept file was synced");
                hub.kept.files[at].1.synced(self.id, covered);
            }
            Ok(()) | Err(Errno::EINTR | Errno::ENOTCONN) => {}
            Err(errno) => {
                if errno == Errno::EIO && hub.cuts.is_empty() && !hub.was_evicted(self.id.life) {
                    hub.fail(format!(
                        "{}: {what} of kept file {at} gives {errno}, but nothing was lost",
                        self.id
                    ));
                    return Err(Failed);
                }
                hub.coverage.hit("a kept file told of a loss");
                hub.kept.files[at].1.told(self.id);
            }
        }
        Ok(())
    }

    async fn look_at_cell(&self, at: usize, handle: u64) -> Result<(), Failed> {
        let cell = {
            let hub = &mut *self.hub.borrow_mut();
            let cells = hub.kept.files[at].1.cells();
            if cells.is_empty() {
                return Ok(());
            }
            // Who truncated it is the one to be seen.
            if cells.contains(&HEAD) && hub.rng.percent(75) { HEAD } else { hub.rng.pick(&cells) }
        };
        // Who has not heard of the end of its session does not see what others do since; whoever has a new one sees what was
        // done before that: what comes later is for its next open.
        let session = session_of(&self.shared);
        let knows = {
            let hub = self.hub.borrow();
            let lives = session.is_some_and(|client| hub.fields.living.contains(&client));
            let from = hub.session_from.get(&self.id.life).copied().unwrap_or(0);
            let cut_at = hub.kept.files[at].1.cut_at;
            lives && (cut_at == 0 || cut_at < from)
        };
        match look(&self.hub, &self.lane, at, handle, cell).await {
            Err(Some(what)) if knows => self.fail(what),
            _ => Ok(()),
        }
    }

    /// Closes it, and sees that a new open finds what is owed.
    pub(crate) async fn close_kept(&self) -> Result<(), Failed> {
        let open = self.hub.borrow_mut().kept.opens.remove(&self.id);
        let Some((at, handle)) = open else { return Ok(()) };
        let flushed = self.lane.flush(handle, 0).await;
        let judged = self.judge_sync(at, "close", flushed, &BTreeSet::new());
        self.lane.release(handle).await;
        judged?;
        {
            let hub = &mut *self.hub.borrow_mut();
            if hub.rng.percent(50) {
                hub.kept.files[at].1.retired = true;
            }
        }
        match check_kept(&self.hub, &self.lane, at).await {
            Ok(()) | Err(None) => Ok(()),
            Err(Some(what)) => self.fail(what),
        }
    }

    /// Truncates and writes a file that a client without session keeps open. `false`: there is none.
    async fn intrude(&self) -> bool {
        let found = {
            let hub = &mut *self.hub.borrow_mut();
            let others = hub.kept.strangers(self.id.life, &hub.without_session());
            if others.is_empty() { None } else { Some(hub.rng.pick(&others)) }
        };
        let Some(at) = found.or_else(|| self.evict_a_keeper()) else { return false };
        if found.is_none() && !self.keeper_is_evicted().await {
            return false;
        }
        let done = self.cut_kept(at).await;
        let hub = &mut *self.hub.borrow_mut();
        hub.kept.files[at].1.cut_at = hub.now;
        if done {
            hub.coverage.hit("a kept file was truncated by another client");
            hub.kept.cut_by_others.insert(at);
        }
        true
    }

    /// Truncates a file that is kept open, and writes its head. `true`: it was told so.
    async fn cut_kept(&self, at: usize) -> bool {
        let (session, owed) = (session_of(&self.shared), self.knows_cuts());
        let (ino, number) = {
            let hub = &mut *self.hub.borrow_mut();
            let number = hub.kept.next_number();
            hub.kept.files[at].1.cut_begins(number);
            hub.say(format_args!("{} truncates kept file {at}, writes {number:x}", self.id));
            (hub.kept.files[at].1.ino, number)
        };
        let done = self.truncate_and_write(ino, number).await;
        let done = done.filter(|_| session.is_some() && session_of(&self.shared) == session);
        let hub = &mut *self.hub.borrow_mut();
        hub.kept.files[at].1.cut_ends(number, done.map(|synced| (owed, synced)));
        done.is_some()
    }

    /// Has the session of a client ended by an administrator, which keeps a file open: it comes back at once.
    fn evict_a_keeper(&self) -> Option<usize> {
        let hub = &mut *self.hub.borrow_mut();
        if hub.calm || !hub.rng.percent(hub.deeds.evictions) {
            return None;
        }
        let living = hub.kept.strangers(self.id.life, &hub.with_session());
        if living.is_empty() {
            return None;
        }
        let at = hub.rng.pick(&living);
        hub.evicts = hub.sessions.get(&hub.kept.files[at].0).copied();
        Some(at)
    }

    /// Waits for the administrator's word to take effect. `false`: mgmtd is down, or slow.
    async fn keeper_is_evicted(&self) -> bool {
        let Some(keeper) = self.hub.borrow().evicts else { return true };
        for _ in 0..EVICTION_MAX_MS {
            self.lane.port().pause(1).await;
            if !self.hub.borrow().fields.living.contains(&keeper) {
                return true;
            }
        }
        false
    }

    /// Was it told that all of it is done, and was it synced?
    async fn truncate_and_write(&self, ino: Ino, number: u64) -> Option<bool> {
        let how = OpenHow { truncate: true, ..BOTH };
        let opened = self.lane.open(ino, how).await.ok()?;
        let written =
            self.lane.write(opened.handle, HEAD * CELL, &bytes_of(number), WriteHow::default()).await;
        let syncs = self.hub.borrow_mut().rng.percent(50);
        let synced = syncs && self.lane.fsync(opened.handle).await.is_ok();
        let flushed = self.lane.flush(opened.handle, 0).await;
        self.lane.release(opened.handle).await;
        let whole = written.is_ok_and(|n| n as u64 == CELL) && flushed.is_ok();
        whole.then_some(synced)
    }
}

/// Looks at one cell. `None`: it could not be read.
async fn look(hub: &HubRef, lane: &SimLane, at: usize, handle: u64, cell: u64) -> Result<(), Option<String>> {
    let floor = {
        let hub = &mut *hub.borrow_mut();
        hub.kept.files[at].1.lookers += 1;
        hub.kept.files[at].1.floor(cell, hub.cuts.len())
    };
    let found = read(lane, handle, cell * CELL, CELL as usize).await;
    let hub = &mut *hub.borrow_mut();
    hub.kept.files[at].1.lookers -= 1;
    let found = found.map_err(|_| None::<String>)?;
    let checked = hub.kept.files[at].1.check(cell, hub.cuts.len(), floor, &found);
    checked.map_err(|what| Some(format!("kept file {at}, inode {}: {what}", hub.kept.files[at].1.ino)))
}

/// Looks at all of a file, as whoever opens it. `None`: it could not be read.
pub async fn check_kept(hub: &HubRef, lane: &SimLane, at: usize) -> Result<(), Option<String>> {
    let (ino, cells) = {
        let hub = hub.borrow();
        (hub.kept.files[at].1.ino, hub.kept.files[at].1.cells())
    };
    let opened =
        lane.open(ino, OpenHow { mode: OpenMode::Read, ..BOTH }).await.map_err(|_| None::<String>)?;
    let mut result = Ok(());
    for cell in cells {
        result = look(hub, lane, at, opened.handle, cell).await;
        // A power cut of a target's server may have taken chunk files that were never synced.
        // Another witness may have given them up first.
        if result == Err(None) {
            result = match give_up(lane, ino).await {
                Ok(_) => look(hub, lane, at, opened.handle, cell).await,
                Err(what) => Err(Some(what)),
            };
        }
        if result.is_err() {
            break;
        }
    }
    lane.release(opened.handle).await;
    result
}
