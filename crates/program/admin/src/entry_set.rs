//! `skep entry set`: what new files follow, for one entry or a whole tree of directories.

use super::entry_walk::{Tally, Walk};
use clap::{Args, ValueEnum};
use serde::Serialize;
use skep_base::access::AccessArgs;
use skep_base::find;
use skep_base::namespace::{DEFAULT_POOL, Namespace, available};
use skep_base::output::{self, Format, OutputArgs, Row, human};
use skep_base::units::Size;
use skep_base::{Failure, Outcome};
use skep_types::limits::TARGETS_MAX;
use skep_types::{Ino, Kind, Policy, PoolId};
use skep_wire::meta::{Inspect, SetPolicy};
use skep_wire::mgmt::StatusReply;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Arguments of `skep entry set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Paths, as for `entry info`
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Also every directory below (files that have chunks keep their layout)
    #[arg(long, short = 'r')]
    recursive: bool,
    /// Bytes of a chunk, a power of two from 64KiB on
    #[arg(long, visible_alias = "chunk", value_name = "SIZE")]
    chunk_size: Option<Power>,
    /// Targets of a file: a number, or "progressive" (more as the file grows)
    #[arg(long, value_name = "N")]
    targets: Option<Targets>,
    /// Storage pool that the targets are taken from, by alias or number
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Largest file kept in the metadata; 0: none
    #[arg(long, visible_alias = "inline", value_name = "SIZE")]
    inline_limit: Option<Size>,
    /// Where directories that are made in these directories live: "parent" (on the same metadata shard), or "spread" (each
    /// on a shard of its own, with all that is made below it)
    #[arg(long, value_name = "HOW", value_enum)]
    placement: Option<Placement>,
    /// Back to the defaults of the cluster
    #[arg(long, conflicts_with_all = ["chunk_size", "targets", "pool", "inline_limit", "placement"])]
    default: bool,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Value of `--placement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Placement {
    Parent,
    Spread,
}

/// Value of `--targets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Targets(u32);

impl FromStr for Targets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u32>() {
            _ if text == "progressive" => Ok(Self(0)),
            Ok(count) if count >= 1 && count as usize <= TARGETS_MAX => Ok(Self(count)),
            _ => Err(format!("write \"progressive\" or a number from 1 to {TARGETS_MAX}")),
        }
    }
}

/// A size of which only powers of two are legal: "4M" can mean nothing else than 4 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Power(Size);

impl FromStr for Power {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let short = text.trim_end().ends_with(['k', 'K', 'm', 'M', 'g', 'G']);
        let size = if short { format!("{}iB", text.trim_end()).parse() } else { text.parse::<Size>() };
        size.map(Self).map_err(|e| e.to_string())
    }
}

/// What was asked for, names resolved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    default: bool,
    chunk_size: Option<u32>,
    targets: Option<u32>,
    pool: Option<PoolId>,
    inline_limit: Option<u32>,
    spread: Option<bool>,
}

impl Wish {
    /// The wish laid over what holds.
    pub fn over(&self, now: Policy) -> Policy {
        if self.default {
            return Policy::default();
        }
        Policy {
            chunk_size: self.chunk_size.unwrap_or(now.chunk_size),
            targets: self.targets.unwrap_or(now.targets),
            inline_limit: self.inline_limit.or(now.inline_limit),
            pool: self.pool.unwrap_or(now.pool),
        }
    }
}

impl SetArgs {
    fn wish(&self, status: &StatusReply) -> Outcome<Wish> {
        let nothing = self.chunk_size.is_none() && self.targets.is_none() && self.inline_limit.is_none();
        if nothing && self.pool.is_none() && self.placement.is_none() && !self.default {
            return Err(Failure::new(
                "nothing to set; give --chunk-size, --targets, --pool, --inline-limit, --placement or --default",
            ));
        }
        let fits = |name: &str, size: Option<Size>| {
            let number = |size: Size| {
                u32::try_from(size.bytes()).map_err(|_| Failure::new(format!("{name} {size} is too large")))
            };
            size.map(number).transpose()
        };
        let pool = self.pool.as_deref().map(|text| find::pool(status, text)).transpose()?;
        Ok(Wish {
            default: self.default,
            chunk_size: fits("--chunk-size", self.chunk_size.map(|size| size.0))?,
            targets: self.targets.map(|targets| targets.0),
            pool: pool.map(|pool| pool.pool.pool),
            inline_limit: fits("--inline-limit", self.inline_limit)?,
            spread: if self.default {
                Some(false)
            } else {
                self.placement.map(|how| how == Placement::Spread)
            },
        })
    }
}

