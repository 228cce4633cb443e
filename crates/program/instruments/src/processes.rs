//! Services that run on the machine, found by their command lines.

use crate::described::{Described, described};
use clap::Parser;
use skep_base::cli::{DaemonArgs, MOUNT_HELPERS, ServiceCommand, ServiceLine, arguments};
use skep_base::config::{self, Source};
use skep_tune::{Root, Service as Here};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Stands for a file that is not there: of another root, the installed one of this machine must not be taken.
const EMPTY: &str = "/dev/null";

/// What stands between the name of a service and the number that tells it from others.
const NUMBER: &str = " (process ";

/// Every service that runs. Those that are called alike (clusters of `skep up`) are told apart by their numbers, all of
/// them: a plain name among numbered ones would be nobody's.
pub fn running(root: &Root) -> Vec<Here> {
    let pids = root.names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let all: Vec<Here> = pids.filter_map(|pid| one(root, pid)).collect();
    let names: Vec<String> = all.iter().map(|here| here.name.clone()).collect();
    let is_shared = |name: &String| names.iter().filter(|known| *known == name).count() > 1;
    let numbered = |here: Here| match here.pid {
        Some(pid) if is_shared(&here.name) => Here { name: format!("{}{NUMBER}{pid})", here.name), ..here },
        _ => here,
    };
    all.into_iter().map(numbered).collect()
}

/// A name of [`running`] without its number, and the number.
pub fn parted(name: &str) -> (&str, Option<&str>) {
    match name.strip_suffix(')').and_then(|name| name.split_once(NUMBER)) {
        Some((plain, number)) => (plain, Some(number)),
        None => (name, None),
    }
}

fn one(root: &Root, pid: u32) -> Option<Here> {
    let name = format!("/proc/{pid}/comm");
    let is_ours = |name: &String| name == "skep" || MOUNT_HELPERS.contains(&name.as_str());
    // Only ours are remembered in a recording.
    root.glance(&name).filter(is_ours)?;
    root.text(&name)?;
    let line = root.text(&format!("/proc/{pid}/cmdline"))?;
    let words: Vec<OsString> = line.trim_end_matches('\0').split('\0').map(OsString::from).collect();
    let line = ServiceLine::try_parse_from(arguments(words.into_iter())).ok()?;
    let at = Process { root, pid };
    match &line.command {
        ServiceCommand::Mgmtd(args) => {
            at.service::<config::MgmtdConfig>(&args.daemon, &args.daemon.sets(), None)
        }
        ServiceCommand::Metad(args) => {
            at.service::<config::MetadConfig>(&args.daemon, &args.daemon.sets(), None)
        }
        ServiceCommand::Storaged(args) => {
            at.service::<config::StoragedConfig>(&args.daemon, &args.daemon.sets(), None)
        }
        ServiceCommand::Mount(args) => {
            let parsed = skep_base::mount_options::parse(args).ok()?;
            let sets: Vec<String> = parsed.sets.into_iter().chain(args.daemon.sets()).collect();
            at.service::<config::MountConfig>(&args.daemon, &sets, parsed.config)
        }
    }
}

struct Process<'a> {
    root: &'a Root,
    pid: u32,
}

impl Process<'_> {
    /// The service, with the configuration that it read.
    fn service<S: Described>(
        &self,
        args: &DaemonArgs,
        sets: &[String],
        file: Option<PathBuf>,
    ) -> Option<Here> {
        let file = file.or_else(|| args.config.clone());
        let at = match &file {
            Some(path) => self.started_in().join(path),
            None => config::installed_path(S::NAME, args.instance.as_deref()),
        };
        let path = match regular(self.root, &at) {
            Some(path) => path,
            // Started without a file: defaults, environment and command line.
            None if file.is_none()
                && args.instance.is_none()
                && !self.root.path(at.to_str()?).is_symlink() =>
            {
                PathBuf::from(EMPTY)
            }
            None => return None,
        };
        let loaded = config::load::<S>(Source::Given(&path), &self.environment(), sets).ok()?;
        let name = match &args.instance {
            Some(instance) => format!("{}@{instance}", S::NAME),
            None => S::NAME.to_owned(),
        };
        Some(described(&loaded.config, name, Some(self.pid), &self.started_in()))
    }

    /// What its relative paths begin with.
    fn started_in(&self) -> PathBuf {
        // The link of the kernel says where on the machine, whatever that is from here.
        let link = std::fs::read_link(self.root.path(&format!("/proc/{}/cwd", self.pid)));
        link.ok().filter(|path| path.is_absolute()).unwrap_or_else(|| PathBuf::from("/"))
    }

    /// Variables of Skep in the process's environment. They are read past the recording: what else stands
    /// there may be secret.
    fn environment(&self) -> Vec<(String, String)> {
        let text = self.root.glance(&format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let variable = |text: &str| {
            let (name, value) = text.split_once('=')?;
            // What is not UTF-8 the service does not read either.
            let is_read = name.starts_with("SKEP_") && !text.contains(char::REPLACEMENT_CHARACTER);
            is_read.then(|| (name.to_owned(), value.to_owned()))
        };
        text.split('\0').filter_map(variable).collect()
    }
}

/// Where a file of the machine is; none when it is not there, no regular file, or outside of the root.
pub fn regular(root: &Root, at: &Path) -> Option<PathBuf> {
    let path = root.path(&root.meant(at).ok()?);
    path.is_file().then_some(path)
}
