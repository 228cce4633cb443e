//! Which requests are in flight, and which of them were interrupted.
//!
//! The kernel sends INTERRUPT on whichever descriptor is read next, so the worker that reads it is never the one
//! that handles the request it names. The protocol's answer for "not in flight yet" (EAGAIN: send it again) reaches
//! the request only when written to the descriptor the request was read from, which is another worker's and
//! unknown, and never one that came through a ring. So an interrupt that overtakes its request is noted here, and
//! the worker finds the note when it begins the request.
//!
//! A request that is parked has left its worker; its interrupts go to [`crate::Mount::interrupt_parked`].

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use crate::Errno;
use crate::parked::Parked;

/// Interrupts that may wait for their request at one time; a further one takes the place of the oldest.
const NOTES_LIMIT: usize = 1024;
/// How long an interrupt waits for its request. Nearly all that wait came after the answer and name nothing any
/// more; one that came before is claimed as soon as the worker that read the request runs again.
const NOTED_FOR: Duration = Duration::from_secs(10);
/// No request has this number.
const NONE: u64 = 0;

/// One worker's place; a cache line of its own, because each request writes it.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    /// The request in flight.
    unique: AtomicU64,
    /// The last request that was interrupted here. A number rather than a flag: an interrupt that is late by one
    /// request then hits nobody.
    interrupted: AtomicU64,
    /// The event is (about to be) readable.
    signalled: AtomicBool,
    /// Made when an implementor first asks for it.
    event: OnceLock<OwnedFd>,
}

/// The requests in flight on one connection: a slot per worker.
pub struct InterruptTable {
    slots: Box<[Slot]>,
    closing: Arc<AtomicBool>,
    note_count: AtomicUsize,
    notes: Mutex<VecDeque<(u64, Instant)>>,
    parked: Arc<Parked>,
}

/// What became of an INTERRUPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The worker that handles the request was told.
    Told,
    /// No worker handles it: it is answered already, or its worker has not begun and will find the note.
    Noted,
    /// It is parked: tell [`crate::Mount::interrupt_parked`].
    Parked,
}

impl InterruptTable {
    /// A table for `workers` workers and the requests that they park.
    pub(crate) fn new(workers: usize, parked: Arc<Parked>) -> Self {
        InterruptTable {
            slots: (0..workers).map(|_| Slot::default()).collect(),
            closing: Arc::default(),
            note_count: AtomicUsize::new(0),
            notes: Mutex::new(VecDeque::new()),
            parked,
        }
    }

    /// The worker in `slot` begins a request; the result goes into its [`crate::Context`].
    pub fn begin(&self, slot: usize, unique: u64) -> Interrupt<'_> {
        if let Some(place) = self.slots.get(slot) {
            // Ordered before the look at the notes; `interrupt` notes first and looks at the slots again
            // afterwards: one of the two sees the other.
            place.unique.store(unique, SeqCst);
            if self.note_count.load(SeqCst) > 0 && self.claim(unique) {
                place.interrupted.store(unique, SeqCst);
                signal(place);
            }
        }
        Interrupt { table: Some(self), slot, unique }
    }

    /// The worker in `slot` has answered.
    pub fn end(&self, slot: usize) {
        if let Some(place) = self.slots.get(slot) {
            place.unique.store(NONE, SeqCst);
        }
    }

    /// The worker in `slot` has parked its request, which counts as waiting already. `true`: an interrupt came
    /// while the worker had it, and may have been overlooked.
    pub(crate) fn end_parked(&self, slot: usize, unique: u64) -> bool {
        self.end(slot);
        // `tell` looks at the slot again after it has left its word: one of the two sees the other.
        let told = |place: &Slot| place.interrupted.load(SeqCst) == unique;
        self.closing.load(SeqCst) || self.slots.get(slot).is_some_and(told)
    }

    /// Interrupts a request.
    pub fn interrupt(&self, unique: u64) -> Interrupted {
        if self.tell(unique) {
            return Interrupted::Told;
        }
        if self.parked.waits(unique) {
            return Interrupted::Parked;
        }
        {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            notes.retain(|(_, since)| now.duration_since(*since) < NOTED_FOR);
            if notes.len() >= NOTES_LIMIT {
                notes.pop_front();
            }
            notes.push_back((unique, now));
            self.note_count.store(notes.len(), SeqCst);
        }
        if self.tell(unique) {
            self.claim(unique);
            return Interrupted::Told;
        }
        if self.parked.waits(unique) { Interrupted::Parked } else { Interrupted::Noted }
    }

    /// The connection has gone: every request in flight, and every later one, counts as interrupted.
    pub fn interrupt_all(&self) {
        self.closing.store(true, SeqCst);
        self.slots.iter().for_each(signal);
    }

    fn tell(&self, unique: u64) -> bool {
        let Some(place) = self.slots.iter().find(|place| place.unique.load(SeqCst) == unique) else {
            return false;
        };
        place.interrupted.store(unique, SeqCst);
        signal(place);
        place.unique.load(SeqCst) == unique
    }

    fn claim(&self, unique: u64) -> bool {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let before = notes.len();
        notes.retain(|(other, _)| *other != unique);
        let found = notes.len() < before;
        notes.retain(|(_, since)| now.duration_since(*since) < NOTED_FOR);
        self.note_count.store(notes.len(), SeqCst);
        found
    }
}

