//! Whether large messages reach every daemon from here, before anything is asked of them.
//!
//! Where something on the way drops large packets, handshakes and short questions are answered, and whatever is longer
//! waits until its time is over: for each layer and daemon anew, and it looks as if the daemon were overloaded.

use super::paths::CLIENT;
use skep_base::access::Cluster;
use skep_base::caller::CallError;
use skep_instruments::question::{Question, Stuck};
use skep_survey::pairs::ARROW;
use skep_wire::instrument::Measure;
use skep_wire::mgmt::NodeEntry;
use std::time::Duration;

/// A message that a daemon takes as a question, and that no single packet holds (but on the loopback device, which
/// drops none).
const LARGE: u32 = 48 << 10;
/// It is through within this time, if a small one was.
const LIMIT: Duration = Duration::from_secs(5);

/// Daemons that answer to small messages, and not to large ones.
pub fn stuck<'n>(cluster: &Cluster, nodes: &'n [NodeEntry]) -> Vec<(&'n NodeEntry, Stuck)> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            nodes.iter().map(|node| (node, scope.spawn(move || looked_at(cluster, node)))).collect();
        let found = asked.into_iter().map(|(node, thread)| (node, thread.join().ok().flatten()));
        found.filter_map(|(node, stuck)| Some((node, stuck?))).collect()
    })
}

/// As [`super::Run::missing`] takes it: paths from or to this host.
pub fn told(stuck: &[(&NodeEntry, Stuck)]) -> Vec<(String, String)> {
    let name = |node: &NodeEntry, stuck: &Stuck| match stuck.sent {
        true => format!("{CLIENT}{ARROW}{}", node.alias),
        false => format!("{}{ARROW}{CLIENT}", node.alias),
    };
    stuck.iter().map(|(node, stuck)| (name(node, stuck), stuck.told(CLIENT, &node.alias))).collect()
}

/// None: all is well, or it does not answer at all, which those who measure it will find.
fn looked_at(cluster: &Cluster, node: &NodeEntry) -> Option<Stuck> {
    let is_through = |question: Vec<u8>| {
        // A connection of its own: what is stuck in one keeps all behind it waiting.
        match cluster.node(node).call_within(&Measure { question }, LIMIT) {
            Err(CallError::Net(e)) if e.is_timeout() => Some(false),
            Err(CallError::Net(_)) => None,
            // Any answer is one.
            _ => Some(true),
        }
    };
    let small = || serde_json::to_vec(&Question::Clock).ok();
    if is_through(small()?)? {
        let mut large = small()?;
        large.resize(LARGE as usize, b' ');
        let filler = serde_json::to_vec(&Question::Filler(LARGE)).ok()?;
        let (sent, received) = std::thread::scope(|scope| {
            let back = scope.spawn(|| is_through(filler));
            (is_through(large), back.join().ok().flatten())
        });
        let (sent, received) = (!sent?, !received?);
        // Whoever is slow now and then answers to small ones no better.
        if (sent || received) && is_through(small()?)? {
            return Some(Stuck { bytes: LARGE, seconds: LIMIT.as_secs_f64(), sent, received });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: a path is named after the way on which nothing large passes.
    #[test]
    fn paths_are_named() {
        let node = samples::status().nodes[0].node.clone();
        let of = |sent, received| {
            let stuck = Stuck { bytes: LARGE, seconds: 5.0, sent, received };
            told(&[(&node, stuck)]).remove(0)
        };
        let alias = &node.alias;
        assert_eq!(of(true, true).0, format!("this host -> {alias}"));
        let (name, why) = of(false, true);
        assert_eq!(name, format!("{alias} -> this host"));
        assert!(why.starts_with("small messages pass, large ones do not: 49152 bytes from "), "{why}");
    }
}
