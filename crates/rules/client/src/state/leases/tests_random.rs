//! Random grants, recalls, renewals, silences and ends of terms: what a mount believes in, its shard knows of. And with each
//! fault on purpose it does not.

use super::*;
use skep_wire::meta::{LeaseKind, LeaseTime, Recall, RecallKind};

const NODE: NodeId = NodeId(1);
const T: u64 = 400;
/// How long the server waits for a holder that it does not hear of.
const T_SERVER: u64 = T + T / 100 + 10;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// One shard of a server, as its mount should see it.
#[derive(Default)]
struct Server {
    term: u64,
    numbers: u64,
    /// Promises, with the number of the grant.
    table: BTreeMap<Ino, u64>,
    /// Recalls that the mount has not confirmed.
    waits: BTreeMap<u64, Ino>,
    here: bool,
    /// Until then its changes wait for holders of the term before.
    holds: u64,
}

/// A server with two shards and one mount, and what is on its way between them.
struct Bed {
    rng: Rng,
    now: u64,
    life: u64,
    ended: u64,
    heard: u64,
    lapses: u64,
    shards: [Server; 2],
    leases: Leases,
    asked: Vec<(usize, Ino, Sent, bool)>,
    answers: Vec<(Source, Sent, ShardStamp)>,
    recalls: Vec<Recall>,
}

impl Bed {
    fn new(seed: u64, limits: &Limits) -> Self {
        let server = || Server { term: 1, here: true, ..Server::default() };
        Self {
            rng: Rng(seed * 0x9e37_79b9 + 1),
            now: 1_000,
            life: 1,
            ended: 0,
            heard: 0,
            lapses: 0,
            shards: [server(), server()],
            leases: Leases::new(limits),
            asked: Vec::new(),
            answers: Vec::new(),
            recalls: Vec::new(),
        }
    }

    fn shard(at: usize) -> ShardId {
        ShardId(at as u16)
    }

    fn take<T>(rng: &mut Rng, from: &mut Vec<T>) -> Option<T> {
        let n = from.len() as u64;
        (n > 0).then(|| from.swap_remove(rng.below(n) as usize))
    }

    fn step(&mut self) {
        let at = self.rng.below(2) as usize;
        let ino = Ino::new(Self::shard(at), 1 + self.rng.below(4));
        match self.rng.below(24) {
            0..5 => {
                let wishes = self.rng.below(4) > 0;
                let sent = self.leases.sends(NODE, Self::shard(at), Millis(self.now), wishes);
                self.asked.push((at, ino, sent, wishes));
            }
            5..11 => self.hears(),
            11..17 => {
                if let Some((source, sent, stamp)) = Self::take(&mut self.rng, &mut self.answers) {
                    if self.rng.below(8) > 0 {
                        self.leases.answered(&source, &sent, &stamp, Millis(self.now));
                    } else {
                        self.leases.is_lost(NODE, &sent);
                    }
                    self.leases.is_over(source.shard, &sent);
                }
            }
            17..19 => {
                if let Some(recall) = Self::take(&mut self.rng, &mut self.recalls) {
                    let gives_back = recall.wants_back == Some(true) && self.rng.below(2) == 0;
                    self.leases.recalled(&recall, gives_back, NODE);
                }
            }
            19 => {
                for (shard, report) in self.leases.take_reports(NODE, |_, _| true, |_| false) {
                    let server = &mut self.shards[usize::from(shard.0)];
                    for number in report.confirmed.into_iter().filter(|_| report.term == Term(server.term)) {
                        server.waits.remove(&number);
                    }
                    for (ino, number) in report.back.into_iter().filter(|_| report.term == Term(server.term))
                    {
                        if server.table.get(&ino).is_some_and(|has| *has <= number) {
                            server.table.remove(&ino);
                        }
                    }
                }
            }
            20 => self.recall(at, ino),
            21 => self.now += self.rng.below(3) * T / 3,
            22 if self.rng.below(6) == 0 => self.ends(at),
            _ => match self.rng.below(3) {
                0 => self.leases.give_back(ino),
                _ => self.now += 1 + self.rng.below(20),
            },
        }
        self.passes_over();
    }

