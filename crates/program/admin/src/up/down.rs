//! `skep down`: unmounts and stops everything, in an order that leaves nothing to repair.

use super::mount_point;
use super::place::Place;
use super::plan::{self, Kind, ServicePlan};
use super::process::{self, Living};
use rustix::process::Signal;
use skep_base::Outcome;
use skep_base::cluster_file::ClusterFile;
use skep_base::control;
use skep_base::mount_table;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// A service that takes longer to stop is killed: what it acknowledged survives that.
pub const STOP_LIMIT: Duration = Duration::from_secs(20);
/// A mount has what was written synced before it ends: an unmount waits for that up to 10 s.
const MOUNT_STOP_LIMIT: Duration = Duration::from_secs(15);
/// It waits for programs that are still in it; they get this long.
const PROGRAMS_LIMIT: Duration = Duration::from_secs(3);

pub fn run(dir: &Path, out: &mut dyn Write) -> Outcome {
    let (place, cluster) = Place::open(dir)?;
    let services = plan::services(&place.dir, cluster.metas, cluster.servers);
    // A mount may end by itself when it is unmounted.
    let count = services.iter().filter(|service| process::living(&service.pid_file).is_some()).count();
    let is_used = mount_point::release(&cluster)?;
    let mount_limit = if is_used { PROGRAMS_LIMIT } else { MOUNT_STOP_LIMIT };
    // Those that depend on others first.
    for kind in [Kind::Mount, Kind::Metad, Kind::Storaged, Kind::Mgmtd] {
        let of_kind: Vec<&ServicePlan> = services.iter().filter(|service| service.kind == kind).collect();
        let living: Vec<Living> =
            of_kind.iter().filter_map(|service| process::living(&service.pid_file)).collect();
        let is_mount = kind == Kind::Mount;
        if stop(living, if is_mount { mount_limit } else { STOP_LIMIT }) > 0 && is_mount {
            let point = cluster.mount_point.display();
            let why = if is_used { "programs use it still" } else { "it waits for a server" };
            eprintln!(
                "note: the mount was killed: {why}, or a mount name space of somebody's own has it (a container: grep {point} \
                 /proc/*/mountinfo). What was written last is lost where a server did not answer"
            );
        }
        for service in of_kind {
            process::forget(&service.pid_file);
        }
    }
    forget_mounts(&place.dir);
    tell_of_others(&cluster);
    Ok(writeln!(out, "stopped {count} services of {}; its files stay", place.dir.display())?)
}

/// Other mounts of the cluster are not ours to end, but whoever stops it should know of them.
fn tell_of_others(cluster: &ClusterFile) {
    for mount in mount_table::read().unwrap_or_default() {
        if mount.point != cluster.mount_point && mount_point::is_of(&mount, cluster) {
            let point = mount.point.display();
            eprintln!(
                "note: {point} is a mount of this cluster, too; programs in it wait: skep umount -l {point}"
            );
        }
    }
}

/// What killed mounts left behind about themselves.
fn forget_mounts(dir: &Path) {
    for entry in std::fs::read_dir(dir.join("run")).into_iter().flatten().flatten() {
        if control::pid_of(&entry.path(), control::NOTE).is_some() {
            // Stale notes harm nobody.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Asks all to end, waits, kills those that do not, and counts them.
pub fn stop(processes: Vec<Living>, limit: Duration) -> usize {
    let mut killed = 0;
    let deadline = Instant::now() + limit;
    for process in &processes {
        process.signal(Signal::TERM);
    }
    for process in &processes {
        if !process.wait(deadline) {
            eprintln!("process {} does not end within {} s: killed", process.pid, limit.as_secs());
            process.signal(Signal::KILL);
            process.wait(Instant::now() + STOP_LIMIT);
            killed += 1;
        }
    }
    killed
}
