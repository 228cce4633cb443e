//! What the log and the row store cost. `cargo run --release -p skep-disk --example log_bench [dir]`
//!
//! Prints one line per measurement: operations per second and CPU microseconds per operation (all
//! threads of the process, user and system).

use skep_disk::disk::RealDisk;
use skep_disk::log::{CommandLog, Head, LogOptions, Record, SyncPolicy, SyncThread};
use skep_disk::rows::{RowOptions, RowStore};
use skep_rows::{Batch, Store};
use skep_types::{LogIndex, LogSeq, ShardId, Term, Uuid};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

const RECORD: usize = 300;
const LIMIT: Duration = Duration::from_secs(60);

fn cpu() -> Duration {
    clock(rustix::time::ClockId::ProcessCPUTime)
}

fn clock(id: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measure(what: &str, count: u64, run: impl FnOnce() -> Outcome) -> Outcome {
    const OWN: rustix::time::ClockId = rustix::time::ClockId::ThreadCPUTime;
    let (cpu_before, own_before, start) = (cpu(), clock(OWN), Instant::now());
    run()?;
    let (time, used, own) = (start.elapsed(), cpu() - cpu_before, clock(OWN) - own_before);
    println!(
        "{what:<52} {:>10.0}/s {:>8.2} us CPU (own thread {:>6.2}) {:>8.2} us wall",
        count as f64 / time.as_secs_f64(),
        used.as_secs_f64() * 1e6 / count as f64,
        own.as_secs_f64() * 1e6 / count as f64,
        time.as_secs_f64() * 1e6 / count as f64
    );
    Ok(())
}

/// Of the only shard.
fn head(n: u64) -> Head {
    Head { shard: ShardId(3), term: Term(1), index: LogIndex(n) }
}

fn group(from: u64, size: u64) -> Vec<Record> {
    let record = |n| Record::command(LogSeq(from + n), head(from + n), vec![7; RECORD]);
    (0..size).map(record).collect()
}

fn new_log(root: &Path, name: &str, preallocate: bool) -> Result<CommandLog, Box<dyn Error>> {
    let dir = root.join(name);
    let options = LogOptions { preallocate, ..LogOptions::new(Uuid([9; 16])) };
    Ok(CommandLog::open(Arc::new(RealDisk), &dir, options)?.0)
}

fn append(root: &Path) -> Outcome {
    for size in [1, 8, 32] {
        let mut log = new_log(root, &format!("append{size}"), true)?;
        let groups = 400_000 / size;
        let records: Vec<_> = (0..groups).map(|n| group(1 + n * size, size)).collect();
        measure(&format!("append, unsynced, groups of {size}"), groups * size, || {
            records.iter().try_for_each(|group| log.append(group).map_err(Into::into))
        })?;
        log.syncer().sync()?;
    }
    Ok(())
}

fn synced(root: &Path) -> Outcome {
    for preallocate in [false, true] {
        for size in [1, 8, 32, 256] {
            let mut log = new_log(root, &format!("sync{size}{preallocate}"), preallocate)?;
            let syncer = log.syncer();
            let groups = 300;
            measure(
                &format!("append + fdatasync, groups of {size}, preallocated {preallocate}"),
                groups * size,
                || {
                    for n in 0..groups {
                        log.append(&group(1 + n * size, size))?;
                        syncer.sync()?;
                    }
                    Ok(())
                },
            )?;
        }
    }
    Ok(())
}

/// Rows as a create writes them: entry and inode (new), directory and slot (shared).
fn create(n: u64) -> Batch {
    let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let row = |tag: u8, id: u64, size| {
        let mut key = vec![0, 3, tag];
        key.extend(id.to_be_bytes());
        key.extend([0; 8]);
        (key, Some(vec![n as u8; size]))
    };
    [row(1, spread, 60), row(2, n, 160), row(2, n % 16, 160), row(9, n % 64, 120)].into()
}

fn rows(root: &Path) -> Outcome {
    const CREATES: u64 = 1_000_000;
    let mut log = new_log(root, "rowlog", true)?;
    let thread = SyncThread::start(log.syncer(), SyncPolicy::default(), Box::new(|_, _| ()))?;
    let open = |barrier| RowStore::open(&root.join("rows"), RowOptions::default(), barrier, Box::new(|| ()));
    let mut store = open(Arc::new(thread.handle()))?;
    measure("(making those records and batches, nothing else)", CREATES, || {
        for n in 0..CREATES / 32 {
            std::hint::black_box(group(1 + n * 32, 32));
            for index in 1 + n * 32..33 + n * 32 {
                std::hint::black_box(create(index));
            }
        }
        Ok(())
    })?;
    measure("append (32) + apply of creates, with checkpoints", CREATES, || {
        for n in 0..CREATES / 32 {
            log.append(&group(1 + n * 32, 32))?;
            for index in 1 + n * 32..33 + n * 32 {
                store.apply(LogSeq(index), &[head(index)], create(index))?;
            }
            store.make_room(LIMIT)?;
            if let Some(done) = store.poll()? {
                log.release_before(LogSeq(done.0 + 1))?;
            }
        }
        store.flush(LIMIT)?;
        Ok(())
    })?;
    let keys: Vec<_> = (0..200_000u64).map(|n| create(1 + n * 7919 % CREATES).into_keys().nth(2)).collect();
    let keys: Vec<_> = keys.into_iter().flatten().collect();
    let read = |store: &RowStore| -> Outcome {
        for key in &keys {
            if store.get(key)?.is_none() {
                return Err("a row is gone".into());
            }
        }
        Ok(())
    };
    drop(store);
    let mut store = open(Arc::new(thread.handle()))?;
    let count = keys.len() as u64;
    measure("get, from fjall, page cache warm", count, || read(&store))?;
    measure("get, from the row cache", count, || read(&store))?;
    let absent: Vec<_> = (0..count).map(|n| [&[0, 3, 1][..], &n.to_be_bytes(), &[1; 8]].concat()).collect();
    let miss = |store: &RowStore| -> Outcome { Ok(absent.iter().try_for_each(|k| store.get(k).map(drop))?) };
    measure("get of absent rows, from fjall", count, || miss(&store))?;
    measure("get of absent rows, from the row cache", count, || miss(&store))?;
    let mut index = store.applied().0;
    for _ in 0..50_000 {
        index += 1;
        log.append(&group(index, 1))?;
        store.apply(LogSeq(index), &[head(index)], create(index))?;
    }
    measure("get, from the row cache, overlay filled", count, || read(&store))?;
    let mut seen = 0;
    measure("scan, per row", 2 * CREATES, || {
        store.scan(&[0, 3, 1], &[0, 3, 3], &mut |_, _| {
            seen += 1;
            true
        })?;
        Ok(())
    })?;
    println!("{seen} rows seen");
    store.flush(LIMIT)?;
    let before = cpu();
    std::thread::sleep(Duration::from_secs(3));
    println!("idle: {:?} CPU in 3 s", cpu() - before);
    Ok(())
}

fn main() -> Outcome {
    let root = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let root = root.join(format!("skep-log-bench-{}", std::process::id()));
    std::fs::create_dir_all(&root)?;
    let result = append(&root).and_then(|()| synced(&root)).and_then(|()| rows(&root));
    std::fs::remove_dir_all(&root)?;
    result
}
