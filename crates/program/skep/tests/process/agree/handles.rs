//! Files that stay open over many steps, on a mount and locally.

use super::{Dice, shown, sum};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Of each thread.
const SLOTS: u64 = 6;
/// Longer than any file of these runs.
const READ: usize = 32 << 10;
/// So long that a new file is in chunks; then small pieces wait for one another.
const BEGUN: usize = 9_000;
const PIECE: usize = 512;

/// What is done with one of them.
#[derive(Debug)]
pub enum Step {
    Open(u64, PathBuf, bool),
    /// A new file, written to in small pieces, and left open.
    Make(u64, PathBuf, u64),
    Write(u64, u64, usize),
    Truncate(u64, u64),
    Mode(u64, u32),
    Look(u64),
    Read(u64),
    Sync(u64),
    Close(u64),
}

impl Step {
    pub fn draw(dice: &mut Dice, path: PathBuf) -> Self {
        let slot = dice.below(SLOTS);
        match dice.below(18) {
            0..2 => Self::Open(slot, path, dice.below(2) > 0),
            2..4 => Self::Make(slot, path, 1 + dice.below(8)),
            4..8 => Self::Write(slot, dice.below(20_000), 1 + dice.below(2_000) as usize),
            8 => Self::Truncate(slot, dice.below(20_000)),
            9 => Self::Mode(slot, 0o400 | dice.below(0o400) as u32),
            10..13 => Self::Look(slot),
            13 => Self::Read(slot),
            14 => Self::Sync(slot),
            15 => Self::Close(slot),
            // One more small piece, to go with those before.
            _ => Self::Write(slot, 9_000 + dice.below(9_000), 1 + dice.below(500) as usize),
        }
    }

    pub fn make(dice: &mut Dice, path: PathBuf) -> Self {
        Self::Make(dice.below(SLOTS), path, 1 + dice.below(8))
    }

    fn slot(&self) -> u64 {
        match self {
            Self::Make(slot, ..) => *slot,
            Self::Open(slot, ..) | Self::Write(slot, ..) | Self::Truncate(slot, _) | Self::Mode(slot, _) => {
                *slot
            }
            Self::Look(slot) | Self::Read(slot) | Self::Sync(slot) | Self::Close(slot) => *slot,
        }
    }
}

/// Local numbers of files that any of the threads has open for writing.
#[derive(Clone, Default)]
pub struct Writers(Arc<Mutex<BTreeMap<u64, usize>>>);

impl Writers {
    pub fn has(&self, local: &Path) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::fs::metadata(local).is_ok_and(|found| open.contains_key(&found.ino()))
    }

    fn add(&self, file: &File) -> Option<Writer> {
        let ino = file.metadata().ok()?.ino();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(ino).or_default() += 1;
        Some(Writer { of: self.clone(), ino })
    }
}

struct Writer {
    of: Writers,
    ino: u64,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut open = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = open.get_mut(&self.ino).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            open.remove(&self.ino);
        }
    }
}

struct Handle {
    who: usize,
    /// Of the trees among which its file is.
    class: u64,
    theirs: File,
    local: File,
    /// Dropped behind the files. None: it only reads.
    writer: Option<Writer>,
    /// Another mount has changed the content since: what was in memory here may be shown still (promises, "Not promised").
    is_behind: bool,
}

/// Those of a thread.
pub struct Handles {
    pub writers: Writers,
    class: u64,
    open: BTreeMap<u64, Handle>,
}

fn told(result: io::Result<String>) -> String {
    result.unwrap_or_else(|e| e.to_string())
}

impl Handles {
    pub fn new(writers: Writers) -> Self {
        Self { writers, class: 0, open: BTreeMap::new() }
    }

    /// Files of other trees are others' to change: they stay open until theirs come back.
    pub fn changes_hands(&mut self, class: u64) {
        self.class = class;
        // What others do to them meanwhile is not known.
        self.open
            .values_mut()
            .filter(|handle| handle.class != class)
            .for_each(|handle| handle.is_behind = true);
    }

    /// The content of this local file has been changed by a mount.
    pub fn are_changed(&mut self, local: &Path, by: usize) {
        if let Ok(found) = std::fs::metadata(local) {
            self.is_changed(found.ino(), by);
        }
    }

