//! What a metadata server is told at its start.

use crate::limit::{Limits, OPENS_MAX};
use crate::spread::Chooser;
use core::hash::Hasher;
use skep_types::{Incarnation, Ino, ShardId, limits};

/// Makes the hash that cookies are made of. Another one than [`skep_types::cookie::hash`] is for tests only.
pub type HashFn = fn(key: &[u8; 16], dir: Ino, name: &[u8]) -> u64;

/// Settings of a metadata server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Random: keys of new shards and the choice of targets come from it.
    pub seed: [u8; 16],
    /// Largest file kept in the metadata where no policy says otherwise.
    pub inline_limit: u32,
    /// Chunk size where no policy says otherwise.
    pub chunk_size: u32,
    /// Targets of a new file where no policy says otherwise; 0 = progressive.
    pub stripe_targets: u32,
    /// How targets are chosen.
    pub chooser: Chooser,
    /// A target with less free space than this gets no new chunks.
    pub target_reserve: u64,
    /// Time that clients have to reclaim opens after a restart.
    pub grace_ms: u64,
    /// So long leases hold without being renewed; 0: none are given.
    pub lease_ms: u64,
    /// Most open files of one client.
    pub opens_per_client: usize,
    /// The life that the server begins, as peers are told in the handshake.
    pub life: Incarnation,
    /// Most open files of all clients.
    pub opens: usize,
    /// Limits that nobody configures.
    pub limits: Limits,
    /// Every change is durable before it is answered.
    pub sync_always: bool,
    /// Hash of names.
    pub hash: HashFn,
    /// Canary for the simulator: repeated requests are run again. Never set otherwise.
    pub canary_runs_retries: bool,
    /// Canary for the simulator: work without a bound is done in one step. Never set otherwise.
    pub canary_one_big_step: bool,
    /// Canary for the simulator: votes leave before their records are durable. Never set otherwise.
    pub canary_votes_early: bool,
    /// Canary for the simulator: what a coordinator has finished is prepared once more. Never set otherwise.
    pub canary_takes_strays: bool,
    /// Canary for the simulator: a decision does not tell the lane. Never set otherwise.
    pub canary_leaves_lane: bool,
    /// Canary for the simulator: shards whose rows are missing are made anew. Never set otherwise.
    pub canary_formats_missing: bool,
    /// Canary for the simulator: leases are given on what is being taken back. Never set otherwise.
    pub canary_grants_while_recalling: bool,
    /// Canary for the simulator: leases end with their session. Never set otherwise.
    pub canary_ends_with_session: bool,
    /// Canary for the simulator: the hold counts from the start of the process. Never set otherwise.
    pub canary_holds_by_process: bool,
    /// Canary for the simulator: the row that there may be leases goes with a session. Never set otherwise.
    pub canary_row_goes: bool,
    /// Canary for the simulator: a repeated create opens for writing, and nobody is told. Never set otherwise.
    pub canary_reopens_unseen: bool,
    /// Canary for the simulator: what is moved was covered by where it is by then. Never set otherwise.
    pub canary_cover_follows: bool,
    /// Canary for the simulator: others are answered about a file that somebody holds. Never set otherwise.
    pub canary_asks_later: bool,
    /// Canary for the simulator: who holds a file no longer may tell of it. Never set otherwise.
    pub canary_takes_late_tells: bool,
    /// Canary for the simulator: who holds a file is passed over though it is heard. Never set otherwise.
    pub canary_passes_early: bool,
    /// Canary for the simulator: who was passed over may tell of a file that others have changed. Never set otherwise.
    pub canary_tells_late: bool,
    /// A fault on purpose: a hold that is asked for is given though another client has the file open (*holds-beside-others*).
    pub canary_holds_beside: bool,
    /// The same: who looks at a held file is answered by a word that was on its way when he came (*answers-late-looks*).
    pub canary_answers_late_looks: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: [0; 16],
            inline_limit: limits::INLINE_DEFAULT,
            chunk_size: limits::CHUNK_DEFAULT,
            stripe_targets: 0,
            chooser: Chooser::Balanced,
            target_reserve: 0,
            grace_ms: 75_000,
            lease_ms: 4_000,
            opens_per_client: 1 << 20,
            life: Incarnation(0),
            opens: OPENS_MAX,
            limits: Limits::default(),
            sync_always: false,
            hash: skep_types::cookie::hash,
            canary_runs_retries: false,
            canary_one_big_step: false,
            canary_votes_early: false,
            canary_takes_strays: false,
            canary_leaves_lane: false,
            canary_formats_missing: false,
            canary_grants_while_recalling: false,
            canary_ends_with_session: false,
            canary_holds_by_process: false,
            canary_row_goes: false,
            canary_reopens_unseen: false,
            canary_cover_follows: false,
            canary_asks_later: false,
            canary_takes_late_tells: false,
            canary_passes_early: false,
            canary_tells_late: false,
            canary_holds_beside: false,
            canary_answers_late_looks: false,
        }
    }
}

impl Config {
    /// The hash key of a new shard.
    pub fn hash_key(&self, shard: ShardId) -> [u8; 16] {
        let mut key = [0; 16];
        for (half, chunk) in key.chunks_mut(8).enumerate() {
            let mut hasher = siphasher::sip::SipHasher13::new_with_key(&self.seed);
            hasher.write_u16(shard.0);
            hasher.write_usize(half);
            chunk.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        key
    }
}
