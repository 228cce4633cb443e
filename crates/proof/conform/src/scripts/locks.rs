//! Locks that wait, and locks of several processes.

use super::processes::{fork, wait};
use super::{Outcome, Script, at, hold};
use crate::calls::locks::{fcntl, record};
use crate::errno::Errno;
use crate::sys::{self, Arg};
use rustix::fs::{FlockOperation, flock};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Descriptors copied by another case's fork hold a lock a moment longer than their owner.
const PATIENCE: Duration = Duration::from_secs(10);

fn both() -> Result<File, String> {
    at("open", OpenOptions::new().read(true).write(true).create(true).truncate(false).open("f"))
}

fn ofd(file: &File, command: i32, kind: i32, start: i64, len: i64) -> Result<(), Errno> {
    fcntl(file.as_raw_fd().into(), command, &mut record(kind, start, len))
}

/// Repeats what may be refused for a moment.
fn soon(what: &str, act: impl Fn() -> Result<(), String>) -> Outcome {
    let start = Instant::now();
    loop {
        match act() {
            Ok(()) => return Ok(()),
            Err(e) if start.elapsed() > PATIENCE => return Err(format!("{what}: {e}")),
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// One thread waits for what another holds, and gets it when it is given up, not before.
fn waits(take: fn(&File) -> Result<(), String>, give: fn(&File) -> Result<(), String>) -> Outcome {
    let (a, b) = (both()?, both()?);
    take(&a)?;
    let (waiting, granted) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            waiting.store(true, Ordering::SeqCst);
            take(&b)?;
            granted.store(true, Ordering::SeqCst);
            give(&b)
        });
        while !waiting.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Long enough for a lock that does not exclude to be granted.
        std::thread::sleep(Duration::from_millis(50));
        let early = granted.load(Ordering::SeqCst);
        give(&a)?;
        let done = waiter.join().map_err(|_| "the waiter panicked".to_owned())?;
        hold(!early, || "both held the lock".to_owned())?;
        done
    })
}

pub(super) const OFD_WAITS: Script = Script {
    id: "locks/ofd-waits",
    goal: "F_OFD_SETLKW waits until the other open file gives the range up",
    needs: &[],
    run: || {
        waits(
            |f| at("lock", ofd(f, libc::F_OFD_SETLKW, libc::F_WRLCK, 10, 10)),
            |f| at("unlock", ofd(f, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0)),
        )
    },
};

pub(super) const FLOCK_WAITS: Script = Script {
    id: "locks/flock-waits",
    goal: "flock waits until the other open file gives the lock up",
    needs: &[],
    run: || {
        waits(
            |f| at("lock", flock(f, FlockOperation::LockExclusive)),
            |f| at("unlock", flock(f, FlockOperation::Unlock)),
        )
    },
};

pub(super) const FLOCK_LAST_CLOSE: Script = Script {
    id: "locks/flock-goes-with-the-last-descriptor",
    goal: "a flock stands while a duplicate of its descriptor is open, and goes with the last one",
    needs: &[],
    run: || {
        let (a, b) = (both()?, both()?);
        at("lock", flock(&a, FlockOperation::LockExclusive))?;
        let copy: OwnedFd = at("dup", a.try_clone())?.into();
        drop(a);
        let busy = flock(&b, FlockOperation::NonBlockingLockExclusive);
        hold(busy == Err(rustix::io::Errno::WOULDBLOCK), || format!("with a duplicate open: {busy:?}"))?;
        drop(copy);
        soon("after the last close", || at("flock", flock(&b, FlockOperation::NonBlockingLockExclusive)))
    },
};

pub(super) const OFD_LAST_CLOSE: Script = Script {
    id: "locks/ofd-goes-with-the-last-descriptor",
    goal: "a lock of an open file stands until its last descriptor is closed, whatever else is closed",
    needs: &[],
    run: || {
        let (a, b, other) = (both()?, both()?, both()?);
        at("lock", ofd(&a, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10))?;
        drop(other);
        let busy = ofd(&b, libc::F_OFD_SETLK, libc::F_WRLCK, 9, 1);
        hold(busy == Err(Errno(libc::EAGAIN)), || format!("another descriptor was closed: {busy:?}"))?;
        drop(a);
        soon("after its close", || at("lock", ofd(&b, libc::F_OFD_SETLK, libc::F_WRLCK, 9, 1)))
    },
};

/// System calls of a child, on memory made before the fork.
struct Child {
    path: CString,
}

impl Child {
    fn open(&self) -> Result<i64, Errno> {
        let flags = i64::from(libc::O_RDWR | libc::O_CLOEXEC);
        let cwd = Arg::Int(libc::AT_FDCWD.into());
        sys::call(libc::SYS_openat, &mut [cwd, Arg::Text(&self.path), Arg::Int(flags), Arg::Int(0)])
    }

    fn lock(&self, fd: i64, command: i32, start: i64) -> i32 {
        fcntl(fd, command, &mut record(libc::F_WRLCK, start, 1)).map_or_else(|e| e.0, |()| 0)
    }
}

fn child() -> Child {
    Child { path: CString::from(c"f") }
}

