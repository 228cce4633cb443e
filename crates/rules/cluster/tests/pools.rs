//! Pools, capacity classes, aliases and removals through the registry's only door.

mod bed;

use bed::{Cluster, heartbeat, registration};
use skep_cluster::Command;
use skep_types::CapacityClass::{Emergency, Low, Normal};
use skep_types::{CapacityClass, Errno, MapVersion, NodeId, PoolId, ServiceKind, TargetId, Uuid};
use skep_wire::Refusal;
use skep_wire::mgmt::*;

/// One storage server with three targets, 101 to 103, of 1,000 bytes, all free.
fn cluster() -> Cluster {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    for n in 0..3 {
        c.target(1, 50 + n, 0).unwrap();
    }
    c
}

fn limits(low: u64, emergency: u64) -> CapacityLimits {
    let bytes = SpaceLimits { low: Some(low), emergency: Some(emergency), ..SpaceLimits::default() };
    CapacityLimits { bytes, ..CapacityLimits::default() }
}

fn create(c: &mut Cluster, alias: &str, targets: &[u32]) -> Result<PoolId, Refusal> {
    let targets = targets.iter().copied().map(TargetId).collect();
    let limits = CapacityLimits::default();
    c.ask(0, CreatePool { alias: alias.into(), targets, limits }).map(|reply| reply.pool)
}

fn assign(c: &mut Cluster, pool: PoolId, targets: &[u32]) -> Result<(), Refusal> {
    let targets = targets.iter().copied().map(TargetId).collect();
    c.ask(0, AssignTargets { pool, targets }).map(drop)
}

fn pools(c: &mut Cluster) -> Vec<u32> {
    c.map().targets.iter().map(|target| target.pool.0).collect()
}

fn class(c: &mut Cluster, target: u32) -> CapacityClass {
    c.map().targets.iter().find(|entry| entry.target == TargetId(target)).unwrap().class
}

/// (status, text) of a refusal.
fn refused<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> (Option<Errno>, String) {
    let refusal = answer.unwrap_err();
    (refusal.status.as_errno(), refusal.detail)
}

/// Goal: new targets are in the default pool; a pool is made with targets, given others, renamed and
/// deleted when it is empty; its number is not given again, and all of it survives a restart.
#[test]
fn the_life_of_a_pool() {
    let mut c = cluster();
    assert_eq!(pools(&mut c), [1, 1, 1]);
    let before = c.map().version;
    let hot = create(&mut c, "hot", &[102]).unwrap();
    assert_eq!((hot, pools(&mut c)), (PoolId(2), vec![1, 2, 1]));
    assert!(c.map().version > before);
    assign(&mut c, hot, &[101, 102]).unwrap();
    c.ask(0, RenamePool { pool: hot, alias: "fast".into() }).unwrap();
    let aliases: Vec<_> = c.map().pools.into_iter().map(|pool| pool.alias).collect();
    assert_eq!((aliases, pools(&mut c)), (vec!["default".to_string(), "fast".into()], vec![2, 2, 1]));
    let (errno, text) = refused(c.ask(0, DeletePool { pool: hot }));
    assert!(errno == Some(Errno::EBUSY) && text.contains("target-101, target-102"), "{text}");
    assign(&mut c, PoolId(1), &[101, 102]).unwrap();
    c.ask(0, DeletePool { pool: hot }).unwrap();
    c.restart();
    assert_eq!(create(&mut c, "hot", &[103]).unwrap(), PoolId(3));
    assert_eq!(pools(&mut c), [1, 1, 3]);
    let (errno, _) = refused(c.ask(0, DeletePool { pool: PoolId(1) }));
    assert_eq!(errno, Some(Errno::EBUSY), "the default pool stays");
    assert!(c.ask(0, RenamePool { pool: PoolId(1), alias: "bulk".into() }).is_ok());
}

