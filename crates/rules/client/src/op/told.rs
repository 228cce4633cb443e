//! For how long the kernel may use what a reply says, and how it comes to drop that: before a shard hears that nobody uses it, and
//! before this mount changes it itself. See `docs/design/leases.md`, section 7.

mod drops;

use crate::lane::Lane;
use crate::limits::{DROPS_AT_ONCE, LINES_AT_ONCE, OLD_LOOK_MS, VALIDITY_MARGIN_MS};
use crate::port::{Cell, Port};
use crate::state::{AttrsBy, Change, Found, Inode, LeadsTo, Shared};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Attr, Ino, Kind, Millis};

/// What tells the attributes of a reply from newer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    ino: Ino,
    change: u64,
    size: u64,
}

impl From<&Attr> for Shown {
    fn from(attr: &Attr) -> Self {
        Self { ino: attr.ino, change: attr.change, size: attr.size }
    }
}

/// For how many milliseconds the kernel may use a name, and the attributes beside it, without asking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Valid {
    pub name: u64,
    pub attributes: u64,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// May the kernel be told to use anything without asking?
    pub fn tells(&self) -> bool {
        self.tells
    }

    /// A reply with these attributes goes to the kernel now: for how many milliseconds it may use them.
    pub fn valid_for(&self, attr: &Attr, by: AttrsBy) -> u64 {
        let now = self.port.boot();
        if self.tells { self.shared.with(|s| s.valid_for(&attr.into(), by, now)) } else { 0 }
    }

    /// The same of one that says that this name leads to them.
    pub fn name_valid_for(&self, dir: Ino, name: &[u8], attr: &Attr, by: AttrsBy) -> Valid {
        if !self.tells {
            return Valid::default();
        }
        let now = self.port.boot();
        self.shared.with(|s| Valid {
            name: s.name_valid_for((dir, name), attr.ino, now),
            attributes: s.valid_for(&attr.into(), by, now),
        })
    }

    /// The same of a part of the listing of `dir`.
    pub fn lines_valid_for(&self, dir: Ino, lines: &[(Box<[u8]>, Shown)]) -> Vec<Valid> {
        if !self.tells {
            return Vec::new();
        }
        let mut all = Vec::with_capacity(lines.len());
        for lines in lines.chunks(LINES_AT_ONCE) {
            let now = self.port.boot();
            self.shared.with(|s| {
                all.extend(lines.iter().map(|(name, shown)| Valid {
                    name: s.name_valid_for((dir, name), shown.ino, now),
                    attributes: s.valid_for(shown, AttrsBy::Look, now),
                }));
            });
        }
        all
    }

    /// A directory may go by this name, or move, and the kernel need not have asked for it just before: which one it is has to be
    /// known.
    pub(crate) async fn see(&self, dir: Ino, name: &[u8]) {
        let now = self.port.boot();
        if self.tells && self.shared.with(|s| s.is_unseen(dir, name, now)) {
            // If it cannot be, the change fails as well, or finds nothing.
            let _ = self.find(dir, name).await;
        }
    }

    /// A rename is over: the kernel has moved names, with their validity. What it would not be told there it is to drop, as soon as the
    /// request gives the directories back, which nobody waits for.
    pub(crate) fn drop_moved(&self, change: &Change) {
        for (dir, name) in self.shared.with(|s| s.moved_names(change, self.port.boot())) {
            self.port.drop_name(dir, &name);
        }
    }

    /// This mount is about to change these, or has changed them beside what it named. `false`: they are not dropped, and nobody waits
    /// any more; somebody else has it done.
    pub(crate) async fn untell(&self, inos: Vec<Ino>) -> bool {
        let mut all = true;
        for (at, ino) in inos.into_iter().enumerate() {
            if at > 0 && at.is_multiple_of(DROPS_AT_ONCE) {
                self.port.pause(1).await;
            }
            let is_done = self.has_dropped(ino).await;
            all &= is_done;
            let rings = self.shared.with(|s| {
                // The program was killed, and its lane waits for nothing any more.
                if !is_done {
                    s.kernel.drop_soon(ino, self.port.boot());
                }
                s.kernel.dropped(ino);
                s.kernel.take_news()
            });
            if rings {
                self.port.is_lent();
            }
        }
        all
    }

    /// It has a file open for writing from now on: of that the kernel is told nothing.
    pub(crate) async fn untell_writer(&self, ino: Ino) {
        if self.tells && self.shared.with(|s| s.kernel.take(ino, self.port.boot())) {
            self.untell(Vec::from([ino])).await;
        }
    }
}

impl Shared {
    /// The kernel has nothing of this mount any more.
    pub fn unmounted(&mut self) {
        self.kernel.unmounted();
        self.leases.all_is_cleaned();
    }

    /// A removed directory, or one that moves, would not be known by this name that the kernel may use.
    fn is_unseen(&mut self, dir: Ino, name: &[u8], now: Millis) -> bool {
        if !self.kernel.names.uses(dir, name, now) || self.ghosts.was_seen(dir, name).is_some() {
            return false;
        }
        let era = self.leases.believes(dir, now);
        let known = era.map_or(Found::Unknown, |era| self.names.find(dir, era, name));
        !matches!(known, Found::There(_, kind, _) if kind != Kind::Dir)
    }

