//! Older copies of directories, and processes that another one has superseded.

mod bed;

use bed::{ADMIN, CONFIG, Cluster, begin, heartbeat, life, registration};
use skep_cluster::limits::CLOSED_MAX;
use skep_cluster::{Config, Input, Output, Registry, State};
use skep_types::{
    ClientId, Errno, FenceEpoch, Incarnation, LogSeq, Millis, NodeId, ServiceKind, TargetId, Term, Uuid,
};
use skep_wire::mgmt::*;
use skep_wire::{Refusal, Status};

const METAD: ServiceKind = ServiceKind::Metad;
const STORAGED: ServiceKind = ServiceKind::Storaged;

fn errno(refusal: &Refusal) -> Option<Errno> {
    refusal.status.as_errno()
}

/// Goal: a process never takes a node back from one that was started later, whether it registers or only says that
/// it lives; and it is told so in a way that it can tell from "not registered".
#[test]
fn a_superseded_process_is_refused() {
    for service in [METAD, STORAGED] {
        let mut c = Cluster::new();
        life(&mut c, (1, service), (0, 10), 0).unwrap();
        life(&mut c, (1, service), (10, 20), 0).unwrap();
        let refused = life(&mut c, (1, service), (0, 10), 0).unwrap_err();
        assert_eq!(errno(&refused), Some(Errno::ESTALE));
        assert!(refused.detail.contains("superseded") && refused.detail.contains("127.0.0.1:1"));
        assert_eq!(c.map().nodes[0].incarnation, Incarnation(20));
        assert_eq!(errno(&c.ask(0, heartbeat(1, 10)).unwrap_err()), Some(Errno::ESTALE));
        // This one may register: mgmtd has forgotten it.
        assert_eq!(errno(&c.ask(0, heartbeat(1, 30)).unwrap_err()), Some(Errno::ENOENT));
        assert_eq!(errno(&c.ask(0, heartbeat(9, 10)).unwrap_err()), Some(Errno::ENOENT));
        c.ask(0, heartbeat(1, 20)).unwrap();
        life(&mut c, (1, service), (10, 20), 0).unwrap();
    }
}

/// A state directory as its files are, and what its server does with it.
#[derive(Clone, Copy)]
struct Directory {
    confirmed: u64,
    mark: u64,
}

impl Directory {
    /// A start: a mark that is not confirmed is told again, else there is a new one.
    fn start(&mut self, c: &mut Cluster, number: u64, answered: bool) -> Result<RegisterNodeReply, Refusal> {
        if self.mark == self.confirmed {
            self.mark = number;
        }
        let request = RegisterNode {
            incarnation: Incarnation(number),
            mark: self.mark,
            confirmed: self.confirmed,
            ..registration(1, METAD, "")
        };
        let reply = c.ask(0, request)?;
        if answered {
            self.confirmed = self.mark;
        }
        Ok(reply)
    }
}

/// Goal: a copy of a state directory from before the last start is refused with advice, however often it is started;
/// starts that never came to register, and answers that were lost, are no reason to refuse the newest; an
/// administrator's word takes the copy, and the other one is the older from then on.
#[test]
fn an_older_copy_of_a_state_directory_is_refused() {
    let mut c = Cluster::new();
    let mut newest = Directory { confirmed: 0, mark: 0 };
    newest.start(&mut c, 10, true).unwrap();
    let mut copy = newest;
    newest.start(&mut c, 20, false).unwrap();
    newest.start(&mut c, 21, false).unwrap();
    newest.start(&mut c, 22, true).unwrap();
    for number in 30..35 {
        let refused = copy.start(&mut c, number, true).unwrap_err();
        assert!(refused.detail.contains("older copy") && refused.detail.contains("--restored"));
        assert_eq!(errno(&refused), Some(Errno::EINVAL), "not the answer to a superseded process");
    }
    newest.start(&mut c, 40, true).unwrap();
    let at_your_word = RegisterNode {
        restored: true,
        incarnation: Incarnation(50),
        mark: copy.mark,
        confirmed: copy.confirmed,
        ..registration(1, METAD, "")
    };
    c.ask(0, at_your_word).unwrap();
    copy.confirmed = copy.mark;
    assert!(c.map().shards.iter().all(|shard| shard.era == 1));
    copy.start(&mut c, 51, true).unwrap();
    assert!(newest.start(&mut c, 60, true).unwrap_err().detail.contains("older copy"));
    c.replayed();
}

