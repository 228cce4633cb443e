//! Several shards in one log.

use super::*;
use crate::disk::OpenMode;
use crate::log::record::{Kind, View};
use skep_types::{Decode, Encode};
use std::collections::BTreeMap;

type Heads = BTreeMap<ShardId, Head>;

fn follow(heads: &mut Heads, record: &Record) {
    heads.extend(record.heads().unwrap().into_iter().map(|head| (head.shard, head)));
    if record.kind == EntryKind::Moves {
        let gone = Moves::from_bytes(&record.bytes).unwrap().gone;
        heads.retain(|shard, _| !gone.contains(shard));
    }
}

/// The heads after these records, counted without the log.
fn heads_after(records: &[Record]) -> Vec<Head> {
    let mut heads = Heads::new();
    records.iter().for_each(|record| follow(&mut heads, record));
    heads.into_values().collect()
}

/// Commands of 8 shards in no order. Now and then new terms of some of them begin, records take the place of others, and
/// shards come and go.
fn mixed(count: u64) -> Vec<Record> {
    let mut heads = Heads::new();
    let mut records = Vec::new();
    for seq in 1..=count {
        let next = |heads: &Heads, shard: u64, rise: u64| {
            let shard = ShardId(shard as u16);
            let before = heads.get(&shard).copied().unwrap_or(Head { shard, ..head(0, 1, 0) });
            head(shard.0, before.term.0 + rise, before.index.0 + 1)
        };
        let older = |heads: &Heads, shard: u16| {
            let before = heads.get(&ShardId(shard)).copied()?;
            Some(head(shard, before.term.0 + 1, (before.index.0 / 2).max(1)))
        };
        let record = if seq % 13 == 7 {
            let gone: Vec<_> =
                heads.keys().copied().filter(|shard| u64::from(shard.0) == 4 + seq % 4).collect();
            let came = vec![head(20 + seq as u16 % 3, seq, 100 + seq)];
            Record::moves(LogSeq(seq), &Moves { came, gone })
        } else if let (9, Some(older)) = (seq % 12, older(&heads, seq as u16 % 8)) {
            command(seq, older)
        } else if let (3, Some(first), Some(second)) = (seq % 17, older(&heads, 1), older(&heads, 20)) {
            Record::terms(LogSeq(seq), &[first, second])
        } else if seq % 11 == 5 {
            let list: Vec<_> =
                (seq % 3..8).step_by(3).map(|shard| next(&heads, shard, 1 + seq % 4)).collect();
            Record::terms(LogSeq(seq), &list)
        } else {
            command(seq, next(&heads, seq * seq % 8 + seq % 2, 0))
        };
        follow(&mut heads, &record);
        records.push(record);
    }
    records
}

fn append_all(log: &mut CommandLog, records: &[Record]) {
    records.chunks(3).for_each(|group| log.append(group).unwrap());
}

fn reopen(disk: FaultDisk) -> Result<(CommandLog, Recovered), LogError> {
    CommandLog::open(Arc::new(disk), &dir(), options(SEGMENT_MIN))
}

/// The disk with a forged record at this place of a segment.
fn forge(disk: &FaultDisk, first: LogSeq, at: u64, encode: impl FnOnce(&mut Vec<u8>, u32)) -> FaultDisk {
    // So that nothing is on its way to the device any more, which would come over it.
    let disk = disk.crash(CrashMode::KeepAll, 0);
    disk.damage(&dir().join(segment::name(first)), |bytes| {
        let mut record = Vec::new();
        encode(&mut record, segment::salt(CLUSTER, first));
        bytes[at as usize..at as usize + record.len()].copy_from_slice(&record);
    });
    disk
}

