//! Files that their mount makes and writes in small pieces, in order: what of them was answered, what of that may be with the
//! mount only, and whether what others find can be true. See `docs/design/gathering.md`.
//!
//! What a `write` was answered for is there for everybody, but where the mount is gone that has it, was told that its session
//! is over, or was passed over while it could not be heard: then the file is any state since nothing of it was with the mount
//! only, byte by byte, until somebody is told that it is all there. A change by others is of each of these states.

use crate::hub::LaneId;
use skep_types::{ClientId, Ino, Mode};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A look beside which more states were possible is not judged.
const STATES_MAX: usize = 96;
/// A file that is longer is written by nobody else.
const TAKEN_UP_MAX: usize = 80_000;

/// How such a file may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub bytes: Rc<Vec<u8>>,
    pub mode: Mode,
}

/// What is done to it.
#[derive(Debug, Clone)]
pub enum Change {
    Write(usize, Rc<Vec<u8>>),
    Cut(usize),
    Mode(Mode),
}

impl State {
    fn after(&self, change: &Change) -> Self {
        let mut next = self.clone();
        match change {
            Change::Write(offset, data) => {
                let bytes = Rc::make_mut(&mut next.bytes);
                let end = offset + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(data);
            }
            Change::Cut(size) => Rc::make_mut(&mut next.bytes).resize(*size, 0),
            Change::Mode(mode) => next.mode = *mode,
        }
        next
    }
}

/// How somebody goes on with one that was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    AtItsEnd,
    Appends,
    /// From its beginning, over what is there.
    Over,
}

#[derive(Debug)]
pub struct Pieced {
    pub ino: Ino,
    /// Where it is, and its name there.
    pub dir: Ino,
    pub name: String,
    /// Who made it, in which session.
    pub life: u32,
    pub client: ClientId,
    /// Power cuts that there had been then.
    pub cuts: usize,
    /// Who changes it now.
    pub turn: Option<LaneId>,
    /// Another one is to take its place.
    pub spoilt: bool,
    /// Looks since something of it was in doubt, and since it was closed.
    pub last_looks: u32,
    pub closed: bool,
    /// Its writer appends.
    pub appends: bool,
    /// Its writer has begun at the beginning again, and goes on here.
    over: Option<usize>,
    /// Mounts that have written it, one after the other.
    pub writers: u32,
    /// Others have changed it: who has it open is shown that when he opens it again.
    pub is_of_all: bool,
    /// States that a loss may leave, the newest last: that is the one as answered.
    states: Vec<State>,
    under_way: Option<(Change, bool)>,
    /// Something of it may be lost.
    doubt: bool,
    /// Its mount was told so, or of something that may be that.
    said: bool,
    /// By who looks: states that were possible since.
    lookers: BTreeMap<LaneId, Vec<State>>,
}

impl Pieced {
    /// A new, empty one.
    pub fn new(ino: Ino, (dir, name): (Ino, String), (life, client): (u32, ClientId), cuts: usize) -> Self {
        let empty = State { bytes: Rc::default(), mode: 0o644 };
        Self {
            ino,
            dir,
            name,
            life,
            client,
            cuts,
            turn: None,
            spoilt: false,
            last_looks: 0,
            closed: false,
            appends: false,
            over: None,
            writers: 1,
            is_of_all: false,
            states: vec![empty],
            under_way: None,
            doubt: false,
            said: false,
            lookers: BTreeMap::new(),
        }
    }

    /// Is it closed, with all that was written to it, so that somebody may go on with it?
    pub fn may_be_taken_up(&self) -> bool {
        let is_whole = self.closed && !self.doubt && !self.said && self.states.len() == 1;
        is_whole && !self.spoilt && self.len() <= TAKEN_UP_MAX
    }

    /// This mount writes it from now on, and may keep some of that to itself.
    pub fn taken_up(&mut self, (life, client): (u32, ClientId), how: Again) {
        (self.life, self.client, self.appends) = (life, client, how == Again::Appends);
        self.over = (how == Again::Over).then_some(0);
        self.writers += 1;
        (self.closed, self.is_of_all, self.last_looks) = (false, false, 0);
    }

    /// An append has ended. Where something may be lost nobody can tell where the file ended for it: another one takes the place.
    pub fn has_appended(&mut self) {
        self.spoilt |= self.doubt;
    }

    /// Where its writer goes on: at its end, or where it has come to since it began again; round and round.
    pub fn goes_on_at(&self) -> usize {
        match self.over {
            None => self.len(),
            Some(at) if at < self.len() => at,
            Some(_) => 0,
        }
    }

    /// How long it is, for who was answered all.
    pub fn len(&self) -> usize {
        self.newest().bytes.len()
    }

    /// As who was answered all finds it.
    pub fn newest(&self) -> &State {
        self.states.last().unwrap_or_else(|| unreachable!("a file has a state"))
    }

    /// From here on bytes of it may be with its mount only.
    pub fn put(&self) -> usize {
        self.states.iter().map(|state| state.bytes.len()).min().unwrap_or(0)
    }

