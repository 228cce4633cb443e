//! What all threads of a mount share: keys, the client's state, a clock, and who to wake.

use super::callers::Callers;
use super::links::Links;
use super::netbench::Netbench;
use super::pages::Pages;
use super::recalls::Bell;
use skep_client::{Cell, HOUSEKEEPING_SOON_MS, Shared};
use skep_fuse::{Notifier, Sizes};
use skep_net::{Endpoint, Keyring};
use skep_types::limits::SLOTS_MAX;
use skep_types::{ClientId, Millis, NodeId, ServiceKind, Uuid};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The same line is written once in this time.
const SAME_LINE_AFTER: Duration = Duration::from_secs(30);
/// Different lines remembered for that; a flood of new ones forgets the oldest state.
const LINES_MAX: usize = 256;

/// Connection groups below it belong to lanes with links of their own, one for each slot.
const FIRST_GROUP: u32 = SLOTS_MAX;

/// The client's state behind a lock. No lane holds it while it waits.
pub struct SharedCell(Mutex<Shared>);

impl Cell<Shared> for SharedCell {
    fn with<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Everything that is one per mount.
pub struct Hands {
    /// The client's state.
    pub shared: Arc<SharedCell>,
    /// Keys.
    pub keyring: Keyring,
    /// Where mgmtd is.
    pub mgmtd: Vec<Endpoint>,
    /// Connections to servers.
    pub links: Arc<Links>,
    pub machine: Uuid,
    /// Zero of [`skep_client::Port::now`].
    pub born: Instant,
    /// Programs that were killed.
    pub callers: Callers,
    /// Drops pages of the kernel, once there is a mount.
    pub pages: OnceLock<Arc<Pages>>,
    /// Tells the kernel what to drop besides, once there is a mount.
    pub notifier: OnceLock<Notifier>,
    /// Has the kernel look how long files are, if it asks before it reads from a page; and who waits for that.
    pub sizes: OnceLock<(Arc<Sizes>, Arc<Pages>)>,
    pub mount_point: OnceLock<PathBuf>,
    /// Calls the thread that hears what servers tell.
    pub bell: Bell,
    /// Set before the first request, if contents are dropped.
    pub netbench: OnceLock<Netbench>,
    /// The threads that tell what is held.
    pub tellers: OnceLock<Vec<Thread>>,
    /// Those of them that sleep, a bit for each; and how often one of them was called.
    asleep: AtomicU32,
    looks: AtomicU64,
    connections: AtomicU64,
    groups: AtomicU32,
    failures: AtomicU64,
    lines: Mutex<HashMap<String, Instant>>,
    trouble: Mutex<Option<String>>,
    work: Mutex<Work>,
    wake: Condvar,
    ended: AtomicBool,
}

#[derive(Default)]
struct Work {
    waits: bool,
}

impl Hands {
    /// For a mount that knows nothing of its cluster yet.
    pub fn new(shared: Shared, keyring: Keyring, mgmtd: Vec<Endpoint>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(SharedCell(Mutex::new(shared))),
            keyring,
            mgmtd,
            links: Links::new(usize::MAX),
            machine: skep_net::machine_id(),
            born: Instant::now(),
            callers: Callers::default(),
            pages: OnceLock::new(),
            notifier: OnceLock::new(),
            sizes: OnceLock::new(),
            mount_point: OnceLock::new(),
            bell: Bell::default(),
            netbench: OnceLock::new(),
            tellers: OnceLock::new(),
            asleep: AtomicU32::new(0),
            looks: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            groups: AtomicU32::new(FIRST_GROUP),
            failures: AtomicU64::new(0),
            lines: Mutex::default(),
            trouble: Mutex::default(),
            work: Mutex::default(),
            wake: Condvar::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// Time since this mount began.
    pub fn now(&self) -> Millis {
        Millis(self.born.elapsed().as_millis() as u64)
    }

    /// Number of the next connection: a server drops what a lane's older ones still hold.
    pub fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A connection group that no lane has.
    pub fn next_group(&self) -> u32 {
        self.groups.fetch_add(1, Ordering::Relaxed)
    }

    /// Connections that were made or tried.
    pub fn links_opened(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Those of them that failed.
    pub fn links_failed(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The present session; 0 without one.
    pub fn client(&self) -> ClientId {
        self.shared.with(|s| s.session.open().map_or(ClientId(0), |session| session.client))
    }

    /// Does a node keep contents of files?
    pub fn is_storage(&self, node: NodeId) -> bool {
        self.shared.with(|s| s.map.node(node).is_some_and(|entry| entry.service == ServiceKind::Storaged))
    }

    /// Where a node listens, best first.
    pub fn endpoints(&self, node: NodeId) -> Vec<Endpoint> {
        if node == skep_client::MGMTD {
            return self.mgmtd.clone();
        }
        self.shared.with(|s| match s.map.node(node) {
            Some(entry) => skep_net::choose(&entry.addresses, entry.machine, self.machine),
            None => Vec::new(),
        })
    }

    /// Writes a line, unless the same one was written just now: many workers meet the same trouble.
    pub fn say(&self, line: fmt::Arguments<'_>) {
        let text = line.to_string();
        let now = Instant::now();
        {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.get(&text).is_some_and(|said| now.duration_since(*said) < SAME_LINE_AFTER) {
                return;
            }
            if lines.len() >= LINES_MAX {
                lines.clear();
            }
            lines.insert(text.clone(), now);
        }
        warning!("{text}");
    }

    /// A node could not be reached, for this reason.
    pub fn unreachable(&self, why: &skep_net::NetError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_string());
        self.say(format_args!("{why}"));
    }

    /// A node has not answered in time.
    pub fn no_answer(&self, node: NodeId) {
        let name = self.shared.with(|s| s.map.node(node).map(|entry| entry.alias.clone()));
        let name = name.as_deref().unwrap_or("mgmtd");
        self.say(format_args!("{name}: no answer within the deadline; is it overloaded or its host down?"));
    }

    /// Why a node could not be reached the last time.
    pub fn last_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Something waits for housekeeping.
    pub fn work_waits(&self) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if !work.waits {
            work.waits = true;
            self.wake.notify_all();
        }
    }

    /// Something that is held is to be told.
    pub fn is_asked(&self) {
        self.tellers.get().into_iter().flatten().for_each(Thread::unpark);
    }

    /// The same, where one of the threads is enough. One that works looks again before it sleeps.
    pub fn is_looked_at(&self) {
        let Some(tellers) = self.tellers.get() else { return };
        self.looks.fetch_add(1, Ordering::SeqCst);
        let first = self.asleep.load(Ordering::SeqCst).trailing_zeros() as usize;
        tellers.get(first).into_iter().for_each(Thread::unpark);
    }

    /// A thread that tells has nothing to do, and sleeps unless somebody has looked since it counted that.
    pub fn sleep_as_teller(&self, number: usize, looks: u64, limit: Duration) {
        self.asleep.fetch_or(1 << number, Ordering::SeqCst);
        // Who looks from now on finds it asleep.
        if self.looks() == looks {
            std::thread::park_timeout(limit);
        }
        self.asleep.fetch_and(!(1 << number), Ordering::SeqCst);
    }

    /// How often somebody has looked.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::SeqCst)
    }

    /// The mount has ended: housekeeping stops.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.bell.ring();
        self.work_waits();
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Waits until housekeeping is due: `limit` from now, or a batch's time after the first work.
    pub fn wait_for_work(&self, limit: Duration) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut work, _) = self
            .wake
            .wait_timeout_while(work, limit, |work| !work.waits)
            .unwrap_or_else(PoisonError::into_inner);
        let waits = std::mem::take(&mut work.waits);
        drop(work);
        if waits && !self.has_ended() {
            // Half the time that the core allows: what comes meanwhile goes out with it.
            std::thread::sleep(Duration::from_millis(HOUSEKEEPING_SOON_MS / 2));
        }
    }
}
