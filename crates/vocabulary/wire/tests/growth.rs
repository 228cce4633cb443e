//! What holds of every request and every reply: it can grow, and no bytes make its reader panic.

use skep_types::codec::{Draw, Growing, Record, encode_record, encode_tag};
use skep_types::{Decode, DecodeError, Encode, Term};
use skep_wire::instrument::InstrumentRequest;
use skep_wire::meta::{Event, EventsReply, LockOutcome, MetaRequest, ShardCall, ShardStamp};
use skep_wire::mgmt::MgmtRequest;
use skep_wire::storage::StorageRequest;
use skep_wire::{Empty, Hello, Message, Refusal, Visitor, Welcome};

/// Highest number of a tagged field: one that no release uses.
const UNKNOWN: u16 = u16::MAX;
/// Damaged inputs of the fuzz smoke for each record.
const CASES: u64 = 2_000;

/// Does something with every record that goes over a connection.
trait Each {
    fn record<R: Record>(&mut self, name: &str);
}

struct Both<'a, E>(&'a mut E);

impl<E: Each> Visitor for Both<'_, E> {
    fn message<M: Message>(&mut self, name: &'static str) {
        self.0.record::<M>(name);
        self.0.record::<M::Reply>(&format!("reply to {name}"));
    }
}

fn all(each: &mut impl Each) {
    MetaRequest::visit(&mut Both(each));
    MgmtRequest::visit(&mut Both(each));
    StorageRequest::visit(&mut Both(each));
    InstrumentRequest::visit(&mut Both(each));
    each.record::<ShardCall>("ShardCall");
    each.record::<ShardStamp>("ShardStamp");
    each.record::<Refusal>("Refusal");
    each.record::<Hello>("Hello");
    each.record::<Welcome>("Welcome");
}

/// The record with something behind its last field.
fn with(record: &[u8], tail: &[u8]) -> Vec<u8> {
    let len = (record.len() - 4 + tail.len()) as u32;
    [&len.to_le_bytes()[..], &record[4..], tail].concat()
}

/// Reads a record and writes it again.
fn again<R: Record>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    R::from_bytes(bytes).map(|record| record.to_bytes())
}

struct Grows(usize);

impl Each for Grows {
    fn record<R: Record>(&mut self, name: &str) {
        self.0 += 1;
        for draw in [Draw::FULL, Draw::BARE, Draw::mixed(1), Draw::mixed(2)] {
            let bytes = R::example(draw).to_bytes();
            assert_eq!(again::<R>(&bytes).as_ref(), Ok(&bytes), "{name}");
            let mut field = Vec::new();
            encode_tag(&mut field, UNKNOWN, &0x5e_u64);
            assert_eq!(again::<R>(&with(&bytes, &field)).as_ref(), Ok(&bytes), "{name}: not skipped");
            let twice = [&field[..], &field].concat();
            for bad in [&field[..field.len() - 1], &field[..5], &field[..1], &[0; 6], &twice] {
                assert!(again::<R>(&with(&bytes, bad)).is_err(), "{name}: {bad:?} was accepted");
            }
        }
    }
}

/// Goal: every request and every reply can get fields that an older reader does not know; what stands there and is no
/// field is refused.
#[test]
fn every_message_can_grow() {
    let mut grows = Grows(0);
    all(&mut grows);
    let families = [MetaRequest::KINDS, MgmtRequest::KINDS, StorageRequest::KINDS, InstrumentRequest::KINDS];
    assert_eq!(grows.0, 2 * families.iter().map(|kinds| kinds.len()).sum::<usize>() + 5);
}

skep_wire::message! {
    /// As version 1 has it.
    Older = 0x7f01 -> Empty {
        /// A field.
        pub a: u32,
    }
}

skep_wire::message! {
    /// As version 2 has it.
    Newer = 0x7f01 -> Empty {
        /// A field.
        pub a: u32,
    } tags {
        /// A later one.
        1 => pub b: Option<u64>,
        /// And another.
        2 => pub c: Option<bool>,
    }
}

/// Goal: requests of two versions are read by each other; a message without tagged fields has not one byte more for
/// being able to have them, one with them has 6 for each beside its value.
#[test]
fn requests_of_two_versions() {
    let old = Older { a: 7 };
    let bare = Newer { a: 7, b: None, c: None };
    assert_eq!(old.to_bytes(), bare.to_bytes());
    assert_eq!(old.to_bytes().len(), 4 + 4);
    assert_eq!(Newer::from_bytes(&old.to_bytes()), Ok(bare.clone()));
    let full = Newer { b: Some(9), c: Some(true), ..bare };
    assert_eq!(full.to_bytes().len(), 4 + 4 + (6 + 8) + (6 + 1));
    assert_eq!(Older::from_bytes(&full.to_bytes()), Ok(old));
    assert_eq!(Newer::from_bytes(&full.to_bytes()), Ok(full));
}

/// Goal: a mount that does not know an event reads those beside it and the number to confirm, so that it hears of what
/// comes after.
#[test]
fn events_of_a_later_release() {
    let lock = |ticket| Event::from(LockOutcome { ticket, errno: 0, term: Term(3) });
    let known = EventsReply { events: Growing(vec![lock(1), lock(2)]), number: 9 };
    let mut list = 3u32.to_bytes();
    for member in [lock(1).to_bytes(), b"\xfea recall".to_vec(), lock(2).to_bytes()] {
        encode_record(&mut list, |out| out.extend_from_slice(&member));
    }
    let mut bytes = Vec::new();
    encode_record(&mut bytes, |out| {
        out.extend_from_slice(&list);
        known.number.encode(out);
    });
    assert_eq!(EventsReply::from_bytes(&bytes), Ok(known.clone()));
    assert_eq!(EventsReply::from_bytes(&known.to_bytes()), Ok(known));
}

/// xorshift64*: the same cases in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

struct Damage {
    dice: Dice,
    read: u64,
    refused: u64,
}

impl Damage {
    fn damaged(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.dice.below(4) {
            let at = self.dice.below(bytes.len());
            match self.dice.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.dice.below(256) as u8),
                2 => bytes.extend((0..self.dice.below(16)).map(|n| n as u8)),
                3 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
                _ if bytes.is_empty() => {}
                _ => bytes[at] = self.dice.below(256) as u8,
            }
        }
        // Mostly with the length right, or little would get past it.
        if bytes.len() >= 4 && self.dice.below(4) > 0 {
            let len = (bytes.len() - 4) as u32;
            bytes[..4].copy_from_slice(&len.to_le_bytes());
        }
        bytes
    }
}

impl Each for Damage {
    fn record<R: Record>(&mut self, name: &str) {
        for case in 0..CASES {
            let bytes = self.damaged(R::example(Draw::mixed(case)).to_bytes());
            match again::<R>(&bytes) {
                Ok(read) => {
                    self.read += 1;
                    assert!(read.len() <= bytes.len(), "{name}: {bytes:?} became longer");
                    assert_eq!(again::<R>(&read).as_ref(), Ok(&read), "{name}: {bytes:?}");
                }
                Err(_) => self.refused += 1,
            }
        }
    }
}

/// Goal: damaged bodies of every message never panic their reader, and what it accepts is what it would write (fuzz
/// smoke).
#[test]
fn damaged_bodies() {
    let mut damage = Damage { dice: Dice(0x5eed_0001), read: 0, refused: 0 };
    all(&mut damage);
    assert!(damage.read > 10_000 && damage.refused > 10_000, "{} {}", damage.read, damage.refused);
}
