//! The text format of Prometheus, version 0.0.4: families in one piece, each with HELP and TYPE.

use super::{BOUNDS, Histogram};
use std::collections::BTreeSet;
use std::fmt::{Display, Write};

/// What the samples of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Buckets, sum and count; its name ends in `_seconds`.
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text as it grows.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    names: BTreeSet<String>,
}

/// A family whose samples are being written.
pub struct Family<'a> {
    /// None: a family of this name is there already, and two would spoil the whole text.
    text: Option<&'a mut String>,
    name: String,
}

impl Exposition {
    /// Begins a family. Its samples follow at once; a second one of the same name is left out.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_> {
        if !self.names.insert(name.to_owned()) {
            return Family { text: None, name: name.to_owned() };
        }
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.as_str());
        Family { text: Some(&mut self.text), name: name.to_owned() }
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

/// Labels of a sample.
pub type Labels<'a> = [(&'a str, &'a str)];

impl Family<'_> {
    fn sample(&mut self, suffix: &str, labels: &Labels<'_>, more: Option<(&str, &str)>, value: impl Display) {
        let Some(text) = self.text.as_deref_mut() else { return };
        let _ = write!(text, "{}{suffix}", self.name);
        let all = labels.iter().copied().chain(more);
        for (at, (label, value)) in all.enumerate() {
            let _ = write!(text, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value));
        }
        if !labels.is_empty() || more.is_some() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }

    /// A sample.
    pub fn value(&mut self, labels: &Labels<'_>, value: impl Display) -> &mut Self {
        self.sample("", labels, None, value);
        self
    }

    /// The samples of a histogram.
    pub fn histogram(&mut self, labels: &Labels<'_>, histogram: &Histogram) -> &mut Self {
        let cumulative = histogram.cumulative();
        for (bound, count) in BOUNDS.iter().zip(cumulative) {
            self.sample("_bucket", labels, Some(("le", &seconds(*bound).to_string())), count);
        }
        let all = cumulative[BOUNDS.len()];
        self.sample("_bucket", labels, Some(("le", "+Inf")), all);
        self.sample("_sum", labels, None, seconds(histogram.sum_ns()));
        self.sample("_count", labels, None, all);
        self
    }
}

/// Nanoseconds as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;
    use std::time::Duration;

    /// Goal: what is written reads back with all values, whatever stands in labels and help.
    #[test]
    fn reads_back() {
        let mut out = Exposition::default();
        let nasty = "a\"b\\c\nd}";
        out.family("skep_x_things_total", Kind::Counter, "Things.\nTwo lines, one \\.")
            .value(&[("name", nasty), ("other", "")], 7)
            .value(&[("name", "plain"), ("other", "")], u64::MAX);
        out.family("skep_x_level", Kind::Gauge, "Level.").value(&[], -1.5);
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(30));
        out.family("skep_x_took_seconds", Kind::Histogram, "Took.").histogram(&[("op", "read")], &histogram);
        let parsed = parse(&out.into_text()).unwrap();
        assert_eq!(parsed.value("skep_x_things_total", &[("name", nasty)]), Some(7.0));
        assert_eq!(parsed.value("skep_x_level", &[]), Some(-1.5));
        assert_eq!(parsed.value("skep_x_took_seconds_bucket", &[("le", "0.00005")]), Some(1.0));
        assert_eq!(parsed.value("skep_x_took_seconds_bucket", &[("le", "0.000025")]), Some(0.0));
        assert_eq!(parsed.value("skep_x_took_seconds_sum", &[("op", "read")]), Some(0.000_03));
    }

    /// Goal: a family that comes twice does not spoil the text.
    #[test]
    fn no_family_twice() {
        let mut out = Exposition::default();
        for value in [1, 2] {
            out.family("skep_x_things_total", Kind::Counter, "Things.").value(&[], value);
        }
        let parsed = parse(&out.into_text()).unwrap();
        assert_eq!(parsed.value("skep_x_things_total", &[]), Some(1.0));
    }
}
