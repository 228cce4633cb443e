//! Searches settings by measurement, and keeps one only when it is better beyond doubt.
//!
//! First every candidate is measured against the present setting in short rounds, the worse half drops out after
//! each; then the best one is measured against the present setting again, in pairs that take turns, and only
//! those fresh numbers decide. So the luck of having been picked among many does not count.

mod decide;
mod search;

pub use decide::{Decision, decide};
pub use search::{Next, Outcome, Search, Settings};

/// Measures one candidate, once.
pub trait Measure {
    /// What is better is larger. `candidate` counts from 0; 0 is the present setting.
    fn measure(&mut self, candidate: usize) -> Result<f64, String>;
}

/// Runs a search to its end.
pub fn run(search: &mut Search, measure: &mut dyn Measure) -> Result<Outcome, String> {
    loop {
        match search.next() {
            Next::Measure(candidate) => search.told(measure.measure(candidate)?),
            Next::Done(outcome) => return Ok(outcome),
        }
    }
}
