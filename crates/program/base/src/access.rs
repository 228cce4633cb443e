//! Finding and reaching a cluster: by flags, by the file that `skep up` wrote, by a mount.

use crate::caller::{CallError, Caller, hello};
use crate::cluster_file::ClusterFile;
use crate::config::address::{Address, MGMTD_PORT};
use crate::deadline::{self, Way};
use crate::mount_table::{self, MountEntry};
use crate::mounted::{self, Link, Mounted};
use crate::units::Period;
use crate::{Failure, Outcome};
use clap::Args;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use skep_net::{Endpoint, Keyring, choose, machine_id};
use skep_types::{Role, ShardId};
use skep_wire::meta::ShardCall;
use skep_wire::mgmt::{ClusterStatus, GetFences, NodeEntry, StatusReply};
use skep_wire::{Message, Status};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The key that is tried when none is named.
pub const KEY_FILE: &str = "/etc/skep/cluster.key";
/// The variable that names that file.
pub const CLUSTER_VARIABLE: &str = "SKEP_CLUSTER";
/// Name of the file that `skep up` writes.
pub const CLUSTER_FILE: &str = "cluster.toml";
/// Pause before a service that is starting is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The key file when none is named: that of the cluster of `SKEP_CLUSTER`, else the usual one.
pub fn default_key() -> Outcome<PathBuf> {
    match std::env::var_os(CLUSTER_VARIABLE).filter(|file| !file.is_empty()) {
        Some(file) => Ok(ClusterFile::read(Path::new(&file))?.key_file),
        None => Ok(PathBuf::from(KEY_FILE)),
    }
}

/// Flags that say which cluster is meant.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which cluster")]
pub struct AccessArgs {
    /// Addresses of mgmtd, separated by commas: host, host:port, unix:PATH
    #[arg(long, value_delimiter = ',', value_name = "ADDR")]
    pub mgmtd: Vec<Address>,
    /// Key file [default: /etc/skep/cluster.key]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// cluster.toml that skep up wrote
    #[arg(long, value_name = "FILE", env = CLUSTER_VARIABLE)]
    pub cluster: Option<PathBuf>,
    /// The cluster runs without a key
    #[arg(long)]
    pub insecure: bool,
    /// How long a command waits for the services
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = some_time)]
    pub timeout: Period,
}

/// Where a cluster is and with which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Addresses of mgmtd.
    pub mgmtd: Vec<Address>,
    /// The key file.
    pub key: PathBuf,
    /// The file of `skep up`, when that is how it was found.
    pub cluster: Option<PathBuf>,
    /// What the path is that was named, if it lies on a mount.
    pub mounted: Option<Mounted>,
}

/// Time in which a service can answer.
pub fn some_time(text: &str) -> Result<Period, String> {
    match text.parse::<Period>() {
        Ok(period) if period.is_zero() => Err("nothing answers in no time; write \"5s\"".to_owned()),
        other => other.map_err(|e| e.to_string()),
    }
}

impl AccessArgs {
    /// Do the flags name a cluster?
    pub fn is_explicit(&self) -> bool {
        !self.mgmtd.is_empty() || self.cluster.is_some()
    }

    /// The cluster that the flags name; else the one whose mount `path` lies on; else the one on
    /// this machine. Whichever it is: [`Cluster::status`] refuses one that `path` is not mounted from.
    pub fn place(&self, path: Option<&Path>) -> Outcome<Place> {
        self.find(path, Link::Itself)
    }

    /// The same for commands that want of the path only on which mount it is, as df(1) does.
    pub fn place_behind(&self, path: Option<&Path>) -> Outcome<Place> {
        let place = self.find(path, Link::Followed)?;
        match path.filter(|_| place.mounted.is_none()) {
            None => Ok(place),
            Some(path) => Err(Failure::usage(format!(
                "{}: does not exist, or is on no mount of Skep; name a path on a mount, or none",
                path.display()
            ))),
        }
    }

