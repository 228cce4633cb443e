//! What hosts take for time: each has a rate of its own, sleeps, and stands still. (Clocks that show the time of day are
//! the hub's.) True time is that of the run; nobody but the oracle knows it.

use crate::hub::HOSTS;
use crate::kernel::Release;
use skep_model::Rng;

/// A clock is wrong by no more than this, in millionths.
const RATE_MAX: u64 = 9_999;
const MILLION: u64 = 1_000_000;

/// Monotonic time of a host, which a sleep does not move.
#[derive(Debug, Clone, Copy)]
struct Host {
    /// Its milliseconds in a million true ones, thousandfold.
    rate: u64,
    /// At that true time ...
    since: u64,
    /// ... it showed this.
    showed: u64,
    /// Milliseconds that it slept.
    slept: u64,
    /// It stands still until then; asleep: its monotonic time as well.
    still_until: u64,
    asleep: bool,
    release: Release,
}

/// How a host stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Still {
    /// Monotonic time stands still, and boot time goes on.
    Asleep,
    /// A virtual machine that is not run: both go on.
    Stopped,
}

#[derive(Debug)]
pub struct Hosts([Host; HOSTS]);

impl Hosts {
    /// Every one with a rate and a kernel of its own.
    pub fn draw(rng: &mut Rng) -> Self {
        let exact = rng.percent(20);
        Self([(); HOSTS].map(|()| Host {
            rate: if exact { MILLION } else { MILLION - RATE_MAX + rng.below(2 * RATE_MAX + 1) },
            since: 0,
            showed: 0,
            slept: 0,
            still_until: 0,
            asleep: false,
            release: rng.pick(&Release::ALL),
        }))
    }

    /// Which kernel it has.
    pub fn release(&self, host: usize) -> Release {
        self.0[host].release
    }

    /// Its monotonic time.
    pub fn mono(&self, host: usize, now: u64) -> u64 {
        let Host { rate, since, showed, .. } = self.0[host];
        let passed = if self.0[host].asleep { 0 } else { now - since };
        showed + passed * rate / MILLION
    }

    /// Its time since it was started, sleep and all.
    pub fn boot(&self, host: usize, now: u64) -> u64 {
        let Host { rate, since, slept, asleep, .. } = self.0[host];
        let sleeps = if asleep { (now - since) * rate / MILLION } else { 0 };
        self.mono(host, now) + slept + sleeps
    }

    /// The true time at which its monotonic one is that, if it does not sleep until then.
    pub fn true_time(&self, host: usize, mono: u64, now: u64) -> u64 {
        let left = mono.saturating_sub(self.mono(host, now));
        let from = if self.0[host].asleep { now.max(self.0[host].still_until) } else { now };
        from + (left * MILLION).div_ceil(self.0[host].rate)
    }

    /// For how long it has slept until now.
    pub fn slept(&self, host: usize) -> u64 {
        self.0[host].slept
    }

    /// Does it stand still?
    pub fn is_still(&self, host: usize, now: u64) -> bool {
        now < self.0[host].still_until
    }

    /// It stands still until then. `false`: it does already.
    pub fn stand_still(&mut self, host: usize, how: Still, now: u64, until: u64) -> bool {
        if self.is_still(host, now) || self.0[host].asleep {
            return false;
        }
        let showed = self.mono(host, now);
        let (at, asleep) = (&mut self.0[host], how == Still::Asleep);
        (at.since, at.showed, at.still_until, at.asleep) = (now, showed, until, asleep);
        true
    }

    /// It goes on, if it stood still: it is time, or all is to be calm.
    pub fn go_on(&mut self, host: usize, now: u64) {
        let at = &mut self.0[host];
        if at.asleep {
            at.slept += (now - at.since) * at.rate / MILLION;
            (at.since, at.asleep) = (now, false);
        }
        at.still_until = at.still_until.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: clocks are within 1 % of true time, no two alike; a deadline is not met early, and at once when it is time.
    #[test]
    fn rates_are_within_one_percent() {
        let mut rng = Rng::new(1);
        for _ in 0..50 {
            let hosts = Hosts::draw(&mut rng);
            for host in 0..HOSTS {
                let shown = hosts.mono(host, 1_000_000);
                assert!((990_000..=1_010_000).contains(&shown), "{shown}");
                for mono in [1, 77, 5_000, 1_000_003] {
                    let at = hosts.true_time(host, mono, 0);
                    assert!(hosts.mono(host, at) >= mono && hosts.mono(host, at - 1) < mono, "{mono}");
                }
            }
        }
    }

    /// Goal: a sleep moves boot time only, by as long as it took; a machine that is not run loses none of either.
    #[test]
    fn a_sleep_parts_the_clocks() {
        let mut hosts = Hosts::draw(&mut Rng::new(2));
        hosts.0[0].rate = MILLION;
        assert!(hosts.stand_still(0, Still::Asleep, 100, 700));
        assert!(!hosts.stand_still(0, Still::Stopped, 200, 900), "it does already");
        assert!(hosts.is_still(0, 699) && !hosts.is_still(0, 700));
        assert_eq!((hosts.mono(0, 650), hosts.true_time(0, 150, 300)), (100, 750));
        assert_eq!(hosts.boot(0, 650), 650);
        hosts.go_on(0, 700);
        assert_eq!((hosts.mono(0, 750), hosts.boot(0, 750)), (150, 750));
        assert!(hosts.stand_still(0, Still::Stopped, 800, 2_000));
        assert_eq!(hosts.true_time(0, 300, 800), 900, "its clock is read when it goes on, and has gone on");
        hosts.go_on(0, 900);
        assert_eq!((hosts.mono(0, 1_000), hosts.boot(0, 1_000), hosts.is_still(0, 950)), (400, 1_000, false));
    }
}
