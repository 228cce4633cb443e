//! Has the kernel look how long a file is, and waits until it knows.
//!
//! No notification makes a file shorter in the kernel's eyes: only an answer to a question of its own does, which it believes
//! unless something has outdated the question. So a thread makes it ask: it opens the inode by its handle, for which the kernel
//! asks nobody, and has its attributes synchronized. The kernel sets size and time as soon as it has the answer, and waits for
//! pages that are being filled after that; so another thread watches these, for which the kernel asks nobody either.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};

use crate::notices::Notices;
use crate::{Attr, Errno, Time};

/// Between two looks at the size.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// A handle of an inode number of 64 bits, and a generation (`FILEID_INO64_GEN`).
const BY_NUMBER: c_int = 0x81;

/// What the kernel takes an inode for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    pub size: u64,
    /// When its content was changed last. An answer with another one has the kernel drop all pages (AUTO_INVAL_DATA).
    pub mtime: Time,
}

/// What a thread has the kernel ask for.
#[derive(Default)]
struct Question {
    ino: u64,
    file: Option<Arc<OwnedFd>>,
    /// What it was answered, for who waits for that: an older thread may hang with an older answer.
    answer: Arc<Mutex<Option<Looks>>>,
}

/// Threads of this process that have the kernel ask something.
#[derive(Default)]
pub(crate) struct Askers {
    questions: Mutex<BTreeMap<u32, Question>>,
    /// How many there are: nearly always none, and who looks for one at each request takes no lock then.
    count: AtomicUsize,
}

impl Askers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Question>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Is this request made by one of them?
    pub(crate) fn has(&self, thread: u32) -> bool {
        self.lock().contains_key(&thread)
    }
}

/// This thread is one of them, until it is dropped.
struct Asks<'a>(&'a Askers, u32);

impl<'a> Asks<'a> {
    fn begin(askers: &'a Askers, question: Question) -> Self {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut questions = askers.lock();
        questions.insert(thread, question);
        askers.count.store(questions.len(), Ordering::SeqCst);
        Asks(askers, thread)
    }
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let mut questions = self.0.lock();
        questions.remove(&self.1);
        self.0.count.store(questions.len(), Ordering::SeqCst);
    }
}

/// A thread that asks, and what it was answered, when it is over.
type Asking = (JoinHandle<()>, Arc<Mutex<Option<Looks>>>);

/// How the root of a mount is come by.
enum Root {
    /// It is shown there, under this device number.
    Shown(PathBuf, (u32, u32)),
    /// It is shown nowhere, and open.
    Apart(OwnedFd),
}

/// See the module. Of one mount.
pub struct Sizes {
    root: Root,
    notices: Arc<Notices>,
}

