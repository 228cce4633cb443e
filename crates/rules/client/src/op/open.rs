//! open and create.

use super::entry::name;
use crate::job::{Job, Reply};
use crate::lane::Lane;
use crate::limits::{CREATE_TRIES_MAX, OPEN_TRIES_MAX};
use crate::port::{Cell, Port};
use crate::state::{FileHandle, Handle, Inline, Shared};
use alloc::boxed::Box;
use skep_types::{Attr, Errno, Ino, Kind, Millis, Mode, Policy};
use skep_wire::Refusal;
use skep_wire::meta::{Closed, Create, Open, OpenMode, OpenReply, ReadInline};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenHow {
    pub mode: OpenMode,
    /// Cut to 0 (O_TRUNC).
    pub truncate: bool,
    /// Every write is durable when it is answered (O_SYNC, O_DSYNC).
    pub sync: bool,
    /// A truncating ordinary user: suid and sgid are cleared.
    pub kill_suidgid: bool,
}

/// How a file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateHow {
    /// Permission bits as the program asked.
    pub mode: Mode,
    /// Bits to take off them, unless the directory has a default ACL.
    pub umask: Mode,
    pub uid: u32,
    /// Group, unless the directory is setgid.
    pub gid: u32,
    /// An existing file is EEXIST (O_EXCL).
    pub exclusive: bool,
    /// Layout wish; `None` = the directory's.
    pub policy: Option<Policy>,
}

