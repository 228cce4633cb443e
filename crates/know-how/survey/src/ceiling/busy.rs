//! Processors of which nobody gets much: every other limit is one of a busy machine then, so this one comes first.

use crate::ids::{PROCESSOR_FREE, PROCESSOR_SHARE};
use crate::model::{Evidence, Layer, LayerId, Limit, SideBySide};
use skep_bench::significance::median;
use std::collections::BTreeMap;

/// A busy thread that is alone gets nearly all of a processor. When each gets less than this share, none is alone.
const CROWDED: f64 = 0.7;
/// Below this share of the time, the control groups hold the daemons back, and not other work.
const HELD: f64 = 0.9;

/// The limit that the processors are, when no daemon gets much of one.
pub fn limit(layers: &[Layer]) -> Option<Limit> {
    let share = middles(layers, PROCESSOR_SHARE);
    let by_share = |a: &(&&str, &f64), b: &(&&str, &f64)| a.1.total_cmp(b.1);
    let (least, most) = (share.iter().min_by(by_share)?, share.iter().max_by(by_share)?);
    if *most.1 >= CROWDED {
        return None;
    }
    let free = middles(layers, PROCESSOR_FREE);
    let held = !free.is_empty() && free.values().all(|free| *free < HELD);
    let why = match held {
        true => "their control groups hold them back (CPUQuota=, cpu.max)",
        false => "other work shares the processors",
    };
    let range = match (format!("{:.2}", least.1), format!("{:.2}", most.1)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    };
    let row = |(name, value): (&&str, &f64)| Evidence {
        what: format!("busy thread of {name}"),
        value: *value,
        expected: 1.0,
        unit: "of a processor".to_owned(),
    };
    let ends = if share.len() > 1 { vec![row(least), row(most)] } else { vec![row(least)] };
    Some(Limit {
        work: "All work".to_owned(),
        layer: Some(LayerId::Processor),
        also: Vec::new(),
        finding: format!(
            "a busy thread of each daemon got only {range} of a processor: {why}, so figures and limits are those of a \
             busy machine"
        ),
        evidence: ends,
    })
}

/// What each member shows in the middle.
fn middles<'a>(layers: &'a [Layer], id: &str) -> BTreeMap<&'a str, f64> {
    let sides = layers.iter().filter(|layer| layer.id == LayerId::Processor).flat_map(|layer| &layer.sides);
    let wanted = sides.filter(|side: &&SideBySide| side.id.starts_with(id));
    let member = |member: &'a crate::model::MemberResult| {
        let middle = median(&member.samples).filter(|value| value.is_finite())?;
        Some((member.name.as_str(), middle))
    };
    wanted.flat_map(|side| &side.members).filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemberResult;

    fn layers(share: &[f64], free: &[f64]) -> Vec<Layer> {
        let side = |id: &str, values: &[f64]| SideBySide {
            id: format!("{id}.storaged"),
            title: String::new(),
            unit: String::new(),
            more_is_better: true,
            members: values
                .iter()
                .enumerate()
                .map(|(n, v)| MemberResult { name: format!("d-{n}"), samples: vec![*v; 3], outlier: None })
                .collect(),
            command: String::new(),
        };
        let sides = vec![side(PROCESSOR_SHARE, share), side(PROCESSOR_FREE, free)];
        vec![Layer { id: LayerId::Processor, about: String::new(), curves: vec![], sides }]
    }

    /// Goal: little for everybody is a limit with its numbers and its reason; one daemon that gets what a thread can
    /// get shows that the processors are not crowded.
    #[test]
    fn nobody_gets_much() {
        let found = limit(&layers(&[0.37, 0.34, 0.35], &[1.0; 3])).unwrap();
        assert_eq!((found.layer, found.evidence.len()), (Some(LayerId::Processor), 2));
        assert!(found.finding.contains("only 0.34 to 0.37 of a processor: other work"), "{}", found.finding);
        assert_eq!(found.evidence[0].what, "busy thread of d-1");
        let held = limit(&layers(&[0.2, 0.2], &[0.2, 0.2])).unwrap();
        assert!(held.finding.contains("only 0.20 of a processor: their control groups"), "{}", held.finding);
        for fine in [&[0.97, 0.95, 0.99][..], &[0.3, 0.95], &[], &[f64::NAN]] {
            assert!(limit(&layers(fine, &[1.0])).is_none(), "{fine:?}");
        }
    }
}
