//! What a search found, for people and programs.

use serde::Serialize;
use skep_base::output::{self, Format, Row, human};
use skep_base::units::Size;
use skep_tune::auto::Outcome as Found;
use skep_tune::root::shell_word;
use skep_types::{Policy, PoolId};
use std::io::{self, Write};
use std::path::Path;

/// Unit of rates of streams.
pub const BYTES: &str = "bytes/s";
/// Unit of rates of small files.
pub const FILES: &str = "files/s";

/// What the numbers of the table are, said above it.
const LEGEND: &str = "The present setting is measured again beside each candidate, so PRESENT BESIDE IT differs from \
                      row to row. Both rates are the best of the candidate's last round; in the row with a RATIO they \
                      are those of the pair in the middle: RATIO, the median of the pairs, is their quotient.";

/// Writes the rows, for people below what the numbers are.
pub fn show(format: Format, rows: &[CandidateRow], out: &mut dyn Write) -> io::Result<()> {
    if format == Format::Table {
        // The terminal may be gone; the rows are written all the same.
        let _ = writeln!(io::stderr(), "{LEGEND}");
    }
    output::rows(format, rows, out)
}

/// One setting that was tried.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CandidateRow {
    /// Absent: the cluster's default.
    chunk_size: Option<u32>,
    /// Absent: progressive.
    targets: Option<u32>,
    /// Largest file in the metadata; absent: the cluster's default.
    inline_limit: Option<u32>,
    /// Settings of a mount; absent: those of a directory are searched.
    mount_options: Option<String>,
    /// Of `best` and `present_best`: bytes/s, or files/s.
    unit: &'static str,
    /// The one that the directory had.
    present: bool,
    /// Best of the first part, and that of the present setting in the same round; absent for the
    /// present setting.
    best: Option<f64>,
    present_best: Option<f64>,
    /// Of the one that was measured against the present setting in pairs: median of the ratio.
    pub ratio: Option<f64>,
    /// Probability of such a gain if both were alike.
    p: Option<f64>,
    /// The directory has it now.
    pub kept: bool,
    /// Rates of the pair in the middle, present and candidate: those that `ratio` is the quotient of.
    #[serde(skip)]
    middle: Option<(f64, f64)>,
}

impl Row for CandidateRow {
    const TITLES: &'static [&'static str] =
        &["SETTING", ">RATE", ">PRESENT BESIDE IT", ">RATIO", ">P", "RESULT"];

    fn cells(&self) -> Vec<String> {
        let rate = |rate: Option<f64>| match (rate, self.unit) {
            (None, _) => "-".to_owned(),
            (Some(rate), FILES) => format!("{rate:.0} {FILES}"),
            (Some(rate), _) => format!("{}/s", human(rate as u64)),
        };
        let (present, own) = match self.middle {
            Some((present, own)) => (Some(present), Some(own)),
            None => (self.present_best, self.best),
        };
        let number = |number: Option<f64>, digits| number.map_or("-".to_owned(), |n| format!("{n:.digits$}"));
        let result = match (self.present, self.kept, self.ratio) {
            (true, ..) => "present setting",
            (_, true, _) => "kept",
            (_, _, Some(_)) => "measured in pairs, not kept",
            _ => "",
        };
        let chunk = self.chunk_size.map_or("default".to_owned(), |size| human(u64::from(size)));
        let targets = self.targets.map_or("progressive".to_owned(), |targets| targets.to_string());
        vec![
            self.mount_options.clone().unwrap_or(match (self.unit, self.inline_limit) {
                (FILES, Some(limit)) => format!("inline up to {}", human(u64::from(limit))),
                (FILES, None) => "inline as the cluster has it".to_owned(),
                _ => format!("chunk {chunk}, targets {targets}"),
            }),
            rate(own),
            rate(present),
            number(self.ratio, 3),
            number(self.p, 4),
            result.to_owned(),
        ]
    }
}

/// A policy that was tried.
pub fn row(
    at: usize,
    unit: &'static str,
    policy: &Policy,
    found: &Found,
    keep: Option<usize>,
) -> CandidateRow {
    let given = |value: u32| (value != 0).then_some(value);
    CandidateRow {
        chunk_size: given(policy.chunk_size),
        targets: given(policy.targets),
        inline_limit: policy.inline_limit,
        unit,
        ..CandidateRow::of(at, found, keep)
    }
}

impl CandidateRow {
    /// What was found of a candidate, without its settings.
    fn of(at: usize, found: &Found, keep: Option<usize>) -> Self {
        let rates = found.best.get(at).filter(|(rate, _)| *rate > 0.0);
        let decision = found.decision.filter(|_| found.finalist == Some(at));
        Self {
            chunk_size: None,
            targets: None,
            inline_limit: None,
            mount_options: None,
            unit: BYTES,
            present: at == 0,
            best: rates.map(|(rate, _)| *rate),
            present_best: rates.map(|(_, present)| *present),
            ratio: decision.map(|decision| decision.ratio),
            p: decision.map(|decision| decision.p),
            kept: keep == Some(at),
            middle: decision.and_then(|_| found.middle()),
        }
    }