/// An opened file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// To be given to read, write, flush, fsync and release.
    pub handle: Handle,
    pub attr: Attr,
    /// Its content is in the metadata.
    pub inline: bool,
    /// `create` made it.
    pub created: bool,
    /// A lease covers it, and nobody may write to it: its content is of now as long as that is so.
    pub covered: bool,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    pub async fn open(&self, ino: Ino, how: OpenHow) -> Result<Opened, Errno> {
        self.errno(self.open_file(ino, how).await)
    }

    async fn open_file(&self, ino: Ino, how: OpenHow) -> Result<Opened, Refusal> {
        self.shared.with(|s| s.handles.has_room())?;
        if let Some(opened) = self.open_known(ino, how).await {
            return opened;
        }
        self.open_with_room(async || self.open_told(ino, how).await).await
    }

    async fn open_told(&self, ino: Ino, how: OpenHow) -> Result<Opened, Refusal> {
        if how.truncate {
            // From then on no hold begins that was asked for, and nothing stays.
            self.announce_truncate(ino).await?;
            if let Err(refusal) = self.tell_first(ino).await {
                self.shared.with(|s| s.truncate_is_given_up(ino));
                return Err(refusal);
            }
            self.shared.with(|s| s.inodes.entry(ino).truncating += 1);
        }
        let (message, closed) = self.shared.with(|s| {
            let closed = s.closes_before(ino, how);
            (s.open_begins(ino, how), closed)
        });
        let job = match how.truncate {
            true => self.changing(ino, &message),
            // What was known of it before counts no more: once something goes to chunks nobody is told of others' changes.
            false if how.mode.writes() => Job { of: [Some(ino), None], ..self.asking(ino.shard(), &message) },
            false => self.asking(ino.shard(), &message).closing(closed),
        };
        let answer = self.settle(job).await.and_then(|reply| Ok((reply.read::<OpenReply>()?, reply)));
        match answer {
            Ok((open, reply)) => self.opened(open, &reply, how).await,
            Err(refusal) => {
                if how.truncate {
                    self.shared.with(|s| s.truncation_ends(ino, false));
                }
                self.open_failed(ino);
                Err(refusal)
            }
        }
    }

    /// Finds a name for a program that is about to open it, and holds the file open, so that it can be opened by its
    /// number even when somebody replaces or removes it meanwhile. What is no regular file is not held.
    pub async fn lookup_to_open(&self, parent: Ino, bytes: &[u8]) -> Result<(Attr, Option<Handle>), Errno> {
        let hold = OpenHow { mode: OpenMode::Read, truncate: false, sync: false, kill_suidgid: false };
        let mut attr = self.lookup(parent, bytes).await?;
        for _ in 0..OPEN_TRIES_MAX {
            if attr.kind != Kind::File {
                break;
            }
            match self.open(attr.ino, hold).await {
                Ok(held) => return Ok((held.attr, Some(held.handle))),
                Err(Errno::ESTALE) => attr = self.lookup(parent, bytes).await?,
                // The program's own open will say it.
                Err(_) => break,
            }
        }
        Ok((attr, None))
    }

    /// Makes a file and opens it, or opens the one that is there.
    pub async fn create(
        &self,
        parent: Ino,
        bytes: &[u8],
        create: CreateHow,
        how: OpenHow,
    ) -> Result<Opened, Errno> {
        let made = self.open_with_room(async || self.create_file(parent, bytes, create, how).await).await;
        self.errno(made)
    }

    /// As a kernel asks: it has looked for the name, found none, and takes whatever it is given for a new file, of which it
    /// checks no permission. So a file that somebody made meanwhile is never opened: it is ESTALE, at which the kernel
    /// looks again and opens it, if the program may. EEXIST is for O_EXCL only.
    pub async fn create_after_look(
        &self,
        parent: Ino,
        bytes: &[u8],
        create: CreateHow,
        how: OpenHow,
    ) -> Result<Opened, Errno> {
        let new = CreateHow { exclusive: true, ..create };
        for _ in 0..CREATE_TRIES_MAX {
            match self.create(parent, bytes, new, how).await {
                Err(Errno::EEXIST) if !create.exclusive => {}
                result => return result,
            }
            // The kernel looks again once only: a name that has gone by now is tried for here.
            match self.lookup(parent, bytes).await {
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
                Ok(_) => break,
            }
        }
        Err(Errno::ESTALE)
    }

    async fn create_file(
        &self,
        parent: Ino,
        bytes: &[u8],
        create: CreateHow,
        how: OpenHow,
    ) -> Result<Opened, Refusal> {
        self.shared.with(|s| s.handles.has_room())?;
        let CreateHow { mode, umask, uid, gid, exclusive, policy } = create;
        let open_seq = self.shared.with(Shared::next_open_seq);
        let message = Create {
            parent,
            name: name(bytes)?,
            mode,
            umask,
            uid,
            gid,
            exclusive,
            // One that is there is truncated by an open of its own, beside which no append begins.
            truncate: false,
            open: Some(how.mode),
            open_seq,
            policy,
        };
        let may_hold = self.leases && how.mode.writes();
        let may_hold = may_hold && self.shared.with(|s| s.limits.holds && s.holds.create_begins());
        let names = self.shared.with(|s| s.holds.names());
        let job = self.changing(parent, &message).naming(parent, bytes);
        let job = Job { makes_open: Some(open_seq), may_hold, ..job };
        let (reply, told) = self.settle_told(job).await;
        let answer = reply.and_then(|reply| Ok((reply.read::<OpenReply>()?, reply)));
        if may_hold {
            let now = self.port.boot();
            let is_first = self.shared.with(|s| s.hold_may_begin(answer.as_ref().ok(), names, now));
            if is_first {
                self.port.is_asked();
            }
        }
        let (open, reply) = answer?;
        self.made_name(parent, bytes, Some((open.attr.ino, open.attr.kind)), told.as_deref());
        let ino = open.attr.ino;
        let overtaken = self.shared.with(|s| s.open_made(&open, how.mode, open_seq));
        if open.created {
            self.also_changed(ino, &reply);
            self.made_file(parent, bytes, ino, told.as_deref());
        } else if how.mode.writes() {
            self.untell_writer(ino).await;
        }
        if open.attr.kind != Kind::File {
            self.open_failed(ino);
            return Err(if open.attr.kind == Kind::Dir { Errno::EISDIR } else { Errno::ENXIO }.into());
        }
        if !open.created && (overtaken || how.truncate) {
            // It was there. Where this mount opened or closed it meanwhile, what the shard holds now
            // may be that close: told again, with the newest number.
            let again = self.open_file(ino, how).await;
            self.open_failed(ino);
            return again;
        }
        self.opened(open, &reply, OpenHow { truncate: false, ..how }).await
    }

    /// Records an answered open.
    pub(crate) async fn opened(
        &self,
        open: OpenReply,
        reply: &Reply,
        how: OpenHow,
    ) -> Result<Opened, Refusal> {
        let ino = open.attr.ino;
        let result = self.shared.with(|s| {
            s.shards.opened(ino.shard(), reply.stamp.term);
            let (created, inline, live) = (open.created, open.inline.is_some(), open.live);
            let attr = s.took(open, how.truncate);
            if how.truncate {
                // Not before the truncate is noted: a write or an append that looked in between would be marked, and forgotten.
                s.truncation_ends(ino, true);
            }
            let handle = s.add_handle(ino, how)?;
            let since = s.known_since(ino, &reply.stamp);
            let inode = s.inodes.entry(ino);
            inode.opening -= 1;
            inode.keeps = reply.stamp.keeps == Some(true);
            inode.known_since = since;
            Ok((Opened { handle, attr, inline, created, covered: false }, live))
        });
        match result {
            // The kernel drops what a truncation cuts by itself, when it is told of it: until then nobody counts
            // the pages as current.
            Ok((opened, _)) if how.truncate => {
                self.is_emptied(&opened.attr);
                Ok(opened)
            }
            Ok((opened, live)) => self.opened_fresh(opened, live).await,
            Err(errno) => {
                self.open_failed(ino);
                let errno: Errno = errno;
                Err(errno.into())
            }
        }
    }

    /// No page of the kernel is older than what is opened. `live`: others write to it.
    pub(crate) async fn opened_fresh(&self, opened: Opened, live: bool) -> Result<Opened, Refusal> {
        let ino = opened.attr.ino;
        let drops = live || self.shared.with(|s| s.writes_alone(ino));
        let fresh = self.freshen_pages(ino, drops, None).await;
        if !fresh || self.before_shown(&opened.attr).await.is_err() {
            Box::pin(self.release(opened.handle)).await;
            return Err(self.pages_stay().into());
        }
        let boot = self.port.boot();
        let covered = self.shared.with(|s| {
            if let Some(inode) = s.inodes.get_mut(ino).filter(|_| s.limits.checks) {
                inode.believed.is_opened(&opened.attr);
            }
            s.limits.leases && !live && s.is_unwritten(&opened.attr, boot)
        });
        Ok(Opened { covered, ..opened })
    }

    /// An open came to nothing (or nobody knows): the shard is told of a close when it was the only one.
    pub(crate) fn open_failed(&self, ino: Ino) {
        let now = self.port.now();
        let first = self.shared.with(|s| {
            let inode = s.inodes.entry(ino);
            inode.opening = inode.opening.saturating_sub(1);
            s.unused(ino, now)
        });
        if first {
            self.port.work_waits();
        }
    }

    /// Asks the shard where the content of `ino` is now.
    pub(crate) async fn fetch_layout(&self, ino: Ino) -> Result<OpenReply, Refusal> {
        let reply: OpenReply = self
            .ask(ino.shard(), &ReadInline { ino, short: alloc::vec::Vec::new(), trims: Default::default() })
            .await?;
        self.shared.with(|s| s.took(reply.clone(), false));
        Ok(reply)
    }
}

