//! Invariants of the rows, checked over a whole store: by tests, by the simulator, later by fsck.

use crate::acl::{self, Acl};
use crate::config::HashFn;
use crate::key::{self, Table};
use crate::limit::DEPTH_MAX;
use crate::op::xattr_flag as flag;
use crate::row::deletion::Deletion;
use crate::row::entry::{Entry, Target};
use crate::row::growth::Growth;
use crate::row::header::{Header, Terms};
use crate::row::inode::{HAS_ACCESS_ACL, HAS_CAPABILITY, HAS_DEFAULT_ACL, IS_TEMP};
use crate::row::seal::Seal;
use crate::row::slot::SlotRow;
use crate::row::trim::Trim;
use crate::row::txn::{Decision, Floor, Prepared, Redo};
use crate::row::{Inode, LinkRef};
use crate::store::{Store, StoreError};
use crate::tree::spot;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_rows::applied_key;
use skep_types::log::{GROUP, Head};
use skep_types::{ChunkId, ClientId, Decode, Ino, Kind, LogIndex, ShardId, Slot};
use skep_wire::meta::TxnId;

/// Problems beyond this number are not listed.
pub const PROBLEMS_MAX: usize = 100;

/// Flags that stand for extended attributes.
const SPECIAL: u32 = HAS_ACCESS_ACL | HAS_DEFAULT_ACL | HAS_CAPABILITY;

#[derive(Default)]
struct Rows {
    headers: BTreeMap<ShardId, Header>,
    inodes: BTreeMap<Ino, Inode>,
    entries: BTreeMap<LinkRef, Entry>,
    xattr_bytes: BTreeMap<Ino, u64>,
    /// The attributes that inode rows have a flag for.
    special: BTreeMap<Ino, u32>,
    access: BTreeMap<Ino, Acl>,
    inline: BTreeMap<Ino, u64>,
    orphans: BTreeSet<Ino>,
    deletions: Vec<(ShardId, u64, Deletion)>,
    growths: BTreeMap<Ino, Growth>,
    dead_growths: Vec<(ShardId, Growth)>,
    /// Index of the last record of each lane.
    slots: BTreeMap<(ShardId, ClientId, Slot), LogIndex>,
    trims: BTreeMap<Ino, Trim>,
    seals: BTreeMap<Ino, Seal>,
    terms: BTreeMap<ShardId, Terms>,
    heads: BTreeMap<ShardId, Head>,
    /// By the shard that has promised.
    prepared: BTreeMap<(ShardId, TxnId), Prepared>,
    decisions: BTreeMap<TxnId, Decision>,
    floors: BTreeMap<(ShardId, ShardId), TxnId>,
    writers: BTreeSet<(Ino, ClientId)>,
    problems: Vec<String>,
}

/// Everything that is wrong with the rows of `store`; empty when nothing is. Shards that live in
/// other stores are not followed.
pub fn check_invariants(store: &dyn Store, hash: HashFn) -> Result<Vec<String>, StoreError> {
    let mut rows = Rows::default();
    store.scan(&[], &key::header(GROUP), &mut |key, value| {
        rows.read(key, value);
        true
    })?;
    for shard in rows.headers.keys() {
        // A store may keep it in memory until its next checkpoint.
        rows.heads.extend(store.applied_of(*shard)?.map(|head| (*shard, head)));
    }
    rows.check_keys();
    rows.check_terms();
    rows.check_entries(hash);
    rows.check_away();
    rows.check_inodes();
    rows.check_content();
    rows.check_reachable();
    rows.check_deletions();
    rows.check_decisions();
    Ok(rows.problems)
}

impl Rows {
    fn wrong(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }

    /// The rows of a shard are as old as its newest record says, and that is of its newest term.
    fn check_terms(&mut self) {
        let wrong: Vec<ShardId> = (self.heads.iter())
            .filter(|(shard, head)| {
                let newest = self.terms.get(shard).and_then(|terms| terms.starts.last());
                newest.is_none_or(|start| start.term != head.term || start.index > head.index)
            })
            .map(|(shard, _)| *shard)
            .collect();
        for shard in wrong {
            self.wrong(format!("shard {shard}: its terms and how far its rows have come do not agree"));
        }
    }

    fn read(&mut self, key: &[u8], value: &[u8]) {
        if self.try_read(key, value).is_none() {
            self.wrong(format!("row {key:02x?} cannot be read"));
        }
    }

