//! What a real mgmtd took, beside what its cost model says: how far the simulation may be trusted.
//!
//! The costs are the least of several runs in loops that keep their caches warm. `crates/hands/net/examples/mgmtd_swarm.rs`
//! puts a crowd before a real `skep mgmtd` on the same machine, quiet but for the two; its process took three to five
//! times as much. So everything about mgmtd's thread is shown twice.

use super::calibration::Calibration;
use super::costs::Costs;
use super::scenario::Scenario;

/// One run of the swarm.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Storage servers, with four targets each and ten mounts.
    pub servers: u32,
    /// Heartbeats, renewals and maps per second that it reached.
    pub reached: [f64; 3],
    /// Share of a core that mgmtd's process took.
    pub took: f64,
}

/// Runs of 2026-11-22, on the machine of the shipped calibration, of two the one that took more. The swarm was late in
/// the last one, by seconds.
pub const SWARM: [Observation; 3] = [
    Observation { servers: 100, reached: [100.0, 67.0, 77.0], took: 0.052 },
    Observation { servers: 300, reached: [300.0, 200.0, 230.0], took: 0.247 },
    Observation { servers: 600, reached: [588.0, 392.0, 452.0], took: 0.900 },
];

/// Share of a core that the cost model says for what the swarm reached.
pub fn simulated(calibration: &Calibration, observed: &Observation) -> f64 {
    let scenario = Scenario::default();
    let costs = Costs::at(calibration, &scenario, &scenario.cluster(observed.servers));
    let [heartbeats, renewals, maps] = observed.reached;
    let ticks = 1_000.0 / calibration.constants.tick_ms as f64;
    let us = heartbeats * costs.heartbeat + renewals * costs.renew + maps * costs.map + ticks * costs.tick;
    us / 1e6
}

/// What the real process took for 1 of the simulated one, by the largest crowd: where a thread is nearly always busy.
/// With few it takes more for each request, being woken for nearly every one, and that is nobody's bound. Of the
/// shipped calibration, because the swarm ran on its machine.
pub fn factor() -> Result<f64, String> {
    let calibration = Calibration::shipped()?;
    let largest = SWARM.last().ok_or("no crowd was observed")?;
    Ok(largest.took / simulated(&calibration, largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the page shows what was observed and what the cost model says today, and the factor between them.
    #[test]
    fn the_page_has_the_same_numbers() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/plan/scale.md");
        let page = std::fs::read_to_string(path).expect("docs/plan/scale.md");
        let calibration = Calibration::shipped().expect("the calibration");
        for observed in &SWARM {
            let model = simulated(&calibration, observed) * 100.0;
            let [heartbeats, renewals, maps] = observed.reached;
            let took = observed.took * 100.0;
            let row = format!("| {heartbeats}, {renewals}, {maps} | {took:.1} % | {model:.1} % |");
            assert!(page.contains(&row), "{row}");
        }
        let factor = factor().expect("a factor");
        assert!((2.0..4.0).contains(&factor), "{factor}");
        assert!(page.contains(&format!("a factor of {factor:.1}")), "{factor:.1}");
        let in_service = format!("a factor of {:.3} (`in_service`", calibration.metadata.in_service);
        assert!(page.contains(&in_service), "{in_service}");
    }
}
