//! Choices: what an operation needs beside the rows. Live, the server makes and records them;
//! in a replay they come from the log.

use crate::command::{Choices, Decided};
use crate::fail::Fail;
use crate::row::Inode;
use crate::spread::Continue;
use crate::store::StoreError;
use alloc::vec::Vec;
use skep_types::{ClientId, Extent, Ino, Name, PoolId, ShardId, Timestamp};
use skep_wire::meta::{TxnId, TxnOp};

/// What cuts a file to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutBy {
    /// A setattr: the kernel of its mount keeps that mount's writes away meanwhile.
    Setattr,
    /// An open, beside which other programs of its mount may write.
    Open {
        /// The mount says that they may.
        shared: bool,
        /// Number of the open: whoever came later is not in `shared`.
        seq: u64,
    },
}

/// What an operation needs of other shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Names that nobody else may change until it is decided.
    pub names: Vec<(Ino, Name)>,
    /// What each participant is to do.
    pub parts: Vec<(ShardId, Vec<TxnOp>)>,
}

/// A transaction meets what another one has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// It is the older one: it waits.
    Wait,
    /// It is the younger one: it gives up what it has.
    Die,
}

/// Who holds a file of which the row says that somebody may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The asker, or nobody.
    NoOther,
    /// Somebody else.
    Other(ClientId),
    /// Not everybody has told yet what he holds.
    Unknown,
}

/// Who tells what became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Teller {
    /// It holds the file.
    Holder,
    /// It was passed over; since then nobody has changed the file, nor writes to it.
    PassedOver,
    /// It was passed over, and others have changed the file, or write to it.
    TooLate,
    /// It does not hold the file.
    Other,
}

/// Answers an operation's questions. Each is asked at most once by an operation that writes.
pub trait Choose {
    /// Number for a new inode.
    fn ino(&mut self) -> Result<Ino, Fail>;
    /// May `ino`, which loses its last name, be open somewhere?
    fn held(&mut self, ino: Ino) -> bool;
    /// Is it certain that nobody writes to `ino`, which is cut to 0?
    fn fresh(&mut self, ino: Ino, by: CutBy) -> bool;
    /// Is this shard served by the same thread, so that its rows are here and current? Not recorded: for checks that a
    /// replay leaves out.
    fn is_beside(&mut self, shard: ShardId) -> bool;
    /// Extents that continue the layout of `inode`.
    fn extents(&mut self, inode: &Inode, at: Continue<'_>) -> Result<Vec<Extent>, Fail>;
    /// May a layout wish name this storage pool?
    fn pool(&mut self, pool: PoolId) -> Result<(), Fail>;
    /// How many targets each extent of `inode` was to have (0 = all there are). Not recorded: for answers only.
    fn asked(&mut self, inode: &Inode) -> Vec<u32>;
    /// Do other sessions have `ino` open for writing?
    fn live(&mut self, ino: Ino) -> bool;
    /// Who writes to the chunks of `ino` from now on: the caller, and when they are `new`
    /// everybody who has it open for writing.
    fn writers(&mut self, ino: Ino, new: bool) -> Vec<ClientId>;
    /// Is the layout of `ino` not durable yet?
    fn settling(&mut self, ino: Ino) -> bool;
    /// What the participants promised; [`Fail::Transact`] when they have not been asked for just this.
    fn decided(&mut self, plan: Plan) -> Result<Decided, Fail>;
    /// The transaction that has locked an inode.
    fn inode_lock(&self, ino: Ino) -> Option<TxnId>;
    /// The transaction of others that has locked a name.
    fn name_lock(&self, dir: Ino, name: &Name) -> Option<TxnId>;
    /// One that has locked a name in this directory.
    fn dir_lock(&self, dir: Ino) -> Option<TxnId>;
    /// May a transaction that was first tried at `age` lock an inode?
    fn conflict(&self, ino: Ino, age: Timestamp, txid: TxnId) -> Option<Conflict>;
    /// May the lease on its directory cover the attributes of this inode? Not recorded: for answers to questions only.
    fn is_coverable(&self, _: Ino) -> bool {
        false
    }
    /// Does the asker hold the file from now on that it makes in this directory?
    fn holds(&mut self, dir: Ino) -> bool;
    /// Who holds a file? Not recorded: what was done waited for nobody.
    fn holder(&self, ino: Ino) -> Holder;
    /// Has who holds it told of it, so that its row has the owner and mode of now?
    fn is_told(&self, _: Ino) -> bool {
        false
    }
    /// Does a power cut bring back that somebody holds this file, of which the row says so no longer? Not recorded.
    fn may_be_held_again(&self, _: Ino) -> bool {
        false
    }
    /// As whom does the asker tell of this file, whose row has this change counter, and of which of his holds? Not recorded: what is in the log was told
    /// by who may.
    fn teller(&self, ino: Ino, change: u64, hold: u64) -> Teller;
    /// Does the asker, who tells of the file that it holds, go on holding it?
    fn keeps(&mut self) -> bool;
    /// Does one who was passed over, and wishes so, hold the file once more? Recorded as if it had gone on.
    fn holds_again(&mut self, _: Ino) -> bool {
        false
    }
    /// Does the asker, who wishes so, hold the file from now on? Recorded as if it had gone on.
    fn holds_as_wished(&mut self) -> bool {
        false
    }
    /// Is there no room for one more prepared transaction?
    fn is_full(&self) -> bool;
    /// Is it done, what its coordinator has finished long ago?
    fn takes_strays(&self) -> bool;
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

    fn fresh(&mut self, _: Ino, _: CutBy) -> bool {
        self.0.fresh.unwrap_or(false)
    }

    fn is_beside(&mut self, _: ShardId) -> bool {
        false
    }

    fn extents(&mut self, _: &Inode, _: Continue<'_>) -> Result<Vec<Extent>, Fail> {
        self.0.extents.clone().ok_or_else(|| missing("list of extents"))
    }

    fn pool(&mut self, _: PoolId) -> Result<(), Fail> {
        Ok(())
    }

    fn asked(&mut self, _: &Inode) -> Vec<u32> {
        Vec::new()
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

    fn decided(&mut self, _: Plan) -> Result<Decided, Fail> {
        self.0.decided.clone().ok_or_else(|| missing("list of promises"))
    }

    fn holds(&mut self, _: Ino) -> bool {
        self.0.holds.unwrap_or(false)
    }

    fn holder(&self, _: Ino) -> Holder {
        Holder::NoOther
    }

    // What is in the log was not locked.

    fn inode_lock(&self, _: Ino) -> Option<TxnId> {
        None
    }

    fn name_lock(&self, _: Ino, _: &Name) -> Option<TxnId> {
        None
    }

    fn dir_lock(&self, _: Ino) -> Option<TxnId> {
        None
    }

    fn conflict(&self, _: Ino, _: Timestamp, _: TxnId) -> Option<Conflict> {
        None
    }

    fn teller(&self, _: Ino, _: u64, _: u64) -> Teller {
        Teller::Holder
    }

    fn keeps(&mut self) -> bool {
        self.0.keeps.unwrap_or(false)
    }

    fn is_full(&self) -> bool {
        false
    }

    fn takes_strays(&self) -> bool {
        // What is in the log had not strayed.
        true
    }
}
