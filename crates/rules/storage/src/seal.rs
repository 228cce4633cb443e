//! Sealed chunk files: nothing reaches behind their limit any more (`docs/design/seal.md`).

use crate::execute::Done;
use crate::room::allocated_end;
use crate::store::ChunkStore;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use skep_types::{ChunkId, Generation, Ino};
use skep_wire::storage::{SealChunk, SealChunkReply};
use skep_wire::{Refusal, Status};

/// Limits of the sealed chunk files of a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seals {
    limits: BTreeMap<ChunkId, u64>,
}

impl Seals {
    /// From which offset on the chunk file takes nothing; `None`: it is not sealed.
    pub fn limit(&self, chunk: &ChunkId) -> Option<u64> {
        if self.limits.is_empty() { None } else { self.limits.get(chunk).copied() }
    }

    /// The chunk file is sealed there, or further in front already.
    pub fn seal(&mut self, chunk: ChunkId, limit: u64) {
        self.limits.entry(chunk).and_modify(|known| *known = limit.min(*known)).or_insert(limit);
    }

    /// The chunk file is deleted: its limit.
    pub fn forget(&mut self, chunk: &ChunkId) -> Option<u64> {
        self.limits.remove(chunk)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ChunkId, &u64)> {
        self.limits.iter()
    }
}

/// The file in `seals/` that stands for a sealed chunk file: `<ino hex>.<generation>.<extent>.<stripe>.<limit>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealName {
    /// The chunk file.
    pub chunk: ChunkId,
    pub limit: u64,
}

impl SealName {
    /// The file's name.
    pub fn file_name(&self) -> String {
        let ChunkId { ino, generation, extent, stripe } = self.chunk;
        format!("{ino}.{generation}.{extent}.{stripe}.{}", self.limit)
    }

    /// Reads a file name; `None` for anything else.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let ino = Ino(u64::from_str_radix(parts.next()?, 16).ok()?);
        let generation = Generation(parts.next()?.parse().ok()?);
        let extent = parts.next()?.parse().ok()?;
        let stripe = parts.next()?.parse().ok()?;
        let limit = parts.next()?.parse().ok()?;
        let parsed = Self { chunk: ChunkId { ino, generation, extent, stripe }, limit };
        (parts.next().is_none() && parsed.file_name() == name).then_some(parsed)
    }
}

/// Seals a chunk file where it ends, what is reserved behind its last byte included: nobody else could write there, and
/// who reserved it may count on it. To be called while no change is in work that was let through before.
pub fn seal_chunk(store: &impl ChunkStore, m: &SealChunk) -> Result<SealChunkReply, Done> {
    let known = store.limit(&m.chunk);
    let end = allocated_end(store, m.chunk)?.max(m.floor);
    let limit = known.map_or(end, |known| known.min(end));
    if known != Some(limit) {
        store.seal(&m.chunk, limit)?;
    }
    Ok(SealChunkReply { limit })
}

