use super::*;
use crate::Seek;
use crate::testing::{Fault, READ, block_on, create, lane_beside, mount, mounted, read, step, write};
use alloc::boxed::Box;
use alloc::format;
use skep_types::SetAttr;
use skep_wire::meta::ReadInline;

const WRITE: u16 = skep_wire::storage::WriteChunk::KIND;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

/// Goal: what is left of a part, after a daemon copied it to the middle and then refused, is neither lost nor
/// copied from its beginning.
#[test]
fn a_part_is_cut_to_what_is_left() {
    let chunk = ChunkId { ino: Ino(1), generation: skep_types::Generation(1), extent: 0, stripe: 0 };
    let part = Segment {
        from: (Stripe::on(TargetId(1)), chunk),
        from_offset: 100,
        to: (Stripe::on(TargetId(2)), chunk),
        to_offset: 1_000,
        len: 50,
        file_offset: 7,
        floors: (0, 0),
    };
    let left = part.within(120, 150).unwrap();
    assert_eq!((left.from_offset, left.to_offset, left.file_offset, left.len), (120, 1_020, 27, 30));
    let begin = part.within(0, 130).unwrap();
    assert_eq!((begin.from_offset, begin.to_offset, begin.len), (100, 1_000, 30));
    assert!(part.within(150, 200).is_none() && part.within(0, 100).is_none());
    assert_eq!(part.within(0, 400).map(|whole| whole.len), Some(50));
}

/// Goal: copies between files, at every alignment, over extents, holes and the end of the source,
/// give what a read and a write would have given; done by the daemons, or through the mount where
/// they cannot.
#[test]
fn a_copy_is_what_was_read() {
    for elsewhere in [false, true] {
        let (cluster, lane) = mounted();
        cluster.borrow_mut().targets.copies = !elsewhere;
        let source = create(&lane, b"source");
        let size = 100_000;
        let content = pattern(size);
        write(&lane, &source, 0, &content[..20_000]);
        write(&lane, &source, 50_000, &content[50_000..]);
        let mut expected = content.clone();
        expected[20_000..50_000].fill(0);
        let cases =
            [(0, 0, size), (1, 0, size), (4096, 12_288, 30_000), (19_999, 70_001, 40_000), (5, 3, 100)];
        for (number, (from, to, len)) in cases.into_iter().enumerate() {
            let copy = create(&lane, format!("copy-{number}").as_bytes());
            write(&lane, &copy, 0, &[7; 30_000]);
            let before = cluster.borrow().count(WRITE);
            let mut done = 0;
            while done < len {
                let place = ((source.handle, (from + done) as u64), (copy.handle, (to + done) as u64));
                match block_on(lane.copy(place.0, place.1, (len - done) as u64)).unwrap() {
                    0 => break,
                    n => done += n as usize,
                }
            }
            assert_eq!(done, len.min(size - from), "case {number}");
            let mut whole = alloc::vec![7; 30_000];
            whole.resize(whole.len().max(to + done), 0);
            whole[to..to + done].copy_from_slice(&expected[from..from + done]);
            assert!(read(&lane, &copy, 0, 200_000) == whole, "case {number}, elsewhere {elsewhere}");
            if !elsewhere && len > 8192 {
                assert_eq!(cluster.borrow().count(WRITE), before, "no byte came here");
            }
        }
    }
}

/// Goal: what FUSE leaves to the file system: overlap in one file, handles that may not, the end, and
/// a source that only grew.
#[test]
fn borders() {
    let (_cluster, lane) = mounted();
    let file = create(&lane, b"file");
    write(&lane, &file, 0, &pattern(40_000));
    let copy = |from, to, len| block_on(lane.copy((file.handle, from), (file.handle, to), len));
    assert_eq!(copy(0, 100, 200), Err(Errno::EINVAL));
    assert_eq!(copy(100, 0, 101), Err(Errno::EINVAL));
    assert_eq!(copy(0, 40_000, 40_000), Ok(40_000));
    assert_eq!(read(&lane, &file, 40_000, 40_000), pattern(40_000));
    assert_eq!(copy(80_000, 0, 10), Ok(0));
    assert_eq!(copy(0, FILE_SIZE_MAX, 10), Err(Errno::EFBIG));
    block_on(lane.setattr(file.attr.ino, SetAttr { size: Some(200_000), ..SetAttr::default() })).unwrap();
    assert_eq!(copy(150_000, 0, 60_000), Ok(50_000));
    assert_eq!(read(&lane, &file, 0, 50_000), alloc::vec![0; 50_000]);
}

