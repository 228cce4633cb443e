//! Who the mount is to the cluster.

use alloc::string::String;
use skep_types::{ClientId, ClusterId, Incarnation, Millis, Uuid};
use skep_wire::SessionToken;

/// What a mount tells of itself when it opens a session; for people, and to recognise a repetition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounting {
    pub host: String,
    pub mount: String,
    /// Identifies the machine.
    pub machine: Uuid,
}

/// A session that mgmtd opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub client: ClientId,
    pub incarnation: Incarnation,
    /// Shown to every server in the `Hello`.
    pub token: SessionToken,
    pub cluster: ClusterId,
    /// Silent for this long, it is evicted.
    pub timeout_ms: u64,
    /// Last time mgmtd confirmed it.
    pub renewed: Millis,
}

/// Is there a session?
#[derive(Debug, Default)]
pub enum SessionState {
    /// Not yet.
    #[default]
    None,
    /// Yes.
    Open(Session),
    /// It was, and the cluster ended it: operations wait for a new one.
    Dead {
        /// What the administrator was told.
        reason: String,
    },
}

impl SessionState {
    /// The open session.
    pub fn open(&self) -> Option<&Session> {
        match self {
            Self::Open(session) => Some(session),
            _ => None,
        }
    }

    /// Was it ended by the cluster?
    pub fn is_dead(&self) -> bool {
        matches!(self, Self::Dead { .. })
    }
}
