//! "Sometimes" markers: situations that a run must reach now and then, or it proves little.

use std::collections::BTreeMap;

/// Situations that 400 seeds must reach at least once.
pub const MARKERS: &[&str] = &[
    "a request was lost",
    "a reply was lost",
    "a request arrived after its client gave it up",
    "a late request was dropped by a newer connection",
    "a partition",
    "a one-way partition",
    "a request passed where its answer does not",
    "the connections of a client ended",
    "a waiting request went with its connection",
    "a clock jump",
    "mgmtd was killed",
    "mgmtd was started on an older copy",
    "mgmtd was told that it is an older copy",
    "mgmtd was put back from a backup",
    "a metad was said to be put back",
    "metad was killed",
    "groups of one process were killed together",
    "groups of one machine lost their power together",
    "one metad was down and another served",
    "a directory of another metad",
    "a metad was asked with a newer map",
    "a shard came from another metad",
    "a shard was given to another metad",
    "a shard's rows went",
    "metad was killed between append and reply",
    "a request waited for rows",
    "a term of one shard ended alone",
    "storaged was killed",
    "a power cut took acknowledged records",
    "a power cut took nothing",
    "a power cut of storaged",
    "a power cut of storaged took content",
    "rows fell back to a checkpoint",
    "a server went on without rows of one shard",
    "a client was killed",
    "a client was evicted",
    "a new mount took over",
    "an operation was interrupted",
    "a retry was executed before",
    "LOST_HISTORY",
    "LOST_WRITES",
    "MUST_GROW",
    "NOT_READY",
    "FENCED",
    "OLD_TERM",
    "a message of a deposed server arrived",
    "a target heard of a later term",
    "a file grew out of the metadata",
    "opens were reclaimed",
    "opens and locks were reclaimed in parts",
    "an orphan was purged",
    "chunk files were deleted",
    "a truncate was told to targets",
    "the size of a file was recovered",
    "a directory on another shard",
    "a directory on another shard was removed",
    "a directory was dealt to another shard",
    "a transaction met a server with little room",
    "a message between shards came twice",
    "a message to a target came twice",
    "a message to mgmtd came twice",
    "an fsync failed after a loss",
    "an fsync held over a power cut",
    "two clients wanted one name",
    "a create came too late and looked again",
    "a number was read that had been read ahead",
    "a number was read that had been read ahead at a distance",
    "a covered file was opened to read through pages",
    "pages were read without a question",
    "a kernel was made to ask how long a file is",
    "a reply was applied late",
    "a directory's lock was waited for",
    "a known name led elsewhere",
    "a notification dropped a name under the lock",
    "a host heard what another one had seen",
    "a program looked while its mount stood still",
    "a kernel outlived its mount",
    "a host slept",
    "a host was not run",
    "another client's close was seen by an open",
    "a lock was waited for",
    "a lock file was closed late",
    "a lock was taken many times in a row",
    "a waiting lock was taken back",
    "a deadlock was found",
    "a lock outlived metad",
    "an idle mount told again what it holds",
    "a record was appended",
    "records of a log were found",
    "a log was truncated",
    "a record was owed after a truncate",
    "a request waited for its connection while the session ended",
    "a number went up under a lock",
    "a growing file was followed",
    "a target copied",
    "a kept file was written",
    "a kept file was synced",
    "a kept file was written beside a sync",
    "a kept file told of a loss",
    "a kept file was written on over a power cut",
    "a kept file was truncated by another client",
    "a kept file was truncated by its keeper",
    "a careful program's change was synced",
    "a careful program was told of a loss",
    "a nameless file was made",
    "what a power cut took was given up",
    "a chunk file was vandalised",
    "STALE_SIZE",
    "STALE_LAYOUT",
    "an extent was sealed",
    "a target was full",
    "a file of all was used",
    "a file of all was whole at the end",
    "changes of one file met",
    "a file was read beside changes",
    "a file was followed beside changes",
    "a contest was decided at the end",
    "a name was answered from memory",
    "an absent name was answered from memory",
    "attributes were answered from memory",
    "a program looked through what it held",
    "a kernel was told attributes for a while",
    "a kernel answered attributes by itself",
    "a kernel was told to drop attributes",
    "a kernel did not know what it was to drop",
    "a kernel was told a name for a while",
    "a kernel answered a name by itself",
    "a valid name was looked at beside an own change",
    "a kernel dropped a name",
    "a kernel did not know a name that it was to drop",
    "a name could not be dropped at once",
    "a kernel dropped all names",
    "a listing was answered from memory",
    "a lease was being taken back",
    "leases of a mount lapsed",
    "a lease that was wanted back was given back",
    "a lease that was wanted back was kept for its names",
    "a silent holder was passed over",
    "an inode was lent to nobody for a while",
    "changes waited for what an earlier term had lent",
    "recalls came late to a mount",
    "confirmations of a mount were lost",
    "who hears recalls stood still",
    "programs only looked for a while",
    "a file was held",
    "a held file was told",
    "somebody waited for a held file",
    "a file was looked at, and held on",
    "held files were reported to a new term",
    "files were held no longer, and nothing told of them",
    "a kill lost what was not told of a held file",
    "an eviction lost what was not told of a held file",
    "a power cut took what was told of a held file",
    "what was not told of a held file was found lost",
    "a piece was written",
    "who was passed over was refused",
    "a holder was passed over",
    "a run was put",
    "a write stayed with the mount",
    "a run with a gap stayed with the mount",
    "a file that is written in pieces was looked at",
    "a file that is written in pieces was asked for by its name",
    "a file was opened again and written in pieces",
    "a file that another mount had made was written in pieces",
    "a file was written from its beginning once more",
    "a file was read through a handle from before its writer's",
    "a file was written through a handle from before its writer's",
    "a piece was appended",
    "a piece was appended by another mount",
    "another mount moved a file that is written in pieces",
    "a file of which something may be lost was looked at",
    "a target promised room",
    "a target had no room to promise",
];

