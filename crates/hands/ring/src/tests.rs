//! The reactor with real sockets.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::Reactor;

fn reactor() -> Reactor {
    Reactor::new(64).expect("these tests need io_uring (kernel.io_uring_disabled = 0)")
}

/// Gives way once.
async fn step() {
    let mut gave = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Goal: bytes go both ways, buffers come back, the offset counts and the end of the other side is a 0.
#[test]
fn bytes_both_ways() {
    let reactor = reactor();
    let (here, mut there) = UnixStream::pair().unwrap();
    let talk = async {
        let (sent, buffer) = reactor.send(here.as_fd(), b"xxhello".to_vec(), 2).await;
        assert_eq!((sent.unwrap(), &buffer[..]), (5, &b"xxhello"[..]));
        let mut bytes = [0; 5];
        there.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        there.write_all(b"world").unwrap();
        let (got, buffer) = reactor.recv(here.as_fd(), vec![b'.'; 9], 3).await;
        assert_eq!((got.unwrap(), &buffer[..]), (5, &b"...world."[..]));
        let (got, buffer) = reactor.recv(here.as_fd(), vec![0; 3], 7).await;
        assert_eq!((got.unwrap_err().kind(), buffer.len()), (std::io::ErrorKind::InvalidInput, 3));
        drop(there);
        let (got, _) = reactor.recv_later(here.as_fd(), vec![0; 9], 0).await;
        assert_eq!(got.unwrap(), 0);
        let (sent, _) = reactor.send(here.as_fd(), vec![1], 0).await;
        assert_eq!(sent.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    };
    reactor.block_on(talk).unwrap();
}

/// Goal: a request and its answer, with the receive armed before, cost one entry into the kernel each.
#[test]
fn one_entry_per_turn() {
    let reactor = reactor();
    let (here, there) = UnixStream::pair().unwrap();
    const ROUNDS: u64 = 100;
    let echo = async {
        for _ in 0..ROUNDS {
            let (got, buffer) = reactor.recv(there.as_fd(), vec![0; 8], 0).await;
            let (sent, _) = reactor.send(there.as_fd(), buffer[..got.unwrap()].to_vec(), 0).await;
            assert_eq!(sent.unwrap(), 8);
        }
    };
    let ask = async {
        for round in 0..ROUNDS {
            let bytes = round.to_ne_bytes().to_vec();
            let (sent, _) = reactor.send(here.as_fd(), bytes.clone(), 0).await;
            assert_eq!(sent.unwrap(), 8);
            let (got, buffer) = reactor.recv(here.as_fd(), vec![0; 8], 0).await;
            assert_eq!((got.unwrap(), buffer), (8, bytes));
        }
    };
    let before = reactor.turns();
    reactor
        .scope(|scope| {
            scope.spawn(echo);
            scope.spawn(ask);
            reactor.run(|| reactor.tasks() == 0)
        })
        .unwrap();
    let turns = reactor.turns() - before;
    // Send, receive and send, receive: four operations a round, each a turn at most.
    assert!(turns <= 4 * ROUNDS + 2, "{turns} turns");
}

/// Goal: a future dropped in the middle neither stays in flight nor lets the kernel write into freed memory, and
/// the descriptor's number may be used again at once.
#[test]
fn dropped_in_the_middle() {
    let reactor = reactor();
    for _ in 0..200 {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (other, mut friend) = UnixStream::pair().unwrap();
        let give_up = async {
            let mut waits = Box::pin(reactor.recv(here.as_fd(), vec![0; 64], 0));
            poll_fn(|cx| {
                assert!(waits.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(waits);
            drop(here);
            // Very likely the same number.
            let again = other.try_clone().unwrap();
            friend.write_all(b"for the other one").unwrap();
            let _ = there.write(b"for nobody");
            let (got, buffer) = reactor.recv(again.as_fd(), vec![0; 64], 0).await;
            assert_eq!(&buffer[..got.unwrap()], b"for the other one");
        };
        reactor.block_on(give_up).unwrap();
    }
    let settle = || reactor.inner().operations.borrow().pending() == 0;
    reactor
        .block_on(async {
            while !settle() {
                reactor.sleep(Duration::from_millis(1)).await
            }
        })
        .unwrap();
}

/// Goal: a receive that was submitted and then dropped is cancelled, and the connection goes on.
#[test]
fn cancelled_after_submission() {
    let reactor = reactor();
    let (here, mut there) = UnixStream::pair().unwrap();
    let run = async {
        let mut waits = Box::pin(reactor.recv(here.as_fd(), vec![0; 64], 0));
        let mut nap = Box::pin(reactor.sleep(Duration::from_millis(5)));
        poll_fn(|cx| {
            assert!(waits.as_mut().poll(cx).is_pending());
            nap.as_mut().poll(cx)
        })
        .await;
        drop(waits);
        while reactor.inner().operations.borrow().pending() > 0 {
            reactor.sleep(Duration::from_millis(1)).await;
        }
        there.write_all(b"later").unwrap();
        let (got, buffer) = reactor.recv(here.as_fd(), vec![0; 64], 0).await;
        assert_eq!(&buffer[..got.unwrap()], b"later");
    };
    reactor.block_on(run).unwrap();
}

/// Goal: jobs from other threads run on the reactor's, all of them; after its end they are refused.
#[test]
fn jobs_from_other_threads() {
    const THREADS: usize = 4;
    const JOBS: usize = 500;
    let reactor = reactor();
    let done = Arc::new(AtomicUsize::new(0));
    let home = std::thread::current().id();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let remote = reactor.remote();
            let done = Arc::clone(&done);
            scope.spawn(move || {
                for _ in 0..JOBS {
                    let done = Arc::clone(&done);
                    assert!(remote.post(Box::new(move || {
                        assert_eq!(std::thread::current().id(), home);
                        done.fetch_add(1, SeqCst);
                    })));
                }
            });
        }
        reactor.run(|| done.load(SeqCst) == THREADS * JOBS).unwrap();
    });
    let remote = reactor.remote();
    drop(reactor);
    assert!(!remote.post(Box::new(|| {})));
}

/// Goal: a task that another thread wakes goes on, without any completion of the kernel's.
#[test]
fn woken_by_another_thread() {
    let reactor = reactor();
    let (sender, receiver) = mpsc::channel::<std::task::Waker>();
    let waker = std::thread::spawn(move || receiver.into_iter().for_each(std::task::Waker::wake));
    let woken = Rc::new(Cell::new(0));
    let seen = Rc::clone(&woken);
    reactor.spawn(async move {
        for _ in 0..100 {
            let mut asked = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut asked, true) {
                    return Poll::Ready(());
                }
                sender.send(cx.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
            seen.set(seen.get() + 1);
        }
    });
    reactor.run(|| reactor.tasks() == 0).unwrap();
    assert_eq!(woken.get(), 100);
    waker.join().unwrap();
}

/// Goal: sleepers wake in the order of their deadlines, not before them; one that is dropped wakes nobody.
#[test]
fn timers() {
    let reactor = reactor();
    let order = RefCell::new(Vec::new());
    let start = Instant::now();
    reactor
        .scope(|scope| {
            for milliseconds in [30, 10, 20] {
                let (reactor, order) = (&reactor, &order);
                scope.spawn(async move {
                    reactor.sleep_until(start + Duration::from_millis(milliseconds)).await;
                    assert!(start.elapsed() >= Duration::from_millis(milliseconds));
                    order.borrow_mut().push(milliseconds);
                });
            }
            let mut forgotten = Box::pin(reactor.sleep(Duration::from_millis(1)));
            let waker = std::task::Waker::noop();
            assert!(forgotten.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
            drop(forgotten);
            reactor.run(|| reactor.tasks() == 0)
        })
        .unwrap();
    assert_eq!(*order.borrow(), [10, 20, 30]);
    assert!(reactor.inner().timers.borrow().next_in().is_none());
}

/// Goal: tasks that never rest keep neither each other nor sockets and timers from their turn.
#[test]
fn fairness() {
    let reactor = reactor();
    let (here, mut there) = UnixStream::pair().unwrap();
    let steps = [Cell::new(0u64), Cell::new(0)];
    let stop = Cell::new(false);
    there.write_all(b"x").unwrap();
    reactor
        .scope(|scope| {
            for count in &steps {
                let stop = &stop;
                scope.spawn(async move {
                    while !stop.get() {
                        count.set(count.get() + 1);
                        step().await;
                    }
                });
            }
            scope.spawn(async {
                reactor.recv(here.as_fd(), vec![0; 1], 0).await.0.unwrap();
                reactor.sleep(Duration::from_millis(5)).await;
                stop.set(true);
            });
            reactor.run(|| reactor.tasks() == 0)
        })
        .unwrap();
    assert!(steps[0].get() > 10 && steps[0].get().abs_diff(steps[1].get()) <= 1);
}

/// Goal: more operations in one turn than the queue has places all happen.
#[test]
fn more_than_the_queue_holds() {
    const PAIRS: usize = 50;
    let reactor = Reactor::new(4).unwrap();
    let pairs: Vec<_> = (0..PAIRS).map(|_| UnixStream::pair().unwrap()).collect();
    let got = Cell::new(0);
    reactor
        .scope(|scope| {
            for (here, there) in &pairs {
                let (reactor, got) = (&reactor, &got);
                scope.spawn(async move {
                    reactor.readable(here.as_fd()).await.unwrap();
                    let length = reactor.recv(here.as_fd(), vec![0; 4], 0).await.0.unwrap();
                    got.set(got.get() + length);
                });
                scope.spawn(async move {
                    reactor.writable(there.as_fd()).await.unwrap();
                    reactor.send(there.as_fd(), vec![7; 4], 0).await.0.unwrap();
                });
            }
            reactor.run(|| reactor.tasks() == 0)
        })
        .unwrap();
    assert_eq!(got.get(), PAIRS * 4);
}

/// Goal: tasks of a scope are dropped at its end, also when it ends by a panic, and so are all tasks on demand.
#[test]
fn ends_of_tasks() {
    struct Counted<'a>(&'a Cell<u32>);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let reactor = reactor();
    let dropped = Cell::new(0);
    reactor.scope(|scope| {
        let counted = Counted(&dropped);
        scope.spawn(async {
            let _counted = counted;
            std::future::pending::<()>().await;
        });
        let mut rounds = 0;
        reactor.spawn(async {});
        reactor
            .run(|| {
                rounds += 1;
                true
            })
            .unwrap();
        assert_eq!((rounds, dropped.get()), (1, 0));
    });
    assert_eq!((dropped.get(), reactor.tasks()), (1, 0));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        reactor.scope(|scope| {
            for _ in 0..2 {
                let counted = Counted(&dropped);
                scope.spawn(async {
                    let _counted = counted;
                    step().await;
                    panic!("what the test wants");
                });
            }
            reactor.run(|| false).unwrap();
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(dropped.get(), 3);
    let held = reactor.clone();
    reactor.spawn(async move { held.sleep(Duration::from_secs(3600)).await });
    reactor.run(|| true).unwrap();
    reactor.drop_tasks();
    assert_eq!(Rc::strong_count(reactor.inner()), 1);
}
