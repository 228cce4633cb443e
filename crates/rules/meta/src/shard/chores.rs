//! Work without a bound of its own: what a session that ended leaves behind, the orphans of a grace period,
//! growths that were given up. Each tick works off a little; a crash loses only the plan, which the rows and
//! the fence list make anew.

use super::Shard;
use super::lend::ANYBODY;
use crate::command::{CancelGrowth, EraTold, Internal, Lane, Purge, SessionGone};
use crate::fail::corrupt;
use crate::group::Host;
use crate::key::{self, Table};
use crate::limit::GROWTH_AGE_MAX_MS;
use crate::op::grow_age_ms;
use crate::row::growth::Growth;
use crate::store::{Store, StoreError};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::discriminant;
use core::ops::Bound;
use skep_types::{ClientId, Decode, Ino, Slot};

/// How far the end of a session is. While it lasts its opens and its writers count: others are told
/// that the file may still change, which is the safe side.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Its lanes are forgotten.
    Lanes,
    /// Its growths are given up, behind this file.
    Growths(Option<Ino>),
    /// It copies no growth any more that was given up before.
    DeadGrowths,
    /// Its files line up for their sizes to be asked for, behind this writer.
    Sizes(Option<(Ino, ClientId)>),
    /// Its opens, and then its part in the grace period.
    Opens,
}

/// A walk through a table in memory, behind `after`.
#[derive(Debug)]
enum Sweep {
    /// Orphans that nobody has open.
    Orphans { after: Option<Ino> },
    /// Growths that are too old.
    Growths { after: Option<Ino> },
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Chores {
    /// Locks of sessions that ended, behind this file. They write no rows, and others wait for them: they come first, also
    /// where there is no room for rows.
    unlocks: VecDeque<(ClientId, Ino)>,
    ended: VecDeque<(ClientId, Stage)>,
    sweeps: VecDeque<Sweep>,
}

impl Chores {
    /// Is there something to do? `holds`: nothing that writes rows.
    pub fn is_due(&self, holds: bool) -> bool {
        let is_empty = self.ended.is_empty() && self.sweeps.is_empty();
        !(self.unlocks.is_empty() && (holds || is_empty))
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.unlocks.len() + self.ended.len() + self.sweeps.len()
    }
}

fn behind<T>(after: Option<T>) -> (Bound<T>, Bound<T>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl Shard {
    /// A session is over. Its locks go at once, if they are few.
    pub fn end_session<S: Store>(&mut self, host: &mut Host<S>, client: ClientId) {
        // Whoever answers for the shard next finds it in the rows.
        if !self.acts() {
            return;
        }
        self.remembered.end(client);
        self.end_held(host, client);
        self.unlock_some(host, client, None);
        self.chores.ended.push_back((client, Stage::Lanes));
    }

    fn unlock_some<S: Store>(&mut self, host: &Host<S>, client: ClientId, after: Option<Ino>) {
        let last = self.locks.end_some(host.now, client, after, host.config.limits.chore_looks);
        self.chores.unlocks.extend(last.map(|last| (client, last)));
    }

    /// What is open is known: orphans that nobody claimed go.
    pub(super) fn opens_known<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        if !self.orphans.is_empty() {
            self.chores.sweeps.push_back(Sweep::Orphans { after: None });
        }
        if core::mem::take(&mut self.era_untold) {
            self.decide(host, &Internal::EraTold(EraTold {}))?;
        }
        Ok(())
    }

    /// Growths that are too old are given up.
    pub(super) fn sweep_growths(&mut self) {
        self.chores.sweeps.push_back(Sweep::Growths { after: None });
    }

    /// Works off a little.
    pub(super) fn do_chores<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        while host.chores_left > 0 && self.chores.is_due(host.holds_chores) {
            if let Some((client, after)) = self.chores.unlocks.pop_front() {
                self.unlock_some(host, client, Some(after));
            } else if let Some((client, stage)) = self.chores.ended.pop_front() {
                let (before, was_quiet) = (host.last, self.writers.is_empty());
                let next = self.end_some(host, client, stage)?;
                if let Some(next) = next {
                    self.chores.ended.push_front((client, next));
                }
                // Most of what a session could have left behind it has not: to find that out costs nothing.
                let goes_on = next.is_some_and(|next| discriminant(&next) == discriminant(&stage));
                if host.last == before && was_quiet && !goes_on {
                    continue;
                }
            } else if let Some(sweep) = self.chores.sweeps.pop_front()
                && let Some(rest) = self.sweep_some(host, sweep)?
            {
                self.chores.sweeps.push_front(rest);
            }
            if !host.config.canary_one_big_step {
                host.chores_left -= 1;
            }
        }
        Ok(())
    }

