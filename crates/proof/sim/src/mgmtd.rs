//! The management service: its rules, and the state that its synced log would give back.

use crate::hub::Hub;
use skep_cluster::{Answer, Config, Input, Output, Peer, Registry, State};
use skep_types::{ClientId, ClusterId, Encode, NamesKey, NodeId, Reader, ShardId, Term, Uuid};
use skep_wire::mgmt::MgmtRequest;
use skep_wire::{Refusal, Status};

/// A silent session ends after this, in milliseconds.
pub const SESSION_TIMEOUT_MS: u64 = 6_000;

// By the upper half of a shard's epoch metadata servers tell that mgmtd was put back. Neither crate of rules knows the other.
const _: () = assert!(skep_cluster::limits::RESTORED_JUMP == 1 << skep_meta::limit::EPOCH_HISTORY_BITS);

pub struct Mgmtd {
    registry: Registry,
    durable: State,
    config: Config,
    term: u64,
}

impl Mgmtd {
    /// A new cluster.
    pub fn format(cluster: ClusterId, shards: u16, metas: usize, hub: &Hub) -> Self {
        let config = Config { session_timeout_ms: SESSION_TIMEOUT_MS, metas, ..Config::default() };
        let durable = State::format(cluster, NamesKey(cluster.0.map(|byte| !byte)), shards);
        Self {
            registry: Registry::new(config, durable.clone(), Term(1), hub.millis()),
            durable,
            config,
            term: 1,
        }
    }

    /// It was killed and is started again.
    pub fn restart(&mut self, hub: &Hub) {
        self.term += 1;
        self.registry = Registry::new(self.config, self.durable.clone(), Term(self.term), hub.millis());
    }

    /// The registry as it is now.
    pub fn state(&self) -> &State {
        self.registry.state()
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
        let mut out = Output::default();
        let input = Input::Request { reply_to: 0, peer: Peer { client }, request };
        self.registry.step(hub.millis(), input, &mut out);
        self.finish(&out, hub);
        match out.answers.pop() {
            Some((_, Ok(Answer::Body(body)))) => Ok(body),
            Some((_, Ok(Answer::Session(mut session)))) => {
                session.token = token(session.client);
                Ok(session.to_bytes())
            }
            Some((_, Err(refusal))) => Err(refusal),
            None => Err(Refusal::with(Status::MALFORMED, "mgmtd gave no answer")),
        }
    }

    /// A shard is given to another metadata server.
    pub fn give_shard(&mut self, shard: ShardId, node: NodeId, hub: &mut Hub) -> bool {
        let mut out = Output::default();
        let done = self.registry.give_shard(shard, node, &mut out).is_ok();
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
        for command in &out.commands {
            self.durable.apply(command);
        }
        if !out.commands.is_empty() {
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
