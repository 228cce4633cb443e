//! Small writes of a file that its mount holds: they wait for one another, and go to their targets together. See
//! `docs/design/gathering.md`.

use super::clocks::Clocks;
use super::{Heard, Inode, News, Pieces, Shared, copies};
use crate::limits::{COME_BACK_MS, GATHER_WRITE_MAX, GATHERED_BYTES_MAX, HOLD_MS, ROOM_LEFT_MS, RUN_BLOCKS};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{ClientId, Generation, Ino, Layout, Millis, Mode, TargetId, Timestamp};
use skep_wire::storage::{Clock, WriteChunkReply};

/// The suid and sgid bits.
const SETID: Mode = 0o6000;

/// What waits of a file.
#[derive(Debug, Default)]
pub struct Run {
    pieces: Arc<Pieces>,
    generation: Generation,
    /// The mount was heard so while they were written.
    heard: Option<Heard>,
    /// With so much of the file it goes.
    full_at: u64,
    /// That its targets have.
    room: Room,
    /// A lane brings it to its targets.
    is_put: bool,
    /// One has begun to before: some of it may be there, or under way. So what comes to it lies behind all of that.
    is_tried: bool,
    /// So many bytes of it, in order, are with their targets: they came while the file was held, so it is as good as lost only with
    /// all.
    done: usize,
    /// Something of it came too late: from then on each piece goes by itself.
    is_slow: bool,
    /// Lanes that tell of the file: nothing stays meanwhile.
    stops: u16,
    /// Targets had declined so often when it began: see [`Gathering`].
    declined: u64,
}

impl Run {
    /// Is it to go, before the next write does not fit? Where there are gaps those who fill them are a little behind.
    fn is_full(&self) -> bool {
        let full_at =
            if self.pieces.has_gaps() { self.full_at + GATHER_WRITE_MAX as u64 } else { self.full_at };
        self.pieces.span().is_some_and(|(_, end)| end >= full_at)
    }
}

/// Of all files.
#[derive(Debug, Default)]
pub struct Gathering {
    /// Bytes that no target has, and in how many pieces.
    bytes: usize,
    pieces: usize,
    /// Targets that promised room for so many bytes, and until when that is relied on.
    rooms: BTreeMap<TargetId, (u64, Millis)>,
    /// What is known of the clocks of targets: until when a put counts is said by them.
    clocks: Clocks,
    /// So often did one that was asked promise nothing: then nothing more stays of what had begun.
    declined: u64,
    /// What went to targets so.
    pub runs: u64,
}

impl Gathering {
    /// What a target that was asked said of room, and of its clock: that was read `now` at the latest. One that does not tell it
    /// (of an older release) lets in what comes late, so nothing stays for it.
    pub fn promised(&mut self, target: TargetId, reply: &WriteChunkReply, until: Millis, now: Millis) {
        self.clocks.is_told(target, reply.clock, now);
        match reply.room.filter(|_| reply.clock.is_some()) {
            Some(room) => drop(self.rooms.insert(target, (room, until))),
            None => self.declined += u64::from(self.rooms.remove(&target).is_some()),
        }
    }

    /// A target has refused what came too late.
    pub fn found_late(&mut self, target: TargetId, clock: Option<Clock>, now: Millis) {
        self.clocks.is_told(target, clock, now);
    }

    /// Until when a put to this target counts which is to land while it is before `end` by this mount's clock.
    pub fn counts_until(&self, target: TargetId, end: Millis) -> Clock {
        self.clocks.at(target, end)
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        self.bytes
    }

    /// How far behind `from` targets have promised room, at `last` at most; the least of it, and until when.
    fn room(&self, layout: &Layout, from: u64, last: u64, now: Millis) -> Room {
        let mut known = Room { begin: from, end: from, bytes: u64::MAX, until: Millis(u64::MAX) };
        for piece in layout.pieces(from, last.saturating_sub(from)) {
            for target in copies::to_change(&piece.stripe) {
                match self.rooms.get(target) {
                    Some((bytes, until)) if now.plus(ROOM_LEFT_MS) < *until => {
                        (known.bytes, known.until) = (known.bytes.min(*bytes), known.until.min(*until));
                    }
                    _ => return known,
                }
            }
            known.end = piece.file_offset + piece.len;
        }
        known
    }

