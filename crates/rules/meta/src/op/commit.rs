//! `Commit`: commits size and time after writes to chunks.

use super::size;
use super::xattr::kill_privileges;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use skep_types::{Held, Ino};
use skep_wire::Status;
use skep_wire::meta::{AttrReply, Commit};

pub fn run(ctx: &mut Ctx<'_>, m: &Commit) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    let Committed { wrote, raised } = apply(ctx, &mut inode, m)?;
    if wrote {
        inode.wrote(m.mtime, m.time_sets, ctx.scene.at);
    }
    if wrote || raised {
        ctx.put_inode(m.ino, &inode);
    }
    // Without the layout, of which nobody who commits asks sizes: it would have to wait for a truncate.
    Ok(Done::reply(&AttrReply { attr: ctx.attr(m.ino, &inode)?, live: None }))
}

/// What a commit was good for.
pub struct Committed {
    /// It tells of writes.
    pub wrote: bool,
    /// It tells of more in the chunk files than was known.
    pub raised: bool,
}

/// Takes a commit over; the inode row is written, and dated, by the caller.
pub fn apply(ctx: &mut Ctx<'_>, inode: &mut Inode, m: &Commit) -> Result<Committed, Fail> {
    if inode.layout.is_inline() || inode.layout.generation != m.generation {
        return Err(Status::STALE_GENERATION.into());
    }
    let raised = raise_floors(ctx, m.ino, inode, m.held.as_ref())?;
    if m.held.as_ref().is_some_and(|held| held.alone) {
        return Ok(Committed { wrote: false, raised });
    }
    let mut wrote = inode.mtime != m.mtime;
    if size::grow(ctx, m.ino, inode, m.size)? {
        if m.cuts < inode.cuts {
            return Err(Status::STALE_SIZE.into());
        }
        wrote = true;
    }
    if let Some(blocks) = m.blocks.filter(|_| m.cuts >= inode.cuts) {
        wrote |= inode.blocks != blocks;
        inode.blocks = blocks;
    }
    wrote |= kill_privileges(ctx, m.ino, inode, m.kill_suidgid)?;
    Ok(Committed { wrote, raised })
}

