//! `skep up`: makes what is missing, starts what does not run, mounts.

use super::UpArgs;
use super::place::Place;
use super::plan::{self, Kind, ServicePlan};
use super::process::{self, Living};
use super::ready::{self, ReadySocket, Watched};
use super::{down, mount_point, status};
use skep_base::cluster_file::{ClusterFile, FILE, absolute};
use skep_base::daemon::READY_SOCKET_ENV;
use skep_base::units::Period;
use skep_base::{Failure, Outcome};
use skep_net::{KeyFile, Keyring};
use skep_types::limits::SHARDS_MAX;
use skep_types::{Reachability, ServiceKind};
use skep_wire::mgmt::StatusReply;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TARGETS: u32 = 4;
const SHARDS: u32 = 64;
const METAS: u32 = 1;
const GROUPS: u32 = 1;
const SERVERS: u32 = 2;
/// A management service that was started beside daemons that ran is looked after this long: they beat every second.
const HEARD_LIMIT: Duration = Duration::from_secs(3);
/// ... and asked this often whom it has heard.
const HEARD_PAUSE: Duration = Duration::from_millis(50);

pub fn run(args: &UpArgs, out: &mut dyn Write) -> Outcome {
    let began = Instant::now();
    let place = Place::make(&args.dir)?;
    let mut cluster = cluster(args, &place)?;
    keys(&cluster)?;
    if !args.no_mount {
        // Before the old place is left.
        mount_point::make(&cluster)?;
        if let Some(known) = place.cluster()?.filter(|known| known.mount_point != cluster.mount_point) {
            mount_point::leave(&known)?;
        }
    }
    let services = plan::services(&place.dir, cluster.metas, cluster.servers);
    prepare(&place, &mut cluster, &services)?;
    let mut started = Vec::new();
    let outcome = bring_up(&place, &mut cluster, &services, args.no_mount, &mut started)
        .and_then(|()| all_live(&services, args.no_mount));
    if outcome.is_err() {
        // What ran before goes on; what this command began must not stay half done.
        down::stop(started, down::STOP_LIMIT);
        return outcome;
    }
    tell(&place.dir, &cluster, args.no_mount, began, out)
}

/// What is asked for, which for an existing cluster is what it was made with.
fn cluster(args: &UpArgs, place: &Place) -> Outcome<ClusterFile> {
    let known = place.cluster()?;
    let mount_point = match (&args.mount, &known) {
        (Some(mount), _) => mount_place(mount)?,
        (None, Some(known)) => known.mount_point.clone(),
        (None, None) => place.dir.join("mnt"),
    };
    let Some(known) = known else { return new_cluster(args, place, mount_point) };
    let fixed = |flag: &str, given: Option<u32>, is: u32| match given {
        Some(given) if given != is => Err(Failure::new(format!(
            "--{flag} {given}: the cluster in {} was made with {is}, which is fixed; use another --dir for a new one{}",
            place.dir.display(),
            if flag == "targets" { how_to_add_targets(&place.dir) } else { String::new() }
        ))),
        _ => Ok(()),
    };
    fixed("targets", args.targets, known.targets)?;
    fixed("shards", args.shards, known.shards)?;
    fixed("metas", args.metas, known.metas)?;
    fixed("groups", args.groups, known.groups)?;
    fixed("servers", args.servers, known.servers)?;
    Ok(ClusterFile { mount_point, ..known })
}

/// A cluster that is there gets more targets as any other does.
fn how_to_add_targets(dir: &Path) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "skep".into());
    let (program, dir) = (program.display(), dir.display());
    format!(
        ".\nTo add targets to this one: make their directories, name them in `targets` of {dir}/etc/storaged-1.toml, then\n  \
         kill $(cat {dir}/run/storaged-1.pid)\n  \
         {program} storaged --config {dir}/etc/storaged-1.toml --init-only\n  \
         {program} up --dir {dir}"
    )
}

fn mount_place(mount: &Path) -> Outcome<std::path::PathBuf> {
    if let Some(parent) = mount.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|e| Failure::local(parent.display(), e))?;
    }
    let place = absolute(mount)?;
    // The mount follows a link as well, and the list of mounts names where it leads to.
    match place.read_link() {
        Ok(_) => place.canonicalize().map_err(|e| Failure::local(place.display(), e)),
        Err(_) => Ok(place),
    }
}

fn new_cluster(args: &UpArgs, place: &Place, mount_point: std::path::PathBuf) -> Outcome<ClusterFile> {
    let shards = args.shards.unwrap_or(SHARDS);
    if !shards.is_power_of_two() || shards > u32::from(SHARDS_MAX) {
        return Err(Failure::new(format!("--shards {shards}: give a power of two, at most {SHARDS_MAX}")));
    }
    let metas = args.metas.unwrap_or(METAS);
    let groups = args.groups.unwrap_or(GROUPS);
    if metas * groups > shards {
        return Err(Failure::new(format!(
            "--metas {metas} --groups {groups}: there are {shards} shards to be spread over {} groups; give no more \
             groups than shards",
            metas * groups
        )));
    }
    let targets = args.targets.unwrap_or(TARGETS);
    Ok(ClusterFile {
        mgmtd: Vec::new(),
        key_file: place.dir.join("cluster.key"),
        dir: place.dir.clone(),
        mount_point,
        targets,
        shards,
        metas,
        groups,
        // A server without a target would have nothing to serve.
        servers: args.servers.unwrap_or(SERVERS).min(targets),
        formatted: false,
        ports: BTreeMap::new(),
        http: BTreeMap::new(),
        moved_from: None,
    })
}

