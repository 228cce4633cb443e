//! `Create`: makes a regular file, or opens the one that is there.

use super::open::{note_writer, open_reply, truncate, wait_when_live};
use crate::acl;
use crate::choose::CutBy;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use crate::row::inode::{MAY_BE_HELD, POLICY_IS_OWN};
use crate::row::slot::Gate;
use crate::tree::{Place, Spot, target};
use alloc::vec::Vec;
use skep_types::limits::INLINE_MAX;
use skep_types::{Errno, Ino, Kind, Mode, Policy};
use skep_wire::meta::{Create, OpenMode};

pub fn run(ctx: &mut Ctx<'_>, m: &Create) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let free = match ctx.find(m.parent, &m.name)? {
        Spot::Taken(place) => return existing(ctx, m, &place),
        Spot::Free(free) => free,
    };
    let wanted = Wanted { kind: Kind::File, mode: m.mode, umask: m.umask, uid: m.uid, gid: m.gid };
    let mut born = born_in(ctx, m.parent, &parent, &wanted)?;
    if let Some(policy) = m.policy {
        super::set_policy::check(ctx, &policy)?;
        born.inode.policy = Some(policy);
        born.inode.flags |= POLICY_IS_OWN;
    }
    let ino = ctx.choose.ino()?;
    // Of what was inherited the shard and nobody else knows the rules.
    let is_held = m.open.is_some_and(OpenMode::writes) && born.access.is_none() && ctx.choose.holds(m.parent);
    if is_held {
        born.inode.flags |= MAY_BE_HELD;
    }
    let link = ctx.add(&mut parent, free, target(&m.name, ino, Kind::File))?;
    born.inode.links.push(link);
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    born.put(ctx, ino)?;
    let mut reply = open_reply(ctx, ino, &born.inode)?;
    reply.created = true;
    let holds = is_held.then(|| ctx.inline_limit(&born.inode).min(INLINE_MAX));
    Ok(Done { opened: m.open.map(|_| ino), holds, ..Done::reply(&reply) })
}

fn existing(ctx: &mut Ctx<'_>, m: &Create, place: &Place) -> Result<Done, Fail> {
    if m.exclusive || m.open.is_none() {
        return Err(Errno::EEXIST.into());
    }
    match place.target.kind {
        Kind::File => {}
        Kind::Dir => return Err(Errno::EISDIR.into()),
        // The client knew no such name and will look again.
        _ => return Err(Errno::ESTALE.into()),
    }
    let ino = place.target.ino;
    let mut inode = ctx.inode(ino)?;
    let mut gate = if m.truncate {
        // What else the mount has open is not told: any open for writing counts.
        truncate(ctx, ino, &mut inode, CutBy::Open { shared: false, seq: 0 }, false)?
    } else {
        wait_when_live(ctx, ino, &inode)?;
        Gate::Open
    };
    if let Some(mode) = m.open {
        gate = note_writer(ctx, ino, &inode, mode, gate)?;
    }
    let reply = open_reply(ctx, ino, &super::size::behind(&inode, gate))?;
    Ok(Done { opened: Some(ino), ..Done::gated(&reply, gate) })
}

/// What a new inode is asked to be like.
pub struct Wanted {
    pub kind: Kind,
    /// Permission bits as the program asked.
    pub mode: Mode,
    /// Bits to take off them, unless the directory has a default ACL.
    pub umask: Mode,
    pub uid: u32,
    /// Group, unless the directory is setgid.
    pub gid: u32,
}

/// A new inode, and the ACLs that it inherits.
pub struct Born {
    /// The row.
    pub inode: Inode,
    /// Access ACL.
    pub access: Option<Vec<u8>>,
    /// Default ACL.
    pub default: Option<Vec<u8>>,
}

impl Born {
    /// Writes the rows.
    pub fn put(&mut self, ctx: &mut Ctx<'_>, ino: Ino) -> Result<(), Fail> {
        for (name, value) in [(acl::ACCESS, self.access.take()), (acl::DEFAULT, self.default.take())] {
            if let Some(value) = value {
                super::xattr::put(ctx, ino, &mut self.inode, name, value)?;
            }
        }
        ctx.put_inode(ino, &self.inode);
        Ok(())
    }
}

