//! `Rename`: moves a name.

use super::unlink::drop_name;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::limit::DEPTH_MAX;
use crate::row::{Inode, LinkRef};
use crate::tree::{Place, Spot, target};
use skep_types::{Errno, Ino, Kind};
use skep_wire::Empty;
use skep_wire::meta::Rename;
use skep_wire::{Refusal, Status};

pub fn run(ctx: &mut Ctx<'_>, m: &Rename) -> Result<Done, Fail> {
    if m.no_replace && m.exchange {
        return Err(Errno::EINVAL.into());
    }
    if m.parent.shard() != m.to_parent.shard() {
        return Err(Errno::EXDEV.into());
    }
    let mut dirs = Dirs::read(ctx, m)?;
    let from = ctx.place(m.parent, &m.name)?;
    let to = ctx.find(m.to_parent, &m.to_name)?;
    if m.no_replace && matches!(to, Spot::Taken(_)) {
        return Err(Errno::EEXIST.into());
    }
    if m.exchange && matches!(to, Spot::Free(_)) {
        return Err(Errno::ENOENT.into());
    }
    let moves = m.parent != m.to_parent;
    if moves {
        check_cycle(ctx, m, &from, &to)?;
    }
    if let Spot::Taken(place) = &to
        && place.target.ino == from.target.ino
    {
        return Ok(Done::reply(&Empty {}));
    }
    // Two shards would have to change: the one with the entry and the one with the inode.
    let stays_put = |ctx: &Ctx<'_>, place: &Place| ctx.is_home(place.target.ino) || !moves;
    if !stays_put(ctx, &from) {
        return Err(Errno::EXDEV.into());
    }
    match to {
        Spot::Taken(to) if m.exchange => {
            if !stays_put(ctx, &to) {
                return Err(Errno::EXDEV.into());
            }
            exchange(ctx, m, &mut dirs, &from, &to)?;
        }
        Spot::Taken(to) => replace(ctx, m, &mut dirs, &from, &to)?,
        Spot::Free(free) => {
            let entry = target(&m.to_name, from.target.ino, from.target.kind);
            let link = ctx.add(dirs.to(), free, entry)?;
            // The new name may continue the chain that the old one ends: look again.
            let old = ctx.place_at(from.link())?.ok_or(Errno::ENOENT)?;
            ctx.remove(&mut dirs.from, &old)?;
            dirs.count(&from, None);
            moved(ctx, &from, link)?;
        }
    }
    dirs.write(ctx, m);
    Ok(Done::reply(&Empty {}))
}

/// The directories that a rename changes: one or two.
struct Dirs {
    from: Inode,
    other: Option<Inode>,
}

impl Dirs {
    fn read(ctx: &Ctx<'_>, m: &Rename) -> Result<Self, Fail> {
        let from = ctx.dir(m.parent)?;
        let other = if m.parent == m.to_parent { None } else { Some(ctx.dir(m.to_parent)?) };
        Ok(Self { from, other })
    }

    fn to(&mut self) -> &mut Inode {
        self.other.as_mut().unwrap_or(&mut self.from)
    }

    /// Sub-directories are counted as links: `moved` left, `gone` is no more.
    fn count(&mut self, moved: &Place, gone: Option<&Place>) {
        if moved.target.kind == Kind::Dir {
            self.from.leave();
            self.to().enter();
        }
        if gone.is_some_and(|place| place.target.kind == Kind::Dir) {
            self.to().leave();
        }
    }

    fn write(mut self, ctx: &mut Ctx<'_>, m: &Rename) {
        let at = ctx.scene.at;
        self.from.touch_content(at);
        ctx.put_inode(m.parent, &self.from);
        if let Some(mut other) = self.other.take() {
            other.touch_content(at);
            ctx.put_inode(m.to_parent, &other);
        }
    }
}

/// The inode behind `place` has its name at `link` now.
fn moved(ctx: &mut Ctx<'_>, place: &Place, link: LinkRef) -> Result<(), Fail> {
    let ino = place.target.ino;
    if !ctx.is_home(ino) {
        return Ok(());
    }
    let mut inode = ctx.inode(ino)?;
    Ctx::relink(&mut inode, place.link(), link);
    inode.touch(ctx.scene.at);
    ctx.put_inode(ino, &inode);
    Ok(())
}

fn exchange(ctx: &mut Ctx<'_>, m: &Rename, dirs: &mut Dirs, from: &Place, to: &Place) -> Result<(), Fail> {
    ctx.retarget(from, target(&m.name, to.target.ino, to.target.kind));
    ctx.retarget(to, target(&m.to_name, from.target.ino, from.target.kind));
    moved(ctx, from, to.link())?;
    moved(ctx, to, from.link())?;
    if from.target.kind == Kind::Dir {
        dirs.from.leave();
        dirs.to().enter();
    }
    if to.target.kind == Kind::Dir {
        dirs.to().leave();
        dirs.from.enter();
    }
    Ok(())
}

