//! Measurements at several daemons that begin at one moment.
//!
//! Every daemon prepares and waits. Once all are ready, their clocks are compared with this machine's, and each is told
//! the same moment by its own clock. What they report of their beginnings is told by ours again.

use super::shown::Window;
use super::{Served, clean};
use skep_base::access::Cluster;
use skep_base::daemon::Stop;
use skep_base::{Failure, Outcome};
use skep_bench::engine::now_ns;
use skep_instruments::client::{self, Asked, Clock, END_LIMIT};
use skep_instruments::question::{
    Findings, JobShown, JobState, Measurement, Order, StorageFound, StorageTest, TargetFound,
};
use std::time::{Duration, Instant};

/// Between two looks at running measurements.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Between two looks at measurements that are about to begin or to end.
const LOOK_SOON: Duration = Duration::from_millis(10);
/// At every such look, ended measurements are asked for, too.
const RENEW_AFTER: u64 = 10;
/// The moment lies so far ahead, and ...
const LEAD: Duration = Duration::from_millis(25);
/// ... so many times as long as the slowest answer of each daemon was on its way, one after the other.
const ROUND_TRIPS: u64 = 4;

/// A measurement at a daemon.
pub struct Member<'a> {
    /// The daemon and its targets.
    pub of: &'a Served,
    /// How it stands, as it was last heard.
    pub job: JobShown,
    asked: Asked,
    clock: Clock,
}

fn storage(job: &JobShown) -> Option<&StorageFound> {
    match &job.findings {
        Some(Findings::Storage(found)) => Some(found),
        _ => None,
    }
}

impl<'a> Member<'a> {
    fn start(cluster: &Cluster, of: &'a Served, order: Order) -> Outcome<Self> {
        let mut asked = Asked::new(cluster, &of.node);
        let job = asked.start(order)?;
        Ok(Self { of, job, asked, clock: Clock::default() })
    }

    /// The last measurement of targets that a daemon remembers.
    pub fn last(cluster: &Cluster, of: &'a Served) -> Outcome<Option<Self>> {
        let mut asked = Asked::new(cluster, &of.node);
        let is_storage = |job: &JobShown| matches!(job.what, Measurement::Storage(_));
        let Some(job) = asked.jobs()?.into_iter().rfind(is_storage) else { return Ok(None) };
        let clock = asked.clock()?;
        Ok(Some(Self { of, job, asked, clock }))
    }

    /// Does it run?
    pub fn is_running(&self) -> bool {
        self.job.state == JobState::Running
    }

    fn look(&mut self) -> Outcome {
        self.job = self.asked.status(self.job.job)?;
        Ok(())
    }

    /// What was found of each of its targets.
    pub fn found(&self) -> &[TargetFound] {
        storage(&self.job).map_or(&[], |found| &found.targets)
    }

    /// When a target was at work, by our clock.
    pub fn window(&self, found: &TargetFound) -> Option<Window> {
        let began = self.clock.here(storage(&self.job)?.began_ns?);
        let took = (found.flow.seconds * 1e9) as u64;
        Some(Window { from_ns: began, to_ns: began.saturating_add(took), error_ns: self.clock.error_ns })
    }
}

/// Begins everywhere, at one moment. All or none: half a measurement compares nothing.
pub fn begin<'a>(
    cluster: &Cluster,
    served: &'a [Served],
    test: &StorageTest,
    stop: Option<&Stop>,
    order: impl Fn(Measurement) -> Order,
) -> Outcome<Vec<Member<'a>>> {
    let mut members: Vec<Member<'a>> = Vec::new();
    let started = served.iter().try_for_each(|one| {
        let targets = one.targets.iter().map(|target| target.target.0).collect();
        let what = Measurement::Storage(StorageTest { targets, held: true, ..test.clone() });
        members.push(Member::start(cluster, one, order(what))?);
        Ok(())
    });
    if let Err(failure) = started.and_then(|()| release(&mut members, stop)) {
        let sets = std::slice::from_ref(&test.set);
        // One that does not answer keeps the others' files no longer.
        let ended = end(&mut members);
        let cleaned = clean(cluster, &served[..members.len()], sets, super::CLEANUP_LIMIT);
        return Err(match ended.and(cleaned) {
            Ok(_) => failure,
            Err(more) if more == failure => failure,
            // Why it did not begin is said as well.
            Err(more) => Failure::new(format!("{failure}; {more}")),
        });
    }
    Ok(members)
}

