//! The scripted file system, mounted, with programs that use it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, Stat};
use skep_fuse::{Dropped, Errno, Negotiated, Notifier, Transport};

use super::operations::Scripted;
use super::script::{DEADLINE, Gate, Script};
use crate::served::{Directory, Served, options};

/// A negative offset: attributes, and no page.
pub const ATTRIBUTES: i64 = -1;

pub struct Mounted {
    pub script: Arc<Script>,
    served: Served,
    negotiated: Arc<OnceLock<Negotiated>>,
}

impl Mounted {
    pub fn new(transport: Transport) -> Mounted {
        let script = Script::new();
        let negotiated = Arc::new(OnceLock::new());
        let scripted = Scripted { script: Arc::clone(&script), negotiated: Arc::clone(&negotiated) };
        Mounted { script, served: Served::new(scripted, options(transport)), negotiated }
    }

    /// The same, where the kernel knows `/d/x`, `/d/y`, `/e` and the directories above.
    pub fn warm(transport: Transport) -> Mounted {
        let mounted = Mounted::new(transport);
        for path in ["d/x", "d/y", "e", "d", ""] {
            mounted.look(path);
        }
        assert_eq!(mounted.looked("d/x"), [""; 0], "all is valid");
        mounted
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.served.path().join(below)
    }

    pub fn negotiated(&self) -> &Negotiated {
        // The kernel holds all requests back until it is.
        rustix::fs::statfs(self.served.path()).expect("the mount answers");
        self.negotiated.get().expect("negotiated")
    }

    pub fn notifier(&self) -> &Notifier {
        &self.served.notifier
    }

    /// Waits for the end of the connection.
    pub fn ended(self) -> Directory {
        self.served.ended().1
    }

    pub fn hold(&self, opcode: u32, node: u64, name: &str) -> Gate {
        self.script.hold(opcode, node, (!name.is_empty()).then_some(name))
    }

    /// What `stat` says of a path.
    pub fn stat(&self, path: &str) -> Result<Stat, rustix::io::Errno> {
        rustix::fs::lstat(self.path(path))
    }

    /// The size that `stat` shows, and what the kernel asked for it.
    pub fn look(&self, path: &str) -> (u64, Vec<String>) {
        let (stat, asked) = self.asks(|| self.stat(path));
        (stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap()), asked)
    }

    /// What the kernel asks for a `stat`.
    pub fn looked(&self, path: &str) -> Vec<String> {
        self.look(path).1
    }

    /// What the kernel asks while something is done.
    pub fn asks<T>(&self, act: impl FnOnce() -> T) -> (T, Vec<String>) {
        self.script.asked();
        let done = act();
        (done, self.script.asked())
    }

    /// Drops attributes of an inode, and no page.
    pub fn drop_attributes(&self, ino: u64) -> Dropped {
        self.notifier().inval_inode(ino, ATTRIBUTES, 0).expect("mounted")
    }

    pub fn drop_name(&self, parent: u64, name: &str) -> Dropped {
        self.notifier().inval_entry(parent, name.as_bytes()).expect("mounted")
    }

    /// Does something on a thread of its own.
    pub fn program<T: Send + 'static>(&self, act: impl FnOnce(&Path) -> T + Send + 'static) -> Program<T> {
        let root = self.served.path().to_owned();
        Program::new(move || act(&root))
    }

    /// A walk to a path by a program.
    pub fn walk(&self, path: &str) -> Program<()> {
        let path = path.to_owned();
        self.program(move |root| walk(root, &path))
    }

    /// Tells the kernel something on a thread of its own.
    pub fn notice<T: Send + 'static>(
        &self,
        tell: impl FnOnce(&Notifier) -> Result<T, Errno> + Send + 'static,
    ) -> Program<Result<T, Errno>> {
        let notifier = self.notifier().clone();
        Program::new(move || tell(&notifier))
    }
}

/// Looks at a path, and at no attributes of what is there.
pub fn walk(root: &Path, path: &str) {
    match rustix::fs::open(root.join(path), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(_) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Lists a directory.
pub fn list(root: &Path, path: &str) {
    assert!(std::fs::read_dir(root.join(path)).unwrap().all(|entry| entry.is_ok()));
}

/// Something that is done by a thread of its own.
pub struct Program<T> {
    thread: i32,
    result: Receiver<T>,
    done: Option<T>,
}

impl<T: Send + 'static> Program<T> {
    fn new(act: impl FnOnce() -> T + Send + 'static) -> Program<T> {
        let (told, number) = channel();
        let (sender, result) = channel();
        std::thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("somebody waits for it");
            // Nobody listens any more where the test has failed.
            let _ = sender.send(act());
        });
        Program { thread: number.recv().expect("a number"), result, done: None }
    }

    /// Whether it waits within `function` of the kernel; `false`: it is done. Nothing else may become of it.
    pub fn waits_in(&mut self, function: &str) -> bool {
        let end = Instant::now() + DEADLINE;
        let mut seen = 0;
        loop {
            match self.result.try_recv() {
                Ok(done) => {
                    self.done = Some(done);
                    return false;
                }
                Err(TryRecvError::Disconnected) => panic!("it has panicked"),
                Err(TryRecvError::Empty) => {}
            }
            // Twice: what waits for a moment only is let through meanwhile.
            seen = if self.stands_in(function) { seen + 1 } else { 0 };
            if seen == 2 {
                return true;
            }
            assert!(Instant::now() < end, "neither done nor waiting in {function}");
            sleep(Duration::from_millis(10));
        }
    }

    /// Sleeps it, uninterruptibly, within this function?
    fn stands_in(&self, function: &str) -> bool {
        let read = |what| std::fs::read_to_string(format!("/proc/self/task/{}/{what}", self.thread));
        let (Ok(stat), Ok(stack)) = (read("stat"), read("stack")) else { return false };
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        state == Some('D') && stack.contains(function)
    }

    /// Its result.
    pub fn done(mut self) -> T {
        match self.done.take() {
            Some(done) => done,
            None => self.result.recv_timeout(DEADLINE).expect("a program hangs, or has panicked"),
        }
    }
}
