//! Requests over holes, pieces, limits, lives and failures of a disk.

use super::*;
use crate::memory::MemoryChunks;
use alloc::vec;
use skep_types::{Decode, Generation, Ino, TargetId};
use skep_wire::storage::*;

const TARGET: TargetId = TargetId(101);

fn chunk() -> ChunkId {
    ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 }
}

fn write(store: &MemoryChunks, offset: u64, data: &[u8]) -> Result<WriteChunkReply, Done> {
    let owner = Owner::default();
    write_chunk(
        store,
        &WriteChunk {
            target: TARGET,
            chunk: chunk(),
            offset,
            owner,
            floor: 0,
            sync: false,
            uncut: None,
            later: None,
            until: None,
        },
        data,
    )
}

fn read(store: &MemoryChunks, offset: u64, len: u32) -> Vec<u8> {
    let mut into = vec![0xee; len as usize];
    let (_, n) =
        read_chunk(store, &ReadChunk { target: TARGET, chunk: chunk(), offset, len }, &mut into).unwrap();
    into.truncate(n);
    into
}

fn run<R: Decode>(store: &MemoryChunks, request: impl Into<StorageRequest>) -> Result<R, Done> {
    match execute(store, Limits::default(), &request.into()) {
        Done::Body(body) => Ok(R::from_bytes(&body).unwrap()),
        other => Err(other),
    }
}

/// Goal: bytes come back, holes are zeros, the end is the end.
#[test]
fn reads_give_back_writes() {
    let store = MemoryChunks::default();
    assert_eq!(read(&store, 0, 10), b"");
    assert_eq!(write(&store, 5, b"hello").unwrap().size, 10);
    assert_eq!(read(&store, 0, 100), b"\0\0\0\0\0hello");
    assert_eq!(read(&store, 9, 1), b"o");
    assert_eq!(read(&store, 10, 1), b"");
}

/// Goal: a range over the border of two pieces is one range, and a gap of whole pieces reads
/// as zeros.
#[test]
fn pieces_are_one_chunk_file() {
    let store = MemoryChunks::default();
    write(&store, PIECE_SIZE - 2, b"abcd").unwrap();
    assert_eq!(read(&store, PIECE_SIZE - 3, 9), b"\0abcd");
    assert_eq!(write(&store, 3 * PIECE_SIZE + 1, b"z").unwrap().size, 3 * PIECE_SIZE + 2);
    assert_eq!(read(&store, 2 * PIECE_SIZE - 1, 3), b"\0\0\0");
    assert_eq!(read(&store, PIECE_SIZE + 1, 4), b"d\0\0\0");
    let stat: StatChunksReply =
        run(&store, StatChunks { target: TARGET, by: None, chunks: vec![chunk()] }).unwrap();
    assert_eq!(stat.chunks[0].size, 3 * PIECE_SIZE + 2);
}

/// Goal: a hole to the end of the highest file touches the pieces that exist, at once, and no other.
#[test]
fn a_hole_over_all_pieces() {
    let store = MemoryChunks::default();
    for at in [0, PIECE_SIZE, 5 * PIECE_SIZE] {
        write(&store, at + 10, b"abcd").unwrap();
    }
    let (offset, len) = (12, FILE_SIZE_MAX - 12);
    let punch = PunchChunk { target: TARGET, chunk: chunk(), offset, len, unchanged: None };
    let reply: ChunkReply = run(&store, punch).unwrap();
    assert_eq!(reply.size, 5 * PIECE_SIZE + 14, "a hole keeps the length");
    assert_eq!(read(&store, 10, 4), b"ab\0\0");
    for at in [PIECE_SIZE, 5 * PIECE_SIZE] {
        assert_eq!(read(&store, at + 10, 4), b"\0\0\0\0");
    }
    let inside =
        PunchChunk { target: TARGET, chunk: chunk(), offset: PIECE_SIZE - 1, len: 1, unchanged: None };
    write(&store, PIECE_SIZE - 1, b"xy").unwrap();
    let _: ChunkReply = run(&store, inside).unwrap();
    assert_eq!(read(&store, PIECE_SIZE - 1, 2), b"\0y");
}

