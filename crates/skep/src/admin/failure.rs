//! Why a command failed: one text that says what, where and what to do.

use crate::caller::CallError;
use std::fmt;

/// What goes to standard error, and whether it is that nobody answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String, bool);

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Did nobody answer? Then it may work later.
    pub fn is_unreachable(&self) -> bool {
        self.1
    }

    /// With this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into(), false)
    }

    /// A call to `whom` failed.
    pub fn call(whom: &str, error: &CallError) -> Self {
        let text = match error {
            CallError::Refused(refusal) => match refusal.status.as_errno() {
                // The service has nothing to add to the error itself.
                Some(errno) if refusal.detail.is_empty() => {
                    format!("{whom}: {}", std::io::Error::from_raw_os_error(i32::from(errno.0)))
                }
                _ => format!("{whom}: {refusal}"),
            },
            other => format!("{whom}: {other}"),
        };
        Self(text, matches!(error, CallError::Net(_)))
    }

    /// Something on this machine failed.
    pub fn local(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"), false)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text, false)
    }
}

impl From<std::io::Error> for Failure {
    /// Only writing to standard output gives a plain one.
    fn from(e: std::io::Error) -> Self {
        Self(format!("standard output: {e}"), false)
    }
}
