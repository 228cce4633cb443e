//! Three mounts and a local directory are given the same random changes: whichever mount makes a change, and whichever looks, each
//! answer is the one that the local directory gives.
//!
//! Three threads do so at once, each with trees of its own for a while, which it works on through all three mounts; then they
//! change places. So many trees, and so slowly, that directories are lent: what is compared is what mounts know.

use super::gathered::until_gathered;
use super::http::{metrics, ports};
use super::{Running, plan, start};
use handles::{Handles, Writers};
use skep_rig::Plan;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

mod handles;

/// Changes and looks of a run of the suite; a longer one is asked for by this variable, and said in `docs/proofs.md`.
const STEPS: u64 = 3_600;
const MORE: &str = "SKEP_AGREE_STEPS";
/// What each thread does can be repeated with the seed that is printed, though not how they meet.
const SEED: &str = "SKEP_AGREE_SEED";
const THREADS: u64 = 3;
/// Steps of a thread until trees change hands.
const TURN: u64 = 100;
/// Steps until it goes to another tree.
const VISIT: u64 = 20;
/// Each of five directories. A directory that several mounts change more than some two times a second is not lent.
const TREES: u64 = 48;
/// Of so many changes one is looked for by another mount that has looked just before.
const WITNESSES: u64 = 6;
/// Between two steps, for the same reason.
const PAUSE: Duration = Duration::from_millis(2);
const DIRS: [&str; 5] = [".", "a", "b", "a/c", "a/c/d"];
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn dir(&mut self, tree: u64) -> PathBuf {
        let dir = DIRS[self.below(DIRS.len() as u64) as usize];
        Path::new(&format!("t{tree}")).join(dir)
    }

    fn path(&mut self, tree: u64) -> PathBuf {
        self.dir(tree).join(NAMES[self.below(NAMES.len() as u64) as usize])
    }
}

/// What is done, at whichever place.
#[derive(Debug)]
enum Step {
    Create(PathBuf, bool),
    Write(PathBuf, u64, usize),
    Append(PathBuf, usize),
    Truncate(PathBuf, u64),
    Mode(PathBuf, u32),
    Touch(PathBuf, i64),
    Unlink(PathBuf),
    Mkdir(PathBuf),
    Rmdir(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf),
    Attribute(PathBuf, u8),
    Look(PathBuf),
    List(PathBuf),
    Content(PathBuf),
    Held(handles::Step),
}

impl Step {
    /// In `tree`; sometimes with a name in `other`.
    fn draw(dice: &mut Dice, tree: u64, other: u64) -> Self {
        let path = dice.path(tree);
        let beside = if dice.below(4) == 0 { other } else { tree };
        match dice.below(52) {
            0..4 => Self::Create(path, dice.below(2) == 0),
            4..6 => Self::Write(path, dice.below(9_000), dice.below(5_000) as usize),
            6 => Self::Append(path, dice.below(300) as usize),
            7 => Self::Truncate(path, dice.below(12_000)),
            8..10 => Self::Mode(path, 0o400 | dice.below(0o400) as u32),
            10 => Self::Touch(path, dice.below(1_000_000) as i64),
            11..13 => Self::Unlink(path),
            13..16 => Self::Mkdir(path),
            16 => Self::Rmdir(path),
            17..19 => Self::Rename(path, dice.path(beside)),
            19 => Self::Link(path, dice.path(beside)),
            20 => Self::Symlink(path),
            21 => Self::Attribute(path, dice.below(200) as u8),
            22..34 => Self::Look(path),
            34..37 => Self::List(dice.dir(tree)),
            37..40 => Self::Content(path),
            _ => Self::Held(handles::Step::draw(dice, path)),
        }
    }

    /// The same, where the kernel may know a directory by the place from which another mount took it: in the middle of a rename it
    /// cannot believe that (`d_splice_alias`) and says ESTALE, until somebody looks at it where it is now.
    fn run_again(&self, root: &Path) -> String {
        let told = self.run(root);
        match self {
            Self::Rename(from, to) if told.starts_with("Stale file handle") => {
                let _ = [from, to].map(|path| look(&root.join(path)));
                self.run(root)
            }
            _ => told,
        }
    }

