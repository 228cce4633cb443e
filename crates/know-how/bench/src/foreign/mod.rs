//! The real tools: found, run, and their outputs read into the same rows as this program's own.
//!
//! What a tool does not tell is 0 in a row (the bytes of one that prints rates only), never guessed.

mod drive;
mod elbencho;
mod fio;
mod ior;
mod iozone;
mod mdtest;

pub use drive::{Drive, Found, find, fio_arguments};

use crate::dialect::Tool;
use crate::result::Summary;
use crate::summary::Spread;
use std::fmt;

/// Longest output that is read.
pub const OUTPUT_MAX: usize = 64 << 20;

const MIB: f64 = 1_048_576.0;

/// What a tool printed.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignResult {
    pub tool: Tool,
    /// As it calls itself, when it does.
    pub version: Option<String>,
    /// Processes or threads that took part, when it says so.
    pub workers: Option<u32>,
    /// A row for each phase, over all repetitions.
    pub rows: Vec<Summary>,
}

/// Why an output cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignError {
    pub tool: Tool,
    /// What is wrong, and what to do.
    pub why: String,
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tool, self.why)
    }
}

impl std::error::Error for ForeignError {}

/// Reads what `tool` printed.
pub fn parse(tool: Tool, output: &str) -> Result<ForeignResult, ForeignError> {
    let fail = |why: String| ForeignError { tool, why };
    if output.len() > OUTPUT_MAX {
        return Err(fail(format!("its output is longer than {OUTPUT_MAX} bytes")));
    }
    let result = match tool {
        Tool::Ior => ior::parse(output),
        Tool::Mdtest => mdtest::parse(output),
        Tool::Iozone => iozone::parse(output),
        Tool::Fio => fio::parse(output),
        Tool::Elbencho => elbencho::parse(output),
    }
    .map_err(fail)?;
    if result.rows.is_empty() {
        return Err(fail("its output holds no result; did the run end early?".to_owned()));
    }
    Ok(result)
}

/// A row that says nothing yet.
fn row(phase: &str) -> Summary {
    Summary {
        phase: phase.to_owned(),
        repetitions: 1,
        bytes: 0.0,
        ops: 0.0,
        seconds: Spread::default(),
        bytes_per_second: Spread::default(),
        ops_per_second: Spread::default(),
        stonewall_bytes_per_second: None,
        stonewall_ops_per_second: None,
        start_skew_us: 0.0,
        latency: None,
    }
}

/// The first word that begins with `prefix`.
fn word_with<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.split_whitespace().find(|word| word.starts_with(prefix))
}

/// A number of a table; a tool may print `-`, `NA` or `nan` for none.
fn figure(word: &str) -> Option<f64> {
    word.parse::<f64>().ok().filter(|value| value.is_finite())
}
