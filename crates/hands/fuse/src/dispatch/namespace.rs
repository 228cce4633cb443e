//! Requests on names.

use super::{Call, Payload};
use crate::abi::namespace::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn};
use crate::decode::LINK_MAX;
use crate::{Errno, FileKind, Filesystem, ReplyBuffer};

/// Rename flags with a meaning here: NOREPLACE and EXCHANGE.
const RENAME_KNOWN: u32 = 1 | 2;

pub(super) async fn lookup<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let name = call.body.lookup_name()?;
    let entry = fs.lookup(&call.cx, call.ino, name).await?;
    reply.put(0, &entry.to_wire())
}

pub(super) async fn readlink<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let out = reply.payload(LINK_MAX)?;
    match fs.readlink(&call.cx, call.ino, out).await? {
        length if length <= LINK_MAX => Ok(length),
        _ => Err(Errno::ENAMETOOLONG),
    }
}

pub(super) async fn symlink<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let name = call.body.name()?;
    let target = call.body.link_target()?;
    let entry = fs.symlink(&call.cx, call.ino, name, target).await?;
    reply.put(0, &entry.to_wire())
}

pub(super) async fn mknod<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: MknodIn = call.body.take()?;
    let name = call.body.name()?;
    match FileKind::from_mode(raw.mode) {
        None | Some(FileKind::Directory | FileKind::Symlink) => return Err(Errno::EINVAL),
        Some(_) => {}
    }
    call.cx.umask = raw.umask;
    let entry = fs.mknod(&call.cx, call.ino, name, raw.mode, raw.rdev).await?;
    reply.put(0, &entry.to_wire())
}

pub(super) async fn mkdir<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: MkdirIn = call.body.take()?;
    let name = call.body.name()?;
    call.cx.umask = raw.umask;
    let entry = fs.mkdir(&call.cx, call.ino, name, raw.mode).await?;
    reply.put(0, &entry.to_wire())
}

pub(super) async fn unlink<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let name = call.body.name()?;
    fs.unlink(&call.cx, call.ino, name).await.map(|()| 0)
}

pub(super) async fn rmdir<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let name = call.body.name()?;
    fs.rmdir(&call.cx, call.ino, name).await.map(|()| 0)
}

pub(super) async fn rename<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: RenameIn = call.body.take()?;
    rename_with(fs, call, raw.newdir, 0).await
}

pub(super) async fn rename2<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: Rename2In = call.body.take()?;
    if raw.flags & !RENAME_KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    rename_with(fs, call, raw.newdir, raw.flags).await
}

async fn rename_with<F: Filesystem>(fs: &F, call: &mut Call<'_>, newdir: u64, flags: u32) -> Payload {
    let from = call.body.name()?;
    let to = call.body.name()?;
    fs.rename(&call.cx, (call.ino, from), (newdir, to), flags).await.map(|()| 0)
}

pub(super) async fn link<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: LinkIn = call.body.take()?;
    let name = call.body.name()?;
    let entry = fs.link(&call.cx, raw.oldnodeid, call.ino, name).await?;
    reply.put(0, &entry.to_wire())
}