    fn try_read(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let shard = ShardId(u16::from_be_bytes(*key.first_chunk()?));
        let table = *key.get(2)?;
        let number = key.get(3..11).and_then(|raw| raw.try_into().ok()).map_or(0, u64::from_be_bytes);
        let ino = Ino(number);
        let is = |wanted: Table| table == wanted as u8;
        if is(Table::Header) {
            self.headers.insert(shard, Header::from_bytes(value).ok()?);
        } else if is(Table::Inode) {
            self.inodes.insert(ino, Inode::from_bytes(value).ok()?);
        } else if is(Table::Entry) {
            let link = LinkRef { parent: ino, cookie: key::last_u64(key) };
            self.entries.insert(link, Entry::from_bytes(value).ok()?);
        } else if is(Table::Xattr) {
            let name = key.get(11..)?;
            *self.xattr_bytes.entry(ino).or_default() += (name.len() + value.len()) as u64;
            *self.special.entry(ino).or_default() |= flag(name);
            if name == acl::ACCESS {
                self.access.insert(ino, Acl::parse(value).ok()??);
            }
        } else if is(Table::Inline) {
            self.inline.insert(ino, value.len() as u64);
        } else if is(Table::Orphan) {
            self.orphans.insert(ino);
        } else if is(Table::Deletion) {
            self.deletions.push((shard, number, Deletion::from_bytes(value).ok()?));
        } else if is(Table::Growth) {
            self.growths.insert(ino, Growth::from_bytes(value).ok()?);
        } else if is(Table::DeadGrowth) {
            key::slot_of(key)?;
            self.dead_growths.push((shard, Growth::from_bytes(value).ok()?));
        } else if is(Table::Trim) {
            self.trims.insert(ino, Trim::from_bytes(value).ok()?);
        } else if is(Table::Seal) {
            self.seals.insert(ino, Seal::from_bytes(value).ok()?);
        } else if is(Table::Prepared) {
            self.prepared.insert((shard, key::prepared_of(key)?), Prepared::from_bytes(value).ok()?);
        } else if is(Table::Decision) {
            self.decisions.insert(key::decision_of(key)?, Decision::from_bytes(value).ok()?);
        } else if is(Table::Floor) {
            let floor = Floor::from_bytes(value).ok()?.txid;
            self.floors.insert((shard, floor.shard), floor);
        } else if is(Table::Holder) {
            return (key.len() == 11).then_some(());
        } else if is(Table::Writer) {
            self.writers.insert(key::writer_of(key)?);
        } else if is(Table::Terms) {
            self.terms.insert(shard, Terms::from_bytes(value).ok()?);
        } else if key == applied_key(shard) {
            // Not the newest one: see `check_invariants`.
        } else if is(Table::Slot) {
            let (client, slot) = key::slot_of(key)?;
            self.slots.insert((shard, client, slot), SlotRow::from_bytes(value).ok()?.index);
        } else {
            return None;
        }
        Some(())
    }

    fn check_keys(&mut self) {
        let mut keys = self.headers.values().map(|header| header.keys.names);
        let first = keys.next();
        if keys.any(|names| Some(names) != first) {
            self.wrong("shards were made with different keys of names".into());
        }
    }

    fn check_entries(&mut self, hash: HashFn) {
        let entries: Vec<(LinkRef, Entry)> = self.entries.iter().map(|(l, e)| (*l, e.clone())).collect();
        for (link, entry) in entries {
            let at = format!("entry {:x} of directory {}", link.cookie, link.parent);
            let index = link.cookie & 0xff;
            let before = LinkRef { cookie: link.cookie.wrapping_sub(1), ..link };
            if index > 0 && !self.entries.get(&before).is_some_and(|entry| entry.more) {
                self.wrong(format!("{at}: the chain of its hash does not lead to it"));
            }
            let next = LinkRef { cookie: link.cookie + 1, ..link };
            let has_next = index < 0xff && self.entries.contains_key(&next);
            if entry.more != has_next {
                self.wrong(format!("{at}: says more = {}, the next place exists: {has_next}", entry.more));
            }
            if !self.inodes.get(&link.parent).is_some_and(|dir| dir.is_dir() && dir.nlink > 0) {
                self.wrong(format!("{at}: the directory does not exist"));
            }
            let Some(target) = entry.target else {
                if !entry.more {
                    self.wrong(format!("{at}: a dead place at the end of its chain"));
                }
                continue;
            };
            if let Some(header) = self.headers.get(&link.parent.shard()) {
                let expected = spot(hash, &header.keys, link.parent, target.name.as_bytes()) + index;
                if expected != link.cookie {
                    self.wrong(format!("{at}: the cookie of {:?} is {expected:x}", target.name));
                }
            }
            self.check_target(&at, link, &target);
        }
    }

