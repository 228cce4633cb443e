//! `cargo xtask ways`: what each line of the table of `docs/design/data-path.md` costs against the other way.
//!
//! One cluster in memory, one mount that goes past the kernel's page cache, one that goes through it, and one that
//! decides by the table. They take turns in every round; a figure is the median of the rounds, in seconds.

mod loads;

use crate::program::built;
use crate::programs::shell::must;
use loads::{LOADS, Load, script};
use skep_rig::{Cluster, Plan};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The setting `io` of the mounts.
const WAYS: [&str; 3] = ["direct", "cached", "auto"];

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds; in each all ways take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only loads whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the table into this page, between its marks.
    #[arg(long)]
    page: Option<PathBuf>,
}

/// Runs the loads; true when the table is made.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", true)?,
    };
    let plan = Plan { base: Some("/dev/shm".into()), ..Plan::new(program) };
    let cluster = Cluster::start(plan)?;
    let mounts = WAYS.map(|way| cluster.second_mount(way, &[&format!("io={way}")]));
    let mut rows = Vec::new();
    for load in LOADS {
        if arguments.filter.as_ref().is_some_and(|text| !load.name.contains(text.as_str())) {
            continue;
        }
        let mut times = [const { Vec::new() }; WAYS.len()];
        for round in 0..arguments.rounds.max(1) {
            for turn in 0..WAYS.len() {
                let way = (round + turn) % WAYS.len();
                times[way].push(one(load, mounts[way].as_ref().map_err(String::clone)?)?);
            }
        }
        let medians = times.map(median);
        eprintln!("{}: {medians:.3?}", load.name);
        rows.push(row(load, medians));
    }
    let table = format!("{HEAD}{}", rows.concat());
    print!("{table}");
    if let Some(page) = &arguments.page {
        write(page, &table)?;
    }
    Ok(true)
}

/// Seconds that the timed part took.
fn one(load: &Load, mount: &Path) -> Result<f64, String> {
    let work = mount.join("work");
    must(mount, "mkdir work && chmod 777 work && { chown postgres work 2>/dev/null || true; }")?;
    let part = |part: &str| must(&work, &script(part)).map_err(|e| format!("{}: {e}", load.name));
    part(load.before)?;
    let begun = Instant::now();
    let done = part(load.timed);
    let took = begun.elapsed().as_secs_f64();
    let after = part(load.after);
    done.and(after)?;
    must(mount, "rm -rf work")?;
    Ok(took)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

const HEAD: &str = "| opened | load | past the pages, s | through them, s | by the table, s | past / through |\n\
                    | --- | --- | --- | --- | --- | --- |\n";

fn row(load: &Load, [direct, cached, auto]: [f64; 3]) -> String {
    let Load { name, opened, .. } = load;
    format!("| {opened} | {name} | {direct:.2} | {cached:.2} | {auto:.2} | {:.2} |\n", direct / cached)
}

const MARKS: [&str; 2] = ["<!-- ways -->\n", "<!-- /ways -->\n"];

fn write(page: &Path, table: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", page.display());
    let text = std::fs::read_to_string(page).map_err(failed)?;
    let parts =
        text.split_once(MARKS[0]).and_then(|(before, rest)| Some((before, rest.split_once(MARKS[1])?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("{} has no marks {MARKS:?} for the table", page.display()))?;
    std::fs::write(page, format!("{before}{}\n{table}\n{}{after}", MARKS[0], MARKS[1])).map_err(failed)
}
