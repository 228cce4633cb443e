//! More programs wait for old pages of one file to go than a mount serves at once, and a page of it is being filled that
//! they wait for.

use super::{bytes, plan, start};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use rustix::thread::CpuSet;
use skep_rig::patiently;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// More than a mount has places: 64 on /dev/fuse, 32 for each processor with io_uring.
const PROGRAMS: usize = 200;
/// In which all of them go on; the mount gives up after 60 s.
const SOON: Duration = Duration::from_secs(40);

/// Maps a file and touches a byte of it for each number that it is given, on the processor that all programs here run on.
const MAPS: &str = r"
import mmap, os, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
handle = os.open(sys.argv[1], os.O_RDONLY)
memory = mmap.mmap(handle, 0, mmap.MAP_SHARED, mmap.PROT_READ)
for line in sys.stdin: print(memory[int(line)], flush=True)
";

struct Mapping {
    child: Child,
    ask: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Mapping {
    fn of(path: &Path, cpu: usize) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", MAPS]).arg(path).arg(cpu.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is missing: apt-get install python3");
        let (ask, told) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, ask, told }
    }

    fn touch(&mut self, at: usize) {
        writeln!(self.ask, "{at}").unwrap();
    }

    fn told(&mut self) -> u8 {
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    /// Until the page that it touched is being filled.
    fn waits_for_a_page(&self) {
        let wchan = format!("/proc/{}/wchan", self.child.id());
        let waits = || fs::read_to_string(&wchan).is_ok_and(|at| at.contains("folio") || at.contains("page"));
        patiently("the page is being filled", waits).unwrap();
    }
}

/// Threads of this process that wait for an answer of FUSE.
fn waiting_in_fuse() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let at = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("wchan")).ok());
    at.filter(|wchan| wchan.contains("request_wait")).count()
}

/// Takes a lock, which is one request.
fn locks(file: &File, cpu: usize) -> rustix::io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    rustix::thread::sched_setaffinity(None, &cpus)?;
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)
}

/// Goal: programs that lock a file which another mount changed wait until its old pages are gone, and these until those are
/// filled that are being filled. A read that fills one comes behind locks that take every place of the mount, and is
/// served all the same: nobody waits for ever.
#[test]
fn pages_are_filled_however_many_wait_for_them() {
    // What is touched first is read with much of what lies around it: the pages that are to be filled lie far behind, and
    // whatever the kernel has read of them ahead is dropped.
    const LEN: usize = 32 << 20;
    const FIRST: usize = 16 << 20;
    const LAST: usize = 24 << 20;
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let content = bytes(1, LEN);
    fs::write(cluster.mount().join("file"), &content).unwrap();
    let path = second.join("file");
    let file = File::open(&path).unwrap();
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let (mut first, mut last) = (Mapping::of(&path, cpu), Mapping::of(&path, cpu));
    for mapping in [&mut first, &mut last] {
        mapping.touch(0);
        assert_eq!(mapping.told(), content[0]);
    }
    fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    let servers = cluster.of("storaged");
    servers.iter().for_each(|server| server.signal(Signal::STOP).unwrap());
    first.touch(FIRST);
    first.waits_for_a_page();
    fs::set_permissions(cluster.mount().join("file"), Permissions::from_mode(0o640)).unwrap();
    let (sender, locked) = channel();
    for _ in 0..PROGRAMS {
        let (file, sender) = (file.try_clone().unwrap(), sender.clone());
        std::thread::spawn(move || sender.send(locks(&file, cpu)));
    }
    patiently("all programs wait", || waiting_in_fuse() >= PROGRAMS).unwrap();
    last.touch(LAST);
    last.waits_for_a_page();
    servers.iter().for_each(|server| server.signal(Signal::CONT).unwrap());
    let until = Instant::now() + SOON;
    for number in 0..PROGRAMS {
        let left = until.saturating_duration_since(Instant::now());
        let result = locked.recv_timeout(left);
        result.unwrap_or_else(|_| panic!("{number} of {PROGRAMS} programs have the lock")).unwrap();
    }
    assert_eq!((first.told(), last.told()), (content[FIRST], content[LAST]));
    for mapping in [first, last] {
        let Mapping { mut child, ask, .. } = mapping;
        drop(ask);
        assert!(child.wait().unwrap().success());
    }
}