/// Goal: wherever unsynced records of 8 shards are cut off, a prefix of their common order is left, so each shard
/// loses a suffix of its own; the heads say so, and each shard goes on behind its own.
#[test]
fn cut_at_every_byte() {
    let records = mixed(64);
    let options = LogOptions { preallocate: false, ..options(SEGMENT_MIN) };
    let disk = FaultDisk::new();
    let (mut log, _) = CommandLog::open(Arc::new(disk.clone()), &dir(), options.clone()).unwrap();
    append_all(&mut log, &records);
    let firsts = log.segments_for_tests();
    assert!(firsts.len() >= 3);
    for (at, first) in firsts.iter().enumerate() {
        let ends = log.offsets_for_tests(at);
        let bytes = disk.bytes(&dir().join(segment::name(*first))).unwrap();
        // Entries that are whole in the first `cut` bytes; where one begins, the one before has ended. Its zeros up
        // to there may be missing.
        let whole_in = |cut: usize| {
            let end = |n: usize| {
                ends[n] as usize - records[first.0 as usize + n - 2].bytes.len().wrapping_neg() % 8
            };
            (1..ends.len()).filter(|n| end(*n) <= cut).count() as u64
        };
        for cut in 0..bytes.len() {
            let copy = FaultDisk::new();
            for kept in &firsts[..=at] {
                let path = dir().join(segment::name(*kept));
                let bytes = disk.bytes(&path).unwrap();
                let end = if kept == first { cut } else { bytes.len() };
                copy.open(&path, OpenMode::Fresh).unwrap().write_at(&bytes[..end], 0).unwrap();
            }
            let (mut log, found) = CommandLog::open(Arc::new(copy), &dir(), options.clone()).unwrap();
            let left = (first.0 - 1 + whole_in(cut)) as usize;
            assert_eq!(found.last.0 as usize, left, "segment {first} cut at {cut}");
            assert_eq!(log.heads(), heads_after(&records[..left]), "segment {first} cut at {cut}");
            if cut % 16 == 0 {
                append_all(&mut log, &records[left..]);
                assert_eq!(log.read(LogSeq(1), usize::MAX).unwrap(), records);
                assert_eq!(log.heads(), heads_after(&records));
            }
        }
    }
}

/// Goal: new terms of 64 shards are one record, and the heads come back from it, from commands behind it and from
/// every segment's state.
#[test]
fn heads_come_back() {
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    let begin: Vec<_> = (0..64).map(|shard| head(shard, 7, 1)).collect();
    let mut records = vec![Record::terms(LogSeq(1), &begin)];
    for seq in 2..150 {
        records.push(command(seq, head(seq as u16 % 5, 7 + seq / 50, 2 + (seq - 2 - (seq - 2) % 5) / 5)));
    }
    let later: Vec<_> = log.heads().into_iter().chain(begin).collect();
    assert_eq!(later.len(), 64, "nothing was there before");
    append_all(&mut log, &records);
    let heads = heads_after(&records);
    assert_eq!((log.heads(), heads.len()), (heads.clone(), 64));
    log.syncer().sync().unwrap();
    for first in log.segments_for_tests() {
        let bytes = disk.bytes(&dir().join(segment::name(first))).unwrap();
        let salt = segment::salt(CLUSTER, first);
        let state: View<'_> = record::decode(&bytes[segment::HEADER..], salt, first).unwrap();
        assert_eq!(state.kind, Kind::State);
        let before = heads_after(&records[..first.0 as usize - 1]);
        assert_eq!(Vec::from_bytes(state.bytes), Ok(before), "segment {first}");
    }
    drop(log);
    let (log, _) = open(&disk.crash(CrashMode::DropAll, 0));
    assert_eq!((log.heads(), log.head(ShardId(63))), (heads, Some(head(63, 7, 1))));
    assert_eq!(log.read(LogSeq(1), usize::MAX).unwrap(), records);
}

