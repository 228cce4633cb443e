//! Directories that are made for another tool's command line, which the tool would make itself. At the end they are
//! removed when nothing is in them; those that were there before are not touched.

use crate::bench::load::leaves;
use skep_base::{Failure, Outcome};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One of them, free of links, with what tells it from another of that name.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    dev: u64,
    ino: u64,
}

impl Directory {
    /// Still there, and the one that was made?
    fn is_there(&self) -> bool {
        let meta = self.path.symlink_metadata();
        meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == (self.dev, self.ino))
    }
}

/// Those of a command line, parents first.
#[derive(Debug, Default)]
pub struct Directories(Vec<Directory>);

impl Directories {
    /// Makes `path`, and what is missing above it.
    pub fn make(&mut self, path: &Path) -> Outcome {
        let mut whole: Vec<&Path> = path.ancestors().collect();
        whole.reverse();
        for here in whole {
            if here.as_os_str().is_empty() || here.is_dir() {
                continue;
            }
            match std::fs::create_dir(here) {
                Ok(()) => self.note(here)?,
                // Another host was quicker: it is not ours.
                Err(e) if e.kind() == ErrorKind::AlreadyExists && here.is_dir() => {}
                Err(e) => return Err(Failure::local(here.display(), e)),
            }
        }
        Ok(())
    }

    fn note(&mut self, here: &Path) -> Outcome {
        let wrong = |e| Failure::local(here.display(), e);
        let path = here.canonicalize().map_err(wrong)?;
        let meta = path.symlink_metadata().map_err(wrong)?;
        self.0.push(Directory { path, dev: meta.dev(), ino: meta.ino() });
        Ok(())
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        if leaves() {
            // A file system that hangs would hold this up.
            for directory in &self.0 {
                eprintln!("skep: left behind: {}", directory.path.display());
            }
            return;
        }
        for directory in self.0.iter().rev().filter(|directory| directory.is_there()) {
            match std::fs::remove_dir(&directory.path) {
                Err(e) if !matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {
                    eprintln!("skep: left behind: {} ({e})", directory.path.display());
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Goal: what was made is gone at the end with its parents, also after an error midway; what was there before, is
    /// in use, or took the place of what was made, stays.
    #[test]
    fn only_what_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for there in ["there", "whole", "whole/inner"] {
            fs::create_dir(at(there)).unwrap();
        }
        fs::write(at("plain"), "mine").unwrap();
        let mut made = Directories::default();
        for path in ["new", "there/a/b", "whole/inner", "kept/c/d", "exchanged"] {
            made.make(&at(path)).unwrap();
        }
        let error = made.make(&at("plain")).unwrap_err().to_string();
        assert!(error.contains("plain"), "{error}");
        assert!(made.make(&at("plain/below")).is_err());
        fs::write(at("kept/c/item"), "").unwrap();
        // The old one stays until the new one is there: no inode number comes twice.
        fs::rename(at("exchanged"), at("moved")).unwrap();
        fs::create_dir(at("exchanged")).unwrap();
        drop(made);
        assert_eq!(names(dir.path()), ["exchanged", "kept", "moved", "plain", "there", "whole"]);
        assert_eq!(names(&at("kept/c")), ["item"]);
        assert!(names(&at("there")).is_empty());
        assert_eq!(names(&at("whole")), ["inner"]);
        assert_eq!(fs::read_to_string(at("plain")).unwrap(), "mine");
    }

    /// Goal: what was made lies where it was made, also when a link on the way is exchanged meanwhile.
    #[test]
    fn links_are_followed_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for there in ["one", "other", "other/x"] {
            fs::create_dir(at(there)).unwrap();
        }
        std::os::unix::fs::symlink(at("one"), at("link")).unwrap();
        let mut made = Directories::default();
        made.make(&at("link/x/y")).unwrap();
        assert!(at("one/x/y").is_dir());
        fs::remove_file(at("link")).unwrap();
        std::os::unix::fs::symlink(at("other"), at("link")).unwrap();
        drop(made);
        assert!(names(&at("one")).is_empty());
        assert_eq!(names(&at("other")), ["x"]);
    }
}
