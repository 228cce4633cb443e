//! Keys that several services have.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::address::Address;
use super::service::Wrong;
use crate::units::Period;

/// Most mgmtd addresses a service tries.
pub const MGMTD_ADDRESSES_MAX: usize = 16;
/// Heartbeats more often than this would be load without use.
pub const HEARTBEAT_MIN: Period = Period::millis(10);
/// More of `look_again_us` would be waiting that is no use.
pub const LOOK_AGAIN_MAX: u32 = 1_000;

/// How much a service writes to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Only what needs an administrator.
    Error,
    /// Also what will need one if it goes on.
    Warn,
    /// Also starts, stops and changes of state.
    Info,
    /// Also every connection.
    Debug,
}

/// What every service needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The cluster key.
    pub key_file: PathBuf,
    /// What is logged.
    pub log: LogLevel,
    /// Run without a key: anybody who reaches the port is trusted.
    pub insecure: bool,
    /// Directory of process ids and Unix sockets.
    pub run_dir: PathBuf,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            key_file: PathBuf::from("/etc/skep/cluster.key"),
            log: LogLevel::Info,
            insecure: false,
            run_dir: PathBuf::from("/run/skep"),
        }
    }
}

/// What a service needs that is a member of a cluster without being its mgmtd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Membership {
    /// Addresses of mgmtd, tried in order.
    pub mgmtd: Vec<Address>,
    /// How often mgmtd hears from this service.
    pub heartbeat: Period,
    /// Microseconds for which a thread that has worked looks for more before it sleeps, while processors are idle.
    pub look_again_us: u32,
}

impl Default for Membership {
    fn default() -> Self {
        Self {
            mgmtd: vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: super::address::MGMTD_PORT }],
            heartbeat: Period::secs(1),
            look_again_us: 50,
        }
    }
}

impl Process {
    /// Checks that one key alone cannot violate by its type.
    pub fn check(&self, wrong: &mut Wrong) {
        if self.key_file.as_os_str().is_empty() && !self.insecure {
            wrong.key("key_file", "is empty", "name the cluster key, or set insecure = true");
        }
        if self.run_dir.as_os_str().is_empty() {
            wrong.key("run_dir", "is empty", "name a directory such as \"/run/skep\"");
        }
    }
}

impl Membership {
    /// From now on this process looks again as it says here.
    pub fn settle(&self) {
        skep_net::look_again_for(Duration::from_micros(self.look_again_us.into()));
    }

    /// Checks that one key alone cannot violate by its type.
    pub fn check(&self, wrong: &mut Wrong) {
        if self.mgmtd.is_empty() {
            wrong.key("mgmtd", "is empty", "list at least one address of a mgmtd");
        }
        if self.mgmtd.len() > MGMTD_ADDRESSES_MAX {
            wrong.key("mgmtd", "lists too many addresses", &format!("leave at most {MGMTD_ADDRESSES_MAX}"));
        }
        if self.heartbeat < HEARTBEAT_MIN {
            wrong.key("heartbeat", "is too short", &format!("set at least \"{HEARTBEAT_MIN}\""));
        }
        wrong.number("look_again_us", self.look_again_us, 0..=LOOK_AGAIN_MAX);
    }
}
