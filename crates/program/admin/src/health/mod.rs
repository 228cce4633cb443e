//! `skep health`: what is wrong, where, and what to do about it.
//!
//! Exit codes: 0 healthy, 1 degraded, 2 down or not reachable, 3 wrong usage or no permission.

mod bench;
mod bundle;
mod cluster;
mod facts;
mod machine;

use clap::{Args, Subcommand};
use serde::Serialize;
use skep_base::access::{AccessArgs, CLUSTER_FILE, Cluster, Place};
use skep_base::mount_table::{self, MountEntry};
use skep_base::output::{self, OutputArgs, Row};
use skep_base::{Failure, Outcome};
use skep_types::ServiceKind;
use skep_wire::mgmt::{NodeEntry, StatusReply};
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Where mounts say what they are when the cluster was not made by `skep up`.
const RUN_DIR: &str = "/run/skep";
/// Exit code of wrong usage and of a key that is not enough.
pub const EXIT_USAGE: u8 = 3;

/// Flags of `skep health`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HealthArgs {
    #[command(subcommand)]
    command: Option<HealthCommand>,
    #[command(flatten)]
    check: CheckArgs,
}

/// `skep health ...`
#[derive(Debug, Subcommand)]
enum HealthCommand {
    /// Pack what somebody who helps needs to know: findings, state, configuration, logs, metrics; no keys
    Bundle(bundle::BundleArgs),
}

/// Flags of `skep health` without a further word.
#[derive(Debug, Args)]
struct CheckArgs {
    /// A path on the mount of the cluster that is meant
    path: Option<PathBuf>,
    /// Show what is fine, too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing, nothing to worry about.
    Note,
    /// It works, but not as it should.
    Warning,
    /// Something is down.
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    verdict: Verdict,
    /// What kind of thing: `mgmtd`, `service`, `node`, `target`, `space`, `shard`, `session`, `mount`.
    check: &'static str,
    subject: String,
    detail: String,
    hint: String,
}

impl Row for Check {
    const TITLES: &'static [&'static str] = &["VERDICT", "CHECK", "SUBJECT", "DETAIL", "WHAT TO DO"];

    fn cells(&self) -> Vec<String> {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Warning => "warning",
            Verdict::Error => "ERROR",
        };
        let text = |text: &String| text.clone();
        vec![
            verdict.to_owned(),
            self.check.to_owned(),
            text(&self.subject),
            text(&self.detail),
            text(&self.hint),
        ]
    }
}

fn check(verdict: Verdict, check: &'static str, subject: &str, detail: String, hint: &str) -> Check {
    Check { verdict, check, subject: subject.to_owned(), detail, hint: hint.to_owned() }
}

fn fine(kind: &'static str, subject: &str, detail: impl Into<String>) -> Check {
    check(Verdict::Ok, kind, subject, detail.into(), "")
}

/// What can be said of the cluster from here, the worst first.
pub fn of_cluster(cluster: &mut Cluster, status: &StatusReply) -> Vec<Check> {
    let doubt = cluster.doubt();
    let told = (status, doubt.as_deref());
    sorted(cluster::checks(cluster, told, Instant::now() + cluster.limit, &|_, _| Vec::new()))
}

fn sorted(mut checks: Vec<Check>) -> Vec<Check> {
    checks.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    checks
}

/// What was found, and whether the key was enough to look.
struct Findings {
    checks: Vec<Check>,
    permitted: bool,
}

/// The directory in which mounts of this cluster leave their notes.
fn run_dir(place: Option<&Place>) -> PathBuf {
    let up_dir = place.and_then(|place| place.cluster.as_ref()?.parent());
    up_dir.map_or_else(|| PathBuf::from(RUN_DIR), |dir| dir.join("run"))
}

/// Which cluster is meant. Where the path lies on a mount that is silent, the flags or its name tell: something else is to be
/// found out all the same, in the other half of the time.
fn place_of(access: &AccessArgs, path: Option<&Path>) -> Outcome<Place> {
    let by_name = |failure: &Failure| !access.is_explicit() && !failure.is_usage();
    let silent = |failure: &Failure| path.filter(|_| by_name(failure)).and_then(mount_by_name);
    access.place_or_named(path).or_else(|failure| match silent(&failure) {
        Some(mount) => access.of_mount(&mount),
        None => Err(failure),
    })
}

fn mount_by_name(path: &Path) -> Option<MountEntry> {
    let plain = std::path::absolute(path)
        .ok()
        .filter(|path| !path.components().any(|part| part == Component::ParentDir))?;
    mount_table::covering(&mount_table::read().ok()?, &plain).filter(|mount| mount.is_skep()).cloned()
}

/// Looks at this machine and at the cluster at once: either may be silent. All of it ends in the time of the flags.
fn look(access: &AccessArgs, path: Option<&Path>) -> Findings {
    let until = Instant::now() + access.timeout.duration();
    let place = place_of(access, path);
    let known = place.as_ref().ok();
    let mgmtd = known.map_or(&[][..], |place| &place.mgmtd);
    let run_dir = run_dir(known);
    std::thread::scope(|scope| {
        let machine =
            scope.spawn(|| machine::checks(&run_dir, mgmtd, until.saturating_duration_since(Instant::now())));
        let Findings { checks, permitted } = look_at_cluster(access, &place, until);
        let mut all = machine.join().unwrap_or_default();
        all.extend(checks);
        Findings { checks: all, permitted }
    })
}

