//! What a mount tells its kernel by itself.

use super::locks::Ticket;
use super::{Kernel, Release};
use crate::hub::LaneId;
use skep_types::Ino;
use std::collections::BTreeMap;

/// What a notification returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Done,
    /// It is not there.
    Enoent,
    /// It is not done before somebody else has: a page is locked, or the directory.
    Waits,
}

/// Of a thread that drops a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoticeId(u64);

#[derive(Debug)]
struct Notice {
    id: NoticeId,
    dir: Ino,
    name: Vec<u8>,
    ticket: Ticket,
}

/// Threads of a mount that drop names, each waiting for the lock of its directory, and what became of others.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: Vec<Notice>,
    done: BTreeMap<NoticeId, Told>,
    last: u64,
}

impl Kernel {
    /// INVAL_INODE: attributes first, and without a lock; then pages from a byte on (so many; 0 = to the end), of which the
    /// locked ones are waited for. Without pages: a negative offset (K9).
    pub fn inval_inode(&mut self, ino: Ino, pages: Option<(u64, u64)>) -> Told {
        self.version += 1;
        let Some(inode) = self.inodes.get_mut(&ino) else { return Told::Enoent };
        inode.version = self.version;
        if let Some((_, until)) = &mut inode.seen {
            *until = 0;
        }
        match pages {
            Some((from, len)) if !self.drop_pages(ino, from, len) => Told::Waits,
            _ => Told::Done,
        }
    }

    /// INVAL_ENTRY: waits for the lock of the directory, whether the name is there or not, but for those that look
    /// without it (K6).
    pub fn inval_entry(&self, dir: Ino, name: &[u8]) -> Told {
        let hasty = self.release == Release::Hasty;
        let unknown = !self.inodes.contains_key(&dir) || (hasty && !self.names.is_hashed(dir, name));
        if unknown { Told::Enoent } else { Told::Waits }
    }

    /// And has the lock now: the name is unhashed, and the directory's attributes go with it (K7).
    pub fn inval_entry_locked(&mut self, dir: Ino, name: &[u8]) -> Told {
        if !self.names.drop_name(dir, name) {
            return Told::Enoent;
        }
        self.changed_dir(dir);
        Told::Done
    }

    /// A thread of the mount drops a name by INVAL_ENTRY. `Err`: what it returned at once.
    pub fn notice(&mut self, dir: Ino, name: &[u8], lane: LaneId) -> Result<NoticeId, Told> {
        match self.inval_entry(dir, name) {
            Told::Waits => {
                self.notices.last += 1;
                let id = NoticeId(self.notices.last);
                let ticket = self.locks.come(dir, true, lane);
                self.notices.waiting.push(Notice { id, dir, name: name.to_vec(), ticket });
                // Nobody else can have come to the lock by this.
                self.run_notices();
                Ok(id)
            }
            told => Err(told),
        }
    }

    /// What became of it, once.
    pub fn noticed(&mut self, id: NoticeId) -> Option<Told> {
        self.notices.done.remove(&id)
    }

    /// Somebody gives the lock of a directory back: who has it now that did not have it before.
    pub fn leaves(&mut self, dir: Ino, ticket: Ticket) -> Vec<LaneId> {
        let mut next = self.locks.leave(dir, ticket);
        next.extend(self.run_notices());
        next
    }

    fn run_notices(&mut self) -> Vec<LaneId> {
        let mut next = Vec::new();
        let has_lock = |k: &Self| k.notices.waiting.iter().position(|n| k.locks.has(n.dir, n.ticket));
        while let Some(at) = has_lock(self) {
            let Notice { id, dir, name, ticket } = self.notices.waiting.remove(at);
            let told = self.inval_entry_locked(dir, &name);
            self.notices.done.insert(id, told);
            next.extend(self.locks.leave(dir, ticket));
        }
        next
    }

    /// INC_EPOCH: takes no lock (K8). `false`: not known.
    pub fn inc_epoch(&mut self) -> bool {
        if self.release.has_epoch() {
            self.names.bump();
        }
        self.release.has_epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Found, Look};
    use super::*;

    const DIR: Ino = Ino(1);
    const INO: Ino = Ino(7);

    fn with_dir(release: Release) -> Kernel {
        let mut kernel = Kernel::new(release);
        kernel.told(DIR, 0, kernel.asks());
        kernel
    }

