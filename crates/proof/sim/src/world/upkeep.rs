//! What every daemon does beside its work: register, send heartbeats, fetch fences and map when one was accepted. One
//! call at a time, each repeated until it succeeds.

use super::{World, registration};
use crate::hub::CallId;
use crate::metad::Metad;
use skep_client::MGMTD;
use skep_meta::store::MemoryStore;
use skep_meta::{Group, Input};
use skep_types::{
    Capacity, Consistency, Decode, Encode, FenceEpoch, Incarnation, LogSeq, MapVersion, Millis, NodeId,
    ServiceKind,
};
use skep_wire::mgmt::{
    ClusterView, FencesReply, GetFences, GetMap, Heartbeat, HeartbeatReply, MapReply, RegisterNode,
    RegisterNodeReply, RegistryAge, TargetReport,
};
use skep_wire::{Message, Refusal};

/// Milliseconds between heartbeats.
const BEAT_MS: u64 = 1_000;

/// Why a daemon asked another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It registers.
    Register,
    /// It wants the map.
    Map,
    /// It wants the fence list.
    Fences,
    /// It lives.
    Beat,
    /// A job of metad's courier.
    Task(u64),
}

#[derive(Debug, Default)]
pub struct Upkeep {
    registered: bool,
    pub(super) map_wanted: bool,
    pub(super) map: ClusterView,
    pub fences_wanted: bool,
    /// The newest that it has heard of the age of mgmtd's registry.
    pub(super) age: RegistryAge,
    /// A heartbeat was accepted, and what it showed to be newer is being fetched: nothing is without one.
    beaten: bool,
    beat_at: u64,
    in_flight: Option<CallId>,
}

impl World {
    /// A daemon began a life: everything is to be done anew.
    pub(super) fn renew_upkeep(&mut self, node: NodeId) {
        let map_wanted = self.metad_at(node).is_some();
        let age = self.ages.get(&node).copied().unwrap_or_default();
        self.upkeep.insert(node, Upkeep { map_wanted, fences_wanted: true, age, ..Upkeep::default() });
    }

    /// Does the next thing that is due.
    pub(super) fn keep_up(&mut self, node: NodeId, life: u64) {
        let now = self.now();
        let Some(upkeep) = self.upkeep.get_mut(&node) else { return };
        if upkeep.in_flight.is_some() {
            return;
        }
        let registry = upkeep.age;
        let (purpose, kind, body) = if !upkeep.registered {
            let metad = self.metad_at(node).map(|at| &self.metads[at]);
            let service = if metad.is_some() { ServiceKind::Metad } else { ServiceKind::Storaged };
            let index = metad.map_or(0, Metad::durable);
            let restored = self.restored.contains(&node);
            let number = u64::from(node.0);
            let request =
                RegisterNode { registry, restored, ..registration(service, number, life, LogSeq(index)) };
            (Purpose::Register, RegisterNode::KIND, request.to_bytes())
        } else if upkeep.beaten && upkeep.fences_wanted {
            (Purpose::Fences, GetFences::KIND, GetFences {}.to_bytes())
        } else if upkeep.beaten && upkeep.map_wanted {
            (Purpose::Map, GetMap::KIND, GetMap { known: upkeep.map.version() }.to_bytes())
        } else if now >= upkeep.beat_at || upkeep.map_wanted || upkeep.fences_wanted {
            upkeep.beat_at = now + BEAT_MS;
            let beat = Heartbeat { registry, ..self.heartbeat(node, life) };
            (Purpose::Beat, Heartbeat::KIND, beat.to_bytes())
        } else {
            upkeep.beaten = false;
            return;
        };
        let id = self.ask_as_node(node, life, MGMTD, (kind, body), purpose);
        if let Some(upkeep) = self.upkeep.get_mut(&node) {
            upkeep.in_flight = Some(id);
        }
    }

    fn heartbeat(&self, node: NodeId, life: u64) -> Heartbeat {
        let report = |(target, capacity)| TargetReport {
            filesystem: 0,
            target,
            consistency: Consistency::Good,
            failures: 0,
            capacity,
            mark: None,
        };
        let targets = self.storageds.iter().filter(|storaged| storaged.node == node);
        let (server, now) = (self.server_at(node), Millis(self.hub.borrow().now));
        Heartbeat {
            node,
            incarnation: Incarnation(life),
            targets: targets.flat_map(|storaged| storaged.capacities(now).map(report)).collect(),
            capacity: Capacity::default(),
            map: MapVersion(0),
            index: server.map(skep_meta::Group::durable_seq).unwrap_or_default(),
            formatted: server.map(skep_meta::Group::formatted).unwrap_or_default(),
            registry: RegistryAge::default(),
            leaving: false,
            mark: None,
        }
    }

