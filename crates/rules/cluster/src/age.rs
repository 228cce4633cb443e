//! Which of two copies of a directory is the older one.
//!
//! Each side keeps of the other what only grows: the registry the newest start and log index of every daemon and
//! target, daemons the newest start and change of the registry. Who knows less than the other remembers of it is
//! a copy from before: acted upon, it would give the same numbers a second time. See `docs/design/cluster.md`.

use crate::command::{Node, Restored, SetIndex, Started};
use crate::limits::{ERAS_MAX, INDEX_EVERY_MS};
use crate::registry::{Output, Registry};
use crate::state::State;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Errno, LogSeq, Millis, NodeId, ServiceKind};
use skep_wire::mgmt::{RegisterNode, RegistryAge};
use skep_wire::{Refusal, Status};

impl State {
    /// Is this registry that one, or one that grew out of it?
    pub fn descends_from(&self, seen: RegistryAge) -> bool {
        // Before the oldest start that is remembered: whoever saw only that was away for long.
        if self.starts.first().is_none_or(|oldest| seen.changes < oldest.first) {
            return true;
        }
        let at = self.starts.iter().rev().find(|start| start.first <= seen.changes);
        seen.changes <= self.changes && at.is_some_and(|start| start.start == seen.start)
    }
}

impl Registry {
    /// The management service began to run; `start` is random.
    pub fn begin(&mut self, start: u64, out: &mut Output) {
        self.commit(Started { start }, out);
    }

    /// An administrator says that this older copy of the registry is all there is.
    pub fn restore(&mut self, out: &mut Output) -> Result<(), String> {
        if self.state.shards.iter().any(|shard| shard.era >= ERAS_MAX) {
            return Err(eras_are_used_up());
        }
        out.notes.push(String::from("an older copy of the registry was put back: ids go on far behind it"));
        self.commit(Restored { node: NodeId(0), from_round: Some(true) }, out);
        Ok(())
    }

    /// Refuses to be a registry that is older than what `who` has seen.
    pub(crate) fn check_registry(
        &mut self,
        seen: RegistryAge,
        who: &str,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        if self.state.descends_from(seen) {
            return Ok(());
        }
        let text = format!(
            "the state directory of mgmtd is an older copy: {who} knows change {} of the registry, this one is at {} \
             and has another history. Put the newest directory back; if it is lost, and this is the newest copy that \
             there is, run `skep mgmtd --restored` once (docs/admin/restore.md says what is lost)",
            seen.changes, self.state.changes
        );
        out.outdated.get_or_insert_with(|| text.clone());
        Err(Refusal::with(Status::NOT_READY, text))
    }

    /// Refuses a process that was superseded, and an older copy of a state directory.
    pub(crate) fn check_node(&self, known: &Node, m: &RegisterNode) -> Result<(), Refusal> {
        let (alias, id) = (&known.alias, known.id);
        if m.restored {
            return Ok(());
        }
        if m.incarnation < known.incarnation {
            return Err(superseded(known));
        }
        let told = self.nodes.get(&id).map_or(LogSeq(0), |pulse| pulse.index).max(known.index);
        let what = if !knows(known.mark, (m.confirmed, m.mark)) {
            format!("{alias} (node {id}) was started since with a newer one")
        } else if m.index == LogSeq(0) && told > LogSeq(0) {
            format!(
                "its log is gone, which held {told} records of {alias} (node {id}): is a disk not mounted?"
            )
        } else if m.index < told {
            format!("its log ends at record {}, {alias} (node {id}) had {told} on stable storage", m.index)
        } else {
            return Ok(());
        };
        let service = known.service.as_str();
        let text = format!(
            "the state directory is an older copy: {what}. Put the newest directory back; if it is lost, and this is \
             the newest copy that there is, run `skep {service} --restored` once (docs/admin/restore.md says what \
             is lost)"
        );
        Err(Refusal::with(Status::errno(Errno::EINVAL), text))
    }

    /// The directory of a node is an older copy, and all there is.
    pub(crate) fn node_restored(&mut self, node: &Node, out: &mut Output) -> Result<(), Refusal> {
        let mut shards = self.state.shards.iter().filter(|shard| shard.members.contains(&node.id));
        if shards.any(|shard| shard.era >= ERAS_MAX) {
            return Err(Refusal::with(Status::errno(Errno::ENOSPC), eras_are_used_up()));
        }
        out.notes.push(format!("an older copy of {} (node {}) was put back", node.alias, node.id));
        if node.service == ServiceKind::Metad {
            self.commit(Restored { node: node.id, from_round: None }, out);
        }
        Ok(())
    }

    /// Writes down how far the logs of the metadata servers got.
    pub(crate) fn note_indexes(&mut self, now: Millis, out: &mut Output) {
        if now.since(self.indexes_at) < INDEX_EVERY_MS {
            return;
        }
        self.indexes_at = now;
        let known = |id: &NodeId| self.state.nodes.get(id).map_or(LogSeq(u64::MAX), |node| node.index);
        let moved = self.nodes.iter().filter(|(id, pulse)| pulse.index > known(id));
        let moved: Vec<_> = moved.map(|(id, pulse)| SetIndex { node: *id, index: pulse.index }).collect();
        for set in moved {
            self.commit(set, out);
        }
    }
}

/// What a process is told whose place another one has taken.
pub(crate) fn superseded(known: &Node) -> Refusal {
    let addresses: Vec<&str> = known.addresses.iter().map(|address| address.text.as_str()).collect();
    let text = format!(
        "{} (node {}) was started again since, with this state directory or a copy of it, and serves at {}: this \
         process is superseded and ends; see that only the newest directory is started",
        known.alias,
        known.id,
        addresses.join(", ")
    );
    Refusal::with(Status::errno(Errno::ESTALE), text)
}

pub(crate) fn eras_are_used_up() -> String {
    format!("older copies of a shard were put back {ERAS_MAX} times, the limit: restore the newest directory")
}

/// Does a directory know the newest start that is known of it? Either its server heard the answer (confirmed), or the
/// answer was lost and the mark is told once more. A copy from before knows neither, however often it is started.
pub(crate) fn knows(newest: u64, (confirmed, mark): (u64, u64)) -> bool {
    newest == 0 || newest == confirmed || newest == mark
}

/// The mark that a server tells of a directory that it has open, if it is news: a registry that was put back from an
/// older copy has forgotten the marks, and must not believe any directory until its server happens to start again. One
/// that is known is not told anew: it belongs to the registration.
pub(crate) fn missing(known: u64, told: Option<u64>) -> Option<u64> {
    told.filter(|told| known == 0 && *told != 0)
}
