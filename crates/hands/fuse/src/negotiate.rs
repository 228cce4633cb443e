//! INIT: which protocol, limits and features the two sides agree on.

use core::ops::{BitAnd, BitOr, Not};

use zerocopy::{FromZeros, IntoBytes};

use crate::abi::init::{INIT_IN_SHORT, InitIn, InitOut};
use crate::abi::{MAJOR, MINOR, MINOR_EPOCHS, MINOR_EVICTIONS, MINOR_MINIMUM};

/// A set of INIT features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitFlags(pub u64);

macro_rules! flags {
    ($($name:ident = $bit:literal: $doc:literal;)*) => {
        impl InitFlags {
            $(#[doc = $doc] pub const $name: InitFlags = InitFlags(1 << $bit);)*
            const NAMES: &'static [(InitFlags, &'static str)] = &[$((InitFlags::$name, stringify!($name))),*];
        }
    };
}

flags! {
    ASYNC_READ = 0: "Several reads of one file at once (read-ahead).";
    POSIX_LOCKS = 1: "Record locks are the file system's.";
    ATOMIC_O_TRUNC = 3: "O_TRUNC comes with OPEN.";
    EXPORT_SUPPORT = 4: "\".\" and \"..\" can be looked up (NFS).";
    BIG_WRITES = 5: "Writes above 4 KiB.";
    DONT_MASK = 6: "The umask is the file system's (default ACLs).";
    FLOCK_LOCKS = 10: "`flock` is the file system's.";
    HAS_IOCTL_DIR = 11: "ioctl on directories.";
    AUTO_INVAL_DATA = 12: "Drop cached pages when mtime or size changed.";
    DO_READDIRPLUS = 13: "Listings with attributes.";
    READDIRPLUS_AUTO = 14: "Listings with attributes only where they are used.";
    ASYNC_DIO = 15: "Asynchronous direct I/O.";
    WRITEBACK_CACHE = 16: "The kernel holds dirty pages, size and mtime.";
    NO_OPEN_SUPPORT = 17: "An OPEN answered ENOSYS is never sent again.";
    PARALLEL_DIROPS = 18: "Lookups and listings of one directory at once.";
    HANDLE_KILLPRIV = 19: "The file system clears suid and sgid (first form).";
    POSIX_ACL = 20: "The kernel checks POSIX ACLs.";
    ABORT_ERROR = 21: "An aborted connection reads ECONNABORTED.";
    MAX_PAGES = 22: "Requests above 128 KiB.";
    CACHE_SYMLINKS = 23: "The kernel keeps link targets.";
    NO_OPENDIR_SUPPORT = 24: "An OPENDIR answered ENOSYS is never sent again.";
    EXPLICIT_INVAL_DATA = 25: "Cached pages go only on notification.";
    HANDLE_KILLPRIV_V2 = 28: "The file system clears suid and sgid when told (second form).";
    SETXATTR_EXT = 29: "The long form of SETXATTR.";
    INIT_EXT = 30: "More than 32 features.";
    CREATE_SUPP_GROUP = 34: "Creating requests carry the matching supplementary group.";
    HAS_EXPIRE_ONLY = 35: "Names can be expired instead of dropped.";
    DIRECT_IO_ALLOW_MMAP = 36: "Shared mmap of files opened for direct I/O (Linux 6.6).";
    PASSTHROUGH = 37: "I/O goes to a local file without the daemon (Linux 6.9).";
    HAS_RESEND = 39: "Requests can be sent again to a new daemon (Linux 6.9).";
    ALLOW_IDMAP = 40: "Mounts with mapped ids (Linux 6.12).";
    OVER_IO_URING = 41: "Requests through io_uring (Linux 6.14).";
}

impl InitFlags {
    /// What dispatch cannot do without: its SETXATTR is the long one. Every kernel since 6.1 has them.
    pub const REQUIRED: InitFlags = InitFlags(Self::INIT_EXT.0 | Self::SETXATTR_EXT.0 | Self::MAX_PAGES.0);

    /// What a coherent network file system wants when nothing else is said.
    pub const DEFAULT: InitFlags = InitFlags(
        Self::REQUIRED.0
            | Self::ASYNC_READ.0
            | Self::BIG_WRITES.0
            | Self::ATOMIC_O_TRUNC.0
            | Self::PARALLEL_DIROPS.0
            | Self::DO_READDIRPLUS.0
            | Self::READDIRPLUS_AUTO.0
            | Self::EXPORT_SUPPORT.0
            | Self::HANDLE_KILLPRIV_V2.0
            | Self::DIRECT_IO_ALLOW_MMAP.0
            | Self::AUTO_INVAL_DATA.0
            | Self::ABORT_ERROR.0
            | Self::ASYNC_DIO.0
            | Self::HAS_EXPIRE_ONLY.0
            | Self::POSIX_LOCKS.0
            | Self::FLOCK_LOCKS.0
            | Self::POSIX_ACL.0
            | Self::DONT_MASK.0,
    );