    /// Renames rely on the count of names whose inodes are elsewhere.
    fn check_away(&mut self) {
        let mut away: BTreeMap<ShardId, u64> = BTreeMap::new();
        for (link, entry) in &self.entries {
            let shard = link.parent.shard();
            if entry.target.as_ref().is_some_and(|target| target.ino.shard() != shard) {
                *away.entry(shard).or_default() += 1;
            }
        }
        let count = |shard: &ShardId| away.get(shard).copied().unwrap_or(0);
        let headers = self.headers.values().filter(|header| header.away != count(&header.shard));
        let wrong: Vec<_> = headers.map(|header| (header.shard, header.away, count(&header.shard))).collect();
        for (shard, says, are) in wrong {
            self.wrong(format!(
                "shard {shard}: says that {says} names have their inodes elsewhere, {are} do"
            ));
        }
    }

    fn check_target(&mut self, at: &str, link: LinkRef, target: &Target) {
        let here = target.ino.shard() == link.parent.shard();
        if !here && !self.headers.contains_key(&target.ino.shard()) {
            return;
        }
        let Some(inode) = self.inodes.get(&target.ino) else {
            if !here && self.promised().any(|redo| matches!(redo, Redo::MakeDir(m) if m.ino == target.ino)) {
                return;
            }
            return self.wrong(format!("{at}: names inode {}, which does not exist", target.ino));
        };
        let links = inode.links.iter().filter(|other| **other == link).count();
        let knows = if here { links == 1 } else { inode.parent() == link.parent };
        if inode.kind != target.kind || inode.nlink == 0 || !knows {
            let text = format!("{at}: inode {} does not agree: {:?}", target.ino, inode.links);
            self.wrong(text);
        }
    }

    fn check_inodes(&mut self) {
        let mut counts: BTreeMap<Ino, (u64, u32)> = BTreeMap::new();
        for (link, entry) in &self.entries {
            if let Some(target) = &entry.target {
                let count = counts.entry(link.parent).or_default();
                count.0 += 1;
                count.1 += u32::from(target.kind == Kind::Dir);
            }
        }
        let mut found = Vec::new();
        for (ino, inode) in &self.inodes {
            let (entries, dirs) = counts.get(ino).copied().unwrap_or_default();
            if (inode.nlink == 0) != self.orphans.contains(ino) {
                found.push(format!("inode {ino}: nlink {} and the orphan row disagree", inode.nlink));
            }
            if inode.entries != entries {
                found.push(format!("inode {ino}: counts {} entries, has {entries}", inode.entries));
            }
            let expected = if inode.is_dir() { 2 + dirs } else { inode.links.len() as u32 };
            if inode.nlink != expected && inode.nlink != 0 {
                found.push(format!("inode {ino}: nlink {}, expected {expected}", inode.nlink));
            }
            if inode.nlink == 0 && (entries > 0 || !inode.links.is_empty()) {
                found.push(format!("inode {ino}: an orphan with names or entries"));
            }
            if !inode.layout.is_valid() || inode.layout.generation >= inode.next_generation {
                found.push(format!("inode {ino}: layout {:?} is not valid", inode.layout));
            }
            let reserved = self.headers.get(&ino.shard()).map_or(0, |header| header.serials_end);
            if ino.serial() >= reserved {
                found.push(format!("inode {ino}: its serial was never reserved"));
            }
        }
        found.extend(
            self.orphans
                .iter()
                .filter(|ino| !self.inodes.contains_key(ino))
                .map(|ino| format!("orphan {ino}: no inode")),
        );
        found.into_iter().for_each(|text| self.wrong(text));
    }

    fn check_content(&mut self) {
        let mut found = Vec::new();
        for (ino, inode) in &self.inodes {
            let inline = self.inline.remove(ino).unwrap_or(0);
            if u64::from(inode.inline_len) != inline
                || (inline > 0 && !inode.layout.is_inline())
                || inline > inode.size
            {
                found.push(format!("inode {ino}: inline length {}, row of {inline}", inode.inline_len));
            }
            let xattrs = self.xattr_bytes.remove(ino).unwrap_or(0);
            if u64::from(inode.xattr_bytes) != xattrs {
                found.push(format!("inode {ino}: xattr bytes {}, rows of {xattrs}", inode.xattr_bytes));
            }
            let special = self.special.get(ino).copied().unwrap_or(0);
            if inode.flags & SPECIAL != special {
                found.push(format!("inode {ino}: flags {:x}, attributes {special:x}", inode.flags));
            }
            if let Some(acl) = self.access.get(ino).filter(|acl| acl.mode() != inode.mode & 0o777) {
                found.push(format!("inode {ino}: mode {:o}, ACL {:o}", inode.mode, acl.mode()));
            }
            if inode.flags & IS_TEMP != 0 && inode.nlink > 0 {
                found.push(format!("inode {ino}: has a name and is said to have had none ever"));
            }
            if let Some(growth) = self.growths.remove(ino)
                && (!inode.layout.is_inline() || growth.layout.generation >= inode.next_generation)
            {
                found.push(format!("inode {ino}: its growth does not fit it"));
            }
            if let Some(seal) = self.seals.remove(ino)
                && (seal.generation != inode.layout.generation || inode.layout.extent(seal.extent).is_none())
            {
                found.push(format!("inode {ino}: its seal does not fit it"));
            }
            if let Some(trim) = self.trims.remove(ino)
                && (inode.layout.is_inline() || trim.generation != inode.layout.generation)
            {
                found.push(format!("inode {ino}: its trim does not fit it"));
            }
        }
        let chunked = |ino| self.inodes.get(ino).is_some_and(|inode| !inode.layout.is_inline());
        let idle = self.writers.iter().filter(|(ino, _)| !chunked(ino));
        found.extend(idle.map(|(ino, client)| format!("inode {ino}: client {client} writes to no chunks")));
        let strays = self.inline.keys().chain(self.xattr_bytes.keys()).chain(self.growths.keys());
        found.extend(
            strays
                .chain(self.trims.keys())
                .chain(self.seals.keys())
                .map(|ino| format!("inode {ino}: rows without inode")),
        );
        found.into_iter().for_each(|text| self.wrong(text));
    }

