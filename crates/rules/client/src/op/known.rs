//! What a mount answers by itself, and what it learns from answers: names and attributes under the leases on directories. See
//! `docs/design/leases.md`, section 6.
//!
//! Nothing of an inode is told from memory of which something of this mount itself is under way, or not told to its shard.

use crate::lane::Lane;
use crate::limits::{GIVEN_BACK_AT_ONCE, LINES_AT_ONCE};
use crate::port::{Cell, Port};
use crate::state::{Before, Change, Found, Inode, Line, Part, Shared, Told};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Attr, Ino, Kind, LogIndex, Millis, NodeId, ShardId};
use skep_wire::meta::{DirEntry, EntryReply, List, ListReply};

/// Attributes, as far as no shard is asked.
pub(crate) enum AtHand {
    Attr(Attr),
    /// Something is to be told first, of a file that was held.
    Untold,
    /// So many own changes of names there were until now.
    Nothing(u64),
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// What a name leads to, if that is known: attributes, or that it is not there.
    pub(crate) fn known_entry(&self, parent: Ino, name: &[u8]) -> Option<Option<Attr>> {
        if !self.leases {
            return None;
        }
        let (boot, now) = (self.port.boot(), self.port.now());
        self.shared.with(|s| {
            let found = s.known_entry(parent, name, boot)?;
            match found {
                Some(_) => s.spared.names += 1,
                None => s.spared.absent += 1,
            }
            Some(found.map(|attr| {
                s.ghosts.seen(parent, name, &attr);
                s.acls.seen(attr.ino, attr.change, now);
                s.inodes.merge(attr)
            }))
        })
    }

    /// A part of a listing, if it is known: what follows `after`, and if they are wished for the attributes of all of it.
    pub(crate) fn known_part(&self, list: &List) -> Option<ListReply> {
        if !self.leases {
            return None;
        }
        let boot = self.port.boot();
        let (part, attrs) = self.shared.with(|s| {
            let part = s.known_part(list, boot)?;
            s.spared.listings += 1;
            Some(part)
        })?;
        let entries = part.lines.iter().zip(attrs).filter_map(|(line, attr)| {
            let name = skep_types::Name::new(&line.name).ok()?;
            Some(DirEntry { cookie: line.cookie, name, ino: line.ino, kind: line.kind, attr, live: None })
        });
        Some(ListReply { entries: entries.collect(), end: part.end, parent: part.parent })
    }

    /// Is it known that `ino` has none of these extended attributes? (Flags of [`Attr`].)
    pub(crate) fn is_known_without(&self, ino: Ino, flags: u32) -> bool {
        if !self.leases {
            return false;
        }
        let boot = self.port.boot();
        self.shared.with(|s| {
            let is_known = s.is_known_without(ino, flags, boot);
            s.spared.extended += u64::from(is_known);
            is_known
        })
    }

    /// An answer says what a name leads to (`None`: to nothing).
    pub(crate) fn learn_entry(
        &self,
        parent: Ino,
        name: &[u8],
        found: Option<&EntryReply>,
        told: Option<&Told>,
    ) {
        if let Some(told) = told {
            let now = self.port.boot();
            self.shared.with(|s| s.learn_entry(parent, name, found, told, now));
        }
    }

    /// An answer says attributes of an inode that was asked for.
    pub(crate) fn learn_attr(&self, attr: &Attr, told: Option<&Told>) {
        if let Some(told) = told.filter(|_| attr.kind == Kind::Dir) {
            let now = self.port.boot();
            self.shared.with(|s| s.learn_attr(attr, told, now));
        }
    }

    /// How far a directory is known whose listing is about to be asked for.
    pub(crate) fn known_before(&self, dir: Ino) -> Before {
        if self.leases { self.shared.with(|s| s.names.before(dir)) } else { Before::default() }
    }

