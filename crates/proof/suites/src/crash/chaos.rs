//! Kills server daemons at random, and brings them back; evicts a mount.

use super::canary::Canary;
use super::team::Team;
use skep_model::Rng;
use skep_rig::{Cluster, PATIENCE, until};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Longest time between a daemon's return and the next kill.
const QUIET_MAX: u64 = 700;
/// Longest time that a daemon stays away, in milliseconds.
const AWAY_MAX: u64 = 2_000;
/// Length of a round without kills.
const UNDISTURBED: Duration = Duration::from_secs(5);
/// Of a hundred kills, so many take a second daemon with them.
const DOUBLE: u64 = 20;
/// In a round with evictions: of a hundred kills, before so many a session is ended.
const EVICTED: u64 = 60;
/// Services that are killed. Mounts have a phase of their own.
const SERVERS: [&str; 3] = ["mgmtd", "metad", "storaged"];

/// Counts what was killed.
pub struct Chaos {
    /// Daemons killed so far.
    pub kills: u32,
    evictions: u32,
    canary: Option<Canary>,
    /// By name.
    killed: BTreeMap<String, u32>,
}

impl Chaos {
    /// Nothing was killed yet. With a canary its damage follows the kills that it belongs to.
    pub fn new(canary: Option<Canary>) -> Self {
        Self { kills: 0, evictions: 0, canary, killed: BTreeMap::new() }
    }

    /// Kills `count` daemons, one after the other or two at once, and starts each again after a random
    /// time. The session of `evicted` is ended now and then. Ends early with the first process that reports a failure.
    pub fn round(
        &mut self,
        cluster: &Cluster,
        team: &mut Team,
        rng: &mut Rng,
        count: u32,
        evicted: Option<&Path>,
    ) -> Result<(), String> {
        let goal = self.kills + count;
        if count == 0 {
            return team.watch(UNDISTURBED);
        }
        while self.kills < goal {
            team.watch(Duration::from_millis(rng.below(QUIET_MAX)))?;
            if let Some(point) = evicted
                && rng.percent(EVICTED)
            {
                evict(cluster, point)?;
                self.evictions += 1;
                team.watch(Duration::from_millis(rng.below(100)))?;
            }
            self.kill_one(cluster, rng)?;
            if self.kills < goal && rng.percent(DOUBLE) {
                team.watch(Duration::from_millis(rng.below(100)))?;
                self.kill_one(cluster, rng)?;
            }
            team.watch(Duration::from_millis(rng.below(AWAY_MAX)))?;
            cluster.up()?;
        }
        Ok(())
    }

    fn kill_one(&mut self, cluster: &Cluster, rng: &mut Rng) -> Result<(), String> {
        // Services take turns by chance, so that the two storage servers do not get half of all kills.
        let service = rng.pick(&SERVERS);
        let running = cluster.of(service);
        let Some(victim) = running.get(rng.below(running.len() as u64) as usize) else {
            // Its only process was killed a moment ago.
            return Ok(());
        };
        victim.kill()?;
        self.kills += 1;
        *self.killed.entry(victim.name()).or_default() += 1;
        match self.canary {
            Some(canary) => canary.after_kill(cluster, victim),
            None => Ok(()),
        }
    }
}

/// Ends the session of a mount that is alive, and does not wait until it has the next one.
fn evict(cluster: &Cluster, point: &Path) -> Result<(), String> {
    let name = format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), point.display());
    // Its session of before may have ended a moment ago, and the next one not begun.
    until("a mount is evicted", PATIENCE, || cluster.admin(["session", "evict", &name]).map(drop))
}

impl fmt::Display for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.killed.iter().map(|(name, count)| format!("{count} {name}")).collect();
        write!(f, "{}; {} evictions", each.join(", "), self.evictions)
    }
}
