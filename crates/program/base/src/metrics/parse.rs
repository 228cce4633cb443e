//! A strict reader of the text format, for tests: what promtool would complain about is an error.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// With its suffix.
    pub name: String,
    /// By name.
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// All of a text.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Type of each family.
    pub types: BTreeMap<String, String>,
    /// In order.
    pub samples: Vec<Sample>,
}

impl Parsed {
    /// The first sample of this name with (at least) these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|is| is == value))
        };
        self.samples.iter().find(fits).map(|sample| sample.value)
    }
}

fn is_name(text: &str, colons: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || colons && c == ':';
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// Reads the text and checks it: names, HELP and TYPE before samples, families in one piece, no
/// sample twice, conventions of names, histograms that add up.
pub fn parse(text: &str) -> Result<Parsed, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut parsed = Parsed::default();
    let mut current = String::new();
    let mut helped = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        let error = |what: &str| format!("line {}: {what}: {line}", at + 1);
        let fail = |what: &str| Err(error(what));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap_or_default();
            if !is_name(name, true) || rest.len() <= name.len() + 1 {
                return fail("no name or no help");
            }
            if !helped.insert(name.to_owned()) {
                return fail("the family comes twice");
            }
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else { return fail("no type") };
            if name != current || parsed.types.contains_key(name) {
                return fail("TYPE does not follow its HELP");
            }
            convention(name, kind).map_err(|e| error(&e))?;
            parsed.types.insert(name.to_owned(), kind.to_owned());
        } else {
            let sample = sample(line).map_err(|e| error(&e))?;
            let histogram = parsed.types.get(&current).is_some_and(|kind| kind == "histogram");
            let suffixes: &[&str] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            if !suffixes.iter().any(|suffix| sample.name == format!("{current}{suffix}")) {
                return fail("the sample is not of the family before it");
            }
            if !seen.insert(format!("{} {:?}", sample.name, sample.labels)) {
                return fail("the sample comes twice");
            }
            parsed.samples.push(sample);
        }
    }
    histograms(&parsed)?;
    Ok(parsed)
}

fn convention(name: &str, kind: &str) -> Result<(), String> {
    let good = match kind {
        "counter" => name.ends_with("_total"),
        "gauge" => !name.ends_with("_total"),
        "histogram" => name.ends_with("_seconds") || name.ends_with("_bytes"),
        _ => false,
    };
    if good && is_name(name, true) { Ok(()) } else { Err("name and type do not fit".to_owned()) }
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err("not a name".to_owned());
    }
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").ok_or("a label without value")?;
            if !is_name(label, false) {
                return Err(format!("{label}: not a label"));
            }
            let (value, after) = quoted(after)?;
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(format!("{label} comes twice"));
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let value = value.parse::<f64>().map_err(|e| e.to_string())?;
    Ok(Sample { name: name.to_owned(), labels, value })
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                _ => return Err("a wrong escape".to_owned()),
            },
            c => value.push(c),
        }
    }
    Err("an open quote".to_owned())
}

/// Buckets rise to `+Inf`, which equals the count; every one has its sum.
fn histograms(parsed: &Parsed) -> Result<(), String> {
    for name in parsed.types.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
        let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in parsed.samples.iter().filter(|sample| sample.name == format!("{name}_bucket")) {
            let mut labels = sample.labels.clone();
            let le = labels.remove("le").ok_or(format!("{name}: a bucket without le"))?;
            let le = if le == "+Inf" { f64::INFINITY } else { le.parse().map_err(|_| "le is no number")? };
            groups.entry(format!("{labels:?}")).or_default().push((le, sample.value));
        }
        for (labels, buckets) in &groups {
            let rises = buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
            let last = buckets.last().copied().unwrap_or_default();
            let of = |suffix: &str| {
                let fits = |sample: &&Sample| {
                    sample.name == format!("{name}{suffix}") && format!("{:?}", sample.labels) == *labels
                };
                parsed.samples.iter().find(fits).map(|sample| sample.value)
            };
            if !rises || last.0 != f64::INFINITY || of("_count") != Some(last.1) || of("_sum").is_none() {
                return Err(format!("{name} {labels}: buckets, sum and count do not fit"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every rule of the format is checked, or the other tests prove nothing.
    #[test]
    fn wrong_texts_are_refused() {
        let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"c\"} 1\n";
        assert!(parse(good).is_ok());
        let histogram = "# HELP h_seconds H.\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"1\"} 1\n\
                         h_seconds_bucket{le=\"+Inf\"} 2\nh_seconds_sum 1\nh_seconds_count 2\n";
        assert!(parse(histogram).is_ok());
        for bad in [
            good.trim_end().to_owned(),
            good.replace("# HELP a_total A.\n", ""),
            good.replace("counter", "gauge"),
            good.replace("a_total", "a"),
            good.replace("a_total", "1_total"),
            good.replace("{b=\"c\"}", "{b=\"c}"),
            good.replace("{b=\"c\"}", "{b=\"\\c\"}"),
            good.replace("{b=\"c\"}", "{b=\"c\",b=\"d\"}"),
            good.replace("} 1", "} one"),
            format!("{good}a_total{{b=\"c\"}} 2\n"),
            format!("{good}{good}"),
            format!("{good}other 1\n"),
            histogram.replace("count 2", "count 3"),
            histogram.replace("h_seconds_sum 1\n", ""),
            histogram.replace("le=\"+Inf\"} 2", "le=\"+Inf\"} 0"),
            histogram.replace("h_seconds_bucket{le=\"+Inf\"} 2\n", ""),
        ] {
            assert!(parse(&bad).is_err(), "{bad}");
        }
    }
}
