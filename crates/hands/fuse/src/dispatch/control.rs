//! Locks, ioctl and poll.

use super::{Call, Payload};
use crate::abi::control::{IoctlIn, IoctlOut, PollIn, PollOut};
use crate::abi::lock::{LK_FLOCK, LkIn, LkOut};
use crate::{Errno, Filesystem, IoctlRequest, LockRequest, ReplyBuffer, Waited};

pub(super) async fn getlk<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: LkIn = call.body.take()?;
    let held = fs.getlk(&call.cx, call.ino, &LockRequest::from_wire(&raw)?).await?;
    reply.put(0, &LkOut { lk: held.to_wire() })
}

pub(super) async fn setlk<F: Filesystem>(fs: &F, call: &mut Call<'_>, wait: bool) -> Result<Waited, Errno> {
    let raw: LkIn = call.body.take()?;
    let request = LockRequest::from_wire(&raw)?;
    if raw.lk_flags & LK_FLOCK != 0 {
        fs.flock(&call.cx, call.ino, &request, wait).await
    } else if wait {
        fs.setlkw(&call.cx, call.ino, &request).await
    } else {
        fs.setlk(&call.cx, call.ino, &request).await.map(|()| Waited::Now)
    }
}

pub(super) async fn ioctl<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: IoctlIn = call.body.take()?;
    let input = call.body.bytes(raw.in_size as usize)?;
    let head = size_of::<IoctlOut>();
    let limit = raw.out_size as usize;
    let out = &mut reply.payload(head.checked_add(limit).ok_or(Errno::EINVAL)?)?[head..];
    let (result, length) = fs.ioctl(&call.cx, call.ino, &IoctlRequest::from_wire(&raw), input, out).await?;
    if length > limit {
        return Err(Errno::EIO);
    }
    reply.put(0, &IoctlOut { result, ..IoctlOut::default() })?;
    Ok(head + length)
}

pub(super) async fn poll<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: PollIn = call.body.take()?;
    let revents = fs.poll(&call.cx, call.ino, raw.fh, raw.events).await?;
    reply.put(0, &PollOut { revents, padding: 0 })
}