    fn find(&self, path: Option<&Path>, link: Link) -> Outcome<Place> {
        let limit = self.timeout.duration();
        let mounted = path.map(|path| mounted::look(path, link, limit)).transpose()?.flatten();
        let place = match (&mounted, &self.cluster) {
            _ if !self.mgmtd.is_empty() => self.at(self.mgmtd.clone()),
            (_, Some(file)) => self.of_cluster_file(file)?,
            (Some(mounted), None) => self.of_mount(&mounted.mount)?,
            (None, None) => self.at(vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: MGMTD_PORT }]),
        };
        Ok(Place { mounted, ..place })
    }

    /// The same for commands that show the cluster and not the path: where the mount of the path does not answer in half of the
    /// time, the flags alone say which cluster is meant.
    pub fn place_or_named(&self, path: Option<&Path>) -> Outcome<Place> {
        let half = Self { timeout: Period(self.timeout.duration() / 2), ..self.clone() };
        half.place_behind(path).or_else(|failure| match self.is_explicit() && !failure.is_usage() {
            true => self.place(None),
            false => Err(failure),
        })
    }

    fn at(&self, mgmtd: Vec<Address>) -> Place {
        let key = self.key.clone().unwrap_or_else(|| PathBuf::from(KEY_FILE));
        Place { mgmtd, key, cluster: None, mounted: None }
    }

    fn of_cluster_file(&self, file: &Path) -> Outcome<Place> {
        let cluster = ClusterFile::read(file)?;
        let key = self.key.clone().unwrap_or(cluster.key_file);
        Ok(Place { mgmtd: cluster.mgmtd, key, cluster: Some(file.to_owned()), mounted: None })
    }

    /// The cluster that is mounted there.
    pub fn of_mount(&self, mount: &MountEntry) -> Outcome<Place> {
        let mgmtd = source_addresses(&mount.source).map_err(|e| {
            Failure::new(format!(
                "{}: cannot tell the cluster from its source \"{}\" ({e}); name it by --mgmtd or --cluster",
                mount.point.display(),
                mount.source
            ))
        })?;
        // `skep up` keeps its file one directory above the sockets.
        let above = mgmtd.iter().find_map(|address| match address {
            Address::Unix(socket) => socket.parent()?.parent().map(|dir| dir.join(CLUSTER_FILE)),
            Address::Tcp { .. } => None,
        });
        if let Some(file) = above.filter(|file| file.exists()) {
            return self.of_cluster_file(&file);
        }
        Ok(self.at(mgmtd))
    }

    /// Reaches the cluster.
    pub fn connect(&self, path: Option<&Path>) -> Outcome<Cluster> {
        self.connect_to(&self.place(path)?)
    }

    /// Reaches the cluster at this place.
    pub fn connect_to(&self, place: &Place) -> Outcome<Cluster> {
        let keyring = match self.insecure {
            true => Keyring::insecure(),
            false => Keyring::from_file(&place.key).map_err(|e| {
                Failure::new(format!(
                    "{e}.\nWhich cluster is meant? Name it by --cluster FILE (skep up wrote it), or by --mgmtd ADDR --key FILE"
                ))
            })?,
        };
        Cluster::new(place, keyring, self.timeout.duration())
    }
}

/// The skep mount that a path lies on.
pub fn mount_of(path: &Path, limit: Duration) -> Outcome<Option<MountEntry>> {
    let opened = deadline::of_path(path, Way::Entry, limit, |path| {
        open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    })?;
    let file = match opened {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(Failure::local(path.display(), e)),
    };
    let mount = mount_table::of_file(&file).map_err(|e| Failure::local("list of mounts", e))?;
    Ok(mount.filter(MountEntry::is_skep))
}

/// The addresses in a mount's source: `mgmt1,mgmt2:/`, `unix:/run/skep/mgmtd.sock:/`.
fn source_addresses(source: &str) -> Result<Vec<Address>, String> {
    let (addresses, _) = source.rsplit_once(":/").ok_or("it does not end in \":/\"")?;
    addresses.split(',').map(str::parse).collect()
}

/// Is a mount with this source certainly not one of the cluster with these addresses? So it is when both name sockets of
/// this machine, and no common one; or when the cluster, as one of `skep up`, names its socket and its port of 127.0.0.1,
/// and the mount another such port. By names of hosts it cannot be told: one host has many names.
pub fn is_of_another(source: &str, mgmtd: &[Address]) -> bool {
    let Ok(mounted) = source_addresses(source) else { return false };
    let is_socket = |address: &&Address| matches!(address, Address::Unix(_));
    let is_here = |address: &&Address| matches!(address, Address::Tcp { host, .. } if host == "127.0.0.1");
    let is_none_of = |kind: &dyn Fn(&&Address) -> bool| {
        let mut of_kind = mounted.iter().filter(kind).peekable();
        of_kind.peek().is_some()
            && mgmtd.iter().any(|one| kind(&one))
            && !of_kind.any(|one| mgmtd.contains(one))
    };
    let is_by_socket = mounted.iter().any(|one| is_socket(&one));
    mgmtd.iter().any(|one| is_socket(&one)) && is_none_of(if is_by_socket { &is_socket } else { &is_here })
}

/// A cluster that answers.
pub struct Cluster {
    keyring: Arc<Keyring>,
    role: Role,
    mgmtd: Caller,
    whom: String,
    mounted: Option<Mounted>,
    /// How long one question may take.
    pub limit: Duration,
}

