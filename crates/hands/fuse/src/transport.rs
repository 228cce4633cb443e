//! How requests and replies travel.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::notices::Notices;

/// A notification that takes longer than this may wait for a request for which there is no place.
pub(crate) const NOTICE_PATIENCE: Duration = Duration::from_millis(50);
/// With no place free, it is looked this often whether there is such a notification.
pub(crate) const NOTICE_CHECK: Duration = Duration::from_millis(200);

/// Where a connection is served.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) device: &'a Arc<OwnedFd>,
    /// What the kernel is being told.
    pub(crate) notices: &'a Notices,
    /// Where it is mounted.
    pub(crate) target: &'a Path,
    /// Largest payload of a request or a reply, as the kernel counts it.
    pub(crate) payload: usize,
    /// Ends the connection.
    pub(crate) abort: &'a (dyn Fn() + Sync),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was unmounted, be it by force.
    Unmounted,
    /// It was aborted through the control file system.
    Aborted,
}

/// The transport wished for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// `io_uring` where it can be had, otherwise `/dev/fuse`.
    #[default]
    Auto,
    /// `io_uring`, or no mount.
    Uring,
    /// `/dev/fuse`.
    Dev,
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Transport::Auto),
            "uring" => Ok(Transport::Uring),
            "dev" => Ok(Transport::Dev),
            _ => Err(format!("\"{text}\" is no transport: auto, uring or dev")),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Auto => "auto",
            Transport::Uring => "uring",
            Transport::Dev => "dev",
        })
    }
}

/// The transport in use, as [`crate::Mount::serving`] is told. Displayed, it is the line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// `/dev/fuse`.
    Dev {
        /// Why it is not `io_uring`, and what to do, if that was wished for.
        instead: Option<String>,
    },
    /// `io_uring`.
    Uring {
        /// Queues: one for every CPU that this machine can have.
        queues: usize,
        /// Requests in work at once, on each queue.
        depth: usize,
        /// Threads that serve them.
        threads: usize,
    },
}

impl fmt::Display for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Serving::Dev { instead: None } => write!(f, "serving through /dev/fuse"),
            Serving::Dev { instead: Some(why) } => {
                write!(f, "serving through /dev/fuse, not io_uring: {why}")
            }
            Serving::Uring { queues, depth, threads } => {
                write!(
                    f,
                    "serving through io_uring: {queues} queues of {depth} requests on {threads} threads"
                )
            }
        }
    }
}
