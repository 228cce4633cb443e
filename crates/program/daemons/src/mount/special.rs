//! Extended attributes in the `skep.` namespace: what a user without the key may know of a file.

use super::lane_hands::MountPort;
use super::layout;
use super::worker::MountLane;
use serde_json::{Value, json};
use skep_admin::df::target_rows;
use skep_admin::entry_info::{kind_name, mode_name};
use skep_admin::entry_repair::{LOST, ZERO, line};
use skep_base::attributes::{CLUSTER, NETBENCH};
use skep_client::Cell;
use skep_client::state::{ClusterMap, Losses};
use skep_fuse::Context;
use skep_types::{ChunkId, Code, Errno, Extent, Ino, Kind, NodeId, Reachability, Stripe, TargetId};
use skep_wire::meta::InspectReply;
use skep_wire::mgmt::TargetEntry;

/// Everything about an inode, as JSON.
const ENTRY: &[u8] = b"skep.entry";
/// Its layout wish, and how much of it was had.
const LAYOUT: &[u8] = b"skep.layout";
/// Space of the targets, as JSON.
const SPACE: &[u8] = b"skep.space";
/// Lines of what is lost that are shown: their text fits into an attribute.
const LOST_LINES_MAX: usize = 256;
/// Names that begin so are never stored.
pub const NAMESPACE: &[u8] = b"skep.";

/// The value of [`ENTRY`], as `skep entry info` reads it. Where the chunk files lie on the servers is for
/// administrators.
fn entry(ino: Ino, reply: &InspectReply, losses: &Losses, map: &ClusterMap) -> Vec<u8> {
    let sessions: Vec<Value> = reply
        .sessions
        .iter()
        .map(|open| json!({ "client": open.client.0, "host": "", "mount": "", "mode": mode_name(open.mode) }))
        .collect();
    let given = |value: u32| (value != 0).then_some(value);
    let leader = map.leader(ino.shard());
    let attr = &reply.attr;
    let value = json!({
        "path": "",
        "ino": ino.0,
        "id": ino.to_string(),
        "kind": kind_name(attr.kind),
        "shard": ino.shard().0,
        "node": leader.map_or(0, |node| node.0),
        "node_alias": leader.map_or_else(String::new, |node| node_alias(map, node)),
        "parent": reply.parent.0,
        "mode": format!("{:04o}", attr.mode),
        "uid": attr.uid,
        "gid": attr.gid,
        "links": attr.nlink,
        "size": attr.size,
        "blocks": attr.blocks,
        "change": attr.change,
        "generation": attr.generation.0,
        "inline": reply.inline_len.is_some(),
        "inline_bytes": reply.inline_len,
        "entries": (attr.kind == Kind::Dir).then_some(reply.entries),
        "policy": {
            "own": reply.policy_is_own,
            "chunk_size": given(reply.policy.chunk_size),
            "targets": given(reply.policy.targets),
            "inline_limit": reply.policy.inline_limit,
        },
        "extents": reply.layout.extents.iter().map(|extent| extent_value(map, losses, extent)).collect::<Vec<Value>>(),
        "sessions": sessions,
    });
    value.to_string().into_bytes()
}

fn node_alias(map: &ClusterMap, node: NodeId) -> String {
    map.node(node).map_or_else(|| format!("node {node}"), |entry| entry.alias.clone())
}

/// The value of a name in the namespace.
pub async fn get<P: MountPort>(lane: &MountLane<P>, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
    match name {
        ENTRY => {
            let reply = lane.inspect(ino).await?;
            // Without a question to the targets: nobody shall have to wait for one to learn where the others are.
            let now = lane.port().now();
            Ok(lane.shared().with(|s| {
                s.losses.forget(now);
                entry(ino, &reply, &s.losses, &s.map)
            }))
        }
        _ if name == LOST.as_bytes() => {
            let lost = if lane.inspect(ino).await?.attr.kind == Kind::File {
                lane.lost(ino).await?
            } else {
                Vec::new()
            };
            let lines = lost.iter().take(LOST_LINES_MAX).map(|lost| line(lost) + "\n");
            Ok(lines.collect::<String>().into_bytes())
        }
        SPACE => {
            let rows = lane.shared().with(|s| {
                let targets: Vec<TargetEntry> = s.map.targets().cloned().collect();
                target_rows(&targets, |target| {
                    let reached = s.map.node(target.node).map(|node| target.reached(node.reachability));
                    (node_alias(&s.map, target.node), reached.map_or("unknown", Reachability::as_str))
                })
            });
            serde_json::to_vec(&rows).map_err(|_| Errno::EIO)
        }
        _ if name == CLUSTER.as_bytes() => {
            Ok(lane.shared().with(|s| s.map.cluster()).to_string().into_bytes())
        }
        _ if name == NETBENCH.as_bytes() => {
            let netbench = lane.port().hands().netbench.get().ok_or(Errno::ENODATA)?;
            Ok(u8::from(netbench.has(ino)).to_string().into_bytes())
        }
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
    if name != LAYOUT && name != LOST.as_bytes() {
        return Err(Errno::EOPNOTSUPP);
    }
    if create {
        return Err(Errno::EEXIST);
    }
    let reply = lane.inspect(ino).await?;
    if cx.uid != 0 && cx.uid != reply.attr.uid {
        return Err(Errno::EPERM);
    }
    if name == LOST.as_bytes() {
        if value != ZERO.as_bytes() {
            return Err(Errno::EINVAL);
        }
        return lane.repair(ino).await.map(drop);
    }
    let pools = lane.shared().with(|s| s.map.pools().to_vec());
    let policy = layout::parse(value, reply.policy, &pools).map_err(|text| {
        lane.port().log(format_args!("skep.layout of inode {ino}: {text}"));
        Errno::EINVAL
    })?;
    lane.set_policy(ino, policy).await
}

fn extent_value(map: &ClusterMap, losses: &Losses, extent: &Extent) -> Value {
    let holder = |target: &TargetId| {
        let entry = map.target(*target);
        let node = entry.map_or(NodeId(0), |entry| entry.node);
        let reached = entry.zip(map.node(node)).map(|(entry, node)| entry.reached(node.reachability));
        let reachability = reached.map_or("unknown", |reached| reached.as_str());
        json!({
            "target": target.0,
            "alias": entry.map_or_else(|| format!("target {target}"), |entry| entry.alias.clone()),
            "node": node.0,
            "node_alias": node_alias(map, node),
            "reachability": reachability,
            "consistency": entry.map_or("unknown", |entry| entry.consistency.as_str()),
            "path": null,
        })
    };
    let stripe = |(chunk, on): (ChunkId, &Stripe)| {
        let stripe = usize::from(chunk.stripe);
        json!({
            "stripe": stripe,
            "targets": on.targets().iter().map(holder).collect::<Vec<Value>>(),
            "floor": extent.floor(stripe),
            "cut": Some(extent.cut(stripe)).filter(|cut| *cut != u64::MAX),
            "size": null,
            "lost": losses.has(&chunk),
        })
    };
    json!({
        "number": extent.number,
        "start": extent.start,
        "end": (extent.end != u64::MAX).then_some(extent.end),
        "code": match extent.code { Code::Copies => "copies" },
        "chunk_size": extent.chunk_size,
        "stripes": extent.named().map(stripe).collect::<Vec<Value>>(),
    })
}
