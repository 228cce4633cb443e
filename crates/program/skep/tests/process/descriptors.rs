//! What programs of one mount have open, or had a moment ago, while another mount takes it away.

use super::deletion::{chunk_files, nothing_left};
use super::http::{metrics, ports};
use super::stopped::{Still, TERM, two_mounts};
use super::{Running, bytes};
use skep_rig::{PATIENCE, unmount_lazily, until};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whoever changes something waits for a term and its margin at most; a busy machine adds to that.
const WAITS: Duration = Duration::from_secs(6);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Unlink,
    Replace,
    Truncate,
}

/// How the mount fares on which the file is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    /// Stands still for less than a term.
    Short,
    /// For more.
    Long,
    Killed,
}

/// A file of the second mount that the first has open, or has just closed.
struct Case {
    deed: Deed,
    name: String,
    content: Vec<u8>,
    new: Vec<u8>,
    /// Not read yet, so that nothing of it is in memory.
    open: Option<File>,
}

impl Case {
    /// Inline and in chunks, open and closed, for each deed.
    fn all(cluster: &Running, state: State, here: &Path, there: &Path) -> Vec<Self> {
        let dir = format!("{state:?}");
        fs::create_dir(there.join(&dir)).unwrap();
        let mut cases = Vec::new();
        for deed in [Deed::Unlink, Deed::Replace, Deed::Truncate] {
            for (len, is_open) in [(900, true), (900, false), (1_300_000, true), (1_300_000, false)] {
                let name = format!("{dir}/{deed:?}-{len}-{is_open}");
                let tag = cases.len() as u32;
                let (content, new) = (bytes(tag, len), bytes(100 + tag, len / 2));
                fs::write(there.join(&name), &content).unwrap();
                fs::write(there.join(format!("{name}-new")), &new).unwrap();
                cases.push((is_open, Self { deed, name, content, new, open: None }));
            }
        }
        for (is_open, case) in &mut cases {
            let path = here.join(&case.name);
            if *is_open {
                case.open = Some(File::open(&path).unwrap());
                continue;
            }
            // Opened again without asking: so it is open at the shard, though no program has it open.
            until("what is closed is kept open", PATIENCE, || {
                let before = opens(cluster);
                assert!(read(&path).unwrap() == case.content);
                if opens(cluster) > before { Ok(()) } else { Err(case.name.clone()) }
            })
            .unwrap();
        }
        cases.into_iter().map(|(_, case)| case).collect()
    }

    fn cut(&self) -> &[u8] {
        &self.content[..self.content.len() / 3]
    }

    /// Done by the second mount; how long it took.
    fn carry_out(&self, there: &Path) -> Duration {
        let (path, begun) = (there.join(&self.name), Instant::now());
        match self.deed {
            Deed::Unlink => fs::remove_file(path).unwrap(),
            Deed::Replace => fs::rename(there.join(format!("{}-new", self.name)), path).unwrap(),
            Deed::Truncate => {
                File::options().write(true).open(path).unwrap().set_len(self.cut().len() as u64).unwrap();
            }
        }
        begun.elapsed()
    }

    /// What whoever opens it by its name is shown, before or behind the deed.
    fn is_shown(&self, mount: &Path, is_done: bool) {
        let found = read(&mount.join(&self.name));
        let name = &self.name;
        // Several reads, between which it may be cut.
        let is_long =
            |len: usize| len == self.content.len() || self.deed == Deed::Truncate && len >= self.cut().len();
        let is_old =
            found.as_ref().is_ok_and(|found| self.content.starts_with(found) && is_long(found.len()));
        let is_new = match (self.deed, &found) {
            (Deed::Unlink, found) => found.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound),
            (Deed::Replace, Ok(found)) => *found == self.new,
            (Deed::Truncate, Ok(found)) => *found == self.cut(),
            (_, Err(_)) => false,
        };
        assert!(is_new || is_old && !is_done, "{name}: {:?}", found.map(|found| found.len()));
    }

    /// The old descriptor shows the old file: all of it, or what was left of it.
    fn is_kept(&self) {
        let Some(file) = &self.open else { return };
        let name = &self.name;
        let shown = file.metadata().unwrap();
        let (links, expected) = match self.deed {
            Deed::Truncate => (1, self.cut()),
            _ => (0, &self.content[..]),
        };
        assert_eq!((shown.nlink(), shown.len()), (links, expected.len() as u64), "{name}");
        let mut found = vec![0; self.content.len() + 1];
        let mut len = 0;
        while let Ok(more @ 1..) = file.read_at(&mut found[len..], len as u64) {
            len += more;
        }
        assert!(found[..len] == *expected, "{name}: {len} bytes by the old descriptor");
    }
}

