//! Holders of files that were not heard for so long that they believe in nothing any more: others go on without them.
//! Volatile. See `docs/design/gathering.md`, section 3.

use super::Shard;
use super::holders::Unreported;
use super::waits::For;
use crate::command::{Internal, Unheld};
use crate::group::Host;
use crate::limit::{FILES_HELD_MAX, LOOK_MS, UNHELD_BATCH};
use crate::store::{Store, StoreError};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{ClientId, Ino, LogIndex, Millis};
use skep_wire::meta::OpenMode;

#[derive(Debug)]
struct Last {
    client: ClientId,
    /// Which of his holds: what he says of an earlier one is not about it.
    hold: u64,
    /// The change counter of the row when others went on.
    change: u64,
    /// Somebody else has opened it for writing since. What he wrote to chunks the counter need not show, for he may be gone
    /// without a commit.
    written: bool,
    age: u64,
}

/// Who was passed over, and what he may tell late. Bounded: the oldest go.
#[derive(Debug, Default)]
pub struct PassedOver {
    by_ino: BTreeMap<Ino, Last>,
    by_age: BTreeMap<u64, Ino>,
    /// So many were, since the term began.
    times: u64,
}

impl PassedOver {
    fn add(&mut self, ino: Ino, (client, hold): (ClientId, u64), change: u64) {
        self.forget(ino);
        if self.by_ino.len() >= FILES_HELD_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_ino.remove(&oldest);
        }
        self.times += 1;
        self.by_age.insert(self.times, ino);
        self.by_ino.insert(ino, Last { client, hold, change, written: false, age: self.times });
    }

    /// Of which change counter `client` knew the file when it was passed over, if what he says of this hold is about that.
    pub fn change(&self, ino: Ino, client: ClientId, hold: u64) -> Option<u64> {
        let is_of = |last: &&Last| last.client == client && last.hold <= hold;
        self.by_ino.get(&ino).filter(is_of).map(|last| last.change)
    }

    /// `client` has opened it for writing: whoever else was passed over is too late, for good.
    pub(super) fn writes(&mut self, ino: Ino, client: ClientId) {
        if let Some(last) = self.by_ino.get_mut(&ino) {
            last.written |= last.client != client;
        }
    }

    /// Has somebody else opened it for writing since?
    pub fn is_written(&self, ino: Ino) -> bool {
        self.by_ino.get(&ino).is_some_and(|last| last.written)
    }

    /// The file is gone.
    pub fn forget(&mut self, ino: Ino) {
        if let Some(last) = self.by_ino.remove(&ino) {
            self.by_age.remove(&last.age);
        }
    }

    /// The client has told what it kept by this hold, or tells nothing.
    pub fn forget_of(&mut self, ino: Ino, client: ClientId, hold: u64) {
        if self.change(ino, client, hold).is_some() {
            self.forget(ino);
        }
    }

    /// A session is over.
    pub fn end(&mut self, client: ClientId) {
        self.by_ino.retain(|_, last| last.client != client);
        let by_ino = &self.by_ino;
        self.by_age.retain(|_, ino| by_ino.contains_key(ino));
    }

    /// How often somebody was passed over.
    pub fn times(&self) -> u64 {
        self.times
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.by_ino.len(), self.by_age.len());
        self.by_ino.len()
    }
}

impl Shard {
    /// When who holds a file is silent for too long, if nothing is heard of him before; `None`: nobody counts that.
    fn silent_at<S: Store>(&self, host: &Host<S>, client: ClientId) -> Option<Millis> {
        match host.config.canary_passes_early {
            true => Some(Millis(0)),
            false => host.leases.silent_at(client),
        }
    }

    /// Who has not told yet what he holds: is he to be waited for?
    pub(super) fn unreported<S: Store>(&self, host: &Host<S>) -> Unreported {
        if self.grace.knows_opens() {
            return Unreported::Nobody;
        }
        // What he believed in was of an earlier term, and perhaps of another server, which let him believe for longer.
        let over = self.grace.since().map(|since| since.plus(host.leases.hold_ms()));
        let is_silent = |client| host.leases.silent_at(client).is_some_and(|at| host.now >= at);
        match over.is_some_and(|over| host.now >= over) && self.grace.unreported().all(is_silent) {
            true => Unreported::Silent,
            false => Unreported::Awaited,
        }
    }

    /// Somebody waits from now on for a file that `client` holds, who may be silent.
    pub(super) fn awaits<S: Store>(&mut self, host: &Host<S>, client: ClientId) {
        if let Some(at) = self.silent_at(host, client) {
            self.files_held.look_at(at.min(host.now.plus(LOOK_MS)));
        }
    }

