//! Who only looks at a file that its mount holds waits for a word of that mount, by which the hold does not end: one word for all
//! who came before it was asked for. See `docs/design/gathering.md`, section 7.

use super::Shard;
use super::waits::{Again, For, Parked};
use crate::group::{Host, Request};
use crate::store::Store;
use alloc::vec::Vec;
use skep_types::{ClientId, Ino};
use skep_wire::meta::{MetaRequest, Question, Tell};

/// What waits for a question that is not asked yet.
const NEXT: u64 = u64::MAX;

impl Shard {
    /// So many requests were answered behind a word by which the hold went on.
    pub fn held_looks(&self) -> u64 {
        self.files_held.shown()
    }

    /// A request meets a file that `client` holds: what it is to wait for, and the holder is asked.
    pub(super) fn waits_for_holder<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        (ino, client): (Ino, ClientId),
    ) -> For {
        if is_look(&request.message) && self.may_only_look(host, ino, client) {
            return self.ask_to_look(host, ino, client);
        }
        self.ask_holder(host, ino, client);
        For::Holder(ino)
    }

    /// Not where the hold is about to end: then that is waited for.
    fn may_only_look<S: Store>(&self, host: &Host<S>, ino: Ino, client: ClientId) -> bool {
        self.files_held.is_by(ino, client)
            && !self.files_held.is_passing(ino)
            && !self.waits.is_awaited(For::Holder(ino))
            && !host.events.is_asked_to_end(client, ino)
    }

    /// A word that was asked for before is none for who comes now: it may be on its way, and programs of its mount have been
    /// answered since.
    fn ask_to_look<S: Store>(&mut self, host: &mut Host<S>, ino: Ino, client: ClientId) -> For {
        let is_out = self.files_held.asked_by(ino).is_some() && self.waits.is_looked_at(ino);
        let round = if is_out { NEXT } else { self.asks_about(host, ino, client) };
        self.awaits(host, client);
        For::Look(ino, round)
    }

    fn asks_about<S: Store>(&mut self, host: &mut Host<S>, ino: Ino, client: ClientId) -> u64 {
        let round = self.files_held.next_question(ino, self.term());
        if host.sessions.lives(client) {
            host.events.ask_holder(client, Question { term: self.term(), ino, looks: Some(round) });
        }
        round
    }

    /// Who holds a file has told of it, and goes on holding it: who had asked for that may look, and the next are asked for.
    pub(super) fn looks_are_answered<S: Store>(&mut self, host: &mut Host<S>, client: ClientId, m: &Tell) {
        let ino = m.ino;
        if host.config.canary_answers_late_looks {
            let all = self.waits.looks_over(ino);
            return self.may_look(host, ino, all);
        }
        let Some(round) = self.files_held.asked_by(ino).filter(|round| m.answers == Some(*round)) else {
            return;
        };
        self.files_held.is_answered(ino);
        let answered = self.waits.over(For::Look(ino, round));
        self.may_look(host, ino, answered);
        if self.waits.is_awaited(For::Look(ino, NEXT)) {
            let next = self.asks_about(host, ino, client);
            self.waits.instead(For::Look(ino, NEXT), For::Look(ino, next));
        }
    }

    fn may_look<S: Store>(&mut self, host: &mut Host<S>, ino: Ino, all: Vec<Parked>) {
        self.files_held.shown += all.len() as u64;
        for parked in all {
            let parked = match parked {
                Parked::Again(again) => Parked::Again(Again { may_look: Some(ino), ..again }),
                parked => parked,
            };
            self.resume(host, parked);
        }
    }
}

/// Does it change nothing, and show nothing but attributes?
fn is_look(message: &MetaRequest) -> bool {
    matches!(
        message,
        MetaRequest::GetAttr(_)
            | MetaRequest::Lookup(_)
            | MetaRequest::GetXattr(_)
            | MetaRequest::ListXattr(_)
    )
}