    /// Of the two ways in which pages are kept current, where both are wanted, the one that this kernel is good for: it checks
    /// them at each read if files that are opened past its cache can be mapped all the same, so that others need not go through
    /// it; else they go on notification only.
    fn one_way_of_pages(self, offered: InitFlags) -> InitFlags {
        let both = Self::AUTO_INVAL_DATA | Self::EXPLICIT_INVAL_DATA;
        match offered.contains(Self::DIRECT_IO_ALLOW_MMAP) {
            _ if !self.contains(both) => self,
            true => self & !Self::EXPLICIT_INVAL_DATA,
            false => self & !Self::AUTO_INVAL_DATA,
        }
    }

    /// Whether all of `other` are in the set.
    #[must_use]
    pub fn contains(self, other: InitFlags) -> bool {
        self & other == other
    }

    /// Names of the features in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| *name)
    }

    fn low(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }

    fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl BitOr for InitFlags {
    type Output = InitFlags;
    fn bitor(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 | other.0)
    }
}

impl BitAnd for InitFlags {
    type Output = InitFlags;
    fn bitand(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & other.0)
    }
}

impl Not for InitFlags {
    type Output = InitFlags;
    fn not(self) -> InitFlags {
        InitFlags(!self.0)
    }
}

/// What the file system asks for.
#[derive(Clone, Copy, Debug)]
pub struct InitConfig {
    /// Features wanted; [`InitFlags::REQUIRED`] are added.
    pub wanted: InitFlags,
    /// Largest write and read, in bytes: a multiple of 4 KiB, at most 1 MiB unless `fs.fuse.max_pages_limit` is
    /// raised.
    pub max_write: u32,
    /// Read-ahead. The kernel takes at most its own (128 KiB), which `/sys/class/bdi/<device>/read_ahead_kb` raises.
    pub max_readahead: u32,
    /// Background requests (read-ahead, asynchronous direct I/O, releases) in flight.
    pub max_background: u16,
    /// Background requests from which on the mount counts as congested.
    pub congestion_threshold: u16,
}

impl Default for InitConfig {
    fn default() -> Self {
        InitConfig {
            wanted: InitFlags::DEFAULT,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol both sides speak.
    pub minor: u32,
    /// Features wanted.
    pub wanted: InitFlags,
    /// Features granted.
    pub granted: InitFlags,
    /// Largest write and read, in bytes.
    pub max_write: u32,
    /// Read-ahead, in bytes.
    pub max_readahead: u32,
    /// Background requests in flight.
    pub max_background: u16,
}

impl Negotiated {
    /// Names of the features wanted that this kernel lacks.
    pub fn losses(&self) -> impl Iterator<Item = &'static str> {
        (self.wanted & !self.granted).names()
    }

    /// Whether the kernel knows [`crate::Notifier::inc_epoch`] (Linux 6.16).
    #[must_use]
    pub fn has_epochs(&self) -> bool {
        self.minor >= MINOR_EPOCHS
    }

    /// Whether the kernel believes no attributes of an inode that it has evicted since it asked (Linux 6.13; known from the next
    /// change of the protocol on, in 6.14).
    #[must_use]
    pub fn counts_evictions(&self) -> bool {
        self.minor >= MINOR_EVICTIONS
    }

    /// `out` with the features granted.
    pub(crate) fn answer(&self, mut out: InitOut) -> InitOut {
        out.flags = self.granted.low();
        out.flags2 = self.granted.high();
        out
    }
}

/// What to answer to an INIT.
#[derive(Clone, Debug)]
pub enum InitStep {
    /// Agreed.
    Ready(InitOut, Negotiated),
    /// The kernel speaks a newer major version: it will ask again with ours.
    Again(InitOut),
    /// The kernel is too old; the text says so to the user.
    Refused(String),
}

/// Answers the body of an INIT request.
#[must_use]
pub fn negotiate(body: &[u8], config: &InitConfig) -> InitStep {
    let mut offer = InitIn::new_zeroed();
    let length = body.len().min(size_of::<InitIn>());
    if length < INIT_IN_SHORT {
        return InitStep::Refused(format!(
            "the kernel's INIT has {length} bytes, at least {INIT_IN_SHORT} expected"
        ));
    }
    offer.as_mut_bytes()[..length].copy_from_slice(&body[..length]);
    let mut out = InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() };
    if offer.major > MAJOR {
        return InitStep::Again(out);
    }
    let mut offered = InitFlags(u64::from(offer.flags));
    if offered.contains(InitFlags::INIT_EXT) {
        offered = offered | InitFlags(u64::from(offer.flags2) << 32);
    }
    if offer.major < MAJOR || offer.minor < MINOR_MINIMUM || !offered.contains(InitFlags::REQUIRED) {
        return InitStep::Refused(format!(
            "the kernel offers FUSE {}.{}, at least {MAJOR}.{MINOR_MINIMUM} is needed: run Linux 6.1 or newer",
            offer.major, offer.minor
        ));
    }
    let wanted = (config.wanted | InitFlags::REQUIRED).one_way_of_pages(offered);
    let agreed = Negotiated {
        minor: offer.minor.min(MINOR),
        wanted,
        granted: wanted & offered,
        max_write: whole_pages(config.max_write),
        max_readahead: config.max_readahead.min(offer.max_readahead),
        max_background: config.max_background,
    };
    out.minor = agreed.minor;
    out.max_readahead = agreed.max_readahead;
    out = agreed.answer(out);
    out.max_background = agreed.max_background;
    out.congestion_threshold = config.congestion_threshold.min(agreed.max_background);
    out.max_write = agreed.max_write;
    out.time_gran = 1;
    out.max_pages = u16::try_from(agreed.max_write / PAGE).unwrap_or(u16::MAX);
    InitStep::Ready(out, agreed)
}

