//! Mounts that answer from memory what others cannot change unheard.

use super::agent::Agent;
use super::http::{metrics, ports};
use super::{Running, plan, start};
use rustix::process::Signal;
use skep_rig::{Daemon, PATIENCE, Plan, is_mounted, until};
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Leases are used so long without a word of their server (`lease_time` of metad).
const TERM: Duration = Duration::from_secs(4);
/// And their server goes on without their holder after this.
const PATIENT: Duration = Duration::from_millis(4_140);
/// What a change takes that waits for nobody, and how late a busy machine makes it.
const SOON: Duration = Duration::from_secs(2);
/// What is sent where a mount has to ask.
const QUESTIONS: [&str; 4] = ["Lookup", "GetAttr", "List", "Open"];

pub(super) fn leased() -> Plan {
    plan().with("SKEP_MOUNT_LEASES", "on")
}

/// Two mounts that have leases. Their directories are made by the second one, so that the first has to ask for all.
pub(super) fn two_mounts(plan: Plan, dirs: usize) -> (Running, PathBuf, PathBuf) {
    let cluster = start(plan);
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    for dir in 0..dirs {
        fs::create_dir(second.join(format!("d{dir}"))).unwrap();
    }
    let first = cluster.mount().to_owned();
    (cluster, first, second)
}

/// Questions that the metadata servers have answered, of all mounts.
fn questions(cluster: &Running) -> f64 {
    let of = |(_, port): (String, u16)| {
        let samples = metrics(port).samples.into_iter();
        let requests = samples.filter(|sample| sample.name == "skep_metad_requests_total");
        let asked = requests.filter(|sample| QUESTIONS.contains(&sample.labels["message"].as_str()));
        asked.map(|sample| sample.value).sum::<f64>()
    };
    ports(cluster).into_iter().filter(|(name, _)| name.starts_with("metad")).map(of).sum()
}

/// What the first mount counts.
pub(super) fn counted(cluster: &Running, name: &str) -> f64 {
    metrics(ports(cluster)["mount"]).value(name, &[]).unwrap()
}

/// Looks at `path` until that asks no server: whatever is there, or is not, is known.
pub(super) fn warm(cluster: &Running, path: &Path) {
    let look = || {
        let before = questions(cluster);
        let _ = fs::symlink_metadata(path);
        let asked = questions(cluster) - before;
        if asked == 0.0 { Ok(()) } else { Err(format!("{asked} questions")) }
    };
    until(&format!("{} is known", path.display()), PATIENCE, look).unwrap();
}

fn is_absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Does it aside, and says how long it took.
fn timed<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<(Duration, T)> {
    std::thread::spawn(move || {
        let begun = Instant::now();
        let done = work();
        (begun.elapsed(), done)
    })
}

fn make(path: PathBuf) -> JoinHandle<(Duration, File)> {
    timed(move || File::create(path).unwrap())
}

/// Goal: what is made, renamed, changed and removed on one mount is seen by the other's next look, though that one answered
/// the look before without any question to a server. Hundreds of times, and both ways.
#[test]
fn what_others_change_is_seen_at_once() {
    const DIRS: usize = 60;
    let (cluster, first, second) = two_mounts(leased(), DIRS);
    for round in 0..DIRS {
        let (here, there) = if round % 4 == 3 { (&second, &first) } else { (&first, &second) };
        let dir = format!("d{round}");
        let at = |mount: &Path, name: &str| mount.join(&dir).join(name);
        let (old, new) = (at(here, "old"), at(here, "new"));
        warm(&cluster, &old);
        drop(File::create(at(there, "old")).unwrap());
        assert!(fs::symlink_metadata(&old).unwrap().is_file(), "round {round}: made");
        warm(&cluster, &old);
        warm(&cluster, &new);
        fs::set_permissions(at(there, "old"), Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(&old).unwrap().mode() & 0o777, 0o640, "round {round}: changed");
        warm(&cluster, &old);
        fs::rename(at(there, "old"), at(there, "new")).unwrap();
        assert!(is_absent(&old) && !is_absent(&new), "round {round}: renamed");
        warm(&cluster, &new);
        fs::remove_file(at(there, "new")).unwrap();
        assert!(is_absent(&new), "round {round}: removed");
        assert_eq!(fs::read_dir(here.join(&dir)).unwrap().count(), 0, "round {round}: listed");
    }
    let asked = counted(&cluster, "skep_mount_recalls_total");
    assert!(asked >= DIRS as f64, "{asked} recalls");
    let page = metrics(ports(&cluster)["mount"]);
    // Attributes and names that the kernel has it need not ask the mount for either.
    let labels = [("what", "absent")];
    let answered = page.value("skep_mount_answered_from_memory_total", &labels).unwrap();
    assert!(answered >= DIRS as f64, "{answered} answers of absent names");
}