/// Goal: what was trimmed is gone for ever, also when the file grows again.
#[test]
fn trimmed_bytes_do_not_come_back() {
    let store = MemoryChunks::default();
    write(&store, 0, b"0123456789").unwrap();
    write(&store, 2 * PIECE_SIZE, b"far").unwrap();
    let trim = |size| TrimChunk { target: TARGET, by: None, chunk: chunk(), size, keeps_reserved: None };
    let reply: ChunkReply = run(&store, trim(4)).unwrap();
    assert_eq!(reply.size, 4);
    write(&store, 8, b"x").unwrap();
    assert_eq!(read(&store, 0, 100), b"0123\0\0\0\0x");
    let reply: ChunkReply = run(&store, trim(1 << 50)).unwrap();
    assert_eq!(reply.size, 9, "trimming never grows");
}

/// Goal: a truncate frees what is reserved behind the end of a chunk file, also when it stays as long as it is; one that
/// is shorter already keeps its reservation.
#[test]
fn a_cut_frees_what_is_reserved_behind_it() {
    let store = MemoryChunks::default();
    let reserve = |len| {
        let (target, chunk, owner) = (TARGET, chunk(), Owner::default());
        let m = ReserveChunk { target, chunk, offset: 0, len, owner };
        run::<ChunkReply>(&store, m).unwrap().blocks
    };
    let trim = |size| {
        run::<ChunkReply>(
            &store,
            TrimChunk { target: TARGET, by: None, chunk: chunk(), size, keeps_reserved: None },
        )
        .unwrap()
    };
    assert_eq!(reserve(65_536), 128);
    assert_eq!(trim(0).blocks, 0, "nothing was written");
    write(&store, 0, &[1; 5_000]).unwrap();
    for (size, len, blocks) in [(5_000, 5_000, 16), (6_000, 5_000, 128), (4_096, 4_096, 8)] {
        assert_eq!(reserve(65_536), 128);
        let reply = trim(size);
        assert_eq!((reply.size, reply.blocks), (len, blocks), "cut at {size}");
    }
    assert_eq!(read(&store, 0, 9_000), [1; 4_096]);
    // The file became longer, this chunk file did not.
    assert_eq!(reserve(65_536), 128);
    let longer =
        |size| TrimChunk { target: TARGET, by: None, chunk: chunk(), size, keeps_reserved: Some(true) };
    assert_eq!(run::<ChunkReply>(&store, longer(4_096)).unwrap().blocks, 128);
    let reply: ChunkReply = run(&store, longer(4_095)).unwrap();
    assert_eq!((reply.size, reply.blocks), (4_095, 8), "it held more than the file");
}

/// Goal: what is cut off in a hole between pieces leaves a chunk file that ends at the cut: a shorter one would
/// count as lost (seeds 70, 89 and 111 of the simulator).
#[test]
fn a_cut_in_a_hole_ends_there() {
    for (at, size) in [(0, 4), (0, PIECE_SIZE), (0, PIECE_SIZE + 9), (3 * PIECE_SIZE, 2 * PIECE_SIZE + 1)] {
        let store = MemoryChunks::default();
        write(&store, at, b"a").unwrap();
        write(&store, 5 * PIECE_SIZE, b"far").unwrap();
        let trim = TrimChunk { target: TARGET, by: None, chunk: chunk(), size, keeps_reserved: None };
        let reply: ChunkReply = run(&store, trim.clone()).unwrap();
        assert_eq!(reply.size, size);
        let again: ChunkReply = run(&store, trim).unwrap();
        assert_eq!((again.size, stat(&store, chunk()).unwrap().size), (size, size));
    }
    // Where there is no room for the piece in which it ends, a truncate is what makes some.
    for far in [&[5][..], &[4, 5, 9]] {
        let store = MemoryChunks::default();
        for piece in far {
            write(&store, piece * PIECE_SIZE, b"far").unwrap();
        }
        store.set_room(Some(0));
        let size = 3 * PIECE_SIZE + 9;
        let trim = TrimChunk { target: TARGET, by: None, chunk: chunk(), size, keeps_reserved: None };
        assert_eq!(run::<ChunkReply>(&store, trim).unwrap().size, size);
        assert_eq!(store.further_pieces(&chunk()).unwrap(), [3]);
    }
    let store = MemoryChunks::default();
    write(&store, 5 * PIECE_SIZE, b"far").unwrap();
    let reply: ChunkReply =
        run(&store, TrimChunk { target: TARGET, by: None, chunk: chunk(), size: 0, keeps_reserved: None })
            .unwrap();
    assert_eq!((reply.size, store.list(None, 9).unwrap()), (0, vec![]), "nothing is left");
}