    /// Every inode has a way up to the root (or to a shard that is elsewhere), and its names exist.
    fn check_reachable(&mut self) {
        let retired: BTreeSet<Ino> =
            self.promised().filter(|redo| matches!(redo, Redo::RetireDir(_))).map(Redo::ino).collect();
        let mut named: BTreeMap<Ino, u32> = BTreeMap::new();
        for target in self.entries.values().filter_map(|entry| entry.target.as_ref()) {
            *named.entry(target.ino).or_default() += 1;
        }
        let mut found = Vec::new();
        for (ino, inode) in &self.inodes {
            if *ino == Ino::ROOT || inode.nlink == 0 {
                continue;
            }
            let names = named.get(ino).copied().unwrap_or(0);
            let expected = if inode.is_dir() { 1 } else { inode.nlink };
            let elsewhere = !self.headers.contains_key(&inode.parent().shard());
            if names != expected && !elsewhere && !retired.contains(ino) {
                found.push(format!("inode {ino}: {names} names lead to it, expected {expected}"));
            }
            let mut at = *ino;
            let mut steps = 0;
            while at != Ino::ROOT && steps <= DEPTH_MAX {
                let Some(above) = self.inodes.get(&at) else { break };
                at = above.parent();
                steps += 1;
            }
            if steps > DEPTH_MAX {
                found.push(format!("inode {ino}: its ancestors form a circle"));
            }
        }
        found.into_iter().for_each(|text| self.wrong(text));
    }

    /// What shards have promised, and not done.
    fn promised(&self) -> impl Iterator<Item = &Redo> {
        self.prepared.values().filter_map(|row| row.redo.as_ref()).flatten()
    }

    /// Whoever is to hear of a decision has promised its part, or done it.
    fn check_decisions(&mut self) {
        let mut found = Vec::new();
        for (txid, decision) in &self.decisions {
            for shard in decision.participants.iter().filter(|shard| self.headers.contains_key(shard)) {
                let is_over = self.floors.get(&(*shard, txid.shard)).is_some_and(|floor| txid < floor);
                if !is_over && !self.prepared.contains_key(&(*shard, *txid)) {
                    found.push(format!("{txid:?} is decided, and shard {shard} knows nothing of it"));
                }
            }
        }
        found.into_iter().for_each(|text| self.wrong(text));
    }

    fn check_deletions(&mut self) {
        let live: BTreeSet<ChunkId> =
            self.inodes.values().flat_map(|inode| inode.layout.chunks()).map(|(chunk, _)| chunk).collect();
        let doomed = self
            .deletions
            .iter()
            .flat_map(|(shard, id, row)| row.chunks.iter().map(move |(_, c)| (shard, id, c)));
        let mut found: Vec<String> = doomed
            .filter(|(_, _, chunk)| live.contains(chunk))
            .map(|(shard, id, chunk)| format!("deletion {id} of shard {shard}: {chunk:?} is in use"))
            .collect();
        for (shard, growth) in &self.dead_growths {
            let (generation, lane) = (growth.layout.generation, (*shard, growth.client, growth.slot));
            if growth.layout.chunks().any(|(chunk, _)| live.contains(&chunk)) {
                found.push(format!("{generation} of a growth that {lane:?} was to copy is in use"));
            }
            // What was noted of older releases does not say with which record it began.
            let last = self.slots.get(&lane).copied();
            if growth.index.is_some() && last != growth.index {
                found.push(format!(
                    "{lane:?} is waited for, of which record {last:?} is newer than its growth"
                ));
            }
        }
        found.into_iter().for_each(|text| self.wrong(text));
    }
}
