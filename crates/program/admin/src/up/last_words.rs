//! Why a service does not run: the last error in its log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// So much of the end of a log is read.
const TAIL: u64 = 64 << 10;

/// The last error that a service logged after it began to serve for the last time; none when it ended in good order.
pub fn of(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail).ok()?;
    in_lines(&String::from_utf8_lossy(&tail))
}

fn in_lines(log: &str) -> Option<String> {
    let mut last = None;
    for line in log.lines() {
        // `TIME LEVEL SERVICE: TEXT`, with blanks after a short level.
        let mut words = line.split_ascii_whitespace().skip(1);
        match (words.next(), words.nth(1)) {
            (Some("ERROR"), _) => last = Some(line.to_owned()),
            (Some("INFO"), Some("ready:" | "stopped")) => last = None,
            _ => {}
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the reason of the last end is found; an error that a later start or an orderly end has settled is none, nor is
    /// what is no line of a log.
    #[test]
    fn last_errors() {
        let ready = "2026-11-21T12:00:00.123Z INFO  mgmtd: ready: cluster 1\n";
        let error = "2026-11-21T12:00:01.123Z ERROR mgmtd: ended: an older copy\n";
        let after = "2026-11-21T12:00:02.123Z WARN  mgmtd: a connection broke\nERROR\n\n";
        let stopped = "2026-11-21T12:00:03.123Z INFO  mgmtd: stopped\n";
        let found = in_lines(&[ready, error, after].concat()).unwrap();
        assert_eq!(found, error.trim_end());
        assert_eq!(in_lines(&[error, ready].concat()), None);
        assert_eq!(in_lines(&[error, stopped, after].concat()), None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        assert_eq!(of(&file), None);
        std::fs::write(&file, [error.as_bytes(), &b"\xff x\n".repeat(20_000), error.as_bytes()].concat())
            .unwrap();
        assert_eq!(of(&file).as_deref(), Some(error.trim_end()));
    }
}
