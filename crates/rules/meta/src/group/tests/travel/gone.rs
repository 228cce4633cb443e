//! Servers that are gone for good, and maps from a backup that know nothing of where the newest rows are.

use super::*;
use skep_types::{LogIndex, Reachability};
use skep_wire::mgmt::NodeEntry;

/// What a mgmtd that was put back from a backup adds to epochs.
const JUMP: u64 = 1 << crate::limit::EPOCH_HISTORY_BITS;
const THIRD: NodeId = NodeId(8);

/// The shard is to be served by `to`, from its own rows: who had it is gone.
fn given_up(source: NodeId, to: NodeId, epoch: u64) -> MapReply {
    let mut map = placed(ShardState::Moving, &[source], epoch);
    map.shards[0].leader = to;
    map
}

/// The map says of a server whether it is there.
fn with(mut map: MapReply, node: NodeId, reachability: Reachability) -> MapReply {
    let entry = NodeEntry { node, reachability, ..map.nodes[0].clone() };
    map.nodes.push(entry);
    map
}

/// A server that had the shard and let it go.
fn emptied() -> Bed {
    let mut bed = Bed::with(config(), 2);
    bed.courier_works = false;
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[THERE], 3) });
    let ask = bed.tasks.pop().unwrap();
    bed.step(Input::Courier { task: ask.id, result: Ok(JobReply::History(true)) });
    while bed.server.moves_under_way() > 0 {
        bed.tick(10);
    }
    assert!(bed.server.shards().eq([ShardId(1)]) && bed.tasks.is_empty());
    bed
}

/// One that gave all rows away, as its header says.
fn giver(config: Config) -> Bed {
    let (mut bed, moving) = source_with(config);
    let mut other = Other::new(&[]);
    other.told(&moving, &bed);
    other.fetch(&mut bed);
    assert_eq!(other.server.formatted(), [ShardAt { shard: SHARD, epoch: 2 }]);
    bed
}

