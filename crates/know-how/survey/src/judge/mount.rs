//! The processor time of the mount itself. It has no likes, so its control group alone tells: what holds it back while
//! it works is wrong whatever else the machine does.

use super::Finding;
use crate::ids::{MOUNT_FREE, MOUNT_SHARE};
use crate::model::{Culprit, Evidence, Layer, LayerId};
use skep_bench::significance::median;

/// Held back for more than the rest of this share of the time, a mount is named.
const FREE_ENOUGH: f64 = 0.7;
const ADVICE: &str =
    "look at CPUQuota= or cpu.max of the control group that the mount runs in, and of those above it";

/// Mounts that their control groups hold back.
pub fn held_back(layers: &mut [Layer]) -> Vec<Finding> {
    let middle = |samples: &[f64]| median(samples).filter(|value| value.is_finite());
    let shares: Vec<(String, f64)> = layers
        .iter()
        .flat_map(|layer| &layer.sides)
        .filter(|side| side.id == MOUNT_SHARE)
        .flat_map(|side| &side.members)
        .filter_map(|member| Some((member.name.clone(), middle(&member.samples)?)))
        .collect();
    let mut found = Vec::new();
    for side in layers.iter_mut().flat_map(|layer| &mut layer.sides).filter(|side| side.id == MOUNT_FREE) {
        for member in &mut side.members {
            let Some(free) = middle(&member.samples).filter(|free| *free < FREE_ENOUGH) else { continue };
            let brief = format!(
                "its control group holds it back for {:.0} % of the time in which it works",
                100.0 * (1.0 - free)
            );
            let row = |what: &str, value: f64| Evidence {
                what: format!("{what}: {}", member.name),
                value,
                expected: 1.0,
                unit: "of the time".to_owned(),
            };
            let share = shares.iter().find(|(name, _)| *name == member.name);
            let share = share.map(|(_, share)| row("threads ran while they were ready", *share));
            let evidence =
                [row("not held back by its control group", free)].into_iter().chain(share).collect();
            member.outlier = Some(brief.clone());
            found.push(Finding {
                culprit: Culprit {
                    layer: LayerId::Processor,
                    member: member.name.clone(),
                    finding: brief.clone(),
                    evidence,
                    advice: ADVICE.to_owned(),
                },
                brief,
                share: free,
                at_most: member.samples.iter().copied().fold(free, f64::max),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MemberResult, SideBySide};

    fn layers(free: f64) -> Vec<Layer> {
        let side = |id: &str, value: f64| SideBySide {
            id: id.to_owned(),
            title: String::new(),
            unit: "of the time".to_owned(),
            more_is_better: true,
            members: vec![MemberResult {
                name: "mount of lab".to_owned(),
                samples: vec![value, value * 1.05, value * 0.95],
                outlier: None,
            }],
            command: String::new(),
        };
        let sides = vec![side(MOUNT_SHARE, 0.3), side(MOUNT_FREE, free)];
        vec![Layer { id: LayerId::Client, about: String::new(), curves: vec![], sides }]
    }

    /// Goal: a mount in a quota of a fifth is named with layer and numbers; one on a busy machine is not.
    #[test]
    fn a_mount_in_a_quota_is_named() {
        let mut held = layers(0.2);
        let found = held_back(&mut held);
        assert_eq!(found.len(), 1);
        let culprit = &found[0].culprit;
        assert_eq!((culprit.layer, culprit.member.as_str()), (LayerId::Processor, "mount of lab"));
        assert!(culprit.finding.contains("80 % of the time"), "{}", culprit.finding);
        assert_eq!(culprit.evidence.len(), 2);
        assert!(held[0].sides[1].members[0].outlier.is_some());
        assert!(held_back(&mut layers(0.95)).is_empty());
    }
}
