//! Choosers, pools and classes.

use super::*;
use alloc::string::String;
use alloc::vec;
use skep_types::{Capacity, Incarnation, MapVersion, ServiceKind, Uuid};
use skep_wire::mgmt::{NodeEntry, TargetEntry};

fn map(targets: &[(u32, u32, u64, Consistency)], offline: &[u32]) -> MapReply {
    let mut nodes: Vec<u32> = targets.iter().map(|t| t.1).collect();
    nodes.dedup();
    let node = |node: u32| NodeEntry {
        domain: String::new(),
        node: NodeId(node),
        service: ServiceKind::Storaged,
        alias: String::new(),
        addresses: vec![],
        machine: Uuid::default(),
        reachability: if offline.contains(&node) { Reachability::Offline } else { Reachability::Online },
        incarnation: Incarnation(1),
    };
    MapReply {
        version: MapVersion(1),
        nodes: nodes.into_iter().map(node).collect(),
        targets: targets
            .iter()
            .map(|(target, node, free, consistency)| TargetEntry {
                class: skep_types::CapacityClass::Normal,
                filesystem: 0,
                failures: 0,
                decisions: 0,
                served: true,
                pool: skep_types::PoolId(1),
                target: TargetId(*target),
                alias: String::new(),
                node: NodeId(*node),
                consistency: *consistency,
                capacity: Capacity { bytes: 1 << 40, bytes_free: *free, inodes: 1, inodes_free: 1 },
            })
            .collect(),
        command_level: 1,
        ..MapReply::default()
    }
}

fn spread(map: &MapReply) -> Spread {
    let mut spread = Spread::new(&crate::Config::default());
    spread.update(map);
    spread
}

/// Goal: targets that are bad, offline or full get nothing; none left is ENOSPC with advice.
#[test]
fn unusable_targets_are_skipped() {
    use Consistency::{Bad, Good, NeedsResync};
    let map = map(
        &[(1, 1, 9, Good), (2, 1, 9, Bad), (3, 2, 9, Good), (4, 3, 0, Good), (5, 4, 9, NeedsResync)],
        &[2],
    );
    for _ in 0..50 {
        assert_eq!(spread(&map).choose(PoolId(0), Width::Exactly(4)).unwrap(), [TargetId(1)]);
    }
    let full = self::map(&[(2, 1, 9, Bad), (4, 3, 0, Good)], &[]);
    let refusal = spread(&full).choose(PoolId(0), Width::Exactly(1)).unwrap_err();
    assert_eq!(refusal.status, Status::errno(Errno::ENOSPC));
    assert!(refusal.detail.contains("target list"));
}

/// Goal: a metadata server that has not heard of any target yet waits: nothing is full.
#[test]
fn targets_that_are_not_known_yet_are_waited_for() {
    let mut young = Spread::new(&crate::Config::default());
    assert_eq!(young.choose(PoolId(0), Width::Exactly(1)).unwrap_err().status, Status::BUSY);
    young.update(&map(&[(1, 1, 9, Consistency::Good)], &[]));
    assert_eq!(young.choose(PoolId(0), Width::Exactly(1)).unwrap(), [TargetId(1)]);
}

/// Goal: while nobody was heard lately targets are used all the same; silent for long, they are
/// waited for, which is no lack of space.
#[test]
fn silence_is_no_lack_of_space() {
    let mut map = map(&[(1, 1, 9, Consistency::Good)], &[]);
    for node in &mut map.nodes {
        node.reachability = Reachability::ProbablyOffline;
    }
    assert_eq!(spread(&map).choose(PoolId(0), Width::Exactly(1)).unwrap(), [TargetId(1)]);
    for node in &mut map.nodes {
        node.reachability = Reachability::Offline;
    }
    assert_eq!(spread(&map).choose(PoolId(0), Width::Exactly(1)).unwrap_err().status, Status::BUSY);
}

/// Goal: balanced follows free space, and uses every node before any node twice.
#[test]
fn balanced_weighs_space_and_spreads_over_nodes() {
    use Consistency::Good;
    let map = map(&[(1, 1, 9 << 30, Good), (2, 1, 9 << 30, Good), (3, 2, 1 << 30, Good)], &[]);
    let mut spread = spread(&map);
    let mut third = 0;
    for _ in 0..1_000 {
        third += u32::from(spread.choose(PoolId(0), Width::Exactly(1)).unwrap() == [TargetId(3)]);
    }
    assert!((20..120).contains(&third), "about 1 of 19 expected, got {third} of 1000");
    for _ in 0..50 {
        assert!(
            spread.choose(PoolId(0), Width::Exactly(2)).unwrap().contains(&TargetId(3)),
            "one target of each node"
        );
    }
}

