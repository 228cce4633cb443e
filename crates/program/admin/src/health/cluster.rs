//! What can be said of the cluster: nodes, targets, space, shards, sessions.

use super::{Check, Verdict, check, fine};
use crate::session::SILENT_MS;
use skep_base::access::Cluster;
use skep_base::namespace::Names;
use skep_base::output::{ago, human};
use skep_base::{Failure, Outcome};
use skep_types::{Capacity, CapacityClass, Consistency, NodeId, Reachability, ServiceKind, ShardId};
use skep_wire::meta::GroupStats;
use skep_wire::mgmt::{
    EvictionStatus, NodeEntry, SessionStatus, ShardEntry, ShardState, StatusReply, TargetEntry,
};
use skep_wire::storage::TargetStats;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// A service that takes longer to answer does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Nodes that are asked at the same time.
const ASKED_AT_ONCE: usize = 32;
/// A mount that has not confirmed for so long that it uses something no longer holds up who is to change it.
const RECALL_MS: u64 = 1_000;
/// Less free than this share (1/20) is worth a warning ...
const LOW_SHARE: u64 = 20;
/// ... and less than this one (1/100) an error.
const EMERGENCY_SHARE: u64 = 100;

/// More that is looked at on a node that answers, for so long.
pub type More<'a> = &'a (dyn Fn(&NodeEntry, Duration) -> Vec<Check> + Sync);

/// Everything, in the order in which it was looked at. Nodes are asked until then: whoever is silent takes no other's time.
pub fn checks(
    cluster: &Cluster,
    (status, doubt): (&StatusReply, Option<&str>),
    until: Instant,
    more: More<'_>,
) -> Vec<Check> {
    let mut checks = vec![fine("mgmtd", "cluster", format!("answers, cluster {}", status.cluster))];
    checks.extend(doubt.map(doubt_check));
    let groups = status.nodes.chunks(ASKED_AT_ONCE);
    for (nodes, groups_left) in groups.clone().zip((1..=groups.len() as u32).rev()) {
        let until = Instant::now() + left(until) / groups_left;
        let found: Vec<Check> = std::thread::scope(|scope| {
            let looking: Vec<_> = nodes
                .iter()
                .map(|node| {
                    (&node.node, scope.spawn(|| node_checks(cluster, (status, &node.node), until, more)))
                })
                .collect();
            let lost = || Err(Failure::new("the question was lost (a bug: please report it)"));
            let look = |(node, found): (&NodeEntry, ScopedJoinHandle<'_, Vec<Check>>)| {
                found.join().unwrap_or_else(|_| vec![node_check(node, lost())])
            };
            looking.into_iter().flat_map(look).collect()
        });
        checks.extend(found);
    }
    checks.extend(registry_checks(status));
    checks
}

