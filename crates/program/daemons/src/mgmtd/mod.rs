//! The management service: the registry's rules (`skep-cluster`) with a log, a snapshot and sockets.

mod identity;
mod journal;
mod pages;
mod service;
mod snapshot;

use journal::Journal;
use pages::MgmtdPages;
use service::{Introduction, Mgmtd};
use skep_admin::api::Api;
use skep_base::cli::RestorableArgs;
use skep_base::config::MgmtdConfig;
use skep_base::daemon::{self, Readiness, Stop, raise_open_files};
use skep_base::http;
use skep_base::identity::{make_private, random_uuid};
use skep_base::listen;
use skep_base::metrics::Serving;
use skep_cluster::{Registry, State};
use skep_disk::disk::RealDisk;
use skep_net::{EventLimits, EventServer, machine_id, now};
use skep_types::{Capacity, Incarnation, NamesKey};
use skep_wire::mgmt::MgmtRequest;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Largest payload that a request to mgmtd may carry: none has any.
const PAYLOAD_MAX: usize = 0;

/// `skep mgmtd`.
pub fn run(args: &RestorableArgs) -> ExitCode {
    daemon::run(
        &args.daemon,
        |config: &MgmtdConfig| &config.process,
        |config| if args.restored { restored(config) } else { serve(config) },
    )
}

/// An older copy of the directory was put back: its numbers go on far behind those that it gave since.
fn restored(config: &MgmtdConfig) -> Result<(), String> {
    if !config.state_dir.exists() {
        return Err(format!("state directory {}: there is none to be restored", config.state_dir.display()));
    }
    let (mut journal, state) = open_journal(config)?;
    let term = journal.jump().map_err(|e| e.to_string())?;
    let mut registry = Registry::new(rules(config), state, term, now());
    let mut out = skep_cluster::Output::default();
    registry.restore(&mut out)?;
    journal.commit(&out.commands).map_err(|e| e.to_string())?;
    out.notes.iter().for_each(|note| info!("{note}"));
    info!("this copy of the directory counts as the newest: start the service");
    Ok(())
}

fn open_journal(config: &MgmtdConfig) -> Result<(Journal, State), String> {
    make_private(&config.state_dir)?;
    let fresh = (random_uuid()?, random_uuid()?, NamesKey(random_uuid()?.0));
    let shards =
        u16::try_from(config.shards).map_err(|_| format!("{} shards are too many", config.shards))?;
    let (journal, state) =
        Journal::open(Arc::new(RealDisk), &config.state_dir, shards, fresh).map_err(|e| e.to_string())?;
    if journal.identity().shards != shards {
        let formatted = journal.identity().shards;
        warning!("shards = {shards} has no effect: this cluster was formatted with {formatted}");
    }
    Ok((journal, state))
}

fn serve(config: &MgmtdConfig) -> Result<(), String> {
    let stop = Stop::of_daemon().map_err(|e| format!("cannot watch for signals: {e}"))?;
    if let Err(e) = raise_open_files() {
        warning!("the limit of open files stays as it is: {e}");
    }
    let keyring = skep_base::daemon::server_keyring(&config.process)?;
    let (journal, state) = open_journal(config)?;
    let (listeners, addresses) =
        listen::open(&config.listen, config.unix_socket.as_deref(), &config.interfaces)?;
    let limits =
        EventLimits { payload: PAYLOAD_MAX, connections: connections(config), ..EventLimits::default() };
    let server = EventServer::new(listeners, keyring.clone(), limits, skep_base::daemon::net_log())
        .map_err(|e| format!("the server cannot start: {e}"))?;
    let rules = rules(config);
    let shortest = rules.probably_offline_ms.min(rules.session_timeout_ms);
    let cluster = journal.identity().cluster;
    let registry = Registry::new(rules, state, journal.term(), now());
    let state_dir = config.state_dir.clone();
    let serving = Arc::new(Serving::new(MgmtRequest::KINDS));
    let api = Api::new(keyring.clone(), &addresses);
    let introduction = Introduction {
        incarnation: Incarnation(journal.term().0),
        addresses,
        machine: machine_id(),
        capacity: Box::new(move || capacity(&state_dir)),
    };
    let handle = server.stop_handle();
    let mut mgmtd =
        Mgmtd::new(registry, journal, keyring, introduction, handle.clone(), shortest, serving.clone())?;
    http::start(config.http, Arc::new(MgmtdPages::new(serving, api)));
    stop_server_when_told(stop, handle)?;
    Readiness::new("mgmtd").ready(&format!("cluster {cluster}, state in {}", config.state_dir.display()));
    server.run(&mut mgmtd).map_err(|e| format!("the server failed: {e}"))?;
    match mgmtd.fatal() {
        Some(why) => Err(format!("ended: {why}")),
        None => {
            info!("stopped");
            Ok(())
        }
    }
}

/// Every node and session has one connection for itself, some have two for a moment.
fn connections(config: &MgmtdConfig) -> usize {
    2 * (config.max_nodes as usize + config.max_sessions as usize)
}

fn rules(config: &MgmtdConfig) -> skep_cluster::Config {
    let ms =
        |period: skep_base::units::Period| u64::try_from(period.duration().as_millis()).unwrap_or(u64::MAX);
    skep_cluster::Config {
        probably_offline_ms: ms(config.node_probably_offline),
        offline_ms: ms(config.node_offline),
        session_timeout_ms: ms(config.session_timeout),
        metas: config.metas as usize,
        max_nodes: config.max_nodes as usize,
        max_targets: config.max_targets as usize,
        max_sessions: config.max_sessions as usize,
        max_pools: config.max_pools as usize,
        ..skep_cluster::Config::default()
    }
}

/// Space of the file system that holds `dir`; zeros when it cannot be asked.
fn capacity(dir: &Path) -> Capacity {
    rustix::fs::statvfs(dir).map_or_else(
        |_| Capacity::default(),
        |fs| Capacity {
            bytes: fs.f_blocks * fs.f_frsize,
            bytes_free: fs.f_bavail * fs.f_frsize,
            inodes: fs.f_files,
            inodes_free: fs.f_favail,
        },
    )
}

fn stop_server_when_told(stop: Stop, handle: skep_net::StopHandle) -> Result<(), String> {
    let wait = move || {
        while !stop.wait(std::time::Duration::MAX) {}
        handle.stop();
    };
    let spawned = std::thread::Builder::new().name("stop".to_owned()).spawn(wait);
    spawned.map(|_| ()).map_err(|e| format!("cannot start a thread: {e}"))
}
