//! What of leases a change is about: read off the rows that it writes, so that no operation can be forgotten.

use crate::choose::Plan;
use crate::fail::corrupt;
use crate::key::{self, Table};
use crate::row::Inode;
use crate::row::entry::{Entry, Target};
use crate::row::txn::{Prepared, Redo};
use crate::store::{Batch, Store, StoreError};
use alloc::collections::BTreeSet;
use skep_types::{Decode, Ino, Name, ShardId, Term};
use skep_wire::meta::{Recall, RecallKind};

/// What changes of an inode that somebody may have a lease on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Its attributes and ACLs, and what its `..` leads to.
    Attributes,
    /// A name in it: with its attributes and its listing.
    Name(Name),
    /// It goes, or all that is known of it.
    Everything,
}

/// Inodes, and what changes of each.
pub type Touched = BTreeSet<(Ino, What)>;

impl What {
    /// The first in order.
    pub const FIRST: Self = Self::Attributes;

    /// As its holder is told.
    pub fn recall(&self, ino: Ino, shard: ShardId, term: Term, number: u64) -> Recall {
        let (kind, name) = match self {
            Self::Attributes => (RecallKind::Attributes, None),
            Self::Name(name) => (RecallKind::Name, Some(name.clone())),
            Self::Everything => (RecallKind::Everything, None),
        };
        Recall { shard, term, number, ino, kind, name, entry: None }
    }
}

/// What these rows change of directories that are leased. The rows that they replace have been read by whoever made them.
pub fn touched(
    store: &dyn Store,
    batch: &Batch,
    is_leased: impl Fn(Ino) -> bool,
) -> Result<Touched, StoreError> {
    let mut touched = Touched::new();
    for (key, row) in batch {
        let Some((table, ino)) = key::table_and_ino(key) else { continue };
        if table == Table::Entry as u8 && is_leased(ino) {
            let old = store.get(key)?;
            let (old, new) = (target(old.as_deref())?, target(row.as_deref())?);
            if old != new {
                let names = [old, new].into_iter().flatten().map(|target| target.name);
                touched.extend(names.map(|name| (ino, What::Name(name))));
            }
        } else if table == Table::Inode as u8 && is_leased(ino) {
            let (what, shown) = match row {
                Some(row) => (What::Attributes, Some(row.clone())),
                None => (What::Everything, store.get(key)?),
            };
            let shown = shown.map(|row| Inode::from_bytes(&row).map_err(|e| corrupt("inode row", e)));
            if shown.transpose()?.is_some_and(|inode| inode.is_dir()) {
                touched.insert((ino, what));
            }
        } else if table == Table::Prepared as u8
            && let Some(row) = row
        {
            touched.extend(promised(row)?.filter(|ino| is_leased(*ino)).map(|ino| (ino, What::Everything)));
        }
    }
    // A name takes the attributes with it, and its end takes all.
    let with_name: BTreeSet<Ino> =
        touched.iter().filter(|(_, what)| *what != What::Attributes).map(|(ino, _)| *ino).collect();
    touched.retain(|(ino, what)| *what != What::Attributes || !with_name.contains(ino));
    Ok(touched)
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
    leased.map(|(dir, name)| (*dir, What::Name(name.clone()))).collect()
}
