//! `skep df`.

use super::pool::space;
use super::through_mount;
use clap::Args;
use serde::{Deserialize, Serialize};
use skep_base::access::AccessArgs;
use skep_base::mounted::Link;
use skep_base::namespace::Names;
use skep_base::output::{self, OutputArgs, Row, human};
use skep_base::{Failure, Outcome};
use skep_types::{Capacity, ServiceKind};
use skep_wire::mgmt::{StatusReply, TargetEntry};
use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;

/// Extended attribute of a mount that holds the space of the targets, for users without the key.
const SPACE: &str = "skep.space";

/// Arguments of `skep df`.
#[derive(Debug, Args)]
pub struct DfArgs {
    /// A path on the mount of the cluster that is meant
    path: Option<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Space of one place.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpaceRow {
    /// `metadata`, `target` or `total` (of all targets).
    kind: Cow<'static, str>,
    alias: String,
    node_alias: String,
    /// Is the server heard: `online`, `probably-offline`, `offline`? Figures of one that is away are the last it told. Empty
    /// for the total, and when a mount of a release before tells it.
    #[serde(default)]
    state: Cow<'static, str>,
    bytes: u64,
    bytes_used: u64,
    bytes_free: u64,
    inodes: u64,
    inodes_free: u64,
}

impl SpaceRow {
    fn new(
        kind: &'static str,
        alias: String,
        (node_alias, state): (String, &'static str),
        capacity: Capacity,
    ) -> Self {
        let Capacity { bytes, bytes_free, inodes, inodes_free } = capacity;
        let bytes_used = bytes.saturating_sub(bytes_free);
        let (kind, state) = (kind.into(), state.into());
        Self { kind, alias, node_alias, state, bytes, bytes_used, bytes_free, inodes, inodes_free }
    }

    /// Rounded up, as df(1) does: 0 % means empty.
    fn percent(&self) -> String {
        match self.bytes {
            0 => "-".to_owned(),
            bytes => format!("{}%", (u128::from(self.bytes_used) * 100).div_ceil(u128::from(bytes))),
        }
    }
}

impl Row for SpaceRow {
    const TITLES: &'static [&'static str] =
        &["KIND", "ALIAS", "NODE", "STATE", ">SIZE", ">USED", ">FREE", ">USE", ">INODES", ">FREE INODES"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.kind.to_string(),
            self.alias.clone(),
            self.node_alias.clone(),
            self.state.to_string(),
            human(self.bytes),
            human(self.bytes_used),
            human(self.bytes_free),
            self.percent(),
            self.inodes.to_string(),
            self.inodes_free.to_string(),
        ]
    }
}

/// All of them, the total last.
pub fn rows(status: &StatusReply) -> Vec<SpaceRow> {
    let names = Names::of(status);
    let metadata = status.nodes.iter().filter(|node| node.node.service == ServiceKind::Metad);
    let mut rows: Vec<_> = metadata
        .map(|node| {
            let of = (node.node.alias.clone(), node.node.reachability.as_str());
            SpaceRow::new("metadata", node.node.alias.clone(), of, node.capacity)
        })
        .collect();
    let of = |target: &TargetEntry| (names.node(target.node), names.target_reachability(target));
    rows.extend(target_rows(&status.targets, of));
    rows
}

/// Of the targets, and their total last. `of` tells the alias of a target's server, and whether the target is served.
pub fn target_rows(
    targets: &[TargetEntry],
    of: impl Fn(&TargetEntry) -> (String, &'static str),
) -> Vec<SpaceRow> {
    let row =
        |target: &TargetEntry| SpaceRow::new("target", target.alias.clone(), of(target), target.capacity);
    let mut rows: Vec<_> = targets.iter().map(row).collect();
    // A file system that several targets share is there once.
    let total = space(targets.iter());
    rows.push(SpaceRow::new("total", "total".to_owned(), (String::new(), ""), total));
    rows
}

pub fn run(args: &DfArgs, out: &mut dyn Write) -> Outcome {
    if let Some(value) = through_mount::ask(&args.access, args.path.as_deref(), Link::Followed, SPACE)? {
        let rows: Result<Vec<SpaceRow>, _> = serde_json::from_slice(&value);
        let rows = rows.map_err(|e| Failure::local(SPACE, e))?;
        return Ok(output::rows(args.output.output, &rows, out)?);
    }
    // The figures are the cluster's, whatever the mount is doing.
    let place = match args.access.is_explicit() {
        true => args.access.place_or_named(args.path.as_deref())?,
        false => args.access.place_behind(args.path.as_deref())?,
    };
    let mut cluster = args.access.connect_to(&place)?;
    let status = cluster.status()?;
    if let Some(why) = cluster.doubt() {
        eprintln!("skep: {why} (figures of servers that it has not heard are those from before)");
    }
    Ok(output::rows(args.output.output, &rows(&status), out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: the total is the sum of the targets' file systems, each once, metadata servers apart.
    #[test]
    fn total() {
        let mut status = samples::status();
        status.targets[0].filesystem = 5;
        let mut same = status.targets[0].clone();
        same.target.0 += 10;
        status.targets.push(same);
        let mut second = status.targets[0].clone();
        second.filesystem = 6;
        second.capacity.bytes_free = 0;
        status.targets.push(second);
        let rows = rows(&status);
        let kinds: Vec<_> = rows.iter().map(|row| &*row.kind).collect();
        assert_eq!(kinds, ["metadata", "target", "target", "target", "total"]);
        assert_eq!((rows[4].bytes, rows[4].bytes_free, rows[4].percent()), (2_000, 400, "80%".to_owned()));
        assert_eq!(rows[4].cells().len(), SpaceRow::TITLES.len());
    }

    /// Goal: a target is told to be away when its server is, or when that does not serve it; what a mount of a release before
    /// tells is read.
    #[test]
    fn states() {
        let state = |status: &StatusReply| rows(status).into_iter().map(|row| row.state).collect::<Vec<_>>();
        let mut status = samples::status();
        assert_eq!(state(&status), ["online", "online", ""]);
        status.targets[0].served = false;
        assert_eq!(state(&status), ["online", "offline", ""]);
        status.targets[0].served = true;
        status.nodes[1].node.reachability = skep_types::Reachability::Offline;
        assert_eq!(state(&status), ["online", "offline", ""]);
        let mut before = serde_json::to_value(&rows(&status)[1]).unwrap();
        before.as_object_mut().unwrap().remove("state");
        let read: SpaceRow = serde_json::from_value(before).unwrap();
        assert_eq!((&*read.state, &*read.kind), ("", "target"));
    }
}
