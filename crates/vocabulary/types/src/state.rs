//! States and roles that more than one service speaks of.

use crate::{byte_enum, record};

byte_enum! {
    /// What a peer may do. Each role has a key of its own, derived from the cluster key.
    pub enum Role {
        /// A mount: metadata and data of files, its own session.
        Client = 1,
        /// A daemon: registers, reports, speaks server to server.
        Server = 2,
        /// An administrator's command.
        Admin = 3,
    }
}

byte_enum! {
    /// What a node runs.
    pub enum ServiceKind {
        /// Registry.
        Mgmtd = 1,
        /// Namespace.
        Metad = 2,
        /// File contents.
        Storaged = 3,
    }
}

byte_enum! {
    /// Does mgmtd hear from it?
    pub enum Reachability {
        /// Heard recently.
        Online = 1,
        /// Silent for a while.
        ProbablyOffline = 2,
        /// Silent for longer, or signed off.
        Offline = 3,
    }
}

byte_enum! {
    /// Can its content be trusted?
    pub enum Consistency {
        /// Yes.
        Good = 1,
        /// It missed changes and must be brought up to date.
        NeedsResync = 2,
        /// Its disk failed; an administrator decides.
        Bad = 3,
    }
}

byte_enum! {
    /// How full a target is, compared with limits of its pool: choosers take a fuller class only when the
    /// emptier ones have not enough targets.
    pub enum CapacityClass {
        /// Space enough.
        Normal = 1,
        /// Filling up.
        Low = 2,
        /// Nearly full.
        Emergency = 3,
    }
}

record! {
    /// Space of a target's or a metadata server's disk.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Capacity {
        /// Bytes in all.
        pub bytes: u64,
        /// Bytes free for Skep (its reserve taken off).
        pub bytes_free: u64,
        /// Inodes in all.
        pub inodes: u64,
        /// Inodes free.
        pub inodes_free: u64,
    }
}

impl Reachability {
    /// As shown to people and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::ProbablyOffline => "probably-offline",
            Self::Offline => "offline",
        }
    }
}

impl CapacityClass {
    /// As shown to people and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Emergency => "emergency",
        }
    }
}

impl Consistency {
    /// As shown to people and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::NeedsResync => "needs-resync",
            Self::Bad => "bad",
        }
    }
}

impl ServiceKind {
    /// As shown to people and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mgmtd => "mgmtd",
            Self::Metad => "metad",
            Self::Storaged => "storaged",
        }
    }
}