/// Nothing else tells why nobody can mount.
fn doubt_check(why: &str) -> Check {
    let detail = format!(
        "{why}. Until then it may be an older copy of itself: it opens no session, ends none, tells no daemon the map and the \
         fences, and carries out no `skep session evict` and no `skep shard give`"
    );
    let hint = "a moment, if it was started just now; else start the metadata servers that it names, or look into their logs: \
                one that it knows from before its start must come";
    check(Verdict::Warning, "mgmtd", "cluster", detail, hint)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn node_checks(
    cluster: &Cluster,
    (status, node): (&StatusReply, &NodeEntry),
    until: Instant,
    more: More<'_>,
) -> Vec<Check> {
    let answer = ping(cluster, node, left(until).min(ANSWER_LIMIT));
    let mut checks: Vec<Check> = answer
        .iter()
        .flat_map(|told| {
            [
                unserved_check(node, *told),
                lost_check(node, *told),
                recall_check(status, node, *told),
                broken_check(node, *told),
            ]
        })
        .flatten()
        .collect();
    if answer.is_ok() {
        checks.extend(more(node, left(until)));
    }
    checks.insert(0, node_check(node, answer.map(drop)));
    checks
}

/// Asks one daemon directly: mgmtd may hear a node that clients cannot reach.
fn ping(cluster: &Cluster, node: &NodeEntry, limit: Duration) -> Outcome<Told> {
    let mut link = cluster.node(node);
    link.limit = limit;
    match node.service {
        ServiceKind::Mgmtd => Ok(Told::default()),
        ServiceKind::Storaged => link.ask(&TargetStats {}).map(|_| Told::default()),
        ServiceKind::Metad => {
            let stats = link
                .ask_shard(ShardId::default(), &GroupStats {})
                .map_err(|e| Failure::call(&node.alias, &e))?;
            let count = |name: &str| stats.counters.iter().find(|c| c.name == name).map_or(0, |c| c.value);
            Ok(Told {
                lost: count("lost_chunk_files"),
                example: count("lost_chunk_file_of"),
                unserved: count("unserved_shards"),
                broken: count("leases_broken"),
                recall: Recall {
                    ms: count("oldest_recall_ms"),
                    client: count("oldest_recall_client"),
                    inode: count("oldest_recall_inode"),
                },
            })
        }
    }
}

/// What a metadata server says is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    /// Chunk files of which something is lost.
    lost: u64,
    /// The inode of one.
    example: u64,
    /// Shards that are its own by the map, and that it does not serve.
    unserved: u64,
    /// Changes of what somebody else still held a lease of.
    broken: u64,
    recall: Recall,
}

/// What it takes back, and is not confirmed: of all that the oldest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Recall {
    ms: u64,
    client: u64,
    inode: u64,
}

fn recall_check(status: &StatusReply, node: &NodeEntry, told: Told) -> Option<Check> {
    let Recall { ms, client, inode } = told.recall;
    if ms < RECALL_MS {
        return None;
    }
    let session = status.sessions.iter().find(|session| session.client.0 == client);
    let mount = session.map_or("a mount whose session has ended".to_owned(), |session| {
        format!("{}:{}", session.host, session.mount)
    });
    let detail = format!(
        "changes wait for {mount} (client {client}): for {:.1} s it has not confirmed that it uses what it knows of inode \
         {inode} no longer",
        ms as f64 / 1e3
    );
    let hint = "its process or machine stands still, or is not reached; changes go on without it after 8.3 s at most. \
                Find FILE by `find MOUNT -inum N`; a mount with leases = \"off\" holds up nobody";
    Some(check(Verdict::Warning, "leases", &node.alias, detail, hint))
}

fn broken_check(node: &NodeEntry, told: Told) -> Option<Check> {
    let detail =
        format!("changed something {} times of which mounts still had a lease, since it began", told.broken);
    let hint =
        "a bug: programs may have seen what was old; report it with the logs of the server and of the mounts";
    (told.broken > 0).then(|| check(Verdict::Error, "leases", &node.alias, detail, hint))
}

fn unserved_check(node: &NodeEntry, told: Told) -> Option<Check> {
    let detail = format!(
        "{} shards that mgmtd gives to it are not served: their rows are not here and do not come, or another server may have \
         newer ones",
        told.unserved
    );
    let hint =
        "its log names them, and says what to put back, or to which server to give them (skep shard give)";
    (told.unserved > 0).then(|| check(Verdict::Error, "shard", &node.alias, detail, hint))
}

fn lost_check(node: &NodeEntry, told: Told) -> Option<Check> {
    if told.lost == 0 {
        return None;
    }
    let detail = format!(
        "{} chunk files are missing or shorter than what was written, such as of inode {}: reads of them give EIO",
        told.lost, told.example
    );
    let hint = "its log names them; find FILE by `find MOUNT -inum N`, see `skep entry info FILE`; put the chunk files \
                back from a backup, or give up what is lost: skep entry repair --zero FILE";
    Some(check(Verdict::Error, "lost", &node.alias, detail, hint))
}

