//! Files that their mounts hold: each was made by its mount, which may know more of it than it has told, and nobody else has
//! looked at it. Volatile, like opens: told again after a restart. See `docs/design/leases.md`, section 9.

use super::Shard;
use super::live::{Faults, Holding};
use super::passed::PassedOver;
use super::run::Ran;
use super::waits::For;
use crate::choose::Holder;
use crate::command::{Internal, Unheld};
use crate::ctx::{Dirs, Done, untold};
use crate::fail::Need;
use crate::group::{Host, Request};
use crate::limit::{FILES_HELD_MAX, UNHELD_BATCH, UNHELD_MS};
use crate::op::tell::{is_empty, only_asks};
use crate::row::inode::MAY_BE_HELD;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Ino, LogIndex, Millis, Term};
use skep_wire::meta::{MetaRequest, Question, Reclaim, Tell, Wish};

/// Numbers of questions begin with that of the term, so shifted.
const TERM_SHIFT: u32 = 32;

/// Those who have not told what they hold, in a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreported {
    /// There are none.
    Nobody,
    /// They are waited for.
    Awaited,
    /// They were not heard for so long that they believe to hold nothing.
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldBy {
    client: ClientId,
    /// As which of his holds, as he counts those that he asks for: see [`Tell::hold`]. 0: from its create, or he has told so
    /// after a restart.
    hold: u64,
    /// It has told of it in this hold, or asked for it: since then it sends each change of owner and mode at once.
    is_told: bool,
}

/// Of a shard.
#[derive(Debug, Default)]
pub struct FilesHeld {
    /// Of each the row says that it may be held.
    by_ino: BTreeMap<Ino, HeldBy>,
    by_client: BTreeMap<ClientId, BTreeSet<Ino>>,
    /// No longer held, with nothing told: their rows say still that they may be.
    unheld: BTreeSet<Ino>,
    /// When those are to say so no longer.
    due: Option<Millis>,
    /// When it is looked whether those are silent for whom somebody waits.
    look_at: Option<Millis>,
    /// Files of silent holders, and the record by which their rows say so no longer.
    pub(super) passing: BTreeMap<Ino, LogIndex>,
    pub(super) passed: PassedOver,
    /// So many were held because their mounts asked for it.
    given: u64,
    /// What holders were asked for those who only look, and have not answered.
    looks: BTreeMap<Ino, u64>,
    /// The newest of these questions.
    questions: u64,
    /// So many requests were answered behind a word by which the hold went on.
    pub(super) shown: u64,
}

impl FilesHeld {
    /// How many are held.
    pub fn len(&self) -> usize {
        self.by_ino.len()
    }

    fn of(&self, client: ClientId) -> usize {
        self.by_client.get(&client).map_or(0, BTreeSet::len)
    }

