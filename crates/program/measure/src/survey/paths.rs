//! The network: every pair of hosts, then all at once.

mod ring;
mod way;

use super::rounds::{may_be_slow, side_by_side};
use super::{Run, commands};
use skep_base::units::{Period, Size};
use skep_base::{Failure, Outcome};
use skep_instruments::client::{Transport, network, network_from_here};
use skep_instruments::question::{NetworkFound, NetworkTest};
use skep_net::machine_id;
use skep_survey::ids::{self, NETWORK};
use skep_survey::model::{Layer, LayerId, MemberResult, SideBySide};
use skep_survey::pairs::ARROW;
use skep_types::ServiceKind;
use skep_wire::mgmt::NodeEntry;
use std::time::Duration;
use way::{Ways, by_socket};

/// Rates are told in these.
const MEGABYTE: f64 = 1e6;
/// How this host is called in pairs.
pub const CLIENT: &str = "this host";
/// Most pairs that are measured; of a larger cluster, a ring with chords is.
const PAIRS_MAX: usize = 2_000;
/// Most pairs that are measured of a daemon to which large messages do not pass from here: each may take its whole time.
const CUT_OFF_PAIRS: usize = 4;

fn flows(found: &NetworkFound, from: &str, to: &str) -> Outcome<[f64; 2]> {
    if let Some(stuck) = &found.stuck {
        return Err(Failure::new(stuck.told(from, to)));
    }
    let rate = |flow: Option<skep_instruments::question::Flow>| flow.map(|f| f.rate() / MEGABYTE);
    match (rate(found.sent), rate(found.received)) {
        (Some(sent), Some(received)) => Ok([sent, received]),
        _ => Err(Failure::new("no bandwidth was measured")),
    }
}

/// Every unordered pair; who serves payloads is the second, but who is cut off from here is never the one that is asked.
fn pairs<'a>(
    nodes: &[&'a NodeEntry],
    cut_off: impl Fn(&NodeEntry) -> bool,
) -> Vec<(&'a NodeEntry, &'a NodeEntry)> {
    let serves = |node: &NodeEntry| node.service == ServiceKind::Storaged;
    let turned = |a: &NodeEntry, b: &NodeEntry| match (cut_off(a), cut_off(b)) {
        (false, false) => serves(a) && !serves(b),
        (first, _) => first,
    };
    let mut all: Vec<(&'a NodeEntry, &'a NodeEntry)> = Vec::new();
    // By distance in the ring, so that what is cut off in a large cluster still touches every node alike.
    for distance in 1..=nodes.len() / 2 {
        for at in 0..nodes.len() {
            let (a, b) = (nodes[at], nodes[(at + distance) % nodes.len()]);
            let twice = distance * 2 == nodes.len() && at >= distance;
            let tried = |node: &NodeEntry| {
                let of_it = all.iter().filter(|(_, other)| other.node == node.node);
                cut_off(node) && of_it.count() >= CUT_OFF_PAIRS
            };
            let nobody_asks = cut_off(a) && cut_off(b);
            if !twice && all.len() < PAIRS_MAX && !nobody_asks && !tried(a) && !tried(b) {
                all.push(if turned(a, b) { (b, a) } else { (a, b) });
            }
        }
    }
    all
}

/// The command line that measures all pairs again.
fn command(run: &Run<'_>, nodes: &[&NodeEntry], test: &NetworkTest) -> String {
    let measured: Vec<String> = nodes.iter().map(|node| commands::word(&node.alias)).collect();
    format!(
        "skep bench net pairs --nodes {} --streams {} --block {} --time {} --pings {} --rounds {}{}",
        measured.join(","),
        test.streams,
        Size(u64::from(test.block)),
        Period(Duration::from_secs_f64(test.seconds)),
        test.pings,
        run.preset.rounds,
        run.lines.cluster()
    )
}

