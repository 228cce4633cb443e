//! When answers leave.

use super::Shard;
use super::run::Tells;
use super::waits::{For, Parked};
use crate::ctx::Done;
use crate::group::Host;
use crate::group::Request;
use crate::limit::WAIT_DEADLINE_MS;
use crate::row::slot::Gate;
use crate::store::{Store, StoreError};
use skep_types::LogIndex;
use skep_wire::meta::MetaRequest;
use skep_wire::{Refusal, Status};

impl Shard {
    /// Sends an answer as soon as its gate allows.
    pub(super) fn release<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        done: Done,
        logged: Option<LogIndex>,
        tells: Tells,
    ) -> Result<(), StoreError> {
        let stamp = self.lending_stamp(host, &request, tells)?;
        let to = request.reply_to;
        let gate = match done.gate {
            Gate::Open if host.config.sync_always && logged.is_some() => Gate::Durable,
            _ if host.config.canary_votes_early && matches!(request.message, MetaRequest::Prepare(_)) => {
                Gate::Open
            }
            gate => gate,
        };
        let what = match gate {
            Gate::Open => None,
            Gate::Durable if self.durable >= logged.unwrap_or(self.last) => None,
            Gate::Durable => Some(For::Durable(logged.unwrap_or(self.last))),
            Gate::Trim(gate) => Some(For::Trim(gate.ino, gate.id)),
        };
        match what {
            None => self.answer(host, to, stamp, Ok(done.body)),
            Some(what) => self.park(host, what, Parked::Answer { to, stamp, result: Ok(done.body) }),
        }
        Ok(())
    }

    /// Parks, or says BUSY when too many wait.
    pub(super) fn park<S: Store>(&mut self, host: &mut Host<S>, what: For, parked: Parked) {
        let waits_for_others =
            matches!(what, For::Rows(_) | For::Recall(_) | For::Hold | For::Holder(_) | For::Look(..));
        host.out.sync_now |= !waits_for_others;
        // While it waits for something else others may use again what it is to change.
        if !matches!(what, For::Rows(_) | For::Recall(_)) {
            host.leases.release(parked.to());
        }
        let is_full = host.load.waits >= host.config.limits.waits;
        // A request may wait for one thing after the other: for all of them no longer than for one.
        let until = host.waits_until.unwrap_or(host.now.plus(WAIT_DEADLINE_MS));
        host.held.insert(parked.to(), self.id);
        let refused = if is_full { Some(parked) } else { self.waits.park(until, what, parked) };
        if let Some(parked) = refused {
            self.give_up(host, parked, "too many requests wait");
        }
    }

    pub(super) fn give_up<S: Store>(&mut self, host: &mut Host<S>, parked: Parked, why: &str) {
        let to = match parked {
            Parked::Answer { to, stamp, .. } => {
                return self.answer(host, to, stamp, Err(Refusal::with(Status::BUSY, why)));
            }
            Parked::Again(again) => again.request.reply_to,
        };
        self.answer(host, to, self.stamp(), Err(Refusal::with(Status::BUSY, why)));
    }

    /// A wait is over.
    pub(super) fn resume<S: Store>(&mut self, host: &mut Host<S>, parked: Parked) {
        match parked {
            Parked::Answer { to, stamp, result } => self.answer(host, to, stamp, result),
            Parked::Again(again) => self.again.push_back(again),
        }
    }
}
