//! The honest reckoning after something was cut, given up or killed: what may be left, whether it is,
//! and whether every fsync told the truth about it.

use crate::book::{StepId, Suspicion};
use crate::drive::Driver;
use crate::hub::Cut;
use crate::program::{Actor, Failed, is_data, session_of};
use crate::verify::{Adoption, Loose, verify};
use skep_client::Port;
use skep_model::{Content, Handle, Op, Outcome};
use skep_types::{ClientId, Ino};
use std::collections::BTreeSet;

/// Why a reckoning is due.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cause {
    /// The step under way was given up.
    pub interrupted: bool,
    /// The session is a new one.
    pub renewed: bool,
}

impl Actor {
    /// Finds out what is left, and whether that is right.
    pub(crate) async fn reckon(&self, cause: Cause) -> Result<(), Failed> {
        self.hub.borrow_mut().say(format_args!("{} {} reckons: {cause:?}", self.book.borrow().name, self.id));
        let (mut cause, before) = (cause, session_of(&self.shared));
        // What is sent from here on is no part of the step.
        self.hub.borrow_mut().at_step.insert(self.id, 0);
        if cause.interrupted {
            self.overtake().await;
        }
        loop {
            self.wait_while_dead().await;
            cause.renewed |= session_of(&self.shared) != before;
            let session = session_of(&self.shared);
            let seen = self.hub.borrow().cuts.len();
            let lost = self.take_lost();
            let mut found = self.suspicion(cause, &lost)?;
            self.sync_and_close(&mut found, cause, session).await?;
            let from = self.hub.borrow().now;
            match self.find_state(&found, cause).await {
                Ok((chosen, adoptions)) if self.hub.borrow().cuts.len() == seen => {
                    self.settle(found, chosen, adoptions, seen);
                    self.session.set(session);
                    if self.lay_to_rest(seen).await {
                        return Ok(());
                    }
                }
                // The ground moved under the comparison: once more.
                _ if self.hub.borrow().cuts.len() != seen || session_of(&self.shared) != session => {}
                Ok(_) => {}
                // A mount that has not heard of a power cut shows some of what that took, as its promises say.
                Err(_) if self.may_show_what_was_lost(from) => self.lane.port().pause(100).await,
                Err(what) => return self.fail(what),
            }
        }
    }

    fn may_show_what_was_lost(&self, at: u64) -> bool {
        let hub = &mut *self.hub.borrow_mut();
        let may = hub.lending.on && hub.cut_at.is_some_and(|cut| at <= cut + hub.lending.shows_lost_ms());
        if may {
            hub.coverage.hit("a mount showed what a power cut took");
        }
        may
    }

    fn settle(&self, found: Suspicion, chosen: usize, adoptions: Vec<Adoption>, seen: usize) {
        if !found.untold.is_empty() {
            self.hub.borrow_mut().coverage.hit("what was not told of a held file was found lost");
        }
        let mut book = self.book.borrow_mut();
        book.settle(found, chosen, adoptions);
        book.seen_cuts = seen;
        book.lost.clear();
    }

    /// After a cut, or a write that was given up, chunk files may be longer than the size that is left says, and would show again when
    /// the file grows: they are cut. What a killed mount had not synced no other mount can make durable:
    /// such files begin anew. `false`: something was cut meanwhile.
    async fn lay_to_rest(&self, seen: usize) -> bool {
        let root = self.book.borrow().root.unwrap_or(Ino::ROOT);
        let paths = self.book.borrow_mut().haunted();
        for (path, size) in paths {
            let mut at = root;
            for name in &path {
                match self.lane.lookup(at, name.as_bytes()).await {
                    Ok(attr) => at = attr.ino,
                    Err(_) => return false,
                }
            }
            let set = skep_types::SetAttr { size: Some(size), ..skep_types::SetAttr::default() };
            if self.lane.setattr(at, set).await.is_err() {
                return false;
            }
        }
        let Ok(handle) = self.lane.opendir(root) else { return false };
        let synced = self.lane.fsyncdir(handle).await;
        self.lane.releasedir(handle);
        if synced.is_err() || self.hub.borrow().cuts.len() != seen {
            return false;
        }
        self.book.borrow_mut().laid_to_rest();
        true
    }

