//! Files that their mounts hold: each was made by its mount, which may know more of it than it has told, and nobody else has
//! looked at it. Volatile, like opens: told again after a restart. See `docs/design/leases.md`, section 9.

use super::Shard;
use super::run::Ran;
use super::waits::For;
use crate::choose::Holder;
use crate::command::{Internal, Unheld};
use crate::ctx::{Dirs, Done, untold};
use crate::fail::Need;
use crate::group::{Host, Request};
use crate::limit::{FILES_HELD_MAX, UNHELD_BATCH, UNHELD_MS};
use crate::row::inode::MAY_BE_HELD;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Ino, Millis};
use skep_wire::meta::{MetaRequest, Question, Reclaim, Wish};

/// Of a shard.
#[derive(Debug, Default)]
pub struct FilesHeld {
    /// Of each the row says that it may be held.
    by_ino: BTreeMap<Ino, ClientId>,
    by_client: BTreeMap<ClientId, BTreeSet<Ino>>,
    /// No longer held, with nothing told: their rows say still that they may be.
    unheld: BTreeSet<Ino>,
    /// When those are to say so no longer.
    due: Option<Millis>,
}

impl FilesHeld {
    /// How many are held.
    pub fn len(&self) -> usize {
        self.by_ino.len()
    }

    fn of(&self, client: ClientId) -> usize {
        self.by_client.get(&client).map_or(0, BTreeSet::len)
    }

    /// Does somebody hold it?
    pub fn has(&self, ino: Ino) -> bool {
        self.by_ino.contains_key(&ino)
    }

    /// Does `client` hold it?
    pub fn is_by(&self, ino: Ino, client: ClientId) -> bool {
        self.by_ino.get(&ino) == Some(&client)
    }

    /// Who holds it, if that is not `client`.
    pub fn other(&self, ino: Ino, client: ClientId) -> Option<ClientId> {
        self.by_ino.get(&ino).copied().filter(|holder| *holder != client)
    }

    /// What `client` is to wait for, of a file that may be held. `in_grace`: not everybody has told what he holds.
    pub fn holder(&self, ino: Ino, client: ClientId, in_grace: bool) -> Holder {
        match self.by_ino.get(&ino) {
            Some(holder) if *holder == client => Holder::NoOther,
            Some(holder) => Holder::Other(*holder),
            None if in_grace => Holder::Unknown,
            None => Holder::NoOther,
        }
    }

    fn hold(&mut self, ino: Ino, client: ClientId) {
        self.by_ino.insert(ino, client);
        self.by_client.entry(client).or_default().insert(ino);
        self.unheld.remove(&ino);
    }

    /// `client` holds it no longer; `true`: he did.
    fn end(&mut self, ino: Ino, client: ClientId) -> bool {
        if self.by_ino.get(&ino) != Some(&client) {
            return false;
        }
        self.by_ino.remove(&ino);
        if let Some(inos) = self.by_client.get_mut(&client) {
            inos.remove(&ino);
            if inos.is_empty() {
                self.by_client.remove(&client);
            }
        }
        true
    }

    /// The row is to say so no longer. Where that are too many it goes on saying so, which means nothing before the next term
    /// begins, and little then.
    fn note_unheld(&mut self, ino: Ino, now: Millis) {
        if self.unheld.len() < FILES_HELD_MAX {
            self.unheld.insert(ino);
            self.due.get_or_insert(now.plus(UNHELD_MS));
        }
    }

    /// When rows are to be written.
    pub fn deadline(&self) -> Option<Millis> {
        let is_full = self.unheld.len() >= UNHELD_BATCH;
        self.due.map(|due| if is_full { Millis(0) } else { due })
    }

    /// Those that one command names.
    fn take_due(&mut self, now: Millis) -> Vec<Ino> {
        if self.deadline().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut inos = Vec::new();
        while inos.len() < UNHELD_BATCH
            && let Some(ino) = self.unheld.pop_first()
        {
            inos.push(ino);
        }
        if self.unheld.is_empty() {
            self.due = None;
        }
        inos
    }
}

impl Shard {
    #[cfg(test)]
    pub fn makes_held(&mut self, ino: Ino, client: ClientId) {
        self.files_held.hold(ino, client);
    }

    /// May the asker hold what this request makes, wherever that is?
    pub(super) fn may_hold<S: Store>(&self, host: &Host<S>, request: &Request) -> bool {
        let (client, limits) = (request.peer.client, &host.config.limits);
        let wishes = request.call.wish.unwrap_or_default() & Wish::HOLD != 0
            && matches!(request.message, MetaRequest::Create(_))
            && host.leases.wishes(request.reply_to).is_some();
        wishes
            // What is held may bring content later, which is not refused then.
            && !host.low_space
            && self.grace.knows_opens()
            && self.hold.is_none()
            && self.files_held.len() < limits.files_held
            && self.files_held.of(client) < limits.files_held_per_client
            // Who cannot hear is not asked, and others would wait for his session to end.
            && host.leases.may_lend(client, host.events.listens(client, host.now, host.config.lease_ms / 2))
    }

