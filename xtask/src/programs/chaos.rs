//! Kills server daemons while a program runs.

use skep_rig::Cluster;
use std::process::Child;
use std::time::{Duration, Instant};

/// Between two kills the program gets so long to work.
const BETWEEN: Duration = Duration::from_secs(3);
/// A daemon stays away for so long.
const AWAY: Duration = Duration::from_millis(700);
/// A program that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// kill -9 of a storaged and of the metad, by turns, until `child` has ended. Gives the number of kills.
pub fn until_done(cluster: &Cluster, child: &mut Child) -> Result<u32, String> {
    let begun = Instant::now();
    let mut kills = 0;
    loop {
        if ended_within(child, BETWEEN)? {
            return Ok(kills);
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(format!("the program still runs after {} s", PATIENCE.as_secs()));
        }
        let service = if kills % 2 == 0 { "storaged" } else { "metad" };
        cluster.one(service)?.kill()?;
        kills += 1;
        let over = ended_within(child, AWAY)?;
        cluster.up()?;
        if over {
            return Ok(kills);
        }
    }
}

fn ended_within(child: &mut Child, limit: Duration) -> Result<bool, String> {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if child.try_wait().map_err(|e| e.to_string())?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(false)
}