/// Goal: a directory whose log ends before what was on stable storage, or has none, is refused, also after a restart
/// of mgmtd; one that has more is fine.
#[test]
fn a_log_that_lost_records_is_noticed() {
    let mut c = Cluster::new();
    life(&mut c, (1, METAD), (0, 10), 0).unwrap();
    c.ask(0, Heartbeat { index: LogSeq(50), ..heartbeat(1, 10) }).unwrap();
    assert!(life(&mut c, (1, METAD), (10, 20), 49).unwrap_err().detail.contains("ends at record 49"));
    assert!(life(&mut c, (1, METAD), (10, 20), 0).unwrap_err().detail.contains("its log is gone"));
    c.pass(10_000);
    c.restart();
    assert!(life(&mut c, (1, METAD), (10, 20), 0).unwrap_err().detail.contains("its log is gone"));
    life(&mut c, (1, METAD), (10, 20), 51).unwrap();
    c.restart();
    assert!(life(&mut c, (1, METAD), (20, 30), 50).is_err());
    // Who signs off has the last word at once.
    c.ask(0, Heartbeat { index: LogSeq(60), leaving: true, ..heartbeat(1, 20) }).unwrap();
    c.restart();
    assert!(life(&mut c, (1, METAD), (20, 30), 59).is_err());
    life(&mut c, (1, METAD), (20, 30), 60).unwrap();
}

/// Goal: a shard is new until its own server says that it was formatted, and active ever after.
#[test]
fn formatting_is_known_to_mgmtd() {
    let mut c = Cluster::new();
    life(&mut c, (1, METAD), (0, 10), 0).unwrap();
    life(&mut c, (2, METAD), (0, 10), 0).unwrap();
    let states = |c: &mut Cluster| c.map().shards.iter().map(|shard| shard.state).collect::<Vec<_>>();
    let all = c.at(0..4);
    c.ask(0, Heartbeat { formatted: all.clone(), ..heartbeat(2, 10) }).unwrap();
    assert_eq!(states(&mut c), [ShardState::New; 4], "not its shards");
    let version = c.map().version;
    c.ask(0, Heartbeat { formatted: all[..3].to_vec(), ..heartbeat(1, 10) }).unwrap();
    assert_eq!(states(&mut c)[..3], [ShardState::Active; 3]);
    assert_eq!(states(&mut c)[3], ShardState::New);
    assert!(c.map().version > version);
    c.restart();
    assert_eq!(states(&mut c)[2], ShardState::Active);
}

/// A registry, and everything that ever happened to it, by numbers that are given once.
#[derive(Clone)]
struct Copy {
    state: State,
    history: Vec<u64>,
}

/// Goal: of random histories with copies put back, started and written on, a registry descends from what a daemon saw
/// exactly when all that the daemon saw is in its history.
#[test]
fn age_tells_descent() {
    let mut seed = 7u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let (mut older, mut newer) = (0, 0);
    for _ in 0..200 {
        let mut number = 0;
        let mut copies = vec![Copy {
            state: State::format(Uuid([9; 16]), skep_types::NamesKey([6; 16]), 1),
            history: vec![],
        }];
        let mut seen: Vec<(RegistryAge, Vec<u64>)> = vec![];
        for _ in 0..30 {
            let at = random(copies.len() as u64) as usize;
            let mut copy = copies[at].clone();
            let config = Config { max_sessions: 1_000, ..CONFIG };
            let mut registry = Registry::new(config, copy.state.clone(), Term(1), Millis(0));
            let mut out = Output::default();
            number += 1;
            registry.begin(number, &mut out);
            copy.history.push(number);
            for _ in 0..random(4) {
                number += 1;
                change(&mut registry, number, &mut out);
                copy.history.push(number);
                if random(2) == 0 {
                    seen.push((registry.state().age(), copy.history.clone()));
                }
            }
            copy.state = registry.state().clone();
            // Put back is the copy or what it has become.
            if random(3) == 0 { copies.push(copy) } else { copies[at] = copy }
        }
        for (age, history) in &seen {
            // One that was never started is asked by nobody.
            for copy in copies.iter().filter(|copy| !copy.history.is_empty()) {
                let holds = copy.history.starts_with(history);
                assert_eq!(copy.state.descends_from(*age), holds, "{age:?} {history:?} {:?}", copy.history);
                if holds { newer += 1 } else { older += 1 }
            }
        }
    }
    assert!(older > 1_000 && newer > 1_000, "{older} {newer}");
}

