//! Targets on real directories: identity, full disks, many pieces, concurrency.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use skep_disk::target::{IDENTITY_FILE, OPEN_FILES_MAX, TargetDir};
use skep_storage::{
    ChunkStore, CopyFault, DiskError, Done, Limits, PieceName, copy_chunk, execute, read_chunk, write_chunk,
};
use skep_types::limits::PIECE_SIZE;
use skep_types::{ChunkId, Decode, Generation, Ino, TargetId, Uuid};
use skep_wire::storage::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const CLUSTER: Uuid = Uuid([1; 16]);

/// A fresh directory, removed (and unmounted) at the end, also when the test fails.
struct Scratch {
    path: PathBuf,
    mounted: bool,
}

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("skep-target-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self { path, mounted: false }
    }

    /// A small file system of its own.
    fn tmpfs(size: &str) -> Self {
        let mut scratch = Self::new();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        mount("skep-test", &scratch.path, "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
        scratch.mounted = true;
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            let _ = unmount(&self.path, UnmountFlags::DETACH);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn open(path: &Path) -> TargetDir {
    TargetDir::open(path, CLUSTER, Some(Uuid([2; 16])), 0).unwrap()
}

fn refusal(path: &Path, cluster: Uuid, format: Option<Uuid>) -> String {
    TargetDir::open(path, cluster, format, 0).err().expect("the directory was served").0
}

fn chunk(ino: u64) -> ChunkId {
    ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }
}

fn write(target: &TargetDir, ino: u64, offset: u64, data: &[u8]) -> Result<WriteChunkReply, Done> {
    let m = WriteChunk {
        target: TargetId(101),
        chunk: chunk(ino),
        offset,
        owner: Owner::default(),
        floor: 0,
        sync: false,
        uncut: None,
        later: None,
        until: None,
    };
    write_chunk(target, &m, data)
}

fn read(target: &TargetDir, ino: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut into = vec![0xee; len as usize];
    let m = ReadChunk { target: TargetId(101), chunk: chunk(ino), offset, len };
    let (_, n) = read_chunk(target, &m, &mut into).unwrap();
    into.truncate(n);
    into
}

fn run(target: &TargetDir, request: impl Into<StorageRequest>) -> Vec<u8> {
    match execute(target, Limits::default(), &request.into()) {
        Done::Body(body) => body,
        other => panic!("{other:?}"),
    }
}

/// Goal: only the right disk is served; every refusal says what to do.
#[test]
fn wrong_disks_are_refused() {
    let dir = Scratch::new();
    assert!(refusal(&dir.path.join("missing"), CLUSTER, None).contains("is the disk mounted"));
    assert!(refusal(&dir.path, CLUSTER, None).contains("--init"));
    drop(open(&dir.path));
    let target = TargetDir::open(&dir.path, CLUSTER, None, 0).unwrap();
    assert!(refusal(&dir.path, CLUSTER, None).contains("another process serves it"));
    target.set_id(TargetId(101)).unwrap();
    target.set_id(TargetId(101)).unwrap();
    assert!(target.set_id(TargetId(102)).is_err());
    drop(target);
    assert!(refusal(&dir.path, Uuid([8; 16]), Some(Uuid([3; 16]))).contains("belongs to cluster"));
    assert_eq!(TargetDir::open(&dir.path, CLUSTER, None, 0).unwrap().identity().target, TargetId(101));
    std::fs::write(dir.path.join(IDENTITY_FILE), "format = 7").unwrap();
    assert!(refusal(&dir.path, CLUSTER, Some(Uuid([3; 16]))).contains("damaged"));

    let strange = Scratch::new();
    std::fs::write(strange.path.join("thesis.tex"), "a PhD's worth").unwrap();
    assert!(refusal(&strange.path, CLUSTER, Some(Uuid([3; 16]))).contains("thesis.tex"));
}

/// Goal: what was written is there after the daemon ended and started again.
#[test]
fn content_survives_a_restart() {
    let dir = Scratch::new();
    let target = open(&dir.path);
    write(&target, 7, 3, b"hello").unwrap();
    drop(target);
    let target = TargetDir::open(&dir.path, CLUSTER, None, 0).unwrap();
    assert_eq!(read(&target, 7, 0, 100), b"\0\0\0hello");
    assert_eq!(target.list(None, 10).unwrap(), [chunk(7)]);
    let path = dir.path.join(PieceName::first(chunk(7)).path());
    assert_eq!(std::fs::read(path).unwrap(), b"\0\0\0hello", "ordinary tools can read it");
}

/// Goal: a full disk gives ENOSPC to the writer, keeps what is there, and serves on; it does not
/// count as a failure of the disk.
#[test]
fn a_full_disk_loses_nothing() {
    let _alone = SPAWNING.lock();
    let dir = Scratch::tmpfs("1m");
    let target = open(&dir.path);
    let block = vec![7u8; 128 * 1024];
    let mut written = 0;
    let refused = loop {
        match write(&target, 1, written, &block) {
            Ok(_) => written += block.len() as u64,
            Err(done) => break done,
        }
    };
    assert!(matches!(refused, Done::Refused(r) if r.status.as_errno() == Some(skep_types::Errno::ENOSPC)));
    assert!(written >= 256 * 1024);
    for at in (0..written).step_by(block.len()) {
        assert!(read(&target, 1, at, block.len() as u32) == block, "block at {at} was damaged");
    }
    let life = target.life();
    run(&target, DeleteChunks { target: TargetId(101), by: None, chunks: vec![chunk(1)] });
    write(&target, 2, 0, &block).unwrap();
    assert_eq!(target.life(), life);
}

/// Goal: a target whose disk is full to the last byte is served again after a restart, also where the terms of shards have
/// no room: reads and deletions go on, a truncate is refused with words, and done when a deletion has made room. A server
/// that was deposed stays so meanwhile; and over restarts as soon as there was room. The same where the file has a length
/// and no room, as on a file system that writes nothing in place.
#[test]
fn terms_without_room_hold_up_no_deletion() {
    let _alone = SPAWNING.lock();
    for reserved in [false, true] {
        let dir = Scratch::tmpfs("4m");
        let target = open(&dir.path);
        write(&target, 1, 0, b"hello").unwrap();
        write(&target, 2, 0, &vec![7; 2 << 20]).unwrap();
        let terms = dir.path.join("skep-target.terms");
        if reserved {
            std::fs::File::create(&terms).unwrap().set_len(512 << 10).unwrap();
        }
        for n in 3.. {
            if write(&target, n, 0, &[7; 4096]).is_err() {
                break;
            }
        }
        drop(target);
        let shard = chunk(1).ino.shard();
        let by = |term| ShardTerm { shard, term: skep_types::Term(term) };
        let speak =
            |target: &TargetDir, term, makes_room| match target.speak(by(term), makes_room, Duration::ZERO) {
                Ok(_) => Ok(()),
                Err(Done::Refused(refusal)) => Err(refusal),
                Err(other) => panic!("{other:?}"),
            };
        let target = open(&dir.path);
        target.keep_terms().unwrap();
        assert_eq!(read(&target, 1, 0, 5), b"hello");
        let refusal = speak(&target, 5, false).unwrap_err();
        assert_eq!(refusal.status.as_errno(), Some(skep_types::Errno::ENOSPC));
        assert!(refusal.detail.contains("deletions go on"), "{refusal}");
        speak(&target, 5, true).unwrap();
        assert_eq!(speak(&target, 4, true).unwrap_err().status, skep_wire::Status::OLD_TERM);
        let deletion = DeleteChunks { target: TargetId(101), by: Some(by(5)), chunks: vec![chunk(2)] };
        run(&target, deletion);
        speak(&target, 5, false).unwrap();
        drop(target);
        let target = open(&dir.path);
        target.keep_terms().unwrap();
        assert_eq!(speak(&target, 4, false).unwrap_err().status, skep_wire::Status::OLD_TERM);
        assert_eq!(std::fs::metadata(&terms).unwrap().len(), 512 << 10);
    }
}

/// Goal: chunk files beyond 1 TiB, holes of terabytes, trim and delete over all pieces.
#[test]
fn pieces_on_a_real_file_system() {
    let dir = Scratch::tmpfs("16m");
    let target = open(&dir.path);
    write(&target, 5, 0, b"start").unwrap();
    write(&target, 5, PIECE_SIZE - 2, b"abcd").unwrap();
    write(&target, 5, 1 << 62, b"far").unwrap();
    assert_eq!(read(&target, 5, PIECE_SIZE - 3, 6), b"\0abcd\0");
    assert_eq!(read(&target, 5, (1 << 62) - 1, 10), b"\0far");
    let reply = run(
        &target,
        TrimChunk {
            target: TargetId(101),
            by: None,
            chunk: chunk(5),
            size: PIECE_SIZE + 1,
            keeps_reserved: None,
        },
    );
    assert_eq!(ChunkReply::from_bytes(&reply).unwrap().size, PIECE_SIZE + 1);
    assert_eq!(target.further_pieces(&chunk(5)).unwrap(), [1]);
    write(&target, 5, PIECE_SIZE + 3, b"x").unwrap();
    assert_eq!(read(&target, 5, PIECE_SIZE, 10), b"c\0\0x");
    run(&target, DeleteChunks { target: TargetId(101), by: None, chunks: vec![chunk(5)] });
    assert_eq!(target.list(None, 10).unwrap(), []);
    assert_eq!(read(&target, 5, 0, 10), b"");
    assert!(target.further_pieces(&chunk(5)).unwrap().is_empty(), "the marker is gone too");
    // What was known of the chunk before does not hide a piece that comes later.
    write(&target, 6, 0, b"alone").unwrap();
    assert!(target.further_pieces(&chunk(6)).unwrap().is_empty());
    write(&target, 6, PIECE_SIZE, b"second").unwrap();
    assert_eq!(target.further_pieces(&chunk(6)).unwrap(), [1]);
}

/// Goal: a chunk file that somebody removed is missing for reads, writes and syncs at once, though it is open: nothing is
/// written to a file that nobody finds. One that was put in its place is served. Method: the file is removed by name, as a
/// person or a file system check does.
#[test]
fn a_chunk_file_without_its_name_is_missing() {
    let scratch = Scratch::new();
    let target = open(&scratch.path);
    let path = |ino| scratch.path.join(PieceName::first(chunk(ino)).path());
    let sizes = |ino| {
        let sync = SyncChunks { target: TargetId(101), chunks: vec![chunk(ino)], life: target.life() };
        SyncChunksReply::from_bytes(&run(&target, sync)).unwrap().sizes
    };
    for ino in 1..=4 {
        write(&target, ino, 0, b"before").unwrap();
        std::fs::remove_file(path(ino)).unwrap();
    }
    let is_lost = |done| match done {
        Err(Done::Refused(refusal)) => assert_eq!(refusal.status, skep_wire::Status::LOST_CHUNK),
        other => panic!("{other:?}"),
    };
    is_lost(write(&target, 1, 6, b"after"));
    assert_eq!(sizes(2), [0], "nothing of it is on stable storage");
    let stat = StatChunks { target: TargetId(101), by: None, chunks: vec![chunk(3)] };
    let stat = StatChunksReply::from_bytes(&run(&target, stat)).unwrap();
    assert_eq!(stat.chunks[0].size, 0);
    std::fs::write(path(4), b"put back").unwrap();
    is_lost(write(&target, 4, 0, b"after"));
    assert_eq!(sizes(4), [8]);
    for ino in 1..=4 {
        write(&target, ino, 0, b"anew").unwrap();
        assert_eq!(&std::fs::read(path(ino)).unwrap()[..4], b"anew");
    }
}

/// Goal: punched holes read as zeros and give space back; reserving keeps the length.
#[test]
fn punch_and_reserve() {
    let dir = Scratch::tmpfs("16m");
    let target = open(&dir.path);
    write(&target, 5, 0, &[9u8; 3 * 4096]).unwrap();
    let punch =
        PunchChunk { target: TargetId(101), chunk: chunk(5), offset: 4096, len: 4096, unchanged: None };
    let reply = ChunkReply::from_bytes(&run(&target, punch)).unwrap();
    assert_eq!((reply.size, reply.blocks), (3 * 4096, 16));
    assert_eq!(read(&target, 5, 4095, 4098), [&[9u8][..], &[0; 4096], &[9]].concat());
    let owner = Owner::default();
    let reserve = ReserveChunk { target: TargetId(101), chunk: chunk(6), offset: 0, len: 1 << 20, owner };
    let reply = ChunkReply::from_bytes(&run(&target, reserve)).unwrap();
    assert_eq!(reply.size, 0);
    assert!(reply.blocks >= 2048);
}

/// A small file system of a kind, in a sparse file.
fn formatted(image: &Scratch, program: &str, bytes: u64) -> Scratch {
    let file = image.path.join("image");
    std::fs::File::create(&file).unwrap().set_len(bytes).unwrap();
    system(program, &["-q".as_ref(), file.as_os_str()]);
    let mut disk = Scratch::new();
    system("mount", &["-o".as_ref(), "loop".as_ref(), file.as_os_str(), disk.path.as_os_str()]);
    disk.mounted = true;
    disk
}

/// Goal: what is reserved is told from holes, within the end of a chunk file and behind it, written or not, on disk
/// already or not; where the file system does not tell (tmpfs), data is all that is. A truncate frees it on each.
#[test]
fn what_is_reserved_is_told() {
    let image = Scratch::new();
    for (told, disk) in
        [(true, formatted(&image, "/sbin/mkfs.ext4", 32 << 20)), (false, Scratch::tmpfs("8m"))]
    {
        let target = open(&disk.path);
        let piece = PieceName::first(chunk(1));
        let next = |from| target.next_allocated(&piece, from).unwrap();
        assert_eq!(next(0), None, "there is no such file");
        write(&target, 1, 0, &[1; 10_000]).unwrap();
        assert_eq!((next(0), next(9_000), next(10_000)), (Some((0, 10_000)), Some((9_000, 10_000)), None));
        target.reserve(&piece, 0, 65_536).unwrap();
        target.reserve(&piece, 1 << 20, 4_096).unwrap();
        let behind = told.then_some((1 << 20, (1 << 20) + 4_096));
        let whole = |from| Some((from, if told { 65_536 } else { 10_000 }));
        assert_eq!((next(0), next(5_000), next(70_000)), (whole(0), whole(5_000), behind));
        target.sync(&[piece]).unwrap();
        assert_eq!((next(0), next(70_000)), (whole(0), behind), "the same once it is on disk");
        write(&target, 1, 2 << 20, b"far").unwrap();
        let far = Some((2 << 20, (2 << 20) + 3));
        assert_eq!((next((1 << 20) + 4_096), next((2 << 20) + 3)), (far, None));
        assert_eq!(next(1 << 60), None, "behind all that a file system can hold");
        let blocks = || target.stat(&piece).unwrap().unwrap().blocks;
        let before = blocks();
        target.reserve(&piece, 3 << 20, 65_536).unwrap();
        assert!(blocks() >= before + 128);
        run(
            &target,
            TrimChunk {
                target: TargetId(101),
                by: None,
                chunk: chunk(1),
                size: (2 << 20) + 3,
                keeps_reserved: None,
            },
        );
        assert!(blocks() < before + 128, "a truncate to its own length frees what is behind");
    }
}

fn map(target: &TargetDir, ino: u64) -> Vec<(u64, u64)> {
    let m = MapChunk { target: TargetId(101), chunk: chunk(ino), offset: 0, max: 100 };
    let reply = MapChunkReply::from_bytes(&run(target, m)).unwrap();
    assert_eq!(reply.until, u64::MAX);
    reply.runs.iter().map(|run| (run.start, run.end)).collect()
}

/// Copies all of inode 1 of one target to inode 2 of another, to an offset.
fn copy(to: &TargetDir, from: &TargetDir, offset: u64, len: u64) -> CopyChunkReply {
    try_copy(to, from, offset, len).unwrap()
}

fn try_copy(to: &TargetDir, from: &TargetDir, offset: u64, len: u64) -> Result<CopyChunkReply, CopyFault> {
    let (from_target, from_chunk, from_offset) = (TargetId(101), chunk(1), 0);
    let (target, owner) = (TargetId(102), Owner::default());
    let m = CopyChunk {
        target,
        chunk: chunk(2),
        offset,
        from_target,
        from_chunk,
        from_offset,
        len,
        owner,
        floor: 0,
        from_floor: 0,
    };
    copy_chunk(to, from, &m, false, &mut vec![0; 64 << 10])
}

/// Goal: a copy to a chunk file that somebody removed is refused, and does not make it anew with zeros. Method: as for writes.
#[test]
fn a_copy_to_a_chunk_file_without_its_name_is_refused() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let (from, to) = (open(&here.path), open(&there.path));
    write(&from, 1, 0, b"content").unwrap();
    write(&to, 2, 0, b"before").unwrap();
    std::fs::remove_file(there.path.join(PieceName::first(chunk(2)).path())).unwrap();
    // Content, then holes only.
    for offset in [6, 1 << 20] {
        match try_copy(&to, &from, offset, 7) {
            Err(CopyFault::Copy(Done::Refused(refusal))) => {
                assert_eq!(refusal.status, skep_wire::Status::LOST_CHUNK);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(to.list(None, 10).unwrap(), [], "nothing hides that it is missing");
        assert_eq!(copy(&to, &from, offset, 7).written.size, offset + 7);
        std::fs::remove_file(there.path.join(PieceName::first(chunk(2)).path())).unwrap();
        std::fs::write(here.path.join(PieceName::first(chunk(1)).path()), b"").unwrap();
    }
}

/// Goal: data and holes are told apart, over pieces as well, and a copy has both where the source has them.
/// Method: within a file system (the kernel copies) and between two (it refuses to, or not).
#[test]
fn maps_and_copies() {
    let (here, there) = (Scratch::tmpfs("64m"), Scratch::new());
    let (a, b) = (open(&here.path), open(&there.path));
    assert_eq!(map(&a, 1), []);
    write(&a, 1, 64 << 10, &[1; 64 << 10]).unwrap();
    write(&a, 1, PIECE_SIZE - (64 << 10), &[2; 128 << 10]).unwrap();
    let runs = [(64 << 10, 128 << 10), (PIECE_SIZE - (64 << 10), PIECE_SIZE + (64 << 10))];
    assert_eq!(map(&a, 1), runs);
    for to in [&a, &b] {
        let life = to.life();
        let len = PIECE_SIZE + (64 << 10);
        let reply = copy(to, &a, 0, len);
        assert_eq!((reply.copied, reply.written.size, reply.written.life), (len, len, life));
        assert_eq!(map(to, 2), runs);
        assert_eq!(
            read(to, 2, 63 << 10, 66 << 10),
            [vec![0; 1 << 10], vec![1; 64 << 10], vec![0; 1 << 10]].concat()
        );
        assert_eq!(read(to, 2, PIECE_SIZE - 1, 2), [2, 2]);
        // Shifted over itself: what was data becomes a hole, and the other way round.
        copy(to, &a, 64 << 10, 128 << 10);
        assert_eq!(read(to, 2, 64 << 10, 64 << 10), [0; 64 << 10]);
        assert_eq!(read(to, 2, 128 << 10, 64 << 10), [1; 64 << 10]);
    }
}

/// Goal: the kernel does the copying where source and copy are on one file system.
#[test]
fn the_kernel_copies_within_a_file_system() {
    let dir = Scratch::tmpfs("16m");
    let target = open(&dir.path);
    write(&target, 1, 0, b"0123456789").unwrap();
    let (from, to) = (PieceName::first(chunk(1)), PieceName::first(chunk(2)));
    assert_eq!(target.copy((&to, 3), &target, (&from, 2), 5), 5);
    assert_eq!(read(&target, 2, 0, 100), b"\0\0\x0023456");
    assert_eq!(target.copy((&to, 0), &target, (&from, 10), 5), 0, "nothing at the end");
    assert_eq!(target.copy((&to, 0), &target, (&PieceName::first(chunk(3)), 0), 5), 0, "no such file");
}

/// Goal: more files than may be open at once, from many threads: every byte is right.
#[test]
fn many_files_and_threads() {
    let dir = Scratch::tmpfs("256m");
    let target = open(&dir.path);
    let files = OPEN_FILES_MAX as u64 + 500;
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let target = &target;
            scope.spawn(move || {
                for ino in (thread..files).step_by(8) {
                    write(target, ino, ino % 100, &ino.to_le_bytes()).unwrap();
                }
                for ino in (thread..files).step_by(8) {
                    assert_eq!(read(target, ino, ino % 100, 8), ino.to_le_bytes());
                }
            });
        }
    });
}

