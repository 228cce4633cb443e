//! The daemon between its connections: deletions against writes, evictions against writes, copies between targets.

use super::*;
use skep_disk::target::TargetDir;
use skep_storage::{PieceName, Sizes};
use skep_types::{Decode, Generation, Ino, NodeId, ShardId, Term, Uuid};
use skep_wire::mgmt::{Fence, TargetEntry};
use skep_wire::storage::{CopyChunkReply, Owner, ReadChunk, SealChunk, TrimChunk, WriteChunkReply};
use std::path::PathBuf;

const STALE: Status = Status::STALE_GENERATION;

struct Fixture {
    path: PathBuf,
    storaged: Storaged,
}

impl Fixture {
    /// A daemon with targets 101 and 102 that knows of no eviction.
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("skep-storaged-{name}-{}", std::process::id()));
        let target = |id: u32| {
            let directory = path.join(id.to_string());
            std::fs::create_dir_all(&directory).unwrap();
            let directory =
                TargetDir::open(&directory, Uuid([1; 16]), Some(Uuid([id as u8; 16])), 0).unwrap();
            Target::new(TargetId(id), 1, directory)
        };
        let place = RegisterNodeReply {
            node: NodeId(2),
            alias: "storage1".to_owned(),
            cluster: Uuid([1; 16]),
            epoch: FenceEpoch(0),
            registry: Default::default(),
        };
        let keyring = Arc::new(Keyring::insecure());
        let targets = vec![target(101), target(102)];
        let instruments = Instruments::new(skep_instruments::Host {
            service: ServiceKind::Storaged,
            name: "storaged",
            alias: place.alias.clone(),
            node: place.node,
            cluster: place.cluster,
            addresses: Vec::new(),
            keyring: keyring.clone(),
            targets: Vec::new(),
            log: None,
        });
        let storaged =
            Storaged::new(place, Incarnation(1), targets, keyring, Nudge::default(), false, instruments);
        storaged.fences(fences(1, &[]));
        Self { path, storaged }
    }

    fn serve(&self, request: impl Into<StorageRequest>, payload: &[u8]) -> Result<Answer, Refusal> {
        let mut room = Payload::new().unwrap();
        room.room(payload.len()).copy_from_slice(payload);
        self.storaged.serve(request.into(), None, ClientId(0), &mut room)
    }

    fn chunk_file(&self, target: u32, chunk: ChunkId) -> PathBuf {
        self.path.join(target.to_string()).join(PieceName::first(chunk).path())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn fences(epoch: u64, clients: &[u64]) -> FencesReply {
    let fence = |client: &u64| Fence { client: ClientId(*client), epoch: FenceEpoch(epoch) };
    let fences = clients.iter().map(fence).collect();
    FencesReply { epoch: FenceEpoch(epoch), fences, sessions: vec![], closed: vec![] }
}

fn chunk(ino: u64) -> ChunkId {
    ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }
}

fn write(ino: u64) -> WriteChunk {
    let (target, owner) = (TargetId(101), Owner::default());
    WriteChunk {
        target,
        chunk: chunk(ino),
        offset: 0,
        owner,
        floor: 0,
        sync: false,
        uncut: None,
        later: None,
        until: None,
    }
}

/// Goal: a write that was let through before the deletion of its chunk file, and ends after it, is refused after all
/// and leaves no chunk file. Method: the steps of `serve` by hand, the deletion in between.
#[test]
fn a_write_around_a_deletion_leaves_nothing() {
    let fixture = Fixture::new("around");
    let storaged = &fixture.storaged;
    fixture.serve(write(1), b"early").unwrap();
    let request = StorageRequest::from(write(1));
    let target = storaged.target(TargetId(101), &request).unwrap();
    fixture.serve(DeleteChunks { target: TargetId(101), by: None, chunks: vec![chunk(1)] }, b"").unwrap();
    target.write(&write(1), b"late", ClientId(0)).unwrap();
    assert!(fixture.chunk_file(101, chunk(1)).exists(), "the write makes it anew: else this tests nothing");
    let refusal = storaged.still_wanted(target, &request, chunk(1)).unwrap_err();
    assert_eq!(refusal.status, Status::STALE_GENERATION);
    assert!(!fixture.chunk_file(101, chunk(1)).exists());
}

/// Goal: a seal that is in work while its chunk file is deleted, or comes later, leaves no entry for what is gone; nor does a
/// truncate leave a piece that it has made: the deletion has the last word, in whatever order they come. Method: as above.
#[test]
fn seals_and_truncates_around_a_deletion_leave_nothing() {
    let fixture = Fixture::new("sealed");
    let storaged = &fixture.storaged;
    let target = TargetId(101);
    let delete = || DeleteChunks { target, by: None, chunks: vec![chunk(1)] };
    let by = ShardTerm { shard: ShardId(0), term: Term(1) };
    let seal = StorageRequest::from(SealChunk { target, by, chunk: chunk(1), floor: 0 });
    let seals = || std::fs::read_dir(fixture.path.join("101/seals")).unwrap().count();
    fixture.serve(write(1), b"early").unwrap();
    fixture.serve(delete(), b"").unwrap();
    let on = storaged.target(target, &write(2).into()).unwrap();
    // It was let through before the deletion.
    assert_eq!(
        storaged.serve_on(on, seal.clone(), ClientId(0), &mut Payload::new().unwrap()).unwrap_err().status,
        STALE
    );
    assert_eq!(seals(), 0, "an entry for a chunk file that is gone");
    assert_eq!(fixture.serve(seal, b"").unwrap_err().status, STALE);
    let trim = TrimChunk { target, by: None, chunk: chunk(1), size: 3, keeps_reserved: None };
    // As if it had made a piece at the same moment.
    on.write(&write(1), b"late", ClientId(0)).unwrap();
    fixture.serve(trim, b"").unwrap();
    assert!(!fixture.chunk_file(101, chunk(1)).exists(), "a chunk file that is gone came back");
}

