//! opendir, readdir, readdirplus, releasedir.
//!
//! Offsets: 1 follows `.`, 2 follows `..`, an entry's cookie follows the entry. A cookie stays with
//! its name, so a listing that goes on after changes neither skips nor repeats untouched names.

use super::attr::is_gone;
use crate::lane::Lane;
use crate::limits::{LIST_ATTRS, LIST_FRESH_MS, LIST_NAMES};
use crate::port::{Cell, Port};
use crate::state::{DirHandle, Handle, Shared};
use skep_types::{Attr, Errno, Ino, Kind};
use skep_wire::Refusal;
use skep_wire::meta::{DirEntry, List, ListReply};

/// Offset after `.`.
const AFTER_DOT: u64 = 1;
/// Offset after `..`; entries start here.
const AFTER_DOTDOT: u64 = 2;

/// One line of a listing.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// Name, `.` and `..` among them.
    pub name: &'a [u8],
    pub ino: Ino,
    pub kind: Kind,
    /// Offset to go on after it.
    pub next: u64,
    /// Attributes, when they were asked for; never of `.` and `..`.
    pub attr: Option<&'a Attr>,
}

/// Takes the lines of a listing.
pub trait Sink {
    /// Takes one; `false` when there is no room for it.
    fn take(&mut self, line: Listed<'_>) -> bool;
}

impl<F: FnMut(Listed<'_>) -> bool> Sink for F {
    fn take(&mut self, line: Listed<'_>) -> bool {
        self(line)
    }
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Opens a directory. No shard is told: a listing needs no state there.
    pub fn opendir(&self, ino: Ino) -> Result<Handle, Errno> {
        self.shared.with(|s| {
            let losses = s.losses_before_open(ino);
            s.handles.add_dir(DirHandle { ino, losses, ..DirHandle::default() })
        })
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: Handle) {
        self.shared.with(|s| s.handles.remove_dir(handle));
    }

    /// Lists from `offset` on until the sink is full. `with_attr`: attributes too.
    pub async fn readdir(
        &self,
        handle: Handle,
        offset: u64,
        with_attr: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Errno> {
        // Taken out, so that entries need not be copied; two readers of one handle at once find it
        // empty and fetch for themselves.
        let mut dir = self.shared.with(|s| {
            let dir = s.handles.dir(handle)?;
            let empty = DirHandle { ino: dir.ino, losses: dir.losses, ..DirHandle::default() };
            Ok::<_, Errno>(core::mem::replace(dir, empty))
        })?;
        let result = self.list_from(&mut dir, offset, with_attr, sink).await;
        self.shared.with(|s| {
            if let Ok(place) = s.handles.dir(handle) {
                // A sync may have told meanwhile.
                dir.losses = dir.losses.max(place.losses);
                *place = dir;
            }
        });
        self.errno(result)
    }

    async fn list_from(
        &self,
        dir: &mut DirHandle,
        offset: u64,
        with_attr: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Refusal> {
        let after = if offset <= AFTER_DOTDOT { 0 } else { offset };
        self.position(dir, after, with_attr);
        if dir.parent.is_none() && !self.fetch(dir, after, with_attr).await? {
            return Ok(());
        }
        let dots: [(&[u8], Ino, u64); 2] =
            [(b".", dir.ino, AFTER_DOT), (b"..", dir.parent.unwrap_or(dir.ino), AFTER_DOTDOT)];
        for (name, ino, next) in dots {
            if offset < next && !sink.take(Listed { name, ino, kind: Kind::Dir, next, attr: None }) {
                return Ok(());
            }
        }
        loop {
            while let Some(entry) = dir.ahead.front() {
                if !self.hand_out(dir.ino, entry, with_attr.then_some(dir.told), sink).await? {
                    return Ok(());
                }
                dir.position = entry.cookie;
                dir.ahead.pop_front();
            }
            if dir.end {
                return Ok(());
            }
            let after = dir.position;
            if !self.fetch(dir, after, with_attr).await? {
                return Ok(());
            }
        }
    }

    /// Keeps what was fetched ahead if it fits the question, and its attributes are still good.
    fn position(&self, dir: &mut DirHandle, after: u64, with_attr: bool) {
        let changes = self.shared.with(|s| s.changes);
        let fresh = dir.fetched.1 == changes && self.port.now().since(dir.fetched.0) <= LIST_FRESH_MS;
        let fits = dir.position == after && (!with_attr || (dir.with_attr && fresh));
        // From the start everything is read anew: a rewind shows what changed.
        if !fits || after == 0 {
            dir.ahead.clear();
            dir.end = false;
            dir.position = after;
            dir.parent = None;
        }
    }

    /// `false`: the directory is gone; a listing of it ends.
    async fn fetch(&self, dir: &mut DirHandle, after: u64, with_attr: bool) -> Result<bool, Refusal> {
        let (changes, told) = self.shared.with(|s| (s.changes, s.disbeliefs));
        let fetched = (self.port.now(), changes);
        let max = if with_attr { LIST_ATTRS } else { LIST_NAMES };
        let list = List { dir: dir.ino, after, max, with_attr, as_told: with_attr.then_some(true) };
        let ListReply { entries, end, parent } = match self.known_part(&list) {
            Some(part) => part,
            None => match self.ask_part(&list).await {
                Ok(reply) => reply,
                Err(refusal) if is_gone(refusal.status) => return Ok(false),
                Err(refusal) => return Err(refusal),
            },
        };
        dir.end = end || entries.is_empty();
        dir.parent = Some(parent);
        dir.position = after;
        dir.with_attr = with_attr;
        (dir.fetched, dir.told) = (fetched, told);
        dir.ahead = entries.into();
        Ok(true)
    }

    async fn ask_part(&self, list: &List) -> Result<ListReply, Refusal> {
        let asked = self.known_before(list.dir);
        let (reply, told) = self.settle_told(self.asking(list.dir.shard(), list)).await;
        let reply: ListReply = reply?.read()?;
        self.learn_part(list, asked, &reply, told.as_deref());
        Ok(reply)
    }

    async fn hand_out(
        &self,
        dir: Ino,
        entry: &DirEntry,
        with_attr: Option<u64>,
        sink: &mut impl Sink,
    ) -> Result<bool, Refusal> {
        let may_be_shown =
            |attr: &Attr| attr.flags & Attr::AS_TOLD == 0 || !self.shared.with(|s| s.has_open(attr.ino));
        let attr = match (entry.attr.as_ref().filter(|attr| may_be_shown(attr)), with_attr) {
            (Some(attr), Some(told)) if self.shared.with(|s| s.disbeliefs == told) => {
                Some(self.shown_as_of(attr.clone(), entry.live.clone(), told).await?)
            }
            // On another shard, or from before a server's end: the kernel asks when it needs them.
            _ => None,
        };
        // Nor of a file that has grown under the kernel's pages: it asks, and they go before.
        let attr = attr.filter(|attr| self.may_be_told(attr));
        // Nor of one that was held, and by now may be another.
        let now = self.port.boot();
        let is_untold = |s: &mut Shared, ino| s.inodes.get(ino).is_some_and(|inode| inode.is_untold(now));
        let attr = attr.filter(|attr| !self.shared.with(|s| is_untold(s, attr.ino)));
        if let Some(attr) = attr.as_ref().filter(|attr| attr.kind == Kind::Dir) {
            self.shared.with(|s| s.ghosts.listed(dir, entry.name.as_bytes(), attr));
        }
        let line = Listed {
            name: entry.name.as_bytes(),
            ino: entry.ino,
            kind: entry.kind,
            next: entry.cookie,
            attr: attr.as_ref(),
        };
        Ok(sink.take(line))
    }
}

impl Shared {
    /// Has a program the file open here, or is it being opened?
    pub(super) fn has_open(&self, ino: Ino) -> bool {
        self.inodes.get(ino).is_some_and(|inode| inode.uses() > 0)
    }
}
