//! Machines, kernels, settings: what a reader must know to compare.

use super::Run;
use super::load::Place;
use crate::cli::output::human;
use crate::instruments::client::ask_all;
use crate::instruments::question::{Findings, Measurement, NodeFacts, TargetFacts};
use skep_survey::model::{Fact, Host, LayerId};
use skep_types::{ServiceKind, Uuid};
use skep_wire::mgmt::StatusReply;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A daemon tells its facts within this time.
const LIMIT: Duration = Duration::from_secs(30);
/// Load of a machine above this share of its processors disturbs a measurement.
const BUSY: f64 = 0.5;

/// The present, as RFC 3339 in UTC.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    rfc3339(seconds)
}

/// Seconds since 1970 as a date (the algorithm counts in eras of 400 years).
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

fn fact(name: impl Into<String>, value: impl Into<String>) -> Fact {
    Fact { name: name.into(), value: value.into() }
}

/// The machines of all daemons.
pub fn hosts(run: &mut Run<'_>) -> Vec<Host> {
    let nodes = &run.members.nodes;
    let questions: Vec<_> = nodes.iter().map(|node| (node, Measurement::Facts)).collect();
    let answers = ask_all(run.cluster, &questions, LIMIT);
    let mut by_machine: BTreeMap<Vec<u8>, Host> = BTreeMap::new();
    let mut remarks = Vec::new();
    let (mut media, mut absent, mut bound) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (node, answer) in nodes.iter().zip(answers) {
        let facts = match answer {
            Ok(Findings::Facts(facts)) => facts,
            Ok(_) => continue,
            Err(failure) => {
                absent.push((node.alias.clone(), failure.to_string()));
                continue;
            }
        };
        media.extend(facts.targets.iter().map(|target| (target.target, medium(target))));
        bound.push((node.service, node.machine, node.alias.clone(), facts.allowed.clone()));
        let machine = format!("{:?}", node.machine).into_bytes();
        let host = by_machine.entry(machine).or_insert_with(|| {
            if facts.load > BUSY * f64::from(facts.cores) {
                remarks.push(format!(
                    "{} was busy before the survey began: a load of {:.1} on {} processors",
                    facts.host, facts.load, facts.cores
                ));
            }
            Host { name: facts.host.clone(), roles: Vec::new(), facts: machine_facts(&facts) }
        });
        host.roles.push(node.alias.clone());
        host.facts.extend(daemon_facts(&node.alias, &facts));
    }
    remarks.extend(bindings(&bound));
    run.media = media;
    run.missing(LayerId::Processor, absent);
    remarks.into_iter().for_each(|text| run.remark(text));
    by_machine.into_values().collect()
}

/// Daemons of one service on one host that may run on different processors: where everybody gets little, the shares
/// alone do not tell.
fn bindings(all: &[(ServiceKind, Uuid, String, String)]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (service, machine, alias, allowed) in all {
        let mut likes = all.iter().filter(|one| (one.0, one.1) == (*service, *machine) && one.2 != *alias);
        // Only he who differs from all of several likes, as long as those are alike.
        let Some(first) = likes.next() else { continue };
        let many = likes.clone().count() > 0;
        if many && first.3 != *allowed && likes.all(|one| one.3 == first.3) {
            remarks.push(format!(
                "{alias} may run on processors {allowed} only, the others of its service here on {}",
                first.3
            ));
        }
    }
    remarks
}

fn machine_facts(facts: &NodeFacts) -> Vec<Fact> {
    let mut all = vec![
        fact("kernel", &facts.kernel),
        fact("processor", &facts.processor),
        fact("processors", facts.cores.to_string()),
        fact("NUMA zones", facts.numa_zones.to_string()),
        fact("memory", human(facts.memory_bytes)),
    ];
    for nic in &facts.nics {
        let speed = nic.megabits.map_or_else(|| "speed not told".to_owned(), |m| format!("{m} Mbit/s"));
        all.push(fact(
            format!("interface {}", nic.name),
            format!("{speed}, MTU {}, {}", nic.mtu, nic.driver),
        ));
    }
    all
}

fn daemon_facts(alias: &str, facts: &NodeFacts) -> Vec<Fact> {
    let mut all = vec![fact(format!("{alias}: version"), &facts.version)];
    if !facts.allowed.is_empty() {
        all.push(fact(format!("{alias}: may run on processors"), &facts.allowed));
    }
    if let Some(processors) = facts.group.processors {
        all.push(fact(format!("{alias}: control group allows"), format!("{processors:.2} processors")));
    }
    for target in &facts.targets {
        let kind = [medium(target), target.model.trim().to_owned()];
        let kind: Vec<String> = kind.into_iter().filter(|word| !word.is_empty()).collect();
        let kind = if kind.is_empty() { "medium not told".to_owned() } else { kind.join(" ") };
        all.push(fact(
            format!("{alias}: target {}", target.target),
            format!(
                "{} on {} ({kind}), {} [{}], {} of {} free",
                target.filesystem,
                target.device,
                target.path,
                target.options,
                human(target.bytes_free),
                human(target.bytes)
            ),
        ));
    }
    all
}

/// `hdd`, `ssd`, `nvme`, `tmpfs`; empty when nothing tells.
fn medium(target: &TargetFacts) -> String {
    let memory = ["tmpfs", "ramfs"].into_iter().find(|name| target.filesystem == *name);
    memory.map_or_else(|| target.medium.clone(), str::to_owned)
}

/// Settings of the file system.
pub fn settings(status: &StatusReply, place: Option<&Place>) -> Vec<Fact> {
    let mut all = vec![
        fact("metadata shards", status.shards.len().to_string()),
        fact("storage targets", status.targets.len().to_string()),
        fact("storage pools", status.pools.len().to_string()),
    ];
    if let Some(place) = place {
        all.push(fact("mount", place.mount.display().to_string()));
        all.push(fact("mount options", &place.options));
        all.push(fact("layout of new files", &place.layout));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the one daemon that is bound otherwise than its likes is told, several different bindings are not.
    #[test]
    fn bound_otherwise() {
        let of = |allowed: [&str; 3]| {
            let all = allowed.iter().enumerate();
            let one = |(at, allowed): (usize, &&str)| {
                (ServiceKind::Storaged, Uuid([1; 16]), format!("s{at}"), (*allowed).to_owned())
            };
            bindings(&all.map(one).collect::<Vec<_>>())
        };
        assert_eq!(
            of(["0-1", "0", "0-1"]),
            ["s1 may run on processors 0 only, the others of its service here on 0-1"]
        );
        assert!(of(["0-1"; 3]).is_empty() && of(["0", "1", "2"]).is_empty());
    }

    /// Goal: what is not known about a medium leaves no hole in the text, and memory is a medium of its own.
    #[test]
    fn media() {
        let target = |filesystem: &str, medium: &str, model: &str| TargetFacts {
            filesystem: filesystem.to_owned(),
            medium: medium.to_owned(),
            model: model.to_owned(),
            ..TargetFacts::default()
        };
        let told = |target| {
            let facts = NodeFacts { targets: vec![target], ..NodeFacts::default() };
            daemon_facts("s", &facts).pop().unwrap().value
        };
        assert!(told(target("xfs", "hdd", "")).contains("(hdd),"));
        assert!(told(target("xfs", "ssd", "X1 ")).contains("(ssd X1),"));
        assert!(told(target("xfs", "", "")).contains("(medium not told),"));
        assert!(told(target("tmpfs", "", "")).contains("(tmpfs),"));
    }

    /// Goal: dates are right across leap years and centuries.
    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_243_567, "2026-11-21T06:46:07Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
