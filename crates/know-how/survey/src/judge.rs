//! From what was measured to a verdict: who lags, what explains what, which layer limits.
//!
//! A cause shows in layers above it: a daemon without processor time has slow targets and slow paths too. So the layers
//! are judged from the bottom, and what a finding below explains is marked, but blamed on nobody else. Findings that
//! do not explain each other are equals: the worst of them, by what is certain, is named first.

mod absent;
mod machines;
mod mount;
mod two_nodes;

use crate::ceiling;
use crate::ids::{PROCESSOR_FREE, PROCESSOR_SHARE};
use crate::lag::{HINT, Lag, laggards, laggards_within};
use crate::model::{Culprit, Evidence, Layer, LayerId, Part, SideBySide, Survey, Verdict};
use crate::pairs::{self, ARROW, Slow};
use std::collections::{BTreeMap, BTreeSet};

/// In this order causes explain effects.
const ORDER: [LayerId; 8] = [
    LayerId::Processor,
    LayerId::Device,
    LayerId::Log,
    LayerId::Network,
    LayerId::Storage,
    LayerId::Metadata,
    LayerId::Client,
    LayerId::Clients,
];
/// A cause explains an effect as long as its logarithm is at least this part of the effect's: half of the processor
/// time does not explain a hundredth of the rate. Little processor time hurts out of proportion, for threads wait for
/// each other ...
const PROCESSOR_EXPLAINS: f64 = 0.25;
/// ... slow devices and networks hurt in proportion, but for noise.
const RATE_EXPLAINS: f64 = 0.5;
/// Unit of delays; they grow out of all proportion to what causes them.
const DELAYS: &str = "us";
/// What is said when there is nothing to say.
const ALL_ALIKE: &str = "Nothing lags behind its likes.";

/// One thing that is wrong, before it is known what explains it.
struct Finding {
    culprit: Culprit,
    /// The finding without its numbers.
    brief: String,
    /// What it reaches of what it should be.
    share: f64,
    /// ... at most, as far as chance can tell.
    at_most: f64,
}

/// Who was found to be slow, where, and how much of its likes it reaches.
#[derive(Default)]
struct Blamed(BTreeMap<String, Vec<(LayerId, f64)>>);

impl Blamed {
    fn add(&mut self, finding: &Finding) {
        let entry = self.0.entry(finding.culprit.member.clone()).or_default();
        entry.push((finding.culprit.layer, finding.share));
    }

    /// Whether what is known of `name` explains that something of it reaches `share` only in a layer above.
    fn explains(&self, name: &str, layer: LayerId, share: f64, unit: &str) -> bool {
        let enough = |(below, known): &(LayerId, f64)| {
            let Some(part) = reach(*below, layer) else { return false };
            unit == DELAYS || known.max(f64::MIN_POSITIVE).ln() <= part * share.max(f64::MIN_POSITIVE).ln()
        };
        self.0.get(name).is_some_and(|known| known.iter().any(enough))
    }
}

/// How far a cause in one layer reaches into another; none when it does not touch it.
fn reach(below: LayerId, above: LayerId) -> Option<f64> {
    use LayerId::{Client, Clients, Device, Log, Metadata, Network, Processor, Storage};
    match (below, above) {
        (Processor, Processor) => None,
        (Processor, _) => Some(PROCESSOR_EXPLAINS),
        (Device, Storage | Metadata | Client | Clients)
        | (Log | Network | Storage, Metadata | Client | Clients) => Some(RATE_EXPLAINS),
        _ => None,
    }
}

/// Judges a survey: marks members that lag, fills waterfalls and verdict.
pub fn judge(survey: &mut Survey) {
    let place = ceiling::Setting { place: machines::place(survey), spread: survey.spread };
    let missing = absent::findings(survey);
    let gone: BTreeSet<String> = missing.iter().map(|finding| finding.culprit.member.clone()).collect();
    let mut findings: Vec<Finding> = Vec::new();
    let mut blamed = Blamed::default();
    for id in ORDER {
        let fresh: Vec<Finding> = survey
            .layers
            .iter_mut()
            .filter(|layer| layer.id == id)
            .flat_map(|layer| judge_layer(layer, &survey.parts, &blamed))
            .collect();
        let fresh = merged(without_paths_of(fresh));
        fresh.iter().for_each(|finding| blamed.add(finding));
        findings.extend(fresh);
    }
    findings.extend(mount::held_back(&mut survey.layers));
    // Who does not answer at all is not slow besides.
    findings.retain(|finding| !gone.contains(&finding.culprit.member));
    two_nodes::remark(survey);
    let mut all = missing;
    all.extend(merged(findings));
    survey.waterfalls = ceiling::waterfalls(&survey.layers, &survey.theory, place);
    let limits = ceiling::limits(&survey.layers, place);
    machines::remark(survey, &limits);
    let headline = headline(&all);
    let mut culprits = all.into_iter().map(|finding| finding.culprit);
    let mut verdict = Verdict { headline, culprit: culprits.next(), also: culprits.collect(), limits };
    verdict.headline = with_crowd(&verdict);
    survey.verdict = verdict;
}