    /// An answer has a part of a listing: some lines at a time, so that nobody waits for long.
    pub(crate) fn learn_part(&self, list: &List, asked: Before, reply: &ListReply, told: Option<&Told>) {
        let (Some(told), dir) = (told, list.dir) else { return };
        let line = |entry: &DirEntry| Line {
            cookie: entry.cookie,
            name: entry.name.as_bytes().into(),
            ino: entry.ino,
            kind: entry.kind,
        };
        let lines: Vec<Line> = reply.entries.iter().map(line).collect();
        for (lines, entries) in lines.chunks(LINES_AT_ONCE).zip(reply.entries.chunks(LINES_AT_ONCE)) {
            let now = self.port.boot();
            let kept = self.shared.with(|s| {
                let Some(era) = s.leases.keeps(dir, told, now) else { return false };
                s.names.put_lines((dir, era), lines, told.index);
                for entry in entries.iter().filter(|entry| entry.live.is_none()) {
                    s.learn_covered((dir, era), entry.name.as_bytes(), entry.attr.as_ref(), told);
                }
                // If the directory itself went for want of room, what was taken over went with it.
                s.give_back_left();
                true
            });
            if !kept {
                return;
            }
        }
        let now = self.port.boot();
        let part = Part { lines, end: reply.end, parent: reply.parent };
        self.shared.with(|s| {
            if let Some(era) = s.leases.keeps(dir, told, now) {
                s.names.listed((dir, era), asked, told.index, (list.after, part));
            }
            s.give_back_left();
        });
    }

    /// This mount has made a name lead to this (`None`: to nothing).
    pub(crate) fn made_name(&self, dir: Ino, name: &[u8], what: Option<(Ino, Kind)>, told: Option<&Told>) {
        if let Some(told) = told {
            let now = self.port.boot();
            self.shared.with(|s| {
                s.made_name(dir, name, what, told, now);
                s.touched([Some(dir), what.map(|(ino, _)| ino)], told, now);
            });
        }
    }

    /// This mount has made a file: what the lease on `dir` covers of it, if the answer says so.
    pub(crate) fn made_file(&self, dir: Ino, name: &[u8], ino: Ino, told: Option<&Told>) {
        if let Some(told) = told {
            let now = self.port.boot();
            self.shared.with(|s| {
                let attr = told.touched.iter().find(|attr| attr.ino == ino);
                if let Some(era) = s.leases.keeps_own(dir, told, now) {
                    s.learn_covered((dir, era), name, attr, told);
                }
                s.give_back_left();
            });
        }
    }

    /// This mount has taken a name away from a directory that is gone, or has given another one to what it led to, perhaps in
    /// the place of something else. (`None`: they are exchanged.)
    pub(crate) fn moved_name(&self, dirs: [Option<Ino>; 2], names: Option<[&[u8]; 2]>, told: Option<&Told>) {
        let ([Some(dir), _], Some(told)) = (dirs, told) else { return };
        let now = self.port.boot();
        self.shared.with(|s| {
            for (dir, found) in dirs.iter().zip(&told.before) {
                match (dir, found) {
                    (Some(_), Found::There(moved, Kind::Dir, _)) => s.forget_moved(*moved),
                    // Of which one, nobody has to say; but then all are among what was touched.
                    (Some(dir), Found::Unknown) if told.touched.is_empty() => s.forget_leased(dir.shard()),
                    _ => {}
                }
            }
            // A rename between two names of one file leaves both.
            let is_gone = match &told.before {
                _ if dirs[1].is_none() => true,
                [Found::There(moved, ..), Found::There(replaced, ..)] => moved != replaced,
                [Found::There(..), Found::Absent] => true,
                _ => false,
            };
            if let Some([from, to]) = names {
                if is_gone {
                    s.made_name(dir, from, None, told, now);
                }
                if let (Some(dir), Found::There(moved, kind, _)) = (dirs[1], &told.before[0]) {
                    s.made_name(dir, to, Some((*moved, *kind)), told, now);
                }
            }
            s.touched(dirs, told, now);
        });
    }

