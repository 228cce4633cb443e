//! `skep metad`: the namespace. The rules of `skep-meta` over a command log, a row store and sockets.
//!
//! A process has one group of shards, or several that share nothing but the process. Of each group one thread owns
//! everything and runs the server's loop; one makes the log durable; one writes checkpoints; two read rows that are on disk
//! only; the couriers talk to storage daemons and other shards; one sends heartbeats.

mod courier;
mod groups;
mod mailbox;
mod pages;
mod service;

use courier::Courier;
use mailbox::Mailbox;
use pages::{Counts, MetadPages};
use service::Metad;
use skep_base::cli::RestorableArgs;
use skep_base::config::metad::{Chooser, StripeTargets, Sync};
use skep_base::config::{MetadConfig, MgmtdConfig};
use skep_base::daemon::{self, Readiness, Stop, raise_open_files};
use skep_base::http;
use skep_base::identity::StateDir;
use skep_base::listen;
use skep_base::membership::{Introduction, Membership, Nudge, Vigil};
use skep_disk::disk::RealDisk;
use skep_disk::log::{CommandLog, LogOptions, Recovered, SyncPolicy, SyncThread};
use skep_disk::rows::{ReadNotify, RowOptions, RowStore};
use skep_instruments::{Host, Instruments, LogPlace};
use skep_meta::Group;
use skep_net::{EventLimits, EventServer, Keyring, Listener, StopHandle};
use skep_types::{LogSeq, ServiceKind};
use skep_wire::mgmt::{Address, RegisterNodeReply};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Largest payload of a request: none has any, inline data travels in bodies.
const PAYLOAD_MAX: usize = 0;
/// Longest time that the last checkpoint may take when the daemon stops in good order.
const FLUSH_LIMIT: Duration = Duration::from_secs(30);

/// `skep metad`.
pub fn run(args: &RestorableArgs) -> ExitCode {
    daemon::run(
        &args.daemon,
        |config: &MetadConfig| &config.process,
        |config| {
            look_at_limits(config);
            groups::serve(config, |config, stop, readiness| serve(config, args.restored, stop, readiness))
        },
    )
}

/// One group, until `stop` is set or it fails.
fn serve(config: &MetadConfig, restored: bool, stop: Stop, readiness: Readiness) -> Result<(), String> {
    config.membership.settle();
    let keyring = skep_base::daemon::server_keyring(&config.process)?;
    let mut state = StateDir::open(&config.state_dir, "metad")?;
    let (listeners, addresses) =
        listen::open(&config.listen, config.unix_socket.as_deref(), &config.interfaces)?;
    let server = event_server(config, listeners, &keyring)?;
    let memory = state.begin_life()?;
    let incarnation = memory.incarnation;
    // Before anything of it is made: mgmtd knows how far it got.
    let found = open_log(&state)?;
    let own = skep_net::choose(&addresses, skep_net::machine_id(), skep_net::machine_id());
    let introduction = Introduction {
        uuid: state.uuid,
        service: ServiceKind::Metad,
        alias: config.alias.clone(),
        addresses: addresses.clone(),
        domain: config.domain.clone(),
        index: found.as_ref().map_or(LogSeq(0), |(_, found)| found.last),
        restored,
    };
    let mgmtd = skep_base::daemon::mgmtd_endpoints(&config.membership)?;
    let membership = Membership::join(Arc::new(keyring.clone()), mgmtd, introduction, memory, &stop)?;
    state.bind(membership.place.cluster)?;
    let place = membership.place.clone();
    if restored {
        info!("{}: this copy of its directory counts as the newest; start the service", place.alias);
        return membership.leave().map_err(|e| format!("cannot sign off: {e}"));
    }

    let counts = Counts::new();
    let mailbox = Arc::new(Mailbox::new(server.waker(), state.path.clone()));
    let rules = skep_meta::Config { life: incarnation, ..rules_config(config)? };
    let (rules, command_log, sync) = recover(config, &state, (found, rules), &mailbox, &counts)?;
    let nudge = Nudge::default();
    let courier = Courier::new(Arc::new(keyring.clone()), place.node, incarnation, mailbox.clone());
    let every = config.membership.heartbeat.duration();
    let vigil = Vigil::new(every, stop.clone());
    let heartbeat = membership
        .keep(mailbox.clone(), every, nudge.clone(), vigil.clone())
        .map_err(|e| format!("cannot start a thread: {e}"))?;
    let handle = server.stop_handle();
    let watch = stop_when_told(stop.clone(), handle.clone());
    let instruments = instruments(&place, addresses, &keyring, log_place(&state, &counts));
    let who = service::Who { place: place.clone(), incarnation, keyring, instruments, vigil };
    let pages = MetadPages { counts: counts.clone(), keyring: Arc::new(who.keyring.clone()), own };
    http::start(config.http, Arc::new(pages));
    let mut metad =
        Metad::new(who, rules, command_log, sync, courier, mailbox, nudge.clone(), handle, readiness, counts);
    let ended = server.run(&mut metad).map_err(|e| format!("the server failed: {e}"));
    let fatal = metad.end(FLUSH_LIMIT);
    stop.set();
    nudge.nudge();
    let ended_badly = |_| "a thread ended badly".to_owned();
    let superseded = heartbeat.join().map_err(ended_badly)?;
    watch.join().map_err(ended_badly)?;
    ended.and(superseded).and(fatal)?;
    info!("stopped");
    Ok(())
}

fn look_at_limits(config: &MetadConfig) {
    if let Err(e) = raise_open_files() {
        warning!("the limit of open files stays as it is: {e}");
    }
    // What mgmtd was told is not known here; its default is what most have.
    if let Some(text) = config.short_grace(MgmtdConfig::default().session_timeout) {
        warning!("{text}");
    }
}

