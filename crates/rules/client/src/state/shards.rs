//! Lives of metadata shards: a shard in a new term has forgotten what is open there, and must be told again.
//!
//! The term is in the stamp of every answer of the shard. A server in a new life, or another server that leads a shard,
//! makes one suspect that the term is another: it is asked for before the shard is told.

use alloc::collections::BTreeMap;
use skep_types::{NodeId, ShardId, Term};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reclaim {
    /// It knows what we hold open.
    Done,
    /// It is heard of for the first time. It may wait for this mount all the same: whoever had a session when it began is
    /// to report.
    First,
    /// It must be told.
    Needed,
    /// A lane is about to tell it, and has not put together what is open.
    Begun,
    /// A lane is telling it; what it tells may not be all.
    Running { again: bool },
}

#[derive(Debug, Clone, Copy)]
struct Life {
    /// The newest that is known; 0 = none.
    term: Term,
    /// Perhaps there is a newer one.
    unsure: bool,
    /// Who leads the shard, as the map said last.
    leader: NodeId,
    reclaim: Reclaim,
}

/// What a mount knows of the lives of the shards.
#[derive(Debug, Default)]
pub struct Shards {
    lives: BTreeMap<ShardId, Life>,
}

impl Shards {
    /// `shard` answered in `term`. Says whether that is a new life, which must be told.
    pub fn heard(&mut self, shard: ShardId, term: Term) -> bool {
        let unheard = Life { term: Term(0), unsure: true, leader: NodeId(0), reclaim: Reclaim::First };
        let life = self.lives.entry(shard).or_insert(unheard);
        life.unsure = false;
        if life.term >= term {
            return false;
        }
        let first = life.term == Term(0) && life.reclaim == Reclaim::First;
        life.term = term;
        // Whoever is about to tell it will find this term; what is being told already is refused in it.
        if !first && life.reclaim != Reclaim::Begun {
            life.reclaim = Reclaim::Needed;
        }
        true
    }

    /// `leader`, which has the shard, may have begun it anew: its term is to be asked for.
    pub fn may_be_new(&mut self, shard: ShardId, leader: NodeId) {
        let unheard = Life { term: Term(0), unsure: true, leader, reclaim: Reclaim::First };
        let life = self.lives.entry(shard).or_insert(unheard);
        (life.unsure, life.leader) = (true, leader);
        life.reclaim = match life.reclaim {
            Reclaim::First if life.term == Term(0) => Reclaim::First,
            Reclaim::Begun => Reclaim::Begun,
            // Not two at once: the older report could come last.
            Reclaim::Running { .. } => Reclaim::Running { again: true },
            _ => Reclaim::Needed,
        };
    }

    /// The map says who leads `shard`.
    pub fn led_by(&mut self, shard: ShardId, leader: NodeId) {
        if self.lives.get(&shard).is_none_or(|life| life.leader != leader) {
            self.may_be_new(shard, leader);
        }
    }

    /// An open or a lock was answered by `shard` in `term`. When a newer life is known already (`true`), its list was
    /// sent without this one and must be sent again.
    pub fn opened(&mut self, shard: ShardId, term: Term) -> bool {
        match self.lives.get_mut(&shard) {
            Some(life) if life.term > term => {
                life.reclaim = match life.reclaim {
                    Reclaim::Running { .. } => Reclaim::Running { again: true },
                    Reclaim::Begun => Reclaim::Begun,
                    _ => Reclaim::Needed,
                };
                true
            }
            _ => false,
        }
    }

    /// Must `shard` be told what is open?
    pub fn is_due(&self, shard: ShardId) -> bool {
        self.lives.get(&shard).is_some_and(|life| life.reclaim == Reclaim::Needed)
    }

    /// The same. The caller that gets `true` does it: it asks for the term if that is unsure, puts the list together
    /// ([`Shards::tells`]) and reports by [`Shards::reclaimed`]. The others go on, which is safe: in its grace period a
    /// shard treats every file as open elsewhere.
    pub fn begin_reclaim(&mut self, shard: ShardId) -> bool {
        match self.lives.get_mut(&shard) {
            Some(life) if life.reclaim == Reclaim::Needed => {
                life.reclaim = Reclaim::Begun;
                true
            }
            _ => false,
        }
    }

