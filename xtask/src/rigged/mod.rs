//! `cargo xtask rigged`: set-ups in which one thing was made slow, drawn at random, and controls in which nothing
//! was. The survey must name the right culprit in each, and none in a control.
//!
//! Product code is untouched: a target is slow because the disk under it is (a file behind FUSE and a loop device),
//! a network because its cable is shaped (tbf, both ways), a daemon because its control group has a quota, or because
//! it is kept on one processor with busy neighbours. The cluster runs on four hosts that are network namespaces of
//! this machine (root is needed). Whatever comes out is kept: a survey that failed is a wrong one.

mod cluster;
mod disk;
mod page;
mod rig;
mod state;

use crate::program;
use cluster::Cluster;
use rig::{Draw, Rig};
use state::{Series, State};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use disk::{DiskArguments, serve};

/// Longest survey.
const LIMIT: Duration = Duration::from_secs(300);
/// One control for so many rigged runs.
const CONTROL_EVERY: usize = 4;
/// After so many failures in a row there is no use in going on.
const FAILURES: usize = 3;
/// Where the table is kept.
const PAGE: &str = "docs/survey/rigged.md";

/// Flags.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rigged runs; controls come on top, one for every four.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// Which set-ups are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A disk, a network, a starved daemon and a control.
    #[arg(long, conflicts_with = "runs")]
    short: bool,
    /// Write the table to docs/survey/rigged.md.
    #[arg(long)]
    write: bool,
    /// The program to survey with and to survey; absent: built now, without optimisation.
    #[arg(long)]
    program: Option<PathBuf>,
    /// More words for the survey.
    #[arg(long, default_value = "--preset quick --only processor,device,storage,network")]
    survey: String,
    /// Keep every survey.json below this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Keep what came out so far in this file, and go on from there: a long run can be done in pieces.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Stop after so many set-ups (with --state).
    #[arg(long, requires = "state")]
    most: Option<usize>,
}

/// What came of one set-up.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    rig: Rig,
    /// Layers and members that the survey accused: the culprit, then those that it named beside it.
    accused: Vec<(String, String)>,
    headline: String,
    seconds: f64,
    /// Why there was no verdict.
    failed: Option<String>,
}

impl Outcome {
    /// The right one was named, and nobody beside it.
    fn right(&self) -> bool {
        let accused = self.accused.iter().map(|(layer, member)| (layer.as_str(), member.as_str()));
        self.failed.is_none() && accused.eq(self.rig.expected())
    }
}

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => program::built(root, "skep", false)?,
    };
    let (path, most) = (arguments.state.as_deref(), arguments.most.unwrap_or(usize::MAX));
    let series = Series::of(arguments, &program, set_ups(arguments))?;
    let mut state = State::open(path, root, series)?;
    let all = state.series.set_ups.len();
    let end = all.min(state.outcomes.len().saturating_add(most));
    let mut cluster = Running { program: &program, now: None };
    for number in state.outcomes.len()..end {
        state.begun = Some(number);
        state.keep(path)?;
        let outcome = one(&mut cluster, state.series.set_ups[number].clone(), number, arguments);
        let mark = if outcome.right() { "right" } else { "WRONG" };
        let said = outcome.failed.as_ref().unwrap_or(&outcome.headline);
        println!("  {mark} {:<34} {:>5.1} s  {said}", outcome.rig.describe(), outcome.seconds);
        state.outcomes.push(outcome);
        state.keep(path)?;
        if arguments.write {
            // A part of a series is shown as one: what came out cannot be unsaid by not going on.
            let page = root.join(PAGE);
            std::fs::write(&page, page::text(&state)).map_err(|e| format!("{}: {e}", page.display()))?;
        }
        let last = state.outcomes.iter().rev().take(FAILURES);
        if last.filter(|outcome| outcome.failed.is_some()).count() == FAILURES {
            return Err(format!("{FAILURES} surveys in a row failed"));
        }
    }
    let outcomes = &state.outcomes;
    let wrong = outcomes.iter().filter(|outcome| !outcome.right()).count();
    println!("{} passed, {wrong} failed", outcomes.len() - wrong);
    Ok(wrong == 0)
}

