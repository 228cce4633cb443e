//! Copies over holes, pieces, limits and failures, against a plain array of bytes.

use super::*;
use crate::execute::{read_chunk, write_chunk};
use crate::memory::MemoryChunks;
use alloc::vec;
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{ChunkId, Generation, Ino, TargetId};
use skep_wire::Status;
use skep_wire::storage::{Owner, ReadChunk, WriteChunk};

const HERE: TargetId = TargetId(101);
const THERE: TargetId = TargetId(102);

fn chunk(ino: u64) -> ChunkId {
    ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }
}

fn write(store: &MemoryChunks, ino: u64, offset: u64, data: &[u8]) {
    let (chunk, owner) = (chunk(ino), Owner::default());
    write_chunk(
        store,
        &WriteChunk {
            target: HERE,
            chunk,
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
    .unwrap();
}

fn read(store: &MemoryChunks, ino: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut into = vec![0xee; len as usize];
    let m = ReadChunk { target: HERE, chunk: chunk(ino), offset, len };
    let (_, n) = read_chunk(store, &m, &mut into).unwrap();
    into.truncate(n);
    into
}

/// From inode 1 of `THERE` to inode 2 of `HERE`.
fn message(from_offset: u64, offset: u64, len: u64) -> CopyChunk {
    let owner = Owner::default();
    let (target, from_target) = (HERE, THERE);
    CopyChunk {
        target,
        chunk: chunk(2),
        offset,
        from_target,
        from_chunk: chunk(1),
        from_offset,
        len,
        owner,
        floor: 0,
        from_floor: 0,
    }
}

fn copy(store: &MemoryChunks, from: &MemoryChunks, m: &CopyChunk) -> Result<CopyChunkReply, CopyFault> {
    copy_chunk(store, from, m, false, &mut [0; 1_000])
}

/// Follows partial answers to the end.
fn copy_all(store: &MemoryChunks, from: &MemoryChunks, m: &CopyChunk) {
    let mut m = m.clone();
    while m.len > 0 {
        let reply = copy(store, from, &m).unwrap();
        assert!((1..=m.len).contains(&reply.copied));
        assert!(reply.written.size >= m.offset + reply.copied, "the copy has its length");
        m.offset += reply.copied;
        m.from_offset += reply.copied;
        m.len -= reply.copied;
    }
}

/// Goal: whatever is copied where, the copy has the source's bytes, zeros for its holes, and nothing else changes.
#[test]
fn random_copies_are_those_of_an_array() {
    let mut draw = 7u64;
    let mut random = |below: u64| {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        draw % below
    };
    const SIZE: usize = 60_000;
    for round in 0..200 {
        let (store, from) = (MemoryChunks::default(), MemoryChunks::default());
        let (mut a, mut b) = (vec![0u8; 0], vec![0u8; 0]);
        for (store, ino, array) in [(&from, 1, &mut a), (&store, 2, &mut b)] {
            for i in 0..random(5) {
                let (at, len) = (random(40_000) as usize, random(12_000) as usize + 1);
                write(store, ino, at as u64, &vec![i as u8 + 1; len]);
                array.resize(array.len().max(at + len), 0);
                array[at..at + len].fill(i as u8 + 1);
            }
        }
        a.resize(SIZE, 0);
        let (from_at, at, len) =
            (random(45_000) as usize, random(45_000) as usize, random(14_000) as usize + 1);
        copy_all(&store, &from, &message(from_at as u64, at as u64, len as u64));
        b.resize(b.len().max(at + len), 0);
        b[at..at + len].copy_from_slice(&a[from_at..from_at + len]);
        assert_eq!(read(&store, 2, 0, SIZE as u32), b, "round {round}: {from_at} {at} {len}");
    }
}

/// Goal: borders of pieces are met on both sides, wherever they fall.
#[test]
fn copies_over_pieces() {
    let store = MemoryChunks::default();
    write(&store, 1, PIECE_SIZE - 3, b"abcdef");
    for offset in [0, PIECE_SIZE - 1, PIECE_SIZE - 3, 5 * PIECE_SIZE - 4] {
        copy_all(&store, &store, &message(PIECE_SIZE - 3, offset, 6));
        assert_eq!(read(&store, 2, offset, 6), b"abcdef", "to {offset}");
    }
}

/// Goal: a hole costs no space in the copy however long it is, removes what was there, and ends where it must.
#[test]
fn holes_stay_holes() {
    let (store, from) = (MemoryChunks::default(), MemoryChunks::default());
    write(&store, 2, 0, &[9; 100_000]);
    copy_all(&store, &from, &message(0, 8_192, 3 * PIECE_SIZE));
    assert_eq!(read(&store, 2, 0, 8_192), [9; 8_192]);
    assert_eq!(read(&store, 2, 8_192, 100_000), [0; 100_000]);
    let stat = stat(&store, chunk(2)).unwrap();
    assert_eq!(stat.size, 8_192 + 3 * PIECE_SIZE);
    assert!(stat.blocks <= 32, "{} blocks", stat.blocks);
}

/// Goal: one request copies no more than its limit, and says how much.
#[test]
fn answers_are_partial() {
    let (store, from) = (MemoryChunks::default(), MemoryChunks::default());
    for mib in 0..COPY_MAX >> 20 {
        write(&from, 1, mib << 20, &[mib as u8; 1 << 20]);
    }
    write(&from, 1, COPY_MAX, b"rest");
    let m = message(0, 0, COPY_MAX + 4);
    let mut buffer = vec![0; 1 << 20];
    let reply = copy_chunk(&store, &from, &m, false, &mut buffer).unwrap();
    assert_eq!((reply.copied, reply.written.size), (COPY_MAX, COPY_MAX));
    let rest = copy_chunk(&store, &from, &message(COPY_MAX, COPY_MAX, 4), false, &mut buffer).unwrap();
    assert_eq!((rest.copied, rest.written.size), (4, COPY_MAX + 4));
    assert_eq!(read(&store, 2, COPY_MAX - 1, 5), [&[31][..], b"rest"].concat());
}

/// Goal: a copy is durable when it was asked to be, and its life tells of losses otherwise.
#[test]
fn copies_are_writes() {
    let (mut store, from) = (MemoryChunks::default(), MemoryChunks::default());
    write(&from, 1, 0, b"abc");
    let life = copy_chunk(&store, &from, &message(0, 0, 3), true, &mut [0; 10]).unwrap().written.life;
    assert_eq!(life, store.life());
    for seed in 0..20 {
        store.crash(seed);
    }
    assert_eq!(read(&store, 2, 0, 10), b"abc");
    assert_ne!(life, store.life());
}

/// Goal: what cannot be is refused; a disk's failure is told of the disk that failed; a full disk ends a copy early.
#[test]
fn failures() {
    let (store, from) = (MemoryChunks::default(), MemoryChunks::default());
    write(&from, 1, 0, &[1; 10_000]);
    let status = |fault: CopyFault| match fault {
        CopyFault::Copy(Done::Refused(refusal)) => refusal.status,
        other => panic!("{other:?}"),
    };
    let mut same = CopyChunk { from_target: HERE, from_chunk: chunk(2), ..message(0, 9, 10) };
    assert_eq!(copy(&store, &store, &same).map_err(status), Err(Status::errno(Errno::EINVAL)));
    same.offset = 10;
    assert!(copy(&store, &store, &same).is_ok(), "side by side is no overlap");
    for m in
        [message(0, 0, 0), message(FILE_SIZE_MAX, 0, 1), message(0, u64::MAX, 1), message(0, 1, u64::MAX)]
    {
        assert!(copy(&store, &from, &m).is_err());
    }
    store.set_room(Some(1_500));
    let reply = copy(&store, &from, &message(0, 0, 10_000)).unwrap();
    assert_eq!(reply.copied, 1_000);
    let full = copy(&store, &from, &message(1_000, 1_000, 9_000)).map_err(status);
    assert_eq!(full, Err(Status::errno(Errno::ENOSPC)));
    store.set_room(None);
    from.set_failing(true);
    let fault = copy(&store, &from, &message(0, 0, 10)).unwrap_err();
    assert!(matches!(fault, CopyFault::Source(Done::DiskFailed(_))), "{fault:?}");
    from.set_failing(false);
    store.set_failing(true);
    let fault = copy(&store, &from, &message(0, 0, 10)).unwrap_err();
    assert!(matches!(fault, CopyFault::Copy(Done::DiskFailed(_))), "{fault:?}");
}

/// Goal: a target that cannot make holes sends the mount back to reading and writing, and is not called broken.
#[test]
fn no_holes_is_no_failure() {
    let exdev =
        |done: Done| matches!(done, Done::Refused(refusal) if refusal.status == Status::errno(Errno::EXDEV));
    assert!(exdev(fault(DiskError::Unsupported)));
    assert!(!exdev(fault(DiskError::NoSpace)));
}
