//! What the loops of mgmtd and metad count: requests, connections, the log.

use super::{Counter, Exposition, Gauge, Histogram, Kind, Requests};

/// Shared by the loop, its sync thread and the HTTP thread.
pub struct Serving {
    /// Requests by message.
    pub requests: Requests,
    /// Open connections.
    pub connections: Gauge,
    /// Requests taken and not answered yet.
    pub waiting: Gauge,
    /// How long it took to make the log durable.
    pub log_sync: Histogram,
    /// Length of the log.
    pub log_bytes: Gauge,
    /// Records appended.
    pub log_records: Counter,
}

impl Serving {
    /// For a service that answers these messages.
    pub fn new(messages: &[(u16, &'static str)]) -> Self {
        Self {
            requests: Requests::new(messages.iter().copied()),
            connections: Gauge::default(),
            waiting: Gauge::default(),
            log_sync: Histogram::default(),
            log_bytes: Gauge::default(),
            log_records: Counter::new(),
        }
    }

    /// Adds the samples.
    pub fn expose(&self, service: &str, out: &mut Exposition) {
        let prefix = format!("skep_{service}");
        self.requests.expose(&prefix, "message", out);
        let mut gauge = |name: &str, help: &str, value: &Gauge| {
            out.family(&format!("{prefix}_{name}"), Kind::Gauge, help).value(&[], value.get());
        };
        gauge("connections", "Open connections.", &self.connections);
        gauge("requests_waiting", "Requests taken and not answered yet.", &self.waiting);
        gauge("log_bytes", "Length of the command log.", &self.log_bytes);
        out.family(&format!("{prefix}_log_records_total"), Kind::Counter, "Records appended to the log.")
            .value(&[], self.log_records.get());
        out.family(&format!("{prefix}_log_sync_seconds"), Kind::Histogram, "Time to make the log durable.")
            .histogram(&[], &self.log_sync);
    }
}
