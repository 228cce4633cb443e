//! Who has nothing to do does next to nothing: what the daemons of an idle cluster ask each other, and what it costs them.

use super::Running;
use super::fresh::answered_by;
use super::http::{metrics, ports};
use super::leases::{counted, leased, two_mounts, warm};
use skep_rig::{Daemon, PATIENCE, Plan, until};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

/// For so long nobody asks for anything.
const IDLE: Duration = Duration::from_secs(10);
/// And for so long before: what was done to set it up has no consequences any more.
const QUIET: Duration = Duration::from_secs(2);
/// Who has leases of a group asks it for events, again and again, and the answer, which renews them, comes after a quarter of their
/// term (`lease_time` of metad, 4 s) if there are none.
const RENEWAL: Duration = Duration::from_secs(1);
/// After a quarter of the session's time-out (`session_timeout` of mgmtd, 60 s) a mount renews it, and asks those metadata servers
/// of which it has no leases what they have to tell.
const SESSION: Duration = Duration::from_secs(15);
/// `heartbeat` of metad and storaged.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// mgmtd tells everybody of the targets' free space, when it moved at all, this often (`CAPACITY_EVERY_MS` of its rules). Here it
/// moves all the time: other programs write to the disk, and the daemons' logs are on it.
const SPACE: Duration = Duration::from_secs(10);
/// All these may come twice as often: an answer may be early, and somebody be asked again by who was not answered in time on a
/// busy machine. Whoever asks in a loop asks a hundred times as often.
const SLACK: f64 = 2.0;
/// Seconds of processor that a daemon may take in each second, in a build for tests and on a busy machine.
const PROCESSOR: f64 = 0.05;
/// What some program of this machine may ask that looks at all mounts.
const LOOKS: f64 = 10.0;
const SERVICES: [&str; 3] = ["mgmtd", "metad", "storaged"];
/// What servers ask themselves each time that the test looks at their metrics.
const OWN: [&str; 2] = ["GroupStats", "ClusterStatus"];

/// How many requests, by service and message.
type Requests = BTreeMap<(&'static str, String), u64>;

/// Of which service who asks what, and how many do: each of them once in so long.
struct Usual {
    service: &'static str,
    message: &'static str,
    who: usize,
    every: Duration,
}

/// Requests that all servers have answered.
fn requests(cluster: &Running) -> Requests {
    let of = |service: &'static str| {
        answered_by(cluster, service).into_iter().map(move |(message, count)| ((service, message), count))
    };
    let all = SERVICES.into_iter().flat_map(of);
    all.filter(|((_, message), _)| !OWN.contains(&message.as_str())).collect()
}

/// Those that came since.
fn since(before: &Requests, cluster: &Running) -> Requests {
    let more = requests(cluster).into_iter().map(|(kind, count)| {
        let before = before.get(&kind).copied().unwrap_or(0);
        (kind, count - before)
    });
    more.filter(|(_, count)| *count > 0).collect()
}

/// What the kernel has asked the first mount.
fn asked_by_the_kernel(cluster: &Running) -> f64 {
    let samples = metrics(ports(cluster)["mount"]).samples.into_iter();
    samples.filter(|sample| sample.name == "skep_mount_fuse_requests_total").map(|sample| sample.value).sum()
}

/// What comes as long as there are these servers, and so many mounts, with so many questions for events.
fn usual(cluster: &Running, mounts: usize, events: (usize, Duration)) -> [Usual; 4] {
    let servers = cluster.of("metad").len() + cluster.of("storaged").len();
    let of = |service, message, (who, every)| Usual { service, message, who, every };
    [
        of("metad", "Events", events),
        of("mgmtd", "Heartbeat", (servers, HEARTBEAT)),
        of("mgmtd", "RenewSession", (mounts, SESSION)),
        of("mgmtd", "GetMap", (servers + mounts, SPACE)),
    ]
}

/// Waits until nothing comes for a while but what is named.
fn settle(cluster: &Running, named: &[&str]) {
    until("nothing else is asked for", PATIENCE, || {
        let before = requests(cluster);
        std::thread::sleep(QUIET);
        let mut more = since(&before, cluster);
        more.retain(|(_, message), _| !named.contains(&message.as_str()));
        if more.is_empty() { Ok(()) } else { Err(format!("{more:?}")) }
    })
    .unwrap();
}