    /// The name that it is about first.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Create(path, _)
            | Self::Write(path, ..)
            | Self::Append(path, _)
            | Self::Truncate(path, _) => Some(path),
            Self::Mode(path, _) | Self::Touch(path, _) | Self::Unlink(path) | Self::Mkdir(path) => Some(path),
            Self::Rmdir(path) | Self::Rename(path, _) | Self::Link(path, _) | Self::Symlink(path) => {
                Some(path)
            }
            Self::Attribute(..) | Self::Look(_) | Self::List(_) | Self::Content(_) | Self::Held(_) => None,
        }
    }

    /// The file of which it changes the content.
    fn writes(&self) -> Option<&Path> {
        match self {
            Self::Write(path, ..) | Self::Append(path, _) | Self::Truncate(path, _) => Some(path),
            _ => None,
        }
    }

    /// What whoever does it is told.
    fn run(&self, root: &Path) -> String {
        let at = |path: &Path| root.join(path);
        let told = match self {
            Self::Create(path, exclusive) => {
                let mut open = OpenOptions::new();
                open.write(true).create(true).create_new(*exclusive);
                open.open(at(path)).map(|_| String::new())
            }
            Self::Write(path, from, len) => OpenOptions::new()
                .write(true)
                .open(at(path))
                .and_then(|file| file.write_all_at(&vec![*len as u8; *len], *from))
                .map(|()| String::new()),
            Self::Append(path, len) => OpenOptions::new()
                .append(true)
                .open(at(path))
                .and_then(|mut file| file.write_all(&vec![*len as u8; *len]))
                .map(|()| String::new()),
            Self::Truncate(path, len) => OpenOptions::new()
                .write(true)
                .open(at(path))
                .and_then(|file| file.set_len(*len))
                .map(|()| String::new()),
            Self::Mode(path, mode) => {
                fs::set_permissions(at(path), Permissions::from_mode(*mode)).map(|()| String::new())
            }
            Self::Touch(path, secs) => touch(&at(path), *secs),
            Self::Unlink(path) => fs::remove_file(at(path)).map(|()| String::new()),
            Self::Mkdir(path) => fs::create_dir(at(path)).map(|()| String::new()),
            Self::Rmdir(path) => fs::remove_dir(at(path)).map(|()| String::new()),
            Self::Rename(from, to) => fs::rename(at(from), at(to)).map(|()| String::new()),
            Self::Link(from, to) => fs::hard_link(at(from), at(to)).map(|()| String::new()),
            Self::Symlink(path) => symlink("target", at(path)).map(|()| String::new()),
            Self::Attribute(path, value) => attribute(&at(path), *value),
            Self::Look(path) => look(&at(path)),
            Self::List(path) => list(&at(path)),
            // The second one need not ask.
            Self::Content(path) => content(&at(path))
                .and_then(|first| content(&at(path)).map(|again| format!("{first}; {again}"))),
            Self::Held(_) => unreachable!("by who has the handles"),
        };
        told.unwrap_or_else(|e| e.to_string())
    }
}

fn touch(path: &Path, secs: i64) -> io::Result<String> {
    let time = rustix::fs::Timespec { tv_sec: secs, tv_nsec: 5 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(String::new())
}

/// Sets an extended attribute and says what was there before.
fn attribute(path: &Path, value: u8) -> io::Result<String> {
    let name = CString::new("user.of").unwrap();
    let mut before = [0; 8];
    let found = rustix::fs::lgetxattr(path, name.as_c_str(), &mut before).map(|len| before[..len].to_vec());
    rustix::fs::lsetxattr(path, name.as_c_str(), &[value], rustix::fs::XattrFlags::empty())?;
    Ok(format!("{found:?}"))
}

/// What everybody must agree on: a time that nobody gave is each place's own.
fn look(path: &Path) -> io::Result<String> {
    Ok(shown(&fs::symlink_metadata(path)?))
}

fn shown(found: &fs::Metadata) -> String {
    let size = if found.is_dir() { 0 } else { found.size() };
    let given = if found.mtime() < 2_000_000 { found.mtime() } else { -1 };
    format!("{:o} {} links, {size} bytes, {given}", found.mode(), found.nlink())
}

fn list(path: &Path) -> io::Result<String> {
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        names.insert(entry.file_name(), look(&entry.path()).unwrap_or_else(|e| e.to_string()));
    }
    Ok(format!("{names:?}"))
}

