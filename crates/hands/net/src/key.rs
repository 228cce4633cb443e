//! The cluster key, the keys of the roles, and the proof of a session.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use skep_types::{ClientId, Incarnation, Role};
use skep_wire::SessionToken;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// First word and format version of a key file.
const FORMAT: &str = "skep-key 1";
/// No key file is longer.
const FILE_MAX: u64 = 256;

/// Which key a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// The cluster secret: all roles.
    Cluster,
    /// The derived client key: mounts only.
    Client,
}

impl Holds {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Client => "client",
        }
    }
}

/// What stands in a key file: `skep-key 1 <id, 16 hex> <cluster|client> <secret, 64 hex>`.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFile {
    id: u64,
    holds: Holds,
    secret: [u8; 32],
}

// The secret stays out of logs.
impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFile({:016x}, {})", self.id, self.holds.as_str())
    }
}

/// Why a key file cannot be used.
#[derive(Debug)]
pub struct KeyError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    Readable(u32),
    Format(&'static str),
    Exists,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(e) if e.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "key file {path} does not exist; a server gets it from another server of the cluster (`skep key generate` makes the one of a new cluster), a machine that only mounts has a client's key: name that (--key, key_file)"
                )
            }
            Why::Io(e) => write!(f, "key file {path}: {e}"),
            Why::Readable(mode) => {
                write!(f, "key file {path} has mode {mode:04o}: others can use it; run: chmod 0400 {path}")
            }
            Why::Format(what) => {
                write!(
                    f,
                    "key file {path}: {what}; expected one line `{FORMAT} <16 hex> cluster|client <64 hex>`"
                )
            }
            Why::Exists => write!(f, "key file {path} exists and is never overwritten; move it away first"),
        }
    }
}

impl std::error::Error for KeyError {}

impl KeyFile {
    /// A new cluster key from the kernel's random source.
    pub fn generate() -> io::Result<Self> {
        let mut raw = [0; 40];
        getrandom::fill(&mut raw).map_err(|e| io::Error::other(e.to_string()))?;
        let mut secret = [0; 32];
        secret.copy_from_slice(&raw[..32]);
        let mut id = [0; 8];
        id.copy_from_slice(&raw[32..]);
        // Id 0 means "no key".
        Ok(Self { id: u64::from_le_bytes(id).max(1), holds: Holds::Cluster, secret })
    }

    /// Reads a key file that nobody but its owner can read.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let fail = |why| KeyError { path: path.to_owned(), why };
        let file = std::fs::File::open(path).map_err(|e| fail(Why::Io(e)))?;
        let mode = file.metadata().map_err(|e| fail(Why::Io(e)))?.mode() & 0o7777;
        let mut text = String::new();
        file.take(FILE_MAX).read_to_string(&mut text).map_err(|e| fail(Why::Io(e)))?;
        // What is no key is not to be closed to others.
        let key = Self::parse(&text).map_err(|what| fail(Why::Format(what)))?;
        if mode & 0o077 != 0 { Err(fail(Why::Readable(mode))) } else { Ok(key) }
    }

    /// Writes the file with mode 0400, whole or not at all, and never over another one.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let fail = |why| KeyError { path: path.to_owned(), why };
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let result = self.write_beside(&temporary, path);
        if result.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        result.map_err(|e| {
            fail(if e.kind() == io::ErrorKind::AlreadyExists { Why::Exists } else { Why::Io(e) })
        })
    }

    fn write_beside(&self, temporary: &Path, path: &Path) -> io::Result<()> {
        // Left over by a process of the same number that was killed here.
        match std::fs::remove_file(temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(temporary)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(dir)?.sync_all()
    }

    /// A text as a file of it is read, and as it would be written. For the fuzzer.
    #[cfg(feature = "testing")]
    pub fn again(text: &str) -> Option<String> {
        Self::parse(text).ok().map(|key| key.text())
    }

    fn text(&self) -> String {
        format!("{FORMAT} {:016x} {} {}\n", self.id, self.holds.as_str(), hex(&self.secret))
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix(FORMAT).ok_or("it does not begin with the format name and version")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [id, holds, secret] = words[..] else { return Err("it does not have five words") };
        let valid = id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
        let id =
            u64::from_str_radix(id, 16).ok().filter(|_| valid).ok_or("the key id is not 16 hex digits")?;
        let holds = [Holds::Cluster, Holds::Client]
            .into_iter()
            .find(|kind| kind.as_str() == holds)
            .ok_or("the kind is neither `cluster` nor `client`")?;
        if id == 0 {
            return Err("key id 0 is reserved");
        }
        Ok(Self { id, holds, secret: unhex(secret).ok_or("the secret is not 64 hex digits")? })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let text = text.as_bytes();
    if text.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |b: u8| (b as char).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(out)
}

/// The keys that this process holds.
#[derive(Clone)]
pub struct Keyring {
    id: u64,
    /// The cluster secret; a client's keyring has none.
    secret: Option<[u8; 32]>,
    client: [u8; 32],
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({:016x})", self.id)
    }
}

