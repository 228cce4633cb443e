//! Files that belong to all clients: two to lock, two to append to, two for everything else ([`Ledger`]). What every lane was told of them, and whether
//! that can be true.

use crate::contest::Contest;
use crate::hub::LaneId;
use crate::ledger::Ledger;
use crate::paging::Paged;
use skep_model::Rng;
use skep_types::{ClientId, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// Begins every record.
const MAGIC: [u8; 8] = *b"\xf5skeprc\xfa";
/// Magic, number, length.
const HEADER: usize = 20;

/// A lock that a program was told it holds, and has not begun to give up.
#[derive(Debug, Clone, Copy)]
pub struct Holder {
    /// Which file.
    pub file: usize,
    /// The whole file, or a range of it: they do not meet.
    pub whole: bool,
    pub lane: LaneId,
    /// In which session: it goes with it.
    pub client: ClientId,
    /// Excludes everybody.
    pub exclusive: bool,
    /// First and last byte.
    pub range: (u64, u64),
    /// Lives of metad when it was taken.
    pub metad_lives: u64,
}

impl Holder {
    fn excludes(&self, other: &Self) -> bool {
        let meet = self.range.0 <= other.range.1 && other.range.0 <= self.range.1;
        (self.file, self.whole) == (other.file, other.whole)
            && self.lane != other.lane
            && meet
            && (self.exclusive || other.exclusive)
    }
}

/// A record that was, or may have been, appended.
#[derive(Debug, Clone)]
struct Record {
    bytes: Vec<u8>,
    /// Cuts that there had been when it was begun, once its writer was told that it is there.
    told: Option<usize>,
    /// An fsync was answered since.
    synced: bool,
    /// Truncates of the log that there had been when it was begun, none under way.
    truncates: Option<u32>,
}

/// A file that is appended to.
#[derive(Debug, Clone, Default)]
pub struct Log {
    pub ino: Ino,
    records: BTreeMap<u64, Record>,
    /// Bytes of all records.
    pub bytes: u64,
    /// Truncates of it that were begun.
    truncates: u32,
    /// Those under way, or of which nobody knows what became.
    truncating: u32,
}

impl Log {
    /// Nothing was appended to it.
    pub fn new(ino: Ino) -> Self {
        Self { ino, ..Self::default() }
    }
}

#[derive(Debug, Default)]
pub struct Fields {
    /// Files to lock.
    pub locked: Vec<Ino>,
    /// Files to append to.
    pub logs: Vec<Log>,
    /// How often another file took the place of one.
    pub logs_renewed: u32,
    /// Files to read through pages.
    pub paged: Vec<Paged>,
    /// Files to write, cut, extend and give times to.
    pub ledgers: Vec<Ledger>,
    /// How many there have been: each has a name of its own.
    pub ledgers_made: u32,
    /// The file that several change at once.
    pub contest: Option<Contest>,
    /// How many there have been.
    pub contests_made: u32,
    /// Locks that are held.
    holders: Vec<Holder>,
    /// Sessions that live, as mgmtd has decided.
    pub living: BTreeSet<ClientId>,
    /// What became of wishes, by client life and ticket.
    pub ended: BTreeMap<(u32, u64), Result<(), skep_types::Errno>>,
    /// Open files that have ended, of which the mount was not told yet, by client life.
    closed: BTreeMap<u32, Vec<u64>>,
    /// Lives of metad so far.
    pub metad_lives: u64,
    records: u64,
}

impl Fields {
    /// A program was told that it holds a lock; an error says who else does.
    pub fn holds(&mut self, holder: Holder) -> Result<(), String> {
        if !self.living.contains(&holder.client) {
            return Ok(());
        }
        let living = |other: &&Holder| self.living.contains(&other.client);
        let other = self.holders.iter().filter(living).find(|other| holder.excludes(other)).copied();
        self.holders.push(holder);
        other.map_or(Ok(()), |other| Err(format!("{holder:?} is held, and so is {other:?}")))
    }

    /// A program asks for a lock. From now on it may hold nothing else of that range.
    pub fn asks(&mut self, lane: LaneId, file: usize, whole: bool, (start, last): (u64, u64)) {
        let mut rest = Vec::new();
        self.holders.retain(|holder| {
            let (from, to) = holder.range;
            let own = holder.lane == lane && holder.file == file && holder.whole == whole;
            if !own || to < start || from > last {
                return true;
            }
            rest.extend((from < start).then(|| Holder { range: (from, start.wrapping_sub(1)), ..*holder }));
            rest.extend((to > last).then(|| Holder { range: (last.wrapping_add(1), to), ..*holder }));
            false
        });
        self.holders.append(&mut rest);
    }

    /// It gives up what it holds of a file. `true`: it had held it over a restart of metad.
    pub fn gives_up(&mut self, lane: LaneId, file: usize) -> bool {
        let lives = self.metad_lives;
        let own = |holder: &Holder| holder.lane == lane && holder.file == file;
        let over = self.holders.iter().any(|holder| own(holder) && holder.metad_lives != lives);
        self.holders.retain(|holder| !own(holder));
        over
    }

    /// These clients hold nothing any more, whatever they were told.
    pub fn lose_locks(&mut self, clients: &BTreeSet<ClientId>) {
        self.holders.retain(|holder| !clients.contains(&holder.client));
    }

    /// An open file has ended; its mount hears of it later.
    pub fn closes_late(&mut self, life: u32, handle: u64) {
        self.closed.entry(life).or_default().push(handle);
    }

    /// Open files of whose end a mount hears now.
    pub fn take_closed(&mut self, life: u32) -> Vec<u64> {
        self.closed.remove(&life).unwrap_or_default()
    }

    /// A client is no more: nobody holds what its programs held.
    pub fn client_gone(&mut self, life: u32) {
        self.holders.retain(|holder| holder.lane.life != life);
        for ledger in &mut self.ledgers {
            if ledger.turn.is_some_and(|lane| lane.life == life) {
                (ledger.turn, ledger.spoilt) = (None, true);
            }
        }
        if let Some(contest) = &mut self.contest {
            contest.client_gone(life);
        }
        self.ended.retain(|(of, _), _| *of != life);
        self.closed.remove(&life);
    }

    /// The number of a new record, whose append begins. `None`: another file has taken the place of the log.
    pub fn begin_record(&mut self, log: usize, ino: Ino, len: u32) -> Option<u64> {
        let log = self.logs.get_mut(log).filter(|log| log.ino == ino)?;
        self.records += 1;
        let bytes = content(self.records, len);
        let truncates = (log.truncating == 0).then_some(log.truncates);
        log.records.insert(self.records, Record { bytes, told: None, synced: false, truncates });
        log.bytes += u64::from(len);
        Some(self.records)
    }

    /// Its writer was told that it is there; `cuts` as there had been at its beginning.
    pub fn told(&mut self, log: usize, number: u64, cuts: usize) {
        if let Some(record) = self.logs[log].records.get_mut(&number) {
            record.told = Some(cuts);
        }
    }

    /// Its writer was told that it is durable.
    pub fn synced(&mut self, log: usize, number: u64) {
        if let Some(record) = self.logs[log].records.get_mut(&number) {
            record.synced = record.told.is_some();
        }
    }

    /// A truncate of a log begins. `false`: another file has taken its place.
    pub fn truncate_begins(&mut self, log: usize, ino: Ino) -> bool {
        let Some(log) = self.logs.get_mut(log).filter(|log| log.ino == ino) else { return false };
        (log.truncates, log.truncating, log.bytes) = (log.truncates + 1, log.truncating + 1, 0);
        true
    }

    /// It was answered, unless another file has taken the place of the log meanwhile.
    pub fn truncated(&mut self, log: usize, ino: Ino) {
        if let Some(log) = self.logs.get_mut(log).filter(|log| log.ino == ino) {
            log.truncating -= 1;
        }
    }

    /// Was a record of a log that is owed begun after a truncate?
    pub fn owes_after_truncate(&self, log: usize, owed: &BTreeSet<u64>) -> bool {
        owed.iter().any(|number| self.logs[log].records[number].truncates.is_some_and(|count| count > 0))
    }

    /// Records that must be in a log now.
    pub fn must_hold(&self, log: usize, cuts: usize) -> BTreeSet<u64> {
        let truncates = Some(self.logs[log].truncates);
        let there =
            |record: &Record| record.truncates == truncates && (record.synced || record.told == Some(cuts));
        self.logs[log].records.iter().filter(|(_, record)| there(record)).map(|(number, _)| *number).collect()
    }

    /// Is each of `must` in `bytes`, whole, at one place, and no other of which its writer was told at two?
    pub fn check_log(&self, log: usize, must: &BTreeSet<u64>, bytes: &[u8]) -> Result<(), String> {
        let records = &self.logs[log].records;
        let mut found: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for at in memchr::memmem::find_iter(bytes, &MAGIC) {
            let Some(head) = bytes.get(at..at + HEADER) else { continue };
            let number = u64::from_le_bytes(head[8..16].try_into().unwrap_or_default());
            if records.get(&number).is_some_and(|record| bytes[at..].starts_with(&record.bytes)) {
                found.entry(number).or_default().push(at);
            }
        }
        let twice = |number: &u64| found.get(number).is_some_and(|places| places.len() > 1);
        if let Some((number, _)) =
            records.iter().find(|(number, record)| record.told.is_some() && twice(number))
        {
            return Err(format!("record {number} stands at {:?}", found[number]));
        }
        for number in must {
            let Some(Record { bytes: record, told, synced, .. }) = records.get(number) else { continue };
            let len = record.len();
            let places = found.get(number).map_or(&[][..], Vec::as_slice);
            if places.len() != 1 {
                return Err(format!(
                    "record {number} of {len} bytes (told with {told:?} cuts, synced: {synced}) stands at {places:?} \
                     of a log of {} bytes{}",
                    bytes.len(),
                    torn(record, bytes)
                ));
            }
        }
        Ok(())
    }
}

/// For people: where a record begins that is not whole, and where it is broken.
fn torn(record: &[u8], bytes: &[u8]) -> String {
    let Some(at) = memchr::memmem::find(bytes, &record[..HEADER.min(record.len())]) else {
        return String::new();
    };
    let differs: Vec<usize> = (0..record.len()).filter(|n| bytes.get(at + n) != Some(&record[*n])).collect();
    let ends = (differs.first(), differs.last(), differs.len());
    format!("; it begins at {at}, differs from {:?} to {:?} in {} bytes", ends.0, ends.1, ends.2)
}

/// The bytes of a record.
pub fn content(number: u64, len: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    let mut rng = Rng::new(number);
    while bytes.len() < len as usize {
        bytes.extend(rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len.max(HEADER as u32) as usize);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(lane: u32, client: u64, exclusive: bool, range: (u64, u64)) -> Holder {
        let lane = LaneId { life: lane, lane: 0 };
        Holder { file: 0, whole: false, lane, client: ClientId(client), exclusive, range, metad_lives: 1 }
    }

    /// Goal: two that exclude each other are found, unless one has lost its session.
    #[test]
    fn two_holders_are_found() {
        let mut fields = Fields { living: [1, 2, 3].map(ClientId).into(), ..Fields::default() };
        fields.holds(holder(1, 1, false, (0, 9))).unwrap();
        fields.holds(holder(2, 2, false, (5, 9))).unwrap();
        fields.holds(holder(3, 3, true, (10, 19))).unwrap();
        assert!(fields.holds(holder(4, 3, true, (9, 9))).is_err());
        fields.gives_up(LaneId { life: 4, lane: 0 }, 0);
        fields.living.remove(&ClientId(1));
        fields.gives_up(LaneId { life: 2, lane: 0 }, 0);
        fields.holds(holder(5, 2, true, (0, 9))).unwrap();
        fields.client_gone(3);
        fields.holds(holder(6, 2, true, (10, 19))).unwrap();
    }

    /// Goal: a record that a truncate may have taken is not asked for, and found when it stands twice all the same.
    #[test]
    fn truncates_take_records() {
        let mut fields = Fields { logs: vec![Log::default()], ..Fields::default() };
        let before = fields.begin_record(0, Ino(0), 100).unwrap();
        fields.told(0, before, 0);
        assert!(fields.truncate_begins(0, Ino(0)) && !fields.truncate_begins(0, Ino(1)));
        let beside = fields.begin_record(0, Ino(0), 100).unwrap();
        fields.truncated(0, Ino(0));
        let after = fields.begin_record(0, Ino(0), 100).unwrap();
        [beside, after].into_iter().for_each(|number| fields.told(0, number, 0));
        assert_eq!(fields.must_hold(0, 0), BTreeSet::from([after]));
        let must = fields.must_hold(0, 0);
        let [beside, after] = [beside, after].map(|number| content(number, 100));
        fields.check_log(0, &must, &after).unwrap();
        fields.check_log(0, &must, &[beside.clone(), after.clone()].concat()).unwrap();
        assert!(fields.check_log(0, &must, &[beside.clone(), after, beside].concat()).is_err());
    }

    /// Goal: a record that is missing, torn, or there twice is found; one that may be lost is not asked for.
    #[test]
    fn records_are_found() {
        let mut fields = Fields { logs: vec![Log::default()], ..Fields::default() };
        let (one, two) =
            (fields.begin_record(0, Ino(0), 100).unwrap(), fields.begin_record(0, Ino(0), 5_000).unwrap());
        fields.told(0, one, 0);
        fields.told(0, two, 1);
        assert_eq!(fields.must_hold(0, 1), BTreeSet::from([two]));
        fields.synced(0, one);
        let must = fields.must_hold(0, 1);
        assert_eq!(must, BTreeSet::from([one, two]));
        let whole = [content(one, 100), vec![0; 77], content(two, 5_000)].concat();
        fields.check_log(0, &must, &whole).unwrap();
        let mut torn = whole.clone();
        torn[3_000] ^= 1;
        assert!(fields.check_log(0, &must, &torn).is_err());
        assert!(fields.check_log(0, &must, &whole[..5_000]).is_err());
        assert!(fields.check_log(0, &must, &[whole.clone(), whole].concat()).is_err());
    }
}
