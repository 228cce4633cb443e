//! The file system that settings are read from: that of this machine, or a directory that looks like it.
//!
//! Every path is given as on the machine (`/proc/sys/vm/swappiness`) and looked up below the root. Nothing
//! outside of the root is ever reached, whatever links lie in it.

use crate::recording::Recording;
use std::cell::RefCell;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Longest file that is read: settings are short, a table of mounts may be long.
pub const TEXT_MAX: u64 = 1 << 20;
/// Longest list of names of one directory: a host has that many processes, not more.
pub const NAMES_MAX: usize = 1 << 17;

#[derive(Debug)]
pub struct Root {
    dir: PathBuf,
    recording: Option<RefCell<Recording>>,
}

impl Root {
    /// The machine below `dir`; `/` is this one.
    pub fn new(dir: &Path) -> std::io::Result<Self> {
        Ok(Self { dir: dir.canonicalize()?, recording: None })
    }

    /// The same, remembering everything that is read.
    pub fn recording(dir: &Path) -> std::io::Result<Self> {
        Ok(Self { dir: dir.canonicalize()?, recording: Some(RefCell::default()) })
    }

    /// Is it this machine itself?
    pub fn is_live(&self) -> bool {
        self.dir == Path::new("/")
    }

    /// What makes a command line mean this machine: nothing for the live one, else ` --root DIR`, as a shell takes it.
    pub fn flag(&self) -> String {
        match self.is_live() {
            true => String::new(),
            false => format!(" --root {}", shell_word(&self.dir.to_string_lossy())),
        }
    }

    /// What was read so far, if it is remembered.
    pub fn recorded(&self) -> Option<Recording> {
        self.recording.as_ref().map(|recording| recording.borrow().clone())
    }

    /// Where a path of the machine is.
    pub fn path(&self, at: &str) -> PathBuf {
        let mut path = self.dir.clone();
        path.extend(Path::new(at).components().filter(|part| matches!(part, Component::Normal(_))));
        path
    }

    /// The path without symbolic links, as on the machine; none when it is not there or leads outside.
    pub fn real(&self, at: &str) -> Option<String> {
        let path = self.path(at).canonicalize().ok()?;
        let below = path.strip_prefix(&self.dir).ok()?.to_str()?;
        let real = format!("/{below}");
        if let Some(recording) = &self.recording {
            recording.borrow_mut().links(&self.dir, at);
        }
        Some(real)
    }

    /// A path as a person or a program means it, without symbolic links: on the machine itself it may be relative and
    /// have `..` in it; below another root nobody can say what that means. It must be there.
    pub fn meant(&self, at: &Path) -> io::Result<String> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        if self.is_live() {
            return at.canonicalize()?.into_os_string().into_string().map_err(|_| wrong("it is not UTF-8"));
        }
        if !at.is_absolute() || at.components().any(|part| part == Component::ParentDir) {
            return Err(wrong("below --root a path begins with / and has no .. in it"));
        }
        self.real(at.to_str().ok_or_else(|| wrong("it is not UTF-8"))?).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "it is not there, or a symbolic link leads out of the root",
            )
        })
    }

    /// The same of a path that may not be there yet: links are followed as far as it is. None when a link on the way leads
    /// nowhere or out of the root: then nobody can say where the path is.
    pub fn place(&self, at: &Path) -> Option<String> {
        for above in at.ancestors() {
            if let Ok(real) = self.meant(above) {
                let rest = at.strip_prefix(above).ok()?;
                let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
                let whole = if rest == Path::new("") { real.into() } else { Path::new(&real).join(rest) };
                return whole.into_os_string().into_string().ok().filter(|_| is_plain);
            }
            let there = if self.is_live() { above.to_owned() } else { self.path(above.to_str()?) };
            if there.is_symlink() {
                return None;
            }
        }
        None
    }

    /// Is it there?
    pub fn exists(&self, at: &str) -> bool {
        self.real(at).is_some()
    }

    /// The text of a file without the white space at its end; none when it cannot be read.
    pub fn text(&self, at: &str) -> Option<String> {
        let (text, real) = (self.glance(at)?, self.real(at)?);
        if let Some(recording) = &self.recording {
            recording.borrow_mut().file(&real, &text);
        }
        Some(text)
    }

    /// The same, not remembered: for what is only looked through, such as the names of all processes.
    pub fn glance(&self, at: &str) -> Option<String> {
        let path = self.path(at).canonicalize().ok()?;
        if !path.starts_with(&self.dir) {
            return None;
        }
        // Only files, and that before one is opened: a FIFO in a strange tree would hold the command up for ever.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let file = std::fs::File::open(path).ok()?;
        let mut bytes = Vec::new();
        file.take(TEXT_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// The same of something that is no file of the machine but was asked of a program or of the cluster: a recording
    /// holds it below `/.skep`. On the machine itself `ask` is asked.
    pub fn answer(&self, name: &str, ask: impl FnOnce() -> Option<String>) -> Option<String> {
        let text = if self.is_live() { ask()? } else { self.glance(&format!("/.skep/{name}"))? };
        self.remember(name, &text);
        Some(text)
    }

    /// A recording holds this below `/.skep`, too.
    pub fn remember(&self, name: &str, text: &str) {
        if let Some(recording) = &self.recording {
            recording.borrow_mut().file(&format!("/.skep/{name}"), text.trim_end());
        }
    }

    /// The first number in a file.
    pub fn number(&self, at: &str) -> Option<u64> {
        self.text(at)?.split_whitespace().next()?.parse().ok()
    }

    /// The first `len` bytes of a file or device; fewer when it is shorter. Of these a recording gets
    /// what `essence` leaves: what else lies on disks is nobody else's business.
    pub fn bytes(&self, at: &str, len: u64, essence: fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        use std::os::unix::fs::FileTypeExt;
        let real = self.real(at)?;
        let path = self.path(&real);
        let kind = std::fs::metadata(&path).ok()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return None;
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path).ok()?.take(len).read_to_end(&mut bytes).ok()?;
        if let (Some(recording), Some(kept)) = (&self.recording, essence(&bytes)) {
            recording.borrow_mut().bytes(&real, kept);
        }
        Some(bytes)
    }

    /// Names in a directory, in order; none when it is not there.
    pub fn names(&self, at: &str) -> Vec<String> {
        let Some(real) = self.real(at) else { return Vec::new() };
        let entries = std::fs::read_dir(self.path(&real)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).take(NAMES_MAX).collect();
        names.sort();
        if let Some(recording) = &self.recording {
            // Links that are only counted, such as the members of a RAID, are part of the machine too.
            let is_link = |name: &&String| self.path(&real).join(name).is_symlink();
            names.iter().filter(is_link).for_each(|name| {
                recording.borrow_mut().links(&self.dir, &format!("{real}/{name}"));
            });
        }
        names
    }
}

