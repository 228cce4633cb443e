//! `cargo xtask rigged`: set-ups in which one thing was made slow, drawn at random, and controls in which nothing
//! was. The survey must name the right culprit in each, and none in a control.
//!
//! Product code is untouched: a target is slow because the disk under it is (a file behind FUSE and a loop device),
//! a network because its cable is shaped (tbf, both ways) or its port of the switch takes no large packets, a daemon because its control group has a quota, or because
//! it is kept on one processor with busy neighbours. The cluster runs on four hosts that are network namespaces of
//! this machine (root is needed). Whatever comes out is kept: a survey that failed is a wrong one.

mod cluster;
mod disk;
mod leftovers;
mod page;
mod progress;
mod rig;
mod state;

use crate::program;
use cluster::Cluster;
use leftovers::{Place, Stop};
use rig::{Draw, Rig};
use state::{Series, State, Words};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use disk::{DiskArguments, serve};

/// Longest survey.
const LIMIT: Duration = Duration::from_secs(300);
/// Longest survey of all layers: where all that clients move goes through a network of 3 % (7.5 MB/s), that alone takes
/// 25 minutes.
const WHOLE_LIMIT: Duration = Duration::from_secs(2_700);
/// What is promised of the small preset where nothing is slow: a control that takes longer is wrong.
const PROMISED: Duration = Duration::from_secs(600);
/// One control for so many rigged runs.
const CONTROL_EVERY: usize = 4;
/// After so many failures in a row there is no use in going on.
const FAILURES: usize = 3;
/// Seed of a series for which none is named.
const SEED: u64 = 1;
/// Where the table is kept.
const PAGE: &str = "docs/survey/rigged.md";

/// Flags.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rigged runs; controls come on top, one for every four.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// Which set-ups are drawn; absent: 1.
    #[arg(long)]
    seed: Option<u64>,
    /// A slow disk, a slow network, a starved daemon, a network that drops large packets, and a control.
    #[arg(long, conflicts_with_all = ["runs", "write"])]
    short: bool,
    /// After the others, a control and a rig of each kind again, surveyed in all layers at the small preset, with a mount.
    #[arg(long)]
    whole: bool,
    /// Write the table to docs/survey/rigged.md.
    #[arg(long)]
    write: bool,
    /// The program to survey with and to survey; absent: built now, for development (little optimisation).
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
    /// All layers were surveyed.
    #[serde(default)]
    whole: bool,
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
    // Hosts run it wherever they are.
    let program = program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?;
    let (path, most) = (arguments.state.as_deref(), arguments.most.unwrap_or(usize::MAX));
    let stop = Stop::on_signals()?;
    let place = Place::new()?;
    let seed = arguments.seed.unwrap_or(SEED);
    let drawn = set_ups(arguments, seed);
    let short = if arguments.short { " --short" } else { "" };
    println!("rigged: {} set-ups,{short} --seed {seed}", drawn.0.len());
    let series = Series::of(arguments, seed, &program, drawn)?;
    let mut state = State::open(path, root, series)?;
    let all = state.series.set_ups.len();
    let end = all.min(state.outcomes.len().saturating_add(most));
    let mut cluster = Running { program: &program, place: &place, now: None };
    for number in state.outcomes.len()..end {
        state.begun = Some(number);
        state.keep(path)?;
        let words = state.series.words(number);
        println!("{}", progress::text(&state.outcomes, all, state.series.whole));
        let outcome = one(&mut cluster, state.series.set_ups[number].clone(), number, &words, arguments);
        if stop.came() {
            return Err("a signal came: this set-up is cut off, and everything that was made is taken away"
                .to_owned());
        }
        let mark = if outcome.right() { "right" } else { "WRONG" };
        let said = outcome.failed.as_ref().unwrap_or(&outcome.headline);
        let layers = if outcome.whole { ", all layers" } else { "" };
        let rig = outcome.rig.describe() + layers;
        println!("  {mark} {rig:<34} {:>5.1} s  {said}", outcome.seconds);
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

/// What is done one after the other: rigs as drawn, a control now and then; and how many at the end are surveyed in all
/// layers.
fn set_ups(arguments: &Arguments, seed: u64) -> (Vec<Rig>, usize) {
    let mut draw = Draw::new(seed);
    let mut all = Vec::new();
    if arguments.short {
        all = draw.short();
        all.push(draw.packets());
        all.push(Rig::Nothing);
    } else {
        for (number, rig) in draw.rigs(arguments.runs).into_iter().enumerate() {
            if number % CONTROL_EVERY == 0 {
                all.push(Rig::Nothing);
            }
            all.push(rig);
        }
    }
    let before = all.len();
    if arguments.whole {
        all.push(Rig::Nothing);
        all.extend(draw.one_of_each());
    }
    let whole = all.len() - before;
    (all, whole)
}

/// A cluster that is started anew after a failure.
struct Running<'a> {
    program: &'a Path,
    place: &'a Place,
    now: Option<(Cluster, skep_rig::Scratch)>,
}

