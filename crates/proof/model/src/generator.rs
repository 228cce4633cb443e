//! Random histories of a seed.
//!
//! The generator is blind: it does not know what its operations led to, so several of them can run
//! against one file system at once (several simulated clients, or several processes on several mounts),
//! and a crash in between does not put it out of step. What makes histories interesting is in the
//! choices: few names, few handles, offsets at the borders where implementations err.
//!
//! A history is reproduced by its seed and [`Profile`] alone:
//!
//! ```
//! use skep_model::{Call, Fs, Generator, Profile};
//! use skep_types::{Ino, Timestamp};
//!
//! let mut fs = Fs::new(0o755, 0, 0, Timestamp::default());
//! let mut generator = Generator::new(7, Profile::default());
//! for number in 2..100 {
//!     let op = generator.next_op();
//!     let now = Timestamp { secs: number, nanos: 0 };
//!     let outcome = fs.apply(&op, Call { now, ino: Ino(number as u64), uid: 0, gid: 0 });
//!     // ... carry out `op` elsewhere too, and compare the outcomes.
//! }
//! ```

use crate::acl::ACLS;
use crate::fs::Handle;
use crate::lock::{LOCK_END, LockSpace};
use crate::op::{
    At, DEPTH_MAX, Fill, NAMES, NAMES_OF_DIRS, Op, OpenHow, Path, XATTR_NAMES, XATTR_NAMES_OF_ROOT,
};
use crate::rename::RenameHow;
use crate::rng::Rng;
use crate::xattr::XattrHow;
use alloc::vec::Vec;
use skep_types::limits::{
    CHUNK_DEFAULT, CHUNK_MIN, FILE_SIZE_MAX, INLINE_DEFAULT, PIECE_SIZE, XATTR_VALUE_MAX,
};
use skep_types::{Kind, Mode, SetTime, Timestamp};

/// What the file system under test can take, and who the driver is.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Highest end of a file.
    pub size_max: u64,
    /// Longest write and read.
    pub transfer_max: u32,
    /// Longest value of an extended attribute that is accepted. 0: none are used.
    pub xattr_value_max: u32,
    /// How many different extended attributes; with [`XATTR_NAMES`] of the longest values the limit
    /// of one inode is reached.
    pub xattr_names: u8,
    /// The driver may do everything: chown, device nodes, keep suid and sgid. Without it every change
    /// of data has `kill`, and modes keep the owner's bits.
    pub privileged: bool,
    /// Number of the first handle. Generators of one file system take disjoint ranges.
    pub first_handle: u32,
    /// How many handles.
    pub handles: u32,
    /// Longest path, at most [`DEPTH_MAX`].
    pub depth: u8,
    /// System calls that not every file system has.
    pub calls: Calls,
}

/// System calls that not every file system, or driver, has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calls {
    /// `O_TMPFILE`, and names given to such files.
    pub temp: bool,
    /// `copy_file_range`.
    pub copy: bool,
    /// `fallocate(ZERO_RANGE)`.
    pub zero: bool,
    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub seek: bool,
    /// Access control lists.
    pub acl: bool,
    pub lock: bool,
    /// `trusted.` and `security.` attributes, of a privileged driver.
    pub xattrs_of_root: bool,
}

impl Calls {
    pub const ALL: Self =
        Self { temp: true, copy: true, zero: true, seek: true, acl: true, lock: true, xattrs_of_root: true };
    /// None of them.
    pub const NONE: Self = Self {
        temp: false,
        copy: false,
        zero: false,
        seek: false,
        acl: false,
        lock: false,
        xattrs_of_root: false,
    };
}

impl Default for Profile {
    /// All that Skep promises.
    fn default() -> Self {
        Self {
            size_max: FILE_SIZE_MAX,
            transfer_max: 256 * 1024,
            xattr_value_max: XATTR_VALUE_MAX as u32,
            xattr_names: XATTR_NAMES,
            privileged: true,
            first_handle: 0,
            handles: 6,
            depth: DEPTH_MAX as u8,
            calls: Calls::ALL,
        }
    }
}