    /// As [`Shards::begin_reclaim`], also of a shard that is heard of for the first time: no request has to wait for that.
    pub fn begin_report(&mut self, shard: ShardId) -> bool {
        if let Some(life) = self.lives.get_mut(&shard)
            && life.reclaim == Reclaim::First
        {
            life.reclaim = Reclaim::Needed;
        }
        self.begin_reclaim(shard)
    }

    /// What is open is put together now, by who has begun it: for this term, and no other. `None`: the term is not known,
    /// and it is due again.
    pub fn tells(&mut self, shard: ShardId) -> Option<Term> {
        let life = self.lives.get_mut(&shard).filter(|life| life.reclaim == Reclaim::Begun)?;
        let known = !life.unsure && life.term != Term(0);
        life.reclaim = if known { Reclaim::Running { again: false } } else { Reclaim::Needed };
        known.then_some(life.term)
    }

    /// Is a report to `shard` on its way?
    pub fn is_told_now(&self, shard: ShardId) -> bool {
        let on_its_way = |life: &Life| matches!(life.reclaim, Reclaim::Begun | Reclaim::Running { .. });
        self.lives.get(&shard).is_some_and(on_its_way)
    }

    /// The reclaim that was put together for `term` has ended.
    pub fn reclaimed(&mut self, shard: ShardId, term: Term, ok: bool) {
        if let Some(life) = self.lives.get_mut(&shard)
            && let Reclaim::Running { again } = life.reclaim
            && life.term == term
        {
            life.reclaim = if ok && !again { Reclaim::Done } else { Reclaim::Needed };
        }
    }

    /// The newest known term of `shard`; 0 = none.
    pub fn term(&self, shard: ShardId) -> Term {
        self.lives.get(&shard).map_or(Term(0), |life| life.term)
    }

    /// May there be a newer term than the known one?
    pub fn is_unsure(&self, shard: ShardId) -> bool {
        self.lives.get(&shard).is_none_or(|life| life.unsure)
    }

    /// The term in which `shard` knows all that this mount has open there.
    pub fn told(&self, shard: ShardId) -> Option<Term> {
        self.lives.get(&shard).filter(|life| life.reclaim == Reclaim::Done).map(|life| life.term)
    }

