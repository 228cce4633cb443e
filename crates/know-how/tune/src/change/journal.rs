//! The undo file: what was there before, on stable storage before anything is changed.

use super::Owner;
use super::hands::{FILE_MAX, Hands, UNFINISHED};
use serde::{Deserialize, Serialize};
use std::io;

/// Directory of the undo file.
pub const UNDO_DIR: &str = "/var/lib/skep/tune";
pub const UNDO_FILE: &str = "/var/lib/skep/tune/undo.json";
/// Raised when older programs would misunderstand the file.
const FORMAT: u32 = 2;

/// What was there before the first change that was not undone yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    format: u32,
    /// Values of the running kernel, in the order in which they were set and are to be set again.
    pub live: Vec<OldValue>,
    pub files: Vec<OldFile>,
    /// Directories that were made, the upper ones first.
    pub made_dirs: Vec<String>,
}

/// A value of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldValue {
    /// Its file, by the names of that day.
    pub path: String,
    /// The disk that it is a value of.
    pub disk: Option<Owner>,
    /// What it was.
    pub before: String,
    /// What it became; none where it only changed along with another.
    pub after: Option<String>,
}

impl OldValue {
    /// The same thing, whatever its disk is called by now?
    fn is_same(&self, other: &Self) -> bool {
        match (&self.disk, &other.disk) {
            (Some(one), Some(two)) => one.identity == two.identity && self.attribute() == other.attribute(),
            (None, None) => self.path == other.path,
            _ => false,
        }
    }

    /// Of a disk's value what comes after the disk's name.
    fn attribute(&self) -> &str {
        self.disk.as_ref().and_then(|owner| self.path.strip_prefix(&owner.dir())).unwrap_or(&self.path)
    }

    /// Where it is when its disk is called so.
    pub fn at(&self, name: &str) -> String {
        format!("/sys/block/{name}{}", self.attribute())
    }
}

impl Owner {
    /// Where its files are.
    fn dir(&self) -> String {
        format!("/sys/block/{}", self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldFile {
    pub path: String,
    /// Its content; none: there was none.
    pub before: Option<String>,
    /// What was written.
    pub after: String,
    /// Somebody else changed it between two applies; the later one kept those lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
}

impl Default for Journal {
    fn default() -> Self {
        Self { format: FORMAT, live: Vec::new(), files: Vec::new(), made_dirs: Vec::new() }
    }
}

impl Journal {
    /// The one that is there.
    pub fn read(hands: &mut dyn Hands) -> io::Result<Option<Self>> {
        let Some(text) = hands.read(UNDO_FILE)? else { return Ok(None) };
        let broken = |e: serde_json::Error| {
            io::Error::other(format!("{UNDO_FILE} cannot be understood ({e}); restore it from a backup"))
        };
        let journal: Self = serde_json::from_str(&text).map_err(broken)?;
        if journal.format != FORMAT {
            let format = journal.format;
            return Err(io::Error::other(format!(
                "{UNDO_FILE} has format {format}, this program knows {FORMAT}: undo with the program that wrote it"
            )));
        }
        Ok(Some(journal))
    }

    /// Writes it durably; whoever reads sees the old one or the new one.
    pub fn write(&self, hands: &mut dyn Hands) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        if text.len() as u64 > FILE_MAX {
            return Err(io::Error::other(format!(
                "{UNDO_FILE} would have {} bytes, more than the {FILE_MAX} that undo reads; change less at a time \
                 (--setting)",
                text.len()
            )));
        }
        make_dirs(UNDO_DIR, hands)?;
        hands.write_unfinished(UNDO_FILE, &text)?;
        hands.finish(UNDO_FILE)
    }

    /// Takes it away, with what a crash while it was written may have left.
    pub fn remove(hands: &mut dyn Hands) -> io::Result<()> {
        hands.remove(&format!("{UNDO_FILE}{UNFINISHED}"))?;
        hands.remove(UNDO_FILE)?;
        hands.remove_dir(UNDO_DIR)
    }

    /// A value before it is changed: of one that was changed before, the oldest stays.
    pub fn value(&mut self, new: OldValue) {
        match self.live.iter_mut().find(|old| old.is_same(&new)) {
            Some(old) => old.after = new.after,
            None => self.live.push(new),
        }
    }

    /// A file before it is changed, likewise.
    pub fn file(&mut self, path: &str, before: Option<String>, after: &str) {
        match self.files.iter_mut().find(|old| old.path == path) {
            Some(old) => {
                // What an apply that did not come to its end left as it was is nobody's edit.
                old.edited |= before != old.before && before.as_ref() != Some(&old.after);
                after.clone_into(&mut old.after);
            }
            None => {
                let (path, after) = (path.to_owned(), after.to_owned());
                self.files.push(OldFile { path, before, after, edited: false });
            }
        }
    }
}

/// Every directory above `path`, and itself, from the top.
pub fn upward(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    ends.chain([path.len()]).map(|end| path[..end].to_owned()).collect()
}

/// Makes a directory and all above it.
pub fn make_dirs(path: &str, hands: &mut dyn Hands) -> io::Result<()> {
    upward(path).iter().try_for_each(|dir| hands.make_dir(dir).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Identity, IdentityKind};

    /// Goal: the oldest value stays through several changes, the newest is known.
    #[test]
    fn the_oldest_stays() {
        let mut journal = Journal::default();
        let value = |path: &str, disk: Option<(&str, &str)>, before: &str, after: &str| OldValue {
            path: path.to_owned(),
            disk: disk.map(|(name, wwid)| Owner {
                name: name.to_owned(),
                identity: Identity { kind: IdentityKind::Wwid, value: wwid.to_owned() },
            }),
            before: before.to_owned(),
            after: Some(after.to_owned()),
        };
        journal.value(value("/proc/sys/vm/x", None, "1", "2"));
        journal.value(value("/proc/sys/vm/x", None, "2", "3"));
        // Two disks that changed places between two changes are two disks.
        journal.value(value("/sys/block/sda/queue/y", Some(("sda", "A")), "5", "6"));
        journal.value(value("/sys/block/sda/queue/y", Some(("sda", "B")), "7", "8"));
        journal.value(value("/sys/block/sdb/queue/y", Some(("sdb", "A")), "6", "9"));
        let disks: Vec<_> =
            journal.live[1..].iter().map(|one| (one.before.as_str(), one.after.as_deref())).collect();
        assert_eq!(disks, [("5", Some("9")), ("7", Some("8"))]);
        assert_eq!(journal.live[1].at("sdq"), "/sys/block/sdq/queue/y");
        journal.file("/etc/x", None, "a");
        journal.file("/etc/x", None, "a2");
        journal.file("/etc/x", Some("a2".to_owned()), "b");
        assert!(!journal.files[0].edited && !serde_json::to_string(&journal).unwrap().contains("edited"));
        assert_eq!((journal.live[0].before.as_str(), journal.live[0].after.as_deref()), ("1", Some("3")));
        assert_eq!((journal.files[0].before.as_ref(), journal.files[0].after.as_str()), (None, "b"));
        assert_eq!(upward("/var/lib/x"), ["/var", "/var/lib", "/var/lib/x"]);
    }
}
