//! Ends of files that are appended to by several clients: every append to chunks gets a range of its
//! own. Volatile: clients tell after a restart how far their reservations went.

use super::Shard;
use super::recovery::is_open_ended;
use super::waits::{For, Parked};
use crate::fail::corrupt;
use crate::group::Host;
use crate::group::Request;
use crate::key::{self, Table};
use crate::row::trim::Trim;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{ClientId, Decode, Encode, Errno, Generation, Ino, Kind, LogPlace, Slot};
use skep_wire::meta::{ReserveEnd, ReserveEndReply};
use skep_wire::{Refusal, Status};

/// What a lane got last: a repetition gets it again.
#[derive(Debug, Clone, Copy)]
struct Given {
    number: u64,
    len: u64,
    offset: u64,
}

#[derive(Debug, Default)]
struct End {
    generation: Generation,
    end: u64,
    given: BTreeMap<(ClientId, Slot), Given>,
    /// Who had reserved beyond the row's size in an earlier life of the server.
    before: BTreeSet<ClientId>,
    /// Clients that have not asked since the file was cut: what they know of its end is from before.
    behind: BTreeSet<ClientId>,
    /// It was open in an earlier life of the server. Only these clients have looked since: what others know of
    /// its end may be from before, when ranges were given that nobody claims any more because they are written.
    asked: Option<BTreeSet<ClientId>>,
}

/// A file that can be appended to, by its row.
struct Appendable {
    generation: Generation,
    size: u64,
    trims: LogPlace,
    cuts: u64,
}

/// Of all files that are appended to.
#[derive(Debug, Default)]
pub struct Ends {
    files: BTreeMap<Ino, End>,
}

impl Ends {
    /// The file was closed by everybody, or is gone.
    pub fn forget(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }

    /// The file was cut: it ends where its row says, whatever those who have it open believe.
    pub fn cut(&mut self, ino: Ino, clients: impl Iterator<Item = ClientId>) {
        self.files.insert(ino, End { behind: clients.collect(), ..End::default() });
    }

    /// The file was open in an earlier life of the server: nobody has looked where it ends since.
    fn restarted(&mut self, ino: Ino) {
        self.files.entry(ino).or_default().asked.get_or_insert_default();
    }

    /// Is what the client knows from before a cut, or from before a restart? A client of an older release, which does not say as of
    /// which count of `cuts` it knows the end, is told of a cut once. Of a restart each is told until one of its lanes has looked
    /// since: its others may be about to ask with what they saw before.
    fn take_behind(&mut self, m: &ReserveEnd, client: ClientId, looked: bool, cuts: u64) -> bool {
        let is_old = m.cuts.is_some_and(|known| known < cuts);
        let Some(end) = self.files.get_mut(&m.ino) else { return is_old };
        let unasked = end.asked.as_mut().is_some_and(|asked| {
            if looked {
                asked.insert(client);
            }
            !asked.contains(&client)
        });
        let was_cut = end.behind.remove(&client);
        is_old || was_cut && m.cuts.is_none() || unasked
    }

    /// To whom ranges of it were given. `generation`: what was given in another one is gone with its chunk files.
    fn takers(&self, ino: Ino, generation: Option<Generation>) -> impl Iterator<Item = ClientId> {
        let is_of = |end: &&End| generation.is_none_or(|generation| end.generation == generation);
        let end = self.files.get(&ino).filter(is_of).into_iter();
        end.flat_map(|end| end.given.keys().map(|(client, _)| *client).chain(end.before.iter().copied()))
    }

    /// How many files are appended to.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    fn of(&mut self, ino: Ino, generation: Generation) -> &mut End {
        let end = self.files.entry(ino).or_default();
        if end.generation != generation {
            let (behind, asked) = (core::mem::take(&mut end.behind), end.asked.take());
            *end = End { generation, behind, asked, ..End::default() };
        }
        end
    }

    /// The range that this very question was answered with, since the last cut: its answer was lost.
    fn given(&self, lane: (ClientId, Slot), m: &ReserveEnd, generation: Generation) -> Option<u64> {
        let end = self.files.get(&m.ino).filter(|end| end.generation == generation)?;
        let given = end.given.get(&lane).filter(|given| (given.number, given.len) == (m.number, m.len));
        given.map(|given| given.offset)
    }

    /// The next `m.len` bytes, at or behind `size`.
    fn reserve(
        &mut self,
        lane: (ClientId, Slot),
        m: &ReserveEnd,
        generation: Generation,
        size: u64,
    ) -> Result<u64, Refusal> {
        let end = self.of(m.ino, generation);
        let offset = size.max(end.end).max(m.at_least);
        let new_end = offset.saturating_add(m.len);
        if new_end > FILE_SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        end.end = new_end;
        end.given.insert(lane, Given { number: m.number, len: m.len, offset });
        Ok(offset)
    }
}

