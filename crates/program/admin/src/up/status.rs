//! `skep status`: processes, mount and what mgmtd says.

use super::mount_point::{self, PointState};
use super::plan::{self, Kind, ServicePlan};
use super::{last_words, process};
use serde::Serialize;
use skep_base::access::AccessArgs;
use skep_base::cluster_file::{ClusterFile, FILE, absolute};
use skep_base::control;
use skep_base::deadline::within;
use skep_base::output::{self, Format, human};
use skep_base::units::Period;
use skep_base::{Failure, Outcome};
use skep_types::Reachability;
use skep_wire::mgmt::StatusReply;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Everything there is to say.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpStatus {
    dir: String,
    /// All services run, the file system is mounted, and no server has been silent for so long that it counts as offline.
    up: bool,
    services: Vec<ServiceStatus>,
    mount: MountStatus,
    /// Absent when mgmtd does not answer.
    cluster: Option<ClusterSummary>,
    /// Why it is absent.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ServiceStatus {
    name: String,
    running: bool,
    pid: Option<u32>,
    log: String,
    /// What it said last, when it does not run because of an error.
    error: Option<String>,
    /// Where it shows its metrics.
    http: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct MountStatus {
    path: String,
    /// `mounted`, `dead` (its process is gone), `not-mounted` or `foreign`.
    state: &'static str,
    /// Its process does not answer.
    silent: bool,
    /// Servers that it waits for, and for how long.
    waits: Vec<String>,
}

/// The cluster in numbers.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterSummary {
    id: String,
    nodes: usize,
    nodes_online: usize,
    /// Not heard for `node_offline` of mgmtd.
    nodes_offline: usize,
    targets: usize,
    /// Served by a server that is heard.
    targets_online: usize,
    shards: usize,
    sessions: usize,
    bytes: u64,
    bytes_free: u64,
}

impl ClusterSummary {
    /// As mgmtd knows it.
    pub fn of(status: &StatusReply) -> Self {
        let space = crate::pool::space(status.targets.iter());
        let count = |state| status.nodes.iter().filter(|node| node.node.reachability == state).count();
        let names = skep_base::namespace::Names::of(status);
        let served =
            |target: &&skep_wire::mgmt::TargetEntry| names.reach(target) == Some(Reachability::Online);
        Self {
            id: status.cluster.to_string(),
            nodes: status.nodes.len(),
            nodes_online: count(Reachability::Online),
            nodes_offline: count(Reachability::Offline),
            targets: status.targets.len(),
            targets_online: status.targets.iter().filter(served).count(),
            shards: status.shards.len(),
            sessions: status.sessions.len(),
            bytes: space.bytes,
            bytes_free: space.bytes_free,
        }
    }
}

