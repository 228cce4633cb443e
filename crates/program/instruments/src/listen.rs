//! Taking connections for a network measurement, for services that have one thread and serve no payloads: a server
//! of its own, at free ports of the same addresses, for a short time.

use super::gate::spawn;
use super::jobs::Control;
use super::question::{Findings, ListenFound};
use super::service::{Host, flow_answer};
use skep_base::membership::Greeter;
use skep_net::{
    Answer, Endpoint, Handler, Listener, Payload, Peer, PeerInfo, StreamLimits, StreamServer, may_call,
};
use skep_types::{FenceEpoch, Incarnation};
use skep_wire::mgmt::{RegisterNodeReply, RegistryAge};
use skep_wire::{Header, Hello, Refusal, Welcome};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// It ends by itself after this time, whatever was asked for.
const SECONDS_MAX: f64 = 300.0;
/// Connections at once.
const CONNECTIONS_MAX: usize = 256;
/// How often it looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Tells the sockets of measurements apart: an earlier one may still be ending.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Answers nothing but the two messages of a flow.
struct Sink<'a> {
    host: &'a Host,
}

impl Handler for Sink<'_> {
    fn hello(&self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        let place = RegisterNodeReply {
            node: self.host.node,
            alias: self.host.alias.clone(),
            cluster: self.host.cluster,
            epoch: FenceEpoch(0),
            registry: RegistryAge::default(),
        };
        let greeter = Greeter {
            place: &place,
            incarnation: Incarnation(0),
            keyring: &self.host.keyring,
            service: self.host.service,
            epoch: FenceEpoch(0),
        };
        greeter.welcome(hello)
    }

    fn handle(&self, peer: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        let answer = may_call(header, peer.hello.role).and_then(|()| flow_answer(header, body, payload));
        answer.unwrap_or_else(Answer::from)
    }

    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

/// Serves until the time is over or it is stopped.
pub fn serve(host: &Host, seconds: f64, control: &Control) -> Result<Findings, String> {
    let (listeners, found) = open(host)?;
    let limits = StreamLimits { connections: CONNECTIONS_MAX, ..StreamLimits::default() };
    let server = StreamServer::new(listeners, (*host.keyring).clone(), limits, skep_base::daemon::net_log());
    let server = server.map_err(|e| format!("no server for the measurement: {e}"))?;
    let handle = server.stop_handle();
    let shown = found.clone();
    control.show(move || Findings::Listen(shown.clone()));
    let seconds = if seconds.is_finite() { seconds.clamp(0.0, SECONDS_MAX) } else { 0.0 };
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        let serving = spawn(scope, || server.run(&Sink { host }))?;
        while Instant::now() < until && !control.is_stopped() && !serving.is_finished() {
            std::thread::sleep(LOOK_EVERY);
        }
        handle.stop();
        match serving.join() {
            Ok(ended) => ended.map_err(|e| format!("the server of the measurement failed: {e}")),
            Err(_) => Err("a thread ended badly".to_owned()),
        }
    })?;
    Ok(Findings::Listen(found))
}

/// A free port of every address at which the service listens.
fn open(host: &Host) -> Result<(Vec<Listener>, ListenFound), String> {
    let mut found = ListenFound::default();
    let mut listeners = Vec::new();
    for address in &host.addresses {
        let Ok(endpoint) = address.text.parse::<Endpoint>() else { continue };
        let own = match endpoint {
            Endpoint::Tcp(name, _) => Endpoint::Tcp(name, 0),
            Endpoint::Unix(path) => {
                let mut name = path.file_name().unwrap_or_default().to_owned();
                name.push(format!(".bench{}", NEXT.fetch_add(1, Relaxed)));
                Endpoint::Unix(path.with_file_name(name))
            }
        };
        let listener = match Listener::bind(&own) {
            Ok(listener) => listener,
            // Another process may not be allowed to make one there; the others reach it otherwise.
            Err(_) if own.is_unix() => continue,
            Err(e) => return Err(e.to_string()),
        };
        found.addresses.push((listener.endpoint().to_string(), address.nic.clone(), address.preference));
        listeners.push(listener);
    }
    if listeners.is_empty() {
        return Err("this service has no address that others could connect to".to_owned());
    }
    Ok((listeners, found))
}
