//! Many small files: one worker's part of a [`crate::job::FilesJob`].

mod samples;
mod source;
mod walk;

use crate::engine::{Claims, Load, Meter, Part, Place, Side, Step, StepKind, Trouble, ground};
use crate::io::write_all;
use crate::job::{FilesJob, FilesPhase, root};
use rustix::fs::{AtFlags, Mode, OFlags, Timestamps};
use rustix::io::Errno;
use rustix::time::Timespec;
use samples::Samples;
pub(crate) use source::Source;
use source::WORD;
use std::path::{Path, PathBuf};
use walk::{Found, walk};

/// Name of the directory of samples, below the job's directory.
pub(crate) const SAMPLES: &str = "samples";
/// Bytes of one read or write, as cp and tar use them.
const CALL: usize = 128 << 10;
/// What tar sets as time of a file: a moment long ago.
const WHEN: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };

/// Name of a worker's own trees.
pub(crate) fn own_tree(worker: u32) -> String {
    format!("w{worker:08}")
}

/// One worker of a files job.
pub(crate) struct FilesLoad {
    place: Place,
    files: FilesJob,
    source: Option<Source>,
    samples: Samples,
    buffer: Vec<u8>,
    /// How often the word stands in the tree, once it was counted.
    words: Option<u64>,
}

impl FilesLoad {
    pub fn new(place: &Place, files: &FilesJob) -> Self {
        let samples = Samples::new(files, place.job.seed, place.worker, place.job.workers.count());
        let buffer = vec![0; CALL];
        Self { place: place.clone(), files: files.clone(), source: None, samples, buffer, words: None }
    }

    fn root(&self) -> PathBuf {
        root(&self.files.paths, &self.files.name, self.place.worker)
    }

    fn tree(&self) -> PathBuf {
        self.root().join(own_tree(self.place.worker)).join("tree")
    }

    fn copied(&self) -> PathBuf {
        self.root().join(own_tree(self.place.worker)).join("copy")
    }

