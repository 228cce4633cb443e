//! Seeded fuzz smoke: damaged and random requests against the empty file system.

use zerocopy::FromBytes;

use super::Answer;
use super::tests::{request, run};
use crate::abi::header::{InHeader, OUT_HEADER, OutHeader};
use crate::abi::opcode;
use crate::empty::{EmptyConfig, EmptyMount};
use crate::{Mount, ReplyBuffer};

const CASES: u64 = 250_000;
/// Forget the file system from time to time, or it grows with the cases.
const CASES_PER_MOUNT: u64 = 20_000;
const LARGEST_OPCODE: u64 = 56;

/// xorshift64*: the same cases in every run.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 33) % limit.max(1)
    }
}

/// A body that some opcodes accept: small numbers, then names.
fn body(random: &mut Seeded) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(12) {
        let word = match random.below(4) {
            0 => random.next(),
            1 => random.below(0x10_0000),
            _ => random.below(8),
        };
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for _ in 0..random.below(4) {
        let length = if random.below(20) == 0 { random.below(300) } else { random.below(6) };
        bytes.extend((0..length).map(|_| b'a' + random.below(4) as u8).chain([0]));
    }
    bytes
}

fn case(random: &mut Seeded) -> Vec<u8> {
    let opcode = random.below(LARGEST_OPCODE) as u32;
    let mut bytes = request(opcode, &[&body(random)]);
    bytes[16..24].copy_from_slice(&random.below(12).to_ne_bytes());
    match random.below(4) {
        0 => {
            for _ in 0..=random.below(6) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
        }
        1 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        2 if random.below(4) == 0 => bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
        _ => {}
    }
    // Often with the length right, or little would get past it.
    if bytes.len() >= 4 && random.below(3) > 0 {
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
    }
    bytes
}

/// Goal: whatever the bytes, dispatch does not panic; a request that the kernel waits for gets one well-formed
/// reply with its number, a one-way request none.
#[test]
fn damaged_requests() {
    let mut random = Seeded(0x5ce9_0001);
    let mut reply = ReplyBuffer::new(1 << 16).unwrap();
    let (mut good, mut refused, mut silent) = (0u64, 0u64, 0u64);
    for _ in 0..CASES / CASES_PER_MOUNT {
        let fs = EmptyMount::new(EmptyConfig::default()).worker(0);
        for _ in 0..CASES_PER_MOUNT {
            let bytes = case(&mut random);
            let answer = run(&fs, &bytes, &mut reply);
            let Ok((header, _)) = InHeader::read_from_prefix(&bytes) else {
                assert_eq!(answer, Answer::NoReply);
                continue;
            };
            if opcode::is_one_way(header.opcode) {
                assert!(!matches!(answer, Answer::Reply(_)), "{header:?}");
                silent += 1;
                continue;
            }
            let Answer::Reply(length) = answer else { panic!("no reply to {header:?}") };
            let bytes = reply.reply(length);
            let (out, _) = OutHeader::read_from_prefix(bytes).unwrap();
            assert_eq!((out.len as usize, bytes.len(), out.unique), (length, length, header.unique));
            assert!((-511..=0).contains(&out.error), "{header:?}: {out:?}");
            assert!(out.error == 0 || length == OUT_HEADER, "{header:?}: {out:?}");
            if out.error == 0 { good += 1 } else { refused += 1 }
        }
    }
    // The cases are no smoke if all of them go one way.
    assert!(good > CASES / 50 && refused > CASES / 50 && silent > CASES / 200, "{good} {refused} {silent}");
    println!("{good} answered, {refused} refused, {silent} one-way");
}
