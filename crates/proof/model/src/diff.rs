//! The first difference between two file systems.

use crate::fs::{Body, Fs};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use skep_types::{Errno, Ino};

/// What counts as a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Everything but inode numbers, change counters and space in use.
    Everything,
    /// Times do not count either: the two had different clocks.
    WithoutTimes,
}

/// Pairs of inodes that are the same file on both sides, so that hard links must agree.
#[derive(Default)]
struct Pairs {
    left: BTreeMap<Ino, Ino>,
    right: BTreeMap<Ino, Ino>,
}

impl Pairs {
    /// True the first time that the two are met; an error when one of them was met with another.
    fn meet(&mut self, a: Ino, b: Ino) -> Result<bool, String> {
        match (self.left.insert(a, b), self.right.insert(b, a)) {
            (None, None) => Ok(true),
            (Some(old_b), Some(old_a)) if (old_a, old_b) == (a, b) => Ok(false),
            _ => Err(String::from("is a hard link to different files")),
        }
    }
}

/// Walks both trees, then both sets of open handles, and describes the first difference: the path (or
/// handle) and what is on either side. Inode numbers may differ, as long as equal names lead to equal
/// files, hard links included. `None`: no difference.
pub fn diff(a: &Fs, b: &Fs, compare: Compare) -> Option<String> {
    let mut pairs = Pairs::default();
    walk(a, b, compare, &mut pairs).err()
}

fn walk(a: &Fs, b: &Fs, compare: Compare, pairs: &mut Pairs) -> Result<(), String> {
    let mut open = alloc::vec![(String::from("/"), Ino::ROOT, Ino::ROOT)];
    while let Some((path, left, right)) = open.pop() {
        if !pairs.meet(left, right).map_err(|what| format!("{path} {what}"))? {
            continue;
        }
        compare_inodes((a, left), (b, right), compare).map_err(|what| format!("{path}: {what}"))?;
        let (Ok(mine), Ok(theirs)) = (a.entries(left), b.entries(right)) else { continue };
        for (name, ino) in mine {
            let path = format!("{path}{}", name.display());
            let Some(other) = theirs.get(name) else { return Err(format!("{path} is missing on the right")) };
            let dir = a.inodes.get(ino).is_some_and(|inode| inode.is_dir());
            open.push((if dir { path + "/" } else { path }, *ino, *other));
        }
        if let Some(name) = theirs.keys().find(|name| !mine.contains_key(*name)) {
            return Err(format!("{path}{} is missing on the left", name.display()));
        }
    }
    for (handle, left) in &a.handles {
        let Some(right) = b.handles.get(handle) else {
            return Err(format!("handle {} is not open on the right", handle.0));
        };
        if left.access != right.access {
            return Err(format!("handle {}: {:?} | {:?}", handle.0, left.access, right.access));
        }
        if pairs.meet(left.ino, right.ino).map_err(|what| format!("handle {} {what}", handle.0))? {
            let result = compare_inodes((a, left.ino), (b, right.ino), compare);
            result.map_err(|what| format!("handle {}: {what}", handle.0))?;
        }
    }
    match b.handles.keys().find(|handle| !a.handles.contains_key(handle)) {
        Some(handle) => Err(format!("handle {} is not open on the left", handle.0)),
        None => Ok(()),
    }
}

