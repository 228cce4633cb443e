//! `skep plan`: sizing.

mod propose;
mod scale;

use clap::{Args, Subcommand};
use skep_base::output::{self, OutputArgs};
use skep_plan::hardware::Hardware;
use skep_plan::load::Fault;
use skep_plan::{forward, reproduction, systems, text};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct PlanArgs {
    /// Description of the hardware, in TOML; - reads it from standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name the source of every component rate too
    #[arg(long)]
    sources: bool,
    /// Print a description to start from: `example`, or a system of the literature
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "example", conflicts_with = "file")]
    example: Option<String>,
    /// Thousands of servers: as `skep plan scale`, of a scenario in TOML
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["file", "example"])]
    scale: Option<Option<PathBuf>>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Option<PlanCommand>,
}

/// Other things about sizing.
#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Print a description to start from, or one of a system of the literature
    Example {
        /// Which one; without it the general example, `list` names all
        #[arg(default_value = "example")]
        name: String,
    },
    /// Show what components deliver, with the source of each figure
    Catalogue {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Propose building blocks and counts for requirements, with alternatives and reasons
    Propose(propose::ProposeArgs),
    /// Show where a cluster of thousands of servers and clients ends: a simulation with measured costs
    Scale(scale::ScaleArgs),
    /// Show this program's figures for published systems beside the published ones
    Reproduction {
        #[command(flatten)]
        output: OutputArgs,
    },
}

pub fn run(args: &PlanArgs) -> ExitCode {
    if let (None, Some(scenario)) = (&args.command, &args.scale) {
        return finish(scale::run(&scale::ScaleArgs::short(scenario.as_deref(), args.output)));
    }
    let done = match (&args.command, &args.example, &args.file) {
        (Some(PlanCommand::Propose(args)), _, _) => propose::run(args),
        (Some(PlanCommand::Scale(args)), _, _) => scale::run(args),
        (Some(PlanCommand::Example { name }), _, _) | (None, Some(name), _) => example(name),
        (Some(PlanCommand::Catalogue { output }), _, _) => catalogue(output),
        (Some(PlanCommand::Reproduction { output }), _, _) => reproduce(output),
        (None, None, Some(file)) => forecast(file, args),
        (None, None, None) => {
            Err("nothing to plan: name a description (`skep plan example` prints one)".to_owned())
        }
    };
    finish(done)
}

fn finish(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("skep plan: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Reads a text that the user named, `-` being standard input.
pub fn read_text(file: &Path) -> Result<String, String> {
    let limit = skep_plan::load::TEXT_MAX as u64 + 1;
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(limit).read_to_string(&mut text))
    };
    match read {
        Ok(_) => Ok(text),
        Err(e) => Err(format!("{}: {e}; `skep plan example > FILE` makes one to start from", file.display())),
    }
}

/// Reads a description; every fault stands on a line of its own.
pub fn read_hardware(file: &Path) -> Result<Hardware, String> {
    let text = read_text(file)?;
    Hardware::from_toml(&file.display().to_string(), &text).map_err(told)
}

/// Faults of a file, each on a line of its own.
pub fn told(faults: Vec<Fault>) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn forecast(file: &Path, args: &PlanArgs) -> Result<(), String> {
    let hardware = read_hardware(file)?;
    let forecast = forward::forecast(&hardware).map_err(|problems| {
        problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("\n")
    })?;
    show(&[forecast], &args.output, |forecast| text::forecast(forecast, args.sources))
}

fn example(name: &str) -> Result<(), String> {
    let mut out = output::stdout();
    if name == "list" {
        for system in systems::SYSTEMS {
            let about = Hardware::from_toml(system.name, system.text)
                .map_or(String::new(), |found| found.description);
            writeln!(out, "{:26} {about}", system.name).map_err(|e| e.to_string())?;
        }
        return Ok(());
    }
    let Some(system) = systems::system(name) else {
        return Err(format!("no example {name:?}: `skep plan example list` names them"));
    };
    out.write_all(system.text.as_bytes()).map_err(|e| e.to_string())
}

fn catalogue(output: &OutputArgs) -> Result<(), String> {
    show(&[skep_plan::catalogue::listing()], output, |_| text::catalogue())
}

fn reproduce(output: &OutputArgs) -> Result<(), String> {
    let documents = reproduction::reproduce()?;
    let all = reproduction::Reproduction {
        predictions: reproduction::predictions(&documents),
        documents,
        contradictions: reproduction::contradictions(),
    };
    show(&[all], output, |all| reproduction::markdown(&all.documents, &all.contradictions))
}

fn show<T: serde::Serialize>(
    found: &[T],
    output: &OutputArgs,
    text: impl Fn(&T) -> String,
) -> Result<(), String> {
    output::documents(output.output, found, text, &mut output::stdout())
        .map_err(|e| format!("cannot write to standard output: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn parse(words: &[&str]) -> Result<PlanArgs, clap::Error> {
        Line::try_parse_from(std::iter::once(&"plan").chain(words)).map(|line| line.plan)
    }

    /// Goal: both spellings of the example are taken, and a file does not go with a sub-command.
    #[test]
    fn spellings() {
        assert_eq!(parse(&["--example"]).unwrap().example.as_deref(), Some("example"));
        assert_eq!(
            parse(&["--example", "dell-2021-small"]).unwrap().example.as_deref(),
            Some("dell-2021-small")
        );
        assert!(matches!(
            parse(&["example", "hp-apollo"]).unwrap().command,
            Some(PlanCommand::Example { name }) if name == "hp-apollo"
        ));
        assert_eq!(parse(&["lab.toml", "-O", "json"]).unwrap().file, Some(PathBuf::from("lab.toml")));
        assert_eq!(parse(&["--scale"]).unwrap().scale, Some(None));
        assert!(matches!(parse(&["scale", "--servers", "5"]).unwrap().command, Some(PlanCommand::Scale(_))));
        assert!(parse(&["lab.toml", "--scale"]).is_err());
        assert!(parse(&["lab.toml", "--example"]).is_err());
        assert!(parse(&[]).is_err(), "help");
    }

    /// Goal: a file that is missing, and one that describes nothing possible, say what to do.
    #[test]
    fn faults() {
        let missing = read_hardware(Path::new("/nonexistent/lab.toml")).unwrap_err();
        assert!(missing.contains("skep plan example"), "{missing}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lab.toml");
        let text = systems::system("example").unwrap().text.replace("raid = \"raid1\"", "raid = \"raid6\"");
        std::fs::write(&file, text).unwrap();
        let fault = read_hardware(&file).unwrap_err();
        assert!(fault.contains("lab.toml:") && fault.contains("RAID 6 of 2 drives"), "{fault}");
    }
}