/// Goal: of two copies of one registry, put back on purpose one after the other, the second is found out by who saw the first go
/// on, however much older or newer it is: else both would give the same numbers. Put back once more it begins a history of
/// its own.
#[test]
fn copies_that_are_put_back_are_told_apart() {
    let grown = |state: State, start: u64, changes: u64, restored: u32| {
        let config = Config { max_sessions: 1_000, ..CONFIG };
        let mut registry = Registry::new(config, state, Term(1), Millis(0));
        let mut out = Output::default();
        (0..restored).for_each(|_| registry.restore(&mut out).unwrap());
        registry.begin(start, &mut out);
        (0..changes).for_each(|number| change(&mut registry, start * 1_000 + number, &mut out));
        registry.state().clone()
    };
    let monday = grown(State::format(Uuid([9; 16]), skep_types::NamesKey([6; 16]), 1), 1, 5, 0);
    let friday = grown(monday.clone(), 2, 100, 0);
    for (first, second) in [(&monday, &friday), (&friday, &monday)] {
        for changes in [0, 1, 20, 300] {
            let seen = grown(first.clone(), 3, changes, 1).age();
            assert!(!grown(second.clone(), 4, 20, 1).descends_from(seen), "{seen:?}");
            let again = grown(second.clone(), 4, 20, 2);
            assert!(again.descends_from(seen), "{seen:?}");
            let epochs = |state: &State| state.shards[0].epoch >> 32;
            assert_eq!((epochs(&again), epochs(&monday)), (2, 0));
        }
    }
}

/// Some change of the registry: a session is opened.
fn change(registry: &mut Registry, number: u64, out: &mut Output) {
    let mut uuid = [1; 16];
    uuid[..8].copy_from_slice(&number.to_le_bytes());
    let open = OpenSession { uuid: Uuid(uuid), host: "h".into(), mount: "/m".into(), machine: Uuid([1; 16]) };
    let request = Input::Request { reply_to: 0, peer: Default::default(), request: open.into() };
    registry.step(Millis(0), request, out);
}

/// Goal: an older registry that is put back is found out by the first daemon that saw the newer one, before it gave
/// a client id or told a client that its session is over; put back on purpose, it gives no number a second time.
#[test]
fn an_older_registry_is_found_out() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    life(&mut c, (1, METAD), (0, 10), 0).unwrap();
    life(&mut c, (2, STORAGED), (0, 10), 0).unwrap();
    let target = c.target(2, 50, 0).unwrap().target;
    let old = (c.registry.state().clone(), c.log.clone());
    c.restart();
    begin(&mut c, 2);
    let registry = life(&mut c, (1, METAD), (0, 10), 0).unwrap().registry;
    c.ask(0, Heartbeat { registry, ..heartbeat(1, 10) }).unwrap();
    let second = c.session(8).client;
    let put_back = |c: &mut Cluster, start| {
        c.registry = Registry::new(CONFIG, old.0.clone(), Term(2), Millis(0));
        c.log.clone_from(&old.1);
        begin(c, start);
    };
    put_back(&mut c, 3);
    // Many changes and starts do not make it the newer one.
    for start in 4..40 {
        begin(&mut c, start);
    }
    let open =
        OpenSession { uuid: Uuid([3; 16]), host: "h".into(), mount: "/m".into(), machine: Uuid([1; 16]) };
    assert_eq!(c.ask(0, open.clone()).unwrap_err().status, Status::NOT_READY);
    assert_eq!(c.ask(second.0, RenewSession { client: second }).unwrap_err().status, Status::NOT_READY);
    // Its map would be held for newer than those of the newest registry. A daemon that knows no better is no witness.
    let map = GetMap { known: Default::default() };
    life(&mut c, (2, STORAGED), (0, 10), 0).unwrap();
    for client in [second.0, 0] {
        assert_eq!(c.ask(client, map.clone()).unwrap_err().status, Status::NOT_READY);
    }
    assert!(c.ask_as(ADMIN, map).is_ok(), "administrators see what there is");
    let beat = Heartbeat { registry, ..heartbeat(1, 10) };
    let request = Input::Request { reply_to: 1, peer: Default::default(), request: beat.clone().into() };
    let out = c.step(request);
    assert!(out.outdated.is_some_and(|text| text.contains("older copy") && text.contains("--restored")));
    assert_eq!(c.ask(0, open.clone()).unwrap_err().status, Status::NOT_READY);

    put_back(&mut c, 3);
    let mut out = Output::default();
    c.registry.restore(&mut out).unwrap();
    c.registry.begin(5, &mut out);
    c.log.extend(out.commands);
    let registry = c.ask(0, beat.clone()).unwrap().registry;
    c.ask(0, Heartbeat { registry, ..beat }).unwrap();
    // The session of after the copy has ended, and servers can tell: an id above it is in the list.
    let list = c.ask(0, GetFences {}).unwrap();
    assert!(
        !list.sessions.contains(&second) && list.closed.iter().any(|closed| *closed > second),
        "{list:?}"
    );
    let given = c.ask(0, open).unwrap();
    assert!(!list.closed.contains(&given.client));
    assert!(given.client.0 > second.0 + (1 << 32) - 2 && given.epoch > FenceEpoch(1 << 32), "{given:?}");
    assert!(c.map().shards.iter().all(|shard| shard.era == 1));
    // A target of after the copy keeps its number, a new one gets another.
    assert_eq!(c.target(2, 51, target.0 + 1).unwrap().target, TargetId(target.0 + 1));
    assert!(c.target(2, 52, 0).unwrap().target.0 > target.0 + 1_000);
    assert!(c.node(7, STORAGED, "").unwrap().node > NodeId(1_000));
    c.replayed();
}

