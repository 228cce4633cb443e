//! The grace period: after a start nobody knows yet what is open on the shard.
//!
//! It ends, so that one silent mount does not keep all others waiting for locks. What a mount has open that still has its
//! session then, and has not reported, stays: nobody's files are purged until it has reported or its session has ended.

use alloc::collections::BTreeSet;
use skep_types::{ClientId, Millis};

/// Sessions that have not reported.
#[derive(Debug, Default)]
pub struct Grace {
    /// Service has begun: who lives is known, and so who is to report.
    begun: bool,
    waiting: BTreeSet<ClientId>,
    /// Those that had not when it ended.
    late: BTreeSet<ClientId>,
    deadline: Option<Millis>,
    /// When service began.
    since: Option<Millis>,
}

impl Grace {
    /// Service begins. Every session in `living` is to report.
    pub fn begin(&mut self, living: BTreeSet<ClientId>, now: Millis, deadline: Millis) {
        *self = Self { begun: true, since: Some(now), ..Self::default() };
        if !living.is_empty() {
            (self.waiting, self.deadline) = (living, Some(deadline));
        }
    }

    /// Is it not over?
    pub fn holds(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Is what is open known, of every session?
    pub fn knows_opens(&self) -> bool {
        self.begun && self.waiting.is_empty() && self.late.is_empty()
    }

    /// Has `client` told all that it has? So has whoever came since the start: it had nothing.
    pub fn has_reported(&self, client: ClientId) -> bool {
        self.begun && !self.is_late(client) && !self.waiting.contains(&client)
    }

    /// Has `client` not reported, though the period is over?
    pub fn is_late(&self, client: ClientId) -> bool {
        self.late.contains(&client)
    }

    /// When service began, if it has.
    pub fn since(&self) -> Option<Millis> {
        self.since
    }

    /// Those that have not reported.
    pub fn unreported(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.waiting.iter().chain(&self.late).copied()
    }

    /// When it ends at the latest.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// `client` has reported everything, or will not; true when that was the last one.
    pub fn reported(&mut self, client: ClientId) -> bool {
        let was_waited_for = self.waiting.remove(&client);
        let was_late = self.late.remove(&client);
        if self.waiting.is_empty() {
            self.deadline = None;
        }
        was_waited_for && self.waiting.is_empty() || was_late && self.late.is_empty()
    }

    /// Those that had not reported when it ended.
    pub fn late(&self) -> &BTreeSet<ClientId> {
        &self.late
    }

    /// Time is up: is it over by this?
    pub fn expire(&mut self, now: Millis) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        self.deadline = None;
        self.late = core::mem::take(&mut self.waiting);
        true
    }
}
