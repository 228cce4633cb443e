//! Mounted file systems, and those of `/etc/fstab`.

use crate::Root;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: String,
    /// What: `/dev/md0`, `tank/data`.
    pub source: String,
    /// `xfs`, `ext4`, `zfs`, ...
    pub kind: String,
    /// `8:1`; empty in fstab.
    pub dev: String,
    /// All options, of the mount and of the file system.
    pub options: Vec<String>,
}

impl Mount {
    /// Does a path lie below it?
    pub fn holds(&self, path: &str) -> bool {
        let below = path.strip_prefix(self.point.trim_end_matches('/'));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Is the option there, without value?
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }

    /// The value of `option=value`.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.options.iter().find_map(|one| one.strip_prefix(option)?.strip_prefix('='))
    }

    /// Are its files in memory, on no disk at all?
    pub fn in_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }

    /// The value as a number of bytes: `64k`, `1m`.
    pub fn bytes(&self, option: &str) -> Option<u64> {
        bytes(self.value(option)?)
    }
}

/// `256k` as the tools of file systems write it.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..].to_ascii_lowercase()[..] {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

/// What is mounted.
pub fn mounted(root: &Root) -> Vec<Mount> {
    root.text("/proc/self/mountinfo").unwrap_or_default().lines().filter_map(line).collect()
}

/// `36 35 98:0 /root /mnt rw,noatime tag:1 - xfs /dev/md0 rw,sunit=512`
fn line(text: &str) -> Option<Mount> {
    let (before, after) = text.split_once(" - ")?;
    let mut words = before.split(' ');
    let dev = words.nth(2)?.to_owned();
    let point = plain(words.nth(1)?);
    let own = words.next()?;
    let mut words = after.split(' ');
    let kind = words.next()?.to_owned();
    let source = plain(words.next()?);
    let options = own.split(',').chain(words.next().unwrap_or_default().split(','));
    Some(Mount { point, source, kind, dev, options: options.map(str::to_owned).collect() })
}

/// What shall be mounted at boot.
pub fn at_boot(root: &Root) -> Vec<Mount> {
    let text = root.text("/etc/fstab").unwrap_or_default();
    let one = |text: &str| {
        let mut words = text.split_whitespace();
        let source = words.next().filter(|word| !word.starts_with('#'))?;
        let point = plain(words.next()?);
        let kind = words.next()?.to_owned();
        let options = words.next().unwrap_or("defaults").split(',').map(str::to_owned).collect();
        Some(Mount { point, source: plain(source), kind, dev: String::new(), options })
    };
    text.lines().filter_map(one).collect()
}

/// Without the octal escapes of blanks.
fn plain(word: &str) -> String {
    word.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line of the kernel is read with both lists of options, and paths are matched by whole names.
    #[test]
    fn lines() {
        let text = "36 35 9:0 / /data/a\\040b rw,noatime shared:1 - xfs /dev/md0 rw,logbsize=256k,sunit=512";
        let mount = line(text).unwrap();
        assert_eq!(
            (mount.point.as_str(), mount.kind.as_str(), mount.dev.as_str()),
            ("/data/a b", "xfs", "9:0")
        );
        assert!(mount.has("noatime") && !mount.has("sunit") && mount.value("sunit") == Some("512"));
        assert_eq!(mount.bytes("logbsize"), Some(256 << 10));
        assert!(mount.holds("/data/a b/t") && mount.holds("/data/a b") && !mount.holds("/data/a bc"));
        assert!(line("36 35 9:0 / /x").is_none());
        assert_eq!((bytes("12x"), bytes("4M"), bytes("")), (None, Some(4 << 20), None));
    }
}
