//! `Unlink`: removes the name of something that is no directory.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::LinkRef;
use skep_types::{Errno, Ino, Kind};
use skep_wire::Empty;
use skep_wire::meta::Unlink;

pub fn run(ctx: &mut Ctx<'_>, m: &Unlink) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let place = ctx.place(m.parent, &m.name)?;
    if place.target.kind == Kind::Dir {
        return Err(Errno::EISDIR.into());
    }
    ctx.remove(&mut parent, &place)?;
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    drop_name(ctx, place.target.ino, place.link())?;
    Ok(Done::reply(&Empty {}))
}

/// An inode that is no directory loses one name.
pub fn drop_name(ctx: &mut Ctx<'_>, ino: Ino, link: LinkRef) -> Result<(), Fail> {
    let mut inode = ctx.inode(ino)?;
    if inode.nlink <= 1 {
        return ctx.bury(ino, &mut inode);
    }
    inode.nlink -= 1;
    inode.links.retain(|other| *other != link);
    inode.touch(ctx.scene.at);
    ctx.put_inode(ino, &inode);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, SetAttr};
    use skep_wire::meta::{ChangeAttr, OpenMode, ReadInline};

    /// Goal: a file without names lives on while it is open, wholly usable, and goes with its last
    /// close, its chunks too.
    #[test]
    fn open_files_outlive_their_name() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 99);
        bed.open(ME, ino, OpenMode::Write, 1).unwrap();
        bed.open(OTHER, ino, OpenMode::Read, 1).unwrap();
        bed.unlink(ME, Ino::ROOT, "f").unwrap();
        assert_eq!(bed.attr(ino).unwrap().nlink, 0);
        bed.call(ME, ChangeAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } }).unwrap();
        assert_eq!(
            bed.call(ME, ReadInline { ino, short: alloc::vec::Vec::new(), trims: Default::default() })
                .unwrap()
                .layout,
            layout
        );
        bed.check();
        bed.close(ME, ino, 2);
        assert!(bed.attr(ino).is_ok() && bed.deleted.is_empty());
        bed.close(OTHER, ino, 2);
        assert_eq!(bed.attr(ino).err(), Some(errno(Errno::ESTALE)));
        assert_eq!(bed.deleted.len(), layout.chunks().count());
        bed.check();
    }

    /// Goal: directories and missing names are refused.
    #[test]
    fn refusals() {
        let mut bed = Bed::new();
        bed.mkdir(Ino::ROOT, "d");
        assert_eq!(bed.unlink(ME, Ino::ROOT, "d"), Err(errno(Errno::EISDIR)));
        assert_eq!(bed.unlink(ME, Ino::ROOT, "x"), Err(errno(Errno::ENOENT)));
    }
}
