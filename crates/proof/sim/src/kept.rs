//! Files that a client keeps open over power cuts and evictions: what its two lanes were told of them, and whether
//! what is found can be true. The rule: what is acknowledged after the client knows of the last cut is there, or an
//! error was told; what an fsync was answered for is there always.

use crate::fields::content;
use crate::hub::LaneId;
use skep_types::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a cell.
pub const CELL: u64 = 3_000;
/// Cells of each lane.
pub const CELLS: u64 = 12;
/// Cells of a file that stays in the metadata.
pub const SMALL_CELLS: u64 = 1;
/// The cell that whoever truncates the file writes: in the chunks.
pub const HEAD: u64 = 2 * CELLS + 1;

/// What was, or may have been, written to a cell.
#[derive(Debug, Clone, Default)]
struct Version {
    /// Which; 0 = nothing: zeros, or behind the end.
    number: u64,
    /// Cuts that there had been when it was begun by a client that knew of them all; once it was acknowledged.
    owed: Option<usize>,
    acknowledged: bool,
    /// An fsync was answered for it.
    synced: bool,
    /// Under way beside a truncate, which may have cut it off.
    unsure: bool,
    /// Handles that have told of a loss since: they answer for it no more.
    told: BTreeSet<LaneId>,
}

impl Version {
    fn must_be(&self, cuts: usize) -> bool {
        !self.unsure && (self.synced || self.acknowledged && self.owed == Some(cuts) && self.told.is_empty())
    }
}

#[derive(Debug, Default)]
pub struct KeptFile {
    pub ino: Ino,
    /// Cells that it uses.
    pub small: bool,
    /// Nobody opens it any more, but to look at the end.
    pub retired: bool,
    /// When another client ended to truncate it last.
    pub cut_at: u64,
    /// Looks under way: what was there when they began may be what they find.
    pub lookers: u32,
    /// It was written beyond what stays in the metadata.
    in_chunks: bool,
    /// Clients that truncate it now.
    cutters: u32,
    /// Acknowledged before the first of them began: what was under way may come after it.
    cut_off: BTreeSet<u64>,
    /// There were several at a time, and one of them is not done.
    crowded: bool,
    cells: BTreeMap<u64, Vec<Version>>,
}

#[derive(Debug, Default)]
pub struct Kept {
    /// By the life of the client that keeps them, the newest last.
    pub files: Vec<(u32, KeptFile)>,
    /// What a lane has open: the file's place in the list, and its handle.
    pub opens: BTreeMap<LaneId, (usize, u64)>,
    /// A lane of this life syncs then, and would have the other one write meanwhile.
    pub meetings: BTreeMap<u32, u64>,
    /// Clients of which one lane syncs after such a wait.
    pub syncing: BTreeSet<u32>,
    /// Files that another client has truncated since their keeper looked.
    pub cut_by_others: BTreeSet<usize>,
    numbers: u64,
}

impl Kept {
    /// A number that no write had, nor will have.
    pub fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        // Apart from those of other fields.
        (1 << 40) | self.numbers
    }

    /// Files of other lives than `life` that one of `gone` keeps open; if there are none, those that it may open.
    pub fn strangers(&self, life: u32, gone: &BTreeSet<u32>) -> Vec<usize> {
        let strange = |(of, file): &(u32, KeptFile)| *of != life && gone.contains(of) && !file.retired;
        let all: Vec<usize> = (0..self.files.len()).filter(|at| strange(&self.files[*at])).collect();
        let is_open = |at: &usize| self.opens.values().any(|(open, _)| open == at);
        let open: Vec<usize> = all.iter().copied().filter(is_open).collect();
        if open.is_empty() { all } else { open }
    }

    /// The file that the client of this life keeps open now.
    pub fn of(&self, life: u32) -> Option<usize> {
        self.files.iter().rposition(|(of, file)| *of == life && !file.retired)
    }
}

impl Kept {
    /// A mount that is gone, was passed over or has no session any more had what lies there in this file, and nobody else did.
    pub fn may_lose(&mut self, ino: Ino, run: Option<(u64, u64)>) {
        let Some((from, to)) = run else { return };
        let cells = from / CELL..to.div_ceil(CELL);
        for (_, file) in self.files.iter_mut().filter(|(_, file)| file.ino == ino) {
            for (_, versions) in file.cells.iter_mut().filter(|(cell, _)| cells.contains(*cell)) {
                versions
                    .iter_mut()
                    .filter(|version| !version.synced)
                    .for_each(|version| version.unsure = true);
            }
        }
    }
}

impl KeptFile {
    pub fn new(ino: Ino, small: bool) -> Self {
        Self { ino, small, ..Self::default() }
    }

