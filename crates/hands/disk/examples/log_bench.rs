//! What the log and the row store cost. `cargo run --release -p skep-disk --example log_bench [dir]`
//! With `streams` behind the directory: what it costs to sync several logs of one disk, by a thread each or by one.
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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

/// Bytes of a record in [`streams`].
const STREAM_RECORD: usize = 4_096;
/// Each way is measured so often, in turns with the others, for so long.
const STREAM_ROUNDS: usize = 7;
const STREAM_TIME: Duration = Duration::from_secs(2);

/// What a log was asked to have on stable storage, and what it has.
#[derive(Default)]
struct Wish {
    wanted: u64,
    durable: u64,
}

/// Wishes of several logs.
#[derive(Default)]
struct Wishes {
    logs: Vec<Wish>,
    /// The log that each thread synced last.
    last: Vec<usize>,
    over: bool,
}

/// Where they are left and met.
struct Desk {
    wishes: Mutex<Wishes>,
    /// One for each thread that syncs, and one for each log that waits.
    work: Vec<Condvar>,
    done: Vec<Condvar>,
}

impl Desk {
    fn new(logs: usize, threads: usize) -> Self {
        let wishes = Wishes {
            logs: (0..logs).map(|_| Wish::default()).collect(),
            last: vec![0; threads],
            over: false,
        };
        let conds = |count: usize| (0..count).map(|_| Condvar::new()).collect();
        Self { wishes: Mutex::new(wishes), work: conds(threads), done: conds(logs) }
    }

    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next log of this thread that wants a sync, each in turn; `None` = it is over.
    fn next(&self, thread: usize, threads: usize) -> Option<usize> {
        let mut wishes = self.lock();
        loop {
            let (from, logs) = (wishes.last[thread] + 1, wishes.logs.len());
            let mut in_turn = (from..from + logs).map(|log| log % logs).filter(|log| log % threads == thread);
            let due = in_turn.find(|log| wishes.logs[*log].wanted > wishes.logs[*log].durable);
            if let Some(log) = due {
                wishes.last[thread] = log;
                return due;
            }
            if wishes.over {
                return None;
            }
            wishes = self.work[thread].wait(wishes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_done(&self, log: usize, durable: u64) {
        self.lock().logs[log].durable = durable;
        self.done[log].notify_one();
    }
}

/// Appends a record and waits until it is durable, again and again. How long each wait took.
fn append_and_wait(
    mut log: CommandLog,
    start: Instant,
    desk: &Desk,
    (at, thread): (usize, usize),
) -> Vec<Duration> {
    let (mut waits, mut n) = (Vec::new(), 0);
    while start.elapsed() < STREAM_TIME {
        n += 1;
        let record = Record::command(LogSeq(n), head(n), vec![7; STREAM_RECORD]);
        log.append(&[record]).expect("the disk of a bench works");
        let asked = Instant::now();
        let mut wishes = desk.lock();
        wishes.logs[at].wanted = n;
        desk.work[thread].notify_one();
        while wishes.logs[at].durable < n {
            wishes = desk.done[at].wait(wishes).unwrap_or_else(PoisonError::into_inner);
        }
        drop(wishes);
        waits.push(asked.elapsed());
    }
    waits
}

/// What one run showed.
#[derive(Debug, Clone, Copy)]
struct Run {
    groups: f64,
    syncs: f64,
    cpu: f64,
    p50: Duration,
    p99: Duration,
}

/// `logs` logs, each of which appends a record and waits until it is durable, again and again; synced by so many threads.
fn stream(root: &Path, round: usize, logs: usize, threads: usize) -> Result<Run, Box<dyn Error>> {
    let name = |n: usize| format!("stream{round}-{logs}-{threads}-{n}");
    let opened: Result<Vec<_>, _> = (0..logs).map(|n| new_log(root, &name(n), true)).collect();
    let opened = opened?;
    let syncers: Vec<_> = opened.iter().map(CommandLog::syncer).collect();
    let desk = Desk::new(logs, threads);
    let syncs = std::sync::atomic::AtomicU64::new(0);
    let (cpu_before, start) = (cpu(), Instant::now());
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        for thread in 0..threads {
            let (desk, syncers, syncs) = (&desk, &syncers, &syncs);
            scope.spawn(move || {
                while let Some(log) = desk.next(thread, threads) {
                    let durable = syncers[log].sync().expect("the disk of a bench works").0;
                    syncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    desk.is_done(log, durable);
                }
            });
        }
        let desk = &desk;
        let append = |(at, log)| scope.spawn(move || append_and_wait(log, start, desk, (at, at % threads)));
        let appenders: Vec<_> = opened.into_iter().enumerate().map(append).collect();
        let waits = appenders.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        desk.lock().over = true;
        desk.work.iter().for_each(Condvar::notify_all);
        waits
    });
    let (time, used) = (start.elapsed().as_secs_f64(), cpu() - cpu_before);
    (0..logs).try_for_each(|n| std::fs::remove_dir_all(root.join(name(n))))?;
    waits.sort_unstable();
    let groups = waits.len() as f64;
    let at = |permille: usize| waits.get(waits.len() * permille / 1_000).copied().unwrap_or_default();
    let syncs = syncs.into_inner() as f64;
    Ok(Run {
        groups: groups / time,
        syncs: syncs / time,
        cpu: used.as_secs_f64() * 1e6 / groups,
        p50: at(500),
        p99: at(990),
    })
}

/// Several logs of one disk, synced by a thread each or by one, in turns; medians.
fn streams(root: &Path) -> Outcome {
    let ways: Vec<(usize, usize)> = vec![(1, 1), (2, 2), (2, 1), (4, 4), (4, 1)];
    let mut runs = vec![Vec::new(); ways.len()];
    for round in 0..STREAM_ROUNDS {
        for (way, (logs, threads)) in ways.iter().enumerate() {
            runs[way].push(stream(root, round, *logs, *threads)?);
        }
    }
    for ((logs, threads), runs) in ways.into_iter().zip(runs) {
        let median = |of: &dyn Fn(&Run) -> f64| {
            let mut all: Vec<f64> = runs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let spread: Vec<_> = runs.iter().map(|run| run.groups.round()).collect();
        println!(
            "{logs} logs, {threads} threads: {:>7.0} groups/s {:>7.0} syncs/s, wait p50 {:.2} ms, p99 {:.2} ms, \
             {:.0} us CPU per group; groups/s of each run: {spread:?}",
            median(&|run| run.groups),
            median(&|run| run.syncs),
            median(&|run| ms(run.p50)),
            median(&|run| ms(run.p99)),
            median(&|run| run.cpu),
        );
    }
    Ok(())
}

fn main() -> Outcome {
    let root = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let root = root.join(format!("skep-log-bench-{}", std::process::id()));
    std::fs::create_dir_all(&root)?;
    let result = match std::env::args().nth(2).as_deref() {
        Some("streams") => streams(&root),
        _ => append(&root).and_then(|()| synced(&root)).and_then(|()| rows(&root)),
    };
    std::fs::remove_dir_all(&root)?;
    result
}
