mod shards;

use super::*;
use crate::disk::{CrashMode, Disk, FaultDisk, RealDisk};
use rustix::io::Errno;
use skep_types::{LogIndex, LogSeq, ShardId, Term};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

const CLUSTER: ClusterId = skep_types::Uuid([3; 16]);

fn dir() -> PathBuf {
    PathBuf::from("log")
}

fn options(segment_bytes: u64) -> LogOptions {
    LogOptions { segment_bytes, ..LogOptions::new(CLUSTER) }
}

fn open(disk: &FaultDisk) -> (CommandLog, Recovered) {
    CommandLog::open(Arc::new(disk.clone()), &dir(), options(SEGMENT_MIN)).unwrap()
}

fn head(shard: u16, term: u64, index: u64) -> Head {
    Head { shard: ShardId(shard), term: Term(term), index: LogIndex(index) }
}

fn command(seq: u64, of: Head) -> Record {
    let bytes = (0..seq * 37 % 300).map(|n| (n ^ seq ^ of.term.0) as u8).collect();
    Record::command(LogSeq(seq), of, bytes)
}

/// Of a log with one shard.
fn entry(term: u64, seq: u64) -> Record {
    command(seq, head(3, term, seq))
}

fn fill(log: &mut CommandLog, term: u64, until: u64) {
    while log.last_seq().0 < until {
        log.append(&[entry(term, log.last_seq().0 + 1)]).unwrap();
    }
}

/// Goal: what was appended is read back after a clean reopen, over segments, with terms, from
/// anywhere and in pieces.
#[test]
fn append_reopen_read() {
    let disk = FaultDisk::new();
    let (mut log, found) = open(&disk);
    assert_eq!((found.first, found.last), (LogSeq(1), LogSeq(0)));
    fill(&mut log, 1, 100);
    fill(&mut log, 4, 150);
    log.syncer().sync().unwrap();
    drop(log);
    let (log, found) = open(&disk.crash(CrashMode::DropAll, 0));
    assert_eq!((found.first, found.last), (LogSeq(1), LogSeq(150)));
    assert_eq!(log.heads(), [head(3, 4, 150)]);
    assert_eq!(found.dropped_tail_bytes, 0);
    assert!(disk.list(&dir()).unwrap().len() > 3);
    for (from, max) in [(1, 1), (1, usize::MAX), (77, 2000), (150, 0), (100, 5000)] {
        let read = log.read(LogSeq(from), max).unwrap();
        let bytes: usize = read.iter().map(|r| record::size(r.bytes.len())).sum();
        assert!(!read.is_empty() && (read.len() == 1 || bytes <= max), "{from} {max} {bytes}");
        for (record, seq) in read.iter().zip(from..) {
            assert_eq!(*record, entry(if seq > 100 { 4 } else { 1 }, seq));
        }
    }
    assert_eq!(log.read(LogSeq(1), usize::MAX).unwrap().len(), 150);
    assert!(log.read(LogSeq(151), 100).unwrap().is_empty());
}

/// Goal: gaps, falling terms and oversize records are refused and change nothing.
#[test]
fn bad_appends_are_refused() {
    let (mut log, _) = open(&FaultDisk::new());
    fill(&mut log, 5, 3);
    let huge = Record { bytes: vec![0; PAYLOAD_MAX + 1], ..entry(5, 4) };
    for bad in [entry(5, 3), entry(5, 5), entry(4, 4), huge] {
        assert!(matches!(log.append(&[bad]), Err(LogError::Refused(_))));
    }
    assert!(matches!(log.append(&[entry(5, 4), entry(5, 4)]), Err(LogError::Refused(_))));
    assert_eq!(log.last_seq(), LogSeq(3));
    fill(&mut log, 5, 4);
}

