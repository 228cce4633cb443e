//! The management service under the load of a whole cluster: heartbeats, renewals, maps, lists of sessions, and a
//! storage server that dies. One thread and one link, as mgmtd has.
//!
//! What is simulated is what the code does: a daemon sends its next heartbeat an interval after the last answer,
//! fetches the list of sessions when one ended and the map when it moved; a mount renews its session four times per
//! time-out and then fetches a newer map; the map moves every ten seconds while somebody writes.

use super::calibration::Calibration;
use super::costs::{Costs, SMALL_BYTES};
use super::queue::{Nanos, Queue};
use super::random::Random;
use super::scenario::{Cluster, Scenario};
use super::station::{Station, Work};

const SECOND: Nanos = 1_000_000_000;
/// Until everybody goes its own pace.
const WARM_UP: Nanos = 20 * SECOND;
/// Then the load is measured for so long; within a second after that a storage server dies ...
const MEASURED: Nanos = 40 * SECOND;
/// ... and for so long it is watched who knows.
const WATCHED: Nanos = 40 * SECOND;
/// The first version of the map.
const FIRST: u64 = 1;

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Management {
    pub thread: Work,
    pub link: Work,
    /// Seconds from a heartbeat to its answer: average and the longest; `None`: none is answered in time.
    pub heartbeat_s: Option<(f64, f64)>,
    /// Heartbeats that were given up because no answer came in time, per second.
    pub given_up: f64,
    /// Living daemons that are taken for silent, because their heartbeats wait: share of all, on average.
    pub wrongly_silent: f64,
    /// Seconds from the death of a storage server until mgmtd noticed.
    pub noticed_s: Option<f64>,
    /// Seconds from there until all metadata servers knew: new files avoid it.
    pub metadata_know_s: Option<f64>,
    /// ... until all daemons knew.
    pub daemons_know_s: Option<f64>,
    /// ... until all mounts knew, those that ask for nothing too.
    pub clients_know_s: Option<f64>,
    /// Seconds from the eviction of a mount until all daemons hold the list that fences it.
    pub fenced_s: Option<f64>,
}

/// Who asks mgmtd.
#[derive(Debug, Clone, Copy)]
enum Who {
    Daemon(u32),
    Client(u32),
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A daemon's heartbeat is here.
    Beat(u32),
    /// A client's renewal is here.
    Renew(u32),
    /// mgmtd has the answer to a heartbeat or renewal: what it says is as of now.
    Pulse {
        who: Who,
        asked: Nanos,
    },
    /// A daemon's question for the list of sessions is here; what the heartbeat told it.
    AskFences {
        daemon: u32,
        ended: u64,
        map: u64,
    },
    /// mgmtd has the list ready.
    FencesReady {
        daemon: u32,
        ended: u64,
        map: u64,
    },
    /// Somebody's question for the map is here.
    AskMap(Who),
    /// mgmtd has the map ready.
    MapReady(Who),
    /// The map arrived.
    MapHere {
        who: Who,
        version: u64,
    },
    Tick,
    /// A mount comes and another goes.
    Session,
    /// A storage server dies, and a mount is evicted.
    Death,
}

#[derive(Debug, Clone, Copy)]
struct Daemon {
    map: u64,
    ended: u64,
    heard: Nanos,
    suspected: bool,
    dead: bool,
}

/// When a change was known to whom.
#[derive(Debug, Default)]
struct Spread {
    died: Nanos,
    victim: Option<u32>,
    version: u64,
    noticed: Option<Nanos>,
    /// Of metadata servers, daemons, clients: how many do not know yet, and when the last one knew.
    missing: [u64; 3],
    last: [Nanos; 3],
    /// The eviction: its number, daemons that do not hold it yet, when the last one did.
    ended: Option<u64>,
    unfenced: u64,
    fenced: Nanos,
}

struct World {
    constants: Times,
    costs: Costs,
    nanos_per_byte: f64,
    trip: Nanos,
    writing: bool,
    between_sessions: f64,
    queue: Queue<Event>,
    random: Random,
    thread: Station,
    link: Station,
    daemons: Vec<Daemon>,
    clients: Vec<u64>,
    metadata: u32,
    map: u64,
    ended: u64,
    told: Nanos,
    spread: Spread,
    heartbeats: u64,
    heartbeat_sum: u128,
    heartbeat_longest: Nanos,
    given_up: u64,
    /// Living daemons that were taken for silent, added up over the ticks, and the ticks.
    wrongly_silent: u64,
    ticks: u64,
}

