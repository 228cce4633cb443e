//! Kills and stops server daemons while a program runs.

use rustix::process::Signal;
use skep_rig::Cluster;
use std::process::Child;
use std::time::{Duration, Instant};

/// Between two blows the program gets so long to work.
const BETWEEN: Duration = Duration::from_secs(3);
/// A daemon stays away for so long: longer than anything that counts in seconds tolerates.
const AWAY: Duration = Duration::from_secs(3);
/// A program that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// What happens to a daemon.
#[derive(Clone, Copy)]
enum Blow {
    /// kill -9, and a new life after a while.
    Kill,
    /// SIGSTOP: it is silent for a while, as with a slow disk, and its connections stay.
    Stop,
}

/// Every kind of daemon, both ways.
const BLOWS: [(&str, Blow); 6] = [
    ("storaged", Blow::Kill),
    ("metad", Blow::Stop),
    ("metad", Blow::Kill),
    ("storaged", Blow::Stop),
    ("mgmtd", Blow::Kill),
    ("mgmtd", Blow::Stop),
];

/// Kills and stops daemons by turns, until `child` has ended. Gives the number of blows.
pub fn until_done(cluster: &Cluster, child: &mut Child) -> Result<u32, String> {
    let begun = Instant::now();
    let mut blows = 0;
    for (service, blow) in BLOWS.into_iter().cycle() {
        if ended_within(child, BETWEEN)? {
            break;
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(format!("the program still runs after {} s", PATIENCE.as_secs()));
        }
        let running = cluster.of(service);
        // Each of several servers in turn.
        let turn = blows as usize / BLOWS.len() % running.len().max(1);
        let daemon = running.get(turn).ok_or_else(|| format!("no {service} runs"))?;
        match blow {
            Blow::Kill => daemon.kill()?,
            Blow::Stop => daemon.signal(Signal::STOP)?,
        }
        blows += 1;
        let over = ended_within(child, AWAY);
        match blow {
            Blow::Kill => cluster.up()?,
            Blow::Stop => daemon.signal(Signal::CONT)?,
        }
        if over? {
            break;
        }
    }
    Ok(blows)
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
