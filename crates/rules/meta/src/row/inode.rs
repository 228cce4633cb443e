//! The inode row.

use skep_types::codec::Bytes;
use skep_types::{Attr, Generation, Ino, Kind, Layout, Mode, Policy, ProjectId, Timestamp, record};

/// The layout wish was set on this very inode, not inherited.
pub const POLICY_IS_OWN: u32 = 1;
/// It has an access ACL, as an extended attribute.
pub const HAS_ACCESS_ACL: u32 = 1 << 1;
/// It has a default ACL.
pub const HAS_DEFAULT_ACL: u32 = 1 << 2;
/// It has `security.capability`.
pub const HAS_CAPABILITY: u32 = 1 << 3;
/// It was made without a name (O_TMPFILE) and may still get its first one.
pub const IS_TEMP: u32 = 1 << 4;
/// Its change time is one that was given, not that of a change.
pub const MTIME_GIVEN: u32 = 1 << 5;
/// Flag of a directory: each one that is made in it gets a shard of its own. Those do not inherit it.
pub const SPREADS: u32 = 1 << 6;
/// Somebody may hold it: it is as its create made it, and its mount may know more. Bit 7 is kept for a later use.
pub const MAY_BE_HELD: u32 = 1 << 8;
/// Two flags on one bit would take a default ACL for a wish to spread.
const _: () = {
    let flags = [
        POLICY_IS_OWN,
        HAS_ACCESS_ACL,
        HAS_DEFAULT_ACL,
        HAS_CAPABILITY,
        IS_TEMP,
        MTIME_GIVEN,
        SPREADS,
        MAY_BE_HELD,
    ];
    let (mut seen, mut at) = (0, 0);
    while at < flags.len() {
        assert!(seen & flags[at] == 0);
        seen |= flags[at];
        at += 1;
    }
};
/// Seconds that a client's clock may be ahead of the server's before the server does not believe it, and that a
/// change time may lie in the server's future before a write replaces it.
pub const AHEAD_MAX_SECS: i64 = 60;

record! {
    /// A name that leads to an inode: of a directory its parent, of anything else one of many.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct LinkRef {
        /// The directory.
        pub parent: Ino,
        /// The entry in it (0: the entry is on another shard).
        pub cookie: u64,
    }
}

record! {
    /// Everything about an inode but its names' text, its content and its extended attributes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Inode {
        pub kind: Kind,
        /// Permission bits.
        pub mode: Mode,
        pub uid: u32,
        pub gid: u32,
        /// Device number.
        pub rdev: u32,
        /// Names (a directory: 2 + sub-directories). 0 = removed, kept while open.
        pub nlink: u32,
        pub size: u64,
        /// 512-byte blocks in chunk files, as last committed.
        pub blocks: u64,
        /// Last access.
        pub atime: Timestamp,
        /// Last change of content.
        pub mtime: Timestamp,
        /// Last change.
        pub ctime: Timestamp,
        /// Birth.
        pub btime: Timestamp,
        /// Moves with every change.
        pub change: u64,
        /// How often it was cut or set to a size, and all targets know: see [`Attr::cuts`].
        pub cuts: u64,
        /// How often its change time was given.
        pub time_sets: u64,
        /// Moves with every change of inline content.
        pub inline_version: u64,
        /// Bytes of the inline row (the rest up to `size` is zeros).
        pub inline_len: u32,
        /// Bytes of all extended attributes, names included.
        pub xattr_bytes: u32,
        /// Feature flags.
        pub flags: u32,
        pub project: ProjectId,
        /// Where its chunks are.
        pub layout: Layout,
        /// The generation that the next growth gets; never one twice.
        pub next_generation: Generation,
        /// Layout wish.
        pub policy: Option<Policy>,
        /// Entries of a directory.
        pub entries: u64,
        /// Names that lead here.
        pub links: alloc::vec::Vec<LinkRef>,
        /// What a symbolic link points to.
        pub target: Bytes,
    }
}

fn horizon(at: Timestamp) -> Timestamp {
    Timestamp { secs: at.secs.saturating_add(AHEAD_MAX_SECS), ..at }
}

/// A time by a client's clock, as far as it is believed at `at` by the server's.
pub fn believed(time: Timestamp, at: Timestamp) -> Timestamp {
    if time > horizon(at) { at } else { time }
}