    /// A request that was given up may still wait inside the shard: it happens before the lane's next
    /// change, or never. Here is one that nobody sees.
    async fn overtake(&self) {
        let root = self.book.borrow().root.unwrap_or(Ino::ROOT);
        let set = skep_types::SetAttr { atime: Some(skep_types::SetTime::Now), ..Default::default() };
        let _ = self.lane.setattr(root, set).await;
    }

    fn suspicion(&self, cause: Cause, lost: &BTreeSet<StepId>) -> Result<Suspicion, Failed> {
        let (untold, kept) = (self.never_told(), self.told_since());
        let (found, wrong) = {
            let book = self.book.borrow();
            let storaged = self.hub.borrow().cuts[book.seen_cuts..].contains(&Cut::Storaged);
            let now = book.now.as_ref();
            let as_expected = now
                .is_none_or(|now| now.outcome.as_ref().is_some_and(|outcome| now.expected.accepts(outcome)));
            // A size that was not committed is the chunk files', which a power cut made shorter.
            let sized = |op: &Op| is_data(op) || matches!(op, Op::Stat { .. });
            let excused = now.is_some_and(|now| storaged && sized(&now.op));
            let found =
                book.suspect(lost, (&untold, &kept), as_expected && !cause.interrupted && !cause.renewed);
            let doubtful =
                found.in_flight_lost || !found.lost.is_empty() || cause.interrupted || cause.renewed;
            let wrong = now.filter(|_| !as_expected && !excused && !doubtful);
            let wrong = wrong.map(|now| {
                let outcome = &now.outcome;
                format!("{:?} gives {outcome:?}, should give {:?}", now.op, now.expected)
            });
            (found, wrong)
        };
        match wrong {
            Some(what) => self.fail(what),
            None => Ok(found),
        }
    }

    /// fsync of everything that is open tells the truth; then all is closed.
    async fn sync_and_close(
        &self,
        found: &mut Suspicion,
        cause: Cause,
        session: Option<ClientId>,
    ) -> Result<(), Failed> {
        let handles: Vec<Handle> = self.book.borrow().opens.keys().copied().collect();
        let excepted = self.book.borrow().now.as_ref().and_then(|now| match (&now.op, &now.outcome) {
            // This very loss was reported already.
            (Op::Fsync { handle }, Some(Outcome::Failed(_))) => Some(*handle),
            // Opened after the loss: perhaps a new file of the same name.
            (Op::Open { handle, .. }, _) => Some(*handle),
            _ => None,
        });
        for handle in handles {
            let (root, mut opens) = {
                let mut book = self.book.borrow_mut();
                (book.root.unwrap_or(Ino::ROOT), std::mem::take(&mut book.opens))
            };
            let cuts = self.hub.borrow().cuts.len();
            let mut driver = Driver { lane: &self.lane, root, opens: &mut opens };
            let result = driver.fsync(handle).await;
            let _ = driver.close(handle).await;
            self.book.borrow_mut().opens = opens;
            self.hub.borrow_mut().say(format_args!(
                "{} {} fsync of {handle:?}: {result:?}",
                self.book.borrow().name,
                self.id
            ));
            let Some(ino) = self.book.borrow().ino_of(handle) else { continue };
            match result {
                Ok(()) if excepted == Some(handle) => {}
                Ok(()) if found.lost.contains(&ino) => {
                    return self
                        .fail(format!("fsync of {handle:?} succeeds, but an acknowledged change is lost"));
                }
                Ok(()) => {
                    let steady = !found.unsure.contains(&ino) && self.hub.borrow().cuts.len() == cuts;
                    if steady && !found.candidates.is_empty() {
                        self.hub.borrow_mut().coverage.hit("an fsync held over a power cut");
                        self.book.borrow_mut().held(found, ino);
                    }
                }
                Err(errno) => {
                    let now = session_of(&self.shared);
                    // Perhaps just now: what was open has gone with the session.
                    let evicted = cause.renewed || now.is_none() || now != session;
                    if !self.may_have_lost(handle) && !evicted {
                        return self.fail(format!("fsync of {handle:?} gives {errno}, but nothing was lost"));
                    }
                    self.hub.borrow_mut().coverage.hit("an fsync failed after a loss");
                }
            }
        }
        Ok(())
    }