/// Makes the slot's event readable, if anybody waits on one.
fn signal(place: &Slot) {
    place.signalled.store(true, SeqCst);
    // `descriptor` makes the event and looks afterwards whether it is due: one of the two sees the other.
    fence(SeqCst);
    if let Some(event) = place.event.get() {
        // The only failure is a full counter, which is readable as well.
        let _ = rustix::io::write(event, &1u64.to_ne_bytes());
    }
}

/// Tells one request whether it was interrupted.
#[derive(Clone, Copy)]
pub struct Interrupt<'a> {
    table: Option<&'a InterruptTable>,
    slot: usize,
    unique: u64,
}

impl Interrupt<'_> {
    /// For requests that nobody can interrupt.
    #[must_use]
    pub const fn never() -> Self {
        Interrupt { table: None, slot: 0, unique: NONE }
    }

    /// Whether the caller was signalled, or the mount is going away.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let Some(table) = self.table else { return false };
        let Some(place) = table.slots.get(self.slot) else { return false };
        if table.closing.load(SeqCst) || place.interrupted.load(SeqCst) == self.unique {
            return true;
        }
        // A wake-up meant for an earlier request would make every later poll return at once.
        if place.signalled.swap(false, SeqCst)
            && let Some(event) = place.event.get()
        {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
            if place.interrupted.load(SeqCst) == self.unique || table.closing.load(SeqCst) {
                signal(place);
                return true;
            }
        }
        false
    }

    /// True from the moment when the connection has gone: nobody waits for an answer any more, whatever else
    /// makes [`Interrupt::is_set`] true. `None` for [`Interrupt::never`].
    #[must_use]
    pub fn closing(&self) -> Option<&Arc<AtomicBool>> {
        self.table.map(|table| &table.closing)
    }

    /// A descriptor that becomes readable when the request is interrupted, to be polled beside a socket. Check
    /// [`Interrupt::is_set`] after this call and after every wake-up; never read the descriptor.
    ///
    /// # Errors
    /// EMFILE and the like; EOPNOTSUPP for [`Interrupt::never`].
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        let place = self.table.and_then(|table| table.slots.get(self.slot)).ok_or(Errno::EOPNOTSUPP)?;
        if place.event.get().is_none() {
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // Only the slot's own worker asks, so nobody else can have set it meanwhile.
            let _ = place.event.set(event);
            fence(SeqCst);
            if self.is_set() {
                signal(place);
            }
        }
        place.event.get().map(AsFd::as_fd).ok_or(Errno::EMFILE)
    }
}

