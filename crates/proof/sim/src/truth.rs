//! What was true, and when: the states of each watched name and inode by the moment of their record in the shard's log,
//! and what hosts have seen of them. Whoever looks must be shown a state of some moment between question and answer, and
//! none that is older than what its host, or one that it has heard from, had seen when it asked.

use crate::arena::{BOX, Names, names_changed};
use crate::hub::{HOSTS, Hub, Place};
use crate::kernel::Seen;
use skep_meta::{Action, Command, Internal};
use skep_types::{Ino, ShardId};
use skep_wire::meta::MetaRequest;
use std::collections::BTreeMap;

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

#[derive(Debug, Clone, Copy)]
struct Moment {
    from: u64,
    /// The record that made it; none made the first.
    by: Option<Place>,
    state: State,
    /// When a power cut took it.
    lost: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Truth {
    lists: BTreeMap<Key, Vec<Moment>>,
    /// By host: the newest of each list that it had seen, and since when.
    seen: [BTreeMap<Key, Vec<(u64, usize)>>; HOSTS],
    /// Inodes whose rows a step has changed, and how often.
    touched: BTreeMap<Ino, (Place, u32)>,
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
            list.push(Moment { from: 0, by: None, state: before, lost: None });
        }
        if list.last().is_none_or(|last| last.state != state) {
            list.push(Moment { from: now, by: Some(by), state, lost: None });
        }
    }

    /// A record has changed the row of an inode.
    fn touch(&mut self, ino: Ino, by: Place) {
        let touched = self.touched.entry(ino).or_insert((by, 0));
        *touched = (by, touched.1 + 1);
    }

    /// Inodes that records have changed since the last call: their rows tell what they are now, which `row` reads.
    pub fn settle(&mut self, now: u64, row: impl Fn(Ino) -> Option<Seen>) {
        for (ino, (by, times)) in std::mem::take(&mut self.touched) {
            if times > 1 {
                self.becomes(now, by, Key::Inode(ino), State::Anything);
            }
            self.becomes(now, by, Key::Inode(ino), State::Seen(row(ino)));
        }
    }

    /// The log of a server ends there now: what came behind it was never so, and what was before it is so again.
    pub fn cut(&mut self, now: u64, last: Place) {
        for list in self.lists.values_mut() {
            let before = list.iter().filter(|moment| moment.lost.is_none()).count();
            for moment in list.iter_mut().filter(|moment| moment.lost.is_none()) {
                let is_lost = moment.by.is_some_and(|by| by.metad == last.metad && by.index > last.index);
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
        let fits = |at: &usize| list[*at].state == shown || list[*at].state == State::Anything;
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
    }
}