/// Lets the cluster be, and sees that nobody asks for anything but what is usual, nor works. What was asked for, in how many
/// seconds.
fn stays_idle(cluster: &Running, usual: &[Usual]) -> (Requests, f64) {
    let (asked, before) = (asked_by_the_kernel(cluster), requests(cluster));
    let used = |daemon: Daemon| {
        let seconds = daemon.cpu_seconds().unwrap();
        (daemon, seconds)
    };
    // The times are inside: to show metrics is work as well.
    let daemons: Vec<(Daemon, f64)> = cluster.daemons().into_iter().map(used).collect();
    let begun = Instant::now();
    std::thread::sleep(IDLE);
    let seconds = begun.elapsed().as_secs_f64();
    let used: Vec<(Daemon, f64)> = daemons
        .into_iter()
        .map(|(daemon, before)| {
            let used = daemon.cpu_seconds().unwrap() - before;
            (daemon, used)
        })
        .collect();
    let came = since(&before, cluster);
    let asked = asked_by_the_kernel(cluster) - asked;
    println!("in {seconds:.1} s: {came:?}, and {asked} requests of the kernel");
    for (daemon, used) in &used {
        println!("{} ({}): {used:.2} s of processor", daemon.name(), daemon.pid);
    }
    for ((service, message), count) in &came {
        let found = usual.iter().find(|usual| usual.service == *service && usual.message == message);
        // One more, for where the time begins and ends.
        let times = |usual: &Usual| usual.who as f64 * (seconds / usual.every.as_secs_f64() + 1.0);
        let most = found.map_or(0.0, |usual| SLACK * times(usual));
        assert!(
            *count as f64 <= most,
            "{service}: {count} of {message} in {seconds:.1} s, and not {most:.1}"
        );
    }
    for (daemon, used) in &used {
        let most = PROCESSOR * seconds;
        assert!(*used <= most, "{daemon:?} took {used:.2} s of processor in {seconds:.1} s");
    }
    assert!(asked <= LOOKS, "{asked} requests of the kernel");
    (came, seconds)
}

/// Goal: mounts with leases of two metadata servers, of many directories and shards, whose programs do nothing, ask each of them
/// once a second for events, whose answers renew all these leases, and nothing else of any server; and no daemon works.
#[test]
fn who_has_leases_renews_them_and_no_more() {
    const DIRS: usize = 8;
    /// `lease_time` of metad: whoever has leases was answered at least that often.
    const TERM: f64 = 4.0;
    let plan = Plan { metas: 2, shards: 8, ..leased() };
    let groups = (plan.metas * plan.groups) as usize;
    let (cluster, first, second) = two_mounts(plan, DIRS);
    for mount in [&first, &second] {
        for dir in 0..DIRS {
            warm(&cluster, &mount.join(format!("d{dir}/file")));
        }
    }
    settle(&cluster, &["Events", "GetMap", "Heartbeat", "RenewSession"]);
    let [held, lapses] = ["skep_mount_leases", "skep_mount_lapses_total"].map(|name| counted(&cluster, name));
    let (came, seconds) = stays_idle(&cluster, &usual(&cluster, 2, (2 * groups, RENEWAL)));
    let left = counted(&cluster, "skep_mount_leases");
    // A mount that got no processor for a second gives them up.
    let has_lapsed = counted(&cluster, "skep_mount_lapses_total") > lapses;
    assert!(held >= DIRS as f64, "{held} leases");
    assert!(left >= DIRS as f64 || has_lapsed, "{left} leases of {held} are left");
    let events = came.get(&("metad", "Events".to_owned())).copied().unwrap_or(0);
    assert!(events as f64 >= (seconds / TERM).floor() || has_lapsed, "{events} answers in {seconds:.1} s");
}

/// Goal: a mount all of whose leases were taken back asks metadata servers for nothing, but for what they have to tell, seldom;
/// nobody asks for anything but renewals of its session, and servers' heartbeats; and no daemon works.
#[test]
fn who_has_no_leases_asks_for_nothing() {
    let (cluster, first, second) = two_mounts(leased(), 1);
    warm(&cluster, &first.join("d0/file"));
    assert!(counted(&cluster, "skep_mount_leases") > 0.0);
    fs::remove_dir(second.join("d0")).unwrap();
    // Who does not look at a directory any more loses it with the ninth change of others, if they come quickly.
    until("the first mount has no leases", PATIENCE, || {
        let name = second.join("name");
        symlink("somewhere", &name).unwrap();
        fs::remove_file(&name).unwrap();
        let held = counted(&cluster, "skep_mount_leases");
        if held == 0.0 { Ok(()) } else { Err(format!("{held} leases")) }
    })
    .unwrap();
    cluster.must(["umount", second.to_str().unwrap()]).unwrap();
    settle(&cluster, &["GetMap", "Heartbeat", "RenewSession"]);
    stays_idle(&cluster, &usual(&cluster, 1, (1, SESSION)));
    assert_eq!(counted(&cluster, "skep_mount_leases"), 0.0);
}
