//! `RemoveDir`: removes an empty directory.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_types::{Errno, Kind};
use skep_wire::Empty;
use skep_wire::meta::RemoveDir;

pub fn run(ctx: &mut Ctx<'_>, m: &RemoveDir) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let place = ctx.place(m.parent, &m.name)?;
    if place.target.kind != Kind::Dir {
        return Err(Errno::ENOTDIR.into());
    }
    let ino = place.target.ino;
    if !ctx.is_home(ino) {
        return super::make_dir_on::retire(ctx, m, &mut parent, &place);
    }
    ctx.require_no_locked_name(ino)?;
    let mut inode = ctx.inode(ino)?;
    if inode.entries > 0 {
        return Err(Errno::ENOTEMPTY.into());
    }
    ctx.remove(&mut parent, &place)?;
    parent.leave();
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.bury(ino, &mut inode)?;
    Ok(Done::reply(&Empty {}))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino};
    use skep_wire::meta::{List, OpenMode, RemoveDir};

    fn rmdir(bed: &mut Bed, text: &str) -> Result<(), skep_wire::Status> {
        bed.call(ME, RemoveDir { parent: Ino::ROOT, name: name(text) }).map(|_| ())
    }

    /// Goal: an empty directory goes and its parent loses a link; others are refused.
    #[test]
    fn only_empty_directories_go() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        bed.create(ME, dir, "f");
        bed.create(ME, Ino::ROOT, "f");
        assert_eq!(rmdir(&mut bed, "d"), Err(errno(Errno::ENOTEMPTY)));
        assert_eq!(rmdir(&mut bed, "f"), Err(errno(Errno::ENOTDIR)));
        assert_eq!(rmdir(&mut bed, "x"), Err(errno(Errno::ENOENT)));
        bed.unlink(ME, dir, "f").unwrap();
        rmdir(&mut bed, "d").unwrap();
        assert_eq!(bed.attr(Ino::ROOT).unwrap().nlink, 2);
        bed.check();
    }

    /// Goal: a removed directory that is still open lists as empty and takes no new names.
    #[test]
    fn open_directories_outlive_their_name() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        bed.open(ME, dir, OpenMode::Read, 1).unwrap();
        rmdir(&mut bed, "d").unwrap();
        let list = bed.call(ME, List { dir, after: 0, max: 9, with_attr: false, as_told: None }).unwrap();
        assert!(list.entries.is_empty() && list.end);
        assert_eq!(bed.try_create(ME, dir, "x").err(), Some(errno(Errno::ENOENT)));
        assert_eq!(bed.lookup(dir, "x"), Err(errno(Errno::ENOENT)));
        bed.check();
        bed.close(ME, dir, 2);
        assert_eq!(bed.attr(dir).err(), Some(errno(Errno::ESTALE)));
        bed.check();
    }
}
