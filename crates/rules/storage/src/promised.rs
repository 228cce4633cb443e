//! Room that a target has promised to clients: what a mount keeps for a moment must fit when it comes
//! (`docs/design/gathering.md`, section 4).

use alloc::collections::BTreeMap;
use skep_types::{ClientId, Millis};
use skep_wire::storage::WriteChunk;

/// Bytes that are kept back for one client.
pub const PROMISE_BYTES: u64 = 64 << 20;
/// What the client is told of them, and keeps at most. Less, because each run that it brings takes whole blocks at both ends.
pub const PROMISE_TOLD: u64 = 48 << 20;
/// Bytes that are promised to nobody: requests that have looked already, and daemons that know nothing of promises, take some at
/// the same moment.
pub const PROMISE_SPARE: u64 = 128 << 20;
/// Of what else is free, one part in so many is promised at most, to all clients together: however many mounts there are,
/// ordinary writes find room while there is some, and what they take while a promise lasts seldom reaches it.
pub const PROMISED_PART: u64 = 8;
/// A promise holds for so long. The client counts less, and from its question.
pub const PROMISE_MS: u64 = 10_000;
/// Clients that are promised something at the same time; further ones write as ever.
pub const PROMISED_CLIENTS_MAX: usize = 4_096;
/// So many clients are taken to be promised something by what a daemon has forgotten.
const FORGOTTEN_MAX: u64 = 64;
/// What is free is looked at again for the sake of promises after so long. In between it is as it was: else each small write to
/// a target that fills up would cost such a look.
const LOOK_MS: u64 = 100;
/// Local file systems give space in blocks, most of them in those of this size.
const BLOCK: u64 = 4_096;

/// How much is promised, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// [`PROMISE_BYTES`].
    pub bytes: u64,
    /// [`PROMISE_TOLD`].
    pub told: u64,
    /// [`PROMISE_SPARE`].
    pub spare: u64,
    /// [`PROMISE_MS`].
    pub ms: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { bytes: PROMISE_BYTES, told: PROMISE_TOLD, spare: PROMISE_SPARE, ms: PROMISE_MS }
    }
}

/// One client's.
#[derive(Debug, Clone, Copy)]
struct Given {
    until: Millis,
    /// Less what it has taken of it.
    left: u64,
}

/// The promises of a file system, whatever targets lie on it. Free bytes are those above the reserve.
#[derive(Debug, Clone, Default)]
pub struct Promised {
    sizes: Sizes,
    forgotten_until: Millis,
    given: BTreeMap<ClientId, Given>,
    /// Sum of what is left of all in `given`.
    total: u64,
    /// None ends before.
    earliest: Millis,
    /// When a look for the sake of promises is worth it.
    look_at: Millis,
}

impl Promised {
    /// Where nobody can have been promised anything yet.
    pub fn new(sizes: Sizes) -> Self {
        Self { sizes, ..Self::default() }
    }

    /// Of a daemon that begins, and may have forgotten some: until those have ended it counts as many as it may have had
    /// beside those that it knows.
    pub fn after_restart(sizes: Sizes, now: Millis) -> Self {
        Self { forgotten_until: now.plus(sizes.ms), ..Self::new(sizes) }
    }

    /// A client wishes to bring more later: how much it may, if anything. What it was promised before stays until its end also
    /// when there is nothing now.
    pub fn promise(&mut self, client: ClientId, now: Millis, free: u64) -> Option<u64> {
        let others = self.to_others(client, now);
        let is_new = !self.given.contains_key(&client);
        let is_crowded = is_new && self.given.len() >= PROMISED_CLIENTS_MAX;
        if client.0 == 0 || is_crowded {
            return None;
        }
        let Sizes { bytes, told, spare, ms } = self.sizes;
        let forgotten = if now < self.forgotten_until { bytes.saturating_mul(FORGOTTEN_MAX) } else { 0 };
        let all = others.saturating_add(bytes);
        if all > free.saturating_sub(spare.saturating_add(forgotten)) / PROMISED_PART {
            return None;
        }
        let until = now.plus(ms);
        self.earliest = if self.given.is_empty() { until } else { self.earliest.min(until) };
        self.given.insert(client, Given { until, left: bytes });
        self.total = others + bytes;
        Some(told)
    }

