//! A file system whose requests the tests watch.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use skep_fuse::{
    Attr, AttrReply, Context, Entry, Errno, FileKind, Filesystem, Mount, Negotiated, Notifier, OpenFlags,
    OpenRequest, Opened, ReadRequest, ReleaseRequest, RingThread, Serving, StatFs, WriteRequest,
};
use skep_ring::Reactor;

const ROOT: u64 = 1;
/// A file whose reads wait until they are interrupted.
pub const BLOCKED: (u64, &[u8]) = (2, b"blocked");
/// A file with a pattern for content; what is written must follow it.
pub const PATTERN: (u64, &[u8]) = (3, b"pattern");
pub const PATTERN_SIZE: u64 = 64 << 20;

/// A file whose reads make the worker panic.
pub const BROKEN: (u64, &[u8]) = (4, b"broken");

/// The byte of the pattern at an offset.
pub fn pattern(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 17)) as u8
}

/// What the tests see.
#[derive(Default)]
pub struct Seen {
    pub negotiated: Mutex<Option<Negotiated>>,
    pub serving: Mutex<Option<Serving>>,
    pub lookups: AtomicUsize,
    pub getattrs: AtomicUsize,
    pub workers: AtomicUsize,
    pub workers_gone: AtomicUsize,
    pub largest_read: AtomicUsize,
    pub largest_write: AtomicUsize,
    pub size: AtomicU64,
    pub destroyed: AtomicUsize,
    /// Drops all pages before attributes are answered, and tells the size beside them.
    pub drops: Mutex<Option<(Notifier, bool)>>,
}

/// Shared by mount and workers.
pub struct Watched {
    pub seen: Arc<Seen>,
    valid: Duration,
    entered: Sender<()>,
}

impl Watched {
    /// The file system, what it sees, and a message for every read that began to wait.
    pub fn new(valid: Duration) -> (Watched, Arc<Seen>, Receiver<()>) {
        let (entered, receiver) = channel();
        let seen = Arc::new(Seen { size: AtomicU64::new(PATTERN_SIZE), ..Seen::default() });
        (Watched { seen: Arc::clone(&seen), valid, entered }, seen, receiver)
    }
}

impl Mount for Watched {
    type Worker = WatchedWorker;
    type Ring = WatchedRing;

    fn init(&self, negotiated: &Negotiated) -> Result<(), Errno> {
        *self.seen.negotiated.lock().unwrap() = Some(*negotiated);
        Ok(())
    }

    fn serving(&self, serving: &Serving) {
        *self.seen.serving.lock().unwrap() = Some(serving.clone());
    }

    fn worker(&self, _index: usize) -> WatchedWorker {
        WatchedWorker::new(&self.seen, self.valid, &self.entered, None)
    }

    fn ring(&self, _thread: usize, reactor: &Reactor) -> WatchedRing {
        let reactor = reactor.clone();
        WatchedRing {
            seen: Arc::clone(&self.seen),
            valid: self.valid,
            entered: self.entered.clone(),
            reactor,
        }
    }

    fn destroy(&self) {
        self.seen.destroyed.fetch_add(1, SeqCst);
    }
}

pub struct WatchedRing {
    seen: Arc<Seen>,
    valid: Duration,
    entered: Sender<()>,
    reactor: Reactor,
}

impl RingThread for WatchedRing {
    type Worker = WatchedWorker;

    fn worker(&self) -> Option<WatchedWorker> {
        Some(WatchedWorker::new(&self.seen, self.valid, &self.entered, Some(self.reactor.clone())))
    }
}

pub struct WatchedWorker {
    seen: Arc<Seen>,
    valid: Duration,
    entered: Sender<()>,
    reactor: Option<Reactor>,
}

impl Drop for WatchedWorker {
    fn drop(&mut self) {
        self.seen.workers_gone.fetch_add(1, SeqCst);
    }
}

impl WatchedWorker {
    fn new(seen: &Arc<Seen>, valid: Duration, entered: &Sender<()>, reactor: Option<Reactor>) -> Self {
        seen.workers.fetch_add(1, SeqCst);
        WatchedWorker { seen: Arc::clone(seen), valid, entered: entered.clone(), reactor }
    }

    fn attr(&self, ino: u64) -> Attr {
        let (kind, mode, size) = match ino {
            ROOT => (FileKind::Directory, 0o755, 0),
            ino if ino == PATTERN.0 => (FileKind::Regular, 0o644, self.seen.size.load(SeqCst)),
            _ => (FileKind::Regular, 0o644, 4096),
        };
        Attr { ino, size, mode: kind.mode_bits() | mode, nlink: 1, blksize: 4096, ..Attr::default() }
    }
}

impl Filesystem for WatchedWorker {
    async fn lookup(&self, _cx: &Context<'_>, _parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        self.seen.lookups.fetch_add(1, SeqCst);
        let known = [BLOCKED, PATTERN, BROKEN];
        let (ino, _) = known.iter().find(|(_, known)| *known == name).ok_or(Errno::ENOENT)?;
        Ok(Entry {
            ino: *ino,
            attr: self.attr(*ino),
            entry_valid: self.valid,
            attr_valid: self.valid,
            ..Entry::default()
        })
    }

    async fn getattr(&self, _cx: &Context<'_>, ino: u64, _fh: Option<u64>) -> Result<AttrReply, Errno> {
        self.seen.getattrs.fetch_add(1, SeqCst);
        if let Some((notifier, tells)) = &*self.seen.drops.lock().unwrap() {
            notifier.inval_inode(ino, 0, 0)?;
            if *tells {
                notifier.lengthen_inode(ino, self.attr(ino).size)?;
            }
        }
        Ok(AttrReply { attr: self.attr(ino), attr_valid: self.valid })
    }

    async fn open(&self, _cx: &Context<'_>, _ino: u64, _request: &OpenRequest) -> Result<Opened, Errno> {
        Ok(Opened { fh: 0, flags: OpenFlags::DIRECT_IO })
    }

    async fn read(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        if ino == BLOCKED.0 {
            let descriptor = cx.interrupt.descriptor()?;
            let _ = self.entered.send(());
            while !cx.interrupted() {
                // No time-out: only the interrupt ends this.
                match &self.reactor {
                    Some(reactor) => reactor.readable(descriptor).await?,
                    None => drop(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None)?),
                }
            }
            return Err(Errno::EINTR);
        }
        assert_ne!(ino, BROKEN.0, "this panic is what the test wants");
        self.seen.largest_read.fetch_max(out.len(), SeqCst);
        for (byte, offset) in out.iter_mut().zip(request.offset..) {
            *byte = pattern(offset);
        }
        Ok(out.len())
    }

    async fn write(
        &self,
        _cx: &Context<'_>,
        _ino: u64,
        request: &WriteRequest,
        data: &[u8],
    ) -> Result<usize, Errno> {
        self.seen.largest_write.fetch_max(data.len(), SeqCst);
        let matches = data.iter().zip(request.offset..).all(|(byte, offset)| *byte == pattern(offset));
        if matches { Ok(data.len()) } else { Err(Errno::EPROTO) }
    }

    async fn release(&self, _cx: &Context<'_>, _ino: u64, _request: &ReleaseRequest) -> Result<(), Errno> {
        Ok(())
    }

    async fn statfs(&self, _cx: &Context<'_>, _ino: u64) -> Result<StatFs, Errno> {
        Ok(StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() })
    }
}