    fn versions(&mut self, cell: u64) -> &mut Vec<Version> {
        let nothing = Version { synced: true, ..Version::default() };
        self.cells.entry(cell).or_insert_with(|| vec![nothing])
    }

    /// A write to a cell begins. `owed`: how many cuts there had been, if the client knows of all.
    pub fn begin(&mut self, cell: u64, number: u64, owed: Option<usize>) {
        let unsure = self.cutters > 0;
        self.versions(cell).push(Version { number, owed, unsure, ..Version::default() });
    }

    /// It was acknowledged. `true`: the first in the chunks.
    pub fn acknowledged(&mut self, cell: u64, number: u64) -> bool {
        let cutters = self.cutters;
        for version in self.versions(cell).iter_mut().filter(|version| version.number == number) {
            version.acknowledged = true;
            version.unsure |= cutters > 0;
        }
        let grew = !self.small && !self.in_chunks;
        self.in_chunks |= grew;
        grew
    }

    /// What its keeper was acknowledged by now: an fsync that begins answers for it, not for what others wrote.
    pub fn so_far(&self) -> BTreeSet<u64> {
        let own = self.cells.iter().filter(|(cell, _)| **cell != HEAD);
        let own = own.flat_map(|(_, versions)| versions);
        own.filter(|version| version.acknowledged && version.number > 0)
            .map(|version| version.number)
            .collect()
    }

    /// The handle of `lane` was answered an fsync that began with `covered`.
    pub fn synced(&mut self, lane: LaneId, covered: &BTreeSet<u64>) {
        let keeps_all = self.lookers > 0;
        for versions in self.cells.values_mut() {
            let answered = |version: &Version| {
                covered.contains(&version.number) && !version.told.contains(&lane) && !version.unsure
            };
            for version in versions.iter_mut().filter(|version| answered(version)) {
                version.synced = true;
            }
            let last = versions.iter().rposition(|version| version.synced).unwrap_or(0);
            versions.drain(..if keeps_all { 0 } else { last });
        }
    }

    /// The handle of `lane` told of a loss, or is a new one: it does not answer for what was before.
    pub fn told(&mut self, lane: LaneId) {
        for version in self.cells.values_mut().flatten() {
            version.told.insert(lane);
        }
    }

    /// Somebody begins to truncate it and to write `number` into its head: everything may be gone from now on.
    pub fn cut_begins(&mut self, number: u64) {
        if self.cutters == 0 {
            let all = self.cells.values().flatten();
            let told = all.filter(|version| version.acknowledged).map(|version| version.number);
            self.cut_off = told.collect();
        }
        self.cutters += 1;
        self.in_chunks = false;
        self.crowded |= self.cutters > 1;
        for versions in self.cells.values_mut() {
            versions.push(Version::default());
        }
        self.begin(HEAD, number, None);
    }

    /// That is over. `done`: it was told so; how many cuts there had been, if it knew of all, and whether it synced. Then
    /// nothing is left of what was acknowledged before; but who came last of several at a time, nobody knows.
    pub fn cut_ends(&mut self, number: u64, done: Option<(Option<usize>, bool)>) {
        self.cutters -= 1;
        let alone = !self.crowded;
        self.crowded &= self.cutters > 0;
        let Some((owed, synced)) = done.filter(|_| alone) else { return };
        let forgets = synced && self.lookers == 0;
        let gone = Version { acknowledged: true, owed, synced, ..Version::default() };
        for versions in self.cells.values_mut() {
            let after = |version: &Version| version.number > 0 && !self.cut_off.contains(&version.number);
            let (mut later, before): (Vec<Version>, Vec<Version>) = versions.drain(..).partition(after);
            later.iter_mut().for_each(|version| version.unsure = true);
            // A power cut may take what was not synced, and bring back what was there before.
            *versions = if forgets { Vec::new() } else { before };
            versions.push(gone.clone());
            versions.extend(later);
        }
        let head = Version { number, ..gone.clone() };
        let versions = self.cells.entry(HEAD).or_default();
        versions.retain(|version| !forgets && version.number != number);
        versions.extend([gone, head]);
    }

    /// Cells that were ever written.
    pub fn cells(&self) -> Vec<u64> {
        self.cells.keys().copied().collect()
    }

    /// The oldest version that a cell may have, for a look that begins.
    pub fn floor(&self, cell: u64, cuts: usize) -> u64 {
        let versions = self.cells.get(&cell).map_or(&[][..], Vec::as_slice);
        let at = versions.iter().rposition(|version| version.must_be(cuts)).unwrap_or(0);
        versions.get(at).map_or(0, |version| version.number)
    }

