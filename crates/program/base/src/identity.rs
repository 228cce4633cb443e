//! The identity file of a daemon's state directory: who the daemon is, and whose.

use skep_disk::ages::Ages;
use skep_disk::target::check_format;
use skep_types::limits::FORMAT;
use skep_types::{ClusterId, Incarnation, Uuid};
use skep_wire::mgmt::RegistryAge;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Name of the identity file.
const FILE: &str = "skep-identity.toml";
/// Holds the number of the last start, its marks, and the age of the newest registry that was seen.
const AGES_FILE: &str = "age";
/// A newer change of the same registry is written down at most this often; a newer start of it at once.
const REMEMBER_EVERY: Duration = Duration::from_secs(60);

/// A state directory, held by this process.
pub struct StateDir {
    pub path: PathBuf,
    /// The daemon's uuid, made when the directory was first used.
    pub uuid: Uuid,
    /// The cluster it belongs to, once it has joined one.
    pub cluster: Option<ClusterId>,
    service: &'static str,
    _lock: File,
}

/// What a state directory knows of its own age and of that of the registry. Written in place: a full disk keeps no
/// daemon from starting.
pub struct Memory {
    /// This start: its number is higher than that of every start before, whatever the clock says.
    pub incarnation: Incarnation,
    /// Random. Kept over starts until mgmtd has confirmed it: its answer may have been lost.
    pub mark: u64,
    path: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    ages: Ages,
    /// The mark that mgmtd confirmed last; 0 = none.
    confirmed: u64,
    newest: RegistryAge,
    written: Instant,
}

impl Memory {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mark that mgmtd confirmed last.
    pub fn confirmed(&self) -> u64 {
        self.known().confirmed
    }

    /// The newest registry that this daemon or an earlier start of it has seen.
    pub fn seen(&self) -> RegistryAge {
        self.known().newest
    }

    /// mgmtd has registered this start.
    pub fn registered(&self, registry: RegistryAge) {
        let mut known = self.known();
        (known.confirmed, known.newest) = (self.mark, registry);
        self.write(&mut known);
    }

    /// mgmtd told the age of its registry, at a heartbeat that it accepted.
    pub fn saw(&self, registry: RegistryAge) {
        let mut known = self.known();
        let is_new_start = registry.start != known.newest.start;
        if !is_new_start && registry.changes <= known.newest.changes {
            return;
        }
        known.newest = registry;
        if is_new_start || known.written.elapsed() >= REMEMBER_EVERY {
            self.write(&mut known);
        }
    }

    fn write(&self, known: &mut Known) {
        known.written = Instant::now();
        let RegistryAge { start, changes } = known.newest;
        let numbers = [self.incarnation.0, known.confirmed, self.mark, start, changes];
        if let Err(e) = known.ages.write(numbers) {
            warning!("{}: {e}; an older copy of mgmtd's directory may go unnoticed", self.path.display());
        }
    }
}

/// Makes a directory for the state of a daemon, or closes an existing one: what metadata servers keep are names and
/// contents of everybody's files.
pub fn make_private(path: &Path) -> Result<(), String> {
    let place = |what: &str, e: std::io::Error| format!("state directory {}: {what}: {e}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| place("cannot be made", e))?;
    let mode = fs::metadata(path).map_err(|e| place("cannot be looked at", e))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(|e| {
        place("is open to other users and cannot be closed (chmod 700, as its owner or root)", e)
    })?;
    warning!("state directory {}: was open to other users (mode {:o}): closed", path.display(), mode & 0o777);
    Ok(())
}

/// A life is at least so far behind the one before, whatever the clock says: what a life numbers, it numbers from there on.
const LIFE_STEP: u64 = 1 << 32;

impl StateDir {
    /// Opens the directory, making it when it is missing. Refuses a directory of another service,
    /// of a newer format, or in use.
    pub fn open(path: &Path, service: &'static str) -> Result<Self, String> {
        let place = |what: &str, e: &dyn std::fmt::Display| {
            format!("state directory {}: {what}: {e}", path.display())
        };
        make_private(path)?;
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

    /// Begins a start, with a number of its own.
    pub fn begin_life(&self) -> Result<Arc<Memory>, String> {
        let path = self.path.join(AGES_FILE);
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut ages = Ages::open(&path).map_err(failed)?;
        let [last, confirmed, pending, start, changes] = ages.numbers();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let next = clock.max(last.saturating_add(LIFE_STEP));
        let mark = if pending == confirmed { random_mark()? } else { pending };
        ages.write([next, confirmed, mark, start, changes]).map_err(failed)?;
        let newest = RegistryAge { start, changes };
        let known = Mutex::new(Known { ages, confirmed, newest, written: Instant::now() });
        Ok(Arc::new(Memory { incarnation: Incarnation(next), mark, path, known }))
    }

    fn write(&self) -> Result<(), String> {
        let cluster = self.cluster.map_or(String::new(), |cluster| format!("cluster = \"{cluster}\"\n"));
        let text = format!(
            "# Written by skep {}. Do not edit or copy.\nformat = \"{FORMAT}\"\nservice = \"{}\"\nuuid = \"{}\"\n{cluster}",
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

/// A random number that nobody else has; never 0.
pub fn random_mark() -> Result<u64, String> {
    let uuid = random_uuid()?;
    let (mark, _) = uuid.0.split_first_chunk().ok_or("a uuid is too short")?;
    Ok(u64::from_le_bytes(*mark).max(1))
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
    check_format(table.get("format"))?;
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
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut first = StateDir::open(&path, "metad").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(StateDir::open(&path, "metad").is_err(), "in use");
        first.bind(Uuid([1; 16])).unwrap();
        let uuid = first.uuid;
        let life = first.begin_life().unwrap();
        let again = first.begin_life().unwrap();
        assert_eq!((life.confirmed(), again.confirmed()), (0, 0));
        assert!(
            again.incarnation > life.incarnation && again.mark == life.mark,
            "the answer may have been lost"
        );
        let registry = RegistryAge { start: 7, changes: 9 };
        again.registered(registry);
        again.saw(RegistryAge { changes: 8, ..registry });
        let next = first.begin_life().unwrap();
        assert!(next.confirmed() == life.mark && next.mark != life.mark);
        assert_eq!(next.seen(), registry);
        Ages::open(&path.join(AGES_FILE)).unwrap().write([u64::MAX - 2 * LIFE_STEP, 1, 1, 7, 9]).unwrap();
        assert_eq!(
            first.begin_life().unwrap().incarnation,
            Incarnation(u64::MAX - LIFE_STEP),
            "the clock was set back"
        );
        drop(first);
        assert!(StateDir::open(&path, "storaged").err().unwrap().contains("belongs to a metad"));
        let mut again = StateDir::open(&path, "metad").unwrap();
        assert_eq!((again.uuid, again.cluster), (uuid, Some(Uuid([1; 16]))));
        assert!(again.bind(Uuid([2; 16])).is_err());
        drop(again);
        fs::write(path.join(FILE), "format = 1").unwrap();
        assert!(
            StateDir::open(&path, "metad")
                .err()
                .unwrap()
                .contains(&format!("this release opens {FORMAT:?} only"))
        );
        fs::remove_dir_all(&path).unwrap();
    }
}
