//! Mounts of a simple kind against the table, with messages that come late and in any order.

use super::*;
use alloc::collections::{BTreeMap, VecDeque};

/// An answer on its way.
struct Answer {
    client: usize,
    ino: Ino,
    grant: Option<Grant>,
    renews: bool,
    sent: Millis,
    lapses: u64,
}

/// What a mount believes.
#[derive(Default)]
struct Mount {
    facts: BTreeSet<(Ino, What)>,
    refused: BTreeMap<Ino, u64>,
    until: Millis,
    lapses: u64,
    /// It neither hears nor asks before that.
    stopped: Millis,
}

impl Mount {
    fn lapse(&mut self, now: Millis) {
        if now >= self.until {
            self.facts.clear();
            self.until = Millis(u64::MAX);
            self.lapses += 1;
        }
    }

    fn take(&mut self, answer: &Answer, now: Millis) {
        self.lapse(now);
        if answer.lapses != self.lapses {
            return;
        }
        let until = answer.sent.plus(TERM_MS);
        if answer.renews && until > now {
            self.until = if self.until == Millis(u64::MAX) { until } else { self.until.max(until) };
            let refused = self.refused.get(&answer.ino).copied().unwrap_or_default();
            if answer.grant.is_some_and(|grant| grant.number > refused) {
                self.facts.extend(all_of(answer.ino));
            }
        }
    }

    fn drop(&mut self, recall: &Recall, all: bool) {
        let refused = self.refused.entry(recall.ino).or_default();
        *refused = recall.number.max(*refused);
        let goes = |what: &What| match (recall.kind, what) {
            (RecallKind::Everything, _) | (_, What::Attributes) => true,
            (_, What::Name(name, _)) => recall.name.as_ref() == Some(name),
            _ => false,
        };
        self.facts.retain(|(ino, what)| *ino != recall.ino || !(all || goes(what)));
    }
}

fn all_of(ino: Ino) -> [(Ino, What); 3] {
    [(ino, What::Attributes), (ino, name("a")), (ino, name("b"))]
}

struct Bed {
    table: Table,
    mounts: [Mount; 4],
    answers: Vec<Answer>,
    recalls: Vec<(usize, Recall)>,
    /// What a mount has dropped, and what it gives back with that.
    words: Vec<(usize, u64, Option<Ino>)>,
    /// Changes that wait.
    waiting: VecDeque<(u64, usize, (Ino, What))>,
    state: u64,
    changes: usize,
    passed: usize,
    silent: usize,
    given_back: usize,
    kept: usize,
}

impl Bed {
    fn draw(&mut self, most: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % most
    }

    fn some<T>(
        &mut self,
        of: fn(&mut Self) -> &mut Vec<T>,
        is_ready: impl Fn(&Self, &T) -> bool,
    ) -> Option<T> {
        let at = of(self).len().checked_sub(1)? as u64 + 1;
        let at = self.draw(at) as usize;
        let item = of(self).swap_remove(at);
        if is_ready(self, &item) {
            return Some(item);
        }
        of(self).push(item);
        None
    }

    fn runs(&self, client: usize) -> bool {
        self.table.now >= self.mounts[client].stopped
    }

    fn ask(&mut self) {
        let (client, ino) = (1 + self.draw(3) as usize, dir(7 + self.draw(5)));
        if !self.runs(client) {
            return;
        }
        let now = self.table.now;
        self.mounts[client].lapse(now);
        self.table.lapses[client] = self.mounts[client].lapses;
        let lapses = self.mounts[client].lapses;
        let (grant, renews) = self.table.ask(client as u64, ino);
        let grant = grant.filter(|_| renews);
        self.answers.push(Answer { client, ino, grant, renews, sent: now, lapses });
    }

    fn change(&mut self) {
        let client = 1 + self.draw(3) as usize;
        let ino = dir(7 + self.draw(5));
        let what = [What::Attributes, name("a"), name("b"), What::Everything][self.draw(4) as usize].clone();
        self.table.next += 1;
        let to = self.table.next;
        self.run(to, client, (ino, what));
    }

