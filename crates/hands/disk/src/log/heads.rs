//! How far each shard's records go, and which record may follow: the one rule for appending and for opening.

use super::{EntryKind, Head, Record};
use crate::log::record::{Kind, View};
use skep_types::log::GROUP;
use skep_types::{Decode, LogIndex, LogSeq, ShardId, Term};
use std::collections::BTreeMap;

/// Does a record follow?
pub(super) enum Step {
    /// Yes; the heads have moved.
    Taken,
    /// No: it belongs elsewhere. The heads may have moved for a part of it.
    Strange,
    /// Its bytes are no list of heads.
    Rubbish,
}

/// The heads of all shards, and above them those that are not certain yet.
#[derive(Default)]
pub(super) struct Heads {
    known: BTreeMap<ShardId, Head>,
    /// Of records that are checked and not yet written.
    staged: BTreeMap<ShardId, Head>,
}

impl Heads {
    /// As a state has them: each shard once, in order.
    pub(super) fn from_state(bytes: &[u8]) -> Option<Self> {
        let list = Vec::<Head>::from_bytes(bytes).ok()?;
        let rise = list.windows(2).all(|pair| pair[0].shard < pair[1].shard);
        let known = list.into_iter().map(|head| (head.shard, head)).collect();
        rise.then_some(Self { known, staged: BTreeMap::new() })
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
    pub(super) fn stage(&mut self, kind: EntryKind, of: Head, bytes: &[u8]) -> Step {
        match kind {
            EntryKind::Command => self.move_to(of, |term, before| term >= before),
            EntryKind::Terms if (of.shard, of.term, of.index) != (GROUP, Term(0), LogIndex(0)) => {
                Step::Strange
            }
            EntryKind::Terms => {
                let Ok(list) = Vec::<Head>::from_bytes(bytes) else { return Step::Rubbish };
                for head in list {
                    if !matches!(self.move_to(head, |term, before| term > before), Step::Taken) {
                        return Step::Strange;
                    }
                }
                Step::Taken
            }
        }
    }

    fn move_to(&mut self, head: Head, may_follow: impl Fn(Term, Term) -> bool) -> Step {
        let before = self.staged.get(&head.shard).or_else(|| self.known.get(&head.shard));
        let fits = match before {
            Some(before) => {
                head.index.0.checked_sub(1) == Some(before.index.0) && may_follow(head.term, before.term)
            }
            None => head.index == LogIndex(1) && head.shard < GROUP,
        };
        if !fits {
            return Step::Strange;
        }
        self.staged.insert(head.shard, head);
        Step::Taken
    }

    /// What was checked is written.
    pub(super) fn commit(&mut self) {
        while let Some((shard, head)) = self.staged.pop_first() {
            self.known.insert(shard, head);
        }
    }

    /// What was checked is not written.
    pub(super) fn forget(&mut self) {
        self.staged.clear();
    }

    /// Takes a record that was read from a segment.
    pub(super) fn take(&mut self, view: &View<'_>) -> Step {
        let Kind::Entry(kind) = view.kind else { return Step::Strange };
        let of = Head { shard: view.shard, term: view.term, index: view.index };
        let step = self.stage(kind, of, view.bytes);
        match step {
            Step::Taken => self.commit(),
            _ => self.forget(),
        }
        step
    }

    /// Why a record of a caller does not follow.
    pub(super) fn refusal(&self, record: &Record, last: LogSeq) -> String {
        let Record { seq, shard, term, index, .. } = record;
        let head = self.staged.get(shard).or_else(|| self.known.get(shard));
        let before = match head {
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
