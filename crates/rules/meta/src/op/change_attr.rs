//! `ChangeAttr`: changes attributes of an inode (chmod, chown, truncate, utimensat).

use super::xattr::{chmod, kill_privileges};
use super::{get_attr::attr_reply, size};
use crate::choose::CutBy;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use crate::row::slot::Gate;
use skep_types::{Errno, Ino, Kind, SetAttr, SetTime, Timestamp};
use skep_wire::meta::{AttrReply, ChangeAttr};

pub fn run(ctx: &mut Ctx<'_>, m: &ChangeAttr) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    let set = &m.set;
    if set.mode.is_some() && inode.kind == Kind::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let mut gate = Gate::Open;
    let mut changed = owner_and_mode(ctx, m.ino, &mut inode, set)?;
    if let Some(size) = set.size {
        match inode.kind {
            Kind::File => {}
            Kind::Dir => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EINVAL.into()),
        }
        let sets = !set.grow_only;
        if sets {
            gate = size::set(ctx, m.ino, &mut inode, size, CutBy::Setattr)?;
        }
        if sets || size::grow(ctx, m.ino, &mut inode, size)? {
            kill_privileges(ctx, m.ino, &mut inode, false)?;
            inode.set_mtime(ctx.scene.at);
            changed = true;
        }
    }
    changed |= times(&mut inode, set, ctx.scene.at);
    if changed {
        inode.touch(ctx.scene.at);
        ctx.put_inode(m.ino, &inode);
    }
    let reply = match gate {
        Gate::Trim(_) => {
            let live = ctx.live(m.ino, &inode);
            AttrReply { attr: ctx.attr(m.ino, &size::behind(&inode, gate))?, live }
        }
        _ => attr_reply(ctx, m.ino, &inode)?,
    };
    Ok(Done::gated(&reply, gate))
}

/// Sets owner and mode; the inode row is written by the caller. `true`: something changed.
pub fn owner_and_mode(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, set: &SetAttr) -> Result<bool, Fail> {
    let mut changed = false;
    if let Some(mode) = set.mode {
        chmod(ctx, ino, inode, mode)?;
        changed = true;
    }
    if set.kill_suidgid && inode.kind == Kind::File {
        changed |= kill_privileges(ctx, ino, inode, true)?;
    }
    if set.uid.is_some() || set.gid.is_some() {
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if !inode.is_dir() {
            kill_privileges(ctx, ino, inode, true)?;
        }
        changed = true;
    }
    Ok(changed)
}

