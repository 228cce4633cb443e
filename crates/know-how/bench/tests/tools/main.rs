//! What other tools print, read into rows: composed from their documentation, and as real ones printed it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod composed;
mod real;

use skep_bench::dialect::Tool;
use skep_bench::foreign::{ForeignResult, parse};
use skep_bench::result::Summary;

const MIB: f64 = 1_048_576.0;

fn read(tool: Tool, output: &str) -> ForeignResult {
    parse(tool, output).unwrap_or_else(|error| panic!("{error}"))
}

fn phases(result: &ForeignResult) -> Vec<&str> {
    result.rows.iter().map(|row| row.phase.as_str()).collect()
}

fn row<'a>(result: &'a ForeignResult, phase: &str) -> &'a Summary {
    let found = result.rows.iter().find(|row| row.phase == phase);
    found.unwrap_or_else(|| panic!("{phase}: {:?}", phases(result)))
}

fn near(is: f64, should: f64) -> bool {
    (is - should).abs() <= should.abs() * 1e-9
}

/// Goal: an output cut anywhere, or with a byte changed, is a result or an error, never the end of the program.
#[test]
fn damaged_outputs() {
    let (mut good, mut bad) = (0, 0);
    for (tool, sample) in composed::SAMPLES.iter().chain(real::SAMPLES) {
        for at in (0..sample.len()).step_by(3) {
            let cut = parse(*tool, &sample[..at]);
            let odd = [" ", "=", ":", "9", "-", "\n", "\u{20ac}"][at % 7];
            let changed = parse(*tool, &format!("{}{odd}{}", &sample[..at], &sample[at + 1..]));
            for result in [cut, changed] {
                match result {
                    Ok(result) => {
                        assert!(result.rows.iter().all(|row| row.bytes_per_second.mean.is_finite()));
                        good += 1;
                    }
                    Err(error) => {
                        assert!(!error.why.is_empty());
                        bad += 1;
                    }
                }
            }
        }
    }
    assert!(good > 500 && bad > 500, "{good} {bad}");
}