fn compare_inodes((a, left): (&Fs, Ino), (b, right): (&Fs, Ino), compare: Compare) -> Result<(), String> {
    let missing = |e: Errno| format!("a name leads nowhere: {e}");
    let (stat_a, stat_b) = (a.stat(left).map_err(missing)?, b.stat(right).map_err(missing)?);
    if stat_a != stat_b {
        return Err(format!("{stat_a:?} | {stat_b:?}"));
    }
    let (left, right) = (a.inode(left).map_err(missing)?, b.inode(right).map_err(missing)?);
    let times = |inode: &crate::fs::Inode| (inode.atime, inode.mtime, inode.ctime, inode.btime);
    if compare == Compare::Everything && times(left) != times(right) {
        return Err(format!("times {:?} | {:?}", times(left), times(right)));
    }
    if let Some((name, _)) = left.xattrs.iter().find(|(name, value)| right.xattrs.get(*name) != Some(value)) {
        return Err(format!("extended attribute {} differs", String::from_utf8_lossy(name)));
    }
    if let Some(name) = right.xattrs.keys().find(|name| !left.xattrs.contains_key(*name)) {
        return Err(format!("extended attribute {} is missing on the left", String::from_utf8_lossy(name)));
    }
    match (&left.body, &right.body) {
        (Body::File(mine), Body::File(theirs)) if mine != theirs => {
            for (offset, len) in mine.probes().into_iter().chain(theirs.probes()) {
                let (x, y) = (mine.read(offset, len as usize), theirs.read(offset, len as usize));
                if let Some(at) = x.iter().zip(&y).position(|(x, y)| x != y) {
                    let byte = offset + at as u64;
                    return Err(format!("byte {byte} is {:#04x} | {:#04x}", x[at], y[at]));
                }
            }
            Err(String::from("content differs"))
        }
        (Body::Symlink(mine), Body::Symlink(theirs)) if mine != theirs => {
            Err(String::from("target of the link differs"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Access, Handle};
    use crate::namespace::tests::{call, name, root, time};
    use crate::xattr::XattrHow;
    use skep_types::SetAttr;

    /// Goal: numbers may differ, everything a program can see may not; each kind of difference is named.
    #[test]
    fn finds_what_programs_can_see() {
        let build = |first: u64| {
            let mut fs = root();
            let dir = fs.mkdir(Ino::ROOT, &name("d"), 0o755, call(first)).unwrap();
            let file = fs.create(dir, &name("f"), 0o644, call(first + 1)).unwrap();
            fs.link(file, Ino::ROOT, &name("g"), time(1)).unwrap();
            fs.write(file, 10_000, b"abc", false, time(1)).unwrap();
            fs.setxattr(file, b"user.a", b"1", XattrHow::Set, time(1)).unwrap();
            (fs, dir, file)
        };
        let (a, ..) = build(2);
        let (same, ..) = build(70);
        assert_eq!(diff(&a, &same, Compare::Everything), None);
        type Change = fn(&mut Fs, Ino, Ino);
        let changes: [(Change, &str); 8] = [
            (
                |fs, _, file| assert_eq!(fs.write(file, 10_001, b"x", false, time(1)), Ok(1)),
                "/d/f: byte 10001",
            ),
            (
                |fs, _, file| fs.setxattr(file, b"user.a", b"2", XattrHow::Set, time(1)).unwrap(),
                "user.a differs",
            ),
            (
                |fs, _, file| fs.setxattr(file, b"user.b", b"2", XattrHow::Set, time(1)).unwrap(),
                "user.b is missing",
            ),
            (|fs, dir, _| drop(fs.entries_mut(dir).unwrap().pop_first()), "/d/f is missing on the right"),
            (
                |fs, dir, _| assert_eq!(fs.create(dir, &name("h"), 0, call(99)), Ok(Ino(99))),
                "/d/h is missing on the left",
            ),
            (
                |fs, _, file| fs.open(Handle(3), file, Access::default()).unwrap(),
                "handle 3 is not open on the left",
            ),
            (
                |fs, _, file| {
                    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                    fs.setattr(file, &set, time(1)).unwrap();
                },
                "/d/f: Stat",
            ),
            (|fs, _, file| fs.inode_mut(file).unwrap().mtime = time(9), "times"),
        ];
        for (change, message) in changes {
            let (mut b, dir, file) = build(70);
            change(&mut b, dir, file);
            let found = diff(&a, &b, Compare::Everything).unwrap();
            // A hard link is met by either of its names.
            let by_other_name = message.replace("/d/f: ", "/g: ");
            assert!(found.contains(message) || found.contains(&by_other_name), "{found}");
            if message == "times" {
                assert_eq!(diff(&a, &b, Compare::WithoutTimes), None);
            }
        }
    }

    /// Goal: two names of one file are not two files with the same content and link count.
    #[test]
    fn hard_links_must_agree() {
        let mut a = root();
        let mut b = root();
        for (fs, cross) in [(&mut a, false), (&mut b, true)] {
            let x = fs.create(Ino::ROOT, &name("x1"), 0o644, call(2)).unwrap();
            let y = fs.create(Ino::ROOT, &name("y1"), 0o644, call(3)).unwrap();
            let (second, third) = if cross { (y, x) } else { (x, y) };
            fs.link(second, Ino::ROOT, &name("x2"), time(1)).unwrap();
            fs.link(third, Ino::ROOT, &name("y2"), time(1)).unwrap();
        }
        let found = diff(&a, &b, Compare::WithoutTimes).unwrap();
        assert!(found.contains("hard link to different files"), "{found}");
    }
}