/// Goal: of a list of targets all are moved or none; unknown pools and targets, and the limit of pools,
/// are told; nothing changed leaves no trace in the log.
#[test]
fn wrong_pools_are_refused() {
    let mut c = cluster();
    let log = c.log.len();
    assert_eq!(refused(create(&mut c, "hot", &[101, 999])).0, Some(Errno::ENOENT));
    assert_eq!(refused(assign(&mut c, PoolId(9), &[101])).0, Some(Errno::ENOENT));
    assert_eq!(refused(assign(&mut c, PoolId(1), &[101, 7])).0, Some(Errno::ENOENT));
    assert_eq!(refused(create(&mut c, "target-101", &[])).0, Some(Errno::EEXIST));
    assert!(refused(create(&mut c, "9", &[])).1.contains("not digits only"));
    assert!(refused(create(&mut c, "", &[])).0 == Some(Errno::EINVAL));
    assign(&mut c, PoolId(1), &[101]).unwrap();
    for wrong in [
        limits(10, 20),
        CapacityLimits {
            bytes: SpaceLimits { low: Some(9), low_dynamic: Some(8), ..Default::default() },
            ..Default::default()
        },
    ] {
        let refusal = refused(c.ask(0, SetCapacityLimits { pool: PoolId(1), limits: wrong }));
        assert!(refusal.0 == Some(Errno::EINVAL) && refusal.1.contains("bytes"), "{}", refusal.1);
    }
    assert_eq!((c.log.len(), pools(&mut c)), (log, vec![1, 1, 1]));
    create(&mut c, "a", &[]).unwrap();
    create(&mut c, "b", &[]).unwrap();
    assert!(refused(create(&mut c, "c", &[])).1.contains("max_pools"));
}

/// Goal: a target's class follows its reports and its pool's limits; the map moves when it changes and
/// not while it stays; a restart keeps it until the target is heard again.
#[test]
fn classes_move_the_map() {
    let mut c = cluster();
    c.ask(0, SetCapacityLimits { pool: PoolId(1), limits: limits(300, 100) }).unwrap();
    c.report(1, 101, 300);
    c.pass(500);
    assert_eq!((class(&mut c, 101), class(&mut c, 102)), (Normal, Normal));
    c.report(1, 101, 299);
    c.pass(500);
    let version = c.map().version;
    assert_eq!(class(&mut c, 101), Low);
    for free in [305, 290, 310, 300] {
        c.report(1, 101, free);
        c.pass(100);
    }
    assert_eq!((class(&mut c, 101), c.map().version), (Low, version), "near the limit nothing moves");
    c.report(1, 101, 99);
    c.pass(500);
    assert_eq!(class(&mut c, 101), Emergency);
    let classes = c.log.iter().filter(|command| matches!(command, Command::SetClass(_))).count();
    assert_eq!(classes, 2);
    c.restart();
    c.pass(500);
    assert_eq!(class(&mut c, 101), Emergency, "registered empty, and not heard since");
    c.report(1, 101, 1_000);
    c.pass(500);
    assert_eq!((class(&mut c, 101), class(&mut c, 102)), (Normal, Normal));
    // Limits of another pool count as soon as the target is there; so do new limits.
    let hot = create(&mut c, "hot", &[101]).unwrap();
    c.ask(0, SetCapacityLimits { pool: hot, limits: limits(2_000, 0) }).unwrap();
    assert_eq!((class(&mut c, 101), class(&mut c, 102)), (Low, Normal));
    assign(&mut c, PoolId(1), &[101]).unwrap();
    assert_eq!(class(&mut c, 101), Normal);
}

/// Goal: a failed disk, which reports no space at all, keeps its class; the file system that a daemon
/// names comes into the map, and is logged once.
#[test]
fn reports_of_a_failed_disk_and_of_a_file_system() {
    let mut c = cluster();
    c.report(1, 101, 900);
    c.report(1, 101, 900);
    assert_eq!(c.map().targets[0].filesystem, 7);
    let sets = c.log.iter().filter(|command| matches!(command, Command::SetTarget(_))).count();
    assert_eq!(sets, 3 + 1, "three registrations, one file system");
    let report = TargetReport {
        target: TargetId(101),
        consistency: skep_types::Consistency::Bad,
        failures: 1,
        capacity: skep_types::Capacity::default(),
        filesystem: 0,
        mark: None,
    };
    c.beat(1, vec![report]);
    c.pass(500);
    assert_eq!((class(&mut c, 101), c.map().targets[0].filesystem), (Normal, 7));
}

