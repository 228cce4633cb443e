//! A mount that died leaves its session open at mgmtd until it is missed, and appends and locks of others wait for that.
//! Each mount therefore keeps a record of its session beside its log, locked as long as it lives. Whoever mounts at the
//! same place next finds the lock free and ends that session at once. The record proves whose it is: it holds the
//! session's token, and only its owner may read it.

use super::hands::Hands;
use super::port::BlockingPort;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use skep_client::state::Session;
use skep_client::{Lane, Limits, Shared};
use skep_net::{Endpoint, Keyring};
use skep_types::{ClientId, Incarnation, Millis, Uuid};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// How the records' names begin.
const PREFIX: &str = "session-";
/// Longest record that is read.
const RECORD_MAX: u64 = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    mount_point: PathBuf,
    client: u64,
    incarnation: u64,
    cluster: String,
    token: String,
}

/// The record of this mount.
pub struct Own {
    path: PathBuf,
    mount_point: PathBuf,
    file: Mutex<File>,
}

/// A mount that died at this place. Its record stays locked, so that one successor deals with it.
pub struct Dead {
    path: PathBuf,
    record: Record,
    _lock: File,
}

impl Own {
    /// An empty record. Without one only the successor of a killed mount has to wait.
    pub fn new(run_dir: &Path, mount_point: &Path) -> Option<Self> {
        let path = run_dir.join(format!("{PREFIX}{}.toml", std::process::id()));
        let made = std::fs::create_dir_all(run_dir).and_then(|()| {
            // Of a dead process with the same number: a new file, or its lock would be taken for this one's.
            let _ = std::fs::remove_file(&path);
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)
        });
        let locked = made.and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        });
        match locked {
            Ok(file) => Some(Self { path, mount_point: mount_point.to_owned(), file: Mutex::new(file) }),
            Err(e) => {
                warning!(
                    "{}: {e}; if this mount is killed, others wait for its session's time-out",
                    path.display()
                );
                None
            }
        }
    }

    /// This is the session now.
    pub fn write(&self, session: &Session) {
        let record = Record {
            mount_point: self.mount_point.clone(),
            client: session.client.0,
            incarnation: session.incarnation.0,
            cluster: hex(&session.cluster.0),
            token: hex(&session.token),
        };
        let text = toml::to_string(&record).unwrap_or_default();
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
        if let Err(e) = written {
            warning!(
                "{}: {e}; if this mount is killed, others wait for its session's time-out",
                self.path.display()
            );
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Mounts that died at `mount_point`.
pub fn dead(run_dir: &Path, mount_point: &Path) -> Vec<Dead> {
    let Ok(entries) = std::fs::read_dir(run_dir) else { return Vec::new() };
    let named = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(named);
    paths.filter_map(|path| look(path, mount_point)).collect()
}

fn look(path: PathBuf, mount_point: &Path) -> Option<Dead> {
    let lock = File::open(&path).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut text = String::new();
    (&lock).take(RECORD_MAX).read_to_string(&mut text).ok()?;
    let record: Record = toml::from_str(&text).ok()?;
    (record.mount_point == mount_point).then_some(Dead { path, record, _lock: lock })
}

impl Dead {
    /// Ends its session, so that nobody waits for it. One of another cluster is refused, for its token proves nothing
    /// there.
    pub fn bury(self, keyring: Keyring, mgmtd: Vec<Endpoint>) {
        let Some(session) = self.session() else { return };
        let client = session.client;
        let hands = Hands::new(Shared::new(Limits::default()), keyring, mgmtd);
        let lane = Lane::new(hands.shared.clone(), |slot| BlockingPort::new(hands.clone(), slot.0));
        let ended = lane.map(|lane| super::drive(lane.bury(session)));
        match ended {
            Ok(Ok(())) => info!("client {client}, the mount that died here, is out of the cluster"),
            Ok(Err(refusal)) => {
                warning!(
                    "client {client}, the mount that died here, is waited for by others until its time-out: {refusal}"
                );
            }
            Err(e) => warning!("client {client}, the mount that died here: no lane: {e}"),
        }
        let _ = std::fs::remove_file(&self.path);
    }

    fn session(&self) -> Option<Session> {
        let record = &self.record;
        Some(Session {
            client: ClientId(record.client),
            incarnation: Incarnation(record.incarnation),
            token: unhex(&record.token)?,
            cluster: Uuid(unhex(&record.cluster)?),
            timeout_ms: 0,
            renewed: Millis(0),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the record of a mount that lives is left alone, that of one that died is found by its successor at the same
    /// place only, and what is no record is passed over. Nobody else can read the token.
    #[test]
    fn only_the_dead_are_found() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("skep-predecessor-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let (here, there) = (Path::new("/mnt/here"), Path::new("/mnt/there"));
        let own = Own::new(&dir, here).unwrap();
        let session = Session {
            client: ClientId(7),
            incarnation: Incarnation(1),
            token: [0xab; 32],
            cluster: Uuid([5; 16]),
            timeout_ms: 0,
            renewed: Millis(0),
        };
        own.write(&session);
        own.write(&session);
        assert_eq!(std::fs::metadata(&own.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(dead(&dir, here).is_empty(), "it lives");
        // As its process's end does.
        let path = own.path.clone();
        let text = std::fs::read(&path).unwrap();
        drop(own);
        assert!(!path.exists());
        std::fs::write(&path, text).unwrap();
        std::fs::write(dir.join("session-x.toml"), "client = nobody").unwrap();
        assert!(dead(&dir, there).is_empty());
        let found = dead(&dir, here);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].session(), Some(session));
        assert!(dead(&dir, here).is_empty(), "another successor deals with it");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
