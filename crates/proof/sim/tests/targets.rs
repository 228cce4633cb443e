//! A target, its daemon, mgmtd and the clients that trust it, while everything below the target goes wrong: write-backs
//! that fail and are told once, file systems that go back to what was flushed with and without a reboot, daemons that
//! are killed, words of administrators that cross failures. One seed decides everything.
//!
//! What must hold, whatever happens: a sync that succeeded told the truth about every write before it, and a target
//! that failed is good again only after an administrator said so who could know of the failure.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use skep_cluster::{Answer, Config, Input, Output, Peer, Registry, State};
use skep_model::Rng;
use skep_storage::{
    Admission, ChunkFaults, ChunkStore, Done, Heard, Limits, MemoryChunks, PieceName, Standing, Word,
    execute, write_chunk,
};
use skep_types::{
    Capacity, ChunkId, Consistency, Decode, Errno, Generation, Incarnation, Ino, LogSeq, MapVersion, Millis,
    NodeId, ServiceKind, TargetId, Term, Uuid,
};
use skep_wire::mgmt::*;
use skep_wire::storage::{Owner, StorageRequest, SyncChunks, WriteChunk};
use skep_wire::{Message, Status};
use std::collections::{BTreeMap, BTreeSet};

const STEPS: u64 = 400;
const FILES: u64 = 5;
const TARGET: TargetId = TargetId(101);

struct Bed {
    rng: Rng,
    registry: Registry,
    term: u64,
    store: MemoryChunks,
    /// A map that the daemon was sent and has not looked at yet.
    map: Option<Word>,
    /// Failures that mgmtd knew of when an administrator said "good" last.
    answered: u64,
    version: u64,
    /// Last acknowledged version of each file.
    acknowledged: BTreeMap<u64, u64>,
    /// Lives of the unsynced writes of each file.
    unsynced: BTreeMap<u64, BTreeSet<u64>>,
    /// What a sync has promised.
    promised: BTreeMap<u64, u64>,
    seen: BTreeMap<&'static str, u64>,
    story: Vec<String>,
}

fn chunk(file: u64) -> ChunkId {
    ChunkId { ino: Ino(file), generation: Generation(1), extent: 0, stripe: 0 }
}

impl Bed {
    fn new(seed: u64, faults: ChunkFaults) -> Self {
        let state = State::format(Uuid([9; 16]), skep_types::NamesKey([6; 16]), 1);
        let store = MemoryChunks::default();
        store.set_faults(faults);
        let mut bed = Self {
            rng: Rng::new(seed),
            registry: Registry::new(Config::default(), state, Term(1), Millis(0)),
            term: 1,
            store,
            map: None,
            answered: 0,
            version: 0,
            acknowledged: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            promised: BTreeMap::new(),
            seen: BTreeMap::new(),
            story: Vec::new(),
        };
        let address = Address { text: "sim:1".into(), nic: String::new(), preference: 0 };
        let uuid = Uuid([1; 16]);
        bed.ask(RegisterNode {
            domain: String::new(),
            uuid,
            service: ServiceKind::Storaged,
            alias: String::new(),
            addresses: vec![address],
            machine: uuid,
            incarnation: Incarnation(1),
            mark: 1,
            confirmed: 0,
            index: LogSeq(0),
            restored: false,
            registry: RegistryAge::default(),
        });
        bed.register(TargetId(0));
        bed
    }

    fn ask<M: Message>(&mut self, m: M) -> M::Reply
    where
        MgmtRequest: From<M>,
    {
        let mut out = Output::default();
        let input = Input::Request { reply_to: 0, peer: Peer::default(), request: m.into() };
        self.registry.step(Millis(1), input, &mut out);
        match out.answers.pop().unwrap().1.unwrap() {
            Answer::Body(body) => M::Reply::from_bytes(&body).unwrap(),
            Answer::Session(_) => unreachable!("nobody asks for a session"),
        }
    }

