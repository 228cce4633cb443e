//! On which cores the load, the client and the daemons run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::process::Command;

/// Where everything of a run is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// All on one core: measures the length of the path.
    Pinned,
    /// Where the kernel likes.
    Free,
}

impl Place {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Free => "free",
        }
    }
}

/// Puts this process into the real-time class; children inherit it.
pub fn realtime() -> Result<(), String> {
    let status =
        Command::new("chrt").args(["--fifo", "--pid", "1", &std::process::id().to_string()]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("--realtime: chrt: {status}; it needs CAP_SYS_NICE")),
        Err(e) => Err(format!("--realtime: chrt (util-linux): {e}")),
    }
}

/// The cores that this process had when it began.
pub struct Cores {
    all: CpuSet,
    /// The core of [`Place::Pinned`].
    pub pinned: usize,
}

impl Cores {
    /// `pinned`: the wish for the one core; without one it is the last, which has the fewest interrupts.
    pub fn now(pinned: Option<usize>) -> Result<Self, String> {
        let all = sched_getaffinity(None).map_err(|e| format!("the allowed cores: {e}"))?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu));
        let pinned = pinned.or(last).ok_or("no core is allowed")?;
        if pinned >= CpuSet::MAX_CPU || !all.is_set(pinned) {
            return Err(format!("--pin {pinned}: there is no such core, or it is not allowed"));
        }
        Ok(Self { all, pinned })
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.all.count() as usize
    }

    /// Moves this process; children inherit it, the daemons among them.
    pub fn go(&self, place: Place) -> Result<(), String> {
        let mut one = CpuSet::new();
        one.set(self.pinned);
        let set = if place == Place::Pinned { &one } else { &self.all };
        sched_setaffinity(None, set).map_err(|e| format!("{}: {e}", place.name()))
    }
}
