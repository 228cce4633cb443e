//! Cases of LTP that do not pass, each with its reason.

use super::ltp::Outcome;

/// Cases that say nothing about the file system under test.
pub const NOT_ABOUT_FILES: &[(&str, &str)] = &[
    ("proc01", "reads /proc"),
    ("read_all_dev", "reads /dev"),
    ("read_all_proc", "reads /proc"),
    ("read_all_sys", "reads /sys"),
];

/// Cases that are run and do not pass.
pub const KNOWN: &[(&str, Outcome, &str)] = &[];
