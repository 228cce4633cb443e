//! Requests by kind: how many, how many failed, how long they took.

use super::{Counter, Exposition, Histogram, Kind};
use std::time::Duration;

/// Name of the requests that have none.
const UNKNOWN: &str = "unknown";

/// One kind of request.
#[derive(Debug, Default)]
struct OfKind {
    took: Histogram,
    failed: Counter,
}

/// All kinds of requests of a service. Kinds are told apart by the low byte of their number: a
/// service's messages have the high one in common.
pub struct Requests {
    /// In the order of `kinds`; the last is for all others.
    names: Vec<&'static str>,
    /// By the low byte: where in `kinds`.
    place: [u8; 256],
    kinds: Vec<OfKind>,
}

impl Requests {
    /// For requests of these numbers and names.
    pub fn new(known: impl IntoIterator<Item = (u16, &'static str)>) -> Self {
        let known: Vec<_> = known.into_iter().take(usize::from(u8::MAX)).collect();
        let mut place = [known.len() as u8; 256];
        for (at, (number, _)) in known.iter().enumerate() {
            place[usize::from(number & 0xff)] = at as u8;
        }
        let names: Vec<_> = known.iter().map(|(_, name)| *name).chain([UNKNOWN]).collect();
        let kinds = names.iter().map(|_| OfKind::default()).collect();
        Self { names, place, kinds }
    }

    /// A request was answered.
    pub fn answered(&self, number: u16, took: Duration, failed: bool) {
        let kind = &self.kinds[usize::from(self.place[usize::from(number & 0xff)])];
        kind.took.observe(took);
        if failed {
            kind.failed.one();
        }
    }

    /// How many were answered, and how long all together took; but for those of one kind, which are to wait.
    pub fn totals_but(&self, number: u16) -> (u64, u64) {
        let but = usize::from(self.place[usize::from(number & 0xff)]);
        let counted = self.kinds.iter().enumerate().filter(|(at, _)| *at != but);
        counted.fold((0, 0), |(count, ns), (_, kind)| {
            (count + kind.took.count(), ns.saturating_add(kind.took.sum_ns()))
        })
    }

    /// Adds the samples: of kinds that were never asked for the zeros, but no buckets.
    pub fn expose(&self, prefix: &str, label: &str, out: &mut Exposition) {
        let all = || self.names.iter().zip(&self.kinds);
        let mut family =
            out.family(&format!("{prefix}_requests_total"), Kind::Counter, "Requests that were answered.");
        for (name, kind) in all() {
            family.value(&[(label, name)], kind.took.count());
        }
        let help = "Requests that were answered with an error, ENOENT and the like included.";
        let mut family = out.family(&format!("{prefix}_requests_failed_total"), Kind::Counter, help);
        for (name, kind) in all() {
            family.value(&[(label, name)], kind.failed.get());
        }
        let help = "Time from the arrival of a request to its answer.";
        let mut family = out.family(&format!("{prefix}_request_seconds"), Kind::Histogram, help);
        for (name, kind) in all().filter(|(_, kind)| kind.took.count() > 0) {
            family.histogram(&[(label, name)], &kind.took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    /// Goal: requests are counted under their names, strange numbers under one of their own, and the
    /// labels stay bounded whatever comes.
    #[test]
    fn counted_by_name() {
        let requests = Requests::new([(0x0201, "Lookup"), (0x0202, "GetAttr")]);
        for number in 0..=u16::MAX {
            requests.answered(number, Duration::from_micros(1), number == 0x0202);
        }
        let mut out = Exposition::default();
        requests.expose("skep_metad", "message", &mut out);
        let parsed = parse(&out.into_text()).unwrap();
        let value = |name: &str, message: &str| parsed.value(name, &[("message", message)]).unwrap();
        assert_eq!(value("skep_metad_requests_total", "Lookup"), 256.0);
        assert_eq!(value("skep_metad_requests_total", "unknown"), 65_536.0 - 512.0);
        assert_eq!(value("skep_metad_requests_failed_total", "GetAttr"), 1.0);
        assert_eq!(value("skep_metad_request_seconds_count", "GetAttr"), 256.0);
        assert_eq!(requests.totals_but(0x0201), (65_536 - 256, 65_280_000));
    }
}
