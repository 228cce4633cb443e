//! `cargo xtask rigged`: set-ups in which one thing was made slow, drawn at random, and controls in which nothing
//! was. The survey must name the right culprit in each, and none in a control.
//!
//! Product code is untouched: a target is slow because the disk under it is (a file behind FUSE and a loop device),
//! a network because its cable is shaped (tbf, both ways), a daemon because its control group has a quota. The
//! cluster runs on four hosts that are network namespaces of this machine (root is needed).

mod cluster;
mod disk;
mod page;
mod rig;

use crate::program;
use cluster::Cluster;
use rig::{Draw, Rig};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use disk::{DiskArguments, serve};

/// Longest survey.
const LIMIT: Duration = Duration::from_secs(300);
/// One control for so many rigged runs.
const CONTROL_EVERY: u32 = 4;
/// Where the table is kept.
const PAGE: &str = "docs/survey/rigged.md";

/// Flags.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rigged runs; controls come on top, one for every four.
    #[arg(long, default_value_t = 20)]
    runs: u32,
    /// Which set-ups are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One rig of each kind and one control.
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
    /// Layer and member that the survey named.
    named: Option<(String, String)>,
    headline: String,
    seconds: f64,
}

impl Outcome {
    fn right(&self) -> bool {
        let named = self.named.as_ref().map(|(layer, member)| (layer.as_str(), member.as_str()));
        named == self.rig.expected()
    }
}

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => program::built(root, "skep", false)?,
    };
    let scratch = skep_rig::Scratch::new(None)?;
    let cluster = Cluster::start(&program, scratch.path())?;
    let set_ups = set_ups(arguments);
    let all = set_ups.len();
    let mut outcomes = earlier(arguments)?;
    let todo = set_ups.into_iter().enumerate().skip(outcomes.len()).take(arguments.most.unwrap_or(all));
    for (number, rig) in todo {
        let outcome =
            one(&cluster, rig, number, arguments).inspect_err(|_| eprintln!("{}", cluster.logs()))?;
        let mark = if outcome.right() { "right" } else { "WRONG" };
        println!("  {mark} {:<34} {:>5.1} s  {}", outcome.rig.describe(), outcome.seconds, outcome.headline);
        outcomes.push(outcome);
        if let Some(path) = &arguments.state {
            let text = serde_json::to_vec(&outcomes).map_err(|e| format!("{}: {e}", path.display()))?;
            std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    let wrong = outcomes.iter().filter(|outcome| !outcome.right()).count();
    if arguments.write && outcomes.len() == all {
        let path = root.join(PAGE);
        std::fs::write(&path, page::text(&outcomes, arguments.seed))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    println!("{} passed, {wrong} failed", outcomes.len() - wrong);
    Ok(wrong == 0)
}

/// What an earlier piece of this run found.
fn earlier(arguments: &Arguments) -> Result<Vec<Outcome>, String> {
    let Some(path) = arguments.state.as_ref().filter(|path| path.exists()) else { return Ok(Vec::new()) };
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What is done one after the other: rigs as drawn, a control now and then.
fn set_ups(arguments: &Arguments) -> Vec<Rig> {
    let mut draw = Draw::new(arguments.seed);
    if arguments.short {
        let mut all: Vec<Rig> = (0..3).map(|kind| draw.rig_of(kind)).collect();
        all.push(Rig::Nothing);
        return all;
    }
    let mut all = Vec::new();
    for number in 0..arguments.runs {
        if number % CONTROL_EVERY == 0 {
            all.push(Rig::Nothing);
        }
        all.push(draw.rig());
    }
    all
}

fn one(cluster: &Cluster, rig: Rig, number: usize, arguments: &Arguments) -> Result<Outcome, String> {
    rig.apply(cluster)?;
    let began = Instant::now();
    let surveyed = cluster.survey(&arguments.survey, LIMIT);
    let seconds = began.elapsed().as_secs_f64();
    // Even after a failure, so that the daemons can end.
    rig.undo(cluster)?;
    let text = surveyed?;
    if let Some(directory) = &arguments.keep {
        let path = directory.join(format!("rigged-{number:02}.json"));
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&path, &text))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let survey: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("survey.json: {e}"))?;
    let verdict = &survey["verdict"];
    let culprit = &verdict["culprit"];
    let word = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let named = word(&culprit["layer"]).zip(word(&culprit["member"]));
    let headline = word(&verdict["headline"]).ok_or("survey.json: the verdict has no headline")?;
    Ok(Outcome { rig, named, headline, seconds })
}
