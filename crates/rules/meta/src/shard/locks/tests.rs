//! The table of locks against its rules: queues, fairness, circles, limits, repetitions.

use super::table::Table;
use crate::limit::{LOCK_TURN_MS, LOCK_WAITS_PER_CLIENT_MAX, LOCKS_MAX};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{ClientId, Errno, Ino, Millis};
use skep_wire::Status;
use skep_wire::meta::{LockKind, LockOwner, LockSpace, LockState, LockWish};

const FILE: Ino = Ino(9);
const NOW: Millis = Millis(1_000);
const READ: Option<LockKind> = Some(LockKind::Read);
const WRITE: Option<LockKind> = Some(LockKind::Write);

/// A table and what its clients were told.
struct Bench {
    table: Table,
    order: u64,
    told: BTreeMap<(u64, u64), u32>,
    now: Millis,
}

fn wish(owner: u64, kind: Option<LockKind>, start: u64, last: u64) -> LockWish {
    LockWish { owner, pid: owner as u32 + 100, space: LockSpace::Range, kind, start, last }
}

fn flock(owner: u64, kind: Option<LockKind>) -> LockWish {
    LockWish { space: LockSpace::Whole, ..wish(owner, kind, 0, u64::MAX) }
}

impl Bench {
    fn new() -> Self {
        Self { table: Table::default(), order: 0, told: BTreeMap::new(), now: NOW }
    }

    fn set(
        &mut self,
        client: u64,
        ino: Ino,
        lock: LockWish,
        ticket: Option<u64>,
    ) -> Result<LockState, Status> {
        self.order += 1;
        let done = self.table.set(self.now, ino, ClientId(client), &lock, ticket, self.order);
        self.hear();
        done.map_err(|refusal| refusal.status)
    }

    /// Clients hear what became of their wishes.
    fn hear(&mut self) {
        let told = self.table.take_told();
        self.told.extend(told.into_iter().map(|(client, ticket, errno)| ((client.0, ticket), errno)));
    }

    fn told(&self, client: u64, ticket: u64) -> Option<u32> {
        self.told.get(&(client, ticket)).copied()
    }

    fn drop_owner(&mut self, client: u64, owner: u64) {
        self.order += 1;
        let by = LockOwner { client: ClientId(client), owner };
        self.table.drop_owner(self.now, (FILE, LockSpace::Range), by, self.order).unwrap();
        self.hear();
    }

    fn is_empty(&mut self) -> bool {
        for client in 1..=4 {
            self.table.tidy_client(ClientId(client), FILE, false);
        }
        self.table.is_empty()
    }
}

fn errno(e: Errno) -> Status {
    Status::errno(e)
}

/// Goal: a wish waits in line, is granted in the order of coming, several at once where they fit, and
/// nothing is left when all is given up.
#[test]
fn the_queue_is_fair() {
    let mut bench = Bench::new();
    assert_eq!(bench.set(1, FILE, wish(1, WRITE, 0, 99), None), Ok(LockState::Done));
    assert_eq!(bench.set(2, FILE, wish(1, READ, 50, 60), None), Err(errno(Errno::EAGAIN)));
    for (ticket, kind) in [(1, READ), (2, READ), (3, WRITE), (4, READ)] {
        assert_eq!(bench.set(2, FILE, wish(ticket, kind, 10, 20), Some(ticket)), Ok(LockState::Waits));
    }
    assert_eq!(bench.table.waits(), 4);
    bench.set(1, FILE, wish(1, None, 0, 15), None).unwrap();
    assert!(bench.told.is_empty(), "a part of it is still held");
    bench.set(1, FILE, wish(1, None, 16, 99), None).unwrap();
    assert_eq!(
        (bench.told(2, 1), bench.told(2, 2), bench.told(2, 3), bench.told(2, 4)),
        (Some(0), Some(0), None, None)
    );
    // A reader that comes late waits for the writer before it, a reader that does not want to wait does not.
    assert_eq!(bench.set(3, FILE, wish(5, READ, 10, 10), Some(5)), Ok(LockState::Waits));
    assert_eq!(bench.set(3, FILE, wish(6, READ, 10, 10), None), Ok(LockState::Done));
    bench.drop_owner(3, 6);
    bench.drop_owner(2, 1);
    assert_eq!(bench.told(2, 3), None);
    bench.drop_owner(2, 2);
    assert_eq!((bench.told(2, 3), bench.told(2, 4), bench.told(3, 5)), (Some(0), None, None));
    bench.drop_owner(2, 3);
    assert_eq!((bench.told(2, 4), bench.told(3, 5)), (Some(0), Some(0)));
    bench.drop_owner(2, 4);
    bench.drop_owner(3, 5);
    assert!(bench.is_empty());
}