/// Owners that `Chown` chooses from. A driver should be a member of all these groups.
const OWNERS: [u32; 3] = [0, 1000, 1001];
/// Sticky never together with writable by others: there Linux refuses `O_CREAT` on other people's files
/// even to root (`fs.protected_regular`), which is no matter of the file system.
const MODES: [Mode; 9] = [0o644, 0o600, 0o755, 0o4755, 0o2755, 0o6777, 0o2744, 0o1755, 0];
const DIR_MODES: [Mode; 5] = [0o755, 0o700, 0o1755, 0o2775, 0o7755];
/// Where implementations change their ways: page, inline limit, block of checksums, chunk, stripe.
const BORDERS: [u64; 6] = [
    4096,
    INLINE_DEFAULT as u64,
    CHUNK_MIN as u64,
    2 * CHUNK_MIN as u64,
    CHUNK_DEFAULT as u64,
    4 * CHUNK_DEFAULT as u64,
];
/// Borders of sparse files: piece of a chunk file, ext4's end, the sign bit.
const FAR_BORDERS: [u64; 5] = [1 << 31, 1 << 32, PIECE_SIZE, 4 * PIECE_SIZE, 1 << 62];

/// Paths of each sort that are gone back to.
const RECENT_MAX: usize = 6;

type Make = fn(&mut Generator) -> Op;

/// Weight of each kind of operation.
const WEIGHTS: [(u32, Make); 29] = [
    (14, Generator::open),
    (5, Generator::close),
    (11, Generator::mkdir),
    (3, Generator::mknod),
    (3, Generator::symlink),
    (2, Generator::readlink),
    (6, Generator::link),
    (7, Generator::unlink),
    (3, Generator::rmdir),
    (11, Generator::rename),
    (3, Generator::list),
    (5, Generator::stat),
    (4, Generator::chmod),
    (3, Generator::chown),
    (3, Generator::utimens),
    (6, Generator::truncate),
    (16, Generator::write),
    (9, Generator::read),
    (3, Generator::punch),
    (2, Generator::allocate),
    (2, Generator::fsync),
    (9, Generator::xattr),
    (3, Generator::open_temp),
    (2, Generator::link_handle),
    (5, Generator::copy),
    (3, Generator::zero),
    (4, Generator::seek),
    (5, Generator::acl),
    (6, Generator::lock),
];

/// Makes the operations of one history.
#[derive(Debug, Clone)]
pub struct Generator {
    rng: Rng,
    profile: Profile,
    made: u32,
    /// Where directories were made last, as far as a blind generator can tell.
    dirs: Recent,
    /// Where anything else was made last.
    files: Recent,
    /// Handles that it believes to be open.
    believed_open: Vec<u32>,
    /// The newest file without a name.
    temp: Option<Handle>,
}

/// Paths gone back to, so that things happen to what is there. Whether it is there is not known.
#[derive(Debug, Clone, Default)]
struct Recent {
    paths: [Option<Path>; RECENT_MAX],
    next: usize,
}

impl Recent {
    fn remember(&mut self, path: Path) {
        self.paths[self.next % RECENT_MAX] = Some(path);
        self.next += 1;
    }

    fn pick(&self, rng: &mut Rng) -> Option<Path> {
        rng.pick(&self.paths)
    }
}

impl Generator {
    /// The history of `seed` within `profile`.
    pub fn new(seed: u64, profile: Profile) -> Self {
        // Neighbouring seeds must not be neighbouring states.
        let rng = Rng::new(Rng::new(seed).next_u64());
        let (dirs, files) = (Recent::default(), Recent::default());
        Self { rng, profile, made: 0, dirs, files, believed_open: Vec::new(), temp: None }
    }

    /// The next operation. There is always one.
    pub fn next_op(&mut self) -> Op {
        let total = WEIGHTS.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut at = self.rng.below(total) as u32;
        for (weight, make) in WEIGHTS {
            if at < weight {
                self.made += 1;
                return make(self);
            }
            at -= weight;
        }
        self.stat()
    }

