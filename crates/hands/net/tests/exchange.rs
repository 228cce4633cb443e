//! Links against both servers, over both kinds of sockets.

mod rig;

use rig::*;
use skep_net::{Cause, EventLimits, Link, StreamLimits};
use skep_types::Role;
use skep_wire::Header;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const BOTH: [Which; 2] = [Which::Event, Which::Stream];

/// Goal: bodies and payloads of all sizes arrive unchanged in both directions, with the service's epoch.
#[test]
fn round_trips_of_all_sizes() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        for (n, at) in [&server.unix, &server.tcp].into_iter().enumerate() {
            let mut link = server.link(at, &hello(1, n as u32, 1));
            assert_eq!(link.welcome().node.0, 9);
            let mut into = vec![0; 4 << 20];
            let sizes = [
                (0, 0),
                (200, 0),
                (0, 1),
                (16 << 10, 5),
                (1 << 20, 0),
                (100, 16 << 10),
                (100, 1 << 20),
                (3, 4 << 20),
            ];
            for (n, (body, payload)) in sizes.into_iter().enumerate() {
                let (body, payload) = (pattern(body), pattern(payload));
                let (header, back) = call(&mut link, ECHO, n as u64, &body, &payload, &mut into);
                assert_eq!(
                    (header.request, header.kind, header.epoch, header.status),
                    (n as u64, ECHO, EPOCH, 0)
                );
                assert_eq!(back, body);
                assert_eq!(&into[..header.payload_len as usize], &payload[..], "{which:?} {at}");
            }
        }
    }
}

/// Goal: requests sent without waiting are all answered, in order, also beyond a round's share.
#[test]
fn pipelining() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        for (n, at) in [&server.unix, &server.tcp].into_iter().enumerate() {
            let mut link = server.link(at, &hello(1, n as u32, 1));
            for id in 0..1_000 {
                link.send(&Header::request(ECHO, id), &id.to_le_bytes(), &[]).unwrap();
            }
            for id in 0..1_000u64 {
                let (header, body) = answer(&mut link, &mut []);
                assert_eq!((header.request, body.as_slice()), (id, &id.to_le_bytes()[..]));
            }
        }
    }
}

/// Goal: one-way frames go out in order with the next request and are not answered.
#[test]
fn one_way_frames() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let mut link = server.link(&server.tcp, &hello(1, 0, 1));
        link.post(&Header::request(ECHO, 1), b"a").unwrap();
        link.post(&Header::request(ECHO, 2), b"b").unwrap();
        let (header, _) = call(&mut link, ECHO, 3, b"c", &[], &mut []);
        assert_eq!(header.request, 3);
        let served: Vec<Seen> =
            server.finish().into_iter().filter(|s| matches!(s, Seen::Request(..))).collect();
        assert_eq!(served, [Seen::Request(1, 1), Seen::Request(1, 2), Seen::Request(1, 3)]);
    }
}

/// Goal: a waiting caller can give up or run out of time; the link stays in step and the late answer comes.
#[test]
fn cancelled_and_timed_out() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let mut link = server.link(&server.unix, &hello(1, 0, 1));
        link.send(&Header::request(GATED, 5), b"x", &[]).unwrap();
        let far = Instant::now() + PATIENCE;
        assert!(link.recv(&mut [], far, &|| true).unwrap_err().is_cancelled());
        assert!(link.recv(&mut [], Instant::now(), &|| false).unwrap_err().is_timeout());
        assert!(link.is_usable());
        server.gate.send(()).unwrap();
        assert_eq!(answer(&mut link, &mut []).0.request, 5);
    }
}

/// Goal: an answer that is longer than the caller's buffer is an error, and the link is given up.
#[test]
fn a_payload_without_room() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let mut link = server.link(&server.tcp, &hello(1, 0, 1));
        link.send(&Header::request(GIVE, 100), &[], &[]).unwrap();
        let error = link.recv(&mut [0; 99], Instant::now() + PATIENCE, &|| false).unwrap_err();
        assert!(matches!(error.cause, Cause::PayloadTooLong { got: 100, room: 99 }), "{error}");
        assert!(!link.is_usable());
    }
}

