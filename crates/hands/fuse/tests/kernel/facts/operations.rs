//! The operations of the scripted file system.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use skep_fuse::abi::opcode;
use skep_fuse::{
    AttrReply, Context, CreateRequest, DirSink, Entry, Errno, FileKind, Filesystem, Forgets, Mount,
    Negotiated, OpenFlags, OpenRequest, Opened, ReadRequest, RingThread, SetAttr, StatFs, WriteRequest,
};
use skep_ring::Reactor;

use super::script::{Script, State};

/// The scripted file system, and what the kernel granted it.
pub struct Scripted {
    pub script: Arc<Script>,
    pub negotiated: Arc<OnceLock<Negotiated>>,
}

impl Mount for Scripted {
    type Worker = Worker;
    type Ring = Ring;

    fn init(&self, negotiated: &Negotiated) -> Result<(), Errno> {
        self.negotiated.set(*negotiated).map_err(|_| Errno::EPROTO)
    }

    fn worker(&self, _index: usize) -> Worker {
        Worker { script: Arc::clone(&self.script), reactor: None }
    }

    fn ring(&self, _thread: usize, reactor: &Reactor) -> Ring {
        Ring { script: Arc::clone(&self.script), reactor: reactor.clone() }
    }
}

pub struct Ring {
    script: Arc<Script>,
    reactor: Reactor,
}

impl RingThread for Ring {
    type Worker = Worker;

    fn worker(&self) -> Option<Worker> {
        Some(Worker { script: Arc::clone(&self.script), reactor: Some(self.reactor.clone()) })
    }
}

pub struct Worker {
    script: Arc<Script>,
    reactor: Option<Reactor>,
}

fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).expect("names of tests are text")
}

impl Worker {
    /// The answer, when the test lets it go.
    async fn answer<T>(&self, opcode: u32, node: u64, name: &[u8], build: impl FnOnce(&mut State) -> T) -> T {
        let (answer, event) = self.script.answer(opcode, node, text(name), build);
        if let Some(event) = event {
            self.wait(&event).await;
        }
        answer
    }

    async fn wait(&self, event: &OwnedFd) {
        match &self.reactor {
            Some(reactor) => reactor.readable(event.as_fd()).await.expect("an event"),
            None => {
                let mut wait = || poll(&mut [PollFd::new(event, PollFlags::IN)], None);
                rustix::io::retry_on_intr(&mut wait).expect("an event");
            }
        }
    }

    async fn make(&self, opcode: u32, parent: u64, name: &[u8], kind: FileKind) -> Result<Entry, Errno> {
        let build = |state: &mut State| {
            let ino = state.make(parent, text(name), kind);
            state.entry(opcode, ino)
        };
        Ok(self.answer(opcode, parent, name, build).await)
    }

    async fn remove(&self, opcode: u32, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let build = |state: &mut State| state.names.remove(&(parent, text(name).to_owned())).map(drop);
        self.answer(opcode, parent, name, build).await.ok_or(Errno::ENOENT)
    }

    async fn list(
        &self,
        opcode: u32,
        ino: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
        plus: bool,
    ) -> Result<(), Errno> {
        let build = |state: &mut State| {
            let of = |((parent, name), child): (&(u64, String), &u64)| {
                (*parent == ino).then(|| (name.clone(), *child))
            };
            let names: Vec<(String, u64)> = state.names.iter().filter_map(of).collect();
            for ((name, child), next) in names.iter().zip(1..).skip(usize::try_from(offset).unwrap()) {
                let entry = match plus {
                    true => state.entry(opcode, *child),
                    false => Entry { ino: *child, attr: state.attr(*child), ..Entry::default() },
                };
                sink.add_plus(&entry, next, name.as_bytes()).expect("directories of tests fit");
            }
        };
        self.answer(opcode, ino, b"", build).await;
        Ok(())
    }
}

const RENAME_EXCHANGE: u32 = 2;
/// Kept pages, as the mount has them.
const OPENED: Opened = Opened { fh: 0, flags: OpenFlags::KEEP_CACHE };

impl Filesystem for Worker {
    async fn lookup(&self, _cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        Ok(self.answer(opcode::LOOKUP, parent, name, |state| state.look_up(parent, text(name))).await)
    }

    async fn forget(&self, forgets: Forgets<'_>) {
        forgets.for_each(|(ino, count)| self.script.forget(ino, count));
    }

    async fn getattr(&self, _cx: &Context<'_>, ino: u64, _fh: Option<u64>) -> Result<AttrReply, Errno> {
        let build = |state: &mut State| AttrReply {
            attr: state.attr(ino),
            attr_valid: state.valid_of(opcode::GETATTR).attr,
        };
        Ok(self.answer(opcode::GETATTR, ino, b"", build).await)
    }

