//! The map and the fence list arrive; service begins.

use super::message::Output;
use super::serials::Serials;
use super::{Server, Shard};
use crate::command::{COMMAND_LEVEL_MAX, CancelGrowth, Format, Internal, Lane, Place};
use crate::fail::corrupt;
use crate::key::{self, Table};
use crate::row::growth::Growth;
use crate::row::header::{Header, Keys};
use crate::store::{Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Decode, LogIndex, Millis, NamesKey, NodeId, ShardId, Slot, Timestamp};
use skep_wire::mgmt::{FencesReply, MapReply, ShardEntry, ShardState};

impl<S: Store> Server<S> {
    pub(super) fn take_map(
        &mut self,
        now: Millis,
        wall: Timestamp,
        own: NodeId,
        map: &MapReply,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        if self.started.is_none() || self.map.is_some_and(|known| map.version < known) {
            return Ok(());
        }
        // Asked for with the version that is held: nothing new.
        if map.nodes.is_empty() {
            return Ok(());
        }
        self.require_names(map.names)?;
        let was_ready = self.is_ready();
        (self.own, self.map) = (own, Some(map.version));
        self.spread.update(map);
        let known: BTreeSet<ShardId> = self.shards.keys().copied().collect();
        let level = map.command_level.min(COMMAND_LEVEL_MAX);
        let mut led = BTreeSet::new();
        for entry in &map.shards {
            if entry.replicas.first() == Some(&own) {
                led.insert(entry.shard);
                self.lead(wall, entry, map.names, level, out)?;
            }
        }
        self.require_rows(map, own)?;
        self.note_new_shards(known, out);
        for (shard, place) in &mut self.shards {
            place.leads = led.contains(shard);
        }
        for entry in &map.shards {
            if let Some(place) = self.shards.get_mut(&entry.shard) {
                place.state = entry.state;
            }
        }
        let unworded = self.shards.iter().filter(|(_, place)| place.leads && place.state == ShardState::New);
        self.unworded = unworded.map(|(shard, _)| *shard).collect();
        if !was_ready && self.is_ready() {
            self.begin_service(now, wall, out)?;
        }
        Ok(())
    }

    /// Names lie where the cluster's key puts them: with another one nobody would find them.
    fn require_names(&self, names: NamesKey) -> Result<(), StoreError> {
        let Some((shard, _)) = self.shards.iter().find(|(_, place)| place.keys.names != names) else {
            return Ok(());
        };
        Err(StoreError::Corrupt(format!(
            "shard {shard} was made with another key of names than that of mgmtd: one of the two directories was made up \
             of files of different clusters. Put back what belongs together; `names` in skep-mgmtd.toml is the key"
        )))
    }

    fn note_new_shards(&self, known: BTreeSet<ShardId>, out: &mut Output) {
        let new: Vec<ShardId> = self.shards.keys().copied().filter(|shard| !known.contains(shard)).collect();
        match (new.first(), new.last()) {
            (Some(only), Some(last)) if only == last => out.note(format!("shard {only} is new: formatted")),
            (Some(first), Some(last)) => {
                let count = new.len();
                out.note(format!("{count} shards from {first} to {last} are new: formatted"));
            }
            _ => {}
        }
    }

    /// A shard that was formatted once is never formatted again: its rows are lost, or not where they should be.
    fn require_rows(&self, map: &MapReply, own: NodeId) -> Result<(), StoreError> {
        let is_lost = |entry: &&ShardEntry| {
            entry.replicas.first() == Some(&own) && !self.shards.contains_key(&entry.shard)
        };
        let Some(first) = map.shards.iter().find(is_lost) else { return Ok(()) };
        let count = map.shards.iter().filter(is_lost).count();
        Err(StoreError::Corrupt(format!(
            "{count} shards of this server (the first is {}) have no rows here, and mgmtd says that they were used: \
             they are not made anew. Is a disk with `log` or `rows` not mounted? Else put the newest copy of the \
             state directory back",
            first.shard
        )))
    }

    /// Shards that are formatted, on stable storage, and that the map still calls new: mgmtd is to know it before
    /// anybody uses them.
    pub fn formatted(&self) -> Vec<ShardId> {
        let Some(started) = self.started else { return Vec::new() };
        let is_made = |shard: &&ShardId| {
            self.shards.get(shard).is_some_and(|place| self.durable >= place.made.max(started))
        };
        self.unworded.iter().filter(is_made).copied().collect()
    }

