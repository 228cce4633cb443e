//! What every daemon shares: telling that it is ready, being told to stop, dying loudly.

use crate::EXIT_INTERRUPTED;
use crate::asking::{self, SIGHUP, SIGINT, SIGTERM};
use crate::cli::{DaemonArgs, EXIT_USAGE};
use crate::config::access::{Membership, Process};
use crate::config::service::Service;
use crate::{config, log};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use skep_net::{Endpoint, Keyring};
use skep_types::Role;
use std::ffi::OsStr;
use std::io::{Error, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Runs a daemon: its configuration read, its log set up, `serve` until it ends. `process` finds the keys
/// that every service has.
pub fn run<C: Service>(
    args: &DaemonArgs,
    process: impl Fn(&C) -> &Process,
    serve: impl FnOnce(&C) -> Result<(), String>,
) -> ExitCode {
    // What a daemon writes holds names and contents of everybody's files.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    log::init(C::NAME, log::Level::Info);
    die_on_panic();
    let loaded = match config::load::<C>(args.source(), &config::environment(), &args.sets()) {
        Ok(loaded) => loaded,
        Err(e) => {
            error!("{e}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    log::set_level(process(&loaded.config).log.into());
    loaded.warnings.iter().for_each(|text| warning!("{text}"));
    config::remember(&loaded.config);
    // A process is one service.
    let _ = OWN_COMMAND.set((C::NAME, own_words(args)));
    match serve(&loaded.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            error!("{}", literal(&text));
            ExitCode::FAILURE
        }
    }
}

/// This service, and the words with which it finds its configuration again.
static OWN_COMMAND: OnceLock<(&str, String)> = OnceLock::new();

/// `--config FILE` or `--instance NAME`, and what else was set, as a shell reads it; each with a blank before it.
fn own_words(args: &DaemonArgs) -> String {
    let mut words = String::new();
    let mut add = |flag: &str, value: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:@,+".contains(c);
        let quoted = match value.chars().all(is_plain) {
            true => value.to_owned(),
            false => format!("'{}'", value.replace('\'', r"'\''")),
        };
        words = format!("{words} {flag} {quoted}");
    };
    if let Some(file) = &args.config {
        add("--config", &std::path::absolute(file).unwrap_or_else(|_| file.clone()).to_string_lossy());
    }
    if let Some(instance) = &args.instance {
        add("--instance", instance);
    }
    args.sets().iter().for_each(|set| add("--set", set));
    words
}

/// Advice that names a command of this service, as it can be typed: with the configuration that this process was
/// started with. Who gives the advice may be another process, which does not know it.
pub fn literal(text: &str) -> String {
    OWN_COMMAND.get().map_or_else(|| text.to_owned(), |(service, words)| with_words(text, service, words))
}

fn with_words(text: &str, service: &str, words: &str) -> String {
    let text = text.replace(&format!("`skep {service} --"), &format!("`skep {service}{words} --"));
    match service {
        "storaged" => text.replace(
            "start with --init",
            &format!("run `skep storaged{words} --init-only` once, then start it"),
        ),
        _ => text,
    }
}

/// Names the Unix socket on which `skep up` waits for one line from each daemon it starts.
pub const READY_SOCKET_ENV: &str = "SKEP_READY_SOCKET";

/// Tells whoever started the daemon that it serves (`skep up` by a socket, systemd by
/// `NOTIFY_SOCKET`). Dropped before [`Readiness::ready`], it tells nothing: the starter sees the
/// process end instead.
#[derive(Clone)]
pub struct Readiness {
    service: String,
    /// Parts of the service that are not ready yet.
    missing: Arc<AtomicU32>,
}

impl Readiness {
    /// For the service of this name.
    pub fn new(service: &str) -> Self {
        Self::of(service, 1)
    }

    /// For a service of so many parts, each of which has a clone: it is ready when all of them are.
    pub fn of(service: &str, parts: u32) -> Self {
        Self { service: service.to_owned(), missing: Arc::new(AtomicU32::new(parts)) }
    }

    /// The daemon, or this part of it, serves from now on; `detail` goes to the log.
    pub fn ready(self, detail: &str) {
        info!("ready: {detail}");
        if self.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if let Some(path) = std::env::var_os(READY_SOCKET_ENV) {
            let told = UnixStream::connect(&path)
                .and_then(|mut s| writeln!(s, "{} {}", self.service, std::process::id()));
            if let Err(e) = told {
                error!("cannot tell {} that the service is ready: {e}", path.to_string_lossy());
            }
        }
        if let Some(name) = std::env::var_os("NOTIFY_SOCKET")
            && let Err(e) = notify(&name, b"READY=1")
        {
            warning!("cannot tell systemd ({}) that the service is ready: {e}", name.to_string_lossy());
        }
    }
}

/// Tells systemd, on a socket that is a path or, with `@`, a name of its own.
fn notify(name: &OsStr, state: &[u8]) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.send_to_addr(state, &SocketAddr::from_abstract_name(name)?),
        None => socket.send_to(state, name),
    }
    .map(drop)
}

/// Set by signals, or by the program itself. Clones are one and the same.
#[derive(Clone)]
pub struct Stop {
    inner: Arc<StopInner>,
}