/// Goal: the same with both at once, many times, through `serve`.
#[test]
fn writes_do_not_bring_deleted_chunk_files_back() {
    let fixture = Fixture::new("deletion");
    for ino in 0..500 {
        std::thread::scope(|scope| {
            let write = || {
                loop {
                    if let Err(refusal) = fixture.serve(write(ino), b"late") {
                        break refusal.status;
                    }
                }
            };
            let writers = [scope.spawn(write), scope.spawn(write), scope.spawn(write)];
            let delete = DeleteChunks { target: TargetId(101), by: None, chunks: vec![chunk(ino)] };
            fixture.serve(delete, b"").unwrap();
            for writer in writers {
                assert_eq!(writer.join().unwrap(), Status::STALE_GENERATION);
            }
        });
        assert!(!fixture.chunk_file(101, chunk(ino)).exists(), "chunk file of inode {ino} came back");
    }
}

/// Goal: nobody is shown a new fence epoch while a change of an evicted client is in work; the evicted are refused
/// from the first moment; others go on.
#[test]
fn an_eviction_waits_for_the_changes_in_work() {
    let fixture = Fixture::new("eviction");
    let storaged = &fixture.storaged;
    let sender = |client| Sender { role: Role::Client, client: ClientId(client), epoch: FenceEpoch(1) };
    let in_work = storaged.writers.enter(ClientId(5));
    std::thread::scope(|scope| {
        let fencing = scope.spawn(|| storaged.fences(fences(2, &[5])));
        while storaged.admit(&sender(5)).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(storaged.admit(&sender(5)).unwrap_err().status, Status::FENCED);
        assert_eq!(storaged.epoch(), FenceEpoch(1), "the change is in work still");
        storaged.admit(&sender(6)).unwrap();
        drop(in_work);
        fencing.join().unwrap();
    });
    assert_eq!(storaged.epoch(), FenceEpoch(2));
}

/// Goal: copies go between the targets of a daemon; one that is not here is for the mount to do; a source that
/// failed is an error; a deleted copy stays deleted.
#[test]
fn copies_between_targets() {
    let fixture = Fixture::new("copies");
    fixture.serve(write(1), b"content").unwrap();
    let (from_chunk, owner) = (chunk(1), Owner::default());
    let (target, from_target) = (TargetId(102), TargetId(101));
    let copy = |target, from_target, ino| {
        let chunk = chunk(ino);
        let m = CopyChunk {
            target,
            chunk,
            offset: 2,
            from_target,
            from_chunk,
            from_offset: 0,
            len: 7,
            owner,
            floor: 0,
            from_floor: 0,
        };
        fixture.serve(m, b"").map_err(|refusal| refusal.status)
    };
    let body = copy(target, from_target, 2).unwrap().body;
    let reply = CopyChunkReply::from_bytes(&body).unwrap();
    assert_eq!((reply.copied, reply.written.size), (7, 9));
    let mut room = Payload::new().unwrap();
    let read = ReadChunk { target, chunk: chunk(2), offset: 0, len: 20 };
    fixture.storaged.serve(read.into(), None, ClientId(0), &mut room).unwrap();
    assert_eq!(&room.bytes()[..9], b"\0\0content");
    assert_eq!(copy(target, TargetId(103), 2).unwrap_err(), Status::errno(Errno::EXDEV));
    assert_eq!(copy(TargetId(103), from_target, 2).unwrap_err(), Status::STALE_MAP);
    fixture.serve(DeleteChunks { target, by: None, chunks: vec![chunk(2)] }, b"").unwrap();
    assert_eq!(copy(target, from_target, 2).unwrap_err(), Status::STALE_GENERATION);
    assert!(!fixture.chunk_file(102, chunk(2)).exists());
    let entry = skep_base::namespace::samples::status().targets[0].clone();
    fixture.storaged.targets[&from_target].hear(&TargetEntry { consistency: Consistency::Bad, ..entry });
    assert_eq!(copy(target, from_target, 3).unwrap_err(), Status::errno(Errno::EIO));
}

/// Goal: room is promised to sessions of clients only, each by itself, and only to who asks.
#[test]
fn room_is_promised_to_sessions() {
    let mut fixture = Fixture::new("promises");
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    let target = fixture.storaged.targets.get_mut(&TargetId(101)).unwrap();
    target.set_promises(Sizes { bytes: 5, told: 4, spare: 5, ms: 60_000 }, long_ago);
    let room = |role, client, later| {
        let m = WriteChunk { later, ..write(1) };
        let mut payload = Payload::new().unwrap();
        payload.room(1).copy_from_slice(b"x");
        let sender = Sender { role, client: ClientId(client), epoch: FenceEpoch(1) };
        let answer = fixture.storaged.serve(m.into(), None, session(&sender), &mut payload).unwrap();
        WriteChunkReply::from_bytes(&answer.body).unwrap().room
    };
    assert_eq!((room(Role::Client, 7, None), room(Role::Client, 7, Some(false))), (None, None));
    assert_eq!((room(Role::Admin, 7, Some(true)), room(Role::Server, 0, Some(true))), (None, None));
    assert_eq!(fixture.storaged.stats()[0].promised, Some(0));
    assert_eq!((room(Role::Client, 7, Some(true)), room(Role::Client, 8, Some(true))), (Some(4), Some(4)));
    assert_eq!(room(Role::Client, 8, Some(true)), Some(4));
    assert_eq!(fixture.storaged.stats()[0].promised, Some(10));
}