impl core::fmt::Debug for Interrupt<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Interrupt({})", self.is_set())
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::{InterruptTable, Interrupted, NOTES_LIMIT, SeqCst};
    use crate::parked::Parked;

    fn table(workers: usize) -> InterruptTable {
        InterruptTable::new(workers, Parked::new(8))
    }

    fn readable(interrupt: &super::Interrupt<'_>) -> bool {
        let descriptor = interrupt.descriptor().unwrap();
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    /// Goal: an interrupt hits exactly the request it names.
    #[test]
    fn told() {
        let table = table(2);
        let first = table.begin(0, 10);
        let second = table.begin(1, 12);
        assert!(!readable(&first) && !readable(&second));
        assert_eq!(table.interrupt(12), Interrupted::Told);
        assert!(second.is_set() && readable(&second));
        assert!(!first.is_set() && !readable(&first));
        table.end(1);
        let third = table.begin(1, 14);
        assert!(!third.is_set(), "the interrupt was for the request before");
        assert!(!readable(&third), "the stale wake-up was drained");
    }

    /// Goal: an interrupt that overtakes its request is found when the request begins, and only once.
    #[test]
    fn overtaking() {
        let table = table(1);
        assert_eq!(table.interrupt(20), Interrupted::Noted);
        assert!(!table.begin(0, 18).is_set());
        table.end(0);
        assert!(table.begin(0, 20).is_set());
        table.end(0);
        assert_eq!(table.note_count.load(super::SeqCst), 0);
    }

    /// Goal: who polls sees an interrupt that came before the descriptor was made: the first request of a new worker,
    /// whose thread did not run for a while.
    #[test]
    fn before_its_descriptor() {
        let table = table(2);
        assert_eq!(table.interrupt(20), Interrupted::Noted);
        assert!(readable(&table.begin(0, 20)));
        let second = table.begin(1, 22);
        assert_eq!(table.interrupt(22), Interrupted::Told);
        assert!(readable(&second));
    }

    /// Goal: the number of notes is bounded, and the newest stay.
    #[test]
    fn bounded() {
        let table = table(1);
        for unique in 0..=NOTES_LIMIT as u64 {
            assert_eq!(table.interrupt(unique + 2), Interrupted::Noted);
        }
        assert_eq!(table.notes.lock().unwrap().len(), NOTES_LIMIT);
        assert!(!table.begin(0, 2).is_set());
        assert!(table.begin(0, NOTES_LIMIT as u64 + 2).is_set());
    }

    /// Goal: a parked request's interrupt is for the mount, one that came before it was parked is not overlooked,
    /// and whichever of the two is first, one of them sees the other.
    #[test]
    fn parked_requests() {
        let parked = Parked::new(8);
        let table = InterruptTable::new(1, parked.clone());
        let park = |unique| {
            let reply = parked.park(unique, |_| {}).unwrap();
            parked.confirm(unique);
            reply
        };
        table.begin(0, 2);
        let reply = park(2);
        assert!(!table.end_parked(0, 2));
        assert_eq!(table.interrupt(2), Interrupted::Parked);
        reply.answer(Ok(()));
        assert_eq!(table.interrupt(2), Interrupted::Noted);
        table.begin(0, 4);
        assert_eq!(table.interrupt(4), Interrupted::Told);
        let reply = park(4);
        assert!(table.end_parked(0, 4));
        drop(reply);
        for unique in (6..2000u64).step_by(2) {
            table.begin(0, unique);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| table.interrupt(unique));
                let reply = park(unique);
                let seen = table.end_parked(0, unique);
                let outcome = other.join().unwrap();
                assert!(seen || outcome == Interrupted::Parked, "{unique}: {outcome:?}");
                drop(reply);
            });
        }
    }

    /// Goal: the end of the connection interrupts everything, now and later.
    #[test]
    fn closing() {
        let table = table(2);
        let first = table.begin(0, 2);
        assert!(!readable(&first));
        assert!(!first.closing().unwrap().load(SeqCst));
        table.interrupt_all();
        assert!(first.is_set() && readable(&first) && first.closing().unwrap().load(SeqCst));
        assert!(table.begin(1, 4).is_set());
    }

    /// Goal: whichever of the two is first, a begun request always learns of its interrupt.
    #[test]
    fn race() {
        let table = table(1);
        std::thread::scope(|scope| {
            for unique in (2..4000u64).step_by(2) {
                let other = {
                    let table = &table;
                    scope.spawn(move || table.interrupt(unique))
                };
                let interrupt = table.begin(0, unique);
                while !interrupt.is_set() {
                    std::thread::yield_now();
                }
                other.join().unwrap();
                table.end(0);
            }
        });
    }
}