/// Goal: a disk that is taken away underneath is an error, and the next life of the target says
/// that writes may be lost; the empty mount point is never written to.
#[test]
fn a_vanished_disk_is_not_replaced_by_its_mount_point() {
    let dir = Scratch::tmpfs("1m");
    let target = open(&dir.path);
    write(&target, 1, 0, b"x").unwrap();
    unmount(&dir.path, UnmountFlags::DETACH).unwrap();
    assert!(std::fs::read_dir(&dir.path).unwrap().next().is_none());
    // The old file system stays reachable through the open directory until the daemon ends.
    let _: Result<_, Done> = write(&target, 2, 0, b"y");
    assert!(std::fs::read_dir(&dir.path).unwrap().next().is_none(), "nothing was written to the mount point");
}

/// Goal: a file too large for the local file system is EFBIG for the writer, not a broken disk.
#[test]
fn too_large_is_not_broken() {
    let dir = Scratch::new();
    let target = open(&dir.path);
    let life = target.life();
    let piece = PieceName::first(chunk(1));
    match target.write(&piece, i64::MAX as u64 - 1, b"x") {
        Ok(()) | Err(DiskError::TooLarge) => assert_eq!(target.life(), life),
        Err(other) => panic!("{other:?}"),
    }
}

/// Held while a process is started: until its exec it has every open file of this one, so that the space of a
/// file deleted meanwhile is not free yet.
static SPAWNING: Mutex<()> = Mutex::new(());

