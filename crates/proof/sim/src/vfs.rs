//! System calls as the kernel carries them out above a mount: path by path through the names that it knows, under the
//! locks of directories, each reply applied when the thread that asked runs again.

mod changes;

pub use changes::Made;

use crate::Canary;
use crate::drive::SimLane;
use crate::hub::{Hub, HubRef, LaneId};
use crate::kernel::{Asked, From, Kernel, Look, Seen, Ticket, Told, kernel};
use crate::moments::Moment;
use crate::truth::{Key, State};
use skep_client::limits::VALIDITY_MARGIN_MS;
use skep_client::{AttrsBy, Listed, Valid};
use skep_types::{Attr, Errno, Ino, Kind, Name};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// What a canary lets a kernel believe without a lease, in milliseconds.
const BLIND_MS: u64 = 1_000;
/// Of a thousand replies so many are applied at once ...
const AT_ONCE: u64 = 880;
/// ... and after no more than so many milliseconds each, of a thousand, the others (K1).
const LATE: [(u64, u64); 3] = [(85, 8), (30, 100), (5, 2_000)];

/// In seeds that are about it, half of them within so many.
const UNAPPLIED_MS: u64 = 400;
/// Of a hundred questions so many bring along what the kernel has forgotten.
const FORGETS: u64 = 60;

/// How a name is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct How {
    /// The directory is locked already.
    locked: bool,
    /// Whatever is valid (K12).
    exactly: bool,
}

/// A thread in the kernel.
pub struct Vfs {
    pub hub: HubRef,
    /// The mount's worker that serves it.
    pub lane: Rc<SimLane>,
    pub id: LaneId,
    /// When the system call began that it is in.
    asked: u64,
    /// By how much later the last answer was applied than it was given.
    late: Cell<u64>,
}

impl Vfs {
    /// A system call begins.
    pub fn enter(hub: &HubRef, lane: &Rc<SimLane>, id: LaneId) -> Self {
        Self { hub: hub.clone(), lane: lane.clone(), id, asked: hub.borrow().now, late: Cell::new(0) }
    }

    fn kernel<R>(&self, f: impl FnOnce(&mut Kernel) -> R) -> R {
        kernel(&self.hub, self.id.life, f)
    }

    fn host(&self) -> usize {
        Hub::host_of(self.id.life)
    }

    /// What the kernel takes for time.
    fn jiffies(&self) -> u64 {
        self.hub.borrow().mono(self.host()).0
    }

    /// How long the attributes are valid that the mount is about to give.
    fn attributes_valid(&self, attr: &Attr, by: AttrsBy) -> u64 {
        self.blindly(self.lane.valid_for(attr, by), by)
    }

    fn blindly(&self, valid: u64, by: AttrsBy) -> u64 {
        if valid > 0 {
            self.hub.borrow_mut().coverage.hit("a kernel was told attributes for a while");
        }
        match self.hub.borrow().canary {
            // What made it gives none, for nothing stops them (K3).
            Some(Canary::BelievesAttributes) if by != AttrsBy::Made => BLIND_MS,
            _ => valid,
        }
    }

    /// How long a name is, and the attributes beside it.
    fn entry_valid(&self, dir: Ino, name: &[u8], attr: &Attr, by: AttrsBy) -> Valid {
        let valid = self.lane.name_valid_for(dir, name, attr, by);
        if valid.name > 0 {
            self.hub.borrow_mut().coverage.hit("a kernel was told a name for a while");
        }
        Valid { name: self.believed(valid.name), attributes: self.blindly(valid.attributes, by) }
    }

    /// Of an absent name a mount says nothing.
    fn believed(&self, valid: u64) -> u64 {
        if self.hub.borrow().canary == Some(Canary::BelievesNames) { BLIND_MS } else { valid }
    }

    /// Validity counts from when a reply is applied; by how much that may be late is promised.
    fn lasts(&self, valid: u64) -> u64 {
        valid.saturating_sub(self.late.get().saturating_sub(VALIDITY_MARGIN_MS))
    }

    /// What the kernel has forgotten comes to the mount some time.
    fn forget(&self) {
        if self.hub.borrow_mut().rng.percent(FORGETS) {
            let forgets = self.kernel(|k| k.take_forgets());
            forgets.into_iter().for_each(|(ino, looks)| self.lane.forget(ino, looks));
        }
    }

