//! The map: who has which shard, and what those are told who hold an older one.

mod bed;

use bed::*;
use skep_cluster::{Command, Config, Output, Registry, SetShards, State};
use skep_types::{
    Capacity, Encode, Errno, MapVersion, Millis, NodeId, PoolId, ServiceKind, ShardId, TargetId, Term, Uuid,
};
use skep_wire::Status;
use skep_wire::mgmt::*;

fn epochs(c: &mut Cluster) -> Vec<(u32, u64, ShardState)> {
    c.map().shards.iter().map(|entry| (entry.leader.0, entry.epoch, entry.state)).collect()
}

/// Goal: every change of a shard's place or state raises its epoch, and nothing else does; a shard that was formatted is
/// never new again, wherever it goes; the log gives back the same.
#[test]
fn a_shard_is_given_to_another_server() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Metad, "").unwrap();
    c.node(2, ServiceKind::Metad, "").unwrap();
    c.node(3, ServiceKind::Storaged, "").unwrap();
    assert_eq!(epochs(&mut c), [(1, 1, ShardState::New); 4]);
    let formatted = c.at([0, 1]);
    c.ask(0, Heartbeat { formatted, ..heartbeat(1, 1) }).unwrap();
    assert_eq!(epochs(&mut c)[1..3], [(1, 2, ShardState::Active), (1, 1, ShardState::New)]);
    let give = |c: &mut Cluster, shard, node| {
        let mut out = Output::default();
        let done = c.registry.give_shard(&GiveShard::to(ShardId(shard), NodeId(node)), &mut out);
        c.log.extend(out.commands);
        done.map_err(|refusal| refusal.status)
    };
    let version = c.map().version;
    assert_eq!(give(&mut c, 0, 1), Ok(()), "it is there");
    assert_eq!((c.map().version, epochs(&mut c)[0].1), (version, 2));
    assert_eq!(give(&mut c, 0, 2), Ok(()));
    assert!(c.map().version > version);
    assert_eq!(epochs(&mut c)[..2], [(2, 3, ShardState::Moving), (1, 2, ShardState::Active)]);
    assert_eq!(c.map().shards[0].members, [NodeId(1), NodeId(2)]);
    let early = c.at([0]);
    // The word of the server that had it before changes nothing of what it has no more.
    let at = c.at([0]);
    c.ask(0, Heartbeat { formatted: at, ..heartbeat(1, 1) }).unwrap();
    assert_eq!(epochs(&mut c)[0], (2, 3, ShardState::Moving));
    assert_eq!(give(&mut c, 0, 1), Ok(()), "back");
    assert_eq!((epochs(&mut c)[0], c.map().shards[0].members.len()), ((1, 4, ShardState::Active), 1));
    assert_eq!(give(&mut c, 0, 2), Ok(()));
    c.ask(0, Heartbeat { formatted: early, ..heartbeat(2, 1) }).unwrap();
    assert_eq!(
        epochs(&mut c)[0],
        (2, 5, ShardState::Moving),
        "what has come by an earlier order does not count"
    );
    let at = c.at([0]);
    c.ask(0, Heartbeat { formatted: at, ..heartbeat(2, 1) }).unwrap();
    assert_eq!(
        (epochs(&mut c)[0], c.map().shards[0].members.clone()),
        ((2, 6, ShardState::Active), vec![NodeId(2)])
    );
    // Nobody could fetch its rows, or nobody would answer for it; on its way it can be given back, whoever is away.
    c.beat(1, vec![]);
    assert_eq!(give(&mut c, 0, 1), Ok(()));
    let away = |c: &mut Cluster, here: u32| {
        for _ in 0..100 {
            c.pass(1_000);
            c.beat(here, vec![]);
        }
    };
    away(&mut c, 1);
    assert_eq!(give(&mut c, 1, 2), Err(Status::errno(Errno::EINVAL)), "who is to have it is away");
    assert_eq!(give(&mut c, 0, 2), Ok(()), "it has not left");
    assert_eq!(give(&mut c, 0, 1), Err(Status::errno(Errno::EINVAL)), "who has it is away");
    away(&mut c, 2);
    assert_eq!(epochs(&mut c)[0], (2, 8, ShardState::Active));
    assert_eq!(give(&mut c, 2, 2), Err(Status::errno(Errno::EINVAL)), "it is not made yet");
    assert_eq!(give(&mut c, 0, 3), Err(Status::errno(Errno::EINVAL)), "no metadata server");
    assert_eq!(give(&mut c, 9, 1), Err(Status::errno(Errno::ENOENT)));
    c.replayed();
    c.restart();
    assert_eq!(epochs(&mut c)[0], (2, 8, ShardState::Active));
}

