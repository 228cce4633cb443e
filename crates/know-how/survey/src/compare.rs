//! Two surveys side by side: what changed, and what only seems so.
//!
//! Every place that both measured is compared by the interval of the ratio, in which the drift from one survey to
//! the next has its part ([`drift`]). A survey has many places, and some would differ by chance: those marked are so
//! chosen that at most one in twenty of them is, as far as the drift is what was assumed or measured. One survey on
//! a side cannot tell a change from drift, so what it shows only may have changed, unless no drift goes so far.

mod drift;
#[cfg(test)]
mod tests;

use crate::model::{Curve, Fact, SideBySide, Survey};
use drift::{Drift, Runs};
use serde::{Deserialize, Serialize};
use skep_bench::significance::{Ratio, discoveries, median};

pub use drift::{DRIFT_FARTHEST, DRIFT_LEAST, DRIFT_MOST, DRIFT_MOST_BUSY};

/// Share of the marked changes that may be chance.
pub const FALSE_ALARMS: f64 = 0.05;
/// A change below this is not worth a mark, however sure it is.
pub const WORTH_NAMING: f64 = 0.03;

/// A change by this factor, up or down, must be ruled out before something is said to have stayed the same: a member at
/// half of its rate is what a comparison is there to find.
pub const LARGE: f64 = 2.0;
/// What is said where that is not ruled out.
pub const CANNOT_TELL: &str = "cannot tell";

/// What became of one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Significantly better.
    Better,
    /// Significantly worse.
    Worse,
    /// Better by more than the assumed drift, but one survey on a side cannot tell drift from change.
    MaybeBetter,
    /// Worse by more than the assumed drift, but one survey on a side cannot tell drift from change.
    MaybeWorse,
    /// No change that can be told from chance.
    Same,
    /// Too few samples on one side, or samples of zero.
    Unknown,
}

/// One place that both surveys measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Name of the curve or the side-by-side measurement.
    pub id: String,
    /// Its title, for people, as the later side has it.
    pub title: String,
    /// Place on the curve's axis ("4 processes") or name of the member.
    pub place: String,
    /// Unit of both.
    pub unit: String,
    /// Median of the first.
    pub before: f64,
    /// Median of the second.
    pub after: f64,
    /// Second over first, and the 95 % interval: `[ratio, low, high]`; none if it cannot be told.
    pub ratio: Option<[f64; 3]>,
    /// How often chance alone would show as much.
    pub p: Option<f64>,
    /// What became of it.
    pub outcome: Outcome,
    /// Geometric means of both sides, which are what the ratio is one of; not in documents, which hold medians.
    #[serde(skip)]
    pub means: [Option<f64>; 2],
}

impl Change {
    /// Nothing is marked, but the interval leaves room for a change by [`LARGE`]: that it stayed the same was not shown.
    pub fn cannot_be_told(&self) -> bool {
        let far = |[_, low, high]: [f64; 3]| !(low > 1.0 / LARGE && high < LARGE);
        self.outcome == Outcome::Same && self.ratio.is_some_and(far)
    }

    /// What people read of its outcome.
    pub fn words(&self) -> &'static str {
        if self.cannot_be_told() { CANNOT_TELL } else { self.outcome.words() }
    }
}

/// What two surveys differ in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Everything that both measured, in the order of the second.
    pub changes: Vec<Change>,
    /// What only one of them measured.
    pub alone: Vec<String>,
    /// Settings and facts that differ: name, before, after.
    pub settings: Vec<[String; 3]>,
    /// The culprit each one named.
    pub culprits: [Option<String>; 2],
    /// What a reader must know before he trusts a mark: presets that differ, machines that were busy, the drift.
    pub remarks: Vec<String>,
}

impl Outcome {
    /// Better or worse, whether it is certain or may be drift; none when nothing is marked.
    pub fn better(self) -> Option<bool> {
        match self {
            Self::Better | Self::MaybeBetter => Some(true),
            Self::Worse | Self::MaybeWorse => Some(false),
            Self::Same | Self::Unknown => None,
        }
    }

