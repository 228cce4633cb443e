//! Fake leases: of one shard, on directories, whose names and attributes others change only when their holders have confirmed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{Ino, Name, Seq, ShardId, Slot, Term};
use skep_wire::meta::{
    Event, Grant, LeaseKind, LeaseTime, Recall, RecallKind, Recalled, ShardCall, ShardStamp, Wish,
};

/// Who asks: the mount, its lane, the number.
type Asker = (u64, Slot, Seq);
/// What is about to change: the directory, and a name in it or an entry of it.
pub type Touched = (Ino, Option<Name>, Option<Ino>);

#[derive(Default)]
pub struct FakeLeases {
    /// It gives any.
    pub on: bool,
    pub id: ShardId,
    pub term: u64,
    pub now: u64,
    /// How long they hold.
    pub ms: u64,
    pub ended: u64,
    numbers: BTreeMap<u64, u64>,
    pub held: BTreeMap<(u64, Ino), u64>,
    /// With each recall it wants the lease back.
    pub wants_back: bool,
    heard: BTreeMap<u64, u64>,
    pub lapses: BTreeMap<u64, u64>,
    /// Recalls that are not confirmed, and which change each is for.
    pub waits: BTreeMap<(u64, u64), (Touched, Asker)>,
    /// Changes whose recalls have begun, and what they are of.
    begun: BTreeMap<Asker, Vec<Touched>>,
    /// Who has said that nothing of earlier terms is used, of which term.
    pub anew: BTreeSet<(u64, Term)>,
    /// Mounts that were passed over, or did not hear what was taken back, and have not asked for events since.
    pub deaf: BTreeSet<u64>,
    /// Goes into the next stamp.
    stamp: (Vec<Grant>, Option<LeaseTime>),
    wishes: Option<u64>,
}

impl FakeLeases {
    /// Everything volatile is gone.
    pub fn restart(&mut self) {
        let (on, ms, lapses) = (self.on, self.ms, BTreeMap::new());
        *self = Self { on, ms, lapses, ..Self::default() };
    }

    /// A request has come. May it run, if it touches this? Recalls that are to be told before are given.
    pub fn hears(
        &mut self,
        (mount, call): (u64, &ShardCall),
        touched: &[Touched],
    ) -> (bool, Vec<(u64, Event)>) {
        self.stamp = (Vec::new(), None);
        self.wishes = None;
        if !self.on {
            return (true, Vec::new());
        }
        let lapses = call.lapses.unwrap_or(0);
        let known = self.lapses.entry(mount).or_default();
        if lapses > *known {
            *known = lapses;
            self.deaf.extend(self.waits.keys().map(|(by, _)| *by).filter(|by| *by == mount));
            self.held.retain(|(by, _), _| *by != mount);
            self.waits.retain(|(by, _), _| *by != mount);
        }
        if lapses == *known {
            self.heard.insert(mount, self.now);
            self.stamp.1 = Some(LeaseTime { ms: self.ms, ended: self.ended });
            self.wishes = call.wish.filter(|wish| wish & Wish::SHARED != 0).map(|_| mount);
        }
        self.passes_over();
        let asker = (mount, call.slot, call.seq);
        let mut told = Vec::new();
        if !self.begun.contains_key(&asker) {
            for place in touched {
                let holders = self.held.keys().filter(|(by, on)| *by != mount && *on == place.0);
                let holders: Vec<u64> = holders.map(|(by, _)| *by).collect();
                for holder in holders {
                    let number = self.next_number(holder);
                    self.waits.insert((holder, number), (place.clone(), asker));
                    // What has no holder yet gets none either.
                    self.begun.insert(asker, touched.to_vec());
                    told.push((holder, self.recall(number, place)));
                }
            }
        }
        let waits = self.waits.values().any(|(_, by)| *by == asker);
        if !waits {
            self.begun.remove(&asker);
        }
        (!waits, told)
    }

    fn recall(&self, number: u64, (ino, name, entry): &Touched) -> Event {
        let kind = match (name, entry) {
            (Some(_), _) => RecallKind::Name,
            (None, Some(_)) => RecallKind::Entry,
            _ => RecallKind::Attributes,
        };
        let (shard, term) = (self.id, Term(self.term));
        let wants_back = self.wants_back.then_some(true);
        Recall { shard, term, number, ino: *ino, kind, name: name.clone(), entry: *entry, wants_back }.into()
    }

    /// An event that takes back all of `ino` from a mount.
    pub fn recall_all(&mut self, mount: u64, ino: Ino) -> Event {
        self.held.remove(&(mount, ino));
        let number = self.next_number(mount);
        let asker = (0, Slot(0), Seq(number));
        self.waits.insert((mount, number), ((ino, None, None), asker));
        let (shard, term, kind) = (self.id, Term(self.term), RecallKind::Everything);
        Recall { shard, term, number, ino, kind, name: None, entry: None, wants_back: None }.into()
    }

    /// Who was not heard of for too long.
    fn passes_over(&mut self) {
        let (now, heard) = (self.now, &self.heard);
        let most = self.ms + self.ms / 100 + 100;
        let is_silent = |mount: &u64| heard.get(mount).is_none_or(|at| now - *at > most);
        let over = self.held.keys().map(|(by, _)| *by).filter(is_silent);
        self.deaf.extend(over);
        self.held.retain(|(by, _), _| !is_silent(by));
        self.waits.retain(|(by, _), _| !is_silent(by));
    }

    fn next_number(&mut self, mount: u64) -> u64 {
        let number = self.numbers.entry(mount).or_default();
        *number += 1;
        *number
    }

    /// The answer gives who asks a lease on this one, if it may.
    pub fn grant(&mut self, ino: Ino) -> bool {
        let Some(mount) = self.wishes.filter(|mount| !self.deaf.contains(mount)) else { return false };
        if self.begun.values().flatten().any(|(dir, ..)| *dir == ino) {
            return false;
        }
        let number = self.next_number(mount);
        self.held.insert((mount, ino), number);
        self.stamp.0.push(Grant { ino, kind: LeaseKind::Shared, number });
        true
    }

    /// A mount asks for events.
    pub fn listens(&mut self, mount: u64) {
        self.deaf.remove(&mount);
    }

    /// What a mount uses no longer.
    pub fn recalled(&mut self, mount: u64, m: &Recalled) {
        if m.anew == Some(true) {
            self.anew.insert((mount, m.term));
        }
        if m.term != Term(self.term) {
            return;
        }
        for number in &m.confirmed {
            self.waits.remove(&(mount, *number));
        }
        for (ino, number) in &m.back {
            if self.held.get(&(mount, *ino)).is_some_and(|has| has <= number) {
                self.held.remove(&(mount, *ino));
            }
        }
    }

    /// Puts it into the stamp of the answer.
    pub fn stamp(&self, stamp: &mut ShardStamp) {
        if !self.stamp.0.is_empty() {
            stamp.grants = Some(self.stamp.0.clone());
        }
        stamp.renews = self.stamp.1;
    }
}
