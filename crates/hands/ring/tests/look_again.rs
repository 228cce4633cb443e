//! A reactor that looks again before it sleeps. In a process of its own: what is set counts for all of its threads.
#![allow(clippy::unwrap_used)]

use skep_ring::{Reactor, look_again_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Within it a busy machine may have a processor for everybody.
const TRIES: usize = 20;
/// Only who looks again enters the kernel so often.
const LOOKS: u64 = 1_000;

/// Goal: who runs a reactor is asked whether it is to go on when another thread has called, also when that comes while it looks
/// again and makes no task ready. (Where the machine is busy all the time it does not look, and is woken.)
#[test]
fn a_call_that_makes_no_task_ready_is_noticed() {
    let moment = Duration::from_millis(200);
    look_again_for(moment);
    for _ in 0..TRIES {
        let reactor = Reactor::new(8).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (remote, ends) = (reactor.remote(), is_over.clone());
        // It is what is waited for, and comes never.
        let _expected = reactor.expects();
        let (begun, at_most) = (Instant::now(), Duration::from_secs(20));
        reactor.spawn(reactor.sleep(at_most));
        let caller = thread::spawn(move || {
            // Behind the beginning of the look.
            thread::sleep(moment / 4);
            ends.store(true, Ordering::Release);
            remote.post(Box::new(|| {}));
        });
        reactor.run(|| is_over.load(Ordering::Acquire)).unwrap();
        caller.join().unwrap();
        assert!(begun.elapsed() < at_most / 2, "{:?}", begun.elapsed());
        if reactor.turns() > LOOKS {
            return;
        }
    }
}