    /// This mount has made a directory, in which nothing is.
    pub(crate) fn made_dir(&self, attr: Option<&Attr>, told: Option<&Told>) {
        if let (Some(attr), Some(told)) = (attr.filter(|attr| attr.kind == Kind::Dir), told) {
            let now = self.port.boot();
            self.shared.with(|s| {
                if let Some(era) = s.leases.keeps(attr.ino, told, now) {
                    s.names.made(era, attr, told.index);
                }
            });
        }
    }
}

impl Shared {
    fn known_entry(&mut self, parent: Ino, name: &[u8], now: Millis) -> Option<Option<Attr>> {
        let era = self.leases.believes(parent, now)?;
        if !self.leases.own.is_name_free(parent, name) || self.ghosts.get(parent).is_some() {
            return None;
        }
        match self.names.find(parent, era, name) {
            Found::Absent => Some(None),
            Found::There(ino, Kind::Dir, _) => self.known_attr(ino, now).map(Some),
            Found::There(ino, kind, _)
                if kind != Kind::Dir && self.inodes.get(ino).is_some_and(|i| i.hold.is_some()) =>
            {
                self.held_attr_of_now(ino, now).map(Some)
            }
            Found::There(_, _, Some(attr)) if self.says_nothing_else(&attr) => Some(Some(attr)),
            _ => None,
        }
    }

    /// What the mount can say of a file's attributes without asking.
    pub(crate) fn attr_at_hand(&mut self, ino: Ino, boot: Millis, now: Millis) -> AtHand {
        if let Some(held) = self.held_attr_of_now(ino, boot) {
            return AtHand::Attr(held);
        }
        if self.inodes.get(ino).is_some_and(|inode| inode.is_untold(boot)) {
            return AtHand::Untold;
        }
        let known = self.tells_known_attr(ino, boot, now);
        known.map_or(AtHand::Nothing(self.holds.names()), AtHand::Attr)
    }

    fn tells_known_attr(&mut self, ino: Ino, boot: Millis, now: Millis) -> Option<Attr> {
        let attr = if self.limits.leases { self.known_attr(ino, boot) } else { None }?;
        self.acls.seen(ino, attr.change, now);
        self.spared.attributes += 1;
        Some(self.inodes.merge(attr))
    }

    /// A directory's, or those of an entry that the lease on its directory covers. (Who is covered has a name that is known, so
    /// an own change by which it could go knows it.)
    fn known_attr(&mut self, ino: Ino, now: Millis) -> Option<Attr> {
        self.covering(ino, now).map(|(_, attr)| attr)
    }

    /// The same, and the directory whose lease covers them.
    pub(crate) fn covering(&mut self, ino: Ino, now: Millis) -> Option<(Ino, Attr)> {
        let era = self.leases.era(ino.shard());
        let (lease, attr) = match self.names.covered(ino, era) {
            Some((dir, attr)) => self.leases.believes(dir, now).map(|_| (dir, attr)),
            None => Some((ino, self.names.attr(ino, self.leases.believes(ino, now)?)?)),
        }?;
        (self.ghosts.get(ino).is_none() && self.says_nothing_else(&attr)).then_some((lease, attr))
    }

    /// Under one lock, so that what is taken back is in no answer that comes behind; a part is not longer than what is asked for.
    fn known_part(&mut self, list: &List, now: Millis) -> Option<(Arc<Part>, Vec<Option<Attr>>)> {
        let dir = list.dir;
        let era = self.leases.believes(dir, now)?;
        if !self.leases.own.is_free(dir) || self.ghosts.get(dir).is_some() {
            return None;
        }
        let part = self.names.part(dir, era, list.after)?;
        if part.lines.len() > list.max as usize {
            return None;
        }
        // What is on another shard is listed without them.
        let attrs = part.lines.iter().map(|line| match list.with_attr && line.ino.shard() == dir.shard() {
            true => self.known_entry(dir, &line.name, now)?.map(Some),
            false => Some(None),
        });
        let attrs = attrs.collect::<Option<_>>()?;
        Some((part, attrs))
    }