/// Goal: a record whose shard is elsewhere is refused and changes nothing, neither log nor heads.
#[test]
fn what_does_not_follow_its_shard_is_refused() {
    let (mut log, _) = open(&FaultDisk::new());
    let records = [command(1, head(1, 3, 1)), command(2, head(2, 5, 1)), command(3, head(1, 3, 2))];
    log.append(&records).unwrap();
    let terms = |list: &[Head]| Record::terms(LogSeq(4), list);
    let moves = |came: &[Head], gone: &[u16]| {
        let gone = gone.iter().copied().map(ShardId).collect();
        Record::moves(LogSeq(4), &Moves { came: came.to_vec(), gone })
    };
    let bad = [
        command(4, head(1, 3, 2)),
        command(4, head(1, 3, 4)),
        command(4, head(1, 2, 3)),
        command(4, head(7, 1, 2)),
        command(4, head(7, 1, 0)),
        command(5, head(1, 3, 3)),
        command(3, head(1, 3, 3)),
        command(4, Head { shard: skep_types::log::GROUP, ..head(0, 1, 1) }),
        terms(&[head(1, 3, 3)]),
        terms(&[head(1, 4, 3), head(2, 5, 2)]),
        terms(&[head(1, 4, 4)]),
        terms(&[head(1, 4, 3), head(1, 5, 3)]),
        terms(&[head(7, 1, 2)]),
        command(4, head(1, 4, 0)),
        command(4, head(1, 3, 1)),
        moves(&[head(7, 1, 0)], &[]),
        moves(&[], &[7]),
        moves(&[head(7, 1, 9)], &[7]),
        moves(&[], &[1, 1]),
        moves(&[Head { shard: skep_types::log::GROUP, ..head(0, 1, 1) }], &[]),
        Record { bytes: vec![1, 2, 3], ..moves(&[], &[]) },
        Record { shard: ShardId(1), ..moves(&[], &[]) },
        Record { shard: ShardId(1), ..terms(&[head(1, 4, 3)]) },
        Record { bytes: vec![1, 2, 3], ..terms(&[]) },
    ];
    for bad in bad {
        assert!(matches!(log.append(std::slice::from_ref(&bad)), Err(LogError::Refused(_))), "{bad:?}");
        // Not even the part of a group that would do.
        let good = command(4, head(2, 5, 2));
        let behind = Record { seq: LogSeq(bad.seq.0 + 1), ..bad };
        if !(behind.shard == ShardId(1) && behind.term == Term(3) && behind.index == LogIndex(3)) {
            assert!(log.append(&[good, behind]).is_err());
        }
        assert_eq!((log.last_seq(), log.heads()), (LogSeq(3), vec![head(1, 3, 2), head(2, 5, 1)]));
    }
    log.append(&[terms(&[head(2, 6, 2), head(7, 1, 1), head(1, 9, 3)]), command(5, head(7, 1, 2))]).unwrap();
    assert_eq!(log.heads(), [head(1, 9, 3), head(2, 6, 2), head(7, 1, 2)]);
}

/// Goal: a shard that was imported goes on behind its head, one that was dropped is unknown, in memory, in the states of later
/// segments and after a reopen, whatever is released.
#[test]
fn shards_come_and_go() {
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    log.append(&[command(1, head(1, 3, 1)), command(2, head(2, 5, 1))]).unwrap();
    assert!(log.append(&[command(3, head(9, 7, 101))]).is_err());
    let moves = Moves { came: vec![head(9, 7, 100)], gone: vec![ShardId(2)] };
    log.append(&[Record::moves(LogSeq(3), &moves), command(4, head(9, 7, 101))]).unwrap();
    assert_eq!((log.head(ShardId(2)), log.head(ShardId(9))), (None, Some(head(9, 7, 101))));
    assert!(log.append(&[command(5, head(2, 5, 2))]).is_err());
    for seq in 5..=200 {
        log.append(&[command(seq, head(9, 7, 97 + seq))]).unwrap();
    }
    log.syncer().sync().unwrap();
    let heads = [head(1, 3, 1), head(9, 7, 297)];
    let disk = disk.crash(CrashMode::DropAll, 0);
    let (mut log, _) = open(&disk);
    assert_eq!(log.heads(), heads);
    assert!(log.release_before(LogSeq(150)).unwrap() > 2);
    log.syncer().sync().unwrap();
    let (mut log, _) = open(&disk.crash(CrashMode::DropAll, 0));
    assert_eq!(log.heads(), heads);
    let back = Moves { came: vec![head(2, 8, 40), head(9, 7, 500)], gone: vec![ShardId(1)] };
    log.append(&[Record::moves(LogSeq(201), &back)]).unwrap();
    assert_eq!(
        log.heads(),
        [head(2, 8, 40), head(9, 7, 500)],
        "an import that is done again replaces the first"
    );
}

