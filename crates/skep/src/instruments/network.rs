//! Bandwidth and latency from this process to a service, over the same links that requests take: handshake, frames,
//! checksums or MACs included.

use super::gate::{Gate, spawn};
use super::jobs::Control;
use super::question::{Findings, Flow, Latency, NetworkFound, NetworkTest};
use crate::caller::hello;
use hdrhistogram::Histogram;
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
/// Longest latency that is told apart, in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Durations of requests.
pub struct Times(Histogram<u64>);

impl Times {
    /// None so far.
    pub fn new() -> Result<Self, String> {
        Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).map(Self).map_err(|e| format!("histogram: {e}"))
    }

    /// One more.
    pub fn add(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// All of `other` too.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds: nothing can be out of range.
        let _ = self.0.add(&other.0);
    }

    /// As it is shown.
    pub fn latency(&self) -> Latency {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(self.0.value_at_quantile(quantile));
        Latency {
            count: self.0.len(),
            mean_us: self.0.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: if self.0.is_empty() { 0.0 } else { us(self.0.max()) },
        }
    }
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
        let frame = self.link.recv(into, Instant::now() + PATIENCE, &|| control.is_stopped());
        let frame = frame.map_err(|e| failed(&e))?;
        if frame.header.status != 0 {
            let refusal = Refusal::from_bytes(frame.body).map_err(|e| e.to_string())?;
            return Err(refusal.to_string());
        }
        Ok(frame.header.payload_len as usize)
    }
}

/// Measures.
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
    let mut times = Times::new()?;
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
