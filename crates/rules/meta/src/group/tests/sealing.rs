//! Seals: the order, and everything that may come between.

use super::*;
use alloc::vec::Vec;

/// A file of one extent on one target, which holds `held` bytes.
fn file(bed: &mut Bed, held: u64) -> (Ino, Layout) {
    let (ino, layout) = bed.grown("f", held.max(1));
    bed.sizes.insert(layout.extents[0].chunk(0), held);
    (ino, layout)
}

fn ask(ino: Ino, layout: &Layout, end: u64) -> SealExtent {
    let extent = &layout.extents[0];
    let (chunk, full) = (extent.chunk(0), Some(extent.stripes[0].first()));
    SealExtent { ino, generation: layout.generation, chunk, end, room: 1, full }
}

fn layout_of(bed: &mut Bed, ino: Ino) -> Layout {
    bed.call(OTHER, ReadInline { ino, short: Vec::new(), trims: Default::default() }).unwrap().layout
}

/// Goal: nothing is sent before the intent is durable, nothing is shown before the target has sealed and the new
/// layout is durable; then the file goes on elsewhere. Who asks by the old layout afterwards is answered at once.
#[test]
fn the_order_is_kept() {
    let mut bed = Bed::new();
    let (ino, old) = file(&mut bed, 700);
    bed.auto_sync = false;
    let asked = bed.send(ME, ask(ino, &old, 701));
    assert!(bed.tasks.is_empty(), "not durable, not sent");
    bed.sync();
    assert_eq!(bed.tasks.len(), 1);
    let other = bed.send(OTHER, SealExtent { full: None, ..ask(ino, &old, 900) });
    assert_eq!(layout_of(&mut bed, ino), old);
    bed.run_courier();
    let shown = bed.send(OTHER, ReadInline { ino, short: Vec::new(), trims: Default::default() });
    assert!([asked, other, shown].iter().all(|to| !bed.replies.contains_key(to)), "sealed, not durable");
    bed.sync();
    assert!(bed.reply::<Empty>(asked).unwrap().is_ok() && bed.reply::<Empty>(other).unwrap().is_ok());
    let layout = bed.reply::<OpenReply>(shown).unwrap().unwrap().layout;
    let places: Vec<_> = layout.extents.iter().map(|e| (e.number, e.start, e.end)).collect();
    assert_eq!(places, [(0, 0, 700), (1, 700, 16 << 20)]);
    assert_ne!(layout.extents[0].stripes, layout.extents[1].stripes);
    let records = bed.log.len();
    bed.auto_sync = true;
    bed.call(OTHER, ask(ino, &old, 701)).unwrap();
    assert_eq!(bed.log.len(), records, "the layout is newer already");
    bed.check();
}

/// Goal: a restart, with or without what was not durable, goes on with the same seal and comes to the same layout.
#[test]
fn a_restart_goes_on() {
    for kept in 0..2 {
        let mut bed = Bed::new();
        let (ino, old) = file(&mut bed, 700);
        bed.courier_works = false;
        bed.send(ME, ask(ino, &old, 701));
        bed.auto_sync = false;
        bed.courier_works = true;
        bed.run_courier();
        // Sealed and logged, shown to nobody; `kept` = 0: the power goes.
        let last = bed.log.len() as u64 - 1 + kept;
        bed.auto_sync = true;
        bed.crash(0, last, &[]);
        let layout = layout_of(&mut bed, ino);
        assert_eq!(layout.extents.len(), 2, "{kept}");
        assert_eq!((layout.extents[0].end, &layout.extents[0].cuts), (700, &vec![700]));
        bed.check();
    }
}

/// Goal: a seal that ends after a restart before it is known who lives does not take a file away that has no name and is
/// open (seed 4129 of the simulator).
#[test]
fn a_seal_before_service_purges_nothing() {
    let mut bed = Bed::new();
    let (ino, old) = file(&mut bed, 700);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.unlink(ME, Ino::ROOT, "f").unwrap();
    bed.courier_works = false;
    bed.send(ME, ask(ino, &old, 701));
    (bed.courier_works, bed.targets_first) = (true, true);
    bed.restart(&[1, 2]);
    assert!(bed.attr(ino).is_ok(), "client 1 has it open");
    let reclaimed = Reclaimed { reserved: 0, ino, mode: OpenMode::Write, open_seq: 1 };
    bed.call(
        ME,
        Reclaim { locks: Vec::new(), opens: alloc::vec![reclaimed], last: true, term: None, holds: None },
    )
    .unwrap();
    bed.call(OTHER, Reclaim { locks: Vec::new(), opens: Vec::new(), last: true, term: None, holds: None })
        .unwrap();
    assert_eq!(bed.attr(ino).unwrap().nlink, 0);
    bed.close(ME, ino, 2);
    assert!(bed.attr(ino).is_err() && !bed.deleted.is_empty());
    bed.check();
}

