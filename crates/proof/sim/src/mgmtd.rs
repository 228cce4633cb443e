//! The management service: its rules, and the state that its synced log would give back.

use crate::Canary;
use crate::hub::Hub;
use skep_cluster::{Answer, Config, Input, Output, Peer, Registry, Started, State};
use skep_types::{ClientId, ClusterId, Encode, MapVersion, NamesKey, NodeId, Reader, ShardId, Term, Uuid};
use skep_wire::mgmt::{GiveShard, MgmtRequest, RegistryAge, ShardState};
use skep_wire::{Refusal, Status};
use std::collections::BTreeMap;

/// A silent session ends after this, in milliseconds.
pub const SESSION_TIMEOUT_MS: u64 = 6_000;

// By the upper half of a shard's epoch metadata servers tell that mgmtd was put back. Neither crate of rules knows the other.
const _: () = assert!(skep_cluster::limits::RESTORED_JUMP == 1 << skep_meta::limit::EPOCH_HISTORY_BITS);

/// Backups of its directory that are kept.
const BACKUPS: usize = 4;
/// Of a hundred steps that change the registry so many are followed by a backup of what it was before.
const BACKED_UP: u64 = 15;
/// A start that never was.
const NO_START: u64 = 0;
/// What a directory that was put back leaves out of the terms.
const RESTORED_TERMS: u64 = 1 << 16;

/// What its directory holds.
#[derive(Clone)]
struct Directory {
    state: State,
    term: u64,
}

pub struct Mgmtd {
    registry: Registry,
    durable: State,
    config: Config,
    term: u64,
    /// Copies of its directory, of any age.
    backups: Vec<Directory>,
    /// One that was made on purpose.
    aside: Option<Directory>,
    /// The newest directory, while it runs on an older copy by mistake.
    newest: Option<Directory>,
    /// It was told that it is an older copy.
    outdated: bool,
    /// It was put back from a backup.
    was_restored: bool,
    /// When each session was opened, or renewed last.
    heard: BTreeMap<ClientId, u64>,
    /// To whom each id of a session was given.
    given: BTreeMap<ClientId, Uuid>,
}

impl Mgmtd {
    /// A new cluster.
    pub fn format(cluster: ClusterId, shards: u16, metas: usize, hub: &Hub) -> Self {
        let config = Config {
            session_timeout_ms: SESSION_TIMEOUT_MS,
            metas,
            canary_trusts_itself: hub.canary == Some(Canary::TrustsAnOldCopy),
            ..Config::default()
        };
        let durable = State::format(cluster, NamesKey(cluster.0.map(|byte| !byte)), shards);
        Self {
            registry: Registry::new(config, durable.clone(), Term(1), hub.millis()),
            durable,
            config,
            term: 1,
            backups: Vec::new(),
            aside: None,
            newest: None,
            outdated: false,
            was_restored: false,
            heard: BTreeMap::new(),
            given: BTreeMap::new(),
        }
    }

    /// It is started, on what its directory holds.
    pub fn restart(&mut self, hub: &mut Hub) {
        self.term += 1;
        self.outdated = false;
        self.registry = Registry::new(self.config, self.durable.clone(), Term(self.term), hub.millis());
        let mut out = Output::default();
        self.registry.begin(hub.rng.next_u64(), &mut out);
        self.finish(&out, hub);
    }

    /// The registry as it is now.
    pub fn state(&self) -> &State {
        self.registry.state()
    }

    /// Version of its map.
    pub fn map_version(&self) -> MapVersion {
        self.registry.map_version()
    }

