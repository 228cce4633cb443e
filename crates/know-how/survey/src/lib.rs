//! Survey: every layer measured, the one that limits named, two surveys compared, a report.

pub mod ceiling;
pub mod compare;
#[cfg(test)]
mod draw;
pub mod ids;
pub mod judge;
pub mod lag;
pub mod model;
pub mod pairs;
pub mod report;
pub mod search;
pub mod together;
