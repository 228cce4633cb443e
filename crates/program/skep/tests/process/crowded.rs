//! Pools that fill up under small writes that wait for one another: what a program was answered for is there, or the program
//! is told.

use super::gathered::{gathered, until_gathered};
use super::pools::{Disk, directory_of, set};
use super::{Over, Running, bytes, plan, start};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use skep_rig::{PATIENCE, until};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A daemon does not know what the one before it had promised: for its first ten seconds it needs some 5 GiB free to promise
/// anything. (Sparse: only what is written is on a disk.)
const DISK_MIB: u32 = 6_144;
const RESERVE_MIB: u64 = 64;
/// What a target keeps back for a mount, for so long.
const PROMISED_MIB: u64 = 64;
const PROMISED: Duration = Duration::from_secs(10);
/// More than is promised to both mounts.
const HOLE_MIB: u64 = 160;
/// Rounds in which something may still wait when the disk is full.
const TRIES: usize = 5;
const BLOCK: usize = 4_096;
const FILES: u32 = 160;
/// Files of this program's own of which a part waits when the pool is filled.
const WAITING: usize = 12;
/// So long that they are in chunks.
const BEGUN: usize = 9_000;
const PIECE: usize = 512;
/// Small writes that have stayed with the mount before the pool is filled.
const STAYED: f64 = 150.0;

/// Two mounts of a cluster with a directory whose pool is one small target.
struct Small {
    cluster: Running,
    here: PathBuf,
    there: PathBuf,
    target: PathBuf,
    disk: Disk,
}

impl Small {
    fn new() -> Self {
        let cluster = start(plan().with("SKEP_STORAGED_RESERVE", &format!("{RESERVE_MIB}MiB")));
        set(&cluster, &["pool", "create", "small", "--targets", "101"]);
        let target = directory_of(&cluster, 101);
        cluster.down().unwrap();
        let disk = Disk::ext4_under(&target, DISK_MIB, &cluster.beside("small.image"));
        cluster.up().unwrap();
        let there = cluster.second_mount("mnt1", &[]).unwrap().join("dir");
        let here = cluster.mount().join("dir");
        set(&cluster, &["dir", "create", here.to_str().unwrap(), "--pool", "small"]);
        Self { cluster, here, there, target, disk }
    }

    /// Both mounts are made again: what they knew is forgotten.
    fn mount_again(&self) {
        let points = [self.cluster.mount(), self.there.parent().unwrap()];
        for point in points {
            let daemon = self.cluster.mount_daemon(point).unwrap();
            self.cluster.must(["umount", point.to_str().unwrap()]).unwrap();
            // Where it shows its counters the next one shall.
            daemon.wait_gone(PATIENCE).unwrap();
        }
        for point in points {
            self.cluster.mount_again(point).unwrap();
        }
    }

    fn end(self) {
        drop(self.cluster);
        drop(self.disk);
    }
}

/// The so-many-th block of what dd is given.
fn block(number: u64) -> [u8; BLOCK] {
    let mut block = [number as u8 | 1; BLOCK];
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}

/// Size and content of a file of the tree.
fn content(number: u32) -> Vec<u8> {
    bytes(number, 700 + (number as usize * 7_919) % 150_000)
}

fn name(number: u32) -> String {
    format!("{}/f{number}", number % 20)
}

/// What is copied and unpacked: a tree, and an archive of it.
fn tree(cluster: &Running) -> (PathBuf, PathBuf) {
    let (tree, archive) = (cluster.beside("tree"), cluster.beside("tree.tar"));
    for dir in 0..20 {
        fs::create_dir_all(tree.join(dir.to_string())).unwrap();
    }
    for number in 0..FILES {
        fs::write(tree.join(name(number)), content(number)).unwrap();
    }
    let made = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".").status().unwrap();
    assert!(made.success());
    (tree, archive)
}

/// A program that writes without fsync.
struct Writer {
    program: Child,
    said: JoinHandle<String>,
    /// Gives dd more than there is room for.
    feeder: Option<JoinHandle<()>>,
}

/// How it ended, and what it said.
struct Ended {
    is_fine: bool,
    said: String,
}

impl Writer {
    fn start(program: &str, words: &[&Path], at: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(words).current_dir(at).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut errors = program.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            errors.read_to_string(&mut said).unwrap();
            said
        });
        Self { program, said, feeder: None }
    }

    fn fed(mut self) -> Self {
        let mut input = self.program.stdin.take().unwrap();
        let feed = move || (0..).try_for_each(|number| input.write_all(&block(number))).unwrap_or(());
        self.feeder = Some(std::thread::spawn(feed));
        self
    }

    fn end(mut self) -> Ended {
        let status = self.program.wait().unwrap();
        if let Some(feeder) = self.feeder {
            feeder.join().unwrap();
        }
        Ended { is_fine: status.success(), said: self.said.join().unwrap() }
    }
}

