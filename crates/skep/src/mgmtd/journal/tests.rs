//! The state directory on a disk that forgets, fills up and is damaged.

use super::*;
use skep_cluster::{RegisterShards, SetNode};
use skep_disk::disk::{CrashMode, FaultDisk};
use skep_types::{Incarnation, NodeId, ServiceKind};

const FRESH: (Uuid, Uuid) = (Uuid([1; 16]), Uuid([2; 16]));

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
    };
    SetNode { node }.into()
}

fn commit(journal: &mut Journal, state: &mut State, command: Command) {
    journal.commit(std::slice::from_ref(&command)).unwrap();
    state.apply(&command);
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
            commit(&mut journal, &mut state, RegisterShards { node: NodeId(1) }.into());
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
        *bytes = String::from_utf8_lossy(bytes).replace("format = 1", "format = 9").into_bytes();
    });
    assert!(text(&disk).contains("later release"));
}