    pub fn answer(
        &mut self,
        client: ClientId,
        kind: u16,
        body: &[u8],
        hub: &mut Hub,
    ) -> Result<Vec<u8>, Refusal> {
        let request = MgmtRequest::decode(kind, &mut Reader::new(body))
            .map_err(|e| Refusal::with(Status::MALFORMED, e.to_string()))?
            .ok_or_else(|| Refusal::new(Status::MALFORMED))?;
        let (opens, renews) = match &request {
            MgmtRequest::OpenSession(m) => (Some(m.uuid), None),
            MgmtRequest::RenewSession(m) => (None, Some(m.client)),
            _ => (None, None),
        };
        let mut out = Output::default();
        let input = Input::Request { reply_to: 0, peer: Peer { client, admin: false }, request };
        self.registry.step(hub.millis(), input, &mut out);
        self.finish(&out, hub);
        match out.answers.pop() {
            Some((_, Ok(Answer::Body(body)))) => {
                renews.into_iter().for_each(|client| self.is_heard(client, hub));
                Ok(body)
            }
            Some((_, Ok(Answer::Session(mut session)))) => {
                self.is_heard(session.client, hub);
                self.check_given(session.client, opens.unwrap_or_default(), hub);
                session.token = token(session.client);
                Ok(session.to_bytes())
            }
            Some((_, Err(refusal))) => {
                self.check_ended(renews.filter(|_| refusal.status == Status::FENCED), hub);
                Err(refusal)
            }
            None => Err(Refusal::with(Status::MALFORMED, "mgmtd gave no answer")),
        }
    }

    fn is_heard(&mut self, client: ClientId, hub: &Hub) {
        self.heard.insert(client, hub.now);
    }

    /// Does this session live, and was it heard since? Then what was before is no reason to end it.
    pub fn has_heard_since(&self, client: ClientId, since: u64) -> bool {
        let lives = self.registry.state().sessions.contains_key(&client);
        lives && self.heard.get(&client).is_some_and(|at| *at >= since)
    }

    /// No two mounts have one id.
    fn check_given(&mut self, client: ClientId, uuid: Uuid, hub: &mut Hub) {
        if *self.given.entry(client).or_insert(uuid) != uuid {
            hub.fail(format!("mgmtd gives the id of client {client} to two mounts"));
        }
    }

    /// Nobody whose session lives is told that it has ended.
    fn check_ended(&self, told: Option<ClientId>, hub: &mut Hub) {
        let lives =
            |newest: &Directory| told.is_some_and(|client| newest.state.sessions.contains_key(&client));
        if let Some(client) = told.filter(|_| self.newest.as_ref().is_some_and(lives)) {
            hub.fail(format!("mgmtd, on an older copy, tells client {client} that its session has ended"));
        }
    }

    /// Was it told that it is an older copy? It answers nobody any more then.
    pub fn is_outdated(&self) -> bool {
        self.outdated
    }

    /// Does it run on an older copy of its directory?
    pub fn is_a_copy(&self) -> bool {
        self.newest.is_some()
    }

    /// It is down, and somebody puts an older copy of its directory in the place of the newest, by mistake: one that a
    /// metadata server knows for older that is waited for. `seen`: what each of them has on its disk. `false`: there is none.
    pub fn mix_up(&mut self, seen: &[(NodeId, RegistryAge)], hub: &mut Hub) -> bool {
        let is_found_out = |copy: &&Directory| {
            let mut state = copy.state.clone();
            state.apply(&Started { start: NO_START }.into());
            let is_awaited = |node| state.nodes.contains_key(node) && !state.offline.contains(node);
            seen.iter().any(|(node, seen)| is_awaited(node) && !state.descends_from(*seen))
        };
        let copies: Vec<&Directory> = self.backups.iter().filter(is_found_out).collect();
        if copies.is_empty() || self.newest.is_some() {
            return false;
        }
        let copy = copies[hub.rng.below(copies.len() as u64) as usize].clone();
        let newest = self.exchange(copy);
        self.newest = Some(newest);
        true
    }

    /// It is down, and the newest directory is put back.
    pub fn put_right(&mut self) {
        if let Some(newest) = self.newest.take() {
            self.exchange(newest);
        }
    }

    /// It is down, the newest directory is lost, and an administrator puts a backup back and says so. It knows all
    /// shards as made, and no session has ended since: what else would be lost has no remedy that the model knows. `false`: there is no such backup.
    pub fn restore(&mut self, hub: &mut Hub) -> bool {
        if self.newest.is_some() {
            return false;
        }
        let copies: Vec<&Directory> = self.backups.iter().filter(|copy| self.fits(copy)).collect();
        if copies.is_empty() {
            return false;
        }
        let copy = copies[hub.rng.below(copies.len() as u64) as usize].clone();
        self.put_back(copy, hub)
    }

