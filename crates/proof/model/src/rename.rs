//! Rename, with the errors in the order in which Linux finds them.

use crate::fs::{Body, Fs};
use skep_types::{Errno, Ino, Name, Timestamp};

/// What `rename` does with a name that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameHow {
    Replace,
    /// Fails with EEXIST (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two; both must exist (`RENAME_EXCHANGE`).
    Exchange,
}

impl Fs {
    /// Gives `from_dir/from` the name `to_dir/to`.
    ///
    /// In this order: ENOENT (no source), EEXIST (`NoReplace`), ENOENT (`Exchange` without a target),
    /// EINVAL (into itself), ENOTEMPTY or, exchanging, EINVAL (over a directory above), nothing at all
    /// when both names lead to one inode, ENOTDIR, EISDIR, ENOTEMPTY.
    pub fn rename(
        &mut self,
        (from_dir, from): (Ino, &Name),
        (to_dir, to): (Ino, &Name),
        how: RenameHow,
        now: Timestamp,
    ) -> Result<(), Errno> {
        self.entries(from_dir)?;
        self.living_dir(to_dir)?;
        let source = self.lookup(from_dir, from)?;
        let target = self.entries(to_dir)?.get(to).copied();
        match (how, target) {
            (RenameHow::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (RenameHow::Exchange, None) => return Err(Errno::ENOENT),
            _ => {}
        }
        if self.is_at_or_above(source, to_dir)? {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target {
            if self.is_at_or_above(target, from_dir)? {
                let exchange = how == RenameHow::Exchange;
                return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
            }
            if source == target {
                return Ok(());
            }
            if how != RenameHow::Exchange {
                self.replaceable(source, target)?;
            }
        }
        self.inode_mut(from_dir)?.content_moved(now);
        self.inode_mut(to_dir)?.content_moved(now);
        self.entries_mut(from_dir)?.remove(from);
        self.entries_mut(to_dir)?.insert(to.clone(), source);
        self.moved(source, from_dir, to_dir, now)?;
        match target {
            Some(target) if how == RenameHow::Exchange => {
                self.entries_mut(from_dir)?.insert(from.clone(), target);
                self.moved(target, to_dir, from_dir, now)
            }
            Some(target) => {
                if self.inode(target)?.is_dir() {
                    self.inode_mut(to_dir)?.nlink -= 1;
                }
                self.drop_name(target, now)
            }
            None => Ok(()),
        }
    }

    fn replaceable(&self, source: Ino, target: Ino) -> Result<(), Errno> {
        match (self.inode(source)?.is_dir(), self.inode(target)?.is_dir()) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (true, true) if !self.entries(target)?.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// `ino` went from one directory to another (or stayed, under another name).
    fn moved(&mut self, ino: Ino, from_dir: Ino, to_dir: Ino, now: Timestamp) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        inode.inode_moved(now);
        if let Body::Dir { parent, .. } = &mut inode.body {
            *parent = to_dir;
            self.inode_mut(from_dir)?.nlink -= 1;
            self.inode_mut(to_dir)?.nlink += 1;
        }
        Ok(())
    }

    /// `ino` is `dir` or a directory above it.
    fn is_at_or_above(&self, ino: Ino, dir: Ino) -> Result<bool, Errno> {
        let mut at = dir;
        loop {
            if at == ino {
                return Ok(true);
            }
            let parent = self.parent(at)?;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
    }
}
