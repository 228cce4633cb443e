//! What touches the disk and the kernel, apart, so that tests can make any single step fail.

use crate::Root;
use crate::host::{Identity, identity};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// End of the name of a file that is being written.
pub const UNFINISHED: &str = ".skep-new";
/// Longest file that is read or changed, the undo file too: a machine may have thousands of drives, each with a line for
/// every value.
pub const FILE_MAX: u64 = 64 << 20;

/// Steps that change something, and the reading in between. Paths are those of the machine.
pub trait Hands {
    /// What makes a command line mean the machine that they work on: see [`Root::flag`].
    fn flag(&self) -> String {
        String::new()
    }
    /// A file's content; none when it is not there.
    fn read(&mut self, path: &str) -> io::Result<Option<String>>;
    /// Every disk with all names that tell it from others.
    fn disks(&mut self) -> io::Result<Vec<(String, Vec<Identity>)>>;
    /// The names of one disk.
    fn names_of(&mut self, disk: &str) -> io::Result<Vec<Identity>>;
    /// Writes a value to a file of the kernel.
    fn set(&mut self, path: &str, value: &str) -> io::Result<()>;
    /// Makes a directory; false when it is there already.
    fn make_dir(&mut self, path: &str) -> io::Result<bool>;
    /// Writes the file under its unfinished name, durably.
    fn write_unfinished(&mut self, path: &str, content: &str) -> io::Result<()>;
    /// Gives the unfinished file its name, durably.
    fn finish(&mut self, path: &str) -> io::Result<()>;
    /// Removes a file if it is there, durably.
    fn remove(&mut self, path: &str) -> io::Result<()>;
    /// Removes a directory if it is there and empty.
    fn remove_dir(&mut self, path: &str) -> io::Result<()>;
}

/// The machine below a root.
#[derive(Debug)]
pub struct RealHands<'a>(pub &'a Root);

impl RealHands<'_> {
    /// Where a path is; refused when a link on the way leads out of the root.
    fn place(&self, path: &str) -> io::Result<PathBuf> {
        let place = self.0.path(path);
        let parent = place.parent().unwrap_or(Path::new("/")).canonicalize()?;
        if !parent.starts_with(self.0.path("/")) {
            return Err(io::Error::other("a symbolic link leads out of the root; nothing is written there"));
        }
        Ok(parent.join(place.file_name().unwrap_or_default()))
    }

    /// A file as it is, a link followed when it stays inside.
    fn followed(&self, path: &str) -> io::Result<PathBuf> {
        match self.0.real(path) {
            Some(real) => Ok(self.0.path(&real)),
            None => self.place(path),
        }
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    std::fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

impl Hands for RealHands<'_> {
    fn flag(&self) -> String {
        self.0.flag()
    }

    fn read(&mut self, path: &str) -> io::Result<Option<String>> {
        let mut text = String::new();
        let place = match self.followed(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            place => place?,
        };
        match std::fs::File::open(place) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?.take(FILE_MAX + 1).read_to_string(&mut text)?,
        };
        if text.len() as u64 > FILE_MAX {
            return Err(io::Error::other("it is too long to be a file of settings"));
        }
        Ok(Some(text))
    }

    fn disks(&mut self) -> io::Result<Vec<(String, Vec<Identity>)>> {
        Ok(identity::of_all(self.0))
    }

    fn names_of(&mut self, disk: &str) -> io::Result<Vec<Identity>> {
        Ok(identity::all(self.0, disk))
    }

    fn set(&mut self, path: &str, value: &str) -> io::Result<()> {
        let real = self.0.real(path).ok_or(io::ErrorKind::NotFound)?;
        // In one write, as the kernel wants it; below /proc and /sys nothing is truncated.
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(self.0.path(&real))?;
        file.write_all(format!("{value}\n").as_bytes())
    }

    fn make_dir(&mut self, path: &str) -> io::Result<bool> {
        let place = self.place(path)?;
        match std::fs::create_dir(&place) {
            Ok(()) => sync_dir(&place).map(|()| true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn write_unfinished(&mut self, path: &str, content: &str) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
        let place = self.followed(path)?;
        let mut name = place.clone().into_os_string();
        name.push(UNFINISHED);
        let old = std::fs::metadata(&place).ok();
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&name)?;
        file.write_all(content.as_bytes())?;
        // A file that was there keeps its mode and owner.
        if let Some(old) = old {
            file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o7777))?;
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.sync_all()
    }

    fn finish(&mut self, path: &str) -> io::Result<()> {
        let place = self.followed(path)?;
        let mut name = place.clone().into_os_string();
        name.push(UNFINISHED);
        std::fs::rename(&name, &place)?;
        sync_dir(&place)
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        let place = match self.place(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            place => place?,
        };
        match absent_is_fine(std::fs::remove_file(&place))? {
            true => sync_dir(&place),
            false => Ok(()),
        }
    }

    fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        let place = match self.place(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            place => place?,
        };
        match absent_is_fine(std::fs::remove_dir(&place)) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other.map(drop),
        }
    }
}