    fn untar(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        let Some(source) = &mut self.source else { return Ok(()) };
        let tree = root(&self.files.paths, &self.files.name, self.place.worker)
            .join(own_tree(self.place.worker))
            .join("tree");
        let mut now = meter.now();
        claimed(&self.place.claims, &tree)?;
        for directory in source.directories() {
            let path = tree.join(directory);
            mkdir(&path)?;
            now = meter.record(Side::First, 0, now);
        }
        let mut all = 0;
        for file in 0..self.files.tree.files {
            meter.next(file, u64::MAX, now)?;
            let path = tree.join(source.name(file));
            let (bytes, words) = source.contents(file);
            all += words;
            // Contents are made before the clock of this file runs.
            now = meter.now();
            let fd = create(&path)?;
            for (at, piece) in bytes.chunks(CALL).enumerate() {
                let offset = (at * CALL) as u64;
                write_all(&fd, piece, offset)
                    .map_err(|errno| Trouble::call("write", &path, errno).at(offset))?;
            }
            let times = Timestamps { last_access: WHEN, last_modification: WHEN };
            rustix::fs::futimens(&fd, &times).map_err(|errno| Trouble::call("set times of", &path, errno))?;
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o644))
                .map_err(|errno| Trouble::call("set mode of", &path, errno))?;
            drop(fd);
            now = meter.record(Side::First, bytes.len() as u64, now);
        }
        self.words = Some(all);
        Ok(())
    }

    /// What the tree holds, also where an earlier run has made it.
    fn know(&mut self, words: bool) {
        let seed = self.place.job.seed;
        let source = self.source.get_or_insert_with(|| Source::new(&self.files.tree, seed));
        if words && self.words.is_none() {
            self.words = Some((0..self.files.tree.files).map(|file| source.contents(file).1).sum());
        }
    }

    fn entries(&self) -> u64 {
        self.files.tree.files + self.source.as_ref().map_or(0, |source| source.directories().len() as u64)
    }

    fn find(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        let tree = self.tree();
        let mut now = meter.now();
        let mut seen = 0;
        walk(&tree, &mut |found| {
            meter.next(seen, u64::MAX, now)?;
            if let Found::File(directory, name, path) | Found::Directory(directory, name, path) = found {
                rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| Trouble::call("stat", path, errno))?;
                seen += 1;
                now = meter.record(Side::First, 0, now);
            }
            Ok(())
        })?;
        let should = self.entries();
        if seen != should {
            return Err(Trouble::found("find", &tree, format!("{seen} of {should} entries were found")));
        }
        Ok(())
    }

    fn grep(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        let tree = self.tree();
        let buffer = &mut self.buffer;
        let mut now = meter.now();
        let (mut seen, mut words) = (0, 0);
        walk(&tree, &mut |found| {
            let Found::File(directory, name, path) = found else { return Ok(()) };
            meter.next(seen, u64::MAX, now)?;
            let fd = rustix::fs::openat(
                directory,
                name,
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(|errno| Trouble::call("open", path, errno))?;
            let (mut bytes, mut kept) = (0, 0);
            loop {
                let read = rustix::io::read(&fd, &mut buffer[kept..])
                    .map_err(|errno| Trouble::call("read", path, errno).at(bytes))?;
                if read == 0 {
                    break;
                }
                bytes += read as u64;
                let filled = kept + read;
                words += count(&buffer[..filled], WORD);
                // A word may lie across two reads.
                kept = filled.min(WORD.len() - 1);
                buffer.copy_within(filled - kept..filled, 0);
            }
            drop(fd);
            seen += 1;
            now = meter.record(Side::First, bytes, now);
            Ok(())
        })?;
        let should = self.words.unwrap_or(0);
        if words != should {
            let reason = format!("the word was found {words} times, it was written {should} times");
            return Err(Trouble::found("grep", &tree, reason));
        }
        Ok(())
    }

    fn copy(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        let (tree, copied, should) = (self.tree(), self.copied(), self.entries());
        claimed(&self.place.claims, &copied)?;
        let buffer = &mut self.buffer;
        let mut now = meter.now();
        let mut done = 0;
        walk(&tree, &mut |found| {
            meter.next(done, u64::MAX, now)?;
            let (Found::File(_, _, from) | Found::Directory(_, _, from)) = found else { return Ok(()) };
            let to = copied.join(from.strip_prefix(&tree).unwrap_or(from));
            let mut bytes = 0;
            match found {
                Found::Directory(..) => mkdir(&to)?,
                _ => bytes = copy_file(from, &to, buffer)?,
            }
            done += 1;
            now = meter.record(Side::First, bytes, now);
            Ok(())
        })?;
        if done != should {
            return Err(Trouble::found("copy", &tree, format!("{done} of {should} entries were found")));
        }
        Ok(())
    }

    fn remove(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        let mut now = meter.now();
        let mut done = 0;
        for tree in [self.tree(), self.copied()] {
            walk(&tree, &mut |found| {
                let (directory, name, path, flags) = match found {
                    Found::File(directory, name, path) => (directory, name, path, AtFlags::empty()),
                    Found::Left(directory, name, path) => (directory, name, path, AtFlags::REMOVEDIR),
                    Found::Directory(..) => return Ok(()),
                };
                if !own_name(name.to_bytes()) {
                    let reason = "it is not of this job, so it stays; move it away".to_owned();
                    return Err(Trouble::found("remove", path, reason));
                }
                meter.next(done, u64::MAX, now)?;
                rustix::fs::unlinkat(directory, name, flags)
                    .map_err(|errno| Trouble::call("remove", path, errno))?;
                done += 1;
                now = meter.record(Side::First, 0, now);
                Ok(())
            })?;
            match ground::rmdir(&tree) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(Trouble::call("remove", &tree, errno)),
            }
        }
        if self.place.job.existing && !self.place.job.keep {
            // What was around trees that were there before goes with them, if nothing else is in it.
            let _ = ground::rmdir(&self.root().join(own_tree(self.place.worker)));
            let _ = ground::rmdir(&self.root());
        }
        Ok(())
    }
}

impl Load for FilesLoad {
    fn prepare(&mut self, step: &Step, repetition: u32, _reach: &[u64]) -> Result<(), Trouble> {
        let StepKind::Files(phase) = step.kind else { return Ok(()) };
        match phase {
            FilesPhase::Samples | FilesPhase::Train => {
                self.samples.prepare(phase, repetition, &self.place.claims)
            }
            FilesPhase::Untar => {
                claim(&self.place.claims, &self.root().join(own_tree(self.place.worker)))?;
                self.know(false);
                Ok(())
            }
            FilesPhase::Find | FilesPhase::Grep | FilesPhase::Copy => {
                self.know(phase == FilesPhase::Grep);
                Ok(())
            }
            FilesPhase::Remove => Ok(()),
        }
    }

