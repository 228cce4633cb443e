//! What a target is worth: its life, the failures of its disk, and whose word on them counts.
//!
//! The life is the number that every write's answer carries and that a sync gives back: as long as it is the same,
//! what was acknowledged is on the disk or in the kernel's memory of *this* mount. See `docs/design/storage.md`.

use skep_types::{Consistency, Timestamp, Uuid, record};

record! {
    /// What the daemon keeps of a target over its restarts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Standing {
        /// Drawn at random, anew with each mount, failure and word of an administrator.
        pub life: u64,
        /// The mount in which the life holds, as [`Mount`] names it.
        pub mount: Uuid,
        /// How often the disk failed while the target was good.
        pub failures: u64,
        /// The last word of an administrator that was followed.
        pub decisions: u64,
        /// Nothing is served.
        pub bad: bool,
    } tags {
        /// When the life began, by the server's clock; whoever keeps it notes it.
        1 => pub since: Option<Timestamp>,
    }
}

/// Names one mount of one file system in one boot of the machine; `None` = the system cannot tell, so that every
/// start has to count as a new mount.
pub type Mount = Option<Uuid>;

/// What mgmtd holds of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    pub consistency: Consistency,
    /// Failures that mgmtd had heard of when this was decided.
    pub failures: u64,
    /// Words of administrators so far.
    pub decisions: u64,
}

/// What a word of mgmtd changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// It is bad from now on.
    Bad,
    /// An administrator vouches for it: a new life.
    Good,
    /// It is called good by somebody who has not heard of its last failure: it stays bad.
    Unanswered,
}

impl Standing {
    /// A daemon starts with what it had kept of the target, if anything. `draw` is random.
    pub fn start(kept: Option<Self>, mount: Mount, word: Word, draw: u64) -> Self {
        let same_mount = |kept: &Self| mount == Some(kept.mount);
        let Some(kept) = kept else {
            return Self {
                life: draw,
                mount: mount.unwrap_or_default(),
                failures: word.failures,
                decisions: word.decisions,
                bad: word.consistency == Consistency::Bad,
                since: None,
            };
        };
        let life = if same_mount(&kept) { kept.life } else { other_than(kept.life, draw) };
        let mut standing = Self { life, mount: mount.unwrap_or_default(), ..kept };
        standing.hear(word, draw.rotate_left(17));
        standing
    }

    /// The disk failed. True when that is news: it was good until now.
    pub fn fail(&mut self, draw: u64) -> bool {
        self.life = other_than(self.life, draw);
        let news = !self.bad;
        self.failures += u64::from(news);
        self.bad = true;
        news
    }

    /// mgmtd says what it holds of the target. `draw` is random.
    pub fn hear(&mut self, word: Word, draw: u64) -> Heard {
        if word.consistency == Consistency::Bad {
            self.failures = self.failures.max(word.failures);
            self.decisions = word.decisions;
            return if core::mem::replace(&mut self.bad, true) { Heard::Nothing } else { Heard::Bad };
        }
        if word.failures < self.failures {
            // Decided, or only read, before the failure was heard of.
            return if self.bad { Heard::Unanswered } else { Heard::Nothing };
        }
        if !self.bad && word.decisions == self.decisions {
            return Heard::Nothing;
        }
        self.bad = false;
        self.failures = word.failures;
        self.decisions = word.decisions;
        // Whatever made it bad may have taken writes: nobody vouches for those of before.
        self.life = other_than(self.life, draw);
        Heard::Good
    }

    /// For mgmtd and for who asks.
    pub fn consistency(&self) -> Consistency {
        if self.bad { Consistency::Bad } else { Consistency::Good }
    }
}

/// A life that is not `old`, whatever was drawn.
fn other_than(old: u64, draw: u64) -> u64 {
    if draw == old { old.wrapping_add(1) } else { draw }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Mount = Some(Uuid([1; 16]));
    const REMOUNTED: Mount = Some(Uuid([2; 16]));

    fn word(consistency: Consistency, failures: u64, decisions: u64) -> Word {
        Word { consistency, failures, decisions }
    }

    fn good(failures: u64, decisions: u64) -> Word {
        word(Consistency::Good, failures, decisions)
    }

    /// Goal: a life goes over a restart on the same mount, and over nothing else.
    #[test]
    fn a_life_is_that_of_its_mount() {
        let first = Standing::start(None, HERE, good(0, 0), 77);
        let again = Standing::start(Some(first), HERE, good(0, 0), 78);
        assert_eq!(again, first, "the daemon alone was restarted");
        let remounted = Standing::start(Some(first), REMOUNTED, good(0, 0), 79);
        assert_ne!(remounted.life, first.life);
        assert_eq!(remounted.mount, REMOUNTED.unwrap());
        let untold = Standing::start(Some(first), None, good(0, 0), 80);
        assert_ne!(untold.life, first.life);
        let still = Standing::start(Some(untold), None, good(0, 0), 81);
        assert_ne!(still.life, untold.life, "what cannot be told apart is never the same");
        let unlucky = Standing::start(Some(first), REMOUNTED, good(0, 0), first.life);
        assert_ne!(unlucky.life, first.life, "whatever is drawn");
    }

    /// Goal: a failure ends the life and goes over restarts; a word that was said before it was heard of does not
    /// take it back; one that answers it does, with another life, and that one goes over restarts, too.
    #[test]
    fn only_a_word_that_answers_the_failure_counts() {
        let mut target = Standing::start(None, HERE, good(0, 0), 1);
        let lives = [target.life];
        assert!(target.fail(2));
        assert!(!target.fail(3), "one failure, until somebody decides");
        assert_eq!(target.failures, 1);
        let mut again = Standing::start(Some(target), HERE, good(0, 0), 4);
        assert!(again.bad && !lives.contains(&again.life), "a restart makes no disk good");
        assert_eq!(again.hear(good(0, 0), 5), Heard::Unanswered, "the map of before");
        assert_eq!(again.hear(good(0, 1), 5), Heard::Unanswered, "a word on something else");
        assert_eq!(again.hear(word(Consistency::Bad, 1, 0), 5), Heard::Nothing);
        let failed = again.life;
        assert_eq!(again.hear(good(1, 1), 6), Heard::Good);
        assert!(!again.bad && again.life != failed && !lives.contains(&again.life));
        assert_eq!(again.hear(good(1, 1), 7), Heard::Nothing, "said once");
        let later = Standing::start(Some(again), HERE, good(1, 1), 8);
        assert_eq!(later, again);
    }

    /// Goal: what an administrator says counts without a failure as well, also when it was said while the daemon was
    /// away; a daemon without a memory believes mgmtd's.
    #[test]
    fn words_without_a_failure() {
        let mut target = Standing::start(None, HERE, good(3, 5), 1);
        assert_eq!((target.failures, target.decisions, target.bad), (3, 5, false));
        assert_eq!(target.hear(word(Consistency::Bad, 3, 6), 2), Heard::Bad);
        let life = target.life;
        let away = Standing::start(Some(target), HERE, good(3, 7), 9);
        assert!(!away.bad && away.life != life);
        let missed_both = Standing::start(Some(away), HERE, good(3, 9), 11);
        assert_ne!(missed_both.life, away.life, "bad and good again while the daemon was away");
        assert!(Standing::start(None, HERE, word(Consistency::Bad, 4, 9), 12).bad);
    }
}
