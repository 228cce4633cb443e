//! All storage daemons at once, each with a neighbour on another host: what the network carries in all.
//!
//! All are connected to first and then told to begin. How long a job took, from the moment at which it was asked for,
//! tells when its bytes were on their way: they are sent first, then received, and with that it ends. What all carry
//! together is all bytes over the time in which any were on their way.

use super::super::{Run, interrupt};
use super::MEGABYTE;
use skep_base::access::Cluster;
use skep_base::{Failure, Outcome};
use skep_bench::engine::now_ns;
use skep_instruments::client::{Asked, found};
use skep_instruments::question::{
    Findings, Flow, JobShown, JobState, Measurement, NetworkFound, NetworkTest, Order,
};
use skep_net::choose;
use skep_survey::ids::{NETWORK, READ, WRITE};
use skep_survey::model::{Curve, Point};
use skep_survey::together;
use skep_types::ServiceKind;
use skep_wire::mgmt::NodeEntry;
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Shortest time of each direction: some milliseconds between the first to begin and the last count for little in it.
const SECONDS_LEAST: f64 = 0.5;
/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(50);
/// A slow network takes this much longer than asked, for what is on its way.
const GRACE: Duration = Duration::from_secs(150);

/// Bytes, and from when until when they were on their way, in nanoseconds of our clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    bytes: u64,
    window: (u64, u64),
}

impl Moved {
    /// What was sent and what was received by a job that ended at this moment.
    fn of_job(sent: Flow, received: Flow, ended_ns: u64) -> [Self; 2] {
        let before = |end: u64, flow: Flow| end.saturating_sub((flow.seconds * 1e9) as u64);
        let turned = before(ended_ns, received);
        [
            Self { bytes: sent.bytes, window: (before(turned, sent), turned) },
            Self { bytes: received.bytes, window: (turned, ended_ns) },
        ]
    }
}

/// MB/s of one direction.
fn rate(all: &[[Moved; 2]], way: usize) -> f64 {
    let busy = together::busy_ns(all.iter().map(|moved| moved[way].window));
    together::rate(all.iter().map(|moved| moved[way].bytes).sum(), busy) / MEGABYTE
}

/// Who sends to whom, for daemons that are in order of their hosts: every one sends once and receives once, between hosts
/// if there are several. A daemon whose host has more of them than all others together may find none elsewhere, and is
/// left out: what it gets on its host never was on the network.
fn pairs<M: PartialEq>(hosts: &[M]) -> Vec<(usize, usize)> {
    let crowd = hosts.chunk_by(PartialEq::eq).map(<[M]>::len).max().unwrap_or(0);
    let alone = crowd == hosts.len();
    // By so many places on, nobody meets its own host before all others are used up.
    let step = if alone { 1 } else { crowd };
    let all = (0..hosts.len()).map(|to| ((to + step) % hosts.len(), to));
    all.filter(|(from, to)| alone || hosts[*from] != hosts[*to]).collect()
}

/// The storage daemons, each after who sends to it.
fn ring<'a>(run: &mut Run<'a>, others: &[&'a NodeEntry]) -> Vec<(&'a NodeEntry, &'a NodeEntry)> {
    let all: &'a [NodeEntry] = &run.members.nodes;
    let mut storage: Vec<&NodeEntry> = all.iter().filter(|n| n.service == ServiceKind::Storaged).collect();
    if let [lone] = storage.as_slice() {
        // It gets its bytes from a daemon of another kind.
        let from = others.iter().copied().find(|n| n.node != lone.node).unwrap_or(lone);
        return vec![(from, lone)];
    }
    // Daemons of one machine are of different hosts here when they are in network namespaces of their own.
    let host = |node: &NodeEntry| (node.machine, run.networks.get(&node.alias).cloned());
    storage.sort_by_key(|node| host(node));
    let hosts: Vec<_> = storage.iter().map(|node| host(node)).collect();
    let pairs = pairs(&hosts);
    let left: Vec<&str> = (0..storage.len())
        .filter(|at| !pairs.iter().any(|(_, to)| to == at))
        .map(|at| storage[at].alias.as_str())
        .collect();
    if !left.is_empty() {
        run.remark(format!(
            "network of all storage daemons at once: without {}, for which no daemon is left on another host",
            left.join(", ")
        ));
    }
    pairs.into_iter().map(|(from, to)| (storage[from], storage[to])).collect()
}

/// One member of the ring: connected to, then begun together with the others.
fn member(
    cluster: &Cluster,
    from: &NodeEntry,
    to: &NodeEntry,
    test: &NetworkTest,
    all: &Barrier,
) -> Outcome<[Moved; 2]> {
    let mut asked = Asked::new(cluster, from);
    let connected = asked.clock();
    all.wait();
    connected?;
    let endpoints = choose(&to.addresses, to.machine, from.machine);
    let endpoints = endpoints.iter().map(ToString::to_string).collect();
    let what = Measurement::Network(NetworkTest { endpoints, ..test.clone() });
    let until = Instant::now() + Duration::from_secs_f64(2.0 * test.seconds) + GRACE;
    let before = now_ns();
    let mut job = asked.start(Order::leased(what))?;
    let began_ns = before.midpoint(now_ns()).saturating_sub((job.seconds * 1e9) as u64);
    while job.state == JobState::Running {
        if interrupt::came() || Instant::now() >= until {
            asked.stop(job.job)?;
            return Err(Failure::new(format!("{}: interrupted, or not done in time", from.alias)));
        }
        std::thread::sleep(LOOK);
        job = asked.status(job.job)?;
    }
    moved(&from.alias, job, began_ns)
}

