//! Coverage-guided fuzzing of every reader of bytes from outside: `cargo xtask fuzz` builds it with counters and runs it.
//!
//! What is read must never panic, nor take more memory than its length allows; what was understood is written and
//! understood again as the same. An input that reaches code which none before it reached is kept, and changed further.
//! Same seed and same number of runs: same inputs.

mod counters;
mod hunt;
mod memory;
mod mutate;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Fuzz readers of bytes from outside.
#[derive(Parser)]
#[command(name = "skep-fuzz")]
struct Arguments {
    /// Targets; none: all.
    targets: Vec<String>,
    /// Inputs for each target; for texts, which take longest, a tenth.
    #[arg(long, default_value_t = 20_000)]
    runs: u64,
    /// Minutes for all targets together, instead of a number of inputs.
    #[arg(long)]
    minutes: Option<f64>,
    /// Where the dice begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Read one input only: a file that an earlier run kept.
    #[arg(long)]
    input: Option<PathBuf>,
    /// Where an input is kept that broke something.
    #[arg(long, default_value = "target/fuzz")]
    keep: PathBuf,
    /// Go on although the program was built without counters.
    #[arg(long)]
    blind: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("skep-fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    if counters::count() == 0 && !arguments.blind {
        return Err("it was built without counters; cargo xtask fuzz builds it with them".to_owned());
    }
    let mut targets = target::all();
    if let Some(unknown) = arguments.targets.iter().find(|name| !targets.iter().any(|t| t.name == **name)) {
        let known: Vec<_> = targets.iter().map(|target| target.name).collect();
        return Err(format!("there is no target {unknown:?}; the targets are {}", known.join(", ")));
    }
    targets
        .retain(|target| arguments.targets.is_empty() || arguments.targets.iter().any(|n| n == target.name));
    let share =
        arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0 / targets.len() as f64));
    let mut failed = 0;
    for target in &targets {
        let found = match &arguments.input {
            Some(path) => {
                let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
                hunt::once(target, &bytes)
            }
            None => hunt::run(target, arguments.seed, arguments.runs, share),
        };
        if let Err(broken) = found {
            failed += 1;
            std::fs::create_dir_all(&arguments.keep).map_err(|e| e.to_string())?;
            let path = arguments.keep.join(target.name);
            std::fs::write(&path, &broken.input).map_err(|e| format!("{}: {e}", path.display()))?;
            println!(
                "FAILED {}: {}\n  again: cargo xtask fuzz {} --input {}",
                target.name,
                broken.what,
                target.name,
                path.display()
            );
        }
    }
    println!("{} passed, {failed} failed", targets.len() - failed);
    Ok(failed == 0)
}
