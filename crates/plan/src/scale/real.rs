//! What a real mgmtd took, beside what its cost model says: how far the simulation may be trusted.
//!
//! The costs are the least of several runs in loops that keep their caches warm. `crates/net/examples/mgmtd_swarm.rs`
//! puts a crowd before a real `skep mgmtd` on the same machine; its process took two to three times as much, on a busy
//! machine. Until it was measured on a quiet one, everything about mgmtd's thread is shown twice.

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

/// Runs of 2026-11-21, on the machine of the shipped calibration; the swarm could not keep up in the last one.
pub const SWARM: [Observation; 3] = [
    Observation { servers: 100, reached: [100.0, 67.0, 75.0], took: 0.034 },
    Observation { servers: 300, reached: [300.0, 200.0, 230.0], took: 0.174 },
    Observation { servers: 600, reached: [127.0, 85.0, 173.0], took: 0.28 },
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

/// The most that the real process took for 1 of the simulated one: of the shipped calibration, because the swarm ran on
/// its machine.
pub fn factor() -> Result<f64, String> {
    let calibration = Calibration::shipped()?;
    let factors = SWARM.iter().map(|observed| observed.took / simulated(&calibration, observed));
    Ok(factors.fold(1.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the page shows what was observed and what the cost model says today, and the factor between them.
    #[test]
    fn the_page_has_the_same_numbers() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan/scale.md");
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