/// Goal: the order of the queue never makes a circle: who holds a lock overtakes whoever waits for it,
/// by owner and by process; and nobody waits for his turn for ever.
#[test]
fn turns_make_no_circles() {
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(1, READ, 0, 9), None).unwrap();
    assert_eq!(bench.set(2, FILE, wish(1, WRITE, 0, 9), Some(1)), Ok(LockState::Waits));
    assert_eq!(bench.set(1, FILE, wish(1, READ, 0, 20), Some(2)), Ok(LockState::Done), "it holds a lock");
    let mut other = wish(77, READ, 5, 5);
    other.pid = wish(1, None, 0, 0).pid;
    assert_eq!(bench.set(1, FILE, other, Some(3)), Ok(LockState::Done), "its process holds a lock");
    assert_eq!(bench.set(3, FILE, wish(3, READ, 5, 5), Some(4)), Ok(LockState::Waits));
    assert_eq!(bench.table.deadline(), Some(NOW.plus(LOCK_TURN_MS)));
    bench.now = NOW.plus(LOCK_TURN_MS);
    bench.table.tick(bench.now, usize::MAX);
    bench.hear();
    assert_eq!((bench.told(3, 4), bench.told(2, 1)), (Some(0), None));
    assert_eq!(bench.table.deadline(), None);
    // Waiting for a turn ends as soon as the owner gets a lock elsewhere.
    assert_eq!(bench.set(4, FILE, wish(4, READ, 5, 5), Some(5)), Ok(LockState::Waits));
    bench.set(4, Ino(10), wish(4, WRITE, 0, 0), None).unwrap();
    assert_eq!(bench.told(4, 5), Some(0));
}

/// Goal: however many turns end at one time, a step ends so many, and the rest is due at once.
#[test]
fn turns_end_in_parts() {
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(1, READ, 0, 9), None).unwrap();
    for n in 2..=5 {
        let kind = if n == 2 { WRITE } else { READ };
        assert_eq!(bench.set(n, FILE, wish(n, kind, 0, 9), Some(n)), Ok(LockState::Waits));
    }
    bench.now = NOW.plus(LOCK_TURN_MS);
    assert_eq!((bench.table.tick(bench.now, 2), bench.table.deadline()), (2, Some(bench.now)));
    assert_eq!((bench.table.tick(bench.now, 2), bench.table.deadline()), (1, None));
    bench.hear();
    assert_eq!([2, 3, 4, 5].map(|n| bench.told(n, n)), [None, Some(0), Some(0), Some(0)]);
}

/// Goal: circles of two and three owners, over several files and clients, are refused to whoever closes
/// them; upgrades against one another too; what is no circle waits.
#[test]
fn circles_are_refused() {
    let mut bench = Bench::new();
    for n in 1..=3 {
        bench.set(n, Ino(n), wish(n, WRITE, 0, 9), None).unwrap();
    }
    assert_eq!(bench.set(1, Ino(2), wish(1, READ, 5, 5), Some(1)), Ok(LockState::Waits));
    assert_eq!(bench.set(2, Ino(3), wish(2, READ, 5, 5), Some(2)), Ok(LockState::Waits));
    assert_eq!(bench.set(3, Ino(1), wish(3, READ, 5, 5), Some(3)), Err(errno(Errno::EDEADLK)));
    assert_eq!(bench.set(3, Ino(1), wish(3, READ, 10, 10), Some(4)), Ok(LockState::Done), "other bytes");
    assert_eq!(bench.set(3, Ino(1), wish(3, READ, 5, 5), None), Err(errno(Errno::EAGAIN)));
    bench.set(3, Ino(3), wish(3, None, 0, 9), None).unwrap();
    assert_eq!(bench.told(2, 2), Some(0));
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(1, READ, 0, 9), None).unwrap();
    bench.set(2, FILE, wish(2, READ, 0, 9), None).unwrap();
    assert_eq!(bench.set(1, FILE, wish(1, WRITE, 0, 9), Some(1)), Ok(LockState::Waits));
    assert_eq!(bench.set(2, FILE, wish(2, WRITE, 0, 9), Some(2)), Err(errno(Errno::EDEADLK)));
    // flock knows no circles, as on Linux: a signal ends them.
    bench.set(3, FILE, flock(3, WRITE), None).unwrap();
    bench.set(4, Ino(10), flock(4, WRITE), None).unwrap();
    assert_eq!(bench.set(3, Ino(10), flock(3, WRITE), Some(3)), Ok(LockState::Waits));
    assert_eq!(bench.set(4, FILE, flock(4, WRITE), Some(4)), Ok(LockState::Waits));
}

