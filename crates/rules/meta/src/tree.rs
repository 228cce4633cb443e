//! Entries of a directory: a name's cookie, finding it, adding and removing it.
//!
//! Names with the same hash form a chain of collision indexes 0, 1, 2, ...; every place of the
//! chain but the last says `more`. A name removed from the middle leaves a dead place behind, so
//! that no other name's cookie ever changes.

use crate::config::HashFn;
use crate::ctx::Ctx;
use crate::fail::Fail;
use crate::key;
use crate::limit::COLLISIONS_MAX;
use crate::row::entry::{Entry, Target};
use crate::row::header::Keys;
use crate::row::{Inode, LinkRef};
use alloc::format;
use skep_types::{Errno, Ino, Kind, Name, cookie};
use skep_wire::{Refusal, Status};

use crate::fail::Need;

/// A name that exists.
#[derive(Debug, Clone)]
pub struct Place {
    pub dir: Ino,
    pub cookie: u64,
    /// The chain goes on.
    pub more: bool,
    /// What it names.
    pub target: Target,
}

impl Place {
    /// As an inode's link.
    pub fn link(&self) -> LinkRef {
        LinkRef { parent: self.dir, cookie: self.cookie }
    }
}

/// Where a new name goes.
#[derive(Debug, Clone, Copy)]
pub struct Free {
    dir: Ino,
    cookie: u64,
    /// `more` of the place itself (a dead one inside the chain).
    more: bool,
    /// The last place of the chain, which must say `more` from now on.
    extends: Option<u64>,
    /// All collision indexes are taken.
    full: bool,
}

impl Free {
    /// Is there room in the chain?
    pub fn require_room(&self, name: &Name) -> Result<(), Fail> {
        if !self.full {
            return Ok(());
        }
        Err(Refusal::with(
            Status::errno(Errno::ENOSPC),
            format!(
                "directory {}: {COLLISIONS_MAX} names with the hash of \"{}\" exist; use another name",
                self.dir,
                name.display()
            ),
        )
        .into())
    }
}

/// What a search found.
#[derive(Debug, Clone)]
pub enum Spot {
    /// The name.
    Taken(Place),
    /// Room for it.
    Free(Free),
}

impl Spot {
    /// The name, if it is there.
    pub fn taken(self) -> Option<Place> {
        match self {
            Self::Taken(place) => Some(place),
            Self::Free(_) => None,
        }
    }
}

