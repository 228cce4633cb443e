//! Keys of rows: `shard u16 | table u8 | ...`, big-endian, so that a shard is one range and a
//! table is one range within it.

use crate::store::Key;
use alloc::vec::Vec;
use skep_types::{ClientId, Generation, Ino, ShardId, Slot, Term};
use skep_wire::meta::TxnId;

/// What a row is. The numbers are part of the disk format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Table {
    /// One row: see `row::header`.
    Header = 1,
    Inode = 2,
    /// directory, cookie -> entry.
    Entry = 3,
    /// ino, name -> value.
    Xattr = 4,
    /// ino -> content.
    Inline = 5,
    /// client, slot -> last changing request and its answer.
    Slot = 6,
    /// ino -> nothing: no name is left, but it may be open.
    Orphan = 7,
    /// id -> chunk files to delete.
    Deletion = 8,
    /// ino -> chunks allotted, inline content not yet copied.
    Growth = 9,
    /// ino -> truncate that the targets must be told of.
    Trim = 10,
    /// ino, client -> nothing, or a byte: the client may have written to the chunks more than it committed. The byte: it
    /// came by a report, while what an earlier term had lent might cover the file.
    Writer = 13,
    /// client, slot, ino, generation -> growth that was given up while that lane may have been copying.
    DeadGrowth = 14,
    /// ino -> extent that is being closed.
    Seal = 16,
    /// One row: the newest terms of the shard.
    Terms = 17,
    /// client -> nothing: it has, or had, something open on the shard.
    Holder = 18,
    /// coordinator, term, counter -> what this shard has promised, or has done.
    Prepared = 19,
    /// term, counter -> transaction that this shard has committed, and not everybody knows.
    Decision = 20,
    /// coordinator -> its transactions below this one are finished.
    Floor = 21,
    // 255 is the row store's own: see `skep_rows::applied_key`.
}

/// Longest key of fixed size.
const KEY_LEN: usize = 3 + 2 + 8 + 8;

fn start(shard: ShardId, table: Table) -> Key {
    let mut key = Vec::with_capacity(KEY_LEN);
    key.extend_from_slice(&shard.0.to_be_bytes());
    key.push(table as u8);
    key
}

/// The shard's header.
pub fn header(shard: ShardId) -> Key {
    start(shard, Table::Header)
}

/// The list of the shard's terms.
pub fn terms(shard: ShardId) -> Key {
    start(shard, Table::Terms)
}

/// A row of `table` that belongs to an inode alone.
pub fn of_ino(table: Table, ino: Ino) -> Key {
    let mut key = start(ino.shard(), table);
    key.extend_from_slice(&ino.0.to_be_bytes());
    key
}

/// The inode row.
pub fn inode(ino: Ino) -> Key {
    of_ino(Table::Inode, ino)
}

pub fn entry(dir: Ino, cookie: u64) -> Key {
    let mut key = of_ino(Table::Entry, dir);
    key.extend_from_slice(&cookie.to_be_bytes());
    key
}

/// An extended attribute.
pub fn xattr(ino: Ino, name: &[u8]) -> Key {
    let mut key = of_ino(Table::Xattr, ino);
    key.extend_from_slice(name);
    key
}

/// All rows of `table` that belong to `ino`: from, until.
pub fn range_of_ino(table: Table, ino: Ino) -> (Key, Key) {
    (of_ino(table, ino), of_ino(table, Ino(ino.0 + 1)))
}

/// A slot of a client.
pub fn slot(shard: ShardId, client: ClientId, slot: Slot) -> Key {
    let mut key = start(shard, Table::Slot);
    key.extend_from_slice(&client.0.to_be_bytes());
    key.extend_from_slice(&slot.0.to_be_bytes());
    key
}

/// A client that has something open on the shard.
pub fn holder(shard: ShardId, client: ClientId) -> Key {
    numbered(shard, Table::Holder, client.0)
}

/// A client that writes to the chunks of a file.
pub fn writer(ino: Ino, client: ClientId) -> Key {
    let mut key = of_ino(Table::Writer, ino);
    key.extend_from_slice(&client.0.to_be_bytes());
    key
}

/// File and client of a writer row's key.
pub fn writer_of(key: &[u8]) -> Option<(Ino, ClientId)> {
    let ino = key.get(3..11)?.try_into().ok()?;
    Some((Ino(u64::from_be_bytes(ino)), ClientId(last_u64(key))))
}

/// The table of a key, and the number behind it: of tables whose rows belong to inodes, the inode.
pub fn table_and_ino(key: &[u8]) -> Option<(u8, Ino)> {
    let ino = key.get(3..11)?.try_into().ok()?;
    Some((*key.get(2)?, Ino(u64::from_be_bytes(ino))))
}

/// All slots of a client.
pub fn slots_of(shard: ShardId, client: ClientId) -> (Key, Key) {
    let at = |client: u64| {
        let mut key = start(shard, Table::Slot);
        key.extend_from_slice(&client.to_be_bytes());
        key
    };
    (at(client.0), at(client.0.saturating_add(1)))
}

