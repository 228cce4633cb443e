//! Peers that take nothing: every side gives them up in its time.

mod rig;

use rig::*;
use skep_net::{Cause, EventLimits, StreamLimits};
use skep_wire::Header;
use std::time::{Duration, Instant};

/// In place of the 30 s of [`skep_net::SEND_DEADLINE`].
const SHORT: Duration = Duration::from_millis(300);

/// Goal: a service that takes nothing of a request is given up at the deadline, and the link with it.
#[test]
fn a_service_that_does_not_read() {
    let server = Running::start(Which::Event, Setup::default());
    let mut link = server.link(&server.unix, &hello(1, 0, 1));
    link.set_send_deadline(SHORT);
    link.send(&Header::request(GATED, 1), &[], &[]).unwrap();
    server.wait_for(|seen| *seen == Seen::Request(1, 1));
    let began = Instant::now();
    let long = pattern(4 << 20);
    let error = (2..).find_map(|id| link.send(&Header::request(ECHO, id), &[], &long).err()).unwrap();
    assert!(error.is_timeout() && began.elapsed() >= SHORT, "{error}");
    assert!(!link.is_usable());
    assert!(matches!(link.send(&Header::request(ECHO, 9), &[], &[]).unwrap_err().cause, Cause::Broken));
    server.gate.send(()).unwrap();
}

/// Goal: both servers close a connection that does not take its replies, with a line, although its
/// replies are within the limit of bytes; the others are served meanwhile.
#[test]
fn a_client_that_does_not_read() {
    for which in [Which::Event, Which::Stream] {
        let event = EventLimits { stalled: SHORT, ..Default::default() };
        let stream = StreamLimits { stalled: SHORT, ..Default::default() };
        let server = Running::start(which, Setup { event, stream, ..Default::default() });
        let mut deaf = server.link(&server.unix, &hello(1, 0, 1));
        let mut other = server.link(&server.unix, &hello(1, 1, 2));
        for _ in 0..2 {
            deaf.send(&Header::request(GIVE, 4 << 20), &[], &[]).unwrap();
        }
        call(&mut other, ECHO, 1, &[], &[], &mut []);
        // The line and the end, in whichever order the server has them.
        let ends = |seen: &Seen| {
            *seen == Seen::Closed(1) || matches!(seen, Seen::Log(line) if line.contains("closed"))
        };
        assert_ne!(server.wait_for(ends), server.wait_for(ends));
        call(&mut other, ECHO, 2, &[], &[], &mut []);
    }
}