/// Goal: one that moves is answered for by who leads it; one that is retired by nobody, and it is never placed again.
#[test]
fn retired_shards_stay_retired() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Metad, "").unwrap();
    c.node(2, ServiceKind::Metad, "").unwrap();
    let mut state = c.registry.state().clone();
    let set = |id, state| Command::SetShards(SetShards { shards: vec![ShardId(id)], state });
    state.apply(&set(0, ShardState::Moving));
    state.apply(&set(1, ShardState::Retired));
    state.apply(&set(1, ShardState::Retired));
    c.registry = Registry::new(CONFIG, state, Term(2), c.now);
    let map = c.map();
    assert_eq!((map.shards[0].led_by(), map.shards[1].led_by()), (Some(NodeId(1)), None));
    assert_eq!((map.shards[0].epoch, map.shards[1].epoch), (2, 2));
    let refused =
        c.registry.give_shard(&GiveShard::to(ShardId(1), NodeId(2)), &mut Output::default()).unwrap_err();
    assert!(refused.detail.contains("retired"), "{refused}");
    let places = vec![skep_cluster::Placed::at(ShardId(1), NodeId(2))];
    let mut state = c.registry.state().clone();
    state.apply(&Command::PlaceShards(skep_cluster::PlaceShards { places }));
    assert_eq!(state.shards, c.registry.state().shards);
}

/// A cluster of 100 nodes with 1,000 targets and 64 shards.
fn large() -> Cluster {
    let config = Config { max_nodes: 200, max_targets: 2_000, max_pools: 20, ..CONFIG };
    let state = State::format(Uuid([9; 16]), skep_types::NamesKey([6; 16]), 64);
    let mut c = Cluster { registry: Registry::new(config, state, Term(1), Millis(0)), ..Cluster::new() };
    for uuid in 1..=100 {
        let service = if uuid == 1 { ServiceKind::Metad } else { ServiceKind::Storaged };
        c.node(uuid, service, "").unwrap();
    }
    for n in 0..1_000u32 {
        let mut uuid = [200; 16];
        uuid[..4].copy_from_slice(&n.to_le_bytes());
        let capacity =
            Capacity { bytes: 1 << 40, bytes_free: 1 << 40, inodes: 1 << 30, inodes_free: 1 << 30 };
        let (node, target, alias) = (NodeId(2 + n % 99), TargetId(0), String::new());
        let uuid = Uuid(uuid);
        let (mark, confirmed, restored) = (1, 0, false);
        c.ask(0, RegisterTarget { node, uuid, target, alias, capacity, mark, confirmed, restored }).unwrap();
    }
    c
}

fn report(c: &mut Cluster, target: &TargetEntry, bytes_free: u64) {
    let capacity = Capacity { bytes_free, ..target.capacity };
    let (target, consistency) = (target.target, target.consistency);
    let report = TargetReport { target, consistency, failures: 0, capacity, filesystem: 0, mark: None };
    // As a daemon does it: all targets of the node are listed.
    let node = c.registry.state().targets[&target].node;
    let own = c.map().targets.into_iter().filter(|entry| entry.node == node && entry.target != target);
    let beside =
        own.map(|entry| TargetReport { target: entry.target, capacity: entry.capacity, ..report.clone() });
    let targets = beside.chain([report.clone()]).collect();
    c.beat(node.0, targets);
}

