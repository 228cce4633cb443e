//! Names that several programs change and look at, and what is known to be true of each of them.

use skep_model::Rng;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// There is no such name.
const ABSENT: u64 = 0;

/// Each is changed by one program, which says so before and after. Who looks, and finds that it was not changed meanwhile,
/// has been shown what is true or something wrong.
pub struct Names {
    all: Vec<Name>,
    own: usize,
    /// The last number that a file was given; none is given twice.
    given: AtomicU64,
}

#[derive(Default)]
struct Name {
    /// Odd while it is changed.
    changes: AtomicU64,
    /// What the file holds that it leads to.
    holds: AtomicU64,
}

/// As a name was when somebody began to look.
#[derive(PartialEq)]
struct Known {
    changes: u64,
    holds: u64,
}

impl Name {
    fn known(&self) -> Known {
        let changes = self.changes.load(SeqCst);
        Known { changes, holds: self.holds.load(SeqCst) }
    }

    /// What was true all the time since then, if something was.
    fn still(&self, known: &Known) -> Option<Option<u64>> {
        let is_still = known.changes.is_multiple_of(2) && self.changes.load(SeqCst) == known.changes;
        is_still.then(|| (known.holds != ABSENT).then_some(known.holds))
    }
}

impl Names {
    pub fn new(programs: usize, own: usize) -> Self {
        let all = (0..programs * own).map(|_| Name::default()).collect();
        Self { all, own, given: AtomicU64::new(ABSENT) }
    }

    /// One change of a name of program `me`.
    pub fn change(&self, way: &Path, me: usize, rng: &mut Rng) -> Result<(), String> {
        let mut mine = || me * self.own + rng.below(self.own as u64) as usize;
        let (name, other) = (mine(), mine());
        match self.all[name].holds.load(SeqCst) {
            ABSENT => self.create(way, name),
            _ if other != name && rng.percent(50) => self.rename(way, name, other),
            _ => self.unlink(way, name),
        }
    }

    fn create(&self, way: &Path, name: usize) -> Result<(), String> {
        let number = self.given.fetch_add(1, SeqCst) + 1;
        let path = path(way, name);
        let made = self.changed(&[(name, number)], || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(&number.to_le_bytes())
        });
        made.map_err(|e| format!("create of {name}, which is absent: {e}"))
    }

    fn rename(&self, way: &Path, name: usize, other: usize) -> Result<(), String> {
        let number = self.all[name].holds.load(SeqCst);
        let (from, to) = (path(way, name), path(way, other));
        let moved = self.changed(&[(name, ABSENT), (other, number)], || fs::rename(&from, &to));
        moved.map_err(|e| format!("rename of {name} to {other}: {e}"))
    }

    fn unlink(&self, way: &Path, name: usize) -> Result<(), String> {
        let path = path(way, name);
        let gone = self.changed(&[(name, ABSENT)], || fs::remove_file(&path));
        gone.map_err(|e| format!("unlink of {name}, which is there: {e}"))
    }

    fn changed(&self, names: &[(usize, u64)], change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        for (name, _) in names {
            self.all[*name].changes.fetch_add(1, SeqCst);
        }
        let done = change();
        for (name, holds) in names {
            self.all[*name].holds.store(*holds, SeqCst);
            self.all[*name].changes.fetch_add(1, SeqCst);
        }
        done
    }

    /// Looks at any name: by attributes, or by what the file holds.
    pub fn look(&self, way: &Path, rng: &mut Rng) -> Result<(), String> {
        let name = rng.below(self.all.len() as u64) as usize;
        let known = self.all[name].known();
        let path = path(way, name);
        let (what, shown) = match rng.percent(50) {
            true => ("stat", there(fs::symlink_metadata(&path).map(|found| stands_for(&found, known.holds)))),
            false => ("read", there(File::open(&path).and_then(number_in))),
        };
        let Some(truth) = self.all[name].still(&known) else { return Ok(()) };
        match shown {
            Ok(shown) if shown == truth => Ok(()),
            shown => Err(format!("{what} of {name} showed {shown:?}, it holds {truth:?}")),
        }
    }

    /// Lists all names.
    pub fn list(&self, way: &Path) -> Result<(), String> {
        let known: Vec<Known> = self.all.iter().map(Name::known).collect();
        let mut shown = BTreeSet::new();
        for entry in fs::read_dir(way).map_err(|e| format!("listing: {e}"))? {
            let name = entry.map_err(|e| format!("listing: {e}"))?.file_name();
            if !shown.insert(name.clone()) {
                return Err(format!("listing: {} twice", name.display()));
            }
        }
        for (name, known) in known.iter().enumerate() {
            let is_shown = shown.contains(path(way, name).file_name().unwrap_or_default());
            let truth = self.all[name].still(known);
            if truth.is_some_and(|truth| truth.is_some() != is_shown) {
                return Err(format!("listing: {name} shown: {is_shown}, it holds {truth:?}"));
            }
        }
        Ok(())
    }
}

fn path(way: &Path, name: usize) -> PathBuf {
    way.join(format!("name-{name}"))
}

fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Attributes of a file that is whole say nothing against what it holds.
fn stands_for(found: &fs::Metadata, number: u64) -> u64 {
    if found.len() == size_of::<u64>() as u64 { number } else { u64::MAX }
}

fn number_in(mut file: File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    io::Read::read_exact(&mut file, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is shown wrongly is found: a name that is gone, one that is there, another file's content, a listing.
    #[test]
    fn wrong_answers_are_found() {
        let dir = skep_rig::Scratch::new(None).unwrap();
        let names = Names::new(1, 1);
        let mut rng = Rng::new(5);
        let mut found_by = |names: &Names| -> BTreeSet<String> {
            let looks = (0..40).filter_map(|_| names.look(dir.path(), &mut rng).err());
            looks.chain(names.list(dir.path()).err()).map(|text| text[..4].to_owned()).collect()
        };
        names.create(dir.path(), 0).unwrap();
        assert_eq!(found_by(&names), BTreeSet::new());
        let all = ["stat", "read", "list"].map(String::from);
        names.all[0].holds.store(ABSENT, SeqCst);
        assert_eq!(found_by(&names), BTreeSet::from(all.clone()));
        names.all[0].holds.store(7, SeqCst);
        assert_eq!(found_by(&names), BTreeSet::from(["read".to_owned()]));
        fs::remove_file(path(dir.path(), 0)).unwrap();
        assert_eq!(found_by(&names), BTreeSet::from(all));
        names.all[0].changes.store(1, SeqCst);
        assert_eq!(found_by(&names), BTreeSet::new());
    }
}
