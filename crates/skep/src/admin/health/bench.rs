//! Files that measurements have left on targets.

use super::{Check, Verdict, check};
use crate::admin::access::Cluster;
use crate::bench::storage;
use crate::cli::output::human;
use skep_types::{Reachability, ServiceKind};
use skep_wire::mgmt::StatusReply;

/// What lies on targets of daemons that answer; those that do not are named elsewhere.
pub fn checks(cluster: &Cluster, status: &StatusReply) -> Vec<Check> {
    let storage = status.nodes.iter().filter(|one| {
        one.node.service == ServiceKind::Storaged && one.node.reachability == Reachability::Online
    });
    let mut checks = Vec::new();
    for one in storage {
        for found in storage::sets(cluster, &one.node).unwrap_or_default() {
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
            let detail =
                format!("{detail}: set {}, {} files, {}", found.set, found.files, human(found.bytes));
            checks.push(check(Verdict::Note, "bench", &subject, detail, &hint));
        }
    }
    checks
}
