//! The metadata as the disk has it after the end: sound, and empty but for the root.

use skep_disk::log::LogError;
use skep_disk::rows::{LogBarrier, RowOptions, RowStore};
use skep_meta::check::check_invariants;
use skep_meta::store::Store;
use skep_rig::Cluster;
use skep_types::LogSeq;
use skep_types::cookie;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Tables whose rows may outlive all files, by the number in their keys: headers, slots, terms, who has something open,
/// what was promised to transactions, floors, how far the rows have come. (A promise stays when it is kept, until the next
/// transaction of its coordinator tells so; of one that is not kept its group tells, see `leaks`.)
const LASTING: [u8; 7] = [1, 6, 17, 18, 19, 21, 255];
/// The table of inodes.
const INODES: u8 = 2;
/// Where the number of the table stands in a key.
const TABLE_AT: usize = 2;

/// Nothing is written here, so nothing waits for a log.
struct NoLog;

impl LogBarrier for NoLog {
    fn wait_durable(&self, _index: LogSeq, _limit: Duration) -> Result<bool, LogError> {
        Ok(true)
    }
}

/// Stops the cluster in good order, which writes all rows, and looks at them.
pub fn check(cluster: &Cluster) -> Result<(), String> {
    cluster.down()?;
    let mut rows = BTreeMap::new();
    cluster.groups().into_iter().try_for_each(|group| count(&group.join("rows"), &mut rows))?;
    only_the_root(&rows)
}

/// Adds the rows of one group.
fn count(path: &Path, rows: &mut BTreeMap<u8, u64>) -> Result<(), String> {
    let store = RowStore::open(path, RowOptions::default(), Arc::new(NoLog), Box::new(|| {}))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let problems = check_invariants(&store, cookie::hash).map_err(|e| e.to_string())?;
    if !problems.is_empty() {
        let (path, all) = (path.display(), problems.join("; "));
        return Err(format!("{path}: {} invariants are broken: {all}", problems.len()));
    }
    let visit = &mut |key: &[u8], _: &[u8]| {
        *rows.entry(key.get(TABLE_AT).copied().unwrap_or_default()).or_default() += 1;
        true
    };
    store.scan(&[], &[u8::MAX; 4], visit).map_err(|e| e.to_string())
}

/// One inode, and nothing else that belongs to a file or to work that is under way.
fn only_the_root(rows: &BTreeMap<u8, u64>) -> Result<(), String> {
    let inodes = rows.get(&INODES).copied().unwrap_or_default();
    let left = rows.keys().any(|table| *table != INODES && !LASTING.contains(table));
    if inodes == 1 && !left {
        return Ok(());
    }
    Err(format!(
        "rows are left behind, by table (1 header, 2 inode, 3 entry, 4 xattr, 5 inline, ...): {rows:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a second inode, no inode at all, or a row of any other table is a leak.
    #[test]
    fn leftovers_are_told() {
        assert_eq!(only_the_root(&BTreeMap::from([(1, 5), (2, 1), (6, 8)])), Ok(()));
        for rows in [[(1, 5), (2, 2)], [(1, 5), (6, 1)], [(2, 1), (8, 1)]] {
            assert!(only_the_root(&rows.into()).is_err(), "{rows:?}");
        }
    }
}
