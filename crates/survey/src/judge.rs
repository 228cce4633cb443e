//! From what was measured to a verdict: who lags, what explains what, which layer limits.
//!
//! A cause shows in every layer above it: a daemon without processor time has slow targets and slow paths too. So the
//! layers are judged from the bottom, and whatever a finding below explains is marked, but blamed on nobody else.

use crate::ceiling::{self, Place};
use crate::lag::{Lag, laggards};
use crate::model::{Culprit, Evidence, Layer, LayerId, Part, SideBySide, Survey, Verdict};
use crate::pairs::{self, ARROW, Slow};
use std::collections::{BTreeMap, BTreeSet};

/// In this order causes explain effects.
const ORDER: [LayerId; 7] = [
    LayerId::Processor,
    LayerId::Device,
    LayerId::Network,
    LayerId::Storage,
    LayerId::Metadata,
    LayerId::Client,
    LayerId::Clients,
];

/// One thing that is wrong, before it is known what explains it.
struct Finding {
    culprit: Culprit,
    share: f64,
}

/// Judges a survey: marks members that lag, fills waterfalls and verdict.
pub fn judge(survey: &mut Survey) {
    let place = if survey.hosts.len() > 1 { Place::Apart } else { Place::Together };
    let mut findings: Vec<Finding> = Vec::new();
    let mut blamed: BTreeSet<String> = BTreeSet::new();
    for id in ORDER {
        let fresh: Vec<Finding> = survey
            .layers
            .iter_mut()
            .filter(|layer| layer.id == id)
            .flat_map(|layer| judge_layer(layer, &survey.parts, &blamed))
            .collect();
        blamed.extend(fresh.iter().map(|finding| finding.culprit.member.clone()));
        findings.extend(merged(fresh));
    }
    survey.waterfalls = ceiling::waterfalls(&survey.layers, place);
    let limits = ceiling::limits(&survey.layers, place);
    let headline = headline(&findings, &limits);
    let culprit = findings.into_iter().next().map(|finding| finding.culprit);
    survey.verdict = Verdict { headline, culprit, limits };
}

fn headline(findings: &[Finding], limits: &[crate::model::Limit]) -> String {
    let Some((first, rest)) = findings.split_first() else {
        let named: Vec<String> =
            limits.iter().take(2).map(|l| format!("{}: {}", l.work, l.finding)).collect();
        let all_alike = "No member lags behind its likes.";
        return if named.is_empty() {
            all_alike.to_owned()
        } else {
            format!("{all_alike} {}", named.join("; "))
        };
    };
    let mut text = format!("{}: {}", first.culprit.member, first.culprit.finding);
    for other in rest {
        text += &format!("; also {}: {}", other.culprit.member, other.culprit.finding);
    }
    text
}

/// Findings about the same member (its write and its read) become one; the worst comes first.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut by_member: BTreeMap<String, Finding> = BTreeMap::new();
    for mut finding in findings {
        let Some(known) = by_member.get_mut(&finding.culprit.member) else {
            by_member.insert(finding.culprit.member.clone(), finding);
            continue;
        };
        if finding.share < known.share {
            std::mem::swap(known, &mut finding);
        }
        known.culprit.evidence.append(&mut finding.culprit.evidence);
    }
    let mut all: Vec<Finding> = by_member.into_values().collect();
    all.sort_by(|a, b| a.share.total_cmp(&b.share));
    all
}

fn judge_layer(layer: &mut Layer, parts: &[Part], blamed: &BTreeSet<String>) -> Vec<Finding> {
    let id = layer.id;
    let mut found = Vec::new();
    for side in &mut layer.sides {
        side.members.iter_mut().for_each(|member| member.outlier = None);
        found.extend(match id {
            LayerId::Network => judge_paths(side, blamed),
            _ => judge_members(id, side, parts, blamed),
        });
    }
    found
}

fn owner<'a>(parts: &'a [Part], name: &str) -> Option<&'a str> {
    parts.iter().find(|part| part.name == name).map(|part| part.part_of.as_str())
}

fn judge_members(
    id: LayerId,
    side: &mut SideBySide,
    parts: &[Part],
    blamed: &BTreeSet<String>,
) -> Vec<Finding> {
    let lags = laggards(side);
    let mut found = Vec::new();
    for lag in &lags {
        let name = side.members[lag.at].name.clone();
        let below =
            [Some(name.as_str()), owner(parts, &name)].into_iter().flatten().find(|n| blamed.contains(*n));
        let mark = describe(side, lag);
        side.members[lag.at].outlier = Some(match below {
            Some(cause) if cause != name => format!("{mark}; {cause} explains it"),
            Some(_) => format!("{mark}; a layer below explains it"),
            None => mark,
        });
        if below.is_none() {
            found.push(finding(id, &name, side, lag));
        }
    }
    whole_daemon(side, parts, found)
}