impl UpStatus {
    fn text(&self) -> String {
        let failed = self.services.iter().any(|service| service.error.is_some());
        let is_complete =
            self.services.iter().all(|service| service.running) && self.mount.state == "mounted";
        let next = match (self.up, failed) {
            (true, _) => String::new(),
            (false, _) if is_complete => {
                let whom = match self.cluster.as_ref().map_or(0, |cluster| cluster.nodes_offline) {
                    0 => "mgmtd did not tell".to_owned(),
                    1 => "1 server does not answer".to_owned(),
                    silent => format!("{silent} servers do not answer"),
                };
                format!("; all of it runs, and {whom}: skep health --cluster {}/{FILE}", self.dir)
            }
            (false, true) => format!("; put right what is wrong, then skep up --dir {}", self.dir),
            (false, false) => format!("; skep up --dir {} starts what is missing", self.dir),
        };
        let mut text = format!("{}: {}{next}\n", self.dir, if self.up { "up" } else { "not up" });
        // Writing to a String cannot fail.
        for service in &self.services {
            let state = match service.pid {
                Some(pid) => format!("running, process {pid}"),
                None => "not running".to_owned(),
            };
            let http = service.http.as_ref().map(|http| format!("   {http}/metrics")).unwrap_or_default();
            let _ = writeln!(text, "  {:<12} {state:<24} {}{http}", service.name, service.log);
            if let Some(error) = &service.error {
                let _ = writeln!(text, "  {:<12} {error}", "");
            }
        }
        let _ = writeln!(text, "  {:<12} {} at {}", "mount point", self.mount.state, self.mount.path);
        if self.mount.silent {
            let _ = writeln!(text, "  {:<12} its process does not answer: see its log", "");
        }
        for wait in &self.mount.waits {
            let _ = writeln!(text, "  {:<12} waits for {wait}", "");
        }
        match (&self.cluster, &self.error) {
            (Some(cluster), _) => {
                let (nodes, online) = (cluster.nodes, cluster.nodes_online);
                let _ = writeln!(
                    text,
                    "  {:<12} {online} of {nodes} nodes online, {} of {} targets, {} shards, {} sessions, {} of {} free",
                    "cluster",
                    cluster.targets_online,
                    cluster.targets,
                    cluster.shards,
                    cluster.sessions,
                    human(cluster.bytes_free),
                    human(cluster.bytes)
                );
            }
            (None, error) => {
                let error = error.as_deref().unwrap_or("not asked");
                let _ = writeln!(text, "  {:<12} {error}", "cluster");
            }
        }
        text
    }
}

fn service_status(service: &ServicePlan, http: &BTreeMap<String, u16>) -> ServiceStatus {
    let pid = process::living(&service.pid_file).map(|living| living.pid);
    ServiceStatus {
        name: service.name.clone(),
        running: pid.is_some(),
        pid,
        log: service.log.display().to_string(),
        error: if pid.is_some() { None } else { last_words::of(&service.log) },
        http: http.get(&service.name).map(|port| format!("http://{}:{port}", Ipv4Addr::LOCALHOST)),
    }
}

fn mount_status(
    dir: &Path,
    cluster: &ClusterFile,
    process: Option<u32>,
    limit: Duration,
) -> Outcome<MountStatus> {
    let state = match mount_point::look(cluster)? {
        PointState::Own if process.is_some() => "mounted",
        PointState::Own => "dead",
        PointState::Free => "not-mounted",
        PointState::Foreign(_) => "foreign",
    };
    let socket = process.map(|pid| control::socket(&dir.join("run"), pid));
    let answer = socket.map(|socket| within(limit, move || control::ask(&socket)));
    let silent = matches!(answer, Some(None));
    let control::State { waits, .. } = answer.flatten().flatten().unwrap_or_default();
    let waits = waits.iter().map(ToString::to_string).collect();
    Ok(MountStatus { path: cluster.mount_point.display().to_string(), state, silent, waits })
}

/// What mgmtd of the cluster in `dir` says.
pub fn ask(dir: &Path, timeout: Period) -> Outcome<StatusReply> {
    let access =
        AccessArgs { mgmtd: Vec::new(), key: None, cluster: Some(dir.join(FILE)), insecure: false, timeout };
    access.connect(None)?.status()
}

/// Why mgmtd is not asked. What ended by an error would end again.
fn not_asked(services: &[ServiceStatus]) -> String {
    let is_failed = |one: &&ServiceStatus| one.name == Kind::Mgmtd.command() && one.error.is_some();
    match services.iter().find(is_failed) {
        Some(mgmtd) => format!("mgmtd has ended; its log ({}) says why", mgmtd.log),
        None => "mgmtd does not run; start it by skep up".to_owned(),
    }
}

/// Servers of the cluster in `dir` that do not run because of an error, with what they said last.
pub fn failed(dir: &Path) -> Vec<(String, String)> {
    let Ok(cluster) = ClusterFile::read(&dir.join(FILE)) else { return Vec::new() };
    let plans = plan::services(&cluster.dir, cluster.metas, cluster.servers);
    let servers = plans.iter().filter(|plan| plan.kind != Kind::Mount);
    let failed = |plan: &ServicePlan| {
        let status = service_status(plan, &cluster.http);
        Some((status.name, status.error?))
    };
    servers.filter_map(failed).collect()
}

