//! Names that the kernel uses without asking its mount, as long as nobody else changes them.

use super::http::{metrics, ports};
use super::{Running, plan, start};
use rustix::fs::{AtFlags, Dir, DirEntry, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use skep_rig::mounted_below;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two mounts, with a directory that the second one has made.
fn two_mounts() -> (Running, PathBuf, PathBuf) {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    fs::create_dir(second.join("dir")).unwrap();
    let first = cluster.mount().to_owned();
    (cluster, first, second)
}

/// Look-ups that the first mount has answered.
fn lookups(cluster: &Running) -> f64 {
    let page = metrics(ports(cluster)["mount"]);
    page.value("skep_mount_fuse_requests_total", &[("operation", "lookup")]).unwrap_or(0.0)
}

fn counted(cluster: &Running, name: &str) -> f64 {
    metrics(ports(cluster)["mount"]).value(name, &[]).unwrap()
}

/// May this kernel be given names? (Linux 6.16 can drop all of them at once.)
fn kernel_uses_names() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
}

fn is_absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Goal: a name is looked up about twice a second, however often it is used; and when another mount removes it, replaces it, or
/// renames what is above it, the next look at it sees that.
#[test]
fn a_name_is_used_until_others_change_it() {
    const LOOKS: usize = 2_000;
    let (cluster, first, second) = two_mounts();
    let (here, there) = (first.join("dir/file"), second.join("dir/file"));
    fs::write(&there, "1").unwrap();
    let (before, begun) = (lookups(&cluster), Instant::now());
    for _ in 0..LOOKS {
        assert_eq!(fs::metadata(&here).unwrap().len(), 1);
    }
    let (asked, seconds) = (lookups(&cluster) - before, begun.elapsed().as_secs_f64());
    println!("{LOOKS} looks in {seconds:.2} s: {asked} look-ups");
    if kernel_uses_names() {
        // Two names, and one or two that the first mount did not know yet.
        assert!(asked < 4.0 * seconds + 12.0, "{asked} look-ups in {seconds:.2} s");
    }
    let new = second.join("dir/new");
    for round in 2..30 {
        fs::write(&new, "x".repeat(round)).unwrap();
        fs::rename(&new, &there).unwrap();
        assert_eq!(fs::metadata(&here).unwrap().len() as usize, round, "replaced");
        // Slowly enough for leases to stay.
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(fs::read(&here).unwrap().len(), round);
    }
    fs::remove_file(&there).unwrap();
    assert!(is_absent(&here));
    fs::write(&there, "again").unwrap();
    assert_eq!(fs::read(&here).unwrap(), b"again");
    fs::rename(second.join("dir"), second.join("other")).unwrap();
    assert!(is_absent(&here) && !is_absent(&first.join("other/file")));
    assert_eq!(counted(&cluster, "skep_mount_looks_lost_total"), 0.0);
    // A machine that is busy may give a helper no processor for the 5 ms that it is waited for.
    let (bumps, seconds) = (counted(&cluster, "skep_mount_epoch_bumps_total"), begun.elapsed().as_secs_f64());
    assert!(bumps <= 1.0 + seconds / 10.0, "{bumps} bumps in {seconds:.0} s");
}

/// Goal: what is mounted on a directory stays, and who is in one goes on, while another mount changes the directory above: slowly
/// enough that leases stay, and so often that they end.
#[test]
fn what_is_mounted_on_a_directory_stays() {
    let (cluster, first, second) = two_mounts();
    fs::create_dir_all(first.join("dir/on")).unwrap();
    fs::create_dir_all(first.join("dir/in")).unwrap();
    let beside = tempfile::tempdir().unwrap();
    fs::write(beside.path().join("there"), "").unwrap();
    rustix::mount::mount_bind(beside.path(), first.join("dir/on")).unwrap();
    let is_there = || fs::metadata(first.join("dir/on/there")).is_ok();
    for round in 0..120 {
        let name = second.join(format!("dir/name{}", round % 10));
        let own = first.join(format!("dir/name{}", (round + 1) % 10));
        drop(File::create(&name).unwrap());
        let _ = fs::metadata(&own);
        assert!(is_there() && !is_absent(&first.join("dir/in")), "round {round}");
        let _ = fs::remove_file(&own);
        if round < 20 {
            std::thread::sleep(Duration::from_millis(400));
        }
    }
    assert!(is_there());
    assert!(counted(&cluster, "skep_mount_recalls_total") >= 8.0);
    rustix::mount::unmount(first.join("dir/on"), UnmountFlags::DETACH).unwrap();
    assert!(!is_there());
}

/// Bind mounts, which go with it, also when a test fails.
#[derive(Default)]
struct Bound(Vec<PathBuf>);

impl Bound {
    fn bind(&mut self, what: &Path, on: PathBuf) {
        rustix::mount::mount_bind(what, &on).unwrap();
        self.0.push(on);
    }