/// Situations that are reached too seldom to be asked of 400 seeds.
pub const RARE: &[&str] = &[
    "a piece was appended over a restart",
    "a question came before the create's answer",
    "a connection stuck",
    "what was held back arrived",
    // By each fourth run about pieces.
    "a client took of what it was promised",
    "STALE_GENERATION",
    "NOT_LEADER",
    "ELSEWHERE",
    "a dead metad lost its power",
    "a growth was given up",
    "a growth's chunks were deleted a second time",
    "a withheld shard was given to who has it",
    "a shard that did not come was given to another metad",
    "mgmtd was put back from before two moves of a shard",
    "a shard without rows was given to who has them",
    "newer rows of a shard were said to be lost",
    "a task had no server",
    "an answer was held up on its way",
    "a close was held up on its way",
    "an old kernel revived attributes",
    "a mount showed what a power cut took",
    "a mount showed what it had not told, and lost",
    "the last answer that a mount heard came late",
    "a change was given up that arrived",
    "a shard forgot an open of which nobody was told",
    "who told of a held file did not hear that it had",
    "what a holder kept who was passed over was told late",
    "what a mount had kept was lost with the file",
    "what a mount had kept was lost while nobody served the file",
    "a kill lost what was with the mount only",
    "an eviction lost what was with the mount only",
    "a write came later than it counts",
];

/// Counts of markers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// The situation came up.
    pub fn hit(&mut self, marker: &'static str) {
        debug_assert!(MARKERS.contains(&marker) || RARE.contains(&marker), "{marker} is not in a list");
        *self.0.entry(marker).or_default() += 1;
    }

    /// How often it came up.
    pub fn count(&self, marker: &str) -> u64 {
        self.0.get(marker).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (marker, count) in &other.0 {
            *self.0.entry(marker).or_default() += count;
        }
    }

    /// Markers that never came up.
    pub fn missing(&self) -> Vec<&'static str> {
        MARKERS.iter().copied().filter(|marker| self.count(marker) == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what never came up is named, and counts of runs add up.
    #[test]
    fn missing_markers_are_named() {
        let (mut sum, mut one) = (Coverage::default(), Coverage::default());
        one.hit(MARKERS[0]);
        sum.add(&one);
        sum.add(&one);
        assert_eq!(sum.count(MARKERS[0]), 2);
        assert_eq!(sum.missing(), MARKERS[1..]);
    }
}
