//! Typed configuration of each daemon.
//!
//! Precedence: defaults < file < environment (`SKEP_METAD_SYNC_INTERVAL=1s`) < `--set key=value`.
//! A key that does not exist is an error that names the file, the line and the key that was meant.

pub mod access;
pub mod address;
pub mod error;
mod layers;
pub mod metad;
pub mod mgmtd;
pub mod mount;
pub mod nearest;
pub mod service;
pub mod storaged;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use error::{ConfigError, Origin, Problem};
pub use layers::Loaded;
#[cfg(feature = "testing")]
pub use layers::assemble;
pub use metad::MetadConfig;
pub use mgmtd::MgmtdConfig;
pub use mount::MountConfig;
pub use service::Service;
pub use storaged::StoragedConfig;

/// Directory of the files that an administrator installs.
pub const CONFIG_DIR: &str = "/etc/skep";
/// Largest configuration file that is read.
pub const CONFIG_FILE_MAX: u64 = 1 << 20;

/// The configuration with which this process serves, for those who ask what it runs with.
static IN_USE: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// This process serves with that from now on.
pub fn remember<S: Service>(config: &S) {
    // A process serves once.
    let _ = IN_USE.set(shown(config));
}

/// What this process serves with, by key; empty when it is no service.
pub fn in_use() -> BTreeMap<String, String> {
    IN_USE.get().cloned().unwrap_or_default()
}

/// Keys and values as a file would have them.
pub fn shown<S: Service>(config: &S) -> BTreeMap<String, String> {
    let table = toml::Table::try_from(config).unwrap_or_default();
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    table.iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// Which file is read.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The installed one, of the instance if one is named; it may be missing.
    Installed(Option<&'a str>),
    /// This one, named by the user; it must be there.
    Given(&'a Path),
}

/// Where the installed file of a service, or of one instance of it, is.
pub fn installed_path(service: &str, instance: Option<&str>) -> PathBuf {
    match instance {
        None => Path::new(CONFIG_DIR).join(format!("{service}.toml")),
        Some(instance) => Path::new(CONFIG_DIR).join(service).join(format!("{instance}.toml")),
    }
}

/// Every configuration file of a service below `dir`: the plain one and those of instances, each with a
/// name for people.
pub fn installed<S: Service>(dir: &Path) -> Vec<(String, PathBuf)> {
    let plain = dir.join(format!("{}.toml", S::NAME));
    let mut found = Vec::new();
    if plain.exists() {
        found.push((S::NAME.to_owned(), plain));
    }
    let instances = std::fs::read_dir(dir.join(S::NAME)).into_iter().flatten().flatten();
    let mut instances: Vec<PathBuf> = instances.map(|entry| entry.path()).collect();
    instances.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    instances.sort();
    found.extend(instances.into_iter().map(|path| {
        let instance = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        (format!("{}@{instance}", S::NAME), path)
    }));
    found
}

/// The environment of this process, as [`load`] wants it.
pub fn environment() -> Vec<(String, String)> {
    let text = |os: std::ffi::OsString| os.into_string().ok();
    std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}

/// Loads and checks the configuration of a service. `sets` are the `key=value` of the command line,
/// later ones win. Every problem is reported at once.
pub fn load<S: Service>(
    source: Source<'_>,
    environment: &[(String, String)],
    sets: &[String],
) -> Result<Loaded<S>, ConfigError> {
    let path = match source {
        Source::Installed(instance) => installed_path(S::NAME, instance),
        Source::Given(path) => path.to_owned(),
    };
    match read(&path) {
        Ok(text) => layers::assemble(Some((&path, &text)), environment, sets),
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound && matches!(source, Source::Installed(None)) =>
        {
            layers::assemble(None, environment, sets)
        }
        Err(error) => Err(ConfigError::from(Problem {
            origin: Origin::File { path, line: 0 },
            what: format!("cannot read the configuration: {error}"),
            remedy: "give a file that can be read".to_owned(),
        })),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(CONFIG_FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > CONFIG_FILE_MAX {
        return Err(std::io::Error::other(format!("it is longer than {CONFIG_FILE_MAX} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a file named by the user, or by its instance, must exist; the installed one need not.
    #[test]
    fn only_the_installed_file_may_be_missing() {
        let missing = Path::new("/nonexistent/skep/mgmtd.toml");
        let error = load::<MgmtdConfig>(Source::Given(missing), &[], &[]).expect_err("missing");
        assert!(error.to_string().starts_with("/nonexistent/skep/mgmtd.toml: cannot read"), "{error}");
        let absent = Some("no-such-instance");
        assert!(load::<MgmtdConfig>(Source::Installed(absent), &[], &[]).is_err());
        assert!(layers::assemble::<MgmtdConfig>(None, &[], &[]).is_ok());
    }

    /// Goal: what a service runs with is told by key, as its file would have it.
    #[test]
    fn told_by_key() {
        let told = shown(&StoragedConfig { max_connections: 77, ..StoragedConfig::default() });
        assert_eq!(told.get("max_connections").map(String::as_str), Some("77"));
        assert_eq!(told.get("reserve").map(String::as_str), Some("64MiB"));
        assert_eq!(told.get("sync_on_write").map(String::as_str), Some("false"));
    }

    /// Goal: services and instances have the paths that the manual names.
    #[test]
    fn installed_paths() {
        assert_eq!(installed_path("metad", None), Path::new("/etc/skep/metad.toml"));
        assert_eq!(installed_path("metad", Some("m2")), Path::new("/etc/skep/metad/m2.toml"));
    }
}
