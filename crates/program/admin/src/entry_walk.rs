//! The directories of a tree, each once, several at a time.

use super::entry_set::{Wish, set_one};
use skep_base::access::AccessArgs;
use skep_base::namespace::Namespace;
use skep_base::{Failure, Outcome};
use skep_types::limits::READDIR_MAX;
use skep_types::{ClusterId, Ino, Kind};
use skep_wire::meta::List;
use std::collections::HashSet;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Directories that are worked on at the same time, each over links of its own.
const WORKERS: usize = 8;
/// How often a terminal is told how far it is.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Directories that it was set on.
    pub done: u64,
    /// Directories that it could not be set on, or that could not be listed.
    pub failed: u64,
}

/// A directory to be listed, its subdirectories to be set.
#[derive(Debug)]
struct Task {
    ino: Ino,
    path: PathBuf,
}

#[derive(Debug, Default)]
struct Progress {
    /// The deepest first: so the list stays short.
    tasks: Vec<Task>,
    /// Tasks in work: they may still bring others.
    busy: usize,
    seen: HashSet<Ino>,
    tally: Tally,
    told: Option<Instant>,
}

/// A tree of directories that get a wish.
pub struct Walk<'a> {
    access: &'a AccessArgs,
    root: &'a Path,
    wish: Wish,
    cluster: ClusterId,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl<'a> Walk<'a> {
    /// Below `root`, which is of that cluster.
    pub fn new(access: &'a AccessArgs, root: &'a Path, wish: Wish, cluster: ClusterId) -> Self {
        Self { access, root, wish, cluster, progress: Mutex::default(), changed: Condvar::new() }
    }

    /// Sets the wish on every directory below `ino`. What fails is told and does not stop the rest.
    pub fn below(self, ino: Ino) -> Outcome<Tally> {
        {
            let mut progress = self.lock();
            progress.seen.insert(ino);
            progress.tasks.push(Task { ino, path: self.root.to_owned() });
        }
        let failure = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| self.work())).collect();
            let ended = workers.into_iter().map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new("a worker ended badly (a bug: please report it)")))
            });
            ended.filter_map(Result::err).last()
        });
        let progress = self.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        if std::io::stderr().is_terminal() && progress.told.is_some() {
            eprintln!();
        }
        match failure {
            // Some work is left only when no worker could reach the cluster.
            Some(failure) if !progress.tasks.is_empty() => Err(failure),
            _ => Ok(progress.tally),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> Outcome {
        let mut namespace = None;
        while let Some(task) = self.next() {
            let namespace = match &mut namespace {
                Some(known) => known,
                empty => match self.connect() {
                    Ok(connected) => empty.insert(connected),
                    Err(failure) => {
                        let mut progress = self.lock();
                        progress.tasks.push(task);
                        progress.busy -= 1;
                        self.changed.notify_all();
                        return Err(failure);
                    }
                },
            };
            let listed = self.list(namespace, &task);
            let mut progress = self.lock();
            if let Err(failure) = listed {
                progress.tally.failed += 1;
                eprintln!("skep: {}: {failure}", task.path.display());
            }
            progress.busy -= 1;
            tell(&mut progress);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Another cluster may be mounted at this place by now.
    fn connect(&self) -> Outcome<Namespace> {
        let namespace = Namespace::connect(self.access, self.root)?;
        match namespace.status.cluster == self.cluster {
            true => Ok(namespace),
            false => Err(Failure::new(format!(
                "{}: another cluster was mounted there meanwhile; begin again",
                self.root.display()
            ))),
        }
    }

    /// The next directory; none when all is done.
    fn next(&self) -> Option<Task> {
        let mut progress = self.lock();
        loop {
            if let Some(task) = progress.tasks.pop() {
                progress.busy += 1;
                return Some(task);
            }
            if progress.busy == 0 {
                return None;
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn list(&self, namespace: &mut Namespace, task: &Task) -> Outcome {
        let mut after = 0;
        loop {
            let message = List { dir: task.ino, after, max: READDIR_MAX, with_attr: false, as_told: None };
            let reply = namespace.ask(task.ino, &message)?;
            for entry in reply.entries.iter().filter(|entry| entry.kind == Kind::Dir) {
                let path = task.path.join(std::ffi::OsStr::from_bytes(entry.name.as_bytes()));
                self.visit(namespace, entry.ino, path);
            }
            match reply.entries.last() {
                Some(last) if !reply.end => after = last.cookie,
                _ => return Ok(()),
            }
        }
    }

    fn visit(&self, namespace: &mut Namespace, ino: Ino, path: PathBuf) {
        // It may be moved while the tree is walked, and met again.
        if !self.lock().seen.insert(ino) {
            return;
        }
        let set = set_one(namespace, ino, &self.wish);
        let mut progress = self.lock();
        match set {
            Ok(_) => progress.tally.done += 1,
            Err(failure) => {
                progress.tally.failed += 1;
                eprintln!("skep: {}: {failure}", path.display());
            }
        }
        progress.tasks.push(Task { ino, path });
        tell(&mut progress);
        self.changed.notify_one();
    }
}

fn tell(progress: &mut Progress) {
    if progress.told.is_some_and(|at| at.elapsed() < TELL_EVERY) || !std::io::stderr().is_terminal() {
        return;
    }
    progress.told = Some(Instant::now());
    let Tally { done, failed } = progress.tally;
    eprint!("\r{done} directories set, {failed} failed, {} to list ", progress.tasks.len());
}