fn node_check(node: &NodeEntry, answer: Outcome) -> Check {
    let service = node.service.as_str();
    let subject = node.alias.as_str();
    match (node.reachability, answer) {
        (Reachability::Online, Ok(())) => fine("node", subject, "online, answers"),
        (Reachability::Online, Err(failure)) => {
            let hint = format!(
                "mgmtd heard it a moment ago, this machine does not reach it: start skep {service} there if it has \
                 ended, else check firewall, routes and its addresses"
            );
            check(Verdict::Error, "node", subject, failure.to_string(), &hint)
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

/// By the limits of its pool a target may be short of space although its disk looks well.
fn class_check(target: &TargetEntry) -> Option<Check> {
    let (verdict, gets) = match target.class {
        CapacityClass::Normal => return None,
        CapacityClass::Low => (Verdict::Warning, "new files only when others have not enough targets"),
        CapacityClass::Emergency => (Verdict::Warning, "new files only when nothing else is left"),
    };
    let detail = format!("{} by the limits of its pool: it gets {gets}", target.class.as_str());
    let hint = "remove files, enlarge the disk, add a target to the pool, or change its limits (skep pool set-limits)";
    Some(check(verdict, "class", &target.alias, detail, hint))
}

fn registry_checks(status: &StatusReply) -> Vec<Check> {
    let names = Names::of(status);
    let mut checks = Vec::new();
    for target in &status.targets {
        let subject = target.alias.as_str();
        checks.extend(served_check(target, &names.node(target.node)));
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
                format!("bad on {}: its disk failed, or an administrator said so", names.node(target.node)),
                &format!("check the disk; once it can be trusted: skep target set-state {subject} good"),
            ),
        });
        checks.push(space_check(subject, target.capacity));
        checks.extend(class_check(target));
    }
    if status.targets.is_empty() {
        let hint = "start skep storaged with a target; until then only small files can be written";
        checks.push(check(Verdict::Error, "target", "cluster", "no targets".to_owned(), hint));
    }
    for node in status.nodes.iter().filter(|node| node.node.service == ServiceKind::Metad) {
        checks.push(space_check(&node.node.alias, node.capacity));
    }
    checks.push(shard_check(status));
    checks.extend(idle_check(status));
    checks.extend(status.sessions.iter().map(session_check));
    checks.extend(status.evictions.iter().map(|one| eviction_check(one, &status.sessions)));
    checks
}

/// Whoever reads or writes a file on it waits, and nothing else tells.
fn served_check(target: &TargetEntry, node: &str) -> Option<Check> {
    let (alias, id) = (&target.alias, target.target);
    let detail = format!(
        "offline: its server {node} runs and does not serve it: its disk was replaced or is not mounted, or it was \
         taken out of `targets`"
    );
    let hint = format!(
        "if its files are still there: mount its disk, put its directory back into `targets` and restart {node}; if \
         they are gone: skep target remove {alias} --force, and everything on target {id} is lost"
    );
    (!target.served).then(|| check(Verdict::Error, "target", alias, detail, &hint))
}

/// Worth a warning as long as nothing is mounted there again: somebody may wait for that machine.
fn eviction_check(eviction: &EvictionStatus, sessions: &[SessionStatus]) -> Check {
    let is_back = |one: &SessionStatus| one.host == eviction.host && one.mount == eviction.mount;
    let verdict = if sessions.iter().any(is_back) { Verdict::Note } else { Verdict::Warning };
    let subject = format!("{}:{}", eviction.host, eviction.mount);
    let EvictionStatus { client, why, ago_ms, .. } = eviction;
    let text = format!("client {client} was evicted {} ago: {why}", ago(Some(*ago_ms)));
    let hint = "told for a day; a mount that lives has a new session, and its log says whether anything written was lost; \
                of one that died, what its programs had not fsynced may be";
    check(verdict, "eviction", &subject, text, hint)
}