    /// Nothing was promised: is another look at what is free worth it? Not soon behind one that this was answered for.
    pub fn looks_again(&mut self, now: Millis) -> bool {
        let is_due = now >= self.look_at;
        if is_due {
            self.look_at = now.plus(LOOK_MS);
        }
        is_due
    }

    /// The most that [`Promised::total`] can be behind one more promise.
    pub fn total_after_one(&mut self, now: Millis) -> u64 {
        self.total(now).saturating_add(self.sizes.bytes)
    }

    /// Bytes that are promised at all.
    pub fn total(&mut self, now: Millis) -> u64 {
        if now >= self.earliest && !self.given.is_empty() {
            self.given.retain(|_, given| now < given.until);
            self.total = self.given.values().map(|given| given.left).sum();
            self.earliest = self.given.values().map(|given| given.until).min().unwrap_or_default();
        }
        self.total
    }

    /// What mgmtd shall be told of what is free. When little more than what is promised is left, that is for those who have
    /// promises, and others must find their way to other targets.
    pub fn told(&mut self, now: Millis, free: u64) -> u64 {
        let rest = free.saturating_sub(self.total(now));
        if rest >= self.sizes.spare { free } else { rest }
    }

    /// Bytes that are kept back from this client.
    pub fn to_others(&mut self, client: ClientId, now: Millis) -> u64 {
        self.total(now) - self.given.get(&client).map_or(0, |given| given.left)
    }

    /// May the client (0: who has none) take `bytes` of what is free? What does not fit beside all promises is taken off its
    /// own: so nobody takes what others count on, not even one who was promised something himself. `None`: no; else what
    /// was taken off its own.
    pub fn take(&mut self, client: ClientId, now: Millis, bytes: u64, free: u64) -> Option<u64> {
        let wanted = self.total(now).saturating_add(bytes);
        if wanted <= free {
            return Some(0);
        }
        let own = bytes.min(wanted - free);
        match self.given.get_mut(&client) {
            Some(given) if given.left >= own => {
                given.left -= own;
                self.total -= own;
                Some(own)
            }
            _ => None,
        }
    }

    /// Nothing came of what so much was taken off the client's own for: it has that again, if it still has a promise. Not more
    /// than it was promised, for that may have been made whole meanwhile.
    pub fn give_back(&mut self, client: ClientId, now: Millis, own: u64) {
        self.total(now);
        if let Some(given) = self.given.get_mut(&client) {
            let own = own.min(self.sizes.bytes - given.left);
            given.left += own;
            self.total += own;
        }
    }
}

/// Whose promise a write may draw on: only what a client said it would bring does, kept bytes and small writes beside them.
/// What else its programs write must leave all promises alone, its own as well: a single copy would use it up in a moment, and
/// what was kept, and answered for, would find no room.
pub fn draws_on(m: &WriteChunk, client: ClientId) -> ClientId {
    if m.later == Some(true) { client } else { ClientId(0) }
}

