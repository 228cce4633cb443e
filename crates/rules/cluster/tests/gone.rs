//! A server that has a shard, by the map, and is gone for good.

mod bed;

use bed::*;
use skep_cluster::Command;
use skep_cluster::limits::ERAS_MAX;
use skep_types::{NodeId, ServiceKind, ShardId};
use skep_wire::mgmt::*;
use skep_wire::{Empty, Refusal};

const NOBODY: u32 = 0;

/// Three metadata servers, of which the first has all shards and only these are heard now.
fn cluster(heard: &[u32]) -> Cluster {
    let mut c = Cluster::new();
    for uuid in 1..=3 {
        c.node(uuid, ServiceKind::Metad, "").unwrap();
    }
    let formatted = c.at(0..4);
    c.ask(0, Heartbeat { formatted, ..heartbeat(1, 1) }).unwrap();
    only(&mut c, heard);
    c
}

/// Only these are heard.
fn only(c: &mut Cluster, heard: &[u32]) {
    for _ in 0..20 {
        c.pass(1_000);
        for node in heard {
            c.beat(*node, vec![]);
        }
    }
}

fn give(c: &mut Cluster, node: u32) -> Result<Empty, Refusal> {
    c.ask_as(ADMIN, GiveShard::to(ShardId(1), NodeId(node)))
}

/// As [`give`], and newer rows are lost.
fn give_as_it_is(c: &mut Cluster, node: u32) -> Result<Empty, Refusal> {
    c.ask_as(ADMIN, GiveShard { shard: ShardId(1), node: NodeId(node), newer_are_lost: Some(true) })
}

/// State, members, leader and era.
fn place(c: &mut Cluster) -> (ShardState, Vec<u32>, u32, u16) {
    let entry = c.map().shards[1].clone();
    (entry.state, entry.members.iter().map(|node| node.0).collect(), entry.leader.0, entry.era)
}

/// Goal: a shard of which the map names a server that is gone for good can be given to one that has a copy, in a new era, by
/// the word of an administrator and not without it; where that one has none, to the next; and back, if the first was not gone.
#[test]
fn a_source_that_is_gone_is_given_up() {
    let mut c = cluster(&[1, 2, 3]);
    let refused = give(&mut c, NOBODY).unwrap_err();
    assert!(refused.detail.contains("is online, so it is not gone"), "{refused}");
    only(&mut c, &[2, 3]);
    let refused = give(&mut c, 2).unwrap_err();
    assert!(refused.detail.contains("shard give 1 2 --source-is-gone"), "{refused}");
    assert_eq!(place(&mut c), (ShardState::Active, vec![1], 1, 0));

    let epoch = c.map().shards[1].epoch;
    give(&mut c, NOBODY).unwrap();
    give(&mut c, NOBODY).unwrap();
    let given_up = (ShardState::Moving, vec![1], 0, 1);
    assert_eq!((place(&mut c), c.map().shards[1].epoch), (given_up.clone(), epoch + 1), "said twice");
    only(&mut c, &[3]);
    let refused = give(&mut c, 2).unwrap_err();
    assert!(refused.detail.contains("node 2 is not online"), "{refused}");
    assert_eq!(place(&mut c), given_up);
    give(&mut c, 3).unwrap();
    assert_eq!(place(&mut c), (ShardState::Moving, vec![1], 3, 1));
    assert_eq!(c.map().shards[1].comes_from(), None, "nobody is asked for its rows");

    // It had none.
    only(&mut c, &[2, 3]);
    assert!(give(&mut c, 2).is_err());
    give(&mut c, NOBODY).unwrap();
    give(&mut c, 2).unwrap();
    let formatted = c.at([1]);
    c.ask(0, Heartbeat { formatted, ..heartbeat(2, 1) }).unwrap();
    assert_eq!(place(&mut c), (ShardState::Active, vec![2], 2, 2));
    c.replayed();
    c.restart();
    assert_eq!(place(&mut c), (ShardState::Active, vec![2], 2, 2));
}

/// Goal: one that was called gone and is there again has the rows: it can have the shard back, and others fetch it from there.
#[test]
fn one_that_was_not_gone_has_the_rows() {
    for to in [1, 2] {
        let mut c = cluster(&[2, 3]);
        give(&mut c, NOBODY).unwrap();
        only(&mut c, &[1, 2, 3]);
        give(&mut c, to).unwrap();
        let expected = match to {
            1 => (ShardState::Active, vec![1], 1, 1),
            _ => (ShardState::Moving, vec![1, 2], 2, 1),
        };
        assert_eq!(place(&mut c), expected);
        c.replayed();
    }
}

