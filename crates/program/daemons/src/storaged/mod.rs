//! `skep storaged`: serves the chunk files of its targets.

mod pages;
mod serve;
mod writers;

use pages::StoragedPages;
use serve::Storaged;
use skep_base::caller::CallError;
use skep_base::cli::StoragedArgs;
use skep_base::config::StoragedConfig;
use skep_base::daemon::{self, Readiness, Stop, raise_open_files};
use skep_base::http;
use skep_base::identity::{StateDir, random_mark, random_uuid};
use skep_base::listen;
use skep_base::membership::{Introduction, Membership, Nudge, Vigil};
use skep_disk::target::TargetDir;
use skep_instruments::target::Target;
use skep_instruments::{Host, Instruments, clear_leftovers};
use skep_net::{Keyring, StreamLimits, StreamServer};
use skep_storage::Word;
use skep_types::{Errno, LogSeq, ServiceKind};
use skep_wire::mgmt::{Address, RegisterNodeReply, RegisterTarget, RegisterTargetReply};
use std::process::ExitCode;
use std::sync::Arc;

/// Directory, in the state directory, of what is kept of each target: its life, and the failures of its disk.
const STANDINGS: &str = "targets";

/// Runs the daemon until it is told to stop.
pub fn run(args: &StoragedArgs) -> ExitCode {
    daemon::run(
        &args.daemon,
        |config: &StoragedConfig| &config.process,
        |config| {
            config.membership.settle();
            serve(config, args)
        },
    )
}

fn serve(config: &StoragedConfig, args: &StoragedArgs) -> Result<(), String> {
    let stop = Stop::of_daemon().map_err(|e| format!("signals: {e}"))?;
    let descriptors = raise_open_files().map_err(|e| format!("open-file limit: {e}"))?;
    let keyring = Arc::new(skep_base::daemon::server_keyring(&config.process)?);
    let mut state = StateDir::open(&config.state_dir, "storaged")?;
    let (listeners, addresses) =
        listen::open(&config.listen, config.unix_socket.as_deref(), &config.interfaces)?;
    let memory = state.begin_life()?;
    let incarnation = memory.incarnation;
    let introduction = Introduction {
        uuid: state.uuid,
        service: ServiceKind::Storaged,
        alias: config.alias.clone(),
        addresses: addresses.clone(),
        domain: config.domain.clone(),
        index: LogSeq(0),
        restored: args.restored,
    };
    let mgmtd = skep_base::daemon::mgmtd_endpoints(&config.membership)?;
    let mut membership = Membership::join(keyring.clone(), mgmtd, introduction, memory, &stop)?;
    state.bind(membership.place.cluster)?;
    let init = args.init || args.init_only;
    let targets = open_targets(config, (init, args.restored), &mut membership, &stop)?;
    let count = targets.len();
    if args.restored {
        info!("{count} targets count as the newest: start the service");
        return membership.leave().map_err(|e| format!("cannot sign off: {e}"));
    }
    if args.init_only {
        info!("{count} targets are ready to be served: start the service");
        return membership.leave().map_err(|e| format!("cannot sign off: {e}"));
    }
    // Half of the descriptors for chunk files, the rest for connections.
    let share = usize::try_from(descriptors / 2).unwrap_or(usize::MAX) / count.max(1);
    targets.iter().for_each(|target| target.limit_open_files(share));
    let place = membership.place.clone();
    let instruments = instruments(config, &place, addresses, &keyring, &targets);
    let nudge = Nudge::default();
    let storaged = Arc::new(Storaged::new(
        place.clone(),
        incarnation,
        targets,
        keyring.clone(),
        nudge.clone(),
        config.sync_on_write,
        instruments.clone(),
    ));
    let every = config.membership.heartbeat.duration();
    let heartbeat = membership
        .keep(storaged.clone(), every, nudge.clone(), Vigil::new(every, stop.clone()))
        .map_err(|e| format!("heartbeat thread: {e}"))?;
    let limits = StreamLimits { connections: config.max_connections as usize, ..StreamLimits::default() };
    let server = StreamServer::new(listeners, (*keyring).clone(), limits, skep_base::daemon::net_log());
    let server = server.map_err(|e| format!("server: {e}"))?;
    http::start(config.http, Arc::new(StoragedPages(storaged.clone())));
    Readiness::new("storaged").ready(&format!("{} serves {count} targets", place.alias));
    let handle = server.stop_handle();
    let waiter = stop.clone();
    let watch = std::thread::spawn(move || {
        while !waiter.wait(std::time::Duration::from_secs(3_600)) {}
        handle.stop();
    });
    let ended = server.run(&*storaged).map_err(|e| format!("server: {e}"));
    instruments.end();
    stop.set();
    nudge.nudge();
    let ended_badly = |_| "a thread ended badly".to_owned();
    watch.join().map_err(ended_badly)?;
    let superseded = heartbeat.join().map_err(ended_badly)?;
    ended.and(superseded)?;
    info!("stopped");
    Ok(())
}

