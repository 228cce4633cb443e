//! `skep down`: unmounts and stops everything, in an order that leaves nothing to repair.

use super::mount_point::{self, PointState};
use super::place::Place;
use super::plan::{self, Kind, ServicePlan};
use super::process::{self, Living};
use crate::admin::Outcome;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// A service that takes longer to stop is killed: what it acknowledged survives that.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Does it.
pub fn run(dir: &Path) -> Outcome {
    let (place, cluster) = Place::open(dir)?;
    let services = plan::services(&place.dir, cluster.servers);
    if mount_point::look(&cluster.mount_point)? == PointState::Skep {
        mount_point::release(&cluster.mount_point)?;
    }
    let mut count = 0;
    // Those that depend on others first.
    for kind in [Kind::Mount, Kind::Metad, Kind::Storaged, Kind::Mgmtd] {
        let of_kind: Vec<&ServicePlan> = services.iter().filter(|service| service.kind == kind).collect();
        let living: Vec<Living> =
            of_kind.iter().filter_map(|service| process::living(&service.pid_file)).collect();
        count += living.len();
        stop(living);
        for service in of_kind {
            // A leftover note finds nobody: harmless.
            let _ = std::fs::remove_file(&service.pid_file);
        }
    }
    println!("stopped {count} services of {}; its files stay", place.dir.display());
    Ok(())
}

/// Asks all to end, waits, kills those that do not.
pub fn stop(processes: Vec<Living>) {
    let deadline = Instant::now() + STOP_LIMIT;
    for process in &processes {
        process.signal(Signal::TERM);
    }
    for process in &processes {
        if !process.wait(deadline) {
            eprintln!("process {} does not end within {} s: killed", process.pid, STOP_LIMIT.as_secs());
            process.signal(Signal::KILL);
            process.wait(Instant::now() + STOP_LIMIT);
        }
    }
}
