//! `CreateTemp`: makes an open regular file that has no name.

use super::create::{Wanted, born_in};
use super::open::open_reply;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::inode::IS_TEMP;
use skep_types::Kind;
use skep_wire::meta::CreateTemp;

/// Runs it. The file is an orphan from its birth: whoever made it has it open.
pub fn run(ctx: &mut Ctx<'_>, m: &CreateTemp) -> Result<Done, Fail> {
    let parent = ctx.dir(m.parent)?;
    let wanted = Wanted { kind: Kind::File, mode: m.mode, umask: m.umask, uid: m.uid, gid: m.gid };
    let mut born = born_in(ctx, m.parent, &parent, &wanted)?;
    born.inode.nlink = 0;
    born.inode.flags |= IS_TEMP;
    let ino = ctx.choose.ino()?;
    born.put(ctx, ino)?;
    ctx.bear_nameless(ino);
    let mut reply = open_reply(ctx, ino, &born.inode)?;
    reply.created = true;
    Ok(Done { opened: Some(ino), ..Done::reply(&reply) })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino};
    use skep_wire::meta::{Close, Closed, CreateTemp, Link, OpenMode};

    fn temp(bed: &mut Bed, who: Who) -> Ino {
        let open = OpenMode::ReadWrite;
        let wish =
            CreateTemp { parent: Ino::ROOT, mode: 0o666, umask: 0o022, uid: 7, gid: 8, open, open_seq: 1 };
        let made = bed.call(who, wish).unwrap();
        assert_eq!((made.attr.nlink, made.attr.mode, made.created), (0, 0o644, true));
        made.attr.ino
    }

    /// Goal: a file without a name is usable while it is open and goes with its last close; what was
    /// linked once stays, and unlinked again cannot be linked any more.
    #[test]
    fn lives_without_a_name_and_gets_one() {
        let mut bed = Bed::new();
        let ino = temp(&mut bed, ME);
        bed.write(ino, 0, b"data").unwrap();
        bed.check();
        bed.close(ME, ino, 2);
        assert_eq!(bed.attr(ino).err(), Some(errno(Errno::ESTALE)));
        let ino = temp(&mut bed, ME);
        let link = |text: &str| Link { ino, parent: Ino::ROOT, name: name(text) };
        assert_eq!(bed.call(ME, link("f")).unwrap().attr.unwrap().nlink, 1);
        bed.check();
        bed.close(ME, ino, 2);
        assert_eq!(bed.lookup(Ino::ROOT, "f"), Ok(ino));
        bed.open(ME, ino, OpenMode::Read, 3).unwrap();
        bed.unlink(ME, Ino::ROOT, "f").unwrap();
        assert_eq!(bed.call(ME, link("g")).err(), Some(errno(Errno::ENOENT)));
        bed.check();
    }

    /// Goal: a file without a name that its mount gave up before it was told of it goes with a close by the number of its open;
    /// so does one that is made only then.
    #[test]
    fn goes_when_nobody_was_told_of_it() {
        let mut bed = Bed::new();
        let untold = || Close { opens: alloc::vec![Closed::untold(Ino::ROOT.shard(), 1)] };
        let ino = temp(&mut bed, ME);
        bed.call(ME, untold()).unwrap();
        assert_eq!(bed.attr(ino).err(), Some(errno(Errno::ESTALE)));
        bed.call(OTHER, untold()).unwrap();
        let late = temp(&mut bed, OTHER);
        assert_eq!(bed.attr(late).err(), Some(errno(Errno::ESTALE)));
        bed.check();
    }

    /// Goal: over a restart a nameless file lives when it is reclaimed, and goes when it is not; its
    /// repeated creation opens it again.
    #[test]
    fn restarts() {
        use skep_wire::meta::{Reclaim, Reclaimed};
        let mut bed = Bed::new();
        let (kept, lost) = (temp(&mut bed, ME), temp(&mut bed, OTHER));
        bed.restart(&[1, 2]);
        let open = Reclaimed { ino: kept, mode: OpenMode::Write, open_seq: 1, reserved: 0 };
        bed.call(
            ME,
            Reclaim { opens: alloc::vec![open], locks: alloc::vec![], last: true, term: None, holds: None },
        )
        .unwrap();
        assert!(bed.attr(lost).is_ok());
        bed.call(
            OTHER,
            Reclaim { opens: alloc::vec![], locks: alloc::vec![], last: true, term: None, holds: None },
        )
        .unwrap();
        assert_eq!(bed.attr(lost).err(), Some(errno(Errno::ESTALE)));
        assert!(bed.call(ME, Link { ino: kept, parent: Ino::ROOT, name: name("k") }).is_ok());
        bed.check();
    }
}
