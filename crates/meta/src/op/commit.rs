//! `Commit`: commits size and time after writes to chunks.

use super::get_attr::attr_reply;
use super::size;
use super::xattr::kill_privileges;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_wire::Status;
use skep_wire::meta::Commit;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &Commit) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    if inode.layout.is_inline() || inode.layout.generation != m.generation {
        return Err(Status::STALE_GENERATION.into());
    }
    let mut changed = inode.mtime != m.mtime;
    if size::grow(ctx, m.ino, &mut inode, m.size)? {
        if m.cuts < inode.cuts {
            return Err(Status::STALE_SIZE.into());
        }
        changed = true;
    }
    if let Some(blocks) = m.blocks.filter(|_| m.cuts >= inode.cuts) {
        changed |= inode.blocks != blocks;
        inode.blocks = blocks;
    }
    changed |= kill_privileges(ctx, m.ino, &mut inode, m.kill_suidgid)?;
    if changed {
        inode.wrote(m.mtime, m.time_sets, ctx.scene.at);
        ctx.put_inode(m.ino, &inode);
    }
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)?))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Generation, Ino, Layout, SetAttr, SetTime, Timestamp};
    use skep_wire::Status;
    use skep_wire::meta::{ChangeAttr, Commit, Lookup, OpenMode};

    /// Goal: the size only grows, time and blocks follow, suid goes; an old generation is refused.
    #[test]
    fn sizes_grow() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 100);
        bed.call(ME, ChangeAttr { ino, set: SetAttr { mode: Some(0o4711), ..SetAttr::default() } }).unwrap();
        let mtime = Timestamp { secs: bed.wall().secs + 7, nanos: 7 };
        let wish = Commit {
            ino,
            generation: layout.generation,
            size: 50,
            mtime,
            blocks: Some(9),
            kill_suidgid: true,
            cuts: 1,
            time_sets: 0,
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

    fn commit(ino: Ino, layout: &Layout, size: u64, cuts: u64) -> Commit {
        let generation = layout.generation;
        let mtime = Timestamp::default();
        Commit { ino, generation, size, cuts, mtime, time_sets: 0, blocks: None, kill_suidgid: false }
    }

    /// Goal: an end from before a cut makes no file longer, whether the cut was to 0, to a middle or to a larger
    /// size; one that is not beyond the file is no question. A size that only grows is no cut.
    #[test]
    fn a_cut_is_not_undone() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 100_000);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        let mut cuts = bed.attr(ino).unwrap().cuts;
        for size in [0, 5_000, 200_000] {
            let told = bed.truncate(ME, ino, size).unwrap();
            assert_eq!((told.cuts, bed.attr(ino).unwrap().cuts), (cuts + 1, cuts + 1));
            let old = commit(ino, &layout, 300_000, cuts);
            assert_eq!(bed.call(OTHER, old).err(), Some(Status::STALE_SIZE));
            let within = bed.call(OTHER, commit(ino, &layout, size, cuts)).unwrap().attr;
            assert_eq!(within.size, size);
            cuts += 1;
        }
        let least = |size| SetAttr { size: Some(size), grow_only: true, ..SetAttr::default() };
        for (size, seen) in [(100, 200_000), (250_000, 250_000)] {
            let attr = bed.call(ME, ChangeAttr { ino, set: least(size) }).unwrap().attr;
            assert_eq!((attr.size, attr.cuts), (seen, cuts));
        }
        assert_eq!(bed.call(OTHER, commit(ino, &layout, 300_000, cuts)).unwrap().attr.size, 300_000);
        assert_eq!(bed.call(ME, ChangeAttr { ino, set: least(1 << 63) }).err(), Some(errno(Errno::EFBIG)));
        bed.check();
    }

    /// Goal: commits come in any order, and the newest write's time stays; one that was given stays until something
    /// is written after it, as far as the writer knew; ctime never falls; a clock far ahead is not believed, and a
    /// time far ahead gives way.
    #[test]
    fn times_do_not_go_back() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 100);
        let now = bed.wall().secs;
        let mut ctime = bed.attr(ino).unwrap().ctime;
        let mut told = |bed: &mut Bed, secs, time_sets| {
            let mtime = Timestamp { secs, nanos: 0 };
            let attr = bed.call(ME, Commit { mtime, time_sets, ..commit(ino, &layout, 1, 1) }).unwrap().attr;
            assert!(attr.ctime >= ctime && attr.ctime.secs >= secs.min(now), "{ctime:?} {attr:?}");
            ctime = attr.ctime;
            (attr.mtime.secs, attr.mtime_given)
        };
        assert_eq!(told(&mut bed, now + 20, 0), (now + 20, false), "a clock that is ahead a little");
        assert_eq!(told(&mut bed, now + 10, 0), (now + 20, false));
        for (given, after) in [(5, now + 30), (now + 1_000_000, now + 2)] {
            let set = SetAttr {
                mtime: Some(SetTime::At(Timestamp { secs: given, nanos: 0 })),
                ..SetAttr::default()
            };
            let attr = bed.call(ME, ChangeAttr { ino, set }).unwrap().attr;
            let sets = attr.time_sets;
            assert_eq!((attr.mtime.secs, attr.mtime_given), (given, true));
            assert_eq!(told(&mut bed, now + 25, sets - 1), (given, true), "written before, told after");
            assert_eq!(told(&mut bed, after, sets), (after, false), "written after it was given");
        }
        let far = told(&mut bed, now + 1_000_000, 2).0;
        assert!(far < now + 10, "{far}");
    }

    /// Goal: a file that another mount may write to lends nobody its owner's rights: that mount need not know of
    /// the bits. They are there again when it closes, and gone when it wrote as an ordinary user or just ended.
    #[test]
    fn set_id_bits_wait_for_other_writers() {
        for end in ["close", "commit", "gone"] {
            let mut bed = Bed::new();
            let (ino, layout) = bed.grown("f", 100);
            bed.close(ME, ino, 5);
            bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
            let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
            assert_eq!(
                bed.call(ME, ChangeAttr { ino, set }).unwrap().attr.mode,
                0o755,
                "to whoever sets them"
            );
            let seen = |bed: &mut Bed| {
                let find = Lookup { parent: Ino::ROOT, name: name("f") };
                let entry = bed.call(ME, find).unwrap().attr.unwrap().mode;
                assert_eq!(bed.attr(ino).unwrap().mode, entry);
                entry
            };
            assert_eq!(seen(&mut bed), 0o755);
            let left = match end {
                "close" => 0o4755,
                "commit" => {
                    bed.call(OTHER, Commit { kill_suidgid: true, ..commit(ino, &layout, 100, 1) }).unwrap();
                    0o755
                }
                _ => {
                    bed.fenced.push(OTHER.client);
                    let fences = bed.fences(&[ME.client]);
                    bed.step(crate::Input::Fences(fences));
                    bed.sync();
                    bed.run_courier();
                    bed.sync();
                    0o755
                }
            };
            if end != "gone" {
                bed.close(OTHER, ino, 2);
            }
            assert_eq!(seen(&mut bed), left, "{end}");
            bed.check();
        }
    }
}
