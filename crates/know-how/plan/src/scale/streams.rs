//! Storage servers under streaming clients: cores, targets and link of a server, requests of one chunk to targets
//! taken at random. Servers are alike, so some of them stand for all.

use super::calibration::Calibration;
use super::management::nanos;
use super::queue::{Nanos, Queue};
use super::random::Random;
use super::scenario::{Cluster, Scenario};
use super::station::Station;

/// Servers that are simulated at most.
const SERVERS_MAX: u32 = 32;
/// Requests that one client has on their way at once.
const REQUESTS_PER_CLIENT: u64 = 8;
/// Requests that are simulated at most at once.
const REQUESTS_MAX: u64 = 8_192;
/// Requests per simulated server that are counted, and before the counting begins.
const COUNTED: u64 = 600;
const BEFORE: u64 = 200;
const MIB: f64 = (1 << 20) as f64;

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the targets.
    Write,
    /// From them.
    Read,
}

/// What came out, in GB/s of the whole cluster, and how busy a server's parts are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    /// All servers together, or what the clients can take, whichever is less.
    pub gb_s: f64,
    /// Cores of a server.
    pub cores: f64,
    pub targets: f64,
    pub link: f64,
}

/// What can be streamed when all clients do nothing else.
pub fn simulate(
    calibration: &Calibration,
    scenario: &Scenario,
    cluster: &Cluster,
    direction: Direction,
) -> Stream {
    let servers = cluster.servers.min(SERVERS_MAX) as usize;
    let per_server = scenario.targets_per_server as usize;
    let mut random = Random::new(scenario.seed, 2 << 32 | u64::from(cluster.servers));
    let (cpu_us, target_gb_s) = match direction {
        Direction::Write => (calibration.storage.write_per_mib, scenario.target_write_gb_s),
        Direction::Read => (calibration.storage.read_per_mib, scenario.target_read_gb_s),
    };
    let service = [nanos(cpu_us), (MIB / target_gb_s) as Nanos, (MIB / scenario.server_link_gb_s) as Nanos];
    let mut cores: Vec<Station> = (0..servers).map(|_| Station::new(scenario.server_cores)).collect();
    let mut links: Vec<Station> = (0..servers).map(|_| Station::new(1)).collect();
    let mut targets: Vec<Station> = (0..servers * per_server).map(|_| Station::new(1)).collect();
    let share = f64::from(servers as u32) / f64::from(cluster.servers);
    let wanted = (cluster.clients * REQUESTS_PER_CLIENT) as f64 * share;
    let requests = (wanted.ceil() as u64).clamp(1, REQUESTS_MAX);
    let trip = nanos(scenario.round_trip_us);
    let mut queue = Queue::default();
    for _ in 0..requests {
        queue.at(random.below(1_000_000), (random.below(targets.len() as u64) as usize, 0));
    }
    let (mut done, mut began, mut ended) = (0u64, 0, 0);
    while let Some((now, (target, step))) = queue.next(Nanos::MAX) {
        let server = target / per_server;
        let next = match step {
            // A write arrives over the link, a read leaves over it: the order does not change what is carried.
            0 => links[server].serve(now, service[2]),
            1 => cores[server].serve(now, service[0]),
            2 => targets[target].serve(now, service[1]),
            _ => now,
        };
        if step < 3 {
            queue.at(next, (target, step + 1));
            continue;
        }
        done += 1;
        if done == BEFORE * servers as u64 {
            began = now;
            let all = cores.iter_mut().chain(&mut links).chain(&mut targets);
            all.for_each(|station| station.reset(now));
        }
        if done == (BEFORE + COUNTED) * servers as u64 {
            ended = now;
            break;
        }
        queue.at(next + trip, (random.below(targets.len() as u64) as usize, 0));
    }
    let time = (ended - began).max(1) as f64;
    let average = |stations: &mut Vec<Station>| {
        let count = stations.len().max(1) as f64;
        stations.iter_mut().map(|station| station.work(ended).utilisation).sum::<f64>() / count
    };
    let simulated = (COUNTED * servers as u64) as f64 * MIB / time;
    let clients = cluster.clients as f64 * scenario.client_link_gb_s;
    Stream {
        gb_s: (simulated / share).min(clients),
        cores: average(&mut cores),
        targets: average(&mut targets),
        link: average(&mut links),
    }
}

/// GB/s of one server by its narrowest part, without waiting.
pub fn server_gb_s(calibration: &Calibration, scenario: &Scenario, direction: Direction) -> f64 {
    let (cpu_us, target) = match direction {
        Direction::Write => (calibration.storage.write_per_mib, scenario.target_write_gb_s),
        Direction::Read => (calibration.storage.read_per_mib, scenario.target_read_gb_s),
    };
    let cores = f64::from(scenario.server_cores) * MIB / cpu_us / 1_000.0;
    cores.min(target * f64::from(scenario.targets_per_server)).min(scenario.server_link_gb_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scenario: &Scenario, servers: u32, direction: Direction) -> Stream {
        let calibration = Calibration::shipped().expect("the calibration");
        simulate(&calibration, scenario, &scenario.cluster(servers), direction)
    }

    /// Goal: enough clients get what the narrowest part of the servers gives, whichever part that is, and never more.
    #[test]
    fn narrowest_part() {
        let calibration = Calibration::shipped().expect("the calibration");
        let usual = Scenario { clients_per_server: 40.0, ..Scenario::default() };
        let narrow_link = Scenario { server_link_gb_s: 2.0, ..usual.clone() };
        let few_cores = Scenario { server_cores: 1, ..usual.clone() };
        for scenario in [usual, narrow_link, few_cores] {
            for direction in [Direction::Write, Direction::Read] {
                let bound = 20.0 * server_gb_s(&calibration, &scenario, direction);
                let out = run(&scenario, 20, direction);
                assert!(out.gb_s <= bound * 1.03, "{out:?}, bound {bound}");
                assert!(out.gb_s >= bound * 0.75, "{out:?}, bound {bound}");
            }
        }
    }

    /// Goal: few clients with narrow links bound the whole.
    #[test]
    fn clients_bound() {
        let scenario = Scenario { clients_per_server: 0.5, client_link_gb_s: 1.0, ..Scenario::default() };
        assert!(run(&scenario, 20, Direction::Read).gb_s <= 10.0);
    }

    /// Goal: it scales with the servers.
    #[test]
    fn more_servers_more_throughput() {
        let scenario = Scenario::default();
        let (ten, thousand) = (run(&scenario, 10, Direction::Write), run(&scenario, 1_000, Direction::Write));
        assert!((thousand.gb_s / ten.gb_s / 100.0 - 1.0).abs() < 0.15, "{ten:?} {thousand:?}");
    }
}
