//! Failing disks, full ones, reservations, promises.

use super::room::LOOK_BYTES;
use super::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use skep_disk::target::TargetDir;
use skep_storage::PieceName;
use skep_types::{Generation, Ino, Uuid};
use skep_wire::storage::{Clock, DeleteChunks, Owner};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

fn chunk(ino: u64) -> ChunkId {
    ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }
}

fn message(target: &Target, ino: u64, offset: u64, later: Option<bool>) -> WriteChunk {
    let (owner, sync, floor) = (Owner::default(), false, 0);
    let (uncut, until) = (None, None);
    WriteChunk { target: target.id, chunk: chunk(ino), offset, owner, floor, sync, uncut, later, until }
}

fn put_at(target: &Target, ino: u64, offset: u64, data: &[u8]) -> Result<Vec<u8>, Refusal> {
    target.write(&message(target, ino, offset, None), data, ClientId(0))
}

fn write(target: &Target, ino: u64) -> Result<Vec<u8>, Refusal> {
    put_at(target, ino, 0, b"x")
}

fn entry(consistency: Consistency, failures: u64, decisions: u64) -> TargetEntry {
    let sample = skep_base::namespace::samples::status().targets[0].clone();
    TargetEntry { consistency, failures, decisions, ..sample }
}

fn good(failures: u64, decisions: u64) -> TargetEntry {
    entry(Consistency::Good, failures, decisions)
}

/// Goal: that somebody was refused for want of room is told at once, once for each report.
#[test]
fn a_refusal_is_told_once() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("target");
    std::fs::create_dir(&path).unwrap();
    let directory = TargetDir::open(&path, Uuid([1; 16]), Some(Uuid([2; 16])), 0).unwrap();
    let target = Target::new(TargetId(101), 1, directory);
    let [full, other] = [Errno::ENOSPC, Errno::EIO].map(|errno| Refusal::new(Status::errno(errno)));
    for _ in 0..2 {
        assert_eq!([&other, &full, &full].map(|refusal| target.is_news(refusal)), [false, true, false]);
        target.report();
    }
}

/// Goal: a disk that fails gives EIO to the one who asked and marks the target, which stays bad until an
/// administrator decides: not by a map that mgmtd made before it heard of the failure, nor by a restart of the
/// daemon. No life comes back. Method: a directory in a chunk file's place fails every open, as a damaged local
/// file system does.
#[test]
fn a_failing_disk_marks_the_target() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, kept) = (scratch.path().join("target"), scratch.path().join("kept"));
    std::fs::create_dir(&path).unwrap();
    let start = |consistency| {
        let directory = TargetDir::open(&path, Uuid([1; 16]), Some(Uuid([2; 16])), 0).unwrap();
        directory.keep_standing(&kept, Word { consistency, failures: 0, decisions: 0 }).unwrap();
        Target::new(TargetId(101), 1, directory)
    };
    let target = start(Consistency::Good);
    write(&target, 1).unwrap();
    let first = target.directory.life();
    std::fs::create_dir_all(path.join(PieceName::first(chunk(2)).path())).unwrap();
    let refusal = write(&target, 2).unwrap_err();
    assert_eq!(refusal.status.as_errno(), Some(Errno::EIO));
    assert!(refusal.detail.contains("check the disk"), "{refusal}");
    let report = target.report();
    assert_eq!((report.consistency, report.failures), (Consistency::Bad, 1));
    assert_ne!(target.directory.life(), first, "fsync must not vouch for earlier writes");
    target.hear(&good(0, 0));
    assert_eq!(target.consistency(), Consistency::Bad, "mgmtd had not heard of it");
    drop(target);
    let target = start(Consistency::Good);
    assert_eq!(target.report().consistency, Consistency::Bad, "restarted before a heartbeat");
    let failed = target.directory.life();
    assert_ne!(failed, first);
    target.hear(&entry(Consistency::Bad, 1, 0));
    target.hear(&good(1, 1));
    assert_eq!(target.consistency(), Consistency::Good);
    let repaired = target.directory.life();
    assert!(
        repaired != failed && repaired != first,
        "what was written before the repair is vouched for no more"
    );
    target.hear(&good(1, 1));
    assert_eq!(target.directory.life(), repaired, "nothing was decided anew");
    write(&target, 3).unwrap();
    drop(target);
    let directory = TargetDir::open(&path, Uuid([1; 16]), None, 0).unwrap();
    let word = Word { consistency: Consistency::Good, failures: 1, decisions: 1 };
    directory.keep_standing(&kept, word).unwrap();
    assert_eq!(directory.life(), repaired, "a restart on the same mount loses nothing");
}