    /// Runs a change: when nothing is to be waited for, nobody else may believe in what it changes.
    fn run(&mut self, to: u64, client: usize, item: (Ino, What)) {
        let (wait, told) = self.table.recall(to, client as u64, core::slice::from_ref(&item));
        self.recalls.extend(told.into_iter().map(|(client, recall)| (client as usize, recall)));
        if wait.is_some() {
            self.waiting.push_back((to, client, item));
            return;
        }
        for (number, mount) in self.mounts.iter().enumerate() {
            let touches = |fact: &(Ino, What)| match &item.1 {
                What::Everything => fact.0 == item.0,
                What::Attributes => *fact == item,
                What::Name(..) | What::Entry(..) => *fact == item || *fact == (item.0, What::Attributes),
            };
            let believes = self.table.now < mount.until && mount.facts.iter().any(touches);
            assert!(number == client || !believes, "{number} uses {item:?}, which {client} changes");
        }
        self.table.leases.release(to);
        self.changes += 1;
    }

    /// Is it silent for so long that what it holds is anybody's? Then it believes in nothing.
    fn is_silent(&self, client: usize) -> bool {
        let (now, until) = (self.table.now, self.mounts[client].until);
        let at = self.table.leases.silent_at(ClientId(client as u64));
        let is_silent = at.is_some_and(|at| now >= at);
        assert!(!is_silent || now >= until || until == Millis(u64::MAX), "{client} believes still");
        is_silent
    }

    fn step(&mut self) {
        match self.draw(10) {
            0..=3 => self.ask(),
            4 => self.change(),
            5 | 6 => {
                let ready = |bed: &Self, answer: &Answer| bed.runs(answer.client);
                if let Some(answer) = self.some(|bed| &mut bed.answers, ready) {
                    self.mounts[answer.client].take(&answer, self.table.now);
                }
            }
            7 => {
                if let Some((client, recall)) =
                    self.some(|bed| &mut bed.recalls, |bed, (client, _)| bed.runs(*client))
                {
                    let is_wanted = recall.wants_back == Some(true);
                    let gives_back = is_wanted && self.draw(2) == 0;
                    self.given_back += usize::from(gives_back);
                    self.kept += usize::from(is_wanted && !gives_back);
                    self.mounts[client].drop(&recall, gives_back);
                    self.words.push((client, recall.number, gives_back.then_some(recall.ino)));
                }
            }
            8 => {
                if let Some((client, number, back)) = self.some(|bed| &mut bed.words, |_, _| true) {
                    // Its answer may be lost, and it be said again, however late.
                    if self.draw(8) == 0 {
                        self.words.push((client, number, back));
                    }
                    let client = ClientId(client as u64);
                    self.table.leases.confirmed(client, number, self.table.now);
                    if let Some(ino) = back {
                        self.table.leases.give_back(client, ino, number);
                    }
                }
            }
            _ => {
                let most = if self.draw(12) == 0 { 3_000 } else { 60 };
                self.table.now.0 += self.draw(most);
                if self.draw(200) == 0 {
                    let client = 1 + self.draw(3) as usize;
                    self.mounts[client].stopped = self.table.now.plus(self.draw(9_000));
                }
            }
        }
        if self.draw(20) == 0 {
            self.table.leases.holders.sweep(1);
        }
        self.passed += self.table.leases.expire(self.table.now).len();
        self.table.leases.check();
        self.silent += (1..4).filter(|client| self.is_silent(*client)).count();
        if !self.table.leases.take_over().is_empty() || self.draw(50) == 0 {
            // Not all of these are over: the others wait anew.
            for (to, client, item) in core::mem::take(&mut self.waiting) {
                self.run(to, client, item);
            }
        }
    }
}

/// Goal: whatever comes late, and in whatever order, nobody uses what somebody else changes; nor does who is silent for so long
/// that others go on without him.
#[test]
fn nobody_uses_what_others_change() {
    let (mut changes, mut passed, mut silent, mut given_back, mut kept) = (0, 0, 0, 0, 0);
    for seed in 0..200 {
        let mut bed = Bed {
            table: Table::new(),
            mounts: Default::default(),
            answers: vec![],
            recalls: vec![],
            words: vec![],
            waiting: VecDeque::new(),
            state: seed,
            changes: 0,
            passed: 0,
            silent: 0,
            given_back: 0,
            kept: 0,
        };
        bed.mounts.iter_mut().for_each(|mount| mount.until = Millis(u64::MAX));
        (0..1_500).for_each(|_| bed.step());
        changes += bed.changes;
        passed += bed.passed;
        silent += bed.silent;
        (given_back, kept) = (given_back + bed.given_back, kept + bed.kept);
    }
    assert!(changes > 10_000 && passed > 30 && silent > 3_000, "{changes} {passed} {silent}");
    assert!(given_back > 300 && kept > 300, "{given_back} {kept}");
}
