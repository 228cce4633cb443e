//! Compares a directory, as a client sees it, with the oracle.

use crate::drive::{SimLane, list, read, stat_of, xattr_names};
use crate::loss::give_up;
use skep_client::{OpenHow, Port};
use skep_model::{Content, Fs, SETID, Stat, without_suidgid};
use skep_types::{Attr, Errno, Ino, Kind, Mode, Name};
use skep_wire::meta::OpenMode;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes read at a time.
const READ_MAX: u64 = 1 << 20;
/// Time between two looks at a file whose set-id bits are out of force, in milliseconds.
const LOOK_MS: u64 = 250;
/// Looks at it: the shard looks after the files of an ended mount within so many.
const LOOKS_MAX: u32 = 240;

/// Content as it was found where several are right.
#[derive(Debug, Clone)]
pub struct Adoption {
    /// The file, by the oracle's number.
    pub ino: Ino,
    pub size: u64,
    pub mode: Mode,
    pub owner: (u32, u32),
    /// Its bytes where there may be any.
    pub ranges: Vec<(u64, Vec<u8>)>,
}

/// Files whose content may be a mixture of versions.
#[derive(Debug, Default)]
pub struct Loose {
    /// The versions of each.
    pub files: BTreeMap<Ino, Vec<Content>>,
    /// Of these owner and mode may be others as well.
    pub owners: BTreeSet<Ino>,
    /// The mount is new: its predecessor may have ended with files open for writing, which keeps their set-id bits
    /// out of force until the shard has looked after them, and then clears what a write clears.
    pub inherited: bool,
    /// A file that ends with these bytes, after any part of its versions.
    pub appended: Option<(Ino, Vec<u8>)>,
}

struct Walk<'a> {
    lane: &'a SimLane,
    fs: &'a Fs,
    loose: &'a Loose,
    /// Number on the server by number in the oracle, so that hard links must agree.
    pairs: BTreeMap<Ino, Ino>,
    adoptions: Vec<Adoption>,
}

/// Compares everything below `root`; what was adopted, or the first difference.
pub async fn verify(lane: &SimLane, root: Ino, fs: &Fs, loose: &Loose) -> Result<Vec<Adoption>, String> {
    let mut walk = Walk { lane, fs, loose, pairs: BTreeMap::new(), adoptions: Vec::new() };
    let attr = lane.getattr(root).await.map_err(|errno| format!("/: {errno}"))?;
    walk.compare("/", &attr, Ino::ROOT).await?;
    let mut open = vec![(String::from("/"), attr, Ino::ROOT)];
    while let Some((path, attr, dir)) = open.pop() {
        for (name, ino) in walk.names(&path, &attr, dir).await? {
            let path = format!("{path}{}", name.display());
            let found = lane.lookup(attr.ino, name.as_bytes()).await;
            let found = found.map_err(|errno| format!("{path}: listed, but lookup gives {errno}"))?;
            if let Some(known) = walk.pairs.get(&ino) {
                if *known != found.ino {
                    return Err(format!("{path}: is not the hard link that it should be"));
                }
                continue;
            }
            let found = walk.settled(found, ino).await;
            walk.compare(&path, &found, ino).await?;
            if found.kind == Kind::Dir {
                open.push((path + "/", found, ino));
            }
        }
    }
    let numbers: BTreeSet<&Ino> = walk.pairs.values().collect();
    if numbers.len() != walk.pairs.len() {
        return Err("two inodes have one number".into());
    }
    Ok(walk.adoptions)
}

