//! Waiting for a condition of another process that offers no event.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Longest wait for what should come within moments, on a machine whose disk and processors others keep busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Looks until `condition` gives a value. The error names `what` did not come within `limit`, and what
/// the last look found instead.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        match condition() {
            Ok(value) => return Ok(value),
            Err(found) if begun.elapsed() > limit => {
                return Err(format!("{what}: not within {} s: {found}", limit.as_secs_f32()));
            }
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// [`until`] with the usual patience, for a condition that is true or not.
pub fn patiently(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
    until(what, PATIENCE, || if condition() { Ok(()) } else { Err("it is not so".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a condition that comes true ends the wait, one that never does is an error that says so.
    #[test]
    fn waits_and_gives_up() {
        let mut looks = 0;
        let third = until("third look", PATIENCE, || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err("too early".to_owned()) }
        });
        assert_eq!(third, Ok(3));
        let never: Result<(), _> = until("a miracle", Duration::ZERO, || Err("nothing".to_owned()));
        assert_eq!(never, Err("a miracle: not within 0 s: nothing".to_owned()));
    }
}
