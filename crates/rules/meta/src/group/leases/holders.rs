//! Who has a lease on what. What ends together, all of a client or all of a term, counts as nothing at once, and is taken
//! apart little by little.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Ino, ShardId};

/// Leases of one client.
#[derive(Debug, Default)]
struct Of {
    inos: BTreeMap<ShardId, BTreeSet<Ino>>,
    count: usize,
}

#[derive(Debug, Default)]
pub struct Holders {
    /// What counts.
    by_client: BTreeMap<ClientId, Of>,
    /// Who has any of a shard.
    by_shard: BTreeMap<ShardId, BTreeSet<ClientId>>,
    /// With the number of the newest grant. What is not in `by_client` has ended, and is in `ended`.
    by_ino: BTreeMap<Ino, BTreeMap<ClientId, u64>>,
    /// To be taken apart; what was given anew meanwhile counts.
    ended: Vec<(ClientId, BTreeSet<Ino>)>,
    count: usize,
    /// In `ended`.
    left: usize,
}

impl Holders {
    pub fn has(&self, client: ClientId, ino: Ino) -> bool {
        let of = self.by_client.get(&client).and_then(|of| of.inos.get(&ino.shard()));
        of.is_some_and(|inos| inos.contains(&ino))
    }

    /// Who has one on it.
    pub fn of(&self, ino: Ino) -> impl Iterator<Item = ClientId> + '_ {
        let all = self.by_ino.get(&ino).into_iter().flat_map(BTreeMap::keys).copied();
        all.filter(move |client| self.has(*client, ino))
    }

    /// Number of the newest grant.
    pub fn number(&self, ino: Ino, client: ClientId) -> Option<u64> {
        let number = self.by_ino.get(&ino).and_then(|of| of.get(&client)).copied();
        number.filter(|_| self.has(client, ino))
    }

    /// Who has any.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = ClientId> + '_ {
        self.by_client.keys().copied()
    }

    /// Has anybody any of this shard?
    pub fn has_of(&self, shard: ShardId) -> bool {
        self.by_shard.contains_key(&shard)
    }

    /// How many a client has.
    pub fn count_of(&self, client: ClientId) -> usize {
        self.by_client.get(&client).map_or(0, |of| of.count)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// What takes room.
    pub fn kept(&self) -> usize {
        self.count + self.left
    }

    /// Gives one, or a newer grant of it.
    pub fn add(&mut self, ino: Ino, client: ClientId, number: u64) {
        self.by_ino.entry(ino).or_default().insert(client, number);
        let of = self.by_client.entry(client).or_default();
        let of_shard = of.inos.entry(ino.shard()).or_default();
        if of_shard.insert(ino) {
            of.count += 1;
            self.count += 1;
            if of_shard.len() == 1 {
                self.by_shard.entry(ino.shard()).or_default().insert(client);
            }
        }
    }

    pub fn end(&mut self, ino: Ino, client: ClientId) {
        let shard = ino.shard();
        let Some(of) = self.by_client.get_mut(&client) else { return };
        let Some(of_shard) = of.inos.get_mut(&shard) else { return };
        if !of_shard.remove(&ino) {
            return;
        }
        of.count -= 1;
        self.count -= 1;
        if of_shard.is_empty() {
            of.inos.remove(&shard);
            if of.count == 0 {
                self.by_client.remove(&client);
            }
            self.none_of(shard, client);
        }
        self.forget(ino, client);
    }

    fn forget(&mut self, ino: Ino, client: ClientId) {
        let Some(of) = self.by_ino.get_mut(&ino) else { return };
        of.remove(&client);
        if of.is_empty() {
            self.by_ino.remove(&ino);
        }
    }

    fn none_of(&mut self, shard: ShardId, client: ClientId) {
        let Some(clients) = self.by_shard.get_mut(&shard) else { return };
        clients.remove(&client);
        if clients.is_empty() {
            self.by_shard.remove(&shard);
        }
    }

    fn end_together(&mut self, client: ClientId, inos: BTreeSet<Ino>) {
        self.count -= inos.len();
        self.left += inos.len();
        self.ended.push((client, inos));
    }

    /// All of a client end.
    pub fn end_client(&mut self, client: ClientId) {
        for (shard, inos) in self.by_client.remove(&client).unwrap_or_default().inos {
            self.none_of(shard, client);
            self.end_together(client, inos);
        }
    }

    /// All of a shard end. Gives who had any.
    pub fn end_shard(&mut self, shard: ShardId) -> BTreeSet<ClientId> {
        let clients = self.by_shard.remove(&shard).unwrap_or_default();
        for client in &clients {
            let Some(of) = self.by_client.get_mut(client) else { continue };
            let inos = of.inos.remove(&shard).unwrap_or_default();
            of.count -= inos.len();
            if of.count == 0 {
                self.by_client.remove(client);
            }
            self.end_together(*client, inos);
        }
        clients
    }

    /// Takes apart so many of those that ended together.
    pub fn sweep(&mut self, most: usize) {
        for _ in 0..most {
            let Some((client, inos)) = self.ended.last_mut() else { return };
            let (client, ino) = (*client, inos.pop_first());
            if inos.is_empty() {
                self.ended.pop();
            }
            let Some(ino) = ino else { continue };
            self.left -= 1;
            if !self.has(client, ino) {
                self.forget(ino, client);
            }
        }
    }

    /// Is nothing left of what ended?
    pub fn is_swept(&self) -> bool {
        self.ended.is_empty()
    }

    /// Does the table agree with itself?
    #[cfg(test)]
    pub fn check(&self) {
        let mut live = BTreeSet::new();
        for (client, of) in &self.by_client {
            assert!(of.count > 0 && of.count == of.inos.values().map(BTreeSet::len).sum::<usize>());
            for (shard, inos) in &of.inos {
                assert!(!inos.is_empty() && self.by_shard[shard].contains(client));
                live.extend(inos.iter().map(|ino| (*ino, *client)));
            }
        }
        for (shard, clients) in &self.by_shard {
            assert!(!clients.is_empty());
            assert!(clients.iter().all(|client| self.by_client[client].inos.contains_key(shard)));
        }
        assert_eq!(
            (live.len(), self.left),
            (self.count, self.ended.iter().map(|(_, inos)| inos.len()).sum())
        );
        let ended = self.ended.iter().flat_map(|(client, inos)| inos.iter().map(|ino| (*ino, *client)));
        let ended: BTreeSet<(Ino, ClientId)> = ended.collect();
        let by_ino = self.by_ino.iter().flat_map(|(ino, of)| of.keys().map(|client| (*ino, *client)));
        let by_ino: BTreeSet<(Ino, ClientId)> = by_ino.collect();
        assert!(by_ino.is_superset(&live) && by_ino.is_subset(&live.union(&ended).copied().collect()));
        assert!(self.by_ino.values().all(|of| !of.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(state: &mut u64, most: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % most
    }

    /// Goal: whatever ends, alone or together, counts no more from then on, and what is given anew does, as a plain list has
    /// it; in the end nothing is left of what ended.
    #[test]
    fn as_a_plain_list_has_it() {
        for seed in 0..100 {
            let (mut holders, mut plain, mut state) = (Holders::default(), BTreeMap::new(), seed);
            for number in 0..600 {
                let client = ClientId(draw(&mut state, 4));
                let shard = ShardId(draw(&mut state, 3) as u16);
                let ino = Ino::new(shard, draw(&mut state, 12));
                match draw(&mut state, 40) {
                    0..25 => {
                        holders.add(ino, client, number);
                        plain.insert((ino, client), number);
                    }
                    25..30 => {
                        holders.end(ino, client);
                        plain.remove(&(ino, client));
                    }
                    30 => {
                        holders.end_client(client);
                        plain.retain(|(_, of), _| *of != client);
                    }
                    31 => {
                        let of_shard = plain.keys().filter(|(ino, _)| ino.shard() == shard);
                        let had: BTreeSet<ClientId> = of_shard.map(|(_, client)| *client).collect();
                        assert_eq!(holders.end_shard(shard), had);
                        plain.retain(|(ino, _), _| ino.shard() != shard);
                    }
                    _ => holders.sweep(2),
                }
                holders.check();
                let has = plain.get(&(ino, client)).copied();
                assert_eq!((holders.number(ino, client), holders.has(client, ino)), (has, has.is_some()));
                let of = plain.range((ino, ClientId(0))..=(ino, ClientId(9))).map(|((_, client), _)| *client);
                assert!(holders.of(ino).eq(of));
                let of_client = plain.keys().filter(|(_, of)| *of == client).count();
                assert_eq!((holders.count_of(client), holders.count()), (of_client, plain.len()));
            }
            while !holders.is_swept() {
                holders.sweep(2);
            }
            assert_eq!(holders.by_ino.values().map(BTreeMap::len).sum::<usize>(), plain.len());
            assert_eq!(holders.kept(), plain.len());
        }
    }
}