fn output(command: &mut Command) -> std::io::Result<Output> {
    let starting = SPAWNING.lock();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(starting);
    child.wait_with_output()
}

/// Runs a program of the system that the test needs.
fn system(program: &str, arguments: &[&std::ffi::OsStr]) {
    let done = output(Command::new(program).args(arguments));
    let output = done.unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Goal: requests to one target do not wait for one another. Method: a frozen file system blocks a
/// write in the kernel; reads of the same target go on meanwhile, and the write ends when it thaws.
#[test]
fn a_blocked_request_does_not_hold_up_others() {
    let image = Scratch::new();
    let disk = formatted(&image, "/sbin/mkfs.ext4", 32 << 20);
    let target = open(&disk.path);
    write(&target, 1, 0, b"before").unwrap();
    struct Thaw<'a>(&'a Path);
    impl Drop for Thaw<'_> {
        fn drop(&mut self) {
            let _ = output(Command::new("/sbin/fsfreeze").arg("-u").arg(self.0));
        }
    }
    system("/sbin/fsfreeze", &["-f".as_ref(), disk.path.as_os_str()]);
    let thaw = Thaw(&disk.path);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&target, 1, 0, b"behind"));
        for _ in 0..1_000 {
            assert_eq!(read(&target, 1, 0, 6), b"before");
        }
        assert!(!writer.is_finished(), "a frozen file system took a write");
        drop(thaw);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(read(&target, 1, 0, 6), b"behind");
}

