//! The most that flows carry together through the components that they share.
//!
//! Flows that meet in a component could be cut in proportion to what each brings. Then a drive that gets faster takes
//! from its neighbours, and where a file waits for its slowest target, or where a neighbour had another way to go, the
//! system would become slower by it. So what flows carry is the best they can do together: more of anything only
//! widens what is possible, and never takes away.

/// Parts of a coefficient smaller than this are rounding.
const ROUNDING: f64 = 1e-9;
/// Exchanges after which the best so far is taken; as many as there are flows and components is usual.
const EXCHANGES: usize = 100_000;

/// Flows, and components that each pass so much of some of them.
#[derive(Debug, Clone)]
pub struct Shared {
    /// What one unit of each flow counts.
    weights: Vec<f64>,
    /// How much of a component one unit of each flow takes, and what it passes.
    components: Vec<(Vec<f64>, f64)>,
}

impl Shared {
    /// Flows, each with what one unit of it counts.
    pub fn new(weights: Vec<f64>) -> Self {
        Self { weights, components: Vec::new() }
    }

    /// A component of which one unit of each flow takes so much.
    pub fn component(&mut self, takes: Vec<f64>, passes: f64) {
        let largest = takes.iter().copied().fold(0.0, f64::max);
        if largest > 0.0 {
            let takes = takes.into_iter().map(|part| part / largest).collect();
            self.components.push((takes, passes / largest));
        }
    }

    /// The most; `None` when nothing limits one of the flows.
    pub fn most(mut self) -> Option<f64> {
        // The simplex method. All flows at nothing is possible, so it starts there; flows count up from 0, what is
        // left of the components after them, and of those that would help always the first is taken, which ends.
        let flows = self.weights.len();
        let mut outside: Vec<usize> = (0..flows).collect();
        let mut inside: Vec<usize> = (flows..flows + self.components.len()).collect();
        let least = ROUNDING * self.weights.iter().copied().fold(0.0, f64::max);
        let mut sum = 0.0;
        for _ in 0..EXCHANGES {
            let helps = (0..flows).filter(|&column| self.weights[column] > least);
            let Some(column) = helps.min_by_key(|&column| outside[column]) else { break };
            let row = self.first_to_fill(column, &inside)?;
            sum += self.exchange(row, column);
            std::mem::swap(&mut inside[row], &mut outside[column]);
        }
        debug_assert!(
            self.weights.iter().all(|weight| *weight <= least),
            "{EXCHANGES} exchanges, and some flow could still grow: {sum} is less than the most"
        );
        Some(sum)
    }

    /// The component that a growing flow fills first.
    fn first_to_fill(&self, column: usize, inside: &[usize]) -> Option<usize> {
        let takes = self.components.iter().enumerate().filter(|(_, (takes, _))| takes[column] > ROUNDING);
        let ratio = |row: usize| self.components[row].1 / self.components[row].0[column];
        takes
            .map(|(row, _)| row)
            .min_by(|&a, &b| ratio(a).total_cmp(&ratio(b)).then(inside[a].cmp(&inside[b])))
    }

    /// The flow grows until the component is full; what that adds to the sum.
    fn exchange(&mut self, row: usize, column: usize) -> f64 {
        let (mut takes, passes) = std::mem::take(&mut self.components[row]);
        let pivot = takes[column];
        takes[column] = 1.0;
        takes.iter_mut().for_each(|part| *part /= pivot);
        let grown = passes / pivot;
        for (others, left) in &mut self.components {
            // The one taken out is empty.
            let part = others.get(column).copied().unwrap_or(0.0);
            if part != 0.0 {
                subtract(others, &takes, part, column);
                *left = (*left - part * grown).max(0.0);
            }
        }
        let weight = self.weights[column];
        subtract(&mut self.weights, &takes, weight, column);
        self.components[row] = (takes, grown);
        weight * grown
    }
}

fn subtract(from: &mut [f64], takes: &[f64], part: f64, column: usize) {
    from[column] = 0.0;
    from.iter_mut().zip(takes).for_each(|(other, taken)| *other -= part * taken);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(weights: &[f64], components: &[(&[f64], f64)]) -> Option<f64> {
        let mut shared = Shared::new(weights.to_vec());
        components.iter().for_each(|(takes, passes)| shared.component(takes.to_vec(), *passes));
        shared.most()
    }

    /// Goal: one flow passes its smallest component, several share one, and what nothing limits has no most.
    #[test]
    fn simple() {
        assert_eq!(most(&[1.0], &[(&[1.0], 3.0), (&[1.0], 2.0)]), Some(2.0));
        assert_eq!(
            most(&[1.0, 1.0], &[(&[1.0, 0.0], 3.0), (&[0.0, 1.0], 3.0), (&[1.0, 1.0], 5.0)]),
            Some(5.0)
        );
        assert_eq!(most(&[1.0, 1.0], &[(&[1.0, 0.0], 3.0)]), None);
        assert_eq!(most(&[], &[]), Some(0.0));
    }

    /// Goal: flows that share two components crosswise carry what they can: A through c and s, B through c alone, and
    /// s passes little, so B takes what A leaves of c.
    #[test]
    fn crosswise() {
        let a_drives = 8.0;
        let found = most(
            &[1.0, 1.0],
            &[(&[1.0, 0.0], a_drives), (&[0.0, 1.0], 4.0), (&[1.0, 1.0], 4.0), (&[1.0, 0.0], 1.0)],
        );
        assert_eq!(found, Some(4.0));
    }

    /// Goal: an exchange that must be taken back is: the first flow is worth less than those it displaces.
    #[test]
    fn taken_back() {
        let found = most(&[1.0, 1.0, 1.0], &[(&[1.0, 1.0, 0.0], 2.0), (&[1.0, 0.0, 1.0], 2.0)]);
        assert_eq!(found, Some(4.0));
    }

    /// Goal: what flows carry through two layers of components, each flow through one of each, is the smallest cut: of
    /// components that are cut, and flows that pass none of these.
    #[test]
    fn as_much_as_the_smallest_cut() {
        let mut state = 1u64;
        let mut below = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..500 {
            // Components 0 and 1, then 2 and 3, then 4, which all flows pass.
            let passes: Vec<f64> = (0..5).map(|_| 1.0 + below(30) as f64).collect();
            let flows: Vec<(f64, [usize; 3])> = (0..5)
                .map(|_| (1.0 + below(9) as f64, [below(2) as usize, 2 + below(2) as usize, 4]))
                .collect();
            let mut shared = Shared::new(vec![1.0; flows.len()]);
            for at in 0..flows.len() {
                shared.component((0..flows.len()).map(|o| f64::from(o == at)).collect(), flows[at].0);
            }
            for (at, most) in passes.iter().enumerate() {
                let on_it = |(_, through): &(f64, [usize; 3])| f64::from(through.contains(&at));
                shared.component(flows.iter().map(on_it).collect(), *most);
            }
            let cut = |set: u32| {
                let is_cut = |at: usize| set & (1 << at) != 0;
                let whole: f64 = (0..5).filter(|at| is_cut(*at)).map(|at| passes[at]).sum();
                let rest = flows.iter().filter(|(_, through)| !through.iter().any(|at| is_cut(*at)));
                whole + rest.map(|(rate, _)| rate).sum::<f64>()
            };
            let smallest = (0..32).map(cut).fold(f64::INFINITY, f64::min);
            let found = shared.most().unwrap();
            assert!((found - smallest).abs() < 1e-9, "{found}, not {smallest}: {flows:?} {passes:?}");
        }
    }
}
