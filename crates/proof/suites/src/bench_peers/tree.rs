//! What programs do to a tree of small files, and `ls -l` of a large directory.

use super::counters::Counters;
use super::load::{Measured, make};
use super::rows;
use super::systems::{EMPTY, Member, PAGES};
use crate::bench::measure::{Order, Worker, timed};
use crate::bench::worker::Work;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Files of one directory.
const PER_DIRECTORY: usize = 20;
/// Sizes are spread evenly up to this, as in a tree of sources.
const LARGEST: u64 = 16 * 1024;
/// A word that is in no file, so that grep reads them all.
const NOWHERE: &str = "skep-bench-nowhere";
/// Processes that fill a large directory.
const FILLING: usize = 4;
/// How often a program with a time limit is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// "After 10 s".
pub const LATER: Duration = Duration::from_secs(10);

/// What all systems are given, on tmpfs.
pub struct Source {
    archive: PathBuf,
    repository: Option<PathBuf>,
    files: usize,
}

impl Source {
    /// Makes the tree, its archive, and a repository where git is installed.
    pub fn make(scratch: &Path, files: usize) -> Result<Self, String> {
        let tree = scratch.join("source/tree");
        let mut draw = 88_172_645_463_325_252;
        for number in 0..files {
            let directory =
                tree.join(format!("part-{}/{}", number / PER_DIRECTORY / 10, number / PER_DIRECTORY));
            std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
            let path = directory.join(format!("file-{number}.c"));
            std::fs::write(&path, content(number, &mut draw))
                .map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let archive = scratch.join("source/tree.tar");
        done(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg("."))?;
        let repository = scratch.join("source/tree.git");
        let has_git =
            git().arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
        if has_git {
            done(git().args(["init", "--quiet"]).arg(&tree))?;
            done(git().arg("-C").arg(&tree).args(["add", "."]))?;
            let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
            done(git().arg("-C").arg(&tree).args(who).args(["commit", "--quiet", "-m", "tree"]))?;
            done(git().args(["clone", "--quiet", "--bare"]).arg(&tree).arg(&repository))?;
        }
        Ok(Self { archive, repository: has_git.then_some(repository), files })
    }

    /// The empty file system reads zeros: no repository there.
    fn repository(&self, member: &Member) -> Option<&Path> {
        self.repository.as_deref().filter(|_| member.name != EMPTY)
    }
}

/// Lines of text, another one in each file.
fn content(number: usize, draw: &mut u64) -> String {
    // xorshift64
    *draw ^= *draw << 13;
    *draw ^= *draw >> 7;
    *draw ^= *draw << 17;
    let (mut text, length) = (String::new(), 64 + *draw % LARGEST);
    let mut line = 0;
    while (text.len() as u64) < length {
        text.push_str(&format!("static int value_{number}_{line} = {};\n", *draw ^ line));
        line += 1;
    }
    text
}

/// Without the settings of whoever runs this.
fn git() -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    command
}

/// Runs it to its end. grep finds nothing, which is 1.
fn done(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    let fine =
        output.status.code().is_some_and(|code| code == 0 || code == 1 && command.get_program() == "grep");
    if fine { Ok(()) } else { Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))) }
}

/// Are trees measured on it?
pub fn is_on(member: &Member) -> bool {
    member.name != PAGES
}

/// What is done to one system.
pub struct Trees<'a> {
    /// The system.
    pub member: &'a Member,
    /// What it is given.
    pub source: &'a Source,
}