    /// Is there room in front of `end` for so many bytes more, in a piece of their own?
    fn has_room(&self, room: &Room, end: u64, bytes: usize) -> bool {
        // A target counts blocks.
        let all = self.bytes + bytes + (self.pieces + 1) * RUN_BLOCKS;
        end <= room.end && all <= GATHERED_BYTES_MAX && all as u64 <= room.bytes
    }
}

/// What is known of room between two places of a file.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    begin: u64,
    end: u64,
    /// For so many bytes in all,
    bytes: u64,
    /// until then.
    until: Millis,
}

/// What becomes of a small write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// It stays with the mount.
    Here,
    /// It does, and the run is to go now.
    Full,
    /// It goes to its targets.
    Goes,
}

/// Whether a file is held still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asking {
    NotHeld,
    /// Another lane tells it, or asks.
    Busy,
    /// It is, as of now; or nothing waits.
    Known,
    /// It is to be asked, and what came of it to be said.
    Begun(News),
}

/// What is to be done before nothing of a file waits.
pub enum Put {
    Nothing,
    /// Another lane is at it.
    Busy,
    /// The mount may not hold the file any more: its shard is asked first.
    Unheard,
    Run {
        pieces: Arc<Pieces>,
        /// The session in which it was written, by whom the mount is heard, and the generation.
        of: (ClientId, Heard, Generation),
        /// So many bytes of it are there; does each piece of the rest go by itself?
        so_far: (usize, bool),
    },
}

/// What is to be done before content that is kept may go to chunks.
pub enum Moving {
    /// There is none: another lane has brought it there, or told it, or it is lost.
    Nothing,
    /// It is told, or brought there, by another lane.
    Busy,
    /// Others may have the file by now. It is inline at its shard, which takes what is kept if they have not.
    Tells,
    /// The same, of a file that has chunks: whether it is held still is asked first.
    Asks,
    Begun {
        content: Vec<u8>,
        /// The time that was given before.
        given: Option<Timestamp>,
        /// As those of a run.
        of: (ClientId, Heard),
    },
}

impl Inode {
    /// Does something of it wait?
    pub fn has_run(&self) -> bool {
        self.run.as_ref().is_some_and(|run| !run.pieces.is_empty())
    }

    /// Does a lane bring that to its targets?
    pub fn run_is_put(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_put)
    }

    /// Has that gaps, which programs left, or which others have still to fill?
    pub fn run_has_gaps(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.pieces.has_gaps())
    }

    /// Where that lies.
    pub fn run(&self) -> Option<(u64, u64)> {
        self.run.as_ref().and_then(|run| run.pieces.span())
    }

    /// A small write from `offset` to `end`: is it near the one before, so that others will be as well?
    fn goes_on_at(&mut self, offset: u64, end: u64, near: u64) -> bool {
        let before = self.hold.as_mut().and_then(|hold| hold.written_to.replace(end));
        before.is_none_or(|before| offset.abs_diff(before) <= near)
    }

    /// May something stay, as far as the file says?
    fn gathers(&self, now: Millis) -> bool {
        let is_plain = self.mode_now().is_some_and(|mode| mode & SETID == 0);
        let is_alone = self.truncating == 0 && self.cutting == 0 && self.appends == 0 && self.appending == 0;
        let is_free = self.run.as_ref().is_none_or(|run| run.stops == 0 && !run.is_put);
        is_free
            && is_alone
            && is_plain
            && self.is_held(now)
            && self.held_content().is_none()
            && !self.end_is_open()
            && !self.layout_old
    }
}

