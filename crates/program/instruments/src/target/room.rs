//! Free space of a file system, and what is promised of it: one for all targets of the daemon that lie there.

use skep_storage::{Promised, Sizes};
use skep_types::{Capacity, ClientId, Millis};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Bytes that may be written before the free space is looked at again: the reserve must hold against
/// writers that are faster than heartbeats.
pub const LOOK_BYTES: u64 = 8 << 20;

pub struct Room {
    since: Instant,
    table: Mutex<Promised>,
    /// Bytes that are promised, or may be in a moment, some of them no longer: so nobody waits for the table while there is
    /// nothing in it. This and `begun` have one order for everybody (`SeqCst`): who begins counts that first and then looks at
    /// what is promised, who promises says that first and then looks at what was begun. So one of the two sees the other.
    promised: AtomicU64,
    /// Bytes of all writes that were begun, since the start.
    begun: AtomicU64,
    /// Bytes of those of them that have ended.
    ended: AtomicU64,
    /// What may be begun in all, as it was at the last look: what was free then, and what had ended before. All others count as
    /// if they came on top, so nothing is counted too little while they are in work.
    limit: AtomicU64,
    /// When so much has ended the space is looked at again.
    look_at: AtomicU64,
    /// The reserve is reached: only what is there may be written over.
    full: AtomicBool,
    /// Held while room for a reservation is looked for and taken: two must not find the same one.
    reserving: Mutex<()>,
}

/// Bytes that are being taken.
pub struct Taken<'a> {
    room: &'a Room,
    bytes: u64,
    /// What was taken of a client's own promise for it. It has that again if nothing comes of it.
    own: Option<(ClientId, u64)>,
}

impl Taken<'_> {
    /// They were written.
    pub fn used(mut self) {
        self.own = None;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.ended.fetch_add(self.bytes, Relaxed);
        if let Some((client, own)) = self.own {
            let (mut table, now) = self.room.table();
            table.give_back(client, now, own);
            self.room.promised.store(table.total(now), SeqCst);
        }
    }
}

impl Room {
    /// Of a daemon that began then.
    pub fn new(sizes: Sizes, since: Instant) -> Self {
        Self {
            since,
            table: Mutex::new(Promised::after_restart(sizes, Millis(0))),
            promised: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            look_at: AtomicU64::new(LOOK_BYTES),
            full: AtomicBool::new(false),
            reserving: Mutex::new(()),
        }
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The table, with what was promised until now.
    fn table(&self) -> (MutexGuard<'_, Promised>, Millis) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        self.promised.store(table.total(now), SeqCst);
        (table, now)
    }

    /// One reservation at a time.
    pub fn reserving(&self) -> MutexGuard<'_, ()> {
        self.reserving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be asked before the look at the free space that is told to [`Room::looked`].
    pub fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    /// So much was free, when at least `ended` was done.
    pub fn looked(&self, ended: u64, free: u64) {
        self.full.store(free == 0, Relaxed);
        self.limit.store(ended.saturating_add(free), Relaxed);
        self.look_at.store(ended + LOOK_BYTES, Relaxed);
    }

    /// Was so much written since the last look that it is time for another?
    pub fn is_due(&self) -> bool {
        self.ended() >= self.look_at.load(Relaxed)
    }

    /// As of the last look.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Not less than what is promised.
    pub fn promised_at_most(&self) -> u64 {
        self.promised.load(SeqCst)
    }

    /// Bytes that are promised now.
    pub fn promised(&self) -> u64 {
        let (mut table, now) = self.table();
        table.total(now)
    }

    /// Bytes that are free beside all that was begun. Not more than there are, but for what others than this daemon have taken
    /// since the last look.
    fn free(&self) -> u64 {
        self.limit.load(Relaxed).saturating_sub(self.begun.load(SeqCst))
    }

    /// Counts it, whether there is room or not.
    pub fn begin(&self, bytes: u64) -> Taken<'_> {
        self.begun.fetch_add(bytes, SeqCst);
        Taken { room: self, bytes, own: None }
    }

    /// Is what was begun beside all promises?
    pub fn holds(&self, promised: u64) -> bool {
        // Somebody may begin more at this moment: of two of them, one sees both.
        self.limit.load(Relaxed) >= self.begun.load(SeqCst).saturating_add(promised)
    }

    /// Takes of what is promised to nobody else; what that takes of the client's own promise is given back unless it is
    /// [`Taken::used`].
    pub fn take(&self, client: ClientId, bytes: u64) -> Option<Taken<'_>> {
        let (mut table, now) = self.table();
        let own = if table.total(now) == 0 { 0 } else { table.take(client, now, bytes, self.free())? };
        self.promised.store(table.total(now), SeqCst);
        // Before the table is given back: the next one must find it taken.
        let mut taken = self.begin(bytes);
        taken.own = (own > 0).then_some((client, own));
        Some(taken)
    }

    /// See [`Promised::promise`].
    pub fn promise(&self, client: ClientId) -> Option<u64> {
        let (mut table, now) = self.table();
        // Said before it is known, and taken back perhaps: see `promised`.
        self.promised.store(table.total_after_one(now), SeqCst);
        let promise = table.promise(client, now, self.free());
        self.promised.store(table.total(now), SeqCst);
        promise
    }

    /// See [`Promised::looks_again`].
    pub fn looks_again(&self) -> bool {
        let (mut table, now) = self.table();
        table.looks_again(now)
    }

    /// Bytes that a reservation may take of `free`, as it was just found.
    pub fn unpromised(&self, free: u64) -> u64 {
        match self.promised() {
            0 => free,
            promised => self.free().min(free).saturating_sub(promised),
        }
    }

    /// See [`Promised::told`].
    pub fn told(&self, capacity: Capacity) -> Capacity {
        let (mut table, now) = self.table();
        Capacity { bytes_free: table.told(now, capacity.bytes_free), ..capacity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// Goal: of one that begins a write and one that is promised room at the same moment, for only one of which there is room, one
    /// sees the other. Method: two threads that begin each round together, as nearly as they can.
    #[test]
    fn who_begins_and_who_promises_see_one_another() {
        const ROUNDS: usize = 20_000;
        let sizes = Sizes { bytes: 64, told: 48, spare: 0, ms: 1_000 };
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let rooms: Vec<Room> = (0..ROUNDS).map(|_| Room::new(sizes, long_ago)).collect();
        rooms.iter().for_each(|room| room.looked(0, 512));
        let met: Vec<AtomicUsize> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
        let meet = |round: usize| {
            met[round].fetch_add(1, SeqCst);
            let mut turns = 0;
            while met[round].load(SeqCst) < 2 {
                turns += 1;
                // Another process may have the other's processor.
                if turns > 1_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let each = |of: &dyn Fn(&Room) -> bool| {
            let of = rooms.iter().enumerate().map(|(round, room)| {
                meet(round);
                of(room)
            });
            of.collect::<Vec<bool>>()
        };
        let (unseen, given) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                each(&|room| {
                    let _taken = room.begin(512);
                    room.promised_at_most() == 0
                })
            });
            let given = each(&|room| room.promise(ClientId(7)).is_some());
            (writer.join().unwrap(), given)
        });
        let both = unseen.iter().zip(&given).filter(|(unseen, given)| **unseen && **given).count();
        assert_eq!(both, 0, "rounds in which neither saw the other");
    }
}
