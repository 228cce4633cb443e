//! What of a file is in memory.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;

/// Smallest page of the machines we run on; a larger one holds it.
const PAGE: usize = 4096;

/// Is the beginning of the file in memory? Asking reads nothing. (A read with RWF_NOWAIT does begin to read, and a fast
/// disk has answered before it looks.)
pub fn begins_in_memory(file: impl AsFd) -> io::Result<bool> {
    let (access, how) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use; nothing is read from it.
    #[allow(unsafe_code)]
    let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, access, how, file, 0) }?;
    let mut resident = 0_u8;
    // SAFETY: the range is that mapping, and has one page, for which there is one byte.
    #[allow(unsafe_code)]
    let asked = unsafe { libc::mincore(start, PAGE, &raw mut resident) };
    let failed = io::Error::last_os_error();
    // SAFETY: it is this mapping, which nothing borrows.
    #[allow(unsafe_code)]
    unsafe { rustix::mm::munmap(start, PAGE) }?;
    match asked {
        0 => Ok(resident & 1 == 1),
        _ => Err(failed),
    }
}
