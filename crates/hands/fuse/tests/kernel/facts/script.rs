//! A file system whose answers the tests choose: what is there, how long an answer is valid, and when it is given.
//!
//! An answer is built when its request comes. Where a test holds such requests, the answer is kept until the test lets
//! it go: so it tells what was true when it was asked.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use skep_fuse::abi::opcode;
use skep_fuse::{Attr, Entry, FileKind, OPERATIONS, Time};

use super::{D, E, ROOT, X, Y};

/// Longer than any test.
pub const LONG: Duration = Duration::from_secs(3600);
/// What has not happened by then never will.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// An inode.
#[derive(Clone, Copy)]
pub struct Node {
    pub kind: FileKind,
    pub size: u64,
    pub mtime: i64,
    pub nlink: u32,
    /// What each of its bytes is.
    pub byte: u8,
}

/// How long names and attributes of an answer may be used.
#[derive(Clone, Copy)]
pub struct Valid {
    pub name: Duration,
    pub attr: Duration,
}

/// Requests that wait for [`Gate::open`].
struct Held {
    number: u64,
    opcode: u32,
    node: u64,
    /// `None`: all.
    name: Option<String>,
    /// Readable once it is open.
    event: Arc<OwnedFd>,
    arrived: usize,
}

pub struct State {
    pub nodes: BTreeMap<u64, Node>,
    pub names: BTreeMap<(u64, String), u64>,
    pub next: u64,
    valid: BTreeMap<u32, Valid>,
    held: Vec<Held>,
    gates: u64,
    /// What the kernel asked, in words.
    asked: Vec<String>,
    /// Look-ups of inodes that the kernel has not taken back.
    lookups: BTreeMap<u64, u64>,
}

/// The file system, as tests and workers share it.
pub struct Script {
    state: Mutex<State>,
    turned: Condvar,
}

impl Script {
    /// `/d/x`, `/d/y` and `/e`.
    pub fn new() -> Arc<Script> {
        let mut state = State {
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            next: 100,
            valid: BTreeMap::new(),
            held: Vec::new(),
            gates: 0,
            asked: Vec::new(),
            lookups: BTreeMap::new(),
        };
        state.put(ROOT, FileKind::Directory);
        for (parent, name, ino, kind) in [
            (ROOT, "d", D, FileKind::Directory),
            (ROOT, "e", E, FileKind::Directory),
            (D, "x", X, FileKind::Regular),
            (D, "y", Y, FileKind::Regular),
        ] {
            state.put(ino, kind);
            state.names.insert((parent, name.to_owned()), ino);
        }
        Arc::new(Script { state: Mutex::new(state), turned: Condvar::new() })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the state is so.
    fn until(&self, what: &str, mut is_so: impl FnMut(&mut State) -> bool) {
        let end = Instant::now() + DEADLINE;
        let mut state = self.lock();
        while !is_so(&mut state) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                left > Duration::ZERO,
                "{what}: not within {DEADLINE:?}; asked so far: {:?}",
                state.asked
            );
            state = self.turned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// From now on answers to this request are valid for so long.
    pub fn valid(&self, opcode: u32, name: Duration, attr: Duration) {
        self.lock().valid.insert(opcode, Valid { name, attr });
    }

    /// Another file, with a name.
    pub fn add(&self, parent: u64, name: &str) -> u64 {
        let mut state = self.lock();
        let ino = state.make(parent, name, FileKind::Regular);
        self.turned.notify_all();
        ino
    }

    /// Another name of an inode, or the name of another inode. Nobody is told, as when another machine did it.
    pub fn name(&self, parent: u64, name: &str, ino: u64) {
        self.lock().names.insert((parent, name.to_owned()), ino);
    }

    /// Takes a name away, without telling anybody.
    pub fn take(&self, parent: u64, name: &str) {
        self.lock().names.remove(&(parent, name.to_owned()));
    }

    /// Changes size, time and content of an inode, without telling anybody; the new size.
    pub fn change(&self, ino: u64) -> u64 {
        let mut state = self.lock();
        let node = state.nodes.get_mut(&ino).expect("an inode of the script");
        node.size += 1;
        node.mtime += 1;
        node.byte += 1;
        node.size
    }

    /// The inode that was made last.
    pub fn newest(&self) -> u64 {
        self.lock().next
    }

    /// What was asked since the last time.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().asked)
    }

    /// Waits until the kernel has given back all look-ups of the inode but so many.
    pub fn until_looked_up(&self, ino: u64, times: u64) {
        self.until(&format!("look-ups of {ino} go back to {times}"), |state| {
            state.lookups.get(&ino).copied().unwrap_or(0) == times
        });
    }

