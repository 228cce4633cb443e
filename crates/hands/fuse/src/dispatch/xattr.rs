//! Requests on extended attributes.

use super::{Call, Payload};
use crate::abi::xattr::{GetxattrIn, GetxattrOut, SetxattrIn};
use crate::{Errno, Filesystem, ReplyBuffer};

/// In `SetxattrIn::setxattr_flags`: clear sgid.
const ACL_KILL_SGID: u32 = 1 << 0;
/// Largest value and largest list of names that Linux knows.
const XATTR_LIMIT: usize = 65_536;

pub(super) async fn setxattr<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: SetxattrIn = call.body.take()?;
    let name = call.body.xattr_name()?;
    let value = call.body.bytes(raw.size as usize)?;
    let kill_sgid = raw.setxattr_flags & ACL_KILL_SGID != 0;
    fs.setxattr(&call.cx, call.ino, name, value, raw.flags, kill_sgid).await.map(|()| 0)
}

pub(super) async fn getxattr<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: GetxattrIn = call.body.take()?;
    let name = call.body.xattr_name()?;
    let size = (raw.size as usize).min(XATTR_LIMIT);
    let length = fs.getxattr(&call.cx, call.ino, name, reply.payload(size)?).await?;
    sized(size, length, reply)
}

pub(super) async fn listxattr<F: Filesystem>(
    fs: &F,
    call: &mut Call<'_>,
    reply: &mut ReplyBuffer,
) -> Payload {
    let raw: GetxattrIn = call.body.take()?;
    let size = (raw.size as usize).min(XATTR_LIMIT);
    let length = fs.listxattr(&call.cx, call.ino, reply.payload(size)?).await?;
    sized(size, length, reply)
}

/// A caller without a buffer gets the length, one with a buffer the bytes.
fn sized(size: usize, length: usize, reply: &mut ReplyBuffer) -> Payload {
    if size == 0 {
        let size = u32::try_from(length).map_err(|_| Errno::EOVERFLOW)?;
        return reply.put(0, &GetxattrOut { size, padding: 0 });
    }
    if length > size { Err(Errno::ERANGE) } else { Ok(length) }
}

pub(super) async fn removexattr<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let name = call.body.xattr_name()?;
    fs.removexattr(&call.cx, call.ino, name).await.map(|()| 0)
}
