//! The one place that enters the kernel with raw arguments.
//!
//! A conformance suite must be able to pass what a well-behaved wrapper refuses: invalid flags, over-long
//! paths, bad pointers. So the calls under test go through `syscall(2)` here, not through a safe wrapper.

use crate::errno::Errno;
use std::ffi::CString;

/// One argument of a system call.
pub enum Arg<'a> {
    /// A plain number: descriptor, flags, mode, offset, length.
    Int(i64),
    /// A NUL-terminated string.
    Text(&'a CString),
    /// Bytes the kernel only reads.
    In(&'a [u8]),
    /// Bytes the kernel may fill; the length passed beside it must not exceed the slice.
    Out(&'a mut [u8]),
    /// An address that is never mapped: provokes EFAULT.
    Bad,
    /// The null pointer.
    Null,
}

/// An address inside the never-mapped last page of the address space.
const BAD_ADDRESS: usize = usize::MAX - 4094;

/// Most arguments a Linux system call takes.
const MAX_ARGS: usize = 6;

/// Enters the kernel and returns its value or errno.
#[allow(unsafe_code)]
pub fn call(number: libc::c_long, args: &mut [Arg<'_>]) -> Result<i64, Errno> {
    let mut words = [0usize; MAX_ARGS];
    for (word, arg) in words.iter_mut().zip(args.iter_mut()) {
        *word = match arg {
            Arg::Int(v) => *v as usize,
            Arg::Text(t) => t.as_ptr() as usize,
            Arg::In(b) => b.as_ptr() as usize,
            Arg::Out(b) => b.as_mut_ptr() as usize,
            Arg::Bad => BAD_ADDRESS,
            Arg::Null => 0,
        };
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: every pointer is either borrowed from `args` for the whole call, null, or an address the kernel
    // itself rejects; callers in this crate pass lengths that do not exceed the slice given as `Out` or `In`.
    let got = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if got == -1 { Err(last()) } else { Ok(got) }
}

/// Errno of the call that failed last on this thread.
pub fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// One timestamp, to the nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

/// What `statx` says about a file.
#[derive(Clone, Debug)]
pub struct Stat {
    /// File type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// Inode number.
    pub ino: u64,
    /// Device number of a device node.
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
}

/// `statx` of a path or, with `AT_EMPTY_PATH` and an empty path, of a descriptor.
#[allow(unsafe_code)]
pub fn statx(dirfd: i64, path: Arg<'_>, flags: i32) -> Result<Stat, Errno> {
    let mut buf = vec![0u8; size_of::<libc::statx>()];
    call(
        libc::SYS_statx,
        &mut [
            Arg::Int(dirfd),
            path,
            Arg::Int(flags.into()),
            Arg::Int(libc::STATX_BASIC_STATS.into()),
            Arg::Out(&mut buf),
        ],
    )?;
    // SAFETY: the buffer has the size of `libc::statx`, the kernel filled it, and every field is an integer;
    // `read_unaligned` puts no demand on the address.
    let raw = unsafe { buf.as_ptr().cast::<libc::statx>().read_unaligned() };
    let time = |t: libc::statx_timestamp| Time { sec: t.tv_sec, nsec: t.tv_nsec };
    Ok(Stat {
        mode: raw.stx_mode.into(),
        nlink: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        size: raw.stx_size,
        blocks: raw.stx_blocks,
        ino: raw.stx_ino,
        rdev: (raw.stx_rdev_major, raw.stx_rdev_minor),
        atime: time(raw.stx_atime),
        mtime: time(raw.stx_mtime),
        ctime: time(raw.stx_ctime),
    })
}
