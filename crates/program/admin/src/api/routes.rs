//! The routes of the API. `docs/admin/http.md` lists them; a test compares both.

use super::{Answer, Call, failed};
use crate::up::ClusterSummary;
use crate::{df, health, node, pool, session, stats, target, target_removal};
use serde::{Deserialize, Serialize};
use skep_base::find;
use skep_base::http::Reply;
use skep_types::{PoolId, TargetId};
use skep_wire::Message;
use skep_wire::mgmt::{
    AssignTargets, CreatePool, DeletePool, Evict, RemoveNode, RenamePool, SetNodeAlias, SetTargetAlias,
    SetTargetState, StatusReply,
};
use std::time::Duration;

/// Looking for chunks on a target that is to be removed ends after this time.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// One path and method.
pub struct Route {
    pub method: &'static str,
    /// The path; a part in braces is any name.
    pub path: &'static str,
    pub run: fn(Call<'_>) -> Answer,
}

impl Route {
    /// The parts in braces, when `path` is of this route.
    pub fn parts<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let (mut own, mut given) = (self.path.split('/'), path.split('/'));
        let mut parts = Vec::new();
        loop {
            match (own.next(), given.next()) {
                (None, None) => return Some(parts),
                (Some(own), Some(given)) if own.starts_with('{') && !given.is_empty() => parts.push(given),
                (Some(own), Some(given)) if own == given => {}
                _ => return None,
            }
        }
    }
}

pub const ALL: &[Route] = &[
    Route { method: "GET", path: "/v1/status", run: status },
    Route { method: "GET", path: "/v1/nodes", run: |call| list(call, |s| Reply::json(&node::rows(s))) },
    Route { method: "GET", path: "/v1/targets", run: |call| list(call, |s| Reply::json(&target::rows(s))) },
    Route { method: "GET", path: "/v1/sessions", run: |call| list(call, |s| Reply::json(&session::rows(s))) },
    Route { method: "GET", path: "/v1/df", run: |call| list(call, |s| Reply::json(&df::rows(s))) },
    Route { method: "GET", path: "/v1/map", run: |call| list(call, |s| Reply::json(&MapDocument::of(s))) },
    Route { method: "GET", path: "/v1/stats", run: counters },
    Route { method: "GET", path: "/v1/health", run: findings },
    Route { method: "POST", path: "/v1/sessions/{client}/evict", run: evict },
    Route { method: "PUT", path: "/v1/nodes/{node}/alias", run: rename_node },
    Route { method: "DELETE", path: "/v1/nodes/{node}", run: remove_node },
    Route { method: "PUT", path: "/v1/targets/{target}/state", run: set_state },
    Route { method: "PUT", path: "/v1/targets/{target}/alias", run: rename_target },
    Route { method: "PUT", path: "/v1/targets/{target}/pool", run: assign },
    Route { method: "DELETE", path: "/v1/targets/{target}", run: remove_target },
    Route { method: "GET", path: "/v1/pools", run: |call| list(call, |s| Reply::json(&pool::rows(s))) },
    Route { method: "POST", path: "/v1/pools", run: create_pool },
    Route { method: "PUT", path: "/v1/pools/{pool}/alias", run: rename_pool },
    Route { method: "DELETE", path: "/v1/pools/{pool}", run: delete_pool },
];

/// Where everything is, as servers and clients see it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MapDocument {
    /// Its version.
    version: u64,
    /// The cluster.
    cluster: String,
    /// Metadata shards.
    shards: Vec<ShardRow>,
    /// Daemons, as `skep node list` shows them.
    nodes: Vec<node::NodeRow>,
    /// Targets, as `skep target list` shows them.
    targets: Vec<target::TargetRow>,
}

/// A metadata shard.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ShardRow {
    shard: u16,
    /// Nodes that hold it.
    members: Vec<u32>,
    /// The node that answers for it; none yet, or no more.
    leader: Option<u32>,
    /// `new`, `active`, `moving` or `retired`.
    state: &'static str,
    /// Raised with every change of these.
    epoch: u64,
}

impl MapDocument {
    /// As mgmtd knows it.
    pub fn of(status: &StatusReply) -> Self {
        let shard = |entry: &skep_wire::mgmt::ShardEntry| ShardRow {
            shard: entry.shard.0,
            members: entry.members.iter().map(|node| node.0).collect(),
            leader: entry.led_by().map(|node| node.0),
            state: entry.state.as_str(),
            epoch: entry.epoch,
        };
        Self {
            version: status.map.0,
            cluster: status.cluster.to_string(),
            shards: status.shards.iter().map(shard).collect(),
            nodes: node::rows(status),
            targets: target::rows(status),
        }
    }
}

fn list(mut call: Call<'_>, show: impl Fn(&StatusReply) -> Reply) -> Answer {
    Ok(show(&call.status()?))
}

fn status(mut call: Call<'_>) -> Answer {
    Ok(Reply::json(&ClusterSummary::of(&call.status()?)))
}

fn counters(mut call: Call<'_>) -> Answer {
    let status = call.status()?;
    let (rows, failures) = stats::collect(&call.cluster, &status, &|_| true);
    match failures.first() {
        Some(failure) if rows.is_empty() => Err(failed(failure)),
        _ => Ok(Reply::json(&rows)),
    }
}

fn findings(mut call: Call<'_>) -> Answer {
    let status = call.status()?;
    Ok(Reply::json(&health::of_cluster(&mut call.cluster, &status)))
}

/// Asks mgmtd to change something.
fn change<M: Message>(call: &mut Call<'_>, message: &M) -> Answer {
    call.cluster.ask(message).map_err(|failure| failed(&failure))?;
    Ok(Reply::json(&Done { done: true }))
}

/// What a change answers.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Done {
    done: bool,
}

