//! The threads of a storage measurement.

use super::super::gate::{Gate, spawn};
use super::super::jobs::Control;
use super::super::network::Times;
use super::super::question::{
    Direction, Findings, Flow, JobState, Latency, StorageFound, StorageTest, TargetFound,
};
use super::super::service::BenchTarget;
use super::DIRECT_ALIGN;
use super::order::Order;
use super::place::Place;
use skep_bench::Supply;
use skep_bench::engine::now_ns;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What the threads of a target have done, for those who ask meanwhile.
struct Progress {
    target: u32,
    bytes: AtomicU64,
    failed: AtomicBool,
    ended: Mutex<Ended>,
}

/// What is known once threads have ended.
struct Ended {
    times: Times,
    sync: Duration,
    at: Option<Instant>,
    threads: u32,
    error: Option<String>,
}

/// What all threads share.
struct Shared {
    ready: AtomicBool,
    /// When the first thread began, by both clocks: that of this process, and the machine's.
    began: OnceLock<(Instant, u64)>,
    targets: Vec<Arc<Progress>>,
    threads: u32,
}

impl Progress {
    fn new(target: u32) -> Arc<Self> {
        let ended =
            Ended { times: Times::default(), sync: Duration::ZERO, at: None, threads: 0, error: None };
        let (bytes, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { target, bytes, failed, ended: Mutex::new(ended) })
    }

    fn fail(&self, why: String) {
        self.failed.store(true, Relaxed);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).error.get_or_insert(why);
    }

    fn shown(&self, shared: &Shared, stopped: bool) -> TargetFound {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let all = ended.threads == shared.threads;
        let state = match () {
            () if ended.error.is_some() => JobState::Failed,
            () if !all => JobState::Running,
            () if stopped => JobState::Stopped,
            () => JobState::Done,
        };
        let until = ended.at.filter(|_| all).unwrap_or_else(Instant::now);
        let seconds = shared.began.get().map_or(0.0, |(began, _)| until.duration_since(*began).as_secs_f64());
        TargetFound {
            target: self.target,
            state,
            flow: Flow { bytes: self.bytes.load(Relaxed), seconds },
            latency: ended.times.latency(),
            buckets: ended.times.buckets(ALL_BUCKETS_MAX / shared.targets.len().max(1)),
            sync_ms: ended.sync.as_secs_f64() * 1e3,
            error: ended.error.clone(),
        }
    }
}

impl Shared {
    fn shown(&self, stopped: bool) -> StorageFound {
        StorageFound {
            ready: self.ready.load(Relaxed),
            began_ns: self.began.get().map(|(_, ns)| *ns),
            targets: self.targets.iter().map(|one| one.shown(self, stopped)).collect(),
        }
    }
}

/// Pairs of all targets' histograms: an answer has a limit.
const ALL_BUCKETS_MAX: usize = 24 << 10;

/// One thread.
struct Worker<'a> {
    place: &'a Place,
    progress: &'a Progress,
    test: &'a StorageTest,
    control: &'a Control,
    object: u32,
    /// Where its part of the object begins.
    base: u64,
    seed: u64,
}

/// What is found when some targets have no room: nothing is written to any.
pub fn refused(targets: &[&BenchTarget], full: &BTreeMap<u32, String>) -> StorageFound {
    let found = |target: &&BenchTarget| TargetFound {
        target: target.target.0,
        state: JobState::Failed,
        flow: Flow::default(),
        latency: Latency::default(),
        buckets: Vec::new(),
        sync_ms: 0.0,
        error: Some(match full.get(&target.target.0) {
            Some(why) => why.clone(),
            None => "not measured, for another target of its daemon has too little room".to_owned(),
        }),
    };
    StorageFound { ready: true, began_ns: None, targets: targets.iter().map(found).collect() }
}

/// Measures all targets at once; one that fails does not end the others.
pub fn run(targets: &[&BenchTarget], test: &StorageTest, control: &Control) -> Result<StorageFound, String> {
    // An object per thread, unless fewer are shared; never one without a thread.
    let objects = if test.objects == 0 { test.threads } else { test.objects.min(test.threads) };
    let parts = test.threads.div_ceil(objects);
    let size = test.size / test.block * test.block;
    let shared = Arc::new(Shared {
        ready: AtomicBool::new(false),
        began: OnceLock::new(),
        targets: targets.iter().map(|one| Progress::new(one.target.0)).collect(),
        threads: test.threads,
    });
    let shown = shared.clone();
    control.show(move || Findings::Storage(shown.shown(false)));
    // The last objects may have a part less than the first ones.
    let whole = u64::from(if test.threads.is_multiple_of(objects) { parts } else { parts - 1 });
    let mut places = Vec::new();
    for (target, progress) in targets.iter().zip(&shared.targets) {
        match Place::open(target, test, objects, whole * size) {
            Ok(place) => places.push(Some(place)),
            Err(e) => {
                progress.fail(e);
                places.push(None);
            }
        }
    }
    if places.iter().all(Option::is_none) {
        let first = shared.shown(false).targets.into_iter().next();
        return Err(first.and_then(|one| one.error).unwrap_or_else(|| "no target".to_owned()));
    }
    start_all(&places, &shared, test, control, (objects, size))?;
    Ok(shared.shown(control.is_stopped()))
}

