//! Where the bytes of a measurement go: plain files, or chunk files through the daemon's code.

use super::super::question::{Direction, Path as Way, StorageTest};
use super::super::service::BenchTarget;
use super::area::Area;
use crate::target::Target;
use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, fdatasync, openat};
use rustix::io::{Errno, pread, pwrite};
use skep_disk::target::TargetDir;
use skep_storage::PieceName;
use skep_types::{ChunkId, ClientId, Decode, Generation, Ino};
use skep_wire::storage::{DeleteChunks, Owner, ReadChunk, SyncChunks, WriteChunk, WriteChunkReply};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Files that threads read and write.
pub enum Place {
    /// Plain ones.
    Raw(Vec<OwnedFd>),
    /// Of a target within the target.
    Chunks(Box<Target>, AtomicU64, Vec<File>),
}

fn at<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}

impl Place {
    /// Ready for this measurement: old files are removed where new ones are wanted, pages of those that are read
    /// are dropped.
    pub fn open(
        target: &BenchTarget,
        test: &StorageTest,
        objects: u32,
        object_size: u64,
    ) -> Result<Self, String> {
        let area = Area::of(target);
        let fit = |place: &Path| {
            let all_there =
                |path: &dyn Fn(u32) -> PathBuf| (0..objects).all(|one| is_there(&path(one), object_size));
            match test.path {
                Way::Raw => all_there(&|object| raw_file(place, object)),
                Way::Target => all_there(&|object| chunk_file(place, object)),
            }
        };
        let found = || area.find(&test.set, test.path, fit);
        let directory = match test.direction {
            Direction::Read => found().ok_or_else(|| NOTHING.to_owned())?,
            Direction::Write if test.rewrite => found().unwrap_or_else(|| area.place(&test.set, test.path)),
            Direction::Write => area.place(&test.set, test.path),
        };
        std::fs::create_dir_all(&directory).map_err(at(&directory))?;
        match test.path {
            Way::Raw => raw(&directory, test, objects),
            Way::Target => chunks(target, &directory, test, objects),
        }
    }

    /// Writes a block.
    pub fn write(&self, object: u32, offset: u64, data: &[u8]) -> Result<(), String> {
        match self {
            Self::Raw(files) => {
                let file = files.get(object as usize).ok_or("no such file")?;
                let mut done = 0;
                while done < data.len() {
                    match pwrite(file, &data[done..], offset + done as u64) {
                        Ok(0) => return Err("nothing was written".to_owned()),
                        Ok(n) => done += n,
                        Err(Errno::INTR) => {}
                        Err(e) => return Err(format!("write: {e}")),
                    }
                }
                Ok(())
            }
            Self::Chunks(target, life, _) => {
                let (chunk, owner) = (chunk(object), Owner::default());
                let m = WriteChunk {
                    target: target.id,
                    chunk,
                    offset,
                    owner,
                    floor: 0,
                    sync: false,
                    uncut: None,
                    later: None,
                    until: None,
                };
                let body = target.write(&m, data, ClientId(0)).map_err(|refusal| refusal.to_string())?;
                let reply = WriteChunkReply::from_bytes(&body).map_err(|e| e.to_string())?;
                life.store(reply.life, Relaxed);
                Ok(())
            }
        }
    }

