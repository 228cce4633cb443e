//! Whoever has no key, or speaks something else.

use super::{plan, refusal, start};
use skep_rig::{Cluster, Daemon, until};
use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest time until a daemon has dealt with a connection: more than its deadline for handshakes.
const DEALT: Duration = Duration::from_secs(120);
/// Connections of a port scanner.
const SCANS: usize = 300;
/// Descriptors that may come and go by themselves.
const DESCRIPTORS_FREE: usize = 4;
/// Memory that a daemon may gain by all of it, in KiB.
const GROWTH_KIB: u64 = 30 << 10;

/// What is sent to every port.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let hello = |version: u8, role: u8, rest: &[u8]| {
        let mut bytes = b"SKEPHELO".to_vec();
        bytes.extend([version, role, 1, 0]);
        bytes.extend([0x5a; 8]);
        bytes.extend(rest);
        bytes
    };
    vec![
        ("garbage", super::bytes(77, 4_096)),
        ("web browser", b"GET / HTTP/1.1\r\nHost: skep\r\n\r\n".to_vec()),
        ("zeros", vec![0; 64]),
        ("another cluster's key", hello(1, 1, &[])),
        ("unknown version", hello(250, 1, &[])),
        ("unknown role", hello(1, 250, &[])),
        ("oversize handshake", hello(1, 1, &[0xff; 4_096])),
        ("truncated hello", b"SKEPHELO\x01".to_vec()),
    ]
}

/// Sends `message` and hangs up; what comes back is read, so that the daemon is done with us. Gives our address.
fn intrude_tcp(address: SocketAddr, message: &[u8]) -> SocketAddr {
    let mut stream = TcpStream::connect(address).unwrap();
    let own = stream.local_addr().unwrap();
    stream.set_read_timeout(Some(DEALT)).unwrap();
    // The daemon may hang up before all of it was sent.
    let _ = stream.write_all(message);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 64, "an intruder got {} bytes", answer.len());
    own
}

fn servers(cluster: &Cluster) -> Vec<Daemon> {
    cluster.daemons().into_iter().filter(|daemon| daemon.service != "mount").collect()
}

