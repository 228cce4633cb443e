//! `cluster.toml`: what `skep up` made, and how commands find it.

use crate::config::address::Address;
use crate::identity::write_durably;
use crate::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Name of the file in the directory of `skep up`.
pub const FILE: &str = "cluster.toml";
const COMMENT: &str = "# A cluster made by skep up. Commands take this file by --cluster or SKEP_CLUSTER.\n";

/// What stands in the file. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Addresses of mgmtd.
    pub mgmtd: Vec<Address>,
    /// The cluster key.
    pub key_file: PathBuf,
    /// The directory when the file was written: it may have been moved since.
    pub dir: PathBuf,
    /// Where the file system is mounted.
    pub mount_point: PathBuf,
    /// Storage targets.
    pub targets: u32,
    /// Metadata shards.
    pub shards: u32,
    /// Metadata servers.
    #[serde(default = "one")]
    pub metas: u32,
    /// Groups of each of them.
    #[serde(default = "one")]
    pub groups: u32,
    /// Storage servers.
    pub servers: u32,
    /// All targets were made: an empty one is a loss from now on.
    pub formatted: bool,
    /// TCP port of each server on the loopback interface.
    pub ports: BTreeMap<String, u16>,
    /// Ports on the loopback interface where services show their metrics.
    #[serde(default)]
    pub http: BTreeMap<String, u16>,
    /// Where the directory was when the file was written, if it was moved since.
    #[serde(skip)]
    pub moved_from: Option<PathBuf>,
}

/// Files from before there were several do not say it.
fn one() -> u32 {
    1
}

impl ClusterFile {
    /// Reads it; an error when there is none.
    pub fn read(path: &Path) -> Outcome<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Failure::new(format!("{}: {e}; it is the {FILE} of a directory made by skep up", path.display()))
        })?;
        let file: Self = toml::from_str(&text)
            .map_err(|e| Failure::new(format!("{}: {}", path.display(), e.message())))?;
        let here = absolute(path)?;
        Ok(file.at(here.parent().unwrap_or(Path::new("/"))))
    }

    /// Where services show their metrics, by name.
    pub fn http_addresses(&self) -> Vec<(String, SocketAddr)> {
        let address = |(name, port): (&String, &u16)| (name.clone(), (Ipv4Addr::LOCALHOST, *port).into());
        self.http.iter().map(address).collect()
    }

    /// With all paths where they are when the directory is at `dir` by now.
    fn at(mut self, dir: &Path) -> Self {
        if self.dir == dir {
            return self;
        }
        let old = std::mem::replace(&mut self.dir, dir.to_owned());
        let moved = |path: &mut PathBuf| {
            if let Ok(below) = path.strip_prefix(&old) {
                *path = dir.join(below);
            }
        };
        moved(&mut self.key_file);
        moved(&mut self.mount_point);
        for address in &mut self.mgmtd {
            if let Address::Unix(path) = address {
                moved(path);
            }
        }
        self.moved_from = Some(old);
        self
    }

    /// Writes it into its directory, whole or not at all.
    pub fn write(&self, dir: &Path) -> Outcome {
        let text = toml::to_string(self).map_err(|e| Failure::local(FILE, e))?;
        Ok(write_durably(dir, FILE, format!("{COMMENT}{text}").as_bytes())?)
    }
}

#[cfg(any(test, feature = "testing"))]
impl ClusterFile {
    /// One that was formatted.
    pub fn sample() -> Self {
        Self {
            mgmtd: vec!["unix:/d/run/mgmtd.sock".parse().unwrap(), "127.0.0.1:9".parse().unwrap()],
            key_file: "/d/cluster.key".into(),
            dir: "/d".into(),
            mount_point: "/d/m \"x\"".into(),
            targets: 4,
            shards: 64,
            metas: 1,
            groups: 1,
            servers: 2,
            formatted: true,
            ports: BTreeMap::from([("mgmtd".to_owned(), 9)]),
            http: BTreeMap::from([("mgmtd".to_owned(), 10)]),
            moved_from: None,
        }
    }
}

/// The absolute path without symbolic links. The last part may be a dead mount, which nothing can
/// look at, so it is left alone.
pub fn absolute(path: &Path) -> Outcome<PathBuf> {
    let fail = |e| Failure::local(path.display(), e);
    let path = std::path::absolute(path).map_err(fail)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(fail)?.join(name)),
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the file reads back what was written; a key nobody knows is an error.
    #[test]
    fn round_trip() {
        let file = ClusterFile::sample();
        let text = toml::to_string(&file).unwrap();
        assert_eq!(toml::from_str::<ClusterFile>(&text).unwrap(), file);
        assert!(toml::from_str::<ClusterFile>(&format!("target = 4\n{text}")).is_err());
        let moved = file.clone().at(Path::new("/new"));
        assert_eq!((moved.mount_point, moved.key_file), ("/new/m \"x\"".into(), "/new/cluster.key".into()));
        assert_eq!(
            (moved.mgmtd[0].to_string().as_str(), moved.moved_from),
            ("unix:/new/run/mgmtd.sock", Some("/d".into()))
        );
        assert_eq!(file.clone().at(Path::new("/d")), file);
    }
}