    fn open(&mut self) -> Op {
        // Every handle in use: mostly room is made instead.
        if self.believed_open.len() >= self.profile.handles as usize && self.rng.percent(90) {
            return self.close();
        }
        let create = self.rng.percent(85);
        let path = if create { self.new_path(false) } else { self.path(false) };
        let both = (true, true);
        let (read, write) = self.rng.pick(&[both, both, both, both, (true, false), (false, true)]);
        let how = OpenHow {
            read,
            write,
            append: write && self.rng.percent(15),
            truncate: self.rng.percent(15),
            create,
            exclusive: create && self.rng.percent(15),
        };
        let handle = self.any_handle(false);
        if !self.believed_open.contains(&handle.0) {
            self.believed_open.push(handle.0);
        }
        Op::Open { path, handle, how, mode: self.mode(&MODES), kill: self.kill() }
    }

    fn close(&mut self) -> Op {
        let handle = self.handle();
        self.believed_open.retain(|open| *open != handle.0);
        Op::Close { handle }
    }

    fn mkdir(&mut self) -> Op {
        Op::Mkdir { path: self.new_path(true), mode: self.mode(&DIR_MODES) }
    }

    fn mknod(&mut self) -> Op {
        let kinds = [Kind::Fifo, Kind::Socket, Kind::File, Kind::CharDev, Kind::BlockDev];
        let kind = self.rng.pick(if self.profile.privileged { &kinds } else { &kinds[..3] });
        let rdev =
            if matches!(kind, Kind::CharDev | Kind::BlockDev) { self.rng.pick(&[0x103, 0x700]) } else { 0 };
        Op::Mknod { path: self.new_path(false), kind, mode: self.mode(&MODES), rdev }
    }

    fn symlink(&mut self) -> Op {
        let len = self.rng.pick(&[0, 1, 6, 7, 20, 59, 60, 255, 1_000, 4_094, 4_095, 4_096]);
        Op::Symlink { path: self.new_path(false), len }
    }

    fn readlink(&mut self) -> Op {
        Op::Readlink { path: self.path(false) }
    }

    fn link(&mut self) -> Op {
        Op::Link { from: self.path(false), to: self.new_path(false) }
    }

    fn unlink(&mut self) -> Op {
        Op::Unlink { path: self.path(false) }
    }

    fn rmdir(&mut self) -> Op {
        Op::Rmdir { path: self.path(true) }
    }

    fn rename(&mut self) -> Op {
        use RenameHow::{Exchange, NoReplace, Replace};
        let how = self.rng.pick(&[Replace, Replace, Replace, Replace, NoReplace, Exchange]);
        let dir = self.rng.percent(40);
        // Now and then a file over a directory, or the other way round.
        let to_dir = dir != self.rng.percent(10);
        let from = self.path(dir);
        let to = if self.rng.percent(60) { self.new_path(to_dir) } else { self.path(to_dir) };
        Op::Rename { from, to, how }
    }

    fn list(&mut self) -> Op {
        let path = if self.rng.percent(20) { Path::ROOT } else { self.path(true) };
        Op::List { path }
    }

    fn stat(&mut self) -> Op {
        Op::Stat { at: self.at() }
    }

    fn chmod(&mut self) -> Op {
        Op::Chmod { at: self.at(), mode: self.mode(&MODES) }
    }

    fn chown(&mut self) -> Op {
        if !self.profile.privileged {
            return self.chmod();
        }
        let (uid, gid) = self.rng.pick(&[(true, true), (true, false), (false, true)]);
        let (new_uid, new_gid) = (self.rng.pick(&OWNERS), self.rng.pick(&OWNERS));
        Op::Chown { at: self.at(), uid: uid.then_some(new_uid), gid: gid.then_some(new_gid) }
    }

