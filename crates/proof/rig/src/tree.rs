//! A directory against the oracle.

use crate::attributes::{self, Place};
use crate::extended;
use crate::wait::{PATIENCE, until};
use skep_model::{Content, Fs, Stat};
use skep_types::{Ino, Kind, Mode, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file up to this size is read whole, a larger one where the oracle has bytes, and beside them.
const READ_WHOLE: u64 = 64 << 20;
/// Set-user-id and set-group-id.
const SET_ID: Mode = 0o6000;
/// Longest single read.
const TRANSFER: u64 = 1 << 20;

/// Compares `base` with the oracle's tree: names, attributes, hard links, contents, symbolic links,
/// extended attributes, and an mtime that was set explicitly (the two have different clocks: an
/// oracle's time from `clock` on is "now" and compared with nothing). The error is the first
/// difference; what the oracle says stands on the right.
pub fn compare_tree(base: &Path, oracle: &Fs, clock: i64, met: &mut dyn FnMut(&Path)) -> Result<(), String> {
    let mut seen: BTreeMap<Ino, u64> = BTreeMap::new();
    let mut places = vec![(base.to_owned(), Ino::ROOT)];
    for (names, ino) in oracle.walk() {
        let path =
            names.iter().fold(base.to_owned(), |path, name| path.join(OsStr::from_bytes(name.as_bytes())));
        places.push((path, ino));
    }
    for (path, ino) in places {
        met(&path);
        let met = compare_inode(&path, oracle, ino, clock, seen.get(&ino).copied());
        let number = met.map_err(|what| format!("{}: {what}", shown(&path)))?;
        seen.insert(ino, number);
    }
    let numbers: BTreeSet<u64> = seen.values().copied().collect();
    if numbers.len() != seen.len() {
        return Err(format!("{}: two files of the oracle have the same inode number", base.display()));
    }
    Ok(())
}

/// Compares one inode; one that was met by another name before must have the same number again.
fn compare_inode(path: &Path, oracle: &Fs, ino: Ino, clock: i64, met: Option<u64>) -> Result<u64, String> {
    let mut found = attributes::stat(Place::Path(path)).map_err(|e| format!("stat: {e}"))?;
    match met {
        Some(number) if number == found.ino => return Ok(number),
        Some(number) => return Err(format!("is inode {}, its other name is {number}", found.ino)),
        None => {}
    }
    let expected = oracle.stat(ino).map_err(|e| format!("oracle: {e}"))?;
    if hides_set_id(&found.stat, &expected) {
        found = until("set-id bits are shown again", PATIENCE, || {
            let found = attributes::stat(Place::Path(path)).map_err(|e| format!("stat: {e}"))?;
            if hides_set_id(&found.stat, &expected) { Err(format!("{:?}", found.stat)) } else { Ok(found) }
        })?;
    }
    if found.stat != expected {
        return Err(format!("{:?} | {expected:?}", found.stat));
    }
    let attr = oracle.getattr(ino).map_err(|e| format!("oracle: {e}"))?;
    if attr.mtime.secs < clock && found.mtime != attr.mtime {
        return Err(format!("mtime {:?} | {:?}", found.mtime, attr.mtime));
    }
    compare_xattrs(path, oracle, ino)?;
    match expected.kind {
        Kind::File => compare_content(path, oracle.content(ino).map_err(|e| format!("oracle: {e}"))?)?,
        Kind::Dir => compare_names(path, oracle, ino)?,
        Kind::Symlink => {
            let target = std::fs::read_link(path).map_err(|e| format!("readlink: {e}"))?;
            if oracle.readlink(ino).ok().as_deref() != Some(target.as_os_str().as_bytes()) {
                return Err(format!("leads to {}", target.display()));
            }
        }
        _ => {}
    }
    Ok(found.ino)
}

/// Is nothing missing but set-id bits? They are not shown while another mount may write to the file, and the kernel tells
/// of the last close some time after it was answered.
fn hides_set_id(found: &Stat, expected: &Stat) -> bool {
    let hidden = expected.mode & SET_ID & !found.mode;
    hidden != 0 && Stat { mode: found.mode | hidden, ..*found } == *expected
}

fn compare_names(path: &Path, oracle: &Fs, ino: Ino) -> Result<(), String> {
    let expected: BTreeSet<Name> =
        oracle.readdir(ino).map_err(|e| format!("oracle: {e}"))?.into_keys().collect();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(path).map_err(|e| format!("readdir: {e}"))? {
        let name = entry.map_err(|e| format!("readdir: {e}"))?.file_name();
        let name = Name::new(name.as_bytes()).map_err(|e| format!("name {}: {e:?}", name.display()))?;
        if !found.insert(name.clone()) {
            return Err(format!("shows {name:?} twice"));
        }
    }
    match found.symmetric_difference(&expected).next() {
        None => Ok(()),
        Some(name) if found.contains(name) => Err(format!("shows {name:?}, which the oracle does not have")),
        Some(name) => Err(format!("does not show {name:?}")),
    }
}

fn compare_xattrs(path: &Path, oracle: &Fs, ino: Ino) -> Result<(), String> {
    let place = Place::Path(path);
    let expected = oracle.listxattr(ino).map_err(|e| format!("oracle: {e}"))?;
    let found = extended::list(place).map_err(|e| format!("listxattr: {e}"))?;
    if let Some(name) = found.symmetric_difference(&expected).next() {
        let side = if found.contains(name) { "has" } else { "lacks" };
        return Err(format!("{side} extended attribute {}", name.escape_ascii()));
    }
    for name in &expected {
        let value = extended::get(place, name).map_err(|e| format!("getxattr: {e}"))?;
        if oracle.getxattr(ino, name).ok() != Some(value) {
            return Err(format!("extended attribute {} differs", name.escape_ascii()));
        }
    }
    Ok(())
}

fn compare_content(path: &Path, expected: &Content) -> Result<(), String> {
    let file = File::open(path).map_err(|e| format!("open: {e}"))?;
    let whole = expected.size() <= READ_WHOLE;
    let ranges = if whole { vec![(0, expected.size())] } else { expected.probes() };
    for (start, len) in ranges {
        let mut at = start;
        while at < start + len {
            let part = TRANSFER.min(start + len - at);
            compare_part(&file, expected, at, part as usize)?;
            at += part;
        }
    }
    Ok(())
}

fn compare_part(file: &File, expected: &Content, at: u64, len: usize) -> Result<(), String> {
    let mut found = vec![0; len];
    file.read_exact_at(&mut found, at).map_err(|e| format!("read {len} bytes at {at}: {e}"))?;
    let expected = expected.read(at, len);
    let Some(first) = found.iter().zip(&expected).position(|(a, b)| a != b) else { return Ok(()) };
    let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
    let (a, b) = (found[first], expected[first]);
    Err(format!("byte {} is {a:#04x} | {b:#04x}; {wrong} of {len} bytes from {at} differ", at + first as u64))
}

/// A path with its long names cut, so that a message stays readable.
fn shown(path: &Path) -> String {
    let cut = |part: &OsStr| if part.len() > 40 { "<long>".into() } else { part.display().to_string() };
    path.components().map(|part| cut(part.as_os_str())).collect::<PathBuf>().display().to_string()
}
