//! Calls into mounted file systems, which take as long as a server is away: nothing of the administration waits for that.

use super::failure::{Failure, Outcome};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// A file system that takes longer to say how full it is does not answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// What `ask` gives, unless it takes longer than `limit`. Its thread is left behind then, and ends with the process.
pub fn within<T: Send + 'static>(limit: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    let asking = std::thread::Builder::new().name("asks-mount".to_owned()).spawn(move || {
        // Nobody listens any more when the answer comes too late.
        let _ = tell.send(ask());
    });
    asking.ok().and_then(|_| told.recv_timeout(limit).ok())
}

/// What `ask` says of `path`, or that the file system there does not answer.
pub fn of_path<T: Send + 'static>(
    path: &Path,
    limit: Duration,
    ask: impl FnOnce(&Path) -> T + Send + 'static,
) -> Outcome<T> {
    let asked = path.to_owned();
    within(limit, move || ask(&asked)).ok_or_else(|| {
        Failure::new(format!(
            "{}: the file system there did not answer within {} s; it waits for a server that is away: see skep health",
            path.display(),
            limit.as_secs()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an answer is given, and what does not come in time is not waited for.
    #[test]
    fn answers_and_silence() {
        let limit = Duration::from_secs(60);
        assert_eq!(within(limit, || 7), Some(7));
        let (keep, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(10), move || never.recv().is_ok()), None);
        drop(keep);
        let error = of_path(Path::new("/a"), Duration::ZERO, |_| std::thread::park()).unwrap_err();
        assert!(error.to_string().contains("/a: the file system there did not answer"), "{error}");
    }
}
