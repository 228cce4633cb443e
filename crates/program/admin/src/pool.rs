//! `skep pool create|list|rename|delete|assign|set-limits`.

use super::pool_limits::{LimitArgs, LimitRow, text_of};
use clap::{Args, Subcommand};
use serde::Serialize;
use skep_base::access::{AccessArgs, Cluster};
use skep_base::find::{self, NO_POOL};
use skep_base::output::{self, OutputArgs, Row, human};
use skep_base::{Failure, Outcome};
use skep_types::{Capacity, CapacityClass, PoolId};
use skep_wire::mgmt::{
    AssignTargets, CreatePool, DeletePool, PoolStatus, RenamePool, SetCapacityLimits, StatusReply,
    TargetEntry,
};
use std::collections::BTreeMap;
use std::io::Write;

/// `skep pool ...`
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List the pools with their targets' space and limits
    List(ListArgs),
    /// Make a pool
    Create(CreateArgs),
    /// Give a pool another alias
    Rename(RenameArgs),
    /// Delete a pool that has no targets
    Delete(DeleteArgs),
    /// Move targets to a pool; files stay where they are, new ones follow the pools
    Assign(AssignArgs),
    /// Say when the targets of a pool count as low on space
    SetLimits(SetLimitsArgs),
}

/// Flags of `skep pool list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep pool create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Alias of the new pool
    alias: String,
    /// Targets to move there, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "TARGET")]
    targets: Vec<String>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep pool rename`.
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// Alias or number of the pool
    pool: String,
    /// Its new alias
    alias: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep pool delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Alias or number of the pool
    pool: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep pool assign`.