/// Goal: flock converts by giving up first: whoever waits goes before, and the old lock is lost when the
/// new one is not to be had; the two spaces know nothing of each other.
#[test]
fn whole_locks_convert_as_on_linux() {
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(1, WRITE, 0, u64::MAX), None).unwrap();
    bench.set(1, FILE, flock(1, READ), None).unwrap();
    bench.set(2, FILE, flock(2, READ), None).unwrap();
    assert_eq!(bench.set(1, FILE, flock(1, READ), None), Ok(LockState::Done), "held already");
    assert_eq!(bench.set(1, FILE, flock(1, WRITE), None), Err(errno(Errno::EAGAIN)));
    assert_eq!(bench.set(2, FILE, flock(2, WRITE), None), Ok(LockState::Done), "the other lost its lock");
    assert_eq!(bench.set(1, FILE, flock(1, READ), Some(1)), Ok(LockState::Waits));
    assert_eq!(bench.set(2, FILE, flock(2, READ), None), Ok(LockState::Done));
    assert_eq!(bench.told(1, 1), Some(0));
    assert_eq!(bench.set(1, FILE, flock(1, WRITE), Some(2)), Ok(LockState::Waits));
    assert_eq!(bench.set(2, FILE, flock(2, WRITE), Some(3)), Ok(LockState::Waits));
    assert_eq!((bench.told(1, 2), bench.told(2, 3)), (Some(0), None));
}

/// Goal: a wish that is taken back is gone, what is behind it moves up, its repetition is refused; one that
/// came true first is told so.
#[test]
fn cancelling() {
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(1, READ, 0, 9), None).unwrap();
    bench.set(2, FILE, wish(2, WRITE, 0, 9), Some(1)).unwrap();
    let order = bench.order;
    bench.set(3, FILE, wish(3, READ, 0, 9), Some(2)).unwrap();
    assert!(bench.table.cancel(bench.now, ClientId(2), 1));
    bench.hear();
    assert_eq!((bench.told(3, 2), bench.told(2, 1)), (Some(0), None));
    let late = bench.table.set(bench.now, FILE, ClientId(2), &wish(2, WRITE, 0, 9), Some(1), order);
    assert_eq!(late.unwrap_err().status, Status::OLD_SEQUENCE);
    bench.set(2, FILE, wish(2, WRITE, 0, 9), Some(4)).unwrap();
    bench.order += 1;
    bench.table.set(bench.now, FILE, ClientId(1), &wish(1, None, 0, 9), None, bench.order).unwrap();
    bench.order += 1;
    bench.table.set(bench.now, FILE, ClientId(3), &wish(3, None, 0, 9), None, bench.order).unwrap();
    assert!(!bench.table.cancel(bench.now, ClientId(2), 4), "granted already");
}

/// Goal: a repeated request changes nothing, an overtaken one is refused; a repeated wish keeps its place.
#[test]
fn repetitions() {
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(1, WRITE, 0, 9), None).unwrap();
    bench.set(2, FILE, wish(2, WRITE, 0, 9), Some(1)).unwrap();
    bench.set(3, FILE, wish(3, WRITE, 0, 9), Some(2)).unwrap();
    let again = |bench: &mut Bench, order| {
        bench.table.set(NOW, FILE, ClientId(2), &wish(2, WRITE, 0, 9), Some(1), order)
    };
    let order = bench.order - 1;
    assert_eq!(again(&mut bench, order), Ok(LockState::Waits));
    assert_eq!(again(&mut bench, order + 10), Ok(LockState::Waits), "under a new number too");
    assert_eq!(again(&mut bench, order).unwrap_err().status, Status::OLD_SEQUENCE);
    assert_eq!(bench.table.waits(), 2);
    bench.order += 20;
    bench.drop_owner(1, 1);
    assert_eq!((bench.told(2, 1), bench.told(3, 2)), (Some(0), None));
    assert_eq!(again(&mut bench, order + 10), Ok(LockState::Done), "its answer was lost; it holds the lock");
}