    /// Who hold some.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.by_client.keys().copied()
    }

    /// Does somebody hold it?
    pub fn has(&self, ino: Ino) -> bool {
        self.by_ino.contains_key(&ino)
    }

    /// Does `client` hold it?
    pub fn is_by(&self, ino: Ino, client: ClientId) -> bool {
        self.client(ino) == Some(client)
    }

    /// The same, where he tells of this hold: what he said of an earlier one is over.
    pub fn is_told_by(&self, ino: Ino, client: ClientId, hold: u64) -> bool {
        self.by_ino.get(&ino).is_some_and(|by| by.client == client && by.hold <= hold)
    }

    /// Who holds it.
    pub(super) fn client(&self, ino: Ino) -> Option<ClientId> {
        self.by_ino.get(&ino).map(|by| by.client)
    }

    /// The same, and as which of his holds.
    pub(super) fn hold_of(&self, ino: Ino) -> Option<(ClientId, u64)> {
        self.by_ino.get(&ino).map(|by| (by.client, by.hold))
    }

    /// Who holds it, if that is not `client`.
    pub fn other(&self, ino: Ino, client: ClientId) -> Option<ClientId> {
        self.client(ino).filter(|holder| *holder != client)
    }

    /// So many were held because their mounts asked for it.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// So many requests looked at a file that went on being held.
    pub fn shown(&self) -> u64 {
        self.shown
    }

    /// What its holder was asked for those who only look, and has not answered.
    pub(super) fn asked_by(&self, ino: Ino) -> Option<u64> {
        self.looks.get(&ino).copied()
    }

    /// It is asked anew. Numbers of a term are higher than those of all before it: a word that was begun then may be sent again.
    pub(super) fn next_question(&mut self, ino: Ino, term: Term) -> u64 {
        self.questions = self.questions.max(term.0 << TERM_SHIFT) + 1;
        self.looks.insert(ino, self.questions);
        self.questions
    }

    /// It has told.
    pub(super) fn is_answered(&mut self, ino: Ino) {
        self.looks.remove(&ino);
    }

    /// What `client` is to wait for, of a file that may be held.
    pub fn holder(&self, ino: Ino, client: ClientId, unreported: Unreported) -> Holder {
        match (self.client(ino), unreported) {
            (Some(holder), _) if holder == client => Holder::NoOther,
            (Some(holder), _) => Holder::Other(holder),
            // Also where all have reported meanwhile: a power cut brings back that it may be held, and somebody reports it then.
            (None, _) if self.is_passing(ino) => Holder::Other(ClientId(0)),
            (None, Unreported::Awaited) => Holder::Unknown,
            // Whoever it is: until the row says so no longer.
            (None, Unreported::Silent) => Holder::Other(ClientId(0)),
            (None, Unreported::Nobody) => Holder::NoOther,
        }
    }

    /// Are owner and mode in its row those that it has?
    pub fn is_told(&self, ino: Ino) -> bool {
        self.by_ino.get(&ino).is_some_and(|by| by.is_told) && !self.is_passing(ino)
    }

    fn hold(&mut self, ino: Ino, client: ClientId, hold: u64, is_told: bool) {
        self.by_ino.insert(ino, HeldBy { client, hold, is_told });
        self.by_client.entry(client).or_default().insert(ino);
        self.unheld.remove(&ino);
    }

    /// `client` holds it no longer; `true`: he did.
    pub(super) fn end(&mut self, ino: Ino, client: ClientId) -> bool {
        if !self.is_by(ino, client) {
            return false;
        }
        self.by_ino.remove(&ino);
        self.looks.remove(&ino);
        self.passing.remove(&ino);
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

    /// Has its holder been silent, and is that not on stable storage?
    pub fn is_passing(&self, ino: Ino) -> bool {
        self.passing.contains_key(&ino)
    }

    /// It is looked then at the latest whether somebody is silent.
    pub(super) fn look_at(&mut self, at: Millis) {
        self.look_at = Some(self.look_at.map_or(at, |old| old.min(at)));
    }

    /// Is it to be looked now? It is not before it is said again.
    pub(super) fn is_look_due(&mut self, now: Millis) -> bool {
        self.look_at.take_if(|at| now >= *at).is_some()
    }

    /// When there is something to do.
    pub fn deadline(&self) -> Option<Millis> {
        [self.rows_due(), self.look_at].into_iter().flatten().min()
    }

    /// When rows are to be written.
    fn rows_due(&self) -> Option<Millis> {
        let is_full = self.unheld.len() >= UNHELD_BATCH;
        self.due.map(|due| if is_full { Millis(0) } else { due })
    }

    /// Those that one command names.
    fn take_due(&mut self, now: Millis) -> Vec<Ino> {
        if self.rows_due().is_none_or(|due| now < due) {
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
        self.files_held.hold(ino, client, 0, false);
    }

    /// What is to be known for a run.
    pub(super) fn holding<S: Store>(&self, host: &Host<S>, request: &Request) -> Holding {
        Holding {
            unreported: self.unreported(host),
            makes: self.may_hold(host, request),
            keeps: self.may_keep(host, request),
            again: self.may_hold_again(host, request),
            wished: self.may_hold_as_wished(host, request),
            may_look: host.may_look,
            faults: Faults::of(&host.config),
        }
    }

    /// May the asker hold what this request makes, wherever that is?
    fn may_hold<S: Store>(&self, host: &Host<S>, request: &Request) -> bool {
        let client = request.peer.client;
        let wishes = request.call.wish.unwrap_or_default() & Wish::HOLD != 0
            && matches!(request.message, MetaRequest::Create(_))
            && host.leases.wishes(request.reply_to).is_some();
        wishes && self.may_hold_more(host, client)
    }

    /// May `client` hold one file more, whichever that is?
    fn may_hold_more<S: Store>(&self, host: &Host<S>, client: ClientId) -> bool {
        let limits = &host.config.limits;
        // What is held may bring content later, which is not refused then.
        !host.low_space
            && self.grace.knows_opens()
            && self.hold.is_none()
            && self.files_held.len() < limits.files_held
            && self.files_held.of(client) < limits.files_held_per_client
            // Who cannot hear is not asked, and others would wait for his session to end.
            && host.leases.may_lend(client, host.events.listens(client, host.now, host.config.lease_ms / 2))
    }

    /// May the asker go on holding the file that it tells of, as it wishes? The answer is to say so. Who tells nothing only asks
    /// whether it holds the file still, before it brings what programs were answered for: that ends nothing, whoever waits.
    fn may_keep<S: Store>(&self, host: &Host<S>, request: &Request) -> bool {
        let MetaRequest::Tell(m) = &request.message else { return false };
        let client = request.peer.client;
        let goes_on = || host.leases.wishes(request.reply_to).is_some() && self.goes_on(host, m.ino, client);
        m.keeps == Some(true) && if only_asks(m) { self.files_held.is_by(m.ino, client) } else { goes_on() }
    }

    /// May the asker, who was passed over, hold the file once more?
    fn may_hold_again<S: Store>(&self, host: &Host<S>, request: &Request) -> bool {
        let MetaRequest::Tell(m) = &request.message else { return false };
        let client = request.peer.client;
        m.keeps == Some(true)
            && self.files_held.passed.change(m.ino, client, m.hold.unwrap_or(0)).is_some()
            && self.opens.writes(m.ino, client)
            && host.leases.wishes(request.reply_to).is_some()
            && self.may_hold_more(host, client)
            && !host.events.is_asked(client, m.ino)
    }

    /// May the asker hold a file from now on that it writes to, as it wishes? Only where nobody else knows anything of it that
    /// he may use later: as after a create.
    fn may_hold_as_wished<S: Store>(&self, host: &Host<S>, request: &Request) -> bool {
        let MetaRequest::Tell(m) = &request.message else { return false };
        let (ino, client) = (m.ino, request.peer.client);
        if m.wishes != Some(true) || host.leases.wishes(request.reply_to).is_none() {
            return false;
        }
        if self.files_held.is_told_by(ino, client, m.hold.unwrap_or(0)) {
            // The answer to an earlier wish was lost: he has kept nothing by it, and nobody has looked.
            let is_looked_at = self.waits.is_looked_at(ino) || host.events.is_asked(client, ino);
            return !is_looked_at && self.goes_on(host, ino, client);
        }
        let is_alone = !self.opens.others(ino, client) || host.config.canary_holds_beside;
        is_alone
            && self.opens.writes(ino, client)
            && !self.files_held.has(ino)
            && !self.waits.is_awaited(For::Holder(ino))
            && !self.waits.is_looked_at(ino)
            && !host.events.is_asked(client, ino)
            && self.is_settled_but_for(ino, client)
            && !self.has_ends_of_others(host, ino, client)
            && self.may_hold_more(host, client)
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
        self.files_held.hold(ino, client, 0, false);
        Some(most)
    }

    /// `client` reports which files it holds. That counts for what it has open for writing, and of which nothing was told; and
    /// only in its first report: behind that others may have looked.
    pub(super) fn reclaim_held<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        m: &Reclaim,
    ) -> Result<(), StoreError> {
        for ino in m.holds.iter().flatten().copied() {
            let is_own = self.opens.writes(ino, client) && self.files_held.other(ino, client).is_none();
            let may_be = |inode: crate::row::Inode| inode.flags & MAY_BE_HELD != 0;
            if is_own && self.inode(host, ino)?.is_some_and(may_be) {
                self.files_held.hold(ino, client, 0, false);
                // Who waits for it already had nobody asked.
                self.holder_over(host, ino);
            }
        }
        Ok(())
    }

    /// `client` has told what became of the file, and perhaps goes on holding it: so many bytes of its content may stay with
    /// it. Else whoever waited for that goes on.
    pub(super) fn has_told<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        m: &Tell,
        done: &Done,
    ) -> Option<u32> {
        if done.holds.is_some() {
            // If it was passed over it is no longer.
            let is_told = self.files_held.is_told(m.ino) || m.wishes == Some(true) || !only_asks(m);
            self.files_held.hold(m.ino, client, m.hold.unwrap_or(0), is_told);
            self.files_held.given += u64::from(m.wishes == Some(true));
            self.looks_are_answered(host, client, m);
        } else if self.files_held.is_told_by(m.ino, client, m.hold.unwrap_or(0))
            && self.files_held.end(m.ino, client)
        {
            self.holder_over(host, m.ino);
        }
        if done.holds.is_some() || !is_empty(m) {
            self.files_held.passed.forget_of(m.ino, client, m.hold.unwrap_or(0));
        }
        done.holds
    }

    /// `client` will tell nothing: it has closed the file, or its session is over.
    pub(super) fn tells_nothing<S: Store>(&mut self, host: &mut Host<S>, ino: Ino, client: ClientId) {
        self.files_held.passed.forget_of(ino, client, u64::MAX);
        if self.files_held.end(ino, client) {
            self.files_held.note_unheld(ino, host.now);
            self.holder_over(host, ino);
        }
    }

    /// Does this client hold the file, as far as is known?
    pub fn is_held_by(&self, ino: Ino, client: ClientId) -> bool {
        self.files_held.is_by(ino, client)
    }

    /// Does this client hold the file, or is it to be heard who holds what?
    pub fn knows_hold<S: Store>(&self, host: &Host<S>, ino: Ino, client: ClientId) -> bool {
        self.files_held.is_by(ino, client) || self.unreported(host) == Unreported::Awaited
    }

    /// A session is over: it holds nothing.
    pub(super) fn end_held<S: Store>(&mut self, host: &mut Host<S>, client: ClientId) {
        let inos = self.files_held.by_client.get(&client).cloned().unwrap_or_default();
        inos.into_iter().for_each(|ino| self.tells_nothing(host, ino, client));
        self.files_held.passed.end(client);
    }

    /// The file is gone.
    pub(super) fn forget_held<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) {
        self.files_held.unheld.remove(&ino);
        self.files_held.passed.forget(ino);
        if let Some(client) = self.files_held.client(ino) {
            self.files_held.end(ino, client);
            self.holder_over(host, ino);
        }
    }

    pub(super) fn holder_over<S: Store>(&mut self, host: &mut Host<S>, ino: Ino) {
        let looks = self.waits.looks_over(ino);
        for parked in self.waits.over(For::Holder(ino)).into_iter().chain(looks) {
            self.resume(host, parked);
        }
    }

    /// Somebody is about to wait for a file: its holder is asked, once for all who do.
    pub(super) fn ask_holder<S: Store>(&mut self, host: &mut Host<S>, ino: Ino, client: ClientId) {
        if !self.waits.is_awaited(For::Holder(ino)) && host.sessions.lives(client) {
            host.events.ask_holder(client, Question { term: self.term(), ino, looks: None });
        }
        self.awaits(host, client);
    }

    /// How a request ends about a file that another one may hold, where it is none that runs an operation.
    pub(super) fn meets_held<S: Store>(
        &self,
        host: &Host<S>,
        request: &Request,
    ) -> Result<Option<Ran>, StoreError> {
        let Some(ino) = looks_at(&request.message) else { return Ok(None) };
        let is_flagged = || Ok(self.inode(host, ino)?.is_some_and(|inode| inode.flags & MAY_BE_HELD != 0));
        let may_be = || if self.files_held.is_passing(ino) { Ok(true) } else { is_flagged() };
        Ok(match self.files_held.holder(ino, request.peer.client, self.unreported(host)) {
            Holder::NoOther => None,
            Holder::Other(_) if host.config.canary_asks_later => None,
            Holder::Other(ClientId(0)) | Holder::Unknown if !may_be()? => None,
            Holder::Other(client) => Some(self.wait_for(host, Need::Holder { ino, client })),
            Holder::Unknown => Some(Ran::Refused(untold(ino), Dirs::default())),
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
