//! The file system that the kernel asks: each worker has a lane, whose port blocks or is one of many on its
//! thread.

use super::convert::{self, attr_reply, entry, errno, flags};
use super::hands::SharedCell;
use super::lane_hands::MountPort;
use super::special;
use crate::config::mount::Io;
use skep_client::{Allocate, CreateHow, Lane, Listed, NewNode, OpenHow, RenameHow};
use skep_fuse::{
    AttrReply, Context, CreateRequest, DirSink, Entry, Errno, FallocateRequest, Filesystem, Forgets,
    OpenFlags, OpenRequest, Opened, ReadRequest, ReleaseRequest, SetAttr, StatFs, WriteRequest,
};
use skep_types::{Ino, Kind};
use skep_wire::meta::OpenMode;
use std::sync::Arc;

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

/// A lane of a mount.
pub type MountLane<P> = Lane<P, Arc<SharedCell>>;

/// What serves one request at a time.
pub struct Worker<P: MountPort> {
    lane: Option<MountLane<P>>,
    io: Io,
    /// Shared mappings work past the page cache, so direct I/O takes nothing away.
    direct_with_mmap: bool,
}

type Answer<T> = Result<T, Errno>;

impl<P: MountPort> Worker<P> {
    /// With this lane; without one every request gets EMFILE.
    pub fn new(lane: Option<MountLane<P>>, io: Io, direct_with_mmap: bool) -> Self {
        Self { lane, io, direct_with_mmap }
    }

    fn begin(&self, cx: &Context<'_>) -> Answer<&MountLane<P>> {
        let lane = self.lane.as_ref().ok_or(Errno::EMFILE)?;
        lane.port().begin(&cx.interrupt);
        Ok(lane)
    }

    /// How the kernel shall treat an opened file. Small files live in the page cache: they are read
    /// again and again. Streams go past it.
    fn opened(&self, lane: &MountLane<P>, file: &skep_client::Opened, mode: OpenMode) -> Opened {
        let small = file.inline && (file.attr.size > 0 || !mode.writes());
        let wish = match self.io {
            Io::Auto => small || !self.direct_with_mmap,
            Io::Direct => false,
            Io::Cached => true,
        };
        let mut opened = OpenFlags::default();
        if !lane.choose_cached(file.attr.ino, wish) {
            opened = opened | OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES;
        } else if file.keep_cache {
            opened = opened | OpenFlags::KEEP_CACHE;
        }
        if !mode.writes() {
            // Nothing to commit when it is closed.
            opened = opened | OpenFlags::NOFLUSH;
        }
        Opened { fh: file.handle, flags: opened }
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
    fh: u64,
    offset: u64,
    with_attr: bool,
    sink: &mut DirSink<'_>,
) -> Answer<()> {
    let mut take = |line: Listed<'_>| {
        let added = match line.attr {
            Some(attr) => sink.add_plus(&entry(attr), line.next, line.name),
            None => sink.add(line.ino.0, line.next, convert::kind(line.kind), line.name),
        };
        added.is_ok()
    };
    lane.readdir(fh, offset, with_attr, &mut take).await.map_err(errno)
}

