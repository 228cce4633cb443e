//! `Grow`: allots chunks.

use super::size::content;
use crate::ctx::{Ctx, Done, Effect};
use crate::fail::Fail;
use crate::key::{self, Table};
use crate::limit::{ERA_GENERATION_BITS, GROWTH_AGE_MAX_MS, GROWTH_AGE_MIN_MS};
use crate::row::Inode;
use crate::row::growth::Growth;
use crate::row::slot::Gate;
use crate::spread::Continue;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{ClientId, Errno, Extent, Generation, Ino, Layout, Slot, Timestamp};
use skep_wire::meta::{Grow, GrowReply, InlineCopy};
use skep_wire::{Refusal, Status};

pub fn run(ctx: &mut Ctx<'_>, m: &Grow) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    if m.end > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if inode.layout.is_inline() { leave_inline(ctx, m, &mut inode) } else { extend(ctx, m, &mut inode) }
}

fn extend(ctx: &mut Ctx<'_>, m: &Grow, inode: &mut Inode) -> Result<Done, Fail> {
    if inode.layout.covered() < m.end {
        let extents = extents(ctx, m, inode, inode.layout.generation, m.end)?;
        inode.layout.extents.extend(extents);
        check(&inode.layout, m.ino)?;
        ctx.put_inode(m.ino, inode);
        ctx.effects.push(Effect::Settling(m.ino));
        return Ok(Done::gated(&reply(m.ino, inode, inode.layout.clone(), None), Gate::Durable));
    }
    ctx.show(m.ino, inode);
    Ok(Done::reply(&reply(m.ino, inode, inode.layout.clone(), None)))
}

/// Extents that continue the layout of `inode`, on the targets of `m.like` where that is as good.
fn extents(
    ctx: &mut Ctx<'_>,
    m: &Grow,
    inode: &Inode,
    generation: Generation,
    to: u64,
) -> Result<Vec<Extent>, Fail> {
    let like = match m.like.filter(|_| !ctx.scene.replay) {
        Some(like) => ctx.find_inode(like)?.map(|inode| inode.layout),
        None => None,
    };
    let from = inode.layout.covered();
    let number = inode.layout.next_number();
    ctx.choose.extents(inode, Continue { ino: m.ino, generation, number, from, to, like: like.as_ref() })
}

fn leave_inline(ctx: &mut Ctx<'_>, m: &Grow, inode: &mut Inode) -> Result<Done, Fail> {
    let (client, slot) = ctx.scene.caller.map_or((ClientId(0), Slot(0)), |c| (c.client, c.slot));
    if let Some(old) = ctx.growth(m.ino)? {
        let age = age_ms(old.since, ctx.scene.at);
        if (old.client, old.slot) != (client, slot) && age < GROWTH_AGE_MIN_MS && !ctx.scene.replay {
            return Err(Refusal::with(
                Status::BUSY,
                "another writer is moving this file out of the metadata",
            )
            .into());
        }
        ctx.cancel_growth(m.ino)?;
    }
    // Of a later era: chunk files of generations that an older copy of these rows knows nothing of are not met.
    let floor = Generation(u32::from(ctx.header()?.era) << ERA_GENERATION_BITS);
    let generation = inode.next_generation.max(floor);
    let next = generation.0.checked_add(1).ok_or_else(|| {
        Refusal::with(Status::errno(Errno::EFBIG), "this file was truncated too often; copy it to a new one")
    })?;
    inode.next_generation = Generation(next);
    let extents = extents(ctx, m, inode, generation, m.end.max(1))?;
    let layout = Layout { generation, trims: Default::default(), extents };
    check(&layout, m.ino)?;
    if inode.inline_len == 0 {
        inode.inline_version += 1;
        inode.layout = layout.clone();
        let writers = ctx.choose.writers(m.ino, true);
        ctx.add_writers(m.ino, &writers)?;
        ctx.put_inode(m.ino, inode);
        ctx.effects.push(Effect::Settling(m.ino));
        return Ok(Done::gated(&reply(m.ino, inode, layout, None), Gate::Durable));
    }
    let (since, index) = (ctx.scene.at, Some(ctx.scene.index));
    let growth = Growth { layout: layout.clone(), client, slot, since, index };
    ctx.put(key::of_ino(Table::Growth, m.ino), &growth);
    ctx.put_inode(m.ino, inode);
    ctx.effects.push(Effect::Growth(m.ino));
    let copy = InlineCopy { data: Bytes(content(ctx, m.ino, inode)?), version: inode.inline_version };
    Ok(Done::gated(&reply(m.ino, inode, layout, Some(copy)), Gate::Durable))
}

