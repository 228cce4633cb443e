//! Three mounts and a local directory are given the same random changes, one at a time: whichever mount makes a change, and
//! whichever looks, each answer is the one that the local directory gives.

use super::{plan, start};
use skep_rig::Plan;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Changes and looks of a run of the suite; a longer one is asked for by this variable, and said in `docs/proofs.md`.
const STEPS: u64 = 3_000;
const MORE: &str = "SKEP_AGREE_STEPS";
const DIRS: [&str; 5] = [".", "a", "b", "a/c", "a/c/d"];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn path(&mut self) -> PathBuf {
        let dir = DIRS[self.below(DIRS.len() as u64) as usize];
        Path::new(dir).join(NAMES[self.below(NAMES.len() as u64) as usize])
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
}

impl Step {
    fn draw(dice: &mut Dice) -> Self {
        let path = dice.path();
        match dice.below(40) {
            0..4 => Self::Create(path, dice.below(2) == 0),
            4..6 => Self::Write(path, dice.below(9_000), dice.below(5_000) as usize),
            6 => Self::Append(path, dice.below(300) as usize),
            7 => Self::Truncate(path, dice.below(12_000)),
            8..10 => Self::Mode(path, 0o400 | dice.below(0o400) as u32),
            10 => Self::Touch(path, dice.below(1_000_000) as i64),
            11..13 => Self::Unlink(path),
            13..16 => Self::Mkdir(path),
            16 => Self::Rmdir(path),
            17..19 => Self::Rename(path, dice.path()),
            19 => Self::Link(path, dice.path()),
            20 => Self::Symlink(path),
            21 => Self::Attribute(path, dice.below(200) as u8),
            22..34 => Self::Look(path),
            34..37 => Self::List(PathBuf::from(DIRS[dice.below(DIRS.len() as u64) as usize])),
            _ => Self::Content(path),
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
            Self::Content(path) => content(&at(path)),
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
    let found = fs::symlink_metadata(path)?;
    let size = if found.is_dir() { 0 } else { found.size() };
    let given = if found.mtime() < 2_000_000 { found.mtime() } else { -1 };
    Ok(format!("{:o} {} links, {size} bytes, {given}", found.mode(), found.nlink()))
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
    let sum = all.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    Ok(format!("{} bytes, {sum:x}", all.len()))
}

fn agree(plan: Plan) {
    let cluster = start(plan);
    let mut mounts = vec![cluster.mount().to_owned()];
    mounts.extend(["mnt1", "mnt2"].map(|name| cluster.second_mount(name, &[]).unwrap()));
    let local = tempfile::tempdir().unwrap();
    let steps = std::env::var(MORE).map_or(STEPS, |text| text.parse().unwrap());
    let mut dice = Dice(steps);
    for number in 0..steps {
        let step = Step::draw(&mut dice);
        let who = dice.below(mounts.len() as u64) as usize;
        let expected = step.run(local.path());
        let told = step.run_again(&mounts[who]);
        assert_eq!(told, expected, "step {number} of mount {who}: {step:?}");
    }
}

/// Goal: mounts that answer from memory show each change of any of them at its next look.
#[test]
fn mounts_agree_with_a_local_directory() {
    agree(plan().with("SKEP_MOUNT_LEASES", "on"));
}