    /// What people read.
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::MaybeBetter => "maybe better",
            Self::MaybeWorse => "maybe worse",
            Self::Same => "same",
            Self::Unknown => "unknown",
        }
    }
}

impl Comparison {
    /// How many places came out so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.changes.iter().filter(|change| change.outcome == outcome).count()
    }

    /// How many places are not marked, and may have changed by much all the same. [`Outcome::Same`] counts them, too.
    pub fn untold(&self) -> usize {
        self.changes.iter().filter(|change| change.cannot_be_told()).count()
    }
}

/// One place before it is compared.
#[derive(Clone)]
struct Place<'a> {
    id: &'a str,
    title: &'a str,
    place: String,
    unit: &'a str,
    more_is_better: bool,
    samples: &'a [f64],
}

fn places(survey: &Survey) -> Vec<Place<'_>> {
    let curves = survey.layers.iter().flat_map(|layer| &layer.curves).flat_map(curve_places);
    let sides = survey.layers.iter().flat_map(|layer| &layer.sides).flat_map(side_places);
    curves.chain(sides).collect()
}

/// Units of which less is better: times.
fn is_time(unit: &str) -> bool {
    matches!(unit, "ns" | "us" | "ms" | "s")
}

fn curve_places(curve: &Curve) -> impl Iterator<Item = Place<'_>> {
    curve.points.iter().map(|point| Place {
        id: &curve.id,
        title: &curve.title,
        place: format!("{} = {}", curve.axis, point.x),
        unit: &curve.unit,
        more_is_better: !is_time(&curve.unit),
        samples: &point.samples,
    })
}

fn side_places(side: &SideBySide) -> impl Iterator<Item = Place<'_>> {
    side.members.iter().map(|member| Place {
        id: &side.id,
        title: &side.title,
        place: member.name.clone(),
        unit: &side.unit,
        more_is_better: side.more_is_better,
        samples: &member.samples,
    })
}

/// Compares one survey with an earlier one.
pub fn compare(first: &Survey, second: &Survey) -> Comparison {
    compare_sides(std::slice::from_ref(first), std::slice::from_ref(second))
}

/// What speaks against comparing these surveys: presets that measure in different ways.
pub fn presets_differ(first: &[Survey], second: &[Survey]) -> Option<String> {
    let (before, after) = (distinct(first, |s| s.preset.clone()), distinct(second, |s| s.preset.clone()));
    (before != after || before.len() > 1).then(|| {
        format!(
            "the presets differ: {} before, {} after; other sizes and numbers of processes give other figures",
            before.join(" and "),
            after.join(" and ")
        )
    })
}

fn distinct(surveys: &[Survey], of: impl Fn(&Survey) -> String) -> Vec<String> {
    let mut all: Vec<String> = surveys.iter().map(of).collect();
    all.sort();
    all.dedup();
    all
}

