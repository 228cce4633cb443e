//! A disk that can be made slow: a file in memory, shown through FUSE, on which a loop device stands.
//!
//! Everything above it is the real thing: loop device, ext4, the storage daemon. Only here a request may have to
//! wait for its turn.

use skep_fuse::{
    Attr, AttrReply, Context, DirSink, Entry, Errno, FileKind, Filesystem, Fuse, FuseOptions, InitFlags,
    Mount, MountOptions, OpenFlags, OpenRequest, Opened, ReadRequest, RingThread, StatFs, Transport,
    WriteRequest,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Name of the file that the mount shows.
pub const IMAGE: &str = "disk.img";
/// Number of the root directory.
const ROOT: u64 = 1;
/// Number of the file.
const FILE: u64 = 2;
/// Nothing ever changes behind the kernel's back.
const VALID: Duration = Duration::from_secs(3_600);

/// Flags of one disk.
#[derive(clap::Args)]
pub struct DiskArguments {
    /// Directory to mount at.
    #[arg(long)]
    at: PathBuf,
    /// Size in MiB.
    #[arg(long)]
    size: u64,
    /// File that holds the bytes a second it may move; 0: as many as it can.
    #[arg(long)]
    rate: PathBuf,
}

/// Serves a disk until it is unmounted.
pub fn serve(arguments: &DiskArguments) -> Result<bool, String> {
    let failed = |what: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", what.display());
    let memory = rustix::fs::memfd_create("skep-rigged-disk", rustix::fs::MemfdFlags::CLOEXEC);
    let image = File::from(memory.map_err(|e| format!("memfd_create: {e}"))?);
    image.set_len(arguments.size << 20).map_err(|e| format!("memfd: {e}"))?;
    let rate = File::open(&arguments.rate).map_err(|e| failed(&arguments.rate, &e))?;
    let disk =
        Disk(Arc::new(Inner { image, size: arguments.size << 20, rate, free: Mutex::new(Instant::now()) }));
    let mut options = FuseOptions { transport: Transport::Dev, ..FuseOptions::default() };
    options.init.wanted = options.init.wanted & !(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
    let mut mount = MountOptions::new(arguments.at.clone());
    mount.source = "skep-rigged".into();
    mount.subtype = "skep-rigged".into();
    let device = Fuse::mount(&mount, options).map_err(|e| failed(&arguments.at, &e))?;
    device.run(&disk).map_err(|e| failed(&arguments.at, &e))?;
    Ok(true)
}

/// The disk, as every worker sees it.
#[derive(Clone)]
struct Disk(Arc<Inner>);

struct Inner {
    image: File,
    size: u64,
    rate: File,
    /// When the disk is done with all that it took on so far.
    free: Mutex<Instant>,
}

impl Inner {
    /// Bytes a second it may move, or none if there is no limit.
    fn limit(&self) -> Option<f64> {
        let mut text = [0; 24];
        let len = self.rate.read_at(&mut text, 0).ok()?;
        let rate: f64 = std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()?;
        (rate > 0.0).then_some(rate)
    }

    /// Waits for the turn of a request.
    fn wait(&self, bytes: usize) {
        let Some(rate) = self.limit() else { return };
        let now = Instant::now();
        let until = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            *free = (*free).max(now) + Duration::from_secs_f64(bytes as f64 / rate);
            *free
        };
        std::thread::sleep(until.saturating_duration_since(now));
    }

    fn attr(&self, ino: u64) -> Result<Attr, Errno> {
        let mode = match ino {
            ROOT => FileKind::Directory.mode_bits() | 0o700,
            FILE => FileKind::Regular.mode_bits() | 0o600,
            _ => return Err(Errno::ENOENT),
        };
        let size = if ino == FILE { self.size } else { 0 };
        Ok(Attr { ino, size, blocks: size / 512, mode, nlink: 1, blksize: 4_096, ..Attr::default() })
    }
}

impl Mount for Disk {
    type Worker = Disk;
    type Ring = Disk;

    fn worker(&self, _index: usize) -> Disk {
        self.clone()
    }

    fn ring(&self, _thread: usize, _reactor: &skep_ring::Reactor) -> Disk {
        self.clone()
    }
}

impl RingThread for Disk {
    type Worker = Disk;

    fn worker(&self) -> Option<Disk> {
        Some(self.clone())
    }
}

fn io_error(_: std::io::Error) -> Errno {
    Errno::EIO
}

impl Filesystem for Disk {
    async fn lookup(&self, _cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        match (parent, name) {
            (ROOT, name) if name == IMAGE.as_bytes() => Ok(Entry {
                ino: FILE,
                generation: 0,
                attr: self.0.attr(FILE)?,
                entry_valid: VALID,
                attr_valid: VALID,
            }),
            _ => Err(Errno::ENOENT),
        }
    }

    async fn getattr(&self, _cx: &Context<'_>, ino: u64, _fh: Option<u64>) -> Result<AttrReply, Errno> {
        Ok(AttrReply { attr: self.0.attr(ino)?, attr_valid: VALID })
    }

    async fn open(&self, _cx: &Context<'_>, _ino: u64, _request: &OpenRequest) -> Result<Opened, Errno> {
        Ok(Opened { fh: 0, flags: OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES })
    }

    async fn read(
        &self,
        _cx: &Context<'_>,
        _ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        self.0.wait(out.len());
        self.0.image.read_at(out, request.offset).map_err(io_error)
    }

    async fn write(
        &self,
        _cx: &Context<'_>,
        _ino: u64,
        request: &WriteRequest,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let end = request.offset.checked_add(data.len() as u64).ok_or(Errno::EINVAL)?;
        if end > self.0.size {
            return Err(Errno::ENOSPC);
        }
        self.0.wait(data.len());
        self.0.image.write_at(data, request.offset).map_err(io_error)
    }

    async fn flush(&self, _cx: &Context<'_>, _ino: u64, _fh: u64, _lock_owner: u64) -> Result<(), Errno> {
        Ok(())
    }

    async fn fsync(&self, _cx: &Context<'_>, _ino: u64, _fh: u64, _data_only: bool) -> Result<(), Errno> {
        Ok(())
    }

    async fn readdir(
        &self,
        _cx: &Context<'_>,
        _ino: u64,
        _fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        if offset == 0 {
            // One short record always fits.
            let _ = sink.add(FILE, 1, FileKind::Regular, IMAGE.as_bytes());
        }
        Ok(())
    }

    async fn statfs(&self, _cx: &Context<'_>, _ino: u64) -> Result<StatFs, Errno> {
        let blocks = self.0.size / 4_096;
        Ok(StatFs { blocks, bsize: 4_096, frsize: 4_096, namelen: 255, files: 1, ..StatFs::default() })
    }
}
