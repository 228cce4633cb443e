//! A worker's counters: what every operation leaves behind, at a cost of some tens of nanoseconds.

use super::{SideReport, Trouble, WorkerReport, now_ns};
use crate::histogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Samples of a timeline; when full, every second one is dropped.
const TIMELINE: usize = 512;

/// Reads and writes apart. Whatever has one side only uses the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Reads, and everything that is alone.
    First,
    /// The writes of a phase that has both.
    Second,
}

/// What a worker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another operation.
    Go,
    /// Nothing: all is done or time is over.
    Over,
}

/// What other threads see of a worker.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    pub bytes: AtomicU64,
    pub ops: AtomicU64,
}

/// What a part is limited by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wall {
    /// Moment to stop at; none: never.
    pub at_ns: Option<u64>,
    pub wear_out: bool,
    pub repeat: bool,
}

/// Asks the director how far to go on; false: stop.
pub(super) type AskLevel = Box<dyn FnMut(u64) -> Option<u64> + Send>;

/// Counts, times and stops the operations of one worker.
pub struct Meter {
    stop: Arc<AtomicBool>,
    gauge: Arc<Gauge>,
    ask: AskLevel,
    wall_ns: u64,
    wall: Wall,
    level: Option<u64>,
    start_ns: u64,
    end_ns: u64,
    sides: [SideReport; 2],
    histograms: [Histogram; 2],
    timeline: Vec<(u64, u64, u64)>,
    stride: u64,
    next_sample: u64,
}

impl Meter {
    pub(super) fn new(stop: Arc<AtomicBool>, gauge: Arc<Gauge>, ask: AskLevel) -> Self {
        Self {
            stop,
            gauge,
            ask,
            wall_ns: u64::MAX,
            wall: Wall::default(),
            level: None,
            start_ns: 0,
            end_ns: 0,
            sides: [SideReport::default(); 2],
            histograms: [Histogram::new(), Histogram::new()],
            timeline: Vec::with_capacity(TIMELINE),
            stride: 1,
            next_sample: 1,
        }
    }

    /// A meter for tests and for loads without a director: never stopped.
    pub fn alone() -> Self {
        let mut meter = Self::new(Arc::default(), Arc::default(), Box::new(|_| None));
        meter.begin(Wall::default());
        meter
    }

    /// Starts counting.
    pub(super) fn begin(&mut self, wall: Wall) {
        self.sides = [SideReport::default(); 2];
        self.histograms.iter_mut().for_each(Histogram::clear);
        self.timeline.clear();
        self.stride = 1;
        self.next_sample = 1;
        self.level = None;
        self.wall = wall;
        self.wall_ns = wall.at_ns.unwrap_or(u64::MAX);
        self.gauge.bytes.store(0, Ordering::Relaxed);
        self.gauge.ops.store(0, Ordering::Relaxed);
        self.start_ns = now_ns();
        self.end_ns = self.start_ns;
    }