/// Goal: a journey that was cut off behind the record that names its head is begun again with an older copy: the log goes on
/// behind that one, now and after a reopen.
#[test]
fn an_older_copy_comes_after_a_journey_that_was_cut_off() {
    let came = |seq, head| Record::moves(LogSeq(seq), &Moves { came: vec![head], gone: vec![] });
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    log.append(&[command(1, head(1, 3, 1)), came(2, head(9, 7, 100))]).unwrap();
    log.syncer().sync().unwrap();
    let disk = disk.crash(CrashMode::DropAll, 0);
    let (mut log, _) = open(&disk);
    log.append(&[came(3, head(9, 6, 80)), command(4, head(9, 6, 81))]).unwrap();
    assert!(log.append(&[command(5, head(9, 7, 101))]).is_err());
    log.syncer().sync().unwrap();
    let (log, _) = open(&disk.crash(CrashMode::DropAll, 0));
    assert_eq!(log.heads(), [head(1, 3, 1), head(9, 6, 81)]);
}

/// Goal: a record of a higher term takes the place of one with its index and of all behind it in its shard, in the memory of
/// the log that took it and of one that reads it, also when older segments are gone; whoever replays sees each index once.
#[test]
fn superseded_records_do_not_count() {
    let records = mixed(400);
    // What stands of each shard, by its indexes, counted without the log.
    let mut standing: BTreeMap<ShardId, Vec<(LogIndex, LogSeq)>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.kind != EntryKind::Moves) {
        for head in record.heads().unwrap() {
            let list = standing.entry(head.shard).or_default();
            list.retain(|(index, _)| *index < head.index);
            list.push((head.index, record.seq));
        }
    }
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    append_all(&mut log, &records);
    log.syncer().sync().unwrap();
    let (again, _) = open(&disk.crash(CrashMode::DropAll, 0));
    let in_force = |log: &CommandLog, from: LogSeq| {
        let read = log.read(from, usize::MAX).unwrap().into_iter();
        read.map(|record| log.in_force(record)).collect::<Vec<_>>()
    };
    let all = in_force(&log, LogSeq(1));
    assert_eq!(in_force(&again, LogSeq(1)), all);
    assert!(all.iter().zip(&records).any(|(left, record)| left != record));
    let mut seen: BTreeMap<ShardId, Vec<(LogIndex, LogSeq)>> = BTreeMap::new();
    for record in all.iter().filter(|record| record.kind != EntryKind::Moves) {
        assert_eq!(record.seq.0 as usize, 1 + all.iter().position(|other| other == record).unwrap());
        for head in record.heads().unwrap() {
            seen.entry(head.shard).or_default().push((head.index, record.seq));
        }
    }
    // Of a shard that went and was made anew all stays differ; those that only lived here are compared.
    let went: Vec<ShardId> = records
        .iter()
        .filter(|record| record.kind == EntryKind::Moves)
        .flat_map(|record| Moves::from_bytes(&record.bytes).unwrap().gone)
        .collect();
    standing.retain(|shard, _| shard.0 < 20 && !went.contains(shard));
    seen.retain(|shard, _| standing.contains_key(shard));
    assert!(!standing.is_empty());
    assert_eq!(seen, standing);
    log.release_before(LogSeq(300)).unwrap();
    let first = log.first_seq();
    assert_eq!(in_force(&log, first), all[first.0 as usize - 1..]);
}