/// A small file system, gone at the end.
struct SmallDisk {
    scratch: tempfile::TempDir,
    path: PathBuf,
}

impl SmallDisk {
    /// An empty directory on which nothing is mounted yet.
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        Self { scratch, path }
    }

    /// In memory. It does not tell what is reserved.
    fn tmpfs(options: &std::ffi::CStr) -> Self {
        let disk = Self::new();
        mount("skep-test", &disk.path, "tmpfs", MountFlags::empty(), Some(options)).unwrap();
        disk
    }

    /// In a sparse file. It tells what is reserved.
    fn ext4(bytes: u64) -> Self {
        let disk = Self::new();
        let image = disk.scratch.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let run = |command: &mut Command| {
            let done = command.output().unwrap();
            assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
        };
        run(Command::new("/sbin/mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).args([&image, &disk.path]));
        disk
    }

    /// Target `id` in a directory of its own.
    fn target(&self, id: u8, reserve: u64) -> Target {
        let path = self.path.join(id.to_string());
        std::fs::create_dir(&path).unwrap();
        let uuid = Some(Uuid([id; 16]));
        Target::new(TargetId(id.into()), 1, TargetDir::open(&path, Uuid([1; 16]), uuid, reserve).unwrap())
    }

    /// Bytes that are free.
    fn left(&self) -> u64 {
        rustix::fs::statvfs(&self.path).map(|info| info.f_bavail * info.f_frsize).unwrap()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

type Outcome = Result<(), Option<Errno>>;

const FULL: Outcome = Err(Some(Errno::ENOSPC));

fn outcome(result: Result<Vec<u8>, Refusal>) -> Outcome {
    result.map(|_| ()).map_err(|refusal| refusal.status.as_errno())
}

fn reserve(target: &Target, ino: u64, offset: u64, len: u64) -> Outcome {
    let owner = Owner::default();
    outcome(target.reserve(&ReserveChunk { target: target.id, chunk: chunk(ino), offset, len, owner }))
}

fn put(target: &Target, ino: u64, offset: u64, data: &[u8]) -> Outcome {
    outcome(put_at(target, ino, offset, data))
}

/// Goal: reservations leave the reserve alone, however large they are; what is written already can be reserved
/// again, and small ones fit.
#[test]
fn reservations_keep_to_the_reserve() {
    let disk = SmallDisk::tmpfs(c"size=16m");
    let kept = 4 << 20;
    let target = disk.target(101, kept);
    write(&target, 1).unwrap();
    assert_eq!(reserve(&target, 2, 0, 15 << 20), FULL);
    assert!(disk.left() > 15 << 20, "a refused one takes nothing");
    assert_eq!((reserve(&target, 1, 0, 1), reserve(&target, 2, 0, 8 << 20)), (Ok(()), Ok(())));
    assert_eq!((reserve(&target, 3, 0, 8 << 20), reserve(&target, 3, 0, u64::MAX / 4)), (FULL, FULL));
    assert!(disk.left() >= kept, "{} bytes are left", disk.left());
}

/// Goal: what is reserved can be written to its last byte, and reserved again, when others have filled the target since;
/// holes cannot, neither behind a chunk file nor in it, so that the reserve stays.
#[test]
fn what_is_reserved_can_be_written_on_a_full_target() {
    let disk = SmallDisk::ext4(96 << 20);
    let kept = 24 << 20;
    let target = disk.target(101, kept);
    let part = vec![7; 1 << 20];
    assert_eq!(reserve(&target, 1, 0, 8 << 20), Ok(()));
    for at in [0, 5 << 20] {
        assert_eq!(put(&target, 2, at, &part), Ok(()));
    }
    let filled = (0..96).take_while(|number| put(&target, 3, number << 20, &part) == Ok(())).count();
    assert!((20..80).contains(&filled), "{filled} MiB");
    assert_eq!(put(&target, 2, 5 << 20, &part), Ok(()), "what is there may be changed");
    assert_eq!(
        (put(&target, 2, 1 << 20, &part), put(&target, 2, 6 << 20, &part)),
        (FULL, FULL),
        "a hole may not"
    );
    assert_eq!(reserve(&target, 1, 0, 8 << 20), Ok(()), "it has its space");
    assert_eq!(put(&target, 1, 100, b"x"), Ok(()));
    for number in 0..8 {
        assert_eq!(put(&target, 1, number << 20, &part), Ok(()), "MiB {number}");
    }
    assert_eq!(put(&target, 1, 8 << 20, &part), FULL);
    // Writes are counted between two looks at the free space.
    let slack = LOOK_BYTES + (2 << 20);
    assert!(disk.left() + slack >= kept, "{} bytes are left", disk.left());
}

/// Goal: targets of one daemon on one file system do not find the same room: of two reservations that fit one by one, at
/// the same moment, one is made.
#[test]
fn targets_on_one_disk_share_its_room() {
    let disk = SmallDisk::tmpfs(c"size=32m");
    let mut targets = [disk.target(101, 8 << 20), disk.target(102, 8 << 20)];
    Target::share_room(&mut targets);
    let start = Barrier::new(2);
    for round in 0..20 {
        let made = std::thread::scope(|scope| {
            let run = |target| {
                start.wait();
                reserve(target, round, 0, 14 << 20)
            };
            let threads = targets.each_ref().map(|target| scope.spawn(move || run(target)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(made.contains(&Ok(())) && made.contains(&FULL), "round {round}: {made:?}");
        assert!(disk.left() >= 8 << 20, "round {round}: {} bytes are left", disk.left());
        for target in &targets {
            let m = DeleteChunks { target: target.id, by: None, chunks: vec![chunk(round)] };
            target.run(&m.into()).unwrap();
        }
        // Until it is run, a command that another test of this process starts holds its open files too, removed ones
        // with their room.
        let begun = Instant::now();
        while disk.left() < 24 << 20 {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "round {round}: {} bytes are left",
                disk.left()
            );
            std::thread::yield_now();
        }
    }
}

/// Goal: two daemons on one disk, which know nothing of one another, take no more of the reserve than their last steps.
#[test]
fn two_daemons_on_one_disk_nearly_keep_the_reserve() {
    let disk = SmallDisk::ext4(4 << 30);
    let kept = 512 << 20;
    let targets = [disk.target(101, kept), disk.target(102, kept)];
    let most = (disk.left() - kept) / 4 * 3;
    let start = Barrier::new(2);
    for round in 0..10 {
        std::thread::scope(|scope| {
            let run = |target| {
                start.wait();
                reserve(target, round, 0, most)
            };
            for target in &targets {
                scope.spawn(move || assert!([Ok(()), FULL].contains(&run(target))));
            }
        });
        let left = disk.left();
        assert!(left + 2 * RESERVE_STEP >= kept, "round {round}: {left} bytes are left");
        for target in &targets {
            let m = DeleteChunks { target: target.id, by: None, chunks: vec![chunk(round)] };
            target.run(&m.into()).unwrap();
        }
    }
}

/// 1 MiB to a client, three quarters of it told, while 2 MiB are spare.
const SIZES: Sizes = Sizes { bytes: 1 << 20, told: TOLD, spare: 2 << 20, ms: 60_000 };
const TOLD: u64 = 3 << 18;
/// Enough for three of them.
const ROOMY: &std::ffi::CStr = c"size=32m";

impl SmallDisk {
    /// Two targets with a reserve of 4 MiB, of a daemon that has run for so long.
    fn promising(&self, since: Duration) -> [Target; 2] {
        let mut targets = [self.target(101, 4 << 20), self.target(102, 4 << 20)];
        targets[0].set_promises(SIZES, Instant::now().checked_sub(since).unwrap());
        Target::share_room(&mut targets);
        targets
    }
}

/// What is promised to a client for a write that says `later`.
fn promised(target: &Target, client: u64, ino: u64) -> Option<u64> {
    let m = message(target, ino, 0, Some(true));
    let reply = target.write(&m, b"x", ClientId(client)).unwrap();
    WriteChunkReply::from_bytes(&reply).unwrap().room
}

/// A write of the 64 KiB with that number.
fn bring(target: &Target, client: u64, ino: u64, number: u64, later: Option<bool>) -> Outcome {
    outcome(target.write(&message(target, ino, number << 16, later), &[7; 1 << 16], ClientId(client)))
}

/// How many of them are taken.
fn brought(target: &Target, client: u64, ino: u64, later: Option<bool>) -> usize {
    (0..999).take_while(|number| bring(target, client, ino, *number, later) == Ok(())).count()
}

const MINUTE: Duration = Duration::from_secs(60);

/// Goal: when a disk fills up, others end at what is promised, on every target there, whether they write, copy or reserve; who
/// has a promise brings that much more, in front of the reserve, and no more. What is there may be changed by everybody.
/// mgmtd hears how much is left for others.
#[test]
fn what_is_promised_is_there_for_who_has_it() {
    let disk = SmallDisk::tmpfs(ROOMY);
    let [one, other] = disk.promising(MINUTE);
    assert_eq!((promised(&one, 7, 1), promised(&other, 8, 1)), (Some(TOLD), Some(TOLD)));
    assert_eq!((promised(&one, 0, 1), one.stat().promised), (None, Some(2 << 20)));
    let told = one.report().capacity.bytes_free;
    assert_eq!(told, one.stat().capacity.bytes_free, "while there is much");
    let filled = brought(&other, 9, 2, Some(true));
    assert!((400..448).contains(&filled), "{filled} of 64 KiB");
    assert!(disk.left() >= 6 << 20 && one.report().capacity.bytes_free < 1 << 20, "{}", disk.left());
    assert_eq!((brought(&one, 0, 3, Some(true)), reserve(&one, 4, 0, 1 << 20)), (0, FULL));
    let refusal = put_at(&one, 3, 0, &[7; 1 << 16]).unwrap_err();
    assert!(refusal.detail.contains("promised to mounts"), "{refusal}");
    let (from_target, from_chunk, owner) = (other.id, chunk(2), Owner::default());
    let copy = CopyChunk {
        target: one.id,
        chunk: chunk(5),
        offset: 0,
        owner,
        floor: 0,
        from_target,
        from_chunk,
        from_offset: 0,
        from_floor: 0,
        len: 1 << 16,
    };
    assert_eq!(outcome(one.copy(&copy, &other, false, &mut [0; 4_096])), FULL);
    assert_eq!((promised(&one, 9, 1), bring(&other, 9, 2, 5, None)), (None, Ok(())), "what is there");
    assert_eq!(
        (brought(&one, 7, 6, Some(true)), brought(&other, 8, 7, Some(true))),
        (16, 16),
        "1 MiB each, on whichever target"
    );
    assert!((4 << 20..5 << 20).contains(&disk.left()), "{} bytes are left", disk.left());
}

/// Goal: what else a mount writes leaves the promise alone that its kept bytes rest on: it gets ENOSPC, they do not. Nor does the
/// answer to it promise anything.
#[test]
fn ordinary_writes_leave_their_own_promise() {
    let disk = SmallDisk::tmpfs(ROOMY);
    let [one, other] = disk.promising(MINUTE);
    assert_eq!(promised(&one, 7, 1), Some(TOLD));
    assert!(brought(&one, 7, 2, None) > 99);
    assert_eq!((bring(&other, 7, 3, 0, None), bring(&one, 7, 2, 999, Some(false))), (FULL, FULL));
    assert_eq!(one.stat().promised, Some(1 << 20), "all of it is left");
    assert_eq!(brought(&one, 7, 4, Some(true)), 16, "1 MiB that was kept");
}

/// Goal: a write that fails takes nothing of its client's promise, however often it is tried.
#[test]
fn a_failed_write_takes_nothing_of_a_promise() {
    let disk = SmallDisk::tmpfs(ROOMY);
    let [one, _] = disk.promising(MINUTE);
    assert_eq!(promised(&one, 7, 1), Some(TOLD));
    brought(&one, 9, 2, None);
    let refused = |m: WriteChunk| one.write(&m, &[7; 1 << 16], ClientId(7)).unwrap_err();
    for number in 0..40 {
        let m = message(&one, 3, number << 16, Some(true));
        assert_eq!(refused(WriteChunk { floor: 1 << 30, ..m }).status, Status::LOST_CHUNK, "{number}");
        // As one that was meant for another run of the daemon.
        let late = refused(WriteChunk { until: Some(Clock::default()), ..m });
        assert!(
            late.status == Status::TOO_LATE && late.clock.is_some_and(|clock| clock.run != 0),
            "{number}"
        );
    }
    assert_eq!((one.stat().promised, brought(&one, 7, 4, Some(true))), (Some(1 << 20), 16));
}

/// Goal: what came too late is brought again: from then on its client has a promise for that.
#[test]
fn what_came_too_late_keeps_its_room() {
    let disk = SmallDisk::tmpfs(ROOMY);
    let [one, _] = disk.promising(MINUTE);
    let m = WriteChunk { until: Some(Clock::default()), ..message(&one, 3, 0, Some(true)) };
    assert_eq!(one.write(&m, &[7; 4_096], ClientId(7)).unwrap_err().status, Status::TOO_LATE);
    assert_eq!(one.stat().promised, Some(1 << 20));
}

/// Goal: where nothing is promised the free space is looked at ten times a second, not once for each who asks.
#[test]
fn a_refused_promise_is_remembered() {
    let disk = SmallDisk::tmpfs(ROOMY);
    let [one, _] = disk.promising(MINUTE);
    let (others, again) = (disk.path.join("others"), Duration::from_millis(120));
    // Until the machine was fast enough once.
    let in_time = (0..99).any(|_| {
        std::fs::write(&others, vec![7; 22 << 20]).unwrap();
        std::thread::sleep(again);
        let begun = Instant::now();
        assert_eq!(promised(&one, 7, 1), None);
        std::fs::remove_file(&others).unwrap();
        let second = promised(&one, 7, 1);
        let is_in_time = begun.elapsed() < Duration::from_millis(90);
        assert!(!is_in_time || second.is_none());
        std::thread::sleep(again);
        assert_eq!(promised(&one, 7, 1), Some(TOLD));
        is_in_time
    });
    assert!(in_time);
}

/// Goal: a disk that does not say what is free has failed, and is not taken for a full one; a daemon short of memory is not taken
/// for either.
#[test]
fn a_failed_look_is_no_full_disk() {
    let disk = SmallDisk::tmpfs(ROOMY);
    let [one, _] = disk.promising(MINUTE);
    assert_eq!(one.found(0, Err(DiskError::Busy)).unwrap_err().status, Status::BUSY);
    assert!(!one.room.is_full() && !one.told_bad.load(Relaxed));
    let failed = Err(DiskError::Failed("statvfs failed".into()));
    assert_eq!(one.found(0, failed).unwrap_err().status.as_errno(), Some(Errno::EIO));
    assert!(!one.room.is_full() && one.told_bad.load(Relaxed));
    let full = Capacity::default();
    assert_eq!((one.found(0, Ok(full)).unwrap(), one.room.is_full()), (full, true));
}

/// Goal: a daemon promises nothing in its first seconds, and nobody is promised anything who did not ask.
#[test]
fn a_daemon_that_begins_promises_nothing() {
    let disk = SmallDisk::tmpfs(ROOMY);
    let [early, _] = disk.promising(MINUTE / 2);
    assert_eq!((promised(&early, 7, 1), early.stat().promised), (None, Some(0)));
    let disk = SmallDisk::tmpfs(ROOMY);
    let [late, _] = disk.promising(MINUTE);
    let reply = late.write(&message(&late, 1, 0, None), b"x", ClientId(7)).unwrap();
    assert_eq!(WriteChunkReply::from_bytes(&reply).unwrap().room, None);
    assert_eq!((late.stat().promised, promised(&late, 7, 1)), (Some(0), Some(TOLD)));
}

/// Goal: a promise is kept however many write at the same moment, of those who have none and of those who have one.
#[test]
fn promises_are_kept_among_many_writers() {
    let disk = SmallDisk::tmpfs(ROOMY);
    for round in 0..10 {
        let targets = disk.promising(MINUTE);
        for client in 1..4 {
            assert_eq!(promised(&targets[0], client, 100 * round + client), Some(TOLD));
        }
        let start = Barrier::new(7);
        std::thread::scope(|scope| {
            for client in 1..8 {
                let (targets, start) = (&targets, &start);
                scope.spawn(move || {
                    let target = &targets[(client % 2) as usize];
                    start.wait();
                    let count = if client < 4 { 16 } else { 999 };
                    let ino = 100 * round + 10 + client;
                    let done = (0..count)
                        .take_while(|number| bring(target, client, ino, *number, Some(true)) == Ok(()));
                    assert!(done.count() == 16 || client >= 4, "round {round}: client {client}");
                });
            }
        });
        // When nothing is promised any more, each may begin one write that does not fit.
        assert!(disk.left() >= 3 << 20, "round {round}: {} bytes are left", disk.left());
        drop(targets);
        for id in ["101", "102"] {
            std::fs::remove_dir_all(disk.path.join(id)).unwrap();
        }
    }
}
