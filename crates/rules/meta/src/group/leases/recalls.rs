//! What is being taken back. From the first recall for a request until that has its answer nobody gets a lease on the inode:
//! else it would have to be taken back again, for ever.

use super::What;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Ino, Millis, ShardId, Term};

/// Who is about to change something.
#[derive(Debug, Clone, Copy)]
pub struct Conflict {
    /// Where its answer goes.
    pub to: u64,
    /// Who asks: he is not asked to drop anything.
    pub client: ClientId,
    /// The shard.
    pub shard: ShardId,
    /// Its term.
    pub term: Term,
    /// The time.
    pub now: Millis,
}

/// A recall that went out.
#[derive(Debug)]
struct Told {
    ino: Ino,
    what: What,
    at: Millis,
    /// The lease is wanted back with it.
    wants_back: bool,
    /// Waits for it.
    waits: Vec<u64>,
}

/// Why there are no grants on an inode.
#[derive(Debug, Default)]
struct Blocked {
    /// Requests that are to change it.
    requests: usize,
    /// Recalls that are not confirmed.
    out: usize,
}

#[derive(Debug, Default)]
pub struct Recalls {
    told: BTreeMap<(ClientId, u64), Told>,
    /// The recall that is out; `None`: it was confirmed, and nobody was given anything of it since.
    parts: BTreeMap<(Ino, What, ClientId), Option<u64>>,
    blocked: BTreeMap<Ino, Blocked>,
    /// Those that are out by which a lease is wanted back: one for each.
    wanted: BTreeMap<(Ino, ClientId), u64>,
    /// For each wait: its shard, and how many recalls it waits for.
    left: BTreeMap<u64, (ShardId, usize)>,
    next: u64,
    over: Vec<(ShardId, u64)>,
    /// What each request is to change.
    holds: BTreeMap<u64, BTreeSet<Ino>>,
}

impl Recalls {
    /// Are there no grants on it now?
    pub fn blocks(&self, ino: Ino) -> bool {
        self.blocked.contains_key(&ino)
    }

    /// Has this holder dropped it?
    pub fn is_cleared(&self, ino: Ino, what: &What, holder: ClientId) -> bool {
        self.parts.get(&(ino, what.clone(), holder)) == Some(&None)
    }

    /// The recall by which this holder was told.
    pub fn is_out(&self, ino: Ino, what: &What, holder: ClientId) -> Option<u64> {
        self.parts.get(&(ino, what.clone(), holder)).copied().flatten()
    }

    /// The recall by which this holder was told that the lease is wanted back, whatever else it names.
    pub fn wanted_by(&self, ino: Ino, holder: ClientId) -> Option<u64> {
        self.wanted.get(&(ino, holder)).copied()
    }

    pub fn told(
        &mut self,
        holder: ClientId,
        number: u64,
        (ino, what): (Ino, What),
        wants_back: bool,
        at: Millis,
    ) {
        self.blocked.entry(ino).or_default().out += 1;
        self.parts.insert((ino, what.clone(), holder), Some(number));
        if wants_back {
            self.wanted.insert((ino, holder), number);
        }
        self.told.insert((holder, number), Told { ino, what, at, wants_back, waits: Vec::new() });
    }

    /// The request waits for these recalls; `None`: there are none.
    pub fn wait(
        &mut self,
        request: &Conflict,
        inos: impl Iterator<Item = Ino>,
        awaited: Vec<(ClientId, u64)>,
    ) -> Option<u64> {
        if awaited.is_empty() {
            return None;
        }
        for ino in inos {
            if self.holds.entry(request.to).or_default().insert(ino) {
                self.blocked.entry(ino).or_default().requests += 1;
            }
        }
        let id = self.next;
        self.next += 1;
        self.left.insert(id, (request.shard, awaited.len()));
        for key in awaited {
            if let Some(told) = self.told.get_mut(&key) {
                told.waits.push(id);
            }
        }
        Some(id)
    }

    /// Of which inode a recall is out, and since when.
    pub fn out_since(&self, client: ClientId, number: u64) -> Option<(Ino, Millis)> {
        self.told.get(&(client, number)).map(|told| (told.ino, told.at))
    }

