//! Does this kernel, and this process's rights, do what pages under leases rest on? Tried out once, on a file system that is shown
//! nowhere and has one file.
//!
//! A page that is filled with the end of a file has zeros behind it, which `read` shows up to where the kernel takes the file to
//! end. So the kernel has to know that end before the page is filled, and no answer from before may change that again.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, openat};
use skep_ring::Reactor;

use crate::notices::Notices;
use crate::sizes::{looks, open_by_number};
use crate::{
    Attr, AttrReply, Context, DevOptions, Entry, Errno, FileKind, Filesystem, Fuse, FuseOptions, InitConfig,
    InitFlags, Mount, MountError, Negotiated, Notifier, OpenFlags, OpenRequest, Opened, ReadRequest,
    RingThread, Sizes, Transport,
};

const ROOT: u64 = 1;
const FILE: u64 = 2;
const NAME: &str = "file";
/// The page that is filled with the end begins here.
const PAGE: u64 = 8192;
/// Where the file ends first, where it ends when that page is filled, and at last.
const SIZES: [u64; 3] = [PAGE + 2000, PAGE + 300, PAGE + 700];
/// All of it takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct State {
    size: u64,
    /// GETATTRs of the file that nobody was made to send.
    asked: u32,
    /// A READ of the page, and such a GETATTR, are not answered yet.
    reading: bool,
    asking: bool,
    holds_reads: bool,
    holds_answers: bool,
}

/// What the file is like, and who waits.
#[derive(Default)]
struct Stage {
    state: Mutex<State>,
    moved: Condvar,
    sizes: Mutex<Option<Arc<Sizes>>>,
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, set: impl FnOnce(&mut State)) {
        set(&mut self.lock());
        self.moved.notify_all();
    }

    /// Waits while that is so; `false`: for too long.
    fn wait_while(&self, so: impl Fn(&State) -> bool) -> bool {
        let waited = self.moved.wait_timeout_while(self.lock(), PATIENCE, |state| so(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !so(&state)
    }

    fn knows(&self, sizes: Option<&Arc<Sizes>>) {
        *self.sizes.lock().unwrap_or_else(PoisonError::into_inner) = sizes.cloned();
    }

    /// Is it a question that nobody but this process has made the kernel send?
    fn is_settled(&self, cx: &Context<'_>, ino: u64) -> Option<AttrReply> {
        let sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let known = sizes.asked(cx.pid, ino)?;
        let attr = Attr { mtime: known.mtime, ..attr(ino, self.lock().size) };
        sizes.is_answered(cx.pid, &attr);
        Some(AttrReply { attr, attr_valid: Duration::ZERO })
    }
}

fn attr(ino: u64, size: u64) -> Attr {
    let kind = if ino == ROOT { FileKind::Directory } else { FileKind::Regular };
    Attr { ino, size, mode: kind.mode_bits() | 0o755, nlink: 1, blksize: 4096, ..Attr::default() }
}

struct Worker(Arc<Stage>);

impl Filesystem for Worker {
    async fn lookup(&self, _cx: &Context<'_>, _parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        if name != NAME.as_bytes() {
            return Err(Errno::ENOENT);
        }
        let attr = attr(FILE, self.0.lock().size);
        Ok(Entry { ino: FILE, attr, ..Entry::default() })
    }

    async fn getattr(&self, cx: &Context<'_>, ino: u64, _fh: Option<u64>) -> Result<AttrReply, Errno> {
        let Worker(stage) = self;
        if let Some(reply) = stage.is_settled(cx, ino) {
            return Ok(reply);
        }
        let size = stage.lock().size;
        if ino == FILE {
            stage.set(|state| (state.asked, state.asking) = (state.asked + 1, true));
            stage.wait_while(|state| state.holds_answers);
            stage.set(|state| state.asking = false);
        }
        Ok(AttrReply { attr: attr(ino, size), attr_valid: Duration::ZERO })
    }

    async fn open(&self, _cx: &Context<'_>, _ino: u64, _request: &OpenRequest) -> Result<Opened, Errno> {
        Ok(Opened { flags: OpenFlags::KEEP_CACHE, ..Opened::default() })
    }

    async fn flush(&self, _cx: &Context<'_>, _ino: u64, _fh: u64, _owner: u64) -> Result<(), Errno> {
        Ok(())
    }

    async fn read(
        &self,
        _cx: &Context<'_>,
        _ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let Worker(stage) = self;
        stage.set(|state| state.reading = true);
        stage.wait_while(|state| state.holds_reads);
        let end = stage.lock().size.saturating_sub(request.offset);
        let n = out.len().min(usize::try_from(end).unwrap_or(usize::MAX));
        out[..n].fill(b'x');
        Ok(n)
    }
}