/// Directories, ports, configuration files, `cluster.toml`.
fn prepare(place: &Place, cluster: &mut ClusterFile, services: &[ServicePlan]) -> Outcome {
    let dir = &place.dir;
    if let Some(old) = &cluster.moved_from {
        eprintln!("{} was moved to {}: configuration files are written anew", old.display(), dir.display());
    }
    for target in 1..=cluster.targets {
        let path = dir.join("targets").join(target.to_string());
        if !cluster.formatted {
            std::fs::create_dir_all(&path).map_err(|e| Failure::local(path.display(), e))?;
        }
    }
    let stopped = |service: &ServicePlan| process::living(&service.pid_file).is_none();
    let changed = plan::assign_ports(services, stopped, plan::DYING, cluster)?;
    for (old, new) in &changed {
        eprintln!(
            "127.0.0.1:{old} is taken by somebody else: it is {new} from now on, also in {}/etc; whoever names the old one \
             (mounts made by hand, scrapers) must name that",
            dir.display()
        );
    }
    cluster.mgmtd = plan::mgmtd_addresses(dir, &cluster.ports);
    plan::write_configs(dir, cluster, services, &changed, cluster.moved_from.is_some())?;
    cluster.write(dir)
}

fn keys(cluster: &ClusterFile) -> Outcome {
    let fail = |e: skep_net::KeyError| Failure::new(e.to_string());
    let cluster_key = &cluster.key_file;
    if !cluster_key.exists() && cluster.formatted {
        return Err(Failure::new(format!(
            "{}: the key of this cluster is missing, and its servers and mounts would refuse another one; put it back from \
             a backup",
            cluster_key.display()
        )));
    }
    if !cluster_key.exists() {
        let key = KeyFile::generate().map_err(|e| Failure::local("random source of the kernel", e))?;
        key.write(cluster_key).map_err(fail)?;
    }
    let client_key = cluster.dir.join("client.key");
    if !client_key.exists() {
        Keyring::from_file(cluster_key).map_err(fail)?.client_file().write(&client_key).map_err(fail)?;
    }
    Ok(())
}

fn bring_up(
    place: &Place,
    cluster: &mut ClusterFile,
    services: &[ServicePlan],
    no_mount: bool,
    started: &mut Vec<Living>,
) -> Outcome {
    let socket = ReadySocket::open(&place.dir.join("run"))?;
    // mgmtd first: the others register with it. Storage before metadata, whose first map of the
    // cluster then names all targets: the first files are striped as they should be.
    let mut running: Vec<Watched<'_>> = Vec::new();
    for stage in [&[Kind::Mgmtd][..], &[Kind::Storaged], &[Kind::Metad], &[Kind::Mount]] {
        let wanted = services.iter().filter(|service| stage.contains(&service.kind));
        let mut starting = Vec::new();
        for service in wanted.filter(|service| !no_mount || service.kind != Kind::Mount) {
            if let Some(process) = process::living(&service.pid_file)
                && is_in_place(service, cluster)?
            {
                running.push(Watched { service, process });
                continue;
            }
            let process = start(service, cluster, &socket.path)?;
            started.extend(process::hold(process.pid));
            starting.push(Watched { service, process });
        }
        socket.wait(starting, &mut running)?;
        if stage.contains(&Kind::Storaged) && !cluster.formatted {
            cluster.formatted = true;
            cluster.write(&place.dir)?;
        }
    }
    let mgmtd = running.iter().find(|daemon| daemon.service.kind == Kind::Mgmtd);
    match mgmtd.filter(|mgmtd| started.iter().any(|process| process.pid == mgmtd.process.pid)) {
        Some(mgmtd) => is_accepted(&place.dir, mgmtd),
        None => Ok(()),
    }
}

/// A management service on an older copy of its directory serves until the first daemon that knows better is heard, and
/// ends then: all is well only when they were.
fn is_accepted(dir: &Path, mgmtd: &Watched<'_>) -> Outcome {
    let began = Instant::now();
    while began.elapsed() < HEARD_LIMIT {
        if status::ask(dir, Period::secs(1)).is_ok_and(|status| all_heard(&status)) {
            break;
        }
        mgmtd.lives_until(Instant::now() + HEARD_PAUSE)?;
    }
    mgmtd.lives_until(Instant::now())
}

/// Were all daemons that count as online heard since mgmtd began? It only believes them to be until then.
fn all_heard(status: &StatusReply) -> bool {
    let online = |kind, is| kind != ServiceKind::Mgmtd && is == Reachability::Online;
    let mut expected = status.nodes.iter().filter(|node| online(node.node.service, node.node.reachability));
    expected.all(|node| node.silent_ms.is_some())
}