/// Goal: a change of one entry of a large map is told in less than a kilobyte, where the whole takes a hundred.
#[test]
fn one_change_is_told_alone() {
    let mut c = large();
    c.pass(500);
    let whole = c.map();
    assert_eq!((whole.nodes.len(), whole.targets.len(), whole.shards.len()), (100, 1_000, 64));
    let moved = whole.targets[500].clone();
    report(&mut c, &moved, 1 << 39);
    let told = c.ask_as(ADMIN, GetMap { known: whole.version }).unwrap();
    assert_eq!((told.base, told.targets.len(), told.nodes.len()), (whole.version, 1, 0));
    let (before, after) = (c.map().to_bytes().len(), told.to_bytes().len());
    println!("a change of one target: {before} bytes as a whole map, {after} as a difference");
    assert!(before > 100 << 10 && after < 1 << 10, "{before} {after}");
    let nothing = c.ask_as(ADMIN, GetMap { known: told.version }).unwrap();
    assert_eq!((nothing.base, nothing.version, nothing.targets.len()), (told.version, told.version, 0));
}

/// Goal: who asks with a version of another start of mgmtd, with one of the future, or with one from before the removals that
/// are remembered, is told the whole.
#[test]
fn what_is_not_known_is_told_whole() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Metad, "").unwrap();
    let old = c.map().version;
    let base = |c: &mut Cluster, known| c.ask_as(ADMIN, GetMap { known }).unwrap().base;
    assert_eq!(base(&mut c, old), old);
    assert_eq!(base(&mut c, MapVersion(old.0 + 1)), MapVersion(0));
    assert_eq!(base(&mut c, MapVersion(old.0 - 1)), MapVersion(0), "nobody was told that one");
    c.ask(0, CreatePool { alias: "first".into(), targets: vec![], limits: CapacityLimits::default() })
        .unwrap();
    let mut last = c.map().version;
    for _ in 0..1_030 {
        let limits = CapacityLimits::default();
        let pool = c.ask(0, CreatePool { alias: "p".into(), targets: vec![], limits }).unwrap().pool;
        c.map();
        c.ask(0, DeletePool { pool }).unwrap();
        last = c.map().version;
    }
    assert_eq!((base(&mut c, old), base(&mut c, last)), (MapVersion(0), last));
    c.restart();
    assert_eq!(base(&mut c, last), MapVersion(0));
}