    fn is_known_without(&mut self, ino: Ino, flags: u32, now: Millis) -> bool {
        self.known_attr(ino, now).is_some_and(|attr| attr.flags & flags == flags)
    }

    /// Nothing that this mount does, or has done and not told, makes these attributes others. (Who only has it open does not,
    /// and where others write nothing is covered.)
    fn says_nothing_else(&self, attr: &Attr) -> bool {
        let is_idle = |inode: &Inode| {
            let newer = inode.attr.as_ref().is_some_and(|known| known.change > attr.change);
            inode.hold.is_none() && inode.mark.is_none() && !inode.is_changing() && !newer
        };
        self.leases.own.is_free(attr.ino) && self.inodes.get(attr.ino).is_none_or(is_idle)
    }

    fn learn_entry(&mut self, dir: Ino, name: &[u8], found: Option<&EntryReply>, told: &Told, now: Millis) {
        if let Some(era) = self.leases.keeps(dir, told, now) {
            let what = found.map(|entry| (entry.ino, entry.kind));
            self.names.put_name((dir, era), name, what, told.index);
            if let Some(entry) = found.filter(|entry| entry.live.is_none()) {
                self.learn_covered((dir, era), name, entry.attr.as_ref(), told);
            }
        }
        if let Some(attr) = found.and_then(|entry| entry.attr.as_ref()) {
            self.learn_attr(attr, told, now);
        }
        self.give_back_left();
    }

    fn learn_attr(&mut self, attr: &Attr, told: &Told, now: Millis) {
        if attr.kind == Kind::Dir
            && let Some(era) = self.leases.keeps(attr.ino, told, now)
        {
            self.names.put_attr(era, attr, told.index);
            self.give_back_left();
        }
    }

    fn learn_covered(&mut self, (dir, era): (Ino, u64), name: &[u8], attr: Option<&Attr>, told: &Told) {
        let covered = attr.filter(|attr| attr.flags & Attr::COVERED != 0 && attr.kind != Kind::Dir);
        let is_here = |attr: &&Attr| attr.ino.shard() == dir.shard() && self.leases.is_fresh(attr.ino, told);
        if let Some(attr) = covered.filter(is_here) {
            self.names.cover((dir, era), name, attr, told.index);
        }
    }

    fn made_name(&mut self, dir: Ino, name: &[u8], what: Option<(Ino, Kind)>, told: &Told, now: Millis) {
        let era = self.leases.keeps_own(dir, told, now);
        match era.filter(|_| self.leases.own.is_name_free(dir, name)) {
            Some(era) => self.names.put_name((dir, era), name, what, told.index),
            None => self.names.forget_name(dir, name),
        }
        self.give_back_left();
    }

    /// What the answer to a change says of other inodes: those of `dirs` are as it says, and the others are not as they were.
    fn touched(&mut self, dirs: [Option<Ino>; 2], told: &Told, now: Millis) {
        for attr in &told.touched {
            match attr.kind {
                Kind::Dir if attr.nlink > 0 && dirs.contains(&Some(attr.ino)) => {
                    if let Some(era) = self.leases.keeps_own(attr.ino, told, now)
                        && self.leases.own.is_free(attr.ino)
                    {
                        self.names.put_attr(era, attr, told.index);
                    }
                }
                Kind::Dir => self.forget_moved(attr.ino),
                _ => {
                    self.names.forget_attr(attr.ino);
                    // What was made, nobody could have asked for before; of what was linked the change itself says it.
                    if !dirs.contains(&Some(attr.ino)) {
                        self.leases.is_another(attr.ino);
                    }
                }
            }
        }
        self.give_back_left();
    }