pub(super) const PROCESS_END: Script = Script {
    id: "locks/go-with-the-process",
    goal: "the fcntl locks of a process stand until it ends, and not longer",
    needs: &[],
    run: || {
        let file = both()?;
        let child = child();
        let pid = fork(|| match child.open() {
            Ok(fd) => child.lock(fd, libc::F_SETLK, 0),
            Err(e) => e.0,
        })?;
        let status = wait(pid)?;
        hold(status == 0, || format!("the child could not lock: {}", Errno(status)))?;
        at("lock", ofd(&file, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0))
    },
};

pub(super) const INTERRUPTED: Script = Script {
    id: "locks/wait-is-interrupted",
    goal: "a signal ends the wait for a lock with EINTR, and the lock is not taken afterwards",
    needs: &[],
    run: || {
        let file = both()?;
        at("lock", ofd(&file, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10))?;
        let child = child();
        let status = wait(fork(|| interrupted(&child))?)?;
        hold(status == libc::EINTR, || format!("the wait ended with {}", Errno(status)))?;
        at("unlock", ofd(&file, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0))?;
        at("lock again", ofd(&both()?, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10))
    },
};

extern "C" fn nothing(_: libc::c_int) {}

/// The child of [`INTERRUPTED`].
#[allow(unsafe_code)]
fn interrupted(child: &Child) -> i32 {
    let Ok(fd) = child.open() else { return 1 };
    // SAFETY: both take pointers to locals that outlive the calls, zeroed records of numbers and sets; the handler
    // does nothing. They concern only this child process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        let mut timer: libc::itimerval = std::mem::zeroed();
        timer.it_value.tv_usec = 100_000;
        // Again and again: the first may come before the wait has begun.
        timer.it_interval.tv_usec = 100_000;
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    child.lock(fd, libc::F_SETLKW, 5)
}

pub(super) const DEADLOCK: Script = Script {
    id: "locks/deadlock-is-found",
    goal: "of two processes that wait for each other's lock one gets EDEADLK, and the other then its lock",
    needs: &[],
    run: || {
        let _file = both()?;
        let child = child();
        let pipes = [at("pipe", std::io::pipe())?, at("pipe", std::io::pipe())?];
        let descriptors = |n: usize| (i64::from(pipes[n].0.as_raw_fd()), i64::from(pipes[n].1.as_raw_fd()));
        let act = |mine: usize| -> i32 {
            let (tell, hear) = (descriptors(mine).1, descriptors(1 - mine).0);
            let Ok(fd) = child.open() else { return 1 };
            if child.lock(fd, libc::F_SETLK, mine as i64) != 0 {
                return 2;
            }
            let mut byte = [0u8];
            let told = sys::call(libc::SYS_write, &mut [Arg::Int(tell), Arg::In(b"x"), Arg::Int(1)]);
            let heard = sys::call(libc::SYS_read, &mut [Arg::Int(hear), Arg::Out(&mut byte), Arg::Int(1)]);
            if told != Ok(1) || heard != Ok(1) {
                return 3;
            }
            child.lock(fd, libc::F_SETLKW, 1 - mine as i64)
        };
        let pids = [fork(|| act(0))?, fork(|| act(1))?];
        let mut ends = [wait(pids[0])?, wait(pids[1])?];
        ends.sort_unstable();
        hold(ends == [0, libc::EDEADLK], || format!("they ended with {ends:?}"))
    },
};

/// Threads that count, and how often each does.
const COUNTERS: usize = 16;
const ROUNDS: u64 = 25;

/// Adds to a number in a file, under a lock, from many open files.
fn count(take: fn(&File) -> Result<(), String>, give: fn(&File) -> Result<(), String>) -> Outcome {
    at("write", both()?.write_all_at(&0u64.to_le_bytes(), 0))?;
    let files = (0..COUNTERS).map(|_| both()).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let one = |file: &File| -> Outcome {
            for _ in 0..ROUNDS {
                take(file)?;
                let mut number = [0u8; 8];
                at("read", file.read_exact_at(&mut number, 0))?;
                let next = u64::from_le_bytes(number) + 1;
                at("write", file.write_all_at(&next.to_le_bytes(), 0))?;
                give(file)?;
            }
            Ok(())
        };
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(move || one(file))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    let mut number = [0u8; 8];
    at("read", both()?.read_exact_at(&mut number, 0))?;
    let (found, want) = (u64::from_le_bytes(number), ROUNDS * COUNTERS as u64);
    hold(found == want, || format!("counted to {found}, not {want}: two held the lock at once"))
}

pub(super) const OFD_COUNT: Script = Script {
    id: "locks/ofd-excludes-many",
    goal: "sixteen open files that add to one number under a write lock lose nothing, and all get through",
    needs: &[],
    run: || {
        count(
            |f| at("lock", ofd(f, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 8)),
            |f| at("unlock", ofd(f, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 8)),
        )
    },
};

pub(super) const FLOCK_COUNT: Script = Script {
    id: "locks/flock-excludes-many",
    goal: "sixteen open files that add to one number under flock lose nothing, and all get through",
    needs: &[],
    run: || {
        count(
            |f| at("lock", flock(f, FlockOperation::LockExclusive)),
            |f| at("unlock", flock(f, FlockOperation::Unlock)),
        )
    },
};