fn moved(alias: &str, job: JobShown, began_ns: u64) -> Outcome<[Moved; 2]> {
    let ended_ns = began_ns.saturating_add((job.seconds * 1e9) as u64);
    if job.state == JobState::Stopped {
        return Err(Failure::new(format!("{alias}: the measurement was stopped")));
    }
    match found(alias, job)? {
        Findings::Network(NetworkFound { stuck: Some(stuck), .. }) => {
            Err(Failure::new(stuck.told(alias, "its neighbour")))
        }
        Findings::Network(found) => match (found.sent, found.received) {
            (Some(sent), Some(received)) => Ok(Moved::of_job(sent, received, ended_ns)),
            _ => Err(Failure::new(format!("{alias}: no bandwidth was measured"))),
        },
        _ => Err(Failure::new(format!("{alias}: the answer is to another question"))),
    }
}

/// The curves. A lone storage daemon gets its bytes from one of `others`.
pub fn measure<'a>(run: &mut Run<'a>, others: &[&'a NodeEntry], test: &NetworkTest) -> Outcome<Vec<Curve>> {
    let ring = ring(run, others);
    if ring.is_empty() {
        return Ok(Vec::new());
    }
    let test = NetworkTest { pings: 0, seconds: test.seconds.max(SECONDS_LEAST), ..test.clone() };
    let mut samples: [Vec<f64>; 2] = Default::default();
    let cluster = run.cluster;
    for _ in 0..run.preset.repeats {
        let all = Barrier::new(ring.len());
        let found: Vec<Outcome<[Moved; 2]>> = std::thread::scope(|scope| {
            let (test, all) = (&test, &all);
            let asked =
                ring.iter().map(|(from, to)| scope.spawn(move || member(cluster, from, to, test, all)));
            let asked: Vec<_> = asked.collect();
            let ended = |thread: ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(Failure::new("a thread ended badly")))
            };
            asked.into_iter().map(ended).collect()
        });
        let found: Vec<[Moved; 2]> = found.into_iter().collect::<Outcome<_>>()?;
        samples.iter_mut().enumerate().for_each(|(way, samples)| samples.push(rate(&found, way)));
    }
    let x = f64::from(test.streams);
    // The line of the side before it does this, too.
    let command = run.lines.only(NETWORK);
    let curve = |(id, title, samples): (&str, &str, Vec<f64>)| Curve {
        id: format!("{NETWORK}.{id}"),
        title: title.to_owned(),
        unit: "MB/s".to_owned(),
        axis: "connections per storage daemon".to_owned(),
        points: vec![Point { x, samples }],
        command: command.clone(),
    };
    let [sent, received] = samples;
    Ok([
        (WRITE, "Into all storage daemons at once", sent),
        (READ, "Out of all storage daemons at once", received),
    ]
    .map(curve)
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Goal: every storage daemon sends once and receives once, and bytes cross the network wherever there are enough
    /// daemons on other hosts; on one host they go round.
    #[test]
    fn neighbours_are_on_other_hosts() {
        assert_eq!(pairs(&[1, 1, 2, 2]), [(2, 0), (3, 1), (0, 2), (1, 3)]);
        assert_eq!(pairs(&[1, 1, 1]), [(1, 0), (2, 1), (0, 2)]);
        assert_eq!(pairs::<u8>(&[]), []);
        for counts in [&[1, 1][..], &[2, 1, 1], &[1, 2, 1], &[1, 1, 2], &[3, 2, 1, 4], &[5, 5], &[2, 2, 2]] {
            let hosts: Vec<usize> =
                counts.iter().enumerate().flat_map(|(host, count)| vec![host; *count]).collect();
            let found = pairs(&hosts);
            assert_eq!(found.len(), hosts.len(), "{counts:?}");
            assert!(found.iter().all(|(from, to)| hosts[*from] != hosts[*to]), "{counts:?}: {found:?}");
            let mut senders: Vec<usize> = found.iter().map(|(from, _)| *from).collect();
            senders.sort_unstable();
            assert!(senders.into_iter().eq(0..hosts.len()), "{counts:?}");
        }
        // The lone one takes from one of the three, and gives to one.
        assert_eq!(pairs(&[1, 1, 1, 2]), [(3, 0), (2, 3)]);
    }

    /// Goal: what two daemons moved one after the other is not added up as if it had been at once, in either direction;
    /// a job's bytes are sent before they are received, and with these it ends.
    #[test]
    fn only_what_was_on_its_way_at_once_adds_up() {
        let flow = |bytes| Flow { bytes, seconds: 1.0 };
        let job = |ended| Moved::of_job(flow(100_000_000), flow(300_000_000), ended * SECOND);
        let [sent, received] = job(10);
        assert_eq!((sent.window, received.window), ((8 * SECOND, 9 * SECOND), (9 * SECOND, 10 * SECOND)));
        let rates = |all: &[[Moved; 2]]| [rate(all, 0), rate(all, 1)].map(f64::round);
        assert_eq!(rates(&[job(10), job(10)]), [200.0, 600.0]);
        assert_eq!(rates(&[job(10), job(20)]), [100.0, 300.0]);
    }
}
