//! Chunk files of which something is lost, as an administrator's command finds them: see `docs/design/lost.md`.

use super::failure::{Failure, Outcome};
use super::namespace::{Names, Namespace};
use skep_types::{ChunkId, Ino, Layout, NodeId, TargetId, WRITTEN};
use skep_wire::meta::{FoundChunk, ReadInline, Repair};
use skep_wire::storage::StatChunks;
use std::collections::BTreeMap;

/// Looks while truncates come in between.
const ROUNDS_MAX: usize = 20;

/// What is known of the chunk files of a file.
pub struct Found {
    /// As it was while they were looked at.
    pub layout: Layout,
    /// Lengths; those of a server that does not answer are absent.
    pub sizes: BTreeMap<ChunkId, u64>,
}

impl Found {
    /// Those that are shorter than they can be.
    pub fn lost(&self) -> Vec<FoundChunk> {
        let found = |(chunk, size): (&ChunkId, &u64)| FoundChunk {
            chunk: *chunk,
            size: *size,
            floor: self.layout.floor(chunk),
        };
        self.sizes.iter().map(found).filter(|found| found.size < found.floor).collect()
    }
}

/// What has become of a chunk file that is `size` long and had `floor` bytes at least.
pub fn story(size: u64, floor: u64) -> String {
    let left = if size == 0 { "missing or empty".to_owned() } else { format!("{size} bytes long") };
    if floor <= WRITTEN {
        return format!(
            "{left}, written and never synced: a power cut of its server took it (see its log for the time), or somebody"
        );
    }
    format!("{left}, at least {floor} bytes were synced: put it back from a backup")
}

/// Asks the shard and the servers of the chunk files on the targets wanted.
pub fn look(namespace: &mut Namespace, ino: Ino, wanted: impl Fn(TargetId) -> bool) -> Outcome<Found> {
    for _ in 0..ROUNDS_MAX {
        let ask = ReadInline { ino, short: Vec::new(), trims: Default::default() };
        let layout = namespace.ask(ino, &ask)?.layout;
        let sizes = sizes(namespace, &layout, &wanted);
        let found = Found { layout, sizes };
        let short = found.lost();
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

/// Gives up what is lost. Says what that was.
pub fn give_up(namespace: &mut Namespace, ino: Ino) -> Outcome<Vec<(FoundChunk, u64)>> {
    let mut rounds = 0;
    loop {
        let found = look(namespace, ino, |_| true)?;
        let lost = found.lost();
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let (generation, trims) = (found.layout.generation, found.layout.trims);
        match namespace.ask(ino, &Repair { ino, generation, trims, found: lost.clone() }) {
            Ok(_) => return Ok(lost.into_iter().map(|lost| (lost, lost.floor)).collect()),
            // Cut, or written and synced, since that look.
            Err(failure) if failure.is_overtaken() && rounds < ROUNDS_MAX => rounds += 1,
            Err(failure) => return Err(failure),
        }
    }
}

fn sizes(
    namespace: &Namespace,
    layout: &Layout,
    wanted: &impl Fn(TargetId) -> bool,
) -> BTreeMap<ChunkId, u64> {
    let mut by_target: BTreeMap<TargetId, Vec<ChunkId>> = BTreeMap::new();
    for (chunk, target) in layout.chunks().filter(|(_, target)| wanted(*target)) {
        by_target.entry(target).or_default().push(chunk);
    }
    let names = Names::of(&namespace.status);
    let mut sizes = BTreeMap::new();
    let mut silent: Vec<NodeId> = Vec::new();
    for (target, chunks) in by_target {
        let node = names.target(target).and_then(|entry| names.entry(entry.node));
        let Some(node) = node.filter(|node| !silent.contains(&node.node)) else { continue };
        match namespace.cluster.node(node).ask(&StatChunks { target, chunks: chunks.clone() }) {
            Ok(reply) => sizes.extend(chunks.into_iter().zip(reply.chunks.iter().map(|stat| stat.size))),
            Err(failure) => {
                silent.push(node.node);
                eprintln!("note: not looked at: chunk files of {}: {failure}", node.alias);
            }
        }
    }
    sizes
}