    /// The first that is not there any more, or does not show this name.
    fn first_without(&self, name: &str) -> Option<&PathBuf> {
        self.0.iter().find(|on| fs::symlink_metadata(on.join(name)).is_err())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        for on in self.0.iter().rev() {
            // One that is not there any more is what the test complains of.
            let _ = rustix::mount::unmount(on, UnmountFlags::DETACH);
        }
    }
}

/// Goal: what is mounted on directories is there after 1,000 recalls of the directories above them, all the time, while names that
/// the kernel uses there are made and removed by another mount.
#[test]
fn what_is_mounted_stays_over_a_thousand_recalls() {
    /// So many that each is changed seldom: what is changed more than 2.8 times a second becomes busy, is lent to nobody, and so
    /// taken back from nobody.
    const PARENTS: usize = 100;
    const RECALLS: f64 = 1_000.0;
    /// Each is changed no more than once in that time: slow confirmations count as changes.
    const ROUND: Duration = Duration::from_millis(600);
    const LIMIT: Duration = Duration::from_secs(60);
    let (cluster, first, second) = two_mounts();
    let beside = tempfile::tempdir().unwrap();
    fs::write(beside.path().join("there"), "").unwrap();
    let mut bound = Bound::default();
    for parent in 0..PARENTS {
        let on = first.join(format!("dir/{parent}/on"));
        fs::create_dir_all(&on).unwrap();
        bound.bind(beside.path(), on);
    }
    let name = |mount: &Path, parent: usize| mount.join(format!("dir/{parent}/name"));
    let (begun, before) = (Instant::now(), counted(&cluster, "skep_mount_recalls_total"));
    for round in 1.. {
        let (started, is_made) = (Instant::now(), round % 2 == 1);
        for parent in 0..PARENTS {
            let there = name(&second, parent);
            let changed = if is_made { symlink("somewhere", there) } else { fs::remove_file(there) };
            changed.unwrap();
        }
        // With a look the first mount has the directory again, and its kernel the name.
        for parent in 0..PARENTS {
            assert_eq!(is_absent(&name(&first, parent)), !is_made, "round {round}, directory {parent}");
        }
        assert_eq!(bound.first_without("there"), None, "round {round}");
        let recalls = counted(&cluster, "skep_mount_recalls_total") - before;
        if recalls >= RECALLS {
            println!("{recalls} recalls by {round} changes of each of {PARENTS} in {:?}", begun.elapsed());
            break;
        }
        assert!(
            begun.elapsed() < LIMIT,
            "{recalls} recalls by {round} changes of each of {PARENTS} in {LIMIT:?}"
        );
        std::thread::sleep(ROUND.saturating_sub(started.elapsed()));
    }
    assert_eq!(mounted_below(&first).len(), 1 + PARENTS, "with the first mount itself");
    drop(bound);
    assert_eq!(mounted_below(&first), [first]);
}

/// Goal: while one mount walks through a tree all the time, changes of the whole tree by another one do not wait for names that
/// the first one's kernel may use, be they of directories, which it does not give up before their time.
#[test]
fn a_walk_does_not_hold_up_changes_of_a_tree() {
    const DIRS: usize = 24;
    const FILES: usize = 12;
    /// Names of directories are waited for three times as long; without them a change takes some milliseconds.
    const SLOW: Duration = Duration::from_millis(250);
    let (cluster, first, second) = two_mounts();
    for dir in 0..DIRS {
        (0..3).for_each(|inner| fs::create_dir_all(second.join(format!("dir/{dir}/{inner}"))).unwrap());
        (0..FILES).for_each(|file| fs::write(second.join(format!("dir/{dir}/file{file}")), "").unwrap());
    }
    let over = AtomicBool::new(false);
    let (walked, is_walked) = std::sync::mpsc::channel();
    let walk = || {
        let mut walks = 0;
        while !over.load(Ordering::Relaxed) {
            let mut left = vec![first.join("dir")];
            while let Some(dir) = left.pop() {
                for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
                    // Some are removed meanwhile.
                    if entry.metadata().is_ok_and(|found| found.is_dir()) {
                        left.push(entry.path());
                    }
                }
            }
            walks += 1;
            walked.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        walks
    };
    let change = || {
        let mut times = Vec::new();
        for mode in [0o600, 0] {
            for place in (0..DIRS).flat_map(|dir| (0..FILES).map(move |file| (dir, file))) {
                let path = second.join(format!("dir/{}/file{}", place.0, place.1));
                let begun = Instant::now();
                match mode {
                    0 => fs::remove_file(path).unwrap(),
                    _ => fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap(),
                }
                times.push(begun.elapsed());
            }
        }
        over.store(true, Ordering::Relaxed);
        times
    };
    std::thread::scope(|scope| {
        let walker = scope.spawn(walk);
        // The second walk finds what the first one was told.
        (0..2).for_each(|_| is_walked.recv().unwrap());
        let times = change();
        let walks = walker.join().unwrap();
        let slow = times.iter().filter(|took| **took > SLOW).count();
        println!("{walks} walks; {slow} of {} changes took more than {SLOW:?}: {times:?}", times.len());
        assert!(walks > 1 && counted(&cluster, "skep_mount_leases_wanted_total") > (DIRS / 2) as f64);
        // As many as there are directories, at least, if each of these was waited for; a busy machine may hold up some.
        assert!(slow < DIRS / 4, "{slow} of {} changes took more than {SLOW:?}", times.len());
    });
}

