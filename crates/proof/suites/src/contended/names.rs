//! Names that several programs change and look at, and what is known to be true of each of them.

use skep_model::Rng;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// There is no such name.
const ABSENT: u64 = 0;
/// Files have so many lengths, by which attributes show which one was looked at.
const LENGTHS: u64 = 125;

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
    /// The number of the file that it leads to.
    holds: AtomicU64,
}

/// As a name was when somebody began to look.
struct Known {
    changes: u64,
    holds: u64,
}

impl Known {
    fn is_settled(&self) -> bool {
        self.changes.is_multiple_of(2)
    }
}

impl Name {
    fn known(&self) -> Known {
        let changes = self.changes.load(SeqCst);
        Known { changes, holds: self.holds.load(SeqCst) }
    }

    /// What was true all the time since then, if something was.
    fn still(&self, known: &Known) -> Option<Option<u64>> {
        let is_still = known.is_settled() && self.changes.load(SeqCst) == known.changes;
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
        let known = self.all[name].known();
        if !known.is_settled() || !self.all[other].known().is_settled() {
            // A change failed, and what it left is not known.
            return Ok(());
        }
        match known.holds {
            ABSENT => self.create(way, name),
            number if other != name && rng.percent(50) => self.rename(way, (name, number), other),
            _ => self.unlink(way, name),
        }
    }

    fn create(&self, way: &Path, name: usize) -> Result<(), String> {
        let number = self.given.fetch_add(1, SeqCst) + 1;
        let path = path(way, name);
        let made = self.changed(&[(name, number)], || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            file.write_all(&content(number))
        });
        made.map_err(|e| format!("create of {name}, which is absent: {e}"))
    }

    fn rename(&self, way: &Path, (name, number): (usize, u64), other: usize) -> Result<(), String> {
        let (from, to) = (path(way, name), path(way, other));
        let moved = self.changed(&[(name, ABSENT), (other, number)], || fs::rename(&from, &to));
        moved.map_err(|e| format!("rename of {name} to {other}: {e}"))
    }

    fn unlink(&self, way: &Path, name: usize) -> Result<(), String> {
        let path = path(way, name);
        let gone = self.changed(&[(name, ABSENT)], || fs::remove_file(&path));
        gone.map_err(|e| format!("unlink of {name}, which is there: {e}"))
    }

    /// A change that fails leaves its names in doubt, for ever.
    fn changed(&self, names: &[(usize, u64)], change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        for (name, _) in names {
            self.all[*name].changes.fetch_add(1, SeqCst);
        }
        change()?;
        for (name, holds) in names {
            self.all[*name].holds.store(*holds, SeqCst);
            self.all[*name].changes.fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// Looks at any name: at its attributes, or at what the file holds.
    pub fn look(&self, way: &Path, rng: &mut Rng) -> Result<(), String> {
        let name = rng.below(self.all.len() as u64) as usize;
        let known = self.all[name].known();
        let path = path(way, name);
        if rng.percent(50) {
            let shown = there(fs::symlink_metadata(&path)).map(|found| found.map(|of| of.len()));
            return self.judge(("stat", name), &known, shown, |number| content(number).len() as u64);
        }
        let shown = there(fs::read(&path)).map(|found| found.map(|bytes| number_and_length(&bytes)));
        self.judge(("read", name), &known, shown, |number| (Some(number), content(number).len()))
    }

    /// No race excuses an error, unless it is that there is no such name.
    fn judge<T: PartialEq + fmt::Debug>(
        &self,
        (what, name): (&str, usize),
        known: &Known,
        shown: io::Result<Option<T>>,
        of: impl Fn(u64) -> T,
    ) -> Result<(), String> {
        let shown = shown.map_err(|e| format!("{what} of {name}: {e}"))?;
        let Some(truth) = self.all[name].still(known) else { return Ok(()) };
        let right = truth.map(of);
        match shown == right {
            true => Ok(()),
            false => Err(format!("{what} of {name} showed {shown:?}, right is {right:?} (file {truth:?})")),
        }
    }

    /// Each name that was not changed meanwhile must be shown once if it is there, else not.
    pub fn list(&self, way: &Path) -> Result<(), String> {
        let known: Vec<Known> = self.all.iter().map(Name::known).collect();
        let mut shown: BTreeMap<OsString, u32> = BTreeMap::new();
        for entry in fs::read_dir(way).map_err(|e| format!("listing: {e}"))? {
            *shown.entry(entry.map_err(|e| format!("listing: {e}"))?.file_name()).or_default() += 1;
        }
        for (name, known) in known.iter().enumerate() {
            let times = path(way, name).file_name().and_then(|name| shown.remove(name)).unwrap_or(0);
            let truth = self.all[name].still(known);
            if truth.is_some_and(|truth| u32::from(truth.is_some()) != times) {
                return Err(format!("listing: {name} was shown {times} times, it holds {truth:?}"));
            }
        }
        match shown.first_key_value() {
            Some((name, _)) => Err(format!("listing: nobody made {}", name.display())),
            None => Ok(()),
        }
    }
}

fn path(way: &Path, name: usize) -> PathBuf {
    way.join(format!("name-{name}"))
}

fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + (number % LENGTHS) as usize)
}

/// The number, if nothing else is in it.
fn number_and_length(bytes: &[u8]) -> (Option<u64>, usize) {
    let number = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
    (number.filter(|number| content(*number) == bytes), bytes.len())
}

fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: what is shown wrongly is found: a name that is gone, one that is there, another file, part of one, a listing.
    #[test]
    fn wrong_answers_are_found() {
        let dir = skep_rig::Scratch::new(None).unwrap();
        let names = Names::new(1, 1);
        let mut rng = Rng::new(5);
        let mut found_by = |names: &Names| -> BTreeSet<String> {
            let looks = (0..40).filter_map(|_| names.look(dir.path(), &mut rng).err());
            looks.chain(names.list(dir.path()).err()).map(|text| text[..4].to_owned()).collect()
        };
        let some = |of: &[&str]| of.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        names.create(dir.path(), 0).unwrap();
        assert_eq!(found_by(&names), some(&[]));
        names.all[0].holds.store(ABSENT, SeqCst);
        assert_eq!(found_by(&names), some(&["stat", "read", "list"]));
        names.all[0].holds.store(7, SeqCst);
        assert_eq!(found_by(&names), some(&["stat", "read"]));
        fs::remove_file(path(dir.path(), 0)).unwrap();
        assert_eq!(found_by(&names), some(&["stat", "read", "list"]));
        names.all[0].changes.store(1, SeqCst);
        assert_eq!(found_by(&names), some(&[]), "somebody changes it");
        fs::create_dir(path(dir.path(), 0)).unwrap();
        assert_eq!(found_by(&names), some(&["read"]), "an error is one all the same");
        fs::write(dir.path().join("else"), b"").unwrap();
        assert!(found_by(&names).contains("list"));
        assert_eq!(number_and_length(&content(3)), (Some(3), 32));
        assert_eq!(number_and_length(&content(3)[..31]), (None, 31));
    }
}
