//! A program that writes, syncs and replaces files, and keeps book of what must be there.

use super::book::{BLOCK, Book, Version};
use rustix::fs::{Advice, fadvise};
use skep_model::Rng;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files of a writer at a time.
const FILES: usize = 5;
/// Longest file, in blocks: several stripes.
const BLOCKS_MAX: u64 = 1_200;
/// Longest write, in blocks.
const WRITE_MAX: u64 = 80;

/// A file, and what may be in it.
struct Kept {
    name: String,
    book: Book,
    handle: Option<File>,
}

/// What a writer did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Changes of any kind.
    pub changes: u64,
    /// Good fsyncs.
    pub synced: u64,
    /// Programs that were told of a loss.
    pub told: u64,
}

/// A program with a directory of its own.
pub struct Writer {
    /// The name of its directory in every mount.
    name: String,
    rng: Rng,
    files: Vec<Kept>,
    /// What `final` may be: number of the file, and its version; certain when it is one.
    replaced: Vec<Option<u64>>,
    next: u64,
    version: Version,
    pub counts: Counts,
}

impl Writer {
    /// Makes its directory, so that it stays.
    pub fn new(number: u64, seed: u64, mount: &Path) -> io::Result<Self> {
        let name = format!("writer-{number}");
        fs::create_dir(mount.join(&name))?;
        File::open(mount)?.sync_all()?;
        Ok(Self {
            name,
            rng: Rng::new(seed ^ (number << 48)),
            files: Vec::new(),
            replaced: vec![None],
            next: number << 32,
            version: 0,
            counts: Counts::default(),
        })
    }

