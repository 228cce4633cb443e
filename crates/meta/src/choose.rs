//! Choices: what an operation needs beside the rows. Live, the server makes and records them;
//! in a replay they come from the log.

use crate::command::Choices;
use crate::fail::Fail;
use crate::row::Inode;
use crate::store::StoreError;
use alloc::vec::Vec;
use skep_types::{ClientId, Extent, Generation, Ino};

/// Answers an operation's questions. Each is asked at most once by an operation that writes.
pub trait Choose {
    /// Number for a new inode.
    fn ino(&mut self) -> Result<Ino, Fail>;
    /// May `ino`, which loses its last name, be open somewhere?
    fn held(&mut self, ino: Ino) -> bool;
    /// Is it certain that no session but the caller's has `ino` open?
    fn fresh(&mut self, ino: Ino) -> bool;
    /// Extents that continue the layout of `inode` up to `end`, in `generation`.
    fn extents(
        &mut self,
        ino: Ino,
        inode: &Inode,
        generation: Generation,
        end: u64,
    ) -> Result<Vec<Extent>, Fail>;
    /// Do other sessions have `ino` open for writing?
    fn live(&mut self, ino: Ino) -> bool;
    /// Who writes to the chunks of `ino` from now on: the caller, and when they are `new`
    /// everybody who has it open for writing.
    fn writers(&mut self, ino: Ino, new: bool) -> Vec<ClientId>;
    /// Is the layout of `ino` not durable yet?
    fn settling(&mut self, ino: Ino) -> bool;
}

/// Choices read from the log.
pub struct Recorded<'a>(pub &'a Choices);

fn missing(what: &str) -> Fail {
    Fail::Store(StoreError::Corrupt(alloc::format!("a log record lacks the {what} that it needs")))
}

impl Choose for Recorded<'_> {
    fn ino(&mut self) -> Result<Ino, Fail> {
        self.0.ino.ok_or_else(|| missing("inode number"))
    }

    fn held(&mut self, _: Ino) -> bool {
        self.0.held.unwrap_or(false)
    }

    fn fresh(&mut self, _: Ino) -> bool {
        self.0.fresh.unwrap_or(false)
    }

    fn extents(&mut self, _: Ino, _: &Inode, _: Generation, _: u64) -> Result<Vec<Extent>, Fail> {
        self.0.extents.clone().ok_or_else(|| missing("list of extents"))
    }

    fn live(&mut self, _: Ino) -> bool {
        self.0.live.unwrap_or(false)
    }

    fn writers(&mut self, _: Ino, _: bool) -> Vec<ClientId> {
        self.0.writers.clone().unwrap_or_default()
    }

    fn settling(&mut self, _: Ino) -> bool {
        self.0.settling.unwrap_or(false)
    }
}
