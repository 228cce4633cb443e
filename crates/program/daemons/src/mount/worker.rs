//! The file system that the kernel asks: each worker has a lane, whose port blocks or is one of many on its
//! thread.

use super::callers;
use super::convert::{self, attr_reply, entry, errno, flags};
use super::hands::SharedCell;
use super::keeper::Keeper;
use super::lane_hands::{Asker, Heeds, MountPort};
use super::misses::Misses;
use super::way::{self, File, Way};
use super::{locks, shown, special};
use skep_base::config::mount::Io;
use skep_client::state::Handle;
use skep_client::{
    Allocate, AttrsBy, CreateHow, Lane, Listed, NewNode, OpenHow, RenameHow, Seek, Shown, Valid, XattrHow,
};
use skep_fuse::{
    AttrReply, Context, CopyRange, CreateRequest, DirSink, Entry, Errno, FallocateRequest, FileLock,
    Filesystem, Forgets, LockRequest, OpenFlags, OpenRequest, Opened, ReadRequest, ReleaseRequest, SetAttr,
    StatFs, Waited, WriteRequest,
};
use skep_types::{Attr, Ino, Kind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// RENAME_NOREPLACE.
const NO_REPLACE: u32 = 1;
/// RENAME_EXCHANGE.
const EXCHANGE: u32 = 2;
/// XATTR_CREATE.
const XATTR_CREATE: u32 = 1;
/// XATTR_REPLACE.
const XATTR_REPLACE: u32 = 2;
/// FALLOC_FL_KEEP_SIZE.
const KEEP_SIZE: u32 = 1;
/// FALLOC_FL_PUNCH_HOLE.
const PUNCH_HOLE: u32 = 2;
/// FALLOC_FL_ZERO_RANGE.
const ZERO_RANGE: u32 = 16;
/// SEEK_DATA.
const SEEK_DATA: u32 = 3;
/// SEEK_HOLE.
const SEEK_HOLE: u32 = 4;

/// The label of SELinux.
const LABEL: &[u8] = b"security.selinux";

/// A lane of a mount.
pub type MountLane<P> = Lane<P, Arc<SharedCell>>;

/// What all workers of a mount have in common.
#[derive(Clone)]
pub struct Manner {
    /// Which way bytes go.
    pub io: Io,
    /// Shared mappings work past the page cache, so direct I/O takes nothing away.
    pub direct_with_mmap: bool,
    /// The kernel asks before it reads from a page.
    pub checks: bool,
    /// Programs that wait for locks.
    pub keeper: Arc<Keeper>,
    /// Threads whose open came too late.
    pub misses: Arc<Misses>,
}

/// What serves one request at a time.
pub struct Worker<P: MountPort> {
    lane: Option<MountLane<P>>,
    manner: Manner,
}

type Answer<T> = Result<T, Errno>;

impl<P: MountPort> Worker<P> {
    /// With this lane; without one every request gets EMFILE.
    pub fn new(lane: Option<MountLane<P>>, manner: Manner) -> Self {
        Self { lane, manner }
    }

    fn begin(&self, cx: &Context<'_>) -> Answer<&MountLane<P>> {
        self.begin_heeding(cx, Heeds::Kill)
    }

    fn begin_heeding(&self, cx: &Context<'_>, heeds: Heeds) -> Answer<&MountLane<P>> {
        let lane = self.lane.as_ref().ok_or(Errno::EMFILE)?;
        lane.port().begin(&Asker { interrupt: cx.interrupt, thread: cx.pid, heeds });
        Ok(lane)
    }

    /// Whatever was held for this open, or the reason to hold what the kernel finds next.
    async fn open_answered(
        &self,
        cx: &Context<'_>,
        lane: &MountLane<P>,
        answer: &Result<skep_client::Opened, skep_types::Errno>,
    ) {
        match answer {
            Err(skep_types::Errno::ESTALE) => self.manner.misses.missed(cx.pid),
            _ => release_all(lane, self.manner.misses.answered(cx.pid)).await,
        }
    }

    /// See [`Lane::drop_foreign_sgid`].
    async fn drop_foreign_sgid(
        &self,
        cx: &Context<'_>,
        ino: u64,
        known: Option<&Attr>,
    ) -> Answer<Option<Attr>> {
        let Some(lane) = self.lane.as_ref() else { return Ok(None) };
        let is_member = |group| callers::is_member(cx.pid, cx.gid, group);
        lane.drop_foreign_sgid(Ino(ino), known, is_member).await.map_err(errno)
    }

    /// How the kernel shall treat an opened file. It never drops pages by itself: that comes after the answer, when
    /// others may believe in them already.
    fn opened(&self, lane: &MountLane<P>, file: &skep_client::Opened, bits: u32) -> Opened {
        let opened = File {
            mode: convert::open_mode(bits),
            append: bits & flags::APPEND != 0,
            small: file.inline,
            size: file.attr.size,
            covered: file.covered,
        };
        let kernel =
            way::Kernel { direct_with_mmap: self.manner.direct_with_mmap, checks: self.manner.checks };
        let mut flags = OpenFlags::KEEP_CACHE;
        match opened.way(self.manner.io, kernel) {
            Way::Pages => lane.write_through_pages(file.handle),
            Way::Direct => flags = flags | OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES,
        }
        // FLUSH is always wanted, also of handles that only read: it gives up the locks of the process.
        Opened { fh: file.handle, flags }
    }
}

async fn release_all<P: MountPort>(lane: &MountLane<P>, handles: impl IntoIterator<Item = Handle>) {
    for handle in handles {
        Box::pin(lane.release(handle)).await;
    }
}

fn create_how(cx: &Context<'_>, request: &CreateRequest) -> CreateHow {
    CreateHow {
        mode: request.mode & 0o7777,
        umask: cx.umask,
        uid: cx.uid,
        gid: cx.gid,
        exclusive: request.flags & flags::EXCL != 0,
        policy: None,
    }
}

fn how(bits: u32, kill_suidgid: bool) -> OpenHow {
    OpenHow {
        mode: convert::open_mode(bits),
        truncate: bits & flags::TRUNC != 0,
        sync: bits & flags::DSYNC != 0,
        kill_suidgid,
    }
}

/// Copies a value if there is room; the caller turns a longer one into ERANGE.
fn give(value: &[u8], out: &mut [u8]) -> usize {
    if let Some(place) = out.get_mut(..value.len()) {
        place.copy_from_slice(value);
    }
    value.len()
}

async fn list<P: MountPort>(
    lane: &MountLane<P>,
    (dir, fh): (u64, u64),
    offset: u64,
    with_attr: bool,
    sink: &mut DirSink<'_>,
) -> Answer<()> {
    let mut shown: Vec<(Box<[u8]>, Shown)> = Vec::new();
    let tells = lane.tells();
    let mut take = |line: Listed<'_>| {
        let added = match line.attr {
            Some(attr) => sink.add_plus(&entry(attr, Valid::default()), line.next, line.name),
            None => sink.add(line.ino.0, line.next, convert::kind(line.kind), line.name),
        };
        let told = line.attr.filter(|_| added.is_ok() && tells);
        shown.extend(told.map(|attr| (line.name.into(), attr.into())));
        added.is_ok()
    };
    lane.readdir(fh, offset, with_attr, &mut take).await.map_err(errno)?;
    // Not before the reply is ready: servers may have been asked meanwhile.
    let valid = lane.lines_valid_for(Ino(dir), &shown).into_iter();
    let time = |valid: Valid| (Duration::from_millis(valid.name), Duration::from_millis(valid.attributes));
    sink.valid_for(valid.map(time));
    Ok(())
}

