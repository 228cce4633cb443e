//! Peers that do not behave: each is closed with one line in the log, and nothing else suffers.

mod rig;

use rig::*;
use skep_net::{
    Cause, Endpoint, EventLimits, HANDSHAKE_DEADLINE, HANDSHAKE_MESSAGE_MAX, KeyFile, Keyring, Link,
    PREAMBLE_LEN, StreamLimits,
};
use skep_types::Role;
use skep_wire::{HEADER_LEN, Header, Hello};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BOTH: [Which; 2] = [Which::Event, Which::Stream];

fn raw(at: &Endpoint) -> TcpStream {
    let address: SocketAddr = at.resolve().unwrap()[0];
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What the server still says before it closes; a reset counts as closing.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("the connection was not closed"),
        _ => said,
    }
}

/// Proves that the server still serves, and that it logged nothing beyond what the test has taken.
fn still_well(server: &Running) {
    let mut link = server.link(&server.tcp, &hello(0, 0, 77));
    call(&mut link, ECHO, 1, b"well", &[], &mut []);
    let extra: Vec<Seen> = server.seen.try_iter().filter(|seen| matches!(seen, Seen::Log(_))).collect();
    assert_eq!(extra, [], "more than one line");
}

/// The first bytes of an honest client, taken from a link that tries to connect to us.
fn first_flight(keyring: &Keyring, hello: &Hello) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
    let (keyring, hello) = (keyring.clone(), hello.clone());
    let caller =
        std::thread::spawn(move || Link::connect(&[at], &keyring, &hello, Instant::now() + PATIENCE));
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = vec![0; PREAMBLE_LEN + 2];
    stream.read_exact(&mut bytes).unwrap();
    let len = usize::from(u16::from_le_bytes([bytes[PREAMBLE_LEN], bytes[PREAMBLE_LEN + 1]]));
    bytes.resize(PREAMBLE_LEN + 2 + len, 0);
    stream.read_exact(&mut bytes[PREAMBLE_LEN + 2..]).unwrap();
    drop(stream);
    assert!(caller.join().unwrap().is_err());
    bytes
}

/// Goal: whoever does not speak the protocol is closed at the first wrong byte, without an answer.
#[test]
fn garbage() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01", b"SKEPHELP", &[0; 5_000]] {
            let mut stream = raw(&server.tcp);
            stream.write_all(garbage).unwrap();
            assert_eq!(until_closed(&mut stream), b"");
            let line = server.wait_for_log();
            assert!(line.contains("not a Skep peer") && line.contains("127.0.0.1"), "{line}");
        }
        still_well(&server);
    }
}

/// Goal: keys, roles and versions that do not fit are refused on both sides in words that help.
#[test]
fn keys_that_do_not_fit() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let try_with = |keyring: &Keyring, role| {
            let hello = Hello { role, ..hello(1, 0, 1) };
            let error =
                Link::connect(std::slice::from_ref(&server.tcp), keyring, &hello, Instant::now() + PATIENCE)
                    .unwrap_err();
            assert!(matches!(error.cause, Cause::Handshake(_)) && error.is_permanent());
            error.to_string()
        };
        let other = Keyring::new(&KeyFile::generate().unwrap());
        assert!(try_with(&other, Role::Client).contains("another cluster"));
        assert!(server.wait_for_log().contains("key id"));
        assert!(try_with(&Keyring::insecure(), Role::Client).contains("--insecure"));
        assert!(server.wait_for_log().contains("--insecure"));
        // A client's key file does not even let its own side begin as a server.
        let client = Keyring::new(&server.keyring.client_file());
        assert!(try_with(&client, Role::Server).contains("does not allow the role"));
        assert!(try_with(&client, Role::Admin).contains("does not allow the role"));
        still_well(&server);
    }
}

/// Goal: a client's key that claims another role, by changed bytes, proves nothing.
#[test]
fn a_forged_role() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let client = Keyring::new(&server.keyring.client_file());
        for role in [Role::Server, Role::Admin] {
            let mut bytes = first_flight(&client, &hello(1, 0, 1));
            bytes[9] = role as u8;
            let mut stream = raw(&server.tcp);
            stream.write_all(&bytes).unwrap();
            assert_eq!(until_closed(&mut stream), [0, 0, 3]);
            let line = server.wait_for_log();
            assert!(line.contains("wrong key"), "{line}");
        }
        still_well(&server);
    }
}

/// Goal: a hello recorded from the network and sent again opens nothing and ends no other connection.
#[test]
fn a_replayed_hello() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let mut victim = server.link(&server.tcp, &hello(1, 7, 1));
        call(&mut victim, ECHO, 1, &[], &[], &mut []);
        let recorded = first_flight(&server.keyring, &hello(1, 7, 2));
        let mut stream = raw(&server.tcp);
        stream.write_all(&recorded).unwrap();
        server.wait_for(|seen| *seen == Seen::Hello(2));
        stream.write_all(&[0; 64]).unwrap();
        let line = server.wait_for_log();
        assert!(line.contains("not confirmed"), "{line}");
        until_closed(&mut stream);
        call(&mut victim, ECHO, 2, &[], &[], &mut []);
        let seen = server.finish();
        assert!(!seen.contains(&Seen::Opened(2)) && !seen.contains(&Seen::Closed(2)));
    }
}

