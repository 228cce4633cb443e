//! Files that all clients write, cut, extend and give times to, one after the other while all keep them open: what
//! must be in such a file, how long it is, and which times it may show.

use crate::hub::LaneId;
use skep_types::{Attr, ClientId, Ino, Timestamp};
use std::collections::BTreeMap;

/// What must be true of one file. Changes are told to it in the order in which they were acknowledged; none begins
/// before the one in front of it has ended.
#[derive(Debug, Default)]
pub struct Ledger {
    pub ino: Ino,
    /// Who uses it now.
    pub turn: Option<LaneId>,
    /// Something happened whose effect is unknown, so another file takes its place.
    pub spoilt: bool,
    /// Power cuts that there had been when it was made.
    pub cuts: usize,
    /// What it holds.
    pub bytes: Vec<u8>,
    times: Times,
}

#[derive(Debug, Default)]
struct Times {
    /// The change time is not older, whoever asks.
    floor: Timestamp,
    /// Nor older than this for the mount that wrote, until it has committed and everybody sees it.
    own: BTreeMap<ClientId, Timestamp>,
    given: Option<Timestamp>,
    /// Something was written since, by a mount that may not know.
    written_since: bool,
    /// Newest change times of the inode that each mount has seen.
    ctimes: BTreeMap<ClientId, Timestamp>,
}

impl Ledger {
    /// An empty file, made when all clocks showed `floor` or more.
    pub fn new(ino: Ino, cuts: usize, floor: Timestamp) -> Self {
        let times = Times { floor, ..Times::default() };
        Self { ino, cuts, times, ..Self::default() }
    }

    /// `data` was written at `offset` by a mount; clocks showed `lowest` or more meanwhile.
    pub fn wrote(&mut self, client: ClientId, offset: usize, data: &[u8], lowest: Timestamp) {
        let end = offset + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(data);
        self.times.floor = self.times.floor.min(lowest);
        self.times.own.insert(client, lowest);
        self.times.written_since = true;
    }

    /// Space was made, or a hole of the range, and the size stayed. Whether that moves times depends on where the
    /// content is.
    pub fn allocated(&mut self, hole: std::ops::Range<usize>, lowest: Timestamp) {
        let len = self.bytes.len();
        self.bytes[hole.start.min(len)..hole.end.min(len)].fill(0);
        self.times.floor = self.times.floor.min(lowest);
        self.times.written_since = true;
    }

    /// It was cut, or made longer, by the shard.
    pub fn resized(&mut self, size: usize, lowest: Timestamp) {
        self.bytes.resize(size, 0);
        self.times.floor = lowest;
        self.times.own.clear();
        self.times.given = None;
    }

    /// It is `size` long at least.
    pub fn grew(&mut self, size: usize, lowest: Timestamp) {
        if size > self.bytes.len() {
            self.resized(size, lowest);
        }
    }

    /// A mount has told the shard of its writes.
    pub fn committed(&mut self, client: ClientId) {
        if let Some(own) = self.times.own.remove(&client) {
            self.times.floor = self.times.floor.max(own);
        }
    }

    /// Its change time was given.
    pub fn given(&mut self, client: ClientId, time: Timestamp) {
        self.committed(client);
        self.times.given = Some(time);
        self.times.written_since = false;
    }

    /// Are these attributes, which a mount is shown, possible? No clock ever showed more than `highest`.
    pub fn check(&mut self, client: ClientId, attr: &Attr, highest: Timestamp) -> Result<(), String> {
        if attr.size != self.bytes.len() as u64 {
            return Err(format!("is {} bytes long, should be {}", attr.size, self.bytes.len()));
        }
        let Times { floor, own, given, written_since, ctimes } = &mut self.times;
        let lowest = own.get(&client).copied().unwrap_or(*floor);
        let mtime = attr.mtime;
        match *given {
            Some(time) if mtime == time => {}
            Some(time) if !*written_since => {
                return Err(format!(
                    "shows mtime {mtime:?}, was given {time:?}, and nothing was written since"
                ));
            }
            // What was written since may have been told, or was written by a mount that did not know.
            Some(_) => {}
            None if mtime < lowest => {
                return Err(format!(
                    "shows mtime {mtime:?}, older than its last change at {lowest:?} or later"
                ));
            }
            None => {}
        }
        if given.is_none() && mtime > highest {
            return Err(format!("shows mtime {mtime:?}, later than any clock: {highest:?}"));
        }
        let before = ctimes.insert(client, attr.ctime).unwrap_or_default();
        if attr.ctime < before {
            return Err(format!("shows ctime {:?} after {before:?}", attr.ctime));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn attr(size: u64, mtime: i64, ctime: i64) -> Attr {
        Attr {
            ino: Ino(5),
            kind: skep_types::Kind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            project: skep_types::ProjectId(0),
            rdev: 0,
            size,
            blocks: 0,
            atime: time(0),
            mtime: time(mtime),
            ctime: time(ctime),
            btime: time(0),
            change: 1,
            generation: skep_types::Generation(0),
            cuts: 1,
            time_sets: 0,
            flags: 0,
        }
    }

    /// Goal: a size that is none of the acknowledged ones is found, and so is a time that went back, one that replaced
    /// a given one, and one of no clock.
    #[test]
    fn what_cannot_be_is_found() {
        let (one, two) = (ClientId(1), ClientId(2));
        let mut ledger = Ledger::new(Ino(5), 0, time(10));
        let seen = |ledger: &mut Ledger, client, size, mtime, ctime| {
            ledger.check(client, &attr(size, mtime, ctime), time(100)).is_ok()
        };
        ledger.wrote(one, 10, &[7; 10], time(20));
        assert_eq!(ledger.bytes, [[0; 10], [7; 10]].concat());
        assert!(!seen(&mut ledger, one, 10, 20, 20), "size");
        assert!(!seen(&mut ledger, one, 20, 19, 20), "its own write");
        assert!(seen(&mut ledger, two, 20, 10, 20), "not committed");
        ledger.committed(one);
        assert!(!seen(&mut ledger, two, 20, 19, 20));
        assert!(seen(&mut ledger, two, 20, 25, 30));
        assert!(!seen(&mut ledger, two, 20, 25, 29), "ctime fell");
        assert!(!seen(&mut ledger, two, 20, 101, 30), "of no clock");
        ledger.given(two, time(5));
        assert!(seen(&mut ledger, one, 20, 5, 30) && !seen(&mut ledger, one, 20, 25, 30));
        ledger.resized(3, time(40));
        assert_eq!(ledger.bytes, [0; 3]);
        assert!(!seen(&mut ledger, one, 3, 5, 50) && seen(&mut ledger, one, 3, 40, 50));
    }
}
