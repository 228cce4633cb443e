//! `skep config template`, `skep config check`: configuration files without their daemon.

use super::failure::{Failure, Outcome};
use crate::config::{self, MetadConfig, MgmtdConfig, MountConfig, Service, Source, StoragedConfig};
use clap::{Args, Subcommand, ValueEnum};
use std::io::Write;
use std::path::PathBuf;

/// `skep config ...`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a configuration file: every key, explained, with its default
    Template(TemplateArgs),
    /// Say whether a service would accept its configuration
    Check(CheckArgs),
}

/// Arguments of `skep config template`.
#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// Which service
    service: ServiceName,
}

/// Arguments of `skep config check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Which service
    service: ServiceName,
    /// Configuration file [default: /etc/skep/<service>.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key, as for the service
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

/// Services that have a configuration.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ServiceName {
    Mgmtd,
    Metad,
    Storaged,
    Mount,
}

fn check<S: Service>(args: &CheckArgs) -> Outcome {
    let source = args.config.as_deref().map_or(Source::Installed(None), Source::Given);
    let loaded = config::load::<S>(source, &config::environment(), &args.sets);
    let loaded = loaded.map_err(|e| Failure::new(e.to_string()))?;
    loaded.warnings.iter().for_each(|text| eprintln!("note: {text}"));
    eprintln!("{}: the configuration is good", S::NAME);
    Ok(())
}

/// Does it.
pub fn run(command: &ConfigCommand, out: &mut dyn Write) -> Outcome {
    match command {
        ConfigCommand::Template(args) => {
            let text = match args.service {
                ServiceName::Mgmtd => MgmtdConfig::SHIPPED,
                ServiceName::Metad => MetadConfig::SHIPPED,
                ServiceName::Storaged => StoragedConfig::SHIPPED,
                ServiceName::Mount => MountConfig::SHIPPED,
            };
            Ok(out.write_all(text.as_bytes())?)
        }
        ConfigCommand::Check(args) => match args.service {
            ServiceName::Mgmtd => check::<MgmtdConfig>(args),
            ServiceName::Metad => check::<MetadConfig>(args),
            ServiceName::Storaged => check::<StoragedConfig>(args),
            ServiceName::Mount => check::<MountConfig>(args),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a template is a file that the check accepts; a slip in one is found with its line.
    #[test]
    fn templates_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mgmtd.toml");
        let mut text = Vec::new();
        run(&ConfigCommand::Template(TemplateArgs { service: ServiceName::Mgmtd }), &mut text).unwrap();
        std::fs::write(&file, &text).unwrap();
        let args = |sets: &[&str]| CheckArgs {
            service: ServiceName::Mgmtd,
            config: Some(file.clone()),
            sets: sets.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(check::<MgmtdConfig>(&args(&[])), Ok(()));
        assert!(check::<MgmtdConfig>(&args(&["shards=5"])).is_err());
        text.extend_from_slice(b"\nshardss = 4\n");
        std::fs::write(&file, &text).unwrap();
        assert!(check::<MgmtdConfig>(&args(&[])).unwrap_err().to_string().contains("mgmtd.toml:"));
    }
}