    pub fn forget(&self, ino: u64, count: u64) {
        let mut state = self.lock();
        let left = state.lookups.get(&ino).map_or(0, |known| known.saturating_sub(count));
        match left {
            0 => state.lookups.remove(&ino),
            left => state.lookups.insert(ino, left),
        };
        self.turned.notify_all();
    }

    /// Holds requests of this kind about this inode, and of that name if one is given, until the gate is opened.
    pub fn hold(self: &Arc<Self>, opcode: u32, node: u64, name: Option<&str>) -> Gate {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an event"));
        let mut state = self.lock();
        state.gates += 1;
        let number = state.gates;
        let name = name.map(str::to_owned);
        state.held.push(Held { number, opcode, node, name, event: Arc::clone(&event), arrived: 0 });
        Gate { script: Arc::clone(self), number, event, what: words(opcode, node, "") }
    }

    /// Notes a request, builds its answer, and says what the answer has to wait for.
    pub fn answer<T>(
        &self,
        opcode: u32,
        node: u64,
        name: &str,
        build: impl FnOnce(&mut State) -> T,
    ) -> (T, Option<Arc<OwnedFd>>) {
        let mut state = self.lock();
        state.asked.push(words(opcode, node, name));
        let answer = build(&mut state);
        let held = state.held.iter_mut().find(|held| {
            held.opcode == opcode && held.node == node && held.name.as_deref().is_none_or(|held| held == name)
        });
        let event = held.map(|held| {
            held.arrived += 1;
            Arc::clone(&held.event)
        });
        self.turned.notify_all();
        (answer, event)
    }
}

/// "GETATTR 10", "LOOKUP 2 x".
fn words(opcode: u32, node: u64, name: &str) -> String {
    let known = OPERATIONS.iter().find(|(number, _)| *number == opcode).map_or("?", |(_, name)| *name);
    format!("{} {node} {name}", known.to_uppercase()).trim_end().to_owned()
}

impl State {
    pub fn put(&mut self, ino: u64, kind: FileKind) {
        self.nodes.insert(ino, Node { kind, size: 100, mtime: 1_000, nlink: 1, byte: b'a' });
    }

    pub fn make(&mut self, parent: u64, name: &str, kind: FileKind) -> u64 {
        self.next += 1;
        let ino = self.next;
        self.put(ino, kind);
        self.names.insert((parent, name.to_owned()), ino);
        ino
    }

    pub fn find(&self, parent: u64, name: &str) -> Option<u64> {
        self.names.get(&(parent, name.to_owned())).copied()
    }

    pub fn valid_of(&self, opcode: u32) -> Valid {
        self.valid.get(&opcode).copied().unwrap_or(Valid { name: LONG, attr: LONG })
    }

    pub fn attr(&self, ino: u64) -> Attr {
        let node = self.nodes.get(&ino).expect("an inode of the script");
        let time = Time { seconds: node.mtime, nanos: 0 };
        Attr {
            ino,
            size: node.size,
            atime: time,
            mtime: time,
            ctime: time,
            mode: node.kind.mode_bits() | 0o755,
            nlink: node.nlink,
            blksize: 4096,
            ..Attr::default()
        }
    }

    /// What an answer to this request says of an inode; it counts as a look-up.
    pub fn entry(&mut self, opcode: u32, ino: u64) -> Entry {
        *self.lookups.entry(ino).or_default() += 1;
        let Valid { name: entry_valid, attr: attr_valid } = self.valid_of(opcode);
        Entry { ino, generation: 0, attr: self.attr(ino), entry_valid, attr_valid }
    }

    /// What LOOKUP says; absent names are remembered as long as others.
    pub fn look_up(&mut self, parent: u64, name: &str) -> Entry {
        match self.find(parent, name) {
            Some(ino) => self.entry(opcode::LOOKUP, ino),
            None => Entry::negative(self.valid_of(opcode::LOOKUP).name),
        }
    }
}

/// Requests that are held, until it is opened or dropped.
pub struct Gate {
    script: Arc<Script>,
    number: u64,
    event: Arc<OwnedFd>,
    what: String,
}

impl Gate {
    /// Waits until a request is held, whose answer is built.
    pub fn arrived(&self) {
        self.script.until(&self.what, |state| {
            state.held.iter().any(|held| held.number == self.number && held.arrived > 0)
        });
    }

    /// Lets the answers go.
    pub fn open(self) {
        drop(self);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.script.lock().held.retain(|held| held.number != self.number);
        rustix::io::write(&self.event, &1u64.to_ne_bytes()).expect("an event takes a number");
    }
}