    /// Works through `mount` until told to stop. Errors of single calls are what it keeps book of.
    pub fn work(&mut self, mount: &Path, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.counts.changes += 1;
            match self.rng.below(100) {
                0..=7 => self.replace(mount),
                8..=12 if self.files.len() == FILES => self.remove(mount),
                _ if self.files.len() < FILES => self.make(mount),
                13..=17 => self.close(),
                18..=25 => self.truncate(mount),
                26..=50 => self.sync(mount),
                _ => self.write(mount),
            }
        }
    }

    fn path(&self, mount: &Path, name: &str) -> PathBuf {
        mount.join(&self.name).join(name)
    }

    fn make(&mut self, mount: &Path) {
        self.next += 1;
        let name = format!("file-{}", self.next);
        match File::options().create_new(true).read(true).write(true).open(self.path(mount, &name)) {
            Ok(handle) => self.files.push(Kept { name, book: Book::new(self.next), handle: Some(handle) }),
            Err(_) => self.counts.told += 1,
        }
    }

    /// One of its files, open.
    fn open(&mut self, mount: &Path) -> Option<usize> {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let path = self.path(mount, &self.files.get(at)?.name);
        let kept = &mut self.files[at];
        if kept.handle.is_none() {
            match File::options().read(true).write(true).open(path) {
                Ok(handle) => kept.handle = Some(handle),
                Err(_) => {
                    // Lost with its name, or to be seen when all is checked.
                    self.counts.told += 1;
                    return None;
                }
            }
        }
        Some(at)
    }

    fn write(&mut self, mount: &Path) {
        let Some(at) = self.open(mount) else { return };
        self.version += 1;
        let len = self.files[at].book.len() as u64;
        let first = if self.rng.percent(60) { len } else { self.rng.below(len + 20) };
        let count = (1 + self.rng.below(WRITE_MAX)).min(BLOCKS_MAX.saturating_sub(first)) as usize;
        let first = first as usize;
        let mut data = vec![0; count * BLOCK];
        let kept = &mut self.files[at];
        for (number, block) in data.chunks_exact_mut(BLOCK).enumerate() {
            kept.book.fill(first + number, self.version, block);
        }
        let Some(handle) = &kept.handle else { return };
        let wrote = handle.write_all_at(&data, (first * BLOCK) as u64);
        kept.book.wrote(first, count, self.version);
        if wrote.is_err() {
            kept.book.doubtful();
            self.counts.told += 1;
        }
    }

    fn truncate(&mut self, mount: &Path) {
        let Some(at) = self.open(mount) else { return };
        let kept = &mut self.files[at];
        let len = self.rng.below(kept.book.len() as u64 * 5 / 4 + 2).min(BLOCKS_MAX) as usize;
        let Some(handle) = &kept.handle else { return };
        let cut = handle.set_len((len * BLOCK) as u64);
        kept.book.truncated(len);
        if cut.is_err() {
            kept.book.doubtful();
            self.counts.told += 1;
        }
    }

    fn sync(&mut self, mount: &Path) {
        let Some(at) = self.open(mount) else { return };
        self.sync_one(at);
    }

    fn sync_one(&mut self, at: usize) {
        let kept = &mut self.files[at];
        let Some(handle) = &kept.handle else { return };
        match handle.sync_all() {
            Ok(()) => {
                kept.book.synced();
                self.counts.synced += 1;
            }
            Err(_) => {
                kept.book.doubtful();
                self.counts.told += 1;
            }
        }
    }

    fn close(&mut self) {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let kept = &mut self.files[at];
        if kept.handle.take().is_some() {
            kept.book.doubtful();
        }
    }

    fn remove(&mut self, mount: &Path) {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let kept = self.files.swap_remove(at);
        let _ = fs::remove_file(self.path(mount, &kept.name));
    }

    /// As careful programs do: a new file, synced, takes the place of the old one; then the directory is synced.
    fn replace(&mut self, mount: &Path) {
        self.next += 1;
        let (number, new, place) = (self.next, self.path(mount, "new"), self.path(mount, "final"));
        let content = whole(number);
        let written = File::create(&new).and_then(|file| {
            file.write_all_at(&content, 0)?;
            file.sync_all()
        });
        if written.is_err() {
            self.counts.told += 1;
            return;
        }
        self.replaced.push(Some(number));
        let renamed = fs::rename(&new, &place);
        let synced = renamed.and_then(|()| File::open(mount.join(&self.name))?.sync_all());
        match synced {
            Ok(()) => {
                self.replaced = vec![Some(number)];
                self.counts.synced += 1;
            }
            Err(_) => self.counts.told += 1,
        }
    }

    /// Syncs what is open: what is told to be safe must be found then.
    pub fn sync_all(&mut self) {
        (0..self.files.len()).for_each(|at| self.sync_one(at));
    }

    /// Its mount is gone, and all handles with it.
    pub fn closed(&mut self) {
        for kept in &mut self.files {
            kept.handle = None;
            kept.book.doubtful();
        }
    }

    /// Looks at everything through `mount`; the error is the first thing that must not be.
    pub fn verify(&self, mount: &Path) -> Result<(), String> {
        for kept in &self.files {
            let path = self.path(mount, &kept.name);
            verify_one(&path, &kept.book).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let path = self.path(mount, "final");
        let found = match fs::read(&path) {
            Ok(found) => Some(found),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        let allowed = |number: &Option<u64>| number.map(whole) == found;
        match self.replaced.iter().any(allowed) {
            true => Ok(()),
            false => Err(format!(
                "{}: {:?} bytes, not whole or not one of {:?}",
                path.display(),
                found.map(|found| found.len()),
                self.replaced
            )),
        }
    }

    /// What is gone with its name is forgotten, so that it is made anew.
    pub fn forget_missing(&mut self, mount: &Path) {
        let directory = mount.join(&self.name);
        self.files.retain(|kept| kept.handle.is_some() || directory.join(&kept.name).exists());
    }

    /// Takes everything away.
    pub fn clear(&mut self, mount: &Path) -> Result<(), String> {
        self.files.clear();
        let directory = mount.join(&self.name);
        fs::remove_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))
    }
}

/// The content of a file that replaces another: of its own length.
fn whole(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let words = 1 + rng.below(40_000);
    (0..words).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn verify_one(path: &Path, book: &Book) -> Result<(), String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound && book.may_be_missing() => return Ok(()),
        Err(e) => return Err(e.to_string()),
    };
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| format!("fadvise: {e}"))?;
    let size = file.metadata().map_err(|e| e.to_string())?.len();
    book.size(size)?;
    let mut bytes = vec![0; BLOCK];
    for number in 0..(size as usize).div_ceil(BLOCK) {
        let read = file.read_exact_at(&mut bytes, (number * BLOCK) as u64);
        book.block(number, read.as_ref().map(|()| &bytes[..]))?;
    }
    Ok(())
}
