//! Into the background: the mount runs in a process of its own, and the command that started it
//! ends when the file system answers, or with the reason why it does not.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Tells the started process that it is the background one.
const BACKGROUND_ENV: &str = "SKEP_BACKGROUND";
/// First word of its line when the file system answers.
const LIVE: &str = "live";

/// Is this the process that a command started into the background?
pub fn is_background() -> bool {
    std::env::var_os(BACKGROUND_ENV).is_some()
}

/// Starts this program again in the background and waits for its word.
pub fn start(run_dir: &Path, mount_point: &Path) -> ExitCode {
    match try_start(run_dir, mount_point) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("skep mount: {text}");
            ExitCode::FAILURE
        }
    }
}

fn try_start(run_dir: &Path, mount_point: &Path) -> Result<(), String> {
    let log = log_file(run_dir, mount_point);
    std::fs::create_dir_all(run_dir).map_err(|e| format!("{}: {e}", run_dir.display()))?;
    let log_writer = OpenOptions::new().create(true).append(true).open(&log);
    let log_writer = log_writer.map_err(|e| format!("{}: {e}", log.display()))?;
    let program = std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_else(|| OsStr::new("skep").to_owned());
    let mut command = Command::new(program);
    std::os::unix::process::CommandExt::arg0(&mut command, called);
    command.args(words).env(BACKGROUND_ENV, "1");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_writer).spawn();
    let mut child = child.map_err(|e| format!("the mount process cannot be started: {e}"))?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        BufReader::new(pipe).read_line(&mut line).map_err(|e| format!("no word from the mount: {e}"))?;
    }
    match line.trim() {
        LIVE => Ok(()),
        "" => Err(format!("the mount process ended without a word; see {}", log.display())),
        reason => Err(reason.to_owned()),
    }
}

/// The background process leaves the terminal and the directory it was started in.
pub fn detach() {
    // It fails only for a process that leads its group, which a started one does not.
    let _ = rustix::process::setsid();
}

/// The file system answers.
pub fn tell_live() {
    // An open working directory would keep another file system busy.
    let _ = std::env::set_current_dir("/");
    tell(LIVE);
}

/// It will not; `reason` is one line.
pub fn tell_failed(reason: &str) {
    tell(&reason.replace('\n', " "));
}

fn tell(line: &str) {
    let mut out = std::io::stdout();
    // Whoever waited may be gone; the mount goes on.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// `/mnt/data` logs to `<run_dir>/mount-mnt-data.log`.
fn log_file(run_dir: &Path, mount_point: &Path) -> PathBuf {
    let name = mount_point.to_string_lossy().trim_matches('/').replace('/', "-");
    run_dir.join(format!("mount-{name}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each mount point has a log of its own.
    #[test]
    fn log_names() {
        assert_eq!(
            log_file(Path::new("/run/skep"), Path::new("/mnt/a")),
            Path::new("/run/skep/mount-mnt-a.log")
        );
    }
}
