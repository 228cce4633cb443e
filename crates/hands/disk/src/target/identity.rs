//! The identity file: it makes sure that the disk under a path is the disk that belongs there.

use super::seals::{SEALS, SealFiles};
use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, renameat, statvfs, unlinkat};
use skep_types::formats::Formats;
use skep_types::limits::FORMAT;
use skep_types::{ClusterId, TargetId, Uuid};
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Name of the identity file.
pub const IDENTITY_FILE: &str = "skep-target.toml";
/// Holds the marks of its server's last starts.
pub const AGES_FILE: &str = "skep-target.age";
/// Directory of the chunk files.
const CHUNKS: &str = "chunks";
/// An identity file is never longer.
const IDENTITY_BYTES_MAX: u64 = 4_096;

/// Who a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Its id; 0 between formatting and registration.
    pub target: TargetId,
    /// Chosen at random when it was formatted.
    pub uuid: Uuid,
}

/// Why a directory is not served. Each text says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError(pub String);

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TargetError {}

fn refuse<T>(path: &Path, text: impl fmt::Display) -> Result<T, TargetError> {
    Err(TargetError(format!("target {}: {text}", path.display())))
}

/// A target's directory, opened and locked.
pub(super) struct Opened {
    pub path: PathBuf,
    pub directory: OwnedFd,
    /// Held as long as the target is served.
    pub _lock: OwnedFd,
    pub identity: Option<Identity>,
}

impl Opened {
    /// Opens and locks a directory and reads its identity, if it has one.
    pub fn open(path: &Path) -> Result<Self, TargetError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => {
                return refuse(
                    path,
                    "there is no such directory; is the disk mounted? create it for a new target",
                );
            }
            Err(e) => return refuse(path, format_args!("cannot be opened: {e}")),
        };
        let lock_flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let lock = match openat(&directory, "lock", lock_flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::ROFS) => {
                return refuse(path, "is mounted read-only; check the disk, mount it writable");
            }
            Err(rustix::io::Errno::NOSPC) => {
                return refuse(path, "the file system is full to the last byte; free some space");
            }
            Err(e) => return refuse(path, format_args!("the lock file cannot be made: {e}")),
        };
        if crate::lock::hold(&lock).is_err() {
            return refuse(
                path,
                "another process serves it; stop that one first (see `fuser` on its file `lock`)",
            );
        }
        let identity =
            read(&directory).map_err(|text| TargetError(format!("target {}: {text}", path.display())))?;
        Ok(Self { path: path.to_owned(), directory, _lock: lock, identity })
    }

    /// Refuses what is not the expected cluster's. With `format`, an empty directory gets a new
    /// identity (without id: mgmtd gives it).
    pub fn check(&mut self, cluster: ClusterId, format: Option<Uuid>) -> Result<Identity, TargetError> {
        match self.identity {
            Some(identity) if identity.cluster != cluster => refuse(
                &self.path,
                format_args!(
                    "belongs to cluster {}, this is cluster {cluster}; a disk of another cluster is never overwritten",
                    identity.cluster
                ),
            ),
            Some(identity) => {
                self.require_chunks()?;
                self.require_seals()?;
                Ok(identity)
            }
            None => {
                let Some(uuid) = format else {
                    return refuse(
                        &self.path,
                        "has no skep-target.toml: the wrong disk, or not mounted? To make a new target of an empty directory start with --init",
                    );
                };
                self.require_empty()?;
                // Before the identity: from then on its absence is a loss.
                self.make_chunks()?;
                let identity = Identity { cluster, target: TargetId(0), uuid };
                self.write(identity)?;
                Ok(identity)
            }
        }
    }

    fn make_chunks(&self) -> Result<(), TargetError> {
        mkdirat(&self.directory, CHUNKS, Mode::from_raw_mode(0o700))
            .and_then(|()| SealFiles::make(&self.directory))
            .map_err(|e| TargetError(format!("target {}: {CHUNKS}: {e}", self.path.display())))
    }

    /// What was there at the format must be there: served without it, everything would read as holes.
    fn require_chunks(&self) -> Result<(), TargetError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(&self.directory, CHUNKS, flags, Mode::empty()) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::NOENT) => refuse(
                &self.path,
                "its directory chunks/ is gone, which holds the bytes of all files: put it back, from the newest copy \
                 that there is. If all is lost, remove the target (`skep target remove --force`) and make a new one",
            ),
            Err(e) => refuse(&self.path, format_args!("{CHUNKS} cannot be opened: {e}")),
        }
    }

    /// Without it a mount that has an old layout would write to a place that is nobody's any more.
    fn require_seals(&self) -> Result<(), TargetError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(&self.directory, SEALS, flags, Mode::empty()) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::NOENT) => refuse(
                &self.path,
                "its directory seals/ is gone, which says where files have gone on elsewhere: put it back from the newest                  copy that there is. If there is none, unmount the file system everywhere, then make an empty one",
            ),
            Err(e) => refuse(&self.path, format_args!("{SEALS} cannot be opened: {e}")),
        }
    }

    fn require_empty(&self) -> Result<(), TargetError> {
        let listing = rustix::fs::Dir::read_from(&self.directory);
        let entries = listing
            .map_err(|e| TargetError(format!("target {}: cannot be listed: {e}", self.path.display())))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Of a format that a crash ended.
            let ours = [CHUNKS, SEALS].contains(&name.as_str());
            if ours && unlinkat(&self.directory, name.as_str(), AtFlags::REMOVEDIR).is_ok() {
                continue;
            }
            // A fresh ext4 has lost+found; our own lock is there since a moment.
            if !matches!(name.as_str(), "." | ".." | "lock" | "lost+found" | "skep-target.toml.new") {
                return refuse(&self.path, format_args!("is not empty (it holds \"{name}\"): not formatted"));
            }
        }
        Ok(())
    }

    /// Writes the identity file so that a crash leaves the old one or the new one.
    pub fn write(&mut self, identity: Identity) -> Result<(), TargetError> {
        let failed =
            |e: std::io::Error| TargetError(format!("target {}: {IDENTITY_FILE}: {e}", self.path.display()));
        let text = text_of(identity);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let new = openat(&self.directory, "skep-target.toml.new", flags, Mode::from_raw_mode(0o644));
        let mut file = std::fs::File::from(new.map_err(|e| failed(e.into()))?);
        let made: std::io::Result<()> = (|| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            renameat(&self.directory, "skep-target.toml.new", &self.directory, IDENTITY_FILE)?;
            fsync(&self.directory)?;
            Ok(())
        })();
        if let Err(e) = made {
            let _ = unlinkat(&self.directory, "skep-target.toml.new", AtFlags::empty());
            return Err(failed(e));
        }
        self.identity = Some(identity);
        Ok(())
    }

    /// The file system below must not be mounted read-only.
    pub fn require_writable(&self) -> Result<(), TargetError> {
        let info = statvfs(&self.path)
            .map_err(|e| TargetError(format!("target {}: statvfs: {e}", self.path.display())))?;
        if info.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return refuse(&self.path, "is mounted read-only; check the disk, mount it writable");
        }
        Ok(())
    }
}