const PAGE: u32 = 4096;
/// Above this `max_pages` does not fit its field.
const WRITE_LIMIT: u32 = PAGE * u16::MAX as u32;

pub(crate) fn whole_pages(bytes: u32) -> u32 {
    (bytes / PAGE * PAGE).clamp(PAGE, WRITE_LIMIT)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::{InitConfig, InitFlags, InitStep, negotiate};
    use crate::abi::init::InitIn;

    fn offer(major: u32, minor: u32, flags: InitFlags) -> InitIn {
        InitIn {
            major,
            minor,
            max_readahead: 131_072,
            flags: flags.low(),
            flags2: flags.high(),
            ..InitIn::default()
        }
    }

    /// Goal: granted is what both want, and a loss is named.
    #[test]
    fn agreement_and_losses() {
        let without = InitFlags(InitFlags::DEFAULT.0 & !InitFlags::DIRECT_IO_ALLOW_MMAP.0);
        let InitStep::Ready(out, agreed) =
            negotiate(offer(7, 37, without | InitFlags::PASSTHROUGH).as_bytes(), &InitConfig::default())
        else {
            panic!("refused")
        };
        assert_eq!(agreed.granted, without);
        assert_eq!(agreed.losses().collect::<Vec<_>>(), ["DIRECT_IO_ALLOW_MMAP"]);
        assert_eq!((out.minor, out.max_pages, out.max_write, out.max_readahead), (37, 256, 1 << 20, 131_072));
        assert_eq!(out.congestion_threshold, 48);
    }

    /// Goal: of both ways in which pages are kept current one is agreed on, and the other is no loss.
    #[test]
    fn one_way_of_pages() {
        let wanted = InitFlags::DEFAULT | InitFlags::EXPLICIT_INVAL_DATA;
        let config = InitConfig { wanted, ..InitConfig::default() };
        let old = InitFlags(wanted.0 & !InitFlags::DIRECT_IO_ALLOW_MMAP.0);
        let ways = [InitFlags::AUTO_INVAL_DATA, InitFlags::EXPLICIT_INVAL_DATA];
        for (offered, has, losses) in
            [(wanted, [true, false], vec![]), (old, [false, true], vec!["DIRECT_IO_ALLOW_MMAP"])]
        {
            let InitStep::Ready(_, agreed) = negotiate(offer(7, 45, offered).as_bytes(), &config) else {
                panic!("refused")
            };
            assert_eq!(ways.map(|way| agreed.granted.contains(way)), has);
            assert_eq!(agreed.losses().collect::<Vec<_>>(), losses);
        }
    }

    /// Goal: epochs, and counts of evictions, are known from their minor version on, whatever else is agreed.
    #[test]
    fn epochs() {
        for (minor, counts, has) in
            [(41, false, false), (42, true, false), (43, true, false), (44, true, true), (99, true, true)]
        {
            let offer = offer(7, minor, InitFlags::DEFAULT);
            let InitStep::Ready(_, agreed) = negotiate(offer.as_bytes(), &InitConfig::default()) else {
                panic!("refused")
            };
            assert_eq!((agreed.counts_evictions(), agreed.has_epochs()), (counts, has), "{minor}");
        }
    }

    /// Goal: old kernels are refused with a reason, newer majors are asked again, short bodies do not panic.
    #[test]
    fn versions() {
        let config = InitConfig::default();
        let old = negotiate(offer(7, 31, InitFlags::DEFAULT).as_bytes(), &config);
        assert!(matches!(old, InitStep::Refused(text) if text.contains("7.31") && text.contains("6.1")));
        let bare = negotiate(&offer(7, 45, InitFlags::ASYNC_READ).as_bytes()[..16], &config);
        assert!(matches!(bare, InitStep::Refused(_)));
        assert!(
            matches!(negotiate(offer(8, 0, InitFlags(0)).as_bytes(), &config), InitStep::Again(out) if out.major == 7)
        );
        for length in 0..64 {
            let _ = negotiate(&offer(7, 45, InitFlags::DEFAULT).as_bytes()[..length], &config);
        }
    }

    /// Goal: an odd max_write is brought to whole pages within the field's range.
    #[test]
    fn write_size() {
        assert_eq!(super::whole_pages(0), 4096);
        assert_eq!(super::whole_pages(10_000), 8192);
        assert_eq!(super::whole_pages(u32::MAX), 4096 * 65_535);
    }
}
