//! One mount, as the transport sees it, and as `skep health` reads of it.

use super::background;
use super::hands::{Hands, SharedCell};
use super::keeper::{KEEPER_LANES, Keeper};
use super::misses::Misses;
use super::port::BlockingPort;
use super::ring::{RingHands, RingPort};
use super::shown;
use super::worker::{Manner, MountLane, Worker};
use skep_base::config::mount::Io;
use skep_base::control;
use skep_base::daemon::Readiness;
use skep_client::{Cell, Lane, Shared};
use skep_fuse::{InitFlags, Negotiated, RESERVE_PER_THREAD, RESERVE_WORKERS, RingThread, Serving};
use skep_ring::Reactor;
use skep_types::Ino;
use skep_types::limits::SLOTS_MAX;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Lanes that serve no ring thread: housekeeping, renewal, closed files, locks, the thread that takes FORGET, the reserve of
/// `/dev/fuse`, and one to spare.
pub const OTHER_LANES: usize = 5 + KEEPER_LANES + RESERVE_WORKERS;
/// Lanes that every ring thread can count on, however many the others have, besides its reserve.
const LANES_PER_THREAD_MIN: usize = 2;

pub struct Served {
    hands: Arc<Hands>,
    io: Io,
    keeper: Arc<Keeper>,
    misses: Arc<Misses>,
    direct_with_mmap: AtomicBool,
    readiness: Mutex<Option<Readiness>>,
    background: bool,
    note: Note,
    /// Lanes that ring threads may have beyond those they can count on.
    spare_lanes: Arc<AtomicUsize>,
}

impl Served {
    /// For a mount that has a session.
    pub fn new(hands: &Arc<Hands>, io: Io, readiness: Readiness, background: bool, note: Note) -> Self {
        Self {
            hands: hands.clone(),
            io,
            keeper: Keeper::new(hands.clone()),
            misses: Arc::default(),
            direct_with_mmap: AtomicBool::new(false),
            readiness: Mutex::new(Some(readiness)),
            background,
            note,
            spare_lanes: Arc::default(),
        }
    }

    /// Who keeps programs that wait for locks.
    pub fn keeper(&self) -> Arc<Keeper> {
        self.keeper.clone()
    }

    fn manner(&self) -> Manner {
        Manner {
            io: self.io,
            direct_with_mmap: self.direct_with_mmap.load(Ordering::Relaxed),
            checks: self.hands.shared.with(|s| s.limits.checks),
            keeper: self.keeper.clone(),
            misses: self.misses.clone(),
        }
    }
}

/// Does a kernel of this release look for a name that it is to drop before it has the lock of the directory (K6)? Who cannot tell
/// says yes.
fn is_hasty(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => ((6, 19)..(7, 2)).contains(&(major, minor)),
        _ => true,
    }
}

impl skep_fuse::Mount for Served {
    type Worker = Worker<BlockingPort>;
    type Ring = RingLanes;

    fn init(&self, negotiated: &Negotiated) -> Result<(), skep_fuse::Errno> {
        let direct = negotiated.granted.contains(InitFlags::DIRECT_IO_ALLOW_MMAP);
        self.direct_with_mmap.store(direct, Ordering::Relaxed);
        self.hands.shared.with(|s| {
            s.limits.old_kernel = !negotiated.counts_evictions();
            s.limits.names = negotiated.has_epochs();
            s.limits.checks = negotiated.granted.contains(InitFlags::AUTO_INVAL_DATA);
            s.limits.hasty_kernel = is_hasty(&rustix::system::uname().release().to_string_lossy());
        });
        self.note
            .lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(negotiated.losses().map(str::to_owned));
        Ok(())
    }

    fn serving(&self, serving: &Serving) {
        info!("{}: {serving}", self.note.mount_point.display());
        if let Serving::Uring { threads, .. } = serving {
            let counted_on = threads.saturating_mul(LANES_PER_THREAD_MIN + RESERVE_PER_THREAD);
            let spare = (SLOTS_MAX as usize - OTHER_LANES).saturating_sub(counted_on);
            self.spare_lanes.store(spare, Ordering::Relaxed);
        }
        let lost = self.note.write(serving);
        let transport = if matches!(serving, Serving::Uring { .. }) { "uring" } else { "dev" };
        shown::serving(transport, lost.len());
        let readiness = self.readiness.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(readiness) = readiness {
            let lacks = if lost.is_empty() { String::new() } else { format!(", without {}", lost.join(" ")) };
            readiness.ready(&format!("{}{lacks}", self.note.mount_point.display()));
        }
        if self.background {
            background::tell_live();
        }
    }