/// Starts the threads of all targets, together, and waits for them.
fn start_all(
    places: &[Option<Place>],
    shared: &Shared,
    test: &StorageTest,
    control: &Control,
    (objects, size): (u32, u64),
) -> Result<(), String> {
    let gate = Gate::default();
    // What an earlier measurement wrote is not written again: storage may know it still.
    let life = now_ns();
    std::thread::scope(|scope| {
        let mut started = Ok(0);
        for (place, progress) in places.iter().zip(&shared.targets) {
            let Some(place) = place else { continue };
            for thread in 0..test.threads {
                let (object, part) = (thread % objects, u64::from(thread / objects));
                let seed = u64::from(progress.target) << 32 | u64::from(thread) << 1;
                let worker = Worker { place, progress, test, control, object, base: part * size, seed };
                let (gate, began) = (&gate, &shared.began);
                let work = move || {
                    let bytes = Bytes::new(test, seed ^ life);
                    if gate.wait() {
                        let (began, _) = *began.get_or_init(|| (Instant::now(), now_ns()));
                        worker.work(bytes, began);
                    }
                };
                started = started.and_then(|many| spawn(scope, work).map(|_| many + 1));
            }
        }
        let many = *started.as_ref().unwrap_or(&0);
        if started.is_ok() {
            gate.all_ready(many);
            shared.ready.store(true, Relaxed);
            if test.held {
                control.held();
            }
        }
        gate.open(many, started.is_ok());
        started.map(drop)
    })
}

impl Worker<'_> {
    fn work(&self, bytes: Option<Bytes>, began: Instant) {
        let mut times = Times::default();
        let done = bytes.ok_or_else(|| "no memory for what is written or read".to_owned());
        let done = done.and_then(|bytes| self.blocks(bytes, began, &mut times)).map(|sync| (times, sync));
        let mut ended = self.progress.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.threads += 1;
        ended.at = Some(Instant::now());
        match done {
            Ok((times, sync)) => {
                ended.times.merge(&times);
                ended.sync = ended.sync.max(sync);
            }
            Err(e) => {
                self.progress.failed.store(true, Relaxed);
                ended.error.get_or_insert(e);
            }
        }
    }

    /// What was read must not be in memory when it is read again: in the next round, or drawn twice.
    fn forget(&self, order: &Order, offset: u64) -> Result<(), String> {
        let test = self.test;
        if test.random {
            return self.place.forget(self.object, offset, test.block);
        }
        if order.is_round() { self.place.forget(self.object, self.base, test.size) } else { Ok(()) }
    }

    /// Every block; gives the time of the sync at the end.
    fn blocks(&self, mut bytes: Bytes, began: Instant, times: &mut Times) -> Result<Duration, String> {
        let test = self.test;
        let mut order = Order::new(test.size / test.block, test.random, self.seed);
        let limit = Duration::from_secs_f64(test.seconds);
        let over = |order: &Order| match test.seconds > 0.0 {
            true => began.elapsed() >= limit,
            false => order.is_over(),
        };
        while !over(&order) && !self.control.is_stopped() && !self.progress.failed.load(Relaxed) {
            let offset = self.base + order.next() * test.block;
            let buffer = bytes.next(test.block as usize);
            let at = Instant::now();
            let moved = match test.direction {
                Direction::Write => self.place.write(self.object, offset, buffer).map(|()| buffer.len())?,
                Direction::Read => self.place.read(self.object, offset, buffer)?,
            };
            times.add(at.elapsed());
            if (moved as u64) < test.block {
                return Err(
                    "a file ended early: write with the same size, threads and objects first".to_owned()
                );
            }
            self.progress.bytes.fetch_add(moved as u64, Relaxed);
            if test.direction == Direction::Read {
                self.forget(&order, offset)?;
            }
        }
        let at = Instant::now();
        if test.direction == Direction::Write {
            self.place.sync(self.object)?;
        }
        Ok(at.elapsed())
    }
}

/// What a thread writes, or where it reads to, at an address that O_DIRECT takes.
enum Bytes {
    /// Bytes that no storage can pack or find twice.
    Written(Supply),
    /// Memory, and where the aligned part of it begins.
    Read(Vec<u8>, usize),
}

impl Bytes {
    /// `key` tells threads apart. None: there is no memory.
    fn new(test: &StorageTest, key: u64) -> Option<Self> {
        if test.direction == Direction::Write {
            return Supply::new(test.block, key).map(Self::Written);
        }
        let memory = vec![0; (test.block + DIRECT_ALIGN) as usize];
        let start = memory.as_ptr().align_offset(DIRECT_ALIGN as usize);
        (start < DIRECT_ALIGN as usize).then_some(Self::Read(memory, start))
    }

    /// For the next block.
    fn next(&mut self, length: usize) -> &mut [u8] {
        match self {
            Self::Written(supply) => supply.next(length),
            Self::Read(memory, start) => &mut memory[*start..*start + length],
        }
    }
}