    /// The rules of a metadata server, while it is up.
    fn server_at(&self, node: NodeId) -> Option<&Group<MemoryStore>> {
        self.metads[self.metad_at(node)?].server()
    }

    /// A daemon asks another one.
    pub(super) fn ask_as_node(
        &mut self,
        node: NodeId,
        life: u64,
        to: NodeId,
        (kind, body): (u16, Vec<u8>),
        purpose: Purpose,
    ) -> CallId {
        let epoch = self.epoch_of(node);
        let hub = self.hub.clone();
        let id = self.network.send_from_node(
            (node, life, 0),
            to,
            (kind, epoch, body),
            &mut hub.borrow_mut(),
            &mut self.queue,
        );
        self.purposes.insert(id, (node, life, purpose));
        id
    }

    /// Highest fence epoch that a daemon knows.
    pub(super) fn epoch_of(&self, node: NodeId) -> FenceEpoch {
        if node == MGMTD {
            return self.mgmtd.state().epoch;
        }
        if self.metad_at(node).is_some() {
            return self.server_at(node).map(skep_meta::Group::epoch).unwrap_or_default();
        }
        let storaged = self.storageds.iter().find(|storaged| storaged.node == node);
        storaged.map(|storaged| storaged.admission.epoch()).unwrap_or_default()
    }

    /// An answer to [`World::keep_up`].
    pub(super) fn upkeep_answered(
        &mut self,
        node: NodeId,
        life: u64,
        purpose: Purpose,
        result: Result<Vec<u8>, Refusal>,
    ) {
        let Some(upkeep) = self.upkeep.get_mut(&node) else { return };
        upkeep.in_flight = None;
        let Ok(body) = result else {
            // Perhaps a mgmtd that does not know this life of it yet.
            upkeep.registered &= purpose != Purpose::Beat;
            upkeep.beaten = false;
            return;
        };
        let understood = match purpose {
            Purpose::Register => match RegisterNodeReply::from_bytes(&body) {
                Ok(place) => {
                    upkeep.registered = true;
                    if self.restored.remove(&node) {
                        self.hub.borrow_mut().coverage.hit("a metad was said to be put back");
                    }
                    self.heard_age(node, place.registry, true);
                    true
                }
                Err(_) => false,
            },
            Purpose::Map => match MapReply::from_bytes(&body) {
                Ok(told) => {
                    // A map that does not fit is asked for again, whole.
                    upkeep.map_wanted = upkeep.map.take(told).is_err();
                    if upkeep.map_wanted {
                        upkeep.map = ClusterView::default();
                    } else {
                        let map = upkeep.map.map().clone();
                        self.metad_input(node, Input::Map { own: node, map });
                        self.vouch(node);
                    }
                    true
                }
                Err(_) => false,
            },
            Purpose::Fences => match FencesReply::from_bytes(&body) {
                Ok(fences) => {
                    upkeep.fences_wanted = false;
                    self.take_fences(node, fences);
                    true
                }
                Err(_) => false,
            },
            Purpose::Beat => match HeartbeatReply::from_bytes(&body) {
                Ok(beat) => {
                    upkeep.beaten = true;
                    self.heard_beat(node, &beat);
                    true
                }
                Err(_) => false,
            },
            Purpose::Task(_) => true,
        };
        if !understood {
            self.hub.borrow_mut().fail(format!("{purpose:?}: mgmtd's answer cannot be read"));
        }
        self.keep_up(node, life);
    }

    fn take_fences(&mut self, node: NodeId, fences: FencesReply) {
        if self.metad_at(node).is_some() {
            self.metad_input(node, Input::Fences(fences));
        } else if let Some(storaged) = self.storageds.iter_mut().find(|storaged| storaged.node == node) {
            storaged.set_fences(&fences);
        }
    }

    fn heard_beat(&mut self, node: NodeId, beat: &HeartbeatReply) {
        self.heard_age(node, beat.registry, false);
        let known = self.epoch_of(node);
        let map = self.server_at(node).map(skep_meta::Group::map_version);
        let is_behind = self.metad_at(node).is_some() && beat.map > map.unwrap_or_default();
        let Some(upkeep) = self.upkeep.get_mut(&node) else { return };
        upkeep.fences_wanted |= beat.epoch > known;
        upkeep.map_wanted |= is_behind;
        if !is_behind {
            self.vouch(node);
        }
    }

    /// mgmtd has accepted the last heartbeat, and its map is here.
    fn vouch(&mut self, node: NodeId) {
        let Some(upkeep) = self.upkeep.get(&node).filter(|_| self.metad_at(node).is_some()) else { return };
        let sent = Millis(upkeep.beat_at - BEAT_MS);
        self.metad_input(node, Input::Vouched(sent));
    }
}