/// Goal: progressive extents end where they should, continue one another, and never repeat a
/// target within one extent; an explicit width is one extent.
#[test]
fn extents_follow_the_plan() {
    use Consistency::Good;
    let targets: Vec<_> = (1..=6u32).map(|n| (n, n.div_ceil(2), 1 << 30, Good)).collect();
    let mut spread = spread(&map(&targets, &[]));
    let at = Continue { ino: Ino(9), generation: Generation(3), number: 0, from: 0, to: 1, like: None };
    let first = spread.extents(None, at).unwrap();
    assert_eq!((first.len(), first[0].end, first[0].stripes.len()), (1, 16 << 20, 1));
    let rest = spread.extents(None, Continue { from: 16 << 20, to: (1 << 30) + 1, ..at }).unwrap();
    assert_eq!((rest[0].start, rest[0].stripes.len()), (16 << 20, 4));
    assert_eq!((rest[1].end, rest[1].stripes.len()), (u64::MAX, 6));
    for extent in &rest {
        let mut targets: Vec<TargetId> = extent.stripes.iter().map(Stripe::first).collect();
        targets.sort();
        targets.dedup();
        assert_eq!(targets.len(), extent.stripes.len());
    }
    let wish = Policy { pool: skep_types::PoolId(0), chunk_size: 65_536, targets: 3, inline_limit: None };
    let fixed = spread.extents(Some(wish), at).unwrap();
    assert_eq!((fixed.len(), fixed[0].end, fixed[0].stripes.len()), (1, u64::MAX, 3));
}

/// `count` targets on nodes of `per_node` each, pool 1, with 1 GiB free.
fn even(count: u32, per_node: u32) -> MapReply {
    let targets: Vec<_> =
        (1..=count).map(|n| (n, (n - 1) / per_node + 1, 1 << 30, Consistency::Good)).collect();
    map(&targets, &[])
}

fn with(chooser: Chooser, map: &MapReply) -> Spread {
    let mut spread = Spread::new(&crate::Config { chooser, ..crate::Config::default() });
    spread.update(map);
    spread
}

fn pick(spread: &mut Spread, width: usize) -> Vec<u32> {
    spread.choose(PoolId(0), Width::Exactly(width)).unwrap().into_iter().map(|target| target.0).collect()
}

/// How often each target is taken in `rounds` rounds; no extent has one twice.
fn histogram(spread: &mut Spread, width: usize, rounds: usize) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..rounds {
        let targets = pick(spread, width);
        let mut different = targets.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!((different.len(), targets.len()), (width, width));
        targets.iter().for_each(|target| *counts.entry(*target).or_default() += 1);
    }
    counts
}

const ALL: [Chooser; 5] = [
    Chooser::Balanced,
    Chooser::Randomized,
    Chooser::RoundRobin,
    Chooser::RandomRobin,
    Chooser::RandomInterNode,
];

/// Goal: every chooser uses equal targets equally (within 5 standard deviations of a binomial), gives as
/// many as there are when more are asked, and is determined by its seed.
#[test]
fn every_chooser_is_even_among_equals() {
    for chooser in ALL {
        let map = even(12, 3);
        let counts = histogram(&mut with(chooser, &map), 4, 6_000);
        assert_eq!(counts.len(), 12, "{chooser:?}");
        for (target, count) in counts {
            // 6,000 rounds, 1 in 3: expected 2,000, standard deviation 36.5.
            assert!((1_815..=2_185).contains(&count), "{chooser:?}: target {target} {count} times");
        }
        assert_eq!(pick(&mut with(chooser, &map), 99).len(), 12);
        let (mut one, mut other) = (with(chooser, &map), with(chooser, &map));
        assert!((0..100).all(|_| pick(&mut one, 5) == pick(&mut other, 5)));
    }
}

/// Goal: round robin goes on after the last target used, also where that is gone; random robin takes the
/// same ones in another order; every pool has a place of its own.
#[test]
fn robins() {
    let mut map = even(5, 1);
    let mut robin = with(Chooser::RoundRobin, &map);
    assert_eq!((pick(&mut robin, 2), pick(&mut robin, 2)), (vec![1, 2], vec![3, 4]));
    assert_eq!(pick(&mut robin, 3), [5, 1, 2]);
    map.targets.retain(|target| target.target != TargetId(2));
    robin.update(&map);
    assert_eq!(pick(&mut robin, 2), [3, 4]);
    let mut shuffled = with(Chooser::RandomRobin, &even(6, 1));
    let mut orders = alloc::collections::BTreeSet::new();
    for round in 0..400 {
        let targets = pick(&mut shuffled, 3);
        let mut sorted = targets.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, if round % 2 == 0 { [1, 2, 3] } else { [4, 5, 6] });
        orders.insert(targets);
    }
    assert_eq!(orders.len(), 12, "every order of both");
}

