//! Requests on open directories.

use super::{Call, Payload};
use crate::abi::file::{FSYNC_DATA, FsyncIn, ReadIn, ReleaseIn};
use crate::{DirSink, Filesystem, OpenRequest, ReleaseRequest, ReplyBuffer};

pub(super) async fn opendir<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let request = OpenRequest::from_wire(&call.body.take()?);
    let opened = fs.opendir(&call.cx, call.ino, &request).await?;
    reply.put(0, &opened.to_wire())
}

pub(super) async fn readdir<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: ReadIn = call.body.take()?;
    // A listing may be shorter than asked: the kernel asks for the rest.
    let size = (raw.size as usize).min(reply.capacity());
    let mut sink = DirSink::new(reply.payload(size)?, false);
    fs.readdir(&call.cx, call.ino, raw.fh, raw.offset, &mut sink).await?;
    Ok(sink.used())
}

pub(super) async fn readdirplus<F: Filesystem>(
    fs: &F,
    call: &mut Call<'_>,
    reply: &mut ReplyBuffer,
) -> Payload {
    let raw: ReadIn = call.body.take()?;
    let size = (raw.size as usize).min(reply.capacity());
    let mut sink = DirSink::new(reply.payload(size)?, true);
    fs.readdirplus(&call.cx, call.ino, raw.fh, raw.offset, &mut sink).await?;
    Ok(sink.used())
}

pub(super) async fn releasedir<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: ReleaseIn = call.body.take()?;
    fs.releasedir(&call.cx, call.ino, &ReleaseRequest::from_wire(&raw)).await.map(|()| 0)
}

pub(super) async fn fsyncdir<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: FsyncIn = call.body.take()?;
    fs.fsyncdir(&call.cx, call.ino, raw.fh, raw.fsync_flags & FSYNC_DATA != 0).await.map(|()| 0)
}
