//! Measuring members side by side: each once in every round, so that what disturbs the machine disturbs all alike.

use crate::admin::Outcome;
use skep_survey::model::MemberResult;

/// Members with their samples, and what could not be measured. `measure` gives the figures of one member, one for
/// each of the side-by-side measurements that are made at once (write and read). A member that fails is left out.
pub fn side_by_side(
    names: &[String],
    rounds: usize,
    figures: usize,
    mut measure: impl FnMut(usize) -> Outcome<Vec<f64>>,
) -> (Vec<Vec<MemberResult>>, Vec<String>) {
    let mut samples: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); figures]; names.len()];
    let mut failed: Vec<Option<String>> = vec![None; names.len()];
    for round in 0..rounds {
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
                Err(failure) => failed[at] = Some(format!("{}: left out: {failure}", names[at])),
            }
        }
    }
    let side = |figure: usize| {
        let whole = (0..names.len()).filter(|at| failed[*at].is_none());
        let member = |at: usize| MemberResult {
            name: names[at].clone(),
            samples: samples[at][figure].clone(),
            outlier: None,
        };
        whole.map(member).collect()
    };
    ((0..figures).map(side).collect(), failed.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Failure;

    /// Goal: every member is measured once a round, in turning order; one that fails is left out and named.
    #[test]
    fn rounds() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let mut order = Vec::new();
        let (sides, failed) = side_by_side(&names, 3, 2, |at| {
            order.push(at);
            if at == 1 && order.len() > 4 { Err(Failure::new("gone")) } else { Ok(vec![1.0, 2.0]) }
        });
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 2]);
        assert_eq!(failed, ["b: left out: gone"]);
        let shown: Vec<_> = sides[1].iter().map(|m| (m.name.as_str(), m.samples.len())).collect();
        assert_eq!(shown, [("a", 3), ("c", 3)]);
    }
}