/// Waits until all are ready, then tells them the moment. Told to stop, it tells nothing.
fn release(members: &mut [Member<'_>], stop: Option<&Stop>) -> Outcome {
    let waits = |one: &Member<'_>| one.is_running() && !storage(&one.job).is_some_and(|found| found.ready);
    while members.iter().any(waits) {
        match stop {
            Some(stop) if stop.wait(LOOK_SOON) => return Ok(()),
            Some(_) => {}
            None => std::thread::sleep(LOOK_SOON),
        }
        // Those that are ready are asked, too: whoever is not asked for a while gives up.
        members.iter_mut().filter(|one| one.is_running()).try_for_each(Member::look)?;
    }
    let mut ready: Vec<&mut Member<'_>> = members.iter_mut().filter(|one| one.is_running()).collect();
    let mut lead = LEAD.as_nanos() as u64;
    for one in &mut ready {
        one.clock = one.asked.clock()?;
        lead += 2 * ROUND_TRIPS * one.clock.error_ns;
    }
    let at = now_ns().saturating_add(lead);
    for one in ready {
        one.job = one.asked.go(one.job.job, one.clock.there(at))?;
    }
    Ok(())
}

/// Stops them and waits until they have ended. One that does not answer keeps no other from being stopped, nor from
/// being waited for.
pub fn end(members: &mut [Member<'_>]) -> Outcome {
    let running = |one: &Member<'_>| one.is_running().then(|| one.of.node.alias.clone());
    let stop = |one: &mut Member<'_>| {
        one.job = one.asked.stop(one.job.job)?;
        Ok(())
    };
    until_ended(members, END_LIMIT, running, stop, Member::look)
}

/// Tells all that run (`running` tells the name of one) to stop, then looks until none does any more, for so long at
/// most. Who fails to answer is asked no more, and told at the end.
fn until_ended<T>(
    all: &mut [T],
    limit: Duration,
    running: impl Fn(&T) -> Option<String>,
    stop: impl Fn(&mut T) -> Outcome,
    look: impl Fn(&mut T) -> Outcome,
) -> Outcome {
    let until = Instant::now() + limit;
    let mut failed = None;
    let mut left: Vec<&mut T> = all.iter_mut().filter(|one| running(one).is_some()).collect();
    let mut each = |left: &mut Vec<&mut T>, ask: &dyn Fn(&mut T) -> Outcome| {
        left.retain_mut(|one| {
            let asked = ask(one);
            let goes_on = asked.is_ok() && running(one).is_some();
            failed = failed.take().or(asked.err());
            goes_on
        });
    };
    each(&mut left, &stop);
    while !left.is_empty() {
        if Instant::now() >= until {
            let late: Vec<String> = left.iter().filter_map(|one| running(one)).collect();
            return Err(Failure::new(format!(
                "{}: was told to stop measuring {} s ago and has not ended: its disk hangs or is far behind (`dmesg` \
                 there tells); when `skep bench storage status --node {0}` says that it has ended, remove its files by \
                 `skep bench storage cleanup --node {0}`",
                late.join(","),
                limit.as_secs()
            )));
        }
        std::thread::sleep(LOOK_SOON);
        each(&mut left, &look);
    }
    failed.map_or(Ok(()), Err)
}

/// Waits for all; told to stop, the measurements are stopped, and `false` comes back.
pub fn wait(members: &mut [Member<'_>], stop: &Stop, progress: bool) -> Outcome<bool> {
    for look in 1_u64.. {
        // Those that have ended are asked now and then, too: their files are still wanted.
        let asked = |one: &&mut Member<'_>| one.is_running() || look.is_multiple_of(RENEW_AFTER);
        if let Err(failure) = members.iter_mut().filter(asked).try_for_each(Member::look) {
            // The others would go on, and their daemons refuse whatever is measured next. Why it ends is told, not what
            // becomes of those.
            let _ = end(members);
            return Err(failure);
        }
        if progress {
            super::show_progress(members);
        }
        if !members.iter().any(Member::is_running) {
            break;
        }
        if stop.wait(LOOK_EVERY) {
            end(members)?;
            return Ok(false);
        }
    }
    match members.iter().any(|one| one.job.state == JobState::Stopped) {
        true => Err(Failure::new(format!(
            "the measurement was stopped: by `skep bench storage stop`, or because this command was not heard of for \
             {} s",
            client::LEASE.as_secs()
        ))),
        false => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who ends is waited for, who does not end is given up in time and named, with what to do; who fails to answer
    /// is told when the others have ended, whether it failed when it was told to stop or later.
    #[test]
    fn ends_are_bounded() {
        let stop = |_: &mut (&str, u32)| Ok(());
        // A name, and the looks that it still runs for.
        let running = |(name, looks): &(&str, u32)| (*looks > 0).then(|| (*name).to_owned());
        let ends = |(_, looks): &mut (&str, u32)| {
            *looks -= 1;
            Ok(())
        };
        let long = Duration::from_secs(600);
        until_ended(&mut [("a", 0), ("b", 2)], long, running, stop, ends).unwrap();
        let hangs = |one: &mut (&str, u32)| if one.0 == "quick" { ends(one) } else { Ok(()) };
        let mut members = [("quick", 1), ("storaged-2", 1), ("storaged-4", 1)];
        let said = until_ended(&mut members, LOOK_SOON * 5, running, stop, hangs).unwrap_err().to_string();
        assert!(said.starts_with("storaged-2,storaged-4: ") && !said.contains("quick"), "{said}");
        assert!(said.contains("cleanup --node storaged-2,storaged-4`"), "{said}");
        let gone =
            |one: &mut (&str, u32)| if one.0 == "dead" { Err(Failure::new("gone")) } else { ends(one) };
        let mut at_once = [("dead", 1), ("a", 3), ("b", 2)];
        assert_eq!(until_ended(&mut at_once, long, running, gone, ends), Err(Failure::new("gone")));
        assert_eq!(at_once, [("dead", 1), ("a", 0), ("b", 0)]);
        let mut later = [("a", 3), ("dead", 1), ("b", 2)];
        assert_eq!(until_ended(&mut later, long, running, stop, gone), Err(Failure::new("gone")));
        assert_eq!(later, [("a", 0), ("dead", 1), ("b", 0)]);
    }
}
