//! The handshake: proves the key of the claimed role on both sides and carries `Hello` and
//! `Welcome` (Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s). No socket in here: bytes in, bytes out, so
//! that the event loop and the threads share it.
//!
//! ```text
//! -> "SKEPHELO" | u8 version | u8 role | u8 protection | u8 kind of key (0) | u64 key id  (plain; the prologue)
//! -> u16 length | Noise message 1 (Hello)
//! <- u16 length | Noise message 2 (u8 0 Welcome, u8 1 Refusal), or u16 0 | u8 reason and the end
//! -> 16 bytes key confirmation
//! ```
//! Message 1 can be replayed by whoever recorded it; the confirmation cannot. So nothing is done
//! for a peer before its confirmation, except answering.

use crate::seal::{MAC_LEN, Seal, Seals};
use crate::{Keyring, error::Cause};
use skep_types::{Decode, Encode, Role};
use skep_wire::{Hello, Protection, Refusal, VERSION_MAX, VERSION_MIN, Welcome};
use std::time::Duration;

/// A connection that has not finished the handshake by then is closed.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);
/// Longest handshake message, length field excluded.
pub const HANDSHAKE_MESSAGE_MAX: usize = 1_024;
/// Bytes of the plain beginning.
pub const PREAMBLE_LEN: usize = 20;
/// What to look at when a server closes the connection in the middle of the handshake.
pub const CLOSED_KEYS_HINT: &str = "the service closed the connection during the handshake; is it overloaded, \
    or something else than Skep? Its log tells";

const MAGIC: &[u8; 8] = b"SKEPHELO";
const HANDSHAKE_VERSION: u8 = 1;
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bytes that Noise adds to a payload: the ephemeral key and the tag.
const NOISE_OVERHEAD: usize = 32 + 16;
const LENGTH: usize = 2;

/// Why a responder ends a handshake; told in plain, so only a hint for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    Version = 1,
    KeyId = 2,
    Key = 3,
    Role = 4,
    Insecure = 5,
    Protection = 6,
    Malformed = 7,
}

impl Reason {
    const ALL: [Self; 7] = [
        Self::Version,
        Self::KeyId,
        Self::Key,
        Self::Role,
        Self::Insecure,
        Self::Protection,
        Self::Malformed,
    ];

    fn advice(self) -> &'static str {
        match self {
            Self::Version => "it speaks another version of the handshake: upgrade the older side",
            Self::KeyId => {
                "it belongs to another cluster (its key has another id): check address and key file"
            }
            Self::Key => "the key does not fit although its id does: is the key file damaged or old?",
            Self::Role => "it holds no key for this role: it runs with a client's key file",
            Self::Insecure => "one side runs with --insecure and the other does not: both must, or neither",
            Self::Protection => {
                "the connection was passed on between TCP and a Unix socket: connect directly"
            }
            Self::Malformed => "it did not understand the handshake: upgrade the older side",
        }
    }
}

/// A handshake that ends here: the line for the log, and what the peer is told.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    reason: Option<Reason>,
}

impl Failure {
    fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self { text: text.into(), reason: Some(reason) }
    }

    fn silent(text: impl Into<String>) -> Self {
        Self { text: text.into(), reason: None }
    }

    /// The last bytes for the peer; none for one that does not speak our protocol at all.
    pub(crate) fn farewell(&self) -> Vec<u8> {
        self.reason.map(|reason| vec![0, 0, reason as u8]).unwrap_or_default()
    }
}

fn preamble(version: u8, role: Role, protection: Protection, key_id: u64) -> [u8; PREAMBLE_LEN] {
    let mut out = [0; PREAMBLE_LEN];
    out[..8].copy_from_slice(MAGIC);
    out[8..11].copy_from_slice(&[version, role as u8, protection as u8]);
    out[12..].copy_from_slice(&key_id.to_le_bytes());
    out
}

