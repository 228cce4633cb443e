//! The submission and completion queues.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};

/// Submissions as this crate makes them: with room for the commands of FUSE.
pub(crate) type Submission = squeue::Entry128;

/// Completions for each submission entry: those of armed operations come in bursts.
const COMPLETIONS_PER_SUBMISSION: u32 = 4;

/// A completion: whose, with which result and flags.
pub(crate) struct Completion {
    pub(crate) whose: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

/// The two queues shared with the kernel.
pub(crate) struct Ring {
    uring: RefCell<IoUring<Submission, cqueue::Entry>>,
    /// What did not fit into the submission queue although it was flushed.
    backlog: RefCell<VecDeque<Submission>>,
    /// Counts calls that submitted everything queued before them.
    submitted: Cell<u64>,
    turns: Cell<u64>,
    /// Completions taken out to make room for the kernel, before anybody asked for them.
    early: RefCell<Vec<Completion>>,
}

/// Pause before the kernel is asked again to take what it would not.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

impl Ring {
    /// A ring of its own for the calling thread, as little disturbed by interrupts as the kernel allows.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let mut last = None;
        for choice in 0..3 {
            let mut builder = IoUring::<Submission, cqueue::Entry>::builder();
            builder.setup_clamp().setup_cqsize(entries.saturating_mul(COMPLETIONS_PER_SUBMISSION)).dontfork();
            match choice {
                // Linux 6.1: completions are processed when this thread asks, not in the middle of its work.
                0 => builder.setup_submit_all().setup_single_issuer().setup_defer_taskrun(),
                1 => builder.setup_submit_all().setup_coop_taskrun(),
                _ => &mut builder,
            };
            match builder.build(entries) {
                Ok(uring) => {
                    return Ok(Ring {
                        uring: RefCell::new(uring),
                        backlog: RefCell::default(),
                        submitted: Cell::new(0),
                        turns: Cell::new(0),
                        early: RefCell::default(),
                    });
                }
                // Flags that this kernel does not know.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::Unsupported)))
    }

    /// Queues a submission; it goes to the kernel with the next [`Ring::enter`].
    ///
    /// # Safety
    /// Memory and descriptors that it names stay valid until its completion (descriptors: until it was submitted).
    #[allow(unsafe_code)] // the kernel is given addresses
    pub(crate) unsafe fn push(&self, submission: Submission) {
        let mut uring = self.uring.borrow_mut();
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            // SAFETY: as promised by the caller.
            if unsafe { uring.submission().push(&submission) }.is_ok() {
                return;
            }
            // Full: the only case in which anything is submitted before its turn.
            let _ = uring.submit();
            // SAFETY: as promised by the caller.
            if unsafe { uring.submission().push(&submission) }.is_ok() {
                return;
            }
        }
        backlog.push_back(submission);
    }

    /// A mark of what was queued so far, for [`Ring::is_submitted`].
    pub(crate) fn mark(&self) -> u64 {
        self.submitted.get()
    }

    /// Whether everything queued at `mark` has been given to the kernel since.
    pub(crate) fn is_submitted(&self, mark: u64) -> bool {
        self.submitted.get() > mark
    }

    /// How often the kernel was entered.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.get()
    }