/// Takes over what chunk files hold, unless they were cut since somebody looked: then all of the message is refused.
fn raise_floors(ctx: &Ctx<'_>, ino: Ino, inode: &mut Inode, held: Option<&Held>) -> Result<bool, Fail> {
    let Some(held) = held else { return Ok(false) };
    if held.trims != inode.layout.trims {
        return Err(Status::CUT_SINCE.into());
    }
    if held.extents.is_empty() {
        return Ok(false);
    }
    match size::wait_for_trim(ctx, ino) {
        // A target may be away for long, and what was looked at beside a truncate counts for nothing when it is told.
        // An fsync waits, because it looks again; everybody else goes on without.
        Err(Fail::Wait(_)) if !held.alone => Err(Status::CUT_SINCE.into()),
        Err(fail) => Err(fail),
        Ok(()) => Ok(inode.layout.raise_floors(&held.extents)),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use alloc::vec::Vec;
    use skep_types::{ChunkId, Errno, Generation, Held, Ino, Layout, SetAttr, SetTime, Timestamp};
    use skep_wire::Status;
    use skep_wire::meta::{
        AttrReply, ChangeAttr, Commit, FoundChunk, Inspect, Lookup, OpenMode, ReadInline, Repair,
    };

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
            held: None,
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
        Commit {
            ino,
            generation,
            size,
            cuts,
            mtime,
            time_sets: 0,
            blocks: None,
            kill_suidgid: false,
            held: None,
        }
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
            (attr.mtime.secs, attr.is_mtime_given())
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
            assert_eq!((attr.mtime.secs, attr.is_mtime_given()), (given, true));
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
                let find = Lookup { parent: Ino::ROOT, name: name("f"), as_told: None };
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

    fn floors(bed: &mut Bed, ino: Ino) -> Vec<u64> {
        let layout = bed.call(ME, Inspect { ino }).unwrap().layout;
        layout.extents.iter().flat_map(|e| (0..e.stripes.len()).map(|stripe| e.floor(stripe))).collect()
    }

    fn held(ino: Ino, layout: &Layout, found: &[(ChunkId, u64)]) -> Commit {
        let held = Held { trims: layout.trims, extents: layout.held(found.iter().copied()), alone: true };
        Commit { held: Some(held), ..commit(ino, layout, 0, 0) }
    }

    /// Goal: what chunk files hold is kept as the maximum of all that is told, changes nothing that programs see, and
    /// survives a restart; what tells no news is not logged.
    #[test]
    fn floors_are_kept() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 40 << 20);
        let chunks: Vec<ChunkId> = layout.chunks().map(|(chunk, _)| chunk).collect();
        assert!(floors(&mut bed, ino).iter().all(|floor| *floor == 0), "committed, but nothing was told");
        let before = bed.attr(ino).unwrap();
        bed.call(ME, held(ino, &layout, &[(chunks[0], 1), (chunks[1], 1)])).unwrap();
        bed.call(OTHER, held(ino, &layout, &[(chunks[1], 500)])).unwrap();
        bed.call(ME, held(ino, &layout, &[(chunks[1], 400)])).unwrap();
        assert_eq!(bed.attr(ino).unwrap(), before);
        let records = bed.log.len();
        bed.call(ME, held(ino, &layout, &[(chunks[1], 500)])).unwrap();
        assert_eq!(bed.log.len(), records);
        assert_eq!(floors(&mut bed, ino)[..3], [1, 500, 0]);
        bed.restart(&[1, 2]);
        assert_eq!(floors(&mut bed, ino)[..3], [1, 500, 0]);
        bed.check();
    }

    /// Goal: a truncate lowers floors in its own command, before a target is told; what was looked at before it, or
    /// while targets were being told, raises nothing afterwards.
    #[test]
    fn truncates_lower_floors_first() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 8 << 20);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        let chunk = layout.chunks().next().unwrap().0;
        bed.call(ME, held(ino, &layout, &[(chunk, 8 << 20)])).unwrap();
        bed.auto_sync = false;
        let set = SetAttr { size: Some(5), ..SetAttr::default() };
        let cut = bed.send(OTHER, ChangeAttr { ino, set });
        assert_eq!(floors_now(&mut bed, ino), 5);
        let during = layout_now(&mut bed, ino);
        bed.sync();
        let late = bed.send(ME, held(ino, &during, &[(chunk, 8 << 20)]));
        assert!(!bed.replies.contains_key(&late), "targets are being told");
        bed.run_courier();
        bed.sync();
        assert!(bed.replies.contains_key(&cut));
        assert_eq!(bed.reply::<AttrReply>(late).unwrap().err(), Some(Status::CUT_SINCE));
        bed.auto_sync = true;
        let refused = bed.call(ME, held(ino, &during, &[(chunk, 8 << 20)])).err();
        assert_eq!(refused, Some(Status::CUT_SINCE), "perhaps looked at before the target cut it");
        assert_eq!(floors_now(&mut bed, ino), 5);
        let now = layout_now(&mut bed, ino);
        bed.call(ME, held(ino, &now, &[(chunk, 9)])).unwrap();
        assert_eq!(floors_now(&mut bed, ino), 9);
        bed.check();
    }

    /// Goal: while targets are being told of a truncate, which may take as long as one of them is away, a commit waits only
    /// if it tells nothing but what chunk files hold, as of that truncate; all others are answered, or refused, at once.
    #[test]
    fn commits_do_not_wait_for_a_truncate() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 8 << 20);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        let chunk = layout.chunks().next().unwrap().0;
        bed.auto_sync = false;
        bed.send(OTHER, ChangeAttr { ino, set: SetAttr { size: Some(5), ..SetAttr::default() } });
        bed.sync();
        let during = layout_now(&mut bed, ino);
        let with = |layout: &Layout, found: &[(ChunkId, u64)], alone| {
            let held = Held { alone, ..held(ino, layout, found).held.unwrap() };
            Commit { held: Some(held), ..commit(ino, layout, 3, 0) }
        };
        let cut = Some(Status::CUT_SINCE);
        for (message, refusal) in [
            (with(&layout, &[], false), cut),
            (with(&layout, &[(chunk, 1)], false), cut),
            (with(&layout, &[(chunk, 9)], true), cut),
            (with(&during, &[], false), None),
            (with(&during, &[(chunk, 1)], false), cut),
        ] {
            let sent = bed.send(ME, message.clone());
            bed.sync();
            assert!(bed.replies.contains_key(&sent), "waits: {message:?}");
            assert_eq!(bed.reply::<AttrReply>(sent).unwrap().err(), refusal, "{message:?}");
        }
        let waits = bed.send(ME, with(&during, &[(chunk, 9)], true));
        assert!(!bed.replies.contains_key(&waits));
        bed.run_courier();
        bed.sync();
        assert_eq!(bed.reply::<AttrReply>(waits).unwrap().err(), cut);
        bed.check();
    }

    fn layout_now(bed: &mut Bed, ino: Ino) -> Layout {
        bed.inode(ino).unwrap().layout
    }

    fn floors_now(bed: &mut Bed, ino: Ino) -> u64 {
        layout_now(bed, ino).extents[0].floor(0)
    }

    /// Goal: what clients find lost is counted once per chunk file and told to people, unless the file was cut since;
    /// giving it up lowers the floor to what is there, of that chunk file alone, and the count.
    #[test]
    fn lost_chunk_files_are_counted_and_given_up() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 40 << 20);
        let chunks: Vec<ChunkId> = layout.chunks().map(|(chunk, _)| chunk).collect();
        bed.call(ME, held(ino, &layout, &[(chunks[0], 700), (chunks[1], 500)])).unwrap();
        let found = |size| alloc::vec![FoundChunk { chunk: chunks[0], size, floor: 700 }];
        let lost = |bed: &Bed| bed.server.gauges().iter().find(|g| g.0 == "lost_chunk_files").unwrap().1;
        bed.call(ME, ReadInline { ino, short: found(700), trims: layout.trims }).unwrap();
        bed.call(
            ME,
            ReadInline {
                ino,
                short: found(3),
                trims: (layout.trims.0, skep_types::LogIndex(layout.trims.1.0 + 1)),
            },
        )
        .unwrap();
        assert_eq!(lost(&bed), 0, "long enough, and told by one who knows an older layout");
        bed.call(ME, ReadInline { ino, short: found(3), trims: layout.trims }).unwrap();
        bed.call(ME, ReadInline { ino, short: found(3), trims: layout.trims }).unwrap();
        assert_eq!(lost(&bed), 1);
        bed.call(ME, ReadInline { ino, short: found(700), trims: layout.trims }).unwrap();
        assert_eq!(lost(&bed), 0, "put back");
        bed.call(ME, ReadInline { ino, short: found(3), trims: layout.trims }).unwrap();
        assert_eq!(lost(&bed), 1);
        let repair = Repair { ino, generation: layout.generation, trims: layout.trims, found: found(3) };
        let old =
            Repair { trims: (layout.trims.0, skep_types::LogIndex(layout.trims.1.0 + 1)), ..repair.clone() };
        assert_eq!(bed.call(ME, old).err(), Some(Status::CUT_SINCE));
        let before = bed.attr(ino).unwrap();
        let warnings = |bed: &Bed| bed.warnings.clone();
        let met = warnings(&bed);
        assert!(met.len() == 2 && met[0].starts_with(&alloc::format!("inode {}:", ino.0)), "{met:?}");
        let after = bed.call(ME, repair).unwrap();
        assert!(
            warnings(&bed)[2..].concat().contains("given up by the mount of client"),
            "{:?}",
            bed.warnings
        );
        assert!(after.attr.change > before.change && after.attr.mtime > before.mtime);
        assert_eq!((floors(&mut bed, ino)[..2].to_vec(), lost(&bed)), (alloc::vec![3, 500], 0));
        bed.check();
    }

    /// Goal: a floor that was raised after somebody looked for what is lost is not given up with it.
    #[test]
    fn what_was_synced_meanwhile_is_not_given_up() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 8 << 20);
        let chunk = layout.chunks().next().unwrap().0;
        bed.call(ME, held(ino, &layout, &[(chunk, 1)])).unwrap();
        let found = alloc::vec![FoundChunk { chunk, size: 0, floor: 1 }];
        let repair = Repair { ino, generation: layout.generation, trims: layout.trims, found };
        bed.call(OTHER, held(ino, &layout, &[(chunk, 1 << 20)])).unwrap();
        assert_eq!(bed.call(ME, repair).err(), Some(Status::CUT_SINCE));
        assert_eq!(floors_now(&mut bed, ino), 1 << 20);
        bed.check();
    }

    /// Goal: a loss that a truncate cut off, or that nobody has met for an hour, is shown to nobody any more.
    #[test]
    fn losses_are_forgotten() {
        let mut bed = Bed::new();
        let lost = |bed: &Bed| bed.server.gauges().iter().find(|g| g.0 == "lost_chunk_files").unwrap().1;
        for end in ["cut", "cut to nothing", "restored"] {
            let (ino, layout) = bed.grown(end, 8 << 20);
            let chunk = layout.chunks().next().unwrap().0;
            bed.call(ME, held(ino, &layout, &[(chunk, 700)])).unwrap();
            let short = alloc::vec![FoundChunk { chunk, size: 3, floor: 700 }];
            let tell = ReadInline { ino, short, trims: layout.trims };
            bed.call(ME, tell.clone()).unwrap();
            assert_eq!(lost(&bed), 1, "{end}");
            match end {
                "cut" => drop(bed.truncate(ME, ino, 2).unwrap()),
                "cut to nothing" => drop(bed.truncate(ME, ino, 0).unwrap()),
                _ => {
                    bed.now.0 += 40 * 60_000;
                    bed.call(ME, tell).unwrap();
                    bed.now.0 += 40 * 60_000;
                    bed.attr(ino).unwrap();
                    assert_eq!(lost(&bed), 1, "told again");
                    bed.now.0 += 40 * 60_000;
                    bed.attr(ino).unwrap();
                }
            }
            assert_eq!(lost(&bed), 0, "{end}");
        }
    }
}