/// A new inode in `dir`: group, permissions, ACLs and layout wish inherited as Linux, POSIX.1e and
/// the policy demand.
pub fn born_in(ctx: &Ctx<'_>, dir: Ino, parent: &Inode, wanted: &Wanted) -> Result<Born, Fail> {
    let kind = wanted.kind;
    let setgid = parent.mode & 0o2000 != 0;
    let gid = if setgid { parent.gid } else { wanted.gid };
    let (mut access, mut default) = (None, None);
    let mode = match kind {
        Kind::Symlink => wanted.mode,
        _ => match super::xattr::acl_of(ctx, dir, parent, acl::DEFAULT)? {
            None => wanted.mode & !(wanted.umask & 0o777),
            Some(inherited) => {
                let (own, mode) = inherited.inherit(wanted.mode);
                access = own.map(|acl| acl.to_value());
                default = (kind == Kind::Dir).then(|| inherited.to_value());
                mode
            }
        },
    };
    let mode = match kind {
        // As Linux: mkdir takes no suid and no sgid, it inherits sgid.
        Kind::Dir => mode & 0o1777 | if setgid { 0o2000 } else { 0 },
        _ => mode,
    };
    let mut inode = Inode::new(kind, mode, wanted.uid, gid, ctx.scene.at);
    inode.project = parent.project;
    if matches!(kind, Kind::File | Kind::Dir) {
        inode.policy = parent.policy.filter(|policy| *policy != Policy::default());
    }
    Ok(Born { inode, access, default })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, Kind, Policy, SetAttr};
    use skep_wire::meta::{ChangeAttr, Create, Inspect, OpenMode, SetPolicy};

    /// Goal: a new file has the wished attributes, moves the directory's times, and is open if
    /// wished; the same name again is EEXIST, or opens the file.
    #[test]
    fn creates_or_opens() {
        let mut bed = Bed::new();
        let before = bed.attr(Ino::ROOT).unwrap();
        let wish = Create { open: Some(OpenMode::Write), open_seq: 1, ..create(Ino::ROOT, "f") };
        let made = bed.call(ME, wish.clone()).unwrap();
        assert!(made.created && made.inline.is_some());
        assert_eq!((made.attr.mode, made.attr.uid, made.attr.gid, made.attr.nlink), (0o644, 7, 8, 1));
        let after = bed.attr(Ino::ROOT).unwrap();
        assert!(after.mtime > before.mtime && after.ctime > before.ctime && after.change > before.change);
        assert_eq!(bed.try_create(ME, Ino::ROOT, "f").err(), Some(errno(Errno::EEXIST)), "mknod");
        let exclusive = Create { exclusive: true, ..wish.clone() };
        assert_eq!(bed.call(ME, exclusive).err(), Some(errno(Errno::EEXIST)));
        bed.write(made.attr.ino, 0, b"data").unwrap();
        let opened = bed.call(OTHER, wish.clone()).unwrap();
        assert!(!opened.created && opened.live, "opened; the first client writes");
        assert_eq!(opened.inline.unwrap().0, b"data");
        let cut = bed.call(OTHER, Create { truncate: true, ..wish }).unwrap();
        assert_eq!(cut.attr.size, 0);
        let sessions = bed.call(ME, Inspect { ino: made.attr.ino }).unwrap().sessions;
        assert_eq!(sessions.len(), 2);
        bed.check();
    }

    /// Goal: what cannot be made or opened says why.
    #[test]
    fn refusals() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        let file = bed.create(ME, Ino::ROOT, "f");
        bed.call(ME, node(Ino::ROOT, "p", Kind::Fifo)).unwrap();
        let open = |parent, name| Create { open: Some(OpenMode::Read), ..create(parent, name) };
        assert_eq!(bed.call(ME, open(Ino::ROOT, "d")).err(), Some(errno(Errno::EISDIR)));
        assert_eq!(bed.call(ME, open(Ino::ROOT, "p")).err(), Some(errno(Errno::ESTALE)));
        assert_eq!(bed.call(ME, open(file, "x")).err(), Some(errno(Errno::ENOTDIR)));
        assert_eq!(bed.call(ME, open(Ino(999), "x")).err(), Some(errno(Errno::ENOENT)));
        let bad = Policy { chunk_size: 3, ..Policy::default() };
        let wish = Create { policy: Some(bad), ..create(dir, "x") };
        assert_eq!(bed.call(ME, wish).err(), Some(errno(Errno::EINVAL)));
        bed.check();
    }

    /// Goal: below a setgid directory the group is the directory's, and directories stay setgid;
    /// the layout wish is inherited by files and directories and said to be inherited.
    #[test]
    fn inheritance() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        let set = SetAttr { mode: Some(0o2775), gid: Some(99), ..SetAttr::default() };
        bed.call(ME, ChangeAttr { ino: dir, set }).unwrap();
        let policy =
            Policy { pool: skep_types::PoolId(0), chunk_size: 1 << 17, targets: 2, inline_limit: Some(0) };
        bed.call(ME, SetPolicy { ino: dir, policy, spread: None }).unwrap();
        let file = bed.create(ME, dir, "f");
        let sub = bed.mkdir(dir, "s");
        assert_eq!((bed.attr(file).unwrap().gid, bed.attr(file).unwrap().mode), (99, 0o644));
        assert_eq!((bed.attr(sub).unwrap().gid, bed.attr(sub).unwrap().mode), (99, 0o2755));
        for (ino, own) in [(dir, true), (file, false), (sub, false)] {
            let found = bed.call(ME, Inspect { ino }).unwrap();
            assert_eq!((found.policy, found.policy_is_own), (policy, own));
        }
    }
}
