//! Until metadata servers have vouched for it, mgmtd may be an older copy of itself.

mod bed;

use bed::{ADMIN, CONFIG, Cluster, begin, heartbeat, life, registration};
use skep_cluster::{Input, Output, Registry};
use skep_types::{ClientId, FenceEpoch, Incarnation, Millis, NodeId, ServiceKind, ShardId, Term, Uuid};
use skep_wire::Status;
use skep_wire::mgmt::*;

const METAD: ServiceKind = ServiceKind::Metad;
const STORAGED: ServiceKind = ServiceKind::Storaged;

/// Goal: of several metadata servers it is not enough that one knows no newer registry: another one may. One that stays
/// away is waited for only as long as it may be there.
#[test]
fn all_metadata_servers_vouch() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    for uuid in [1, 2] {
        life(&mut c, (uuid, METAD), (0, 10), 0).unwrap();
    }
    let open =
        OpenSession { uuid: Uuid([3; 16]), host: "h".into(), mount: "/m".into(), machine: Uuid([1; 16]) };
    for comes in [true, false] {
        c.restart();
        begin(&mut c, 2 + u64::from(comes));
        let refused = c.ask(0, open.clone()).unwrap_err();
        assert_eq!(refused.status, Status::NOT_READY);
        let mut registry = c.ask(0, heartbeat(1, 10)).unwrap().registry;
        let refused = c.ask(0, open.clone()).unwrap_err();
        assert!(refused.status == Status::NOT_READY && refused.detail.contains("metad-2"), "{refused}");
        if comes {
            registry = c.ask(0, heartbeat(2, 10)).unwrap().registry;
            c.ask(0, Heartbeat { registry, ..heartbeat(2, 10) }).unwrap();
        } else {
            c.pass(CONFIG.probably_offline_ms);
            registry = c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap().registry;
        }
        c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap();
        c.ask(0, open.clone()).unwrap();
    }
}

/// Goal: nobody relies on a start of mgmtd that no metadata server remembers: when the answer to one is lost, an older copy
/// of the directory that takes its place would not be found out, and give the same id again.
#[test]
fn a_start_that_no_metad_was_told_vouches_for_nothing() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    let before = life(&mut c, (1, METAD), (0, 10), 0).unwrap().registry;
    c.ask(0, Heartbeat { registry: before, ..heartbeat(1, 10) }).unwrap();
    let old = c.registry.state().clone();
    c.restart();
    begin(&mut c, 2);
    let open =
        OpenSession { uuid: Uuid([3; 16]), host: "h".into(), mount: "/m".into(), machine: Uuid([1; 16]) };
    let beat = |registry| Heartbeat { registry, ..heartbeat(1, 10) };
    // This answer is lost, and so is that to whatever was sent before it came.
    let told = c.ask(0, beat(before)).unwrap().registry;
    assert_eq!(told, c.registry.state().age(), "it is the newest: who was heard may be told");
    let refused = c.ask(0, open.clone()).unwrap_err();
    assert!(
        refused.status == Status::NOT_READY && refused.detail.contains("does not know that yet"),
        "{refused}"
    );
    let mut older = Registry::new(CONFIG, old, Term(3), Millis(0));
    let mut out = Output::default();
    older.begin(3, &mut out);
    let ask = |m| Input::Request { reply_to: 0, peer: Default::default(), request: m };
    older.step(Millis(0), ask(beat(before).into()), &mut out);
    assert!(out.outdated.is_none(), "nobody can tell");
    // It comes once more, and this time it is heard: from now on anything older is found out.
    let told = c.ask(0, beat(before)).unwrap().registry;
    c.ask(0, beat(told)).unwrap();
    c.ask(0, open).unwrap();
    older.step(Millis(0), ask(beat(told).into()), &mut out);
    assert!(out.outdated.is_some());
    // Who comes later for the first time has nothing to say in that.
    life(&mut c, (2, METAD), (0, 10), 0).unwrap();
    c.session(4);
}

/// Goal: a metadata server that came to be since the start knows of no newer registry: it does not vouch for this one in the
/// place of those that may, however long they are silent. One that came to be before, after this copy was made, does.
#[test]
fn a_newborn_metad_vouches_for_nothing() {
    let beats = |c: &mut Cluster, node, mut registry| {
        for _ in 0..2 {
            registry = c.ask(0, Heartbeat { registry, ..heartbeat(node, 10) }).unwrap().registry;
        }
    };
    for knew in [false, true] {
        let mut c = Cluster::new();
        begin(&mut c, 1);
        let registry = life(&mut c, (1, METAD), (0, 10), 0).unwrap().registry;
        c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap();
        c.session(8);
        c.restart();
        begin(&mut c, 2);
        c.pass(CONFIG.offline_ms);
        let seen = RegistryAge { start: 1, changes: u64::from(knew) };
        let registry = if knew { seen } else { RegistryAge::default() };
        let new = RegisterNode { incarnation: Incarnation(10), registry, ..registration(2, METAD, "") };
        let registry = c.ask(0, new).unwrap().registry;
        beats(&mut c, 2, registry);
        let fences = c.ask(0, GetFences {});
        if knew {
            fences.unwrap();
            continue;
        }
        let refused = fences.unwrap_err();
        assert!(refused.status == Status::NOT_READY && refused.detail.contains("heard metad-1"), "{refused}");
        assert_eq!(registry, RegistryAge::default(), "nor is it told how old this one is");
        beats(&mut c, 1, seen);
        beats(&mut c, 2, registry);
        c.ask(0, GetFences {}).unwrap();
    }
}

