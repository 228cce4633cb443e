//! Attributes: until when they are used without a question, and which answers are believed.

use super::Kernel;
use skep_client::limits::OLD_LOOK_MS;
use skep_types::{Attr, Ino, Kind, Mode};

/// What was true of a kernel when it asked something.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// Of attributes: a notification that came since is newer than the answer.
    pub(super) version: u64,
    /// A new inode with the answer's number may be one that was evicted, and told of, since.
    pub(super) evictions: u64,
    /// Of names.
    pub(super) epoch: u64,
}

/// What programs see of an inode. (Sizes are the pages' business.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    pub mode: Mode,
    pub nlink: u32,
    pub change: u64,
}

impl Seen {
    /// Of attributes as a mount, or a row, has them.
    pub fn of(attr: &Attr) -> Self {
        Self { kind: attr.kind, mode: attr.mode, nlink: attr.nlink, change: attr.change }
    }
}

/// The answer to what brings attributes.
#[derive(Debug, Clone, Copy)]
pub enum From {
    /// LOOKUP, READDIRPLUS: makes the inode if there is none.
    Entry(Asked),
    /// GETATTR, of an inode that is in use, or was evicted meanwhile.
    Inode(Asked),
    /// CREATE, MKNOD, MKDIR, LINK: has no version, and is believed whatever came since (K3).
    New,
    /// SETATTR: the same in old kernels, of an inode that is in use.
    Change,
}

/// Valid from now on for so many milliseconds.
pub(super) fn until(validity: u64, now: u64) -> u64 {
    if validity == 0 { 0 } else { now + validity }
}

impl Kernel {
    /// Attributes that are used without a question.
    pub fn valid(&self, ino: Ino, now: u64) -> Option<Seen> {
        let (seen, until) = self.inodes.get(&ino)?.seen?;
        (until >= now && until > 0).then_some(seen)
    }

    /// The thread that asked applies the answer.
    pub fn answered(&mut self, ino: Ino, attr: &Attr, from: From, validity: u64, now: u64) {
        let known = self.inodes.get(&ino).map(|inode| inode.version);
        let believed = match (known, from) {
            (None, From::Inode(_)) => return,
            (Some(version), From::Entry(asked) | From::Inode(asked)) if version > asked.version => {
                return self.looked_up(ino, from);
            }
            // Evicted since, perhaps, and told of before: it is made, but not believed (K5).
            (None, From::Entry(asked)) => {
                !self.release.counts_evictions() || asked.evictions == self.evictions
            }
            _ => true,
        };
        let revived =
            matches!(from, From::Entry(asked) if known.is_none() && asked.evictions != self.evictions);
        self.version += 1;
        self.looked_up(ino, from);
        let inode = self.inodes.entry(ino).or_default();
        inode.named |= !matches!(from, From::Inode(_));
        inode.revived_until = if revived { now + OLD_LOOK_MS } else { 0 };
        if attr.kind == Kind::File {
            inode.resize(attr.size, self.version);
        } else {
            inode.version = self.version;
        }
        inode.seen = Some((Seen::of(attr), if believed { until(validity, now) } else { 0 }));
    }

    fn looked_up(&mut self, ino: Ino, from: From) {
        if matches!(from, From::Entry(_) | From::New) {
            self.inodes.entry(ino).or_default().looks += 1;
        }
    }

    /// Are its attributes from before an eviction, and believed for the moment that they may be (promises)?
    pub fn is_revived(&self, ino: Ino, now: u64) -> bool {
        self.inodes.get(&ino).is_some_and(|inode| inode.revived_until >= now && now > 0)
    }

    /// An own change of the names in a directory: its attributes are asked for at the next look (K10). Their version does
    /// not move, so an answer to an older question makes them valid again.
    pub fn changed_dir(&mut self, dir: Ino) {
        if let Some((_, until)) = self.inodes.get_mut(&dir).and_then(|inode| inode.seen.as_mut()) {
            *until = 0;
        }
    }