#[derive(Debug, Args)]
pub struct AssignArgs {
    /// Alias or number of the pool; "none": nothing new is put on the targets any more
    pool: String,
    /// Aliases or numbers of the targets
    #[arg(required = true)]
    targets: Vec<String>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep pool set-limits`.
#[derive(Debug, Args)]
pub struct SetLimitsArgs {
    /// Alias or number of the pool
    pool: String,
    #[command(flatten)]
    limits: LimitArgs,
    /// Back to the defaults; other flags count on top of them
    #[arg(long)]
    default: bool,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A pool.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolRow {
    id: u32,
    alias: String,
    targets: usize,
    targets_normal: usize,
    targets_low: usize,
    targets_emergency: usize,
    /// Of the file systems of its targets, each counted once.
    bytes: u64,
    bytes_free: u64,
    inodes: u64,
    inodes_free: u64,
    limits: LimitRow,
    #[serde(skip)]
    limits_text: String,
}

impl Row for PoolRow {
    const TITLES: &'static [&'static str] = &[
        ">ID",
        "ALIAS",
        ">TARGETS",
        ">NORMAL",
        ">LOW",
        ">EMERGENCY",
        ">SIZE",
        ">FREE",
        ">FREE INODES",
        "LIMITS",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.alias.clone(),
            self.targets.to_string(),
            self.targets_normal.to_string(),
            self.targets_low.to_string(),
            self.targets_emergency.to_string(),
            human(self.bytes),
            human(self.bytes_free),
            self.inodes_free.to_string(),
            self.limits_text.clone(),
        ]
    }
}

/// Space of these targets: a file system that several of them share is counted once.
pub fn space<'a>(targets: impl Iterator<Item = &'a TargetEntry>) -> Capacity {
    let mut disks: BTreeMap<(u64, u32), Capacity> = BTreeMap::new();
    for target in targets {
        // One whose daemon told no file system counts for itself.
        let alone = if target.filesystem == 0 { target.target.0 } else { 0 };
        disks.entry((target.filesystem, alone)).or_insert(target.capacity);
    }
    disks.values().fold(Capacity::default(), |sum, one| Capacity {
        bytes: sum.bytes.saturating_add(one.bytes),
        bytes_free: sum.bytes_free.saturating_add(one.bytes_free),
        inodes: sum.inodes.saturating_add(one.inodes),
        inodes_free: sum.inodes_free.saturating_add(one.inodes_free),
    })
}

fn row(status: &StatusReply, pool: &PoolStatus) -> PoolRow {
    let members = || status.targets.iter().filter(|target| target.pool == pool.pool.pool);
    let of = |class| members().filter(|target| target.class == class).count();
    let space = space(members());
    PoolRow {
        id: pool.pool.pool.0,
        alias: pool.pool.alias.clone(),
        targets: members().count(),
        targets_normal: of(CapacityClass::Normal),
        targets_low: of(CapacityClass::Low),
        targets_emergency: of(CapacityClass::Emergency),
        bytes: space.bytes,
        bytes_free: space.bytes_free,
        inodes: space.inodes,
        inodes_free: space.inodes_free,
        limits: LimitRow::new(&pool.limits),
        limits_text: text_of(&pool.limits),
    }
}

/// Programs get the changed pool; people were told in words.
fn show(cluster: &mut Cluster, pool: PoolId, output: OutputArgs, out: &mut dyn Write) -> Outcome {
    if output.output == output::Format::Table {
        return Ok(());
    }
    let status = cluster.status()?;
    let rows: Vec<_> =
        status.pools.iter().filter(|one| one.pool.pool == pool).map(|one| row(&status, one)).collect();
    Ok(output::rows(output.output, &rows, out)?)
}

fn administer(access: &AccessArgs) -> Outcome<(Cluster, StatusReply)> {
    let mut cluster = access.connect(None)?;
    cluster.require_admin("changing pools")?;
    let status = cluster.status()?;
    Ok((cluster, status))
}

fn create(args: &CreateArgs, out: &mut dyn Write) -> Outcome {
    if args.alias == NO_POOL {
        return Err(Failure::new(format!("\"{NO_POOL}\" means no pool at all; choose another alias")));
    }
    let (mut cluster, status) = administer(&args.access)?;
    let found = find::targets(&status, &args.targets)?;
    let limits = args.limits.over(skep_wire::mgmt::CapacityLimits::default());
    let targets = found.iter().map(|target| target.target).collect();
    let made = cluster.ask(&CreatePool { alias: args.alias.clone(), targets, limits })?;
    let count = found.len();
    eprintln!("pool {} is made (number {}), with {count} targets", args.alias, made.pool);
    if count == 0 {
        eprintln!("note: move targets there: skep pool assign {} TARGET...", args.alias);
    }
    show(&mut cluster, made.pool, args.output, out)
}

fn rename(args: &RenameArgs, out: &mut dyn Write) -> Outcome {
    if args.alias == NO_POOL {
        return Err(Failure::new(format!("\"{NO_POOL}\" means no pool at all; choose another alias")));
    }
    let (mut cluster, status) = administer(&args.access)?;
    let pool = find::pool(&status, &args.pool)?.pool.clone();
    cluster.ask(&RenamePool { pool: pool.pool, alias: args.alias.clone() })?;
    eprintln!("pool {} is called {} from now on", pool.alias, args.alias);
    show(&mut cluster, pool.pool, args.output, out)
}

fn delete(args: &DeleteArgs, out: &mut dyn Write) -> Outcome {
    let (mut cluster, status) = administer(&args.access)?;
    let pool = find::pool(&status, &args.pool)?;
    cluster.ask(&DeletePool { pool: pool.pool.pool })?;
    let alias = &pool.pool.alias;
    eprintln!("pool {alias} is deleted; its files stay where they are");
    eprintln!(
        "note: directories that name it give ENOSPC to new files that need chunks, until they name another \
         pool: skep entry set --recursive --pool POOL DIR"
    );
    match args.output.output {
        output::Format::Table => Ok(()),
        format => Ok(output::rows(format, &[row(&status, pool)], out)?),
    }
}

fn assign(args: &AssignArgs, out: &mut dyn Write) -> Outcome {
    let (mut cluster, status) = administer(&args.access)?;
    let to = match args.pool.as_str() {
        NO_POOL => PoolId(0),
        text => find::pool(&status, text)?.pool.pool,
    };
    let found = find::targets(&status, &args.targets)?;
    cluster.ask(&AssignTargets { pool: to, targets: found.iter().map(|target| target.target).collect() })?;
    for target in &found {
        let (alias, now) = (&target.alias, find::pool_alias(&status, to));
        match target.pool {
            same if same == to => eprintln!("{alias} is in pool {now} already"),
            from => eprintln!("{alias}: from pool {} to {now}", find::pool_alias(&status, from)),
        }
    }
    for from in found.iter().map(|target| target.pool).filter(|from| *from != to) {
        let left = |target: &&TargetEntry| {
            target.pool == from && !found.iter().any(|moved| moved.target == target.target)
        };
        if from != PoolId(0) && !status.targets.iter().any(|target| left(&target)) {
            let alias = find::pool_alias(&status, from);
            eprintln!("note: pool {alias} has no target left: new files of its directories get ENOSPC");
            break;
        }
    }
    show(&mut cluster, to, args.output, out)
}

fn set_limits(args: &SetLimitsArgs, out: &mut dyn Write) -> Outcome {
    if !args.default && args.limits.is_empty() {
        return Err(Failure::new("nothing to set; give limits, such as --space-low 1TiB, or --default"));
    }
    let (mut cluster, status) = administer(&args.access)?;
    let pool = find::pool(&status, &args.pool)?;
    let now = if args.default { Default::default() } else { pool.limits };
    let limits = args.limits.over(now);
    cluster.ask(&SetCapacityLimits { pool: pool.pool.pool, limits })?;
    eprintln!("pool {}: {}", pool.pool.alias, text_of(&limits));
    show(&mut cluster, pool.pool.pool, args.output, out)
}

/// All pools.
pub fn rows(status: &StatusReply) -> Vec<PoolRow> {
    status.pools.iter().map(|pool| row(status, pool)).collect()
}

pub fn run(command: &PoolCommand, out: &mut dyn Write) -> Outcome {
    match command {
        PoolCommand::List(args) => {
            let status = args.access.connect(None)?.status()?;
            Ok(output::rows(args.output.output, &rows(&status), out)?)
        }
        PoolCommand::Create(args) => create(args, out),
        PoolCommand::Rename(args) => rename(args, out),
        PoolCommand::Delete(args) => delete(args, out),
        PoolCommand::Assign(args) => assign(args, out),
        PoolCommand::SetLimits(args) => set_limits(args, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: a disk with two targets counts once, targets that tell no file system each for themselves;
    /// the field names are the released ones.
    #[test]
    fn space_of_a_pool() {
        let mut status = samples::status();
        let first = TargetEntry { filesystem: 7, ..status.targets[0].clone() };
        let second = TargetEntry { class: CapacityClass::Low, ..first.clone() };
        let unknown = TargetEntry { filesystem: 0, target: skep_types::TargetId(103), ..first.clone() };
        let elsewhere = TargetEntry { pool: PoolId(2), filesystem: 9, ..first.clone() };
        status.targets = vec![first, second, unknown, elsewhere];
        let row = row(&status, &status.pools[0]);
        assert_eq!((row.targets, row.targets_normal, row.targets_low), (3, 2, 1));
        assert_eq!((row.bytes, row.bytes_free, row.inodes_free), (2_000, 800, 10));
        assert_eq!(row.cells().len(), PoolRow::TITLES.len());
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((&json["alias"], &json["limits"]["dynamic"]), (&"default".into(), &false.into()));
        assert_eq!(json["limits"]["space_low"], serde_json::Value::Null);
    }
}
