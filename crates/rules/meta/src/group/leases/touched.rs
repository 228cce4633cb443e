//! What of leases a change is about: read off the rows that it writes, so that no operation can be forgotten.

use crate::choose::Plan;
use crate::fail::corrupt;
use crate::key::{self, Table};
use crate::row::Inode;
use crate::row::entry::{Entry, Target};
use crate::row::inode::MAY_BE_HELD;
use crate::row::txn::{Prepared, Redo};
use crate::store::{Batch, Store, StoreError};
use alloc::collections::BTreeSet;
use skep_types::{ClientId, Decode, Ino, Kind, Name, ShardId, Term};
use skep_wire::meta::{Recall, RecallKind};

/// What changes of an inode that somebody may have a lease on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Its attributes and ACLs, and what its `..` leads to.
    Attributes,
    /// The attributes of an entry of it, and who may know them.
    Entry(Ino, Knows),
    /// A name in it, with its attributes and its listing; and those of what it led to, if that was no directory.
    Name(Name, Option<Ino>),
    /// It goes.
    Everything,
}

/// Who may know the attributes of an entry by a lease on its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knows {
    Nobody,
    /// He alone writes to it.
    Only(ClientId),
    /// Whoever has the lease.
    Holders,
}

/// Inodes, and what changes of each.
pub type Touched = BTreeSet<(Ino, What)>;

impl What {
    /// The first in order.
    pub const FIRST: Self = Self::Attributes;

    /// As its holder is told.
    pub fn recall(&self, ino: Ino, shard: ShardId, term: Term, number: u64) -> Recall {
        let (kind, name, entry) = match self {
            Self::Attributes => (RecallKind::Attributes, None, None),
            Self::Entry(entry, _) => (RecallKind::Entry, None, Some(*entry)),
            Self::Name(name, entry) => (RecallKind::Name, Some(name.clone()), *entry),
            Self::Everything => (RecallKind::Everything, None, None),
        };
        Recall { shard, term, number, ino, kind, name, entry, wants_back: None }
    }

    /// May this holder of a lease on the inode know it?
    pub fn is_known_to(&self, holder: ClientId) -> bool {
        match self {
            Self::Entry(_, Knows::Only(client)) => *client == holder,
            _ => true,
        }
    }
}

/// What somebody may know without asking.
pub struct Known<'a> {
    /// Has somebody a lease on this directory?
    pub is_leased: &'a dyn Fn(Ino) -> bool,
    /// Who but the one that changes it may know the attributes of this inode by the lease on its directory, as things were
    /// before?
    pub who_knows: &'a dyn Fn(Ino) -> Knows,
    /// The inode that the change makes: nobody knows it.
    pub made: Option<Ino>,
    /// Canary for the simulator: see [`crate::Config`].
    pub follows: bool,
}

impl Known<'_> {
    /// The directory whose lease covers the attributes of this inode.
    pub fn cover(&self, ino: Ino, inode: &Inode) -> Option<(Ino, What)> {
        let dir = inode.covering()?;
        if !(self.is_leased)(dir) || self.made == Some(ino) {
            return None;
        }
        match (self.who_knows)(ino) {
            Knows::Nobody => None,
            who => Some((dir, What::Entry(ino, who))),
        }
    }
}