/// What an administrator can have this daemon measure; files of an earlier measurement go.
fn instruments(
    config: &StoragedConfig,
    place: &RegisterNodeReply,
    addresses: Vec<Address>,
    keyring: &Arc<Keyring>,
    targets: &[Target],
) -> Arc<Instruments> {
    let reserve = config.reserve.bytes();
    let targets: Vec<_> = targets.iter().map(|target| target.bench(place.cluster, reserve)).collect();
    targets.iter().for_each(clear_leftovers);
    Instruments::new(Host {
        service: ServiceKind::Storaged,
        name: "storaged",
        alias: place.alias.clone(),
        node: place.node,
        cluster: place.cluster,
        addresses,
        keyring: keyring.clone(),
        targets,
        log: None,
    })
}

/// Opens, checks and registers every configured directory. One that is refused stops the daemon:
/// serving the others would hide it.
fn open_targets(
    config: &StoragedConfig,
    (init, restored): (bool, bool),
    membership: &mut Membership,
    stop: &Stop,
) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    for path in &config.targets {
        let format = if init { Some(random_uuid()?) } else { None };
        let directory = TargetDir::open(path, membership.place.cluster, format, config.reserve.bytes());
        let directory = directory.map_err(|e| e.to_string())?;
        let capacity = directory.capacity().map_err(|e| e.to_string())?;
        let identity = directory.identity();
        let (confirmed, mark) = directory.begin_life(random_mark()?).map_err(|e| e.to_string())?;
        let mut message = RegisterTarget {
            node: membership.place.node,
            uuid: identity.uuid,
            target: identity.target,
            alias: String::new(),
            capacity,
            mark,
            confirmed,
            restored: false,
        };
        let reply = membership.patiently(stop, |membership| match membership.ask(&message) {
            Err(CallError::Refused(refusal)) if refusal.status.as_errno() == Some(Errno::ESTALE) => {
                Ok(Err(refusal))
            }
            // The administrator's word is needed for this one, and only for what is refused without it.
            Err(CallError::Refused(refusal)) if restored && !refusal.status.is_transient() => {
                warning!("target {}: taken as it is, at your word: {refusal}", path.display());
                message.restored = true;
                membership.ask(&message).map(Ok)
            }
            other => other.map(Ok),
        });
        let reply = match reply.map_err(|e| format!("target {}: {e}", path.display()))? {
            Ok(reply) => reply,
            // The administrator's decision is known: it must not keep the others from being served.
            Err(refusal) => {
                warning!("target {} is not served: {}", path.display(), refusal.detail);
                continue;
            }
        };
        directory.set_id(reply.target).map_err(|e| e.to_string())?;
        directory.confirm_life(mark).map_err(|e| e.to_string())?;
        let RegisterTargetReply { target, alias, consistency, failures, decisions, .. } = reply;
        let word = Word { consistency, failures, decisions };
        let kept = directory.keep_standing(&config.state_dir.join(STANDINGS), word);
        kept.map_err(|e| format!("target {}: its state cannot be kept: {e}", path.display()))?;
        directory.keep_terms().map_err(|e| e.to_string())?;
        info!("{} is target {target} ({alias})", path.display());
        targets.push(Target::new(target, mark, directory));
    }
    Target::share_room(&mut targets);
    Ok(targets)
}
