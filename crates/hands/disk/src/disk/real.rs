//! [`Disk`] on a real file system.

use super::{DirLock, Disk, DiskError, DiskFile, DiskResult, OpenMode};
use rustix::fs::{self, Advice, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file whose lock stands for the directory.
const LOCK_FILE: &str = "lock";
/// Mode of new files and directories: state of the cluster is nobody else's to read.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// The machine's file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

struct RealFile {
    fd: OwnedFd,
    path: PathBuf,
}

struct Flock {
    // Held open: closing it gives the lock back.
    _fd: OwnedFd,
}

impl DirLock for Flock {}

fn open(path: &Path, flags: OFlags) -> DiskResult<OwnedFd> {
    retry_on_intr(|| fs::open(path, flags | OFlags::CLOEXEC, FILE_MODE))
        .map_err(|e| DiskError::new("open", path, e))
}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> DiskResult<()> {
        if dir.is_dir() {
            return Ok(());
        }
        let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.create_dir(parent)?;
        match fs::mkdir(dir, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => self.sync_dir(parent),
            Err(e) => Err(DiskError::new("make directory", dir, e)),
        }
    }

    fn lock_dir(&self, dir: &Path) -> DiskResult<Box<dyn DirLock>> {
        let path = dir.join(LOCK_FILE);
        let fd = open(&path, OFlags::RDWR | OFlags::CREATE)?;
        crate::lock::hold(&fd)
            .map_err(|e| DiskError::new("lock (is another daemon running on this directory?)", &path, e))?;
        Ok(Box::new(Flock { _fd: fd }))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> DiskResult<Arc<dyn DiskFile>> {
        let flags = match mode {
            OpenMode::Existing => OFlags::RDWR,
            OpenMode::Fresh => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
        };
        Ok(Arc::new(RealFile { fd: open(path, flags)?, path: path.to_path_buf() }))
    }

    fn list(&self, dir: &Path) -> DiskResult<Vec<String>> {
        let fail = |e| DiskError::new("list", dir, e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(fail)? {
            // A name that is no text is not one of ours.
            if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> DiskResult<()> {
        fs::rename(from, to).map_err(|e| DiskError::new("rename", from, e))
    }

    fn remove(&self, path: &Path) -> DiskResult<()> {
        fs::unlink(path).map_err(|e| DiskError::new("remove", path, e))
    }

    fn sync_dir(&self, dir: &Path) -> DiskResult<()> {
        let fd = open(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        fs::fsync(fd).map_err(|e| DiskError::new("fsync directory", dir, e))
    }
}

impl RealFile {
    fn fail(&self, doing: &'static str, e: Errno) -> DiskError {
        DiskError::new(doing, &self.path, e)
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> DiskResult<usize> {
        let mut done = 0;
        while done < buf.len() {
            let n = retry_on_intr(|| rustix::io::pread(&self.fd, &mut buf[done..], offset + done as u64))
                .map_err(|e| self.fail("read", e))?;
            if n == 0 {
                break;
            }
            done += n;
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DiskResult<()> {
        let mut done = 0;
        while done < buf.len() {
            let n = retry_on_intr(|| rustix::io::pwrite(&self.fd, &buf[done..], offset + done as u64))
                .map_err(|e| self.fail("write", e))?;
            if n == 0 {
                return Err(self.fail("write", Errno::IO));
            }
            done += n;
        }
        Ok(())
    }

    fn sync_data(&self) -> DiskResult<()> {
        // Not repeated on EINTR or anything else: a second fdatasync says "ok" about pages that
        // the first one failed to write.
        fs::fdatasync(&self.fd).map_err(|e| self.fail("fdatasync", e))
    }

    fn truncate(&self, len: u64) -> DiskResult<()> {
        retry_on_intr(|| fs::ftruncate(&self.fd, len)).map_err(|e| self.fail("truncate", e))
    }

    fn allocate(&self, len: u64) -> DiskResult<()> {
        retry_on_intr(|| fs::fallocate(&self.fd, FallocateFlags::empty(), 0, len))
            .map_err(|e| self.fail("reserve room for", e))
    }

    fn len(&self) -> DiskResult<u64> {
        fs::fstat(&self.fd).map(|s| s.st_size as u64).map_err(|e| self.fail("stat", e))
    }

    fn forget_cache(&self) -> DiskResult<()> {
        match fs::fadvise(&self.fd, 0, None, Advice::DontNeed) {
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(self.fail("drop the cache of", e)),
        }
    }
}