/// A growth of a lane that was given up.
pub fn dead_growth(client: ClientId, slot: Slot, ino: Ino, generation: Generation) -> Key {
    let mut key = dead_growths_of(ino.shard(), client, slot).0;
    key.extend_from_slice(&ino.0.to_be_bytes());
    key.extend_from_slice(&generation.0.to_be_bytes());
    key
}

/// All growths of a lane that were given up: from, until.
pub fn dead_growths_of(shard: ShardId, client: ClientId, slot: Slot) -> (Key, Key) {
    let at = |slot: u32| {
        let mut key = start(shard, Table::DeadGrowth);
        key.extend_from_slice(&client.0.to_be_bytes());
        key.extend_from_slice(&slot.to_be_bytes());
        key
    };
    (at(slot.0), at(slot.0.saturating_add(1)))
}

/// A row of `table` with a number of its own.
pub fn numbered(shard: ShardId, table: Table, number: u64) -> Key {
    let mut key = start(shard, table);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// What `shard` has promised of a transaction.
pub fn prepared(shard: ShardId, txid: TxnId) -> Key {
    let mut key = start(shard, Table::Prepared);
    key.extend_from_slice(&txid.shard.0.to_be_bytes());
    key.extend_from_slice(&txid.term.0.to_be_bytes());
    key.extend_from_slice(&txid.counter.to_be_bytes());
    key
}

/// The transaction of the key of a prepared row.
pub fn prepared_of(key: &[u8]) -> Option<TxnId> {
    let shard = ShardId(u16::from_be_bytes(key.get(3..5)?.try_into().ok()?));
    let term = Term(u64::from_be_bytes(key.get(5..13)?.try_into().ok()?));
    Some(TxnId { shard, term, counter: last_u64(key) })
}

/// A transaction that its coordinator has committed.
pub fn decision(txid: TxnId) -> Key {
    let mut key = numbered(txid.shard, Table::Decision, txid.term.0);
    key.extend_from_slice(&txid.counter.to_be_bytes());
    key
}

/// The transaction of the key of a decision row.
pub fn decision_of(key: &[u8]) -> Option<TxnId> {
    let shard = ShardId(u16::from_be_bytes(key.get(..2)?.try_into().ok()?));
    let term = Term(u64::from_be_bytes(key.get(3..11)?.try_into().ok()?));
    Some(TxnId { shard, term, counter: last_u64(key) })
}

/// Up to where the transactions of a coordinator are finished.
pub fn floor(shard: ShardId, coordinator: ShardId) -> Key {
    let mut key = start(shard, Table::Floor);
    key.extend_from_slice(&coordinator.0.to_be_bytes());
    key
}

/// A whole table of a shard.
pub fn table(shard: ShardId, table: Table) -> (Key, Key) {
    let mut until = start(shard, table);
    until[2] += 1;
    (start(shard, table), until)
}

/// The number at the end of a key.
pub fn last_u64(key: &[u8]) -> u64 {
    let mut raw = [0; 8];
    let tail = key.len().saturating_sub(8);
    raw[..key.len() - tail].copy_from_slice(&key[tail..]);
    u64::from_be_bytes(raw)
}

/// Client and slot of the key of a slot row, or of a growth that was given up.
pub fn slot_of(key: &[u8]) -> Option<(ClientId, Slot)> {
    let client = key.get(3..11)?.try_into().ok()?;
    let slot = key.get(11..15)?.try_into().ok()?;
    Some((ClientId(u64::from_be_bytes(client)), Slot(u32::from_be_bytes(slot))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: key order is (shard, table, ino, cookie), and ranges hold exactly their rows.
    #[test]
    fn keys_sort_by_shard_table_and_number() {
        let a = entry(Ino::new(ShardId(1), 5), 700);
        assert!(a < entry(Ino::new(ShardId(1), 5), 701));
        assert!(a < entry(Ino::new(ShardId(1), 6), 3));
        assert!(a < inode(Ino::new(ShardId(2), 1)));
        let (from, until) = range_of_ino(Table::Entry, Ino::new(ShardId(1), 5));
        assert!(from <= a && a < until);
        assert!(until <= entry(Ino::new(ShardId(1), 6), 0));
        let (from, until) = table(ShardId(1), Table::Entry);
        assert!(from <= a && a < until && until <= xattr(Ino::new(ShardId(1), 0), b""));
        assert_eq!(last_u64(&a), 700);
        assert_eq!(slot_of(&slot(ShardId(3), ClientId(9), Slot(4))), Some((ClientId(9), Slot(4))));
        let dead = dead_growth(ClientId(9), Slot(4), Ino::new(ShardId(3), 7), Generation(2));
        let (from, until) = dead_growths_of(ShardId(3), ClientId(9), Slot(4));
        assert!(from <= dead && dead < until);
        assert_eq!(slot_of(&dead), Some((ClientId(9), Slot(4))));
        let txid = TxnId { shard: ShardId(1), term: Term(7), counter: 300 };
        assert_eq!(prepared_of(&prepared(ShardId(3), txid)), Some(txid));
        assert_eq!(decision_of(&decision(txid)), Some(txid));
        let next = TxnId { term: Term(8), counter: 1, ..txid };
        assert!(decision(txid) < decision(next) && prepared(ShardId(3), txid) < prepared(ShardId(3), next));
    }
}
