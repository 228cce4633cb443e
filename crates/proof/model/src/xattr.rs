//! Extended attributes.

use crate::acl::acl_name;
use crate::fs::Fs;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::limits::{XATTR_NAME_MAX, XATTR_TOTAL_MAX, XATTR_VALUE_MAX};
use skep_types::{Errno, Ino, Kind, Timestamp};

/// What `setxattr` does with a name that exists, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrHow {
    /// Creates or replaces.
    Set,
    /// EEXIST when it exists (`XATTR_CREATE`).
    Create,
    /// ENODATA when it does not (`XATTR_REPLACE`).
    Replace,
}

/// Namespaces that are kept as they come.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

impl Fs {
    /// Sets an attribute. In this order: ERANGE (name), E2BIG (value), EPERM (`user.` on anything but a
    /// file or directory), EOPNOTSUPP (unknown namespace), EINVAL (namespace only), EEXIST, ENODATA,
    /// ENOSPC ([`XATTR_TOTAL_MAX`]).
    pub fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        now: Timestamp,
    ) -> Result<(), Errno> {
        check_args(name, value.len())?;
        self.check_name(ino, name, Errno::EPERM)?;
        let xattrs = &self.inode(ino)?.xattrs;
        let old = xattrs.get(name);
        match how {
            XattrHow::Create if old.is_some() => return Err(Errno::EEXIST),
            XattrHow::Replace if old.is_none() => return Err(Errno::ENODATA),
            _ => {}
        }
        let replaced = old.map_or(0, |old| name.len() + old.len());
        let total: usize = xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if total - replaced + name.len() + value.len() > XATTR_TOTAL_MAX {
            return Err(Errno::ENOSPC);
        }
        let inode = self.inode_mut(ino)?;
        inode.xattrs.insert(name.into(), Arc::from(value));
        inode.inode_moved(now);
        Ok(())
    }

    /// The value of an attribute, also of an access control list. ERANGE, ENODATA.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check_args(name, 0)?;
        if let Some(default) = [false, true].into_iter().find(|default| acl_name(*default) == name) {
            return self.get_acl(ino, default);
        }
        self.check_name(ino, name, Errno::ENODATA)?;
        self.inode(ino)?.xattrs.get(name).map(|value| value.to_vec()).ok_or(Errno::ENODATA)
    }

    /// All names.
    pub fn listxattr(&self, ino: Ino) -> Result<BTreeSet<Vec<u8>>, Errno> {
        Ok(self.inode(ino)?.xattrs.keys().cloned().collect())
    }

    /// Takes an attribute away. Errors as [`Fs::setxattr`]; ENODATA when there is none.
    pub fn removexattr(&mut self, ino: Ino, name: &[u8], now: Timestamp) -> Result<(), Errno> {
        check_args(name, 0)?;
        self.check_name(ino, name, Errno::EPERM)?;
        let inode = self.inode_mut(ino)?;
        if inode.xattrs.remove(name).is_none() {
            return Err(Errno::ENODATA);
        }
        inode.inode_moved(now);
        Ok(())
    }

    fn check_name(&self, ino: Ino, name: &[u8], not_here: Errno) -> Result<(), Errno> {
        let kind = self.inode(ino)?.kind();
        if name.starts_with(b"user.") && !matches!(kind, Kind::File | Kind::Dir) {
            return Err(not_here);
        }
        match NAMESPACES.iter().find(|space| name.starts_with(space)) {
            None => Err(Errno::EOPNOTSUPP),
            Some(space) if space.len() == name.len() => Err(Errno::EINVAL),
            Some(_) => Ok(()),
        }
    }
}

/// What Linux refuses before it looks at the inode.
pub(crate) fn check_args(name: &[u8], value_len: usize) -> Result<(), Errno> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE);
    }
    if value_len > XATTR_VALUE_MAX { Err(Errno::E2BIG) } else { Ok(()) }
}