/// Goal: with dynamic limits a target that is much fuller than the others is low, until its daemon's
/// absence takes the empty ones out of the comparison.
#[test]
fn dynamic_limits_compare_living_targets() {
    let mut c = cluster();
    c.node(2, ServiceKind::Storaged, "").unwrap();
    c.target(2, 60, 0).unwrap();
    let set = CapacityLimits { dynamic: true, ..limits(100, 10) };
    c.ask(0, SetCapacityLimits { pool: PoolId(1), limits: set }).unwrap();
    for (node, target, free) in [(1, 101, 150), (1, 102, 150), (1, 103, 150), (2, 104, 900)] {
        c.report(node, target, free);
    }
    c.pass(500);
    assert_eq!((class(&mut c, 101), class(&mut c, 104)), (Low, Normal));
    for _ in 0..20 {
        c.pass(1_000);
        c.report(1, 101, 150);
    }
    c.pass(500);
    assert_eq!(class(&mut c, 101), Normal, "the emptier one is offline: nothing to compare with");
}

/// Goal: aliases change at once and for all, are unique over nodes, targets and pools, survive a restart
/// of the daemon, and a made-up one that is taken makes no newcomer fail.
#[test]
fn aliases_change_and_stay_unique() {
    let mut c = cluster();
    let version = c.map().version;
    c.ask(0, SetTargetAlias { target: TargetId(101), alias: "ssd".into() }).unwrap();
    c.ask(0, SetNodeAlias { node: NodeId(1), alias: "target-104".into() }).unwrap();
    let map = c.map();
    assert!(map.version > version);
    assert_eq!((map.targets[0].alias.as_str(), map.nodes[0].alias.as_str()), ("ssd", "target-104"));
    let (errno, text) = refused(c.ask(0, SetTargetAlias { target: TargetId(102), alias: "ssd".into() }));
    assert!(errno == Some(Errno::EEXIST) && text.contains("target 101"), "{text}");
    assert_eq!(
        refused(c.ask(0, SetNodeAlias { node: NodeId(1), alias: "default".into() })).0,
        Some(Errno::EEXIST)
    );
    assert_eq!(refused(c.ask(0, SetNodeAlias { node: NodeId(8), alias: "x".into() })).0, Some(Errno::ENOENT));
    assert_eq!(c.target(1, 60, 0).unwrap().alias, "target-104-2", "made up, and taken");
    c.restart();
    assert_eq!(c.node(1, ServiceKind::Storaged, "").unwrap().alias, "target-104");
    assert_eq!(c.target(1, 50, 101).unwrap().alias, "ssd");
}

/// Goal: an administrator's alias holds against the one that a configuration wished for before, not against
/// a new wish; a wish that is taken is refused.
#[test]
fn an_alias_holds_until_the_configuration_changes() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "disk-a").unwrap();
    c.ask(0, SetNodeAlias { node: NodeId(1), alias: "rack7".into() }).unwrap();
    assert_eq!(c.node(1, ServiceKind::Storaged, "disk-a").unwrap().alias, "rack7");
    assert_eq!(c.node(1, ServiceKind::Storaged, "").unwrap().alias, "rack7", "no wish any more");
    assert_eq!(c.node(2, ServiceKind::Storaged, "disk-a").unwrap().alias, "disk-a", "free again");
    assert_eq!(c.node(1, ServiceKind::Storaged, "disk-b").unwrap().alias, "disk-b");
    assert!(refused(c.node(1, ServiceKind::Storaged, "disk-a")).1.contains("taken by node 2"));
}

/// Goal: a target in a pool is removed by force only, one in no pool at once; it is gone from the map,
/// its number is not given again, and its daemon is told when it comes with the disk again.
#[test]
fn targets_are_removed() {
    let mut c = cluster();
    let (errno, text) = refused(c.ask(0, RemoveTarget { target: TargetId(103), force: false }));
    assert!(errno == Some(Errno::EBUSY) && text.contains("pool default"), "{text}");
    assign(&mut c, PoolId(0), &[103]).unwrap();
    assert_eq!(pools(&mut c), [1, 1, 0]);
    let version = c.map().version;
    c.ask(0, RemoveTarget { target: TargetId(103), force: false }).unwrap();
    c.ask(0, RemoveTarget { target: TargetId(102), force: true }).unwrap();
    assert!(c.map().version > version);
    assert_eq!(refused(c.ask(0, RemoveTarget { target: TargetId(103), force: true })).0, Some(Errno::ENOENT));
    c.restart();
    assert_eq!(c.map().targets.len(), 1);
    for id in [103, 0] {
        let (errno, text) = refused(c.target(1, 52, id));
        assert!(errno == Some(Errno::ESTALE) && text.contains("target 103 was removed"), "{text}");
    }
    // A late report of it, or of its space, changes nothing.
    c.report(1, 103, 10);
    c.pass(10_000);
    assert_eq!(c.map().targets.len(), 1);
    assert_eq!(c.target(1, 70, 0).unwrap().target, TargetId(104), "a new one");
}

