//! `skep tune check`.

use super::leftovers;
use super::machine::MachineArgs;
use crate::bench::scratch::own_name;
use clap::Args;
use serde::Serialize;
use skep_base::output::{self, Format, OutputArgs, Row};
use skep_base::{Failure, Outcome};
use skep_instruments::processes::parted;
use skep_tune::recording::Recording;
use skep_tune::{Finding, Host, Root, Verdict, check};
use std::io::Write;
use std::path::{Path, PathBuf};

/// So many things with the same setting are named one by one in a table.
const NAMED_MAX: usize = 3;

/// Arguments of `skep tune check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Also what means nothing on this machine
    #[arg(long, short = 'a')]
    all: bool,
    /// Say why, what to expect, who says so and what to do, for what should change or is not known
    #[arg(long, short = 'e')]
    explain: bool,
    /// Write everything that was read into a file, to be looked at elsewhere with --root
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Who recommends what.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceDocument {
    /// The document.
    name: String,
    /// What it says.
    says: String,
}

/// A setting.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingRow {
    /// change, unknown, ok or not-applicable.
    verdict: &'static str,
    /// danger, major, minor or info.
    severity: &'static str,
    /// Group of settings.
    area: &'static str,
    setting: &'static str,
    /// What has it.
    subject: String,
    /// Roles of this machine that want it so.
    roles: Vec<&'static str>,
    /// Absent: it cannot be read.
    current: Option<String>,
    /// Absent: nothing is recommended.
    recommended: Option<String>,
    /// `skep tune apply` changes it; otherwise the note says what to do.
    apply: bool,
    reason: &'static str,
    effect: &'static str,
    sources: Vec<SourceDocument>,
    /// Which source was followed where they disagree, and why; empty: they agree.
    choice: &'static str,
    /// What is special here: a translated name, a limit of the device, what to do by hand.
    note: String,
}

impl Row for SettingRow {
    const TITLES: &'static [&'static str] =
        &["VERDICT", "SEVERITY", "SETTING", "OF", "CURRENT", "RECOMMENDED", "HOW"];

    fn cells(&self) -> Vec<String> {
        let how = match (self.verdict, self.apply) {
            ("change", true) => "apply",
            ("change", false) => "by hand",
            _ => "",
        };
        vec![
            self.verdict.to_owned(),
            self.severity.to_owned(),
            self.setting.to_owned(),
            self.subject.clone(),
            self.current.clone().unwrap_or_else(|| "-".to_owned()),
            self.recommended.clone().unwrap_or_else(|| "-".to_owned()),
            how.to_owned(),
        ]
    }
}

/// A finding as it is shown.
pub fn row(finding: &Finding) -> SettingRow {
    let source = |source: &skep_tune::Source| SourceDocument {
        name: source.name.to_owned(),
        says: source.says.to_owned(),
    };
    SettingRow {
        verdict: finding.verdict.as_str(),
        severity: finding.severity.as_str(),
        area: finding.area,
        setting: finding.setting,
        subject: finding.subject.clone(),
        roles: finding.roles.iter().map(|role| role.as_str()).collect(),
        current: finding.current.clone(),
        recommended: finding.recommended.clone(),
        apply: finding.change.is_some(),
        reason: finding.reason,
        effect: finding.effect,
        sources: finding.sources.iter().map(source).collect(),
        choice: finding.choice,
        note: finding.note.clone(),
    }
}

/// What a line is about: of many things the first, the last and their number; processes of one service together.
fn named(subjects: &[String]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (plain, number) in subjects.iter().map(|subject| parted(subject)) {
        let same = groups
            .iter_mut()
            .find(|(known, others)| *known == plain && !others.is_empty() && number.is_some());
        match same {
            Some((_, numbers)) => numbers.extend(number),
            None => groups.push((plain, number.into_iter().collect())),
        }
    }
    let label = |(plain, numbers): &(&str, Vec<&str>)| match &numbers[..] {
        [] => (*plain).to_owned(),
        [number] => format!("{plain} (process {number})"),
        few if few.len() <= NAMED_MAX => format!("{plain} (processes {})", few.join(", ")),
        many => format!("{plain} ({} processes)", many.len()),
    };
    let labels: Vec<String> = groups.iter().map(label).collect();
    match &labels[..] {
        [first, .., last] if labels.len() > NAMED_MAX => format!("{first}..{last} ({})", subjects.len()),
        few => few.join(", "),
    }
}

