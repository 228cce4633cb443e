//! Random changes, here and elsewhere, recalls, questions and answers in any order: what is known is true, and with much room
//! nothing is asked twice.

use super::*;
use crate::testing::attr;
use alloc::format;
use alloc::string::String;
use alloc::vec;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

type What = Option<(Ino, Kind)>;

/// A directory as it is.
struct Truth {
    ino: Ino,
    names: BTreeMap<String, Ino>,
    change: u64,
}

/// A change of this mount that was made, and not answered yet; then one that was, and of which nothing is taken over yet.
struct Own {
    dir: usize,
    name: String,
    what: What,
    index: u64,
    is_settled: bool,
    /// A recall has come since: its answer counts no more.
    is_old: bool,
}

/// A part of a listing on its way, or being taken over.
struct Asked {
    dir: usize,
    era: u64,
    seen: Before,
    index: LogIndex,
    part: (u64, Part),
    is_put: bool,
    /// Something was recalled, or changed here, since it was asked for.
    is_old: bool,
}

struct Bed {
    rng: Rng,
    names: Names,
    dirs: Vec<Truth>,
    sizes: BTreeMap<Ino, u64>,
    own: Vec<Own>,
    asked: Vec<Asked>,
    index: u64,
    serial: u64,
    era: u64,
    known: usize,
    unknown: usize,
}

impl Bed {
    fn new(seed: u64, limits: &Limits) -> Self {
        let inos = [Ino::new(ShardId(1), 1), Ino::new(ShardId(1), 2), Ino::new(ShardId(2), 1)];
        let truth = |ino: &Ino| Truth { ino: *ino, names: BTreeMap::new(), change: 1 };
        Self {
            rng: Rng(seed * 0x9e37_79b9 + 1),
            names: Names::new(limits),
            dirs: inos.iter().map(truth).collect(),
            sizes: BTreeMap::new(),
            own: Vec::new(),
            asked: Vec::new(),
            index: 1,
            serial: 100,
            era: 1,
            known: 0,
            unknown: 0,
        }
    }

    fn name(&mut self) -> String {
        format!("n{}", self.rng.below(30))
    }

    /// Makes or removes a name.
    fn changes(&mut self, dir: usize, name: &str) -> What {
        self.index += 1;
        let truth = &mut self.dirs[dir];
        truth.change += 1;
        if truth.names.remove(name).is_some() {
            return None;
        }
        self.serial += 1;
        let ino = Ino::new(truth.ino.shard(), self.serial);
        truth.names.insert(name.into(), ino);
        self.sizes.insert(ino, 0);
        Some((ino, Kind::File))
    }

    /// Something was recalled, or a lease has ended: what was answered before is not taken over.
    fn recalls(&mut self, of: impl Fn(Ino) -> bool) {
        for own in self.own.iter_mut().filter(|own| of(self.dirs[own.dir].ino)) {
            own.is_old = true;
        }
        for asked in self.asked.iter_mut().filter(|asked| of(self.dirs[asked.dir].ino)) {
            asked.is_old = true;
        }
    }

    fn is_quiet(&self, dir: usize) -> bool {
        self.own.iter().all(|own| own.dir != dir || own.is_settled)
    }

    fn attr_of(&self, ino: Ino) -> Attr {
        attr(ino.0, 1, self.sizes[&ino])
    }

    fn step(&mut self) {
        let dir = self.rng.below(3) as usize;
        let (name, ino, era) = (self.name(), self.dirs[dir].ino, self.era);
        let index = LogIndex(self.index);
        match self.rng.below(22) {
            // Elsewhere, after a recall.
            0 => {
                self.names.forget_name(ino, name.as_bytes());
                self.recalls(|of| of == ino);
                self.changes(dir, &name);
            }
            1 => {
                if let Some(entry) = self.dirs[dir].names.get(&name).copied() {
                    self.names.forget_attr(entry);
                    self.index += 1;
                    *self.sizes.get_mut(&entry).unwrap() += 1;
                }
            }
            2 if self.rng.below(10) == 0 => {
                self.names.forget_dir(ino);
                self.recalls(|of| of == ino);
            }
            3 if self.rng.below(20) == 0 => {
                match self.rng.below(3) {
                    0 => self.names.forget_all(),
                    1 => self.names.forget_shard(ino.shard()),
                    _ => self.era += 1,
                }
                self.recalls(|_| true);
            }
            // Here.
            4 | 5 => {
                let what = self.changes(dir, &name);
                self.own.push(Own { dir, name, what, index: self.index, is_settled: false, is_old: false });
                self.asked.iter_mut().filter(|asked| asked.dir == dir).for_each(|asked| asked.is_old = true);
            }
            6..12 => self.settles(),
            12..16 if self.is_quiet(dir) => {
                let what = self.dirs[dir].names.get(&name).map(|ino| (*ino, Kind::File));
                self.names.put_name((ino, era), name.as_bytes(), what, index);
                if let Some((entry, _)) = what {
                    self.names.cover((ino, era), name.as_bytes(), &self.attr_of(entry), index);
                }
            }
            16 if self.is_quiet(dir) => {
                let own = Attr { kind: Kind::Dir, ..attr(ino.0, self.dirs[dir].change, 0) };
                self.names.put_attr(era, &own, index);
            }
            17 if self.is_quiet(dir) => self.lists(dir),
            18.. => self.is_listed(),
            _ => {}
        }
        while let Some(left) = self.names.next_left() {
            self.recalls(|of| of == left);
        }
    }