fn session_check(session: &SessionStatus) -> Check {
    let subject = format!("{}:{}", session.host, session.mount);
    match session.silent_ms {
        Some(ms) if ms > SILENT_MS => {
            let hint = "look at that machine and its network; after session_timeout the mount is evicted";
            check(Verdict::Warning, "session", &subject, format!("silent for {}", ago(Some(ms))), hint)
        }
        _ => fine("session", &subject, "heard"),
    }
}

fn shard_check(status: &StatusReply) -> Check {
    let names = Names::of(status);
    let used = || status.shards.iter().filter(|shard| shard.state != ShardState::Retired);
    let is_away = |node: Option<NodeId>| {
        let entry = node.and_then(|node| names.entry(node));
        entry.is_none_or(|entry| entry.reachability == Reachability::Offline)
    };
    let waits = |shard: &ShardEntry| shard.comes_from().is_some_and(|source| is_away(Some(source)));
    let orphans = used().filter(|shard| is_away(shard.led_by()) || waits(shard));
    let (all, orphans) = (used().count(), orphans.count());
    match orphans {
        0 => fine("shard", "all", format!("{all} shards, each has its server")),
        _ => {
            let detail = format!("{orphans} of {all} shards have no server that is online");
            check(
                Verdict::Error,
                "shard",
                "namespace",
                detail,
                "start the metadata servers that are offline (skep node list names them); if one is gone for good: \
                 docs/admin/restore.md",
            )
        }
    }
}

/// Once the shards are spread, whoever registers gets none, and none moves by itself: perhaps not what was meant. It may be, too:
/// a server can be emptied on purpose.
fn idle_check(status: &StatusReply) -> Option<Check> {
    let used = || status.shards.iter().filter(|shard| shard.state != ShardState::Retired);
    if used().any(|shard| shard.members.is_empty()) {
        return None;
    }
    let groups: Vec<&NodeEntry> = status.nodes.iter().map(|node| &node.node).filter(is_group).collect();
    let has_none = |group: &&&NodeEntry| {
        !used().any(|shard| shard.members.contains(&group.node) || shard.is_led_by(group.node))
    };
    let idle: Vec<&str> = groups.iter().filter(has_none).map(|group| group.alias.as_str()).collect();
    if idle.is_empty() {
        return None;
    }
    let detail = format!(
        "{} of {} metadata servers and groups have no shards, so nothing of the namespace is on them: {}",
        idle.len(),
        groups.len(),
        idle.join(", ")
    );
    let hint = format!(
        "nothing, if so meant. `metas` of mgmtd counts groups, not servers, and whoever registers after so many gets none: for a \
         new cluster over all of them, metas = {} before its first start; in one that is used, `skep shard give`",
        groups.len()
    );
    Some(check(Verdict::Note, "shard", "groups", detail, &hint))
}

