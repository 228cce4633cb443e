//! What must always be true of a file system.

use crate::fs::{Body, Fs, Inode};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use skep_types::limits::{LINKS_MAX, XATTR_TOTAL_MAX, XATTR_VALUE_MAX};
use skep_types::{Ino, Kind};

/// What the directories say about one inode.
#[derive(Default)]
struct Found {
    names: u32,
    subdirs: u32,
    parent: Option<Ino>,
}

impl Fs {
    /// Checks the model itself: every entry leads to an inode, every directory has exactly one name and
    /// is reached from the root, link counts are those of the tree, what has no name has a handle,
    /// content and extended attributes are in form. The error says what is wrong and where.
    pub fn check(&self) -> Result<(), String> {
        let found = self.count_names()?;
        for (ino, inode) in &self.inodes {
            let none = Found::default();
            self.check_links(*ino, inode, found.get(ino).unwrap_or(&none))?;
            check_form(inode).map_err(|what| format!("{ino:?} {what}"))?;
            if !self.used.contains(ino) {
                return Err(format!("{ino:?} exists, but its number is not known as used"));
            }
        }
        self.check_reach()?;
        self.check_handles()
    }

    fn count_names(&self) -> Result<BTreeMap<Ino, Found>, String> {
        let mut found: BTreeMap<Ino, Found> = BTreeMap::new();
        for (dir, inode) in &self.inodes {
            let Body::Dir { entries, .. } = &inode.body else { continue };
            for (name, ino) in entries {
                let Some(child) = self.inodes.get(ino) else {
                    return Err(format!("entry {name:?} of {dir:?} leads to {ino:?}, which does not exist"));
                };
                let entry = found.entry(*ino).or_default();
                entry.names += 1;
                entry.parent = Some(*dir);
                if child.is_dir() {
                    found.entry(*dir).or_default().subdirs += 1;
                }
            }
        }
        Ok(found)
    }

    fn check_links(&self, ino: Ino, inode: &Inode, found: &Found) -> Result<(), String> {
        let expected = match &inode.body {
            Body::Dir { parent, entries } => {
                let names = if ino == Ino::ROOT { 0 } else { 1 };
                if inode.nlink == 0 && entries.is_empty() && found.names == 0 {
                    0
                } else if found.names != names {
                    return Err(format!("directory {ino:?} has {} names", found.names));
                } else if *parent != found.parent.unwrap_or(Ino::ROOT) {
                    return Err(format!(
                        "directory {ino:?} has {parent:?} as its parent, not {:?}",
                        found.parent
                    ));
                } else {
                    2 + found.subdirs
                }
            }
            _ => found.names,
        };
        if inode.nlink != expected {
            return Err(format!("{ino:?} has nlink {}, its names say {expected}", inode.nlink));
        }
        if inode.nlink == 0 && inode.opens == 0 {
            return Err(format!("{ino:?} has neither a name nor a handle, and still exists"));
        }
        if !inode.is_dir() && inode.nlink > LINKS_MAX {
            return Err(format!("{ino:?} has more than {LINKS_MAX} names"));
        }
        Ok(())
    }

    fn check_reach(&self) -> Result<(), String> {
        let mut reached = BTreeSet::from([Ino::ROOT]);
        let mut open = alloc::vec![Ino::ROOT];
        while let Some(dir) = open.pop() {
            let Ok(entries) = self.entries(dir) else { continue };
            for ino in entries.values() {
                if reached.insert(*ino) && self.inodes.get(ino).is_some_and(|inode| inode.is_dir()) {
                    open.push(*ino);
                }
            }
        }
        match self.inodes.iter().find(|(ino, inode)| inode.nlink > 0 && !reached.contains(ino)) {
            Some((ino, _)) => Err(format!("{ino:?} cannot be reached from the root")),
            None => Ok(()),
        }
    }

