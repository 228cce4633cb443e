//! `skep mount`: the FUSE client. Threads of the transport: those that serve /dev/fuse have a lane of the
//! client core with blocking links each, those with queues of `io_uring` many lanes that share the thread's
//! links. One thread for housekeeping, one that renews the session, one that makes closed files durable, one that hears what
//! metadata servers tell, one that unmounts on a signal.

mod background;
mod callers;
mod clocks;
mod control;
mod convert;
mod hands;
mod keeper;
mod lane_hands;
mod layout;
mod links;
mod locks;
mod memory;
mod misses;
mod netbench;
mod pages;
mod port;
mod predecessor;
mod recalls;
mod ring;
mod served;
mod shown;
mod special;
mod way;
mod worker;

use hands::Hands;
use links::Room;
use memory::Memory;
use netbench::Netbench;
use pages::Pages;
use port::BlockingPort;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use served::{Note, OTHER_LANES, Served};
use skep_base::cli::MountArgs;
use skep_base::config::{self, MountConfig, Source};
use skep_base::daemon::{self, Readiness, Stop};
use skep_base::mount_options::{self, Wishes};
use skep_base::mount_table;
use skep_client::state::Mounting;
use skep_client::{Cell, Lane, Limits, Shared};
use skep_fuse::{DevOptions, Fuse, FuseOptions, InitFlags, MountOptions, Transport, Unmounter};
use skep_types::limits::SLOTS_MAX;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::MountLane;

/// With fewer connections than this the administrator is told: a few to each of a dozen servers.
const LINKS_WANTED: usize = 256;
/// How long the first contact with mgmtd may take.
const ATTACH_PATIENCE_MS: u64 = 10_000;
/// How often the signal thread looks whether the mount has ended by itself.
const STOP_SLICE: Duration = Duration::from_millis(500);
/// No lane is free for a thread that needs one: looked for again after this.
const LANE_AGAIN_MS: u64 = 200;
/// Threads that tell servers what is held: one that does not answer has one of them waiting.
const TELLERS: usize = 4;

/// Mounts, in the background unless told otherwise.
pub fn run(args: &MountArgs) -> ExitCode {
    skep_base::log::init("mount", skep_base::log::Level::Info);
    let background = background::is_background();
    let (config, wishes) = match load(args) {
        Ok(loaded) => loaded,
        Err(text) => {
            eprintln!("skep mount: {text}");
            if background {
                background::tell_failed(&text);
            }
            return ExitCode::FAILURE;
        }
    };
    if wishes.remount {
        return match remount(&config, wishes) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("skep mount: {text}");
                ExitCode::FAILURE
            }
        };
    }
    if !args.foreground && !background {
        return background::start(&config.process.run_dir, &config.mount_point);
    }
    if background {
        background::detach();
    }
    match serve(&config, wishes, args, background) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            error!("{text}");
            if background {
                background::tell_failed(&text);
            }
            ExitCode::FAILURE
        }
    }
}

fn load(args: &MountArgs) -> Result<(MountConfig, Wishes), String> {
    let parsed = mount_options::parse(args)?;
    let source = match &parsed.config {
        Some(path) => Source::Given(path),
        None => args.daemon.source(),
    };
    let sets: Vec<String> = parsed.sets.into_iter().chain(args.daemon.sets()).collect();
    let loaded = config::load::<MountConfig>(source, &config::environment(), &sets);
    let loaded = loaded.map_err(|e| e.to_string())?;
    for text in &loaded.warnings {
        warning!("{text}");
    }
    Ok((loaded.config, parsed.wishes))
}

