//! Who has what open. Volatile: clients reclaim it after a restart.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use skep_types::{ClientId, Ino};
use skep_wire::meta::{OpenMode, OpenSession};

/// Numbers of opens that were given up before they came; beyond it the oldest go.
const GIVEN_UP_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy)]
struct Open {
    mode: OpenMode,
    seq: u64,
    /// The number of the open that was there first: it is the newest, too, if there was no other.
    first: u64,
}

/// How many opens there are on all shards of a group, for their limits.
#[derive(Debug, Default)]
pub struct OpenCounts {
    all: usize,
    by_client: BTreeMap<ClientId, usize>,
}

impl OpenCounts {
    /// Of all clients.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Of one.
    pub fn of(&self, client: ClientId) -> usize {
        self.by_client.get(&client).copied().unwrap_or(0)
    }

    fn more(&mut self, client: ClientId) {
        self.all += 1;
        *self.by_client.entry(client).or_default() += 1;
    }

    fn less(&mut self, client: ClientId) {
        self.all = self.all.saturating_sub(1);
        if let Some(count) = self.by_client.get_mut(&client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_client.remove(&client);
            }
        }
    }
}

/// All opens of a shard.
#[derive(Debug, Default)]
pub struct Opens {
    /// Closes that are remembered at most.
    closes: usize,
    by_ino: BTreeMap<(Ino, ClientId), Open>,
    by_client: BTreeMap<ClientId, BTreeSet<Ino>>,
    by_number: BTreeMap<(ClientId, u64), Ino>,
    /// What was given up and had not come.
    given_up: BTreeSet<(ClientId, u64)>,
    given_up_order: VecDeque<(ClientId, u64)>,
    closed: BTreeMap<(ClientId, Ino), u64>,
    closed_order: VecDeque<(ClientId, Ino)>,
}

impl Opens {
    /// Remembers so many closes.
    pub fn new(closes: usize) -> Self {
        Self { closes, ..Self::default() }
    }

    /// `client` has `ino` open. An open that its own close has overtaken is none: `false`.
    pub fn open(
        &mut self,
        counts: &mut OpenCounts,
        client: ClientId,
        ino: Ino,
        mode: OpenMode,
        seq: u64,
    ) -> bool {
        let is_closed = self.closed.get(&(client, ino)).is_some_and(|closed| *closed > seq);
        if is_closed || self.given_up.contains(&(client, seq)) {
            return false;
        }
        let open = self.by_ino.entry((ino, client)).or_insert(Open { mode, seq, first: seq });
        open.mode = open.mode.union(mode);
        self.by_number.remove(&(client, open.seq));
        open.seq = open.seq.max(seq);
        self.by_number.insert((client, open.seq), ino);
        if self.by_client.entry(client).or_default().insert(ino) {
            counts.more(client);
        }
        true
    }

    /// What `client` opened with this number, and with no other: it was never told of that. What has not come does not count
    /// when it comes.
    pub fn untold(&mut self, client: ClientId, seq: u64) -> Option<Ino> {
        let is_all = |ino: &Ino| self.by_ino.get(&(*ino, client)).is_some_and(|open| open.first == seq);
        let ino = self.by_number.get(&(client, seq)).copied().filter(is_all);
        // Also of one that is open: the same request may come once more.
        if self.given_up.insert((client, seq)) {
            self.given_up_order.push_back((client, seq));
            if self.given_up_order.len() > GIVEN_UP_MAX
                && let Some(oldest) = self.given_up_order.pop_front()
            {
                self.given_up.remove(&oldest);
            }
        }
        ino
    }

    /// `client` closed `ino`; true when nobody has it open now.
    pub fn close(&mut self, counts: &mut OpenCounts, client: ClientId, ino: Ino, seq: u64) -> bool {
        if self.by_ino.get(&(ino, client)).is_some_and(|open| open.seq > seq) {
            return false;
        }
        self.remember_close(client, ino, seq);
        if let Some(open) = self.by_ino.remove(&(ino, client)) {
            self.by_number.remove(&(client, open.seq));
            counts.less(client);
        }
        if let Some(inos) = self.by_client.get_mut(&client) {
            inos.remove(&ino);
            if inos.is_empty() {
                self.by_client.remove(&client);
            }
        }
        !self.is_open(ino)
    }

    fn remember_close(&mut self, client: ClientId, ino: Ino, seq: u64) {
        if self.closed.insert((client, ino), seq).is_none() {
            self.closed_order.push_back((client, ino));
            if self.closed_order.len() > self.closes
                && let Some(oldest) = self.closed_order.pop_front()
            {
                self.closed.remove(&oldest);
            }
        }
    }

