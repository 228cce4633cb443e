//! The map and the fence list arrive.

use super::{Group, Host};
use crate::command::{COMMAND_LEVEL_MAX, Format, Place};
use crate::row::header::Keys;
use crate::shard::Shard;
use crate::store::{Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use skep_types::{LogSeq, NamesKey, NodeId, ShardId};
use skep_wire::mgmt::{FencesReply, MapReply, ShardAt, ShardEntry, ShardState};

impl<S: Store> Group<S> {
    pub(super) fn take_map(&mut self, own: NodeId, map: &MapReply) -> Result<(), StoreError> {
        if !self.host.started || self.host.map.is_some_and(|known| map.version < known) {
            return Ok(());
        }
        // Differences are merged by whoever asks for them.
        if !map.is_whole() {
            return Ok(());
        }
        self.require_names(map.names)?;
        (self.host.own, self.host.map) = (own, Some(map.version));
        self.host.spread.update(map);
        self.host.homes.update(map);
        let known: BTreeSet<ShardId> = self.shards.keys().copied().collect();
        self.host.made_with = (map.names, map.command_level.min(COMMAND_LEVEL_MAX));
        self.host.seats = map.shards.iter().map(|entry| (entry.shard, entry.clone())).collect();
        let is_untold = |entry: &&ShardEntry| {
            entry.is_led_by(own) && matches!(entry.state, ShardState::New | ShardState::Moving)
        };
        self.untold = map.shards.iter().filter(is_untold).map(|entry| entry.shard).collect();
        self.host.dismiss_askers();
        for entry in &map.shards {
            self.deliver(entry.shard, |shard, host| shard.placed(host, entry))?;
        }
        self.follow_moves(map)?;
        self.begin_terms()?;
        for entry in map.shards.iter().filter(|entry| entry.is_led_by(own)) {
            self.lead(entry)?;
        }
        self.warn_of_withheld();
        self.require_rows(map, own)?;
        self.note_new_shards(&known);
        self.begin_service()
    }

    /// Names lie where the cluster's key puts them: with another one nobody would find them.
    fn require_names(&self, names: NamesKey) -> Result<(), StoreError> {
        let Some(shard) = self.shards.values().find(|shard| shard.keys().names != names) else {
            return Ok(());
        };
        Err(StoreError::Corrupt(format!(
            "shard {} was made with another key of names than that of mgmtd: one of the two directories was made up \
             of files of different clusters. Put back what belongs together; `names` in skep-mgmtd.toml is the key",
            shard.id
        )))
    }

    fn note_new_shards(&mut self, known: &BTreeSet<ShardId>) {
        let new: Vec<ShardId> = self.shards.keys().copied().filter(|shard| !known.contains(shard)).collect();
        match (new.first(), new.last()) {
            (Some(only), Some(last)) if only == last => {
                self.host.out.note(format!("shard {only} is new: formatted"));
            }
            (Some(first), Some(last)) => {
                let count = new.len();
                self.host.out.note(format!("{count} shards from {first} to {last} are new: formatted"));
            }
            _ => {}
        }
    }

    /// A shard that was formatted once is never formatted again: its rows are lost, or not where they should be. Nobody is
    /// served from it. A group that has nothing at all is not where its directory was, and ends.
    fn require_rows(&mut self, map: &MapReply, own: NodeId) -> Result<(), StoreError> {
        let is_missing = |entry: &&ShardEntry| {
            entry.is_led_by(own)
                && entry.state == ShardState::Active
                && !self.shards.contains_key(&entry.shard)
        };
        let missing: Vec<&ShardEntry> = map.shards.iter().filter(is_missing).collect();
        let Some(first) = missing.first().map(|entry| entry.shard) else { return Ok(()) };
        let what = format!(
            "{} shards of this server (the first is {first}) have no rows here, and mgmtd says that they were used: they \
             are not made anew",
            missing.len()
        );
        if self.last_seq() == LogSeq(0) {
            return Err(StoreError::Corrupt(format!(
                "{what}. Is a disk with `log` or `rows` not mounted? Else put the newest copy of the state directory back"
            )));
        }
        let news = missing.iter().filter(|entry| self.travels.is_news(entry.shard, entry.epoch)).count();
        if news > 0 {
            self.host.out.warn(format!(
                "{what}; nobody is served from them. Were they given to this server or taken from it by `skep shard give`, \
                 and was mgmtd or this server put back from a backup of before that? Stop it, and put its newest copy back. \
                 If mgmtd has no newer one, give each shard to the server that had it last (skep shard give): it goes on \
                 from its own rows"
            ));
        }
        Ok(())
    }

    /// Shards that were formatted or have come, on stable storage, of which mgmtd does not know it: it is to, before anybody
    /// uses them.
    pub fn formatted(&self) -> Vec<ShardAt> {
        let is_made = |shard: &&Shard| (shard.awaits_word() && shard.is_formatted()) || self.has_come(shard);
        let at = |shard: &Shard| ShardAt { shard: shard.id, epoch: self.host.shard_epoch(shard.id) };
        self.untold.iter().filter_map(|shard| self.shards.get(shard)).filter(is_made).map(at).collect()
    }

    /// The map gives this server a shard: it is made when it is new and there are no rows of it.
    fn lead(&mut self, entry: &ShardEntry) -> Result<(), StoreError> {
        if entry.state == ShardState::Moving {
            return Ok(());
        }
        let (names, level) = self.host.made_with;
        let place = Place { epoch: entry.epoch, level, era: entry.era };
        if self.shards.contains_key(&entry.shard) {
            return self.deliver(entry.shard, |shard, host| shard.take_place(host, &place)).map(drop);
        }
        let is_new = entry.state == ShardState::New || self.host.config.canary_formats_missing;
        if !is_new || self.travels.is_swept(entry.shard) {
            return Ok(());
        }
        let keys = Keys { names, secret: NamesKey(self.host.config.hash_key(entry.shard)) };
        let Place { epoch, level, era } = place;
        self.shards.insert(entry.shard, Shard::new(&self.host, entry.shard));
        let format = Format { keys, epoch, level, era };
        self.deliver(entry.shard, |shard, host| {
            shard.format(host, &format)?;
            shard.placed(host, entry)
        })
        .map(drop)
    }

    /// What an earlier stay of the shard had left is gone. If it is to be made here, it waited for that.
    pub(super) fn lead_swept(&mut self, id: ShardId) -> Result<(), StoreError> {
        let is_led = |entry: &&ShardEntry| entry.is_led_by(self.host.own);
        let Some(entry) = self.host.seats.get(&id).filter(is_led).cloned() else { return Ok(()) };
        let known: BTreeSet<ShardId> = self.shards.keys().copied().collect();
        self.lead(&entry)?;
        self.note_new_shards(&known);
        Ok(())
    }

    pub(super) fn take_fences(&mut self, fences: &FencesReply) -> Result<(), StoreError> {
        self.ended.extend(self.host.sessions.update(fences));
        self.end_sessions()?;
        self.begin_service()
    }

    /// Tells the shards of sessions that ended, of so many that a bounded number of shards hears of it. Nothing waits for
    /// that: from the moment at which the list is here they are not served, and what they have counts until it is gone.
    pub(super) fn end_sessions(&mut self) -> Result<(), StoreError> {
        let most = (self.host.config.limits.shards_told / self.shards.len().max(1)).max(1);
        for _ in 0..most {
            let Some(client) = self.ended.pop_first() else { break };
            self.deliver_to_all(|shard, host| {
                shard.end_session(host, client);
                Ok(())
            })?;
            self.host.events.end(client);
            if self.host.config.canary_ends_with_session {
                self.host.leases.end_all(client);
            }
        }
        Ok(())
    }

    /// Shards whose service can begin begin it: so many in one step, the others are due at once.
    pub(super) fn begin_service(&mut self) -> Result<(), StoreError> {
        let can_begin = |shard: &&Shard| shard.can_begin(&self.host);
        self.beginning.extend(self.shards.values().filter(can_begin).map(|shard| shard.id));
        self.begin_some()
    }

    pub(super) fn begin_some(&mut self) -> Result<(), StoreError> {
        let mut begun = false;
        for _ in 0..self.host.config.limits.shards_told {
            let Some(shard) = self.beginning.pop_first() else { break };
            let in_grace =
                |shard: &mut Shard, host: &mut Host<S>| Ok(shard.begin_service(host)? && shard.is_in_grace());
            begun |= self.deliver(shard, in_grace)?.unwrap_or(false);
        }
        if begun {
            let living = self.host.sessions.living().count();
            self.host.out.note(format!("grace period: {living} sessions may reclaim what they have open"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Output;
    use crate::testing::*;

    /// Goal: a map with another key of names ends the server before it makes or serves anything: with it no name
    /// would be found where mounts look for it.
    #[test]
    fn another_key_of_names_is_refused() {
        let mut bed = Bed::new();
        let other = MapReply { names: NamesKey([6; 16]), version: skep_types::MapVersion(2), ..map(2, 5) };
        let mut out = Output::default();
        let input = crate::Input::Map { own: OWN, map: other };
        let step = bed.server.step(bed.now, bed.wall(), input, &mut out);
        assert!(step.is_err_and(|e| format!("{e:?}").contains("another key of names")));
        assert_eq!((out.records.len(), bed.server.shards.len()), (0, 1));
    }
}