/// What became of one round's programs.
struct Round {
    dir: PathBuf,
    dd: Ended,
    cp: Ended,
    tar: Ended,
    /// What fsync said of each of the files that waited with the mount when the pool was filled.
    synced: Vec<io::Result<()>>,
}

/// What is in the files of which a part waits.
fn waiting(number: usize) -> Vec<u8> {
    bytes(1_000 + number as u32, BEGUN + 16 * PIECE)
}

fn waits(at: &Path, number: usize) -> File {
    let (mut file, content) = (File::create_new(at.join(format!("waits{number}"))).unwrap(), waiting(number));
    file.write_all(&content[..BEGUN]).unwrap();
    content[BEGUN..].chunks(PIECE).for_each(|piece| file.write_all(piece).unwrap());
    file
}

/// Runs them in a directory of the first mount, and `fill` when small writes of theirs wait with that.
fn round(small: &Small, name: &str, (tree, archive): &(PathBuf, PathBuf), fill: impl FnOnce()) -> Round {
    let dir = Path::new(name);
    let at = small.here.join(dir);
    fs::create_dir(&at).unwrap();
    fs::create_dir(at.join("tar")).unwrap();
    until_gathered(&small.cluster, &at);
    let before = gathered(&small.cluster);
    let dd = Writer::start("dd", &["of=dd", "bs=4k", "iflag=fullblock"].map(Path::new), &at).fed();
    let cp = Writer::start("cp", &["-r".as_ref(), tree, "cp".as_ref()], &at);
    let tar = Writer::start("tar", &["-xf".as_ref(), archive, "-C".as_ref(), "tar".as_ref()], &at);
    until("small writes stay with the mount", PATIENCE, || {
        let stayed = gathered(&small.cluster) - before;
        if stayed >= STAYED { Ok(()) } else { Err(format!("{stayed}")) }
    })
    .unwrap();
    let before_these = gathered(&small.cluster);
    let files: Vec<File> = (0..WAITING).map(|number| waits(&at, number)).collect();
    assert!(gathered(&small.cluster) - before_these >= (8 * WAITING) as f64, "they do not wait");
    let begun = Instant::now();
    fill();
    let synced: Vec<_> = files.iter().map(File::sync_all).collect();
    drop(files);
    println!("{name}: synced {:?} after that: {synced:?}", begun.elapsed());
    let [dd, cp, tar] = [dd, cp, tar].map(Writer::end);
    println!("{name}: all ended {:?} after somebody began to fill the pool", begun.elapsed());
    println!("{} small writes stayed; dd: {}", gathered(&small.cluster) - before, dd.said);
    assert!(!dd.is_fine && dd.said.contains("No space left on device"), "{}", dd.said);
    Round { dir: dir.to_owned(), dd, cp, tar, synced }
}

/// Reads all that a round has written through a mount: what nobody complained of is there, every byte.
/// `is_exact`: so is what dd was answered for before it met an error.
fn compare(mount: &Path, round: &Round, is_exact: bool) {
    let at = mount.join(&round.dir);
    if is_exact {
        let line = round.dd.said.lines().find(|line| line.contains(" bytes ")).unwrap();
        let copied: usize = line.split(' ').next().unwrap().parse().unwrap();
        let found = fs::read(at.join("dd")).unwrap();
        assert!(found.len() >= copied, "{} of {copied} bytes of dd are there", found.len());
        for (number, found) in found.chunks(BLOCK).enumerate() {
            assert!(*found == block(number as u64)[..found.len()], "block {number} of dd");
        }
    }
    for number in (0..WAITING).filter(|number| round.synced[*number].is_ok()) {
        let found = fs::read(at.join(format!("waits{number}"))).unwrap();
        assert!(found == waiting(number), "{} bytes of file {number}, which was synced", found.len());
    }
    for (program, ended) in [("cp", &round.cp), ("tar", &round.tar)] {
        let failed = (0..FILES).filter(|number| {
            let name = name(*number);
            ended
                .said
                .lines()
                .any(|line| line.contains(&format!("{name}:")) || line.contains(&format!("{name}'")))
        });
        let failed: BTreeSet<u32> = failed.collect();
        assert_eq!(ended.is_fine, failed.is_empty(), "{program}: {}", ended.said);
        println!("{program}: {} of {FILES} files are whole", FILES as usize - failed.len());
        for number in (0..FILES).filter(|number| !failed.contains(number)) {
            let found = fs::read(at.join(program).join(name(number))).unwrap_or_default();
            assert!(found == content(number), "{program}: file {number}: {} bytes", found.len());
        }
    }
}