pub fn measure(run: &mut Run<'_>) -> Outcome<Layer> {
    let nodes = run.members.representatives(&run.networks);
    let pairs = pairs(&nodes, |node| run.members.is_cut_off(node));
    if pairs.is_empty() {
        let why = if nodes.len() < 2 {
            "there is one daemon only"
        } else {
            "no daemon that could measure it can be asked"
        };
        return Err(Failure::new(why));
    }
    let test = NetworkTest {
        streams: run.preset.streams,
        seconds: run.preset.network_seconds,
        pings: run.preset.pings,
        ..NetworkTest::default()
    };
    let names: Vec<String> = pairs.iter().map(|(a, b)| format!("{}{ARROW}{}", a.alias, b.alias)).collect();
    let measure = |at: usize| {
        let found = network(run.cluster, pairs[at].0, pairs[at].1, &test, Transport::Auto)?;
        let [sent, received] = flows(&found, &pairs[at].0.alias, &pairs[at].1.alias)?;
        Ok(vec![sent, received, found.latency.map_or(0.0, |latency| latency.p50_us)])
    };
    // Of the three figures, the last is a delay.
    let doubtful = |figure, members: &[_]| may_be_slow(members, figure < 2);
    let (mut sides, failed) = side_by_side(&names, run.preset.rounds, 3, measure, doubtful);
    run.missing(LayerId::Network, failed);
    let (delays, received, sent) = (sides.pop(), sides.pop(), sides.pop());
    let mut members = sent.unwrap_or_default();
    let back = |member: MemberResult| {
        let (a, b) = member.name.split_once(ARROW).unwrap_or((&member.name, ""));
        MemberResult { name: format!("{b}{ARROW}{a}"), ..member }
    };
    members.extend(received.unwrap_or_default().into_iter().map(back));
    let ways = Ways::new(names.into_iter().zip(pairs.iter().map(|(a, b)| by_socket(a.machine, b))));
    ways.remark().into_iter().for_each(|text| run.remark(text));
    let (members, delays) = (ways.keep(members), ways.keep(delays.unwrap_or_default()));
    let (measured, command) = (nodes.len(), command(run, &nodes, &test));
    run.commands.push(command.clone());
    let side = |id: &str, title: &str, unit: &str, more_is_better, members| SideBySide {
        id: id.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        more_is_better,
        members,
        command: command.clone(),
    };
    let mut sides = vec![
        side(ids::NETWORK_PAIRS, "Bandwidth from one node to another", "MB/s", true, members),
        side(ids::NETWORK_DELAYS, "Round trip of a small message", "us", false, delays),
    ];
    sides.extend(from_here(run, &test));
    let nodes: Vec<&NodeEntry> = nodes.into_iter().filter(|node| !run.members.is_cut_off(node)).collect();
    let curves = ring::measure(run, &nodes, &test).unwrap_or_else(|failure| {
        run.remark(format!("network of all storage daemons at once: not measured: {failure}"));
        Vec::new()
    });
    let hosts = if measured < run.members.nodes.len() + run.members.cut_off.len() {
        "one daemon of every host"
    } else {
        "every daemon"
    };
    let about = format!(
        "Between {hosts}: payloads that the receiver throws away, {} connections, {} s each way, one pair at a time, \
         {} times in turn; round trips of small messages. The same between this host and every storage daemon. Then \
         all storage daemons at once, each with one of another host if there is any: all bytes over the time in which \
         any were on their way.",
        test.streams, test.seconds, run.preset.rounds
    );
    Ok(Layer { id: LayerId::Network, about, curves, sides })
}