/// A small generator of choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Something that may change the map. Refusals are as good as anything.
fn anything(c: &mut Cluster, dice: &mut Dice) {
    let (node, target) = (1 + dice.below(5) as u32, 101 + dice.below(6) as u32);
    let uuid = 1 + dice.below(9) as u8;
    let alias = format!("a{}", dice.below(6));
    let limits = CapacityLimits::default();
    match dice.below(16) {
        0 => drop(c.node(uuid, if uuid < 4 { ServiceKind::Metad } else { ServiceKind::Storaged }, "")),
        1 => drop(c.target(node, 50 + uuid, 0)),
        2 => drop(c.ask(0, RemoveTarget { target: TargetId(target), force: true })),
        3 => drop(c.ask(0, RemoveNode { node: NodeId(node) })),
        4 => drop(c.ask(0, CreatePool { alias, targets: vec![TargetId(target)], limits })),
        5 => drop(c.ask(0, DeletePool { pool: PoolId(2 + dice.below(4) as u32) })),
        6 => drop(c.ask(0, AssignTargets { pool: PoolId(1), targets: vec![TargetId(target)] })),
        7 => drop(c.ask(0, SetNodeAlias { node: NodeId(node), alias })),
        8 => c.pass(1_000 + dice.below(12_000)),
        9 => {
            let (shard, node) = (ShardId(dice.below(5) as u16), NodeId(node));
            let mut out = Output::default();
            let _ = c.registry.give_shard(&GiveShard::to(shard, node), &mut out);
            c.log.extend(out.commands);
        }
        10 => {
            let formatted = c.at([dice.below(4) as u16]);
            drop(c.ask(0, Heartbeat { formatted, ..heartbeat(node, 1) }));
        }
        11 if dice.below(8) == 0 => {
            let term = Term(c.registry.map_version().0 >> 32);
            c.registry = Registry::new(CONFIG, c.replayed(), Term(term.0 + 1), c.now);
        }
        // The log had no room for what the step did.
        12 => {
            let before = c.registry.state().clone();
            let (length, asked) = (c.log.len(), dice.below(2) == 0);
            drop(c.target(node, 50 + uuid, 0));
            drop(c.ask(0, RemoveTarget { target: TargetId(target), force: true }));
            if asked {
                c.map();
            }
            c.log.truncate(length);
            c.registry.roll_back(c.now, before);
        }
        _ => {
            let known = c.registry.state().targets.contains_key(&TargetId(target));
            let free = dice.below(1_000);
            if known {
                let node = c.registry.state().targets[&TargetId(target)].node;
                let capacity = Capacity { bytes: 1_000, bytes_free: free, inodes: 0, inodes_free: 0 };
                let (target, consistency) = (TargetId(target), skep_types::Consistency::Good);
                let (failures, filesystem, mark) = (0, 7, None);
                let targets =
                    vec![TargetReport { target, consistency, failures, capacity, filesystem, mark }];
                drop(c.ask(0, Heartbeat { targets, ..heartbeat(node.0, 1) }));
            }
        }
    }
}

/// Goal: whoever merges the differences that it is told, however seldom it asks, holds the map that mgmtd has.
#[test]
fn differences_make_the_whole() {
    let (mut differences, mut wholes) = (0, 0);
    for seed in 0..200 {
        let (mut c, mut dice) = (Cluster::new(), Dice(seed));
        let mut views = [0; 3].map(|_| ClusterView::default());
        for _ in 0..120 {
            anything(&mut c, &mut dice);
            let view = &mut views[dice.below(3) as usize];
            if dice.below(3) != 0 {
                continue;
            }
            let told = c.ask_as(ADMIN, GetMap { known: view.version() }).unwrap();
            if told.is_whole() {
                wholes += 1;
            } else {
                differences += 1;
            }
            let is_newer = told.version != view.version();
            assert_eq!(view.take(told), Ok(is_newer), "seed {seed}");
            assert_eq!(*view.map(), c.map(), "seed {seed}");
            c.replayed();
        }
    }
    assert!(differences > 2_000 && wholes > 200, "{differences} {wholes}");
}

/// Goal: a difference to another map than that which is held changes nothing, nor does an older map.
#[test]
fn gaps_are_noticed() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Metad, "").unwrap();
    let first = c.map();
    c.node(2, ServiceKind::Metad, "").unwrap();
    let second = c.ask_as(ADMIN, GetMap { known: first.version }).unwrap();
    let mut view = ClusterView::default();
    assert_eq!(view.take(second.clone()), Err(Gap));
    assert_eq!(view, ClusterView::default());
    assert_eq!(view.take(first.clone()), Ok(true));
    assert_eq!(view.take(second.clone()), Ok(true));
    assert_eq!((view.take(second), view.take(first)), (Ok(false), Ok(false)));
    assert_eq!(*view.map(), c.map());
    assert_eq!(view.node(NodeId(2)).map(|node| node.service), Some(ServiceKind::Metad));
    assert_eq!((view.node(NodeId(3)), view.target(TargetId(1))), (None, None));
    assert_eq!(view.shard(ShardId(3)).and_then(ShardEntry::led_by), Some(NodeId(1)));
}
