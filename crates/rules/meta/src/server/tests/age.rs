//! Shards that are new, that lost their rows, that are an older copy.

use super::*;
use crate::store::{MemoryStore, StoreError};
use skep_wire::mgmt::{FencesReply, ShardState};

fn started(out: &mut Output) -> Server<MemoryStore> {
    let mut server = Server::new(Config::default(), MemoryStore::default()).unwrap();
    server.start(Timestamp::default(), out).unwrap();
    server
}

fn step(server: &mut Server<MemoryStore>, input: Input, out: &mut Output) -> Result<(), StoreError> {
    server.step(Millis(1), Timestamp::default(), input, out)
}

/// Goal: a shard is formatted at mgmtd's word only, mgmtd hears of it once that is on stable storage, and nothing is
/// served before mgmtd knows: a second format could otherwise follow the first use.
#[test]
fn a_new_shard_is_formatted_and_waits() {
    let mut out = Output::default();
    let mut server = started(&mut out);
    let mut fresh = map(2, 5);
    fresh.shards.iter_mut().for_each(|entry| entry.state = ShardState::New);
    step(&mut server, Input::Map { own: OWN, map: fresh.clone() }, &mut out).unwrap();
    let fences = FencesReply { epoch: FenceEpoch(0), fences: vec![], sessions: vec![], closed: vec![] };
    step(&mut server, Input::Fences(fences), &mut out).unwrap();
    assert!(server.formatted().is_empty() && out.sync_now);
    let last = server.last_index();
    step(&mut server, Input::Durable(LogIndex(last.0 - 1)), &mut out).unwrap();
    assert_eq!(server.formatted(), [ShardId(0)], "the other one's record is not durable");
    step(&mut server, Input::Durable(last), &mut out).unwrap();
    assert_eq!(server.formatted(), [ShardId(0), ShardId(1)]);
    assert!(!server.is_ready());
    fresh.shards[0].state = ShardState::Active;
    step(&mut server, Input::Map { own: OWN, map: fresh.clone() }, &mut out).unwrap();
    assert!(!server.is_ready() && server.formatted() == [ShardId(1)]);
    fresh.shards[1].state = ShardState::Active;
    step(&mut server, Input::Map { own: OWN, map: fresh }, &mut out).unwrap();
    assert!(server.is_ready() && server.formatted().is_empty());
}

/// Goal: a server without the rows of a shard that was used says so and ends; it makes no empty one.
#[test]
fn lost_rows_are_not_made_anew() {
    let mut out = Output::default();
    let mut server = started(&mut out);
    let records = out.records.len();
    let Err(e) = step(&mut server, Input::Map { own: OWN, map: map(2, 5) }, &mut out) else {
        panic!("it goes on with empty shards")
    };
    let text = alloc::string::ToString::to_string(&e);
    assert!(text.contains("2 shards") && text.contains("not mounted"), "{text}");
    assert_eq!(out.records.len(), records, "nothing was formatted");
}

/// Goal: an older copy that is put back on purpose gives no inode number, no layout generation and no term a second
/// time, however often the same copy is put back; a mere restart leaves nothing out.
#[test]
fn an_older_copy_goes_on_behind_all_that_was_given() {
    let mut bed = Bed::new();
    // Inline in the copy; each time it grows out of the metadata anew.
    let kept = bed.create(ME, Ino::ROOT, "kept");
    let copy = bed.log.len() as u64;
    let mut given = vec![];
    let mut terms = vec![bed.server.term()];
    for era in 1..=3u16 {
        given.push(bed.create(ME, Ino::ROOT, "later"));
        let layout = bed.call(ME, Grow { like: None, ino: kept, end: 1 }).unwrap().layout;
        assert!(layout.generation.0 >> 24 == u32::from(era) - 1 && layout.generation.0 & 0xff_ffff < 9);
        bed.config.era = era;
        bed.crash(0, copy, &[]);
        assert!(bed.server.term() > *terms.last().unwrap());
        terms.push(bed.server.term());
        let mut restored = map(1, 5);
        (restored.shards[0].era, restored.version) = (era, MapVersion(2));
        bed.step(Input::Map { own: OWN, map: restored.clone() });
        let new = bed.create(ME, Ino::ROOT, "new");
        assert!(given.iter().all(|ino| new.serial() > ino.serial() + (1 << 31)), "{new} {given:?}");
        bed.unlink(ME, Ino::ROOT, "new").unwrap();
        given.push(new);
        let before = bed.log.len();
        bed.step(Input::Map { own: OWN, map: restored });
        assert_eq!(bed.log.len(), before, "the same map once more");
    }
    bed.check();
}
