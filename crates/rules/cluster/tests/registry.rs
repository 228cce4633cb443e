//! The registry through its only door: `step`.

mod bed;

use bed::{CONFIG, Cluster, heartbeat, registration};
use skep_cluster::{Input, Peer, Registry, State};
use skep_types::{
    Capacity, Consistency, Decode, Encode, FenceEpoch, MapVersion, NodeId, Reachability, ServiceKind,
    TargetId, Term, Uuid,
};
use skep_wire::Status;
use skep_wire::mgmt::*;

/// Goal: the same daemon keeps its id and alias, another gets its own; a wrong kind is refused.
#[test]
fn nodes_are_recognised_by_their_uuid() {
    let mut c = Cluster::new();
    assert_eq!(c.node(1, ServiceKind::Metad, "").unwrap().alias, "metad-1");
    assert_eq!(c.node(2, ServiceKind::Storaged, "disk-a").unwrap().node, NodeId(2));
    assert_eq!(c.node(1, ServiceKind::Metad, "").unwrap().node, NodeId(1));
    assert!(c.node(1, ServiceKind::Storaged, "").unwrap_err().detail.contains("metad-1"));
    assert!(c.node(3, ServiceKind::Storaged, "disk-a").unwrap_err().detail.contains("taken"));
    assert!(c.node(3, ServiceKind::Storaged, "a b").is_err());
    assert!(c.node(3, ServiceKind::Storaged, "12").is_err());
}

/// Goal: all shards go to the first metadata server and stay there.
#[test]
fn the_first_metad_gets_all_shards() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    assert!(c.map().shards.iter().all(|shard| shard.members.is_empty()));
    c.node(2, ServiceKind::Metad, "").unwrap();
    c.node(3, ServiceKind::Metad, "").unwrap();
    let map = c.map();
    assert_eq!(map.shards.len(), 4);
    assert!(map.shards.iter().all(|shard| shard.members == [NodeId(2)] && shard.epoch == 1));
}

/// Goal: the shards of a cluster that is made for several metadata servers wait for all of them, are spread evenly, and stay
/// where they are: who comes later gets none, and a restart changes nothing.
#[test]
fn shards_are_spread_over_the_metads_of_a_new_cluster() {
    let mut c = Cluster::of_metas(3);
    c.node(1, ServiceKind::Metad, "").unwrap();
    c.node(2, ServiceKind::Metad, "").unwrap();
    c.node(2, ServiceKind::Metad, "").unwrap();
    assert!(c.map().shards.iter().all(|shard| shard.members.is_empty()), "one is missing");
    let last = MgmtRequest::from(registration(3, ServiceKind::Metad, "m3"));
    let peer = Peer::default();
    let notes = c.step(Input::Request { reply_to: 7, peer, request: last }).notes;
    let told = notes.iter().find(|note| note.contains("4 shards are spread")).unwrap();
    assert!(told.contains(": metad-1, metad-2, m3; whoever registers later gets none"), "{told}");
    assert!(c.node(4, ServiceKind::Metad, "").is_ok());
    let placed = |c: &mut Cluster| {
        c.map().shards.iter().map(|entry| (entry.members.clone(), entry.epoch)).collect::<Vec<_>>()
    };
    let expected: Vec<_> = [1, 2, 3, 1].into_iter().map(|node| (vec![NodeId(node)], 1)).collect();
    assert_eq!(placed(&mut c), expected);
    assert_eq!(c.replayed(), *c.registry.state());
    c.restart();
    c.node(2, ServiceKind::Metad, "").unwrap();
    assert_eq!(placed(&mut c), expected);
}

