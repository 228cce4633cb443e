//! What answers lend of this shard, and what its changes take back first.

use super::Shard;
use super::lane::wish;
use super::run::Ran;
use super::run::Tells;
use super::trims::inode_in;
use super::waits::For;
use crate::command::{Holds, Internal, SessionGone};
use crate::ctx::{Dirs, Done};
use crate::fail::corrupt;
use crate::group::{Conflict, Host, Known, Knows, Request, Touched, touched};
use crate::key::{self, Table};
use crate::limit::{CHANGED_PER_ANSWER, LEASE_ROW_STAYS};
use crate::near::Near;
use crate::row::Inode;
use crate::store::{Batch, Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use skep_types::{Attr, ClientId, Decode, Encode, Ino, Kind, Millis};
use skep_wire::meta::{Grant, MetaRequest, Recalled, ShardStamp};
use skep_wire::{Empty, Refusal, Status};

/// In the rows of holders it stands for whoever may have leases.
pub(super) const ANYBODY: ClientId = ClientId(0);

/// The row that there may be leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseRow {
    /// When somebody wished for some.
    wished: Millis,
    /// When it is looked whether it can go.
    look_at: Millis,
}

/// Changes wait for what an earlier term has lent.
#[derive(Debug)]
pub(super) struct Hold {
    /// That is over then.
    until: Millis,
    /// Files to whose chunks somebody wrote when the term began: they were not covered. Who reports since that he is about
    /// to write to another one is told to nobody of that term, and the row that he gets spares the file in no later hold
    /// either: the next may be for the same leases.
    written: BTreeSet<Ino>,
}

/// The directories whose leases cover these.
fn covers(rows: &dyn Store, inos: &[Ino], known: &Known<'_>) -> Result<Touched, StoreError> {
    let mut touched = Touched::new();
    for ino in inos {
        if (known.who_knows)(*ino) == Knows::Nobody {
            continue;
        }
        let inode = inode_in(rows, *ino)?;
        touched.extend(inode.and_then(|inode| known.cover(*ino, &inode)));
    }
    Ok(touched)
}