    /// Waits, without the mount.
    pub async fn sleep(&self, ms: u64) {
        let due = self.hub.borrow().now + ms;
        if ms > 0 {
            self.hub.borrow_mut().timers.push((due, self.id));
        }
        poll_fn(|_| if self.hub.borrow().now >= due { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Asks the mount, which may stand still while the kernel goes on, and be killed.
    async fn ask<T>(&self, question: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
        let mut question = pin!(question);
        let answer = poll_fn(|cx| {
            if self.kernel(|k| k.has_ended()) {
                return Poll::Ready(Err(Errno::ENOTCONN));
            }
            if self.hub.borrow().is_stopped(self.id.life) {
                return Poll::Pending;
            }
            question.as_mut().poll(cx)
        })
        .await;
        let late = {
            let hub = &mut *self.hub.borrow_mut();
            let most = match hub.is_about(Moment::Unapplied) && hub.rng.percent(80) {
                true => Some(UNAPPLIED_MS),
                false => late(hub.rng.below(1_000)),
            };
            most.map(|most| hub.rng.below(most) + 1).filter(|ms| *ms < 100 || !hub.calm)
        };
        let (answered, slept) = (self.jiffies(), self.hub.borrow().slept[self.host()]);
        if let Some(ms) = late {
            self.hub.borrow_mut().coverage.hit("a reply was applied late");
            self.sleep(ms).await;
        }
        // For how long what comes to a kernel from before a sleep is used, is promised: 100 ms, a second for names; without a
        // mount nobody drops it.
        let is_old = self.hub.borrow().slept[self.host()] > slept;
        self.late.set(if is_old { u64::MAX } else { self.jiffies() - answered });
        answer
    }

    /// Comes for the lock of a directory, and waits until it has it. In some seeds there is none.
    async fn lock(&self, dir: Ino, alone: bool) -> Option<Ticket> {
        if !self.hub.borrow().locks_dirs {
            return None;
        }
        let ticket = self.kernel(|k| k.locks().come(dir, alone, self.id));
        if !self.kernel(|k| k.locks().has(dir, ticket)) {
            self.hub.borrow_mut().coverage.hit("a directory's lock was waited for");
            poll_fn(|_| match self.kernel(|k| k.locks().has(dir, ticket)) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
        Some(ticket)
    }

    fn unlock(&self, dir: Ino, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        let next = self.kernel(|k| k.leaves(dir, ticket));
        let hub = &mut *self.hub.borrow_mut();
        let now = hub.now;
        hub.timers.extend(next.into_iter().map(|lane| (now, lane)));
    }

    /// A program is shown something, which must be true.
    fn shows(&self, key: Key, state: State) {
        let hub = &mut *self.hub.borrow_mut();
        let now = hub.now;
        let shown = hub.truth.is_shown(Hub::host_of(self.id.life), key.clone(), state, (self.asked, now));
        let Err(what) = shown else { return };
        // For what is left of its leases a mount that has not heard of the cut shows what that took: so it is promised.
        let since = self.asked.saturating_sub(hub.lending.shows_lost_ms());
        if hub.lending.on && hub.truth.was_lost_since(&key, state, since) {
            return hub.coverage.hit("a mount showed what a power cut took");
        }
        // Nor has one whose session has ended heard that what it had not told is lost.
        if hub.truth.was_never_told(Hub::host_of(self.id.life), &key, state, self.asked) {
            return hub.coverage.hit("a mount showed what it had not told, and lost");
        }
        hub.fail(format!("{}: {what}", self.id));
    }

    fn shows_attributes(&self, ino: Ino, seen: Seen) {
        let now = self.jiffies();
        if self.kernel(|k| k.is_revived(ino, now)) {
            return self.hub.borrow_mut().coverage.hit("an old kernel revived attributes");
        }
        self.shows(Key::Inode(ino), State::Seen(Some(seen)));
    }

    fn shows_name(&self, dir: Ino, name: &[u8], leads: Option<Ino>) {
        self.shows(Key::Name(dir, name.to_vec()), State::Leads(leads));
    }

    /// Applies what a first look brought.
    fn apply(&self, dir: Ino, name: &[u8], found: Option<(&Attr, Valid)>, (from, asked): (From, Asked)) {
        let now = self.jiffies();
        let names = self.lasts(found.map_or_else(|| self.believed(0), |(_, valid)| valid.name));
        self.kernel(|k| {
            if let Some((attr, valid)) = found {
                k.answered(attr.ino, attr, from, self.lasts(valid.attributes), now);
            }
            let found = found.map(|(attr, _)| attr);
            let leads = (found.map(|attr| attr.ino), found.is_some_and(|attr| attr.kind == Kind::Dir));
            k.looked(dir, name, leads, names, asked, now);
        });
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<(Attr, Valid)>, Errno> {
        self.forget();
        let before = self.rounds();
        let question = async {
            let attr = self.lane.lookup(dir, name).await?;
            let valid = self.entry_valid(dir, name, &attr, AttrsBy::Look);
            Ok((attr, valid))
        };
        let (found, marker) = match self.ask(question).await {
            Ok(found) => (Some(found), "a name was answered from memory"),
            Err(Errno::ENOENT) => (None, "an absent name was answered from memory"),
            Err(errno) => return Err(errno),
        };
        self.mark_known(before, marker);
        Ok(found)
    }

    /// Rounds of requests that the worker has made.
    fn rounds(&self) -> u64 {
        self.hub.borrow().rounds.get(&self.id).copied().unwrap_or(0)
    }

    /// Has it made none since?
    fn mark_known(&self, before: u64, marker: &'static str) {
        if self.rounds() == before {
            self.hub.borrow_mut().coverage.hit(marker);
        }
    }

    /// Where a name leads.
    async fn component(&self, dir: Ino, name: &[u8], how: How) -> Result<Option<Ino>, Errno> {
        let now = self.jiffies();
        match self.kernel(|k| k.look(dir, name, now, how.exactly)) {
            Look::Valid(leads) => {
                self.hub.borrow_mut().coverage.hit("a kernel answered a name by itself");
                // Until that call returns, others on this machine may find what was there before (promises).
                match self.kernel(|k| k.is_changing(dir, name)) {
                    true => {
                        let hub = &mut *self.hub.borrow_mut();
                        hub.beside_own.insert(self.id);
                        hub.coverage.hit("a valid name was looked at beside an own change");
                    }
                    false => self.shows_name(dir, name, leads),
                }
                return Ok(leads);
            }
            Look::Known(id, ino) => {
                let asked = self.kernel(|k| k.asks());
                let found = self.lookup(dir, name).await?;
                let now = self.jiffies();
                let names = found.as_ref().map_or_else(|| self.believed(0), |(_, valid)| valid.name);
                let leads = found.as_ref().map(|(attr, _)| attr.ino);
                let same = self.kernel(|k| {
                    match &found {
                        Some((attr, valid)) if attr.ino == ino => {
                            k.answered(ino, attr, From::Entry(asked), self.lasts(valid.attributes), now);
                        }
                        Some((attr, _)) => k.forgets(attr.ino),
                        None => {}
                    }
                    k.revalidated(id, leads, self.lasts(names), now)
                });
                if same && leads == Some(ino) {
                    self.shows_name(dir, name, leads);
                    return Ok(leads);
                }
                self.hub.borrow_mut().coverage.hit("a known name led elsewhere");
            }
            Look::Unknown => {}
        }
        let held = if how.locked { None } else { self.lock(dir, false).await };
        let leads = self.first_look(dir, name).await;
        self.unlock(dir, held);
        leads
    }

    /// Under the lock of the directory.
    async fn first_look(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Errno> {
        let asked = self.kernel(|k| k.asks());
        let found = self.lookup(dir, name).await?;
        let seen = found.as_ref().map(|(attr, valid)| (attr, *valid));
        self.apply(dir, name, seen, (From::Entry(asked), asked));
        let leads = found.map(|(attr, _)| attr.ino);
        self.shows_name(dir, name, leads);
        Ok(leads)
    }

    /// The attributes of an inode that a walk has come to.
    pub async fn attributes(&self, ino: Ino) -> Result<Seen, Errno> {
        let now = self.jiffies();
        let seen = match self.kernel(|k| k.valid(ino, now)) {
            Some(seen) => {
                self.hub.borrow_mut().coverage.hit("a kernel answered attributes by itself");
                seen
            }
            None => {
                let asked = self.kernel(|k| k.asks());
                let before = self.rounds();
                let question = async {
                    let attr = self.lane.getattr(ino).await?;
                    let valid = self.attributes_valid(&attr, AttrsBy::Question);
                    Ok((attr, valid))
                };
                let (attr, valid) = self.ask(question).await?;
                self.mark_known(before, "attributes were answered from memory");
                let now = self.jiffies();
                self.kernel(|k| k.answered(ino, &attr, From::Inode(asked), self.lasts(valid), now));
                Seen::of(&attr)
            }
        };
        // One without a name is the mount's own affair, as long as it has it open.
        if seen.nlink > 0 {
            self.shows_attributes(ino, seen);
        }
        Ok(seen)
    }

    /// Walks to the directory of all.
    pub async fn walk(&self) -> Result<Ino, Errno> {
        // May the program search it?
        self.attributes(Ino::ROOT).await?;
        let dir = self.component(Ino::ROOT, crate::together::NAME, How::default()).await?;
        let dir = dir.ok_or(Errno::ENOENT)?;
        self.attributes(dir).await?;
        Ok(dir)
    }

    /// Where a name leads in a directory that the program has open.
    pub async fn name(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Errno> {
        self.component(dir, name, How::default()).await
    }

    /// Where a name in it leads.
    pub async fn find(&self, name: &[u8]) -> Result<Ino, Errno> {
        let dir = self.walk().await?;
        self.component(dir, name, How::default()).await?.ok_or(Errno::ENOENT)
    }

    /// stat(2)
    pub async fn stat(&self, name: &[u8]) -> Result<(Ino, Seen), Errno> {
        let ino = self.find(name).await?;
        Ok((ino, self.attributes(ino).await?))
    }

    /// Lists it, with attributes (READDIRPLUS) or without.
    pub async fn list(&self, plus: bool) -> Result<Vec<Vec<u8>>, Errno> {
        let dir = self.walk().await?;
        let handle = self.lane.opendir(dir)?;
        let held = self.lock(dir, false).await;
        let asked = self.kernel(|k| k.asks());
        let question = async {
            let mut lines: BTreeMap<Name, Option<Attr>> = BTreeMap::new();
            let mut twice = false;
            let mut sink = |line: Listed<'_>| {
                if let Ok(name) = Name::new(line.name) {
                    twice |= lines.insert(name, line.attr.cloned()).is_some();
                }
                true
            };
            self.lane.readdir(handle, 0, plus, &mut sink).await?;
            let lines = lines.into_iter().map(|(name, attr)| {
                let valid = |attr: Attr| (self.entry_valid(dir, name.as_bytes(), &attr, AttrsBy::Look), attr);
                let found = attr.map(valid);
                (name, found)
            });
            Ok((lines.collect::<Vec<_>>(), twice))
        };
        let before = self.rounds();
        let listed = self.ask(question).await;
        if let Ok((lines, _)) = &listed {
            self.mark_known(before, "a listing was answered from memory");
            for (name, found) in lines {
                if let Some((valid, attr)) = found {
                    self.apply(dir, name.as_bytes(), Some((attr, *valid)), (From::Entry(asked), asked));
                }
            }
        }
        self.unlock(dir, held);
        self.lane.releasedir(handle);
        let (lines, twice) = listed?;
        // No error of a directory is like this one: a name that was listed twice must stand out.
        if twice {
            return Err(Errno::ERANGE);
        }
        Ok(lines.iter().map(|(name, _)| name.as_bytes().to_vec()).collect())
    }

    /// The mount has the kernel drop a name, as if somebody had changed it.
    pub async fn drop_name(&self, dir: Ino, name: &[u8]) {
        if self.kernel(|k| k.inval_entry(dir, name)) == Told::Waits {
            let held = self.lock(dir, true).await;
            self.kernel(|k| k.inval_entry_locked(dir, name));
            self.unlock(dir, held);
            self.hub.borrow_mut().coverage.hit("a notification dropped a name under the lock");
        }
    }
}

/// Within how many milliseconds a reply is applied; `None`: at once.
fn late(drawn: u64) -> Option<u64> {
    let mut left = drawn.checked_sub(AT_ONCE)?;
    for (share, most) in LATE {
        match left.checked_sub(share) {
            Some(rest) => left = rest,
            None => return Some(most),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: most replies are applied at once, all within two seconds, and some late (K1).
    #[test]
    fn replies_are_applied_within_two_seconds() {
        let all: Vec<Option<u64>> = (0..1_000).map(late).collect();
        assert_eq!(all.iter().filter(|most| most.is_none()).count() as u64, AT_ONCE);
        assert_eq!(all.iter().flatten().max(), Some(&2_000));
    }
}