    /// May something be lost that was answered?
    pub fn is_in_doubt(&self) -> bool {
        self.doubt
    }

    /// A change begins; by its mount?
    pub fn begins(&mut self, change: Change, own: bool) {
        for states in self.lookers.values_mut() {
            add(states, &change);
        }
        self.is_of_all |= !own;
        if let (Change::Write(offset, data), true) = (&change, own)
            && self.over.is_some()
            && *offset == self.goes_on_at()
        {
            self.over = Some(offset + data.len());
        }
        self.under_way = Some((change, own));
    }

    /// It has ended: `whole`, or nobody knows how much of it is done. Of a write that came half-way: what of it is done.
    pub fn ended(&mut self, whole: bool, as_done: Option<Change>) {
        let Some((change, own)) = self.under_way.take() else { return };
        let change = as_done.unwrap_or(change);
        // Of what its mount does to one in doubt may come nothing, as of what was before.
        if !whole || own && self.doubt {
            self.doubt = true;
            // Nobody could tell any more what is wrong.
            self.spoilt |= self.states.len() > STATES_MAX;
            return add(&mut self.states, &change);
        }
        match (own, self.doubt) {
            // It may stay with the mount.
            (true, _) => self.states.push(self.newest().after(&change)),
            (false, true) => self.states.iter_mut().for_each(|state| *state = state.after(&change)),
            // Its mount has told all that it had, first.
            (false, false) => self.states = vec![self.newest().after(&change)],
        }
        self.states.dedup();
    }

    /// Nothing of its bytes is with its mount only, or of its mode.
    pub fn is_put(&mut self, bytes: bool, mode: bool) {
        if self.doubt {
            return;
        }
        let newest = self.newest().clone();
        for state in &mut self.states {
            if bytes {
                state.bytes = newest.bytes.clone();
            }
            if mode {
                state.mode = newest.mode;
            }
        }
        self.states.dedup();
    }

    /// Its mount was told that all of it is there, by a sync or a close.
    pub fn is_promised(&mut self) {
        if !self.said {
            self.doubt = false;
            self.keep_newest();
        }
    }

    /// Its mount was told of a loss. `false`: nothing can be lost.
    pub fn is_said(&mut self) -> bool {
        self.said = true;
        self.doubt
    }

    fn keep_newest(&mut self) {
        let newest = self.states.len() - 1;
        self.states.drain(..newest);
    }

    /// Its mount, or the session of that, is no more, or was passed over. `true`: something may be lost that was answered.
    pub fn may_have_lost(&mut self) -> bool {
        let has = self.states.len() > 1 || self.under_way.as_ref().is_some_and(|(_, own)| *own);
        if has && !std::mem::replace(&mut self.doubt, true) {
            // Who looks may be shown what is left, before others change it.
            for states in self.lookers.values_mut() {
                states.extend(self.states.iter().cloned());
                states.dedup();
            }
        }
        has
    }

    /// A mount is gone, and what its lanes did.
    pub fn client_gone(&mut self, life: u32) {
        self.lookers.retain(|lane, _| lane.life != life);
        if self.life == life {
            self.may_have_lost();
            self.closed = true;
        }
        if self.turn.is_some_and(|lane| lane.life == life) {
            self.turn = None;
            // What it had asked for may be done later, behind what others do.
            self.spoilt |= self.under_way.is_some();
            self.ended(false, None);
        }
    }

    /// Somebody begins to look.
    pub fn look_begins(&mut self, lane: LaneId) {
        let mut states = if self.doubt { self.states.clone() } else { vec![self.newest().clone()] };
        if let Some((change, _)) = &self.under_way {
            add(&mut states, change);
        }
        self.lookers.insert(lane, states);
    }

    /// What he may have been shown. `None`: nobody knows.
    pub fn look_ends(&mut self, lane: LaneId) -> Option<Vec<State>> {
        let mut states = self.lookers.remove(&lane)?;
        if self.doubt {
            states.extend(self.states.iter().cloned());
            self.last_looks += 1;
        }
        self.last_looks += u32::from(self.closed);
        (states.len() <= STATES_MAX).then_some(states)
    }
}

/// It may have been done to each of them, or not.
fn add(states: &mut Vec<State>, change: &Change) {
    if states.len() <= STATES_MAX {
        let after: Vec<State> = states.iter().map(|state| state.after(change)).collect();
        states.extend(after);
        states.dedup();
    }
}

/// Is a file with these states found with that size and mode?
pub fn check_size(states: &[State], size: u64, mode: Mode) -> Result<(), String> {
    let sizes = states.iter().map(|state| state.bytes.len() as u64);
    let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    if size < least || size > most {
        return Err(format!("is {size} bytes long, should be {least} to {most}"));
    }
    if states.iter().any(|state| state.mode == mode) {
        return Ok(());
    }
    Err(format!("has mode {mode:o}, should have {:o}", states.last().map_or(0, |state| state.mode)))
}

