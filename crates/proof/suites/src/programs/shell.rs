//! Running commands, with everything they said in the error.

use std::path::Path;
use std::process::{Command, Stdio};

/// Most that is shown of a failed command's output.
const SHOWN: usize = 4_000;

/// Is there such a command?
pub fn is_installed(command: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(command).is_file()))
}

/// Runs a shell script in `dir` that must succeed; gives what it printed, trimmed.
pub fn must(dir: &Path, script: &str) -> Result<String, String> {
    let output = command(dir, script).output().map_err(|e| format!("sh: {e}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(said(&output.stdout));
    }
    let text = format!("{}\n{}", said(&output.stdout), said(&output.stderr));
    let from = text.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
    Err(format!("{}: `{script}`:\n{}", output.status, &text[from..]))
}

/// A shell script, to be started by the caller.
pub fn command(dir: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", script]).current_dir(dir).stdin(Stdio::null());
    command
}

/// Both must be the same.
pub fn same(what: &str, is: &str, wanted: &str) -> Result<(), String> {
    if is == wanted { Ok(()) } else { Err(format!("{what}: `{is}` instead of `{wanted}`")) }
}
