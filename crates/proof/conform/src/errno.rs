//! Errno values and their POSIX names: the vocabulary in which the table states what it expects.

use std::fmt;

/// An error number as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub i32);

/// Every errno the table may name.
const NAMES: &[(&str, i32)] = &[
    ("E2BIG", libc::E2BIG),
    ("EACCES", libc::EACCES),
    ("EAGAIN", libc::EAGAIN),
    ("EBADF", libc::EBADF),
    ("EBUSY", libc::EBUSY),
    ("EEXIST", libc::EEXIST),
    ("EFAULT", libc::EFAULT),
    ("EFBIG", libc::EFBIG),
    ("EINVAL", libc::EINVAL),
    ("EIO", libc::EIO),
    ("EISDIR", libc::EISDIR),
    ("ELOOP", libc::ELOOP),
    ("EMLINK", libc::EMLINK),
    ("ENAMETOOLONG", libc::ENAMETOOLONG),
    ("ENODATA", libc::ENODATA),
    ("ENODEV", libc::ENODEV),
    ("ENOENT", libc::ENOENT),
    ("ENOEXEC", libc::ENOEXEC),
    ("ENOSPC", libc::ENOSPC),
    ("ENOSYS", libc::ENOSYS),
    ("ENOTCONN", libc::ENOTCONN),
    ("ENOTDIR", libc::ENOTDIR),
    ("ENOTEMPTY", libc::ENOTEMPTY),
    ("ENXIO", libc::ENXIO),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EOVERFLOW", libc::EOVERFLOW),
    ("EPERM", libc::EPERM),
    ("ERANGE", libc::ERANGE),
    ("EROFS", libc::EROFS),
    ("ESPIPE", libc::ESPIPE),
    ("ESTALE", libc::ESTALE),
    ("ETXTBSY", libc::ETXTBSY),
    ("EXDEV", libc::EXDEV),
];

impl Errno {
    /// The errno of that name, if the table may use it.
    pub fn named(name: &str) -> Option<Errno> {
        NAMES.iter().find(|(n, _)| *n == name).map(|&(_, v)| Errno(v))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, v)| *v == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names and numbers map both ways, and an unknown number still prints something useful.
    #[test]
    fn names_round_trip() {
        for (name, value) in NAMES {
            assert_eq!(Errno::named(name), Some(Errno(*value)));
            assert_eq!(Errno(*value).to_string(), *name);
        }
        assert_eq!(Errno::named("ENOPE"), None);
        assert_eq!(Errno(9999).to_string(), "errno 9999");
    }
}
