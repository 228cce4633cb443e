//! The machine's part in a cluster: which services it has, and what the cluster says.

use clap::{Args, ValueEnum};
use skep_base::access::{AccessArgs, Cluster};
use skep_base::config::{self, CONFIG_DIR, MetadConfig, MgmtdConfig, MountConfig, Source, StoragedConfig};
use skep_base::namespace::{Namespace, available};
use skep_base::units::Period;
use skep_base::{Failure, Outcome};
use skep_instruments::described::{Described, described};
use skep_instruments::processes;
use skep_tune::host::Part;
use skep_tune::{ClusterFacts, LookedAt, Role, Root, Service as Here};
use skep_types::limits::CHUNK_DEFAULT;
use skep_types::{PoolId, ServiceKind};
use skep_wire::meta::Inspect;
use skep_wire::mgmt::StatusReply;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Nobody waits longer for a cluster that was not named.
const UNASKED_LIMIT: Period = Period::secs(2);

/// `--role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleName {
    Meta,
    Storage,
    Client,
    Mgmt,
}

impl RoleName {
    fn role(self) -> Role {
        match self {
            Self::Meta => Role::Meta,
            Self::Storage => Role::Storage,
            Self::Client => Role::Client,
            Self::Mgmt => Role::Mgmt,
        }
    }
}

/// Flags that say which machine, and which part of it.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// What the machine does, several times or separated by commas [default: what runs or is configured here]
    #[arg(long = "role", value_enum, value_delimiter = ',', value_name = "ROLE")]
    roles: Vec<RoleName>,
    /// Directories of targets or metadata, beside those of the configuration; or a directory on a mount
    #[arg(long = "path", value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// Look at a directory that looks like a machine (with /proc, /sys and /etc below); check also takes what
    /// --record wrote
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    #[command(flatten)]
    access: AccessArgs,
}

/// A directory that looks like a machine, where something may be changed. A recording is none: only check reads one.
pub fn directory(path: &Path) -> Outcome<Root> {
    if path.is_file() {
        return Err(Failure::usage(format!(
            "--root {}: this is a file, such as a recording (skep tune check --record): only skep tune check looks into \
             one; here the directory of a machine is needed",
            path.display()
        )));
    }
    Root::new(path).map_err(|e| Failure::local(path.display(), e))
}

impl MachineArgs {
    /// The root.
    pub fn open(&self) -> Outcome<Root> {
        directory(&self.root)
    }

    /// Services, roles, directories and the cluster.
    pub fn part(&self, root: &Root) -> Outcome<Part> {
        let named = LookedAt {
            services: Vec::new(),
            roles: self.roles.iter().map(|role| role.role()).collect(),
            directories: self.paths.iter().map(|path| named(root, path)).collect::<Outcome<_>>()?,
        };
        let then = LookedAt::recorded(root);
        // A cluster that answers here and now is not that of a machine that was recorded.
        let is_recorded = then.is_some();
        let looked = match then {
            // Unless something else is named, what was looked at when the machine was recorded.
            Some(then) if named == LookedAt::default() => then,
            Some(then) => LookedAt { services: then.services, ..named },
            None => LookedAt { services: services(root), ..named },
        };
        if looked.services.is_empty() && looked.roles.is_empty() {
            return Err(Failure::new(format!(
                "no service of Skep runs here or has a file below {}; say what the machine shall do: --role storage, \
                 --role meta, --role client or --role mgmt",
                root.path(CONFIG_DIR).display()
            )));
        }
        looked.record(root);
        let LookedAt { services, roles, directories } = looked;
        let roles: BTreeSet<Role> = roles.into_iter().collect();
        let cluster = if is_recorded { ClusterFacts::recorded(root) } else { self.cluster(root)? };
        Ok(Part { services, roles, directories, cluster })
    }