impl Shard {
    /// `ReserveEnd`.
    pub(super) fn reserve_end<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        m: &ReserveEnd,
    ) -> Result<(), StoreError> {
        let (to, _shard, client) = (request.reply_to, request.call.shard, request.peer.client);
        if let Some(bytes) = host.store.get(&key::of_ino(Table::Trim, m.ino))? {
            // Where the file ends is not settled before the targets have cut it.
            let id = Trim::from_bytes(&bytes).map_err(|e| corrupt("trim row", e))?.id;
            self.park(host, For::Trim(m.ino, id), Parked::Again(request.clone().into()));
            return Ok(());
        }
        let result = match self.appendable(host, request, m)? {
            Err(refusal) => Err(refusal),
            Ok(Appendable { generation, size, trims, cuts }) => {
                let live = self.opens.other_writers(m.ino, client)
                    || is_open_ended(&self.writers, &host.sessions, m.ino);
                let looked = m.looked == self.term();
                let behind = self.ends.take_behind(m, client, looked, cuts);
                let lane = (client, request.call.slot);
                let offset = match self.ends.given(lane, m, generation) {
                    // Whatever others do by now: were another one given, zeros would stay in this.
                    Some(offset) => Ok(Some(offset)),
                    None if behind || live && !looked => Ok(None),
                    None => self.ends.reserve(lane, m, generation, size).map(Some),
                };
                offset.map(|offset| ReserveEndReply { offset, generation, trims }.to_bytes())
            }
        };
        self.answer(host, to, self.stamp(), result);
        Ok(())
    }

    /// Can the file be appended to?
    fn appendable<S: Store>(
        &self,
        host: &Host<S>,
        request: &Request,
        m: &ReserveEnd,
    ) -> Result<Result<Appendable, Refusal>, StoreError> {
        if m.ino.shard() != request.call.shard {
            return Ok(Err(Refusal::with(Status::MALFORMED, "the inode belongs to another shard")));
        }
        let Some(inode) = self.inode(host, m.ino)? else { return Ok(Err(Errno::ESTALE.into())) };
        Ok(match inode.kind {
            Kind::Dir => Err(Errno::EISDIR.into()),
            Kind::File if inode.layout.is_inline() => Err(Status::MUST_GROW.into()),
            Kind::File if self.grace.holds() || self.is_written_by_late(m.ino) => {
                Err(Refusal::with(Status::GRACE, "clients are still telling how far they have appended"))
            }
            Kind::File => Ok(Appendable {
                generation: inode.layout.generation,
                size: inode.size,
                trims: inode.layout.trims,
                cuts: inode.cuts,
            }),
            _ => Err(Errno::EINVAL.into()),
        })
    }

    /// Had somebody it open for writing who has not told what he has, though the grace period is over? What he was given an end
    /// for may be on its way. His report, or the end of his session, says more.
    fn is_written_by_late(&self, ino: Ino) -> bool {
        self.grace.late().iter().any(|client| self.writers.contains(&(ino, *client)))
    }

    /// A client had the file open for writing in an earlier life of the server, and appends up to `reserved`
    /// of it are under way.
    pub(super) fn reclaim_end<S: Store>(
        &mut self,
        host: &Host<S>,
        (ino, client): (Ino, ClientId),
        reserved: u64,
    ) -> Result<(), StoreError> {
        if let Some(inode) = self.inode(host, ino)?.filter(|inode| !inode.layout.is_inline()) {
            let end = self.ends.of(ino, inode.layout.generation);
            end.end = end.end.max(reserved);
            if reserved > inode.size {
                end.before.insert(client);
            }
            self.ends.restarted(ino);
        }
        Ok(())
    }

    /// Was a range of it given to anybody but `client`? What he writes there may come late, unless his session is over: targets
    /// refuse it then.
    pub(super) fn has_ends_of_others<S: Store>(&self, host: &Host<S>, ino: Ino, client: ClientId) -> bool {
        // A row that is not in memory says nothing here; its run reads it, and asks again.
        let generation = self.inode(host, ino).ok().flatten().map(|inode| inode.layout.generation);
        self.ends.takers(ino, generation).any(|taker| taker != client && host.sessions.lives(taker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who had reserved before a restart counts as who was given a range, in the generation of which it was.
    #[test]
    fn who_has_taken_ends() {
        let (mut ends, ino, one) = (Ends::default(), Ino(1), Generation(1));
        ends.of(ino, one).before.insert(ClientId(2));
        ends.restarted(ino);
        let takers = |ends: &Ends, generation| ends.takers(ino, generation).collect::<alloc::vec::Vec<_>>();
        assert_eq!(takers(&ends, Some(one)), [ClientId(2)]);
        assert_eq!(takers(&ends, None), [ClientId(2)]);
        assert_eq!(takers(&ends, Some(Generation(2))), []);
        ends.forget(ino);
        assert_eq!(takers(&ends, None), []);
    }
}
