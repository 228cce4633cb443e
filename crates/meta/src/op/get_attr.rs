//! `GetAttr`: reads the attributes of an inode.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use skep_types::Ino;
use skep_wire::meta::{AttrReply, GetAttr};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &GetAttr) -> Result<Done, Fail> {
    let inode = ctx.inode(m.ino)?;
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)))
}

/// Attributes, with the layout when others write to the file.
pub fn attr_reply(ctx: &mut Ctx<'_>, ino: Ino, inode: &Inode) -> AttrReply {
    let live = ctx.live(ino, inode);
    AttrReply { attr: inode.attr(ino), live }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, ShardId};
    use skep_wire::Status;
    use skep_wire::meta::{GetAttr, OpenMode};

    /// Goal: while another client writes to a chunked file, its layout comes along; for the writer
    /// itself it does not.
    #[test]
    fn layout_comes_along_while_others_write() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 100_000);
        assert_eq!(bed.call(ME, GetAttr { ino }).unwrap().live, None);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        assert_eq!(bed.call(ME, GetAttr { ino }).unwrap().live, Some(layout));
        assert_eq!(bed.call(OTHER, GetAttr { ino }).unwrap().live, None);
        bed.close(OTHER, ino, 2);
        assert_eq!(bed.call(ME, GetAttr { ino }).unwrap().live, None);
    }

    /// Goal: an inode that is gone is ESTALE; one of another shard is the sender's mistake.
    #[test]
    fn missing_and_astray() {
        let mut bed = Bed::with(crate::Config::default(), 2);
        assert_eq!(bed.attr(Ino(999)), Err(errno(Errno::ESTALE)));
        let astray = GetAttr { ino: Ino::new(ShardId(1), 5) }.into();
        let to = bed.send_as(ME, ShardId(0), 0, astray);
        assert_eq!(bed.reply::<skep_wire::Empty>(to), Some(Err(Status::MALFORMED)));
    }
}