/// Goal: randomized takes one of each part of the ring: with half of all wanted no two neighbours of a
/// part, and every part at once.
#[test]
fn randomized_cuts_the_ring() {
    let mut spread = with(Chooser::Randomized, &even(8, 1));
    for _ in 0..500 {
        let targets = pick(&mut spread, 4);
        // Some rotation of the ring has exactly one target in each pair of places.
        let fits = |start: u32| {
            let mut parts: Vec<u32> = targets.iter().map(|t| (t - 1 + 8 - start) % 8 / 2).collect();
            parts.sort_unstable();
            parts == [0, 1, 2, 3]
        };
        assert!((0..8).any(fits), "{targets:?}");
    }
}

/// Goal: randominternode and balanced take every failure domain once before any a second time; a domain
/// may be several nodes, then balanced takes each of these once first.
#[test]
fn domains_come_before_nodes() {
    let mut map = even(12, 2);
    for node in &mut map.nodes {
        // Nodes 1 to 4 in one rack, 5 and 6 in racks of their own.
        node.domain = if node.node.0 <= 4 { "rack1".into() } else { String::new() };
    }
    let rack = |target: u32| target.div_ceil(2).max(4);
    for chooser in [Chooser::RandomInterNode, Chooser::Balanced] {
        let mut spread = with(chooser, &map);
        for _ in 0..300 {
            let mut racks: Vec<u32> = pick(&mut spread, 3).into_iter().map(rack).collect();
            racks.sort_unstable();
            assert_eq!(racks, [4, 5, 6], "{chooser:?}");
            let mut racks: Vec<u32> = pick(&mut spread, 6).into_iter().map(rack).collect();
            racks.sort_unstable();
            assert_eq!(racks, [4, 4, 5, 5, 6, 6], "{chooser:?}");
        }
    }
    let mut balanced = with(Chooser::Balanced, &map);
    for _ in 0..300 {
        let all = pick(&mut balanced, 8);
        let nodes: alloc::collections::BTreeSet<u32> = all.iter().map(|target| target.div_ceil(2)).collect();
        assert_eq!(nodes.len(), 6, "each node of the rack before one twice");
    }
}

/// Goal: fuller classes help out only where the emptier ones have not enough, for every chooser; the
/// extent over all targets takes those with space enough only.
#[test]
fn classes() {
    let mut map = even(9, 1);
    for target in &mut map.targets {
        target.class = match target.target.0 {
            1..=3 => CapacityClass::Emergency,
            4..=6 => CapacityClass::Low,
            _ => CapacityClass::Normal,
        };
    }
    for chooser in ALL {
        let mut spread = with(chooser, &map);
        for _ in 0..100 {
            assert!(pick(&mut spread, 2).iter().all(|target| *target >= 7));
            let targets = pick(&mut spread, 5);
            assert_eq!(targets.iter().filter(|target| **target >= 7).count(), 3, "{chooser:?}");
            assert_eq!(targets.iter().filter(|target| (4..=6).contains(*target)).count(), 2);
            assert_eq!(pick(&mut spread, 8).iter().filter(|target| **target <= 3).count(), 2);
            let all = spread.choose(PoolId(0), Width::All).unwrap();
            assert!(all.len() == 3 && all.iter().all(|target| target.0 >= 7));
        }
    }
    map.targets.retain(|target| target.class != CapacityClass::Normal);
    let all = with(Chooser::Balanced, &map).choose(PoolId(0), Width::All).unwrap();
    assert!(all.len() == 3 && all.iter().all(|target| (4..=6).contains(&target.0)));
}

