//! Whom mgmtd answers before metadata servers have vouched for it: one gate for all requests.
//!
//! Ids of sessions are given, sessions end by force or are said to have ended, maps and fence lists are told, and
//! administrators move shards, only when it is sure that this is not an older copy of the registry: a metadata server
//! would have said so. See `docs/design/cluster.md`.

use crate::command::Node;
use crate::pool::some;
use crate::registry::{NodePulse, Peer, Registry};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{Reachability, ServiceKind};
use skep_wire::mgmt::{MgmtRequest, RegistryAge};
use skep_wire::{Refusal, Status};

impl Registry {
    /// The gate: whoever relies on what only the newest registry knows waits until this one is vouched for.
    pub(crate) fn pass_gate(&self, peer: Peer, request: &MgmtRequest) -> Result<(), Refusal> {
        if self.relies_on_age(peer, request) { self.require_vouched() } else { Ok(()) }
    }

    fn relies_on_age(&self, peer: Peer, request: &MgmtRequest) -> bool {
        match request {
            // By what daemons tell it is found out. They need neither map nor fences to be heard.
            MgmtRequest::RegisterNode(_) | MgmtRequest::RegisterTarget(_) | MgmtRequest::Heartbeat(_) => {
                false
            }
            // People are shown what there is.
            MgmtRequest::ClusterStatus(_) | MgmtRequest::GetSpace(_) => false,
            // Whoever holds the map of an older registry would take it for newer than the newest one's: each start raises
            // the version. What one daemon knows is not enough, it may have been away.
            MgmtRequest::GetMap(_) => !peer.admin,
            // Who is not among the living of an older list would be refused, though he lives.
            MgmtRequest::GetFences(_) => true,
            // An id must not be given twice.
            MgmtRequest::OpenSession(_) => true,
            // Who lives here lives. That he does not, only the newest can say.
            MgmtRequest::RenewSession(m) => !self.sessions.contains_key(&m.client),
            // Who signs off is believed. For one that died there would be a fence, which is for ever, and whose epoch is
            // that of another fence in the newest registry.
            MgmtRequest::CloseSession(m) => m.died && self.sessions.contains_key(&m.client),
            // Orders that cannot be taken back: the newest would not know of them.
            MgmtRequest::Evict(_) | MgmtRequest::GiveShard(_) => true,
            // Orders that reach nobody but with the map, and are lost with an older copy.
            MgmtRequest::SetTargetState(_)
            | MgmtRequest::CreatePool(_)
            | MgmtRequest::RenamePool(_)
            | MgmtRequest::DeletePool(_)
            | MgmtRequest::AssignTargets(_)
            | MgmtRequest::SetCapacityLimits(_)
            | MgmtRequest::SetNodeAlias(_)
            | MgmtRequest::SetTargetAlias(_)
            | MgmtRequest::RemoveTarget(_)
            | MgmtRequest::RemoveNode(_) => false,
        }
    }

    /// Is it vouched for? What was once is so until the next start. Without metadata servers there is nobody to protect yet.
    pub(crate) fn note_vouched(&mut self) -> bool {
        let is_vouched = self.require_vouched().is_ok();
        self.vouched = self.vouched || is_vouched && self.metads().next().is_some();
        is_vouched
    }

    /// One metadata server may have been away in the time that the registry has lost, so all are waited for that do not
    /// count as away already, and one at least that there was before this start. Each must have said as well that it knows
    /// of this start: else an older registry that takes this one's place would not be found out, and would give the same
    /// ids again.
    fn require_vouched(&self) -> Result<(), Refusal> {
        if self.config.canary_trusts_itself || self.vouched {
            return Ok(());
        }
        let unheard = self.awaited(|pulse| pulse.seen);
        let text = if unheard.is_empty() {
            match self.awaited(|pulse| pulse.knows_start) {
                unaware if unaware.is_empty() => return Ok(()),
                unaware => format!("mgmtd was just started, and {} does not know that yet", some(&unaware)),
            }
        } else {
            format!("mgmtd was just started and has not heard {} yet; is it running?", some(&unheard))
        };
        Err(Refusal::with(Status::NOT_READY, text))
    }

    /// How old this registry is, as whoever has `seen` that much of a registry is to remember. One that may be an older copy
    /// leaves no trace: the newest one would be taken for older than what it left.
    pub(crate) fn age_for(&self, seen: RegistryAge) -> RegistryAge {
        if self.is_newest() { self.state.age() } else { seen }
    }

    /// Have all metadata servers been heard that could know a newer registry?
    fn is_newest(&self) -> bool {
        self.config.canary_trusts_itself || self.vouched || self.awaited(|pulse| pulse.seen).is_empty()
    }

    fn metads(&self) -> impl Iterator<Item = &Node> {
        self.state.nodes.values().filter(|node| node.service == ServiceKind::Metad)
    }

    /// Metadata servers that have not done this since the start and are waited for. Where all that could know a newer
    /// registry count as away those are: whoever came to be since has nothing to say in that, unless there is no other.
    fn awaited(&self, has_done: impl Fn(&NodePulse) -> bool) -> Vec<&str> {
        let pulse = |node: &Node| self.nodes.get(&node.id);
        let did = |node: &Node| pulse(node).is_some_and(&has_done);
        let is_online =
            |node: &Node| pulse(node).is_some_and(|pulse| pulse.reachability == Reachability::Online);
        let knew_before = |node: &Node| pulse(node).is_none_or(|pulse| !pulse.is_newborn);
        let names = |which: &dyn Fn(&Node) -> bool| {
            let named = self.metads().filter(|node| which(node)).map(|node| node.alias.as_str());
            named.collect::<Vec<&str>>()
        };
        let online = names(&|node| !did(node) && is_online(node));
        if !online.is_empty() {
            return online;
        }
        let any_knew = self.metads().any(knew_before);
        let could_know = |node: &Node| !any_knew || knew_before(node);
        if self.metads().any(|node| could_know(node) && did(node)) { Vec::new() } else { names(&could_know) }
    }
}