/// Does it; exit code 0 when all of it runs and is heard, 1 otherwise.
pub fn run(dir: &Path, timeout: Period, format: Format, out: &mut dyn Write) -> Outcome<ExitCode> {
    let cluster = ClusterFile::read(&dir.join(FILE))?;
    let dir = absolute(dir)?;
    let plans = plan::services(&dir, cluster.metas, cluster.servers);
    let services: Vec<_> = plans.iter().map(|plan| service_status(plan, &cluster.http)).collect();
    let process = |kind| plans.iter().zip(&services).find(|(plan, _)| plan.kind == kind)?.1.pid;
    // At once: either may be silent.
    let (mount, answer) = std::thread::scope(|scope| {
        let (dir, cluster, pid) = (&dir, &cluster, process(Kind::Mount));
        let mount = scope.spawn(move || mount_status(dir, cluster, pid, timeout.duration()));
        let answer = match process(Kind::Mgmtd) {
            Some(_) => ask(dir, timeout),
            None => Err(Failure::new(not_asked(&services))),
        };
        let lost = || Err(Failure::new("the mount was not looked at (a bug: please report it)"));
        (mount.join().unwrap_or_else(|_| lost()), answer)
    });
    let mount = mount?;
    let (cluster, error) = match answer {
        Ok(status) => (Some(ClusterSummary::of(&status)), None),
        Err(failure) => (None, Some(failure.to_string())),
    };
    let is_heard = cluster.as_ref().is_some_and(|cluster| cluster.nodes_offline == 0);
    let up = services.iter().all(|service| service.running) && mount.state == "mounted" && is_heard;
    let status = UpStatus { dir: dir.display().to_string(), up, services, mount, cluster, error };
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &status).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        _ => output::documents(format, std::slice::from_ref(&status), UpStatus::text, out)?,
    }
    Ok(if up { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: released field names, and a text that says what does not run.
    #[test]
    fn shown() {
        let dir = Path::new("/nonexistent");
        let services = plan::services(dir, 1, 1);
        let http = BTreeMap::from([("mgmtd".to_owned(), 10_011)]);
        let services = services.iter().map(|plan| service_status(plan, &http)).collect();
        let mount = MountStatus { path: "/m".into(), state: "not-mounted", silent: false, waits: Vec::new() };
        let cluster = Some(ClusterSummary::of(&samples::status()));
        let status = UpStatus { dir: "/d".into(), up: false, services, mount, cluster, error: None };
        let text = status.text();
        for part in [
            "http://127.0.0.1:10011/metrics",
            "/d: not up; skep up --dir /d starts what is missing",
            "mgmtd        not running",
            "2 of 2 nodes online",
            "400 B of 1000 B free",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        let mut status = status;
        status.services[0].error = Some("TIME ERROR mgmtd: no".to_owned());
        let text = status.text();
        assert!(text.contains("/d: not up; put right") && text.contains(" TIME ERROR mgmtd: no\n"), "{text}");
        status.services.iter_mut().for_each(|service| (service.running, service.error) = (true, None));
        status.mount.state = "mounted";
        status.cluster.as_mut().unwrap().nodes_offline = 2;
        let text = status.text();
        assert!(text.starts_with(
            "/d: not up; all of it runs, and 2 servers do not answer: skep health --cluster /d/"
        ));
        (status.services[0].running, status.mount.state) = (false, "not-mounted");
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(
            (&json["services"][0]["running"], &json["cluster"]["targets"]),
            (&false.into(), &1.into())
        );
        assert_eq!(json["mount"]["state"], "not-mounted");
    }
}
