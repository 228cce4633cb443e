//! Metadata servers under as many operations as the clients can ask for: throughput, and which server is the
//! narrow place. The thread of a group is a station; a process asks one request after the other.

use super::calibration::Calibration;
use super::costs::Operation;
use super::management::nanos;
use super::queue::{Nanos, Queue};
use super::random::Random;
use super::scenario::{Cluster, Scenario, Sync};
use super::station::Station;

const SECOND: Nanos = 1_000_000_000;
/// Until all processes are at different places of their operations.
const WARM_UP: Nanos = SECOND / 4;
/// Measured after that, for as long as the operations need to be counted well.
const MEASURED: Nanos = SECOND / 4;
/// Processes that are simulated at most: more would wait in the same queues, and a queue must be short against the
/// time before the counting begins.
const PROCESSES_MAX: u64 = 4_096;
/// Processes for each metadata server that keep it busy whatever the round trip.
const PROCESSES_PER_SERVER: u64 = 64;

/// Where the processes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Each in a directory of its own, spread over the shards.
    Own,
    /// All in one directory, which one shard holds (directories over several shards are not in this release).
    Shared,
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    pub per_second: f64,
    /// Share of time that the busiest metadata server's thread worked.
    pub busiest: f64,
    /// The same on average over all of them.
    pub average: f64,
}

/// Requests of one operation in their order: which server, how long.
struct Path {
    steps: Vec<(usize, Nanos)>,
}

/// The log of a metadata server, which a thread of its own makes durable: who comes while it syncs shares the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Log {
    /// When the sync that runs ends, and the one after it.
    ends: Nanos,
    next: Option<Nanos>,
    /// Nanoseconds of syncs that were begun.
    busy: Nanos,
    /// When the first change came.
    since: Option<Nanos>,
}

impl Log {
    /// A change is appended at `now`; when it is durable.
    fn commit(&mut self, now: Nanos, sync: Nanos) -> Nanos {
        self.since.get_or_insert(now);
        if let Some(next) = self.next.filter(|_| now >= self.ends) {
            (self.ends, self.next) = (next, None);
        }
        if now >= self.ends {
            self.ends = now + sync;
            self.busy += sync;
            return self.ends;
        }
        if self.next.is_none() {
            self.busy += sync;
        }
        *self.next.get_or_insert(self.ends + sync)
    }

    /// Share of time of its syncs since the first change; the last sync may end after the counting did.
    fn share(&self, counted: Nanos) -> Option<f64> {
        let end = counted.max(self.next.unwrap_or(self.ends));
        self.since.map(|since| self.busy as f64 / (end - since).max(1) as f64)
    }

    /// A change is appended at `now` that waits for nothing: it is durable after an interval at the latest.
    fn append(&mut self, now: Nanos, sync: Nanos, interval: Nanos) {
        self.since.get_or_insert(now);
        if now >= self.ends {
            self.ends = now + interval + sync;
            self.busy += sync;
        }
    }
}