fn replace(ctx: &mut Ctx<'_>, m: &Rename, dirs: &mut Dirs, from: &Place, to: &Place) -> Result<(), Fail> {
    let victim = to.target.ino;
    match (from.target.kind == Kind::Dir, to.target.kind == Kind::Dir) {
        (true, false) => return Err(Errno::ENOTDIR.into()),
        (false, true) => return Err(Errno::EISDIR.into()),
        (true, true) => {
            if !ctx.is_home(victim) {
                return Err(Errno::EXDEV.into());
            }
            ctx.require_no_locked_name(victim)?;
            let mut inode = ctx.inode(victim)?;
            if inode.entries > 0 {
                return Err(Errno::ENOTEMPTY.into());
            }
            ctx.bury(victim, &mut inode)?;
        }
        (false, false) => drop_name(ctx, victim, to.link())?,
    }
    ctx.retarget(to, target(&m.to_name, from.target.ino, from.target.kind));
    // Removing the old name may shorten a chain that the new one is in: it reads its own writes.
    ctx.remove(&mut dirs.from, from)?;
    dirs.count(from, Some(to));
    moved(ctx, from, to.link())
}

/// No directory may become its own ancestor.
fn check_cycle(ctx: &mut Ctx<'_>, m: &Rename, from: &Place, to: &Spot) -> Result<(), Fail> {
    if ctx.scene.replay {
        return Ok(());
    }
    if from.target.kind == Kind::Dir && is_above(ctx, from.target.ino, m.to_parent)? {
        return Err(Errno::EINVAL.into());
    }
    if let Spot::Taken(place) = to
        && place.target.kind == Kind::Dir
        && is_above(ctx, place.target.ino, m.parent)?
    {
        return Err(if m.exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
    }
    Ok(())
}

/// Is `ino` the directory `below`, or one of its ancestors?
fn is_above(ctx: &mut Ctx<'_>, ino: Ino, below: Ino) -> Result<bool, Fail> {
    let mut at = below;
    for _ in 0..DEPTH_MAX {
        if at == ino {
            return Ok(true);
        }
        if at == Ino::ROOT {
            return Ok(false);
        }
        let is_here = ctx.is_home(at) || ctx.choose.is_beside(at.shard());
        let inode = match ctx.find_inode(at)?.filter(|_| is_here) {
            Some(inode) => inode,
            // What is below `ino` has no name for anything outside this shard, so the rest of the way up is not below it.
            None if ctx.header()?.away == 0 => return Ok(false),
            // An ancestor on another shard cannot be looked at here.
            None => return Err(Errno::EXDEV.into()),
        };
        at = inode.parent();
    }
    Err(Refusal::with(
        Status::errno(Errno::ELOOP),
        alloc::format!(
            "the new place lies more than {DEPTH_MAX} directories deep; move it nearer to the root"
        ),
    )
    .into())
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino};
    use skep_wire::Status;
    use skep_wire::meta::{Link, OpenMode, Rename};

    fn mv(bed: &mut Bed, m: Rename) -> Result<(), Status> {
        let done = bed.call(ME, m).map(|_| ());
        bed.check();
        done
    }

    const ROOT: Ino = Ino::ROOT;

    /// Goal: a file moves within and between directories; directories' times move, the inode's
    /// ctime does, its mtime does not.
    #[test]
    fn files_move() {
        let mut bed = Bed::new();
        let (a, b) = (bed.mkdir(ROOT, "a"), bed.mkdir(ROOT, "b"));
        let file = bed.create(ME, a, "f");
        let before = (bed.attr(a).unwrap(), bed.attr(b).unwrap(), bed.attr(file).unwrap());
        mv(&mut bed, rename(a, "f", b, "g")).unwrap();
        let after = (bed.attr(a).unwrap(), bed.attr(b).unwrap(), bed.attr(file).unwrap());
        assert!(after.0.mtime > before.0.mtime && after.1.mtime > before.1.mtime);
        assert!(after.2.ctime > before.2.ctime && after.2.mtime == before.2.mtime);
        assert_eq!((bed.lookup(a, "f"), bed.lookup(b, "g")), (Err(errno(Errno::ENOENT)), Ok(file)));
        mv(&mut bed, rename(b, "g", b, "h")).unwrap();
        assert_eq!(bed.lookup(b, "h"), Ok(file));
        assert_eq!(mv(&mut bed, rename(b, "x", b, "y")), Err(errno(Errno::ENOENT)));
        assert_eq!(mv(&mut bed, rename(b, "h", b, "h")), Ok(()), "onto itself: nothing");
    }

    /// Goal: directories move with their links counted, never below themselves, and replace only
    /// empty directories.
    #[test]
    fn directories_move() {
        let mut bed = Bed::new();
        let (a, b) = (bed.mkdir(ROOT, "a"), bed.mkdir(ROOT, "b"));
        let (sub, deep) = (bed.mkdir(a, "s"), bed.mkdir(b, "t"));
        let below = bed.mkdir(sub, "u");
        assert_eq!(mv(&mut bed, rename(ROOT, "a", below, "x")), Err(errno(Errno::EINVAL)));
        assert_eq!(mv(&mut bed, rename(ROOT, "a", a, "x")), Err(errno(Errno::EINVAL)));
        assert_eq!(mv(&mut bed, rename(sub, "u", ROOT, "a")), Err(errno(Errno::ENOTEMPTY)));
        mv(&mut bed, rename(a, "s", b, "s")).unwrap();
        assert_eq!((bed.attr(a).unwrap().nlink, bed.attr(b).unwrap().nlink), (2, 4));
        assert_eq!(mv(&mut bed, rename(b, "t", b, "s")), Err(errno(Errno::ENOTEMPTY)));
        mv(&mut bed, rename(sub, "u", b, "t")).unwrap();
        assert_eq!(bed.attr(deep).err(), Some(errno(Errno::ESTALE)));
        assert_eq!((bed.attr(sub).unwrap().nlink, bed.attr(b).unwrap().nlink), (2, 4));
        let file = bed.create(ME, ROOT, "f");
        assert_eq!(mv(&mut bed, rename(ROOT, "f", ROOT, "a")), Err(errno(Errno::EISDIR)));
        assert_eq!(mv(&mut bed, rename(ROOT, "a", ROOT, "f")), Err(errno(Errno::ENOTDIR)));
        assert_eq!(bed.lookup(ROOT, "f"), Ok(file));
    }

    /// Goal: a replaced file goes, or lives on while open; two names of one inode are no rename.
    #[test]
    fn victims() {
        let mut bed = Bed::new();
        let (a, b) = (bed.create(ME, ROOT, "a"), bed.create(ME, ROOT, "b"));
        bed.open(OTHER, b, OpenMode::Read, 1).unwrap();
        mv(&mut bed, rename(ROOT, "a", ROOT, "b")).unwrap();
        assert_eq!((bed.lookup(ROOT, "b"), bed.attr(b).unwrap().nlink), (Ok(a), 0));
        bed.call(ME, Link { ino: a, parent: ROOT, name: name("c") }).unwrap();
        mv(&mut bed, rename(ROOT, "b", ROOT, "c")).unwrap();
        assert_eq!((bed.lookup(ROOT, "b"), bed.lookup(ROOT, "c")), (Ok(a), Ok(a)));
        bed.create(ME, ROOT, "d");
        mv(&mut bed, rename(ROOT, "d", ROOT, "c")).unwrap();
        assert_eq!(bed.attr(a).unwrap().nlink, 1, "a name less");
    }

    /// Goal: NOREPLACE and EXCHANGE do what Linux says, of files, directories and one of each.
    #[test]
    fn flags() {
        let mut bed = Bed::new();
        let (a, b) = (bed.mkdir(ROOT, "a"), bed.mkdir(ROOT, "b"));
        let (dir, file) = (bed.mkdir(a, "x"), bed.create(ME, b, "y"));
        let swap = |m: Rename| Rename { exchange: true, ..m };
        let only_new = |m: Rename| Rename { no_replace: true, ..m };
        assert_eq!(mv(&mut bed, only_new(rename(a, "x", b, "y"))), Err(errno(Errno::EEXIST)));
        assert_eq!(mv(&mut bed, only_new(swap(rename(a, "x", b, "y")))), Err(errno(Errno::EINVAL)));
        assert_eq!(mv(&mut bed, swap(rename(a, "x", b, "z"))), Err(errno(Errno::ENOENT)));
        mv(&mut bed, swap(rename(a, "x", b, "y"))).unwrap();
        assert_eq!((bed.lookup(a, "x"), bed.lookup(b, "y")), (Ok(file), Ok(dir)));
        assert_eq!((bed.attr(a).unwrap().nlink, bed.attr(b).unwrap().nlink), (2, 3));
        assert_eq!(mv(&mut bed, swap(rename(ROOT, "b", b, "y"))), Err(errno(Errno::EINVAL)));
        assert_eq!(mv(&mut bed, swap(rename(b, "y", ROOT, "b"))), Err(errno(Errno::EINVAL)));
        mv(&mut bed, swap(rename(ROOT, "a", ROOT, "b"))).unwrap();
        assert_eq!((bed.lookup(ROOT, "a"), bed.lookup(ROOT, "b")), (Ok(b), Ok(a)));
        mv(&mut bed, only_new(rename(a, "x", b, "n"))).unwrap();
    }
}