    /// Time passed: the rows of those files that somebody waits for, and whose holders are silent, are to say that nobody holds
    /// them. Others go on when that is on stable storage: a power cut must not bring back a hold of what they have seen.
    pub(super) fn pass_silent<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        if host.holds_chores || !self.files_held.is_look_due(host.now) {
            return Ok(());
        }
        let unreported = self.unreported(host);
        let (mut silent, mut heard) = (Vec::new(), Vec::new());
        for ino in self.waits.holders() {
            if self.files_held.is_passing(ino) {
                continue;
            }
            let at = match (self.files_held.client(ino), unreported) {
                (Some(client), _) => self.silent_at(host, client),
                (None, Unreported::Silent) => Some(Millis(0)),
                (None, _) => {
                    heard.push(ino);
                    None
                }
            };
            let Some(at) = at else { continue };
            if host.now >= at && silent.len() < UNHELD_BATCH {
                silent.push(ino);
            } else {
                self.files_held.look_at(at.min(host.now.plus(LOOK_MS)));
            }
        }
        // One who was passed over with all that he had not told is heard all the same: whoever waits asks anew.
        heard.into_iter().for_each(|ino| self.holder_over(host, ino));
        if silent.is_empty() {
            return Ok(());
        }
        self.decide(host, &Internal::Unheld(Unheld { inos: silent.clone() }))?;
        host.out.sync_now = true;
        let index = self.last;
        self.files_held.passing.extend(silent.into_iter().map(|ino| (ino, index)));
        self.pass_over(host)
    }

    /// Whoever waits for files of silent holders goes on, where no power cut brings the holds back.
    pub(super) fn pass_over<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        let is_over = |index: &LogIndex| *index <= self.durable;
        let over = self.files_held.passing.iter().filter(|(_, index)| is_over(index));
        let over: Vec<Ino> = over.map(|(ino, _)| *ino).collect();
        for ino in over {
            self.files_held.passing.remove(&ino);
            if let Some((client, hold)) = self.files_held.hold_of(ino) {
                let change = self.inode(host, ino)?.map_or(0, |inode| inode.change);
                self.files_held.end(ino, client);
                self.files_held.passed.add(ino, (client, hold), change);
                // Nobody waits for its answer any more, and it would keep the next question back.
                host.events.ask_no_more(client, ino);
            }
            self.holder_over(host, ino);
        }
        Ok(())
    }

    /// `client` has the file open. An open that its own close has overtaken is none: `false`.
    pub(super) fn opens<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        ino: Ino,
        mode: OpenMode,
        seq: u64,
    ) -> bool {
        let is_open = self.opens.open(&mut host.opens, client, ino, mode, seq);
        if is_open && mode.writes() {
            self.files_held.passed.writes(ino, client);
        }
        is_open
    }

    /// May the asker go on holding a file beside what it tells now? Not where somebody waits for its end, or it was asked for that
    /// and has not heard it: whoever comes next would have nobody asked.
    pub(super) fn goes_on<S: Store>(&self, host: &Host<S>, ino: Ino, client: ClientId) -> bool {
        let listens = host.events.listens(client, host.now, host.config.lease_ms / 2);
        self.files_held.is_by(ino, client)
            && !self.waits.is_awaited(For::Holder(ino))
            && !self.files_held.is_passing(ino)
            && !host.events.is_asked_to_end(client, ino)
            && host.leases.may_lend(client, listens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is remembered of those who were passed over is bounded, and goes with its client, its file and what is told.
    #[test]
    fn bounded() {
        let (one, other) = (ClientId(1), ClientId(2));
        let mut passed = PassedOver::default();
        (0..2 + FILES_HELD_MAX as u64).for_each(|ino| passed.add(Ino(ino), (one, 0), ino));
        assert_eq!((passed.len(), passed.times()), (FILES_HELD_MAX, 2 + FILES_HELD_MAX as u64));
        assert_eq!([1, 2].map(|ino| passed.change(Ino(ino), one, 0)), [None, Some(2)]);
        assert_eq!(passed.change(Ino(2), other, 0), None);
        passed.forget_of(Ino(2), other, 0);
        passed.forget(Ino(3));
        passed.add(Ino(2), (other, 7), 9);
        assert_eq!((passed.len(), passed.change(Ino(2), one, 7)), (FILES_HELD_MAX - 1, None));
        passed.end(one);
        assert_eq!((passed.len(), passed.change(Ino(2), other, 8)), (1, Some(9)));
        passed.forget_of(Ino(2), other, 6);
        assert_eq!((passed.len(), passed.change(Ino(2), other, 6)), (1, None));
        passed.forget_of(Ino(2), other, 7);
        assert_eq!(passed.len(), 0);
    }
}
