//! Servers that are gone for good, and maps from a backup that know nothing of where the newest rows are.

use super::*;
use skep_types::LogIndex;

/// What a mgmtd that was put back from a backup adds to epochs.
const JUMP: u64 = 1 << crate::limit::EPOCH_HISTORY_BITS;
const THIRD: NodeId = NodeId(8);

/// The shard is to be served by `to`, from its own rows: who had it is gone.
fn given_up(source: NodeId, to: NodeId, epoch: u64) -> MapReply {
    let mut map = placed(ShardState::Moving, &[source], epoch);
    map.shards[0].leader = to;
    map
}

/// An administrator said that newer rows than those that its server will have are lost.
fn as_it_is(mut map: MapReply) -> MapReply {
    map.shards[0].newer_are_lost = Some(true);
    map
}

/// The shard is served, and not withheld for whoever had it later.
fn is_served(bed: &mut Bed, epoch: u64) -> bool {
    let mut active = placed(ShardState::Active, &[OWN], epoch);
    active.shards[0].era = 1;
    bed.step(Input::Map { own: OWN, map: active });
    let to = bed.send_as(ME, SHARD, 0, GetAttr { ino: Ino::ROOT }.into());
    bed.replies[&to].1.is_ok()
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
/// another server. Rows that went on elsewhere are not served either, and it is said where they went, unless those are lost as
/// well, as an administrator says.
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
    bed.step(Input::Map { own: OWN, map: given_up(THIRD, OWN, 4 + JUMP) });
    assert!(is_told(&bed.warnings, "given on to node 9"), "{:?}", bed.warnings);
    assert!(is_told(&bed.warnings, "shard give 0 1 --newer-are-lost"), "{:?}", bed.warnings);
    assert!(bed.server.formatted().is_empty() && unserved(&bed.server.gauges()) == 1);
    let before = rows(bed.server.store());
    bed.step(Input::Map { own: OWN, map: as_it_is(given_up(THIRD, OWN, 5 + JUMP)) });
    assert!(has_come(&bed.server, 5 + JUMP) && rows(bed.server.store()) == before, "{:?}", bed.warnings);
    assert!(is_served(&mut bed, 6 + JUMP));
}

/// Goal: a shard went from one server to a second, and on to a third; a map of before that has it at the first, which still has
/// its old rows. Nobody fetches them, in one part or in several, neither the second, which has none any more, nor another one:
/// what was changed since would be missing. The first does not serve them either when it has the shard back. If an administrator
/// says that newer ones are lost, all three do.
#[test]
fn older_rows_are_served_by_an_administrators_word() {
    for limits in [config(), Config::default()] {
        let mut bed = giver(limits.clone());
        let at = |version, map| MapReply { version: MapVersion(version), ..map };
        let active = |epoch: u64| at(38 + epoch, placed(ShardState::Active, &[OWN], epoch + JUMP));
        bed.step(Input::Map { own: OWN, map: active(1) });
        assert!(is_told(&bed.warnings, "the server that had it last"), "{:?}", bed.warnings);
        let orders = [(THERE, "this server had it before"), (THIRD, "all its rows were told to node 9")];
        for (to, why) in orders {
            let epoch = bed.server.map_version().0 - 36;
            let moving = at(38 + epoch, placed(ShardState::Moving, &[OWN, to], epoch + JUMP));
            bed.step(Input::Map { own: OWN, map: moving.clone() });
            for again in 0..2 {
                let mut other = Other { own: to, ..Other::new(&[]) };
                other.told(&moving, &bed);
                other.fetch(&mut bed);
                assert!(is_told(&other.warnings, why), "{again}: {:?}", other.warnings);
                assert!(other.server.formatted().is_empty() && rows(other.server.store()).is_empty());
                assert_eq!(unserved(&other.server.gauges()), 1);
            }
            bed.step(Input::Map { own: OWN, map: active(epoch + 1) });
            assert!(bed.server.withheld().eq([(SHARD, THERE)]), "it notes what it noted");

            let epoch = epoch + 2;
            let moving = at(38 + epoch, as_it_is(placed(ShardState::Moving, &[OWN, to], epoch + JUMP)));
            let (mut source, mut other) = (giver(limits.clone()), Other { own: to, ..Other::new(&[]) });
            source.step(Input::Map { own: OWN, map: moving.clone() });
            other.told(&moving, &source);
            other.fetch(&mut source);
            assert!(has_come(&other.server, epoch + JUMP), "{:?}", other.warnings);
            assert_eq!(rows(other.server.store()), rows(source.server.store()));
        }
        let epoch = bed.server.map_version().0 - 36;
        bed.step(Input::Map { own: OWN, map: as_it_is(active(epoch)) });
        assert!(bed.server.withheld().next().is_none() && is_served(&mut bed, epoch + 60 + JUMP));
    }
}