/// Goal: delete takes every piece; missing chunk files are fine.
#[test]
fn delete_takes_all_pieces() {
    let store = MemoryChunks::default();
    write(&store, 0, b"a").unwrap();
    write(&store, 5 * PIECE_SIZE, b"b").unwrap();
    let delete = DeleteChunks { target: TARGET, by: None, chunks: vec![chunk()] };
    let _: Empty = run(&store, delete.clone()).unwrap();
    let _: Empty = run(&store, delete).unwrap();
    assert_eq!(store.list(None, 10).unwrap(), vec![]);
}

/// Goal: fsync tells the truth after unsynced writes were lost.
#[test]
fn sync_notices_a_new_life() {
    let mut store = MemoryChunks::default();
    let life = write(&store, 0, b"a").unwrap().life;
    let sync = |life| SyncChunks { target: TARGET, chunks: vec![chunk()], life };
    let _: SyncChunksReply = run(&store, sync(life)).unwrap();
    write(&store, 1, b"b").unwrap();
    store.crash(1);
    assert!(
        matches!(run::<Empty>(&store, sync(life)), Err(Done::Refused(r)) if r.status == Status::LOST_WRITES)
    );
    assert_eq!(read(&store, 0, 1), b"a", "what was synced is there");
}

/// Goal: a failed write-back that somebody else's sync was told of meanwhile is nobody's success: neither a sync's
/// nor that of a request that syncs what it did.
#[test]
fn an_error_that_another_sync_was_told_of() {
    let store = MemoryChunks::default();
    let fails = |wanted: StorageRequest| {
        let life = write(&store, 0, b"abcd").unwrap().life;
        assert!(store.lose_unsynced(|_| true), "nothing was lost: else this tests nothing");
        store.set_sync_beside(true);
        let done = match wanted {
            StorageRequest::WriteChunk(m) => write_chunk(&store, &m, b"x").map(|_| ()),
            StorageRequest::SyncChunks(m) => {
                run::<SyncChunksReply>(&store, SyncChunks { life, ..m }).map(|_| ())
            }
            other => match execute(&store, Limits::default(), &other) {
                Done::Body(_) => Ok(()),
                done => Err(done),
            },
        };
        store.set_sync_beside(false);
        assert!(store.standing().bad);
        store.repair();
        matches!(done, Err(Done::Refused(r)) if r.status == Status::LOST_WRITES)
    };
    let owner = Owner::default();
    assert!(fails(SyncChunks { target: TARGET, chunks: vec![chunk()], life: 0 }.into()));
    let m = WriteChunk {
        target: TARGET,
        chunk: chunk(),
        offset: 9,
        owner,
        floor: 0,
        sync: true,
        uncut: None,
        later: None,
        until: None,
    };
    assert!(fails(m.into()));
    assert!(fails(
        TrimChunk { target: TARGET, by: None, chunk: chunk(), size: 2, keeps_reserved: None }.into()
    ));
    assert!(fails(DeleteChunks { target: TARGET, by: None, chunks: vec![chunk()] }.into()));
}

/// Goal: a full disk answers ENOSPC, loses nothing, and serves again when there is room.
#[test]
fn a_full_disk_is_no_failure() {
    let store = MemoryChunks::default();
    write(&store, 0, b"abc").unwrap();
    store.set_room(Some(0));
    assert_eq!(write(&store, 3, b"d"), Err(Done::Refused(Errno::ENOSPC.into())));
    assert_eq!(read(&store, 0, 10), b"abc");
    store.set_room(None);
    write(&store, 3, b"d").unwrap();
    assert_eq!(read(&store, 0, 10), b"abcd");
}

/// Goal: offsets at the end of what a file can address work; beyond is EFBIG, never a panic.
#[test]
fn extreme_offsets() {
    let store = MemoryChunks::default();
    write(&store, FILE_SIZE_MAX - 1, b"x").unwrap();
    assert_eq!(read(&store, FILE_SIZE_MAX - 2, 2), b"\0x");
    for offset in [FILE_SIZE_MAX, u64::MAX] {
        assert!(matches!(write(&store, offset, b"x"), Err(Done::Refused(_))));
    }
    let punch =
        PunchChunk { target: TARGET, chunk: chunk(), offset: u64::MAX, len: u64::MAX, unchanged: None };
    assert!(matches!(run::<ChunkReply>(&store, punch), Err(Done::Refused(_))));
}

