//! What follows from a log record: noted at once, begun when the record is durable. Nothing that
//! a record caused leaves the server towards a target or another shard before that.

use super::Shard;
use super::waits::For;
use crate::ctx::Effect;
use crate::group::Host;
use crate::limit::TXN_ASK_MS;
use crate::store::{Store, StoreError};
use skep_types::{Ino, LogIndex};
use skep_wire::meta::TxnId;

/// To be begun when a record is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Later {
    /// Tell the targets of a truncate.
    Trim(Ino),
    /// Tell the targets of a seal. It needs no number: a file has one at a time. Its row goes when all targets have answered,
    /// so after this was begun, and not before (a file that is being sealed counts as open), and the next one comes then.
    Seal(Ino),
    /// Tell the participants of a decision.
    Decided(TxnId),
    /// The layout may be shown.
    Settled(Ino),
    /// Nobody writes to its chunks any more, also after a power cut.
    Ceased(Ino),
}

impl Shard {
    /// Notes what a record changed.
    pub(super) fn absorb<S: Store>(
        &mut self,
        host: &mut Host<S>,
        index: LogIndex,
        effects: impl IntoIterator<Item = Effect>,
    ) {
        for effect in effects {
            let mut later = |what| self.later.entry(index).or_default().push(what);
            match effect {
                Effect::Deletion(id, chunks) => self.deletions.queued(id, index, chunks),
                Effect::Trim(ino) => {
                    later(Later::Trim(ino));
                    // Perhaps what was lost is cut off; else the next read tells it again.
                    self.lost.forget(ino);
                    self.cutting.insert(ino, index);
                    self.trimming.insert(ino);
                    self.ends.cut(ino, self.opens.clients(ino));
                    // Lengths that were asked for before are not the file's any more.
                    self.recoveries.forget(ino, &mut host.errands);
                }
                Effect::Seal(ino) => {
                    later(Later::Seal(ino));
                    self.seals.noted(ino);
                }
                Effect::SealGone(ino, id) => {
                    self.seals.forget(ino, id, &mut host.errands);
                    // Who waited asks for the layout, which is shown when this is durable.
                    self.waits.instead(For::Seal(ino, id), For::Durable(index));
                    host.out.sync_now = true;
                }
                Effect::Decided(txid, participants) => {
                    later(Later::Decided(txid));
                    self.txns.committed(txid, participants);
                }
                Effect::Finished(txid) => self.txns.finished(txid),
                Effect::Prepared(txid, age, inos) => {
                    self.txns.prepared(txid, age, inos, host.now.plus(TXN_ASK_MS));
                }
                Effect::Released(txid) => self.release_txn(host, txid),
                Effect::PromiseLost(txid) => self.warn_of_promise(host, txid),
                Effect::Settling(ino) => {
                    later(Later::Settled(ino));
                    self.settling.insert(ino, index);
                }
                Effect::TrimGone(ino, id) => {
                    self.trims.forget(ino, id, &mut host.errands);
                    self.trimming.remove(&ino);
                    // A power cut that took this record would have the targets told once more: whoever
                    // was answered before could have written something that they cut then.
                    self.waits.instead(For::Trim(ino, id), For::Durable(index));
                    host.out.sync_now = true;
                    self.recover_later.push(ino);
                }
                Effect::Growth(ino) => _ = self.growths.insert(ino),
                Effect::GrowthGone(ino) => _ = self.growths.remove(&ino),
                Effect::GrowthDead(client, slot) => {
                    self.dead_growths.insert((client, slot));
                }
                Effect::GrowthOver(client, slot) => {
                    self.dead_growths.remove(&(client, slot));
                }
                Effect::Writer(ino, client) => {
                    self.writers.insert((ino, client));
                }
                Effect::WriterGone(ino, client) => {
                    self.writers.remove(&(ino, client));
                    later(Later::Ceased(ino));
                    self.ceasing.insert(ino, index);
                }
                Effect::Orphan(ino) => {
                    self.orphans.insert(ino);
                }
                Effect::OrphanNamed(ino) => {
                    self.orphans.remove(&ino);
                }
                Effect::Repaired(ino) => self.lost.forget(ino),
                Effect::Gone(ino) => self.forget_file(host, ino),
            }
        }
    }

    fn release_txn<S: Store>(&mut self, host: &mut Host<S>, txid: TxnId) {
        if let Some(errand) = self.txns.released(txid) {
            host.errands.drop(errand);
        }
        for parked in self.waits.over(For::Txn(txid)) {
            self.resume(host, parked);
        }
    }

    fn forget_file<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) {
        self.lost.forget(ino);
        self.orphans.remove(&ino);
        self.settling.remove(&ino);
        self.ceasing.remove(&ino);
        self.trimming.remove(&ino);
        self.cutting.remove(&ino);
        self.ends.forget(ino);
        self.forget_held(host, ino);
        self.locks.gone(host.now, ino);
        host.leases.gone(ino);
        self.recoveries.forget(ino, &mut host.errands);
    }

    /// Its records up to this one are on stable storage.
    pub fn is_durable_to(&mut self, index: LogIndex) {
        self.durable = index.max(self.durable);
    }

    /// Begins what waited for that.
    pub fn durable<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        if !self.acts() {
            return Ok(());
        }
        while let Some(entry) = self.later.first_entry().filter(|entry| *entry.key() <= self.durable) {
            let index = *entry.key();
            for later in entry.remove() {
                match later {
                    Later::Settled(ino) if self.settling.get(&ino) == Some(&index) => {
                        self.settling.remove(&ino);
                    }
                    Later::Ceased(ino) if self.ceasing.get(&ino) == Some(&index) => {
                        self.ceasing.remove(&ino);
                    }
                    Later::Settled(_) | Later::Ceased(_) => {}
                    later => self.ready.push_back((index, later)),
                }
            }
        }
        for _ in 0..host.config.limits.resumed_per_step {
            if !self.begin_next(host)? {
                break;
            }
        }
        self.pass_over(host)?;
        for parked in self.waits.durable(self.durable) {
            self.resume(host, parked);
        }
        self.work_off_deletions(host)
    }

    /// Begins the next thing that waited for its record.
    pub(super) fn begin_next<S: Store>(&mut self, host: &mut Host<S>) -> Result<bool, StoreError> {
        let Some((index, later)) = self.ready.pop_front() else { return Ok(false) };
        match later {
            // The row holds the newest truncate; an older record must not let it out.
            Later::Trim(ino) if self.cutting.get(&ino).is_some_and(|newest| *newest > index) => {}
            Later::Trim(ino) => {
                self.cutting.remove(&ino);
                self.start_trim(host, ino)?;
            }
            Later::Seal(ino) => self.start_seal(host, ino)?,
            Later::Decided(txid) => self.tell_decided(host, txid),
            Later::Settled(_) | Later::Ceased(_) => {}
        }
        Ok(true)
    }
}
