//! A disk in memory that loses power, for tests.
//!
//! It keeps apart what was synced and what was not, per file and per directory entry.
//! [`FaultDisk::crash`] gives the disk as it may be found afterwards.

use super::{DirLock, Disk, DiskError, DiskFile, DiskResult, OpenMode};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A sector is written wholly or not at all.
const SECTOR: usize = 512;

/// What a crash does to writes and names that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashMode {
    /// Process killed, kernel alive: everything stays.
    KeepAll,
    /// Everything unsynced is gone.
    DropAll,
    /// Operations up to some point stay, the one at that point is torn at any byte.
    Prefix,
    /// Any subset of the sectors and of the names stays.
    Reordered,
}

#[derive(Clone)]
enum Change {
    Write { at: u64, bytes: Vec<u8> },
    Resize { len: u64, extend_only: bool },
}

#[derive(Clone, Default)]
struct Inode {
    /// What programs see.
    live: Vec<u8>,
    /// What the device holds.
    durable: Vec<u8>,
    /// On the way from one to the other, each with its place in the order of all operations.
    pending: Vec<(u64, Change)>,
}

#[derive(Clone)]
enum NameChange {
    Link(PathBuf, usize),
    Unlink(PathBuf),
}

#[derive(Clone, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<(u64, NameChange)>,
    /// Changing operations so far.
    operations: u64,
    fail: Option<(u64, Errno)>,
    fsync_does_nothing: bool,
    off: bool,
}

#[derive(Clone, Default)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

struct FaultFile {
    disk: FaultDisk,
    inode: usize,
    path: PathBuf,
}

struct NoLock;
impl DirLock for NoLock {}

/// A small generator of its own, so that a seed means the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % below.max(1)
    }
}

fn write(into: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[at as usize..end].copy_from_slice(bytes);
}

fn perform(into: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { at, bytes } => write(into, *at, bytes),
        Change::Resize { len, extend_only } => {
            if !extend_only || into.len() < *len as usize {
                into.resize(*len as usize, 0);
            }
        }
    }
}

fn perform_name(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Link(path, inode) => names.insert(path.clone(), *inode),
        NameChange::Unlink(path) => names.remove(path),
    };
}

impl State {
    /// Counts a changing operation; fails it when it is the chosen one.
    fn begin(&mut self, doing: &'static str, path: &Path) -> DiskResult<u64> {
        if self.off {
            return Err(DiskError::new(doing, path, Errno::IO));
        }
        self.operations += 1;
        match self.fail {
            Some((n, errno)) if n == self.operations => {
                self.fail = None;
                Err(DiskError::new(doing, path, errno))
            }
            _ => Ok(self.operations),
        }
    }

    fn change(&mut self, inode: usize, order: u64, change: Change) {
        let inode = &mut self.inodes[inode];
        perform(&mut inode.live, &change);
        inode.pending.push((order, change));
    }

    fn change_name(&mut self, order: u64, change: NameChange) {
        perform_name(&mut self.names, &change);
        self.pending_names.push((order, change));
    }

    /// Applies what the crash lets through to the durable state.
    fn settle(&mut self, mode: CrashMode, dice: &mut Dice) {
        let oldest = self.inodes.iter().flat_map(|i| &i.pending).map(|(order, _)| *order);
        let oldest = oldest.chain(self.pending_names.iter().map(|(order, _)| *order)).min();
        let span = self.operations - oldest.unwrap_or(self.operations);
        let cut = oldest.unwrap_or(0) + dice.roll(span + 2);
        for (order, change) in std::mem::take(&mut self.pending_names) {
            let stays = match mode {
                CrashMode::KeepAll => true,
                CrashMode::DropAll => false,
                CrashMode::Prefix => order < cut,
                CrashMode::Reordered => dice.roll(2) == 0,
            };
            if stays {
                perform_name(&mut self.durable_names, &change);
            }
        }
        for inode in &mut self.inodes {
            for (order, change) in std::mem::take(&mut inode.pending) {
                settle_change(&mut inode.durable, order, &change, cut, mode, dice);
            }
            inode.live = inode.durable.clone();
        }
        self.names = self.durable_names.clone();
    }
}