impl Keyring {
    /// The keys that follow from a file's content.
    pub fn new(file: &KeyFile) -> Self {
        match file.holds {
            Holds::Cluster => {
                Self { id: file.id, secret: Some(file.secret), client: derive(&file.secret, Role::Client) }
            }
            Holds::Client => Self { id: file.id, secret: None, client: file.secret },
        }
    }

    /// Loads a key file.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        KeyFile::load(path).map(|file| Self::new(&file))
    }

    /// For `--insecure`: no secret, every role. Both sides must run so.
    pub fn insecure() -> Self {
        Self { id: 0, secret: Some([0; 32]), client: [0; 32] }
    }

    /// Without protection?
    pub fn is_insecure(&self) -> bool {
        self.id == 0
    }

    /// Which cluster key this is; 0 = insecure.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// May this process act as `role`?
    pub fn has(&self, role: Role) -> bool {
        self.role_key(role).is_some()
    }

    /// A key file for mounts: whoever holds it can act neither as server nor as administrator.
    pub fn client_file(&self) -> KeyFile {
        KeyFile { id: self.id, holds: Holds::Client, secret: self.client }
    }

    /// The proof that a session was opened; only servers can make or check it.
    pub fn token(&self, client: ClientId, incarnation: Incarnation) -> Option<SessionToken> {
        let key = blake3::derive_key("skep 1 session token", &self.secret?);
        let mut session = [0; 16];
        session[..8].copy_from_slice(&client.0.to_le_bytes());
        session[8..].copy_from_slice(&incarnation.0.to_le_bytes());
        Some(*blake3::keyed_hash(&key, &session).as_bytes())
    }

    /// Is `token` the proof of this session? Takes the same time for every wrong one.
    pub fn verify_token(&self, client: ClientId, incarnation: Incarnation, token: &SessionToken) -> bool {
        // blake3's own comparison of hashes is constant-time.
        self.token(client, incarnation)
            .is_some_and(|right| blake3::Hash::from_bytes(right) == blake3::Hash::from_bytes(*token))
    }

    /// What an administrator shows to the HTTP API of mgmtd: derived from the administrator's key and
    /// good for nothing else. None for the key of a client.
    pub fn http_token(&self) -> Option<String> {
        self.http_secret().map(|secret| hex(&secret))
    }

    /// Is it that token? Takes the same time for every wrong one of the right form.
    pub fn verify_http_token(&self, token: &str) -> bool {
        // blake3's own comparison of hashes is constant-time.
        self.http_secret()
            .zip(unhex(token))
            .is_some_and(|(right, given)| blake3::Hash::from_bytes(right) == blake3::Hash::from_bytes(given))
    }

    fn http_secret(&self) -> Option<[u8; 32]> {
        self.secret?;
        self.role_key(Role::Admin).map(|key| blake3::derive_key("skep 1 http token", &key))
    }

    pub(crate) fn role_key(&self, role: Role) -> Option<[u8; 32]> {
        match (role, &self.secret) {
            _ if self.is_insecure() => Some([0; 32]),
            (Role::Client, _) => Some(self.client),
            (_, Some(secret)) => Some(derive(secret, role)),
            (_, None) => None,
        }
    }
}