    /// Submits what is queued without waiting.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.enter(Some(Duration::ZERO))
    }

    /// Submits everything that was queued at `mark`, however busy the kernel is: what a submission names may be
    /// gone, and its number used again, as soon as this returns.
    pub(crate) fn submit_up_to(&self, mark: u64) -> io::Result<()> {
        while !self.is_submitted(mark) {
            let before = self.queued();
            self.flush()?;
            if self.is_submitted(mark) {
                break;
            }
            // It takes no more while completions wait.
            let mut early = self.early.borrow_mut();
            let had = early.len();
            self.take_fresh(&mut early);
            if early.len() == had && self.queued() == before {
                std::thread::sleep(BUSY_PAUSE);
            }
        }
        Ok(())
    }

    /// Submissions that the kernel has not got.
    fn queued(&self) -> usize {
        self.backlog.borrow().len() + self.uring.borrow_mut().submission().len()
    }

    /// Submits what is queued and waits for a completion, at most for `limit`.
    pub(crate) fn enter(&self, limit: Option<Duration>) -> io::Result<()> {
        let mut uring = self.uring.borrow_mut();
        self.move_backlog(&mut uring);
        self.turns.set(self.turns.get() + 1);
        let result = match limit {
            None => uring.submit_and_wait(1),
            Some(Duration::ZERO) => {
                let queued = u32::try_from(uring.submission().len()).unwrap_or(u32::MAX);
                let flags = EnterFlags::GETEVENTS.bits();
                enter_now(&uring, queued, flags)
            }
            Some(limit) => {
                let time = Timespec::from(limit);
                uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        if uring.submission().is_empty() && self.backlog.borrow().is_empty() {
            self.submitted.set(self.submitted.get() + 1);
        }
        match result.map_err(|error| rustix::io::Errno::from_io_error(&error).ok_or(error)) {
            // Busy: completions have to be taken first; they are, directly after this.
            Ok(_) | Err(Ok(rustix::io::Errno::TIME | rustix::io::Errno::INTR | rustix::io::Errno::BUSY)) => {
                Ok(())
            }
            Err(Ok(rustix::io::Errno::AGAIN)) => Ok(()),
            Err(Ok(error)) => Err(error.into()),
            Err(Err(error)) => Err(error),
        }
    }

    #[allow(unsafe_code)] // what was promised at `push` is passed on
    fn move_backlog(&self, uring: &mut IoUring<Submission, cqueue::Entry>) {
        let mut backlog = self.backlog.borrow_mut();
        let mut queue = uring.submission();
        while let Some(submission) = backlog.front() {
            // SAFETY: the caller of `Ring::push` promised it.
            if unsafe { queue.push(submission) }.is_err() {
                return;
            }
            backlog.pop_front();
        }
    }

    /// Takes all completions that are there.
    pub(crate) fn take(&self, into: &mut Vec<Completion>) {
        into.append(&mut self.early.borrow_mut());
        self.take_fresh(into);
    }

    fn take_fresh(&self, into: &mut Vec<Completion>) {
        let mut uring = self.uring.borrow_mut();
        for entry in uring.completion() {
            into.push(Completion { whose: entry.user_data(), result: entry.result(), flags: entry.flags() });
        }
    }
}

/// `io_uring_enter` that waits for nothing, but lets the kernel finish what it has put off.
#[allow(unsafe_code)] // the crate has no safe form of it
fn enter_now(uring: &IoUring<Submission, cqueue::Entry>, queued: u32, flags: u32) -> io::Result<usize> {
    // SAFETY: no argument structure is passed, and the numbers are those of the queue.
    unsafe { uring.submitter().enter::<()>(queued, 0, flags, None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reactor;
    use crate::operation::CANCELLED;
    use std::future::Future;
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    /// Goal: what was queued is with the kernel when that was asked for, also when the kernel did not take it at
    /// first and there is more of it than the queue holds; no completion is lost by it.
    #[test]
    fn everything_up_to_a_mark_is_submitted() {
        const COUNT: usize = 100;
        let ring = Ring::new(4).expect("this test needs io_uring (kernel.io_uring_disabled = 0)");
        let nop = |n| Submission::from(io_uring::opcode::Nop::new().build().user_data(n));
        ring.backlog.borrow_mut().extend((0..COUNT as u64).map(nop));
        let mark = ring.mark();
        ring.flush().unwrap();
        assert!(!ring.is_submitted(mark), "one flush is not enough for this many");
        ring.submit_up_to(mark).unwrap();
        assert!(ring.is_submitted(mark));
        let mut taken = Vec::new();
        while taken.len() < COUNT {
            ring.take(&mut taken);
            ring.flush().unwrap();
        }
        let mut whose: Vec<_> = taken.iter().map(|completion| completion.whose).collect();
        whose.sort_unstable();
        assert!(whose.into_iter().eq(0..COUNT as u64));
    }

    /// Goal: an operation that is dropped while the kernel does not have it yet, because more is queued before it than goes
    /// in one turn, touches nothing that its descriptor's number names afterwards: another socket loses no byte and gets none.
    #[test]
    fn a_dropped_operation_touches_no_other_socket() {
        const COUNT: usize = 100;
        let reactor = Reactor::new(4).expect("this test needs io_uring (kernel.io_uring_disabled = 0)");
        let nop = || Submission::from(io_uring::opcode::Nop::new().build().user_data(CANCELLED));
        for receives in [true, false] {
            let (here, _there) = UnixStream::pair().unwrap();
            let (other, mut their) = UnixStream::pair().unwrap();
            let mut here = OwnedFd::from(here);
            let ring = &reactor.inner().ring;
            ring.backlog.borrow_mut().extend(std::iter::repeat_with(nop).take(COUNT));
            let mark = ring.mark();
            let mut context = Context::from_waker(Waker::noop());
            {
                let mut operation: Pin<Box<dyn Future<Output = _> + '_>> = match receives {
                    true => Box::pin(reactor.recv(here.as_fd(), vec![0; 5], 0)),
                    false => Box::pin(reactor.send(here.as_fd(), b"stray".to_vec(), 0)),
                };
                assert!(operation.as_mut().poll(&mut context).is_pending());
                assert!(!ring.is_submitted(mark), "else this tests nothing");
            }
            their.write_all(b"bytes").unwrap();
            // Closes the first socket: its number is the other one from here on.
            rustix::io::dup2(&other, &mut here).unwrap();
            for _ in 0..2 * COUNT {
                reactor.step().unwrap();
            }
            let mut other = other;
            other.set_nonblocking(true).unwrap();
            their.set_nonblocking(true).unwrap();
            let mut got = [0; 16];
            assert_eq!((other.read(&mut got).unwrap(), &got[..5]), (5, &b"bytes"[..]));
            assert_eq!(their.read(&mut got).unwrap_err().kind(), io::ErrorKind::WouldBlock, "{got:?}");
        }
    }
}
