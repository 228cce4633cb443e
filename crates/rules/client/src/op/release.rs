//! flush (every close of a descriptor) and release (the last one of a handle).

use crate::lane::Lane;
use crate::limits::CLOSES_MAX;
use crate::port::{Cell, Port};
use crate::state::{Handle, Shared};
use skep_types::{Errno, Ino, Millis};
use skep_wire::meta::OpenMode;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// A program closes a descriptor: size and time are committed, so that the next open, on whatever
    /// mount, sees them. The record locks of `owner` go with it, after that: who gets one next sees what
    /// was written under it. EIO when something written is known to be lost.
    pub async fn flush(&self, handle: Handle, owner: u64) -> Result<(), Errno> {
        let ino =
            self.shared.with(|s| s.handles.any_file(handle).map(|file| file.ino)).ok_or(Errno::EBADF)?;
        // Numbered now: what is asked for while this commits is another descriptor's.
        let key = Shared::range_key(ino, owner);
        let order = self.shared.with(|s| s.locks.ends(key));
        let result = self.errno(self.commit(ino).await);
        if let Some(order) = order {
            self.drop_locks(key, order).await;
        }
        // Not taken off the list: whoever closes may be a child that looks at no error, and fsync still tells.
        if result.is_ok() && self.has_loss(handle) { Err(Errno::EIO) } else { result }
    }

    /// The kernel is done with a handle.
    pub async fn release(&self, handle: Handle) {
        let (file, dropped) = self.shared.with(|s| {
            s.aheads.forget(handle);
            (s.handles.remove_file(handle), s.aheads.take_dropped())
        });
        drop(dropped);
        let Some(file) = file else { return };
        let (ino, last) = self.shared.with(|s| {
            let inode = s.inodes.entry(file.ino);
            // Beside opens that may come to nothing.
            let is_last = inode.readers + inode.writers == 1;
            if is_last {
                // What is done to it from now on is told at once.
                inode.end_keeping();
            }
            (file.ino, is_last && (inode.mark.is_some() || inode.has_news()))
        });
        // Pages of a mapping may have been written after the last flush.
        if last && let Err(refusal) = self.commit(ino).await {
            self.port.log(format_args!(
                "inode {ino}: what became of it could not be told at its close: {refusal}"
            ));
        }
        // `flock`, OFD locks, and what a close in the middle of a request left behind.
        for key in self.shared.with(|s| s.locks.of_handle(ino, handle)) {
            match self.shared.with(|s| s.locks.ends_of(key, handle)) {
                Some(order) => self.drop_locks(key, order).await,
                None => self.port.work_waits(),
            }
        }
        // Of two that went at once neither was the last: seen in the step in which it goes.
        let mut closed = self.shared.with(|s| s.closes_handle(ino, file.mode, true, self.port.now()));
        if closed.is_none() {
            if let Err(refusal) = self.commit(ino).await {
                self.port.log(format_args!(
                    "inode {ino}: what became of it could not be told at its close: {refusal}"
                ));
            }
            closed = self.shared.with(|s| s.closes_handle(ino, file.mode, false, self.port.now()));
        }
        let (first, full) = closed.unwrap_or_default();
        if full {
            self.send_closes().await;
        } else if first {
            self.port.work_waits();
        }
    }

    /// The kernel has forgotten so many look-ups of an inode.
    pub fn forget(&self, ino: Ino, looks: u64) {
        let now = self.port.now();
        let is_closed = self.shared.with(|s| {
            s.kernel.forgot(ino, looks);
            let is_closed = s.close_kept(ino, now);
            s.inodes.forget(ino);
            s.ghosts.forget(ino);
            is_closed
        });
        if is_closed {
            self.port.work_waits();
        }
    }
}

impl Shared {
    /// A handle of the file goes. Has housekeeping new work, and are there too many closes? `None`: it is the last, and something
    /// is to be told first, if it is `told_first`.
    fn closes_handle(
        &mut self,
        ino: Ino,
        mode: OpenMode,
        told_first: bool,
        now: Millis,
    ) -> Option<(bool, bool)> {
        let inode = self.inodes.entry(ino);
        if told_first && inode.readers + inode.writers == 1 && (inode.has_news() || inode.has_run()) {
            inode.end_keeping();
            return None;
        }
        match mode.writes() {
            true => inode.writers = inode.writers.saturating_sub(1),
            false => inode.readers = inode.readers.saturating_sub(1),
        }
        Some((self.unused(ino, now), self.closes.len() >= CLOSES_MAX))
    }
}