/// Refuses what reaches behind the limit of a sealed chunk file.
pub(crate) fn require_open(
    store: &impl ChunkStore,
    chunk: ChunkId,
    offset: u64,
    len: u64,
) -> Result<(), Done> {
    match store.limit(&chunk) {
        Some(limit) if len > 0 && offset.saturating_add(len) > limit => {
            let text = format!("the chunk file is sealed at {limit}: what comes behind it is elsewhere");
            Err(Done::Refused(Refusal::with(Status::STALE_LAYOUT, text)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryChunks;
    use crate::{CopyFault, Limits, copy_chunk, execute, read_chunk, write_chunk};
    use alloc::vec;
    use skep_types::TargetId;
    use skep_wire::storage::*;

    const TARGET: TargetId = TargetId(101);

    fn chunk(stripe: u16) -> ChunkId {
        ChunkId { ino: Ino(7), generation: Generation(1), extent: 3, stripe }
    }

    fn write(store: &MemoryChunks, stripe: u16, offset: u64, len: usize) -> Result<WriteChunkReply, Done> {
        let (target, chunk, owner) = (TARGET, chunk(stripe), Owner::default());
        let m = WriteChunk {
            target,
            chunk,
            offset,
            owner,
            floor: 0,
            sync: false,
            uncut: None,
            later: None,
            until: None,
        };
        write_chunk(store, &m, &vec![1; len])
    }

    fn status(done: Done) -> Status {
        match done {
            Done::Refused(refusal) => refusal.status,
            other => panic!("{other:?}"),
        }
    }

    fn seal(store: &MemoryChunks, stripe: u16, floor: u64) -> u64 {
        seal_chunk(
            store,
            &SealChunk { target: TARGET, by: ShardTerm::default(), chunk: chunk(stripe), floor },
        )
        .unwrap()
        .limit
    }

    fn run(store: &MemoryChunks, request: StorageRequest) -> Result<(), Status> {
        match execute(store, Limits::default(), &request) {
            Done::Body(_) => Ok(()),
            done => Err(status(done)),
        }
    }

    /// Goal: behind the limit every kind of access is refused, in front of it none is; other chunk files are as before.
    #[test]
    fn nothing_reaches_behind_the_limit() {
        let store = MemoryChunks::default();
        write(&store, 0, 0, 100).unwrap();
        assert_eq!(seal(&store, 0, 0), 100);
        let stale = Status::STALE_LAYOUT;
        assert_eq!(write(&store, 0, 99, 2).map_err(status).err(), Some(stale));
        assert_eq!(write(&store, 0, 200, 1).map_err(status).err(), Some(stale));
        assert!(write(&store, 0, 99, 1).is_ok() && write(&store, 1, 500, 9).is_ok());
        let (target, owner) = (TARGET, Owner::default());
        let read = |offset, len| {
            let m = ReadChunk { target, chunk: chunk(0), offset, len };
            read_chunk(&store, &m, &mut [0; 64]).map(|(_, len)| len).map_err(status)
        };
        assert_eq!((read(90, 10), read(90, 11)), (Ok(10), Err(stale)));
        for (offset, len, expected) in [(0, 100, Ok(())), (50, 51, Err(stale)), (100, 1, Err(stale))] {
            assert_eq!(
                run(&store, PunchChunk { target, chunk: chunk(0), offset, len, unchanged: None }.into()),
                expected
            );
            let reserve = ReserveChunk { target, chunk: chunk(0), offset, len, owner };
            assert_eq!(run(&store, reserve.into()), expected);
        }
        let copy = |from, to, len| {
            let m = CopyChunk {
                target,
                chunk: chunk(to),
                offset: 0,
                from_target: target,
                from_chunk: chunk(from),
                from_offset: 0,
                len,
                owner,
                floor: 0,
                from_floor: 0,
            };
            copy_chunk(&store, &store, &m, false, &mut [0; 64])
        };
        assert!(matches!(copy(1, 0, 101), Err(CopyFault::Copy(done)) if status(done.clone()) == stale));
        assert!(matches!(copy(0, 2, 101), Err(CopyFault::Source(done)) if status(done.clone()) == stale));
        assert!(copy(1, 0, 100).is_ok() && copy(0, 2, 100).is_ok());
        assert_eq!(
            run(
                &store,
                TrimChunk { target, by: None, chunk: chunk(0), size: 50, keeps_reserved: None }.into()
            ),
            Ok(())
        );
        assert!(write(&store, 0, 60, 40).is_ok(), "what the limit leaves may be written again");
    }

    /// Goal: a seal is told again with the same limit; a shorter file lowers it, a longer one never raises it; one that
    /// does not exist is sealed at 0, one of which something is lost at what it held; deletion ends it.
    #[test]
    fn limits_fall_only() {
        let store = MemoryChunks::default();
        write(&store, 0, 0, 100).unwrap();
        assert_eq!((seal(&store, 0, 0), seal(&store, 0, 0)), (100, 100));
        assert_eq!(
            run(
                &store,
                TrimChunk { target: TARGET, by: None, chunk: chunk(0), size: 40, keeps_reserved: None }
                    .into()
            ),
            Ok(())
        );
        assert_eq!((seal(&store, 0, 0), seal(&store, 0, 90)), (40, 40));
        assert_eq!((seal(&store, 1, 0), seal(&store, 2, 70)), (0, 70));
        store.restart(None);
        assert_eq!(store.limit(&chunk(0)), Some(40));
        let chunks = vec![chunk(0), chunk(1)];
        assert_eq!(run(&store, DeleteChunks { target: TARGET, by: None, chunks }.into()), Ok(()));
        assert_eq!((store.limit(&chunk(0)), store.limit(&chunk(2))), (None, Some(70)));
    }

    /// Goal: what is reserved behind the end stays with the chunk file, to the last byte; when a loss or a truncate has
    /// taken it, the next seal is further in front.
    #[test]
    fn reservations_stay_in_front_of_the_limit() {
        let store = MemoryChunks::default();
        let reserve = |store: &MemoryChunks, stripe, offset, len| {
            let (target, chunk, owner) = (TARGET, chunk(stripe), Owner::default());
            run(store, ReserveChunk { target, chunk, offset, len, owner }.into())
        };
        write(&store, 0, 0, 100).unwrap();
        reserve(&store, 0, 0, 8_192).unwrap();
        reserve(&store, 1, 4_096, 4_096).unwrap();
        reserve(&store, 2, 0, 4_096).unwrap();
        assert_eq!([0, 1, 2].map(|stripe| seal(&store, stripe, 0)), [8_192, 8_192, 4_096]);
        assert!(write(&store, 0, 100, 8_092).is_ok() && write(&store, 1, 4_096, 4_096).is_ok());
        assert_eq!(write(&store, 0, 8_192, 1).map_err(status).err(), Some(Status::STALE_LAYOUT));
        assert_eq!(
            run(
                &store,
                TrimChunk { target: TARGET, by: None, chunk: chunk(1), size: 0, keeps_reserved: None }.into()
            ),
            Ok(())
        );
        store.lose_unsynced(|_| true);
        assert_eq!((seal(&store, 1, 0), seal(&store, 2, 0)), (0, 0));
    }

    /// Goal: names read back, and nothing else is taken for one.
    #[test]
    fn names_read_back() {
        let name = SealName { chunk: ChunkId { ino: Ino(0x1_f00d), ..chunk(5) }, limit: 1 << 41 };
        assert_eq!(SealName::parse(&name.file_name()), Some(name));
        for other in ["", "7.1.3", "7.1.3.0.+4", "7.1.3.0.04", "7.1.3.0.4.5", "x.1.3.0.4"] {
            assert_eq!(SealName::parse(other), None, "{other}");
        }
    }
}
