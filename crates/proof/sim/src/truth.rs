//! What was true, and when: the states of each watched name and inode by the moment of their record in the shard's log,
//! and what hosts have seen of them. Whoever looks must be shown a state of some moment between question and answer, and
//! none that is older than what its host, or one that it has heard from, had seen when it asked.

use crate::arena::{BOX, Names, names_changed};
use crate::hub::{HOSTS, Hub, Place};
use crate::kernel::Seen;
use skep_meta::{Action, Command, Internal};
use skep_types::{Ino, ShardId};
use skep_wire::meta::MetaRequest;
use std::collections::{BTreeMap, BTreeSet};

/// Something that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Name(Ino, Vec<u8>),
    Inode(Ino),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Of a name: where it leads.
    Leads(Option<Ino>),
    /// Of an inode: what is seen of it; `None` = it is gone.
    Seen(Option<Seen>),
    /// Of an inode: several changes of one step, or what was before the first that was watched.
    Anything,
}

impl State {
    /// The same, but for the change number.
    fn looks_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Seen(Some(one)), Self::Seen(Some(two))) => *one == Seen { change: one.change, ..*two },
            _ => self == other,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    from: u64,
    /// The record that made it; none made the first, and what a mount had not told yet.
    by: Option<Place>,
    state: State,
    /// When a power cut took it.
    lost: Option<u64>,
    /// A mount that held the file had acknowledged it to programs of its host, and told nobody.
    untold: bool,
}

/// A file that a mount holds, and of which it has something to tell.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The life of that mount.
    life: u32,
    /// What it shows to its host.
    state: State,
    /// The record that told it: the mount may not have heard of that.
    told: Option<Place>,
    /// Its session has ended, of which it has not heard, or it was passed over as one that is not heard.
    over: bool,
    /// What records said of the file then.
    passed: Option<State>,
}

/// What a mount showed to its host of a file that it held, and never told.
#[derive(Debug, Clone, Copy)]
struct Untold {
    host: usize,
    ino: Ino,
    state: State,
    /// Until when it showed that; `None`: it still does.
    until: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Truth {
    lists: BTreeMap<Key, Vec<Moment>>,
    /// By host: the newest of each list that it had seen, and since when.
    seen: [BTreeMap<Key, Vec<(u64, usize)>>; HOSTS],
    /// Inodes whose rows a step has changed: by which records, the first and the last.
    touched: BTreeMap<Ino, (Place, Place)>,
    /// Files of which a mount has something to tell.
    held: BTreeMap<Ino, Held>,
    untold: Vec<Untold>,
    /// Records that told of such files.
    tells: BTreeSet<Place>,
}

impl Truth {
    /// From now on it is so.
    pub fn becomes(&mut self, now: u64, by: Place, key: Key, state: State) {
        let before = match key {
            Key::Name(..) => State::Leads(None),
            Key::Inode(_) => State::Anything,
        };
        let list = self.lists.entry(key).or_default();
        if list.is_empty() {
            list.push(Moment { from: 0, by: None, state: before, lost: None, untold: false });
        }
        // What a mount had not told is told: that stays where a power cut takes what is told later.
        if list.last().is_none_or(|last| last.untold || last.state != state) {
            list.push(Moment { from: now, by: Some(by), state, lost: None, untold: false });
        }
    }

    /// A mount holds this file, and has acknowledged to its host what it shows of it: so it is, though no record says so. Who
    /// asks from now on is shown that, or what comes after it. `true`: it is new.
    pub fn is_held_as(&mut self, now: u64, ino: Ino, life: u32, seen: Seen) -> bool {
        let Some(list) = self.lists.get_mut(&Key::Inode(ino)) else { return false };
        let state = State::Seen(Some(seen));
        let new = Held { life, state, told: None, over: false, passed: None };
        let held = self.held.entry(ino).or_insert(new);
        if held.told.is_some() && held.state.looks_like(&state) {
            return false;
        }
        (held.state, held.told) = (state, None);
        let is_new = !held.over && list.last().is_none_or(|last| last.state != state);
        if is_new {
            list.push(Moment { from: now, by: None, state, lost: None, untold: true });
        }
        is_new
    }

