//! The one codec of the project: little-endian, explicit lengths, tagged tail.
//!
//! A *record* (a struct made by [`record!`]) is written as
//! `u32 length | fields in order | tagged fields`. A tagged field is
//! `u16 tag | u32 length | bytes`. The fields in order never change once released; whatever a
//! later version adds is a tagged field. A reader skips tags it does not know, so releases N and
//! N-1 understand each other. Tags rise from 1 within a record: one that comes twice, or out of order, or as
//! zeros, is refused.
//!
//! Decoding never panics and never allocates more than the input is long: a count is checked
//! against the bytes that are left before memory is reserved for it.

pub use crate::example::{Draw, Example};
pub use crate::growing::Growing;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

/// Why bytes could not be understood. Carries the name of the record that was being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The input ended inside the named item.
    Truncated(&'static str),
    /// A value is outside the range that the named item allows.
    Invalid(&'static str),
    /// More elements than the named limit allows.
    TooLong(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(what) => write!(f, "input ends inside {what}"),
            Self::Invalid(what) => write!(f, "invalid value for {what}"),
            Self::TooLong(what) => write!(f, "{what} is longer than its limit"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Bytes being read, with a position.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read so far.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        if n > self.rest.len() {
            return Err(DecodeError::Truncated(what));
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Ok(head)
    }

    /// Takes a record's body as a reader of its own.
    pub fn record(&mut self, what: &'static str) -> Result<Reader<'a>, DecodeError> {
        let len = u32::decode(self)? as usize;
        Ok(Reader::new(self.take(len, what)?))
    }

    /// The next tagged field of a record's tail, if any is left. `last` is the number of the one before, at first 0.
    pub fn tag(&mut self, last: &mut u16) -> Result<Option<(u16, &'a [u8])>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = u16::decode(self)?;
        if tag <= *last {
            return Err(DecodeError::Invalid("number of a tagged field"));
        }
        *last = tag;
        let len = u32::decode(self)? as usize;
        Ok(Some((tag, self.take(len, "tagged field")?)))
    }

    /// Fails when bytes are left over.
    pub fn finish(&self, what: &'static str) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Invalid(what)) }
    }
}

/// Room of a buffer that is made for one value: most rows, requests and answers fit.
const USUAL_BYTES: usize = 192;

/// Writes itself to the end of a buffer.
pub trait Encode {
    /// Appends the encoding of `self`.
    fn encode(&self, out: &mut Vec<u8>);

    /// The encoding as a buffer of its own.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        self.encode(&mut out);
        out
    }
}

/// Reads itself from bytes.
pub trait Decode: Sized {
    /// Reads one value.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Reads one value that fills `bytes` wholly.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish("trailing bytes")?;
        Ok(value)
    }
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(r.take(size_of::<$t>(), stringify!($t))?);
                Ok(<$t>::from_le_bytes(raw))
            }
        }
    )*};
}
integer!(u8, u16, u32, u64, u128, i32, i64);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Decode for bool {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("bool")),
        }
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> Decode for [u8; N] {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut raw = [0; N];
        raw.copy_from_slice(r.take(N, "byte array")?);
        Ok(raw)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode(out);
            }
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(r)? { Some(T::decode(r)?) } else { None })
    }
}

/// Written as what it holds.
impl<T: Encode> Encode for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::decode(r).map(Self::new)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for item in self {
            item.encode(out);
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u32::decode(r)? as usize;
        // Every element takes at least one byte, so a count above the rest is a lie.
        if count > r.remaining() {
            return Err(DecodeError::Truncated("list"));
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(T::decode(r)?);
        }
        Ok(items)
    }
}

/// A value that says itself under which key it stands in a map, which is written as the list of its values.
pub trait Keyed {
    /// Of the map.
    type Key: Ord;
    /// Its own.
    fn key(&self) -> Self::Key;
}