fn derive(secret: &[u8; 32], role: Role) -> [u8; 32] {
    let context = match role {
        Role::Client => "skep 1 role client",
        Role::Server => "skep 1 role server",
        Role::Admin => "skep 1 role admin",
    };
    blake3::derive_key(context, secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::PermissionsExt;

    /// Goal: a key file survives the round trip, is unreadable for others, and is never overwritten.
    #[test]
    fn written_once_and_read_back() {
        let dir = TempDir::new();
        let path = dir.path().join("cluster.key");
        let file = KeyFile::generate().unwrap();
        file.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o400);
        assert_eq!(KeyFile::load(&path).unwrap(), file);
        let again = KeyFile::generate().unwrap().write(&path).unwrap_err();
        assert!(again.to_string().contains("never overwritten"), "{again}");
        assert_eq!(KeyFile::load(&path).unwrap(), file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left");
    }

    /// Goal: a key that others can read is refused with the command that mends it.
    #[test]
    fn readable_by_others_is_refused() {
        let dir = TempDir::new();
        let path = dir.path().join("cluster.key");
        KeyFile::generate().unwrap().write(&path).unwrap();
        for mode in [0o440, 0o404, 0o644, 0o420] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = KeyFile::load(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 0400"), "{error}");
        }
        // Of a file that is no key nobody is told to close it: it may be /etc/passwd.
        let other = dir.path().join("passwd");
        std::fs::write(&other, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = KeyFile::load(&other).unwrap_err().to_string();
        assert!(error.contains("expected one line") && !error.contains("chmod"), "{error}");
    }

    /// Goal: damaged files are refused and say where; no secret shows up in a message.
    #[test]
    fn damaged_files_are_refused() {
        let good = KeyFile::generate().unwrap().text();
        assert!(KeyFile::parse(&good).is_ok());
        let zero = format!("{FORMAT} {:016x} cluster {}", 0, "0".repeat(64));
        for bad in
            ["", "skep-key 2 1 cluster 00", &good[..good.len() - 3], &good.replace("cluster", "admin"), &zero]
        {
            assert!(KeyFile::parse(bad).is_err(), "{bad}");
        }
        let key = KeyFile { id: 5, holds: Holds::Cluster, secret: [0xab; 32] };
        assert!(!format!("{key:?} {:?}", Keyring::new(&key)).contains("abab"));
    }

    /// Goal: the client's file yields the client role only, and the same key for it.
    #[test]
    fn a_client_file_is_no_server() {
        let cluster = Keyring::new(&KeyFile::generate().unwrap());
        let client = Keyring::new(&cluster.client_file());
        assert_eq!(client.role_key(Role::Client), cluster.role_key(Role::Client));
        assert!(!client.has(Role::Server) && !client.has(Role::Admin));
        assert!(client.token(ClientId(1), Incarnation(1)).is_none());
        assert_ne!(cluster.role_key(Role::Server), cluster.role_key(Role::Admin));
        assert_ne!(cluster.role_key(Role::Server), cluster.role_key(Role::Client));
    }

    /// Goal: the token of the HTTP API follows from the cluster key, is none of its keys, and neither a
    /// client nor a mangled token passes.
    #[test]
    fn http_tokens() {
        let file = KeyFile::generate().unwrap();
        let cluster = Keyring::new(&file);
        let token = cluster.http_token().unwrap();
        assert!(cluster.verify_http_token(&token) && Keyring::new(&file).verify_http_token(&token));
        let mut wrong = token.clone();
        wrong.replace_range(10..11, if &token[10..11] == "0" { "1" } else { "0" });
        for wrong in [&wrong, &token[1..], "", &format!("{token}0"), &hex(&file.secret)] {
            assert!(!cluster.verify_http_token(wrong), "{wrong}");
        }
        for role in [Role::Client, Role::Server, Role::Admin] {
            assert_ne!(cluster.role_key(role).map(|key| hex(&key)).as_ref(), Some(&token));
        }
        let client = Keyring::new(&cluster.client_file());
        assert!(client.http_token().is_none() && !client.verify_http_token(&token));
        assert!(!Keyring::new(&KeyFile::generate().unwrap()).verify_http_token(&token));
    }

    /// Goal: a token proves exactly one session of one cluster.
    #[test]
    fn tokens() {
        let cluster = Keyring::new(&KeyFile::generate().unwrap());
        let token = cluster.token(ClientId(7), Incarnation(1)).unwrap();
        assert!(cluster.verify_token(ClientId(7), Incarnation(1), &token));
        assert!(!cluster.verify_token(ClientId(7), Incarnation(2), &token));
        assert!(!cluster.verify_token(ClientId(8), Incarnation(1), &token));
        assert!(!cluster.verify_token(ClientId(7), Incarnation(1), &[0; 32]));
        assert!(!Keyring::new(&KeyFile::generate().unwrap()).verify_token(
            ClientId(7),
            Incarnation(1),
            &token
        ));
    }
}