    /// A kernel whose connection was cut off goes on using what is valid: as long as there is something mounted, it has the root.
    fn destroy(&self) {
        let root = self.hands.notifier.get().map(|notifier| notifier.inval_inode(Ino::ROOT.0, -1, 0));
        if matches!(root, Some(Ok(skep_fuse::Dropped::Unknown))) {
            self.hands.shared.with(Shared::unmounted);
        }
    }

    fn interrupt_parked(&self, unique: u64) {
        self.keeper.interrupt(unique);
    }

    fn worker(&self, _index: usize) -> Self::Worker {
        Worker::new(super::lane(&self.hands).ok(), self.manner())
    }

    fn ring(&self, _thread: usize, reactor: &Reactor) -> RingLanes {
        RingLanes {
            hands: RingHands::new(self.hands.clone(), reactor),
            shared: self.hands.shared.clone(),
            manner: self.manner(),
            made: std::cell::Cell::new(0),
            spare: self.spare_lanes.clone(),
        }
    }
}

/// Makes the lanes of one ring thread.
pub struct RingLanes {
    hands: Rc<RingHands>,
    shared: Arc<SharedCell>,
    manner: Manner,
    made: std::cell::Cell<usize>,
    spare: Arc<AtomicUsize>,
}

impl RingLanes {
    fn make(&self) -> Option<Worker<RingPort>> {
        let lane: MountLane<RingPort> =
            Lane::new(self.shared.clone(), |_slot| RingPort::new(&self.hands)).ok()?;
        Some(Worker::new(Some(lane), self.manner.clone()))
    }

    /// May there be one more? A mount has [`SLOTS_MAX`] slots, whatever its threads.
    fn is_allowed(&self) -> bool {
        self.made.get() < LANES_PER_THREAD_MIN
            || self.spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }
}

impl RingThread for RingLanes {
    type Worker = Worker<RingPort>;

    fn worker(&self) -> Option<Self::Worker> {
        if !self.is_allowed() {
            return None;
        }
        let worker = self.make()?;
        self.made.set(self.made.get() + 1);
        Some(worker)
    }

    fn reserve(&self) -> Option<Self::Worker> {
        self.make()
    }
}

/// What `skep health` reads of this mount.
pub struct Note {
    path: PathBuf,
    mount_point: PathBuf,
    /// What the kernel does not grant.
    lost: Mutex<Vec<String>>,
}

impl Note {
    /// Written once it is known how the mount is served.
    pub fn new(run_dir: &Path, mount_point: &Path) -> Self {
        let path = control::note(run_dir, std::process::id());
        Self { path, mount_point: mount_point.to_owned(), lost: Mutex::default() }
    }

    /// Gives what is lacking.
    fn write(&self, serving: &Serving) -> Vec<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut note = toml::Table::new();
        note.insert("mount_point".into(), self.mount_point.display().to_string().into());
        note.insert("pid".into(), i64::from(std::process::id()).into());
        note.insert("transport".into(), serving.to_string().into());
        note.insert("lost".into(), lost.clone().into());
        let parent = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(e) = parent.and_then(|()| std::fs::write(&self.path, note.to_string())) {
            warning!("{}: {e}; skep health will not know what this kernel lacks", self.path.display());
        }
        lost
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // Without it, health sees by the pid that the mount has ended.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension("sock"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: releases of the kernel are told apart by number, whatever a distribution puts behind it.
    #[test]
    fn hasty_kernels() {
        for hasty in ["6.19.14", "7.0.13-amd64", "7.1.0-rc3", "7", "", "next"] {
            assert!(is_hasty(hasty), "{hasty}");
        }
        for patient in ["6.16.12", "6.18.44+deb13-amd64", "7.2.13", "7.10.1", "8.0"] {
            assert!(!is_hasty(patient), "{patient}");
        }
    }
}
