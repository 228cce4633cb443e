//! Why a command failed: one text that says what, where and what to do.

use crate::caller::CallError;
use crate::cli::EXIT_USAGE;
use skep_wire::Status;
use std::fmt;
use std::process::ExitCode;

/// What goes to standard error, and of which kind it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String, FailureKind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    Failed,
    /// Nobody answered.
    Unreachable,
    /// Somebody did, and they do not understand each other: another key, another release, overload.
    Misfit,
    /// What it was asked about has changed meanwhile.
    Overtaken,
    /// What was asked for makes no sense, wherever it is asked.
    Usage,
    /// A signal ended it before it was through.
    Interrupted,
}

/// Exit code of what a signal ended, whatever the signal.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Did nobody answer? Then it may work later.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.1, FailureKind::Unreachable | FailureKind::Misfit)
    }

    /// Is the one who answered not the one that was meant, by its key or its release?
    pub fn is_misfit(&self) -> bool {
        self.1 == FailureKind::Misfit
    }

    /// Does the command line make no sense as it stands?
    pub fn is_usage(&self) -> bool {
        self.1 == FailureKind::Usage
    }

    /// Did what was asked about change since somebody looked? Then it is looked at again.
    pub fn is_overtaken(&self) -> bool {
        self.1 == FailureKind::Overtaken
    }

    /// With this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into(), FailureKind::Failed)
    }

    /// The command line cannot be done as it stands.
    pub fn usage(text: impl Into<String>) -> Self {
        Self(text.into(), FailureKind::Usage)
    }

    /// A signal ended the command, which has put things in order.
    pub fn interrupted(text: impl Into<String>) -> Self {
        Self(text.into(), FailureKind::Interrupted)
    }

    /// The exit code of the command.
    pub fn exit_code(&self) -> ExitCode {
        match self.1 {
            FailureKind::Usage => ExitCode::from(EXIT_USAGE),
            FailureKind::Interrupted => ExitCode::from(EXIT_INTERRUPTED),
            FailureKind::Failed | FailureKind::Unreachable | FailureKind::Misfit | FailureKind::Overtaken => {
                ExitCode::FAILURE
            }
        }
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
        let kind = match error {
            CallError::Net(e) if e.is_permanent() => FailureKind::Misfit,
            CallError::Net(_) => FailureKind::Unreachable,
            CallError::Refused(refusal) if refusal.status == Status::CUT_SINCE => FailureKind::Overtaken,
            _ => FailureKind::Failed,
        };
        Self(text, kind)
    }

    /// Something on this machine failed.
    pub fn local(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(format!("{what}: {error}"))
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
        Self::new(text)
    }
}

impl From<std::io::Error> for Failure {
    /// Only writing to standard output gives a plain one.
    fn from(e: std::io::Error) -> Self {
        Self::new(format!("standard output: {e}"))
    }
}
