//! Taking a request's body apart: every length is checked, nothing panics.

use zerocopy::FromBytes;

use crate::Errno;

/// Longest name of a file or an extended attribute, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub(crate) const LINK_MAX: usize = 4095;

/// The undecoded rest of a request's body.
pub(crate) struct Body<'a> {
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Body { bytes }
    }

    /// The next structure.
    pub(crate) fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.bytes).map_err(|_| Errno::EINVAL)?;
        self.bytes = rest;
        Ok(value)
    }

    /// The next bytes up to a NUL, which must be there; the NUL is consumed.
    fn string(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.bytes.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
        let (text, rest) = self.bytes.split_at(end);
        self.bytes = rest.get(1..).unwrap_or_default();
        Ok(text)
    }

    /// A name to look up: also "." and "..", which the kernel sends to resolve NFS file handles.
    pub(crate) fn lookup_name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.string()?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if name.is_empty() || name.contains(&b'/') {
            return Err(Errno::EINVAL);
        }
        Ok(name)
    }

    /// A name to create, remove or rename.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.lookup_name()?;
        if name == b"." || name == b".." { Err(Errno::EINVAL) } else { Ok(name) }
    }

    /// The target of a symbolic link.
    pub(crate) fn link_target(&mut self) -> Result<&'a [u8], Errno> {
        match self.string()? {
            target if target.len() > LINK_MAX => Err(Errno::ENAMETOOLONG),
            [] => Err(Errno::ENOENT),
            target => Ok(target),
        }
    }

    /// The name of an extended attribute.
    pub(crate) fn xattr_name(&mut self) -> Result<&'a [u8], Errno> {
        match self.string()? {
            name if name.len() > NAME_MAX => Err(Errno::ERANGE),
            [] => Err(Errno::ERANGE),
            name => Ok(name),
        }
    }

    /// Exactly the next `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.bytes.split_at_checked(length).ok_or(Errno::EINVAL)?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// Everything left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, NAME_MAX};
    use crate::Errno;

    fn name(bytes: &[u8]) -> Result<&[u8], Errno> {
        Body::new(bytes).name()
    }

    /// Goal: a name is taken only when it is whole, short enough and one component.
    #[test]
    fn names() {
        assert_eq!(name(b"a\0"), Ok(&b"a"[..]));
        assert_eq!(name(b"a"), Err(Errno::EINVAL), "no NUL");
        assert_eq!(name(b""), Err(Errno::EINVAL));
        assert_eq!(name(b"\0"), Err(Errno::EINVAL));
        assert_eq!(name(b"a/b\0"), Err(Errno::EINVAL));
        assert_eq!(name(b".\0"), Err(Errno::EINVAL));
        assert_eq!(Body::new(b"..\0").lookup_name(), Ok(&b".."[..]));
        let mut longest = vec![b'x'; NAME_MAX];
        longest.push(0);
        assert_eq!(name(&longest).map(<[u8]>::len), Ok(NAME_MAX));
        longest.insert(0, b'x');
        assert_eq!(name(&longest), Err(Errno::ENAMETOOLONG));
    }

    /// Goal: two strings in a row are split at the NUL and a structure beyond the end is refused.
    #[test]
    fn sequence() {
        let mut body = Body::new(b"from\0to\0\x01");
        assert_eq!(body.name(), Ok(&b"from"[..]));
        assert_eq!(body.name(), Ok(&b"to"[..]));
        assert_eq!(body.take::<u32>(), Err(Errno::EINVAL));
        assert_eq!(body.bytes(2), Err(Errno::EINVAL));
        assert_eq!(body.rest(), b"\x01");
        assert_eq!(body.rest(), b"");
    }
}