/// Goal: a damaged durable record is refused with place and advice, wherever it is; a damaged
/// unsynced end is cut and reported.
#[test]
fn corruption_is_told_from_a_torn_tail() {
    for synced_behind in [false, true] {
        for victim in [0, 1] {
            let disk = FaultDisk::new();
            let (mut log, _) = open(&disk);
            fill(&mut log, 1, 60);
            log.syncer().sync().unwrap();
            if synced_behind {
                fill(&mut log, 1, 61);
            }
            let first = log.segments_for_tests()[log.segments_for_tests().len() - 1 - victim];
            drop(log);
            let path = dir().join(segment::name(first));
            disk.damage(&path, |bytes| bytes[segment::HEADER + 72] ^= 1);
            let result = CommandLog::open(Arc::new(disk), &dir(), options(SEGMENT_MIN));
            match result {
                Err(LogError::Corrupt(text)) => {
                    assert!(text.contains("was durable") && text.contains(".log"), "{text}");
                }
                // One sync made all of it durable and nothing was written since that says so:
                // it cannot be told from a torn end. The row store's applied index still can.
                Ok((_, found)) => {
                    assert!(!synced_behind && found.dropped_tail_bytes > 0);
                    assert_eq!(found.last.0, first.0 - 1);
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// Goal: a missing segment and a damaged header or state are corruption; another cluster's log is refused.
#[test]
fn lost_segments_and_foreign_logs_are_refused() {
    let build = || {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        fill(&mut log, 1, 100);
        log.syncer().sync().unwrap();
        fill(&mut log, 1, 130);
        log.syncer().sync().unwrap();
        let firsts = log.segments_for_tests();
        (disk, firsts)
    };
    let reopen =
        |disk| CommandLog::open(Arc::new(disk), &dir(), options(SEGMENT_MIN)).map(|(_, found)| found);
    let (disk, firsts) = build();
    disk.lose(&dir().join(segment::name(firsts[1])));
    assert!(matches!(reopen(disk), Err(LogError::Corrupt(_))));
    for nth in 0..2 {
        let (disk, firsts) = build();
        disk.damage(&dir().join(segment::name(firsts[nth])), |bytes| bytes[33] ^= 1);
        assert!(matches!(reopen(disk), Err(LogError::Corrupt(_))));
    }
    for nth in 0..2 {
        let (disk, firsts) = build();
        disk.damage(&dir().join(segment::name(firsts[nth])), |bytes| bytes[segment::HEADER + 16] ^= 1);
        assert!(matches!(reopen(disk), Err(LogError::Corrupt(_))));
    }
    let (disk, _) = build();
    let other = LogOptions { cluster: skep_types::Uuid([4; 16]), ..options(SEGMENT_MIN) };
    assert!(matches!(CommandLog::open(Arc::new(disk), &dir(), other), Err(LogError::Foreign(_))));
}

/// Goal: random bytes and bit flips in segments never panic the opener, and never invent entries
/// (fuzz smoke of the segment decoder).
#[test]
fn damaged_segments_never_panic() {
    let mut x = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    for round in 0..1500 {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        fill(&mut log, 1, 40);
        if round % 2 == 0 {
            log.syncer().sync().unwrap();
        }
        fill(&mut log, 2, 45);
        let firsts = log.segments_for_tests();
        drop(log);
        let path = dir().join(segment::name(firsts[random() as usize % firsts.len()]));
        disk.damage(&path, |bytes| match round % 3 {
            0 => (0..1 + random() % 4).for_each(|_| {
                let at = random() as usize % bytes.len();
                bytes[at] ^= 1 << (random() % 8);
            }),
            1 => bytes.truncate(random() as usize % bytes.len()),
            _ => {
                let at = random() as usize % bytes.len();
                bytes[at..].iter_mut().take(200).for_each(|b| *b = random() as u8);
            }
        });
        if let Ok((log, found)) = CommandLog::open(Arc::new(disk), &dir(), options(SEGMENT_MIN)) {
            for record in log.read(LogSeq(1), usize::MAX).unwrap() {
                assert!(record.seq <= found.last);
                assert_eq!(record, entry(record.term.0, record.seq.0));
            }
        }
    }
}

/// Goal: a full disk takes the group back wholly, the log goes on, and nothing durable suffers.
#[test]
fn a_full_disk_refuses_and_goes_on() {
    for preallocate in [false, true] {
        for n in 1..12 {
            let disk = FaultDisk::new();
            let options = LogOptions { preallocate, ..options(SEGMENT_MIN) };
            let (mut log, _) = CommandLog::open(Arc::new(disk.clone()), &dir(), options.clone()).unwrap();
            fill(&mut log, 1, 30);
            log.syncer().sync().unwrap();
            disk.fail_after(n, Errno::NOSPC);
            let mut refused = 0;
            while log.last_seq() < LogSeq(120) {
                let last = log.last_seq().0;
                let group = [entry(1, last + 1), entry(1, last + 2), entry(1, last + 3)];
                match log.append(&group) {
                    Ok(()) => {}
                    Err(LogError::Full(_)) => {
                        refused += 1;
                        assert_eq!(log.last_seq().0, last);
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            assert_eq!(refused, 1, "failure {n}");
            log.syncer().sync().unwrap();
            drop(log);
            let disk = disk.crash(CrashMode::DropAll, n);
            let (log, found) = CommandLog::open(Arc::new(disk), &dir(), options).unwrap();
            assert_eq!(found.last, LogSeq(120));
            for record in log.read(LogSeq(1), usize::MAX).unwrap() {
                assert_eq!(record, entry(1, record.seq.0));
            }
        }
    }
}

/// Goal: after an I/O error on write or sync nothing is ever called durable again, and a reopened
/// log holds what was durable before.
#[test]
fn an_io_error_poisons_the_log() {
    for n in 1..40 {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        let syncer = log.syncer();
        fill(&mut log, 1, 20);
        let mut durable = syncer.sync().unwrap();
        disk.fail_after(n, Errno::IO);
        let mut failed = false;
        for _ in 0..60 {
            let seq = log.last_seq().0 + 1;
            let appended = log.append(&[entry(1, seq)]);
            let synced = if seq % 3 == 0 { syncer.sync() } else { Ok(durable) };
            assert!(!(failed && (appended.is_ok() || seq % 3 == 0 && synced.is_ok())));
            failed |= appended.is_err() || synced.is_err();
            durable = synced.unwrap_or(durable);
            assert_eq!(log.durable(), durable);
        }
        assert!(failed && !disk.failure_is_pending());
        drop(log);
        let (log, found) = open(&disk.crash(CrashMode::DropAll, n));
        assert!(found.last >= durable, "{n}: {} < {durable}", found.last);
        assert_eq!(log.read(LogSeq(1), usize::MAX).unwrap().len() as u64, found.last.0);
    }
}

/// Goal: a process killed after a failed sync does not find the lost records in the cache and
/// call them durable.
#[test]
fn a_restart_after_a_failed_sync_reads_the_device() {
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    fill(&mut log, 1, 5);
    log.syncer().sync().unwrap();
    fill(&mut log, 1, 9);
    disk.fail_after(1, Errno::IO);
    assert!(log.syncer().sync().is_err());
    drop(log);
    let (log, found) = open(&disk);
    assert_eq!((found.last, log.durable()), (LogSeq(5), LogSeq(5)));
}

/// Goal: release drops whole old segments only, whatever shards they are of; the heads of shards whose records
/// are all gone stay, also after a reopen.
#[test]
fn release_keeps_what_is_needed() {
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    log.append(&[Record::terms(LogSeq(1), &[head(3, 2, 1), head(9, 5, 1)])]).unwrap();
    log.append(&[command(2, head(9, 5, 2))]).unwrap();
    for seq in 3..=200 {
        log.append(&[command(seq, head(3, 2, seq - 1))]).unwrap();
    }
    let heads = [head(3, 2, 199), head(9, 5, 2)];
    assert_eq!(log.release_before(LogSeq(150)), Ok(0), "released what is not durable");
    log.syncer().sync().unwrap();
    assert!(log.release_before(LogSeq(150)).unwrap() > 2);
    let first = log.first_seq();
    assert!(first > LogSeq(2) && first <= LogSeq(150));
    assert!(log.read(LogSeq(1), 10).is_err());
    assert_eq!(log.heads(), heads);
    log.syncer().sync().unwrap();
    drop(log);
    let (mut log, found) = open(&disk.crash(CrashMode::DropAll, 0));
    assert_eq!((found.first, found.last), (first, LogSeq(200)));
    assert_eq!(
        (log.heads(), log.head(ShardId(9)), log.head(ShardId(4))),
        (heads.into(), Some(heads[1]), None)
    );
    assert_eq!(log.read(first, usize::MAX).unwrap().len() as u64, 201 - first.0);
    assert!(log.append(&[command(201, head(9, 5, 1))]).is_err());
    log.append(&[command(201, head(9, 6, 3)), command(202, head(4, 1, 1))]).unwrap();
    assert_eq!(log.heads(), [head(3, 2, 199), head(4, 1, 1), head(9, 6, 3)]);
}

/// Goal: the sync thread makes records durable by itself, at once when asked, tells about it, and
/// sleeps without a timer when nothing is unsynced.
#[test]
fn sync_thread_syncs_tells_and_sleeps() {
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    let (sender, told) = mpsc::channel();
    let notify: Notify = Box::new(move |result, _| drop(sender.send(result.clone())));
    let policy = SyncPolicy::Every(Duration::from_millis(5));
    let thread = SyncThread::start(log.syncer(), policy, notify).unwrap();
    fill(&mut log, 1, 3);
    let far = Duration::from_secs(60);
    while told.recv_timeout(far).unwrap().unwrap() < LogSeq(3) {}
    assert!(told.recv_timeout(Duration::from_millis(60)).is_err(), "woke up although nothing was unsynced");
    fill(&mut log, 1, 4);
    assert_eq!(thread.handle().wait(LogSeq(4), far), Ok(LogSeq(4)));
    assert_eq!(thread.handle().wait_all(far), Ok(LogSeq(4)));
    disk.fail_after(2, Errno::IO);
    fill(&mut log, 1, 5);
    assert!(thread.handle().wait(LogSeq(5), far).is_err());
    while told.recv_timeout(far).unwrap().is_ok() {}
    assert!(log.append(&[entry(1, 6)]).is_err());
    drop(thread);
}

/// Goal: a request does not wait for the interval.
#[test]
fn a_request_is_served_at_once() {
    let (mut log, _) = open(&FaultDisk::new());
    let policy = SyncPolicy::Every(Duration::from_secs(3600));
    let thread = SyncThread::start(log.syncer(), policy, Box::new(|_, _| ())).unwrap();
    for seq in 1..100 {
        fill(&mut log, 1, seq);
        assert!(thread.handle().wait(LogSeq(seq), Duration::from_secs(60)).unwrap() >= LogSeq(seq));
    }
}

/// Goal: the same log on a real file system, with its lock, preallocation and a torn end.
#[test]
fn on_a_real_disk() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/log");
    let open = || CommandLog::open(Arc::new(RealDisk), &dir, options(64 << 10));
    let (mut log, _) = open().unwrap();
    assert!(matches!(open(), Err(LogError::Failed(text)) if text.contains("another daemon")));
    fill(&mut log, 1, 2000);
    log.syncer().sync().unwrap();
    log.release_before(LogSeq(1000)).unwrap();
    log.syncer().sync().unwrap();
    let newest = dir.join(segment::name(*log.segments_for_tests().last().unwrap()));
    let first = log.first_seq();
    fill(&mut log, 1, 2001);
    let end = log.end_for_tests();
    drop(log);
    let file = std::fs::OpenOptions::new().write(true).open(newest).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &[7], end - 9).unwrap();
    let (mut log, found) = open().unwrap();
    assert_eq!((found.first, found.last), (first, LogSeq(2000)));
    assert!(found.dropped_tail_bytes > 0);
    fill(&mut log, 2, 2500);
    drop(log);
    assert_eq!(open().unwrap().1.last, LogSeq(2500));
}