    fn is_changed(&mut self, ino: u64, by: usize) {
        for handle in self.open.values_mut().filter(|handle| handle.who != by) {
            handle.is_behind |= handle.local.metadata().is_ok_and(|found| found.ino() == ino);
        }
    }

    /// Who was asked, what was expected and what was told; `None`: there is no such handle, or it is not the thread's now.
    pub fn run(
        &mut self,
        step: &Step,
        who: usize,
        local: &Path,
        mount: &Path,
    ) -> Option<(usize, String, String)> {
        let slot = step.slot();
        if let Step::Open(_, path, writes) = step {
            return self.open(slot, who, *writes, [local.join(path), mount.join(path)]);
        }
        if let Step::Make(_, path, pieces) = step {
            return self.make(slot, who, *pieces, [local.join(path), mount.join(path)]);
        }
        let handle = self.open.get(&slot).filter(|handle| handle.class == self.class)?;
        let (who, ino) = (handle.who, handle.local.metadata().ok()?.ino());
        let both = |work: &dyn Fn(&File) -> io::Result<String>| {
            Some((who, told(work(&handle.local)), told(work(&handle.theirs))))
        };
        let done = |()| String::new();
        match step {
            Step::Open(..) | Step::Make(..) => None,
            Step::Write(_, at, len) => {
                let answers = both(&|file| file.write_all_at(&vec![*len as u8; *len], *at).map(done));
                self.is_changed(ino, who);
                answers
            }
            Step::Truncate(_, len) => {
                let answers = both(&|file| file.set_len(*len).map(done));
                self.is_changed(ino, who);
                answers
            }
            Step::Mode(_, mode) => {
                both(&|file| file.set_permissions(Permissions::from_mode(*mode)).map(done))
            }
            Step::Look(_) => both(&|file| Ok(shown(&file.metadata()?))),
            Step::Read(_) if handle.is_behind => None,
            Step::Read(_) => both(&|file| {
                let mut all = vec![0; READ];
                let len = file.read_at(&mut all, 0)?;
                Ok(sum(&all[..len]))
            }),
            Step::Sync(_) if handle.writer.is_some() => both(&|file| file.sync_all().map(done)),
            Step::Sync(_) | Step::Close(_) => {
                self.open.remove(&slot);
                None
            }
        }
    }

    fn open(
        &mut self,
        slot: u64,
        who: usize,
        writes: bool,
        paths: [PathBuf; 2],
    ) -> Option<(usize, String, String)> {
        let open = |path: &Path| OpenOptions::new().read(true).write(writes).create(writes).open(path);
        let [local, theirs] = paths.each_ref().map(|path| open(path));
        let text = |file: &io::Result<File>| file.as_ref().map_or_else(|e| e.to_string(), |_| String::new());
        let answers = (who, text(&local), text(&theirs));
        if let (Ok(local), Ok(theirs)) = (local, theirs)
            && local.metadata().is_ok_and(|found| found.is_file())
        {
            let (class, writer) = (self.class, if writes { self.writers.add(&local) } else { None });
            self.open.insert(slot, Handle { who, class, theirs, local, writer, is_behind: false });
        }
        Some(answers)
    }

    fn make(
        &mut self,
        slot: u64,
        who: usize,
        pieces: u64,
        paths: [PathBuf; 2],
    ) -> Option<(usize, String, String)> {
        let make = |path: &Path| {
            let _ = std::fs::remove_file(path);
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            file.write_all_at(&[7; BEGUN], 0)?;
            for piece in 0..pieces {
                file.write_all_at(&[piece as u8; PIECE], (BEGUN + piece as usize * PIECE) as u64)?;
            }
            Ok(file)
        };
        let [local, theirs]: [io::Result<File>; 2] = paths.each_ref().map(|path| make(path));
        let text = |file: &io::Result<File>| match file {
            Ok(file) => told(file.metadata().map(|found| shown(&found))),
            Err(e) => e.to_string(),
        };
        let answers = (who, text(&local), text(&theirs));
        if let (Ok(local), Ok(theirs)) = (local, theirs) {
            let (class, writer) = (self.class, self.writers.add(&local));
            self.open.insert(slot, Handle { who, class, theirs, local, writer, is_behind: false });
        }
        Some(answers)
    }
}
