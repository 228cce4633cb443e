//! The Linux Test Project's cases for file systems: `runtest/fs`, `runtest/fcntl-locktests`, and those of
//! `runtest/syscalls` that work on files. Temporary files go to the mount.
//!
//! Whatever does not pass must stand in [`super::known`] with its reason; whatever stands there and passes must
//! be taken out.

use super::known::{KNOWN, NOT_ABOUT_FILES};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time of one case.
const LIMIT: Duration = Duration::from_secs(400);

/// Cases of `runtest/syscalls` whose name begins like this (letters only) work on files.
const SYSCALLS: &[&str] = &[
    "access",
    "chdir",
    "chmod",
    "chown",
    "close",
    "copy_file_range",
    "creat",
    "dup",
    "faccessat",
    "fadvise",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fpathconf",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fstatat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futimesat",
    "getcwd",
    "getdents",
    "getxattr",
    "lchown",
    "lgetxattr",
    "link",
    "linkat",
    "listxattr",
    "llistxattr",
    "llseek",
    "lremovexattr",
    "lseek",
    "lstat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "mmap",
    "msync",
    "nftw",
    "open",
    "open_by_handle_at",
    "openat",
    "pathconf",
    "pread",
    "preadv",
    "preadv2",
    "pwrite",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readdir",
    "readlink",
    "readlinkat",
    "readv",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "setxattr",
    "splice",
    "stat",
    "statfs",
    "statvfs",
    "statx",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "truncate",
    "umask",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    "write",
    "writev",
];

/// What became of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Everything it checks holds.
    Passed,
    /// It says that it cannot be run here.
    NotRun,
    /// A check failed, or the case broke.
    Failed,
}

/// A case: its name and its command line.
struct Case {
    name: String,
    line: String,
}

/// Runs the cases; true when everything that did not pass is known.
pub fn run(prefix: &Path, filter: Option<&str>, mount: &Path) -> Result<bool, String> {
    let prefix = prefix.canonicalize().map_err(|e| format!("{}: {e}", prefix.display()))?;
    let cases = cases(&prefix)?;
    let chosen = cases.iter().filter(|case| filter.is_none_or(|filter| case.name.contains(filter)));
    let (mut counts, mut good) = (BTreeMap::new(), true);
    for case in chosen {
        if let Some((_, reason)) = NOT_ABOUT_FILES.iter().find(|(name, _)| *name == case.name) {
            println!("ltp: {} is left out: {reason}", case.name);
            continue;
        }
        let begun = Instant::now();
        let (outcome, said) = one(&prefix, case, mount)?;
        *counts.entry(outcome).or_insert(0) += 1;
        let known = KNOWN.iter().find(|(name, ..)| *name == case.name);
        let expected = known.map_or(Outcome::Passed, |(_, outcome, _)| *outcome);
        let seconds = begun.elapsed().as_secs();
        match known {
            _ if outcome != expected => {
                good = false;
                println!(
                    "ltp: {} ({seconds} s): {outcome:?}, expected {expected:?}\n{}",
                    case.name,
                    tail(&said)
                );
            }
            Some((.., reason)) => println!("ltp: {}: {outcome:?}, as known: {reason}", case.name),
            None => {}
        }
    }
    println!("ltp: {counts:?}");
    Ok(good && !counts.is_empty())
}

fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains("TPASS")).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

fn cases(prefix: &Path) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for list in ["fs", "fcntl-locktests", "syscalls"] {
        let path = prefix.join("runtest").join(list);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for line in text.lines() {
            let Some((name, line)) = line.trim().split_once(char::is_whitespace) else { continue };
            if name.starts_with('#') || (list == "syscalls" && !works_on_files(name)) {
                continue;
            }
            cases.push(Case { name: name.to_owned(), line: line.trim().to_owned() });
        }
    }
    Ok(cases)
}

fn works_on_files(name: &str) -> bool {
    // `openat02_64` -> `openat`, `preadv202` -> `preadv2` or `preadv`.
    let stem =
        name.trim_end_matches("_64").trim_end_matches(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
    SYSCALLS.contains(&stem) || SYSCALLS.iter().any(|call| call.ends_with('2') && name.starts_with(call))
}

fn one(prefix: &Path, case: &Case, mount: &Path) -> Result<(Outcome, String), String> {
    let temporary = mount.join("ltp");
    std::fs::create_dir_all(&temporary).map_err(|e| format!("{}: {e}", temporary.display()))?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&temporary, open).map_err(|e| e.to_string())?;
    let programs = prefix.join("testcases/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    // The list of locks names a file of /tmp; here it is to be one of the mount.
    let line = case.line.replace(" /tmp/", " $TMPDIR/");
    let output = Command::new("timeout")
        .args(["--kill-after=10", &LIMIT.as_secs().to_string(), "sh", "-c", &line])
        .current_dir(&temporary)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("LTPROOT", prefix)
        .env("LTP_COLORIZE_OUTPUT", "n")
        .env("TMPDIR", &temporary)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("timeout: {e}"))?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Bits of LTP: 1 failed, 2 broken, 4 warning, 32 not for this configuration.
    let outcome = match output.status.code() {
        Some(0 | 4) => Outcome::Passed,
        Some(32 | 36) => Outcome::NotRun,
        _ => Outcome::Failed,
    };
    Ok((outcome, said))
}
