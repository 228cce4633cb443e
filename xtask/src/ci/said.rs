//! What a step said: the lines that tell of failures, and the last ones. Repeated at the end of a run, where a reader who
//! has only the end of a long output finds why.

use std::collections::VecDeque;

/// Most lines that tell of failures.
const TELLING_MAX: usize = 40;
/// The last lines.
const LAST_MAX: usize = 40;
/// What a line has that tells of a failure.
const TELLING: [&str; 4] = ["FAILED", "panicked at", "error:", "WRONG"];

/// See the module.
#[derive(Debug, Default)]
pub struct Said {
    telling: Vec<String>,
    last: VecDeque<String>,
}

impl Said {
    /// One more line.
    pub fn line(&mut self, line: &[u8]) {
        self.last.push_back(String::from_utf8_lossy(line).into_owned());
        if self.last.len() <= LAST_MAX {
            return;
        }
        let Some(line) = self.last.pop_front() else { return };
        if self.telling.len() < TELLING_MAX && TELLING.iter().any(|word| line.contains(word)) {
            self.telling.push(line);
        }
    }

    /// All of it, in order, each line once.
    pub fn text(&self) -> String {
        self.telling.iter().chain(&self.last).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a failure far from the end is kept with the end, each line once.
    #[test]
    fn failures_and_the_end_are_kept() {
        let mut said = Said::default();
        for number in 0..1_000 {
            let word = if number % 400 == 10 { "FAILED" } else { "ok" };
            said.line(format!("{word} {number}\n").as_bytes());
        }
        let last: String = (960..1_000).map(|number| format!("ok {number}\n")).collect();
        assert_eq!(said.text(), format!("FAILED 10\nFAILED 410\nFAILED 810\n{last}"));
    }
}
