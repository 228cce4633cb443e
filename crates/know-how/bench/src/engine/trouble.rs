//! What went wrong with a file: which, where, doing what, and the kernel's reason.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// An error of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What was tried: "write", "open", ...
    pub doing: String,
    /// The file or directory.
    pub path: String,
    /// Where in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The kernel's error number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// In words, and what to do where something can be done.
    pub reason: String,
}

impl Trouble {
    /// A failed system call.
    pub fn call(doing: &str, path: &Path, errno: rustix::io::Errno) -> Self {
        let hint = match errno {
            rustix::io::Errno::NOSPC => "; make room or make the job smaller",
            rustix::io::Errno::DQUOT => "; raise the quota or make the job smaller",
            rustix::io::Errno::MFILE => "; raise the limit of open files (ulimit -n)",
            rustix::io::Errno::INVAL if doing == "open" => "; this file system may not do O_DIRECT",
            _ => "",
        };
        Self {
            doing: doing.to_owned(),
            path: path.display().to_string(),
            offset: None,
            errno: Some(errno.raw_os_error()),
            reason: format!("{}{hint}", std::io::Error::from(errno)),
        }
    }

    /// Something else that is wrong.
    pub fn found(doing: &str, path: &Path, reason: String) -> Self {
        Self { doing: doing.to_owned(), path: path.display().to_string(), offset: None, errno: None, reason }
    }

    /// The same, with the place in the file.
    pub fn at(self, offset: u64) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// The worker was told to stop.
    pub(super) fn stopped() -> Self {
        Self::found("run", Path::new(""), STOPPED.to_owned())
    }

    /// Whether it only says that the worker was told to stop.
    pub fn is_stop(&self) -> bool {
        self.reason == STOPPED
    }
}

const STOPPED: &str = "stopped";

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.doing)?;
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the sentence names the call, the file, the place and the reason.
    #[test]
    fn sentence() {
        let full = Trouble::call("write", Path::new("/mnt/a"), rustix::io::Errno::NOSPC).at(4096).to_string();
        assert!(full.starts_with("write /mnt/a at byte 4096: No space left"), "{full}");
        assert!(full.contains("make room"), "{full}");
        assert!(Trouble::stopped().is_stop());
    }
}
