//! One directory for all processes on all mounts; the names of each are its own.

use super::worker::Signs;
use rustix::io::Errno;
use skep_model::Rng;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The directory.
const DIRECTORY: &str = "shared";
/// Names of one process.
const NAMES: u64 = 16;
/// Longest file: some stay inline, some do not.
const LENGTH_MAX: u64 = 20_000;

/// One process's names and their contents.
pub struct Crowd {
    prefix: String,
    directory: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
    rng: Rng,
    made: u64,
    /// Sessions may end under it: a change whose answer was lost with a server ends with EIO then, done or not.
    pub evicted: bool,
}

/// How often a change in doubt is repeated.
pub const REPEATED: u32 = 20;

impl Crowd {
    /// Makes the directory, unless another process did.
    pub fn new(index: usize, seed: u64, mounts: &[PathBuf]) -> Result<Self, String> {
        let directory = mounts.first().ok_or("no mount")?.join(DIRECTORY);
        match fs::create_dir(&directory) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(format!("{}: {e}", directory.display())),
            _ => Ok(Self {
                prefix: format!("p{index}-"),
                directory,
                files: BTreeMap::new(),
                rng: Rng::new(seed ^ 0x5a4ed),
                made: 0,
                evicted: false,
            }),
        }
    }

    /// One operation with exactly the outcome that the names call for.
    pub fn step(&mut self) -> Result<(), String> {
        self.made += 1;
        let name = format!("{}{}", self.prefix, self.rng.below(NAMES));
        let path = self.directory.join(&name);
        let there = self.files.contains_key(&name);
        match self.rng.below(10) {
            0..=3 => self.create(name, &path, there),
            4..=5 => {
                self.files.remove(&name);
                let removed = fs::remove_file(&path);
                let removed = self.without_doubt(removed, there, || fs::remove_file(&path));
                expect("unlink", &path, removed, there, ErrorKind::NotFound)
            }
            6 => self.rename(&name, &path),
            7 => self.list(&self.directory),
            _ => self.read(&name, &path),
        }
    }

    /// `result`, or what it comes to when it left a doubt: `again` until there is none. A name that was there may be gone
    /// by then: it was done.
    fn without_doubt(
        &self,
        mut result: io::Result<()>,
        there: bool,
        mut again: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        for _ in 0..REPEATED {
            if !self.evicted || !in_doubt(&result) {
                break;
            }
            result = again();
            if there && result.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
                result = Ok(());
            }
        }
        result
    }

    fn create(&mut self, name: String, path: &Path, there: bool) -> Result<(), String> {
        let content = vec![self.made as u8; self.rng.below(LENGTH_MAX) as usize];
        let make = || OpenOptions::new().write(true).create_new(true).open(path)?.write_all(&content);
        // A part of it may be there: it goes first.
        let made = self.without_doubt(make(), false, || {
            let gone = self.without_doubt(fs::remove_file(path), true, || fs::remove_file(path));
            gone.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
                .and_then(|()| make())
        });
        if !there {
            self.files.insert(name, content);
        }
        expect("create", path, made, !there, ErrorKind::AlreadyExists)
    }

    fn rename(&mut self, name: &str, path: &Path) -> Result<(), String> {
        let to = format!("{}{}", self.prefix, self.rng.below(NAMES));
        let rename = || fs::rename(path, self.directory.join(&to));
        let renamed = self.without_doubt(rename(), self.files.contains_key(name), rename);
        let content = self.files.remove(name);
        let there = content.is_some();
        if let Some(content) = content {
            self.files.insert(to, content);
        }
        expect("rename", path, renamed, there, ErrorKind::NotFound)
    }

    fn read(&self, name: &str, path: &Path) -> Result<(), String> {
        match (fs::read(path), self.files.get(name)) {
            (Ok(found), Some(expected)) if found == *expected => Ok(()),
            (Err(e), None) if e.kind() == ErrorKind::NotFound => Ok(()),
            (found, expected) => Err(format!(
                "{}: read {:?}, expected {:?} bytes",
                path.display(),
                found.map(|bytes| (bytes.len(), bytes.first().copied())),
                expected.map(|bytes| (bytes.len(), bytes.first().copied()))
            )),
        }
    }

    /// The own names, exactly, whatever the others do.
    fn list(&self, directory: &Path) -> Result<(), String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))? {
            let entry = entry.map_err(|e| format!("{}: {e}", directory.display()))?;
            let name = entry.file_name().display().to_string();
            if name.starts_with(&self.prefix) {
                found.push(name);
            }
        }
        found.sort();
        if found.iter().eq(self.files.keys()) {
            return Ok(());
        }
        let expected: Vec<&String> = self.files.keys().collect();
        Err(format!("{}: lists {found:?}, expected {expected:?}", directory.display()))
    }

    /// Compares names and contents through `mount`.
    pub fn verify(&self, mount: &Path, signs: &mut Signs) -> Result<(), String> {
        let directory = mount.join(DIRECTORY);
        self.list(&directory)?;
        self.files.keys().try_for_each(|name| {
            let path = directory.join(name);
            signs.at(&path);
            self.read(name, &path)
        })
    }

    /// Takes the own names away; the last process takes the directory.
    pub fn remove(&mut self) -> Result<(), String> {
        for name in core::mem::take(&mut self.files).into_keys() {
            let path = self.directory.join(name);
            fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        match fs::remove_dir(&self.directory) {
            Err(e) if !matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {
                Err(format!("{}: {e}", self.directory.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Was it perhaps done?
pub fn in_doubt<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|e| Errno::from_io_error(e) == Some(Errno::IO))
}

/// Success where there should be success, else exactly that error.
fn expect(
    what: &str,
    path: &Path,
    result: std::io::Result<()>,
    success: bool,
    error: ErrorKind,
) -> Result<(), String> {
    match result {
        Ok(()) if success => Ok(()),
        Err(e) if !success && e.kind() == error => Ok(()),
        other => {
            let expected = if success { "success".to_owned() } else { error.to_string() };
            Err(format!("{what} {}: {other:?}, expected {expected}", path.display()))
        }
    }
}
