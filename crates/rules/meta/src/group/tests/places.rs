//! Who asks with an older or a newer map than the group has, and who asks in the wrong place.

use super::*;
use alloc::boxed::Box;
use alloc::vec;
use skep_types::{MapVersion, NodeId};
use skep_wire::mgmt::{MapReply, ShardState};
use skep_wire::{Lead, Refusal, View};

/// Asks a shard as one whose map has it in this epoch.
fn ask(bed: &mut Bed, shard: u16, epoch: u64) -> Result<(), Refusal> {
    let to = bed.next_reply;
    bed.next_reply += 1;
    let (client, incarnation) = (ClientId(1), Incarnation(1));
    let peer = PeerIdentity { role: Role::Client, client, incarnation, node: NodeId(0) };
    let call = ShardCall { shard: ShardId(shard), slot: Slot(9), seq: Seq(0), epoch, ..ShardCall::default() };
    let message = GetAttr { ino: Ino::new(ShardId(shard), 1) }.into();
    bed.step(Input::Request(Request { reply_to: to, peer, epoch: FenceEpoch(0), call, message }));
    match bed.replies[&to].1.clone() {
        // Whether there is such an inode does not matter here.
        Err(refusal) if refusal.status.as_errno().is_none() => Err(refusal),
        _ => Ok(()),
    }
}

/// A map in which the first shard is in this state, led by this server, since this epoch.
fn changed(version: u64, state: ShardState, leader: u32, epoch: u64) -> MapReply {
    let mut map = MapReply { version: MapVersion(version), ..map(2, 5) };
    let shard = &mut map.shards[0];
    (shard.state, shard.leader, shard.epoch) = (state, NodeId(leader), epoch);
    map
}

/// Goal: who knows an older epoch of a shard that is led here is served; who knows a newer one waits until the map is here,
/// which is asked for at once.
#[test]
fn epochs_of_the_asker() {
    let mut bed = Bed::with(Config::default(), 2);
    bed.step(Input::Map { own: OWN, map: changed(2, ShardState::Active, OWN.0, 5) });
    for epoch in [0, 4, 5] {
        assert_eq!(ask(&mut bed, 0, epoch), Ok(()));
    }
    assert!(!bed.wants_map);
    assert_eq!(ask(&mut bed, 0, 6).unwrap_err().status, Status::NOT_READY);
    assert!(core::mem::take(&mut bed.wants_map));
    bed.step(Input::Map { own: OWN, map: changed(3, ShardState::Moving, OWN.0, 6) });
    assert_eq!(ask(&mut bed, 0, 6).unwrap_err().status, Status::NOT_READY, "nobody answers while it moves");
}

/// Goal: who asks for a shard that another server leads is told which, and since when; who asks for one that nobody leads, or
/// that is in no map, is told which map to look into. The other shard is not concerned.
#[test]
fn askers_are_sent_on() {
    let mut bed = Bed::with(Config::default(), 2);
    bed.step(Input::Map { own: OWN, map: changed(7, ShardState::Active, 9, 2) });
    let refusal = ask(&mut bed, 0, 1).unwrap_err();
    assert_eq!(
        (refusal.status, refusal.lead),
        (Status::NOT_LEADER, Some(Lead { node: NodeId(9), epoch: 2 }))
    );
    assert_eq!(ask(&mut bed, 0, 3).unwrap_err().status, Status::NOT_READY, "it may be led here since");
    assert!(core::mem::take(&mut bed.wants_map));
    assert_eq!(ask(&mut bed, 1, 1), Ok(()));
    bed.step(Input::Map { own: OWN, map: changed(8, ShardState::Retired, OWN.0, 4) });
    let view = |epoch| Some(Box::new(View { map: MapVersion(8), epoch }));
    let refusal = ask(&mut bed, 0, 2).unwrap_err();
    assert_eq!((refusal.status, refusal.view), (Status::ELSEWHERE, view(4)));
    let refusal = ask(&mut bed, 9, 0).unwrap_err();
    assert_eq!((refusal.status, refusal.view, bed.wants_map), (Status::ELSEWHERE, view(0), false));
    assert_eq!(ask(&mut bed, 9, 1).unwrap_err().status, Status::ELSEWHERE);
    assert!(bed.wants_map, "its map has what this one does not have");
}

/// Goal: a difference is not taken for the map.
#[test]
fn only_whole_maps_are_taken() {
    let mut bed = Bed::with(Config::default(), 2);
    let was = bed.server.map_version();
    let difference = MapReply { base: was, shards: vec![], ..changed(9, ShardState::Active, OWN.0, 9) };
    bed.step(Input::Map { own: OWN, map: difference });
    assert_eq!((bed.server.map_version(), ask(&mut bed, 0, 1)), (was, Ok(())));
}
