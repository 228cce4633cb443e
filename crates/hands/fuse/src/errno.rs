//! The error numbers a reply may carry.

use core::fmt;

/// A Linux error number as the kernel expects it in a reply, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal: $doc:literal;)*) => {
        impl Errno {
            $(#[doc = $doc] pub const $name: Errno = Errno($value);)*

            /// The symbolic name, when this crate knows the number.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

errnos! {
    EPERM = 1: "Operation not permitted.";
    ENOENT = 2: "No such file or directory.";
    EINTR = 4: "Interrupted: the caller was signalled.";
    EIO = 5: "Input/output error.";
    ENXIO = 6: "No data or hole behind this offset (lseek).";
    EBADF = 9: "Unknown file handle.";
    EAGAIN = 11: "Try again.";
    ENOMEM = 12: "Out of memory.";
    EACCES = 13: "Permission denied.";
    EFAULT = 14: "Bad address.";
    EBUSY = 16: "Device or resource busy.";
    EEXIST = 17: "File exists.";
    EXDEV = 18: "Cross-device link.";
    ENODEV = 19: "No such device: the connection has gone.";
    ENOTDIR = 20: "Not a directory.";
    EISDIR = 21: "Is a directory.";
    EINVAL = 22: "Invalid argument.";
    ENFILE = 23: "Too many open files in the system.";
    EMFILE = 24: "Too many open files.";
    ENOTTY = 25: "This ioctl is not known here.";
    ETXTBSY = 26: "Text file busy.";
    EFBIG = 27: "File too large.";
    ENOSPC = 28: "No space left on device.";
    ESPIPE = 29: "Illegal seek.";
    EROFS = 30: "Read-only file system.";
    EMLINK = 31: "Too many links.";
    ERANGE = 34: "The result does not fit the buffer given.";
    EDEADLK = 35: "A lock would dead-lock.";
    ENAMETOOLONG = 36: "File name too long.";
    ENOLCK = 37: "No locks available.";
    ENOSYS = 38: "Not implemented; for many operations the kernel remembers it and stops asking.";
    ENOTEMPTY = 39: "Directory not empty.";
    ELOOP = 40: "Too many symbolic links.";
    ENODATA = 61: "No such extended attribute.";
    EPROTO = 71: "Protocol error.";
    EOVERFLOW = 75: "Value too large for its type.";
    EOPNOTSUPP = 95: "Operation not supported.";
    ENOTCONN = 107: "The file system's daemon has gone.";
    ETIMEDOUT = 110: "The deadline passed.";
    ESTALE = 116: "Stale file handle.";
    EDQUOT = 122: "Disk quota exceeded.";
}

/// Largest number the kernel accepts in a reply; anything outside is refused and would leave the caller waiting.
const LARGEST: i32 = 511;

impl Errno {
    /// The value of the reply header's error field: negative, and always one the kernel accepts.
    #[must_use]
    pub fn to_wire(self) -> i32 {
        if (1..=LARGEST).contains(&self.0) { -self.0 } else { -Errno::EIO.0 }
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Errno(error.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Errno::EIO, Errno)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::Errno;

    /// Goal: no error a file system returns can become a header the kernel refuses.
    #[test]
    fn wire_value_is_always_acceptable() {
        for raw in [i32::MIN, -1, 0, 1, 2, 511, 512, i32::MAX] {
            let wire = Errno(raw).to_wire();
            assert!((-511..0).contains(&wire) || wire == -511, "{raw} became {wire}");
        }
        assert_eq!(Errno::ENOENT.to_wire(), -2);
        assert_eq!(Errno(0).to_wire(), -5);
    }
}
