//! Requests as the log holds them. Their bytes are a format of their own: a message of the wire may get fields, change
//! or go, and the logs that were written before still read as they did.

use alloc::vec::Vec;
use skep_types::codec::{Buffer, encode_record, encode_tag};
use skep_types::{
    Decode, DecodeError, Encode, Generation, Held, Ino, Kind, LogPlace, Mode, Name, Policy, Reader, SetAttr,
    ShardId, Timestamp, codec::Bytes, record,
};
use skep_wire::meta::{self as wire, FoundChunk, MetaRequest, OpenMode, TxnId, TxnOp};

/// Declares what the log holds of each request that can change rows: its number there, its fields in their order, those
/// that came later behind a semicolon with their tags, and in brackets what the log leaves out because no row depends on it.
macro_rules! changes {
    ($(
        $(#[$meta:meta])*
        $name:ident = $number:literal {
            $($field:ident: $ty:ty),* $(,)? $(; $($tag:literal => $tfield:ident: $tty:ty),* $(,)?)?
        } $([ $($left:ident: $value:expr),* ])?
    )*) => {
        $(record! {
            $(#[$meta])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name {
                $(#[doc = "As in the request."] pub $field: $ty),*
            } $(tags {
                $(#[doc = "As in the request."] $tag => pub $tfield: Option<$tty>),*
            })?
        }

        impl From<$name> for MetaRequest {
            fn from(m: $name) -> Self {
                Self::$name(wire::$name {
                    $($field: m.$field,)*
                    $($($tfield: m.$tfield,)*)?
                    $($($left: $value,)*)?
                })
            }
        })*

        /// Appends number and fields of a request. `false`: one of its kind changes no rows, and nothing was appended.
        pub fn encode(request: &MetaRequest, out: &mut Buffer) -> bool {
            match request {
                $(MetaRequest::$name(m) => {
                    u16::encode(&$number, out);
                    encode_record(out, |out| {
                        $(m.$field.encode(out);)*
                        $($(if let Some(value) = &m.$tfield {
                            encode_tag(out, $tag, value);
                        })*)?
                    });
                })*
                _ => return false,
            }
            true
        }

        /// Reads the fields of the request with this number.
        pub fn decode(number: u16, r: &mut Reader<'_>) -> Result<MetaRequest, DecodeError> {
            match number {
                $($number => $name::decode(r).map(MetaRequest::from),)*
                _ => Err(DecodeError::Invalid("number of a logged request")),
            }
        }

        /// An example of each.
        pub fn each(draw: skep_types::codec::Draw) -> Vec<(&'static str, MetaRequest)> {
            use skep_types::codec::Example;
            Vec::from([$((stringify!($name), $name::example(draw.of(stringify!($name))).into())),*])
        }
    };
}

changes! {
    /// See [`wire::ChangeAttr`].
    ChangeAttr = 1 {
        ino: Ino,
        set: SetAttr,
    }
    /// See [`wire::Create`].
    Create = 2 {
        parent: Ino,
        name: Name,
        mode: Mode,
        umask: Mode,
        uid: u32,
        gid: u32,
        exclusive: bool,
        truncate: bool,
        open: Option<OpenMode>,
        policy: Option<Policy>,
    } [open_seq: 0]
    /// See [`wire::CreateTemp`].
    CreateTemp = 3 {
        parent: Ino,
        mode: Mode,
        umask: Mode,
        uid: u32,
        gid: u32,
        open: OpenMode,
    } [open_seq: 0]
    /// See [`wire::MakeNode`].
    MakeNode = 4 {
        parent: Ino,
        name: Name,
        kind: Kind,
        mode: Mode,
        umask: Mode,
        uid: u32,
        gid: u32,
        rdev: u32,
    }
    /// See [`wire::MakeSymlink`].
    MakeSymlink = 5 {
        parent: Ino,
        name: Name,
        target: Bytes,
        uid: u32,
        gid: u32,
    }
    /// See [`wire::Link`].
    Link = 6 {
        ino: Ino,
        parent: Ino,
        name: Name,
    }
    /// See [`wire::Unlink`].
    Unlink = 7 {
        parent: Ino,
        name: Name,
    }
    /// See [`wire::RemoveDir`].
    RemoveDir = 8 {
        parent: Ino,
        name: Name,
    }
    /// See [`wire::Rename`].
    Rename = 9 {
        parent: Ino,
        name: Name,
        to_parent: Ino,
        to_name: Name,
        no_replace: bool,
        exchange: bool,
    }
    /// See [`wire::Open`].
    Open = 10 {
        ino: Ino,
        mode: OpenMode,
        truncate: bool,
        kill_suidgid: bool,
    } [open_seq: 0, shared: false]
    /// See [`wire::Commit`].
    Commit = 11 {
        ino: Ino,
        generation: Generation,
        size: u64,
        cuts: u64,
        mtime: Timestamp,
        time_sets: u64,
        blocks: Option<u64>,
        kill_suidgid: bool,
        held: Option<Held>,
    }
    /// See [`wire::WriteInline`].
    WriteInline = 12 {
        ino: Ino,
        offset: u64,
        append: bool,
        data: Bytes,
        kill_suidgid: bool;
        1 => within: bool,
    }
    /// See [`wire::Grow`].
    Grow = 13 {
        ino: Ino,
        end: u64,
        like: Option<Ino>,
    }
    /// See [`wire::Switch`].
    Switch = 14 {
        ino: Ino,
        generation: Generation,
        inline_version: u64,
        copied: u64,
    }
    /// See [`wire::SetXattr`].
    SetXattr = 15 {
        ino: Ino,
        name: Bytes,
        value: Bytes,
        create: bool,
        replace: bool,
        kill_sgid: bool,
    }
    /// See [`wire::RemoveXattr`].
    RemoveXattr = 16 {
        ino: Ino,
        name: Bytes,
    }
    /// See [`wire::SetPolicy`].
    SetPolicy = 17 {
        ino: Ino,
        policy: Policy,
        spread: Option<bool>,
    }
    /// See [`wire::MakeDirOn`].
    MakeDirOn = 18 {
        parent: Ino,
        name: Name,
        mode: Mode,
        umask: Mode,
        uid: u32,
        gid: u32,
        on: ShardId,
    }
    /// See [`wire::Prepare`].
    Prepare = 19 {
        txid: TxnId,
        floor: TxnId,
        age: Timestamp,
        ops: Vec<TxnOp>,
    }
    /// See [`wire::Repair`].
    Repair = 20 {
        ino: Ino,
        generation: Generation,
        trims: LogPlace,
        found: Vec<FoundChunk>,
    }
    /// See [`wire::Decide`].
    Decide = 21 {
        txid: TxnId,
        floor: TxnId,
        commit: bool,
    }
    /// See [`wire::Tell`].
    Tell = 22 {
        ino: Ino,
        content: Option<wire::Content>,
        commit: Option<wire::Commit>,
        set: SetAttr,
        at: Timestamp,
    } [keeps: None, wishes: None, hold: None, answers: None]
}