fn serve(config: &MountConfig, wishes: Wishes, args: &MountArgs, background: bool) -> Result<(), String> {
    skep_base::log::set_level(config.process.log.into());
    config.membership.settle();
    daemon::die_on_panic();
    let stop = Stop::of_daemon().map_err(|e| format!("signals: {e}"))?;
    let open_files = daemon::raise_open_files().map_err(|e| format!("open-file limit: {e}"))?;
    let target = absolute(&config.mount_point)?;
    if skep_fuse::replace_stale(&target).map_err(|e| e.to_string())? {
        info!("removed a dead mount from {}", target.display());
    }
    refuse_second(&target)?;
    let shared = Shared::new(limits(config, leases(config)));
    let mgmtd = daemon::mgmtd_endpoints(&config.membership)?;
    let hands = Hands::new(shared, daemon::keyring(&config.process)?, mgmtd.clone());
    let room = room(config, open_files);
    hands.links.limit(room.links);
    if let Some(starter) = args.netbench {
        end_with(starter)?;
        let _ = hands.netbench.set(Netbench::default());
        info!("{}: contents of files that are made through this mount are dropped", target.display());
    }
    let keeper = lane(&hands).map_err(|e| format!("no lane: {e}"))?;
    attach(&keeper, &hands, &target)?;
    for dead in predecessor::dead(&config.process.run_dir, &target) {
        dead.bury(daemon::keyring(&config.process)?, mgmtd.clone());
    }
    let record = predecessor::Own::new(&config.process.run_dir, &target);
    // As the kernel lists it. Nothing is there yet that might not answer.
    let seen = std::fs::canonicalize(&target).unwrap_or_else(|_| target.clone());
    let checks = pages_are_leased(config, hands.shared.with(|s| s.limits.tells()));
    let device = mount(config, wishes, args, &target, (room.lanes, checks))?;
    let mounted = device.unmounter();
    let note = Note::new(&config.process.run_dir, &target);
    shown::show(config.http, &hands);
    let socket = skep_base::control::socket(&config.process.run_dir, std::process::id());
    if let Err(e) = control::serve(&socket, &hands) {
        warning!("{}: {e}; skep health will not know what this mount waits for", socket.display());
    }
    let pages = Pages::new(device.notifier());
    let _ = hands.pages.set(pages.clone());
    let _ = hands.notifier.set(device.notifier());
    let settling = if checks { Some(settling(&device, &hands)?) } else { None };
    let _ = hands.mount_point.set(seen);
    let served = Served::new(&hands, config.io, Readiness::new("mount"), background, note);
    let kept = hands.clone();
    let housekeeper = thread("housekeeping", move || keep(&kept, keeper, record))?;
    let syncing = hands.clone();
    let syncer = thread("sync", move || by_itself(&syncing, |lane| drive(lane.sync_closed())))?;
    let tellers = tellers(&hands)?;
    let renewing = hands.clone();
    let renewer = thread("renewal", move || by_itself(&renewing, |lane| drive(lane.keep_alive())))?;
    let (watched, watched_hands) = (target.clone(), hands.clone());
    let watch = thread("stop", move || unmount_when_told(&stop, &mounted, &watched, &watched_hands))?;
    let (hearing, keeping) = (hands.clone(), served.keeper());
    let hearer = thread("events", move || recalls::hear(&hearing, &keeping))?;
    let ended = device.run(&served).map_err(|e| e.to_string());
    hands.end();
    pages.end();
    settling.inspect(|pages| pages.end());
    renewer.thread().unpark();
    syncer.thread().unpark();
    hands.is_asked();
    for thread in [housekeeper, renewer, syncer, watch, hearer].into_iter().chain(tellers) {
        if thread.join().is_err() {
            return Err("a thread ended badly".to_owned());
        }
    }
    let ending = ended?;
    info!("{} ended: {ending:?}", target.display());
    Ok(())
}

/// Those that tell what is held.
fn tellers(hands: &Arc<Hands>) -> Result<Vec<JoinHandle<()>>, String> {
    let teller = |number| {
        let telling = hands.clone();
        thread("teller", move || tell_by_itself(&telling, number))
    };
    let tellers = (0..TELLERS).map(teller).collect::<Result<Vec<_>, _>>()?;
    let _ = hands.tellers.set(tellers.iter().map(|teller| teller.thread().clone()).collect());
    Ok(tellers)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(|e| format!("{name} thread: {e}"))
}

