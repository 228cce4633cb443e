//! Files that were there before, and that this mount would like to hold: asked for by tellers. See
//! `docs/design/gathering.md`, section 6.

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Given, News, Shared};
use alloc::boxed::Box;
use skep_types::Ino;
use skep_wire::Refusal;
use skep_wire::meta::{AttrReply, Tell};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// A small write of a program, or an append where `at` is not given, went to its targets.
    pub(crate) fn small_write_went(&self, ino: Ino, at: Option<u64>, len: usize) {
        let now = self.port.boot();
        if self.shared.with(|s| s.small_write_went(ino, at, len, now)) {
            self.port.is_asked();
        }
    }

    /// Asks its shard whether this mount may hold the file.
    pub(super) async fn ask_to_hold(&self, ino: Ino) -> Result<(), Refusal> {
        let now = self.port.boot();
        let Some(wished) = self.shared.with(|s| s.wish_begins(ino, now)) else { return Ok(()) };
        let tell = Tell { wishes: Some(true), ..News::of_hold(wished.hold).tell(ino, None) };
        let answer: Result<_, Refusal> = Box::pin(self.settle(self.changing(ino, &tell))).await;
        let answer = answer.and_then(|reply| Ok((reply.read::<AttrReply>()?, reply)));
        let now = self.port.boot();
        let (answer, failed) = match answer {
            Ok(answer) => (Some(answer), Ok(())),
            Err(refusal) => (None, Err(refusal)),
        };
        let is_first = self.shared.with(|s| {
            let was_none = s.holds.next_ms(now).is_none();
            let given = answer.map(|(read, reply)| Given {
                reply: read,
                holds: reply.stamp.holds.is_some(),
                is_current: reply.stamp.term == s.shards.term(ino.shard()) && reply.client == s.client(),
            });
            if !s.wish_ends(wished, given, now) {
                // As if somebody had asked: the shard is told that nothing is held.
                s.holds.ask(ino, true);
            }
            was_none && s.holds.next_ms(now).is_some()
        });
        if is_first {
            // The other tellers sleep for as long as nothing is held.
            self.port.is_asked();
        }
        failed
    }
}

#[cfg(test)]
mod tests;