/// The throughput of `operation` when all processes do nothing else.
pub fn simulate(
    calibration: &Calibration,
    scenario: &Scenario,
    cluster: &Cluster,
    operation: &Operation,
    place: Place,
) -> Throughput {
    let servers = cluster.metadata as usize;
    let mut random = Random::new(scenario.seed, 1 << 32 | u64::from(cluster.servers));
    let wanted = cluster.clients * u64::from(scenario.processes_per_client);
    let processes = wanted.min(PROCESSES_MAX).min(PROCESSES_PER_SERVER * servers as u64).max(1);
    let jobs = (cluster.clients / u64::from(scenario.clients_per_job)).max(1);
    let middles: Vec<usize> = (0..jobs).map(|_| random.below(servers as u64) as usize).collect();
    let shared = random.below(servers as u64) as usize;
    let paths: Vec<Path> = (0..processes)
        .map(|process| {
            let middle = middles[(process % jobs) as usize];
            let leaf = random.below(servers as u64) as usize;
            let at = if place == Place::Shared { [0, shared, shared] } else { [0, middle, leaf] };
            path_of(operation, at)
        })
        .collect();
    let requests: u32 = operation.requests.iter().sum();
    let between = nanos(operation.client / f64::from(requests.max(1)) + scenario.round_trip_us);
    let mut stations: Vec<Station> = (0..servers).map(|_| Station::new(1)).collect();
    let mut logs = vec![Log::default(); servers];
    let waits = operation.changes && scenario.metadata_sync == Sync::Always;
    let sync = nanos(scenario.sync_us(calibration));
    let mut queue = Queue::default();
    for process in 0..processes {
        queue.at(random.below(between.max(1) * u64::from(requests)), (process as usize, 0));
    }
    let (mut done, mut reset) = (0u64, false);
    while let Some((now, (process, step))) = queue.next(WARM_UP + MEASURED) {
        if !reset && now >= WARM_UP {
            reset = true;
            stations.iter_mut().for_each(|station| station.reset(now));
        }
        let (server, service) = paths[process].steps[step];
        let mut answered = stations[server].serve(now, service);
        let last = step + 1 == paths[process].steps.len();
        if last && waits {
            answered = logs[server].commit(answered, sync);
        }
        done += u64::from(last && reset && answered <= WARM_UP + MEASURED);
        queue.at(answered + between, (process, if last { 0 } else { step + 1 }));
    }
    let loads: Vec<f64> =
        stations.iter_mut().map(|station| station.work(WARM_UP + MEASURED).utilisation).collect();
    Throughput {
        per_second: done as f64 / (MEASURED as f64 / 1e9),
        busiest: loads.iter().copied().fold(0.0, f64::max),
        average: loads.iter().sum::<f64>() / loads.len().max(1) as f64,
    }
}

fn path_of(operation: &Operation, at: [usize; 3]) -> Path {
    let costs = [operation.root, operation.middle, operation.leaf];
    let steps = (0..3).flat_map(|part| {
        let count = operation.requests[part];
        let each = nanos(costs[part] / f64::from(count.max(1)));
        (0..count).map(move |_| (at[part], each))
    });
    Path { steps: steps.collect() }
}

/// What the metadata servers do for what clients demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Share of time that the busiest server's thread worked.
    pub busiest: f64,
    /// Share of time that the busiest log was being synced; `None`: nothing changes, or the threads are
    /// overloaded and fewer and fewer changes come through.
    pub log: Option<f64>,
}

/// An operation: its path, the next step of it, and whether it changes something.
type UnderWay = (Path, usize, bool);

/// Operations that are counted, and the time that they are counted for at least.
const OPERATIONS: f64 = 20_000.0;
const LOAD_LEAST: Nanos = SECOND / 50;
/// A thread that is busier than this falls ever more behind.
const OVERLOADED: f64 = 0.995;

