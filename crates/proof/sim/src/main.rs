//! `skep-sim`: runs seeds of the simulator. Called by `cargo xtask sim`.

use clap::Parser;
use skep_sim::{Canary, Coverage, MARKERS, Options, RARE, Report, STEPS, run};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fewer seeds than this need not reach every situation.
const SEEDS_FOR_COVERAGE: u64 = 200;

/// Runs seeds of the simulated cluster.
#[derive(Parser)]
struct Arguments {
    /// How many seeds, from 1 on.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Deeds of each lane.
    #[arg(long, default_value_t = STEPS)]
    steps: u64,
    /// Run with this bug, which must be found: the name of a canary, or all.
    #[arg(long)]
    canary: Option<String>,
    /// Only runs with leases, about names.
    #[arg(long)]
    leases: bool,
    /// The same, about files that are written in small pieces.
    #[arg(long)]
    pieces: bool,
    /// Print the whole trace (with --seed).
    #[arg(long)]
    trace: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.canary {
        Some(name) => canaries(&arguments, name),
        None => Ok(seeds(&arguments)),
    };
    match outcome {
        Ok((passed, failed)) => {
            println!("{passed} passed, {failed} failed");
            if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("skep-sim: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the seeds on all threads, in order of their number; `false` from `each` ends it.
fn all(arguments: &Arguments, seeds: u64, options: Options, each: impl Fn(u64, Report) -> bool + Sync) {
    let (first, last) = match arguments.seed {
        Some(seed) => (seed, seed),
        None => (1, seeds),
    };
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    if !each(seed, run_caught(seed, options)) {
                        next.store(u64::MAX / 2, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// A panic of the rules is a failure of its seed like any other.
fn run_caught(seed: u64, options: Options) -> Report {
    std::panic::catch_unwind(|| run(seed, options)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Report { failure: Some(format!("panic: {}", text.unwrap_or_default())), ..Report::default() }
    })
}

fn seeds(arguments: &Arguments) -> (u64, u64) {
    let Arguments { steps, trace, leases, pieces, .. } = *arguments;
    let options = Options { steps, whole_trace: trace, leases, pieces, ..Options::default() };
    let sum = Mutex::new((Coverage::default(), 0u64, 0u64, 0u64));
    let first = Mutex::new(BTreeMap::<&str, u64>::new());
    all(arguments, arguments.seeds, options, |seed, report| {
        let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sum.0.add(&report.coverage);
        let mut first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for marker in RARE.iter().filter(|marker| report.coverage.count(marker) > 0) {
            first.entry(*marker).and_modify(|known| *known = seed.min(*known)).or_insert(seed);
        }
        sum.1 += report.events;
        match &report.failure {
            None => sum.2 += 1,
            Some(_) => sum.3 += 1,
        }
        if report.failure.is_some() || arguments.seed.is_some() {
            print_run(seed, arguments, &report);
        }
        true
    });
    let (coverage, events, passed, mut failed) = sum.into_inner().unwrap_or_else(|e| e.into_inner());
    println!("situations in {} runs, {events} events:", passed + failed);
    for marker in MARKERS {
        println!("{:8} {marker}", coverage.count(marker));
    }
    let first = first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for marker in RARE {
        let seed = first.get(marker).map_or(String::new(), |seed| format!(" (first by seed {seed})"));
        println!("{:8} {marker}{seed}", coverage.count(marker));
    }
    // Seeds that are all about one thing miss others.
    if passed + failed >= SEEDS_FOR_COVERAGE && !leases && !pieces {
        for marker in coverage.missing() {
            println!("FAILED: in no run: {marker}");
            failed += 1;
        }
    }
    (passed, failed)
}

fn print_run(seed: u64, arguments: &Arguments, report: &Report) {
    match &report.failure {
        Some(failure) => println!("seed {seed} FAILED: {failure}"),
        None => println!("seed {seed} passed"),
    }
    println!(
        "  {} events, {} s of virtual time, trace hash {:016x}",
        report.events,
        report.virtual_ms / 1000,
        report.hash
    );
    if arguments.trace || arguments.seed.is_some() {
        for line in &report.trace {
            println!("  {line}");
        }
    } else {
        let leases = match (arguments.leases, arguments.pieces) {
            (_, true) => " --pieces",
            (true, _) => " --leases",
            _ => "",
        };
        println!("  repeat: cargo xtask sim --seed {seed} --steps {}{leases} --trace", arguments.steps);
    }
}

fn canaries(arguments: &Arguments, name: &str) -> Result<(u64, u64), String> {
    let is_wanted = |canary: &Canary| canary.name() == name || name == "all";
    let wanted: Vec<Canary> = Canary::ALL.into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let known: Vec<&str> = Canary::ALL.iter().map(|canary| canary.name()).collect();
        return Err(format!("there is no canary {name:?}; there are {} and all", known.join(", ")));
    }
    let (mut found, mut missed) = (0, 0);
    for canary in wanted {
        let options = Options {
            steps: arguments.steps,
            canary: Some(canary),
            whole_trace: arguments.trace,
            ..Options::default()
        };
        let first = Mutex::new(None::<(u64, String, Vec<String>)>);
        let seeds = arguments.seeds.min(canary.found_within());
        all(arguments, seeds, options, |seed, report| {
            let mut first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(failure) = report.failure
                && first.as_ref().is_none_or(|(known, ..)| seed < *known)
            {
                *first = Some((seed, failure, report.trace));
            }
            first.is_none()
        });
        match first.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some((seed, failure, trace)) => {
                // Whatever else fails in that seed has found nothing.
                let without = run_caught(seed, Options { harmless: true, ..options });
                if let Some(other) = without.failure {
                    println!(
                        "FAILED: seed {seed}, which finds {}, fails without it as well: {other}",
                        canary.name()
                    );
                    without.trace.iter().filter(|_| arguments.trace).for_each(|line| println!("  {line}"));
                    missed += 1;
                    continue;
                }
                println!("canary {} found by seed {seed}: {failure}", canary.name());
                if arguments.trace {
                    trace.iter().for_each(|line| println!("  {line}"));
                }
                found += 1;
            }
            None => {
                println!("FAILED: canary {} was not found in {seeds} seeds", canary.name());
                missed += 1;
            }
        }
    }
    Ok((found, missed))
}