    /// A directory is gone, or has another parent.
    fn forget_moved(&mut self, dir: Ino) {
        self.names.forget_dir(dir);
        self.give_back(dir);
        self.leases.is_another(dir);
    }

    /// The lease on a directory is not needed any more, as soon as the kernel uses nothing that it covers: at once, if somebody
    /// waits for it.
    pub(super) fn give_back(&mut self, dir: Ino) {
        self.kernel.drop_all_soon(dir, self.leases.is_to_confirm(dir));
        self.leases.give_back(dir);
    }

    /// A change of this mount is about to be sent; `moves_dirs`: directories may go by it.
    pub(crate) fn own_change_begins(&mut self, change: &mut Change, moves_dirs: bool, now: Millis) {
        let before = self.known_of(change, now);
        change.found = [&before[0], &before[1]].map(|found| match found {
            Found::There(ino, ..) => Some(*ino),
            _ => None,
        });
        let mut names = change.names.iter().zip(&before);
        let unknown = names.find(|(name, found)| name.is_some() && **found == Found::Unknown);
        change.some_dir_of =
            unknown.filter(|_| moves_dirs).and_then(|(name, _)| Some(name.as_ref()?.0.shard()));
        self.leases.own.begins(change);
        change.inos.into_iter().flatten().for_each(|ino| self.names.forget_attr(ino));
    }

    /// What is known of the names of a change of this mount that has just been answered: so it was when the change was made.
    pub(crate) fn known_of(&mut self, change: &Change, now: Millis) -> [Found; 2] {
        [0, 1].map(|at| {
            let Some((dir, name)) = &change.names[at] else { return Found::Unknown };
            match self.leases.believes(*dir, now) {
                Some(era) => self.names.find(*dir, era, name),
                None => Found::Unknown,
            }
        })
    }

    /// A change that was given up may have been made all the same: a directory that it takes away, or moves, is not known.
    pub(crate) fn may_have_moved(&mut self, change: &Change) {
        change.found.into_iter().flatten().for_each(|ino| self.forget_moved(ino));
        if let Some(shard) = change.some_dir_of {
            self.forget_leased(shard);
        }
    }

    /// It was answered as of `index`, or is given up: what it names is not known, nor are attributes of what it changes.
    pub(crate) fn own_change_ended(&mut self, change: &Change, index: Option<LogIndex>) {
        let shard = change.inos[0].map(Ino::shard);
        let others = change.inos.iter().filter(|_| change.names == [const { None }; 2]).chain(&change.found);
        for ino in others.flatten().filter(|ino| Some(ino.shard()) == shard) {
            match index {
                Some(index) => self.names.is_another((*ino, self.leases.era(ino.shard())), index),
                None => self.names.forget_attr(*ino),
            }
        }
        for (dir, name) in change.names.iter().flatten() {
            // Another shard's log has numbers of its own.
            match index.filter(|_| change.inos[0].is_some_and(|ino| ino.shard() == dir.shard())) {
                Some(index) => self.names.changed((*dir, self.leases.era(dir.shard())), name, index),
                None => self.names.forget_name(*dir, name),
            }
        }
    }

    /// Nothing that leases of a shard cover is known any more.
    pub(crate) fn forget_leased(&mut self, shard: ShardId) {
        if self.limits.leases {
            self.leases.forget_shard(shard);
            self.names.forget_shard(shard);
        }
    }

    /// Leases of `node` under which nothing was kept: answers to changes give some, and nobody would give them back.
    pub(crate) fn give_back_unkept(&mut self, node: NodeId) {
        for _ in 0..GIVEN_BACK_AT_ONCE {
            let Some(ino) = self.leases.next_fresh(node) else { return };
            if !self.names.knows(ino) {
                self.give_back(ino);
            }
        }
    }

    fn give_back_left(&mut self) {
        while let Some(dir) = self.names.next_left() {
            // It may have been asked for again since: without a lease nothing of it may stay.
            self.names.forget_dir(dir);
            self.give_back(dir);
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_shared;