impl Shared {
    /// A close that waits to be told, and is said with an open for reading: else the shard would count the file as open for
    /// writing until that ends, as it was before, and let nobody be told of it by a lease.
    fn closes_before(&mut self, ino: Ino, how: OpenHow) -> Option<Closed> {
        let inode = self.inodes.get(ino)?;
        let wrote = inode.opened_to_write > 0 && inode.uses() == 0;
        let is_told = inode.mark.is_none() && !inode.is_changing() && !self.locks.has_of(ino);
        let open_seq = self.closes.waits(ino)?;
        (wrote && is_told && !how.mode.writes()).then_some(Closed { ino, open_seq })
    }

    /// A create was answered, or given up: its answer may say that this mount holds what it has made. `true`: nothing else is
    /// held, so nobody is about to look whether it is to be told. `names`: so many own changes of names there had been when it
    /// was sent.
    fn hold_may_begin(&mut self, answer: Option<&(OpenReply, Reply)>, names: u64, now: Millis) -> bool {
        let made = answer.map(|(open, _)| open.attr.ino);
        let may_hold = self.holds.create_ends(made, self.limits.canary_forgets_questions);
        let Some((open, reply)) = answer.filter(|(open, _)| may_hold && open.created) else { return false };
        let ino = open.attr.ino;
        // Of another term, or session, nobody was told that it is held.
        let is_current = reply.stamp.term == self.shards.term(ino.shard()) && reply.client == self.client();
        let Some(room) = reply.stamp.holds.filter(|_| is_current && self.limits.holds) else { return false };
        let good_until = self.hold_until(ino.shard(), now);
        let inode = self.inodes.entry(ino);
        inode.begin_hold(room, good_until);
        inode.held_as_of(names);
        let is_first = self.holds.next_ms(now).is_none();
        self.holds.began(ino, now);
        is_first
    }

