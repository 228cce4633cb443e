//! A small model of the kernel above a client: names with their validity, attributes with their versions, pages, locks of
//! directories, and what notifications do to all of them. It keeps what it is told, and nobody sees when it does so: a
//! reply is applied by the thread that asked, when that runs again. Facts are numbered as in `docs/design/leases.md`.

mod attributes;
mod locks;
mod names;
mod pages;
mod told;

pub use attributes::{Asked, From, Seen};
pub use locks::Ticket;
pub use names::Look;
pub use pages::{Found, PAGE};
pub use told::{NoticeId, Told};

use crate::hub::{HubRef, LaneId};
use locks::Locks;
use names::Names;
use pages::{Late, Page};
use skep_model::Rng;
use skep_types::{Ino, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use told::Notices;

/// Which of the kernels that behave differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// 6.1 to 6.12: knows no epoch, and does not count evictions.
    Old,
    /// 6.16 to 6.18.
    #[default]
    Common,
    /// 6.19 to 7.1: looks for the name of INVAL_ENTRY without the lock of its directory.
    Hasty,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Old, Self::Common, Self::Hasty];

    fn counts_evictions(self) -> bool {
        self != Self::Old
    }

    fn has_epoch(self) -> bool {
        self != Self::Old
    }
}

/// What it has of an inode.
#[derive(Debug, Default)]
struct Inode {
    size: u64,
    /// Time of the last change, where it is compared.
    mtime: Option<Timestamp>,
    /// Moves whenever the attributes are set, and when a notification drops them: an answer to an older question is not
    /// believed.
    version: u64,
    /// When an answer, or a write, moved it last.
    answered: u64,
    /// Attributes, and until when they are used without a question; 0 = no longer.
    seen: Option<(Seen, u64)>,
    /// It came by a name, not only by an open file.
    named: bool,
    /// Look-ups in answers that were applied; FORGET gives them back.
    looks: u64,
    /// Its attributes are from before an eviction, and may be believed until then all the same (K5).
    revived_until: u64,
    pages: BTreeMap<u64, Page>,
}

#[derive(Debug, Default)]
pub struct Kernel {
    release: Release,
    inodes: BTreeMap<Ino, Inode>,
    /// Of all inodes' versions the newest.
    version: u64,
    /// Inodes that were evicted.
    evictions: u64,
    names: Names,
    locks: Locks,
    late: Vec<Late>,
    /// A program has this one open.
    held: Option<Ino>,
    /// Look-ups that its mount is to hear of: they are forgotten.
    forgets: Vec<(Ino, u64)>,
    /// Names that its programs are about to remove or rename.
    changing: BTreeSet<(Ino, Vec<u8>)>,
    notices: Notices,
    /// Its mount is gone: whoever asks hears so.
    ended: bool,
}

impl Kernel {
    /// Of that release.
    pub fn new(release: Release) -> Self {
        Self { release, ..Self::default() }
    }

    /// For a question whose answer has attributes, or is a name.
    pub fn asks(&self) -> Asked {
        Asked { version: self.version, evictions: self.evictions, epoch: self.names.epoch() }
    }

    /// The mount has ended; what is valid goes on being used (K14). Only this lane's program lives on.
    pub fn ends(&mut self, survivor: LaneId) {
        self.ended = true;
        self.notices = Notices::default();
        self.locks.keep(survivor);
    }

    /// Has its mount ended?
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Memory is short: some names go, and inodes that nothing leads to any more (K5).
    pub fn shrink(&mut self, rng: &mut Rng) {
        self.names.shrink(rng);
        let (names, forgets, held) = (&self.names, &mut self.forgets, self.held);
        let mut counted = 0;
        self.inodes.retain(|ino, inode| {
            let stays = !inode.named || !inode.pages.is_empty() || names.lead_to(*ino);
            let stays = stays || *ino == Ino::ROOT || Some(*ino) == held;
            if !stays {
                forgets.push((*ino, inode.looks));
                // What it takes for one without names is not counted.
                counted += u64::from(inode.seen.is_none_or(|(seen, _)| seen.nlink > 0));
            }
            stays
        });
        self.evictions += counted;
    }

    /// A program's call that removes or renames these names begins, or ends. (One at a time: under the lock of the directory.)
    pub fn changes(&mut self, dir: Ino, names: &[&[u8]], begins: bool) {
        for name in names {
            match begins {
                true => self.changing.insert((dir, name.to_vec())),
                false => self.changing.remove(&(dir, name.to_vec())),
            };
        }
    }

    /// Is one under way?
    pub fn is_changing(&self, dir: Ino, name: &[u8]) -> bool {
        self.changing.contains(&(dir, name.to_vec()))
    }

    /// A program holds this one open, and none else.
    pub fn hold(&mut self, ino: Option<Ino>) {
        self.held = ino;
    }

    /// An answer that was not used counted as a look-up all the same.
    pub fn forgets(&mut self, ino: Ino) {
        self.forgets.push((ino, 1));
    }

    /// What its mount is to hear of look-ups.
    pub fn take_forgets(&mut self) -> Vec<(Ino, u64)> {
        std::mem::take(&mut self.forgets)
    }

    /// The machine has slept: what the mount has it drop by its clocks within a moment (promises) is dropped at once here.
    pub fn slept(&mut self) {
        for (_, until) in self.inodes.values_mut().filter_map(|inode| inode.seen.as_mut()) {
            *until = 0;
        }
        self.names.slept();
    }

    /// Is something mounted on a name?
    pub fn has_mounts(&self) -> bool {
        self.names.has_mounts()
    }

    /// How the lock of a directory comes to somebody.
    pub fn locks(&mut self) -> &mut Locks {
        &mut self.locks
    }
}

/// The kernel of a client's life.
pub fn kernel<R>(hub: &HubRef, life: u32, f: impl FnOnce(&mut Kernel) -> R) -> R {
    let hub = &mut *hub.borrow_mut();
    let release = hub.hosts.release(crate::hub::Hub::host_of(life));
    f(hub.kernels.entry(life).or_insert_with(|| Kernel::new(release)))
}
