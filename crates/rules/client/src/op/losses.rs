//! Losses that are known, looked at again: told to their shards while they stand, forgotten when they do not.

use super::attr::is_gone;
use crate::job::To;
use crate::lane::Lane;
use crate::limits::{LOST_LOOK_MS, LOST_LOOK_SOON_MS, LOST_TELL_SOON_MS, QUICK_MS};
use crate::port::{Cell, Port};
use crate::state::{Seen, Shared, copies};
use alloc::vec::Vec;
use skep_types::{ChunkId, Errno, Layout, Millis, TargetId};
use skep_wire::Refusal;
use skep_wire::meta::{FoundChunk, OpenReply, ReadInline};
use skep_wire::storage::ChunkStat;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Housekeeping: what was found lost is looked at again now and then, and when a metadata server came back, which has
    /// forgotten it: `skep health` goes on saying so until it was put back or given up.
    pub(crate) async fn look_at_losses(&self) {
        let mut away = Vec::new();
        for chunk in self.shared.with(|s| s.losses.due(self.port.now())) {
            let began = self.port.now();
            let shard = self.shared.with(|s| s.node_of(To::Shard(chunk.ino.shard())));
            let seen = match away.contains(&shard) {
                true => Err(Errno::EIO.into()),
                false => self.look_at_loss(chunk).await,
            };
            let now = self.port.now();
            let seen = seen.unwrap_or_else(|refusal: Refusal| {
                if is_gone(refusal.status) {
                    return Seen::Whole;
                }
                away.push(shard);
                Seen::Nothing { again: now.plus(LOST_TELL_SOON_MS) }
            });
            self.shared.with(|s| s.losses.settle(chunk, seen, now));
            if now.since(began) >= QUICK_MS {
                // The thread that does this has to report to other servers, too.
                return;
            }
        }
    }

    /// Tells the shard of it, also when it was put back. Waits for nobody.
    async fn look_at_loss(&self, chunk: ChunkId) -> Result<Seen, Refusal> {
        let ask = |short: Vec<FoundChunk>, layout: Option<&Layout>| {
            let trims = layout.map(|layout| layout.trims).unwrap_or_default();
            self.once(self.asking(chunk.ino.shard(), &ReadInline { ino: chunk.ino, short, trims }))
        };
        let layout = ask(Vec::new(), None).await?.read::<OpenReply>()?.layout;
        let Some(target) = layout.stripe(&chunk).map(copies::to_read) else { return Ok(Seen::Whole) };
        let found = match self.look_at_target(target, chunk).await {
            Ok(found) => found,
            Err(again) => return Ok(Seen::Nothing { again }),
        };
        let floor = layout.floor(&chunk);
        ask(alloc::vec![FoundChunk { chunk, size: found.size, floor }], Some(&layout)).await?;
        Ok(if found.size < floor { Seen::Lost } else { Seen::Whole })
    }

    /// Err: it does not answer; when to look again.
    async fn look_at_target(&self, target: TargetId, chunk: ChunkId) -> Result<ChunkStat, Millis> {
        let asked = self.port.now();
        let node = self.shared.with(|s| match s.losses.silent_until(target, asked) {
            Some(until) => Err(until),
            // Removed: perhaps it comes back.
            None => s.node_of(To::Target(target)).ok_or(asked.plus(LOST_LOOK_MS)),
        })?;
        let mut found = self.look_once(target, chunk).await;
        let is_quick = || self.port.now().since(asked) < QUICK_MS;
        if found.is_err() && is_quick() {
            // By a connection to a life of the server that has ended.
            found = self.look_once(target, chunk).await;
        }
        found.map_err(|_| {
            let now = self.port.now();
            self.shared.with(|s| match is_quick() {
                true => {
                    let soon = now.plus(LOST_LOOK_SOON_MS);
                    s.losses.silent([target], soon);
                    soon
                }
                false => {
                    let (all, late) = (s.map.targets(), now.plus(LOST_LOOK_MS));
                    s.losses.silent(all.filter(|one| one.node == node).map(|one| one.target), late);
                    late
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::lost::tests::{chunk_files, stored, try_read};
    use crate::testing::{Fault, block_on};
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use skep_wire::Message;
    use skep_wire::storage::StatChunks;

    /// Goal: a metadata server that came back hears of what is lost again, and so does one that runs for long; what was put
    /// back is forgotten.
    #[test]
    fn losses_are_told_again() {
        let (cluster, lane, file) = stored(true);
        let key = chunk_files(&cluster)[0];
        let whole = cluster.borrow_mut().targets.chunks.remove(&key).unwrap();
        block_on(lane.housekeeping());
        assert_eq!(try_read(&lane, &file), Err(Errno::EIO));
        let told = || cluster.borrow().shard.told_lost;
        let before = told();
        block_on(lane.housekeeping());
        assert_eq!(told(), before, "it knows");
        cluster.borrow_mut().restarts();
        block_on(lane.getattr(file.attr.ino)).unwrap();
        block_on(lane.housekeeping());
        block_on(lane.housekeeping());
        assert_eq!(told(), before + 1, "once");
        cluster.borrow_mut().now += LOST_LOOK_MS;
        block_on(lane.housekeeping());
        assert_eq!(told(), before + 2);
        cluster.borrow_mut().targets.chunks.insert(key, whole);
        cluster.borrow_mut().now += LOST_LOOK_MS;
        block_on(lane.housekeeping());
        assert_eq!(
            (told(), lane.shared().with(|s| s.losses.len())),
            (before + 3, 0),
            "told that it is whole"
        );
    }

    /// Goal: a target that does not answer is asked for one of its lost chunk files, twice, and for none before the next
    /// look; a shard that does not answer is asked again soon.
    #[test]
    fn looks_at_losses_wait_for_nobody() {
        const EACH: [u64; 6] = [0, 16 << 10, 20 << 10, 64 << 10, 68 << 10, 72 << 10];
        let (cluster, lane, file) = stored(true);
        let whole = cluster.borrow().targets.chunks.clone();
        let targets: BTreeSet<TargetId> = whole.keys().map(|(target, _)| *target).collect();
        let lose = || {
            cluster.borrow_mut().targets.chunks.clear();
            let read = |at| block_on(lane.read(file.handle, at, &mut [0; 10]));
            assert_eq!(EACH.map(read), [Err(Errno::EIO); EACH.len()]);
            assert_eq!(lane.shared().with(|s| s.losses.len()), EACH.len());
        };
        block_on(lane.housekeeping());
        lose();
        let looks = |kind: u16, faults: usize| {
            let before = cluster.borrow().count(StatChunks::KIND);
            cluster.borrow_mut().fail(kind, &vec![Fault::Unreachable; faults]);
            block_on(lane.housekeeping());
            assert_eq!(cluster.borrow().faults[&kind].len(), 0);
            cluster.borrow().count(StatChunks::KIND) - before
        };
        let tries = 2 * targets.len();
        assert_eq!(looks(StatChunks::KIND, 0), 0, "not before it is time");
        cluster.borrow_mut().now += LOST_LOOK_MS;
        assert_eq!(looks(StatChunks::KIND, tries), tries, "for one chunk file each");
        assert_eq!(looks(StatChunks::KIND, 0), 0);
        cluster.borrow_mut().now += LOST_LOOK_SOON_MS;
        assert_eq!(looks(StatChunks::KIND, tries), tries);
        cluster.borrow_mut().targets.chunks = whole;
        block_on(lane.lost(file.attr.ino)).unwrap();
        assert_eq!(looks(StatChunks::KIND, 0), EACH.len(), "a program has found that they answer");
        assert_eq!(lane.shared().with(|s| s.losses.len()), 0);
        lose();
        cluster.borrow_mut().now += LOST_LOOK_MS;
        assert_eq!((looks(ReadInline::KIND, 1), looks(ReadInline::KIND, 0)), (0, 0), "tried for one");
        cluster.borrow_mut().now += LOST_TELL_SOON_MS;
        assert_eq!(looks(ReadInline::KIND, 0), EACH.len());
        assert_eq!(lane.shared().with(|s| s.losses.len()), EACH.len());
    }
}
