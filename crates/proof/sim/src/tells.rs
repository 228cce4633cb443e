//! Records that told of files that were held. While its mount goes on holding one there may be several, and each tells what
//! was kept until then; with the one that ends the hold it is told for good.

use crate::hub::{Place, Ticket};
use skep_types::Ino;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Told {
    at: Place,
    by: Ticket,
    keeps: bool,
}

/// What a power cut took. `again`: the same request was done once more since, for its mount had not heard of the first time, and
/// has told it all again.
#[derive(Debug)]
struct Taken {
    by: Ticket,
    again: bool,
}

/// As long as no power cut took them.
#[derive(Debug, Default)]
pub struct Tells {
    of: BTreeMap<Ino, Vec<Told>>,
    taken: BTreeMap<Ino, Vec<Taken>>,
    /// Where a hold began that was asked for, or began once more, and how many records had told of that file by then.
    begun: BTreeMap<Ino, Vec<(Place, usize)>>,
    /// Files of which something was told since the last power cut that took records of steps from the same log.
    since_cut: BTreeMap<Ino, Place>,
    /// How many there had been when a mount had something to tell, and no lane had begun to tell it.
    before_news: BTreeMap<Ino, usize>,
    /// The newest record of each by which its row says that nobody holds it, if none says since that somebody does.
    unheld: BTreeMap<Ino, Place>,
}

impl Tells {
    /// It is held from this record on.
    pub fn begins(&mut self, ino: Ino, at: Place) {
        let count = self.count(ino);
        self.begun.entry(ino).or_default().push((at, count));
    }

    /// A record tells of a file. `false`: an earlier one had ended its hold.
    pub fn tells(&mut self, ino: Ino, (at, by): (Place, Ticket), keeps: bool) -> bool {
        self.since_cut.insert(ino, at);
        if let Some(taken) = self.taken.get_mut(&ino) {
            taken.iter_mut().filter(|taken| taken.by == by).for_each(|taken| taken.again = true);
        }
        let of = self.of.entry(ino).or_default();
        let begun = self.begun.get(&ino).and_then(|begun| begun.last());
        let has_begun = begun.is_some_and(|(_, count)| *count >= of.len());
        let is_held = has_begun || of.last().is_none_or(|told| told.keeps);
        of.push(Told { at, by, keeps });
        is_held
    }

    /// A power cut took these of the log of `metad`, of steps among them if `of_steps`. `true`: there were some of told files.
    pub fn cut(&mut self, metad: usize, of_steps: bool, is_gone: impl Fn(Place) -> bool) -> bool {
        self.since_cut.retain(|_, at| !is_gone(*at) && (!of_steps || at.metad != metad));
        self.begun.values_mut().for_each(|begun| begun.retain(|(at, _)| !is_gone(*at)));
        self.unheld.retain(|_, at| !is_gone(*at));
        let mut took = false;
        self.of.retain(|ino, of| {
            let gone = of.extract_if(.., |told| is_gone(told.at));
            let gone: Vec<Taken> = gone.map(|told| Taken { by: told.by, again: false }).collect();
            took |= !gone.is_empty();
            self.taken.entry(*ino).or_default().extend(gone);
            !of.is_empty()
        });
        took
    }

    /// A record says of the file that nobody holds it, or that somebody does.
    pub fn is_flagged(&mut self, ino: Ino, at: Place, is_held: bool) {
        if is_held {
            self.unheld.remove(&ino);
        } else {
            self.unheld.insert(ino, at);
        }
    }

    /// Does a record say that nobody holds it? Then nobody does as soon as that is durable, whatever becomes of its server.
    pub fn is_unheld(&self, ino: Ino) -> bool {
        self.unheld.contains_key(&ino)
    }

    /// How many there are of this file.
    pub fn count(&self, ino: Ino) -> usize {
        self.of.get(&ino).map_or(0, Vec::len)
    }

    /// How many power cuts have taken.
    pub fn taken(&self, ino: Ino) -> usize {
        self.taken.get(&ino).map_or(0, Vec::len)
    }

    /// Was one taken for good, behind the first `before` of them?
    pub fn is_taken(&self, ino: Ino, before: usize) -> bool {
        self.taken.get(&ino).is_some_and(|taken| taken[before..].iter().any(|taken| !taken.again))
    }

    /// Is there one behind the first `before`?
    pub fn since(&self, ino: Ino, before: usize) -> bool {
        self.count(ino) > before
    }

    /// And was that behind the last power cut?
    pub fn since_cut(&self, ino: Ino, before: usize) -> bool {
        self.since(ino, before) && self.since_cut.contains_key(&ino)
    }

    /// Where they stand.
    pub fn places(&self, ino: Ino) -> impl Iterator<Item = Place> + '_ {
        self.of.get(&ino).into_iter().flatten().map(|told| told.at)
    }

    /// A mount has something to tell of it: behind how many there is one that tells that? `may_be_told`: a lane is at it, or was.
    pub fn before_news(&mut self, ino: Ino, may_be_told: bool) -> usize {
        let count = self.count(ino);
        let known = self.before_news.entry(ino).or_insert(count);
        *known = if may_be_told { count.min(*known) } else { count };
        *known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{ClientId, ShardId};

    /// Goal: what a power cut took is not lost once the same request has told it again, though what was taken before the hold
    /// began stays taken, and another request makes up for nothing.
    #[test]
    fn what_is_told_again_is_not_lost() {
        let (ino, mut tells) = (Ino(9), Tells::default());
        let at = |index| Place { metad: 0, index };
        let by = |number| (ClientId(1), 0, ShardId(0), number);
        tells.tells(ino, (at(5), by(1)), true);
        assert!(tells.cut(0, true, |place| place.index > 4) && tells.is_taken(ino, 0));
        let before = tells.taken(ino);
        assert!(before == 1 && !tells.is_taken(ino, before));

        tells.tells(ino, (at(5), by(2)), true);
        assert!(tells.is_taken(ino, 0));
        assert!(tells.cut(0, true, |place| place.index > 4) && tells.is_taken(ino, before));
        tells.tells(ino, (at(5), by(1)), true);
        assert!(tells.is_taken(ino, before), "the first was told again, not the second");
        tells.tells(ino, (at(6), by(2)), true);
        assert!(!tells.is_taken(ino, 0) && tells.taken(ino) == 2);
    }
}
