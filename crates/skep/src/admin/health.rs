//! `skep health`: what is wrong, and what to do about it.

use super::access::{AccessArgs, CLUSTER_FILE, Cluster};
use super::failure::{Failure, Outcome};
use super::mount_table;
use super::namespace::Names;
use crate::cli::output::{self, OutputArgs, Row, human};
use clap::Args;
use serde::{Deserialize, Serialize};
use skep_types::{Capacity, Consistency, Reachability, ServiceKind};
use skep_wire::meta::ShardStats;
use skep_wire::mgmt::{NodeEntry, StatusReply};
use skep_wire::storage::TargetStats;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

/// A service or mount that takes longer to answer does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Nodes that are asked at the same time.
const ASKED_AT_ONCE: usize = 32;
/// Less free than this share (1/20) is worth a warning ...
const LOW_SHARE: u64 = 20;
/// ... and less than this one (1/100) an error.
const EMERGENCY_SHARE: u64 = 100;
/// Where mounts say what they are when the cluster was not made by `skep up`.
const RUN_DIR: &str = "/run/skep";

/// Flags of `skep health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
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
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Worth knowing, nothing to worry about.
    Note,
    Warning,
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    verdict: Verdict,
    /// What kind of thing: `mgmtd`, `node`, `target`, `space`, `shard`, `session`, `mount`.
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

/// Asks one daemon directly: mgmtd may hear a node that clients cannot reach.
fn ping(cluster: &Cluster, status: &StatusReply, node: &NodeEntry) -> Outcome {
    let mut link = cluster.node(node);
    link.limit = link.limit.min(ANSWER_LIMIT);
    match node.service {
        ServiceKind::Mgmtd => Ok(()),
        ServiceKind::Storaged => link.ask(&TargetStats {}).map(|_| ()),
        ServiceKind::Metad => {
            let led = status.shards.iter().find(|shard| shard.replicas.first() == Some(&node.node));
            let shard = led.map(|led| led.shard).unwrap_or_default();
            link.ask_shard(shard, &ShardStats {}).map(|_| ()).map_err(|e| Failure::call(&node.alias, &e))
        }
    }
}

fn node_check(node: &NodeEntry, answer: Outcome) -> Check {
    let service = node.service.as_str();
    let subject = node.alias.as_str();
    match (node.reachability, answer) {
        (Reachability::Online, Ok(())) => fine("node", subject, "online, answers"),
        (Reachability::Online, Err(failure)) => {
            let hint =
                "mgmtd hears it, this machine does not reach it: check firewall, routes and its addresses";
            check(Verdict::Error, "node", subject, failure.to_string(), hint)
        }
        (state, Ok(())) => {
            let hint = "it answers but does not reach mgmtd: check its log and the mgmtd addresses in its configuration";
            check(Verdict::Warning, "node", subject, state.as_str().to_owned(), hint)
        }
        (state, Err(failure)) => {
            let hint = format!("start skep {service} there, or look into its log");
            check(Verdict::Error, "node", subject, format!("{}: {failure}", state.as_str()), &hint)
        }
    }
}

fn space_check(subject: &str, capacity: Capacity) -> Check {
    let Capacity { bytes, bytes_free, inodes, inodes_free } = capacity;
    if bytes == 0 {
        return fine("space", subject, "not reported yet");
    }
    let scarce = |free: u64, all: u64, share: u64| u128::from(free) * u128::from(share) < u128::from(all);
    let below = |share| scarce(bytes_free, bytes, share) || scarce(inodes_free, inodes, share);
    let verdict = match () {
        () if below(EMERGENCY_SHARE) => Verdict::Error,
        () if below(LOW_SHARE) => Verdict::Warning,
        () => Verdict::Ok,
    };
    let detail = format!("{} of {} and {inodes_free} inodes free", human(bytes_free), human(bytes));
    let hint = if verdict == Verdict::Ok { "" } else { "remove files, enlarge the disk, or add a target" };
    check(verdict, "space", subject, detail, hint)
}

