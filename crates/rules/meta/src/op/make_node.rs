//! `MakeNode`: makes a directory or a special file.

use super::create::{Wanted, born_in};
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::tree::{Spot, target};
use skep_types::{Errno, Kind};
use skep_wire::meta::{EntryReply, MakeNode};

pub fn run(ctx: &mut Ctx<'_>, m: &MakeNode) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    if matches!(m.kind, Kind::File | Kind::Symlink) {
        return Err(Errno::EINVAL.into());
    }
    let wanted = Wanted { kind: m.kind, mode: m.mode, umask: m.umask, uid: m.uid, gid: m.gid };
    let mut born = born_in(ctx, m.parent, &parent, &wanted)?;
    if matches!(m.kind, Kind::CharDev | Kind::BlockDev) {
        born.inode.rdev = m.rdev;
    }
    let ino = ctx.choose.ino()?;
    let link = ctx.add(&mut parent, free, target(&m.name, ino, m.kind))?;
    born.inode.links.push(link);
    if m.kind == Kind::Dir {
        parent.enter();
    }
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    born.put(ctx, ino)?;
    Ok(Done::reply(&EntryReply { ino, kind: m.kind, attr: Some(born.inode.attr(ino)), live: None }))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, Kind};

    /// Goal: every kind of node is made; a directory counts in its parent's links; device numbers
    /// are kept for devices only.
    #[test]
    fn makes_nodes() {
        let mut bed = Bed::new();
        for (text, kind) in
            [("b", Kind::BlockDev), ("c", Kind::CharDev), ("p", Kind::Fifo), ("s", Kind::Socket)]
        {
            let attr = bed.call(ME, node(Ino::ROOT, text, kind)).unwrap().attr.unwrap();
            let device = matches!(kind, Kind::BlockDev | Kind::CharDev);
            assert_eq!((attr.kind, attr.rdev, attr.nlink), (kind, if device { 5 } else { 0 }, 1));
        }
        let made = bed.call(ME, node(Ino::ROOT, "d", Kind::Dir)).unwrap();
        assert_eq!(made.attr.unwrap().nlink, 2);
        assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 3);
        bed.check();
    }

    /// Goal: an existing name, a missing directory and kinds that have messages of their own are
    /// refused.
    #[test]
    fn refusals() {
        let mut bed = Bed::new();
        bed.mkdir(Ino::ROOT, "d");
        for (parent, text, kind, expected) in [
            (Ino::ROOT, "d", Kind::Dir, Errno::EEXIST),
            (Ino(99), "x", Kind::Dir, Errno::ENOENT),
            (Ino::ROOT, "x", Kind::File, Errno::EINVAL),
        ] {
            assert_eq!(bed.call(ME, node(parent, text, kind)).err(), Some(errno(expected)));
        }
        bed.check();
    }
}
