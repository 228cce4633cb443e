//! What mgmtd shows over HTTP: its own counters, the state of the whole cluster, and the API.

use skep_admin::api::Api;
use skep_base::http::{Pages, Reply, Request};
use skep_base::metrics::{Exposition, Kind, Serving};
use skep_types::{Consistency, Reachability};
use skep_wire::mgmt::{NodeStatus, ShardState, StatusReply, TargetEntry};
use std::sync::Arc;

pub struct MgmtdPages {
    serving: Arc<Serving>,
    api: Api,
}

impl MgmtdPages {
    /// The counters of the loop, and a way to ask it.
    pub fn new(serving: Arc<Serving>, api: Api) -> Self {
        Self { serving, api }
    }
}

impl Pages for MgmtdPages {
    fn service(&self) -> &'static str {
        "mgmtd"
    }

    fn metrics(&self, out: &mut Exposition) {
        self.serving.expose("mgmtd", out);
        let status = self.api.status();
        out.family("skep_mgmtd_up", Kind::Gauge, "Does its loop answer?")
            .value(&[], u8::from(status.is_ok()));
        if let Ok(status) = status {
            cluster(&status, out);
            nodes(&status.nodes, out);
            targets(&status, out);
        }
    }

    fn healthy(&self) -> Result<(), String> {
        self.api.status().map(drop).map_err(|failure| failure.to_string())
    }

    fn api(&self, request: &Request) -> Option<Reply> {
        self.api.answer(request)
    }
}

fn cluster(status: &StatusReply, out: &mut Exposition) {
    let online = |id| {
        let node = status.nodes.iter().find(|node| node.node.node == id);
        node.is_some_and(|node| node.node.reachability != Reachability::Offline)
    };
    let orphans = status
        .shards
        .iter()
        .filter(|shard| shard.state != ShardState::Retired && !shard.led_by().is_some_and(online));
    for (name, help, value) in [
        ("sessions", "Sessions (mounts).", status.sessions.len() as u64),
        ("shards", "Metadata shards.", status.shards.len() as u64),
        ("shards_unserved", "Shards without a server that is online.", orphans.count() as u64),
        ("fence_epoch", "Epoch of the newest eviction.", status.epoch.0),
        ("map_version", "Version of the cluster map.", status.map.0),
    ] {
        out.family(&format!("skep_mgmtd_{name}"), Kind::Gauge, help).value(&[], value);
    }
}

fn nodes(nodes: &[NodeStatus], out: &mut Exposition) {
    let labels = |node: &NodeStatus| (node.node.node.to_string(), node.node.alias.clone());
    let mut family = out.family("skep_mgmtd_node_online", Kind::Gauge, "Is the node heard?");
    for node in nodes {
        let (id, alias) = labels(node);
        let service = node.node.service.as_str();
        let online = u8::from(node.node.reachability == Reachability::Online);
        family.value(&[("node", &id), ("alias", &alias), ("service", service)], online);
    }
    let help = "Free space of the node's state directory.";
    let mut family = out.family("skep_mgmtd_node_state_free_bytes", Kind::Gauge, help);
    for node in nodes.iter().filter(|node| node.capacity.bytes > 0) {
        let (id, alias) = labels(node);
        family.value(&[("node", &id), ("alias", &alias)], node.capacity.bytes_free);
    }
}

fn targets(status: &StatusReply, out: &mut Exposition) {
    type Value = fn(&StatusReply, &TargetEntry) -> u64;
    let families: [(&str, &str, Value); 6] = [
        ("size_bytes", "Size of the target.", |_, target| target.capacity.bytes),
        ("free_bytes", "Free space of the target.", |_, target| target.capacity.bytes_free),
        ("inodes", "Inodes of the target.", |_, target| target.capacity.inodes),
        ("inodes_free", "Free inodes of the target.", |_, target| target.capacity.inodes_free),
        ("good", "Can its content be trusted?", |_, target| {
            u64::from(target.consistency == Consistency::Good)
        }),
        ("online", "Is its daemon heard, and does it serve it?", |status, target| {
            let node = status.nodes.iter().find(|node| node.node.node == target.node);
            u64::from(node.is_some_and(|node| target.reached(node.node.reachability) == Reachability::Online))
        }),
    ];
    for (name, help, value) in families {
        let mut family = out.family(&format!("skep_mgmtd_target_{name}"), Kind::Gauge, help);
        for target in &status.targets {
            family.value(
                &[("target", &target.target.to_string()), ("alias", &target.alias)],
                value(status, target),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::metrics::parse::parse;
    use skep_base::namespace::samples;

    /// Goal: the state of nodes and targets is there under their ids, and a shard without a living
    /// server is counted.
    #[test]
    fn the_cluster_is_shown() {
        let mut status = samples::status();
        status.targets[0].consistency = Consistency::Bad;
        status.nodes[0].node.reachability = Reachability::Offline;
        let mut out = Exposition::default();
        cluster(&status, &mut out);
        nodes(&status.nodes, &mut out);
        targets(&status, &mut out);
        let parsed = parse(&out.into_text()).unwrap();
        assert_eq!(parsed.value("skep_mgmtd_shards_unserved", &[]), Some(2.0));
        assert_eq!(parsed.value("skep_mgmtd_node_online", &[("service", "metad")]), Some(0.0));
        assert_eq!(parsed.value("skep_mgmtd_node_online", &[("service", "storaged")]), Some(1.0));
        let target = [("target", "101")];
        assert_eq!(parsed.value("skep_mgmtd_target_free_bytes", &target), Some(400.0));
        assert_eq!(parsed.value("skep_mgmtd_target_good", &target), Some(0.0));
        assert_eq!(parsed.value("skep_mgmtd_target_online", &target), Some(1.0));
    }
}
