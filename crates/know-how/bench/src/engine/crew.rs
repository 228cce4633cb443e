//! The director's view of its worker processes, wherever they run.

use super::{Order, Report};
use std::time::Duration;

/// One worker process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its host, as results name it.
    pub host: String,
    /// Its host's clock minus the director's, nanoseconds.
    pub clock_offset_ns: i64,
    /// How uncertain that is, nanoseconds: no start skew below it can be told.
    pub clock_error_ns: u64,
}

/// The crew is lost as a whole: no way to speak to any member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrewError(pub String);

impl std::fmt::Display for CrewError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CrewError {}

/// Worker processes: `job.workers.processes` of them, numbered from 0, spawned before the run begins.
///
/// A member that dies, hangs up or sends nonsense is reported once as [`Report::Gone`]; orders to it are
/// dropped from then on.
pub trait Crew {
    /// All of them, in the order of process numbers.
    fn members(&self) -> &[Member];

    /// Gives an order to a member.
    fn send(&mut self, member: usize, order: &Order) -> Result<(), CrewError>;

    /// The next report of any member; None when none came in time.
    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Report)>, CrewError>;

    /// How long an order needs to reach every member, at worst: starts are set so far ahead.
    fn lead(&self) -> Duration;

    /// Ends all members, by force where they do not listen.
    fn end(&mut self);
}