/// A word as a shell takes it.
pub fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a command that is printed for a machine means this machine, wherever it is pasted; the live one needs nothing.
    #[test]
    fn commands_name_their_machine() {
        assert_eq!(Root::new(Path::new("/")).unwrap().flag(), "");
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(Root::new(dir.path()).unwrap().flag(), format!(" --root {}", real.display()));
        let odd = dir.path().join("it's here");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(Root::new(&odd).unwrap().flag(), format!(" --root '{}/it'\\''s here'", real.display()));
    }

    /// Goal: paths stay below the root: dots are dropped, links that lead out are not followed.
    #[test]
    fn nothing_outside_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("root");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::fs::write(inside.join("open"), "5 6\n").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("out")).unwrap();
        std::os::unix::fs::symlink("open", inside.join("in")).unwrap();
        let root = Root::new(&inside).unwrap();
        assert_eq!(root.text("/../secret"), None);
        assert_eq!(root.text("/out"), None);
        assert!(!root.exists("/out"));
        assert_eq!(root.text("/in").as_deref(), Some("5 6"));
        assert_eq!(root.real("/in").as_deref(), Some("/open"));
        assert_eq!(root.number("/open"), Some(5));
        assert_eq!(root.names("/"), ["in", "open", "out"]);
        assert!(!root.is_live() && Root::new(Path::new("/")).unwrap().is_live());
    }

    /// Goal: links are followed as far as a path is there, also where the rest is yet to be made; what leads out of the
    /// root or nowhere is nowhere, and so is what only makes sense on the machine itself.
    #[test]
    fn where_paths_lead() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("mnt/nvme0/skep")).unwrap();
        for (link, target) in [("data", "mnt/nvme0"), ("out", "/mnt/nvme0"), ("nowhere", "mnt/nvme7")] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        let root = Root::new(dir.path()).unwrap();
        let place = |at: &str| root.place(Path::new(at));
        for (at, real) in [
            ("/data/skep", Some("/mnt/nvme0/skep")),
            ("/data/skep/t1/x", Some("/mnt/nvme0/skep/t1/x")),
            ("/new/t1", Some("/new/t1")),
            ("/", Some("/")),
            ("/out/t1", None),
            ("/nowhere/t1", None),
            ("data/skep", None),
            ("/mnt/../data", None),
        ] {
            assert_eq!(place(at).as_deref(), real, "{at}");
        }
        assert_eq!(root.meant(Path::new("/data/skep")).unwrap(), "/mnt/nvme0/skep");
        assert_eq!(root.meant(Path::new("/data/t1")).unwrap_err().kind(), io::ErrorKind::NotFound);
        // The machine itself.
        let live = Root::new(Path::new("/")).unwrap();
        let real = dir.path().canonicalize().unwrap();
        let odd = real.join("data/../nvme0/skep/t1");
        assert_eq!(live.place(&odd).map(PathBuf::from), Some(real.join("mnt/nvme0/skep/t1")));
        assert_eq!(live.place(&real.join("nowhere/t1")), None);
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(PathBuf::from(live.meant(Path::new("src")).unwrap()), here.join("src"));
    }

    /// Goal: a FIFO is not opened: without a writer that would wait for ever.
    #[test]
    fn a_fifo_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("fifo"), fifo, 0o600.into(), 0).unwrap();
        let (said, heard) = std::sync::mpsc::channel();
        let path = dir.path().to_owned();
        std::thread::spawn(move || said.send(Root::new(&path).unwrap().glance("/fifo")));
        assert_eq!(heard.recv_timeout(std::time::Duration::from_secs(120)), Ok(None));
    }
}
