//! `skep config template`, `skep config check`: configuration files without their daemon.

use clap::{Args, Subcommand, ValueEnum};
use skep_base::config::{
    self, CONFIG_DIR, MetadConfig, MgmtdConfig, MountConfig, Service, Source, StoragedConfig,
};
use skep_base::{Failure, Outcome};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// `skep config ...`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a configuration file: every key, explained, with its default
    Template(TemplateArgs),
    /// Say whether services would accept their configuration: one, or all of this machine
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
    /// Which service [default: every service and instance that has a file, and whether they get along]
    service: Option<ServiceName>,
    /// Configuration file [default: /etc/skep/<service>.toml]
    #[arg(long, value_name = "FILE", requires = "service")]
    config: Option<PathBuf>,
    /// Set one key, as for the service
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "service")]
    sets: Vec<String>,
    /// Directory of the configuration files
    #[arg(long, value_name = "DIR", default_value = CONFIG_DIR, conflicts_with = "service")]
    dir: PathBuf,
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

/// What all files of a machine say.
#[derive(Default)]
struct Machine {
    good: Vec<String>,
    problems: Vec<String>,
    /// What only one can have (an address, a directory) -> who has it.
    taken: BTreeMap<String, Vec<String>>,
}

impl Machine {
    /// Reads every file of a service; `claims` are what only one service of a machine can have.
    fn read<S: Service>(&mut self, dir: &Path, claims: impl Fn(&S) -> Vec<String>) {
        for (name, file) in config::installed::<S>(dir) {
            match config::load::<S>(Source::Given(&file), &[], &[]) {
                Err(e) => self.problems.push(e.to_string()),
                Ok(loaded) => {
                    for claim in claims(&loaded.config) {
                        self.taken.entry(claim).or_default().push(name.clone());
                    }
                    self.good.push(format!("{name}: {}", file.display()));
                }
            }
        }
    }

    fn of(dir: &Path) -> Self {
        let mut machine = Self::default();
        let listen = |list: &[std::net::SocketAddr], http: Option<std::net::SocketAddr>| {
            list.iter().chain(&http).map(|address| format!("port {}", address.port())).collect::<Vec<_>>()
        };
        let at = |what: &str, path: &Path| format!("{what} {}", path.display());
        let (timeouts, short) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        machine.read::<MgmtdConfig>(dir, |c| {
            timeouts.borrow_mut().push(c.session_timeout);
            [listen(&c.listen, c.http), vec![at("state_dir", &c.state_dir)]].concat()
        });
        machine.read::<MetadConfig>(dir, |c| {
            let longest = timeouts.borrow().iter().max().copied();
            short.borrow_mut().extend(longest.and_then(|timeout| c.short_grace(timeout)));
            [listen(&c.listen, c.http), vec![at("state_dir", &c.state_dir)]].concat()
        });
        machine.problems.extend(short.take());
        machine.read::<StoragedConfig>(dir, |c| {
            let targets = c.targets.iter().map(|target| at("target", target));
            listen(&c.listen, c.http)
                .into_iter()
                .chain([at("state_dir", &c.state_dir)])
                .chain(targets)
                .collect()
        });
        machine.read::<MountConfig>(dir, |c| {
            listen(&[], c.http).into_iter().chain([at("mount_point", &c.mount_point)]).collect()
        });
        machine
    }

    fn verdict(&self, dir: &Path) -> Outcome {
        let mut problems = self.problems.clone();
        for (what, who) in self.taken.iter().filter(|(_, who)| who.len() > 1) {
            problems.push(format!("{what}: {} want it; give each its own", who.join(" and ")));
        }
        if !problems.is_empty() {
            return Err(Failure::new(problems.join("\n")));
        }
        if self.good.is_empty() {
            let text = format!("{}: there is no configuration; see skep config template", dir.display());
            return Err(Failure::new(text));
        }
        Ok(())
    }
}

fn check_all(dir: &Path) -> Outcome {
    let machine = Machine::of(dir);
    machine.good.iter().for_each(|one| eprintln!("good  {one}"));
    machine.verdict(dir)?;
    match machine.good.len() {
        1 => eprintln!("the configuration is good"),
        several => eprintln!("all {several} configurations are good and get along"),
    }
    Ok(())
}

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
            None => check_all(&args.dir),
            Some(ServiceName::Mgmtd) => check::<MgmtdConfig>(args),
            Some(ServiceName::Metad) => check::<MetadConfig>(args),
            Some(ServiceName::Storaged) => check::<StoragedConfig>(args),
            Some(ServiceName::Mount) => check::<MountConfig>(args),
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
            service: Some(ServiceName::Mgmtd),
            config: Some(file.clone()),
            sets: sets.iter().map(ToString::to_string).collect(),
            dir: CONFIG_DIR.into(),
        };
        assert_eq!(check::<MgmtdConfig>(&args(&[])), Ok(()));
        assert!(check::<MgmtdConfig>(&args(&["shards=5"])).is_err());
        text.extend_from_slice(b"\nshardss = 4\n");
        std::fs::write(&file, &text).unwrap();
        assert!(check::<MgmtdConfig>(&args(&[])).unwrap_err().to_string().contains("mgmtd.toml:"));
    }

    /// Goal: all services and instances of a machine are looked at together; two that want the same port,
    /// directory or mount point are told apart by name.
    #[test]
    fn a_whole_machine() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let verdict = || check_all(dir.path()).map_err(|e| e.to_string());
        assert!(verdict().unwrap_err().contains("config template"));
        write("mgmtd.toml", "");
        write("metad/m1.toml", "grace = \"50s\"\n");
        assert!(verdict().unwrap_err().contains("session_timeout"));
        write("metad/m1.toml", "");
        write("storaged/s1.toml", "targets = [\"/data/a\"]\n");
        assert_eq!(verdict(), Ok(()));
        let own =
            "listen = [\"0.0.0.0:7741\"]\nhttp = \"127.0.0.1:7793\"\nstate_dir = \"/var/lib/skep/s2\"\n";
        write("storaged/s2.toml", &format!("{own}targets = [\"/data/b\"]\n"));
        assert_eq!(verdict(), Ok(()));
        write("storaged/s2.toml", &format!("{own}targets = [\"/data/a\"]\n"));
        assert!(
            verdict().unwrap_err().contains("target /data/a: storaged@s1 and storaged@s2"),
            "{verdict:?}",
            verdict = verdict()
        );
        write("storaged/s2.toml", "targets = [\"/data/b\"]\nshards = 1\n");
        let error = verdict().unwrap_err();
        assert!(error.contains("s2.toml:2") && !error.contains("want it"), "{error}");
    }
}