impl Walk<'_> {
    async fn names(&self, path: &str, attr: &Attr, dir: Ino) -> Result<Vec<(Name, Ino)>, String> {
        let expected = self.fs.readdir(dir).map_err(|errno| format!("{path}: oracle: {errno}"))?;
        let found = list(self.lane, attr).await.map_err(|errno| format!("{path}: listing: {errno}"))?;
        if let Some((name, _)) = expected.iter().find(|(name, kind)| found.get(*name) != Some(kind)) {
            return Err(format!("{path}{}: should be there, as {:?}", name.display(), expected[name]));
        }
        if let Some(name) = found.keys().find(|name| !expected.contains_key(*name)) {
            return Err(format!("{path}{}: should not be there", name.display()));
        }
        let ino = |name: Name| self.fs.lookup(dir, &name).ok().map(|ino| (name, ino));
        Ok(expected.into_keys().filter_map(ino).collect())
    }

    /// `found`, as it is when no set-id bit is out of force any more: one that no write clears comes back.
    async fn settled(&self, mut found: Attr, ino: Ino) -> Attr {
        let lasting = self.fs.stat(ino).map_or(0, |stat| without_suidgid(stat.mode) & SETID);
        for _ in 0..LOOKS_MAX {
            if !self.loose.inherited || found.kind != Kind::File || found.mode & lasting == lasting {
                break;
            }
            self.lane.port().pause(LOOK_MS).await;
            match self.lane.getattr(found.ino).await {
                Ok(attr) => found = attr,
                Err(_) => break,
            }
        }
        found
    }

    async fn compare(&mut self, path: &str, attr: &Attr, ino: Ino) -> Result<(), String> {
        self.pairs.insert(ino, attr.ino);
        let expected = self.fs.stat(ino).map_err(|errno| format!("{path}: oracle: {errno}"))?;
        let versions = self.loose.files.get(&ino);
        let found = stat_of(attr);
        let comparable = |stat: Stat| match versions {
            Some(_) if self.loose.owners.contains(&ino) => Stat { size: 0, mode: 0, uid: 0, gid: 0, ..stat },
            Some(_) => Stat { size: 0, mode: stat.mode & !SETID, ..stat },
            None => stat,
        };
        let cleared = self.loose.inherited
            && found.kind == Kind::File
            && found == Stat { mode: without_suidgid(expected.mode), ..expected };
        if comparable(found) != comparable(expected) && !cleared {
            return Err(format!("{path}: is {found:?}, should be {expected:?}"));
        }
        self.xattrs(path, attr.ino, ino, found.kind).await?;
        match found.kind {
            Kind::Symlink => {
                let target =
                    self.lane.readlink(attr.ino).await.map_err(|e| format!("{path}: readlink: {e}"))?;
                if Ok(&target) != self.fs.readlink(ino).as_ref() {
                    return Err(format!("{path}: leads elsewhere"));
                }
            }
            Kind::File => self.content(path, attr, ino, (versions, cleared)).await?,
            _ => {}
        }
        Ok(())
    }

    async fn xattrs(&self, path: &str, server: Ino, ino: Ino, kind: Kind) -> Result<(), String> {
        if !matches!(kind, Kind::File | Kind::Dir) {
            return Ok(());
        }
        let failed = |errno: Errno| format!("{path}: extended attributes: {errno}");
        let names = xattr_names(self.lane, server).await.map_err(failed)?;
        if Ok(&names) != self.fs.listxattr(ino).as_ref() {
            return Err(format!("{path}: has other extended attributes"));
        }
        for name in names {
            let value = self.lane.getxattr(server, &name).await.map_err(failed)?;
            if Ok(&value) != self.fs.getxattr(ino, &name).as_ref() {
                return Err(format!("{path}: value of {} differs", name.escape_ascii()));
            }
        }
        Ok(())
    }

    async fn content(
        &mut self,
        path: &str,
        attr: &Attr,
        ino: Ino,
        (versions, cleared): (Option<&Vec<Content>>, bool),
    ) -> Result<(), String> {
        let failed = |errno: Errno| format!("{path}: content: {errno}");
        let how = OpenHow { mode: OpenMode::Read, truncate: false, sync: false, kill_suidgid: false };
        let opened = self.lane.open(attr.ino, how).await.map_err(failed)?;
        let exact = [self.fs.content(ino).map_err(failed)?.clone()];
        let mut allowed = versions.map_or(&exact[..], Vec::as_slice).to_vec();
        if let Some((_, data)) = self.loose.appended.as_ref().filter(|(to, _)| *to == ino)
            && let Some(at) = opened.attr.size.checked_sub(data.len() as u64)
            && allowed.iter().any(|version| at <= version.size())
        {
            let mut ending = allowed.clone();
            for content in &mut ending {
                content.truncate(at);
                content.write(at, data);
            }
            allowed.extend(ending);
        }
        let mut result = ranges(self.lane, opened.handle, opened.attr.size, &allowed).await;
        if result.is_err() && give_up(self.lane, attr.ino).await? {
            result = ranges(self.lane, opened.handle, opened.attr.size, &allowed).await;
        }
        self.lane.release(opened.handle).await;
        let ranges = result.map_err(|what| format!("{path}: {what}"))?;
        if versions.is_some() || cleared {
            let (size, mode, owner) = (opened.attr.size, attr.mode, (attr.uid, attr.gid));
            self.adoptions.push(Adoption { ino, size, mode, owner, ranges });
        }
        Ok(())
    }
}

/// Reads wherever a version has bytes; each byte must be that of some version.
async fn ranges(
    lane: &SimLane,
    handle: u64,
    size: u64,
    allowed: &[Content],
) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let sizes = allowed.iter().map(Content::size);
    let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    if size < least || size > most {
        return Err(format!("opened with size {size}, should be {least} to {most}"));
    }
    let mut probes: Vec<(u64, u64)> = allowed.iter().flat_map(Content::probes).collect();
    probes.sort_unstable();
    let mut ranges = Vec::new();
    let mut at = 0;
    for (start, len) in probes {
        let (mut start, end) = (start.max(at), (start + len).min(size));
        while start < end {
            let len = (end - start).min(READ_MAX);
            let bytes =
                read(lane, handle, start, len as usize).await.map_err(|errno| format!("read: {errno}"))?;
            if bytes.len() as u64 != len {
                return Err(format!("read at {start} gives {} of {len} bytes", bytes.len()));
            }
            compare_bytes(start, &bytes, allowed)?;
            ranges.push((start, bytes));
            start += len;
        }
        at = at.max(end);
    }
    Ok(ranges)
}

fn compare_bytes(start: u64, bytes: &[u8], allowed: &[Content]) -> Result<(), String> {
    let padded = |content: &Content| {
        let mut part = content.read(start, bytes.len());
        part.resize(bytes.len(), 0);
        part
    };
    let parts: Vec<Vec<u8>> = allowed.iter().rev().map(padded).collect();
    if parts.first().is_some_and(|part| part == bytes) {
        return Ok(());
    }
    let wrong = (0..bytes.len()).find(|at| parts.iter().all(|part| part[*at] != bytes[*at]));
    match wrong {
        None => Ok(()),
        Some(at) => Err(format!(
            "byte {} is {:#04x}, should be {:#04x} ({} versions)",
            start + at as u64,
            bytes[at],
            parts[0][at],
            allowed.len()
        )),
    }
}