fn is_group(node: &&NodeEntry) -> bool {
    node.service == ServiceKind::Metad
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;
    use skep_types::NodeId;
    use skep_wire::mgmt::NodeStatus;

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
        status.targets[0].served = false;
        status.targets[0].class = CapacityClass::Low;
        status.nodes[0].capacity.inodes_free = 0;
        status.nodes[0].node.reachability = Reachability::Offline;
        status.sessions[0].silent_ms = Some(SILENT_MS + 1);
        let checks = registry_checks(&status);
        assert_eq!(
            verdicts(&checks),
            [
                (Verdict::Error, "target", "target-101"),
                (Verdict::Error, "target", "target-101"),
                (Verdict::Warning, "space", "target-101"),
                (Verdict::Warning, "class", "target-101"),
                (Verdict::Error, "space", "metad-1"),
                (Verdict::Error, "shard", "namespace"),
                (Verdict::Warning, "session", "host:/mnt"),
            ]
        );
        assert!(checks.iter().all(|check| check.verdict == Verdict::Ok || !check.hint.is_empty()));
        let unserved =
            checks.iter().find(|check| check.detail.contains("storaged-2 runs and does not serve it"));
        let ways_out = &unserved.expect("nobody serves it, and nothing says so").hint;
        assert!(
            ways_out.contains("put its directory back")
                && ways_out.contains("target remove target-101 --force")
        );
    }

    /// Goal: groups that got no shards are named, with what to set; it is a note, for it can be meant. While shards wait for
    /// their servers nobody has got none.
    #[test]
    fn groups_without_shards_are_named() {
        let mut status = samples::status();
        let first = status.nodes[0].clone();
        for (id, alias) in [(7, "metad-1.1"), (8, "metad-2")] {
            let node = NodeEntry { node: NodeId(id), alias: alias.to_owned(), ..first.node.clone() };
            status.nodes.push(NodeStatus { node, ..first.clone() });
        }
        let checks = registry_checks(&status);
        assert_eq!(verdicts(&checks), [(Verdict::Note, "shard", "groups")]);
        let found = checks.iter().find(|check| check.verdict == Verdict::Note).unwrap();
        assert!(found.detail.starts_with("2 of 3") && found.detail.ends_with("on them: metad-1.1, metad-2"));
        assert!(found.hint.contains("metas = 3"), "{found:?}");
        status.shards[0].members = vec![NodeId(7)];
        let found = idle_check(&status).unwrap();
        assert!(found.detail.ends_with("on them: metad-2"), "{found:?}");
        status.shards[1].members.clear();
        assert_eq!(idle_check(&status), None);
    }

    /// Goal: shards of which a metadata server serves nobody, though it answers, are an error.
    #[test]
    fn shards_that_nobody_serves_are_told() {
        let node = samples::status().nodes[0].node.clone();
        assert_eq!(
            (unserved_check(&node, Told::default()), broken_check(&node, Told::default())),
            (None, None)
        );
        let broken = broken_check(&node, Told { broken: 3, ..Told::default() }).unwrap();
        assert!(broken.verdict == Verdict::Error && broken.detail.contains(" 3 times"), "{broken:?}");
        let found = unserved_check(&node, Told { unserved: 2, ..Told::default() }).unwrap();
        assert!(found.verdict == Verdict::Error && found.detail.starts_with("2 shards"), "{found:?}");
        assert!(found.subject == "metad-1" && found.hint.contains("log"));
    }

    /// Goal: a mount for which changes wait is named, with what they are about, once that lasts; one that has no session any more
    /// by its number.
    #[test]
    fn who_holds_up_changes_is_named() {
        let status = samples::status();
        let (node, session) = (&status.nodes[0].node, &status.sessions[0]);
        let told = |ms, client| Told { recall: Recall { ms, client, inode: 77 }, ..Told::default() };
        assert_eq!(recall_check(&status, node, told(RECALL_MS - 1, session.client.0)), None);
        let found = recall_check(&status, node, told(2_300, session.client.0)).unwrap();
        let named = format!("wait for host:/mnt (client {}): for 2.3 s", session.client);
        assert!(found.detail.contains(&named) && found.detail.contains("inode 77"), "{found:?}");
        assert_eq!(
            (found.verdict, found.check, found.subject.as_str()),
            (Verdict::Warning, "leases", "metad-1")
        );
        let found = recall_check(&status, node, told(2_300, 999)).unwrap();
        assert!(found.detail.contains("has ended (client 999)"), "{found:?}");
    }

    /// Goal: a mgmtd that waits for metadata servers is a warning that says for whom, and what to do.
    #[test]
    fn what_mgmtd_waits_for_is_told() {
        let found = doubt_check("mgmtd was just started and has not heard metad-2 yet; is it running?");
        assert!(found.verdict == Verdict::Warning && found.detail.contains("metad-2"), "{found:?}");
        assert!(found.hint.contains("start the metadata servers"), "{found:?}");
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
}