/// Are these the bytes of one? Each is that of some state, or none where one ends in front of it.
pub fn check_bytes(states: &[State], found: &[u8]) -> Result<(), String> {
    let sizes = states.iter().map(|state| state.bytes.len());
    let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    if found.len() < least || found.len() > most {
        return Err(format!("{} bytes are read, should be {least} to {most}", found.len()));
    }
    if states.iter().any(|state| state.bytes.as_slice() == found) {
        return Ok(());
    }
    let is = |state: &State, at: usize| state.bytes.get(at).copied().unwrap_or(0) == found[at];
    match (0..found.len()).find(|at| !states.iter().any(|state| is(state, *at))) {
        None => Ok(()),
        Some(at) => Err(format!(
            "byte {at} of {} is {:#04x}, which it is in none of {} states",
            found.len(),
            found[at],
            states.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: LaneId = LaneId { life: 2, lane: 0 };

    fn write(at: usize, byte: u8) -> Change {
        Change::Write(at, Rc::new(vec![byte; 4]))
    }

    /// Eight bytes were answered for, of which the last four may be with the mount only.
    fn pieced() -> Pieced {
        let mut file = Pieced::new(Ino(1), (Ino(2), "a".into()), (1, ClientId(1)), 0);
        file.begins(write(0, 1), true);
        file.ended(true, None);
        file.is_put(true, true);
        file.begins(write(4, 2), true);
        file.ended(true, None);
        file
    }

    fn finds(file: &mut Pieced, found: &[u8]) -> bool {
        file.look_begins(OTHER);
        let states = file.look_ends(OTHER).unwrap();
        check_bytes(&states, found).is_ok() && check_size(&states, found.len() as u64, 0o644).is_ok()
    }

    /// Goal: what was answered is there, until its mount is gone: then what was with it only may be lost, in part, and
    /// nothing else.
    #[test]
    fn what_is_with_the_mount_goes_with_it() {
        let (all, some, none) = ([1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 0, 2], [1, 1, 1, 1]);
        let mut file = pieced();
        assert!(finds(&mut file, &all) && !finds(&mut file, &some) && !finds(&mut file, &none));
        file.client_gone(1);
        assert!(finds(&mut file, &all) && finds(&mut file, &some) && finds(&mut file, &none));
        assert!(!finds(&mut file, &none[1..]) && !finds(&mut file, &[2; 8]));
        let mut synced = pieced();
        synced.is_promised();
        synced.client_gone(1);
        assert!(finds(&mut synced, &all) && !finds(&mut synced, &none));
    }

    /// Goal: who takes a file up has what was written before, whatever becomes of his mount; what he writes goes with that.
    #[test]
    fn what_was_closed_stays_with_another_writer() {
        let (all, more) = ([1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 2, 2, 2, 2, 5, 5, 5, 5]);
        let mut file = pieced();
        file.closed = true;
        assert!(!file.may_be_taken_up(), "some of it may be with its mount");
        file.is_promised();
        assert!(file.may_be_taken_up());
        file.taken_up((3, ClientId(3)), Again::Appends);
        file.client_gone(1);
        assert!(finds(&mut file, &all) && !finds(&mut file, &all[..4]) && !file.may_be_taken_up());
        file.begins(write(8, 5), true);
        file.ended(true, None);
        assert!(finds(&mut file, &more) && !finds(&mut file, &all));
        file.client_gone(3);
        assert!(finds(&mut file, &more) && finds(&mut file, &all) && !finds(&mut file, &all[..4]));
    }

    /// Goal: who begins again goes on where he has come to, and from the beginning once more behind the end.
    #[test]
    fn it_is_written_over_in_order() {
        let mut file = pieced();
        file.is_promised();
        file.closed = true;
        assert_eq!(file.goes_on_at(), 8);
        file.taken_up((3, ClientId(3)), Again::Over);
        for (at, next) in [(0, 4), (2, 4), (4, 0), (0, 4)] {
            file.begins(write(at, 7), true);
            file.ended(true, None);
            assert_eq!(file.goes_on_at(), next, "behind {at}");
        }
    }

    /// Goal: a change by others of a file in doubt is there whatever is lost; and a sync that is good ends the doubt, but not
    /// behind an error.
    #[test]
    fn changes_by_others_stay() {
        let mut file = pieced();
        assert!(file.may_have_lost());
        file.begins(write(6, 3), false);
        assert!(
            finds(&mut file, &[1, 1, 1, 1, 2, 2, 2, 2]) && finds(&mut file, &[1, 1, 1, 1, 0, 0, 3, 3, 3, 3])
        );
        file.ended(true, None);
        assert!(!finds(&mut file, &[1, 1, 1, 1, 2, 2, 2, 2, 3, 3]));
        assert!(finds(&mut file, &[1, 1, 1, 1, 0, 0, 3, 3, 3, 3]));
        file.is_promised();
        assert!(!finds(&mut file, &[1, 1, 1, 1, 0, 0, 3, 3, 3, 3]));
        assert!(finds(&mut file, &[1, 1, 1, 1, 2, 2, 3, 3, 3, 3]));
        let mut said = pieced();
        said.may_have_lost();
        assert!(said.is_said());
        said.is_promised();
        assert!(finds(&mut said, &[1, 1, 1, 1]) && !pieced().is_said());
    }
}
