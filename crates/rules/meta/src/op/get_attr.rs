//! `GetAttr`: reads the attributes of an inode.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use skep_types::Ino;
use skep_wire::meta::{AttrReply, GetAttr};

pub fn run(ctx: &mut Ctx<'_>, m: &GetAttr) -> Result<Done, Fail> {
    let inode = ctx.inode(m.ino)?;
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)?))
}

/// Attributes, with the layout when others write to the file: not before the targets have made a
/// truncate that is under way, or they would still tell the length that is being cut.
pub fn attr_reply(ctx: &mut Ctx<'_>, ino: Ino, inode: &Inode) -> Result<AttrReply, Fail> {
    let live = ctx.live(ino, inode);
    if live.is_some() {
        super::size::wait_for_trim(ctx, ino)?;
    }
    Ok(AttrReply { attr: ctx.attr(ino, inode)?, live })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, ShardId};
    use skep_wire::Status;
    use skep_wire::meta::{AttrReply, GetAttr, OpenMode};

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
        let find =
            bed.send(ME, skep_wire::meta::Lookup { parent: Ino::ROOT, name: name("f"), as_told: None });
        assert!(!bed.replies.contains_key(&stat) && !bed.replies.contains_key(&find));
        bed.courier_works = true;
        bed.run_courier();
        let reply = bed.reply::<skep_wire::meta::AttrReply>(stat).unwrap().unwrap();
        assert_eq!((reply.attr.size, reply.live.is_some()), (5, true));
        assert!(bed.replies.contains_key(&find));
    }

    /// Goal: the same for every other answer that sends its reader to the targets; a listing waits for none, and
    /// leaves the question to whoever wants to know.
    #[test]
    fn no_answer_asks_for_a_length_that_is_being_cut() {
        use skep_wire::meta::{ChangeAttr, Commit, DirEntry, Link, List};
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 100_000);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        bed.courier_works = false;
        let set = skep_types::SetAttr { size: Some(5), ..Default::default() };
        bed.send(OTHER, ChangeAttr { ino, set });
        let list = List { dir: Ino::ROOT, after: 0, max: 9, with_attr: true, as_told: None };
        let entries: alloc::vec::Vec<DirEntry> = bed.call(ME, list).unwrap().entries;
        assert_eq!((entries.len(), &entries[0].attr, &entries[0].live), (1, &None, &None));
        let generation = layout.generation;
        let mtime = bed.wall();
        let commit = Commit {
            ino,
            generation,
            size: 5,
            cuts: 1,
            mtime,
            time_sets: 0,
            blocks: None,
            kill_suidgid: false,
            held: None,
        };
        let chmod = skep_types::SetAttr { mode: Some(0o600), ..Default::default() };
        // Who commits asks nobody, and so does not wait either.
        let told = bed.send_as(ME, ShardId(0), 100, commit.into());
        assert_eq!(bed.reply::<AttrReply>(told).unwrap().unwrap().live, None);
        let asked = [
            bed.send_as(Who { slot: 1, ..ME }, ShardId(0), 1, ChangeAttr { ino, set: chmod }.into()),
            bed.send_as(
                Who { slot: 2, ..ME },
                ShardId(0),
                1,
                Link { ino, parent: Ino::ROOT, name: name("g") }.into(),
            ),
        ];
        assert!(asked.iter().all(|to| !bed.replies.contains_key(to)));
        bed.courier_works = true;
        bed.run_courier();
        bed.sync();
        assert!(asked.iter().all(|to| bed.replies.contains_key(to)));
        bed.check();
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