impl Ctx<'_> {
    fn entry(&self, dir: Ino, cookie: u64) -> Result<Option<Entry>, Fail> {
        Ok(self.row(&key::entry(dir, cookie), "entry")?)
    }

    /// Looks for a name that is to be changed. One that a transaction has locked is waited for.
    pub fn find(&self, dir: Ino, name: &Name) -> Result<Spot, Fail> {
        match self.choose.name_lock(dir, name) {
            Some(txid) => Err(Fail::Wait(Need::Txn(txid))),
            None => self.look(dir, name),
        }
    }

    /// Looks for a name.
    pub fn look(&self, dir: Ino, name: &Name) -> Result<Spot, Fail> {
        self.looks_at(dir);
        let at = spot(self.scene.hash, &self.scene.keys, dir, name.as_bytes());
        let mut free: Option<Free> = None;
        for index in 0..COLLISIONS_MAX {
            let cookie = at + u64::from(index);
            let Some(entry) = self.entry(dir, cookie)? else {
                let here = Free { dir, cookie, more: false, extends: None, full: false };
                return Ok(Spot::Free(free.unwrap_or(here)));
            };
            match entry.target {
                Some(target) if target.name == *name => {
                    return Ok(Spot::Taken(Place { dir, cookie, more: entry.more, target }));
                }
                None if free.is_none() => {
                    free = Some(Free { dir, cookie, more: entry.more, extends: None, full: false });
                }
                _ => {}
            }
            if !entry.more {
                let full = index + 1 == COLLISIONS_MAX;
                let next = cookie + u64::from(!full);
                let after = Free { dir, cookie: next, more: false, extends: Some(cookie), full };
                return Ok(Spot::Free(free.unwrap_or(after)));
            }
        }
        Err(Fail::Store(crate::store::StoreError::Corrupt(format!(
            "directory {dir}: the chain of names with one hash has no end: its rows are damaged. Put the newest backup of the server back"
        ))))
    }

    /// The name, or ENOENT.
    pub fn place(&self, dir: Ino, name: &Name) -> Result<Place, Fail> {
        self.find(dir, name)?.taken().ok_or_else(|| Errno::ENOENT.into())
    }

    /// Adds a name and counts it; times of the directory are the caller's business.
    pub fn add(&mut self, parent: &mut Inode, free: Free, target: Target) -> Result<LinkRef, Fail> {
        free.require_room(&target.name)?;
        if let Some(last) = free.extends
            && let Some(mut entry) = self.entry(free.dir, last)?
        {
            entry.more = true;
            self.put(key::entry(free.dir, last), &entry);
        }
        parent.entries += 1;
        let link = LinkRef { parent: free.dir, cookie: free.cookie };
        self.put(key::entry(free.dir, free.cookie), &Entry { more: free.more, target: Some(target) });
        Ok(link)
    }

    /// Lets a name mean something else.
    pub fn retarget(&mut self, place: &Place, target: Target) {
        self.put(key::entry(place.dir, place.cookie), &Entry { more: place.more, target: Some(target) });
    }

    /// Removes a name and uncounts it.
    pub fn remove(&mut self, parent: &mut Inode, place: &Place) -> Result<(), Fail> {
        parent.entries = parent.entries.saturating_sub(1);
        if place.more {
            self.put(key::entry(place.dir, place.cookie), &Entry { more: true, target: None });
            return Ok(());
        }
        self.txn.delete(key::entry(place.dir, place.cookie));
        // The chain now ends earlier: dead places at its end go too.
        let mut at = place.cookie;
        while at & (cookie::LOWEST - 1) != 0 {
            at -= 1;
            let Some(mut before) = self.entry(place.dir, at)? else { break };
            before.more = false;
            if before.target.is_some() {
                self.put(key::entry(place.dir, at), &before);
                break;
            }
            self.txn.delete(key::entry(place.dir, at));
        }
        Ok(())
    }

    /// The entry at a known cookie.
    pub fn place_at(&self, link: LinkRef) -> Result<Option<Place>, Fail> {
        let entry = self.entry(link.parent, link.cookie)?;
        Ok(entry.and_then(|entry| {
            let target = entry.target?;
            Some(Place { dir: link.parent, cookie: link.cookie, more: entry.more, target })
        }))
    }
}

/// The first cookie of a name: that of collision index 0.
pub fn spot(hash: HashFn, keys: &Keys, dir: Ino, name: &[u8]) -> u64 {
    let route = cookie::route_in(hash(&keys.names.0, dir, name));
    cookie::cookie(route, hash(&keys.secret.0, dir, name), 0)
}

