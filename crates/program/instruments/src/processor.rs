//! How much processor time a busy thread of this daemon gets.
//!
//! Time on the clock against time on the processor: the difference is what others took, or what a control group
//! held back. The pace of the work per processor time tells a slow processor from a busy one.

use super::facts::group;
use super::gate::spawn;
use super::jobs::Control;
use super::question::{Findings, ProcessorFound, ProcessorRound, ProcessorTest};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Longest round.
const ROUND_MAX_MS: u64 = 5_000;
const ROUNDS_MAX: u32 = 100;
const THREADS_MAX: u32 = 256;
/// Steps of work between two looks at the clock: some tens of microseconds.
const STEPS: u32 = 20_000;

/// What one thread got.
struct Burnt {
    wall: Duration,
    cpu: Duration,
    waited: Duration,
    steps: u64,
}

pub fn measure(test: &ProcessorTest, control: &Control) -> Result<Findings, String> {
    let round = Duration::from_millis(test.round_ms.clamp(1, ROUND_MAX_MS));
    let threads = test.threads.clamp(1, THREADS_MAX);
    let before = group::throttling();
    let mut found = ProcessorFound::default();
    for _ in 0..test.rounds.clamp(1, ROUNDS_MAX) {
        if control.is_stopped() {
            break;
        }
        found.rounds.push(one_round(round, threads)?);
    }
    if let (Some(before), Some(after)) = (before, group::throttling()) {
        found.throttled = Some(after.0.saturating_sub(before.0));
        found.throttled_ms = Some(after.1.saturating_sub(before.1) as f64 / 1_000.0);
    }
    Ok(Findings::Processor(found))
}

fn one_round(round: Duration, threads: u32) -> Result<ProcessorRound, String> {
    let burnt: Result<Vec<Burnt>, String> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| spawn(scope, move || burn(round))).collect();
        let ended = started.into_iter().map(|one| one?.join().map_err(|_| "a thread ended badly".to_owned()));
        ended.collect()
    });
    let burnt = burnt?;
    let sum = |of: fn(&Burnt) -> Duration| burnt.iter().map(|one| of(one).as_secs_f64() * 1e3).sum::<f64>();
    let cpu_ms = sum(|one| one.cpu);
    let steps: u64 = burnt.iter().map(|one| one.steps).sum();
    Ok(ProcessorRound {
        wall_ms: sum(|one| one.wall),
        cpu_ms,
        waited_ms: sum(|one| one.waited),
        pace: steps as f64 / cpu_ms.max(1e-6),
    })
}

/// Works until `round` is over.
fn burn(round: Duration) -> Burnt {
    let (cpu, waited, began) = (thread_time(), run_delay(), Instant::now());
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut steps = 0;
    while began.elapsed() < round {
        for _ in 0..STEPS {
            state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        steps += u64::from(STEPS);
        state = black_box(state);
    }
    Burnt {
        wall: began.elapsed(),
        cpu: thread_time().saturating_sub(cpu),
        waited: run_delay().saturating_sub(waited),
        steps,
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(at.tv_sec.unsigned_abs(), at.tv_nsec.unsigned_abs() as u32)
}

/// Time that this thread was ready and did not run; zero when the kernel does not tell.
fn run_delay() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let delay = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(delay.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: as many rounds as asked for, each with more time on the clock than on the processor, and work done.
    #[test]
    fn rounds_add_up() {
        let test = ProcessorTest { round_ms: 10, rounds: 3, threads: 2 };
        let Ok(Findings::Processor(found)) = measure(&test, &Control::default()) else { panic!() };
        assert_eq!(found.rounds.len(), 3);
        for (round, share) in found.rounds.iter().zip(found.shares()) {
            assert!(round.wall_ms >= 20.0 && round.cpu_ms > 0.0 && round.pace > 0.0, "{round:?}");
            assert!(share > 0.0 && share < 1.05, "{share}");
        }
        let stopped = Control::default();
        stopped.stop();
        let Ok(Findings::Processor(found)) = measure(&test, &stopped) else { panic!() };
        assert!(found.rounds.is_empty());
    }
}