impl Shared {
    /// A small write: does it stay?
    pub(crate) fn gathers(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        (now, wall): (Millis, Timestamp),
    ) -> Stay {
        let is_small = self.limits.gathers && data.len() <= GATHER_WRITE_MAX;
        let heard = if is_small { self.leases.heard_by(ino.shard(), now) } else { None };
        let Some(heard) = heard else { return Stay::Goes };
        let Self { inodes, gathering, spared, limits, .. } = self;
        let Some(inode) = inodes.get_mut(ino) else { return Stay::Goes };
        let end = offset.saturating_add(data.len() as u64);
        let goes_on = inode.goes_on_at(offset, end, limits.gather_run);
        if !inode.gathers(now) || !(goes_on || inode.has_run()) {
            return Stay::Goes;
        }
        let Some(layout) = inode.layout.clone().filter(|layout| !layout.is_inline()) else {
            return Stay::Goes;
        };
        if !inode.has_run() {
            let begin = offset / limits.gather_run * limits.gather_run;
            let full_at = begin + limits.gather_run;
            let last = (full_at + 2 * GATHER_WRITE_MAX as u64).min(layout.covered());
            let mut room = gathering.room(&layout, begin, last, now);
            if room.end < end {
                room = gathering.room(&layout, offset, last, now);
            }
            let (generation, declined) = (layout.generation, gathering.declined);
            let run = Run { generation, full_at, room, heard: Some(heard), declined, ..Run::default() };
            inode.run = Some(Box::new(run));
        }
        let is_same = |run: &&mut Box<Run>| {
            run.generation == layout.generation
                && run.heard == Some(heard)
                && run.declined == gathering.declined
                && now.plus(ROOM_LEFT_MS) < run.room.until
                && offset >= run.room.begin
                && (!run.is_tried || run.pieces.span().is_none_or(|(_, end)| end == offset))
        };
        let begun = inode.begin();
        let Some(run) = inode.run.as_mut().filter(is_same) else { return Stay::Goes };
        let Some(pieces) = Arc::get_mut(&mut run.pieces) else { return Stay::Goes };
        let before = (pieces.len(), pieces.count());
        let wanted = run.full_at.min(run.room.end).saturating_sub(offset) as usize;
        if !gathering.has_room(&run.room, end, data.len()) || !pieces.take(offset, data, wanted) {
            return Stay::Goes;
        }
        gathering.bytes = gathering.bytes + pieces.len() - before.0;
        gathering.pieces = gathering.pieces + pieces.count() - before.1;
        let is_full = run.is_full();
        inode.stays();
        spared.gathered += 1;
        if inode.wrote_to(end, wall, layout.generation, false, begun) {
            self.loses(ino);
        }
        if is_full { Stay::Full } else { Stay::Here }
    }

    /// Where an append lands that stays here: where the file ends, as long as all of it that this mount wrote is marked.
    pub(crate) fn append_stays_at(&self, ino: Ino, now: Millis) -> Option<u64> {
        let inode = self.inodes.get(ino).filter(|inode| self.limits.gathers && inode.gathers(now))?;
        (inode.is_marked() && !self.inodes.appends_elsewhere(ino)).then(|| inode.size())
    }

    /// The same of one that is about to land there: no other write comes between.
    pub(crate) fn gathers_at_end(
        &mut self,
        ino: Ino,
        at: u64,
        data: &[u8],
        (now, wall): (Millis, Timestamp),
    ) -> Stay {
        match self.append_stays_at(ino, now) {
            Some(end) if end == at => self.gathers(ino, at, data, (now, wall)),
            _ => Stay::Goes,
        }
    }

    /// Whoever goes on needs what waits to be with its targets: a lane is to bring it there, and to give what came of it to
    /// [`Shared::was_put`]. `canary`: *puts-unheard*.
    pub(crate) fn begin_put(&mut self, ino: Ino, now: Millis) -> Put {
        if !self.inodes.get(ino).is_some_and(Inode::has_run) {
            return Put::Nothing;
        }
        let session = self.client();
        let heard = self.leases.heard_by(ino.shard(), now);
        let does_not_ask = self.limits.canary_puts_unheard;
        let run = self.inodes.get_mut(ino).and_then(|inode| inode.run.as_mut());
        let Some(run) = run.filter(|run| !run.is_put) else { return Put::Busy };
        let is_same = heard == run.heard || does_not_ask;
        let Some(heard) = heard.or(run.heard).filter(|_| is_same) else { return Put::Unheard };
        (run.is_put, run.is_tried) = (true, true);
        if let Some(pieces) = Arc::get_mut(&mut run.pieces) {
            let before = pieces.count();
            pieces.join();
            self.gathering.pieces -= before - pieces.count();
        }
        let of = (session, heard, run.generation);
        Put::Run { pieces: run.pieces.clone(), of, so_far: (run.done, run.is_slow) }
    }

    /// The run that has these pieces: by now it may be lost, and the file have another one.
    fn run_of(&mut self, ino: Ino, pieces: &Arc<Pieces>) -> Option<&mut Run> {
        let run = self.inodes.get_mut(ino).and_then(|inode| inode.run.as_deref_mut());
        run.filter(|run| Arc::ptr_eq(&run.pieces, pieces))
    }