/// What these rows change of what is known. The rows that they replace have been read by whoever made them.
pub fn touched(store: &dyn Store, batch: &Batch, known: &Known<'_>) -> Result<Touched, StoreError> {
    let is_leased = known.is_leased;
    let mut touched = Touched::new();
    for (key, row) in batch {
        let Some((table, ino)) = key::table_and_ino(key) else { continue };
        if table == Table::Entry as u8 && is_leased(ino) {
            let old = store.get(key)?;
            let (old, new) = (target(old.as_deref())?, target(row.as_deref())?);
            if old != new {
                let added = new.filter(|new| old.as_ref().is_none_or(|old| old.name != new.name));
                let led = old.map(|old| What::Name(old.name, (old.kind != Kind::Dir).then_some(old.ino)));
                let leads = added.map(|new| What::Name(new.name, None));
                touched.extend([led, leads].into_iter().flatten().map(|what| (ino, what)));
            }
        } else if table == Table::Inode as u8 && known.made != Some(ino) {
            // As it was: what is moved was covered by the directory that it leaves.
            let Some(old) = store.get(key)? else { continue };
            let old = Inode::from_bytes(&old).map_err(|e| corrupt("inode row", e))?;
            if is_as_before(&old, row.as_deref())? {
                continue;
            }
            if !old.is_dir() {
                let new = row.as_ref().filter(|_| known.follows).map(|row| Inode::from_bytes(row));
                let new = new.transpose().map_err(|e| corrupt("inode row", e))?;
                touched.extend(known.cover(ino, new.as_ref().unwrap_or(&old)));
            // One without a name is not lent, and whoever removed it uses nothing of it.
            } else if old.nlink > 0 && is_leased(ino) {
                let new = row.as_ref().map(|row| Inode::from_bytes(row)).transpose();
                let new = new.map_err(|e| corrupt("inode row", e))?;
                let stays = new.is_some_and(|inode| inode.nlink > 0);
                touched.insert((ino, if stays { What::Attributes } else { What::Everything }));
            }
        } else if table == Table::Prepared as u8
            && let Some(row) = row
        {
            touched.extend(promised(row)?.filter(|ino| is_leased(*ino)).map(|ino| (ino, What::Everything)));
        }
    }
    Ok(without_what_others_say(touched))
}

/// Does nothing change but that nobody holds it any longer? What anybody knows of it is true then.
fn is_as_before(old: &Inode, row: Option<&[u8]>) -> Result<bool, StoreError> {
    let Some(row) = row.filter(|_| old.flags & MAY_BE_HELD != 0) else { return Ok(false) };
    let new = Inode::from_bytes(row).map_err(|e| corrupt("inode row", e))?;
    Ok(Inode { flags: old.flags & !MAY_BE_HELD, ..old.clone() } == new)
}

/// A name takes the attributes of the directory with it, and those of what it led to; the end of a directory takes all.
fn without_what_others_say(mut touched: Touched) -> Touched {
    let takes_attributes = |what: &What| matches!(what, What::Name(..) | What::Everything);
    let dirs: BTreeSet<Ino> =
        touched.iter().filter(|(_, what)| takes_attributes(what)).map(|(ino, _)| *ino).collect();
    let led = touched.iter().filter_map(|(dir, what)| match what {
        What::Name(_, Some(entry)) => Some((*dir, *entry)),
        _ => None,
    });
    let led: BTreeSet<(Ino, Ino)> = led.collect();
    touched.retain(|(ino, what)| match what {
        What::Attributes => !dirs.contains(ino),
        What::Entry(entry, _) => !led.contains(&(*ino, *entry)),
        _ => true,
    });
    touched
}

/// Directories that were promised to go.
fn promised(row: &[u8]) -> Result<impl Iterator<Item = Ino>, StoreError> {
    let prepared = Prepared::from_bytes(row).map_err(|e| corrupt("prepared row", e))?;
    let retired = |redo: &Redo| matches!(redo, Redo::RetireDir(_)).then(|| redo.ino());
    Ok(prepared.redo.unwrap_or_default().into_iter().filter_map(move |redo| retired(&redo)))
}

fn target(row: Option<&[u8]>) -> Result<Option<Target>, StoreError> {
    let entry = row.map(|bytes| Entry::from_bytes(bytes).map_err(|e| corrupt("entry row", e))).transpose()?;
    Ok(entry.and_then(|entry| entry.target))
}

/// What a transaction will change here, before anybody is asked for a vote.
pub fn names_of(plan: &Plan, is_leased: impl Fn(Ino) -> bool) -> Touched {
    let leased = plan.names.iter().filter(|(dir, _)| is_leased(*dir));
    leased.map(|(dir, name)| (*dir, What::Name(name.clone(), None))).collect()
}
