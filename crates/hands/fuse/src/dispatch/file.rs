//! Requests on open files.

use super::{Call, Payload};
use crate::abi::file::{
    CopyFileRangeIn, CopyFileRangeOut, FSYNC_DATA, FallocateIn, FlushIn, FsyncIn, LseekIn, LseekOut,
    OPEN_KILL_SUIDGID, OpenIn, ReadIn, ReleaseIn, WriteIn, WriteOut,
};
use crate::abi::namespace::CreateIn;
use crate::{
    CopyRange, CreateRequest, Entry, Errno, FallocateRequest, Filesystem, OpenRequest, Opened, ReadRequest,
    ReleaseRequest, ReplyBuffer, WriteRequest,
};

impl OpenRequest {
    pub(super) fn from_wire(raw: &OpenIn) -> OpenRequest {
        OpenRequest { flags: raw.flags, kill_suidgid: raw.open_flags & OPEN_KILL_SUIDGID != 0 }
    }
}

pub(super) async fn open<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let request = OpenRequest::from_wire(&call.body.take()?);
    let opened = fs.open(&call.cx, call.ino, &request).await?;
    reply.put(0, &opened.to_wire())
}

fn create_request(call: &mut Call<'_>) -> Result<CreateRequest, Errno> {
    let raw: CreateIn = call.body.take()?;
    call.cx.umask = raw.umask;
    Ok(CreateRequest {
        flags: raw.flags,
        mode: raw.mode,
        kill_suidgid: raw.open_flags & OPEN_KILL_SUIDGID != 0,
    })
}

fn created(reply: &mut ReplyBuffer, (entry, opened): (Entry, Opened)) -> Payload {
    let behind = reply.put(0, &entry.to_wire())?;
    reply.put(behind, &opened.to_wire())
}

pub(super) async fn create<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let request = create_request(call)?;
    let name = call.body.name()?;
    created(reply, fs.create(&call.cx, call.ino, name, &request).await?)
}

/// The name that comes along is the kernel's placeholder, "/".
pub(super) async fn tmpfile<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let request = create_request(call)?;
    created(reply, fs.tmpfile(&call.cx, call.ino, &request).await?)
}

pub(super) async fn read<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: ReadIn = call.body.take()?;
    // A shorter slice would look like the end of the file, so a size beyond the agreed one is an error.
    let out = reply.payload(raw.size as usize)?;
    let length = fs.read(&call.cx, call.ino, &ReadRequest::from_wire(&raw), out).await?;
    if length > raw.size as usize { Err(Errno::EIO) } else { Ok(length) }
}

pub(super) async fn write<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: WriteIn = call.body.take()?;
    let data = call.body.bytes(raw.size as usize)?;
    let length = fs.write(&call.cx, call.ino, &WriteRequest::from_wire(&raw), data).await?;
    written(reply, length as u64, u64::from(raw.size))
}

fn written(reply: &mut ReplyBuffer, length: u64, limit: u64) -> Payload {
    match u32::try_from(length) {
        Ok(size) if length <= limit => reply.put(0, &WriteOut { size, padding: 0 }),
        _ => Err(Errno::EIO),
    }
}

pub(super) async fn flush<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: FlushIn = call.body.take()?;
    fs.flush(&call.cx, call.ino, raw.fh, raw.lock_owner).await.map(|()| 0)
}

pub(super) async fn release<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: ReleaseIn = call.body.take()?;
    fs.release(&call.cx, call.ino, &ReleaseRequest::from_wire(&raw)).await.map(|()| 0)
}

pub(super) async fn fsync<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: FsyncIn = call.body.take()?;
    fs.fsync(&call.cx, call.ino, raw.fh, raw.fsync_flags & FSYNC_DATA != 0).await.map(|()| 0)
}

pub(super) async fn fallocate<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: FallocateIn = call.body.take()?;
    fs.fallocate(&call.cx, call.ino, &FallocateRequest::from_wire(&raw)).await.map(|()| 0)
}

pub(super) async fn lseek<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: LseekIn = call.body.take()?;
    let offset = fs.lseek(&call.cx, call.ino, raw.fh, raw.offset, raw.whence).await?;
    reply.put(0, &LseekOut { offset })
}

async fn copy<F: Filesystem>(fs: &F, call: &mut Call<'_>, limit: u64) -> Result<u64, Errno> {
    let raw: CopyFileRangeIn = call.body.take()?;
    let request = CopyRange {
        fh_in: raw.fh_in,
        offset_in: raw.off_in,
        ino_out: raw.nodeid_out,
        fh_out: raw.fh_out,
        offset_out: raw.off_out,
        length: raw.len.min(limit),
        flags: raw.flags,
    };
    let copied = fs.copy_file_range(&call.cx, call.ino, &request).await?;
    if copied > request.length { Err(Errno::EIO) } else { Ok(copied) }
}

/// The older form, whose reply has 32 bits for the length.
pub(super) async fn copy_file_range<F: Filesystem>(
    fs: &F,
    call: &mut Call<'_>,
    reply: &mut ReplyBuffer,
) -> Payload {
    /// Largest page-aligned length below 4 GiB.
    const LIMIT: u64 = 0xffff_f000;
    let copied = copy(fs, call, LIMIT).await?;
    written(reply, copied, LIMIT)
}

pub(super) async fn copy_file_range_64<F: Filesystem>(
    fs: &F,
    call: &mut Call<'_>,
    reply: &mut ReplyBuffer,
) -> Payload {
    let bytes_copied = copy(fs, call, u64::MAX).await?;
    reply.put(0, &CopyFileRangeOut { bytes_copied })
}
