//! The processor time that the mount itself gets while one process writes and reads through it.

use super::super::{Run, commands};
use super::client::{TRANSFER, job};
use super::{Place, note, run_job};
use skep_base::{Failure, Outcome};
use skep_bench::job::format_size;
use skep_instruments::facts::{group, mount_process};
use skep_survey::ids::{MOUNT_FREE, MOUNT_SHARE};
use skep_survey::model::{MemberResult, SideBySide};
use std::time::Instant;

/// What the kernel says of a process so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Spent {
    /// Nanoseconds that its threads ran.
    ran: u64,
    /// ... and were ready, but did not.
    waited: u64,
    /// Microseconds that its control group was held back.
    held: u64,
}

fn look(pid: u32) -> Option<Spent> {
    let mut spent = Spent::default();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // A thread that has ended meanwhile took its figures along.
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let mut words = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        spent.ran += words.next().unwrap_or(0);
        spent.waited += words.next().unwrap_or(0);
    }
    spent.held = group::throttling_of(&pid.to_string()).map_or(0, |(_, us)| us);
    Some(spent)
}

/// Share of the time it was ready that it ran, and share of the time on the clock that it was not held back.
fn shares(before: Spent, after: Spent, seconds: f64) -> Option<(f64, f64)> {
    let ran = after.ran.saturating_sub(before.ran) as f64;
    let waited = after.waited.saturating_sub(before.waited) as f64;
    let held = after.held.saturating_sub(before.held) as f64 / 1e6;
    (ran > 0.0 && seconds > 0.0).then(|| (ran / (ran + waited), (1.0 - held / seconds).clamp(0.0, 1.0)))
}

/// Both, in rounds. Nothing where the mount's process cannot be looked at.
pub fn measure(run: &mut Run<'_>, place: &Place) -> Outcome<Vec<SideBySide>> {
    if run.hosts.hosts.len() > 1 {
        return Ok(Vec::new());
    }
    let unseen =
        || Failure::new("the mount's process cannot be looked at (of another user, or on another machine)");
    let pid = mount_process(&place.mount).ok_or_else(unseen)?;
    let (mut share, mut free) = (Vec::new(), Vec::new());
    let job = job(place, TRANSFER, run.preset.process_size, 1);
    for _ in 0..run.preset.rounds {
        let (before, began) = (look(pid).ok_or_else(unseen)?, Instant::now());
        run_job(&run.hosts, &job)?;
        let after = look(pid).ok_or_else(unseen)?;
        let Some(round) = shares(before, after, began.elapsed().as_secs_f64()) else { continue };
        share.push(round.0);
        free.push(round.1);
    }
    if share.is_empty() {
        return Err(Failure::new("the kernel does not tell when threads run (schedstat)"));
    }
    let size = format_size(run.preset.process_size);
    let line = format!("skep bench io {} --block {size} --transfer {}", place.shown(), format_size(TRANSFER));
    let command = note(run, line);
    let side = |id: &str, title: &str, unit: &str, samples| SideBySide {
        id: id.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        more_is_better: true,
        members: vec![MemberResult {
            name: format!("mount {}", commands::path(&place.mount)),
            samples,
            outlier: None,
        }],
        command: command.clone(),
    };
    Ok(vec![
        side(
            MOUNT_SHARE,
            "Share of the time in which threads of the mount were ready that they ran",
            "of a processor",
            share,
        ),
        side(MOUNT_FREE, "Time in which its control group did not hold the mount back", "of the time", free),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: waiting for a processor and being held back are told apart; a process that did nothing tells nothing.
    #[test]
    fn shares_of_a_process() {
        let before = Spent { ran: 100, waited: 50, held: 1_000 };
        let after = Spent { ran: 400, waited: 150, held: 801_000 };
        let (share, free) = shares(before, after, 1.0).unwrap();
        assert!((share - 0.75).abs() < 1e-9 && (free - 0.2).abs() < 1e-9, "{share} {free}");
        assert_eq!(shares(before, before, 1.0), None);
        let own = look(std::process::id()).unwrap();
        assert!(own.held < u64::MAX);
        assert!(look(u32::MAX).is_none());
    }
}
