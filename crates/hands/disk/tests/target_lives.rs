//! What a target says of writes that were not synced: over restarts, mounts and failures of its disk.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use skep_disk::target::TargetDir;
use skep_storage::{ChunkStore, Done, Limits, Word, execute, write_chunk};
use skep_types::{ChunkId, Consistency, Generation, Ino, TargetId, Uuid};
use skep_wire::Status;
use skep_wire::storage::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const CLUSTER: Uuid = Uuid([1; 16]);

/// A directory, with a small file system of its own or without one; it goes at the end, also when the test fails.
struct Scratch {
    path: PathBuf,
    directory: tempfile::TempDir,
    mounted: bool,
}

impl Scratch {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { path: directory.path().to_owned(), directory, mounted: false }
    }

    fn tmpfs(size: &str) -> Self {
        let mut scratch = Self::new();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        mount("skep-test", scratch.directory.path(), "tmpfs", MountFlags::empty(), options.as_c_str())
            .unwrap();
        scratch.mounted = true;
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            let _ = unmount(&self.path, UnmountFlags::DETACH);
        }
    }
}

fn open(path: &Path) -> TargetDir {
    TargetDir::open(path, CLUSTER, Some(Uuid([2; 16])), 0).unwrap()
}

fn chunk(ino: u64) -> ChunkId {
    ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }
}

fn write(target: &TargetDir, ino: u64, offset: u64, data: &[u8]) -> Result<WriteChunkReply, Done> {
    let (id, owner) = (TargetId(101), Owner::default());
    let m = WriteChunk {
        target: id,
        chunk: chunk(ino),
        offset,
        owner,
        floor: 0,
        sync: false,
        uncut: None,
        later: None,
        until: None,
    };
    write_chunk(target, &m, data)
}

fn output(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).output()
}

fn system(program: &str, arguments: &[&std::ffi::OsStr]) {
    let done = output(Command::new(program).args(arguments)).unwrap();
    assert!(done.status.success(), "{program}: {done:?}");
}

/// As the daemon opens a target: with what was kept of it.
fn started(path: &Path, kept: &Path) -> TargetDir {
    let target = open(path);
    target.keep_standing(kept, GOOD).unwrap();
    target
}

const GOOD: Word = Word { consistency: Consistency::Good, failures: 0, decisions: 0 };

fn sync(target: &TargetDir, ino: u64, life: u64) -> Done {
    let m = SyncChunks { target: TargetId(101), chunks: vec![chunk(ino)], life };
    execute(target, Limits::default(), &m.into())
}

fn is_lost(done: &Done) -> bool {
    matches!(done, Done::Refused(refusal) if refusal.status == Status::LOST_WRITES)
}

/// A file system in an image on a small tmpfs, through a loop device.
struct LoopDisk {
    below: Scratch,
    mounted: Option<PathBuf>,
    device: Option<String>,
}

impl LoopDisk {
    fn make(size: &str, format: &[&str]) -> Self {
        let below = Scratch::tmpfs(size);
        let mut disk = Self { below, mounted: None, device: None };
        let image = disk.below.path.join("image");
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let mut arguments: Vec<&std::ffi::OsStr> = vec!["-q".as_ref(), "-F".as_ref()];
        arguments.extend(format.iter().map(|word| std::ffi::OsStr::new(*word)));
        arguments.push(image.as_os_str());
        system("mkfs.ext4", &arguments);
        std::fs::create_dir(disk.below.path.join("mnt")).unwrap();
        disk.mount();
        disk
    }

    fn mount(&mut self) {
        let image = self.below.path.join("image");
        let made = output(Command::new("losetup").args(["-f", "--show"]).arg(&image)).unwrap();
        assert!(made.status.success(), "{made:?}");
        let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let path = self.below.path.join("mnt");
        self.device = Some(device.clone());
        mount(device.as_str(), &path, "ext4", MountFlags::empty(), None).unwrap();
        self.mounted = Some(path);
    }

    fn umount(&mut self) {
        if let Some(path) = self.mounted.take() {
            unmount(&path, UnmountFlags::empty()).unwrap();
        }
        if let Some(device) = self.device.take() {
            system("losetup", &["-d".as_ref(), device.as_ref()]);
        }
    }

