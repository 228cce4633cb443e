//! Which bytes come next: from the number of a transfer to its place in the file.

use crate::engine::{Permutation, StepKind, mix, steps};
use crate::job::{IoJob, Job, Order, Share, Work};

/// The transfers of one worker in one pass.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    share: Share,
    order: Order,
    transfer: u64,
    block: u64,
    per_block: u64,
    count: u64,
    target: u64,
    workers: u64,
    permutation: Permutation,
    seed: u64,
}

impl Course {
    /// The course over `target`'s data; `limit`: only so many transfers of it exist.
    pub fn new(io: &IoJob, order: Order, target: u32, workers: u32, limit: Option<u64>, seed: u64) -> Self {
        let per_block = io.block.div_ceil(io.transfer.max(1));
        let count = per_block.saturating_mul(io.segments).min(limit.unwrap_or(u64::MAX));
        Self {
            share: io.share,
            order,
            transfer: io.transfer,
            block: io.block,
            per_block,
            count,
            target: u64::from(target),
            workers: u64::from(workers),
            permutation: Permutation::new(count, seed),
            seed,
        }
    }

    /// Transfers of the pass.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Offset and length of the n-th transfer; after the last they begin again.
    #[inline]
    pub fn at(&self, n: u64) -> (u64, usize) {
        let n = if n < self.count { n } else { n % self.count };
        let index = match self.order {
            Order::Forward => n,
            Order::Backward => self.count - 1 - n,
            Order::Random => self.permutation.at(n),
            Order::RandomRepeating => mix(self.seed ^ n) % self.count,
            Order::Stride { transfers } => strided(n, self.count, transfers),
        };
        let (segment, inside) = (index / self.per_block, (index % self.per_block) * self.transfer);
        let length = self.transfer.min(self.block - inside);
        let offset = match self.share {
            Share::PerWorker | Share::Whole => segment * self.block + inside,
            Share::Segmented => (segment * self.workers + self.target) * self.block + inside,
            Share::Strided => (index * self.workers + self.target) * self.transfer,
        };
        (offset, length as usize)
    }
}

/// What everything drawn in a worker's pass follows from.
pub(super) fn seed(job: &Job, worker: u32, step: u32, repetition: u32) -> u64 {
    mix(job.seed ^ mix(u64::from(worker) << 32 | u64::from(step)) ^ u64::from(repetition))
}

/// Offset and length of each transfer, in their order, in the first pass (a preparation counts) of a job of one worker: for another program
/// that shall do the same. None for other jobs.
pub fn transfers(job: &Job) -> Option<Vec<(u64, usize)>> {
    let Work::Io(io) = &job.work else { return None };
    let (step, phase) = steps(job).into_iter().find_map(|step| match step.kind {
        StepKind::Io(phase) => Some((step.index, phase)),
        _ => None,
    })?;
    if job.workers.count() != 1 {
        return None;
    }
    let course = Course::new(io, phase.order, 0, 1, None, seed(job, 0, step, 0));
    Some((0..course.count()).map(|n| course.at(n)).collect())
}

/// The n-th of `count` when every `stride`-th comes first, then those after them.
fn strided(n: u64, count: u64, stride: u64) -> u64 {
    let (short, longer) = (count / stride, count % stride);
    let in_longer = longer * (short + 1);
    if n < in_longer {
        n / (short + 1) + stride * (n % (short + 1))
    } else {
        let n = n - in_longer;
        longer + n / short.max(1) + stride * (n % short.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(io: &IoJob, order: Order, workers: u32) -> Vec<(u64, usize)> {
        let all = (0..workers).flat_map(|worker| {
            let course = Course::new(io, order, worker, workers, None, 99 + u64::from(worker));
            (0..course.count()).map(move |n| course.at(n)).collect::<Vec<_>>()
        });
        let mut all: Vec<(u64, usize)> = all.collect();
        all.sort_unstable();
        all
    }

    /// Goal: in a shared file all workers together touch every byte exactly once, in every order, also
    /// with transfers that align with nothing.
    #[test]
    fn every_byte_once() {
        let ragged =
            IoJob { share: Share::Segmented, transfer: 47, block: 100, segments: 3, ..IoJob::new("/t") };
        let even = IoJob { share: Share::Strided, transfer: 50, block: 100, segments: 3, ..IoJob::new("/t") };
        for io in [&ragged, &even] {
            for order in [Order::Forward, Order::Backward, Order::Random, Order::Stride { transfers: 4 }] {
                let mut end = 0;
                for (offset, length) in covered(io, order, 3) {
                    assert_eq!(offset, end, "{order:?}");
                    end += length as u64;
                }
                assert_eq!(end, io.file_size(3), "{order:?}");
            }
        }
    }

    /// Goal: segments, strides and files of their own lie where the job's text says.
    #[test]
    fn places() {
        let mut io =
            IoJob { share: Share::Segmented, transfer: 10, block: 20, segments: 2, ..IoJob::new("/t") };
        let at = |io: &IoJob, worker, n| Course::new(io, Order::Forward, worker, 3, None, 0).at(n);
        assert_eq!((at(&io, 1, 0), at(&io, 1, 2)), ((20, 10), (80, 10)));
        io.share = Share::Strided;
        assert_eq!((at(&io, 1, 0), at(&io, 1, 2)), ((10, 10), (70, 10)));
        io.share = Share::PerWorker;
        assert_eq!((at(&io, 1, 3), at(&io, 1, 5)), ((30, 10), (10, 10)));
    }

    /// Goal: a stride visits 0, n, 2n, ... first.
    #[test]
    fn stride() {
        let order: Vec<u64> = (0..7).map(|n| strided(n, 7, 3)).collect();
        assert_eq!(order, [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!((0..3).map(|n| strided(n, 3, 10)).collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// Goal: repeated random draws stay in range and hit much of it.
    #[test]
    fn random_repeating() {
        let io = IoJob { transfer: 1, block: 1000, ..IoJob::new("/t") };
        let course = Course::new(&io, Order::RandomRepeating, 0, 1, None, 5);
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|n| course.at(n).0).collect();
        assert!((550..720).contains(&seen.len()), "{}", seen.len());
        let some = Course::new(&io, Order::Random, 0, 1, Some(10), 5);
        assert!((0..10).all(|n| some.at(n).0 < 10));
    }
}
