//! After everything was removed, nothing may be left: no name, no chunk file, no open file, orphan or
//! intent in the metadata.

use skep_rig::{Cluster, until};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time until the last chunk is gone: a killed mount's session must end first.
const LIMIT: Duration = Duration::from_secs(120);
/// Leftovers that a complaint names.
const SHOWN: usize = 5;

/// Gauges of a group of shards that count things still to be done or given back.
const GAUGES: [&str; 8] =
    ["deletions_loaded", "errands", "growths", "open_files", "orphans", "transactions", "trims", "waiting"];

/// Waits until nothing is left.
pub fn check(cluster: &Cluster, points: &[PathBuf]) -> Result<(), String> {
    for point in points {
        let mut left = std::fs::read_dir(point).map_err(|e| format!("{}: {e}", point.display()))?;
        if let Some(Ok(entry)) = left.next() {
            return Err(format!("{} is still there", entry.path().display()));
        }
    }
    until("no chunk file is left on any target", LIMIT, || {
        let left = chunk_files(&cluster.dir());
        let shown: Vec<String> = left.iter().take(SHOWN).map(|path| path.display().to_string()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{} files: {}", left.len(), shown.join(", "))) }
    })?;
    until("nothing is left to do in the metadata", LIMIT, || match pending(cluster)? {
        left if left.is_empty() => Ok(()),
        left => Err(left.join(", ")),
    })
}

/// The gauges that are not zero, and those that are missing.
fn pending(cluster: &Cluster) -> Result<Vec<String>, String> {
    let text = cluster.admin(["stats", "--output", "json"])?;
    let rows: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("skep stats: {e}"))?;
    Ok(nonzero(&rows, cluster.groups().len()))
}

/// Every group is a node, and must tell all of them.
fn nonzero(rows: &serde_json::Value, groups: usize) -> Vec<String> {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut left = Vec::new();
    for gauge in GAUGES {
        let of_groups: Vec<_> = rows.iter().filter(|row| row["counter"] == gauge).collect();
        if of_groups.len() != groups {
            left.push(format!("{gauge}: told by {} of {groups}", of_groups.len()));
        }
        let open = of_groups.iter().filter(|row| row["value"] != 0);
        left.extend(open.map(|row| format!("{gauge} of {}: {}", row["node"], row["value"])));
    }
    left
}

/// Every file below a directory called `chunks`.
fn chunk_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(dir.to_owned(), false)];
    while let Some((dir, inside)) = open.pop() {
        // A directory may go away between its listing and its visit.
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push((entry.path(), inside || entry.file_name() == "chunks"));
            } else if inside {
                found.push(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a chunk file that is left behind is seen, a target's other files are not.
    #[test]
    fn leftovers_are_found() {
        let scratch = skep_rig::Scratch::new(None).expect("a directory");
        let chunks = scratch.path().join("target-1/chunks/a/b");
        std::fs::create_dir_all(&chunks).expect("directories");
        std::fs::write(scratch.path().join("target-1/skep-target.toml"), "").expect("a file");
        assert_eq!(chunk_files(scratch.path()), Vec::<PathBuf>::new());
        std::fs::write(chunks.join("1.0.0.0.0"), "").expect("a file");
        assert_eq!(chunk_files(scratch.path()), [chunks.join("1.0.0.0.0")]);
    }

    /// Goal: a gauge that is not zero is named with its group, and so is one that not all groups tell.
    #[test]
    fn pending_work_is_named() {
        let row = |node: &str, gauge: &str, value: u64| serde_json::json!({ "node": node, "counter": gauge, "value": value });
        let rows = |trims: u64| {
            let group =
                |node, trims| GAUGES.map(|gauge| row(node, gauge, trims * u64::from(gauge == "trims")));
            [group("metad-1", 0), group("metad-2", trims)].concat()
        };
        assert_eq!(nonzero(&rows(0).into(), 2), Vec::<String>::new());
        assert_eq!(nonzero(&rows(3).into(), 2), ["trims of \"metad-2\": 3"]);
        assert_eq!(nonzero(&rows(0)[1..].to_vec().into(), 2), ["deletions_loaded: told by 1 of 2"]);
        assert_eq!(nonzero(&serde_json::json!([]), 1).len(), GAUGES.len());
    }
}
