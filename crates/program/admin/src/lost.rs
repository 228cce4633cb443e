//! Chunk files of which something is lost, as an administrator's command finds them: see `docs/design/lost.md`.

use skep_base::namespace::{Names, Namespace};
use skep_base::{Failure, Outcome};
use skep_client::LostChunk;
use skep_types::{ChunkId, Ino, Layout, NodeId, Stripe, TargetId, Timestamp};
use skep_wire::meta::{FoundChunk, ReadInline, Repair};
use skep_wire::storage::StatChunks;
use std::collections::{BTreeMap, BTreeSet};

/// Looks while truncates come in between.
const ROUNDS_MAX: usize = 20;

/// What is known of the chunk files of a file.
pub struct Found {
    /// As it was while they were looked at.
    pub layout: Layout,
    /// Lengths, of several copies the greatest; absent where no server of one answers.
    pub sizes: BTreeMap<ChunkId, u64>,
    /// When the lives of the targets began.
    lives: BTreeMap<TargetId, Timestamp>,
    /// Targets that the cluster knows no more.
    removed: BTreeSet<TargetId>,
}

impl Found {
    /// Those that are shorter than they can be.
    pub fn lost(&self) -> Vec<LostChunk> {
        let found = |(chunk, stripe): (ChunkId, &Stripe)| {
            let lives = stripe.targets().iter().filter_map(|target| self.lives.get(target).copied());
            LostChunk::if_short(&self.layout, chunk, *self.sizes.get(&chunk)?, lives.max())
        };
        self.layout.stripes().filter_map(found).collect()
    }

    /// What cannot be said of the file, because targets with parts of it are gone for good or do not answer.
    pub fn obstacle(&self) -> Option<Failure> {
        let unseen = |(chunk, target): (ChunkId, TargetId)| {
            (self.layout.floor(&chunk) > 0 && !self.sizes.contains_key(&chunk)).then_some(target)
        };
        let unseen: BTreeSet<TargetId> = self.layout.chunks().filter_map(unseen).collect();
        let (removed, away): (Vec<&TargetId>, Vec<&TargetId>) =
            unseen.iter().partition(|target| self.removed.contains(target));
        let list = |targets: &[&TargetId]| {
            targets.iter().map(|target| target.to_string()).collect::<Vec<_>>().join(", ")
        };
        match (removed.is_empty(), away.is_empty()) {
            (false, _) => Some(Failure::new(format!(
                "what it had on target {} is lost: it was removed from the cluster with what it held. Reads of that give EIO, \
                 and --zero does not help: write the file anew from a backup, or delete it",
                list(&removed)
            ))),
            (true, false) => Some(Failure::new(format!(
                "not looked at on target {}, whose server does not answer: try again when it does (skep health)",
                list(&away)
            ))),
            (true, true) => None,
        }
    }
}

/// Asks the shard and the servers of the chunk files on the targets wanted.
pub fn look(namespace: &mut Namespace, ino: Ino, wanted: impl Fn(TargetId) -> bool) -> Outcome<Found> {
    for _ in 0..ROUNDS_MAX {
        let ask = ReadInline { ino, short: Vec::new(), trims: Default::default() };
        let layout = namespace.ask(ino, &ask)?.layout;
        let found = on_targets(namespace, layout, &wanted);
        let short: Vec<FoundChunk> = found.lost().iter().map(LostChunk::found).collect();
        if short.is_empty() {
            return Ok(found);
        }
        // Told, so that it is counted; and asked whether the file was cut meanwhile.
        let told = ReadInline { ino, short, trims: found.layout.trims };
        let after = namespace.ask(ino, &told)?.layout;
        if (after.generation, after.trims) == (found.layout.generation, found.layout.trims) {
            return Ok(found);
        }
    }
    Err(Failure::new("the file is being truncated all the time; try again"))
}

/// Gives up what is lost. Says what that was, and what cannot be said of the rest.
pub fn give_up(namespace: &mut Namespace, ino: Ino) -> Outcome<(Vec<LostChunk>, Option<Failure>)> {
    let mut rounds = 0;
    loop {
        let found = look(namespace, ino, |_| true)?;
        let lost = found.lost();
        if lost.is_empty() {
            return Ok((lost, found.obstacle()));
        }
        let (generation, trims) = (found.layout.generation, found.layout.trims);
        let told = lost.iter().map(LostChunk::found).collect();
        match namespace.ask(ino, &Repair { ino, generation, trims, found: told }) {
            Ok(_) => return Ok((lost, found.obstacle())),
            // Cut, or written and synced, since that look.
            Err(failure) if failure.is_overtaken() && rounds < ROUNDS_MAX => rounds += 1,
            Err(failure) => return Err(failure),
        }
    }
}

fn on_targets(namespace: &Namespace, layout: Layout, wanted: &impl Fn(TargetId) -> bool) -> Found {
    let mut by_target: BTreeMap<TargetId, Vec<ChunkId>> = BTreeMap::new();
    for (chunk, target) in layout.chunks().filter(|(_, target)| wanted(*target)) {
        by_target.entry(target).or_default().push(chunk);
    }
    let names = Names::of(&namespace.status);
    let (mut sizes, mut lives) = (BTreeMap::<ChunkId, u64>::new(), BTreeMap::new());
    let mut silent: Vec<NodeId> = Vec::new();
    let removed = by_target.keys().copied().filter(|target| names.target(*target).is_none()).collect();
    for (target, chunks) in by_target {
        let node = names.target(target).and_then(|entry| names.entry(entry.node));
        let Some(node) = node.filter(|node| !silent.contains(&node.node)) else { continue };
        match namespace.cluster.node(node).ask(&StatChunks { target, by: None, chunks: chunks.clone() }) {
            Ok(reply) => {
                for (chunk, stat) in chunks.into_iter().zip(&reply.chunks) {
                    let known = sizes.entry(chunk).or_default();
                    *known = stat.size.max(*known);
                }
                lives.extend(reply.life_since.map(|since| (target, since)));
            }
            Err(failure) => {
                silent.push(node.node);
                eprintln!("note: not looked at: chunk files of {}: {failure}", node.alias);
            }
        }
    }
    Found { layout, sizes, lives, removed }
}
