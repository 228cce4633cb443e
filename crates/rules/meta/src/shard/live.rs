//! Choices made live, and remembered for the log.

use super::holders::{FilesHeld, Unreported};
use super::opens::Opens;
use super::serials::Serials;
use super::txns::Locked;
use crate::Config;
use crate::choose::{Choose, Conflict, CutBy, Holder, Plan, Teller};
use crate::command::{Choices, Decided};
use crate::fail::Fail;
use crate::limit::PREPARED_MAX;
use crate::row::Inode;
use crate::spread::{Continue, Spread};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{ClientId, Extent, Ino, LogIndex, Millis, Name, PoolId, ShardId, Timestamp};
use skep_wire::meta::TxnId;

/// What choices are made from.
pub struct Live<'a> {
    /// The time.
    pub now: Millis,
    /// The shard.
    pub shard: ShardId,
    /// Who asks.
    pub client: ClientId,
    /// Nobody knows yet all that is open.
    pub grace: bool,
    /// What is durable.
    pub durable: LogIndex,
    /// Opens.
    pub opens: &'a Opens,
    /// Files whose size is being recovered: as if their writer still lived.
    pub recovering: &'a dyn Fn(Ino) -> bool,
    /// Files that are being sealed: they count as open.
    pub sealing: &'a dyn Fn(Ino) -> bool,
    /// Inodes whose attributes the lease on their directory may cover.
    pub coverable: &'a dyn Fn(Ino) -> bool,
    /// Files that are held.
    pub held: &'a FilesHeld,
    /// What is to be known of those.
    pub holding: Holding,
    /// Does the asker hold what it makes in this directory?
    pub holds: &'a dyn Fn(Ino) -> bool,
    /// Layouts that are not durable.
    pub unsettled: &'a BTreeMap<Ino, LogIndex>,
    /// Shards of the same thread.
    pub beside: &'a dyn Fn(ShardId) -> bool,
    /// Targets.
    pub spread: &'a mut Spread,
    /// Transactions over shards.
    pub txns: Locked<'a>,
    /// What has strayed is done (a canary).
    pub takes_strays: bool,
    /// Inode numbers.
    pub serials: &'a mut Serials,
    /// What was chosen.
    pub choices: Choices,
}

/// Of files that are held, beside the table.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// Who has not told what he holds.
    pub unreported: Unreported,
    /// May the asker hold what it makes?
    pub makes: bool,
    /// Does the asker, who tells of one, go on holding it?
    pub keeps: bool,
    /// Or hold it once more, if nobody else has it open?
    pub again: bool,
    /// Does the asker, who has the file open for writing and wishes to, hold it from now on?
    pub wished: bool,
    /// A file that the asker may look at, though it is held by another one, which has told of it since.
    pub may_look: Option<Ino>,
    /// What is wrong about them.
    pub faults: Faults,
}

/// Canaries: see [`crate::Config`].
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// Others are answered about files that are held.
    pub asks_later: bool,
    /// Who holds one no longer may tell of it.
    pub takes_late_tells: bool,
    /// Who was passed over may tell of one that others have changed.
    pub tells_late: bool,
}

impl Faults {
    /// As they are set.
    pub fn of(config: &Config) -> Self {
        Self {
            asks_later: config.canary_asks_later,
            takes_late_tells: config.canary_takes_late_tells,
            tells_late: config.canary_tells_late,
        }
    }
}

fn note(choice: &mut Option<bool>, value: bool) -> bool {
    // Absent means no: most commands carry no choice at all.
    if value {
        *choice = Some(true);
    }
    value
}