/// Goal: what the local file system cannot do is refused as such; the target stays good.
#[test]
fn what_the_file_system_cannot_do_is_no_failure() {
    let image = Scratch::new();
    let disk = formatted(&image, "/sbin/mkfs.ext2", 8 << 20);
    let target = open(&disk.path);
    let life = write(&target, 1, 0, b"x").unwrap().life;
    let owner = Owner::default();
    let reserve = ReserveChunk { target: TargetId(101), chunk: chunk(1), offset: 0, len: 4096, owner };
    match execute(&target, Limits::default(), &reserve.into()) {
        Done::Refused(refusal) => {
            assert_eq!(refusal.status.as_errno(), Some(skep_types::Errno::EOPNOTSUPP));
        }
        other => panic!("ext2 has no fallocate, yet: {other:?}"),
    }
    assert_eq!(target.life(), life);
}

/// Set in the process that has few descriptors.
const FEW: &str = "SKEP_TEST_FEW_DESCRIPTORS";

/// Goal: running out of descriptors closes idle chunk files and goes on; the disk is not blamed.
/// Method: the test runs itself once more in a process of few descriptors.
#[test]
fn running_out_of_descriptors_is_no_failure() {
    if std::env::var_os(FEW).is_none() {
        let own = std::env::current_exe().unwrap();
        let name = "running_out_of_descriptors_is_no_failure";
        let mut command = Command::new("prlimit");
        command.arg("--nofile=40").arg(own).args(["--exact", name]).env(FEW, "1");
        let output = output(&mut command).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let dir = Scratch::new();
    let target = open(&dir.path);
    let life = target.life();
    for ino in 0..500 {
        write(&target, ino, 0, &ino.to_le_bytes()).unwrap();
    }
    for ino in 0..500u64 {
        assert_eq!(read(&target, ino, 0, 8), ino.to_le_bytes());
    }
    // Connections have taken what was left, and a sync opens directories.
    let _taken: Vec<std::fs::File> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    target.sync(&[PieceName::first(chunk(499))]).unwrap();
    assert_eq!(target.life(), life);
}
