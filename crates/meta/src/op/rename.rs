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

/// Runs it.
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
    if let Spot::Taken(place) = &to {
        if place.target.ino == from.target.ino {
            return Ok(Done::reply(&Empty {}));
        }
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
fn check_cycle(ctx: &Ctx<'_>, m: &Rename, from: &Place, to: &Spot) -> Result<(), Fail> {
    if ctx.scene.replay {
        return Ok(());
    }
    if from.target.kind == Kind::Dir && is_above(ctx, from.target.ino, m.to_parent)? {
        return Err(Errno::EINVAL.into());
    }
    if let Spot::Taken(place) = to {
        if place.target.kind == Kind::Dir && is_above(ctx, place.target.ino, m.parent)? {
            return Err(if m.exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
    }
    Ok(())
}

/// Is `ino` the directory `below`, or one of its ancestors?
fn is_above(ctx: &Ctx<'_>, ino: Ino, below: Ino) -> Result<bool, Fail> {
    let mut at = below;
    for _ in 0..DEPTH_MAX {
        if at == ino {
            return Ok(true);
        }
        if at == Ino::ROOT {
            return Ok(false);
        }
        // An ancestor on a shard that is served elsewhere cannot be checked.
        let inode = ctx.find_inode(at)?.ok_or(Errno::EXDEV)?;
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
