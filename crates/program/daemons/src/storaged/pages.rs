//! What storaged shows over HTTP: its requests, and each of its targets.

use super::serve::Storaged;
use skep_base::http::Pages;
use skep_base::metrics::{Exposition, Kind, MGMTD};
use skep_types::Consistency;
use skep_wire::storage::TargetStat;
use std::sync::Arc;

pub struct StoragedPages(pub Arc<Storaged>);

impl Pages for StoragedPages {
    fn service(&self) -> &'static str {
        "storaged"
    }

    fn metrics(&self, out: &mut Exposition) {
        self.0.requests.expose("skep_storaged", "message", out);
        MGMTD.expose("storaged", out);
        targets(&self.0.stats(), out);
    }

    fn healthy(&self) -> Result<(), String> {
        let bad: Vec<_> = self.0.stats().into_iter().filter(|t| t.consistency == Consistency::Bad).collect();
        match bad.first() {
            None => Ok(()),
            Some(target) => Err(format!("target {} at {} is bad", target.target, target.path)),
        }
    }
}

fn targets(stats: &[TargetStat], out: &mut Exposition) {
    type Value = fn(&TargetStat) -> f64;
    let families: [(&str, Kind, &str, Value); 15] = [
        ("reads_total", Kind::Counter, "Reads.", |t| t.reads as f64),
        ("read_bytes_total", Kind::Counter, "Bytes read.", |t| t.read_bytes as f64),
        ("read_busy_seconds_total", Kind::Counter, "Time spent in reads.", |t| t.read_ns as f64 / 1e9),
        ("writes_total", Kind::Counter, "Writes.", |t| t.writes as f64),
        ("written_bytes_total", Kind::Counter, "Bytes written.", |t| t.written_bytes as f64),
        ("write_busy_seconds_total", Kind::Counter, "Time spent in writes.", |t| t.write_ns as f64 / 1e9),
        ("syncs_total", Kind::Counter, "Syncs of chunk files.", |t| t.syncs as f64),
        ("sync_busy_seconds_total", Kind::Counter, "Time spent in syncs.", |t| t.sync_ns as f64 / 1e9),
        ("errors_total", Kind::Counter, "Requests that failed on the disk.", |t| t.errors as f64),
        ("requests_in_flight", Kind::Gauge, "Requests in work.", |t| t.in_flight as f64),
        ("size_bytes", Kind::Gauge, "Size of the target.", |t| t.capacity.bytes as f64),
        ("free_bytes", Kind::Gauge, "Free space, the reserve taken off.", |t| t.capacity.bytes_free as f64),
        ("promised_bytes", Kind::Gauge, "Free space that is promised to mounts.", |t| {
            t.promised.unwrap_or(0) as f64
        }),
        ("inodes_free", Kind::Gauge, "Free inodes.", |t| t.capacity.inodes_free as f64),
        ("good", Kind::Gauge, "Can its content be trusted?", |t| {
            f64::from(u8::from(t.consistency == Consistency::Good))
        }),
    ];
    for (name, kind, help, value) in families {
        let mut family = out.family(&format!("skep_storaged_target_{name}"), kind, help);
        for target in stats {
            family.value(&[("target", &target.target.to_string())], value(target));
        }
    }
}