    fn register(&mut self, target: TargetId) -> Word {
        let (node, capacity) = (NodeId(1), Capacity::default());
        let m = RegisterTarget {
            node,
            uuid: Uuid([2; 16]),
            target,
            alias: String::new(),
            capacity,
            mark: 1,
            confirmed: 0,
            restored: false,
        };
        let RegisterTargetReply { consistency, failures, decisions, .. } = self.ask(m);
        Word { consistency, failures, decisions }
    }

    fn is(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
        self.story.push(what.to_owned());
    }

    fn admits(&self, request: impl Into<StorageRequest>) -> bool {
        Admission::default().check(TARGET, self.store.standing().consistency(), &request.into()).is_ok()
    }

    fn write(&mut self, file: u64) {
        self.version += 1;
        let (owner, sync) = (Owner::default(), self.rng.below(8) == 0);
        let m = WriteChunk {
            target: TARGET,
            chunk: chunk(file),
            offset: 0,
            owner,
            floor: 0,
            sync,
            uncut: None,
            later: None,
            until: None,
        };
        self.story.push(format!("write {file} version {} sync {sync}", self.version));
        if !self.admits(m.clone()) {
            return self.is("a write to a bad target was refused");
        }
        match write_chunk(&self.store, &m, &self.version.to_le_bytes()) {
            Ok(reply) => {
                self.acknowledged.insert(file, self.version);
                if sync {
                    self.promised.insert(file, self.version);
                } else {
                    self.unsynced.entry(file).or_default().insert(reply.life);
                }
            }
            Err(Done::Refused(refusal)) if refusal.status == Status::errno(Errno::ENOSPC) => {
                self.is("a write found no room");
            }
            Err(_) => self.is("a write failed"),
        }
    }

    /// As a mount does it: for every life that its unsynced writes were acknowledged in.
    fn sync(&mut self, file: u64) {
        let Some(lives) = self.unsynced.get(&file).cloned() else { return };
        self.story.push(format!("sync {file}"));
        for life in lives {
            let m = SyncChunks { target: TARGET, chunks: vec![chunk(file)], life };
            if !self.admits(m.clone()) {
                // The program may try again later; what it wrote counts as unsynced still.
                return self.is("a sync was refused by a bad target");
            }
            match execute(&self.store, Limits::default(), &m.into()) {
                Done::Body(_) => {}
                Done::Refused(refusal) if refusal.status == Status::LOST_WRITES => {
                    self.unsynced.remove(&file);
                    return self.is("a sync told of a loss");
                }
                _ => return self.is("a sync failed"),
            }
        }
        self.unsynced.remove(&file);
        self.promised.insert(file, self.acknowledged[&file]);
        self.is("a sync promised");
    }

    fn step(&mut self) {
        let file = self.rng.below(FILES);
        match self.rng.below(24) {
            0..=7 => self.write(file),
            8..=11 => self.sync(file),
            12..=13 => self.beat(),
            14 => self.fetch(),
            15..=16 => self.look(),
            17 => self.decide(),
            18 => {
                let word = self.register(TARGET);
                self.map = None;
                self.store.restart(Some(word));
                self.is("the daemon was restarted");
            }
            19 => {
                let seed = self.rng.next_u64();
                self.store.crash(seed);
                self.map = None;
                self.is("the file system went back");
            }
            20..=21 => {
                if self.store.lose_unsynced(|piece| piece.chunk.ino.0 == file) {
                    self.is("a write-back failed");
                }
            }
            22 => {
                let beside = self.rng.below(2) == 0;
                self.store.set_sync_beside(beside);
                let room = self.rng.pick(&[None, None, Some(0), Some(64)]);
                self.store.set_room(room);
            }
            _ => {
                self.term += 1;
                let state = self.registry.state().clone();
                self.registry = Registry::new(Config::default(), state, Term(self.term), Millis(1));
                self.is("mgmtd was restarted");
            }
        }
    }