    /// What was confirmed.
    pub fn confirmed(&mut self, client: ClientId, number: u64) -> Option<(Ino, What)> {
        let Told { ino, what, wants_back, waits, .. } = self.told.remove(&(client, number))?;
        self.parts.insert((ino, what.clone(), client), None);
        if wants_back {
            self.wanted.remove(&(ino, client));
        }
        for id in waits {
            if let Some((shard, left)) = self.left.get_mut(&id) {
                *left -= 1;
                if *left == 0 {
                    self.over.push((*shard, id));
                    self.left.remove(&id);
                }
            }
        }
        self.less(ino, |blocked| blocked.out -= 1);
        Some((ino, what))
    }

    fn less(&mut self, ino: Ino, what: impl FnOnce(&mut Blocked)) {
        let Some(blocked) = self.blocked.get_mut(&ino) else { return };
        what(blocked);
        if (blocked.requests, blocked.out) == (0, 0) {
            self.blocked.remove(&ino);
            let of = (ino, What::FIRST, ClientId(0))..=(ino, What::Everything, ClientId(u64::MAX));
            self.parts.extract_if(of, |_, _| true).for_each(drop);
        }
    }

    pub fn release(&mut self, to: u64) {
        for ino in self.holds.remove(&to).unwrap_or_default() {
            self.less(ino, |blocked| blocked.requests -= 1);
        }
    }

    pub fn take_over(&mut self) -> Vec<(ShardId, u64)> {
        core::mem::take(&mut self.over)
    }

    /// When the oldest recall went out that a client has not confirmed.
    pub fn oldest(&self, client: ClientId) -> Option<Millis> {
        let all = (client, 0)..=(client, u64::MAX);
        self.told.range(all).next().map(|(_, told)| told.at)
    }

    /// Is any out of this shard?
    pub fn has_of(&self, shard: ShardId) -> bool {
        self.told.values().any(|told| told.ino.shard() == shard)
    }

    /// Of those that are not confirmed the one that went out first: when, to whom, and about what.
    pub fn first_out(&self) -> Option<(Millis, ClientId, Ino)> {
        let all = self.told.iter().map(|((client, _), told)| (told.at, *client, told.ino));
        all.min_by_key(|(at, ..)| *at)
    }

    /// Those who have not confirmed all.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.told.keys().map(|(client, _)| *client)
    }

    pub fn is_quiet(&self) -> bool {
        self.told.is_empty()
    }

    pub fn len(&self) -> usize {
        self.told.len()
    }

    /// Of one inode.
    pub fn end_of(&mut self, client: ClientId, ino: Ino) {
        let of = (ino, What::FIRST, ClientId(0))..=(ino, What::Everything, ClientId(u64::MAX));
        let out = self.parts.range(of).filter(|((_, _, holder), _)| *holder == client);
        let numbers: Vec<u64> = out.filter_map(|(_, number)| *number).collect();
        for number in numbers {
            self.confirmed(client, number);
        }
    }

    pub fn end_all(&mut self, client: ClientId) {
        let all = (client, 0)..=(client, u64::MAX);
        let numbers: Vec<u64> = self.told.range(all).map(|((_, number), _)| *number).collect();
        for number in numbers {
            self.confirmed(client, number);
        }
    }

    pub fn end_shard(&mut self, shard: ShardId) {
        let told = self.told.iter().filter(|(_, told)| told.ino.shard() == shard);
        let ended: Vec<(ClientId, u64)> = told.map(|(key, _)| *key).collect();
        for (client, number) in ended {
            self.confirmed(client, number);
        }
        self.over.retain(|(of, _)| *of != shard);
    }

    #[cfg(test)]
    pub fn check(&self) {
        let out: BTreeSet<_> = self
            .told
            .iter()
            .map(|((client, number), told)| (told.ino, told.what.clone(), *client, *number))
            .collect();
        let parts = self.parts.iter().filter_map(|((ino, what, client), number)| {
            number.map(|number| (*ino, what.clone(), *client, number))
        });
        assert_eq!(out, parts.collect());
        let wanted = self.told.iter().filter(|(_, told)| told.wants_back);
        let wanted = wanted.map(|((client, number), told)| ((told.ino, *client), *number));
        assert_eq!(self.wanted, wanted.collect());
        for (ino, blocked) in &self.blocked {
            assert_eq!(blocked.out, self.told.values().filter(|told| told.ino == *ino).count());
            assert_eq!(blocked.requests, self.holds.values().filter(|inos| inos.contains(ino)).count());
            assert!(blocked.out + blocked.requests > 0);
        }
        assert!(self.parts.keys().all(|(ino, ..)| self.blocked.contains_key(ino)));
        assert!(self.holds.values().flatten().all(|ino| self.blocked.contains_key(ino)));
    }
}
