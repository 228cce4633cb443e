//! Registry and log of this release and of those before it: their bytes stand in `crates/rules/cluster/formats`.

use crate::command::{Command, Decided};
use crate::state::State;
use alloc::format;
use skep_types::codec::{Draw, Example};
use skep_types::formats::Formats;
use skep_types::{Decode, Encode};

/// What stands in the log, and the registry as a whole.
pub fn all() -> Formats {
    let mut formats = Formats::default();
    for (how, draw) in [("full", Draw::FULL), ("bare", Draw::BARE)] {
        for (number, command) in Command::each(draw).iter().enumerate() {
            let name = format!("log.{}.{how}", number + 1);
            let again = |bytes: &[u8]| Decided::from_bytes(bytes).ok().map(|decided| decided.to_bytes());
            let decided = Decided { command: command.clone(), ..Decided::example(draw) };
            formats.bytes(&name, &decided.to_bytes(), again);
        }
    }
    formats.record::<State>("Snapshot");
    formats
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    /// Goal: what a release kept of the cluster is read by every later one, and means the same.
    #[test]
    fn registry_and_log_stay_readable() {
        skep_types::formats_stay_readable!(all());
    }
}