    fn beat(&mut self) {
        let standing = self.store.standing();
        let report = TargetReport {
            target: TARGET,
            consistency: standing.consistency(),
            failures: standing.failures,
            capacity: Capacity::default(),
            filesystem: 0,
            mark: None,
        };
        self.story.push(format!("beat {standing:?}"));
        let (node, incarnation, capacity) = (NodeId(1), Incarnation(1), Capacity::default());
        let (targets, map) = (vec![report], MapVersion(0));
        let (index, formatted, registry) = (LogSeq(0), vec![], RegistryAge::default());
        let leaving = false;
        self.ask(Heartbeat {
            node,
            incarnation,
            targets,
            capacity,
            map,
            index,
            formatted,
            registry,
            leaving,
            mark: None,
        });
    }

    fn word(&mut self) -> Word {
        let entry = self.registry.map(MapVersion(0)).targets.remove(0);
        Word { consistency: entry.consistency, failures: entry.failures, decisions: entry.decisions }
    }

    /// mgmtd answers with the map; what happens until the daemon looks at it is up to the seed.
    fn fetch(&mut self) {
        self.map = Some(self.word());
        self.story.push(format!("fetch {:?}", self.map));
    }

    fn look(&mut self) {
        let Some(word) = self.map.take() else { return };
        let heard = self.store.hear(word);
        self.story.push(format!("look: {heard:?}"));
        if heard == Heard::Unanswered {
            self.is("a word of before a failure was not followed");
        }
    }

    fn decide(&mut self) {
        let failures = self.word().failures;
        let consistency = if self.rng.below(5) == 0 { Consistency::Bad } else { Consistency::Good };
        if consistency == Consistency::Good {
            self.answered = failures;
        }
        self.story.push(format!("an administrator says {consistency:?} to failure {failures}"));
        self.ask(SetTargetState { target: TARGET, consistency });
    }

    fn check(&self, before: Standing) -> Result<(), String> {
        for (file, promised) in &self.promised {
            let mut bytes = [0; 8];
            self.store.read(&PieceName::first(chunk(*file)), 0, &mut bytes).map_err(|e| e.to_string())?;
            let holds = u64::from_le_bytes(bytes);
            if holds < *promised {
                return Err(format!("file {file} holds version {holds}, a sync promised {promised}"));
            }
        }
        let now = self.store.standing();
        if before.bad && !now.bad && before.failures > self.answered {
            let failure = before.failures;
            return Err(format!("it is good, but nobody who knew of failure {failure} said so: {now:?}"));
        }
        Ok(())
    }

    fn run(mut self) -> Result<BTreeMap<&'static str, u64>, String> {
        for step in 0..STEPS {
            let before = self.store.standing();
            self.step();
            if let Err(what) = self.check(before) {
                let from = self.story.len().saturating_sub(12);
                return Err(format!("step {step}: {what}; before it: {}", self.story[from..].join("; ")));
            }
        }
        Ok(self.seen)
    }
}

/// Goal: no seed finds a sync that lied or a target that became good by itself, and all that can happen does.
#[test]
fn syncs_tell_the_truth() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..500 {
        match Bed::new(seed, ChunkFaults::default()).run() {
            Ok(situations) => {
                situations.into_iter().for_each(|(what, n)| *seen.entry(what).or_default() += n)
            }
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    for what in [
        "a sync promised",
        "a sync told of a loss",
        "a sync failed",
        "a sync was refused by a bad target",
        "a write found no room",
        "a write failed",
        "a write to a bad target was refused",
        "a write-back failed",
        "a word of before a failure was not followed",
        "the daemon was restarted",
        "the file system went back",
        "mgmtd was restarted",
    ] {
        assert!(seen.contains_key(what), "never: {what} ({seen:?})");
    }
}

/// Goal: each bug that was one is found within 50 seeds.
#[test]
fn bugs_on_purpose_are_found() {
    let none = ChunkFaults::default();
    for faults in [
        ChunkFaults { sync_does_nothing: true, ..none },
        ChunkFaults { life_of_the_boot: true, ..none },
        ChunkFaults { closes_unsynced: true, ..none },
        ChunkFaults { forgets_names: true, ..none },
        ChunkFaults { forgets_failures: true, ..none },
    ] {
        let found = (0..50).find(|seed| Bed::new(*seed, faults).run().is_err());
        assert!(found.is_some(), "{faults:?} is not found");
    }
}