fn look_at_cluster(access: &AccessArgs, place: &Outcome<Place>, until: Instant) -> Findings {
    let refused = |detail: String, hint: &str, permitted| Findings {
        checks: vec![check(Verdict::Error, "mgmtd", "cluster", detail, hint)],
        permitted,
    };
    let connected =
        place.as_ref().map_err(Failure::clone).and_then(|place| Ok((place, access.connect_to(place)?)));
    let (place, mut cluster) = match connected {
        Ok(connected) => connected,
        Err(failure) => return refused(failure.to_string(), "name the cluster and its key", false),
    };
    if cluster.require_admin("health").is_err() {
        let detail = "only this machine was looked at: health of the cluster needs the cluster key, this is that of \
                      a client";
        let hint = "run it on a server, or name the cluster key by --key FILE";
        return refused(detail.to_owned(), hint, false);
    }
    // A quarter is left for the nodes each time, or they would be called silent because mgmtd is slow.
    cluster.limit = until.saturating_duration_since(Instant::now()) * 3 / 4;
    let status = match cluster.status() {
        Ok(status) => status,
        Err(failure) if failure.is_usage() => {
            return refused(failure.to_string(), "name the cluster of the path, or none", false);
        }
        Err(failure) => {
            let ended = ended_by_errors(place);
            let hint = match ended.iter().any(|check| check.subject == "mgmtd") {
                true => "see what mgmtd says".to_owned(),
                false if failure.is_misfit() => {
                    "name the key of this cluster by --key FILE, or see its log".to_owned()
                }
                false => format!("start skep mgmtd, or skep up when the cluster is of {CLUSTER_FILE}"),
            };
            let mut found = refused(failure.to_string(), &hint, true);
            found.checks.extend(ended);
            return found;
        }
    };
    cluster.limit = until.saturating_duration_since(Instant::now()) * 3 / 4;
    let doubt = cluster.doubt();
    let left_by_bench = |node: &NodeEntry, limit| match node.service {
        ServiceKind::Storaged => bench::checks(&cluster, &status, node, limit),
        ServiceKind::Mgmtd | ServiceKind::Metad => Vec::new(),
    };
    let mut checks = cluster::checks(&cluster, (&status, doubt.as_deref()), until, &left_by_bench);
    checks.extend(ended_by_errors(place));
    Findings { checks, permitted: true }
}

/// Servers that `skep up` started on this machine and that ended by an error: started again they would say the same.
fn ended_by_errors(place: &Place) -> Vec<Check> {
    let Some(dir) = place.cluster.as_ref().and_then(|file| file.parent()) else { return Vec::new() };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let hint = format!("put right what it says, then skep up --dir {}", dir.display());
    let told = |(name, error): (String, String)| {
        check(Verdict::Error, "service", &name, format!("does not run: {error}"), &hint)
    };
    crate::up::failed(dir).into_iter().map(told).collect()
}

pub fn run(args: &HealthArgs, out: &mut dyn Write) -> ExitCode {
    match &args.command {
        None => run_checks(&args.check, out),
        Some(HealthCommand::Bundle(args)) => match bundle::run(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("skep: {failure}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run_checks(args: &CheckArgs, out: &mut dyn Write) -> ExitCode {
    let Findings { checks, permitted } = look(&args.access, args.path.as_deref());
    let checks = sorted(checks);
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    let shown: Vec<_> =
        checks.iter().filter(|check| args.all || check.verdict != Verdict::Ok).cloned().collect();
    let written = if args.output.output != output::Format::Table {
        output::rows(args.output.output, &shown, out)
    } else if shown.is_empty() {
        writeln!(out, "healthy: {} checks, nothing to do", checks.len())
    } else {
        out.write_all(text(&shown).as_bytes())
    };
    if let Err(e) = written {
        eprintln!("skep: standard output: {e}");
    }
    ExitCode::from(exit_code(worst, permitted))
}

/// Findings for people: advice is too long for a table.
fn text(checks: &[Check]) -> String {
    checks.iter().fold(String::new(), |text, check| {
        let cells = check.cells();
        let todo =
            if check.hint.is_empty() { String::new() } else { format!("\n         -> {}", check.hint) };
        format!(
            "{text}{:<8} {} {}: {}{todo}\n",
            cells[0],
            check.check,
            check.subject,
            check.detail.replace('\n', " ")
        )
    })
}

fn exit_code(worst: Verdict, permitted: bool) -> u8 {
    match worst {
        _ if !permitted => EXIT_USAGE,
        Verdict::Ok | Verdict::Note => 0,
        Verdict::Warning => 1,
        Verdict::Error => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the documented exit codes.
    #[test]
    fn exit_codes() {
        let codes =
            [Verdict::Ok, Verdict::Note, Verdict::Warning, Verdict::Error].map(|v| exit_code(v, true));
        assert_eq!(codes, [0, 0, 1, 2]);
        assert_eq!(exit_code(Verdict::Ok, false), 3);
    }

    /// Goal: each finding says what, where and what to do.
    #[test]
    fn findings_are_shown() {
        let checks = [check(Verdict::Error, "node", "metad-1", "offline:\nno route".to_owned(), "start it")];
        assert_eq!(text(&checks), "ERROR    node metad-1: offline: no route\n         -> start it\n");
    }
}
