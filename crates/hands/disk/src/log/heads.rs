//! How far each shard's records go, and which record may follow: the one rule for appending and for opening.

use super::{EntryKind, Head, Record};
use crate::log::record::{Kind, View};
use skep_types::log::{GROUP, Moves, Row};
use skep_types::{Decode, LogIndex, LogSeq, ShardId, Term};
use std::collections::{BTreeMap, BTreeSet};

/// Does a record follow?
pub(super) enum Step {
    /// Yes; the heads have moved.
    Taken,
    /// No: it belongs elsewhere. The heads may have moved for a part of it.
    Strange,
    /// Its bytes are no list of heads.
    Rubbish,
    /// A later release wrote it.
    Later,
}

/// Entries of a shard from `index` on that lie before `seq` do not count any more: one of a later term took their place.
#[derive(Debug, Clone, Copy)]
struct Cut {
    seq: LogSeq,
    shard: ShardId,
    index: LogIndex,
}

/// The heads of all shards, and above them those that are not certain yet.
#[derive(Default)]
pub(super) struct Heads {
    known: BTreeMap<ShardId, Head>,
    /// As far as entries that they are about are kept, in order.
    cuts: Vec<Cut>,
    /// Of records that are checked and not yet written; `None`: the shard is gone.
    staged: BTreeMap<ShardId, Option<Head>>,
    staged_cuts: Vec<Cut>,
}

impl Heads {
    /// As a state has them: each shard once, in order.
    pub(super) fn from_state(bytes: &[u8]) -> Option<Self> {
        let list = Vec::<Head>::from_bytes(bytes).ok()?;
        let rise = list.windows(2).all(|pair| pair[0].shard < pair[1].shard);
        let known = list.into_iter().map(|head| (head.shard, head)).collect();
        rise.then_some(Self { known, ..Self::default() })
    }

    pub(super) fn of(&self, shard: ShardId) -> Option<Head> {
        self.known.get(&shard).copied()
    }

    /// In the order of the shards.
    pub(super) fn list(&self) -> Vec<Head> {
        self.known.values().copied().collect()
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.known == other.known
    }

    /// Checks a record behind all that were checked before.
    pub(super) fn stage(&mut self, seq: LogSeq, kind: EntryKind, of: Head, bytes: &[u8]) -> Step {
        match kind {
            EntryKind::Command => self.move_to(seq, of, |term, before| term >= before),
            _ if (of.shard, of.term, of.index) != (GROUP, Term(0), LogIndex(0)) => Step::Strange,
            EntryKind::Terms => {
                let Ok(list) = Vec::<Head>::from_bytes(bytes) else { return Step::Rubbish };
                let mut named = BTreeSet::new();
                for head in list {
                    if !named.insert(head.shard) {
                        return Step::Strange;
                    }
                    if !matches!(self.move_to(seq, head, |term, before| term > before), Step::Taken) {
                        return Step::Strange;
                    }
                }
                Step::Taken
            }
            EntryKind::Moves => match Moves::from_bytes(bytes) {
                Ok(moves) => self.moved(&moves),
                Err(_) => Step::Rubbish,
            },
            EntryKind::Rows => match Vec::<Row>::from_bytes(bytes) {
                Ok(_) => Step::Taken,
                Err(_) => Step::Rubbish,
            },
        }
    }

    fn last(&self, shard: ShardId) -> Option<Head> {
        self.staged.get(&shard).copied().unwrap_or_else(|| self.of(shard))
    }

    /// A record follows its shard's newest, or takes the place of it and others by its higher term.
    fn move_to(&mut self, seq: LogSeq, head: Head, may_follow: impl Fn(Term, Term) -> bool) -> Step {
        let Head { shard, term, index } = head;
        let Some(before) = self.last(shard) else {
            let is_first = index == LogIndex(1) && shard < GROUP;
            return if is_first { self.stage_head(head) } else { Step::Strange };
        };
        let supersedes = index > LogIndex(0) && index <= before.index && term > before.term;
        if supersedes {
            self.staged_cuts.push(Cut { seq, shard, index });
        } else if index.0.checked_sub(1) != Some(before.index.0) || !may_follow(term, before.term) {
            return Step::Strange;
        }
        self.stage_head(head)
    }

    fn stage_head(&mut self, head: Head) -> Step {
        self.staged.insert(head.shard, Some(head));
        Step::Taken
    }

    /// Each shard once; what goes was here. What comes takes the place of what is known of it: of a journey that was cut off a
    /// head is left that no rows bear out, and the copy that comes then may be older, from a backup. Whoever drops a copy that
    /// is here says so before (`docs/design/moves.md`, invariant 7).
    fn moved(&mut self, moves: &Moves) -> Step {
        let mut named = BTreeSet::new();
        let mut all = moves.came.iter().map(|head| head.shard).chain(moves.gone.iter().copied());
        let once = all.all(|shard| named.insert(shard));
        let may_come = |head: &Head| head.shard < GROUP && head.index > LogIndex(0);
        let may_go = |shard: &ShardId| self.last(*shard).is_some();
        if !(once && moves.came.iter().all(may_come) && moves.gone.iter().all(may_go)) {
            return Step::Strange;
        }
        self.staged.extend(moves.came.iter().map(|head| (head.shard, Some(*head))));
        self.staged.extend(moves.gone.iter().map(|shard| (*shard, None)));
        Step::Taken
    }

    /// What was checked is written.
    pub(super) fn commit(&mut self) {
        while let Some((shard, head)) = self.staged.pop_first() {
            match head {
                Some(head) => self.known.insert(shard, head),
                None => self.known.remove(&shard),
            };
        }
        for cut in self.staged_cuts.drain(..) {
            self.cuts.retain(|old| old.shard != cut.shard || old.index < cut.index);
            self.cuts.push(cut);
        }
    }

    /// What was checked is not written.
    pub(super) fn forget(&mut self) {
        self.staged.clear();
        self.staged_cuts.clear();
    }

    /// Entries before `first` are not kept any more.
    pub(super) fn release(&mut self, first: LogSeq) {
        self.cuts.retain(|cut| cut.seq > first);
    }

    /// Has none taken the place of this one, in the entry `seq`?
    pub(super) fn counts(&self, seq: LogSeq, head: &Head) -> bool {
        let over = |cut: &Cut| cut.shard == head.shard && seq < cut.seq && head.index >= cut.index;
        !self.cuts.iter().any(over)
    }

    /// Takes a record that was read from a segment.
    pub(super) fn take(&mut self, seq: LogSeq, view: &View<'_>) -> Step {
        let kind = match view.kind {
            Kind::Entry(kind) => kind,
            Kind::State => return Step::Strange,
            Kind::Later(..) => return Step::Later,
        };
        let of = Head { shard: view.shard, term: view.term, index: view.index };
        let step = self.stage(seq, kind, of, view.bytes);
        match step {
            Step::Taken => self.commit(),
            _ => self.forget(),
        }
        step
    }

    /// Why a record of a caller does not follow.
    pub(super) fn refusal(&self, record: &Record, last: LogSeq) -> String {
        let Record { seq, shard, term, index, .. } = record;
        let before = match self.last(*shard) {
            _ if *shard == GROUP => "one of the shards that it names is elsewhere".to_owned(),
            Some(head) => format!("the shard is at record {} of term {}", head.index, head.term),
            None => "the shard has no records yet".to_owned(),
        };
        format!(
            "entry {seq} (record {index} of term {term} of shard {shard}) does not follow: the log ends at {last}, \
             {before} (a bug: please report it)"
        )
    }
}
