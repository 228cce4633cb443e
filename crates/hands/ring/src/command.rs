//! Commands to devices, and the memory that operations keep.

use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;

use io_uring::{opcode, types};

use crate::Reactor;
use crate::operation::Operation;
use crate::ring::Submission;

/// Memory that stays where it is until an operation is done with it.
#[derive(Default)]
pub enum Keep {
    /// None.
    #[default]
    Nothing,
    /// Bytes.
    Buffer(Vec<u8>),
    /// Anything.
    Held(Rc<dyn Any>),
}

/// A command to a device (`IORING_OP_URING_CMD`).
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The device's number of the command.
    pub number: u32,
    /// What `addr` points to has this length, or so many parts.
    pub length: u32,
    /// An address, if the command has one.
    pub address: u64,
    /// The command's own bytes.
    pub body: [u8; 80],
}

/// Where `len` is in a submission.
const LENGTH_AT: usize = 24;

/// The submission of a command; the crate has no way to set its length.
#[allow(unsafe_code)] // a field of the submission that the crate does not expose
fn submission(fd: BorrowedFd<'_>, command: &Command) -> Submission {
    let mut entry = opcode::UringCmd80::new(types::Fd(fd.as_raw_fd()), command.number)
        .cmd(command.body)
        .addr(Some(command.address))
        .build();
    // SAFETY: a submission is plain data of 128 bytes in the kernel's layout, where `len` is 4 bytes at 24.
    unsafe { (&raw mut entry).cast::<u8>().add(LENGTH_AT).cast::<u32>().write_unaligned(command.length) };
    entry
}

impl Reactor {
    /// Sends a command to a device and waits for its end. `keep` is held until then, also when the future is
    /// dropped.
    ///
    /// # Safety
    /// Everything that the device reads or writes because of the command is kept alive, at its place and
    /// otherwise untouched, by `keep`.
    ///
    /// # Errors
    /// Whatever the device answers.
    #[allow(unsafe_code)] // the command's addresses are the caller's
    pub async unsafe fn command(
        &self,
        fd: BorrowedFd<'_>,
        command: &Command,
        keep: Rc<dyn Any>,
    ) -> io::Result<u32> {
        // SAFETY: the memory is in `keep`, as the caller promises, and the descriptor is borrowed for as long as
        // the future lives.
        let operation =
            unsafe { Operation::start(self.inner(), Keep::Held(keep), |_| submission(fd, command)) };
        outcome(operation.await.0)
    }
}

/// The result of a system call.
pub(crate) fn outcome(result: i32) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()))
}