    /// Likewise of what was unlinked or renamed over, whose version moves.
    pub fn unlinked(&mut self, ino: Ino) {
        self.version += 1;
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.version = self.version;
            if let Some((seen, _)) = &mut inode.seen {
                seen.nlink = seen.nlink.saturating_sub(1);
            }
        }
        self.changed_dir(ino);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Release, Told};
    use super::*;
    use skep_model::Rng;
    use skep_types::{Generation, ProjectId, Timestamp};

    const INO: Ino = Ino(7);

    fn attr(change: u64) -> Attr {
        let time = Timestamp { secs: 0, nanos: 0 };
        Attr {
            ino: INO,
            kind: Kind::Dir,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            project: ProjectId(0),
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            change,
            generation: Generation(0),
            cuts: 1,
            time_sets: 0,
            flags: 0,
        }
    }

    fn change(kernel: &Kernel, now: u64) -> Option<u64> {
        kernel.valid(INO, now).map(|seen| seen.change)
    }

    /// Goal: validity counts from the moment when a reply is applied (K1); none is none.
    #[test]
    fn validity_counts_from_the_application() {
        let mut kernel = Kernel::default();
        let asked = kernel.asks();
        kernel.answered(INO, &attr(1), From::Entry(asked), 1_000, 2_500);
        assert_eq!((change(&kernel, 3_500), change(&kernel, 3_501)), (Some(1), None));
        kernel.answered(INO, &attr(2), From::Inode(kernel.asks()), 0, 3_000);
        assert_eq!(change(&kernel, 3_000), None, "asked for each time");
    }

    /// Goal: INVAL_INODE after the question makes the answer worth nothing (K2), but not that of CREATE and its like (K3).
    #[test]
    fn a_notification_outdates_questions_that_have_a_version() {
        let mut kernel = Kernel::default();
        kernel.answered(INO, &attr(1), From::Entry(kernel.asks()), 100, 0);
        let asked = kernel.asks();
        assert_eq!(kernel.inval_inode(INO, None), Told::Done);
        assert_eq!(change(&kernel, 0), None);
        kernel.answered(INO, &attr(1), From::Entry(asked), 100, 0);
        kernel.answered(INO, &attr(1), From::Inode(asked), 100, 0);
        assert_eq!(change(&kernel, 0), None, "K2");
        kernel.answered(INO, &attr(1), From::New, 100, 0);
        assert_eq!(change(&kernel, 0), Some(1), "K3");
    }

    /// Goal: of an inode that is not there yet INVAL_INODE says ENOENT, and a late reply makes it with what it says (K4).
    #[test]
    fn an_inode_that_is_not_there_has_no_version() {
        let mut kernel = Kernel::default();
        let asked = kernel.asks();
        assert_eq!(kernel.inval_inode(INO, None), Told::Enoent);
        kernel.answered(INO, &attr(1), From::Inode(asked), 100, 0);
        assert_eq!(change(&kernel, 0), None, "nobody looks at the attributes of what is not there");
        kernel.answered(INO, &attr(1), From::Entry(asked), 100, 0);
        assert_eq!(change(&kernel, 0), Some(1));
    }

    /// Goal: an answer from before an eviction is not believed where evictions are counted, and is where not (K5).
    #[test]
    fn an_eviction_takes_the_version() {
        for (release, believed) in [(Release::Common, None), (Release::Old, Some(1))] {
            let mut kernel = Kernel::new(release);
            kernel.answered(INO, &attr(1), From::Entry(kernel.asks()), 100, 0);
            let asked = kernel.asks();
            assert_eq!(kernel.inval_inode(INO, None), Told::Done);
            // No name leads to it.
            kernel.shrink(&mut Rng::new(1));
            kernel.answered(INO, &attr(1), From::Entry(asked), 100, 0);
            assert_eq!(change(&kernel, 0), believed, "{release:?}");
        }
    }

    /// Goal: an own change drops the directory's attributes, but an answer to a question from before it brings them back,
    /// which is for the mount to prevent (K10); not so of what was unlinked.
    #[test]
    fn an_own_change_drops_attributes() {
        let mut kernel = Kernel::default();
        kernel.answered(INO, &attr(1), From::Entry(kernel.asks()), 100, 0);
        let asked = kernel.asks();
        kernel.changed_dir(INO);
        assert_eq!(change(&kernel, 0), None);
        kernel.answered(INO, &attr(1), From::Inode(asked), 100, 0);
        assert_eq!(change(&kernel, 0), Some(1));
        let asked = kernel.asks();
        kernel.unlinked(INO);
        kernel.answered(INO, &attr(1), From::Inode(asked), 100, 0);
        assert_eq!(change(&kernel, 0), None);
    }
}