/// Goal: targets come from the pool of the wish and no other; a pool without room, without targets and one
/// that does not exist are refused by name.
#[test]
fn pools() {
    let mut map = even(6, 1);
    let entry = |pool, alias: &str| skep_wire::mgmt::PoolEntry { pool: PoolId(pool), alias: alias.into() };
    map.pools = vec![entry(1, "default"), entry(2, "hot"), entry(3, "bare")];
    for target in &mut map.targets {
        target.pool = PoolId(if target.target.0 <= 4 { 1 } else { 2 });
    }
    for chooser in ALL {
        let mut spread = with(chooser, &map);
        for _ in 0..50 {
            assert!(pick(&mut spread, 9).iter().all(|target| *target <= 4));
            let hot = spread.choose(PoolId(2), Width::Exactly(4)).unwrap();
            assert!(hot.len() == 2 && hot.iter().all(|target| target.0 > 4));
        }
    }
    for target in map.targets.iter_mut().filter(|target| target.pool == PoolId(2)) {
        target.capacity.bytes_free = 0;
    }
    let mut spread = with(Chooser::Balanced, &map);
    for (pool, text) in [(2, "2 (hot)"), (3, "3 (bare) has no targets"), (4, "does not exist")] {
        let refusal = spread.choose(PoolId(pool), Width::Exactly(1)).unwrap_err();
        assert_eq!(refusal.status, Status::errno(Errno::ENOSPC));
        assert!(refusal.detail.contains(text), "{}", refusal.detail);
    }
    assert!(spread.check_pool(Millis(5), PoolId(2)).is_ok());
    assert_eq!(spread.check_pool(Millis(5), PoolId(4)).unwrap_err().status, Status::BUSY);
    assert!(spread.take_wants_map() && !spread.take_wants_map());
    let late = spread.check_pool(Millis(5 + POOL_WAIT_MS), PoolId(4)).unwrap_err();
    assert_eq!(late.status, Status::errno(Errno::EINVAL));
    assert!(late.detail.contains("pool list"));
    map.pools.push(entry(4, "new"));
    spread.update(&map);
    assert!(spread.check_pool(Millis(5), PoolId(4)).is_ok());
}

/// Goal: a layout to be like is followed extent by extent where it has the same shape and its targets are
/// as good as others, and not otherwise; what was asked for is told beside what was got.
#[test]
fn like_another_file() {
    let map = even(6, 1);
    let mut spread = with(Chooser::Balanced, &map);
    let at = Continue { ino: Ino(9), generation: Generation(3), number: 0, from: 0, to: 2 << 30, like: None };
    let source = Layout {
        generation: Generation(1),
        trims: Default::default(),
        extents: spread.extents(None, at).unwrap(),
    };
    assert_eq!(spread.asked(None, &source), [1, 4, 0]);
    for _ in 0..20 {
        let copy = spread.extents(None, Continue { like: Some(&source), ..at }).unwrap();
        for (one, other) in copy.iter().zip(&source.extents) {
            assert_eq!((one.origin, &one.stripes), (Ino(9), &other.stripes));
        }
    }
    let wide = Policy { targets: 3, ..Policy::default() };
    let fixed = spread.extents(Some(wide), Continue { like: Some(&source), ..at }).unwrap();
    assert_eq!((fixed.len(), fixed[0].stripes.len()), (1, 3));
    let asked = Policy { targets: 9, ..Policy::default() };
    let fewer = Layout {
        generation: Generation(1),
        trims: Default::default(),
        extents: spread.extents(Some(asked), at).unwrap(),
    };
    assert_eq!((spread.asked(Some(asked), &fewer), fewer.extents[0].stripes.len()), (vec![9], 6));
    let mut less = map.clone();
    let gone = source.extents[0].stripes[0].first();
    less.targets.retain(|target| target.target != gone);
    spread.update(&less);
    let copy = spread.extents(None, Continue { like: Some(&source), ..at }).unwrap();
    assert!(copy.iter().all(|extent| !extent.stripes.contains(&Stripe::on(gone))));
}

/// Goal: a target that a client found full is not asked until its free space has grown: figures that are older than the
/// finding do not count, nor does a little; without any it is tried again after a while.
#[test]
fn a_full_target_is_used_again_when_it_has_room() {
    let with = |free| map(&[(1, 1, free, Consistency::Good)], &[]);
    let chosen = |spread: &mut Spread| spread.choose(PoolId(0), Width::Exactly(1)).is_ok();
    let mut spread = spread(&with(500 << 20));
    spread.note_full(TargetId(1));
    let reports: [(u64, bool); 6] = [
        (500 << 20, false),
        (9, false),
        (9 + ROOM_AGAIN - 1, false),
        (7, false),
        (7 + ROOM_AGAIN, true),
        (7, true),
    ];
    for (free, usable) in reports {
        spread.update(&with(free));
        assert_eq!(chosen(&mut spread), usable, "{free}");
    }
    spread.note_full(TargetId(1));
    spread.set_now(Millis(FULL_MS - 1));
    assert!(!chosen(&mut spread));
    spread.set_now(Millis(FULL_MS));
    assert!(chosen(&mut spread));
}