/// Goal: closing a file, the end of an owner, of a session and of the file each give up everything, answer
/// who waits, and let others in.
#[test]
fn everything_is_given_up() {
    let hold = |bench: &mut Bench| {
        *bench = Bench::new();
        bench.set(1, FILE, wish(1, WRITE, 0, 9), None).unwrap();
        bench.set(1, FILE, flock(1, WRITE), None).unwrap();
        bench.set(1, FILE, wish(2, READ, 3, 4), Some(7)).unwrap();
        bench.set(2, FILE, wish(1, READ, 0, 0), Some(1)).unwrap();
        bench.set(2, FILE, flock(1, READ), Some(2)).unwrap();
    };
    let mut bench = Bench::new();
    hold(&mut bench);
    bench.table.close(NOW, ClientId(1), FILE);
    bench.hear();
    assert_eq!((bench.told(2, 1), bench.told(2, 2)), (Some(0), Some(0)));
    assert_eq!(bench.told(1, 7), Some(9), "EBADF");
    hold(&mut bench);
    bench.table.end(NOW, ClientId(1));
    bench.hear();
    assert_eq!((bench.told(2, 1), bench.told(2, 2), bench.told(1, 7)), (Some(0), Some(0), None));
    bench.table.end(NOW, ClientId(2));
    assert!(bench.is_empty());
    hold(&mut bench);
    bench.drop_owner(1, 2);
    assert_eq!((bench.told(1, 7), bench.told(2, 1)), (Some(9), None));
    hold(&mut bench);
    bench.table.gone(NOW, FILE);
    bench.hear();
    assert_eq!((bench.told(2, 1), bench.told(2, 2), bench.told(1, 7)), (Some(116), Some(116), Some(116)));
    assert_eq!((bench.table.held(), bench.table.waits()), (0, 0));
}