/// What is mounted.
struct Trial(Arc<Stage>);

impl Mount for Trial {
    type Worker = Worker;
    type Ring = Trial;

    fn init(&self, negotiated: &Negotiated) -> Result<(), Errno> {
        let needed = InitFlags::AUTO_INVAL_DATA | InitFlags::DIRECT_IO_ALLOW_MMAP;
        if negotiated.granted.contains(needed) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    fn worker(&self, _index: usize) -> Worker {
        Worker(Arc::clone(&self.0))
    }

    fn ring(&self, _thread: usize, _reactor: &Reactor) -> Trial {
        Trial(Arc::clone(&self.0))
    }
}

impl RingThread for Trial {
    type Worker = Worker;

    fn worker(&self) -> Option<Worker> {
        Some(Worker(Arc::clone(&self.0)))
    }
}

/// Can the kernel be made to know where a file ends, while a page is filled with that end, and does it go by it?
///
/// # Errors
/// What it does not do, for the administrator.
pub fn ends_can_be_known() -> Result<(), String> {
    tried(InitConfig::default())
}

fn tried(init: InitConfig) -> Result<(), String> {
    let dev = DevOptions { workers: 8, idle_workers: 1, ..DevOptions::default() };
    let options = FuseOptions { init, transport: Transport::Dev, dev, ..FuseOptions::default() };
    let (fuse, mounted) = Fuse::apart(options).map_err(|e| format!("it cannot be tried out: {e}"))?;
    let stage = Arc::new(Stage::default());
    stage.set(|state| (state.size, state.holds_reads) = (SIZES[0], true));
    let trial = Trial(Arc::clone(&stage));
    let (notices, notifier) = (fuse.notices(), fuse.notifier());
    thread::scope(|scope| {
        let serving = scope.spawn(|| fuse.run(&trial));
        let found = Tried::new(&stage, &mounted, &notices).and_then(|tried| {
            tried.the_end_of_a_page()?;
            tried.old_answers(&notifier)
        });
        // With the last descriptor the connection ends.
        stage.knows(None);
        drop(mounted);
        match serving.join() {
            Ok(Ok(_)) => found,
            Ok(Err(MountError::Refused(_))) => Err("Linux 6.6 or newer is needed".to_owned()),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => found.and(Err("the thread that tries it out has ended badly".to_owned())),
        }
    })
}

struct Tried<'a> {
    stage: &'a Stage,
    sizes: Arc<Sizes>,
    root: OwnedFd,
}

impl<'a> Tried<'a> {
    fn new(stage: &'a Stage, mounted: &OwnedFd, notices: &Arc<Notices>) -> Result<Self, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(mounted, c".", flags, Mode::empty()).map_err(failed)?;
        let again = root.try_clone().map_err(|e| e.to_string())?;
        let sizes = Arc::new(Sizes::apart(again, notices));
        stage.knows(Some(&sizes));
        Ok(Self { stage, sizes, root })
    }