/// Goal: two mounts that both make, look and remove in one directory, as fast as they can, each see what the other has just done:
/// whether leases come and go, or the directory is too busy for them.
#[test]
fn two_mounts_change_one_directory() {
    const ROUNDS: usize = 200;
    let (_cluster, first, second) = two_mounts(leased(), 1);
    std::thread::scope(|scope| {
        for (tag, here, there) in [("a", &first, &second), ("b", &second, &first)] {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = format!("d0/{tag}{}", round % 7);
                    let (made, looked_at) = (here.join(&name), there.join(&name));
                    assert!(is_absent(&looked_at), "{tag} {round}: before");
                    drop(File::create_new(&made).unwrap());
                    assert!(!is_absent(&looked_at), "{tag} {round}: made");
                    let mode = 0o600 + round as u32 % 8;
                    fs::set_permissions(&made, Permissions::from_mode(mode)).unwrap();
                    let found = fs::metadata(&looked_at).unwrap().mode() & 0o777;
                    assert_eq!(found, mode, "{tag} {round}: changed");
                    fs::remove_file(&looked_at).unwrap();
                    assert!(is_absent(&made), "{tag} {round}: removed");
                }
            });
        }
    });
    assert_eq!(fs::read_dir(first.join("d0")).unwrap().count(), 0);
}

/// A mount stands still.
fn stop(cluster: &Running, point: &Path) -> Daemon {
    let daemon = cluster.mount_daemon(point).unwrap();
    daemon.signal(Signal::STOP).unwrap();
    daemon
}

/// Goal: a change waits for a holder that stands still for less than the term, and goes on when that goes on; for one that
/// stands still for longer it waits as long as leases are used, and no longer. Whoever stood still sees the truth.
#[test]
fn a_holder_that_stands_still() {
    let (cluster, first, second) = two_mounts(leased(), 2);
    warm(&cluster, &first.join("d0/short"));
    let still = Instant::now();
    let daemon = stop(&cluster, &first);
    let making = make(second.join("d0/short"));
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(!making.is_finished(), "it did not wait for the holder");
    daemon.signal(Signal::CONT).unwrap();
    let stood = still.elapsed();
    let (took, _) = making.join().unwrap();
    assert!(!is_absent(&first.join("d0/short")), "it shows what was before");
    assert!(took < stood + SOON && took < PATIENT, "it waited for {took:?} for one that stood for {stood:?}");

    let lapses = counted(&cluster, "skep_mount_lapses_total");
    warm(&cluster, &first.join("d1/long"));
    let daemon = stop(&cluster, &first);
    let (took, _) = make(second.join("d1/long")).join().unwrap();
    println!("a change waited for {} ms for a holder that stood still", took.as_millis());
    assert!(took < PATIENT + SOON, "it waited for {took:?}");
    assert!(took > TERM / 2, "it did not wait: {took:?}");
    std::thread::sleep(TERM);
    fs::set_permissions(second.join("d1/long"), Permissions::from_mode(0o600)).unwrap();
    daemon.signal(Signal::CONT).unwrap();
    let found = fs::metadata(first.join("d1/long")).unwrap();
    assert_eq!(found.mode() & 0o777, 0o600);
    assert!(counted(&cluster, "skep_mount_lapses_total") > lapses);
    // And has leases again.
    warm(&cluster, &first.join("d1/long"));
    let (took, _) = make(second.join("d1/after")).join().unwrap();
    assert!(took < SOON, "it waited for {took:?} for one that hears");
}