impl Shard {
    /// What a run touches of what others use, or may use still of an earlier term.
    pub(super) fn touched_by<S: Store>(
        &self,
        host: &Host<S>,
        client: ClientId,
        made: Option<Ino>,
        touched: impl FnOnce(&Known<'_>) -> Result<Touched, StoreError>,
    ) -> Result<Touched, StoreError> {
        if let Some(hold) = &self.hold {
            // By this term's leases they may be known since, if who wrote to them has closed them.
            let who_knows = |ino: Ino| match hold.written.contains(&ino) {
                true => self.who_knows(ino, client),
                false => Knows::Holders,
            };
            let follows = host.config.canary_cover_follows;
            return touched(&Known { is_leased: &|_| true, who_knows: &who_knows, made, follows });
        }
        self.touched_of_term(host, client, made, touched)
    }

    /// The same of what this term has lent.
    fn touched_of_term<S: Store>(
        &self,
        host: &Host<S>,
        client: ClientId,
        made: Option<Ino>,
        touched: impl FnOnce(&Known<'_>) -> Result<Touched, StoreError>,
    ) -> Result<Touched, StoreError> {
        if !host.leases.has_others(client, host.now) {
            return Ok(Touched::new());
        }
        let is_leased = |ino: Ino| host.leases.notes(ino, client, host.now);
        let who_knows = |ino| self.who_knows(ino, client);
        let follows = host.config.canary_cover_follows;
        touched(&Known { is_leased: &is_leased, who_knows: &who_knows, made, follows })
    }

    fn has_writer_row(&self, ino: Ino) -> bool {
        self.writers.range((ino, ClientId(0))..=(ino, ClientId(u64::MAX))).next().is_some()
    }

    /// May the lease on its directory cover the attributes of this inode for `client`? Only where all that may change them is
    /// the client's own, or comes as a request first: nobody else writes to it, and nothing is to come of it. What ends that is
    /// itself taken back before.
    pub(super) fn is_coverable_for(&self, ino: Ino, client: ClientId) -> bool {
        self.is_settled(ino)
            && !self.opens.other_writers(ino, client)
            && self.files_held.other(ino, client).is_none()
    }

    /// Who but `client` may know them by such a lease? Of what somebody writes to, only who does, if he is alone with it.
    fn who_knows(&self, ino: Ino, client: ClientId) -> Knows {
        match self.opens.writers(ino)[..] {
            _ if !self.is_settled(ino) || self.files_held.has(ino) => Knows::Nobody,
            [] => Knows::Holders,
            [writer] if writer != client => Knows::Only(writer),
            _ => Knows::Nobody,
        }
    }

    /// Is what is open known, and nothing to come of this inode that no request announces? (Who wrote to chunks may leave more
    /// than it told.)
    fn is_settled(&self, ino: Ino) -> bool {
        !self.has_writer_row(ino) && self.is_quiet(ino)
    }

    /// The same, where `client` writes to its chunks.
    pub(super) fn is_settled_but_for(&self, ino: Ino, client: ClientId) -> bool {
        let mut writers = self.writers.range((ino, ClientId(0))..=(ino, ClientId(u64::MAX)));
        writers.all(|(_, writer)| *writer == client) && self.is_quiet(ino)
    }

    fn is_quiet(&self, ino: Ino) -> bool {
        self.grace.knows_opens()
            && !self.ceasing.contains_key(&ino)
            && !self.growths.contains(&ino)
            && !self.trimming.contains(&ino)
            && !self.settling.contains_key(&ino)
            && !self.orphans.contains(&ino)
            && !self.seals.has(ino)
    }

    /// Somebody is about to write to these inodes, or something else is to come of them that no request announces: others
    /// are to ask for their attributes from now on. How it ends, if they have to be told first.
    pub(super) fn uncover<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        inos: &[Ino],
    ) -> Result<Option<Ran>, StoreError> {
        let near = Near::new(&host.store, self.reads_in_place(host));
        let covers = |known: &Known<'_>| covers(&near, inos, known);
        let touched = match self.touched_by(host, request.peer.client, None, covers) {
            Err(StoreError::Away) => return Ok(Some(Ran::Lacks(near.take_lacks()))),
            touched => touched?,
        };
        Ok(self.take_back(host, request, &touched))
    }

    /// The same where somebody says that he was writing to them all the time, of which a restart took the memory. What an
    /// earlier term has lent does not cover them; what this one has lent since may, also while changes wait.
    pub(super) fn uncover_again<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        inos: &[Ino],
    ) -> Result<Option<Ran>, StoreError> {
        let near = Near::new(&host.store, self.reads_in_place(host));
        let covers = |known: &Known<'_>| covers(&near, inos, known);
        let touched = match self.touched_of_term(host, request.peer.client, None, covers) {
            Err(StoreError::Away) => return Ok(Some(Ran::Lacks(near.take_lacks()))),
            touched => touched?,
        };
        Ok(self.take_back_of_term(host, request, &touched))
    }

