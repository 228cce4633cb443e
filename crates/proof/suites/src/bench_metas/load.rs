//! Threads of one client that create, look at and remove files, each in a directory of its own.

use super::port::{Hands, OwnLinks, SharedCell};
use skep_base::config::{self, MountConfig, Source};
use skep_base::daemon;
use skep_client::state::Mounting;
use skep_client::{CreateHow, HOUSEKEEPING_SOON_MS, Lane, Limits, OpenHow, Shared};
use skep_rig::Cluster;
use skep_types::{Errno, Ino, ShardId};
use skep_wire::meta::OpenMode;
use std::collections::BTreeMap;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the first contact with mgmtd may take.
const PATIENCE_MS: u64 = 10_000;
/// Directories are on all shards after this time.
const DEALING_MAX: Duration = Duration::from_secs(60);
/// Files of a directory at a time: each is looked at and removed in turn when so many are there.
const FILES: usize = 16;

type LoadLane = Lane<OwnLinks, SharedCell>;

/// A client of a cluster, with a directory for each of its threads.
pub struct Load {
    hands: Arc<Hands>,
    directories: Vec<Ino>,
    ended: Arc<AtomicBool>,
    housekeeper: Option<JoinHandle<()>>,
}

/// The load while it runs.
pub struct Running {
    operations: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    /// Opens a session and makes the directories.
    pub fn new(cluster: &Cluster, servers: u32, threads: u32, shards: u32) -> Result<Self, String> {
        let hands = Arc::new(hands(&cluster.dir().join("etc/mount.toml"))?);
        let keeper = lane(&hands)?;
        let mounting =
            Mounting { host: "bench".to_owned(), mount: "metas".to_owned(), machine: skep_net::machine_id() };
        drive(keeper.attach(mounting, PATIENCE_MS)).map_err(|e| format!("no session: {e}"))?;
        let directories = directories(cluster, servers, threads, shards)?;
        let ended = Arc::new(AtomicBool::new(false));
        let told = ended.clone();
        let keep = move || {
            while !told.load(Ordering::SeqCst) {
                let wanted = drive(keeper.housekeeping());
                std::thread::park_timeout(Duration::from_millis(wanted.min(HOUSEKEEPING_SOON_MS)));
            }
            drive(keeper.detach());
        };
        Ok(Self { hands, directories, ended, housekeeper: Some(std::thread::spawn(keep)) })
    }

    /// Begins.
    pub fn start(&self) -> Result<Running, String> {
        let (operations, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let threads = self.directories.iter().map(|directory| {
            let (hands, directory, count, stop) =
                (self.hands.clone(), *directory, operations.clone(), stop.clone());
            std::thread::spawn(move || work(&lane(&hands)?, directory, &count, &stop))
        });
        Ok(Running { threads: threads.collect(), operations: operations.clone(), stop: stop.clone() })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(housekeeper) = self.housekeeper.take() {
            housekeeper.thread().unpark();
            if housekeeper.join().is_err() {
                eprintln!("the housekeeping of the load has panicked");
            }
        }
    }
}

impl Running {
    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Ends it; an error when an operation failed.
    pub fn stop(self) -> Result<(), String> {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().map_err(|_| "a thread of the load has panicked")??;
        }
        Ok(())
    }
}

fn hands(mount: &Path) -> Result<Hands, String> {
    let loaded = config::load::<MountConfig>(Source::Given(mount), &[], &[]).map_err(|e| e.to_string())?;
    let config = loaded.config;
    Ok(Hands {
        shared: SharedCell::new(Shared::new(Limits::default())),
        keyring: daemon::keyring(&config.process)?,
        mgmtd: daemon::mgmtd_endpoints(&config.membership)?,
        born: Instant::now(),
        connections: AtomicU64::new(0),
    })
}

fn lane(hands: &Arc<Hands>) -> Result<LoadLane, String> {
    Lane::new(hands.shared.clone(), |slot| OwnLinks::new(hands.clone(), slot.0))
        .map_err(|e| format!("no lane: {e}"))
}

/// Made in the root through the mount, as a program would: directories are dealt to all shards, once the server of the root
/// has heard of the others. (One server alone deals none: its are
/// made where they shall be.) What is one too many for its shard is removed again.
fn directories(cluster: &Cluster, servers: u32, threads: u32, shards: u32) -> Result<Vec<Ino>, String> {
    let each = threads.div_ceil(shards);
    let mut taken: BTreeMap<ShardId, u32> = BTreeMap::new();
    let mut kept = Vec::new();
    let begun = Instant::now();
    for number in 0.. {
        let path = cluster.mount().join(format!("d{number}"));
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        if servers > 1 {
            std::fs::create_dir(&path).map_err(failed)?;
        } else {
            let on = (number % shards).to_string();
            cluster.admin(["dir", "create", "--shard", &on, &path.to_string_lossy()])?;
        }
        let ino = Ino(std::fs::metadata(&path).map_err(failed)?.ino());
        let count = taken.entry(ino.shard()).or_default();
        if *count < each {
            *count += 1;
            kept.push(ino);
        } else {
            std::fs::remove_dir(&path).map_err(failed)?;
        }
        if kept.len() == threads as usize {
            break;
        }
        if begun.elapsed() > DEALING_MAX {
            return Err(format!(
                "directories in the root are dealt to {} of {shards} shards only",
                taken.len()
            ));
        }
    }
    Ok(kept)
}

/// Three operations for each file: it is created (and closed), looked at, removed.
fn work(lane: &LoadLane, directory: Ino, count: &AtomicU64, stop: &AtomicBool) -> Result<(), String> {
    let name = |number: usize| format!("f{number}");
    let done = |what: &str, result: Result<(), Errno>| {
        count.fetch_add(1, Ordering::Relaxed);
        result.map_err(|e| format!("{what}: {e}"))
    };
    while !stop.load(Ordering::SeqCst) {
        for number in 0..FILES {
            let opened = drive(lane.create(directory, name(number).as_bytes(), CREATE, OPEN));
            let opened = opened.map_err(|e| format!("create: {e}"))?;
            drive(lane.release(opened.handle));
            done("create", Ok(()))?;
        }
        for number in 0..FILES {
            done("look", drive(lane.lookup(directory, name(number).as_bytes())).map(drop))?;
        }
        for number in 0..FILES {
            done("remove", drive(lane.unlink(directory, name(number).as_bytes())))?;
        }
    }
    Ok(())
}

const CREATE: CreateHow = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy: None };
const OPEN: OpenHow =
    OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };

/// A future over hands that block is ready at once.
fn drive<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}
