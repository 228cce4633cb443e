//! How far a series is: what runs, what it says meanwhile, and how long the rest may take.

use super::Outcome;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Between two looks at what is said.
const LOOK: Duration = Duration::from_millis(500);
/// Seconds of a set-up of some layers, of all layers: as long as none of its kind is done.
const TYPICAL: [f64; 2] = [70.0, 600.0];
const MINUTE: f64 = 60.0;

/// Does something, and tells meanwhile each whole line that comes to a file.
pub fn followed<T>(path: &Path, told: impl FnMut(&str) + Send, what: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (ended, end) = channel::<()>();
        scope.spawn(move || {
            let Ok(file) = File::open(path) else { return };
            let (mut lines, mut told) = (Lines { from: BufReader::new(file), part: String::new() }, told);
            while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                lines.each(&mut told);
            }
            lines.each(&mut told);
        });
        let done = what();
        drop(ended);
        done
    })
}

/// Lines of a file that grows.
struct Lines {
    from: BufReader<File>,
    part: String,
}

impl Lines {
    fn each(&mut self, told: &mut impl FnMut(&str)) {
        while self.from.read_line(&mut self.part).is_ok_and(|bytes| bytes > 0) {
            if self.part.ends_with('\n') {
                told(self.part.trim_end());
                self.part.clear();
            }
        }
    }
}

/// How far it is, and how many minutes the rest may take: each set-up as long as those of its kind that are done.
pub fn text(outcomes: &[Outcome], all: usize, whole: usize) -> String {
    let left = all - outcomes.len();
    let left_whole = left.min(whole);
    let typical = |of_whole: bool| {
        let done = outcomes.iter().filter(|outcome| outcome.whole == of_whole).map(|outcome| outcome.seconds);
        let (count, sum) = done.fold((0.0, 0.0), |(count, sum), seconds| (count + 1.0, sum + seconds));
        if count > 0.0 { sum / count } else { TYPICAL[usize::from(of_whole)] }
    };
    let seconds = (left - left_whole) as f64 * typical(false) + left_whole as f64 * typical(true);
    format!("{} of {all} done, about {:.0} minutes left", outcomes.len(), (seconds / MINUTE).ceil())
}

#[cfg(test)]
mod tests {
    use super::super::rig::Rig;
    use super::*;
    use std::io::Write;

    /// Goal: every line is told once and whole, also one that was written in pieces, and what comes last.
    #[test]
    fn lines_are_told() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let path = scratch.path().join("said");
        let mut file = File::create(&path).unwrap();
        let (mut lines, mut told) =
            (Lines { from: BufReader::new(File::open(&path).unwrap()), part: String::new() }, Vec::new());
        for piece in ["one dev", "ice ...\n  0.5 s\nhalf"] {
            file.write_all(piece.as_bytes()).unwrap();
            lines.each(&mut |line: &str| told.push(line.to_owned()));
        }
        assert_eq!(told, ["one device ...", "  0.5 s"]);
        let mut told = Vec::new();
        let done =
            followed(&path, |line| told.push(line.to_owned()), || file.write_all(b" a line\n").is_ok());
        assert_eq!((done, told.last().map(String::as_str)), (true, Some("half a line")));
    }

    /// Goal: the rest takes as long as what is done, whole surveys apart from others; before any is done a guess stands.
    #[test]
    fn the_rest() {
        let outcome = |seconds: f64, whole: bool| Outcome {
            rig: Rig::Nothing,
            accused: vec![],
            headline: String::new(),
            seconds,
            whole,
            failed: None,
        };
        assert_eq!(text(&[], 3, 1), "0 of 3 done, about 13 minutes left");
        assert_eq!(text(&[outcome(120.0, false)], 3, 1), "1 of 3 done, about 12 minutes left");
        let done = [outcome(120.0, false), outcome(60.0, false), outcome(300.0, true)];
        assert_eq!(text(&done, 4, 2), "3 of 4 done, about 5 minutes left");
        assert_eq!(text(&done, 3, 1), "3 of 3 done, about 0 minutes left");
    }
}