    fn part(&mut self, step: &Step, _part: Part, meter: &mut Meter) -> Result<(), Trouble> {
        let StepKind::Files(phase) = step.kind else { return Ok(()) };
        match phase {
            FilesPhase::Untar => self.untar(meter),
            FilesPhase::Find => self.find(meter),
            FilesPhase::Grep => self.grep(meter),
            FilesPhase::Copy => self.copy(meter),
            FilesPhase::Remove => self.remove(meter),
            FilesPhase::Samples => self.samples.make(meter),
            FilesPhase::Train => self.samples.train(meter, &mut self.buffer),
        }
    }

    fn tidy(&mut self, repetition: u32) -> Result<Vec<String>, Trouble> {
        if repetition + 1 == self.place.job.repetitions {
            return Ok(Vec::new());
        }
        // What was there before stays.
        let (job, claims) = (&self.place.job, &self.place.claims);
        claims.remove(job, &self.tree())?;
        claims.remove(job, &self.copied())?;
        self.samples.remove(job, claims)?;
        Ok(Vec::new())
    }
}

fn mkdir(path: &Path) -> Result<(), Trouble> {
    ground::mkdir(path).map_err(|errno| Trouble::call("mkdir", path, errno))
}

/// Makes a directory that is this run's from now on.
fn claimed(claims: &Claims, path: &Path) -> Result<(), Trouble> {
    claims.directory(path).map_err(|errno| Trouble::call("mkdir", path, errno))
}

/// Makes a directory and the one above it, if they are not there; those made are this run's.
fn claim(claims: &Claims, path: &Path) -> Result<(), Trouble> {
    for path in path.parent().into_iter().chain([path]) {
        match claims.directory(path) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Trouble::call("mkdir", path, errno)),
        }
    }
    Ok(())
}

/// Whether a name is one of those that such jobs give below their trees.
pub(crate) fn own_name(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let file = |text: &str, endings: &[&str]| {
        text.rsplit_once('.').is_some_and(|(number, ending)| digits(number) && endings.contains(&ending))
    };
    matches!(name, "tree" | "copy")
        || name.strip_prefix("dir").is_some_and(digits)
        || name.strip_prefix("file").is_some_and(|rest| file(rest, &source::ENDINGS))
        || digits(name)
        || file(name, &["jpg"])
}

fn create(path: &Path) -> Result<rustix::fd::OwnedFd, Trouble> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    ground::open(path, flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| Trouble::call("create", path, errno))
}

fn copy_file(from: &Path, to: &Path, buffer: &mut [u8]) -> Result<u64, Trouble> {
    let source = ground::open(from, OFlags::RDONLY, Mode::empty())
        .map_err(|errno| Trouble::call("open", from, errno))?;
    let stat = rustix::fs::fstat(&source).map_err(|errno| Trouble::call("stat", from, errno))?;
    let copy = create(to)?;
    let mut bytes = 0u64;
    loop {
        let read = rustix::io::read(&source, &mut *buffer)
            .map_err(|errno| Trouble::call("read", from, errno).at(bytes))?;
        if read == 0 {
            break;
        }
        write_all(&copy, &buffer[..read], bytes)
            .map_err(|errno| Trouble::call("write", to, errno).at(bytes))?;
        bytes += read as u64;
    }
    if bytes != stat.st_size as u64 {
        return Err(Trouble::found("copy", from, format!("{bytes} of {} bytes were read", stat.st_size)));
    }
    rustix::fs::fchmod(&copy, Mode::from_raw_mode(0o644))
        .map_err(|errno| Trouble::call("set mode of", to, errno))?;
    Ok(bytes)
}

/// How often a word stands in a text.
fn count(text: &[u8], word: &[u8]) -> u64 {
    let mut from = 0;
    let mut found = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == word[0])) {
        from += at + 1;
        found += u64::from(text[from - 1..].starts_with(word));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only names that such jobs give are taken for their own.
    #[test]
    fn own_names() {
        for name in ["tree", "copy", "dir3", "file12.rs", "000001", "000000012.jpg"] {
            assert!(own_name(name.as_bytes()), "{name}");
        }
        for name in ["trees", "dir", "file.rs", "file1.doc", "photo.jpg", "1.png", "notes", "file1.x.rs"] {
            assert!(!own_name(name.as_bytes()), "{name}");
        }
    }

    /// Goal: words are counted wherever they stand, also side by side and after a false start.
    #[test]
    fn counting() {
        assert_eq!(count(b"skepskep sskep ske", b"skep"), 3);
        assert_eq!(count(b"", b"skep"), 0);
    }
}
