//! Two surveys side by side: what changed, and what only seems so.
//!
//! Every place that both measured is compared by the interval of the ratio. A survey has many places, and some
//! would differ by chance: those marked are so chosen that at most one in twenty of them is.

use crate::model::{Curve, SideBySide, Survey};
use serde::{Deserialize, Serialize};
use skep_bench::significance::{discoveries, median, ratio};

/// Share of the marked changes that may be chance.
pub const FALSE_ALARMS: f64 = 0.05;
/// A change below this is not worth a mark, however sure it is.
pub const WORTH_NAMING: f64 = 0.03;

/// What became of one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Significantly better.
    Better,
    /// Significantly worse.
    Worse,
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
}

impl Comparison {
    /// How many places came out so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.changes.iter().filter(|change| change.outcome == outcome).count()
    }
}

/// One place before it is compared.
struct Place<'a> {
    id: &'a str,
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
        place: format!("{} = {}", curve.axis, point.x),
        unit: &curve.unit,
        more_is_better: !is_time(&curve.unit),
        samples: &point.samples,
    })
}

fn side_places(side: &SideBySide) -> impl Iterator<Item = Place<'_>> {
    side.members.iter().map(|member| Place {
        id: &side.id,
        place: member.name.clone(),
        unit: &side.unit,
        more_is_better: side.more_is_better,
        samples: &member.samples,
    })
}

/// Compares the second survey with the first.
pub fn compare(first: &Survey, second: &Survey) -> Comparison {
    let (before, after) = (places(first), places(second));
    let same = |a: &Place<'_>, b: &Place<'_>| a.id == b.id && a.place == b.place && a.unit == b.unit;
    let mut changes = Vec::new();
    let mut directions = Vec::new();
    for now in &after {
        let Some(then) = before.iter().find(|then| same(then, now)) else { continue };
        changes.push(change(then, now));
        directions.push(now.more_is_better);
    }
    settle(&mut changes, &directions);
    let only = |one: &[Place<'_>], other: &[Place<'_>], which: &str| -> Vec<String> {
        let missing = one.iter().filter(|place| !other.iter().any(|o| same(place, o)));
        missing.map(|place| format!("{which} only: {}, {}", place.id, place.place)).collect()
    };
    let mut alone = only(&before, &after, "first");
    alone.extend(only(&after, &before, "second"));
    let culprit = |survey: &Survey| survey.verdict.culprit.as_ref().map(|c| c.member.clone());
    Comparison {
        changes,
        alone,
        settings: settings(first, second),
        culprits: [culprit(first), culprit(second)],
    }
}

fn change(then: &Place<'_>, now: &Place<'_>) -> Change {
    let found = ratio(then.samples, now.samples);
    Change {
        id: now.id.to_owned(),
        place: now.place.clone(),
        unit: now.unit.to_owned(),
        before: median(then.samples).unwrap_or(0.0),
        after: median(now.samples).unwrap_or(0.0),
        ratio: found.map(|r| [r.ratio, r.low, r.high]),
        p: found.map(|r| r.p),
        outcome: if found.is_some() { Outcome::Same } else { Outcome::Unknown },
    }
}

/// Marks what stands when all places are looked at together.
fn settle(changes: &mut [Change], more_is_better: &[bool]) {
    let told: Vec<usize> = (0..changes.len()).filter(|at| changes[*at].p.is_some()).collect();
    let p: Vec<f64> = told.iter().filter_map(|at| changes[*at].p).collect();
    for (at, stands) in told.iter().zip(discoveries(&p, FALSE_ALARMS)) {
        let Some([ratio, low, high]) = changes[*at].ratio else { continue };
        if stands && (low > 1.0 || high < 1.0) && (ratio - 1.0).abs() >= WORTH_NAMING {
            let better = (ratio > 1.0) == more_is_better[*at];
            changes[*at].outcome = if better { Outcome::Better } else { Outcome::Worse };
        }
    }
}