impl<V: Keyed + Encode> Encode for BTreeMap<V::Key, V> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        self.values().for_each(|value| value.encode(out));
    }
}

impl<V: Keyed + Decode> Decode for BTreeMap<V::Key, V> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Vec::<V>::decode(r)?.into_iter().map(|value| (value.key(), value)).collect())
    }
}

impl<T: Ord + Encode> Encode for BTreeSet<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        self.iter().for_each(|item| item.encode(out));
    }
}

impl<T: Ord + Decode> Decode for BTreeSet<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Vec::decode(r).map(|items| items.into_iter().collect())
    }
}

/// A byte string (inline data, an xattr value, a stored reply): one copy in, one copy out.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub Vec<u8>);

impl Encode for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        out.extend_from_slice(&self.0);
    }
}

impl Decode for Bytes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = u32::decode(r)? as usize;
        Ok(Self(r.take(len, "bytes")?.to_vec()))
    }
}

impl Encode for alloc::string::String {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        out.extend_from_slice(self.as_bytes());
    }
}

impl Decode for alloc::string::String {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = u32::decode(r)? as usize;
        let raw = r.take(len, "text")?;
        core::str::from_utf8(raw).map(Into::into).map_err(|_| DecodeError::Invalid("text"))
    }
}

/// Writes a record's length once its body is known. Used by [`record!`].
pub fn encode_record(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// Writes one tagged field. Used by [`record!`].
pub fn encode_tag<T: Encode>(out: &mut Vec<u8>, tag: u16, value: &T) {
    tag.encode(out);
    encode_record(out, |out| value.encode(out));
}

/// Are these numbers of tagged fields, as they must stand in a record? Used by [`record!`].
pub const fn tags_rise(tags: &[u16]) -> bool {
    let (mut at, mut last) = (0, 0);
    while at < tags.len() {
        if tags[at] <= last {
            return false;
        }
        last = tags[at];
        at += 1;
    }
    true
}

/// What [`union!`] makes: later releases add variants to it.
pub trait Union: Encode + Decode + Example {
    /// Numbers of the variants that this release knows.
    const NUMBERS: &'static [u8];
}

/// What [`record!`] makes: it has a length, and so can have tagged fields that its reader does not know.
pub trait Record: Encode + Decode + Example {}

/// Declares a struct together with its codec.
///
/// ```
/// skep_types::record! {
///     /// A point.
///     #[derive(Debug, Clone, PartialEq)]
///     pub struct Point {
///         /// Across.
///         pub x: u32,
///         /// Down.
///         pub y: u32,
///     } tags {
///         /// Up, since version 2.
///         1 => pub z: Option<u32>,
///     }
/// }
/// ```
/// Tagged fields are `Option`s: `None` is not written, an absent one reads as `None`. One that is there costs 6 bytes
/// beside its value; a record without any costs nothing for being able to have them.
///
/// `where is_sound` behind all that names a method of the struct: what it says no to is not read.
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)?
        } $(tags {
            $($(#[$tmeta:meta])* $tag:literal => pub $tfield:ident : Option<$tty:ty>),* $(,)?
        })? $(where $sound:ident)?
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            $($($(#[$tmeta])* pub $tfield: Option<$tty>,)*)?
        }

        const _: () = assert!($crate::codec::tags_rise(&[$($($tag),*)?]), "numbers of tagged fields rise from 1");

        impl $crate::codec::Record for $name {}

        impl $crate::codec::Example for $name {
            fn example(_draw: $crate::codec::Draw) -> Self {
                let made = Self {
                    $($field: $crate::codec::Example::example(_draw.of(stringify!($field))),)*
                    $($($tfield: $crate::codec::Example::example(_draw.of(stringify!($tfield))),)*)?
                };
                $(let made = if made.$sound() { made } else { Self::example(_draw.again()) };)?
                made
            }
        }

        impl $crate::codec::Encode for $name {
            fn encode(&self, out: &mut $crate::codec::Buffer) {
                $crate::codec::encode_record(out, |_out| {
                    $($crate::codec::Encode::encode(&self.$field, _out);)*
                    $($(if let Some(value) = &self.$tfield {
                        $crate::codec::encode_tag(_out, $tag, value);
                    })*)?
                });
            }
        }

        impl $crate::codec::Decode for $name {
            fn decode(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                let mut body = r.record(stringify!($name))?;
                $(let $field = <$ty as $crate::codec::Decode>::decode(&mut body)?;)*
                $($(let mut $tfield = None;)*)?
                let mut last = 0;
                while let Some((_tag, _bytes)) = body.tag(&mut last)? {
                    $($(if _tag == $tag {
                        $tfield = Some(<$tty as $crate::codec::Decode>::from_bytes(_bytes)?);
                    })*)?
                }
                let read = Self { $($field,)* $($($tfield,)*)? };
                $(if !read.$sound() {
                    return Err($crate::codec::DecodeError::Invalid(stringify!($name)));
                })?
                Ok(read)
            }
        }
    };
}

/// Declares a field-less enum together with its one-byte codec; an unknown number is an error.
#[macro_export]
macro_rules! byte_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $value:literal),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant = $value),* }

        impl $crate::codec::Example for $name {
            fn example(draw: $crate::codec::Draw) -> Self {
                draw.one(&[$(Self::$variant),*])
            }
        }

        impl $crate::codec::Encode for $name {
            fn encode(&self, out: &mut $crate::codec::Buffer) {
                out.push(*self as u8);
            }
        }

        impl $crate::codec::Decode for $name {
            fn decode(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Decode>::decode(r)? {
                    $($value => Ok(Self::$variant),)*
                    _ => Err($crate::codec::DecodeError::Invalid(stringify!($name))),
                }
            }
        }
    };
}