    /// The session has ended in which a mount holds this file, of which it has not heard. Until its shard has heard of that, what
    /// was not told may be told still (`knows`); then it is lost, and the mount goes on showing it to its host.
    pub fn is_held_in_vain(&mut self, now: u64, ino: Ino, host: usize, knows: bool) {
        let Some(held) = self.held.get_mut(&ino).filter(|held| held.told.is_none()) else { return };
        let first = !std::mem::replace(&mut held.over, true);
        let state = held.state;
        let is_shown =
            |untold: &&mut Untold| (untold.host, untold.ino) == (host, ino) && untold.until.is_none();
        match self.untold.iter_mut().find(is_shown) {
            Some(untold) => untold.state = state,
            None => self.untold.push(Untold { host, ino, state, until: None }),
        }
        if knows && first {
            self.push_untold(now, ino, State::Anything);
        }
        if !knows {
            self.falls_back(now, ino);
            let recorded = self.recorded(ino).map(|moment| moment.state);
            if let Some(held) = self.held.get_mut(&ino) {
                held.passed = held.passed.or(recorded);
            }
        }
    }

    /// As the newest record says.
    fn recorded(&self, ino: Ino) -> Option<Moment> {
        let list = self.lists.get(&Key::Inode(ino))?;
        list.iter().rfind(|moment| moment.lost.is_none() && !moment.untold).copied()
    }

    /// The shard knows again that the file is held, of a mount that it had gone on without.
    pub fn is_held_again(&mut self, ino: Ino) {
        if let Some(held) = self.held.get_mut(&ino) {
            (held.over, held.passed) = (false, None);
        }
    }

    /// That mount holds the file no longer: what it had not told is lost.
    pub fn is_held_no_more(&mut self, now: u64, ino: Ino, (life, host): (u32, usize)) {
        let Some(held) = self.held.get(&ino).copied().filter(|held| held.life == life) else { return };
        self.held.remove(&ino);
        let shown = |untold: &&mut Untold| (untold.host, untold.ino) == (host, ino) && untold.until.is_none();
        self.untold.iter_mut().filter(|untold| shown(untold)).for_each(|untold| untold.until = Some(now));
        if held.told.is_none() {
            self.untold.push(Untold { host, ino, state: held.state, until: Some(now) });
            self.falls_back(now, ino);
        }
    }

    /// The mount of this life is gone, with what it had not told.
    pub fn mount_is_gone(&mut self, now: u64, at: (u32, usize)) {
        let inos: Vec<Ino> = self.held.keys().copied().collect();
        inos.into_iter().for_each(|ino| self.is_held_no_more(now, ino, at));
    }

    /// A record tells what a mount had kept to itself of a file. `false`: that was passed over, and others have changed the file
    /// since.
    fn is_told(&mut self, ino: Ino, by: Place) -> bool {
        self.tells.insert(by);
        let recorded = self.recorded(ino).map(|moment| moment.state);
        let is_touched = self.touched.contains_key(&ino);
        let Some(held) = self.held.get_mut(&ino) else { return true };
        held.told = Some(by);
        held.passed.is_none_or(|passed| is_touched || recorded == Some(passed))
    }

    /// Did this mount show that to its host, which asked then, though it had not told it, and it was lost?
    pub fn was_never_told(&self, host: usize, key: &Key, state: State, asked: u64) -> bool {
        let is_it = |untold: &Untold| {
            let is_of = untold.host == host && *key == Key::Inode(untold.ino);
            is_of && untold.state.looks_like(&state) && untold.until.is_none_or(|until| asked <= until)
        };
        self.untold.iter().any(is_it)
    }

    fn push_untold(&mut self, now: u64, ino: Ino, state: State) {
        if let Some(list) = self.lists.get_mut(&Key::Inode(ino)) {
            list.push(Moment { from: now, by: None, state, lost: None, untold: true });
        }
    }

    /// What was not told of it is lost: it is as the newest record says.
    fn falls_back(&mut self, now: u64, ino: Ino) {
        let told = self.recorded(ino);
        let Some(list) = self.lists.get_mut(&Key::Inode(ino)) else { return };
        if let Some(told) = told
            && list.last().is_some_and(|last| last.untold)
        {
            list.push(Moment { from: now, ..told });
        }
    }

