//! What a lane did, and what the cluster owes it: the oracle of its directory, every step with the
//! state before it, and the versions of content that a power cut may bring back.

use crate::drive::Open;
use crate::gathered::{self, Gathered, Loss};
use crate::hub::LaneId;
use crate::verify::Adoption;
use skep_model::{
    At, Call, Calls, Content, DEPTH_MAX, Fs, Generator, Handle, NAMES, Op, Outcome, Path, Profile,
};
use skep_types::{Ino, Name, SetAttr, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A step, by lane and number.
pub type StepId = (LaneId, u64);

/// A step that has ended.
#[derive(Debug, Clone)]
pub struct Step {
    pub id: StepId,
    /// The oracle before it.
    pub before: Fs,
    /// Inodes of the oracle that it changed.
    pub touches: Vec<Ino>,
}

/// The step under way.
#[derive(Debug, Clone)]
pub struct InFlight {
    /// Which, and the oracle before it.
    pub step: Step,
    pub op: Op,
    call: Call,
    /// The oracle after it.
    pub after: Fs,
    /// What must come of it.
    pub expected: Outcome,
    /// What came of it.
    pub outcome: Option<Outcome>,
}

/// What may have happened, and what must be said about it.
#[derive(Debug, Default)]
pub struct Suspicion {
    /// States that the directory may be in, the likelier first.
    pub candidates: Vec<Fs>,
    /// Inodes with acknowledged changes that are lost: an fsync must fail.
    pub lost: BTreeSet<Ino>,
    /// Inodes of the step under way, when nobody knows whether it happened: their content may be
    /// anything between.
    pub unsure: BTreeSet<Ino>,
    /// Inodes of the step under way.
    pub touched_now: BTreeSet<Ino>,
    /// Inodes that an fsync confirmed since.
    pub intact: BTreeSet<Ino>,
    /// Inodes that were held, whose owner and mode may be as some step left them.
    pub owners: BTreeSet<Ino>,
    /// Inodes that were held, and of which something was never told: what their content may be.
    pub untold: BTreeMap<Ino, Vec<Content>>,
    /// Steps up to here are in force.
    kept: usize,
    /// The state that they led to.
    base: Option<Fs>,
    /// The step under way may have had a record that is lost.
    pub in_flight_lost: bool,
}

/// An offset in a file.
type Place = (Ino, u64);

pub struct Book {
    /// Name of the lane's directory below the root.
    pub name: String,
    pub root: Option<Ino>,
    /// The oracle.
    pub fs: Fs,
    /// What is open.
    pub opens: BTreeMap<Handle, Open>,
    /// Cuts that there were when an inode was last made durable.
    pub synced_at: BTreeMap<Ino, usize>,
    /// The step under way.
    pub now: Option<InFlight>,
    /// Versions of content since it was last made durable, oldest first.
    pub versions: BTreeMap<Ino, Vec<Content>>,
    /// Files with unsynced content of an earlier client: nobody can make that durable.
    pub foreign: BTreeSet<Ino>,
    /// Cuts that are dealt with.
    pub seen_cuts: usize,
    /// Steps begun.
    pub number: u64,
    /// Steps with a lost record that are not reckoned with so far; outlives the client.
    pub lost: BTreeSet<StepId>,
    /// Files that its mount holds, and those of which it may not be durable what was told.
    pub gathered: BTreeMap<Ino, Gathered>,
    /// The final comparison was good.
    pub verified: bool,
    steps: Vec<Step>,
    generator: Generator,
}

impl Book {
    /// An empty directory.
    pub fn new(name: String, seed: u64) -> Self {
        let profile = Profile {
            transfer_max: 160 * 1024,
            handles: 4,
            calls: Calls { lock: false, ..Calls::ALL },
            ..Profile::default()
        };
        Self {
            name,
            root: None,
            fs: Fs::new(0o755, 0, 0, Timestamp::default()),
            opens: BTreeMap::new(),
            synced_at: BTreeMap::new(),
            now: None,
            versions: BTreeMap::new(),
            foreign: BTreeSet::new(),
            seen_cuts: 0,
            number: 0,
            lost: BTreeSet::new(),
            gathered: BTreeMap::new(),
            verified: false,
            steps: Vec::new(),
            generator: Generator::new(seed, profile),
        }
    }

    /// The next operation of the history.
    pub fn next_op(&mut self) -> Op {
        self.generator.next_op()
    }

    /// A step begins.
    pub fn begin(&mut self, lane: LaneId, op: Op) -> u64 {
        self.number += 1;
        let call = Call {
            now: Timestamp { secs: self.number as i64, nanos: 0 },
            ino: Ino(self.number + 1),
            uid: 0,
            gid: 0,
        };
        let before = self.fs.clone();
        let mut after = before.clone();
        let expected = after.apply(&op, call);
        let touches = match expected {
            Outcome::Failed(_) => Vec::new(),
            _ => touches(&op, &before, &after),
        };
        let step = Step { id: (lane, self.number), before, touches };
        self.now = Some(InFlight { step, op, call, after, expected, outcome: None });
        self.number
    }

    /// The step under way ended as it must.
    pub fn ended(&mut self) {
        let Some(InFlight { step, after, .. }) = self.now.take() else { return };
        for ino in step.touches.iter().copied() {
            let content = |fs: &Fs| fs.content(ino).ok().cloned();
            let (old, new) = (content(&step.before), content(&after));
            self.note_version(ino, old, new);
        }
        self.fs = after;
        self.steps.push(step);
    }

    fn note_version(&mut self, ino: Ino, old: Option<Content>, new: Option<Content>) {
        if let Some(new) = new
            && old.as_ref() != Some(&new)
        {
            let versions = self.versions.entry(ino).or_insert_with(|| vec![old.unwrap_or_default()]);
            versions.push(new);
        }
    }

    /// The content of `ino` is on stable storage.
    pub fn synced(&mut self, ino: Ino) {
        if self.foreign.contains(&ino) {
            return;
        }
        if let (Ok(content), Some(versions)) = (self.fs.content(ino), self.versions.get_mut(&ino)) {
            *versions = vec![content.clone()];
        }
    }

    /// Steps that changed `ino`.
    pub fn steps_of(&self, ino: Ino) -> impl Iterator<Item = StepId> + '_ {
        self.steps.iter().filter(move |step| step.touches.contains(&ino)).map(|step| step.id)
    }

    /// Is it a step of this book?
    pub fn is_mine(&self, id: StepId) -> bool {
        self.now.as_ref().is_some_and(|now| now.step.id == id) || self.steps.iter().any(|step| step.id == id)
    }

    /// Did a step that has ended lose a record?
    pub fn has_lost(&self, lost: &BTreeSet<StepId>) -> bool {
        self.steps.iter().any(|step| lost.contains(&step.id))
    }

    /// Files with content that is not known to be durable.
    pub fn unsynced(&self) -> impl Iterator<Item = Ino> + '_ {
        self.versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(ino, _)| *ino)
    }

    /// The inode of the oracle behind a handle.
    pub fn ino_of(&self, handle: Handle) -> Option<Ino> {
        let now = self.now.as_ref();
        let of = |fs: &Fs| fs.handle(handle).ok().map(|(ino, _)| ino);
        now.and_then(|now| of(&now.after).or_else(|| of(&now.step.before))).or_else(|| of(&self.fs))
    }

    /// The record that the step under way appends, and to which file.
    pub fn appended_now(&self) -> Option<(Ino, Vec<u8>)> {
        let now = self.now.as_ref()?;
        let Op::Write { handle, fill, .. } = &now.op else { return None };
        let (ino, access) = now.step.before.handle(*handle).ok()?;
        access.append.then(|| (ino, fill.bytes()))
    }

    /// The copy under way: from which file and offset, to which, how much.
    pub fn copied_now(&self) -> Option<(Place, Place, usize)> {
        let now = self.now.as_ref()?;
        let Op::Copy { from, from_offset, to, offset, len, .. } = now.op else { return None };
        let ino = |handle| now.step.before.handle(handle).ok().map(|(ino, _)| ino);
        Some(((ino(from)?, from_offset), (ino(to)?, offset), len as usize))
    }

    /// What may have happened when these steps lost a record, and something of `untold` was never told; of `kept` it was told
    /// behind the loss, or will be. `sure`: but for that, the step under way ended as it must.
    pub fn suspect(
        &self,
        lost: &BTreeSet<StepId>,
        (untold, kept): (&BTreeMap<Ino, Loss>, &BTreeSet<Ino>),
        sure: bool,
    ) -> Suspicion {
        let mut found = Suspicion { kept: self.steps.len(), ..Suspicion::default() };
        let first = self.steps.iter().position(|step| lost.contains(&step.id));
        if let Some(first) = first {
            found.kept = first;
            let gone = self.steps[first..].iter().filter(|step| lost.contains(&step.id));
            found.lost = gone.flat_map(|step| step.touches.iter().copied()).collect();
        }
        let mut base = first.map_or(&self.fs, |first| &self.steps[first].before).clone();
        let until = first.map_or(u64::MAX, |first| self.steps[first].id.1);
        for ino in kept.iter().filter(|_| first.is_some()) {
            gathered::take_back(&mut base, *ino, &self.fs);
        }
        for (ino, loss) in untold {
            self.take_back(&mut base, *ino, (until, *loss), &mut found);
        }
        let base = &base;
        found.base = Some(base.clone());
        let Some(now) = &self.now else {
            found.candidates = vec![base.clone()];
            return found;
        };
        found.in_flight_lost = lost.contains(&now.step.id);
        let mut after = base.clone();
        carry_handles(&now.step.before, &mut after);
        let before = after.clone();
        after.apply(&now.op, now.call);
        let settled = sure && first.is_none() && !found.in_flight_lost && untold.is_empty();
        found.touched_now = now.step.touches.iter().copied().collect();
        // On what is left it may work on another inode than it was meant for.
        found.touched_now.extend(touches(&now.op, &before, &after));
        found.candidates = if settled { vec![after] } else { vec![after, base.clone()] };
        if (first.is_some() || !untold.is_empty())
            && let Some(op) = as_resolved(now.op, &now.step.before, base)
        {
            let mut after = before.clone();
            after.apply(&op, now.call);
            found.touched_now.extend(touches(&op, &before, &after));
            found.candidates.push(after);
        }
        if !settled {
            found.unsure = found.touched_now.clone();
        }
        found
    }

    /// Of this file something was never told: it is as records of steps before `until` say.
    fn take_back(&self, base: &mut Fs, ino: Ino, (until, loss): (u64, Loss), found: &mut Suspicion) {
        let recorded = self.gathered.get(&ino).and_then(|file| file.as_recorded(until, loss));
        let Some((from, told)) = recorded else { return };
        // A power cut takes more than what was with the mount only, as of any file.
        let cut = until < u64::MAX || loss.in_vain;
        let states = self.steps.iter().filter(|step| cut || step.id.1 > from).map(|step| &step.before);
        let states = states.chain([&*base, told, &self.fs]);
        let mut contents: Vec<Content> = states.filter_map(|fs| fs.content(ino).ok().cloned()).collect();
        contents.dedup();
        if gathered::take_back(base, ino, told) {
            found.untold.insert(ino, contents);
            found.lost.insert(ino);
            found.owners.extend(loss.in_vain.then_some(ino));
        }
    }

    /// An fsync of `ino` succeeded after a cut: whatever else is lost, its content is that of every step that was acknowledged. Bytes in
    /// chunk files have no record that could go with those of names.
    pub fn held(&mut self, found: &mut Suspicion, ino: Ino) {
        found.intact.insert(ino);
        let newest = match found.candidates.first().filter(|_| found.touched_now.contains(&ino)) {
            Some(after) => after.clone(),
            None => self.fs.clone(),
        };
        if self.foreign.contains(&ino) {
            return;
        }
        // Also in what a later look at this loss starts from.
        let bases = self.steps.iter_mut().skip(found.kept).map(|step| &mut step.before);
        bases.chain(&mut found.candidates).for_each(|state| state.take_content(ino, &newest));
        if let (Ok(content), Some(versions)) = (newest.content(ino), self.versions.get_mut(&ino)) {
            *versions = vec![content.clone()];
        }
    }

    /// The directory is in the state `found.candidates[chosen]`, but for `adoptions`.
    pub fn settle(&mut self, mut found: Suspicion, chosen: usize, adoptions: Vec<Adoption>) {
        self.steps.truncate(found.kept);
        let mut state = found.candidates.swap_remove(chosen);
        state.close_all(|_| true);
        if let Some(now) = self.now.take() {
            let mut step = now.step;
            for ino in step.touches.iter().copied() {
                let content = |fs: &Fs| fs.content(ino).ok().cloned();
                let (old, new) = (content(&step.before), content(&now.after));
                self.note_version(ino, old, new);
            }
            step.touches.extend(found.touched_now.iter().copied());
            step.before = found.base.take().unwrap_or(step.before);
            step.before.close_all(|_| true);
            self.steps.push(step);
        }
        self.fs = state;
        for adoption in adoptions {
            self.adopt(adoption);
        }
    }

    /// Takes over content as it was found.
    fn adopt(&mut self, Adoption { ino, size, mode, owner: (uid, gid), ranges }: Adoption) {
        let now = Timestamp { secs: self.number as i64, nanos: 0 };
        let none = SetAttr::default();
        let resized = self.fs.setattr(ino, &SetAttr { size: Some(0), ..none.clone() }, now);
        for (offset, bytes) in ranges {
            let _ = self.fs.write(ino, offset, &bytes, false, now);
        }
        // That clears bits of the mode.
        let owned = SetAttr { uid: Some(uid), gid: Some(gid), ..none.clone() };
        let resized = resized.and_then(|()| self.fs.setattr(ino, &owned, now));
        let set = SetAttr { size: Some(size), mode: Some(mode), ..none };
        if resized.and_then(|()| self.fs.setattr(ino, &set, now)).is_ok()
            && let Ok(content) = self.fs.content(ino)
        {
            let content = content.clone();
            self.versions.entry(ino).or_default().push(content);
        }
    }

    /// Files whose chunk files may hold more than their size tells, with a path and the size that they
    /// are to be cut to: 0 where nobody can make durable what is there.
    pub fn haunted(&mut self) -> Vec<(Vec<Name>, u64)> {
        let walk = self.fs.walk();
        let mut haunted = Vec::new();
        for (path, ino) in walk {
            if self.foreign.contains(&ino) {
                self.versions.entry(ino).or_default().push(Content::default());
                haunted.push((path, 0));
            } else if self.versions.get(&ino).is_some_and(|versions| versions.len() > 1)
                && let Ok(stat) = self.fs.stat(ino)
            {
                haunted.push((path, stat.size));
            }
        }
        haunted
    }

    /// They are cut now, and everything so far is durable.
    pub fn laid_to_rest(&mut self) {
        let now = Timestamp { secs: self.number as i64, nanos: 0 };
        for ino in std::mem::take(&mut self.foreign) {
            let _ = self.fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }, now);
            self.versions.remove(&ino);
        }
        self.steps.clear();
        self.gathered.clear();
    }

    /// A new client goes on: what the old one had not synced stays unsynced.
    pub fn taken_over(&mut self) {
        self.opens.clear();
        let unsynced: Vec<Ino> = self.unsynced().collect();
        self.foreign.extend(unsynced);
    }
}

