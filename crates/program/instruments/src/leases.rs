//! Files of measurements whose command must keep asking: one that was killed leaves nothing on targets.

use super::jobs::Jobs;
use super::question::Findings;
use super::service::{Host, uses};
use super::storage;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked for sets that nobody asks for any more.
const LOOK_EVERY: Duration = Duration::from_millis(500);

struct Lease {
    length: Duration,
    until: Instant,
}

#[derive(Default)]
struct Table {
    sets: BTreeMap<String, Lease>,
    watched: bool,
}

#[derive(Default)]
pub struct Leases(Mutex<Table>);

impl Leases {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set goes when it is not asked for during this time.
    pub fn hold(self: &Arc<Self>, set: &str, length: Duration, host: &Arc<Host>, jobs: &Jobs) {
        let mut table = self.table();
        table.sets.insert(set.to_owned(), Lease { length, until: Instant::now() + length });
        if table.watched {
            return;
        }
        let (leases, host, jobs) = (self.clone(), host.clone(), jobs.clone());
        let thread = std::thread::Builder::new().name("leases".to_owned());
        match thread.spawn(move || leases.watch(&host, &jobs)) {
            Ok(_) => table.watched = true,
            Err(e) => warning!("files of a measurement stay if its command is killed: no thread: {e}"),
        }
    }

    /// Somebody asks for the set.
    pub fn renew(&self, set: &str) {
        if let Some(lease) = self.table().sets.get_mut(set) {
            lease.until = Instant::now() + lease.length;
        }
    }

    /// Sets that nobody asks for any more and nothing uses; they are forgotten. None: there is nothing left to watch.
    fn lapsed(&self, jobs: &Jobs) -> Option<Vec<String>> {
        let now = Instant::now();
        let mut table = self.table();
        let over = |(set, lease): (&String, &Lease)| (lease.until < now).then(|| set.clone());
        let over: Vec<String> = table.sets.iter().filter_map(over).collect();
        let over: Vec<String> = over.into_iter().filter(|set| !jobs.runs(|what| uses(what, set))).collect();
        for set in &over {
            table.sets.remove(set);
        }
        if over.is_empty() && table.sets.is_empty() {
            table.watched = false;
            return None;
        }
        Some(over)
    }

    fn watch(&self, host: &Host, jobs: &Jobs) {
        while let Some(over) = self.lapsed(jobs) {
            for set in over {
                match storage::cleanup(&host.targets, &[], std::slice::from_ref(&set)) {
                    Ok(Findings::Cleanup { removed: 1.. }) => {
                        info!("removed the files of measurement {set}: nobody asks for them any more");
                    }
                    Ok(_) => {}
                    Err(e) => warning!("files of measurement {set} stay: {e}"),
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