    async fn find_state(&self, found: &Suspicion, cause: Cause) -> Result<(usize, Vec<Adoption>), String> {
        let loose = self.loose(found, cause);
        let root = self.book.borrow().root.unwrap_or(Ino::ROOT);
        let mut told = Vec::new();
        for (number, candidate) in found.candidates.iter().enumerate() {
            let mut candidate = candidate.clone();
            candidate.close_all(|_| true);
            match verify(&self.lane, root, &candidate, &loose).await {
                Ok(adoptions) => return Ok((number, adoptions)),
                Err(what) => told.push(what),
            }
        }
        Err(format!("after {cause:?} the directory is in no state that it may be in: {}", told.join("; or ")))
    }

    /// Files whose content may be any mixture of their versions.
    fn loose(&self, found: &Suspicion, cause: Cause) -> Loose {
        let (book, hub) = (self.book.borrow(), self.hub.borrow());
        let cut = hub.cuts.len() > book.seen_cuts || !found.lost.is_empty() || found.in_flight_lost;
        let mut loose = Loose { inherited: cause.renewed, ..Loose::default() };
        // Of what a mount that is no more had not synced nobody knows how much landed.
        for ino in book.unsynced().filter(|ino| cut || book.foreign.contains(ino)) {
            loose.files.insert(ino, book.versions[&ino].clone());
        }
        for (ino, contents) in &found.untold {
            loose.files.entry(*ino).or_default().extend(contents.iter().cloned());
        }
        loose.owners.clone_from(&found.owners);
        let recent = if cut { &found.touched_now } else { &found.unsure };
        for ino in recent.difference(&found.intact) {
            let now = book.now.iter().flat_map(|now| [&now.step.before, &now.after]);
            let states = now.chain(&found.candidates);
            let contents = states.filter_map(|fs| fs.content(*ino).ok().cloned());
            let versions = loose.files.entry(*ino).or_default();
            versions.extend(contents);
            if versions.is_empty() {
                loose.files.remove(ino);
            }
        }
        if let Some(((from, at), (to, offset), len)) = book.copied_now()
            && let Some(sources) = loose.files.get(&from).cloned()
            && let Some(now) = &book.now
        {
            // It read what a power cut had left of its source.
            let versions = loose.files.entry(to).or_default();
            let before = now.step.before.content(to).ok().cloned();
            let copies = sources.into_iter().chain([Content::default()]).filter_map(|source| {
                let mut content = before.clone()?;
                let mut data = source.read(at, len);
                data.resize(len, 0);
                content.write(offset, &data);
                Some(content)
            });
            versions.extend(now.after.content(to).ok().cloned());
            versions.extend(copies);
        }
        if let Some((ino, data)) = book.appended_now()
            && let Some(versions) = loose.files.get_mut(&ino)
        {
            // It landed where the file ended that the cut had left: where one of the versions ends, or anywhere when chunk files
            // had lost what was not synced.
            let landed = |content: &Content| {
                let mut content = content.clone();
                content.write(content.size(), &data);
                content
            };
            versions.extend(versions.iter().map(landed).collect::<Vec<_>>());
            if hub.cuts[book.seen_cuts..].contains(&Cut::Storaged) {
                loose.appended = Some((ino, data));
            }
        }
        loose
    }
}