impl Inode {
    /// A new one with the given owner, no name yet, born at `at`.
    pub fn new(kind: Kind, mode: Mode, uid: u32, gid: u32, at: Timestamp) -> Self {
        Self {
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            rdev: 0,
            nlink: if kind == Kind::Dir { 2 } else { 1 },
            size: 0,
            blocks: 0,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            change: 1,
            cuts: 1,
            time_sets: 0,
            inline_version: 0,
            inline_len: 0,
            xattr_bytes: 0,
            flags: 0,
            project: ProjectId(0),
            layout: Layout::default(),
            next_generation: Generation(1),
            policy: None,
            entries: 0,
            links: alloc::vec::Vec::new(),
            target: Bytes::default(),
        }
    }

    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// The directory that holds it (or one of its names).
    pub fn parent(&self) -> Ino {
        self.links.first().map_or(Ino(0), |link| link.parent)
    }

    /// The directory whose lease covers the attributes, if one does: on this shard, and the only one that names it.
    pub fn covering(&self) -> Option<Ino> {
        let [link] = &self.links[..] else { return None };
        (!self.is_dir() && self.nlink == 1 && link.cookie != 0).then_some(link.parent)
    }

    /// A sub-directory more.
    pub fn enter(&mut self) {
        self.nlink = self.nlink.saturating_add(1);
    }

    /// A sub-directory less.
    pub fn leave(&mut self) {
        self.nlink = self.nlink.saturating_sub(1);
    }

    /// The inode changed, its content did not. Its change time never falls, whatever clocks do.
    pub fn touch(&mut self, at: Timestamp) {
        self.ctime = self.ctime.max(at);
        self.change += 1;
    }

    /// Content (of a directory: its entries) changed.
    pub fn touch_content(&mut self, at: Timestamp) {
        self.set_mtime(at);
        self.touch(at);
    }

    /// The content changed at `time`.
    pub fn set_mtime(&mut self, time: Timestamp) {
        self.mtime = time;
        self.flags &= !MTIME_GIVEN;
    }

    /// The time of the last change is `time`, as a program wishes.
    pub fn give_mtime(&mut self, time: Timestamp) {
        self.mtime = time;
        self.flags |= MTIME_GIVEN;
        self.time_sets += 1;
    }

    /// It was written, nobody knows when: a time that was given may be newer, and stays. So does one that is, by a clock
    /// that was set back.
    pub fn was_written(&mut self, at: Timestamp) {
        if self.flags & MTIME_GIVEN == 0 && at > self.mtime {
            self.set_mtime(at);
        }
        self.touch(at);
    }

    /// A client tells at `at` that it wrote at `time` by its own clock, when it knew of `time_sets` given times.
    /// Clients tell in any order, so the newest write counts.
    pub fn wrote(&mut self, time: Timestamp, time_sets: u64, at: Timestamp) {
        let time = believed(time, at);
        self.touch(at.max(time));
        let given = self.flags & MTIME_GIVEN != 0;
        if given && time_sets < self.time_sets {
            return;
        }
        if given || self.mtime > horizon(at) || time > self.mtime {
            self.set_mtime(time);
        }
    }

    /// What Linux does to suid and sgid when an ordinary user writes.
    pub fn kill_suidgid(&mut self) -> bool {
        let before = self.mode;
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 {
            self.mode &= !0o2000;
        }
        before != self.mode
    }

    fn attr_flags(&self) -> u32 {
        let given = if self.flags & MTIME_GIVEN != 0 { Attr::MTIME_GIVEN } else { 0 };
        let plain = Attr::NO_ACL | Attr::NO_CAPABILITY | Attr::NO_OTHER_XATTR;
        given | if self.xattr_bytes == 0 { plain } else { 0 }
    }

    /// As programs see it.
    pub fn attr(&self, ino: Ino) -> Attr {
        let inline = self.layout.is_inline();
        Attr {
            ino,
            kind: self.kind,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            project: self.project,
            rdev: self.rdev,
            size: self.size,
            blocks: if inline { u64::from(self.inline_len).div_ceil(512) } else { self.blocks },
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            change: self.change,
            generation: self.layout.generation,
            cuts: self.cuts,
            time_sets: self.time_sets,
            flags: self.attr_flags(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a write that is found when nobody tells of it any more takes no time back: not by a clock that was set back, nor
    /// one that was given.
    #[test]
    fn a_write_that_is_found_takes_no_time_back() {
        let at = |secs| Timestamp { secs, nanos: 0 };
        let mut inode = Inode::new(Kind::File, Mode::default(), 0, 0, at(100));
        inode.was_written(at(110));
        assert_eq!((inode.mtime, inode.ctime), (at(110), at(110)));
        inode.was_written(at(90));
        assert_eq!((inode.mtime, inode.ctime), (at(110), at(110)));
        inode.give_mtime(at(50));
        inode.was_written(at(120));
        assert_eq!((inode.mtime, inode.ctime), (at(50), at(120)));
    }
}