fn unserved(gauges: &[(&'static str, u64)]) -> u64 {
    gauges.iter().find(|(name, _)| *name == "unserved_shards").unwrap().1
}

fn has_come(server: &Group<MemoryStore>, epoch: u64) -> bool {
    server.formatted() == [ShardAt { shard: SHARD, epoch }]
}

fn is_told(warnings: &[String], what: &str) -> bool {
    warnings.iter().any(|line| line.contains(what))
}

/// Goal: where an administrator says that who had a shard is gone, a copy is served as it is, and nobody is asked for rows.
#[test]
fn a_copy_is_served_when_its_source_is_gone() {
    let (mut bed, _) = source();
    let before = rows(bed.server.store());
    bed.courier_works = false;
    bed.tasks.clear();
    bed.step(Input::Map { own: OWN, map: given_up(THERE, OWN, 4) });
    assert!(
        has_come(&bed.server, 4) && is_told(&bed.warnings, "from the copy that is here"),
        "{:?}",
        bed.warnings
    );
    assert!(bed.tasks.is_empty() && rows(bed.server.store()) == before && !bed.server.has_term(SHARD));
    let mut active = placed(ShardState::Active, &[OWN], 5);
    active.shards[0].era = 1;
    bed.step(Input::Map { own: OWN, map: active });
    let to = bed.send_as(ME, SHARD, 0, GetAttr { ino: Ino::ROOT }.into());
    assert!(bed.replies[&to].1.is_ok() && bed.term() >= Term(1 << crate::limit::ERA_TERM_BITS));
    bed.check();
}

/// Goal: where that one has no rows nothing is made up: it says so, to mgmtd and `skep health` too, until the shard is given to
/// another server. Rows that went on elsewhere are not served either, and it is said where they went, unless the server that has
/// them is not there: then they are all there is.
#[test]
fn nothing_is_made_up_when_the_source_is_gone() {
    let mut bed = emptied();
    let records = bed.log.len();
    bed.step(Input::Map { own: OWN, map: given_up(THERE, OWN, 4) });
    bed.tick(10_000);
    assert!(is_told(&bed.warnings, "gone for good, and none are here"), "{:?}", bed.warnings);
    assert!(bed.server.formatted().is_empty() && bed.tasks.is_empty() && bed.log.len() == records);
    assert_eq!(unserved(&bed.server.gauges()), 1);
    assert!(bed.server.has_term(ShardId(1)), "all else goes on");
    bed.step(Input::Map { own: OWN, map: given_up(THERE, THIRD, 6) });
    assert_eq!(unserved(&bed.server.gauges()), 0);

    let mut bed = giver(config());
    bed.courier_works = false;
    let moves_on = with(given_up(THIRD, OWN, 4 + JUMP), THERE, Reachability::ProbablyOffline);
    bed.step(Input::Map { own: OWN, map: moves_on });
    assert!(is_told(&bed.warnings, "given on to node 9"), "{:?}", bed.warnings);
    assert!(bed.server.formatted().is_empty() && unserved(&bed.server.gauges()) == 1);
    // That it is not there any more is no word of an administrator's.
    let off = |epoch| with(given_up(THIRD, OWN, epoch), THERE, Reachability::Offline);
    bed.step(Input::Map { own: OWN, map: MapReply { version: MapVersion(JUMP + 20), ..off(4 + JUMP) } });
    assert!(bed.server.formatted().is_empty() && unserved(&bed.server.gauges()) == 1);
    let before = rows(bed.server.store());
    bed.step(Input::Map { own: OWN, map: off(20 + JUMP) });
    assert!(has_come(&bed.server, 20 + JUMP) && rows(bed.server.store()) == before, "{:?}", bed.warnings);
    let mut active = placed(ShardState::Active, &[OWN], 21 + JUMP);
    active.shards[0].era = 1;
    bed.step(Input::Map { own: OWN, map: active });
    let to = bed.send_as(ME, SHARD, 0, GetAttr { ino: Ino::ROOT }.into());
    assert!(bed.replies[&to].1.is_ok(), "it is not withheld for who had it");
}

/// Goal: a shard went from one server to a second, and on to a third; a map of before that has it at the first, which still has
/// its old rows. The second, which has none any more, does not fetch them, in one part or in several: what was changed since
/// would be missing. A server that never had it can, once the second is not there.
#[test]
fn rows_do_not_come_a_second_time() {
    for limits in [config(), Config::default()] {
        let mut bed = giver(limits);
        let old = MapReply { version: MapVersion(40), ..placed(ShardState::Active, &[OWN], 1 + JUMP) };
        bed.step(Input::Map { own: OWN, map: old });
        assert!(is_told(&bed.warnings, "the server that had it last"), "{:?}", bed.warnings);
        let moving =
            MapReply { version: MapVersion(41), ..placed(ShardState::Moving, &[OWN, THERE], 2 + JUMP) };
        bed.step(Input::Map { own: OWN, map: moving.clone() });
        for again in 0..2 {
            let mut second = Other::new(&[]);
            second.told(&moving, &bed);
            second.fetch(&mut bed);
            assert!(is_told(&second.warnings, "this server had it before"), "{again}: {:?}", second.warnings);
            assert!(second.server.formatted().is_empty() && rows(second.server.store()).is_empty());
            assert_eq!(unserved(&second.server.gauges()), 1);
        }
        let reached = [(42, Reachability::Online), (44, Reachability::Offline)];
        for (version, reachability) in reached {
            let moving = placed(ShardState::Moving, &[OWN, THIRD], version + JUMP);
            let moving = with(moving, THERE, reachability);
            bed.step(Input::Map { own: OWN, map: moving.clone() });
            let mut third = Other { own: THIRD, ..Other::new(&[]) };
            third.told(&moving, &bed);
            third.fetch(&mut bed);
            let is_off = reachability == Reachability::Offline;
            assert_eq!(has_come(&third.server, version + JUMP), is_off, "{:?}", third.warnings);
            assert_eq!(is_told(&third.warnings, "node 9 was told all rows of it before"), !is_off);
            assert_eq!(rows(third.server.store()) == rows(bed.server.store()), is_off);
        }
    }
}

/// Goal: all rows had come and nobody served them when mgmtd was put back: they are served where they are, by the next order.
#[test]
fn what_had_just_come_is_served() {
    let (mut bed, moving) = source();
    let mut other = Other::new(&[]);
    other.told(&moving, &bed);
    other.fetch(&mut bed);
    let again = MapReply { version: MapVersion(41), ..placed(ShardState::Moving, &[OWN, THERE], 2 + JUMP) };
    bed.step(Input::Map { own: OWN, map: again.clone() });
    other.told(&again, &bed);
    other.fetch(&mut bed);
    assert!(has_come(&other.server, 2 + JUMP), "{:?}", other.warnings);
    assert_eq!(rows(other.server.store()), rows(bed.server.store()));
}

/// Goal: rows that were given on from here are not served again, and it is said to whom they went.
#[test]
fn who_gave_it_on_says_to_whom() {
    let mut bed = giver(config());
    bed.courier_works = false;
    bed.tasks.clear();
    let moving = MapReply { version: MapVersion(41), ..placed(ShardState::Moving, &[THIRD, OWN], 2 + JUMP) };
    bed.step(Input::Map { own: OWN, map: moving });
    let task = bed.tasks.pop().unwrap();
    assert!(matches!(task.job, Job::Fetch { node: THIRD, .. }));
    let none = RowsReply { term: Term(0), index: LogIndex(0), rows: vec![], more: false, holds: false };
    bed.step(Input::Courier { task: task.id, result: Ok(JobReply::Rows(none)) });
    assert!(is_told(&bed.warnings, "given on to node 9"), "{:?}", bed.warnings);
    assert_eq!((bed.server.formatted(), unserved(&bed.server.gauges())), (vec![], 1));
}

/// Goal: a shard that does not come is told of as not served; once its source has begun another life, perhaps with its rows
/// put back, it is asked again, and not for any other news.
#[test]
fn a_source_with_its_rows_put_back_is_asked_again() {
    let life = |version, life| {
        let mut map =
            MapReply { version: MapVersion(version), ..placed(ShardState::Moving, &[OWN, THERE], 4) };
        map.nodes.iter_mut().for_each(|node| node.incarnation = Incarnation(life));
        map
    };
    let mut empty = emptied();
    empty.step(Input::Map { own: OWN, map: life(50, 1) });
    let mut other = Other::new(&[]);
    other.told(&life(50, 1), &empty);
    other.fetch(&mut empty);
    assert!(is_told(&other.warnings, "it has no rows of it"), "{:?}", other.warnings);
    assert_eq!(unserved(&other.server.gauges()), 1);
    let told = other.warnings.len();
    other.told(&life(51, 1), &empty);
    other.fetch(&mut empty);
    assert_eq!((other.warnings.len(), unserved(&other.server.gauges())), (told, 1));

    let (mut back, _) = source();
    back.step(Input::Map { own: OWN, map: life(52, 2) });
    other.told(&life(52, 2), &back);
    assert_eq!(unserved(&other.server.gauges()), 0, "it is on its way");
    other.fetch(&mut back);
    assert!(has_come(&other.server, 4), "{:?}", other.warnings);
    assert_eq!(rows(other.server.store()), rows(back.server.store()));
}
