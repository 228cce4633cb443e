//! The beginning of a connection: what a service reads before it knows who speaks.

use skep_net::{HANDSHAKE_MESSAGE_MAX, Keyring, PREAMBLE_LEN, meet_stranger};

use super::Target;

/// The length that stands before a message.
const LENGTH: usize = 2;

pub fn target() -> Target {
    let preamble = |kind: u8, key: u64| {
        let mut bytes = b"SKEPHELO".to_vec();
        bytes.extend([1, 1, 2, kind]);
        bytes.extend(key.to_le_bytes());
        bytes
    };
    let with_message = |len: u16| {
        let mut bytes = preamble(0, 0);
        bytes.extend(len.to_le_bytes());
        bytes.extend(vec![7; usize::from(len)]);
        bytes
    };
    let seeds = vec![preamble(0, 0), preamble(0, 9), preamble(1, 9), with_message(0), with_message(96)];
    let keyring = Keyring::insecure();
    let read = move |input: &[u8]| match meet_stranger(input, &keyring) {
        Ok(used) if used > input.len().min(PREAMBLE_LEN + LENGTH + HANDSHAKE_MESSAGE_MAX) => {
            Err(format!("{used} bytes of {} were used", input.len()))
        }
        // Nobody is let in by chance: the key of the role, even the open one, must have made the message.
        Ok(used) if used > 0 => Err(format!("{used} bytes that nobody sealed were believed")),
        Ok(_) => Ok(()),
        Err(text) if text.is_empty() => Err("a connection was closed without a reason".to_owned()),
        Err(_) => Ok(()),
    };
    Target { name: "stranger", seeds, fixed: 0, one_in: 1, read: Box::new(read) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: kinds of keys that `docs/design/wire.md` keeps for later are refused as such, not taken for the one there is.
    #[test]
    fn other_kinds_of_keys_are_refused() {
        let keyring = Keyring::insecure();
        for kind in 0..=u8::MAX {
            let bytes = [&b"SKEPHELO\x01\x01\x02"[..], &[kind], &[0; 10]].concat();
            let met = meet_stranger(&bytes, &keyring);
            let is_refused = met.is_err_and(|text| text.contains(&format!("a key of kind {kind};")));
            assert_eq!(is_refused, kind != 0, "{kind}");
        }
    }
}
