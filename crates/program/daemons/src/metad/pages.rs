//! What metad shows over HTTP: its own counters, and those of the rules, which it asks as anybody does.

use skep_base::caller::{Caller, hello};
use skep_base::http::Pages;
use skep_base::metrics::{Exposition, Kind, MGMTD, Serving};
use skep_net::{Endpoint, Keyring};
use skep_types::Role;
use skep_wire::Message;
use skep_wire::meta::{Counter, Events, GroupStats, MetaRequest, ShardCall, StatsReply};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The loop answers within this time, or is stuck.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// What the loop counts and tells.
pub struct Counts {
    /// Requests, connections, log.
    pub serving: Serving,
}

impl Counts {
    /// From nothing.
    pub fn new() -> Arc<Self> {
        let serving = Serving::new(MetaRequest::KINDS);
        Arc::new(Self { serving })
    }

    /// What the rules cannot know, for `skep stats`.
    pub fn add_to(&self, stats: &mut StatsReply) {
        let serving = &self.serving;
        // Who asks for events waits until there are some: that says nothing of this server.
        let (requests, ns) = serving.requests.totals_but(Events::KIND);
        for (name, value) in [
            ("requests", requests),
            ("request_ns", ns),
            ("log_bytes", serving.log_bytes.get().max(0) as u64),
            ("log_syncs", serving.log_sync.count()),
            ("log_sync_ns", serving.log_sync.sum_ns()),
            ("connections", serving.connections.get().max(0) as u64),
        ] {
            stats.counters.push(Counter { name: name.to_owned(), value });
        }
        stats.counters.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

/// See the module.
pub struct MetadPages {
    /// What the loop counts.
    pub counts: Arc<Counts>,
    /// For asking the loop.
    pub keyring: Arc<Keyring>,
    /// Where it listens.
    pub own: Vec<Endpoint>,
}

impl MetadPages {
    fn stats(&self) -> Result<StatsReply, String> {
        let mut caller = Caller::new(self.keyring.clone(), self.own.clone(), hello(Role::Admin));
        let answer = caller.call_shard(ShardCall::default(), &GroupStats {}, Instant::now() + ANSWER_LIMIT);
        answer.map(|(_, stats)| stats).map_err(|e| e.to_string())
    }
}

impl Pages for MetadPages {
    fn service(&self) -> &'static str {
        "metad"
    }

    fn metrics(&self, out: &mut Exposition) {
        self.counts.serving.expose("metad", out);
        MGMTD.expose("metad", out);
        let stats = self.stats();
        out.family("skep_metad_up", Kind::Gauge, "Does its loop answer?").value(&[], u8::from(stats.is_ok()));
        rules(&stats.unwrap_or_else(|_| StatsReply { counters: Vec::new() }), out);
    }

    fn healthy(&self) -> Result<(), String> {
        self.stats().map(drop)
    }
}

/// Values of the moment that the rules tell. What they count by message is in the requests already.
fn rules(stats: &StatsReply, out: &mut Exposition) {
    let counted = ["done", "refused", "log_records", "requests", "request_ns", "log_syncs", "log_sync_ns"];
    // Not which file, and who: metrics name no paths and no clients.
    let shown =
        ["connections", "log_bytes", "lost_chunk_file_of", "oldest_recall_client", "oldest_recall_inode"];
    let moment = |counter: &&Counter| {
        let name = counter.name.as_str();
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && !counted.contains(&name)
            && !shown.contains(&name)
    };
    for counter in stats.counters.iter().filter(moment) {
        let name = format!("skep_metad_{}", counter.name);
        let help = format!("Of the rules, at this moment: {}.", counter.name.replace('_', " "));
        out.family(&name, Kind::Gauge, &help).value(&[], counter.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::metrics::parse::parse;

    /// Goal: what the rules tell of the moment is shown once, what is counted elsewhere is not, and what
    /// the daemon adds for `skep stats` keeps the order.
    #[test]
    fn rules_are_shown() {
        let counts = Counts::new();
        counts.serving.requests.answered(MetaRequest::KINDS[0].0, Duration::from_micros(7), false);
        counts.serving.requests.answered(Events::KIND, Duration::from_millis(800), false);
        let counter = |name: &str, value| Counter { name: name.to_owned(), value };
        let mut stats =
            StatsReply { counters: vec![counter("Lookup", 5), counter("done", 5), counter("open_files", 2)] };
        counts.add_to(&mut stats);
        assert!(stats.counters.is_sorted_by(|a, b| a.name < b.name));
        assert!(stats.counters.contains(&counter("request_ns", 7_000)), "who waits for events takes no time");
        assert!(stats.counters.contains(&counter("requests", 1)));
        let mut out = Exposition::default();
        counts.serving.expose("metad", &mut out);
        rules(&stats, &mut out);
        let parsed = parse(&out.into_text()).unwrap();
        assert_eq!(parsed.value("skep_metad_open_files", &[]), Some(2.0));
        assert_eq!(parsed.value("skep_metad_done", &[]), None);
        assert_eq!(
            parsed.value("skep_metad_requests_total", &[("message", MetaRequest::KINDS[0].1)]),
            Some(1.0)
        );
    }
}
