//! The directories of a tree and the names of what lies in them.

use crate::job::{Items, MetaJob};
use std::fmt::Write;
use std::path::Path;

/// Whether a name is that of a directory of the tree, not of an item.
pub(crate) fn is_branch(name: &[u8]) -> bool {
    name.strip_prefix(b"t").is_some_and(digits)
}

/// Whether a name is that of an item: `<f|d><renames>.<owner>.<number>`.
pub(crate) fn is_item(name: &[u8]) -> bool {
    let Some((b'f' | b'd', numbers)) = name.split_first() else { return false };
    let mut parts = numbers.split(|byte| *byte == b'.');
    parts.clone().count() == 3 && parts.all(digits)
}

fn digits(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// One tree: its directories from the root down, level by level.
pub(super) struct Tree {
    directories: Vec<String>,
    /// Index of the first that holds items.
    first_holder: usize,
    items: Items,
}

impl Tree {
    /// The tree of a job at its root.
    pub fn new(base: &Path, meta: &MetaJob) -> Self {
        let mut directories = vec![base.display().to_string()];
        let mut level = 0..1;
        for _ in 0..meta.tree.depth {
            for parent in level.clone() {
                for child in 0..meta.tree.branching {
                    directories.push(format!("{}/t{child}", directories[parent]));
                }
            }
            level = level.end..directories.len();
        }
        let first_holder = if meta.tree.leaf_only { level.start } else { 0 };
        Self { directories, first_holder, items: meta.items }
    }

    /// All of them, parents first.
    pub fn directories(&self) -> &[String] {
        &self.directories
    }

    /// Those that hold items.
    pub fn holders(&self) -> &[String] {
        &self.directories[self.first_holder..]
    }

    /// Items of one worker in a holder.
    pub fn items_in(&self, holder: u64) -> u64 {
        match self.items {
            Items::PerDirectory(items) => items,
            Items::Total(items) => {
                let holders = self.holders().len() as u64;
                items / holders + u64::from(holder < items % holders)
            }
        }
    }

    fn holder_of(&self, item: u64) -> u64 {
        match self.items {
            Items::PerDirectory(items) => item / items.max(1),
            Items::Total(items) => {
                let holders = self.holders().len() as u64;
                let (each, more) = (items / holders, items % holders);
                let in_more = more * (each + 1);
                if item < in_more { item / (each + 1) } else { more + (item - in_more) / each.max(1) }
            }
        }
    }

    /// Writes the path of an item: `<directory>/<f|d><renames>.<owner>.<number>`.
    pub fn item(&self, path: &mut String, directory: bool, renames: u32, owner: u32, item: u64) {
        path.clear();
        let kind = if directory { 'd' } else { 'f' };
        let holder = &self.holders()[self.holder_of(item) as usize];
        // Writing to a string cannot fail.
        let _ = write!(path, "{holder}/{kind}{renames}.{owner}.{item}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::TreeShape;

    /// Goal: what a worker is said to hold of a tree is what it holds, also with long paths.
    #[test]
    fn memory() {
        for (dir, depth, branching) in [("/d".to_owned(), 2, 12), (format!("/{}", "x".repeat(2_000)), 3, 9)] {
            let shape = TreeShape { branching, depth, leaf_only: true };
            let meta = MetaJob { tree: shape, ..MetaJob::new(&dir) };
            let root = crate::job::root(&meta.paths, &meta.name, 0).join(crate::meta::own_tree(0));
            let tree = Tree::new(&root, &meta);
            let texts: usize = tree.directories.iter().map(String::capacity).sum();
            let held = (texts + tree.directories.capacity() * size_of::<String>()) as u64;
            let said = meta.held_paths();
            assert!(held <= said && said <= 4 * held, "{held} of {said}");
        }
    }

    fn tree(depth: u32, branching: u32, leaf_only: bool, items: Items) -> Tree {
        let shape = TreeShape { branching, depth, leaf_only };
        Tree::new(Path::new("/b"), &MetaJob { tree: shape, items, ..MetaJob::new("/") })
    }

    /// Goal: parents come before their children, and the shape counts what is made.
    #[test]
    fn shapes() {
        let tree = tree(2, 3, true, Items::PerDirectory(2));
        assert_eq!((tree.directories().len(), tree.holders().len()), (13, 9));
        assert_eq!(tree.directories()[1..5], ["/b/t0", "/b/t1", "/b/t2", "/b/t0/t0"]);
        assert_eq!(tree.holders()[8], "/b/t2/t2");
        let mut path = String::new();
        tree.item(&mut path, false, 1, 7, 17);
        assert_eq!(path, "/b/t2/t2/f1.7.17");
    }

    /// Goal: only names that such a job gives are taken for its own.
    #[test]
    fn own_names() {
        assert!(is_branch(b"t0") && is_branch(b"t17") && is_item(b"f1.7.17") && is_item(b"d0.0.0"));
        for name in ["t", "tax.ods", "thesis", "f1.7", "f1.7.17.old", "f.1.2", "file", "d1.2.x", "x1.2.3", ""]
        {
            assert!(!is_branch(name.as_bytes()) && !is_item(name.as_bytes()), "{name}");
        }
    }

    /// Goal: items are spread evenly and each directory has as many as it is said to have.
    #[test]
    fn spread() {
        for items in [1, 3, 12, 13, 40, 100] {
            let tree = tree(2, 3, false, Items::Total(items));
            let mut counts = [0; 13];
            (0..items).for_each(|item| counts[tree.holder_of(item) as usize] += 1);
            for (holder, count) in counts.iter().enumerate() {
                assert_eq!(tree.items_in(holder as u64), *count, "{items}");
            }
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        }
    }
}