impl Running<'_> {
    fn cluster(&mut self) -> Result<&Cluster, String> {
        if self.now.is_none() {
            let scratch = skep_rig::Scratch::new(Some(self.place.path()))?;
            self.now = Some((Cluster::start(self.program, scratch.path())?, scratch));
        }
        self.now.as_ref().map(|(cluster, _)| cluster).ok_or_else(|| "there is no cluster".to_owned())
    }
}

/// One set-up; a failure is an outcome, too.
fn one(running: &mut Running<'_>, rig: Rig, number: usize, words: &Words, arguments: &Arguments) -> Outcome {
    let mut seconds = 0.0;
    let whole = words.whole;
    let judged = running.cluster().and_then(|cluster| {
        if whole {
            cluster.mount()?;
        }
        rig.apply(cluster)?;
        let began = Instant::now();
        // Layer by layer where that takes minutes.
        let told = |line: &str| {
            if whole {
                println!("      {:>4.0} s  {line}", began.elapsed().as_secs_f64());
            }
        };
        let surveyed = cluster.survey(&words.text, if whole { WHOLE_LIMIT } else { LIMIT }, told);
        seconds = began.elapsed().as_secs_f64();
        // Even after a failure, so that the daemons can end; why the survey failed says more than why this did.
        let undone = rig.undo(cluster);
        let text = surveyed.inspect_err(|_| eprintln!("{}", cluster.logs()))?;
        undone?;
        if let Some(directory) = &arguments.keep {
            let path = directory.join(format!("rigged-{number:02}.json"));
            std::fs::create_dir_all(directory)
                .and_then(|()| std::fs::write(&path, &text))
                .map_err(|e| format!("{}: {e}", path.display()))?;
        }
        verdict(&text)
    });
    match judged {
        Ok((accused, headline)) => {
            let failed = late(&rig, whole, seconds);
            Outcome { rig, accused, headline, seconds, whole, failed }
        }
        Err(why) => {
            running.now = None;
            let (accused, headline) = (Vec::new(), String::new());
            Outcome { rig, accused, headline, seconds, whole, failed: Some(why) }
        }
    }
}

/// A promise that was not kept.
fn late(rig: &Rig, whole: bool, seconds: f64) -> Option<String> {
    let is_late = whole && *rig == Rig::Nothing && seconds > PROMISED.as_secs_f64();
    is_late.then(|| {
        format!("it took {seconds:.0} s where nothing was slow, and {} s are promised", PROMISED.as_secs())
    })
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
        Outcome { rig, accused, headline, seconds: 1.0, whole: false, failed: None }
    }

    /// Goal: the whole surveys are a control and one rig of each kind, come last, and change no other set-up.
    #[test]
    fn whole_surveys_come_last() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let of = |words: &[&str]| {
            let line: Line = clap::Parser::parse_from([&["x"], words].concat());
            set_ups(&line.arguments, 3)
        };
        let ((plain, none), (all, whole)) = (of(&["--runs", "8"]), of(&["--runs", "8", "--whole"]));
        assert_eq!((none, whole, &all[..plain.len()]), (0, 5, plain.as_slice()));
        let short: Vec<&str> = of(&["--short"]).0.iter().map(Rig::kind).collect();
        assert_eq!((short.len(), short[3]), (5, "large packets of a node"));
        let kinds: std::collections::BTreeSet<&str> = all[plain.len()..].iter().map(Rig::kind).collect();
        assert_eq!(kinds.len(), 5);
        let series = Series { set_ups: all, whole, ..state::an_example() };
        assert_eq!(series.words(plain.len() - 1).text, "--preset quick");
        let last = series.words(plain.len());
        assert!(last.whole && last.text.contains("--preset small --mount") && !last.text.contains("--only"));
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
        // A whole survey of what is slow may take longer than one of what is not.
        assert!(late(&Rig::Nothing, true, 601.0).is_some() && late(&Rig::Nothing, true, 599.0).is_none());
        assert!(late(&rig(), true, 1_800.0).is_none() && late(&Rig::Nothing, false, 601.0).is_none());
        let failed = Some("no answer".to_owned());
        assert!(!Outcome { failed, ..outcome(Rig::Nothing, &said("null", "")) }.right());
    }
}