fn reply(ino: Ino, inode: &Inode, layout: Layout, copy: Option<InlineCopy>) -> GrowReply {
    GrowReply { attr: inode.attr(ino), layout, copy }
}

fn check(layout: &Layout, ino: Ino) -> Result<(), Fail> {
    if layout.is_valid() {
        return Ok(());
    }
    Err(Refusal::with(
        Status::errno(Errno::EIO),
        alloc::format!("file {ino} would get a layout that is not valid; its layout wish cannot be met"),
    )
    .into())
}

/// Milliseconds between two wall-clock times; a clock that went back counts as very old, so that
/// nobody waits for it.
pub fn age_ms(since: Timestamp, at: Timestamp) -> u64 {
    let ms = |t: Timestamp| t.secs.saturating_mul(1_000).saturating_add(i64::from(t.nanos / 1_000_000));
    u64::try_from(ms(at).saturating_sub(ms(since))).unwrap_or(GROWTH_AGE_MAX_MS)
}

#[cfg(test)]
mod tests {
    use crate::store::Store;
    use crate::testing::*;
    use alloc::collections::BTreeSet;
    use skep_types::{ChunkId, Errno, Ino, Kind, Policy, TargetId};
    use skep_wire::Status;
    use skep_wire::meta::{Grow, GrowReply, OpenMode, ReadInline, SetPolicy, Switch};