/// The lines of all logs.
fn lines(cluster: &Cluster) -> Vec<String> {
    cluster.logs().iter().flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Goal: whatever is sent to a port without the key, by TCP or Unix socket, is closed with exactly one
/// line in the log; no daemon dies, none keeps a descriptor.
#[test]
fn intruders_are_closed_with_one_line() {
    let cluster = start(plan());
    let daemons = servers(&cluster);
    let before: Vec<usize> = daemons.iter().map(Daemon::descriptors).collect();
    for daemon in &daemons {
        let (tcp, unix) = (daemon.tcp_listeners(), daemon.unix_listeners());
        assert!(!tcp.is_empty() && !unix.is_empty(), "{}: {tcp:?} {unix:?}", daemon.service);
        for (what, message) in messages() {
            // A port number may come a second time, so lines from before do not count.
            let earlier: HashSet<String> = lines(&cluster).into_iter().collect();
            let own = intrude_tcp(tcp[0], &message).to_string();
            let about_us = || {
                let lines = lines(&cluster);
                lines.iter().filter(|line| line.contains(&own) && !earlier.contains(*line)).count()
            };
            let what = format!("one line about {what} to {}", daemon.service);
            until(&what, DEALT, || match about_us() {
                0 => Err("none".to_owned()),
                _ => Ok(()),
            })
            .unwrap();
            assert_eq!(about_us(), 1, "{what}: {:?}", last_lines(&cluster));
        }
        let mut stream = UnixStream::connect(&unix[0]).unwrap();
        stream.set_read_timeout(Some(DEALT)).unwrap();
        let _ = stream.write_all(b"not a Skep peer, and long enough to be one of them");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    for (daemon, before) in daemons.iter().zip(before) {
        settles(daemon, before);
    }
    fs::write(cluster.mount().join("f"), b"alive").unwrap();
}

/// The last line of each log, for a message.
fn last_lines(cluster: &Cluster) -> Vec<String> {
    let last = |(name, text): (String, String)| {
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        format!("{name}: {}", lines.join(" / "))
    };
    cluster.logs().into_iter().map(last).collect()
}

/// The daemon lives, and its descriptors are back to what they were.
fn settles(daemon: &Daemon, before: usize) {
    assert!(daemon.is_alive(), "{} died", daemon.service);
    until("descriptors are given back", DEALT, || match daemon.descriptors() {
        now if now <= before + DESCRIPTORS_FREE => Ok(()),
        now => Err(format!("{} had {before}, has {now}", daemon.service)),
    })
    .unwrap();
}

/// Goal: a port scan and a flood of garbage leave every daemon alive, no descriptor open, memory as it
/// was and the log short; the mount works meanwhile.
#[test]
fn a_port_scan_changes_nothing() {
    let cluster = start(plan());
    for daemon in servers(&cluster) {
        let (before, memory, lines_before) =
            (daemon.descriptors(), daemon.resident_kib(), lines(&cluster).len());
        let address = daemon.tcp_listeners()[0];
        let begun = std::time::Instant::now();
        for number in 0..SCANS {
            let mut stream = TcpStream::connect(address).unwrap();
            if number % 3 == 0 {
                let _ = stream.write_all(&super::bytes(number as u32, 100));
            }
        }
        // Some that stay and say nothing, as a slow loris does.
        let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
        fs::write(cluster.mount().join("f"), b"works meanwhile").unwrap();
        assert_eq!(fs::read(cluster.mount().join("f")).unwrap(), b"works meanwhile");
        settles(&daemon, before);
        drop(silent);
        let grown = daemon.resident_kib().saturating_sub(memory);
        assert!(grown < GROWTH_KIB, "{} grew by {grown} KiB", daemon.service);
        let (told, seconds) = (lines(&cluster).len() - lines_before, begun.elapsed().as_secs() as usize + 1);
        assert!(told <= 10 * seconds + 10, "{told} lines in {seconds} s");
    }
}

/// Goal: with another cluster's key, a client's key for a server, or no key at all, nothing is served,
/// and the error says what to do.
#[test]
fn wrong_keys_are_refused() {
    let cluster = start(plan());
    let mgmtd = cluster.one("mgmtd").unwrap().tcp_listeners()[0].to_string();
    let wrong = cluster.beside("wrong.key");
    let wrong = wrong.to_str().unwrap();
    cluster.must(["key", "generate", wrong]).unwrap();
    let list = |key: &str| refusal(&cluster, &["node", "list", "--mgmtd", &mgmtd, "--key", key]);
    let said = list(wrong);
    assert!(said.contains("key"), "{said}");
    let said = refusal(&cluster, &["node", "list", "--mgmtd", &mgmtd, "--insecure"]);
    assert!(said.contains("insecure"), "{said}");
    let said = list("/nonexistent/cluster.key");
    assert!(said.contains("/nonexistent/cluster.key"), "{said}");
    // A client may look, and not act.
    let client = cluster.dir().join("client.key");
    let client = client.to_str().unwrap();
    cluster.must(["node", "list", "--mgmtd", &mgmtd, "--key", client]).unwrap();
    let said = refusal(&cluster, &["session", "evict", "1", "--mgmtd", &mgmtd, "--key", client]);
    assert!(said.contains("cluster key"), "{said}");
    // Nor serve.
    let target = cluster.beside("target");
    fs::create_dir(&target).unwrap();
    let said = refusal(
        &cluster,
        &[
            "storaged",
            "--init",
            "--set",
            &format!("key_file={client}"),
            "--set",
            &format!("mgmtd={mgmtd}"),
            "--set",
            "listen=127.0.0.1:0",
            "--set",
            &format!("state_dir={}", cluster.beside("state").display()),
            "--set",
            &format!("targets={}", target.display()),
        ],
    );
    assert!(said.contains("client") && said.contains("key"), "{said}");
    assert_eq!(cluster.of("storaged").len(), 2);
    // A key that others can read is none.
    let open = cluster.beside("open.key");
    fs::copy(cluster.dir().join("cluster.key"), &open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let said = list(open.to_str().unwrap());
    assert!(said.contains("0400") || said.contains("chmod"), "{said}");
}