/// Goal: every flipped bit of the first message is refused, every cut of it is waited for and then given up.
#[test]
fn damaged_handshakes() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let good = first_flight(&server.keyring, &hello(1, 0, 1));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let mut stream = raw(&server.tcp);
            stream.write_all(&bad).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let said = until_closed(&mut stream);
            assert!(said.len() <= 3, "byte {at}: the damaged hello was answered");
            let mut stream = raw(&server.tcp);
            stream.write_all(&good[..at]).unwrap();
            drop(stream);
        }
        let mut link = server.link(&server.tcp, &hello(0, 0, 77));
        call(&mut link, ECHO, 1, b"well", &[], &mut []);
        let seen = server.finish();
        assert!(!seen.iter().any(|s| matches!(s, Seen::Hello(1))), "a damaged hello reached the service");
        let lines = seen.iter().filter(|s| matches!(s, Seen::Log(_))).count();
        assert!((1..=100).contains(&lines), "{lines} lines: the log is not limited");
    }
}

/// Goal: an announced length above the limit is refused from the length alone.
#[test]
fn oversize_handshake() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let mut bytes = first_flight(&server.keyring, &hello(1, 0, 1))[..PREAMBLE_LEN].to_vec();
        bytes.extend(((HANDSHAKE_MESSAGE_MAX + 1) as u16).to_le_bytes());
        let mut stream = raw(&server.tcp);
        stream.write_all(&bytes).unwrap();
        assert_eq!(until_closed(&mut stream), [0, 0, 7]);
        assert!(server.wait_for_log().contains("the limit is"));
        still_well(&server);
    }
}

/// Goal: whoever does not finish the handshake is closed at the deadline, not before and not much later.
#[test]
fn slow_loris() {
    let servers = BOTH.map(|which| Running::start(which, Setup::default()));
    let start = Instant::now();
    let mut lorises = servers.each_ref().map(|server| {
        let mut silent = raw(&server.tcp);
        let mut slow = raw(&server.tcp);
        silent.write_all(b"").unwrap();
        slow.write_all(b"SKEP").unwrap();
        (silent, slow)
    });
    for (silent, slow) in &mut lorises {
        until_closed(silent);
        until_closed(slow);
    }
    let took = start.elapsed();
    assert!(
        took >= HANDSHAKE_DEADLINE - Duration::from_millis(100) && took < 3 * HANDSHAKE_DEADLINE,
        "{took:?}"
    );
    for server in &servers {
        assert!(server.wait_for_log().contains("not finished in time"));
        assert!(server.wait_for_log().contains("not finished in time"));
        still_well(server);
    }
}

/// Goal: a crowd of silent connections cannot keep an honest client out: the oldest of them goes.
#[test]
fn a_crowd_at_the_door() {
    for which in BOTH {
        let event = EventLimits { half_open: 4, ..Default::default() };
        let stream = StreamLimits { half_open: 4, ..Default::default() };
        let server = Running::start(which, Setup { event, stream, ..Default::default() });
        let mut crowd: Vec<TcpStream> = (0..10).map(|_| raw(&server.tcp)).collect();
        for first in &mut crowd[..6] {
            until_closed(first);
        }
        let mut link = server.link(&server.tcp, &hello(1, 0, 1));
        call(&mut link, ECHO, 1, &[], &[], &mut []);
    }
}

/// What the man in the middle does with the frames of the client, by their number.
type Meddle = fn(number: usize, frame: &[u8]) -> Vec<u8>;

/// Passes a connection on; frames from the client to the server go through `meddle`.
fn man_in_the_middle(to: Endpoint, meddle: Meddle) -> (Endpoint, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
    let thread = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = raw(&to);
        let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(Shutdown::Both);
        });
        let mut pass = |len: usize| {
            let mut bytes = vec![0; len];
            client.read_exact(&mut bytes).ok()?;
            Some(bytes)
        };
        let opening = pass(PREAMBLE_LEN + 2).unwrap();
        let len = u16::from_le_bytes([opening[PREAMBLE_LEN], opening[PREAMBLE_LEN + 1]]);
        server.write_all(&opening).unwrap();
        server.write_all(&pass(usize::from(len)).unwrap()).unwrap();
        server.write_all(&pass(16).unwrap()).unwrap();
        for number in 0.. {
            let Some(mut frame) = pass(HEADER_LEN) else { break };
            let header = Header::decode(&frame, crc_fast::crc32_iscsi).unwrap().0;
            let Some(rest) = pass(header.body_len as usize + header.payload_len as usize + 16) else { break };
            frame.extend(rest);
            if server.write_all(&meddle(number, &frame)).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
        let _ = back.join();
    });
    (at, thread)
}

