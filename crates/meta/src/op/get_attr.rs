//! `GetAttr`: reads the attributes of an inode.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use skep_types::Ino;
use skep_wire::meta::{AttrReply, GetAttr};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &GetAttr) -> Result<Done, Fail> {
    let inode = ctx.inode(m.ino)?;
    let reply = attr_reply(ctx, m.ino, &inode);
    if reply.live.is_some() {
        // The targets would still tell the length that is being cut.
        super::size::wait_for_trim(ctx, m.ino)?;
    }
    Ok(Done::reply(&reply))
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

    /// Goal: while a truncate is on its way to the targets, nobody is sent to ask them for the size.
    #[test]
    fn sizes_wait_for_a_truncate() {
        let mut bed = Bed::new();
        let (ino, _) = bed.grown("f", 100_000);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        bed.courier_works = false;
        let set = skep_types::SetAttr { size: Some(5), ..Default::default() };
        bed.send(OTHER, skep_wire::meta::ChangeAttr { ino, set });
        let stat = bed.send(ME, GetAttr { ino });
        let find = bed.send(ME, skep_wire::meta::Lookup { parent: Ino::ROOT, name: name("f") });
        assert!(!bed.replies.contains_key(&stat) && !bed.replies.contains_key(&find));
        bed.courier_works = true;
        bed.run_courier();
        let reply = bed.reply::<skep_wire::meta::AttrReply>(stat).unwrap().unwrap();
        assert_eq!((reply.attr.size, reply.live.is_some()), (5, true));
        assert!(bed.replies.contains_key(&find));
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
