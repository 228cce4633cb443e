//! `Commit`: commits size and time after writes to chunks.

use super::get_attr::attr_reply;
use super::size::wait_for_trim;
use super::xattr::kill_privileges;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_types::Errno;
use skep_types::limits::FILE_SIZE_MAX;
use skep_wire::Status;
use skep_wire::meta::Commit;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &Commit) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    if inode.layout.is_inline() || inode.layout.generation != m.generation {
        return Err(Status::STALE_GENERATION.into());
    }
    if m.size > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    let mut changed = inode.mtime != m.mtime;
    if m.size > inode.size {
        wait_for_trim(ctx, m.ino)?;
        inode.size = m.size;
        changed = true;
    }
    if let Some(blocks) = m.blocks {
        changed |= inode.blocks != blocks;
        inode.blocks = blocks;
    }
    changed |= kill_privileges(ctx, m.ino, &mut inode, m.kill_suidgid)?;
    if changed {
        inode.touch(ctx.scene.at);
        inode.mtime = m.mtime;
        ctx.put_inode(m.ino, &inode);
    }
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Generation, Ino, SetAttr, Timestamp};
    use skep_wire::Status;
    use skep_wire::meta::{ChangeAttr, Commit};

    /// Goal: the size only grows, time and blocks follow, suid goes; an old generation is refused.
    #[test]
    fn sizes_grow() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 100);
        bed.call(ME, ChangeAttr { ino, set: SetAttr { mode: Some(0o4711), ..SetAttr::default() } }).unwrap();
        let mtime = Timestamp { secs: 77, nanos: 7 };
        let wish = Commit {
            ino,
            generation: layout.generation,
            size: 50,
            mtime,
            blocks: Some(9),
            kill_suidgid: true,
        };
        let attr = bed.call(ME, wish.clone()).unwrap().attr;
        assert_eq!((attr.size, attr.blocks, attr.mtime, attr.mode), (100, 9, mtime, 0o711));
        assert_eq!(bed.call(ME, Commit { size: 200, ..wish.clone() }).unwrap().attr.size, 200);
        let records = bed.log.len();
        bed.call(ME, wish.clone()).unwrap();
        assert_eq!(bed.log.len(), records, "nothing new, nothing logged");
        let old = Commit { generation: Generation(9), ..wish.clone() };
        assert_eq!(bed.call(ME, old).err(), Some(Status::STALE_GENERATION));
        let inline = bed.create(ME, Ino::ROOT, "i");
        assert_eq!(
            bed.call(ME, Commit { ino: inline, ..wish.clone() }).err(),
            Some(Status::STALE_GENERATION)
        );
        assert_eq!(bed.call(ME, Commit { size: 1 << 63, ..wish }).err(), Some(errno(Errno::EFBIG)));
    }
}