/// Goal: an older registry that is put back by mistake, and found out, leaves nothing behind: a daemon that knew no better
/// and was registered by it does not make the newest one look older (the simulator's seed 28).
#[test]
fn an_older_registry_leaves_no_trace() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    life(&mut c, (1, METAD), (0, 10), 0).unwrap();
    let away = life(&mut c, (2, STORAGED), (0, 10), 0).unwrap().registry;
    let old = c.registry.state().clone();
    // The storage server is away at this start.
    c.restart();
    begin(&mut c, 2);
    let aware = life(&mut c, (1, METAD), (0, 10), 0).unwrap().registry;
    let newest = c.registry.state().clone();
    c.registry = Registry::new(CONFIG, old, Term(2), Millis(0));
    begin(&mut c, 3);
    let again = RegisterNode {
        incarnation: Incarnation(10),
        mark: 10,
        confirmed: 10,
        registry: away,
        ..registration(2, STORAGED, "")
    };
    let registered = c.ask(0, again).unwrap().registry;
    let beaten = c.ask(0, Heartbeat { registry: registered, ..heartbeat(2, 10) }).unwrap().registry;
    assert_eq!((registered, beaten), (away, away));
    let beat = Heartbeat { registry: aware, ..heartbeat(1, 10) };
    let out = c.step(Input::Request { reply_to: 1, peer: Default::default(), request: beat.clone().into() });
    assert!(out.outdated.is_some());
    c.registry = Registry::new(CONFIG, newest, Term(3), Millis(0));
    begin(&mut c, 4);
    c.ask(0, Heartbeat { registry: beaten, ..heartbeat(2, 10) }).unwrap();
    let vouched = c.ask(0, beat).unwrap().registry;
    assert_eq!(vouched, c.registry.state().age());
    assert_eq!(c.ask(0, Heartbeat { registry: beaten, ..heartbeat(2, 10) }).unwrap().registry, vouched);
}

/// Goal: a session that an older copy of the registry had lost is refused by every server, also by one that fetches its first
/// fence list when more sessions have ended since than the list remembers.
#[test]
fn a_lost_session_is_refused_however_many_end() {
    let config = Config { max_sessions: CLOSED_MAX + 2, ..CONFIG };
    let mut c = Cluster::new();
    c.registry = Registry::new(config, c.registry.state().clone(), Term(1), Millis(0));
    let open = |c: &mut Cluster, n: usize| {
        let mut uuid = Uuid([7; 16]);
        uuid.0[..8].copy_from_slice(&n.to_le_bytes());
        let session = OpenSession { uuid, host: "h".into(), mount: "/m".into(), machine: uuid };
        c.ask(0, session).unwrap().client
    };
    let known: Vec<ClientId> = (0..=CLOSED_MAX).map(|n| open(&mut c, n)).collect();
    // This one is not in the copy.
    let lost = ClientId(c.registry.state().last_client.0 + 1);
    let mut out = Output::default();
    c.registry.restore(&mut out).unwrap();
    let highest = |c: &mut Cluster| {
        let list = c.ask(0, GetFences {}).unwrap();
        let fenced = list.fences.iter().map(|fence| &fence.client);
        *list.sessions.iter().chain(&list.closed).chain(fenced).max().unwrap()
    };
    assert!(highest(&mut c) > lost);
    for client in known {
        c.ask(client.0, CloseSession { client, died: false }).unwrap();
        assert!(highest(&mut c) > lost, "client {client}");
    }
    let newest = open(&mut c, CLOSED_MAX + 1);
    assert_eq!(highest(&mut c), newest, "who lives is not called closed");
    assert!(!c.ask(0, GetFences {}).unwrap().closed.contains(&newest));
}

