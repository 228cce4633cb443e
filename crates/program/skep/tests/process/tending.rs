//! What an administrator does beside the lists: health, bundle, unmounting, the live view.

use super::{Over, bytes, plan, refusal, start, start_with_room};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use skep_rig::{Cluster, PATIENCE, is_mounted, patiently, until};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

fn health(cluster: &Cluster, words: &[&str]) -> (i32, String) {
    let words = cluster.admin_words([&["health"], words].concat());
    let output = cluster.run(words).unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), text)
}

/// Goal: the exit code says how the cluster is; each finding comes with what to do; a client's key is
/// told that it is not enough.
#[test]
fn health_says_how_it_is() {
    let cluster = start_with_room(
        plan().with("SKEP_MGMTD_NODE_PROBABLY_OFFLINE", "1s").with("SKEP_MGMTD_NODE_OFFLINE", "2s"),
    );
    until("all is well", PATIENCE, || match health(&cluster, &[]) {
        (0, _) => Ok(()),
        (_, text) => Err(text),
    })
    .unwrap();
    let (code, text) = health(&cluster, &["--key", cluster.dir().join("client.key").to_str().unwrap()]);
    assert!(
        code == 3 && text.contains("needs the cluster key") && text.contains("-> run it on a server"),
        "{code} {text}"
    );
    assert_eq!(health(&cluster, &["--no-such-flag"]).0, 3);
    let storaged = &cluster.of("storaged")[0];
    let status = || {
        let output = cluster.run(["status", "--dir", cluster.dir().to_str().unwrap()]).unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    storaged.signal(Signal::STOP).unwrap();
    patiently("a cluster with a silent server is not up", || !status().0).unwrap();
    let (_, text) = status();
    assert!(text.contains("not up; all of it runs, and 1 server does not answer: skep health"), "{text}");
    storaged.signal(Signal::CONT).unwrap();
    patiently("it is up again", || status().0).unwrap();
    let stranger = cluster.beside("stranger.key");
    cluster.must(["key", "generate", stranger.to_str().unwrap()]).unwrap();
    let (code, text) = health(&cluster, &["--key", stranger.to_str().unwrap()]);
    assert!(
        code == 2 && text.contains("name the key of this cluster") && !text.contains("start skep"),
        "{text}"
    );
    storaged.kill().unwrap();
    patiently("a dead storage server is an error", || health(&cluster, &[]).0 == 2).unwrap();
    let (_, text) = health(&cluster, &[]);
    assert!(text.contains("storaged-1") && text.contains("start skep storaged there"), "{text}");
    cluster.one("mgmtd").unwrap().kill().unwrap();
    let (code, text) = health(&cluster, &["--timeout", "1s"]);
    assert!(code == 2 && text.contains("start skep mgmtd"), "{code} {text}");
}

/// A mount whose process is gone, as the kernel shows it; gone when dropped.
struct DeadMount(PathBuf);

impl DeadMount {
    fn new(point: PathBuf, source: &str) -> Self {
        fs::create_dir(&point).unwrap();
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount(source, &point, "fuse.skep", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        Self(point)
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Goal: a dead mount is an error of its own cluster, and to another cluster on the machine only worth a note.
#[test]
fn health_tells_whose_mount_is_dead() {
    let cluster = start_with_room(plan());
    until("all is well", PATIENCE, || match health(&cluster, &[]) {
        (0, _) => Ok(()),
        (_, text) => Err(text),
    })
    .unwrap();
    let another = DeadMount::new(cluster.beside("another"), "unix:/nowhere/run/mgmtd.sock,127.0.0.1:9:/");
    let (code, text) = health(&cluster, &[]);
    let said = format!(
        "note     mount {}: dead (of another cluster, or by a port from before: unix:/nowhere/",
        another.0.display()
    );
    assert!(
        code == 0 && text.contains(&said) && text.contains("-> its process is gone: umount -l"),
        "{text}"
    );
    drop(another);
    let socket = cluster.dir().join("run/mgmtd.sock");
    let own = DeadMount::new(cluster.beside("own"), &format!("unix:{}:/", socket.display()));
    let (code, text) = health(&cluster, &[]);
    assert!(code == 2 && text.contains(&format!("ERROR    mount {}: dead\n", own.0.display())), "{text}");
}

/// Goal: a mount whose process was killed is dead at once, though its kernel goes on answering for a while what it was told; and the
/// next one takes away what it left.
#[test]
fn a_killed_mount_is_dead_at_once() {
    let cluster = start_with_room(plan());
    let point = cluster.second_mount("mnt1", &[]).unwrap();
    let killed = cluster.mount_daemon(&point).unwrap();
    let left = ["sock", "toml"].map(|kind| cluster.dir().join(format!("run/mount-{}.{kind}", killed.pid)));
    fs::metadata(&point).unwrap();
    killed.kill().unwrap();
    let (code, text) = health(&cluster, &[]);
    assert!(code == 2 && text.contains(&format!("ERROR    mount {}: dead\n", point.display())), "{text}");
    assert!(left.iter().all(|left| left.exists()));
    cluster.mount_again(&point).unwrap();
    assert!(!left.iter().any(|left| left.exists()), "{left:?}");
    cluster.must(["umount", point.to_str().unwrap()]).unwrap();
}

/// Goal: the bundle holds what it says and no key.
#[test]
fn a_bundle_has_no_keys() {
    let cluster = start(plan());
    let file = cluster.beside("bundle.tar.gz");
    let key = fs::read_to_string(cluster.dir().join("cluster.key")).unwrap();
    let secret = key.split_whitespace().last().unwrap();
    // An administrator's slip: a key where none belongs.
    let slip = cluster.dir().join("etc/metad-1.toml");
    let config = fs::read_to_string(&slip).unwrap();
    fs::write(&slip, format!("{config}# {key}\n")).unwrap();
    cluster.admin(["health", "bundle", file.to_str().unwrap()]).unwrap();
    let tar = |flags: &str| {
        let output = Command::new("tar").arg(flags).arg(&file).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let names = tar("-tzf");
    for part in
        ["/README.txt", "/health.json", "/state/nodes.json", "/metrics/mgmtd.txt", "/machine/kernel.txt"]
    {
        assert!(names.contains(part), "{part} is missing:\n{names}");
    }
    assert!(names.contains("etc-metad-1.toml") && names.contains("log-metad-1.log"), "{names}");
    assert!(!names.contains(".key"), "{names}");
    let all = tar("-xzOf");
    assert!(
        all.contains("skep_metad_requests_total") && all.contains("it could be a key"),
        "little was packed"
    );
    let token =
        cluster.must(["key", "token", "--key", cluster.dir().join("cluster.key").to_str().unwrap()]).unwrap();
    for secret in [secret, token.trim(), &secret[..32]] {
        assert!(!all.contains(secret), "a secret got out");
    }
    assert!(refusal(&cluster, &["health", "bundle", file.to_str().unwrap()]).contains("exists"));
}

/// Goal: a busy mount is not taken away, and whoever keeps it busy is named; then it ends tidily. A
/// second mount at the same place is refused; `skep down` names mounts that it does not end.
#[test]
fn mounts_end_tidily() {
    let cluster = start(plan());
    let point = cluster.second_mount("second", &[]).unwrap();
    let shown = point.to_str().unwrap();
    let again = cluster.run(cluster.mount_words(&point, &[])).unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("mounted there already"), "{said}");
    let mut worker = Command::new("sleep").arg("600").current_dir(&point).spawn().unwrap();
    let busy = refusal(&cluster, &["umount", shown]);
    assert!(busy.contains(&format!("process {} (sleep) works in {shown}", worker.id())), "{busy}");
    assert!(is_mounted(&point));
    worker.kill().unwrap();
    worker.wait().unwrap();
    fs::write(point.join("file"), "content").unwrap();
    let daemon = cluster.mount_daemon(&point).unwrap();
    cluster.must(["umount", shown]).unwrap();
    assert!(!is_mounted(&point) && !daemon.is_alive());
    assert_eq!(fs::read(cluster.mount().join("file")).unwrap(), b"content");
    assert!(refusal(&cluster, &["umount", shown]).contains("nothing is mounted there"));
    let other = cluster.second_mount("other", &[]).unwrap();
    let down = cluster.run(["down", "--dir", cluster.dir().to_str().unwrap()]).unwrap();
    let said = String::from_utf8_lossy(&down.stderr).into_owned();
    assert!(said.contains(&format!("{} is a mount of this cluster, too", other.display())), "{said}");
}

/// Goal: `skep down` under a program that goes on writing takes nothing away that it was answered for, though its mount is killed
/// in the end; the same of a mount that is told to end and is killed then; and `skep umount --force` says who lost it.
#[test]
fn what_was_answered_for_outlives_an_end_under_its_writer() {
    let cluster = start(plan());
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    // In chunks, so that small writes behind it stay with the mount for a while.
    let first = bytes(1, 100_000);
    let writes = |path: &Path, end: &mut dyn FnMut()| {
        let mut file = File::create(path).unwrap();
        let (answered, is_over) = (AtomicU64::new(first.len() as u64), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Also when something fails here.
            let _over = Over(&is_over);
            scope.spawn(|| {
                file.write_all(&first).unwrap();
                while !is_over.load(Ordering::SeqCst) && file.write_all(b"x").is_ok() {
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
            patiently("it writes", || answered.load(Ordering::SeqCst) > 105_000).unwrap();
            end();
        });
        answered.into_inner()
    };
    let point = cluster.second_mount("second", &[]).unwrap();
    let daemon = cluster.mount_daemon(&point).unwrap();
    let answered = writes(&point.join("ended"), &mut || {
        daemon.signal(Signal::TERM).unwrap();
        // The thread that waits for signals has done all it does when it is gone.
        patiently("the signal is answered", || !has_thread(daemon.pid, "stop")).unwrap();
        let file = cluster.mount().join("ended");
        assert!(length(&file) > 100_000, "what it kept is told");
        daemon.kill().unwrap();
    });
    let there = length(&cluster.mount().join("ended"));
    assert!(there >= answered, "{answered} were answered for, {there} are there");
    let point = cluster.second_mount("third", &[]).unwrap();
    writes(&point.join("forced"), &mut || {
        let ended = cluster.run(["umount", "--force", point.to_str().unwrap()]).unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() && said.contains("ended under who used it"), "{said}");
        assert!(said.contains(&format!("process {}", std::process::id())) && !is_mounted(&point), "{said}");
    });
    let file = cluster.mount().join("file");
    let answered = writes(&file, &mut || cluster.down().unwrap());
    cluster.up().unwrap();
    assert!(length(&file) >= answered, "{answered} were answered for, {} are there", length(&file));
}

fn has_thread(pid: u32, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads
        .map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default())
        .any(|comm| comm.trim() == name)
}

/// Goal: a mount that was detached, and is told to end, leaves alone what was mounted in its place; it serves its users
/// to their end, and has nothing to complain about.
#[test]
fn a_detached_mount_unmounts_no_other() {
    let cluster = start(plan());
    let point = cluster.second_mount("second", &[]).unwrap();
    let old = cluster.mount_daemon(&point).unwrap();
    assert!(has_thread(old.pid, "stop"));
    let mut user = File::create(point.join("file")).unwrap();
    unmount(&point, UnmountFlags::DETACH).unwrap();
    cluster.mount_again(&point).unwrap();
    old.signal(Signal::TERM).unwrap();
    // The thread that waits for signals has done all it does when it is gone.
    patiently("the signal is answered", || !has_thread(old.pid, "stop")).unwrap();
    assert!(is_mounted(&point) && old.is_alive());
    user.write_all(b"works on").unwrap();
    user.sync_all().unwrap();
    assert_eq!(fs::read(point.join("file")).unwrap(), b"works on");
    drop(user);
    old.wait_gone(PATIENCE).unwrap();
    assert!(is_mounted(&point));
    let name = format!("mount{}.log", point.display().to_string().replace('/', "-"));
    let log = fs::read_to_string(cluster.dir().join("run").join(name)).unwrap();
    assert!(log.contains("ended: Unmounted") && !log.contains("ERROR") && !log.contains("detached"), "{log}");
}

/// Goal: what cannot be taken back asks the person at the terminal, and does nothing without a yes; scripts, and `--yes`,
/// are not asked.
#[test]
fn dangerous_commands_ask() {
    let cluster = start(plan());
    let is_bad = || cluster.admin(["target", "list"]).unwrap().contains(" bad");
    let typed = |words: &[&str], keys: &str| {
        let mut terminal = Terminal::run(&cluster, words, (24, 100));
        terminal.press(keys);
        terminal.child.wait().unwrap().success()
    };
    for answer in ["n\n", "\n"] {
        assert!(!typed(&["target", "set-state", "101", "bad"], answer));
        assert!(!typed(&["target", "remove", "101", "--force"], answer));
    }
    assert!(!is_bad(), "nobody agreed");
    assert!(typed(&["target", "set-state", "101", "bad"], "y\n") && is_bad());
    assert!(typed(&["target", "set-state", "101", "good"], "") && !is_bad(), "nothing to be asked");
    assert!(typed(&["target", "set-state", "101", "bad", "--yes"], "") && is_bad());
    cluster.admin(["target", "set-state", "101", "good"]).unwrap();
    cluster.admin(["target", "set-state", "101", "bad"]).unwrap();
    assert!(is_bad());
}

/// Goal: SIGHUP, which administrators and log rotation send to daemons, ends none of them, and is answered in the log.
#[test]
fn hangups_end_no_daemon() {
    let cluster = start(plan());
    let before: Vec<_> = cluster.daemons();
    for daemon in &before {
        daemon.signal(Signal::HUP).unwrap();
    }
    let told = || cluster.logs().iter().filter(|(_, text)| text.contains("SIGHUP")).count();
    patiently("every daemon says what a SIGHUP does", || told() == before.len()).unwrap();
    assert_eq!(cluster.daemons(), before);
    fs::write(cluster.mount().join("file"), bytes(1, 3 << 20)).unwrap();
}

/// A pseudo terminal with a program on it.
struct Terminal {
    master: OwnedFd,
    slave: File,
    child: Child,
    seen: String,
}

impl Terminal {
    fn run(cluster: &Cluster, words: &[&str], size: (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let slave = File::options().read(true).write(true).open(path).unwrap();
        resize(&master, size);
        let mut command = cluster.command(cluster.admin_words(words));
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap());
        let child = command.spawn().unwrap();
        Self { master, slave, child, seen: String::new() }
    }

    /// Reads until the text was seen since the last time.
    fn until(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            assert!(Instant::now() < deadline, "{text:?} never came:\n{}", self.seen);
            let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut fds, Some(&limit)).unwrap() > 0 {
                let mut bytes = [0; 4096];
                let len = rustix::io::read(&self.master, &mut bytes).unwrap();
                self.seen.push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        }
        let end = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..end);
    }

    fn press(&self, key: &str) {
        rustix::io::write(&self.master, key.as_bytes()).unwrap();
    }

    /// It has ended well, and the terminal is as it was.
    fn ended(mut self) {
        self.until("\x1b[?1049l");
        assert!(self.child.wait().unwrap().success());
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    }
}

fn resize(master: &OwnedFd, (columns, rows): (u16, u16)) {
    tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Goal: the live view shows servers and targets on 80x24, takes keys, follows the size of the terminal,
/// and gives the terminal back as it was, however it ends.
#[test]
fn the_live_view_on_a_terminal() {
    let cluster = start(plan());
    let words = ["stats", "--watch", "200ms"];
    let mut terminal = Terminal::run(&cluster, &words, (80, 24));
    terminal.until("\x1b[?1049h");
    for part in ["METADATA", "metad-1", "TARGET", "storaged-2", "q quit"] {
        terminal.until(part);
    }
    assert!(!tcgetattr(&terminal.slave).unwrap().local_modes.contains(LocalModes::ECHO));
    terminal.press("s");
    terminal.until("sort: operations");
    terminal.press("p");
    terminal.until("PAUSED");
    resize(&terminal.master, (30, 10));
    terminal.until("PAUSED");
    terminal.press("q");
    terminal.ended();
    let mut terminal = Terminal::run(&cluster, &words, (80, 24));
    terminal.until("METADATA");
    kill_process(Pid::from_child(&terminal.child), Signal::TERM).unwrap();
    terminal.ended();
}

/// Goal: where nobody watches, there are lines and no escape sequences.
#[test]
fn the_live_view_without_a_terminal() {
    let cluster = start(plan());
    let words = cluster.admin_words(["stats", "--watch", "100ms", "--count", "2"]);
    let mut child = cluster.command(words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(text.matches("LATENCY").count(), 2, "{text}");
    assert!(!text.contains('\x1b') && text.contains("storaged-1"), "{text}");
}
