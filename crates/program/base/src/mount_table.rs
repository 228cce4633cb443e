//! Mounts of this machine, as the kernel lists them in `/proc/self/mountinfo`.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where the kernel lists them.
const MOUNTINFO: &str = "/proc/self/mountinfo";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's number of it: of several places where one file system is, one.
    pub id: u64,
    /// That of the mount on which this one is.
    pub parent: u64,
    /// Device number of everything on it.
    pub device: u64,
    pub point: PathBuf,
    /// Type of the file system, such as `fuse.skep`.
    pub kind: String,
    /// What was mounted, such as `mgmt1,mgmt2:/`.
    pub source: String,
    /// Options of the mount, then those of the file system: `rw,noatime,user_id=0`.
    pub options: String,
    /// Mounted read-only?
    pub read_only: bool,
}

impl MountEntry {
    /// Is it one of ours?
    pub fn is_skep(&self) -> bool {
        self.kind == "skep" || self.kind == "fuse.skep"
    }

    /// For people: type, what was mounted, and how.
    pub fn describe(&self) -> String {
        format!("{} {} ({})", self.kind, self.source, self.options)
    }
}

/// All mounts, in the order of the kernel: a later one at the same place covers an earlier one.
pub fn read() -> std::io::Result<Vec<MountEntry>> {
    Ok(parse(&std::fs::read(MOUNTINFO)?))
}

/// The mount at exactly this place (the topmost).
pub fn at(point: &Path) -> std::io::Result<Option<MountEntry>> {
    Ok(read()?.into_iter().rev().find(|entry| entry.point == point))
}

/// The mount through which this was opened; nobody is asked.
pub fn of_file(file: &OwnedFd) -> std::io::Result<Option<MountEntry>> {
    let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = facts.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    Ok(read()?.into_iter().find(|entry| Some(entry.id) == id))
}

/// The one that a path lies on by its name; nobody is asked. (A symbolic link in the name may lead elsewhere.)
pub fn covering<'a>(mounts: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let over = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    over.max_by_key(|mount| mount.point.as_os_str().len())
}

/// Is something mounted on a name of the file system that is mounted at `point`, here or where else it is to be seen?
pub fn has_below(mounts: &[MountEntry], point: &Path) -> bool {
    // Who cannot tell says yes.
    let own = mounts.iter().rev().find(|mount| mount.point == point && mount.is_skep());
    own.is_none_or(|own| {
        let here = mounts.iter().filter(|mount| mount.device == own.device).map(|mount| mount.id);
        let here: BTreeSet<u64> = here.collect();
        mounts.iter().any(|mount| here.contains(&mount.parent))
    })
}

/// Those of a list as the kernel writes it; lines that are none are left out.
pub fn parse(text: &[u8]) -> Vec<MountEntry> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /mnt rw,noatime tag:1 - fuse.skep source rw,super`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let parent = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(words.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let point = PathBuf::from(std::ffi::OsString::from_vec(unescape(words.nth(1)?)));
    let options = words.next()?;
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let text = |word: &[u8]| String::from_utf8_lossy(&unescape(word)).into_owned();
    let (kind, source) = (text(rest.next()?), text(rest.next()?));
    Some(MountEntry {
        id,
        parent,
        device: rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?),
        point,
        kind,
        source,
        options: both(&text(options), &rest.next().map(text).unwrap_or_default()),
        read_only: options.split(|b| *b == b',').any(|option| option == b"ro"),
    })
}

/// Options of the mount, and those of the file system that are not among them.
fn both(mount: &str, filesystem: &str) -> String {
    let mut all: Vec<&str> = mount.split(',').collect();
    for option in filesystem.split(',').filter(|option| !option.is_empty()) {
        if !all.contains(&option) {
            all.push(option);
        }
    }
    all.join(",")
}

/// The kernel writes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        let code = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines with and without optional fields, and escaped paths, are understood.
    #[test]
    fn lines() {
        let text =
            b"36 35 0:61 / /mnt/a\\040b rw,nosuid shared:9 master:1 - fuse.skep m1,m2:/ rw,user_id=0\n\
                     22 1 8:1 / / ro - ext4 /dev/sda1 rw\nnonsense\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].point.as_path(), mounts[0].id), (Path::new("/mnt/a b"), 36));
        assert_eq!(
            (mounts[0].source.as_str(), mounts[0].is_skep(), mounts[0].read_only),
            ("m1,m2:/", true, false)
        );
        assert_eq!(mounts[0].describe(), "fuse.skep m1,m2:/ (rw,nosuid,user_id=0)");
        assert_eq!(
            (mounts[1].device, mounts[1].is_skep(), mounts[1].read_only),
            (rustix::fs::makedev(8, 1), false, true)
        );
    }

    /// Goal: a path lies on the nearest mount above it, the topmost of several at one place, and not on one whose name only
    /// begins like it.
    #[test]
    fn nearest() {
        let lines = ["1 /", "2 /mnt", "3 /mnt/a", "4 /mnt/a"].map(|one| {
            let (device, point) = one.split_once(' ').unwrap();
            format!("9 9 0:{device} / {point} rw - t s rw\n")
        });
        let mounts = parse(lines.concat().as_bytes());
        let on = |path: &str| rustix::fs::minor(covering(&mounts, Path::new(path)).unwrap().device);
        assert_eq!(["/x", "/mnt/ab", "/mnt/a", "/mnt/a/b/c"].map(on), [1, 2, 4, 4]);
    }

    /// Goal: what is mounted on a file system is found, wherever that itself is mounted, and nothing else is.
    #[test]
    fn below() {
        let find = |lines: &[&str]| {
            let line = |one: &&str| {
                let words: Vec<&str> = one.split(' ').collect();
                let kind = if words[2] == "9" { "fuse.skep" } else { "xfs" };
                format!("{} {} 0:{} / {} rw - {kind} s rw\n", words[0], words[1], words[2], words[3])
            };
            let mounts = parse(lines.iter().map(line).collect::<String>().as_bytes());
            has_below(&mounts, Path::new("/mnt"))
        };
        let (root, own) = ("1 0 1 /", "2 1 9 /mnt");
        assert!(!find(&[root, own, "3 1 7 /other", "4 3 7 /other/mnt"]));
        assert!(find(&[root, own, "3 2 7 /mnt/a"]));
        assert!(find(&[root, own, "3 2 7 /mnt"]), "over it");
        assert!(find(&[root]), "nobody knows");
        // Somewhere else the same is mounted, and something there.
        assert!(find(&[root, own, "3 1 9 /else", "4 3 7 /else/a"]));
    }

    /// Goal: this machine's own list is read, and its root is in it.
    #[test]
    fn this_machine() {
        let root = at(Path::new("/")).unwrap();
        assert!(root.is_some());
        assert_eq!(of_file(&std::fs::File::open("/").unwrap().into()).unwrap(), root);
    }
}