/// Goal: the mount that a change waits for is named, with the directory that it is about, to everybody who asks while it is
/// waited for; and nobody is named before and after.
#[test]
fn who_holds_up_a_change_is_named() {
    /// A busy machine may answer when nobody is waited for any more, which says nothing.
    const TRIES: usize = 8;
    const NAMED: usize = 2;
    let (cluster, first, second) = two_mounts(leased(), TRIES);
    let health = || {
        let words = [cluster.admin_words(["health"]), vec!["--timeout".into(), "1s".into()]].concat();
        let output = cluster.run(words).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let metad = ports(&cluster)["metad-1"];
    let named = (0..TRIES).filter(|turn| {
        let dir = format!("d{turn}");
        warm(&cluster, &first.join(&dir).join("file"));
        let inode = fs::metadata(second.join(&dir)).unwrap().ino();
        let text = health();
        assert!(!text.contains("changes wait for "), "turn {turn}: {text}");
        let daemon = stop(&cluster, &first);
        let making = make(second.join(&dir).join("file"));
        // Who has not confirmed for a second is named.
        let waited = || metrics(metad).value("skep_metad_oldest_recall_ms", &[]).unwrap();
        until("a change waits for a second", PATIENCE, || match waited() {
            ms if ms >= 1_000.0 || making.is_finished() => Ok(()),
            ms => Err(format!("{ms} ms")),
        })
        .unwrap();
        let text = health();
        // A machine may be so busy that a server does not answer in time, which is said, and is another matter.
        let is_answered = !text.is_empty() && !text.contains(" node metad-1");
        let is_waited_for = waited() >= 1_000.0 && !making.is_finished() && is_answered;
        daemon.signal(Signal::CONT).unwrap();
        making.join().unwrap();
        if is_waited_for {
            assert!(text.contains("changes wait for "), "turn {turn}: {text}");
            assert!(text.contains(&format!(":{} (client", first.display())), "turn {turn}: {text}");
            assert!(text.contains(&format!("inode {inode} ")), "turn {turn}: {inode} in {text}");
        }
        is_waited_for
    });
    assert!(named.take(NAMED).count() == NAMED, "no answer came while somebody was waited for");
}

/// Goal: after a metadata server and one of three mounts were killed, the others' changes go on when no lease of the time
/// before can be in use any more.
#[test]
fn a_killed_server_and_a_killed_mount() {
    let (cluster, first, second) = two_mounts(leased(), 2);
    let third = cluster.second_mount("mnt2", &[]).unwrap();
    for mount in [&first, &second, &third] {
        warm(&cluster, &mount.join("d0/file"));
    }
    cluster.mount_daemon(&third).unwrap().kill().unwrap();
    let metad = cluster.one("metad").unwrap();
    let killed = Instant::now();
    metad.kill().unwrap();
    cluster.up().unwrap();
    // Questions are answered as soon as it serves.
    assert!(is_absent(&first.join("d0/file")));
    let (took, _) = make(second.join("d0/file")).join().unwrap();
    let (since, took_ms) = (killed.elapsed(), took.as_millis());
    println!("changes went on {since:?} after the kill, {took_ms} ms after it answered again");
    assert!(took < Duration::from_secs(5), "it waited for {took:?}");
    assert!(
        since > Duration::from_secs(4),
        "the killed mount's kernel may use leases still, {since:?} after it"
    );
    assert!(!is_absent(&first.join("d0/file")), "the other one sees it");
    let (took, _) = make(second.join("d1/file")).join().unwrap();
    assert!(took < SOON, "it waited for {took:?} after the hold");
}

/// Goal: a mount that was unmounted keeps nobody waiting for its leases.
#[test]
fn an_unmount_gives_leases_back() {
    let (cluster, first, second) = two_mounts(leased(), 3);
    for dir in 0..3 {
        warm(&cluster, &second.join(format!("d{dir}/file")));
    }
    cluster.must(["umount", second.to_str().unwrap()]).unwrap();
    assert!(!is_mounted(&second));
    for dir in 0..3 {
        let (took, _) = make(first.join(format!("d{dir}/file"))).join().unwrap();
        assert!(took < SOON, "it waited for {took:?} for a mount that had ended");
    }
}

/// Goal: a mount has leases of more groups of shards than it has threads to wait for locks, and hears all of them.
#[test]
fn more_groups_than_threads() {
    const GROUPS: u32 = 32;
    let plan = Plan { metas: 2, groups: GROUPS / 2, shards: GROUPS, ..leased() };
    let (cluster, first, second) = two_mounts(plan, 2 * GROUPS as usize);
    for dir in 0..2 * GROUPS {
        warm(&cluster, &first.join(format!("d{dir}/file")));
    }
    for dir in 0..2 * GROUPS {
        let name = format!("d{dir}/file");
        let (took, _) = make(second.join(&name)).join().unwrap();
        assert!(took < SOON, "it waited for {took:?}");
        assert!(!is_absent(&first.join(&name)));
    }
    let held = counted(&cluster, "skep_mount_leases");
    assert!(held > f64::from(GROUPS), "{held}");
}

/// Goal: a mount with leases hears of locks by the same thread: who waits gets its lock at once, also when the metadata server
/// was killed meanwhile, and one that has a signal ends its wait.
#[test]
fn locks_are_heard_beside_leases() {
    const MOMENT: Duration = Duration::from_millis(300);
    let cluster = start(leased().with("SKEP_METAD_GRACE", "3s"));
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let (mut a, mut b) = (Agent::start(), Agent::start());
    fs::write(cluster.mount().join("file"), b"x").unwrap();
    assert_eq!(a.ask(&format!("open f {}/file", cluster.mount().display())), "ok");
    assert_eq!(b.ask(&format!("open f {}/file", second.display())), "ok");
    for restarts in [false, true] {
        assert_eq!(a.ask("setlk f w 0 10"), "ok");
        b.tell("setlkw f w 0 10");
        b.waits(MOMENT);
        if restarts {
            cluster.one("metad").unwrap().kill().unwrap();
            cluster.up().unwrap();
            b.waits(MOMENT);
        }
        let freed = Instant::now();
        assert_eq!(a.ask("setlk f u 0 10"), "ok");
        assert_eq!(b.answer(), "ok");
        assert!(restarts || freed.elapsed() < SOON, "{:?}", freed.elapsed());
        assert_eq!(b.ask("setlk f u 0 10"), "ok");
    }
}
