//! The calls on items and on the tree's directories, in the form that a job says.
//!
//! By full path every call walks all of it again, which is what [`Lookup::Path`] is for. mkdir, rename, unlink and rmdir
//! have no flag that refuses links, so here the path is walked by an open of the parent that has one: the names that are
//! looked up are those of the plain call, and no link leads elsewhere. stat changes nothing, and is the plain call.

use crate::engine::ground;
use crate::job::Lookup;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::path::Path;

/// Walks the path anew where the form says so.
fn anew(lookup: Lookup) {
    if lookup == Lookup::Path {
        ground::forget();
    }
}

pub(super) fn mkdir(lookup: Lookup, path: &Path) -> Result<(), Errno> {
    anew(lookup);
    ground::mkdir(path)
}

pub(super) fn rmdir(lookup: Lookup, path: &Path) -> Result<(), Errno> {
    anew(lookup);
    ground::rmdir(path)
}

pub(super) fn unlink(lookup: Lookup, path: &Path) -> Result<(), Errno> {
    anew(lookup);
    ground::unlink(path)
}

/// rename: both paths are walked.
pub(super) fn rename(lookup: Lookup, from: &Path, to: &Path) -> Result<(), Errno> {
    anew(lookup);
    match lookup {
        Lookup::Directory => ground::rename(from, to),
        Lookup::Path => {
            let (from_directory, from) = ground::parent(from)?;
            ground::forget();
            let (to_directory, to) = ground::parent(to)?;
            rustix::fs::renameat(from_directory, from, to_directory, to)
        }
    }
}

pub(super) fn stat(lookup: Lookup, path: &Path) -> Result<(), Errno> {
    match lookup {
        Lookup::Directory => ground::stat(path).map(drop),
        Lookup::Path => rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: by full path every call finds what bears the path at that moment; by the directory that is held open, what
    /// was there at first, also when the directory has another name by now.
    #[test]
    fn a_path_is_walked_by_every_call() {
        type Call = fn(Lookup, &Path) -> Result<(), Errno>;
        let renamed: Call = |lookup, path| rename(lookup, path, &path.with_file_name("other"));
        for lookup in [Lookup::Directory, Lookup::Path] {
            for (call, directory) in [(stat as Call, false), (unlink, false), (renamed, false), (rmdir, true)]
            {
                let scratch = tempfile::tempdir().unwrap();
                let top = scratch.path().canonicalize().unwrap();
                let (here, moved) = (top.join("here"), top.join("moved"));
                std::fs::create_dir(&here).unwrap();
                let item = here.join("item");
                let made = if directory { std::fs::create_dir(&item) } else { std::fs::write(&item, "") };
                made.unwrap();
                // The directory is known from now on, if anything is kept.
                ground::forget();
                mkdir(lookup, &here.join("first")).unwrap();
                std::fs::rename(&here, &moved).unwrap();
                std::fs::create_dir(&here).unwrap();
                let expected = if lookup == Lookup::Path { Err(Errno::NOENT) } else { Ok(()) };
                assert_eq!(call(lookup, &item), expected, "{lookup:?}");
                mkdir(lookup, &here.join("second")).unwrap();
                let place = if lookup == Lookup::Path { &here } else { &moved };
                assert!(place.join("second").exists(), "{lookup:?}");
            }
        }
        ground::forget();
    }

    /// Goal: by full path, too, nothing is made, moved or removed behind a link.
    #[test]
    fn no_link_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("real")).unwrap();
        std::fs::write(top.join("real/file"), "x").unwrap();
        std::os::unix::fs::symlink(top.join("real"), top.join("link")).unwrap();
        let through = top.join("link/file");
        let calls = [
            unlink(Lookup::Path, &through),
            rmdir(Lookup::Path, &through),
            mkdir(Lookup::Path, &top.join("link/new")),
            rename(Lookup::Path, &through, &top.join("link/new")),
            rename(Lookup::Path, &top.join("real/file"), &top.join("link/new")),
        ];
        for call in calls {
            assert!(matches!(call, Err(Errno::LOOP | Errno::NOTDIR)), "{call:?}");
        }
        assert!(top.join("real/file").exists() && !top.join("real/new").exists());
        ground::forget();
    }
}