    fn check_handles(&self) -> Result<(), String> {
        let mut opens: BTreeMap<Ino, u32> = BTreeMap::new();
        for file in self.handles.values() {
            *opens.entry(file.ino).or_default() += 1;
        }
        for (ino, inode) in &self.inodes {
            let counted = opens.remove(ino).unwrap_or(0);
            if counted != inode.opens {
                return Err(format!("{ino:?} counts {} opens, {counted} handles lead to it", inode.opens));
            }
        }
        match opens.first_key_value() {
            Some((ino, _)) => Err(format!("a handle leads to {ino:?}, which does not exist")),
            None => Ok(()),
        }
    }
}

fn check_form(inode: &Inode) -> Result<(), &'static str> {
    if inode.mode & !0o7777 != 0 {
        return Err("has mode bits outside 07777");
    }
    if inode.xattrs.values().any(|value| value.len() > XATTR_VALUE_MAX) {
        return Err("has an extended attribute that is too large");
    }
    if inode.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > XATTR_TOTAL_MAX {
        return Err("has too many extended attributes");
    }
    match &inode.body {
        Body::File(content) => content.check(),
        Body::Special { kind: Kind::File | Kind::Dir | Kind::Symlink, .. } => {
            Err("is a special file of an ordinary kind")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::tests::{call, name, root};

    /// Goal: every invariant that is checked can fail, so a `check()` that passes means something.
    #[test]
    fn each_damage_is_found() {
        let mut sound = root();
        let dir = sound.mkdir(Ino::ROOT, &name("d"), 0o755, call(2)).unwrap();
        let file = sound.create(dir, &name("f"), 0o644, call(3)).unwrap();
        sound.write(file, 0, b"abc", false, call(0).now).unwrap();
        sound.check().unwrap();
        type Damage = fn(&mut Fs, Ino, Ino);
        let damages: [(Damage, &str); 9] = [
            (|fs, _, file| fs.inode_mut(file).unwrap().nlink = 2, "nlink 2"),
            (|fs, dir, _| fs.inode_mut(dir).unwrap().nlink = 3, "nlink 3"),
            (|fs, _, file| drop(fs.inodes.remove(&file)), "does not exist"),
            (|fs, dir, _| drop(fs.entries_mut(dir).unwrap().pop_first()), "nlink 1"),
            (
                |fs, dir, _| {
                    fs.entries_mut(Ino::ROOT).unwrap().insert(name("e"), dir);
                    fs.inode_mut(Ino::ROOT).unwrap().nlink = 4;
                },
                "2 names",
            ),
            (|fs, _, file| fs.inode_mut(file).unwrap().opens = 1, "counts 1 opens"),
            (|fs, _, file| fs.inode_mut(file).unwrap().mode = 0o10000, "mode bits"),
            (
                |fs, dir, _| {
                    if let Body::Dir { parent, .. } = &mut fs.inode_mut(dir).unwrap().body {
                        *parent = dir;
                    }
                },
                "as its parent",
            ),
            (
                |fs, _, file| {
                    let value = alloc::vec![0; XATTR_VALUE_MAX + 1];
                    fs.inode_mut(file).unwrap().xattrs.insert(b"user.a".to_vec(), value.into());
                },
                "too large",
            ),
        ];
        for (damage, message) in damages {
            let mut fs = sound.clone();
            damage(&mut fs, dir, file);
            let found = fs.check().unwrap_err();
            assert!(found.contains(message), "{found}");
        }
    }

    /// Goal: a ring of directories that nothing leads to is found, though each has one name.
    #[test]
    fn a_ring_is_found() {
        let mut fs = root();
        let outer = fs.mkdir(Ino::ROOT, &name("outer"), 0o755, call(2)).unwrap();
        let inner = fs.mkdir(outer, &name("inner"), 0o755, call(3)).unwrap();
        fs.entries_mut(Ino::ROOT).unwrap().clear();
        fs.inode_mut(Ino::ROOT).unwrap().nlink = 2;
        fs.entries_mut(inner).unwrap().insert(name("ring"), outer);
        fs.inode_mut(inner).unwrap().nlink = 3;
        if let Body::Dir { parent, .. } = &mut fs.inode_mut(outer).unwrap().body {
            *parent = inner;
        }
        assert!(fs.check().unwrap_err().contains("cannot be reached"));
    }
}
