//! Cases of LTP that do not pass, each with its reason.

use super::ltp::Outcome::{self, Failed, NotRun};

/// Cases that say nothing about the file system under test.
pub const NOT_ABOUT_FILES: &[(&str, &str)] = &[
    ("proc01", "reads /proc"),
    ("read_all_dev", "reads /dev"),
    ("read_all_proc", "reads /proc"),
    ("read_all_sys", "reads /sys"),
];

/// Cases that are run and do not pass. Those that depend on the kernel were seen with Linux 6.18.
pub const KNOWN: &[(&str, Outcome, &str)] = &[
    ("linker01", Failed, "gives one inode 1,001 names; the limit of this release is 1,000 (LINKS_MAX)"),
    (
        "lseek11",
        Failed,
        "takes holes to begin at blocks only; here the bytes behind the last one written are a hole, exactly",
    ),
    ("setxattr03", Failed, "the flags of chattr (immutable, append-only) are not implemented: ENOTTY"),
    ("fcntl35", Failed, "sizes of pipes, a matter of the machine's kernel"),
    ("fcntl35_64", Failed, "sizes of pipes, a matter of the machine's kernel"),
    ("getxattr05", Failed, "wants user namespaces, which the machine forbids"),
    ("quota_remount_test01", NotRun, "quotas of a local file system on a loop device"),
    ("isofs", NotRun, "mounts ISO 9660, which the kernel lacks"),
    ("binfmt_misc01", NotRun, "wants binfmt_misc, which the kernel lacks"),
    ("binfmt_misc02", NotRun, "wants binfmt_misc, which the kernel lacks"),
    ("squashfs01", NotRun, "mounts squashfs, which the kernel lacks"),
    ("fsetxattr02", NotRun, "wants RAM disks, which the kernel lacks"),
    ("ftruncate04", NotRun, "mandatory locks, which Linux no longer has"),
    ("ftruncate04_64", NotRun, "mandatory locks, which Linux no longer has"),
    ("listxattr04", NotRun, "wants a security module, which the kernel lacks"),
    ("openat04", NotRun, "formats local file systems of its own with an option that the kernel lacks"),
    ("readdir21", NotRun, "a system call that 64-bit machines do not have"),
    ("statx07", NotRun, "exports over NFS, whose tools were not installed"),
    ("statx09", NotRun, "wants fs-verity, which the kernel lacks"),
];
