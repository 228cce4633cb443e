//! Extended attributes by system calls.

use crate::attributes::Place;
use rustix::fs::XattrFlags;
use rustix::io::{Errno, Result};
use skep_model::XattrHow;
use std::collections::BTreeSet;

pub fn set(place: Place<'_>, name: &[u8], value: &[u8], how: XattrHow) -> Result<()> {
    let flags = match how {
        XattrHow::Set => XattrFlags::empty(),
        XattrHow::Create => XattrFlags::CREATE,
        XattrHow::Replace => XattrFlags::REPLACE,
    };
    match place {
        Place::Path(path) => rustix::fs::lsetxattr(path, name, value, flags),
        Place::File(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
    }
}

pub fn get(place: Place<'_>, name: &[u8]) -> Result<Vec<u8>> {
    sized(|buffer| match place {
        Place::Path(path) if buffer.is_empty() => rustix::fs::lgetxattr_query(path, name),
        Place::File(fd) if buffer.is_empty() => rustix::fs::fgetxattr_query(fd, name),
        Place::Path(path) => rustix::fs::lgetxattr(path, name, buffer),
        Place::File(fd) => rustix::fs::fgetxattr(fd, name, buffer),
    })
}

pub fn remove(place: Place<'_>, name: &[u8]) -> Result<()> {
    match place {
        Place::Path(path) => rustix::fs::lremovexattr(path, name),
        Place::File(fd) => rustix::fs::fremovexattr(fd, name),
    }
}

/// Namespaces, and names, that histories use: a system may add others.
const KNOWN: [&[u8]; 4] = [b"user.", b"trusted.x", b"security.x", b"system.posix_acl_"];

/// Names that the oracle knows of.
pub fn list(place: Place<'_>) -> Result<BTreeSet<Vec<u8>>> {
    let names = sized(|buffer| match place {
        Place::Path(path) if buffer.is_empty() => rustix::fs::llistxattr_query(path),
        Place::File(fd) if buffer.is_empty() => rustix::fs::flistxattr_query(fd),
        Place::Path(path) => rustix::fs::llistxattr(path, buffer),
        Place::File(fd) => rustix::fs::flistxattr(fd, buffer),
    })?;
    let names =
        names.split(|byte| *byte == 0).filter(|name| KNOWN.iter().any(|known| name.starts_with(known)));
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// Asks for the length with an empty buffer, then for the bytes.
fn sized(call: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    loop {
        let mut buffer = vec![0; call(&mut [])?];
        if buffer.is_empty() {
            return Ok(buffer);
        }
        match call(&mut buffer) {
            // It grew in between.
            Err(Errno::RANGE) => {}
            read => {
                buffer.truncate(read?);
                return Ok(buffer);
            }
        }
    }
}
