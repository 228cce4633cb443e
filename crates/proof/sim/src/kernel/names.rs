//! Names that the kernel knows: which inode, or none, until when without a question, and since which epoch.

use super::Kernel;
use super::attributes::{Asked, until};
use skep_model::Rng;
use skep_types::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// What a look at a name finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// An inode, or that there is none, without a question.
    Valid(Option<Ino>),
    /// A name of that number, which led to this inode: to be asked for again, without the directory's lock.
    Known(u64, Ino),
    /// Nothing that could be used: to be asked for under the lock.
    Unknown,
}

#[derive(Debug)]
struct Dentry {
    dir: Ino,
    name: Vec<u8>,
    ino: Option<Ino>,
    /// 0 = it is asked for each time.
    valid_until: u64,
    epoch: u64,
}

/// Only what is hashed: whoever holds a name that is not has its number, and finds nothing by it.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: BTreeMap<u64, Dentry>,
    hashed: BTreeMap<Ino, BTreeMap<Vec<u8>, u64>>,
    /// Names on which something is mounted.
    mounts: BTreeSet<u64>,
    /// Mounts that were lost with the names below which they were.
    detached: u64,
    epoch: u64,
    last: u64,
}

impl Names {
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn bump(&mut self) {
        self.epoch += 1;
    }

    fn id(&self, dir: Ino, name: &[u8]) -> Option<u64> {
        self.hashed.get(&dir)?.get(name).copied()
    }

    pub(super) fn is_hashed(&self, dir: Ino, name: &[u8]) -> bool {
        self.id(dir, name).is_some()
    }

    pub(super) fn lead_to(&self, ino: Ino) -> bool {
        self.all.values().any(|dentry| dentry.ino == Some(ino))
    }

    fn unhash(&mut self, id: u64) -> Option<Dentry> {
        let dentry = self.all.remove(&id)?;
        if let Some(names) = self.hashed.get_mut(&dentry.dir) {
            names.remove(&dentry.name);
        }
        Some(dentry)
    }

    /// A name goes, and what is below it: names, and what is mounted there.
    fn invalidate(&mut self, id: u64) {
        let mut ids = vec![id];
        while let Some(id) = ids.pop() {
            self.detached += u64::from(self.mounts.remove(&id));
            let below = self.unhash(id).and_then(|dentry| self.hashed.get(&dentry.ino?));
            ids.extend(below.into_iter().flat_map(|names| names.values()));
        }
    }

    /// The second for which names may be valid after a sleep (promises) is over at once here.
    pub(super) fn slept(&mut self) {
        self.all.values_mut().for_each(|dentry| dentry.valid_until = 0);
    }

    pub(super) fn has_mounts(&self) -> bool {
        !self.mounts.is_empty()
    }

    pub(super) fn drop_name(&mut self, dir: Ino, name: &[u8]) -> bool {
        let id = self.id(dir, name);
        id.into_iter().for_each(|id| self.invalidate(id));
        id.is_some()
    }

    fn add(&mut self, dentry: Dentry) {
        self.drop_name(dentry.dir, &dentry.name);
        self.last += 1;
        self.hashed.entry(dentry.dir).or_default().insert(dentry.name.clone(), self.last);
        self.all.insert(self.last, dentry);
    }

    /// Gives the dentry a place; what is there is gone already.
    fn put(&mut self, id: u64, dentry: Dentry) {
        self.hashed.entry(dentry.dir).or_default().insert(dentry.name.clone(), id);
        self.all.insert(id, dentry);
    }

    pub(super) fn shrink(&mut self, rng: &mut Rng) {
        let ids: Vec<u64> = self.all.keys().copied().filter(|id| !self.mounts.contains(id)).collect();
        for id in ids {
            // A directory stays while names below it do.
            let below = |dentry: &Dentry| dentry.ino.and_then(|ino| self.hashed.get(&ino));
            let bare = self.all.get(&id).and_then(below).is_none_or(BTreeMap::is_empty);
            if bare && rng.percent(50) {
                self.unhash(id);
            }
        }
    }
}