/// All places of a side, in the order in which its surveys have them, with the samples of each survey.
fn gathered(surveys: &[Survey]) -> Vec<(Place<'_>, Vec<Vec<f64>>)> {
    let mut all: Vec<(Place<'_>, Vec<Vec<f64>>)> = Vec::new();
    for (at, survey) in surveys.iter().enumerate() {
        for place in places(survey) {
            let known = all.iter().position(|(p, _)| same(p, &place));
            let index = known.unwrap_or_else(|| {
                all.push((place.clone(), vec![Vec::new(); surveys.len()]));
                all.len() - 1
            });
            all[index].1[at] = place.samples.to_vec();
        }
    }
    all
}

/// Curves of a search begin so. Along an axis it has the rest as it was found best, which is another setting in every
/// survey, so that only the title tells whether two points are of one setting.
const SEARCHED: &str = "sweep.";

fn same(a: &Place<'_>, b: &Place<'_>) -> bool {
    let alike = !a.id.starts_with(SEARCHED) || a.title == b.title;
    a.id == b.id && a.place == b.place && a.unit == b.unit && alike
}

/// Compares later surveys with earlier ones. With two or more of each, the spread between those of one side
/// tells what drifts; with one, a drift is assumed.
pub fn compare_sides(first: &[Survey], second: &[Survey]) -> Comparison {
    let (before, after) = (gathered(first), gathered(second));
    let mut both = Vec::new();
    for (now, late) in &after {
        let Some((_, early)) = before.iter().find(|(then, _)| same(then, now)) else { continue };
        both.push((now, Runs { before: early.clone(), after: late.clone() }));
    }
    let (of, runs): (Vec<&Place<'_>>, Vec<Runs>) = both.into_iter().unzip();
    let busy = busy(first, "before").into_iter().chain(busy(second, "after")).collect::<Vec<String>>();
    let (ratios, drift) = drift::ratios(&runs, !busy.is_empty());
    let rows = of.iter().zip(&runs).zip(&ratios);
    let mut changes: Vec<Change> =
        rows.map(|((place, runs), found)| change(place, runs, found.map(|f| f.likely))).collect();
    let far: Vec<Option<f64>> = ratios.iter().map(|found| found.map(|f| f.certain.p)).collect();
    settle(&mut changes, &far, &of.iter().map(|place| place.more_is_better).collect::<Vec<bool>>());
    let only = |one: &[(Place<'_>, Vec<Vec<f64>>)], other: &[(Place<'_>, Vec<Vec<f64>>)], which: &str| {
        let missing = one.iter().filter(|(place, _)| !other.iter().any(|(o, _)| same(place, o)));
        missing
            .map(|(place, _)| format!("{which} only: {} ({}), {}", place.id, place.title, place.place))
            .collect()
    };
    let mut alone: Vec<String> = only(&before, &after, "first");
    alone.extend::<Vec<String>>(only(&after, &before, "second"));
    let mut remarks: Vec<String> = presets_differ(first, second).into_iter().collect();
    remarks.extend(busy);
    remarks.push(about(&drift, &changes));
    let culprits = [first, second].map(culprit);
    Comparison { changes, alone, settings: settings(first, second), culprits, remarks }
}

/// Whom the surveys of a side named.
fn culprit(surveys: &[Survey]) -> Option<String> {
    let mut named: Vec<String> =
        surveys.iter().filter_map(|s| s.verdict.culprit.as_ref().map(|c| c.member.clone())).collect();
    named.sort();
    named.dedup();
    (!named.is_empty()).then(|| named.join(", "))
}

/// The machines of a side that were busy before one of its surveys began.
fn busy(surveys: &[Survey], side: &str) -> Vec<String> {
    let hosts = surveys.iter().flat_map(|survey| &survey.hosts);
    let mut said: Vec<String> =
        hosts.filter_map(|host| host.busy.as_ref()).map(|text| format!("{side}: {text}")).collect();
    said.dedup();
    said
}

/// The drift in words.
fn about(drift: &Drift, changes: &[Change]) -> String {
    let all: Vec<f64> = changes.iter().filter_map(|change| Some(change.ratio?[0])).collect();
    let middle = median(&all).unwrap_or(1.0);
    match drift {
        Drift::Assumed(sd) => format!(
            "One survey a side cannot tell drift from change: places that differ by more than a standard deviation of \
             {:.0} % between surveys explains may have changed, and only those beyond one of {:.0} % are said to have \
             (the middle of all ratios is {middle:.3}). Repeat each side and give all of them: skep survey compare \
             A1,A2 B1,B2",
            100.0 * sd,
            100.0 * DRIFT_FARTHEST
        ),
        Drift::Measured(sd) => format!(
            "The surveys of one side differ by a standard deviation of {:.0} % at a place (the middle of all ratios \
             is {middle:.3})",
            100.0 * sd
        ),
    }
}

fn change(place: &Place<'_>, runs: &Runs, found: Option<Ratio>) -> Change {
    let middle = |side: &[Vec<f64>]| {
        let middles: Vec<f64> = side.iter().filter_map(|samples| median(samples)).collect();
        median(&middles).unwrap_or(0.0)
    };
    Change {
        id: place.id.to_owned(),
        title: place.title.to_owned(),
        place: place.place.clone(),
        unit: place.unit.to_owned(),
        before: middle(&runs.before),
        after: middle(&runs.after),
        ratio: found.map(|r| [r.ratio, r.low, r.high]),
        p: found.map(|r| r.p),
        outcome: if found.is_some() { Outcome::Same } else { Outcome::Unknown },
        means: [drift::geometric(&runs.before), drift::geometric(&runs.after)],
    }
}

/// Marks what stands when all places are looked at together; as certain what stands against the farthest drift, too.
fn settle(changes: &mut [Change], far: &[Option<f64>], more_is_better: &[bool]) {
    let told: Vec<usize> = (0..changes.len()).filter(|at| changes[*at].p.is_some()).collect();
    let p: Vec<f64> = told.iter().filter_map(|at| changes[*at].p).collect();
    let far: Vec<f64> = told.iter().map(|at| far[*at].unwrap_or(1.0)).collect();
    let stand = discoveries(&p, FALSE_ALARMS).into_iter().zip(discoveries(&far, FALSE_ALARMS));
    for (at, (stands, certain)) in told.iter().zip(stand) {
        let Some([ratio, low, high]) = changes[*at].ratio else { continue };
        if stands && (low > 1.0 || high < 1.0) && (ratio - 1.0).abs() >= WORTH_NAMING {
            let better = (ratio > 1.0) == more_is_better[*at];
            changes[*at].outcome = match (better, certain) {
                (true, true) => Outcome::Better,
                (false, true) => Outcome::Worse,
                (true, false) => Outcome::MaybeBetter,
                (false, false) => Outcome::MaybeWorse,
            };
        }
    }
}

fn settings(first: &[Survey], second: &[Survey]) -> Vec<[String; 3]> {
    let (before, after) = (facts(first), facts(second));
    let value = |list: &[(String, String)], name: &str| {
        let mut values: Vec<&str> = list.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect();
        values.sort_unstable();
        values.dedup();
        if values.is_empty() { "-".to_owned() } else { values.join(" / ") }
    };
    let mut names: Vec<&String> = before.iter().chain(&after).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let rows = names.into_iter().map(|name| [name.clone(), value(&before, name), value(&after, name)]);
    rows.filter(|[_, before, after]| before != after).collect()
}

/// Names and values of everything that somebody chose.
fn facts(surveys: &[Survey]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for survey in surveys {
        all.extend(survey.settings.iter().map(|fact| (fact.name.clone(), fact.value.clone())));
        for host in &survey.hosts {
            let named = |fact: &Fact| {
                let name = without_point(&fact.name, survey)?;
                Some((format!("{}: {name}", host.name), without_free(&fact.value)))
            };
            all.extend(host.facts.iter().filter_map(named));
        }
    }
    all
}

/// Name of the fact that tells the survey's mount, and how those begin that tell the mounts of a machine.
const MOUNT: &str = "mount";

/// The name of a fact; of one on a mount without its place, which the survey's settings tell, and none when it is not
/// the mount that was surveyed: others on the machine are of other clusters, or nobody's choice for this one.
fn without_point<'a>(name: &'a str, survey: &Survey) -> Option<&'a str> {
    let surveyed = survey.settings.iter().find(|fact| fact.name == MOUNT);
    let (Some(rest), Some(surveyed)) = (name.strip_prefix("mount /"), surveyed) else { return Some(name) };
    let (point, what) = match rest.strip_suffix(": settings") {
        Some(point) => (point, "mount: settings"),
        None => (rest, MOUNT),
    };
    // Hosts of agents may have mounted what is above.
    std::path::Path::new(&surveyed.value).starts_with(format!("/{point}")).then_some(what)
}

/// A fact without the part `700 GiB of 1 TiB free`: how full a disk is was not set by anybody. Its size stays.
fn without_free(value: &str) -> String {
    let part = |text: &str| match text.strip_suffix(" free").and_then(|t| t.split_once(" of ")) {
        Some((_, size)) => size.to_owned(),
        None => text.to_owned(),
    };
    value.split(", ").map(part).collect::<Vec<String>>().join(", ")
}
