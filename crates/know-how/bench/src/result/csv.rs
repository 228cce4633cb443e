//! Results as comma-separated values: one header, one line per phase (and repetition).

use super::{RunResult, Summary};
use std::fmt::Write;

/// Every phase of every repetition.
pub fn steps_csv(run: &RunResult) -> String {
    let mut out = String::from(
        "phase,repetition,bytes,ops,seconds,bytes_per_second,ops_per_second,start_skew_us,p50_us,p90_us,p99_us,p999_us,max_us,stonewall_seconds,stonewall_bytes,stonewall_ops\n",
    );
    for step in &run.steps {
        let _ = write!(
            out,
            "{},{},{},{},{:.6},{:.1},{:.1},{:.1},",
            quoted(&step.phase),
            step.repetition,
            step.bytes,
            step.ops,
            step.seconds,
            step.bytes_per_second(),
            step.ops_per_second(),
            step.start_skew_us
        );
        let _ = match step.latency {
            Some(l) => {
                write!(
                    out,
                    "{:.1},{:.1},{:.1},{:.1},{:.1},",
                    l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us
                )
            }
            None => write!(out, ",,,,,"),
        };
        let _ = match step.stonewall {
            Some(cut) => writeln!(out, "{:.6},{},{}", cut.seconds, cut.bytes, cut.ops),
            None => writeln!(out, ",,"),
        };
    }
    out
}

/// One line per phase.
pub fn summary_csv(rows: &[Summary]) -> String {
    let mut out = String::from(
        "phase,repetitions,bytes,ops,bytes_per_second_min,bytes_per_second_mean,bytes_per_second_max,bytes_per_second_stddev,ops_per_second_min,ops_per_second_mean,ops_per_second_max,ops_per_second_stddev,start_skew_us\n",
    );
    for row in rows {
        let (bytes, ops) = (row.bytes_per_second, row.ops_per_second);
        let _ = writeln!(
            out,
            "{},{},{:.0},{:.0},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1}",
            quoted(&row.phase),
            row.repetitions,
            row.bytes,
            row.ops,
            bytes.min,
            bytes.mean,
            bytes.max,
            bytes.stddev,
            ops.min,
            ops.mean,
            ops.max,
            ops.stddev,
            row.start_skew_us
        );
    }
    out
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every line has as many fields as the header.
    #[test]
    fn fields() {
        let mut run = super::super::tests::run_of(&[1.0, 3.0]);
        run.steps[1].latency = None;
        run.steps[1].stonewall = None;
        for text in [steps_csv(&run), summary_csv(&run.summary())] {
            let counts: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
            assert!(counts.len() > 1 && counts.iter().all(|count| *count == counts[0]), "{text}");
        }
        assert_eq!(quoted("a,\"b"), "\"a,\"\"b\"");
    }
}