/// What is open in `from` is open in `to`, and nothing else: handles are the client's, and no power
/// cut of a server closes them.
fn carry_handles(from: &Fs, to: &mut Fs) {
    const ASIDE: u32 = 1 << 20;
    let wanted: Vec<_> =
        from.handles().filter_map(|(h, _)| from.handle(h).ok().map(|open| (h, open))).collect();
    // First the new ones, aside: an inode without names must not vanish in between.
    for (handle, (ino, access)) in &wanted {
        let _ = to.open(Handle(handle.0 + ASIDE), *ino, *access);
    }
    to.close_all(|handle| handle.0 < ASIDE);
    for (handle, (ino, access)) in wanted {
        let _ = to.open(handle, ino, access);
    }
    to.close_all(|handle| handle.0 >= ASIDE);
}

/// An operation under way, its paths already resolved when a cut moved what lay on them: what it does to `left`, where
/// the same directories have the paths of before, or the same inode what it is done to. `None`: nothing else than by its own paths.
fn as_resolved(mut op: Op, before: &Fs, left: &Fs) -> Option<Op> {
    let is_meant = op;
    let by_inode = is_by_inode(&op);
    let places: BTreeMap<Ino, Vec<Name>> = left.walk().into_iter().map(|(path, ino)| (ino, path)).collect();
    for (number, path) in op.paths_mut().into_iter().enumerate() {
        let moved = before.resolve(*path).ok().filter(|_| by_inode && number == 0);
        let mut names: Vec<Name> = path.names().map(Name::new).collect::<Result<_, _>>().ok()?;
        let last = names.pop()?;
        let dir = names.iter().try_fold(Ino::ROOT, |dir, name| before.lookup(dir, name)).ok()?;
        let mut place = if dir == Ino::ROOT { Vec::new() } else { places.get(&dir)?.clone() };
        place.push(last);
        if let Some(moved) = moved {
            place = places.get(&moved)?.clone();
        }
        let index = |name: &Name| NAMES.iter().position(|known| *known == name.as_bytes());
        let indices: Vec<u8> =
            place.iter().map(|name| index(name).map(|at| at as u8)).collect::<Option<_>>()?;
        *path = Some(Path::new(&indices)).filter(|_| indices.len() <= DEPTH_MAX)?;
    }
    (op != is_meant).then_some(op)
}