    /// A rename is about to be sent: each of its names may be used for as long as the other (K13).
    pub(crate) fn moves_names(&mut self, change: &mut Change, now: Millis) {
        if let [Some((dir, name)), Some((to_dir, to))] = &change.names {
            self.kernel.names.moves((*dir, name), (*to_dir, to));
            let is_untold = |s: &mut Self, at: usize| s.is_untold(&change.names[at], now);
            change.untold = [is_untold(self, 0), is_untold(self, 1)];
        }
    }

    /// Would this name not be told now? Nobody says that it is another where no lease is on the directory, nor where another change of
    /// this mount may be made.
    fn is_untold(&mut self, place: &Option<(Ino, Box<[u8]>)>, now: Millis) -> bool {
        place.as_ref().is_some_and(|(dir, name)| {
            let is_covered = self.leases.believes(*dir, now).is_some() && !self.kernel.is_leaving(*dir);
            !is_covered || !self.leases.own.is_only_change(*dir, name)
        })
    }

    /// Those of a rename that are not told where they are now, or were not when it was sent.
    fn moved_names(&mut self, change: &Change, now: Millis) -> Vec<(Ino, Box<[u8]>)> {
        let mut moved = Vec::new();
        if change.names[1].is_none() {
            return moved;
        }
        for (place, was_untold) in change.names.iter().zip(change.untold) {
            if let Some((dir, name)) = place
                && self.kernel.names.valid_until(*dir, name).is_some_and(|(until, _)| until > now)
                && (was_untold || self.is_untold(place, now))
            {
                moved.push((*dir, name.clone()));
            }
        }
        moved
    }

    /// A name by which a file can be asked for, so that the lease on its directory covers what the answer says: the kernel does not
    /// ask for that name as long as it is valid.
    pub(crate) fn name_told_of(&self, ino: Ino, now: Millis) -> Option<(Ino, Arc<[u8]>)> {
        let is_written = |inode: &Inode| inode.writers > 0 || inode.opening > 0;
        let may_be_covered = !self.inodes.get(ino).is_some_and(is_written);
        self.kernel.names.of_file(ino, now).filter(|_| may_be_covered)
    }

    fn name_valid_for(&mut self, (dir, name): (Ino, &[u8]), ino: Ino, now: Millis) -> u64 {
        self.kernel.names.sweep(now);
        let era = if self.limits.names { self.leases.believes(dir, now) } else { None };
        let Some(era) = era.filter(|_| self.leases.own.is_name_free(dir, name)) else { return 0 };
        // The reply may be older.
        let is_dir = match self.names.find(dir, era, name) {
            Found::There(known, kind, _) if known == ino => kind == Kind::Dir,
            _ => return 0,
        };
        if self.ghosts.get(dir).is_some() || !self.kernel.may_tell_name(dir, name) {
            return 0;
        }
        let Some(left) = self.leases.tells(dir, now) else { return 0 };
        if self.ghosts.was_seen(dir, name).is_some_and(|seen| seen != ino) {
            self.ghosts.unseen(dir, name);
        }
        let ms = left.min(self.kernel.names.most(dir, now));
        if ms == 0 {
            return 0;
        }
        let until = now.plus(ms + VALIDITY_MARGIN_MS);
        self.kernel.names.tells((dir, name), LeadsTo { ino, is_dir }, until);
        ms
    }

    fn valid_for(&mut self, shown: &Shown, by: AttrsBy, now: Millis) -> u64 {
        let ino = shown.ino;
        if by != AttrsBy::Question {
            self.kernel.looked(ino);
        }
        if by == AttrsBy::Made {
            return 0;
        }
        let Some((lease, attr)) = self.covering(ino, now) else { return 0 };
        // The reply may be older, or the kernel may have pages that are.
        let is_known = Shown::from(&attr) == *shown && (attr.kind == Kind::Dir || self.is_at_rest(&attr));
        if !is_known || !self.kernel.may_tell(ino, lease, by) {
            return 0;
        }
        let Some(ms) = self.leases.tells(lease, now) else { return 0 };
        let ms = if self.limits.old_kernel && by == AttrsBy::Look { ms.min(OLD_LOOK_MS) } else { ms };
        self.kernel.tells(ino, lease, now.plus(ms + VALIDITY_MARGIN_MS), now);
        ms
    }

    /// This mount writes nothing to it, and what the kernel has of its pages is of now.
    fn is_at_rest(&mut self, attr: &Attr) -> bool {
        self.inodes.get_mut(attr.ino).is_none_or(|inode| {
            let is_read_only = inode.writers == 0 && inode.opening == 0;
            is_read_only && (!inode.pages.may_be_held() || inode.pages.are_as_of(attr.change))
        })
    }

    /// What of these the kernel was told, for who has it dropped.
    pub(crate) fn take_told(&mut self, inos: impl IntoIterator<Item = Ino>, now: Millis) -> Vec<Ino> {
        inos.into_iter().filter(|ino| self.kernel.take(*ino, now)).collect()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_names;
