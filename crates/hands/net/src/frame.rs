//! Frames as bytes: `header | body | payload [| MAC]`, taken apart and checked.

use crate::error::Cause;
use crate::memory::SLOT_LEN;
use crate::seal::{MAC_LEN, Seal};
use crc_fast::{CrcAlgorithm, crc32_iscsi};
use skep_wire::{HEADER_LEN, Header, HeaderError};
use std::ops::Range;

/// The checksum of a payload that is not sealed.
pub(crate) fn checksum(payload: &[u8]) -> u32 {
    // 0 of nothing, as the header says it.
    if payload.is_empty() { 0 } else { crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, payload) as u32 }
}

/// A header that was read but whose frame is not yet checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    pub(crate) header: Header,
    checksum: u32,
}

impl Announced {
    /// Reads the header where so many slots of memory are shared; lengths are within the limits afterwards, and so is the
    /// slot.
    pub(crate) fn read(bytes: &[u8], slots: u32) -> Result<Self, Cause> {
        let (header, checksum) = Header::decode(bytes, crc32_iscsi)?;
        if header.slot > slots {
            return Err(HeaderError::Slot(header.slot).into());
        }
        if header.slot != 0 && header.payload_len as usize > SLOT_LEN {
            return Err(HeaderError::Oversize { body: header.body_len, payload: header.payload_len }.into());
        }
        Ok(Self { header, checksum })
    }

    /// Bytes of header and body.
    pub(crate) fn head_len(&self) -> usize {
        HEADER_LEN + self.header.body_len as usize
    }

    /// Bytes of the payload that follow the body.
    pub(crate) fn payload_len(&self) -> usize {
        if self.header.slot == 0 { self.header.payload_len as usize } else { 0 }
    }

    /// Is the frame what its sender made? Without seal the MAC is not looked at.
    pub(crate) fn check(
        &self,
        head: &[u8],
        payload: &[u8],
        mac: &[u8],
        seal: Option<&mut Seal>,
    ) -> Result<(), Cause> {
        let sealed = seal.is_some();
        if let Some(seal) = seal
            && !seal.check(head, payload, mac)
        {
            return Err(Cause::Mac);
        }
        let body = head.get(HEADER_LEN..).ok_or(HeaderError::Short)?;
        Header::verify(body, self.checksum, crc32_iscsi)?;
        if !sealed && checksum(payload) != self.header.payload_checksum {
            return Err(Cause::PayloadChecksum);
        }
        Ok(())
    }
}

/// A whole frame inside a buffer.
pub(crate) struct Whole {
    pub(crate) header: Header,
    pub(crate) body: Range<usize>,
    pub(crate) payload: Range<usize>,
    /// Bytes of the frame.
    pub(crate) len: usize,
}

/// What stands at the beginning of a buffer.
pub(crate) enum Front {
    /// A checked frame.
    Frame(Whole),
    /// The beginning of a frame that is `of` bytes long (as far as one can tell).
    Part {
        /// Bytes of the frame, or of the header while that is not whole.
        of: usize,
    },
}

