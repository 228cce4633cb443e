//! Headers of frames. Their checksum is always right: it guards against damage, not against whoever makes frames.

use skep_types::limits::{BODY_MAX, PAYLOAD_MAX};
use skep_wire::{HEADER_LEN, Header};

use super::Target;

/// In place of CRC32C.
fn no_checksum(_bytes: &[u8]) -> u32 {
    0
}

pub fn target() -> Target {
    let seed = |header: Header| {
        let mut bytes = Vec::new();
        header.encode_with(b"", no_checksum, &mut bytes);
        bytes
    };
    let named = Header { slot: 2, payload_len: 1 << 20, ..Header::request(0x302, 9) };
    let seeds = vec![seed(Header::request(0x201, 7)), seed(Header::request(0x301, 8).reply()), seed(named)];
    Target { name: "header", seeds, fixed: 0, one_in: 1, read: Box::new(read) }
}

fn read(input: &[u8]) -> Result<(), String> {
    let mut input = input.to_vec();
    if let Some(checksum) = input.get_mut(HEADER_LEN - 4..HEADER_LEN) {
        checksum.fill(0);
    }
    let Ok((header, _)) = Header::decode(&input, no_checksum) else { return Ok(()) };
    let (body, payload) = (header.body_len as usize, header.payload_len as usize);
    if body > BODY_MAX || payload > PAYLOAD_MAX {
        return Err(format!("{body} + {payload} bytes were believed"));
    }
    let mut written = Vec::new();
    header.encode_with(&vec![0; body.min(1 << 10)], no_checksum, &mut written);
    let Ok((again, _)) = Header::decode(&written, no_checksum) else {
        return Err("what was written cannot be read".to_owned());
    };
    let expected = Header { body_len: body.min(1 << 10) as u32, ..header };
    if again == expected { Ok(()) } else { Err(format!("{again:?} instead of {expected:?}")) }
}