/// That all wait for processors is said first, but for a culprit: it stands out all the same.
fn with_crowd(verdict: &Verdict) -> String {
    let headline = &verdict.headline;
    let Some(crowded) = verdict.crowded() else { return headline.clone() };
    let crowded = format!("The processors limit all work: {}", crowded.finding);
    match verdict.culprit {
        Some(_) => format!("{headline}. {crowded}"),
        None => format!("{crowded}. {headline}"),
    }
}

fn headline(findings: &[Finding]) -> String {
    let Some((first, rest)) = findings.split_first() else { return ALL_ALIKE.to_owned() };
    let mut text = format!("{}: {}", first.culprit.member, first.brief);
    rest.iter().for_each(|other| text += &format!("; also {}", other.culprit.member));
    text
}

/// A path is not blamed beside a node at its end.
fn without_paths_of(mut findings: Vec<Finding>) -> Vec<Finding> {
    let names: BTreeSet<String> = findings.iter().map(|finding| finding.culprit.member.clone()).collect();
    findings.retain(|finding| {
        let mut ends = finding.culprit.member.split(ARROW);
        !finding.culprit.member.contains(ARROW) || !ends.any(|end| names.contains(end))
    });
    findings
}

/// Findings about the same member (its write and its read) become one; the worst comes first.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for mut finding in findings {
        let Some(known) = all.iter_mut().find(|known| known.culprit.member == finding.culprit.member) else {
            all.push(finding);
            continue;
        };
        if finding.at_most < known.at_most {
            std::mem::swap(known, &mut finding);
        }
        known.culprit.evidence.append(&mut finding.culprit.evidence);
    }
    // Of equals the one in the lower layer stays first.
    all.sort_by(|a, b| a.at_most.total_cmp(&b.at_most));
    all
}

fn judge_layer(layer: &mut Layer, parts: &[Part], blamed: &Blamed) -> Vec<Finding> {
    let id = layer.id;
    let mut found = Vec::new();
    for side in &mut layer.sides {
        side.members.iter_mut().for_each(|member| member.outlier = None);
        found.extend(match id {
            LayerId::Network => judge_paths(side, blamed),
            _ => judge_members(id, side, parts, blamed),
        });
    }
    if id == LayerId::Processor {
        let known: BTreeSet<String> = found.iter().map(|f: &Finding| f.culprit.member.clone()).collect();
        let held = held_back(&mut layer.sides);
        found.extend(held.into_iter().filter(|finding| !known.contains(&finding.culprit.member)));
    }
    found
}

/// On a busy machine nobody gets much, so a quota does not stand out by the share alone. Who gets less than its likes,
/// and is held back by its control group while they are not, is short of processor time all the same.
fn held_back(sides: &mut [SideBySide]) -> Vec<Finding> {
    let shares = sides.iter().filter(|side| side.id.starts_with(PROCESSOR_SHARE));
    let of_side = |side: &SideBySide| -> Vec<Finding> {
        let free = side.id.replacen(PROCESSOR_SHARE, PROCESSOR_FREE, 1);
        let Some(free) = sides.iter().find(|one| one.id == free) else { return Vec::new() };
        let held = laggards_within(free, HINT);
        let both = |lag: Lag| {
            let name = &side.members[lag.at].name;
            let other = held.iter().find(|other| free.members[other.at].name == *name)?;
            let mut both = finding(LayerId::Processor, name, side, &lag);
            both.culprit.evidence.extend(finding(LayerId::Processor, name, free, other).culprit.evidence);
            Some(both)
        };
        laggards_within(side, HINT).into_iter().filter_map(both).collect()
    };
    let found: Vec<Finding> = shares.flat_map(of_side).collect();
    for member in sides.iter_mut().flat_map(|side| &mut side.members) {
        let blamed = found.iter().any(|finding| finding.culprit.member == member.name);
        if blamed && member.outlier.is_none() {
            member.outlier = Some("held back by its control group, and gets less than its likes".to_owned());
        }
    }
    found
}

fn owner<'a>(parts: &'a [Part], name: &str) -> Option<&'a str> {
    parts.iter().find(|part| part.name == name).map(|part| part.part_of.as_str())
}