    /// The request opens something for writing that was not.
    pub(super) fn uncovers_by_opening<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        done: &Done,
    ) -> Result<Option<Ran>, StoreError> {
        let writes = wish(&request.message).is_some_and(|(mode, _)| mode.writes());
        match done.opened {
            Some(ino) if writes => self.uncover(host, request, &[ino]),
            _ => Ok(None),
        }
    }

    /// Takes it back: how the run ends, if that has to be waited for.
    pub(super) fn take_back<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        touched: &Touched,
    ) -> Option<Ran> {
        match self.hold {
            Some(_) if touched.is_empty() => None,
            Some(_) => self.has_no_place(host).or(Some(Ran::Hold)),
            None => self.take_back_of_term(host, request, touched),
        }
    }

    /// The same of what this term has lent.
    fn take_back_of_term<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        touched: &Touched,
    ) -> Option<Ran> {
        if touched.is_empty() {
            return None;
        }
        if host.leases.must_wait(request.peer.client, touched)
            && let Some(refused) = self.has_no_place(host)
        {
            return Some(refused);
        }
        let conflict = Conflict {
            to: request.reply_to,
            client: request.peer.client,
            shard: self.id,
            term: self.term(),
            now: host.now,
        };
        let (wait, told) = host.leases.recall(conflict, touched);
        // A session that has ended hears nothing: its time is waited for.
        let told = told.into_iter().filter(|(client, _)| host.sessions.lives(*client));
        told.for_each(|(client, recall)| host.events.tell(client, recall.into()));
        wait.map(Ran::Recall)
    }

    /// Those that wait for mounts have others wait for something else: not all places are theirs.
    pub(super) fn has_no_place<S: Store>(&self, host: &Host<S>) -> Option<Ran> {
        if host.load.waits < host.config.limits.waits / 2 {
            return None;
        }
        let refusal = match self.held_until() {
            None => Refusal::with(Status::BUSY, "too many requests wait for mounts that do not answer"),
            Some(until) => Refusal::with(
                Status::BUSY,
                format!(
                    "shard {} has begun to serve, and too many changes wait until no mount uses any more what it knows \
                     from before; that is over in {} ms at most",
                    self.id,
                    until.since(host.now)
                ),
            ),
        };
        Some(Ran::Refused(refusal, Dirs::default()))
    }

    /// Inodes of which these rows are, as they will be. What is gone has no name. What has a single one here may be covered.
    pub(super) fn changed<S: Store>(&self, host: &Host<S>, batch: &Batch) -> Result<Vec<Attr>, StoreError> {
        let inodes = batch.iter().filter_map(|(key, row)| {
            let (table, ino) = key::table_and_ino(key)?;
            (table == Table::Inode as u8).then_some((ino, key, row))
        });
        let mut changed = Vec::new();
        for (ino, key, row) in inodes.take(CHANGED_PER_ANSWER) {
            let (row, is_gone) = match row {
                Some(row) => (row.clone(), false),
                None => (host.store.get(key)?.unwrap_or_default(), true),
            };
            let mut inode = Inode::from_bytes(&row).map_err(|e| corrupt("inode row", e))?;
            if is_gone {
                inode.nlink = 0;
            }
            let mut attr = inode.attr(ino);
            if inode.covering().is_some() {
                attr.flags |= Attr::COVERED;
            }
            changed.push(attr);
        }
        Ok(changed)
    }

    /// The stamp of an answer, with what it tells beside its body.
    pub(super) fn lending_stamp<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        tells: Tells,
    ) -> Result<ShardStamp, StoreError> {
        let stamp = self.stamp();
        let to = request.reply_to;
        // What it was to change has changed, or will not.
        host.leases.release(to);
        let Tells { dirs, changed, holds } = tells;
        // Who holds a file is told so, whatever else he may know.
        let stamp = ShardStamp { holds, ..stamp };
        let Some(client) = host.leases.wishes(to) else { return Ok(stamp) };
        // Of a file that others write to the rows say too little: its length, and set-id bits that are not in force.
        let shown = |mut attr: Attr| {
            let is_coverable = attr.kind != Kind::Dir && self.is_coverable_for(attr.ino, client);
            if !is_coverable {
                attr.flags &= !Attr::COVERED;
            }
            (attr.kind != Kind::File || attr.nlink == 0 || is_coverable).then_some(attr)
        };
        let touched: Vec<Attr> = changed.into_iter().filter_map(shown).collect();
        let opened = wish(&request.message).filter(|(_, seq)| self.opens.has_number(client, *seq));
        let keeps = (opened.is_some() && self.may_stay_open(host, client)).then_some(true);
        let stamp = ShardStamp { keeps, touched: (!touched.is_empty()).then_some(touched), ..stamp };
        let listens = host.events.listens(client, host.now, host.config.lease_ms / 2);
        if !(host.leases.may_lend(client, listens) && self.may_lend(host)?) {
            return Ok(stamp);
        }
        // The directories in a listing have leases of their own.
        let most = if matches!(request.message, MetaRequest::List(_)) { 1 } else { usize::MAX };
        let mut grants: Vec<Grant> = Vec::new();
        for ino in dirs.list().iter().copied().take(most) {
            if self.is_there(host, ino)? {
                grants.extend(host.leases.grant(to, ino, host.now));
            }
        }
        Ok(ShardStamp { grants: (!grants.is_empty()).then_some(grants), ..stamp })
    }

    /// Is it a directory of this shard that has a name, and that no transaction has locked?
    fn is_there<S: Store>(&self, host: &Host<S>, ino: Ino) -> Result<bool, StoreError> {
        if ino.shard() != self.id || self.txns.has_locked(ino) {
            return Ok(false);
        }
        let Some(Some(row)) = host.store.get_near(&key::inode(ino))? else { return Ok(false) };
        let inode = Inode::from_bytes(&row).map_err(|e| corrupt("inode row", e))?;
        Ok(inode.is_dir() && inode.nlink > 0)
    }

    /// Before the first lease is given a durable row says that there may be some: whoever answers for the shard next waits
    /// until their time is over.
    fn may_lend<S: Store>(&mut self, host: &mut Host<S>) -> Result<bool, StoreError> {
        if !self.holders.contains_key(&ANYBODY) {
            self.decide(host, &Internal::Holds(Holds { client: ANYBODY }))?;
            self.holders.insert(ANYBODY, self.last);
        }
        self.is_wished(host);
        Ok(self.holders.get(&ANYBODY).is_some_and(|index| *index <= self.durable))
    }

    /// The row is there, and stays for a while.
    fn is_wished<S: Store>(&mut self, host: &Host<S>) {
        let look_at = host.now.plus(LEASE_ROW_STAYS * host.leases.hold_ms());
        self.lease_row.get_or_insert(LeaseRow { wished: host.now, look_at }).wished = host.now;
    }

    /// When it is to be looked whether the row that there may be leases can go.
    pub(super) fn lease_row_due(&self) -> Option<Millis> {
        self.lease_row.filter(|_| self.serves).map(|row| row.look_at)
    }

    /// Nobody has wished for leases for a while, nobody has any, and what an earlier term lent is over: the row that there may
    /// be some goes, so that the next term need not wait. Whoever wishes from now on has it written again, behind this record
    /// in the log, and is lent nothing before that is durable.
    pub(super) fn end_lease_row<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        let Some(row) = self.lease_row.filter(|row| self.serves && host.now >= row.look_at) else {
            return Ok(());
        };
        let until = row.wished.plus(LEASE_ROW_STAYS * host.leases.hold_ms());
        if host.now < until || self.hold.is_some() || host.leases.has_of(self.id) || host.holds_chores {
            let look_at = until.max(host.now.plus(host.leases.hold_ms()));
            self.lease_row = Some(LeaseRow { look_at, ..row });
            return Ok(());
        }
        self.lease_row = None;
        self.holders.remove(&ANYBODY);
        // Of this client there is nothing else.
        self.decide(host, &Internal::SessionGone(SessionGone { client: ANYBODY }))
    }

    /// The shard itself changes nothing that anybody may have a lease on.
    pub(super) fn note_broken<S: Store>(&self, host: &mut Host<S>, batch: &Batch) -> Result<(), StoreError> {
        let held = |known: &Known<'_>| touched(&host.store, batch, known);
        let broken = match self.hold {
            None => self.touched_by(host, ClientId(0), None, held)?.len(),
            Some(_) => 0,
        };
        host.leases.broken(broken);
        Ok(())
    }

    /// A term begins: leases of the one before may be in use for a while.
    pub(super) fn hold_changes<S: Store>(&mut self, host: &Host<S>) {
        let unlent = core::mem::take(&mut self.unlent);
        if self.holders.contains_key(&ANYBODY) {
            self.is_wished(host);
        }
        if self.era_untold || self.holders.contains_key(&ANYBODY) {
            let from = if host.config.canary_holds_by_process { host.began } else { host.now };
            let until = from.plus(host.leases.hold_ms());
            // By an older copy nobody can tell what was lent since.
            let written = match self.era_untold {
                true => BTreeSet::new(),
                false => unlent,
            };
            self.hold = Some(Hold { until, written }).filter(|hold| hold.until > host.now);
        }
    }

    /// Time passed.
    pub(super) fn end_hold<S: Store>(&mut self, host: &mut Host<S>) {
        if self.held_until().is_some_and(|until| host.now >= until) {
            self.hold = None;
            for parked in self.waits.over(For::Hold) {
                self.resume(host, parked);
            }
        }
    }

    /// Until when changes wait.
    pub fn held_until(&self) -> Option<Millis> {
        self.hold.as_ref().map(|hold| hold.until)
    }

    /// A mount uses something no longer. What is of another term is settled by its end.
    pub(super) fn recalled<S: Store>(&self, host: &mut Host<S>, request: &Request, m: &Recalled) {
        let client = request.peer.client;
        if m.term == self.term() {
            m.confirmed.iter().for_each(|number| host.leases.confirmed(client, *number, host.now));
            let own = m.back.iter().filter(|(ino, _)| ino.shard() == self.id);
            own.for_each(|(ino, number)| host.leases.give_back(client, *ino, *number));
        }
        self.answer(host, request.reply_to, self.stamp(), Ok(Empty {}.to_bytes()));
    }

    /// What was to be confirmed is: the request is run again.
    pub fn recall_over<S: Store>(&mut self, host: &mut Host<S>, id: u64) {
        for parked in self.waits.over(For::Recall(id)) {
            self.resume(host, parked);
        }
    }
}
