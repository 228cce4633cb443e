//! Services as the rules of settings see them.

use skep_base::config::{MetadConfig, MgmtdConfig, MountConfig, Service, StoragedConfig};
use skep_base::units::Size;
use skep_tune::{Role, Service as Here};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a configuration says that rules ask about.
pub trait Described: Service {
    /// What the service does.
    const ROLE: Role;
    /// Where its data is.
    fn directories(&self) -> Vec<PathBuf>;
    /// Interfaces that it announces.
    fn interfaces(&self) -> Vec<String>;
}

impl Described for MgmtdConfig {
    const ROLE: Role = Role::Mgmt;
    fn directories(&self) -> Vec<PathBuf> {
        vec![self.state_dir.clone()]
    }
    fn interfaces(&self) -> Vec<String> {
        self.interfaces.clone()
    }
}

impl Described for MetadConfig {
    const ROLE: Role = Role::Meta;
    fn directories(&self) -> Vec<PathBuf> {
        vec![self.state_dir.clone()]
    }
    fn interfaces(&self) -> Vec<String> {
        self.interfaces.clone()
    }
}

impl Described for StoragedConfig {
    const ROLE: Role = Role::Storage;
    fn directories(&self) -> Vec<PathBuf> {
        self.targets.clone()
    }
    fn interfaces(&self) -> Vec<String> {
        self.interfaces.clone()
    }
}

impl Described for MountConfig {
    const ROLE: Role = Role::Client;
    fn directories(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    fn interfaces(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A service as rules see it; sizes become numbers of bytes, directories begin where it runs.
pub fn described<S: Described>(config: &S, name: String, pid: Option<u32>, at: &Path) -> Here {
    let table = toml::Table::try_from(config).unwrap_or_default();
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => {
            text.parse::<Size>().map_or_else(|_| text.clone(), |size| size.bytes().to_string())
        }
        other => other.to_string(),
    };
    let settings: BTreeMap<String, String> =
        table.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    let instance = name.split_once('@').map_or(S::NAME, |(_, instance)| instance);
    Here {
        role: S::ROLE,
        unit: format!("skep-{}@{instance}.service", S::NAME),
        pid,
        directories: config.directories().iter().map(|path| at.join(path).display().to_string()).collect(),
        interfaces: config.interfaces(),
        settings,
        name,
    }
}