    /// The kernel asks before it reads from a page; learns of the end while it waits for the page; and shows no more than that.
    fn the_end_of_a_page(&self) -> Result<(), String> {
        let file =
            openat(&self.root, NAME, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        let asked = self.stage.lock().asked;
        let read = || {
            let mut bytes = [0; 4096];
            rustix::io::pread(&file, &mut bytes, PAGE)
                .map(|n| (n as u64, bytes[..n].iter().all(|byte| *byte == b'x')))
        };
        thread::scope(|scope| {
            let reader = scope.spawn(read);
            let known = match self.stage.wait_while(|state| !state.reading) {
                false => Err("it reads nothing".to_owned()),
                true if self.stage.lock().asked == asked => {
                    Err("the kernel does not ask before it reads from a page".to_owned())
                }
                true => self.settle(SIZES[1]),
            };
            self.stage.set(|state| state.holds_reads = false);
            let read = reader.join();
            known?;
            match read {
                Ok(Ok(read)) if read == (SIZES[1] - PAGE, true) => Ok(()),
                read => Err(format!("the kernel shows what is behind the end of a file: {read:?}")),
            }
        })
    }

    /// What was asked before the kernel learned of another size, or was told that something has changed, does not count.
    fn old_answers(&self, notifier: &Notifier) -> Result<(), String> {
        let file = open_by_number(self.root.as_fd(), FILE).map_err(|e| refused(&e))?;
        self.beside_an_answer(&file, || self.settle(SIZES[2]))?;
        self.stage.set(|state| state.size = SIZES[0]);
        self.beside_an_answer(&file, || {
            notifier.inval_inode(FILE, -1, 0).map(|_| ()).map_err(|e| e.to_string())
        })
    }

    fn beside_an_answer(
        &self,
        file: &OwnedFd,
        change: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        self.stage.set(|state| (state.holds_answers, state.asking) = (true, false));
        let changed = thread::scope(|scope| {
            let asker = scope.spawn(|| looks(file, AtFlags::STATX_FORCE_SYNC));
            let changed = match self.stage.wait_while(|state| !state.asking) {
                true => change(),
                false => Err("the kernel does not ask when it is made to".to_owned()),
            };
            self.stage.set(|state| state.holds_answers = false);
            drop(asker.join());
            changed
        });
        changed?;
        match looks(file, AtFlags::STATX_DONT_SYNC) {
            Ok(found) if found.size == SIZES[2] => Ok(()),
            found => {
                Err(format!("the kernel believes an answer that is older than what it knows: {found:?}"))
            }
        }
    }

    fn settle(&self, size: u64) -> Result<(), String> {
        self.stage.set(|state| state.size = size);
        match self.sizes.settle(FILE, Instant::now() + PATIENCE) {
            Ok(Some(found)) if found == size => Ok(()),
            Ok(found) => Err(format!("the kernel cannot be made to know where a file ends: {found:?}")),
            Err(e) => Err(refused(&e)),
        }
    }
}

fn failed(e: rustix::io::Errno) -> String {
    format!("it cannot be tried out: {e}")
}

fn refused(e: &Errno) -> String {
    match *e {
        Errno::EPERM => {
            "this process may not open files by their handles: CAP_DAC_READ_SEARCH is needed".to_owned()
        }
        e => format!("files cannot be opened by their handles: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kernels for which it is built pass, and one that asks nothing before it reads from a page does not.
    #[test]
    fn this_kernel() {
        ends_can_be_known().unwrap();
        let wanted = InitFlags::DEFAULT & !InitFlags::AUTO_INVAL_DATA;
        assert!(tried(InitConfig { wanted, ..InitConfig::default() }).is_err());
    }

    /// Goal: who may not open files by their handles is told which right that needs.
    #[test]
    fn without_the_right() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        // Rights are a thread's own; those that it makes have the same.
        let found = thread::spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_READ_SEARCH);
            sets.permitted.remove(CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            ends_can_be_known()
        });
        let why = found.join().unwrap().unwrap_err();
        assert!(why.contains("CAP_DAC_READ_SEARCH"), "{why}");
    }
}