/// Goal: a copy that came, and was never served, is no newer than the rows it came from: where those were told to another server
/// afterwards, that one may have newer ones.
#[test]
fn an_equal_copy_is_not_the_newest() {
    let (mut bed, moving) = source();
    let mut other = Other::new(&[]);
    other.told(&moving, &bed);
    other.fetch(&mut bed);
    assert!(has_come(&other.server, 2));
    let to_third = placed(ShardState::Moving, &[OWN, THIRD], 3);
    bed.step(Input::Map { own: OWN, map: to_third.clone() });
    let mut third = Other { own: THIRD, ..Other::new(&[]) };
    third.told(&to_third, &bed);
    third.fetch(&mut bed);
    assert!(has_come(&third.server, 3));
    for (version, is_lost) in [(41, false), (42, true)] {
        let again = placed(ShardState::Moving, &[OWN, THERE], version + JUMP);
        let again = MapReply { version: MapVersion(version), ..again };
        let again = if is_lost { as_it_is(again) } else { again };
        bed.step(Input::Map { own: OWN, map: again.clone() });
        other.told(&again, &bed);
        other.fetch(&mut bed);
        assert!(is_told(&other.warnings, "all its rows were told to node 8"), "{:?}", other.warnings);
        assert_eq!(has_come(&other.server, version + JUMP), is_lost);
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

/// Goal: a copy that came and was never served is not taken for the newest because its source has no rows any more, or is gone:
/// the source went on, and gave them to a third server.
#[test]
fn a_copy_that_was_never_served_is_not_the_newest() {
    let emptied = emptied();
    for is_gone in [false, true] {
        let mut other = Other::new(&[]);
        let (mut bed, moving) = source();
        other.told(&moving, &bed);
        other.fetch(&mut bed);
        let mut source = self::emptied();
        for (version, is_lost) in [(50, false), (51, true)] {
            let order = match is_gone {
                true => given_up(OWN, THERE, version + JUMP),
                false => placed(ShardState::Moving, &[OWN, THERE], version + JUMP),
            };
            let order = MapReply { version: MapVersion(version), ..order };
            let order = if is_lost { as_it_is(order) } else { order };
            source.step(Input::Map { own: OWN, map: order.clone() });
            other.told(&order, &emptied);
            other.fetch(&mut source);
            assert!(is_told(&other.warnings, "came, and were never served"), "{:?}", other.warnings);
            assert_eq!(has_come(&other.server, version + JUMP), is_lost, "{is_gone}: {:?}", other.warnings);
        }
    }
}

/// Goal: the word that newer rows are lost is of one order: called back, or given to another server without it, older rows are
/// as little served as before; also those that the server had itself.
#[test]
fn the_word_is_of_one_order() {
    let mut bed = giver(config());
    let at = |version, map| MapReply { version: MapVersion(version), ..map };
    let lost = at(41, as_it_is(placed(ShardState::Moving, &[OWN, THIRD], 2 + JUMP)));
    bed.step(Input::Map { own: OWN, map: lost.clone() });
    let mut third = Other { own: THIRD, ..Other::new(&[]) };
    third.told(&lost, &bed);
    third.fetch(&mut bed);
    assert!(has_come(&third.server, 2 + JUMP));
    bed.step(Input::Map { own: OWN, map: at(42, placed(ShardState::Active, &[OWN], 3 + JUMP)) });
    assert!(bed.server.withheld().eq([(SHARD, THERE)]));
    let again = at(43, placed(ShardState::Moving, &[OWN, THIRD], 4 + JUMP));
    bed.step(Input::Map { own: OWN, map: again.clone() });
    third.told(&again, &bed);
    third.fetch(&mut bed);
    assert!(!has_come(&third.server, 4 + JUMP), "{:?}", third.warnings);
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