/// Bytes that a write may take from a local file system: whole blocks.
pub fn blocks_of(offset: u64, len: u64) -> u64 {
    if len == 0 {
        return 0;
    }
    let first = offset / BLOCK;
    offset.saturating_add(len).div_ceil(BLOCK).saturating_sub(first).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(7);
    const B: ClientId = ClientId(8);
    const C: ClientId = ClientId(9);
    const T: Millis = Millis(5_000);
    const SIZES: Sizes = Sizes { bytes: 64, told: 48, spare: 128, ms: 100 };

    fn table() -> Promised {
        Promised::new(SIZES)
    }

    /// Goal: room is promised while all promises are an eighth of what is free beside the spare bytes, and not with a byte less;
    /// what a client has already does not count against it; who has no session is promised nothing. It is
    /// told less than what is kept back.
    #[test]
    fn promises_need_spare_room() {
        let mut table = table();
        assert_eq!((table.promise(A, T, 639), table.total(T)), (None, 0));
        assert_eq!(table.promise(A, T, 640), Some(48));
        assert_eq!(table.promise(A, T, 640), Some(48), "its own is no obstacle");
        assert_eq!((table.promise(B, T, 1_151), table.promise(B, T, 1_152)), (None, Some(48)));
        assert_eq!([A, B, C].map(|client| table.to_others(client, T)), [64, 64, 128]);
        assert_eq!(table.promise(ClientId(0), T, 1 << 40), None);
        assert_eq!(table.total(T), 128);
    }

    /// Goal: a promise ends by itself; a further one moves its end, and a refused one does not.
    #[test]
    fn promises_end() {
        let mut table = table();
        table.promise(A, T, 2_000);
        table.promise(B, T.plus(40), 2_000);
        table.promise(A, T.plus(60), 2_000);
        assert_eq!(table.promise(B, T.plus(90), 0), None);
        assert_eq!(table.total(T.plus(139)), 128);
        assert_eq!(table.total(T.plus(140)), 64, "B's has ended, A's was moved");
        assert_eq!((table.total(T.plus(159)), table.total(T.plus(160))), (64, 0));
        assert_eq!(table.promise(C, T.plus(200), 640), Some(48));
        assert_eq!(
            (table.total(T.plus(299)), table.total(T.plus(300))),
            (64, 0),
            "also behind an empty table"
        );
    }

    /// Goal: on a target that fills up, others end at what is promised; whose promise it is takes of it, so much and no more,
    /// and never of what another was promised. Nothing of it is left in the end, and everyone had his.
    #[test]
    fn a_full_target_keeps_its_promises() {
        let mut table = table();
        assert_eq!((table.promise(A, T, 1_152), table.promise(B, T, 1_152)), (Some(48), Some(48)));
        // Others, who know nothing of promises, have taken most of it.
        let mut free = 300;
        let mut take = |client, bytes| {
            let taken = table.take(client, T, bytes, free).is_some();
            free -= if taken { bytes } else { 0 };
            taken
        };
        assert!(take(C, 160) && !take(C, 13) && take(C, 12) && !take(C, 1), "128 of 300 are promised");
        assert!(take(A, 60) && !take(A, 5) && take(A, 4) && !take(A, 1), "B's are not A's");
        assert!(!take(C, 1) && !take(ClientId(0), 1));
        assert!(take(B, 64) && !take(B, 1));
        assert_eq!((free, table.total(T)), (0, 0));
    }

    /// Goal: what fits beside all promises is taken off none; what fits in part, for the rest only. A further promise is
    /// whole again. Nobody keeps anything back that has ended.
    #[test]
    fn ordinary_room_goes_first() {
        let mut table = table();
        table.promise(A, T, 640);
        assert_eq!((table.take(A, T, 100, 200), table.take(A, T, 50, 100)), (Some(0), Some(14)));
        assert_eq!(table.total(T), 50, "36 of the 50 were nobody's");
        assert_eq!((table.promise(A, T, 640), table.total(T)), (Some(48), 64));
        // Others, who know nothing of promises, have taken all but a little.
        assert_eq!((table.take(A, T, 10, 20), table.take(C, T, 10, 20)), (Some(10), None));
        assert_eq!(table.total(T), 54);
        assert_eq!(table.take(C, T.plus(100), 10, 20), Some(0));
    }

    /// Goal: what a client has taken, and could not use, it has again: once, not behind its promise's end, and not beside a promise
    /// that was made whole.
    #[test]
    fn what_was_not_used_is_given_back() {
        let mut table = table();
        table.promise(A, T, 640);
        assert_eq!((table.take(A, T, 60, 0), table.take(A, T, 5, 0)), (Some(60), None));
        table.give_back(A, T, 60);
        assert_eq!((table.take(A, T, 64, 0), table.total(T)), (Some(64), 0));
        table.promise(A, T.plus(9), 640);
        table.give_back(A, T.plus(9), 64);
        table.give_back(B, T.plus(9), 64);
        assert_eq!(table.total(T.plus(9)), 64);
        assert_eq!(table.take(A, T.plus(9), 30, 0), Some(30));
        table.give_back(A, T.plus(109), 30);
        assert_eq!(table.total(T.plus(109)), 0);
    }

    /// Goal: however many mounts ask, most of what is free is everybody's.
    #[test]
    fn many_mounts_leave_room_for_others() {
        let (mut table, free) = (Promised::new(Sizes::default()), 10 << 30);
        let given = (1..=1_000).filter(|client| table.promise(ClientId(*client), T, free).is_some());
        assert_eq!(given.count(), 19);
        assert!(table.total(T) <= free / PROMISED_PART);
        assert_eq!(table.take(ClientId(0), T, 5 << 30, free), Some(0));
        assert_eq!(table.told(T, 5 << 30), 5 << 30, "nor does mgmtd think that it is full");
    }

    /// Goal: where nothing is promised the free space is not looked at for each who asks.
    #[test]
    fn looks_are_not_frequent() {
        let mut table = table();
        let looks = [0, 1, 99, 100, 150, 199, 500, 501].map(|at| table.looks_again(T.plus(at)));
        assert_eq!(looks, [true, false, false, true, false, false, true, false]);
    }

    /// Goal: a target that runs out of room is told to have what is promised to nobody; while there is enough, promises change
    /// nothing in what is told.
    #[test]
    fn promises_are_told_when_room_is_short() {
        let mut table = table();
        assert_eq!(table.told(T, 10), 10);
        table.promise(A, T, 640);
        assert_eq!([192, 191, 70, 64, 3].map(|free| table.told(T, free)), [192, 127, 6, 0, 0]);
        assert_eq!(table.told(T.plus(100), 3), 3);
    }

    /// Goal: a daemon that begins counts as many promises as it may have forgotten beside those that it gives, and keeps nothing
    /// back for them, until they have ended.
    #[test]
    fn careful_after_a_restart() {
        let mut table = Promised::after_restart(SIZES, T);
        let enough = 64 * FORGOTTEN_MAX + 64 * PROMISED_PART + 128;
        assert_eq!(table.clone().promise(A, T, enough), Some(48));
        assert_eq!(table.promise(A, T, enough - 1), None);
        assert_eq!((table.promise(A, T.plus(99), 1_000), table.total(T.plus(99))), (None, 0));
        assert_eq!(table.take(C, T.plus(99), 10, 10), Some(0));
        assert_eq!(table.promise(A, T.plus(100), 1_000), Some(48));
    }

    /// Goal: the table is bounded: one client too many is promised nothing, those that are in it go on, and when one has ended
    /// another has its place.
    #[test]
    fn there_are_not_too_many() {
        let mut table = table();
        let clients = 1..=PROMISED_CLIENTS_MAX as u64;
        for client in clients.clone() {
            assert_eq!(table.promise(ClientId(client), T, 1 << 30), Some(48));
        }
        let further = ClientId(1 << 20);
        assert_eq!(table.promise(further, T, 1 << 30), None);
        for client in clients.skip(1) {
            assert_eq!(table.promise(ClientId(client), T.plus(50), 1 << 30), Some(48));
        }
        assert_eq!(table.promise(further, T.plus(99), 1 << 30), None);
        assert_eq!(table.promise(further, T.plus(100), 1 << 30), Some(48));
        assert_eq!(table.total(T.plus(100)), PROMISED_CLIENTS_MAX as u64 * 64);
    }

    /// Goal: small writes are counted as the blocks that they may take.
    #[test]
    fn blocks_are_whole() {
        let cases = [(0, 0, 0), (7, 0, 0), (0, 1, 1), (4_095, 1, 1), (4_095, 2, 2), (4_096, 4_096, 1)];
        for (offset, len, blocks) in cases {
            assert_eq!(blocks_of(offset, len), blocks * 4_096, "{offset} {len}");
        }
        assert!(blocks_of(1, u64::MAX) > u64::MAX / 2);
    }
}
