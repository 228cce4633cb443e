//! What all clients do to one directory, as the log tells it: who won a name, who lost it, and which
//! content a reader may find. Lanes compare what they were told with it.

use crate::hub::Place;
use skep_meta::{Action, Command};
use skep_types::Ino;
use skep_wire::meta::MetaRequest;
use std::collections::{BTreeMap, BTreeSet};

/// What the names of boxes begin with.
pub const BOX: &[u8] = b"box-";

/// Names and inodes of the directory at one moment.
pub type Names = BTreeMap<Vec<u8>, Ino>;

#[derive(Debug, Clone)]
enum Change {
    Put(Vec<u8>, Ino),
    Take(Vec<u8>),
    Move(Vec<u8>, Vec<u8>),
    Swap(Vec<u8>, Vec<u8>),
}

/// One content of a box: a file that one lane writes and all lanes read.
#[derive(Debug, Clone, Copy)]
pub struct Version {
    pub tag: u32,
    /// Bytes.
    pub len: u32,
    /// When its writer began.
    pub started: u64,
    /// When its writer had closed it; `None` = not, or who knows.
    pub finished: Option<u64>,
}

#[derive(Debug, Default)]
pub struct SharedDir {
    pub dir: Option<Ino>,
    /// What is in it now.
    pub names: Names,
    /// All that ever had a name in it, but for boxes.
    pub inodes: BTreeSet<Ino>,
    log: Vec<(Place, Change)>,
    /// Every state that it was in, with the time when that began.
    states: Vec<(u64, Names)>,
    /// Names that were looked for and not found, by whoever is to make them at that time.
    pub wanted: Vec<(u64, &'static [u8])>,
    /// Contents of the boxes.
    pub boxes: BTreeMap<Vec<u8>, Vec<Version>>,
}

impl SharedDir {
    /// A record of the log; the text says why it should not be there.
    pub fn record(&mut self, now: u64, at: Place, command: &Command) -> Result<(), String> {
        let Some(change) = self.dir.and_then(|dir| change_of(dir, command)) else { return Ok(()) };
        self.apply(&change)?;
        if let Change::Put(name, ino) = &change
            && !name.starts_with(BOX)
        {
            self.inodes.insert(*ino);
        }
        self.log.push((at, change));
        self.states.push((now, self.names.clone()));
        Ok(())
    }

    fn apply(&mut self, change: &Change) -> Result<(), String> {
        let wrong = Err(format!("{change:?} is in the log, but the directory is {:?}", self.names));
        match change.clone() {
            Change::Put(name, ino) => {
                if self.names.contains_key(&name) {
                    return wrong;
                }
                self.names.insert(name, ino);
            }
            Change::Take(name) => {
                if self.names.remove(&name).is_none() {
                    return wrong;
                }
            }
            Change::Move(from, to) => match self.names.remove(&from) {
                Some(ino) => drop(self.names.insert(to, ino)),
                None => return wrong,
            },
            Change::Swap(one, two) => match (self.names.get(&one).copied(), self.names.get(&two).copied()) {
                (Some(first), Some(second)) => {
                    self.names.insert(one, second);
                    self.names.insert(two, first);
                }
                _ => return wrong,
            },
        }
        Ok(())
    }

    /// The log of this server ends there now.
    pub fn cut(&mut self, now: u64, last: Place) {
        self.log.retain(|(at, _)| at.metad != last.metad || at.index <= last.index);
        self.names.clear();
        for (_, change) in self.log.clone() {
            // Each of them was applied in this order before.
            let _ = self.apply(&change);
        }
        self.states.push((now, self.names.clone()));
        self.doubt();
    }

    /// Content that was not made durable may be lost: no finished version is sure any more.
    pub fn doubt(&mut self) {
        for versions in self.boxes.values_mut() {
            for version in versions {
                version.finished = None;
            }
        }
    }

    /// Every state that it was in from `from` to `until`, both included.
    pub fn states(&self, from: u64, until: u64) -> Vec<&Names> {
        let before = self.states.partition_point(|(at, _)| *at < from);
        let after = self.states.partition_point(|(at, _)| *at <= until);
        self.states[before.saturating_sub(1)..after].iter().map(|(_, names)| names).collect()
    }

    /// The directory is made.
    pub fn begin(&mut self, now: u64, dir: Ino) {
        self.dir = Some(dir);
        self.states.push((now, Names::new()));
    }

    /// The version that a reader from `from` to `until` must find; `None` = it may find anything.
    pub fn must_read(&self, name: &[u8], from: u64, until: u64) -> Option<Version> {
        let versions = self.boxes.get(name)?;
        let last = versions.last()?;
        // Within one millisecond nobody knows what came first.
        let finished = last.finished.is_some_and(|at| at < from);
        (finished && last.started <= until).then_some(*last)
    }
}

/// Names of the directory that lead elsewhere, or nowhere, by this command.
pub fn names_changed(dir: Ino, command: &Command) -> Vec<Vec<u8>> {
    match change_of(dir, command) {
        None => Vec::new(),
        Some(Change::Put(name, _) | Change::Take(name)) => vec![name],
        Some(Change::Move(one, two) | Change::Swap(one, two)) => vec![one, two],
    }
}

fn change_of(dir: Ino, command: &Command) -> Option<Change> {
    let Action::Request(request) = &command.action else { return None };
    let bytes = |name: &skep_types::Name| name.as_bytes().to_vec();
    match request {
        MetaRequest::Create(m) if m.parent == dir => Some(Change::Put(bytes(&m.name), command.choices.ino?)),
        MetaRequest::MakeNode(m) if m.parent == dir => {
            Some(Change::Put(bytes(&m.name), command.choices.ino?))
        }
        MetaRequest::Link(m) if m.parent == dir => Some(Change::Put(bytes(&m.name), m.ino)),
        MetaRequest::Unlink(m) if m.parent == dir => Some(Change::Take(bytes(&m.name))),
        MetaRequest::RemoveDir(m) if m.parent == dir => Some(Change::Take(bytes(&m.name))),
        MetaRequest::Rename(m) if m.parent == dir => Some(match m.exchange {
            true => Change::Swap(bytes(&m.name), bytes(&m.to_name)),
            false => Change::Move(bytes(&m.name), bytes(&m.to_name)),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &mut SharedDir, now: u64, index: u64, name: &[u8], ino: u64) -> Result<(), String> {
        let change = Change::Put(name.to_vec(), Ino(ino));
        dir.apply(&change)?;
        dir.log.push((Place { metad: 0, index }, change));
        dir.states.push((now, dir.names.clone()));
        Ok(())
    }

    /// Goal: a name has one winner, a power cut takes names back, and a question about a stretch of
    /// time sees every state in it.
    #[test]
    fn names_have_one_winner() {
        let mut dir = SharedDir::default();
        dir.begin(1, Ino(9));
        put(&mut dir, 5, 1, b"a", 20).unwrap();
        assert!(put(&mut dir, 6, 2, b"a", 21).is_err());
        put(&mut dir, 7, 2, b"b", 22).unwrap();
        dir.cut(8, Place { metad: 1, index: 0 });
        assert_eq!(dir.names.len(), 2, "another server's log was cut");
        dir.cut(8, Place { metad: 0, index: 1 });
        assert_eq!(dir.names.len(), 1);
        let sizes = |from, until| dir.states(from, until).iter().map(|s| s.len()).collect::<Vec<_>>();
        assert_eq!(sizes(2, 4), [0]);
        assert_eq!(sizes(2, 7), [0, 1, 2]);
        assert_eq!(sizes(6, 6), [1]);
        assert_eq!(sizes(9, 20), [1]);
    }
}