impl Kernel {
    /// A walk comes to a name; `exactly`: as what makes something new asks, whatever is valid (K12).
    pub fn look(&mut self, dir: Ino, name: &[u8], now: u64, exactly: bool) -> Look {
        let epoch = self.names.epoch;
        let found = self.names.id(dir, name).and_then(|id| Some((id, self.names.all.get(&id)?)));
        let Some((id, dentry)) = found else { return Look::Unknown };
        let valid = dentry.valid_until >= now && dentry.valid_until > 0 && !exactly;
        match dentry.ino {
            _ if dentry.epoch < epoch => {}
            found if valid => return Look::Valid(found),
            Some(ino) => return Look::Known(id, ino),
            None => {}
        }
        self.names.invalidate(id);
        Look::Unknown
    }

    /// The answer to a first look (or a listing), under the lock; of a directory that the kernel has by another name
    /// that name goes.
    pub fn looked(
        &mut self,
        dir: Ino,
        name: &[u8],
        (ino, is_dir): (Option<Ino>, bool),
        validity: u64,
        asked: Asked,
        now: u64,
    ) {
        let alias =
            |dentry: &Dentry| is_dir && dentry.ino == ino && (dentry.dir, &dentry.name[..]) != (dir, name);
        let alias = self.names.all.iter().find(|(_, dentry)| alias(dentry)).map(|(id, _)| *id);
        alias.into_iter().for_each(|id| drop(self.names.unhash(id)));
        let valid_until = until(validity, now);
        if let Some(id) = self.names.id(dir, name)
            && let Some(known) = self.names.all.get_mut(&id)
            && known.ino == ino
            && known.epoch == asked.epoch
        {
            known.valid_until = valid_until;
            return;
        }
        self.names.add(Dentry { dir, name: name.to_vec(), ino, valid_until, epoch: asked.epoch });
    }

    /// The answer to a look at a name of that number. `false`: it leads elsewhere, or nowhere, and is unhashed. One that
    /// was unhashed meanwhile serves who asked, and nobody else (K7).
    pub fn revalidated(&mut self, id: u64, ino: Option<Ino>, validity: u64, now: u64) -> bool {
        let Some(dentry) = self.names.all.get_mut(&id) else { return true };
        if dentry.ino == ino {
            dentry.valid_until = until(validity, now);
            return true;
        }
        self.names.invalidate(id);
        false
    }

    /// An own change has removed a name. The kernel knows that there is none, but asks.
    pub fn removed(&mut self, dir: Ino, name: &[u8]) {
        let id = self.names.id(dir, name);
        let ino = id.and_then(|id| self.names.all.get(&id)?.ino);
        self.names.drop_name(dir, name);
        ino.into_iter().for_each(|ino| self.unlinked(ino));
        self.changed_dir(dir);
    }

    /// Drops a name of which an own change could not say what it is now.
    pub fn doubted(&mut self, dir: Ino, name: &[u8]) {
        self.names.drop_name(dir, name);
    }