    fn target(&self) -> PathBuf {
        self.below.path.join("mnt/target")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if let Some(path) = self.mounted.take() {
            let _ = unmount(&path, UnmountFlags::DETACH);
        }
        if let Some(device) = self.device.take() {
            let _ = Command::new("losetup").args(["-d", &device]).status();
        }
    }
}

/// Goal: a life goes over a restart of the daemon on the same mount, also in a private view of the tree, and over
/// nothing else: the same disk mounted again in the same boot has another one, and so has a mount that the system
/// cannot tell from others.
#[test]
fn a_life_ends_with_its_mount() {
    let kept = Scratch::new();
    let mut disk = LoopDisk::make("80m", &[]);
    std::fs::create_dir(disk.target()).unwrap();
    let target = started(&disk.target(), &kept.path);
    let life = write(&target, 7, 0, b"old").unwrap().life;
    let since = target.life_since();
    drop(target);
    let target = started(&disk.target(), &kept.path);
    assert_eq!((target.life(), target.life_since()), (life, since), "a mere restart");
    assert!(matches!(sync(&target, 7, life), Done::Body(_)));
    drop(target);
    let elsewhere = Scratch::new();
    mount(disk.target(), &elsewhere.path, "", MountFlags::BIND, None).unwrap();
    let target = started(&elsewhere.path, &kept.path);
    assert_eq!(target.life(), life, "another way to the same file system");
    drop(target);
    unmount(&elsewhere.path, UnmountFlags::empty()).unwrap();
    disk.umount();
    disk.mount();
    let target = started(&disk.target(), &kept.path);
    assert_ne!(target.life(), life, "mounted anew");
    assert!(target.life_since() > since);
    assert!(is_lost(&sync(&target, 7, life)));
    drop(target);
    let other = Scratch::new();
    assert_ne!(started(&disk.target(), &other.path).life(), life, "nothing was kept of it");
}

/// Goal: a write-back that fails is told to whoever syncs that chunk file afterwards, however many others were written
/// since and whatever the kernel has forgotten: by an error, or by another life. Method: an image on a file system
/// without room gives I/O errors to the file system in it, which has no journal: nothing but this one write-back can
/// fail and tell of it; few chunk files may be open; the kernel's inodes are dropped.
#[test]
fn a_failed_write_back_is_told_although_many_files_followed() {
    let kept = Scratch::new();
    let disk =
        LoopDisk::make("24m", &["-E", "lazy_itable_init=0,nodiscard", "-O", "^has_journal", "-b", "4096"]);
    std::fs::create_dir(disk.target()).unwrap();
    let target = started(&disk.target(), &kept.path);
    target.limit_open_files(32);
    // The names and blocks of small files are there before the disk fails.
    for ino in 100..400 {
        write(&target, ino, 0, b"x").unwrap();
    }
    let life = write(&target, 7, 0, b"old").unwrap().life;
    assert!(matches!(sync(&target, 7, life), Done::Body(_)));
    rustix::fs::syncfs(std::fs::File::open(disk.target()).unwrap()).unwrap();
    let mut ballast = std::fs::File::create(disk.below.path.join("ballast")).unwrap();
    let block = vec![1; 1 << 16];
    while std::io::Write::write_all(&mut ballast, &block).is_ok() {}
    // New blocks below this file: no room for them.
    write(&target, 7, 0, &vec![7; 1 << 20]).unwrap();
    // The kernel writes it back, and nobody of the daemon asks.
    let written_back = rustix::fs::syncfs(std::fs::File::open(disk.target()).unwrap());
    assert!(written_back.is_err(), "nothing failed: else this tests nothing");
    drop(ballast);
    std::fs::remove_file(disk.below.path.join("ballast")).unwrap();
    for ino in 100..400 {
        if write(&target, ino, 0, b"y").is_err() {
            break;
        }
    }
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let done = sync(&target, 7, life);
    assert!(
        is_lost(&done) || matches!(done, Done::DiskFailed(_)),
        "{done:?}, and the file holds the old bytes"
    );
    assert!(target.is_bad());
}