/// Goal: until metadata servers have vouched for it mgmtd answers daemons, by whom it is found out, people who only look,
/// and mounts that live, and nobody else: whoever relies on what only the newest registry knows waits. Whom it has not
/// heard it says.
#[test]
fn who_is_answered_before_it_is_vouched_for() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    let registry = life(&mut c, (1, METAD), (0, 10), 0).unwrap().registry;
    c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap();
    life(&mut c, (2, METAD), (0, 10), 0).unwrap();
    life(&mut c, (3, STORAGED), (0, 10), 0).unwrap();
    let (lives, closes) = (c.session(8).client, c.session(9).client);
    c.restart();
    begin(&mut c, 2);
    c.ask(0, heartbeat(3, 10)).unwrap();
    c.ask(0, GetSpace {}).unwrap();
    c.status();
    c.map();
    c.ask(lives.0, RenewSession { client: lives }).unwrap();
    c.ask(closes.0, CloseSession { client: closes, died: false }).unwrap();
    let refused = [
        c.ask(0, GetFences {}).map(drop),
        c.ask(0, GetMap { known: Default::default() }).map(drop),
        c.ask(closes.0, RenewSession { client: closes }).map(drop),
        c.ask(lives.0, CloseSession { client: lives, died: true }).map(drop),
        c.ask_as(ADMIN, GetFences {}).map(drop),
        c.ask_as(ADMIN, Evict { client: lives }).map(drop),
    ];
    for refused in refused.map(Result::unwrap_err) {
        assert_eq!(refused.status, Status::NOT_READY);
        assert!(refused.detail.contains("has not heard metad-1, metad-2 yet"), "{refused}");
    }
}

/// Goal: what an administrator orders of a mgmtd that may be an older copy is not carried out: the newest would not know of it.
#[test]
fn an_older_registry_ends_no_session_and_moves_no_shard() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    let registry = life(&mut c, (1, METAD), (0, 10), 0).unwrap().registry;
    c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap();
    life(&mut c, (2, METAD), (0, 10), 0).unwrap();
    let formatted = c.at(0..4);
    c.ask(0, Heartbeat { formatted, ..heartbeat(1, 10) }).unwrap();
    let client = c.session(8).client;
    let (evict, give) = (Evict { client }, GiveShard::to(ShardId(1), NodeId(2)));
    c.restart();
    begin(&mut c, 2);
    let logged = c.log.len();
    let unknown = Evict { client: ClientId(99) };
    let refused = [evict.clone(), unknown].map(|m| c.ask_as(ADMIN, m).unwrap_err());
    for refused in refused.into_iter().chain([c.ask_as(ADMIN, give.clone()).unwrap_err()]) {
        assert!(
            refused.status == Status::NOT_READY && refused.detail.contains("has not heard metad-"),
            "{refused}"
        );
    }
    assert_eq!(c.log.len(), logged);
    for _ in 0..2 {
        for node in [1, 2] {
            let registry = c.registry.state().age();
            c.ask(0, Heartbeat { registry, ..heartbeat(node, 10) }).unwrap();
        }
    }
    c.ask_as(ADMIN, evict).unwrap();
    c.ask_as(ADMIN, give).unwrap();
}

/// Goal: a registry that may be an older copy ends no session that is silent, for it may speak to the newest one, nor that of a
/// mount that died: a fence is for ever, and its epoch is that of another fence there. Once it is vouched for it does.
#[test]
fn an_older_registry_fences_nobody() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    let registry = life(&mut c, (1, METAD), (0, 10), 0).unwrap().registry;
    c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap();
    let (silent, dead) = (c.session(8).client, c.session(9).client);
    c.restart();
    begin(&mut c, 2);
    let buries = |c: &mut Cluster| c.ask(dead.0, CloseSession { client: dead, died: true });
    assert_eq!(buries(&mut c).unwrap_err().status, Status::NOT_READY);
    c.pass(2 * CONFIG.session_timeout_ms);
    let state = c.registry.state();
    assert_eq!((state.epoch, state.fences.len()), (FenceEpoch(1), 0));
    assert!(state.sessions.keys().eq(&[silent, dead]));
    let registry = c.ask(0, heartbeat(1, 10)).unwrap().registry;
    c.ask(dead.0, RenewSession { client: dead }).unwrap();
    c.pass(0);
    assert!(c.registry.state().fences.is_empty(), "the metadata server does not know of this start");
    c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap();
    c.pass(0);
    let fenced = |c: &mut Cluster| {
        let list = c.ask(0, GetFences {}).unwrap();
        list.fences.iter().map(|fence| fence.client).collect::<Vec<_>>()
    };
    assert_eq!(fenced(&mut c), [silent]);
    buries(&mut c).unwrap();
    assert_eq!(fenced(&mut c), [silent, dead]);
}
