//! Work without a bound of its own: what a session that ended leaves behind, the orphans of a grace period,
//! growths that were given up. Each tick works off a little; a crash loses only the plan, which the rows and
//! the fence list make anew.

use super::Server;
use super::message::Output;
use crate::command::{CancelGrowth, Internal, Purge, SessionGone};
use crate::fail::corrupt;
use crate::key::{self, Table};
use crate::limit::GROWTH_AGE_MAX_MS;
use crate::op::grow_age_ms;
use crate::row::growth::Growth;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use skep_types::{ClientId, Decode, Ino, Millis, ShardId, Timestamp};

/// How far the end of a session is. While it lasts its opens and its writers count: others are told
/// that the file may still change, which is the safe side.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Its lanes are forgotten, from this shard on.
    Lanes(ShardId),
    /// Its growths are given up, behind this file.
    Growths(Option<Ino>),
    /// It copies no growth any more that was given up before.
    DeadGrowths,
    /// The sizes of its files are asked for, behind this writer.
    Sizes(Option<(Ino, ClientId)>),
    /// Its opens, and then its part in the grace period.
    Opens,
}

/// A walk through a table in memory, behind `after`.
#[derive(Debug)]
enum Sweep {
    /// Orphans that nobody has open.
    Orphans { shards: Vec<ShardId>, after: Option<Ino> },
    /// Growths that are too old.
    Growths { after: Option<Ino> },
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Chores {
    /// The hands have no room for more rows.
    held: bool,
    ended: VecDeque<(ClientId, Stage)>,
    sweeps: VecDeque<Sweep>,
}

impl Chores {
    fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.sweeps.is_empty()
    }

    /// Is there something that may be done now?
    pub fn are_due(&self) -> bool {
        !self.held && !self.is_empty()
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.ended.len() + self.sweeps.len()
    }
}