    async fn setattr(&self, _cx: &Context<'_>, ino: u64, set: &SetAttr) -> Result<AttrReply, Errno> {
        let build = |state: &mut State| {
            if let (Some(size), Some(node)) = (set.size, state.nodes.get_mut(&ino)) {
                node.size = size;
            }
            AttrReply { attr: state.attr(ino), attr_valid: state.valid_of(opcode::SETATTR).attr }
        };
        Ok(self.answer(opcode::SETATTR, ino, b"", build).await)
    }

    async fn mknod(
        &self,
        _cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        _mode: u32,
        _rdev: u32,
    ) -> Result<Entry, Errno> {
        self.make(opcode::MKNOD, parent, name, FileKind::Regular).await
    }

    async fn mkdir(&self, _cx: &Context<'_>, parent: u64, name: &[u8], _mode: u32) -> Result<Entry, Errno> {
        self.make(opcode::MKDIR, parent, name, FileKind::Directory).await
    }

    async fn symlink(
        &self,
        _cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        _target: &[u8],
    ) -> Result<Entry, Errno> {
        self.make(opcode::SYMLINK, parent, name, FileKind::Symlink).await
    }

    async fn unlink(&self, _cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.remove(opcode::UNLINK, parent, name).await
    }

    async fn rmdir(&self, _cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.remove(opcode::RMDIR, parent, name).await
    }

    async fn rename(
        &self,
        _cx: &Context<'_>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let build = |state: &mut State| {
            let (from, to) = [from, to].map(|(parent, name)| (parent, text(name).to_owned())).into();
            let moved = state.names.remove(&from)?;
            let replaced = state.names.insert(to, moved);
            replaced
                .filter(|_| flags & RENAME_EXCHANGE != 0)
                .and_then(|other| state.names.insert(from, other))
        };
        self.answer(opcode::RENAME, from.0, from.1, build).await;
        Ok(())
    }

    async fn link(&self, _cx: &Context<'_>, ino: u64, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let build = |state: &mut State| {
            state.names.insert((parent, text(name).to_owned()), ino);
            state.nodes.get_mut(&ino).expect("an inode of the script").nlink += 1;
            state.entry(opcode::LINK, ino)
        };
        Ok(self.answer(opcode::LINK, parent, name, build).await)
    }

    async fn open(&self, _cx: &Context<'_>, ino: u64, _request: &OpenRequest) -> Result<Opened, Errno> {
        Ok(self.answer(opcode::OPEN, ino, b"", |_| OPENED).await)
    }

    async fn create(
        &self,
        _cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        _request: &CreateRequest,
    ) -> Result<(Entry, Opened), Errno> {
        Ok((self.make(opcode::CREATE, parent, name, FileKind::Regular).await?, OPENED))
    }

    async fn tmpfile(
        &self,
        _cx: &Context<'_>,
        parent: u64,
        _request: &CreateRequest,
    ) -> Result<(Entry, Opened), Errno> {
        let build = |state: &mut State| {
            state.next += 1;
            let ino = state.next;
            state.put(ino, FileKind::Regular);
            state.entry(opcode::TMPFILE, ino)
        };
        Ok((self.answer(opcode::TMPFILE, parent, b"", build).await, OPENED))
    }

    async fn read(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let build = |state: &mut State| {
            let node = state.nodes.get(&ino).expect("an inode of the script");
            let left = usize::try_from(node.size.saturating_sub(request.offset)).unwrap();
            let length = left.min(out.len());
            out[..length].fill(node.byte);
            length
        };
        Ok(self.answer(opcode::READ, ino, b"", build).await)
    }

    async fn write(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        _request: &WriteRequest,
        data: &[u8],
    ) -> Result<usize, Errno> {
        Ok(self.answer(opcode::WRITE, ino, b"", |_| data.len()).await)
    }

    async fn readdir(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        _fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.list(opcode::READDIR, ino, offset, sink, false).await
    }

    async fn readdirplus(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        _fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.list(opcode::READDIRPLUS, ino, offset, sink, true).await
    }

    async fn getxattr(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        _out: &mut [u8],
    ) -> Result<usize, Errno> {
        self.answer(opcode::GETXATTR, ino, name, |_| Err(Errno::ENODATA)).await
    }

    async fn statfs(&self, _cx: &Context<'_>, _ino: u64) -> Result<StatFs, Errno> {
        Ok(StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() })
    }
}