/// Goal: foreign, copied and edited identity files are refused; a retry gets the same id.
#[test]
fn targets_are_recognised_by_uuid_and_id() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    assert_eq!(c.target(1, 50, 0).unwrap().target, TargetId(101));
    assert_eq!(c.target(1, 50, 0).unwrap().target, TargetId(101), "the answer was lost, asked again");
    assert_eq!(c.target(1, 51, 0).unwrap().target, TargetId(102));
    assert!(c.target(1, 50, 102).is_err(), "id of another target");
    assert!(c.target(1, 77, 101).is_err(), "unknown uuid with an id");
    assert!(c.target(9, 50, 101).is_err(), "unknown node");
}

/// Goal: silence moves a node to probably offline and offline at the configured times, a
/// heartbeat brings it back, and the map version moves with each.
#[test]
fn silence_is_noticed() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    let mut version = c.map().version;
    for (wait, expected) in [
        (4_999, Reachability::Online),
        (1, Reachability::ProbablyOffline),
        (9_999, Reachability::ProbablyOffline),
        (1, Reachability::Offline),
    ] {
        c.pass(wait);
        let map = c.map();
        let was = c.registry.map(MapVersion(0)).nodes[0].reachability;
        assert_eq!(was, expected);
        assert_eq!(map.version > version, expected != Reachability::Online && wait != 9_999);
        version = map.version;
    }
    assert!(c.beat(1, vec![]).map > version);
    assert_eq!(c.map().nodes[0].reachability, Reachability::Online);
}

/// Goal: a heartbeat of an earlier life does not keep a node alive.
#[test]
fn an_earlier_life_is_refused() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    assert!(c.ask(0, heartbeat(1, 0)).is_err());
}

fn state_report(consistency: Consistency, failures: u64) -> TargetReport {
    let (target, capacity) = (TargetId(101), Capacity::default());
    TargetReport { filesystem: 0, target, consistency, failures, capacity, mark: None }
}

/// Goal: a bad target stays bad whatever its daemon says, until an administrator decides; his word answers the failures
/// that were heard of, and the map says which these are; a later failure is news, an answered one is none.
#[test]
fn bad_sticks() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    c.target(1, 50, 0).unwrap();
    let set = |c: &mut Cluster, consistency| {
        c.ask(0, SetTargetState { target: TargetId(101), consistency }).unwrap();
    };
    let shown = |c: &mut Cluster| {
        let entry = &c.map().targets[0];
        (entry.consistency, entry.failures, entry.decisions)
    };
    c.beat(1, vec![state_report(Consistency::Bad, 1)]);
    c.beat(1, vec![state_report(Consistency::Good, 0)]);
    assert_eq!(shown(&mut c), (Consistency::Bad, 1, 0));
    set(&mut c, Consistency::Good);
    // Its daemon has not heard of that yet, and says what it said before.
    c.beat(1, vec![state_report(Consistency::Bad, 1)]);
    assert_eq!(shown(&mut c), (Consistency::Good, 1, 1));
    c.beat(1, vec![state_report(Consistency::Good, 1)]);
    c.beat(1, vec![state_report(Consistency::Bad, 2)]);
    assert_eq!(shown(&mut c), (Consistency::Bad, 2, 1), "its disk failed again");
    set(&mut c, Consistency::Good);
    c.restart();
    assert_eq!(shown(&mut c), (Consistency::Good, 2, 2));
    let known = c.target(1, 50, 101).unwrap();
    assert_eq!((known.consistency, known.failures, known.decisions), (Consistency::Good, 2, 2));
}

/// Goal: a word that was said before a failure was heard of does not answer it: the target is bad as soon as its daemon
/// is heard.
#[test]
fn a_word_does_not_answer_what_nobody_had_heard_of() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    c.target(1, 50, 0).unwrap();
    c.ask(0, SetTargetState { target: TargetId(101), consistency: Consistency::Good }).unwrap();
    assert_eq!(c.map().targets[0].failures, 0);
    c.beat(1, vec![state_report(Consistency::Bad, 1)]);
    assert_eq!(c.map().targets[0].consistency, Consistency::Bad);
}