    /// Goal: content goes to chunks by intent, copy and switch; inline stays authoritative until
    /// then; the answer comes when the intent is durable.
    #[test]
    fn content_moves_to_chunks() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.write(ino, 0, b"data").unwrap();
        bed.auto_sync = false;
        let to = bed.send(ME, Grow { like: None, ino, end: 20 << 20 });
        assert!(!bed.replies.contains_key(&to), "not durable, not answered");
        bed.sync();
        let grown = bed.reply::<GrowReply>(to).unwrap().unwrap();
        bed.auto_sync = true;
        let copy = grown.copy.unwrap();
        assert_eq!((copy.data.0.as_slice(), grown.layout.extents.len()), (&b"data"[..], 2));
        assert!(
            bed.call(ME, ReadInline { ino, short: alloc::vec::Vec::new(), trims: Default::default() })
                .unwrap()
                .layout
                .is_inline()
        );
        bed.check();
        let wish =
            Switch { ino, generation: grown.layout.generation, inline_version: copy.version, copied: 4 };
        let switched = bed.call(ME, wish.clone()).unwrap();
        let mut whole = grown.layout;
        whole.raise_floors_to(4);
        assert_eq!((switched.layout.clone(), switched.attr.size), (whole, 4), "the copy is there for sure");
        assert_eq!(bed.call(ME, wish).err(), Some(Status::STALE_GENERATION));
        bed.check();
        let more = bed.call(ME, Grow { like: None, ino, end: 2 << 30 }).unwrap();
        assert_eq!((more.layout.extents.len(), more.layout.generation), (3, switched.layout.generation));
        let same = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap();
        assert_eq!(same.layout, more.layout);
        bed.check();
    }

    /// Goal: a write or truncate between copy and switch makes the switch fail; the next growth
    /// has a new generation and the abandoned chunks go.
    #[test]
    fn late_writers_win_over_the_copy() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.write(ino, 0, b"data").unwrap();
        let first = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap();
        bed.write(ino, 0, b"DATA").unwrap();
        let version = first.copy.unwrap().version;
        let wish = Switch { ino, generation: first.layout.generation, inline_version: version, copied: 4 };
        assert_eq!(bed.call(ME, wish).err(), Some(Status::STALE_GENERATION));
        let second = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap();
        assert!(second.layout.generation > first.layout.generation);
        assert_eq!(bed.deleted.len(), first.layout.chunks().count());
        bed.truncate(OTHER, ino, 0).unwrap();
        let wish = Switch {
            ino,
            generation: second.layout.generation,
            inline_version: second.copy.unwrap().version,
            copied: 4,
        };
        assert_eq!(bed.call(ME, wish).err(), Some(Status::STALE_GENERATION));
        bed.check();
    }

    /// Goal: a second writer waits for the first, but takes over when that is slow; an abandoned
    /// intent is cancelled after a while; one of a session that ended at once.
    #[test]
    fn abandoned_intents_are_cancelled() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.write(ino, 0, b"data").unwrap();
        let first = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap();
        assert_eq!(bed.call(OTHER, Grow { like: None, ino, end: 1 }).err(), Some(Status::BUSY));
        bed.tick(crate::limit::GROWTH_AGE_MIN_MS);
        let second = bed.call(OTHER, Grow { like: None, ino, end: 1 }).unwrap();
        assert_eq!(bed.deleted.len(), first.layout.chunks().count());
        bed.tick(crate::limit::GROWTH_AGE_MAX_MS + 1_000);
        bed.tick(crate::limit::GROWTH_SWEEP_MS);
        assert_eq!(bed.deleted.len(), first.layout.chunks().count() + second.layout.chunks().count());
        bed.call(OTHER, Grow { like: None, ino, end: 1 }).unwrap();
        let before = bed.deleted.len();
        bed.fenced.push(2);
        let fences = bed.fences(&[1]);
        bed.step(crate::Input::Fences(fences));
        assert!(bed.deleted.len() > before);
        bed.check();
    }

    /// A file whose growth by ME was taken over by OTHER; the chunks that ME was given.
    fn taken_over(bed: &mut Bed) -> (Ino, GrowReply, BTreeSet<(TargetId, ChunkId)>) {
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.write(ino, 0, b"data").unwrap();
        let mine = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap();
        bed.tick(crate::limit::GROWTH_AGE_MIN_MS);
        bed.call(OTHER, Grow { like: None, ino, end: 1 }).unwrap();
        let chunks: BTreeSet<_> = mine.layout.chunks().map(|(chunk, target)| (target, chunk)).collect();
        assert_eq!(bed.deleted, chunks, "given up, deleted");
        // From here on ME's copy may come once more, to targets that have been restarted.
        bed.deleted.clear();
        bed.check();
        (ino, mine, chunks)
    }

    /// Goal: what the owner of a growth that was taken over copied after the deletion is deleted too, when it asks
    /// for something else, be that refused; and once.
    #[test]
    fn copies_after_the_deletion_are_deleted() {
        let mut bed = Bed::new();
        let (ino, mine, chunks) = taken_over(&mut bed);
        bed.resend(ME, Grow { like: None, ino, end: 1 });
        bed.call(Who { slot: 1, ..ME }, node(Ino::ROOT, "d", Kind::Dir)).unwrap();
        bed.call(OTHER, node(Ino::ROOT, "e", Kind::Dir)).unwrap();
        assert!(bed.deleted.is_empty(), "the lane itself may be copying still");
        let inline_version = mine.copy.unwrap().version;
        let wish = Switch { ino, generation: mine.layout.generation, inline_version, copied: 4 };
        assert_eq!(bed.call(ME, wish).err(), Some(Status::STALE_GENERATION));
        assert_eq!(bed.deleted, chunks);
        bed.deleted.clear();
        bed.call(ME, node(Ino::ROOT, "g", Kind::Dir)).unwrap();
        bed.fenced.push(1);
        let fences = bed.fences(&[2]);
        bed.step(crate::Input::Fences(fences));
        assert!(bed.deleted.is_empty(), "once");
        bed.check();
    }

    /// Goal: so they are when its session ends, before a restart or while the server is away.
    #[test]
    fn copies_of_sessions_that_ended_are_deleted() {
        let mut bed = Bed::new();
        let (_, _, chunks) = taken_over(&mut bed);
        bed.fenced.push(1);
        let fences = bed.fences(&[2]);
        bed.step(crate::Input::Fences(fences));
        assert_eq!(bed.deleted, chunks);
        bed.check();
        let mut bed = Bed::new();
        let (_, _, chunks) = taken_over(&mut bed);
        bed.fenced.push(1);
        bed.restart(&[2]);
        assert_eq!(bed.deleted, chunks);
        bed.check();
    }

    /// Goal: a restart forgets nothing of it, nor does a power cut that takes the second deletion with the request
    /// that led to it.
    #[test]
    fn a_power_cut_takes_the_second_deletion() {
        let mut bed = Bed::new();
        let (_, _, chunks) = taken_over(&mut bed);
        let kept = bed.log.len() as u64;
        bed.auto_sync = false;
        bed.send(ME, node(Ino::ROOT, "d", Kind::Dir));
        bed.run_courier();
        assert!(bed.deleted.is_empty(), "not durable, not sent");
        bed.auto_sync = true;
        bed.crash(0, kept, &[1, 2]);
        assert!(bed.deleted.is_empty());
        bed.call(ME, node(Ino::ROOT, "e", Kind::Dir)).unwrap();
        assert_eq!(bed.deleted, chunks);
        bed.check();
    }

    /// Goal: an owner that has done something else before its growth was given up is not waited for.
    #[test]
    fn owners_that_went_on_copy_nothing() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.write(ino, 0, b"data").unwrap();
        bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap();
        bed.call(ME, node(Ino::ROOT, "d", Kind::Dir)).unwrap();
        bed.tick(crate::limit::GROWTH_AGE_MIN_MS);
        bed.call(OTHER, Grow { like: None, ino, end: 1 }).unwrap();
        bed.call(OTHER, Grow { like: None, ino, end: 1 }).unwrap();
        let (from, until) = crate::key::table(Ino::ROOT.shard(), crate::key::Table::DeadGrowth);
        bed.server.store().scan(&from, &until, &mut |_, _| panic!("a row for nothing")).unwrap();
        bed.check();
    }

    /// Goal: a layout is shown to nobody before it is durable.
    #[test]
    fn layouts_are_shown_when_durable() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.auto_sync = false;
        let grow = bed.send(ME, Grow { like: None, ino, end: 1 });
        let wish = skep_wire::meta::Open {
            ino,
            mode: OpenMode::Read,
            truncate: false,
            shared: false,
            kill_suidgid: false,
            open_seq: 1,
        };
        let open = bed.send(OTHER, wish);
        let again = bed.send(OTHER, Grow { like: None, ino, end: 1 });
        assert!([grow, open, again].iter().all(|to| !bed.replies.contains_key(to)));
        bed.sync();
        assert!([grow, open, again].iter().all(|to| bed.replies.contains_key(to)));
    }

    /// Goal: a wish for a width and for no inline data is followed; a directory cannot grow.
    #[test]
    fn wishes_and_refusals() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        let policy =
            Policy { pool: skep_types::PoolId(0), chunk_size: 1 << 16, targets: 3, inline_limit: Some(0) };
        bed.call(ME, SetPolicy { ino, policy, spread: None }).unwrap();
        assert_eq!(bed.write(ino, 0, b"x").err(), Some(Status::MUST_GROW));
        let grown = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap();
        assert_eq!((grown.layout.extents.len(), grown.layout.extents[0].stripes.len()), (1, 3));
        assert_eq!(grown.layout.extents[0].chunk_size, 1 << 16);
        assert_eq!(
            bed.call(ME, Grow { like: None, ino: Ino::ROOT, end: 1 }).err(),
            Some(errno(Errno::EISDIR))
        );
        assert_eq!(bed.call(ME, Grow { like: None, ino, end: 1 << 63 }).err(), Some(errno(Errno::EFBIG)));
        bed.check();
    }
}
