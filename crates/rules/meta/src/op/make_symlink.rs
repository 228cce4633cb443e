//! `MakeSymlink`: makes a symbolic link.

use super::create::{Wanted, born_in};
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::tree::{Spot, target};
use skep_types::limits::SYMLINK_MAX;
use skep_types::{Errno, Kind};
use skep_wire::meta::{EntryReply, MakeSymlink};

pub fn run(ctx: &mut Ctx<'_>, m: &MakeSymlink) -> Result<Done, Fail> {
    if m.target.0.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    if m.target.0.len() > SYMLINK_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    let wanted = Wanted { kind: Kind::Symlink, mode: 0o777, umask: 0, uid: m.uid, gid: m.gid };
    let mut inode = born_in(ctx, m.parent, &parent, &wanted)?.inode;
    inode.size = m.target.0.len() as u64;
    inode.target = m.target.clone();
    let ino = ctx.choose.ino()?;
    let link = ctx.add(&mut parent, free, target(&m.name, ino, Kind::Symlink))?;
    inode.links.push(link);
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.put_inode(ino, &inode);
    Ok(Done::reply(&EntryReply { ino, kind: Kind::Symlink, attr: Some(inode.attr(ino)), live: None }))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::codec::Bytes;
    use skep_types::{Errno, Ino, limits};
    use skep_wire::meta::{MakeSymlink, ReadLink};

    /// Goal: a symbolic link reads back; lengths at the limit work, beyond it and empty ones fail.
    #[test]
    fn links_read_back() {
        let mut bed = Bed::new();
        let wish = |text: &str, len: usize| MakeSymlink {
            parent: Ino::ROOT,
            name: name(text),
            target: Bytes(alloc::vec![b'x'; len]),
            uid: 1,
            gid: 2,
        };
        let made = bed.call(ME, wish("l", limits::SYMLINK_MAX)).unwrap();
        let attr = made.attr.unwrap();
        assert_eq!((attr.mode, attr.size), (0o777, limits::SYMLINK_MAX as u64));
        assert_eq!(bed.call(ME, ReadLink { ino: made.ino }).unwrap().data.0.len(), limits::SYMLINK_MAX);
        assert_eq!(bed.call(ME, wish("m", limits::SYMLINK_MAX + 1)).err(), Some(errno(Errno::ENAMETOOLONG)));
        assert_eq!(bed.call(ME, wish("m", 0)).err(), Some(errno(Errno::ENOENT)));
        assert_eq!(bed.call(ME, wish("l", 1)).err(), Some(errno(Errno::EEXIST)));
        assert_eq!(bed.call(ME, ReadLink { ino: Ino::ROOT }).err(), Some(errno(Errno::EINVAL)));
        bed.check();
    }
}
