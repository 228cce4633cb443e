//! `skep target remove`: out of the pools, empty, gone.
//!
//! New chunks must not come while it is looked whether any are left, so the target leaves its pool first
//! and every metadata server is waited for until it knows. Whatever goes wrong before the end puts the
//! target back into its pool.

use super::confirm;
use super::target::row;
use clap::Args;
use skep_base::access::{AccessArgs, Cluster};
use skep_base::find;
use skep_base::namespace::Names;
use skep_base::output::{self, OutputArgs};
use skep_base::{Failure, Outcome};
use skep_types::{ChunkId, MapVersion, PoolId, Reachability, ServiceKind};
use skep_wire::mgmt::{AssignTargets, RemoveTarget, StatusReply, TargetEntry};
use skep_wire::storage::ListChunks;
use std::io::Write;
use std::time::{Duration, Instant};

/// Pause between looks at what changes by itself.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// A target must be found empty twice, this long apart: a client that was given its last layout there
/// just before writes its first bytes meanwhile.
const SETTLE: Duration = Duration::from_secs(1);

/// Arguments of `skep target remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Alias or number of the target
    target: String,
    /// Also when it holds chunks or cannot be asked: their bytes are lost, their files give EIO there
    #[arg(long)]
    force: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &RemoveArgs, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("removing a target")?;
    let status = cluster.status()?;
    let target = find::target(&status, &args.target)?;
    confirm::ask(&question(&status, target, args.force), args.yes)?;
    remove(&mut cluster, &status, target, args.force, args.access.timeout.duration())?;
    let node = Names::of(&status).node(target.node);
    eprintln!("target {} ({}) is removed; its number is not given again", target.alias, target.target);
    eprintln!("note: take its directory out of `targets` in storaged.toml of {node}");
    match args.output.output {
        output::Format::Table => Ok(()),
        format => Ok(output::rows(format, &[row(&status, target)], out)?),
    }
}

/// What it means, in words.
fn question(status: &StatusReply, target: &TargetEntry, force: bool) -> String {
    let lost =
        if force { "; what it holds is lost: those files give EIO there" } else { " if nothing is on it" };
    let node = Names::of(status).node(target.node);
    format!("target {} ({}) of {node} is removed for ever{lost}", target.alias, target.target)
}

/// Removes the target; without `force` only when nothing is left on it, which is looked for until `limit`.
pub fn remove(
    cluster: &mut Cluster,
    status: &StatusReply,
    target: &TargetEntry,
    force: bool,
    limit: Duration,
) -> Outcome {
    if target.pool != PoolId(0) {
        cluster.ask(&AssignTargets { pool: PoolId(0), targets: vec![target.target] })?;
    }
    match ready(cluster, status, target, limit) {
        Ok(()) => {}
        Err(why) if force => eprintln!("note: removed all the same: {why}"),
        Err(why) => {
            let back = match target.pool {
                PoolId(0) => String::new(),
                pool => {
                    cluster.ask(&AssignTargets { pool, targets: vec![target.target] })?;
                    format!("; it is back in pool {}", find::pool_alias(status, pool))
                }
            };
            return Err(Failure::new(format!("{why}{back}")));
        }
    }
    cluster.ask(&RemoveTarget { target: target.target, force }).map(drop)
}

/// Nothing new comes and nothing is left.
fn ready(cluster: &mut Cluster, before: &StatusReply, target: &TargetEntry, limit: Duration) -> Outcome {
    let deadline = Instant::now() + limit;
    wait_for_metadata(cluster, deadline)?;
    let names = Names::of(before);
    let alias = &target.alias;
    if before.targets.iter().any(|one| one.target == target.target && !one.served) {
        return Err(Failure::new(format!(
            "{alias}: {} runs and does not serve it, so nobody knows what is on it; mount its disk, put it back into \
             `targets` and restart that server, or use --force: what it holds is lost",
            names.node(target.node)
        )));
    }
    let reachability = names.reachability(target.node);
    let node = names.entry(target.node).filter(|node| node.reachability != Reachability::Offline);
    let Some(node) = node else {
        return Err(Failure::new(format!(
            "{alias}: {} is {reachability}, so nobody knows what is on it; start it, or use --force: what it \
             holds is lost",
            names.node(target.node)
        )));
    };
    let mut link = cluster.node(node);
    link.limit = deadline.saturating_duration_since(Instant::now()).max(SETTLE);
    let mut empty_since: Option<Instant> = None;
    loop {
        let list = link.ask(&ListChunks { target: target.target, after: None, max: 1 });
        let list = list.map_err(|e| {
            Failure::new(format!(
                "{alias} cannot be looked into ({e}); mend that, or use --force: what it holds is lost"
            ))
        })?;
        match list.chunks.first() {
            None if empty_since.is_some_and(|since| since.elapsed() >= SETTLE) => return Ok(()),
            None => {
                empty_since.get_or_insert_with(Instant::now);
            }
            // What was deleted goes in the background: it may still be here for a moment.
            Some(_) if Instant::now() < deadline => empty_since = None,
            Some(chunk) => return Err(holds(alias, *chunk)),
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

fn holds(alias: &str, chunk: ChunkId) -> Failure {
    Failure::new(format!(
        "{alias} holds chunks, such as one of inode {}: copy those files elsewhere (new ones do not come here \
         once it is in no pool: skep pool assign none {alias}) and delete them, or use --force: their bytes \
         on it are lost",
        chunk.ino
    ))
}

/// Waits until every metadata server acts upon a map as new as the present one.
fn wait_for_metadata(cluster: &mut Cluster, deadline: Instant) -> Outcome {
    let wanted: MapVersion = cluster.status()?.map;
    loop {
        let status = cluster.status()?;
        let behind = status.nodes.iter().find(|node| {
            node.node.service == ServiceKind::Metad
                && node.node.reachability != Reachability::Offline
                && node.map < wanted
        });
        let Some(behind) = behind else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(Failure::new(format!(
                "{} did not take over the newest map in time; see `skep health`",
                behind.node.alias
            )));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}
