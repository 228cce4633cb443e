//! Survey: every layer measured, the one that limits named, two surveys compared, a report.

pub mod model;