/// Sets it on one entry; gives what holds from now on.
pub fn set_one(namespace: &mut Namespace, ino: Ino, wish: &Wish) -> Outcome<(Kind, Policy)> {
    let now = namespace.ask(ino, &Inspect { ino })?;
    let policy = wish.over(now.policy);
    // A wish that is inherited becomes the entry's own; one that it has already stays untouched.
    let has = now.policy == policy && now.policy_is_own == (policy != Policy::default());
    // Only directories can spread, and by default none does.
    let spread = wish.spread.filter(|spread| *spread != now.spread);
    if !has || spread.is_some() {
        namespace.ask(ino, &SetPolicy { ino, policy, spread })?;
    }
    Ok((now.attr.kind, policy))
}

/// One path of the command line.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetRow {
    path: String,
    /// Directories that it was set on, the path itself among them (1 for a file).
    entries: u64,
    failed: u64,
    /// Absent: the cluster's default.
    chunk_size: Option<u32>,
    /// Absent: progressive.
    targets: Option<u32>,
    /// Targets of the pool that can take new files now.
    targets_available: usize,
    pool: u32,
    pool_alias: String,
    /// Absent: the cluster's default.
    inline_limit: Option<u32>,
}

impl SetRow {
    /// What holds from now on, for people.
    fn said(&self, recursive: bool) -> String {
        let size = |size: Option<u32>| size.map_or("default".to_owned(), |size| human(u64::from(size)));
        let targets = self.targets.map_or("progressive".to_owned(), |targets| targets.to_string());
        let below = match self.entries {
            _ if !recursive => String::new(),
            1 => ", on 1 directory".to_owned(),
            many => format!(", on {many} directories"),
        };
        let (chunk, inline) = (size(self.chunk_size), size(self.inline_limit));
        format!(
            "{}: chunk {chunk}, targets {targets}, pool {}, inline {inline}{below}",
            self.path, self.pool_alias
        )
    }
}

impl Row for SetRow {
    const TITLES: &'static [&'static str] =
        &["PATH", ">ENTRIES", ">FAILED", ">CHUNK", ">TARGETS", ">AVAILABLE", "POOL", ">INLINE"];

    fn cells(&self) -> Vec<String> {
        let size = |size: Option<u32>| size.map_or("default".to_owned(), |size| human(u64::from(size)));
        vec![
            self.path.clone(),
            self.entries.to_string(),
            self.failed.to_string(),
            size(self.chunk_size),
            self.targets.map_or("progressive".to_owned(), |targets| targets.to_string()),
            self.targets_available.to_string(),
            self.pool_alias.clone(),
            size(self.inline_limit),
        ]
    }
}

fn row(status: &StatusReply, path: &Path, policy: &Policy, tally: Tally) -> SetRow {
    let given = |value: u32| (value != 0).then_some(value);
    let pool = if policy.pool == PoolId(0) { DEFAULT_POOL } else { policy.pool };
    SetRow {
        path: path.display().to_string(),
        entries: tally.done,
        failed: tally.failed,
        chunk_size: given(policy.chunk_size),
        targets: given(policy.targets),
        targets_available: available(status, pool) as usize,
        pool: pool.0,
        pool_alias: find::pool_alias(status, pool),
        inline_limit: policy.inline_limit,
    }
}

fn set(args: &SetArgs, path: &Path) -> Outcome<SetRow> {
    let mut namespace = Namespace::connect(&args.access, path)?;
    let wish = args.wish(&namespace.status)?;
    let ino = namespace.resolve(path)?;
    let named = |e: Failure| Failure::new(format!("{}: {e}", path.display()));
    let (kind, policy) = set_one(&mut namespace, ino, &wish).map_err(named)?;
    let mut tally = Tally { done: 1, failed: 0 };
    if args.recursive && kind == Kind::Dir {
        let below = Walk::new(&args.access, path, wish, namespace.status.cluster).below(ino)?;
        tally = Tally { done: below.done + 1, failed: below.failed };
    }
    let row = row(&namespace.status, path, &policy, tally);
    if policy.targets as usize > row.targets_available {
        eprintln!(
            "note: {}: {} targets wanted, pool {} has {}: files get as many as there are",
            path.display(),
            policy.targets,
            row.pool_alias,
            row.targets_available
        );
    }
    if row.targets_available == 0 {
        eprintln!("note: pool {} takes no new files now: ENOSPC", row.pool_alias);
    }
    Ok(row)
}