    /// Shards that know all that this mount has open there, or knew it in an earlier term.
    pub fn known_here(&self) -> impl Iterator<Item = ShardId> + '_ {
        let knows = |life: &Life| life.reclaim == Reclaim::Done;
        self.lives.iter().filter(move |(_, life)| knows(life)).map(|(shard, _)| *shard)
    }

    /// Shards that must be told, or may wait for it.
    pub fn needing(&self) -> impl Iterator<Item = ShardId> + '_ {
        let needs = |life: &Life| matches!(life.reclaim, Reclaim::First | Reclaim::Needed);
        self.lives.iter().filter(move |(_, life)| needs(life)).map(|(shard, _)| *shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);
    const SHARD: ShardId = ShardId(7);

    /// A lane tells it, all at once.
    fn tell(shards: &mut Shards, ok: bool) -> Option<Term> {
        let term = shards.tells(SHARD)?;
        shards.reclaimed(SHARD, term, ok);
        Some(term)
    }

    /// Goal: each life is told once, the first one too; an open answered by the old life late asks for it again.
    #[test]
    fn a_new_life_is_told_once() {
        let mut shards = Shards::default();
        assert!(shards.heard(SHARD, Term(1)));
        assert!(!shards.begin_reclaim(SHARD), "no request waits for that");
        assert!(shards.begin_report(SHARD), "it may wait for this mount");
        assert_eq!(tell(&mut shards, true), Some(Term(1)));
        assert!(!shards.begin_reclaim(SHARD));
        assert!(shards.heard(SHARD, Term(2)));
        assert!(!shards.heard(SHARD, Term(1)), "a late answer of the old life");
        assert!(shards.begin_reclaim(SHARD));
        assert!(!shards.begin_reclaim(SHARD), "one lane does it");
        assert_eq!(shards.tells(SHARD), Some(Term(2)));
        shards.reclaimed(SHARD, Term(1), false);
        assert!(
            !shards.begin_reclaim(SHARD),
            "a lane tells this life, whatever becomes of the report to the one before"
        );
        shards.reclaimed(SHARD, Term(2), false);
        assert!(shards.begin_reclaim(SHARD), "it failed: again");
        assert_eq!(shards.tells(SHARD), Some(Term(2)));
        assert!(shards.opened(SHARD, Term(1)));
        assert!(!shards.begin_reclaim(SHARD), "not beside the one that runs");
        shards.reclaimed(SHARD, Term(2), true);
        assert!(shards.begin_reclaim(SHARD), "an open was missing in the list");
        assert_eq!(tell(&mut shards, true), Some(Term(2)));
        assert_eq!((shards.needing().count(), shards.told(SHARD)), (0, Some(Term(2))));
    }

    /// Goal: a shard that may be in a new life is told nothing before its term is known, and then all of it for that term,
    /// by one lane.
    #[test]
    fn an_unsure_term_is_asked_for_first() {
        let mut shards = Shards::default();
        shards.led_by(SHARD, NODE);
        assert!(!shards.is_due(SHARD) && shards.begin_report(SHARD));
        assert_eq!(shards.tells(SHARD), None, "nobody has said it");
        assert!(shards.is_due(SHARD) && shards.begin_reclaim(SHARD));
        shards.heard(SHARD, Term(4));
        assert_eq!(tell(&mut shards, true), Some(Term(4)));
        shards.led_by(SHARD, NODE);
        assert_eq!(shards.told(SHARD), Some(Term(4)), "the same leader");
        shards.led_by(SHARD, NodeId(9));
        assert!(shards.is_unsure(SHARD) && shards.begin_reclaim(SHARD));
        shards.heard(SHARD, Term(5));
        assert!(!shards.begin_reclaim(SHARD), "who has begun finds the new term");
        assert_eq!(shards.tells(SHARD), Some(Term(5)));
        shards.may_be_new(SHARD, NodeId(9));
        assert!(!shards.begin_reclaim(SHARD), "not beside the one that runs");
        shards.reclaimed(SHARD, Term(5), true);
        assert!(shards.begin_reclaim(SHARD), "perhaps another life has heard it");
        assert_eq!(shards.tells(SHARD), None);
        assert!(shards.heard(SHARD, Term(6)) && shards.begin_reclaim(SHARD));
        assert_eq!(shards.tells(SHARD), Some(Term(6)));
        assert!(shards.heard(SHARD, Term(7)), "while a lane tells the one before");
        assert!(shards.begin_reclaim(SHARD), "that is refused, so another lane may");
        shards.reclaimed(SHARD, Term(6), false);
        assert_eq!(tell(&mut shards, true), Some(Term(7)));
    }

    /// Goal: a new term of one shard says nothing of another one of the same server.
    #[test]
    fn shards_of_a_server_live_apart() {
        let (mut shards, other) = (Shards::default(), ShardId(8));
        for (shard, term) in [(SHARD, Term(3)), (other, Term(40))] {
            shards.led_by(shard, NODE);
            shards.heard(shard, term);
            assert!(shards.begin_report(shard));
            assert_eq!(shards.tells(shard), Some(term));
            shards.reclaimed(shard, term, true);
        }
        assert!(shards.heard(SHARD, Term(4)));
        assert_eq!(shards.needing().collect::<alloc::vec::Vec<_>>(), [SHARD]);
        assert!(shards.opened(SHARD, Term(3)) && !shards.opened(other, Term(40)));
        assert_eq!((shards.told(SHARD), shards.told(other)), (None, Some(Term(40))));
    }
}
