//! Log lines: `2026-11-21T12:00:00.123Z INFO  metad: text`, on standard error.
//!
//! One place, no framework: a daemon under systemd gets its lines into the journal, `skep up`
//! sends them to `<dir>/log/<service>.log`.

use skep_types::Timestamp;
use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How important a line is; lower is more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The service cannot do what it should.
    Error = 1,
    /// Somebody should look at it.
    Warn = 2,
    /// Start, stop, changes of state.
    Info = 3,
    /// For developers.
    Debug = 4,
}

impl From<crate::config::access::LogLevel> for Level {
    fn from(level: crate::config::access::LogLevel) -> Self {
        use crate::config::access::LogLevel;
        match level {
            LogLevel::Error => Self::Error,
            LogLevel::Warn => Self::Warn,
            LogLevel::Info => Self::Info,
            LogLevel::Debug => Self::Debug,
        }
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static SERVICE: OnceLock<String> = OnceLock::new();
/// Lines written, by level.
static LINES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Lines written since the start, by level.
pub fn counts() -> [(&'static str, u64); 4] {
    let count = |at: usize| LINES[at].load(Ordering::Relaxed);
    [("error", count(0)), ("warn", count(1)), ("info", count(2)), ("debug", count(3))]
}

/// Names the service; the first call counts.
pub fn init(service: &str, level: Level) {
    set_level(level);
    SERVICE.get_or_init(|| service.to_owned());
}

thread_local! {
    static PART: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Lines of this thread are of a part of the service, and named so.
pub fn name_thread(part: &str) {
    PART.set(Some(part.to_owned()));
}

/// Sets what is written.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Is a line of this level written?
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Text as it may go to a terminal or into a file that one is shown on: names of files, hosts and mount points come
/// from others, and a control character in them could paint lines that nobody wrote. Each is shown as `\x1b`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control())
}

/// [`printable`] for text of several lines: line breaks and tabulators stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() && c != '\n' && c != '\t')
}

/// What clears the line of a progress display.
const CLEAR_LINE: &str = "\r\x1b[K";

/// What commands tell people, on standard error. Nothing sensible can be done when that is gone.
pub fn tell(text: &str) {
    let (clear, text) = match text.strip_prefix(CLEAR_LINE) {
        Some(text) => (CLEAR_LINE, text),
        None => ("", text),
    };
    let _ = std::io::stderr().write_all(format!("{clear}{}", printable_lines(text)).as_bytes());
}

fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_bad(c) {
            // All of them are below 256.
            true => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Writes one line. Line breaks in the text become spaces: one event is one line.
pub fn write(level: Level, text: std::fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    LINES[level as usize - 1].fetch_add(1, Ordering::Relaxed);
    let name = match level {
        Level::Error => "ERROR",
        Level::Warn => "WARN ",
        Level::Info => "INFO ",
        Level::Debug => "DEBUG",
    };
    let service = PART.with_borrow(|part| {
        part.as_deref().or(SERVICE.get().map(String::as_str)).unwrap_or("skep").to_owned()
    });
    let text = text.to_string().replace('\n', " ");
    let line = format!("{} {name} {service}: {}\n", format_time(SystemTime::now()), printable(&text));
    // Nothing sensible can be done when standard error is gone.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// RFC 3339 in UTC with milliseconds.
pub fn format_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = Timestamp { secs: since.as_secs() as i64, nanos: 0 }.to_string();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), since.subsec_millis())
}

/// As that of std, for what commands tell people; but a pipe that is closed or a disk that is full behind standard
/// error ends no command: aborting would leave behind what only this process can remove.
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => {{
        $crate::log::tell(&format!($($text)*));
    }};
}

/// See `eprint`.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::eprint!("\n") };
    ($($text:tt)*) => { $crate::eprint!("{}\n", format_args!($($text)*)) };
}

/// Writes an error line.
#[macro_export]
macro_rules! error {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Error, format_args!($($arg)*)) };
}

/// Writes a warning line.
#[macro_export]
macro_rules! warning {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Warn, format_args!($($arg)*)) };
}

/// Writes an information line.
#[macro_export]
macro_rules! info {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Info, format_args!($($arg)*)) };
}

/// Writes a developer's line.
#[macro_export]
macro_rules! debug {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Debug, format_args!($($arg)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Goal: nothing that a terminal acts upon passes, of either range of control characters; everything else does.
    #[test]
    fn control_characters_are_shown() {
        assert_eq!(printable("a\x1b[2Jb\nc\u{9b}d\x7f\te"), "a\\x1b[2Jb\\x0ac\\x9bd\\x7f\\x09e");
        assert_eq!(printable_lines("a\n\tb\r\0"), "a\n\tb\\x0d\\x00");
        assert_eq!(printable("gr\u{fc}n \u{1f600}"), "gr\u{fc}n \u{1f600}");
    }

    /// Goal: lines carry milliseconds.
    #[test]
    fn times_of_lines() {
        let time = UNIX_EPOCH + Duration::from_millis(1_795_262_400_042);
        assert_eq!(format_time(time), "2026-11-21T12:00:00.042Z");
    }
}