/// When all targets of one daemon lag, and it has several, the daemon or its host is what they share.
fn whole_daemon(side: &SideBySide, parts: &[Part], found: Vec<Finding>) -> Vec<Finding> {
    let lagging: BTreeSet<&str> = found.iter().map(|f| f.culprit.member.as_str()).collect();
    let daemons: BTreeSet<&str> = lagging.iter().filter_map(|name| owner(parts, name)).collect();
    let whole = |daemon: &&str| {
        let mut own = side.members.iter().filter(|m| owner(parts, &m.name) == Some(*daemon)).peekable();
        let count = own.clone().count();
        own.peek().is_some() && count > 1 && own.all(|m| lagging.contains(m.name.as_str()))
    };
    let whole: BTreeSet<String> = daemons.iter().filter(|d| whole(d)).map(|d| (*d).to_owned()).collect();
    let renamed = |mut finding: Finding| {
        if let Some(daemon) = owner(parts, &finding.culprit.member).filter(|d| whole.contains(*d)) {
            finding.culprit.finding = format!("all its targets lag: {}", finding.culprit.finding);
            finding.culprit.member = daemon.to_owned();
        }
        finding
    };
    found.into_iter().map(renamed).collect()
}

fn describe(side: &SideBySide, lag: &Lag) -> String {
    let unit = &side.unit;
    format!("{} {unit} where its likes show {}", figure(lag.value), figure(lag.expected))
}

/// Three digits are enough to compare.
fn figure(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

fn finding(id: LayerId, name: &str, side: &SideBySide, lag: &Lag) -> Finding {
    let percent = 100.0 * lag.share;
    let (what, advice) = words(id);
    let evidence = Evidence {
        what: format!("{}: {name}", side.title),
        value: lag.value,
        expected: lag.expected,
        unit: side.unit.clone(),
    };
    let finding = format!("{what} {percent:.0} % of its likes ({})", describe(side, lag));
    Finding {
        culprit: Culprit {
            layer: id,
            member: name.to_owned(),
            finding,
            evidence: vec![evidence],
            advice: advice.to_owned(),
        },
        share: lag.share,
    }
}

/// What lags in a layer, and what to do about it.
fn words(id: LayerId) -> (&'static str, &'static str) {
    match id {
        LayerId::Processor => (
            "it gets processor time as if alone only to",
            "look at what else runs on its host, at CPUQuota= or cpu.max of its control group, and at the \
             binding of the service (skep tune check)",
        ),
        LayerId::Device => (
            "its device delivers",
            "look at the drive and its controller (SMART, RAID state, cache battery, kernel log), and at the \
             settings of the device (skep tune check --role storage)",
        ),
        LayerId::Storage => (
            "its device is as good as the others, but through the daemon it delivers",
            "compare the daemon's configuration (workers, checksums) and host with those of the others",
        ),
        LayerId::Network => ("the network gives it", ""),
        LayerId::Metadata => (
            "it serves names at",
            "look at the device under its log, its host and its share of the shards (skep node list)",
        ),
        LayerId::Client | LayerId::Clients => (
            "it reaches",
            "compare kernel, mount options and processors of this client with those of the others",
        ),
    }
}

const NETWORK_ADVICE: &str = "look at the link of this host: negotiated speed and duplex (ethtool), errors and \
     drops (ip -s link), MTU, cable, switch port, traffic shaping (tc qdisc)";

fn judge_paths(side: &mut SideBySide, blamed: &BTreeSet<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    for slow in pairs::slow(side) {
        let (name, touched) = match &slow {
            Slow::Node { node, .. } => (node.clone(), touching(side, node)),
            Slow::Pair(lag) => (side.members[lag.at].name.clone(), vec![lag.at]),
        };
        let cause = name.split(ARROW).find(|node| blamed.contains(*node));
        for at in touched {
            let why = cause.map_or_else(|| format!("{name} is slow"), |c| format!("{c} explains it"));
            side.members[at].outlier = Some(why);
        }
        if cause.is_none() {
            found.push(network_finding(&name, side, &slow));
        }
    }
    found
}

fn touching(side: &SideBySide, node: &str) -> Vec<usize> {
    let part = |name: &str| name.split(ARROW).any(|end| end == node);
    side.members.iter().enumerate().filter(|(_, m)| part(&m.name)).map(|(at, _)| at).collect()
}

fn network_finding(name: &str, side: &SideBySide, slow: &Slow) -> Finding {
    let percent = 100.0 * slow.share();
    let (what, value, expected) = match slow {
        Slow::Node { sends, receives, value, expected, .. } => {
            let way = match (sends, receives) {
                (Some(_), None) => "what it sends is at",
                (None, Some(_)) => "what it receives is at",
                _ => "what it sends and receives is at",
            };
            (format!("its network is slow: {way}"), *value, *expected)
        }
        Slow::Pair(lag) => (
            "this path is slow, other paths of both ends are not: it is at".to_owned(),
            lag.value,
            lag.expected,
        ),
    };
    let unit = &side.unit;
    let numbers = format!("{} {unit} where the others show {}", figure(value), figure(expected));
    let evidence =
        Evidence { what: format!("{}: {name}", side.title), value, expected, unit: side.unit.clone() };
    Finding {
        culprit: Culprit {
            layer: LayerId::Network,
            member: name.to_owned(),
            finding: format!("{what} {percent:.0} % of the others ({numbers})"),
            evidence: vec![evidence],
            advice: NETWORK_ADVICE.to_owned(),
        },
        share: slow.share(),
    }
}

#[cfg(test)]
mod tests;