    /// A record has changed the row of an inode.
    fn touch(&mut self, ino: Ino, by: Place) {
        self.touched.entry(ino).or_insert((by, by)).1 = by;
    }

    /// Inodes that records have changed since the last call: their rows tell what they are now, which `row` reads.
    pub fn settle(&mut self, now: u64, row: impl Fn(Ino) -> Option<Seen>) {
        for (ino, (first, last)) in std::mem::take(&mut self.touched) {
            if first != last {
                // A power cut may leave the first, and what that has told.
                self.becomes(now, first, Key::Inode(ino), State::Anything);
            }
            self.becomes(now, last, Key::Inode(ino), State::Seen(row(ino)));
        }
    }

    /// The log of a server ends there now: what came behind it was never so, and what was before it is so again.
    pub fn cut(&mut self, now: u64, last: Place) {
        let is_gone = |by: Place| by.metad == last.metad && by.index > last.index;
        for held in self.held.values_mut() {
            held.told = held.told.filter(|by| !is_gone(*by));
        }
        for list in self.lists.values_mut() {
            let before = list.iter().filter(|moment| moment.lost.is_none()).count();
            // What was not told goes with the record that told it.
            let mut tells_is_gone = false;
            for moment in list.iter_mut().rev().filter(|moment| moment.lost.is_none()) {
                let is_lost = moment.by.map_or(moment.untold && tells_is_gone, is_gone);
                tells_is_gone = is_lost;
                moment.lost = is_lost.then_some(now);
            }
            let left = list.iter().rfind(|moment| moment.lost.is_none()).copied();
            if let Some(left) = left
                && list.iter().filter(|moment| moment.lost.is_none()).count() < before
            {
                list.push(Moment { from: now, ..left });
            }
        }
    }

    /// The newest of a list that a host had seen before it asked.
    fn floor(&self, host: usize, key: &Key, asked: u64) -> usize {
        let Some(seen) = self.seen[host].get(key) else { return 0 };
        let before = seen.partition_point(|(at, _)| *at < asked);
        before.checked_sub(1).map_or(0, |at| seen[at].1)
    }

    /// Was it so when a power cut took it, at that time or later?
    pub fn was_lost_since(&self, key: &Key, shown: State, since: u64) -> bool {
        let list = self.lists.get(key).map(Vec::as_slice).unwrap_or_default();
        // What followed it is what was left of the log.
        let lost =
            list.windows(2).filter(|pair| pair[0].lost.is_some_and(|at| at >= since && at == pair[1].from));
        lost.into_iter().any(|pair| pair[0].state == shown || pair[0].state == State::Anything)
    }

    fn has_seen(&mut self, host: usize, key: Key, now: u64, at: usize) {
        let seen = self.seen[host].entry(key).or_default();
        if seen.last().is_none_or(|(_, newest)| at > *newest) {
            seen.push((now, at));
        }
    }

    /// A program of this host, which asked then, is shown this now.
    pub fn is_shown(
        &mut self,
        host: usize,
        key: Key,
        shown: State,
        (asked, now): (u64, u64),
    ) -> Result<(), String> {
        let Some(list) = self.lists.get(&key) else { return Ok(()) };
        let first = list.partition_point(|moment| moment.from < asked).saturating_sub(1);
        let until = list.partition_point(|moment| moment.from <= now);
        // Who holds a file does not move its number, and may not have heard that telling has.
        let told = |by: Option<Place>| by.is_some_and(|by| self.tells.contains(&by));
        let is_of_hold = |moment: &Moment| moment.untold || told(moment.by);
        let fits = |at: &usize| {
            let moment = &list[*at];
            let is_like = is_of_hold(moment) && moment.state.looks_like(&shown);
            moment.state == shown || moment.state == State::Anything || is_like
        };
        let floor = self.floor(host, &key, asked);
        match (first..until).filter(fits).find(|at| *at >= floor) {
            Some(at) => {
                self.has_seen(host, key, now, at);
                Ok(())
            }
            None => {
                let states: Vec<String> = list[first..until]
                    .iter()
                    .map(|moment| format!("{:?} from {}", moment.state, moment.from))
                    .collect();
                let seen = list[floor].from;
                Err(format!(
                    "{key:?} is shown as {shown:?} to who asked at {asked}, but was {}; host {host} had seen what it was \
                     at {seen}",
                    states.join(", ")
                ))
            }
        }
    }

