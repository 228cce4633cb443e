//! Counts of cases, read from what a step prints.

/// Cases that passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
}

impl Count {
    /// Adds what one line of output says, if it says anything.
    pub fn line(&mut self, line: &str) {
        if let Some(found) = parse(line) {
            self.passed += found.passed;
            self.failed += found.failed;
        }
    }
}

/// Understands `test result: ok. 3 passed; 1 failed; ...` and `3 passed, 1 failed`.
fn parse(line: &str) -> Option<Count> {
    let line = line.trim();
    let counts = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1.replacen("; ", ", ", 1),
        None => line.to_owned(),
    };
    let (passed, rest) = counts.split_once(" passed, ")?;
    let (failed, rest) = rest.split_once(" failed")?;
    if !rest.is_empty() && !rest.starts_with(';') {
        return None;
    }
    Some(Count { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both forms are counted, everything else is not.
    #[test]
    fn counts_are_read_from_lines() {
        let mut count = Count::default();
        for line in [
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
            "200 passed, 1 failed",
            "some passed, some failed",
            "1 passed, 1 failed tries were made",
            "running 12 tests",
            "",
        ] {
            count.line(line);
        }
        assert_eq!(count, Count { passed: 215, failed: 3 });
    }
}
