//! All targets at once: they begin at one moment, and what they deliver together is told by the time in which any worked.

use super::Run;
use crate::bench::storage::Served;
use crate::bench::storage::together::{Member, begin, wait};
use skep_base::daemon::Stop;
use skep_base::{Failure, Outcome};
use skep_instruments::client::INTERRUPTED;
use skep_instruments::question::{JobState, Order, StorageTest};
use skep_survey::together;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two looks for an interruption.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes a second of all targets that can be measured, within `limit`.
pub fn rate(run: &Run<'_>, test: &StorageTest, limit: Duration) -> Outcome<f64> {
    let served = served(run);
    let stop = Stop::new().map_err(|e| Failure::local("all targets at once", e))?;
    std::thread::scope(|scope| {
        // Dropped at the end, which ends the watch.
        let (_ended, told) = channel::<()>();
        scope.spawn(|| watch(&stop, Instant::now() + limit, told));
        let mut members = begin(run.cluster, &served, test, Some(&stop), Order::leased)?;
        match wait(&mut members, &stop, false)? {
            true => delivered(&members),
            false if INTERRUPTED.load(Relaxed) => Err(Failure::new("interrupted")),
            false => Err(late(&members, limit)),
        }
    })
}

/// Tells to stop when that is asked for, or when it has taken too long.
fn watch(stop: &Stop, until: Instant, told: Receiver<()>) {
    while told.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        if INTERRUPTED.load(Relaxed) || Instant::now() >= until {
            return stop.set();
        }
    }
}

/// Daemons with those of their targets that could be measured by themselves.
fn served(run: &Run<'_>) -> Vec<Served> {
    let failed = |alias: &str| run.absent.iter().any(|one| one.name == alias);
    let of = |(at, node): (usize, &_)| {
        let own = run.members.targets.iter().filter(|(target, owner)| *owner == at && !failed(&target.alias));
        Served { node: Clone::clone(node), targets: own.map(|(target, _)| target.clone()).collect() }
    };
    let all = run.members.nodes.iter().enumerate().map(of);
    all.filter(|one| !one.targets.is_empty()).collect()
}

fn late(members: &[Member<'_>], limit: Duration) -> Failure {
    let slow = members.iter().filter(|one| one.job.state == JobState::Stopped);
    let slow: Vec<&str> = slow.map(|one| one.of.node.alias.as_str()).collect();
    Failure::new(format!("{}: not done within {} s", slow.join(", "), limit.as_secs()))
}

/// What all targets delivered together; what failed at one of them is an error.
fn delivered(members: &[Member<'_>]) -> Outcome<f64> {
    let (mut bytes, mut windows) = (0, Vec::new());
    for one in members {
        let alias = &one.of.node.alias;
        let failed = one.found().iter().find_map(|found| found.error.as_ref());
        if let Some(error) = one.job.error.as_ref().or(failed) {
            return Err(Failure::new(format!("{alias}: {error}")));
        }
        for found in one.found() {
            let window = one.window(found);
            let window =
                window.ok_or_else(|| Failure::new(format!("{alias}: does not tell when it began")))?;
            bytes += found.flow.bytes;
            windows.push((window.from_ns, window.to_ns));
        }
    }
    Ok(together::rate(bytes, together::busy_ns(windows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a measurement that takes too long is told to stop, and one that has ended is not.
    #[test]
    fn the_watch_ends() {
        let (late, done) = (Stop::new().unwrap(), Stop::new().unwrap());
        let (_ended, told) = channel();
        watch(&late, Instant::now(), told);
        let (ended, told) = channel();
        drop(ended);
        watch(&done, Instant::now(), told);
        assert!(late.is_set() && !done.is_set());
    }
}
