//! The network: which node is slow, when what is measured is pairs of nodes.
//!
//! A node is slow in one direction when even the best of its pairs in that direction lags behind the pairs that
//! it has no part in. What is slow without a node that explains it is one path. Between two nodes there are no such
//! pairs: a path has only the way back to be compared with, and a node cannot be told from its path.

use crate::lag::{Behind, Lag, behind, goodness, laggards};
use crate::model::{MemberResult, SideBySide};
use skep_bench::significance::median;
use std::collections::BTreeSet;

/// Between the names of a pair.
pub const ARROW: &str = " -> ";
/// A node with more peers may have some good pairs and still be slow: only its better quarter is judged.
const QUARTER: usize = 4;

/// What is slow in a network.
#[derive(Debug, Clone, PartialEq)]
pub enum Slow {
    /// All that one node sends, receives, or both.
    Node {
        node: String,
        /// Share that its pairs reach when it sends, if they lag.
        sends: Option<f64>,
        /// Share that its pairs reach when it receives, if they lag.
        receives: Option<f64>,
        /// What it reaches at most, as far as chance can tell.
        at_most: f64,
        /// Median of its pairs.
        value: f64,
        /// Median of the pairs without it.
        expected: f64,
    },
    /// One path.
    Pair(Lag),
}

impl Slow {
    /// Share of what it should be.
    pub fn share(&self) -> f64 {
        match self {
            Slow::Node { sends, receives, .. } => sends.unwrap_or(1.0).min(receives.unwrap_or(1.0)),
            Slow::Pair(lag) => lag.share,
        }
    }

    /// What it reaches at most, as far as chance can tell.
    pub fn at_most(&self) -> f64 {
        match self {
            Slow::Node { at_most, .. } => *at_most,
            Slow::Pair(lag) => lag.at_most,
        }
    }
}

fn ends(member: &MemberResult) -> Option<(&str, &str)> {
    member.name.split_once(ARROW)
}

/// The ends of all paths.
pub fn nodes(side: &SideBySide) -> BTreeSet<&str> {
    side.members.iter().filter_map(ends).flat_map(|(a, b)| [a, b]).collect()
}

/// What is slow, the worst first: nodes, or paths when no node explains them.
pub fn slow(side: &SideBySide) -> Vec<Slow> {
    let mut found: Vec<Slow> = nodes(side).into_iter().filter_map(|node| slow_node(side, node)).collect();
    if found.is_empty() {
        found = laggards(side).into_iter().map(Slow::Pair).collect();
    }
    found.sort_by(|a, b| a.share().total_cmp(&b.share()));
    found
}

fn slow_node(side: &SideBySide, node: &str) -> Option<Slow> {
    let chosen = |choose: &dyn Fn(&str, &str) -> bool| -> Vec<&MemberResult> {
        let fits = |m: &&MemberResult| ends(m).is_some_and(|(a, b)| choose(a, b));
        side.members.iter().filter(fits).collect()
    };
    let others = chosen(&|a, b| a != node && b != node);
    let good = |m: &MemberResult| goodness(&m.samples, side.more_is_better);
    let rows: Vec<Vec<f64>> = others.iter().map(|m| good(m)).collect();
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    let judge = |own: Vec<&MemberResult>| -> Option<Behind> {
        let best = better_quarter(&own.iter().map(|m| good(m)).collect::<Vec<_>>())?;
        behind(&best, &rows)
    };
    let sends = judge(chosen(&|a, b| a == node && b != node));
    let receives = judge(chosen(&|a, b| b == node && a != node));
    if sends.is_none() && receives.is_none() {
        return None;
    }
    let all = |members: &[&MemberResult]| {
        median(&members.iter().flat_map(|m| m.samples.clone()).collect::<Vec<_>>())
    };
    let slow = match (sends, receives) {
        (Some(_), None) => chosen(&|a, _| a == node),
        (None, Some(_)) => chosen(&|_, b| b == node),
        _ => chosen(&|a, b| a == node || b == node),
    };
    let at_most = [sends, receives].into_iter().flatten().map(|way| way.at_most).fold(1.0, f64::min);
    let [sends, receives] = [sends, receives].map(|way| way.map(|way| way.share));
    let (value, expected) = (all(&slow)?, all(&others)?);
    Some(Slow::Node { node: node.to_owned(), sends, receives, at_most, value, expected })
}