    /// The one handle that there is might write. Nobody reads through pages then, nor can have mapped any: all that is left of those
    /// who did would be dropped bit by bit, beside each write.
    fn writes_alone(&self, ino: Ino) -> bool {
        self.limits.checks
            && self.inodes.get(ino).is_some_and(|inode| {
                (inode.readers, inode.writers, inode.opening) == (0, 1, 0) && !inode.is_changing()
            })
    }

    /// A lease covers the file as the answer to an open said it is, and nobody here writes to it.
    fn is_unwritten(&mut self, attr: &Attr, boot: Millis) -> bool {
        let covering = self.covering(attr.ino, boot);
        covering.is_some_and(|(_, known)| known.change == attr.change)
            && self.inodes.get(attr.ino).is_some_and(|inode| !inode.is_written() && inode.hold.is_none())
    }

    fn open_begins(&mut self, ino: Ino, how: OpenHow) -> Open {
        let open_seq = self.next_open_seq();
        self.closes.cancel(ino);
        self.kept.take(ino);
        let inode = self.inodes.entry(ino);
        (inode.keeps, inode.known_since) = (false, 0);
        let shared = inode.writers + inode.opening > 0;
        inode.opening += 1;
        inode.open_seq = open_seq;
        let mode = inode.mode.map_or(how.mode, |mode| mode.union(how.mode));
        inode.mode = Some(mode);
        Open { ino, mode, truncate: how.truncate, shared, kill_suidgid: how.kill_suidgid, open_seq }
    }

    /// A file was made (or found) and opened by one request. `true`: this mount opened or closed it
    /// meanwhile by another one.
    pub(crate) fn open_made(&mut self, open: &OpenReply, mode: OpenMode, open_seq: u64) -> bool {
        let ino = open.attr.ino;
        let inode = self.inodes.entry(ino);
        inode.opening += 1;
        inode.mode = Some(inode.mode.map_or(mode, |known| known.union(mode)));
        if open.created {
            inode.no_capability = open.attr.change;
        }
        let overtaken = inode.open_seq > open_seq;
        inode.open_seq = inode.open_seq.max(open_seq);
        self.kept.take(ino);
        if !overtaken {
            self.closes.cancel(ino);
        }
        overtaken
    }