impl Cluster {
    fn new(place: &Place, keyring: Keyring, limit: Duration) -> Outcome<Self> {
        let keyring = Arc::new(keyring);
        let role = if keyring.has(Role::Admin) { Role::Admin } else { Role::Client };
        let endpoints = place.mgmtd.iter().map(|address| address.to_string().parse::<Endpoint>());
        let endpoints: Vec<_> =
            endpoints.collect::<Result<_, _>>().map_err(|e| Failure::new(e.to_string()))?;
        let names: Vec<_> = place.mgmtd.iter().map(ToString::to_string).collect();
        let mgmtd = Caller::new(keyring.clone(), endpoints, hello(role));
        let (whom, mounted) = (format!("mgmtd ({})", names.join(", ")), place.mounted.clone());
        Ok(Self { keyring, role, mgmtd, whom, mounted, limit })
    }

    /// With the administrator's role, at these addresses.
    pub fn at(keyring: Arc<Keyring>, endpoints: Vec<Endpoint>, whom: &str, limit: Duration) -> Self {
        let mgmtd = Caller::new(keyring.clone(), endpoints, hello(Role::Admin));
        Self { keyring, role: Role::Admin, mgmtd, whom: whom.to_owned(), mounted: None, limit }
    }

    /// Fails when the key does not make an administrator.
    pub fn require_admin(&self, what: &str) -> Outcome {
        if self.role == Role::Admin {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{what} needs the cluster key; this is the key of a client: use --key FILE"
        )))
    }

    /// Asks mgmtd.
    pub fn ask<M: Message>(&mut self, message: &M) -> Outcome<M::Reply> {
        let deadline = Instant::now() + self.limit;
        let answer = patiently(deadline, || self.mgmtd.call(message, deadline));
        answer.map_err(|e| Failure::call(&self.whom, &e))
    }

    /// What mgmtd puts off until metadata servers have told it that it is not an older copy: why it does. A release before
    /// this one does not tell.
    pub fn doubt(&mut self) -> Option<String> {
        match self.mgmtd.call(&GetFences {}, Instant::now() + self.limit) {
            Err(CallError::Refused(refusal)) if refusal.status == Status::NOT_READY => Some(refusal.detail),
            _ => None,
        }
    }

    /// Everything mgmtd knows. Who named a path on a mount of another cluster is refused: its inode number would be taken for
    /// some other file here.
    pub fn status(&mut self) -> Outcome<StatusReply> {
        let status = self.ask(&ClusterStatus {})?;
        if let Some(mounted) = &self.mounted {
            mounted.must_be_of(status.cluster, &self.whom)?;
        }
        Ok(status)
    }

    /// What the path is that was named, if it lies on a mount.
    pub fn mounted(&self) -> Option<&Mounted> {
        self.mounted.as_ref()
    }

    /// Who answers, for people.
    pub fn whom(&self) -> &str {
        &self.whom
    }

    /// The keys with which daemons are asked.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// A node of the cluster, to be asked directly.
    pub fn node(&self, node: &NodeEntry) -> NodeLink {
        let endpoints = choose(&node.addresses, node.machine, machine_id());
        let caller = Caller::new(self.keyring.clone(), endpoints, hello(self.role));
        NodeLink { caller, alias: node.alias.clone(), limit: self.limit }
    }
}

/// A metadata or storage server.
pub struct NodeLink {
    caller: Caller,
    alias: String,
    /// How long one question may take.
    pub limit: Duration,
}

impl NodeLink {
    /// Asks a storage server.
    pub fn ask<M: Message>(&mut self, message: &M) -> Outcome<M::Reply> {
        let deadline = Instant::now() + self.limit;
        let answer = patiently(deadline, || self.caller.call(message, deadline));
        answer.map_err(|e| Failure::call(&self.alias, &e))
    }

    /// Asks once, within a time of its own.
    pub fn call_within<M: Message>(&mut self, message: &M, limit: Duration) -> Result<M::Reply, CallError> {
        self.caller.call(message, Instant::now() + limit)
    }

    /// Asks a shard of a metadata server.
    pub fn ask_shard<M: Message>(&mut self, shard: ShardId, message: &M) -> Result<M::Reply, CallError> {
        let deadline = Instant::now() + self.limit;
        patiently(deadline, || self.call_shard(shard, message, deadline))
    }

    /// Asks it once.
    pub(crate) fn call_shard<M: Message>(
        &mut self,
        shard: ShardId,
        message: &M,
        deadline: Instant,
    ) -> Result<M::Reply, CallError> {
        let call = ShardCall { shard, ..ShardCall::default() };
        self.caller.call_shard(call, message, deadline).map(|(_, reply)| reply)
    }
}