/// Goal: the metadata know where a copy ends as soon as it is answered, when its last bytes are a hole: no chunk file
/// shows that end to whoever settles the size after the copier is gone.
#[test]
fn an_end_in_a_hole_is_told() {
    let (cluster, lane) = mounted();
    let (from, to) = (create(&lane, b"from"), create(&lane, b"to"));
    write(&lane, &from, 0, &pattern(20_000));
    let size = SetAttr { size: Some(90_000), ..SetAttr::default() };
    block_on(lane.setattr(from.attr.ino, size)).unwrap();
    assert_eq!(block_on(lane.copy((from.handle, 0), (to.handle, 0), 1 << 20)), Ok(90_000));
    assert_eq!(cluster.borrow().shard.files[&to.attr.ino].attr.size, 90_000);
}

/// Goal: an answer lost in the middle of a copy changes nothing.
#[test]
fn lost_answers() {
    let (cluster, lane) = mounted();
    let (from, to) = (create(&lane, b"from"), create(&lane, b"to"));
    write(&lane, &from, 0, &pattern(90_000));
    cluster.borrow_mut().fail(CopyChunk::KIND, &[Fault::LoseAnswer, Fault::Unreachable, Fault::LoseRequest]);
    assert_eq!(block_on(lane.copy((from.handle, 0), (to.handle, 0), 1 << 20)), Ok(90_000));
    assert_eq!(read(&lane, &to, 0, 100_000), pattern(90_000));
}

/// Goal: a copy from a file whose end comes into doubt while its layout is asked for, by a server that began a new life,
/// asks the targets where it ends: it copies all of it.
#[test]
fn a_restart_makes_no_copy_shorter() {
    let (cluster, lane) = mounted();
    let (from, to) = (create(&lane, b"from"), create(&lane, b"to"));
    write(&lane, &from, 0, &pattern(70_000));
    write(&lane, &to, 0, &pattern(10_000));
    assert!(lane.shared.borrow_mut().shards.heard(from.attr.ino.shard(), skep_types::Term(2)));
    cluster.borrow_mut().restarts();
    lane.shared.borrow_mut().inodes.get_mut(from.attr.ino).unwrap().layout = None;
    assert_eq!(block_on(lane.copy((from.handle, 0), (to.handle, 0), 80_000)), Ok(70_000));
    assert_eq!(read(&lane, &to, 0, 80_000), pattern(70_000));
}

/// Goal: what another mount has cut off a file that is open here is not copied as zeros, nor found as data.
#[test]
fn what_others_cut_is_not_copied() {
    let (cluster, lane) = mounted();
    let other = mount(&cluster);
    let (made, to) = (create(&other, b"from"), create(&lane, b"to"));
    // In one chunk: what another one lacks wholly is asked about as a loss.
    write(&other, &made, 0, &pattern(90_000));
    block_on(other.flush(made.handle, 0)).unwrap();
    let from = block_on(lane.open(made.attr.ino, READ)).unwrap();
    write(&lane, &to, 0, &[7; 20_000]);
    assert!(read(&lane, &from, 0, 4_000) == pattern(4_000));
    let set = SetAttr { size: Some(100), ..SetAttr::default() };
    block_on(other.setattr(made.attr.ino, set)).unwrap();
    assert_eq!(block_on(lane.copy((from.handle, 0), (to.handle, 0), 4_000)), Ok(100));
    assert!(read(&lane, &to, 0, 4_000) == [&pattern(100)[..], &[7; 3_900]].concat());
    assert_eq!(block_on(lane.seek(from.handle, 50, Seek::Hole)), Ok(100));
}

/// Goal: the same where a program beside it cuts the source while its layout is asked for: within one mount that is in order.
#[test]
fn what_is_cut_beside_is_not_copied() {
    let (cluster, lane) = mounted();
    let (beside, other) = (lane_beside(&cluster, &lane), mount(&cluster));
    let (made, to) = (create(&other, b"from"), create(&lane, b"to"));
    write(&other, &made, 0, &pattern(90_000));
    block_on(other.flush(made.handle, 0)).unwrap();
    let from = block_on(lane.open(made.attr.ino, READ)).unwrap();
    write(&lane, &to, 0, &[7; 20_000]);
    lane.shared.borrow_mut().inodes.get_mut(made.attr.ino).unwrap().layout = None;
    cluster.borrow_mut().fail(ReadInline::KIND, &[Fault::LateAnswer]);
    let asked = cluster.borrow().count(ReadInline::KIND);
    let mut copies = Box::pin(lane.copy((from.handle, 0), (to.handle, 0), 4_000));
    while cluster.borrow().count(ReadInline::KIND) == asked {
        assert!(step(copies.as_mut()).is_pending());
    }
    let set = SetAttr { size: Some(100), ..SetAttr::default() };
    block_on(beside.setattr(made.attr.ino, set)).unwrap();
    assert_eq!(block_on(copies), Ok(100));
}