    /// A host hears from another one, outside of Skep, what that one has seen.
    pub fn hears(&mut self, host: usize, from: usize, now: u64) {
        let newest = |seen: &Vec<(u64, usize)>| seen.last().map(|(_, at)| *at);
        let said: Vec<(Key, usize)> =
            self.seen[from].iter().filter_map(|(key, seen)| Some((key.clone(), newest(seen)?))).collect();
        for (key, at) in said {
            self.has_seen(host, key, now, at);
        }
    }
}

impl Hub {
    /// A record of that shard: what it makes of the directory of all, and of who is in it.
    pub fn record(&mut self, by: Place, shard: ShardId, command: &Command) -> Result<(), String> {
        let Some(dir) = self.shared.dir.filter(|dir| dir.shard() == shard) else { return Ok(()) };
        let names = names_changed(dir, command);
        let inodes = |names: &[Vec<u8>], all: &Names| -> Vec<Ino> {
            let watched = names.iter().filter(|name| !name.starts_with(BOX));
            watched.filter_map(|name| all.get(name).copied()).collect()
        };
        let mut touched = inodes(&names, &self.shared.names);
        self.shared.record(self.now, by, command)?;
        touched.extend(inodes(&names, &self.shared.names));
        for name in &names {
            let leads = State::Leads(self.shared.names.get(name).copied());
            self.truth.becomes(self.now, by, Key::Name(dir, name.clone()), leads);
        }
        match &command.action {
            _ if !names.is_empty() => touched.push(dir),
            Action::Request(MetaRequest::ChangeAttr(m)) => touched.push(m.ino),
            Action::Request(MetaRequest::WriteInline(m)) => touched.push(m.ino),
            Action::Request(MetaRequest::Commit(m)) => touched.push(m.ino),
            Action::Request(MetaRequest::Tell(m)) => {
                touched.push(m.ino);
                if !self.truth.is_told(m.ino, by) {
                    return Err(format!("tells late of inode {}, which others have changed", m.ino.0));
                }
                self.say(format_args!("inode {} is told", m.ino.0));
            }
            // Any of them may be what it is about.
            Action::Internal(
                Internal::Purge(_) | Internal::SessionGone(_) | Internal::Recovered(_) | Internal::Writers(_),
            ) => {
                let all: Vec<Vec<u8>> = self.shared.names.keys().cloned().collect();
                touched.extend(inodes(&all, &self.shared.names));
            }
            _ => {}
        }
        touched.sort_unstable();
        touched.dedup();
        let is_watched = |ino: &Ino| *ino == dir || self.shared.inodes.contains(ino);
        touched.into_iter().filter(is_watched).for_each(|ino| self.truth.touch(ino, by));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: usize = 3;
    const OTHER: usize = 4;
    const KEY: Key = Key::Inode(Ino(9));

    fn place(index: u64) -> Place {
        Place { metad: 0, index }
    }

    fn leads(ino: u64) -> State {
        State::Leads((ino > 0).then_some(Ino(ino)))
    }

    fn name() -> Key {
        Key::Name(Ino(1), b"a".to_vec())
    }

    /// Absent, 7 from 10 on, 8 from 20 on, absent from 30 on.
    fn truth() -> Truth {
        let mut truth = Truth::default();
        for (now, ino) in [(10, 7), (20, 8), (30, 0)] {
            truth.becomes(now, place(now), name(), leads(ino));
        }
        truth
    }

    /// Goal: a look may be shown each state of its own time, and none before or after it.
    #[test]
    fn a_look_is_shown_a_state_of_its_time() {
        let shown = |ino, asked, now| truth().is_shown(HOST, name(), leads(ino), (asked, now)).is_ok();
        assert!(shown(0, 0, 9) && shown(7, 5, 10) && shown(8, 15, 25) && shown(0, 35, 35));
        assert!(shown(7, 20, 25), "within one millisecond nobody knows what came first");
        assert!(!shown(7, 0, 9) && !shown(7, 21, 40) && !shown(8, 10, 19) && !shown(0, 11, 29));
    }

    /// Goal: of what was true while somebody looked, nothing older counts than what his host had seen when he asked, or
    /// one that his host had heard from by then.
    #[test]
    fn nothing_is_older_than_what_was_seen() {
        let mut truth = truth();
        truth.is_shown(OTHER, name(), leads(8), (15, 25)).unwrap();
        let older = |truth: &Truth, asked| truth.floor(HOST, &name(), asked);
        assert_eq!(older(&truth, 30), 0);
        truth.hears(HOST, OTHER, 26);
        assert_eq!(
            (older(&truth, 26), older(&truth, 27)),
            (0, 2),
            "who asked before it heard may be shown older ones"
        );
        // As if time went on without the change: only what was heard tells.
        truth.lists.get_mut(&name()).unwrap()[2].from = 40;
        assert!(truth.is_shown(HOST, name(), leads(7), (26, 40)).is_ok());
        assert!(truth.is_shown(HOST, name(), leads(7), (27, 40)).is_err());
    }

    /// Goal: a power cut takes the list back, and who looks after it is shown what was before; another server's does not.
    #[test]
    fn a_power_cut_takes_the_list_back() {
        let mut truth = truth();
        truth.is_shown(HOST, name(), leads(0), (31, 32)).unwrap();
        truth.cut(40, Place { metad: 1, index: 0 });
        assert!(truth.is_shown(HOST, name(), leads(0), (41, 41)).is_ok());
        truth.cut(50, place(10));
        assert!(truth.is_shown(HOST, name(), leads(0), (45, 55)).is_ok(), "asked before it");
        assert!(truth.is_shown(HOST, name(), leads(7), (51, 55)).is_ok());
        assert!(truth.is_shown(HOST, name(), leads(8), (51, 55)).is_err());
        truth.cut(60, place(0));
        assert!(truth.is_shown(HOST, name(), leads(0), (61, 61)).is_ok());
    }

    /// Goal: what was so when a power cut took it is known for a while, and nothing that was so before.
    #[test]
    fn what_a_power_cut_took_is_known() {
        let mut truth = truth();
        truth.cut(50, place(10));
        let lost = |ino, since| truth.was_lost_since(&name(), leads(ino), since);
        assert!(lost(0, 50) && !lost(0, 51) && !lost(8, 50) && !lost(7, 50));
    }

    const LIFE: (u32, usize) = (1, HOST);

    fn mode(mode: u32, change: u64) -> Seen {
        Seen { kind: skep_types::Kind::File, mode, nlink: 1, change }
    }

    /// Made at 10 with mode 1; its mount keeps to itself from 20 on that it has mode 2.
    fn held() -> Truth {
        let mut truth = Truth::default();
        truth.becomes(10, place(1), KEY, State::Seen(Some(mode(1, 1))));
        truth.is_held_as(20, Ino(9), LIFE.0, mode(2, 1));
        truth
    }

    fn is_shown(truth: &mut Truth, host: usize, seen: Seen, at: u64) -> bool {
        truth.is_shown(host, KEY, State::Seen(Some(seen)), (at, at)).is_ok()
    }

    /// Goal: what a mount keeps to itself is so from then on; the number that telling gives it is not looked at.
    #[test]
    fn what_is_kept_is_so() {
        let mut truth = held();
        assert!(is_shown(&mut truth, OTHER, mode(1, 1), 15) && !is_shown(&mut truth, OTHER, mode(1, 1), 21));
        truth.is_told(Ino(9), place(2));
        truth.becomes(30, place(2), KEY, State::Seen(Some(mode(2, 2))));
        // It may not have heard that it has told.
        truth.is_held_as(31, Ino(9), LIFE.0, mode(2, 1));
        assert!(is_shown(&mut truth, HOST, mode(2, 1), 32) && is_shown(&mut truth, OTHER, mode(2, 2), 32));
        truth.is_held_no_more(33, Ino(9), LIFE);
        assert!(is_shown(&mut truth, OTHER, mode(2, 2), 34) && !is_shown(&mut truth, OTHER, mode(1, 1), 34));
    }

    /// Goal: what was not told goes with the mount, and what was told with its record.
    #[test]
    fn what_is_not_told_is_lost() {
        let mut truth = held();
        truth.mount_is_gone(30, LIFE);
        assert!(is_shown(&mut truth, OTHER, mode(1, 1), 31) && !is_shown(&mut truth, OTHER, mode(2, 1), 31));
        let mut truth = held();
        truth.is_told(Ino(9), place(2));
        truth.becomes(30, place(2), KEY, State::Seen(Some(mode(2, 2))));
        truth.is_held_no_more(31, Ino(9), LIFE);
        truth.cut(40, place(1));
        assert!(is_shown(&mut truth, OTHER, mode(1, 1), 41) && !is_shown(&mut truth, OTHER, mode(2, 2), 41));
    }

    /// Goal: of several records that told of a file a power cut may leave some: it is as the last of those says, which looks like
    /// what its mount had acknowledged.
    #[test]
    fn a_power_cut_leaves_what_was_told_first() {
        let mut truth = held();
        truth.is_told(Ino(9), place(2));
        // Its mount knew what number that would have.
        truth.becomes(30, place(2), KEY, State::Seen(Some(mode(2, 1))));
        assert!(truth.is_held_as(31, Ino(9), LIFE.0, mode(3, 1)));
        truth.is_told(Ino(9), place(3));
        truth.becomes(32, place(3), KEY, State::Seen(Some(mode(3, 3))));
        truth.is_held_no_more(33, Ino(9), LIFE);
        truth.cut(40, place(2));
        assert!(is_shown(&mut truth, OTHER, mode(2, 1), 41), "what was told first is left");
        assert!(!is_shown(&mut truth, OTHER, mode(3, 3), 41) && !is_shown(&mut truth, OTHER, mode(1, 1), 41));
    }

    /// Goal: whose session has ended may show to its host what it had not told, until it hears of that; nobody else may.
    #[test]
    fn who_was_evicted_shows_it_to_its_host() {
        let mut truth = held();
        let shows =
            |truth: &Truth, host, at| truth.was_never_told(host, &KEY, State::Seen(Some(mode(2, 1))), at);
        truth.is_held_in_vain(30, Ino(9), HOST, true);
        assert!(is_shown(&mut truth, OTHER, mode(1, 1), 31), "nobody knows whether it is told");
        truth.is_held_in_vain(35, Ino(9), HOST, false);
        assert!(is_shown(&mut truth, OTHER, mode(1, 1), 36) && !is_shown(&mut truth, OTHER, mode(2, 1), 36));
        assert!(shows(&truth, HOST, 50) && !shows(&truth, OTHER, 50));
        truth.is_held_no_more(60, Ino(9), LIFE);
        assert!(shows(&truth, HOST, 60) && !shows(&truth, HOST, 61));
    }

    /// Goal: of several changes of one inode in one step each may be shown.
    #[test]
    fn changes_of_one_step_are_not_told_apart() {
        let mut truth = Truth::default();
        let seen = |change| Seen { kind: skep_types::Kind::File, mode: 0o644, nlink: 1, change };
        let shown = |truth: &mut Truth, change, at| {
            truth.is_shown(HOST, KEY, State::Seen(Some(seen(change))), (at, at)).is_ok()
        };
        truth.touch(Ino(9), place(1));
        truth.settle(10, |_| Some(seen(1)));
        [2, 3].into_iter().for_each(|index| truth.touch(Ino(9), place(index)));
        truth.settle(20, |_| Some(seen(3)));
        assert!(shown(&mut truth, 1, 15) && !shown(&mut truth, 2, 15));
        assert!(shown(&mut truth, 2, 20) && shown(&mut truth, 3, 21) && !shown(&mut truth, 2, 21));
        truth.cut(30, place(2));
        assert!(shown(&mut truth, 2, 31), "a power cut may leave the first of them");
        truth.cut(40, place(1));
        assert!(shown(&mut truth, 1, 41) && !shown(&mut truth, 2, 41));
    }
}