fn registry_checks(status: &StatusReply) -> Vec<Check> {
    let names = Names::of(status);
    let mut checks = Vec::new();
    for target in &status.targets {
        let subject = target.alias.as_str();
        checks.push(match target.consistency {
            Consistency::Good => fine("target", subject, "good"),
            Consistency::NeedsResync => check(
                Verdict::Warning,
                "target",
                subject,
                "needs resync".to_owned(),
                "wait until it has caught up",
            ),
            Consistency::Bad => check(
                Verdict::Error,
                "target",
                subject,
                format!("bad: its disk failed on {}", names.node(target.node)),
                "check the disk; once it can be trusted: skep target set-state",
            ),
        });
        checks.push(space_check(subject, target.capacity));
    }
    if status.targets.is_empty() {
        let hint = "start skep storaged with a target; until then only small files can be written";
        checks.push(check(Verdict::Error, "target", "cluster", "no targets".to_owned(), hint));
    }
    for node in status.nodes.iter().filter(|node| node.node.service == ServiceKind::Metad) {
        checks.push(space_check(&node.node.alias, node.capacity));
    }
    checks.push(shard_check(status));
    checks
}

fn shard_check(status: &StatusReply) -> Check {
    let names = Names::of(status);
    let orphans = status.shards.iter().filter(|shard| {
        let leader = shard.replicas.first().and_then(|node| names.entry(*node));
        leader.is_none_or(|leader| leader.reachability == Reachability::Offline)
    });
    let (all, orphans) = (status.shards.len(), orphans.count());
    match orphans {
        0 => fine("shard", "all", format!("{all} shards, each has its server")),
        _ => {
            let detail = format!("{orphans} of {all} shards have no server that is online");
            check(Verdict::Error, "shard", "namespace", detail, "start the metadata servers: skep node list")
        }
    }
}

/// What a mount writes about itself into its run directory, as `mount-<pid>.toml`.
#[derive(Debug, Deserialize)]
struct MountNote {
    mount_point: PathBuf,
    pid: u32,
    /// What this kernel's FUSE lacks, and what it costs.
    #[serde(default)]
    lost: Vec<String>,
    /// How it gets its requests from the kernel.
    #[serde(default)]
    transport: String,
}

fn mount_notes(run_dir: &Path) -> Vec<MountNote> {
    let entries = std::fs::read_dir(run_dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("mount-") && name.ends_with(".toml")
    });
    let note = |entry: std::fs::DirEntry| toml::from_str(&std::fs::read_to_string(entry.path()).ok()?).ok();
    ours.filter_map(note).filter(|note: &MountNote| crate::up::process_exists(note.pid)).collect()
}

/// Does the mount answer? Asked by a thread: a hanging mount must not hang the command.
fn mount_check(point: &Path) -> Check {
    let (tell, told) = mpsc::channel();
    let asked = point.to_owned();
    let asking = std::thread::Builder::new().name("statvfs".to_owned()).spawn(move || {
        // Nobody listens any more when the answer comes too late.
        let _ = tell.send(rustix::fs::statvfs(&asked));
    });
    let subject = point.display().to_string();
    match asking.map(|_| told.recv_timeout(ANSWER_LIMIT)) {
        Ok(Ok(Ok(_))) => fine("mount", &subject, "answers"),
        Ok(Ok(Err(rustix::io::Errno::NOTCONN))) => {
            let hint = format!("its process is gone: umount -l {subject}, then mount it again");
            check(Verdict::Error, "mount", &subject, "dead".to_owned(), &hint)
        }
        Ok(Ok(Err(e))) => {
            check(Verdict::Error, "mount", &subject, e.to_string(), "look into the log of the mount")
        }
        Ok(Err(_)) | Err(_) => {
            let detail = format!("no answer within {} s", ANSWER_LIMIT.as_secs());
            check(
                Verdict::Error,
                "mount",
                &subject,
                detail,
                "it waits for a server that is away: see the nodes",
            )
        }
    }
}

fn mount_checks(run_dir: &Path) -> Vec<Check> {
    let mounts = mount_table::read().unwrap_or_default();
    let mut checks: Vec<_> =
        mounts.iter().filter(|mount| mount.is_skep()).map(|mount| mount_check(&mount.point)).collect();
    for note in mount_notes(run_dir) {
        let subject = note.mount_point.display().to_string();
        let lost = note.lost.into_iter().map(|lost| {
            check(Verdict::Note, "mount", &subject, lost, "a newer kernel has it; everything works without")
        });
        checks.extend(lost);
        if !note.transport.is_empty() {
            checks.push(fine("mount", &subject, &note.transport));
        }
    }
    checks
}