/// Drives that are alike take one line of a table.
fn folded(rows: Vec<SettingRow>) -> Vec<SettingRow> {
    let mut groups: Vec<(SettingRow, Vec<String>)> = Vec::new();
    for row in rows {
        let alike = |(first, _): &&mut (SettingRow, Vec<String>)| {
            (first.setting, first.verdict, &first.current, &first.recommended, &first.note, first.apply)
                == (row.setting, row.verdict, &row.current, &row.recommended, &row.note, row.apply)
        };
        match groups.iter_mut().find(alike) {
            Some((_, subjects)) => subjects.push(row.subject),
            None => groups.push((row.clone(), vec![row.subject])),
        }
    }
    groups.into_iter().map(|(row, subjects)| SettingRow { subject: named(&subjects), ..row }).collect()
}

/// What a reader needs who wants to know why.
fn explanation(row: &SettingRow) -> String {
    let mut text = format!("\n{} of {}: {}\n", row.setting, row.subject, row.reason);
    text.push_str(&format!("  effect: {}\n", row.effect));
    for source in &row.sources {
        text.push_str(&format!("  {}: {}\n", source.name, source.says));
    }
    if !row.choice.is_empty() {
        text.push_str(&format!("  choice: {}\n", row.choice));
    }
    if !row.note.is_empty() {
        text.push_str(&format!("  here: {}\n", row.note));
    }
    text
}

/// The last words: `rows` are the lines of the table.
fn summary(findings: &[Finding], rows: &[SettingRow]) -> String {
    let of = |verdict: Verdict| findings.iter().filter(move |one| one.verdict == verdict);
    let (change, unknown, ok) =
        (of(Verdict::Change).count(), of(Verdict::Unknown).count(), of(Verdict::Ok).count());
    let by_apply = of(Verdict::Change).filter(|one| one.change.is_some()).count();
    let how = match (by_apply, change - by_apply) {
        (0, 0) => String::new(),
        (_, 0) => " (by skep tune apply)".to_owned(),
        (0, _) => " (by hand)".to_owned(),
        (by_apply, by_hand) => format!(" ({by_apply} by skep tune apply, {by_hand} by hand)"),
    };
    let lines = rows.iter().filter(|row| row.verdict == Verdict::Change.as_str()).count();
    let place = match lines {
        lines if lines == change => String::new(),
        1 => " in 1 line".to_owned(),
        lines => format!(" in {lines} lines"),
    };
    let legend = match rows.iter().any(|row| row.subject.contains("..")) {
        true => "; A..Z (9) are 9 that are alike, the first and the last of them named",
        false => "",
    };
    format!(
        "{ok} settings are right, {change} should change{place}{how}, {unknown} cannot be judged; --explain says \
         why{legend}"
    )
}

/// A recorded machine, unpacked into a directory that goes with it.
struct Unpacked(PathBuf);

impl Unpacked {
    fn of(file: &Path) -> Outcome<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let wrong = |e: &dyn std::fmt::Display| Failure::local(file.display(), e);
        let text = std::fs::read_to_string(file).map_err(|e| wrong(&e))?;
        let recording = Recording::read(&text).map_err(|e| wrong(&e))?;
        leftovers::sweep_temporary(&std::env::temp_dir());
        let dir = std::env::temp_dir().join(own_name(leftovers::MACHINE));
        let named = |e: std::io::Error| Failure::local(dir.display(), e);
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(named)?;
        let unpacked = Self(dir.clone());
        recording.unpack(&dir).map_err(named)?;
        Ok(unpacked)
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("note: {}: {e}; remove it by hand", self.0.display());
        }
    }
}

