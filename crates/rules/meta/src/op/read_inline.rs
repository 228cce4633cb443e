//! `ReadInline`: reads content that is inline, or learns the layout when it no longer is.

use super::open::{open_reply, wait_when_live};
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_wire::meta::ReadInline;

pub fn run(ctx: &mut Ctx<'_>, m: &ReadInline) -> Result<Done, Fail> {
    let inode = ctx.file(m.ino)?;
    wait_when_live(ctx, m.ino, &inode)?;
    Ok(Done::reply(&open_reply(ctx, m.ino, &inode)?))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino};
    use skep_wire::meta::ReadInline;

    /// Goal: content while it is inline, the layout afterwards, EISDIR for a directory.
    #[test]
    fn content_then_layout() {
        let mut bed = Bed::new();
        let file = bed.create(ME, Ino::ROOT, "f");
        bed.write(file, 0, b"data").unwrap();
        let reply = bed
            .call(ME, ReadInline { ino: file, short: alloc::vec::Vec::new(), trims: Default::default() })
            .unwrap();
        assert_eq!((reply.inline.unwrap().0.as_slice(), reply.layout.is_inline()), (&b"data"[..], true));
        let (grown, layout) = bed.grown("g", 9);
        let reply = bed
            .call(ME, ReadInline { ino: grown, short: alloc::vec::Vec::new(), trims: Default::default() })
            .unwrap();
        assert_eq!((reply.inline, reply.layout), (None, layout));
        assert_eq!(
            bed.call(
                ME,
                ReadInline { ino: Ino::ROOT, short: alloc::vec::Vec::new(), trims: Default::default() }
            )
            .err(),
            Some(errno(Errno::EISDIR))
        );
    }
}
