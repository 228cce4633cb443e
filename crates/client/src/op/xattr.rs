//! Extended attributes.

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use skep_types::{Errno, Ino};
use skep_wire::Refusal;
use skep_wire::meta::{GetXattr, ListXattr, RemoveXattr, SetXattr};

/// The only namespace that programs may use so far. Others need no request: kernels ask for
/// `security.capability` and ACLs all the time.
const NAMESPACE: &[u8] = b"user.";

fn checked(name: &[u8]) -> Result<Bytes, Refusal> {
    if name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE.into());
    }
    if !name.starts_with(NAMESPACE) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if name.len() == NAMESPACE.len() {
        return Err(Errno::EINVAL.into());
    }
    Ok(Bytes(name.to_vec()))
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Value of an extended attribute.
    pub async fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let result = async {
            let name = checked(name)?;
            self.ask(ino.shard(), &GetXattr { ino, name }).await
        };
        self.errno(result.await).map(|reply| reply.data.0)
    }

    /// Names of all extended attributes, each followed by NUL.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        self.errno(self.ask(ino.shard(), &ListXattr { ino }).await).map(|reply| reply.data.0)
    }

    /// Sets an extended attribute. `create`: an existing one is EEXIST; `replace`: a missing one is
    /// ENODATA.
    pub async fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<(), Errno> {
        let result = async {
            let name = checked(name)?;
            if value.len() > XATTR_VALUE_MAX {
                return Err(Errno::E2BIG.into());
            }
            let message =
                SetXattr { kill_sgid: false, ino, name, value: Bytes(value.to_vec()), create, replace };
            self.change_ino(ino, &message).await
        };
        self.errno(result.await).map(|_| ())
    }

    /// Removes an extended attribute.
    pub async fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let result = async {
            let name = checked(name)?;
            self.change_ino(ino, &RemoveXattr { ino, name }).await
        };
        self.errno(result.await).map(|_| ())
    }
}