/// Goal: a registry that was put back on purpose knows the newest directories again as soon as it hears their servers, also
/// after a restart: an older copy of one that comes later is refused. What was registered is not taken back by that.
#[test]
fn a_registry_put_back_learns_the_marks() {
    let mut c = Cluster::new();
    begin(&mut c, 1);
    life(&mut c, (1, METAD), (0, 10), 0).unwrap();
    life(&mut c, (2, STORAGED), (0, 10), 0).unwrap();
    c.target(2, 50, 0).unwrap();
    let mut out = Output::default();
    c.registry.restore(&mut out).unwrap();
    c.registry.begin(2, &mut out);
    c.log.extend(out.commands);
    c.ask(0, Heartbeat { mark: Some(10), ..heartbeat(1, 10) }).unwrap();
    let report = |mark| TargetReport {
        target: TargetId(101),
        consistency: skep_types::Consistency::Good,
        failures: 0,
        capacity: Default::default(),
        filesystem: 0,
        mark,
    };
    let beat = |mark| Heartbeat { targets: vec![report(mark)], mark, ..heartbeat(2, 10) };
    // One from before does not tell.
    c.ask(0, beat(None)).unwrap();
    c.ask(0, beat(Some(10))).unwrap();
    let logged = c.log.len();
    c.ask(0, beat(Some(11))).unwrap();
    assert_eq!(c.log.len(), logged, "told once");
    c.restart();
    for service in [(1, METAD), (2, STORAGED)] {
        assert!(life(&mut c, service, (9, 20), 0).unwrap_err().detail.contains("older copy"));
        life(&mut c, service, (10, 20), 0).unwrap();
    }
    assert!(directory(&mut c, 2, (9, 20), false).unwrap_err().detail.contains("older copy"));
    directory(&mut c, 2, (10, 20), false).unwrap();
}

/// Goal: two sessions never look like one life of one client, even when an id is given twice.
#[test]
fn a_session_has_a_life_of_its_own() {
    let (mut a, mut b) = (Cluster::new(), Cluster::new());
    let (one, other) = (a.session(1), b.session(2));
    assert_eq!(one.client, ClientId(1));
    assert_eq!(one.client, other.client);
    assert_ne!(one.incarnation, other.incarnation);
    assert_eq!(a.session(1).incarnation, one.incarnation, "asked again");
}

/// Registers a target's directory for `node`.
fn directory(
    c: &mut Cluster,
    node: u32,
    (confirmed, mark): (u64, u64),
    restored: bool,
) -> Result<RegisterTargetReply, Refusal> {
    c.ask(
        0,
        RegisterTarget {
            node: NodeId(node),
            uuid: Uuid([50; 16]),
            target: TargetId(101),
            alias: String::new(),
            capacity: Default::default(),
            mark,
            confirmed,
            restored,
        },
    )
}

/// Goal: a copy of a target beside the one that is served, and an older copy of it, are refused; a disk that moved
/// to another server is taken.
#[test]
fn copies_of_targets_are_refused() {
    let mut c = Cluster::new();
    life(&mut c, (1, STORAGED), (0, 1), 0).unwrap();
    life(&mut c, (2, STORAGED), (0, 1), 0).unwrap();
    c.target(1, 50, 0).unwrap();
    directory(&mut c, 1, (1, 10), false).unwrap();
    let refused = directory(&mut c, 2, (10, 20), false).unwrap_err();
    assert!(refused.detail.contains("is this directory a copy"), "{}", refused.detail);
    assert_eq!(c.map().targets[0].node, NodeId(1));
    // After a restart of mgmtd nobody knows yet who serves what.
    c.restart();
    assert_eq!(directory(&mut c, 2, (10, 20), false).unwrap_err().status, Status::NOT_READY);
    c.report(1, 101, 5);
    assert_eq!(errno(&directory(&mut c, 2, (10, 20), false).unwrap_err()), Some(Errno::EBUSY));
    // Its server was started without it: the disk has moved.
    life(&mut c, (1, STORAGED), (1, 2), 0).unwrap();
    c.ask(0, heartbeat(1, 2)).unwrap();
    directory(&mut c, 2, (10, 20), false).unwrap();
    assert_eq!(c.map().targets[0].node, NodeId(2));
    // What stayed behind is the older one, wherever it is started.
    c.pass(20_000);
    for node in [1, 2] {
        let refused = directory(&mut c, node, (10, 30), false).unwrap_err();
        assert!(refused.detail.contains("older copy"), "{}", refused.detail);
    }
    directory(&mut c, 1, (10, 30), true).unwrap();
    assert!(directory(&mut c, 1, (20, 25), false).unwrap_err().detail.contains("older copy"));
    c.replayed();
}
