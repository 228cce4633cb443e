//! Real daemons, real sockets, real mounts. Every test has a cluster of its own, in a directory of its
//! own; `cargo xtask process` runs several at a time, each in namespaces of its own. Where FUSE is
//! missing they fail: a proof that was skipped is none.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acl;
mod administration;
mod agent;
mod ages;
mod agree;
mod another;
mod appends;
mod away;
mod bench;
mod coherence;
mod connections;
mod crowded;
mod deletion;
mod descriptors;
mod evicted;
mod failing;
mod formats;
mod fresh;
mod full;
mod gathered;
mod gone;
mod http;
mod idle;
mod instruments;
mod intruders;
mod killed;
mod leased_pages;
mod leases;
mod lives;
mod loads;
mod locks;
mod lookups;
mod lost;
mod mapped;
mod metas;
mod moves;
mod nameless;
mod names;
mod opens;
mod pages;
mod patterns;
mod places;
mod pools;
mod refusals;
mod replaced;
mod schema;
mod semantics;
mod shards;
mod signals;
mod sizes;
mod sparse;
mod start;
mod stopped;
mod strided;
mod survey;
mod tending;
mod tune;

use skep_rig::{Cluster, MemoryDisk, Plan};
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// A cluster, and the turn of the test that has it.
struct Running {
    // Dropped in this order: the next test begins when nothing of this one is left.
    cluster: Cluster,
    _disk: Option<MemoryDisk>,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Running {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

/// Ends the loop that looks at it when it goes, also when a test fails: who joins a thread waits for it even then.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The plan that most tests change little of. Mounts give up in time for a failed test to end.
fn plan() -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_skep")).with("SKEP_MOUNT_RETRY", "60s")
}

/// Starts a cluster when it is this test's turn.
fn start(plan: Plan) -> Running {
    start_on(None, plan)
}

/// As [`start`], on an empty disk, for tests that expect a healthy cluster: targets on a disk that is nearly
/// full are low, and health says so.
fn start_with_room(plan: Plan) -> Running {
    let disk = MemoryDisk::new(4_096).unwrap();
    let plan = Plan { base: Some(disk.path().to_owned()), ..plan };
    start_on(Some(disk), plan)
}

fn start_on(disk: Option<MemoryDisk>, plan: Plan) -> Running {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(Path::new("/dev/fuse").exists(), "/dev/fuse is missing: run modprobe fuse (see make up)");
    let cluster = Cluster::start(plan).unwrap_or_else(|e| panic!("{e}"));
    Running { cluster, _disk: disk, _turn: turn }
}

/// Bytes that differ from place to place and from `tag` to `tag`.
fn bytes(tag: u32, len: usize) -> Vec<u8> {
    skep_model::Fill { tag: tag + 1, len: len as u32 }.bytes()
}

/// What a failed command said, which must not be its success.
fn refusal(cluster: &Cluster, words: &[&str]) -> String {
    let output = cluster.run(words).unwrap();
    assert!(
        !output.status.success(),
        "skep {words:?} succeeded: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stderr).into_owned()
}
