//! The state directory on a disk that forgets, fills up and is damaged.

use super::*;
use skep_cluster::{
    DropNode, DropPool, DropTarget, MoveTargets, PlaceShards, Placed, Pool, SetClass, SetNode, SetPool,
    SetTarget, Target,
};
use skep_disk::disk::{CrashMode, FaultDisk};
use skep_types::limits::FORMAT;
use skep_types::{
    Capacity, CapacityClass, Consistency, Incarnation, NamesKey, NodeId, PoolId, ServiceKind, ShardId,
    TargetId, Timestamp,
};
use skep_wire::mgmt::CapacityLimits;

const FRESH: (Uuid, Uuid, NamesKey) = (Uuid([1; 16]), Uuid([2; 16]), NamesKey([3; 16]));

fn open(disk: &FaultDisk) -> Result<(Journal, State), JournalError> {
    Journal::open(Arc::new(disk.clone()), Path::new("/mgmtd"), 8, FRESH)
}

fn node(id: u32) -> Command {
    let node = skep_cluster::Node {
        id: NodeId(id),
        uuid: Uuid([id as u8; 16]),
        service: ServiceKind::Metad,
        alias: format!("metad-{id}"),
        addresses: Vec::new(),
        machine: Uuid::default(),
        incarnation: Incarnation(1),
        domain: String::new(),
        wish: String::new(),
        mark: 3,
        index: skep_types::LogSeq(0),
    };
    SetNode { node }.into()
}

/// Everything that pools, targets and nodes go through, to their removal.
fn lives() -> Vec<Command> {
    let (pool, target, class) = (PoolId(2), TargetId(101), CapacityClass::Low);
    let put = Target {
        id: target,
        uuid: Uuid([50; 16]),
        node: NodeId(1),
        alias: "ssd".to_owned(),
        consistency: Consistency::Good,
        capacity: Capacity::default(),
        pool: PoolId(1),
        class: CapacityClass::Normal,
        filesystem: 7,
        failures: 0,
        decisions: 0,
        mark: 4,
    };
    let made = Pool { id: pool, alias: "hot".to_owned(), limits: CapacityLimits::default() };
    vec![
        node(1),
        SetTarget { target: put }.into(),
        SetPool { pool: made }.into(),
        MoveTargets { pool, targets: vec![target] }.into(),
        SetClass { target, class }.into(),
        MoveTargets { pool: PoolId(0), targets: vec![target] }.into(),
        DropTarget { target }.into(),
        DropPool { pool }.into(),
        DropNode { node: NodeId(1) }.into(),
    ]
}

fn commit(journal: &mut Journal, state: &mut State, command: Command) {
    journal.commit(std::slice::from_ref(&command)).unwrap();
    state.apply(&command);
}

/// Goal: a change of a later level is not applied as if it were one of this release.
#[test]
fn a_later_level_is_refused() {
    let disk = FaultDisk::new();
    let (mut journal, _) = open(&disk).unwrap();
    let decided = Decided { level: DECIDED_LEVEL + 1, at: Timestamp::default(), command: node(1) };
    let next = journal.next();
    journal.append(&[Record::command(LogSeq(next.index.0), next, decided.to_bytes())]).unwrap();
    drop(journal);
    let error = open(&disk).err().unwrap().to_string();
    assert!(error.contains("its level is 3") && error.contains("later release"), "{error}");
}

/// Goal: what was committed is there after a power cut at any moment, and the term rises with
/// every start.
#[test]
fn committed_survives_a_power_cut() {
    let mut disk = FaultDisk::new();
    let mut expected = None;
    for round in 1..=20 {
        let (mut journal, mut state) = open(&disk).unwrap();
        assert_eq!(journal.term(), Term(round));
        if let Some(expected) = expected {
            assert_eq!(state, expected);
        }
        commit(&mut journal, &mut state, node(round as u32));
        if round % 5 == 0 {
            journal.snapshot(&state).unwrap();
            commit(
                &mut journal,
                &mut state,
                PlaceShards { places: vec![Placed::at(ShardId(0), NodeId(1))] }.into(),
            );
        }
        drop(journal);
        disk = disk.crash(CrashMode::DropAll, round);
        expected = Some(state);
    }
}