    fn utimens(&mut self) -> Op {
        Op::Utimens { at: self.at(), atime: self.time(), mtime: self.time() }
    }

    fn truncate(&mut self) -> Op {
        Op::Truncate { at: self.at(), size: self.offset(), kill: self.kill() }
    }

    fn write(&mut self) -> Op {
        let (offset, len) = self.range();
        // A tag of zero writes zeros: a page that is there and one that is not must look alike.
        let tag = if self.rng.percent(4) { 0 } else { self.made };
        Op::Write { handle: self.handle(), offset, fill: Fill { tag, len }, kill: self.kill() }
    }

    fn read(&mut self) -> Op {
        let (offset, len) = self.range();
        Op::Read { handle: self.handle(), offset, len }
    }

    fn punch(&mut self) -> Op {
        let (offset, len) = self.range();
        let len = if self.rng.percent(20) { self.offset().min(FILE_SIZE_MAX - offset) } else { len.into() };
        Op::Punch { handle: self.handle(), offset, len, kill: self.kill() }
    }

    fn allocate(&mut self) -> Op {
        let (offset, len) = self.range();
        // Space is really taken: near the start only.
        let offset = offset % (2 * u64::from(CHUNK_DEFAULT));
        let keep_size = self.rng.percent(50);
        Op::Allocate { handle: self.handle(), offset, len: len.into(), keep_size, kill: self.kill() }
    }

    fn fsync(&mut self) -> Op {
        Op::Fsync { handle: self.handle() }
    }

    fn xattr(&mut self) -> Op {
        if self.profile.xattr_value_max == 0 {
            return self.stat();
        }
        // Mostly on one place, so that the limit of an inode is reached.
        let at = if self.rng.percent(45) { At::Path(Path::ROOT) } else { self.at() };
        let names = u64::from(self.profile.xattr_names);
        let of_root = self.profile.calls.xattrs_of_root && self.profile.privileged;
        let name = match self.rng.below(50) {
            0 => u8::MAX,
            1..=5 if of_root => XATTR_NAMES + self.rng.below(XATTR_NAMES_OF_ROOT.len() as u64) as u8,
            _ => self.rng.below(names) as u8,
        };
        match self.rng.below(20) {
            0..=12 => {
                let max = self.profile.xattr_value_max;
                let len = match at {
                    At::Path(path) if path == Path::ROOT && self.rng.percent(60) => max,
                    _ => self.rng.pick(&[0, 1, 20, 100.min(max), max - 1, max, XATTR_VALUE_MAX as u32 + 1]),
                };
                use XattrHow::{Create, Replace, Set};
                let how = self.rng.pick(&[Set, Set, Set, Set, Create, Replace]);
                Op::Setxattr { at, name, value: Fill { tag: self.made, len }, how }
            }
            13..=16 => Op::Getxattr { at, name },
            17 | 18 => Op::Listxattr { at },
            _ => Op::Removexattr { at, name },
        }
    }

    /// Where something may be: mostly where something was made.
    fn path(&mut self, dir: bool) -> Path {
        if self.rng.percent(85) {
            let recent = if dir { &self.dirs } else { &self.files };
            if let Some(path) = recent.pick(&mut self.rng) {
                return path;
            }
        }
        self.any_path(dir)
    }

    /// Where something is to be made: mostly in the root or in a directory made before.
    fn new_path(&mut self, dir: bool) -> Path {
        let parent = match self.rng.below(10) {
            0..=3 => Some(Path::ROOT),
            4..=8 => self.dirs.pick(&mut self.rng),
            _ => None,
        };
        let path = match parent {
            Some(parent) => {
                let index = self.name(dir);
                parent.below(index, self.profile.depth)
            }
            None => self.any_path(dir),
        };
        if dir {
            self.dirs.remember(path)
        } else {
            self.files.remember(path)
        }
        path
    }

