//! The fixed 64-byte frame header.
//!
//! ```text
//!  0 u32 magic "SKEP"     24 u32 group             48 u32 slot (0: none)
//!  4 u8  version          28 u32 status            52 u32 body checksum (CRC32C)
//!  5 u8  flags            32 u32 body length       56 u32 payload checksum (CRC32C)
//!  6 u16 kind             36 u32 payload length    60 u32 checksum of bytes 0..60 (CRC32C)
//!  8 u64 request id       40 u64 trace id
//! 16 u64 fence epoch
//! ```
//! The header is checked by itself before its lengths are believed: a damaged length would have the receiver
//! wait for bytes that nobody sends. Lengths are checked against the limits before anything is allocated.

use alloc::vec::Vec;
use core::fmt;
use skep_types::limits::{BODY_MAX, PAYLOAD_MAX};
use skep_types::{Decode, Encode, FenceEpoch, Reader};

/// Bytes of a header.
pub const HEADER_LEN: usize = 64;

/// Computes CRC32C. Who writes or reads frames brings it: asking a processor whether it can do so itself needs `std`.
pub type Crc32c = fn(&[u8]) -> u32;
/// Bytes of it that its own checksum covers.
const CHECKED: usize = HEADER_LEN - 4;
/// The first four bytes of every frame.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SKEP");
/// Oldest protocol version that this release speaks.
pub const VERSION_MIN: u8 = 1;
/// Newest protocol version that this release speaks.
pub const VERSION_MAX: u8 = 1;

/// Bits of a header's flag byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The frame answers a request.
    pub const REPLY: Self = Self(1);
    /// The sender wants no answer.
    pub const ONE_WAY: Self = Self(2);
    /// Bits that this version knows.
    const KNOWN: u8 = 3;

    /// Are all bits of `other` set?
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What stands before every body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Protocol version.
    pub version: u8,
    /// Reply, one-way.
    pub flags: Flags,
    /// Which message; a reply carries its request's number.
    pub kind: u16,
    /// Chosen by the requester, echoed by the reply.
    pub request: u64,
    /// Highest fence epoch that the sender knows.
    pub epoch: FenceEpoch,
    /// Connection group: a client's lane; its older connections end when a newer one speaks.
    pub group: u32,
    /// 0, or the [`crate::Status`] of a refused request (the body is a [`crate::Refusal`]).
    pub status: u32,
    /// Bytes of the body.
    pub body_len: u32,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// Correlates log lines; 0 = none.
    pub trace: u64,
    /// Which part of the memory that the two sides share is this request's, from 1 on; 0: none. With one the payload is
    /// there, and no byte of it follows the body. Only where both have agreed to it ([`crate::SHARED_MEMORY`]).
    pub slot: u32,
    /// CRC32C of the payload; 0 where no byte of one follows.
    pub payload_checksum: u32,
}

/// Why a header is refused; the connection is closed with one log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// Not a Skep frame at all.
    Magic(u32),
    /// A version that this release does not speak.
    Version(u8),
    /// Unknown flag bits.
    Reserved,
    /// A slot of memory that this connection does not share.
    Slot(u32),
    /// Longer than the limit.
    Oversize {
        /// Announced body length.
        body: u32,
        /// Announced payload length.
        payload: u32,
    },
    /// Header or body do not match their checksum.
    Checksum,
    /// Fewer than 64 bytes.
    Short,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(m) => {
                write!(f, "not a Skep frame (first bytes {m:#010x}); is something else using this port?")
            }
            Self::Version(v) => {
                write!(
                    f,
                    "protocol version {v}; this release speaks {VERSION_MIN} to {VERSION_MAX}: upgrade the older side"
                )
            }
            Self::Reserved => f.write_str("reserved bits of the frame header are set"),
            Self::Slot(slot) => {
                write!(f, "the frame names slot {slot} of shared memory, which this connection does not have")
            }
            Self::Oversize { body, payload } => {
                write!(f, "frame of {body} + {payload} bytes; the limits are {BODY_MAX} + {PAYLOAD_MAX}")
            }
            Self::Checksum => f.write_str("frame checksum does not match: the network or memory damaged it"),
            Self::Short => f.write_str("frame header is cut short"),
        }
    }
}

impl core::error::Error for HeaderError {}

impl Header {
    /// A request of `kind`.
    pub fn request(kind: u16, request: u64) -> Self {
        Self {
            version: VERSION_MAX,
            flags: Flags::default(),
            kind,
            request,
            epoch: FenceEpoch(0),
            group: 0,
            status: 0,
            body_len: 0,
            payload_len: 0,
            trace: 0,
            slot: 0,
            payload_checksum: 0,
        }
    }

    /// The header of the answer to `self`.
    pub fn reply(&self) -> Self {
        Self {
            flags: Flags::REPLY,
            trace: self.trace,
            group: self.group,
            ..Self::request(self.kind, self.request)
        }
    }

