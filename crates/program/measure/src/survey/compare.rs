//! `skep survey compare A B`, with one survey or several on each side.

use super::document;
use super::{CompareArgs, EXIT_WORSE};
use serde::Serialize;
use skep_base::output::{self, Format, Row};
use skep_base::{Failure, Outcome};
use skep_survey::compare::{Change, Comparison, Outcome as Became, compare_sides, presets_differ};
use skep_survey::model::Survey;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Serialize)]
struct ChangeRow<'a>(&'a Change);

impl Row for ChangeRow<'_> {
    const TITLES: &'static [&'static str] =
        &["MEASUREMENT", "PLACE", ">BEFORE*", ">AFTER*", "UNIT", ">RATIO", "95 % INTERVAL", "BECAME"];

    fn cells(&self) -> Vec<String> {
        let change = self.0;
        let number = |mean: Option<f64>| match mean {
            Some(x) if x < 10.0 => format!("{x:.2}"),
            Some(x) => format!("{x:.0}"),
            None => "-".to_owned(),
        };
        let (ratio, interval) = match change.ratio {
            Some([ratio, low, high]) => (format!("{ratio:.3}"), format!("{low:.3} to {high:.3}")),
            None => ("-".to_owned(), "too few samples".to_owned()),
        };
        vec![
            change.title.clone(),
            change.place.clone(),
            number(change.means[0]),
            number(change.means[1]),
            change.unit.clone(),
            ratio,
            interval,
            change.words().to_owned(),
        ]
    }
}

/// The page of a comparison, below `--out`.
const PAGE: &str = "compare.html";

/// The surveys of one side.
fn side(paths: &[PathBuf]) -> Outcome<Vec<Survey>> {
    paths.iter().map(|path| document::read(path)).collect()
}

/// Does it: exit code 0, or [`EXIT_WORSE`].
pub fn run(args: &CompareArgs) -> Outcome<ExitCode> {
    let (first, second) = (side(&args.first)?, side(&args.second)?);
    if let Some(why) = presets_differ(&first, &second).filter(|_| !args.force) {
        return Err(Failure::new(format!("{why}. Survey again with one preset, or compare with --force")));
    }
    let found = compare_sides(&first, &second);
    if let (Some(out), Some(before), Some(after)) = (&args.out, first.last(), second.last()) {
        std::fs::create_dir_all(out).map_err(|e| Failure::local(out.display(), e))?;
        let page = out.join(PAGE);
        let text = skep_survey::report::compare_html(before, after, &found);
        std::fs::write(&page, text).map_err(|e| Failure::local(page.display(), e))?;
        eprintln!("{}", page.display());
    }
    let stdout = &mut output::stdout();
    match args.output.output {
        Format::Table => show(&found, args.all, stdout)?,
        format => output::documents(format, std::slice::from_ref(&found), |_| String::new(), stdout)?,
    }
    Ok(ExitCode::from(exit_code(&found)))
}

/// What may be drift is no reason to fail.
fn exit_code(found: &Comparison) -> u8 {
    if found.count(Became::Worse) > 0 { EXIT_WORSE } else { 0 }
}

fn show(found: &Comparison, all: bool, out: &mut dyn Write) -> Outcome {
    let marked = |change: &&Change| all || change.outcome.better().is_some();
    let rows: Vec<ChangeRow<'_>> = found.changes.iter().filter(marked).map(ChangeRow).collect();
    if !rows.is_empty() {
        output::rows(Format::Table, &rows, out)?;
        writeln!(out, "* geometric means, of which the ratio is one\n")?;
    }
    let count = |outcome| found.count(outcome);
    writeln!(
        out,
        "{} better, {} worse, {} without a change that can be told from chance, {} of which nothing can be told (twice \
         or half as much is not ruled out), {} with too few samples",
        count(Became::Better),
        count(Became::Worse),
        count(Became::Same) - found.untold(),
        found.untold(),
        count(Became::Unknown)
    )?;
    let (better, worse) = (count(Became::MaybeBetter), count(Became::MaybeWorse));
    if better + worse > 0 {
        writeln!(
            out,
            "{better} may have become better, {worse} worse; repeat: one survey a side cannot tell drift from change"
        )?;
    }
    for text in &found.remarks {
        writeln!(out, "note: {text}")?;
    }
    for [name, before, after] in &found.settings {
        writeln!(out, "setting: {name}: {before} -> {after}")?;
    }
    if found.culprits[0] != found.culprits[1] {
        let name = |culprit: &Option<String>| culprit.clone().unwrap_or_else(|| "nobody".to_owned());
        writeln!(out, "lagging: {} -> {}", name(&found.culprits[0]), name(&found.culprits[1]))?;
    }
    for text in found.alone.iter().filter(|_| all) {
        writeln!(out, "{text}")?;
    }
    if !found.alone.is_empty() && !all {
        writeln!(out, "{} places were measured by one survey only (--all names them)", found.alone.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(outcomes: &[Became]) -> Comparison {
        let change = |outcome: &Became| Change {
            id: "clients.write.n-n".into(),
            title: "Write, a file per process".into(),
            place: "processes = 4".into(),
            unit: "MB/s".into(),
            before: 100.0,
            after: 50.0,
            ratio: Some([0.5, 0.4, 0.6]),
            p: Some(0.001),
            outcome: *outcome,
            means: [Some(90.0), Some(45.0)],
        };
        Comparison {
            changes: outcomes.iter().map(change).collect(),
            alone: vec![],
            settings: vec![],
            culprits: [None, None],
            remarks: vec![],
        }
    }

    /// Goal: what only may have become worse is shown with its reason and does not fail; what did, fails.
    #[test]
    fn only_what_is_certain_fails() {
        let maybe = found(&[Became::MaybeWorse, Became::Same]);
        assert_eq!(exit_code(&maybe), 0);
        let mut text = Vec::new();
        show(&maybe, false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        // People read titles, as on the page; names are for programs.
        assert!(text.contains("Write, a file per process") && !text.contains("clients.write.n-n"), "{text}");
        assert!(text.contains("maybe worse") && text.contains("0 better, 0 worse, 0 without"), "{text}");
        assert!(text.contains("1 of which nothing can be told"), "{text}");
        assert!(text.contains("1 worse; repeat: one survey a side cannot tell drift from change"), "{text}");
        assert_eq!(exit_code(&found(&[Became::MaybeWorse, Became::Worse])), EXIT_WORSE);
        let mut text = Vec::new();
        show(&found(&[Became::Worse]), false, &mut text).unwrap();
        assert!(!String::from_utf8(text).unwrap().contains("repeat"));
    }

    /// Goal: before and after are those that the ratio is one of, and what may have changed by much is not called the
    /// same.
    #[test]
    fn columns_belong_to_the_ratio() {
        let mut wide = found(&[Became::Same]);
        wide.changes[0].ratio = Some([0.5, 0.01, 25.0]);
        let mut text = Vec::new();
        show(&wide, true, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let row = text.lines().find(|line| line.contains("a file per process")).unwrap();
        assert!(row.contains(" 90 ") && row.contains(" 45 ") && !row.contains("100"), "{text}");
        assert!(row.contains("cannot tell") && !row.contains("same"), "{text}");
        assert!(text.contains("* geometric means"), "{text}");
    }
}
