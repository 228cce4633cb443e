//! `WriteInline`: writes content that stays inline; refused with MUST_GROW or STALE_GENERATION.

use super::AttrReply;
use skep_types::Ino;
use skep_types::codec::Bytes;

crate::message! {
    /// Writes content that stays inline; refused with MUST_GROW or STALE_GENERATION.
    WriteInline = 0x0211 -> AttrReply {
        /// The file.
        pub ino: Ino,
        /// Where; not looked at when appending.
        pub offset: u64,
        /// At the end of the file as it is when the shard executes this (O_APPEND).
        pub append: bool,
        /// What.
        pub data: Bytes,
        /// An ordinary user wrote: clear suid and sgid.
        pub kill_suidgid: bool,
    } tags {
        /// `true`: nothing behind the end that the file has when the shard executes this. Zeros of a punched range were
        /// asked for by who knew an older end.
        1 => pub within: Option<bool>,
    }
}
