//! `ReserveEnd`: sets a range at the end of a file aside for one append to its chunks.

use skep_types::{Generation, Ino, LogPlace, Term, record};

crate::message! {
    /// Sets a range at the end of a file aside for one append to its chunks (O_APPEND). Nobody else is given a byte
    /// of it. Not remembered over a restart of the shard but for what mounts reclaim. Refused with MUST_GROW while
    /// the file is inline, with GRACE until everybody has reclaimed.
    ReserveEnd = 0x0225 -> ReserveEndReply {
        /// The file.
        pub ino: Ino,
        /// Bytes wanted.
        pub len: u64,
        /// Counts the reservations of the asking lane: a repetition of its last one gets the same range, so that a
        /// lost answer leaves no hole.
        pub number: u64,
        /// The file ends here at least, as the asker knows (own writes, and what the targets say when others have
        /// it open for writing).
        pub at_least: u64,
        /// The asker has asked the targets since `ReserveEnd` was answered in this term of the shard: `at_least` covers what
        /// others wrote. 0: it has not. A look from before the end of a grace period counts for nothing: others may
        /// have written since to ranges of the life before, which nobody claims any more.
        pub looked: Term,
    } tags {
        /// The count of the file's cuts as of which it ends there at least. What is known from before a cut counts for nothing,
        /// however often it is told; absent: the asker cannot tell, and is answered once that it must look.
        1 => pub cuts: Option<u64>,
    }
}

record! {
    /// The range.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReserveEndReply {
        /// Its first byte; absent: others write to the file, ask the targets for its size and come again.
        pub offset: Option<u64>,
        /// Layout generation that it is in.
        pub generation: Generation,
        /// Layout::trims: when they have moved the file was truncated, and the range may be others'.
        pub trims: LogPlace,
    }
}
