//! New files that this mount holds: when their shards are told what became of them. See `docs/design/leases.md`, section 9.

use super::attr::is_gone;
use super::write::{Round, StripeWrite, View};
use crate::housekeeping::is_passing;
use crate::lane::Lane;
use crate::limits::{
    HOLD_AGAIN_MS, HOLD_MS, HOLD_PATIENCE_MS, HOUSEKEEPING_MAX_MS, OLD_PATIENCE_MS, STALE_ROUNDS_MAX,
};
use crate::port::{Cell, Port};
use crate::state::{Found, Heard, Inode, Moving, News, Shared, ToTell, Why, Word};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Attr, ClientId, Errno, Ino, Millis, Mode, NodeId, SetAttr, ShardId, Timestamp};
use skep_wire::meta::{AttrReply, Question, Tell};
use skep_wire::{Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// In front of a change that is sent at once: what was kept of the file before is told, and nothing is kept of it from now
    /// on, so that no rule of the shard's has to be known here.
    pub(crate) async fn tell_first(&self, ino: Ino) -> Result<(), Refusal> {
        match self.shared.with(|s| s.inodes.get_mut(ino).is_some_and(Inode::end_keeping)) {
            true => Box::pin(self.commit(ino)).await,
            false => Ok(()),
        }
    }

    /// In front of an answer about a file that was held: what is kept is told, for by now others may be shown it, and may change
    /// it. An error is none of who looks: then what is known is shown.
    pub(crate) async fn tell_untold(&self, ino: Ino) {
        // A lane that tells it may go on holding it.
        let _ = self.until_told(ino).await;
        let now = self.port.boot();
        if self.shared.with(|s| s.inodes.get(ino).is_some_and(|inode| inode.is_untold(now))) {
            let _ = self.tell_first(ino).await;
        }
    }

    /// In front of a write to chunks: no lane tells what is kept, and content that is kept is in its chunks. `true`: it was
    /// waited for, so the file is to be looked at again.
    pub(crate) async fn waits_for_hold(&self, ino: Ino, view: &View, end: u64) -> Result<bool, Refusal> {
        if view.waits {
            self.until_told(ino).await?;
        } else if view.tells {
            self.tell_first(ino).await?;
        } else if view.moves {
            self.grow(ino, end).await?;
        }
        Ok(view.waits || view.tells || view.moves)
    }

    /// As [`Lane::tell_first`], where only its content matters.
    pub(crate) async fn tell_content_first(&self, ino: Ino) -> Result<(), Refusal> {
        self.put_gathered(ino).await?;
        match self.shared.with(|s| s.inodes.get(ino).is_some_and(|inode| inode.held_content().is_some())) {
            true => self.tell_first(ino).await,
            false => Ok(()),
        }
    }

    /// Attributes of a file that this mount holds: nobody else can have changed them.
    pub(crate) fn held_attr(&self, ino: Ino) -> Option<Attr> {
        let now = self.port.boot();
        self.shared.with(|s| s.held_attr(ino, now))
    }

    /// Keeps a change of attributes, if the file is held and the change can be kept.
    pub(crate) async fn keep_attr(&self, ino: Ino, set: &SetAttr) -> Result<Option<Attr>, Refusal> {
        self.between_tellings(ino, |s, now| {
            let kept = s.inodes.get_mut(ino)?.keep_attr(set, now);
            if kept.is_some() {
                s.acls.forget(ino);
                s.spared.kept += 1;
            }
            kept
        })
        .await
    }

    /// Keeps what is written, if the file is held and there is room for it.
    pub(crate) async fn keep_content(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<bool, Refusal> {
        self.between_tellings(ino, |s, now| {
            let is_kept = s.inodes.get_mut(ino).is_some_and(|inode| inode.keep_content(offset, data, now));
            s.spared.kept += u64::from(is_kept);
            is_kept
        })
        .await
    }

    /// Changes what is known of a file while no lane tells it.
    async fn between_tellings<T>(
        &self,
        ino: Ino,
        mut change: impl FnMut(&mut Shared, (Millis, Timestamp)) -> T,
    ) -> Result<T, Refusal> {
        loop {
            let now = (self.port.boot(), self.port.wall());
            let done = self.shared.with(|s| {
                let is_told = s.inodes.get(ino).is_some_and(Inode::is_being_told);
                if is_told { None } else { Some(change(s, now)) }
            });
            match done {
                Some(done) => return Ok(done),
                None => self.until_told(ino).await?,
            }
        }
    }

    /// No lane tells it: what is sent now comes behind that.
    pub(crate) async fn until_told(&self, ino: Ino) -> Result<(), Refusal> {
        let is_told = |s: &mut Shared| !s.inodes.get(ino).is_some_and(|inode| inode.is_being_told());
        if self.shared.with(is_told) { Ok(()) } else { self.wait_until(is_told).await }
    }

    /// The file has outgrown what may be kept: its content goes to chunks, and what else is kept stays. It is in none of the
    /// shard's, so nothing is copied there. Others of this mount who write wait.
    pub(crate) async fn move_content(&self, ino: Ino, end: u64, like: Option<Ino>) -> Result<(), Refusal> {
        let mut is_sure = false;
        for _ in 0..STALE_ROUNDS_MAX {
            let now = self.port.boot();
            let moving = self.shared.with(|s| s.begin_moving(ino, now, is_sure));
            is_sure = false;
            let (content, given, of) = match moving {
                Moving::Nothing => return Ok(()),
                Moving::Busy => {
                    self.until_told(ino).await?;
                    continue;
                }
                Moving::Tells => return Box::pin(self.tell_first(ino)).await,
                Moving::Asks => {
                    Box::pin(self.ask_whether_held(ino)).await?;
                    is_sure = true;
                    continue;
                }
                Moving::Begun { content, given, of } => (content, given, of),
            };
            let result = self.put_in_chunks(ino, &content, (end, like), of).await;
            let asks = |refusal: &Refusal| [Status::NOT_READY, Status::TOO_LATE].contains(&refusal.status);
            let is_to_ask = result.as_ref().is_err_and(asks);
            self.shared.with(|s| {
                if let Some(inode) = s.inodes.get_mut(ino) {
                    match result {
                        Ok(()) => inode.was_moved(given),
                        Err(_) => inode.was_asked(),
                    }
                    if is_to_ask {
                        inode.may_be_others();
                    }
                }
                s.waits.call();
            });
            if !is_to_ask {
                return result;
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(ino))
    }

    /// As long as the mount is heard without a break since it was known that the file is held: programs were answered for the
    /// content, so it must not land when others may have been let past, also while the file grew, or while it was on its way.
    async fn put_in_chunks(
        &self,
        ino: Ino,
        content: &[u8],
        (end, like): (u64, Option<Ino>),
        (session, heard): (ClientId, Heard),
    ) -> Result<(), Refusal> {
        let content_end = content.len() as u64;
        for _ in 0..STALE_ROUNDS_MAX {
            let view = self.shared.with(|s| s.write_view(ino));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(ino).await?;
                continue;
            };
            if layout.covered() < end.max(content_end) {
                self.grow_now(ino, end.max(content_end), like).await?;
                continue;
            }
            let waited = Some((session, heard));
            // What is told of clocks comes with room.
            let write =
                StripeWrite { later: true, waited, ..StripeWrite::new(&layout, 0, content, view.owner) };
            match self.write_chunks(ino, &write, &view, false).await {
                Ok(Round::Written(n)) if n == content.len() => return Ok(()),
                // A clock that was not known is by now: nobody was let past.
                Err(refusal) if refusal.status == Status::TOO_LATE => {
                    let now = self.port.boot();
                    if !self.shared.with(|s| s.is_heard_still(heard, now)) {
                        return Err(refusal);
                    }
                }
                Err(refusal) => return Err(refusal),
                Ok(_) => {}
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(ino))
    }

    /// Tells what is kept of a file of whose chunk files there is nothing to commit.
    pub(crate) async fn tell_news(&self, ino: Ino, news: &News) -> Result<(), Refusal> {
        let asked = self.port.boot();
        let told = self.tell_file(ino, &news.tell(ino, None)).await;
        self.news_told(ino, told, asked)
    }

    /// Tells it. With the answer: is the file held still?
    pub(crate) async fn tell_file(&self, ino: Ino, tell: &Tell) -> Result<(AttrReply, bool), Refusal> {
        let reply = self.settle(self.changing(ino, tell)).await?;
        Ok((reply.read()?, tell.keeps.is_some() && reply.stamp.holds.is_some()))
    }

    /// What came of what was `asked` then.
    pub(crate) fn news_told(
        &self,
        ino: Ino,
        told: Result<(AttrReply, bool), Refusal>,
        asked: Millis,
    ) -> Result<(), Refusal> {
        let result = self.shared.with(|s| match told {
            Ok((AttrReply { attr, .. }, goes_on)) => {
                s.acls.forget(ino);
                let good_until = s.hold_until(ino.shard(), asked);
                s.inodes.merge_told(attr, goes_on.then_some(good_until));
                if goes_on {
                    s.holds.goes_on(ino, asked);
                }
                Ok(())
            }
            // An earlier try has told it, whose answer was lost, and nothing was kept since.
            Err(refusal) if refusal.status == Status::NOT_HELD && s.may_have_been_told(ino) => {
                if let Some(inode) = s.inodes.get_mut(ino) {
                    inode.was_told();
                    inode.disbelieve();
                    inode.layout_old = true;
                }
                s.inodes.set_inline(ino, None);
                Err((refusal, false))
            }
            // Others have been shown the file without it meanwhile. What is with its targets is the file's all the same.
            Err(refusal) if [Status::NOT_HELD, Status::HOLD_PASSED].contains(&refusal.status) => {
                let is_lost = !s.end_hold(ino);
                if let Some(inode) = s.inodes.get_mut(ino) {
                    inode.disbelieve();
                    inode.layout_old = true;
                }
                s.inodes.set_inline(ino, None);
                Err((refusal, is_lost))
            }
            Err(refusal) if is_for_good(refusal.status) => {
                s.end_hold(ino);
                Err((refusal, true))
            }
            Err(refusal) => {
                if let Some(inode) = s.inodes.get_mut(ino) {
                    match is_of_chunks(refusal.status) {
                        true => inode.was_refused(),
                        false => inode.was_not_told(),
                    }
                }
                Err((refusal, false))
            }
        });
        self.shared.with(|s| s.waits.call());
        result.map_err(|(refusal, is_lost)| {
            if is_lost && !is_gone(refusal.status) {
                self.port.log(format_args!(
                    "inode {ino}: what became of it since it was made is lost, its next fsync fails: {refusal}"
                ));
            }
            refusal
        })
    }

    /// Tells what somebody waits for, and what has been held for long enough: for lanes that do nothing else, so that no request
    /// of a program, which may wait for the same of another mount, is in their way. There are some, and one at most tells a
    /// server something, so one that hangs lets nobody wait who asks for files of another. Says in how many milliseconds it wants
    /// to be called again at the latest ([`Port::is_asked`] asks for it sooner).
    pub async fn tell_held(&self) -> u64 {
        let (mut silent, mut stuck) = (BTreeSet::new(), BTreeSet::new());
        let mut is_first = true;
        while let Some(next) = self.shared.with(|s| s.next_to_tell(self.port.boot(), &silent, &stuck)) {
            // One that was called alone may find that several servers ask.
            if core::mem::take(&mut is_first) && self.shared.with(|s| s.has_more_to_tell()) {
                self.port.is_looked_at();
            }
            let told = match next.why {
                Why::Asked => self.in_time(HOLD_PATIENCE_MS, self.tell_asked(next.ino)).await,
                Why::Looked(question) => {
                    self.in_time(HOLD_PATIENCE_MS, self.tell_looked(next.ino, question)).await
                }
                // Others may be old enough as well.
                Why::Old => self.in_time(OLD_PATIENCE_MS, self.tell_old(next.ino)).await,
                Why::Wished => self.in_time(HOLD_PATIENCE_MS, self.ask_to_hold(next.ino)).await,
            };
            let is_to_tell = told.is_err_and(|refusal| !is_gone(refusal.status));
            let is_silent = self.shared.with(|s| {
                s.holds.tried(&next, is_to_tell, self.port.boot());
                // It may have been a target, which is in the way of its own files only.
                let is_silent = is_to_tell && s.nodes.silences().any(|(node, _)| node == next.node);
                if is_silent {
                    silent.insert(next.node);
                }
                is_silent
            });
            // A wish that failed is over, and what it leaves to be told is tried at once where its server answers.
            if is_to_tell && (is_silent || next.why != Why::Wished) {
                stuck.insert(next.ino);
            }
        }
        let next = self.shared.with(|s| s.holds.next_ms(self.port.boot()));
        if stuck.is_empty() { next.unwrap_or(HOUSEKEEPING_MAX_MS) } else { HOLD_AGAIN_MS }
    }

    /// It has been held for long enough: it is told, and held on if something was written to its chunks.
    async fn tell_old(&self, ino: Ino) -> Result<(), Refusal> {
        let goes_on = |s: &mut Shared| s.limits.gathers && s.inodes.get(ino).is_some_and(Inode::goes_on);
        match self.shared.with(goes_on) {
            true => Box::pin(self.commit_and(ino, Word::GoesOn)).await,
            false => self.tell_first(ino).await,
        }
    }

    /// Somebody waits for it, who only looks: it is told, if only that there is nothing to tell, and held on.
    async fn tell_looked(&self, ino: Ino, question: u64) -> Result<(), Refusal> {
        if self.shared.with(|s| s.inodes.get(ino).is_some_and(Inode::may_go_on)) {
            Box::pin(self.commit_and(ino, Word::Answers(question))).await?;
        }
        match self.shared.with(|s| s.inodes.get(ino).is_some_and(Inode::may_go_on)) {
            true => Ok(()),
            // It has ended meanwhile, and perhaps not by a word that the shard has heard.
            false => self.tell_asked(ino).await,
        }
    }

    /// Somebody waits for it: it is told, if only that there is nothing to tell.
    async fn tell_asked(&self, ino: Ino) -> Result<(), Refusal> {
        self.until_told(ino).await?;
        if self.shared.with(|s| s.inodes.get_mut(ino).is_some_and(Inode::end_keeping)) {
            return self.commit(ino).await;
        }
        // Whichever hold the shard knows of, and one that is asked for now: this mount has none.
        let hold = self.shared.with(|s| {
            s.inodes.get_mut(ino).map(Inode::wish_is_off);
            s.next_open_seq()
        });
        let nothing: Tell = News::of_hold(hold).tell(ino, None);
        match self.change(ino, &nothing).await {
            // It was told meanwhile.
            Err(refusal) if refusal.status == Status::NOT_HELD => Ok(()),
            told => told.map(drop),
        }
    }

    async fn in_time<T>(&self, ms: u64, work: impl Future<Output = T>) -> T {
        self.port.wanted_for(Some(ms));
        let done = work.await;
        self.port.wanted_for(None);
        done
    }
}

impl Shared {
    /// The servers that may have questions about what is held.
    pub(crate) fn nodes_of_holds(&self) -> impl Iterator<Item = NodeId> {
        self.holds.shards().filter_map(|shard| self.map.leader(shard))
    }

    /// Attributes of a file that is held, as programs see them.
    pub(crate) fn held_attr(&self, ino: Ino, now: Millis) -> Option<Attr> {
        let inode = self.inodes.get(ino).filter(|inode| inode.is_held(now) && !inode.end_is_open())?;
        Some(inode.with_mark(inode.attr.clone()?))
    }

    /// The mount is to end, though programs may be in it for a while: nothing is kept from now on that would be lost with it, and
    /// what is kept is told.
    pub fn keeps_no_more(&mut self) {
        self.limits.holds = false;
        self.limits.gathers = false;
        let is_held = |(ino, inode): (Ino, &Inode)| inode.hold.is_some().then_some(ino);
        for ino in self.inodes.iter().filter_map(is_held).collect::<Vec<_>>() {
            self.inodes.get_mut(ino).map(Inode::end_keeping);
            self.holds.ask(ino, true);
        }
    }

    /// What is to be told next, of servers to which no other lane tells something, and none of these.
    fn next_to_tell(
        &mut self,
        now: Millis,
        silent: &BTreeSet<NodeId>,
        stuck: &BTreeSet<Ino>,
    ) -> Option<ToTell> {
        let Self { holds, map, .. } = self;
        let node = |ino: Ino| map.leader(ino.shard()).filter(|node| !silent.contains(node));
        holds.next(now, |ino| node(ino).filter(|_| !stuck.contains(&ino)))
    }

    /// Does somebody wait for a file of a server to which no lane tells something?
    fn has_more_to_tell(&self) -> bool {
        self.holds.asks_elsewhere(|ino| self.map.leader(ino.shard()))
    }

    /// What this name leads to, if it is a file that is held.
    pub(crate) fn held_under(&mut self, dir: Ino, name: &[u8], now: Millis) -> Option<Ino> {
        let era = self.leases.believes(dir, now)?;
        let Found::There(ino, ..) = self.names.find(dir, era, name) else { return None };
        self.inodes.get(ino).is_some_and(|inode| inode.hold.is_some()).then_some(ino)
    }

    /// The same, if no own change of a name may have given it fewer names since they were told.
    pub(crate) fn held_attr_of_now(&self, ino: Ino, now: Millis) -> Option<Attr> {
        let is_of_now =
            |s: &Self| s.inodes.get(ino).is_some_and(|inode| inode.is_held_as_of(s.holds.names()));
        self.held_attr(ino, now).filter(|_| is_of_now(self))
    }

    /// A shard says that somebody waits for a file that this mount holds, or may hold when its create is answered.
    pub(crate) fn is_asked_for(&mut self, question: &Question, now: Millis) {
        let ino = question.ino;
        if let Some(looks) = question.looks
            && self.limits.gathers
            && self.inodes.get_mut(ino).is_some_and(|inode| inode.may_be_shown(now))
        {
            self.spared.looks_told += 1;
            return self.holds.look(ino, looks);
        }
        let inode = self.inodes.get_mut(ino);
        let is_held = inode.is_some_and(|inode| {
            inode.is_looked_at(now);
            inode.end_keeping()
        });
        self.holds.ask(ino, is_held);
    }

    /// Until when it is good that a file is held, as its shard said to what was `asked` then: a second, and no longer than the mount
    /// counts as heard.
    pub(crate) fn hold_until(&self, shard: ShardId, asked: Millis) -> Millis {
        asked.plus(HOLD_MS).min(self.leases.until(shard))
    }

    fn may_have_been_told(&self, ino: Ino) -> bool {
        self.inodes.get(ino).is_some_and(Inode::may_have_been_told)
    }

    /// No program has it open any more. `false`: something of it was not told, and is lost.
    pub(crate) fn end_hold(&mut self, ino: Ino) -> bool {
        self.loses_run(ino);
        let Some(inode) = self.inodes.get_mut(ino) else { return true };
        let has_news = inode.has_changes();
        inode.hold = None;
        if has_news {
            self.loses(ino);
        }
        !has_news
    }
}

/// Does telling it again not help?
fn is_for_good(status: Status) -> bool {
    let is_given_up = status.as_errno() == Some(Errno::EINTR) || status == Status::FENCED;
    !(is_passing(status) || is_of_chunks(status) || is_given_up)
}

/// Is it refused for what became of its chunk files?
fn is_of_chunks(status: Status) -> bool {
    [Status::STALE_GENERATION, Status::CUT_SINCE, Status::STALE_SIZE].contains(&status)
}

/// The mode of a file with this access ACL, if that says no more than a mode does.
pub(crate) fn mode_of_acl(value: &[u8], mode: Mode) -> Option<Mode> {
    /// Version, and the entries of owner, group and others, each with its permissions; ids say nothing.
    const PLAIN: [u16; 3] = [0x01, 0x04, 0x20];
    let (version, rest) = value.split_first_chunk::<4>()?;
    let (entries, rest) = rest.as_chunks::<8>();
    if u32::from_le_bytes(*version) != 2 || !rest.is_empty() || entries.len() != PLAIN.len() {
        return None;
    }
    let mut bits = 0;
    for (entry, tag) in entries.iter().zip(PLAIN) {
        let [low, high, perm, none, ..] = *entry;
        if u16::from_le_bytes([low, high]) != tag || perm > 7 || none != 0 {
            return None;
        }
        bits = bits << 3 | Mode::from(perm);
    }
    Some(mode & !0o777 | bits)
}

#[cfg(test)]
pub(crate) mod tests;
