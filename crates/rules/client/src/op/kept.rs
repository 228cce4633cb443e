//! Opening again what this mount has open at the shard already: see `docs/design/leases.md`, section 8.

use super::open::{OpenHow, Opened};
use crate::lane::Lane;
use crate::limits::OWN_WAIT_MIN_MS;
use crate::port::{Cell, Port};
use crate::state::{CoveredSince, Found, Inode, LOOKS_AT_ONCE, Shared};
use skep_types::{Attr, Errno, Ino, Kind, Millis, ShardId};
use skep_wire::Refusal;
use skep_wire::meta::{Closed, OpenMode, ShardStamp};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Opens a file without asking: the shard has it open for this mount, and a lease says what the answer would be.
    pub(crate) async fn open_known(&self, ino: Ino, how: OpenHow) -> Option<Result<Opened, Refusal>> {
        if !self.leases || how.mode.writes() || how.truncate {
            return None;
        }
        let now = self.port.boot();
        match self.shared.with(|s| s.open_known(ino, how, now))? {
            Ok(opened) => Some(self.opened_fresh(opened, false).await),
            Err(errno) => Some(Err(errno.into())),
        }
    }

    /// Opens; once more where the shard had no room, and had to keep some that nobody needs.
    pub(crate) async fn open_with_room(
        &self,
        open: impl AsyncFn() -> Result<Opened, Refusal>,
    ) -> Result<Opened, Refusal> {
        let opened = open().await;
        let is_full = opened.as_ref().is_err_and(|refusal| refusal.status.as_errno() == Some(Errno::ENFILE));
        if is_full && self.made_room_for_opens().await { open().await } else { opened }
    }

    /// May an open that a shard had no room for be tried again? Those that nobody needs go first.
    async fn made_room_for_opens(&self) -> bool {
        let now = self.port.now();
        let (is_here, is_some) = self.shared.with(|s| {
            while s.close_oldest(now) {}
            (s.handles.has_room().is_err(), !s.closes.is_empty() || s.closes.on_their_way > 0)
        });
        if is_here || !is_some {
            return false;
        }
        self.send_closes().await;
        // Another lane may be telling them.
        while self.shared.with(|s| s.closes.on_their_way > 0) && !self.port.cancelled() {
            self.port.pause(OWN_WAIT_MIN_MS).await;
        }
        true
    }

    /// Closes what no program has opened for a while, and what would be opened by asking all the same. Housekeeping.
    pub(crate) fn close_unused(&self) {
        let (now, boot) = (self.port.now(), self.port.boot());
        let is_due = |s: &Shared| s.kept.oldest().is_some_and(|(at, _)| now.since(at) >= s.limits.kept_ms);
        while self.shared.with(|s| is_due(s) && s.close_oldest(now)) {}
        if !self.shared.with(|s| s.kept.begins_look(now)) {
            return;
        }
        let mut from = Some(Ino(0));
        while let Some(next) = from {
            from = self.shared.with(|s| s.close_unknown(next, now, boot));
        }
    }

    /// The open of what a name leads to, if no program has that open: who takes the name away says in one with it that it is
    /// closed, so that the file need not outlive its name.
    pub(crate) fn close_under(&self, dir: Ino, name: &[u8]) -> Option<Closed> {
        if !self.leases {
            return None;
        }
        let (now, boot) = (self.port.now(), self.port.boot());
        self.shared.with(|s| {
            let era = s.leases.believes(dir, boot)?;
            let Found::There(ino, ..) = s.names.find(dir, era, name) else { return None };
            s.close_kept(ino, now)
                .then(|| s.inodes.get(ino).map(|inode| Closed { ino, open_seq: inode.open_seq }))?
        })
    }
}

