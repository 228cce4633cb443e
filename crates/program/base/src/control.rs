//! The mount's own socket: what it waits for and whether it drops contents, told without a call into the file system,
//! which would wait for the same servers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time for an answer to be taken.
pub const LIMIT: Duration = Duration::from_secs(2);
/// Longest answer that is read.
const ANSWER_MAX: u64 = 64 << 10;

/// What a mount says of itself.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Servers that do not answer and that programs wait for.
    pub waits: Vec<Wait>,
    /// It measures the network: contents of what is made through it are dropped.
    pub drops_contents: bool,
    /// How often something was lost that programs had been answered for and had not synced.
    #[serde(default)]
    pub losses: u64,
    /// How often its count of what its kernel knows was wrong; 0 but for a bug.
    #[serde(default)]
    pub looks_lost: u64,
}

/// One server that is waited for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub server: String,
    /// For how long.
    pub seconds: u64,
    /// What the network said.
    pub why: String,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} since {} s: {}", self.server, self.seconds, self.why)
    }
}

/// Where the mount of this process is asked.
pub fn socket(run_dir: &Path, pid: u32) -> PathBuf {
    run_dir.join(format!("mount-{pid}.{SOCKET}"))
}

/// Where it writes about itself.
pub fn note(run_dir: &Path, pid: u32) -> PathBuf {
    run_dir.join(format!("mount-{pid}.{NOTE}"))
}

/// How the names of these end.
pub const SOCKET: &str = "sock";
pub const NOTE: &str = "toml";

/// Whose mount's file of that kind this is, by its name.
pub fn pid_of(path: &Path, kind: &str) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix("mount-")?;
    name.strip_suffix(kind)?.strip_suffix('.')?.parse().ok()
}

/// Asks the mount behind `path`; `None`: nobody is there. A mount that is stopped does not answer: who asks limits the time, and
/// nothing else does, or silence would be taken for absence.
pub fn ask(path: &Path) -> Option<State> {
    let stream = UnixStream::connect(path).ok()?;
    let mut text = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sockets and notes of mounts are known by their names, and nothing else is.
    #[test]
    fn files_of_mounts_have_names() {
        let dir = Path::new("/run/skep");
        assert_eq!(pid_of(&socket(dir, 4_711), SOCKET), Some(4_711));
        assert_eq!(pid_of(&note(dir, 4_711), NOTE), Some(4_711));
        for other in ["/run/skep/mount-x.sock", "/run/skep/mount-1.toml", "/run/skep/mgmtd.sock", "/"] {
            assert_eq!(pid_of(Path::new(other), SOCKET), None, "{other}");
        }
        // Those of a mount in the background.
        assert_eq!(pid_of(Path::new("/run/skep/mount-mnt-a.log"), NOTE), None);
    }

    /// Goal: what an older mount says is understood.
    #[test]
    fn older_answers_are_read() {
        let state: State = serde_json::from_str(r#"{"waits":[],"drops_contents":true}"#).unwrap();
        assert_eq!(state, State { drops_contents: true, ..State::default() });
    }
    use crate::deadline::within;
    use std::os::unix::net::UnixListener;

    /// Goal: a mount that does not answer is told from none, however long it is asked (with a limit of its own, which was that of
    /// `skep status --timeout 2s`, it was now and then "mounted", and no more said).
    #[test]
    fn silence_is_not_absence() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("mount-1.sock");
        let ask = || {
            let path = path.clone();
            within(LIMIT + Duration::from_millis(500), move || ask(&path))
        };
        assert_eq!(ask(), Some(None));
        let silent = UnixListener::bind(&path).unwrap();
        assert_eq!(ask(), None);
        drop(silent);
        assert_eq!(ask(), Some(None));
    }
}