/// What is done one after the other: rigs as drawn, a control now and then.
fn set_ups(arguments: &Arguments) -> Vec<Rig> {
    let mut draw = Draw::new(arguments.seed);
    if arguments.short {
        let mut all = draw.short();
        all.push(Rig::Nothing);
        return all;
    }
    let mut all = Vec::new();
    for (number, rig) in draw.rigs(arguments.runs).into_iter().enumerate() {
        if number % CONTROL_EVERY == 0 {
            all.push(Rig::Nothing);
        }
        all.push(rig);
    }
    all
}

/// A cluster that is started anew after a failure.
struct Running<'a> {
    program: &'a Path,
    now: Option<(Cluster, skep_rig::Scratch)>,
}

impl Running<'_> {
    fn cluster(&mut self) -> Result<&Cluster, String> {
        if self.now.is_none() {
            let scratch = skep_rig::Scratch::new(None)?;
            self.now = Some((Cluster::start(self.program, scratch.path())?, scratch));
        }
        self.now.as_ref().map(|(cluster, _)| cluster).ok_or_else(|| "there is no cluster".to_owned())
    }
}

/// One set-up; a failure is an outcome, too.
fn one(running: &mut Running<'_>, rig: Rig, number: usize, arguments: &Arguments) -> Outcome {
    let mut seconds = 0.0;
    let judged = running.cluster().and_then(|cluster| {
        rig.apply(cluster)?;
        let began = Instant::now();
        let surveyed = cluster.survey(&arguments.survey, LIMIT);
        seconds = began.elapsed().as_secs_f64();
        // Even after a failure, so that the daemons can end.
        rig.undo(cluster)?;
        let text = surveyed.inspect_err(|_| eprintln!("{}", cluster.logs()))?;
        if let Some(directory) = &arguments.keep {
            let path = directory.join(format!("rigged-{number:02}.json"));
            std::fs::create_dir_all(directory)
                .and_then(|()| std::fs::write(&path, &text))
                .map_err(|e| format!("{}: {e}", path.display()))?;
        }
        verdict(&text)
    });
    match judged {
        Ok((accused, headline)) => Outcome { rig, accused, headline, seconds, failed: None },
        Err(why) => {
            running.now = None;
            Outcome { rig, accused: Vec::new(), headline: String::new(), seconds, failed: Some(why) }
        }
    }
}

/// Whom a survey accuses, the culprit first, and its headline.
fn verdict(text: &str) -> Result<(Vec<(String, String)>, String), String> {
    let survey: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("survey.json: {e}"))?;
    let verdict = &survey["verdict"];
    let word = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let also = verdict["also"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |one: &serde_json::Value| word(&one["layer"]).zip(word(&one["member"]));
    let accused = std::iter::once(&verdict["culprit"]).chain(also).filter_map(named).collect();
    let headline = word(&verdict["headline"]).ok_or("survey.json: the verdict has no headline")?;
    Ok((accused, headline))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(rig: Rig, verdict_json: &str) -> Outcome {
        let (accused, headline) = verdict(&format!("{{\"verdict\": {verdict_json}}}")).unwrap();
        Outcome { rig, accused, headline, seconds: 1.0, failed: None }
    }

    /// Goal: who accuses somebody beside the culprit is wrong, as is who accuses anybody in a control, names the
    /// right member in a wrong layer, or fails.
    #[test]
    fn only_the_culprit() {
        let rig = || Rig::Network { index: 2, percent: 10 };
        let gamma = r#"{"layer": "network", "member": "gamma"}"#;
        let beta = r#"{"layer": "processor", "member": "beta"}"#;
        let said = |culprit: &str, also: &str| {
            format!(r#"{{"headline": "x", "culprit": {culprit}, "also": [{also}]}}"#)
        };
        assert!(outcome(rig(), &said(gamma, "")).right());
        assert!(outcome(Rig::Nothing, &said("null", "")).right());
        assert!(!outcome(rig(), &said(gamma, beta)).right());
        assert!(!outcome(rig(), &said(beta, gamma)).right());
        assert!(!outcome(rig(), &said("null", "")).right());
        assert!(!outcome(rig(), &said(&gamma.replace("network", "device"), "")).right());
        assert!(!outcome(Rig::Nothing, &said("null", beta)).right());
        let failed = Some("no answer".to_owned());
        assert!(!Outcome { failed, ..outcome(Rig::Nothing, &said("null", "")) }.right());
    }
}
