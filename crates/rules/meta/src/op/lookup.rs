//! `Lookup`: finds a name in a directory.

use super::get_attr::attr_reply;
use crate::ctx::{Ctx, Done};
use crate::fail::{Fail, Need};
use crate::tree::Spot;
use skep_types::{Attr, Errno, Ino, Kind};
use skep_wire::meta::{AttrReply, EntryReply, Lookup};

pub fn run(ctx: &mut Ctx<'_>, m: &Lookup) -> Result<Done, Fail> {
    match ctx.look(m.parent, &m.name)? {
        Spot::Taken(place) => {
            let (target, as_told) = (place.target, m.as_told == Some(true));
            Ok(Done::reply(&entry_reply(ctx, (target.ino, target.kind), as_told)?))
        }
        // The directory is looked at only now: a name that exists proves that it does too.
        Spot::Free(_) => Err(ctx.dir(m.parent).err().unwrap_or(Errno::ENOENT.into())),
    }
}

/// An entry with its inode, when this shard holds it. As [`super::get_attr::attr_reply`] otherwise. `as_told`: of a file that
/// another mount holds, and has told of, that is enough.
pub fn entry_reply(ctx: &mut Ctx<'_>, (ino, kind): (Ino, Kind), as_told: bool) -> Result<EntryReply, Fail> {
    if !ctx.is_home(ino) {
        return Ok(EntryReply { ino, kind, attr: None, live: None });
    }
    let inode = match ctx.inode(ino) {
        Err(Fail::Wait(Need::Holder { .. })) if as_told && ctx.choose.is_told(ino) => {
            let inode = ctx.told_inode(ino)?;
            let mut attr = ctx.attr(ino, &inode)?;
            attr.flags |= Attr::AS_TOLD;
            return Ok(EntryReply { ino, kind, attr: Some(attr), live: None });
        }
        inode => inode?,
    };
    let AttrReply { mut attr, live } = attr_reply(ctx, ino, &inode)?;
    if inode.covering().is_some() && ctx.choose.is_coverable(ino) {
        attr.flags |= Attr::COVERED;
    }
    Ok(EntryReply { ino, kind, attr: Some(attr), live })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, Kind};
    use skep_wire::meta::Lookup;

    /// Goal: a name is found with its attributes; what is missing, no directory or gone says so.
    #[test]
    fn finds_or_says_why_not() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        let file = bed.create(ME, dir, "f");
        let found = bed.call(ME, Lookup { parent: dir, name: name("f"), as_told: None }).unwrap();
        assert_eq!((found.ino, found.kind), (file, Kind::File));
        assert_eq!(found.attr.unwrap().uid, 7);
        assert_eq!(bed.lookup(dir, "x"), Err(errno(Errno::ENOENT)));
        assert_eq!(bed.lookup(file, "x"), Err(errno(Errno::ENOTDIR)));
        assert_eq!(bed.lookup(Ino(999), "x"), Err(errno(Errno::ENOENT)));
    }
}