impl Choose for Live<'_> {
    fn ino(&mut self) -> Result<Ino, Fail> {
        let ino = self.serials.take(self.shard, self.durable)?;
        self.choices.ino = Some(ino);
        Ok(ino)
    }

    fn held(&mut self, ino: Ino) -> bool {
        let held = self.grace || self.opens.is_open(ino) || (self.sealing)(ino);
        note(&mut self.choices.held, held)
    }

    fn is_beside(&mut self, shard: ShardId) -> bool {
        (self.beside)(shard)
    }

    fn fresh(&mut self, ino: Ino, by: CutBy) -> bool {
        let others = self.opens.others(ino, self.client) || (self.recovering)(ino) || (self.sealing)(ino);
        // A write of the mount that is on its way would make the chunk file again after its deletion.
        let writes = match by {
            CutBy::Setattr => false,
            CutBy::Open { shared, seq } => shared || self.opens.writes_since(ino, self.client, seq),
        };
        let fresh = !self.grace && !others && !writes;
        note(&mut self.choices.fresh, fresh)
    }

    fn extents(&mut self, inode: &Inode, at: Continue<'_>) -> Result<Vec<Extent>, Fail> {
        let extents = self.spread.extents(inode.policy, at)?;
        self.choices.extents = Some(extents.clone());
        Ok(extents)
    }

    fn pool(&mut self, pool: PoolId) -> Result<(), Fail> {
        Ok(self.spread.check_pool(self.now, pool)?)
    }

    fn asked(&mut self, inode: &Inode) -> Vec<u32> {
        self.spread.asked(inode.policy, &inode.layout)
    }

    fn live(&mut self, ino: Ino) -> bool {
        // In grace a writer may not have reclaimed yet: asking the targets is always right.
        let live = self.grace || self.opens.other_writers(ino, self.client) || (self.recovering)(ino);
        // What its holder has told is all that there was then, and nobody else writes to it.
        let live =
            live && !(self.holding.may_look == Some(ino) && self.held.other(ino, self.client).is_some());
        note(&mut self.choices.live, live)
    }

    fn writers(&mut self, ino: Ino, new: bool) -> Vec<ClientId> {
        let mut writers = if new { self.opens.writers(ino) } else { Vec::new() };
        if !writers.contains(&self.client) && self.client != ClientId(0) {
            writers.push(self.client);
        }
        self.choices.writers = Some(writers.clone());
        writers
    }

    fn settling(&mut self, ino: Ino) -> bool {
        let settling = self.unsettled.contains_key(&ino);
        note(&mut self.choices.settling, settling)
    }

    fn decided(&mut self, plan: Plan) -> Result<Decided, Fail> {
        let decided = self.txns.decided(plan)?;
        self.choices.decided = Some(decided.clone());
        Ok(decided)
    }

    fn inode_lock(&self, ino: Ino) -> Option<TxnId> {
        self.txns.inode(ino)
    }

    fn name_lock(&self, dir: Ino, name: &Name) -> Option<TxnId> {
        self.txns.name(dir, name)
    }

    fn dir_lock(&self, dir: Ino) -> Option<TxnId> {
        self.txns.dir(dir)
    }

    fn conflict(&self, ino: Ino, age: Timestamp, txid: TxnId) -> Option<Conflict> {
        self.txns.conflict(ino, age, txid)
    }

    fn is_coverable(&self, ino: Ino) -> bool {
        (self.coverable)(ino)
    }

    fn holds(&mut self, dir: Ino) -> bool {
        let holds = (self.holds)(dir);
        note(&mut self.choices.holds, holds)
    }

    fn holder(&self, ino: Ino) -> Holder {
        match self.held.holder(ino, self.client, self.holding.unreported) {
            Holder::Other(_) if self.holding.faults.asks_later => Holder::NoOther,
            Holder::Other(_) if self.holding.may_look == Some(ino) && !self.held.is_passing(ino) => {
                Holder::NoOther
            }
            holder => holder,
        }
    }

    fn is_told(&self, ino: Ino) -> bool {
        self.held.is_told(ino)
    }

    fn may_be_held_again(&self, ino: Ino) -> bool {
        self.held.is_passing(ino)
    }

    fn teller(&self, ino: Ino, change: u64, hold: u64) -> Teller {
        if self.held.is_told_by(ino, self.client, hold) || self.holding.faults.takes_late_tells {
            return Teller::Holder;
        }
        let Some(known) = self.held.passed.change(ino, self.client, hold) else { return Teller::Other };
        // Also in grace: who opened it has done so in this term, for no earlier one had it passed over.
        let writes = || self.opens.other_writers(ino, self.client) || (self.recovering)(ino);
        match self.holding.faults.tells_late
            || (known == change && !self.held.passed.is_written(ino) && !writes())
        {
            true => Teller::PassedOver,
            false => Teller::TooLate,
        }
    }

    fn keeps(&mut self) -> bool {
        note(&mut self.choices.keeps, self.holding.keeps)
    }

    fn holds_again(&mut self, ino: Ino) -> bool {
        let again = self.holding.again && !self.opens.others(ino, self.client);
        note(&mut self.choices.keeps, again)
    }

    fn holds_as_wished(&mut self) -> bool {
        note(&mut self.choices.keeps, self.holding.wished)
    }

    fn is_full(&self) -> bool {
        self.txns.txns.prepared_len() >= PREPARED_MAX
    }

    fn takes_strays(&self) -> bool {
        self.takes_strays
    }
}