impl Shared {
    fn open_known(&mut self, ino: Ino, how: OpenHow, now: Millis) -> Option<Result<Opened, Errno>> {
        let inode = self.inodes.get(ino)?;
        if !self.is_known(ino, inode) {
            return None;
        }
        let is_in_use = inode.readers + inode.writers > 0;
        let is_told = is_in_use || self.kept.has(ino) || self.limits.canary_erases_opens;
        if !is_told || inode.mode == Some(OpenMode::Write) || inode.layout_old || !self.has_session() {
            return None;
        }
        let attr = self.covering(ino, now)?.1;
        let inode = self.inodes.get_mut(ino)?;
        let layout = inode.layout.as_ref().filter(|layout| layout.generation == attr.generation)?;
        let is_same = |known: &Attr| known.change == attr.change && known.kind == Kind::File;
        if !inode.attr.as_ref().is_some_and(is_same) {
            return None;
        }
        let inline = layout.is_inline();
        // Nobody else writes to what a lease covers.
        (inode.live, inode.live_size) = (false, 0);
        let added = self.add_handle(ino, how);
        if added.is_ok() {
            self.kept.take(ino);
            self.spared.opens += 1;
        }
        Some(added.map(|handle| Opened { handle, attr, inline, created: false, covered: false }))
    }

    fn covered_since(&self, ino: Ino) -> Option<CoveredSince> {
        self.names.covered_since(ino, self.leases.era(ino.shard()))
    }

    /// Is what the last open was told of it known still?
    fn is_known(&self, ino: Ino, inode: &Inode) -> bool {
        inode.known_since != 0
            && self.covered_since(ino).is_some_and(|since| since.number == inode.known_since)
    }

    /// An open was just answered: the number of the lease by which all that it says is known, unless it is older.
    pub(crate) fn known_since(&self, ino: Ino, stamp: &ShardStamp) -> u64 {
        let is_of_term = stamp.term == self.shards.term(ino.shard());
        let since = self.covered_since(ino).filter(|since| is_of_term && since.index <= stamp.index);
        since.map_or(0, |since| since.number)
    }

    /// The last program has closed it: is it worth keeping, and does its shard have the room?
    pub(crate) fn is_worth_keeping(&self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.get(ino).filter(|inode| inode.keeps && self.has_session()) else {
            return false;
        };
        inode.mode == Some(OpenMode::Read)
            && inode.is_clean()
            && !inode.is_changing()
            && self.is_known(ino, inode)
            && !self.locks.has_of(ino)
    }

    /// Shards are told that it is closed, unless a program opens it before. `false`: it was not kept.
    pub(crate) fn close_kept(&mut self, ino: Ino, now: Millis) -> bool {
        let is_kept = self.kept.take(ino);
        if is_kept && self.limits.canary_erases_opens {
            let open_seq = self.next_open_seq();
            self.closes.add(ino, open_seq);
        } else if is_kept {
            self.is_closed(ino, now);
        }
        is_kept
    }

    /// Closes those from `from` on that no lease covers as it did; says where to go on.
    fn close_unknown(&mut self, from: Ino, now: Millis, boot: Millis) -> Option<Ino> {
        let some = self.kept.some_from(from);
        for ino in &some {
            let dir = self.names.covering_dir(*ino, self.leases.era(ino.shard()));
            let is_believed = dir.is_some_and(|dir| self.leases.believes(dir, boot).is_some());
            let is_known = self.inodes.get(*ino).is_some_and(|inode| self.is_known(*ino, inode));
            if !(is_believed && is_known) {
                self.close_kept(*ino, now);
            }
        }
        some.last().filter(|_| some.len() == LOOKS_AT_ONCE).map(|ino| Ino(ino.0 + 1))
    }

    pub(crate) fn close_oldest(&mut self, now: Millis) -> bool {
        self.kept.oldest().is_some_and(|(_, ino)| self.close_kept(ino, now))
    }

    pub(crate) fn close_all_kept_of(&mut self, shard: ShardId, now: Millis) {
        while self.kept.one_of(shard).is_some_and(|ino| self.close_kept(ino, now)) {}
    }
}

#[cfg(test)]
mod tests;