    /// Appends the 64 bytes for this header and `body` (whose length it takes), then the body.
    pub fn encode_with(&self, body: &[u8], crc32c: Crc32c, out: &mut Vec<u8>) {
        let at = out.len();
        MAGIC.encode(out);
        self.version.encode(out);
        self.flags.0.encode(out);
        self.kind.encode(out);
        self.request.encode(out);
        self.epoch.encode(out);
        self.group.encode(out);
        self.status.encode(out);
        (body.len() as u32).encode(out);
        self.payload_len.encode(out);
        self.trace.encode(out);
        self.slot.encode(out);
        crc32c(body).encode(out);
        self.payload_checksum.encode(out);
        crc32c(&out[at..at + CHECKED]).encode(out);
        out.extend_from_slice(body);
    }

    /// Reads and checks a header; the second value is the checksum to be given to [`Header::verify`].
    pub fn decode(bytes: &[u8], crc32c: Crc32c) -> Result<(Self, u32), HeaderError> {
        if bytes.len() < HEADER_LEN {
            return Err(HeaderError::Short);
        }
        let mut r = Reader::new(&bytes[..HEADER_LEN]);
        let (magic, header, body_checksum, checksum) =
            Self::fields(&mut r).map_err(|_| HeaderError::Short)?;
        // What speaks another protocol or version is told so, however it computes its checksum.
        header.speaks(magic)?;
        if crc32c(&bytes[..CHECKED]) != checksum {
            return Err(HeaderError::Checksum);
        }
        header.check()?;
        Ok((header, body_checksum))
    }

    fn fields(r: &mut Reader<'_>) -> Result<(u32, Self, u32, u32), skep_types::DecodeError> {
        let magic = u32::decode(r)?;
        let mut header = Self {
            version: u8::decode(r)?,
            flags: Flags(u8::decode(r)?),
            kind: u16::decode(r)?,
            request: u64::decode(r)?,
            epoch: FenceEpoch::decode(r)?,
            group: u32::decode(r)?,
            status: u32::decode(r)?,
            body_len: u32::decode(r)?,
            payload_len: u32::decode(r)?,
            trace: u64::decode(r)?,
            slot: u32::decode(r)?,
            payload_checksum: 0,
        };
        let body_checksum = u32::decode(r)?;
        header.payload_checksum = u32::decode(r)?;
        Ok((magic, header, body_checksum, u32::decode(r)?))
    }

    fn speaks(&self, magic: u32) -> Result<(), HeaderError> {
        if magic != MAGIC {
            return Err(HeaderError::Magic(magic));
        }
        if !(VERSION_MIN..=VERSION_MAX).contains(&self.version) {
            return Err(HeaderError::Version(self.version));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), HeaderError> {
        if self.flags.0 & !Flags::KNOWN != 0 {
            return Err(HeaderError::Reserved);
        }
        if self.body_len as usize > BODY_MAX || self.payload_len as usize > PAYLOAD_MAX {
            return Err(HeaderError::Oversize { body: self.body_len, payload: self.payload_len });
        }
        Ok(())
    }

    /// Is the body the one that its header was sent with?
    pub fn verify(body: &[u8], checksum: u32, crc32c: Crc32c) -> Result<(), HeaderError> {
        if crc32c(body) == checksum { Ok(()) } else { Err(HeaderError::Checksum) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use crc32c::crc32c;

    fn sample() -> Header {
        Header { epoch: FenceEpoch(5), group: 3, trace: 8, payload_len: 17, ..Header::request(0x201, 99) }
    }

    /// Goal: a header reads back what was written, and its bytes are the released ones.
    #[test]
    fn round_trip_and_golden_bytes() {
        let mut out = vec![];
        sample().encode_with(b"body", crc32c, &mut out);
        let (header, checksum) = Header::decode(&out, crc32c).unwrap();
        assert_eq!(header, Header { body_len: 4, ..sample() });
        Header::verify(b"body", checksum, crc32c).unwrap();
        assert_eq!(&out[..8], b"SKEP\x01\x00\x01\x02");
        assert_eq!(out[48..52], [0; 4], "a release without slots refuses anything else");
        let named = Header { slot: 3, ..sample() };
        let mut out = vec![];
        named.encode_with(b"", crc32c, &mut out);
        assert_eq!((Header::decode(&out, crc32c).unwrap().0, &out[48..52]), (named, &[3, 0, 0, 0][..]));
    }

    /// Goal: every flipped bit of a header is noticed from the header alone, its lengths above all, and every
    /// one of the body with it.
    #[test]
    fn bit_flips_are_noticed() {
        let mut out = vec![];
        sample().encode_with(b"body", crc32c, &mut out);
        for bit in 0..out.len() * 8 {
            let mut bad = out.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            match Header::decode(&bad[..HEADER_LEN], crc32c) {
                Err(_) => assert!(bit < HEADER_LEN * 8, "bit {bit}: the body is not the header"),
                Ok((_, checksum)) => {
                    assert!(bit >= HEADER_LEN * 8, "bit {bit} of the header is believed");
                    assert!(
                        Header::verify(&bad[HEADER_LEN..], checksum, crc32c).is_err(),
                        "bit {bit} went unnoticed"
                    );
                }
            }
        }
    }

    /// Goal: a length above the limits is refused before anything is allocated for it.
    #[test]
    fn oversize_is_refused() {
        let mut out = vec![];
        Header { payload_len: u32::MAX, ..sample() }.encode_with(b"", crc32c, &mut out);
        assert!(matches!(Header::decode(&out, crc32c), Err(HeaderError::Oversize { .. })));
    }
}