    /// Takes over what an answer says of a file. `truncated`: by this very request.
    pub(crate) fn took(&mut self, open: OpenReply, truncated: bool) -> Attr {
        let OpenReply { attr, layout, inline, live, created: _ } = open;
        let (ino, change) = (attr.ino, attr.change);
        let inode = self.inodes.entry(ino);
        if truncated {
            inode.truncated();
        }
        inode.live = live;
        if !live {
            inode.live_size = 0;
        }
        if attr.flags & Attr::NO_CAPABILITY != 0 {
            inode.no_capability = change;
        }
        let attr = self.inodes.merge(attr);
        self.inodes.set_layout(ino, change, layout);
        if let Some(data) = inline {
            self.inodes.set_inline(ino, Some(Inline { data: data.0, change }));
        }
        attr
    }

    /// A program has one more handle of it.
    pub(crate) fn add_handle(&mut self, ino: Ino, how: OpenHow) -> Result<Handle, Errno> {
        let (losses, losses_before) = (self.losses_before_open(ino), self.untold.newest());
        let handle = self.handles.add_file(FileHandle {
            ino,
            mode: how.mode,
            sync: how.sync,
            cached: false,
            losses,
            losses_before,
            lock_lost: false,
        })?;
        let inode = self.inodes.entry(ino);
        match how.mode.writes() {
            true => {
                inode.writers += 1;
                inode.opened_to_write = inode.opened_to_write.wrapping_add(1);
            }
            false => inode.readers += 1,
        }
        Ok(handle)
    }

    /// When nothing uses `ino` any more: it is kept, or its close is queued. `true`: housekeeping has new work.
    pub(crate) fn unused(&mut self, ino: Ino, now: Millis) -> bool {
        if self.inodes.get(ino).is_none_or(|inode| inode.uses() > 0) {
            return false;
        }
        if !self.is_worth_keeping(ino) {
            return self.is_closed(ino, now);
        }
        let first = self.closes.is_empty();
        self.kept.keep(ino, now);
        self.inodes.leave_room(ino);
        self.kept.count() > self.limits.kept_max && self.close_oldest(now) && first
    }

    /// Its close is queued. `true`: housekeeping has new work.
    pub(crate) fn is_closed(&mut self, ino: Ino, now: Millis) -> bool {
        self.end_hold(ino);
        let first = self.closes.is_empty();
        let open_seq = self.next_open_seq();
        self.inodes.entry(ino).open_seq = open_seq;
        self.closes.add(ino, open_seq);
        self.inodes.park(ino, now);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, TRUNCATE, block_on, create, mount, mounted, read, write};
    use skep_wire::meta::CreateTemp;
    use skep_wire::{Message, Status};

    /// Goal: what is found for an open can be opened although it was replaced meanwhile, also when it was replaced between
    /// the look and the open that holds it; other things are found as ever.
    #[test]
    fn what_is_found_for_an_open_can_be_opened() {
        let (cluster, lane) = mounted();
        let other = mount(&cluster);
        let old = create(&other, b"name");
        write(&other, &old, 0, b"old");
        block_on(other.release(old.handle));
        cluster.borrow_mut().fail(Open::KIND, &[Fault::Refuse(Status::errno(Errno::ESTALE)); 3]);
        let (attr, held) = block_on(lane.lookup_to_open(Ino::ROOT, b"name")).unwrap();
        assert_eq!(attr.ino, old.attr.ino);
        block_on(other.unlink(Ino::ROOT, b"name")).unwrap();
        let file = block_on(lane.open(attr.ino, crate::testing::READ)).unwrap();
        assert_eq!(read(&lane, &file, 0, 10), b"old");
        block_on(lane.release(held.unwrap()));
        assert_eq!(block_on(lane.lookup_to_open(Ino::ROOT, b"name")), Err(Errno::ENOENT));
        create(&other, b"name");
        cluster.borrow_mut().fail(Open::KIND, &[Fault::Refuse(Status::errno(Errno::ESTALE)); 1_000]);
        assert_eq!(block_on(lane.lookup_to_open(Ino::ROOT, b"name")).unwrap().1, None);
    }

