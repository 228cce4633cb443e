//! `skep target list|set-alias|set-state|remove`.

use super::confirm;
use super::target_removal::{self, RemoveArgs};
use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use skep_base::Outcome;
use skep_base::access::{AccessArgs, Cluster};
use skep_base::find;
use skep_base::namespace::Names;
use skep_base::output::{self, OutputArgs, Row, human};
use skep_types::{Consistency, TargetId};
use skep_wire::mgmt::{SetTargetAlias, SetTargetState, StatusReply, TargetEntry};
use std::io::Write;

/// `skep target ...`
#[derive(Debug, Subcommand)]
pub enum TargetCommand {
    /// List the targets
    List(ListArgs),
    /// Give a target another alias
    SetAlias(SetAliasArgs),
    /// Say what a target's content is worth (a disk that failed stays bad until you do)
    SetState(SetStateArgs),
    /// Take a target that holds nothing any more out of the cluster, for ever
    Remove(RemoveArgs),
}

/// Flags of `skep target list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those of this pool ("none": those of no pool)
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep target set-alias`.
#[derive(Debug, Args)]
pub struct SetAliasArgs {
    /// Alias or number of the target
    target: String,
    /// Its new alias
    alias: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep target set-state`.
#[derive(Debug, Args)]
pub struct SetStateArgs {
    /// Alias or number of the target
    target: String,
    /// Its state
    state: State,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// States that an administrator may give.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its content can be trusted
    Good,
    /// It missed changes
    NeedsResync,
    /// Its disk failed
    Bad,
}

/// A target.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetRow {
    id: u32,
    alias: String,
    node: u32,
    node_alias: String,
    reachability: &'static str,
    consistency: &'static str,
    /// 0: none, so nothing new is put on it.
    pool: u32,
    pool_alias: String,
    /// `normal`, `low` or `emergency`, by the limits of its pool.
    class: &'static str,
    /// What fails together with it.
    domain: String,
    /// Targets with the same one share a file system; empty: its daemon did not tell.
    filesystem: String,
    bytes: u64,
    bytes_free: u64,
    inodes: u64,
    inodes_free: u64,
}

impl Row for TargetRow {
    const TITLES: &'static [&'static str] = &[
        ">ID",
        "ALIAS",
        "NODE",
        "REACHABILITY",
        "CONSISTENCY",
        "POOL",
        "CLASS",
        ">SIZE",
        ">FREE",
        ">FREE INODES",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.alias.clone(),
            self.node_alias.clone(),
            self.reachability.to_owned(),
            self.consistency.to_owned(),
            self.pool_alias.clone(),
            self.class.to_owned(),
            human(self.bytes),
            human(self.bytes_free),
            self.inodes_free.to_string(),
        ]
    }
}

/// The row of a target.
pub fn row(status: &StatusReply, target: &TargetEntry) -> TargetRow {
    let names = Names::of(status);
    TargetRow {
        id: target.target.0,
        alias: target.alias.clone(),
        node: target.node.0,
        node_alias: names.node(target.node),
        reachability: names.target_reachability(target),
        consistency: target.consistency.as_str(),
        pool: target.pool.0,
        pool_alias: find::pool_alias(status, target.pool),
        class: target.class.as_str(),
        domain: names.entry(target.node).map_or_else(String::new, |node| node.domain.clone()),
        filesystem: match target.filesystem {
            0 => String::new(),
            told => format!("{told:016x}"),
        },
        bytes: target.capacity.bytes,
        bytes_free: target.capacity.bytes_free,
        inodes: target.capacity.inodes,
        inodes_free: target.capacity.inodes_free,
    }
}

/// Programs get the changed target; people were told in words.
fn show(cluster: &mut Cluster, target: TargetId, output: OutputArgs, out: &mut dyn Write) -> Outcome {
    if output.output == output::Format::Table {
        return Ok(());
    }
    let status = cluster.status()?;
    let rows: Vec<_> =
        status.targets.iter().filter(|one| one.target == target).map(|one| row(&status, one)).collect();
    Ok(output::rows(output.output, &rows, out)?)
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Outcome {
    let status = args.access.connect(None)?.status()?;
    let pool = match args.pool.as_deref() {
        None => None,
        Some(find::NO_POOL) => Some(skep_types::PoolId(0)),
        Some(text) => Some(find::pool(&status, text)?.pool.pool),
    };
    let wanted = status.targets.iter().filter(|target| pool.is_none_or(|pool| target.pool == pool));
    let rows: Vec<_> = wanted.map(|target| row(&status, target)).collect();
    Ok(output::rows(args.output.output, &rows, out)?)
}

fn set_alias(args: &SetAliasArgs, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("changing a target")?;
    let status = cluster.status()?;
    let target = find::target(&status, &args.target)?;
    cluster.ask(&SetTargetAlias { target: target.target, alias: args.alias.clone() })?;
    eprintln!("target {} is called {} from now on", target.alias, args.alias);
    show(&mut cluster, target.target, args.output, out)
}

fn set_state(args: &SetStateArgs, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("changing a target")?;
    let target = find::target(&cluster.status()?, &args.target)?.target;
    let consistency = Consistency::from(args.state);
    if consistency == Consistency::Bad {
        confirm::ask(
            &format!("target {} is not served any more: its files give EIO there", args.target),
            args.yes,
        )?;
    }
    cluster.ask(&SetTargetState { target, consistency })?;
    eprintln!("target {} is {}", args.target, consistency.as_str());
    show(&mut cluster, target, args.output, out)
}

impl From<State> for Consistency {
    fn from(state: State) -> Self {
        match state {
            State::Good => Self::Good,
            State::NeedsResync => Self::NeedsResync,
            State::Bad => Self::Bad,
        }
    }
}

/// All targets.
pub fn rows(status: &StatusReply) -> Vec<TargetRow> {
    status.targets.iter().map(|target| row(status, target)).collect()
}

pub fn run(command: &TargetCommand, out: &mut dyn Write) -> Outcome {
    match command {
        TargetCommand::List(args) => list(args, out),
        TargetCommand::SetAlias(args) => set_alias(args, out),
        TargetCommand::SetState(args) => set_state(args, out),
        TargetCommand::Remove(args) => target_removal::run(args, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: the row's names are the released ones, with a cell for every title.
    #[test]
    fn field_names() {
        let status = samples::status();
        let row = row(&status, &status.targets[0]);
        assert_eq!(row.cells().len(), TargetRow::TITLES.len());
        let json = serde_json::to_string(&row).unwrap();
        assert!(json.starts_with(
            r#"{"id":101,"alias":"target-101","node":2,"node_alias":"storaged-2","reachability":"#
        ));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(
            (&json["pool"], &json["pool_alias"], &json["class"]),
            (&1.into(), &"default".into(), &"normal".into())
        );
        assert_eq!(json["filesystem"], "", "not told");
    }
}