    fn hears(&mut self) {
        let Some((at, ino, sent, wishes)) = Self::take(&mut self.rng, &mut self.asked) else { return };
        let shard = Self::shard(at);
        if !self.shards[at].here {
            return self.leases.is_over(shard, &sent);
        }
        if sent.lapses > self.lapses {
            self.lapses = sent.lapses;
            self.shards.iter_mut().for_each(|server| server.table.clear());
        }
        let counts = sent.lapses == self.lapses;
        let server = &mut self.shards[at];
        let mut stamp = ShardStamp::new(Term(server.term), LogIndex(1), LogIndex(1));
        if counts {
            self.heard = self.now;
            stamp.renews = Some(LeaseTime { ms: T, ended: self.ended });
        }
        let is_free = !server.waits.values().any(|recalled| *recalled == ino);
        if counts && wishes && is_free {
            server.numbers += 1;
            server.table.insert(ino, server.numbers);
            stamp.grants = Some([Grant { ino, kind: LeaseKind::Shared, number: server.numbers }].into());
        }
        let term = Term(server.term);
        self.answers.push((Source { node: NODE, life: Incarnation(self.life), shard, term }, sent, stamp));
    }

    fn recall(&mut self, at: usize, ino: Ino) {
        let server = &mut self.shards[at];
        if server.table.contains_key(&ino) {
            server.numbers += 1;
            server.waits.insert(server.numbers, ino);
            let is_whole = self.rng.below(2) == 0;
            if is_whole {
                server.table.remove(&ino);
            }
            self.recalls.push(Recall {
                shard: Self::shard(at),
                term: Term(server.term),
                number: server.numbers,
                ino,
                kind: if is_whole { RecallKind::Everything } else { RecallKind::Attributes },
                name: None,
                entry: None,
                wants_back: (!is_whole).then_some(true),
            });
        }
    }

    /// The shard goes to another server, or comes back; or the server begins a new life.
    fn ends(&mut self, at: usize) {
        let holds = self.now + T_SERVER;
        if self.rng.below(3) == 0 {
            self.life += 1;
            (self.ended, self.lapses) = (0, 0);
            self.shards.iter_mut().for_each(|server| {
                *server = Server { term: server.term + 1, here: server.here, holds, ..Server::default() };
            });
        } else {
            let server = &mut self.shards[at];
            self.ended += u64::from(server.here);
            *server = Server { term: server.term + 1, here: !server.here, holds, ..Server::default() };
        }
    }

    fn passes_over(&mut self) {
        if self.now - self.heard.min(self.now) > T_SERVER {
            for server in &mut self.shards {
                server.table.clear();
                server.waits.clear();
            }
        }
    }

    /// Something that the mount believes in and the shard knows nothing of.
    fn is_wrong(&mut self) -> bool {
        let both = [0, 1].into_iter().flat_map(|at| (1..5).map(move |serial| (at, serial)));
        for (at, serial) in both {
            let ino = Ino::new(Self::shard(at), serial);
            let server = &self.shards[at];
            let is_recalled = || server.waits.values().any(|waits| *waits == ino);
            let is_known = server.table.contains_key(&ino) || is_recalled() || self.now < server.holds;
            if self.leases.believes(ino, Millis(self.now)).is_some() && !is_known {
                return true;
            }
        }
        false
    }
}

/// How many of some seeds find something wrong, and how many leases were believed in.
fn wrong(limits: &Limits) -> (usize, usize) {
    let (mut wrong, mut held) = (0, 0);
    for seed in 1..=60 {
        let mut bed = Bed::new(seed, limits);
        for _ in 0..1_500 {
            bed.step();
            if bed.is_wrong() {
                wrong += 1;
                break;
            }
            held += usize::from(bed.leases.holds(NODE));
        }
    }
    (wrong, held)
}

/// Goal: the mount believes in nothing that its shard has forgotten, whatever is late, lost or overtaken; and each fault on
/// purpose is found.
#[test]
fn a_mount_believes_what_its_shard_knows() {
    let (none, held) = wrong(&Limits::default());
    assert_eq!(none, 0);
    assert!(held > 20_000, "{held}");
    for limits in [
        Limits { canary_forgets_recalls: true, ..Limits::default() },
        Limits { canary_counts_from_answers: true, ..Limits::default() },
        Limits { canary_ignores_ended: true, ..Limits::default() },
    ] {
        let (found, _) = wrong(&limits);
        assert!(found > 0, "{limits:?}");
    }
}