    fn of(&self, ino: Ino) -> impl Iterator<Item = (ClientId, Open)> + '_ {
        self.by_ino
            .range((ino, ClientId(0))..=(ino, ClientId(u64::MAX)))
            .map(|((_, client), open)| (*client, *open))
    }

    /// Who has it open.
    pub fn clients(&self, ino: Ino) -> impl Iterator<Item = ClientId> + '_ {
        self.of(ino).map(|(client, _)| client)
    }

    /// Is this the newest open of something by `client`?
    pub fn has_number(&self, client: ClientId, seq: u64) -> bool {
        self.by_number.contains_key(&(client, seq))
    }

    /// Does `client` have it open?
    pub fn has(&self, client: ClientId, ino: Ino) -> bool {
        self.by_ino.contains_key(&(ino, client))
    }

    /// Does `client` have it open for writing, by an open that it numbered higher than `seq`?
    pub fn writes_since(&self, ino: Ino, client: ClientId, seq: u64) -> bool {
        self.by_ino.get(&(ino, client)).is_some_and(|open| open.mode.writes() && open.seq > seq)
    }

    /// Does `client` have it open for writing?
    pub fn writes(&self, ino: Ino, client: ClientId) -> bool {
        self.by_ino.get(&(ino, client)).is_some_and(|open| open.mode.writes())
    }

    /// Does anybody have it open?
    pub fn is_open(&self, ino: Ino) -> bool {
        self.of(ino).next().is_some()
    }

    /// Does anybody but `client` have it open?
    pub fn others(&self, ino: Ino, client: ClientId) -> bool {
        self.of(ino).any(|(other, _)| other != client)
    }

    /// Does anybody but `client` have it open for writing?
    pub fn other_writers(&self, ino: Ino, client: ClientId) -> bool {
        self.of(ino).any(|(other, open)| other != client && open.mode.writes())
    }

    /// Who has it open for writing.
    pub fn writers(&self, ino: Ino) -> Vec<ClientId> {
        self.of(ino).filter(|(_, open)| open.mode.writes()).map(|(client, _)| client).collect()
    }

    /// Who has it open.
    pub fn sessions(&self, ino: Ino) -> Vec<OpenSession> {
        self.of(ino).map(|(client, open)| OpenSession { client, mode: open.mode }).collect()
    }

    /// Nothing is open any more.
    pub fn drop_all(&mut self, counts: &mut OpenCounts) {
        self.by_ino.keys().for_each(|(_, client)| counts.less(*client));
        *self = Self::new(self.closes);
    }

    /// A session ended: some of what it had open, up to `most`; nothing when that was all.
    pub fn end_some(&mut self, counts: &mut OpenCounts, client: ClientId, most: usize) -> Vec<Ino> {
        let mut ended = Vec::new();
        let Some(inos) = self.by_client.get_mut(&client) else { return ended };
        while ended.len() < most
            && let Some(ino) = inos.pop_first()
        {
            if let Some(open) = self.by_ino.remove(&(ino, client)) {
                self.by_number.remove(&(client, open.seq));
            }
            counts.less(client);
            ended.push(ino);
        }
        if inos.is_empty() {
            self.by_client.remove(&client);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a close that is older than the last open changes nothing; an open that its own close
    /// has overtaken leaves nothing behind.
    #[test]
    fn late_closes_and_late_opens() {
        let (client, ino) = (ClientId(1), Ino(5));
        let (mut opens, mut counts) = (Opens::new(10), OpenCounts::default());
        opens.open(&mut counts, client, ino, OpenMode::Read, 10);
        assert!(!opens.close(&mut counts, client, ino, 9));
        assert!(opens.is_open(ino));
        assert!(opens.close(&mut counts, client, ino, 11));
        opens.open(&mut counts, client, ino, OpenMode::Write, 10);
        assert!(!opens.is_open(ino));
        opens.open(&mut counts, client, ino, OpenMode::Write, 12);
        assert!(opens.other_writers(ino, ClientId(2)) && !opens.other_writers(ino, client));
        assert_eq!(opens.writers(ino), [client]);
        assert_eq!(opens.end_some(&mut counts, client, 9), [ino]);
        assert_eq!(opens.end_some(&mut counts, client, 9), []);
        assert_eq!((counts.all(), counts.of(client)), (0, 0));
        assert!(opens.by_number.is_empty());
    }

    /// Goal: an open of which its mount was never told is found by its number, unless there is a newer one of the same file; and
    /// one that comes when it was given up is none.
    #[test]
    fn opens_that_nobody_was_told_of() {
        let (client, other, ino) = (ClientId(1), ClientId(2), Ino(5));
        let (mut opens, mut counts) = (Opens::new(10), OpenCounts::default());
        assert!(opens.open(&mut counts, client, ino, OpenMode::Write, 10));
        assert_eq!((opens.untold(other, 10), opens.untold(client, 10)), (None, Some(ino)));
        assert!(opens.open(&mut counts, client, ino, OpenMode::Read, 12));
        assert_eq!(opens.untold(client, 10), None, "known by its newer one");
        assert!(opens.close(&mut counts, client, ino, 13));
        assert_eq!(opens.untold(client, 12), None);
        assert!(!opens.open(&mut counts, client, Ino(6), OpenMode::Write, 12) && !opens.is_open(Ino(6)));
        (100..200 + GIVEN_UP_MAX as u64).for_each(|seq| assert!(opens.untold(client, seq).is_none()));
        assert_eq!((opens.given_up.len(), opens.given_up_order.len()), (GIVEN_UP_MAX, GIVEN_UP_MAX));
        assert_eq!((opens.by_number.len(), counts.all()), (0, 0));
        // A create that finds a file which a program of this mount has open.
        assert!(opens.open(&mut counts, client, ino, OpenMode::Read, 5_000));
        assert!(opens.open(&mut counts, client, ino, OpenMode::Write, 5_001));
        assert_eq!(opens.untold(client, 5_001), None, "it is open by its older one");
        // What was closed by its number may be asked for once more.
        assert!(opens.open(&mut counts, client, Ino(7), OpenMode::Write, 6_000));
        assert_eq!(opens.untold(client, 6_000), Some(Ino(7)));
        assert!(opens.close(&mut counts, client, Ino(7), 6_000));
        assert!(!opens.open(&mut counts, client, Ino(7), OpenMode::Write, 6_000));
    }
}