fn limits(config: &MountConfig, leases: bool) -> Limits {
    let retry_ms = config.retry.duration().as_millis() as u64;
    let cache_bytes = usize::try_from(config.cache.bytes()).unwrap_or(usize::MAX);
    let validity = config.kernel_answers == config::mount::Switch::On;
    let holds = leases && config.hold_new_files == config::mount::Switch::On;
    let gathers = holds && config.gather_writes == config::mount::Switch::On;
    Limits { retry_ms, leases, validity, holds, gathers, cache_bytes, ..Limits::default() }
}

/// Does it ask for leases? Its log says so, and if not why.
fn leases(config: &MountConfig) -> bool {
    match has_leases(config.leases, recalls::can_hear) {
        Ok(()) => {
            info!(
                "leases are on: what others cannot change unheard is answered from memory ({})",
                config.cache
            );
            true
        }
        Err(Without::Asked) => {
            info!("leases are off, as configured: servers are asked for everything");
            false
        }
        Err(Without::Ring(e)) => {
            warning!(
                "leases are off: they need io_uring ({e}), and servers are asked for everything; allow it \
                 (sysctl kernel.io_uring_disabled=0, the limit of locked memory), or set leases = \"off\""
            );
            false
        }
    }
}

/// Are files read through the kernel's pages while leases cover them? Its log says so, and if not why. `tells`: the kernel is told
/// for how long it need not ask.
fn pages_are_leased(config: &MountConfig, tells: bool) -> bool {
    if config.leased_pages == config::mount::Switch::Off {
        return false;
    }
    let tried = match (config.io, tells) {
        (config::mount::Io::Auto, true) => skep_fuse::ends_can_be_known(),
        (_, true) => Err("io is not \"auto\"".to_owned()),
        (_, false) => Err("leases or kernel_answers are off".to_owned()),
    };
    match tried {
        Ok(()) => info!("leased_pages is on: what leases cover is read again without a question"),
        Err(ref why) => warning!("leased_pages is off: {why}"),
    }
    tried.is_ok()
}

/// Why a mount has no leases.
#[derive(Debug)]
enum Without {
    /// It is not to have any.
    Asked,
    /// It could not hear what is taken back.
    Ring(std::io::Error),
}

fn has_leases(
    wanted: config::mount::Switch,
    can_hear: impl FnOnce() -> std::io::Result<()>,
) -> Result<(), Without> {
    match wanted {
        config::mount::Switch::Off => Err(Without::Asked),
        config::mount::Switch::On => can_hear().map_err(Without::Ring),
    }
}

/// SIGTERM when this process ends, which is its parent.
fn end_with(starter: i32) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| format!("parent's death: {e}"))?;
    // It may have ended before that.
    match getppid().map(|parent| parent.as_raw_nonzero().get()) {
        Some(parent) if parent == starter => Ok(()),
        _ => Err(format!("process {starter}, for which this mount is made, has ended or is not its parent")),
    }
}

fn transport(config: &MountConfig) -> Transport {
    match config.transport {
        config::mount::Transport::Auto => Transport::Auto,
        config::mount::Transport::Uring => Transport::Uring,
        config::mount::Transport::Dev => Transport::Dev,
    }
}

fn lane(hands: &Arc<Hands>) -> Result<MountLane<BlockingPort>, skep_types::Errno> {
    Lane::new(hands.shared.clone(), |slot| BlockingPort::new(hands.clone(), slot.0))
}

fn attach(keeper: &MountLane<BlockingPort>, hands: &Hands, target: &Path) -> Result<(), String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mounting = Mounting { host, mount: target.display().to_string(), machine: hands.machine };
    drive(keeper.attach(mounting, ATTACH_PATIENCE_MS)).map_err(|refusal| {
        let list: Vec<String> = hands.mgmtd.iter().map(ToString::to_string).collect();
        let said = hands.last_trouble().unwrap_or_else(|| refusal.to_string());
        format!("no session from mgmtd ({}): {said}", list.join(", "))
    })
}