/// Goal: too much to send is refused on our side, before a byte of it leaves.
#[test]
fn too_long_to_send() {
    let server = Running::start(Which::Stream, Setup::default());
    let mut link = server.link(&server.unix, &hello(1, 0, 1));
    let error = link.send(&Header::request(ECHO, 1), &vec![0; (1 << 20) + 1], &[]).unwrap_err();
    assert!(matches!(error.cause, Cause::TooLong));
    assert_eq!(call(&mut link, ECHO, 2, b"ok", &[], &mut []).1, b"ok");
}

/// Goal: the service's refusal of a hello reaches the caller with its text.
#[test]
fn refused_hello() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let mut bad = hello(1, 0, 1);
        bad.cluster.0 = [0xff; 16];
        let error = server.try_link(&server.tcp, &bad).unwrap_err();
        assert_eq!(error.refusal().unwrap().detail, "another cluster");
        assert!(server.wait_for_log().contains("another cluster"));
    }
}

/// Goal: the last connection that is allowed works, one more is refused with the limit's name, and a
/// freed place can be taken again.
#[test]
fn connection_limit() {
    for which in BOTH {
        let setup = Setup {
            event: EventLimits { connections: 2, turn: PATIENCE, ..Default::default() },
            stream: StreamLimits { connections: 2, turn: PATIENCE, ..Default::default() },
            ..Default::default()
        };
        let server = Running::start(which, setup);
        let mut links: Vec<Link> =
            (0..2).map(|n| server.link(&server.unix, &hello(1, n, u64::from(n)))).collect();
        for link in &mut links {
            call(link, ECHO, 1, &[], &[], &mut []);
        }
        let error = server.try_link(&server.tcp, &hello(1, 2, 2)).unwrap_err();
        assert!(error.to_string().contains("max_connections"), "{error}");
        links.pop();
        server.wait_for(|seen| *seen == Seen::Closed(1));
        // The stream server frees the place just after it told of the end.
        let until = Instant::now() + PATIENCE;
        while server.try_link(&server.tcp, &hello(1, 3, 3)).is_err() {
            assert!(Instant::now() < until, "the place was not freed");
        }
    }
}

/// Goal: servers at their limit take turns. One that has had its turn makes room for another client: the one that has been
/// idle longest, or else, where all wait for answers, the oldest.
#[test]
fn connections_take_turns() {
    let turn = Duration::from_millis(100);
    let setup = Setup {
        event: EventLimits { connections: 2, turn, ..Default::default() },
        stream: StreamLimits { connections: 2, turn, ..Default::default() },
        ..Default::default()
    };
    let comes = |server: &Running, group| {
        let until = Instant::now() + PATIENCE;
        loop {
            match server.try_link(&server.tcp, &hello(1, group, 9)) {
                Ok(link) => return link,
                Err(e) => assert!(Instant::now() < until, "no turn: {e}"),
            }
        }
    };
    let both_had_theirs = || std::thread::sleep(turn);
    for which in BOTH {
        let server = Running::start(which, setup.clone());
        let mut first = server.link(&server.unix, &hello(1, 0, 0));
        let mut second = server.link(&server.unix, &hello(1, 1, 1));
        call(&mut second, ECHO, 1, &[], &[], &mut []);
        let answered = skep_net::now();
        while skep_net::now() == answered {}
        call(&mut first, ECHO, 2, &[], &[], &mut []);
        both_had_theirs();
        let mut third = comes(&server, 2);
        let gone = server.wait_for(|seen| matches!(seen, Seen::Closed(_)));
        // A connection of the stream server is idle when its thread says so, which may be late.
        let left = if which == Which::Stream && gone == Seen::Closed(0) { &mut second } else { &mut first };
        assert!(which == Which::Stream || gone == Seen::Closed(1), "{gone:?}");
        call(left, ECHO, 3, &[], &[], &mut []);
        call(&mut third, ECHO, 4, &[], &[], &mut []);
    }
    let server = Running::start(Which::Event, setup);
    let mut first = server.link(&server.unix, &hello(1, 0, 0));
    let mut second = server.link(&server.unix, &hello(1, 1, 1));
    for link in [&mut first, &mut second] {
        link.send(&Header::request(NEVER, 1), &[], &[]).unwrap();
    }
    server.wait_for(|seen| *seen == Seen::Request(1, 1));
    both_had_theirs();
    let mut third = comes(&server, 2);
    assert_eq!(server.wait_for(|seen| matches!(seen, Seen::Closed(_))), Seen::Closed(0));
    call(&mut third, ECHO, 4, &[], &[], &mut []);
}

