//! `Tell`: what became of a file that its mount holds.

use super::{AttrReply, Commit};
use skep_types::codec::Bytes;
use skep_types::{Ino, SetAttr, Timestamp, record};

crate::message! {
    /// All that a mount has kept to itself of a file that it holds, in one change, as of the moments when its programs made it:
    /// content, then the commit of its chunk files, then attributes. The mount holds the file no longer, unless it says so and
    /// is answered so ([`super::ShardStamp::holds`]).
    Tell = 0x0231 -> AttrReply {
        /// The file.
        pub ino: Ino,
        /// All of its content, which stays in the metadata.
        pub content: Option<Content>,
        /// How far its chunk files were written.
        pub commit: Option<Commit>,
        /// Mode, owner and times.
        pub set: SetAttr,
        /// When the last of these was changed, by the mount's clock.
        pub at: Timestamp,
    } tags {
        /// The mount wishes to go on holding the file.
        1 => pub keeps: Option<bool>,
        /// Nothing is told: the mount has the file open for writing, holds it not, as far as it knows, and would like to.
        2 => pub wishes: Option<bool>,
        /// Which hold this is about, of those that were asked for: numbers of a session rise, and absent is the one from the
        /// create. So a word about an earlier one that comes late does not end this one, nor is carried out.
        3 => pub hold: Option<u64>,
        /// The question of those who only look ([`super::Question::looks`]) behind which this was begun.
        4 => pub answers: Option<u64>,
    }
}

record! {
    /// Content of a small file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Content {
        /// From its beginning.
        pub data: Bytes,
        /// When it was last written to, by the mount's clock.
        pub mtime: Timestamp,
    }
}
