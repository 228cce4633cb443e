//! Errors that a program on the mount can see, by their Linux numbers.

use core::fmt;

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident = $value:literal),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("Linux error ", stringify!($value), ".")]
            pub const $name: Self = Self($value);)*

            /// Its symbolic name, as in the manual pages.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "E?" }
            }
        }
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, ENXIO = 6, E2BIG = 7, EBADF = 9, EAGAIN = 11, ENOMEM = 12,
    EACCES = 13, EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21, EINVAL = 22,
    ENFILE = 23, EMFILE = 24, EFBIG = 27, ENOSPC = 28, EROFS = 30, EMLINK = 31, ERANGE = 34,
    EDEADLK = 35, ENAMETOOLONG = 36, ENOLCK = 37, ENOSYS = 38, ENOTEMPTY = 39, ELOOP = 40, ENODATA = 61, EPROTO = 71, EOVERFLOW = 75,
    EOPNOTSUPP = 95, ENOTCONN = 107, ETIMEDOUT = 110, ECONNREFUSED = 111, ESTALE = 116, EDQUOT = 122,
    EREMOTEIO = 121,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Errno {}
