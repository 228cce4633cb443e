//! What the log says of names that cannot be moved or linked between shards.

use crate::RenameHow;
use crate::testing::shard::Shard;
use crate::testing::*;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Errno, Ino, ShardId};
use skep_wire::meta::Rename;
use skep_wire::{Message, Status};

fn rename(lane: &FakeLane, from: Ino, to: Ino) -> Result<(), Errno> {
    block_on(lane.rename(from, b"a", to, b"b", RenameHow::default()))
}

/// The lines of the log that say why something gave EXDEV.
fn reasons(cluster: &core::cell::RefCell<Cluster>) -> Vec<String> {
    cluster.borrow().lines.iter().filter(|line| line.contains("EXDEV")).cloned().collect()
}

/// Goal: why names of two shards cannot be moved is said once for each pair, whichever of the two they are moved from and
/// whatever was asked for, with the servers that have them; another pair is said too. No shard is asked.
#[test]
fn each_pair_of_shards_is_told_apart_once() {
    let (cluster, _) = mounted();
    cluster.borrow_mut().beside = Some(Shard::new(ShardId(1)));
    cluster.borrow_mut().apart = true;
    let lane = mount(&cluster);
    let sent = cluster.borrow().total();
    let [one, other, third] = [0, 1, 2].map(|shard| Ino::new(ShardId(shard), 9));
    for _ in 0..3 {
        assert_eq!(rename(&lane, one, other), Err(Errno::EXDEV));
        assert_eq!(rename(&lane, other, one), Err(Errno::EXDEV));
        assert_eq!(block_on(lane.link(one, other, b"c")).map(drop), Err(Errno::EXDEV));
        assert_eq!(block_on(lane.link(other, one, b"c")).map(drop), Err(Errno::EXDEV));
    }
    let told = reasons(&cluster);
    assert_eq!(told.len(), 1, "{told:?}");
    let what = "rename between shard 0 (node-1) and shard 1 (node-4) gives EXDEV";
    assert!(told[0].starts_with(what), "{told:?}");
    assert_eq!(block_on(lane.link(third, one, b"c")).map(drop), Err(Errno::EXDEV));
    assert_eq!(rename(&lane, one, third), Err(Errno::EXDEV));
    let told = reasons(&cluster);
    assert_eq!(told.len(), 2, "{told:?}");
    // The map does not know who has it.
    assert!(told[1].starts_with("link between shard 2 (?) and shard 0 (node-1) gives EXDEV"), "{told:?}");
    assert_eq!(cluster.borrow().total(), sent);
}

/// Goal: a shard's own EXDEV (a directory whose contents are elsewhere) is explained once for that shard, and is no pair's;
/// other refusals are not explained.
#[test]
fn an_exdev_of_a_shard_is_explained_once() {
    let (cluster, lane) = mounted();
    let other = Ino::new(ShardId(1), 9);
    cluster.borrow_mut().fail(Rename::KIND, &[Fault::Refuse(Status::errno(Errno::EACCES))]);
    assert_eq!(rename(&lane, Ino::ROOT, Ino::ROOT), Err(Errno::EACCES));
    assert_eq!(reasons(&cluster), Vec::<String>::new());
    cluster.borrow_mut().fail(Rename::KIND, &[Fault::Refuse(Status::errno(Errno::EXDEV)); 3]);
    for _ in 0..3 {
        assert_eq!(rename(&lane, Ino::ROOT, Ino::ROOT), Err(Errno::EXDEV));
    }
    let told = reasons(&cluster);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("contents are on another shard than its name (shard 0)"), "{told:?}");
    assert_eq!(rename(&lane, Ino::ROOT, other), Err(Errno::EXDEV));
    assert_eq!(reasons(&cluster).len(), 2);
}
