//! `ReadLink`: reads the target of a symbolic link.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_types::{Errno, Kind};
use skep_wire::meta::{DataReply, ReadLink};

pub fn run(ctx: &mut Ctx<'_>, m: &ReadLink) -> Result<Done, Fail> {
    let inode = ctx.inode(m.ino)?;
    if inode.kind != Kind::Symlink {
        return Err(Errno::EINVAL.into());
    }
    Ok(Done::reply(&DataReply { data: inode.target }))
}
