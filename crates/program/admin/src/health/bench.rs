//! Files that measurements have left on targets.

use super::{Check, Verdict, check};
use skep_base::access::Cluster;
use skep_base::deadline::within;
use skep_base::output::human;
use skep_instruments::client::sets;
use skep_instruments::question::SetFound;
use skep_wire::mgmt::{NodeEntry, StatusReply};
use std::time::Duration;

/// What lies on targets of a daemon that has answered; one that does not answer this is asked by `skep bench storage`.
pub fn checks(cluster: &Cluster, status: &StatusReply, node: &NodeEntry, limit: Duration) -> Vec<Check> {
    let look = |found: SetFound| {
        let target = status.targets.iter().find(|target| target.target.0 == found.target);
        let subject =
            target.map_or_else(|| format!("target {}", found.target), |target| target.alias.clone());
        let (detail, hint) = match found.used {
            true => ("a measurement runs", "see `skep bench storage status`".to_owned()),
            false => (
                "files of an earlier measurement lie on it",
                format!("skep bench storage cleanup --target {subject}"),
            ),
        };
        let detail = format!("{detail}: set {}, {} files, {}", found.set, found.files, human(found.bytes));
        check(Verdict::Note, "bench", &subject, detail, &hint)
    };
    let (link, asked) = (cluster.node(node), node.clone());
    // Its questions are several, and each has a time of its own.
    let found = within(limit, move || sets(link, &asked, limit));
    found.and_then(Result::ok).unwrap_or_default().into_iter().map(look).collect()
}