fn evict(mut call: Call<'_>) -> Answer {
    let status = call.status()?;
    let client = session::find(&status, call.parts[0]).map_err(|failure| failed(&failure))?;
    change(&mut call, &Evict { client })
}

/// Body of a change of state.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(Serialize, schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StateBody {
    /// What the content of the target is worth.
    state: target::State,
}

fn set_state(mut call: Call<'_>) -> Answer {
    let body: StateBody = call.document()?;
    let status = call.status()?;
    let target = target_of(&status, call.parts[0])?;
    change(&mut call, &SetTargetState { target, consistency: body.state.into() })
}

fn target_of(status: &StatusReply, text: &str) -> Result<TargetId, Reply> {
    find::target(status, text).map(|target| target.target).map_err(|failure| failed(&failure))
}

/// A pool, or none at all.
fn pool_of(status: &StatusReply, text: &str) -> Result<PoolId, Reply> {
    if text == find::NO_POOL {
        return Ok(PoolId(0));
    }
    find::pool(status, text).map(|pool| pool.pool.pool).map_err(|failure| failed(&failure))
}

/// Body of a change of name.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(Serialize, schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AliasBody {
    /// The new name.
    alias: String,
}

/// Body of a move to another pool.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(Serialize, schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PoolBody {
    /// Alias or number of the pool; `none`: nothing new is put on the target.
    pool: String,
}

/// Body of a new pool.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(Serialize, schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPoolBody {
    /// Its name.
    alias: String,
    /// Targets that are moved there at once, by alias or number.
    #[serde(default)]
    targets: Vec<String>,
}

fn rename_node(mut call: Call<'_>) -> Answer {
    let AliasBody { alias } = call.document()?;
    let status = call.status()?;
    let node = find::node(&status, call.parts[0]).map_err(|failure| failed(&failure))?.node.node;
    change(&mut call, &SetNodeAlias { node, alias })
}

fn remove_node(mut call: Call<'_>) -> Answer {
    let status = call.status()?;
    let node = find::node(&status, call.parts[0]).map_err(|failure| failed(&failure))?.node.node;
    change(&mut call, &RemoveNode { node })
}

fn rename_target(mut call: Call<'_>) -> Answer {
    let AliasBody { alias } = call.document()?;
    let target = target_of(&call.status()?, call.parts[0])?;
    change(&mut call, &SetTargetAlias { target, alias })
}

fn assign(mut call: Call<'_>) -> Answer {
    let body: PoolBody = call.document()?;
    let status = call.status()?;
    let (pool, target) = (pool_of(&status, &body.pool)?, target_of(&status, call.parts[0])?);
    change(&mut call, &AssignTargets { pool, targets: vec![target] })
}

/// Never by force: whoever gives bytes up for lost shall do it by hand.
fn remove_target(mut call: Call<'_>) -> Answer {
    let status = call.status()?;
    let target = find::target(&status, call.parts[0]).map_err(|failure| failed(&failure))?;
    let removed = target_removal::remove(&mut call.cluster, &status, target, false, REMOVAL_LIMIT);
    removed.map_err(|failure| failed(&failure))?;
    Ok(Reply::json(&Done { done: true }))
}

/// A word that means no pool cannot be the name of one.
fn unreserved(alias: &str) -> Result<(), Reply> {
    match alias == find::NO_POOL {
        false => Ok(()),
        true => Err(Reply::error(400, "the word means no pool at all", alias, "choose another alias")),
    }
}

fn create_pool(mut call: Call<'_>) -> Answer {
    let body: NewPoolBody = call.document()?;
    unreserved(&body.alias)?;
    let status = call.status()?;
    let targets = body.targets.iter().map(|text| target_of(&status, text)).collect::<Result<_, _>>()?;
    change(&mut call, &CreatePool { alias: body.alias, targets, limits: Default::default() })
}

fn rename_pool(mut call: Call<'_>) -> Answer {
    let AliasBody { alias } = call.document()?;
    unreserved(&alias)?;
    let pool = pool_of(&call.status()?, call.parts[0])?;
    change(&mut call, &RenamePool { pool, alias })
}

fn delete_pool(mut call: Call<'_>) -> Answer {
    let pool = pool_of(&call.status()?, call.parts[0])?;
    change(&mut call, &DeletePool { pool })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: parts in braces are taken out, everything else must fit exactly.
    #[test]
    fn paths_fit() {
        let route = ALL.iter().find(|route| route.path.contains("evict")).unwrap();
        assert_eq!(route.parts("/v1/sessions/7/evict"), Some(vec!["7"]));
        for wrong in
            ["/v1/sessions//evict", "/v1/sessions/7", "/v1/sessions/7/evict/", "/v1/sessions/7/8/evict", ""]
        {
            assert_eq!(route.parts(wrong), None, "{wrong}");
        }
    }

    /// Goal: the manual lists the routes that there are, no more and no fewer.
    #[test]
    fn the_manual_lists_them() {
        let manual = include_str!("../../../../../docs/admin/http.md");
        let listed: Vec<(String, String)> = manual
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split('`');
                let (method, path) = cells.next()?.split_once(' ')?;
                path.starts_with("/v1/").then(|| (method.to_owned(), path.to_owned()))
            })
            .collect();
        let routes: Vec<_> = ALL.iter().map(|r| (r.method.to_owned(), r.path.to_owned())).collect();
        let missing: Vec<_> = routes.iter().filter(|route| !listed.contains(route)).collect();
        let invented: Vec<_> = listed.iter().filter(|route| !routes.contains(route)).collect();
        assert!(missing.is_empty() && invented.is_empty(), "missing {missing:?}, invented {invented:?}");
        assert_eq!(listed.len(), routes.len(), "one of them is listed twice");
    }
}
