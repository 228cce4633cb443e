//! Extended attributes.

use super::hold::mode_of_acl;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Shared, Told};
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use skep_types::{Attr, Errno, Ino, SetAttr};
use skep_wire::Refusal;
use skep_wire::meta::{GetXattr, ListXattr, RemoveXattr, SetXattr};

/// Names of POSIX ACLs.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Namespaces that are stored as they are; who may use which, the kernel checks.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// The one that kernels ask for before a file is changed.
const CAPABILITY: &[u8] = b"security.capability";

/// How an extended attribute is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XattrHow {
    /// An existing one is EEXIST.
    pub create: bool,
    /// A missing one is ENODATA.
    pub replace: bool,
    /// An access ACL set by a caller outside the group: clear sgid.
    pub kill_sgid: bool,
}

/// Is it known that a file has no capabilities?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    No,
    /// It has none, and nothing of it has changed since.
    Absent,
    /// Unknown; the file is known with this change counter.
    At(u64),
}

fn checked(name: &[u8]) -> Result<Bytes, Refusal> {
    if name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE.into());
    }
    if ACLS.contains(&name) {
        return Ok(Bytes(name.to_vec()));
    }
    let Some(namespace) = NAMESPACES.iter().find(|namespace| name.starts_with(namespace)) else {
        return Err(Errno::EOPNOTSUPP.into());
    };
    if name.len() == namespace.len() {
        return Err(Errno::EINVAL.into());
    }
    Ok(Bytes(name.to_vec()))
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Value of an extended attribute.
    pub async fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let flag = match name {
            _ if ACLS.contains(&name) => Attr::NO_ACL,
            CAPABILITY => Attr::NO_CAPABILITY,
            _ => Attr::NO_OTHER_XATTR,
        };
        if self.is_known_without(ino, flag) && checked(name).is_ok() {
            return Err(Errno::ENODATA);
        }
        if name == ACLS[0] {
            return self.access_acl(ino).await;
        }
        let known = match name {
            CAPABILITY => self.shared.with(|s| s.capability_known(ino)),
            _ => Known::No,
        };
        if known == Known::Absent {
            return Err(Errno::ENODATA);
        }
        let result = async {
            let name = checked(name)?;
            self.ask(ino.shard(), &GetXattr { ino, name }).await
        };
        let result = self.errno(result.await).map(|reply| reply.data.0);
        if let (Known::At(change), Err(Errno::ENODATA)) = (known, &result) {
            self.shared.with(|s| s.no_capability(ino, change));
        }
        result
    }

    /// Names of all extended attributes, each followed by NUL.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        if self.is_known_without(ino, Attr::NO_ACL | Attr::NO_CAPABILITY | Attr::NO_OTHER_XATTR) {
            return Ok(Vec::new());
        }
        self.errno(self.ask(ino.shard(), &ListXattr { ino }).await).map(|reply| reply.data.0)
    }

    /// Sets an extended attribute. One that is an access ACL changes the mode.
    pub async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], how: XattrHow) -> Result<(), Errno> {
        let result = async {
            let name = checked(name)?;
            if value.len() > XATTR_VALUE_MAX {
                return Err(Errno::E2BIG.into());
            }
            let XattrHow { create, replace, kill_sgid } = how;
            if name.0 == ACLS[0] && !create && !replace && self.keep_acl(ino, value).await? {
                return Ok(());
            }
            let value = Bytes(value.to_vec());
            self.tell_first(ino).await?;
            if ACLS.contains(&&name.0[..]) || name.0 == CAPABILITY {
                // An own later commit must not clear what is set now: suid and sgid, capabilities.
                self.commit(ino).await?;
            }
            let message = SetXattr { ino, name, value, create, replace, kill_sgid };
            let (reply, told) = self.settle_told(self.changing(ino, &message)).await;
            self.xattr_changed(ino, &message.name, told.as_deref()).await;
            reply.map(drop)
        };
        self.errno(result.await)
    }

    /// Removes an extended attribute.
    pub async fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let result = async {
            let name = checked(name)?;
            self.tell_first(ino).await?;
            let message = RemoveXattr { ino, name };
            let (reply, told) = self.settle_told(self.changing(ino, &message)).await;
            self.xattr_changed(ino, &message.name, told.as_deref()).await;
            reply.map(drop)
        };
        self.errno(result.await)
    }

    /// Keeps an ACL that says no more than a mode does, if the file is held.
    async fn keep_acl(&self, ino: Ino, value: &[u8]) -> Result<bool, Refusal> {
        let mode = self.held_attr(ino).and_then(|attr| mode_of_acl(value, attr.mode));
        let Some(mode) = mode else { return Ok(false) };
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        Ok(self.keep_attr(ino, &set).await?.is_some())
    }

    /// The access ACL, which kernels ask for at every step of a path.
    async fn access_acl(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let change = match self.shared.with(|s| s.acls.ask(ino, self.port.now())) {
            Ok(acl) => return acl.ok_or(Errno::ENODATA),
            Err(change) => change,
        };
        let name = Bytes(ACLS[0].to_vec());
        let result = self.errno(self.ask(ino.shard(), &GetXattr { ino, name }).await);
        let result = result.map(|reply| reply.data.0);
        match &result {
            Ok(acl) => self.shared.with(|s| s.acls.got(ino, change, Some(acl.clone()))),
            Err(Errno::ENODATA) => self.shared.with(|s| s.acls.got(ino, change, None)),
            Err(_) => {}
        }
        result
    }

    /// An ACL changes the mode. The answer to a change of an extended attribute has no attributes, unless leases bring them.
    async fn xattr_changed(&self, ino: Ino, name: &Bytes, told: Option<&Told>) {
        // Of what has no name it says what its row has, whoever writes to it.
        let is_it = |attr: &&Attr| attr.ino == ino && attr.nlink > 0;
        let told = told.and_then(|told| told.touched.iter().find(is_it)).cloned();
        let is_asked = self.shared.with(|s| {
            s.acls.forget(ino);
            let Some(inode) = s.inodes.get_mut(ino) else { return false };
            inode.no_capability = 0;
            let is_told = told.is_some();
            told.map(|attr| s.inodes.merge_own(attr));
            !is_told
        });
        if is_asked && ACLS.contains(&&name.0[..]) {
            // A failure is not the program's business: the next answer brings them.
            let _ = self.fresh_attr(ino).await;
        }
    }
}

impl Shared {
    fn capability_known(&self, ino: Ino) -> Known {
        let Some(inode) = self.inodes.get(ino) else { return Known::No };
        match &inode.attr {
            Some(attr) if attr.change != 0 && attr.change == inode.no_capability => Known::Absent,
            Some(attr) => Known::At(attr.change),
            None => Known::No,
        }
    }

    fn no_capability(&mut self, ino: Ino, change: u64) {
        if let Some(inode) = self.inodes.get_mut(ino) {
            inode.no_capability = change;
        }
    }
}