/// Creates and stats come at random times, as often as the clients demand them on average, whoever waits.
pub fn load(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> Load {
    let clients = cluster.clients as f64;
    let (creates, stats) = (clients * scenario.creates_per_client, clients * scenario.stats_per_client);
    let rate = creates + stats;
    if rate <= 0.0 {
        return Load { busiest: 0.0, log: None };
    }
    let servers = u64::from(cluster.metadata);
    let mut random = Random::new(scenario.seed, 5 << 32 | u64::from(cluster.servers));
    let jobs = (cluster.clients / u64::from(scenario.clients_per_job)).max(1);
    let middles: Vec<usize> = (0..jobs).map(|_| random.below(servers) as usize).collect();
    let operations = [Operation::create(calibration), Operation::stat(calibration)];
    let trip = nanos(scenario.round_trip_us);
    let sync = nanos(scenario.sync_us(calibration));
    let interval = (scenario.sync_interval_ms * 1e6) as Nanos;
    let mut stations: Vec<Station> = (0..servers).map(|_| Station::new(1)).collect();
    let mut logs = vec![Log::default(); servers as usize];
    let end = ((OPERATIONS / rate * 1e9) as Nanos).max(LOAD_LEAST);
    // `None` is the next operation that comes.
    let mut queue: Queue<Option<UnderWay>> = Queue::default();
    queue.at(random.exponential(1e9 / rate), None);
    while let Some((now, event)) = queue.next(end) {
        let (path, step, changes) = match event {
            Some(under_way) => under_way,
            None => {
                queue.at(now + random.exponential(1e9 / rate), None);
                let create = (random.below(1 << 32) as f64) < creates / rate * (1u64 << 32) as f64;
                let operation = &operations[usize::from(!create)];
                let middle = middles[random.below(jobs) as usize];
                let at = [0, middle, random.below(servers) as usize];
                (path_of(operation, at), 0, operation.changes)
            }
        };
        let (server, service) = path.steps[step];
        let answered = stations[server].serve(now, service);
        if step + 1 < path.steps.len() {
            queue.at(answered + trip, Some((path, step + 1, changes)));
        } else if changes && scenario.metadata_sync == Sync::Always {
            logs[server].commit(answered, sync);
        } else if changes {
            logs[server].append(answered, sync, interval);
        }
    }
    let busiest = stations.iter_mut().map(|station| station.work(end).utilisation).fold(0.0, f64::max);
    let log = logs.iter().filter_map(|log| log.share(end)).reduce(f64::max);
    Load { busiest, log: log.filter(|_| busiest < OVERLOADED) }
}

/// Share of time that the busiest metadata server's thread needs for what the clients demand on average: the
/// server of the root's shard, when there are several.
pub fn demanded(calibration: &Calibration, scenario: &Scenario, cluster: &Cluster) -> f64 {
    let clients = cluster.clients as f64;
    let servers = f64::from(cluster.metadata);
    let operations = [
        (scenario.creates_per_client, Operation::create(calibration)),
        (scenario.stats_per_client, Operation::stat(calibration)),
    ];
    let at_root = |o: &Operation| o.root + (o.middle + o.leaf) / servers;
    operations.iter().map(|(each, operation)| clients * each * at_root(operation)).sum::<f64>() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration() -> Calibration {
        Calibration::shipped().expect("the calibration")
    }

    fn create() -> Operation {
        Operation::create(&calibration())
    }

    /// Goal: threads of metadata servers under a given demand are as busy as arithmetic says, of one server and of the
    /// root's among several; above saturation they are busy all the time.
    #[test]
    fn load_agrees_with_demand() {
        for (metadata, servers) in [(1, 20), (1, 150), (4, 300), (1, 2_000)] {
            let scenario = Scenario { metadata_servers: metadata, ..Scenario::default() };
            let cluster = scenario.cluster(servers);
            let expected = demanded(&calibration(), &scenario, &cluster).min(1.0);
            let out = load(&calibration(), &scenario, &cluster);
            assert!((out.busiest / expected - 1.0).abs() < 0.05, "{servers}: {out:?}, expected {expected}");
        }
        let idle = Scenario { creates_per_client: 0.0, stats_per_client: 0.0, ..Scenario::default() };
        let out = load(&calibration(), &idle, &idle.cluster(10));
        assert_eq!(out, Load { busiest: 0.0, log: None });
    }

    /// Goal: the log is synced once per interval while something changes, and nobody waits; when every change waits for
    /// the disk, few processes are as slow as it, and many share its syncs.
    #[test]
    fn the_log_is_synced() {
        let shipped = calibration();
        let scenario = Scenario { log_sync_us: Some(3_000.0), ..Scenario::default() };
        let out = load(&shipped, &scenario, &scenario.cluster(100));
        let expected = 3.0 / 53.0;
        let share = out.log.expect("synced");
        assert!((share / expected - 1.0).abs() < 0.1, "{out:?}, expected {expected}");
        let stats_only = Scenario { creates_per_client: 0.0, ..scenario.clone() };
        assert_eq!(load(&shipped, &stats_only, &scenario.cluster(100)).log, None);
        let rate = |sync: Sync, clients: f64| {
            let scenario = Scenario {
                metadata_sync: sync,
                clients_per_server: clients,
                processes_per_client: 1,
                ..scenario.clone()
            };
            simulate(&shipped, &scenario, &scenario.cluster(1), &create(), Place::Own).per_second
        };
        let (one, many) = (rate(Sync::Always, 1.0), rate(Sync::Always, 64.0));
        let whole = create();
        let requests: u32 = whole.requests.iter().sum();
        let took = whole.whole() + whole.client + f64::from(requests) * scenario.round_trip_us + 3_000.0;
        assert!((one / (1e6 / took) - 1.0).abs() < 0.03, "{one}, {took} us");
        assert!(many > one * 20.0, "syncs are shared: {one} {many}");
        assert!(many < rate(Sync::Interval, 64.0) * 1.01);
    }

    fn rate(metadata: u32, servers: u32, place: Place) -> Throughput {
        let scenario = Scenario { metadata_servers: metadata, ..Scenario::default() };
        simulate(&calibration(), &scenario, &scenario.cluster(servers), &create(), place)
    }

    /// Goal: with enough processes one server does what its thread can: a second over the cost of an operation.
    #[test]
    fn one_server_is_its_thread() {
        let expected = 1e6 / create().whole();
        for place in [Place::Own, Place::Shared] {
            let out = rate(1, 100, place);
            assert!((out.per_second / expected - 1.0).abs() < 0.02, "{out:?}, expected {expected}");
            assert!(out.busiest > 0.99, "{out:?}");
        }
    }

    /// Goal: with few processes the way there and back counts: a process does one operation after the other.
    #[test]
    fn few_processes_wait_for_the_way() {
        let scenario = Scenario { clients_per_server: 1.0, processes_per_client: 1, ..Scenario::default() };
        let operation = create();
        let out = simulate(&calibration(), &scenario, &scenario.cluster(1), &operation, Place::Own);
        let requests: u32 = operation.requests.iter().sum();
        let took = operation.whole() + operation.client + f64::from(requests) * scenario.round_trip_us;
        assert!((out.per_second / (1e6 / took) - 1.0).abs() < 0.03, "{out:?}, {took} us");
    }

    /// Goal: more servers never do less; in one shared directory they hardly do more, because one shard holds it.
    #[test]
    fn more_servers() {
        let own: Vec<f64> = [1, 2, 4, 8, 32].iter().map(|n| rate(*n, 1_000, Place::Own).per_second).collect();
        assert!(own.windows(2).all(|pair| pair[1] > pair[0] * 0.98), "{own:?}");
        assert!(own[2] > own[0] * 1.8, "{own:?}");
        let (one, many) = (rate(1, 1_000, Place::Shared), rate(32, 1_000, Place::Shared));
        assert!(many.per_second < one.per_second * 1.6, "{one:?} {many:?}");
    }

    /// Goal: a group serves as much as a metadata server of one group: what counts is how many threads share the shards.
    #[test]
    fn groups_are_threads() {
        let of = |metadata_servers: u32, metadata_groups: u32| {
            let scenario = Scenario { metadata_servers, metadata_groups, ..Scenario::default() };
            simulate(&calibration(), &scenario, &scenario.cluster(1_000), &create(), Place::Own).per_second
        };
        assert_eq!(of(1, 4), of(4, 1));
        assert_eq!(of(3, 2), of(2, 3));
        assert!(of(1, 4) > of(1, 1) * 1.8);
    }

    /// Goal: without leases every path begins at the root, so its shard bounds what any number of servers can do.
    #[test]
    fn the_root_is_the_last_bound() {
        let bound = 1e6 / create().root;
        let out = rate(128, 1_000, Place::Own);
        assert!(out.per_second < bound * 1.01, "{out:?}, bound {bound}");
        assert!(out.per_second > bound * 0.8 && out.busiest > 0.95, "{out:?}, bound {bound}");
    }
}
