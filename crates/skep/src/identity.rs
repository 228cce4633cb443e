//! The identity file of a daemon's state directory: who the daemon is, and whose.

use skep_types::{ClusterId, Incarnation, Uuid};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the identity file.
const FILE: &str = "skep-identity.toml";
/// Holds the number of the last start.
const LIFE_FILE: &str = "incarnation";
/// Version of state directories that this release writes.
const FORMAT_VERSION: i64 = 1;

/// A state directory, held by this process.
pub struct StateDir {
    /// Where it is.
    pub path: PathBuf,
    /// The daemon's uuid, made when the directory was first used.
    pub uuid: Uuid,
    /// The cluster it belongs to, once it has joined one.
    pub cluster: Option<ClusterId>,
    service: &'static str,
    _lock: File,
}

impl StateDir {
    /// Opens the directory, making it when it is missing. Refuses a directory of another service,
    /// of a newer format, or in use.
    pub fn open(path: &Path, service: &'static str) -> Result<Self, String> {
        let place = |what: &str, e: &dyn std::fmt::Display| {
            format!("state directory {}: {what}: {e}", path.display())
        };
        fs::create_dir_all(path).map_err(|e| place("cannot be made", &e))?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(|e| place("its lock file cannot be made", &e))?;
        skep_disk::lock::hold(&lock).map_err(|_| {
            format!("state directory {}: another {service} is using it; stop that one first", path.display())
        })?;
        let file = path.join(FILE);
        let mut state =
            Self { path: path.to_owned(), uuid: Uuid::default(), cluster: None, service, _lock: lock };
        match fs::read_to_string(&file) {
            Ok(text) => {
                let (of, uuid, cluster) = parse(&text).map_err(|e| {
                    format!("{}: {e}; restore the file, or use another state directory", file.display())
                })?;
                if of != service {
                    return Err(format!("{}: belongs to a {of}, not to a {service}", file.display()));
                }
                (state.uuid, state.cluster) = (uuid, cluster);
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                state.uuid = random_uuid()?;
                state.write()?;
            }
            Err(e) => return Err(place("its identity cannot be read", &e)),
        }
        Ok(state)
    }

    /// Remembers the cluster at the first time, refuses another one ever after.
    pub fn bind(&mut self, cluster: ClusterId) -> Result<(), String> {
        match self.cluster {
            Some(known) if known == cluster => Ok(()),
            Some(known) => Err(format!(
                "state directory {}: belongs to cluster {known}, mgmtd is of cluster {cluster}; check the mgmtd addresses",
                self.path.display()
            )),
            None => {
                self.cluster = Some(cluster);
                self.write()
            }
        }
    }

    /// The number of this start: higher than that of every start before, whatever the clock says.
    pub fn next_incarnation(&self) -> Result<Incarnation, String> {
        let file = self.path.join(LIFE_FILE);
        let last = match fs::read_to_string(&file) {
            Ok(text) => {
                text.trim().parse::<u64>().map_err(|e| format!("{}: {e}; delete the file", file.display()))?
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(format!("{}: {e}", file.display())),
        };
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let next = clock.max(last.saturating_add(1));
        write_durably(&self.path, LIFE_FILE, next.to_string().as_bytes())?;
        Ok(Incarnation(next))
    }

    fn write(&self) -> Result<(), String> {
        let cluster = self.cluster.map_or(String::new(), |cluster| format!("cluster = \"{cluster}\"\n"));
        let text = format!(
            "# Written by skep {}. Do not edit or copy.\nformat = {FORMAT_VERSION}\nservice = \"{}\"\nuuid = \"{}\"\n{cluster}",
            self.service, self.service, self.uuid
        );
        write_durably(&self.path, FILE, text.as_bytes())
    }
}

/// Replaces a file so that a crash leaves the old content or the new.
pub fn write_durably(directory: &Path, name: &str, content: &[u8]) -> Result<(), String> {
    let (new, file) = (directory.join(format!("{name}.new")), directory.join(name));
    let write = || -> std::io::Result<()> {
        let mut out = File::create(&new)?;
        out.write_all(content)?;
        out.sync_all()?;
        fs::rename(&new, &file)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|e| format!("{}: {e}", file.display()))
}

/// Sixteen random bytes.
pub fn random_uuid() -> Result<Uuid, String> {
    let mut raw = [0; 16];
    getrandom::fill(&mut raw).map_err(|e| format!("the system gives no random bytes: {e}"))?;
    Ok(Uuid(raw))
}

fn parse(text: &str) -> Result<(String, Uuid, Option<ClusterId>), String> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
    let text = |key: &str| table.get(key).and_then(toml::Value::as_str);
    match table.get("format").and_then(toml::Value::as_integer) {
        Some(FORMAT_VERSION) => {}
        Some(other) => {
            return Err(format!("format {other}, this release knows {FORMAT_VERSION}: use a newer release"));
        }
        None => return Err("no format".to_owned()),
    }
    let uuid = text("uuid").and_then(Uuid::parse).ok_or("no uuid")?;
    let cluster = match text("cluster") {
        None => None,
        Some(cluster) => Some(Uuid::parse(cluster).ok_or("cluster is no uuid")?),
    };
    Ok((text("service").ok_or("no service")?.to_owned(), uuid, cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a state directory keeps who it is, and is refused to others.
    #[test]
    fn identity_is_kept() {
        let path = std::env::temp_dir().join(format!("skep-identity-{}", std::process::id()));
        let mut first = StateDir::open(&path, "metad").unwrap();
        assert!(StateDir::open(&path, "metad").is_err(), "in use");
        first.bind(Uuid([1; 16])).unwrap();
        let uuid = first.uuid;
        let life = first.next_incarnation().unwrap();
        assert!(first.next_incarnation().unwrap() > life);
        fs::write(path.join(LIFE_FILE), (u64::MAX - 9).to_string()).unwrap();
        assert_eq!(first.next_incarnation().unwrap(), Incarnation(u64::MAX - 8), "the clock was set back");
        drop(first);
        assert!(StateDir::open(&path, "storaged").err().unwrap().contains("belongs to a metad"));
        let mut again = StateDir::open(&path, "metad").unwrap();
        assert_eq!((again.uuid, again.cluster), (uuid, Some(Uuid([1; 16]))));
        assert!(again.bind(Uuid([2; 16])).is_err());
        drop(again);
        fs::write(path.join(FILE), "format = 9").unwrap();
        assert!(StateDir::open(&path, "metad").err().unwrap().contains("newer release"));
        fs::remove_dir_all(&path).unwrap();
    }
}