fn behind<T>(after: Option<T>) -> (Bound<T>, Bound<T>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl<S: Store> Server<S> {
    /// There is (no) room for rows that nobody waits for: work that can wait does.
    pub fn hold_chores(&mut self, hold: bool) {
        self.chores.held = hold;
    }

    /// A session is over. Its locks go at once: others wait for them.
    pub(super) fn end_session(&mut self, now: Millis, client: ClientId, out: &mut Output) {
        self.remembered.end(client);
        self.locks.end(now, client);
        self.tell_outcomes(out);
        self.chores.ended.push_back((client, Stage::Lanes(ShardId(0))));
    }

    /// What is open in `shards` is known: orphans that nobody claimed go.
    pub(super) fn opens_known(&mut self, shards: &[ShardId]) {
        if !shards.is_empty() && !self.orphans.is_empty() {
            self.chores.sweeps.push_back(Sweep::Orphans { shards: shards.to_vec(), after: None });
        }
    }

    /// Growths that are too old are given up.
    pub(super) fn sweep_growths(&mut self) {
        self.chores.sweeps.push_back(Sweep::Growths { after: None });
    }

    /// Works off a little.
    pub(super) fn do_chores(
        &mut self,
        now: Millis,
        wall: Timestamp,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let mut left = self.config.limits.chores_per_step;
        while left > 0 && self.chores.are_due() {
            if let Some((client, stage)) = self.chores.ended.pop_front() {
                if let Some(next) = self.end_some(now, wall, client, stage, out)? {
                    self.chores.ended.push_front((client, next));
                }
            } else if let Some(sweep) = self.chores.sweeps.pop_front()
                && let Some(rest) = self.sweep_some(wall, sweep, out)?
            {
                self.chores.sweeps.push_front(rest);
            }
            if !self.config.canary_one_big_step {
                left -= 1;
            }
        }
        Ok(())
    }

    /// The next part of a session's end; what follows it.
    fn end_some(
        &mut self,
        _now: Millis,
        wall: Timestamp,
        client: ClientId,
        stage: Stage,
        out: &mut Output,
    ) -> Result<Option<Stage>, StoreError> {
        let looks = self.config.limits.chore_looks;
        Ok(Some(match stage {
            Stage::Lanes(from) => {
                let Some(shard) = self.shards.range(from..).next().map(|(shard, _)| *shard) else {
                    return Ok(Some(Stage::Growths(None)));
                };
                self.decide(wall, shard, &Internal::SessionGone(SessionGone { client }), out)?;
                Stage::Lanes(ShardId(shard.0 + 1))
            }
            Stage::Growths(after) => match self.cancel_some(wall, after, |g| g.client == client, out)? {
                Some(last) => Stage::Growths(Some(last)),
                None => Stage::DeadGrowths,
            },
            Stage::DeadGrowths => match self.dead_growths.iter().find(|(_, owner, _)| *owner == client) {
                Some(lane) => {
                    let lane = *lane;
                    self.lane_is_over(wall, lane, out)?;
                    self.dead_growths.remove(&lane);
                    Stage::DeadGrowths
                }
                None => Stage::Sizes(None),
            },
            Stage::Sizes(after) => {
                let seen: Vec<_> = self.writers.range(behind(after)).take(looks).copied().collect();
                for (ino, _) in seen.iter().filter(|(_, writer)| *writer == client) {
                    self.recover(*ino, out)?;
                }
                match seen.last() {
                    Some(last) if seen.len() == looks => Stage::Sizes(Some(*last)),
                    _ => Stage::Opens,
                }
            }
            Stage::Opens => {
                // As many as one command can purge: all of them may be orphans.
                let ended = self.opens.end_some(client, self.config.limits.purge_batch);
                if ended.is_empty() {
                    let over = self.grace.gone(client);
                    self.opens_known(&over);
                    return Ok(None);
                }
                let idle: Vec<Ino> = ended.into_iter().filter(|ino| !self.opens.is_open(*ino)).collect();
                idle.iter().for_each(|ino| self.ends.forget(*ino));
                self.purge(wall, idle, out)?;
                Stage::Opens
            }
        }))
    }

    fn sweep_some(
        &mut self,
        wall: Timestamp,
        sweep: Sweep,
        out: &mut Output,
    ) -> Result<Option<Sweep>, StoreError> {
        match sweep {
            Sweep::Orphans { shards, after } => {
                let most = self.config.limits.purge_batch;
                let seen: Vec<Ino> = self.orphans.range(behind(after)).take(most).copied().collect();
                let Some(last) = seen.last().copied() else { return Ok(None) };
                let inos = seen.into_iter().filter(|ino| shards.contains(&ino.shard())).collect();
                self.purge(wall, inos, out)?;
                Ok(Some(Sweep::Orphans { shards, after: Some(last) }))
            }
            Sweep::Growths { after } => {
                let old = |growth: &Growth| grow_age_ms(growth.since, wall) >= GROWTH_AGE_MAX_MS;
                let last = self.cancel_some(wall, after, old, out)?;
                Ok(last.map(|last| Sweep::Growths { after: Some(last) }))
            }
        }
    }

    /// Cancels those growths among the next that `wanted` says yes to; the last that was looked at.
    fn cancel_some(
        &mut self,
        wall: Timestamp,
        after: Option<Ino>,
        wanted: impl Fn(&Growth) -> bool,
        out: &mut Output,
    ) -> Result<Option<Ino>, StoreError> {
        let most = self.config.limits.purge_batch;
        let seen: Vec<Ino> = self.growths.range(behind(after)).take(most).copied().collect();
        let mut inos = Vec::new();
        for ino in &seen {
            if let Some(bytes) = self.store.get(&key::of_ino(Table::Growth, *ino))?
                && wanted(&Growth::from_bytes(&bytes).map_err(|e| corrupt("growth row", e))?)
            {
                inos.push(*ino);
            }
        }
        for (shard, inos) in by_shard(inos) {
            self.decide(wall, shard, &Internal::CancelGrowth(CancelGrowth { inos, over: None }), out)?;
        }
        Ok(seen.last().copied())
    }

    /// Purges those of `inos` that are orphans which nobody has open.
    pub(super) fn purge(
        &mut self,
        wall: Timestamp,
        inos: Vec<Ino>,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let idle = |ino: &Ino| {
            self.orphans.contains(ino)
                && !self.opens.is_open(*ino)
                && self.grace.knows_opens(ino.shard())
                && !self.seals.has(*ino)
        };
        let inos: Vec<Ino> = inos.into_iter().filter(idle).collect();
        for (shard, inos) in by_shard(inos) {
            for inos in inos.chunks(self.config.limits.purge_batch) {
                self.decide(wall, shard, &Internal::Purge(Purge { inos: inos.to_vec() }), out)?;
            }
        }
        Ok(())
    }
}

pub(super) fn by_shard(inos: Vec<Ino>) -> BTreeMap<ShardId, Vec<Ino>> {
    let mut map: BTreeMap<ShardId, Vec<Ino>> = BTreeMap::new();
    for ino in inos {
        map.entry(ino.shard()).or_default().push(ino);
    }
    map
}