fn settle_change(
    durable: &mut Vec<u8>,
    order: u64,
    change: &Change,
    cut: u64,
    mode: CrashMode,
    dice: &mut Dice,
) {
    match (mode, change) {
        (CrashMode::DropAll, _) => {}
        (CrashMode::KeepAll, _) => perform(durable, change),
        (CrashMode::Prefix, _) if order < cut => perform(durable, change),
        (CrashMode::Prefix, Change::Write { at, bytes }) if order == cut => {
            let torn = dice.roll(bytes.len() as u64 + 1) as usize;
            write(durable, *at, &bytes[..torn]);
        }
        (CrashMode::Prefix, _) => {}
        (CrashMode::Reordered, Change::Resize { .. }) => {
            if dice.roll(2) == 0 {
                perform(durable, change);
            }
        }
        (CrashMode::Reordered, Change::Write { at, bytes }) => {
            let mut from = 0;
            while from < bytes.len() {
                let room = SECTOR - (*at as usize + from) % SECTOR;
                let to = bytes.len().min(from + room);
                if dice.roll(2) == 0 {
                    write(durable, at + from as u64, &bytes[from..to]);
                }
                from = to;
            }
        }
    }
}

impl FaultDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Power goes. The disk as it is found afterwards; this one answers EIO from now on.
    pub fn crash(&self, mode: CrashMode, seed: u64) -> Self {
        let mut state = self.state();
        let mut after = state.clone();
        state.off = true;
        after.settle(mode, &mut Dice(seed));
        after.fail = None;
        Self { state: Arc::new(Mutex::new(after)) }
    }

    /// Fails the `n`-th changing operation from now (from 1), once. With ENOSPC a write gets
    /// half-way; after a failed sync the unsynced data never reaches the device, as on Linux.
    pub fn fail_after(&self, n: u64, errno: Errno) {
        let mut state = self.state();
        state.fail = Some((state.operations + n, errno));
    }

    /// Has the failure asked for by [`FaultDisk::fail_after`] not happened yet?
    pub fn failure_is_pending(&self) -> bool {
        self.state().fail.is_some()
    }

    /// The canary: syncs say "ok" and do nothing.
    pub fn fsync_does_nothing(&self) {
        self.state().fsync_does_nothing = true;
    }

    /// Changes bytes of a file on the device, as a failing disk would.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if let Some(inode) = state.names.get(path).copied() {
            let inode = &mut state.inodes[inode];
            change(&mut inode.live);
            inode.durable = inode.live.clone();
        }
    }

    /// A file's bytes as programs see them.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|inode| state.inodes[*inode].live.clone())
    }

    /// Takes a file away, durably, as a careless hand would.
    pub fn lose(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }
}

impl Disk for FaultDisk {
    fn create_dir(&self, _dir: &Path) -> DiskResult<()> {
        Ok(())
    }

    fn lock_dir(&self, _dir: &Path) -> DiskResult<Box<dyn DirLock>> {
        Ok(Box::new(NoLock))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> DiskResult<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let found = state.names.get(path).copied();
        let inode = match (mode, found) {
            (OpenMode::Existing, None) => return Err(DiskError::new("open", path, Errno::NOENT)),
            (OpenMode::Existing, Some(inode)) => inode,
            (OpenMode::Fresh, Some(inode)) => {
                let order = state.begin("open", path)?;
                state.change(inode, order, Change::Resize { len: 0, extend_only: false });
                inode
            }
            (OpenMode::Fresh, None) => {
                let order = state.begin("open", path)?;
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.change_name(order, NameChange::Link(path.to_path_buf(), inode));
                inode
            }
        };
        Ok(Arc::new(FaultFile { disk: self.clone(), inode, path: path.to_path_buf() }))
    }