/// Reads the identity file of an open directory; `None` when there is none.
fn read(directory: &OwnedFd) -> Result<Option<Identity>, String> {
    let file = match openat(directory, IDENTITY_FILE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => std::fs::File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(format!("{IDENTITY_FILE} cannot be opened: {e}")),
    };
    let mut text = String::new();
    let read = file.take(IDENTITY_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|e| format!("{IDENTITY_FILE} cannot be read: {e}"))?;
    parse(&text).map(Some).map_err(|what| {
        format!("{IDENTITY_FILE} is damaged ({what}); if the disk is the right one, restore the file from a backup of it")
    })
}

/// Is the directory of the one format that this release opens? `format` is what its identity file says.
pub fn check_format(format: Option<&toml::Value>) -> Result<(), String> {
    let known = toml::Value::String(FORMAT.to_owned());
    match format {
        Some(format) if *format == known => Ok(()),
        None => Err("no format".to_owned()),
        Some(other) => Err(format!(
            "format {other}, this release opens {known} only: start the release that wrote it, or make a new cluster"
        )),
    }
}

fn text_of(identity: Identity) -> String {
    format!(
        "# Written by skep storaged. Ties this disk to its place in the cluster; do not edit or copy.\n\
         format = \"{FORMAT}\"\ncluster = \"{}\"\ntarget = {}\nuuid = \"{}\"\n",
        identity.cluster, identity.target, identity.uuid
    )
}

/// See [`crate::formats`].
pub(super) fn formats(formats: &mut Formats) {
    let identity = Identity { cluster: Uuid([1; 16]), target: TargetId(101), uuid: Uuid([2; 16]) };
    formats.bytes("target.identity", text_of(identity).as_bytes(), again);
}

fn again(bytes: &[u8]) -> Option<Vec<u8>> {
    let identity = parse(std::str::from_utf8(bytes).ok()?).ok()?;
    Some(text_of(identity).into_bytes())
}

fn parse(text: &str) -> Result<Identity, String> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
    let number = |key: &str| table.get(key).and_then(toml::Value::as_integer).ok_or(format!("no {key}"));
    let uuid = |key: &str| {
        table.get(key).and_then(toml::Value::as_str).and_then(Uuid::parse).ok_or(format!("no {key}"))
    };
    check_format(table.get("format"))?;
    let target = u32::try_from(number("target")?).map_err(|_| "target out of range".to_owned())?;
    Ok(Identity { cluster: uuid("cluster")?, target: TargetId(target), uuid: uuid("uuid")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: damaged and newer identity files are refused with a reason, never taken for absent.
    #[test]
    fn damaged_identities_are_refused() {
        let good = format!(
            "format = \"{FORMAT}\"\ncluster = \"01010101-0101-0101-0101-010101010101\"\ntarget = 101\n\
             uuid = \"02020202-0202-0202-0202-020202020202\"\n"
        );
        let identity = parse(&good).unwrap();
        assert_eq!((identity.target, identity.uuid), (TargetId(101), Uuid([2; 16])));
        assert!(parse("").is_err());
        let only = format!("opens \"{FORMAT}\" only");
        let quoted = format!("\"{FORMAT}\"");
        assert!(parse(&good.replace(&quoted, "\"dev-5\"")).unwrap_err().contains(&only));
        let number = good.replace(&quoted, "1");
        assert!(parse(&number).unwrap_err().contains("format 1, this release"));
        assert!(parse(&good.replace("101", "-1")).is_err());
        assert!(parse(&good.replace("0202", "02")).is_err());
        for n in 0..good.len() - 1 {
            let cut = parse(&good[..n]);
            assert!(cut.is_err() || cut == Ok(identity), "cut at {n}");
        }
    }
}