/// Files that the first mount opened without asking.
fn opens(cluster: &Running) -> f64 {
    metrics(ports(cluster)["mount"])
        .value("skep_mount_answered_from_memory_total", &[("what", "open")])
        .unwrap()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    File::open(path)?.read_to_end(&mut found)?;
    Ok(found)
}

/// A file that nobody has open, and its chunk files.
fn unopened(cluster: &Running, there: &Path, state: State) -> (PathBuf, Vec<PathBuf>) {
    let before: BTreeSet<PathBuf> = chunk_files(cluster).into_iter().collect();
    let path = there.join(format!("{state:?}-unopened"));
    fs::write(&path, bytes(50, 300_000)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let its = chunk_files(cluster).into_iter().filter(|chunk| !before.contains(chunk)).collect();
    (path, its)
}

/// Deeds of the second mount, each by a thread of its own. What nobody had open is erased by the time that this returns: so would
/// be what should not. `meanwhile` is done when all have begun.
fn carry_out(
    (path, chunks): (PathBuf, Vec<PathBuf>),
    cases: &[Case],
    there: &Path,
    meanwhile: impl FnOnce(),
) {
    std::thread::scope(|scope| {
        let deeds: Vec<_> = cases.iter().map(|case| (case, scope.spawn(|| case.carry_out(there)))).collect();
        meanwhile();
        fs::remove_file(path).unwrap();
        for (case, deed) in deeds {
            let took = deed.join().unwrap();
            assert!(took < WAITS, "{}: it waited for {took:?}", case.name);
        }
    });
    assert!(!chunks.is_empty());
    until("what nobody has open is erased", PATIENCE, || {
        let left: Vec<_> = chunks.iter().filter(|chunk| chunk.exists()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .unwrap();
}

/// Goal: files that another mount unlinks, replaces by a rename, or truncates, while a program here has them open, or has just closed
/// them: an old descriptor shows every byte that it should, whoever opens the name is shown what is there, and nothing of
/// the old file is left when nobody has it open any more. The mount of that program is alive; stands still for less than a
/// term, or for more; or is killed, which holds up and breaks nothing of the other's.
#[test]
fn what_is_open_outlives_what_others_do_to_it() {
    let (cluster, here, there) = two_mounts();
    for state in [State::Alive, State::Short, State::Long, State::Killed] {
        let cases = Case::all(&cluster, state, &here, &there);
        // Now, for who makes it waits for a mount that stands still.
        let unopened = unopened(&cluster, &there, state);
        match state {
            State::Alive => {
                carry_out(unopened, &cases, &there, || {
                    cases.iter().for_each(|case| case.is_shown(&here, false));
                });
            }
            State::Short | State::Long => {
                stands_still(&cluster, (&cases, unopened), state, (&here, &there));
            }
            State::Killed => {
                cluster.mount_daemon(&here).unwrap().kill().unwrap();
                carry_out(unopened, &cases, &there, || {});
                for case in &cases {
                    let gone = case.open.as_ref().map(|file| file.read_at(&mut [0; 10], 0));
                    assert!(gone.is_none_or(|read| read.is_err()), "{}: of a killed mount", case.name);
                }
                unmount_lazily(&here);
                cluster.mount_again(&here).unwrap();
            }
        }
        for case in &cases {
            case.is_shown(&there, true);
            case.is_shown(&here, true);
            if state != State::Killed {
                case.is_kept();
            }
        }
        println!("{state:?}: {} cases", cases.len());
    }
    for entry in fs::read_dir(&here).unwrap().flatten().map(|entry| entry.path()) {
        if entry.is_dir() { fs::remove_dir_all(entry) } else { fs::remove_file(entry) }.unwrap();
    }
    nothing_left(&cluster);
}

fn stands_still(
    cluster: &Running,
    (cases, unopened): (&[Case], (PathBuf, Vec<PathBuf>)),
    state: State,
    (here, there): (&Path, &Path),
) {
    std::thread::scope(|scope| {
        let (begun, still) = (Instant::now(), Still::stand(cluster));
        // Programs ask while it stands still.
        for case in cases {
            scope.spawn(|| case.is_shown(here, false));
        }
        let stands = if state == State::Short { TERM / 2 } else { 2 * TERM };
        let mut still = Some(still);
        carry_out(unopened, cases, there, || {
            if state == State::Short {
                std::thread::sleep(stands.saturating_sub(begun.elapsed()));
                still = None;
            }
        });
        // All is done, and what may go is gone: only then does it go on.
        std::thread::sleep(stands.saturating_sub(begun.elapsed()));
        drop(still);
    });
}
