//! Bandwidth and latency from this process to a service, over the same links that requests take: handshake, frames,
//! checksums or MACs included.

use super::gate::{Gate, spawn};
use super::jobs::Control;
use super::question::{Findings, Flow, Latency, NetworkFound, NetworkTest, Stuck};
use skep_base::caller::hello;
use skep_bench::histogram::Histogram;
use skep_net::{Endpoint, Keyring, Link, NetError};
use skep_types::limits::PAYLOAD_MAX;
use skep_types::{Decode, Encode, Role};
use skep_wire::instrument::{Discard, Fabricate};
use skep_wire::{Header, Message, Refusal};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Most connections of one measurement.
pub const STREAMS_MAX: u32 = 64;
/// Longest measurement of one direction.
pub const SECONDS_MAX: f64 = 120.0;
/// Most messages for the latency.
const PINGS_MAX: u32 = 100_000;
/// Payloads that are on their way at once on each connection, as a pipelining client has them.
const WINDOW: u32 = 4;
/// Connecting may take so long.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// An answer may: a slow network is to be measured, too, and has all windows to carry first.
const PATIENCE: Duration = Duration::from_secs(60);
/// A message that no single packet holds, on any network: where large packets are dropped, it never arrives.
const LARGE: u32 = 128 << 10;
/// ... and by then a network of 26 KB/s has carried it.
const LARGE_LIMIT: Duration = Duration::from_secs(5);
/// Binary digits of a duration that are told apart at most.
const DIGITS: u32 = 11;

/// Durations of requests.
#[derive(Debug, Default)]
pub struct Times(Histogram);

impl Times {
    /// One more.
    pub fn add(&mut self, took: Duration) {
        self.0.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All of `other` too.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// All of such a list too.
    pub fn add_buckets(&mut self, buckets: &[(u64, u64)]) {
        self.0.add_pairs(buckets);
    }

    /// As nanoseconds and counts, at most `most` of them (or 64): as fine as that allows.
    pub fn buckets(&self, most: usize) -> Vec<(u64, u64)> {
        let pairs = self.0.pairs();
        (0..=DIGITS)
            .rev()
            .map(|digits| coarse(&pairs, digits))
            .find(|list| list.len() <= most.max(64))
            .unwrap_or_default()
    }

    /// As it is shown.
    pub fn latency(&self) -> Latency {
        let Some(known) = self.0.latency() else { return Latency::default() };
        Latency {
            count: known.count,
            mean_us: known.mean_us,
            p50_us: known.p50_us,
            p90_us: known.p90_us,
            p99_us: known.p99_us,
            p999_us: known.p999_us,
            max_us: known.max_us,
        }
    }
}

/// Neighbours whose first `digits` binary digits behind the leading one are alike become one, the longest of them.
fn coarse(pairs: &[(u64, u64)], digits: u32) -> Vec<(u64, u64)> {
    let key = |ns: u64| ns >> ns.checked_ilog2().unwrap_or(0).saturating_sub(digits);
    let octave = |ns: u64| ns.checked_ilog2();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (ns, count) in pairs {
        match all.last_mut() {
            Some(last) if octave(last.0) == octave(*ns) && key(last.0) == key(*ns) => {
                *last = (*ns, last.1 + count)
            }
            _ => all.push((*ns, *count)),
        }
    }
    all
}

/// One connection and its numbers.
struct Stream {
    link: Link,
    next: u64,
}

fn failed(e: &NetError) -> String {
    e.to_string()
}

impl Stream {
    fn connect(endpoints: &[Endpoint], keyring: &Keyring) -> Result<Self, String> {
        // Servers speak as such; an agent may hold the administrator's key only. Without a node's id: a connection
        // that supersedes none and is superseded by none.
        let role = if keyring.has(Role::Server) { Role::Server } else { Role::Admin };
        let link = Link::connect(endpoints, keyring, &hello(role), Instant::now() + CONNECT_LIMIT);
        link.map(|link| Self { link, next: 0 }).map_err(|e| failed(&e))
    }

    fn ask(&mut self, kind: u16, body: &[u8], payload: &[u8]) -> Result<(), String> {
        self.next += 1;
        self.link.send(&Header::request(kind, self.next), body, payload).map_err(|e| failed(&e))
    }

    /// Bytes of the payload that came.
    fn answer(&mut self, into: &mut [u8], control: &Control) -> Result<usize, String> {
        self.answer_within(PATIENCE, into, control).map_err(|e| failed(&e))?
    }