    /// Reads a block; gives its length.
    pub fn read(&self, object: u32, offset: u64, into: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::Raw(files) => {
                let file = files.get(object as usize).ok_or("no such file")?;
                let mut done = 0;
                while done < into.len() {
                    match pread(file, &mut into[done..], offset + done as u64) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(Errno::INTR) => {}
                        Err(e) => return Err(format!("read: {e}")),
                    }
                }
                Ok(done)
            }
            Self::Chunks(target, ..) => {
                let len = into.len() as u32;
                let m = ReadChunk { target: target.id, chunk: chunk(object), offset, len };
                target.read(&m, into).map(|(_, len)| len).map_err(|refusal| refusal.to_string())
            }
        }
    }

    /// Drops pages of an object that was read, so that whoever reads them again asks the disk.
    pub fn forget(&self, object: u32, offset: u64, len: u64) -> Result<(), String> {
        let len = NonZeroU64::new(len);
        let advised = match self {
            Self::Raw(files) => {
                files.get(object as usize).map(|file| fadvise(file, offset, len, Advice::DontNeed))
            }
            Self::Chunks(_, _, files) => {
                files.get(object as usize).map(|file| fadvise(file, offset, len, Advice::DontNeed))
            }
        };
        advised.unwrap_or(Ok(())).map_err(|e| format!("fadvise: {e}"))
    }

    /// Makes a file durable.
    pub fn sync(&self, object: u32) -> Result<(), String> {
        match self {
            Self::Raw(files) => {
                let file = files.get(object as usize).ok_or("no such file")?;
                fdatasync(file).map_err(|e| format!("fdatasync: {e}"))
            }
            // Stopped before the first write there is nothing to sync, and no life of the target is known.
            Self::Chunks(_, life, _) if life.load(Relaxed) == 0 => Ok(()),
            Self::Chunks(target, life, _) => {
                let m =
                    SyncChunks { target: target.id, chunks: vec![chunk(object)], life: life.load(Relaxed) };
                target.run(&m.into()).map(drop).map_err(|refusal| refusal.to_string())
            }
        }
    }
}

/// The chunk file of an object; inode numbers mean nothing in a target of its own.
fn chunk(object: u32) -> ChunkId {
    ChunkId { ino: Ino(u64::from(object) + 1), generation: Generation(1), extent: 0, stripe: 0 }
}

/// Why nothing can be read.
const NOTHING: &str =
    "nothing to read: write with the same size, threads, objects and path first, and --keep";

fn is_there(path: &Path, size: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.len() >= size)
}

fn raw_file(place: &Path, object: u32) -> PathBuf {
    place.join(format!("object.{object}"))
}

fn chunk_file(place: &Path, object: u32) -> PathBuf {
    place.join(PieceName::first(chunk(object)).path())
}

/// What is read shall come from the disk. (Pages that are not written yet stay; a write ends with a sync.)
fn drop_pages(file: &impl std::os::fd::AsFd) -> Result<(), String> {
    fadvise(file, 0, None, Advice::DontNeed).map_err(|e| format!("fadvise: {e}"))
}

fn raw(directory: &Path, test: &StorageTest, objects: u32) -> Result<Place, String> {
    let mut files = Vec::with_capacity(objects as usize);
    for object in 0..objects {
        let path = raw_file(directory, object);
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if test.direct {
            flags |= OFlags::DIRECT;
        }
        match test.direction {
            Direction::Read => {}
            Direction::Write => {
                flags |= OFlags::CREATE;
                if !test.rewrite {
                    remove(&path)?;
                }
            }
        }
        let file = openat(CWD, &path, flags, Mode::from_raw_mode(0o600)).map_err(|e| match e {
            Errno::INVAL if test.direct => {
                format!("{}: this file system has no O_DIRECT: measure without direct", path.display())
            }
            e => format!("{}: {e}", path.display()),
        })?;
        if test.direction == Direction::Read {
            drop_pages(&file)?;
        }
        files.push(file);
    }
    Ok(Place::Raw(files))
}

fn remove(path: &Path) -> Result<(), String> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", path.display())),
        _ => Ok(()),
    }
}

fn chunks(target: &BenchTarget, directory: &Path, test: &StorageTest, objects: u32) -> Result<Place, String> {
    let uuid = skep_base::identity::random_uuid()?;
    let inner = TargetDir::open(directory, target.cluster, Some(uuid), target.reserve);
    let inner = Target::new(target.target, 0, inner.map_err(|e| e.to_string())?);
    let mut files = Vec::new();
    match test.direction {
        Direction::Read => {
            for object in 0..objects {
                let file = File::open(chunk_file(directory, object)).map_err(at(directory))?;
                drop_pages(&file)?;
                files.push(file);
            }
        }
        Direction::Write if !test.rewrite => {
            let all = (0..objects).map(chunk).collect();
            let m = DeleteChunks { target: target.target, by: None, chunks: all };
            inner.run(&m.into()).map_err(|refusal| refusal.to_string())?;
        }
        Direction::Write => {}
    }
    Ok(Place::Chunks(Box::new(inner), AtomicU64::new(0), files))
}
