//! The keyed MAC of frames on TCP: keys per direction from the handshake, a sequence number that
//! is never sent, so that a frame can neither be changed, repeated, reordered nor left out.

/// Bytes of a frame's MAC.
pub(crate) const MAC_LEN: usize = 16;

/// One direction of one connection.
pub(crate) struct Seal {
    /// Keyed once; cloned per frame, which saves the key set-up.
    keyed: blake3::Hasher,
    sequence: u64,
}

impl Seal {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self { keyed: blake3::Hasher::new_keyed(key), sequence: 0 }
    }

    /// The MAC of the next frame.
    pub(crate) fn next(&mut self, head: &[u8], payload: &[u8]) -> [u8; MAC_LEN] {
        let mut hasher = self.keyed.clone();
        hasher.update(&self.sequence.to_le_bytes()).update(head);
        if !payload.is_empty() {
            hasher.update(payload);
        }
        self.sequence += 1;
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&hasher.finalize().as_bytes()[..MAC_LEN]);
        mac
    }

    /// Is this the MAC of the next frame? Compared in constant time.
    pub(crate) fn check(&mut self, head: &[u8], payload: &[u8], mac: &[u8]) -> bool {
        let expected = self.next(head, payload);
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
        let first = sender.next(b"head", b"payload");
        let second = sender.next(b"head", b"payload");
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