fn settings(first: &Survey, second: &Survey) -> Vec<[String; 3]> {
    let all = |survey: &Survey| -> Vec<(String, String)> {
        let own = survey.settings.iter().map(|fact| (fact.name.clone(), fact.value.clone()));
        let hosts = survey.hosts.iter().flat_map(|host| {
            host.facts.iter().map(move |fact| (format!("{}: {}", host.name, fact.name), fact.value.clone()))
        });
        own.chain(hosts).collect()
    };
    let (before, after) = (all(first), all(second));
    let value = |list: &[(String, String)], name: &str| {
        list.iter().find(|(n, _)| n == name).map_or_else(|| "-".to_owned(), |(_, v)| v.clone())
    };
    let mut names: Vec<&String> = before.iter().chain(&after).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let rows = names.into_iter().map(|name| [name.clone(), value(&before, name), value(&after, name)]);
    rows.filter(|[_, before, after]| before != after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::model::{FORMAT, Fact, Layer, LayerId, MemberResult, Point, Verdict};

    /// 30 places of a curve and four latencies; those of the list changed by a factor.
    fn survey(draw: &mut Draw, changed: &[(usize, f64)]) -> Survey {
        let factor = |at: usize| changed.iter().find(|(place, _)| *place == at).map_or(1.0, |(_, f)| *f);
        let mut samples = |middle: f64| (0..5).map(|_| draw.noisy(middle, 0.05)).collect::<Vec<f64>>();
        let points = (0..30).map(|at| Point { x: at as f64, samples: samples(100.0 * factor(at)) }).collect();
        let members = (30..34)
            .map(|at| MemberResult {
                name: format!("m{at}"),
                samples: samples(20.0 * factor(at)),
                outlier: None,
            })
            .collect();
        let text = String::new;
        let curve = Curve {
            id: "clients.write.n-n".into(),
            title: text(),
            unit: "MB/s".into(),
            axis: "processes".into(),
            points,
            command: text(),
        };
        let side = SideBySide {
            id: "network.latency.each".into(),
            title: text(),
            unit: "us".into(),
            more_is_better: false,
            members,
            command: text(),
        };
        Survey {
            format: FORMAT,
            title: text(),
            version: text(),
            started: text(),
            seconds: 0.0,
            preset: text(),
            commands: vec![],
            hosts: vec![],
            settings: vec![Fact { name: "chunk size".into(), value: factor(0).to_string() }],
            parts: vec![],
            layers: vec![Layer {
                id: LayerId::Clients,
                about: text(),
                curves: vec![curve],
                sides: vec![side],
            }],
            waterfalls: vec![],
            verdict: Verdict { headline: text(), culprit: None, limits: vec![] },
            remarks: vec![],
        }
    }

    /// Goal: two surveys of the same system differ in nothing, but for a rare family with a false alarm.
    #[test]
    fn nothing_changed() {
        let mut draw = Draw::new(31);
        let alarmed = (0..200)
            .filter(|_| {
                let found = compare(&survey(&mut draw, &[]), &survey(&mut draw, &[]));
                found.count(Outcome::Better) + found.count(Outcome::Worse) > 0
            })
            .count();
        assert!(alarmed <= 20, "{alarmed} of 200");
    }

    /// Goal: what changed is marked in its direction, a latency that fell as better, and settings are shown.
    #[test]
    fn changes_are_marked() {
        let mut draw = Draw::new(32);
        let changed = [(0, 0.7), (7, 1.4), (31, 0.5), (33, 2.0)];
        let mut seen = [0; 4];
        for _ in 0..100 {
            let found = compare(&survey(&mut draw, &[]), &survey(&mut draw, &changed));
            let right = [Outcome::Worse, Outcome::Better, Outcome::Better, Outcome::Worse];
            for (at, (place, _)) in changed.iter().enumerate() {
                seen[at] += u32::from(found.changes[*place].outcome == right[at]);
            }
            assert_eq!(found.settings, [["chunk size", "1", "0.7"].map(str::to_owned)]);
        }
        assert!(seen.iter().all(|n| *n >= 98), "{seen:?}");
    }

    /// Goal: single samples and places that one survey lacks are said, not judged.
    #[test]
    fn what_cannot_be_told() {
        let mut draw = Draw::new(33);
        let (first, mut second) = (survey(&mut draw, &[]), survey(&mut draw, &[]));
        let points = &mut second.layers[0].curves[0].points;
        points[0].samples.truncate(1);
        points.pop();
        let found = compare(&first, &second);
        assert_eq!(found.changes[0].outcome, Outcome::Unknown);
        assert_eq!(found.alone, ["first only: clients.write.n-n, processes = 29"]);
        assert_eq!(found.changes.len(), 33);
    }
}
