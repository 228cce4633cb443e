//! Measuring members side by side: each once in every round, so that what disturbs the machine disturbs all alike.

use skep_base::Outcome;
use skep_survey::model::{MemberResult, SideBySide};

/// Whoever seems to lag, but reaches more than this share of its likes, is looked at longer.
pub const CLEAR: f64 = 0.12;
/// So many times as long.
const LONGER: usize = 4;

/// Members with their samples, and who could not be measured, and why. `measure` gives the figures of one member, one for
/// each of the side-by-side measurements that are made at once (write and read). A member that fails is left out.
/// When `doubtful` says that a member seems to lag, but may be unlucky, more rounds are added.
pub fn side_by_side(
    names: &[String],
    rounds: usize,
    figures: usize,
    mut measure: impl FnMut(usize) -> Outcome<Vec<f64>>,
    doubtful: impl Fn(usize, &[MemberResult]) -> bool,
) -> (Vec<Vec<MemberResult>>, Vec<(String, String)>) {
    let mut samples: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); figures]; names.len()];
    let mut failed: Vec<Option<String>> = vec![None; names.len()];
    let sides = |samples: &[Vec<Vec<f64>>], failed: &[Option<String>]| -> Vec<Vec<MemberResult>> {
        let whole: Vec<usize> = (0..names.len()).filter(|at| failed[*at].is_none()).collect();
        let member = |at: &usize, figure: usize| MemberResult {
            name: names[*at].clone(),
            samples: samples[*at][figure].clone(),
            outlier: None,
        };
        (0..figures).map(|figure| whole.iter().map(|at| member(at, figure)).collect()).collect()
    };
    for round in 0..rounds * LONGER {
        let sure = || {
            let sides = sides(&samples, &failed);
            !sides.iter().enumerate().any(|(figure, members)| doubtful(figure, members))
        };
        if round == rounds && sure() {
            break;
        }
        for step in 0..names.len() {
            // Back and forth: nobody is always the first, and a slow drift hits all alike.
            let at = if round % 2 == 0 { step } else { names.len() - 1 - step };
            if failed[at].is_some() {
                continue;
            }
            match measure(at) {
                Ok(values) => {
                    samples[at].iter_mut().zip(values).for_each(|(all, value)| all.push(value));
                }
                Err(failure) => failed[at] = Some(failure.to_string()),
            }
        }
    }
    let why = names.iter().cloned().zip(failed.iter().cloned());
    (sides(&samples, &failed), why.filter_map(|(name, why)| Some((name, why?))).collect())
}

/// As [`may_lag`], of members of several sets: those of one set are likes of each other only.
pub fn any_may_lag<'a>(sets: impl IntoIterator<Item = &'a [String]>, members: &[MemberResult]) -> bool {
    let chosen = |set: &[String]| -> Vec<MemberResult> {
        members.iter().filter(|member| set.contains(&member.name)).cloned().collect()
    };
    sets.into_iter().any(|set| may_lag(&chosen(set), true))
}

/// Members of which one seems to lag, and not by so much that chance cannot be why.
pub fn may_lag(members: &[MemberResult], more_is_better: bool) -> bool {
    skep_survey::lag::laggards(&unnamed(members, more_is_better)).iter().any(|lag| lag.share > CLEAR)
}

/// As [`may_lag`], of paths between nodes.
pub fn may_be_slow(members: &[MemberResult], more_is_better: bool) -> bool {
    skep_survey::pairs::slow(&unnamed(members, more_is_better)).iter().any(|slow| slow.share() > CLEAR)
}

fn unnamed(members: &[MemberResult], more_is_better: bool) -> SideBySide {
    SideBySide {
        id: String::new(),
        title: String::new(),
        unit: String::new(),
        more_is_better,
        members: members.to_vec(),
        command: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::Failure;

    /// Goal: every member is measured once a round, in turning order; one that fails is left out and told.
    #[test]
    fn rounds() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let mut order = Vec::new();
        let measure = |at| {
            order.push(at);
            if at == 1 && order.len() > 4 { Err(Failure::new("gone")) } else { Ok(vec![1.0, 2.0]) }
        };
        let (sides, failed) = side_by_side(&names, 3, 2, measure, |_, _| false);
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 2]);
        assert_eq!(failed, [("b".to_owned(), "gone".to_owned())]);
        let shown: Vec<_> = sides[1].iter().map(|m| (m.name.as_str(), m.samples.len())).collect();
        assert_eq!(shown, [("a", 3), ("c", 3)]);
    }

    /// Goal: whoever may be unlucky is looked at four times as long; whoever is far behind is not.
    #[test]
    fn doubt() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        for (slow, rounds) in [(0.5, 20), (0.05, 5), (1.0, 5)] {
            let measure = |at| Ok(vec![if at == 2 { 100.0 * slow } else { 100.0 }]);
            let (sides, _) = side_by_side(&names, 5, 1, measure, |_, members| may_lag(members, true));
            assert_eq!(sides[0][0].samples.len(), rounds, "{slow}");
        }
    }
}
