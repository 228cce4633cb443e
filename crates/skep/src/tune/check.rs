//! `skep tune check`.

use super::leftovers;
use super::machine::MachineArgs;
use crate::admin::{Failure, Outcome};
use crate::bench::scratch::own_name;
use crate::cli::output::{self, Format, OutputArgs, Row};
use clap::Args;
use serde::Serialize;
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SourceDocument {
    /// The document.
    name: String,
    /// What it says.
    says: String,
}

/// A setting.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    let named = |subjects: &[String]| match subjects {
        [first, .., last] if subjects.len() > NAMED_MAX => format!("{first}..{last} ({})", subjects.len()),
        few => few.join(", "),
    };
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

fn summary(findings: &[Finding]) -> String {
    let of = |verdict: Verdict| findings.iter().filter(move |one| one.verdict == verdict);
    let (change, unknown, ok) =
        (of(Verdict::Change).count(), of(Verdict::Unknown).count(), of(Verdict::Ok).count());
    let by_apply = of(Verdict::Change).filter(|one| one.change.is_some()).count();
    format!(
        "{ok} settings are right, {change} should change ({by_apply} by skep tune apply, the others by hand), {unknown} \
         cannot be judged; --explain says why"
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

/// Does it.
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
            eprintln!("{}", summary(&findings));
        }
        format => output::rows(format, &rows, out)?,
    }
    if let (Some(path), Some(recording)) = (&args.record, root.recorded()) {
        std::fs::write(path, recording.write()).map_err(|e| Failure::local(path.display(), e))?;
        eprintln!("what was read is in {}; look through it before you give it away", path.display());
    }
    Ok(())
}