/// A daemon that was just being killed, or that ended right after it was ready, was taken for a living one: looked at
/// once more, before anybody is told that all is well.
fn all_live(services: &[ServicePlan], no_mount: bool) -> Outcome {
    let wanted = services.iter().filter(|service| !no_mount || service.kind != Kind::Mount);
    let mut dead = wanted.filter(|service| process::living(&service.pid_file).is_none());
    match dead.next() {
        None => Ok(()),
        Some(service) => Err(ready::ended(service)),
    }
}

/// A mount may live and yet not be where it is wanted: unmounted by hand, or somewhere else.
fn is_in_place(service: &ServicePlan, cluster: &ClusterFile) -> Outcome<bool> {
    if service.kind != Kind::Mount || mount_point::look(cluster)? == mount_point::PointState::Own {
        return Ok(true);
    }
    down::stop(process::living(&service.pid_file).into_iter().collect(), down::STOP_LIMIT);
    Ok(false)
}

fn start(service: &ServicePlan, cluster: &ClusterFile, ready: &Path) -> Outcome<Living> {
    let fail = |what: &dyn std::fmt::Display, e: std::io::Error| Failure::local(what, e);
    let program = std::env::current_exe().map_err(|e| fail(&"the skep program", e))?;
    let log = OpenOptions::new().create(true).append(true).open(&service.log);
    let log = log.map_err(|e| fail(&service.log.display(), e))?;
    let errors = log.try_clone().map_err(|e| fail(&service.log.display(), e))?;
    let mut command = Command::new(&program);
    command.arg(service.kind.command()).arg("--config").arg(&service.config);
    match service.kind {
        Kind::Storaged if !cluster.formatted => {
            command.arg("--init");
        }
        Kind::Mount => {
            mount_point::prepare(cluster)?;
            let addresses: Vec<_> = cluster.mgmtd.iter().map(ToString::to_string).collect();
            let spec = format!("{}:/", addresses.join(","));
            command.arg("--set").arg(mount_point_set(&cluster.mount_point));
            command.arg("--foreground").arg(spec).arg(&cluster.mount_point);
        }
        _ => {}
    }
    command.env(READY_SOCKET_ENV, ready).current_dir("/");
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let child = command.spawn().map_err(|e| fail(&program.display(), e))?;
    process::note(&service.pid_file, child.id())?;
    process::hold(child.id())
        .ok_or_else(|| Failure::new(format!("{}: no such process any more", service.name)))
}

/// The configuration file keeps the mount point of the first `skep up`; another one wins.
fn mount_point_set(point: &Path) -> String {
    format!("mount_point={}", point.display())
}

fn tell(dir: &Path, cluster: &ClusterFile, no_mount: bool, began: Instant, out: &mut dyn Write) -> Outcome {
    let program = std::env::current_exe().unwrap_or_else(|_| "skep".into());
    let (program, dir, point) = (program.display(), dir.display(), cluster.mount_point.display());
    let (targets, metas, servers, took) = (cluster.targets, cluster.metas, cluster.servers, began.elapsed());
    let groups = match cluster.groups {
        1 => String::new(),
        groups => format!(" of {groups} groups"),
    };
    writeln!(
        out,
        "cluster in {dir}: 1 mgmtd, {metas} metad{groups}, {targets} targets in {servers} storaged ({took:.1?})"
    )?;
    if !no_mount {
        writeln!(out, "mounted at {point}")?;
    }
    writeln!(out, "\ntry next:")?;
    writeln!(out, "  export SKEP_CLUSTER={dir}/{FILE}")?;
    writeln!(out, "  {program} status --dir {dir}")?;
    writeln!(out, "  {program} node list; {program} df; {program} health")?;
    if !no_mount {
        writeln!(out, "  echo hello > {point}/hello; {program} entry info {point}/hello")?;
    }
    Ok(writeln!(out, "  {program} down --dir {dir}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a daemon that ended after it was looked at is named instead of a success.
    #[test]
    fn one_that_ended_meanwhile_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        let services = plan::services(dir.path(), 1, 1);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        services.iter().for_each(|service| process::note(&service.pid_file, child.id()).unwrap());
        all_live(&services, false).unwrap();
        let mut dead = Command::new("true").spawn().unwrap();
        process::note(&services[1].pid_file, dead.id()).unwrap();
        dead.wait().unwrap();
        let said = all_live(&services, false).unwrap_err().to_string();
        assert!(said.contains("metad-1 ended"), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Goal: a daemon that mgmtd only believes to be online is waited for; one that is away, and mgmtd itself, are not.
    #[test]
    fn who_was_heard() {
        let mut status = skep_base::namespace::samples::status();
        assert!(all_heard(&status));
        status.nodes[1].silent_ms = None;
        assert!(!all_heard(&status));
        status.nodes[1].node.reachability = Reachability::Offline;
        assert!(all_heard(&status));
    }
}