/// Goal: limits are ENOLCK with a text that says which; what is given up makes room.
#[test]
fn limits() {
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(1, WRITE, 0, 0), None).unwrap();
    let mut refused = None;
    for ticket in 0..=LOCK_WAITS_PER_CLIENT_MAX as u64 {
        bench.order += 1;
        let lock = wish(ticket, WRITE, 0, 0);
        bench.table.beside.unconfirmed = 1;
        match bench.table.set(NOW, FILE, ClientId(2), &lock, Some(ticket), bench.order) {
            Ok(_) => {}
            Err(refusal) => {
                let again = wish(ticket - 1, WRITE, 0, 0);
                let known =
                    bench.table.set(NOW, FILE, ClientId(2), &again, Some(ticket - 1), bench.order + 1);
                assert_eq!(known.unwrap(), LockState::Waits, "that one waits already");
                refused = Some((ticket, refusal));
                break;
            }
        }
    }
    let (ticket, refusal) = refused.unwrap();
    assert_eq!((ticket, refusal.status), (LOCK_WAITS_PER_CLIENT_MAX as u64 - 1, errno(Errno::ENOLCK)));
    assert!(refusal.detail.contains("limit of a client"));
    bench.table.end(NOW, ClientId(2));
    let mut n = 0;
    let refusal = loop {
        bench.order += 1;
        let lock = wish(1, WRITE, n * 2, n * 2);
        match bench.table.set(NOW, FILE, ClientId(1), &lock, None, bench.order) {
            Ok(_) => n += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((refusal.status, refusal.detail.contains("one file")), (errno(Errno::ENOLCK), true));
    bench.drop_owner(1, 1);
    assert!(bench.is_empty());
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A plain model: bytes, and a list of wishes.
#[derive(Default)]
struct Model {
    held: BTreeMap<(u64, u64), LockKind>,
    wishes: Vec<(u64, u64, LockKind, u64, u64)>,
}

impl Model {
    fn blocked(&self, owner: u64, kind: LockKind, start: u64, last: u64) -> bool {
        self.held.iter().any(|((other, byte), held)| {
            *other != owner
                && (start..=last).contains(byte)
                && (*held == LockKind::Write || kind == LockKind::Write)
        })
    }

    fn fill(&mut self, owner: u64, kind: Option<LockKind>, start: u64, last: u64) {
        for byte in start..=last {
            match kind {
                Some(kind) => self.held.insert((owner, byte), kind),
                None => self.held.remove(&(owner, byte)),
            };
        }
    }
}

/// Goal: over thousands of random requests no two owners ever hold what excludes one another, nobody who
/// could go is left waiting (but for a turn), and whatever was granted stands byte by byte.
#[test]
fn random_requests_agree_with_a_plain_model() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let (mut bench, mut model) = (Bench::new(), Model::default());
        for ticket in 1..250 {
            let (client, start) = (1 + dice.roll(4), dice.roll(12));
            let last = start + dice.roll(12 - start);
            let kind = [None, READ, WRITE, WRITE][dice.roll(4) as usize];
            let busy = model.wishes.iter().any(|(_, owner, ..)| *owner == client);
            let lock = wish(client, kind, start, last);
            // A process that waits does nothing else but to be interrupted.
            if busy {
                if dice.roll(4) == 0 {
                    let at = model.wishes.iter().position(|(_, owner, ..)| *owner == client).unwrap();
                    let (cancelled, ..) = model.wishes.remove(at);
                    assert!(bench.table.cancel(bench.now, ClientId(client), cancelled));
                    bench.hear();
                }
            } else {
                let blocks = dice.roll(2) == 0;
                match bench.set(client, FILE, lock, blocks.then_some(ticket)) {
                    Ok(LockState::Done) => {
                        assert!(kind.is_none_or(|kind| !model.blocked(client, kind, start, last)));
                        model.fill(client, kind, start, last);
                    }
                    Ok(LockState::Waits) => model.wishes.push((ticket, client, kind.unwrap(), start, last)),
                    Err(_) => assert!(model.blocked(client, kind.unwrap(), start, last)),
                }
            }
            // Those that were told now, in the order of the queue.
            let told: Vec<_> =
                model.wishes.iter().copied().filter(|w| bench.told(w.1, w.0).is_some()).collect();
            for (ticket, owner, kind, start, last) in told {
                assert_eq!(bench.told(owner, ticket), Some(0));
                assert!(!model.blocked(owner, kind, start, last), "seed {seed}: granted against a lock");
                model.fill(owner, Some(kind), start, last);
                model.wishes.retain(|wish| wish.0 != ticket);
            }
            assert_eq!(bench.table.waits(), model.wishes.len());
            for (place, (_, owner, kind, start, last)) in model.wishes.iter().enumerate() {
                let before = &model.wishes[..place];
                let behind = before.iter().any(|(_, _, other, a, b)| {
                    a <= last && start <= b && (*other == LockKind::Write || *kind == LockKind::Write)
                });
                assert!(behind || model.blocked(*owner, *kind, *start, *last), "seed {seed}: left waiting");
            }
        }
        for client in 1..=4 {
            bench.table.end(bench.now, ClientId(client));
        }
        assert!(bench.is_empty(), "seed {seed}");
    }
}

/// Goal: ten thousand waiters on one lock get through, each once, in the order of coming.
#[test]
fn ten_thousand_waiters() {
    let mut bench = Bench::new();
    bench.set(1, FILE, wish(0, WRITE, 0, 9), None).unwrap();
    for ticket in 1..=10_000 {
        bench.order += 1;
        let state =
            bench.table.set(NOW, FILE, ClientId(2), &wish(ticket, WRITE, 0, 9), Some(ticket), bench.order);
        assert_eq!(state, Ok(LockState::Waits));
    }
    bench.drop_owner(1, 0);
    for ticket in 1..=10_000 {
        assert_eq!(bench.told(2, ticket), Some(0));
        assert_eq!(bench.told(2, ticket + 1), None);
        bench.drop_owner(2, ticket);
    }
    assert!(bench.is_empty());
}

/// Goal: a claim that is repeated, for its answer was lost, is granted again where there is no room for one lock more.
#[test]
fn a_repeated_claim_needs_no_room() {
    let mut bench = Bench::new();
    bench.table.suppose_held(LOCKS_MAX - 10);
    let claim = |bench: &mut Bench, number: u64| {
        let lock = wish(number, READ, number * 2, number * 2);
        bench.table.reclaim(FILE, ClientId(1), &lock, number, true).map_err(|refusal| refusal.status)
    };
    let granted = (1..).take_while(|number| claim(&mut bench, *number).is_ok()).count();
    assert_eq!(granted, 9);
    assert_eq!((claim(&mut bench, 1), claim(&mut bench, 9)), (Ok(()), Ok(())));
}
