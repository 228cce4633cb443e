//! A file system with one file, which can be locked; who has to wait is parked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skep_fuse::{
    Attr, AttrReply, Context, Entry, Errno, FileKind, Filesystem, LockKind, LockRequest, Mount, OpenRequest,
    Opened, ParkedReply, ReleaseRequest, RingThread, Waited,
};
use skep_ring::Reactor;

const ROOT: u64 = 1;
const FILE: u64 = 2;

/// The lock and who waits for it.
#[derive(Default)]
pub struct Lock {
    holder: Option<u64>,
    waiting: VecDeque<(u64, ParkedReply)>,
}

#[derive(Default)]
pub struct Watch {
    pub lock: Mutex<Lock>,
    pub interrupted: AtomicUsize,
    pub refused: AtomicUsize,
}

impl Watch {
    pub fn waiting(&self) -> usize {
        self.lock.lock().unwrap().waiting.len()
    }
}

#[derive(Clone, Default)]
pub struct Locking(pub Arc<Watch>);

impl Mount for Locking {
    type Worker = Locking;
    type Ring = Locking;

    fn worker(&self, _index: usize) -> Locking {
        self.clone()
    }

    fn ring(&self, _thread: usize, _reactor: &Reactor) -> Locking {
        self.clone()
    }

    fn interrupt_parked(&self, unique: u64) {
        self.0.interrupted.fetch_add(1, SeqCst);
        let mut lock = self.0.lock.lock().unwrap();
        let Some(at) = lock.waiting.iter().position(|(_, reply)| reply.unique() == unique) else { return };
        let (_, reply) = lock.waiting.remove(at).unwrap();
        drop(lock);
        reply.answer(Err(Errno::EINTR));
    }
}

impl RingThread for Locking {
    type Worker = Locking;

    fn worker(&self) -> Option<Locking> {
        Some(self.clone())
    }
}

impl Locking {
    fn unlock(&self, owner: u64) {
        let mut lock = self.0.lock.lock().unwrap();
        if lock.holder != Some(owner) {
            return;
        }
        let next = lock.waiting.pop_front();
        lock.holder = next.as_ref().map(|(owner, _)| *owner);
        drop(lock);
        if let Some((_, reply)) = next {
            reply.answer(Ok(()));
        }
    }

    fn lock(&self, cx: &Context<'_>, owner: u64, wait: bool) -> Result<Waited, Errno> {
        let mut lock = self.0.lock.lock().unwrap();
        if lock.holder.is_none() {
            lock.holder = Some(owner);
            return Ok(Waited::Now);
        }
        if !wait {
            return Err(Errno::EAGAIN);
        }
        let reply = cx.park().inspect_err(|_| {
            self.0.refused.fetch_add(1, SeqCst);
        })?;
        lock.waiting.push_back((owner, reply));
        Ok(Waited::Later)
    }
}

fn attr(ino: u64) -> Attr {
    let kind = if ino == ROOT { FileKind::Directory } else { FileKind::Regular };
    Attr { ino, mode: kind.mode_bits() | 0o777, nlink: 1, ..Attr::default() }
}

impl Filesystem for Locking {
    async fn lookup(&self, _cx: &Context<'_>, _parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let valid = Duration::from_secs(3600);
        match name {
            b"file" => Ok(Entry {
                ino: FILE,
                attr: attr(FILE),
                entry_valid: valid,
                attr_valid: Duration::ZERO,
                ..Entry::default()
            }),
            _ => Err(Errno::ENOENT),
        }
    }

    async fn getattr(&self, _cx: &Context<'_>, ino: u64, _fh: Option<u64>) -> Result<AttrReply, Errno> {
        Ok(AttrReply { attr: attr(ino), attr_valid: Duration::ZERO })
    }

    async fn open(&self, _cx: &Context<'_>, _ino: u64, _request: &OpenRequest) -> Result<Opened, Errno> {
        Ok(Opened::default())
    }

    async fn release(&self, _cx: &Context<'_>, _ino: u64, request: &ReleaseRequest) -> Result<(), Errno> {
        if request.flock_unlock {
            self.unlock(request.lock_owner);
        }
        Ok(())
    }

    async fn setlkw(&self, cx: &Context<'_>, _ino: u64, request: &LockRequest) -> Result<Waited, Errno> {
        self.lock(cx, request.owner, true)
    }

    async fn flock(
        &self,
        cx: &Context<'_>,
        _ino: u64,
        request: &LockRequest,
        wait: bool,
    ) -> Result<Waited, Errno> {
        if request.lock.kind == LockKind::Unlock {
            self.unlock(request.owner);
            return Ok(Waited::Now);
        }
        self.lock(cx, request.owner, wait)
    }
}