    /// Is that what waits of the file?
    pub(crate) fn has_these(&mut self, ino: Ino, pieces: &Arc<Pieces>) -> bool {
        self.run_of(ino, pieces).is_some()
    }

    /// So much of these, which are put, is with their targets.
    pub(crate) fn put_so_far(&mut self, ino: Ino, pieces: &Arc<Pieces>, so_far: (usize, bool)) {
        if let Some(run) = self.run_of(ino, pieces) {
            (run.done, run.is_slow) = so_far;
        }
    }

    /// A lane is about to bring content that is kept to chunks. `is_sure`: its shard has just said that the file is held.
    pub(crate) fn begin_moving(&mut self, ino: Ino, now: Millis, is_sure: bool) -> Moving {
        let (session, heard) = (self.client(), self.leases.heard_by(ino.shard(), now));
        let Some(inode) = self.inodes.get_mut(ino).filter(|inode| inode.held_content().is_some()) else {
            return Moving::Nothing;
        };
        if inode.is_being_told() {
            return Moving::Busy;
        }
        let heard = heard.filter(|_| is_sure || inode.is_held(now));
        let Some(heard) = heard else {
            inode.may_be_others();
            return if inode.has_content_to_move() { Moving::Asks } else { Moving::Tells };
        };
        let given = inode.given_time();
        match inode.begin_moving() {
            Some(content) => Moving::Begun { content, given, of: (session, heard) },
            None => Moving::Nothing,
        }
    }

    /// Has the mount been heard without a break since?
    pub(crate) fn is_heard_still(&mut self, heard: Heard, now: Millis) -> bool {
        self.leases.heard_by(heard.shard, now) == Some(heard)
    }

    /// A lane is about to ask whether the file is held still.
    pub(crate) fn begin_asking(&mut self, ino: Ino, now: Millis) -> Asking {
        let heard = self.leases.heard_by(ino.shard(), now);
        let Some(inode) = self.inodes.get_mut(ino) else { return Asking::Known };
        let stale = |run: &Run| !run.pieces.is_empty() && (heard.is_none() || run.heard != heard);
        let has_doubt = inode.run.as_deref().is_some_and(stale);
        if !has_doubt && (inode.is_held(now) || inode.hold.is_none()) {
            return Asking::Known;
        }
        match (inode.hold.is_some(), inode.is_being_told()) {
            (false, _) => Asking::NotHeld,
            (true, true) => Asking::Busy,
            (true, false) => inode.begin_asking().map_or(Asking::NotHeld, Asking::Begun),
        }
    }

    /// The shard has said that the file is held still, as it was `asked` then: what waits may go. `false`: by now that says
    /// nothing any more, or the mount is not heard.
    pub(crate) fn holds_still(&mut self, ino: Ino, asked: Millis, now: Millis) -> bool {
        let heard = self.leases.heard_by(ino.shard(), now).filter(|_| now.since(asked) < HOLD_MS);
        let good_until = self.hold_until(ino.shard(), asked);
        self.waits.call();
        let (Some(inode), true) = (self.inodes.get_mut(ino), heard.is_some()) else { return false };
        inode.is_held_still(good_until);
        if let Some(run) = &mut inode.run {
            run.heard = heard;
        }
        true
    }

    /// It has not, or not in time. `true`: it has said no for so long that it will not say otherwise.
    pub(crate) fn is_denied(&mut self, ino: Ino, is_held: bool, now: Millis) -> bool {
        self.waits.call();
        let Some(inode) = self.inodes.get_mut(ino) else { return true };
        inode.was_asked();
        let Some(hold) = inode.hold.as_mut() else { return true };
        !is_held && now.since(*hold.denied.get_or_insert(now)) >= COME_BACK_MS
    }

    /// The file may be others' by now: what waits of it is lost, and content that is kept and has chunks already; the rest its
    /// shard may be told late.
    pub(crate) fn holds_no_more(&mut self, ino: Ino) {
        let has_content = self.inodes.get(ino).is_some_and(Inode::has_content_to_move);
        if has_content {
            self.end_hold(ino);
        } else {
            self.loses_run(ino);
            self.inodes.get_mut(ino).map(Inode::end_keeping);
        }
    }

    /// Files of which something waits.
    pub(crate) fn waiting(&self) -> Vec<Ino> {
        self.inodes.iter().filter(|(_, inode)| inode.has_run()).map(|(ino, _)| ino).collect()
    }

