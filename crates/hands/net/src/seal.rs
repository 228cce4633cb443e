//! The keyed MAC of frames on TCP: keys per direction from the handshake, a sequence number that
//! is never sent, so that a frame can neither be changed, repeated, reordered nor left out.

//!
//! AES-256-GMAC: a key serves one direction of one connection and a nonce is used once, as it must
//! be. Head and payload lie apart in memory and the one-shot call takes one slice, so the payload
//! has a tag of its own, which the tag of the head covers (encrypted on the way, which does no harm).

use crate::error::Cause;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Bytes of a frame's MAC.
pub(crate) const MAC_LEN: usize = 16;

/// What a nonce is for: it is `u32 part | u64 sequence number`.
#[derive(Clone, Copy)]
enum Part {
    Frame = 0,
    Payload = 1,
}

/// One direction of one connection.
pub(crate) struct Seal {
    /// Always there: any 32 bytes are a key.
    key: Option<LessSafeKey>,
    sequence: u64,
}

impl Seal {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self { key: UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new), sequence: 0 }
    }

    fn tag(&self, part: Part, bytes: &[u8], inner: &mut [u8]) -> Result<[u8; MAC_LEN], Cause> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&(part as u32).to_le_bytes());
        nonce[4..].copy_from_slice(&self.sequence.to_le_bytes());
        let (key, nonce) = (self.key.as_ref().ok_or(Cause::Mac)?, Nonce::assume_unique_for_key(nonce));
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(bytes), inner).map_err(|_| Cause::Mac)?;
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(tag.as_ref());
        Ok(mac)
    }

    /// The MAC of the next frame.
    pub(crate) fn next(&mut self, head: &[u8], payload: &[u8]) -> Result<[u8; MAC_LEN], Cause> {
        let mac = if payload.is_empty() {
            self.tag(Part::Frame, head, &mut [])?
        } else {
            let mut inner = self.tag(Part::Payload, payload, &mut [])?;
            self.tag(Part::Frame, head, &mut inner)?
        };
        self.sequence += 1;
        Ok(mac)
    }

    /// Is this the MAC of the next frame? Compared in constant time.
    pub(crate) fn check(&mut self, head: &[u8], payload: &[u8], mac: &[u8]) -> bool {
        let Ok(expected) = self.next(head, payload) else { return false };
        mac.len() == MAC_LEN && expected.iter().zip(mac).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
    }
}

/// Both directions of one connection; `None` on a Unix socket.
pub(crate) struct Seals {
    pub(crate) send: Option<Seal>,
    pub(crate) receive: Option<Seal>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a changed, repeated or skipped frame does not pass.
    #[test]
    fn order_and_content_are_protected() {
        let (mut sender, mut receiver) = (Seal::new(&[7; 32]), Seal::new(&[7; 32]));
        let first = sender.next(b"head", b"payload").unwrap();
        let second = sender.next(b"head", b"payload").unwrap();
        assert_ne!(first, second);
        assert!(receiver.check(b"head", b"payload", &first));
        assert!(!receiver.check(b"head", b"payload", &first), "a repeated frame passed");
        let mut receiver = Seal::new(&[7; 32]);
        assert!(!receiver.check(b"head", b"payload", &second), "a frame was left out unnoticed");
        let mut receiver = Seal::new(&[7; 32]);
        assert!(!receiver.check(b"head", b"pAyload", &first));
        assert!(!Seal::new(&[8; 32]).check(b"head", b"payload", &first), "another key passed");
        assert!(!Seal::new(&[7; 32]).check(b"head", b"payload", &first[..15]));
    }
}