/// A name for the kernel, and what it leads to.
fn named<P: MountPort>(lane: &MountLane<P>, (parent, name): (u64, &[u8]), attr: &Attr, by: AttrsBy) -> Entry {
    entry(attr, lane.name_valid_for(Ino(parent), name, attr, by))
}

impl<P: MountPort> Filesystem for Worker<P> {
    fn clock(&self) -> Option<Instant> {
        shown::counts().map(|_| Instant::now())
    }

    fn answered(&self, since: Instant, opcode: u32, length: usize, payload: Result<usize, Errno>) {
        if let Some(counts) = shown::counts() {
            counts.answered(since, opcode, length, payload);
        }
    }

    async fn lookup(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Answer<Entry> {
        let lane = self.begin(cx)?;
        let (missed, over) = self.manner.misses.looks(cx.pid);
        release_all(lane, over).await;
        if !missed {
            let attr = lane.lookup(Ino(parent), name).await.map_err(errno)?;
            return Ok(named(lane, (parent, name), &attr, AttrsBy::Look));
        }
        let (attr, held) = Box::pin(lane.lookup_to_open(Ino(parent), name)).await.map_err(errno)?;
        let over = held.and_then(|handle| self.manner.misses.hold(cx.pid, handle));
        release_all(lane, over).await;
        Ok(named(lane, (parent, name), &attr, AttrsBy::Look))
    }

    async fn forget(&self, forgets: Forgets<'_>) {
        let Some(lane) = &self.lane else { return };
        for (ino, looks) in forgets {
            lane.forget(Ino(ino), looks);
        }
    }

    async fn getattr(&self, cx: &Context<'_>, ino: u64, fh: Option<u64>) -> Answer<AttrReply> {
        let lane = self.begin(cx)?;
        let sizes = lane.port().hands().sizes.get();
        if let Some((sizes, known)) = sizes.and_then(|(sizes, _)| Some((sizes, sizes.asked(cx.pid, ino)?))) {
            let mut reply = attr_reply(&lane.settles(Ino(ino), known.size).ok_or(Errno::EAGAIN)?, 0);
            // By another one it would drop all pages, and write those that were stored into back one by one.
            reply.attr.mtime = known.mtime;
            sizes.is_answered(cx.pid, &reply.attr);
            return Ok(reply);
        }
        let attr = match fh {
            Some(fh) => match lane.getattr_open(fh).await {
                Err(skep_types::Errno::EBADF) => lane.getattr(Ino(ino)).await,
                result => result,
            },
            None => lane.getattr(Ino(ino)).await,
        };
        // The kernel looks at permissions before it opens.
        if fh.is_none() && attr == Err(skep_types::Errno::ESTALE) {
            self.manner.misses.missed(cx.pid);
        }
        let attr = attr.map_err(errno)?;
        Ok(attr_reply(&attr, lane.valid_for(&attr, AttrsBy::Question)))
    }

    async fn setattr(&self, cx: &Context<'_>, ino: u64, set: &SetAttr) -> Answer<AttrReply> {
        let lane = self.begin(cx)?;
        let wish = convert::set_attr(set);
        let attr = match set.fh.filter(|_| set.size.is_some()) {
            Some(fh) => lane.setattr_open(fh, Ino(ino), wish).await,
            None => lane.setattr(Ino(ino), wish).await,
        };
        let attr = attr.map_err(errno)?;
        let cuts = set.kill_suidgid && set.size.is_some();
        let less = if cuts { self.drop_foreign_sgid(cx, ino, Some(&attr)).await? } else { None };
        Ok(attr_reply(&less.unwrap_or(attr), 0))
    }

    async fn readlink(&self, cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Answer<usize> {
        let target = self.begin(cx)?.readlink(Ino(ino)).await.map_err(errno)?;
        if target.len() > out.len() {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(give(&target, out))
    }

    async fn mknod(&self, cx: &Context<'_>, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Answer<Entry> {
        let kind = if mode >> 12 == 0 { Kind::File } else { Kind::from_mode(mode).ok_or(Errno::EINVAL)? };
        let new = NewNode { kind, mode: mode & 0o7777, umask: cx.umask, uid: cx.uid, gid: cx.gid, rdev };
        let lane = self.begin(cx)?;
        let attr = lane.make_node(Ino(parent), name, new).await.map_err(errno)?;
        Ok(named(lane, (parent, name), &attr, AttrsBy::Made))
    }

    async fn mkdir(&self, cx: &Context<'_>, parent: u64, name: &[u8], mode: u32) -> Answer<Entry> {
        let (mode, umask) = (mode & 0o7777, cx.umask);
        let new = NewNode { kind: Kind::Dir, mode, umask, uid: cx.uid, gid: cx.gid, rdev: 0 };
        let lane = self.begin(cx)?;
        let attr = lane.make_node(Ino(parent), name, new).await.map_err(errno)?;
        Ok(named(lane, (parent, name), &attr, AttrsBy::Made))
    }

    async fn unlink(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Answer<()> {
        self.begin(cx)?.unlink(Ino(parent), name).await.map_err(errno)
    }

    async fn rmdir(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Answer<()> {
        self.begin(cx)?.rmdir(Ino(parent), name).await.map_err(errno)
    }

    async fn symlink(&self, cx: &Context<'_>, parent: u64, name: &[u8], target: &[u8]) -> Answer<Entry> {
        let lane = self.begin(cx)?;
        let attr = lane.symlink(Ino(parent), name, target, cx.uid, cx.gid).await.map_err(errno)?;
        Ok(named(lane, (parent, name), &attr, AttrsBy::Made))
    }

    async fn rename(&self, cx: &Context<'_>, from: (u64, &[u8]), to: (u64, &[u8]), bits: u32) -> Answer<()> {
        if bits & !(NO_REPLACE | EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        let how = RenameHow { no_replace: bits & NO_REPLACE != 0, exchange: bits & EXCHANGE != 0 };
        self.begin(cx)?.rename(Ino(from.0), from.1, Ino(to.0), to.1, how).await.map_err(errno)
    }

    async fn link(&self, cx: &Context<'_>, ino: u64, parent: u64, name: &[u8]) -> Answer<Entry> {
        let lane = self.begin(cx)?;
        let attr = lane.link(Ino(ino), Ino(parent), name).await.map_err(errno)?;
        Ok(named(lane, (parent, name), &attr, AttrsBy::Made))
    }

    async fn open(&self, cx: &Context<'_>, ino: u64, request: &OpenRequest) -> Answer<Opened> {
        let lane = self.begin(cx)?;
        let how = how(request.flags, request.kill_suidgid);
        let opened = lane.open(Ino(ino), how).await;
        self.open_answered(cx, lane, &opened).await;
        let file = opened.map_err(errno)?;
        if how.truncate && how.kill_suidgid {
            // The file is open and empty: an error here would leave the handle to nobody.
            let _ = Box::pin(self.drop_foreign_sgid(cx, ino, Some(&file.attr))).await;
        }
        Ok(self.opened(lane, &file, request.flags))
    }

    async fn create(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        request: &CreateRequest,
    ) -> Answer<(Entry, Opened)> {
        let lane = self.begin(cx)?;
        let how = how(request.flags, request.kill_suidgid);
        let create = create_how(cx, request);
        let created = lane.create_after_look(Ino(parent), name, create, how).await;
        self.open_answered(cx, lane, &created).await;
        let file = created.map_err(errno)?;
        Ok((named(lane, (parent, name), &file.attr, AttrsBy::Made), self.opened(lane, &file, request.flags)))
    }

    async fn tmpfile(
        &self,
        cx: &Context<'_>,
        parent: u64,
        request: &CreateRequest,
    ) -> Answer<(Entry, Opened)> {
        let lane = self.begin(cx)?;
        let how = how(request.flags, request.kill_suidgid);
        let file = lane.create_temp(Ino(parent), create_how(cx, request), how).await.map_err(errno)?;
        let attributes = lane.valid_for(&file.attr, AttrsBy::Made);
        Ok((entry(&file.attr, Valid { name: 0, attributes }), self.opened(lane, &file, request.flags)))
    }

    async fn read(
        &self,
        cx: &Context<'_>,
        _ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Answer<usize> {
        let lane = self.begin(cx)?;
        let read = match request.lock_owner {
            Some(_) => lane.read(request.fh, request.offset, out).await,
            // The kernel names the owner of every read of a program; these bytes are for its page cache.
            None => lane.fill(request.fh, request.offset, out).await,
        };
        read.map_err(errno)
    }

    async fn write(&self, cx: &Context<'_>, ino: u64, request: &WriteRequest, data: &[u8]) -> Answer<usize> {
        let (lane, how) = (self.begin(cx)?, convert::write_how(request));
        if how.kill_suidgid {
            self.drop_foreign_sgid(cx, ino, None).await?;
        }
        lane.write(request.fh, request.offset, data, how).await.map_err(errno)
    }

    async fn flush(&self, cx: &Context<'_>, _ino: u64, fh: u64, lock_owner: u64) -> Answer<()> {
        let lane = self.begin_heeding(cx, Heeds::KillAtClose)?;
        let flushed = lane.flush(fh, lock_owner).await.map_err(errno);
        self.manner.keeper.settle_ended();
        flushed
    }

    async fn release(&self, cx: &Context<'_>, _ino: u64, request: &ReleaseRequest) -> Answer<()> {
        self.begin(cx)?.release(request.fh).await;
        self.manner.keeper.settle_ended();
        Ok(())
    }

    async fn fsync(&self, cx: &Context<'_>, _ino: u64, fh: u64, _data_only: bool) -> Answer<()> {
        self.begin(cx)?.fsync(fh).await.map_err(errno)
    }

    async fn opendir(&self, cx: &Context<'_>, ino: u64, _request: &OpenRequest) -> Answer<Opened> {
        let fh = self.begin(cx)?.opendir(Ino(ino)).map_err(errno)?;
        Ok(Opened { fh, flags: OpenFlags::default() })
    }

    async fn readdir(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Answer<()> {
        list(self.begin(cx)?, (ino, fh), offset, false, sink).await
    }

    async fn readdirplus(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Answer<()> {
        list(self.begin(cx)?, (ino, fh), offset, true, sink).await
    }

    async fn releasedir(&self, cx: &Context<'_>, _ino: u64, request: &ReleaseRequest) -> Answer<()> {
        self.begin(cx)?.releasedir(request.fh);
        Ok(())
    }

    async fn fsyncdir(&self, cx: &Context<'_>, _ino: u64, fh: u64, _data_only: bool) -> Answer<()> {
        self.begin(cx)?.fsyncdir(fh).await.map_err(errno)
    }

    async fn statfs(&self, cx: &Context<'_>, _ino: u64) -> Answer<StatFs> {
        Ok(convert::statfs(self.begin(cx)?.statfs().await))
    }

    async fn setxattr(
        &self,
        cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
        bits: u32,
        kill_sgid: bool,
    ) -> Answer<()> {
        let lane = self.begin(cx)?;
        let (create, replace) = (bits & XATTR_CREATE != 0, bits & XATTR_REPLACE != 0);
        if name.starts_with(special::NAMESPACE) {
            return special::set(lane, cx, Ino(ino), name, value, create).await.map_err(errno);
        }
        let how = XattrHow { create, replace, kill_sgid };
        lane.setxattr(Ino(ino), name, value, how).await.map_err(errno)
    }

    async fn getxattr(&self, cx: &Context<'_>, ino: u64, name: &[u8], out: &mut [u8]) -> Answer<usize> {
        let lane = self.begin(cx)?;
        let value = match name {
            _ if name.starts_with(special::NAMESPACE) => {
                special::get(lane, Ino(ino), name).await.map_err(errno)?
            }
            _ => match lane.getxattr(Ino(ino), name).await {
                // As NFS: `ls -l` asks this for each entry, until it hears that there is no such thing on the file system.
                // Kernels that use labels have their own for FUSE, and do not ask.
                Err(skep_types::Errno::ENODATA) if name == LABEL => {
                    return Err(errno(skep_types::Errno::EOPNOTSUPP));
                }
                value => value.map_err(errno)?,
            },
        };
        Ok(give(&value, out))
    }

    async fn listxattr(&self, cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Answer<usize> {
        let mut names = self.begin(cx)?.listxattr(Ino(ino)).await.map_err(errno)?;
        if cx.uid != 0 {
            // Local file systems show them to CAP_SYS_ADMIN only, for which root stands.
            let shown =
                names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
            names = shown.flatten().copied().collect();
        }
        Ok(give(&names, out))
    }

    async fn removexattr(&self, cx: &Context<'_>, ino: u64, name: &[u8]) -> Answer<()> {
        match self.begin(cx)?.removexattr(Ino(ino), name).await {
            // As local file systems: an access control list that is not there can be taken away.
            Err(skep_types::Errno::ENODATA) if name.starts_with(b"system.posix_acl_") => Ok(()),
            result => result.map_err(errno),
        }
    }

    async fn fallocate(&self, cx: &Context<'_>, ino: u64, request: &FallocateRequest) -> Answer<()> {
        const PUNCH: u32 = KEEP_SIZE | PUNCH_HOLE;
        const ZERO_KEEP: u32 = KEEP_SIZE | ZERO_RANGE;
        let what = match request.mode {
            0 => Allocate::Extend,
            KEEP_SIZE => Allocate::KeepSize,
            PUNCH => Allocate::Punch,
            ZERO_RANGE => Allocate::Zero,
            ZERO_KEEP => Allocate::ZeroKeepSize,
            // COLLAPSE_RANGE and INSERT_RANGE move bytes between chunks.
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let lane = self.begin(cx)?;
        if cx.uid != 0 {
            // The protocol has no flag for it; root stands for CAP_FSETID.
            lane.drop_suidgid(request.fh).await.map_err(errno)?;
            self.drop_foreign_sgid(cx, ino, None).await?;
        }
        lane.fallocate(request.fh, what, request.offset, request.length).await.map_err(errno)
    }

    async fn lseek(&self, cx: &Context<'_>, _ino: u64, fh: u64, offset: u64, whence: u32) -> Answer<u64> {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        self.begin(cx)?.seek(fh, offset, what).await.map_err(errno)
    }

    async fn copy_file_range(&self, cx: &Context<'_>, _ino: u64, request: &CopyRange) -> Answer<u64> {
        let CopyRange { fh_in, offset_in, fh_out, offset_out, length, .. } = *request;
        let lane = self.begin(cx)?;
        if cx.uid != 0 {
            // As for fallocate.
            lane.drop_suidgid(fh_out).await.map_err(errno)?;
            self.drop_foreign_sgid(cx, request.ino_out, None).await?;
        }
        Box::pin(lane.copy((fh_in, offset_in), (fh_out, offset_out), length)).await.map_err(errno)
    }

    async fn getlk(&self, cx: &Context<'_>, _ino: u64, request: &LockRequest) -> Answer<FileLock> {
        let lane = self.begin(cx)?;
        let held = lane.get_lock(request.fh, locks::range(request)).await.map_err(errno)?;
        Ok(locks::shown(held.map(|held| (held, lane.is_own(&held))), request))
    }

    async fn setlk(&self, cx: &Context<'_>, _ino: u64, request: &LockRequest) -> Answer<()> {
        self.begin(cx)?.set_lock(request.fh, locks::range(request)).await.map_err(errno)
    }

    async fn setlkw(&self, cx: &Context<'_>, _ino: u64, request: &LockRequest) -> Answer<Waited> {
        let lane = self.begin(cx)?;
        locks::wait(lane, &self.manner.keeper, cx, request.fh, locks::range(request)).await
    }

    async fn flock(&self, cx: &Context<'_>, _ino: u64, request: &LockRequest, wait: bool) -> Answer<Waited> {
        let (lane, wish) = (self.begin(cx)?, locks::whole(request));
        match wait {
            true => locks::wait(lane, &self.manner.keeper, cx, request.fh, wish).await,
            false => lane.set_lock(request.fh, wish).await.map_err(errno).map(|()| Waited::Now),
        }
    }
}