/// Goal: also when another server, which has no copy, has been given the shard meanwhile; that one is not taken out then.
#[test]
fn one_that_is_there_again_is_asked() {
    for to in [2, 3] {
        let mut c = cluster(&[2, 3]);
        give(&mut c, NOBODY).unwrap();
        give(&mut c, 2).unwrap();
        only(&mut c, &[3]);
        let removed = c.ask_as(ADMIN, RemoveNode { node: NodeId(2) });
        let refused = removed.unwrap_err().detail;
        assert!(refused.contains("1 metadata shards") && refused.contains("--source-is-gone"), "{refused}");
        only(&mut c, &[1, 2, 3]);
        give(&mut c, to).unwrap();
        assert_eq!(place(&mut c), (ShardState::Moving, vec![1, to], to, 1));
        give(&mut c, to).unwrap();
        assert_eq!(c.map().shards[1].comes_from(), Some(NodeId(1)));
        c.replayed();
    }
}

/// Goal: a server that was silent for some seconds may be serving mounts: it is not gone.
#[test]
fn one_that_was_just_heard_is_not_gone() {
    let mut c = cluster(&[1, 2, 3]);
    for _ in 0..7 {
        c.pass(1_000);
        c.beat(2, vec![]);
    }
    let refused = give(&mut c, NOBODY).unwrap_err();
    assert!(refused.detail.contains("does not count as offline yet"), "{refused}");
    assert_eq!(place(&mut c), (ShardState::Active, vec![1], 1, 0));
}

/// Goal: that newer rows are lost is said of one place: to who has the shard, to another, to one that asks nobody; each time in
/// a new era and epoch. Once the shard has come, is placed anew, or mgmtd is put back from a backup, it counts no more.
#[test]
fn that_newer_rows_are_lost_is_said_of_one_place() {
    let mut c = cluster(&[1, 2, 3]);
    let lost = |c: &mut Cluster| c.map().shards[1].are_newer_lost();
    for era in 1..=2 {
        let epoch = c.map().shards[1].epoch;
        give_as_it_is(&mut c, 1).unwrap();
        assert_eq!(place(&mut c), (ShardState::Active, vec![1], 1, era));
        assert_eq!((lost(&mut c), c.map().shards[1].epoch), (true, epoch + 1));
    }
    give_as_it_is(&mut c, 2).unwrap();
    assert_eq!((place(&mut c), lost(&mut c)), ((ShardState::Moving, vec![1, 2], 2, 3), true));
    give(&mut c, 3).unwrap();
    assert_eq!((place(&mut c), lost(&mut c)), ((ShardState::Moving, vec![1, 3], 3, 3), false));
    give_as_it_is(&mut c, 2).unwrap();
    let formatted = c.at([1]);
    c.ask(0, Heartbeat { formatted, ..heartbeat(2, 1) }).unwrap();
    assert_eq!((place(&mut c), lost(&mut c)), ((ShardState::Active, vec![2], 2, 4), false));

    only(&mut c, &[1, 3]);
    give(&mut c, NOBODY).unwrap();
    for era in 6..=7 {
        give_as_it_is(&mut c, 3).unwrap();
        assert_eq!((place(&mut c), lost(&mut c)), ((ShardState::Moving, vec![2], 3, era), true));
    }
    c.replayed();
    c.restart();
    assert!(lost(&mut c));
    let mut out = skep_cluster::Output::default();
    c.registry.restore(&mut out).unwrap();
    assert_eq!(c.registry.state().shards[1].newer_are_lost, None);
}

/// Goal: eras are not used up by this either; and an earlier release does not take the word for something else.
#[test]
fn the_word_has_a_limit_and_a_level() {
    let mut c = cluster(&[2, 3]);
    for _ in 0..ERAS_MAX {
        give(&mut c, NOBODY).unwrap();
        give(&mut c, 2).unwrap();
    }
    assert!(give(&mut c, NOBODY).unwrap_err().detail.contains("the limit"));
    let given = |command: &&Command| matches!(command, Command::PlaceShards(_));
    let levels: Vec<u16> = c.log.iter().filter(given).map(Command::level).collect();
    assert_eq!(levels[levels.len() - 4..], [2, 1, 2, 1]);
    assert!(c.log.iter().filter(|command| !given(command)).all(|command| command.level() == 1));
}
