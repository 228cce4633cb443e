//! What several deliver together, when they do not work at the very same time.

/// Time in which at least one of them was at work: windows, from when until when, in nanoseconds of one clock.
pub fn busy_ns(windows: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let mut windows: Vec<(u64, u64)> = windows.into_iter().collect();
    windows.sort_unstable();
    let (mut busy, mut covered) = (0, 0);
    for (from, to) in windows {
        busy += to.saturating_sub(from.max(covered));
        covered = covered.max(to);
    }
    busy
}

/// Bytes a second: all of them over the time in which any was at work. Rates of windows that differ cannot be added: what
/// was never moved at once would be counted as if it had been.
pub fn rate(bytes: u64, busy_ns: u64) -> f64 {
    if busy_ns > 0 { bytes as f64 * 1e9 / busy_ns as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Goal: those that worked one after the other, or of which one took longer, are not told as if all had moved their
    /// bytes at once; a pause of all does not count, and what lies within another window adds no time.
    #[test]
    fn only_what_was_moved_at_once_adds_up() {
        let told = |all: &[(u64, u64, u64)]| {
            let busy = busy_ns(all.iter().map(|(_, from, to)| (from * SECOND, to * SECOND)));
            rate(all.iter().map(|(bytes, ..)| bytes).sum(), busy) as u64
        };
        assert_eq!(told(&[(100, 10, 11), (100, 10, 11)]), 200);
        assert_eq!(told(&[(100, 11, 12), (100, 10, 11)]), 100);
        assert_eq!(told(&[(100, 10, 11), (100, 10, 14), (100, 11, 12)]), 75);
        assert_eq!(told(&[(100, 10, 11), (100, 20, 21)]), 100);
        assert_eq!(told(&[]), 0);
    }
}