struct StopInner {
    set: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    /// Not bound to any signal (tests, helper threads).
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inner: Arc::new(StopInner { set: AtomicBool::new(false), event }) })
    }

    /// SIGTERM and SIGINT set it. Who asks again ends the process at once: an impatient
    /// administrator wins, and everything acknowledged survives that too (a mount that was told to end has its servers told
    /// what it keeps, as fast as they answer, and keeps nothing more).
    pub fn on_signals() -> std::io::Result<Self> {
        Self::on(&[SIGTERM, SIGINT])
    }

    /// The same for a daemon. SIGHUP is what log rotation and habit send to daemons: it changes nothing and ends nothing,
    /// unless the daemon runs at a terminal, whose end it is.
    pub fn of_daemon() -> std::io::Result<Self> {
        if std::fs::File::open("/dev/tty").is_ok() {
            return Self::of_command();
        }
        asking::on_each(&[SIGHUP], |_| {
            warning!(
                "SIGHUP: nothing is read again; what changed in the configuration counts after a restart"
            );
        })?;
        Self::on_signals()
    }

    /// The same for a command that puts in order what it made: the end of its terminal (SIGHUP) asks, too.
    pub fn of_command() -> std::io::Result<Self> {
        Self::on(&[SIGTERM, SIGINT, SIGHUP])
    }

    fn on(signals: &[i32]) -> std::io::Result<Self> {
        let stop = Self::new()?;
        let told = stop.clone();
        asking::on_each(signals, move |_| match told.is_set() {
            false => told.set(),
            true => std::process::exit(EXIT_INTERRUPTED.into()),
        })?;
        Ok(stop)
    }

    /// From now on [`Stop::is_set`] is true and [`Stop::as_fd`] readable for ever.
    pub fn set(&self) {
        self.inner.set.store(true, Ordering::SeqCst);
        // The counter cannot overflow by single steps, and a failed write leaves it readable.
        let _ = rustix::io::write(&self.inner.event, &1u64.to_ne_bytes());
    }

    pub fn is_set(&self) -> bool {
        self.inner.set.load(Ordering::SeqCst)
    }

    /// Waits for at most `limit`; true when it is set.
    pub fn wait(&self, limit: Duration) -> bool {
        if self.is_set() {
            return true;
        }
        let limit = limit.try_into().ok();
        let mut fds = [PollFd::new(&self.inner.event, PollFlags::IN)];
        // An interrupted wait is a short wait: the caller loops anyway.
        let _ = poll(&mut fds, limit.as_ref());
        self.is_set()
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.event.as_fd()
    }
}

/// A daemon that `skep up` started has a session of its own: what is typed at the terminal, and
/// the terminal's end, is not meant for it.
pub fn leave_terminal() {
    if std::env::var_os(READY_SOCKET_ENV).is_some() {
        // Fails only for a process that leads its group already, which has left.
        let _ = rustix::process::setsid();
    }
}

/// A panic in any thread ends the process: half a daemon would answer wrongly, a restarted one
/// replays its log.
pub fn die_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        error!("internal error, the process ends (please report this line): {panic}");
        std::process::abort();
    }));
}

/// The keys of this process; none only when the configuration says `insecure`.
pub fn keyring(process: &Process) -> Result<Keyring, String> {
    if process.insecure {
        crate::warning!("running without a key: whoever reaches this service is trusted");
        return Ok(Keyring::insecure());
    }
    Keyring::from_file(&process.key_file).map_err(|e| e.to_string())
}

/// [`keyring`] of a server: the key of a client is not enough.
pub fn server_keyring(process: &Process) -> Result<Keyring, String> {
    let keyring = keyring(process)?;
    if keyring.has(Role::Server) {
        return Ok(keyring);
    }
    let path = process.key_file.display();
    Err(format!("{path} is the key of a client; a server needs the cluster key: name it by key_file"))
}

/// Where servers write what they have to say about peers.
pub fn net_log() -> skep_net::Log {
    skep_net::Log::new(|line| crate::warning!("{line}"))
}

/// Where mgmtd is, as the configuration says.
pub fn mgmtd_endpoints(membership: &Membership) -> Result<Vec<Endpoint>, String> {
    membership
        .mgmtd
        .iter()
        .map(|address| address.to_string().parse().map_err(|e| format!("mgmtd: {e}")))
        .collect()
}

/// The open-file limit is raised to what the system allows.
pub fn raise_open_files() -> Result<u64, Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: systemd hears it on either kind of socket.
    #[test]
    fn systemd_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let abstract_name = format!("skep-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{abstract_name}").into()),
        ] {
            notify(&name, b"READY=1").unwrap();
            let mut heard = [0; 32];
            let len = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..len], b"READY=1");
        }
        assert!(notify(OsStr::new("/nonexistent/notify"), b"READY=1").is_err());
    }

    /// Goal: advice names the command with the configuration of the service that is to be started by it, and leaves that of
    /// others alone.
    #[test]
    fn advice_can_be_typed() {
        let args = DaemonArgs {
            config: Some("/d/etc/storaged-1.toml".into()),
            instance: None,
            sets: vec!["alias=it's one".to_owned()],
            insecure: false,
        };
        let words = own_words(&args);
        assert_eq!(words, r" --config /d/etc/storaged-1.toml --set 'alias=it'\''s one'");
        let said = with_words("run `skep storaged --restored` once", "storaged", " --instance s1");
        assert_eq!(said, "run `skep storaged --instance s1 --restored` once");
        assert_eq!(
            with_words("run `skep mgmtd --restored` once", "metad", " --instance m"),
            "run `skep mgmtd --restored` once"
        );
        let said = with_words("of an empty directory start with --init", "storaged", " --config /c");
        assert_eq!(
            said,
            "of an empty directory run `skep storaged --config /c --init-only` once, then start it"
        );
    }

    /// Goal: a waiter wakes when it is told to stop, and later waits return at once.
    #[test]
    fn stop_wakes_the_waiter() {
        let stop = Stop::new().unwrap();
        assert!(!stop.wait(Duration::from_millis(1)));
        let other = stop.clone();
        let waiter = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        stop.set();
        assert!(waiter.join().unwrap());
        assert!(stop.wait(Duration::from_secs(60)));
    }
}