fn noise(key: &[u8; 32], prologue: &[u8], initiator: bool) -> Result<snow::HandshakeState, snow::Error> {
    let builder = snow::Builder::new(PATTERN.parse()?).psk(0, key)?.prologue(prologue)?;
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

fn framed(state: &mut snow::HandshakeState, payload: &[u8]) -> Result<Vec<u8>, snow::Error> {
    let mut out = vec![0; LENGTH + payload.len() + NOISE_OVERHEAD];
    let len = state.write_message(payload, &mut out[LENGTH..])?;
    out.truncate(LENGTH + len);
    out[..LENGTH].copy_from_slice(&(len as u16).to_le_bytes());
    Ok(out)
}

/// What both sides hold when Noise is done.
struct Keys {
    to_responder: [u8; 32],
    to_initiator: [u8; 32],
    confirmation: [u8; MAC_LEN],
}

impl Keys {
    fn of(state: &mut snow::HandshakeState) -> Self {
        let (first, second) = state.dangerously_get_raw_split();
        let to_responder = blake3::derive_key("skep 1 frame mac", &first);
        let confirm_key = blake3::derive_key("skep 1 confirmation", &first);
        let mut confirmation = [0; MAC_LEN];
        let full = blake3::keyed_hash(&confirm_key, state.get_handshake_hash());
        confirmation.copy_from_slice(&full.as_bytes()[..MAC_LEN]);
        Self { to_responder, to_initiator: blake3::derive_key("skep 1 frame mac", &second), confirmation }
    }

    fn seals(&self, protection: Protection, initiator: bool) -> Seals {
        if protection == Protection::Local {
            return Seals { send: None, receive: None };
        }
        let (send, receive) = match initiator {
            true => (&self.to_responder, &self.to_initiator),
            false => (&self.to_initiator, &self.to_responder),
        };
        Seals { send: Some(Seal::new(send)), receive: Some(Seal::new(receive)) }
    }
}

fn no_key_for(role: Role) -> Cause {
    Cause::Handshake(format!("this key file does not allow the role {role:?}: use the cluster's key file"))
}

/// The side that connects.
pub(crate) struct Initiator {
    state: snow::HandshakeState,
    protection: Protection,
}

impl Initiator {
    /// Why this handshake cannot succeed, whoever answers; asked before anybody is bothered.
    pub(crate) fn impossible(keyring: &Keyring, hello: &Hello) -> Option<Cause> {
        (!keyring.has(hello.role)).then(|| no_key_for(hello.role))
    }

    /// Begins; the bytes are to be sent.
    pub(crate) fn begin(
        keyring: &Keyring,
        hello: &Hello,
        protection: Protection,
    ) -> Result<(Self, Vec<u8>), Cause> {
        let internal = |e: snow::Error| Cause::Handshake(format!("the handshake cannot begin: {e}"));
        let Some(key) = keyring.role_key(hello.role) else { return Err(no_key_for(hello.role)) };
        let mut out = preamble(HANDSHAKE_VERSION, hello.role, protection, keyring.id()).to_vec();
        let mut state = noise(&key, &out, true).map_err(internal)?;
        out.extend(framed(&mut state, &hello.to_bytes()).map_err(internal)?);
        Ok((Self { state, protection }, out))
    }

    /// How many bytes follow the two of the length: a message, or the reason of a refusal.
    pub(crate) fn follow(length: [u8; LENGTH]) -> Result<usize, Cause> {
        match usize::from(u16::from_le_bytes(length)) {
            0 => Ok(1),
            n if n <= HANDSHAKE_MESSAGE_MAX => Ok(n),
            n => Err(Cause::Handshake(format!(
                "the answer to the handshake is {n} bytes long: no Skep service"
            ))),
        }
    }

    /// Takes the answer; gives what the service says, and the confirmation to be sent.
    pub(crate) fn finish(mut self, answer: &[u8]) -> Result<(Welcome, Seals, [u8; MAC_LEN]), Cause> {
        if let [reason] = answer {
            let advice =
                Reason::ALL.iter().find(|r| **r as u8 == *reason).map_or("unknown reason", |r| r.advice());
            return Err(Cause::Handshake(format!("the service refused the handshake: {advice}")));
        }
        let mut payload = [0; HANDSHAKE_MESSAGE_MAX];
        let len = self.state.read_message(answer, &mut payload).map_err(|_| {
            Cause::Handshake(
                "the service could not prove the cluster key: it is not the one it should be".into(),
            )
        })?;
        let understood = match payload[..len].split_first() {
            Some((0, rest)) => {
                Welcome::from_bytes(rest).map_err(|e| Cause::Handshake(format!("bad welcome: {e}")))
            }
            Some((1, rest)) => Err(match Refusal::from_bytes(rest) {
                Ok(refusal) => Cause::Refused(refusal),
                Err(e) => Cause::Handshake(format!("bad refusal: {e}")),
            }),
            _ => Err(Cause::Handshake("empty answer to the handshake: upgrade the older side".into())),
        };
        let welcome = understood?;
        if !(VERSION_MIN..=VERSION_MAX).contains(&welcome.version) {
            return Err(Cause::Handshake(format!("the service chose protocol version {}", welcome.version)));
        }
        let keys = Keys::of(&mut self.state);
        Ok((welcome, keys.seals(self.protection, true), keys.confirmation))
    }
}

/// What a service makes of the first bytes of somebody who has no key: how many it used up, or what its log says. For the
/// fuzzer, since this is the one reader that anybody can reach.
#[cfg(feature = "testing")]
pub fn meet_stranger(input: &[u8], keyring: &Keyring) -> Result<usize, String> {
    let met = Responder::new(Protection::Integrity).advance(input, keyring);
    met.map(|(used, _)| used).map_err(|failure| failure.text)
}

/// The side that accepts, fed with what arrives.
pub(crate) struct Responder {
    protection: Protection,
    stage: Stage,
}

enum Stage {
    /// Waits for preamble and message 1.
    First,
    /// Waits for the service's answer to the hello.
    Asked(Box<snow::HandshakeState>),
    /// Waits for the confirmation.
    Confirm(Keys),
    /// Over.
    Ended,
}

/// How far it is.
pub(crate) enum Progress {
    /// More bytes are needed.
    More,
    /// Ask the service and call [`Responder::answer`].
    Hello(Box<Hello>),
    /// The peer has proven itself.
    Open(Seals),
}

impl Responder {
    pub(crate) fn new(protection: Protection) -> Self {
        Self { protection, stage: Stage::First }
    }

    /// Looks at what arrived so far; the number tells how many bytes of it are used up.
    pub(crate) fn advance(&mut self, input: &[u8], keyring: &Keyring) -> Result<(usize, Progress), Failure> {
        match &self.stage {
            Stage::First => self.first(input, keyring),
            Stage::Confirm(_) if input.len() < MAC_LEN => Ok((0, Progress::More)),
            Stage::Confirm(keys) => {
                let mine = blake3::Hash::from_bytes(widened(&keys.confirmation));
                if mine != blake3::Hash::from_bytes(widened(&input[..MAC_LEN])) {
                    return Err(Failure::silent(
                        "handshake not confirmed: a recorded one was replayed, or damaged",
                    ));
                }
                let seals = keys.seals(self.protection, false);
                self.stage = Stage::Ended;
                Ok((MAC_LEN, Progress::Open(seals)))
            }
            Stage::Asked(_) | Stage::Ended => Ok((0, Progress::More)),
        }
    }

    fn first(&mut self, input: &[u8], keyring: &Keyring) -> Result<(usize, Progress), Failure> {
        let known = input.len().min(MAGIC.len());
        if input[..known] != MAGIC[..known] {
            return Err(Failure::silent(
                "not a Skep peer (other first bytes); a port scanner, or a wrong address?",
            ));
        }
        if input.len() < PREAMBLE_LEN {
            return Ok((0, Progress::More));
        }
        let (prologue, rest) = input.split_at(PREAMBLE_LEN);
        let (role, key) = self.check_preamble(prologue, keyring)?;
        if rest.len() < LENGTH {
            return Ok((0, Progress::More));
        }
        let len = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        if len > HANDSHAKE_MESSAGE_MAX {
            let text = format!("handshake message of {len} bytes; the limit is {HANDSHAKE_MESSAGE_MAX}");
            return Err(Failure::new(Reason::Malformed, text));
        }
        let Some(message) = rest.get(LENGTH..LENGTH + len) else { return Ok((0, Progress::More)) };
        let internal = |e: snow::Error| Failure::silent(format!("handshake cannot be answered: {e}"));
        let mut state = noise(&key, prologue, false).map_err(internal)?;
        let mut payload = [0; HANDSHAKE_MESSAGE_MAX];
        let said = state.read_message(message, &mut payload).map_err(|_| {
            Failure::new(Reason::Key, format!("wrong key for the role {role:?}, or a damaged handshake"))
        })?;
        let hello = Hello::from_bytes(&payload[..said])
            .map_err(|e| Failure::new(Reason::Malformed, format!("hello cannot be understood: {e}")))?;
        if hello.role != role {
            let text = format!("hello claims the role {:?} under the key of {role:?}", hello.role);
            return Err(Failure::new(Reason::Role, text));
        }
        if hello.version_min > VERSION_MAX || hello.version_max < VERSION_MIN {
            let text = format!(
                "peer speaks protocol versions {} to {}, this service {VERSION_MIN} to {VERSION_MAX}: upgrade the older side",
                hello.version_min, hello.version_max
            );
            return Err(Failure::new(Reason::Version, text));
        }
        self.stage = Stage::Asked(Box::new(state));
        Ok((PREAMBLE_LEN + LENGTH + len, Progress::Hello(Box::new(hello))))
    }

    fn check_preamble(&self, bytes: &[u8], keyring: &Keyring) -> Result<(Role, [u8; 32]), Failure> {
        let (version, role, protection) = (bytes[8], bytes[9], bytes[10]);
        if version != HANDSHAKE_VERSION {
            let text = format!("handshake version {version}; this service speaks {HANDSHAKE_VERSION}");
            return Err(Failure::new(Reason::Version, text));
        }
        if bytes[11] != 0 {
            let text =
                format!("peer names a key of kind {}; this service knows the cluster's only", bytes[11]);
            return Err(Failure::new(Reason::Version, text));
        }
        let mut id = [0; 8];
        id.copy_from_slice(&bytes[12..]);
        let id = u64::from_le_bytes(id);
        if (id == 0) != keyring.is_insecure() {
            let text = if id == 0 {
                "peer runs with --insecure, this service with a key"
            } else {
                "peer has a key, this service runs with --insecure"
            };
            return Err(Failure::new(Reason::Insecure, text));
        }
        if id != keyring.id() {
            let text = format!("key id {id:016x}; the key of this cluster is {:016x}", keyring.id());
            return Err(Failure::new(Reason::KeyId, text));
        }
        if protection != self.protection as u8 {
            let text = "peer is connected over another kind of socket than this end";
            return Err(Failure::new(Reason::Protection, text));
        }
        let role = Role::from_bytes(&[role])
            .map_err(|_| Failure::new(Reason::Role, format!("unknown role {role}")))?;
        let key = keyring.role_key(role).ok_or_else(|| {
            Failure::new(Reason::Role, format!("this service holds no key for the role {role:?}"))
        })?;
        Ok((role, key))
    }

    /// Answers the hello. After a refusal the connection is to be closed.
    pub(crate) fn answer(&mut self, verdict: &Result<Welcome, Refusal>) -> Result<Vec<u8>, Failure> {
        let Stage::Asked(state) = &mut self.stage else {
            return Err(Failure::silent("handshake answered twice"));
        };
        let mut payload = vec![u8::from(verdict.is_err())];
        match verdict {
            Ok(welcome) => welcome.encode(&mut payload),
            Err(refusal) => refusal_that_fits(refusal).encode(&mut payload),
        }
        let out =
            framed(state, &payload).map_err(|e| Failure::silent(format!("handshake not answered: {e}")))?;
        self.stage = if verdict.is_ok() { Stage::Confirm(Keys::of(state)) } else { Stage::Ended };
        Ok(out)
    }
}

/// Hash has the constant-time comparison, and 32 bytes.
fn widened(half: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out[..half.len()].copy_from_slice(half);
    out
}

/// Cuts a long text so that the message stays below its limit.
fn refusal_that_fits(refusal: &Refusal) -> Refusal {
    let room = HANDSHAKE_MESSAGE_MAX - NOISE_OVERHEAD - 32;
    let mut detail = refusal.detail.clone();
    while detail.len() > room {
        detail.pop();
    }
    Refusal { detail, ..refusal.clone() }
}
