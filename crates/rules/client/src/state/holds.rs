//! Of files that a mount holds: which are to be told next, and why.

use crate::limits::{HOLD_AGAIN_MS, HOLD_TELL_MS, HOLDS_ASKED_MAX};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use skep_types::{Ino, Millis, NodeId, ShardId};

/// A file that is to be told, and to whom.
#[derive(Debug)]
pub struct ToTell {
    pub ino: Ino,
    pub node: NodeId,
    pub why: Why,
}

/// Why it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Somebody waits for it.
    Asked,
    /// Somebody does, who only looks, behind this question: it may be held on.
    Looked(u64),
    /// It has been held for long enough.
    Old,
    /// It is not held, and asked for.
    Wished,
}

/// Of all files: which are to be told.
#[derive(Debug, Default)]
pub struct Holds {
    /// Held since, the oldest first; some are not held any more.
    by_age: VecDeque<(Millis, Ino)>,
    /// How many of these there are, by shard: it may have a question.
    shards: BTreeMap<ShardId, usize>,
    /// Somebody waits for these; who only looks, behind which question.
    questions: VecDeque<(Ino, Option<u64>)>,
    /// Somebody has asked for these before it was known here that they are held, if they are: they are not.
    asked: BTreeSet<Ino>,
    /// The mount would like to hold these.
    wishes: VecDeque<Ino>,
    /// A lane asks for one.
    wishing: bool,
    /// The last one told was old enough: the next is one that somebody looks at.
    look_is_next: bool,
    /// Servers that are being told something.
    telling: BTreeSet<NodeId>,
    /// Creates on their way whose answers may give holds.
    creating: usize,
    /// Removals of names and renames of this mount: each counts when it is sent, and when it has been answered.
    names: u64,
}

impl Holds {
    /// A create is about to be sent. `false`: its answer must give no hold.
    pub fn create_begins(&mut self) -> bool {
        let has_room = self.asked.len() < HOLDS_ASKED_MAX;
        self.creating += usize::from(has_room);
        has_room
    }

    /// It was answered, or given up. With a file that it made: may that be held?
    /// `canary`: *holds-what-was-asked*.
    pub fn create_ends(&mut self, made: Option<Ino>, canary: bool) -> bool {
        let may_hold = made.is_some_and(|ino| canary || !self.asked.contains(&ino));
        self.creating = self.creating.saturating_sub(1);
        if self.creating == 0 {
            self.asked.clear();
        }
        may_hold
    }

    pub fn began(&mut self, ino: Ino, now: Millis) {
        *self.shards.entry(ino.shard()).or_default() += 1;
        self.list(ino, now);
    }

    fn list(&mut self, ino: Ino, now: Millis) {
        let behind = self.by_age.iter().rposition(|(since, _)| *since <= now).map_or(0, |at| at + 1);
        self.by_age.insert(behind, (now, ino));
    }

    /// It goes on being held, as was asked then; it may be listed already, as told before that.
    pub fn goes_on(&mut self, ino: Ino, now: Millis) {
        match self.by_age.iter().position(|(_, listed)| *listed == ino) {
            Some(at) if self.by_age[at].0 < now => drop(self.by_age.remove(at)),
            Some(_) => return,
            None => *self.shards.entry(ino.shard()).or_default() += 1,
        }
        self.list(ino, now);
    }

