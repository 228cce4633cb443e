//! Where jobs wait for service: a thread, a link, the cores of a server. First come, first served.

use super::queue::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One or more servers with one queue; jobs must arrive in the order of time.
#[derive(Debug)]
pub struct Station {
    /// When each server is free.
    free: BinaryHeap<Reverse<Nanos>>,
    servers: u64,
    /// When those in the station leave it.
    leaving: BinaryHeap<Reverse<Nanos>>,
    seen: Nanos,
    since: Nanos,
    /// Jobs times nanoseconds in the station, and in service.
    present: u128,
    busy: u128,
    /// Jobs that came, jobs that left, and the time that the former stay.
    came: u64,
    left: u64,
    stays: u128,
}

/// What a station did since it was last reset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Share of its servers' time that was service.
    pub utilisation: f64,
    /// Jobs in it, on average over time.
    pub present: f64,
    /// Jobs that came, per second.
    pub came: f64,
    /// Jobs that left, per second.
    pub left: f64,
    /// Seconds that a job stayed, on average over jobs that came.
    pub stay: f64,
}

impl Station {
    /// `servers` alike.
    pub fn new(servers: u32) -> Self {
        let servers = servers.max(1);
        Self {
            free: (0..servers).map(|_| Reverse(0)).collect(),
            servers: u64::from(servers),
            leaving: BinaryHeap::new(),
            seen: 0,
            since: 0,
            present: 0,
            busy: 0,
            came: 0,
            left: 0,
            stays: 0,
        }
    }

    /// How long a job that comes now waits before its service begins.
    pub fn wait(&self, now: Nanos) -> Nanos {
        self.free.peek().map_or(0, |Reverse(free)| free.saturating_sub(now))
    }

    /// A job comes that needs so much service; when it leaves.
    pub fn serve(&mut self, now: Nanos, service: Nanos) -> Nanos {
        self.pass(now);
        let begins = now + self.wait(now);
        self.free.pop();
        let leaves = begins + service;
        self.free.push(Reverse(leaves));
        self.leaving.push(Reverse(leaves));
        self.came += 1;
        self.stays += u128::from(leaves - now);
        leaves
    }

    fn pass(&mut self, now: Nanos) {
        while let Some(Reverse(at)) = self.leaving.peek().copied().filter(|Reverse(at)| *at <= now) {
            self.count(at);
            self.leaving.pop();
            self.left += 1;
        }
        self.count(now);
    }

    fn count(&mut self, until: Nanos) {
        let (jobs, time) = (self.leaving.len() as u64, until.saturating_sub(self.seen));
        self.present += u128::from(jobs) * u128::from(time);
        self.busy += u128::from(jobs.min(self.servers)) * u128::from(time);
        self.seen = self.seen.max(until);
    }

    /// Counts anew from `now`; who is in the station stays.
    pub fn reset(&mut self, now: Nanos) {
        self.pass(now);
        (self.present, self.busy, self.came, self.left, self.stays) = (0, 0, 0, 0, 0);
        self.since = now;
    }

    /// What it did until `now`.
    pub fn work(&mut self, now: Nanos) -> Work {
        self.pass(now);
        let time = now.saturating_sub(self.since).max(1) as f64;
        Work {
            utilisation: self.busy as f64 / time / self.servers as f64,
            present: self.present as f64 / time,
            came: self.came as f64 / time * 1e9,
            left: self.left as f64 / time * 1e9,
            stay: self.stays as f64 / self.came.max(1) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// Random arrivals at `load` of a station of `servers`, each job a millisecond; what it did.
    fn run(servers: u32, load: f64, seconds: u64, seed: u64) -> Work {
        let mut station = Station::new(servers);
        let mut random = Random::new(seed, 1);
        let between = 1e6 / load / f64::from(servers);
        let mut now = 0;
        let mut warm = false;
        while now < seconds * SECOND {
            now += random.exponential(between);
            if !warm && now > SECOND {
                warm = true;
                station.reset(now);
            }
            station.serve(now, 1_000_000);
        }
        station.work(now)
    }

    /// Goal: one server with random arrivals and equal jobs waits as theory says: rho * s / 2(1 - rho).
    #[test]
    fn agrees_with_theory() {
        for load in [0.3, 0.5, 0.7, 0.9] {
            let work = run(1, load, 400, 7);
            let expected = 1e-3 + load * 1e-3 / (2.0 * (1.0 - load));
            let off = work.stay / expected - 1.0;
            assert!(off.abs() < 0.04, "load {load}: stays {} s, theory {expected} s", work.stay);
            assert!((work.utilisation - load).abs() < 0.01, "load {load}: busy {}", work.utilisation);
        }
    }

    /// Goal: Little's law: what is present on average is what comes times how long it stays. The three are counted
    /// apart, so a job that is lost or counted twice shows.
    #[test]
    fn nothing_is_lost() {
        for (servers, load) in [(1, 0.6), (4, 0.8), (16, 0.9)] {
            let work = run(servers, load, 100, 11);
            let expected = work.came * work.stay;
            assert!((work.present / expected - 1.0).abs() < 0.01, "{servers} servers: {work:?}");
            assert!((work.came / work.left - 1.0).abs() < 0.01, "{servers} servers: {work:?}");
        }
    }

    /// Goal: more servers serve at once, and the first that is free takes the next job.
    #[test]
    fn several_servers() {
        let mut station = Station::new(2);
        assert_eq!(station.serve(0, 10), 10);
        assert_eq!(station.serve(0, 4), 4);
        assert_eq!(station.wait(0), 4);
        assert_eq!(station.serve(0, 4), 8);
        assert_eq!(station.serve(20, 5), 25);
    }
}