/// A living name of an inode.
pub fn target(name: &Name, ino: Ino, kind: Kind) -> Target {
    Target { name: name.clone(), ino, kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::testing::*;
    use alloc::collections::BTreeMap;
    use skep_wire::meta::{DirEntry, List};

    fn constant(_: &[u8; 16], _: Ino, _: &[u8]) -> u64 {
        1
    }

    fn few(key: &[u8; 16], dir: Ino, name: &[u8]) -> u64 {
        cookie::hash(key, dir, name) % 3
    }

    /// Goal: 256 names of one hash fit, the next is refused with advice, and a removed one makes
    /// room again; cookies never change.
    #[test]
    fn a_full_collision_index() {
        let mut bed = Bed::with(Config { hash: constant, ..Config::default() }, 1);
        for n in 0..COLLISIONS_MAX {
            bed.create(ME, Ino::ROOT, &format!("{n}"));
        }
        let to = bed.send(ME, create(Ino::ROOT, "one more"));
        let refusal = bed.replies[&to].1.clone().unwrap_err();
        assert_eq!(refusal.status, errno(Errno::ENOSPC));
        assert!(refusal.detail.contains("use another name"));
        bed.check();
        bed.unlink(ME, Ino::ROOT, "77").unwrap();
        bed.create(ME, Ino::ROOT, "one more");
        let list = bed
            .call(ME, List { dir: Ino::ROOT, after: 0, max: 1_000, with_attr: false, as_told: None })
            .unwrap();
        assert_eq!(list.entries[77].name, name("one more"));
        bed.check();
        for n in (0..COLLISIONS_MAX).filter(|n| *n != 77) {
            bed.unlink(ME, Ino::ROOT, &format!("{n}")).unwrap();
            bed.check();
        }
        bed.unlink(ME, Ino::ROOT, "one more").unwrap();
        let list = bed
            .call(ME, List { dir: Ino::ROOT, after: 0, max: 1_000, with_attr: false, as_told: None })
            .unwrap();
        assert!(list.entries.is_empty());
        bed.check();
    }

    /// Goal: with three hashes for all names, random creates, unlinks and renames keep every other
    /// name findable under its first cookie.
    #[test]
    fn chains_survive_everything() {
        let mut bed = Bed::with(Config { hash: few, ..Config::default() }, 1);
        let mut cookies: BTreeMap<alloc::string::String, u64> = BTreeMap::new();
        let mut state = 42u64;
        for _ in 0..1_500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (text, other) = (format!("{}", (state >> 40) % 60), format!("{}", (state >> 50) % 60));
            match (state >> 33) % 4 {
                0 | 1 => drop(bed.try_create(ME, Ino::ROOT, &text)),
                2 => {
                    if bed.unlink(ME, Ino::ROOT, &text).is_ok() {
                        cookies.remove(&text);
                    }
                }
                _ => {
                    if text != other && bed.call(ME, rename(Ino::ROOT, &text, Ino::ROOT, &other)).is_ok() {
                        cookies.remove(&text);
                    }
                }
            }
            bed.check();
            let list = bed
                .call(ME, List { dir: Ino::ROOT, after: 0, max: 1_000, with_attr: false, as_told: None })
                .unwrap();
            for entry in list.entries {
                let before = *cookies.entry(entry.name.display()).or_insert(entry.cookie);
                assert_eq!(before, entry.cookie);
                assert_eq!(bed.lookup(Ino::ROOT, &entry.name.display()), Ok(entry.ino));
            }
        }
    }

    /// Goal: a name's cookie is where the map's key and the directory say that it is, is another one in another
    /// directory, and stays over renames of the directory and over restarts: a listing goes on where it was.
    #[test]
    fn cookies_stay_and_routes_are_known_outside() {
        let mut bed = Bed::new();
        let (dir, other) = (bed.mkdir(Ino::ROOT, "d"), bed.mkdir(Ino::ROOT, "e"));
        for n in 0..300 {
            bed.create(ME, dir, &format!("n{n}"));
            bed.create(ME, other, &format!("n{n}"));
        }
        let list = |dir, after, max| List { dir, after, max, with_attr: false, as_told: None };
        let all = bed.call(ME, list(dir, 0, 1_000)).unwrap().entries;
        for entry in &all {
            let routed = cookie::route(&NAMES, dir, entry.name.as_bytes());
            assert_eq!(cookie::route_of(entry.cookie), routed);
        }
        let elsewhere = bed.call(ME, list(other, 0, 1_000)).unwrap().entries;
        let hashes = |cookie: u64| (cookie >> 8) & ((1 << cookie::HASH_BITS) - 1);
        let same = |one: &&DirEntry| {
            elsewhere.iter().any(|it| it.name == one.name && hashes(it.cookie) == hashes(one.cookie))
        };
        assert_eq!(all.iter().filter(same).count(), 0, "a name has the same hash in another directory");
        let half = bed.call(ME, list(dir, 0, 150)).unwrap();
        bed.call(ME, rename(Ino::ROOT, "d", other, "moved")).unwrap();
        bed.restart(&[ME.client]);
        let rest = bed.call(ME, list(dir, half.entries[149].cookie, 1_000)).unwrap();
        assert!(rest.end);
        assert_eq!([half.entries, rest.entries].concat(), all);
        let end = bed.call(ME, list(dir, cookie::END, 10)).unwrap();
        assert!(end.end && end.entries.is_empty());
    }
}
