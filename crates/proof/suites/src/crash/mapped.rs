//! One file of each process in a shared mapping that stays over kills and evictions: stores, writes, appends, cuts and
//! holes take turns, and memory, reads and what other mounts see must be the same bytes.

use super::crowd::{REPEATED, in_doubt};
use skep_model::{Fill, Rng};
use skep_rig::Mapping;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

/// Longest file; the mapping reaches so far from the beginning.
const SIZE_MAX: u64 = 3 << 20;
/// Longest single change.
const CHANGE_MAX: u64 = 200_000;
/// Changes that a complaint shows.
const PAST: usize = 60;

/// An open file, in two ways, and in memory.
struct Opened {
    file: File,
    end: File,
    memory: Mapping,
}

/// The file and what must be in it.
pub struct Mapped {
    name: String,
    path: PathBuf,
    opened: Option<Opened>,
    content: Vec<u8>,
    rng: Rng,
    made: u32,
    past: Vec<String>,
    /// Sessions may end under it: a change whose answer was lost with a server ends with EIO then, done or not.
    pub evicted: bool,
}

impl Mapped {
    /// Makes the file, on the first mount.
    pub fn new(index: usize, seed: u64, mounts: &[PathBuf]) -> Result<Self, String> {
        let name = format!("mapped-{index}");
        let path = mounts.first().ok_or("no mount")?.join(&name);
        File::create_new(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let rng = Rng::new(seed ^ 0x3a99ed);
        Ok(Self {
            name,
            path,
            opened: None,
            content: Vec::new(),
            rng,
            made: 1 << 28,
            past: Vec::new(),
            evicted: false,
        })
    }

    /// One change or one look.
    pub fn step(&mut self) -> Result<(), String> {
        self.made += 1;
        let len = self.rng.below(CHANGE_MAX) + 1;
        let size = self.content.len() as u64;
        let draw = self.rng.below(100);
        let what = match draw {
            0..25 if size > 0 => self.store(len),
            0..40 => self.write(len),
            40..52 if size + len <= SIZE_MAX => self.append(len),
            40..62 => self.cut(),
            62..70 => self.reserve(len),
            70..84 if size > 0 => self.holes(draw < 77, len),
            70..97 => Ok(format!("nothing, {size} bytes")),
            _ => self.close().map(|()| "closed".to_owned()),
        };
        let what = what.map_err(|e| self.complaint(&format!("change {}", self.made), &e))?;
        if self.past.len() == PAST {
            self.past.remove(0);
        }
        self.past.push(what);
        self.look().map_err(|e| self.complaint("a look", &e))
    }

    /// What is open, opened where needed.
    fn opened(&mut self) -> io::Result<&mut Opened> {
        if self.opened.is_none() {
            let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            let end = OpenOptions::new().append(true).open(&self.path)?;
            let memory = Mapping::new(&file, SIZE_MAX as usize)?;
            self.opened = Some(Opened { file, end, memory });
        }
        self.opened.as_mut().ok_or_else(|| io::Error::other("not open"))
    }

    /// Does `change`; again while it leaves a doubt, then from the size before. A mapping's stores that were being written
    /// may be lost with it, which the error told: they are stored anew.
    fn repeated(&mut self, change: impl Fn(&mut Opened) -> io::Result<()>) -> io::Result<()> {
        let size = self.content.len() as u64;
        let mut result = change(self.opened()?);
        for _ in 0..REPEATED {
            if !self.evicted || !in_doubt(&result) {
                break;
            }
            let content = core::mem::take(&mut self.content);
            let opened = self.opened()?;
            result = opened.file.set_len(size);
            if result.is_ok() {
                opened.memory.store(0, &content);
                result = change(opened);
            }
            self.content = content;
        }
        result
    }

    /// What is in memory only is written.
    fn sync(&mut self) -> io::Result<()> {
        self.repeated(|opened| opened.memory.sync())
    }

    fn bytes(&self, len: u64) -> Vec<u8> {
        Fill { tag: self.made, len: len as u32 }.bytes()
    }

    /// A range of the file that is not empty; there must be one.
    fn range(&mut self, len: u64) -> (usize, usize) {
        let size = self.content.len() as u64;
        let offset = self.rng.below(size);
        (offset as usize, len.min(size - offset) as usize)
    }

    /// Into memory; in half of the cases synced.
    fn store(&mut self, len: u64) -> io::Result<String> {
        let (offset, len) = self.range(len);
        let bytes = self.bytes(len as u64);
        let sync = self.rng.percent(50);
        let memory = &mut self.opened()?.memory;
        memory.store(offset, &bytes);
        self.content[offset..offset + len].copy_from_slice(&bytes);
        let synced = if sync { self.sync() } else { Ok(()) };
        synced.map(|()| format!("stored {len} at {offset}, synced: {sync}"))
    }

    fn write(&mut self, len: u64) -> io::Result<String> {
        let offset = self.rng.below(SIZE_MAX - len);
        let bytes = self.bytes(len);
        self.repeated(|opened| opened.file.write_all_at(&bytes, offset))?;
        let (offset, end) = (offset as usize, (offset + len) as usize);
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[offset..end].copy_from_slice(&bytes);
        Ok(format!("wrote {len} at {offset}"))
    }

    fn append(&mut self, len: u64) -> io::Result<String> {
        let bytes = self.bytes(len);
        self.repeated(|opened| opened.end.write_all(&bytes))?;
        self.content.extend(bytes);
        Ok(format!("appended {len}"))
    }

    /// Shorter or longer.
    fn cut(&mut self) -> io::Result<String> {
        let size = if self.rng.percent(10) { 0 } else { self.rng.below(SIZE_MAX) };
        self.repeated(|opened| opened.file.set_len(size))?;
        self.content.resize(size as usize, 0);
        Ok(format!("cut to {size}"))
    }

    /// Space, which makes the file longer or not.
    fn reserve(&mut self, len: u64) -> io::Result<String> {
        let (offset, keeps) = (self.rng.below(SIZE_MAX - len), self.rng.percent(30));
        let how = if keeps { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        self.repeated(|opened| Ok(fallocate(&opened.file, how, offset, len)?))?;
        let end = (offset + len) as usize;
        if !keeps && self.content.len() < end {
            self.content.resize(end, 0);
        }
        Ok(format!("reserved {len} at {offset}, keeps its size: {keeps}"))
    }

    /// Zeros, by a hole or by zeroing.
    fn holes(&mut self, punch: bool, len: u64) -> io::Result<String> {
        let (offset, len) = self.range(len);
        let kind = if punch { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        let how = kind | FallocateFlags::KEEP_SIZE;
        self.repeated(|opened| Ok(fallocate(&opened.file, how, offset as u64, len as u64)?))?;
        self.content[offset..offset + len].fill(0);
        Ok(format!("{} {len} at {offset}", if punch { "punched" } else { "zeroed" }))
    }

    /// Size, a range in memory, and the same by a read.
    fn look(&mut self) -> io::Result<()> {
        let size = self.opened()?.file.metadata()?.len();
        if size != self.content.len() as u64 {
            return Err(io::Error::other(format!("{size} bytes instead of {}", self.content.len())));
        }
        if size == 0 {
            return Ok(());
        }
        let len = self.rng.below(CHANGE_MAX) + 1;
        let (offset, len) = self.range(len);
        let mut read = vec![0; len];
        let opened = self.opened()?;
        opened.file.read_exact_at(&mut read, offset as u64)?;
        let memory = opened.memory.load(offset, len);
        let expected = &self.content[offset..offset + len];
        same("read", offset, &read, expected).and_then(|()| same("in memory", offset, &memory, expected))
    }

    /// Closes the file, and writes what is in memory only.
    pub fn close(&mut self) -> io::Result<()> {
        if self.opened.is_some() {
            self.sync()?;
        }
        self.opened = None;
        Ok(())
    }

    /// What is in memory is synced; the file is as it must be through every mount. It stays open.
    pub fn verify(&mut self, mounts: &[PathBuf]) -> Result<(), String> {
        if self.opened.is_some() {
            self.sync().map_err(|e| self.complaint("msync", &e))?;
        }
        for mount in mounts {
            let found = fs::read(mount.join(&self.name)).and_then(|found| {
                let lengths = (found.len(), self.content.len());
                same("read by name", 0, &found, &self.content)?;
                match lengths {
                    (a, b) if a == b => Ok(()),
                    _ => Err(io::Error::other(format!("{lengths:?} bytes"))),
                }
            });
            found.map_err(|e| self.complaint(&mount.display().to_string(), &e))?;
        }
        Ok(())
    }

    /// Takes it away.
    pub fn remove(&mut self) -> Result<(), String> {
        self.close().and_then(|()| fs::remove_file(&self.path)).map_err(|e| self.complaint("remove", &e))
    }

    fn complaint(&self, what: &str, e: &io::Error) -> String {
        format!("{}: {what}: {e}, after\n{}", self.path.display(), self.past.join("\n"))
    }
}

/// The common part of both must be equal.
fn same(what: &str, offset: usize, found: &[u8], expected: &[u8]) -> io::Result<()> {
    let pairs = || found.iter().zip(expected);
    let Some(at) = pairs().position(|(a, b)| a != b) else { return Ok(()) };
    let wrong = pairs().filter(|(a, b)| a != b).count();
    let zeros = pairs().filter(|(a, b)| a != b && **a == 0).count();
    Err(io::Error::other(format!(
        "{what}, other bytes from {} on: {wrong} of {}, {zeros} of them zeros",
        offset + at,
        found.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(path: &std::path::Path) -> Mapped {
        Mapped::new(0, 7, &[path.to_owned()]).unwrap()
    }

    /// Goal: a sound file system passes every kind of step, and a byte that is wrong or missing in the end is told.
    #[test]
    fn wrong_bytes_are_told() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let mounts = [scratch.path().to_owned()];
        let mut one = mapped(scratch.path());
        (0..300).for_each(|_| one.step().unwrap());
        one.append(1_000).unwrap();
        one.verify(&mounts).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(scratch.path().join("mapped-0")).unwrap();
        let last = one.content.len() as u64 - 1;
        let good = *one.content.last().unwrap();
        file.write_all_at(&[!good], last).unwrap();
        assert!(one.verify(&mounts).unwrap_err().contains("1 of"));
        file.set_len(last).unwrap();
        assert!(one.verify(&mounts).unwrap_err().contains("bytes"));
        assert!(one.look().unwrap_err().to_string().contains("instead of"));
        file.set_len(last + 1).unwrap();
        file.write_all_at(&[good], last).unwrap();
        one.verify(&mounts).unwrap();
        one.remove().unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