    /// The same; the outer error is that of the connection.
    fn answer_within(
        &mut self,
        limit: Duration,
        into: &mut [u8],
        control: &Control,
    ) -> Result<Result<usize, String>, NetError> {
        let frame = self.link.recv(into, Instant::now() + limit, &|| control.is_stopped())?;
        if frame.header.status != 0 {
            let refusal = Refusal::from_bytes(frame.body);
            return Ok(Err(refusal.map_or_else(|e| e.to_string(), |refusal| refusal.to_string())));
        }
        Ok(Ok(frame.header.payload_len as usize))
    }

    /// Sends a request and waits for its answer: was it there in time?
    fn is_through(
        &mut self,
        (kind, body, payload): (u16, &[u8], &[u8]),
        into: &mut [u8],
        control: &Control,
    ) -> Result<bool, String> {
        self.next += 1;
        self.link.set_send_deadline(LARGE_LIMIT);
        let sent = self.link.send(&Header::request(kind, self.next), body, payload);
        match sent.and_then(|()| self.answer_within(LARGE_LIMIT, into, control)) {
            Ok(answer) => answer.map(|_| true),
            Err(e) if e.is_timeout() => Ok(false),
            Err(e) => Err(failed(&e)),
        }
    }
}

/// Whether large messages pass where small ones do, both ways at once over a connection each. Packets that are too large
/// for something on the way are dropped without a word, however often they are sent again.
fn large(
    connect: impl Fn() -> Result<Stream, String> + Sync,
    control: &Control,
) -> Result<Option<Stuck>, String> {
    let discard = Discard {}.to_bytes();
    let is_stuck = |kind: u16, body: &[u8], payload: &[u8]| -> Result<bool, String> {
        let mut stream = connect()?;
        // Who does not even answer this is slow or gone: another matter.
        if !stream.is_through((Discard::KIND, &discard, &[]), &mut [], control)? {
            return Err(format!("no answer to a small message within {} s", LARGE_LIMIT.as_secs()));
        }
        let mut into = vec![0; LARGE as usize];
        Ok(!stream.is_through((kind, body, payload), &mut into, control)?)
    };
    let payload = vec![0xa5; LARGE as usize];
    let (sent, received) = std::thread::scope(|scope| {
        let back = scope.spawn(|| is_stuck(Fabricate::KIND, &Fabricate { len: LARGE }.to_bytes(), &[]));
        let sent = is_stuck(Discard::KIND, &discard, &payload);
        (sent, back.join().unwrap_or_else(|_| Err("a thread ended badly".to_owned())))
    });
    let (sent, received) = (sent?, received?);
    let seconds = LARGE_LIMIT.as_secs_f64();
    Ok((sent || received).then_some(Stuck { bytes: LARGE, seconds, sent, received }))
}

pub fn measure(test: &NetworkTest, keyring: &Keyring, control: &Control) -> Result<Findings, String> {
    let endpoints: Result<Vec<Endpoint>, _> = test.endpoints.iter().map(|text| text.parse()).collect();
    let endpoints = endpoints.map_err(|e| e.to_string())?;
    let seconds = test.seconds.clamp(0.0, SECONDS_MAX);
    if !seconds.is_finite() || !(1..=STREAMS_MAX).contains(&test.streams) {
        return Err(format!("a network measurement has 1 to {STREAMS_MAX} streams and a finite time"));
    }
    if test.block as usize > PAYLOAD_MAX || test.block == 0 {
        return Err(format!("{} bytes a block: 1 to {PAYLOAD_MAX} fit into a frame", test.block));
    }
    let mut first = Stream::connect(&endpoints, keyring)?;
    let mut found = NetworkFound { peer: first.link.peer().address.clone(), ..NetworkFound::default() };
    if test.pings > 0 {
        found.latency = Some(latency(&mut first, test.pings.min(PINGS_MAX), control)?);
    }
    if test.bandwidth {
        found.stuck = large(|| Stream::connect(&endpoints, keyring), control)?;
    }
    if test.bandwidth && found.stuck.is_none() {
        let mut streams = vec![first];
        for _ in 1..test.streams {
            streams.push(Stream::connect(&endpoints, keyring)?);
        }
        let time = Duration::from_secs_f64(seconds);
        found.sent = Some(flow(&mut streams, test.block, time, control, send)?);
        found.received = Some(flow(&mut streams, test.block, time, control, receive)?);
    }
    Ok(Findings::Network(found))
}

fn latency(stream: &mut Stream, pings: u32, control: &Control) -> Result<Latency, String> {
    let mut times = Times::default();
    let body = Discard {}.to_bytes();
    // The first ones wake the other side up.
    for number in 0..pings + pings.min(10) {
        if control.is_stopped() {
            break;
        }
        let began = Instant::now();
        stream.ask(Discard::KIND, &body, &[])?;
        stream.answer(&mut [], control)?;
        if number >= pings.min(10) {
            times.add(began.elapsed());
        }
    }
    Ok(times.latency())
}

/// Bytes that one stream moved until told to end.
type Mover = fn(&mut Stream, u32, &AtomicBool, &Control) -> Result<u64, String>;

/// All streams at once for `time`.
fn flow(
    streams: &mut [Stream],
    block: u32,
    time: Duration,
    control: &Control,
    mover: Mover,
) -> Result<Flow, String> {
    let (over, gate) = (AtomicBool::new(false), Gate::default());
    let many = streams.len();
    std::thread::scope(|scope| {
        let (over, gate) = (&over, &gate);
        let start = |stream| {
            spawn(scope, move || {
                let moved = if gate.wait() { mover(stream, block, over, control) } else { Ok(0) };
                (moved, Instant::now())
            })
        };
        let moving: Result<Vec<_>, String> = streams.iter_mut().map(start).collect();
        gate.open(many, moving.is_ok());
        let (moving, began) = (moving?, Instant::now());
        while began.elapsed() < time && !control.is_stopped() && !moving.iter().any(|one| one.is_finished()) {
            std::thread::sleep(Duration::from_millis(5).min(time));
        }
        over.store(true, Relaxed);
        let (mut bytes, mut ended) = (0, began);
        for one in moving {
            let (moved, at) = one.join().map_err(|_| "a thread ended badly".to_owned())?;
            bytes += moved?;
            ended = ended.max(at);
        }
        Ok(Flow { bytes, seconds: ended.duration_since(began).as_secs_f64() })
    })
}

fn send(stream: &mut Stream, block: u32, over: &AtomicBool, control: &Control) -> Result<u64, String> {
    let (body, payload) = (Discard {}.to_bytes(), vec![0xa5; block as usize]);
    windowed(stream, over, control, &mut [], |stream| {
        stream.ask(Discard::KIND, &body, &payload).map(|()| u64::from(block))
    })
}

fn receive(stream: &mut Stream, block: u32, over: &AtomicBool, control: &Control) -> Result<u64, String> {
    let body = Fabricate { len: block }.to_bytes();
    let mut into = vec![0; block as usize];
    windowed(stream, over, control, &mut into, |stream| {
        stream.ask(Fabricate::KIND, &body, &[]).map(|()| u64::from(block))
    })
}

/// Keeps a few requests on their way; counts those that were answered.
fn windowed(
    stream: &mut Stream,
    over: &AtomicBool,
    control: &Control,
    into: &mut [u8],
    ask: impl Fn(&mut Stream) -> Result<u64, String>,
) -> Result<u64, String> {
    let (mut waiting, mut moved) = (0, 0);
    let mut each = 0;
    loop {
        while waiting < WINDOW && !over.load(Relaxed) {
            each = ask(stream)?;
            waiting += 1;
        }
        if waiting == 0 {
            return Ok(moved);
        }
        match stream.answer(into, control) {
            Ok(_) => {
                waiting -= 1;
                moved += each;
            }
            Err(_) if control.is_stopped() => return Ok(moved),
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a list of buckets has no more than its limit, keeps every request, and says the same percentiles within
    /// what its length allows.
    #[test]
    fn buckets_within_a_limit() {
        let mut times = Times::default();
        (1..=20_000u64).for_each(|us| times.add(Duration::from_micros(us)));
        for (most, within) in [(1 << 20, 0.002), (400, 0.04), (64, 0.5), (0, 0.5)] {
            let buckets = times.buckets(most);
            assert!(buckets.len() <= most.max(64), "{} of {most}", buckets.len());
            assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 20_000);
            let mut again = Times::default();
            again.add_buckets(&buckets);
            let p99 = again.latency().p99_us;
            assert!((p99 / 19_800.0 - 1.0).abs() < within, "{most}: {p99}");
        }
        assert!(Times::default().buckets(100).is_empty());
    }
}
