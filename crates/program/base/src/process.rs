//! Processes of this machine, as `/proc` shows them.

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// State and start time (in clock ticks since boot) of a process.
pub fn stat(pid: u32) -> Option<(u8, u64)> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

/// `pid (name) state ppid ... starttime ...`; the name may hold blanks and brackets.
fn parse_stat(text: &[u8]) -> Option<(u8, u64)> {
    let after = text.iter().rposition(|b| *b == b')')? + 2;
    let mut words = std::str::from_utf8(text.get(after..)?).ok()?.split(' ');
    let state = *words.next()?.as_bytes().first()?;
    // The state is field 3, the start time field 22.
    Some((state, words.nth(18)?.parse().ok()?))
}

/// The start of this machine.
pub fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// When a process that runs began, in clock ticks since boot.
pub fn started(pid: u32) -> Option<u64> {
    stat(pid).filter(|(state, _)| !matches!(state, b'Z' | b'X')).map(|(_, since)| since)
}

/// Does a process with this id run (and is no zombie)?
pub fn process_exists(pid: u32) -> bool {
    started(pid).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names with brackets and blanks do not shift the fields.
    #[test]
    fn stat_line() {
        let text = b"42 (a) b ) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20\n";
        assert_eq!(parse_stat(text), Some((b'S', 777)));
        assert_eq!(parse_stat(b"garbage"), None);
    }
}