fn content(path: &Path) -> io::Result<String> {
    let mut all = Vec::new();
    File::open(path)?.read_to_end(&mut all)?;
    Ok(sum(&all))
}

fn sum(all: &[u8]) -> String {
    let sum = all.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{} bytes, {sum:x}", all.len())
}

/// One of the threads.
struct Worker<'a> {
    number: u64,
    mounts: &'a [PathBuf],
    local: &'a Path,
    dice: Dice,
    handles: Handles,
    done: u64,
}

impl Worker<'_> {
    /// One of the trees that are this thread's in this turn: nobody else changes them.
    fn tree(&mut self, turn: u64) -> u64 {
        let class = (self.number + turn) % THREADS;
        self.dice.below(TREES / THREADS) * THREADS + class
    }

    fn turn(&mut self, turn: u64) -> Result<(), String> {
        self.handles.changes_hands((self.number + turn) % THREADS);
        let mut tree = self.tree(turn);
        let mut usual = 0;
        for step in 0..TURN {
            if step % VISIT == 0 {
                tree = self.tree(turn);
                usual = self.dice.below(self.mounts.len() as u64) as usize;
                if self.dice.below(2) == 0 {
                    self.plant(tree, usual)?;
                }
            }
            // Who looks once more at what he has looked at before need not ask.
            let who = match self.dice.below(8) {
                0 => self.dice.below(self.mounts.len() as u64) as usize,
                _ => usual,
            };
            self.step(turn, tree, who)?;
            if self.dice.below(8) == 0 {
                self.stray(who);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Makes the tree anew, by a mount that is alone with it then: it may hold what it makes there.
    fn plant(&mut self, tree: u64, who: usize) -> Result<(), String> {
        let name = format!("t{tree}");
        for root in [self.local, &self.mounts[who]] {
            let planted =
                fs::remove_dir_all(root.join(&name)).and_then(|()| fs::create_dir(root.join(&name)));
            planted.map_err(|e| format!("thread {}, mount {who}: {name} is made anew: {e}", self.number))?;
        }
        for _ in 0..2 {
            let name = NAMES[self.dice.below(NAMES.len() as u64) as usize];
            let step = handles::Step::make(&mut self.dice, Path::new(&format!("t{tree}")).join(name));
            if let Some((who, expected, told)) = self.handles.run(&step, who, self.local, &self.mounts[who]) {
                self.compare(&Step::Held(step), who, expected, told)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, turn: u64, tree: u64, who: usize) -> Result<(), String> {
        let other = self.tree(turn);
        let step = match Step::draw(&mut self.dice, tree, other) {
            // It stays over what its writer writes who has not heard of it (promises, "Not promised").
            Step::Touch(path, _) if self.handles.writers.has(&self.local.join(&path)) => Step::Look(path),
            step => step,
        };
        self.done += 1;
        // Another mount, which has just looked, and looks again.
        let witness = self.dice.below(WITNESSES * self.mounts.len() as u64) as usize;
        let path = step.path().filter(|_| witness < self.mounts.len()).map(Path::to_owned);
        let looks = path.map(|path| (witness, Step::Look(path)));
        if let Some((witness, look)) = &looks {
            self.compare(look, *witness, look.run(self.local), look.run(&self.mounts[*witness]))?;
        }
        if let Step::Held(held) = &step {
            let Some((who, expected, told)) = self.handles.run(held, who, self.local, &self.mounts[who])
            else {
                return Ok(());
            };
            return self.compare(&step, who, expected, told);
        }
        let expected = step.run(self.local);
        if let Some(path) = step.writes() {
            self.handles.are_changed(&self.local.join(path), who);
        }
        self.compare(&step, who, expected, step.run_again(&self.mounts[who]))?;
        match &looks {
            Some((witness, look)) => self
                .compare(look, *witness, look.run(self.local), look.run(&self.mounts[*witness]))
                .map_err(|error| format!("{error}, after {step:?} by mount {who}")),
            None => Ok(()),
        }
    }

    fn compare(&self, step: &Step, who: usize, expected: String, told: String) -> Result<(), String> {
        if told == expected {
            return Ok(());
        }
        let (thread, number) = (self.number, self.done);
        Err(format!(
            "thread {thread}, step {number}, mount {who}: {step:?}: told {told}, expected {expected}"
        ))
    }

    /// Looks at what another thread may be changing: what this mount is told it is lent, and that is taken back while it is told.
    fn stray(&mut self, who: usize) {
        let path = {
            let tree = self.dice.below(TREES);
            self.dice.path(tree)
        };
        let at = self.mounts[who].join(&path);
        let _ = match self.dice.below(4) {
            0 => at.parent().map_or(Ok(String::new()), list),
            1 => content(&at),
            _ => look(&at),
        };
    }
}

fn agree(plan: Plan) {
    let cluster = start(plan);
    let mut mounts = vec![cluster.mount().to_owned()];
    mounts.extend(["mnt1", "mnt2"].map(|name| cluster.second_mount(name, &[]).unwrap()));
    let local = tempfile::tempdir().unwrap();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let steps = number(MORE).unwrap_or(STEPS);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number(SEED).unwrap_or(now.as_micros() as u64);
    println!("{SEED}={seed} {MORE}={steps}");
    for tree in 0..TREES {
        let name = format!("t{tree}");
        fs::create_dir(local.path().join(&name)).unwrap();
        fs::create_dir(mounts[tree as usize % mounts.len()].join(&name)).unwrap();
    }
    // Targets that have just begun promise no room for small writes where there is little.
    until_gathered(&cluster, &mounts[0].join("t0"));
    let (barrier, failed) = (Barrier::new(THREADS as usize), AtomicBool::new(false));
    let (errors, writers) = (Mutex::new(Vec::new()), Writers::default());
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let dice =
                Dice(seed.wrapping_mul(THREADS).wrapping_add(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let (mounts, local) = (mounts.as_slice(), local.path());
            let handles = Handles::new(writers.clone());
            let mut worker = Worker { number, mounts, local, dice, handles, done: 0 };
            let (barrier, failed, errors) = (&barrier, &failed, &errors);
            scope.spawn(move || {
                for turn in 0..steps.div_ceil(THREADS * TURN) {
                    // Who failed goes on meeting the others, or they would wait for it.
                    if !failed.load(Ordering::SeqCst)
                        && let Err(error) = worker.turn(turn)
                    {
                        errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                        failed.store(true, Ordering::SeqCst);
                    }
                    barrier.wait();
                }
            });
        }
    });
    let errors = errors.into_inner().unwrap();
    assert!(errors.is_empty(), "{SEED}={seed}: {errors:#?}");
    knew_much(&cluster, steps as f64);
}

/// The first mount answered from memory, and what it knew was taken back, so often that this is a proof of something: some third of
/// what was counted on a busy machine.
fn knew_much(cluster: &Running, steps: f64) {
    let page = metrics(ports(cluster)["mount"]);
    let memory: BTreeMap<String, f64> = page
        .samples
        .iter()
        .filter(|sample| sample.name == "skep_mount_answered_from_memory_total")
        .map(|sample| (sample.labels["what"].clone(), sample.value))
        .collect();
    let recalls = page.value("skep_mount_recalls_total", &[]).unwrap();
    println!("{recalls} recalls; answered from memory: {memory:?}");
    assert!(recalls > steps / 100.0, "{recalls} recalls");
    assert!(memory["name"] + memory["absent"] > steps / 12.0, "{memory:?}");
    assert!(memory["attributes"] + memory["listing"] > steps / 300.0, "{memory:?}");
    assert!(memory["gathered"] > 0.0, "{memory:?}");
}

/// Goal: mounts that answer from memory show each change of any of them at its next look, and through what is open.
#[test]
fn mounts_agree_with_a_local_directory() {
    agree(plan().with("SKEP_MOUNT_LEASES", "on"));
}