/// Round by round what the best quarter of the pairs reaches at least; of up to four pairs that is the best.
fn better_quarter(rows: &[Vec<f64>]) -> Option<Vec<f64>> {
    let rounds = rows.iter().map(Vec::len).min()?;
    let at = (rows.len() - 1) / QUARTER;
    let of_round = |round: usize| {
        let mut values: Vec<f64> = rows.iter().map(|row| row[round]).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        values[at]
    };
    Some((0..rounds).map(of_round).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;

    /// All pairs of `nodes`, each scaled by what `slowed` says.
    fn pairs(draw: &mut Draw, nodes: usize, noise: f64, slowed: impl Fn(usize, usize) -> f64) -> SideBySide {
        let mut members: Vec<MemberResult> = Vec::new();
        let names: Vec<(usize, usize)> =
            (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
        for (a, b) in &names {
            members.push(MemberResult { name: format!("n{a}{ARROW}n{b}"), samples: vec![], outlier: None });
        }
        for _ in 0..4 {
            let machine = draw.noisy(900.0, 0.4);
            for (member, (a, b)) in members.iter_mut().zip(&names) {
                member.samples.push(draw.noisy(machine, noise) * slowed(*a, *b));
            }
        }
        let text = String::new();
        SideBySide {
            id: text.clone(),
            title: text.clone(),
            unit: text.clone(),
            more_is_better: true,
            members,
            command: text,
        }
    }

    fn is_node(found: &[Slow], at: usize) -> bool {
        matches!(found, [Slow::Node { node, .. }] if *node == format!("n{at}"))
    }

    /// Goal: the node is named when all it sends, all it receives, or both are slow; with 3 to 9 nodes.
    #[test]
    fn slow_nodes() {
        let mut draw = Draw::new(3);
        let mut missed = 0;
        for run in 0..300 {
            let nodes = 3 + run % 7;
            let slow = draw.below(nodes);
            let way = run % 3;
            let side = pairs(&mut draw, nodes, 0.15, |a, b| {
                if (way != 1 && a == slow) || (way != 0 && b == slow) { 0.15 } else { 1.0 }
            });
            let found = super::slow(&side);
            let right = match found.first() {
                Some(Slow::Node { sends, receives, .. }) => {
                    sends.is_some() == (way != 1) && receives.is_some() == (way != 0)
                }
                _ => false,
            };
            missed += usize::from(!is_node(&found, slow) || !right);
        }
        assert!(missed <= 3, "{missed} of 300");
    }

    /// Goal: one slow path is that path's fault, not its ends'.
    #[test]
    fn slow_paths() {
        let mut draw = Draw::new(4);
        for nodes in 3..9 {
            let side = pairs(&mut draw, nodes, 0.1, |a, b| if (a, b) == (1, 2) { 0.1 } else { 1.0 });
            let found = slow(&side);
            let Some(Slow::Pair(lag)) = found.first() else { panic!("{found:?}") };
            assert_eq!((side.members[lag.at].name.as_str(), found.len()), ("n1 -> n2", 1));
        }
    }

    /// Goal: a healthy network, noisy as it may be, has no culprit; nor has one with one pair or none.
    #[test]
    fn healthy() {
        let mut draw = Draw::new(5);
        let blamed: usize =
            (0..300).map(|run| slow(&pairs(&mut draw, 2 + run % 8, 0.15, |_, _| 1.0)).len().min(1)).sum();
        assert!(blamed <= 1, "{blamed} of 300");
        assert!(slow(&pairs(&mut draw, 0, 0.1, |_, _| 1.0)).is_empty());
    }
}
