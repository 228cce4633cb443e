//! A port scanner leaves nothing behind. Alone in its file: it counts what the whole process holds.

mod rig;

use rig::*;
use skep_net::StreamLimits;
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

/// Visits after those that warm the allocator up.
const VISITS: usize = 5_000;
/// What may be held more afterwards. Far below a kibibyte for each: a buffer, a stack or a key state that
/// stayed behind would show. Not nothing: the C library keeps some memory of threads that have ended.
const GROWTH_KIB: usize = 1_024;

/// Threads that visitors may occupy at once: the limit set below, and some that are just leaving.
const THREADS: usize = 32;

/// Goal: thousands of connections that come and go cost neither descriptors nor threads nor memory, and
/// the log stays short.
#[test]
fn thousands_of_visits() {
    for which in [Which::Event, Which::Stream] {
        let server = {
            // Few threads at a time, so that their stacks do not hide what each visit costs.
            let stream = StreamLimits { half_open: 4, ..Default::default() };
            Running::start(which, Setup { stream, ..Default::default() })
        };
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
        visit(1_000);
        settle(&server, held);
        let before = resident_kib();
        let mut peak = 0;
        for _ in 0..VISITS / 100 {
            visit(100);
            peak = peak.max(threads());
        }
        assert!(peak <= held.1 + THREADS, "{which:?}: {peak} threads at once for visitors");
        settle(&server, held);
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < GROWTH_KIB, "{which:?}: grown by {grown} KiB");
        let lines = server.finish().iter().filter(|seen| matches!(seen, Seen::Log(_))).count();
        assert!((1..600).contains(&lines), "{which:?}: {lines} lines for 6,000 visits");
    }
}
