//! Requests that wait for rows from the disk, and let all others pass.

use super::waits::{For, Parked};
use super::{Again, Shard};
use crate::group::{Host, Read, Request};
use crate::limit::READ_TRIES_MAX;
use crate::store::{Store, StoreError, Wanted};
use alloc::vec::Vec;

impl Shard {
    /// Is the request that is carried out to read in place what is not in memory? It has waited often enough, or so many
    /// wait that this one is not to be a further one.
    pub(super) fn reads_in_place<S: Store>(&self, host: &Host<S>) -> bool {
        let limits = &host.config.limits;
        host.waited >= READ_TRIES_MAX
            || !host.reads.has_room(limits)
            || host.load.waits >= limits.waits
            || self.waits.is_full()
    }

    /// The request is run once these are in memory.
    pub(super) fn await_rows<S: Store>(&mut self, host: &mut Host<S>, request: Request, wanted: Vec<Wanted>) {
        let id = host.reads.begin(self.id, wanted.len());
        host.counters.held_back();
        host.out.reads.push(Read { id, wanted });
        let waited = host.waited + 1;
        let begun = host.begun.take();
        self.park(
            host,
            For::Rows(id),
            Parked::Again(Again { waited, begun, ..Again::behind(host, request) }),
        );
    }

    /// Does what nobody would take up again if it waited: what is not in memory is read in place.
    pub(super) fn without_waiting<S: Store, T>(
        &mut self,
        host: &mut Host<S>,
        what: impl FnOnce(&mut Self, &mut Host<S>) -> T,
    ) -> T {
        let waited = core::mem::replace(&mut host.waited, READ_TRIES_MAX);
        let done = what(self, host);
        host.waited = waited;
        done
    }

    /// They are, or the disk failed to give them.
    pub fn has_read<S: Store>(&mut self, host: &mut Host<S>, read: u64) -> Result<(), StoreError> {
        for parked in self.waits.over(For::Rows(read)) {
            self.resume(host, parked);
        }
        self.recovery_read(host, read)
    }

    /// Takes up a request whose wait is over.
    pub(super) fn request_again<S: Store>(
        &mut self,
        host: &mut Host<S>,
        again: Again,
    ) -> Result<(), StoreError> {
        (host.waited, host.waits_until, host.begun) = (again.waited, again.until, again.begun);
        host.may_look = again.may_look;
        let done = self.carry_out(host, again.request);
        (host.waited, host.waits_until, host.begun, host.may_look) = (0, None, None, None);
        done
    }

    /// What requests waited for that are gone need not be read.
    pub(super) fn give_up_reads<S: Store>(&mut self, host: &mut Host<S>) {
        host.give_up_reads(self.waits.take_given_up());
    }
}
