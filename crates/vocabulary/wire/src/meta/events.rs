//! `Events`: what a metadata server has to tell a mount of its own accord.

use super::{LockOutcome, Recall};
use skep_types::codec::Growing;
use skep_types::{Ino, ShardId, Term, record, union};

crate::message! {
    /// Waits until there is something to tell the mount, of any shard of the group that the shard in the call belongs to,
    /// or the time is over. One per mount and group at a time; a newer one ends an older one.
    Events = 0x022a -> EventsReply {
        /// Events up to this number have been received: the server forgets them.
        pub received: u64,
        /// Longest wait in milliseconds (the server may answer earlier, without events).
        pub wait_ms: u64,
    }
}

union! {
    /// One thing that happened. A mount that does not know a number leaves the event out and confirms it, so an event of
    /// a later release is one that may be ignored, or goes only to those whose `Hello` has the feature bit for it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Event {
        /// Something became of a waiting lock.
        Lock(LockOutcome) = 1,
        /// A shard began a term.
        Term(TermBegun) = 2,
        /// A shard takes back a lease, or a part of what it covers. Only who wished for leases has any.
        Recall(Recall) = 3,
        /// Somebody waits for a file that the mount holds. Only who wished to hold files has any.
        Question(Question) = 4,
    }
}

record! {
    /// A shard asks who holds a file to tell it ([`super::Tell`]), by which he ceases to hold it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Question {
        /// The shard's term.
        pub term: Term,
        /// The file.
        pub ino: Ino,
    } tags {
        /// Those who wait only look: who tells may go on holding the file, with a word that was begun behind this question and
        /// says so ([`super::Tell::answers`]).
        1 => pub looks: Option<u64>,
    }
}

record! {
    /// A shard of the group began its service in a new term, though the server is in the same life. Who had something open on
    /// it, or waits there, hears of it without having to ask the shard; who does not know the event hears by its next answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TermBegun {
        /// The shard.
        pub shard: ShardId,
        /// Its term.
        pub term: Term,
    }
}

record! {
    /// What happened.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EventsReply {
        /// In the order in which it happened; what is not yet confirmed is told again.
        pub events: Growing<Event>,
        /// Number of the last one. Every life of a server counts on from a higher number than the one before.
        pub number: u64,
    }
}