/// Goal: who opens a file whose name is replaced all the time, by the same mount and by another one, finds it, whole and old or
/// new, and never nothing.
#[test]
fn a_name_that_is_replaced_is_always_there() {
    const FOR: Duration = Duration::from_secs(4);
    let (_cluster, first, second) = two_mounts();
    let at = |mount: &Path, name: &str| mount.join("dir").join(name);
    fs::write(at(&first, "file"), "0".repeat(40)).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (tag, mount) in [("a", &first), ("b", &second)] {
            let over = &over;
            scope.spawn(move || {
                let begun = Instant::now();
                for round in 0_u64.. {
                    if begun.elapsed() > FOR {
                        break;
                    }
                    let text = format!("{round:040}");
                    fs::write(at(mount, tag), text).unwrap();
                    fs::rename(at(mount, tag), at(mount, "file")).unwrap();
                    // Now and then all is quiet for long enough that names are used again.
                    if round % 64 == 0 {
                        std::thread::sleep(Duration::from_millis(300));
                    }
                }
                over.store(true, Ordering::Relaxed);
            });
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(fs::read(at(mount, "file")).unwrap().len(), 40);
                    assert_eq!(fs::metadata(at(mount, "file")).unwrap().len(), 40);
                }
            });
        }
    });
}

/// Goal: what another mount has removed is for who is still in it as on a local file system: no links, and no names. So both end well
/// when two mounts remove one tree at once, and nothing is left.
#[test]
fn two_mounts_remove_one_tree() {
    const ROUNDS: usize = 3;
    const DIRS: usize = 12;
    let (_cluster, first, second) = two_mounts();
    let make = |dir: &Path| {
        for at in 0..DIRS {
            let dir = dir.join(format!("{at}/a/b"));
            fs::create_dir_all(&dir).unwrap();
            dir.ancestors().take(3).for_each(|dir| fs::write(dir.join("file"), "").unwrap());
        }
    };
    make(&second.join("dir/tree"));
    let tree = first.join("dir/tree");
    let (looked_up, made) = (tree.join("0/a"), tree.join("made"));
    fs::create_dir(&made).unwrap();
    let names = fs::read_dir(tree.join("1")).unwrap().map(|entry| entry.unwrap());
    let listed = names.filter(|entry| entry.metadata().unwrap().is_dir()).map(|entry| entry.path()).next();
    let held = [looked_up, made, listed.unwrap()].map(|path| File::open(path).unwrap());
    fs::remove_dir_all(second.join("dir/tree")).unwrap();
    for dir in held {
        let found = dir.metadata().unwrap();
        assert!(found.is_dir() && found.nlink() == 0, "{found:?}");
        let below = |name: &str| rustix::fs::openat(&dir, name, OFlags::RDONLY, Mode::empty()).map(drop);
        assert_eq!([below("b"), below("file"), below("none")], [Err(Errno::NOENT); 3]);
        let made = [
            rustix::fs::mkdirat(&dir, "new", Mode::RWXU),
            rustix::fs::openat(&dir, "new", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).map(drop),
            rustix::fs::unlinkat(&dir, "file", AtFlags::empty()),
        ];
        assert_eq!(made, [Err(Errno::NOENT); 3]);
        let mut lines = Dir::read_from(&dir).unwrap();
        let is_dot = |line: rustix::io::Result<DirEntry>| line.unwrap().file_name().to_bytes()[0] == b'.';
        assert!(lines.all(is_dot));
    }
    for round in 0..ROUNDS {
        make(&second.join("dir/tree"));
        let remove = |mount: &Path| {
            let mut remove = Command::new("rm");
            remove.arg("-rf").arg(mount.join("dir/tree")).stderr(Stdio::piped()).spawn().unwrap()
        };
        // One of them begins to look before, or both at once.
        if round % 2 == 0 {
            Command::new("find").arg(first.join("dir/tree")).stdout(Stdio::null()).status().unwrap();
        }
        for removing in [remove(&first), remove(&second)] {
            let output = removing.wait_with_output().unwrap();
            assert!(output.status.success(), "round {round}: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert!([&first, &second].iter().all(|mount| is_absent(&mount.join("dir/tree"))), "round {round}");
    }
}