/// Goal: a target that its daemon does not list is served by nobody, at once and until it is listed or registered
/// again; a daemon that signs off or is silent says nothing about that.
#[test]
fn a_target_that_no_daemon_lists_is_not_served() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    c.node(2, ServiceKind::Storaged, "").unwrap();
    c.target(1, 50, 0).unwrap();
    c.target(2, 51, 0).unwrap();
    let served = |c: &mut Cluster| c.map().targets.iter().map(|target| target.served).collect::<Vec<_>>();
    assert_eq!(served(&mut c), [true, true]);
    c.beat(1, vec![state_report(Consistency::Good, 0)]);
    assert_eq!(served(&mut c), [true, true], "of the other nothing was heard");
    let version = c.map().version;
    let news = c.beat(1, vec![]).map;
    assert!(news > version, "everybody is told");
    assert_eq!(served(&mut c), [false, true]);
    assert_eq!(c.beat(1, vec![]).map, news, "told once");
    c.beat(1, vec![state_report(Consistency::Good, 0)]);
    assert_eq!(served(&mut c), [true, true]);
    c.beat(1, vec![]);
    c.target(2, 50, 101).unwrap();
    assert_eq!(served(&mut c), [true, true], "another daemon has taken the disk over");
    c.beat(1, vec![]);
    assert_eq!(served(&mut c), [true, true], "which is no business of the first one");
}

/// Goal: a silent session is evicted by one decision with a higher epoch; its client is told when
/// it speaks again; an id is never given twice.
#[test]
fn silent_sessions_are_fenced() {
    let mut c = Cluster::new();
    let a = c.session(1);
    assert_eq!(c.session(1).client, a.client, "asked again: the same session");
    let b = c.session(2);
    assert_ne!(a.client, b.client);
    c.pass(59_000);
    c.ask(b.client.0, RenewSession { client: b.client }).unwrap();
    c.pass(1_000);
    let fences = c.ask(0, GetFences {}).unwrap();
    assert_eq!(fences.fences, [Fence { client: a.client, epoch: FenceEpoch(2) }]);
    assert_eq!(fences.sessions, [b.client]);
    assert_eq!(c.ask(a.client.0, RenewSession { client: a.client }).unwrap_err().status, Status::FENCED);
    c.ask(b.client.0, CloseSession { client: b.client, died: false }).unwrap();
    c.ask(b.client.0, CloseSession { client: b.client, died: false }).unwrap();
    let fences = c.ask(0, GetFences {}).unwrap();
    assert_eq!((fences.epoch, fences.closed), (FenceEpoch(2), vec![b.client]));
    assert!(c.session(3).client > b.client);
}

/// Goal: a client cannot renew or close the session of another one.
#[test]
fn a_client_speaks_for_itself() {
    let mut c = Cluster::new();
    let (a, b) = (c.session(1), c.session(2));
    assert_eq!(
        c.ask(a.client.0, CloseSession { client: b.client, died: false }).unwrap_err().status,
        Status::ROLE
    );
    assert_eq!(c.ask(a.client.0, RenewSession { client: b.client }).unwrap_err().status, Status::ROLE);
}

/// Goal: log and snapshot give back the same state; a restart gives everybody a fresh time-out
/// and a higher map version.
#[test]
fn restart_gives_back_the_same_state() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Metad, "").unwrap();
    c.node(2, ServiceKind::Storaged, "").unwrap();
    c.target(2, 50, 0).unwrap();
    let session = c.session(1);
    c.session(2);
    c.ask(session.client.0, CloseSession { client: session.client, died: false }).unwrap();
    let before = c.map().version;
    c.restart();
    assert!(c.map().version > before);
    c.node(1, ServiceKind::Metad, "").unwrap();
    c.pass(59_999);
    assert_eq!(c.ask(0, GetFences {}).unwrap().sessions.len(), 1);
    c.pass(1);
    assert_eq!(c.ask(0, GetFences {}).unwrap().sessions.len(), 0);
}

