//! A setting of the kernel that steps change, and that is what it was when they are done.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What the keeper runs: it waits for the end of its input, which comes with the end of the run, however that ends.
const KEEPER: &str =
    "cat >/dev/null; now=$(cat \"$1\") && [ \"$now\" = \"$2\" ] || printf %s \"$2\" > \"$1\"";

/// Puts a setting back when it goes, also when the run is killed: a shell in a session of its own does it.
pub struct Kept(Option<Child>);

impl Kept {
    /// Remembers what the setting is now. Where there is no such setting, the steps that need it say so.
    pub fn of(path: &Path) -> Result<Self, String> {
        let Ok(before) = std::fs::read_to_string(path) else { return Ok(Self(None)) };
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", KEEPER, "sh"]).arg(path).arg(before.trim());
        let keeper = command.stdin(Stdio::piped()).spawn().map_err(|e| format!("setsid: {e}"))?;
        Ok(Self(Some(keeper)))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(keeper) = &mut self.0 else { return };
        drop(keeper.stdin.take());
        match keeper.wait() {
            Ok(status) if status.success() => {}
            ended => {
                eprintln!("a setting may not be what it was before this run: its keeper ended with {ended:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what steps write into a setting is gone when the run is, and a setting that is not there is not made.
    #[test]
    fn as_it_was_before() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let (path, none) = (scratch.path().join("enable_uring"), scratch.path().join("none"));
        std::fs::write(&path, "N\n").unwrap();
        let both = (Kept::of(&path).unwrap(), Kept::of(&none).unwrap());
        std::fs::write(&path, "Y").unwrap();
        drop(both);
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), "N");
        assert!(!none.exists());
    }

    /// Goal: it is put back, too, when the run has no time to: its pipe closes, and that is all the keeper waits for.
    #[test]
    fn a_killed_run_puts_it_back() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let path = scratch.path().join("enable_uring");
        std::fs::write(&path, "N").unwrap();
        let mut kept = Kept::of(&path).unwrap();
        std::fs::write(&path, "Y").unwrap();
        let mut keeper = kept.0.take().unwrap();
        drop(kept);
        drop(keeper.stdin.take());
        assert!(keeper.wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "N");
    }
}