/// Looks at the beginning of `bytes`. A frame with more than `payload_max` bytes of payload is an error.
pub(crate) fn front(bytes: &[u8], seal: Option<&mut Seal>, payload_max: usize) -> Result<Front, Cause> {
    if bytes.len() < HEADER_LEN {
        return Ok(Front::Part { of: HEADER_LEN });
    }
    let announced = Announced::read(bytes, 0)?;
    if announced.payload_len() > payload_max {
        return Err(Cause::PayloadTooLong { got: announced.payload_len(), room: payload_max });
    }
    let body = HEADER_LEN..announced.head_len();
    let payload = body.end..body.end + announced.payload_len();
    let len = payload.end + if seal.is_some() { MAC_LEN } else { 0 };
    if bytes.len() < len {
        return Ok(Front::Part { of: len });
    }
    announced.check(&bytes[..body.end], &bytes[payload.clone()], &bytes[payload.end..len], seal)?;
    Ok(Front::Frame(Whole { header: announced.header, body, payload, len }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::Outbound;

    fn frame(seal: Option<Seal>) -> Vec<u8> {
        let mut out = Outbound::new(seal);
        out.queue(&Header::request(0x301, 7), b"a body", b"a payload").unwrap();
        out.bytes().to_vec()
    }

    /// Small and seeded: the same bytes in every run.
    struct Dice(u64);

    impl Dice {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }
    }

    /// Goal: a frame comes apart into what was put in, and each shorter beginning asks for more.
    #[test]
    fn whole_and_parts() {
        for sealed in [false, true] {
            let seal = || sealed.then(|| Seal::new(&[3; 32]));
            let bytes = frame(seal());
            for n in 0..bytes.len() {
                let part = front(&bytes[..n], seal().as_mut(), 100);
                let Ok(Front::Part { of }) = part else { panic!("{n} bytes were taken for a frame") };
                assert!(of > n && of <= bytes.len());
            }
            let Ok(Front::Frame(whole)) = front(&bytes, seal().as_mut(), 100) else {
                panic!("not understood")
            };
            assert_eq!((&bytes[whole.body], &bytes[whole.payload]), (&b"a body"[..], &b"a payload"[..]));
            assert_eq!(whole.len, bytes.len());
        }
    }

    /// Goal: no flipped bit passes, with or without MAC.
    #[test]
    fn bit_flips_are_noticed() {
        for sealed in [false, true] {
            let seal = || sealed.then(|| Seal::new(&[3; 32]));
            let bytes = frame(seal());
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    !matches!(front(&bad, seal().as_mut(), 100), Ok(Front::Frame(_))),
                    "bit {bit} passed"
                );
            }
        }
    }

    /// Goal: a slot that is not shared, or more bytes than one has, is refused from the header alone; with one no byte of a
    /// payload follows.
    #[test]
    fn slots_of_shared_memory() {
        let header = |slot, payload_len| {
            let mut out = Outbound::new(None);
            out.queue(&Header { slot, payload_len, ..Header::request(0x301, 7) }, b"a body", &[]).unwrap();
            out.bytes()[..HEADER_LEN].to_vec()
        };
        let longest = SLOT_LEN as u32;
        let refused = |bytes: &[u8], slots| Announced::read(bytes, slots).err();
        assert!(matches!(front(&header(1, 9), None, 100), Err(Cause::Header(HeaderError::Slot(1)))));
        assert!(matches!(refused(&header(3, 9), 2), Some(Cause::Header(HeaderError::Slot(3)))));
        let long = refused(&header(2, longest + 1), 2);
        assert!(matches!(long, Some(Cause::Header(HeaderError::Oversize { .. }))));
        assert_eq!(Announced::read(&header(2, longest), 2).unwrap().payload_len(), 0);
    }

    /// Goal: a payload above the service's own limit is refused from the header alone.
    #[test]
    fn payload_limit_of_the_service() {
        let bytes = frame(None);
        let result = front(&bytes[..HEADER_LEN], None, 8);
        assert!(matches!(result, Err(Cause::PayloadTooLong { got: 9, room: 8 })));
    }

    /// Goal: 200,000 mutated and random frames never panic and never give a range outside the input.
    #[test]
    fn fuzz_smoke() {
        let mut dice = Dice(0x5eed_5eed);
        let good = frame(None);
        for _ in 0..200_000 {
            let mut bytes = if dice.next().is_multiple_of(4) { Vec::new() } else { good.clone() };
            for _ in 0..dice.next() % 6 {
                let value = dice.next();
                match value % 3 {
                    0 => bytes.truncate(value as usize / 3 % (bytes.len() + 1)),
                    1 => bytes.push((value >> 8) as u8),
                    _ if !bytes.is_empty() => {
                        let at = (value >> 16) as usize % bytes.len();
                        bytes[at] = (value >> 8) as u8;
                    }
                    _ => {}
                }
            }
            match front(&bytes, None, 1 << 20) {
                Ok(Front::Frame(whole)) => {
                    assert!(whole.payload.end <= bytes.len() && whole.body.end <= whole.payload.start)
                }
                Ok(Front::Part { of }) => assert!(of > bytes.len()),
                Err(_) => {}
            }
        }
    }
}
