//! Extended attributes in the `skep.` namespace: what a user without the key may know of a file.

use serde_json::{Value, json};
use skep_types::{Extent, Ino};
use skep_wire::meta::{InspectReply, OpenMode};

/// Everything about an inode, as JSON.
pub const ENTRY: &[u8] = b"skep.entry";
/// Only where its bytes are, as JSON.
pub const LAYOUT: &[u8] = b"skep.layout";
/// Names that begin so are never stored.
pub const NAMESPACE: &[u8] = b"skep.";

/// The value of [`ENTRY`].
pub fn entry(ino: Ino, reply: &InspectReply) -> Vec<u8> {
    let sessions: Vec<Value> = reply
        .sessions
        .iter()
        .map(|open| {
            let mode = match open.mode {
                OpenMode::Read => "read",
                OpenMode::Write => "write",
                OpenMode::ReadWrite => "read-write",
            };
            json!({ "client": open.client.0, "mode": mode })
        })
        .collect();
    let value = json!({
        "ino": ino.0,
        "id": ino.to_string(),
        "kind": format!("{:?}", reply.attr.kind).to_lowercase(),
        "shard": ino.shard().0,
        "parent": reply.parent.0,
        "size": reply.attr.size,
        "change": reply.attr.change,
        "generation": reply.attr.generation.0,
        "inline": reply.inline_len.is_some(),
        "inline_bytes": reply.inline_len,
        "entries": reply.entries,
        "policy": {
            "own": reply.policy_is_own,
            "chunk_size": reply.policy.chunk_size,
            "targets": reply.policy.targets,
            "inline_limit": reply.policy.inline_limit,
        },
        "extents": extents(reply),
        "sessions": sessions,
    });
    value.to_string().into_bytes()
}

/// The value of [`LAYOUT`].
pub fn layout(reply: &InspectReply) -> Vec<u8> {
    let generation = reply.layout.generation.0;
    json!({ "generation": generation, "extents": extents(reply) }).to_string().into_bytes()
}

fn extents(reply: &InspectReply) -> Vec<Value> {
    reply.layout.extents.iter().map(extent).collect()
}

fn extent(extent: &Extent) -> Value {
    let targets: Vec<u32> = extent.targets.iter().map(|target| target.0).collect();
    json!({
        "start": extent.start,
        "end": (extent.end != u64::MAX).then_some(extent.end),
        "chunk_size": extent.chunk_size,
        "targets": targets,
    })
}