impl<P: MountPort> Filesystem for Worker<P> {
    async fn lookup(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Answer<Entry> {
        let attr = self.begin(cx)?.lookup(Ino(parent), name).await.map_err(errno)?;
        Ok(entry(&attr))
    }

    async fn forget(&self, forgets: Forgets<'_>) {
        let Some(lane) = &self.lane else { return };
        for (ino, _) in forgets {
            lane.forget(Ino(ino));
        }
    }

    async fn getattr(&self, cx: &Context<'_>, ino: u64, fh: Option<u64>) -> Answer<AttrReply> {
        let lane = self.begin(cx)?;
        let attr = match fh {
            Some(fh) => match lane.getattr_open(fh).await {
                Err(skep_types::Errno::EBADF) => lane.getattr(Ino(ino)).await,
                result => result,
            },
            None => lane.getattr(Ino(ino)).await,
        };
        Ok(attr_reply(&attr.map_err(errno)?))
    }

    async fn setattr(&self, cx: &Context<'_>, ino: u64, set: &SetAttr) -> Answer<AttrReply> {
        let attr = self.begin(cx)?.setattr(Ino(ino), convert::set_attr(set)).await.map_err(errno)?;
        Ok(attr_reply(&attr))
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
        let new = NewNode { kind, mode: mode & 0o7777, uid: cx.uid, gid: cx.gid, rdev };
        let attr = self.begin(cx)?.make_node(Ino(parent), name, new).await.map_err(errno)?;
        Ok(entry(&attr))
    }

    async fn mkdir(&self, cx: &Context<'_>, parent: u64, name: &[u8], mode: u32) -> Answer<Entry> {
        let new = NewNode { kind: Kind::Dir, mode: mode & 0o7777, uid: cx.uid, gid: cx.gid, rdev: 0 };
        let attr = self.begin(cx)?.make_node(Ino(parent), name, new).await.map_err(errno)?;
        Ok(entry(&attr))
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
        Ok(entry(&attr))
    }

    async fn rename(&self, cx: &Context<'_>, from: (u64, &[u8]), to: (u64, &[u8]), bits: u32) -> Answer<()> {
        if bits & !(NO_REPLACE | EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        let how = RenameHow { no_replace: bits & NO_REPLACE != 0, exchange: bits & EXCHANGE != 0 };
        self.begin(cx)?.rename(Ino(from.0), from.1, Ino(to.0), to.1, how).await.map_err(errno)
    }

    async fn link(&self, cx: &Context<'_>, ino: u64, parent: u64, name: &[u8]) -> Answer<Entry> {
        let attr = self.begin(cx)?.link(Ino(ino), Ino(parent), name).await.map_err(errno)?;
        Ok(entry(&attr))
    }

    async fn open(&self, cx: &Context<'_>, ino: u64, request: &OpenRequest) -> Answer<Opened> {
        let lane = self.begin(cx)?;
        let how = how(request.flags, request.kill_suidgid);
        let file = lane.open(Ino(ino), how).await.map_err(errno)?;
        Ok(self.opened(lane, &file, how.mode))
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
        let create = CreateHow {
            mode: request.mode & 0o7777,
            uid: cx.uid,
            gid: cx.gid,
            exclusive: request.flags & flags::EXCL != 0,
            policy: None,
        };
        let file = lane.create(Ino(parent), name, create, how).await.map_err(errno)?;
        Ok((entry(&file.attr), self.opened(lane, &file, how.mode)))
    }

    async fn read(
        &self,
        cx: &Context<'_>,
        _ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Answer<usize> {
        self.begin(cx)?.read(request.fh, request.offset, out).await.map_err(errno)
    }

    async fn write(&self, cx: &Context<'_>, _ino: u64, request: &WriteRequest, data: &[u8]) -> Answer<usize> {
        let how = convert::write_how(request);
        self.begin(cx)?.write(request.fh, request.offset, data, how).await.map_err(errno)
    }

    async fn flush(&self, cx: &Context<'_>, _ino: u64, fh: u64, _lock_owner: u64) -> Answer<()> {
        self.begin(cx)?.flush(fh).await.map_err(errno)
    }

    async fn release(&self, cx: &Context<'_>, _ino: u64, request: &ReleaseRequest) -> Answer<()> {
        self.begin(cx)?.release(request.fh).await;
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
        _ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Answer<()> {
        list(self.begin(cx)?, fh, offset, false, sink).await
    }

    async fn readdirplus(
        &self,
        cx: &Context<'_>,
        _ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Answer<()> {
        list(self.begin(cx)?, fh, offset, true, sink).await
    }

    async fn releasedir(&self, cx: &Context<'_>, _ino: u64, request: &ReleaseRequest) -> Answer<()> {
        self.begin(cx)?.releasedir(request.fh);
        Ok(())
    }

    async fn fsyncdir(&self, cx: &Context<'_>, _ino: u64, fh: u64, _data_only: bool) -> Answer<()> {
        self.begin(cx)?.fsyncdir(fh).await.map_err(errno)
    }

    async fn statfs(&self, cx: &Context<'_>, _ino: u64) -> Answer<StatFs> {
        Ok(convert::statfs(self.begin(cx)?.statfs()))
    }

    async fn setxattr(
        &self,
        cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
        bits: u32,
        _kill_sgid: bool,
    ) -> Answer<()> {
        let (create, replace) = (bits & XATTR_CREATE != 0, bits & XATTR_REPLACE != 0);
        self.begin(cx)?.setxattr(Ino(ino), name, value, create, replace).await.map_err(errno)
    }

    async fn getxattr(&self, cx: &Context<'_>, ino: u64, name: &[u8], out: &mut [u8]) -> Answer<usize> {
        let lane = self.begin(cx)?;
        let value = match name {
            special::ENTRY => special::entry(Ino(ino), &lane.inspect(Ino(ino)).await.map_err(errno)?),
            special::LAYOUT => special::layout(&lane.inspect(Ino(ino)).await.map_err(errno)?),
            _ if name.starts_with(special::NAMESPACE) => return Err(Errno::ENODATA),
            _ => lane.getxattr(Ino(ino), name).await.map_err(errno)?,
        };
        Ok(give(&value, out))
    }

    async fn listxattr(&self, cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Answer<usize> {
        let names = self.begin(cx)?.listxattr(Ino(ino)).await.map_err(errno)?;
        Ok(give(&names, out))
    }

    async fn removexattr(&self, cx: &Context<'_>, ino: u64, name: &[u8]) -> Answer<()> {
        self.begin(cx)?.removexattr(Ino(ino), name).await.map_err(errno)
    }

    async fn fallocate(&self, cx: &Context<'_>, _ino: u64, request: &FallocateRequest) -> Answer<()> {
        const PUNCH: u32 = KEEP_SIZE | PUNCH_HOLE;
        let what = match request.mode {
            0 => Allocate::Extend,
            KEEP_SIZE => Allocate::KeepSize,
            PUNCH => Allocate::Punch,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let lane = self.begin(cx)?;
        if cx.uid != 0 {
            // The protocol has no flag for it; root stands for CAP_FSETID.
            lane.drop_suidgid(request.fh).await.map_err(errno)?;
        }
        lane.fallocate(request.fh, what, request.offset, request.length).await.map_err(errno)
    }
}
