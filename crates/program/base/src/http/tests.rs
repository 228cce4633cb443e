//! The server against clients that are slow, loud or wrong.

use super::server::{CONNECTIONS_MAX, HEAD_MAX, HEADERS_MAX};
use super::*;
use crate::metrics::Kind;
use crate::metrics::parse::parse;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Sample {
    asked: AtomicU64,
}

impl Pages for Sample {
    fn service(&self) -> &'static str {
        "mgmtd"
    }

    fn metrics(&self, out: &mut Exposition) {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        out.family("skep_sample_asked_total", Kind::Counter, "Asked.").value(&[], asked);
    }

    fn api(&self, request: &Request) -> Option<Reply> {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        (request.path == "/v1/echo").then(|| Reply::text(200, reply::PLAIN, body))
    }
}

fn server() -> SocketAddr {
    start(Some("127.0.0.1:0".parse().unwrap()), Arc::new(Sample::default())).unwrap()
}

/// Sends bytes, gives back everything until the server closes.
fn exchange(server: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(server: SocketAddr, path: &str) -> String {
    exchange(server, format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Goal: the pages that every daemon has; metrics are well-formed and move.
#[test]
fn pages_of_every_daemon() {
    let server = server();
    for asked in 1..=2 {
        let answer = get(server, "/metrics");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"),
            "{answer}"
        );
        let parsed = parse(body(&answer)).unwrap();
        assert_eq!(parsed.value("skep_sample_asked_total", &[]), Some(f64::from(asked)));
        assert!(parsed.value("process_open_fds", &[]).is_some());
    }
    assert_eq!(body(&get(server, "/healthz")), "ok\n");
    assert!(body(&get(server, "/")).contains("/metrics"));
    let missing = get(server, "/nothing");
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
    let document: reply::ErrorDocument = serde_json::from_str(body(&missing)).unwrap();
    assert_eq!(document.error.place, "/nothing");
    let posted = exchange(server, b"POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405") && posted.to_lowercase().contains("allow: get"), "{posted}");
}

/// Goal: too much of anything is refused with an error, and the next client is served.
#[test]
fn too_much_is_refused() {
    let server = server();
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(2 * HEAD_MAX));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
    for (bytes, codes) in [(long, &["414", "431"][..]), (many, &["431"])] {
        let answer = exchange(server, bytes.as_bytes());
        assert!(codes.iter().any(|code| answer.starts_with(&format!("HTTP/1.1 {code}"))), "{answer}");
    }
    let post = |length: usize, sent: usize| {
        let head = format!(
            "POST /v1/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        exchange(server, format!("{head}{}", "y".repeat(sent)).as_bytes())
    };
    assert_eq!(body(&post(5, 5)), "yyyyy");
    let answer = post(BODY_MAX + 1, BODY_MAX + 1);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(body(&get(server, "/healthz")), "ok\n");
}

/// Goal: bytes that are no HTTP end their connection and nothing else. Method: requests with bytes
/// changed, cut and repeated by a fixed sequence of numbers.
#[test]
fn nonsense_is_survived() {
    let server = server();
    let good =
        b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for _ in 0..300 {
        let mut bytes = good.to_vec();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.extend_from_within(at..),
            }
        }
        let mut stream = TcpStream::connect(server).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // Until it is closed it holds one of the places; without this the last request may find none.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(body(&get(server, "/healthz")), "ok\n");
}

/// Goal: clients that say nothing hold their places for a bounded time only, beyond the limit no
/// connection is kept, and then everybody is served again.
#[test]
fn silent_clients_lose_their_places() {
    let server = server();
    let began = Instant::now();
    let mut silent: Vec<_> = (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(server).unwrap()).collect();
    for (at, stream) in silent.iter_mut().enumerate() {
        // Some say half a line: that does not help them.
        stream.write_all(if at % 2 == 0 { b"GET /met" } else { b"" }).unwrap();
    }
    // Taken in order: once the last one has its place, one more is closed unheard.
    let mut beyond = TcpStream::connect(server).unwrap();
    beyond.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(beyond.read(&mut [0; 64]).unwrap_or(0), 0);
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    assert_eq!(body(&get(server, "/healthz")), "ok\n");
}

/// Goal: a port that is taken, or none at all, does not stop a daemon.
#[test]
fn a_taken_port_is_no_failure() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    assert!(start(Some(taken), Arc::new(Sample::default())).is_none());
    assert!(start(None, Arc::new(Sample::default())).is_none());
}