    /// The map gives this server a shard: it is made when it is new and there are no rows of it.
    fn lead(
        &mut self,
        wall: Timestamp,
        entry: &ShardEntry,
        names: NamesKey,
        level: u16,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let (shard, epoch, era) = (entry.shard, entry.epoch, entry.era);
        match self.shards.get_mut(&shard) {
            Some(place) if (place.epoch, place.level, place.era) == (epoch, level, era) => Ok(()),
            Some(place) => {
                let jumps = era > place.era;
                (place.epoch, place.level, place.era) = (epoch, level, era);
                self.decide(wall, shard, &Internal::Place(Place { epoch, level, era }), out)?;
                if jumps {
                    out.note(format!(
                        "shard {shard} is an older copy that was put back: era {era}, inode numbers and generations go \
                         on far behind it"
                    ));
                    self.renew_serials(shard)?;
                }
                Ok(())
            }
            None if entry.state == ShardState::New => {
                let keys = Keys { names, secret: NamesKey(self.config.hash_key(shard)) };
                self.decide(wall, shard, &Internal::Format(Format { keys, epoch, level, era }), out)?;
                self.open_shard(shard)?;
                let made = self.last;
                out.sync_now = true;
                if let Some(place) = self.shards.get_mut(&shard) {
                    (place.is_new, place.made) = (true, made);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// What is reserved lies behind the jump.
    fn renew_serials(&mut self, shard: ShardId) -> Result<(), StoreError> {
        let Some(bytes) = self.store.get(&key::header(shard))? else { return Ok(()) };
        let header = Header::from_bytes(&bytes).map_err(|e| corrupt("shard header", e))?;
        if let Some(place) = self.shards.get_mut(&shard) {
            place.serials = Serials::new(header.serials_end);
        }
        Ok(())
    }

    /// Reads a shard's header.
    pub(super) fn open_shard(&mut self, shard: ShardId) -> Result<(), StoreError> {
        let Some(bytes) = self.store.get(&key::header(shard))? else { return Ok(()) };
        let header = Header::from_bytes(&bytes).map_err(|e| corrupt("shard header", e))?;
        if header.format > crate::row::header::FORMAT {
            return Err(StoreError::Corrupt(format!(
                "shard {shard} has row format {}, this release knows {}; start the newer release of skep that wrote it",
                header.format,
                crate::row::header::FORMAT
            )));
        }
        let place = Shard {
            keys: header.keys,
            epoch: header.epoch,
            level: header.level,
            era: header.era,
            leads: false,
            is_new: false,
            made: LogIndex(0),
            state: ShardState::New,
            serials: Serials::new(header.serials_end),
            last: self.last,
        };
        self.shards.insert(shard, place);
        Ok(())
    }

    pub(super) fn take_fences(
        &mut self,
        now: Millis,
        wall: Timestamp,
        fences: &FencesReply,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let (was_ready, was_known) = (self.is_ready(), self.sessions.known());
        let gone = self.sessions.update(fences);
        if !was_known {
            // Sessions that ended while this server was away have left their lanes behind.
            for client in self.clients_in_rows()? {
                if self.sessions.admit(client).is_err() {
                    self.end_session(now, client, out);
                }
            }
        }
        for client in gone {
            self.end_session(now, client, out);
        }
        if !was_ready && self.is_ready() {
            self.begin_service(now, wall, out)?;
        }
        Ok(())
    }

    fn clients_in_rows(&self) -> Result<BTreeSet<ClientId>, StoreError> {
        let mut clients = BTreeSet::new();
        for shard in self.shards.keys() {
            let (from, until) = key::table(*shard, Table::Slot);
            self.store.scan(&from, &until, &mut |key, _| {
                clients.extend(key::slot_of(key).map(|(client, _)| client));
                true
            })?;
            let (from, until) = key::table(*shard, Table::Growth);
            self.store.scan(&from, &until, &mut |_, bytes| {
                clients.extend(Growth::from_bytes(bytes).ok().map(|growth| growth.client));
                true
            })?;
        }
        clients.extend(self.writers.iter().map(|(_, client)| *client));
        clients.extend(self.dead_growths.iter().map(|(_, client, _)| *client));
        clients.remove(&ClientId(0));
        Ok(clients)
    }

    /// A lane asks for something new, or its session is over: growths that were given up while it copied get
    /// their second deletion.
    pub(super) fn lane_is_over(
        &mut self,
        wall: Timestamp,
        lane: (ShardId, ClientId, Slot),
        out: &mut Output,
    ) -> Result<(), StoreError> {
        if !self.dead_growths.contains(&lane) {
            return Ok(());
        }
        let (shard, client, slot) = lane;
        let over = CancelGrowth { inos: Vec::new(), over: Some(Lane { client, slot }) };
        self.decide(wall, shard, &Internal::CancelGrowth(over), out)
    }

    /// Everything is known and durable: service begins.
    pub(super) fn begin_service(
        &mut self,
        now: Millis,
        wall: Timestamp,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let living: BTreeSet<ClientId> = self.sessions.living().collect();
        // Nothing can be open on a shard that was made just now.
        let old = self.shards.iter().filter(|(_, place)| !place.is_new);
        let shards: Vec<ShardId> = old.map(|(shard, _)| *shard).collect();
        self.grace.begin(shards.clone(), &living, now.plus(self.config.grace_ms));
        if !living.is_empty() {
            out.note(format!("grace period: {} sessions may reclaim what they have open", living.len()));
        } else {
            self.opens_known(&shards);
        }
        self.deletions.look_now(now);
        self.rescan_deletions(now, wall, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    /// Goal: a map with another key of names ends the server before it makes or serves anything: with it no name
    /// would be found where mounts look for it.
    #[test]
    fn another_key_of_names_is_refused() {
        let mut bed = Bed::new();
        let other = MapReply { names: NamesKey([6; 16]), version: skep_types::MapVersion(2), ..map(2, 5) };
        let mut out = Output::default();
        let step = bed.server.take_map(bed.now, bed.wall(), OWN, &other, &mut out);
        assert!(step.is_err_and(|e| format!("{e:?}").contains("another key of names")));
        assert_eq!((out.records.len(), bed.server.shards.len()), (0, 1));
    }
}