    /// A backup is made on purpose.
    pub fn set_aside(&mut self) {
        self.aside = Some(Directory { state: self.durable.clone(), term: self.term });
    }

    /// As [`Mgmtd::restore`], of that backup.
    pub fn put_aside_back(&mut self, hub: &mut Hub) -> bool {
        let copy = self.aside.take().filter(|copy| self.newest.is_none() && self.fits(copy));
        copy.is_some_and(|copy| self.put_back(copy, hub))
    }

    fn fits(&self, copy: &Directory) -> bool {
        let lives = |client| self.durable.sessions.contains_key(client);
        let mut shards = copy.state.shards.iter().zip(&self.durable.shards);
        copy.state.shards.len() == self.durable.shards.len()
            && shards.all(|(old, new)| old.state != ShardState::New && old.era == new.era)
            && copy.state.sessions.keys().all(lives)
    }

    fn put_back(&mut self, copy: Directory, hub: &mut Hub) -> bool {
        let term = copy.term + RESTORED_TERMS;
        self.exchange(Directory { term, ..copy });
        self.registry = Registry::new(self.config, self.durable.clone(), Term(self.term), hub.millis());
        let mut out = Output::default();
        let done = self.registry.restore(&mut out);
        self.finish(&out, hub);
        self.was_restored = true;
        // Copies of before that would be older copies of another history.
        self.backups.clear();
        self.aside = None;
        done.is_ok()
    }

    fn exchange(&mut self, directory: Directory) -> Directory {
        let term = std::mem::replace(&mut self.term, directory.term);
        Directory { state: std::mem::replace(&mut self.durable, directory.state), term }
    }

    fn back_up(&mut self, hub: &mut Hub) {
        if self.newest.is_some() || !hub.rng.percent(BACKED_UP) {
            return;
        }
        let backup = Directory { state: self.durable.clone(), term: self.term };
        match self.backups.len() {
            BACKUPS => self.backups[hub.rng.below(BACKUPS as u64) as usize] = backup,
            _ => self.backups.push(backup),
        }
    }

    /// Was it ever put back from a backup?
    pub fn was_restored(&self) -> bool {
        self.was_restored
    }

    /// A shard is given to another metadata server.
    pub fn give_shard(&mut self, shard: ShardId, node: NodeId, hub: &mut Hub) -> bool {
        self.order(&GiveShard::to(shard, node), hub)
    }

    /// An order of an administrator about a shard.
    pub fn order(&mut self, order: &GiveShard, hub: &mut Hub) -> bool {
        let mut out = Output::default();
        let done = self.registry.give_shard(order, &mut out).is_ok();
        self.finish(&out, hub);
        done
    }

    /// Time passes.
    pub fn tick(&mut self, hub: &mut Hub) {
        let mut out = Output::default();
        self.registry.step(hub.millis(), Input::Tick, &mut out);
        self.finish(&out, hub);
    }

    /// Logged and synced before any answer leaves.
    fn finish(&mut self, out: &Output, hub: &mut Hub) {
        for note in &out.notes {
            hub.say(format_args!("mgmtd: {note}"));
            if note.contains("is evicted") {
                hub.coverage.hit("a client was evicted");
            }
        }
        self.outdated |= out.outdated.is_some();
        if out.outdated.is_some() && self.newest.is_none() {
            hub.fail(format!("mgmtd takes its newest directory for an older copy: {:?}", out.outdated));
        }
        if !out.commands.is_empty() {
            self.back_up(hub);
        }
        for command in &out.commands {
            self.durable.apply(command);
        }
        // What an older copy believes of sessions is nothing.
        if !out.commands.is_empty() && self.newest.is_none() {
            hub.fields.living = self.registry.state().sessions.keys().copied().collect();
        }
        if self.durable != *self.registry.state() {
            hub.fail("mgmtd: the commands given out do not lead to the registry's state".into());
        }
    }
}

fn token(client: ClientId) -> [u8; 32] {
    let mut token = [7; 32];
    token[..8].copy_from_slice(&client.0.to_le_bytes());
    token
}

/// A number as a uuid.
pub fn uuid(number: u64) -> Uuid {
    Uuid(u128::from(number).to_le_bytes())
}