    fn list(&self, dir: &Path) -> DiskResult<Vec<String>> {
        let state = self.state();
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| path.file_name()?.to_str().map(String::from)).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> DiskResult<()> {
        let mut state = self.state();
        let order = state.begin("rename", from)?;
        let Some(inode) = state.names.get(from).copied() else {
            return Err(DiskError::new("rename", from, Errno::NOENT));
        };
        state.change_name(order, NameChange::Link(to.to_path_buf(), inode));
        state.change_name(order, NameChange::Unlink(from.to_path_buf()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> DiskResult<()> {
        let mut state = self.state();
        let order = state.begin("remove", path)?;
        if !state.names.contains_key(path) {
            return Err(DiskError::new("remove", path, Errno::NOENT));
        }
        state.change_name(order, NameChange::Unlink(path.to_path_buf()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> DiskResult<()> {
        let mut state = self.state();
        let result = state.begin("fsync directory", dir).map(|_| ());
        if result.is_ok() && !state.fsync_does_nothing {
            for (_, change) in std::mem::take(&mut state.pending_names) {
                perform_name(&mut state.durable_names, &change);
            }
        } else if result.is_err() {
            state.pending_names.clear();
        }
        result
    }
}

impl DiskFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> DiskResult<usize> {
        let state = self.disk.state();
        let live = &state.inodes[self.inode].live;
        let from = live.len().min(offset as usize);
        let n = buf.len().min(live.len() - from);
        buf[..n].copy_from_slice(&live[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DiskResult<()> {
        let mut state = self.disk.state();
        match state.begin("write", &self.path) {
            Ok(order) => {
                state.change(self.inode, order, Change::Write { at: offset, bytes: buf.to_vec() });
                Ok(())
            }
            Err(e) => {
                if e.is_full() {
                    let order = state.operations;
                    let half = Change::Write { at: offset, bytes: buf[..buf.len() / 2].to_vec() };
                    state.change(self.inode, order, half);
                }
                Err(e)
            }
        }
    }

    fn sync_data(&self) -> DiskResult<()> {
        let mut state = self.disk.state();
        let result = state.begin("fdatasync", &self.path).map(|_| ());
        let nothing = state.fsync_does_nothing;
        let inode = &mut state.inodes[self.inode];
        if result.is_err() {
            inode.pending.clear();
        } else if !nothing {
            for (_, change) in std::mem::take(&mut inode.pending) {
                perform(&mut inode.durable, &change);
            }
        }
        result
    }

    fn truncate(&self, len: u64) -> DiskResult<()> {
        let mut state = self.disk.state();
        let order = state.begin("truncate", &self.path)?;
        state.change(self.inode, order, Change::Resize { len, extend_only: false });
        Ok(())
    }

    fn allocate(&self, len: u64) -> DiskResult<()> {
        let mut state = self.disk.state();
        let order = state.begin("reserve room for", &self.path)?;
        state.change(self.inode, order, Change::Resize { len, extend_only: true });
        Ok(())
    }

    fn len(&self) -> DiskResult<u64> {
        Ok(self.disk.state().inodes[self.inode].live.len() as u64)
    }

    fn forget_cache(&self) -> DiskResult<()> {
        let mut state = self.disk.state();
        let inode = &mut state.inodes[self.inode];
        if inode.pending.is_empty() {
            inode.live = inode.durable.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the fault disk itself loses what was not synced and keeps what was, in every mode.
    #[test]
    fn unsynced_state_is_lost_and_synced_state_stays() {
        for seed in 0..200 {
            for mode in [CrashMode::DropAll, CrashMode::Prefix, CrashMode::Reordered] {
                let disk = FaultDisk::new();
                let path = Path::new("d/f");
                let file = disk.open(path, OpenMode::Fresh).unwrap();
                disk.sync_dir(Path::new("d")).unwrap();
                file.write_at(&[1; 2000], 0).unwrap();
                file.sync_data().unwrap();
                file.write_at(&[2; 2000], 2000).unwrap();
                disk.open(Path::new("d/g"), OpenMode::Fresh).unwrap();
                let after = disk.crash(mode, seed);
                let bytes = after.bytes(path).unwrap();
                assert_eq!(bytes[..2000], [1; 2000], "{mode:?} {seed}");
                assert!(bytes[2000..].iter().all(|b| *b == 0 || *b == 2));
                if mode == CrashMode::DropAll {
                    assert_eq!(bytes.len(), 2000);
                    assert!(after.bytes(Path::new("d/g")).is_none());
                }
            }
        }
    }

    /// Goal: after a failed sync the data is in the cache only, and a later sync does not help.
    #[test]
    fn a_failed_sync_loses_the_data() {
        let disk = FaultDisk::new();
        let file = disk.open(Path::new("f"), OpenMode::Fresh).unwrap();
        file.write_at(b"gone", 0).unwrap();
        disk.fail_after(1, Errno::IO);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(disk.bytes(Path::new("f")).unwrap(), b"gone");
        file.forget_cache().unwrap();
        assert_eq!(disk.bytes(Path::new("f")).unwrap(), b"");
    }
}
