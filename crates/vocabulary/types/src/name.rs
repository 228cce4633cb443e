//! Names of directory entries.

use crate::Errno;
use crate::codec::{Buffer, Decode, DecodeError, Encode, Reader};
use crate::limits::NAME_MAX;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// A checked name: 1 to 255 bytes, no NUL, no slash, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

/// Why bytes are no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// Longer than 255 bytes.
    TooLong,
    /// Empty, `.`, `..`, or holds a NUL or a slash.
    Invalid,
}

impl From<NameError> for Errno {
    fn from(e: NameError) -> Self {
        match e {
            NameError::TooLong => Errno::ENAMETOOLONG,
            NameError::Invalid => Errno::EINVAL,
        }
    }
}

impl Name {
    /// Checks `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > NAME_MAX {
            return Err(NameError::TooLong);
        }
        let invalid = bytes.is_empty()
            || bytes == b"."
            || bytes == b".."
            || bytes.iter().any(|b| matches!(b, 0 | b'/'));
        if invalid { Err(NameError::Invalid) } else { Ok(Self(bytes.into())) }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// For messages to people: bytes that are no UTF-8 are replaced.
    pub fn display(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.display())
    }
}

impl Encode for Name {
    fn encode(&self, out: &mut Buffer) {
        out.push(self.0.len() as u8);
        out.extend_from_slice(&self.0);
    }
}

impl Decode for Name {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = u8::decode(r)? as usize;
        Self::new(r.take(len, "name")?).map_err(|_| DecodeError::Invalid("name"))
    }
}