/// Does it: every path, also after one failed.
pub fn run(args: &SetArgs, out: &mut dyn Write) -> Outcome {
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for path in &args.paths {
        match set(args, path) {
            Ok(row) => rows.push(row),
            Err(failure) => failures.push(failure),
        }
    }
    if args.output.output != Format::Table {
        output::rows(args.output.output, &rows, out)?;
    } else {
        rows.iter().for_each(|row| eprintln!("{}", row.said(args.recursive)));
    }
    let below: u64 = rows.iter().map(|row| row.failed).sum();
    if below > 0 {
        failures.push(Failure::new(format!(
            "{below} directories could not be set or listed (see above); the others are: run the command again"
        )));
    }
    match failures.split_last() {
        None => Ok(()),
        Some((last, before)) => {
            before.iter().for_each(|failure| eprintln!("skep: {failure}"));
            Err(last.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use skep_base::namespace::samples;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SetArgs,
    }

    fn line(words: &[&str]) -> Result<SetArgs, String> {
        let words = ["set", "/x"].iter().chain(words);
        Line::try_parse_from(words).map(|line| line.args).map_err(|e| e.to_string())
    }

    /// Goal: people are told what holds now, in the words of the flags, with names and in the singular of one.
    #[test]
    fn what_holds_is_said() {
        let status = samples::status();
        let policy = Policy { chunk_size: 1 << 20, targets: 4, inline_limit: Some(0), pool: PoolId(1) };
        let said = |entries: u64, recursive: bool| {
            row(&status, Path::new("/d"), &policy, Tally { done: entries, failed: 0 }).said(recursive)
        };
        assert_eq!(said(1, false), "/d: chunk 1.00 MiB, targets 4, pool default, inline 0 B");
        assert!(said(1, true).ends_with(", on 1 directory"));
        assert!(said(2, true).ends_with(", on 2 directories"));
    }

    /// Goal: what is not given stays, `--default` clears, nonsense is refused with the right form.
    #[test]
    fn policies() {
        let status = samples::status();
        let now = Policy { chunk_size: 1 << 20, targets: 4, inline_limit: Some(0), pool: PoolId(2) };
        let policy = |words: &[&str]| line(words).unwrap().wish(&status).map(|wish| wish.over(now));
        assert_eq!(policy(&["--chunk-size", "512KiB"]), Ok(Policy { chunk_size: 512 << 10, ..now }));
        assert_eq!(policy(&["--chunk", "4M"]), Ok(Policy { chunk_size: 4 << 20, ..now }));
        assert_eq!(policy(&["--chunk", "512k"]), Ok(Policy { chunk_size: 512 << 10, ..now }));
        assert!(line(&["--chunk-size", "4X"]).is_err() && line(&["--chunk-size", "M"]).is_err());
        assert_eq!(policy(&["--chunk", "512KiB"]), Ok(Policy { chunk_size: 512 << 10, ..now }));
        assert_eq!(policy(&["--targets", "progressive"]), Ok(Policy { targets: 0, ..now }));
        assert_eq!(policy(&["--inline", "4KiB"]), Ok(Policy { inline_limit: Some(4096), ..now }));
        assert_eq!(policy(&["--pool", "default"]), Ok(Policy { pool: PoolId(1), ..now }));
        assert!(policy(&["--pool", "defualt"]).unwrap_err().to_string().contains("did you mean"));
        assert_eq!(policy(&["--default"]), Ok(Policy::default()));
        assert!(policy(&[]).unwrap_err().to_string().contains("--chunk-size"));
        assert!(policy(&["--chunk-size", "8GiB"]).is_err());
        for wrong in ["0", "257", "all"] {
            assert!(line(&["--targets", wrong]).unwrap_err().contains("progressive"), "{wrong}");
        }
        assert!(line(&["--default", "--targets", "2"]).is_err());
    }

    /// Goal: no wish means the default pool.
    #[test]
    fn rows_name_the_pool() {
        let tally = Tally { done: 1, failed: 0 };
        let row = row(&samples::status(), Path::new("/x"), &Policy::default(), tally);
        assert_eq!((row.pool, row.pool_alias.as_str(), row.targets), (1, "default", None));
        assert_eq!(row.cells().len(), SetRow::TITLES.len());
    }
}
