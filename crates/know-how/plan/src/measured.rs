//! What Skep's operations cost, for both `skep plan` and `skep plan scale`: one calibration, so that both say the same.

use crate::scale::Calibration;
use crate::scale::costs::Operation;
use crate::units::MIB;
use std::sync::LazyLock;

/// Who says so.
pub const SOURCE: &str = "measured, crates/know-how/plan/calibration.toml, as in `skep plan scale`";

/// Microseconds of metad for an open, a read and a close with one request in flight: docs/bench/profile.md, open-read
/// (own directory), beside `stat_measured` of the calibration.
const OPEN_READ_PROFILE: f64 = 65.7;

/// Microseconds of the program that writes and reads a MiB: docs/bench/profile.md, file per process, dev, load.
const LOAD_PROFILE: [f64; 2] = [31.0, 36.2];

/// Microseconds of one core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// A file created and closed.
    pub create: f64,
    pub stat: f64,
    /// The part of each operation on names that the group of the root directory has: every path begins there.
    pub at_root: f64,
    /// A file removed.
    pub remove: f64,
    /// A small file opened, read (its contents come with the open) and closed, without the bytes of its contents.
    pub open: f64,
    /// A byte of contents in an answer.
    pub answered_byte: f64,
    /// A read of 4 KiB.
    pub random_read: f64,
    /// A write of 4 KiB.
    pub random_write: f64,
    pub read_mib: f64,
    pub write_mib: f64,
    /// A MiB written, on the client: the mount and the program that writes.
    pub mount_write_mib: f64,
    /// A MiB read, on the client.
    pub mount_read_mib: f64,
}

static SHIPPED: LazyLock<Option<Measured>> = LazyLock::new(|| {
    // A test reads the calibration that is built in; without one nothing would be known of Skep.
    let calibration = Calibration::shipped().ok()?;
    Some(Measured {
        create: Operation::create(&calibration).whole(),
        stat: Operation::stat(&calibration).whole(),
        at_root: Operation::stat(&calibration).root,
        remove: Operation::unlink(&calibration).whole(),
        // Calibrated is what a stat costs; the two were measured side by side in the profile.
        open: Operation::stat(&calibration).whole() * OPEN_READ_PROFILE / calibration.metadata.stat_measured,
        answered_byte: calibration.socket.long_reply_per_mib / MIB,
        random_read: calibration.storage.random_read_4k,
        random_write: calibration.storage.random_write_4k,
        read_mib: calibration.storage.read_per_mib,
        write_mib: calibration.storage.write_per_mib,
        mount_write_mib: calibration.storage.mount_write_per_mib + LOAD_PROFILE[0],
        mount_read_mib: calibration.storage.mount_read_per_mib + LOAD_PROFILE[1],
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

/// How often a second something is done on names that takes so many microseconds of one thread, by so many threads that
/// share the names evenly. The root directory is on one of them, and its part of every operation stays there.
pub fn shared_per_second(us: f64, at_root: f64, threads: f64) -> f64 {
    per_second(at_root + (us - at_root) / threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;
    use crate::scale::Scenario;
    use crate::scale::namespace::{Place, demanded, simulate};

    /// Goal: `skep plan` and `skep plan scale` say the same: of one metadata server, whose thread is the limit of both; and of
    /// several servers and groups the rate at which the thread with the root directory has no time left. Processes that do
    /// as many operations as they can get no less, and more where their directories are not with the root.
    #[test]
    fn both_commands_say_the_same() {
        let text = crate::systems::system("example").unwrap().text;
        let calibration = Calibration::shipped().unwrap();
        for (servers, groups) in [(1, 1), (1, 4), (2, 2), (2, 8)] {
            let words =
                format!("metadata_servers = {servers}\nmetadata_groups = {groups}\nsoftware = \"skep\"");
            let text = text.replacen("software = \"skep\"", &words, 1);
            let planned =
                crate::forward::forecast(&Hardware::from_toml("x", &text).unwrap()).unwrap().metadata;
            let scenario =
                Scenario { metadata_servers: servers, metadata_groups: groups, ..Scenario::default() };
            let cluster = scenario.cluster(100);
            let (creates, stats) = (planned.creates.unwrap(), planned.stats.unwrap());
            for (planned, operation, of_each) in [
                (&creates, Operation::create(&calibration), [1.0, 0.0]),
                (&stats, Operation::stat(&calibration), [0.0, 1.0]),
            ] {
                let [creates, stats] = of_each.map(|part| part * planned.value / cluster.clients as f64);
                let all_of_it =
                    Scenario { creates_per_client: creates, stats_per_client: stats, ..scenario.clone() };
                let needed = demanded(&calibration, &all_of_it, &cluster);
                assert!((needed - 1.0).abs() < 1e-9, "{servers} x {groups}: {planned:?} {needed}");
                let simulated =
                    simulate(&calibration, &scenario, &cluster, &operation, Place::Own).per_second;
                let ratio = simulated / planned.value;
                let most = if servers * groups == 1 { 1.03 } else { f64::INFINITY };
                assert!((0.97..most).contains(&ratio), "{servers} x {groups}: {planned:?} {simulated}");
                assert!(planned.why.contains("calibration.toml"), "{}", planned.why);
            }
        }
    }
}