/// Declares an enum whose variants each hold one record: `u8 number | record`. A number that its reader does not know
/// is an error; in a [`codec::Growing`](crate::codec::Growing) it is left out.
#[macro_export]
macro_rules! union {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident($ty:ty) = $value:literal),* $(,)? }
    ) => {
        $(#[$meta])*
        pub enum $name { $($(#[$vmeta])* $variant($ty)),* }

        impl $name {
            /// An example of every variant.
            pub fn each(draw: $crate::codec::Draw) -> $crate::codec::List<Self> {
                $crate::codec::List::from([
                    $(Self::$variant($crate::codec::Example::example(draw.of(stringify!($variant))))),*
                ])
            }
        }

        impl $crate::codec::Example for $name {
            fn example(draw: $crate::codec::Draw) -> Self {
                draw.one(&Self::each(draw))
            }
        }

        impl $crate::codec::Union for $name {
            const NUMBERS: &'static [u8] = &[$($value),*];
        }

        impl $crate::codec::Encode for $name {
            fn encode(&self, out: &mut $crate::codec::Buffer) {
                match self {
                    $(Self::$variant(value) => {
                        out.push($value);
                        $crate::codec::Encode::encode(value, out);
                    })*
                }
            }
        }

        impl $crate::codec::Decode for $name {
            fn decode(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Decode>::decode(r)? {
                    $($value => Ok(Self::$variant(<$ty as $crate::codec::Decode>::decode(r)?)),)*
                    _ => Err($crate::codec::DecodeError::Invalid(stringify!($name))),
                }
            }
        }

        $(impl From<$ty> for $name {
            fn from(value: $ty) -> Self {
                Self::$variant(value)
            }
        })*
    };
}

/// The buffer that everything is encoded into (named here so that the macros need no `alloc`).
pub type Buffer = Vec<u8>;
/// The same for lists.
pub type List<T> = Vec<T>;

#[cfg(test)]
mod tests {
    use super::*;

    crate::record! {
        /// Version 1 of a record.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Old { pub a: u32, pub b: Bytes }
    }
    crate::record! {
        /// The same record with one field more.
        #[derive(Debug, Clone, PartialEq)]
        pub struct New { pub a: u32, pub b: Bytes } tags { 1 => pub c: Option<u64> }
    }

    /// Goal: releases N and N-1 read each other's records.
    #[test]
    fn versions_understand_each_other() {
        let new = New { a: 7, b: Bytes(alloc::vec![1, 2]), c: Some(9) };
        let old = Old::from_bytes(&new.to_bytes()).unwrap();
        assert_eq!(old, Old { a: 7, b: Bytes(alloc::vec![1, 2]) });
        assert_eq!(New::from_bytes(&old.to_bytes()).unwrap().c, None);
        assert_eq!(New::from_bytes(&new.to_bytes()).unwrap(), new);
    }

    /// Goal: what stands where tagged fields stand and is none is refused, by those who know the tag and those who do not.
    #[test]
    fn malformed_tags_are_refused() {
        let bare = Old { a: 7, b: Bytes(alloc::vec![1, 2]) }.to_bytes();
        let with = |tail: &[u8]| {
            let mut bytes = bare.clone();
            bytes.extend_from_slice(tail);
            let len = (bytes.len() - 4) as u32;
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            (Old::from_bytes(&bytes).is_ok(), New::from_bytes(&bytes).map(|new| new.c))
        };
        let field = |tag: u16, value: &[u8]| {
            let mut bytes = tag.to_le_bytes().to_vec();
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
            bytes.extend_from_slice(value);
            bytes
        };
        let nine = &9u64.to_le_bytes()[..];
        assert_eq!(with(&field(1, nine)), (true, Ok(Some(9))));
        assert_eq!(with(&field(9, b"of a later release")), (true, Ok(None)));
        assert_eq!(with(&[field(1, nine), field(9, b"")].concat()), (true, Ok(Some(9))));
        assert_eq!(with(&field(1, &nine[1..])), (true, Err(DecodeError::Truncated("u64"))));
        assert_eq!(
            with(&field(1, &[nine, b"x"].concat())),
            (true, Err(DecodeError::Invalid("trailing bytes")))
        );
        let refused = |tail: &[u8]| {
            let (old, new) = with(tail);
            assert!(!old && new.is_err(), "{tail:?} was accepted");
        };
        refused(&[0; 6]);
        refused(&field(0, nine));
        refused(&[field(1, nine), field(1, nine)].concat());
        refused(&[field(9, b""), field(1, nine)].concat());
        refused(&[field(9, b""), alloc::vec![0]].concat());
        let long = field(9, nine);
        for cut in 1..long.len() {
            refused(&long[..cut]);
        }
        refused(&[&[9, 0], &u32::MAX.to_le_bytes()[..], nine].concat());
    }

    /// Goal: numbers that would be written in another order than they are read in do not compile.
    #[test]
    fn numbers_of_tags_rise() {
        assert!(tags_rise(&[]) && tags_rise(&[1]) && tags_rise(&[1, 2, 7, u16::MAX]));
        assert!(!tags_rise(&[0]) && !tags_rise(&[2, 1]) && !tags_rise(&[1, 1]));
    }

    /// Goal: every truncation of a record is an error, never a panic or a default value.
    #[test]
    fn truncation_is_an_error() {
        let bytes = New { a: 7, b: Bytes(alloc::vec![1, 2, 3]), c: Some(9) }.to_bytes();
        for n in 0..bytes.len() {
            assert!(New::from_bytes(&bytes[..n]).is_err(), "prefix of {n} bytes was accepted");
        }
    }

    /// Goal: a count that lies does not reserve memory.
    #[test]
    fn a_lying_count_is_refused() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 1, 2, 3];
        assert_eq!(Vec::<u64>::from_bytes(&bytes), Err(DecodeError::Truncated("list")));
    }
}