    /// What the cluster says: it must answer when it is named, it may when it is that of this machine.
    fn cluster(&self, root: &Root) -> Outcome<Option<ClusterFacts>> {
        // What the cluster says now is not what it said of the machine that was recorded.
        if let Some(then) = ClusterFacts::recorded(root) {
            then.record(root);
            return Ok(Some(then));
        }
        let asked = self.access.is_explicit();
        if !asked && !root.is_live() {
            return Ok(None);
        }
        if !asked && !Path::new(skep_base::access::KEY_FILE).exists() {
            return Ok(None);
        }
        let timeout = if asked { self.access.timeout } else { UNASKED_LIMIT };
        let access = AccessArgs { timeout, ..self.access.clone() };
        let status = access.connect(None).and_then(|mut cluster: Cluster| cluster.status());
        match status {
            Ok(status) => {
                let facts = self.facts(&status);
                facts.record(root);
                Ok(Some(facts))
            }
            Err(failure) if asked => Err(failure),
            Err(failure) => {
                eprintln!("note: the cluster did not answer, so its targets are not known: {failure}");
                Ok(None)
            }
        }
    }

    fn facts(&self, status: &StatusReply) -> ClusterFacts {
        let of =
            |kind: ServiceKind| status.nodes.iter().filter(|one| one.node.service == kind).count() as u32;
        ClusterFacts {
            pools: status
                .pools
                .iter()
                .map(|one| (one.pool.alias.clone(), available(status, one.pool.pool)))
                .collect(),
            clients: status.sessions.len() as u32,
            storage_servers: of(ServiceKind::Storaged),
            metadata_servers: of(ServiceKind::Metad),
            directories: self.paths.iter().filter_map(|path| self.policy(path)).collect(),
        }
    }

    /// The policy of a directory that lies on a mount.
    fn policy(&self, path: &Path) -> Option<(String, u64, u32, String)> {
        let connected = Namespace::connect(&self.access, path);
        if let Err(failure) = connected.as_ref().map(drop)
            && failure.is_usage()
        {
            eprintln!("note: {failure}");
        }
        let mut namespace = connected.ok()?;
        let ino = namespace.resolve(path).ok()?;
        let policy = namespace.ask(ino, &Inspect { ino }).ok()?.policy;
        let chunk =
            if policy.chunk_size == 0 { u64::from(CHUNK_DEFAULT) } else { u64::from(policy.chunk_size) };
        let pool = if policy.pool == PoolId(0) { PoolId(1) } else { policy.pool };
        let pool = skep_base::find::pool_alias(&namespace.status, pool);
        Some((path.display().to_string(), chunk, policy.targets, pool))
    }
}

/// A directory that was named: mounts are told apart by whole paths without links.
fn named(root: &Root, path: &Path) -> Outcome<String> {
    if root.is_live() && !path.exists() {
        return Err(Failure::usage(format!("{}: is not there; --path names a directory", path.display())));
    }
    root.place(path).ok_or_else(|| {
        Failure::usage(format!(
            "{}: nobody can say where this is below {}; --path names a directory as it is on that machine: from the root, \
             without .. and without symbolic links that lead out",
            path.display(),
            root.path("/").display()
        ))
    })
}

/// Every service that runs here, then those that are only configured; directories without links, so that a recording,
/// which has not all of them, means the same.
fn services(root: &Root) -> Vec<Here> {
    let mut all = processes::running(root);
    installed::<MgmtdConfig>(root, &mut all);
    installed::<MetadConfig>(root, &mut all);
    installed::<StoragedConfig>(root, &mut all);
    installed::<MountConfig>(root, &mut all);
    for path in all.iter_mut().flat_map(|here| &mut here.directories) {
        if let Some(real) = root.place(Path::new(path)) {
            *path = real;
        }
    }
    all
}

fn installed<S: Described>(root: &Root, all: &mut Vec<Here>) {
    for (name, file) in config::installed::<S>(&root.path(CONFIG_DIR)) {
        if all.iter().any(|known| processes::parted(&known.name).0 == name) {
            continue;
        }
        let below = file.strip_prefix(root.path("/")).ok().map(|file| Path::new("/").join(file));
        let Some(real) = below.and_then(|file| processes::regular(root, &file)) else {
            eprintln!("note: {}: no file below the root; passed over", file.display());
            continue;
        };
        match config::load::<S>(Source::Given(&real), &[], &[]) {
            Ok(loaded) => all.push(described(&loaded.config, name, None, Path::new("/"))),
            Err(e) => eprintln!("note: {e}"),
        }
    }
}