    /// Any path of few names: short ones more often.
    fn any_path(&mut self, dir: bool) -> Path {
        let depth = self.rng.pick(&[1, 1, 1, 2, 2, 2, 3, 3, 4, 5]).min(self.profile.depth).max(1);
        let mut path = Path::ROOT;
        for at in 1..=depth {
            let index = self.name(at < depth || dir);
            path = path.below(index, depth);
        }
        path
    }

    /// A name by number: of a directory or of anything else, now and then the other way round.
    fn name(&mut self, dir: bool) -> u8 {
        let like_dir = dir != self.rng.percent(5);
        let (first, end) = if like_dir { (0, NAMES_OF_DIRS) } else { (NAMES_OF_DIRS, NAMES.len() as u8) };
        first + self.rng.below(u64::from(end - first)) as u8
    }

    fn at(&mut self) -> At {
        match self.rng.below(20) {
            0..=6 => At::Handle(self.handle()),
            7 => At::Path(Path::ROOT),
            8..=10 => At::Path(self.path(true)),
            _ => At::Path(self.path(false)),
        }
    }

    /// A handle to use: mostly one that may be open.
    fn handle(&mut self) -> Handle {
        self.any_handle(true)
    }

    fn any_handle(&mut self, open: bool) -> Handle {
        let range = self.profile.first_handle..self.profile.first_handle + self.profile.handles;
        let wanted: Vec<u32> =
            range.clone().filter(|handle| self.believed_open.contains(handle) == open).collect();
        if wanted.is_empty() || self.rng.percent(10) {
            return Handle(range.start + self.rng.below(u64::from(self.profile.handles)) as u32);
        }
        Handle(self.rng.pick(&wanted))
    }

    fn kill(&mut self) -> bool {
        !self.profile.privileged || self.rng.percent(30)
    }

    fn mode(&mut self, modes: &[Mode]) -> Mode {
        let mode = self.rng.pick(modes);
        if self.profile.privileged { mode } else { mode | 0o700 }
    }

    fn time(&mut self) -> Option<SetTime> {
        match self.rng.below(4) {
            0 => None,
            1 => Some(SetTime::Now),
            _ => Some(SetTime::At(Timestamp {
                secs: self.rng.pick(&[0, 1, 1_000_000_000, 2_147_483_648, 4_000_000_000]),
                nanos: self.rng.pick(&[0, 1, 500_000_000, 999_999_999]),
            })),
        }
    }

    /// An offset or size: at a border, one beside it, anywhere near the start, or far out.
    fn offset(&mut self) -> u64 {
        let offset = match self.rng.below(20) {
            0..=1 => 0,
            2..=9 => self.near(&BORDERS),
            10..=16 => self.rng.below(24 * 1024),
            17..=18 => self.rng.below(u64::from(3 * CHUNK_DEFAULT)),
            _ if self.rng.percent(50) => self.near(&FAR_BORDERS),
            _ => self.profile.size_max - self.rng.pick(&[0, 1, 2, 100, 5_000]),
        };
        offset.min(self.profile.size_max)
    }

    fn near(&mut self, borders: &[u64]) -> u64 {
        let border = self.rng.pick(borders);
        border + self.rng.pick(&[0, 0, 1, 2, 100]) - self.rng.pick(&[0, 0, 1, 2, 100])
    }

    /// Offset and length that end within the highest size, save for the case that must be refused.
    fn range(&mut self) -> (u64, u32) {
        let offset = self.offset();
        let len = match self.rng.below(12) {
            0 => 0,
            1 => 1,
            2..=6 => 1 + self.rng.below(6_000) as u32,
            7..=9 => self.near(&BORDERS[..3]) as u32,
            10 => self.rng.below(60_000) as u32,
            _ => self.rng.below(u64::from(self.profile.transfer_max)) as u32,
        };
        let room = self.profile.size_max - offset;
        let beyond = self.profile.size_max == FILE_SIZE_MAX && self.rng.percent(20);
        let len = len.min(self.profile.transfer_max);
        (offset, if beyond { len } else { u64::from(len).min(room) as u32 })
    }
}

mod second;

#[cfg(test)]
mod tests;