fn checks(args: &HealthArgs) -> Vec<Check> {
    let mut cluster = match args.access.connect(args.path.as_deref()) {
        Ok(cluster) => cluster,
        Err(failure) => {
            return vec![check(Verdict::Error, "mgmtd", "cluster", failure.to_string(), "see above")];
        }
    };
    let place = args.access.place(args.path.as_deref()).ok();
    let up_dir = place.and_then(|place| Some(place.cluster?.parent()?.to_owned()));
    let run_dir = up_dir.map_or_else(|| PathBuf::from(RUN_DIR), |dir| dir.join("run"));
    let status = match cluster.status() {
        Ok(status) => status,
        Err(failure) => {
            let hint = format!("start skep mgmtd, or skep up when the cluster is of {CLUSTER_FILE}");
            let mut checks = vec![check(Verdict::Error, "mgmtd", "cluster", failure.to_string(), &hint)];
            checks.extend(mount_checks(&run_dir));
            return checks;
        }
    };
    let mut checks = vec![fine("mgmtd", "cluster", format!("answers, cluster {}", status.cluster))];
    for nodes in status.nodes.chunks(ASKED_AT_ONCE) {
        let (cluster, status) = (&cluster, &status);
        let answers: Vec<Check> = std::thread::scope(|scope| {
            let asked: Vec<_> = nodes
                .iter()
                .map(|node| (&node.node, scope.spawn(|| ping(cluster, status, &node.node))))
                .collect();
            let lost = || Err(Failure::new("the question was lost (a bug: please report it)"));
            asked
                .into_iter()
                .map(|(node, answer)| node_check(node, answer.join().unwrap_or_else(|_| lost())))
                .collect()
        });
        checks.extend(answers);
    }
    checks.extend(registry_checks(&status));
    checks.extend(mount_checks(&run_dir));
    checks
}

/// Does it: 0 healthy, 1 degraded, 2 broken.
pub fn run(args: &HealthArgs, out: &mut dyn Write) -> ExitCode {
    let mut checks = checks(args);
    checks.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    let shown: Vec<_> =
        checks.iter().filter(|check| args.all || check.verdict != Verdict::Ok).cloned().collect();
    let written = if shown.is_empty() && args.output.output == output::Format::Table {
        writeln!(out, "healthy: {} checks, nothing to do", checks.len())
    } else {
        output::rows(args.output.output, &shown, out)
    };
    if let Err(e) = written {
        eprintln!("skep: standard output: {e}");
    }
    ExitCode::from(match worst {
        Verdict::Ok | Verdict::Note => 0,
        Verdict::Warning => 1,
        Verdict::Error => 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::namespace::samples;

    fn verdicts(checks: &[Check]) -> Vec<(Verdict, &str, &str)> {
        let bad = checks.iter().filter(|check| check.verdict != Verdict::Ok);
        bad.map(|check| (check.verdict, check.check, check.subject.as_str())).collect()
    }

    /// Goal: a sound cluster has nothing to report; each fault is found, graded and comes with advice.
    #[test]
    fn faults_are_found() {
        let mut status = samples::status();
        assert!(verdicts(&registry_checks(&status)).is_empty());
        status.targets[0].consistency = Consistency::Bad;
        status.targets[0].capacity.bytes_free = 49;
        status.nodes[0].capacity.inodes_free = 0;
        status.nodes[0].node.reachability = Reachability::Offline;
        let checks = registry_checks(&status);
        assert_eq!(
            verdicts(&checks),
            [
                (Verdict::Error, "target", "target-101"),
                (Verdict::Warning, "space", "target-101"),
                (Verdict::Error, "space", "metad-1"),
                (Verdict::Error, "shard", "namespace"),
            ]
        );
        assert!(checks.iter().all(|check| check.verdict == Verdict::Ok || !check.hint.is_empty()));
    }

    /// Goal: mgmtd's view and our own of a node are told apart.
    #[test]
    fn views_of_a_node() {
        let mut node = samples::status().nodes[1].node.clone();
        let failed = || Err(Failure::new("no route"));
        assert_eq!(node_check(&node, Ok(())).verdict, Verdict::Ok);
        assert!(node_check(&node, failed()).hint.contains("firewall"));
        node.reachability = Reachability::ProbablyOffline;
        assert_eq!(node_check(&node, Ok(())).verdict, Verdict::Warning);
        assert!(node_check(&node, failed()).hint.contains("skep storaged"));
    }

    /// Goal: a living mount answers, and the released field names stay.
    #[test]
    fn mounts_and_names() {
        let root = mount_check(Path::new("/"));
        assert_eq!(root.verdict, Verdict::Ok);
        let json = serde_json::to_string(&root).unwrap();
        assert!(json.starts_with(r#"{"verdict":"ok","check":"mount","subject":"/","detail":"#), "{json}");
        assert!(mount_notes(Path::new("/nonexistent")).is_empty());
    }
}
