//! The undo file: what was there before, on stable storage before anything is changed.

use super::hands::{Hands, UNFINISHED};
use serde::{Deserialize, Serialize};
use std::io;

/// Directory of the undo file.
pub const UNDO_DIR: &str = "/var/lib/skep/tune";
/// The undo file.
pub const UNDO_FILE: &str = "/var/lib/skep/tune/undo.json";
/// Raised when older programs would misunderstand the file.
const FORMAT: u32 = 1;

/// What was there before the first change that was not undone yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    format: u32,
    /// Values of the running kernel, in the order in which they were set and are to be set again.
    pub live: Vec<OldValue>,
    /// Files.
    pub files: Vec<OldFile>,
    /// Directories that were made, the upper ones first.
    pub made_dirs: Vec<String>,
}

/// A value of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldValue {
    /// Its file.
    pub path: String,
    /// What it was.
    pub before: String,
    /// What it became; none where it only changed along with another.
    pub after: Option<String>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldFile {
    /// Where it is.
    pub path: String,
    /// Its content; none: there was none.
    pub before: Option<String>,
    /// What was written.
    pub after: String,
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
    pub fn value(&mut self, path: &str, before: &str, after: Option<&str>) {
        let after = after.map(str::to_owned);
        match self.live.iter_mut().find(|old| old.path == path) {
            Some(old) => old.after = after,
            None => self.live.push(OldValue { path: path.to_owned(), before: before.to_owned(), after }),
        }
    }

    /// A file before it is changed, likewise.
    pub fn file(&mut self, path: &str, before: Option<String>, after: &str) {
        match self.files.iter_mut().find(|old| old.path == path) {
            Some(old) => after.clone_into(&mut old.after),
            None => self.files.push(OldFile { path: path.to_owned(), before, after: after.to_owned() }),
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

    /// Goal: the oldest value stays through several changes, the newest is known.
    #[test]
    fn the_oldest_stays() {
        let mut journal = Journal::default();
        journal.value("/proc/sys/vm/x", "1", Some("2"));
        journal.value("/proc/sys/vm/x", "2", Some("3"));
        journal.file("/etc/x", None, "a");
        journal.file("/etc/x", Some("a".to_owned()), "b");
        assert_eq!((journal.live[0].before.as_str(), journal.live[0].after.as_deref()), ("1", Some("3")));
        assert_eq!((journal.files[0].before.as_ref(), journal.files[0].after.as_str()), (None, "b"));
        assert_eq!(upward("/var/lib/x"), ["/var", "/var/lib", "/var/lib/x"]);
    }
}