    /// An own rename: the dentry goes to its new place, with the validity that it has (K13). `exchange`: so does the other.
    pub fn renamed(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), exchange: bool) {
        let [one, two] = [from, to].map(|(dir, name)| self.names.id(dir, name));
        if one.is_some() && one == two {
            return;
        }
        if !exchange {
            self.removed(to.0, to.1);
        }
        for (id, (dir, name)) in [(one, to), (two.filter(|_| exchange), from)] {
            let Some(dentry) = id.and_then(|id| self.names.all.remove(&id).map(|dentry| (id, dentry))) else {
                continue;
            };
            let (id, dentry) = dentry;
            // The other one may stand there already.
            let names = self.names.hashed.entry(dentry.dir).or_default();
            if names.get(&dentry.name) == Some(&id) {
                names.remove(&dentry.name);
            }
            dentry.ino.into_iter().for_each(|ino| self.changed_dir(ino));
            self.names.put(id, Dentry { dir, name: name.to_vec(), ..dentry });
        }
        self.changed_dir(from.0);
        self.changed_dir(to.0);
    }

    /// Something is mounted on a name.
    #[cfg(test)]
    pub(super) fn mounts(&mut self, dir: Ino, name: &[u8]) {
        self.names.mounts.extend(self.names.id(dir, name));
    }

    /// Mounts that went with the names below which they were.
    #[cfg(test)]
    pub(super) fn detached(&self) -> u64 {
        self.names.detached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(1);
    const A: Ino = Ino(7);
    const B: Ino = Ino(8);

    fn with(names: &[(&[u8], Option<Ino>, u64)]) -> Kernel {
        let mut kernel = Kernel::default();
        for (name, ino, validity) in names {
            kernel.looked(DIR, name, (*ino, false), *validity, kernel.asks(), 0);
        }
        kernel
    }

    /// Goal: a name is used until its time is over, counted from when the reply was applied (K1), then asked for by its
    /// number; one that is absent is looked up anew. What makes something new asks at once (K12).
    #[test]
    fn names_are_used_until_their_time_is_over() {
        let mut kernel = with(&[(b"a", Some(A), 100), (b"none", None, 100), (b"never", Some(B), 0)]);
        assert_eq!(kernel.look(DIR, b"a", 100, false), Look::Valid(Some(A)));
        assert!(matches!(kernel.look(DIR, b"a", 101, false), Look::Known(_, A)));
        assert!(matches!(kernel.look(DIR, b"a", 1, true), Look::Known(_, A)), "K12");
        assert!(matches!(kernel.look(DIR, b"never", 0, false), Look::Known(_, B)));
        assert_eq!(kernel.look(DIR, b"none", 100, false), Look::Valid(None));
        assert_eq!(kernel.look(DIR, b"none", 101, false), Look::Unknown);
        assert_eq!(kernel.look(DIR, b"new", 0, false), Look::Unknown);
    }

    /// Goal: a look at a known name makes it valid again if it leads to the same, and drops it if not.
    #[test]
    fn a_known_name_is_revalidated() {
        let mut kernel = with(&[(b"a", Some(A), 0)]);
        let Look::Known(id, _) = kernel.look(DIR, b"a", 5, false) else { panic!() };
        assert!(kernel.revalidated(id, Some(A), 10, 5));
        assert_eq!(kernel.look(DIR, b"a", 15, false), Look::Valid(Some(A)));
        assert!(!kernel.revalidated(id, Some(B), 10, 15) && !kernel.names.is_hashed(DIR, b"a"));
        // Who asked before somebody else dropped it goes on with what it was told.
        assert!(kernel.revalidated(id, Some(A), 10, 15) && !kernel.names.is_hashed(DIR, b"a"));
    }

    /// Goal: a renamed dentry keeps its validity, and a look under way makes it valid under its new name (K13); what it
    /// replaces goes, and of two that are exchanged both keep theirs.
    #[test]
    fn a_renamed_name_keeps_its_validity() {
        let mut kernel = with(&[(b"a", Some(A), 100), (b"b", Some(B), 200)]);
        kernel.renamed((DIR, b"a"), (DIR, b"b"), true);
        assert_eq!(kernel.look(DIR, b"a", 150, false), Look::Valid(Some(B)));
        let Look::Known(id, A) = kernel.look(DIR, b"b", 150, false) else { panic!() };
        kernel.renamed((DIR, b"b"), (DIR, b"a"), false);
        assert_eq!(kernel.look(DIR, b"b", 1, false), Look::Unknown);
        assert!(kernel.revalidated(id, Some(A), 100, 200), "it asked for b, and was told of it");
        assert_eq!(kernel.look(DIR, b"a", 300, false), Look::Valid(Some(A)));
        kernel.renamed((DIR, b"a"), (DIR, b"a"), false);
        assert_eq!(kernel.look(DIR, b"a", 300, false), Look::Valid(Some(A)));
        kernel.removed(DIR, b"a");
        assert_eq!(kernel.look(DIR, b"a", 0, false), Look::Unknown);
    }

    /// Goal: a directory has one name: found by another, the old one goes. A file may have both.
    #[test]
    fn a_directory_has_one_name() {
        for is_dir in [true, false] {
            let mut kernel = with(&[(b"a", Some(A), 100)]);
            kernel.looked(DIR, b"b", (Some(A), is_dir), 100, kernel.asks(), 0);
            assert_eq!(kernel.look(DIR, b"b", 0, false), Look::Valid(Some(A)));
            assert_eq!(kernel.names.is_hashed(DIR, b"a"), !is_dir);
        }
    }
}