/// Goal: a newer connection of a lane ends the older one before its own first request is served, an
/// older one is refused while it is open, and other lanes are left alone.
#[test]
fn superseding() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let mut other = server.link(&server.unix, &hello(1, 8, 1));
        let mut old = server.link(&server.tcp, &hello(1, 7, 4));
        call(&mut old, ECHO, 1, &[], &[], &mut []);
        let mut new = server.link(&server.unix, &hello(1, 7, 5));
        call(&mut new, ECHO, 2, &[], &[], &mut []);
        // The old one may still take our bytes, but it is never served and its reader is told.
        let _ = old.send(&Header::request(ECHO, 3), &[], &[]);
        assert!(matches!(
            old.recv(&mut [], Instant::now() + PATIENCE, &|| false).unwrap_err().cause,
            Cause::Closed
        ));
        let late = server.try_link(&server.tcp, &hello(1, 7, 4)).and_then(|mut link| {
            link.send(&Header::request(ECHO, 4), &[], &[])?;
            link.recv(&mut [], Instant::now() + PATIENCE, &|| false).map(|_| ())
        });
        assert!(late.is_err(), "an older connection was served beside a newer one");
        call(&mut other, ECHO, 5, &[], &[], &mut []);
        let seen = server.finish();
        let order: Vec<&Seen> =
            seen.iter().filter(|s| matches!(s, Seen::Request(..) | Seen::Closed(4))).collect();
        let expected = [Seen::Request(4, 1), Seen::Closed(4), Seen::Request(5, 2), Seen::Request(1, 5)];
        assert_eq!(order, expected.iter().collect::<Vec<_>>(), "{which:?}");
    }
}

/// One request of the old connection every few milliseconds: the pace of the test below, not its proof.
fn pace() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Goal: requests of a superseded connection that were received but not begun are dropped.
#[test]
fn superseding_drops_what_was_not_begun() {
    for which in BOTH {
        // One request per round, so that the event server has some left over, too.
        let event = EventLimits { requests_per_round: 1, ..Default::default() };
        let server = Running::start(which, Setup { event, ..Default::default() });
        let mut old = server.link(&server.unix, &hello(1, 7, 1));
        old.send(&Header::request(GATED, 1), &[], &[]).unwrap();
        server.wait_for(|seen| *seen == Seen::Request(1, 1));
        for id in 2..100 {
            old.send(&Header::request(GATED, id), &[], &[]).unwrap();
        }
        let (at, keyring) = ([server.unix.clone()], server.keyring.clone());
        let new = std::thread::spawn(move || {
            let mut new = Link::connect(&at, &keyring, &hello(1, 7, 2), Instant::now() + PATIENCE).unwrap();
            call(&mut new, ECHO, 1, &[], &[], &mut []);
        });
        // Request by request, until the new one is there: far fewer than a hundred are needed.
        let mut begun = which == Which::Event;
        while !new.is_finished() {
            begun = begun || server.seen.try_iter().any(|s| s == Seen::Hello(2));
            if begun {
                server.gate.send(()).unwrap();
            }
            pace();
        }
        new.join().unwrap();
        let seen = server.finish();
        let first_new = seen.iter().position(|s| *s == Seen::Request(2, 1)).unwrap();
        assert!(seen[..first_new].contains(&Seen::Closed(1)), "{which:?}: the old one was still open");
        assert!(
            !seen[first_new..].iter().any(|s| matches!(s, Seen::Request(1, _))),
            "{which:?}: order broken"
        );
    }
}

/// Goal: the stream server lets the request in work of a superseded connection end first.
#[test]
fn superseding_waits_for_the_request_in_work() {
    let server = Running::start(Which::Stream, Setup::default());
    let mut old = server.link(&server.unix, &hello(1, 7, 1));
    for id in 1..=3 {
        old.send(&Header::request(GATED, id), &[], &[]).unwrap();
    }
    server.wait_for(|seen| *seen == Seen::Request(1, 1));
    let mut new = server.link(&server.unix, &hello(1, 7, 2));
    new.send(&Header::request(ECHO, 1), &[], &[]).unwrap();
    // The old connection's reader sees its end as soon as the new one was admitted...
    let gone = old.recv(&mut [], Instant::now() + PATIENCE, &|| false).unwrap_err();
    assert!(matches!(gone.cause, Cause::Closed), "{gone}");
    // ... and the new one is not served before the old request is done.
    let waiting = new.recv(&mut [], Instant::now() + Duration::from_millis(200), &|| false);
    assert!(waiting.unwrap_err().is_timeout());
    server.gate.send(()).unwrap();
    answer(&mut new, &mut []);
    let seen = server.finish();
    let requests: Vec<&Seen> = seen.iter().filter(|s| matches!(s, Seen::Request(..))).collect();
    assert_eq!(requests, [&Seen::Request(2, 1)], "what was not begun must not be served");
}