/// Repeats what a starting service puts off.
fn patiently<T>(deadline: Instant, mut ask: impl FnMut() -> Result<T, CallError>) -> Result<T, CallError> {
    loop {
        let outcome = ask();
        if !is_asked_again(&outcome, Status::is_transient, deadline) {
            return outcome;
        }
    }
}

/// Was it refused in such a way that it is asked again? Then a pause has passed, for which there is time.
pub(crate) fn is_asked_again<T>(
    outcome: &Result<T, CallError>,
    why: impl Fn(Status) -> bool,
    deadline: Instant,
) -> bool {
    let is_meant = matches!(outcome, Err(CallError::Refused(refusal)) if why(refusal.status));
    let again = is_meant && Instant::now() + RETRY_PAUSE < deadline;
    if again {
        std::thread::sleep(RETRY_PAUSE);
    }
    again
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_wire::Refusal;

    fn args() -> AccessArgs {
        AccessArgs { mgmtd: Vec::new(), key: None, cluster: None, insecure: false, timeout: Period::secs(1) }
    }

    /// Goal: what a service puts off is asked again while there is time, what is final once.
    #[test]
    fn only_what_is_put_off_is_asked_again() {
        let asked = |status, time| {
            let (mut asked, deadline) = (0, Instant::now() + time);
            let answer = patiently(deadline, || {
                asked += 1;
                if asked < 3 { Err(CallError::Refused(Refusal::new(status))) } else { Ok(()) }
            });
            (asked, answer.is_ok())
        };
        let minute = Duration::from_secs(60);
        assert_eq!(asked(Status::NOT_READY, minute), (3, true));
        assert_eq!(asked(Status::NOT_READY, Duration::ZERO), (1, false));
        assert_eq!(asked(Status::NOT_LEADER, minute), (1, false), "it does not know where to ask");
    }

    /// Goal: a mount's source gives back the addresses of fstab and of `skep up`.
    #[test]
    fn sources() {
        let addresses = |text| {
            source_addresses(text).map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(addresses("mgmt1,mgmt2:99:/").unwrap(), ["mgmt1:7720", "mgmt2:99"]);
        assert_eq!(
            addresses("unix:/d/run/m.sock,127.0.0.1:5:/").unwrap(),
            ["unix:/d/run/m.sock", "127.0.0.1:5"]
        );
        assert_eq!(addresses("unix:/d/run/m.sock:/sub/dir").unwrap(), ["unix:/d/run/m.sock"]);
        assert!(addresses("tmpfs").is_err());
    }

    /// Goal: a mount is another cluster's only when its socket or port says so; one that cannot be told counts as the cluster's.
    #[test]
    fn whose_mounts() {
        let asked: Vec<Address> =
            ["unix:/d/run/m.sock", "127.0.0.1:5"].map(|one| one.parse().unwrap()).into();
        for (source, another) in [
            ("unix:/d/run/m.sock,127.0.0.1:5:/", false),
            ("unix:/d/run/m.sock:/", false),
            // The port was another cluster's before.
            ("unix:/e/run/m.sock,127.0.0.1:5:/", true),
            ("unix:/e/run/m.sock,127.0.0.1:6:/sub", true),
            ("127.0.0.1:5:/", false),
            ("127.0.0.1:6:/", true),
            ("mgmt1:/", false),
            ("what", false),
        ] {
            assert_eq!(is_of_another(source, &asked), another, "{source}");
        }
        for source in ["unix:/e/run/m.sock:/", "127.0.0.1:6:/"] {
            assert!(!is_of_another(source, &asked[1..]) && !is_of_another(source, &[]));
        }
    }

    /// Goal: a time-out in which nothing can answer is refused, as it would be taken for silence.
    #[test]
    fn no_time_at_all() {
        assert_eq!(some_time("2s"), Ok(Period::secs(2)));
        assert!(some_time("0s").unwrap_err().contains("nothing answers") && some_time("2").is_err());
    }

    /// Goal: flags win over everything, and without any the cluster of this machine is meant.
    #[test]
    fn order_of_places() {
        let named =
            AccessArgs { mgmtd: vec!["m:1".parse().unwrap()], cluster: Some("/nowhere".into()), ..args() };
        assert_eq!(named.place(None).unwrap().mgmtd[0].to_string(), "m:1");
        let here = args().place(Some(Path::new("/"))).unwrap();
        assert_eq!(
            (here.mgmtd[0].to_string().as_str(), here.key.as_path()),
            ("127.0.0.1:7720", Path::new(KEY_FILE))
        );
        let missing = AccessArgs { cluster: Some("/nowhere/cluster.toml".into()), ..args() }.place(None);
        assert!(missing.unwrap_err().to_string().contains("/nowhere/cluster.toml"));
    }
}