    /// Of a candidate for a mount.
    pub fn of_mount(
        at: usize,
        unit: &'static str,
        words: String,
        found: &Found,
        keep: Option<usize>,
    ) -> Self {
        Self { mount_options: Some(words), unit, ..Self::of(at, found, keep) }
    }
}

/// Words of a policy as `skep entry set` takes them.
fn words(policy: &Policy) -> String {
    let mut words = Vec::new();
    if policy.chunk_size != 0 {
        words.push(format!("--chunk-size {}", Size(u64::from(policy.chunk_size))));
    }
    words.push(match policy.targets {
        0 => "--targets progressive".to_owned(),
        targets => format!("--targets {targets}"),
    });
    if let Some(limit) = policy.inline_limit {
        words.push(format!("--inline-limit {}", Size(u64::from(limit))));
    }
    words.join(" ")
}

/// The command, or commands, that bring a policy back.
pub fn back(before: &Policy, own: bool, path: &Path) -> String {
    let path = shell_word(&path.to_string_lossy());
    let default = format!("skep entry set --default {path}");
    let pool = if before.pool == PoolId(0) { String::new() } else { format!(" --pool {}", before.pool.0) };
    match (own, before.chunk_size != 0 && before.inline_limit.is_some()) {
        (false, _) => default,
        (true, true) => format!("skep entry set {}{pool} {path}", words(before)),
        // What it leaves to the cluster can only be taken back with all the rest.
        (true, false) => format!("{default} && skep entry set {}{pool} {path}", words(before)),
    }
}

/// The sentence below the table.
pub fn verdict(
    path: &Path,
    dry_run: bool,
    before: &Policy,
    own: bool,
    candidates: &[Policy],
    found: &Found,
) -> String {
    let back = back(before, own, path);
    let whole = path;
    let path = path.display();
    let Some((decision, best)) = found.decision.zip(found.finalist.and_then(|at| candidates.get(at))) else {
        return format!("{path}: nothing was tried; it stays as it is");
    };
    let per_cent = (decision.ratio - 1.0) * 100.0;
    let said = format!("{per_cent:+.1} % in {} pairs, p = {:.4}", found.pairs.len(), decision.p);
    match (decision.better, dry_run) {
        (true, false) => format!(
            "{path}: new files get {} ({said}); files that are there keep theirs. Back: {back}",
            words(best)
        ),
        (true, true) => {
            let word = shell_word(&whole.to_string_lossy());
            format!("{path}: {} would be better ({said}): skep entry set {} {word}", words(best), words(best))
        }
        (false, _) => format!(
            "{path}: stays as it is; the best other one, {}, is not clearly better ({said})",
            words(best)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_tune::auto::decide;

    /// Goal: the rates beside a ratio are those it is the quotient of, also when the best ones of the first part and the
    /// medians of both sides have another; what dropped out shows its best, and programs get the fields they had.
    #[test]
    fn columns_belong_to_the_ratio() {
        let pairs = vec![(100.0, 130.0), (900.0, 910.0), (800.0, 1000.0)];
        let found = Found {
            keep: Some(1),
            finalist: Some(1),
            decision: Some(decide(&pairs, 0.01, 0.03)),
            pairs,
            best: vec![(0.0, 0.0), (959.0, 653.0), (500.0, 640.0)],
        };
        let rows: Vec<CandidateRow> =
            (0..3).map(|at| row(at, FILES, &Policy::default(), &found, None)).collect();
        let shown = |at: usize| rows[at].cells()[1..4].to_vec();
        assert_eq!(shown(0), ["-", "-", "-"]);
        assert_eq!(shown(1), ["1000 files/s", "800 files/s", "1.250"]);
        assert_eq!(shown(2), ["500 files/s", "640 files/s", "-"]);
        let json = serde_json::to_value(&rows[1]).unwrap();
        assert_eq!((json["best"].as_f64(), json["present_best"].as_f64()), (Some(959.0), Some(653.0)));
        assert!(json.get("middle").is_none());
    }

    /// Goal: commands that are printed mean the directory also when a shell would see several words in its name.
    #[test]
    fn commands_for_a_shell() {
        let path = Path::new("/m/it's a dir");
        let quoted = "'/m/it'\\''s a dir'";
        let policy = Policy { chunk_size: 1 << 20, targets: 2, ..Policy::default() };
        assert_eq!(back(&policy, false, path), format!("skep entry set --default {quoted}"));
        let own = back(&policy, true, path);
        assert_eq!(own.matches(quoted).count(), 2, "{own}");
        let pairs = vec![(100.0, 130.0); 20];
        let decision = Some(decide(&pairs, 0.01, 0.03));
        let found = Found { keep: Some(1), finalist: Some(1), decision, pairs, best: Vec::new() };
        let said = |dry_run| verdict(path, dry_run, &policy, false, &[policy, policy], &found);
        assert!(said(true).ends_with(&format!(" --targets 2 {quoted}")), "{}", said(true));
        assert!(said(false).ends_with(&format!("--default {quoted}")), "{}", said(false));
    }
}