/// Goal: a connection that sends without end gets its share of a round, another one its own.
#[test]
fn fairness() {
    let event = EventLimits { requests_per_round: 4, ..Default::default() };
    let server = Running::start(Which::Event, Setup { event, ..Default::default() });
    let mut greedy = server.link(&server.unix, &hello(1, 0, 1));
    let mut modest = server.link(&server.unix, &hello(1, 1, 2));
    greedy.send(&Header::request(GATED, 0), &[], &[]).unwrap();
    server.wait_for(|seen| *seen == Seen::Request(1, 0));
    for id in 1..200 {
        greedy.post(&Header::request(ECHO, id), &[]).unwrap();
    }
    greedy.flush().unwrap();
    modest.send(&Header::request(ECHO, 1), &[], &[]).unwrap();
    server.gate.send(()).unwrap();
    answer(&mut modest, &mut []);
    let mut seen = Vec::new();
    while seen.last() != Some(&Seen::Request(1, 199)) {
        seen.push(server.seen.recv_timeout(PATIENCE).expect("requests were lost"));
    }
    let before =
        seen.iter().take_while(|s| **s != Seen::Request(2, 1)).filter(|s| matches!(s, Seen::Request(1, _)));
    assert!(before.count() <= 3 * 4, "the modest connection had to wait for the greedy one");
    assert_eq!(seen.iter().filter(|s| matches!(s, Seen::Request(1, _))).count(), 199, "nothing was lost");
}

/// Goal: a peer that asks for much and reads nothing is stopped at the limit, then closed; a peer that
/// reads late gets everything.
#[test]
fn a_peer_that_does_not_read() {
    let event = EventLimits { outbound: 1 << 20, ..Default::default() };
    let server = Running::start(Which::Event, Setup { event, ..Default::default() });
    let piece = 100_000u64;
    // One round's worth exceeds the limit: closed with a line.
    let mut never = server.link(&server.tcp, &hello(1, 1, 2));
    never.send(&Header::request(GATED, 0), &[], &[]).unwrap();
    server.wait_for(|seen| *seen == Seen::Request(2, 0));
    for _ in 0..64 {
        never.send(&Header::request(GIVE, 1 << 20), &[], &[]).unwrap();
    }
    server.gate.send(()).unwrap();
    let line = server.wait_for_log();
    assert!(line.contains("does not read"), "{line}");
    server.wait_for(|seen| *seen == Seen::Closed(2));
    // Below it: reading pauses and goes on when the peer reads.
    let slow = Running::start(
        Which::Event,
        Setup {
            event: EventLimits { outbound: 8 << 20, requests_per_round: 8, ..Default::default() },
            ..Default::default()
        },
    );
    let mut link = slow.link(&slow.unix, &hello(1, 2, 3));
    for _ in 0..300 {
        link.send(&Header::request(GIVE, piece), &[], &[]).unwrap();
    }
    let mut into = vec![0; piece as usize];
    for _ in 0..300 {
        assert_eq!(u64::from(answer(&mut link, &mut into).0.payload_len), piece);
    }
}

