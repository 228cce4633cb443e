//! Extended attributes in the `skep.` namespace: what a user without the key may know of a file.

use super::lane_hands::MountPort;
use super::layout;
use super::worker::MountLane;
use serde_json::{Value, json};
use skep_client::Cell;
use skep_fuse::Context;
use skep_types::{Errno, Extent, Ino, Kind};
use skep_wire::meta::{InspectReply, OpenMode};

/// Everything about an inode, as JSON.
pub const ENTRY: &[u8] = b"skep.entry";
/// Its layout wish, and how much of it was had.
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

/// The value of a name in the namespace.
pub async fn get<P: MountPort>(lane: &MountLane<P>, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
    match name {
        ENTRY => Ok(entry(ino, &lane.inspect(ino).await?)),
        LAYOUT => {
            let reply = lane.inspect(ino).await?;
            if !matches!(reply.attr.kind, Kind::File | Kind::Dir) {
                return Err(Errno::ENODATA);
            }
            let pools = lane.shared().with(|s| s.map.pools().to_vec());
            Ok(layout::shown(&reply, &pools).into_bytes())
        }
        _ => Err(Errno::ENODATA),
    }
}

/// Sets a name in the namespace: the layout wish of a directory or an empty file, by its owner or root.
pub async fn set<P: MountPort>(
    lane: &MountLane<P>,
    cx: &Context<'_>,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    create: bool,
) -> Result<(), Errno> {
    if name != LAYOUT {
        return Err(Errno::EOPNOTSUPP);
    }
    if create {
        return Err(Errno::EEXIST);
    }
    let reply = lane.inspect(ino).await?;
    if cx.uid != 0 && cx.uid != reply.attr.uid {
        return Err(Errno::EPERM);
    }
    let pools = lane.shared().with(|s| s.map.pools().to_vec());
    let policy = layout::parse(value, reply.policy, &pools).map_err(|text| {
        lane.port().log(format_args!("skep.layout of inode {ino}: {text}"));
        Errno::EINVAL
    })?;
    lane.set_policy(ino, policy).await
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
