//! A port scanner leaves nothing behind. Alone in its file: it counts what the whole process holds.

mod rig;

use rig::*;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Goal: a thousand connections that come and go cost neither descriptors nor threads nor memory, and
/// the log stays short.
#[test]
fn a_thousand_visits() {
    for which in [Which::Event, Which::Stream] {
        let server = Running::start(which, Setup::default());
        let address: SocketAddr = server.tcp.resolve().unwrap()[0];
        let visit = |times: usize| (0..times).for_each(|_| drop(TcpStream::connect(address).unwrap()));
        let settle = |server: &Running, (fds, tasks): (usize, usize)| {
            let until = Instant::now() + PATIENCE;
            loop {
                // A served call proves that the visitors before it were accepted.
                let mut link = server.link(&server.tcp, &hello(0, 0, 1));
                call(&mut link, ECHO, 1, &[], &[], &mut []);
                drop(link);
                if descriptors() <= fds && threads() <= tasks {
                    break;
                }
                assert!(Instant::now() < until, "{which:?}: descriptors or threads are left over");
                std::thread::yield_now();
            }
        };
        let held = (descriptors(), threads());
        visit(200);
        settle(&server, held);
        let before = resident_kib();
        visit(1_000);
        settle(&server, held);
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 2_048, "{which:?}: grown by {grown} KiB");
        let lines = server.finish().iter().filter(|seen| matches!(seen, Seen::Log(_))).count();
        assert!((1..300).contains(&lines), "{which:?}: {lines} lines for 1,200 visits");
    }
}