/// Goal: the waker and the service's deadline start a round, and without either nothing runs.
#[test]
fn wakes_deadlines_and_rest() {
    let server = Running::start(Which::Event, Setup::default());
    let mut link = server.link(&server.unix, &hello(1, 0, 1));
    call(&mut link, ECHO, 1, &[], &[], &mut []);
    server.waker.as_ref().unwrap().wake();
    server.wait_for(|seen| *seen == Seen::Woken);
    *server.echo.deadline.lock().unwrap() = Some(skep_net::now().plus(20));
    server.waker.as_ref().unwrap().wake();
    server.wait_for(|seen| *seen == Seen::Woken); // the waker
    server.wait_for(|seen| *seen == Seen::Woken); // the deadline
    call(&mut link, ECHO, 2, &[], &[], &mut []);
    // The round of that call may still be ending; from then on the loop must sleep.
    let until = Instant::now() + PATIENCE;
    loop {
        let before = server.echo.rounds.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        if server.echo.rounds.load(Ordering::SeqCst) == before {
            break;
        }
        assert!(Instant::now() < until, "an idle loop keeps running");
    }
}

/// Goal: a stopped server tells its peers by closing, frees its address, and a new one takes over.
#[test]
fn stop_restart_reconnect() {
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let (at, keyring) = (vec![server.unix.clone(), server.tcp.clone()], server.keyring.clone());
        let mut link = server.link(&server.tcp, &hello(1, 0, 1));
        call(&mut link, ECHO, 1, &[], &[], &mut []);
        let dir = server.unix.clone();
        server.finish();
        let error = link.recv(&mut [], Instant::now() + PATIENCE, &|| false).unwrap_err();
        assert!(matches!(error.cause, Cause::Closed), "{error}");
        let gone = Link::connect(&at, &keyring, &hello(1, 0, 2), Instant::now() + PATIENCE).unwrap_err();
        assert!(matches!(gone.cause, Cause::Unreachable(_)), "{gone}");
        let _keep = TempDir::new();
        let unix = skep_net::Endpoint::Unix(_keep.path().join("again"));
        assert_ne!(unix, dir);
        let at = vec![unix, at[1].clone()];
        let again =
            Running::start(which, Setup { keyring: Some(keyring), at: Some(at), ..Default::default() });
        let mut link = again.link(&again.tcp, &hello(1, 0, 2));
        call(&mut link, ECHO, 2, &[], &[], &mut []);
    }
}

/// Goal: stop waits for the request in work.
#[test]
fn stop_waits_for_work() {
    let server = Running::start(Which::Stream, Setup::default());
    let mut link = server.link(&server.unix, &hello(1, 0, 1));
    link.send(&Header::request(GATED, 1), &[], &[]).unwrap();
    server.wait_for(|seen| *seen == Seen::Request(1, 1));
    server.stop.stop();
    // The acceptor ends the connection at once...
    let gone = link.recv(&mut [], Instant::now() + PATIENCE, &|| false).unwrap_err();
    assert!(matches!(gone.cause, Cause::Closed));
    // ... but `run` does not return before the handler did.
    assert!(!server.thread.as_ref().unwrap().is_finished());
    server.gate.send(()).unwrap();
    server.finish();
}

/// Goal: servers, administrators and insecure set-ups connect by the same means.
#[test]
fn roles_and_insecure() {
    for which in BOTH {
        for keyring in [None, Some(skep_net::Keyring::insecure())] {
            let server = Running::start(which, Setup { keyring, ..Default::default() });
            for (n, role) in [Role::Server, Role::Admin, Role::Client].into_iter().enumerate() {
                let mut link = server.link(&server.tcp, &skep_wire::Hello { role, ..hello(0, 0, n as u64) });
                call(&mut link, ECHO, 1, b"x", b"y", &mut [0]);
            }
        }
    }
}

/// Goal: payloads to both servers and over both kinds of sockets arrive, whether memory was offered or not; only the stream
/// server takes it, and only over a Unix socket.
#[test]
fn memory_where_it_can_be_shared() {
    let payload = pattern(1 << 20);
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        for (group, (at, offered)) in
            (1..).zip([(&server.unix, true), (&server.unix, false), (&server.tcp, true)])
        {
            let features = if offered { skep_wire::SHARED_MEMORY } else { 0 };
            let mut link = server.link(at, &skep_wire::Hello { features, ..hello(1, group, 1) });
            let taken = which == Which::Stream && group == 1;
            assert_eq!(link.welcome().features, if taken { features } else { 0 });
            let mut back = vec![0; payload.len()];
            link.ask(&Header::request(ECHO, 1), b"a body", &payload, back.len()).unwrap();
            let (header, body) = answer(&mut link, &mut back);
            assert_eq!((header.slot, &body[..]), (u32::from(taken), &b"a body"[..]));
            assert!(back == payload);
        }
    }
}