    /// Whether there is another operation after `done` of `total`, at the moment `now`.
    #[inline]
    pub fn next(&mut self, done: u64, total: u64, now: u64) -> Result<Next, Trouble> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Trouble::stopped());
        }
        if now >= self.wall_ns {
            return self.at_wall(done, total);
        }
        let total = self.level.unwrap_or(total);
        let over = done >= total && !(self.wall.repeat && self.wall.at_ns.is_some() && total > 0);
        if !over {
            return Ok(Next::Go);
        }
        if self.wall.wear_out && self.level.is_none() && self.wall.at_ns.is_some() {
            // Done before the time: the others still need to hear how far this one was.
            return self.at_wall(done, total);
        }
        Ok(Next::Over)
    }

    #[cold]
    fn at_wall(&mut self, done: u64, total: u64) -> Result<Next, Trouble> {
        if !self.wall.wear_out {
            return Ok(Next::Over);
        }
        self.end_ns = now_ns();
        let level = (self.ask)(done).ok_or_else(Trouble::stopped)?.min(total);
        self.level = Some(level);
        self.wall_ns = u64::MAX;
        Ok(if done < level { Next::Go } else { Next::Over })
    }

    /// The clock.
    #[inline]
    pub fn now(&self) -> u64 {
        now_ns()
    }

    /// Counts an operation that began at `since` and has just ended; returns now.
    #[inline]
    pub fn record(&mut self, side: Side, bytes: u64, since: u64) -> u64 {
        let now = now_ns();
        self.histograms[side as usize].record(now - since);
        self.count(side, bytes, 1, now);
        now
    }

    /// Counts operations without a latency each (entries of a listing).
    pub fn count(&mut self, side: Side, bytes: u64, ops: u64, now: u64) {
        let report = &mut self.sides[side as usize];
        report.bytes += bytes;
        report.ops += ops;
        let (all_bytes, all_ops) = self.totals();
        self.gauge.bytes.store(all_bytes, Ordering::Relaxed);
        self.gauge.ops.store(all_ops, Ordering::Relaxed);
        self.end_ns = now;
        if all_ops >= self.next_sample {
            self.sample(now, all_bytes, all_ops);
        }
    }

    /// Notes the latency of something that was counted by [`Meter::count`].
    pub fn latency(&mut self, side: Side, nanoseconds: u64) {
        self.histograms[side as usize].record(nanoseconds);
    }

    fn sample(&mut self, now: u64, bytes: u64, ops: u64) {
        if self.timeline.len() == TIMELINE {
            let mut at = 0;
            self.timeline.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.stride *= 2;
        }
        self.timeline.push((now, bytes, ops));
        self.next_sample = ops + self.stride;
    }

    /// What belongs to the time of the part (a timed fsync, a close) has just ended.
    pub fn extend(&mut self) {
        self.end_ns = now_ns();
    }

    /// So many nanoseconds more belong to it.
    pub(crate) fn extend_by(&mut self, nanoseconds: u64) {
        self.end_ns += nanoseconds;
    }

    /// What was done until now does not belong to it.
    pub(crate) fn restart(&mut self) {
        self.start_ns = now_ns();
        self.end_ns = self.start_ns;
    }

    /// Operations so far.
    pub fn ops(&self) -> u64 {
        self.totals().1
    }

    fn totals(&self) -> (u64, u64) {
        let [a, b] = &self.sides;
        (a.bytes + b.bytes, a.ops + b.ops)
    }

    pub(super) fn report(&self, worker: u32) -> (WorkerReport, Vec<Histogram>) {
        let used = if self.sides[1].ops > 0 { 2 } else { 1 };
        let report = WorkerReport {
            worker,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            sides: self.sides[..used].to_vec(),
            timeline: self.timeline.clone(),
        };
        (report, self.histograms[..used].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a timeline keeps the whole run in a bounded number of rising samples.
    #[test]
    fn timeline() {
        let mut meter = Meter::alone();
        for _ in 0..10_000 {
            let now = meter.now();
            meter.record(Side::First, 10, now);
        }
        let (report, _) = meter.report(0);
        assert!(report.timeline.len() <= TIMELINE && report.timeline.len() >= TIMELINE / 4);
        assert!(report.timeline.windows(2).all(|w| w[0].2 < w[1].2 && w[0].0 <= w[1].0));
        assert!(report.timeline.last().unwrap().2 > 9_900);
        assert_eq!(report.sides, [SideReport { bytes: 100_000, ops: 10_000 }]);
    }

    /// Goal: the wall ends a worker, or lets it go on to the level it is told, or start over.
    #[test]
    fn walls() {
        let mut meter = Meter::new(Arc::default(), Arc::default(), Box::new(|done| Some(done + 2)));
        meter.begin(Wall { at_ns: Some(100), ..Wall::default() });
        assert_eq!(meter.next(5, 10, 99), Ok(Next::Go));
        assert_eq!(meter.next(5, 10, 100), Ok(Next::Over));
        meter.begin(Wall { at_ns: Some(100), wear_out: true, repeat: false });
        assert_eq!(meter.next(5, 10, 100), Ok(Next::Go));
        assert_eq!(meter.next(6, 10, 200), Ok(Next::Go));
        assert_eq!(meter.next(7, 10, 200), Ok(Next::Over));
        meter.begin(Wall { at_ns: Some(100), wear_out: false, repeat: true });
        assert_eq!(meter.next(25, 10, 99), Ok(Next::Go));
        assert_eq!(meter.next(25, 10, 101), Ok(Next::Over));
    }

    /// Goal: a worker that is told to stop stops at the next operation.
    #[test]
    fn stop() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut meter = Meter::new(Arc::clone(&stop), Arc::default(), Box::new(|_| None));
        meter.begin(Wall::default());
        stop.store(true, Ordering::Relaxed);
        assert!(meter.next(0, 1, 0).unwrap_err().is_stop());
    }
}
