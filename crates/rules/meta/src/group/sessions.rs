//! Which clients live: mgmtd's fence list, as far as it is known here.

use crate::limit::SESSIONS_MAX;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{ClientId, FenceEpoch};
use skep_wire::mgmt::FencesReply;
use skep_wire::{Refusal, Status};

/// Sessions known to the server.
#[derive(Debug, Default)]
pub struct Sessions {
    epoch: FenceEpoch,
    known: bool,
    living: BTreeSet<ClientId>,
    /// Ids up to this one are either in `living` or over: mgmtd never uses one twice.
    horizon: ClientId,
}

impl Sessions {
    /// Was a list ever fetched?
    pub fn known(&self) -> bool {
        self.known
    }

    /// Epoch of the list.
    pub fn epoch(&self) -> FenceEpoch {
        self.epoch
    }

    /// Does it live, as far as is known?
    pub fn lives(&self, client: ClientId) -> bool {
        self.living.contains(&client) || client > self.horizon
    }

    /// Living sessions.
    pub fn living(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.living.iter().copied()
    }

    /// May `client` be served? One that mgmtd opened after the list was fetched may: its token
    /// was checked when it connected.
    pub fn admit(&mut self, client: ClientId) -> Result<(), Refusal> {
        if self.living.contains(&client) {
            return Ok(());
        }
        if client <= self.horizon || client == ClientId(0) {
            return Err(Refusal::with(
                Status::FENCED,
                "this session has ended (evicted or closed); unmount and mount again",
            ));
        }
        if self.living.len() >= SESSIONS_MAX {
            return Err(Refusal::with(
                Status::BUSY,
                alloc::format!("{SESSIONS_MAX} sessions are the limit of one metadata server"),
            ));
        }
        self.living.insert(client);
        Ok(())
    }

    /// A client that rows name: does it live? One that opened its session after the list was fetched counts from now on as
    /// one that was served: a later list may say that it has ended. No limit is asked: the rows have it already.
    pub fn watch(&mut self, client: ClientId) -> bool {
        let lives = self.lives(client);
        if lives {
            self.living.insert(client);
        }
        lives
    }

    /// Takes over a newer list; the sessions that ended since. Old lists change nothing.
    pub fn update(&mut self, fences: &FencesReply) -> Vec<ClientId> {
        if self.known && fences.epoch < self.epoch {
            return Vec::new();
        }
        let ids = fences.sessions.iter().chain(&fences.closed).copied();
        let newest = ids.chain(fences.fences.iter().map(|fence| fence.client)).max().unwrap_or_default();
        let alive: BTreeSet<ClientId> = fences.sessions.iter().copied().collect();
        let gone = self.living.iter().filter(|id| **id <= newest && !alive.contains(id)).copied().collect();
        let newer = self.living.iter().filter(|id| **id > newest).copied().collect::<Vec<_>>();
        self.living = alive;
        self.living.extend(newer);
        self.horizon = self.horizon.max(newest);
        (self.epoch, self.known) = (fences.epoch, true);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skep_wire::mgmt::Fence;

    fn list(epoch: u64, living: &[u64], fenced: &[u64]) -> FencesReply {
        FencesReply {
            epoch: FenceEpoch(epoch),
            fences: fenced
                .iter()
                .map(|id| Fence { client: ClientId(*id), epoch: FenceEpoch(epoch) })
                .collect(),
            sessions: living.iter().map(|id| ClientId(*id)).collect(),
            closed: vec![],
        }
    }

    /// Goal: a session newer than the list is served and survives the next list; one that ended
    /// is refused for ever, and reported once.
    #[test]
    fn lists_and_newcomers() {
        let mut sessions = Sessions::default();
        assert!(sessions.update(&list(1, &[1, 2], &[])).is_empty());
        sessions.admit(ClientId(3)).unwrap();
        assert_eq!(sessions.update(&list(2, &[2], &[1])), [ClientId(1)]);
        sessions.admit(ClientId(3)).unwrap();
        assert_eq!(sessions.admit(ClientId(1)).unwrap_err().status, Status::FENCED);
        assert!(sessions.update(&list(1, &[1], &[])).is_empty(), "an old list changes nothing");
        assert_eq!(sessions.update(&list(3, &[2], &[1, 3])), [ClientId(3)]);
        assert_eq!(sessions.admit(ClientId(3)).unwrap_err().status, Status::FENCED);
    }

    /// Goal: that no more sessions are served says nothing about one that the rows name: it lives, and the list that says
    /// that it has ended is heeded.
    #[test]
    fn a_full_server_ends_nobody() {
        let mut sessions = Sessions::default();
        let living: Vec<u64> = (1..=SESSIONS_MAX as u64).collect();
        sessions.update(&list(1, &living, &[]));
        let late = ClientId(SESSIONS_MAX as u64 + 5);
        assert_eq!(sessions.admit(late).unwrap_err().status, Status::BUSY);
        assert!(sessions.watch(late) && !sessions.watch(ClientId(0)));
        sessions.admit(late).unwrap();
        assert_eq!(sessions.update(&list(2, &living, &[late.0])), [late]);
        assert!(!sessions.watch(late));
    }
}
