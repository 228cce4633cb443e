//! `cargo xtask sim`: runs the simulator, which is a program of its own so that this one need not be
//! built with all that it simulates.

use std::path::Path;
use std::process::Command;

/// Seeds of `make test`.
const SEEDS: &str = "400";

/// Which seeds to run, and how.
#[derive(clap::Args)]
pub struct Arguments {
    /// How many seeds, from 1 on.
    #[arg(long)]
    seeds: Option<u64>,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Operations of each lane.
    #[arg(long)]
    steps: Option<u64>,
    /// Run with a bug that must be found: the name of a canary (a wrong one lists them), or all.
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
}

/// Runs it; true when everything passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let words = command_line(arguments);
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["run", "--quiet", "--package", "skep-sim", "--"]).args(&words);
    let status = command.status().map_err(|e| format!("cargo cannot be started: {e}"))?;
    Ok(status.success())
}

fn command_line(arguments: &Arguments) -> Vec<String> {
    let mut words = Vec::new();
    let mut push = |name: &str, value: String| words.extend([name.to_owned(), value]);
    push("--seeds", arguments.seeds.map_or_else(|| SEEDS.to_owned(), |seeds| seeds.to_string()));
    if let Some(seed) = arguments.seed {
        push("--seed", seed.to_string());
    }
    if let Some(steps) = arguments.steps {
        push("--steps", steps.to_string());
    }
    if let Some(canary) = &arguments.canary {
        push("--canary", canary.clone());
    }
    if arguments.leases {
        words.push("--leases".to_owned());
    }
    if arguments.pieces {
        words.push("--pieces".to_owned());
    }
    if arguments.trace {
        words.push("--trace".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is asked for is passed on, and without a wish 400 seeds run.
    #[test]
    fn wishes_are_passed_on() {
        let none = Arguments {
            seeds: None,
            seed: None,
            steps: None,
            canary: None,
            leases: false,
            pieces: false,
            trace: false,
        };
        assert_eq!(command_line(&none), ["--seeds", "400"]);
        let one = Arguments { seed: Some(7), steps: Some(9), pieces: true, trace: true, ..none };
        let words = ["--seeds", "400", "--seed", "7", "--steps", "9", "--pieces", "--trace"];
        assert_eq!(command_line(&one), words);
        let canary = Arguments {
            canary: Some("all".into()),
            seed: None,
            steps: None,
            pieces: false,
            trace: false,
            ..one
        };
        assert_eq!(command_line(&canary), ["--seeds", "400", "--canary", "all"]);
    }
}