/// Takes all that a local file system has.
fn take_all_below(target: &Path) -> File {
    let file = File::create(target.join("outside")).unwrap();
    let mut at = 0;
    for step in [256 << 20, 1 << 20, BLOCK as u64] {
        while fallocate(&file, FallocateFlags::empty(), at, step).is_ok() {
            at += step;
        }
    }
    file
}

/// Another mount's program that takes all that it is given until it is told to end. The first refusal ends its file: so what is
/// left is less than a step.
fn take_all(small: &Small, hole: &File, ends: &AtomicBool, is_full: &AtomicBool) {
    let left = statvfs(&small.target).map(|at| at.f_bavail * at.f_frsize).unwrap() >> 20;
    let (file, begun) = (File::create(small.there.join("filler")).unwrap(), Instant::now());
    let most = (left - RESERVE_MIB - 160) << 20;
    // Who is late for that takes what is left in small steps.
    let mut at = if fallocate(&file, FallocateFlags::empty(), 0, most).is_ok() { most } else { 0 };
    while fallocate(&file, FallocateFlags::empty(), at, 1 << 20).is_ok() {
        at += 1 << 20;
    }
    // A file that has its places already, for which no target needs to be chosen.
    let mut rest = 0;
    while rest < HOLE_MIB && hole.write_all_at(&vec![1; 1 << 20], rest << 20).is_ok() {
        rest += 1;
    }
    is_full.store(rest < HOLE_MIB, Ordering::SeqCst);
    println!("another mount was given {} of {left} MiB, and {rest} more", at >> 20);
    assert!(rest < HOLE_MIB, "the other mount was never refused");
    if begun.elapsed() < PROMISED / 2 {
        assert!(rest < PROMISED_MIB, "it was given {rest} MiB of what was promised to the first one");
    }
    for number in 0.. {
        if ends.load(Ordering::SeqCst) {
            return;
        }
        // What is promised to nobody any more is anybody's.
        let _ = fs::write(small.there.join(format!("filler{number}")), vec![1; 256 << 10]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Goal: dd, cp and tar, which sync nothing, write to a pool that another mount fills meanwhile. Each ends with an error, or all that
/// it wrote is there; so is all of which it did not complain, and all that dd counts as written: targets keep the room that
/// they promised for what waits with the mount. Where they cannot, for somebody else has filled their disks to the last
/// byte, the program is told all the same.
#[test]
fn a_pool_that_fills_up_under_small_writes() {
    let small = Small::new();
    let source = tree(&small.cluster);
    let hole = File::create(small.there.join("hole")).unwrap();
    hole.write_all_at(b"x", HOLE_MIB << 20).unwrap();
    hole.sync_all().unwrap();
    let (ends, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
    let full = std::thread::scope(|scope| {
        let _over = Over(&ends);
        round(&small, "full", &source, || {
            scope.spawn(|| take_all(&small, &hole, &ends, &is_full));
            // What waits is not brought to its targets before they are full.
            until("the pool is full", Duration::from_secs(30), || {
                if is_full.load(Ordering::SeqCst) { Ok(()) } else { Err("not yet".to_owned()) }
            })
            .unwrap();
        })
    });
    drop(hole);
    assert!(full.synced.iter().all(Result::is_ok), "what was promised is not kept: {:?}", full.synced);
    compare(&small.there, &full, true);
    small.mount_again();
    compare(&small.there, &full, true);
    compare(&small.here, &full, true);

    for entry in fs::read_dir(&small.there).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        fs::remove_file(entry.path()).unwrap();
    }
    // What waits goes to its targets within a second, which a busy machine may need to fill the disk.
    let mut broken: Vec<Round> = Vec::new();
    for turn in 0..TRIES {
        if broken.iter().all(|one| one.synced.iter().all(Result::is_ok)) {
            until("space is free again", PATIENCE, || {
                fs::write(small.here.join("probe"), vec![1; 1 << 20]).map_err(|e| e.to_string())
            })
            .unwrap();
            let fill = || drop(take_all_below(&small.target));
            let one = round(&small, &format!("broken{turn}"), &source, fill);
            fs::remove_file(small.target.join("outside")).unwrap();
            compare(&small.there, &one, false);
            broken.push(one);
        }
    }
    assert!(
        broken.iter().any(|one| one.synced.iter().any(Result::is_err)),
        "nothing waited that found no room"
    );
    small.mount_again();
    broken.iter().for_each(|one| compare(&small.there, one, false));
    compare(&small.here, &full, true);
    small.end();
}
