//! Requests on inodes.

use super::{Call, Payload};
use crate::abi::control::AccessIn;
use crate::abi::node::{BatchForgetIn, ForgetIn, GETATTR_FH, GetattrIn, SetattrIn};
use crate::{Filesystem, Forgets, ReplyBuffer, SetAttr};

pub(super) async fn forget<F: Filesystem>(fs: &F, call: &mut Call<'_>) {
    if let Ok(raw) = call.body.take::<ForgetIn>() {
        fs.forget(Forgets::one(call.ino, raw.nlookup)).await;
    }
}

pub(super) async fn batch_forget<F: Filesystem>(fs: &F, call: &mut Call<'_>) {
    if let Ok(raw) = call.body.take::<BatchForgetIn>() {
        fs.forget(Forgets::many(raw.count, call.body.rest())).await;
    }
}

pub(super) async fn getattr<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: GetattrIn = call.body.take()?;
    let fh = (raw.getattr_flags & GETATTR_FH != 0).then_some(raw.fh);
    let attr = fs.getattr(&call.cx, call.ino, fh).await?;
    reply.put(0, &attr.to_wire())
}

pub(super) async fn setattr<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let raw: SetattrIn = call.body.take()?;
    let set = SetAttr::from_wire(&raw)?;
    let attr = fs.setattr(&call.cx, call.ino, &set).await?;
    reply.put(0, &attr.to_wire())
}

pub(super) async fn statfs<F: Filesystem>(fs: &F, call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Payload {
    let stat = fs.statfs(&call.cx, call.ino).await?;
    reply.put(0, &stat.to_wire())
}

pub(super) async fn access<F: Filesystem>(fs: &F, call: &mut Call<'_>) -> Payload {
    let raw: AccessIn = call.body.take()?;
    fs.access(&call.cx, call.ino, raw.mask).await.map(|()| 0)
}
