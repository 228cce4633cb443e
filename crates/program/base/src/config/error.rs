//! What is wrong with a configuration: every problem at once, each with its place and its remedy.

use core::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of the configuration file.
    File {
        path: PathBuf,
        /// Counted from 1; 0 when the whole file is meant.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A `key=value` of the command line, as given.
    Flag(String),
    /// Nothing set it: the default of this service.
    Default(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: 0 } => write!(f, "{}", path.display()),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(text) => write!(f, "--set {text}"),
            Self::Default(service) => write!(f, "{service} configuration"),
        }
    }
}

/// One problem: where, what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the wrong value stands.
    pub origin: Origin,
    /// What is wrong with it.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.origin, self.what, self.remedy)
    }
}

/// A configuration that cannot be used, with all its problems, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Problem>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}