    /// It came to a target too late: others may have been let past this mount, so its shard is asked before it goes again.
    pub(crate) fn was_late(&mut self, ino: Ino, pieces: &Arc<Pieces>) {
        if let Some(run) = self.run_of(ino, pieces) {
            (run.is_put, run.heard, run.is_slow) = (false, None, true);
        }
        self.waits.call();
    }

    /// It is with its targets; or it is not, and waits on.
    pub(crate) fn was_put(&mut self, ino: Ino, pieces: &Arc<Pieces>, is_there: bool) {
        self.waits.call();
        let Some(run) = self.run_of(ino, pieces) else { return };
        if !is_there {
            return run.is_put = false;
        }
        self.gathering.runs += 1;
        if let Some(inode) = self.inodes.get_mut(ino) {
            let run = inode.run();
            run.into_iter().for_each(|(_, end)| inode.has_landed(end));
        }
        self.take_run(ino);
    }

    /// It will never get there: it is lost, and where the file ends its targets say.
    pub(crate) fn loses_run(&mut self, ino: Ino) {
        self.waits.call();
        if self.take_run(ino) {
            if let Some(inode) = self.inodes.get_mut(ino) {
                inode.end_is_in_doubt();
            }
            self.loses(ino);
        }
    }

    /// Nothing of it waits any more. `true`: something did.
    fn take_run(&mut self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.get_mut(ino) else { return false };
        let Some(run) = inode.run.as_mut() else { return false };
        let (pieces, stops) = (core::mem::take(&mut run.pieces), run.stops);
        (run.is_put, run.is_tried, run.done, run.is_slow) = (false, false, 0, false);
        if stops == 0 {
            inode.run = None;
        }
        self.gathering.bytes = self.gathering.bytes.saturating_sub(pieces.len());
        self.gathering.pieces = self.gathering.pieces.saturating_sub(pieces.count());
        !pieces.is_empty()
    }

    /// Nothing of the file stays until [`Shared::gathers_again`].
    pub(crate) fn stops_gathering(&mut self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.get_mut(ino) else { return false };
        // Also of one that is not held: by and by it may be, as it was asked for.
        let may_stay = self.limits.gathers || inode.hold.is_some() || inode.run.is_some();
        if may_stay {
            let run = inode.run.get_or_insert_default();
            run.stops = run.stops.saturating_add(1);
        }
        may_stay
    }

    pub(crate) fn gathers_again(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        if let Some(run) = inode.run.as_mut() {
            run.stops = run.stops.saturating_sub(1);
            if run.stops == 0 && run.pieces.is_empty() {
                inode.run = None;
            }
        }
    }

    /// The session has ended in which files were held.
    pub(crate) fn loses_runs(&mut self) {
        let waiting = self.inodes.iter().filter(|(_, inode)| inode.run.is_some());
        for ino in waiting.map(|(ino, _)| ino).collect::<Vec<Ino>>() {
            self.loses_run(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: however much room targets promise, no mount keeps more than its own limit; nor more than they promised. What pieces take
    /// beside their bytes counts.
    #[test]
    fn a_mount_keeps_no_more_than_its_limit() {
        let ends = |bytes, pieces, room: u64| {
            let gathering = Gathering { bytes, pieces, ..Gathering::default() };
            let room = Room { begin: 0, end: 1 << 40, bytes: room, until: Millis(u64::MAX) };
            move |more: usize| gathering.has_room(&room, 1 << 20, more)
        };
        for (most, room) in
            [(GATHERED_BYTES_MAX, u64::MAX), (GATHERED_BYTES_MAX / 2, GATHERED_BYTES_MAX as u64 / 2)]
        {
            let has_room = ends(most - 3 * RUN_BLOCKS - 1_000, 2, room);
            assert!(has_room(1_000) && !has_room(1_001), "{most}");
            let has_room = ends(most - 3 * RUN_BLOCKS - 1_000, 3, room);
            assert!(!has_room(1), "{most}: a piece more");
        }
        let gathering = Gathering::default();
        let room = Room { begin: 0, end: 4_096, bytes: u64::MAX, until: Millis(u64::MAX) };
        assert!(
            gathering.has_room(&room, 4_096, 1) && !gathering.has_room(&room, 4_097, 1),
            "behind what is known"
        );
    }
}