/// What the limit of open files leaves room for; the administrator is told when that is less than configured.
fn room(config: &MountConfig, open_files: u64) -> Room {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = match config.transport {
        config::mount::Transport::Dev => config.max_threads as usize,
        _ => (config.queue_depth as usize * cores).max(config.max_threads as usize),
    };
    let lanes = lanes.min(SLOTS_MAX as usize - OTHER_LANES);
    let room = Room::within(open_files, lanes);
    if room.lanes < lanes || room.links < LINKS_WANTED {
        warning!(
            "the limit of open files is {open_files}: at most {} requests at once and {} connections to all servers; \
             raise it (ulimit -n, LimitNOFILE in the unit)",
            room.lanes,
            room.links
        );
    }
    room
}

/// Has the kernel take over what it is answered of files, before a page is filled with their end.
fn settling(device: &Fuse, hands: &Hands) -> Result<Arc<Pages>, String> {
    let sizes = Arc::new(device.sizes().map_err(|e| format!("{}: {e}", device.target().display()))?);
    let pages = Pages::settling(sizes.clone());
    let _ = hands.sizes.set((sizes, pages.clone()));
    Ok(pages)
}

fn mount(
    config: &MountConfig,
    wishes: Wishes,
    args: &MountArgs,
    target: &Path,
    (lanes, checks): (usize, bool),
) -> Result<Fuse, String> {
    let mut options = MountOptions::new(target);
    options.flags = wishes.flags();
    options.allow_other = config.allow_other;
    options.source = match args.spec.as_ref().and_then(|spec| spec.to_str()) {
        Some(spec) => spec.to_owned(),
        None => {
            let list: Vec<String> = config.membership.mgmtd.iter().map(ToString::to_string).collect();
            format!("{}:/", list.join(","))
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = (config.max_threads as usize).min(lanes);
    let idle = if config.threads == 0 { cores } else { config.threads as usize };
    let dev = DevOptions { workers, idle_workers: idle.clamp(1, workers), ..DevOptions::default() };
    let mut serve = FuseOptions { transport: transport(config), dev, ..FuseOptions::default() };
    serve.uring.depth = (config.queue_depth as usize).min((lanes / cores).max(1));
    serve.init.max_write = config.request_size.bytes() as u32;
    // Pages are dropped by notifications, before an answer would make them lie. With leases the kernel asks at each read through
    // them whether that is to be done, for it knows how long it need not; without, it would ask the shard each time.
    if !checks {
        serve.init.wanted = serve.init.wanted & !InitFlags::AUTO_INVAL_DATA;
    }
    serve.init.wanted = serve.init.wanted | InitFlags::EXPLICIT_INVAL_DATA;
    Fuse::mount(&options, serve).map_err(|e| e.to_string())
}

/// Housekeeping until the mount has ended, then the end of the session.
fn keep(hands: &Hands, lane: MountLane<BlockingPort>, record: Option<predecessor::Own>) {
    let (mut recorded, mut memory) = (None, Memory::default());
    while !hands.has_ended() {
        let session = hands.shared.with(|s| s.session.open().cloned());
        if let (Some(session), Some(record)) = (&session, &record)
            && recorded != Some(session.client)
        {
            record.write(session);
            recorded = Some(session.client);
        }
        let next = drive(lane.housekeeping());
        if memory.keeps(hands.shared.with(|s| s.kept_bytes())) {
            skep_fuse::give_back_memory();
        }
        let next = Duration::from_millis(next).min(hands.links.close_idle());
        hands.wait_for_work(next);
    }
    drive(lane.detach());
}

/// Does something with a lane of its own, whose answer is when to do it again. So the session is kept alive while
/// housekeeping waits for a server that hangs (it would be evicted with all it holds), and a target may take its time
/// to make closed files durable.
fn by_itself(hands: &Arc<Hands>, work: impl Fn(&MountLane<BlockingPort>) -> u64) {
    let mut lane = None;
    while !hands.has_ended() {
        if lane.is_none() {
            lane = self::lane(hands).ok();
        }
        let next = lane.as_ref().map_or(LANE_AGAIN_MS, &work);
        std::thread::park_timeout(Duration::from_millis(next));
    }
}

/// The same of who tells what is held.
fn tell_by_itself(hands: &Arc<Hands>, number: usize) {
    let mut lane = None;
    while !hands.has_ended() {
        if lane.is_none() {
            lane = self::lane(hands).ok();
        }
        let looks = hands.looks();
        let next = lane.as_ref().map_or(LANE_AGAIN_MS, |lane| drive(lane.tell_held()));
        hands.sleep_as_teller(number, looks, Duration::from_millis(next));
    }
}

/// SIGTERM and SIGINT unmount. From then on nothing stays here that would go with the process, for who cannot wait kills it. A
/// busy mount is detached: it ends with its last user. What was detached before is left to its users, and so is what was
/// mounted in its place since: it is not this process's.
fn unmount_when_told(stop: &Stop, mounted: &Unmounter, target: &Path, hands: &Hands) {
    while !stop.wait(STOP_SLICE) {
        if hands.has_ended() {
            return;
        }
    }
    if let Some(netbench) = hands.netbench.get() {
        netbench.end();
    }
    hands.shared.with(Shared::keeps_no_more);
    hands.is_asked();
    let Err(busy) = mounted.unmount(false) else { return };
    warning!("{}: {busy}: detached, it ends when its last user does", target.display());
    if let Err(e) = mounted.unmount(true) {
        error!("{} cannot be unmounted: {e}", target.display());
    }
}

/// Changes the kernel's flags of a mount. The mount process knows nothing of them; its keys stay as they are.
fn remount(config: &MountConfig, wishes: Wishes) -> Result<(), String> {
    let target = absolute(&config.mount_point)?;
    let at = target.display();
    let mounts = mount_table::at(&target).map_err(|e| format!("the list of mounts cannot be read: {e}"))?;
    let mount = mounts
        .filter(mount_table::MountEntry::is_skep)
        .ok_or(format!("no Skep mount is at {at}: mount it, without \"remount\""))?;
    let flags = wishes.changed(mount_options::flags_of(&mount.options));
    skep_fuse::remount(&target, flags).map_err(|e| match e.raw_os_error() {
        Some(16) => {
            format!("{at} is in use: somebody has a file open for writing; skep umount {at} says who")
        }
        _ => format!("{at}: {e}"),
    })
}

/// A mount over a living one would hide it and whatever works in it.
fn refuse_second(target: &Path) -> Result<(), String> {
    match mount_table::at(target) {
        Ok(Some(mount)) if mount.is_skep() => {
            let at = target.display();
            Err(format!(
                "{at}: {} is mounted there already; skep umount {at}, or choose another place",
                mount.source
            ))
        }
        Ok(_) => Ok(()),
        Err(e) => Err(format!("the list of mounts cannot be read: {e}")),
    }
}

/// The mount point as an absolute path, without asking what is mounted there (it may be dead).
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("mount point {}: {e}", path.display()))
}

/// Polls a future of the client core over a port that blocks: it is ready at once.
fn drive<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::mount::Switch;

    /// Goal: a mount has leases where they are wanted and it can hear, and the reason why not is the right one.
    #[test]
    fn leases_are_on_where_they_can_be() {
        let cannot = || Err(std::io::Error::other("not allowed"));
        assert!(has_leases(Switch::On, || Ok(())).is_ok());
        assert!(matches!(has_leases(Switch::Off, || Ok(())), Err(Without::Asked)));
        assert!(matches!(has_leases(Switch::Off, cannot), Err(Without::Asked)));
        assert!(
            matches!(has_leases(Switch::On, cannot), Err(Without::Ring(e)) if e.to_string() == "not allowed")
        );
    }
}
