//! One client: one process, over transfer sizes; and where there are several hosts of clients, each by itself.

use super::super::facts::client_name;
use super::super::rounds::{may_lag, side_by_side};
use super::super::{Run, commands};
use super::mount;
use super::{Figure, Found, Load, Place, Shown, note, of_parts, run_job};
use crate::bench::HostsArgs;
use skep_base::{Failure, Outcome};
use skep_bench::job::{IoJob, Job, Work, format_size};
use skep_survey::ids::{CLIENT, EACH, READ, WRITE};
use skep_survey::model::{Layer, LayerId, SideBySide};

/// Transfer sizes.
const TRANSFERS: [u64; 4] = [128 << 10, 1 << 20, 4 << 20, 16 << 20];
/// ... of hosts beside each other.
pub const TRANSFER: u64 = 1 << 20;
/// What is measured.
const WAYS: [(&str, &str); 2] = [(WRITE, "Write"), (READ, "Read")];

pub fn job(place: &Place, transfer: u64, block: u64, repeats: u32) -> Job {
    let io = IoJob { transfer, block, invalidate: true, ..IoJob::new(&place.path()) };
    let mut job = Job::new(Work::Io(io));
    job.repetitions = repeats;
    job
}

/// The layer: what of it can be measured.
pub fn measure(run: &mut Run<'_>, place: &Place) -> Outcome<Layer> {
    let (size, repeats) = (run.preset.process_size, run.preset.repeats);
    let parts = vec![
        ("one process over transfer sizes", over_transfers(run, place)),
        ("processor time of the mount", mount::measure(run, place).map(|sides| (Vec::new(), sides))),
        ("each host of clients by itself", hosts_side_by_side(run, place).map(|sides| (Vec::new(), sides))),
    ];
    let beside = match run.hosts.hosts.len() {
        0 | 1 => "",
        _ => " Then each host of clients by itself, one after the other, in rounds.",
    };
    let about = format!(
        "One process writes a file of {} and reads it, {repeats} times for each transfer size; fsync and close are \
         inside the time, and pages of the file are dropped before it is read. Meanwhile the processor time that the mount \
         of this host got was looked at.{beside}",
        format_size(size)
    );
    of_parts(run, LayerId::Client, about, parts)
}

fn over_transfers(run: &mut Run<'_>, place: &Place) -> Outcome<Found> {
    let (size, repeats) = (run.preset.process_size, run.preset.repeats);
    let hosts = run.hosts.clone();
    let load = Load {
        hosts: &hosts,
        places: TRANSFERS.to_vec(),
        axis: "transfer size (bytes)",
        figure: Figure::Bytes,
        shown: WAYS
            .map(|(phase, title)| Shown {
                phase,
                id: format!("{CLIENT}.{phase}"),
                title: format!("{title}, one process"),
            })
            .into(),
    };
    let measured = load.run(run, |transfer| job(place, transfer, size, repeats))?;
    let line = |transfer: &str, hosts: &str| {
        format!(
            "skep bench io {} --block {} --transfer {transfer} --repetitions {repeats}{hosts}",
            place.shown(),
            format_size(size)
        )
    };
    let hosts = run.lines.hosts("1");
    let command = commands::each("size", &commands::sizes(&measured.places), |size| line(size, &hosts));
    Ok((measured.curves(&load, &note(run, command)), Vec::new()))
}

/// Every host of clients by itself: whether one of them is slow shows before they wait for each other.
fn hosts_side_by_side(run: &mut Run<'_>, place: &Place) -> Outcome<Vec<SideBySide>> {
    let hosts = run.hosts.clone();
    if hosts.hosts.len() < 2 {
        return Ok(Vec::new());
    }
    let names: Vec<String> = hosts.hosts.iter().map(|host| client_name(host)).collect();
    let size = run.preset.process_size;
    let measure = |at: usize| {
        let alone = HostsArgs { hosts: vec![hosts.hosts[at].clone()], ..hosts.clone() };
        let result = run_job(&alone, &job(place, TRANSFER, size, 1))?;
        let rate = |(phase, _): (&str, &str)| {
            let step = result.steps.iter().find(|step| step.phase == phase);
            let rate = step.map(|step| Figure::Bytes.of(step));
            rate.ok_or_else(|| Failure::new(format!("the load generator told nothing about {phase}")))
        };
        WAYS.into_iter().map(rate).collect()
    };
    let doubtful = |_, members: &[_]| may_lag(members, true);
    let (ways, failed) = side_by_side(&names, run.preset.rounds, WAYS.len(), measure, doubtful);
    run.missing(LayerId::Client, failed);
    let line = |host: &str| {
        format!(
            "skep bench io {} --block {} --transfer {}{host}",
            place.shown(),
            format_size(size),
            format_size(TRANSFER)
        )
    };
    let one = run.lines.one_host("host");
    let command = note(run, commands::each("host", &hosts.hosts, |_| line(&one)));
    let side = |((phase, title), members): ((&str, &str), Vec<_>)| SideBySide {
        id: format!("{CLIENT}.{phase}{EACH}"),
        title: format!("{title}, one process on each client host by itself"),
        unit: Figure::Bytes.unit().to_owned(),
        more_is_better: true,
        members,
        command: command.clone(),
    };
    Ok(WAYS.into_iter().zip(ways).map(side).filter(|side| !side.members.is_empty()).collect())
}