fn event_server(
    config: &MetadConfig,
    listeners: Vec<Listener>,
    keyring: &Keyring,
) -> Result<EventServer, String> {
    let limits = EventLimits {
        payload: PAYLOAD_MAX,
        connections: config.max_connections as usize,
        ..EventLimits::default()
    };
    EventServer::new(listeners, keyring.clone(), limits, skep_base::daemon::net_log())
        .map_err(|e| format!("the server cannot start: {e}"))
}

/// What an administrator can have this daemon measure.
fn instruments(
    place: &RegisterNodeReply,
    addresses: Vec<Address>,
    keyring: &Keyring,
    log: LogPlace,
) -> Arc<Instruments> {
    Instruments::new(Host {
        service: ServiceKind::Metad,
        name: "metad",
        alias: place.alias.clone(),
        node: place.node,
        cluster: place.cluster,
        addresses,
        keyring: Arc::new(keyring.clone()),
        targets: Vec::new(),
        log: Some(log),
    })
}

/// The log as the instruments see it.
fn log_place(state: &StateDir, counts: &Arc<Counts>) -> LogPlace {
    let counts = counts.clone();
    let spent = move || (counts.serving.log_sync.count(), counts.serving.log_sync.sum_ns());
    LogPlace { directory: state.path.clone(), spent: Box::new(spent) }
}

/// Ends the loop once `stop` is set.
fn stop_when_told(stop: Stop, handle: StopHandle) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while !stop.wait(Duration::MAX) {}
        handle.stop();
    })
}

/// The log, if there is one: a directory without it is told to mgmtd as it is, and nothing is made in it.
fn open_log(state: &StateDir) -> Result<Option<(CommandLog, Recovered)>, String> {
    let path = state.path.join("log");
    let Some(cluster) = state.cluster else { return Ok(None) };
    let names = std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.file_name());
    if !names.into_iter().any(|name| Path::new(&name).extension().is_some_and(|kind| kind == "log")) {
        return Ok(None);
    }
    let opened = CommandLog::open(Arc::new(RealDisk), &path, LogOptions::new(cluster));
    opened.map(Some).map_err(|e| e.to_string())
}

/// Log and rows as the disk has them, and the rules brought up to date.
fn recover(
    config: &MetadConfig,
    state: &StateDir,
    (log, rules): (Option<(CommandLog, Recovered)>, skep_meta::Config),
    mailbox: &Arc<Mailbox>,
    counts: &Arc<Counts>,
) -> Result<(Group<RowStore>, CommandLog, SyncThread), String> {
    let cluster = state.cluster.unwrap_or_default();
    let (command_log, found) = match log {
        Some(log) => log,
        None => CommandLog::open(Arc::new(RealDisk), &state.path.join("log"), LogOptions::new(cluster))
            .map_err(|e| e.to_string())?,
    };
    if found.dropped_tail_bytes > 0 {
        warning!("the log's unsynced end was torn by a crash: {} bytes cut", found.dropped_tail_bytes);
    }
    let policy = match config.sync {
        Sync::Interval => SyncPolicy::Every(config.sync_interval.duration()),
        Sync::Always => SyncPolicy::Always,
    };
    let (told, counted) = (mailbox.clone(), counts.clone());
    let sync = SyncThread::start(
        command_log.syncer(),
        policy,
        Box::new(move |durable, took| {
            counted.serving.log_sync.observe(took);
            told.durable(durable);
        }),
    )
    .map_err(|e| format!("cannot start a thread: {e}"))?;
    let options = RowOptions {
        cache_bytes: config.cache_size.bytes() as usize,
        overlay_bytes: config.checkpoint_log.bytes() as usize,
        ..RowOptions::default()
    };
    let told = mailbox.clone();
    let mut rows = RowStore::open(
        &state.path.join("rows"),
        options,
        Arc::new(sync.handle()),
        Box::new(move || told.checkpointed()),
    )
    .map_err(|e| e.to_string())?;
    let told = mailbox.clone();
    let notify: ReadNotify = Arc::new(move || told.read());
    rows.start_readers(&notify, None).map_err(|e| e.to_string())?;
    rows.check_log(found.first, found.last).map_err(|e| e.to_string())?;
    let mut rules = Group::new(rules, rows).map_err(|e| e.to_string())?;
    let from = rules.last_seq();
    skep_disk::shards::replay(&mut rules, &command_log, found.last)?;
    if from < found.last {
        info!("replayed log records {} to {}", from.0 + 1, found.last);
    }
    Ok((rules, command_log, sync))
}

fn rules_config(config: &MetadConfig) -> Result<skep_meta::Config, String> {
    Ok(skep_meta::Config {
        seed: skep_base::identity::random_uuid()?.0,
        inline_limit: config.inline_limit.bytes() as u32,
        chunk_size: config.chunk_size.bytes() as u32,
        stripe_targets: match config.stripe_targets {
            StripeTargets::Progressive => 0,
            StripeTargets::Fixed(count) => count,
        },
        chooser: match config.chooser {
            Chooser::Balanced => skep_meta::Chooser::Balanced,
            Chooser::Randomized => skep_meta::Chooser::Randomized,
            Chooser::RoundRobin => skep_meta::Chooser::RoundRobin,
            Chooser::RandomRobin => skep_meta::Chooser::RandomRobin,
            Chooser::RandomInterNode => skep_meta::Chooser::RandomInterNode,
        },
        grace_ms: config.grace.duration().as_millis() as u64,
        lease_ms: config.lease_time.duration().as_millis() as u64,
        opens_per_client: config.max_opens_per_client as usize,
        opens: config.max_opens as usize,
        sync_always: config.sync == Sync::Always,
        ..skep_meta::Config::default()
    })
}