/// Goal: a sync tells the lengths that are durable now; a write to a chunk file that is shorter than its floor
/// is refused and makes nothing, which would hide that something is lost.
#[test]
fn what_is_lost_is_not_hidden() {
    let store = MemoryChunks::default();
    write(&store, 0, &[7; 100]).unwrap();
    let gone = ChunkId { stripe: 1, ..chunk() };
    let sync = SyncChunks { target: TARGET, chunks: vec![chunk(), gone], life: store.life() };
    let Done::Body(body) = execute(&store, Limits::default(), &sync.into()) else { panic!() };
    assert_eq!(SyncChunksReply::from_bytes(&body).unwrap().sizes, [100, 0]);
    let (owner, target) = (Owner::default(), TARGET);
    let m = |chunk, floor| WriteChunk {
        target,
        chunk,
        offset: 500,
        owner,
        floor,
        sync: false,
        uncut: None,
        later: None,
        until: None,
    };
    for (chunk, floor) in [(chunk(), 101), (gone, 1)] {
        let Err(Done::Refused(refusal)) = write_chunk(&store, &m(chunk, floor), b"x") else { panic!() };
        assert_eq!(refusal.status, Status::LOST_CHUNK);
    }
    assert_eq!(stat(&store, chunk()).unwrap().size, 100);
    assert_eq!(store.list(None, 9).unwrap(), [chunk()]);
    assert_eq!(write_chunk(&store, &m(chunk(), 100), b"x").unwrap().size, 501);
    assert_eq!(write_chunk(&store, &m(gone, 0), b"x").unwrap().size, 501);
}

/// Goal: what a failed write left is punched only where nobody has changed the chunk file since it was looked at, in
/// whatever way, nor in another life of the daemon.
#[test]
fn only_what_nobody_changed_is_taken_back() {
    let mut store = MemoryChunks::default();
    let target = TARGET;
    let seen = |store: &MemoryChunks| {
        let stat = StatChunks { target, by: None, chunks: vec![chunk()] };
        let Done::Body(body) = execute(store, Limits::default(), &stat.into()) else { panic!("no stat") };
        StatChunksReply::from_bytes(&body).unwrap().chunks[0].changes
    };
    let take_back = |store: &MemoryChunks, unchanged| {
        let punch = PunchChunk { target, chunk: chunk(), offset: 0, len: 10, unchanged };
        matches!(execute(store, Limits::default(), &punch.into()), Done::Body(_))
    };
    let write = |store: &MemoryChunks| write(store, 0, &[1; 100]).map(drop).unwrap();
    write(&store);
    let before = seen(&store);
    assert!(take_back(&store, before));
    assert!(!take_back(&store, before), "the hole is a change, too");
    let changes: [StorageRequest; 3] = [
        TrimChunk { target, by: None, chunk: chunk(), size: 50, keeps_reserved: None }.into(),
        ReserveChunk { target, chunk: chunk(), offset: 0, len: 10, owner: Owner::default() }.into(),
        DeleteChunks { target, by: None, chunks: vec![chunk()] }.into(),
    ];
    for change in changes {
        let before = seen(&store);
        assert!(matches!(execute(&store, Limits::default(), &change), Done::Body(_)));
        assert!(!take_back(&store, before), "{change:?}");
    }
    let before = seen(&store);
    write(&store);
    assert!(!take_back(&store, before));
    let before = seen(&store);
    store.restart(None);
    assert!(!take_back(&store, before));
    let before = seen(&store);
    store.crash(1);
    assert!(!take_back(&store, before));
}

/// Goal: an append is refused once a truncate may have come since its place was given, or in another life of the daemon; writes
/// change nothing for it.
#[test]
fn an_append_does_not_outlive_a_truncate() {
    let store = MemoryChunks::default();
    let append = |uncut| {
        let owner = Owner::default();
        let (target, chunk) = (TARGET, chunk());
        let m = WriteChunk {
            target,
            chunk,
            offset: 0,
            owner,
            floor: 0,
            sync: false,
            uncut,
            later: None,
            until: None,
        };
        write_chunk(&store, &m, &[1; 100]).map(|reply| reply.cuts)
    };
    let refused =
        |result| matches!(result, Err(Done::Refused(refusal)) if refusal.status == Status::CUT_SINCE);
    let seen = append(None).unwrap();
    assert_eq!(append(seen), Ok(seen));
    let trim = TrimChunk { target: TARGET, by: None, chunk: chunk(), size: 500, keeps_reserved: None };
    assert!(matches!(execute(&store, Limits::default(), &trim.into()), Done::Body(_)));
    assert!(refused(append(seen)), "though it was shorter");
    let seen = append(None).unwrap();
    assert_eq!(append(seen), Ok(seen));
    store.restart(None);
    assert!(refused(append(seen)));
}
