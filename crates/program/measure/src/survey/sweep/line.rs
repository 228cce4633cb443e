//! How a search is written down: the line that does it again.

use super::Goal;
use crate::survey::commands::Lines;
use skep_base::units::{Period, Size};
use std::time::Duration;

/// The line of a search.
pub struct Line<'a> {
    /// Directory.
    pub mount: String,
    /// What shall be fast.
    pub goal: Goal,
    /// Bytes of a measurement.
    pub size: u64,
    /// Most processes.
    pub processes: u32,
    /// Most measurements.
    pub measurements: usize,
    /// Time it may take.
    pub time: Option<Duration>,
    /// Further flags.
    pub more: &'a str,
    /// How command lines are written.
    pub lines: &'a Lines,
}

impl Line<'_> {
    pub fn text(&self) -> String {
        let time = self.time.map_or_else(String::new, |time| format!(" --time {}", Period(time)));
        format!(
            "skep survey sweep --mount {} --goal {} --size {} --processes {} --budget {}{time}{}{}{}",
            self.mount,
            self.goal.name(),
            Size(self.size),
            self.processes,
            self.measurements,
            self.more,
            self.lines.cluster(),
            self.lines.all_hosts()
        )
    }
}
