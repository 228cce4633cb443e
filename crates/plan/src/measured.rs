//! What Skep's operations cost, for both `skep plan` and `skep plan scale`: one calibration, so that both say the same.

use crate::scale::Calibration;
use crate::scale::costs::Operation;
use std::sync::LazyLock;

/// Who says so.
pub const SOURCE: &str = "measured, crates/plan/calibration.toml, as in `skep plan scale`";

/// Microseconds of one core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// A file created and closed.
    pub create: f64,
    /// A stat.
    pub stat: f64,
    /// A file removed.
    pub remove: f64,
    /// A read of 4 KiB.
    pub random_read: f64,
    /// A write of 4 KiB.
    pub random_write: f64,
    /// A MiB read.
    pub read_mib: f64,
    /// A MiB written.
    pub write_mib: f64,
}

static SHIPPED: LazyLock<Option<Measured>> = LazyLock::new(|| {
    // A test reads the calibration that is built in; without one nothing would be known of Skep.
    let calibration = Calibration::shipped().ok()?;
    Some(Measured {
        create: Operation::create(&calibration).whole(),
        stat: Operation::stat(&calibration).whole(),
        remove: Operation::unlink(&calibration).whole(),
        random_read: calibration.storage.random_read_4k,
        random_write: calibration.storage.random_write_4k,
        read_mib: calibration.storage.read_per_mib,
        write_mib: calibration.storage.write_per_mib,
    })
});

/// Of the calibration that this program was built with.
pub fn shipped() -> Option<Measured> {
    *SHIPPED
}

/// How often a second something is done that takes so many microseconds.
pub fn per_second(us: f64) -> f64 {
    1e6 / us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;
    use crate::scale::{Scenario, run};

    /// Goal: `skep plan` and `skep plan scale` say the same of one metadata server, whose thread is the limit of both.
    #[test]
    fn both_commands_say_the_same() {
        let text = crate::systems::system("example").unwrap().text;
        let metadata = crate::forward::forecast(&Hardware::from_toml("x", text).unwrap()).unwrap().metadata;
        let scenario = Scenario { servers: vec![100], ..Scenario::default() };
        let report = run(&Calibration::shipped().unwrap(), &scenario).unwrap();
        for (planned, simulated) in [
            (metadata.creates.unwrap(), report.steps[0].creates_per_s),
            (metadata.stats.unwrap(), report.steps[0].stats_per_s),
        ] {
            let ratio = simulated / planned.value;
            assert!((0.97..1.03).contains(&ratio), "{planned:?} {simulated}");
            assert!(planned.why.contains("calibration.toml"), "{}", planned.why);
        }
    }
}