/// Between this host, on which clients may run, and every storage daemon.
fn from_here(run: &mut Run<'_>, test: &NetworkTest) -> Option<SideBySide> {
    let cluster = run.cluster;
    let nodes = run.members.nodes.iter().filter(|node| node.service == ServiceKind::Storaged);
    let nodes: Vec<&NodeEntry> = nodes.collect();
    let test = NetworkTest { pings: 0, ..test.clone() };
    let names: Vec<String> = nodes.iter().map(|node| format!("{CLIENT}{ARROW}{}", node.alias)).collect();
    let measure = |at: usize| {
        let found = network_from_here(cluster, nodes[at], &test)?;
        Ok(flows(&found, CLIENT, &nodes[at].alias)?.to_vec())
    };
    let (mut ways, failed) =
        side_by_side(&names, run.preset.rounds, 2, measure, |_, members: &[_]| may_be_slow(members, true));
    run.missing(LayerId::Network, failed);
    let (received, sent) = (ways.pop()?, ways.pop()?);
    let turned = |member: MemberResult| {
        let node = member.name.split_once(ARROW).map_or("", |(_, node)| node);
        MemberResult { name: format!("{node}{ARROW}{CLIENT}"), ..member }
    };
    let members: Vec<MemberResult> = sent.into_iter().chain(received.into_iter().map(turned)).collect();
    let ways = Ways::new(names.into_iter().zip(nodes.iter().map(|node| by_socket(machine_id(), node))));
    ways.remark().into_iter().for_each(|text| run.remark(text));
    let members = ways.keep(members);
    let command = run.lines.only(NETWORK);
    run.commands.push(command.clone());
    (!members.is_empty()).then(|| SideBySide {
        id: ids::NETWORK_CLIENT.to_owned(),
        title: "Bandwidth between this host and each storage daemon".to_owned(),
        unit: "MB/s".to_owned(),
        more_is_better: true,
        members,
        command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: every unordered pair once, whatever the number of nodes.
    #[test]
    fn all_pairs_once() {
        let status = samples::status();
        let node = &status.nodes[0].node;
        for count in 0..9_u32 {
            let nodes: Vec<NodeEntry> = (0..count)
                .map(|n| NodeEntry { node: skep_types::NodeId(n), alias: format!("n{n}"), ..node.clone() })
                .collect();
            let refs: Vec<&NodeEntry> = nodes.iter().collect();
            let mut seen: Vec<(u32, u32)> = pairs(&refs, |_| false)
                .iter()
                .map(|(a, b)| (a.node.0.min(b.node.0), a.node.0.max(b.node.0)))
                .collect();
            seen.sort_unstable();
            let expected: Vec<(u32, u32)> =
                (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect();
            assert_eq!(seen, expected);
        }
    }

    /// Goal: a daemon to which large messages do not pass from here is measured by the others; two such are not, for nobody
    /// can be asked.
    #[test]
    fn others_measure_who_is_cut_off() {
        let status = samples::status();
        let node = &status.nodes[0].node;
        let nodes: Vec<NodeEntry> = (0..4)
            .map(|n| NodeEntry { node: skep_types::NodeId(n), alias: format!("n{n}"), ..node.clone() })
            .collect();
        let refs: Vec<&NodeEntry> = nodes.iter().collect();
        let all = pairs(&refs, |node| node.node.0 < 2);
        let told: Vec<(u32, u32)> = all.iter().map(|(a, b)| (a.node.0, b.node.0)).collect();
        assert_eq!(told.len(), 5);
        assert!(told.iter().all(|(asked, _)| *asked >= 2), "{told:?}");
        let nodes: Vec<NodeEntry> =
            (0..20).map(|n| NodeEntry { node: skep_types::NodeId(n), ..node.clone() }).collect();
        let all = pairs(&nodes.iter().collect::<Vec<_>>(), |node| node.node.0 == 7);
        let of_it = all.iter().filter(|(a, b)| a.node.0 == 7 || b.node.0 == 7).count();
        assert_eq!((of_it, all.len()), (CUT_OFF_PAIRS, 19 * 18 / 2 + CUT_OFF_PAIRS));
    }

    /// Goal: a large message that was not through is no lack of bandwidth: the pair is told, with the way.
    #[test]
    fn stuck_messages_are_told() {
        use skep_instruments::question::Stuck;
        let of = |sent, received| {
            let stuck = Stuck { bytes: 131_072, seconds: 5.0, sent, received };
            let found = NetworkFound { stuck: Some(stuck), ..NetworkFound::default() };
            flows(&found, "beta", "gamma").unwrap_err().to_string()
        };
        let text = "small messages pass, large ones do not: 131072 bytes from beta to gamma were not through after 5 s";
        assert_eq!(of(true, false), text);
        assert!(
            of(false, true).contains("from gamma to beta")
                && of(true, true).contains("between beta and gamma")
        );
    }
}
