//! `Link`: makes a hard link.

use super::lookup::entry_reply;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::inode::IS_TEMP;
use crate::tree::{Spot, target};
use skep_types::Errno;
use skep_types::limits::LINKS_MAX;
use skep_wire::meta::Link;

pub fn run(ctx: &mut Ctx<'_>, m: &Link) -> Result<Done, Fail> {
    if m.ino.shard() != m.parent.shard() {
        return Err(Errno::EXDEV.into());
    }
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    let mut inode = ctx.inode(m.ino)?;
    if inode.is_dir() {
        return Err(Errno::EPERM.into());
    }
    if inode.nlink == 0 {
        if inode.flags & IS_TEMP == 0 {
            return Err(Errno::ENOENT.into());
        }
        ctx.unbury(m.ino);
        inode.flags &= !IS_TEMP;
    }
    if inode.nlink >= LINKS_MAX {
        return Err(Errno::EMLINK.into());
    }
    let link = ctx.add(&mut parent, free, target(&m.name, m.ino, inode.kind))?;
    inode.nlink += 1;
    inode.links.push(link);
    inode.touch(ctx.scene.at);
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&entry_reply(ctx, (m.ino, inode.kind), false)?))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::limits::LINKS_MAX;
    use skep_types::{Errno, Ino, ShardId};
    use skep_wire::meta::{Link, OpenMode};

    fn link(bed: &mut Bed, ino: Ino, parent: Ino, text: &str) -> Result<u32, skep_wire::Status> {
        bed.call(ME, Link { ino, parent, name: name(text) }).map(|reply| reply.attr.unwrap().nlink)
    }

    /// Goal: names are counted, the inode's ctime moves and its mtime does not; the last name
    /// ends it.
    #[test]
    fn names_are_counted() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        let file = bed.create(ME, Ino::ROOT, "f");
        let before = bed.attr(file).unwrap();
        assert_eq!(link(&mut bed, file, dir, "g"), Ok(2));
        let after = bed.attr(file).unwrap();
        assert!(after.ctime > before.ctime && after.mtime == before.mtime);
        bed.check();
        bed.unlink(ME, Ino::ROOT, "f").unwrap();
        assert_eq!(bed.attr(file).unwrap().nlink, 1);
        bed.unlink(ME, dir, "g").unwrap();
        assert_eq!(bed.attr(file).err(), Some(errno(Errno::ESTALE)));
        bed.check();
    }

    /// Goal: directories, existing names, nameless inodes, too many names and other shards are
    /// refused.
    #[test]
    fn refusals() {
        let mut bed = Bed::with(crate::Config::default(), 2);
        let dir = bed.mkdir(Ino::ROOT, "d");
        let file = bed.create(ME, Ino::ROOT, "f");
        assert_eq!(link(&mut bed, dir, Ino::ROOT, "x"), Err(errno(Errno::EPERM)));
        assert_eq!(link(&mut bed, file, Ino::ROOT, "d"), Err(errno(Errno::EEXIST)));
        assert_eq!(link(&mut bed, Ino::new(ShardId(1), 9), Ino::ROOT, "x"), Err(errno(Errno::EXDEV)));
        for n in 1..LINKS_MAX {
            link(&mut bed, file, dir, &alloc::format!("{n}")).unwrap();
        }
        assert_eq!(link(&mut bed, file, dir, "x"), Err(errno(Errno::EMLINK)));
        bed.check();
        let other = bed.create(ME, Ino::ROOT, "o");
        bed.open(ME, other, OpenMode::Read, 1).unwrap();
        bed.unlink(ME, Ino::ROOT, "o").unwrap();
        assert_eq!(link(&mut bed, other, Ino::ROOT, "o"), Err(errno(Errno::ENOENT)));
    }
}