    /// `client` has made a file, and perhaps holds it: so many bytes of its content may stay with it.
    pub(super) fn begin_holding<S: Store>(
        &mut self,
        host: &Host<S>,
        client: ClientId,
        done: &Done,
    ) -> Option<u32> {
        let (ino, most) = done.opened.zip(done.holds)?;
        if !self.opens.writes(ino, client) {
            // Its close has overtaken it.
            self.files_held.note_unheld(ino, host.now);
            return None;
        }
        self.files_held.hold(ino, client);
        Some(most)
    }

    /// `client` reports which files it holds. That counts for what it has open for writing, and of which nothing was told; and
    /// only in its first report: behind that others may have looked.
    pub(super) fn reclaim_held<S: Store>(
        &mut self,
        host: &Host<S>,
        client: ClientId,
        m: &Reclaim,
    ) -> Result<(), StoreError> {
        for ino in m.holds.iter().flatten().copied() {
            let is_own = self.opens.writes(ino, client) && self.files_held.other(ino, client).is_none();
            let may_be = |inode: crate::row::Inode| inode.flags & MAY_BE_HELD != 0;
            if is_own && self.inode(host, ino)?.is_some_and(may_be) {
                self.files_held.hold(ino, client);
            }
        }
        Ok(())
    }

    /// `client` has told what became of the file. Whoever waited for that goes on.
    pub(super) fn has_told<S: Store>(&mut self, host: &mut Host<S>, ino: Ino, client: ClientId) {
        if self.files_held.end(ino, client) {
            self.holder_over(host, ino);
        }
    }

    /// `client` will tell nothing: it has closed the file, or its session is over.
    pub(super) fn tells_nothing<S: Store>(&mut self, host: &mut Host<S>, ino: Ino, client: ClientId) {
        if self.files_held.end(ino, client) {
            self.files_held.note_unheld(ino, host.now);
            self.holder_over(host, ino);
        }
    }

    /// Does this client hold the file, or is not known yet who holds what?
    pub fn knows_hold(&self, ino: Ino, client: ClientId) -> bool {
        self.files_held.is_by(ino, client) || !self.grace.knows_opens()
    }

    /// A session is over: it holds nothing.
    pub(super) fn end_held<S: Store>(&mut self, host: &mut Host<S>, client: ClientId) {
        let inos = self.files_held.by_client.get(&client).cloned().unwrap_or_default();
        inos.into_iter().for_each(|ino| self.tells_nothing(host, ino, client));
    }

    /// The file is gone.
    pub(super) fn forget_held<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) {
        self.files_held.unheld.remove(&ino);
        if let Some(client) = self.files_held.by_ino.get(&ino).copied() {
            self.files_held.end(ino, client);
            self.holder_over(host, ino);
        }
    }

    fn holder_over<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) {
        for parked in self.waits.over(For::Holder(ino)) {
            self.resume(host, parked);
        }
    }

    /// Somebody is about to wait for a file: its holder is asked, once for all who do.
    pub(super) fn ask_holder<S: Store>(&self, host: &mut Host<S>, ino: Ino, client: ClientId) {
        if !self.waits.is_awaited(For::Holder(ino)) && host.sessions.lives(client) {
            host.events.ask_holder(client, Question { term: self.term(), ino });
        }
    }

    /// How a request ends about a file that another one may hold, where it is none that runs an operation.
    pub(super) fn meets_held<S: Store>(
        &self,
        host: &Host<S>,
        request: &Request,
    ) -> Result<Option<Ran>, StoreError> {
        let Some(ino) = looks_at(&request.message) else { return Ok(None) };
        let in_grace = !self.grace.knows_opens();
        Ok(match self.files_held.holder(ino, request.peer.client, in_grace) {
            Holder::NoOther => None,
            Holder::Other(_) if host.config.canary_asks_later => None,
            Holder::Other(client) => Some(self.wait_for(host, Need::Holder { ino, client })),
            Holder::Unknown => {
                let inode = self.inode(host, ino)?.filter(|inode| inode.flags & MAY_BE_HELD != 0);
                inode.map(|_| Ran::Refused(untold(ino), Dirs::default()))
            }
        })
    }

    /// A run that is to wait. Those that wait for mounts do not take all places.
    pub(super) fn wait_for<S: Store>(&self, host: &Host<S>, need: Need) -> Ran {
        let refused = match need {
            Need::Holder { .. } => self.has_no_place(host),
            _ => None,
        };
        refused.unwrap_or(Ran::Wait(need))
    }

    /// Rows that say that somebody may hold what nobody does.
    pub(super) fn end_unheld<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        if host.holds_chores {
            return Ok(());
        }
        let inos = self.files_held.take_due(host.now);
        if inos.is_empty() { Ok(()) } else { self.decide(host, &Internal::Unheld(Unheld { inos })) }
    }
}

/// The file that it is about, of a request that looks at one beside operations. Who gives something up waits for nobody.
fn looks_at(message: &MetaRequest) -> Option<Ino> {
    match message {
        MetaRequest::SetLock(m) => m.lock.kind.map(|_| m.ino),
        MetaRequest::GetLock(m) => Some(m.ino),
        MetaRequest::ReserveEnd(m) => Some(m.ino),
        MetaRequest::SealExtent(m) => Some(m.ino),
        _ => None,
    }
}
