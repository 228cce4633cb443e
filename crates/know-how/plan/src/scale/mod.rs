//! Thousands of servers, tens of thousands of clients: where does it end?
//!
//! A discrete-event simulation ([`management`], [`namespace`], [`streams`], [`recovery`]) with the costs that
//! `cargo xtask calibrate` measured on Skep's own code and the intervals and limits that this code states
//! ([`calibration`]). What was not measured is in the [`scenario`], where it can be changed.

pub mod calibration;
pub mod costs;
pub mod management;
pub mod namespace;
mod queue;
mod random;
pub mod real;
pub mod recovery;
pub mod report;
pub mod saturation;
pub mod scenario;
pub mod station;
pub mod streams;

pub use calibration::Calibration;
pub use report::{Report, Step};
pub use scenario::{Cluster, Scenario};

/// Simulates every step of the scenario and finds what saturates.
pub fn run(calibration: &Calibration, scenario: &Scenario) -> Result<Report, String> {
    scenario.check()?;
    let mut sizes = scenario.servers.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let steps = sizes.into_iter().map(|servers| report::step(calibration, scenario, servers)).collect();
    Ok(Report {
        calibrated: format!(
            "{}, {}, Linux {}",
            calibration.provenance.date, calibration.provenance.processor, calibration.provenance.kernel
        ),
        scenario: scenario.clone(),
        steps,
        points: saturation::points(calibration, scenario),
    })
}