/// Goal: a power cut at every single disk operation of formatting, committing and taking a
/// snapshot leaves a directory that opens and holds what was committed.
#[test]
fn every_interruption_is_survived() {
    for n in 1.. {
        let disk = FaultDisk::new();
        disk.fail_after(n, rustix::io::Errno::IO);
        let mut committed = 0;
        if let Ok((mut journal, mut state)) = open(&disk) {
            for id in 1..=3 {
                if journal.commit(&[node(id)]).is_err() {
                    break;
                }
                state.apply(&node(id));
                committed = id;
                if id == 2 && journal.snapshot(&state).is_err() {
                    break;
                }
            }
        }
        let whole_run = disk.failure_is_pending();
        let disk = disk.crash(CrashMode::DropAll, n);
        let (_, state) = open(&disk).unwrap_or_else(|e| panic!("operation {n}: {e}"));
        assert!(
            state.last_node.0 >= committed,
            "operation {n}: {committed} committed, {} found",
            state.last_node
        );
        if whole_run {
            assert!(committed == 3 && n > 20, "only {n} operations, {committed} committed");
            return;
        }
    }
}

/// Goal: a power cut at every single disk operation, while pools are made and targets and nodes come
/// and go, finds the registry as it was after some command, with every committed one; then the rest can
/// be done. A removed target is remembered by its snapshot, too.
#[test]
fn every_interruption_of_a_removal_is_survived() {
    let mut states = vec![State::format(FRESH.0, FRESH.2, 8)];
    for command in lives() {
        let mut next = states[states.len() - 1].clone();
        next.apply(&command);
        states.push(next);
    }
    for n in 1.. {
        let disk = FaultDisk::new();
        disk.fail_after(n, rustix::io::Errno::IO);
        let mut committed = 0;
        if let Ok((mut journal, mut state)) = open(&disk) {
            for (done, command) in lives().into_iter().enumerate() {
                if journal.commit(std::slice::from_ref(&command)).is_err() {
                    break;
                }
                state.apply(&command);
                committed = done + 1;
                if done % 3 == 2 && journal.snapshot(&state).is_err() {
                    break;
                }
            }
        }
        let whole_run = disk.failure_is_pending();
        let disk = disk.crash(CrashMode::DropAll, n);
        let (mut journal, mut state) = open(&disk).unwrap_or_else(|e| panic!("operation {n}: {e}"));
        let at = states.iter().position(|one| *one == state);
        let at = at.unwrap_or_else(|| panic!("operation {n}: a state that never was: {state:?}"));
        assert!(at >= committed, "operation {n}: {committed} committed, {at} found");
        for command in lives().split_off(at) {
            commit(&mut journal, &mut state, command);
        }
        assert_eq!(Some(&state), states.last());
        assert_eq!((state.removed.len(), state.last_target, state.last_pool), (1, TargetId(101), PoolId(2)));
        if whole_run {
            assert!(n > 40, "only {n} operations");
            return;
        }
    }
}

/// Goal: a full disk refuses the change, keeps what was there, and takes changes again later.
#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = FaultDisk::new();
    let (mut journal, mut state) = open(&disk).unwrap();
    commit(&mut journal, &mut state, node(1));
    disk.fail_after(1, rustix::io::Errno::NOSPC);
    assert!(matches!(journal.commit(&[node(2)]), Err(LogError::Full(_))));
    assert_eq!(journal.reload().unwrap(), state);
    commit(&mut journal, &mut state, node(3));
    drop(journal);
    assert_eq!(open(&disk).unwrap().1, state);
}

/// Goal: a lost log, a mixed-up directory and a strange one are refused with advice, never
/// served as an empty cluster.
#[test]
fn strange_directories_are_refused() {
    let text = |disk: &FaultDisk| open(disk).err().expect("opened a strange directory").to_string();
    let formatted = || {
        let disk = FaultDisk::new();
        let (mut journal, mut state) = open(&disk).unwrap();
        commit(&mut journal, &mut state, node(1));
        journal.snapshot(&state).unwrap();
        drop(journal);
        disk
    };
    let dir = Path::new("/mgmtd");
    let disk = formatted();
    for name in disk.list(&dir.join("log")).unwrap() {
        disk.lose(&dir.join("log").join(name));
    }
    assert!(text(&disk).contains("the log is gone"));
    let disk = formatted();
    disk.lose(&dir.join(IDENTITY_FILE));
    assert!(text(&disk).contains("not empty"), "{}", text(&disk));
    let disk = formatted();
    disk.damage(&dir.join(IDENTITY_FILE), |bytes| {
        let quoted = format!("\"{FORMAT}\"");
        *bytes = String::from_utf8_lossy(bytes).replace(&quoted, "\"dev-5\"").into_bytes();
    });
    assert!(text(&disk).contains(&format!("opens {FORMAT:?} only")));
}