    /// The next part of a session's end; what follows it.
    fn end_some<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        stage: Stage,
    ) -> Result<Option<Stage>, StoreError> {
        let looks = host.config.limits.chore_looks;
        Ok(Some(match stage {
            Stage::Lanes => {
                self.decide(host, &Internal::SessionGone(SessionGone { client }))?;
                self.holders.remove(&client);
                if host.config.canary_row_goes {
                    self.decide(host, &Internal::SessionGone(SessionGone { client: ANYBODY }))?;
                }
                Stage::Growths(None)
            }
            Stage::Growths(after) => match self.cancel_some(host, after, |g| g.client == client)? {
                Some(last) => Stage::Growths(Some(last)),
                None => Stage::DeadGrowths,
            },
            Stage::DeadGrowths => match self.dead_growths.iter().find(|(owner, _)| *owner == client) {
                Some(lane) => {
                    let lane = *lane;
                    self.lane_is_over(host, lane)?;
                    self.dead_growths.remove(&lane);
                    Stage::DeadGrowths
                }
                None => Stage::Sizes(None),
            },
            Stage::Sizes(after) => {
                let seen: Vec<_> = self.writers.range(behind(after)).take(looks).copied().collect();
                let own = seen.iter().filter(|(_, writer)| *writer == client);
                own.for_each(|(ino, _)| self.recoveries.line_up(*ino));
                match seen.last() {
                    Some(last) if seen.len() == looks => Stage::Sizes(Some(*last)),
                    _ => Stage::Opens,
                }
            }
            Stage::Opens => {
                // As many as one command can purge: all of them may be orphans.
                let ended = self.opens.end_some(&mut host.opens, client, host.config.limits.purge_batch);
                if ended.is_empty() {
                    if self.grace.reported(client) {
                        self.opens_known(host)?;
                    }
                    return Ok(None);
                }
                let idle: Vec<Ino> = ended.into_iter().filter(|ino| !self.opens.is_open(*ino)).collect();
                idle.iter().for_each(|ino| self.ends.forget(*ino));
                self.purge(host, idle)?;
                Stage::Opens
            }
        }))
    }

    fn sweep_some<S: Store>(
        &mut self,
        host: &mut Host<S>,
        sweep: Sweep,
    ) -> Result<Option<Sweep>, StoreError> {
        match sweep {
            Sweep::Orphans { after } => {
                let most = host.config.limits.purge_batch;
                let seen: Vec<Ino> = self.orphans.range(behind(after)).take(most).copied().collect();
                let Some(last) = seen.last().copied() else { return Ok(None) };
                self.purge(host, seen)?;
                Ok(Some(Sweep::Orphans { after: Some(last) }))
            }
            Sweep::Growths { after } => {
                let wall = host.wall;
                let old = |growth: &Growth| grow_age_ms(growth.since, wall) >= GROWTH_AGE_MAX_MS;
                let last = self.cancel_some(host, after, old)?;
                Ok(last.map(|last| Sweep::Growths { after: Some(last) }))
            }
        }
    }

    /// Cancels those growths among the next that `wanted` says yes to; the last that was looked at.
    fn cancel_some<S: Store>(
        &mut self,
        host: &mut Host<S>,
        after: Option<Ino>,
        wanted: impl Fn(&Growth) -> bool,
    ) -> Result<Option<Ino>, StoreError> {
        let most = host.config.limits.purge_batch;
        let seen: Vec<Ino> = self.growths.range(behind(after)).take(most).copied().collect();
        let mut inos = Vec::new();
        for ino in &seen {
            if let Some(bytes) = host.store.get(&key::of_ino(Table::Growth, *ino))?
                && wanted(&Growth::from_bytes(&bytes).map_err(|e| corrupt("growth row", e))?)
            {
                inos.push(*ino);
            }
        }
        if !inos.is_empty() {
            self.decide(host, &Internal::CancelGrowth(CancelGrowth { inos, over: None }))?;
        }
        Ok(seen.last().copied())
    }

    /// Purges those of `inos` that are orphans which nobody has open.
    pub(super) fn purge<S: Store>(&mut self, host: &mut Host<S>, inos: Vec<Ino>) -> Result<(), StoreError> {
        let idle = |ino: &Ino| {
            self.orphans.contains(ino)
                && !self.opens.is_open(*ino)
                && self.grace.knows_opens()
                && !self.seals.has(*ino)
        };
        let inos: Vec<Ino> = inos.into_iter().filter(idle).collect();
        for inos in inos.chunks(host.config.limits.purge_batch) {
            self.decide(host, &Internal::Purge(Purge { inos: inos.to_vec() }))?;
        }
        Ok(())
    }

    /// A lane asks for something new, or its session is over: growths that were given up while it copied get
    /// their second deletion.
    pub(super) fn lane_is_over<S: Store>(
        &mut self,
        host: &mut Host<S>,
        (client, slot): (ClientId, Slot),
    ) -> Result<(), StoreError> {
        if !self.dead_growths.contains(&(client, slot)) {
            return Ok(());
        }
        let over = CancelGrowth { inos: Vec::new(), over: Some(Lane { client, slot }) };
        self.decide(host, &Internal::CancelGrowth(over))
    }
}