/// Goal: the map moves at once when a target fills, and only now and then when little changes.
#[test]
fn capacities_move_the_map_coarsely() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    c.target(1, 50, 0).unwrap();
    c.pass(10_000);
    let report = |free| TargetReport {
        filesystem: 0,
        target: TargetId(101),
        consistency: Consistency::Good,
        failures: 0,
        capacity: Capacity { bytes: 1_000, bytes_free: free, inodes: 10, inodes_free: 10 },
        mark: None,
    };
    c.beat(1, vec![report(1_000)]);
    let version = c.beat(1, vec![report(1_000)]).map;
    assert!(c.beat(1, vec![report(900)]).map > version, "a tenth is much");
    let version = c.beat(1, vec![report(899)]).map;
    assert_eq!(c.beat(1, vec![report(898)]).map, version, "little");
    c.now = c.now.plus(10_000);
    assert!(c.beat(1, vec![report(898)]).map > version, "later");
}

/// Goal: a change that could not be logged leaves no trace: not in the state, not in the map, and
/// the evicted client whose eviction was taken back is evicted by a later tick.
#[test]
fn a_change_that_was_not_logged_is_taken_back() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Metad, "").unwrap();
    let session = c.session(1);
    let logged = c.registry.state().clone();
    let version = c.map().version;
    c.node(2, ServiceKind::Storaged, "").unwrap();
    c.target(2, 50, 0).unwrap();
    c.pass(60_000);
    c.registry.roll_back(c.now, logged.clone());
    assert_eq!(c.registry.state(), &logged);
    let map = c.map();
    assert!(map.version > version && map.nodes.len() == 1 && map.targets.is_empty());
    assert_eq!(c.ask(0, GetFences {}).unwrap().sessions, [session.client]);
    c.pass(60_000);
    assert_eq!(c.ask(0, GetFences {}).unwrap().fences.len(), 1);
}

/// Goal: every limit refuses the next newcomer with a text that names the key, and no old member.
#[test]
fn limits_refuse_newcomers() {
    let mut c = Cluster::new();
    for n in 1..=4 {
        c.node(n, ServiceKind::Storaged, "").unwrap();
        c.target(1, 100 + n, 0).unwrap();
        c.session(n);
    }
    assert!(c.node(5, ServiceKind::Storaged, "").unwrap_err().detail.contains("max_nodes"));
    assert!(c.target(1, 105, 0).unwrap_err().detail.contains("max_targets"));
    let uuid = Uuid([5; 16]);
    let one_more = OpenSession { uuid, host: "h".into(), mount: "/m".into(), machine: uuid };
    assert!(c.ask(0, one_more).unwrap_err().detail.contains("max_sessions"));
    assert_eq!(c.node(1, ServiceKind::Storaged, "").unwrap().node, NodeId(1));
    assert_eq!(c.target(1, 101, 0).unwrap().target, TargetId(101));
}

/// Goal: after a restart who was online counts as online until it is silent for too long, and who
/// was offline stays so until it is heard.
#[test]
fn restart_keeps_who_was_offline() {
    let mut c = Cluster::new();
    c.node(1, ServiceKind::Storaged, "").unwrap();
    c.pass(15_000);
    c.node(2, ServiceKind::Storaged, "").unwrap();
    let states = |c: &mut Cluster| c.map().nodes.iter().map(|node| node.reachability).collect::<Vec<_>>();
    assert_eq!(states(&mut c), [Reachability::Offline, Reachability::Online]);
    let state = c.registry.state().clone();
    c.registry = Registry::new(CONFIG, State::from_bytes(&state.to_bytes()).unwrap(), Term(2), c.now);
    assert_eq!(states(&mut c), [Reachability::Offline, Reachability::Online]);
    c.beat(1, vec![]);
    c.pass(5_000);
    c.beat(1, vec![]);
    assert_eq!(states(&mut c), [Reachability::Online, Reachability::ProbablyOffline]);
    assert!(c.registry.state().offline.is_empty());
}