    /// Goal: what a create made that was given up before it was answered is not open for this mount for ever.
    #[test]
    fn a_create_that_is_given_up_leaves_nothing_open() {
        let how = CreateHow { mode: 0o644, umask: 0, uid: 1, gid: 2, exclusive: false, policy: None };
        for is_named in [true, false] {
            let (cluster, lane) = mounted();
            let kind = if is_named { Create::KIND } else { CreateTemp::KIND };
            cluster.borrow_mut().fail(kind, &[Fault::LoseAnswer]);
            cluster.borrow_mut().cancelled = true;
            let made = match is_named {
                true => block_on(lane.create(Ino::ROOT, b"f", how, crate::testing::BOTH)),
                false => block_on(lane.create_temp(Ino::ROOT, how, crate::testing::BOTH)),
            };
            assert_eq!(made.err(), Some(Errno::EINTR));
            cluster.borrow_mut().cancelled = false;
            assert_eq!(cluster.borrow().shard.opens.len(), 1);
            block_on(lane.housekeeping());
            assert!(cluster.borrow().shard.opens.is_empty());
        }
    }

    /// Goal: an open that empties a file says whether programs of this mount may be writing meanwhile, and counts none that
    /// have closed it.
    #[test]
    fn an_emptying_open_tells_of_other_writers() {
        let (_, lane) = mounted();
        let written = create(&lane, b"f");
        let ino = written.attr.ino;
        let told = || {
            let shared = lane.shared.borrow_mut().open_begins(ino, TRUNCATE).shared;
            lane.open_failed(ino);
            lane.shared.borrow_mut().truncation_ends(ino, false);
            shared
        };
        assert!(told());
        let read = block_on(lane.open(ino, crate::testing::READ)).unwrap();
        block_on(lane.release(written.handle));
        assert!(!told());
        lane.shared.borrow_mut().open_begins(ino, crate::testing::READ);
        assert!(told(), "who knows what an open under way is for");
        lane.open_failed(ino);
        block_on(lane.release(read.handle));
        assert!(!told());
    }

    /// Goal: a file that another mount made after the kernel had looked is not opened by a create, nor emptied: the kernel
    /// is told to look again. A name that has gone by then is made; O_EXCL is told that there is one.
    #[test]
    fn a_create_opens_nothing_that_is_there() {
        let (cluster, lane) = mounted();
        let other = mount(&cluster);
        let how = CreateHow { mode: 0o644, umask: 0, uid: 1, gid: 2, exclusive: false, policy: None };
        let make = |name: &[u8], how| block_on(lane.create_after_look(Ino::ROOT, name, how, TRUNCATE));
        let file = create(&other, b"private");
        write(&other, &file, 0, b"content");
        assert_eq!(make(b"private", how), Err(Errno::ESTALE));
        assert_eq!(make(b"private", CreateHow { exclusive: true, ..how }), Err(Errno::EEXIST));
        assert_eq!(read(&other, &file, 0, 100), b"content");
        assert!(lane.shared.borrow().inodes.get(file.attr.ino).is_none_or(|inode| inode.uses() == 0));
        cluster.borrow_mut().fail(Create::KIND, &[Fault::Refuse(Status::errno(Errno::EEXIST))]);
        let made = make(b"gone again", how).unwrap();
        assert!(made.created);
        // Others make and remove it without an end.
        cluster.borrow_mut().fail(Create::KIND, &[Fault::Refuse(Status::errno(Errno::EEXIST)); 1_000]);
        assert_eq!(make(b"never", how), Err(Errno::ESTALE));
    }
}