/// Goal: on TCP a frame that was changed, repeated, left out or swapped on the way ends the connection
/// with one line, and never reaches the service.
#[test]
fn meddled_frames() {
    let meddlers: [(&str, Meddle, usize); 8] = [
        // Both lengths: the receiver must not wait for bytes that nobody sends.
        ("body longer", |n, frame| flip(frame, n, 33), 1),
        ("payload longer", |n, frame| flip(frame, n, 37), 1),
        ("untouched", |_, frame| frame.to_vec(), 3),
        ("body changed", |n, frame| flip(frame, n, HEADER_LEN), 1),
        ("payload changed", |n, frame| flip(frame, n, HEADER_LEN + 4), 1),
        ("mac changed", |n, frame| flip(frame, n, frame.len() - 1), 1),
        ("repeated", |_, frame| [frame, frame].concat(), 1),
        ("left out", |n, frame| if n == 1 { Vec::new() } else { frame.to_vec() }, 1),
    ];
    for which in BOTH {
        for (name, meddle, served) in meddlers {
            let server = Running::start(which, Setup::default());
            let (at, thread) = man_in_the_middle(server.tcp.clone(), meddle);
            let mut link = server.link(&at, &hello(1, 0, 1));
            for id in 0..3 {
                // Sends may fail: the server closes as soon as it notices.
                let _ = link.send(&Header::request(ECHO, id), b"body", b"payload");
            }
            if name == "untouched" {
                (0..3).for_each(|id| assert_eq!(answer(&mut link, &mut [0; 7]).0.request, id));
            } else {
                let line = server.wait_for_log();
                let header = name.ends_with("longer");
                let why =
                    if header { "frame checksum does not match" } else { "frame authentication failed" };
                assert!(line.contains(why), "{name}: {line}");
            }
            drop(link);
            thread.join().unwrap();
            let seen = server.finish();
            let count = seen.iter().filter(|s| matches!(s, Seen::Request(..))).count();
            let lines = seen.iter().filter(|s| matches!(s, Seen::Log(_))).count();
            // `wait_for_log` has taken the requests that came before the line.
            assert!(count <= served && lines == 0, "{which:?} {name}: {seen:?}");
        }
    }
}

fn flip(frame: &[u8], number: usize, at: usize) -> Vec<u8> {
    let mut out = frame.to_vec();
    if number == 1 {
        out[at] ^= 0x10;
    }
    out
}

/// With the header's checksum made right again.
fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &frame[..HEADER_LEN - 4]) as u32;
    frame[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// Goal: what an authenticated peer sends after the handshake is checked like everything else: oversize,
/// unknown versions, reserved bits and a cut in the middle of a frame end the connection.
#[test]
fn bad_frames_of_a_proven_peer() {
    let spoil: [(Meddle, &str); 4] = [
        (
            |_, frame| resealed([&frame[..36], &u32::MAX.to_le_bytes(), &frame[40..]].concat()),
            "the limits are",
        ),
        (|_, frame| [&frame[..4], &[9], &frame[5..]].concat(), "protocol version 9"),
        (|_, frame| resealed([&frame[..5], &[0x80], &frame[6..]].concat()), "reserved bits"),
        (|_, frame| [b"NOPE", &frame[4..]].concat(), "not a Skep frame"),
    ];
    for which in BOTH {
        for (meddle, text) in spoil {
            let server = Running::start(which, Setup::default());
            let (at, thread) = man_in_the_middle(server.tcp.clone(), meddle);
            let mut link = server.link(&at, &hello(1, 0, 1));
            link.send(&Header::request(ECHO, 1), b"body", b"payload").unwrap();
            let line = server.wait_for_log();
            assert!(line.contains(text), "{line}");
            let error = link.recv(&mut [0; 7], Instant::now() + PATIENCE, &|| false).unwrap_err();
            assert!(matches!(error.cause, Cause::Closed), "{error}");
            drop(link);
            thread.join().unwrap();
            still_well(&server);
        }
        let server = Running::start(which, Setup::default());
        let (at, thread) =
            man_in_the_middle(server.tcp.clone(), |_, frame| frame[..frame.len() - 20].to_vec());
        let mut link = server.link(&at, &hello(1, 0, 1));
        link.send(&Header::request(ECHO, 1), b"body", b"payload").unwrap();
        drop(link);
        thread.join().unwrap();
        server.wait_for(|seen| *seen == Seen::Closed(1));
        still_well(&server);
    }
}

/// Goal: a service that cannot prove the key is not believed, whatever it answers.
#[test]
fn a_false_service() {
    let keyring = Keyring::new(&KeyFile::generate().unwrap());
    let answers: [&[u8]; 5] =
        [b"", b"HTTP/1.1 400 Bad Request", &[0xff, 0xff, 0], &[60, 0, 1, 2, 3], &[4, 0, 1, 2, 3, 4]];
    for said in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Endpoint::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut first = [0; 512];
                let _ = stream.read(&mut first).unwrap();
                stream.write_all(said).unwrap();
            });
            let error =
                Link::connect(&[at], &keyring, &hello(1, 0, 1), Instant::now() + PATIENCE).unwrap_err();
            assert!(matches!(error.cause, Cause::Handshake(_)), "{error}");
        });
    }
}