    /// Goal: a name is unhashed under the lock, where who looks without it must not find it first; what is not hashed is
    /// ENOENT (K6), and a revalidation that is applied later revives nothing (K7).
    #[test]
    fn a_dropped_name_is_not_revived() {
        for release in Release::ALL {
            let mut kernel = with_dir(release);
            let unknown = if release == Release::Hasty { Told::Enoent } else { Told::Waits };
            assert_eq!(kernel.inval_entry(DIR, b"a"), unknown, "{release:?}");
            kernel.looked(DIR, b"a", (Some(INO), false), 100, kernel.asks(), 0);
            let Look::Known(id, _) = kernel.look(DIR, b"a", 200, false) else { panic!("{release:?}") };
            assert_eq!(kernel.inval_entry(DIR, b"a"), Told::Waits);
            let lane = LaneId::default();
            let (held, notice) =
                (kernel.locks().come(DIR, false, lane), kernel.locks().come(DIR, true, lane));
            assert!(!kernel.locks().has(DIR, notice), "somebody looks a name up");
            kernel.locks().leave(DIR, held);
            assert!(kernel.locks().has(DIR, notice));
            assert_eq!(kernel.inval_entry_locked(DIR, b"a"), Told::Done);
            assert_eq!(kernel.inval_entry_locked(DIR, b"a"), Told::Enoent);
            assert!(kernel.revalidated(id, Some(INO), 100, 200), "who asked goes on with it");
            assert_eq!(kernel.look(DIR, b"a", 200, false), Look::Unknown, "nobody else does");
        }
    }

    /// Goal: a thread of the mount drops a name when it has the lock, which goes on to who comes behind it.
    #[test]
    fn notices_wait_for_the_lock() {
        let mut kernel = with_dir(Release::Common);
        kernel.looked(DIR, b"a", (Some(INO), false), 100, kernel.asks(), 0);
        let lane = |lane| LaneId { life: 1, lane };
        let held = kernel.locks().come(DIR, true, lane(0));
        let id = kernel.notice(DIR, b"a", lane(9)).unwrap();
        assert_eq!(kernel.noticed(id), None);
        assert_eq!(kernel.look(DIR, b"a", 100, false), Look::Valid(Some(INO)));
        let behind = kernel.locks().come(DIR, true, lane(1));
        assert!(kernel.leaves(DIR, held).contains(&lane(1)));
        assert_eq!((kernel.noticed(id), kernel.noticed(id)), (Some(Told::Done), None));
        assert!(kernel.locks().has(DIR, behind));
        assert_eq!(kernel.look(DIR, b"a", 100, false), Look::Unknown);
        assert!(kernel.leaves(DIR, behind).is_empty());
        let id = kernel.notice(DIR, b"a", lane(9)).unwrap();
        assert_eq!(kernel.noticed(id), Some(Told::Enoent));
        assert_eq!(kernel.notice(Ino(99), b"a", lane(9)), Err(Told::Enoent));
    }

    /// Goal: attributes go while a page is locked, which only its dropping waits for; without pages nothing does (K9).
    #[test]
    fn attributes_go_before_pages() {
        let mut kernel = Kernel::default();
        kernel.told(INO, 10, kernel.asks());
        assert_eq!(kernel.read(INO, 0, 0), Found::Nothing);
        let asked = kernel.asks();
        assert_eq!(kernel.inval_inode(INO, None), Told::Done);
        assert_eq!(kernel.inval_inode(INO, Some((0, 0))), Told::Waits);
        assert!(!kernel.told(INO, 20, asked));
        kernel.filled(INO, 0, Some(b"x"), kernel.asks());
        assert_eq!(kernel.inval_inode(INO, Some((0, 0))), Told::Done);
    }

    /// Goal: after a bump a name goes at its next use without a question, with the names and what is mounted below it;
    /// what is looked up after it stays (K8).
    #[test]
    fn a_bump_drops_names_when_they_are_used() {
        let mut kernel = with_dir(Release::Common);
        let (sub, file) = (Ino(8), Ino(9));
        kernel.looked(DIR, b"sub", (Some(sub), true), 1_000, kernel.asks(), 0);
        kernel.looked(sub, b"file", (Some(file), false), 1_000, kernel.asks(), 0);
        let before = kernel.asks();
        kernel.mounts(DIR, b"sub");
        assert!(kernel.inc_epoch());
        assert_eq!((kernel.detached(), kernel.look(DIR, b"sub", 1, false)), (0, Look::Unknown));
        assert_eq!(kernel.detached(), 1, "the name is there, and what was mounted on it is not");
        assert_eq!(kernel.look(sub, b"file", 1, false), Look::Unknown, "it was below");
        kernel.looked(DIR, b"sub", (Some(sub), true), 1_000, before, 1);
        assert_eq!(kernel.look(DIR, b"sub", 1, false), Look::Unknown, "asked for before the bump");
        kernel.looked(DIR, b"sub", (Some(sub), true), 1_000, kernel.asks(), 1);
        assert_eq!(kernel.look(DIR, b"sub", 1, false), Look::Valid(Some(sub)));
        assert!(!Kernel::new(Release::Old).inc_epoch());
    }

    /// Goal: the end of the mount takes nothing that is valid (K14).
    #[test]
    fn what_is_valid_outlives_the_mount() {
        let mut kernel = with_dir(Release::Common);
        kernel.looked(DIR, b"a", (Some(INO), false), 100, kernel.asks(), 0);
        kernel.ends(LaneId::default());
        assert!(kernel.has_ended());
        assert_eq!(kernel.look(DIR, b"a", 100, false), Look::Valid(Some(INO)));
        assert!(matches!(kernel.look(DIR, b"a", 101, false), Look::Known(..)));
    }
}