/// Sets times; `at` is now. `true`: something changed.
pub fn times(inode: &mut Inode, set: &SetAttr, at: Timestamp) -> bool {
    let value = |time: SetTime| match time {
        SetTime::Now => at,
        SetTime::At(time) => time,
    };
    if let Some(time) = set.atime {
        inode.atime = value(time);
    }
    match set.mtime {
        Some(SetTime::Now) => inode.set_mtime(at),
        Some(SetTime::At(time)) => inode.give_mtime(time),
        None => {}
    }
    set.atime.is_some() || set.mtime.is_some()
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, Kind, SetAttr, SetTime, Timestamp};
    use skep_wire::Status;
    use skep_wire::meta::{ChangeAttr, Close, Closed, Commit, OpenMode};

    fn set(bed: &mut Bed, ino: Ino, set: SetAttr) -> Result<skep_types::Attr, Status> {
        bed.call(ME, ChangeAttr { ino, set }).map(|reply| reply.attr)
    }

    /// Goal: chown clears suid of files, sgid only of group-executable ones, nothing of
    /// directories; chmod sets exactly the given bits; both move ctime and the change counter only.
    #[test]
    fn modes_and_owners() {
        let mut bed = Bed::new();
        let file = bed.create(ME, Ino::ROOT, "f");
        let dir = bed.mkdir(Ino::ROOT, "d");
        let before = bed.attr(file).unwrap();
        for (mode, expected) in [(0o6755, 0o755), (0o6745, 0o2745), (0o4644, 0o644)] {
            set(&mut bed, file, SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
            let attr = set(&mut bed, file, SetAttr { uid: Some(5), ..SetAttr::default() }).unwrap();
            assert_eq!((attr.mode, attr.uid), (expected, 5));
        }
        let after = bed.attr(file).unwrap();
        assert!(after.ctime > before.ctime && after.change > before.change);
        assert_eq!((after.mtime, after.atime), (before.mtime, before.atime));
        set(&mut bed, dir, SetAttr { mode: Some(0o6777), ..SetAttr::default() }).unwrap();
        let attr = set(&mut bed, dir, SetAttr { gid: Some(5), ..SetAttr::default() }).unwrap();
        assert_eq!((attr.mode, attr.gid), (0o6777, 5));
    }

    /// Goal: times are set as given or to the shard's present; an empty change changes nothing.
    #[test]
    fn times() {
        let mut bed = Bed::new();
        let file = bed.create(ME, Ino::ROOT, "f");
        let old = Timestamp { secs: -5, nanos: 999_999_999 };
        let wish = SetAttr { atime: Some(SetTime::At(old)), mtime: Some(SetTime::Now), ..SetAttr::default() };
        let attr = set(&mut bed, file, wish).unwrap();
        assert_eq!((attr.atime, attr.mtime), (old, attr.ctime));
        let records = bed.log.len();
        assert_eq!(set(&mut bed, file, SetAttr::default()).unwrap(), attr);
        assert_eq!(bed.log.len(), records, "nothing was logged");
    }

    /// Goal: truncate of inline content cuts, grows with zeros, sets mtime also for the same size,
    /// and is refused for anything but a regular file and for sizes no file can have.
    #[test]
    fn truncate_inline() {
        let mut bed = Bed::new();
        let file = bed.create(ME, Ino::ROOT, "f");
        bed.write(file, 0, b"abcdef").unwrap();
        bed.truncate(ME, file, 3).unwrap();
        let attr = bed.truncate(ME, file, 1 << 40).unwrap();
        assert_eq!(attr.size, 1 << 40);
        let opened = bed.open(ME, file, OpenMode::Read, 1).unwrap();
        assert_eq!(opened.inline.unwrap().0, b"abc");
        let same = bed.truncate(ME, file, 1 << 40).unwrap();
        assert!(same.mtime > attr.mtime && same.ctime > attr.ctime);
        bed.write(file, 5, b"x").unwrap();
        assert_eq!(bed.open(ME, file, OpenMode::Read, 2).unwrap().inline.unwrap().0, b"abc\0\0x");
        assert_eq!(bed.truncate(ME, file, 1 << 63), Err(errno(Errno::EFBIG)));
        assert_eq!(bed.truncate(ME, Ino::ROOT, 0), Err(errno(Errno::EISDIR)));
        let fifo = bed.call(ME, node(Ino::ROOT, "p", Kind::Fifo)).unwrap().ino;
        assert_eq!(bed.truncate(ME, fifo, 0), Err(errno(Errno::EINVAL)));
        bed.check();
    }

    /// Goal: a truncate of chunks is answered only when it is durable and every target was told;
    /// until then nothing may make the file longer.
    #[test]
    fn truncate_waits_for_the_targets() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 40 << 20);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        bed.auto_sync = false;
        let wish = SetAttr { size: Some((16 << 20) + 5), ..SetAttr::default() };
        let cut = bed.send(ME, ChangeAttr { ino, set: wish });
        assert!(bed.tasks.is_empty(), "nothing leaves before the record is durable");
        bed.sync();
        assert_eq!(bed.tasks.len(), layout.chunks().count());
        assert!(!bed.replies.contains_key(&cut));
        let commit = Commit {
            ino,
            generation: layout.generation,
            size: 50 << 20,
            mtime: bed.wall(),
            blocks: None,
            kill_suidgid: false,
            cuts: 2,
            time_sets: 0,
            held: None,
        };
        let grow = bed.send(OTHER, commit);
        let again = bed.resend(ME, ChangeAttr { ino, set: SetAttr { size: Some(0), ..SetAttr::default() } });
        assert!(!bed.replies.contains_key(&grow) && !bed.replies.contains_key(&again));
        bed.run_courier();
        assert_eq!(bed.trimmed.iter().map(|(_, _, size)| size).sum::<u64>(), (16 << 20) + 5);
        // Seed 3319 of the simulator: a power cut took the record, and the targets cut newer writes.
        assert!(!bed.replies.contains_key(&cut), "the end of the truncate must be durable first");
        bed.sync();
        for to in [cut, again] {
            let attr = bed.reply::<skep_wire::meta::AttrReply>(to).unwrap().unwrap().attr;
            assert_eq!(attr.size, (16 << 20) + 5, "the repetition gets the first answer");
        }
        assert_eq!(bed.reply::<skep_wire::meta::AttrReply>(grow).unwrap().unwrap().attr.size, 50 << 20);
        bed.check();
    }

    /// Goal: cutting to 0 a file that nobody else has open gives it a new generation at once, and
    /// its old chunks go; with another session it is trimmed instead.
    #[test]
    fn truncate_to_zero_changes_the_generation_when_alone() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 1 << 20);
        bed.open(OTHER, ino, OpenMode::Read, 1).unwrap();
        assert_eq!(bed.truncate(ME, ino, 0).unwrap().generation, layout.generation);
        assert!(bed.deleted.is_empty() && !bed.trimmed.is_empty());
        bed.call(OTHER, Close { opens: alloc::vec![Closed { ino, open_seq: 2 }] }).unwrap();
        let attr = bed.truncate(ME, ino, 0).unwrap();
        assert_eq!((attr.generation.0, attr.size), (0, 0));
        assert_eq!(bed.deleted.len(), layout.chunks().count());
        let regrown = bed.call(ME, skep_wire::meta::Grow { like: None, ino, end: 1 }).unwrap();
        assert!(regrown.layout.generation > layout.generation, "never the same generation twice");
        bed.check();
    }
}
