//! Work below which no layer was measured: whether more processes still bring more. No layer can be named for it, so
//! all of it is told in one sentence.

use super::{DRIFT, best};
use crate::ids::RANDOM;
use crate::model::{Curve, Evidence, Layer, LayerId, Limit};
use skep_bench::significance::{median, ratio};

/// How many kinds of work are named in the sentence; all stand in the numbers.
const NAMED: usize = 3;

/// What is said of all that was measured over processes.
pub fn limit(layers: &[Layer]) -> Option<Limit> {
    let curves: Vec<&Curve> =
        layers.iter().flat_map(of_layer).filter(|curve| best(curve).is_some()).collect();
    let farthest =
        curves.iter().flat_map(|curve| curve.points.last()).map(|point| point.x).fold(0.0, f64::max);
    if curves.is_empty() {
        return None;
    }
    let growing: Vec<&Curve> = curves.iter().copied().filter(|curve| grows(curve)).collect();
    let range = match farthest <= 1.0 {
        true => "measured with one process only".to_owned(),
        false => format!("measured up to {farthest:.0} processes"),
    };
    let told = match growing.len() {
        0 => "no growth at the end that chance does not explain".to_owned(),
        count => {
            format!("more would bring more to {count} of {}: {}", curves.len(), names(&growing))
        }
    };
    Some(Limit {
        work: "Metadata and random access".to_owned(),
        layer: None,
        also: Vec::new(),
        finding: format!("{range}: {told}; no layer below was measured, so none is named"),
        evidence: curves.iter().filter_map(|curve| evidence(curve)).collect(),
    })
}

fn of_layer(layer: &Layer) -> impl Iterator<Item = &Curve> {
    let wanted = move |curve: &&Curve| {
        let random = layer.id == LayerId::Clients && curve.id.contains(RANDOM);
        (layer.id == LayerId::Metadata || random) && curve.axis == "processes"
    };
    layer.curves.iter().filter(wanted)
}

fn names(curves: &[&Curve]) -> String {
    let mut all: Vec<String> = curves.iter().take(NAMED).map(|curve| curve.title.clone()).collect();
    if curves.len() > NAMED {
        all.push(format!("{} more", curves.len() - NAMED));
    }
    all.join("; ")
}

/// Whether the last point is above all before it by more than chance and drift explain. One sample tells nothing.
fn grows(curve: &Curve) -> bool {
    let Some((last, before)) = curve.points.split_last() else { return false };
    let middle = |point: &&crate::model::Point| median(&point.samples).unwrap_or(0.0);
    let Some(highest) = before.iter().max_by(|a, b| middle(a).total_cmp(&middle(b))) else { return false };
    let more = middle(&last) >= DRIFT * middle(&highest);
    more && ratio(&highest.samples, &last.samples).is_some_and(|found| found.low > 1.0)
}

/// The best beside what as many processes would reach if each did as much as those of the first point.
fn evidence(curve: &Curve) -> Option<Evidence> {
    let first = curve.points.first()?;
    let (start, (at, most)) = (median(&first.samples)?, best(curve)?);
    let processes = if at == 1.0 { "process" } else { "processes" };
    let what = format!("{}, {at:.0} {processes}", curve.title);
    let times = if first.x > 0.0 { (at / first.x).max(1.0) } else { 1.0 };
    Some(Evidence { what, value: most, expected: start * times, unit: curve.unit.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Point;

    fn told(samples: &[&[f64]]) -> String {
        found(&[samples]).finding
    }

    fn found(all: &[&[&[f64]]]) -> Limit {
        let points = |samples: &[&[f64]]| {
            let each = samples.iter().enumerate();
            each.map(|(i, s)| Point { x: f64::from(1 << i), samples: s.to_vec() }).collect()
        };
        let curve = |(n, samples): (usize, &&[&[f64]])| Curve {
            id: format!("metadata.{n}"),
            title: format!("Work {n}"),
            unit: "operations/s".to_owned(),
            axis: "processes".to_owned(),
            points: points(samples),
            command: String::new(),
        };
        let curves = all.iter().enumerate().map(curve).collect();
        limit(&[Layer { id: LayerId::Metadata, about: String::new(), curves, sides: vec![] }]).unwrap()
    }

    /// Goal: growth is told when it is beyond noise, and not from samples that scatter as much, a single sample, or an
    /// end that an earlier point already reached. No layer is named.
    #[test]
    fn growth_beyond_noise() {
        const MORE: &str = "more would bring more to 1 of 1: Work 0";
        let steady: [&[f64]; 3] = [&[100.0, 101.0, 99.0], &[200.0, 202.0, 198.0], &[400.0, 404.0, 396.0]];
        assert!(
            told(&steady).starts_with(&format!("measured up to 4 processes: {MORE}")),
            "{}",
            told(&steady)
        );
        // Seen on two crowded processors.
        let crowded: [&[f64]; 4] = [
            &[2_223.0, 2_180.0, 2_301.0],
            &[2_292.0, 2_250.0, 2_401.0],
            &[2_289.0, 2_190.0, 2_455.0],
            &[3_237.0, 3_545.0, 2_526.0],
        ];
        let stopped: [&[f64]; 3] = [&[100.0, 101.0, 99.0], &[300.0, 303.0, 297.0], &[299.0, 301.0, 300.0]];
        let small: [&[f64]; 2] = [&[100.0, 101.0, 99.0], &[110.0, 111.0, 109.0]];
        let lone: [&[f64]; 2] = [&[100.0], &[200.0]];
        for none in [&crowded[..], &stopped, &small, &lone, &[&[5.0]], &[&[0.0], &[0.0]]] {
            assert!(told(none).contains("no growth at the end"), "{none:?}: {}", told(none));
        }
    }

    /// Goal: all kinds of work make one limit without a layer, with a short sentence and a number each.
    #[test]
    fn one_sentence_for_all() {
        let steady: [&[f64]; 2] = [&[100.0, 101.0, 99.0], &[200.0, 202.0, 198.0]];
        let all = found(&[&steady[..]; 9]);
        assert_eq!((all.layer, all.evidence.len()), (None, 9));
        assert!(all.finding.contains("9 of 9: Work 0; Work 1; Work 2; 6 more;"), "{}", all.finding);
        assert_eq!((all.evidence[0].value, all.evidence[0].expected), (200.0, 200.0));
        assert!(limit(&[]).is_none());
    }
}