pub fn run(args: &CheckArgs, out: &mut dyn Write) -> Outcome {
    let place = &args.machine.root;
    let unpacked = place.is_file().then(|| Unpacked::of(place)).transpose()?;
    let dir = unpacked.as_ref().map_or(place, |unpacked| &unpacked.0);
    let root = match &args.record {
        None => Root::new(dir),
        Some(_) => Root::recording(dir),
    };
    let root = root.map_err(|e| Failure::local(place.display(), e))?;
    let host = Host::read(&root, args.machine.part(&root)?);
    let findings = check(&host);
    let shown = findings.iter().filter(|one| args.all || one.verdict != Verdict::NotApplicable);
    let rows: Vec<SettingRow> = shown.map(row).collect();
    match args.output.output {
        Format::Table => {
            let rows = folded(rows);
            output::rows(Format::Table, &rows, out)?;
            if args.explain {
                let wanted = rows.iter().filter(|row| matches!(row.verdict, "change" | "unknown"));
                wanted.map(explanation).try_for_each(|text| out.write_all(text.as_bytes()))?;
            }
            eprintln!("{}", summary(&findings, &rows));
        }
        format => output::rows(format, &rows, out)?,
    }
    if let (Some(path), Some(recording)) = (&args.record, root.recorded()) {
        std::fs::write(path, recording.write()).map_err(|e| Failure::local(path.display(), e))?;
        eprintln!("what was read is in {}; look through it before you give it away", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_tune::Severity;
    use skep_tune::change::Change;

    fn finding(subject: &str, change: Option<Change>) -> Finding {
        Finding {
            area: "queue",
            setting: "scheduler",
            subject: subject.to_owned(),
            roles: Vec::new(),
            verdict: Verdict::Change,
            severity: Severity::Major,
            current: Some("none".to_owned()),
            recommended: Some("mq-deadline".to_owned()),
            reason: "",
            effect: "",
            sources: &[],
            choice: "",
            note: String::new(),
            change,
        }
    }

    /// Goal: a reader can tell what a line is about: processes of one service by their numbers or how many they are, many
    /// things by the first and the last.
    #[test]
    fn what_a_line_is_about() {
        for (subjects, label) in [
            (&["mgmtd (process 5)", "mgmtd (process 7)"][..], "mgmtd (processes 5, 7)"),
            (&["metad (process 5)", "mgmtd"], "metad (process 5), mgmtd"),
            (
                &["s (process 1)", "s (process 2)", "s (process 3)", "s (process 4)", "m"],
                "s (4 processes), m",
            ),
            (&["sda", "sdb", "sdc", "sdd"], "sda..sdd (4)"),
            (&["host", "host"], "host, host"),
        ] {
            let subjects: Vec<String> = subjects.iter().map(|one| (*one).to_owned()).collect();
            assert_eq!(named(&subjects), label);
        }
    }

    /// Goal: the last words agree with the table: as many as should change, in how many lines, and no others by hand where
    /// there are none.
    #[test]
    fn last_words() {
        let said = |all: &[Finding]| summary(all, &folded(all.iter().map(row).collect()));
        let by_apply = || Some(Change::default());
        let one = said(&[finding("sda", by_apply())]);
        assert!(one.contains("1 should change (by skep tune apply), 0 cannot"), "{one}");
        let hand = said(&[finding("sda", None), finding("sdb", None)]);
        assert!(hand.contains("2 should change in 1 line (by hand), 0"), "{hand}");
        let names = ["sda", "sdb", "sdc", "sdd"];
        let mut all: Vec<Finding> = names.iter().map(|name| finding(name, by_apply())).collect();
        all.push(finding("sde", None));
        let both = said(&all);
        assert!(both.contains("5 should change in 2 lines (4 by skep tune apply, 1 by hand), 0"), "{both}");
        assert!(both.contains("A..Z (9)"), "{both}");
        assert!(said(&[]).contains(" 0 should change, 0 cannot"));
    }
}
