//! Who could not be measured at all: worse than anybody who is slow.

use super::{Finding, owner};
use crate::model::{Absent, Culprit, LARGE_STUCK, LayerId, Survey};
use crate::pairs::ARROW;
use std::collections::BTreeSet;

const ADVICE: &str = "see whether its service runs and its host answers (systemctl status, skep node list, skep health), \
     read its log, start it again; then repeat the survey";

/// Where small messages pass, services run and hosts answer.
const STUCK_ADVICE: &str = "something on the way drops large packets: compare the MTU of both interfaces with that of every \
     switch, bridge and tunnel between them (ip link; ping -M do -s 8972 for 9000), and let ICMP \"fragmentation needed\" \
     through; then repeat the survey";

fn is_stuck(why: &str) -> bool {
    why.starts_with(LARGE_STUCK)
}

/// One finding for each member that is missing for a reason of its own, daemons before targets and paths.
pub fn findings(survey: &Survey) -> Vec<Finding> {
    let mut missing: Vec<Absent> = Vec::new();
    for one in survey.absent.iter().cloned().chain(cut_off(survey)) {
        if !missing.iter().any(|known| known.name == one.name) {
            missing.push(one);
        }
    }
    let names: BTreeSet<&str> = missing.iter().map(|one| one.name.as_str()).collect();
    let explained = |one: &&Absent| {
        let mut ends = one.name.split(ARROW);
        let of_one_gone = one.name.contains(ARROW) && ends.any(|end| names.contains(end));
        of_one_gone || owner(&survey.parts, &one.name).is_some_and(|daemon| names.contains(daemon))
    };
    let mut own: Vec<&Absent> = missing.iter().filter(|one| !explained(one)).collect();
    own.sort_by_key(|one| (one.name.contains(ARROW), owner(&survey.parts, &one.name).is_some()));
    own.into_iter().map(finding).collect()
}

fn finding(one: &Absent) -> Finding {
    Finding {
        culprit: Culprit {
            layer: one.layer,
            member: one.name.clone(),
            finding: one.why.clone(),
            evidence: Vec::new(),
            advice: if is_stuck(&one.why) { STUCK_ADVICE } else { ADVICE }.to_owned(),
        },
        // Of a failed call the headline needs no addresses and numbers.
        brief: one.why.split_once(": ").map_or(one.why.as_str(), |(brief, _)| brief).to_owned(),
        share: 0.0,
        at_most: 0.0,
    }
}

/// Nodes of which no path could be measured, while others have some; where nobody has any, what all that failed share.
fn cut_off(survey: &Survey) -> Vec<Absent> {
    let failed: Vec<&Absent> = survey.absent.iter().filter(|one| one.name.contains(ARROW)).collect();
    let network = survey.layers.iter().filter(|layer| layer.id == LayerId::Network);
    let measured: BTreeSet<&str> = network
        .flat_map(|layer| &layer.sides)
        .flat_map(|side| &side.members)
        .flat_map(|member| member.name.split(ARROW))
        .collect();
    let ends: BTreeSet<&str> = failed.iter().flat_map(|one| one.name.split(ARROW)).collect();
    let shared =
        |end: &str| failed.len() > 1 && failed.iter().all(|one| one.name.split(ARROW).any(|e| e == end));
    let cut = ends.into_iter().filter(|end| match measured.is_empty() {
        true => shared(end),
        false => !measured.contains(end),
    });
    let absent = |end: &str| {
        let why = failed.iter().find(|one| one.name.split(ARROW).any(|e| e == end));
        let reason = why.map_or("", |one| one.why.as_str());
        let why = match reason.strip_prefix(LARGE_STUCK) {
            Some(which) => format!("{LARGE_STUCK}, on any path from or to it that was tried{which}"),
            None => format!("no path from or to it works: {reason}"),
        };
        Absent { name: end.to_owned(), layer: LayerId::Network, why }
    };
    cut.map(absent).collect()
}
