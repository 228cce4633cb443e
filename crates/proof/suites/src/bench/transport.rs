//! How the kernel's requests reach a FUSE daemon.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// The kernel's switch for FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Reads and writes of /dev/fuse.
    Dev,
    /// FUSE over io_uring.
    Uring,
}

impl Transport {
    /// As options and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Uring => "uring",
        }
    }

    /// The name of the empty file system on it.
    pub fn empty(self) -> &'static str {
        match self {
            Self::Dev => "empty-dev",
            Self::Uring => "empty-uring",
        }
    }

    /// The name of Skep on it.
    pub fn skep(self) -> &'static str {
        match self {
            Self::Dev => "skep-dev",
            Self::Uring => "skep-uring",
        }
    }

    /// The name of another build of Skep on it.
    pub fn beside(self) -> &'static str {
        match self {
            Self::Dev => "beside-dev",
            Self::Uring => "beside-uring",
        }
    }
}

/// Those of `wanted` that this kernel can do; says which are left out and why. Turns FUSE over
/// io_uring on where it is only switched off.
pub fn available(wanted: &[Transport]) -> Result<Vec<Transport>, String> {
    let mut left = wanted.to_vec();
    left.sort_unstable();
    left.dedup();
    if left.contains(&Transport::Uring)
        && let Err(why) = uring()
    {
        eprintln!("bench: without FUSE over io_uring: {why}");
        left.retain(|transport| *transport != Transport::Uring);
    }
    if left.is_empty() {
        return Err("no transport is left to measure".to_owned());
    }
    Ok(left)
}

fn uring() -> Result<(), String> {
    let switch = Path::new(SWITCH);
    let state =
        std::fs::read_to_string(switch).map_err(|_| format!("this kernel has no {SWITCH} (Linux 6.14+)"))?;
    if state.trim() != "Y" {
        std::fs::write(switch, "Y").map_err(|e| format!("{SWITCH} is off and stays so: {e}"))?;
        eprintln!("bench: switched {SWITCH} on");
    }
    Ok(())
}