impl Sizes {
    /// Of what is mounted at `target`, which nobody has to serve yet.
    ///
    /// # Errors
    /// The device cannot be told.
    pub(crate) fn new(target: &Path, notices: &Arc<Notices>) -> Result<Self, Errno> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(CWD, target, flags, StatxFlags::TYPE)?;
        let device = (found.stx_dev_major, found.stx_dev_minor);
        Ok(Sizes { root: Root::Shown(target.to_owned(), device), notices: Arc::clone(notices) })
    }

    /// Of what is mounted nowhere, whose root this is.
    pub(crate) fn apart(root: OwnedFd, notices: &Arc<Notices>) -> Self {
        Sizes { root: Root::Apart(root), notices: Arc::clone(notices) }
    }

    /// Is this a question that [`Sizes::settle`] has made the kernel send? Then what it takes the file for at this moment: if it
    /// takes over another size before it has the answer, that is none for it. It is to be answered at once, or refused; with that
    /// time, or all pages go.
    #[must_use]
    pub fn asked(&self, thread: u32, ino: u64) -> Option<Looks> {
        let file = {
            let askers = self.notices.askers.lock();
            askers.get(&thread).filter(|question| question.ino == ino)?.file.clone()?
        };
        looks(&file, AtFlags::STATX_DONT_SYNC).ok()
    }

    /// It is about to be answered that.
    pub fn is_answered(&self, thread: u32, attr: &Attr) {
        if let Some(question) = self.notices.askers.lock().get(&thread) {
            let answer = Looks { size: attr.size, mtime: attr.mtime };
            *question.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        }
    }

    /// Has the kernel ask for the attributes of an inode (of generation 0), and waits until it has taken over what it was answered:
    /// nothing that it was answered before can change that any more. The size then. `None`: its question was refused, or that has
    /// not come to be before `until`.
    ///
    /// Never call it from a thread that serves requests.
    ///
    /// # Errors
    /// The inode cannot be looked at: EPERM without `CAP_DAC_READ_SEARCH`, ESTALE if the kernel does not know it, EXDEV if the root
    /// is shown no longer.
    pub fn settle(&self, ino: u64, until: Instant) -> Result<Option<u64>, Errno> {
        let _told = self.notices.begin();
        // What the opening of the root asks for is not to wait behind who waits for this.
        let _asks = Asks::begin(&self.notices.askers, Question::default());
        let file = Arc::new(self.open(ino)?);
        while Instant::now() < until {
            let before = looks(&file, AtFlags::STATX_DONT_SYNC)?;
            let (asking, answer) = self.ask(&file, ino)?;
            loop {
                // It hangs while pages are filled, if these are to be dropped: then what the kernel takes over is another thing.
                let is_over = asking.is_finished();
                let told = *answer.lock().unwrap_or_else(PoisonError::into_inner);
                let found = looks(&file, AtFlags::STATX_DONT_SYNC)?;
                match told {
                    Some(told) if found == told && (is_over || before != told) => return Ok(Some(told.size)),
                    None if is_over => return Ok(None),
                    // Something has outdated the question.
                    _ if is_over || Instant::now() >= until => break,
                    _ => thread::sleep(LOOK_EVERY),
                }
            }
        }
        Ok(None)
    }

    /// Has the kernel ask. The thread may hang until pages are filled that wait for whoever waits for this.
    fn ask(&self, file: &Arc<OwnedFd>, ino: u64) -> Result<Asking, Errno> {
        let (file, notices) = (Arc::clone(file), Arc::clone(&self.notices));
        let answer: Arc<Mutex<Option<Looks>>> = Arc::default();
        let question = Question { ino, file: Some(Arc::clone(&file)), answer: Arc::clone(&answer) };
        let work = move || {
            let _asks = Asks::begin(&notices.askers, question);
            let _ = looks(&file, AtFlags::STATX_FORCE_SYNC);
        };
        let asking = thread::Builder::new().name("skep-fuse-size".into()).spawn(work);
        asking.map(|asking| (asking, answer)).map_err(|_| Errno::EAGAIN)
    }

    /// A descriptor that nothing can be done with but to look at it. The one of the root is closed at once: it would keep the file
    /// system from being unmounted.
    fn open(&self, ino: u64) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (target, device) = match &self.root {
            Root::Shown(target, device) => (target, *device),
            Root::Apart(root) => return open_by_number(root.as_fd(), ino),
        };
        let root = open(target, flags, Mode::empty())?;
        let found = statx(&root, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
        if (found.stx_dev_major, found.stx_dev_minor) != device {
            // Something else is mounted over it.
            return Err(Errno::EXDEV);
        }
        open_by_number(root.as_fd(), ino)
    }
}

pub(crate) fn looks(file: &OwnedFd, how: AtFlags) -> Result<Looks, Errno> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH | how, StatxFlags::SIZE | StatxFlags::MTIME)?;
    let mtime = Time { seconds: found.stx_mtime.tv_sec, nanos: found.stx_mtime.tv_nsec };
    Ok(Looks { size: found.stx_size, mtime })
}

#[allow(unsafe_code)] // a system call that `rustix` does not have
pub(crate) fn open_by_number(root: BorrowedFd<'_>, ino: u64) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Handle {
        bytes: c_uint,
        kind: c_int,
        /// The number's high half, its low half, and the generation.
        words: [u32; 3],
    }
    let words = [(ino >> 32) as u32, ino as u32, 0];
    let mut handle = Handle { bytes: size_of_val(&words) as c_uint, kind: BY_NUMBER, words };
    // SAFETY: the kernel reads as many bytes behind the head as that says, and nothing keeps the address; `Handle` has the
    // layout of the system's `file_handle`. What it returns is a descriptor that nobody else has.
    unsafe {
        let file = libc::open_by_handle_at(
            root.as_raw_fd(),
            (&raw mut handle).cast(),
            libc::O_PATH | libc::O_CLOEXEC,
        );
        match file {
            0.. => Ok(OwnedFd::from_raw_fd(file)),
            _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::EIO, Errno)),
        }
    }
}