/// Goal: a log of format 1 is refused with what, where and what to do, whole or torn, and left as it is.
#[test]
fn format_1_is_refused() {
    for torn in [false, true] {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        fill(&mut log, 1, 3);
        drop(log);
        let path = dir().join(segment::name(LogSeq(1)));
        let disk = disk.crash(CrashMode::KeepAll, 0);
        disk.damage(&path, |bytes| {
            bytes[7] = b'1';
            if torn {
                bytes.truncate(20);
            }
        });
        let before = disk.bytes(&path);
        let Err(LogError::Foreign(text)) = reopen(disk.clone()) else { panic!("it was not refused") };
        for part in
            ["00000000000000000001.log", "format 1", "reads format 2", "start the release that wrote it"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(disk.bytes(&path), before);
    }
}

/// Goal: a list of heads that is rubbish although its checksum holds is corruption, in terms and in a state.
#[test]
fn rubbish_heads_are_corruption() {
    for bad in [
        vec![],
        vec![9],
        vec![1, 0, 0, 0],
        vec![0xff; 26],
        [vec![1, 0, 0, 0, 18, 0, 0, 0], vec![0; 17]].concat(),
    ] {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        fill(&mut log, 1, 20);
        let at = log.offsets_for_tests(0)[10];
        drop(log);
        let terms = Record { bytes: bad.clone(), ..Record::terms(LogSeq(11), &[]) };
        let disk = forge(&disk, LogSeq(1), at, |out, salt| record::encode(out, salt, &terms, LogSeq(0)));
        assert!(matches!(reopen(disk), Err(LogError::Corrupt(text)) if text.contains("list of shards")));
    }
    // Twice the same shard, and none of the right order.
    for list in [[head(3, 1, 1), head(3, 1, 1)], [head(4, 1, 1), head(3, 1, 1)]] {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        fill(&mut log, 1, 100);
        let first = log.segments_for_tests()[1];
        drop(log);
        let disk = forge(&disk, first, segment::HEADER as u64, |out, salt| {
            record::encode_state(out, salt, &list, LogSeq(0));
        });
        assert!(matches!(reopen(disk), Err(LogError::Corrupt(text)) if text.contains("list of shards")));
    }
}

/// Goal: a state that is not what the segments before it lead to ends the log there: a torn end when it was never
/// durable, corruption when it was.
#[test]
fn a_state_that_does_not_fit_ends_the_log() {
    for synced in [false, true] {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        fill(&mut log, 1, 100);
        let first = log.segments_for_tests()[1];
        if synced {
            log.syncer().sync().unwrap();
            fill(&mut log, 1, 101);
        }
        drop(log);
        let strange = [head(3, 1, first.0 - 2)];
        let disk = forge(&disk, first, segment::HEADER as u64, |out, salt| {
            record::encode_state(out, salt, &strange, LogSeq(0));
        });
        match reopen(disk) {
            Ok((log, found)) => {
                assert!(!synced && found.dropped_tail_bytes > 0);
                assert_eq!((found.last.0, log.heads()), (first.0 - 1, vec![head(3, 1, first.0 - 1)]));
            }
            Err(e) => assert!(synced && matches!(e, LogError::Corrupt(_)), "{e}"),
        }
    }
}

/// Goal: a record that is valid by itself but no continuation of its shard refuses the log: no power cut makes one.
#[test]
fn a_record_of_another_place_is_not_cut_off() {
    let disk = FaultDisk::new();
    let (mut log, _) = open(&disk);
    fill(&mut log, 1, 20);
    let at = log.offsets_for_tests(0)[10];
    drop(log);
    let mut bytes = Vec::new();
    vec![head(3, 2, 11), head(4, 1, 7)].encode(&mut bytes);
    let terms = Record { bytes, ..Record::terms(LogSeq(11), &[]) };
    let disk = forge(&disk, LogSeq(1), at, |out, salt| record::encode(out, salt, &terms, LogSeq(0)));
    let error = reopen(disk).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("does not follow") && error.contains("restore"), "{error}");
}

/// Goal: what a later release wrote at the end of the log, durable or not, is not taken for a torn end: the log is
/// refused, and the bytes stay. So an older release that is started by mistake loses nothing.
#[test]
fn a_record_of_a_later_release_refuses_the_log() {
    for kind in [(4, 0), (7, 0), (255, 0), (1, 1)] {
        let disk = FaultDisk::new();
        let (mut log, _) = open(&disk);
        fill(&mut log, 1, 20);
        let at = log.offsets_for_tests(0)[10];
        drop(log);
        let command = Record::command(LogSeq(11), head(3, 1, 11), vec![7; 40]);
        let forged = forge(&disk, LogSeq(1), at, |out, salt| record::encode_as(out, salt, &command, kind));
        let disk: Arc<dyn Disk> = Arc::new(forged);
        for _ in 0..2 {
            let opened = CommandLog::open(disk.clone(), &dir(), options(SEGMENT_MIN));
            let error = opened.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("later release"), "{kind:?}: {error}");
        }
    }
}