/// Goal: a node is removed only when it is offline and has neither targets nor shards; its number is not
/// given again, and its daemon comes back as another node.
#[test]
fn nodes_are_removed() {
    let mut c = cluster();
    c.node(2, ServiceKind::Metad, "").unwrap();
    c.node(3, ServiceKind::Storaged, "spare").unwrap();
    c.node(4, ServiceKind::Mgmtd, "").unwrap();
    let remove = |c: &mut Cluster, node| c.ask(0, RemoveNode { node: NodeId(node) });
    let busy = |answer| {
        let (errno, text) = refused(answer);
        assert_eq!(errno, Some(Errno::EBUSY), "{text}");
        text
    };
    assert!(busy(remove(&mut c, 3)).contains("online"));
    c.pass(6_000);
    assert!(busy(remove(&mut c, 3)).contains("probably-offline"));
    c.pass(10_000);
    assert!(busy(remove(&mut c, 1)).contains("3 targets"));
    assert!(busy(remove(&mut c, 2)).contains("shards"));
    assert!(busy(remove(&mut c, 4)).contains("stop it first"), "mgmtd itself");
    remove(&mut c, 3).unwrap();
    assert_eq!(refused(remove(&mut c, 3)).0, Some(Errno::ENOENT));
    c.restart();
    assert_eq!(c.map().nodes.len(), 3);
    assert!(c.registry.state().offline.iter().all(|node| c.registry.state().nodes.contains_key(node)));
    assert_eq!(c.node(3, ServiceKind::Storaged, "spare").unwrap().node, NodeId(5));
}

/// Goal: a node's failure domain is what its daemon says, else its machine; nonsense is refused; a change
/// moves the map.
#[test]
fn failure_domains() {
    let mut c = cluster();
    assert_eq!(c.map().nodes[0].domain, Uuid([1; 16]).to_string());
    let register =
        |domain: &str| RegisterNode { domain: domain.into(), ..registration(1, ServiceKind::Storaged, "") };
    let version = c.map().version;
    c.ask(0, register("dc1/rack-7")).unwrap();
    assert!(c.map().version > version);
    assert_eq!(c.map().nodes[0].domain, "dc1/rack-7");
    for wrong in ["rack 7", "r\u{e4}ck", &"x".repeat(65)] {
        assert_eq!(refused(c.ask(0, register(wrong))).0, Some(Errno::EINVAL), "{wrong}");
    }
}

/// Goal: what a server says of its map is shown, until it registers anew.
#[test]
fn maps_that_servers_act_upon_are_shown() {
    let mut c = cluster();
    let map = c.map().version;
    let beat = Heartbeat { map, ..heartbeat(1, 1) };
    assert_eq!(c.status().nodes[0].map, MapVersion(0));
    c.ask(0, beat).unwrap();
    assert_eq!(c.status().nodes[0].map, map);
    c.node(1, ServiceKind::Storaged, "").unwrap();
    assert_eq!(c.status().nodes[0].map, MapVersion(0), "a new life knows nothing yet");
}

/// Goal: changes of pools, classes and members that could not be logged are taken back wholly.
#[test]
fn unlogged_changes_of_pools_are_taken_back() {
    let mut c = cluster();
    c.ask(0, SetCapacityLimits { pool: PoolId(1), limits: limits(300, 100) }).unwrap();
    let logged = c.registry.state().clone();
    let version = c.map().version;
    create(&mut c, "hot", &[102]).unwrap();
    c.ask(0, RemoveTarget { target: TargetId(103), force: true }).unwrap();
    c.ask(0, SetTargetAlias { target: TargetId(101), alias: "ssd".into() }).unwrap();
    c.report(1, 101, 50);
    c.pass(500);
    assert_eq!(class(&mut c, 101), Emergency);
    c.registry.roll_back(c.now, logged.clone());
    assert_eq!(c.registry.state(), &logged);
    let map = c.map();
    assert!(map.version > version);
    assert_eq!((map.targets.len(), map.pools.len(), map.targets[0].alias.as_str()), (3, 1, "target-101"));
    c.pass(500);
    assert_eq!(class(&mut c, 101), Emergency, "the report still counts");
    assert_eq!(create(&mut c, "cold", &[103]).unwrap(), PoolId(2), "the number was never given");
}