/// Intervals of the code in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    heartbeat: Nanos,
    answer_limit: Nanos,
    retry_pause: Nanos,
    tick: Nanos,
    silent: Nanos,
    renewal: Nanos,
    capacity: Nanos,
}

impl Times {
    fn of(calibration: &Calibration) -> Self {
        let c = &calibration.constants;
        let ms = |ms: u64| ms * (SECOND / 1_000);
        Self {
            heartbeat: ms(c.heartbeat_ms),
            answer_limit: ms(c.answer_limit_ms),
            retry_pause: ms(c.retry_pause_ms),
            tick: ms(c.tick_ms),
            silent: ms(c.probably_offline_ms),
            renewal: ms(c.session_timeout_ms / c.renewals_per_timeout),
            capacity: ms(c.capacity_every_ms),
        }
    }
}

/// Microseconds as the queue counts.
pub(super) fn nanos(us: f64) -> Nanos {
    (us * 1_000.0).round().max(0.0) as Nanos
}

pub fn simulate(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> Management {
    let mut world = World::new(calibration, scenario, cluster);
    world.begin();
    world.until(WARM_UP);
    world.reset(WARM_UP);
    world.until(WARM_UP + MEASURED);
    let load = world.load(WARM_UP + MEASURED);
    let death = WARM_UP + MEASURED + world.random.below(SECOND);
    world.queue.at(death, Event::Death);
    world.until(death + WATCHED);
    world.told(load)
}

/// Only the load, without a loss at the end, of a thread that takes `factor` times as long as was calibrated.
pub fn load(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster, factor: f64) -> Work {
    let mut world = World::new(calibration, scenario, cluster);
    world.costs = world.costs.times(factor);
    world.begin();
    world.until(WARM_UP);
    world.reset(WARM_UP);
    world.until(WARM_UP + MEASURED);
    world.thread.work(WARM_UP + MEASURED)
}

impl World {
    fn new(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> Self {
        let daemon = Daemon { map: FIRST, ended: 0, heard: 0, suspected: false, dead: false };
        let daemons = vec![daemon; cluster.daemons() as usize];
        let clients = vec![FIRST; cluster.clients as usize];
        let ends_per_s = cluster.clients as f64 * scenario.remounts_per_client_day / 86_400.0;
        Self {
            constants: Times::of(calibration),
            costs: Costs::at(calibration, scenario, cluster),
            nanos_per_byte: 1.0 / scenario.mgmt_link_gb_s,
            trip: nanos(scenario.round_trip_us / 2.0),
            writing: scenario.writing,
            between_sessions: if ends_per_s > 0.0 { 1e9 / ends_per_s } else { f64::INFINITY },
            queue: Queue::default(),
            random: Random::new(scenario.seed, u64::from(cluster.servers)),
            thread: Station::new(1),
            link: Station::new(1),
            daemons,
            clients,
            metadata: cluster.metadata,
            map: FIRST,
            ended: 0,
            told: 0,
            spread: Spread::default(),
            heartbeats: 0,
            heartbeat_sum: 0,
            heartbeat_longest: 0,
            given_up: 0,
            wrongly_silent: 0,
            ticks: 0,
        }
    }

    /// Everybody starts at a time of its own within its interval.
    fn begin(&mut self) {
        for daemon in 0..self.daemons.len() as u32 {
            let at = self.random.below(self.constants.heartbeat);
            self.queue.at(at, Event::Beat(daemon));
        }
        for client in 0..self.clients.len() as u32 {
            let at = self.random.below(self.constants.renewal);
            self.queue.at(at, Event::Renew(client));
        }
        self.queue.at(self.constants.tick, Event::Tick);
        self.next_session(0);
    }

    fn next_session(&mut self, now: Nanos) {
        if self.between_sessions.is_finite() {
            let at = now + self.random.exponential(self.between_sessions);
            self.queue.at(at, Event::Session);
        }
    }

    fn reset(&mut self, now: Nanos) {
        self.thread.reset(now);
        self.link.reset(now);
        (self.heartbeats, self.heartbeat_sum, self.heartbeat_longest) = (0, 0, 0);
        (self.given_up, self.wrongly_silent, self.ticks) = (0, 0, 0);
    }

    fn until(&mut self, end: Nanos) {
        while let Some((now, event)) = self.queue.next(end) {
            self.happens(now, event);
        }
    }

    fn happens(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Beat(daemon) => self.beat(now, daemon),
            Event::Renew(client) => {
                let done = self.thread.serve(now, nanos(self.costs.renew));
                self.queue.at(done, Event::Pulse { who: Who::Client(client), asked: now });
            }
            Event::Pulse { who, asked } => self.pulse(now, who, asked),
            Event::AskFences { daemon, ended, map } => {
                let done = self.thread.serve(now, nanos(self.costs.fences));
                self.queue.at(done, Event::FencesReady { daemon, ended, map });
            }
            Event::FencesReady { daemon, ended, map } => {
                let here = self.send(now, self.costs.fences_bytes);
                let before = std::mem::replace(&mut self.daemons[daemon as usize].ended, ended);
                let dead = self.daemons[daemon as usize].dead;
                if !dead && self.spread.ended.is_some_and(|evicted| before < evicted && ended >= evicted) {
                    self.spread.unfenced = self.spread.unfenced.saturating_sub(1);
                    self.spread.fenced = here;
                }
                self.after_pulse(here, Who::Daemon(daemon), map);
            }
            Event::AskMap(who) => {
                let done = self.thread.serve(now, nanos(self.costs.map));
                self.queue.at(done, Event::MapReady(who));
            }
            Event::MapReady(who) => {
                let here = self.send(now, self.costs.map_bytes);
                self.queue.at(here, Event::MapHere { who, version: self.map });
            }
            Event::MapHere { who, version } => self.map_here(now, who, version),
            Event::Tick => self.tick(now),
            Event::Session => {
                self.thread.serve(now, nanos(self.costs.come_and_go));
                self.ended += 1;
                self.next_session(now);
            }
            Event::Death => self.death(now),
        }
    }

    /// An answer leaves over the link; when its asker has it.
    fn send(&mut self, now: Nanos, bytes: f64) -> Nanos {
        self.link.serve(now, (bytes * self.nanos_per_byte) as Nanos) + self.trip
    }

    fn beat(&mut self, now: Nanos, daemon: u32) {
        if self.daemons[daemon as usize].dead {
            return;
        }
        if self.thread.wait(now) > self.constants.answer_limit {
            // The daemon gives up before it is its turn; what is left of it is read and thrown away.
            self.given_up += 1;
            self.thread.serve(now, nanos(self.costs.renew));
            let again = now + self.constants.answer_limit + self.constants.retry_pause;
            self.queue.at(again, Event::Beat(daemon));
            return;
        }
        let done = self.thread.serve(now, nanos(self.costs.heartbeat));
        self.queue.at(done, Event::Pulse { who: Who::Daemon(daemon), asked: now });
    }

    fn pulse(&mut self, now: Nanos, who: Who, asked: Nanos) {
        let here = self.send(now, SMALL_BYTES);
        if let Who::Daemon(daemon) = who {
            self.heartbeats += 1;
            self.heartbeat_sum += u128::from(here - asked);
            self.heartbeat_longest = self.heartbeat_longest.max(here - asked);
            self.tell_capacities(now);
            let known = &mut self.daemons[daemon as usize];
            known.heard = now;
            if std::mem::take(&mut known.suspected) {
                self.map += 1;
            }
            let known = self.daemons[daemon as usize];
            if known.ended != self.ended {
                let (ended, map) = (self.ended, self.map);
                self.queue.at(here + self.trip, Event::AskFences { daemon, ended, map });
                return;
            }
        }
        self.after_pulse(here, who, self.map);
    }

    /// Heartbeat or renewal is answered and the list of sessions fetched: is there a newer map?
    fn after_pulse(&mut self, here: Nanos, who: Who, map: u64) {
        let (known, next, pause) = match who {
            Who::Daemon(n) => (self.daemons[n as usize].map, Event::Beat(n), self.constants.heartbeat),
            Who::Client(n) => (self.clients[n as usize], Event::Renew(n), self.constants.renewal),
        };
        if known < map {
            self.queue.at(here + self.trip, Event::AskMap(who));
        } else {
            self.queue.at(here + pause + self.trip, next);
        }
    }

    fn map_here(&mut self, now: Nanos, who: Who, version: u64) {
        match who {
            Who::Daemon(n) => {
                let before = std::mem::replace(&mut self.daemons[n as usize].map, version);
                self.queue.at(now + self.constants.heartbeat + self.trip, Event::Beat(n));
                // Metadata servers are the last ones of the list.
                if n as usize >= self.daemons.len() - self.metadata as usize {
                    self.learned(now, 0, before, version);
                }
                if self.spread.victim != Some(n) {
                    self.learned(now, 1, before, version);
                }
            }
            Who::Client(n) => {
                let before = std::mem::replace(&mut self.clients[n as usize], version);
                self.queue.at(now + self.constants.renewal + self.trip, Event::Renew(n));
                self.learned(now, 2, before, version);
            }
        }
    }

    /// Somebody holds a map that tells of the death. Everybody counts once.
    fn learned(&mut self, now: Nanos, group: usize, before: u64, version: u64) {
        let spread = &mut self.spread;
        if spread.noticed.is_some() && before < spread.version && version >= spread.version {
            spread.missing[group] = spread.missing[group].saturating_sub(1);
            spread.last[group] = now;
        }
    }

    fn tell_capacities(&mut self, now: Nanos) {
        if self.writing && now - self.told >= self.constants.capacity {
            self.told = now;
            self.map += 1;
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.thread.serve(now, nanos(self.costs.tick));
        self.tell_capacities(now);
        for n in 0..self.daemons.len() {
            let daemon = self.daemons[n];
            if daemon.suspected || now - daemon.heard < self.constants.silent {
                continue;
            }
            self.daemons[n].suspected = true;
            self.map += 1;
            if daemon.dead {
                self.noticed(now);
            }
        }
        self.ticks += 1;
        self.wrongly_silent += self.daemons.iter().filter(|d| d.suspected && !d.dead).count() as u64;
        self.queue.at(now + self.constants.tick, Event::Tick);
    }

    fn death(&mut self, now: Nanos) {
        let storage = self.daemons.len() as u64 - u64::from(self.metadata);
        let victim = self.random.below(storage) as u32;
        self.daemons[victim as usize].dead = true;
        self.spread.died = now;
        self.spread.victim = Some(victim);
        self.ended += 1;
        self.spread.ended = Some(self.ended);
        self.spread.unfenced = self.daemons.len() as u64 - 1;
    }

    fn noticed(&mut self, now: Nanos) {
        let spread = &mut self.spread;
        if spread.noticed.is_some() {
            return;
        }
        spread.noticed = Some(now);
        spread.version = self.map;
        spread.missing = [u64::from(self.metadata), self.daemons.len() as u64 - 1, self.clients.len() as u64];
    }

    /// What was measured since the reset; nothing is known of a loss yet.
    fn load(&mut self, end: Nanos) -> Management {
        let measured = seconds(MEASURED);
        Management {
            heartbeat_s: (self.heartbeats > 0).then(|| {
                (self.heartbeat_sum as f64 / self.heartbeats as f64 / 1e9, seconds(self.heartbeat_longest))
            }),
            given_up: self.given_up as f64 / measured,
            wrongly_silent: self.wrongly_silent as f64
                / (self.ticks.max(1) * self.daemons.len() as u64) as f64,
            noticed_s: None,
            metadata_know_s: None,
            daemons_know_s: None,
            clients_know_s: None,
            fenced_s: None,
            thread: self.thread.work(end),
            link: self.link.work(end),
        }
    }

    /// With what became known of the loss.
    fn told(&self, load: Management) -> Management {
        let spread = &self.spread;
        let since = |group: usize| {
            let noticed = spread.noticed.filter(|_| spread.missing[group] == 0)?;
            Some(seconds(spread.last[group] - noticed))
        };
        Management {
            noticed_s: spread.noticed.map(|noticed| seconds(noticed - spread.died)),
            metadata_know_s: since(0),
            daemons_know_s: since(1),
            clients_know_s: since(2),
            fenced_s: (spread.unfenced == 0).then(|| seconds(spread.fenced - spread.died)),
            ..load
        }
    }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scenario: &Scenario, servers: u32) -> Management {
        let calibration = Calibration::shipped().expect("the calibration");
        simulate(&calibration, scenario, &scenario.cluster(servers))
    }

    /// Goal: the same seed gives the same run, another seed another one.
    #[test]
    fn a_seed_is_a_run() {
        let scenario = Scenario::default();
        let (one, two) = (run(&scenario, 50), run(&scenario, 50));
        assert_eq!(one, two);
        assert_ne!(one, run(&Scenario { seed: 2, ..scenario }, 50));
    }

    /// Goal: Little's law at thread and link, below and above saturation: no request is lost or made up. What came in
    /// time is counted apart from what was present.
    #[test]
    fn nothing_is_lost() {
        for servers in [30, 300] {
            let out = run(&Scenario::default(), servers);
            for (name, work) in [("thread", out.thread), ("link", out.link)] {
                let expected = work.came * work.stay;
                let off = work.present / expected - 1.0;
                assert!(off.abs() < 0.02, "{servers} servers, {name}: {work:?}");
            }
        }
    }

    /// Goal: a dead server is noticed after the silence that the code waits for, plus at most a heartbeat and a tick;
    /// daemons know within about a heartbeat, mounts within about a renewal.
    #[test]
    fn death_is_noticed_and_told() {
        let calibration = Calibration::shipped().expect("the calibration");
        let c = &calibration.constants;
        for seed in 1..=5 {
            let out = run(&Scenario { seed, ..Scenario::default() }, 40);
            let silent = c.probably_offline_ms as f64 / 1e3;
            let noticed = out.noticed_s.expect("noticed");
            let most = silent + (c.tick_ms) as f64 / 1e3;
            // It is silent since its last heartbeat, up to an interval before its death.
            let least = silent - c.heartbeat_ms as f64 / 1e3;
            assert!(noticed >= least && noticed <= most + 0.01, "{noticed} s");
            let beat = c.heartbeat_ms as f64 / 1e3;
            assert!(out.daemons_know_s.expect("all know") <= beat * 1.2, "{out:?}");
            assert!(out.metadata_know_s <= out.daemons_know_s);
            let fenced = out.fenced_s.expect("fenced everywhere");
            assert!(fenced <= beat * 1.1 && fenced > beat * 0.5, "{fenced} s");
            let renewal = c.session_timeout_ms as f64 / c.renewals_per_timeout as f64 / 1e3;
            let clients = out.clients_know_s.expect("all know");
            assert!(clients <= renewal * 1.1 && clients > renewal * 0.8, "{clients} s");
        }
    }

    /// Goal: more servers are more load, and a service that cannot keep up says so: heartbeats wait, the living
    /// are taken for dead.
    #[test]
    fn overload_shows() {
        let scenario = Scenario::default();
        let loads: Vec<f64> =
            [10, 100, 300, 500].iter().map(|n| run(&scenario, *n).thread.utilisation).collect();
        assert!(loads.windows(2).all(|pair| pair[0] < pair[1]), "{loads:?}");
        for servers in [1_200, 5_000] {
            let out = run(&scenario, servers);
            assert!(out.thread.utilisation > 0.99 && out.wrongly_silent > 0.3, "{out:?}");
            assert!(out.heartbeat_s.is_none_or(|(average, _)| average > 1.0), "{out:?}");
        }
    }

    /// Goal: a cluster in which nobody writes, mounts or unmounts costs heartbeats, renewals and ticks, nothing else.
    #[test]
    fn quiet_cluster() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario { writing: false, remounts_per_client_day: 0.0, ..Scenario::default() };
        let cluster = scenario.cluster(200);
        let costs = Costs::at(&calibration, &scenario, &cluster);
        let out = simulate(&calibration, &scenario, &cluster);
        let expected = (cluster.daemons() as f64 * costs.heartbeat
            + cluster.clients as f64 / 15.0 * costs.renew
            + 2.0 * costs.tick)
            / 1e6;
        let busy = out.thread.utilisation;
        assert!((busy / expected - 1.0).abs() < 0.02, "{busy} {expected}");
    }
}
