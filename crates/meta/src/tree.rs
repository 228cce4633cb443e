//! Entries of a directory: a name's cookie, finding it, adding and removing it.
//!
//! Names with the same hash form a chain of collision indexes 0, 1, 2, ...; every place of the
//! chain but the last says `more`. A name removed from the middle leaves a dead place behind, so
//! that no other name's cookie ever changes.

use crate::ctx::Ctx;
use crate::fail::Fail;
use crate::key;
use crate::limit::COLLISIONS_MAX;
use crate::row::entry::{Entry, Target};
use crate::row::slot::{Gate, RemoteGate};
use crate::row::{Inode, LinkRef};
use alloc::format;
use skep_types::{Errno, Ino, Kind, Name};
use skep_wire::{Refusal, Status};

use crate::fail::Need;

/// Bits of the hash in a cookie.
const HASH_BITS: u32 = 55;
/// Bits of the collision index.
const INDEX_BITS: u32 = 8;

/// The cookie of collision index `index`. Hashes 0 to 2 are avoided: small offsets of a listing
/// mean its start, `.` and `..`.
pub fn cookie(hash: u64, index: u32) -> u64 {
    let hash = hash & ((1 << HASH_BITS) - 1);
    let hash = if hash < 3 { hash + 3 } else { hash };
    hash << INDEX_BITS | u64::from(index)
}

/// A name that exists.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory.
    pub dir: Ino,
    /// Where.
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

    /// Looks for `name`. One that takes part in an operation over two shards must be waited for.
    pub fn find(&self, dir: Ino, name: &Name) -> Result<Spot, Fail> {
        let hash = (self.scene.hash)(&self.scene.hash_key, name.as_bytes());
        let mut free: Option<Free> = None;
        for index in 0..COLLISIONS_MAX {
            let cookie = cookie(hash, index);
            let Some(entry) = self.entry(dir, cookie)? else {
                let here = Free { dir, cookie, more: false, extends: None, full: false };
                return Ok(Spot::Free(free.unwrap_or(here)));
            };
            match entry.target {
                Some(target) if target.name == *name => {
                    if let Some(txid) = target.pending {
                        return Err(Fail::Wait(Need::Gate(Gate::Remote(RemoteGate { txid }))));
                    }
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
            "directory {dir}: the chain of names with one hash has no end; run skep fsck"
        ))))
    }

    /// The name, or ENOENT.
    pub fn place(&self, dir: Ino, name: &Name) -> Result<Place, Fail> {
        self.find(dir, name)?.taken().ok_or_else(|| Errno::ENOENT.into())
    }

    /// Adds a name and counts it; times of the directory are the caller's business.
    pub fn add(&mut self, parent: &mut Inode, free: Free, target: Target) -> Result<LinkRef, Fail> {
        if free.full {
            return Err(Refusal::with(
                Status::errno(Errno::ENOSPC),
                format!(
                    "directory {}: {COLLISIONS_MAX} names with the hash of \"{}\" exist; use another name",
                    free.dir,
                    target.name.display()
                ),
            )
            .into());
        }
        if let Some(last) = free.extends {
            if let Some(mut entry) = self.entry(free.dir, last)? {
                entry.more = true;
                self.put(key::entry(free.dir, last), &entry);
            }
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
        let mut cookie = place.cookie;
        while cookie & ((1 << INDEX_BITS) - 1) != 0 {
            cookie -= 1;
            let Some(mut before) = self.entry(place.dir, cookie)? else { break };
            before.more = false;
            if before.target.is_some() {
                self.put(key::entry(place.dir, cookie), &before);
                break;
            }
            self.txn.delete(key::entry(place.dir, cookie));
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

/// A living name of an inode.
pub fn target(name: &Name, ino: Ino, kind: Kind) -> Target {
    Target { name: name.clone(), ino, kind, pending: None }
}