    /// May `found` be what is in a cell, for a look that began with `floor`?
    pub fn check(&self, cell: u64, cuts: usize, floor: u64, found: &[u8]) -> Result<(), String> {
        let versions = self.cells.get(&cell).map_or(&[][..], Vec::as_slice);
        let must = versions.iter().rposition(|version| version.must_be(cuts)).unwrap_or(0);
        let begun = versions.iter().position(|version| version.number == floor).unwrap_or(must);
        let allowed: Vec<Vec<u8>> =
            versions[must.min(begun)..].iter().map(|version| bytes_of(version.number)).collect();
        let wrong = (0..CELL as usize).find(|at| {
            let byte = found.get(*at).copied().unwrap_or(0);
            !allowed.iter().any(|bytes| bytes[*at] == byte)
        });
        match wrong {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of cell {cell} ({} bytes found) is that of no version that it may have: {:?}",
                found.len(),
                &versions[must.min(begun)..]
            )),
        }
    }
}

/// Bytes of a cell with this write.
pub fn bytes_of(number: u64) -> Vec<u8> {
    if number == 0 { vec![0; CELL as usize] } else { content(number, CELL as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId { life: 1, lane: 0 };

    /// Goal: what is owed must be there, until a cut, an error, or a newer write; what was synced, for ever.
    #[test]
    fn what_is_owed_is_found_missing() {
        let mut file = KeptFile::new(Ino(1), false);
        file.begin(3, 7, Some(2));
        let is = |file: &KeptFile, cuts, number| {
            file.check(3, cuts, file.floor(3, cuts), &bytes_of(number)).is_ok()
        };
        assert!(is(&file, 2, 0) && is(&file, 2, 7));
        file.acknowledged(3, 7);
        assert!(!is(&file, 2, 0) && is(&file, 2, 7) && is(&file, 3, 0));
        let covered = file.so_far();
        file.told(LANE);
        assert!(is(&file, 2, 0));
        file.synced(LANE, &covered);
        assert!(is(&file, 2, 0), "that handle does not answer for it");
        file.synced(LaneId { life: 1, lane: 1 }, &covered);
        assert!(!is(&file, 3, 0) && is(&file, 3, 7));
        file.cut_begins(9);
        assert!(is(&file, 3, 0) && is(&file, 3, 7));
        file.cut_ends(9, Some((Some(3), false)));
        assert!(is(&file, 3, 0) && !is(&file, 3, 7));
        assert!(
            file.check(HEAD, 3, 9, &bytes_of(0)).is_err() && file.check(HEAD, 3, 9, &bytes_of(9)).is_ok()
        );
        assert!(file.check(HEAD, 4, file.floor(HEAD, 4), &bytes_of(0)).is_ok(), "a cut may have taken it");
        file.begin(5, 8, Some(3));
        file.cut_begins(10);
        file.acknowledged(5, 8);
        file.cut_ends(10, Some((Some(3), true)));
        assert!(file.check(5, 5, file.floor(5, 5), &bytes_of(8)).is_ok(), "it was under way");
        assert!(file.check(HEAD, 5, file.floor(HEAD, 5), &bytes_of(0)).is_err(), "it was synced");
        file.cut_begins(12);
        file.cut_begins(11);
        file.cut_ends(11, Some((Some(3), false)));
        file.cut_ends(12, Some((Some(3), false)));
        let head = |number| file.check(HEAD, 3, file.floor(HEAD, 3), &bytes_of(number)).is_ok();
        assert!(head(12) && head(11), "either may have come last");
        // Whoever began to look before may find what was there then.
        file.lookers = 1;
        file.begin(7, 15, Some(3));
        file.acknowledged(7, 15);
        let (floor, covered) = (file.floor(7, 3), file.so_far());
        file.begin(7, 16, Some(3));
        file.acknowledged(7, 16);
        let later = file.so_far();
        file.synced(LaneId { life: 1, lane: 1 }, &later);
        assert!(covered.contains(&15) && later.contains(&16));
        assert!(file.check(7, 3, floor, &bytes_of(15)).is_ok());
        assert!(file.check(7, 3, file.floor(7, 3), &bytes_of(15)).is_err());
        file.cut_begins(13);
        file.begin(5, 14, Some(3));
        file.acknowledged(5, 14);
        let covered = file.so_far();
        file.synced(LaneId { life: 1, lane: 1 }, &covered);
        let fifth = |number| file.check(5, 3, file.floor(5, 3), &bytes_of(number)).is_ok();
        assert!(fifth(14) && fifth(0), "the truncate may come last");
    }
}