fn judge_members(id: LayerId, side: &mut SideBySide, parts: &[Part], blamed: &Blamed) -> Vec<Finding> {
    let lags = laggards(side);
    let mut found = Vec::new();
    for lag in &lags {
        let name = side.members[lag.at].name.clone();
        let below = [Some(name.as_str()), owner(parts, &name)]
            .into_iter()
            .flatten()
            .find(|cause| blamed.explains(cause, id, lag.share, &side.unit));
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
            finding.brief = format!("all its targets lag: {}", finding.brief);
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
    let (what, advice) = words(id);
    let evidence = Evidence {
        what: format!("{}: {name}", side.title),
        value: lag.value,
        expected: lag.expected,
        unit: side.unit.clone(),
    };
    let brief = format!("{what} {} of its likes", percent(lag.share));
    let finding = format!("{brief} ({})", describe(side, lag));
    Finding {
        culprit: Culprit {
            layer: id,
            member: name.to_owned(),
            finding,
            evidence: vec![evidence],
            advice: advice.to_owned(),
        },
        brief,
        share: lag.share,
        at_most: lag.at_most,
    }
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        p if p < 1.0 => "less than 1 %".to_owned(),
        p => format!("{p:.0} %"),
    }
}

/// What lags in a layer, and what to do about it.
fn words(id: LayerId) -> (&'static str, &'static str) {
    match id {
        LayerId::Processor => (
            "the processor time that it gets is at",
            "look at what else runs on its host, at CPUQuota= or cpu.max of its control group, and at the \
             binding of the service (skep tune check)",
        ),
        LayerId::Device => (
            "its device delivers",
            "look at the drive and its controller (SMART, RAID state, cache battery, kernel log), and at the \
             settings of the device (skep tune check --role storage)",
        ),
        LayerId::Log => (
            "the disk under its log reaches",
            "look at the drive under the directory of this metadata server (SMART, RAID state, cache battery, other \
             work on it), and move the directory to flash that keeps what it was told to sync",
        ),
        LayerId::Storage => (
            "its device is as good as the others, but through the daemon it delivers",
            "compare the daemon's configuration (workers, checksums) and host with those of the others",
        ),
        LayerId::Network => ("the network gives it", ""),
        // Their members are hosts of clients.
        LayerId::Metadata | LayerId::Client | LayerId::Clients => (
            "it reaches",
            "compare kernel, mount options and processors of this client with those of the others",
        ),
    }
}

const NETWORK_ADVICE: &str = "look at the link of this host: negotiated speed and duplex (ethtool), errors and \
     drops (ip -s link), MTU, cable, switch port, traffic shaping (tc qdisc)";

fn judge_paths(side: &mut SideBySide, blamed: &Blamed) -> Vec<Finding> {
    let mut found = Vec::new();
    for slow in pairs::slow(side) {
        let (name, touched) = match &slow {
            Slow::Node { node, .. } => (node.clone(), touching(side, node)),
            Slow::Pair(lag) => (side.members[lag.at].name.clone(), vec![lag.at]),
        };
        let cause =
            name.split(ARROW).find(|n| blamed.explains(n, LayerId::Network, slow.share(), &side.unit));
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
    let two = pairs::nodes(side).len() == 2;
    let brief = network_words(slow, side.unit == DELAYS, two);
    let (value, expected) = match slow {
        Slow::Node { value, expected, .. } => (*value, *expected),
        Slow::Pair(lag) => (lag.value, lag.expected),
    };
    let unit = &side.unit;
    let others = if two { "the way back shows" } else { "the others show" };
    let numbers = format!("{} {unit} where {others} {}", figure(value), figure(expected));
    let evidence =
        Evidence { what: format!("{}: {name}", side.title), value, expected, unit: side.unit.clone() };
    Finding {
        culprit: Culprit {
            layer: LayerId::Network,
            member: name.to_owned(),
            finding: format!("{brief} ({numbers})"),
            evidence: vec![evidence],
            advice: NETWORK_ADVICE.to_owned(),
        },
        brief,
        share: slow.share(),
        at_most: slow.at_most(),
    }
}

/// Rates are a share of the others', round trips take so many times as long.
fn network_words(slow: &Slow, delays: bool, two: bool) -> String {
    let share = slow.share();
    let others = if two { "of the way back" } else { "of the others" };
    let times = format!("take {:.1} times as long as those {others}", 1.0 / share);
    let rate = format!("at {} {others}", percent(share));
    match slow {
        Slow::Pair(_) if two && delays => {
            format!("this path is slow, the way back is not: its round trips {times}")
        }
        Slow::Pair(_) if two => format!("this path is slow, the way back is not: it is {rate}"),
        Slow::Node { .. } if delays => format!("its network is slow: its round trips {times}"),
        Slow::Pair(_) if delays => {
            format!("this path is slow, other paths of both ends are not: its round trips {times}")
        }
        Slow::Node { sends: Some(_), receives: None, .. } => {
            format!("its network is slow: what it sends is {rate}")
        }
        Slow::Node { sends: None, receives: Some(_), .. } => {
            format!("its network is slow: what it receives is {rate}")
        }
        Slow::Node { .. } => format!("its network is slow: what it sends and receives is {rate}"),
        Slow::Pair(_) => format!("this path is slow, other paths of both ends are not: it is {rate}"),
    }
}

#[cfg(test)]
mod tests;