impl Trees<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.member.here.join("trees").join(name)
    }

    fn program(&self, row: &'static str, command: &mut Command) -> Result<Measured, String> {
        let before = Counters::read(self.member)?;
        let start = Instant::now();
        done(command.stdout(Stdio::null())).map_err(|e| format!("{}, {row}: {e}", self.member.name))?;
        measured(row, self.source.files as f64, start.elapsed(), self.member, &before, false)
    }

    fn reads(&self, rows: [&'static str; 4]) -> Result<Vec<Measured>, String> {
        let tree = self.at("tree");
        let mut found = vec![
            self.program(rows[0], Command::new("ls").arg("-lR").arg(&tree))?,
            self.program(rows[1], Command::new("find").arg(&tree))?,
            self.program(rows[2], Command::new("grep").args(["-r", NOWHERE]).arg(&tree))?,
        ];
        if self.source.repository(self.member).is_some() {
            found.push(self.program(rows[3], git().arg("-C").arg(self.at("clone")).arg("status"))?);
        }
        Ok(found)
    }

    /// Makes the trees, and reads them twice: each program again at once.
    pub fn first(&self) -> Result<Vec<Measured>, String> {
        make(self.member, "trees")?;
        std::fs::create_dir(self.at("tree")).map_err(|e| e.to_string())?;
        let mut untar = Command::new("tar");
        let mut found = vec![
            self.program(
                rows::UNTAR,
                untar.arg("-xf").arg(&self.source.archive).arg("-C").arg(self.at("tree")),
            )?,
            self.program(rows::COPY, Command::new("cp").arg("-a").arg(self.at("tree")).arg(self.at("copy")))?,
        ];
        if let Some(repository) = self.source.repository(self.member) {
            let mut clone = git();
            clone.args(["clone", "--quiet"]).arg(repository).arg(self.at("clone"));
            found.push(self.program(rows::CLONE, &mut clone)?);
        }
        found.extend(self.reads([rows::LS, rows::FIND, rows::GREP, rows::STATUS])?);
        found.extend(self.reads([rows::LS_AGAIN, rows::FIND_AGAIN, rows::GREP_AGAIN, rows::STATUS_AGAIN])?);
        Ok(found)
    }

    /// Reads them once more, and removes them.
    pub fn later(&self) -> Result<Vec<Measured>, String> {
        let mut found =
            self.reads([rows::LS_LATER, rows::FIND_LATER, rows::GREP_LATER, rows::STATUS_LATER])?;
        found.push(
            self.program(rows::DELETE, Command::new("rm").arg("-rf").arg(self.member.here.join("trees")))?,
        );
        Ok(found)
    }
}

fn measured(
    row: &'static str,
    operations: f64,
    time: Duration,
    member: &Member,
    before: &Counters,
    cut_off: bool,
) -> Result<Measured, String> {
    let spent = Counters::read(member)?.since(before, member);
    Ok(Measured {
        row,
        processes: 1,
        operations,
        seconds: time.as_secs_f64(),
        cut_off,
        cpu: spent.cpu,
        messages: spent.messages,
        rpcs: spent.rpcs,
    })
}

/// Makes so many names through one mount, and lists them through the other; ends `ls` when that takes too long. The
/// names stay.
pub fn listing(member: &Member, entries: u64, limit: Duration) -> Result<Measured, String> {
    let directory = make(member, "large")?;
    let mut workers = Vec::new();
    let count = entries / FILLING as u64;
    for index in 0..FILLING {
        let order =
            Order { directory: &directory, other: None, shared: true, index, count, processes: FILLING };
        workers.push(Worker::start(&order)?);
    }
    let made =
        timed(&mut workers, Work::Create).map_err(|e| format!("{}, {entries} files: {e}", member.name))?;
    workers.into_iter().try_for_each(Worker::end)?;
    eprintln!("{}: {entries} files made in {:.1} s", member.name, made.1);
    let before = Counters::read(member)?;
    let start = Instant::now();
    let mut command = Command::new("ls");
    command.arg("-l").arg(member.there.join("large/all")).stdout(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("ls: {e}"))?;
    let mut cut_off = false;
    while child.try_wait().map_err(|e| format!("ls: {e}"))?.is_none() {
        if start.elapsed() > limit {
            cut_off = true;
            child.kill().map_err(|e| format!("ls: {e}"))?;
            child.wait().map_err(|e| format!("ls: {e}"))?;
            break;
        }
        std::thread::sleep(LOOK);
    }
    measured(rows::LISTING, entries as f64, start.elapsed(), member, &before, cut_off)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the tree is the same in every run, about 8 KiB a file, and grep's word is in none.
    #[test]
    fn the_tree_is_the_same() {
        let all = || {
            let mut draw = 7;
            (0..200).map(|number| content(number, &mut draw)).collect::<Vec<_>>()
        };
        assert_eq!(all(), all());
        let mean = all().iter().map(String::len).sum::<usize>() / 200;
        assert!((6_000..10_500).contains(&mean), "{mean}");
        assert!(all().iter().all(|text| !text.contains(NOWHERE)));
    }

    /// Goal: grep that finds nothing is no failure, any other program that says 1 is.
    #[test]
    fn grep_may_find_nothing() {
        assert!(done(Command::new("grep").args([NOWHERE, "/dev/null"])).is_ok());
        assert!(done(&mut Command::new("false")).is_err());
    }
}