    /// Where something is held.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.shards.keys().copied()
    }

    /// A name is about to be removed, or moved; or was.
    pub fn names_change(&mut self) {
        self.names += 1;
    }

    pub fn names(&self) -> u64 {
        self.names
    }

    /// Somebody waits for it.
    pub fn ask(&mut self, ino: Ino, is_held: bool) {
        if !is_held && self.creating > 0 {
            self.asked.insert(ino);
        }
        self.ask_as(ino, None);
    }

    /// The same of who only looks.
    pub fn look(&mut self, ino: Ino, question: u64) {
        self.ask_as(ino, Some(question));
    }

    /// What ends a hold answers those who only look as well, and the newest question of these all of them.
    fn ask_as(&mut self, ino: Ino, look: Option<u64>) {
        match self.questions.iter_mut().find(|(asked, _)| *asked == ino) {
            Some((_, known)) => *known = known.zip(look).map(|(old, new)| old.max(new)),
            None => self.questions.push_back((ino, look)),
        }
    }

    /// The mount would like to hold it.
    pub fn wish(&mut self, ino: Ino) {
        self.wishes.push_back(ino);
    }

    /// So many are waited for.
    pub fn asked_count(&self) -> usize {
        self.questions.len()
    }

    /// What is to be told next: what somebody waits for first. `node`: of which server a file is, if that can be told now.
    pub fn next(&mut self, now: Millis, node: impl Fn(Ino) -> Option<NodeId>) -> Option<ToTell> {
        let free = |ino: &Ino| node(*ino).filter(|node| !self.telling.contains(node));
        let is_free = |(ino, _): &(Ino, Option<u64>)| free(ino).is_some();
        let asked = self.questions.iter().position(|one| one.1.is_none() && is_free(one));
        let mut old = self.by_age.iter().take_while(|(since, _)| now.since(*since) >= HOLD_TELL_MS);
        let old = if asked.is_some() { None } else { old.position(|(_, ino)| free(ino).is_some()) };
        // In turns: who looks goes on looking, and where many files are written one is old enough at any moment.
        let looked = self.questions.iter().position(is_free).filter(|_| old.is_none() || self.look_is_next);
        if asked.is_none() {
            self.look_is_next = looked.is_none() && old.is_some();
        }
        let (ino, why) = match (asked.or(looked), old) {
            (Some(at), _) => {
                let (ino, look) = self.questions.remove(at)?;
                (ino, look.map_or(Why::Asked, Why::Looked))
            }
            (None, Some(at)) => (self.by_age.remove(at)?.1, Why::Old),
            (None, None) => return self.next_wish(node),
        };
        if why == Why::Old {
            self.shards.entry(ino.shard()).and_modify(|count| *count -= 1);
            self.shards.retain(|_, count| *count > 0);
        }
        let node = node(ino)?;
        self.telling.insert(node);
        Some(ToTell { ino, node, why })
    }

    /// Does somebody wait for a file of a server that is told nothing now?
    pub fn asks_elsewhere(&self, node: impl Fn(Ino) -> Option<NodeId>) -> bool {
        self.questions.iter().any(|(ino, _)| node(*ino).is_some_and(|node| !self.telling.contains(&node)))
    }

    /// What is to be asked for next: by one lane at most, so that the others tell what somebody waits for, and beside what is told
    /// to the same server.
    fn next_wish(&mut self, node: impl Fn(Ino) -> Option<NodeId>) -> Option<ToTell> {
        if self.wishing {
            return None;
        }
        let at = self.wishes.iter().position(|ino| node(*ino).is_some())?;
        let ino = self.wishes.remove(at)?;
        self.wishing = true;
        Some(ToTell { ino, node: node(ino)?, why: Why::Wished })
    }

    /// It was told, or is to be told again.
    pub fn tried(&mut self, tried: &ToTell, again: bool, now: Millis) {
        match tried.why {
            Why::Wished => self.wishing = false,
            Why::Asked | Why::Looked(_) | Why::Old => _ = self.telling.remove(&tried.node),
        }
        match (again, tried.why) {
            (true, Why::Asked) => self.ask(tried.ino, true),
            (true, Why::Looked(question)) => self.look(tried.ino, question),
            (true, Why::Old) => {
                // It is the oldest still.
                self.by_age.push_front((Millis(now.0.saturating_sub(HOLD_TELL_MS)), tried.ino));
                *self.shards.entry(tried.ino.shard()).or_default() += 1;
            }
            _ => {}
        }
    }

    /// In how many milliseconds there is one.
    pub fn next_ms(&self, now: Millis) -> Option<u64> {
        let (since, _) = self.by_age.front()?;
        // One that is old enough waits for its server, which another lane tells something.
        let left = HOLD_TELL_MS.saturating_sub(now.since(*since));
        Some(if left == 0 { HOLD_AGAIN_MS } else { left })
    }

    /// Those that are held for less than [`HOLD_TELL_MS`], with some that are held no longer.
    pub fn young(&self) -> impl Iterator<Item = Ino> {
        self.by_age.iter().map(|(_, ino)| *ino)
    }

    /// Has somebody asked for a file of which it is not known here whether it is held?
    pub fn is_asked_early(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The session that held them has ended.
    pub fn clear(&mut self) {
        let telling = core::mem::take(&mut self.telling);
        let Self { creating, names, wishing, .. } = *self;
        *self = Self { creating, telling, names, wishing, ..Self::default() };
    }
}