    fn settles(&mut self) {
        let n = self.own.len() as u64;
        if n == 0 {
            return;
        }
        let at = self.rng.below(n) as usize;
        let Own { dir, name, what, index, is_settled, is_old } = &mut self.own[at];
        let (ino, index) = (self.dirs[*dir].ino, LogIndex(*index));
        if !core::mem::replace(is_settled, true) {
            return self.names.changed((ino, self.era), name.as_bytes(), index);
        }
        // One in four answers gave no lease.
        if self.rng.below(4) > 0 && !*is_old {
            self.names.put_name((ino, self.era), name.as_bytes(), *what, index);
        }
        self.own.swap_remove(at);
    }

    fn lists(&mut self, dir: usize) {
        let truth = &self.dirs[dir];
        let mut lines: Vec<Line> = Vec::new();
        for (number, (name, ino)) in truth.names.iter().enumerate() {
            let cookie = number as u64 + 3;
            lines.push(Line { cookie, name: name.as_bytes().into(), ino: *ino, kind: Kind::File });
        }
        let place = (truth.ino, self.era);
        let rest = lines.split_off(lines.len() / 2);
        let after = lines.last().map_or(0, |line| line.cookie);
        let mut parts = vec![(0, Part { lines, end: false, parent: Ino(1) })];
        parts.push((after, Part { lines: rest, end: true, parent: Ino(1) }));
        let (seen, index) = (self.names.before(place.0), LogIndex(self.index));
        for part in parts {
            if self.rng.below(6) > 0 {
                self.asked.push(Asked { dir, era: place.1, seen, index, part, is_put: false, is_old: false });
            }
        }
    }

    /// The oldest answer is taken over, perhaps only half of it.
    fn is_listed(&mut self) {
        let Some(asked) = self.asked.first_mut() else { return };
        let place = (self.dirs[asked.dir].ino, asked.era);
        let may_put = !asked.is_old && self.own.iter().all(|own| own.dir != asked.dir || own.is_settled);
        if may_put && !core::mem::replace(&mut asked.is_put, true) {
            return self.names.put_lines(place, &asked.part.1.lines, asked.index);
        }
        let Asked { seen, index, part, .. } = self.asked.remove(0);
        if may_put {
            self.names.listed(place, seen, index, part);
        }
    }

    /// Everything that is known is so. (Where a change of this mount is under way nobody looks.)
    fn check(&mut self) {
        for at in 0..self.dirs.len() {
            let ino = self.dirs[at].ino;
            if let Some(attr) = self.names.attr(ino, self.era).filter(|_| self.is_quiet(at)) {
                assert_eq!(attr.change, self.dirs[at].change);
            }
            for number in 0..30 {
                let name = format!("n{number}");
                let under_way = |own: &Own| own.dir == at && own.name == name && !own.is_settled;
                if self.own.iter().any(under_way) {
                    continue;
                }
                let truth = self.dirs[at].names.get(&name).copied();
                self.known += 1;
                match self.names.find(ino, self.era, name.as_bytes()) {
                    Found::Absent => assert_eq!(truth, None, "{name}"),
                    Found::There(entry, _, attr) => {
                        assert_eq!(truth, Some(entry), "{name}");
                        assert!(attr.is_none_or(|attr| attr == self.attr_of(entry)));
                    }
                    Found::Unknown => self.unknown += 1,
                }
            }
        }
        assert_eq!(self.names.counted(), self.names.bytes());
    }
}

/// Goal: nothing that is known is wrong, with much room and with little; most is known with much.
#[test]
fn what_is_known_is_true() {
    for most in [1 << 20, 9_000, 4_000] {
        let (mut known, mut unknown) = (0, 0);
        for seed in 1..=30 {
            let mut bed = Bed::new(seed, &Limits { cache_bytes: most, ..Limits::default() });
            for number in 0..1_500 {
                bed.step();
                if number % 3 == 0 {
                    bed.check();
                }
                assert!(bed.names.bytes() <= most + 4_096);
            }
            known += bed.known;
            unknown += bed.unknown;
        }
        assert!(unknown < known);
        assert!(most < 1 << 20 || unknown < known * 3 / 4, "{unknown} of {known}");
    }
}
