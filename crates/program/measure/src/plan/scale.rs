//! `skep plan scale`: thousands of servers, simulated.

use super::{read_text, show};
use clap::Args;
use skep_base::output::{self, OutputArgs};
use skep_plan::scale::{Calibration, Scenario, run as simulate};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What was asked.
#[derive(Debug, Default, Args)]
pub struct ScaleArgs {
    /// Scenario in TOML; - reads it from standard input; without it the defaults
    #[arg(value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Numbers of storage servers to look at, such as 10,100,1000
    #[arg(long, value_delimiter = ',', value_name = "N")]
    servers: Vec<u32>,
    /// Clients for each storage server
    #[arg(long, value_name = "N", value_parser = skep_plan::units::number)]
    clients_per_server: Option<f64>,
    /// Targets of each storage server
    #[arg(long, value_name = "N")]
    targets_per_server: Option<u32>,
    /// Metadata servers that share the shards
    #[arg(long, value_name = "N")]
    metadata_servers: Option<u32>,
    /// Groups of each, with a thread and a core each
    #[arg(long, value_name = "N")]
    metadata_groups: Option<u32>,
    /// Any other key of a scenario
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Measured costs of another machine, as `cargo xtask calibrate` writes them
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Print the scenario with every key, and simulate nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl ScaleArgs {
    /// As `skep plan --scale [FILE]` asks.
    pub fn short(scenario: Option<&Path>, output: OutputArgs) -> Self {
        Self { scenario: scenario.map(Path::to_owned), output, ..Self::default() }
    }

    fn settings(&self) -> Vec<String> {
        let mut settings = self.settings.clone();
        if !self.servers.is_empty() {
            settings.push(format!("servers = {:?}", self.servers));
        }
        let clients = self.clients_per_server.map(|n| format!("clients_per_server = {n:?}"));
        let targets = self.targets_per_server.map(|n| format!("targets_per_server = {n}"));
        let metadata = self.metadata_servers.map(|n| format!("metadata_servers = {n}"));
        let groups = self.metadata_groups.map(|n| format!("metadata_groups = {n}"));
        settings.extend([clients, targets, metadata, groups].into_iter().flatten());
        settings
    }

    fn scenario(&self) -> Result<Scenario, String> {
        let text = self.scenario.as_deref().map_or(Ok(String::new()), read_text)?;
        let name = self.scenario.as_deref().map_or("scenario".to_owned(), |file| file.display().to_string());
        // What the library calls the scenario is the file, where there is one.
        let placed = |line: &str| match line.strip_prefix("scenario") {
            Some(rest) => format!("{name}{rest}"),
            None => line.to_owned(),
        };
        let told = |error: String| error.lines().map(placed).collect::<Vec<_>>().join("\n");
        Scenario::parse_with(&text, &self.settings()).map_err(told)
    }
}

pub fn run(args: &ScaleArgs) -> Result<(), String> {
    let scenario = args.scenario()?;
    if args.print {
        let text = scenario.to_text()?;
        return output::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string());
    }
    let calibration = match &args.calibration {
        Some(file) => {
            Calibration::parse(&read_text(file)?).map_err(|e| format!("{}: {e}", file.display()))?
        }
        None => Calibration::shipped()?,
    };
    let report = simulate(&calibration, &scenario)?;
    show(&[report], &args.output, |report| report.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        scale: ScaleArgs,
    }

    fn scenario(words: &[&str]) -> Result<Scenario, String> {
        let line = Line::try_parse_from(std::iter::once(&"scale").chain(words)).map_err(|e| e.to_string())?;
        line.scale.scenario()
    }

    /// Goal: flags and settings reach the scenario, and what cannot be is refused by name.
    #[test]
    fn flags() {
        let read = scenario(&["--servers", "5,50", "--clients-per-server", "2", "--set", "writing=false"]);
        let expected =
            Scenario { servers: vec![5, 50], clients_per_server: 2.0, writing: false, ..Scenario::default() };
        assert_eq!(read, Ok(expected));
        let several = scenario(&["--metadata-servers", "3", "--metadata-groups", "2"]).unwrap();
        assert_eq!((several.metadata_servers, several.metadata_groups), (3, 2));
        assert!(scenario(&["--set", "wrting=false"]).unwrap_err().contains("wrting"));
        assert!(scenario(&["--servers", "0"]).unwrap_err().contains("servers"));
        let wrong = scenario(&["--set", "repairs_at_once=-1"]).unwrap_err();
        assert!(
            wrong.contains("--set")
                && wrong.contains("repairs_at_once: ")
                && wrong.contains("write a whole number"),
            "{wrong}"
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("big.toml");
        std::fs::write(&file, "seed = 3\nwriting = 7\n").unwrap();
        let wrong = scenario(&[file.to_str().unwrap()]).unwrap_err();
        assert!(wrong.contains("big.toml:2: writing: ") && wrong.contains("write true or false"), "{wrong}");
        assert!(scenario(&["/nonexistent/scenario.toml"]).is_err());
    }
}