/// Is its first path looked up to the end, and the request about the inode found?
fn is_by_inode(op: &Op) -> bool {
    match op {
        Op::Link { .. } => true,
        Op::Chmod { at, .. }
        | Op::Chown { at, .. }
        | Op::Utimens { at, .. }
        | Op::Truncate { at, .. }
        | Op::Setxattr { at, .. }
        | Op::Removexattr { at, .. }
        | Op::SetAcl { at, .. }
        | Op::RemoveAcl { at, .. } => matches!(at, At::Path(_)),
        _ => false,
    }
}

/// Inodes of the oracle that a successful operation changes, so that an fsync of them covers it.
fn touches(op: &Op, before: &Fs, after: &Fs) -> Vec<Ino> {
    let parent = |path: Path| -> Option<Ino> {
        let names: Vec<_> = path.names().collect();
        let mut dir = Ino::ROOT;
        for name in &names[..names.len().checked_sub(1)?] {
            dir = before.lookup(dir, &Name::new(name).ok()?).ok()?;
        }
        Some(dir)
    };
    let handle = |handle: Handle| before.handle(handle).ok().map(|(ino, _)| ino);
    let at = |at: At| match at {
        At::Path(path) => before.resolve(path).ok(),
        At::Handle(h) => handle(h),
    };
    let found = match *op {
        Op::Open { path, how, .. } => {
            let new = before.resolve(path).is_err();
            let file = after.resolve(path).ok().filter(|_| new || how.truncate);
            vec![file, parent(path).filter(|_| new)]
        }
        Op::Mkdir { path, .. } | Op::Mknod { path, .. } | Op::Symlink { path, .. } => {
            vec![parent(path), after.resolve(path).ok()]
        }
        Op::OpenTemp { handle: new, .. } => vec![after.handle(new).ok().map(|(ino, _)| ino)],
        Op::LinkHandle { handle: h, to } => vec![handle(h), parent(to)],
        Op::Link { from, to } => vec![before.resolve(from).ok(), parent(to)],
        Op::Unlink { path } | Op::Rmdir { path } => vec![parent(path)],
        Op::Rename { from, to, .. } => vec![parent(from), parent(to)],
        Op::Chmod { at: it, .. }
        | Op::Chown { at: it, .. }
        | Op::Utimens { at: it, .. }
        | Op::Truncate { at: it, .. }
        | Op::Setxattr { at: it, .. }
        | Op::SetAcl { at: it, .. }
        | Op::RemoveAcl { at: it, .. }
        | Op::Removexattr { at: it, .. } => vec![at(it)],
        Op::Write { handle: h, .. }
        | Op::Punch { handle: h, .. }
        | Op::Allocate { handle: h, .. }
        | Op::Zero { handle: h, .. }
        | Op::Copy { to: h, .. }
        | Op::Fsync { handle: h }
        | Op::Close { handle: h } => vec![handle(h)],
        _ => vec![],
    };
    found.into_iter().flatten().collect()
}