/// Goal: a target that refuses to seal, or is away for long, keeps its stripe; the others go on elsewhere. Should the
/// seal have reached it after all, who is refused there has the extent closed once more.
#[test]
fn who_does_not_seal_stays_open() {
    for away in [false, true] {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        let policy = Policy { pool: PoolId(0), chunk_size: 1 << 16, targets: 2, inline_limit: Some(0) };
        bed.call(ME, SetPolicy { ino, policy, spread: None }).unwrap();
        let old = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap().layout;
        let second = old.extents[0].stripes[1].first();
        if away {
            bed.down.insert(second);
        } else {
            bed.unsealable.insert(second);
        }
        let asked = bed.send(ME, ask(ino, &old, 1));
        while !bed.replies.contains_key(&asked) {
            assert!(away);
            bed.tick(1_000);
        }
        let layout = layout_of(&mut bed, ino);
        if !layout.extents[0].is_closed() {
            // The wait was over before the target was given up: the client asks again.
            bed.tick(60_000);
        }
        let layout = layout_of(&mut bed, ino);
        assert_eq!(layout.extents[0].cuts, [0, u64::MAX]);
        bed.down.clear();
        bed.unsealable.clear();
        let chunk = old.extents[0].chunk(1);
        let again = SealExtent { full: None, chunk, ..ask(ino, &old, 1) };
        bed.call(OTHER, again).unwrap();
        assert_eq!(layout_of(&mut bed, ino).extents[0].cuts, [0, 0]);
        bed.check();
    }
}

/// Goal: no other target with room: ENOSPC that names the full one, and nothing is logged. A hole below the end of a
/// closed chunk file changes nothing.
#[test]
fn no_room_anywhere() {
    let mut bed = Bed::new();
    let (ino, old) = file(&mut bed, 700);
    bed.call(ME, ask(ino, &old, 701)).unwrap();
    let layout = layout_of(&mut bed, ino);
    bed.call(ME, ask(ino, &layout, 100)).unwrap();
    assert_eq!(layout_of(&mut bed, ino), layout, "a hole moves nothing");
    let mut layout = layout;
    let mut errors = Vec::new();
    for _ in 0..6 {
        let extent = layout.extents[1..].iter().find(|e| e.start < e.end && e.end == 16 << 20).unwrap();
        let wish = SealExtent {
            ino,
            generation: layout.generation,
            chunk: extent.chunk(0),
            end: 1,
            room: 1,
            full: Some(extent.stripes[0].first()),
        };
        let to = bed.send(ME, wish);
        if let Err(refusal) = bed.replies[&to].1.clone() {
            errors.push((
                refusal.status,
                refusal.detail.contains(&format!("target {}", extent.stripes[0].first())),
            ));
        }
        layout = layout_of(&mut bed, ino);
    }
    assert_eq!(errors[0], (errno(Errno::ENOSPC), true));
    assert_eq!(layout.extents.len(), 5, "four targets beside the first");
    bed.check();
}

/// Goal: a file that loses its last name, or is cut to 0, while it is being sealed counts as open: the chunk files go
/// when the seal is over, with those of the successor.
#[test]
fn a_file_that_is_sealed_counts_as_open() {
    let mut bed = Bed::new();
    let (ino, old) = file(&mut bed, 700);
    bed.courier_works = false;
    bed.send(ME, ask(ino, &old, 701));
    bed.unlink(ME, Ino::ROOT, "f").unwrap();
    assert!(bed.tasks.iter().all(|task| !matches!(task.job, Job::Delete { .. })), "{:?}", bed.tasks);
    assert_eq!(bed.attr(ino).unwrap().nlink, 0);
    bed.courier_works = true;
    bed.run_courier();
    assert_eq!(bed.attr(ino).err(), Some(errno(Errno::ESTALE)));
    assert_eq!(bed.deleted.len(), 2);
    bed.check();
    let mut bed = Bed::new();
    let (ino, old) = file(&mut bed, 700);
    bed.courier_works = false;
    bed.send(ME, ask(ino, &old, 701));
    let cut = bed.truncate_later(ino, 0);
    bed.courier_works = true;
    bed.run_courier();
    assert_eq!(bed.reply::<AttrReply>(cut).unwrap().unwrap().attr.size, 0);
    assert_eq!(layout_of(&mut bed, ino).generation, old.generation, "cut, not given up");
    bed.check();
}

/// Goal: a seal waits for a truncate that targets are being told of.
#[test]
fn a_seal_waits_for_a_truncate() {
    let mut bed = Bed::new();
    let (ino, old) = file(&mut bed, 700);
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.truncate_later(ino, 300);
    let asked = bed.send(OTHER, ask(ino, &old, 701));
    assert!(bed.tasks.iter().all(|task| matches!(task.job, Job::Trim { .. })));
    bed.courier_works = true;
    bed.run_courier();
    assert!(bed.reply::<Empty>(asked).unwrap().is_ok());
    let layout = layout_of(&mut bed, ino);
    assert_eq!((layout.extents[0].end, layout.extents[1].start), (300, 300));
    bed.check();
}

/// Goal: requests that name what the file does not have are refused or need nothing.
#[test]
fn strange_requests() {
    let mut bed = Bed::new();
    let (ino, old) = file(&mut bed, 700);
    let good = ask(ino, &old, 701);
    let inline = bed.create(ME, Ino::ROOT, "i");
    for (wish, refusal) in [
        (SealExtent { ino: Ino(999), ..good.clone() }, Some(errno(Errno::ESTALE))),
        (SealExtent { ino: inline, ..good.clone() }, Some(Status::STALE_GENERATION)),
        (SealExtent { ino: Ino::ROOT, ..good.clone() }, Some(Status::STALE_GENERATION)),
        (SealExtent { generation: Generation(9), ..good.clone() }, Some(Status::STALE_GENERATION)),
        (SealExtent { full: Some(TargetId(99)), ..good.clone() }, None),
        (SealExtent { chunk: ChunkId { stripe: 7, ..good.chunk }, ..good.clone() }, None),
        (SealExtent { chunk: ChunkId { extent: 7, ..good.chunk }, ..good.clone() }, None),
    ] {
        assert_eq!(bed.call(ME, wish.clone()).err(), refusal, "{wish:?}");
    }
    assert_eq!(layout_of(&mut bed, ino), old);
}
